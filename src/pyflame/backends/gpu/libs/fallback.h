// Handles a library that returns an error for a problem that it had accepted. From then on, a kernel of our own
// computes this step, and a message says so once. What the library wrote is overwritten. If the device is lost, the
// error is raised. An algorithm that was asked for by name also raises it where it is timed: a kernel of our own must not
// count as the algorithm.
#pragma once
#include <memory>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

// Prints a message about a library, each text once.
void say_once(const std::string& text);
// Prints the message; throws `e` again if no other kernel can help.
void fall_back(const Error& e);

class WithOwn final : public Executable {
 public:
  WithOwn(std::unique_ptr<Executable> library, std::unique_ptr<Executable> own, bool named = false)
      : library_(std::move(library)), own_(std::move(own)), named_(named) {}
  size_t workspace() const override;
  void run(const RunContext& ctx) override;
  void end_stand_in() override;

 private:
  std::unique_ptr<Executable> library_, own_;
  bool named_;
  bool failed_ = false;
  bool must_pass_ = false;  // the next run is the library's, or an error
};

}  // namespace pyflame::gpu
