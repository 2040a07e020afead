#include "pyflame/compile/force.h"

#include <map>
#include <mutex>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/compile/program.h"
#include "pyflame/ops/ops.h"

namespace pyflame {

namespace {

using Forced = std::map<std::string, std::string, std::less<>>;

void check_op(const std::string& op, const char* who) {
  for (size_t i = 0; i < static_cast<size_t>(kNumOps); ++i)
    if (op == op_name(static_cast<OpId>(i))) return;
  PF_FAIL(Value, "{}: no such op; got '{}'; expected a name that pf.explain prints, such as matmul", who, op);
}

Forced parse_force(const std::string& text) {
  Forced all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t colon = item.find(':');
    PF_CHECK(colon != std::string::npos && colon > 0 && colon + 1 < item.size(), Value,
             "PYFLAME_FORCE: not a valid item; got '{}'; expected op:entry or op:entry:configuration, with semicolons "
             "between items",
             item);
    check_op(item.substr(0, colon), "PYFLAME_FORCE");
    all[item.substr(0, colon)] = item.substr(colon + 1);
    at = end + 1;
  }
  return all;
}

std::mutex g_forced_mutex;
Forced* g_forced = nullptr;
Suggestions g_suggested;  // guarded by the same lock

// The caller holds the lock.
Forced& forced() {
  if (!g_forced) g_forced = new Forced(parse_force(env::force()));
  return *g_forced;
}

}  // namespace

std::optional<ForcedEntry> forced_entry(std::string_view op) {
  std::lock_guard lock(g_forced_mutex);
  const Forced& all = forced();
  const auto at = all.empty() ? all.end() : all.find(op);
  if (at == all.end()) return std::nullopt;
  const size_t colon = at->second.find(':');
  if (colon == std::string::npos) return ForcedEntry{at->second, ""};
  return ForcedEntry{at->second.substr(0, colon), at->second.substr(colon + 1)};
}

std::string force_entry(const std::string& op, const std::string& entry) {
  check_op(op, "force");
  std::string before;
  {
    std::lock_guard lock(g_forced_mutex);
    Forced& all = forced();
    if (const auto at = all.find(op); at != all.end()) before = at->second;
    if (entry.empty()) all.erase(op);
    else all[op] = entry;
  }
  if (before != entry) clear_program_cache();
  return before;
}

void suggest_candidates(Suggestions suggestions) {
  {
    std::lock_guard lock(g_forced_mutex);
    g_suggested = std::move(suggestions);
  }
  clear_program_cache();
}

Suggestions suggested_candidates() {
  std::lock_guard lock(g_forced_mutex);
  return g_suggested;
}

}  // namespace pyflame
