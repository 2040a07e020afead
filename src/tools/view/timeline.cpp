// The static picture of a timeline: it has kColumns columns, however many events there are. The script draws the same events on a canvas
// that can be zoomed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tools/view/svg.h"
#include "tools/view/text.h"

namespace pyflame::tools::view {
namespace {

constexpr int kColumns = 1000, kColors = 12;
constexpr double kTrack = 30, kName = 16, kHead = 22;

struct Span {
  double from, to;
  double column(double t) const { return (t - from) / (to - from) * kColumns; }
};

bool sound(const Track::Event& e) {
  return std::isfinite(e.start) && std::isfinite(e.length) && e.length >= 0 && std::abs(e.start) < 1e16 &&
         e.length < 1e16;
}

Html track_picture(const Track& track, const Span& span, double top) {
  std::vector<std::array<float, kColors>> busy(kColumns);
  for (const auto& e : track.events) {
    if (!sound(e)) continue;
    const double from = std::clamp<double>(span.column(e.start), 0, kColumns);
    const double to = std::clamp<double>(span.column(e.start + e.length), from, kColumns);
    const auto color = static_cast<size_t>(std::clamp(e.color, 0, kColors - 1));
    for (int c = static_cast<int>(from); c < kColumns && c < to; ++c)
      busy[static_cast<size_t>(c)][color] +=
          static_cast<float>(std::min<double>(to, c + 1) - std::max<double>(from, c));
  }
  std::array<std::string, kColors> paths;
  for (int c = 0; c < kColumns;) {
    const auto look = [&](int i) {
      const auto& column = busy[static_cast<size_t>(i)];
      float sum = 0;
      for (const float part : column) sum += part;
      const auto most = static_cast<int>(std::max_element(column.begin(), column.end()) - column.begin());
      // The height is in eighths and rounded up, so that every event shows.
      return std::pair{most, sum <= 0 ? 0 : std::clamp(static_cast<int>(std::ceil(sum * 8 - 0.01F)), 1, 8)};
    };
    const auto [color, eighths] = look(c);
    int end = c + 1;
    while (end < kColumns && look(end) == std::pair{color, eighths}) ++end;
    if (eighths) {
      const double height = (kTrack - 8) * eighths / 8;
      paths[static_cast<size_t>(color)] +=
          fmt::format("M{} {}h{}v-{}h-{}z", c, px(top + kTrack - 8), end - c, px(height), end - c);
    }
    c = end;
  }
  Html out = tag("rect",
                 {{"class", "track"}, {"x", "0"}, {"y", px(top)}, {"width", px(kColumns)}, {"height", px(kTrack - 8)}});
  for (size_t i = 0; i < kColors; ++i)
    if (!paths[i].empty()) out += tag("path", {{"class", fmt::format("c{}", i)}, {"d", paths[i]}});
  return out;
}

}  // namespace

Html timeline(const Timeline& t) {
  Span span{HUGE_VAL, -HUGE_VAL};
  for (const Track& track : t.tracks)
    for (const auto& e : track.events)
      if (sound(e)) span = {std::min(span.from, e.start), std::max(span.to, e.start + e.length)};
  if (!(span.to > span.from)) return {};
  const size_t shown = std::min<size_t>(t.tracks.size(), 16);
  const double height = kHead + static_cast<double>(shown) * (kTrack + kName) + 4;
  Html body;
  for (const double tick : ticks(0, span.to - span.from, 8)) {
    const double x = tick / (span.to - span.from) * kColumns;
    body += tag("line", {{"class", "grid"}, {"x1", px(x)}, {"x2", px(x)}, {"y1", px(kHead - 6)}, {"y2", px(height)}});
    const std::string_view anchor = x < 30 ? "start" : x > kColumns - 30 ? "end" : "middle";
    body += tag("text", {{"class", "tick"}, {"x", px(x)}, {"y", "11"}, {"text-anchor", std::string(anchor)}},
                text(microseconds(tick)));
  }
  for (const auto& [at, name] : t.steps) {
    if (!(at >= span.from && at <= span.to)) continue;
    body += el("g", "",
               el("title", "", text(name, 100)) + tag("line", {{"class", "step"},
                                                               {"x1", px(span.column(at))},
                                                               {"x2", px(span.column(at))},
                                                               {"y1", px(kHead - 6)},
                                                               {"y2", px(height)}}));
  }
  for (size_t i = 0; i < shown; ++i) {
    const double top = kHead + static_cast<double>(i) * (kTrack + kName);
    body += tag("text", {{"class", "track-name"}, {"x", "0"}, {"y", px(top + kName - 5)}}, text(t.tracks[i].name, 120));
    body += track_picture(t.tracks[i], span, top + kName);
  }
  return tag("svg",
             {{"class", "timeline"},
              {"viewBox", fmt::format("0 0 {} {}", kColumns, px(height))},
              {"role", "img"},
              {"aria-label", t.title}},
             body);
}

}  // namespace pyflame::tools::view
