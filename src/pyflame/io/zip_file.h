// The table of contents of a zip archive (also with 64-bit sizes). It is not trusted: every offset is checked against the file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/io/input_file.h"

namespace pyflame {

struct ZipEntry {
  std::string name;
  bool stored = false;        // not compressed: the bytes are at `begin` in the file
  bool deflated = false;      // compressed with deflate
  uint64_t begin = 0;         // where the (compressed) bytes begin
  uint64_t stored_bytes = 0;  // how many there are in the file
  uint64_t size = 0;          // and how many there are after decompression
};

// True if the file begins as a zip archive does.
bool is_zip(const InputFile& file);
// ValueError if the file is no archive, is damaged or encrypted.
std::vector<ZipEntry> read_zip(const InputFile& file);

}  // namespace pyflame
