// What the emulator's compiler makes and its runtime loads: this header, then the bytes of a shared library.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pyflame::emulator {

struct CodeHeader {
  char magic[8];
  uint64_t bytes, checksum;
};
constexpr char kMagic[8] = {'P', 'F', 'E', 'M', 'U', '1', 0, 0};
// With PYFLAME_EMULATOR_TEXTS a code object is these bytes alone.
constexpr char kNoCode[8] = {'P', 'F', 'E', 'M', 'U', '-', 0, 0};

inline uint64_t checksum(const char* p, size_t bytes) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<unsigned char>(p[i])) * 0x100000001b3ull;
  return h;
}

}  // namespace pyflame::emulator
