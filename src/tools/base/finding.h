// What doctor, inspect, report and the lint have in common: severities, what a rule says, and findings. An engine has
// only the code that searches: conditions over facts (doctor), functions of a profile (report), searches in machine code
// (inspect), visitors of a syntax tree (lint). view/finding.h writes findings as JSON, text and HTML.
#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/base/text.h"

namespace pyflame::tools {

// Worst first. crit: wrong results or a hang. high: a program stops or loses much of its speed. med: costs speed or
// stability. low: small, or depends on the program. info: worth knowing.
enum class Severity { crit, high, med, low, info };
inline constexpr std::array<std::string_view, 5> kSeverities = {"CRIT", "HIGH", "MED", "LOW", "INFO"};

constexpr std::string_view name_of(Severity s) { return kSeverities[static_cast<size_t>(s)]; }

// "crit" and "CRIT" alike.
inline std::optional<Severity> severity_of(std::string_view name) {
  for (size_t i = 0; i < kSeverities.size(); ++i)
    if (lower(name) == lower(kSeverities[i])) return static_cast<Severity>(i);
  return std::nullopt;
}

// The exit code of a command whose worst finding has this severity.
constexpr int exit_code(Severity worst) {
  return worst == Severity::crit ? 5 : worst == Severity::high ? 4 : worst == Severity::med ? 3 : 0;
}

// A remedy, or a command. If it names AMD's software, it is not given for devices of other vendors; if it asks for Python's stacks, not where they are.
struct Fix {
  std::string text;
  bool amd_only = false, for_stacks = false;
  Fix() = default;
  Fix(const char* t) : text(t) {}             // NOLINT(google-explicit-constructor): a text is a remedy
  Fix(std::string t) : text(std::move(t)) {}  // NOLINT(google-explicit-constructor)
};
inline Fix on_amd(const char* text) {
  Fix fix(text);
  fix.amd_only = true;
  return fix;
}
inline Fix for_stacks(const char* text) {
  Fix fix(text);
  fix.for_stacks = true;
  return fix;
}

// What a rule says, whoever evaluates it.
struct RuleText {
  std::string id;
  Severity severity = Severity::info;
  std::string title = {};       // the finding in a few words
  std::string why = {};         // what it costs, and how that comes about
  std::vector<Fix> fixes = {};  // what to do: sentences
  Fix command = {};             // for a shell; empty if there is none
  std::string source = {};      // who says so: a document, a file of a project, an issue
};

struct Finding {
  std::string id;
  Severity severity = Severity::info;
  std::string title, what, why;
  std::vector<std::string> fixes;
  std::string command, source;
  std::string where;   // a file and its line, or an address
  std::string group;   // findings of one group belong together and stand together
  bool first = false;  // explains why nothing else can work: stands before all others
  double gain = 0;     // without it, the program would be at most so many times as fast; 0: not known
};

// `what` is what was found, with its values. `amd`: the device is AMD's or not known. `stacks`: Python's stacks are known.
inline Finding make_finding(const RuleText& rule, std::string what, bool amd = true, bool stacks = false) {
  const auto given = [&](const Fix& fix) { return (amd || !fix.amd_only) && !(stacks && fix.for_stacks); };
  Finding f;
  f.id = rule.id;
  f.severity = rule.severity;
  f.title = rule.title;
  f.what = std::move(what);
  f.why = rule.why;
  for (const Fix& fix : rule.fixes)
    if (given(fix)) f.fixes.push_back(fix.text);
  if (given(rule.command)) f.command = rule.command.text;
  f.source = rule.source;
  return f;
}

// The worst first; a group stands where its worst member does. Otherwise the order is kept.
template <std::derived_from<Finding> F>
void sort_findings(std::vector<F>& findings) {
  const auto rank = [](const F& f) { return f.first ? -1 : static_cast<int>(f.severity); };
  std::stable_sort(findings.begin(), findings.end(), [&](const F& a, const F& b) { return rank(a) < rank(b); });
  for (auto at = findings.begin(); at != findings.end(); ++at)
    if (!at->group.empty())
      std::stable_partition(at + 1, findings.end(), [group = at->group](const F& f) { return f.group == group; });
}

}  // namespace pyflame::tools
