"""Collectives of emulated GPUs in several processes, over the RCCL of emulator/working: what they compute, and what is said when something is wrong."""
import pathlib
import socket

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def ranks(program):
    """Runs a text in several processes with an emulated GPU each; their outputs."""

    def run(text, world=2, library=True, fail=False, **variables):
        if library:
            program.libraries = f"{program.libraries}:{program.libraries}/working"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYFLAME_EMULATOR_DEVICES": str(world), "PYFLAME_EMULATOR_EAGER": "1"}
        processes = [program.start(text, **{**common, "RANK": str(r), "LOCAL_RANK": str(r), **variables}) for r in range(world)]
        if not fail:
            return [program.finish(p, timeout=120) for p in processes]
        return [p.communicate(timeout=120) for p in processes]

    return run


PROGRAM = f"import sys\nsys.argv = ['p', 'rocm']\nexec(open({str(HERE / 'collectives_program.py')!r}).read())"
START = """
import pyflame.distributed as dist
dist.init_process_group(timeout=float(os.environ.get('SECONDS', 60)), device='rocm')
rank = dist.get_rank()
"""


def test_every_collective(ranks):
    assert ranks(PROGRAM, PYFLAME_EMULATOR_EAGER="0") == ["right\n"] * 2


def test_without_the_library(ranks):
    """Tensors go through the host's memory, and one line says why."""
    said = ranks(START + """
for _ in range(2):
    x = pf.full((3,), rank + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3 and dist.get_backend() == 'host'
print([f['reason'] for f in pf.fallbacks() if 'all_reduce' in str(f)])
""", library=False)
    assert said == ["['RCCL (librccl.so.1) was not found; install ROCm\\'s rccl package']\n".replace("\\'", "'").replace("['", '["').replace("']", '"]')] * 2


def test_two_ranks_on_one_gpu(ranks):
    said = ranks("""
import pyflame.distributed as dist
dist.init_process_group(timeout=60, device='rocm:0')
x = pf.ones(3)
dist.all_reduce(x)
assert x.tolist() == [2.0] * 3
print(str(pf.fallbacks()))
""")
    assert all("ranks 0 and 1 use the same GPU; pyflame.set_device() or init_process_group(device=) gives each its own" in s for s in said)


def test_fewer_gpus_than_processes(ranks):
    (out, _), (told, _) = ranks("""
import pyflame.distributed as dist
print(refused(ValueError if os.environ['RANK'] == '1' else RuntimeError, lambda: dist.init_process_group(timeout=60, device='rocm')))
""", fail=True, PYFLAME_EMULATOR_DEVICES="1")
    assert told == "init_process_group: there are fewer GPUs than processes of this host; got LOCAL_RANK=1 and 1 GPU; expected a GPU for each; hint: device='rocm:0' shares one, through the host's memory\n"
    assert "rank 1 is gone" in out


def test_a_tensor_on_another_gpu(ranks):
    said = ranks(START + "print(refused(ValueError, lambda: dist.all_reduce(pf.ones(2, device=f'rocm:{1 - rank}'))))\ndist.barrier()\n")
    assert said == [f"all_reduce: the tensor is on another GPU than this rank's collectives; got rocm:{1 - r}; expected rocm:{r}; hint: one process for each GPU\n" for r in range(2)]


def test_a_library_that_fails_to_connect(ranks):
    said = ranks(START + "x = pf.ones(2)\ndist.all_reduce(x)\nassert x.tolist() == [2.0, 2.0]\nprint(pf.fallbacks())\n", PYFLAME_EMULATOR_LIBRARY_FAILS="ncclCommInitRank")
    assert all("rccl cannot connect the devices; got error 2, unhandled system error" in s for s in said)


def test_a_call_that_the_library_refuses(ranks):
    said = ranks(START + """
os.environ['PYFLAME_EMULATOR_LIBRARY_FAILS'] = 'rccl'
import ctypes
ctypes.CDLL(None).setenv(b'PYFLAME_EMULATOR_LIBRARY_FAILS', b'rccl', 1)
x = pf.ones(2)
print(refused(RuntimeError, lambda: dist.all_reduce(x)))
assert x.tolist() == [1.0, 1.0]
dist.barrier()
""")
    assert said == [f"distributed: rccl cannot queue an all_reduce; got error 2, unhandled system error on rank {r} of 2, on rocm:{r}; expected success; hint: NCCL_DEBUG=INFO prints what it does\n" for r in range(2)]


def test_calls_that_differ(ranks):
    """With PYFLAME_CHECK_COLLECTIVES ranks compare their calls before each of them, and stay usable."""
    said = ranks(START + """
print(refused(ValueError, lambda: dist.all_reduce(pf.ones(2 + rank))))
x = pf.ones(2)
dist.all_reduce(x)
assert x.tolist() == [2.0, 2.0]
""", PYFLAME_CHECK_COLLECTIVES="1")
    assert all("all_reduce(sum) of float32 (2,)" in s and "all_reduce(sum) of float32 (3,)" in s for s in said), said


def test_a_call_that_one_rank_refuses(ranks):
    """With PYFLAME_CHECK_COLLECTIVES the other rank is told, and the next call of both is one collective."""
    said = ranks(START + """
x = pf.full((2,), 100.0)
dist.all_reduce(x)
y = pf.full((2,), 1000.0)
out = [pf.zeros(2) for _ in range(2 if rank else 1)]
print(refused(ValueError, lambda: dist.all_gather(out, y)))
x = pf.ones(2)
dist.all_gather([pf.zeros(2), pf.zeros(2)], x)
dist.all_reduce(x)
assert x.tolist() == [2.0, 2.0]
dist.barrier()
""", PYFLAME_CHECK_COLLECTIVES="1")
    assert "tensor_list is not a list of one tensor for each rank" in said[0] and "another rank raised an error for this call" in said[1] and "got rank 0: all_gather at " in said[1], said


def test_a_refused_call_does_not_count_on_the_host(ranks):
    """Without PYFLAME_CHECK_COLLECTIVES, calls by the library have no numbers: collectives over the host are as before."""
    ranks(START + """
x = pf.full((2,), 100.0)
dist.all_reduce(x)
if rank == 0:
    refused(ValueError, lambda: dist.all_gather([pf.zeros(2)], x))
dist.barrier()
dist.all_reduce(x)
assert x.tolist() == [400.0, 400.0]
""")


def test_a_rank_that_does_not_come(ranks):
    said = ranks(START + """
x = pf.ones(2)
dist.all_reduce(x)
if rank == 0:
    told = refused(RuntimeError, lambda: dist.all_reduce(pf.ones(4, 5)))
    print(told)
    assert refused(RuntimeError, lambda: dist.all_reduce(x)) == told
dist.monitored_barrier(timeout=60)
""", SECONDS="2")
    assert said[0].startswith("all_reduce(sum) of float32 (4, 5) at ") and ": timed out after 2 s on rocm:0; got rank 1 did not come; its last call was all_reduce(sum) of float32 (2,) at " in said[0], said[0]


def test_a_rank_that_ends(ranks):
    out = ranks(START + """
x = pf.ones(2)
dist.all_reduce(x)
if rank == 1:
    os.kill(os.getpid(), 9)
print(refused(RuntimeError, lambda: dist.all_reduce(pf.ones(4, 5))))
""", fail=True)
    assert "all_reduce(sum) of float32 (4, 5) at" in out[0][0] and ": rank 1 is gone; its process ended; the group cannot be used any more; hint: start the processes again" in out[0][0], out


def test_a_path_that_changes_bytes(ranks):
    """The sum that is checked when GPUs are connected; a later call asks again."""
    said = ranks("""
import pyflame.distributed as dist
from pyflame.distributed import _device
whole = _device.Transport.all_reduce
def wrong(self, signature, x, reduction, async_op):
    whole(self, signature, x, reduction, async_op)
    if dist.get_rank() == 1:
        x[7:9] += 1
dist.init_process_group(timeout=60)
pf.set_device(f"rocm:{dist.get_rank()}")
_device.Transport.all_reduce = wrong
print(refused(RuntimeError, lambda: dist.all_reduce(pf.ones(2))))
_device.Transport.all_reduce = whole
x = pf.ones(2)
work = dist.all_reduce(x, async_op=True)
assert work.wait(30) and x.tolist() == [2.0, 2.0]
""")
    assert said == ["all_reduce: the sum over the GPUs of the group is wrong; got 2 of 1024 elements on rank 1 (rocm:1); expected none; hint: `pyflame doctor --comm` finds the path; "
                    "NCCL_P2P_DISABLE=1 avoids peer-to-peer transfers\n"] * 2


def test_a_pair_that_changes_bytes(ranks):
    """The messages that each two GPUs send each other when they are connected."""
    said = ranks("""
import pyflame.distributed as dist
from pyflame.distributed import _device
whole = _device.Transport.exchange
def wrong(self, op, signature, sends, takes, async_op, result):
    whole(self, op, signature, sends, takes, async_op, result)
    if dist.get_rank() == 1:
        takes[0][1][7:9] += 1
dist.init_process_group(timeout=60)
pf.set_device(f"rocm:{dist.get_rank()}")
_device.Transport.exchange = wrong
print(refused(RuntimeError, lambda: dist.all_reduce(pf.ones(2))))
_device.Transport.exchange = whole
x = pf.ones(2)
dist.all_reduce(x)
assert x.tolist() == [3.0] * 2
""", world=3)
    assert said == ["all_reduce: messages between GPUs of the group are wrong; got 2 of 1024 elements from rank 0 to rank 1; expected none; hint: `pyflame doctor --comm` finds the path; "
                    "NCCL_P2P_DISABLE=1 avoids peer-to-peer transfers\n"] * 3


def test_unused_parameters(ranks):
    said = ranks(START + """
from pyflame.nn.parallel import DistributedDataParallel as DDP
model = pf.nn.ModuleList([pf.nn.Linear(2, 1), pf.nn.Linear(2, 1)])
ddp = DDP(model)
print(refused(RuntimeError, lambda: model[0](pf.ones(1, 2)).sum().backward()))
both = DDP(pf.nn.ModuleList([pf.nn.Linear(2, 1), pf.nn.Linear(2, 1)]), find_unused_parameters=True)
(both.module[rank](pf.ones(1, 2)).sum()).backward()
assert both.module[0].bias.grad.tolist() == both.module[1].bias.grad.tolist() == [0.5]
""")
    assert said == [f"DistributedDataParallel: parameters got no gradient; got 1.bias, 1.weight on rank {r}; expected a loss that depends on all parameters; hint: find_unused_parameters=True, "
                    "or requires_grad_(False) for those that are not trained, before DistributedDataParallel is made\n" for r in range(2)]


TRAIN = START + """
from pyflame.nn.parallel import DistributedDataParallel as DDP
DDP.in_order_bytes *= int(os.environ.get('IN_ORDER', 1))
ddp = DDP(pf.nn.Linear(3, 2))
optimizer = pf.optim.SGD(ddp.parameters(), lr=0.5)
assert ddp._in_order == (DDP.in_order_bytes > 0)
def step():
    optimizer.zero_grad()
    loss = ddp(pf.ones(4, 3)).sum()
    loss.backward()
    optimizer.step()
    return loss.item() + ddp.module.bias.sum().item()
for _ in range(10):
    step()
"""


@pytest.mark.parametrize("in_order", [True, False])
def test_a_rank_that_ends_while_gradients_are_averaged(ranks, in_order):
    """On a stream of their own, and on the stream that computes: the next steps raise."""
    out = ranks(TRAIN + """
if rank == 1:
    os.kill(os.getpid(), 9)
print(refused(RuntimeError, step))
print(refused(RuntimeError, step))
""", fail=True, IN_ORDER=str(int(in_order)))
    for line in out[0][0].splitlines():
        assert line.startswith("all_reduce(avg) of 2 float32 tensors with 8 elements at <string>:") and ": rank 1 is gone; its process ended; the group cannot be used any more; hint: start the processes again" in line, out
    assert len(out[0][0].splitlines()) == 2


def test_a_rank_that_does_not_average(ranks):
    said = ranks(TRAIN + """
if rank == 0:
    print(refused(RuntimeError, step))
dist.monitored_barrier(timeout=60)
""", SECONDS="3")
    assert said[0].startswith("all_reduce(avg) of 2 float32 tensors with 8 elements at <string>:") and ": timed out after 3 s on rocm:0; got rank 1 did not come; its last call was all_reduce(avg) of 2 float32 tensors" in said[0], said


def test_gradients_that_differ(ranks):
    """With PYFLAME_CHECK_COLLECTIVES the average of small gradients is compared as well."""
    said = ranks(START + """
from pyflame.nn.parallel import DistributedDataParallel as DDP
ddp = DDP(pf.nn.Linear(3, 2))
if rank == 0:
    print(refused(ValueError, lambda: ddp(pf.ones(1, 3)).sum().backward()))
else:
    print(refused(ValueError, lambda: dist.all_reduce(pf.ones(5))))
""", PYFLAME_CHECK_COLLECTIVES="1")
    assert all("all_reduce(avg) of 2 float32 tensors with 8 elements" in s and "all_reduce(sum) of float32 (5,)" in s for s in said), said


def test_other_threads_run_while_item_waits(ranks, tmp_path):
    """Such as the watchdog. Rank 1 comes when a thread of rank 0 has run, while rank 0 waits for the collective."""
    said = ranks(START + """
import threading, time
x = pf.ones(1)
dist.all_reduce(x)
assert x.item() == 2
if rank == 0:
    dist.all_reduce(x)
    threading.Timer(0.5, lambda: open(os.environ['CAME'], 'w').close()).start()
else:
    until = time.monotonic() + 30
    while not os.path.exists(os.environ['CAME']):
        assert time.monotonic() < until
        time.sleep(0.01)
    dist.all_reduce(x)
print(x.item())
""", PYFLAME_EMULATOR_EAGER="0", CAME=str(tmp_path / "came"))
    assert said == ["4.0\n"] * 2


def test_collectives_are_in_profiles(ranks):
    """With the time of the device, and on a track of their own; those in the device's order, too."""
    said = ranks(START + """
import json
import tempfile
x, y = pf.full((1000,), 1.0), pf.zeros(2000)
dist.all_reduce(x)
with pf.profiler.profile() as prof:
    for _ in range(3):
        dist.all_reduce(x)
    work = dist.all_gather_into_tensor(y, x, async_op=True)
    (x * 2).sum().item()
    work.wait()
    dist._collectives.average_in_place([x], dist._collectives.averages_signature([x]))
    x.sum().item()
rows = {a.key: a for a in prof.key_averages()}
assert rows['all_reduce'].count == 4 and rows['all_gather_into_tensor'].count == 1, prof.key_averages().table()
assert rows['all_reduce'].device_time_total > 0, prof.key_averages().table()
with tempfile.TemporaryDirectory() as folder:
    prof.export_chrome_trace(f'{folder}/trace.json')
    trace = json.load(open(f'{folder}/trace.json'))
kernels = [e for e in trace['traceEvents'] if e.get('cat') == 'kernel' and 'Collective name' in e['args']]
assert len(kernels) == 5 and all(e['dur'] >= 0 and e['args']['impl'] == 'rccl' and e['args']['correlation'] for e in kernels), kernels
assert kernels[0]['args']['In msg nelems'] == 1000 and kernels[0]['args']['Process Group Ranks'] == '[0, 1]', kernels[0]
threads = {e['tid']: e['args']['name'] for e in trace['traceEvents'] if e.get('name') == 'thread_name'}
assert {threads[e['tid']] for e in kernels} == {f'collectives of rocm:{rank}'}, threads
print('right')
""")
    assert said == ["right\n"] * 2
