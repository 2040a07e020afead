#include "tools/profile/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "pyflame/base/error.h"
#include "tools/profile/counter_views.h"
#include "tools/view/kit.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;

constexpr double kSame = 0.01;  // times that differ by less are called the same

double steps_in(const json& d) {
  const json& steps = d["time"]["steps"];
  return steps.is_object() ? steps["count"].get<double>() : 0;
}

json side_of(const json& d, double parts) {
  const json& steps = d["time"]["steps"];
  return {{"inputs", d["inputs"]},
          {"device", d["device"].is_object() ? d["device"]["name"] : json(nullptr)},
          {"us", d["time"]["wall_us"].get<double>() / parts},
          {"steps", steps_in(d)},
          {"spread", steps.is_object() ? steps["spread"] : json(nullptr)}};
}

struct Sides {
  double before_us = 0, after_us = 0, before_calls = 0, after_calls = 0;
};

void add_side(std::map<std::string, Sides>& all, const json& rows, const char* us, const char* calls, double parts,
              bool is_after) {
  for (const json& row : rows) {
    Sides& s = all[row["name"].get<std::string>()];
    (is_after ? s.after_us : s.before_us) += row[us].get<double>() / parts;
    (is_after ? s.after_calls : s.before_calls) += row[calls].get<double>() / parts;
  }
}

json changes(const std::map<std::string, Sides>& all, size_t top) {
  json out = json::array();
  for (const auto& [name, s] : all)
    out.push_back({{"name", name},
                   {"before_us", s.before_us},
                   {"after_us", s.after_us},
                   {"change_us", s.after_us - s.before_us},
                   {"before_calls", s.before_calls},
                   {"after_calls", s.after_calls}});
  std::stable_sort(out.begin(), out.end(), [](const json& x, const json& y) {
    return std::abs(x["change_us"].get<double>()) > std::abs(y["change_us"].get<double>());
  });
  if (out.size() > top) out.erase(out.begin() + static_cast<std::ptrdiff_t>(top), out.end());
  return out;
}

const json* counted_kernel(const json& d, const json& name) {
  if (!d["counters"].is_object()) return nullptr;
  for (const json& k : d["counters"]["kernels"])
    if (k["name"] == name) return &k;
  return nullptr;
}

// Metrics of kernels that both runs have.
json metric_changes(const json& before, const json& after, size_t top) {
  json out = json::array();
  if (!after["counters"].is_object()) return out;
  for (const json& k : after["counters"]["kernels"]) {
    const json* old = counted_kernel(before, k["name"]);
    if (old == nullptr) continue;
    for (const json& m : after["counters"]["metrics"]) {
      const auto was = (*old)["metrics"].find(m["id"].get<std::string>());
      const auto is = k["metrics"].find(m["id"].get<std::string>());
      if (was == (*old)["metrics"].end() || is == k["metrics"].end() || out.size() >= top) continue;
      out.push_back(
          {{"kernel", k["name"]}, {"title", m["title"]}, {"unit", m["unit"]}, {"before", *was}, {"after", *is}});
    }
  }
  return out;
}

// Ids of advice in the first document and not in the second.
json advice_only_in(const json& a, const json& b) {
  std::set<std::string> others;
  for (const json& f : b["advice"]) others.insert(f["id"]);
  json out = json::array();
  for (const json& f : a["advice"])
    if (others.count(f["id"]) == 0) out.push_back({{"id", f["id"]}, {"title", f["title"]}});
  return out;
}

std::string verdict_of(const json& c) {
  const double before = c["before"]["us"], after = c["after"]["us"], change = after - before;
  const std::string per = c["per"] == "step" ? " a step" : "";
  const std::string times =
      fmt::format("{} before, {} after{}", view::microseconds(before), view::microseconds(after), per);
  double spread = kSame;
  for (const char* side : {"before", "after"})
    if (c[side]["spread"].is_number()) spread = std::max(spread, c[side]["spread"].get<double>());
  if (std::abs(change) < kSame * before) return fmt::format("Both runs take the same time: {}.", times);
  std::string text = change < 0 ? fmt::format("The second run is {:.2f} times as fast: {}", before / after, times)
                                : fmt::format("The second run is {:.2f} times as slow: {}", after / before, times);
  for (const json& row : c["time"]) {
    const double part = row["change_us"];
    if (part / change < 0.3) continue;
    text += fmt::format(", {} because {} takes {} {}", part / change < 0.5 ? "partly" : "mostly",
                        row["name"].get<std::string>(), view::microseconds(std::abs(part)), part < 0 ? "less" : "more");
    break;
  }
  if (std::abs(change) < spread * before) text += "; this is less than the spread of the steps";
  return text + ".";
}

std::string changed_by(const json& row) {
  const double before = row["before_us"], change = row["change_us"];
  const std::string sign = change < 0 ? "-" : "+";
  return sign + view::microseconds(std::abs(change)) +
         (before > 0 ? fmt::format(" ({}{:.0f} %)", sign, std::abs(change) / before * 100) : "");
}

std::vector<std::string> row_of(const json& row, bool calls) {
  std::vector<std::string> out = {view::clean(row["name"].get<std::string>(), 90),
                                  view::microseconds(row["before_us"].get<double>()),
                                  view::microseconds(row["after_us"].get<double>()), changed_by(row)};
  if (calls)
    out.push_back(fmt::format("{:.4g} -> {:.4g}", row["before_calls"].get<double>(), row["after_calls"].get<double>()));
  return out;
}

std::string advice_line(const char* title, const json& findings) {
  std::string out;
  for (const json& f : findings)
    out += (out.empty() ? fmt::format("{}: ", title) : "; ") + f["title"].get<std::string>();
  return out;
}

view::Html html_rows(const json& rows, const char* caption, const char* what, bool calls) {
  std::vector<std::string> titles = {what, ">Before", ">After", ">Change"};
  if (calls) titles.emplace_back(">Calls");
  view::Table table(caption, titles);
  for (const json& row : rows) {
    std::vector<view::Cell> cells;
    const std::vector<std::string> texts = row_of(row, calls);
    const char* keys[] = {"", "before_us", "after_us", "change_us", "after_calls"};
    for (size_t i = 0; i < texts.size(); ++i)
      cells.push_back(i == 0 ? view::code_cell(texts[0], 100) : view::cell(row[keys[i]].get<double>(), texts[i]));
    table.row(cells);
  }
  return table.html(table.rows() > 30 ? "tall" : "");
}

}  // namespace

json compare_reports(const json& before, const json& after, int top) {
  for (const json* d : {&before, &after})
    PF_CHECK((*d)["time"]["wall_us"].get<double>() > 0, Value,
             "report: diff: the run has no times to compare; got '{}'; expected a trace or statistics of kernels",
             (*d)["inputs"][0].get<std::string>());
  const double old_steps = steps_in(before), new_steps = steps_in(after);
  const bool steps = old_steps > 0 && new_steps > 0;
  const double old_parts = steps ? old_steps : 1, new_parts = steps ? new_steps : 1;
  std::map<std::string, Sides> time, kernels;
  add_side(time, before["categories"], "us", "kernels", old_parts, false);
  add_side(time, after["categories"], "us", "kernels", new_parts, true);
  add_side(kernels, before["kernels"], "us", "calls", old_parts, false);
  add_side(kernels, after["kernels"], "us", "calls", new_parts, true);
  json c = {{"schema", "pyflame.report.diff/1"},
            {"per", steps ? "step" : "run"},
            {"before", side_of(before, old_parts)},
            {"after", side_of(after, new_parts)},
            {"time", changes(time, SIZE_MAX)},
            {"kernels", changes(kernels, static_cast<size_t>(top))},
            {"metrics", metric_changes(before, after, static_cast<size_t>(top) * 4)},
            {"gone", advice_only_in(before, after)},
            {"new", advice_only_in(after, before)}};
  c["verdict"] = verdict_of(c);
  return c;
}

std::string comparison_text(const json& c, const view::Style& s) {
  const auto heading = [&](const char* title) { return "\n" + view::paint(s, view::Tone::bold, title) + "\n"; };
  std::string out = view::paint(s, view::Tone::bold, view::wrap(c["verdict"].get<std::string>(), s.width)) + "\n\n";
  for (const char* side : {"before", "after"})
    out +=
        fmt::format("{:<10} {}{}{}\n", side, view::clean(c[side]["inputs"][0].get<std::string>(), 120),
                    c[side]["device"].is_string() ? ", " + view::clean(c[side]["device"].get<std::string>(), 60) : "",
                    c["per"] == "step" ? fmt::format(", {:.0f} steps", c[side]["steps"].get<double>()) : "");
  const std::string per = c["per"] == "step" ? " of a step" : "";
  std::vector<std::vector<std::string>> rows;
  for (const json& row : c["time"]) rows.push_back(row_of(row, false));
  out += heading(("Time" + per).c_str()) + view::table(s, {"kind", ">before", ">after", ">change"}, rows);
  rows.clear();
  for (const json& row : c["kernels"]) rows.push_back(row_of(row, true));
  out += heading(("Kernels" + per + " that changed most").c_str()) +
         view::table(s, {"kernel", ">before", ">after", ">change", ">calls"}, rows);
  rows.clear();
  for (const json& m : c["metrics"])
    rows.push_back({view::clean(m["kernel"].get<std::string>(), 70), m["title"], metric_text(m["before"], m["unit"]),
                    metric_text(m["after"], m["unit"])});
  if (!rows.empty())
    out += heading("Hardware counters") + view::table(s, {"kernel", "metric", ">before", ">after"}, rows);
  for (const std::string& line : {advice_line("No longer found", c["gone"]), advice_line("Found only after", c["new"])})
    if (!line.empty()) out += "\n" + view::wrap(line, s.width, 2) + "\n";
  return out;
}

std::string comparison_page(const json& c) {
  view::Page page;
  page.tool = "report";
  page.title = "PyFlame report: two runs";
  page.headline = c["verdict"];
  page.subline = c["before"]["inputs"][0].get<std::string>() + " and " + c["after"]["inputs"][0].get<std::string>();
  view::Table metrics("Metrics of hardware counters", {"Kernel", "Metric", ">Before", ">After"});
  for (const json& m : c["metrics"])
    metrics.row({view::code_cell(m["kernel"].get<std::string>(), 100), view::cell(m["title"].get<std::string>()),
                 view::cell(m["before"].get<double>(), metric_text(m["before"], m["unit"])),
                 view::cell(m["after"].get<double>(), metric_text(m["after"], m["unit"]))});
  view::Html advice;
  for (const std::string& line : {advice_line("No longer found", c["gone"]), advice_line("Found only after", c["new"])})
    if (!line.empty()) advice += view::note(line);
  page.sections = {{"time", "Time by kind of work", "", html_rows(c["time"], "Time by kind of work", "Kind", false)},
                   {"kernels", "Kernels that changed most", "", html_rows(c["kernels"], "Kernels", "Kernel", true)},
                   {"counters", "Hardware counters", "", metrics.html()},
                   {"advice", "Advice", "", advice}};
  return view::render(page);
}

}  // namespace pyflame::tools::profile
