// rocBLAS, for architectures and types that hipBLASLt has no kernel for. It has no epilogues.
#pragma once
#include <string>

#include "pyflame/backends/gpu/libs/vendor.h"

namespace pyflame::gpu {

struct RocBlas {
  int (*version)(char* text, size_t bytes) = nullptr;
  int (*create)(BlasHandle* handle) = nullptr;
  int (*set_stream)(BlasHandle handle, Stream stream) = nullptr;
  int (*set_workspace)(BlasHandle handle, void* memory, size_t bytes) = nullptr;
  int (*gemm)(BlasHandle handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int a_type,
              int lda, int64_t stride_a, const void* b, int b_type, int ldb, int64_t stride_b, const void* beta,
              const void* c, int c_type, int ldc, int64_t stride_c, void* d, int d_type, int ldd, int64_t stride_d,
              int batches, int compute, int algorithm, int32_t solution, uint32_t flags) = nullptr;
  // Lists the numbers of the kernels that can compute it, or how many there are. Null: an old library.
  int (*solutions)(BlasHandle handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                   int a_type, int lda, int64_t stride_a, const void* b, int b_type, int ldb, int64_t stride_b,
                   const void* beta, const void* c, int c_type, int ldc, int64_t stride_c, void* d, int d_type, int ldd,
                   int64_t stride_d, int batches, int compute, int algorithm, uint32_t flags, int32_t* list,
                   int32_t* size) = nullptr;
};
struct RocBlasNumbers {
  int op_n, op_t, f16, f32, f64, bf16;
  int standard, by_number;  // which algorithm: its own choice, or a solution's number
};
extern const RocBlasNumbers kRocBlasNumbers;
extern const Dylib kRocblas;
const RocBlas* rocblas(std::string* why = nullptr);
// Whether the installed rocBLAS has kernels for the architecture: if not, its first call ends the process.
bool rocblas_has_kernels(const RocBlas& library, const std::string& gfx);
std::string rocblas_version();
extern const PlainBlas kRocblasProducts;

}  // namespace pyflame::gpu
