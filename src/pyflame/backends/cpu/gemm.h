// One matrix product on the calling thread. Libraries run on one thread each: our own code divides the work, by shape.
// float32 uses oneDNN's sgemm (it reaches 85 to 95 % of an AVX-512 core's peak already at 64x64x64 and has no set-up
// cost), float64 uses the BLAS. docs/decisions/0003-cpu-gemm.md has the measurements.
#pragma once
#include <cstdint>
#include <string>

namespace pyflame::cpu {

std::string onednn_version();    // "3.1.0"
std::string openblas_version();  // "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64"

// Must run once on each thread before a library is called there; later calls cost little.
void use_one_library_thread();

// C[m,n] = alpha op(A) op(B) + beta C, row-major. ta: A is stored [k,m].
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace pyflame::cpu
