// Times the implementations that accept a step, and installs the fastest correct one.
#include "pyflame/runtime/choose.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

#include "pyflame/compile/choices.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/runtime/allocator.h"

namespace pyflame {

namespace {

constexpr int kRounds = 5;  // the fastest round counts
constexpr int kEach = 4;    // runs per round, between two waits
// A later implementation must take at most this share of the first one's time.
constexpr double kWins = 0.97;
// The largest difference that counts as correct, in units of the dtype's rounding.
constexpr double kNear = 256;
constexpr size_t kMostBytes = size_t{256} << 20;  // limit for the results that are kept for comparison

ChoiceStats g_stats;  // guarded by the engine's lock, as all runs are

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}
bool budget_left() { return g_stats.spent_ms < tune_budget_ms(); }

struct Output {
  char* at;
  size_t nbytes;
  DType dtype;
};

std::vector<Output> outputs_of(const Frame& f, const Step& step) {
  std::vector<Output> out;
  const Graph& g = f.program.graph;
  for (const SlotId s : step.writes) {
    DType dtype = DType::uint8;
    for (const NodeId m : step.group.nodes)
      for (const Operand& o : g.nodes[m].outs)
        if (g.slot(o) == s) dtype = o.dtype;
    if (f.bases[s]) out.push_back({f.bases[s], g.slots[s].nbytes, dtype});
  }
  return out;
}

std::vector<char> fetch(DeviceMemory& m, const std::vector<Output>& outputs) {
  size_t total = 0;
  for (const Output& o : outputs) total += o.nbytes;
  std::vector<char> bytes(total);
  size_t at = 0;
  for (const Output& o : outputs) {
    m.to_host(bytes.data() + at, o.at, o.nbytes);
    at += o.nbytes;
  }
  return bytes;
}

// The largest difference relative to the largest value, in units of the dtype's rounding; infinity if one of two values
// is not finite and the other is.
double distance(const std::vector<char>& a, const std::vector<char>& b, const std::vector<Output>& outputs) {
  double worst = 0;
  size_t at = 0;
  for (const Output& o : outputs) {
    dispatch(o.dtype, [&]<class T>() {
      const auto* x = reinterpret_cast<const T*>(a.data() + at);
      const auto* y = reinterpret_cast<const T*>(b.data() + at);
      double scale = 0, difference = 0;
      for (size_t i = 0; i < o.nbytes / sizeof(T); ++i) {
        const double p = static_cast<double>(static_cast<float>(x[i])),
                     q = static_cast<double>(static_cast<float>(y[i]));
        if (!std::isfinite(p) || !std::isfinite(q)) {
          if (!(p == q || (std::isnan(p) && std::isnan(q)))) difference = INFINITY;
          continue;
        }
        scale = std::max(scale, std::fabs(p));
        difference = std::max(difference, std::fabs(p - q));
      }
      const double eps = o.dtype == DType::bfloat16  ? 7.8e-3
                         : o.dtype == DType::float16 ? 9.8e-4
                         : is_float(o.dtype)         ? 1.2e-7
                                                     : 1e-30;
      if (difference > 0) worst = std::max(worst, difference / (std::max(scale, 1e-30) * eps));
    });
    at += o.nbytes;
  }
  return worst;
}

bool works_in_place(const Step& step) {
  return std::any_of(step.writes.begin(), step.writes.end(),
                     [&](SlotId s) { return std::find(step.reads.begin(), step.reads.end(), s) != step.reads.end(); });
}

// Measures implementations of step k one after the other. What the first one computes is what the others must compute.
class Trial {
 public:
  Trial(const Frame& f, size_t k) : f_(f), k_(k), outputs_(outputs_of(f, f.program.steps[k])) {}

  // Whether the results are small enough to be kept for comparison.
  bool comparable() const {
    size_t bytes = 0;
    for (const Output& o : outputs_) bytes += o.nbytes;
    return bytes > 0 && bytes <= kMostBytes;
  }

  Measurement measure(const char* name, Executable& e) {
    Measurement r{name, 1e30, 0, false};
    const size_t need = e.workspace();
    void* workspace = nullptr;
    try {
      workspace = allocate_raw(f_.window.device, need, MemoryUse::replays);
      RunContext ctx = f_.context(k_);
      ctx.workspace = workspace;
      r.error = error_of(e, ctx);
      r.sound = r.error <= kNear;
      for (int i = 0; i < kRounds && r.sound && budget_left(); ++i) r.us = std::min(r.us, time_round(e, ctx));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Device) throw;
      r.sound = false;
    }
    free_raw(f_.window.device, workspace, need, MemoryUse::replays);
    ++g_stats.entries;
    g_stats.unsound += !r.sound;
    all_.push_back(r);
    return r;
  }
  const std::vector<Measurement>& all() const { return all_; }

 private:
  // The first run, which also compiles and loads the kernel.
  double error_of(Executable& e, const RunContext& ctx) {
    for (const Output& o : outputs_) f_.memory->fill(o.at, 0xff, o.nbytes);
    e.run(ctx);
    const std::vector<char> got = fetch(*f_.memory, outputs_);
    if (expected_.empty()) expected_ = got;
    return distance(expected_, got, outputs_);
  }
  // Microseconds of one run.
  double time_round(Executable& e, const RunContext& ctx) {
    f_.memory->wait();
    const auto start = std::chrono::steady_clock::now();
    for (int j = 0; j < kEach; ++j) e.run(ctx);
    f_.memory->wait();
    return ms_since(start) * 1e3 / kEach;
  }

  const Frame& f_;
  const size_t k_;
  const std::vector<Output> outputs_;
  std::vector<char> expected_;
  std::vector<Measurement> all_;
};

}  // namespace

bool worth_choosing(const Program& p) {
  if (tune_budget_ms() == 0 || !budget_left()) return false;
  return std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return !s.others.empty(); });
}

std::optional<Replacement> time_entries(const Frame& f, size_t k) {
  const Step& step = f.program.steps[k];
  if (step.others.empty() || !step.executable || !budget_left()) return std::nullopt;
  if (works_in_place(step)) return std::nullopt;  // it cannot run twice
  Trial trial(f, k);
  if (!trial.comparable()) return std::nullopt;
  const auto began = std::chrono::steady_clock::now();
  const Problem problem{f.program.graph, step.group};
  std::optional<Replacement> best;
  const Measurement first = trial.measure(step.impl, *step.executable);
  double best_us = first.us * kWins;
  for (const Impl* other : step.others) {
    if (!first.sound || !budget_left()) break;
    std::unique_ptr<Executable> e = other->make(problem);
    const Measurement measured = trial.measure(other->name, *e);
    if (measured.sound && measured.us < best_us) {
      best = Replacement{k, other->name, std::move(e)};
      best_us = measured.us;
    }
  }
  if (best) ++g_stats.changed;
  ++g_stats.problems;
  g_stats.spent_ms += ms_since(began);
  Choices::in(choices_file())
      .store(environment_of(*f.program.backend, f.window.device.index), std::string(op_name(problem.root().op)),
             problem_key(problem), trial.all());
  return best;
}

ChoiceStats choice_stats() { return g_stats; }

}  // namespace pyflame
