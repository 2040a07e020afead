"""A MIOpen that lists solutions and cannot run them: convolutions are PyFlame's own then, and right. And one whose solutions run, for what it is
asked for: deterministic solutions or any."""
import pathlib
import shutil
import subprocess

import pytest

# RUNS: one solution for everything, a quicker one where no determinism is asked for; they do nothing but say so.
# Otherwise two, a product of rocBLAS and a direct one. The numbers are MIOpen's own. What must not happen ends the process: a product where
# there is no rocBLAS, and float64, for which the real one lists solutions whose kernels do not compile.
MIOPEN = """
#include <stdio.h>
#include <stdlib.h>
typedef struct { float time; size_t workspace; unsigned long id; int algorithm; } Solution;
static int anything;
static int made(void** handle) { *handle = &anything; return 0; }
int miopenCreateWithStream(void** handle, void* stream) { return made(handle); }
int miopenSetStream(void* handle, void* stream) { return 0; }
int miopenCreateTensorDescriptor(void** d) { return made(d); }
int miopenDestroyTensorDescriptor(void* d) { return 0; }
int miopenSetTensorDescriptor(void* d, int type, int dims, const int* shape, const int* strides) { if (type == 6) abort(); return 0; }
int miopenCreateConvolutionDescriptor(void** d) { return made(d); }
int miopenDestroyConvolutionDescriptor(void* d) { return 0; }
int miopenInitConvolutionDescriptor(void* d, int mode, int ph, int pw, int sh, int sw, int dh, int dw) { return 0; }
int miopenSetConvolutionGroupCount(void* d, int groups) { return 0; }
static int deterministic;
int miopenSetConvolutionAttribute(void* d, int attribute, int value) { if (attribute == 1) deterministic = value; return 0; }
#ifdef RUNS
#define COUNT 1
#define LIST s[0] = (Solution){1, 0, deterministic ? 20 : 21, 1}
#define RUN(face) printf("ran " face " %lu\\n", id); fflush(stdout); return 0
#else
#define COUNT 2
#define LIST s[0] = (Solution){1, 0, 11, 0}; s[1] = (Solution){2, 0, 12, 1}
#define RUN(face) if (id == 11) abort(); fprintf(stderr, "asked " face "\\n"); return 7
#endif
#define FACE(Face) \\
  int miopenConvolution##Face##GetSolutionCount(void* h, void* a, void* b, void* convolution, void* c, size_t* count) { *count = COUNT; return 0; } \\
  int miopenConvolution##Face##GetSolution(void* h, void* a, void* b, void* convolution, void* c, size_t most, size_t* count, Solution* s) { \\
    LIST; *count = COUNT; return 0; } \\
  int miopenConvolution##Face##Immediate(void* h, void* a, const void* x, void* b, const void* y, void* convolution, void* c, void* z, \\
                                         void* workspace, size_t bytes, unsigned long id) { RUN(#Face); }
FACE(Forward) FACE(BackwardData) FACE(BackwardWeights)
"""


def with_miopen(program, tmp_path, *flags):
    libraries = tmp_path / "libraries"
    shutil.copytree(program.libraries, libraries)
    source = tmp_path / "miopen.c"
    source.write_text(MIOPEN)
    subprocess.run(["cc", *flags, "-shared", "-fPIC", "-o", pathlib.Path(libraries) / "libMIOpen.so.1", source], check=True)
    program.libraries = libraries


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
    """Neither a plan nor a program is handed out under the other mode; and what may vary is never replayed, since no replay of it can be checked."""
    with_miopen(program, tmp_path, "-DRUNS")
    out = program.run("""
image, weight = (pf.ones(*shape).to('rocm') for shape in ((2, 8, 10, 10), (8, 8, 3, 3)))
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
    assert "first replay" in out.split("mode True then")[1].split("mode")[0]  # which differs, since nothing is computed here
