// What a kernel says when it meets a value that it cannot use, for example an index out of range. The kernel skips the access and goes on.
// The host makes an exception of the report when it next waits.
//
// A device has one table. A step reports into the entry of its number modulo the table's size, once. A later step takes over an entry that
// an earlier one had, so nobody has to clear the table; `claims` counts how often an entry was taken, which tells the host when it has missed
// a report.
#pragma once

#ifndef PF_ON_DEVICE
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"
#endif

namespace pf {

enum FaultKind {
  kIndexOutOfRange = 1,
  kNegativeProbability = 2,
  kOffsetsMissRows = 3,  // of packed sequences
  kOffsetsDecrease = 4,
  kSequenceTooLong = 5,
  kGroupEndsDecrease = 6,
  kGroupEndsMissRows = 7
};

enum { kFaultReports = 64 };

// backends/backend.h has the same layout.
struct FaultReport {
  int site;  // which step of which program; 0: none
  int kind;
  i64 value;  // what was met
  i64 limit;  // what was expected to be above it
};
struct Fault {
  int claims;
  int unused;
  FaultReport reports[kFaultReports];
};
static_assert(sizeof(FaultReport) == 24 && sizeof(Fault) == 8 + 24 * kFaultReports);

#ifdef PF_ON_DEVICE
PF_DEVICE void raise(Fault* fault, int site, int kind, i64 value, i64 limit) {
  FaultReport* report = fault->reports + site % kFaultReports;
  for (int before = report->site; before != site;) {
    const int found = atomic_swap_if(&report->site, before, site);
    if (found == before) {
      atomic_add(&fault->claims, 1);
      report->kind = kind;
      report->value = value;
      report->limit = limit;
      return;
    }
    before = found;
  }
}
#endif

}  // namespace pf
