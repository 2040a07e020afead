// The parts of all pages: the frame with its style and script, sections, cards, badges, tables, bars. Pages define the
// contents; this file and page.css define the look. Without JavaScript everything is visible, but cannot be sorted,
// filtered or zoomed.
#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tools/view/html.h"

namespace pyflame::tools::view {

struct Section {
  std::string id, title, lead;
  Html body;  // empty: the section is left out
};

struct Page {
  std::string tool;      // "doctor"
  std::string title;     // of the window
  std::string headline;  // one sentence: the result
  std::string subline;
  std::string tone;  // class of the headline's mark: "crit", "high", "med", "low", "info", "good", or empty
  Html hero;         // under the headline: key figures
  std::vector<Section> sections;
  std::string data;  // JSON for the script; may be empty
};
std::string render(const Page& page);

// A key figure: "idle", "12.3 %".
Html stat(std::string_view label, std::string_view value, std::string_view note = "", std::string_view tone = "");
Html stats(const Html& figures);

// A severity with its own shape and word, so that the meaning does not depend on colour alone. Unknown words are shown
// unchanged.
std::string tone_of(std::string_view severity);  // "CRIT" -> "crit"
Html badge(std::string_view severity, std::string_view shown = "");
Html chip(std::string_view untrusted);  // a small label in the code font
Html command(std::string_view shell);   // with a button that copies it
Html note(std::string_view untrusted);  // a muted paragraph

// Label and value pairs. Pairs with an empty value are left out.
Html pairs(const std::vector<std::pair<std::string, Html>>& items);
Html fold(const Html& summary, const Html& body, bool open = false);

// `fraction` of 0..1 as a bar, with the number next to it.
Html meter(double fraction, std::string_view tone = "");
// A labelled meter: "VRAM", 0.4, "77 of 192 GiB"; without a bar if the fraction is not finite.
Html gauge(std::string_view label, double fraction, std::string_view value, std::string_view tone = "");
// One bar of several shares with a legend below. `color` is one of 0..9.
struct Share {
  std::string name, value;
  double share = 0;
  int color = 0;
};
Html stacked(std::string_view title, const std::vector<Share>& shares);
Html swatch(int color);
// One colour per kind of work ("GEMM", "idle") on every page.
int color_of(std::string_view work);

struct Cell {
  Html content;
  double sort = std::numeric_limits<double>::quiet_NaN();  // the sort key of the cell, if it is not the text
};
Cell cell(std::string_view untrusted);
Cell cell(double number, std::string_view shown);
Cell code_cell(std::string_view untrusted, size_t most = 300);

// Columns whose title starts with '>' are right-aligned numbers. A long table gets a filter field.
class Table {
 public:
  Table(std::string_view caption, const std::vector<std::string>& titles);
  void row(const std::vector<Cell>& cells, std::string_view id = "");
  size_t rows() const { return rows_; }
  // Empty without rows.
  Html html(std::string_view classes = "") const;

 private:
  std::string caption_;
  std::vector<std::string> titles_;
  Html body_;
  size_t rows_ = 0;
};

}  // namespace pyflame::tools::view
