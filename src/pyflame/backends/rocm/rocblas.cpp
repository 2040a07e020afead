// The enum values of rocBLAS.
#include "pyflame/backends/gpu/libs/blas.h"

namespace pyflame::gpu {

const RocBlasNumbers kRocBlasNumbers = {.op_n = 111, .op_t = 112, .f16 = 150, .f32 = 151, .f64 = 152, .bf16 = 168};
const char* const kRocBlasLibraries[] = {"librocblas.so.5", "librocblas.so.4", "librocblas.so", nullptr};

}  // namespace pyflame::gpu
