// One value for the process, as programs set it once at their start.
#include "pyflame/tensor/default_dtype.h"

#include <atomic>

#include "pyflame/base/error.h"

namespace pyflame {

namespace {
std::atomic<DType> g_default{DType::float32};
}  // namespace

DType default_dtype() { return g_default.load(std::memory_order_relaxed); }

void set_default_dtype(DType d) {
  PF_CHECK(is_float(d), Type,
           "set_default_dtype: not a floating dtype; got {}; expected float32, float64, float16 or bfloat16",
           dtype_name(d));
  g_default.store(d, std::memory_order_relaxed);
}

}  // namespace pyflame
