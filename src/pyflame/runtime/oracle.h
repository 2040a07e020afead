// What a step computes by the reference implementation, on the host and in memory of its own. Tuning compares implementations with it
// (runtime/choose.h). Steps that would take the plain loops long, or whose result the op's definition leaves open, have no oracle.
#pragma once
#include <optional>
#include <vector>

#include "pyflame/runtime/replayer.h"
#include "pyflame/runtime/sums.h"

namespace pyflame {

class Oracle {
 public:
  // Nothing: there is none for step k. Its inputs must be computed.
  static std::optional<Oracle> of(const Frame& frame, size_t k);

  // The bytes of these slots after the step, one behind the other. Throws Error where the step fails.
  std::vector<char> result(const std::vector<SlotId>& slots) { return run(slots, inputs_); }
  // The same where about half of the floating-point inputs differ in their last bit: no implementation can be expected to be nearer.
  std::vector<char> nearby(const std::vector<SlotId>& slots);
  // What the step computes where it has bounds of its own (runtime/sums.h), and the sums of the terms' absolute values.
  const std::optional<SumOfProducts>& sum() const { return sum_; }
  std::vector<char> magnitudes(const std::vector<SlotId>& slots);

 private:
  using Bytes = Indexed<SlotId, std::vector<char>>;
  Oracle(const Frame& frame, size_t k, std::shared_ptr<Executable> executable, std::optional<SumOfProducts> sum);
  // The result where the bytes of all inputs of the dtype are changed.
  std::vector<char> changed(const std::vector<SlotId>& slots, DType dtype, void (*change)(std::vector<char>&, DType));
  std::vector<char> run(const std::vector<SlotId>& slots, Bytes memory) const;

  const Frame* frame_;
  size_t k_;
  std::shared_ptr<Executable> executable_;
  std::optional<SumOfProducts> sum_;
  Bytes inputs_;  // of the slots that the step reads
};

}  // namespace pyflame
