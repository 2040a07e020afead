"""benchmarks/first_hour.py: its steps run in order where they should, and a step that fails ends it."""
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("first_hour", ROOT / "benchmarks/first_hour.py")
first_hour = importlib.util.module_from_spec(spec)
spec.loader.exec_module(first_hour)


def test_steps_run_in_order_and_programs_come_behind_the_first(tmp_path):
    machine = first_hour.Machine(tmp_path)
    rows = first_hour.measure(machine, [("make", "a folder", "mkdir place", (0,))], [("look", "the program", "test -s train.py && test -s own.py", (0,)), ("end", "nothing", "exit 3", (0, 3))], "cd place")
    assert [r["step"] for r in rows] == ["make", "look", "end"] and all(r["seconds"] >= 0 for r in rows)
    assert "import pyflame" in (tmp_path / "place/train.py").read_text() and "cpp_extension" in (tmp_path / "place/own.py").read_text()


def test_home_is_empty_and_settings_of_pyflame_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFLAME_THREADS", "1")
    said = first_hour.Machine(tmp_path).run("echo $HOME ${PYFLAME_THREADS:-none}").stdout.split()
    assert said == [str(tmp_path), "none"]


def test_commands_run_behind_another_command(tmp_path):
    said = first_hour.Machine(tmp_path, ["env", f"HOME={tmp_path}", "PLACE=inside"]).run("echo $PLACE; cat", "text").stdout
    assert said == "inside\ntext"


def test_a_step_that_fails_ends_the_tool(tmp_path):
    with pytest.raises(SystemExit, match=r"first_hour: broken failed; got exit code 4; expected \(0,\)\nwhy"):
        first_hour.measure(first_hour.Machine(tmp_path), [("broken", "what fails", "echo why; exit 4", (0,))], [("never", "", "true", (0,))], "true")


def test_the_clone_is_made_by_the_commands_of_the_page():
    page = (ROOT / "docs/install.md").read_text()
    typed = "\n".join(command for _, _, command, _ in first_hour.clone_steps("URL"))
    for command in ("tools/bootstrap.sh", ". .venv/bin/activate", "git clone"):
        assert command in page and command in typed
