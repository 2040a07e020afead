// See executor.h. One program runs at a time: the thread pool and the arena are shared by all threads.
#include "pyflame/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "pyflame/base/env.h"
#include "pyflame/base/threads.h"
#include "pyflame/compile/program.h"
#include "pyflame/record/location.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/explain_log.h"

namespace pyflame {

namespace {

struct Engine {
  std::mutex mutex;
  struct Arena {
    Device device;
    void* data = nullptr;
    size_t bytes = 0;
  };
  std::vector<Arena> arenas;  // one per device
  std::mutex error_mutex;
  std::shared_ptr<const Poison> pending;  // oldest failure that nobody has seen
  ~Engine() = default;
};
Engine& engine() {
  static Engine* e = new Engine;
  return *e;
}

void release_arena(Engine::Arena& a) {
  free_raw(a.device, a.data, a.bytes);
  a.data = nullptr;
  a.bytes = 0;
  note_arena(a.device, 0);
}

// A device's arena grows to the largest program and stays, unless memory is short.
void* arena_for(Device device, size_t bytes) {
  Engine& e = engine();
  auto a = std::find_if(e.arenas.begin(), e.arenas.end(), [&](const auto& x) { return x.device == device; });
  if (a == e.arenas.end()) a = e.arenas.insert(a, {device});
  if (bytes > a->bytes) {
    release_arena(*a);
    a->data = allocate_raw(device, bytes);
    a->bytes = bytes;
    note_arena(device, bytes);
  }
  return a->data;
}

std::shared_ptr<const Poison> make_poison(ErrorKind kind, std::string message) {
  auto p = std::make_shared<const Poison>(Poison{kind, std::move(message)});
  Engine& e = engine();
  std::lock_guard lock(e.error_mutex);
  if (!e.pending) e.pending = p;
  return p;
}

std::string with_context(const char* what, const Program& p, const Step& step) {
  const Graph& g = p.graph;
  std::string text = what;
  const Node& n = g.nodes[static_cast<size_t>(step.group.nodes[0])];
  text += fmt::format("\n  while running {}", describe_node(g, n));
  if (step.group.nodes.size() > 1) text += fmt::format(" and {} ops fused with it", step.group.nodes.size() - 1);
  text += fmt::format(" with {} on {}", step.impl, g.device.str());
  return text;
}

std::string recorded_at(const Window& w, const Step& step) {
  const SourceLoc& loc = w.ops[static_cast<size_t>(step.group.nodes[0])].loc;
  return loc.code ? fmt::format("\n  recorded at {}", describe_location(loc)) : std::string();
}

// Gives every slot of the program its bytes, before the first step. Throws OutOfMemory; then nothing has changed but allocations that
// belong to promised storages.
char* obtain_memory(Window& w, const Program& p) {
  for (size_t s = 0; s < w.slots.size(); ++s) {
    const Placement& at = p.placements[s];
    Storage& st = *w.slots[s].storage;
    // External without bytes: poisoned because its own memory could not be had. Somebody may write it anew.
    if ((at.kind == Placement::Allocate || at.kind == Placement::External) && !st.data) allocate_data(st);
    if (at.kind == Placement::Donated && !st.data) {
      Storage& donor = *w.slots[static_cast<size_t>(at.donor)].storage;
      if (donor.data && donor.owned_by_allocator && donor.nbytes == st.nbytes)
        continue;  // taken over when the first step runs
      allocate_data(st);
    }
  }
  return static_cast<char*>(p.arena_bytes ? arena_for(w.device, p.arena_bytes) : nullptr);
}

class Run {
 public:
  Run(Window& w, Program& p) : w_(w), p_(p), poison_(w.slots.size()) {}

  void run() {
    char* arena = obtain_memory(w_, p_);
    pointers_.resize(w_.bindings.size());
    for (size_t s = 0; s < w_.slots.size(); ++s) {
      const Placement& at = p_.placements[s];
      Storage& st = *w_.slots[s].storage;
      if (at.kind == Placement::Donated && !st.data) {
        Storage& donor = *w_.slots[static_cast<size_t>(at.donor)].storage;
        std::swap(st.data, donor.data);
        std::swap(st.owned_by_allocator, donor.owned_by_allocator);
        donated_.push_back(static_cast<int32_t>(s));
      }
      if (w_.slots[s].external) poison_[s] = st.poison;
    }
    for (size_t b = 0; b < w_.bindings.size(); ++b) {
      const auto s = static_cast<size_t>(w_.bindings[b].slot);
      const Placement& at = p_.placements[s];
      char* base = static_cast<char*>(w_.slots[s].storage->data);
      if (at.kind == Placement::Arena) base = arena + at.offset;
      if (at.kind == Placement::Elided) base = nullptr;
      // A donor's bytes now belong to the slot that took them over, but its readers come first and need the address.
      for (int32_t d : donated_)
        if (p_.placements[static_cast<size_t>(d)].donor == static_cast<int32_t>(s))
          base = static_cast<char*>(w_.slots[static_cast<size_t>(d)].storage->data);
      pointers_[b] = base ? base + w_.bindings[b].byte_offset : nullptr;
    }
    const int64_t level = env::debug();
    for (Step& step : p_.steps) {
      if (level >= 3) timed(step, arena);
      else run_step(step, arena);
    }
    // Only what was written: other threads may be looking at what was merely read.
    for (const Step& step : p_.steps)
      for (int32_t s : step.writes) w_.slots[static_cast<size_t>(s)].storage->poison = poison_[static_cast<size_t>(s)];
  }

 private:
  void timed(Step& step, char* arena) {
    const auto start = std::chrono::steady_clock::now();
    run_step(step, arena);
    if (DeviceMemory* memory = device_memory(w_.device)) memory->wait();
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    double bytes = 0;
    for (int32_t s : step.reads) bytes += static_cast<double>(p_.graph.slots[static_cast<size_t>(s)].nbytes);
    for (int32_t s : step.writes)
      if (p_.placements[static_cast<size_t>(s)].kind != Placement::Elided)
        bytes += static_cast<double>(p_.graph.slots[static_cast<size_t>(s)].nbytes);
    fmt::print(stderr, "pyflame: {:10.1f} us {:8.2f} GB/s  {} {}\n", us, bytes / us * 1e-3, step.impl,
               describe_node(p_.graph, p_.graph.nodes[static_cast<size_t>(step.group.nodes[0])]));
  }

  void run_step(Step& step, char* arena) {
    bool bad = false;
    for (int32_t s : step.reads) bad |= poison_[static_cast<size_t>(s)] != nullptr;
    if (bad && !spread(step)) return;
    try {
      if (step.executable) {
        const RunContext ctx{pointers_.data(), w_.params.data(), arena + step.workspace_offset, w_.device.index};
        step.executable->run(ctx);
      }
      for (size_t i = 0; i < step.writes.size() && !bad; ++i)
        if (step.covers[i]) poison_[static_cast<size_t>(step.writes[i])] = nullptr;
    } catch (const Error& e) {
      failed(step, e.kind(), e.what());
    } catch (const std::exception& e) {
      failed(step, ErrorKind::Runtime, e.what());
    }
  }

  // Poison goes from node to node. False when nothing sound is left to compute; otherwise the step runs, and what it computes from
  // poisoned inputs stays poisoned.
  bool spread(const Step& step) {
    auto slot = [&](const Operand& o) {
      return static_cast<size_t>(p_.graph.bindings[static_cast<size_t>(o.index)].slot);
    };
    for (int32_t m : step.group.nodes) {
      const Node& n = p_.graph.nodes[static_cast<size_t>(m)];
      std::shared_ptr<const Poison> poison;
      for (const Operand& o : n.ins)
        if (!o.is_param && !poison) poison = poison_[slot(o)];
      for (const Operand& o : n.outs) {
        const bool whole = static_cast<size_t>(o.numel() * dtype_size(o.dtype)) == p_.graph.slots[slot(o)].nbytes;
        if (poison || whole) poison_[slot(o)] = poison;
      }
    }
    for (int32_t s : step.writes)
      if (!poison_[static_cast<size_t>(s)]) return true;
    return false;
  }

  void failed(const Step& step, ErrorKind kind, const char* what) {
    const auto poison = make_poison(kind, with_context(what, p_, step) + recorded_at(w_, step));
    for (int32_t s : step.writes) poison_[static_cast<size_t>(s)] = poison;
  }

  Window& w_;
  Program& p_;
  std::vector<std::shared_ptr<const Poison>> poison_;
  std::vector<void*> pointers_;
  std::vector<int32_t> donated_;
};

std::vector<uint8_t> liveness_of(const Window& w, bool all_live) {
  std::vector<uint8_t> v(w.slots.size());
  for (size_t s = 0; s < v.size(); ++s) {
    const Storage& st = *w.slots[s].storage;
    const bool live = all_live || st.use_count() > 1;
    const bool donatable =
        !live && w.slots[s].external && st.owned_by_allocator && !st.foreign && !st.escaped() && !st.poison;
    v[s] = static_cast<uint8_t>(live ? 1 : donatable ? 2 : 0);
  }
  return v;
}

void poison_outputs(Window& w, ErrorKind kind, const std::string& message) {
  const auto poison = make_poison(kind, message);
  const Graph g = build_graph(w);
  for (const Node& n : g.nodes)
    for (const Operand& o : n.outs)
      w.slots[static_cast<size_t>(g.bindings[static_cast<size_t>(o.index)].slot)].storage->poison = poison;
}

void print_device_once(Device d) {
  static std::set<DeviceType> seen;  // under the engine's lock
  if (!seen.insert(d.type).second) return;
  const DeviceInfo info = device_info(d);
  fmt::print(stderr, "pyflame: device {}: {}, {}, {} threads\n", d.str(), info.name, info.architecture, num_threads());
}

void run_window(Window& w, CutReason reason, bool all_live) {
  bool cached = false;
  const auto start = std::chrono::steady_clock::now();
  auto program = get_program(w, liveness_of(w, all_live), &cached);
  const double plan_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  const int64_t level = env::debug();
  if (level >= 1) print_device_once(w.device);
  if (level >= 2)
    fmt::print(stderr, "pyflame: window of {} ops, cut by {}; {}; {} steps, arena {} bytes\n", w.ops.size(),
               cut_reason_name(reason),
               cached ? std::string("cached program") : fmt::format("planned in {:.0f} us", plan_us),
               program->steps.size(), program->arena_bytes);
  if (level >= 4 && !cached) fmt::print(stderr, "{}", describe_program(*program));
  explain_log(*program, cut_reason_name(reason), cached, plan_us);
  ++program->runs;
  if (program->backend->executes()) Run(w, *program).run();
}

// True when an input is poisoned; then the outputs are as well.
bool pass_on_poison(const Window& w, const Graph& g, const Node& n) {
  auto storage = [&](const Operand& o) -> Storage& {
    return *w.slots[static_cast<size_t>(g.bindings[static_cast<size_t>(o.index)].slot)].storage;
  };
  for (const Operand& in : n.ins) {
    if (in.is_param || !storage(in).poison) continue;
    for (const Operand& out : n.outs) storage(out).poison = storage(in).poison;
    return true;
  }
  return false;
}

// The window as one-op windows: the last try when its memory cannot be had at once, or when one of its ops cannot be compiled.
void run_one_by_one(const Window& w) {
  const Graph g = build_graph(w);
  std::vector<size_t> last(w.slots.size(), 0);
  for (size_t op = 0; op < g.nodes.size(); ++op)
    for (const auto* operands : {&g.nodes[op].ins, &g.nodes[op].outs})
      for (const Operand& o : *operands)
        if (!o.is_param) last[static_cast<size_t>(g.bindings[static_cast<size_t>(o.index)].slot)] = op;
  for (size_t op = 0; op < w.ops.size(); ++op) {
    // What nobody will look at again makes room.
    for (size_t s = 0; s < w.slots.size(); ++s) {
      Storage& st = *w.slots[s].storage;
      if (op > 0 && last[s] == op - 1 && st.use_count() == 1 && st.owned_by_allocator) st.free_data();
    }
    if (pass_on_poison(w, g, g.nodes[op]))
      continue;  // before it asks for the memory that could not be had: that is the same failure
    Window one = single_op_window(w, op);
    const SourceLoc& loc = w.ops[op].loc;
    try {
      empty_cache();
      run_window(one, CutReason::Retry, true);
    } catch (const Error& e) {
      poison_outputs(one, e.kind(),
                     e.what() + (loc.code ? "\n  recorded at " + describe_location(loc) : std::string()));
    }
  }
}

}  // namespace

void execute_window(Window& w, CutReason reason) noexcept {
  std::lock_guard lock(engine().mutex);
  try {
    try {
      run_window(w, reason, false);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::OutOfMemory)
        for (auto& a : engine().arenas) release_arena(a);
      run_one_by_one(w);
    }
  } catch (const Error& e) {
    poison_outputs(w, e.kind(), e.what());
  } catch (const std::exception& e) {
    poison_outputs(w, ErrorKind::Runtime, fmt::format("execute: unexpected failure; got {}", e.what()));
  }
}

void raise_pending_error() {
  std::shared_ptr<const Poison> p;
  {
    Engine& e = engine();
    std::lock_guard lock(e.error_mutex);
    p = std::move(e.pending);
    e.pending = nullptr;
  }
  if (p) throw Error(p->kind, p->message);
}

void forget_pending_error(const Poison* p) {
  Engine& e = engine();
  std::lock_guard lock(e.error_mutex);
  if (e.pending.get() == p) e.pending = nullptr;
}

}  // namespace pyflame
