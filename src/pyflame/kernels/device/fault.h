// How a kernel reports a value that it cannot use, such as an index out of range. The kernel skips the access and
// continues; the host raises an exception when it next waits for the device. A device has room for one report: the
// first report since the last wait is kept, and later ones are dropped. So if several kernels report, only the first
// one's results are known to be tainted; the others are found when the first cause is fixed and they run again.
#pragma once

namespace pf {

enum FaultKind {
  kIndexOutOfRange = 1,
  kNegativeProbability = 2,
  kOffsetsMissRows = 3,  // offsets of packed sequences do not match the rows
  kOffsetsDecrease = 4,
  kSequenceTooLong = 5
};

struct Fault {
  int kind;   // 0: no report
  int site;   // the number of the step, see RunContext::site
  i64 value;  // the value that was found
  i64 limit;  // the value must be below this
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
