// The vendors' matrix libraries with fused epilogues, cuBLASLt and hipBLASLt, loaded at run time. Their functions have
// the same parameters, so one table of names serves both. The numbers of their enums differ; backends/cuda and
// backends/rocm have them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

using BlasHandle = void*;
using BlasDesc = void*;
class BlasEnumeration;

//   member, name after "cublasLt" or "hipblasLt", parameters
#define PYFLAME_BLAS_FUNCTIONS(F)                                                                                 \
  F(create, "Create", (BlasHandle * handle))                                                                      \
  F(matmul_create, "MatmulDescCreate", (BlasDesc * desc, int compute, int scale))                                 \
  F(matmul_destroy, "MatmulDescDestroy", (BlasDesc desc))                                                         \
  F(matmul_set, "MatmulDescSetAttribute", (BlasDesc desc, int attribute, const void* value, size_t bytes))        \
  F(layout_create, "MatrixLayoutCreate", (BlasDesc * layout, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
  F(layout_destroy, "MatrixLayoutDestroy", (BlasDesc layout))                                                     \
  F(layout_set, "MatrixLayoutSetAttribute", (BlasDesc layout, int attribute, const void* value, size_t bytes))    \
  F(preference_create, "MatmulPreferenceCreate", (BlasDesc * preference))                                         \
  F(preference_destroy, "MatmulPreferenceDestroy", (BlasDesc preference))                                         \
  F(preference_set, "MatmulPreferenceSetAttribute",                                                               \
    (BlasDesc preference, int attribute, const void* value, size_t bytes))                                        \
  F(heuristic, "MatmulAlgoGetHeuristic",                                                                          \
    (BlasHandle handle, BlasDesc desc, BlasDesc a, BlasDesc b, BlasDesc c, BlasDesc d, BlasDesc preference,       \
     int wanted, void* results, int* found))                                                                      \
  F(matmul, "Matmul",                                                                                             \
    (BlasHandle handle, BlasDesc desc, const void* alpha, const void* a, BlasDesc a_layout, const void* b,        \
     BlasDesc b_layout, const void* beta, const void* c, BlasDesc c_layout, void* d, BlasDesc d_layout,           \
     const void* algorithm, void* workspace, size_t workspace_bytes, Stream stream))

// The numbers and sizes that differ between the two. Data types (R_32F 0, R_64F 1, R_16F 2, R_16BF 14) and epilogues
// have the same numbers.
struct BlasNumbers {
  const Dylib* library;
  const char* name;                         // of the implementation, "cublaslt"
  const char* prefix;                       // of its functions
  const char* index_function;               // int(Algorithm&), the symbol's name; null: its kernels have no numbers
  const BlasEnumeration* (*enumeration)();  // what it has besides the heuristic's algorithms
  bool relu_keeps_nan;                      // false if that was not verified
  bool has_silu;
  bool version_by_handle;  // whether GetVersion takes a handle and a pointer, or nothing
  int op_n, op_t;
  int compute_f32, compute_f64, compute_tf32;
  int desc_trans_a, desc_trans_b, desc_epilogue, desc_bias, desc_bias_type;
  int desc_argument, desc_argument_pitch, desc_argument_stride;  // of the activation's argument: "EPILOGUE_AUX"
  int desc_scale_a, desc_scale_b;                                // pointers to the scales of 8-bit floats
  int desc_fast_sums;  // a byte, whether sums of 8-bit floats may have fewer digits; -1: the library has one kind
  int layout_batch_count, layout_batch_stride;
  int preference_workspace;
  int preference_alignment_a;  // then b, c, d; -1: the library does not use it
  size_t result_bytes, result_workspace_at,
      result_state_at;  // in a result of the heuristic, whose first member is the algorithm
};

constexpr int kBlasEpilogueNone = 1, kBlasEpilogueRelu = 2, kBlasEpilogueBias = 4, kBlasEpilogueGeluTanh = 32,
              kBlasEpilogueKeeps = 128, kBlasEpilogueGeluTanhGrad = 192, kBlasEpilogueSumA = 256,
              kBlasEpilogueSumB = 512, kBlasEpilogueSilu = 65536;
constexpr int64_t kBlasArgumentPitch =
    8;  // the rows of the activation's argument begin at multiples of this many elements
constexpr size_t kMostResultBytes = 128;

struct Blas {
  const BlasNumbers* numbers = nullptr;
  int (*index_of)(void* algorithm) = nullptr;  // the number of an algorithm's kernel; null: it has none
  void* version = nullptr;  // cublasLtGetVersion() or hipblasLtGetVersion(handle, int*); null: an old library
#define PYFLAME_BLAS_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_BLAS_FUNCTIONS(PYFLAME_BLAS_MEMBER)
#undef PYFLAME_BLAS_MEMBER
};

// The library of a device type with all its functions; null if it is missing, with the reason in `why`. Needs no
// device.
const Blas* blas(DeviceType type, std::string* why = nullptr);
// Its handle on a device, which is made once. Only call it with a device: hipBLASLt ends the process without one.
BlasHandle blas_handle(const Blas& library, GpuDevice& device);

// "cublaslt 130002", to record which library measured or computed something; only the name if the version is unknown.
std::string blas_version(const Blas& library, GpuDevice& device);

}  // namespace pyflame::gpu
