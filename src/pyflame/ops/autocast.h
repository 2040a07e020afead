// Mixed precision. While it is on for a device type, products, convolutions and attention cast float32 inputs to a 16-bit type, and
// ops that would lose too much precision (softmax, norms, losses, sums, exponentials) cast 16-bit inputs to float32. The state is
// per thread. The op table says which op does what. An op that has cast its inputs calls itself with Off, so that the ops inside it
// keep the dtypes that they are given.
#pragma once
#include "pyflame/ops/op.h"
#include "pyflame/ops/ops.h"

namespace pyflame::autocast {

// Whether mixed precision is on, and the 16-bit type that it casts to.
struct State {
  bool enabled = false;
  DType dtype = DType::bfloat16;
};
// This thread's state for a kind of device.
State state(DeviceType type);
// TypeError unless the dtype is float16 or bfloat16.
void set_state(DeviceType type, State s);

// Whether mixed precision is on for the tensor's device.
bool active(const Tensor& x);
Tensor lower(const Tensor& x);  // float32 -> the 16-bit type; other tensors, and undefined ones, are returned unchanged
Tensor raise(const Tensor& x);  // 16-bit types -> float32
// An input as the op takes it in mixed precision: by the trait `autocast` of the op table.
Tensor operand(OpId op, const Tensor& x);
// The same where mixed precision is on; otherwise x as it is.
template <OpId op>
decltype(auto) input(const Tensor& x) {
  if constexpr (op_info(op).autocast == Autocast::AsGiven) return (x);
  else return active(x) ? operand(op, x) : x;
}

// Turns mixed precision off for a scope, on this thread.
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
