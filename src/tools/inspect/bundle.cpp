#include "tools/inspect/bundle.h"

#include <algorithm>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

namespace {

constexpr std::string_view kTextStart = "__CLANG_OFFLOAD_BUNDLE____START__ ";
constexpr uint64_t kLongestId = 4096;

void name(BundleEntry& entry, std::string_view id) {
  entry.id = id;
  entry.device = id.find("amdgcn") != std::string_view::npos || id.find("spirv") != std::string_view::npos;
  const size_t at = id.find("-gfx");
  if (at != std::string_view::npos) entry.target = id.substr(at + 1);
}

}  // namespace

Bundle parse_bundle(Bytes data) {
  PF_CHECK(starts_with(data, kBundleMagic), Value, "not an offload bundle");
  Bundle bundle;
  uint64_t at = kBundleMagic.size();
  const auto count = read<uint64_t>(data, at);
  PF_CHECK(count.has_value(), Value, "the offload bundle ends inside its header; got {} bytes", data.size());
  at += 8;
  const uint64_t possible = (data.size() - at) / 24;  // an entry without an id has 24 bytes
  if (*count > possible)
    bundle.problems.push_back(
        fmt::format("the bundle claims {} entries, but its {} bytes can contain {}", *count, data.size(), possible));
  for (uint64_t i = 0; i < std::min(*count, possible); ++i) {
    const auto offset = read<uint64_t>(data, at), size = read<uint64_t>(data, at + 8),
               length = read<uint64_t>(data, at + 16);
    const auto id = length && *length <= kLongestId ? slice(data, at + 24, *length) : std::nullopt;
    if (!offset || !size || !id) {
      bundle.problems.push_back(fmt::format("the table of the bundle cannot be read after entry {} of {}", i, *count));
      break;
    }
    at += 24 + *length;
    BundleEntry entry;
    name(entry, as_text(*id));
    if (const auto part = slice(data, *offset, *size)) {
      entry.data = *part;
      bundle.extent = std::max(bundle.extent, *offset + *size);
    } else {
      bundle.problems.push_back(
          fmt::format("'{}' (offset {}, {} bytes) is outside of the bundle ({} bytes): is the file truncated?",
                      entry.id, *offset, *size, data.size()));
    }
    bundle.entries.push_back(std::move(entry));
  }
  bundle.extent = std::max(bundle.extent, at);
  return bundle;
}

Bundle parse_offload_binary(Bytes data) {
  PF_CHECK(starts_with(data, kOffloadMagic), Value, "not an offload binary");
  const auto version = read<uint32_t>(data, 4);
  const auto size = read<uint64_t>(data, 8), entry_at = read<uint64_t>(data, 16);
  PF_CHECK(version && size && entry_at, Value, "the offload binary ends inside its header; got {} bytes", data.size());
  PF_CHECK(*version == 1, Value, "unknown version of an offload binary; got {}; expected 1", *version);
  Bundle out;
  out.extent = std::min<uint64_t>(std::max<uint64_t>(*size, 32), data.size());
  const auto entry = slice(data, *entry_at, 40);
  PF_CHECK(entry.has_value(), Value, "an entry of the offload binary is outside of it; got offset {}", *entry_at);
  BundleEntry e;
  const uint64_t strings = *read<uint64_t>(*entry, 8), count = *read<uint64_t>(*entry, 16);
  for (uint64_t i = 0; i < std::min<uint64_t>(count, 64); ++i) {
    const auto pair = slice(data, strings, (i + 1) * 16);
    if (!pair) break;
    const auto key = read_text(data, *read<uint64_t>(*pair, i * 16)),
               value = read_text(data, *read<uint64_t>(*pair, i * 16 + 8));
    if (key == "arch" && value) e.target = value->substr(0, kLongestId);
    if (key == "triple" && value) e.id = value->substr(0, kLongestId);
  }
  e.device = e.id.find("amdgcn") != std::string::npos;
  if (const auto image = slice(data, *read<uint64_t>(*entry, 24), *read<uint64_t>(*entry, 32))) e.data = *image;
  else out.problems.push_back("the image of the offload binary is outside of it: is the file truncated?");
  out.entries.push_back(std::move(e));
  return out;
}

CompressedHeader parse_compressed_header(Bytes data) {
  PF_CHECK(starts_with(data, kCompressedMagic), Value, "not a compressed offload bundle");
  const auto version = read<uint16_t>(data, 4), method = read<uint16_t>(data, 6);
  PF_CHECK(version && method && data.size() >= 20, Value, "the compressed bundle ends inside its header; got {} bytes",
           data.size());
  PF_CHECK(*version >= 1 && *version <= 3, Value, "unknown version of a compressed bundle; got {}; expected 1 to 3",
           *version);
  PF_CHECK(*method <= 1, Value, "unknown compression method of a bundle; got {}; expected 0 (zlib) or 1 (zstd)",
           *method);
  CompressedHeader h;
  h.version = *version;
  h.method = *method == 0 ? Compression::zlib : Compression::zstd;
  h.header = *version == 1 ? 20 : *version == 2 ? 24 : 32;
  PF_CHECK(data.size() >= h.header, Value, "the compressed bundle ends inside its header; got {} bytes", data.size());
  if (*version == 1) {
    h.size = *read<uint32_t>(data, 8);
  } else if (*version == 2) {
    h.file_size = *read<uint32_t>(data, 8);
    h.size = *read<uint32_t>(data, 12);
  } else {
    h.file_size = *read<uint64_t>(data, 8);
    h.size = *read<uint64_t>(data, 16);
  }
  return h;
}

bool is_text_bundle(Bytes data) {
  const std::string_view head = as_text(data.first(std::min<size_t>(data.size(), 64)));
  const size_t at = head.find(kTextStart);
  return at != std::string_view::npos && at <= 4;  // after the sign of a comment
}

std::vector<std::string> text_bundle_targets(Bytes data) {
  std::vector<std::string> targets;
  const std::string_view text = as_text(data);
  for (size_t at = text.find(kTextStart); at != std::string_view::npos && targets.size() < 64;
       at = text.find(kTextStart, at + 1)) {
    const std::string_view rest = text.substr(at + kTextStart.size(), kLongestId);
    targets.emplace_back(rest.substr(0, rest.find_first_of("\r\n")));
  }
  return targets;
}

std::optional<uint64_t> find_bundle(Bytes data, uint64_t from) {
  // Bundles start at multiples of 8. The same letters elsewhere belong to other data.
  for (uint64_t at = (from + 7) / 8 * 8; at < data.size(); at += 8) {
    if (data[at] == 0) continue;
    const Bytes rest = data.subspan(at);
    if (starts_with(rest, kBundleMagic) || starts_with(rest, kCompressedMagic) || starts_with(rest, kOffloadMagic))
      return at;
  }
  return std::nullopt;
}

uint64_t bundle_extent(Bytes data) {
  if (starts_with(data, kBundleMagic)) return parse_bundle(data).extent;
  if (starts_with(data, kOffloadMagic)) return parse_offload_binary(data).extent;
  return parse_compressed_header(data).file_size;
}

}  // namespace pyflame::tools::inspect
