"""pf.explain: the causes and lines of cuts, what steps cost, where fusion ends and what that costs, fallbacks. `pyflame explain` runs programs."""
import datetime
import errno
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyflame as pf
import pytest
from pyflame._explain import document, page
from pyflame._explain import text as rendering
from pyflame.profiler import ceilings

F = pf.nn.functional
ONE_OP_WINDOWS = os.environ.get("PYFLAME_WINDOW") == "1"
UNFUSED = ONE_OP_WINDOWS or os.environ.get("PYFLAME_FUSE") == "0"
whole_windows = pytest.mark.skipif(ONE_OP_WINDOWS, reason="windows of one op are cut after each")
fused = pytest.mark.skipif(UNFUSED, reason="nothing is fused")


@pytest.fixture(autouse=True)
def known_ceilings(tmp_path, monkeypatch):
    """100 GB/s and 1000 GFLOP/s: nothing is measured."""
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ceilings, "_known", {})
    figure = lambda rate: {"rate": rate, "spread": 0.01, "date": "2026-01-02"}  # noqa: E731
    entry = {ceilings.MEMORY: figure(100.0), **{d: figure(1000.0) for d in ("float16", "bfloat16", "float32", "float64")}}
    (tmp_path / ceilings.FILE).write_text(json.dumps({ceilings._key("cpu"): entry}))


def summary(text):
    """The lines before the windows."""
    return re.split(r"^window 1 |^program 1:", text, flags=re.MULTILINE)[0]


def line_of(fn, offset):
    return f"test_explain.py:{fn.__code__.co_firstlineno + offset} in "


def test_ceilings_leave_no_part_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    before = (tmp_path / ceilings.FILE).read_text()

    def full(path, text):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_text", full)
    ceilings._write(tmp_path / ceilings.FILE, {})
    assert os.listdir(tmp_path) == [ceilings.FILE] and (tmp_path / ceilings.FILE).read_text() == before


# ---- what comes first


@fused
def test_the_most_important_comes_first():
    a, b = pf.ones(64, 64), pf.ones(64, 64)
    lines = pf.explain(lambda: (a @ b).exp()).splitlines()
    assert lines[0] == "1 window"
    assert lines[1] == "  2 ops in 2 steps on cpu; 81.9 KB of memory traffic, 524 KFLOP" or lines[1].startswith("  2 ops in 1 step on cpu; ")
    assert lines[2].startswith("  expected ") and lines[2].endswith(" at the ceilings")
    assert lines[3] == "  ceilings of cpu: 100 GB/s, 1000 GFLOP/s in float32 (measured on this machine on 2026-01-02)"
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles[1] == "the steps that cost most:" and titles[2] == "where windows were cut:" and titles[-1].startswith("window 1 ") and "no fallbacks" in titles


@fused
def test_bytes_flops_and_expected_time_of_a_step():
    x = pf.ones(1000, 250)
    text = pf.explain(lambda: x * 2 + 1)
    assert "\n    2 MB, expected 20 us (memory)\n" in text, "a megabyte is read and one written, at 100 GB/s"
    a = pf.ones(500, 500)
    assert re.search(r"\n    3 MB, 250 MFLOP, expected 250 us \(arithmetic\)\n", pf.explain(lambda: a @ a)) or "2 MB, 250 MFLOP, expected 250 us (arithmetic)" in pf.explain(lambda: a @ a)


def test_an_unknown_ceiling_has_no_expected_time(monkeypatch):
    monkeypatch.setattr(ceilings, "ceilings", None)
    monkeypatch.setattr(document, "ceilings", lambda device, dtypes, measure: ceilings.Ceilings(device, source="unknown"))
    x = pf.ones(10)
    text = pf.explain(lambda: x + 1)
    assert "expected 1" not in text and "of cpu" not in text and "at the ceilings" not in text and " 80 B\n" in text


def test_ceilings_are_measured_without_forced_implementations(tmp_path, monkeypatch):
    (tmp_path / ceilings.FILE).unlink()
    monkeypatch.setattr(ceilings, "SECONDS", 0.01)
    monkeypatch.setattr(ceilings, "EDGE", {"cpu": 64, "gpu": 64})
    used = []
    measured = ceilings._measure_gflops

    def look(device, dtype):
        used.append(pf._C._force_entry("matmul", ""))
        return measured(device, dtype)

    monkeypatch.setattr(ceilings, "_measure_gflops", look)
    with pf.tuning.force("matmul", "cpu.gemv"):  # refuses a product of two matrices
        assert ceilings.ceilings("cpu", ("float32",)).gflops["float32"] > 0
        assert pf._C._force_entry("matmul", "cpu.gemv") == "cpu.gemv"  # it is forced again
    assert used == [""]


def test_ceilings_are_measured_once_and_kept(tmp_path, monkeypatch):
    (tmp_path / ceilings.FILE).write_text("not json")
    monkeypatch.setattr(ceilings, "SECONDS", 0.01)
    monkeypatch.setattr(ceilings, "EDGE", {"cpu": 64, "gpu": 64})
    rate = ceilings._rate
    monkeypatch.setattr(ceilings, "_rate", lambda *args: (rate(*args)[0], 0.01))  # the machine of the test may be busy
    pf.manual_seed(3)
    before = pf.rand(4).tolist()
    pf.manual_seed(3)
    found = ceilings.ceilings("cpu", ("float32", "int64"))
    assert pf.rand(4).tolist() == before, "the program's random numbers stay the same"
    assert found.gbs > 0 and set(found.gflops) == {"float32"} and "measured on this machine on " in found.source
    kept = (tmp_path / ceilings.FILE).read_text()
    monkeypatch.setattr(ceilings, "_known", {})
    monkeypatch.setattr(ceilings, "_measure_gbs", None)
    again = ceilings.ceilings("cpu", ("float32",))
    assert again == found and (tmp_path / ceilings.FILE).read_text() == kept
    assert set(ceilings.ceilings("cpu", ("float32", "float64")).gflops) == {"float32", "float64"}, "a dtype that is new is measured alone"


def test_ceilings_of_8_bits_are_those_of_the_units_that_there_are(tmp_path, monkeypatch):
    (tmp_path / ceilings.FILE).unlink()
    monkeypatch.setattr(ceilings, "SECONDS", 0.01)
    monkeypatch.setattr(ceilings, "EDGE", {"cpu": 64, "gpu": 64})
    rates, product = {16: (3.0, 0.01), 32: (7.0, 0.02), 64: (5.0, 0.03)}, ceilings._measure_product
    monkeypatch.setattr(ceilings, "EDGES_INT8", {"cpu": (16, 32, 64)})
    monkeypatch.setattr(ceilings, "_measure_product", lambda device, dtype, n: product(device, dtype, n) and rates[n])
    assert ceilings._measure_gflops("cpu", "int8") == (7.0, 0.02), "the fastest of the sizes"
    monkeypatch.setattr(ceilings, "_measure_product", product)
    found = ceilings.ceilings("cpu", ("int8", "float8_e4m3fn"))
    assert set(found.gflops) == {"int8"} and found.gflops["int8"] > 0, "a CPU converts 8-bit floats"
    assert ceilings._measure_gflops("cpu", "float8_e4m3fn")[0] > 0, "where there are units, their products can be measured"


@pytest.mark.skipif(not pf.rocm_is_available(), reason="no AMD GPU, and no emulated one")
def test_the_data_sheet_has_products_of_8_bits():
    peaks = pf._C._gpu_peaks("rocm")
    names = {name for name, rate in peaks["tflops"].items() if rate and name[-1] != "2" and name not in ("float64", "float16", "bfloat16")}
    units = {name for name in ("int8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz") if pf._C._has_units("rocm", name)}
    assert names == units and "int8" in units
    if pf._C.device_info("rocm")["architecture"].startswith("gfx942"):
        assert units == {"int8", "float8_e4m3fnuz", "float8_e5m2fnuz"} and peaks["tflops"]["int8"] == peaks["tflops"]["float8_e4m3fnuz"] > 1000


def test_ceilings_of_a_busy_machine_are_measured_again_by_the_next_process(tmp_path, monkeypatch):
    def in_a_new_process(gbs, gflops, dtypes=("float32",)):
        """The ceilings, where a measurement gives these rates and spreads. None: it must not be made."""
        monkeypatch.setattr(ceilings, "_known", {})
        monkeypatch.setattr(ceilings, "_measure_gbs", gbs and (lambda device: gbs))
        monkeypatch.setattr(ceilings, "_measure_gflops", gflops and (lambda device, dtype: gflops))
        return ceilings.ceilings("cpu", dtypes)

    (tmp_path / ceilings.FILE).unlink()
    today = datetime.date.today()
    busy = in_a_new_process((7.0, 0.05), (70.0, 0.34))
    assert busy.source == f"measured on this machine on {today}; the samples of float32 products spread over 34%, so that the next process measures again"
    monkeypatch.setattr(ceilings, "_measure_gflops", None)
    assert ceilings.ceilings("cpu") == busy, "one process measures once"
    assert in_a_new_process(None, None, ()).gbs == 7.0, "what is not asked for is not measured"
    again = in_a_new_process(None, (60.0, 0.2))
    assert again.gflops == {"float32": 70.0}, "other programs only lower a rate"
    assert again.source == f"measured on this machine on {today}; float32 products again, because the samples spread over 34%; the samples of float32 products spread over 20%, so that the next process measures again"
    calm = in_a_new_process(None, (90.0, 0.02))
    assert calm.gflops == {"float32": 90.0} and calm.source == f"measured on this machine on {today}; float32 products again, because the samples spread over 20%"
    kept = json.loads((tmp_path / ceilings.FILE).read_text())[ceilings._key("cpu")]
    assert kept == {"memory": {"rate": 7.0, "spread": 0.05, "date": str(today)}, "float32": {"rate": 90.0, "spread": 0.02, "date": str(today)}}
    assert in_a_new_process(None, None).source == f"measured on this machine on {today}"


def test_a_record_of_ceilings_without_spreads_is_measured_again(tmp_path, monkeypatch):
    (tmp_path / ceilings.FILE).write_text(json.dumps({ceilings._key("cpu"): {"gbs": 1.0, "gflops": {"float32": 10.0}, "date": "2026-01-02"}, "other": 3}))
    monkeypatch.setattr(ceilings, "_measure_gbs", lambda device: (7.0, 0.01))
    monkeypatch.setattr(ceilings, "_measure_gflops", lambda device, dtype: (70.0, 0.01))
    found = ceilings.ceilings("cpu")
    assert found.gbs == 7.0 and found.gflops == {"float32": 70.0}


def test_ceilings_that_cannot_be_measured_or_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(tmp_path / "new"))

    def no_memory(device):
        raise pf.OutOfMemoryError("none")

    monkeypatch.setattr(ceilings, "_measure_gbs", no_memory)
    assert ceilings.ceilings("cpu").gbs is None
    monkeypatch.setattr(ceilings, "_measure_gbs", lambda device: (7.0, 0.01))
    monkeypatch.setattr(ceilings, "_measure_gflops", lambda device, dtype: (70.0, 0.01))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(tmp_path / "file"))
    assert ceilings.ceilings("cpu").gbs == 7.0
    with pf.profiler.profile():
        assert ceilings.ceilings("cpu", ("float16",), renew=True).gbs is None, "a measurement would be in the recording"


@whole_windows
def test_measured_times_are_those_of_the_last_profile():
    a = pf.ones(64, 48)

    def step():
        return (a @ a.t()).sum().item()

    step()
    with pf.profiler.profile() as prof:
        step()
    text = pf.explain(step)
    rows = [r for r in prof.key_averages() if r.kind == "step"]
    assert len(rows) >= 1 and text.count("measured ") >= len(rows) + 1 and " in the profile\n" in text
    del prof
    assert "measured " not in pf.explain(step).replace("measured on this machine", "")


# ---- cuts


@whole_windows
@pytest.mark.parametrize("cause, read", [
    ("item()", lambda y: y.sum().item()), ("tolist()", lambda y: y.tolist()), ("numpy()", lambda y: y.numpy()), ("bool() or if", lambda y: bool(y.sum() > 0)),
    ("item()", lambda y: float(y.sum())), ("the tensor's text (print, repr)", str), ("DLPack", np.from_dlpack), ("synchronize()", lambda y: pf.synchronize()), ("NumPy, or another reader of Python's buffer protocol", np.asarray),
])
def test_the_line_and_the_cause_of_a_sync_point(cause, read):
    x = pf.ones(4)

    def region():
        y = x * 2
        return read(y)

    text = pf.explain(region)
    at = f"test_explain.py:{read.__code__.co_firstlineno} in <lambda>" if hasattr(read, "__code__") else line_of(region, 2) + region.__qualname__
    assert f"window 1 (cut by sync point: {cause} at {at}; planned in" in text or f"window 1 (cut by sync point: {cause} at {at}; cached program" in text, text
    assert f"  {at}: sync point: {cause}" in summary(text)


@whole_windows
@pytest.mark.parametrize("call", [
    lambda x: pf.nonzero(x), lambda x: x[x > 1], lambda x: pf.masked_select(x, x > 1), lambda x: pf.where(x > 1), lambda x: pf.unique(x), lambda x: pf.unique_consecutive(x),
    lambda x: pf.bincount(x), lambda x: F.one_hot(x), lambda x: pf.repeat_interleave(x, x + 1), lambda x: pf.unique(pf.arange(1 << 14) % 7),
])
def test_a_sync_point_that_depends_on_data_says_so(call):
    text = summary(pf.explain(call, pf.tensor([1, 0, 2, 2])))
    at = f"test_explain.py:{call.__code__.co_firstlineno} in <lambda>"
    assert re.search(rf"{re.escape(at)}: sync point: the [a-z ]+, because the size of the result depends on the data", text), text


@whole_windows
def test_structural_marks_name_backward_and_step():
    layer = pf.nn.Linear(3, 2)
    optimizer = pf.optim.SGD(layer.parameters(), lr=0.1)

    def train():
        layer(pf.ones(4, 3)).sum().backward()
        optimizer.step()
        pf.ones(3) + 1
        pf.cut()

    text = pf.explain(train)
    for offset, cause in ((1, "the end of backward()"), (2, "the end of the optimizer's step()"), (4, "pf.cut()")):
        assert f"{line_of(train, offset)}{train.__qualname__}: structural mark: {cause}" in text, text


@fused
def test_what_a_cut_keeps_apart():
    x = pf.ones(1000)

    def divided():
        y = x * 2
        y.sum().item()
        return (y + 1).sum().item()

    text = summary(pf.explain(divided))
    assert f"{line_of(divided, 2)}{divided.__qualname__}: sync point: item(); without it, mul -> add would save 4 KB" in text, "y is read once more; it would be written in any case"

    def released():
        y = x * 2
        y.sum().item()
        z = y + 1
        del y
        return z

    assert "mul -> add would save 8 KB" in summary(pf.explain(released)), "y would not be written either"

    def whole():
        y = x * 2
        return (y + 1).sum().item()

    assert "without it" not in summary(pf.explain(whole))


@fused
def test_each_cut_between_readers_of_a_value_costs_a_read():
    x = pf.ones(1000)

    def loop():
        y = x * 2
        return [(y + i).sum().item() for i in range(5)]

    text = summary(pf.explain(loop))
    assert "5 x  " in text and "item(); without it, mul -> add would save 16 KB" in text, "four cuts, after each of which the next loop reads y again"


@fused
def test_a_cut_that_no_kernel_would_cross_costs_nothing():
    x = pf.ones(100, 100)

    def region():
        y = x @ x
        y.sum().item()
        return y @ x

    assert "without it" not in summary(pf.explain(region))


@whole_windows
def test_a_limit_names_the_last_op():
    x = pf.ones(3)

    def many():
        y = x
        for _ in range(1500):
            y = y + 1
        return y.sum().item()

    assert f"  {line_of(many, 3)}{many.__qualname__} (after add): size limit" in summary(pf.explain(many)).replace("2 x  ", "").replace("3 x  ", "").replace("4 x  ", "")


# ---- fusion


def ends(fn, *args):
    return [line.strip() for line in pf.explain(fn, *args).splitlines() if line.startswith("    fusion ends: ")]


@fused
@pytest.mark.parametrize("why, fn", [
    ("cumsum has a kernel of its own; fusing would save 16 KB", lambda: pf.cumsum(pf.ones(2000) * 2, 0)),
    ("cumsum has a kernel of its own, which takes no further ops; fusing would save 16 KB", lambda: pf.cumsum(pf.ones(2000), 0) * 2),
    ("a matmul does not reduce its own result", lambda: (pf.ones(32, 32) @ pf.ones(32, 32)).sum()),
    ("the result of sum is complete only after the whole loop", lambda: (lambda x: x - x.sum(0))(pf.ones(64, 64) * 2)),
    ("floor_divide of integers may fail, so it runs alone", lambda: (pf.ones(64, dtype=pf.int64) * 2) // 3),
])
def test_why_fusion_ends(why, fn):
    found = ends(fn)
    assert any(why in line for line in found), found


@fused
def test_the_end_of_fusion_names_both_lines():
    def region():
        y = pf.ones(2000) * 2
        return pf.cumsum(y, 0)

    text = pf.explain(region)
    name = region.__qualname__
    assert f"{line_of(region, 2)}{name}: cumsum reads what mul ({line_of(region, 1)}{name}) stored: cumsum has a kernel of its own" in summary(text)
    assert re.search(r"^ +16 KB  test_explain", summary(text), re.MULTILINE)


def test_without_fusion_it_says_so():
    code = "import pyflame as pf\nprint(pf.explain(lambda: (pf.ones(2000) * 2).exp()))"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, "PYFLAME_FUSE": "0", "PYFLAME_WINDOW": "0"})
    assert "exp reads what mul stored: fusion is off; fusing would save 16 KB" in r.stdout, r.stdout + r.stderr


# ---- windows


@whole_windows
def test_a_known_program_has_the_lines_of_this_call():
    x = pf.ones(7, 3)
    first = lambda: (x * 3).tanh()  # noqa: E731
    second = lambda: (x * 3).tanh()  # noqa: E731
    first()
    pf.synchronize()
    assert f"test_explain.py:{second.__code__.co_firstlineno} in" in pf.explain(second) and f"test_explain.py:{first.__code__.co_firstlineno} in" not in pf.explain(second)


@whole_windows
def test_programs_that_run_again_are_shown_once():
    x = pf.ones(7)

    def loop(n):
        for _ in range(n):
            (x + 1).sum().item()

    text = pf.explain(loop, 4)
    assert text.startswith("4 windows\n") and text.count("\n  as window 1\n") == 3 and text.count(" -> float32(7,)") == 1
    assert f"  4 x  {line_of(loop, 2)}" in text
    text = pf.explain(loop, 100)
    assert text.startswith("100 windows\n") and re.search(r"^program 1: 100 runs, expected ", text, re.MULTILINE) and "window 1 (" not in text


def test_nothing_and_errors():
    assert pf.explain(lambda: None).startswith("0 windows\n  0 ops in 0 steps on no device")
    with pytest.raises(RuntimeError, match="explain: an explanation is under way; expected one at a time"):
        pf.explain(lambda: pf.explain(lambda: pf.ones(2)))
    with pytest.raises(ZeroDivisionError):
        pf.explain(lambda: 1 / 0)
    assert pf.explain(lambda: pf.ones(2)).startswith("1 window\n")
    with pytest.raises(TypeError, match="explain: not a function; got Tensor; expected something to call"):
        pf.explain(pf.ones(2))


def test_other_threads_are_left_out():
    def work():
        thread = threading.Thread(target=lambda: (pf.ones(3).exp() * 2).sum().item())
        thread.start()
        thread.join()

    assert pf.explain(work).startswith("0 windows\n")


def test_fallbacks_are_listed(monkeypatch):
    entry = {"op": "eigh", "device": "rocm:0", "ran_on": "LAPACK on the host", "reason": "there is no kernel of it for GPUs", "times": 3, "seconds": 0.25}
    x = pf.ones(3)
    assert "\nno fallbacks\n" in pf.explain(lambda: x + 1)
    monkeypatch.setattr(document, "_C", type("C", (), {"fallbacks": staticmethod(lambda: [entry])}))
    text = summary(pf.explain(lambda: x + 1))
    assert "what ran on a fallback in this process:\n  eigh on rocm:0 ran on LAPACK on the host: 3 times, 250 ms; there is no kernel of it for GPUs\n" in text


# ---- the command

PROGRAM = """
import sys

import pyflame as pf

x = pf.ones(64, 64)
for _ in range(int(sys.argv[1])):
    y = x @ x
    print("rows:", pf.nonzero(y[0] > 1).shape[0])
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.py").write_text(PROGRAM)
    return tmp_path


def parts_of(stdout, name):
    """What the program wrote, and the report behind it."""
    output, title, report = stdout.partition(f"\n== pyflame explain: {name} ==\n")
    assert title, stdout
    return output, report


def test_the_command(run, folder):
    r = run("explain", "--html", "page.html", "--json", "some.json", "--python", sys.executable, "some.py", 3, 7, code=7)
    output, report = parts_of(r.stdout, "some.py")
    assert output == "rows: 64\n" * 3 and "windows" not in r.stderr, "the report is behind the program's output, and on stdout"
    assert re.match(r"\d+ windows\n", report) and "the steps that cost most:" in report and "program 1: " in report and "measured " in report and "\nno fallbacks\n" in report
    if not ONE_OP_WINDOWS:
        assert re.search(r"3 x  some.py:9 in <module>: sync point: the number of true elements, because the size of the result depends on the data", report)
    found = json.loads((folder / "some.json").read_text())
    assert found["windows"] == int(report.split()[0]) and found["costs"][0]["measured_us"] > 0 and sum(p["runs"] for p in found["programs"]) == found["windows"]
    html = (folder / "page.html").read_text()
    assert html.startswith("<!doctype html>") and "The steps that cost most" in html and "some.py:8" in html and "<script" not in html and "http" not in html


def test_the_command_writes_the_text_to_a_file(run, folder):
    r = run("explain", "--out", "plan.txt", "--no-times", "--python", sys.executable, "-m", "some", 1, 0)
    assert r.stdout == "rows: 64\n" and r.stderr == "pyflame explain: written: plan.txt\n" and "measured" not in (folder / "plan.txt").read_text().replace("measured on", "")
    r = run("explain", "--out", "no/such/plan.txt", "--python", sys.executable, "some.py", 1, 0, code=1)
    assert r.stderr == "pyflame explain: 'no/such/plan.txt' cannot be written; expected a file in a folder that exists and can be written\n" and not r.stdout, "it says so before it runs"


def test_a_program_that_goes_to_another_folder(run, folder):
    (folder / "goes.py").write_text("import os, pyflame as pf\nos.mkdir('there')\nos.chdir('there')\npf.ones(3).sum().item()\n")
    run("explain", "--out", "plan.txt", "--html", "page.html", "--kernels", "kernels", "--python", sys.executable, "goes.py")
    assert {"plan.txt", "page.html", "kernels"} <= set(os.listdir(folder)) and not os.listdir(folder / "there")


@whole_windows
def test_a_long_program_is_summed_up_on_the_terminal(run, folder):
    (folder / "long.py").write_text("import pyflame as pf\nx = pf.ones(5, 5)\nfor i in range(60):\n    x = pf.cumsum(x, 0)\nx.sum().item()\n")
    r = run("explain", "--python", sys.executable, "long.py")
    assert "the steps that cost most:" in r.stdout and "program 1: " in r.stdout and "  step 0: " not in r.stdout and "hint: --out FILE or --html FILE writes them" in r.stderr
    r = run("explain", "--out", "all.txt", "--python", sys.executable, "long.py")
    assert "program 1: " in r.stdout and "hint:" not in r.stderr and (folder / "all.txt").read_text().count("\n  step ") >= 60


def test_kernels_of_the_cpu_are_not_generated(run, folder):
    r = run("explain", "--kernels", "kernels", "--python", sys.executable, "some.py", 1, 0)
    assert "no kernels in kernels: none were generated; only programs on a GPU have them" in r.stderr and not os.listdir(folder / "kernels")


def test_a_program_with_a_profile_and_an_explanation_of_its_own(run, folder):
    (folder / "own.py").write_text("import pyflame as pf\nx = pf.ones(8, 8)\n(x @ x).sum().item()\nwith pf.profiler.profile() as p:\n    (x @ x).sum().item()\n"
                                   "print(len([r for r in p.key_averages() if r.kind == 'step']) > 0, 'measured' in pf.explain(lambda: (x @ x).sum().item()))\n")
    r = run("explain", "--python", sys.executable, "own.py")
    output, report = parts_of(r.stdout, "own.py")
    assert output == "True True\n" and "program 1: " in report and "Traceback" not in r.stderr


def test_a_program_that_fails_or_computes_in_threads(run, folder):
    (folder / "bad.py").write_text("import threading, pyflame as pf\nt = threading.Thread(target=lambda: pf.ones(9).exp().sum().item())\nt.start()\nt.join()\nraise ValueError('wrong')\n")
    r = run("explain", "--python", sys.executable, "bad.py", code=1)
    assert "ValueError: wrong" in r.stderr and "exp" in r.stdout and "bad.py:2 in <lambda>" in r.stdout


def test_options_behind_the_file_are_told(run, folder):
    (folder / "plain.py").write_text("import pyflame as pf\npf.ones(3).sum().item()\n")
    said = run("explain", "--python", sys.executable, "plain.py", "--html=e.html", "--other").stderr
    assert said == "pyflame explain: the program gets what stands behind its file, whose text has nothing of this option; got --html behind plain.py; hint: options of this command stand before the file\n"
    assert "got --no-stacks behind plain.py" in run("profile", "--python", sys.executable, "plain.py", "--no-stacks").stderr
    (folder / "own.py").write_text("import argparse, pyflame as pf\np = argparse.ArgumentParser()\np.add_argument('--html')\np.parse_args()\npf.ones(3).sum().item()\n")
    assert run("explain", "--python", sys.executable, "own.py", "--html", "e.html").stderr == ""


def test_no_place_is_in_the_standard_library(run, folder):
    """The line of the user that called it; in a thread of the DataLoader, which no line of the user called, that of the DataLoader."""
    (folder / "loads.py").write_text("import copy, functools, pyflame as pf\nfrom pyflame.data import DataLoader, TensorDataset\nx = pf.ones(6, 2)\n"
                                     "for part, in DataLoader(TensorDataset(x), batch_size=3, shuffle=True, prefetch_factor=2):\n    part.sum().item()\n"
                                     "copy.deepcopy([x * 3])[0].sum().item()\nfunctools.partialmethod(pf.add).__get__(x)(x).sum().item()\n")  # fmt: skip
    text = run("explain", "--python", sys.executable, "loads.py").stdout
    assert re.findall(r"(threading|copy|functools|queue)\.py:", text) == [] and re.search(r"loader\.py:\d+ in DataLoader\.", text) and "loads.py:6 in <module>" in text and "loads.py:7 in <module>" in text


def test_what_the_command_refuses(run, folder):
    assert "explain: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame explain train.py --epochs 1" in run("explain", code=1).stderr
    assert "there is no such file; got 'none.py'; expected a Python program" in run("explain", "--python", sys.executable, "none.py", code=1).stderr
    assert "there is no such module; got 'none'; expected a module that Python finds from this folder" in run("explain", "--python", sys.executable, "-m", "none", code=1).stderr
    assert "there is no such module; got 'none.at.all'" in run("explain", "--python", sys.executable, "-m", "none.at.all", code=1).stderr
    assert "the kernels cannot be written to 'some.py': File exists" in run("explain", "--kernels", "some.py", "--python", sys.executable, "some.py", code=1).stderr
    (folder / "peer.py").write_text("import torch\n")
    assert "the program uses PyTorch; got peer.py; expected a program of PyFlame; hint: pyflame profile peer.py profiles it with PyTorch, and pyflame explain -m pyflame.torch peer.py runs it with PyFlame" in run("explain", "--python", sys.executable, "peer.py", code=1).stderr
    (folder / "empty.py").write_text("print('hello')\n")
    assert "the program recorded no ops of PyFlame" in run("explain", "--python", sys.executable, "empty.py").stderr


def test_ctrl_c_ends_the_program_and_explains_it(program, folder):
    (folder / "endless.py").write_text("import pyflame as pf\nx = pf.ones(9)\nprint('begun', flush=True)\nwhile True:\n    (x + 1).sum().item()\n")
    p = subprocess.Popen([program, "explain", "--python", sys.executable, "endless.py"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "begun\n"
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    report, _ = p.communicate(timeout=120)
    assert p.returncode == 130 and "program 1: " in report and "endless.py:5" in report


def test_a_reader_that_leaves_and_an_output_that_the_program_replaced(program, folder):
    (folder / "long.py").write_text("import pyflame as pf\nfor i in range(900):\n    pf.ones(i + 1).sum().item()\n")
    windows = 1800 if os.environ.get("PYFLAME_WINDOW") == "1" else 900  # then each op is one
    r = subprocess.run(["bash", "-c", f"{program} explain --no-times --python {sys.executable} long.py | head -n 3; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=300)
    assert r.stdout.startswith(f"\n== pyflame explain: long.py ==\n{windows} windows\n") and r.stdout.endswith("\n0\n") and "Traceback" not in r.stderr and "BrokenPipe" not in r.stderr
    (folder / "quiet.py").write_text("import io, sys, pyflame as pf\nsys.stdout = io.StringIO()\nprint('lost')\npf.ones(3).sum().item()\n")
    r = subprocess.run([program, "explain", "--python", sys.executable, "quiet.py"], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0 and parts_of(r.stdout, "quiet.py")[0] == "" and "program 1: " in r.stdout
    (folder / "größe.py").write_text("import sys, pyflame as pf\npf.ones(3).sum().item()\nsys.stdout = None\n")
    r = subprocess.run([program, "explain", "--python", sys.executable, "größe.py"], capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert r.returncode == 0 and "gr\\xf6\\xdfe.py:2 in <module>" in r.stdout and not r.stderr
    (folder / "shut.py").write_text("import sys, pyflame as pf\npf.ones(3).sum().item()\nsys.stdout.close()\n")
    r = subprocess.run([program, "explain", "--python", sys.executable, "shut.py"], capture_output=True, text=True, timeout=300)
    assert r.stderr.startswith("pyflame explain: the report cannot be written to the standard output: ") and "hint: --out FILE" in r.stderr


@whole_windows
def test_the_first_run_of_a_step_is_named(run, folder):
    """The first product of a process starts threads and generates code, which a profile skips."""
    (folder / "many.py").write_text("import pyflame as pf\nx = pf.ones(64, 64)\npf.synchronize()\nfor i in range(20):\n    (x @ x).sum().item()\n")
    r = run("explain", "--json", "many.json", "--python", sys.executable, "many.py")
    found = json.loads((folder / "many.json").read_text())
    row = next(c for c in found["costs"] if "matmul" in c["name"])
    step = next(s for p in found["programs"] for s in p["steps"] if "matmul" in s["name"])
    assert row["runs"] == 20 and step["first_us"] > 2 * step["later_us"] > 0
    assert math.isclose(row["once_us"], step["first_us"] - step["later_us"], rel_tol=1e-6) and re.search(r"\n  first runs took \S+ .?s more than later ones: ", r.stdout)
    assert math.isclose(row["measured_us"], step["first_us"] + 19 * step["later_us"], rel_tol=1e-6), "all runs"
    assert re.search(r"matmul.* x 20 .*, measured \S+ .?s, of it \S+ .?s in first runs\n", r.stdout) and re.search(r", measured \S+ .?s, in the first run \S+ .?s\n", r.stdout)
    (folder / "once.py").write_text("import pyflame as pf\nx = pf.ones(64, 64)\n(x @ x).sum().item()\n")
    assert re.search(r"matmul .*, measured \S+ .?s in its first run\n", run("explain", "--python", sys.executable, "once.py").stdout)


def test_a_later_explanation_measures_as_a_profile_does():
    x = pf.ones(48, 48)
    multiply = lambda: (x @ x).sum().item()  # noqa: E731
    with pf.profiler.profile() as p:
        for _ in range(10):
            multiply()
    row = next(r for r in p.key_averages() if r.kind == "step" and "matmul" in r.key)
    assert 0 < row.first_time < row.cpu_time_total
    later = rendering.time((row.cpu_time_total - row.first_time) / (row.count - 1))
    assert f"measured {later}\n" in pf.explain(multiply) and "first run" not in pf.explain(multiply)


def test_no_expected_time_is_below_that_of_a_start():
    text = pf.explain(lambda: pf.ones(3) + 1)
    assert "expected under 0.1 us" in text and not re.search(r"expected [\d.]+ [np]s", text)
    assert [rendering.expected({"expected_us": us, "launch_us": 1.0}) for us in (0.000097, 0.99, 1.0, 25.0)] == ["under 1 us", "under 1 us", "1 us", "25 us"]


def test_names_in_the_page_are_escaped():
    x = pf.ones(3)
    pf.synchronize()
    pf._C._explain_begin(False)
    (x + 1).sum().item()
    found = document.make(pf._C._explain_end(False))
    found["costs"][0]["name"] = "<b>&"
    html = page.render(found, "<i>")
    assert "&lt;b&gt;&amp;" in html and "<b>&" not in html and "&lt;i&gt;" in html


def test_sizes_and_times():
    assert [rendering.size(n) for n in (0, 999, 1500, 2.5e6, 3e9)] == ["0 B", "999 B", "1.5 KB", "2.5 MB", "3 GB"]
    assert [rendering.time(us) for us in (0.0123, 0.5, 12.34, 5000, 2e6)] == ["12 ns", "0.5 us", "12.3 us", "5 ms", "2 s"]
    assert [rendering.work(n) for n in (5, 2e3, 3e6, 4e9, 5e12)] == ["5 FLOP", "2 KFLOP", "3 MFLOP", "4 GFLOP", "5 TFLOP"]
