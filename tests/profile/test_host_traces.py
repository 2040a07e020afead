"""Traces of PyTorch without a GPU: the CPU's operators are analysed."""
import json

import pytest


def op(name, at, length, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": at, "dur": length, "args": args}


def step(at, gap=0.0):
    """A step of 1000 us: a linear layer (its product 500 us), an activation, a copy; then `gap` us of the program's own code."""
    mm = {"Input Dims": [[1000, 1000], [1000, 1000]], "Input type": ["float", "float"]}
    return [op("aten::linear", at, 604), op("aten::t", at + 1, 2), op("aten::addmm", at + 4, 598), op("aten::expand", at + 5, 3), op("aten::mm", at + 10, 500, **mm),
            op("aten::relu", at + 610, 190), op("aten::copy_", at + 805, 195), op("ProfilerStep#%d" % (at // 1000), at, 1000 + gap, cat="user_annotation")]


def write(path, *steps):
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [e for s in steps for e in s]}))
    return path


def shares(d):
    return {c["name"]: c["share"] for c in d["categories"]}


def test_operators_are_the_work(run, report, tmp_path):
    path = write(tmp_path / "t.json", step(0), step(1000), step(2000))
    d = report(path)
    got = shares(d)
    # Each instant is that of the innermost operator; what wrappers spend around others is overhead.
    assert got["GEMM"] == pytest.approx(0.5, abs=0.02) and got["elementwise"] == pytest.approx(0.19, abs=0.01) and got["memory"] == pytest.approx(0.195, abs=0.01)
    assert sum(got.values()) == pytest.approx(1) and got["idle"] == 0
    assert d["time"]["steps"]["count"] == 3 and d["time"]["steps"]["median_us"] == pytest.approx(1000, abs=10)
    assert d["verdict"].startswith("Matrix products take the most time: 5") and "of the step" in d["verdict"] and "CUDA" not in d["verdict"]
    product = d["kernels"][0]
    assert product["name"] == "aten::mm" and product["calls"] == 3 and product["us"] == pytest.approx(1500)
    assert product["roofline"]["tflops"] == pytest.approx(2e9 / 500e-6 / 1e12, rel=1e-3)
    advice = {a["id"] for a in d["advice"]}
    assert advice == {"products-on-the-cpu", "no-device"} and d["signals"]["operators"] is True and d["device"] is None
    text = run("report", path).stdout
    assert "Operators that take most" in text and "CPU: the trace has operators" in text and "between operators" in text and "4000.0" in text


def test_gpus_of_the_machine_have_no_part_in_the_cpus_work(run, report, tmp_path):
    path = write(tmp_path / "t.json", step(0), step(1000))
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}]}))
    d = report(path)
    assert d["device"] is None and d["kernels"][0]["roofline"]["of_peak"] is None
    assert "CPU: the trace has operators" in run("report", path).stdout
    for option, value in (("--gfx", "gfx942"), ("--product", "MI300X")):
        said = run("report", path, option, value, code=1).stderr
        assert f"report: {option}: the profile has operators of the CPU and no work of a GPU; got '{value}'" in said


def test_the_program_does_other_things(run, report, tmp_path):
    d = report(write(tmp_path / "t.json", *(step(at, gap=4000) for at in (0, 5000, 10000))))
    assert d["verdict"].startswith("No operator runs: 80.") and "the CPU runs other code" in d["verdict"] and "host-code" in {a["id"] for a in d["advice"]}
    assert d["gap_reasons"][0]["why"] == "Python, or the program's own code, ran for more than 1 ms"
    loading = [e for at in (0, 5000, 10000) for e in [*step(at, 4000), op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 1001, 3990, cat="user_annotation")]]
    d = report(write(tmp_path / "t.json", loading))
    assert "the program waits for its data loader" in d["verdict"] and d["advice"][0]["id"] == "data-loading"


@pytest.mark.parametrize("stacks", [False, True])
def test_stacks_are_asked_for_only_where_there_are_none(report, tmp_path, stacks):
    steps = [[*step(at, gap=4000), *[op("app.py(7): prepare", at, 5000, cat="python_function")] * stacks] for at in (0, 5000, 10000)]
    (fix,) = (a["fix"] for a in report(write(tmp_path / "t.json", *steps))["advice"] if a["id"] == "host-code")
    assert ("Record once with with_stack=True to see which function it is." in fix) == (not stacks) and "Move this code out of the step" in fix


def test_small_operators(report, tmp_path):
    ops = [op("aten::add", 20 * i, 5) for i in range(200)]
    d = report(write(tmp_path / "t.json", ops))
    assert d["verdict"].startswith("Python, dispatch and autograd take the most time: 74.9 %") and "small-operators" in {a["id"] for a in d["advice"]}
    assert d["gap_reasons"][0]["code"] == "between" and d["gap_reasons"][0]["launch_bound"] is True


def test_threads_share_the_time(report, tmp_path):
    d = report(write(tmp_path / "t.json", [op("aten::mm", 0, 100, tid=1), op("aten::copy_", 0, 100, tid=2)]))
    assert shares(d)["GEMM"] == pytest.approx(0.5) and shares(d)["memory"] == pytest.approx(0.5)


def test_the_page(run, tmp_path):
    page = tmp_path / "page.html"
    run("report", write(tmp_path / "t.json", step(0), step(1000)), "--html", page)
    html = page.read_text()
    assert "aten::mm" in html and "between operators" in html and "Operators" in html and "GPU busy" not in html


def test_a_gpu_program_of_which_only_the_cpu_was_recorded_is_not_taken_for_one_of_the_cpu(report, tmp_path):
    ops = [op("aten::mm", 0, 100), op("cudaLaunchKernel", 10, 5, cat="cuda_runtime", correlation=3)]
    d = report(write(tmp_path / "t.json", ops))
    assert d["verdict"].startswith("The profile has events of the CPU only") and d["signals"]["operators"] is False


def test_annotations_alone_are_no_work(report, tmp_path):
    d = report(write(tmp_path / "t.json", [op("my range", 0, 100, cat="user_annotation")]))
    assert "CPU only" in d["verdict"] and d["categories"] == []


def test_a_real_trace(report, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = torch.nn.Linear(512, 512)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        for _ in range(3):
            model(torch.randn(256, 512)).square().mean().backward()
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    d = report(tmp_path / "t.json")
    assert d["signals"]["operators"] is True and shares(d)["GEMM"] > 0 and "aten::mm" in {k["name"] for k in d["kernels"]}
