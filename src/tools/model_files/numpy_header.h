// The header of NumPy's npy files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools::model_files {

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
// A header is a line of text; files with long structured dtypes have more, and are of no interest here.
constexpr uint64_t kNumpyHeaderBytes = 4096;

struct NumpyArray {
  std::string dtype;  // "float32", or NumPy's own code where PyFlame has no such dtype
  std::vector<int64_t> shape;
  uint64_t item_bytes = 0;
};
// Reads the first bytes of a file. Error(Value) without the file's name if they are no such header.
NumpyArray read_numpy_header(std::string_view head);

}  // namespace pyflame::tools::model_files
