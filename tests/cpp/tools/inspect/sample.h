// Real code objects of tests/inspect/data/co, and what wraps them, made in memory.
#pragma once
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/source_dir.h"
#include "tools/inspect/bytes.h"
#include "tools/inspect/container.h"

namespace pyflame::tools::inspect::test {

using Buffer = std::vector<uint8_t>;

inline std::string sample_path(const std::string& name) {
  return pyflame::test::file_of_project("tests/inspect/data/co/" + name);
}
inline Memory sample(const std::string& name) {
  static std::map<std::string, Memory> mapped;
  auto [at, made] = mapped.try_emplace(name);
  if (made) at->second = map_file(sample_path(name));
  return at->second;
}
inline Buffer bytes_of(const Memory& m) { return {m.bytes.begin(), m.bytes.end()}; }
inline Buffer to_bytes(std::string_view text) { return {text.begin(), text.end()}; }
inline FileContents contents(const Buffer& file) { return read_contents("file", {Bytes(file), nullptr}); }

template <class T>
void put(Buffer& out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}
inline void put_text(Buffer& out, std::string_view text) { out.insert(out.end(), text.begin(), text.end()); }

inline Buffer padded(Buffer data, size_t to) {
  data.resize((data.size() + to - 1) / to * to);
  return data;
}

inline Buffer bundle(const std::vector<std::pair<std::string, Bytes>>& entries) {
  Buffer out;
  put_text(out, "__CLANG_OFFLOAD_BUNDLE__");
  put<uint64_t>(out, entries.size());
  uint64_t at = 4096;
  for (const auto& [id, data] : entries) {
    put<uint64_t>(out, at);
    put<uint64_t>(out, data.size());
    put<uint64_t>(out, id.size());
    put_text(out, id);
    at += (data.size() + 4095) / 4096 * 4096;
  }
  out = padded(out, 4096);
  for (const auto& [id, data] : entries) {
    out.insert(out.end(), data.begin(), data.end());
    out = padded(out, 4096);
  }
  return out;
}

inline Buffer compressed(const Buffer& data, bool zstd) {
  Buffer out(zstd ? ZSTD_compressBound(data.size()) : compressBound(data.size()));
  if (zstd) {
    out.resize(ZSTD_compress(out.data(), out.size(), data.data(), data.size(), 3));
  } else {
    uLongf size = out.size();
    compress2(out.data(), &size, data.data(), data.size(), 6);
    out.resize(size);
  }
  return out;
}

// `announced`: the size after decompression that the header claims.
inline Buffer compressed_bundle(const Buffer& data, int version, bool zstd, uint64_t announced) {
  const Buffer packed = compressed(data, zstd);
  const uint64_t header = version == 1 ? 20 : version == 2 ? 24 : 32, size = header + packed.size();
  Buffer out;
  put_text(out, "CCOB");
  put<uint16_t>(out, static_cast<uint16_t>(version));
  put<uint16_t>(out, zstd ? 1 : 0);
  if (version == 2) put<uint32_t>(out, static_cast<uint32_t>(size));
  if (version == 3) put<uint64_t>(out, size);
  if (version == 3) put<uint64_t>(out, announced);
  else put<uint32_t>(out, static_cast<uint32_t>(announced));
  put<uint64_t>(out, 0);  // the hash, which nothing needs
  out.insert(out.end(), packed.begin(), packed.end());
  return out;
}
inline Buffer compressed_bundle(const Buffer& data, int version, bool zstd) {
  return compressed_bundle(data, version, zstd, data.size());
}

inline Buffer offload_binary(std::string_view triple, std::string_view arch, Bytes image) {
  Buffer strings;
  const auto text = [&strings](std::string_view s) {
    const uint64_t at = 32 + 40 + 32 + strings.size();
    put_text(strings, s);
    strings.push_back(0);
    return at;
  };
  const uint64_t where[] = {text("triple"), text(triple), text("arch"), text(arch)};
  const uint64_t image_at = (32 + 40 + 32 + strings.size() + 7) / 8 * 8, size = image_at + image.size();
  Buffer out;
  put_text(out, "\x10\xff\x10\xad");
  put<uint32_t>(out, 1);
  put<uint64_t>(out, size);
  put<uint64_t>(out, 32);
  put<uint64_t>(out, 40);
  put<uint16_t>(out, 1);  // an object
  put<uint16_t>(out, 4);  // HIP
  put<uint32_t>(out, 0);
  put<uint64_t>(out, 72);
  put<uint64_t>(out, 2);
  put<uint64_t>(out, image_at);
  put<uint64_t>(out, image.size());
  for (const uint64_t w : where) put<uint64_t>(out, w);
  out.insert(out.end(), strings.begin(), strings.end());
  out = padded(out, 8);
  out.insert(out.end(), image.begin(), image.end());
  return out;
}

}  // namespace pyflame::tools::inspect::test
