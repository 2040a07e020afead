"""What goes wrong between processes: each error names the ranks, and no process hangs."""
import socket
import subprocess
import sys
import threading

import pytest
from processes import WAYS, finish, run, start

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.checkpoint import state_dict

DIFFERENT = """
dist.init_process_group(timeout=60)

def refused(call, *texts):
    try:
        call()
    except ValueError as e:
        for text in ("the ranks make different calls", "rank 0: ", "program.py:", *texts):
            assert text in str(e), e
        return
    raise AssertionError(f"rank {rank} was not told")

refused(lambda: dist.all_reduce(pf.zeros(2 + rank)), "all_reduce(sum) of float32 (2,)", "rank 1: all_reduce(sum) of float32 (3,)")
refused(lambda: dist.all_reduce(pf.zeros(2, dtype=pf.float32 if rank else pf.float64)), "float64 (2,)", "float32 (2,)")
refused(lambda: dist.all_reduce(pf.zeros(2), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM), "all_reduce(max)", "all_reduce(sum)")
refused(lambda: dist.barrier() if rank else dist.all_reduce(pf.zeros(2)), "barrier", "all_reduce(sum)")
refused(lambda: dist.broadcast(pf.zeros(2), src=rank), "broadcast(src=0)", "broadcast(src=1)")
x = pf.full((3,), float(rank))
dist.all_reduce(x)  # the group is as it was
assert x.tolist() == [sum(range(world))] * 3

# A message of another shape is dropped; the next one comes.
if rank == 0:
    dist.send(pf.ones(4), 1)
    dist.send(pf.ones(5), 1)
elif rank == 1:
    x = pf.zeros(5)
    try:
        dist.recv(x, 0)
        raise AssertionError("another shape was taken")
    except ValueError as e:
        assert "recv of float32 (5,) (src=0) at " in str(e) and "got a message of float32 (4,), tag 0; expected a message of float32 (5,), tag 0" in str(e), e
    dist.recv(x, 0)
    assert x.tolist() == [1] * 5
# Sizes that differ within a pair of ranks: the pair sees it, and the third one is told.
dist.barrier()
try:
    n = [1, 1, 1] if rank != 1 else [2, 1, 1]
    dist.all_to_all([pf.zeros(1) for _ in range(world)], [pf.zeros(k) for k in n])
    raise AssertionError(f"rank {rank} was not told")
except RuntimeError as e:
    assert "sizes differ between two ranks" in str(e), e
try:
    dist.barrier()
    raise AssertionError("the group is broken")
except RuntimeError as e:
    assert "an earlier call broke the group; it said: " in str(e) and "sizes differ" in str(e), e
print("told")
"""


def test_calls_that_differ(tmp_path):
    assert run(3, DIFFERENT, tmp_path) == ["told\n"] * 3


REFUSED = """
dist.init_process_group(timeout=60)

def refused(number, call, text):
    # Rank 0 catches its error and goes on. The other ranks made the call, and are told.
    try:
        call()
    except (ValueError, TypeError) as e:
        assert ("another rank raised an error for this call" in str(e)) == (rank != 0), e
        if rank:
            for part in (f"which is number {number} of the group; got rank 0: {text}", "program.py:", "; the group stays usable"):
                assert part in str(e), e
        return
    raise AssertionError(f"rank {rank} was not told of {text}")

def check(value):
    # Looks like the call before. Nothing that was sent for that one may come.
    x = pf.full((3,), float(value + rank))
    dist.all_reduce(x)
    assert x.tolist() == [sum(value + r for r in range(world))] * 3, x

mine = pf.full((3,), 1000.0)
refused(1, lambda: dist.all_reduce(mine if rank else "mine"), "all_reduce at ")
assert mine.tolist() == [1000.0] * 3
check(1)
out = [pf.zeros(3) for _ in range(world)]
refused(3, lambda: dist.all_gather(out if rank else out[:1], mine), "all_gather at ")
dist.all_gather(out, pf.full((3,), float(rank)))
assert [o.tolist() for o in out] == [[float(r)] * 3 for r in range(world)], out
refused(5, lambda: dist.gather(mine, None if rank else out[:1], dst=0), "gather at ")
dist.gather(pf.full((3,), float(rank + 5)), None if rank else out, dst=0)
assert rank or [o.tolist() for o in out] == [[r + 5.0] * 3 for r in range(world)], out
refused(7, lambda: dist.reduce_scatter_tensor(pf.zeros(1), pf.zeros(world if rank else world + 1)), "reduce_scatter_tensor at ")
refused(8, lambda: dist.reduce_scatter(pf.zeros(1), [pf.zeros(1)] * (world if rank else 1)), "reduce_scatter at ")
refused(9, lambda: dist.all_to_all_single(pf.zeros(world), pf.zeros(world if rank else world + 1)), "all_to_all_single at ")
refused(10, lambda: dist.broadcast(pf.zeros(3), src=0 if rank else 99), "broadcast at ")
refused(11, lambda: dist.scatter(mine, None if rank else [mine], src=0), "scatter at ")
check(2)
# Objects: one that cannot be pickled.
everyone = [None] * world
try:
    dist.all_gather_object(everyone, rank if rank else (lambda: 1))
    raise AssertionError("not told")
except Exception as e:
    assert rank == 0 or "got rank 0: all_gather_object at " in str(e), e
dist.all_gather_object(everyone, rank)
assert everyone == list(range(world))
# Behind asynchronous calls that are under way.
works = [dist.all_reduce(pf.ones(300000), async_op=True) for _ in range(3)]
try:
    work = dist.all_reduce(mine if rank else None, async_op=True)
    assert rank
    try:
        work.wait()
        raise AssertionError("not told")
    except ValueError as e:
        assert "got rank 0: all_reduce at " in str(e) and "TypeError: all_reduce: tensor is not a tensor; got NoneType" in str(e), e
except TypeError:
    assert rank == 0
for w in works:
    w.wait()
check(3)
# An error on every rank: nobody waits for anybody.
for _ in range(20):
    try:
        dist.all_reduce("all")
    except TypeError:
        pass
check(4)
# Another group has numbers of its own.
pair = dist.new_group([0, 1])
if rank < 2:
    refused(1, lambda: dist.all_reduce(mine if rank else "mine", group=pair), "all_reduce at ")
    y = pf.full((3,), float(rank))
    dist.all_reduce(y, group=pair)
    assert y.tolist() == [1.0] * 3, y
check(5)
print("told")
"""


@pytest.mark.parametrize("shared", ["1", "0"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_call_that_one_rank_refuses(ranks, shared, tmp_path):
    """A rank whose call raised for its arguments makes its next call: what the others sent for the one before is never taken for it."""
    assert run(ranks, REFUSED, tmp_path, PYFLAME_SHARED_MEMORY=shared) == ["told\n"] * ranks


LATE = """
dist.init_process_group(timeout=60)
try:
    if rank == 2:
        sys.stdin.read()  # until the test closes it
    else:
        dist.monitored_barrier(timeout=0.3)
        raise AssertionError("nobody was missed")
except RuntimeError as e:
    assert " 2 did not come" in str(e) and "timed out after 0.3 s" in str(e) and "program.py:" in str(e) and "expected all 3 ranks" in str(e), e
    print("told")
"""


def test_a_rank_that_does_not_come(tmp_path):
    """Whoever is first to give up says why; the others say the same."""
    processes = start(3, LATE.replace("sys.stdin.read()", "time.sleep(3600)"), tmp_path)
    try:
        outputs = [p.communicate(timeout=60) for p in processes[:2]]
    finally:
        for p in processes:
            p.kill()
            p.wait()
    assert [out for out, _ in outputs] == ["told\n"] * 2, outputs


NOBODY = """
dist.init_process_group(timeout=60)
try:
    if rank:
        time.sleep(3600)
    dist.monitored_barrier(timeout=0.3, wait_all_ranks=WAIT)
    raise AssertionError("nobody was missed")
except RuntimeError as e:
    assert "ranks 1, 2 did not come; expected all 3 ranks" in str(e), e
    print("told")
"""


@pytest.mark.parametrize("wait", [False, True])
def test_all_ranks_that_do_not_come_are_named(wait, tmp_path):
    processes = start(3, NOBODY.replace("WAIT", str(wait)), tmp_path)
    try:
        assert processes[0].communicate(timeout=60)[0] == "told\n"
    finally:
        for p in processes:
            p.kill()
            p.wait()


DEAD = """
import signal
dist.init_process_group(timeout=3600)
x = pf.ones(4000000)
dist.all_reduce(x)
if rank == 1:
    work = dist.all_reduce(pf.ones(4000000), async_op=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        dist.all_reduce(x)
except RuntimeError as e:
    assert "rank 1 is gone; its process ended" in str(e) and "all_reduce(sum) of float32 (4000000,) at " in str(e), e
    print("told")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_dies(way, tmp_path):
    found = finish(start(3, DEAD, tmp_path, **WAYS[way]))
    assert [(code, out) for code, out, _ in found] == [(0, "told\n"), (-9, ""), (0, "told\n")], found


def test_ctrl_c(tmp_path):
    """Ctrl-C ends a call that waits; the other rank is told."""
    import signal

    # A shell's background job ignores the signal.
    program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\ndist.init_process_group(timeout=3600)\ndist.barrier()\nprint('waits', flush=True)\ndist.all_reduce(pf.ones(2)) if rank == 0 else dist.recv(pf.ones(1), 0)\n"
    processes = start(2, program, tmp_path)
    assert [p.stdout.readline() for p in processes] == ["waits\n"] * 2
    processes[0].send_signal(signal.SIGINT)
    found = finish(processes)
    assert "KeyboardInterrupt" in found[0][2] and "recv of float32 (1,) (src=0)" in found[1][2] and "rank 0 is gone" in found[1][2], found


def test_ranks_that_never_start(tmp_path):
    program = "try:\n    dist.init_process_group(timeout=0.5)\nexcept RuntimeError as e:\n    print(e)\n"
    (code, out, err), = finish(start(3, program, tmp_path, ranks=[0]))
    assert out == "init_process_group: timed out after 0.5 s; ranks 1, 2 did not come; expected 3 processes\n" and code == 0, (out, err)


HALF = [
    ({"WORLD_SIZE": "2"}, "got WORLD_SIZE=2 without RANK, MASTER_ADDR, MASTER_PORT; expected RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "got RANK=0, WORLD_SIZE=2, MASTER_ADDR=localhost without MASTER_PORT;"),
    ({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}, "without RANK, WORLD_SIZE;"),
    ({"RANK": "1", "WORLD_SIZE": "1"}, "RANK is out of range; got 1; expected 0 to 0 (WORLD_SIZE=1)"),
    ({"RANK": "one", "WORLD_SIZE": "1"}, "RANK is not a number; got 'one'"),
    ({"OMPI_COMM_WORLD_RANK": "0"}, "got OMPI_COMM_WORLD_RANK=0 without OMPI_COMM_WORLD_SIZE;"),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "nothing says where rank 0 is; got Open MPI's variables; expected MASTER_ADDR"),
    ({"SLURM_PROCID": "3", "SLURM_STEP_ID": "0"}, "got SLURM_PROCID=3 without SLURM_STEP_NUM_TASKS;"),
]


@pytest.mark.parametrize("variables, message", HALF)
def test_half_set_variables(variables, message, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as e:
        dist.init_process_group()
    assert message in str(e.value) and str(e.value).startswith("init_process_group: ")
    assert not dist.is_initialized()


def test_variables_of_a_batch_script(monkeypatch):
    """A batch script of SLURM has variables of a job whose other tasks do not run: it is the only process."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    dist.init_process_group()
    assert dist.get_world_size() == 1
    dist.destroy_process_group()


def test_a_forgotten_init(monkeypatch):
    """One of several processes that knows no other must not compute alone."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="all_reduce: this process is one of several.*got no process group; expected init_process_group"):
        dist.all_reduce(pf.ones(2))


ARGUMENTS = [
    (ValueError, "init_process_group: backend is not available; got 'mpi'", lambda: dist.init_process_group("mpi")),
    (ValueError, "init_process_group: init_method is not available; got 'file:///x'", lambda: dist.init_process_group(init_method="file:///x")),
    (ValueError, "init_process_group: timeout is not a time; got -1", lambda: dist.init_process_group(timeout=-1)),
    (ValueError, "init_process_group: nothing says where rank 0 is; got no MASTER_ADDR and no MASTER_PORT", lambda: dist.init_process_group(rank=0, world_size=2)),
    (ValueError, "init_process_group: rank is out of range; got 2", lambda: dist.init_process_group(rank=2, world_size=2)),
    (ValueError, "init_process_group: rank and world_size belong together; got rank=0", lambda: dist.init_process_group(rank=0)),
    (ValueError, "init_process_group: store and pg_options are not available", lambda: dist.init_process_group(store=1)),
    (ValueError, "new_group: ranks are not ranks of this job; got \\[1\\]", lambda: dist.new_group([1])),
    (TypeError, "new_group: ranks are not a list of numbers; got 0; expected", lambda: dist.new_group(0)),
    (TypeError, "new_group: ranks are not a list of numbers; got \\[1.5\\]; expected", lambda: dist.new_group([1.5])),
    (TypeError, "destroy_process_group: group is not a process group; got str", lambda: dist.destroy_process_group("all")),
    (ValueError, "init_process_group: the port of rank 0 is out of range; got 0; expected 1 to 65535; hint: MASTER_PORT", lambda: dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=2)),
    (RuntimeError, "TCPStore: the address is unknown; got no-such-host.invalid", lambda: dist.TCPStore("no-such-host.invalid", 1, is_master=True, timeout=1)),
    (ValueError, "all_gather_object: object_list has another length; got 3; expected 1", lambda: dist.all_gather_object([None] * 3, 1)),
    (ValueError, "gather_object: object_gather_list does not fit; got None; expected a list of 1", lambda: dist.gather_object(1)),
    (ValueError, "scatter_object_list: scatter_object_output_list has no entry; got 0", lambda: dist.scatter_object_list([], [1])),
    (ValueError, "scatter_object_list: scatter_object_input_list does not fit; got None; expected a list of 1", lambda: dist.scatter_object_list([None])),
    (ValueError, "all_to_all_single: output has no dim that could be split; got a tensor of shape \\(\\)", lambda: dist.all_to_all_single(pf.tensor(1.0), pf.tensor(1.0))),
    (TypeError, "all_reduce: tensor is not a tensor; got list", lambda: dist.all_reduce([1.0])),
    (TypeError, "all_reduce: op is not a reduction; got int", lambda: dist.all_reduce(pf.ones(1), 3)),
    (ValueError, "ReduceOp: not available; got xor", lambda: dist.all_reduce(pf.ones(1), "xor")),
    (TypeError, "all_reduce: the average of integers is not an integer; got int64", lambda: dist.all_reduce(pf.ones(1, dtype=pf.int64), dist.ReduceOp.AVG)),
    (TypeError, "all_reduce: complex numbers have no such reduction; got complex64", lambda: dist.all_reduce(pf.ones(1, dtype=pf.complex64), dist.ReduceOp.MAX)),
    (TypeError, "all_reduce: group is not a process group; got str", lambda: dist.all_reduce(pf.ones(1), group="all")),
    (ValueError, "all_gather: tensor_list is not a list of one tensor for each rank; got 2; expected 1 tensors", lambda: dist.all_gather([pf.ones(1)] * 2, pf.ones(1))),
    (ValueError, "all_gather: tensor_list\\[0\\] has another shape or dtype; got float32 \\(2,\\); expected float32 \\(1,\\)", lambda: dist.all_gather([pf.ones(2)], pf.ones(1))),
    (ValueError, "all_gather_into_tensor: output_tensor does not fit input_tensor; got float32 \\(3,\\)", lambda: dist.all_gather_into_tensor(pf.ones(3), pf.ones(2))),
    (ValueError, "reduce_scatter_tensor: input does not fit output", lambda: dist.reduce_scatter_tensor(pf.ones(3), pf.ones(2))),
    (ValueError, "all_to_all: the dtypes differ; got float32, int64", lambda: dist.all_to_all([pf.ones(1)], [pf.ones(1, dtype=pf.int64)])),
    (ValueError, "all_to_all_single: input_split_sizes do not fit; got \\[3\\] for a first dim of 2", lambda: dist.all_to_all_single(pf.ones(2), pf.ones(2), input_split_sizes=[3])),
    (ValueError, "send: there is no other rank; got dst=1", lambda: dist.send(pf.ones(1), 1)),
    (ValueError, "recv: src is not given; got None; expected a rank; hint: a message of any rank", lambda: dist.recv(pf.ones(1))),
    (ValueError, "irecv: src is not given", lambda: dist.irecv(pf.ones(1))),
    (ValueError, "send: dst is not given; got None; expected a rank", lambda: dist.send(pf.ones(1))),
    (ValueError, "isend: dst is not given", lambda: dist.isend(pf.ones(1))),
    (ValueError, "gather_object: object_gather_list does not fit; got None; expected a list of 1", lambda: dist.gather_object(1)),
    (ValueError, "scatter_object_list: scatter_object_input_list does not fit; got None; expected a list of 1", lambda: dist.scatter_object_list([None])),
    (ValueError, "P2POp: op is not isend or irecv", lambda: dist.P2POp(abs, pf.ones(1), 1)),
    (TypeError, "P2POp: tensor is not a tensor; got int", lambda: dist.P2POp(dist.isend, 3, 1)),
    (ValueError, "P2POp: peer is not given", lambda: dist.P2POp(dist.isend, pf.ones(1))),
    (TypeError, "get_rank: group is not a process group; got int", lambda: dist.get_rank(3)),
    (TypeError, "get_world_size: group is not a process group; got int", lambda: dist.get_world_size(3)),
    (TypeError, "get_backend: group is not a process group; got int", lambda: dist.get_backend(3)),
    (TypeError, "nn.functional.all_gather: not a tensor; got int", lambda: dist.nn.all_gather(3)),
    (TypeError, "nn.functional.all_reduce: not a tensor; got int", lambda: dist.nn.all_reduce(3)),
    (ValueError, "nn.functional.all_to_all_single: the input has no rows", lambda: dist.nn.all_to_all_single(None, pf.tensor(1.0))),
    (TypeError, "UnshardHandle: not a sharded module; got int", lambda: dist.fsdp.UnshardHandle(3)),
    (TypeError, "RowwiseParallel: input_layouts is not a layout; got 3", lambda: dist.tensor.parallel.RowwiseParallel(input_layouts=3)),
    (TypeError, "get_model_state_dict: not a module; got int", lambda: state_dict.get_model_state_dict(3)),
    (TypeError, "set_model_state_dict: not a state dict; got int", lambda: state_dict.set_model_state_dict(pf.nn.ReLU(), 3)),
    (TypeError, "set_model_state_dict: options are of another type; got int", lambda: state_dict.set_model_state_dict(pf.nn.ReLU(), {}, options=3)),
    (ValueError, "set_optimizer_state_dict: not the state of an optimizer; got ..; expected a dict", lambda: state_dict.set_optimizer_state_dict(pf.nn.ReLU(), [], {})),
    (RuntimeError, "TCPStore: rank 0 cannot be reached within 0.1 s; got 127.0.0.1:1", lambda: dist.TCPStore("127.0.0.1", 1, timeout=0.1)),
    (ValueError, "get_global_rank: not a rank of the group; got 1", lambda: dist.get_global_rank(None, 1)),
    (ValueError, "get_group_rank: not a process of the group; got rank 1", lambda: dist.get_group_rank(None, 1)),
    (NotImplementedError, "distributed.FileStore: not available", lambda: dist.FileStore("x")),
]


@pytest.mark.parametrize("error, message, call", ARGUMENTS, ids=[m[:40] for _, m, _ in ARGUMENTS])
def test_arguments(error, message, call):
    with pytest.raises(error, match=message):
        call()
    assert not dist.is_initialized()


def test_a_wrong_value_of_the_variable(monkeypatch):
    from pyflame.distributed import _group

    monkeypatch.setenv("PYFLAME_SHARED_MEMORY", "maybe")
    with pytest.raises(ValueError, match="PYFLAME_SHARED_MEMORY: not a valid value; got 'maybe'; expected 0 or 1"):
        _group._memory_file(2)
    for value, wanted in (("", True), ("On", True), ("0", False), ("no", False)):
        monkeypatch.setenv("PYFLAME_SHARED_MEMORY", value)
        assert _group._is_on("PYFLAME_SHARED_MEMORY") is wanted
    monkeypatch.setenv("PYFLAME_DIRECT_MEMORY", "maybe")
    with pytest.raises(ValueError, match="PYFLAME_DIRECT_MEMORY: not a valid value; got 'maybe'; expected 0 or 1"):
        _group._is_on("PYFLAME_DIRECT_MEMORY")


def test_two_groups_of_all():
    dist.init_process_group()
    with pytest.raises(RuntimeError, match="init_process_group: there is a group already; got a second call; expected destroy_process_group"):
        dist.init_process_group()
    dist.destroy_process_group()


def test_store_keys():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=60)
    with pytest.raises(RuntimeError, match="TCPStore.get: timed out after 0.1 s; got no value of 'x'"):
        store.get("x", 0.1)
    with pytest.raises(RuntimeError, match="TCPStore: the address cannot be used; got 127.0.0.1:"):
        dist.TCPStore("127.0.0.1", store.port, is_master=True)
    store.close()


def test_a_port_of_something_else():
    """What accepts connections and says nothing, or something else than a store, is no rank 0; the timeout holds."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RuntimeError, match="TCPStore: rank 0 cannot be reached within 0.2 s; got 127.0.0.1:.* \\(timed out\\)"):
            dist.TCPStore("127.0.0.1", other.getsockname()[1], timeout=0.2)
        greeting = threading.Thread(target=lambda: [other.accept()[0].close(), other.accept()[0].sendall(b"SSH-2.0-OpenSSH\n")])
        greeting.start()
        with pytest.raises(RuntimeError, match="TCPStore: rank 0 cannot be reached within 0.2 s; got 127.0.0.1:.*; expected the store of rank 0; hint: MASTER_ADDR, MASTER_PORT"):
            dist.TCPStore("127.0.0.1", other.getsockname()[1], timeout=0.2)
        greeting.join()


def test_a_store_of_another_job(monkeypatch):
    """A second job with the same port must not write to the first one's store."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "first")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=60)
    dist.TCPStore("127.0.0.1", store.port, timeout=60).close()
    for name in ("second", "", "none"):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        if name == "second":
            with pytest.raises(RuntimeError, match="TCPStore: rank 0 cannot be reached within 0.2 s; got 127.0.0.1:.* \\(the store of another job\\); expected the store of rank 0"):
                dist.TCPStore("127.0.0.1", store.port, timeout=0.2)
        else:  # started by hand
            dist.TCPStore("127.0.0.1", store.port, timeout=60).close()
    store.close()


MEMBERS = """
dist.init_process_group(timeout=60)
calls = {
    "send: dst is this rank; got 0": lambda: dist.send(pf.ones(1), 0),
    "broadcast: src is not a rank of the group; got 5; expected one of [0, 1]": lambda: dist.broadcast(pf.ones(1), 5),
    "gather: gather_list is not a list of one tensor for each rank; got NoneType": lambda: dist.gather(pf.ones(1)),
    "scatter: scatter_list is given on rank 0; got 1 tensors; expected None": lambda: dist.scatter(pf.ones(1), [pf.ones(1)], src=1),
    "gather: gather_list is given on rank 0": lambda: dist.gather(pf.ones(1), [pf.ones(1)] * 2, dst=1),
    "all_gather_object: object_list has another length; got 1; expected 2": lambda: dist.all_gather_object([None], 1),
    "gather_object: object_gather_list does not fit; got None; expected a list of 2": lambda: dist.gather_object(1),
    "scatter_object_list: scatter_object_input_list does not fit; got None": lambda: dist.scatter_object_list([None]),
    "all_to_all_single: the first dim of output cannot be split in equal parts; got 3": lambda: dist.all_to_all_single(pf.ones(3), pf.ones(3)),
}
if rank == 0:
    for text, call in calls.items():
        try:
            call()
            raise AssertionError(text)
        except ValueError as e:
            assert text in str(e), e
else:
    for text in list(calls)[1:]:  # a message has no number
        try:
            dist.barrier()
            raise AssertionError(text)
        except ValueError as e:
            assert f"ValueError: {text}" in str(e), e
dist.barrier()
pair = dist.new_group()
dist.destroy_process_group(pair)
try:
    dist.barrier(pair)
    raise AssertionError("the group was destroyed")
except RuntimeError as e:
    assert "barrier: the group was destroyed" in str(e), e
work = dist.irecv(pf.ones(1), 1 - rank)
try:
    work.wait(0.1)
    raise AssertionError("nothing was sent")
except RuntimeError as e:
    assert "Work.wait: timed out after 0.1 s" in str(e) and not work.is_completed(), e
dist.barrier()
dist.send(pf.ones(1), 1 - rank)
assert work.wait() and work.exception() is None
print("told")
"""


def test_arguments_in_several_processes(tmp_path):
    assert run(2, MEMBERS, tmp_path) == ["told\n"] * 2


GRADIENTS = """
import warnings
dist.init_process_group(timeout=60)

def said(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in found]

def with_history():
    return pf.ones(2, requires_grad=True) * 2

first = said(lambda: dist.all_reduce(with_history()))
assert len(first) == 1 and first[0].startswith("distributed.all_reduce: tensor has a grad_fn, and gradients do not go through this call"), first
assert "hint: the collectives of distributed.nn.functional have gradients; tensor.detach() says that none is meant" in first[0]
assert said(lambda: dist.all_reduce(with_history())) == []  # once for each op
assert len(said(lambda: dist.broadcast(with_history(), 0))) == 1
assert len(said(lambda: dist.all_gather([pf.zeros(2) for _ in range(world)], with_history()))) == 1
# None is meant: leaves, detached tensors, within no_grad().
assert said(lambda: dist.reduce(pf.ones(2, requires_grad=True), 0)) == said(lambda: dist.reduce(with_history().detach(), 0)) == []
with pf.no_grad():
    y = pf.ones(2) * 2
    assert said(lambda: dist.reduce(y, 0)) == []
from pyflame.distributed.nn import functional
x = pf.ones(1, requires_grad=True)
assert said(lambda: functional.all_reduce(x * 2).sum().backward()) == [] and x.grad.item() == 2 * world
print("told")
"""


@pytest.mark.parametrize("world", [1, 2])
def test_gradients_do_not_go_through(world, tmp_path):
    assert run(world, GRADIENTS, tmp_path) == ["told\n"] * world


WRITTEN = """
dist.init_process_group(timeout=60)
for call, writes in ((dist.all_reduce, True), (lambda t: dist.all_reduce(t, async_op=True).wait(), True), (lambda t: dist.reduce(t, 0), rank == 0), (lambda t: dist.broadcast(t, 0), rank > 0)):
    y = pf.ones(2, requires_grad=True).exp()  # whose gradient takes its result
    call(y.detach())
    error = ""
    try:
        y.sum().backward()
    except RuntimeError as e:
        error = str(e)
    assert ("was modified in place" in error) == writes, (error, writes)
# A process that is not of the group writes nothing.
if world == 2:
    first = dist.new_group([0])
    y = pf.ones(2, requires_grad=True).exp()
    if rank == 1:
        dist.all_reduce(y.detach(), group=first)
        y.sum().backward()
print("told")
"""


@pytest.mark.parametrize("world", [1, 2])
def test_what_is_written_is_known_to_autograd(world, tmp_path):
    """Also in the only process, where no value changes: a program that is wrong with two ranks is wrong alone."""
    assert run(world, WRITTEN, tmp_path) == ["told\n"] * world


GROUPS = """
dist.init_process_group(timeout=60)
try:
    dist.new_group([0] if rank == 0 else [0, 1])
    raise AssertionError("nobody was told")
except ValueError as e:
    for text in ("the ranks make different calls", "rank 0: new_group([0]) at ", "program.py:9; rank 1: new_group([0, 1]) at ", "rank 2: new_group([0, 1]) at "):
        assert text in str(e), e
dist.barrier()  # the group of all is as it was
pair = dist.new_group([0, 1])
x = pf.ones(1)
dist.all_reduce(x, group=pair)
assert x.item() == (2 if rank < 2 else 1)
# Only the processes of the group make it.
if rank:
    for _ in range(2):
        mine = dist.new_group([1, 2], use_local_synchronization=True)
        x = pf.ones(1)
        dist.all_reduce(x, group=mine)
        assert x.item() == 2
assert (dist.new_group([0], use_local_synchronization=True) is dist.GroupMember.NON_GROUP_MEMBER) == (rank > 0)
everyone = dist.new_group()
x = pf.ones(1)
dist.all_reduce(x, group=everyone)
assert x.item() == world
print("told")
"""


def test_groups_that_differ(tmp_path):
    assert run(3, GROUPS, tmp_path) == ["told\n"] * 3


CHANGED = """
import socket, threading
from pyflame.distributed import _group

# What rank 0 sends to rank 1 goes by a thread, which changes two of the bytes.
def through(connected):
    mine, others = socket.socketpair()
    def back():
        head = bytearray(connected.recv(100))
        head[7], head[9] = head[7] ^ 1, head[9] ^ 1
        others.sendall(head)
        while part := connected.recv(4096):
            others.sendall(part)
    def forth():
        while part := others.recv(4096):
            connected.sendall(part)
    for move in (back, forth):
        threading.Thread(target=move, daemon=True).start()
    return mine

if rank == 1:
    connect, number = socket.create_connection, []
    def changed(*args, **kwargs):
        s = connect(*args, **kwargs)
        number.append(s)
        return through(s) if len(number) == 2 else s  # the one for data
    class Changed:
        create_connection = staticmethod(changed)
        def __getattr__(self, name):
            return getattr(socket, name)
    _group.socket = Changed()
try:
    dist.init_process_group(timeout=60)
    raise AssertionError("nobody was told")
except RuntimeError as e:
    assert "init_process_group: bytes change between ranks; got 2 of 4096 bytes from rank 0 to rank 1 by TCP; expected the bytes that were sent; hint: " in str(e), e
print("told")
"""


def test_a_path_that_changes_bytes(tmp_path):
    assert run(3, CHANGED, tmp_path, PYFLAME_SHARED_MEMORY="0") == ["told\n"] * 3


def test_exit_with_a_call_under_way(tmp_path):
    """A process ends although an asynchronous call of it waits for a rank that will not come."""
    # A shell's background job ignores the signal.
    program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\ndist.init_process_group(timeout=3600)\ndist.barrier()\nif rank == 0:\n    dist.all_reduce(pf.ones(2), async_op=True)\nelse:\n    time.sleep(3600)\n"
    processes = start(2, program, tmp_path)
    try:
        _, err = processes[0].communicate(timeout=60)
        assert processes[0].returncode == 0 and err == "", err
    finally:
        for p in processes:
            p.kill()
            p.wait()


def test_no_warning_and_nothing_left(tmp_path):
    """Memory that ranks share has no name, so a killed process leaves none behind. The files through which it was opened are closed."""
    program = """
import glob
dist.init_process_group(timeout=60)
dist.all_reduce(pf.ones(9))
open_files = [os.readlink(f) for f in glob.glob("/proc/self/fd/*") if os.path.lexists(f)]
print(dist.group.WORLD.transports()[1 - rank], [f for f in open_files if "pyflame ranks" in f])
"""
    assert run(2, program, tmp_path, PYFLAME_DIRECT_MEMORY="0") == ["shared memory []\n"] * 2
    assert subprocess.run([sys.executable, "-W", "error", "-c", "import pyflame.distributed"], check=True).returncode == 0


def test_setting_that_compares_calls(monkeypatch):
    from pyflame.distributed import _device

    monkeypatch.setenv("PYFLAME_CHECK_COLLECTIVES", "maybe")
    with pytest.raises(ValueError, match="PYFLAME_CHECK_COLLECTIVES: not a valid value; got 'maybe'; expected 0 or 1"):
        _device.checks_calls()
    for value, on in (("1", True), ("on", True), ("off", False), ("0", False), ("", False)):
        monkeypatch.setenv("PYFLAME_CHECK_COLLECTIVES", value)
        assert _device.checks_calls() == on


def test_the_end_of_a_group_waits_for_a_failure_that_is_told():
    """The watchdog tells the tensors of a GPU's collectives that they are wrong, and only then ends the communicator. The group may be closed in between."""
    from pyflame.distributed import _device

    told, go_on, order = threading.Event(), threading.Event(), []

    class Group:
        _prefix, _timeout = "g", 60.0

    class Communicator:
        def abort(self):
            order.append("abort")

    class Queued:
        def passed(self):
            return False

        def failed(self, message):
            told.set()
            assert go_on.wait(60)
            order.append(message)

    group = Group()
    transport = _device.Transport(group, pf.device("cpu"), Communicator(), "library")
    for number in (1, 2):
        entry = _device._Entry(number, "all_reduce", 60.0)
        entry.queued = Queued()
        transport._pending.append(entry)
    watchdog = threading.Thread(target=transport._fail, args=("rank 1 is gone",))
    closing = threading.Thread(target=lambda: (transport.close(), order.append("closed")))
    watchdog.start()
    assert told.wait(60)
    closing.start()
    closing.join(0.2)  # long enough to show a close() that does not wait; one that waits is never late
    go_on.set()
    watchdog.join(60)
    closing.join(60)
    assert order == ["rank 1 is gone", "rank 1 is gone", "abort", "closed"]
    transport._fail("late")  # the group has ended: nothing is left to tell
    assert len(order) == 4 and transport.broken == "rank 1 is gone"
