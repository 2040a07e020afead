"""pf.multiprocessing.spawn(): functions in processes of their own, by PyTorch's name."""
import os
import subprocess
import sys
import time

import pytest
from processes import _place

import pyflame.multiprocessing as mp

PROGRAM = """
import os, signal, sys, time
import pyflame as pf
import pyflame.distributed as dist
import pyflame.multiprocessing as mp

def work(rank, world, how, t):
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=60)
    x = t + rank
    dist.all_reduce(x)
    assert x.tolist() == [6.0, 6.0] and os.environ["ROUND"] == how
    if rank == 1 and how == "raise":
        raise ValueError("there is no data")
    if rank == 1 and how == "exit":
        sys.exit(5)
    if rank == 1 and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()

def start(how, **options):
    os.environ["ROUND"] = how
    return mp.spawn(work, args=(3, how, pf.ones(2)), nprocs=3, **options)

if __name__ == "__main__":
    assert start("well") is None
    context = start("well again", join=False)
    assert len(set(context.pids())) == 3
    while not context.join():
        pass
    for how, kind, text, code in (("raise", mp.ProcessRaisedException, "there is no data", None), ("exit", mp.ProcessExitedException, "exit code 5", 5), ("kill", mp.ProcessExitedException, "signal SIGKILL", -9)):
        try:
            start(how)
        except kind as e:
            assert e.error_index == 1 and "spawn: process 1 " in str(e) and text in str(e) and getattr(e, "exit_code", None) == code, e
        else:
            raise AssertionError(how)
    print("told")
"""


def launch(folder, program, *words):
    address, port = _place()
    (folder / "program.py").write_text(program)
    r = subprocess.run([sys.executable, *words, str(folder / "program.py")], capture_output=True, text=True, timeout=120,
                       env={**os.environ, "MASTER_ADDR": address, "MASTER_PORT": str(port), "PYFLAME_NUM_THREADS": "1"})
    assert r.returncode == 0, (r.stdout, r.stderr)
    return r.stdout


def test_spawn(tmp_path):
    assert launch(tmp_path, PROGRAM) == "told\n"


TORCH = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

def demo(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(torch.nn.Linear(10, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer.zero_grad()
    torch.nn.MSELoss()(model(torch.randn(20, 10)), torch.randn(20, 5)).backward()
    optimizer.step()
    everyone = [None] * world_size
    dist.all_gather_object(everyone, model.module.weight.tolist())
    assert everyone[0] == everyone[1]
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(demo, args=(2,), nprocs=2, join=True)
    print("same")
"""


def test_a_program_of_pytorch(tmp_path):
    assert launch(tmp_path, TORCH, "-m", "pyflame.torch") == "same\n"


WAITS = """
import os, time
import pyflame.multiprocessing as mp

def work(i):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once: two processes write to the same pipe
    time.sleep(3600)

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


def test_no_process_outlives_the_program(tmp_path):
    from test_launcher import lives

    (tmp_path / "program.py").write_text(WAITS)
    program = subprocess.Popen([sys.executable, str(tmp_path / "program.py")], stdout=subprocess.PIPE, text=True)
    pids = [int(program.stdout.readline()) for _ in range(2)]
    program.kill()
    program.wait()
    until = time.monotonic() + 60
    for pid in pids:
        while lives(pid):
            assert time.monotonic() < until, f"process {pid} goes on"
            time.sleep(0.01)


def test_arguments():
    for nprocs in (0, 1.5, True):
        with pytest.raises(ValueError, match="spawn: nprocs is not a number of processes; got .*; expected at least 1"):
            mp.spawn(print, nprocs=nprocs)
    with pytest.raises(ValueError, match="spawn: start_method is not available; got 'thread'; expected one of spawn, forkserver, fork"):
        mp.spawn(print, start_method="thread")
