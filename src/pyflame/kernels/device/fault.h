// What a kernel says when it meets a value that it cannot use (an index out of range): the kernel skips the access and goes on, and the host
// makes an exception of it when it next waits. A device has room for one report: the first of all kernels' since that wait stays and later
// ones are dropped. Results of the other kernels that reported are therefore not tainted until the first cause is mended and they run again.
#pragma once

namespace pf {

enum FaultKind {
  kIndexOutOfRange = 1,
  kNegativeProbability = 2,
  kOffsetsMissRows = 3,  // of packed sequences
  kOffsetsDecrease = 4,
  kSequenceTooLong = 5
};

struct Fault {
  int kind;   // 0: nothing happened
  int site;   // which step of which program
  i64 value;  // what was met
  i64 limit;  // what was expected to be above it
};

#ifdef PF_ON_DEVICE
PF_DEVICE void raise(Fault* fault, int site, int kind, i64 value, i64 limit) {
  if (atomic_swap_if(&fault->kind, 0, kind) == 0) {
    fault->site = site;
    fault->value = value;
    fault->limit = limit;
  }
}
#endif

}  // namespace pf
