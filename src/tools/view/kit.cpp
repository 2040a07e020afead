#include "tools/view/kit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "pyflame/version.h"
#include "tools/base/finding.h"
#include "tools/view/embedded.h"

namespace pyflame::tools::view {
namespace {

// A flame, drawn for this page.
constexpr const char* kMark =
    "<svg class=\"mark\" viewBox=\"0 0 24 24\" width=\"22\" height=\"22\" aria-hidden=\"true\" focusable=\"false\">"
    "<path d=\"M12 2c1 4 6 6.5 6 12a6 6 0 0 1-12 0c0-2.6 1.4-4 2.4-5.6.4 1.5 1 2.3 2 2.9C10.3 8.2 10.5 5 12 "
    "2z\"></path>"
    "</svg>";

// The page may load nothing. So markup that slipped through the escaping still cannot reach the network.
constexpr const char* kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

std::string as_percent(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.1f}%", std::clamp(fraction, 0.0, 1.0) * 100) : "0%";
}

Html head(const Page& page) {
  return el("head", "",
            Html::raw("<meta charset=\"utf-8\">") +
                tag("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}) +
                tag("meta", {{"name", "color-scheme"}, {"content", "light dark"}}) +
                tag("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", kPolicy}}) +
                el("title", "", page.title) + el("style", "", Html::raw(std::string(embedded("page.css")))));
}

// A number and its percent sign stay on one line.
std::string unbroken(std::string sentence) {
  for (size_t at = 0; (at = sentence.find(" %", at)) != std::string::npos; ++at) sentence.replace(at, 1, "\xC2\xA0");
  return sentence;
}

Html header(const Page& page) {
  const Html brand = el("p", "brand", Html::raw(kMark) + el("span", "", "PyFlame") + el("span", "tool", page.tool));
  Html headline = el("h1", page.tone.empty() ? "" : "toned tone-" + page.tone, unbroken(page.headline));
  if (!page.subline.empty()) headline += el("p", "subline", page.subline);
  return el("header", "", el("div", "wide", brand + headline + page.hero));
}

Html navigation(const Page& page) {
  Html links;
  int count = 0;
  for (const Section& s : page.sections) {
    if (s.body.empty()) continue;
    links += el("li", "", tag("a", {{"href", "#" + s.id}}, text(s.title)));
    ++count;
  }
  if (count < 2) return {};
  return tag("nav", {{"aria-label", "Sections"}}, el("ul", "wide", links));
}

}  // namespace

std::string render(const Page& page) {
  Html sections;
  for (const Section& s : page.sections) {
    if (s.body.empty()) continue;
    Html body = el("h2", "", s.title);
    if (!s.lead.empty()) body += el("p", "lead", s.lead);
    sections += tag("section", {{"id", s.id}}, body + s.body);
  }
  Html body = header(page) + navigation(page) + el("main", "wide", sections) +
              el("footer", "wide",
                 el("p", "", "Made by PyFlame " PYFLAME_VERSION ". This file is complete: it loads nothing."));
  if (!page.data.empty()) {
    // Inside of a script element, only "<" could end it.
    std::string data;
    for (const char c : page.data) c == '<' ? data += "\\u003c" : data += c;
    body += tag("script", {{"type", "application/json"}, {"id", "data"}}, Html::raw(std::move(data)));
  }
  body += el("script", "", Html::raw(std::string(embedded("page.js"))));
  return "<!doctype html>\n" + tag("html", {{"lang", "en"}}, head(page) + el("body", "", body)).str() + "\n";
}

Html stat(std::string_view label, std::string_view value, std::string_view note, std::string_view tone) {
  if (value.empty()) return {};
  Html body = el("dt", "", label) + el("dd", tone.empty() ? "" : fmt::format("tone-{}", tone), value);
  if (!note.empty()) body += el("dd", "note", note);
  return el("div", "stat", body);
}

Html stats(const Html& figures) { return figures.empty() ? Html() : el("dl", "stats", figures); }

std::string tone_of(std::string_view severity) { return severity_of(severity) ? lower(severity) : "info"; }

Html badge(std::string_view severity, std::string_view shown) {
  return el("span", "badge tone-" + tone_of(severity), shown.empty() ? severity : shown);
}

Html chip(std::string_view untrusted) { return el("code", "chip", text(untrusted, 200)); }

Html command(std::string_view shell) {
  return shell.empty() ? Html() : el("div", "command", el("pre", "", el("code", "", shell)));
}

Html note(std::string_view untrusted) { return el("p", "muted", untrusted); }

Html pairs(const std::vector<std::pair<std::string, Html>>& items) {
  Html body;
  for (const auto& [label, value] : items)
    if (!value.empty()) body += el("div", "", el("dt", "", label) + el("dd", "", value));
  return body.empty() ? Html() : el("dl", "pairs", body);
}

Html fold(const Html& summary, const Html& body, bool open) {
  return Html::raw(open ? "<details open>" : "<details>") + el("summary", "", summary) + el("div", "folded", body) +
         Html::raw("</details>");
}

Html meter(double fraction, std::string_view tone) {
  return tag("span", {{"class", "meter"}, {"aria-hidden", "true"}},
             tag("span", {{"class", tone.empty() ? "" : fmt::format("tone-{}", tone)},
                          {"style", "width:" + as_percent(fraction)}}));
}

Html gauge(std::string_view label, double fraction, std::string_view value, std::string_view tone) {
  return el("div", "gauge",
            el("span", "label", label) + el("span", "value", value) +
                (std::isfinite(fraction) ? meter(fraction, tone) : Html()));
}

Html swatch(int color) {
  return tag("span", {{"class", fmt::format("swatch c{}", std::clamp(color, 0, 11))}, {"aria-hidden", "true"}});
}

int color_of(std::string_view work) {
  constexpr std::array<std::pair<std::string_view, int>, 13> kColors = {{{"GEMM", 0},
                                                                         {"convolution", 1},
                                                                         {"attention", 2},
                                                                         {"normalisation", 3},
                                                                         {"elementwise", 4},
                                                                         {"reduction", 5},
                                                                         {"memory", 6},
                                                                         {"communication", 7},
                                                                         {"other", 8},
                                                                         {"data", 9},
                                                                         {"idle", 10},
                                                                         {"launch-bound", 11},
                                                                         {"between steps", 11}}};
  for (const auto& [name, color] : kColors)
    if (name == work) return color;
  return 8;
}

Html stacked(std::string_view title, const std::vector<Share>& shares) {
  Html bar, legend;
  for (const Share& s : shares) {
    if (!(s.share > 0)) continue;
    bar += tag("span",
               {{"class", fmt::format("c{}", std::clamp(s.color, 0, 11))},
                {"style", "width:" + as_percent(s.share)},
                {"title", s.name + ": " + s.value}},
               s.share > 0.09 ? el("span", "", s.name) : Html());
    legend += el("li", "", swatch(s.color) + text(s.name) + el("b", "", s.value));
  }
  if (legend.empty()) return {};
  return tag("div", {{"class", "stacked"}},
             tag("div", {{"class", "stack"}, {"aria-hidden", "true"}}, bar) +
                 tag("ul", {{"class", "legend"}, {"aria-label", std::string(title)}}, legend));
}

Cell cell(std::string_view untrusted) { return {text(untrusted, 1000)}; }
Cell cell(double number, std::string_view shown) { return {text(shown, 100), number}; }
Cell code_cell(std::string_view untrusted, size_t most) { return {el("code", "", text(untrusted, most))}; }

Table::Table(std::string_view caption, const std::vector<std::string>& titles) : caption_(caption), titles_(titles) {}

void Table::row(const std::vector<Cell>& cells, std::string_view id) {
  Html line;
  for (size_t i = 0; i < cells.size() && i < titles_.size(); ++i) {
    const bool number = !titles_[i].empty() && titles_[i][0] == '>';
    Attributes attributes;
    if (number) attributes.push_back({"class", "n"});
    if (std::isfinite(cells[i].sort)) {
      const std::string sort = fmt::format("{:.7g}", cells[i].sort);
      // If the text is the number, repeating it would only make the page longer.
      if (cells[i].content.str() != sort) attributes.push_back({"data-v", sort});
    }
    line += tag("td", attributes, cells[i].content);
  }
  body_ += tag("tr", {{"id", std::string(id)}}, line) + Html::raw("\n");
  ++rows_;
}

Html Table::html(std::string_view classes) const {
  if (!rows_) return {};
  Html titles;
  for (const std::string& title : titles_) {
    const bool number = !title.empty() && title[0] == '>';
    titles += tag("th", {{"scope", "col"}, {"class", number ? "n" : ""}}, text(number ? title.substr(1) : title));
  }
  return tag(
      "div",
      {{"class", fmt::format("scroll {}", classes)}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", caption_}},
      el("table", "", el("caption", "", caption_) + el("thead", "", el("tr", "", titles)) + el("tbody", "", body_)));
}

}  // namespace pyflame::tools::view
