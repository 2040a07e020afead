// Steps of programs that functions from outside of PyFlame compute (plugin.h): entries of plug-ins, and ops of extensions.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/plugin.h"

namespace pyflame {

// A tensor as such functions see it. It points into shape and strides.
pyflame_plugin_tensor described_tensor(DType dtype, Device device, const Dims& shape, const Dims& strides, void* data);
// ErrorKind::Value: a type that PyFlame does not have.
DType described_dtype(uint8_t type_code, uint8_t bits);

class PluginCall final : public Executable {
 public:
  struct Target {
    pyflame_plugin_function function;
    void* context;
    std::string entry, op, attributes;
    bool repeats = true;
  };
  PluginCall(Target target, const Problem& p);
  Refusal ask();  // before the first run
  size_t workspace() const override { return workspace_; }
  bool capturable() const override { return false; }  // what it launches is not known
  bool repeats() const override { return target_.repeats; }
  void run(const RunContext& ctx) override;

 private:
  pyflame_plugin_call described();

  Target target_;
  const Backend& backend_;
  std::vector<Operand> operands_;  // inputs, then outputs
  std::vector<pyflame_plugin_tensor> tensors_;
  std::vector<std::array<std::byte, 8>> numbers_;  // of the operands that are numbers
  size_t inputs_ = 0;
  uint64_t workspace_ = 0;
  std::array<char, 256> why_{};
};

// The implementation of user_kernel for ops of extensions, on every device.
std::span<const Impl> extension_impls();

}  // namespace pyflame
