// Addresses for the null device, which plans and computes nothing. The operating system gives a page of memory only when the page is written,
// and nothing writes the results of a plan. So a plan may be larger than the machine's memory. The addresses read as zeros, which only a plan
// may see (set_reads_are_zeros): anywhere else a tensor without values cannot be read.
#pragma once
#include <cstddef>

namespace pyflame {

void* reserve_addresses(size_t nbytes);  // null if there are no more
void release_addresses(void* p, size_t nbytes);
// Somebody got a pointer into reserved addresses, and may write there. Until the first time, all of them read as zeros.
void may_be_written();
// Makes a block of reserved addresses read as zeros again.
void forget_contents(void* p, size_t nbytes);

// Whether this thread may read values of the null device, which are zeros: while it plans a step that reads some. Returns what it was before.
bool reads_are_zeros();
bool set_reads_are_zeros(bool on);

}  // namespace pyflame
