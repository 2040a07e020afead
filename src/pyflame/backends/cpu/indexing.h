// Reading and adding by index. Indices are checked before anything is written. Adding is deterministic: whoever owns
// a part of the output walks over all of its sources in order, so that the work is split over the output and never
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
