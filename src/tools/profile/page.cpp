// The page of `report`: what limits the speed and what to do, then the details: shares, timeline, kernels against the roofline, gaps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/profile/counter_views.h"
#include "tools/profile/page.h"
#include "tools/view/document.h"
#include "tools/view/finding.h"
#include "tools/view/kit.h"
#include "tools/view/svg.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

using namespace view;

namespace {

constexpr size_t kKernels = 500, kNumbered = 15, kTuned = 2000, kEvents = 40000, kTracks = 32;

std::string time_text(const Json& value, std::string_view path) {
  const double us = num(value, path);
  return std::isfinite(us) ? microseconds(us) : "";
}

Cell time_cell(const Json& value, std::string_view path) { return cell(num(value, path), time_text(value, path)); }

Cell share_cell(const Json& value, std::string_view path) {
  const double share = num(value, path);
  return std::isfinite(share) ? cell(share, percent(share)) : cell("");
}

Cell number_cell(const Json& value, std::string_view path) {
  const double n = num(value, path);
  return std::isfinite(n) ? cell(n, str(value, path)) : cell("");
}

Cell bytes_cell(const Json& value, std::string_view path) {
  const double n = num(value, path);
  return std::isfinite(n) ? cell(n, bytes(n)) : cell("");
}

Cell rate_cell(const Json& value, std::string_view path) {
  const double n = num(value, path);
  return std::isfinite(n) ? cell(n, rate(n * 1e9, "B/s")) : cell("");
}

bool on_host(const Json& doc) { return flag(doc, "signals.on_host"); }

// What the work is called.
std::string unit_of(const Json& doc) {
  return !on_host(doc) ? "kernels" : flag(doc, "signals.operators") ? "operators" : "steps";
}
std::string one_of(const Json& doc) { return unit_of(doc).substr(0, unit_of(doc).size() - 1); }
std::string capital(std::string word) {
  word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

// Rates of the document, which are in TFLOP/s, as they are shown.
struct Rate {
  explicit Rate(const Json& doc) : unit(on_host(doc) ? "GFLOP/s" : "TFLOP/s"), scale(on_host(doc) ? 1000 : 1) {}
  std::string unit;
  double scale;
};

Html categories(const Json& doc) {
  std::vector<Share> shares;
  Table table("Time by kind of work", {"Kind", ">Share of the time", "", ">Time", ">" + capital(unit_of(doc))});
  for (const Json& c : list(doc, "categories")) {
    if (shares.size() == 40) break;
    const std::string name = str(c, "name", "unnamed");
    const double share = num(c, "share");
    const std::string shown = name == "launch-bound" && on_host(doc) ? "between " + unit_of(doc) : name;
    shares.push_back({shown, percent(share), share, color_of(name)});
    table.row({{swatch(color_of(name)) + text(shown)},
               share_cell(c, "share"),
               {meter(share)},
               time_cell(c, "us"),
               number_cell(c, "kernels")});
  }
  if (shares.empty()) return {};
  return el("div", "card", stacked("Time by kind of work", shares)) + table.html("bars short");
}

struct Drawn {
  Timeline picture;
  Json data;  // for the script of the page
};

Drawn timeline_of(const Json& doc) {
  Drawn d;
  const Json& t = object(doc, "timeline");
  std::vector<int> colors;
  const Json& names = list(t, "categories").empty() ? list(doc, "categories") : list(t, "categories");
  for (const Json& c : names) colors.push_back(color_of(str(c, c.is_object() ? "name" : "")));
  double from = HUGE_VAL, to = -HUGE_VAL;
  size_t left = kEvents;
  Json tracks = Json::array();
  const auto limited = [](const Json& v) { return std::clamp(num(v, ""), -1e15, 1e15); };
  for (const Json& track : list(t, "tracks")) {
    if (tracks.size() == kTracks) break;
    Track drawn{str(track, "name"), {}};
    Json events = Json::array();
    for (const Json& e : list(track, "events")) {
      if (!left || !e.is_array() || e.size() < 2 || !std::isfinite(num(e[0], "")) || !std::isfinite(num(e[1], "")))
        continue;
      --left;
      const double start = limited(e[0]), length = std::max(limited(e[1]), 0.0);
      const auto index = static_cast<size_t>(e.size() > 2 ? whole(e[2], "", 0, 1000) : 0);
      const int color = index < colors.size() ? colors[index] : 8;
      drawn.events.push_back({start, length, color});
      events.push_back({start, length, color, e.size() > 3 ? whole(e[3], "", 0, 1 << 30) : 0});
      from = std::min(from, start);
      to = std::max(to, start + length);
    }
    // The script finds events by their start.
    std::stable_sort(events.begin(), events.end(),
                     [](const Json& a, const Json& b) { return a[0].get<double>() < b[0].get<double>(); });
    tracks.push_back({{"name", drawn.name}, {"events", std::move(events)}});
    d.picture.tracks.push_back(std::move(drawn));
  }
  Json steps = Json::array();
  for (const Json& s : list(t, "steps")) {
    const double at = s.is_array() && !s.empty() ? num(s[0], "") : num(s, "");
    if (!std::isfinite(at) || steps.size() == 1000) continue;
    steps.push_back(at);
    d.picture.steps.emplace_back(at, s.is_array() && s.size() > 2 ? "step " + str(s[2], "") : "step");
  }
  if (!(to > from)) return {};
  Json shown = Json::array();
  for (const Json& name : list(t, "names"))
    if (shown.size() < kEvents) shown.push_back(str(name, "").substr(0, 120));
  d.data = {{"tracks", std::move(tracks)},
            {"names", std::move(shown)},
            {"from", from},
            {"to", to},
            {"steps", std::move(steps)}};
  d.picture.title = fmt::format("Timeline of {} streams over {}. The tables have its contents.",
                                d.picture.tracks.size(), microseconds(to - from));
  return d;
}

Html timeline_section(const Json& doc, const Drawn& drawn) {
  const Html picture = timeline(drawn.picture);
  if (picture.empty()) return {};
  Html legend;
  for (const Json& c : list(doc, "categories")) {
    const std::string name = str(c, "name");
    if (name != "idle" && name != "launch-bound") legend += el("li", "", swatch(color_of(name)) + text(name));
  }
  Html out = el("div", "card", el("div", "zoom", picture) + el("ul", "legend", legend));
  if (flag(doc, "timeline.merged"))
    out += note(
        "There are more events than a page can draw. Neighbouring events are shown as one, with the kind that took "
        "most of the "
        "time.");
  return out;
}

struct Roof {
  std::string name;
  double tflops;
};

// Roofs that differ: bf16 usually has the same peak as fp16.
std::vector<Roof> roofs(const Json& peaks) {
  std::vector<Roof> out;
  for (const char* type : {"fp8", "int8", "fp16", "bf16", "fp32", "fp64"}) {
    const double tflops = num(peaks, std::string(type) + "_tflops");
    if (!(tflops > 0) || tflops > 1e9) continue;
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const Roof& r) { return std::abs(r.tflops - tflops) < 0.01 * tflops; });
    if (same != out.end()) same->name += ", " + std::string(type);
    else out.push_back({type, tflops});
  }
  return out;
}

Html roofline(const Json& doc) {
  if (on_host(doc) && !(num(doc, "device.peaks.bandwidth_gbs") > 0)) return {};  // a CPU that was not measured
  const Rate rate_of(doc);
  Chart c;
  c.width = 900;
  c.height = 430;
  double low = HUGE_VAL, high = 0, least = HUGE_VAL;
  size_t index = 0;
  for (const Json& k : list(doc, "kernels")) {
    if (++index > kNumbered) break;
    const double intensity = num(k, "roofline.intensity"), reached = num(k, "roofline.tflops") * rate_of.scale;
    if (!(intensity > 1e-6) || !(reached > 1e-9) || intensity > 1e9 || reached > 1e12) continue;
    low = std::min(low, intensity);
    high = std::max(high, intensity);
    least = std::min(least, reached);
    c.marks.push_back(
        {intensity, reached, "", std::to_string(index),
         fmt::format("{}. {}: {:.3g} FLOP/B, {:.3g} {}", index, str(k, "name"), intensity, reached, rate_of.unit),
         fmt::format("c{}", color_of(str(k, "category")))});
  }
  if (c.marks.empty()) return {};
  const double gbs = num(doc, "device.peaks.bandwidth_gbs"), slope = gbs / 1000 * rate_of.scale;
  low = std::pow(10, std::floor(std::log10(std::min(low, 0.5))));
  high = std::max(high, 1000.0) * 1.5;
  double top = 0;
  for (const Roof& r : roofs(object(doc, "device.peaks"))) {
    const double peak = r.tflops * rate_of.scale;
    Series roof{fmt::format("{} {:.4g} {}", r.name, peak, rate_of.unit), {}, "roof", false};
    if (gbs > 0) {
      roof.points.emplace_back(low, slope * low);
      roof.points.emplace_back(peak / slope, peak);
      high = std::max(high, peak / slope * 3);
    } else {
      roof.points.emplace_back(low, peak);
    }
    top = std::max(top, peak);
    c.series.push_back(std::move(roof));
  }
  high = std::pow(10, std::ceil(std::log10(high)));
  for (Series& s : c.series) s.points.emplace_back(high, s.points.back().second);
  c.x = {"FLOP per byte", true, low, high};
  c.y = {rate_of.unit, true, gbs > 0 ? std::min(least, slope * low) : least / 2,
         top > 0 ? top * 1.5 : std::numeric_limits<double>::quiet_NaN()};
  c.title = fmt::format(
      "Roofline: arithmetic per byte of each {}, and the speed that it reaches. The table of {} has the figures.",
      one_of(doc), unit_of(doc));
  std::string caption = fmt::format(
      "Numbers are ranks in the table below. Left of a roof's corner memory bandwidth limits a {}, right of it "
      "arithmetic does.",
      one_of(doc));
  if (gbs > 0) caption += fmt::format(" The slope is {} of bandwidth.", rate(gbs * 1e9, "B/s"));
  return el("div", "card", el("figure", "roomy", el("figcaption", "", caption) + chart(c)));
}

Html kernels(const Json& doc) {
  const Rate rate_of(doc);
  const Json& all = list(doc, "kernels");
  Table table(capital(unit_of(doc)) + " by time",
              {">#", capital(one_of(doc)), "Kind", ">Share", "", ">Time", ">Calls", ">Mean", ">Max", ">" + rate_of.unit,
               ">GB/s", ">Of its roof", "Bound by"});
  double most = 0;
  for (const Json& k : all)
    if (const double share = num(k, "share"); std::isfinite(share)) most = std::max(most, share);
  size_t sized = 0;
  for (const Json& k : all) {
    if (table.rows() == kKernels) break;
    const std::string kind = str(k, "category");
    const auto figure = [&](const char* path, const char* format) {
      const double n = num(k, path);
      if (!std::isfinite(n)) return cell("");
      ++sized;
      return cell(n, fmt::format(fmt::runtime(format), n));
    };
    const auto gflops = [](const Json& step) {
      const double n = num(step, "roofline.tflops") * 1000;
      return n > 0 ? cell(n, fmt::format("{:.1f}", n)) : cell("");
    };
    table.row({cell(static_cast<double>(table.rows() + 1), std::to_string(table.rows() + 1)),
               {tag("code", {{"title", str(k, "full")}}, text(str(k, "name"), 160))},
               {swatch(color_of(kind)) + text(kind)},
               share_cell(k, "share"),
               {meter(most > 0 ? num(k, "share") / most : 0)},
               time_cell(k, "us"),
               number_cell(k, "calls"),
               time_cell(k, "mean_us"),
               time_cell(k, "max_us"),
               on_host(doc) ? gflops(k) : figure("roofline.tflops", "{:.1f}"),
               figure("roofline.gbs", "{:.0f}"),
               share_cell(k, "roofline.of_peak"),
               cell(str(k, "roofline.bound"))});
  }
  Html out = roofline(doc) + table.html(table.rows() > 30 ? "tall bars" : "bars");
  const double names = num(doc, "kernel_names");
  if (names > static_cast<double>(table.rows()))
    out += note(fmt::format("There are {:.0f} different names of {}. The table has those that took the most time.",
                            names, unit_of(doc)));
  return out;
}

Html gaps(const Json& doc) {
  Table why(on_host(doc) ? "Why nothing ran" : "Why the GPU waited",
            {"Reason", ">Share of the time", ">Time", ">Gaps"});
  for (const Json& r : list(doc, "gap_reasons"))
    if (why.rows() < 50)
      why.row({cell(str(r, "why")), share_cell(r, "share"), time_cell(r, "us"), number_cell(r, "count")});
  Table longest("The longest gaps", {">At", ">Length", "After", "Before", "Why", "The CPU was in"});
  for (const Json& g : list(doc, "gaps"))
    if (longest.rows() < 100)
      longest.row({time_cell(g, "at_us"), time_cell(g, "us"), code_cell(str(g, "before"), 100),
                   code_cell(str(g, "after"), 100), cell(str(g, "why")), code_cell(str(g, "cpu", ""), 100)});
  Html out = why.html();
  if (longest.rows()) out += el("h3", "", "The longest") + longest.html();
  return out;
}

Html transfers(const Json& doc) {
  Table copies("Copies and fills", {"Kind", "Direction", "Host memory", ">Calls", ">Time", ">Bytes", ">Rate"});
  for (const Json& c : list(doc, "copies"))
    if (copies.rows() < 100)
      copies.row({cell(str(c, "kind")), cell(str(c, "direction")), cell(str(c, "host_memory")), number_cell(c, "calls"),
                  time_cell(c, "us"), bytes_cell(c, "bytes"), rate_cell(c, "gbs")});
  Table collectives("Collectives", {"Collective", ">Calls", ">Time", ">Bytes", ">Rate", ">Ranks"});
  for (const Json& c : list(doc, "communication.collectives"))
    if (collectives.rows() < 100)
      collectives.row({cell(str(c, "name")), number_cell(c, "calls"), time_cell(c, "us"), bytes_cell(c, "bytes"),
                       rate_cell(c, "gbs"), number_cell(c, "ranks")});
  Table ranks("Ranks", {">Rank", ">Last to come", ">In collectives", ">Waiting", ">Transfer", ">Others wait for it",
                        ">Other kernels"});
  for (const Json& r : list(doc, "ranks.rows"))
    if (ranks.rows() < 100)
      ranks.row({number_cell(r, "rank"), number_cell(r, "last"), time_cell(r, "total_us"), time_cell(r, "waiting_us"),
                 time_cell(r, "transfer_us"), time_cell(r, "caused_us"), time_cell(r, "compute_us")});
  Html out = copies.html();
  if (ranks.rows()) out += el("h3", "", "Ranks") + ranks.html("spaced");
  if (collectives.rows() || has(doc, "communication.us")) {
    const double exposed = num(doc, "communication.exposed_share");
    out += el("h3", "", "Communication") +
           pairs({{"In all", text(time_text(doc, "communication.us"))},
                  {"During compute", text(time_text(doc, "communication.overlapped_us"))},
                  {"Waited for", text(time_text(doc, "communication.exposed_us") +
                                      (std::isfinite(exposed) ? ", " + percent(exposed) : ""))}}) +
           collectives.html("spaced");
  }
  return out;
}

Html tuned(const Json& doc) {
  const Rate rate_of(doc);
  const Json& all = list(doc, "tuned");
  const bool any_stale = std::any_of(all.begin(), all.end(), [](const Json& t) { return has(t, "stale"); });
  std::vector<std::string> titles = {"Problem", "Choice", ">Time", ">" + rate_of.unit, ">Of its roof", "Line"};
  if (any_stale) titles.push_back("Stale");
  Table table("Tuned problems", titles);
  for (const Json& t : all) {
    if (table.rows() == kTuned) break;
    const Json& roof = at(t, "roofline");
    const double reached = num(t, "tflops") * rate_of.scale;
    table.row({cell(str(t, "problem")), code_cell(str(t, "choice", "not tuned"), 160), time_cell(t, "us"),
               std::isfinite(reached) ? cell(reached, fmt::format("{:.1f}", reached)) : cell(""),
               share_cell(roof, roof.is_object() ? "of_peak" : ""),
               cell(str(t, "file") + (has(t, "line") ? ":" + str(t, "line") : "")),
               has(t, "stale") ? Cell{badge("MED", str(t, "stale"))} : cell("")});
  }
  Html out = table.html(table.rows() > 30 ? "tall" : "");
  if (all.size() > table.rows())
    out += note(fmt::format("{} more problems are in the document that --json prints.", all.size() - table.rows()));
  std::vector<std::pair<std::string, Html>> validators;
  for (const auto& [name, value] : object(doc, "validators").items())
    if (validators.size() < 50) validators.emplace_back(name, text(str(value, ""), 200));
  if (!validators.empty()) out += el("h3", "", "Measured with") + pairs(validators);
  return out;
}

Html problems(const Json& doc) {
  Table table("Problems", {"Where", "What"});
  for (const Json& p : list(doc, "problems"))
    if (table.rows() < 300) table.row({code_cell(str(p, "where")), cell(str(p, "what"))});
  return table.html();
}

Html figures(const Json& doc) {
  const Json& time = object(doc, "time");
  const double wall = num(time, "wall_us");
  const auto share = [&](const char* path) {
    const double us = num(time, path);
    return wall > 0 && std::isfinite(us) ? percent(us / wall) : std::string();
  };
  Html out = stat("wall time", wall > 0 ? microseconds(wall) : "");
  const bool host = on_host(doc);  // a trace of pf.profiler: of the host's steps
  out += stat(host ? "in " + unit_of(doc) : "GPU busy", share("gpu_busy_us"), time_text(time, "gpu_busy_us"));
  out += stat(host ? "between " + unit_of(doc) : "launch-bound", share("launch_bound_us"),
              time_text(time, "launch_bound_us"), num(time, "launch_bound_us") > 0.1 * wall ? "high" : "");
  out += stat(host ? "waiting" : "idle", share("idle_us"), time_text(time, "idle_us"),
              num(time, "idle_us") > 0.1 * wall ? "high" : "");
  if (has(time, "steps.median_us")) {
    const double spread = num(time, "steps.spread");
    out += stat("median step", time_text(time, "steps.median_us"),
                str(time, "steps.count") + " steps" + (std::isfinite(spread) ? ", spread " + percent(spread) : ""));
  }
  if (has(time, "outside.events"))
    out += stat("outside of the steps", time_text(time, "outside.us"),
                str(time, "outside.events") + " " + unit_of(doc) + " and copies");
  if (has(time, "set_up.us")) out += stat("set-up in first runs", time_text(time, "set_up.us"), "not counted");
  if (!list(doc, "tuned").empty()) out += stat("tuned problems", std::to_string(list(doc, "tuned").size()));
  return stats(out);
}

}  // namespace

std::string html_page(const Json& document) {
  Page page;
  page.tool = "report";
  page.title = "PyFlame report: " + str(document, "inputs");
  const bool host = on_host(document);
  page.headline = str(document, "verdict", host ? "Where the time went" : "Where the GPU time went");
  std::string device = str(document, "device.name", str(document, "device.gfx"));
  for (const std::string& part : {str(document, "format"), some(list(document, "inputs"), 3)})
    if (!part.empty()) device += (device.empty() ? "" : " · ") + part;
  page.subline = device;
  page.hero = figures(document);
  const Drawn drawn = timeline_of(document);
  if (!drawn.data.is_null()) page.data = drawn.data.dump(-1, ' ', false, Json::error_handler_t::replace);
  page.sections = {
      {"time", "Where the time went", "", categories(document)},
      {"advice", "What to do", "", finding_cards(list(document, "advice"), 100)},
      {"timeline", "Timeline", "", timeline_section(document, drawn)},
      {"kernels", capital(unit_of(document)), "", kernels(document)},
      {"counters", "Hardware counters", "", counters_html(at(document, "counters"))},
      {"gaps", host ? "Between " + unit_of(document) : "Gaps",
       host ? "The times in which none ran, and what the host did."
            : "The times without a kernel, and what the GPU waited for.",
       gaps(document)},
      {"transfers", "Copies and communication", "", transfers(document)},
      {"tuned", "Tuned problems", "", tuned(document)},
      {"problems", "What could not be read", "", problems(document)},
  };
  return render(page);
}

}  // namespace pyflame::tools::profile
