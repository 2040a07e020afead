// Marks on the storages of parameters and buffers of modules: their values are expected to last, so what is computed from
// them alone may be kept (runtime/kept.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "pyflame/tensor/storage.h"

namespace pyflame {

struct LastingMark {
  std::atomic<uint32_t> exposed{0};  // how often other code got a view of the bytes, which it may write
  std::atomic<bool> ended{false};    // other code has the address for good
};

void mark_lasting(const Storage& s);
std::shared_ptr<LastingMark> lasting_mark(const Storage& s);  // null: it has none
// Other code gets a view (Storage::exports counts them), or the address for good.
void note_exposed(const Storage& s, bool for_good);

}  // namespace pyflame
