// Decompresses untrusted data into a buffer of the size in its header, and no further. A small file cannot request more
// than kMostOutput, nor more than kMostRatio times its own size.
#pragma once
#include <string>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

constexpr uint64_t kMostOutput = uint64_t{4} << 30, kMostRatio = 1000, kAlwaysAllowed = uint64_t{64} << 20;

enum class Compression { zlib, zstd, bzip2 };

struct Decompressed {
  Memory data;            // as far as it could be decompressed
  uint64_t consumed = 0;  // bytes of the input
  std::string problem;    // empty if everything was right
};

Decompressed decompress(Compression method, Bytes input, uint64_t announced_size);

}  // namespace pyflame::tools::inspect
