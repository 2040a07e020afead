// Terminal text. Widths are counted in code points, and the colour sequences that paint() writes count as none, so that painted
// text can stand in tables and be wrapped.
#include "tools/view/text.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "tools/view/utf8.h"

namespace pyflame::tools::view {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026
constexpr std::string_view kGap = "  ";

// The length of the colour sequence (ESC [ digits m) at text[at], 0 where there is none.
size_t color_sequence(std::string_view text, size_t at) {
  if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') return 0;
  size_t end = at + 2;
  while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == ';')) ++end;
  return end < text.size() && text[end] == 'm' ? end + 1 - at : 0;
}

// Cuts a text to `most` columns, of which the last is "…". All colour sequences are kept, so that each colour also ends.
std::string cut(std::string_view text, int most) {
  if (width_of(text) <= most) return std::string(text);
  std::string out;
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = color_sequence(text, at)) {
      out += text.substr(at, length);
      at += length;
      continue;
    }
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (is_control(c)) continue;
    ++width;
    if (width < most) out += text.substr(begin, at - begin);
    if (width == most) out += kEllipsis;
  }
  return out;
}

// The bytes of the first `most` columns.
size_t prefix(std::string_view text, int most) {
  size_t at = 0;
  for (int width = 0; at < text.size();) {
    if (const size_t length = color_sequence(text, at)) {
      at += length;
      continue;
    }
    size_t next = at;
    if (!is_control(next_code_point(text, next)) && ++width > most) break;
    at = next;
  }
  return at;
}

// Three significant digits, without zeros at the end of the fraction.
std::string digits(double value) {
  std::string text = value >= 99.95   ? fmt::format("{:.0f}", value)
                     : value >= 9.995 ? fmt::format("{:.1f}", value)
                                      : fmt::format("{:.2f}", value);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

// `value` in the greatest unit in which it is at least 1. Each unit is `step` times the one before it.
template <size_t n>
std::string scaled(double value, double step, const std::array<const char*, n>& units) {
  if (!std::isfinite(value)) return "n/a";
  const char* sign = value < 0 ? "-" : "";
  value = std::abs(value);
  size_t unit = 0;
  // A value that would be printed as a whole step is printed in the next unit.
  while (unit + 1 < n && value >= step - 0.5) {
    value /= step;
    ++unit;
  }
  return value > 1e6 ? fmt::format("{}{:.3g}{}", sign, value, units[unit])
                     : fmt::format("{}{}{}", sign, digits(value), units[unit]);
}

constexpr int kLeast = 8;  // columns; a narrower cell says nothing, so the table may be wider than the terminal

struct Column {
  std::string title;
  bool right = false;
  int width = 0;
};

std::vector<Column> measure(const Style& style, const std::vector<std::string>& titles,
                            const std::vector<std::vector<std::string>>& rows) {
  std::vector<Column> columns;
  for (const std::string& title : titles) {
    const bool right = !title.empty() && title[0] == '>';
    columns.push_back({right ? title.substr(1) : title, right, 0});
  }
  for (const auto& row : rows) columns.resize(std::max(columns.size(), row.size()));
  int total = -static_cast<int>(kGap.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i].width = width_of(columns[i].title);
    for (const auto& row : rows)
      if (i < row.size()) columns[i].width = std::max(columns[i].width, width_of(row[i]));
    total += columns[i].width + static_cast<int>(kGap.size());
  }
  while (total > style.width) {
    Column* widest = nullptr;
    for (Column& c : columns)
      if (!c.right && c.width > kLeast && (!widest || c.width > widest->width)) widest = &c;
    if (!widest) break;
    const int narrower = std::max(kLeast, widest->width - (total - style.width));
    // Not narrower than the next widest column, so that two long columns share the loss.
    int next = kLeast;
    for (const Column& c : columns)
      if (!c.right && &c != widest) next = std::max(next, c.width);
    const int width = std::max(narrower, std::min(next, widest->width - 1));
    total -= widest->width - width;
    widest->width = width;
  }
  return columns;
}

void put_line(std::string& out, const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  const size_t begin = out.size();
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i) out += kGap;
    const std::string cell = i < cells.size() ? cut(cells[i], columns[i].width) : "";
    const std::string blanks(static_cast<size_t>(std::max(0, columns[i].width - width_of(cell))), ' ');
    out += columns[i].right ? blanks + cell : cell + blanks;
  }
  while (out.size() > begin && out.back() == ' ') out.pop_back();
  out += '\n';
}

// A row as a line with its first cell and a paragraph of the others with their titles.
void put_record(std::string& out, const Style& style, const std::vector<Column>& columns,
                const std::vector<std::string>& cells) {
  if (cells.empty()) return;
  out += cut(cells[0], style.width) + "\n";
  std::string rest;
  for (size_t i = 1; i < cells.size(); ++i) {
    if (cells[i].empty()) continue;
    const std::string& title = columns[i].title;
    rest += fmt::format("{}{}{}{}", rest.empty() ? "" : ", ", title, title.empty() ? "" : " ", cells[i]);
  }
  if (!rest.empty()) out += "  " + wrap(rest, style.width - 2, 2) + "\n";
}

constexpr int kNarrow = 80;  // columns of a terminal that tables are made for

bool is_too_narrow(const Style& style, const std::vector<Column>& columns,
                   const std::vector<std::vector<std::string>>& rows) {
  if (style.width >= kNarrow || columns.empty()) return false;
  int total = -static_cast<int>(kGap.size());
  for (const Column& c : columns) total += c.width + static_cast<int>(kGap.size());
  const auto is_cut = [&](const auto& row) { return !row.empty() && width_of(row[0]) > columns[0].width; };
  return total > style.width || (columns[0].width <= kLeast && std::any_of(rows.begin(), rows.end(), is_cut));
}

}  // namespace

Style Style::of(int fd) {
  Style style;
  if (isatty(fd) == 0) return style;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  style.color = term && std::string_view(term) != "dumb" && (!no_color || !*no_color);
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = std::clamp<int>(size.ws_col, 60, 160);
  return style;
}

std::string paint(const Style& style, Tone tone, std::string_view text) {
  constexpr const char* kCodes[] = {"", "1", "2", "31", "33", "32", "36"};
  if (!style.color || tone == Tone::plain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<int>(tone)], text);
}

int width_of(std::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = color_sequence(text, at)) at += length;
    else if (!is_control(next_code_point(text, at))) ++width;
  }
  return width;
}

std::string clean(std::string_view text, int most) {
  std::string out;
  size_t last = 0;  // where the last column begins, for the "…"
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    if (width == most) {
      out.resize(last);
      if (most > 0) out += kEllipsis;
      break;
    }
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    last = out.size();
    ++width;
    if (c == '\n' || c == '\t' || c == '\r') out += ' ';
    else if (c == kInvalid || is_control(c)) out += kReplacement;
    else out += text.substr(begin, at - begin);
  }
  return out;
}

std::string wrap(std::string_view text, int width, int indent) {
  width = std::max(width, indent + 8);
  std::string out;
  int column = 0, left = 0;  // of the line being written: columns so far, and where its text begins
  const auto break_line = [&] {
    out += '\n';
    out.append(static_cast<size_t>(indent), ' ');
    column = left = indent;
  };
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\n') {
      if (text[at++] == '\n') break_line();
      continue;
    }
    std::string_view word = text.substr(at, text.find_first_of(" \n", at) - at);
    at += word.size();
    const int columns = width_of(word);
    if (column > left && column + 1 + columns > width) break_line();
    else if (column > left) {
      out += ' ';
      ++column;
    }
    // A word that is longer than a line is split.
    while (column + width_of(word) > width) {
      const size_t length = prefix(word, width - column);
      out += word.substr(0, length);
      word.remove_prefix(length);
      break_line();
    }
    out += word;
    column += width_of(word);
  }
  return out;
}

std::string table(const Style& style, const std::vector<std::string>& titles,
                  const std::vector<std::vector<std::string>>& rows) {
  const std::vector<Column> columns = measure(style, titles, rows);
  std::string out;
  if (is_too_narrow(style, columns, rows)) {
    for (const auto& row : rows) put_record(out, style, columns, row);
    return out;
  }
  std::vector<std::string> head;
  for (const Column& c : columns) head.push_back(paint(style, Tone::bold, c.title));
  if (std::any_of(head.begin(), head.end(), [](const std::string& t) { return !t.empty(); }))
    put_line(out, columns, head);
  for (const auto& row : rows) put_line(out, columns, row);
  return out;
}

std::string bar(double fraction, int columns) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!(fraction > 0) || columns <= 0) return std::string(static_cast<size_t>(std::max(columns, 0)), ' ');
  // A fraction above 0 always shows.
  const int eighths = std::max(1, static_cast<int>(std::lround(std::min(fraction, 1.0) * columns * 8)));
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  out.append(static_cast<size_t>(columns - (eighths + 7) / 8), ' ');
  return out;
}

std::string bytes(double n) { return scaled<6>(n, 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"}); }

std::string microseconds(double us) {
  if (std::abs(us) > 0 && std::abs(us) < 0.9995) return scaled<1>(us * 1000, 1000, {" ns"});
  return scaled<3>(us, 1000, {" us", " ms", " s"});
}

std::string percent(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.1f} %", fraction == 0 ? 0 : fraction * 100) : "n/a";
}

std::string count(double n) { return scaled<5>(n, 1000, {"", "k", "M", "G", "T"}); }

std::string rate(double per_second, std::string_view unit) {
  const std::string number = scaled<6>(per_second, 1000, {" ", " k", " M", " G", " T", " P"});
  return number == "n/a" ? number : number + std::string(unit);
}

}  // namespace pyflame::tools::view
