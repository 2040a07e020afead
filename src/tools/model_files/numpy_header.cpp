#include "tools/model_files/numpy_header.h"

#include <charconv>
#include <cstring>

#include "pyflame/base/error.h"

namespace pyflame::tools::model_files {

namespace {

// What follows "'key':" in the text of a Python dict.
std::string_view after_key(std::string_view dict, std::string_view key) {
  const size_t at = dict.find(fmt::format("'{}'", key));
  PF_CHECK(at != std::string_view::npos, Value, "the header of an array has no {}", key);
  const size_t colon = dict.find(':', at);
  PF_CHECK(colon != std::string_view::npos, Value, "the header of an array has no {}", key);
  return dict.substr(colon + 1);
}

std::string dtype_of(std::string_view code) {
  constexpr std::pair<std::string_view, std::string_view> kCodes[] = {
      {"f8", "float64"}, {"f4", "float32"}, {"f2", "float16"},   {"i8", "int64"},      {"i4", "int32"},
      {"i2", "int16"},   {"i1", "int8"},    {"u1", "uint8"},     {"b1", "bool"},       {"u2", "uint16"},
      {"u4", "uint32"},  {"u8", "uint64"},  {"c8", "complex64"}, {"c16", "complex128"}};
  for (const auto& [short_name, name] : kCodes)
    if (code.substr(1) == short_name) return code[0] == '>' ? fmt::format("{} (big-endian)", name) : std::string(name);
  return std::string(code);
}

}  // namespace

NumpyArray read_numpy_header(std::string_view head) {
  PF_CHECK(head.size() > 12 && head.starts_with(kNumpyMagic), Value, "it is no array of NumPy");
  uint32_t length = 0;
  const bool wide = head[6] > 1;
  std::memcpy(&length, head.data() + 8, wide ? 4 : 2);
  const std::string_view dict = head.substr(wide ? 12 : 10, length);
  NumpyArray array;
  const std::string_view descr = after_key(dict, "descr");
  const size_t quote = descr.find('\''), end = descr.find('\'', quote + 1);
  PF_CHECK(quote != std::string_view::npos && end != std::string_view::npos && end - quote > 2, Value,
           "an array has a dtype of several fields");
  const std::string_view code = descr.substr(quote + 1, end - quote - 1);
  array.dtype = dtype_of(code);
  std::from_chars(code.data() + 2, code.data() + code.size(), array.item_bytes);
  std::string_view shape = after_key(dict, "shape");
  shape = shape.substr(0, shape.find(')'));
  for (size_t at = shape.find_first_of("0123456789"); at != std::string_view::npos;
       at = shape.find_first_of("0123456789")) {
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(shape.data() + at, shape.data() + shape.size(), size);
    PF_CHECK(error == std::errc() && array.shape.size() < 64, Value, "the shape of an array is not valid");
    array.shape.push_back(size);
    shape = std::string_view(stop, static_cast<size_t>(shape.data() + shape.size() - stop));
  }
  return array;
}

}  // namespace pyflame::tools::model_files
