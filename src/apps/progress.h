// One line of progress that rewrites itself on a terminal, and plain lines where the output is a file or a pipe. Colours only on a
// terminal and never with NO_COLOR.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace pyflame::apps {

std::string format_duration(double seconds);  // "0:07", "2:41", "1:02:03"
std::string format_count(double n);           // "812", "31.2k", "4.1M"

class Progress {
 public:
  explicit Progress(int64_t total);
  ~Progress();
  bool is_terminal() const { return terminal_; }
  // `text` follows the bar. On a terminal at most ten times a second; in plain form at most every `total / 20` steps.
  void update(int64_t done, const std::string& text, bool force = false);
  // A lasting line.
  void note(const std::string& text);
  void finish();

 private:
  std::string bar(int64_t done) const;
  void clear_line();
  int64_t total_, next_plain_ = 0;
  bool terminal_, color_, line_open_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// What a tool does while one waits for its report: a line on stderr that rewrites itself and goes when this ends. Where stderr is no
// terminal, a line each ten seconds, so that only long work says anything.
class StatusLine {
 public:
  ~StatusLine();
  // Whether there is something to show now: composing the text of each step would cost more than the step.
  bool is_due();
  void show(double fraction, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_ = is_terminal(), open_ = false;
  Clock::time_point last_ = Clock::now();
  static bool is_terminal();
};

}  // namespace pyflame::apps
