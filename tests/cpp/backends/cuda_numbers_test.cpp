// The numbers that we give to cuBLASLt and cuFFT, against the libraries' own headers. Compiled only where these are; needs no device.
#include <gtest/gtest.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include "pyflame/backends/cuda/cublaslt_algorithms.h"
#include "pyflame/backends/cuda/libraries.h"

namespace pyflame {
namespace {

TEST(GpuBlas, NumbersAreCublaslts) {
  const gpu::BlasNumbers& n = gpu::kCudaBlas;
  EXPECT_EQ(n.op_n, CUBLAS_OP_N);
  EXPECT_EQ(n.op_t, CUBLAS_OP_T);
  EXPECT_EQ(n.compute_f32, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(n.compute_f64, CUBLAS_COMPUTE_64F);
  EXPECT_EQ(n.compute_tf32, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(n.desc_trans_a, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(n.desc_trans_b, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(n.desc_epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(n.desc_bias, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(n.desc_bias_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  EXPECT_EQ(n.desc_scale_a, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  EXPECT_EQ(n.desc_scale_b, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  EXPECT_EQ(n.desc_fast_sums, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
  EXPECT_EQ(n.layout_batch_count, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(n.layout_batch_stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(n.preference_workspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(n.preference_alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(n.preference_alignment_a + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(gpu::kBlasEpilogueNone, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(gpu::kBlasEpilogueRelu, CUBLASLT_EPILOGUE_RELU);
  EXPECT_EQ(gpu::kBlasEpilogueBias, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(gpu::kBlasEpilogueGeluTanh, CUBLASLT_EPILOGUE_GELU);
  EXPECT_EQ(n.result_bytes, sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(n.result_workspace_at, offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(n.result_state_at, offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(CUDA_R_32F, 0);
  EXPECT_EQ(CUDA_R_64F, 1);
  EXPECT_EQ(CUDA_R_16F, 2);
  EXPECT_EQ(CUDA_R_16BF, 14);
}

TEST(CublasLtAlgorithms, NumbersAreCublaslts) {
  const int parts[] = {CUBLASLT_ALGO_CONFIG_ID,
                       CUBLASLT_ALGO_CONFIG_TILE_ID,
                       CUBLASLT_ALGO_CONFIG_STAGES_ID,
                       CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                       CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                       CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                       CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
                       CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
                       CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID};
  ASSERT_EQ(std::size(parts), gpu::kCublasLtParts.size());
  for (size_t i = 0; i < std::size(parts); ++i) EXPECT_EQ(gpu::kCublasLtParts[i].attribute, parts[i]);
  constexpr gpu::CublasLtCapabilities c;
  EXPECT_EQ(c.splits, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT);
  EXPECT_EQ(c.swizzles, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
  EXPECT_EQ(c.tiles, CUBLASLT_ALGO_CAP_TILE_IDS);
  EXPECT_EQ(c.most_custom, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
  EXPECT_EQ(c.stages, CUBLASLT_ALGO_CAP_STAGES_IDS);
  EXPECT_EQ(c.alignments, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(c.alignments + 3, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(gpu::kCublasLtReduceInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(sizeof(cublasLtMatmulAlgo_t), gpu::kCudaBlas.result_workspace_at);
}

}  // namespace
}  // namespace pyflame
#endif

#if __has_include(<cufft.h>)
#include <cufft.h>

#include "pyflame/backends/gpu/libs/fft_library.h"

namespace pyflame {
namespace {

TEST(GpuFft, NumbersAreCuffts) {
  EXPECT_EQ(gpu::kFftRealToComplex32, CUFFT_R2C);
  EXPECT_EQ(gpu::kFftRealToComplex64, CUFFT_D2Z);
  EXPECT_EQ(gpu::kFftComplex32, CUFFT_C2C);
  EXPECT_EQ(gpu::kFftComplex64, CUFFT_Z2Z);
  EXPECT_EQ(gpu::kFftForward, CUFFT_FORWARD);
  EXPECT_EQ(gpu::kFftBackward, CUFFT_INVERSE);
  EXPECT_EQ(sizeof(cufftHandle), sizeof(int));
}

}  // namespace
}  // namespace pyflame
#endif
