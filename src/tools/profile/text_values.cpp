// Parses numbers, types and directions of copies.
#include "tools/profile/text_values.h"
#include "tools/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

namespace pyflame::tools::profile {

namespace {

struct Type {
  std::string_view name, family;
  int64_t bytes;
};

constexpr Type kTypes[] = {
    {"float", "fp32", 4},     {"float32", "fp32", 4},
    {"f32_r", "fp32", 4},     {"fp32", "fp32", 4},
    {"f32", "fp32", 4},       {"c10::complex<float>", "fp32", 8},
    {"double", "fp64", 8},    {"float64", "fp64", 8},
    {"f64_r", "fp64", 8},     {"fp64", "fp64", 8},
    {"f64", "fp64", 8},       {"c10::half", "fp16", 2},
    {"half", "fp16", 2},      {"float16", "fp16", 2},
    {"f16_r", "fp16", 2},     {"fp16", "fp16", 2},
    {"f16", "fp16", 2},       {"c10::bfloat16", "bf16", 2},
    {"bfloat16", "bf16", 2},  {"bf16_r", "bf16", 2},
    {"bf16", "bf16", 2},      {"long int", "", 8},
    {"long", "", 8},          {"int64", "", 8},
    {"int", "", 4},           {"int32", "", 4},
    {"short", "", 2},         {"signed char", "int8", 1},
    {"i8", "int8", 1},        {"char", "int8", 1},
    {"unsigned char", "", 1}, {"bool", "", 1},
    {"int8", "int8", 1},      {"i8_r", "int8", 1},
    {"uint8", "", 1},         {"byte", "", 1},
    {"a8w8", "fp8", 1},       {"fp4", "fp4", 0},
};

const Type* find_type(std::string_view type) {
  const std::string name = lower(type.substr(0, 64));
  for (const Type& t : kTypes)
    if (name == t.name) return &t;
  static constexpr Type fp8 = {"float8", "fp8", 1};
  if (name.find("float8") != std::string::npos || name.starts_with("f8_") || name.starts_with("bf8_") || name == "fp8")
    return &fp8;
  return nullptr;
}

}  // namespace

bool to_int(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool microseconds_to_ns(std::string_view text, int64_t& ns) {
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  if (text.size() < 40 && text.find_first_of("eE") == std::string_view::npos) {
    int64_t us = 0;
    if (!to_int(whole, us) || us > kMaxTime / 1000 || us < -kMaxTime / 1000) return false;
    int64_t rest = 0;
    if (point != std::string_view::npos) {
      std::string digits(text.substr(point + 1, 3));
      digits.resize(3, '0');
      if (!to_int(digits, rest)) return false;
    }
    ns = us * 1000 + (text.starts_with('-') ? -rest : rest);
    return true;
  }
  double value = 0;  // 1.5e9, which no profiler writes, but JSON allows
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || std::abs(value) > static_cast<double>(kMaxTime) / 1000)
    return false;
  ns = std::llround(value * 1000);
  return true;
}

int64_t type_bytes(std::string_view type) {
  const Type* t = find_type(type);
  return t == nullptr ? 0 : t->bytes;
}

std::string_view type_family(std::string_view type) {
  const Type* t = find_type(type);
  return t == nullptr ? std::string_view() : t->family;
}

Direction direction_of(std::string_view text) {
  struct Word {
    std::string_view word;
    Direction direction;
  };
  static constexpr Word words[] = {
      {"HtoD", Direction::host_to_device},
      {"HostToDevice", Direction::host_to_device},
      {"HOST_TO_DEVICE", Direction::host_to_device},
      {"DtoH", Direction::device_to_host},
      {"DeviceToHost", Direction::device_to_host},
      {"DEVICE_TO_HOST", Direction::device_to_host},
      {"PtoP", Direction::peer},
      {"PeerToPeer", Direction::peer},
      {"DtoD", Direction::device_to_device},
      {"DeviceToDevice", Direction::device_to_device},
      {"DEVICE_TO_DEVICE", Direction::device_to_device},
      {"HtoH", Direction::host_to_host},
      {"HostToHost", Direction::host_to_host},
      {"HOST_TO_HOST", Direction::host_to_host},
  };
  for (const Word& w : words)
    if (text.find(w.word) != std::string_view::npos) return w.direction;
  return Direction::unknown;
}

HostMemory host_memory_of(std::string_view text) {
  if (text.find("Pageable") != std::string_view::npos) return HostMemory::pageable;
  if (text.find("Pinned") != std::string_view::npos) return HostMemory::pinned;
  return HostMemory::unknown;
}

const char* name_of(Direction d) {
  switch (d) {
    case Direction::host_to_device: return "host to device";
    case Direction::device_to_host: return "device to host";
    case Direction::device_to_device: return "device to device";
    case Direction::peer: return "device to another device";
    case Direction::host_to_host: return "host to host";
    case Direction::unknown: break;
  }
  return "unknown direction";
}

}  // namespace pyflame::tools::profile
