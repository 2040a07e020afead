#include "tools/view/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/view/document.h"
#include "tools/view/kit.h"

namespace pyflame::tools::view {

namespace {

constexpr int kMostText = 4000, kTextColumn = 11;

Json text_or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

std::string joined(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& s : sentences) out += (out.empty() ? "" : " ") + s;
  return out;
}

std::string cleaned(const Json& finding, std::string_view key) { return clean(str(finding, key), kMostText); }

// The steps of the remedy, one text for each.
std::vector<std::string> steps(const Json& finding) {
  std::vector<std::string> out;
  for (const Json& step : list(finding, "do")) out.push_back(str(step, ""));
  if (out.empty() && has(finding, "fix")) out.push_back(str(finding, "fix"));
  return out;
}

Html paragraph(std::string_view classes, const std::string& untrusted) {
  return untrusted.empty() ? Html() : el("p", classes, untrusted);
}

Html card_steps(const Json& finding) {
  const std::vector<std::string> all = steps(finding);
  if (all.size() == 1) return paragraph("fix", all[0]);
  Html items;
  for (const std::string& step : all) items += el("li", "", step);
  return items.empty() ? Html() : el("ul", "", items);
}

std::string gain_text(const Json& finding) {
  const double gain = num(finding, "gain");
  return gain > 0 ? fmt::format("without it at most {:.2g} times as fast", gain) : "";
}

Html card_meta(const Json& finding) {
  Html names, meta;
  if (const std::string gain = gain_text(finding); !gain.empty()) meta += el("span", "", gain);
  for (const Json& name : list(finding, "names")) names += chip(str(name, "")) + Html::raw(" ");
  if (!names.empty()) meta += el("span", "", names);
  if (flag(finding, "no_op")) meta += el("span", "", "has no effect: nothing reads it");
  for (const auto& [key, before] : {std::pair{"where", "at "},
                                    {"recommended_by", "recommended by "},
                                    {"advised_otherwise", "advised otherwise by "},
                                    {"reference", "source: "}})
    if (const std::string value = str(finding, key); !value.empty()) meta += el("span", "", before + value);
  return meta.empty() ? Html() : el("div", "meta", meta);
}

}  // namespace

Json to_json(const Finding& f) {
  const Json source = text_or_null(f.source);
  Json d = {{"id", f.id},
            {"severity", name_of(f.severity)},
            {"title", text_or_null(f.title)},
            {"what", f.what},
            {"why", f.why},
            {"fix", text_or_null(joined(f.fixes))},
            {"do", f.fixes},
            {"command", text_or_null(f.command)},
            {"where", text_or_null(f.where)},
            {"group", text_or_null(f.group)},
            {"source", source},
            {"reference", source}};
  if (f.gain > 0) d["gain"] = f.gain;
  return d;
}

Json to_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& finding : findings) out.push_back(to_json(finding));
  return out;
}

Severity severity_in(const Json& finding, Severity otherwise) {
  return severity_of(str(finding, "severity")).value_or(otherwise);
}

Tone severity_tone(std::string_view name) {
  constexpr std::array<Tone, kSeverities.size()> kTones = {Tone::red, Tone::red, Tone::yellow, Tone::cyan, Tone::dim};
  const auto severity = severity_of(name);
  return severity ? kTones[static_cast<size_t>(*severity)] : Tone::dim;
}

std::string labelled(const Style& style, std::string_view label, int column, std::string_view text) {
  std::string lines = wrap(text, std::max(20, style.width - column));
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  for (size_t p = 0; (p = lines.find('\n', p)) != std::string::npos; p += static_cast<size_t>(column) + 1)
    lines.insert(p + 1, static_cast<size_t>(column), ' ');
  return fmt::format("{:<{}}", label, column) + lines;
}

std::string finding_text(const Json& finding, const Style& style, bool with_source) {
  const std::string severity = cleaned(finding, "severity"), id = cleaned(finding, "id");
  std::string title = cleaned(finding, "title");
  const bool titled = !title.empty();
  if (!titled) title = cleaned(finding, "what");
  if (const std::string where = cleaned(finding, "where"); !where.empty()) title += " (" + where + ")";
  const std::string name = id.empty() ? "" : fmt::format("{:<7}  ", id);
  const std::string lines = labelled(style, "", 6 + width_of(name), title);  // behind the severity and the name
  std::string out = paint(style, severity_tone(severity), fmt::format("{:<5}", severity)) + " " +
                    paint(style, Tone::bold, name + lines.substr(static_cast<size_t>(6 + width_of(name)))) + "\n";
  const auto put = [&](std::string_view label, const std::string& text, Tone tone, int column = kTextColumn) {
    if (text.empty()) return;
    out += paint(style, tone, labelled(style, fmt::format("      {}", label), column, text)) + "\n";
  };
  if (titled) put("", cleaned(finding, "what"), Tone::plain);
  put("why", cleaned(finding, "why"), Tone::dim);
  put("gain", gain_text(finding), Tone::plain);
  const std::vector<std::string> all = steps(finding);
  if (all.size() == 1) put("fix", clean(all[0], kMostText), Tone::plain);
  for (size_t i = 0; all.size() > 1 && i < all.size(); ++i)
    put(i == 0 ? "fix  -" : "     -", clean(all[i], kMostText), Tone::plain, kTextColumn + 2);
  if (const std::string command = cleaned(finding, "command"); !command.empty())
    out += std::string(kTextColumn, ' ') + paint(style, Tone::green, command) + "\n";
  for (const auto& [key, before] :
       {std::pair{"recommended_by", "Advised by: "}, {"advised_otherwise", "Advised otherwise by: "}}) {
    std::string guides;
    for (const Json& guide : list(finding, key)) guides += (guides.empty() ? "" : "; ") + clean(str(guide, ""));
    if (!guides.empty()) put("", before + guides + ".", Tone::dim);
  }
  if (with_source && has(finding, "reference")) put("", "(" + cleaned(finding, "reference") + ")", Tone::dim);
  return out;
}

Html finding_card(const Json& finding) {
  const std::string severity = str(finding, "severity", "INFO");
  Html body =
      el("div", "head",
         badge(severity) + el("h3", "", str(finding, "title", str(finding, "what", str(finding, "id", "Finding")))) +
             el("span", "id", str(finding, "id")));
  if (has(finding, "title")) body += paragraph("", str(finding, "what"));
  body += paragraph("muted", str(finding, "why")) + card_steps(finding) + command(str(finding, "command")) +
          card_meta(finding);
  return el("article", "card finding tone-" + tone_of(severity), body);
}

Html finding_cards(const Json& findings, size_t most) {
  Html out;
  size_t shown = 0;
  for (const Json& finding : findings) {
    if (shown++ == most) break;
    out += finding_card(finding);
  }
  if (findings.size() > most) out += note(fmt::format("… and {} more.", findings.size() - most));
  return out;
}

}  // namespace pyflame::tools::view
