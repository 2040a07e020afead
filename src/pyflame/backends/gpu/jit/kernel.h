// A kernel from source text. Its compilation starts in the background when it is made; the first run waits for it.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/jit/rtc.h"

namespace pyflame::gpu {

const char* stored_type(DType d);  // the kernels' name for a dtype

// How a kernel of a replay begins on a device where it may start before the one in front of it has ended.
enum class Start {
  awaits,  // it waits for that one's end first
  itself,  // its function calls await_earlier_kernels(), in all its workgroups
  after    // it must start after that end: a compiler may move its reads anywhere
};

// The text of a kernel: names of the device sources and of `files` (relative to src/pyflame/kernels), then `before`,
// then the kernel with `body` as "(parameters) { statements }". Profilers show its name: pf_<name>, by default the last
// device function that the body calls. The text is short, because it is a key that each program with this kernel keeps.
std::string kernel_source(std::initializer_list<const char*> files, unsigned threads, const std::string& body,
                          const std::string& before = "", std::string name = "", Start start = Start::awaits);
// Whether it was made with Start::after.
bool starts_after(std::string_view source);

class Kernel {
 public:
  // `shared_bytes`: the size of dynamic_shared().
  Kernel(DeviceType type, unsigned threads, std::string source, unsigned shared_bytes = 0);
  // Parameters by value, in the order of the kernel's.
  template <class... Args>
  void launch(int device_index, std::array<unsigned, 3> grid, const Args&... args) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
    static constexpr uint32_t kSizes[] = {sizeof(Args)...};
    run(device_index, grid, pointers, kSizes);
  }
  // `sizes`: bytes of each parameter. Without them, a replay passes all parameters again at each update.
  void run(int device_index, std::array<unsigned, 3> grid, void** parameters, std::span<const uint32_t> sizes = {});
  bool ready(int device_index) const;  // whether run() would not wait for a compiler

 private:
  DeviceType type_;
  unsigned threads_, shared_bytes_;
  bool early_;  // not Start::after
  std::string source_, arch_;
  std::shared_ptr<Compilation> compilation_;  // for arch_
  Function function_ = nullptr;               // on the device that ran it last
  int device_ = -1;
};

// Collects the texts of the kernels that this thread makes while it exists, for other compilers than a device's.
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
