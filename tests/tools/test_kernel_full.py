"""`make rocm-full` (tools/kernel_full.py) over a compiler that is not there: what is left out is said, what was compiled is not compiled
again, a changed text and a failure are, and a kernel that spills is a problem."""
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_code  # noqa: E402
import kernel_full  # noqa: E402

FIGURES = {"vgpr": 8, "agpr": 0, "lds": 0, "waves_per_simd": 8, "load": 16, "store": 16, "matrix": 1, "vgpr_spill": 0, "sgpr_spill": 0, "scratch": 0}
ARGUMENTS = ["--rocm", "rocm", "--program", "program", "--pyflame", "pyflame", "--folder"]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """texts: name -> text, "error" does not compile, "spill" spills, "" has no kernel; compiled: what the compiler was asked for."""

    class Machine:
        texts, compiled = {"one": "a", "two": "b", "none": ""}, []

        def run(self, *more):
            self.compiled.clear()
            return kernel_full.main([*ARGUMENTS, str(tmp_path / "notes"), *more])

    class Rocm:
        def __init__(self, root):
            pass

        def knows(self, gfx):
            return gfx != "gfx940"

        def version(self):
            return "clang 22"

        def command(self, gfx):
            return ["clang", gfx]

    machine = Machine()

    def sources(program, folder):
        for name, text in machine.texts.items():
            pathlib.Path(folder, f"{name}.hip").write_text(text)
        return sorted(pathlib.Path(folder).glob("*.hip"))

    def compile_all(rocm, plan, folder):
        failures = []
        for gfx, files in plan.items():
            pathlib.Path(folder, gfx).mkdir()
            for f in files:
                machine.compiled.append((gfx, f.stem))
                if f.read_text() == "error":
                    failures.append(f"{gfx} {f.stem}: error")
                else:
                    pathlib.Path(folder, gfx, f"{f.stem}.co").write_text(f.read_text())
        return failures

    def read(pyflame, folder):
        return {f.stem: {f.parent.name: dict(FIGURES, sgpr_spill=3 if f.read_text() == "spill" else 0)}
                for f in pathlib.Path(folder).glob("*/*.co") if f.read_text()}

    monkeypatch.setattr(kernel_code, "Rocm", Rocm)
    monkeypatch.setattr(kernel_code, "architectures", lambda pyflame: {g: {"matrix": "none"} for g in ("gfx906", "gfx940", "gfx1100", "gfx11-generic")})
    for f in (sources, compile_all, read):
        monkeypatch.setattr(kernel_code, f.__name__, f)
    return machine


def test_a_run_goes_on_where_another_ended(machine, capsys):
    assert machine.run() == 0
    assert sorted(machine.compiled) == sorted((g, n) for g in ("gfx906", "gfx1100") for n in machine.texts)
    said = capsys.readouterr().out
    assert "does not know: gfx940" in said and "gfx11-generic" in said and "4 code objects, 0 problems" in said
    assert machine.run() == 0 and machine.compiled == []
    assert "4 code objects, 0 problems" in capsys.readouterr().out
    machine.texts["two"] = "c"
    assert machine.run("--archs", "gfx906") == 0 and machine.compiled == [("gfx906", "two")]
    assert machine.run() == 0 and machine.compiled == [("gfx1100", "two")]


def test_what_fails_or_spills_is_a_problem_each_time(machine, capsys, tmp_path):
    machine.texts = {"one": "error", "two": "spill"}
    for _ in range(2):
        assert machine.run("--archs", "gfx906") == 1
        said = capsys.readouterr().out
        assert "gfx906 one: error" in said and "two on gfx906: 3 spilled SGPRs" in said and "2 problems" in said
        assert ("gfx906", "one") in machine.compiled
    assert machine.compiled == [("gfx906", "one")]
    assert list(json.loads((tmp_path / "notes" / "gfx906.json").read_text())) == ["two"]


def test_a_rocm_without_a_compiler_is_said(tmp_path):
    with pytest.raises(SystemExit, match="no compiler for AMD's GPUs; expected .*clang\\+\\+; hint: .*make rocm"):
        kernel_code.Rocm(tmp_path)
