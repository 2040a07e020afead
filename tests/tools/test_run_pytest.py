"""Tests in several processes: each runs once, and what goes wrong in any of them is the result of all."""
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "run_pytest.py"


def run(tmp_path, text, *arguments):
    folder = tmp_path / "tests"
    folder.mkdir()
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(f"import os, pathlib, pytest\nhere = pathlib.Path({str(tmp_path)!r})\n{text}")
    r = subprocess.run([sys.executable, TOOL, *arguments, "tests"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    return r.returncode, (tmp_path / "build" / "pytest-summary.txt").read_text().strip(), r.stdout + r.stderr


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_runs_once(tmp_path, jobs):
    code, line, said = run(tmp_path, """
@pytest.mark.parametrize("n", range(200))
def test_it(n):
    with open(here / "ran", "a") as f:
        f.write(f"{os.path.basename(__file__)} {n}\\n")
    if n == 7:
        pytest.skip("seven")
""", f"--jobs={jobs}")
    assert (code, line) == (0, "398 passed, 2 skipped"), said
    assert sorted((tmp_path / "ran").read_text().splitlines()) == sorted(f"test_{f}.py {n}" for f in "ab" for n in range(200))


def test_a_failure_in_any_process(tmp_path):
    code, line, said = run(tmp_path, """
@pytest.mark.parametrize("n", range(100))
def test_it(n):
    assert n != 99
""", "--jobs=3")
    assert (code, line) == (1, "2 failed, 198 passed") and said.count("FAILED tests/") == 2, said


def test_a_process_that_dies(tmp_path):
    code, line, said = run(tmp_path, """
def test_it():
    if "test_b" in __file__:
        os._exit(0)
""", "--jobs=2")
    assert code == 1 and line == "a process died" and "left no result" in said


def test_processes_that_collect_different_tests(tmp_path):
    code, _, said = run(tmp_path, """
@pytest.mark.parametrize("n", [f"{os.getpid()}-{k}" for k in range(100)])
def test_it(n):
    pass
""", "--jobs=2")
    # Where one process comes first to everything, all is well with its own list.
    assert (code == 1 and "were collected" in said) or (code == 0 and "200 passed" in said), said


def test_no_tests_are_no_failure(tmp_path):
    code, line, said = run(tmp_path, "", "--jobs=2")
    assert (code, line) == (0, "no tests were found") and "no tests were found" in said
