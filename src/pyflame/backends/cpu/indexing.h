// Reading and adding by index. Indices are checked before anything is written. Adding is deterministic: the task that
// owns a part of the output visits all sources of this part in order, so the work is divided over the output, never
// over the sources.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_indexed_copy(const Problem& p);  // gather, index_select
std::unique_ptr<Executable> make_gather(const Problem& p);
std::unique_ptr<Executable> make_index_select(const Problem& p);
Refusal accept_index_add(const Problem& p);  // and scatter_add
std::unique_ptr<Executable> make_scatter_add(const Problem& p);
std::unique_ptr<Executable> make_index_add(const Problem& p);

}  // namespace pyflame::cpu
