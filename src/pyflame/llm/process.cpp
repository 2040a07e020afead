// Starts the process, moves bytes between it and this program, and waits for its end.
#include "pyflame/llm/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>
#include <vector>

#include "pyflame/base/error.h"

extern char** environ;

namespace pyflame::llm {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kLastLines = 20;
constexpr size_t kLength = 4, kLongLength = 12;  // bytes in front of a frame, and of one of 2 GiB or more
constexpr int kChannel = 3;                      // of the process
constexpr milliseconds kPatience{30000};         // for the end of a process that has been told to end
constexpr milliseconds kOutputPatience{1000};    // others may keep its output open
constexpr milliseconds kLook{10};                // between two looks whether it has ended

// Ends of pipes are above what the process has at fixed numbers, so that none is overwritten on the way there.
int moved_up(int fd) {
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, kChannel + 1);
  const int why = errno;
  close(fd);
  errno = why;
  return moved;
}

// A pair of connected ends, [0] for this program.
std::array<int, 2> connected_pair(bool both_ways) {
  int ends[2];
  const int made = both_ways ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) : pipe2(ends, O_CLOEXEC);
  const std::array<int, 2> pair = made == 0 ? std::array{moved_up(ends[0]), moved_up(ends[1])} : std::array{-1, -1};
  PF_CHECK(pair[0] >= 0 && pair[1] >= 0, OS, "LLM: no pipe to the process of the model; got {}; expected two ends",
           std::strerror(errno));
  return pair;
}

// This program's variables. As in _children.py, the folder that the program was started in is not searched for modules.
std::vector<std::string> environment() {
  std::vector<std::string> found{"PYTHONSAFEPATH=1"};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string_view(*variable).starts_with("PYTHONSAFEPATH=")) found.emplace_back(*variable);
  return found;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> found;
  for (std::string& text : texts) found.push_back(text.data());
  found.push_back(nullptr);
  return found;
}

// The number of the process. A session of its own: Ctrl-C in a terminal reaches this program alone.
pid_t spawn(std::vector<std::string> command, int channel, int output) {
  std::vector<std::string> variables = environment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, channel, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, channel, kChannel);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0].c_str(), &actions, &attributes, pointers(command).data(),
                                 pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(channel);
  close(output);
  PF_CHECK(error == 0, OS,
           "LLM: Python cannot be started; got '{}': {}; expected an interpreter that has the package pyflame; hint: "
           "the option python, or PYFLAME_PYTHON, names it",
           command[0], std::strerror(error));
  return child;
}

// A thread that no signal of the program reaches.
template <class Work>
std::thread thread_without_signals(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread made(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

std::string in_big_endian(uint64_t value, size_t length) {
  std::string bytes(length, '\0');
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(value >> (8 * (length - 1 - i)));
  return bytes;
}

// What stands in front of a frame.
std::string head(size_t size) {
  if (size <= INT32_MAX) return in_big_endian(size, kLength);
  return in_big_endian(UINT32_MAX, kLength) + in_big_endian(size, kLongLength - kLength);
}

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads it any longer
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// What is there by now, at most one buffer; an empty text is the end.
std::string read_some(int fd) {
  std::string buffer(size_t{1} << 16, '\0');
  ssize_t n;
  do n = ::read(fd, buffer.data(), buffer.size());
  while (n < 0 && errno == EINTR);
  buffer.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return buffer;
}

}  // namespace

Process::Process(const std::string& python, const char* module, Receive receive, Ended ended)
    : receive_(std::move(receive)), ended_(std::move(ended)) {
  const auto channel = connected_pair(true);
  const auto output = connected_pair(false);
  channel_ = channel[0];
  output_ = output[0];
  try {
    child_ = spawn({python, "-m", module, std::to_string(getpid()), std::to_string(kChannel)}, channel[1], output[1]);
  } catch (...) {
    close(channel_);
    close(output_);
    throw;
  }
  reader_ = thread_without_signals([this] { read(); });
}

Process::~Process() {
  finish();
  reader_.join();
  close(channel_);
  close(output_);
}

void Process::finish() { shutdown(channel_, SHUT_WR); }

void Process::send(std::string_view message) {
  const std::string frame = head(message.size()).append(message);
  const std::lock_guard lock(sending_);
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = ::send(channel_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // it has ended, which the reading thread tells
    sent += static_cast<size_t>(n);
  }
}

void Process::read() {
  std::string broken;
  try {
    pollfd waits[2] = {{channel_, POLLIN, 0}, {output_, POLLIN, 0}};
    while (true) {
      if (poll(waits, 2, -1) < 0) continue;
      if (waits[1].revents != 0 && !read_output()) waits[1].fd = -1;
      if (waits[0].revents != 0 && !read_messages()) break;
    }
  } catch (const std::exception& e) {
    broken = fmt::format("sent what is no message ({}) and ", e.what());
    kill(child_, SIGKILL);
  }
  ended_(broken + wait());
}

bool Process::read_messages() {
  const std::string more = read_some(channel_);
  frames_ += more;
  take_frames();
  return !more.empty();
}

void Process::take_frames() {
  std::string_view left = frames_;
  while (left.size() >= kLength) {
    uint64_t size = big_endian(left.substr(0, kLength));
    size_t begin = kLength;
    if (size == UINT32_MAX) {
      begin = kLongLength;
      if (left.size() < begin) break;
      size = big_endian(left.substr(kLength, begin - kLength));
    }
    if (left.size() - begin < size) break;
    receive_(left.substr(begin, size));
    left.remove_prefix(begin + size);
  }
  frames_.erase(0, frames_.size() - left.size());
}

bool Process::read_output() {
  const std::string more = read_some(output_);
  print(more);
  note(more);
  return !more.empty();
}

void Process::note(std::string_view text) {
  for (const char c : text) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    if (line_.find_first_not_of(" \t\r") != std::string::npos) last_lines_.push_back(line_);
    if (last_lines_.size() > kLastLines) last_lines_.pop_front();
    line_.clear();
  }
}

// How it ended, with the end of its output.
std::string Process::wait() {
  const auto output_end = Clock::now() + kOutputPatience;
  pollfd waits{output_, POLLIN, 0};
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(output_end - Clock::now()).count();
    if (left <= 0 || poll(&waits, 1, static_cast<int>(left)) <= 0 || !read_output()) break;
  }
  note("\n");
  int status = 0;
  pid_t found;
  const auto end = Clock::now() + kPatience;
  while ((found = waitpid(child_, &status, WNOHANG)) == 0 && Clock::now() < end) std::this_thread::sleep_for(kLook);
  if (found == 0) {
    kill(child_, SIGKILL);
    found = waitpid(child_, &status, 0);
  }
  std::string how = "ended";  // the program has asked for no such news (SIGCHLD is ignored)
  if (found == child_)
    how = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  if (last_lines_.empty()) return how + "; it has printed nothing";
  return fmt::format("{}; its last lines:\n  {}", how, fmt::join(last_lines_, "\n  "));
}

}  // namespace pyflame::llm
