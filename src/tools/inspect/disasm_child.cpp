#include "tools/inspect/disasm_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

extern char** environ;

namespace pyflame::tools::inspect {

namespace {

constexpr int kSilentMs = 60'000;  // a child or tool that is silent for so long hangs
constexpr int kMostCrashes = 32;   // crashes in one range of code; after that, the rest of the range counts as unknown
constexpr size_t kChunk = size_t{1} << 16;

struct Request {
  uint64_t address = 0, size = 0;
  uint64_t careful = 0;  // answer after each instruction, so that the instruction that kills the child is known
};

// Before each instruction of an answer; {0, 0} ends it.
struct Answer {
  uint16_t size = 0, text = 0;
};

bool send_all(int fd, const void* data, size_t size) {
  const char* p = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(fd, p, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int fd, void* data, size_t size) {
  char* p = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = recv(fd, p, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// The child: answers requests until it is killed.
[[noreturn]] void serve(int fd, const std::function<std::unique_ptr<Decoder>()>& make) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int s : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP, SIGTERM, SIGPIPE}) signal(s, SIG_DFL);
  signal(SIGINT, SIG_IGN);  // the parent handles interruptions
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (const int null = open("/dev/null", O_RDWR); null >= 0) {
    for (int i = 0; i < 3; ++i) dup2(null, i);
  }
  const std::unique_ptr<Decoder> decoder = make();
  const char ready = decoder ? 1 : 0;
  if (!send_all(fd, &ready, 1) || !decoder) _exit(1);
  std::vector<uint8_t> code;
  std::string out;
  for (Request r; receive_all(fd, &r, sizeof r);) {
    code.resize(r.size);
    if (!receive_all(fd, code.data(), code.size())) break;
    const auto put = [&](Answer a, std::string_view text) {
      out.append(reinterpret_cast<const char*>(&a), sizeof a);
      out.append(text);
      if (out.size() < kChunk && !r.careful && a.size) return;
      if (!send_all(fd, out.data(), out.size())) _exit(1);
      out.clear();
    };
    for (size_t at = 0; at < code.size();) {
      std::string_view text;
      const Bytes rest = Bytes(code).subspan(at);
      size_t size = decoder->one(r.address + at, rest, text);
      if (size == 0 || size > std::min<size_t>(rest.size(), 64)) size = std::min<size_t>(4, rest.size()), text = {};
      if (text.size() > 1024) text = {};
      put({static_cast<uint16_t>(size), static_cast<uint16_t>(text.size())}, text);
      at += size;
    }
    put({}, {});
  }
  _exit(0);
}

class InChild : public Disassembler {
 public:
  explicit InChild(std::function<std::unique_ptr<Decoder>()> make) : make_(std::move(make)) {}
  ~InChild() override { stop(); }

  bool start() {
    stop();
    // Under a lock, because a child that another thread forks at the same time would keep the end of this socket open.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    child_ = fork();
    if (child_ == 0) {
      close(ends[0]);
      serve(ends[1], make_);
    }
    close(ends[1]);
    fd_ = ends[0];
    at_ = end_ = 0;
    char ready = 0;
    if (child_ < 0 || !take(&ready, 1) || !ready) {
      stop();
      return false;
    }
    return true;
  }

  void read(uint64_t address, Bytes code, Listing& out) override {
    size_t done = 0;
    bool careful = false;
    for (int crashes = 0; done < code.size();) {
      if (crashes < kMostCrashes && (fd_ >= 0 || start())) {
        if (attempt(address, code, done, careful, out)) return;
        stop();
        if (careful) skip(address, code, done, out), ++crashes;
        careful = true;
      } else {
        skip(address, code, done, out);
      }
    }
  }

 private:
  // Four bytes that are not an instruction.
  static void skip(uint64_t address, Bytes code, size_t& done, Listing& out) {
    if (done >= code.size()) return;
    const size_t size = std::min<size_t>(4, code.size() - done);
    out.add(address + done, static_cast<uint32_t>(size), {});
    done += size;
  }

  bool attempt(uint64_t address, Bytes code, size_t& done, bool careful, Listing& out) {
    const Request r{address + done, code.size() - done, careful};
    if (!send_all(fd_, &r, sizeof r) || !send_all(fd_, code.data() + done, code.size() - done)) return false;
    char text[1024];
    for (Answer a; take(&a, sizeof a);) {
      if (a.size == 0) return true;
      if (a.text > sizeof text || a.size > code.size() - done || !take(text, a.text)) return false;
      out.add(address + done, a.size, {text, a.text});
      done += a.size;
    }
    return false;
  }

  bool take(void* to, size_t size) {
    char* p = static_cast<char*>(to);
    while (size > 0) {
      if (at_ == end_) {
        pollfd wait{fd_, POLLIN, 0};
        int ready = 0;
        while ((ready = poll(&wait, 1, kSilentMs)) < 0 && errno == EINTR) {
        }
        if (ready <= 0) return false;
        const ssize_t n = recv(fd_, buffer_.data(), buffer_.size(), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at_ = 0;
        end_ = static_cast<size_t>(n);
      }
      const size_t n = std::min(size, end_ - at_);
      std::memcpy(p, buffer_.data() + at_, n);
      at_ += n;
      p += n;
      size -= n;
    }
    return true;
  }

  void stop() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    if (child_ > 0) {
      kill(child_, SIGKILL);
      while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    child_ = -1;
  }

  std::function<std::unique_ptr<Decoder>()> make_;
  pid_t child_ = -1;
  int fd_ = -1;
  std::vector<char> buffer_ = std::vector<char>(kChunk);
  size_t at_ = 0, end_ = 0;
};

}  // namespace

std::unique_ptr<Disassembler> disassembler_in_child(std::function<std::unique_ptr<Decoder>()> make) {
  auto child = std::make_unique<InChild>(std::move(make));
  return child->start() ? std::move(child) : nullptr;
}

bool run_lines(const std::vector<std::string>& command, const std::function<void(std::string_view)>& line) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const bool started = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (!started) {
    close(ends[0]);
    return false;
  }
  std::string pending;
  char buffer[1 << 16];
  bool ok = true;
  for (;;) {
    pollfd wait{ends[0], POLLIN, 0};
    if (poll(&wait, 1, kSilentMs) <= 0) {
      ok = false;
      break;
    }
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    pending.append(buffer, static_cast<size_t>(n));
    size_t start = 0;
    for (size_t end; (end = pending.find('\n', start)) != std::string::npos; start = end + 1)
      line(std::string_view(pending).substr(start, end - start));
    pending.erase(0, start);
    if (pending.size() > (1 << 20)) pending.clear();  // no line of an instruction is that long
  }
  close(ends[0]);
  if (!ok) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace pyflame::tools::inspect
