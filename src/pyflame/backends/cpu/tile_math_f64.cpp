// Transcendental functions on float64 tiles.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_math_f64.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include "pyflame/backends/cpu/tile_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {
Fn pick_math_f64(OpId op) { return pick_math<double>(op).fn; }
}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_math_f64);
Fn find_math_f64(OpId op) { return HWY_DYNAMIC_DISPATCH(pick_math_f64)(op); }
}  // namespace pyflame::cpu::tile
#endif
