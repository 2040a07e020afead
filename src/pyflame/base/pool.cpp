// Lists of free blocks per thread. The lists have no destructor, so that other thread-local destructors may still free
// into them.
#include "pyflame/base/pool.h"

namespace pyflame::pool {

thread_local constinit Lists t_lists{};

namespace {

struct AtEnd {
  bool here = true;
  ~AtEnd() {
    t_lists.closing = true;
    for (Lists::List& list : t_lists.all)
      while (Block* b = list.first) {
        list.first = b->next;
        ::operator delete(b);
      }
  }
};

}  // namespace

void first_of_thread() {
  thread_local AtEnd t_at_end;
  t_at_end.here = true;
}

}  // namespace pyflame::pool
