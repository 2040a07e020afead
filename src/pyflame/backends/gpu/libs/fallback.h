// A library that returns an error where it had accepted: a kernel of our own computes the result instead, from then on for this step, and
// that is said once. What the library wrote is overwritten; a device that is lost stays lost.
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

// Says it; throws `e` again when no other kernel can help.
void fall_back(const Error& e);

class WithOwn final : public Executable {
 public:
  WithOwn(std::unique_ptr<Executable> library, std::unique_ptr<Executable> own)
      : library_(std::move(library)), own_(std::move(own)) {}
  size_t workspace() const override;
  void run(const RunContext& ctx) override;

 private:
  std::unique_ptr<Executable> library_, own_;
  bool failed_ = false;
};

}  // namespace pyflame::gpu
