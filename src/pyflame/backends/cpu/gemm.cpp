#include "pyflame/backends/cpu/gemm.h"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <limits>

#include "pyflame/base/error.h"
#include "pyflame/base/signal_stack.h"

extern "C" void openblas_set_num_threads(int);
extern "C" char* openblas_get_config();

namespace pyflame::cpu {

namespace {

// omp_set_num_threads of the OpenMP runtime that oneDNN uses, whichever it is; null if it uses none. A lookup through
// oneDNN's own handle also searches its dependencies, so it does not matter how the libraries were loaded or renamed.
void (*openmp_setter())(int) {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&dnnl_sgemm), &info) || !info.dli_fname) return nullptr;
  void* handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (!handle) handle = dlopen(nullptr, RTLD_NOW);
  return handle ? reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads")) : nullptr;
}

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}
std::string openblas_version() { return openblas_get_config(); }

void use_one_library_thread() {
  // OpenMP's thread count belongs to the calling thread; OpenBLAS's is global.
  thread_local const bool once = [] {
    use_signal_stack();
    static void (*const set_openmp_threads)(int) = openmp_setter();
    if (set_openmp_threads) set_openmp_threads(1);
    static const bool blas = (openblas_set_num_threads(1), true);
    return blas;
  }();
  (void)once;
}

namespace {
template <class T>
void scale_rows(int64_t m, int64_t n, T beta, T* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == T(0) ? T(0) : c[i * ldc + j] * beta;
}
}  // namespace

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) return scale_rows(m, n, beta, c, ldc);
  use_one_library_thread();
  const auto status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  PF_CHECK(status == dnnl_success, Runtime, "matmul: oneDNN's sgemm failed; got status {}; expected success",
           static_cast<int>(status));
}

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) return scale_rows(m, n, beta, c, ldc);
  use_one_library_thread();
  constexpr int64_t kLimit = std::numeric_limits<blasint>::max();
  PF_CHECK(std::max({m, n, k, lda, ldb, ldc}) <= kLimit, Runtime,
           "matmul: a dimension is too large for the BLAS; got {}; expected at most {}",
           std::max({m, n, k, lda, ldb, ldc}), kLimit);
  const auto i = [](int64_t v) { return static_cast<blasint>(v); };
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, i(m), i(n), i(k), alpha, a,
              i(lda), b, i(ldb), beta, c, i(ldc));
}

}  // namespace pyflame::cpu
