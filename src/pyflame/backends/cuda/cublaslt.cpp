// The file and the enum values of cuBLASLt (12 and 13).
#include "pyflame/backends/cuda/cublaslt_algorithms.h"
#include "pyflame/backends/cuda/libraries.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kCublasLtFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", nullptr};
}

const Dylib kCublaslt = {
    .name = "cuBLASLt",
    .type = DeviceType::cuda,
    .files = kCublasLtFiles,
    .absent = "cuBLASLt (libcublasLt.so) was not found; install it with pip (nvidia-cublas) or with the CUDA toolkit",
    .computes = true};

const BlasNumbers kCudaBlas = {
    .library = &kCublaslt,
    .name = "cublaslt",
    .prefix = "cublasLt",
    .index_function = nullptr,
    .enumeration = cublaslt_algorithms,
    .relu_keeps_nan = true,
    .has_silu = false,
    .version_by_handle = false,
    .op_n = 0,
    .op_t = 1,
    .compute_f32 = 68,
    .compute_f64 = 70,
    .compute_tf32 = 77,
    .desc_trans_a = 3,
    .desc_trans_b = 4,
    .desc_epilogue = 7,
    .desc_bias = 8,
    .desc_bias_type = 26,
    .desc_argument = 11,
    .desc_argument_pitch = 12,
    .desc_argument_stride = 13,
    .desc_scale_a = 17,
    .desc_scale_b = 18,
    .desc_fast_sums = 25,
    .layout_batch_count = 5,
    .layout_batch_stride = 6,
    .preference_workspace = 1,
    .preference_alignment_a = 5,
    .result_bytes = 96,
    .result_workspace_at = 64,
    .result_state_at = 72,
};

}  // namespace pyflame::gpu
