// The cache of programs. Keys are exact: the window's words and its liveness. It is bounded, in programs and in ops,
// because a program's memory grows with its ops; the newest come first.
#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

#include "pyflame/base/env.h"
#include "pyflame/base/fork.h"
#include "pyflame/compile/program.h"

namespace pyflame {

namespace {

struct Cache {
  struct Entry {
    uint64_t hash;
    size_t ops;
    std::shared_ptr<CachedProgram> cached;
  };
  std::mutex mutex;
  std::list<Entry> recent;  // newest first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> by_hash;
  CacheStats stats{};
  // By ViewReads::structure: which reads had one offset in all windows of this structure so far. Equal hashes of two
  // structures only make the parts finer than they need to be.
  std::unordered_map<uint64_t, std::vector<uint32_t>> parts;
};

Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}

const AtFork g_at_fork{ForkOrder::Programs, [] { cache().mutex.lock(); }, [](bool) { cache().mutex.unlock(); }};

// Variants of a window that differ only in liveness: after this many, a program that keeps more slots alive is used.
constexpr int kLivenessVariants = 4;

// Forgets the program that was used the longest ago. The cache's mutex is held.
void evict_oldest(Cache& c) {
  const auto oldest = std::prev(c.recent.end());
  auto [first, last] = c.by_hash.equal_range(oldest->hash);
  c.by_hash.erase(std::find_if(first, last, [&](const auto& found) { return found.second == oldest; }));
  c.stats.ops -= oldest->ops;
  c.recent.pop_back();
  ++c.stats.evictions;
}

uint64_t hash_words(const std::vector<uint64_t>& words) {
  uint64_t a = 0x9e3779b97f4a7c15ull, b = 0xd1b54a32d192ed03ull;
  size_t i = 0;
  for (; i + 1 < words.size(); i += 2) {
    a = (std::rotl(a, 5) ^ words[i]) * 0x9e3779b97f4a7c15ull;
    b = (std::rotl(b, 7) ^ words[i + 1]) * 0xc2b2ae3d27d4eb4full;
  }
  if (i < words.size()) a = (std::rotl(a, 5) ^ words[i]) * 0x9e3779b97f4a7c15ull;
  return a ^ std::rotl(b, 32);
}

bool serves(const Liveness& have, const Liveness& want) {
  for (const SlotId s : have.ids()) {
    if ((want[s] & 1) && !(have[s] & 1)) return false;  // live, but planned as dead
    if ((have[s] & 2) && !(want[s] & 2)) return false;  // planned as donated, but still in use
  }
  return true;
}

// The program for a key, or null. The cache's mutex is held.
std::shared_ptr<CachedProgram> look_up(Cache& c, uint64_t hash, const std::vector<uint64_t>& key,
                                       const Liveness& liveness) {
  auto [first, last] = c.by_hash.equal_range(hash);
  std::shared_ptr<CachedProgram> superset;
  int variants = 0;
  for (auto it = first; it != last; ++it) {
    const std::shared_ptr<CachedProgram>& found = it->second->cached;
    const Program& p = *found->program;
    if (p.key != key) continue;
    ++variants;
    if (p.liveness == liveness) {
      c.recent.splice(c.recent.begin(), c.recent, it->second);
      ++c.stats.hits;
      return found;
    }
    if (serves(p.liveness, liveness)) superset = found;
  }
  if (!superset || variants < kLivenessVariants) return nullptr;
  ++c.stats.hits;
  ++c.stats.superset_hits;
  return superset;
}

constexpr size_t kMostParts = 1024;

// If windows like w had other slices that coincide, binds apart the reads that did not have one offset in all of them.
// So the structure of these windows settles after a few of them. Returns whether w has changed. The cache's mutex is held.
bool split_views(Cache& c, Window& w, const Liveness& liveness) {
  Indexed<SlotId, bool> fixed(w.slots.size(), false);
  for (const SlotId s : w.slots.ids()) fixed[s] = liveness[s] & 2;  // its memory may be written by this window
  const ViewReads reads = find_view_reads(w, fixed);
  if (reads.words.empty()) return false;
  const bool known = c.parts.contains(reads.structure);
  if (!known && c.parts.size() >= kMostParts) c.parts.clear();
  std::vector<uint32_t>& parts = c.parts[reads.structure];
  if (parts.size() != reads.words.size()) parts.assign(reads.words.size(), 0);
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> finer;
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] =
        finer.try_emplace({parts[i], reads.bindings[i].index()}, static_cast<uint32_t>(finer.size())).first->second;
  if (known) bind_apart(w, reads, parts);
  return known;
}

}  // namespace

std::shared_ptr<CachedProgram> get_program(Window& w, Liveness liveness, bool* was_cached) {
  Cache& c = cache();
  uint64_t hash = hash_words(w.key);
  *was_cached = true;
  {
    std::lock_guard lock(c.mutex);
    std::shared_ptr<CachedProgram> found = look_up(c, hash, w.key, liveness);
    if (!found && split_views(c, w, liveness)) {
      hash = hash_words(w.key);
      found = look_up(c, hash, w.key, liveness);
    }
    if (found) return found;
    ++c.stats.misses;
  }
  *was_cached = false;
  const auto made = std::make_shared<CachedProgram>();
  made->program = compile_window(w, std::move(liveness));
  std::lock_guard lock(c.mutex);
  c.recent.push_front({hash, w.ops.size(), made});
  c.by_hash.emplace(hash, c.recent.begin());
  c.stats.ops += w.ops.size();
  const auto most = static_cast<size_t>(std::max<int64_t>(1, env::cache_size()));
  const auto most_ops = static_cast<uint64_t>(env::cache_ops());
  while (c.recent.size() > most || (c.stats.ops > most_ops && c.recent.size() > 1)) evict_oldest(c);
  return made;
}

void for_each_program(const std::function<void(CachedProgram&)>& fn) {
  std::vector<std::shared_ptr<CachedProgram>> all;
  {
    Cache& c = cache();
    std::lock_guard lock(c.mutex);
    for (const Cache::Entry& e : c.recent) all.push_back(e.cached);
  }
  for (const std::shared_ptr<CachedProgram>& p : all) fn(*p);
}

CacheStats cache_stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  CacheStats s = c.stats;
  s.programs = c.recent.size();
  return s;
}

void clear_program_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.by_hash.clear();
  c.recent.clear();
  c.parts.clear();
  c.stats.ops = 0;
}

}  // namespace pyflame
