#include "apps/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/view/text.h"

namespace pyflame::apps {

namespace {
int terminal_width() {
  winsize w{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}
}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-:--";
  const auto s = static_cast<int64_t>(std::lround(seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_count(double n) {
  if (n >= 1e6) return fmt::format("{:.1f}M", n / 1e6);
  if (n >= 1e3) return fmt::format("{:.1f}k", n / 1e3);
  return fmt::format("{:.0f}", n);
}

Progress::Progress(int64_t total) : total_(total) {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  terminal_ = isatty(STDOUT_FILENO) != 0 && term && std::strcmp(term, "dumb") != 0;
  color_ = terminal_ && (!no_color || !*no_color);
}

Progress::~Progress() { finish(); }

std::string Progress::bar(int64_t done) const {
  constexpr int kWidth = 24;
  const double part = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1.0;
  const int full = std::clamp(static_cast<int>(part * kWidth), 0, kWidth);
  std::string cells;
  for (int i = 0; i < kWidth; ++i) cells += i < full ? "━" : "·";
  return color_ ? fmt::format("\x1b[32m{}\x1b[0m", cells) : cells;
}

void Progress::clear_line() {
  if (line_open_) fmt::print("\r\x1b[K");
  line_open_ = false;
}

void Progress::update(int64_t done, const std::string& text, bool force) {
  const double part = total_ > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total_) : 100.0;
  if (!terminal_) {
    if (!force && done < next_plain_) return;
    next_plain_ = done + std::max<int64_t>(1, total_ / 20);
    fmt::print("step {}/{} ({:.0f} %)  {}\n", done, total_, part, text);
    std::fflush(stdout);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!force && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  const std::string head = fmt::format("{}/{} ", done, total_);
  // A line that wraps could not be rewritten. So the text is cut, and a narrow terminal gets no bar.
  const int room = terminal_width() - 1 - static_cast<int>(head.size());
  const bool with_bar = room > 60;
  const auto text_room = static_cast<size_t>(std::max(0, room - (with_bar ? 26 : 0)));
  clear_line();
  fmt::print("{}{}{}", head, with_bar ? bar(done) + "  " : "", text.substr(0, text_room));
  std::fflush(stdout);
  line_open_ = true;
}

void Progress::note(const std::string& text) {
  clear_line();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Progress::finish() {
  if (line_open_) fmt::print("\n");
  line_open_ = false;
  std::fflush(stdout);
}

StatusLine::~StatusLine() {
  if (open_) fmt::print(stderr, "\r\x1b[K");
}

bool StatusLine::is_terminal() { return isatty(STDERR_FILENO) == 1; }

bool StatusLine::is_due() {
  const auto now = Clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10'000))) return false;
  last_ = now;
  return true;
}

void StatusLine::show(double fraction, std::string_view text) {
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  fmt::print(stderr, "\r\x1b[K{} {}", tools::view::bar(fraction, 20), text);
  std::fflush(stderr);
  open_ = true;
}

}  // namespace pyflame::apps
