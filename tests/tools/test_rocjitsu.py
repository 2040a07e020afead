"""Runs on AMD's functional emulator: what a known defect of the emulator may excuse, and that nothing else is excused. Needs no emulator."""
import fnmatch
import pathlib
import re
import sys

import pytest

from pyflame.testing.cases import all_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import rocjitsu  # noqa: E402

BROKEN = "test_values[log1p-float32]"  # by packed-f32, on gfx942


def outcome(name, what):
    return rocjitsu.Result(name, what, 1.0, "got 1\nexpected 2" if what == "fail" else "")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """run({test: outcome}, *arguments): exit code and output of a run on gfx942 with these outcomes."""
    (tmp_path / "lib.so").touch()

    def call(outcomes, *arguments, target="gfx942"):
        monkeypatch.setattr(rocjitsu.kernel_code, "Rocm", lambda root: None)
        monkeypatch.setattr(rocjitsu, "run_target", lambda a, rocm, target, folder: (outcome(*item) for item in outcomes.items()))
        code = rocjitsu.main(["--lib", str(tmp_path / "lib.so"), "--configs", str(tmp_path), "--targets", target, *arguments])
        return code, capsys.readouterr().out

    return call


def test_nothing_is_excused_unasked(run):
    code, said = run({"A.Good": "pass", BROKEN: "fail"})
    assert code == 1 and "gfx942: 1 fail, 1 pass" in said and "| expected 2" in said
    assert "If this emulator has that defect: --defect packed-f32" in said


def test_a_stated_defect_excuses_its_tests(run):
    code, said = run({"A.Good": "pass", BROKEN: "fail"}, "--defect", "packed-f32")
    assert code == 0 and "gfx942: 1 excused, 1 pass" in said and f"{BROKEN}  (packed-f32: v_pk_" in said


def test_it_excuses_no_other_test_and_no_other_target(run):
    assert run({"A.Good": "pass", BROKEN: "fail", "A.Bad": "fail"}, "--defect", "packed-f32")[0] == 1
    assert run({"A.Good": "pass", BROKEN: "fail"}, "--defect", "s-cls")[0] == 1
    assert run({"A.Good": "pass", BROKEN: "fail"}, "--defect", "packed-f32", target="gfx1100")[0] == 1


@pytest.mark.parametrize("what", ["crash", "time-out"])
def test_it_excuses_wrong_results_only(run, what):
    code, said = run({"A.Good": "pass", BROKEN: what}, "--defect", "packed-f32")
    assert code == 1 and f"1 {what}" in said and "excused" not in said


def test_an_excused_test_that_passes_is_reported(run):
    code, said = run({BROKEN: "fail", "test_values[log1p-float64]": "pass"}, "--defect", "packed-f32")
    assert code == 0 and "test_values[log1p-float64]  (passes, although packed-f32 was stated)" in said
    assert "packed-f32 was stated: 1 of its tests failed, 1 passed" in said


def test_a_defect_that_breaks_nothing_must_not_be_stated(run):
    code, said = run({BROKEN: "pass", "A.Good": "pass"}, "--defect", "packed-f32")
    assert code == 1 and "this emulator does not have packed-f32; leave it out" in said
    assert run({"A.Good": "pass"}, "--defect", "packed-f32")[0] == 0  # none of its tests was run


def test_a_run_without_results_fails(run):
    assert run({})[0] == 1 and run({"A.Good": "skip"})[0] == 1


def test_only_known_defects_can_be_stated(run):
    with pytest.raises(SystemExit):
        run({}, "--defect", "everything")


def test_each_defect_names_tests_that_exist():
    cpp = {f"{a}.{b}" for f in (ROOT / "tests/cpp/backends").glob("*.cpp") for a, b in re.findall(r"^TEST_F\((\w+), (\w+)\)", f.read_text(), re.M)}
    names = cpp | {f"{test}[{c.name}]" for c in all_cases() for test in ("test_values", "test_second_gradient")}
    for name, defect in rocjitsu.DEFECTS.items():
        for pattern in defect.tests:
            assert fnmatch.filter(names, pattern), f"{name}: no test is called {pattern}"


@pytest.mark.parametrize("given, wanted", [("104", "106"), ("128", "128")])
def test_a_wave_has_all_its_scalar_registers(given, wanted):
    """Code that needs many registers uses s104 and s105, which the emulator's configurations leave out."""
    unit = {"name": "cu[0:16]", "type": "compute_unit", "config": [{"key": "sgprs_per_wf", "value": given}, {"key": "vgprs_per_wf", "value": "256"}]}
    root = {"name": "soc", "children": [{"name": "xcd[0:1]", "children": [{"name": "se[0:6]", "children": [unit]}]}]}
    config = rocjitsu.adapt({"vm": {"gpu": {"device": {"simd_per_cu": 2}}}, "topology": {"root": root}}, cus=2)
    unit = config["topology"]["root"]["children"][0]["children"][0]["children"][0]
    assert unit["name"] == "cu[0:2]"
    assert {e["key"]: e["value"] for e in unit["config"]} == {"sgprs_per_wf": wanted, "vgprs_per_wf": "256"}
