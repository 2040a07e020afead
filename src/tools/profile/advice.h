// Rules over the document of a report: what was found, why it costs time, and what to do about it.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "tools/base/finding.h"

namespace pyflame::tools::profile {

// The values of the document that rules need.
struct Facts {
  const nlohmann::json& d;

  double share(const char* category) const {
    for (const nlohmann::json& c : d["categories"])
      if (c["name"] == category) return c["share"];
    return 0;
  }
  double gap(const char* code, const char* key = "share") const {
    for (const nlohmann::json& g : d["gap_reasons"])
      if (g["code"] == code) return g[key];
    return 0;
  }
  // Whether most of the time of a cause came after a warm-up. Then a later recording would not be without it.
  bool after_warm_up(const char* code) const { return gap(code, "warm") >= 0.5; }
  // In which function or call the CPU was longest during the gaps of one cause; empty if it is not known.
  std::string in(const char* code) const {
    for (const nlohmann::json& g : d["gap_reasons"])
      if (g["code"] == code && !g["in"].empty()) return g["in"][0]["name"];
    return "";
  }
  double signal(const char* name) const {
    return d["signals"][name].is_number() ? d["signals"][name].get<double>() : 0;
  }
  bool flag(const char* name) const { return d["signals"][name].is_boolean() && d["signals"][name].get<bool>(); }
  bool amd() const { return d["device"].is_null() || d["device"]["amd"].get<bool>(); }
  std::string gfx() const {
    return d["device"].is_object() && d["device"]["gfx"].is_string() ? d["device"]["gfx"].get<std::string>() : "";
  }
  bool gfx_is(std::initializer_list<const char*> prefixes) const {
    const std::string g = gfx();
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* p) { return g.starts_with(p); });
  }
  bool device_is(const char* prefix) const {
    return d["device"].is_object() && d["device"]["name"].is_string() &&
           d["device"]["name"].get_ref<const std::string&>().starts_with(prefix);
  }
  double steps() const { return d["time"]["steps"].is_object() ? d["time"]["steps"]["count"].get<double>() : 0; }
  double wall() const { return d["time"]["wall_us"]; }
  bool timeline() const { return d["time"]["timeline"]; }
  bool traced() const { return wall() > 0; }
  // In the trace of one rank, waiting for another one looks like transfer.
  bool one_rank_of_several() const { return d["ranks"].is_null() && (d["format"] == "Kineto trace" || flag("own")); }
};

// What a rule says, and a function that looks for it: it returns what was found, with the values, or an empty text.
struct TraceRule {
  RuleText text;
  std::string (*find)(const Facts&);
  double (*share)(const Facts&) = nullptr;  // of the time that it is about; null: nothing that can be compared
};

std::span<const TraceRule> trace_rules();  // advice_trace.cpp: for all traces but our own
std::span<const TraceRule> rank_rules();   // rank_views.cpp: for several ranks
std::span<const TraceRule> host_rules();   // advice_host.cpp: for operators of the CPU
std::span<const TraceRule> own_rules();    // advice_own.cpp: for traces of pf.profiler

}  // namespace pyflame::tools::profile
