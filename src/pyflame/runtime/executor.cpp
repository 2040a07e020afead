// Runs programs, one at a time: all threads share the thread pool and the arena.
#include "pyflame/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "pyflame/base/env.h"
#include "pyflame/base/events.h"
#include "pyflame/base/fallbacks.h"
#include "pyflame/base/fork.h"
#include "pyflame/base/location.h"
#include "pyflame/base/threads.h"
#include "pyflame/compile/force.h"
#include "pyflame/compile/program.h"
#include "pyflame/runtime/added.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/blame.h"
#include "pyflame/runtime/choose.h"
#include "pyflame/runtime/debugged_run.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/device_times.h"
#include "pyflame/runtime/explain_log.h"
#include "pyflame/runtime/in_flight.h"
#include "pyflame/runtime/kept.h"
#include "pyflame/runtime/memory_log.h"
#include "pyflame/runtime/memory_trace.h"
#include "pyflame/runtime/profiler.h"
#include "pyflame/runtime/state.h"

namespace pyflame {

namespace {

// Buffers that one run leaves to the next.
struct Scratch {
  Indexed<BindingId, void*> pointers;
  Indexed<SlotId, char*> bases;
};

struct Engine {
  std::mutex mutex;
  struct Arena {
    Device device;
    void* data = nullptr;
    size_t bytes = 0;
  };
  std::vector<Arena> arenas;  // one per device
  Scratch scratch;
  std::mutex error_mutex;
  std::shared_ptr<const Poison> pending;  // the oldest failure that was not raised yet
};
Engine& engine() {
  static Engine* e = new Engine;
  return *e;
}

const AtFork g_engine_at_fork{ForkOrder::Engine, [] { engine().mutex.lock(); }, [](bool) { engine().mutex.unlock(); }};
const AtFork g_errors_at_fork{ForkOrder::Errors, [] { engine().error_mutex.lock(); },
                              [](bool) { engine().error_mutex.unlock(); }};

void release_arena(Engine::Arena& a) {
  free_raw(a.device, a.data, a.bytes, MemoryUse::arena);
  a.data = nullptr;
  a.bytes = 0;
}

void release_arenas() {
  for (auto& a : engine().arenas) release_arena(a);
}

// A device's arena grows to the size of the largest program. It is kept until memory is short or a program asks for it back.
void* arena_for(Device device, size_t bytes) {
  Engine& e = engine();
  auto a = std::find_if(e.arenas.begin(), e.arenas.end(), [&](const auto& x) { return x.device == device; });
  if (a == e.arenas.end()) a = e.arenas.insert(a, {device});
  if (bytes > a->bytes) {
    release_arena(*a);
    a->data = allocate_raw(device, bytes, MemoryUse::arena);
    a->bytes = bytes;
  }
  return a->data;
}

// The line that recorded the first op which writes a slot.
SourceLoc writer_of(const Window& w, const Program& p, SlotId slot) {
  for (const NodeId n : p.graph.nodes.ids())
    for (const Operand& out : p.graph.nodes[n].outs)
      if (p.graph.slot(out) == slot) return w.ops[n].loc;
  return {};
}

// Allocates a slot's bytes, in the log for the line that they are for.
void allocate_slot(Window& w, const Program& p, SlotId slot) {
  Storage& storage = *w.slots[slot].storage;
  if (!memory_log::on()) return allocate_data(storage);
  const memory_log::Site site(writer_of(w, p, slot));
  allocate_data(storage);
}

// Allocates the memory of all slots of the program, before the first step. If that throws OutOfMemory, nothing has
// changed except that some storages have got their bytes.
char* obtain_memory(Window& w, const Program& p, bool with_arena) {
  for (const SlotId s : w.slots.ids()) {
    const Placement& at = p.memory.placements[s];
    Storage& st = *w.slots[s].storage;
    // An external slot without bytes is poisoned, because its memory could not be allocated. It may be written now.
    if ((at.kind == Placement::Allocate || at.kind == Placement::External) && !st.data) allocate_slot(w, p, s);
    if (at.kind == Placement::Donated && !st.data) {
      Storage& donor = *w.slots[at.donor].storage;
      if (donor.data && donor.owned_by_allocator && donor.nbytes == st.nbytes)
        continue;  // taken over when the addresses are computed
      allocate_slot(w, p, s);
    }
  }
  return static_cast<char*>(p.memory.arena_bytes && with_arena ? arena_for(w.device, p.memory.arena_bytes) : nullptr);
}

constexpr int64_t kLongWait = 2000;  // ns; taking a free lock takes less

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

class Run {
 public:
  // One at a time, because the scratch is shared.
  Run(Window& w, CachedProgram& cached, Scratch& scratch)
      : w_(w),
        cached_(cached),
        program_(cached.program),
        p_(*program_),
        state_(*cached.state),
        memory_(device_memory(w.device)),
        scratch_(scratch) {}

  void run() {
    const bool debugged = debug_memory::on() && p_.backend->executes();
    char* arena = obtain_memory(w_, p_, !debugged);
    if (debugged) debugged_.emplace(w_, p_, memory_);
    if (memory_trace::on())
      memory_trace::add({.bytes = static_cast<int64_t>(p_.memory.arena_bytes), .device = w_.device, .plan = true});
    const int32_t site = memory_ ? new_sites(p_.steps.size()) : 0;
    std::optional<QueuedRun> queued;
    if (memory_) queued.emplace(program_, w_, site, state_.reports, poison_);
    else find_poison();
    find_addresses(arena);
    const int64_t level = env::debug();
    Frame frame{p_,
                w_,
                memory_,
                scratch_.pointers,
                scratch_.bases,
                arena,
                nullptr,
                site,
                debugged_ ? debugged_->workspaces() : nullptr};
    if (memory_) {
      frame.fault = memory_->fault();
      run_on_device(frame, level);
      queued->complete();
    } else {
      run_and_choose(frame, level);
    }
    if (poison_.empty()) return;
    // Only written storages: other threads may be using those that were only read.
    for (const Step& step : p_.steps)
      for (const SlotId s : step.writes) w_.slots[s].storage->poison = poison_[s];
  }

 private:
  void find_poison() {
    for (const SlotId s : w_.slots.ids()) {
      const std::shared_ptr<const Poison>& poison = w_.slots[s].storage->poison;
      if (w_.slots[s].external && poison) poison_of(s) = poison;
    }
  }
  // Once anything is poisoned, every slot has an entry.
  std::shared_ptr<const Poison>& poison_of(SlotId slot) {
    if (poison_.empty()) poison_.resize(w_.slots.size());
    return poison_[slot];
  }

  void find_addresses(char* arena) {
    Indexed<SlotId, char*>& bases = scratch_.bases;
    bases.assign(w_.slots.size(), nullptr);
    for (const SlotId s : w_.slots.ids()) {
      const Placement& at = p_.memory.placements[s];
      Storage& st = *w_.slots[s].storage;
      if (at.kind == Placement::Arena && debugged_) bases[s] = debugged_->block(s);
      else if (at.kind == Placement::Arena && !at.donor.valid()) bases[s] = arena + at.offset;
      else if (at.kind == Placement::External || at.kind == Placement::Allocate) bases[s] = static_cast<char*>(st.data);
    }
    for (const SlotId s : w_.slots.ids()) {
      const Placement& at = p_.memory.placements[s];
      if (at.kind != Placement::Donated) continue;
      Storage& st = *w_.slots[s].storage;
      if (!st.data) {
        Storage& donor = *w_.slots[at.donor].storage;
        std::swap(st.data, donor.data);
        std::swap(st.owned_by_allocator, donor.owned_by_allocator);
        if (memory_log::on()) [[unlikely]]
          memory_log::taken_over(st.data, writer_of(w_, p_, s));
        // A donor's bytes now belong to the slot that took them over, but earlier steps still read them as the donor.
        bases[at.donor] = static_cast<char*>(st.data);
      }
      bases[s] = static_cast<char*>(st.data);
    }
    for (const SlotId s : w_.slots.ids()) {
      const Placement& at = p_.memory.placements[s];
      if (at.kind == Placement::Arena && at.donor.valid() && !debugged_) bases[s] = bases[at.donor] + at.offset;
    }
    scratch_.pointers.resize(w_.bindings.size());
    for (const BindingId b : w_.bindings.ids()) {
      char* base = bases[w_.bindings[b].slot];
      scratch_.pointers[b] = base ? base + w_.bindings[b].byte_offset : nullptr;
    }
  }

  void run_on_device(Frame& frame, int64_t level) {
    try {
      if (events::device_times()) timed_.emplace(w_.device, *memory_, cached_);
      const bool sound = poison_.empty() && level < 3 && !debugged_ && !(timed_ && timed_->needs_steps());
      const int64_t before = events::on() ? events::now() : 0;
      const Replayer::Plan plan = sound ? state_.replayer.plan(frame) : Replayer::Plan::Launch;
      if (plan == Replayer::Plan::Done && markers::on()) markers::mark(profiler::replay_text(p_).c_str());
      if (plan == Replayer::Plan::Done && before) log_replay(before);
      if (plan == Replayer::Plan::Verify) state_.replayer.snapshot(frame);
      if (plan != Replayer::Plan::Done) {
        const auto start = std::chrono::steady_clock::now();
        run_and_choose(frame, level);
        if (sound && poison_.empty()) state_.replayer.launched(microseconds_since(start));
      }
      if (plan == Replayer::Plan::Verify && poison_.empty()) state_.replayer.verify(frame);
    } catch (const Error& e) {  // the device as a whole failed: no output can be trusted
      const Error told = blamed(w_.device, e);
      for (const Step& step : p_.steps) failed(step, told.kind(), told.what());
    }
  }

  // At a program's first run, implementations are measured if there is a budget; the next run has the fastest ones.
  void run_and_choose(const Frame& frame, int64_t level) {
    choosing_ = poison_.empty() && !debugged_ && state_.runs == 1 && worth_choosing(p_);
    run_steps(frame, level);
    if (timed_) timed_->queued();
    if (faster_.empty()) return;
    cached_.program = with_replacements(p_, std::move(faster_));
    state_.labels.clear();  // they name the implementations
  }

  void run_steps(const Frame& frame, int64_t level) {
    const bool logged = events::on(), marked = markers::on();
    for (size_t k = 0; k < p_.steps.size(); ++k) {
      const markers::Scope marker(marked ? profiler::step_text(p_, p_.steps[k]).c_str() : "");
      if (logged) run_logged(frame, k, level);
      else if (level >= 3) timed(frame, k);
      else run_step(frame, k);
    }
  }

  void run_logged(const Frame& frame, size_t k, int64_t level) {
    const std::vector<events::Label>& labels = profiler::labels_of(p_, state_.labels);
    const int64_t start = events::now();
    if (level >= 3) timed(frame, k);
    else run_step(frame, k);
    events::add(memory_ ? events::Kind::Launch : events::Kind::Step, labels[k + 1], start, events::now(), 0,
                timed_ ? timed_->flow_of(k) : 0);
  }

  void log_replay(int64_t start) {
    events::add(events::Kind::Launch, profiler::replay_label(p_), start, events::now(), 0,
                timed_ ? timed_->flow_of_replay() : 0);
    if (timed_) timed_->queued();
  }

  void timed(const Frame& frame, size_t k) {
    const Step& step = p_.steps[k];
    const auto start = std::chrono::steady_clock::now();
    run_step(frame, k);
    if (memory_) memory_->wait();
    const double us = microseconds_since(start);
    double bytes = 0;
    for (const SlotId s : step.reads) bytes += static_cast<double>(p_.graph.slots[s].nbytes);
    for (const SlotId s : step.writes)
      if (p_.memory.placements[s].kind != Placement::Elided) bytes += static_cast<double>(p_.graph.slots[s].nbytes);
    fmt::print(stderr, "pyflame: {:10.1f} us {:8.2f} GB/s  {} {}\n", us, bytes / us * 1e-3, step.impl,
               describe_node(p_.graph, step.group.root(p_.graph)));
  }

  void run_step(const Frame& frame, size_t k) {
    const Step& step = p_.steps[k];
    bool bad = false;
    if (!poison_.empty())
      for (const SlotId s : step.reads) bad |= poison_[s] != nullptr;
    if (bad && !spread_poison(p_, step, poison_)) return;
    try {
      if (choosing_ && !bad)
        if (auto winner = time_entries(frame, k)) faster_.push_back(std::move(*winner));
      if (step.executable) {
        const FallbackRun counted(step.fallback);
        if (timed_) timed_->before_step(k);
        if (debugged_) debugged_->before_step(k);
        step.executable->run(frame.context(k));
        if (debugged_) debugged_->after_step(frame, k);
        if (timed_) timed_->after_step();
      }
      if (!poison_.empty() && !bad)
        for (size_t i = 0; i < step.writes.size(); ++i)
          if (step.covers[i]) poison_[step.writes[i]] = nullptr;
    } catch (const Error& e) {
      if (memory_ && e.kind() == ErrorKind::Device) lost(step, e);
      else failed(step, e.kind(), e.what());
    } catch (const std::exception& e) {
      failed(step, ErrorKind::Runtime, e.what());
    }
  }

  // The driver reports the error now, but any earlier step may have caused it.
  void lost(const Step& step, const Error& e) {
    const std::string node = describe_node(p_.graph, step.group.root(p_.graph));
    const Error told =
        blamed(w_.device, Error(e.kind(), fmt::format("{}\n  noticed at {} with {}", e.what(), node, step.impl)));
    const auto poison = make_poison(told.kind(), told.what());
    for (const SlotId s : step.writes) poison_of(s) = poison;
  }

  void failed(const Step& step, ErrorKind kind, const char* what) {
    std::vector<SourceLoc> locs;
    for (const NodeId m : step.group.nodes) locs.push_back(w_.ops[m].loc);
    const auto poison = make_poison(kind, with_context(what, p_, step, locs));
    for (const SlotId s : step.writes) poison_of(s) = poison;
  }

  Window& w_;
  CachedProgram& cached_;
  const std::shared_ptr<const Program> program_;
  const Program& p_;
  ProgramState& state_;
  DeviceMemory* memory_;
  Scratch& scratch_;
  Poisons poison_;  // empty: none
  bool choosing_ = false;
  std::optional<DebuggedRun> debugged_;  // while the debug allocator is on
  std::vector<Replacement> faster_;
  std::optional<profiler::DeviceRun> timed_;  // while a profile wants the device's times
};

Liveness liveness_of(const Window& w, bool all_live) {
  Liveness v(w.slots.size());
  for (const SlotId s : w.slots.ids()) {
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
    for (const Operand& o : n.outs) w.slots[g.slot(o)].storage->poison = poison;
}

void print_device_once(Device d) {
  static auto& seen = *new std::set<DeviceType>;  // guarded by the engine's lock
  if (!seen.insert(d.type).second) return;
  const DeviceInfo info = device_info(d);
  fmt::print(stderr, "pyflame: device {}: {}, {}, {} threads\n", d.str(), info.name, info.architecture, num_threads());
}

// The events of one window in a profile: when it was recorded, planned and run, and the memory in use then.
class RunEvents {
 public:
  RunEvents(const Window& w, CutReason reason) {
    if (!events::on()) return;
    start_ = events::now();
    device_ = w.device;
    if (!w.began) return;
    flow_ = events::new_flow();
    events::add_on(w.thread, events::Kind::Window,
                   events::label(fmt::format("window, cut by {}", cut_reason_name(reason))), w.began, start_,
                   static_cast<int64_t>(w.ops.size()), flow_);
  }
  void program_found(const Program& p, ProgramState& state, bool cached) {
    if (!start_ || !events::on()) return;
    if (!cached) events::add(events::Kind::Plan, events::label("plan program"), start_, events::now());
    label_ = profiler::labels_of(p, state.labels)[0];
  }
  ~RunEvents() {
    if (!label_.recording) return;
    const int64_t end = events::now();
    events::add(events::Kind::Run, label_, start_, end, 0, flow_);
    profiler::log_memory(device_);
  }
  RunEvents(const RunEvents&) = delete;
  RunEvents& operator=(const RunEvents&) = delete;

 private:
  Device device_;
  markers::Scope marker_{"run program"};
  events::Label label_;
  int64_t start_ = 0;
  uint32_t flow_ = 0;
};

// The program that is run in place of `found`: without what is kept from earlier runs. Looks for such values at the second run,
// because many programs run once.
CachedProgram& with_kept_values(Window& w, CachedProgram& found, std::optional<AddedToWindow>& added) {
  if (found.state->runs == 1) found.kept = KeptValues::find(w, *found.program, found.notes);
  const auto due = found.kept ? found.kept->next(w, *found.program) : KeptValues::Due::Original;
  const bool original = due == KeptValues::Due::Original;
  const Added& what = original ? found.program->added : found.kept->added();
  if (!what.empty() || !original) added.emplace(w, what);
  if (original) return found;
  KeptValues& kept = *found.kept;
  if (due == KeptValues::Due::Use) {
    kept.lend(*added);
    return kept.rest();
  }
  ++kept.first().state->runs;
  Run(w, kept.first(), engine().scratch).run();
  if (kept.take(*added, w)) return kept.rest();
  added.reset();
  if (!found.program->added.empty()) added.emplace(w, found.program->added);
  return found;
}

void run_window(Window& w, CutReason reason, bool all_live) {
  bool cached = false;
  RunEvents log(w, reason);
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<CachedProgram> found = get_program(w, liveness_of(w, all_live), &cached);
  if (!found->state) found->state = std::make_shared<ProgramState>(*found->program);
  std::optional<AddedToWindow> added;
  CachedProgram& chosen = with_kept_values(w, *found, added);
  const Program& program = *chosen.program;
  log.program_found(program, *chosen.state, cached);
  const double plan_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  const int64_t level = env::debug();
  if (level >= 1) print_device_once(w.device);
  if (level >= 2)
    fmt::print(stderr, "pyflame: window of {} ops, cut by {}; {}; {} steps, arena {} bytes\n", w.ops.size(),
               cut_reason_name(reason),
               cached ? std::string("cached program") : fmt::format("planned in {:.0f} us", plan_us),
               program.steps.size(), program.memory.arena_bytes);
  if (level >= 4 && !cached) fmt::print(stderr, "{}", describe_program(program));
  explain_log(w, chosen, cut_reason_name(reason), cached, plan_us);
  ++chosen.state->runs;
  Run(w, chosen, engine().scratch)
      .run();  // on the null device it takes addresses and counts bytes: its steps have nothing to run
}

// True if an input is poisoned; then the outputs are poisoned as well.
bool pass_on_poison(const Window& w, const Graph& g, const Node& n) {
  const auto storage = [&](const Operand& o) -> Storage& { return *w.slots[g.slot(o)].storage; };
  for (const Operand& in : n.ins) {
    if (in.is_param || !storage(in).poison) continue;
    for (const Operand& out : n.outs) storage(out).poison = storage(in).poison;
    return true;
  }
  return false;
}

// Runs the window op by op. This is the last resort if its memory cannot be allocated at once, or if one of its ops
// cannot be compiled.
void run_one_by_one(const Window& w) {
  const Graph g = build_graph(w);
  Indexed<SlotId, NodeId> last(w.slots.size(), NodeId(0));
  for (const NodeId op : g.nodes.ids())
    for (const auto* operands : {&g.nodes[op].ins, &g.nodes[op].outs})
      for (const Operand& o : *operands)
        if (!o.is_param) last[g.slot(o)] = op;
  for (const NodeId op : w.ops.ids()) {
    // Frees what no later op and no live handle uses.
    for (const SlotId s : w.slots.ids()) {
      Storage& st = *w.slots[s].storage;
      if (last[s].value() == op.value() - 1 && st.use_count() == 1 && st.owned_by_allocator) st.free_data();
    }
    if (pass_on_poison(w, g, g.nodes[op]))
      continue;  // checked before memory is allocated, because a missing output is the same failure
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
  const int64_t asked = events::on() ? events::now() : 0;
  std::lock_guard lock(engine().mutex);
  if (asked && events::now() - asked > kLongWait)
    events::add(events::Kind::Wait, events::label("wait for another thread's program"), asked, events::now());
  try {
    try {
      run_window(w, reason, false);
    } catch (const ForcedError&) {
      throw;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::OutOfMemory) release_arenas();
      release_kept_values();
      run_one_by_one(w);
    }
  } catch (const Error& e) {
    poison_outputs(w, e.kind(), e.what());
  } catch (const std::exception& e) {
    poison_outputs(w, ErrorKind::Runtime, fmt::format("execute: unexpected failure; got {}", e.what()));
  }
}

void between_programs(const std::function<void()>& fn) {
  std::lock_guard lock(engine().mutex);
  fn();
}

void release_unused_memory() {
  std::lock_guard lock(engine().mutex);
  release_arenas();
  release_kept_values();
  empty_cache();
}

std::shared_ptr<const Poison> make_poison(ErrorKind kind, std::string message) {
  auto p = std::make_shared<const Poison>(Poison{kind, std::move(message)});
  Engine& e = engine();
  std::lock_guard lock(e.error_mutex);
  if (!e.pending) e.pending = p;
  return p;
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
