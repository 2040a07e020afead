// Products by cuBLASLt or hipBLASLt.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/shapes/product.h"

namespace pyflame::gpu {

// A matrix of lines x depth as it is described to the library, whose columns run along the dim that is contiguous.
struct MatrixLayout {
  bool transposed = false;  // the columns run along the depth
  int64_t rows = 0, cols = 0, ld = 0;
};
// Empty if neither dim is contiguous.
std::optional<MatrixLayout> layout_of(int64_t lines, int64_t depth, int64_t line_stride, int64_t depth_stride);

// Why a library cannot compute the product (without the group's other nodes); empty if it can.
Refusal library_refuses(const Problem& p, const Product& product);
// The same for the whole group with its epilogue.
Refusal library_refuses_epilogue(const Problem& p);

// Whether the device's matrix cores support float32 inputs rounded to 10 bits of fraction (TF32, xf32).
bool has_rounded_products(const GpuDevice& device);

// Called last, because it asks the library itself. Only call it if the functions above have not refused.
Refusal library_has_no_kernel(const Problem& p);

std::unique_ptr<Executable> make_library(const Problem& p);
// By another of the library's algorithms than its first choice: "solution=5021" where the library numbers its kernels (hipBLASLt), otherwise
// "algorithm=3", the place in the order in which its heuristic recommends them.
std::vector<std::string> library_algorithms(const Problem& p);
// All others (enumerate.h).
std::unique_ptr<Enumeration> enumerate_library(const Problem& p);
std::unique_ptr<Executable> make_library(const Problem& p, const std::string& algorithm);

}  // namespace pyflame::gpu
