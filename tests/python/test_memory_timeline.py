"""The memory of a profile by category: what the allocator gave, and what was in it."""
import gc
import gzip
import json

import pytest

import pyflame as pf

N = 256  # a matrix of 256 KiB
MATRIX = N * N * 4


def train(steps=2, zero_at_end=False, optimizer=pf.optim.Adam):
    model = pf.nn.Sequential(pf.nn.Linear(N, N, bias=False), pf.nn.ReLU(), pf.nn.Linear(N, N, bias=False))
    opt = optimizer(model.parameters(), lr=0.01)
    pf.synchronize()
    with pf.profiler.profile(profile_memory=True) as prof:
        for _ in range(steps):
            loss = model(pf.ones(N, N)).square().mean()
            loss.backward()
            opt.step()
            if zero_at_end:
                opt.zero_grad(set_to_none=True)
            prof.step()
        loss.item()
    return prof, model, opt


@pytest.fixture
def cpu():
    before = pf.get_default_device()
    pf.set_default_device("cpu")
    gc.collect()
    with pf.profiler.profile(profile_memory=True) as prof:  # what other tests keep
        pass
    yield prof.memory_timeline("cpu").sizes[-1]
    pf.set_default_device(before)


@pytest.mark.parametrize("zero_at_end", [False, True])
def test_training_is_divided_into_categories(cpu, zero_at_end):
    prof, model, opt = train(zero_at_end=zero_at_end)
    timeline = prof.memory_timeline("cpu")
    peak = timeline.peak
    assert peak["parameters"] - cpu["parameters"] == 2 * MATRIX
    assert max(s["gradients"] for s in timeline.sizes) - cpu["gradients"] == 2 * MATRIX
    assert max(s["optimizer state"] for s in timeline.sizes) in range(4 * MATRIX, 4 * MATRIX + 1024)  # two matrices each, and step counts
    assert max(s["activations"] + s["workspace"] for s in timeline.sizes) >= MATRIX
    assert (timeline.sizes[-1]["gradients"] == cpu["gradients"]) == zero_at_end
    assert all(size >= 0 for s in timeline.sizes for size in s.values())
    assert timeline.times == sorted(timeline.times) and len(set(timeline.times)) == len(timeline.times)


def test_the_sum_is_what_the_allocator_says(cpu):
    prof, model, opt = train()
    timeline, stats = prof.memory_timeline("cpu"), pf.memory_stats("cpu")
    last = timeline.sizes[-1]
    everything = sum(last.values())
    assert everything == stats["allocated"] + stats["cached"]
    assert timeline.peak_bytes <= stats["peak_allocated"]


def test_a_tensor_from_before_and_one_that_is_freed(cpu):
    kept = pf.ones(N, N) + 0
    pf.synchronize()
    before = pf.memory_stats("cpu")["allocated"]
    with pf.profiler.profile(profile_memory=True) as prof:
        big = pf.ones(4 * N, N) + 0
        pf.synchronize()
        del big
        pf.synchronize()
    sizes = prof.memory_timeline("cpu").sizes
    activations = [s["activations"] for s in sizes]
    assert 4 * MATRIX in activations and activations[-1] == 0
    assert sizes[0]["unknown"] + sizes[0]["parameters"] + sizes[0]["gradients"] + sizes[0]["optimizer state"] <= before and sizes[0]["unknown"] >= MATRIX
    assert kept.shape == (N, N)


def test_files(cpu, tmp_path):
    prof, *_ = train()
    timeline = prof.memory_timeline("cpu")
    prof.export_memory_timeline(str(tmp_path / "m.json"), device="cpu")
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert times == timeline.times and all(len(row) == 10 and row[0] == 0 for row in sizes)
    # PyTorch's order: parameters, optimizer state, inputs, temporaries, activations, gradients, autograd's, unknown; then our holes.
    assert [row[1] for row in sizes] == [s["parameters"] for s in timeline.sizes] and [row[6] for row in sizes] == [s["gradients"] for s in timeline.sizes]
    assert [row[9] for row in sizes] == [s["holes"] for s in timeline.sizes]
    prof.export_memory_timeline(tmp_path / "m.json.gz", device="cpu")
    assert json.loads(gzip.open(tmp_path / "m.json.gz").read()) == [times, sizes]
    prof.export_memory_timeline(str(tmp_path / "m.html"), "cpu")
    page = (tmp_path / "m.html").read_text()
    assert page.count("<polygon") >= 4 and "parameters" in page and timeline.text().split("(")[0].split(": ")[1].strip() in page and "http" not in page
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    curves = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["name"] == "memory of cpu by category"]
    assert len(curves) == len(times) and [c["args"] for c in curves] == timeline.sizes


def test_the_table_has_the_peak_by_category(cpu):
    prof, *_ = train()
    line, = (text for text in prof.key_averages().table().splitlines() if text.startswith("Peak memory on cpu"))
    assert line == prof.memory_timeline("cpu").text() and "parameters " in line and "gradients " in line and "holes" in line


def test_each_cycle_of_a_schedule_has_its_own(cpu):
    model, peaks = pf.nn.Linear(N, N, bias=False), []
    with pf.profiler.profile(profile_memory=True, schedule=pf.profiler.schedule(wait=1, warmup=1, active=1), on_trace_ready=lambda p: peaks.append(p.memory_timeline("cpu").peak)) as prof:
        for _ in range(6):
            model(pf.ones(N, N)).sum().item()
            prof.step()
    assert len(peaks) == 2 and all(p["parameters"] == MATRIX + cpu["parameters"] for p in peaks)


def test_errors(cpu, tmp_path):
    prof, *_ = train(steps=1)
    with pytest.raises(ValueError, match="export_memory_timeline: unknown kind of file; got '.*m.png'; expected"):
        prof.export_memory_timeline(tmp_path / "m.png", "cpu")
    with pf.profiler.profile() as plain:
        pass
    with pytest.raises(RuntimeError, match="memory_timeline: no memory was recorded; hint: profile"):
        plain.export_memory_timeline(tmp_path / "m.json")
    with pytest.raises(RuntimeError, match="there is no recording"):
        pf.profiler.profile(profile_memory=True).memory_timeline()
    with pytest.raises(pf.DeviceError if pf.rocm_device_count() + pf.cuda_device_count() == 0 else ValueError):
        prof.memory_timeline("cuda:0")


def test_a_long_run_makes_a_small_page(cpu, tmp_path):
    with pf.profiler.profile(profile_memory=True) as prof:
        for _ in range(3000):
            (pf.ones(2000) + 1).sum().item()
    prof.export_memory_timeline(tmp_path / "m.html", "cpu")
    assert len(prof.memory_timeline("cpu").times) > 2000 and (tmp_path / "m.html").stat().st_size < 1_000_000
