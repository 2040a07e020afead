#include "pyflame/runtime/kept.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "pyflame/record/rewrite_mask.h"
#include "pyflame/runtime/state.h"

namespace pyflame {

namespace {

constexpr size_t kMostSets = 64;

// By device; more devices share the last counter.
std::atomic<int64_t>& counter(Device d) {
  constexpr size_t kEach = 16;
  static std::array<std::atomic<int64_t>, kEach * kNumDeviceTypes> all{};
  return all[static_cast<size_t>(d.type) * kEach + std::min<size_t>(static_cast<size_t>(d.index), kEach - 1)];
}

// Whether nobody can change the storage without a trace.
bool is_steady(const Storage& s) {
  return !s.foreign && !s.escaped() && !s.poison && s.data && !s.writer.load(std::memory_order_relaxed);
}

bool is_empty(const Storage& s) { return !s.data && !s.foreign && !s.poison; }

}  // namespace

uint64_t kept_bytes(Device device) { return static_cast<uint64_t>(std::max<int64_t>(0, counter(device).load())); }

void release_kept_values() {
  for_each_program([](CachedProgram& p) {
    if (p.kept) p.kept->release();
  });
}

KeptValues::KeptValues(Separated s, Device device)
    : device_(device),
      added_(s.rest.added),
      roots_(s.roots),
      kept_(s.kept),
      empty_(s.empty),
      params_(s.params),
      bindings_(s.bindings) {
  separated_ = std::make_unique<Separated>(std::move(s));
}

KeptValues::~KeptValues() { release(); }

std::shared_ptr<KeptValues> KeptValues::find(const Window& w, const Program& p, std::vector<RewriteNote>& notes) {
  Indexed<SlotId, Origin> origins(w.slots.size(), Origin::Other);
  bool any = false;
  for (const SlotId s : w.slots.ids()) {
    const Storage& st = *w.slots[s].storage;
    if (!w.slots[s].external) continue;
    if (is_empty(st)) origins[s] = Origin::Empty;
    if (!is_steady(st) || !lasting_mark(st)) continue;
    origins[s] = Origin::Lasting;
    any = true;
  }
  if (!any) return nullptr;
  Rewritten graph = prepare_graph(w, p.liveness);
  origins.resize(graph.graph.slots.size(), Origin::Other);
  std::optional<Separated> found = separate(graph, origins, rewrites_of(w), &notes);
  if (!found) return nullptr;
  // Views that rewrites have added have fixed offsets, and the window does not know them.
  std::erase_if(found->bindings, [&](BindingId b) { return b.index() >= w.bindings.size(); });
  found->rest.notes = std::move(graph.notes);
  found->rest.notes.insert(found->rest.notes.end(), found->notes.begin(), found->notes.end());
  return std::shared_ptr<KeptValues>(new KeptValues(std::move(*found), w.device));
}

bool KeptValues::steady(const Window& w) const {
  const auto all = [&](const std::vector<SlotId>& slots, auto holds) {
    return std::all_of(slots.begin(), slots.end(), [&](SlotId s) { return holds(*w.slots[s].storage); });
  };
  return all(roots_, is_steady) && all(empty_, is_empty);
}

bool KeptValues::unchanged(const Set& known, const Window& w) const {
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Root& r = known.roots[i];
    const Storage& s = *w.slots[roots_[i]].storage;
    if (r.storage != s.id || r.version != s.version.load(std::memory_order_relaxed) ||
        r.exposed != r.mark->exposed.load(std::memory_order_relaxed) || r.mark->ended.load(std::memory_order_relaxed))
      return false;
  }
  return true;
}

bool KeptValues::same_numbers(const Set& known, const Window& w) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param &a = known.params[i], &b = w.params[params_[i]];
    if (a.kind != b.kind || a.i != b.i) return false;
  }
  for (size_t i = 0; i < bindings_.size(); ++i)
    if (known.offsets[i] != w.bindings[bindings_[i]].byte_offset) return false;
  return true;
}

// Empty roots: one of them is no lasting value.
KeptValues::Set KeptValues::look(const Window& w) const {
  Set now;
  for (const SlotId slot : roots_) {
    const Storage& s = *w.slots[slot].storage;
    std::shared_ptr<LastingMark> mark = lasting_mark(s);
    if (!mark) return {};
    now.roots.push_back({s.id, s.version.load(std::memory_order_relaxed), mark->exposed.load(), std::move(mark)});
  }
  for (const ParamId p : params_) now.params.push_back(w.params[p]);
  for (const BindingId b : bindings_) now.offsets.push_back(w.bindings[b].byte_offset);
  return now;
}

KeptValues::Due KeptValues::next(const Window& w, const Program& p) {
  if (off_ || !steady(w)) return Due::Original;
  const uint64_t first = w.slots[roots_[0]].storage->id;
  const auto of_same = std::find_if(sets_.begin(), sets_.end(),
                                    [&](const Set& s) { return s.roots[0].storage == first && same_numbers(s, w); });
  if (of_same != sets_.end() && unchanged(*of_same, w)) {
    if (of_same != sets_.begin()) std::rotate(sets_.begin(), of_same, of_same + 1);
    if (!sets_[0].values.empty()) return Due::Use;
    compile(p);
    return Due::Compute;
  }
  Set now = look(w);
  if (of_same != sets_.end()) {
    count(*of_same, -1);
    sets_.erase(of_same);
  } else if (sets_.size() >= kMostSets) {
    count(sets_.back(), -1);
    sets_.pop_back();
  }
  if (!now.roots.empty()) sets_.insert(sets_.begin(), std::move(now));
  return Due::Original;
}

void KeptValues::compile(const Program& p) {
  if (first_.program) return;
  first_.program = compile_instead(p, std::move(separated_->first));
  rest_.program = compile_instead(p, std::move(separated_->rest));
  first_.state = std::make_shared<ProgramState>(*first_.program);
  rest_.state = std::make_shared<ProgramState>(*rest_.program);
  count_fired(separated_->notes);
  separated_ = nullptr;
}

void KeptValues::count(const Set& s, int64_t sign) const {
  for (const Ref<Storage>& v : s.values) counter(device_).fetch_add(sign * static_cast<int64_t>(v->nbytes));
}

bool KeptValues::take(AddedToWindow& window, Window& w) {
  Set& now = sets_[0];
  for (const SlotId s : kept_) {
    const Ref<Storage> value = w.slots[s].storage;
    if (value->poison || !value->data) {
      now.values.clear();
      off_ = true;
      return false;
    }
    now.values.push_back(value);
  }
  count(now, 1);
  lend(window);
  return true;
}

void KeptValues::lend(AddedToWindow& window) const {
  for (size_t i = 0; i < kept_.size(); ++i) window.lend(kept_[i], sets_[0].values[i]);
}

void KeptValues::release() {
  for (Set& s : sets_) count(s, -1);
  sets_.clear();
}

}  // namespace pyflame
