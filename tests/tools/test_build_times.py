"""The costs of a build by folder are those of Ninja's log."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_times  # noqa: E402

OBJECT = "CMakeFiles/pyflame.dir/src/pyflame/ops/{}.cpp.o"


def log(tmp_path, *steps):
    lines = ["# ninja log v5"] + ["\t".join(map(str, (start, end, 0, output, command))) for start, end, output, command in steps]
    (tmp_path / ".ninja_log").write_text("\n".join(lines) + "\n")
    return tmp_path / ".ninja_log"


def costs(path, cores=2):
    return {output: cost for build in build_times.builds(path) for output, cost in build_times.seconds(build, cores).items()}


def test_steps_beside_each_other_share_the_cores(tmp_path):
    path = log(tmp_path, (0, 4000, "a.o", "1"), (0, 4000, "b.o", "2"), (0, 4000, "c.o", "3"), (0, 8000, "d.o", "4"))
    assert costs(path) == {"a.o": 2, "b.o": 2, "c.o": 2, "d.o": 2 + 4}
    assert sum(costs(path, cores=1).values()) == 8


def test_builds_are_not_beside_each_other(tmp_path):
    first = [(0, 1000, "a.o", "1"), (0, 2000, "b.o", "2"), (0, 3000, "c.o", "3")]
    path = log(tmp_path, *first, (0, 500, "a.o", "1"))
    assert costs(path, cores=1) == {"a.o": 0.5, "b.o": 1, "c.o": 2}


def test_a_step_with_two_outputs_counts_once(tmp_path):
    assert costs(log(tmp_path, (5, 1005, "lib.so.1", "9"), (5, 1005, "lib.so", "9"))) == {"lib.so.1": 1}


@pytest.mark.parametrize("output, folder", [
    (OBJECT.format("norm"), "src/pyflame/ops"),
    ("cli/CMakeFiles/pyflame_cli.dir/main.cpp.o", "cli"),
    ("tests/cpp/CMakeFiles/pyflame_ops_test.dir/ops/view_test.cpp.o", "tests/cpp/ops"),
    ("CMakeFiles/pyflame_gpt.dir/src/apps/gpt/metrics.cpp.o", "src/apps/gpt"),
    ("python/CMakeFiles/nanobind-static.dir/__/.venv/lib/python3.11/site-packages/nanobind/src/nb_type.cpp.o", "nanobind/src"),
    ("bin/pyflame", "linking and the rest"),
])
def test_the_folder_of_an_output(output, folder):
    assert build_times.folder_of(output) == folder


def test_the_table(tmp_path):
    log(tmp_path, (0, 1000, OBJECT.format("norm"), "1"), (0, 3000, OBJECT.format("view"), "2"), (3000, 3250, "bin/pyflame", "3"))
    tool = [sys.executable, ROOT / "tools" / "build_times.py", tmp_path, "--cores", "2", "--files", "1"]
    said = subprocess.run(tool, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split() for line in said if line] == [
        ["seconds", "steps", "folder"],
        ["4.0", "2", "src/pyflame/ops"],
        ["0.2", "1", "linking", "and", "the", "rest"],
        ["4.2", "3", "in", "all,", "on", "2", "cores"],
        ["3.0", OBJECT.format("view")],
    ]


def test_what_is_no_log_is_refused(tmp_path):
    tool = [sys.executable, ROOT / "tools" / "build_times.py", tmp_path]
    r = subprocess.run(tool, capture_output=True, text=True)
    assert r.returncode == 1 and r.stderr.startswith("build_times: ") and ".ninja_log" in r.stderr
    (tmp_path / ".ninja_log").write_text("something else\n")
    r = subprocess.run(tool, capture_output=True, text=True)
    assert r.returncode == 1 and "got something else; expected '# ninja log v5'" in r.stderr
