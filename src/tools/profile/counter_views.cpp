#include "tools/profile/counter_views.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/view/kit.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;

constexpr size_t kColumns = 6, kHtmlKernels = 200, kHtmlCounters = 2000;

std::string name_in(const json& of, int most = 90) { return view::clean(of["name"].get<std::string>(), most); }

const json& metric_of(const json& kernel, const json& metric) {
  static const json none;
  const auto found = kernel["metrics"].find(metric["id"].get<std::string>());
  return found == kernel["metrics"].end() ? none : *found;
}

// One table of the metrics from `first` on; kernels without any of them are left out.
std::string metric_table(const json& counters, size_t first, const view::Style& s) {
  const json& metrics = counters["metrics"];
  std::vector<std::string> titles = {"kernel"};
  const size_t last = std::min(metrics.size(), first + kColumns);
  for (size_t i = first; i < last; ++i) titles.push_back(">" + metrics[i]["title"].get<std::string>());
  std::vector<std::vector<std::string>> rows;
  for (const json& k : counters["kernels"]) {
    std::vector<std::string> row = {name_in(k)};
    bool any = false;
    for (size_t i = first; i < last; ++i) {
      const json& value = metric_of(k, metrics[i]);
      any = any || !value.is_null();
      row.push_back(metric_text(value, metrics[i]["unit"]));
    }
    if (any) rows.push_back(std::move(row));
  }
  return view::table(s, titles, rows);
}

// What else could be known, and how to get it.
std::string missing_text(const json& counters) {
  if (counters["why_not"].is_string())
    return "Not all metrics could be computed: " + counters["why_not"].get<std::string>() + ".";
  std::string titles, collect;
  for (const json& m : counters["missing"]) {
    titles += (titles.empty() ? "" : ", ") + m["title"].get<std::string>();
    collect += " " + m["collect"].get<std::string>();
  }
  return titles.empty()
             ? ""
             : fmt::format("Not in the file: {}. To collect them: rocprofv3 --pmc{} -- PROGRAM", titles, collect);
}

}  // namespace

std::string metric_text(const json& value, const std::string& unit) {
  if (!value.is_number()) return "-";
  const auto v = value.get<double>();
  return unit == "fraction" ? view::percent(v) : unit == "bytes" ? view::bytes(v) : fmt::format("{:.1f}", v);
}

std::string counters_text(const json& counters, const view::Style& s) {
  if (!counters.is_object()) return "";
  std::string out = "\n" +
                    view::paint(s, view::Tone::bold,
                                fmt::format("Hardware counters, means of a call ({} of {} kernels)",
                                            counters["kernels"].size(), counters["kernel_names"].get<size_t>())) +
                    "\n";
  const json& metrics = counters["metrics"];
  for (size_t first = 0; first < metrics.size(); first += kColumns)
    out += (first > 0 ? "\n" : "") + metric_table(counters, first, s);
  for (const json& m : metrics)
    out += view::wrap(fmt::format("{}: {}", m["title"].get<std::string>(), m["definition"].get<std::string>()), s.width,
                      2) +
           "\n";
  if (const std::string missing = missing_text(counters); !missing.empty())
    out += view::wrap(missing, s.width, 2) + "\n";
  return out + "The counters themselves are in --json and --html.\n";
}

view::Html counters_html(const json& counters) {
  if (!counters.is_object()) return {};
  std::vector<std::string> titles = {"Kernel", ">Calls"};
  for (const json& m : counters["metrics"]) titles.push_back(">" + m["title"].get<std::string>());
  view::Table metrics("Metrics of hardware counters, means of a call", titles);
  view::Table raw("Counters, means of a call", {"Kernel", "Counter", ">Value"});
  for (const json& k : counters["kernels"]) {
    std::vector<view::Cell> row = {view::code_cell(name_in(k), 100),
                                   view::cell(k["calls"].get<double>(), std::to_string(k["calls"].get<int64_t>()))};
    for (const json& m : counters["metrics"]) {
      const json& value = metric_of(k, m);
      row.push_back(value.is_number() ? view::cell(value.get<double>(), metric_text(value, m["unit"]))
                                      : view::cell(""));
    }
    if (metrics.rows() < kHtmlKernels && !counters["metrics"].empty()) metrics.row(row);
    for (const auto& [name, value] : k["counters"].items())
      if (raw.rows() < kHtmlCounters)
        raw.row({view::code_cell(name_in(k), 100), view::code_cell(name),
                 view::cell(value.get<double>(), fmt::format("{:.6g}", value.get<double>()))});
  }
  view::Html out = metrics.html("bars");
  std::vector<std::pair<std::string, view::Html>> meanings;
  for (const json& m : counters["metrics"])
    meanings.emplace_back(m["title"].get<std::string>(), view::text(m["definition"].get<std::string>()));
  if (!meanings.empty()) out += view::pairs(meanings);
  if (const std::string missing = missing_text(counters); !missing.empty()) out += view::note(missing);
  return out + view::fold(view::text("The counters themselves"), raw.html(raw.rows() > 30 ? "tall" : ""));
}

}  // namespace pyflame::tools::profile
