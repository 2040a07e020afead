// A safetensors file on disk: its checked header, and access to the tensors' bytes. It uses no other part of the
// engine, so it can be fuzzed alone.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/io/input_file.h"
#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

using Metadata = std::map<std::string, std::string>;

namespace safetensors {

// The limit of the format's own reader.
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
// The format has no complex128.
inline constexpr std::array<DTypeName, kNumDTypes - 1> kNames = {{
    {DType::float64, "F64"},
    {DType::float32, "F32"},
    {DType::float16, "F16"},
    {DType::bfloat16, "BF16"},
    {DType::int64, "I64"},
    {DType::int32, "I32"},
    {DType::int16, "I16"},
    {DType::int8, "I8"},
    {DType::uint8, "U8"},
    {DType::bool_, "BOOL"},
    {DType::complex64, "C64"},
    {DType::float8_e4m3fn, "F8_E4M3"},
    {DType::float8_e5m2, "F8_E5M2"},
    {DType::float8_e4m3fnuz, "F8_E4M3FNUZ"},
    {DType::float8_e5m2fnuz, "F8_E5M2FNUZ"},
}};

struct Entry {
  std::string name;
  DType dtype = DType::float32;
  Dims shape;
  uint64_t begin = 0, end = 0;  // in the file
};

class Reader {
 public:
  // OSError when it cannot be read, ValueError when it is not a valid safetensors file.
  explicit Reader(const std::string& path);
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the header
  const Metadata& metadata() const { return metadata_; }
  // Reads the bytes of one tensor. OSError, OutOfMemory; ValueError for a boolean that is neither 0 nor 1.
  std::unique_ptr<char[]> read(const Entry& entry) const;
  // The same, into memory of the caller.
  void read_to(const Entry& entry, void* to) const;

 private:
  void check_values(const Entry& entry, const void* data) const;
  void read_header();

  InputFile file_;
  std::vector<Entry> entries_;
  Metadata metadata_;
};

}  // namespace safetensors
}  // namespace pyflame
