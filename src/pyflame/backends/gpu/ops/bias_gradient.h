// A matrix product with the sum of one of its operands (Group::summed), computed as two executables. This is used if it
// is faster than a library that computes both at once, and if such a library fails.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>

#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

// The group without the sum.
Group without_sum(const Problem& p);

// Runs two executables one after the other.
class OneAfterTheOther final : public Executable {
 public:
  OneAfterTheOther(std::unique_ptr<Executable> first, std::unique_ptr<Executable> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  size_t workspace() const override { return std::max(first_->workspace(), second_->workspace()); }
  bool capturable() const override { return first_->capturable() && second_->capturable(); }
  void run(const RunContext& ctx) override {
    first_->run(ctx);
    second_->run(ctx);
  }

 private:
  std::unique_ptr<Executable> first_, second_;
};

// The sum as a loop; and as a loop that is made when it first runs.
std::unique_ptr<Executable> make_sum(const Problem& p);
std::unique_ptr<Executable> make_sum_later(const Problem& p);

}  // namespace pyflame::gpu
