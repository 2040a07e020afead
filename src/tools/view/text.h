// Text output of all tools: tables, wrapped text, numbers with units, and colour if the output is a terminal. It is in
// one place, so that doctor, inspect and report look alike.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools::view {

enum class Tone { plain, bold, dim, red, yellow, green, cyan };

struct Style {
  bool color = false;
  int width = 100;  // columns
  // For the stream of a file descriptor: colour on a terminal without NO_COLOR; its width (60 to 160), 100 elsewhere.
  static Style of(int fd);
};

std::string paint(const Style& style, Tone tone, std::string_view text);

// Columns of a UTF-8 text on a terminal, one per code point; control characters have none.
int width_of(std::string_view text);
// Untrusted text for a terminal: control characters and invalid UTF-8 are replaced, and it is cut after `most` columns
// with "…".
std::string clean(std::string_view text, int most = 1000);
// Wraps text into lines of at most `width` columns; lines after the first are indented by `indent` blanks.
std::string wrap(std::string_view text, int width, int indent = 0);

// A column is left-aligned, or right-aligned if its title starts with '>'. If the table is wider than the style allows,
// the widest left-aligned column is cut. Where that is not enough on a terminal of fewer than 80 columns, each row is a
// paragraph instead. No trailing blanks; ends with a newline.
std::string table(const Style& style, const std::vector<std::string>& titles,
                  const std::vector<std::vector<std::string>>& rows);
// `fraction` of 0..1 as a bar of `columns` columns.
std::string bar(double fraction, int columns);

std::string bytes(double n);                                 // "512 B", "1.5 KiB", "192 GiB"
std::string microseconds(double us);                         // "3.2 us", "1.25 ms", "2.1 s"
std::string percent(double fraction);                        // 0.123 -> "12.3 %"
std::string count(double n);                                 // "812", "31.2k", "4.1M"
std::string rate(double per_second, std::string_view unit);  // 1.2e12, "FLOP/s" -> "1.2 TFLOP/s"

}  // namespace pyflame::tools::view
