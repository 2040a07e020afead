"""The check of the paths between processes names what is wrong."""
import pytest
from processes import run

import pyflame as pf
from pyflame.distributed.check import check_paths, is_good, main

PROGRAM = """
from pyflame.distributed import check
dist.init_process_group(timeout=60)
report = check.check_paths(nbytes=4000, repeat=3)
assert check.is_good(report) and report["ranks"] == world
assert [(p["from"], p["to"]) for p in report["paths"]] == [(a, b) for a in range(2) for b in range(2) if a != b]
assert all(p["transport"] == dist.group.WORLD.transports()[1 - rank] and p["elements"] == 1000 and p["latency_us"] > 0 and p["bandwidth_gb_s"] > 0 for p in report["paths"])
assert f"    1     0  {dist.group.WORLD.transports()[1 - rank]}" in check._text(report)

# Rank 1 gets other bytes from rank 0 than were sent, and rank 1 adds wrongly.
receive, reduce = check._receive, dist.all_reduce
def changed(tensor, peer, group):
    receive(tensor, peer, group)
    if (rank, peer) == (1, 0):
        tensor[7:9] += 1
def wrong(tensor, group=None):
    reduce(tensor, group=group)
    if rank == 1:
        tensor[3] += 1
check._receive, dist.all_reduce = changed, wrong
report = check.check_paths(nbytes=4000, repeat=3)
assert not check.is_good(report) and report["sums_wrong"] == {"1": 1}
assert [(p["from"], p["to"], p["wrong"], p["first_wrong"]) for p in report["paths"] if p["wrong"]] == [(0, 1, 2, 7)]
text = check._text(report)
assert "2 of 1000, the first at 7" in text and "the sum over all ranks is wrong on rank 1: 1 elements" in text
print("checked")
"""


def test_two_processes(tmp_path):
    assert run(2, PROGRAM, tmp_path) == ["checked\n"] * 2


def test_one_process():
    assert check_paths() == {"ranks": 1, "device": "cpu", "paths": [], "sums_wrong": {}} and is_good(check_paths(device=pf.device("cpu")))
    for name in ("nbytes", "repeat"):
        with pytest.raises(ValueError, match=f"check_paths: {name} is not a number above 0; got 0; expected such as"):
            check_paths(**{name: 0})


def test_the_command(capfd):
    """`pyflame doctor --comm` starts the processes by this."""
    assert main(["--launch", "2", "--bytes", "4000", "--repeat", "2"]) == 0
    assert "2 ranks, tensors on cpu" in capfd.readouterr().out


def test_the_command_without_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(pf.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(pf, "rocm_device_count", lambda: 0)
    assert main(["--launch", "gpu"]) == 1
    assert capsys.readouterr().err == "pyflame doctor: there is no GPU; got --comm; expected at least one; hint: `pyflame doctor` says why, --nproc 2 checks processes on the CPU\n"
