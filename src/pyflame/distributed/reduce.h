// Reductions over ranks on the host. The values of an element are combined in the order of the ranks, so the bits of the result
// depend on the number of ranks alone, and not on who is first or on the transport.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pyflame/tensor/dtype.h"

namespace pyflame::distributed {

enum class Reduction : uint8_t { sum, avg, product, min, max };

// out[i] = sources[0][i] ∘ sources[1][i] ∘ …; avg divides the sum by their number. float16 and bfloat16 are combined in float32 and rounded
// once. `out` may be one of the sources. A NaN stays NaN. Complex numbers: sum and avg only, TypeError otherwise; avg of integers: TypeError.
void reduce(Reduction op, DType dtype, void* out, const std::vector<const void*>& sources, size_t count);
// Raises what reduce() would raise for this op and dtype.
void check_reduction(const char* where, Reduction op, DType dtype);

}  // namespace pyflame::distributed
