"""Which steps `pyflame report` sees in a trace, which work it assigns to them, and how it explains the time between kernels."""
import json

import pytest
import traces
from traces import ADD, ATTENTION, GEMM, NORM, Cpu, Run, Work


@pytest.fixture
def of(report, tmp_path):
    """of(run, *arguments): the report of a PyTorch trace of this run."""

    def call(run, *args):
        return report(traces.write_kineto(run, str(tmp_path / "t.json")), *args)

    return call


def calls(document):
    return {k["name"].split()[0]: k["calls"] for k in document["kernels"]}


def reasons(document):
    return {g["code"]: g["us"] for g in document["gap_reasons"]}


def advice(document):
    return [a["id"] for a in document["advice"]]


def without_launches(path, before):
    """Removes the launches before a time, as in a recording that began later."""
    trace = json.loads(open(path).read())
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["cat"] in ("kernel", "user_annotation") or e["ts"] >= traces.BASE_NS / 1000 + before]
    open(path, "w").write(json.dumps(trace))
    return path


def test_work_that_was_launched_before_the_recording_is_of_no_step(report, run, tmp_path):
    # The device still works on ten products when the step begins on the CPU.
    earlier = [Work(GEMM, i * 100, 100, launched=-500 + i) for i in range(10)]
    step = [Work(ADD, 1000 + i * 100, 100, launched=100 + i * 10) for i in range(5)]
    r = Run(work=earlier + step, cpu=[Cpu("ProfilerStep#6", 50, 200, "annotation")])
    path = without_launches(traces.write_kineto(r, str(tmp_path / "t.json")), 0)
    d = report(path)
    assert calls(d) == {"vectorized_elementwise_kernel": 5} and d["time"]["outside"] == {"events": 10, "us": 1000, "before_recording": 10}
    # The step begins when the device is free for it.
    assert d["time"]["wall_us"] == pytest.approx(500) and d["time"]["gpu_busy_us"] == pytest.approx(500)
    page = tmp_path / "page.html"
    assert "10 kernels and copies of no step (1 ms of work), launched before the recording began" in run("report", path, "--html", page).stdout
    assert "outside of the steps" in page.read_text(encoding="utf-8")


def test_without_launches_work_is_of_the_range_in_which_it_ran(of):
    r = Run(work=[Work(GEMM, i * 100, 100) for i in range(6)], cpu=[Cpu("ProfilerStep#0", 0, 200, "annotation"), Cpu("ProfilerStep#1", 200, 200, "annotation"),
                                                                   Cpu("hipMalloc", 1, 1, "call")])
    d = of(r)
    assert d["time"]["steps"]["count"] == 2 and d["time"]["wall_us"] == pytest.approx(400)
    assert d["time"]["outside"] == {"events": 2, "us": 200, "before_recording": 0}


def test_a_step_lasts_until_the_device_is_done(of):
    # The CPU needs 30 us for a step, and the device 1,000.
    r = Run()
    for i in range(3):
        r.cpu.append(Cpu(f"ProfilerStep#{i}", i * 30, 30, "annotation"))
        r.work += [Work(GEMM, 100 + i * 1000, 600, launched=i * 30 + 5), Work(ADD, 700 + i * 1000, 400, launched=i * 30 + 15)]
    d = of(r)
    assert d["time"]["steps"]["count"] == 3 and d["time"]["steps"]["median_us"] == pytest.approx(1000)
    assert d["time"]["wall_us"] == pytest.approx(3100) and d["time"]["gpu_busy_us"] == pytest.approx(3000) and d["time"]["outside"] is None
    assert d["time"]["device_span_us"] == pytest.approx(3000)
    # One step alone has its own kernels, although the device runs them during the annotation of none.
    one = of(r, "--steps", "1")
    assert sum(calls(one).values()) == 2 and one["time"]["wall_us"] == pytest.approx(1000)


def test_work_between_steps_is_told(of):
    r = Run(work=[Work(GEMM, 0, 100, launched=0), Work(NORM, 250, 50, launched=240), Work(GEMM, 400, 100, launched=400)],
            cpu=[Cpu("ProfilerStep#0", 0, 200, "annotation"), Cpu("ProfilerStep#1", 390, 200, "annotation")])
    d = of(r)
    assert calls(d) == {"Cijk_Alik_Bljk_BBS_BH": 2} and d["time"]["outside"] == {"events": 1, "us": 50, "before_recording": 0}
    assert d["time"]["wall_us"] == pytest.approx(400)


def test_work_of_no_step_that_runs_during_one_is_no_idleness(of):
    r = Run(work=[Work(GEMM, 0, 100, launched=0), Work(NORM, 100, 100, stream=3, launched=-5), Work(GEMM, 200, 100, launched=10)],
            cpu=[Cpu("ProfilerStep#0", 0, 50, "annotation")])
    d = of(r)
    assert d["time"]["idle_us"] + d["time"]["launch_bound_us"] == pytest.approx(0) and d["time"]["wall_us"] == pytest.approx(300)
    assert sum(c["share"] for c in d["categories"]) == pytest.approx(1) and calls(d) == {"Cijk_Alik_Bljk_BBS_BH": 2}


def decode(layers=36):
    """A decode step of a serving engine: the inputs are copied, the CPU waits long for them, and one graph has all layers."""
    work = [Work("Memcpy HtoD (Pageable -> Device)", 0, 2, kind="copy", direction="HtoD", bytes=4, launched=-1, call="hipMemcpyWithStream", launch_length=2),
            Work("Memcpy DtoH (Device -> Pageable)", 400_000, 2, kind="copy", direction="DtoH", bytes=4, launched=10, launch_length=399_995, call="hipMemcpyWithStream")]
    for i in range(layers):
        work += [Work(name, 400_200 + i * 40 + k * 10, 10) for k, name in enumerate((NORM, GEMM, ATTENTION, ADD))]
    return Run(work=work)


def write_decode(tmp_path, *annotations):
    r = decode()
    r.cpu += annotations
    trace = traces.kineto(r)
    for e in trace["traceEvents"]:
        if e["cat"] == "kernel":
            e["args"].update({"correlation": 77, "External id": 0})
    trace["traceEvents"].append({"ph": "X", "cat": "cuda_runtime", "name": "hipGraphLaunch", "pid": 4242, "tid": 4242,
                                 "ts": traces.BASE_NS / 1000 + 400_050, "dur": 140, "args": {"correlation": 77}})
    (tmp_path / "t.json").write_text(json.dumps(trace))
    return tmp_path / "t.json"


@pytest.mark.parametrize("names", [("execute_32_context_0(sq0)_generation_32(sq32)", "step[DECODE bs=32]"), ("step[DECODE bs=32]",), ("ProfilerStep#4",)])
def test_the_annotation_of_a_serving_engine_is_the_step(report, tmp_path, names):
    path = write_decode(tmp_path, *(Cpu(name, -10 + i, 400_300, "annotation") for i, name in enumerate(names)))
    d = report(path)
    assert d["time"]["steps"]["count"] == 1 and d["time"]["steps"]["by"] == "annotation"
    assert d["time"]["idle_us"] > 0.97 * d["time"]["wall_us"] and reasons(d)["unseen"] > 399_000
    assert "hipMemcpyWithStream" in d["verdict"] and "no work of the device" in d["verdict"]
    assert advice(d)[0] == "unrecorded-work"


def test_layers_are_no_steps(report, of, tmp_path):
    # Layers in one launch of a graph, and layers between an embedding and the choice of a token.
    assert report(write_decode(tmp_path))["time"]["steps"] is None
    names = ["embedding_kernel"] + [NORM, GEMM, ATTENTION, ADD] * 36 + ["argmax_kernel"]
    d = of(Run(work=[Work(name, i * 10, 10, launched=i * 10 - 50) for i, name in enumerate(names)]))
    assert d["time"]["steps"] is None and d["time"]["wall_us"] == pytest.approx(1460)


def test_work_that_waited_for_what_the_trace_does_not_have(of):
    # The engine launches ahead. When the device comes to these kernels, it has done others that were not recorded.
    d = of(Run(work=[Work(GEMM, i * 100, 100, launched=-8000 + i * 10) for i in range(10)], cpu=[Cpu("execute_8_context_8", -8100, 2000, "annotation")]))
    assert d["time"]["wall_us"] == pytest.approx(1000) and d["time"]["idle_us"] == 0


@pytest.mark.parametrize("kind", ["kineto", "csv", "rocpd"])
def test_ranges_of_the_user_are_steps(report, tmp_path, kind):
    r = traces.training(steps=4)
    for i, step in enumerate(c for c in r.cpu if c.name.startswith("ProfilerStep")):
        step.name = f"iteration {i}"
    path = {"kineto": lambda: traces.write_kineto(r, str(tmp_path / "t.json")), "csv": lambda: (traces.write_csv(r, str(tmp_path)), tmp_path)[1],
            "rocpd": lambda: traces.write_rocpd(r, str(tmp_path / "r.db"))}[kind]()
    steps = report(path)["time"]["steps"]
    assert steps["count"] == 4 and steps["by"] == "annotation" and steps["median_us"] == pytest.approx(1000) and steps["name"] == "iteration #"


def test_of_nested_ranges_the_inner_ones_are_the_steps_if_there_are_several(of):
    work = [Work(GEMM, i * 100, 90, launched=i * 100) for i in range(20)]
    outer = [Cpu("ProfilerStep#0", 0, 2100, "annotation")]
    inner = [Cpu("step[DECODE bs=8]", i * 100 - 2, 90, "annotation") for i in range(19)]
    assert of(Run(work=work, cpu=outer + inner))["time"]["steps"]["count"] == 19
    assert of(Run(work=work, cpu=outer + inner[:1]))["time"]["steps"]["name"] == "ProfilerStep"
    # A range with a twentieth of the work is none.
    assert of(Run(work=work, cpu=inner[:1]))["time"]["steps"] is None


def test_ranges_of_parts_are_no_steps(of):
    r = traces.training(steps=4, with_steps=False)
    for i in range(4):
        r.cpu.append(Cpu("Optimizer.step#SGD.step", i * 1000 + 790, 20, "annotation"))
        r.cpu.append(Cpu("## Call CompiledFxGraph abc ##", i * 1000 - 10, 980, "annotation"))
    assert of(r)["time"]["steps"]["by"] == "repetition"


def test_a_trace_of_graph_capture_is_recognised(of):
    cpu = [Cpu("hipStreamBeginCapture", 20, 2, "call"), Cpu("hipStreamEndCapture", 9_000, 5, "call"), Cpu("hipGraphInstantiate", 9_100, 800, "call")]
    cpu += [Cpu("hipLaunchKernel", 100 + i * 20, 5, "call") for i in range(400)]
    d = of(Run(work=[Work(ADD, 0, 10, launched=-5), Work(ADD, 10_000, 10, launched=9_990)], cpu=cpu))
    assert d["verdict"].startswith("Graphs are captured: 9") and advice(d)[0] == "graph-capture"
    assert set(reasons(d)) == {"capture"}


def test_running_compiled_code_is_not_compiling(of):
    def gap_of(name, kind="annotation"):
        work = [Work(ADD, 0, 100, launched=-10), Work(ADD, 800, 100, launched=790)]
        return of(Run(work=work, cpu=[Cpu(name, 105, 680, kind), Cpu("aten::empty", 110, 650)]))["gap_reasons"][0]["code"]

    assert gap_of("## Call CompiledFxGraph fud64jsr ##") == "launching" and gap_of("TorchDynamo Cache Lookup", "op") == "launching"
    assert gap_of("CUDAGraphNode.record (dynamo_timed)") == "launching"
    assert gap_of("_compile.compile_inner (dynamo_timed)") == "compilation" and gap_of("hiprtcCompileProgram", "call") == "compilation"
    assert gap_of("torch/_inductor/compile_fx.py(762): _compile_fx_inner", "python") == "compilation"
    assert gap_of("hipModuleLoadData", "call") == "loading"


def test_the_first_launch_of_a_kernel_loads_its_code(of):
    d = of(Run(work=[Work(ADD, 0, 100, launched=-10), Work(NORM, 5_000, 100, launched=150, launch_length=4_840)]))
    assert d["gap_reasons"][0]["code"] == "loading" and "code-loading" in advice(d)


def test_long_gaps_are_explained_by_python(run, of, tmp_path):
    cpu = [Cpu("ProfilerStep#6", 0, 300_000, "annotation"), Cpu("pipelines/base.py(10): __call__", 5, 299_990, "python"),
           Cpu("torch/nn/modules/module.py(5): _call_impl", 8, 269_000, "python"),
           Cpu("pipelines/video.py(129): preprocess", 10, 268_900, "python"), Cpu("<built-in method resize>", 20, 100_000, "python")]
    d = of(Run(work=[Work(GEMM, 269_000, 30_000, launched=268_990)], cpu=cpu))
    assert d["gaps"][0]["cpu"] == "pipelines/video.py(129): preprocess" and d["gap_reasons"][0]["code"] == "host_code"
    assert "pipelines/video.py(129): preprocess" in d["verdict"] and advice(d)[0] == "host-code"
    assert "pipelines/video.py(129): preprocess" in run("report", tmp_path / "t.json").stdout
    # A function of another thread is no reason.
    trace = json.loads((tmp_path / "t.json").read_text())
    for e in trace["traceEvents"]:
        if e["cat"] == "python_function":
            e["tid"] = 1
    (tmp_path / "u.json").write_text(json.dumps(trace))
    assert json.loads(run("report", tmp_path / "u.json", "--json").stdout)["gap_reasons"][0]["code"] == "unknown"


def test_a_gap_without_stacks_is_explained_by_its_operator(of):
    work = [Work(ADD, 0, 100, launched=-10), Work(ADD, 20_000, 100, launched=19_990)]
    d = of(Run(work=work, cpu=[Cpu("aten::sort", 110, 19_800)]))
    assert d["gap_reasons"][0]["code"] == "host_code" and d["gaps"][0]["cpu"] == "aten::sort"
    # The launch of the next kernel is no explanation.
    d = of(Run(work=work))
    assert d["gap_reasons"][0]["code"] == "unknown" and d["gap_reasons"][0]["in"] == []
    assert "does not show what the CPU did" in d["verdict"] and advice(d)[0] == "idle-unknown"


def test_the_start_of_the_runtime_is_no_allocation(of):
    work = [Work(ADD, 0, 100, launched=-10), Work(ADD, 400_000, 100, launched=399_990)]
    assert of(Run(work=work, cpu=[Cpu("hipFree", 110, 399_000, "call")]))["gap_reasons"][0]["code"] == "loading"
    assert of(Run(work=work[:1] + [Work(ADD, 1_000, 100, launched=990)], cpu=[Cpu("hipFree", 110, 800, "call")]))["gap_reasons"][0]["code"] == "allocation"


def test_the_rest_after_the_last_step_is_no_step(of):
    r = traces.training(steps=3)
    r.cpu.append(Cpu("ProfilerStep#5", 3000, 20, "annotation"))
    assert of(r)["time"]["steps"]["count"] == 3


def test_what_the_cpu_did_after_a_wait_is_not_the_wait(of):
    work = [Work(ADD, 0, 100, launched=-10), Work(ADD, 20_000, 100, launched=19_990)]
    d = of(Run(work=work, cpu=[Cpu("hipDeviceSynchronize", 10, 95, "call"), Cpu("app.py(7): log", 110, 19_800, "python")]))
    assert d["gap_reasons"][0]["code"] == "host_code" and d["gaps"][0]["cpu"] == "app.py(7): log"


def test_the_headline_says_that_a_trace_was_cut_off(report, tmp_path):
    text = json.dumps(traces.kineto(traces.training(steps=4)))
    (tmp_path / "whole.json").write_text(text)
    (tmp_path / "cut.json").write_text(text[: len(text) * 9 // 10])
    assert report(tmp_path / "cut.json")["verdict"].startswith("The trace is cut off; this is of its first part. ")
    assert "cut off" not in report(tmp_path / "whole.json")["verdict"]


def own_trace(path, lengths, *, steps=False, cores=("a", "a"), gap=10.0, further=()):
    """A trace of pf.profiler on the CPU whose steps take so many microseconds, one after the other, named in turn."""
    events, at = list(further), 0.0
    for i, length in enumerate(lengths):
        events.append({"ph": "X", "cat": "kernel", "name": f"onednn.sgemm matmul {cores[i % 2]}", "pid": 1, "tid": 2, "ts": at, "dur": length, "args": {"device": 0, "kind": "GEMM", "bytes": 1000, "flops": 2000}})
        at += length + gap
    if steps:
        events.append({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 0.0, "dur": at, "args": {}})
    header = {"version": "1", "device_times": True, "dropped": 0}
    path.write_text(json.dumps({"pyflame": header, "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "cpu"}], "traceEvents": events}))
    return path


def test_the_set_up_of_a_first_run_is_apart(run, tmp_path):
    path = own_trace(tmp_path / "t.json", [30000.0] + [100.0] * 9)
    found = json.loads(run("report", path, "--json").stdout)
    assert found["time"]["set_up"] == {"us": 29900, "steps": 1, "longest": "onednn.sgemm matmul a"}
    assert found["time"]["gpu_busy_us"] == 1000 and found["time"]["wall_us"] == 1090 and found["kernels"][0]["mean_us"] == 100
    assert "\nset-up     29.9 ms more in first runs than in later ones, of onednn.sgemm matmul a: done once, not counted\n" in run("report", path).stdout
    two = json.loads(run("report", own_trace(tmp_path / "two.json", [5000.0, 9000.0] + [100.0] * 8, cores=("a", "b")), "--json").stdout)
    assert two["time"]["set_up"] == {"us": 13800, "steps": 2, "longest": "onednn.sgemm matmul b"} and two["time"]["gpu_busy_us"] == 1000
    assert "not counted" in run("report", path, "--html", tmp_path / "page.html").stdout and "set-up in first runs" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("lengths, steps", [([1000.0] + [100.0] * 9, False), ([30000.0, 29000.0, 31000.0], False), ([30000.0, 100.0], False), ([100.0] * 5 + [30000.0] + [100.0] * 5, False), ([30000.0] + [100.0] * 9, True)],
                         ids=["short", "not twice", "two runs", "a later one", "steps"])  # fmt: skip
def test_no_set_up(run, tmp_path, lengths, steps):
    found = json.loads(run("report", own_trace(tmp_path / "t.json", lengths, steps=steps), "--json").stdout)
    assert found["time"]["set_up"] is None and found["time"]["gpu_busy_us"] == sum(lengths)


def test_stacks_that_are_there_are_not_asked_for(run, tmp_path):
    further = [{"ph": "X", "cat": "python_function", "name": "app.py(7): prepare", "pid": 1, "tid": 2, "ts": 0.0, "dur": 31000.0, "args": {}}]
    found = json.loads(run("report", own_trace(tmp_path / "t.json", [100.0] * 10, gap=3000.0, further=further), "--json").stdout)
    assert [a["fix"] for a in found["advice"] if a["id"] == "host-code"] == ["Move this code out of the step, into a loader's workers or another thread."]
    assert "with_stack" not in json.dumps(found["advice"]) + found["verdict"]


@pytest.mark.parametrize("ready, code, advice", [(2000.0, "no_processor", "no-processor"), (1000.0, "host_code", "host-code")])
def test_a_gap_in_which_no_processor_was_free_is_not_the_programs(run, tmp_path, ready, code, advice):
    """Gaps of 3 ms, of which the thread waits for a processor for so long, within a function of the program."""
    further = [{"ph": "X", "cat": "python_function", "name": "app.py(7): prepare", "pid": 1, "tid": 2, "ts": 0.0, "dur": 31000.0, "args": {}}]
    further += [{"ph": "X", "cat": "ready", "name": "no processor was free", "pid": 1, "tid": 2, "ts": 100.0 + 3100.0 * i + 500, "dur": ready, "args": {}} for i in range(10)]
    path = own_trace(tmp_path / "t.json", [100.0] * 10, gap=3000.0, further=further)
    found = json.loads(run("report", path, "--json").stdout)
    assert {r["code"] for r in found["gap_reasons"]} == {code}
    # What the program did meanwhile is not named as the reason.
    assert ("app.py(7): prepare" in found["verdict"]) == (code == "host_code"), found["verdict"]
    assert ("no processor is free for the program" in found["verdict"]) == (code == "no_processor"), found["verdict"]
    assert {a["id"] for a in found["advice"]} & {"no-processor", "host-code"} == {advice}
