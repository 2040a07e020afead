// Products by cuBLASLt or hipBLASLt; by rocBLAS if hipBLASLt has no kernel.
#pragma once
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/shapes/product.h"

namespace pyflame::gpu {

// Why a library cannot compute the product (without the group's other nodes); empty if it can.
Refusal library_refuses(const Problem& p, const Product& product);
// The same for the whole group with its epilogue.
Refusal library_refuses_epilogue(const Problem& p);

// Whether the device's matrix cores support float32 inputs rounded to 10 bits of fraction (TF32, xf32).
bool has_rounded_products(const GpuDevice& device);

// Called last, because it asks the library itself. Only call it if the functions above have not refused.
Refusal library_has_no_kernel(const Problem& p);

std::unique_ptr<Executable> make_library(const Problem& p);

// The same, after library_refuses.
Refusal rocblas_refuses(const Problem& p);
std::unique_ptr<Executable> make_rocblas(const Problem& p);

}  // namespace pyflame::gpu
