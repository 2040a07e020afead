#include "pyflame/base/fallbacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "pyflame/base/fork.h"

namespace pyflame {

namespace {

struct Ledger {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<FallbackEntry>> entries;  // by all texts
};
Ledger& ledger() {
  static Ledger* l = new Ledger;  // leaked: programs compute in exit handlers
  return *l;
}

const AtFork g_fallbacks_at_fork{ForkOrder::Fallbacks, [] { ledger().mutex.lock(); },
                                 [](bool) { ledger().mutex.unlock(); }};

}  // namespace

FallbackEntry& note_fallback(const std::string& op, const std::string& device, const std::string& ran_on,
                             const std::string& reason, const std::string& message) {
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  auto& entry = l.entries[fmt::format("{}\n{}\n{}\n{}", op, device, ran_on, reason)];
  if (!entry) {
    entry = std::make_unique<FallbackEntry>(op, device, ran_on, reason);
    fmt::print(stderr, "pyflame: {}; printed once\n", message);
  }
  return *entry;
}

std::vector<Fallback> fallbacks() {
  std::vector<Fallback> all;
  {
    Ledger& l = ledger();
    std::lock_guard lock(l.mutex);
    for (const auto& [texts, entry] : l.entries)
      if (Fallback f = entry->read(); f.times > 0) all.push_back(std::move(f));
  }
  std::stable_sort(all.begin(), all.end(), [](const Fallback& a, const Fallback& b) { return a.seconds > b.seconds; });
  return all;
}

std::vector<Fallback> fallbacks_since(const std::vector<Fallback>& earlier) {
  const auto same = [](const Fallback& a, const Fallback& b) {
    return a.op == b.op && a.device == b.device && a.ran_on == b.ran_on && a.reason == b.reason;
  };
  std::vector<Fallback> all = fallbacks();
  for (Fallback& f : all)
    for (const Fallback& e : earlier)
      if (same(f, e)) f.times -= e.times, f.seconds -= e.seconds;
  std::erase_if(all, [](const Fallback& f) { return f.times == 0; });
  std::stable_sort(all.begin(), all.end(), [](const Fallback& a, const Fallback& b) { return a.seconds > b.seconds; });
  return all;
}

std::string describe_fallback(const Fallback& f) {
  return fmt::format("{} on {} ran on {} {} time{}, for {:.3g} ms ({})", f.op, f.device, f.ran_on, f.times,
                     f.times == 1 ? "" : "s", f.seconds * 1e3, f.reason);
}

std::string describe_fallbacks() {
  std::string out;
  for (const Fallback& f : fallbacks())
    out += fmt::format("  {:>8} times {:>10.3f} s  {} for {} on {}: {}\n", f.times, f.seconds, f.ran_on, f.op, f.device,
                       f.reason);
  return out.empty() ? out : "pyflame: fallbacks (pf.fallbacks()), the most time first:\n" + out;
}

}  // namespace pyflame
