"""A MIOpen that lists solutions and cannot run them: convolutions are PyFlame's own then, and right."""
import pathlib
import shutil
import subprocess

import pytest

# Two solutions for everything, a product of rocBLAS and a direct one; MIOpen's own numbers. What must not happen ends the process: a product
# where there is no rocBLAS, and float64, for which the real one lists solutions whose kernels do not compile.
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
int miopenSetConvolutionAttribute(void* d, int attribute, int value) { return 0; }
#define FACE(Face) \\
  int miopenConvolution##Face##GetSolutionCount(void* h, void* a, void* b, void* convolution, void* c, size_t* count) { *count = 2; return 0; } \\
  int miopenConvolution##Face##GetSolution(void* h, void* a, void* b, void* convolution, void* c, size_t most, size_t* count, Solution* s) { \\
    s[0] = (Solution){1, 0, 11, 0}; s[1] = (Solution){2, 0, 12, 1}; *count = 2; return 0; } \\
  int miopenConvolution##Face##Immediate(void* h, void* a, const void* x, void* b, const void* y, void* convolution, void* c, void* z, \\
                                         void* workspace, size_t bytes, unsigned long id) { \\
    if (id == 11) abort(); fprintf(stderr, "asked " #Face "\\n"); return 7; }
FACE(Forward) FACE(BackwardData) FACE(BackwardWeights)
"""


@pytest.mark.parametrize("budget", ["0", "30"])
def test_solutions_that_do_not_run(program, tmp_path, budget):
    libraries = tmp_path / "libraries"
    shutil.copytree(program.libraries, libraries)
    source = tmp_path / "miopen.c"
    source.write_text(MIOPEN)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", pathlib.Path(libraries) / "libMIOpen.so.1", source], check=True)
    program.libraries = libraries
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
