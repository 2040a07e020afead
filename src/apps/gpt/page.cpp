// The page of a training run: what was reached, the curves, where the time of a step goes, the memory, and how to go on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/gpt/page.h"
#include "tools/view/document.h"
#include "tools/view/kit.h"
#include "tools/view/svg.h"
#include "tools/view/text.h"

namespace pyflame::apps::gpt {

using namespace tools::view;

namespace {

constexpr size_t kPoints = 5000, kMarks = 60, kSteps = 200;
constexpr int kTraining = 0, kValidation = 9, kSpeed = 4, kRate = 6;

std::vector<std::pair<double, double>> points(const Json& doc, std::string_view path) {
  std::vector<std::pair<double, double>> out;
  for (const Json& p : list(doc, path)) {
    if (out.size() == kPoints) break;
    if (!p.is_array() || p.size() < 2) continue;
    const double x = num(p[0], ""), y = num(p[1], "");
    if (std::isfinite(x) && std::isfinite(y)) out.emplace_back(x, y);
  }
  return out;
}

Series series(const Json& doc, std::string_view path, int color, const char* more = "") {
  return {"", points(doc, path), fmt::format("c{}{}", color, more), false};
}

// Room above and below, so that no curve runs along the frame.
void give_room(Chart& c) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const Series& s : c.series)
    for (const auto& [x, y] : s.points) low = std::min(low, y), high = std::max(high, y);
  if (!(low <= high)) return;
  const double margin = std::max((high - low) * 0.05, std::abs(high) * 1e-3);
  c.y.low = low - margin;
  c.y.high = high + margin;
}

// The axis begins at zero, so that heights can be compared.
void from_zero(Chart& c) {
  double high = 0;
  for (const Series& s : c.series)
    for (const auto& [x, y] : s.points) high = std::max(high, y);
  c.y.low = 0;
  c.y.high = high > 0 ? high * 1.12 : 1;
}

Html legend(const std::vector<std::pair<int, std::string>>& entries) {
  Html items;
  for (const auto& [color, name] : entries) items += el("li", "", swatch(color) + text(name));
  return el("ul", "legend", items);
}

Html figure(const std::string& caption, const Chart& c) {
  const Html picture = chart(c);
  if (picture.empty()) return {};
  return el("div", "card", el("figure", "", el("figcaption", "", caption) + picture));
}

Html loss(const Json& doc) {
  Chart c;
  c.title = "Training and validation loss over the steps; the last values stand above.";
  c.width = 1100;
  c.height = 400;
  c.x = {"step", false, 0};
  c.y = {"loss (nats per token)"};
  c.series = {series(doc, "curves.loss", kTraining, " thin"), series(doc, "curves.loss_mean", kTraining),
              series(doc, "curves.val_loss", kValidation)};
  give_room(c);
  const std::vector<std::pair<double, double>>& measured = c.series.back().points;
  const auto best = std::min_element(measured.begin(), measured.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  for (auto p = measured.begin(); p != measured.end(); ++p) {
    if (measured.size() > kMarks && p != best) continue;
    c.marks.push_back({p->first, p->second, p == best ? fmt::format("{:.4f}", p->second) : "", "",
                       fmt::format("validation at step {:.0f}: {:.4f}", p->first, p->second),
                       fmt::format("c{}", kValidation)});
  }
  const Html picture = chart(c);
  if (picture.empty()) return {};
  return el("div", "card",
            el("figure", "roomy", picture) +
                legend({{kTraining, "training: each step, and a running mean"}, {kValidation, "validation"}}));
}

Html curves(const Json& doc) {
  Chart speed;
  speed.title = "Tokens per second over the steps.";
  speed.x = {"step", false, 0};
  speed.series = {series(doc, "curves.tokens_per_s", kSpeed)};
  from_zero(speed);
  Chart rate;
  rate.title = "Learning rate over the steps.";
  rate.x = {"step", false, 0};
  rate.series = {series(doc, "curves.lr", kRate)};
  from_zero(rate);
  const Html left = figure("Tokens per second, between two readings of the loss", speed),
             right = figure("Learning rate: warm-up, then a cosine", rate);
  return left.empty() && right.empty() ? Html() : el("div", "two", left + right);
}

std::string lead(const Json& doc) {
  const double count = num(doc, "profile.count"), wall = num(doc, "profile.wall_us");
  if (!(count > 0) || !(wall > 0)) return "";
  return fmt::format(
      "Of {:.0f} training steps that were recorded, {} each. trace.json has every event: pyflame report trace.json, "
      "or ui.perfetto.dev.",
      count, microseconds(wall / count));
}

Html time(const Json& doc) {
  std::vector<Share> shares;
  Table kinds("Time by kind of work", {"Kind", ">Share of the time", "", ">A training step"});
  for (const Json& c : list(doc, "profile.categories")) {
    if (shares.size() == 20) break;
    const std::string name = str(c, "name");
    const double share = num(c, "share"), us = num(c, "us");
    if (!std::isfinite(share) || !std::isfinite(us)) continue;
    shares.push_back({name, percent(share), share, color_of(name)});
    kinds.row({{swatch(color_of(name)) + text(name)},
               cell(share, percent(share)),
               {meter(share)},
               cell(us, microseconds(us))});
  }
  if (shares.empty()) return {};
  Table steps("Kernels by time", {"Kernel", "Kind", ">Share", "", ">A training step", ">Calls", ">Mean"});
  double most = 0;
  for (const Json& s : list(doc, "profile.steps"))
    most = std::max(most, std::isfinite(num(s, "share")) ? num(s, "share") : 0);
  for (const Json& s : list(doc, "profile.steps")) {
    if (steps.rows() == kSteps) break;
    const std::string kind = str(s, "kind");
    steps.row({code_cell(str(s, "name"), 120),
               {swatch(color_of(kind)) + text(kind)},
               cell(num(s, "share"), percent(num(s, "share"))),
               {meter(most > 0 ? num(s, "share") / most : 0)},
               cell(num(s, "us"), microseconds(num(s, "us"))),
               cell(num(s, "calls"), fmt::format("{:.4g}", num(s, "calls"))),
               cell(num(s, "mean_us"), microseconds(num(s, "mean_us")))});
  }
  return el("div", "card", stacked("Time by kind of work", shares)) + kinds.html("bars short") +
         el("h3", "", "Kernels that take most") + steps.html(steps.rows() > 30 ? "tall bars" : "bars");
}

Html lines_of(const Json& doc, const char* name) {
  Html lines;
  for (const Json& f : list(doc, name))
    if (f.is_string()) lines += el("li", "", text(f.get<std::string>(), 600));
  return lines.empty() ? Html() : el("ul", "", lines);
}

Html memory(const Json& doc) {
  const double peak = num(doc, "memory.peak_allocated"), process = num(doc, "memory.peak_resident");
  if (!std::isfinite(peak)) return {};
  // A bar that is too short to see is left out.
  const double total = num(doc, "memory.total"), limit = peak > 0.01 * total ? total : NAN;
  Html out = gauge("Tensors at their peak", limit > 0 ? peak / limit : NAN, bytes(peak), "accent");
  if (std::isfinite(num(doc, "memory.allocated")))
    out += gauge("Tensors at the end", limit > 0 ? num(doc, "memory.allocated") / limit : NAN,
                 bytes(num(doc, "memory.allocated")));
  if (std::isfinite(num(doc, "memory.arena")))
    out += gauge("Of that for intermediates of windows", limit > 0 ? num(doc, "memory.arena") / limit : NAN,
                 bytes(num(doc, "memory.arena")));
  if (std::isfinite(process)) out += gauge("Peak of the whole process on the host", NAN, bytes(process));
  if (limit > 0) out += note(fmt::format("A full bar is the {} that the device has.", bytes(limit)));
  Chart device;
  device.title = "Bytes of the device over the steps: in use, and the most since the run began.";
  device.x = {"step", false, 0};
  device.y = {"MiB"};
  device.series = {series(doc, "curves.memory", kTraining), series(doc, "curves.memory_peak", kValidation)};
  from_zero(device);
  Chart host;
  host.title = "Bytes of the process on the host over the steps.";
  host.x = {"step", false, 0};
  host.y = {"MiB"};
  host.series = {series(doc, "curves.memory_host", kSpeed)};
  from_zero(host);
  const Html curves =
      figure("Memory of the device: in use, and its peak", device) + figure("Memory of the process on the host", host);
  return el("div", "grid broad", el("div", "card", out)) + (curves.empty() ? Html() : el("div", "two", curves));
}

Html run(const Json& doc) {
  std::vector<std::pair<std::string, Html>> items;
  for (const Json& pair : list(doc, "run"))
    if (items.size() < 60 && pair.is_array() && pair.size() == 2)
      items.emplace_back(str(pair[0], ""), text(str(pair[1], ""), 300));
  Html out = pairs(items);
  if (has(doc, "resume")) out += el("h3", "", "To continue") + command(str(doc, "resume"));
  return out;
}

Html figures(const Json& doc) {
  const auto number = [&](const char* path, const char* form) {
    const double n = num(doc, path);
    return std::isfinite(n) ? fmt::format(fmt::runtime(form), n) : std::string();
  };
  const std::string best = number("best.val_loss", "{:.4f}");
  Html out = stat("validation loss", number("last.val_loss", "{:.4f}"),
                  best.empty() ? "" : fmt::format("best {} at step {}", best, number("best.step", "{:.0f}")));
  out += stat("training loss", number("last.loss", "{:.4f}"), "mean of the last steps");
  out += stat("steps", number("steps_done", "{:.0f}"), "of " + number("steps", "{:.0f}"));
  const double speed = num(doc, "median_tokens_per_s");
  out += stat("tokens per second", std::isfinite(speed) ? count(speed) : "", "median");
  out += stat("time", str(doc, "duration"), has(doc, "resumed_at") ? "since it was resumed" : "");
  const double peak = num(doc, "memory.peak_allocated");
  out += stat("memory", std::isfinite(peak) ? bytes(peak) : "", "tensors at their peak");
  return stats(out);
}

}  // namespace

std::string html_page(const Json& document) {
  Page page;
  page.tool = "train";
  page.title = "PyFlame training: " + str(document, "name");
  page.headline = str(document, "headline", "A training run");
  page.subline = str(document, "subline");
  const std::string status = str(document, "status");
  page.tone = status == "finished" ? "good" : status == "interrupted" ? "med" : "";
  page.hero = figures(document);
  page.sections = {
      {"warnings", "Warnings", "", lines_of(document, "warnings")},
      {"loss", "Loss", "", loss(document)},
      {"speed", "Speed and learning rate", "", curves(document)},
      {"time", "Where the time went", lead(document), time(document)},
      {"fallbacks", "What ran slower, or elsewhere, than asked", "", lines_of(document, "fallbacks")},
      {"memory", "Memory", "", memory(document)},
      {"run", "The run", "", run(document)},
  };
  return render(page);
}

}  // namespace pyflame::apps::gpt
