// Checks of packed sequences, of groups of rows and of pages, for the op and for the backends that run on the host.
#pragma once
#include <cstdint>

#include "pyflame/base/error.h"

namespace pyflame {

// Sequence i has the rows from[i] to from[i + 1] - 1. The sequences cover all `rows` in order, and none is longer than
// `longest`.
inline void check_sequence_offsets(const char* op, const int32_t* from, int64_t sequences, int64_t rows,
                                   int64_t longest, const char* what = "the offsets") {
  PF_CHECK(from[0] == 0 && from[sequences] == rows, Value,
           "{}: {} do not begin with 0 or not end with the number of rows; got {} and {}; expected 0 and {}", op, what,
           from[0], from[sequences], rows);
  for (int64_t i = 0; i < sequences; ++i) {
    PF_CHECK(from[i] <= from[i + 1], Value, "{}: {} decrease; got {} after {}; expected at least as much", op, what,
             from[i + 1], from[i]);
    PF_CHECK(from[i + 1] - from[i] <= longest, Value,
             "{}: a sequence is longer than the given maximum; got {} rows of {}; expected at most {}", op,
             from[i + 1] - from[i], what, longest);
  }
}

// Group i ends at ends[i], where group i + 1 begins. The groups cover all `rows`.
inline void check_group_ends(const char* op, const int32_t* ends, int64_t groups, int64_t rows) {
  int32_t before = 0;
  for (int64_t g = 0; g < groups; before = ends[g++])
    PF_CHECK(ends[g] >= before, Value, "{}: the groups' ends decrease; got {} after {}; expected at least as much", op,
             ends[g], before);
  PF_CHECK(before == rows, Value, "{}: the last group does not end with the rows; got {}; expected {}", op, before,
           rows);
}

// The keys first to end - 1 of a sequence, which its query sees; its pages are checked. window 0: all of them.
struct PageList {
  int64_t first = 0, end = 0;
  template <class T>
  PageList(const char* op, const T* table, int64_t columns, int64_t page, int64_t pages, int64_t length, int64_t window)
      : end(length) {
    const auto check = [&](int64_t x, int64_t limit) {
      PF_CHECK(x >= 0 && x < limit, Index, "{}: index out of range; got {}; expected 0 <= index < {}", op, x, limit);
    };
    check(length, columns * page + 1);
    if (window > 0 && length > window) first = length - window;
    for (int64_t i = first / page; i * page < end; ++i) check(table[i], pages);
  }
};

}  // namespace pyflame
