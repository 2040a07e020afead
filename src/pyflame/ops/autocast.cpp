// The state of mixed precision per thread, and the casts of an op's inputs.
#include "pyflame/ops/autocast.h"

#include <array>

#include "pyflame/base/error.h"

namespace pyflame::autocast {

namespace {
struct Local {
  std::array<State, 8> states;
  bool any = false, off = false;
};
thread_local Local t_local;
size_t at(DeviceType type) { return static_cast<size_t>(type); }
}  // namespace

State state(DeviceType type) { return t_local.states[at(type)]; }

void set_state(DeviceType type, State s) {
  PF_CHECK(is_half(s.dtype), Type, "autocast: not a half type; got {}; expected float16 or bfloat16",
           dtype_name(s.dtype));
  t_local.states[at(type)] = s;
  t_local.any = false;
  for (const State& each : t_local.states) t_local.any |= each.enabled;
}

bool active(const Tensor& x) { return t_local.any && !t_local.off && x && t_local.states[at(x.device().type)].enabled; }

Tensor lower(const Tensor& x) { return x && x.dtype() == DType::float32 ? cast(x, state(x.device().type).dtype) : x; }
Tensor raise(const Tensor& x) { return x && is_half(x.dtype()) ? cast(x, DType::float32) : x; }
Tensor operand(OpId op, const Tensor& x) {
  const Autocast how = op_info(op).autocast;
  return how == Autocast::Lower ? lower(x) : how == Autocast::Wide ? raise(x) : x;
}

Off::Off() : before_(t_local.off) { t_local.off = true; }
Off::~Off() { t_local.off = before_; }

}  // namespace pyflame::autocast
