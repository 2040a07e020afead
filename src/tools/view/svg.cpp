#include "tools/view/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/view/text.h"

namespace pyflame::tools::view {
namespace {

constexpr double kLeft = 58, kRight = 18, kTop = 18, kBottom = 46;

Html line(double x1, double y1, double x2, double y2, std::string_view look) {
  return tag("line", {{"class", std::string(look)}, {"x1", px(x1)}, {"y1", px(y1)}, {"x2", px(x2)}, {"y2", px(y2)}});
}

Html label(double x, double y, std::string_view anchor, std::string_view look, std::string_view untrusted) {
  return tag("text", {{"x", px(x)}, {"y", px(y)}, {"text-anchor", std::string(anchor)}, {"class", std::string(look)}},
             text(untrusted, 60));
}

// A number on an axis: 0.1, 25, 4k.
std::string tick_text(double value) {
  if (value != 0 && std::abs(value) < 0.01) return fmt::format("{:g}", value);
  return count(value);
}

// One axis with its range and its place in the picture.
struct Scale {
  const Axis& axis;
  double low, high, from, to;  // data, pixels
  double operator()(double value) const {
    const auto f = [&](double v) { return axis.logarithmic ? std::log10(v) : v; };
    return from + (f(value) - f(low)) / (f(high) - f(low)) * (to - from);
  }
  bool shows(double value) const { return std::isfinite(value) && (!axis.logarithmic || value > 0); }
  std::vector<double> marks() const {
    if (!axis.logarithmic) return ticks(low, high, 6);
    std::vector<double> out;
    const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
    const int stride = std::max(1, (last - first) / 6);
    for (int e = first; e <= last; e += stride) out.push_back(std::pow(10.0, e));
    return out;
  }
};

template <class Of>
std::optional<Scale> scale(const Axis& axis, const Chart& c, double from, double to, Of of) {
  double low = axis.low, high = axis.high;
  const auto see = [&](double v) {
    if (!std::isfinite(v) || std::abs(v) > 1e18 || (axis.logarithmic && v < 1e-12)) return;
    if (!(low <= v) && !std::isfinite(axis.low)) low = v;
    if (!(high >= v) && !std::isfinite(axis.high)) high = v;
  };
  for (const Series& s : c.series)
    for (const auto& p : s.points) see(of(p));
  for (const Mark& m : c.marks) see(of(std::pair{m.x, m.y}));
  if (!std::isfinite(low) || !std::isfinite(high)) return std::nullopt;
  if (axis.logarithmic) {
    if (low <= 0) return std::nullopt;
    low = std::pow(10, std::floor(std::log10(low) + 1e-9));
    high = std::pow(10, std::ceil(std::log10(std::max(high, low * 10)) - 1e-9));
  } else if (high <= low) {
    high = low + 1;
  }
  return Scale{axis, low, high, from, to};
}

Html axes(const Chart& c, const Scale& x, const Scale& y) {
  Html out;
  const double bottom = c.height - kBottom, right = c.width - kRight;
  for (const double v : y.marks()) {
    out += line(kLeft, y(v), right, y(v), "grid");
    out += label(kLeft - 8, y(v) + 4, "end", "tick", tick_text(v));
  }
  for (const double v : x.marks()) {
    out += line(x(v), bottom, x(v), bottom + 4, "axis");
    out += label(x(v), bottom + 18, "middle", "tick", tick_text(v));
  }
  out += line(kLeft, bottom, right, bottom, "axis");
  out += label((kLeft + right) / 2, c.height - 8, "middle", "axis-title", x.axis.title);
  out += tag("text",
             {{"class", "axis-title"},
              {"text-anchor", "middle"},
              {"transform", fmt::format("translate(14 {}) rotate(-90)", px((kTop + bottom) / 2))}},
             text(y.axis.title));
  return out;
}

Html draw(const Series& s, const Scale& x, const Scale& y) {
  std::string path;
  std::optional<std::pair<double, double>> last;
  for (const auto& [vx, vy] : s.points) {
    if (!x.shows(vx) || !y.shows(vy)) continue;
    const double at_x = x(vx), at_y = y(vy);
    if (!last) path += fmt::format("M{} {}", px(at_x), px(at_y));
    else if (s.step) path += fmt::format("H{}V{}", px(at_x), px(at_y));
    else path += fmt::format("L{} {}", px(at_x), px(at_y));
    last = {at_x, at_y};
  }
  if (!last) return {};
  Html out = tag("path", {{"class", "line " + s.look}, {"d", path}});
  if (!s.name.empty()) out += label(last->first - 4, last->second - 6, "end", "tag", s.name);
  return out;
}

Html draw(const Mark& m, const Scale& x, const Scale& y) {
  if (!x.shows(m.x) || !y.shows(m.y)) return {};
  const double at_x = x(m.x), at_y = y(m.y);
  Html out = m.title.empty() ? Html() : el("title", "", text(m.title, 300));
  out += tag("circle",
             {{"cx", px(at_x)}, {"cy", px(at_y)}, {"r", m.inside.empty() ? "5" : "9"}, {"class", "dot " + m.look}});
  if (!m.inside.empty()) out += label(at_x, at_y + 4, "middle", "inside", m.inside);
  if (!m.label.empty()) {
    const bool left = at_x > x.from + 0.7 * (x.to - x.from);
    out += label(at_x + (left ? -11 : 11), at_y - 9, left ? "end" : "start", "tag strong", m.label);
  }
  return el("g", "", out);
}

Html picture(std::string_view title, double width, double height, std::string_view look, const Html& body) {
  return tag("svg",
             {{"class", std::string(look)},
              {"viewBox", fmt::format("0 0 {} {}", px(width), px(height))},
              {"role", "img"},
              {"aria-label", std::string(title)}},
             body);
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  std::vector<double> out;
  if (!(high > low) || !std::isfinite(high - low) || count < 1) return out;
  const double raw = (high - low) / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (step = power * factor; step >= raw * 0.999) break;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= count * 3; ++i) {
    const double value = (first + i) * step;
    if (value > high + step * 1e-9) break;
    out.push_back(value);
  }
  return out;
}

Html chart(const Chart& c) {
  const auto x = scale(c.x, c, kLeft, c.width - kRight, [](const auto& p) { return p.first; });
  const auto y = scale(c.y, c, c.height - kBottom, kTop, [](const auto& p) { return p.second; });
  if (!x || !y) return {};
  Html body = axes(c, *x, *y);
  for (const Series& s : c.series) body += draw(s, *x, *y);
  for (const Mark& m : c.marks) body += draw(m, *x, *y);
  return picture(c.title, c.width, c.height, c.width > 620 ? "chart broad" : "chart", body);
}

Html uprights(const std::string& title, const std::string& x_title, const std::string& y_title, double top,
              const std::vector<Upright>& bars, int picture_width, int picture_height) {
  if (bars.empty() || !(top > 0) || !std::isfinite(top)) return {};
  Chart c;
  c.width = picture_width;
  c.height = picture_height;
  c.x.title = x_title;
  c.y = {y_title, false, 0, top};
  const double bottom = c.height - kBottom, right = c.width - kRight;
  const Scale y{c.y, 0, top, bottom, kTop};
  Html body;
  for (const double v : y.marks()) {
    body += line(kLeft, y(v), right, y(v), "grid");
    body += label(kLeft - 8, y(v) + 4, "end", "tick", tick_text(v));
  }
  const double slot = (right - kLeft) / static_cast<double>(bars.size()), width = std::min(slot * 0.62, 34.0);
  // There is room for about nine labels, so one bar in `every` has a label. Labels close to that of the chosen bar are left out.
  const size_t every = 1 + bars.size() / 9;
  const auto chosen = static_cast<size_t>(
      std::find_if(bars.begin(), bars.end(), [](const Upright& b) { return b.chosen; }) - bars.begin());
  for (size_t i = 0; i < bars.size(); ++i) {
    const Upright& b = bars[i];
    const double middle = kLeft + (static_cast<double>(i) + 0.5) * slot;
    const double height = std::clamp(std::isfinite(b.height) ? b.height : 0, 0.0, top);
    body +=
        el("g", "",
           el("title", "", b.label + ": " + b.value) + tag("rect", {{"class", b.chosen ? "column chosen" : "column"},
                                                                    {"x", px(middle - width / 2)},
                                                                    {"y", px(y(height))},
                                                                    {"width", px(width)},
                                                                    {"height", px(bottom - y(height))},
                                                                    {"rx", "2"}}));
    if (slot >= 22) body += label(middle, y(height) - 5, "middle", b.chosen ? "tag strong" : "tag", b.value);
    if (b.chosen || (i % every == 0 && (chosen == bars.size() || i + every <= chosen || i >= chosen + every)))
      body += label(middle, bottom + 18, "middle", b.chosen ? "tick strong" : "tick", b.label);
  }
  body += line(kLeft, bottom, right, bottom, "axis");
  body += label((kLeft + right) / 2, c.height - 8, "middle", "axis-title", x_title);
  body += tag("text",
              {{"class", "axis-title"},
               {"text-anchor", "middle"},
               {"transform", fmt::format("translate(14 {}) rotate(-90)", px((kTop + bottom) / 2))}},
              text(y_title));
  return picture(title, c.width, c.height, "chart", body);
}

}  // namespace pyflame::tools::view
