// A sample of the elements that a step must compute: a few hundred, directly from the inputs and in double. Tuning compares implementations
// with it where the reference implementation would take long or has no bound (runtime/choose.h): products, convolutions and their gradients, also
// with elementwise nodes behind them, attention and its gradient, also of packed sequences, and attention to pages. Recurrent layers have none: an element depends on all hidden units of all
// steps before it, and each step can multiply an error, so many steps leave no useful bound. The corners and the last places of each dim are among the elements, because there tiles go wrong.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/runtime/replayer.h"

namespace pyflame {

// One element of an operand that the step writes.
struct SampledElement {
  BindingId binding;
  DType dtype;
  int64_t at;  // from the binding's pointer, in elements
  Dims index;
  double value, allowed;  // a right result differs by no more
  // How far a result is off, as a part of what is allowed; infinity for NaN.
  double error(double got) const;
};

// The place of an element of an operand that the step writes.
struct SampledPlace {
  const Operand* operand;
  Dims index;
};

// Elements of what the problem stores. Pointers are into the host's memory; those of stored results are not read. Empty: the problem is none of those
// above, or no element has a bound, because all are infinite or NaN. It takes at most 2^24 multiplications, or those of 64 elements or
// 8 rows of attention if these are more, but not more than 2^26 unless 4 of them are more. So it takes no longer where the result is larger.
std::vector<SampledElement> sampled_elements(const Problem& p, Pointers pointers, Params params);

// The sample of a step of a program.
class Sample {
 public:
  ~Sample();
  Sample(Sample&&) noexcept;
  Sample& operator=(Sample&&) noexcept;
  // Nothing: there is none, or no memory for it. The step's inputs must be computed. Those of a device are copied: at most 1 GiB.
  static std::optional<Sample> of(const Frame& frame, size_t k);

  struct Difference {
    double error = 0;   // the largest one, as a part of what is allowed; infinity for NaN
    std::string where;  // "got 3 at (5, 7); expected 4 to within 0.1"
  };
  // How a slot's bytes after a run differ.
  Difference difference(SlotId slot, const char* bytes) const;
  enum class Added {
    compared,  // the element is one of the sample from now on
    open,      // it has no bound: what is there does not count
    unknown,   // no element is there that can be computed
    too_long   // it is not computed: see allow_more(), or there is no memory
  };
  // Another result differs from the expected one. At least 4 more elements, or rows of queries, can be added.
  void allow_more();
  // Adds the element at a byte of a slot. Two results differ there, and one of them may be wrong.
  Added add(SlotId slot, int64_t byte);
  // Whether it is known, without computing anything, that the element there has no bound.
  bool is_open(SlotId slot, int64_t byte) const;
  // The most that is allowed for an element of the slot.
  double most_allowed(SlotId slot) const;

 private:
  struct Placed {
    SlotId slot;
    int64_t byte;  // in the slot
    SampledElement element;
  };
  class Inputs;
  struct Spent;
  explicit Sample(std::unique_ptr<Inputs> inputs);
  static std::optional<Sample> of_step(const Frame& frame, size_t k);
  // Adds the elements at one place, or at the usual ones. false: they take too long.
  bool compute(const SampledPlace* place);
  Added add_to(SlotId slot, int64_t byte, Added missing);
  bool has(SlotId slot, int64_t byte) const;
  // In a result of the product, convolution or attention.
  std::optional<SampledPlace> place_of(SlotId slot, int64_t byte) const;

  std::unique_ptr<Inputs> inputs_;
  std::vector<Placed> all_;
  std::set<std::pair<SlotId, int64_t>> open_;
  std::unique_ptr<Spent> work_;  // multiplications
  double greatest_ = 0;          // of the sums of absolute values
};

}  // namespace pyflame
