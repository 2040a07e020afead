#include "apps/gpt/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "pyflame/base/error.h"
#include "pyflame/io/atomic_file.h"

namespace pyflame::apps::gpt {

namespace {

std::vector<Metric> read_metrics(const std::string& path, int64_t keep_until) {
  std::vector<Metric> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    // The last line may be torn by a crash; it is from after the checkpoint.
    if (!j.is_object() || !j.value("step", nlohmann::json()).is_number_integer()) continue;
    Metric m;
    m.step = j["step"];
    if (m.step > keep_until) break;
    const auto number = [&](const char* key) {
      return j.contains(key) && j[key].is_number() ? j[key].get<double>() : NAN;
    };
    m.loss = number("loss");
    m.lr = number("lr");
    m.tokens_per_s = number("tokens_per_s");
    if (j.contains("val_loss")) m.val_loss = number("val_loss");
    if (j.contains("memory") && j["memory"].is_object()) m.memory = MemoryUse::from_json(j["memory"]);
    if (j.contains("warnings") && j["warnings"].is_array())
      for (const auto& warning : j["warnings"])
        if (warning.is_string()) m.warnings.push_back(warning);
    all.push_back(m);
  }
  return all;
}

}  // namespace

std::string metric_line(const Metric& m) {
  nlohmann::ordered_json j = {{"step", m.step}, {"loss", m.loss}};
  if (m.val_loss) j["val_loss"] = *m.val_loss;
  j["lr"] = m.lr;
  j["tokens_per_s"] = std::round(m.tokens_per_s * 10) / 10;
  if (m.memory) j["memory"] = m.memory->json();
  if (!m.warnings.empty()) j["warnings"] = m.warnings;
  return j.dump() + "\n";
}

MetricsFile::MetricsFile(const std::string& path, int64_t keep_until) : path_(path) {
  if (keep_until > 0) all_ = read_metrics(path, keep_until);
  std::string kept;
  for (const Metric& m : all_) kept += metric_line(m);
  write_file_atomically("metrics", path, kept);
  file_ = std::fopen(path.c_str(), "ae");
  PF_CHECK(file_ != nullptr, OS, "metrics: cannot open '{}': {}", path, std::generic_category().message(errno));
}

MetricsFile::~MetricsFile() {
  if (file_) std::fclose(file_);
}

void MetricsFile::append(const std::vector<Metric>& lines) {
  std::string text;
  for (const Metric& m : lines) text += metric_line(m);
  const bool ok = std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
  PF_CHECK(ok, OS, "metrics: cannot write {} bytes to '{}': {}", text.size(), path_,
           std::generic_category().message(errno));
  all_.insert(all_.end(), lines.begin(), lines.end());
}

// ---- the picture

namespace {

constexpr double kWidth = 900, kHeight = 520, kLeft = 70, kRight = 24, kTop = 48, kBottom = 56;

// A round step that gives about `n` ticks: 1, 2 or 5 times a power of ten.
double tick_step(double span, int n) {
  const double raw = span / n, power = std::pow(10.0, std::floor(std::log10(raw)));
  const double mantissa = raw / power;
  return power * (mantissa <= 1 ? 1 : mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10);
}

// Whether a value can be drawn. Values of a run that diverged, or of a damaged file, may be too large.
bool drawable(double v) { return std::abs(v) < 1e30; }

struct Axes {
  double x0, x1, y0, y1;
  double x(double v) const { return kLeft + (v - x0) / (x1 - x0) * (kWidth - kLeft - kRight); }
  double y(double v) const { return kHeight - kBottom - (v - y0) / (y1 - y0) * (kHeight - kTop - kBottom); }
};

Axes fit(const std::vector<Metric>& metrics) {
  double low = INFINITY, high = -INFINITY;
  const auto take = [&](double v) {
    if (!drawable(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  };
  for (const Metric& m : metrics) {
    take(m.loss);
    if (m.val_loss) take(*m.val_loss);
  }
  if (!(low <= high)) low = 0, high = 1;
  const double margin = std::max({(high - low) * 0.05, 1e-3, 1e-6 * std::max(std::abs(low), std::abs(high))});
  const double last = metrics.empty() ? 1 : static_cast<double>(metrics.back().step);
  return {0, std::max(last, 1.0), low - margin, high + margin};
}

std::string escape(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

std::string axes_svg(const Axes& a, const std::string& title) {
  std::string s;
  s += fmt::format("<text x='{}' y='28' font-size='17' fill='#222'>{}</text>\n", kLeft, escape(title));
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  const double dy = tick_step(a.y1 - a.y0, 6), dx = tick_step(a.x1 - a.x0, 8);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(dy))));
  for (double v = std::ceil(a.y0 / dy) * dy; v <= a.y1; v += dy) {
    s +=
        fmt::format("<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='#e4e4e4'/>\n", kLeft, right, a.y(v), a.y(v));
    s += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:.{}f}</text>\n", kLeft - 8, a.y(v) + 4, v, digits);
  }
  for (double v = 0; v <= a.x1 * (1 + 1e-9); v += std::max(dx, 1.0)) {
    s += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{}' y2='{}' stroke='#999'/>\n", a.x(v), a.x(v), bottom,
                     bottom + 5);
    s += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:.0f}</text>\n", a.x(v), bottom + 20, v);
  }
  s += fmt::format("<path d='M{} {} V{} H{}' fill='none' stroke='#999'/>\n", kLeft, kTop, bottom, right);
  s += fmt::format("<text x='{}' y='{}' text-anchor='middle'>step</text>\n", (kLeft + right) / 2, kHeight - 14);
  s += fmt::format("<text transform='translate(18 {}) rotate(-90)' text-anchor='middle'>loss (nats per token)</text>\n",
                   (kTop + bottom) / 2);
  return s;
}

// The points as a path, with gaps at values that cannot be drawn. Long runs are thinned to about one point a pixel.
template <class Value>
std::string path_svg(const Axes& a, const std::vector<Metric>& metrics, Value value, const char* style) {
  const size_t stride = std::max<size_t>(1, metrics.size() / 1600);
  std::string d;
  bool open = false;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const double v = value(metrics[i]);
    if (!drawable(v)) {
      open = false;
      continue;
    }
    if (i % stride != 0 && i + 1 != metrics.size()) continue;
    d += fmt::format("{}{:.1f} {:.1f}", open ? " L" : " M", a.x(static_cast<double>(metrics[i].step)), a.y(v));
    open = true;
  }
  return d.empty() ? "" : fmt::format("<path d='{}' fill='none' {}/>\n", d.substr(1), style);
}

std::string validation_svg(const Axes& a, const std::vector<Metric>& metrics) {
  std::vector<Metric> points;
  std::string s;
  for (const Metric& m : metrics) {
    if (m.val_loss && drawable(*m.val_loss)) points.push_back(m);
  }
  s += path_svg(
      a, points, [](const Metric& m) { return *m.val_loss; }, "stroke='#d1495b' stroke-width='2'");
  for (const Metric& m : points) {
    s += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='#d1495b'/>\n", a.x(static_cast<double>(m.step)),
                     a.y(*m.val_loss));
  }
  if (!points.empty()) {
    const Metric& m = points.back();
    s += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end' fill='#d1495b'>{:.3f}</text>\n",
                     a.x(static_cast<double>(m.step)) - 4, a.y(*m.val_loss) - 10, *m.val_loss);
  }
  return s;
}

std::string legend_svg() {
  const double x = kWidth - kRight - 190;
  std::string s;
  const auto entry = [&](double y, const char* color, const char* text) {
    s += fmt::format("<line x1='{}' x2='{}' y1='{}' y2='{}' stroke='{}' stroke-width='3'/>\n", x, x + 26, y, y, color);
    s += fmt::format("<text x='{}' y='{}'>{}</text>\n", x + 34, y + 4, text);
  };
  entry(kTop + 16, "#2b6cb0", "training (running mean)");
  entry(kTop + 36, "#d1495b", "validation");
  return s;
}

}  // namespace

// The window shrinks at both ends so that the curve neither lags nor stops short.
std::vector<Metric> running_mean(const std::vector<Metric>& metrics) {
  std::vector<double> sums{0};
  std::vector<size_t> counts{0};
  for (const Metric& m : metrics) {
    const bool finite = std::isfinite(m.loss);
    sums.push_back(sums.back() + (finite ? m.loss : 0));
    counts.push_back(counts.back() + (finite ? 1 : 0));
  }
  std::vector<Metric> smooth = metrics;
  const size_t n = metrics.size();
  for (size_t i = 0; i < n; ++i) {
    const size_t half = std::min({n / 80, i, n - 1 - i}), from = i - half, to = i + half + 1;
    const size_t count = counts[to] - counts[from];
    smooth[i].loss = count > 0 ? (sums[to] - sums[from]) / static_cast<double>(count) : NAN;
  }
  return smooth;
}

std::string loss_curve_svg(const std::vector<Metric>& metrics, const std::string& title) {
  const Axes a = fit(metrics);
  std::string s = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='system-ui, sans-serif' font-size='13' fill='#555'>\n<rect width='{0}' height='{1}' "
      "fill='white'/>\n",
      kWidth, kHeight);
  s += axes_svg(a, title);
  s += path_svg(
      a, metrics, [](const Metric& m) { return m.loss; }, "stroke='#2b6cb0' stroke-opacity='0.25'");
  s += path_svg(
      a, running_mean(metrics), [](const Metric& m) { return m.loss; }, "stroke='#2b6cb0' stroke-width='2.2'");
  s += validation_svg(a, metrics);
  return s + legend_svg() + "</svg>\n";
}

}  // namespace pyflame::apps::gpt
