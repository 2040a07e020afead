// Bounds-checked reading of untrusted bytes: every access gives an offset and a size. So no reader in this folder
// computes with pointers or trusts a length. Numbers are little-endian, as in all formats that are read here.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pyflame::tools::inspect {

using Bytes = std::span<const uint8_t>;

// `size` bytes at `offset`; nothing if they are not inside.
inline std::optional<Bytes> slice(Bytes data, uint64_t offset, uint64_t size) {
  if (offset > data.size() || size > data.size() - offset) return std::nullopt;
  return data.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
}

template <class T>
std::optional<T> read(Bytes data, uint64_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto part = slice(data, offset, sizeof(T));
  if (!part) return std::nullopt;
  T value;
  std::memcpy(&value, part->data(), sizeof(T));
  return value;
}

inline bool starts_with(Bytes data, std::string_view magic) {
  return data.size() >= magic.size() && std::memcmp(data.data(), magic.data(), magic.size()) == 0;
}

inline std::string_view as_text(Bytes data) { return {reinterpret_cast<const char*>(data.data()), data.size()}; }

// The text up to the next zero byte; nothing if there is none.
inline std::optional<std::string_view> read_text(Bytes data, uint64_t offset) {
  if (offset >= data.size()) return std::nullopt;
  const std::string_view rest = as_text(data.subspan(static_cast<size_t>(offset)));
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end);
}

inline bool all_zero(Bytes data) {
  return data.empty() || (data[0] == 0 && std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0);
}

// Bytes together with their owner: a mapped file or a buffer.
struct Memory {
  Bytes bytes;
  std::shared_ptr<const void> owner;
  Memory part(Bytes inner) const { return {inner, owner}; }
};

// Maps the file for reading; Error(OS) if it cannot be opened. An empty file has no bytes.
Memory map_file(const std::string& path);

}  // namespace pyflame::tools::inspect
