"""A rocBLAS whose kernels have numbers: they are configurations of its entry, the wrong one never computes, and one that does not exist is an error."""
import contextlib
import pathlib
import shutil
import sqlite3
import subprocess

# Solution 7 and its own choice compute float32 products on the emulated device, in the stream's order; -12 computes twice the product.
ROCBLAS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int hiprtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int hiprtcCompileProgram(void*, int, const char* const*);
int hiprtcGetCodeSize(void*, size_t*);
int hiprtcGetCode(void*, char*);
int hipModuleLoadData(void**, const void*);
int hipModuleGetFunction(void**, void*, const char*);
int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
static int anything;
static void* stream;
int rocblas_get_version_string(char* text, size_t bytes) { strncpy(text, "5.2.0", bytes); return 0; }
int rocblas_create_handle(void** handle) { *handle = &anything; return 0; }
int rocblas_set_stream(void* handle, void* s) { stream = s; return 0; }
int rocblas_set_workspace(void* handle, void* memory, size_t bytes) { return 0; }
typedef struct { int m, n, k, a_row, a_col, b_row, b_col, ldd; float factor; } Call;
static const char* text =
  "struct Call { int m, n, k, a_row, a_col, b_row, b_col, ldd; float factor; };\\n"
  "#define PF_KERNEL(threads) extern \\"C\\" void\\n"
  "PF_KERNEL(64) theirs(const float* a, const float* b, float* d, Call p) {\\n"
  "  for (int i = (int)emulated.thread; i < p.m * p.n; i += 64) {\\n"
  "    const int row = i % p.m, column = i / p.m;\\n"
  "    double sum = 0;\\n"
  "    for (int k = 0; k < p.k; ++k) sum += (double)a[row * p.a_row + k * p.a_col] * b[k * p.b_row + column * p.b_col];\\n"
  "    d[row + column * p.ldd] = (float)(sum * p.factor);\\n"
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
#define DESCRIPTION void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, long sa, const void *b, int bt, int ldb, long sb, \\
  const void *beta, const void *c, int ct, int ldc, long sc, void *d, int dt, int ldd, long sd, int batches, int compute, int algorithm
int rocblas_gemm_strided_batched_ex(DESCRIPTION, int solution, unsigned flags) {
  if (at != 151 || batches != 1 || algorithm != (solution != 0)) return 3;
  printf("solution %d\\n", solution); fflush(stdout);
  Call call = {m, n, k, ta == 111 ? 1 : lda, ta == 111 ? lda : 1, tb == 111 ? 1 : ldb, tb == 111 ? ldb : 1, ldd, solution == -12 ? 2.0f : 1.0f};
  void* parameters[] = {&a, &b, &d, &call, 0};
  return hipModuleLaunchKernel(kernel(), 1, 1, 1, 64, 1, 1, 0, stream, parameters, 0);
}
int rocblas_gemm_strided_batched_ex_get_solutions(DESCRIPTION, unsigned flags, int* list, int* size) {
  const int numbers[] = {-12, 0, 7};
  if (algorithm != 1 || (list && *size != 3)) return 3;
  if (list) memcpy(list, numbers, sizeof numbers);
  *size = 3;
  return 0;
}
"""

PRODUCT = """
a, b = ((pf.arange(0, n) % 7 - 3).to(pf.float32).reshape(*shape).to('rocm') for n, shape in ((65536, (16, 4096)), (65536, (4096, 16))))
pf.synchronize()
expected = pf.matmul(a.to('cpu'), b.to('cpu')).tolist()
for run in range(2):
    assert pf.matmul(a, b).tolist() == expected
print('right')
"""


def tuned(program, cache, variables):
    """What a search of all kernels of rocBLAS measures: entries and whether they are right."""
    program.run(PRODUCT, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_TUNE_ENTRIES="rocm.rocblas", PYFLAME_CACHE_DIR=str(cache), **variables)
    with contextlib.closing(sqlite3.connect(cache / "choices.sqlite")) as db:
        return db.execute("select entry, sound from measurements where op = 'matmul'").fetchall()


def test_numbered_kernels_of_rocblas(program, tmp_path):
    libraries = tmp_path / "libraries"
    shutil.copytree(program.libraries, libraries)
    source = tmp_path / "rocblas.c"
    source.write_text(ROCBLAS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", pathlib.Path(libraries) / "librocblas.so.5", source, f"-L{libraries}", "-lamdhip64", "-lhiprtc"], check=True)
    program.libraries = libraries
    (tmp_path / "TensileLibrary_gfx942.dat").touch()
    found = {"ROCBLAS_TENSILE_LIBPATH": str(tmp_path), "ROCM_PATH": str(tmp_path)}
    # Only these, because each configuration of PyFlame's own kernels would be compiled.
    only = "pf._C._suggest_candidates(['rocm.rocblas', 'rocm.rocblas:solution=7', 'rocm.rocblas:solution=-12', 'rocm.rocblas:solution=0'], True)\n"
    assert "right" in program.run(only + PRODUCT, PYFLAME_TUNE_BUDGET_MS="60000", **found)
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        rows = {entry: (sound, note) for entry, sound, note in db.execute("select entry, sound, note from measurements where op = 'matmul' and entry like 'rocm.rocblas%'")}
    assert rows["rocm.rocblas"][0] == rows["rocm.rocblas:solution=7"][0] == 1 and rows["rocm.rocblas:solution=-12"][0] == 0
    assert "its result differs" in rows["rocm.rocblas:solution=-12"][1]
    assert "rocblas has no such solution" in rows["rocm.rocblas:solution=0"][1]  # its number for its own choice
    found_by_itself = {entry for entry, _ in tuned(program, tmp_path / "other", found)}
    assert found_by_itself == {"rocm.rocblas", "rocm.rocblas:solution=7", "rocm.rocblas:solution=-12"}
    out = program.run("pf._C._force_entry('matmul', 'rocm.rocblas:solution=7')\n" + PRODUCT + """
pf._C._force_entry('matmul', 'rocm.rocblas:solution=8')
print(refused(ValueError, lambda: pf.matmul(a, b).tolist()))
""", **found)
    assert "right" in out and "solution 7" in out and "matmul: rocblas has no such solution for this product; got 'solution=8'" in out
