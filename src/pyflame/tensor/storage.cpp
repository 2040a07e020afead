#include "pyflame/tensor/storage.h"

#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

void Storage::free_data() {
  if (deleter) deleter();
  else if (owned_by_allocator && data) runtime_hooks.free_data(*this);
  deleter = nullptr;
  owned_by_allocator = false;
  data = nullptr;
}

}  // namespace pyflame
