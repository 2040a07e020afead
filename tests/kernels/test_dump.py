"""Every kernel is among the texts that are compiled for AMD GPUs and held to budgets: each file of src/pyflame/kernels is part of one, and
each function there is called by another or by a kernel's text. What is added without a text (tests/cpp/backends/gpu_problems.h) fails here.
PYFLAME_TEST_KERNELS names the C++ test program that writes the texts; no compiler is needed."""
import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import kernel_code  # noqa: E402

PROGRAM = os.environ.get("PYFLAME_TEST_KERNELS")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="PYFLAME_TEST_KERNELS is not set: no program that writes the kernels")
KERNELS = ROOT / "src" / "pyflame" / "kernels"
DEFINITION = re.compile(r"\bPF_DEVICE\b[^;{}()]*?\b(\w+)\s*\(")


@pytest.fixture(scope="module")
def headers():
    return {str(f.relative_to(KERNELS)): f.read_text() for f in sorted(KERNELS.rglob("*.h"))}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return [f.read_text() for f in kernel_code.sources(PROGRAM, tmp_path_factory.mktemp("sources"))]


def test_every_file_is_part_of_a_kernel(headers, texts):
    assert [name for name, text in headers.items() if not any(text in t for t in texts)] == []


def test_every_function_is_called(headers, texts):
    own = []  # what a kernel has beside the files
    for text in texts:
        for header in headers.values():
            text = text.replace(header, "")
        own.append(text)
    own, everything = "\n".join(own), "\n".join(re.sub(r"//.*", "", h) for h in headers.values())
    missing = []
    for name, text in headers.items():
        for function in sorted(set(DEFINITION.findall(text)) - {"operator"}):
            word = re.compile(rf"\b{function}\b")
            called = len(word.findall(everything)) > len([d for d in DEFINITION.findall(everything) if d == function])
            if not called and not word.search(own):
                missing.append(f"{name}: {function}")
    assert missing == []
