"""`make demo` compiles what it uses: neither a GPU backend nor a tool."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
pytestmark = pytest.mark.skipif(not (BUILD / "build.ninja").is_file() or not shutil.which("ninja"), reason="build/release is not configured by Ninja")


def sources(target):
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True, check=True).stdout
    return {os.path.relpath(f, ROOT) for unit in re.findall(r" -c (\S+\.c(?:pp|xx))", said) for f in included(pathlib.Path(unit))}


def included(unit):
    """The sources in a compile: those of a folder that CMake joined for a unity build, or the one itself."""
    return re.findall(r'#include "(\S+\.cpp)"', unit.read_text()) if "/Unity/" in str(unit) else [unit]


def test_the_demo_builds_what_it_uses():
    demo, program = sources("pyflame_gpt_cpu"), sources("pyflame_cli")
    foreign = re.compile(r"src/pyflame/backends/(gpu|rocm|cuda)/|src/tools/(?!view/)|tests/|python/")
    assert not [s for s in demo if foreign.match(s)]
    assert {"src/pyflame/ops/elementwise.cpp", "src/pyflame/backends/cpu/cpu_backend.cpp", "src/apps/gpt/train.cpp", "cli/gpt_main.cpp"} <= demo
    assert any(s.startswith("src/pyflame/backends/gpu/") for s in program) and any(s.startswith("src/tools/inspect/") for s in program)
    assert len(demo) < 0.6 * len(program)
