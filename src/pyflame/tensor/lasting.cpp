#include "pyflame/tensor/lasting.h"

#include <mutex>
#include <unordered_map>

#include "pyflame/base/fork.h"

namespace pyflame {

namespace {

// By the storage's number, which is never reused. Marks of storages that are gone stay until there are many; then all are
// dropped, and what is kept of living ones is computed in each run again until a module marks them anew.
struct Marks {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<LastingMark>> by_storage;
};
constexpr size_t kMostMarks = size_t{1} << 18;

Marks& marks() {
  static Marks* m = new Marks;
  return *m;
}

const AtFork g_at_fork{ForkOrder::MemoryLog, [] { marks().mutex.lock(); }, [](bool) { marks().mutex.unlock(); }};

}  // namespace

void mark_lasting(const Storage& s) {
  Marks& m = marks();
  std::lock_guard lock(m.mutex);
  if (m.by_storage.size() >= kMostMarks) {
    for (auto& [id, mark] : m.by_storage) mark->ended = true;
    m.by_storage.clear();
  }
  std::shared_ptr<LastingMark>& mark = m.by_storage[s.id];
  if (!mark) mark = std::make_shared<LastingMark>();
}

std::shared_ptr<LastingMark> lasting_mark(const Storage& s) {
  Marks& m = marks();
  std::lock_guard lock(m.mutex);
  const auto at = m.by_storage.find(s.id);
  return at == m.by_storage.end() || at->second->ended ? nullptr : at->second;
}

void note_exposed(const Storage& s, bool for_good) {
  const std::shared_ptr<LastingMark> mark = lasting_mark(s);
  if (!mark) return;
  mark->exposed.fetch_add(1);
  if (for_good) mark->ended = true;
}

}  // namespace pyflame
