"""NVIDIA's run-time compiler takes the kernels' texts, with the options that the program gives it: one text of each kernel. It needs NVRTC (a CUDA
toolkit, or the package nvidia-cuda-nvrtc) and no GPU. PYFLAME_TEST_KERNELS names the C++ test program that writes the texts."""
import ctypes
import glob
import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import kernel_code  # noqa: E402

PROGRAM = os.environ.get("PYFLAME_TEST_KERNELS")
DTYPE = re.compile(r"_(bfloat16|float16|float32|float64|int64|int32|uint8|bool|complex64|complex128)\b|_(?=$)")


def nvrtc():
    places = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", *sorted(glob.glob("/usr/local/cuda*/lib*/libnvrtc.so*"), reverse=True),
              *(os.path.join(folder, name) for folder in sys.path for name in ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


LIBRARY = nvrtc()
pytestmark = [pytest.mark.skipif(not PROGRAM, reason="PYFLAME_TEST_KERNELS is not set: no program that writes the kernels"),
              pytest.mark.skipif(LIBRARY is None, reason="NVRTC was not found")]


def options():
    """Those of the program for an H100."""
    text = (ROOT / "src/pyflame/backends/gpu/jit/rtc.cpp").read_text(encoding="utf-8")
    [line] = re.findall(r'return \{"--gpu-architecture=" \+ arch,([^}]*)\}', text)
    return [b"--gpu-architecture=sm_90", *(o.encode() for o in re.findall(r'"([^"]+)"', line))]


def trouble(text):
    """What the compiler says against a text; empty: it compiles."""
    program, words = ctypes.c_void_p(), options()
    assert LIBRARY.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cpp", 0, None, None) == 0
    try:
        if LIBRARY.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)) == 0:
            return ""
        size = ctypes.c_size_t()
        LIBRARY.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        LIBRARY.nvrtcGetProgramLog(program, log)
        return log.value.decode(errors="replace")
    finally:
        LIBRARY.nvrtcDestroyProgram(ctypes.byref(program))


def test_an_error_is_found():
    assert "undefined" in trouble("__global__ void f() { nothing(); }") and trouble("__global__ void f() {}") == ""


def test_each_kernel_compiles(tmp_path):
    one_each = {}
    for file in kernel_code.sources(PROGRAM, tmp_path):
        one_each.setdefault(DTYPE.sub("", file.stem), file)
    assert len(one_each) > 300
    wrong = {name: said for name, file in one_each.items() if (said := trouble(file.read_text(encoding="utf-8")))}
    assert not wrong, "\n".join(f"{name}: {said[:300]}" for name, said in wrong.items())
