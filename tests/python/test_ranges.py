"""Ranges for the vendors' profilers. A small library, built here, stands for roctx and NVTX and writes down what it is told."""
import ctypes
import os
import shutil
import subprocess
import sys

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to build the library with")

LOG = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static void say(const char* what, const char* name) {
  FILE* f = fopen(getenv("RANGES_LOG"), "a");
  fprintf(f, "%s %s\n", what, name);
  fclose(f);
}
static int depth = 0;
static int push(const char* m) { say("push", m); return depth++; }
static int pop(void) { say("pop", ""); return --depth; }
static void mark(const char* m) { say("mark", m); }
static uint64_t start(const char* m) { say("start", m); return 42; }
static void stop(uint64_t id) { say(id == 42 ? "stop" : "stop of another", ""); }
"""
ROCTX = LOG + r"""
int roctxRangePushA(const char* m) { return push(m); }
int roctxRangePop(void) { return pop(); }
void roctxMarkA(const char* m) { mark(m); }
uint64_t roctxRangeStartA(const char* m) { return start(m); }
void roctxRangeStop(uint64_t id) { stop(id); }
"""
NVTX2 = ROCTX.replace("roctxRangeStop", "nvtxRangeEnd").replace("roctx", "nvtx")
# A tool's side of NVTX 3, after the interface's description: it gets the table of the core module and fills it in.
NVTX3 = LOG + r"""
typedef void (*function)(void);
struct callbacks { size_t size; int (*table)(unsigned module, function*** table, unsigned* size); };
struct version { size_t size; uint32_t version, reserved; void (*set)(uint32_t); };
int InitializeInjectionNvtx2(const void* (*get)(uint32_t)) {
  const struct callbacks* c = get(1);
  const struct version* v = get(3);
  function** table;
  unsigned size;
  if (!c || c->size < sizeof *c || !v || v->size < sizeof *v || v->version < 3 || get(7) || !c->table(1, &table, &size)) return 0;
  v->set(3);
  if (size != 16 || table[0] || table[16] || c->table(9, &table, &size)) return 0;
  c->table(1, &table, &size);
  *table[2] = (function)mark;
  *table[5] = (function)start;
  *table[7] = (function)stop;
  *table[9] = (function)push;
  *table[11] = (function)pop;
  return c->table(5, &table, &size) && size == 16;
}
"""


@pytest.fixture
def library(tmp_path):
    """library(source, file name): its path."""

    def build(source, name):
        path = tmp_path / name
        (tmp_path / "library.c").write_text(source)
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", path, tmp_path / "library.c"], check=True)
        return path

    return build


@pytest.fixture
def child(tmp_path):
    """child(program, **variables): the lines that the library wrote while the program ran, and the program's output."""

    def run(program, **variables):
        log = tmp_path / "log"
        log.write_text("")
        env = {k: v for k, v in os.environ.items() if k not in ("NVTX_INJECTION64_PATH", "ROCP_TOOL_LIBRARIES", "HSA_TOOLS_LIB", "PYFLAME_EMIT_RANGES")}
        env |= {"RANGES_LOG": str(log), "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"} | variables
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines(), done

    return run


TRAIN = """
import pyflame as pf
model = pf.nn.Sequential(pf.nn.Linear(8, 4), pf.nn.ReLU())
optimizer = pf.optim.SGD(model.parameters(), lr=0.1)
with pf.profiler.record_function("forward"):
    loss = model(pf.ones(2, 8)).sum()
loss.backward()
optimizer.step()
print(loss.item())
"""


def check_training(log):
    pushed = [line[5:] for line in log if line.startswith("push ")]
    for name in ("forward", "Sequential", "Linear", "ReLU", "backward", "optimizer step", "run program"):
        assert name in pushed, pushed
    at = {name: pushed.index(name) for name in ("forward", "Sequential", "Linear")}
    assert at["forward"] < at["Sequential"] < at["Linear"]
    assert any("matmul" in p and "<string>" in p for p in pushed), pushed  # a step: implementation, ops, line
    depth = 0
    for line in log:
        depth += line.startswith("push ") - line.startswith("pop")
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize("name,source", [("librocprofiler-sdk-roctx.so.1", ROCTX), ("libnvToolsExt.so.1", NVTX2)])
def test_ops_modules_and_ranges_reach_a_library_when_asked(library, child, name, source):
    library(source, name)
    log, done = child(TRAIN, PYFLAME_EMIT_RANGES="1")
    check_training(log)
    assert done.stderr == ""


def test_nothing_is_passed_on_unless_a_profiler_is_there(library, child):
    path = library(ROCTX, "librocprofiler-sdk-roctx.so.1")
    assert child(TRAIN)[0] == []
    assert child(TRAIN, ROCP_TOOL_LIBRARIES="x", PYFLAME_EMIT_RANGES="0")[0] == []
    check_training(child(TRAIN, ROCP_TOOL_LIBRARIES="x")[0])
    before = os.environ.get("LD_PRELOAD")  # a sanitizer, which must come first
    check_training(child(TRAIN, LD_PRELOAD=f"{before}:{path}" if before else str(path))[0])


def test_a_tool_of_nvtx_3_is_attached_by_its_variable(library, child):
    path = library(NVTX3, "libtool.so")
    check_training(child(TRAIN, NVTX_INJECTION64_PATH=str(path))[0])
    # A library that is none, or does not exist, is named, and the program runs.
    other = library("int nothing;", "libother.so")
    for bad in (other, "/does/not/exist.so"):
        log, done = child(TRAIN, NVTX_INJECTION64_PATH=str(bad))
        assert log == [] and "NVTX_INJECTION64_PATH" in done.stderr and str(bad) in done.stderr


def test_a_region_of_a_program(library, child):
    library(ROCTX, "librocprofiler-sdk-roctx.so.1")
    log, _ = child("""
import pyflame as pf
from pyflame.autograd.profiler import emit_nvtx
def work(name):
    with pf.profiler.record_function(name):
        return (pf.ones(3) + 1).sum().item()
work("before")
with pf.profiler.emit_ranges():
    work("inside")
    with emit_nvtx(record_shapes=True):
        work("nested")
    work("still inside")
with pf.profiler.emit_ranges(enabled=False):
    work("disabled")
pf.profiler.emit_ranges()(work)("decorated")
work("after")
try:
    with pf.profiler.emit_ranges():
        raise KeyError
except KeyError:
    work("after an error")
""")
    named = [line[5:] for line in log if line[5:] in ("before", "inside", "nested", "still inside", "disabled", "decorated", "after", "after an error")]
    assert named == ["inside", "nested", "still inside", "decorated"]


def test_ranges_of_the_program_itself_need_no_switch(library, child):
    library(ROCTX, "librocprofiler-sdk-roctx.so.1")
    log, done = child("""
import pyflame as pf
nvtx = pf.cuda.nvtx
print(nvtx.range_push("a"), nvtx.range_push("b"), nvtx.range_pop(), nvtx.range_pop())
nvtx.mark("here")
r = nvtx.range_start("long")
nvtx.range_end(r)
nvtx.range_end(r)
nvtx.range_end(12345)
with nvtx.range("step {} of {n}", 1, n=2):
    pass
""")
    assert log == ["push a", "push b", "pop ", "pop ", "mark here", "start long", "stop ", "push step 1 of 2", "pop "] and done.stdout == "0 1 1 0\n"


def test_without_a_library(child):
    program = """
import pyflame as pf
if pf._C._markers_open():
    print("there is one")
    raise SystemExit
assert pf.cuda.nvtx.range_push("a") == -1 and pf.cuda.nvtx.range_pop() == -1 and pf.cuda.nvtx.range_start("a") == 0
pf.cuda.nvtx.range_end(0); pf.cuda.nvtx.mark("a")
try:
    with pf.profiler.emit_ranges(): pass
except RuntimeError as e:
    print(e)
"""
    _, done = child(program)
    if done.stdout == "there is one\n":
        pytest.skip("this machine has roctx or NVTX")
    assert "emit_ranges: no library takes ranges" in done.stdout and "hint" in done.stdout
    assert "PYFLAME_EMIT_RANGES is 1, but neither" in child("import pyflame", PYFLAME_EMIT_RANGES="1")[1].stderr


def test_a_profile_and_ranges_at_once(library, child):
    library(ROCTX, "librocprofiler-sdk-roctx.so.1")
    log, done = child("""
import pyflame as pf
with pf.profiler.emit_ranges(), pf.profiler.profile() as prof:
    with pf.profiler.record_function("both"):
        (pf.ones(3) + 1).sum().item()
    prof.step()
print("both" in [e.name for e in prof.events()])
""")
    assert "push both" in log and "push ProfilerStep#0" in log and done.stdout == "True\n"


def test_rocms_own_library(child):
    """The real library has a callback for what a tool would be told."""
    folder = "/opt/pyflame-rocm/usr/lib/x86_64-linux-gnu"
    path = os.path.join(os.environ.get("ROCM_LIBRARIES", folder), "libroctx64.so.4")
    try:
        ctypes.CDLL(path)
    except OSError as e:
        pytest.skip(f"ROCm's roctx is not here: {e}")
    _, done = child(f"""
import ctypes
class Data(ctypes.Structure):
    _fields_ = [("message", ctypes.c_char_p), ("id", ctypes.c_int)]
said = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(Data))
def callback(domain, operation, data):
    said.append((operation, data.contents.message if operation < 2 else None))
    return 0
ctypes.CDLL("{path}", ctypes.RTLD_GLOBAL).roctxRegisterTracerCallback(callback)
import pyflame as pf
pf.cuda.nvtx.mark("here")
with pf.profiler.emit_ranges(), pf.profiler.record_function("region"):
    pass
assert (0, b"here") in said and (1, b"region") in said and any(operation == 2 for operation, _ in said), said
""")


def test_with_one_op_in_a_window_its_range_is_inside_of_its_modules(library, child):
    library(ROCTX, "librocprofiler-sdk-roctx.so.1")
    log, _ = child("import pyflame as pf\nlayer = pf.nn.Linear(8, 4)\nx = pf.ones(2, 8)\nwith pf.profiler.emit_ranges():\n    layer(x)", PYFLAME_WINDOW="1")
    open_ranges, around = [], None
    for line in log:
        if line.startswith("push "):
            if "matmul" in line:
                around = list(open_ranges)
            open_ranges.append(line[5:])
        else:
            open_ranges.pop()
    assert around is not None and around[0] == "Linear", log
