// Products by cuBLASLt or hipBLASLt; rocBLAS for what the latter has no kernel for.
#pragma once
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/shapes/product.h"

namespace pyflame::gpu {

// Why a library cannot take the product (its group's other nodes aside); empty when it can.
Refusal library_refuses(const Problem& p, const Product& product);
// And the whole group with its epilogue.
Refusal library_refuses_epilogue(const Problem& p);

// Whether the device's matrix units take float32 rounded to 10 bits of fraction (TF32, xf32).
bool has_rounded_products(const GpuDevice& device);

// Asked last, because it asks the library. Only where the two above have not refused.
Refusal library_has_no_kernel(const Problem& p);

std::unique_ptr<Executable> make_library(const Problem& p);

// Likewise after library_refuses.
Refusal rocblas_refuses(const Problem& p);
std::unique_ptr<Executable> make_rocblas(const Problem& p);

}  // namespace pyflame::gpu
