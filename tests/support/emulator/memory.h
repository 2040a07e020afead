// The emulated devices' memory: plain blocks of the host's heap, so that AddressSanitizer sees each, and a table of them, so that every
// address which the program hands over can be judged.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace pyflame::emulator {

enum class Kind { device, pinned };

// Null when the device's memory is used up.
void* allocate(Kind kind, size_t bytes, int device);
// Empty, or what is wrong with the address.
std::string release(Kind kind, void* p);

// Empty when [p, p + bytes) lies in one live block of the kind.
std::string check(Kind kind, const void* p, size_t bytes);
bool is_pinned(const void* p);
// Whether a kernel may be given this address: null, in or just behind a live block of either kind.
bool is_reachable(const void* p);
// Empty, or which block somebody has written beyond.
std::string check_guards();

size_t used_memory(int device);

}  // namespace pyflame::emulator
