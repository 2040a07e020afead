// Times the implementations that accept a step, and installs the fastest correct one.
#include "pyflame/runtime/choose.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <new>
#include <set>
#include <utility>

#include "pyflame/compile/choices.h"
#include "pyflame/compile/passes.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/oracle.h"
#include "pyflame/runtime/samples.h"

namespace pyflame {

namespace {

// Stages of the search: each remaining candidate is run this many times, and those that take more than `keeps` times the best
// one's median leave. The last stage decides.
struct Stage {
  int runs;
  double keeps;
};
constexpr Stage kStages[] = {{2, 1.5}, {4, 1.2}, {8, 1.07}, {24, 1}};
constexpr size_t kAtOnce = 64;  // so many candidates are compared at once
// Of an implementation's Enumeration, this many candidates are usual. Beyond them a search of one problem goes on only where the budget is
// long, so that other problems have their turn.
constexpr uint64_t kUsual = 256;
constexpr double kShareOfUsual = 0.25,
                 kShareOfMore = 1.0 / 16;  // of the budget that is left when the enumerations begin
constexpr uint64_t kPlacesAtOnce =
    4096;  // of an Enumeration that are looked at before it is noted how far the search is
constexpr size_t kMostBytes = size_t{256} << 20;  // limit for the results that are kept for comparison
constexpr double kRoundings = 256;                // by so many do sums of floats in another order differ
// Before each timed run on a device, this much is written, so that operands are read from memory and not from a cache. Devices
// with more memory have larger caches.
size_t flush_bytes(size_t memory) { return std::min(memory / 192, size_t{256} << 20); }

ChoiceStats g_stats;  // guarded by the engine's lock, as all runs are

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

bool g_counts = false;  // guarded as above

// The time in milliseconds since some moment. Tests let each candidate take one.
double now_ms() {
  if (g_counts) return static_cast<double>(g_stats.entries);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Counts the time of a search as it passes.
class Spending {
 public:
  ~Spending() { pass(); }
  bool left() { return left(tune_budget_ms()); }
  // Whether less than this was spent.
  bool left(double ms) {
    pass();
    return g_stats.spent_ms < std::min(ms, tune_budget_ms());
  }
  // What will have been spent when this share of what is left now is gone.
  double share(double part) {
    pass();
    return g_stats.spent_ms + part * (tune_budget_ms() - g_stats.spent_ms);
  }

 private:
  void pass() {
    const double now = now_ms();
    g_stats.spent_ms += now - since_;
    since_ = now;
  }
  double since_ = now_ms();
};

struct Output {
  SlotId slot;
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
    if (f.bases[s]) out.push_back({s, f.bases[s], g.slots[s].nbytes, dtype});
  }
  return out;
}

std::vector<SlotId> slots_of(const std::vector<Output>& outputs) {
  std::vector<SlotId> slots;
  for (const Output& o : outputs) slots.push_back(o.slot);
  return slots;
}

std::vector<char> fetch(DeviceMemory* m, const std::vector<Output>& outputs) {
  size_t total = 0;
  for (const Output& o : outputs) total += o.nbytes;
  std::vector<char> bytes(total);
  size_t at = 0;
  for (const Output& o : outputs) {
    if (m) m->to_host(bytes.data() + at, o.at, o.nbytes);
    else if (o.nbytes > 0) std::memcpy(bytes.data() + at, o.at, o.nbytes);
    at += o.nbytes;
  }
  return bytes;
}

// A byte of an output.
struct Place {
  size_t output = 0;
  int64_t byte = 0;
};

// Where two results differ: by how much, and that as a part of what was allowed.
struct Difference {
  double part, size;
  Place place;
};

// Those that are the widest parts, these first. There are at most kMost of them.
class Differences {
 public:
  static constexpr size_t kMost = 4096;
  void add(const Difference& d) {
    all_.push_back(d);
    if (all_.size() == 2 * kMost) shorten();
  }
  std::vector<Difference> take() {
    shorten();
    std::stable_sort(all_.begin(), all_.end(), wider);
    return std::exchange(all_, {});
  }

 private:
  static bool wider(const Difference& a, const Difference& b) { return a.part > b.part; }
  void shorten() {
    if (all_.size() <= kMost) return;
    std::nth_element(all_.begin(), all_.begin() + kMost, all_.end(), wider);
    all_.resize(kMost);
  }
  std::vector<Difference> all_;
};

// The difference of two values; infinity if one of them is not finite and the other is, or is another one.
template <class T>
double difference_of(T x, T y) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const double p = static_cast<double>(static_cast<Wide>(x)), q = static_cast<double>(static_cast<Wide>(y));
  if (std::isfinite(p) && std::isfinite(q)) return std::fabs(p - q);
  return p == q || (std::isnan(p) && std::isnan(q)) ? 0 : INFINITY;
}

// The largest difference relative to the largest value, as a part of what is allowed for the dtype; infinity if one of two values
// is not finite and the other is. Of each output so much is allowed in any case. `found` is told of each element for which that is not enough.
double distance(const std::vector<char>& a, const std::vector<char>& b, const std::vector<Output>& outputs,
                const std::vector<double>& in_any_case = {},
                const std::function<void(const Difference&)>& found = nullptr) {
  double worst = 0;
  size_t at = 0, output = 0;
  for (const Output& o : outputs) {
    const double least = in_any_case.empty() ? 0 : in_any_case[output];
    dispatch(o.dtype, [&]<class T>() {
      const auto* x = reinterpret_cast<const T*>(a.data() + at);
      const auto* y = reinterpret_cast<const T*>(b.data() + at);
      double scale = 0, difference = 0;
      const size_t count = o.nbytes / sizeof(T);
      for (size_t i = 0; i < count; ++i) {
        using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
        difference = std::max(difference, difference_of(x[i], y[i]));
        const double p = std::fabs(static_cast<double>(static_cast<Wide>(x[i])));
        if (std::isfinite(p) && std::isfinite(static_cast<double>(static_cast<Wide>(y[i])))) scale = std::max(scale, p);
      }
      // Sums in another order differ by many roundings of float32 and float64, but 16-bit results are rounded once, at the end.
      const double allowed = o.dtype == DType::bfloat16  ? 4 * 7.8e-3
                             : o.dtype == DType::float16 ? 8 * 9.8e-4
                             : o.dtype == DType::float64 ? kRoundings * 2.2e-16
                             : is_float(o.dtype)         ? kRoundings * 1.2e-7
                                                         : 1e-30;
      const double most = std::max(least, std::max(scale, 1e-30) * allowed);
      worst = std::max(worst, difference / most);
      for (size_t i = 0; found && difference > most && i < count; ++i)
        if (const double d = difference_of(x[i], y[i]); d > most)
          found({d / most, d, {output, static_cast<int64_t>(i * sizeof(T))}});
    });
    at += o.nbytes, ++output;
  }
  return worst;
}

// Whether the step overwrites bytes that it reads, so that it cannot run twice. A slot may have taken over the bytes of another one.
bool works_in_place(const Frame& f, const Step& step) {
  const auto& slots = f.program.graph.slots;
  for (const SlotId w : step.writes)
    for (const SlotId r : step.reads) {
      if (w == r) return true;
      const char *to = f.bases[w], *from = f.bases[r];
      if (to && from && to < from + slots[r].nbytes && from < to + slots[w].nbytes) return true;
    }
  return false;
}

// Memory that is freed at the end of the search.
class Scratch {
 public:
  explicit Scratch(Device device) : device_(device) {}
  ~Scratch() { release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* of(size_t nbytes) {
    if (nbytes > size_) {
      release();
      at_ = allocate_raw(device_, nbytes, MemoryUse::replays);
      size_ = nbytes;
    }
    return at_;
  }

 private:
  void release() {
    free_raw(device_, at_, size_, MemoryUse::replays);
    at_ = nullptr, size_ = 0;
  }
  Device device_;
  void* at_ = nullptr;
  size_t size_ = 0;
};

struct Entrant {
  Candidate candidate;
  std::shared_ptr<Executable> executable;
  Measurement measured;
  std::vector<double> us;
};

double quantile(std::vector<double> x, double q) {
  std::sort(x.begin(), x.end());
  return x[static_cast<size_t>(q * static_cast<double>(x.size() - 1))];
}

// Measures candidates of step k. What the reference implementation computes is what they must compute. Where there is no oracle, each must be right at a
// sample of elements, and compute what the first one does that is. Without a sample either, it is what the first one computes.
class Trial {
 public:
  Trial(const Frame& f, size_t k)
      : f_(f), k_(k), outputs_(outputs_of(f, f.program.steps[k])), workspace_(f.window.device), pad_(f.window.device) {
    if (!comparable()) return;
    if (writes_parts(f.program.steps[k])) before_ = fetch(f.memory, outputs_);
    ask_oracle();
    if (!oracle_) take_sample();
    if (!f.memory) return;
    size_t free = 0, total = 0;
    f.memory->room(&free, &total);
    flush_ = flush_bytes(total);
    if (free > 4 * flush_) flushed_ = pad_.of(flush_);
  }

  ~Trial() { put_back(); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Whether the results are small enough to be kept for comparison.
  bool comparable() const {
    size_t bytes = 0;
    for (const Output& o : outputs_) bytes += o.nbytes;
    return bytes > 0 && bytes <= kMostBytes;
  }

  // Whether it is known what is right, without any of the entrants.
  bool knows_right() const { return oracle_ || sample_; }

  // An entry whose result was expected until now, and how it is wrong.
  struct Disproved {
    std::string entry;
    Sample::Difference how;
  };
  // If the last check has shown that what was expected is wrong. Then the next right result is expected.
  std::optional<Disproved> take_disproved() {
    if (disproved_) expected_.clear();
    return std::exchange(disproved_, std::nullopt);
  }

  // What the sample says of the last result that was wrong there.
  const std::string& where() const { return where_; }

  // Whether it computes the right result. The first run also compiles and loads the kernel.
  bool check(Entrant& e) {
    Measurement& m = e.measured;
    m.sound = false, m.us = 1e30;
    try {
      m.workspace = e.executable->workspace();
      e.executable->end_stand_in();
      for (const Output& o : outputs_) {
        if (f_.memory) f_.memory->fill(o.at, 0xff, o.nbytes);
        else std::memset(o.at, 0xff, o.nbytes);
      }
      e.executable->run(context(e));
      const std::vector<char> got = fetch(f_.memory, outputs_);
      judge(got, m);
      if (disproved_) return false;  // it is measured again, if it was right
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Device) throw;
      m.note = error.what();
    }
    ++g_stats.entries;
    g_stats.unsound += !m.sound;
    return m.sound;
  }

  bool has_caches_to_flush() const { return flushed_ != nullptr; }

  // Adds the times of some runs. Cold: the caches are flushed before each.
  void run(Entrant& e, int runs, bool cold = true) {
    const RunContext ctx = context(e);
    if (!f_.memory) {
      for (int i = 0; i < runs; ++i) {
        const auto start = std::chrono::steady_clock::now();
        e.executable->run(ctx);
        e.us.push_back(ms_since(start) * 1e3);
      }
      return;
    }
    std::vector<std::pair<std::unique_ptr<Moment>, std::unique_ptr<Moment>>> marks;
    for (int i = 0; i < runs; ++i) {
      if (flushed_ && cold) f_.memory->fill(flushed_, static_cast<uint8_t>(i), flush_);
      auto before = f_.memory->moment();
      e.executable->run(ctx);
      marks.emplace_back(std::move(before), f_.memory->moment());
    }
    f_.memory->wait();
    for (const auto& [before, after] : marks) e.us.push_back(after->ms_since(*before) * 1e3);
  }

 private:
  // Whether some output's slot has bytes that earlier steps wrote and this one leaves as they are.
  static bool writes_parts(const Step& step) {
    return std::find(step.covers.begin(), step.covers.end(), false) != step.covers.end();
  }

  void put_back() {
    if (before_.empty()) return;
    size_t at = 0;
    for (const Output& o : outputs_) {
      if (f_.memory) f_.memory->from_host(o.at, before_.data() + at, o.nbytes);
      else if (o.nbytes > 0) std::memcpy(o.at, before_.data() + at, o.nbytes);
      at += o.nbytes;
    }
  }

  void ask_oracle() {
    try {
      oracle_ = Oracle::of(f_, k_);
      if (oracle_) expected_ = oracle_->result(slots_of(outputs_));
      if (oracle_ && oracle_->sum() && !bound_sums()) oracle_.reset(), expected_.clear();
    } catch (const Error&) {  // the step itself will say so
      oracle_.reset();
    }
  }

  void take_sample() {
    try {
      sample_ = Sample::of(f_, k_);
    } catch (const Error& error) {  // the step itself will say so
      if (error.kind() == ErrorKind::Device) throw;
    }
  }

  // Right results are expected to be as the first one that is right at the sample.
  void judge(const std::vector<char>& got, Measurement& m) {
    Sample::Difference sampled = difference_at_sample(got);
    m.error = sampled.error;
    if (m.error <= 1) {
      if (expected_.empty()) expected_ = got, expected_of_ = m.entry;
      const double other = difference(got);
      if (other > 1 && sample_) sampled = decide(got), m.error = sampled.error;
      else m.error = std::max(m.error, other);
    }
    m.sound = m.error <= 1;
    if (m.sound) return;
    m.note = fmt::format("its result differs by {:.3g} times what is allowed", m.error);
    where_ = sampled.where;
    if (!where_.empty()) m.note += ": " + where_;
  }

  // Where a result that is right at the sample differs most from what is expected, the element says which of them is wrong. If both are right there, or the
  // element has no bound, it is the next one. Nothing is known to be wrong where that says nothing.
  Sample::Difference decide(const std::vector<char>& got) {
    constexpr int kMostCompared = 4;
    int compared = 0;
    sample_->allow_more();
    for (const Difference& d : disputed(got)) {
      const SlotId slot = outputs_[d.place.output].slot;
      if (d.size <= 2 * sample_->most_allowed(slot)) continue;  // those that were added since allow more
      const Sample::Added added = sample_->add(slot, d.place.byte);
      if (added == Sample::Added::too_long) break;
      if (added == Sample::Added::unknown) return {d.part, ""};
      if (added == Sample::Added::open) continue;
      Sample::Difference mine = difference_at_sample(got), expected = difference_at_sample(expected_);
      if (expected.error > 1) disproved_ = Disproved{expected_of_, std::move(expected)};
      if (mine.error > 1 || disproved_) return mine;
      if (++compared == kMostCompared) break;
    }
    return difference_at_sample(got);
  }

  std::vector<Difference> disputed(const std::vector<char>& got) const {
    Differences all;
    distance(expected_, got, outputs_, twice_allowed(), [&](const Difference& d) {
      if (!sample_->is_open(outputs_[d.place.output].slot, d.place.byte)) all.add(d);
    });
    return all.take();
  }

  Sample::Difference difference_at_sample(const std::vector<char>& got) const {
    Sample::Difference worst;
    size_t at = 0;
    for (const Output& o : outputs_) {
      if (sample_)
        if (Sample::Difference d = sample_->difference(o.slot, got.data() + at); d.error > worst.error)
          worst = std::move(d);
      at += o.nbytes;
    }
    return worst;
  }

  // By how much two results may differ that are both right at the sample.
  std::vector<double> twice_allowed() const {
    std::vector<double> allowed;
    for (const Output& o : outputs_) allowed.push_back(sample_ ? 2 * sample_->most_allowed(o.slot) : 0);
    return allowed;
  }

  // Whether there are bounds for the elements of the step's result.
  bool bound_sums() {
    magnitudes_ = oracle_->magnitudes(slots_of(outputs_));
    return outputs_.size() == 1 && distance_of_sums(*oracle_->sum(), expected_, expected_, magnitudes_);
  }

  // By how much a result differs from what is expected, as a part of what is allowed.
  double difference(const std::vector<char>& got) {
    if (oracle_ && oracle_->sum()) return *distance_of_sums(*oracle_->sum(), expected_, got, magnitudes_);
    const double error = distance(expected_, got, outputs_, twice_allowed());
    return error > 1 && oracle_ ? error / allowance() : error;
  }

  // By how many times more than usual a result may differ, because large terms cancel: what a change of the last bits of the inputs does,
  // for each rounding.
  double allowance() {
    if (!allowance_)
      allowance_ = std::max(1.0, kRoundings * distance(expected_, oracle_->nearby(slots_of(outputs_)), outputs_));
    return *allowance_;
  }

  RunContext context(const Entrant& e) {
    RunContext ctx = f_.context(k_);
    ctx.workspace = workspace_.of(e.executable->workspace());
    return ctx;
  }

  const Frame& f_;
  const size_t k_;
  const std::vector<Output> outputs_;
  std::optional<Oracle> oracle_;
  std::optional<Sample> sample_;        // where there is no oracle
  std::string where_;                   // what it said last
  std::string expected_of_;             // the entry whose result is expected, where there is no oracle
  std::optional<Disproved> disproved_;  // it was found to be wrong
  std::optional<double> allowance_;
  std::vector<char> before_;  // the outputs' bytes before the search; empty: the step writes all of them
  std::vector<char> expected_;
  std::vector<char> magnitudes_;  // of the oracle's sums of products
  Scratch workspace_, pad_;
  void* flushed_ = nullptr;  // null: there is no room for it
  size_t flush_ = 0;
};

void summarize(Entrant& e) {
  if (e.us.empty()) return;
  e.measured.us = quantile(e.us, 0.5);
  e.measured.spread = (quantile(e.us, 0.75) - quantile(e.us, 0.25)) / std::max(e.measured.us, 1e-9);
}

// The times of those that are left, with operands in the caches.
void measure_warm(Trial& trial, std::vector<Entrant>& all, size_t in) {
  constexpr int kRuns = 16;
  for (size_t i = 0; i < in; ++i) all[i].us.clear();
  for (int run = 0; run < kRuns; run += 4)
    for (size_t i = 0; i < in; ++i) trial.run(all[i], 4, false);
  for (size_t i = 0; i < in; ++i) all[i].measured.warm_us = quantile(all[i].us, 0.5);
}

// An implementation that is taken without a measurement computes something else than the op means. `where`: what a sample says.
void report_wrong(const Measurement& own, const std::string& where, const std::string& problem, bool replaced) {
  const std::string what = where.empty()
                               ? fmt::format(
                                     "computes something else than the reference implementation; got {:.3g} times the "
                                     "difference that is allowed, for {}",
                                     own.error, problem)
                               : fmt::format("is wrong in {}: {} (computed in double precision)", problem, where);
  fmt::print(stderr, "pyflame: {} {}; {}; hint: this is an error of PyFlame or of a library, please report this line\n",
             own.entry, what,
             replaced ? "another implementation computes it from now on" : "no other implementation is right");
}

// The entrants of a step's search, the step's own first, and what was measured of all others.
class Search {
 public:
  Search(const Frame& f, size_t k)
      : step_(f.program.steps[k]),
        backend_(*f.program.backend),
        problem_{f.program.graph, step_.group},
        op_(op_name(problem_.root().op)),
        key_(problem_key(problem_)),
        here_(environment_of(backend_, f.window.device.index)),
        choices_(Choices::in(choices_file())),
        trial_(f, k) {}

  std::optional<Replacement> run(size_t k) {
    if (!trial_.comparable()) return std::nullopt;
    bool own_is_right = add_own();
    if (!own_is_right && !wrong_own_) return std::nullopt;  // there is nothing to compare with
    for (std::string& name : choices_.known(here_, op_, key_).tried) tried_.insert(std::move(name));
    own_is_right = own_is_right && try_others();
    if (!own_is_right) try_instead();
    choices_.passed();
    store();
    ++g_stats.problems;
    if (!own_is_right) return instead_of_own(k);
    const auto end = all_.begin() + static_cast<ptrdiff_t>(in_);
    const auto best = std::find_if(all_.begin() + 1, end,
                                   [&](const Entrant& e) { return clearly_faster(e.measured, all_[0].measured); });
    if (best == end) return std::nullopt;
    ++g_stats.changed;
    return Replacement{k, best->candidate, best->executable};
  }

 private:
  struct OwnIsWrong {};  // thrown where an entrant shows it

  // false: the step's own entrant is wrong, as another one has shown.
  bool try_others() {
    try {
      try_all(step_.others);
      try_enumerations();
      look_around();
      return true;
    } catch (const OwnIsWrong&) {
      all_.clear(), dropped_.clear(), in_ = 0;
      return false;
    }
  }

  // Whether an entrant is right. Its result may show that the one that was expected until now is wrong; then it is checked anew.
  bool check(Entrant& e) {
    bool right = trial_.check(e);
    while (const auto disproved = trial_.take_disproved()) {
      drop(*disproved);
      right = trial_.check(e);
    }
    return right;
  }

  // What agreed with the wrong one may be wrong in the same way.
  void drop(const Trial::Disproved& disproved) {
    ++g_stats.unsound;
    if (!wrong_own_) {  // what is expected is the own one's result
      wrong_own_ = wrong(all_[0].measured, disproved.how), wrong_where_ = disproved.how.where;
      throw OwnIsWrong{};
    }
    std::vector<Entrant> others = std::exchange(all_, {});
    for (Entrant& e : others) {
      if (e.measured.entry == disproved.entry) dropped_.push_back(wrong(e.measured, disproved.how));
      else keep(std::move(e));
    }
  }

  static Measurement wrong(Measurement m, const Sample::Difference& how) {
    m.sound = false, m.us = 1e30, m.error = how.error;
    m.note = fmt::format("its result differs by {:.3g} times what is allowed: {}", how.error, how.where);
    return m;
  }

  void keep(Entrant e) {
    if (e.executable && check(e)) all_.push_back(std::move(e));
    else dropped_.push_back(std::move(e.measured));
  }

  bool add_own() {
    Entrant own;
    own.executable = step_.executable;
    own.measured.entry = step_.configuration.empty() ? step_.impl : step_.impl + (":" + step_.configuration);
    own.measured.own = !step_.measured;
    tried_.insert(own.measured.entry);
    if (trial_.check(own)) {
      all_.push_back(std::move(own));
      in_ = 1;
      return true;
    }
    if (trial_.knows_right() && own.measured.error > 1)
      wrong_own_ = own.measured, wrong_where_ = trial_.where();  // it ran
    return false;
  }

  // The fastest of the right ones, however slow.
  std::optional<Replacement> instead_of_own(size_t k) {
    report_wrong(*wrong_own_, wrong_where_, key_, !all_.empty());
    const auto best =
        std::min_element(all_.begin(), all_.begin() + static_cast<ptrdiff_t>(in_),
                         [](const Entrant& a, const Entrant& b) { return a.measured.us < b.measured.us; });
    if (best == all_.end()) return std::nullopt;
    ++g_stats.changed;
    return Replacement{k, best->candidate, best->executable};
  }

  // Candidates that fail or compute something else are only noted.
  void add(const Candidate& c) {
    Entrant e;
    e.candidate = c;
    e.measured.entry = c.name();
    tried_.insert(e.measured.entry);
    if (!wrong_own_) looked_at_.push_back(c);
    choices_.begin(here_, op_, key_, e.measured.entry);
    try {
      e.executable = c.make(problem_);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Device) throw;
      e.measured.sound = false, e.measured.us = 1e30, e.measured.note = error.what();
    }
    keep(std::move(e));
  }

  // Successive halving among the first `in` entrants: those that stay in the race are at the front, the step's own first. Those that
  // leave keep what was measured. Sets in_, the number of those that are left.
  void race(size_t in) {
    for (const Stage& stage : kStages) {
      // Those that were checked are timed, whatever the budget: else the checks were in vain.
      if (in < 2 || (&stage != kStages && !budget_.left())) break;
      for (size_t i = 0; i < in; ++i) all_[i].us.clear();
      for (int run = 0; run < stage.runs; run += 2)  // in turns, so that a change of the clock rate meets all of them
        for (size_t i = 0; i < in; ++i) trial_.run(all_[i], 2);
      for (size_t i = 0; i < in; ++i) summarize(all_[i]);
      std::sort(all_.begin() + 1, all_.begin() + static_cast<ptrdiff_t>(in),
                [](const Entrant& a, const Entrant& b) { return a.measured.us < b.measured.us; });
      const double limit = stage.keeps * std::min(all_[0].measured.us, all_[1].measured.us);
      while (in > 1 && all_[in - 1].measured.us > limit) --in;
    }
    if (in > 1 && trial_.has_caches_to_flush()) measure_warm(trial_, all_, in);
    in_ = in;
  }

  // The next candidates, beside the step's own entrant and the best one so far, until next() has none or they are enough at once.
  template <class Next>
  void try_group(Next next) {
    const size_t before = all_.size();
    while (all_.size() - before < kAtOnce) {
      const std::optional<Candidate> c = next();
      if (!c) break;
      add(*c);
    }
    choices_.passed();
    race_with_best(before);
    store();
    all_.erase(all_.begin() + static_cast<ptrdiff_t>(in_), all_.end());
  }

  // Each of them, some at a time. So those at the front have times when the budget ends, and are in the file if a later one ends the process.
  void try_all(std::span<const Candidate> candidates) {
    const auto next = [&]() -> std::optional<Candidate> {
      if (candidates.empty() || !budget_.left()) return std::nullopt;
      Candidate c = candidates.front();
      candidates = candidates.subspan(1);
      return c;
    };
    while (!candidates.empty() && budget_.left()) try_group(next);
  }

  // An implementation's enumeration, and how far searches have come.
  struct Opened {
    const Impl* impl;
    std::unique_ptr<Enumeration> all;
    Enumerated so_far;
  };
  std::vector<Opened> open_enumerations() {
    const std::vector<Enumerated> known = choices_.enumerated(here_, op_, key_);
    std::vector<Opened> opened;
    for (const Impl* impl : step_.enumerating) {
      opened.push_back({impl, impl->configurations->enumerate(problem_), Enumerated{impl->name}});
      Opened& o = opened.back();
      for (const Enumerated& e : known)
        if (e.impl == impl->name) o.so_far = e;
      o.so_far.size = o.all ? o.all->size() : 0;
    }
    return opened;
  }

  // The next candidate behind the place that was looked at last. None: there is none until `end`, or the time is over.
  std::optional<Candidate> next_of(Opened& o, uint64_t end, uint64_t most, double most_ms) {
    Enumerated& e = o.so_far;
    while (e.looked < std::min(end, e.size) && e.tried < most && budget_.left(most_ms)) {
      std::optional<std::string> name = o.all->at(e.looked++);
      if (!name) continue;
      ++e.tried;
      Candidate c{o.impl, std::move(*name)};
      if (!tried_.contains(c.name())) return c;
    }
    return std::nullopt;
  }

  // Tries some of an enumeration, up to `most` candidates in all searches together. false: there is nothing more to try.
  bool go_on(Opened& o, uint64_t most, double most_ms) {
    const uint64_t from = o.so_far.looked;
    try_group([&] { return next_of(o, from + kPlacesAtOnce, most, most_ms); });
    choices_.store_enumerated(here_, op_, key_, o.so_far);
    return o.so_far.looked > from;
  }

  // The usual number of each, and then all of them in turns, as far as the time allows.
  void try_enumerations() {
    std::vector<Opened> opened = open_enumerations();
    const double usual_ms = budget_.share(kShareOfUsual);
    const double more_ms = tunes_all_algorithms() ? tune_budget_ms() : budget_.share(kShareOfMore);
    for (Opened& o : opened)
      while (go_on(o, kUsual, usual_ms)) {
      }
    for (bool some = true; some;) {
      some = false;
      for (Opened& o : opened) some |= go_on(o, UINT64_MAX, more_ms);
    }
    count(opened);
  }

  static void count(const std::vector<Opened>& opened) {
    for (const Opened& o : opened) g_stats.not_looked_at += o.so_far.size - o.so_far.looked;
  }

  // All of them at once, where the step's own entrant is wrong. Those that were looked at before that was known are looked at again, whatever
  // the budget, because they were compared with the wrong result. Some of them may be in the file as right ones.
  void try_instead() {
    std::set<std::string> again;
    for (const Candidate& c : looked_at_)
      if (again.insert(c.name()).second) add(c);
    for (const Candidate& c : step_.others) {
      if (!budget_.left()) break;
      if (!again.contains(c.name())) add(c);
    }
    std::vector<Opened> opened = open_enumerations();
    for (Opened& o : opened) {
      while (const auto c = next_of(o, UINT64_MAX, kUsual, tune_budget_ms())) add(*c);
      choices_.store_enumerated(here_, op_, key_, o.so_far);
    }
    count(opened);
    if (all_.size() == 1) trial_.run(all_[0], 2), summarize(all_[0]);
    race(all_.size());
  }

  // The step's own entrant is the first one; the fastest other one comes behind it, if it is faster.
  size_t best() const { return in_ > 1 && all_[1].measured.us < all_[0].measured.us ? 1 : 0; }

  // A race of those that were added behind `before`. Entrants that were nearly as fast as the best leave the race.
  void race_with_best(size_t before) {
    const size_t kept = best() + 1, added = all_.size() - before;
    if (added == 0) return;
    const auto at = [&](size_t i) { return all_.begin() + static_cast<ptrdiff_t>(i); };
    std::rotate(at(kept), at(before), all_.end());
    race(kept + added);
  }

  // The second stage: what differs in one part from the fastest entrant is measured beside it, until none of them is faster (coordinate
  // descent). Entrants that were nearly as fast leave the race.
  void look_around() {
    constexpr int kMostRounds = 4;
    for (int round = 0; round < kMostRounds && budget_.left(); ++round) {
      const size_t before = all_.size();
      const std::string fastest = all_[best()].measured.entry;
      for (const Candidate& c : neighbours(backend_, problem_, fastest))
        if (budget_.left() && !tried_.contains(c.name())) add(c), ++g_stats.neighbours;
      if (all_.size() == before) return;
      race_with_best(before);
      if (all_[best()].measured.entry == fastest) return;
    }
  }

  void store() {
    std::vector<Measurement> results = std::exchange(dropped_, {});
    if (wrong_own_) results.push_back(*wrong_own_);
    for (const Entrant& e : all_)
      if (!e.us.empty()) results.push_back(e.measured);
    choices_.store(here_, op_, key_, results);
  }

  const Step& step_;
  const Backend& backend_;
  const Problem problem_;
  const std::string op_, key_;
  const Environment& here_;
  Choices& choices_;
  Spending budget_;  // what the oracle takes, too
  Trial trial_;
  std::vector<Entrant> all_;
  size_t in_ = 0;
  std::set<std::string> tried_;
  std::vector<Measurement> dropped_;
  std::vector<Candidate> looked_at_;      // while the own entrant was expected to be right
  std::optional<Measurement> wrong_own_;  // by the oracle or the sample
  std::string wrong_where_;               // what the sample says of it
};

bool has_candidates(const Step& s) { return !s.others.empty() || !s.enumerating.empty(); }

}  // namespace

bool worth_choosing(const Program& p) {
  if (tune_budget_ms() == 0 || g_stats.spent_ms >= tune_budget_ms()) return false;
  return std::any_of(p.steps.begin(), p.steps.end(), has_candidates);
}

std::optional<Replacement> time_entries(const Frame& f, size_t k) {
  const Step& step = f.program.steps[k];
  if (!has_candidates(step) || !step.executable || g_stats.spent_ms >= tune_budget_ms()) return std::nullopt;
  if (works_in_place(f, step)) return std::nullopt;  // it cannot run twice
  try {
    return Search(f, k).run(k);
  } catch (const std::bad_alloc&) {  // the step itself may have the memory
    Choices::in(choices_file()).passed();
    return std::nullopt;
  }
}

ChoiceStats choice_stats() { return g_stats; }

void count_candidates_as_milliseconds(bool on) { g_counts = on; }

}  // namespace pyflame
