// The debug allocator. While it is on, every block lies between guards: on the host between pages that cannot be accessed, and on a device
// between bands of a known pattern. A freed block is kept for a while, and accesses to it are found, too. Fresh memory is filled with a pattern
// that is NaN in every floating dtype. The executor checks after each step (debugged_run.h), so an error names the op. It costs one load while it
// is off.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/base/location.h"
#include "pyflame/tensor/device.h"

namespace pyflame::debug_memory {

struct Settings {
  bool guards = false;  // accesses outside of blocks and to freed blocks are found
  bool poison = false;  // reads of memory that nothing has written are found
  bool sync = false;    // devices are waited for after each step; the other two imply it
};

// PYFLAME_DEBUG_ALLOCATOR, until configure() replaces it. It holds for memory that is taken from then on.
Settings settings();
void configure(Settings s);

namespace detail {
enum : uint8_t { kGuards = 1, kPoison = 2, kSync = 4, kUnread = 128 };
extern std::atomic<uint8_t> flags;
uint8_t read_environment();
inline uint8_t now() {
  const uint8_t f = flags.load(std::memory_order_relaxed);
  return f == kUnread ? read_environment() : f;
}
}  // namespace detail
inline bool on() { return detail::now() != 0; }
inline bool fills() { return (detail::now() & detail::kPoison) != 0; }
inline bool blocks() { return (detail::now() & (detail::kGuards | detail::kPoison)) != 0; }

constexpr uint16_t kFresh = 0x7ff5;  // repeated: NaN in float16, bfloat16, float32 and float64
constexpr size_t kBandBytes = 512;   // on a device, on each side

// A block for the allocator. `memory`: null for the host. `raw`, of `raw_bytes`: memory of the device that has room for the bands; the host's
// blocks have pages of their own. Null: no memory.
void* take_host(size_t nbytes, size_t counted, SourceLoc at);
void* take_on_device(Device device, DeviceMemory& memory, void* raw, size_t nbytes, size_t counted, SourceLoc at);
constexpr size_t bytes_on_device(size_t nbytes) {
  return 2 * kBandBytes + (nbytes + kBandBytes - 1) / kBandBytes * kBandBytes;
}

// What the allocator does when a block is freed: it counts `counted` bytes less and returns `raw` (of this block, or of one that was
// freed earlier) to its segments, unless that is null. Empty: the block is none of ours.
struct Freed {
  size_t counted = 0;
  void* raw = nullptr;
};
std::optional<Freed> give(void* data);
// A freed block on the device that is kept, for an allocator that needs memory; null: there is none.
void* raw_to_return(Device device);

struct Violation {
  enum Kind : uint8_t { Written, Read, Touched } kind = Written;  // Touched: this CPU does not tell which
  enum Side : uint8_t { Before, Behind, Freed, Nowhere } side = Behind;
  const void* data = nullptr;  // the block
  size_t bytes = 0;            // its size
  size_t offset = 0;           // distance of the nearest byte from the block; Freed: from its begin
  size_t count = 0;            // bytes that were changed; 0: unknown
  SourceLoc at;                // the line that the block was taken for
  size_t more = 0;             // further blocks with violations
};
// The first violation since the last check. All guards are intact afterwards.
std::optional<Violation> check();

// The text of the first wrong access of this process; empty: none was found.
void found(const std::string& text);
std::string first_found();

// While a step runs on the host: what to say if it ends the process by a wrong access that no guard stops. Null: none runs.
void running(const char* text);

}  // namespace pyflame::debug_memory
