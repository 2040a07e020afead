// The load that isa_lines.hip does in its loop, in a file of its own.
#pragma once
#include <hip/hip_runtime.h>

__device__ inline float load_one(const float* from, int i) { return from[i]; }
