// Which steps a trace has, which events belong to each, and the time that each takes. An event belongs to the step in
// which the CPU launched it, whenever the device runs it. Annotations decide; where there are none, the repetition of
// kernels does. docs/decisions/0012-what-a-report-says.md has the reasons.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/profile/analyse.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

constexpr int64_t kNever = INT64_MIN;
// A kernel that starts this long after its launch had returned was waiting in the queue.
constexpr int64_t kQueued = 200'000;

// What the name of an annotation tells: whether it is a step. Smaller is surer.
enum class Sureness : uint8_t { named, worded, any, never };

struct Family {
  Sureness sureness = Sureness::never;
  std::vector<Step> ranges;
  double part = 0;  // of the device's work, launched in the ranges
  double length_us() const {
    return std::accumulate(ranges.begin(), ranges.end(), 0.0,
                           [](double sum, const Step& s) { return sum + us(s.cpu_end - s.cpu_start); });
  }
};

// The number in "ProfilerStep#12"; -1 if the name is not that of a step.
int64_t step_number(std::string_view name) {
  constexpr std::string_view prefix = "ProfilerStep#";
  int64_t n = -1;
  if (!name.starts_with(prefix)) return -1;
  return to_int(name.substr(prefix.size()), n) && n >= 0 ? n : -1;
}

// Ranges that frameworks make for parts of a step.
bool is_part_of_step(std::string_view name) {
  for (std::string_view known : {"## ", "nccl:", "gloo:", "Optimizer.", "DistributedDataParallel.",
                                 "FSDP::", "enumerate(DataLoader", "CUDAGraph", "Torch-Compiled Region",
                                 "record_param_comms", "aten::", "autograd::", "capture_", "PyTorch Profiler"})
    if (name.starts_with(known)) return true;
  return name.find("(dynamo_timed)") != std::string_view::npos;
}

bool has_word(std::string_view name, std::string_view word) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const bool begins = at == 0 || !letter(name[at - 1]);
    const bool ends = at + word.size() == name.size() || !letter(name[at + word.size()]);
    if (begins && ends) return true;
  }
  return false;
}

// Ranges with the same key are steps of the same kind.
std::pair<Sureness, std::string> family_of(const std::string& name) {
  if (step_number(name) >= 0) return {Sureness::named, "ProfilerStep"};
  if (name.starts_with("step[")) return {Sureness::named, "step[…]"};
  if (name.starts_with("execute_")) return {Sureness::named, "execute_…"};
  if (name.empty() || is_part_of_step(name)) return {Sureness::never, ""};
  std::string key;  // the name with each number as one #
  for (char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) key += c;
    else if (key.empty() || key.back() != '#') key += '#';
  }
  const std::string small = lower(name);
  for (const char* word : {"step", "iteration", "iter", "batch"})
    if (has_word(small, word)) return {Sureness::worded, key};
  return {Sureness::any, key};
}

int64_t launch_time(const Trace& t, const GpuEvent& e) {
  if (e.call >= 0) return t.calls[static_cast<size_t>(e.call)].start;
  return e.op >= 0 ? t.ops[static_cast<size_t>(e.op)].start : kNever;
}

// The index of the range that contains the time; -1 if there is none. Ranges are in order and do not overlap.
int32_t range_at(const std::vector<Step>& ranges, int64_t time) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), time, [](int64_t at, const Step& s) { return at < s.cpu_start; });
  if (after == ranges.begin()) return -1;
  const auto i = after - ranges.begin() - 1;
  return time < ranges[static_cast<size_t>(i)].cpu_end ? static_cast<int32_t>(i) : -1;
}

// The step of each event, -1 for none. Events whose launch is not in the trace follow the order of their stream: what
// runs before the first event with a known launch was launched before the recording.
std::vector<int32_t> steps_of_events(const Trace& t, const Analysis& a, const std::vector<Step>& steps) {
  std::vector<int32_t> of(a.events.size(), -1);
  std::map<int32_t, int32_t> last;  // by stream
  bool any = false;
  for (size_t k = 0; k < a.events.size(); ++k) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(a.events[k])];
    const int64_t launched = launch_time(t, e);
    const auto before = last.find(e.stream);
    if (launched == kNever) {
      if (before != last.end()) of[k] = before->second;
      continue;
    }
    any = true;
    of[k] = range_at(steps, launched);
    last[e.stream] = of[k];
  }
  if (any) return of;
  for (size_t k = 0; k < a.events.size(); ++k)  // no launches were recorded
    of[k] = range_at(steps, t.gpu[static_cast<size_t>(a.events[k])].start);
  return of;
}

// The ranges of the processes that launched the device's work.
std::map<std::string, Family> find_families(const Trace& t, const Analysis& a) {
  std::set<int32_t> processes;
  for (const int32_t i : a.events) processes.insert(t.gpu[static_cast<size_t>(i)].process);
  std::map<std::string, Family> families;
  for (const CpuOp& op : t.ops) {
    if (!op.annotation || op.end <= op.start || processes.count(op.process) == 0) continue;
    const std::string& name = t.names[op.name];
    const auto [sureness, key] = family_of(name);
    if (sureness == Sureness::never) continue;
    Family& f = families[key];
    f.sureness = sureness;
    const int64_t n = step_number(name);
    Step s;
    s.cpu_start = op.start;
    s.cpu_end = op.end;
    s.number = n >= 0 ? n : static_cast<int64_t>(f.ranges.size());
    // Of nested and simultaneous ranges of one kind, the outer or first one counts.
    if (f.ranges.empty() || op.start >= f.ranges.back().cpu_end) f.ranges.push_back(s);
  }
  return families;
}

// The device's time by when the work was launched, or by when it ran if no launches were recorded.
class Launches {
 public:
  Launches(const Trace& t, const Analysis& a) {
    for (const bool by_launch : {true, false}) {
      for (const int32_t i : a.events) {
        const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
        const int64_t at = by_launch ? launch_time(t, e) : e.start;
        if (at != kNever) work_.emplace_back(at, us(e.end - e.start));
      }
      if (!work_.empty()) break;
    }
    std::sort(work_.begin(), work_.end());
    double sum = 0;
    for (auto& [at, spent] : work_) spent = sum += spent;
  }
  double all() const { return before(INT64_MAX); }
  double within(const std::vector<Step>& ranges) const {
    double sum = 0;
    for (const Step& s : ranges) sum += before(s.cpu_end) - before(s.cpu_start);
    return sum;
  }

 private:
  double before(int64_t time) const {
    const auto after =
        std::lower_bound(work_.begin(), work_.end(), time, [](const auto& w, int64_t at) { return w.first < at; });
    return after == work_.begin() ? 0 : std::prev(after)->second;
  }
  std::vector<std::pair<int64_t, double>> work_;  // when, and the time of all until then
};

// The kind of ranges that are the steps: they contain the launches of most of the device's work.
const std::pair<const std::string, Family>* choose_family(const Trace& t, const Analysis& a,
                                                          std::map<std::string, Family>& families) {
  const Launches launches(t, a);
  const double all = launches.all();
  for (auto& [key, f] : families) f.part = all > 0 ? launches.within(f.ranges) / all : 0;
  const auto fits = [](const Family& f) {
    if (f.sureness == Sureness::named) return f.part >= 0.1;
    return f.part >= 0.5 && (f.sureness == Sureness::worded || f.ranges.size() >= 2);
  };
  const auto better = [](const Family& f, const Family& than) {
    if (f.sureness != than.sureness) return f.sureness < than.sureness;
    // What a step does between two of its parts is of neither.
    const double same = f.sureness == Sureness::any ? 0.02 : 0.1;
    if (std::abs(f.part - than.part) > same) return f.part > than.part;
    // Both contain the same work. Ranges that name steps: the inner ones, if there are several. Others: the outer.
    if (f.ranges.size() != than.ranges.size())
      return (f.ranges.size() > than.ranges.size()) == (f.sureness != Sureness::any);
    return f.length_us() > than.length_us();
  };
  const std::pair<const std::string, Family>* best = nullptr;
  for (const auto& candidate : families)
    if (fits(candidate.second) && (best == nullptr || better(candidate.second, best->second))) best = &candidate;
  return best;
}

// Each step lasts from its start on the CPU, or from the end of what the device had to do before, to the end of its
// last kernel and its last instruction. Steps do not overlap.
void time_steps(const Trace& t, const Analysis& a, const std::vector<int32_t>& of, std::vector<Step>& steps) {
  struct Work {
    int64_t first = INT64_MAX, last = INT64_MIN, before = INT64_MIN;
    bool queued = false;
  };
  std::vector<Work> work(steps.size());
  int64_t ends = INT64_MIN;  // of all events that started earlier
  for (size_t k = 0; k < a.events.size(); ++k) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(a.events[k])];
    if (of[k] >= 0) {
      Work& w = work[static_cast<size_t>(of[k])];
      if (w.first == INT64_MAX) {
        w.first = e.start;
        w.before = ends;
        w.queued = e.call >= 0 && t.calls[static_cast<size_t>(e.call)].end + kQueued < e.start;
      }
      w.last = std::max(w.last, e.end);
    }
    ends = std::max(ends, e.end);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& s = steps[i];
    const Work& w = work[i];
    s.start = s.cpu_start;
    s.end = std::max(s.cpu_end, w.last);
    if (w.first != INT64_MAX) {
      // If the first kernel waited in the queue and the trace does not have what it waited for, nothing is known of
      // the device before.
      if (w.before == INT64_MIN && w.queued) s.start = w.first;
      else if (w.before != INT64_MIN) s.start = std::max(s.start, std::min(w.before, w.first));
    }
    if (i == 0) continue;
    Step& previous = steps[i - 1];
    s.start = std::max(s.start, previous.start);
    s.end = std::max(s.end, s.start);
    previous.end = std::min(previous.end, s.start);
  }
}

// The profiler stops within the last range. If nothing was launched in it, it is no step.
void drop_last_rest(Analysis& a) {
  if (a.steps.size() < 2) return;
  const Step& last = a.steps.back();
  const Step& before = a.steps[a.steps.size() - 2];
  const auto index = static_cast<int32_t>(a.steps.size()) - 1;
  const bool empty = std::find(a.step_of.begin(), a.step_of.end(), index) == a.step_of.end();
  if (empty && (last.cpu_end - last.cpu_start) < (before.cpu_end - before.cpu_start) / 10) a.steps.pop_back();
}

bool annotated_steps(const Trace& t, Analysis& a) {
  std::map<std::string, Family> families = find_families(t, a);
  const auto* chosen = families.empty() ? nullptr : choose_family(t, a, families);
  if (chosen == nullptr) return false;
  a.steps = chosen->second.ranges;
  a.step_name = chosen->first;
  a.step_source = StepSource::annotation;
  a.step_of = steps_of_events(t, a, a.steps);
  drop_last_rest(a);
  time_steps(t, a, a.step_of, a.steps);
  return true;
}

// The sequence of kernels as steps of the given period. A layer repeats too, so two things are asked: whatever lies
// before and after the repetition is part of a step, too, and no step begins within a launch of several kernels.
class Repetition {
 public:
  Repetition(const Trace& t, const Analysis& a) : t_(t) {
    for (int32_t e : a.events)
      if (t.gpu[static_cast<size_t>(e)].kind == GpuKind::kernel) kernels_.push_back(e);
  }
  size_t size() const { return kernels_.size(); }
  const GpuEvent& at(size_t i) const { return t_.gpu[static_cast<size_t>(kernels_[i])]; }

  bool accepts(size_t first, size_t last, size_t period) const {
    if (period < 4 || last - first < 2 * period || 2 * (last - first) < size()) return false;
    size_t same = 0, compared = 0;
    for (size_t i = first; i + period <= last; ++i, ++compared) same += at(i).name == at(i + period).name;
    if (10 * same < 9 * compared) return false;
    std::set<NameId> names;
    for (size_t i = first; i < last; ++i) names.insert(at(i).name);
    for (size_t i = 0; i < first; ++i)
      if (names.count(at(i).name) == 0) return false;
    for (size_t i = std::min(size(), last + period); i < size(); ++i)
      if (names.count(at(i).name) == 0) return false;
    for (size_t i = last; i < std::min(size(), last + period); ++i)
      if (names.count(at(i).name) == 0) return false;
    for (size_t i = first + period; i <= last; i += period)
      if (at(i).call >= 0 && at(i).call == at(i - 1).call) return false;
    return true;
  }

 private:
  const Trace& t_;
  std::vector<int32_t> kernels_;
};

// A step is the distance at which the sequence of names repeats. Candidates are the distances between occurrences of a
// name, beginning with the rarest names.
bool repeated_steps(const Trace& t, Analysis& a) {
  const Repetition r(t, a);
  const size_t n = r.size();
  if (n < 12 || n > 2'000'000) return false;
  std::map<NameId, std::vector<size_t>> where;
  for (size_t i = 0; i < n; ++i) where[r.at(i).name].push_back(i);
  std::vector<const std::vector<size_t>*> candidates;
  for (const auto& [id, at] : where)
    if (at.size() >= 3) candidates.push_back(&at);
  std::stable_sort(candidates.begin(), candidates.end(), [](auto* x, auto* y) { return x->size() < y->size(); });
  for (size_t c = 0; c < std::min<size_t>(candidates.size(), 8); ++c) {
    const std::vector<size_t>& at = *candidates[c];
    const size_t period = at[at.size() / 2] - at[at.size() / 2 - 1], first = at[0], last = at.back();
    if (!r.accepts(first, last, period)) continue;
    std::vector<Step> steps;
    for (size_t i = first; i + period <= n; i += period) {
      Step s;
      s.start = r.at(i).start;
      s.end = i + period < n ? r.at(i + period).start : r.at(n - 1).end;
      s.number = static_cast<int64_t>(steps.size());
      steps.push_back(s);
    }
    if (steps.size() < 3) continue;
    a.steps = std::move(steps);
    a.step_source = StepSource::repetition;
    a.step_of.assign(a.events.size(), -1);
    for (size_t k = 0; k < a.events.size(); ++k) {
      const int64_t start = t.gpu[static_cast<size_t>(a.events[k])].start;
      const auto after =
          std::upper_bound(a.steps.begin(), a.steps.end(), start, [](int64_t x, const Step& s) { return x < s.start; });
      if (after != a.steps.begin() && start < std::prev(after)->end)
        a.step_of[k] = static_cast<int32_t>(after - a.steps.begin() - 1);
    }
    return true;
  }
  return false;
}

void keep_chosen_steps(const Options& options, Analysis& a) {
  if (options.first_step < 0 && options.last_step < 0) return;
  PF_CHECK(!a.steps.empty(), Value,
           "report: --steps: the trace has no steps; expected annotations such as ProfilerStep#N, or a repeated "
           "sequence of kernels");
  const int64_t low = a.steps.front().number, high = a.steps.back().number;
  const int64_t first = std::max<int64_t>(0, options.first_step),
                last = options.last_step < 0 ? INT64_MAX : options.last_step;
  std::vector<int32_t> kept(a.steps.size(), -1);
  std::vector<Step> chosen;
  for (size_t i = 0; i < a.steps.size(); ++i) {
    if (a.steps[i].number < first || a.steps[i].number > last) continue;
    kept[i] = static_cast<int32_t>(chosen.size());
    chosen.push_back(a.steps[i]);
  }
  PF_CHECK(!chosen.empty(), Value, "report: --steps: no such step; expected numbers from {} to {}", low, high);
  a.steps = std::move(chosen);
  for (int32_t& s : a.step_of)
    if (s >= 0) s = kept[static_cast<size_t>(s)];
}

// Divides the events: those of the steps, those of no step, and of the latter those that ran during a step.
void divide_events(const Trace& t, Analysis& a) {
  const bool launches = std::any_of(a.events.begin(), a.events.end(),
                                    [&](int32_t i) { return launch_time(t, t.gpu[static_cast<size_t>(i)]) != kNever; });
  std::vector<int32_t> own;
  for (size_t k = 0; k < a.events.size(); ++k) {
    const int32_t i = a.events[k];
    if (a.step_of[k] >= 0) {
      own.push_back(i);
      continue;
    }
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    a.outside.events += 1;
    a.outside.us += us(e.end - e.start);
    a.outside.before += launches && launch_time(t, e) == kNever;
    a.foreign.push_back(i);
  }
  a.events = std::move(own);
  a.step_of.clear();
}

}  // namespace

void choose_window(const Trace& t, const Options& options, Analysis& a) {
  for (size_t i = 0; i < t.gpu.size(); ++i)
    if (t.gpu[i].device == a.device_id) a.events.push_back(static_cast<int32_t>(i));
  // Where graphs are captured, what runs is not what the program repeats.
  if (!annotated_steps(t, a) && !has_capture(t)) repeated_steps(t, a);
  keep_chosen_steps(options, a);
  if (a.events.empty()) return;
  a.timeline = true;
  if (a.steps.empty()) {
    a.start = t.gpu[static_cast<size_t>(a.events.front())].start;
    for (int32_t e : a.events) a.end = std::max(a.end, t.gpu[static_cast<size_t>(e)].end);
    a.spans.emplace_back(a.start, a.end);
    return;
  }
  divide_events(t, a);
  for (const Step& s : a.steps) {
    if (!a.spans.empty() && a.spans.back().second == s.start) a.spans.back().second = s.end;
    else a.spans.emplace_back(s.start, s.end);
  }
  a.start = a.spans.front().first;
  a.end = a.spans.back().second;
}

}  // namespace pyflame::tools::profile
