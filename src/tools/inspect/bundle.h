// The containers in which compilers pack device code: clang's offload bundles (plain, compressed, text) and LLVM's
// offload binaries. Both occur alone, or several in a row inside a section, padded with zeros.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/bytes.h"
#include "tools/inspect/decompress.h"

namespace pyflame::tools::inspect {

struct BundleEntry {
  std::string id;      // "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-"
  std::string target;  // "gfx942:xnack-"; empty for the host
  bool device = false;
  Bytes data;
};

struct Bundle {
  std::vector<BundleEntry> entries;
  uint64_t extent = 0;  // bytes of the file that it occupies
  std::vector<std::string> problems;
};

struct CompressedHeader {
  int version = 0;
  Compression method = Compression::zstd;
  uint64_t header = 0, file_size = 0, size = 0;  // file_size 0: version 1 does not have it
};

inline constexpr std::string_view kBundleMagic = "__CLANG_OFFLOAD_BUNDLE__", kCompressedMagic = "CCOB",
                                  kOffloadMagic = "\x10\xff\x10\xad";

// Error(Value) if not even the header can be read.
Bundle parse_bundle(Bytes data);
Bundle parse_offload_binary(Bytes data);
CompressedHeader parse_compressed_header(Bytes data);

// "# __CLANG_OFFLOAD_BUNDLE____START__ hip-amdgcn-…": what clang writes for -S and -E.
bool is_text_bundle(Bytes data);
std::vector<std::string> text_bundle_targets(Bytes data);

// The offset of the first bundle of any kind at or after `from`, if there is one.
std::optional<uint64_t> find_bundle(Bytes data, uint64_t from);
// The number of bytes of the bundle that starts there; 0 if only decompression can tell (version 1). Error(Value) as
// above.
uint64_t bundle_extent(Bytes data);

}  // namespace pyflame::tools::inspect
