// Builds, checks and launches the GPU graphs of a program.
#include "pyflame/runtime/replayer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "pyflame/base/env.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/in_flight.h"
#include "pyflame/runtime/state.h"

namespace pyflame {

namespace {

constexpr int kLaunchedRuns = 6;      // before a graph is made; the first runs compile kernels
constexpr int kWarmRuns = 2;          // not timed
constexpr int kMeasuredReplays = 24;  // before replays and launches are compared
constexpr size_t kFewestSteps = 3;    // launching a graph costs as much as launching a few kernels
constexpr size_t kGraphs = 4;
constexpr uint64_t kMostPrograms = 512;  // each graph takes memory of the driver
constexpr size_t kMostBranchedSteps = 256;
constexpr int kTimedReplays = 10;
constexpr uint64_t kManyMoves =
    // Runs with addresses that no graph had; if there are fewer than four replays per such run, replay is switched off.
    24;
constexpr size_t kMostSaved = size_t{256} << 20;  // a program that writes more does not wait for the host
constexpr size_t kLargeSlot = size_t{1} << 20;
constexpr uint8_t kGarbage = 0xa5;

std::atomic<uint64_t> g_programs, g_replays, g_builds, g_updates, g_verified, g_differed, g_refused;

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

bool same_param(const Param& a, const Param& b) { return a.kind == b.kind && a.i == b.i; }

}  // namespace

ReplayStats replay_stats() { return {g_programs, g_replays, g_builds, g_updates, g_verified, g_differed, g_refused}; }

void Replayer::off(std::string why) {
  if (state_ == State::On) --g_programs;
  state_ = State::Off;
  why_ = std::move(why);
  graphs_.clear();
  ++g_refused;
}

std::string Replayer::describe() const {
  switch (state_) {
    case State::Counting: return fmt::format("launched step by step ({} runs so far)", runs_);
    case State::Off: return "launched step by step: " + why_;
    case State::On: break;
  }
  return fmt::format(
      "replayed as a GPU graph of {} nodes{}: {} replays, {} graphs, {} updates, host {:.1f} us (launched: {:.1f} us)",
      graphs_.empty() || !graphs_[0].replay ? 0 : graphs_[0].replay->nodes(), branches_ ? " in branches" : "", replays_,
      graphs_.size(), updates_, replay_us_ < 1e30 ? replay_us_ : 0, launch_us_ < 1e30 ? launch_us_ : 0);
}

void Replayer::launched(double us) {
  ++runs_;
  if (runs_ > kWarmRuns) launch_us_ = std::min(launch_us_, us);
}

void Replayer::learn(const Program& p) {
  const auto add = [](auto& v, auto x) {
    if (std::find(v.begin(), v.end(), x) == v.end()) v.push_back(x);
  };
  for (const Step& step : p.steps) {
    const SlotId donor = p.memory.workspaces[uses_.size()].donor;
    Uses& u = uses_.emplace_back();
    if (donor.valid())
      for (const BindingId b : p.graph.bindings.ids())
        if (p.graph.bindings[b].slot == donor) add(u.bindings, b);
    for (const NodeId m : step.group.nodes) {
      const Node& n = p.graph.nodes[m];
      for (const auto* operands : {&n.ins, &n.outs})
        for (const Operand& o : *operands)
          if (o.is_param) add(u.params, o.param);
          else add(u.bindings, o.binding);
      u.reports |= may_report(n);
    }
    reports_ |= u.reports;
  }
  find_order(p);
}

namespace {

// Memory that a step reads or writes: in the arena, or in a storage (which may serve as an arena).
struct Range {
  SlotId storage;  // none: the arena
  size_t begin, end;
  bool written;
};

std::vector<Range> ranges_of(const Program& p, size_t k) {
  const Step& step = p.steps[k];
  std::vector<Range> all;
  const auto add = [&](SlotId s, bool written) {
    const Placement& at = p.memory.placements[s];
    const size_t nbytes = p.graph.slots[s].nbytes;
    if (at.kind == Placement::Elided) return;
    if (at.kind == Placement::Arena) all.push_back({at.donor, at.offset, at.offset + nbytes, written});
    else all.push_back({at.kind == Placement::Donated ? at.donor : s, 0, nbytes, written});
  };
  for (const SlotId s : step.reads) add(s, false);
  for (const SlotId s : step.writes) add(s, true);
  if (const size_t bytes = step.executable ? step.executable->workspace() : 0) {
    const Placement& at = p.memory.workspaces[k];
    all.push_back({at.donor, at.offset, at.offset + bytes, true});
  }
  return all;
}

bool conflict(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (const Range& x : a)
    for (const Range& y : b)
      if ((x.written || y.written) && x.storage == y.storage && x.begin < y.end && y.begin < x.end) return true;
  return false;
}

}  // namespace

// Finds the order of the steps: a step comes after all steps that wrote what it uses, or used what it writes.
void Replayer::find_order(const Program& p) {
  const size_t n = p.steps.size();
  if (n > kMostBranchedSteps) branches_ = false;
  if (!branches_) return;
  std::vector<std::vector<Range>> ranges;
  std::vector<std::vector<bool>> before(n);  // all steps that must come before it
  for (size_t j = 0; j < n; ++j) {
    ranges.push_back(ranges_of(p, j));
    before[j].assign(n, false);
    for (size_t i = j; i-- > 0;) {
      if (before[j][i] || !conflict(ranges[i], ranges[j])) continue;
      uses_[j].after.push_back(i);
      before[j][i] = true;
      for (size_t k = 0; k < i; ++k)
        if (before[i][k]) before[j][k] = true;
    }
  }
}

// Runs no kernel: the launches are directed to the graph.
bool Replayer::build(Graph& g, const Frame& f) {
  g.replay = f.memory->make_replay();
  try {
    for (size_t k = 0; k < f.program.steps.size(); ++k) {
      const std::vector<size_t> previous(k > 0 ? 1 : 0, k - 1);
      g.replay->add(f.program.steps[k].executable.get(), f.context(k), branches_ ? uses_[k].after : previous);
    }
    g.replay->finish();
  } catch (const Error& e) {
    off(std::string("a step cannot be in a graph: ") + e.what());
    return false;
  }
  g.pointers = f.pointers;
  g.arena = f.arena;
  g.params = f.window.params;
  g.site = f.site;
  ++builds_;
  ++g_builds;
  return true;
}

// Brings a graph's arguments up to date. False: the graph must be built anew.
bool Replayer::bring_up_to_date(Graph& g, const Frame& f, bool pointers_too) {
  for (size_t k = 0; k < f.program.steps.size(); ++k) {
    Executable* e = f.program.steps[k].executable.get();
    if (!e) continue;
    bool changed = uses_[k].reports || (pointers_too && g.arena != f.arena);
    if (pointers_too)
      for (const BindingId b : uses_[k].bindings) changed |= g.pointers[b] != f.pointers[b];
    for (const ParamId p : uses_[k].params) changed |= !same_param(g.params[p], f.window.params[p]);
    if (changed) {
      ++updates_;
      ++g_updates;
      if (!g.replay->update(k, *e, f.context(k))) return false;
    }
  }
  if (pointers_too) {
    g.pointers = f.pointers;
    g.arena = f.arena;
  }
  g.params = f.window.params;
  g.site = f.site;
  return true;
}

Replayer::Plan Replayer::replay(Graph& g, Frame& f) {
  f.site = g.site;  // another one only where no step reports
  g.replay->launch();
  g.used = ++replays_;
  ++g_replays;
  return Plan::Done;
}

Replayer::Plan Replayer::plan(Frame& f) {
  if (state_ == State::Off) return Plan::Launch;
  const std::string& setting = env::gpu_graphs();
  if (state_ == State::Counting) {
    if (runs_ == 0) {
      if (setting == "0") off("PYFLAME_GPU_GRAPHS=0");
      else if (std::string why = f.memory->replay_unsafe(); !why.empty()) off(std::move(why));
      else if (setting == "auto" && f.program.steps.size() < kFewestSteps) off("too few steps to gain anything");
    }
    if (state_ == State::Off || runs_ < kLaunchedRuns || g_programs >= kMostPrograms) return Plan::Launch;
    for (const Step& s : f.program.steps) {
      if (s.executable && !s.executable->repeats()) {
        off(fmt::format("{} is not deterministic: a replay cannot be checked", s.impl));
        return Plan::Launch;
      }
      if (s.executable && !s.executable->capturable()) {
        if (runs_ > 64 * kLaunchedRuns) off(fmt::format("{} cannot be in a graph", s.impl));
        return Plan::Launch;  // a kernel may still be compiling
      }
    }
    learn(f.program);
    graphs_.emplace_back();
    if (!build(graphs_.back(), f)) return Plan::Launch;
    state_ = State::On;
    ++g_programs;
    under_test_ = 0;
    return Plan::Verify;
  }
  const auto start = std::chrono::steady_clock::now();
  Graph* free_one = nullptr;
  for (Graph& g : graphs_) {
    const bool same = g.arena == f.arena && g.pointers == f.pointers;
    const bool current =
        same && !reports_ && std::equal(g.params.begin(), g.params.end(), f.window.params.begin(), same_param);
    const bool may_change = current || g.replay->may_update();
    if (same && may_change) {
      if (!current && !bring_up_to_date(g, f, false) && !build(g, f)) return Plan::Launch;
      const Plan done = replay(g, f);
      if (measured_ < kMeasuredReplays) {
        replay_us_ = std::min(replay_us_, since(start));
        // Where the device is busy for much longer than launching takes, nobody waits for the host; and a replay's time is
        // then the device's, because a graph that still runs cannot be launched again.
        if (++measured_ == kMeasuredReplays && setting == "auto" && replay_us_ > 0.95 * launch_us_ &&
            2 * launch_us_ > device_us_)
          off(fmt::format("measured: {:.1f} us of the host for a replay, {:.1f} us for the launches", replay_us_,
                          launch_us_));
      }
      return done;
    }
    if (may_change && (!free_one || g.used < free_one->used)) free_one = &g;
  }
  if (++moves_ > kManyMoves && replays_ < 4 * moves_) {
    off("its addresses change at nearly every run");
    return Plan::Launch;
  }
  if (graphs_.size() < kGraphs) {
    graphs_.emplace_back();
    if (!build(graphs_.back(), f)) return Plan::Launch;
    return replay(graphs_.back(), f);
  }
  if (!free_one) return Plan::Launch;  // all graphs are still running
  if (!bring_up_to_date(*free_one, f, true)) {
    if (!build(*free_one, f)) return Plan::Launch;
    return replay(*free_one, f);
  }
  if (verified_update_) return replay(*free_one, f);
  under_test_ = static_cast<size_t>(free_one - graphs_.data());
  return Plan::Verify;
}

void Replayer::drop_snapshot() {
  if (before_) free_raw(device_, before_, saved_bytes_, MemoryUse::replays);
  if (after_) free_raw(device_, after_, saved_bytes_, MemoryUse::replays);
  before_ = after_ = nullptr;
  saved_.clear();
}

// Whether all that the program writes of a slot are rows that index_put or rotary_store replaces. A replay after the launches replaces them by the same values,
// if it reads the same; so the slot needs no copy from before.
bool only_replaces_rows(const Program& p, SlotId slot) {
  for (const Node& n : p.graph.nodes)
    for (const Operand& o : n.outs)
      if (p.graph.slot(o) == slot && n.op != OpId::rotary_store &&
          (n.op != OpId::index_put || n.attr<ScatterAttrs>().combine != static_cast<int64_t>(Combine::Replace)))
        return false;
  return true;
}

// Saves the contents of everything that the program writes and that is visible afterwards, or that a replay reads. If that is too much, what
// only_replaces_rows() says of a large slot is enough: a cache of keys and values, say, which is larger than all else. What later steps make of
// it is compared.
void Replayer::snapshot(const Frame& f) {
  device_ = f.window.device;
  saved_bytes_ = 0;
  size_t total = 0;
  Indexed<SlotId, bool> seen(f.bases.size(), false), serves(f.bases.size(), false);
  const auto save = [&](SlotId slot, bool compared) {
    const Placement::Kind kind = f.program.memory.placements[slot].kind;
    if (seen[slot] || !f.bases[slot] || kind == Placement::Arena || kind == Placement::Elided) return;
    seen[slot] = true;
    const size_t nbytes = f.program.graph.slots[slot].nbytes;
    saved_.push_back({slot, 0, nbytes, kind != Placement::Allocate, compared});
    total += nbytes;
  };
  // An input that nobody sees afterwards is read, and then overwritten where it serves as an arena or a workspace.
  const auto save_donor = [&](const Placement& at, bool compared) {
    if (at.kind != Placement::Arena || !at.donor.valid()) return false;
    serves[at.donor] = true;
    save(at.donor, compared);
    return true;
  };
  for (const Step& step : f.program.steps)
    for (const SlotId s : step.writes)
      if (!save_donor(f.program.memory.placements[s], true)) save(s, true);
  for (const Placement& at : f.program.memory.workspaces) save_donor(at, false);
  const auto is_rows = [&](const Saved& s) {
    return s.before && s.nbytes >= kLargeSlot && !serves[s.slot] && only_replaces_rows(f.program, s.slot);
  };
  rows_unsaved_ = total > kMostSaved && std::erase_if(saved_, is_rows) > 0;
  for (Saved& s : saved_) {
    s.at = saved_bytes_;
    saved_bytes_ += (s.nbytes + 255) / 256 * 256;
  }
  if (saved_bytes_ == 0 || saved_bytes_ > kMostSaved) {
    off(saved_bytes_ ? fmt::format("it writes {} bytes, too many to check a replay", saved_bytes_)
                     : "it writes nothing");
    saved_.clear();
    return;
  }
  try {
    before_ = static_cast<char*>(allocate_raw(device_, saved_bytes_, MemoryUse::replays));
    after_ = static_cast<char*>(allocate_raw(device_, saved_bytes_, MemoryUse::replays));
  } catch (const Error&) {
    drop_snapshot();
    off("there is no memory to check a replay");
    return;
  }
  for (const Saved& s : saved_)
    if (s.before) f.memory->copy(before_ + s.at, f.bases[s.slot], s.nbytes);
}

bool Replayer::same_outputs(const Frame& f) {
  constexpr size_t kPiece = size_t{8} << 20;
  std::vector<char> a, b;
  for (const Saved& s : saved_)
    for (size_t at = 0; s.compared && at < s.nbytes; at += kPiece) {
      const size_t n = std::min(kPiece, s.nbytes - at);
      a.resize(n), b.resize(n);
      f.memory->to_host(a.data(), f.bases[s.slot] + at, n);
      f.memory->to_host(b.data(), after_ + s.at + at, n);
      if (std::memcmp(a.data(), b.data(), n) != 0) return false;
    }
  return true;
}

// Restores the contents from before the run. With `garbage`, all other outputs get a pattern, so that a replay that
// fails to write something is found.
void Replayer::restore(const Frame& f, bool garbage) {
  for (const Saved& s : saved_) {
    char* at = f.bases[s.slot];
    if (s.before) f.memory->copy(at, before_ + s.at, s.nbytes);
    else if (garbage) f.memory->fill(at, kGarbage, s.nbytes);
  }
  if (f.arena && garbage) f.memory->fill(f.arena, kGarbage, f.program.memory.arena_bytes);
}

bool Replayer::replays_right(Graph& g, const Frame& f) {
  restore(f, true);
  g.replay->launch();
  g.used = ++replays_;
  ++g_replays;
  if (same_outputs(f)) {
    ++g_verified;
    return true;
  }
  ++g_differed;
  return false;
}

// Microseconds from the launch to the end of a replay. Each starts from the bytes before the run, because the program
// may overwrite its inputs.
double Replayer::time_graph(Graph& g, const Frame& f, int times) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    restore(f, false);
    f.memory->wait();
    const auto start = std::chrono::steady_clock::now();
    g.replay->launch();
    f.memory->wait();
    best = std::min(best, since(start));
  }
  return best;
}

// Called after the launches have run. The replays start from the same bytes.
void Replayer::verify(const Frame& f) {
  if (saved_.empty() || state_ != State::On) return;
  for (const Saved& s : saved_) f.memory->copy(after_ + s.at, f.bases[s.slot], s.nbytes);
  Graph& g = graphs_[under_test_];
  bool right = false;
  try {
    right = replays_right(g, f);
    if (!verified_build_ && branches_) {
      Graph chain;
      branches_ = false;
      if (build(chain, f) && replays_right(chain, f)) {
        const double branched_us = right ? time_graph(g, f, kTimedReplays) : 1e30,
                     chain_us = time_graph(chain, f, kTimedReplays);
        if (branched_us < chain_us) branches_ = true;
        else g = std::move(chain);
        right = true;
        device_us_ = std::min(branched_us, chain_us);
      } else {
        right = false;
      }
    }
    if (right && device_us_ == 0) device_us_ = time_graph(g, f, 2);
    if (right) (verified_build_ ? verified_update_ : verified_build_) = true;
    else if (state_ == State::On) off("its first replay did not compute what the launches did");
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Device) throw;
    off(std::string("its first replay failed: ") + e.what());
    right = false;
  }
  if (!right && rows_unsaved_) {  // the replay has replaced them by what it computed
    restore(f, false);
    for (size_t k = 0; k < f.program.steps.size(); ++k)
      if (Executable* e = f.program.steps[k].executable.get()) e->run(f.context(k));
  }
  for (const Saved& s : saved_) f.memory->copy(f.bases[s.slot], after_ + s.at, s.nbytes);
  drop_snapshot();
}

}  // namespace pyflame
