"""benchmarks/all_reduce_cpu.py: it runs (small) over each transport, its figures follow from the times, and wrong arguments are refused."""
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = ROOT / "benchmarks" / "all_reduce_cpu.py"
spec = importlib.util.spec_from_file_location("all_reduce_cpu", PATH)
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


def test_each_transport(tmp_path):
    r = subprocess.run([sys.executable, str(PATH), "--turns", "2", "--sizes", "4096", "1048576", "--json", str(tmp_path / "r.json")], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stdout + r.stderr
    made = json.loads((tmp_path / "r.json").read_text())
    assert made["benchmark"] == "all_reduce_cpu" and made["ranks"] == 2 and made["turns"] == 2
    ways = set(benchmark.TRANSPORTS) - set(made["transports"])
    assert ways <= {"direct"} and all(f"{way}: this system does not allow it" in r.stdout for way in ways)
    for rows in made["transports"].values():
        assert [row["bytes"] for row in rows] == [4096, 1048576]
        assert all(row["memcpy_us"] > 0 and row["all_reduce_us"] > 0 and row["share"] > 0 for row in rows)


def test_the_figures():
    made = benchmark.row(64, 3, [[2, 1, 4, 4], [3, 1, 4, 2], [6, 1, 4, 1]])
    assert (made["memcpy_us"], made["memcpy_us_quartiles"], made["all_reduce_us"]) == (3, [2.5, 4.5], 4)
    assert (made["share"], made["share_quartiles"]) == (0.75, [0.625, 1.125]) and made["share_cpu"] == 0.5


@pytest.mark.parametrize("words, why", [
    (["--turns", "1"], "--turns: got 1; expected at least 2"),
    (["--sizes", "4096", "6"], "--sizes: got 6; expected multiples of 4 above 0"),
    (["--only", "pigeons"], "invalid choice: 'pigeons'"),
])
def test_arguments_that_make_no_sense(words, why, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["all_reduce_cpu.py", *words])
    with pytest.raises(SystemExit):
        benchmark.parsed()
    assert why in capsys.readouterr().err
