#include "apps/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace pyflame::apps {

namespace {

constexpr int kLeastWidth = 60, kMostWidth = 120, kOtherWidth = 100;
constexpr size_t kLeastColumn = 24;  // columns for the last part of a line

// Where the next lines of `line` begin: the column after the last gap of two blanks, or the indentation.
size_t hanging(std::string_view line, size_t width) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", begin);
  const size_t column = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  if (column != std::string_view::npos && column + kLeastColumn <= width) return column;
  return begin == 0 || begin >= 6 ? begin : begin + 4;
}

// Where to cut a line that has more than `width` columns: after a blank, otherwise after a comma or a bar; npos: nowhere.
size_t cut_of(std::string_view line, size_t begin, size_t width) {
  const size_t blank = line.rfind(' ', width);
  if (blank != std::string_view::npos && blank > begin) return blank;
  const size_t mark = line.find_last_of(",|", width - 1);
  return mark != std::string_view::npos && mark > begin ? mark + 1 : std::string_view::npos;
}

}  // namespace

int help_width() {
  const char* columns = std::getenv("COLUMNS");
  int width = 0;
  if (columns && std::from_chars(columns, columns + std::strlen(columns), width).ec == std::errc() && width > 0)
    return std::max(width, kLeastWidth);
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::clamp<int>(size.ws_col, kLeastWidth, kMostWidth);
  return kOtherWidth;
}

std::string wrap_help(std::string_view text, int columns) {
  const auto width = static_cast<size_t>(columns);
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    const size_t hang = hanging(line, width);
    while (line.size() > width) {
      const size_t cut = cut_of(line, std::max(hang, line.find_first_not_of(' ')), width);
      if (cut == std::string::npos) break;
      const size_t last = line.find_last_not_of(' ', cut - 1);
      out += line.substr(0, last + 1) + '\n';
      line = std::string(hang, ' ') + line.substr(std::min(line.find_first_not_of(' ', cut), line.size()));
    }
    out += line;
    if (end != std::string_view::npos) out += '\n';
  }
  return out;
}

HelpFormatter::HelpFormatter() : width_(help_width()) { column_width(width_ < 80 ? 24 : 30); }

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  return wrap_help(CLI::Formatter::make_help(app, std::move(name), mode), width_);
}

std::string HelpFormatter::make_option_usage(const CLI::Option* option) const {
  return option->get_group().empty() ? option->get_description() : CLI::Formatter::make_option_usage(option);
}

}  // namespace pyflame::apps
