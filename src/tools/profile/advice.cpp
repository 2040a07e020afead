// What to do next, by the rules of advice_trace.cpp or advice_own.cpp, and the verdict: the largest share of the time, and the first step
// against it.
#include "tools/profile/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/profile/document.h"
#include "tools/profile/ranks.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::percent;

// The sentence of the verdict for a category, and the first step against it.
struct Bound {
  const char* category;
  const char* sentence;
  const char* next;
  const char* elsewhere = nullptr;  // the first step on devices of other vendors, if it is another one
};
constexpr Bound kBounds[] = {
    {"launch-bound", "The device waits for the CPU's launches",
     "use fewer and larger kernels: torch.compile, larger batches"},
    {"idle", "The device is idle", "find out what the program waits for (see the gaps below)"},
    {"GEMM", "Matrix products take the most time", ""},  // next_for_products
    {"convolution", "Convolutions take the most time", "let MIOpen tune these shapes, and try channels_last",
     "try channels_last, and torch.backends.cudnn.benchmark = True"},
    {"attention", "Attention takes the most time", "compare the attention kernels for this device"},
    {"normalisation", "Normalisations take the most time", "fuse them: torch.compile, or a Triton kernel"},
    {"elementwise", "Elementwise kernels, which memory bandwidth limits, take the most time",
     "fuse them: torch.compile"},
    {"reduction", "Reductions, which memory bandwidth limits, take the most time", "fuse them: torch.compile"},
    {"memory", "Copies and changes of layout take the most time", "avoid casts, copies and transposes"},
    {"communication", "Communication takes the most time",
     "compare the ranks (where one comes late, all others wait in the collective), and overlap it with compute"},
    {"other", "Kernels of an unknown kind take the most time", "inspect the longest of them (pyflame inspect)",
     "see the longest of them below"},
};

constexpr Bound kOwnBounds[] = {
    {"launch-bound", "Python, recording and the executor take the most time",
     "use larger batches and read values less often"},
    {"idle", "No step runs", "find out what the program waits for (see between the steps, below)"},
    {"GEMM", "Matrix products take the most time",
     "use fewer or smaller ones, or bfloat16 if the machine is faster with it"},
    {"convolution", "Convolutions take the most time", "see which implementation runs them (pf.explain)"},
    {"attention", "Attention takes the most time", "use shorter contexts, or causal attention if possible"},
    {"normalisation", "Normalisations take the most time", "see whether they can be fused (pf.explain)"},
    {"elementwise", "Elementwise loops, which memory bandwidth limits, take the most time",
     "see what prevents their fusion (pf.explain)"},
    {"reduction", "Reductions, which memory bandwidth limits, take the most time",
     "see whether they can be fused (pf.explain)"},
    {"memory", "Copies and look-ups take the most time", "avoid casts, copies and changes of layout"},
    {"communication", "Communication takes the most time", "overlap it with compute"},
    {"other", "Sorts and other rare ops take the most time", "see the longest of them below"},
};

constexpr Bound kHostBounds[] = {
    {"launch-bound", "Python, dispatch and autograd take the most time",
     "use larger batches and fewer, larger operators: torch.compile"},
    {"idle", "No operator runs", "find out what the program waits for (see between the operators, below)"},
    {"GEMM", "Matrix products take the most time", "compare numbers of threads, and try bfloat16"},
    {"convolution", "Convolutions take the most time", "try channels_last, and bfloat16"},
    {"attention", "Attention takes the most time", "use scaled_dot_product_attention, and try bfloat16"},
    {"normalisation", "Normalisations take the most time", "fuse them: torch.compile"},
    {"elementwise", "Elementwise operators, which memory bandwidth limits, take the most time",
     "fuse them: torch.compile"},
    {"reduction", "Reductions, which memory bandwidth limits, take the most time", "fuse them: torch.compile"},
    {"memory", "Copies and changes of layout take the most time", "avoid casts, copies and transposes"},
    {"communication", "Communication takes the most time", "overlap it with compute"},
    {"other", "Operators of an unknown kind take the most time", "see the longest of them below"},
};

// What helps in a program of PyFlame, whoever's times they are.
const Bound& own_bound(std::string_view category) {
  return *std::find_if(std::begin(kOwnBounds), std::end(kOwnBounds) - 1,
                       [&](const Bound& b) { return category == b.category; });
}

// What helps depends on who made the products: TunableOp reaches those of rocBLAS and hipBLASLt only.
std::string next_for_products(const Facts& f) {
  const json& products = f.d["signals"]["products"];
  const std::string by = products["by"].is_string() ? products["by"].get<std::string>() : "";
  std::string next = "see which of them are far from the roofline, below";
  if (by == "Triton") next = "autotune these Triton kernels for their sizes";
  else if (f.amd() && by == "TunableOp" && !products["tunable_op"].get<bool>()) next = "tune them (TunableOp)";
  else if (f.amd() && by == "aiter") next = "look for their sizes in aiter's tuned tables";
  return products["few_bits"].get<bool>() ? next : next + ", and try a lower precision";
}

std::string next_step(const Facts& f, const Bound& bound, bool own) {
  const std::string_view name = bound.category;
  if (name == "communication" && f.one_rank_of_several())
    return "overlap it with compute, and give the traces of all ranks, which tell waiting from transfer";
  // Much waiting is a headline of its own, so this is transfer.
  if (name == "communication" && f.d["ranks"].is_object() && f.d["ranks"]["compared"] > 0)
    return "overlap it with compute, and check the links: the ranks wait little for each other";
  if (own) return own_bound(name).next;
  if (name == "launch-bound" && f.flag("python_stacks"))
    return "record again without with_stack=True, which slows the CPU down; if it stays so, use fewer and larger "
           "kernels";
  if (name == "GEMM") return next_for_products(f);
  const bool fused = f.signal("inductor_share") > f.signal("eager_share");
  if (fused && bound.next == std::string_view("fuse them: torch.compile"))
    return "they are compiled already: see which of them take most, below";
  return !f.amd() && bound.elsewhere != nullptr ? bound.elsewhere : bound.next;
}

// The host waits while the device works.
constexpr Bound kLaunchesIdle = {"idle", "The host waits for the device",
                                 "record with ProfilerActivity.CUDA among the activities to see which kernels take it"};

// Why the device is idle, for the verdict. {} stands for the function or call in which the CPU was.
struct IdleReason {
  const char* code;
  const char* because;
  const char* next;
  const char* when_warm = nullptr;  // the next step, where a warm-up had run before
};
constexpr IdleReason kIdleReasons[] = {
    {"data_loading", "the program waits for its data loader{}", "prepare batches in workers, ahead of time"},
    {"host_code", "the CPU runs other code{}",
     "move this code out of the step, or let it run at the same time, in a worker or a thread"},
    {"no_processor", "no processor is free for the program{}", "measure again when no other program runs"},
    {"synchronise", "the CPU waits for the device and only then launches more{}",
     "find out what makes the CPU wait (see the gaps below)"},
    {"copy_to_host", "results are copied to the host and waited for{}", "read values less often"},
    {"allocation", "device memory is allocated or freed{}", "keep shapes constant, so that memory is used again"},
    {"compilation", "code is compiled{}", "record after a warm-up of several steps",
     "find out what is new in these steps, such as shapes: pad them to a few sizes"},
    {"loading", "code is loaded or a launch takes long{}", "record after a warm-up of several steps",
     "find out what is new in these steps, such as kernels for other shapes (see the gaps below)"},
    {"dependency", "kernels in the queue wait{} for another stream or device, or for work that the trace does not have",
     "see what the other streams and devices did (see the gaps below)"},
    {"unseen", "the CPU waits in a call{} while the trace has no work of the device",
     "find out what else the device did then: another process, or work from before the recording"},
};
constexpr double kMuchCapture = 0.3;

const char* nothing_runs(const Facts& f) {
  return !f.flag("on_host") ? "The device is idle" : f.flag("operators") ? "No operator runs" : "No step runs";
}

std::string waiting_text(const Facts& f, const std::string& of) {
  const double idle = f.share("idle"), works = std::max(0.0, 1 - idle - f.share("launch-bound"));
  const IdleReason* reason = nullptr;
  for (const IdleReason& r : kIdleReasons)
    if (f.gap(r.code) > (reason == nullptr ? 0 : f.gap(reason->code))) reason = &r;
  const bool on_host = f.flag("on_host");
  std::string text = fmt::format("{}: {} {} ({} in {})", nothing_runs(f), percent(idle), of,
                                 !on_host              ? "the device works"
                                 : f.flag("operators") ? "operators run"
                                                       : "steps run",
                                 percent(works));
  if (f.gap("unknown") >= 0.5 * idle)
    return fmt::format("{}; the trace does not show what the CPU did then. Next: {}.", text,
                       f.flag("python_stacks") ? "see the gaps below"
                       : f.flag("has_ops")     ? "record once with with_stack=True, which shows the Python functions"
                                               : "record the calls and operators of the CPU, too");
  if (reason == nullptr || f.gap(reason->code) < 0.3 * idle)
    return text + ". Next: find out what the program waits for (see the gaps below).";
  const std::string in = f.in(reason->code);
  return fmt::format("{}, {} because {}. Next: {}.", text, f.gap(reason->code) >= 0.5 * idle ? "mostly" : "partly",
                     fmt::format(fmt::runtime(reason->because), in.empty() ? "" : fmt::format(" ({})", in)),
                     reason->when_warm != nullptr && f.after_warm_up(reason->code) ? reason->when_warm : reason->next);
}

}  // namespace

namespace {

struct Advice {
  Finding finding;
  double share;  // negative: not known
};

// Of equally severe findings whose shares are known, the larger share comes first. All others keep their places.
void order_by_share(std::vector<Advice>& all) {
  for (const Severity severity : {Severity::crit, Severity::high, Severity::med, Severity::low, Severity::info}) {
    std::vector<size_t> places;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].share >= 0 && all[i].finding.severity == severity) places.push_back(i);
    std::vector<Advice> some;
    for (const size_t i : places) some.push_back(std::move(all[i]));
    std::stable_sort(some.begin(), some.end(), [](const Advice& a, const Advice& b) { return a.share > b.share; });
    for (size_t i = 0; i < places.size(); ++i) all[places[i]] = std::move(some[i]);
  }
}

}  // namespace

std::vector<Finding> make_advice(const json& document) {
  const Facts facts{document};
  if (!facts.traced()) return {};
  std::vector<Advice> all;
  for (const auto rules : {facts.flag("own")         ? own_rules()
                           : facts.flag("operators") ? host_rules()
                                                     : trace_rules(),
                           rank_rules()})
    for (const TraceRule& r : rules)
      if (std::string what = r.find(facts); !what.empty())
        all.push_back({make_finding(r.text, std::move(what), facts.amd(), facts.flag("python_stacks")),
                       r.share ? r.share(facts) : -1});
  order_by_share(all);
  std::vector<Finding> found;
  for (Advice& a : all) {
    if (a.share > 0) a.finding.gain = 1 / std::max(1 - a.share, 0.01);
    found.push_back(std::move(a.finding));
  }
  return found;
}

namespace {

std::string verdict(const Facts& facts) {
  if (!facts.traced()) {
    if (facts.flag("own")) return "No step ran in this profile.";
    if (facts.flag("has_ops") || facts.flag("has_calls"))
      return "The profile has events of the CPU only, and no work of a device that this program knows. Next: record "
             "with "
             "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] (ROCm is called CUDA there), or with rocprofv3 "
             "--sys-trace.";
    if (facts.d["counters"].is_object())
      return fmt::format(
          "Hardware counters of {} kernels, without their times. Next: give the files of a kernel trace too "
          "(rocprofv3 --kernel-trace).",
          facts.d["counters"]["kernel_names"].get<size_t>());
    return "This profile has no work of a device.";
  }
  const Bound* best = nullptr;
  double most = -1;
  const bool own = facts.flag("on_host"), operators = facts.flag("operators");
  for (const Bound& b : operators ? std::span<const Bound>(kHostBounds) : own ? kOwnBounds : kBounds) {
    const double share = facts.share(b.category);
    if (share > most) {
      most = share;
      best = &b;
    }
  }
  if (own && best->category == std::string_view("idle") && facts.device_is("launches of")) best = &kLaunchesIdle;
  const std::string of =
      facts.timeline() ? (facts.steps() > 0 ? "of the step" : "of the time") : "of the kernels' time";
  if (facts.gap("capture") >= kMuchCapture)
    return fmt::format(
        "Graphs are captured: {} {}. Captured kernels are recorded and do not run. Next: record again "
        "after the warm-up, when the graphs are replayed.",
        percent(facts.gap("capture")), of);
  if (best != &kLaunchesIdle && best->category == std::string_view("idle")) return waiting_text(facts, of);
  std::string text = fmt::format("{}: {} {}", best->sentence, percent(most), of);
  const double waiting = facts.share("launch-bound") + facts.share("idle");
  const std::string_view name = best->category;
  const bool says_it = best == &kLaunchesIdle;
  if (name == "launch-bound")
    text += fmt::format(" ({} in {})",
                        operators ? "operators run"
                        : own     ? "steps run"
                                  : "the device works",
                        percent(std::max(0.0, 1 - waiting)));
  else if (!says_it && waiting >= 0.1)
    text += fmt::format("; in {} {}", percent(waiting),
                        operators ? "no operator runs"
                        : own     ? "no step runs"
                                  : "the device waits");
  return text +
         fmt::format(". Next: {}.", says_it || operators ? best->next : next_step(facts, *best, facts.flag("own")));
}

}  // namespace

std::string make_verdict(const json& d) {
  const Facts facts{d};
  const char* cut = facts.flag("truncated") ? "The trace is cut off; this is of its first part. " : "";
  const std::string ranks = ranks_verdict(d);
  return cut + (ranks.empty() ? verdict(facts) : ranks);
}

}  // namespace pyflame::tools::profile
