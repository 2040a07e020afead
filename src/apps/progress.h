// Progress: one line that rewrites itself on a terminal, and plain lines if the output is a file or a pipe. Colours appear on terminals
// only, and never if NO_COLOR is set.
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
  // `text` follows the bar. A terminal is updated at most ten times a second; plain lines come at most every `total / 20` steps.
  void update(int64_t done, const std::string& text, bool force = false);
  // Prints a line that stays.
  void note(const std::string& text);
  void finish();

 private:
  std::string bar(int64_t done) const;
  void clear_line();
  int64_t total_, next_plain_ = 0;
  bool terminal_, color_, line_open_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// Shows what a tool is doing until its report is ready: a line on stderr that rewrites itself and that the destructor erases. If stderr
// is not a terminal, it prints a line every ten seconds, so that only long work prints anything.
class StatusLine {
 public:
  ~StatusLine();
  // Whether to show a text now. Ask before composing it, because composing one at every step would cost more than the step.
  bool is_due();
  void show(double fraction, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_ = is_terminal(), open_ = false;
  Clock::time_point last_ = Clock::now();
  static bool is_terminal();
};

}  // namespace pyflame::apps
