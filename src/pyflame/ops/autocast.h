// Mixed precision: while it is on for a device type, products, convolutions and attention take float32 inputs in a half type, and what
// loses too much there (softmax, norms, losses, sums, exponentials) takes half types in float32. Per thread. An op that casts its inputs
// calls itself once more with Off, so that what it is composed of runs in the dtypes that it was given.
#pragma once
#include "pyflame/ops/ops.h"

namespace pyflame::autocast {

struct State {
  bool enabled = false;
  DType dtype = DType::bfloat16;
};
State state(DeviceType type);
// TypeError unless the dtype is float16 or bfloat16.
void set_state(DeviceType type, State s);

bool active(const Tensor& x);
Tensor lower(const Tensor& x);  // float32 -> the half type; everything else, and no tensor, as it is
Tensor raise(const Tensor& x);  // half types -> float32
// For ops that are better off in float32.
inline Tensor wide(const Tensor& x) { return active(x) ? raise(x) : x; }

class Off {
 public:
  Off();
  ~Off();
  Off(const Off&) = delete;
  Off& operator=(const Off&) = delete;

 private:
  bool before_;
};

}  // namespace pyflame::autocast
