#include "tools/view/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/view/utf8.h"

namespace pyflame::tools::view {
namespace {

void escape(std::string& out, std::string_view untrusted, size_t most) {
  size_t points = 0;
  for (size_t at = 0; at < untrusted.size(); ++points) {
    if (points == most) {
      out += "…";
      return;
    }
    const size_t begin = at;
    const char32_t c = next_code_point(untrusted, at);
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      case '\n': out += '\n'; break;
      case '\t': out += '\t'; break;
      case '\r': break;
      default:
        if (c == kInvalid || is_control(c)) out += "\xEF\xBF\xBD";
        else out += untrusted.substr(begin, at - begin);
    }
  }
}

bool is_void(std::string_view name) { return name == "br" || name == "hr" || name == "meta" || name == "input"; }

}  // namespace

Html Html::raw(std::string markup) {
  Html html;
  html.markup_ = std::move(markup);
  return html;
}

Html& Html::operator+=(const Html& other) {
  markup_ += other.markup_;
  return *this;
}

Html operator+(Html a, const Html& b) {
  a += b;
  return a;
}

Html text(std::string_view untrusted, size_t most) {
  std::string out;
  out.reserve(std::min(untrusted.size(), most) + 16);
  escape(out, untrusted, most);
  return Html::raw(std::move(out));
}

Html tag(std::string_view name, const Attributes& attributes, const Html& content) {
  std::string out = "<";
  out += name;
  for (const auto& [key, value] : attributes) {
    if (value.empty() && key != "open" && key != "alt") continue;
    out += ' ';
    out += key;
    out += "=\"";
    escape(out, value, 100000);
    out += '"';
  }
  out += '>';
  if (is_void(name)) return Html::raw(std::move(out));
  out += content.str();
  out += "</";
  out += name;
  out += '>';
  return Html::raw(std::move(out));
}

Html el(std::string_view name, std::string_view classes, const Html& content) {
  return tag(name, {{"class", std::string(classes)}}, content);
}

Html el(std::string_view name, std::string_view classes, std::string_view untrusted) {
  return el(name, classes, text(untrusted));
}

std::string px(double value) {
  if (!std::isfinite(value)) return "0";
  std::string out = fmt::format("{:.2f}", std::clamp(value, -1e6, 1e6));
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

}  // namespace pyflame::tools::view
