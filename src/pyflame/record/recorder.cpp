// Records ops: appends words to the key, notes storages, and decides where to cut. Only this file knows the format of
// the key (append_* and build_graph below); all other code uses ir.h.
#include "pyflame/record/recorder.h"

#include <algorithm>
#include <bit>
#include <list>
#include <new>

#include "pyflame/base/env.h"
#include "pyflame/base/events.h"
#include "pyflame/base/fork.h"
#include "pyflame/base/location.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/record/rewrite_mask.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

namespace {

// Marks a storage that several recorders will read: a writer must first flush all of them.
Recorder* const kShared = reinterpret_cast<Recorder*>(1);

// The word of an operand: | slot:24 | index:24 | new_slot:1 | external:1 | ndim:4 | dtype:4 | contiguous:1 | param:1 |
// spare
constexpr int kSlotShift = 40, kIndexShift = 16, kNewSlotBit = 11, kExternalBit = 10, kNdimShift = 6, kDtypeShift = 2;
constexpr uint64_t kMask24 = (1u << 24) - 1;

std::atomic<int>& fixed_window() {
  static std::atomic<int> ops{static_cast<int>(env::window())};
  return ops;
}

uint64_t mix(uint64_t h, uint64_t v) { return (std::rotl(h, 5) ^ v) * 0x9e3779b97f4a7c15ull; }

// All recorders ever made. A thread that ends returns its recorder for reuse, so a pointer in a Storage never dangles.
struct Registry {
  std::mutex mutex;
  std::list<Recorder> all;
  std::vector<Recorder*> free;
};
Registry& registry() {
  static Registry* r = new Registry;  // leaked: threads may outlive static destruction
  return *r;
}

// The child of a fork can complete what the parent's threads had recorded.
const AtFork g_at_fork{ForkOrder::Recorders,
                       [] {
                         Registry& r = registry();
                         r.mutex.lock();
                         for (Recorder& rec : r.all) rec.before_fork();
                       },
                       [](bool in_child) {
                         Registry& r = registry();
                         for (Recorder& rec : r.all) rec.after_fork(in_child);
                         r.mutex.unlock();
                       }};

struct ThreadRecorder {
  Recorder* recorder;
  ThreadRecorder() {
    Registry& r = registry();
    {
      std::lock_guard lock(r.mutex);
      if (r.free.empty()) {
        recorder = &r.all.emplace_back();
        return;
      }
      recorder = r.free.back();
      r.free.pop_back();
    }
    recorder->cut(CutReason::Sync);
  }
  // Ops that an ended thread has recorded stay pending until somebody needs them, synchronises, or takes over the
  // recorder. They cannot run here, because the thread-local memory of kernels may be destroyed already.
  ~ThreadRecorder() {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    r.free.push_back(recorder);
  }
};

// Notes a pending read. Two threads may read the same storage at once, and both must be known.
void add_reader(Storage& s, Recorder* self) {
  Recorder* r = s.reader.load(std::memory_order_acquire);
  while (r != self && r != kShared && !s.reader.compare_exchange_weak(r, r ? kShared : self)) {
  }
}

void cut_all(CutReason reason) {
  std::vector<Recorder*> all;
  {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    for (Recorder& rec : r.all) all.push_back(&rec);
  }
  for (Recorder* rec : all) rec->cut(reason);
}

}  // namespace

const char* cut_reason_name(CutReason r) {
  constexpr const char* names[] = {"sync point",   "structural mark",  "size limit", "escaped storage",
                                   "other thread", "PYFLAME_WINDOW=1", "retry"};
  return names[static_cast<int>(r)];
}

// A hash table with open addressing. Incrementing the generation clears it.
struct SlotTable {
  struct Entry {
    Storage* key = nullptr;
    uint32_t generation = 0;
    SlotId slot;
  };
  std::vector<Entry> entries = std::vector<Entry>(256);
  uint32_t generation = 1;
  size_t count = 0;

  static size_t hash(const Storage* s) { return (reinterpret_cast<uintptr_t>(s) >> 4) * 0x9e3779b97f4a7c15ull >> 20; }

  SlotId* find_or_add(Storage* s, bool* added) {
    if (count * 2 >= entries.size()) grow();
    size_t i = hash(s) & (entries.size() - 1);
    while (entries[i].generation == generation) {
      if (entries[i].key == s) {
        *added = false;
        return &entries[i].slot;
      }
      i = (i + 1) & (entries.size() - 1);
    }
    entries[i] = {s, generation, SlotId()};
    ++count;
    *added = true;
    return &entries[i].slot;
  }
  bool contains(const Storage* s) const {
    for (size_t i = hash(s) & (entries.size() - 1); entries[i].generation == generation;
         i = (i + 1) & (entries.size() - 1))
      if (entries[i].key == s) return true;
    return false;
  }
  void grow() {
    std::vector<Entry> old(entries.size() * 2);
    old.swap(entries);
    const uint32_t before = generation;
    generation = 1;
    count = 0;
    for (const Entry& e : old) {
      if (e.generation != before) continue;
      bool added;
      *find_or_add(e.key, &added) = e.slot;
    }
  }
  void clear() {
    ++generation;
    count = 0;
  }
};

void Window::clear() {
  key.clear();
  slots.clear();
  bindings.clear();
  params.clear();
  ops.clear();
  new_bytes = 0;
  began = 0;
}

namespace {

void note_begin(Window& w) {
  w.began = events::now();
  w.thread = events::thread();
}

BindingId bind(Window& w, SlotTable& table, Storage* s, int64_t byte_offset, bool is_new) {
  bool added;
  SlotId* slot = table.find_or_add(s, &added);
  if (added) *slot = w.slots.push_back({Ref<Storage>(s), !is_new, BindingId()});
  Window::Slot& info = w.slots[*slot];
  for (BindingId b = info.last_binding; b.valid(); b = w.bindings[b].previous)
    if (w.bindings[b].byte_offset == byte_offset) return b;
  return info.last_binding = w.bindings.push_back({*slot, info.last_binding, byte_offset});
}

void append_operand(Window& w, SlotTable& table, Storage* s, const Dims& shape, const Dims& strides, bool contiguous,
                    int64_t byte_offset, DType dtype, bool is_new) {
  const size_t slots_before = w.slots.size();
  const BindingId binding = bind(w, table, s, byte_offset, is_new);
  const SlotId slot = w.bindings[binding].slot;
  const bool new_slot = w.slots.size() != slots_before;
  w.key.push_back(slot.index() << kSlotShift | binding.index() << kIndexShift |
                  static_cast<uint64_t>(new_slot) << kNewSlotBit | static_cast<uint64_t>(!is_new) << kExternalBit |
                  static_cast<uint64_t>(shape.size()) << kNdimShift | static_cast<uint64_t>(dtype) << kDtypeShift |
                  static_cast<uint64_t>(contiguous) << 1);
  if (new_slot) w.key.push_back(s->nbytes);
  for (int64_t d : shape) w.key.push_back(static_cast<uint64_t>(d));
  if (!contiguous)
    for (int64_t d : strides) w.key.push_back(static_cast<uint64_t>(d));
  if (new_slot && is_new) w.new_bytes += static_cast<int64_t>(s->nbytes);
}

uint64_t param_word(const Window& w, DType dtype) {
  return static_cast<uint64_t>(w.params.size()) << kIndexShift | static_cast<uint64_t>(dtype) << kDtypeShift | 1;
}

thread_local bool t_fuse = true;

constexpr uint64_t kUnfused = uint64_t{1} << 63;  // in the first word of a key: nothing is fused

// The first word of a key.
uint64_t first_word(Device d, bool fuse) {
  return (fuse ? 0 : kUnfused) | static_cast<uint64_t>(active_rewrites().load(std::memory_order_relaxed)) << 32 |
         static_cast<uint64_t>(d.type) << 8 | static_cast<uint64_t>(d.index);
}

// Appends ops [first, end) of `from` to `to`. is_new(slot) says whether an output creates its storage.
template <class IsNew>
void copy_ops(const Window& from, NodeId first, NodeId end, Window& to, SlotTable& table, IsNew is_new) {
  if (to.empty()) {
    to.device = from.device;
    to.key.push_back(from.key[0]);
  }
  size_t at = from.ops[first].word;
  for (const NodeId op : IdRange<NodeId>{first, end}) {
    Window::OpMark mark = from.ops[op];
    mark.word = static_cast<uint32_t>(to.key.size());
    to.ops.push_back(mark);
    const uint64_t head = from.key[at];
    const size_t attrs = head >> 16 & 0xff, ins = head >> 24 & 0xffff, outs = head >> 40 & 0xffff;
    for (size_t i = 0; i <= attrs; ++i) to.key.push_back(from.key[at++]);
    for (size_t i = 0; i < ins + outs; ++i) {
      const uint64_t word = from.key[at++];
      const auto dtype = static_cast<DType>(word >> kDtypeShift & 0xf);
      const uint64_t index = word >> kIndexShift & kMask24;
      if (word & 1) {
        to.key.push_back(param_word(to, dtype));
        to.params.push_back(from.params[ParamId(index)]);
        continue;
      }
      const bool contiguous = word >> 1 & 1;
      if (word >> kNewSlotBit & 1) ++at;
      Dims shape = Dims::filled(static_cast<int>(word >> kNdimShift & 0xf), 0);
      for (int64_t& d : shape) d = static_cast<int64_t>(from.key[at++]);
      Dims strides = shape;
      if (!contiguous)
        for (int64_t& d : strides) d = static_cast<int64_t>(from.key[at++]);
      const SlotId slot(word >> kSlotShift & kMask24);
      append_operand(to, table, from.slots[slot].storage.get(), shape, strides, contiguous,
                     from.bindings[BindingId(index)].byte_offset, dtype, i >= ins && is_new(slot));
    }
  }
}

// The limits of windows on a device.
Limits limits_of(const Backend& backend) {
  constexpr int kLonger = 16;  // a training step of 48 layers of attention has some 6,000 ops
  Limits l = backend.limits();
  if (active_rewrites().load(std::memory_order_relaxed) & rewrites_of_whole_steps().load(std::memory_order_relaxed))
    l = {l.first_ops * kLonger, l.max_ops * kLonger, l.first_bytes * kLonger, l.max_bytes * kLonger};
  return l;
}

}  // namespace

std::atomic<uint32_t>& active_rewrites() {
  static std::atomic<uint32_t> bits{0};
  return bits;
}

std::atomic<uint32_t>& rewrites_of_whole_steps() {
  static std::atomic<uint32_t> bits{0};
  return bits;
}

bool fuses(const std::vector<uint64_t>& key) { return env::fuse() && !(key[0] & kUnfused); }

uint32_t rewrites_of(const Window& w) { return fuses(w.key) ? static_cast<uint32_t>(w.key[0] >> 32) : 0; }

Window single_op_window(const Window& w, NodeId op) {
  Window one;
  SlotTable table;
  copy_ops(w, op, NodeId(op.value() + 1), one, table, [&](SlotId slot) {
    const Window::Slot& s = w.slots[slot];
    // poisoned storages count as external, so that a partial write does not make the rest valid
    return !s.external && !s.storage->data && !s.storage->poison;
  });
  return one;
}

Recorder::Recorder()
    : table_(std::make_unique<SlotTable>()), max_ops_(0), limit_ops_(0), max_bytes_(0), limit_bytes_(0) {}
Recorder::~Recorder() = default;

Recorder& Recorder::current() {
  thread_local ThreadRecorder t;
  return *t.recorder;
}

void Recorder::begin(Device device) {
  const Backend* backend = find_backend(device.type);
  const int count = backend ? backend->device_count() : 0;
  PF_CHECK(device.index < count, Device, "record: there is no such device; got {}; expected an index below {}; {}",
           device.str(), count,
           backend && count == 0 ? backend->absence() : "hint: pf.set_device names a device for all that follows");
  const Limits l = limits_of(*backend);
  if (max_ops_ != l.max_ops || max_bytes_ != l.max_bytes) {
    limit_ops_ = l.first_ops;
    limit_bytes_ = l.first_bytes;
  }
  max_ops_ = l.max_ops;
  max_bytes_ = l.max_bytes;
  window_.device = device;
  window_.key.push_back(first_word(device, t_fuse));
  if (events::on()) note_begin(window_);
}

// Flushes other threads' pending work on storages that this op uses. It runs without our lock, so that two threads that
// need each other cannot deadlock.
void Recorder::flush_others(std::span<const Arg> ins, std::span<TensorImpl* const> outs, bool outs_are_new) {
  for (const Arg& a : ins) {
    if (!a.tensor) continue;
    Recorder* w = a.tensor->storage()->writer.load(std::memory_order_acquire);
    if (w && w != this) w->cut(CutReason::OtherThread);
  }
  if (outs_are_new) return;
  for (const TensorImpl* t : outs) {
    Storage& s = *t->storage;
    Recorder* w = s.writer.load(std::memory_order_acquire);
    if (w && w != this) w->cut(CutReason::OtherThread);
    Recorder* r = s.reader.load(std::memory_order_acquire);
    if (r == kShared) {
      s.reader.store(nullptr,
                     // cleared first, so that a read that is recorded meanwhile is not lost
                     std::memory_order_release);
      cut_all(CutReason::OtherThread);
    } else if (r && r != this) {
      r->cut(CutReason::OtherThread);
    }
  }
}

void Recorder::record(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins,
                      std::span<TensorImpl* const> outs, bool outs_are_new) {
  flush_others(ins, outs, outs_are_new);
  std::lock_guard lock(mutex_);
  const Device device = outs[0]->storage->device;
  if (!window_.empty() && window_.device != device) {
    const CutCause why("an op on another device");
    cut_locked(CutReason::Sync);
  }
  if (window_.empty()) begin(device);

  std::vector<uint64_t>& key = window_.key;
  const size_t first = key.size();
  bool escaped = false;
  key.push_back(static_cast<uint64_t>(op) | static_cast<uint64_t>(attrs.size()) << 16 |
                static_cast<uint64_t>(ins.size()) << 24 | static_cast<uint64_t>(outs.size()) << 40);
  for (int64_t a : attrs) key.push_back(static_cast<uint64_t>(a));
  uint64_t h = mix(0, key[first]);
  for (const Arg& a : ins) {
    if (!a.tensor) {
      key.push_back(param_word(window_, a.dtype));
      window_.params.push_back(a.param);
      continue;
    }
    TensorImpl* t = a.tensor->impl();
    Storage* s = t->storage.get();
    append_operand(window_, *table_, s, t->shape, t->strides, t->contiguous, t->offset * dtype_size(t->dtype), t->dtype,
                   false);
    for (int64_t d : t->shape) h = mix(h, static_cast<uint64_t>(d));
    // A thread that writes a storage with our pending writes flushes this recorder anyway, so no read needs to be
    // noted.
    if (s->writer.load(std::memory_order_relaxed) != this) add_reader(*s, this);
    escaped |= s->escaped();
  }
  for (TensorImpl* t : outs) {
    Storage* s = t->storage.get();
    append_operand(window_, *table_, s, t->shape, t->strides, t->contiguous, t->offset * dtype_size(t->dtype), t->dtype,
                   outs_are_new);
    for (int64_t d : t->shape) h = mix(h, static_cast<uint64_t>(d));
    s->writer.store(this, std::memory_order_release);
    if (!outs_are_new) {
      s->version.fetch_add(1, std::memory_order_relaxed);
      escaped |= s->escaped();
    }
  }
  for (int64_t a : attrs) h = mix(h, static_cast<uint64_t>(a));
  // The content hash covers the last four ops; older ones are shifted out.
  const uint32_t before = window_.ops.empty() ? 0 : window_.ops.back().hash;
  window_.ops.push_back(
      {static_cast<uint32_t>(first), before << 8 ^ static_cast<uint32_t>(h >> 32), current_location()});

  const int fixed = fixed_window().load(std::memory_order_relaxed);
  if (escaped) {
    cut_locked(CutReason::Escaped);
  } else if (fixed > 0) {
    if (static_cast<int>(window_.ops.size()) >= fixed) cut_locked(CutReason::WindowOne);
  } else if (static_cast<int>(window_.ops.size()) >= limit_ops_ || window_.new_bytes >= limit_bytes_) {
    cut_at_limit();
  }
}

// Cuts after the op with the largest hash in the second half; the remaining ops start a new window.
void Recorder::cut_at_limit() {
  NodeId best(window_.ops.size() / 2);
  for (const NodeId i : IdRange<NodeId>{best, window_.ops.end_id()})
    if (window_.ops[i].hash > window_.ops[best].hash) best = i;
  limit_ops_ = std::min(limit_ops_ * 2, max_ops_);
  limit_bytes_ = std::min(limit_bytes_ * 2, max_bytes_);
  const NodeId keep(best.value() + 1);
  if (keep == window_.ops.end_id()) {
    cut_locked(CutReason::Limit);
    return;
  }
  Window rest;
  std::swap(rest, window_);
  if (events::on()) note_begin(window_);
  table_->clear();
  // sizes of the prefix: its slots, bindings and params have the lowest numbers
  size_t slots = 0, bindings = 0, params = 0;
  const uint32_t cut_word = rest.ops[keep].word;
  {
    Window prefix;
    SlotTable table;
    copy_ops(rest, NodeId(0), keep, prefix, table, [](SlotId) { return true; });
    slots = prefix.slots.size(), bindings = prefix.bindings.size(), params = prefix.params.size();
  }
  // The rest is copied first, so that the storages that it uses count as live for the prefix.
  copy_ops(rest, keep, rest.ops.end_id(), window_, *table_,
           [&](SlotId slot) { return slot.index() >= slots && !rest.slots[slot].external; });
  rest.key.resize(cut_word);
  rest.ops.resize(keep.index());
  rest.slots.resize(slots);
  rest.bindings.resize(bindings);
  rest.params.resize(params);
  run(rest, CutReason::Limit);
}

void Recorder::run(Window& w, CutReason reason) {
  running_ = true;
  runtime_hooks.execute_window(w, reason);  // never throws: failures poison what was not written
  running_ = false;
  // What fails because its device does not survive a fork is said where values are used, not to whoever waits next.
  if (inherited_)
    for (const Window::Slot& s : w.slots)
      if (s.storage->poison) runtime_hooks.forget_pending_error(s.storage->poison.get());
  for (const Window::Slot& s : w.slots) {
    // Storages that the next window uses keep our mark without interruption, because other threads look at the marks
    // without our lock.
    if (&w != &window_ && table_->contains(s.storage.get())) continue;
    if (s.storage->use_count() == 1) continue;  // no other handle exists
    for (std::atomic<Recorder*>* mark : {&s.storage->writer, &s.storage->reader}) {
      Recorder* self = mark->load(std::memory_order_relaxed);
      if (self == this) mark->compare_exchange_strong(self, nullptr);
    }
  }
}

void Recorder::cut(CutReason reason) {
  std::lock_guard lock(mutex_);
  if (running_) return;  // a kernel's error path may request a sync; all our ops are running already
  cut_locked(reason);
}

void Recorder::cut_locked(CutReason reason) {
  if (reason == CutReason::Sync || reason == CutReason::Mark) {  // the device is idle, so the limits start small again
    const Backend* backend = find_backend(window_.device.type);
    if (backend) {
      const Limits l = limits_of(*backend);
      limit_ops_ = l.first_ops;
      limit_bytes_ = l.first_bytes;
    }
  } else {
    limit_ops_ = std::min(limit_ops_ * 2, std::max(max_ops_, 1));
    limit_bytes_ = std::min(limit_bytes_ * 2, std::max<int64_t>(max_bytes_, 1));
  }
  if (window_.empty()) return;
  run(window_, reason);
  inherited_ = false;
  window_.clear();
  table_->clear();
}

void Recorder::before_fork() { mutex_.lock(); }

void Recorder::after_fork(bool in_child) {
  if (!in_child) return mutex_.unlock();
  // A recursive mutex stores its owner's thread number, which differs in the child.
  new (&mutex_) std::recursive_mutex;
  inherited_ = !window_.empty();
  // A thread that flushes a storage with several readers clears the mark before it cuts, and the fork may have happened
  // in between.
  for (const Window::Slot& s : window_.slots) add_reader(*s.storage, this);
}

Graph build_graph(const Window& w) {
  Graph g;
  g.device = w.device;
  g.params = static_cast<int32_t>(w.params.size());
  g.slots.reserve(w.slots.size());
  for (const Window::Binding& b : w.bindings) g.bindings.push_back({b.slot});
  size_t at = 1;
  for (const Window::OpMark& mark : w.ops) {
    const uint64_t head = w.key[at++];
    Node n;
    n.op = static_cast<OpId>(head & 0xffff);
    n.loc = mark.loc;
    const size_t attrs = head >> 16 & 0xff, ins = head >> 24 & 0xffff, outs = head >> 40 & 0xffff;
    for (size_t i = 0; i < attrs; ++i) n.attrs.push_back(static_cast<int64_t>(w.key[at++]));
    for (size_t i = 0; i < ins + outs; ++i) {
      const uint64_t word = w.key[at++];
      Operand o;
      o.is_param = word & 1;
      o.dtype = static_cast<DType>(word >> kDtypeShift & 0xf);
      const uint64_t index = word >> kIndexShift & kMask24;
      if (o.is_param) {
        o.param = ParamId(index);
      } else {
        o.binding = BindingId(index);
        o.contiguous = word >> 1 & 1;
        const int ndim = static_cast<int>(word >> kNdimShift & 0xf);
        if (word >> kNewSlotBit & 1) {
          SlotInfo slot;
          slot.external = word >> kExternalBit & 1;
          slot.nbytes = w.key[at++];
          g.slots.push_back(slot);
        }
        o.shape = Dims::filled(ndim, 0);
        for (int d = 0; d < ndim; ++d) o.shape[d] = static_cast<int64_t>(w.key[at++]);
        o.strides = o.contiguous ? contiguous_strides(o.shape) : Dims::filled(ndim, 0);
        if (!o.contiguous)
          for (int d = 0; d < ndim; ++d) o.strides[d] = static_cast<int64_t>(w.key[at++]);
      }
      (i < ins ? n.ins : n.outs).push_back(o);
    }
    g.nodes.push_back(std::move(n));
  }
  return g;
}

namespace {
// Calls fn(index in the key, whether it is an output) for every operand of w that is a tensor.
template <class Fn>
void for_each_tensor(const Window& w, Fn fn) {
  size_t at = 1;
  for (size_t op = 0; op < w.ops.size(); ++op) {
    const uint64_t head = w.key[at++];
    const size_t attrs = head >> 16 & 0xff, ins = head >> 24 & 0xffff, outs = head >> 40 & 0xffff;
    at += attrs;
    for (size_t i = 0; i < ins + outs; ++i) {
      const uint64_t word = w.key[at];
      if (!(word & 1)) {
        fn(at, i >= ins);
        const size_t ndim = word >> kNdimShift & 0xf;
        at += (word >> kNewSlotBit & 1) + (word >> 1 & 1 ? ndim : 2 * ndim);
      }
      ++at;
    }
  }
}

BindingId binding_of(uint64_t word) { return BindingId(word >> kIndexShift & kMask24); }
SlotId slot_of(uint64_t word) { return SlotId(word >> kSlotShift & kMask24); }
uint64_t with_binding(uint64_t word, uint64_t binding) {
  return (word & ~(kMask24 << kIndexShift)) | binding << kIndexShift;
}
}  // namespace

ViewReads find_view_reads(const Window& w, const Indexed<SlotId, bool>& fixed) {
  ViewReads found;
  Indexed<SlotId, bool> apart(w.slots.size(), false);
  bool any = false;
  for (const Window::Binding& b : w.bindings)
    if (b.previous.valid() && w.slots[b.slot].external && !fixed[b.slot]) any = apart[b.slot] = true;
  if (!any) return found;
  for_each_tensor(w, [&](size_t at, bool is_output) {
    if (is_output) apart[slot_of(w.key[at])] = false;
  });
  std::vector<uint64_t> key = w.key;
  std::vector<uint64_t> number(w.bindings.size(), 0);
  uint64_t numbers = 0;
  for_each_tensor(w, [&](size_t at, bool) {
    const BindingId b = binding_of(w.key[at]);
    if (apart[slot_of(w.key[at])]) {
      found.words.push_back(static_cast<uint32_t>(at));
      found.bindings.push_back(b);
      key[at] = with_binding(key[at], 0);
    } else {
      uint64_t& n = number[b.index()];
      if (!n) n = ++numbers;
      key[at] = with_binding(key[at], n);
    }
  });
  for (const uint64_t word : key) found.structure = mix(found.structure, word);
  return found;
}

void bind_apart(Window& w, const ViewReads& reads, const std::vector<uint32_t>& parts) {
  const Indexed<BindingId, Window::Binding> before = w.bindings;
  w.bindings.clear();
  for (Window::Slot& s : w.slots) s.last_binding = BindingId();
  std::vector<BindingId> of_binding(before.size()), of_part(reads.words.size());
  size_t next = 0;
  for_each_tensor(w, [&](size_t at, bool) {
    const Window::Binding& old = before[binding_of(w.key[at])];
    const bool is_view = next < reads.words.size() && reads.words[next] == at;
    BindingId& b = is_view ? of_part[parts[next++]] : of_binding[binding_of(w.key[at]).index()];
    if (!b.valid()) {
      BindingId& last = w.slots[old.slot].last_binding;
      b = w.bindings.push_back({old.slot, last, old.byte_offset});
      last = b;
    }
    w.key[at] = with_binding(w.key[at], b.index());
  });
}

void set_window(int ops) { fixed_window().store(ops, std::memory_order_relaxed); }

bool set_fusing(bool on) {
  const bool before = t_fuse;
  if (on != before) cut_window();
  t_fuse = on;
  return before;
}

void cut_window() {
  Recorder::current().cut(CutReason::Mark);
  runtime_hooks.raise_pending_error();
}

void synchronize() {
  const events::Scope log(events::Kind::Wait, "synchronize");
  const CutCause why("synchronize()");
  cut_all(CutReason::Sync);
  runtime_hooks.wait_for_devices();
  runtime_hooks.raise_pending_error();
}

namespace {
void flush(Storage& s) {
  const events::Scope log(events::Kind::Wait, "read values");
  Recorder* w = s.writer.load(std::memory_order_acquire);
  if (w) w->cut(CutReason::Sync);
  Recorder* r = s.reader.load(std::memory_order_acquire);
  if (r == kShared) {
    s.reader.store(nullptr, std::memory_order_release);
    cut_all(CutReason::Sync);
  } else if (r) {
    r->cut(CutReason::Sync);
  }
}
}  // namespace

void sync_storage(Storage& s) {
  if (s.writer.load(std::memory_order_acquire) || s.reader.load(std::memory_order_acquire)) flush(s);
  if (s.poison) {
    runtime_hooks.forget_pending_error(s.poison.get());
    throw Error(s.poison->kind, s.poison->message);
  }
}

}  // namespace pyflame
