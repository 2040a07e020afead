// What to do next, by the rules of advice_trace.cpp or advice_own.cpp, and the verdict: the largest share of the time, and the first step
// against it.
#include "tools/profile/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/profile/document.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::percent;

// What stands for a category in a sentence, and what to do about it when no rule has said more.
struct Bound {
  const char* category;
  const char* sentence;
  const char* next;
};
constexpr Bound kBounds[] = {
    {"launch-bound", "The CPU's launches bound it", "fewer and larger kernels: torch.compile, larger batches"},
    {"idle", "The device is idle", "find out what the program waits for (the gaps below)"},
    {"GEMM", "Matrix products bound it", "tune them (TunableOp) and see whether a lower precision will do"},
    {"convolution", "Convolutions bound it", "let MIOpen tune these shapes, and try channels_last"},
    {"attention", "Attention bounds it", "compare the attention kernels that there are for this device"},
    {"normalisation", "Normalisations bound it", "fuse them: torch.compile, or a Triton kernel"},
    {"elementwise", "Elementwise kernels bound it, which means memory bandwidth", "fuse them: torch.compile"},
    {"reduction", "Reductions bound it, which means memory bandwidth", "fuse them: torch.compile"},
    {"memory", "Copies and changes of layout bound it", "avoid casts, copies and transposes"},
    {"communication", "Communication bounds it", "overlap it with compute, and look at the links (pyflame doctor)"},
    {"other", "Kernels of a kind that is not known bound it", "look at the longest of them (pyflame inspect)"},
};

constexpr Bound kOwnBounds[] = {
    {"launch-bound", "Python, recording and the executor bound it", "larger batches, values read less often"},
    {"idle", "Nothing runs most of the time", "find out what the program waits for (between the steps, below)"},
    {"GEMM", "Matrix products bound it", "fewer or smaller ones, or bfloat16 where the machine is faster with it"},
    {"convolution", "Convolutions bound it", "see which entry runs them (pf.explain)"},
    {"attention", "Attention bounds it", "shorter contexts, or causal attention where it will do"},
    {"normalisation", "Normalisations bound it", "see with what they could be fused (pf.explain)"},
    {"elementwise", "Elementwise loops bound it, which means memory bandwidth", "see what splits them (pf.explain)"},
    {"reduction", "Reductions bound it, which means memory bandwidth",
     "see with what they could be fused (pf.explain)"},
    {"memory", "Copies and look-ups bound it", "avoid casts, copies and changes of layout"},
    {"communication", "Communication bounds it", "overlap it with compute"},
    {"other", "Sorts and other rare ops bound it", "look at the longest of them below"},
};

// The host waits, because the device works.
constexpr Bound kLaunchesIdle = {"idle", "The host waits for the device to do its work",
                                 "record with device_times=True to see which kernels take it"};

}  // namespace

std::vector<Finding> make_advice(const json& document) {
  const Facts facts{document};
  std::vector<Finding> found;
  if (!facts.traced()) return found;
  for (const TraceRule& r : facts.flag("own") ? own_rules() : trace_rules())
    if (std::string what = r.find(facts); !what.empty())
      found.push_back(make_finding(r.text, std::move(what), facts.amd()));
  return found;
}

std::string make_verdict(const json& d) {
  const Facts facts{d};
  if (!facts.traced()) {
    if (facts.flag("own")) return "No step ran in this profile.";
    if (facts.flag("has_ops") || facts.flag("has_calls"))
      return "The profile has the CPU's side only, and no work of a device. Next: record with "
             "activities=[ProfilerActivity.CPU, "
             "ProfilerActivity.CUDA] (ROCm too is CUDA there), or with rocprofv3 --sys-trace.";
    return "There is no work of a device in this profile.";
  }
  const Bound* best = nullptr;
  double most = -1;
  const bool own = facts.flag("own");
  for (const Bound& b : own ? kOwnBounds : kBounds) {
    const double share = facts.share(b.category);
    if (share > most) {
      most = share;
      best = &b;
    }
  }
  if (own && best->category == std::string_view("idle") && facts.device_is("launches of")) best = &kLaunchesIdle;
  const std::string of =
      facts.timeline() ? (facts.steps() > 0 ? "of the step" : "of the time") : "of the kernels' time";
  std::string text = fmt::format("{}: {} {}", best->sentence, percent(most), of);
  const double waiting = facts.share("launch-bound") + facts.share("idle");
  const std::string_view name = best->category;
  const bool says_it = best == &kLaunchesIdle;
  if (!says_it && (name == "launch-bound" || name == "idle"))
    text += fmt::format(" ({} in {})", own ? "steps run" : "the device works", percent(std::max(0.0, 1 - waiting)));
  else if (!says_it && waiting >= 0.1)
    text += fmt::format("; in {} {}", percent(waiting), own ? "no step runs" : "the device waits");
  return text + fmt::format(". Next: {}.", best->next);
}

}  // namespace pyflame::tools::profile
