"""Collectives of several processes on one host, through shared memory and through TCP."""
import datetime
import re
import subprocess
import sys

import numpy
import pytest
from processes import WAYS, finish, run, start

import pyflame as pf
import pyflame.distributed as dist

EVERYTHING = """
import numpy as np
dist.init_process_group("gloo", timeout=60)
assert dist.is_initialized() and dist.get_rank() == rank and dist.get_world_size() == world and dist.get_backend() == "host"
way = dist.group.WORLD.transports()
assert way[rank] == "itself" and set(way) - {"itself"} == {sys.argv[1] if len(sys.argv) > 1 else os.environ["WAY"]}, way

def value(r, shape, dtype):
    g = np.random.default_rng(r)
    return g.integers(0, 2, shape).astype(bool) if dtype == "bool" else (g.standard_normal(shape) * 9).astype("float32")

# Every dtype and reduction: the values are combined by rank.
import hashlib
bits = hashlib.sha256()
for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"):
    for op, combine in (("SUM", np.add), ("PRODUCT", np.multiply), ("MIN", np.minimum), ("MAX", np.maximum), ("AVG", np.add)):
        if op == "AVG" and "float" not in dtype:
            continue
        ins = [pf.tensor(value(r, (5, 7), dtype)).to(getattr(pf, dtype)) for r in range(world)]
        x = ins[rank].clone()
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        wide = [t.to(pf.float32).numpy() if dtype in ("float16", "bfloat16") else t.numpy() for t in ins]
        want = wide[0].copy()
        for w in wide[1:]:
            want = combine(want, w) if dtype != "bool" else (want & w if op in ("PRODUCT", "MIN") else want | w)
        if op == "AVG":
            want = want / want.dtype.type(world)
        want = pf.tensor(want).to(x.dtype)
        assert x.equal(want), (dtype, op)
        bits.update(x.to(pf.float64).numpy().tobytes())
z = pf.complex(pf.full((3,), 1.0 + rank), pf.full((3,), 2.0))
dist.all_reduce(z)
assert z.tolist() == [complex(sum(range(1, world + 1)), 2 * world)] * 3

# Sizes that fill no block, one block, and many; every rank has the bits of the sum by rank.
for n in (0, 1, world - 1, world + 1, 1000, 131072 * world, 700001):
    x = pf.tensor(value(rank, (n,), "float32"))
    dist.all_reduce(x)
    want = value(0, (n,), "float32")
    for r in range(1, world):
        want = want + value(r, (n,), "float32")
    assert np.array_equal(x.numpy(), want), n
    bits.update(x.numpy().tobytes())

whole = pf.zeros(2 * world, 3)
dist.all_gather_into_tensor(whole, pf.full((2, 3), float(rank)))
assert whole[:, 0].tolist() == [float(r) for r in range(world) for _ in range(2)]
parts = [pf.zeros(3, 2).t() for _ in range(world)]  # not contiguous
dist.all_gather(parts, pf.arange(6.0).reshape(2, 3) + rank)
assert [p.tolist() for p in parts] == [[[r + 0.0, r + 1, r + 2], [r + 3, r + 4, r + 5]] for r in range(world)]

out = pf.zeros(300001)
dist.reduce_scatter_tensor(out, pf.cat([pf.full((300001,), float(10 * part + rank)) for part in range(world)]))
assert out[0].item() == out[-1].item() == 10 * rank * world + sum(range(world))
dist.reduce_scatter(out, [pf.full((300001,), float(part)) for part in range(world)], op=dist.ReduceOp.MAX)
assert out[7].item() == rank

for n in (3, 100000):  # sent directly, and in parts
    for root in range(world):
        x = pf.arange(float(n)) + root if rank == root else pf.zeros(n)
        dist.broadcast(x, root)
        assert x.equal(pf.arange(float(n)) + root)
x = pf.full((3,), float(rank))
dist.reduce(x, 1)
assert x[0].item() == (sum(range(world)) if rank == 1 else rank)

got = [pf.zeros(2) for _ in range(world)] if rank == 2 else None
dist.gather(pf.full((2,), float(rank)), got, dst=2)
assert got is None or [g[0].item() for g in got] == list(range(world))
x = pf.zeros(2)
dist.scatter(x, [pf.full((2,), float(r)) for r in range(world)] if rank == 0 else None, src=0)
assert x.tolist() == [rank, rank]
outs = [pf.zeros(r + 1) for r in range(world)]
dist.all_to_all(outs, [pf.full((rank + 1,), float(10 * rank + r)) for r in range(world)])
assert [o.tolist() for o in outs] == [[10.0 * r + rank] * (r + 1) for r in range(world)]
x = pf.zeros(world)
dist.all_to_all_single(x, pf.arange(float(world)) + 10 * rank)
assert x.tolist() == [10.0 * r + rank for r in range(world)]

# Messages: larger than what the sockets keep, in both directions at once.
after, before = (rank + 1) % world, (rank - 1) % world
x = pf.zeros(3000000)
works = [dist.isend(pf.full((3000000,), float(rank)), after), dist.irecv(x, before)]
assert all(w.wait() for w in works) and works[0].is_completed() and x[-1].item() == before
if rank == 0:
    dist.send(pf.arange(4), 1, tag=3)
elif rank == 1:
    x = pf.zeros(4, dtype=pf.int64)
    assert dist.recv(x, 0, tag=3) == 0 and x.tolist() == [0, 1, 2, 3]

# Asynchronous calls keep their order among themselves and with the others.
xs = [pf.full((1000,), float(i + rank)) for i in range(20)]
works = [dist.all_reduce(x, async_op=True) for x in xs]
last = pf.full((4,), 1.0)
dist.all_reduce(last)
for i, (x, w) in enumerate(zip(xs, works)):
    w.wait()
    assert w.is_success() and x[0].item() == world * i + sum(range(world))
assert last[0].item() == world

objects = [None] * world
dist.all_gather_object(objects, {"rank": rank, "text": "x" * 1000 * rank})
assert [o["rank"] for o in objects] == list(range(world)) and len(objects[-1]["text"]) == 1000 * (world - 1)
some = [rank, {"a": rank}]
dist.broadcast_object_list(some, src=1)
assert some == [1, {"a": 1}]
objects = [None] * world if rank == 0 else None
dist.gather_object(str(rank), objects)
assert objects is None or objects == [str(r) for r in range(world)]
mine = [None]
dist.scatter_object_list(mine, [("to", r) for r in range(world)] if rank == 0 else None)
assert mine == [("to", rank)]

# Groups: ranks count within the group, src and dst name ranks of the job.
pair = dist.new_group([2, 0])
if rank in (0, 2):
    assert dist.get_rank(pair) == (0 if rank == 0 else 1) and dist.get_process_group_ranks(pair) == [0, 2] and dist.get_group_rank(pair, 2) == 1
    x = pf.full((2,), float(rank))
    dist.broadcast(x, src=2, group=pair)
    assert x.tolist() == [2, 2]
    dist.all_reduce(x, group=pair)
    assert x.tolist() == [4, 4]
else:
    assert pair is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
    # Nothing: it is not one of the group.
    dist.all_reduce(pf.ones(1), group=pair)
    out, two, objects = pf.full((2,), 7.0), [pf.full((1,), 7.0) for _ in range(2)], [None, None]
    dist.all_gather_into_tensor(out, pf.ones(1), group=pair)
    dist.reduce_scatter_tensor(out[:1], pf.ones(2), group=pair)
    dist.all_to_all_single(out, pf.ones(2), group=pair)
    dist.all_gather(two, pf.ones(1), group=pair)
    dist.reduce_scatter(two[0], [pf.ones(1)] * 2, group=pair)
    dist.all_to_all(two, [pf.ones(1)] * 2, group=pair)
    assert dist.gather(pf.ones(1), dst=0, group=pair, async_op=True).wait()
    dist.scatter(two[1], src=0, group=pair)
    dist.all_gather_object(objects, 1, group=pair)
    dist.gather_object(1, dst=0, group=pair)
    dist.scatter_object_list(objects, src=0, group=pair)
    assert out.tolist() == [7, 7] and [t.item() for t in two] == [7, 7] and objects == [None, None]
dist.barrier()

# A tensor with gradients, and one that is a view, are written in place.
w = pf.nn.Parameter(pf.full((2, 2), float(rank)))
version = w._version
dist.all_reduce(w[0])
assert w.tolist() == [[sum(range(world))] * 2, [rank] * 2] and w._version > version
print(bits.hexdigest())
dist.destroy_process_group()
assert not dist.is_initialized()
"""


def test_collectives(tmp_path):
    """All transports give the same bits, on every rank."""
    outputs = {way: run(3, EVERYTHING, tmp_path, WAY=way, **variables) for way, variables in WAYS.items()}
    assert len({line for lines in outputs.values() for line in lines}) == 1


def test_world_of_one():
    """Without other processes, each function works and moves nothing."""
    assert dist.is_available() and not dist.is_initialized() and dist.get_rank() == 0 and dist.get_world_size() == 1
    for begin in (lambda: None, dist.init_process_group):
        begin()
        x = pf.arange(4.0)
        assert dist.all_reduce(x) is None and dist.all_reduce(x, async_op=True).wait() and x.tolist() == [0, 1, 2, 3]
        y = pf.zeros(4)
        dist.all_gather_into_tensor(y, x)
        parts = [pf.zeros(4)]
        dist.all_gather(parts, x)
        assert y.equal(x) and parts[0].equal(x)
        for fn, args in ((dist.reduce_scatter_tensor, (y, x)), (dist.all_to_all_single, (y, x)), (dist.broadcast, (x, 0)), (dist.scatter, (y, [x])), (dist.gather, (x, [y])),
                         (dist.reduce, (x, 0)), (dist.barrier, ()), (dist.all_to_all, ([y], [x])), (dist.reduce_scatter, (y, [x]))):
            y.zero_()
            fn(*args)
        found = [None]
        dist.all_gather_object(found, "me")
        assert found == ["me"] and dist.new_group([0]).size() == 1
    assert dist.is_initialized() and dist.get_backend() == "host"
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_a_program_of_pytorch(tmp_path):
    program = "import pyflame.torch as torch, pyflame.torch.distributed as td\ntd.init_process_group('nccl', init_method='env://')\nx = torch.ones(2) * rank\ntd.all_reduce(x, op=td.ReduceOp.SUM)\nprint(x.tolist())\n"
    assert run(2, program, tmp_path) == ["[1.0, 1.0]\n"] * 2


def test_calls_of_two_threads_run_one_at_a_time():
    """A call that another thread starts waits for the one that runs on its caller's thread."""
    from pyflame.distributed._group import Work, _Lane

    lane, said, second = _Lane(), [], Work()

    def first():
        lane.start(second, lambda: said.append("second"))
        assert not second._ended.wait(0.1)
        said.append("first")

    lane.run(Work(), first)
    assert second.wait() and said == ["first", "second"]


def test_a_rank_may_end_before_its_last_bytes_arrive():
    """Between hosts, the end of a rank may arrive before the data that it sent: each has a connection of its own."""
    import ctypes
    import socket
    import threading
    import time

    from pyflame import _C

    control, messages, first, second = (socket.socketpair() for _ in range(4))
    gone = threading.Event()

    def network():
        data = b"".join(iter(lambda: first[1].recv(1 << 16), b""))
        gone.wait(60)
        time.sleep(0.1)  # rank 1 reads the end of rank 0 meanwhile
        second[1].sendall(data)
        second[1].close()

    def group(rank, sockets):
        pairs = [[-1, s.detach()] if rank == 0 else [s.detach(), -1] for s in sockets]
        return _C._Group(rank, [0, 1], *pairs, [-1, -1], [])

    groups = [group(0, [control[0], first[0], messages[0]]), group(1, [control[1], second[0], messages[1]])]
    sent, came = ctypes.create_string_buffer(b"a" * 1000), ctypes.create_string_buffer(1000)

    def rank_0():
        groups[0].broadcast(("b", "broadcast", 60.0, "broadcast", "", 1), ctypes.addressof(sent), 1000, 0)
        groups[0] = None
        gone.set()

    threads = [threading.Thread(target=f) for f in (network, rank_0)]
    for t in threads:
        t.start()
    groups[1].broadcast(("b", "broadcast", 60.0, "broadcast", "", 1), ctypes.addressof(came), 1000, 0)
    for t in threads:
        t.join()
    assert came.raw == b"a" * 1000
    with pytest.raises(RuntimeError, match="rank 0 is gone"):
        groups[1].broadcast(("b", "broadcast", 60.0, "broadcast", "", 1), ctypes.addressof(came), 1000, 0)


def test_a_message_that_ends_in_the_middle():
    """After a timeout within a message, its rest is not taken for the next one."""
    import ctypes
    import socket
    import struct

    from pyflame import _C

    control, data, messages = (socket.socketpair() for _ in range(3))
    group = _C._Group(0, [0, 1], *([-1, pair[0].detach()] for pair in (control, data, messages)), [-1, -1], [])
    peer, came = messages[1], ctypes.create_string_buffer(8)
    whole = struct.pack("<QQ", 8, 1) + b"s" + b"12345678"
    for text, found in ((whole, b"12345678"), (whole[:-4], None)):
        peer.sendall(text)
        if found:
            group.recv(("s", "recv", 60.0, "recv", "", 1), 1, ctypes.addressof(came), 8)
            assert came.raw == found
        else:
            with pytest.raises(RuntimeError, match="recv: timed out after 0.2 s"):
                group.recv(("s", "recv", 0.2, "recv", "", 1), 1, ctypes.addressof(came), 8)
    try:
        peer.sendall(b"5678" + whole)
    except BrokenPipeError:
        pass
    for call in (group.recv, group.send):
        with pytest.raises(RuntimeError, match="an earlier message between this rank and rank 1 ended in the middle"):
            call(("s", "recv", 60.0, "recv", "", 1), 1, ctypes.addressof(came), 8)


def test_tcp_store():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=datetime.timedelta(seconds=60))
    other = dist.TCPStore("127.0.0.1", store.port, timeout=60)
    store.set("a", "1")
    assert other.get("a") == b"1" and other.add("n", 2) == 2 and store.add("n", 3) == 5 and store.check(["a", "n"]) and not store.check(["b"])
    other.wait(["a"])
    assert store.num_keys() == 2 and other.delete_key("a") and not other.delete_key("a")
    other.close()
    store.close()


def test_tcp_store_adds_whole_numbers_only():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=60)
    store.set("word", "two")
    with pytest.raises(RuntimeError, match=r"^TCPStore.add: the key holds no whole number; got 'word' with b'two'; expected a number"):
        store.add("word", 1)
    assert store.get("word") == b"two"
    for amount in (2.5, "2", None, 2.0):
        with pytest.raises(TypeError, match=rf"^TCPStore.add: amount is no int; got {re.escape(repr(amount))} for the key 'n'; expected an int"):
            store.add("n", amount)
    assert not store.check(["n"]) and store.add("n", numpy.int64(3)) == 3 and store.add("n", True) == 4, "the connection still serves"
    store.close()


FORKED = """
import signal, threading
dist.init_process_group(timeout=60)
dist.all_reduce(pf.ones(3))
work = dist.irecv(pf.zeros(2), 1 - rank)  # waits on a thread that the child does not have
child = os.fork()
if child == 0:
    signal.alarm(40)
    assert dist.get_rank() == rank
    try:
        dist.irecv(pf.zeros(2), 1 - rank).wait()
    except RuntimeError as e:
        assert "was forked from a rank" in str(e), e
    try:
        dist.all_reduce(pf.ones(3))
    except RuntimeError as e:
        assert "was forked from a rank" in str(e), e
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
dist.send(pf.ones(2), 1 - rank)
assert work.wait()
x = pf.ones(3)
dist.all_reduce(x)
assert x.tolist() == [world] * 3
if rank == 1:  # its child lives on, which must not hide that the rank is gone
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.barrier()
except RuntimeError as e:
    assert "rank 1 is gone" in str(e), e
    print("raised")
"""


AGAIN = """
late = int(os.environ["LATE"])
for i in range(3):
    dist.init_process_group(timeout=60)
    x = pf.full((3,), float(rank + i))
    dist.all_reduce(x)
    assert x.tolist() == [2 * i + 1] * 3
    if rank == late:  # the other one is at its next group long before
        time.sleep(0.3)
    dist.destroy_process_group()
print("three groups")
"""


@pytest.mark.parametrize("late", [0, 1])
def test_groups_again(late, tmp_path):
    """A job destroys its groups and makes new ones at the same address, whoever is first."""
    assert run(2, AGAIN, tmp_path, LATE=str(late)) == ["three groups\n"] * 2


THREADS = """
import threading
sys.setswitchinterval(1e-5)
dist.init_process_group(timeout=60)
wrong = []

def reduce():  # the same call in each thread, so that the order of the threads does not matter
    for _ in range(100):
        x = pf.ones(20000)
        dist.all_reduce(x)
        if x[0].item() != world or x[-1].item() != world:
            wrong.append("sum")

def message():
    for _ in range(100):
        x = pf.full((30000,), float(threading.get_ident() % 1000))
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        if not (x == x[0]).all().item():
            wrong.append("message")

for call in (reduce, message):
    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
assert not wrong, wrong
print("fine")
"""


def test_threads(tmp_path):
    """Calls of several threads run one after the other."""
    assert run(2, THREADS, tmp_path) == ["fine\n"] * 2


def test_forked_children(tmp_path):
    processes = start(2, FORKED, tmp_path)
    out, err = processes[0].communicate(timeout=50)
    assert (processes[0].returncode, out) == (0, "raised\n"), err
    processes[1].wait(60)
    processes[1].kill()
    assert processes[1].stdout.readline() == "killed\n"


def test_where_rank_0_is():
    from pyflame.distributed._environment import first_host, place_of_process

    assert [first_host(text) for text in ("node7", "node7,node8", "gpu[003-005,9],cpu1", "rack[2-3]n[1,4]", "a[9,3]-ib,b")] == ["node7", "node7", "gpu003", "rack2n1", "a9-ib"]
    slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu[03-04]", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1"}
    assert place_of_process("f", slurm).address == "gpu03"  # srun may have been called on a login node
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    assert place_of_process("f", torchrun).port == place_of_process("f", {**torchrun, "TORCHELASTIC_USE_AGENT_STORE": "False"}).port == 29500
    assert place_of_process("f", {**torchrun, "TORCHELASTIC_USE_AGENT_STORE": "True"}).port not in (29500, None)


@pytest.mark.parametrize("launcher, variables", [
    ("mpirun", {"OMPI_COMM_WORLD_RANK": "{r}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "{r}", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-{port}@1"}),
    ("srun", {"SLURM_PROCID": "{r}", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "{r}", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "{port}", "SLURM_STEP_NUM_NODES": "1"}),
    ("mpiexec of MPICH", {"PMI_RANK": "{r}", "PMI_SIZE": "2", "MPI_LOCALRANKID": "{r}", "MPI_LOCALNRANKS": "2", "PMI_JOBID": "{port}"}),
])
def test_variables_of_launchers(launcher, variables, tmp_path):
    import os

    program = "import pyflame as pf, pyflame.distributed as d\nd.init_process_group(timeout=60)\nx = pf.full((1,), d.get_rank() + 1.0)\nd.all_reduce(x)\nprint(x.item(), d.get_node_local_rank())"
    processes = []
    for r in range(2):
        own = {k: v.format(r=r, port=os.getpid()) for k, v in variables.items()}
        processes.append(subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYFLAME_NUM_THREADS": "1", **own}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    found = finish(processes)
    assert [out for _, out, _ in found] == ["3.0 0\n", "3.0 1\n"], found
