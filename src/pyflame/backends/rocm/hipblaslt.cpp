// The file and the enum values of hipBLASLt (0.x and 1.x).
#include "pyflame/backends/rocm/hipblaslt_algorithms.h"
#include "pyflame/backends/rocm/libraries.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kHipblasLtFiles[] = {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so", nullptr};
}

const Dylib kHipblaslt = {.name = "hipBLASLt",
                          .type = DeviceType::rocm,
                          .files = kHipblasLtFiles,
                          .absent = "hipBLASLt (libhipblaslt.so) was not found; install ROCm's hipblaslt package",
                          .computes = true};

const BlasNumbers kRocmBlas = {
    .library = &kHipblaslt,
    .name = "hipblaslt",
    .prefix = "hipblasLt",
    .index_function = "_ZN13hipblaslt_ext16getIndexFromAlgoER22_hipblasLtMatmulAlgo_t",
    .enumeration = hipblaslt_algorithms,
    .relu_keeps_nan = false,
    .has_silu = true,
    .version_by_handle = true,
    .op_n = 111,
    .op_t = 112,
    .compute_f32 = 2,
    .compute_f64 = 7,
    .compute_tf32 = 6,
    .desc_trans_a = 0,
    .desc_trans_b = 1,
    .desc_epilogue = 2,
    .desc_bias = 3,
    .desc_bias_type = 4,
    .desc_argument = 10,
    .desc_argument_pitch = 11,
    .desc_argument_stride = 12,
    .desc_scale_a = 5,
    .desc_scale_b = 6,
    .desc_fast_sums = -1,
    .layout_batch_count = 0,
    .layout_batch_stride = 1,
    .preference_workspace = 1,
    .preference_alignment_a = -1,
    .result_bytes = 56,
    .result_workspace_at = 24,
    .result_state_at = 32,
};

}  // namespace pyflame::gpu
