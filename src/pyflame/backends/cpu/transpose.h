// Copies whose input is contiguous along another dim than their output, such as w.t().contiguous().
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame::cpu {

Refusal transpose_accepts(const Problem& p);
std::unique_ptr<Executable> transpose_make(const Problem& p);

}  // namespace pyflame::cpu
