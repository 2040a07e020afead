// The vendors that have registered.
#include "pyflame/backends/gpu/libs/vendor.h"

#include <array>
#include <atomic>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

std::atomic<const Vendor*>& slot(DeviceType type) {
  static std::array<std::atomic<const Vendor*>, 2> all{};
  return all[type == DeviceType::rocm ? 0 : 1];
}

}  // namespace

void register_vendor(const Vendor& v) { slot(v.type).store(&v, std::memory_order_release); }

const Vendor& vendor(DeviceType type) {
  const Vendor* v = slot(type).load(std::memory_order_acquire);
  PF_CHECK(v, Runtime, "gpu: a vendor's libraries are asked for before its backend was; got '{}'", Device{type}.str());
  return *v;
}

}  // namespace pyflame::gpu
