// A kernel from its source: compiled in the background from the moment it is made, waited for when it is first run.
#pragma once
#include <initializer_list>
#include <string>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/jit/rtc.h"

namespace pyflame::gpu {

const char* stored_type(DType d);  // the kernels' name of a dtype

// A kernel: the device sources and `files` (relative to src/pyflame/kernels) by name, then the kernel itself with `body` as "(parameters) {
// statements }"; `before` comes before it. Profilers show its name: pf_<name>, by default the device function that the body calls last.
// Short, because it is a key, and kept by each program that has the kernel.
std::string kernel_source(std::initializer_list<const char*> files, unsigned threads, const std::string& body,
                          const std::string& before = "", std::string name = "");

class Kernel {
 public:
  // `shared_bytes`: what dynamic_shared() gives.
  Kernel(DeviceType type, unsigned threads, std::string source, unsigned shared_bytes = 0);
  // Parameters by value, in the order of the kernel's.
  template <class... Args>
  void launch(int device_index, std::array<unsigned, 3> grid, const Args&... args) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
    static constexpr uint32_t kSizes[] = {sizeof(Args)...};
    run(device_index, grid, pointers, kSizes);
  }
  // `sizes`: bytes of each parameter. Without them a replay passes all parameters again each time.
  void run(int device_index, std::array<unsigned, 3> grid, void** parameters, std::span<const uint32_t> sizes = {});
  bool ready(int device_index) const;  // run() would not wait for a compiler

 private:
  DeviceType type_;
  unsigned threads_, shared_bytes_;
  std::string source_, arch_;
  std::shared_ptr<Compilation> compilation_;  // for arch_
  Function function_ = nullptr;               // of the device that ran it last
  int device_ = -1;
};

// The texts of the kernels that this thread makes while it lives: for compilers other than a device's.
class KernelTexts {
 public:
  KernelTexts();
  ~KernelTexts();
  KernelTexts(const KernelTexts&) = delete;
  KernelTexts& operator=(const KernelTexts&) = delete;
  const std::vector<std::string>& all() const { return all_; }

 private:
  friend class Kernel;
  std::vector<std::string> all_;
  KernelTexts* outer_;
};

}  // namespace pyflame::gpu
