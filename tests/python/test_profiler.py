"""pf.profiler: what is recorded, its totals, its trace, its errors; and that nothing is recorded outside."""
import gzip
import json
import os
import threading
import time

import pyflame as pf
import pytest
from pyflame import profiler
from pyflame.profiler import stacks

ONE_OP_WINDOWS = os.environ.get("PYFLAME_WINDOW") == "1"


class Slow(pf.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        time.sleep(0.02)
        return i


def work(n=3):
    x = pf.ones(64, 64)
    for _ in range(n):
        x = (x @ x) * 0.01
    return x


def record(fn=work, **options):
    with profiler.profile(**options) as prof:
        fn()
    return prof


def spans(prof, kind):
    return [e for e in prof.events() if e.kind == kind]


def inside(inner, outer):
    return inner.thread == outer.thread and outer.start <= inner.start and inner.end <= outer.end


def test_each_hop_of_an_op_is_there():
    pf.clear_program_cache()
    prof = record(lambda: work().sum().item())
    steps, runs, windows = spans(prof, "step"), spans(prof, "run"), spans(prof, "window")
    assert sum("matmul" in e.args["ops"] for e in steps) == 3
    assert steps and all(any(inside(s, r) for r in runs) for s in steps)
    plans = spans(prof, "plan")
    assert 1 <= len(plans) <= len(runs) and all(any(inside(p, r) for r in runs) for p in plans)
    assert ONE_OP_WINDOWS or any(e.name == "read values" for e in spans(prof, "wait"))
    assert sum(w.value for w in windows) >= 7
    # A window runs after it was recorded, and each knows the other.
    by_flow = {w.flow: w for w in windows}
    assert {r.flow for r in runs} == set(by_flow) and 0 not in by_flow
    assert all(by_flow[r.flow].end <= r.end and by_flow[r.flow].start <= r.start for r in runs)
    matmul = next(e for e in steps if e.args["ops"] == ["matmul"] or e.args["ops"][0] == "matmul")
    assert matmul.work == "GEMM" and matmul.flops == 2 * 64**3 and matmul.args["Input Dims"][0] == [64, 64]
    assert "test_profiler.py" in matmul.args["recorded at"] and matmul.args["impl"]
    assert spans(prof, "memory")[-1].value > 0


def test_a_cached_program_is_not_planned_again():
    work().sum().item()
    prof = record(lambda: work().sum().item())
    assert spans(prof, "run") and not spans(prof, "plan")


def test_bytes_are_what_goes_through_memory():
    x, y = pf.ones(1000, 1000), pf.ones(1000, 1000)
    pf.synchronize()
    step = spans(record(lambda: (x * y + y).numpy()), "step")[-1]
    assert step.args["ops"] == (["add"] if ONE_OP_WINDOWS else ["mul", "add"])
    assert step.bytes == (2 + 1) * 4 * 1000 * 1000 and step.work == "elementwise"


def test_rows_of_a_table_are_not_the_table():
    table, rows = pf.ones(10_000, 64), pf.tensor([3, 5, 7, 9])
    pf.synchronize()
    steps = [e for e in spans(record(lambda: table.index_select(0, rows).numpy()), "step") if "index_select" in e.args["ops"]]
    assert len(steps) == 1 and 2 * 4 * 64 * 4 <= steps[0].bytes <= 3 * 4 * 64 * 4


@pytest.mark.parametrize("causal", [False, True])
def test_the_arithmetic_of_attention(causal):
    q, k = pf.randn(2, 3, 32, 16), pf.randn(2, 3, 64, 16)
    keys = k if not causal else k[:, :, :32]
    prof = record(lambda: pf.nn.functional.scaled_dot_product_attention(q, keys, keys, is_causal=causal).sum().item())
    flops = sum(e.flops for e in spans(prof, "step") if e.work == "attention")
    assert flops == 4 * 2 * 3 * 32 * keys.shape[2] * 16 * (0.5 if causal else 1)


def test_ranges_nest_and_self_time_is_without_what_is_inside():
    def region():
        with profiler.record_function("outer"):
            with profiler.record_function("inner"):
                time.sleep(0.02)
            time.sleep(0.01)

    averages = {a.key: a for a in record(region).key_averages()}
    outer, inner = averages["outer"], averages["inner"]
    assert inner.count == 1 and inner.cpu_time_total == inner.self_cpu_time_total >= 20_000
    assert outer.cpu_time_total >= 30_000
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - inner.cpu_time_total, abs=0.01)


def test_record_function_decorates():
    @profiler.record_function("twice")
    def twice(x):
        return 2 * x

    assert twice(3) == 6
    prof = record(lambda: [twice(1), twice(2)])
    assert [a.count for a in prof.key_averages() if a.key == "twice"] == [2]


def test_backward_is_a_range():
    x = pf.ones(3, requires_grad=True)
    assert "backward" in {e.name for e in spans(record(lambda: (x * x).sum().backward()), "range")}


@pytest.mark.parametrize("optimizer", [pf.optim.SGD, pf.optim.Adam, pf.optim.AdamW])
def test_the_optimizer_step_is_a_range(optimizer):
    p = pf.nn.Parameter(pf.ones(3))
    p.grad = pf.ones(3)
    opt = optimizer([p], lr=0.1)
    assert [e.name for e in spans(record(opt.step), "range")] == ["optimizer step"]


@pytest.mark.parametrize("options", [{}, {"prefetch_factor": 2}, {"num_workers": 1}])
def test_the_wait_for_a_batch_is_a_range(options):
    loader = pf.data.DataLoader(Slow(), batch_size=2, **options)
    ranges = [e for e in spans(record(lambda: list(loader)), "range") if e.name == "DataLoader.__next__"]
    assert len(ranges) == 3 and ranges[0].duration >= 15_000  # two batches and the end


def test_a_loader_that_is_left_early_is_closed():
    loader = pf.data.DataLoader([1, 2, 3, 4], batch_size=1, prefetch_factor=1)
    for _ in loader:
        break
    assert not [t for t in threading.enumerate() if t.name == "pyflame-loader"]


def test_outside_of_the_region_nothing_is_recorded():
    pending = work()
    with profiler.profile() as prof:
        pass
    with profiler.record_function("after"):
        work()
    assert spans(prof, "step") == [] and spans(prof, "range") == []
    assert pending.shape == (64, 64)


def test_what_was_recorded_in_the_region_ran_in_it():
    prof = record(lambda: work())
    assert sum("matmul" in e.args["ops"] for e in spans(prof, "step")) == 3


def test_table_sorts_and_limits():
    prof = record()
    table = prof.key_averages().table(sort_by="count", row_limit=2)
    assert "# of Calls" in table and "row_limit=-1" in table and "Self CPU time total" in table
    rows = prof.key_averages().table(sort_by="cpu_time_total", row_limit=-1).splitlines()
    assert len(rows) == len(prof.key_averages()) + 5
    assert str(prof.key_averages()).startswith("---")
    with pytest.raises(ValueError, match="table: unknown sort_by; got 'speed'; expected one of self_cpu_time_total"):
        prof.key_averages().table(sort_by="speed")


def test_averages_by_shape():
    def region():
        for n in (8, 16):
            (pf.ones(n, n) @ pf.ones(n, n)).sum().item()

    prof = record(region)
    shapes = [a.input_shapes for a in prof.key_averages(group_by_input_shape=True) if "matmul" in a.key]
    assert sorted(s[0] for s in shapes) == [[8, 8], [16, 16]]
    assert all(a.input_shapes == [] for a in prof.key_averages())


def test_self_times_add_up_to_the_busy_time():
    prof = record(lambda: [work(5).sum().item() for _ in range(20)])
    total = sum(a.self_cpu_time_total for a in prof.key_averages())
    assert 0 < total <= prof._recording.microseconds * 1.001
    assert all(a.self_cpu_time_total >= 0 for a in prof.key_averages())


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_chrome_trace(tmp_path, name):
    pf.clear_program_cache()  # a plan begins when its run does
    prof = record(lambda: work().sum().item())
    prof.export_chrome_trace(tmp_path / name)
    with gzip.open(tmp_path / name) if name.endswith("gz") else open(tmp_path / name, "rb") as f:
        trace = json.load(f)
    events = trace["traceEvents"]
    assert trace["pyflame"]["version"] == pf.__version__ and trace["deviceProperties"] == [{"id": 0, "name": "cpu"}]
    spans_ = [e for e in events if e["ph"] == "X"]
    assert {"kernel", "cpu_op", "window", "wait"} <= {e["cat"] for e in spans_}
    assert len([e for e in events if e["ph"] == "s"]) == len([e for e in events if e["ph"] == "f"]) > 0
    assert {e["tid"] for e in spans_} <= {e["tid"] for e in events if e["name"] == "thread_name"}
    assert any(e["ph"] == "C" and e["args"]["bytes"] > 0 for e in events)
    # Spans of a track nest, or viewers drop them.
    for tid in {e["tid"] for e in spans_}:
        track = [e for e in spans_ if e["tid"] == tid]
        assert track == sorted(track, key=lambda e: (e["ts"], -e["dur"])), "the outer first"
        open_ = []
        for e in track:
            while open_ and open_[-1] <= e["ts"] + 1e-6:
                open_.pop()
            assert not open_ or e["ts"] + e["dur"] <= open_[-1] + 0.002
            open_.append(e["ts"] + e["dur"])


def test_names_are_escaped(tmp_path):
    def region():
        with profiler.record_function('say "hi"\n\\ </script> é'):
            pass

    record(region).export_chrome_trace(tmp_path / "t.json")
    names = {e["name"] for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert 'say "hi"\n\\ </script> é' in names


def test_steps():
    with profiler.profile() as prof:
        for _ in range(3):
            work().sum().item()
            prof.step()
    assert [e.name for e in spans(prof, "range")] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]


def test_schedule():
    saved = []

    def ready(prof):
        saved.append([e.name for e in spans(prof, "range")])

    plan = profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profiler.profile(schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(12):
            work().sum().item()
            prof.step()
    assert saved == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    action = profiler.ProfilerAction
    assert [plan(i) for i in range(5)] == [action.NONE, action.WARMUP, action.RECORD, action.RECORD_AND_SAVE, action.NONE]
    assert plan(8) == action.NONE
    with pytest.raises(ValueError, match="schedule: active is too small; got 0; expected at least 1"):
        profiler.schedule(wait=0, warmup=0, active=0)


def test_cycles_without_a_pause_between_them():
    saved = []
    with profiler.profile(schedule=profiler.schedule(wait=0, warmup=0, active=2), on_trace_ready=lambda p: saved.append(len(spans(p, "range")))) as prof:
        for _ in range(4):
            work().sum().item()
            prof.step()
    assert saved[:2] == [2, 2]


def test_memory_is_bounded():
    def region():
        for _ in range(5000):
            with profiler.record_function("r"):
                pass

    prof = record(region, max_events=2000)
    kept = len(spans(prof, "range"))
    assert 2000 <= kept <= 4096 and kept + prof.dropped >= 5000


def test_threads_have_tracks_of_their_own():
    def one(i):
        with profiler.record_function(f"thread {i}"):
            work().sum().item()

    def region():
        threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    prof = record(region)
    tracks = {e.name: e.thread for e in spans(prof, "range") if e.name.startswith("thread")}
    assert len(tracks) == 4 and len(set(tracks.values())) == 4 and 0 not in tracks.values()
    assert sum("matmul" in e.args["ops"] for e in spans(prof, "step")) == 12


def test_starting_and_stopping_while_others_work():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            with profiler.record_function("busy"):
                work().sum().item()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        for _ in range(10):
            prof = record(lambda: time.sleep(0.005))
            for e in prof.events():
                assert e.end >= e.start and e.name
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_an_error_inside_passes_through_and_ends_the_recording():
    with pytest.raises(ZeroDivisionError):
        with profiler.profile():
            1 / 0
    record()  # another one can begin

    x, bad = pf.ones(4), pf.tensor([9])
    with pytest.raises(IndexError):
        with profiler.profile():
            pf.index_select(x, 0, bad)
    record()


def test_errors():
    prof = profiler.profile()
    for call, name in ((prof.events, "events"), (prof.key_averages, "key_averages"), (lambda: prof.export_chrome_trace("x"), "export_chrome_trace")):
        with pytest.raises(RuntimeError, match=f"{name}: there is no recording; expected a region that has ended"):
            call()
    with pytest.raises(RuntimeError, match="profile: it has not been started"):
        prof.stop()
    with pytest.raises(RuntimeError, match=r"profile: step\(\) outside of the region"):
        prof.step()
    with profiler.profile() as prof:
        with pytest.raises(RuntimeError, match="profile: another profile is being recorded"):
            profiler.profile().start()
        with pytest.raises(RuntimeError, match="profile: it has been started already"):
            prof.start()
    with pytest.raises(OSError, match="export_chrome_trace: cannot write '/nowhere/t.json'"):
        prof.export_chrome_trace("/nowhere/t.json")
    with pytest.raises(ValueError, match="profile: max_events must be positive; got 0"):
        profiler.profile(max_events=0).start()
    with pytest.raises(TypeError, match="profile: the schedule cannot be called; got int"):
        profiler.profile(schedule=3)
    with pytest.raises(TypeError, match="record_function: the name is not a text; got int"):
        profiler.record_function(3)


    with pytest.raises(ValueError, match="profile: not activities; got .*'gpu'.*; expected values of pf.profiler.ProfilerActivity"):
        profiler.profile(activities=["gpu"])
    with pytest.raises(RuntimeError, match="export_stacks: no stacks were recorded; hint: profile"):
        record().export_stacks("/nowhere/stacks.txt")
    with pytest.raises(ValueError, match="export_stacks: unknown metric; got 'time'; expected self_cpu_time_total or self_device_time_total"):
        record().export_stacks("/nowhere/stacks.txt", "time")


def test_pytorchs_arguments_are_accepted():
    everything = {name: True for name in ("record_shapes", "with_flops", "with_modules", "profile_memory", "acc_events")}
    prof = record(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA], **everything)
    assert spans(prof, "step")
    prof.key_averages().table(sort_by="cuda_time_total", row_limit=5, max_src_column_width=20, header="mine").index("mine")


def test_a_warm_up_is_not_kept():
    with profiler.profile(schedule=profiler.schedule(wait=0, warmup=2, active=1)) as prof:
        for i in range(3):
            with profiler.record_function(f"step {i}"):
                work().sum().item()
            prof.step()
    assert {e.name for e in spans(prof, "range") if e.name.startswith("step ")} == {"step 2"}


def test_averages_by_the_line_that_recorded():
    def region():
        a = (pf.ones(29, 31) @ pf.ones(31, 37)).sum().item()  # of no other test: a cached program has the lines that recorded it first
        b = (pf.ones(29, 17) @ pf.ones(17, 37)).sum().item()
        return a + b

    prof = record(region)
    rows = [a for a in prof.key_averages(group_by_stack_n=1) if "matmul" in a.key]
    assert len(rows) == 2 and len({a.stack[0] for a in rows}) == 2 and all("test_profiler.py" in a.stack[0] for a in rows)
    assert "Source Location" in prof.key_averages(group_by_stack_n=1).table(max_src_column_width=200)
    assert len([a for a in prof.key_averages() if "matmul" in a.key]) == 1


def test_memory_of_ranges():
    kept = []

    def region():
        with profiler.record_function("grows"):
            kept.append(pf.zeros(1 << 20, dtype=pf.float32))
            kept[-1].add_(1.0)
            pf.synchronize()

    work().sum().item()
    prof = record(region, profile_memory=True)
    rows = {a.key: a for a in prof.key_averages()}
    assert rows["grows"].cpu_memory_usage >= 4 << 20
    assert "CPU Mem" in prof.key_averages().table()


# ---- Python stacks


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_stacks_show_where_python_was(tmp_path):
    prof = record(lambda: (spin(0.2), work().sum().item()), with_stack=True)
    frames = [e for e in spans(prof, "frame") if e.name.endswith(": spin")]
    assert frames and "test_profiler.py(" in frames[0].name and sum(e.duration for e in frames) >= 100_000
    # They stand in the trace, nested, on the track of the thread.
    assert {e.thread for e in frames} == {0}
    prof.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    spinning = sum(int(line.rpartition(" ")[2]) for line in lines if ";spin (" in line)
    assert spinning >= 100_000
    prof.export_chrome_trace(tmp_path / "t.json")
    cats = {e.get("cat") for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert "python_function" in cats


def test_the_report_names_the_function_that_ran(report, monkeypatch):
    monkeypatch.setattr(stacks._Ready, "nanoseconds", lambda self: 0)  # whatever else this machine does

    def step():
        spin(0.03)
        work().sum().item()

    step()
    with profiler.profile(with_stack=True) as prof:
        for _ in range(4):
            step()
            prof.step()
    d = report(prof)
    assert "spin" in d["verdict"] and d["verdict"].startswith("No step runs")
    finding = next(a for a in d["advice"] if a["id"] == "host-code")
    assert finding["gain"] > 2 and "spin" in finding["what"]


def test_the_time_without_a_processor_is_on_the_threads_track(report, monkeypatch):
    def step():
        spin(0.03)
        work().sum().item()

    step()
    # The system says that the thread waited all the time, which is cut to the time since the last sample.
    monkeypatch.setattr(stacks._Ready, "nanoseconds", lambda self: 10**12)
    with profiler.profile(with_stack=True) as prof:
        for _ in range(4):
            step()
            prof.step()
    waits = sorted(spans(prof, "ready"), key=lambda e: e.start)
    assert {(e.name, e.thread) for e in waits} == {("no processor was free", 0)} and sum(e.duration for e in waits) > 100_000
    assert all(a.end <= b.start + 0.01 for a, b in zip(waits, waits[1:]))
    assert not any(a.key == "no processor was free" for a in prof.key_averages())
    d = report(prof)
    assert "no processor is free for the program" in d["verdict"] and "spin" not in d["verdict"]
    assert {a["id"] for a in d["advice"]} & {"no-processor", "host-code"} == {"no-processor"}


def test_the_system_counts_the_time_without_a_processor(tmp_path, monkeypatch):
    """By the second number of the thread's schedstat; where there is no such file, the time is not known and counts as 0."""
    path, opened = tmp_path / "schedstat", os.open
    path.write_text("5000 700 3\n")
    monkeypatch.setattr(stacks.os, "open", lambda name, flags: opened(path if name.endswith("/schedstat") else name, flags))
    ready = stacks._Ready()
    path.write_text("9000 1900 8\n")
    assert ready.nanoseconds() == 1200 and ready.nanoseconds() == 0
    ready.close()
    path.unlink()
    assert stacks._Ready().nanoseconds() == 0


def test_a_signal_during_a_sample_is_left_out():
    import signal

    def region():
        for _ in range(300):
            signal.raise_signal(signal.SIGPROF)

    prof = record(region, with_stack=True)
    assert all(e.duration >= 0 for e in spans(prof, "frame"))
    sampler = prof._sampler
    sampler._sampling, before = True, dict(sampler.seconds)
    sampler._handle(signal.SIGPROF, None)
    assert sampler.seconds == before


def test_a_profile_that_is_never_stopped_does_not_end_the_process():
    import subprocess
    import sys

    r = subprocess.run([sys.executable, "-c", "import pyflame as pf\npf.profiler.profile(with_stack=True).start()\nprint(pf.ones(3).sum().item())"], capture_output=True, text=True, timeout=300)
    assert (r.returncode, r.stdout) == (0, "3.0\n"), r


def test_the_handler_of_the_signal_is_put_back():
    import signal

    before = signal.getsignal(signal.SIGPROF)
    record(with_stack=True)
    assert signal.getsignal(signal.SIGPROF) == before


def test_stacks_need_the_main_thread():
    raised = []

    def other():
        try:
            record(with_stack=True)
        except RuntimeError as e:
            raised.append(str(e))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert raised and raised[0].startswith("profile: stacks cannot be sampled here; got another thread")
    record()  # nothing is left open


def test_results_do_not_depend_on_it():
    pf.manual_seed(3)
    expected = (work() + pf.randn(64, 64)).numpy()
    pf.manual_seed(3)
    with profiler.profile():
        got = (work() + pf.randn(64, 64)).numpy()
    assert (expected == got).all()


# ---- GPUs

GPU = "rocm" if pf.rocm_is_available() else "cuda" if pf.cuda_is_available() else None


def on_gpu():
    x = pf.ones(64, 64, device=GPU)
    return ((x @ x).sum(0).relu() @ x).sum().item()


def device_steps(prof):
    return [e for e in spans(prof, "step") if e.device == f"{GPU}:0"]


@pytest.mark.skipif(GPU is None, reason="there is no GPU")
def test_steps_have_the_devices_times(report):
    for _ in range(3):
        on_gpu()
    with profiler.profile() as prof:
        for _ in range(3):
            on_gpu()
            prof.step()
    steps, launches = device_steps(prof), spans(prof, "launch")
    assert len({e.thread for e in steps}) == 1 and {e.thread for e in steps}.isdisjoint(e.thread for e in launches)
    assert {e.flow for e in steps} == {e.flow for e in launches} and 0 not in {e.flow for e in steps}
    assert all(e.duration >= 0 for e in steps) and sum(e.duration for e in steps) > 0
    ordered = sorted(steps, key=lambda e: e.start)
    assert all(a.end <= b.start + 0.01 for a, b in zip(ordered, ordered[1:])), "one stream: one after the other"
    averages = {a.key: a for a in prof.key_averages()}
    total = sum(e.duration for e in steps)
    assert sum(a.self_device_time_total for a in averages.values()) == pytest.approx(total, rel=1e-6)
    matmul = next(a for key, a in averages.items() if "matmul" in key)
    assert matmul.self_device_time_total == matmul.cuda_time_total > 0 and matmul.cuda_time == pytest.approx(matmul.device_time)
    # The steps of a region are those that were launched in it.
    assert sum(averages[f"ProfilerStep#{i}"].device_time_total for i in range(3)) == pytest.approx(total, rel=1e-6)
    table = prof.key_averages().table()
    assert "Self CUDA" in table and "CUDA time avg" in table and "Self CUDA time total" in table
    d = report(prof)
    assert d["device"]["name"] != f"{GPU}:0" and not d["signals"]["on_host"] and d["signals"]["own"]
    assert d["time"]["gpu_busy_us"] == pytest.approx(total, rel=0.02) and d["time"]["steps"]["count"] == 3


@pytest.mark.skipif(GPU is None, reason="there is no GPU")
def test_without_the_devices_times_there_are_launches(report):
    on_gpu()
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as prof:
        on_gpu()
        prof.step()
    assert spans(prof, "launch") and not spans(prof, "step")
    assert any(e.name == "wait for the device" for e in spans(prof, "wait"))
    d = report(prof)
    assert d["device"]["name"] == f"launches of {GPU}:0" and "launches-only" in {a["id"] for a in d["advice"]}
    assert all(k["roofline"] is None for k in d["kernels"]) and d["signals"]["on_host"]


@pytest.mark.skipif(GPU is None or ONE_OP_WINDOWS or os.environ.get("PYFLAME_GPU_GRAPHS") == "0", reason="there is no GPU, or nothing is replayed")
def test_the_time_of_a_replay_is_divided():
    for _ in range(20):
        on_gpu()
    with profiler.profile(schedule=profiler.schedule(wait=0, warmup=1, active=4)) as prof:
        for _ in range(5):
            on_gpu()
            prof.step()
    replays = [e for e in spans(prof, "launch") if e.name.startswith("replay of")]
    if not replays:
        pytest.skip("this device replays nothing")
    divided = [e for e in device_steps(prof) if e.value == 1]
    by_replay = [[e.name for e in divided if e.flow == r.flow] for r in replays]
    assert all(names == by_replay[0] and len(names) >= 3 for names in by_replay)
    rows = {a.key: a for a in prof.key_averages()}
    assert rows[replays[0].name].device_time_total == pytest.approx(sum(e.duration for e in divided), rel=1e-6)
    assert rows[replays[0].name].self_device_time_total == 0


# ---- `pyflame report` reads the trace


@pytest.fixture
def report(run, tmp_path):
    def call(prof, name="trace.json.gz", *args):
        prof.export_chrome_trace(tmp_path / name)
        return json.loads(run("report", tmp_path / name, "--json", *args).stdout)

    return call


def test_report_says_where_time_went(report):
    def step():
        return (pf.ones(256, 256) @ pf.ones(256, 256)).sum().item()

    step()
    with profiler.profile() as prof:
        for _ in range(4):
            step()
            time.sleep(0.002)
            prof.step()
    d = report(prof)
    assert d["format"] == "PyFlame trace" and d["device"]["name"] == "cpu" and d["problems"] == []
    assert d["time"]["steps"]["count"] == 4 and d["time"]["steps"]["by"] == "annotation"
    assert sum(c["share"] for c in d["categories"]) == pytest.approx(1, abs=1e-6)
    shares = {c["name"]: c for c in d["categories"]}
    assert shares["GEMM"]["kernels"] == 4 and shares["launch-bound"]["us"] >= 8000
    # The same as the profile itself says.
    steps = [e for e in prof.events() if e.kind == "step"]
    assert d["time"]["gpu_busy_us"] == pytest.approx(sum(e.duration for e in steps), rel=0.01)
    matmul = next(k for k in d["kernels"] if k["category"] == "GEMM")
    assert matmul["roofline"]["flops"] == 4 * 2 * 256**3 and "matmul" in matmul["name"]
    reasons = {g["code"]: g["us"] for g in d["gap_reasons"]}
    assert reasons["recording"] >= 8000
    assert "recording" in {a["id"] for a in d["advice"]} and "torch" not in json.dumps(d["advice"])
    assert d["verdict"].startswith("Python, recording and the executor take the most time")


def test_report_sees_planning_and_the_data_loader(report):
    def region():
        pf.ones(3).sum().item()
        start = time.perf_counter()
        pf.clear_program_cache()
        x = pf.ones(64)
        for _ in range(400):
            x = (x * 2).relu()
        x.sum().item()
        with profiler.record_function("DataLoader"):
            time.sleep(time.perf_counter() - start)  # the same share of the region on any machine
        pf.ones(3).sum().item()

    d = report(record(region))
    assert {g["code"] for g in d["gap_reasons"]} >= {"data_loading", "compilation"}
    assert "data-loading" in {a["id"] for a in d["advice"]}


@pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="windows of one op are few")
def test_windows_that_are_new_after_a_warm_up(report):
    def step(size):
        x = pf.ones(size)
        for _ in range(200):
            x = (x * 2).relu()
        return x.sum().item()

    def recorded(warmup):
        with profiler.profile(schedule=profiler.schedule(wait=0, warmup=warmup, active=3, repeat=1)) as prof:
            for i in range(warmup + 3):
                step(64 + i)  # each step has a window of its own
                prof.step()
        return {a["id"] for a in report(prof, f"{warmup}.json")["advice"]}

    pf.clear_program_cache()
    assert recorded(3) & {"planning", "new-windows"} == {"new-windows"}
    pf.clear_program_cache()
    assert recorded(0) & {"planning", "new-windows"} == {"planning"}


def test_report_as_a_page_and_as_text(run, tmp_path):
    prof = record(lambda: [work().sum().item() for _ in range(3)])
    prof.export_chrome_trace(tmp_path / "t.json")
    text = run("report", tmp_path / "t.json", "--html", tmp_path / "t.html").stdout
    assert "Steps that take most" in text and "between steps" in text and "GFLOP/s" in text and "GPU" not in text
    page = (tmp_path / "t.html").read_text()
    assert "Between steps" in page and "GPU busy" not in page


def test_report_of_an_empty_profile(run, tmp_path):
    prof = record(lambda: None)
    prof.export_chrome_trace(tmp_path / "t.json")
    assert "No step ran in this profile." in run("report", tmp_path / "t.json").stdout


def test_report_names_fallbacks(run, tmp_path):
    prof = record(lambda: work().sum().item())
    prof.export_chrome_trace(tmp_path / "t.json")
    d = json.loads((tmp_path / "t.json").read_text())
    names = [f"op{k} on rocm:0 ran on the host 3 times, for 5 ms (no kernel)" for k in range(4)]
    d["traceEvents"] += [{"ph": "M", "name": "fallback", "pid": 1, "args": {"fallback": name}} for name in names]
    (tmp_path / "t.json").write_text(json.dumps(d))
    found = json.loads(run("report", tmp_path / "t.json", "--json").stdout)
    assert found["fallbacks"] == names
    [finding] = [a for a in found["advice"] if a["id"] == "fallbacks"]
    assert finding["severity"] == "MED" and "4 kinds of fallback: op0 on rocm:0 ran on the host 3 times" in json.dumps(finding) and "op3" not in json.dumps(finding)
    assert "Ops ran slower, or elsewhere, than asked" in run("report", tmp_path / "t.json").stdout
    prof.export_chrome_trace(tmp_path / "u.json")
    assert json.loads(run("report", tmp_path / "u.json", "--json").stdout)["fallbacks"] == []
