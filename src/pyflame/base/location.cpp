#include "pyflame/base/location.h"

#include <atomic>

namespace pyflame {

namespace {
std::atomic<SourceLoc (*)()> g_current{nullptr};
std::atomic<std::string (*)(const SourceLoc&)> g_describe{nullptr};
}  // namespace

SourceLoc current_location() {
  auto* fn = g_current.load(std::memory_order_relaxed);
  return fn ? fn() : SourceLoc{};
}

std::string describe_location(const SourceLoc& loc) {
  auto* fn = g_describe.load(std::memory_order_relaxed);
  return fn && loc.code ? fn(loc) : std::string("an unknown place");
}

void set_location_provider(SourceLoc (*current)(), std::string (*describe)(const SourceLoc&)) {
  g_describe = describe;
  g_current = current;
}

}  // namespace pyflame
