"""A MIOpen that lists solutions and cannot run them: then PyFlame's own kernels compute the convolutions. And a MIOpen whose solutions run, for what it is
asked for: deterministic solutions or any."""
import contextlib
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

# RUNS: solutions that compute float32 convolutions, on the emulated device and in the stream's order, and say which ran. One for everything, and a
# quicker one where no determinism is asked for. WRONG: before it a quicker solution whose every result is a little too large; ONLY_WRONG: that one
# alone.
# Otherwise two solutions that do not run, a product of rocBLAS and a direct one. The numbers are MIOpen's own. What must not happen ends the process:
# a product where there is no rocBLAS, and float64, for which the real one lists solutions whose kernels do not compile.
MIOPEN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { float time; size_t workspace; unsigned long id; int algorithm; } Solution;
typedef struct { int shape[4], strides[4]; } Tensor;
typedef struct { int numbers[6]; } Convolution;  // padding, stride, dilation
static int anything;
static int made(void** handle) { *handle = &anything; return 0; }
static void* stream;
int miopenCreateWithStream(void** handle, void* s) { return made(handle); }
int miopenSetStream(void* handle, void* s) { stream = s; return 0; }
int miopenCreateTensorDescriptor(void** d) { *d = calloc(1, sizeof(Tensor)); return 0; }
int miopenDestroyTensorDescriptor(void* d) { free(d); return 0; }
int miopenSetTensorDescriptor(void* d, int type, int dims, const int* shape, const int* strides) {
  if (type == 6) abort();
  memcpy(((Tensor*)d)->shape, shape, 16);
  memcpy(((Tensor*)d)->strides, strides, 16);
  return 0;
}
int miopenCreateConvolutionDescriptor(void** d) { *d = calloc(1, sizeof(Convolution)); return 0; }
int miopenDestroyConvolutionDescriptor(void* d) { free(d); return 0; }
int miopenInitConvolutionDescriptor(void* d, int mode, int ph, int pw, int sh, int sw, int dh, int dw) {
  const int numbers[] = {ph, pw, sh, sw, dh, dw};
  memcpy(d, numbers, sizeof numbers);
  return 0;
}
int miopenSetConvolutionGroupCount(void* d, int groups) { return 0; }
static int deterministic;
int miopenSetConvolutionAttribute(void* d, int attribute, int value) { if (attribute == 1) deterministic = value; return 0; }
#ifdef RUNS
int hiprtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int hiprtcCompileProgram(void*, int, const char* const*);
int hiprtcGetCodeSize(void*, size_t*);
int hiprtcGetCode(void*, char*);
int hipModuleLoadData(void**, const void*);
int hipModuleGetFunction(void**, void*, const char*);
int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
// Image, weight, result: shapes and strides; padding, stride, dilation; which of the three is made; by how much it is too large.
typedef struct { Tensor t[3]; Convolution c; int made; float factor; } Call;
static const char* text =
  "struct Call { struct { int shape[4], strides[4]; } t[3]; int c[6]; int made; float factor; };\\n"
  "#define PF_KERNEL(threads) extern \\"C\\" void\\n"
  "PF_KERNEL(64) theirs(const float* x, const float* w, const float* y, float* to, Call p) {\\n"
  "  const int* s = p.t[p.made].shape;\\n"
  "  for (int i = (int)emulated.thread; i < s[0] * s[1] * s[2] * s[3]; i += 64) {\\n"
  "    const int e[4] = {i / (s[1] * s[2] * s[3]), i / (s[2] * s[3]) % s[1], i / s[3] % s[2], i % s[3]};\\n"
  "    double sum = 0;\\n"
  "    for (int n = 0; n < p.t[0].shape[0]; ++n) for (int o = 0; o < p.t[1].shape[0]; ++o) for (int c = 0; c < p.t[1].shape[1]; ++c)\\n"
  "      for (int a = 0; a < p.t[2].shape[2]; ++a) for (int b = 0; b < p.t[2].shape[3]; ++b)\\n"
  "        for (int u = 0; u < p.t[1].shape[2]; ++u) for (int v = 0; v < p.t[1].shape[3]; ++v) {\\n"
  "          const int at[3][4] = {{n, c, a * p.c[2] - p.c[0] + u * p.c[4], b * p.c[3] - p.c[1] + v * p.c[5]}, {o, c, u, v}, {n, o, a, b}};\\n"
  "          if (at[0][2] < 0 || at[0][2] >= p.t[0].shape[2] || at[0][3] < 0 || at[0][3] >= p.t[0].shape[3]) continue;\\n"
  "          const float* from[3] = {x, w, y};\\n"
  "          double term = 1;\\n"
  "          bool mine = true;\\n"
  "          for (int t = 0; t < 3; ++t) {\\n"
  "            long long place = 0;\\n"
  "            for (int d = 0; d < 4; ++d) place += (long long)at[t][d] * p.t[t].strides[d];\\n"
  "            if (t != p.made) term *= from[t][place];\\n"
  "            else for (int d = 0; d < 4; ++d) mine = mine && at[t][d] == e[d];\\n"
  "          }\\n"
  "          if (mine) sum += term;\\n"
  "        }\\n"
  "    long long place = 0;\\n"
  "    for (int d = 0; d < 4; ++d) place += (long long)e[d] * p.t[p.made].strides[d];\\n"
  "    to[place] = (float)(sum * p.factor);\\n"
  "  }\\n"
  "}\\n";
static void* kernel(void) {
  static void* function;
  if (function) return function;
  void *program, *module;
  const char* options[] = {"--offload-arch=gfx942"};
  size_t bytes = 0;
  hiprtcCreateProgram(&program, text, "theirs", 0, 0, 0);
  if (hiprtcCompileProgram(program, 1, options) || hiprtcGetCodeSize(program, &bytes)) abort();
  char* code = malloc(bytes);
  hiprtcGetCode(program, code);
  if (hipModuleLoadData(&module, code) || hipModuleGetFunction(&function, module, "theirs")) abort();
  return function;
}
// The tensors as the function is given them; `roles`: which is image, weight and result.
static int run(const int* roles, void* const* tensors, void* const* data, void* convolution, unsigned long id) {
  Call call;
  const void* from[3];
  for (int i = 0; i < 3; ++i) {
    memcpy(&call.t[roles[i]], tensors[i], sizeof(Tensor));
    from[roles[i]] = data[i];
  }
  memcpy(&call.c, convolution, sizeof call.c);
  call.made = roles[2];
  call.factor = id == 19 ? 1.001f : 1;
  void* to = data[2];
  void* parameters[] = {&from[0], &from[1], &from[2], &to, &call, 0};
  return hipModuleLaunchKernel(kernel(), 1, 1, 1, 64, 1, 1, 0, stream, parameters, 0);
}
#define RIGHT(at, ms) s[at] = (Solution){ms, 0, deterministic ? 20 : 21, 1}
#define WRONG_ONE(at, ms) s[at] = (Solution){ms, 0, 19, 1}
#if defined(ONLY_WRONG)
#define COUNT 1
#define LIST WRONG_ONE(0, 1)
#elif defined(WRONG)
#define COUNT 2
#define LIST WRONG_ONE(0, 1); RIGHT(1, 2)
#else
#define COUNT 1
#define LIST RIGHT(0, 1)
#endif
#define RUN(face, ...) \\
  printf("ran " face " %lu\\n", id); fflush(stdout); \\
  static const int roles[] = {__VA_ARGS__}; \\
  void* const tensors[] = {a, b, c}; \\
  void* const data[] = {(void*)x, (void*)y, z}; \\
  return run(roles, tensors, data, convolution, id)
#else
#define COUNT 2
#define LIST s[0] = (Solution){1, 0, 11, 0}; s[1] = (Solution){2, 0, 12, 1}
#define RUN(face, ...) if (id == 11) abort(); fprintf(stderr, "asked " face "\\n"); return 7
#endif
#define FACE(Face, ...) \\
  int miopenConvolution##Face##GetSolutionCount(void* h, void* a, void* b, void* convolution, void* c, size_t* count) { *count = COUNT; return 0; } \\
  int miopenConvolution##Face##GetSolution(void* h, void* a, void* b, void* convolution, void* c, size_t most, size_t* count, Solution* s) { \\
    LIST; *count = COUNT; return 0; } \\
  int miopenConvolution##Face##Immediate(void* h, void* a, const void* x, void* b, const void* y, void* convolution, void* c, void* z, \\
                                         void* workspace, size_t bytes, unsigned long id) { RUN(#Face, __VA_ARGS__); }
FACE(Forward, 1, 0, 2) FACE(BackwardData, 2, 1, 0) FACE(BackwardWeights, 2, 0, 1)
"""


def with_miopen(program, tmp_path, *flags):
    libraries = tmp_path / "libraries"
    shutil.copytree(program.libraries, libraries)
    source = tmp_path / "miopen.c"
    source.write_text(MIOPEN)
    command = ["cc", *flags, "-shared", "-fPIC", "-o", pathlib.Path(libraries) / "libMIOpen.so.1", source]
    if "-DRUNS" in flags:
        command += [f"-L{libraries}", "-lamdhip64", "-lhiprtc"]
    subprocess.run(command, check=True)
    program.libraries = libraries


# A search compares with PyFlame's own kernel where a solution is slow, as each is in the emulator.
OWN_IS_SLOW, THEIRS_IS_SLOW = ({"PYFLAME_CONV_SEARCH_MS": "1000", "PYFLAME_EMULATOR_SLOW_KERNEL": f"{name}:50"} for name in ("pf_conv", "theirs"))

CONVOLUTION = """
def results(device):
    image, weight = (pf.arange(0, n, dtype='float32').reshape(s).sin().to(device) for n, s in ((72, (1, 2, 6, 6)), (36, (2, 2, 3, 3))))
    for t in (image, weight):
        t.requires_grad = True
    result = pf.conv2d(image, weight, padding=1)
    (result * result).sum().backward()
    return [t.to('cpu').reshape(-1) for t in (result.detach(), image.grad, weight.grad)]

for _ in range(2):
    for got, want in zip(results('rocm'), results('cpu')):
        assert (got - want).abs().max().item() <= 1e-5 * want.abs().max().item()
print('right')
"""


@pytest.mark.parametrize("only", [False, True])
def test_a_fast_solution_that_is_wrong(program, tmp_path, only):
    """It is tried and never used. A slower solution is used, or a kernel of PyFlame's own."""
    with_miopen(program, tmp_path, "-DRUNS", "-DONLY_WRONG" if only else "-DWRONG")
    process = program.start(CONVOLUTION, **OWN_IS_SLOW)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "right" in out, out + err
    assert err.count("computes a wrong result") == 3, err  # once for each of the three convolutions
    for face in ("Forward", "BackwardData", "BackwardWeights"):
        assert f"ran {face} 19" in out
        assert (f"ran {face} 20" in out) == (not only)
        assert [line for line in out.splitlines() if line.startswith(f"ran {face}")][-1].endswith("19" if only else "20")


def test_what_a_search_found_is_kept(program, tmp_path):
    """The second process tries nothing: the wrong solution never runs in it. Without the file the search is made anew."""
    with_miopen(program, tmp_path, "-DRUNS", "-DWRONG")
    assert "ran Forward 19" in program.run(CONVOLUTION, **OWN_IS_SLOW)
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = db.execute("select problem, entry, sound, note from measurements where op = 'convolution plan' and entry like 'solution%' order by problem, sound").fetchall()
    assert len(found) == 6 and all(problem.startswith("miopen conv2d") and problem.endswith("searched for 1000 ms") for problem, *_ in found)
    for wrong, right in zip(found[::2], found[1::2]):
        assert wrong[0] == right[0] and wrong[1:3] == ("solution=19,contiguous", 0) and "expected" in wrong[3]
        assert right[1:] == ("solution=20,contiguous", 1, "")
    again = program.run(CONVOLUTION, **OWN_IS_SLOW)
    assert "right" in again and "ran BackwardData 20" in again and " 19\n" not in again
    assert "ran Forward 19" in program.run(CONVOLUTION, **OWN_IS_SLOW, PYFLAME_TUNED="0")


def test_plans_are_measured_and_forced(program, tmp_path):
    """The plans of a library are configurations of its entry. The wrong one is noted and does not compute."""
    with_miopen(program, tmp_path, "-DRUNS", "-DWRONG")
    program.run(CONVOLUTION, **OWN_IS_SLOW, PYFLAME_TUNE_BUDGET_MS="60000")
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = {(op, entry): sound for op, entry, sound in db.execute("select op, entry, sound from measurements")}
    for op in ("conv2d_grad_input", "conv2d_grad_weight"):  # the forward one is fused with what follows
        assert found[op, "gpu.dnn"] == 1 and found[op, "gpu.conv"] == 1 and found[op, "gpu.dnn:solution=19,contiguous"] == 0
    forced = program.start(CONVOLUTION, **OWN_IS_SLOW, PYFLAME_FORCE="conv2d_grad_input:gpu.dnn:solution=7,contiguous")
    _, err = forced.communicate(timeout=300)
    assert forced.returncode != 0 and "miopen has no such plan for this convolution; got 'solution=7,contiguous'" in err


# A find-db of the three convolutions of CONVOLUTION. Solution 19 is ConvOclBwdWrW2<2>, 20 ConvOclBwdWrW2<4> and 85 ConvDirectNaiveConvFwd; the one that is in no list here.
THEIRS = "".join(f"2-6-6-3x3-2-6-6-1-1x1-1x1-1x1-0-NCHW-FP32-{letter}=" + ";".join(f"{solver}:0.01,0,miopenConvolution{algorithm}AlgoDirect" for solver in (
    "ConvOclBwdWrW2<2>", "ConvOclBwdWrW2<4>", "ConvDirectNaiveConvFwd")) + "\n" for letter, algorithm in (("F", "Fwd"), ("B", "BwdData"), ("W", "BwdWeights")))


def test_a_find_db_is_checked_and_written(program, tmp_path):
    """The wrong solution and the one that does not exist are refused with the reason. What was right is in the file that is written, and is read again."""
    with_miopen(program, tmp_path, "-DRUNS", "-DWRONG")
    (tmp_path / "gfx942130.HIP.3_3_0.ufdb.txt").write_text(THEIRS)
    command = [sys.executable, "-m", "pyflame.tuning", "--import", "gfx942130.HIP.3_3_0.ufdb.txt", "--device", "rocm", "--budget", "60", "--export", "miopen=ours.ufdb.txt"]
    ran = subprocess.run(command, env=program.environment(**OWN_IS_SLOW), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    told = [line for line in ran.stdout.splitlines() if line.startswith("gfx942130.HIP.3_3_0.ufdb.txt:")]
    assert len(told) == 9, ran.stdout + ran.stderr

    for wrong, right, missing in zip(told[::3], told[1::3], told[2::3]):
        assert "solution=19,contiguous: refused: its result differs" in wrong
        assert "solution=20,contiguous: " in right and " us" in right and "refused" not in right
        assert "solution=85,contiguous: refused: conv2d: miopen has no such plan" in missing
    assert "3 convolutions are in ours.ufdb.txt" in ran.stderr
    lines = (tmp_path / "ours.ufdb.txt").read_text().splitlines()
    assert sorted(line.partition("=")[0] for line in lines) == sorted(line.partition("=")[0] for line in THEIRS.splitlines())
    assert all(re.fullmatch(r"ConvOclBwdWrW2<4>:[0-9.e+-]+,[0-9]+,miopenConvolution\w+AlgoDirect", line.partition("=")[2]) for line in lines), lines


def test_a_slow_solution_gives_way_to_the_own_kernel(program, tmp_path):
    """Also in the next process, which tries nothing. Without a search the library's choice is taken."""
    with_miopen(program, tmp_path, "-DRUNS")
    explained = CONVOLUTION + "print(pf.explain(lambda: results('rocm')))\n"
    first = program.run(explained, **THEIRS_IS_SLOW)
    assert "right" in first and re.search(r"refused by gpu.dnn: the fastest plan of miopen took [0-9.]+ us, PyFlame's own kernel [0-9.]+ us", first), first
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        assert sorted(e for e, in db.execute("select entry from measurements where op = 'convolution plan'")) == ["gpu.conv"] * 3 + ["solution=20,contiguous"] * 3
    again = program.run(explained, **THEIRS_IS_SLOW)
    assert "right" in again and "ran " not in again and "refused by gpu.dnn: PyFlame's own kernel was faster than the plans of miopen" in again, again
    assert "ran BackwardData 20" in program.run(CONVOLUTION, **{**THEIRS_IS_SLOW, "PYFLAME_CONV_SEARCH_MS": "0"})


@pytest.mark.parametrize("n", range(2, 9))
def test_a_solution_that_cannot_be_tried(program, tmp_path, n):
    """There is no memory for the test, and the solution is wrong. It is not used."""
    with_miopen(program, tmp_path, "-DRUNS", "-DONLY_WRONG")
    assert "right" in program.run(CONVOLUTION, PYFLAME_CONV_SEARCH_MS="1000", PYFLAME_EMULATOR_FAIL=f"allocate:{n}")


@pytest.mark.parametrize("budget", ["0", "30"])
def test_solutions_that_do_not_run(program, tmp_path, budget):
    with_miopen(program, tmp_path)
    process = program.start("""
def results(device, dtype):
    image, weight = (pf.arange(0, n, dtype='float32').reshape(s).sin().to(dtype).to(device) for n, s in ((1200, (2, 6, 10, 10)), (432, (8, 6, 3, 3))))
    for t in (image, weight):
        t.requires_grad = True
    result = pf.conv2d(image, weight, padding=1)
    (result * result).sum().backward()
    return [t.to('cpu').reshape(-1) for t in (result.detach(), image.grad, weight.grad)]

for dtype in ('float32', 'float64'):
    for got, want in zip(results('rocm', dtype), results('cpu', dtype)):
        assert (got - want).abs().max().item() <= 1e-5 * want.abs().max().item()
print('right')
""", PYFLAME_CONV_SEARCH_MS=budget)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "right" in out, f"{process.returncode}\n{out}\n{err}"
    for face in ("Forward", "BackwardData", "BackwardWeights"):  # or nothing was tested
        assert f"asked {face}" in err


def test_what_it_is_asked_for_follows_the_mode(program, tmp_path):
    """A plan or program of one mode is never used in the other. Work whose result may vary is never replayed, because its replay cannot be checked."""
    with_miopen(program, tmp_path, "-DRUNS")
    out = program.run("""
image, weight = (pf.ones(*shape).to('rocm') for shape in ((1, 2, 6, 6), (2, 2, 3, 3)))
for t in (image, weight):
    t.requires_grad = True
def step():
    image.grad = weight.grad = None
    y = pf.conv2d(image, weight, padding=1)
    y.backward(y.detach())
    pf.synchronize()
for mode in (True, False, True, False):
    pf.use_deterministic_algorithms(mode)
    step()  # plans are looked for once
    print('mode', mode, flush=True)
    text = pf.explain(step)
    print('not deterministic:', text.count('gpu.dnn, not deterministic'), 'of', text.count(': gpu.dnn'), flush=True)
for mode in (True, False):
    pf.use_deterministic_algorithms(mode)
    for _ in range(8):
        step()
    print('mode', mode, 'then', [line for line in pf.explain(step).splitlines() if 'launched step' in line or 'replayed' in line], flush=True)
""", PYFLAME_CONV_SEARCH_MS="0", PYFLAME_GPU_GRAPHS="1")
    blocks = [b.splitlines() for b in out.split("mode ")[1:]]
    assert [b[0] for b in blocks[:4]] == ["True", "False", "True", "False"], out
    for block in blocks[:4]:
        solution, steps = ("20", "0 of 3") if block[0] == "True" else ("21", "3 of 3")
        ran = [line.split() for line in block if line.startswith("ran")]
        first = ran[:3]  # of the explained step; then those of the next mode
        assert sorted(first) == [["ran", "BackwardData", solution], ["ran", "BackwardWeights", solution], ["ran", "Forward", solution]], out
        assert f"not deterministic: {steps}" in block, out
    assert "not deterministic: a replay cannot be checked" in out.split("mode False then")[1]
    assert "replayed" in out.split("mode True then")[1].split("mode")[0]
