"""pf.bench, its records and comparisons. Times are given here by a false clock: no test depends on how fast the machine is."""
import dataclasses
import json
import multiprocessing
import pathlib
import runpy
import sys
import types

import numpy as np
import pytest

import pyflame as pf
from pyflame.benchmarking import Measurement, Records, Result, compare, gemms
from pyflame.benchmarking import __main__ as program
from pyflame.benchmarking import environment, measure, results
from pyflame.benchmarking.compare import _alternately, bootstrap
from pyflame.benchmarking.measure import Sampling, drift_of, median_interval, spread_of


def made(samples, **more):
    return Measurement("f", "cpu", list(samples), list(samples), list(samples), 1, 5.0, 10, "warm", 0.01, **more)


class Clock:
    """Seconds that pass by as much as the samples last."""

    def __init__(self, figures):
        self.figures, self.now, self.drawn = figures, 0.0, 0

    def draw(self, calls):
        ms = self.figures(self.drawn)
        self.drawn += 1
        self.now += ms * calls / 1e3
        return ms, ms, ms

    def __call__(self):
        return self.now


# ---- statistics


def test_interval_of_the_median():
    low, high = median_interval(list(range(100)))
    assert (low, high) == (39, 60)  # ranks 40 and 61 of 100: the table of the binomial distribution
    random, inside = np.random.default_rng(0), 0
    for _ in range(500):  # of a skewed distribution, whose median is log 2
        low, high = median_interval(random.exponential(size=31).tolist())
        inside += low <= np.log(2) <= high
    assert 0.92 < inside / 500 < 0.99


def test_spread_and_drift():
    assert spread_of([1.0]) == 0 and spread_of([4.0, 5.0, 5.0, 6.0]) == pytest.approx(0.1)
    assert drift_of([1.0] * 5 + [7.0] * 5 + [1.2] * 5) == pytest.approx(0.2) and drift_of([1.0]) == 0


def test_sampling_ends_when_the_interval_is_narrow():
    clock = Clock(lambda i: 10.0 + 0.01 * (i % 3))
    figures, wall, submit = Sampling(clock.draw, 0.01, 30, 100.0, clock).run(1)
    assert len(figures) == len(wall) == len(submit) == 30


def test_sampling_ends_when_the_time_is_over():
    clock = Clock(lambda i: 10.0 if i % 2 else 20.0)
    figures, _, _ = Sampling(clock.draw, 0.01, 30, 1.0, clock).run(1)
    assert 1000 < sum(figures) < 1100


def test_the_warm_up_waits_for_the_clock():
    rising = Clock(lambda i: max(10.0, 40.0 - i))  # a clock that rises for 30 samples
    sampling = Sampling(rising.draw, 0.01, 30, 100.0, rising)
    assert sampling.warm_up(2)
    assert 30 <= rising.drawn <= 45 and sampling.warmup_calls == 2 * rising.drawn
    never = Clock(lambda i: 10.0 * 1.1**i)
    assert not Sampling(never.draw, 0.01, 30, 3.0, never).warm_up(1)


def test_a_wide_spread_is_rejected():
    good, bad = made([10.0, 10.1, 9.9] * 10), made([10.0, 14.0] * 15)
    assert good.accepted and good.steady and "rejected" not in str(good)
    assert not bad.accepted and not bad.steady and "rejected, the spread of the samples is 33%" in str(bad)


def test_rates():
    m = made([2.0] * 5, flops=4e9, bytes=6e6)
    assert m.tflops == 2.0 and m.gbs == 3.0 and "2 TFLOP/s, 3 GB/s" in str(m)
    assert made([2.0]).tflops is None and made([2.0]).gbs is None


def test_reasons(monkeypatch):
    quiet = {"involuntary_switches": 0}
    noisy = [10.0, 14.0] * 15
    assert measure._reasons([10.0] * 30, 0.01, True, quiet, quiet, 1.0, False) == []
    assert "100 involuntary switches a second" in measure._reasons(noisy, 0.01, True, quiet, {"involuntary_switches": 100}, 1.0, False)[0]
    assert "warm-up ended" in measure._reasons(noisy, 0.01, False, quiet, quiet, 1.0, False)[0]
    assert "2 programs were compiled during the samples" in measure._reasons(noisy, 0.01, True, quiet, quiet, 1.0, False, 2)[0]
    assert "drifted by +50.0%" in measure._reasons([10.0] * 10 + [12.0] * 10 + [15.0] * 10, 0.01, True, quiet, quiet, 1.0, False)[0]
    assert "power limit, 300 W" in measure._reasons(noisy, 0.01, True, quiet, {**quiet, "power_limit": True, "power_limit_w": 300.0}, 1.0, False)[0]
    assert "from 1000 to 1500 MHz" in measure._reasons(noisy, 0.01, True, {**quiet, "clock_mhz": 1000.0}, {**quiet, "clock_mhz": 1500.0}, 1.0, False)[0]
    assert "the host was slower" in measure._reasons(noisy, 0.01, True, quiet, quiet, 1.0, True)[0]
    assert "no cause was seen" in measure._reasons(noisy, 0.01, True, quiet, quiet, 1.0, False)[0]


# ---- measuring


def test_bench_calls_the_function():
    calls = []

    def fn(x, *, times):
        calls.append(x)
        return x * times

    x = pf.randn(8, 3)
    m = pf.bench(fn, x, times=2, max_seconds=0.05, min_samples=3)
    assert len(calls) >= 1 + m.warmup_calls + m.calls * len(m.samples) and all(c is x for c in calls)
    assert m.name.endswith("fn") and m.device == "cpu" and m.arguments == ["float32[8, 3]", "times=2"]
    assert m.first_ms > 0 and all(s > 0 for s in m.samples) and m.environment["pyflame"] == pf.__version__
    assert len(m.wall) == len(m.submit) == len(m.samples)


def test_bench_with_a_cold_cache(monkeypatch):
    flushed = []
    monkeypatch.setattr(environment, "flusher", lambda device, times: lambda: flushed.append(device))
    m = pf.bench(pf.exp, pf.randn(10), cache="cold", max_seconds=0.02, min_samples=3)
    assert m.cache == "cold" and len(flushed) >= m.calls * len(m.samples) and set(flushed) == {"cpu"}


def test_the_flush_is_larger_than_the_cache():
    assert environment.cache_bytes("cpu") >= 1 << 20 and environment.cache_bytes("rocm:0") >= 256 << 20
    environment.flusher("cpu", 1)()


def test_zeros_are_noted():
    assert "argument 1 is all zeros" in pf.bench(pf.add, pf.randn(9), pf.zeros(9), max_seconds=0.01, min_samples=3).notes[0]
    assert pf.bench(pf.add, pf.randn(9), pf.randn(9), max_seconds=0.01, min_samples=3).notes == []


def test_bench_refuses():
    with pytest.raises(TypeError, match="bench: not a function; got Tensor"):
        pf.bench(pf.zeros(3))
    with pytest.raises(ValueError, match="bench: no such cache; got 'hot'"):
        pf.bench(pf.exp, pf.zeros(3), cache="hot")
    with pytest.raises(ValueError, match="numbers that make no sense; got relative=0"):
        pf.bench(pf.exp, pf.zeros(3), relative=0)
    for places in (2.5, "2", True, None):
        with pytest.raises(TypeError, match="bench: places is not a number of places; got .*; expected an integer, 1 or more"):
            pf.bench(pf.exp, pf.zeros(3), places=places)


def test_errors_of_the_function_are_raised():
    def broken():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pf.bench(broken)


def at_pci(root, card, address):
    """The folder of a card's device, which is a link to that of its PCI address, as in sysfs."""
    folder = root / "pci" / address
    folder.mkdir(parents=True)
    (root / card).mkdir()
    (root / card / "device").symlink_to(folder)
    return root / card / "device"


def test_an_amd_gpu_is_found_by_its_pci_address(tmp_path):
    """Variables such as HIP_VISIBLE_DEVICES change the numbers of GPUs."""
    for card, address, mhz in (("card0", "0000:03:00.0", 500), ("card1", "0000:83:00.0", 900)):
        (at_pci(tmp_path, card, address) / "pp_dpm_sclk").write_text(f"0: {mhz}Mhz *\n")
    assert [environment.amd_state(a, tmp_path, tmp_path)["clock_max_mhz"] for a in ("0000:83:00.0", "0000:03:00.0")] == [900.0, 500.0]


def test_other_processes_on_an_amd_gpu(tmp_path):
    import os

    (at_pci(tmp_path, "card0", "0000:83:00.0") / "pp_dpm_sclk").write_text("0: 500Mhz *\n")
    kfd = tmp_path / "kfd"
    for node, number, location in ((0, 0, 0), (1, 4711, 0x300), (2, 4712, 0x8300)):
        folder = kfd / "topology" / "nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"simd_count 4\nlocation_id {location}\ndomain 0\n")
        (folder / "gpu_id").write_text(f"{number}\n")
    for pid, number, used in ((os.getpid(), 4712, 9), (1, 4712, 9), (2, 4711, 9), (3, 4712, 0)):
        (kfd / "proc" / str(pid)).mkdir(parents=True)
        (kfd / "proc" / str(pid) / f"vram_{number}").write_text(f"{used}\n")
    after = environment.amd_state("0000:83:00.0", tmp_path, kfd)
    assert after["other_processes"] == 1
    assert environment.limits({}, after) == ["1 other process uses this GPU; hint: stop it, or take another GPU"]
    assert environment.limits({}, {"other_processes": 2.0}) == ["2 other processes use this GPU; hint: stop them, or take another GPU"]


def test_a_gpu_of_nvidia_is_found_by_its_pci_address(monkeypatch):
    asked = []

    class Library:
        def __getattr__(self, name):
            def call(*arguments):
                asked.append((name, arguments[0]))
                return 0

            return call

    nvml = environment._Nvml()
    nvml.library = Library()
    monkeypatch.setattr(environment, "_nvml", [nvml])
    monkeypatch.setattr(environment, "_C", type("Core", (), {"device_info": staticmethod(lambda device: {"pci": "0000:65:00.0"})}))
    assert environment.state("cuda:1")["other_processes"] == 0 and asked[0] == ("nvmlDeviceGetHandleByPciBusId_v2", b"0000:65:00.0")


def test_clocks_of_an_amd_gpu(tmp_path):
    card = at_pci(tmp_path, "card1", "0000:83:00.0")
    hwmon = card / "hwmon" / "hwmon3"
    hwmon.mkdir(parents=True)
    (tmp_path / "card0" / "device").mkdir(parents=True)  # of another driver
    for path, text in ((card / "pp_dpm_sclk", "0: 500Mhz *"), (card / "gpu_busy_percent", "97"), (hwmon / "freq1_input", "2100000000"), (hwmon / "temp1_input", "61000"),
                       (hwmon / "temp1_crit", "100000"), (hwmon / "power1_average", "299000000"), (hwmon / "power1_cap", "300000000")):
        path.write_text(text + "\n")
    assert environment.amd_state("0000:83:00.0", tmp_path, tmp_path / "kfd") == {"clock_mhz": 2100.0, "clock_max_mhz": 500.0, "temperature_c": 61.0, "power_w": 299.0, "power_limit_w": 300.0, "busy_percent": 97.0, "power_limit": True,
                                                  "thermal_limit": False, "xcd_clocks_unknown": "gpu_metrics cannot be read: No such file or directory"}
    assert environment.amd_state("0000:03:00.0", tmp_path, tmp_path / "kfd") == {}


# ---- records


def test_records_are_found_again(tmp_path):
    records = Records(tmp_path)
    assert records.find() == [] and list(records) == []
    for k, name in enumerate(["one", "two", "one"]):
        m = made([1.0 + k] * 3)
        m.name = name
        records.add(m)
    assert [m.median for m in records.find("one")] == [1.0, 3.0] and records.find("one", last=1)[0].median == 3.0
    assert len(records.find("o*")) == 2 and records.find(device="rocm*") == [] and len(list(records)) == 3
    assert json.loads((tmp_path / "records.jsonl").read_text().splitlines()[0])["median"] == 1.0


def test_results_are_kept_among_measurements(tmp_path):
    records = Records(tmp_path)
    records.add(made([1.0] * 3))
    kept = results.of("llm", "f of a model", "cpu", {"requests": 2}, "2 requests", ["seed=3"])
    records.add(kept)
    assert records.find("f*")[1] == kept and list(records)[1] == kept and str(kept) == "f of a model on cpu:\n  2 requests"
    assert [type(r) for r in records.find()] == [Measurement, Result] and records.find(last=1, measured=True)[0].median == 1.0
    assert set(kept.environment) >= {"pyflame", "python", "device", "libraries", "settings", "arguments", "state"} and kept.time > 0


def test_records_show_no_secrets_of_a_command():
    words = ["llm", "m.gguf", "--api_key", "k1", "--api-key=k2", "--url", "http://user:k3@host/v1", "--max_num_batched_tokens", "8", "--kv_cache_dtype", "int8"]
    shown = ["llm", "m.gguf", "--api_key", "(not shown)", "--api-key=(not shown)", "--url", "http://host/v1", "--max_num_batched_tokens", "8", "--kv_cache_dtype", "int8"]
    assert environment.without_secrets(words) == shown
    for word, want in (("http://u:p@ss@host/v1", "http://host/v1"), ("http://u:a/b@host", "http://host"), ("https://host/v1?api_key=k&x=1", "https://host/v1?(not shown)"), ("Authorization: Bearer k", "(not shown)"), ("bearer k", "(not shown)"),
                       ("a@b.py", "a@b.py"), ("what?", "what?")):
        assert environment.without_secrets([word]) == [want]
    assert environment.without_secrets(["--apikey", "k", "--db-passwd=p"]) == ["--apikey", "(not shown)", "--db-passwd=(not shown)"]
    assert environment.settings({"PYFLAME_STORE": "http://u:p@host"}) == {"PYFLAME_STORE": "http://host"}


def test_the_commit_is_that_of_the_programs_folder(monkeypatch):
    folders = []
    monkeypatch.setattr(environment.subprocess, "run", lambda words, **_: folders.append(words[2]) or type("Done", (), {"returncode": 0, "stdout": "abc\n"}))
    assert environment.describe("cpu", file="/programs/train.py")["commit"] == "abc" and environment.describe("cpu")["commit"] == "abc"
    assert folders == ["/programs", "."]


def test_a_record_that_was_cut_off_is_passed_over(tmp_path):
    records = Records(tmp_path)
    records.add(made([1.0] * 3))
    with open(records.path, "a", encoding="utf-8") as f:
        f.write('{"name": "half')
    assert len(records.find()) == 1
    records.path.write_text("\n" + records.path.read_text().split("\n")[0] + "\n")  # another file under the old index
    assert len(records.find()) == 1
    records.path.unlink()
    assert records.find() == []


def _add(folder, number):
    for k in range(20):
        Records(folder).add(made([float(number * 100 + k)] * 50))


def test_many_processes_add_records(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(str(tmp_path), n)) for n in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert sorted(m.median for m in Records(tmp_path).find()) == sorted(float(n * 100 + k) for n in range(4) for k in range(20))


# ---- comparisons


def test_comparison_of_samples():
    random = np.random.default_rng(1)
    a, same, faster = (made((random.normal(m, 0.1, 60)).tolist()) for m in (10.0, 10.0, 9.0))
    assert compare(a, same).verdict == "same" and "no difference" in str(compare(a, same))
    c = compare(a, faster)
    assert c.verdict == "faster" and c.low < 10 / 9 < c.high and compare(faster, a).verdict == "slower"
    with pytest.raises(TypeError, match="compare: not a Measurement; got float"):
        compare(a, 3.0)


def test_paired_samples_forgive_a_drift():
    drift = np.linspace(1, 2, 60)
    ratio, low, high = bootstrap((drift * 1.1).tolist(), drift.tolist(), paired=True)
    assert ratio == pytest.approx(1.1) and low == pytest.approx(1.1) and high == pytest.approx(1.1)


def test_functions_are_compared_alternately():
    order, now = [], [0.0]

    def draw(which, ms):
        def one(calls):
            order.append(which)
            now[0] += ms / 1e3
            return ms, ms, ms

        return one

    c = _alternately([draw("a", 4.0), draw("b", 2.0)], [1, 1], ("a", "b"), 0.01, 30, 10.0, clock=lambda: now[0])
    assert order[:6] == ["b", "a", "a", "b", "b", "a"] and c.ratio == 2.0 and c.verdict == "faster" and c.paired


# ---- lists of products


@pytest.mark.parametrize("line, gemm", [
    ("64,128,256", "gemm 64x128x256 bfloat16 NN"),
    ("64,128,256,f32,NT", "gemm 64x128x256 float32 NT"),
    ("64x128x256", "gemm 64x128x256 bfloat16 NN"),
    # BLAS counts by columns: m and n change places, and so do the operands
    ("hipblaslt-bench --api_method c -m 1024 -n 512 -k 256 --lda 1024 --transA N --transB T --batch_count 1 --a_type f16_r --b_type f16_r", "gemm 512x1024x256 float16 TN"),
    ("./rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 2048 -n 512 -k 4096 --alpha 1 --a_type bf16_r --lda 4096", "gemm 512x2048x4096 bfloat16 NT"),
    ("hipblaslt-bench -m 8 -n 4 -k 2 --a_type f32_r --batch_count 3", "gemm 3x4x8x2 float32 NN"),
    ('- { rocblas_function: "rocblas_gemm_ex", transA: "N", transB: "N", M: 7, N: 5, K: 3, a_type: f32_r, call_count: 2 }', "gemm 5x7x3 float32 NN"),
    ("GemmTunableOp_float_NT,nt_25088_4096_64,Gemm_Hipblaslt_1219,1.262", "gemm 4096x25088x64 float32 TN"),
    ("GemmTunableOp_BFloat16_TN,tn_4096_512_4096_ld_4096_4096_4096", "gemm 512x4096x4096 bfloat16 NT"),
    ("GemmStridedBatchedTunableOp_Half_NN,nn_64_32_16_B_12_ld_64_16_64,Default,0.01", "gemm 12x32x64x16 float16 NN"),
])
def test_lines_of_lists(line, gemm):
    assert str(gemms.parse(line)) == gemm


@pytest.mark.parametrize("line", ["", "  # a comment", "Validator,PT_VERSION,2.6.0"])
def test_lines_without_a_product(line):
    assert gemms.parse(line) is None


@pytest.mark.parametrize("line, message", [("1,2", "not a product; got '1,2'"), ("1,2,0", "not a product"), ("1,2,3,int3", "a dtype that products are not measured for; got 'int3'"),
                                           ("1,2,3,f32,AB", "no such layout; got 'AB'"), ("hipblaslt-bench -m 3 -n 4", "a command without -k, --a_type"),
                                           ("- { M: 3, N: 4 }", "an entry without 'k'"), ("GemmTunableOp_float_NN,what", "a row of TunableOp that is not understood")])
def test_lines_that_are_refused(line, message):
    with pytest.raises(ValueError, match=message):
        gemms.parse(line)


def test_a_transposed_product_is_the_same_product():
    """By columns, TunableOp's tn_M_N_K is C[M, N] = A^T B with A [K, M]: by rows, out[N, M] = b[N, K] @ a[M, K]^T."""
    from pyflame.benchmarking.problems import of_gemm

    p = of_gemm(gemms.parse("GemmTunableOp_float_TN,tn_8_4_2"))
    assert p.flops == 2 * 8 * 4 * 2 and tuple(p.call().shape) == (4, 8)


# ---- the command


def run(capsys, *words):
    code = program.main([*words])
    return code, capsys.readouterr()


def test_command_measures_and_keeps(tmp_path, capsys):
    code, said = run(capsys, "launch", "--seconds", "0.05", "--records", str(tmp_path), "--json")
    assert code in (0, 3)  # whether the figures are accepted is the machine's matter
    names = [json.loads(line)["name"] for line in said.out.splitlines()]
    assert names == ["one op of 16 elements", "ten ops of 16 elements that depend on each other"]
    code, said = run(capsys, "list", "one*", "--records", str(tmp_path))
    assert code == 0 and said.out.startswith("one op of 16 elements on cpu")
    code, said = run(capsys, "compare", "one*", "ten*", "--records", str(tmp_path), "--json")
    found = json.loads(said.out)
    assert code == 0 and found["ratio"] > 0
    one, ten, kept = Records(tmp_path).find()
    assert (kept.kind, kept.name, kept.device, kept.environment) == ("comparison", "compare one* ten*", "cpu", one.environment)
    assert kept.figures == {**found, "first_time": one.time, "second_time": ten.time}
    code, said = run(capsys, "list", "compare*", "--records", str(tmp_path))
    assert code == 0 and said.out.startswith("compare one* ten* on cpu:\n  ") and f"{found['ratio']:.3f} times" in said.out
    code, said = run(capsys, "compare", str(tmp_path), str(tmp_path), "--records", str(tmp_path), "--no-record", "--json")
    assert code == 0 and json.loads(said.out)["ratio"] == 1 and len(Records(tmp_path).find()) == 3, "the last measurement, which a comparison is not"


def test_a_list_without_records_says_so(tmp_path, capsys):
    code, said = run(capsys, "list", "--records", str(tmp_path), "--json")
    assert (code, said.out) == (0, "") and said.err == f"pyflame bench: there are no records yet; got the folder {str(tmp_path)!r}; hint: pyflame bench gemm makes some, and --records names another folder\n"
    for i in range(9):
        Records(tmp_path).add(dataclasses.replace(made([1.0, 1.1, 1.2]), name=f"case {i}", time=float(i)))
    code, said = run(capsys, "list", "gemm*", "--records", str(tmp_path))
    assert (code, said.out) == (1, "") and said.err.startswith("pyflame bench: there is no record of this name; got 'gemm*'; expected 'case 8', 'case 7', ") and said.err.count("\n") == 1
    assert "'case 1' and 1 more, or a pattern such as 'gemm*'; hint: pyflame bench list shows all" in said.err
    code, said = run(capsys, "list", "case", "1", "--records", str(tmp_path))
    assert code == 1 and "list takes one name; got case 1; expected a name, or a pattern in quotes" in said.err


def test_every_group_has_problems():
    for name, group in program.problems.GROUPS.items():
        if name == "comm":
            continue  # needs a GPU
        first = next(iter(group(64)))
        first.call()
        pf.synchronize()
        assert first.name, name


def test_command_measures_a_list(tmp_path, capsys):
    problems = tmp_path / "untuned.csv"
    problems.write_text("Validator,PT_VERSION,2.6.0\nGemmTunableOp_float_NN,nn_8_4_2\nGemmTunableOp_float_NN,nn_8_4_2\nGemmTunableOp_Int3_NN,nn_8_4_2\n")
    code, said = run(capsys, "gemm", "--problems", str(problems), "--seconds", "0.02", "--no-record", "--json")
    assert code in (0, 3) and [json.loads(line)["name"] for line in said.out.splitlines()] == ["gemm 4x8x2 float32 NN"]
    assert "untuned.csv:4: a dtype that products are not measured for; got 'Int3'" in said.err


def test_command_measures_a_function_of_a_program(tmp_path, capsys):
    file = tmp_path / "my_program.py"
    file.write_text("import pyflame as pf\nnet = pf.nn.Linear(4, 4)\n\n\ndef step():\n    net(pf.randn(2, 4)).sum().backward()\n\n\nif __name__ == '__main__':\n    raise SystemExit('no')\n")
    code, said = run(capsys, f"{file}:step", "--seconds", "0.02", "--no-record", "--json")
    assert code in (0, 3) and json.loads(said.out)["samples"]
    code, said = run(capsys, "compare", f"{file}:step", f"{file}:step", "--seconds", "0.05", "--json", "--records", str(tmp_path))
    assert code == 0 and json.loads(said.out)["paired"]
    (kept,) = Records(tmp_path).find("compare*")
    assert kept.figures == json.loads(said.out) and kept.device == "cpu" and {"device", "settings", "arguments", "state"} <= set(kept.environment)
    code, said = run(capsys, f"{file}:missing", "--no-record")
    assert code == 1 and "has no function 'missing'; it has step" in said.err


def test_command_refuses_a_function_that_needs_arguments(tmp_path, capsys):
    file = tmp_path / "my_functions.py"
    file.write_text("def h(x, *rest, k, size=3):\n    return x\n\n\ndef free(*x, size=3, **y):\n    return 1\n\n\nclass Net:\n    def __init__(self, width):\n        pass\n")
    code, said = run(capsys, f"{file}:h", "--no-record")
    assert code == 1 and said.out == "" and said.err == (
        f"pyflame bench: the function needs arguments; got h(x, *rest, k, size=3) of {file}; expected one that is called as h(); hint: make the arguments outside of a function that uses them, "
        f"such as: x, k = …, then def measured(): return h(x, k=k), and pyflame bench {file}:measured\n"
    )
    code, said = run(capsys, "compare", f"{file}:free", f"{file}:Net", "--no-record")
    assert code == 1 and "the function needs arguments; got Net(width) of" in said.err and "width = pf.randn(64, 64), then def measured(): return Net(width)," in said.err
    code, said = run(capsys, f"{file}:free", "--no-record", "--seconds", "0.02")
    assert code in (0, 3) and "free on cpu" in said.out


def test_command_says_which_products_a_device_does_not_multiply(capsys):
    many = "hipblaslt-bench -m 8 -n 8 -k 8 --a_type f8_r --batch_count 2"
    code, said = run(capsys, "gemm", "8,8,8,f32", "16,16,32,fp8,NT", "32,16,16,bf8_fnuz", many, "--seconds", "0.02", "--no-record", "--json")
    assert code in (0, 3) and [json.loads(line)["name"] for line in said.out.splitlines()] == ["gemm 8x8x8 float32 NN", "gemm 16x16x32 float8_e4m3fn NT", "gemm 32x16x16 float8_e5m2fnuz NN"]
    assert "left out: gemm 2x8x8x8 float8_e4m3fn NN: products of 8-bit floats have no batches; got 2; expected 1" in said.err


def test_shares_of_the_peak_and_of_the_best_entry(tmp_path, capsys, monkeypatch):
    from pyflame.benchmarking import shares
    from pyflame.profiler.ceilings import Ceilings

    monkeypatch.setattr(shares, "ceilings", lambda device, dtypes, renew=False: Ceilings(device, 10.0, {"float32": 1000.0}))
    m = made([1.0] * 5, flops=5e8)
    assert shares._of_peak(m, "float32") == ["50% of the peak: 1 TFLOP/s, which a large product of float32 reaches here"]
    assert "no share of the peak" in shares._of_peak(m, "int8")[0]
    assert shares._of_peak(m, "float8_e5m2") == ["no share of the peak: cpu has no units for products of float8_e5m2"]
    before = pf._C._choices_file()
    pf._C._set_choices_file(str(tmp_path / "choices.sqlite"))
    try:
        for turn in ("first", "again"):  # the second one finds the entries in the tuning database
            code, said = run(capsys, "gemm", "96,80,112,f32", "--entries", "--seconds", "1", "--no-record", "--json")
            notes = json.loads(said.out)["notes"]
            assert code in (0, 3) and "% of the peak" in notes[0] and "% of the best entry" in notes[1], turn
    finally:
        pf._C._set_choices_file(before)
    m = made([1.0] * 5, flops=1e9)  # 1 TFLOP/s
    measured = iter((400.0, 2000.0, 400.0, 500.0))  # a ceiling that was measured on a busy machine is measured again
    monkeypatch.setattr(shares, "ceilings", lambda device, dtypes, renew=False: Ceilings(device, 10.0, {"float32": next(measured)}))
    assert shares._of_peak(m, "float32") == ["50% of the peak: 2 TFLOP/s, which a large product of float32 reaches here"]
    assert shares._of_peak(m, "float32")[0].startswith("no share of the peak: it is faster than a large product of float32, which reaches 0.5 TFLOP/s here")


def test_the_best_entry_is_one_of_the_same_day(monkeypatch):
    from pyflame.benchmarking import shares

    def row(entry, us, at):
        return types.SimpleNamespace(entry=entry, us=us, measured_at=at, sound=True)

    rows = [row("fast", 1.0, "2025-01-01 10:00:00"), row("beside", 4.0, "2025-03-01 23:59:00.125"), row("own", 5.0, "2025-03-02 00:01:00.250")]
    monkeypatch.setattr(shares, "_step_of", lambda p: {"op": "matmul", "problem": "", "entry": "own"})
    monkeypatch.setattr(shares.database, "rows_here", lambda *_: rows)
    found = shares._of_best(types.SimpleNamespace(call=lambda: None), "cpu", 1)[0]
    assert found.startswith("80% of the best entry: beside takes 4 us, own 5 us, of 2 entries; 1 more was measured on other days"), found
    rows[0].measured_at = "2025-03-02 10:00:00"
    assert shares._of_best(types.SimpleNamespace(call=lambda: None), "cpu", 1) == ["20% of the best entry: fast takes 1 us, own 5 us, of 3 entries"]
    rows[:] = [row("fast", 1.0, "2025-01-01 10:00:00"), row("own", 5.0, "2025-03-02 00:01:00.250")]
    found, = shares._of_best(types.SimpleNamespace(call=lambda: None), "cpu", 1)
    assert found.startswith("no share of the best entry: there is one only") and "1 more was measured on other days" in found, found


def test_comm_needs_a_device_with_memory(capsys):
    code, said = run(capsys, "comm", "--device", "cpu", "--no-record")
    assert code == 1 and "comm: copies need a device with its own memory; got cpu; expected --device rocm or cuda" in said.err
    assert "copies only: this process is the only one" in said.err


def test_a_display_is_told_how_far_it_is():
    told = []
    clock = Clock(lambda i: 10.0 + i % 2)  # two values, so that the interval stays wide
    Sampling(clock.draw, 0.001, 30, 1.0, clock, lambda part, text: told.append((part, text))).run(1)
    assert told[0] == (pytest.approx(0.315), "30 samples around 10.5 ms") and 0.9 < told[-1][0] <= 1


def test_samples_are_drawn_for_a_least_time():
    clock = Clock(lambda i: 0.5)
    figures, _, _ = Sampling(clock.draw, 0.01, 30, 10.0, clock).run(1)
    assert 0.25 <= sum(figures) / 1e3 <= 0.27


@pytest.mark.parametrize("imports_late", [False, True])
def test_compare_tells_programs_whose_modules_have_the_same_names(tmp_path, capsys, monkeypatch, imports_late):
    monkeypatch.setattr(sys, "path", sys.path[:])
    text = "def step():\n    import layers_of_both\n    layers_of_both.run()\n" if imports_late else "import layers_of_both\ndef step():\n    layers_of_both.run()\n"
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "train_of_both.py").write_text(text)
        (tmp_path / version / "layers_of_both.py").write_text("import pyflame as pf\ndef run():\n    pf.ones(4).sum()\n")
    words = ["compare", f"{tmp_path}/old/train_of_both.py:step", f"{tmp_path}/new/train_of_both.py:step", "--seconds", "0.1"]
    try:
        code, said = run(capsys, *words)
        assert code == 1 and "modules of the same names" in said.err and "got layers_of_both beside" in said.err and "--cold" in said.err and not said.out
    finally:
        for name in ("layers_of_both", "train_of_both"):
            sys.modules.pop(name, None)


def test_compare_by_fresh_processes(tmp_path, capsys):
    file = tmp_path / "two.py"
    file.write_text("""import time
calls = []


def a():
    calls.append(1)
    time.sleep(0.3 if len(calls) == 1 else 0.002)


def b():
    time.sleep(0.004)
""")
    code, said = run(capsys, "compare", "--cold", f"{file}:a", f"{file}:b", "--runs", "3", "--seconds", "0.1", "--json", "--records", str(tmp_path))
    found = json.loads(said.out)
    assert [r.figures for r in Records(tmp_path).find("compare*")] == [found]
    assert code == 0 and found["runs"] == 3
    assert found["first_calls"]["verdict"] == "faster" and found["first_calls"]["ratio"] > 5  # b's first call is faster
    assert found["later_calls"]["ratio"] < 0.9  # and its later ones are slower
    code, said = run(capsys, "compare", "--cold", f"{file}:a", f"{file}:missing", "--runs", "3", "--seconds", "0.1")
    assert code == 1 and "a process failed; got" in said.err and "has no function 'missing'" in said.err


def test_repeats_are_printed(tmp_path):
    import subprocess

    script = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "bench_repeats.py"
    r = subprocess.run([sys.executable, str(script), "--processes=2", "--seconds=0.05", "--size=512", "--most=1e9", f"--json={tmp_path / 'r.json'}"], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0 and "add of 512 float32 on cpu:" in r.stdout and "over 2 processes" in r.stdout, r.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    figures = [p["us"] for p in found["processes"]]
    assert found["range"] == pytest.approx(abs(figures[1] - figures[0]) / (sum(figures) / 2))


def test_places_that_cannot_be_compared_are_told(monkeypatch):
    script = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "bench_repeats.py"
    within = runpy.run_path(str(script))["within"]
    monkeypatch.setattr(measure, "STAY", dict(measure.STAY))
    monkeypatch.setattr(measure, "_may_be_copied", lambda *_: False)
    bench = pf.bench
    monkeypatch.setattr(pf, "bench", lambda *args, **kwargs: bench(*args, **{**kwargs, "max_seconds": 0.05}))
    with pytest.raises(SystemExit, match="bench_repeats: at one place, not 8"):
        within("add", "cpu", 512, 8, 1)


def test_a_name_that_no_problem_has_is_an_error_of_the_parser(monkeypatch, capsys):
    script = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "tuned_products.py"
    main = runpy.run_path(str(script))["main"]
    monkeypatch.setattr(sys, "argv", ["tuned_products.py", "--only", "nothing"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "--only: no problem has this text in its name; got 'nothing'" in capsys.readouterr().err


def test_records_keep_the_settings_that_the_doctor_names():
    rules = json.loads((pathlib.Path(__file__).parents[2] / "src" / "tools" / "doctor" / "rules.json").read_text(encoding="utf-8"))
    names = {v["name"] if isinstance(v, dict) else v for rule in rules["rules"] for v in rule.get("variables", ())} | {f"{prefix}X" for prefix in rules["prefixes"]}
    assert len(names) > 100
    found = environment.settings({**dict.fromkeys(names, "1"), "HOME": "/home", "EDITOR": "vi"})
    assert set(found) == names
    assert environment.settings({"PYTORCH_API_TOKEN": "secret", "PYFLAME_CACHE_DIR": "folder"}) == {"PYTORCH_API_TOKEN": "(not shown)", "PYFLAME_CACHE_DIR": "folder"}


OF_ARGUMENTS = "import argparse\nimport sys\n\nimport pyflame as pf\n\np = argparse.ArgumentParser()\np.add_argument('--width', type=int, default=8)\nargs = p.parse_args()\n\n\ndef step():\n    p.parse_args()\n    return pf.ones(args.width)\n"


def test_a_program_does_not_see_the_arguments_of_the_command(tmp_path, capsys, monkeypatch):
    (tmp_path / "with_arguments.py").write_text(OF_ARGUMENTS)
    before = ["pyflame bench", f"{tmp_path}/with_arguments.py:step", "--scale=1"]
    monkeypatch.setattr(sys, "argv", before)
    code, said = run(capsys, f"{tmp_path}/with_arguments.py:step", "--seconds", "0.05", "--records", str(tmp_path))
    assert code in (0, 3) and "with_arguments.py:step" in said.out and sys.argv is before
    assert list(Records(tmp_path))[-1].environment["arguments"] == before[1:], "the record keeps those of the command"


@pytest.mark.parametrize("text, message", [
    ("sys.exit('no data found')\n", "the program ended while it was imported; got {file}, which called sys.exit('no data found'); expected only what its functions need; hint: put"),
    ("raise RuntimeError('the data is broken')\n", 'Traceback (most recent call last):\n  File "{file}", line 14, in <module>\n'),
    ("raise RuntimeError('the data is broken')\n", "the program failed while it was imported; got RuntimeError in {file}; expected only what its functions need; hint: put")])
def test_a_program_that_cannot_be_imported(tmp_path, capsys, text, message):
    (tmp_path / "not_imported.py").write_text(OF_ARGUMENTS.replace("args = p.parse_args()", "args = None") + text)
    code, said = run(capsys, f"{tmp_path}/not_imported.py:step", "--records", str(tmp_path))
    assert code == 1 and message.format(file=f"{tmp_path}/not_imported.py") in said.err


@pytest.mark.parametrize("words, message", [(["thing"], "nothing of this name to measure; got 'thing'"), (["compare", "a"], "compare takes two; got 1"),
                                            (["compare", "a", "b"], "there is no record; got 'a'"), (["nowhere.py:f"], "there is no such file; got 'nowhere.py'"),
                                            (["compare", "--cold", "a", "b"], "--cold compares functions in fresh processes; got 'a'"),
                                            (["compare", "--cold", "a.py:f", "b.py:f", "--runs", "2"], "--runs is too small; got 2"),
                                            (["launch", "--device", "rocm:7"], "rocm")])
def test_command_refuses(words, message, tmp_path, capsys):
    code, said = run(capsys, *words, "--records", str(tmp_path / "none"))
    assert code == 1 and message in said.err


def test_what_compare_functions_refuses():
    compare, f = pf.benchmarking.compare_functions, lambda: pf.ones(1)
    for arguments, keywords, error, text in [
        ((f, 3), {}, TypeError, "compare_functions: not a function; got int"),
        ((f, f), {"names": ("a",)}, ValueError, "compare_functions: names are not two; got .'a',."),
        ((f, f), {"names": "ab"}, ValueError, "compare_functions: names are not two; got 'ab'"),
        ((f, f), {"max_seconds": 0}, ValueError, "compare_functions: max_seconds is not a time; got 0"),
    ]:
        with pytest.raises(error, match=text):
            compare(*arguments, **keywords)


# ---- copies of arguments


PLACES = 5


def _bench(fn, *args, **kwargs):
    """The different tensors that fn saw as its last argument."""
    seen = {}

    def call(*given, **named):
        seen[id(given[-1])] = given[-1]
        return fn(*given, **named)

    m = pf.bench(call, *args, max_seconds=0.05, min_samples=20, places=PLACES, **kwargs)
    assert any("at one place, not 5" in note for note in m.notes) is (len(seen) == 1)
    return list(seen.values())


def test_small_arguments_take_places_in_turns(monkeypatch):
    monkeypatch.setitem(measure.STAY, "cpu", 2)
    x, y = pf.randn(50), pf.randn(50)
    seen = _bench(lambda a, b: a + b, x, y)
    assert len(seen) == PLACES and seen[0] is y
    assert len({t.data_ptr() for t in seen}) == PLACES and all((t == y).all() for t in seen)
    same = []
    _bench(lambda a, b: same.append(a is b), x, x)
    assert all(same)


def test_arguments_stay_the_same_where_a_copy_would_be_something_else():
    x = pf.randn(50)
    assert len(_bench(lambda a: a.add_(1), x.clone())) == 1, "the function changes its argument"
    assert len(_bench(lambda a: a + 1, x, cache="cold")) == 1
    assert len(_bench(lambda a: a + 1, x.clone().requires_grad_(True))) == 1, "a copy would be part of a graph"
    assert len(_bench(lambda a: a.sum(), pf.randn(8, 4).t())) == 1, "a copy would lie otherwise"
    assert len(_bench(lambda a: (a + 1).sum().item(), x)) == 1, "nothing says how large the result is"
    assert len(_bench(lambda a: a + 1, pf.from_numpy(np.ones(9, "float32")))) == 1, "each op on NumPy's memory runs at once"
    assert len(_bench(lambda a: a.repeat(2000), pf.randn(5000))) == 1, "the result is large"


def test_samples_end_after_whole_rounds_over_the_places():
    ticks = iter(range(10**6))
    sampling = measure.Sampling(lambda calls: (1.0, 1.0, 0.1), 0.01, 10, 10**6, clock=lambda: next(ticks), turn=12)
    assert len(sampling.run(1)[0]) == 12
    sampling = measure.Sampling(lambda calls: (1.0, 1.0, 0.1), 0.01, 25, 10**6, clock=lambda: next(ticks), turn=12)
    assert len(sampling.run(1)[0]) == 36


@pytest.mark.parametrize("drawn, note", [(3, "2 of 5 places were measured; hint: a larger max_seconds"), (11, "the last round over the 5 places is not whole"), (10, None), (20, None)])
def test_rounds_that_are_not_whole_are_told(monkeypatch, drawn, note):
    monkeypatch.setitem(measure.STAY, "cpu", 2)
    monkeypatch.setattr(measure.Sampling, "warm_up", lambda *_: True)
    monkeypatch.setattr(measure.Sampling, "run", lambda self, calls: ([1.0] * drawn, [1.0] * drawn, [0.1] * drawn))
    m = pf.bench(lambda a: a + 1, pf.randn(50), places=PLACES)
    told = [text for text in m.notes if "places" in text]
    assert (told == []) if note is None else (len(told) == 1 and told[0].startswith(note)), told


def test_tensors_in_a_list_are_told_to_stay():
    x, y = pf.randn(50), pf.randn(50)
    told = [sum("tensors within a list" in note for note in pf.bench(fn, *args, max_seconds=0.05, places=PLACES).notes)
            for fn, args in ((lambda a, rest: a + rest[0], (x, [y])), (lambda a, rest: a + rest["y"][0], (x, {"y": (y,)})), (lambda a, rest: a + rest[0], (x, [1.0])), (lambda a, b: a + b, (x, y)))]
    assert told == [1, 1, 0, 0]


def test_a_result_is_where_it_was_when_its_place_has_its_next_turn():
    """The results of the other places are held while a place has its turn, so its own one takes the memory that it had, and none of theirs."""
    rounds, at = 4, {}

    def call(place, b):
        out = b + 1
        at.setdefault(place, []).append(out.data_ptr())
        return out

    calls = [lambda place=place, b=pf.randn(40000): call(place, b) for place in range(PLACES)]
    timer = measure._Timer(calls[0], "cpu", None, calls[1:])
    timer.stay = 2
    for turn in range(rounds * PLACES):
        if turn == PLACES:
            at.clear()  # the first round finds its memory
        for _ in range(timer.stay):
            timer.sample(3)
    assert len(at) == PLACES and all(len(set(places)) == 1 and len(places) >= (rounds - 1) * 6 for places in at.values()), at
    assert len({places[0] for places in at.values()}) == PLACES, at


# ---- calls that are queued before the device begins


class Host:
    """A device that a timer sees. in_time: at most so many calls can be queued while the device waits. submit, device: milliseconds of a call."""

    def __init__(self, monkeypatch, in_time, submit, device):
        self.in_time, self.paused, self.queued, self.asked = in_time, False, 0, []
        self.submit, self.device = submit, device
        timer = self.timer = measure._Timer(self.call, "cpu", None)
        timer.gpu, timer.events, timer._timed = True, (self, self), self.timed
        monkeypatch.setattr(measure._C, "_pause", self.pause)

    def call(self):
        self.queued += 1

    def timed(self, calls):
        return max(self.submit, self.device), max(self.submit, self.device), self.submit

    def pause(self, device):
        self.paused, self.queued = True, 0
        return self

    def release(self):
        self.asked.append(self.queued)
        return self.queued <= self.in_time

    def record(self, device):
        pass

    def elapsed_ms(self, end):
        return self.device * self.queued


def test_a_device_that_waits_for_the_host_is_timed_with_calls_queued_ahead(monkeypatch):
    host = Host(monkeypatch, 100, submit=0.007, device=0.002)
    host.timer.queue_ahead(1000)
    assert host.asked == [256, 256, 128, 128, 64] and host.timer.ahead == 64
    assert host.timer.sample(1000) == (pytest.approx(0.002), 0.007, 0.007)


def test_samples_that_were_not_queued_in_time_are_counted(monkeypatch):
    host = Host(monkeypatch, 100, submit=0.007, device=0.002)
    host.timer.queue_ahead(1000)
    host.in_time = 0
    assert host.timer.sample(1000) == (0.007, 0.007, 0.007) and host.timer.late == 1


def test_calls_that_wait_for_the_device_are_not_queued_ahead(monkeypatch):
    host = Host(monkeypatch, 0, submit=0.007, device=0.002)
    host.timer.queue_ahead(20)
    assert host.asked == [20, 20, 10, 10] and host.timer.ahead == 0 and host.timer.sample(20) == (0.007, 0.007, 0.007)


def test_a_busy_device_is_not_held_back(monkeypatch):
    host = Host(monkeypatch, 100, submit=0.002, device=0.007)
    host.timer.queue_ahead(1000)
    assert host.asked == [] and host.timer.ahead == 0
