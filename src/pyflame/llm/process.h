// A Python module in a process of its own, which gets and sends messages. Messages are frames as Python's multiprocessing.Connection has them: the
// length in 4 bytes, the highest first, then so many bytes (python/pyflame/llm/_children.py is the other end). What the process prints goes to
// standard error of this program.
#pragma once
#include <sys/types.h>

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace pyflame::llm {

class Process {
 public:
  // Called on a thread of this object: with each message, and once, as the last, with how the process ended.
  using Receive = std::function<void(std::string_view message)>;
  using Ended = std::function<void(const std::string& how)>;

  // Starts `python -m module`. OSError where there is no such interpreter.
  Process(const std::string& python, const char* module, Receive receive, Ended ended);
  // Ends the process and waits for its end.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Any thread may call it. Nothing is sent to a process that has ended.
  void send(std::string_view message);
  // The process reads the end of its messages, which ends it. Returns at once.
  void finish();

 private:
  void read();
  bool read_messages();
  bool read_output();
  void take_frames();
  void note(std::string_view text);
  std::string wait();

  Receive receive_;
  Ended ended_;
  pid_t child_ = 0;
  int channel_ = -1, output_ = -1;
  std::mutex sending_;
  std::string frames_;  // bytes of messages that are not complete yet
  std::string line_;    // the same of what it prints
  std::deque<std::string> last_lines_;
  std::thread reader_;
};

}  // namespace pyflame::llm
