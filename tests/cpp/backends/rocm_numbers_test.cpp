// The numbers that backends/rocm gives to hipBLASLt and rocBLAS, against the libraries' own headers. Compiled only where these are
// (ROCM_PATH); needs no device.
#include <gtest/gtest.h>

#if __has_include(<hipblaslt/hipblaslt.h>)
#include <hipblaslt/hipblaslt.h>
#include <rocblas/rocblas.h>
#include <hipblaslt/hipblaslt-ext.hpp>

#include "pyflame/backends/rocm/hipblaslt_algorithms.h"
#include "pyflame/backends/rocm/libraries.h"
#include "pyflame/backends/rocm/rocblas.h"

namespace pyflame {
namespace {

TEST(GpuBlas, NumbersAreHipblaslts) {
  const gpu::BlasNumbers& n = gpu::kRocmBlas;
  EXPECT_EQ(n.op_n, HIPBLAS_OP_N);
  EXPECT_EQ(n.op_t, HIPBLAS_OP_T);
  EXPECT_EQ(n.compute_f32, HIPBLAS_COMPUTE_32F);
  EXPECT_EQ(n.compute_f64, HIPBLAS_COMPUTE_64F);
  EXPECT_EQ(n.compute_tf32, HIPBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(n.desc_trans_a, HIPBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(n.desc_trans_b, HIPBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(n.desc_epilogue, HIPBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(n.desc_bias, HIPBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(n.desc_bias_type, HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  EXPECT_EQ(n.layout_batch_count, HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(n.layout_batch_stride, HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(n.preference_workspace, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(gpu::kBlasEpilogueNone, HIPBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(gpu::kBlasEpilogueRelu, HIPBLASLT_EPILOGUE_RELU);
  EXPECT_EQ(gpu::kBlasEpilogueBias, HIPBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(gpu::kBlasEpilogueGeluTanh, HIPBLASLT_EPILOGUE_GELU);
  EXPECT_EQ(n.result_bytes, sizeof(hipblasLtMatmulHeuristicResult_t));
  EXPECT_EQ(n.result_workspace_at, offsetof(hipblasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(n.result_state_at, offsetof(hipblasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(sizeof(gpu::HipblasLtResult), sizeof(hipblasLtMatmulHeuristicResult_t));
  EXPECT_EQ(gpu::kHipblasLtPlainGemm, static_cast<int>(hipblaslt_ext::GemmType::HIPBLASLT_GEMM));
  const gpu::RocBlasNumbers& r = gpu::kRocBlasNumbers;
  EXPECT_EQ(r.op_n, rocblas_operation_none);
  EXPECT_EQ(r.op_t, rocblas_operation_transpose);
  EXPECT_EQ(r.f16, rocblas_datatype_f16_r);
  EXPECT_EQ(r.f32, rocblas_datatype_f32_r);
  EXPECT_EQ(r.f64, rocblas_datatype_f64_r);
  EXPECT_EQ(r.bf16, rocblas_datatype_bf16_r);
  EXPECT_EQ(r.standard, rocblas_gemm_algo_standard);
  EXPECT_EQ(r.by_number, rocblas_gemm_algo_solution_index);
  EXPECT_EQ(rocblas_gemm_flags_none, 0);
  EXPECT_EQ(HIP_R_32F, 0);
  EXPECT_EQ(HIP_R_64F, 1);
  EXPECT_EQ(HIP_R_16F, 2);
  EXPECT_EQ(HIP_R_16BF, 14);
}

}  // namespace
}  // namespace pyflame
#endif

#if __has_include(<rccl/rccl.h>)
#include <rccl/rccl.h>
#define PYFLAME_COMMUNICATOR_HEADER 1
#elif __has_include(<nccl.h>)
#include <nccl.h>
#define PYFLAME_COMMUNICATOR_HEADER 1
#endif
#ifdef PYFLAME_COMMUNICATOR_HEADER
#include "pyflame/backends/gpu/libs/communicator.h"

namespace pyflame {
namespace {

TEST(GpuCommunicator, NumbersAreTheLibrarys) {
  constexpr gpu::CommunicatorNumbers n;
  EXPECT_EQ(n.int8, ncclInt8);
  EXPECT_EQ(n.uint8, ncclUint8);
  EXPECT_EQ(n.int32, ncclInt32);
  EXPECT_EQ(n.int64, ncclInt64);
  EXPECT_EQ(n.float16, ncclFloat16);
  EXPECT_EQ(n.float32, ncclFloat32);
  EXPECT_EQ(n.float64, ncclFloat64);
  EXPECT_EQ(n.bfloat16, ncclBfloat16);
  EXPECT_EQ(n.sum, ncclSum);
  EXPECT_EQ(n.product, ncclProd);
  EXPECT_EQ(n.max, ncclMax);
  EXPECT_EQ(n.min, ncclMin);
  EXPECT_EQ(n.avg, ncclAvg);
  EXPECT_EQ(gpu::kCommunicatorIdBytes, sizeof(ncclUniqueId));
}

}  // namespace
}  // namespace pyflame
#endif
