// Names of kernels as they stand in traces that people published, and what they do.
#include "tools/profile/classify.h"

#include <gtest/gtest.h>

namespace pyflame::tools::profile {
namespace {

struct Case {
  const char* name;
  Category category;
  const char* library;  // nullptr: whatever
};

constexpr auto GEMM = Category::gemm, CONV = Category::convolution, ATTN = Category::attention,
               NORM = Category::normalisation, ELEM = Category::elementwise, RED = Category::reduction,
               MEM = Category::memory, COMM = Category::communication, OTHER = Category::other;

constexpr Case kCases[] = {
    // Tensile: rocBLAS and hipBLASLt
    {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x240x64_MI16x16x1_SN_LDSB0_AFC0_AFEM1_AFEM1_ASEM1_CLR0_CADS0_"
     "DTLA1_DTLB1_DTVA0",
     GEMM, "Tensile"},
    {"Cijk_Ailk_Bjlk_BSS_BH_Bias_S_HA_S_SAV_UserArgs_MT192x192x64_MI16x16x1_SN", GEMM, "Tensile"},
    {"Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_APM1_ABV0.kd", GEMM, "Tensile"},
    {"Custom_Cijk_Alik_Bljk_BBS_BH_Bias_AS_SAV_UserArgs_MT256x256x64_MI16x16x1", GEMM, "Tensile"},
    {"void rocblas_gemv_kernel<256, 4, float, float const*, float*>(int, int)", GEMM, "rocBLAS"},
    {"rocblas_dot_kernel_inc1<int, 512, 8, true, float>", RED, "rocBLAS"},
    // cuBLAS, CUTLASS
    {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", GEMM, "cuBLAS"},
    {"ampere_sgemm_128x64_tn", GEMM, nullptr},
    {"sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4", GEMM, "cuBLAS"},
    {"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(...)", GEMM, "cuBLAS"},
    {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align8>(Params)", GEMM,
     nullptr},
    {"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 6, 6, false>(...)", GEMM, "cuBLAS"},
    // CK, aiter, vLLM, MoE
    {"void "
     "ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::tensor_layout::gemm::RowMajor>>(Argument)",
     GEMM, nullptr},
    {"void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleABD_xdl_cshuffle<float>>(...)",
     CONV, "CK"},
    {"_ZN5aiter32fmoe_bf16_pertokenFp8_g1u1_silu_1tg_32x256E", GEMM, "aiter"},
    {"mfma_moe1_silu_mul_afp8_wfp4", GEMM, "aiter"},
    {"fused_moe_kernel", GEMM, "Triton"},
    {"void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 4>(int, int, __hip_bfloat16 const*)", GEMM, "vLLM"},
    {"triton_tem_fused_addmm_7", GEMM, "Triton"},
    {"triton_mm", GEMM, "Triton"},
    {"_gemm_a16_w16_kernel_BLOCK_SIZE_M_64", GEMM, nullptr},
    {"matmul_kernel", GEMM, nullptr},
    // An activation that is fused into a product does not make it elementwise.
    {"_matmul_ogs_NNT_fp16xfp16xmxfp4_64x128x128x1_swiglu", GEMM, "Triton"},
    {"bmm_E4m3_E2m1E4m3_Fp32_t128x8x512_s6_et128x8_m128x8x32_rM_TN_transOut_swiGlu_dynBatch", GEMM, nullptr},
    {"void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x5_tn_align8>(Params)", GEMM,
     "CUTLASS"},
    {"_finalize_matmul_scatter_fp16", GEMM, "Triton"},
    {"flydsl_moe2_afp4_wfp4_bf16_t32x128x256_reduce", GEMM, "aiter"},
    {"void ck_tile::kentry<1, ck_tile::MoeFlatmmKernel<ck_tile::Tile<1>>>(ck_tile::Args)", GEMM, "CK"},
    {"mul_mat_vec_q", GEMM, "ggml"},
    {"a8w8_rowwise_256x128x128x128_32x32_2x2_intrawave_v3", GEMM, "aiter"},
    // Convolutions
    {"volta_scudnn_128x64_relu_interior_nn_v1", CONV, "cuDNN"},
    {"turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_interior_nhwc_tn_v1", CONV, "cuDNN"},
    {"void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x64_32x4_nhwc_align8>(Params)",
     CONV, "cuDNN"},
    {"void ck::tensor_operation::device::kernel_batched_gemm_xdlops_bwd_weight<ck::GridwiseGemm<1>>(int)", CONV, "CK"},
    {"naive_conv_ab_nonpacked_fwd_nchw_half_double_half", CONV, "MIOpen"},
    {"naive_conv_nonpacked_bwd_nchw_float_double_float", CONV, "MIOpen"},
    {"miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", CONV, "MIOpen"},
    {"miopenSp3AsmConvFury_v2_4_1_gfx11_1536vgprs_fp16_fp16acc_f2x3_c16_stride1", CONV, "MIOpen"},
    {"miopenSp3AsmConv_Ultra_v1_0_14_gfx10_fp16_pk_stride1", CONV, "MIOpen"},
    {"igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32_wt32x32x8_ws2x1_wr2x2_ta1x8x4x1_1x4x1x64_tb1x8x2x1_1x4x1x64_gkgs",
     CONV, "MIOpen"},
    {"igemm_wrw_gtcx35_nhwc_fp32_bx0_ex1", CONV, "MIOpen"},
    {"mlir_gen_igemm_conv2d_v4r4_fwd_xdlops0", CONV, "MIOpen"},
    {"gridwise_convolution_implicit_gemm_v4r4_nchw_kcyx_nkhw", CONV, "MIOpen"},
    {"Im2d2Col", CONV, "MIOpen"},
    {"MIOpenConvUni", CONV, "MIOpen"},
    {"void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(...)", CONV, "PyTorch"},
    {"void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(...)", CONV, nullptr},
    {"sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4", CONV, nullptr},
    {"void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(...)", CONV, "cuDNN"},
    // Attention
    {"void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::FmhaFwdTilePartitioner<...> > >(...)", ATTN, "CK"},
    {"std::enable_if<!(kattr_no_packed_fp32_ops_v<ck_tile::gfx950_t>), void>::type ck_tile::kentry<2, "
     "ck_tile::FmhaBwdDQDKDVKernel<...>>",
     ATTN, "CK"},
    {"_ZN5aiter24fmha_bwd_hd128_bf16_a32_psskE", ATTN, "aiter"},
    {"fmha_fwd_hd128_bf16_causal_rtz_group", ATTN, "aiter"},
    {"attn_fwd.kd", ATTN, "AOTriton"},
    {"bwd_kernel_dk_dv", ATTN, "AOTriton"},
    {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)",
     ATTN, "FlashAttention"},
    {"fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)", ATTN,
     nullptr},
    {"void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16, __hip_bfloat16>(...)", ATTN, nullptr},
    {"void kn_mla_reduce_v1<MlaReduceKernelV1Traits<512, 128, 1>, float, hip_bfloat16>(MlaReduceKernelV1Params)", ATTN,
     nullptr},
    {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0", ATTN,
     nullptr},
    {"triton_tem_fused_flex_attention_0", ATTN, nullptr},
    {"kernel_unified_attention_2d", ATTN, "Triton"},
    {"sage_fwd", ATTN, "SageAttention"},
    {"void qk_int_sv_f8_attn_kernel<128, 64, 32, 64, 128>(signed char*, float*)", ATTN, "SageAttention"},
    {"reduce_segments", ATTN, "Triton"},
    {"_ZN5aiter38pa_bf16_pertokenFp8_gqa16_1tg_4w_quantE", ATTN, "aiter"},
    {"_ZN5aiter23mla_a8w8_qh16_qseqlen1E", ATTN, "aiter"},
    // Normalisation
    {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)",
     NORM, nullptr},
    {"void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u>(...)", NORM,
     "PyTorch"},
    {"MIOpenBatchNormFwdTrainSpatialHIP", NORM, nullptr},
    {"void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(...)", NORM,
     nullptr},
    {"void transformer_engine::normalization::rmsnorm_bwd_finalize_general_kernel<...>", NORM, nullptr},
    {"void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, ...)", NORM, nullptr},
    {"triton_red_fused_native_layer_norm_3", NORM, "Triton"},
    {"triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_1", NORM, "Triton"},
    {"void at::native::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*, float*)", NORM, "PyTorch"},
    {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(...)", NORM, nullptr},
    // Elementwise
    {"void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
     "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)",
     ELEM, "PyTorch"},
    {"void at::native::vectorized_templated_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(...)",
     ELEM, "PyTorch"},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
     "namespace)::TensorListMetadata<4>, ...>(...)",
     ELEM, "PyTorch"},
    {"void at::native::elementwise_kernel_manual_unroll<128, 8, "
     "at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<...>>>(...)",
     ELEM, "PyTorch"},
    {"triton_poi_fused__to_copy_cat_mul_silu_silu_backward_split_1", ELEM, "Triton"},
    {"void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(...)", ELEM, nullptr},
    {"void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, ...)", ELEM, nullptr},
    {"Op2dTensorLite", ELEM, "MIOpen"},
    {"MIOpenNeuronFwd", ELEM, "MIOpen"},
    // Operators near the kernel are in TorchInductor's names. Its kind decides.
    {"triton_poi_fused_addmm_gelu_view_3", ELEM, "Triton"},
    {"triton_poi_fused_addmm_cat_clone_gelu_transpose_view_7", ELEM, "Triton"},
    {"triton_poi_fused__to_copy_cat_fmha_v3_fwd_mul_neg_stack_4", ELEM, "Triton"},
    {"triton_red_fused_convolution_mean_9", RED, "Triton"},
    {"triton_tem_fused_convolution_2", CONV, "Triton"},
    {"triton_poi_fused__to_copy_1", MEM, "Triton"},
    {"triton_poi_fused_clone_transpose_view_12", MEM, "Triton"},
    // Conversions to fewer bits
    {"sage_quant_kernel", ELEM, "SageAttention"},
    {"void vllm::scaled_fp8_quant_kernel_strided<c10::Half, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*)", ELEM, "vLLM"},
    {"void tensorrt_llm::kernels::quantize_with_block_size<1>(flashinfer::Layout)", ELEM, nullptr},
    {"void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>(float const*)", ELEM, nullptr},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)>",
     MEM, "PyTorch"},
    {"convert_half_to_fp8_kernel", MEM, nullptr},
    // Reductions
    {"_combined_routing_compute", RED, "Triton"},
    {"void moe::dev::routing::routingIndicesOffsetsKernel<1>(Params)", RED, nullptr},
    {"void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 64>(float const*)", RED, nullptr},
    {"void fbgemm_gpu::jagged_reduce_kernel<float>(float*)", RED, nullptr},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
     "at::native::sum_functor<float, float, float>>>>(...)",
     RED, "PyTorch"},
    {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*, float const*, "
     "int, int, int)",
     RED, nullptr},
    {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(...)", RED, nullptr},
    {"void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(...)", RED,
     "PyTorch"},
    {"triton_red_fused_sum_4", RED, "Triton"},
    {"void at_cuda_detail::cub::DeviceReduceSingleTileKernel<...>", RED, nullptr},
    {"void at::native::(anonymous namespace)::max_pool_forward_nhwc<float, float>(...)", RED, nullptr},
    // Memory
    {"__amd_rocclr_fillBufferAligned", MEM, "HIP"},
    {"__amd_rocclr_copyBuffer.kd", MEM, "HIP"},
    {"Memcpy HtoD (Pageable -> Device)", MEM, nullptr},
    {"Memset (Device)", MEM, nullptr},
    {"MEMORY_COPY_DEVICE_TO_HOST", MEM, nullptr},
    {"CopyHostToDevice", MEM, "HIP"},
    {"batched_transpose_32x32_half", MEM, "MIOpen"},
    {"SubTensorOpWithScalar1d", MEM, "MIOpen"},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, "
     "unsigned int, 4, 64, 64>(...)",
     MEM, "PyTorch"},
    {"void "
     "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#"
     "3}>(...)",
     MEM, "PyTorch"},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
     MEM, "PyTorch"},
    {"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, "
     "true>(...)",
     MEM, "PyTorch"},
    {"void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(...)", MEM,
     "PyTorch"},
    {"void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16>(...)", MEM, "vLLM"},
    {"void vllm::concat_and_cache_mla_kernel<__hip_bfloat16, __hip_bfloat16>(...)", MEM, "vLLM"},
    {"void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(Params)", MEM, "cuDNN"},
    // Communication
    {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", COMM, "RCCL"},
    {"ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", COMM, "RCCL"},
    {"ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16(ncclDevComm*, unsigned long, ncclWork*)", COMM, "RCCL"},
    {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", COMM, "RCCL"},
    {"mscclKernel_Sum_hip_bfloat16_Simple_false", COMM, "RCCL"},
    {"void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8, false>(...)", COMM, nullptr},
    {"void primus_turbo::deep_ep::intranode::dispatch<8, 1024>", COMM, nullptr},
    // Not known
    {"func_broad_phase_c402_0_kernel_3_range_for", OTHER, nullptr},
    {"taylor_base(float*, float*, unsigned long, unsigned long)", OTHER, nullptr},
    {"", OTHER, nullptr},
};

TEST(Classify, NamesFromTheWild) {
  for (const Case& c : kCases) {
    const KernelClass k = classify_kernel(c.name);
    EXPECT_STREQ(name_of(k.category), name_of(c.category)) << c.name;
    if (c.library != nullptr) {
      EXPECT_EQ(k.library, c.library) << c.name;
    }
  }
}

KernelClass classify(std::string_view name, std::initializer_list<std::string_view> callers) {
  return classify_kernel(name, std::span(callers.begin(), callers.size()));
}

TEST(Classify, TheOperatorKnowsWhatANameDoesNotSay) {
  EXPECT_EQ(classify("kernel_17", {"aten::mm"}).category, Category::gemm);
  EXPECT_TRUE(classify("kernel_17", {"aten::mm"}).by_operator);
  EXPECT_EQ(classify("kernel_17", {"aten::unheard_of"}).category, Category::other);
  // A convolution that the BLAS library computes.
  EXPECT_EQ(classify("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", {"aten::miopen_convolution"}).category,
            Category::convolution);
  EXPECT_EQ(classify("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", {"aten::mm"}).category, Category::gemm);
  EXPECT_EQ(classify("void at::native::reduce_kernel<512>", {"aten::native_layer_norm_backward"}).category,
            Category::normalisation);
  // The name wins where it says something else: a bias that a convolution adds.
  EXPECT_EQ(classify("void at::native::elementwise_kernel<128, 2>", {"aten::convolution"}).category,
            Category::elementwise);
}

TEST(Classify, WhatCalledTheOperatorKnowsMore) {
  EXPECT_EQ(classify("kernel_17", {"mylib::run", "aten::_scaled_dot_product_attention"}).category, Category::attention);
  EXPECT_EQ(classify("kernel_17", {"mylib::run", "nn.Module: LlamaRMSNorm_3"}).category, Category::normalisation);
  // The operator itself is nearer.
  EXPECT_EQ(classify("kernel_17", {"aten::mul", "nn.Module: LlamaRMSNorm_3"}).category, Category::elementwise);
  // A word in a name of a user's kernel says less than the operator.
  EXPECT_EQ(classify("conv_relu_kernel", {"mylib::conv2d"}).category, Category::convolution);
  EXPECT_EQ(classify("scale_rows", {"fbgemm::quantize_fp8_per_row"}).category, Category::elementwise);
  EXPECT_EQ(classify("scale_rows", {"_C::static_scaled_fp8_quant"}).category, Category::elementwise);
}

TEST(Classify, WhichProductsTunableOpChooses) {
  const auto reaches = [](std::string_view kernel, std::string_view op) {
    return reaches_tunable_op(classify(kernel, {op}), op);
  };
  constexpr std::string_view tensile = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1_SN";
  EXPECT_TRUE(reaches(tensile, "aten::addmm"));
  EXPECT_TRUE(reaches(tensile, "aten::_scaled_mm"));
  EXPECT_TRUE(reaches(tensile, "")) << "a graph that is replayed";
  EXPECT_FALSE(reaches(tensile, "aiter::hipb_gemm"));
  EXPECT_FALSE(reaches(tensile, "aten::miopen_convolution"));
  EXPECT_FALSE(reaches("_matmul_ogs_NNT_bf16xbf16xmxfp4", "vllm::moe_forward"));
  EXPECT_FALSE(reaches("void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm<1>>(Argument)", "aten::mm"));
  EXPECT_FALSE(reaches("_ZN5aiter41f4gemm_bf16_per1x32Fp4E", ""));
  EXPECT_FALSE(reaches("triton_tem_fused_addmm_7", "aten::addmm"));
}

TEST(Classify, Operators) {
  EXPECT_EQ(classify_op("aten::_scaled_dot_product_flash_attention"), Category::attention);
  EXPECT_EQ(classify_op("aten::convolution_backward"), Category::convolution);
  EXPECT_EQ(classify_op("aten::addmm"), Category::gemm);
  EXPECT_EQ(classify_op("aten::native_batch_norm"), Category::normalisation);
  EXPECT_EQ(classify_op("aten::copy_"), Category::memory);
  EXPECT_EQ(classify_op("nccl:all_reduce"), Category::communication);
  EXPECT_EQ(classify_op("autograd::engine::evaluate_function"), Category::other);
}

TEST(Classify, ShortNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
       ">(int, at::native::CUDAFunctor_add<float>)",
       "vectorized_elementwise_kernel [CUDAFunctor_add]"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
       "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)",
       "vectorized_elementwise_kernel [MulFunctor]"},
      {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0",
       "Cijk_Alik_Bljk_BBS_BH MT256x256x64 MI16x16x1"},
      {"Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1.kd", "Cijk_Ailk_Bljk_SB MT64x64x16"},
      {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
       "vectorized_layer_norm_kernel"},
      {"void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::X<1>>>(ck_tile::Args)",
       "ck_tile::kentry [FmhaFwdKernel]"},
      {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic_1"},
      {"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpEEEvT1_.kd", "reduce_kernel"},
      {"_Z9my_kernelPfS_i", "my_kernel"},
      {"triton_poi_fused_add_0", "triton_poi_fused_add_0"},
      {"plain.kd", "plain"},
      {"", ""},
  };
  for (const auto& [full, expected] : cases) EXPECT_EQ(short_kernel_name(full), expected) << full;
}

TEST(Classify, HostileNames) {
  const std::string deep(100'000, '<'), digits = "_Z" + std::string(5000, '9') + "x",
                                        nested = "_ZN" + std::string(4000, '1') + "E",
                                        functors = "elementwise<" + std::string(4000, '1');
  for (const std::string& name : {deep, digits, nested, functors, std::string("\0\x01\xff", 3), std::string("_Z"),
                                  std::string("_ZN"), std::string("Cijk__MT"), std::string("elementwise<1a<9")}) {
    EXPECT_LE(short_kernel_name(name).size(), 5000U);
    classify(name, {name, name});
  }
}

}  // namespace
}  // namespace pyflame::tools::profile
