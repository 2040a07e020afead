// Draws the map of a machine. The GPUs stand on a ring, in the order of their NUMA nodes. Each NUMA node is an arc around the GPUs that are
// connected to it. The spoke between a GPU and its arc is the PCIe link; the chords inside the ring are the links between GPUs. One layout
// serves 2 to 64 GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "tools/view/svg.h"

namespace pyflame::tools::view {
namespace {

struct Point {
  double x, y;
};

// The positions. Angles are in radians; 0 is to the right, and they grow clockwise.
struct Layout {
  double ring, arc;  // radii of the GPUs' middles and of the NUMA arcs
  Point middle;
  double width, height;  // of a GPU's box
  std::vector<double> angle;
  Point on(double radius, double a) const { return {middle.x + radius * std::cos(a), middle.y + radius * std::sin(a)}; }
};

constexpr double kPi = std::numbers::pi;

Layout place(const Topology& t, const std::vector<size_t>& order) {
  const auto n = static_cast<double>(t.gpus.size());
  Layout l;
  l.width = t.gpus.size() > 16 ? 62 : 100;
  l.height = t.gpus.size() > 16 ? 24 : 52;
  l.ring = t.gpus.size() <= 2 ? 112 : std::max(116.0, n * (t.gpus.size() > 16 ? 12.5 : 20.5) + 30);
  l.arc = l.ring + (t.gpus.size() <= 2 ? 84 : 104);
  l.middle = {l.arc + 96, l.arc + 44};
  l.angle.resize(t.gpus.size());
  // GPUs are placed counter-clockwise from the top, so the first half is on the left and is read downwards.
  for (size_t i = 0; i < order.size(); ++i) l.angle[order[i]] = -kPi / 2 - (static_cast<double>(i) + 0.5) * 2 * kPi / n;
  return l;
}

std::string arc_path(const Layout& l, double from, double to) {
  const Point a = l.on(l.arc, from), b = l.on(l.arc, to);
  return fmt::format("M{} {}A{} {} 0 {} 1 {} {}", px(a.x), px(a.y), px(l.arc), px(l.arc), to - from > kPi ? 1 : 0,
                     px(b.x), px(b.y));
}

Html put_text(double x, double y, std::string_view look, std::string_view untrusted,
              std::string_view anchor = "middle") {
  return tag("text", {{"x", px(x)}, {"y", px(y)}, {"class", std::string(look)}, {"text-anchor", std::string(anchor)}},
             text(untrusted, 40));
}

Html numa_arcs(const Topology& t, const Layout& l, const std::vector<size_t>& order) {
  Html out;
  const double half = kPi / static_cast<double>(order.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    const int numa = t.gpus[order[i]].numa;
    while (end < order.size() && t.gpus[order[end]].numa == numa) ++end;
    const double from = l.angle[order[end - 1]] - half + 0.03, to = l.angle[order[i]] + half - 0.03;
    out += tag("path", {{"class", "numa"}, {"d", arc_path(l, from, std::min(to, from + 2 * kPi - 0.06))}});
    // The name stands outside of the arc's middle. If there is only one arc, its name stands at the top.
    const double a = end - i == order.size() ? -kPi / 2 : (from + to) / 2;
    const Point p = l.on(l.arc + 16, a);
    const std::string_view anchor = std::cos(a) > 0.3 ? "start" : std::cos(a) < -0.3 ? "end" : "middle";
    out += put_text(p.x,
                    p.y + (std::sin(a) > 0.3    ? 10
                           : std::sin(a) < -0.3 ? -2
                                                : 4),
                    "numa-name", numa < 0 ? std::string("NUMA unknown") : fmt::format("NUMA {}", numa), anchor);
    i = end;
  }
  return out;
}

Html chords(const Topology& t, const Layout& l) {
  double fastest = 0;
  for (const auto& link : t.links) fastest = std::max(fastest, std::isfinite(link.gb_s) ? link.gb_s : 0);
  Html out;
  for (const auto& link : t.links) {
    if (link.from >= t.gpus.size() || link.to >= t.gpus.size() || link.from == link.to) continue;
    const Point a = l.on(l.ring, l.angle[link.from]), b = l.on(l.ring, l.angle[link.to]);
    const double width = !link.direct ? 1.2 : fastest > 0 && link.gb_s > 0 ? 1.2 + 2.2 * link.gb_s / fastest : 1.8;
    // The line is bent towards the middle, so that neighbours' links do not hide behind the boxes.
    const Point bend{(a.x + b.x) / 2 * 0.72 + l.middle.x * 0.28, (a.y + b.y) / 2 * 0.72 + l.middle.y * 0.28};
    out +=
        el("g", "",
           el("title", "", link.title) + tag("path", {{"class", link.direct ? "xgmi" : "peer"},
                                                      {"stroke-width", px(width)},
                                                      {"d", fmt::format("M{} {}Q{} {} {} {}", px(a.x), px(a.y),
                                                                        px(bend.x), px(bend.y), px(b.x), px(b.y))}}));
  }
  return out;
}

Html boxes(const Topology& t, const Layout& l) {
  Html out;
  for (size_t i = 0; i < t.gpus.size(); ++i) {
    const auto& g = t.gpus[i];
    const Point p = l.on(l.ring, l.angle[i]), end = l.on(l.arc, l.angle[i]);
    const std::string slow = g.slow ? " slow" : "";
    Html gpu = el("title", "", text(g.title, 300));
    gpu += tag("line",
               {{"class", "spoke" + slow}, {"x1", px(p.x)}, {"y1", px(p.y)}, {"x2", px(end.x)}, {"y2", px(end.y)}});
    gpu += tag("rect", {{"class", "gpu" + slow},
                        {"x", px(p.x - l.width / 2)},
                        {"y", px(p.y - l.height / 2)},
                        {"width", px(l.width)},
                        {"height", px(l.height)},
                        {"rx", "6"}});
    if (l.height > 40) {
      gpu += put_text(p.x, p.y - 9, "gpu-name", g.name) + put_text(p.x, p.y + 6, "gpu-detail", g.detail) +
             put_text(p.x, p.y + 20, "gpu-detail" + slow, g.link);
    } else {
      gpu += put_text(p.x, p.y + 4, "gpu-name", g.name);
    }
    out += el("g", "", gpu);
  }
  return out;
}

}  // namespace

Html topology(const Topology& t) {
  if (t.gpus.size() < 2 || t.gpus.size() > 64) return {};
  std::vector<size_t> order(t.gpus.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return t.gpus[a].numa < t.gpus[b].numa; });
  const Layout l = place(t, order);
  const double width = 2 * l.middle.x, height = 2 * l.middle.y;
  return tag("svg",
             {{"class", "topology"},
              {"viewBox", fmt::format("0 0 {} {}", px(width), px(height))},
              {"style", fmt::format("max-width:{}px", px(width))},
              {"role", "img"},
              {"aria-label", t.title}},
             numa_arcs(t, l, order) + chords(t, l) + boxes(t, l));
}

}  // namespace pyflame::tools::view
