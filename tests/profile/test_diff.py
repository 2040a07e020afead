"""`pyflame report diff`: two runs side by side."""
import copy
import json
import os

import pytest
import traces
from test_counters import MI300X, write_counters


def write(path, run):
    path.write_text(json.dumps(traces.kineto(run)))
    return path


@pytest.fixture
def diff(run):
    return lambda a, b, *more: json.loads(run("report", "diff", a, b, "--json", *more).stdout)


def half_of_gemm(run):
    """The same run with matrix products of half the length, and the time after them idle."""
    out = copy.deepcopy(run)
    for w in out.work:
        if w.name == traces.GEMM:
            w.length /= 2
    return out


def test_what_changed_is_named(diff, run, tmp_path):
    a, b = write(tmp_path / "a.json", traces.training()), write(tmp_path / "b.json", half_of_gemm(traces.training()))
    d = diff(a, b)
    kernels = {k["name"]: k for k in d["kernels"]}
    gemm = d["kernels"][0]
    assert gemm["name"].startswith("Cijk") and gemm["after_us"] == pytest.approx(gemm["before_us"] / 2) and gemm["before_calls"] == gemm["after_calls"] == 1
    assert all(k["change_us"] == pytest.approx(0) for name, k in kernels.items() if name != gemm["name"])
    time = {t["name"]: t["change_us"] for t in d["time"]}
    assert time["GEMM"] == pytest.approx(gemm["change_us"]) and d["per"] == "step" and d["schema"] == "pyflame.report.diff/1"
    assert sum(time.values()) == pytest.approx(d["after"]["us"] - d["before"]["us"])
    text = run("report", "diff", a, b).stdout
    assert "(-50 %)" in text and "1 -> 1" in text


def test_the_verdict_says_which_is_faster_and_why(diff, tmp_path):
    slow, fast = traces.Run(work=[traces.Work(traces.GEMM, 0, 100), traces.Work(traces.ADD, 100, 100)]), None
    fast = copy.deepcopy(slow)
    fast.work[1].length = 20
    a, b = write(tmp_path / "a.json", slow), write(tmp_path / "b.json", fast)
    assert diff(a, b)["verdict"] == "The second run is 1.67 times as fast: 200 us before, 120 us after, mostly because elementwise takes 80 us less."
    assert diff(b, a)["verdict"] == "The second run is 1.67 times as slow: 120 us before, 200 us after, mostly because elementwise takes 80 us more."
    assert diff(a, a)["verdict"] == "Both runs take the same time: 200 us before, 200 us after."


def test_runs_with_other_numbers_of_steps_are_compared_by_step(diff, tmp_path):
    a, b = write(tmp_path / "a.json", traces.training(steps=2)), write(tmp_path / "b.json", traces.training(steps=5))
    d = diff(a, b)
    assert d["before"]["us"] == pytest.approx(d["after"]["us"]) and d["verdict"].startswith("Both runs take the same time")


def test_counters_of_both_runs(diff, run, tmp_path):
    for name, hits in (("a", 900), ("b", 600)):
        write_counters(str(tmp_path / name / "1_counter_collection.csv"), {traces.GEMM: MI300X | {"TCC_HIT_sum": hits}})
    a, b, page = tmp_path / "a", tmp_path / "b", tmp_path / "page.html"
    found = {m["title"]: (m["before"], m["after"]) for m in diff(a, b, "--product", "MI300X")["metrics"]}
    assert found["L2 hits"] == (0.9, pytest.approx(600 / 700)) and found["occupancy"] == (pytest.approx(0.25), pytest.approx(0.25))
    text = run("report", "diff", a, b, "--product", "MI300X", "--html", page).stdout
    row, = (line for line in text.splitlines() if "L2 hits" in line)
    assert row.split()[-4:] == ["90.0", "%", "85.7", "%"] and "85.7 %" in page.read_text() and "same time" in page.read_text()


def test_findings_that_went_and_came(diff, tmp_path):
    plain, with_copies = traces.training(), traces.training()
    for w in with_copies.work:
        if w.name == traces.ADD:
            w.name, w.scratch = "naive_conv_ab_nonpacked_fwd_nchw", 0
    a, b = write(tmp_path / "a.json", with_copies), write(tmp_path / "b.json", plain)
    assert "naive-convolution" in [f["id"] for f in diff(a, b)["gone"]] and "naive-convolution" in [f["id"] for f in diff(b, a)["new"]]


def test_errors(run, tmp_path):
    a = write(tmp_path / "a.json", traces.training())
    assert "does not exist" in run("report", "diff", a, tmp_path / "none.json", code=1).stderr
    assert "after is required" in run("report", "diff", a, code=2).stderr
    assert "paths is required" in run("report", code=2).stderr
    counters = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: MI300X}, times=False)
    assert "no times to compare" in run("report", "diff", a, counters, code=1).stderr
    assert os.path.exists(a)
