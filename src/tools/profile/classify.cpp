// The table of name patterns, and the search in it.
#include "tools/profile/classify.h"
#include "tools/base/text.h"

#include <algorithm>
#include <cctype>

namespace pyflame::tools::profile {

namespace {

struct Pattern {
  std::string_view text;  // in lower case; a ^ at the front means that the name begins with the rest
  Category category;
  std::string_view library;
};

using C = Category;

constexpr Pattern kPatterns[] = {
    // --- communication: RCCL and NCCL, MSCCL, the all-reduces of serving engines
    {"nccldevkernel", C::communication, "RCCL"},
    {"ncclkernel", C::communication, "RCCL"},
    {"^nccl", C::communication, "RCCL"},
    {"mscclkernel", C::communication, "RCCL"},
    {"mscclpp", C::communication, "RCCL"},
    {"rccl_", C::communication, "RCCL"},
    {"cross_device_reduce", C::communication, ""},
    {"custom_all_reduce", C::communication, ""},
    {"allreduce_", C::communication, ""},
    {"all_reduce_kernel", C::communication, ""},
    {"two_shot_all_reduce", C::communication, ""},
    {"one_shot_all_reduce", C::communication, ""},
    {"quickreduce", C::communication, ""},
    {"quick_reduce", C::communication, ""},
    {"quickallreduce", C::communication, ""},
    {"allgather_", C::communication, ""},
    {"all_gather_kernel", C::communication, ""},
    {"reduce_scatter_kernel", C::communication, ""},
    {"deep_ep::", C::communication, ""},
    {"rocshmem", C::communication, "rocSHMEM"},
    {"nvshmem", C::communication, "NVSHMEM"},
    {"symm_mem", C::communication, ""},
    {"all_to_all_kernel", C::communication, ""},

    // --- copies and fills that are kernels
    {"__amd_rocclr_fillbuffer", C::memory, "HIP"},
    {"__amd_rocclr_copybuffer", C::memory, "HIP"},
    {"__amd_rocclr_", C::memory, "HIP"},
    {"^copydevicetodevice", C::memory, "HIP"},
    {"^copyhosttodevice", C::memory, "HIP"},
    {"^copydevicetohost", C::memory, "HIP"},
    {"^fillbuffer", C::memory, "HIP"},
    {"^memcpy", C::memory, ""},
    {"^memset", C::memory, ""},
    {"^memory copy", C::memory, ""},
    {"memory_copy_", C::memory, ""},
    {"hip_fill", C::memory, "HIP"},

    // --- attention
    {"fmhafwd", C::attention, "CK"},
    {"fmhabwd", C::attention, "CK"},
    {"fmhabatchprefill", C::attention, "CK"},
    {"fmhafwdsplitkv", C::attention, "CK"},
    {"fmha_", C::attention, "aiter"},
    {"fmha", C::attention, ""},
    {"flash_fwd", C::attention, "FlashAttention"},
    {"flash_bwd", C::attention, "FlashAttention"},
    {"flash::", C::attention, "FlashAttention"},
    {"pytorch_flash", C::attention, "FlashAttention"},
    {"flashattn", C::attention, "FlashAttention"},
    {"flash_attn", C::attention, "FlashAttention"},
    {"flash_attention", C::attention, "FlashAttention"},
    {"flashinfer", C::attention, "FlashInfer"},
    {"attn_fwd", C::attention, "AOTriton"},
    {"attn_bwd", C::attention, "AOTriton"},
    {"bwd_kernel_dk_dv", C::attention, "AOTriton"},
    {"bwd_kernel_dq", C::attention, "AOTriton"},
    {"bwd_kernel_fuse", C::attention, "AOTriton"},
    {"bwd_preprocess", C::attention, "AOTriton"},
    {"paged_attention", C::attention, ""},
    {"pa_decode", C::attention, "aiter"},
    {"pa_fwd", C::attention, "aiter"},
    {"paged_attn", C::attention, ""},
    {"mla_", C::attention, "aiter"},
    {"kn_mla", C::attention, "aiter"},
    {"flex_attention", C::attention, "Triton"},
    {"unified_attention", C::attention, "Triton"},
    {"decode_attention", C::attention, ""},
    {"attentionkernel", C::attention, ""},
    {"sdpa", C::attention, ""},
    {"gqa_", C::attention, ""},
    {"efficient_attention", C::attention, ""},
    {"cutlassf", C::attention, ""},
    {"cutlassb", C::attention, ""},
    {"scaled_dot_product", C::attention, ""},

    // --- communication-like work on key/value caches is a copy
    {"reshape_and_cache", C::memory, "vLLM"},
    {"concat_and_cast", C::memory, ""},
    {"concat_and_cache", C::memory, "vLLM"},
    {"store_kvcache", C::memory, ""},
    {"copy_blocks", C::memory, "vLLM"},

    // --- convolution
    {"naive_conv", C::convolution, "MIOpen"},
    {"miopensp3asmconv", C::convolution, "MIOpen"},
    {"miopengcnasmconv", C::convolution, "MIOpen"},
    {"miopenconv", C::convolution, "MIOpen"},
    {"gcnasmconv", C::convolution, "MIOpen"},
    {"igemm_", C::convolution, "MIOpen"},
    {"mlir_gen_igemm", C::convolution, "MIOpen"},
    {"mlopenconv", C::convolution, "MIOpen"},
    {"gridwise_convolution", C::convolution, "MIOpen"},
    {"gridwise_conv", C::convolution, "MIOpen"},
    {"im2d2col", C::convolution, "MIOpen"},
    {"im3d2col", C::convolution, "MIOpen"},
    {"col2im2d", C::convolution, "MIOpen"},
    {"col2im3d", C::convolution, "MIOpen"},
    {"im2col", C::convolution, ""},
    {"col2im", C::convolution, ""},
    {"vol2col", C::convolution, ""},
    {"sp3asm", C::convolution, "MIOpen"},
    {"winograd", C::convolution, ""},
    {"grouped_conv", C::convolution, "CK"},
    {"groupedconv", C::convolution, "CK"},
    {"conv_fwd", C::convolution, ""},
    {"conv_bwd", C::convolution, ""},
    {"conv_fwd_data", C::convolution, ""},
    {"implicit_gemm", C::convolution, ""},
    {"implicitgemm", C::convolution, ""},
    {"implicit_convolve", C::convolution, "cuDNN"},
    {"conv_depthwise", C::convolution, "PyTorch"},
    {"depthwise", C::convolution, ""},
    {"convolve", C::convolution, ""},
    {"convolution", C::convolution, ""},
    {"conv1d", C::convolution, ""},
    {"conv2d", C::convolution, ""},
    {"conv3d", C::convolution, ""},
    {"_fprop_", C::convolution, "cuDNN"},
    {"_dgrad_", C::convolution, "cuDNN"},
    {"_wgrad_", C::convolution, "cuDNN"},
    {"xdlops_conv", C::convolution, "MIOpen"},
    {"conv_transpose", C::convolution, ""},
    {"_conv_", C::convolution, ""},

    // --- GEMM: Tensile (rocBLAS, hipBLASLt), CK, aiter, CUTLASS and cuBLAS, Triton
    {"cijk_", C::gemm, "Tensile"},
    {"tensile", C::gemm, "Tensile"},
    {"custom_cijk", C::gemm, "Tensile"},
    {"rocblas_gemv", C::gemm, "rocBLAS"},
    {"rocblas_gemm", C::gemm, "rocBLAS"},
    {"rocblas_trsm", C::gemm, "rocBLAS"},
    {"rocblas_syrk", C::gemm, "rocBLAS"},
    {"rocblas_dot", C::reduction, "rocBLAS"},
    {"rocblas_nrm", C::reduction, "rocBLAS"},
    {"rocblas_axpy", C::elementwise, "rocBLAS"},
    {"rocblas_scal", C::elementwise, "rocBLAS"},
    {"rocblas_", C::gemm, "rocBLAS"},
    {"hipblaslt", C::gemm, "hipBLASLt"},
    {"fmoe", C::gemm, "aiter"},
    {"moe_gemm", C::gemm, ""},
    {"mfma_moe", C::gemm, "aiter"},
    {"moeflatmm", C::gemm, "CK"},
    {"flatmm", C::gemm, "CK"},
    {"fused_moe_kernel", C::gemm, "Triton"},
    {"wvsplitk", C::gemm, "vLLM"},
    {"llmm1", C::gemm, "vLLM"},
    {"nvjet_", C::gemm, "cuBLAS"},
    {"_xmma_gemm", C::gemm, "cuBLAS"},
    {"splitkreduce", C::gemm, "cuBLAS"},
    {"cutlass::gemm", C::gemm, "CUTLASS"},
    {"cublaslt", C::gemm, "cuBLAS"},
    {"gemvx", C::gemm, "cuBLAS"},
    {"gemv", C::gemm, ""},
    {"gemmsn", C::gemm, "cuBLAS"},
    {"triton_mm", C::gemm, "Triton"},
    {"triton_tem_fused", C::gemm, "Triton"},
    {"triton_bmm", C::gemm, "Triton"},
    {"triton_addmm", C::gemm, "Triton"},

    // --- normalisation
    {"batchnorm", C::normalisation, ""},
    {"batch_norm", C::normalisation, ""},
    {"layernorm", C::normalisation, ""},
    {"layer_norm", C::normalisation, ""},
    {"rmsnorm", C::normalisation, ""},
    {"rms_norm", C::normalisation, ""},
    {"groupnorm", C::normalisation, ""},
    {"group_norm", C::normalisation, ""},
    {"instancenorm", C::normalisation, ""},
    {"instance_norm", C::normalisation, ""},
    {"rowwisemoments", C::normalisation, "PyTorch"},
    {"computefusedparams", C::normalisation, "PyTorch"},
    {"gammabetabackward", C::normalisation, "PyTorch"},
    {"layernormfwd", C::normalisation, "CK"},
    {"cudnn::bn_", C::normalisation, "cuDNN"},
    {"bn_fw_", C::normalisation, "cuDNN"},
    {"bn_bw_", C::normalisation, "cuDNN"},
    {"welford", C::normalisation, ""},
    {"local_response_norm", C::normalisation, ""},
    {"miopenlrn", C::normalisation, "MIOpen"},
    {"normalization::", C::normalisation, ""},
    {"_norm_kernel", C::normalisation, ""},
    {"l2norm", C::normalisation, ""},
    {"_rsqrt", C::normalisation, "Triton"},

    // --- reductions
    {"softmax", C::reduction, ""},
    {"softmaxforward", C::reduction, ""},
    {"reduce_kernel", C::reduction, "PyTorch"},
    {"nll_loss", C::reduction, "PyTorch"},
    {"cross_entropy", C::reduction, ""},
    {"crossentropy", C::reduction, ""},
    {"devicereduce", C::reduction, ""},
    {"device_reduce", C::reduction, ""},
    {"argmax", C::reduction, ""},
    {"triton_red_", C::reduction, "Triton"},
    {"triton_per_", C::reduction, "Triton"},
    {"triton_spl_", C::reduction, "Triton"},
    {"lpnorm", C::reduction, "PyTorch"},
    {"cleanup", C::reduction, ""},
    {"devicescan", C::reduction, ""},
    {"cumsum", C::reduction, ""},
    {"tensor_kernel_scan", C::reduction, "PyTorch"},
    {"avg_pool", C::reduction, ""},
    {"max_pool", C::reduction, ""},
    {"maxpool", C::reduction, ""},
    {"avgpool", C::reduction, ""},
    {"mlopenpooling", C::reduction, "MIOpen"},
    {"pooling", C::reduction, ""},
    {"subtensoropwithreduce", C::reduction, "MIOpen"},
    {"histogram", C::reduction, ""},

    // --- positions: their names contain "embedding", but they are elementwise
    {"rotary", C::elementwise, ""},
    {"rope_", C::elementwise, ""},
    {"_rope", C::elementwise, ""},

    // --- layout, copies, gathers: they move bytes and compute nothing
    {"batched_transpose", C::memory, "MIOpen"},
    {"direct_copy_kernel", C::memory, "PyTorch"},
    {"copy_kernel", C::memory, "PyTorch"},
    {"catarraybatchedcopy", C::memory, "PyTorch"},
    {"fillfunctor", C::memory, "PyTorch"},
    {"fill_kernel", C::memory, ""},
    {"subtensoropwithscalar", C::memory, "MIOpen"},
    {"subtensoropwithcast", C::memory, "MIOpen"},
    {"subtensoropwithtransform", C::memory, "MIOpen"},
    {"transpose", C::memory, ""},
    {"permute", C::memory, ""},
    {"gather_kernel", C::memory, ""},
    {"indexselect", C::memory, "PyTorch"},
    {"index_elementwise", C::memory, "PyTorch"},
    {"indexfunc", C::memory, "PyTorch"},
    {"indexing_backward", C::memory, "PyTorch"},
    {"embedding", C::memory, "PyTorch"},
    {"scatter_gather", C::memory, "PyTorch"},
    {"index_put", C::memory, "PyTorch"},
    {"index_kernel", C::memory, "PyTorch"},
    {"_assert_async", C::other, "PyTorch"},
    {"triton_poi_fused_clone", C::memory, "Triton"},
    {"triton_poi_fused_cat", C::memory, "Triton"},
    {"slice_scatter", C::memory, ""},
    {"upsample", C::memory, "PyTorch"},
    {"copybuffer", C::memory, ""},

    // --- elementwise
    {"vectorized_elementwise", C::elementwise, "PyTorch"},
    {"vectorized_templated_elementwise", C::elementwise, "PyTorch"},
    {"unrolled_elementwise", C::elementwise, "PyTorch"},
    {"elementwise_kernel", C::elementwise, "PyTorch"},
    {"multi_tensor_apply", C::elementwise, "PyTorch"},
    {"multitensorapply", C::elementwise, ""},
    {"distribution_elementwise", C::elementwise, "PyTorch"},
    {"fused_dropout", C::elementwise, "PyTorch"},
    {"triton_poi_", C::elementwise, "Triton"},
    {"triton_for_fused", C::elementwise, "Triton"},
    {"mlopenneuron", C::elementwise, "MIOpen"},
    {"miopenneuron", C::elementwise, "MIOpen"},
    {"activ", C::elementwise, ""},
    {"optensor", C::elementwise, "MIOpen"},
    {"op2dtensor", C::elementwise, "MIOpen"},
    {"op1dtensor", C::elementwise, "MIOpen"},
    {"op3dtensor", C::elementwise, "MIOpen"},
    {"op4dtensor", C::elementwise, "MIOpen"},
    {"optensorfwdbias", C::elementwise, "MIOpen"},
    {"cast_kernel", C::elementwise, ""},
    {"silu", C::elementwise, ""},
    {"swiglu", C::elementwise, ""},
    {"gelu", C::elementwise, ""},
    {"act_and_mul", C::elementwise, ""},
    {"scaled_quant", C::elementwise, ""},
    {"dynamic_per_token", C::elementwise, ""},
    {"quantize", C::elementwise, ""},
    {"relu", C::elementwise, ""},
    {"_adam", C::elementwise, ""},
    {"fused_adam", C::elementwise, ""},
    {"dropout", C::elementwise, ""},
    {"sigmoid", C::elementwise, ""},
    {"elementwise", C::elementwise, ""},
    {"pointwise", C::elementwise, ""},

    // --- the same by common words, for kernels of users
    {"attention", C::attention, ""},
    {"attn", C::attention, ""},
    {"gemm", C::gemm, ""},
    {"matmul", C::gemm, ""},
    {"_mm_", C::gemm, ""},
    {"scaled_mm", C::gemm, ""},
    {"dot_product", C::reduction, ""},
    {"conv_", C::convolution, ""},
    {"reduce", C::reduction, ""},
    {"reduction", C::reduction, ""},
    {"copy", C::memory, ""},
    {"unpermute", C::memory, ""},
    {"norm_", C::normalisation, ""},
    {"addtensor", C::elementwise, ""},
    {"_add_kernel", C::elementwise, ""},
    {"add_kernel", C::elementwise, ""},
    {"mul_kernel", C::elementwise, ""},
};

// Patterns for the names of operators.
constexpr Pattern kOperators[] = {
    {"nccl:", C::communication, ""},
    {"c10d::", C::communication, ""},
    {"record_param_comms", C::communication, ""},
    {"scaled_dot_product", C::attention, ""},
    {"attention", C::attention, ""},
    {"flash_attn", C::attention, ""},
    {"mha_", C::attention, ""},
    {"fmha", C::attention, ""},
    {"convolution", C::convolution, ""},
    {"conv1d", C::convolution, ""},
    {"conv2d", C::convolution, ""},
    {"conv3d", C::convolution, ""},
    {"conv_depthwise", C::convolution, ""},
    {"conv_transpose", C::convolution, ""},
    {"::mm", C::gemm, ""},
    {"::addmm", C::gemm, ""},
    {"::bmm", C::gemm, ""},
    {"::baddbmm", C::gemm, ""},
    {"::linear", C::gemm, ""},
    {"::matmul", C::gemm, ""},
    {"scaled_mm", C::gemm, ""},
    {"::_int_mm", C::gemm, ""},
    {"::mv", C::gemm, ""},
    {"::addmv", C::gemm, ""},
    {"gemm", C::gemm, ""},
    {"norm", C::normalisation, ""},
    {"softmax", C::reduction, ""},
    {"::sum", C::reduction, ""},
    {"::mean", C::reduction, ""},
    {"::amax", C::reduction, ""},
    {"::max", C::reduction, ""},
    {"::min", C::reduction, ""},
    {"::argmax", C::reduction, ""},
    {"::cumsum", C::reduction, ""},
    {"_loss", C::reduction, ""},
    {"::all", C::reduction, ""},
    {"::any", C::reduction, ""},
    {"pool", C::reduction, ""},
    {"::copy_", C::memory, ""},
    {"::clone", C::memory, ""},
    {"::contiguous", C::memory, ""},
    {"::cat", C::memory, ""},
    {"::fill_", C::memory, ""},
    {"::zero_", C::memory, ""},
    {"::index", C::memory, ""},
    {"::gather", C::memory, ""},
    {"::embedding", C::memory, ""},
    {"::_to_copy", C::memory, ""},
    {"scatter", C::memory, ""},
    {"::add", C::elementwise, ""},
    {"::mul", C::elementwise, ""},
    {"::sub", C::elementwise, ""},
    {"::div", C::elementwise, ""},
    {"::gelu", C::elementwise, ""},
    {"::silu", C::elementwise, ""},
    {"::relu", C::elementwise, ""},
    {"::sigmoid", C::elementwise, ""},
    {"::tanh", C::elementwise, ""},
    {"::exp", C::elementwise, ""},
    {"::pow", C::elementwise, ""},
    {"::sqrt", C::elementwise, ""},
    {"::rsqrt", C::elementwise, ""},
    {"::where", C::elementwise, ""},
    {"::clamp", C::elementwise, ""},
    {"dropout", C::elementwise, ""},
    {"_foreach_", C::elementwise, ""},
    {"adam", C::elementwise, ""},
    {"optimizer.step", C::elementwise, ""},
    {"::neg", C::elementwise, ""},
};

constexpr size_t kMostName = 4096;  // of a name is looked at

template <size_t N>
const Pattern* match(const Pattern (&patterns)[N], std::string_view lower_name) {
  for (const Pattern& p : patterns) {
    const bool front = p.text.starts_with('^');
    const std::string_view word = front ? p.text.substr(1) : p.text;
    if (front ? lower_name.starts_with(word) : lower_name.find(word) != std::string_view::npos) return &p;
  }
  return nullptr;
}

bool identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The names of a mangled symbol's outermost scope: _ZN2at6native13reduce_kernelI… -> at::native::reduce_kernel. Only the lengths in the symbol are used, because a full demangler may need any amount of memory for hostile input.
std::string unmangled(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  size_t at = 2;
  const bool nested = at < name.size() && name[at] == 'N';
  at += nested;
  while (at < name.size() && (name[at] == 'K' || name[at] == 'L')) ++at;
  std::string out;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9') {
    size_t n = 0;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9' && n < 4096)
      n = n * 10 + static_cast<size_t>(name[at++] - '0');
    if (n == 0 || n > name.size() - at) break;
    const std::string_view part = name.substr(at, n);
    if (!part.starts_with("_GLOBAL__N")) out += (out.empty() ? "" : "::") + std::string(part);
    at += n;
    if (!nested) break;
  }
  return out.empty() ? std::string(name) : out;
}

// Text at the end of a function's template arguments that says what it computes.
std::string functor_of(std::string_view name) {
  static constexpr std::string_view noise[] = {"at",
                                               "native",
                                               "array",
                                               "std",
                                               "detail",
                                               "Array",
                                               "c10",
                                               "memory",
                                               "float",
                                               "double",
                                               "int",
                                               "unsigned",
                                               "char",
                                               "bool",
                                               "anonymous",
                                               "namespace",
                                               "binary_internal",
                                               "gpu_kernel_impl_nocast",
                                               "gpu_kernel_impl",
                                               "BinaryFunctor",
                                               "AUnaryFunctor",
                                               "BUnaryFunctor",
                                               "CUDAFunctorOnSelf_add_",
                                               "ReduceOp",
                                               "func_wrapper_t",
                                               "BFloat16",
                                               "Half",
                                               "long",
                                               "TensorListMetadata",
                                               "ck_tile",
                                               "ck",
                                               "true",
                                               "false",
                                               "void",
                                               "operator",
                                               "const",
                                               "lambda",
                                               "opmath_gpu_kernel_with_scalars",
                                               "OpaqueType",
                                               "TrivialOffsetCalculator",
                                               "kattr_no_packed_fp32_ops_v"};
  const size_t open = name.find('<');
  if (open == std::string_view::npos) return "";
  size_t i = open;
  while (i < name.size()) {
    if (!identifier(name[i]) || std::isdigit(static_cast<unsigned char>(name[i])) != 0) {
      while (i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0) ++i;
      if (i < name.size() && !identifier(name[i])) ++i;
      else if (i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0) ++i;
      continue;
    }
    size_t end = i;
    while (end < name.size() && identifier(name[end])) ++end;
    const std::string_view word = name.substr(i, end - i);
    const bool gfx = word.starts_with("gfx");
    if (word.size() > 2 && !gfx && std::find(std::begin(noise), std::end(noise), word) == std::end(noise))
      return std::string(word);
    i = end;
  }
  return "";
}

// Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_… : problem type, macro tile and matrix instruction.
std::string short_tensile(std::string_view name) {
  std::string out;
  size_t parts = 0;
  bool tile = false;
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('_', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    const bool sized = part.size() > 2 && std::isdigit(static_cast<unsigned char>(part[2])) != 0;
    if (part.starts_with("MT") && sized) {
      out += " " + std::string(part);
      tile = true;
    } else if (tile && part.starts_with("MI") && sized) {
      return out + " " + std::string(part);
    } else if (!tile && ++parts <= 5 && part != "Bias") {
      out += (out.empty() ? "" : "_") + std::string(part);
    }
    at = end + 1;
  }
  return out;
}

}  // namespace

const char* name_of(Category c) {
  static constexpr const char* names[] = {"GEMM",      "convolution", "attention",     "normalisation", "elementwise",
                                          "reduction", "memory",      "communication", "other"};
  return names[static_cast<size_t>(c)];
}

Category classify_op(std::string_view op) {
  const Pattern* p = match(kOperators, lower(op.substr(0, kMostName)));
  return p == nullptr ? Category::other : p->category;
}

KernelClass classify_kernel(std::string_view name, std::string_view op) {
  const std::string text = lower(name.substr(0, kMostName));
  const Pattern* p = match(kPatterns, text);
  const Category asked = op.empty() ? Category::other : classify_op(op);
  KernelClass k;
  if (p != nullptr) {
    k.category = p->category;
    k.library = p->library;
    if (k.library.empty() && text.starts_with("triton_")) k.library = "Triton";
    // A convolution may run as a GEMM of the BLAS library, and a normalisation as several reductions. The operator tells.
    if (k.category == C::gemm && asked == C::convolution) k = {C::convolution, k.library, true};
    if (k.category == C::reduction && asked == C::normalisation) k = {C::normalisation, k.library, true};
    return k;
  }
  k.category = asked;
  k.by_operator = asked != C::other;
  return k;
}

std::string short_kernel_name(std::string_view full) {
  std::string storage = unmangled(full.substr(0, 4096));
  std::string_view name = storage;
  if (name.ends_with(".kd")) name.remove_suffix(3);
  const size_t tensile = name.find("Cijk_");
  if (tensile != std::string_view::npos && name.find("_MT") != std::string_view::npos)
    return short_tensile(name.substr(tensile));
  if (name.starts_with("void ")) name.remove_prefix(5);
  // Removes template arguments and the parameter list. "(anonymous namespace)" is part of a name.
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && name.substr(i).starts_with("(anonymous namespace)")) {
      i += std::string_view("(anonymous namespace)").size() - 1;
      if (name.substr(i + 1).starts_with("::")) i += 2;
      continue;
    }
    if (c == '<') {
      ++depth;
    } else if (c == '>') {
      depth = std::max(0, depth - 1);
    } else if (depth == 0) {
      if (c == '(') break;
      out += c;
    }
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == ',')) out.pop_back();
  // Names that many kernels share need their first template argument to be distinct.
  static constexpr std::string_view wrappers[] = {"elementwise",   "reduce_kernel", "multi_tensor_apply",
                                                  "kentry",        "enable_if",     "cutlass::Kernel",
                                                  "device_kernel", "kernel_gemm",   "launch_clamp"};
  for (std::string_view w : wrappers) {
    if (out.find(w) == std::string::npos) continue;
    const std::string functor = functor_of(name);
    if (out.starts_with("std::enable_if")) out = "kernel";
    if (!functor.empty()) out += " [" + functor + "]";
    break;
  }
  if (out.starts_with("at::native::")) out.erase(0, 12);
  return out.empty() ? std::string(name.substr(0, 200)) : out;
}

}  // namespace pyflame::tools::profile
