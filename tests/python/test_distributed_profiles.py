"""Collectives in profiles: each has an event on each rank, and the report tells communication from waiting for a slower rank."""
import contextlib
import json
import subprocess
import sys

import pytest
from processes import run as run_ranks

import pyflame as pf
from pyflame.distributed._group import line_of_caller

CALLS = """
dist.init_process_group()
x = pf.ones(500_000)
dist.all_reduce(x)
with pf.profiler.profile() as prof:
    for _ in range(10):
        dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.all_gather_into_tensor(pf.empty(4), pf.ones(2, dtype=pf.float32))
    dist.reduce_scatter_tensor(pf.empty(1), pf.ones(2))
    dist.broadcast(pf.ones(3), src=0)
    dist.all_to_all_single(pf.empty(2), pf.ones(2))
    dist.barrier()
    dist.send(pf.ones(3), 1) if rank == 0 else dist.recv(pf.empty(3), 0)
dist.destroy_process_group()
prof.export_chrome_trace(f"trace{rank}.json")
found = {a.key: a.count for a in prof.key_averages() if a.kind == "step"}
assert found["all_reduce"] == 11, found
for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "all_to_all_single", "barrier", "recv" if rank else "send"):
    assert found[name] == 1, (name, found)
"""

SLOW = """
dist.init_process_group()
x = pf.ones(1000)
dist.all_reduce(x)
with pf.profiler.profile() as prof:
    for _ in range(4):
        if rank == 1:
            time.sleep(0.3)
        dist.all_reduce(x)
prof.export_chrome_trace(f"trace{rank}.json")
"""

TRAINING = """
from pyflame.nn.parallel import DistributedDataParallel

dist.init_process_group()
model = DistributedDataParallel(pf.nn.Linear(64, 64))
optimizer = pf.optim.SGD(model.parameters(), lr=0.1)
with pf.profiler.profile() as prof:
    for _ in range(3):
        model(pf.ones(8, 64)).sum().backward()
        optimizer.step()
found = [e for e in prof.events() if e.name == "all_reduce"]
assert found and len({e.thread for e in prof.events()}) > 1, prof.events()
assert all(e.args["Group size"] == 2 and e.args["dtype"] == "float32" for e in found), found
"""


def traces(program, folder, monkeypatch):
    monkeypatch.chdir(folder)
    run_ranks(2, program, folder)
    return [folder / f"trace{r}.json" for r in range(2)]


def report(run, *words):
    return json.loads(run("report", *words, "--json").stdout)


def test_each_collective_is_in_the_traces(run, tmp_path, monkeypatch):
    files = traces(CALLS, tmp_path, monkeypatch)
    for rank, file in enumerate(files):
        trace = json.loads(file.read_text())
        assert trace["distributedInfo"] == {"rank": rank, "world_size": 2}
        events = [e for e in trace["traceEvents"] if "Collective name" in e.get("args", {})]
        assert all(e["cat"] == "kernel" and e["name"] == e["args"]["Collective name"] for e in events)
        reductions = [e for e in events if e["name"] == "all_reduce"]
        assert [e["args"]["Seq"] for e in reductions] == list(range(2, 13))
        args = reductions[0]["args"]
        assert (args["dtype"], args["In msg nelems"], args["bytes"], args["Group size"]) == ("float32", 500_000, 2_000_000, 2)
        assert (args["Process Group Name"], args["Process Group Ranks"]) == ("world", "[0, 1]")
        assert "program.py:" in args["recorded at"]
        waits = [e for e in trace["traceEvents"] if e["name"] == "wait for other ranks"]
        for e in reductions:  # what is left of it is the time in which data moved
            assert any(w["tid"] == e["tid"] and e["ts"] <= w["ts"] and w["ts"] + w["dur"] <= e["ts"] + e["dur"] + 0.01 for w in waits)
        d = report(run, file)
        assert {"all_reduce", "barrier", "all_gather_into_tensor"} <= {c["name"] for c in d["communication"]["collectives"]}
        assert d["communication"]["collectives"][0] | {"us": 0, "gbs": 0} == {"name": "all_reduce", "calls": 11, "us": 0, "bytes": 22_000_000, "gbs": 0, "ranks": 2}
    both = report(run, *files)
    assert both["ranks"]["compared"] + both["ranks"]["uneven"] == 16
    assert both["ranks"]["unmatched"] == 0 and both["ranks"]["world"] == 2


def test_the_report_of_one_rank_asks_for_the_others(run, tmp_path, monkeypatch):
    file = traces(SLOW, tmp_path, monkeypatch)[0]
    assert report(run, file)["verdict"].startswith("Communication takes the most time: ")
    assert "give the traces of all ranks, which tell waiting from transfer" in report(run, file)["verdict"]


def test_the_slow_rank_is_named(run, tmp_path, monkeypatch):
    d = report(run, *traces(SLOW, tmp_path, monkeypatch))
    assert d["ranks"]["straggler"] == 1
    assert d["verdict"].startswith("The ranks wait for rank 1: ")


def test_each_rank_has_a_folder(run, tmp_path, program):
    (tmp_path / "train.py").write_text("import pyflame as pf\nimport pyflame.distributed as dist\n\ndist.init_process_group()\nfor _ in range(5):\n    dist.all_reduce(pf.ones(1000))\n")
    launch = [sys.executable, "-m", "pyflame.distributed.run", "--nproc", "2", "-m", "pyflame.profiler", "--no-stacks", "--pyflame", str(program)]
    for words in (["--out", "both", "train.py"], ["--keep", "1", "train.py"]):
        r = subprocess.run([*launch, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert r.returncode == 0, r.stdout + r.stderr
    d = report(run, tmp_path / "both")
    assert [row["rank"] for row in d["ranks"]["rows"]] == [0, 1] and d["ranks"]["compared"] + d["ranks"]["uneven"] == 5
    assert len(list(tmp_path.glob("profile-train-rank0-*"))) == len(list(tmp_path.glob("profile-train-rank1-*"))) == 1


def test_gradients_are_averaged_by_collectives_of_the_profile(tmp_path):
    run_ranks(2, TRAINING, tmp_path)


@contextlib.contextmanager
def asked():
    yield line_of_caller()


def test_the_line_of_the_caller_is_the_programs():
    """Between the package and the program may be context managers, whose code is the standard library's."""
    made = compile("def enter(ask):\n    return next(ask())\n", contextlib.__file__, "exec")
    names = {}
    exec(made, names)
    file, _, line = names["enter"](lambda: iter([line_of_caller()])).rpartition(":")
    assert file == __file__ and line.isdigit()
    package = compile("def call(ask):\n    with ask as line:\n        return line\n", pf.__file__, "exec")
    exec(package, names)
    file, _, line = names["call"](asked()).rpartition(":")
    assert file == __file__ and line.isdigit()
