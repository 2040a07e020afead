// The vendors' convolution libraries, cuDNN and MIOpen, found at run time. They share nothing but this: asked for a convolution over given
// memory, each has a list of plans in the order in which it believes in them.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/shapes/conv_case.h"

namespace pyflame::gpu {

// A convolution as a library is told of it. Tensors in the order image, weight, result.
struct DnnProblem {
  ConvFace face;
  DType dtype;
  ConvAttrs attrs;
  std::array<Dims, 3> shape, strides;
};

// One way to compute it, float32 in no less than float32.
class DnnPlan {
 public:
  virtual ~DnnPlan() = default;
  virtual size_t workspace() const = 0;
  // The same bits in every run; false only where the problem's attribute any_order allows it.
  virtual bool repeats() const = 0;
  // Asynchronous, on the device's stream. Pointers are aligned to 16 bytes. Any thread, one at a time.
  virtual void run(GpuDevice& device, const std::array<void*, 3>& tensors, void* workspace) = 0;
};

class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  virtual const char* name() const = 0;
  // At most `most` of them; none when it has none.
  virtual std::vector<std::unique_ptr<DnnPlan>> plans(GpuDevice& device, const DnnProblem& p, int most) const = 0;
};

// Null where it is not there, with the reason in `why`. Only asked where there is a device.
const DnnLibrary* cudnn(std::string* why);
const DnnLibrary* miopen(std::string* why);

// Can the device type's library take it? With the convolution's own refusals before that.
Refusal dnn_refuses(const Problem& p);
// A convolution by the library; `own` runs where pointers are not aligned as the library was promised.
std::unique_ptr<Executable> make_dnn(const Problem& p, std::unique_ptr<Executable> own);

}  // namespace pyflame::gpu
