// A hand-written kernel: sources of src/pyflame/kernels with one instantiation, compiled when it is first run.
#pragma once
#include <initializer_list>

#include "pyflame/backends/gpu/device.h"
#include "pyflame/backends/gpu/rtc.h"

namespace pyflame::gpu {

const char* stored_type(DType d);  // the kernels' name of a dtype

// The text of a kernel: the device sources, then `files` (relative to src/pyflame/kernels), then the kernel itself with `body` as
// "(parameters) { statements }".
std::string kernel_source(std::initializer_list<const char*> files, unsigned threads, const std::string& body);

class Kernel {
 public:
  // `shared_bytes`: what dynamic_shared() gives.
  Kernel(DeviceType type, unsigned threads, std::string source, unsigned shared_bytes = 0)
      : type_(type), threads_(threads), shared_bytes_(shared_bytes), source_(std::move(source)) {}
  // Parameters by value, in the order of the kernel's.
  template <class... Args>
  void launch(int device_index, std::array<unsigned, 3> grid, const Args&... args) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
    run(device_index, grid, pointers);
  }
  void run(int device_index, std::array<unsigned, 3> grid, void** parameters);

 private:
  DeviceType type_;
  unsigned threads_, shared_bytes_;
  std::string source_;
  Function function_ = nullptr;  // of the device that ran it last
  int device_ = -1;
};

// An operand's sizes and strides as kernels take them (kernels/device/view.h).
struct View {
  int64_t shape[8] = {}, strides[8] = {};
  int32_t rank = 0;
};
View view_of(const Dims& shape, const Dims& strides);

}  // namespace pyflame::gpu
