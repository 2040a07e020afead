// The functions that both kinds of Host share, and the lists of the environment variables that a report may show. Most of them are known by
// their prefix. The record, the facts and the rules use the same lists.
#include "tools/system/host.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/system/text.h"

namespace pyflame::tools::system {

namespace {

constexpr auto kPrefixes = std::to_array<std::string_view>({
    "ACCELERATE_",  "AITER_",        "AMD_",         "AMDGPU_",
    "AMDGCN_",      "HIPRTC_",       "MLIR_ENABLE_", "LLVM_IR_ENABLE_",
    "AOTRITON_",    "BNB_",          "CK_",          "CUDA_",
    "DEBUG_CLR_",   "DEBUG_HIP_",    "DS_",          "FLASH_",
    "FSDP_",        "GLOO_",         "GPU_",         "GGML_",
    "HCC_",         "HIP_",          "HIPBLASLT_",   "HIPBLAS_",
    "HIPCC_",       "HSA_",          "HSAKMT_",      "JAX_",
    "KINETO_",      "LIBOMPTARGET_", "LLAMA_",       "MIGRAPHX_",
    "MIOPEN_",      "MSCCLPP_",      "NCCL_",        "NVTE_",
    "OLLAMA_",      "OMNITRACE_",    "ORT_",         "PYFLAME_",
    "PYTORCH_",     "RAY_",          "RCCL_",        "ROC_",
    "ROCBLAS_",     "ROCFFT_",       "ROCM_",        "ROCPROF",
    "ROCPROFILER",  "ROCR_",         "ROCTRACER_",   "ROCTX_",
    "SGLANG_",      "TENSILE_",      "TOKENIZERS_",  "TORCH",
    "TRITON_",      "UCC_",          "UCX_",         "VLLM_",
    "TF_CPP_",      "TF_ENABLE_",    "TF_FORCE_",    "TF_GPU_",
    "TF_ROCM_",     "TF_XLA_",       "XLA_",         "HF_HUB_",
    "SAFETENSORS_",
});

constexpr auto kNames = std::to_array<std::string_view>({
    "HSA_PATH",
    "HIP_PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LOCAL_RANK",
    "GROUP_RANK",
    "NNODES",
    "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MKL_NUM_THREADS",
    "NODE_RANK",
    "NPROC_PER_NODE",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OPENBLAS_NUM_THREADS",
    "OPTIMIZE_EPILOGUE",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "MALLOC_CONF",
    "RANK",
    "WORLD_SIZE",
});

// Variables that say where software is. Probes read them, but no rule judges them.
constexpr auto kPlaces = std::to_array<std::string_view>({
    "CONDA_PREFIX",
    "HOME",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "PYENV_VERSION",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
});

template <class List>
bool has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Whether the value is a secret, such as that of HF_HUB_TOKEN or VLLM_API_KEY. Whole words are compared, so TOKENIZERS_PARALLELISM is not a
// secret.
bool is_secret(std::string_view name) {
  static constexpr auto words = std::to_array<std::string_view>(
      {"AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSPHRASE", "PASSWORD", "SECRET", "TOKEN"});
  for (std::string_view word : split(name, '_'))
    if (has(words, word)) return true;
  return false;
}

}  // namespace

bool User::in_group(int64_t gid) const {
  return std::any_of(groups.begin(), groups.end(), [&](const auto& g) { return g.first == gid; });
}

std::optional<std::string> Host::line(const std::string& path) const {
  const Reading r = read(path, 4096);
  if (!r) return std::nullopt;
  return std::string(trim(std::string_view(r.text).substr(0, r.text.find('\n'))));
}

std::optional<int64_t> Host::number(const std::string& path) const {
  const std::optional<std::string> text = line(path);
  return text ? to_number(*text) : std::nullopt;
}

bool audited_variable(const std::string& name) {
  return has(kNames, name) ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view p) { return name.rfind(p, 0) == 0; });
}

bool keeps_variable(const std::string& name) { return audited_variable(name) || has(kPlaces, name); }

Environment kept(const Environment& all) {
  Environment out;
  for (const auto& [name, value] : all)
    if (keeps_variable(name)) out[name] = is_secret(name) && !value.empty() ? "(not shown)" : value;
  return out;
}

}  // namespace pyflame::tools::system
