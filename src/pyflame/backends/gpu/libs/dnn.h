// The vendors' convolution libraries, cuDNN and MIOpen, loaded at run time. They have only this in common: for a
// convolution with given layouts, each returns a list of plans in its order of preference.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/shapes/conv_case.h"

namespace pyflame::gpu {

// A convolution in the form that libraries take. The tensors are in the order image, weight, result.
struct DnnProblem {
  ConvPass pass;
  DType dtype;
  ConvAttrs attrs;
  std::array<Dims, 3> shape, strides;
};

// A plan to compute it. float32 is computed with no less precision than float32, unless attrs.rounded allows it.
class DnnPlan {
 public:
  virtual ~DnnPlan() = default;
  virtual size_t workspace() const = 0;
  // Whether every run gives the same bits; false only if the problem's attribute any_order allows it.
  virtual bool repeats() const = 0;
  // The library's own number of it, "solution=85"; empty: it has none, and its place in the list tells it from others.
  virtual std::string number() const { return ""; }
  // Asynchronous, on the device's stream. Pointers are aligned to 16 bytes. Any thread may call, one at a time.
  virtual void run(GpuDevice& device, const std::array<void*, 3>& tensors, void* workspace) = 0;
};

class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  virtual const char* name() const = 0;
  // Whether matrix cores may compute float32 with rounded inputs, where this is allowed.
  virtual bool rounds_float32() const { return false; }
  // Whether it is known to be faster than our own kernel where groups have few channels, as in depthwise convolutions.
  virtual bool fast_for_few_channels() const { return false; }
  // At most `most` plans; none if the library has none.
  virtual std::vector<std::unique_ptr<DnnPlan>> plans(GpuDevice& device, const DnnProblem& p, int most) const = 0;
};

// Whether the library of the device type can compute it, and not much slower than our own kernel; first, this checks the refusals that concern any
// convolution. `own` makes that kernel, for the convolution alone. It is tried where the library's fastest plan is surprisingly slow.
Refusal dnn_refuses(const Problem& p, std::unique_ptr<Executable> (*own)(const Problem&));
// Whether the library is there and says that it is fast_for_few_channels().
bool dnn_is_fast_for_few_channels(DeviceType type);
// A convolution by the library. `own` is a kernel of ours, which runs if a pointer lacks the alignment that the plan
// needs.
std::unique_ptr<Executable> make_dnn(const Problem& p, std::unique_ptr<Executable> own);
// By another plan than the one that the search found: "plan=3,channels_last" is the library's fourth plan for tensors in this memory
// format, "solution=85,contiguous" the one with this number. Only call these if dnn_refuses did not refuse.
std::vector<std::string> dnn_plans(const Problem& p);
std::unique_ptr<Executable> make_dnn(const Problem& p, std::unique_ptr<Executable> own, const std::string& plan);

}  // namespace pyflame::gpu
