"""benchmarks/padded_strides.py: its forms compute the same from operands whose rows are as long as it says, and the command of the decision's page runs (small, on the CPU)."""
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

import pyflame as pf

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "padded_strides.py"
spec = importlib.util.spec_from_file_location("padded_strides", SCRIPT)
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


def run(*args):
    return subprocess.run([sys.executable, str(SCRIPT), "--device", "cpu", *args], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_all_forms_compute_the_same(dtype, layout):
    m, n, k = 512, 1024, 512
    found = benchmark.forms(pf, m, n, k, getattr(pf, dtype), layout)
    want = found["as it is"][0]()
    for name, (call, _) in found.items():
        assert float((call().float() - want.float()).norm() / want.float().norm()) < 0.01, name
    assert set(found) == {"as it is", *benchmark.FORMS} - ({f for f in benchmark.FORMS if f.endswith("B")} if dtype != "bfloat16" else set())


def longer(x):
    """By how many elements the rows of a shape with strides are longer than they must be."""
    (rows, columns), strides = x
    return max(strides) - (columns if strides[1] == 1 else rows)


def test_rows_are_as_long_as_the_names_say():
    found = benchmark.forms(pf, 256, 512, 768, pf.float16, "NT")
    lengths = {name: (longer(a), longer(b)) for name, (_, (_, a, b)) in found.items()}
    assert lengths == {"as it is": (0, 0), "w+128": (0, 128), "a+128": (128, 0), "wa+128": (128, 128), "w+128B": (0, 64), "a+128B": (64, 0), "wa+128B": (64, 64), "w other": (0, 0)}
    weights = {name: b[1] for name, (_, (_, _, b)) in found.items()}
    assert weights["as it is"] == (1, 768) and weights["w other"] == (512, 1)
    few = benchmark.forms(pf, 16, 512, 768, pf.float16, "TN")  # the activation's rows have 32 bytes
    assert set(few) == {"as it is", "w+128", "w+128B", "w other"}


def test_a_small_run(tmp_path):
    r = run("--quick", "--dtypes", "bfloat16", "--layouts", "NT,TN", "--json", str(tmp_path / "r" / "padded.json"))
    assert r.returncode == 0, r.stderr
    made = json.loads((tmp_path / "r" / "padded.json").read_text())
    assert [row["layout"] for row in made["rows"]] == ["NT", "TN"] and made["left_out"] == []
    forms = made["rows"][0]["forms"]
    assert set(forms) == {"as it is", *benchmark.FORMS} and all(f["us"] > 0 for f in forms.values()) and "onednn" in forms["as it is"]["entry"]
    assert all(f["low"] <= f["high"] and f["verdict"] in ("faster", "slower", "same") for name, f in forms.items() if name != "as it is")
    assert made["summary"]["w+128"]["products"] == 2 and made["summary"]["a+128"]["products"] == 1 and "geometric means" in r.stdout and "layout TN" in r.stdout


def test_products_that_take_too_long_are_left_out():
    r = run("--quick", "--dtypes", "float16", "--layouts", "NN", "--limit", "1e-9")
    assert r.returncode == 1 and "left out: 16x256x256 float16 NN: the time was over" in r.stdout and "there was nothing to measure" in r.stderr


def test_the_command_of_the_page(monkeypatch):
    page = (ROOT / "docs" / "decisions" / "0025-padded-strides.md").read_text()
    found = re.findall(r"^python benchmarks/padded_strides\.py (.*)$", page, re.M)
    assert found
    for words in found:
        monkeypatch.setattr(sys, "argv", ["padded_strides.py", *words.split()])
        assert benchmark.parsed().turns >= 11


@pytest.mark.parametrize("words,why", [
    (["--dtypes", "float64"], "--dtypes: got float64; expected some of bfloat16,float16,float8"),
    (["--layouts", "NN,XX"], "--layouts: got XX"),
    (["--m", "0"], "sizes, --turns and --calls are at least 1"),
    (["--budget", "0"], "--budget is positive"),
])
def test_arguments_that_make_no_sense(words, why, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["padded_strides.py", *words])
    with pytest.raises(SystemExit):
        benchmark.parsed()
    assert why in capsys.readouterr().err


@pytest.mark.skipif(pf.rocm_is_available(), reason="this machine has an AMD GPU")
def test_without_a_gpu_it_says_why():
    r = run("--device", "rocm")
    assert r.returncode == 1 and "set_device: the device is not available; got 'rocm" in r.stderr and "Traceback" not in r.stderr
