// The report for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/profile/counter_views.h"
#include "tools/profile/document.h"
#include "tools/profile/ranks.h"
#include "tools/view/finding.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::Style;
using view::Tone;

constexpr size_t kGapRows = 8, kReasonRows = 8;

std::string text_of(const json& v, int most = 200) {
  return v.is_string() ? view::clean(v.get<std::string>(), most) : "-";
}
std::string time_of(const json& v) { return v.is_number() ? view::microseconds(v.get<double>()) : "-"; }
std::string share_of(const json& v) { return v.is_number() ? view::percent(v.get<double>()) : "-"; }
std::string number_of(const json& v, const char* form = "{:.1f}") {
  return v.is_number() ? fmt::format(fmt::runtime(form), v.get<double>()) : "-";
}

// TFLOP/s of the document in GFLOP/s.
std::string gflops_of(const json& v) { return v.is_number() ? number_of(v.get<double>() * 1000) : "-"; }

// A trace of pf.profiler: its kernels are steps of the host.
// A trace of pf.profiler with the host's times.
bool on_host(const json& d) { return d["signals"].value("on_host", false); }

// What the work of the host is called.
const char* unit_of(const json& d) { return d["signals"].value("operators", false) ? "operators" : "steps"; }

std::string heading(const Style& s, std::string_view title) { return "\n" + view::paint(s, Tone::bold, title) + "\n"; }

std::string shape(const json& d) {
  if (!d.is_array()) return "-";
  std::string out = std::to_string(d[0].get<uint32_t>());
  for (size_t i = 1; i < d.size(); ++i)
    if (d[i] != 1 || (i == 1 && d.size() > 2 && d[2] != 1)) out += "x" + std::to_string(d[i].get<uint32_t>());
  return out;
}

// Whether it would help to name the device. Tuning files may name it themselves, or have no known bytes.
bool device_would_help(const json& d) {
  const json& tuned = d["tuned"];
  return d["time"]["wall_us"] > 0 || tuned.empty() || std::any_of(tuned.begin(), tuned.end(), [](const json& t) {
           return t["roofline"].is_object() && t["roofline"].contains("bytes") && !t["roofline"].contains("of_peak");
         });
}

std::string steps(const json& s) {
  const std::string by = s["name"].is_string()     ? fmt::format("annotated {}", text_of(s["name"], 60))
                         : s["by"] == "annotation" ? "annotated"
                                                   : "found by their repetition";
  const int count = s["count"].get<int>();
  if (count == 1) return fmt::format("1 ({}), {}", by, time_of(s["median_us"]));
  return fmt::format("{} ({}), median {}, spread {}", count, by, time_of(s["median_us"]), share_of(s["spread"]));
}

std::string outside(const json& o) {
  const auto events = o["events"].get<int64_t>(), before = o["before_recording"].get<int64_t>();
  const char* why = before == events ? ", launched before the recording began"
                    : before > 0     ? ", partly launched before the recording began"
                                     : "";
  return fmt::format("{} kernels and copies of no step ({} of work){}: not counted", view::count(events),
                     time_of(o["us"]), why);
}

std::string set_up_text(const json& s) {
  const auto steps = s["steps"].get<int64_t>();
  return fmt::format(
      "{} more in first runs than in later ones, {} {}: done once, not counted", time_of(s["us"]),
      steps == 1 ? "of" : fmt::format("of {} steps, most of it of", view::count(static_cast<double>(steps))),
      text_of(s["longest"], 90));
}

// What the CPU was measured to do at most; empty where it is not known.
std::string ceilings_of(const json& d) {
  const json& device = d["device"];
  if (!on_host(d) || !device.is_object() || !device["peaks"].is_object()) return "";
  const auto measured = device["peaks"].find("measured");
  return measured == device["peaks"].end() ? "" : text_of(*measured, 400);
}

// A text behind a title of `indent` columns.
std::string hanging(const std::string& text, int width, int indent) {
  std::string out = view::wrap(text, width - indent);
  for (size_t at = 0; (at = out.find('\n', at)) != std::string::npos; ++at)
    out.insert(at + 1, static_cast<size_t>(indent), ' ');
  return out;
}

std::string head(const json& d, const Style& s) {
  std::string out =
      view::paint(s, Tone::bold, view::wrap(view::clean(d["verdict"].get<std::string>()), s.width)) + "\n\n";
  const auto line = [&](const char* key, const std::string& value) { out += fmt::format("{:<10} {}\n", key, value); };
  line("input", fmt::format("{}{} ({})", view::clean(d["inputs"][0].get<std::string>(), 120),
                            d["inputs"].size() > 1 ? fmt::format(" and {} more", d["inputs"].size() - 1) : "",
                            text_of(d["format"])));
  const json& device = d["device"];
  if (device.is_object()) {
    std::string value = text_of(device["name"]);
    if (!on_host(d) || device["gfx"].is_string()) value += fmt::format(" ({})", text_of(device["gfx"]));
    if (device["with_work"].size() > 1)
      value += fmt::format(", device {} of {} with work; --device chooses another", device["id"].get<int>(),
                           device["with_work"].size());
    line("device", value);
    if (const std::string measured = ceilings_of(d); !measured.empty())
      line("ceilings", hanging(measured, s.width, 11));
  } else if (d["signals"].value("operators", false)) {
    line("device", "CPU: the trace has operators, and no work of a GPU");
  } else if (!d["signals"].value("own", false) && device_would_help(d)) {
    line("device", "not named in the profile; --gfx or --product names it, for the roofline");
  }
  const json& t = d["time"];
  if (t["timeline"].get<bool>() && on_host(d))
    line("time", fmt::format("{} in all: in {} {}, between them {} ({}), waiting {}", time_of(t["wall_us"]), unit_of(d),
                             time_of(t["gpu_busy_us"]), time_of(t["launch_bound_us"]),
                             unit_of(d)[0] == 'o' ? "Python, dispatch, autograd" : "Python, recording, the executor",
                             time_of(t["idle_us"])));
  else if (t["timeline"].get<bool>())
    line("time", fmt::format("{} in all: the device works in {}, waits for launches in {}, is idle in {}",
                             time_of(t["wall_us"]), time_of(t["gpu_busy_us"]), time_of(t["launch_bound_us"]),
                             time_of(t["idle_us"])));
  else if (t["gpu_busy_us"].get<double>() > 0)
    line("time", fmt::format("{} of kernels; no timeline", time_of(t["gpu_busy_us"])));
  if (t["steps"].is_object()) line("steps", steps(t["steps"]));
  if (t["outside"].is_object()) line("outside", outside(t["outside"]));
  if (t["set_up"].is_object()) line("set-up", set_up_text(t["set_up"]));
  return out;
}

std::string categories(const json& d, const Style& s) {
  std::string out = heading(s, "Where the time goes");
  std::vector<std::vector<std::string>> rows;
  for (const json& c : d["categories"]) {
    const std::string name = c["name"];
    const bool waiting = name == "idle" || name == "launch-bound";
    rows.push_back({on_host(d) && name == "launch-bound" ? fmt::format("between {}", unit_of(d)) : name,
                    share_of(c["share"]),
                    view::paint(s, waiting ? Tone::yellow : Tone::cyan, view::bar(c["share"].get<double>(), 40)),
                    time_of(c["us"]), waiting ? "" : view::count(c["kernels"].get<double>())});
  }
  return out + view::table(s, {"kind", ">share", "", ">time", ">events"}, rows);
}

std::string kernels(const json& d, const Style& s) {
  std::string out = heading(s, fmt::format("{} that take most ({} of {})",
                                           !on_host(d)            ? "Kernels"
                                           : unit_of(d)[0] == 'o' ? "Operators"
                                                                  : "Steps",
                                           d["kernels"].size(), d["kernel_names"].get<size_t>()));
  std::vector<std::vector<std::string>> rows;
  bool roof = false;
  for (const json& k : d["kernels"]) roof = roof || k["roofline"].is_object();
  const bool wide = s.width >= 120 && !on_host(d);  // a narrow terminal is for the names
  const bool shows_roof = roof && (!on_host(d) || !ceilings_of(d).empty());
  for (const json& k : d["kernels"]) {
    const json& r = k["roofline"];
    const bool sized = r.is_object();
    std::vector<std::string> row = {text_of(k["name"], 90), k["category"], share_of(k["share"]),
                                    view::count(k["calls"].get<double>()), time_of(k["mean_us"])};
    if (wide) row.push_back(shape(k["grid"]));
    if (on_host(d)) {
      row.push_back(sized && r["flops"] > 0 ? gflops_of(r["tflops"]) : "");
      row.push_back(sized ? number_of(r["gbs"]) : "");
    } else if (roof) {
      row.push_back(sized ? number_of(r["tflops"]) : "");
      if (wide) row.push_back(sized ? number_of(r["gbs"], "{:.0f}") : "");
    }
    if (shows_roof)
      row.push_back(sized && r["of_peak"].is_number()
                        ? fmt::format("{:.0f} % {}", r["of_peak"].get<double>() * 100, text_of(r["bound"]))
                        : "");
    rows.push_back(std::move(row));
  }
  std::vector<std::string> titles = {!on_host(d)            ? "kernel"
                                     : unit_of(d)[0] == 'o' ? "operator"
                                                            : "step",
                                     "kind", ">share", ">calls", ">mean"};
  if (wide) titles.emplace_back(">grid");
  const std::vector<std::string> rates = on_host(d) ? std::vector<std::string>{">GFLOP/s", ">GB/s"}
                                         : !roof    ? std::vector<std::string>{}
                                         : wide     ? std::vector<std::string>{">TFLOP/s", ">GB/s"}
                                                    : std::vector<std::string>{">TFLOP/s"};
  titles.insert(titles.end(), rates.begin(), rates.end());
  if (shows_roof) titles.emplace_back(">roofline");
  return out + view::table(s, titles, rows);
}

std::string gaps(const json& d, const Style& s) {
  if (d["gap_reasons"].empty()) return "";
  std::string out = heading(s, on_host(d) ? fmt::format("Between the {}", unit_of(d)) : "Why the device waits");
  std::vector<std::vector<std::string>> rows;
  for (const json& g : d["gap_reasons"]) {
    if (rows.size() >= kReasonRows) break;
    rows.push_back({share_of(g["share"]), time_of(g["us"]), view::count(g["count"].get<double>()), text_of(g["why"])});
  }
  out += view::table(s, {">share", ">time", ">gaps", "why"}, rows);
  rows.clear();
  for (const json& g : d["gaps"]) {
    if (rows.size() >= kGapRows) break;
    rows.push_back({time_of(g["at_us"]), time_of(g["us"]), text_of(g["before"], 44), text_of(g["after"], 44),
                    text_of(g["cpu"], 60)});
  }
  return out + "\nThe longest:\n" + view::table(s, {">at", ">length", "after", "before", "the CPU was in"}, rows);
}

std::string copies(const json& d, const Style& s) {
  if (d["copies"].empty()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const json& c : d["copies"])
    rows.push_back({c["kind"] == "fill" ? "fill" : text_of(c["direction"]),
                    c["host_memory"].is_string() ? text_of(c["host_memory"]) : "",
                    view::count(c["calls"].get<double>()), time_of(c["us"]),
                    c["bytes"].is_number() ? view::bytes(c["bytes"].get<double>()) : "-", number_of(c["gbs"])});
  return heading(s, "Copies and fills") +
         view::table(s, {"direction", "host memory", ">calls", ">time", ">bytes", ">GB/s"}, rows);
}

std::string communication(const json& d, const Style& s) {
  const json& c = d["communication"];
  if (!c.is_object()) return "";
  std::string out = heading(s, "Communication");
  out += fmt::format("{} in all, {} of it during compute, {} exposed ({} of the time)\n", time_of(c["us"]),
                     time_of(c["overlapped_us"]), time_of(c["exposed_us"]), share_of(c["exposed_share"]));
  std::vector<std::vector<std::string>> rows;
  for (const json& k : c["collectives"]) {
    if (rows.size() >= kReasonRows) break;
    rows.push_back({text_of(k["name"], 60), view::count(k["calls"].get<double>()), time_of(k["us"]),
                    k["bytes"].is_number() ? view::bytes(k["bytes"].get<double>()) : "-", number_of(k["gbs"]),
                    k["ranks"].is_number() ? std::to_string(k["ranks"].get<int>()) : "-"});
  }
  return out + view::table(s, {"collective", ">calls", ">time", ">bytes", ">GB/s", ">ranks"}, rows);
}

std::string tuned(const json& d, const Style& s) {
  if (d["tuned"].empty() && d["validators"].empty()) return "";
  std::string out = heading(s, fmt::format("Tuned problems ({})", d["tuned"].size()));
  for (const auto& [name, value] : d["validators"].items())
    out += fmt::format("{:<20} {}\n", view::clean(name, 40), text_of(value, 80));
  std::vector<std::vector<std::string>> rows;
  bool stale = false;
  for (const json& t : d["tuned"]) stale = stale || t["stale"].is_string();
  const auto most = d["top"].get<size_t>();
  for (const json& t : d["tuned"]) {
    if (rows.size() >= most) break;
    const json& r = t["roofline"];
    const bool sized = r.is_object() && r.contains("of_peak");
    rows.push_back({text_of(t["problem"], 70), text_of(t["choice"], 50), time_of(t["us"]),
                    on_host(d) ? gflops_of(t["tflops"]) : number_of(t["tflops"]),
                    sized ? fmt::format("{:.0f} % {}", r["of_peak"].get<double>() * 100, text_of(r["bound"])) : ""});
    if (stale) rows.back().push_back(t["stale"].is_string() ? text_of(t["stale"], 60) : "");
  }
  std::vector<std::string> titles = {"problem", "choice", ">time", on_host(d) ? ">GFLOP/s" : ">TFLOP/s", ">roofline"};
  if (stale) titles.emplace_back("stale");
  out += view::table(s, titles, rows);
  if (d["tuned"].size() > most)
    out += fmt::format("and {} more, from which less is to be won (--top, --json)\n", d["tuned"].size() - most);
  return out;
}

std::string advice(const json& d, const Style& s) {
  if (d["advice"].empty()) return "";
  std::string out = heading(s, "What to do");
  for (const json& finding : d["advice"]) out += view::finding_text(finding, s) + "\n";
  return out;
}

std::string problems(const json& d, const Style& s) {
  if (d["problems"].empty()) return "";
  std::string out = heading(s, "What could not be read");
  for (const json& p : d["problems"])
    out += "- " +
           view::wrap(
               fmt::format(
                   "{}{}",
                   p["where"].get<std::string>().empty() ? "" : view::clean(p["where"].get<std::string>(), 200) + ": ",
                   text_of(p["what"], 500)),
               s.width - 2, 2) +
           "\n";
  return out;
}

}  // namespace

std::string to_text(const json& d, const Style& s) {
  std::string out = head(d, s);
  if (d["time"]["wall_us"].get<double>() > 0)
    out += categories(d, s) + kernels(d, s) + gaps(d, s) + copies(d, s) + ranks_text(d, s) + communication(d, s);
  return out + counters_text(d["counters"], s) + tuned(d, s) + advice(d, s) + problems(d, s);
}

}  // namespace pyflame::tools::profile
