#include "pyflame/distributed/group.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "pyflame/base/error.h"
#include "pyflame/base/fork.h"
#include "pyflame/distributed/logged.h"
#include "pyflame/distributed/peer.h"

namespace pyflame::distributed {

namespace {

constexpr char kCall = 'c', kLeft = 'x', kWake = 'w';
constexpr size_t kMostText = size_t{1} << 20;  // bytes of a frame; more is no frame of ours
constexpr int kLooks = 64;                     // looks at a ring before the thread sleeps
constexpr int kPause = 100;                    // milliseconds between two looks at the clock and at Ctrl-C

std::string bytes_of(uint64_t v) { return {reinterpret_cast<const char*>(&v), sizeof(v)}; }

uint64_t take_number(std::string_view& from) {
  uint64_t v = 0;
  if (from.size() >= sizeof(v)) {
    std::memcpy(&v, from.data(), sizeof(v));
    from.remove_prefix(sizeof(v));
  }
  return v;
}

std::string with_length(std::string_view text) { return bytes_of(text.size()) + std::string(text); }

std::string_view take_text(std::string_view& from) {
  const size_t n = std::min<size_t>(take_number(from), from.size());
  const std::string_view text = from.substr(0, n);
  from.remove_prefix(n);
  return text;
}

bool ended(ssize_t n) { return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR); }

// All groups, for fork: a child that kept the sockets open would hide the end of its parent from the other ranks.
struct Groups {
  std::mutex mutex;
  std::vector<Group*> all;
};
Groups& groups() {
  static Groups* g = new Groups;  // never destroyed: a process may fork while it ends
  return *g;
}
const AtFork g_groups_at_fork{ForkOrder::Groups, [] { groups().mutex.lock(); },
                              [](bool in_child) {
                                if (in_child)
                                  for (Group* g : groups().all) g->close_in_child();
                                groups().mutex.unlock();
                              }};

void prepare_socket(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails for sockets that are not TCP, which need none
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// A message that is sent or received. If it ends in the middle, what follows would be read as its rest: then the peer
// gets no more messages, and both sides are told.
class Whole {
 public:
  Whole(const Call& call, Peer& peer, const std::string& name) : peer_(peer) {
    PF_CHECK(
        !peer.cut, Runtime,
        "{}: an earlier message between this rank and {} ended in the middle; expected whole messages; hint: start "
        "the processes again",
        call.text, name);
  }
  ~Whole() {
    if (!begun_) return;
    peer_.cut = true;
    ::shutdown(peer_.messages, SHUT_RDWR);
  }
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
  void begin() { begun_ = true; }
  void end() { begun_ = false; }

 private:
  Peer& peer_;
  bool begun_ = false;
};

}  // namespace

size_t Group::memory_bytes(int size) { return static_cast<size_t>(size) * sizeof(Ring); }

Group::Group(int rank, std::vector<int> names, const std::vector<int>& control, const std::vector<int>& data,
             const std::vector<int>& messages, const std::vector<int>& memory, std::vector<int> pids)
    : rank_(rank), names_(std::move(names)), pids_(std::move(pids)), label_{"", names_} {
  const int size = static_cast<int>(control.size());
  for (int p = 0; p < size; ++p) {
    auto peer = std::make_unique<Peer>();
    if (p != rank) {
      peer->control = control[static_cast<size_t>(p)];
      peer->data = data[static_cast<size_t>(p)];
      peer->messages = messages[static_cast<size_t>(p)];
      for (const int fd : {peer->control, peer->data, peer->messages}) prepare_socket(fd);
    }
    peers_.push_back(std::move(peer));
  }
  const auto map = [&](int fd) {
    void* at = mmap(nullptr, memory_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      const int error = errno;
      unmap();
      PF_FAIL(OS, "init_process_group: shared memory cannot be mapped; got {}", std::strerror(error));
    }
    mapped_.emplace_back(at, memory_bytes(size));
    return static_cast<Ring*>(at);
  };
  const int own = memory[static_cast<size_t>(rank)];
  Ring* mine = own >= 0 ? map(own) : nullptr;
  for (int p = 0; p < size; ++p) {
    const int fd = memory[static_cast<size_t>(p)];
    if (p == rank || fd < 0 || !mine) continue;
    peers_[static_cast<size_t>(p)]->out = mine + p;
    peers_[static_cast<size_t>(p)]->in = map(fd) + rank;
  }
  const std::lock_guard lock(groups().mutex);
  groups().all.push_back(this);
}

Group::~Group() {
  {
    const std::lock_guard lock(groups().mutex);
    std::erase(groups().all, this);
  }
  if (!in_child_)
    for (const auto& p : peers_)
      for (const int fd : {p->control, p->data, p->messages})
        if (fd >= 0) ::close(fd);
  unmap();
}

void Group::unmap() {
  for (const auto& [at, bytes] : mapped_) munmap(at, bytes);
  mapped_.clear();
}

void Group::close() { closing_ = true; }

void Group::close_in_child() {
  if (in_child_) return;  // a child of a child: by now, other files may have these numbers
  in_child_ = true;
  for (const auto& p : peers_)
    for (const int fd : {p->control, p->data, p->messages})
      if (fd >= 0) ::close(fd);
}

std::string Group::transport(int peer) const {
  if (peer == rank_) return "itself";
  if (!pids_.empty()) return "direct";
  return peers_[static_cast<size_t>(peer)]->out ? "shared memory" : "TCP";
}

std::vector<int> Group::gone() const {
  std::vector<int> found;
  if (in_child_) return found;
  for (int p = 0; p < size(); ++p) {
    pollfd asked{peers_[static_cast<size_t>(p)]->control, POLLRDHUP, 0};
    if (asked.fd >= 0 && ::poll(&asked, 1, 0) == 1 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
      found.push_back(names_[static_cast<size_t>(p)]);
  }
  return found;
}

std::string Group::name(int peer) const { return fmt::format("rank {}", names_[static_cast<size_t>(peer)]); }

std::string Group::names(const std::vector<int>& ranks) const {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i ? ", " : "", names_[static_cast<size_t>(ranks[i])]);
  return text;
}

void Group::begin(const Call& call) {
  PF_CHECK(
      !in_child_, Runtime,
      "{}: this process was forked from a rank, and is none itself; hint: call init_process_group() in each process",
      call.text);
  PF_CHECK(broken_.empty(), Runtime,
           "{}: an earlier call broke the group; it said: {}; hint: start the processes again", call.text, broken_);
  call_ = &call;
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(call.timeout));
}

void Group::give_up(const std::string& why) {
  broken_ = why;
  const std::string frame = kLeft + with_length(why.substr(0, kMostText));
  for (int p = 0; p < size(); ++p) {
    if (p == rank_) continue;
    peers_[static_cast<size_t>(p)]->to_send += frame;
    flush(p);
  }
  PF_FAIL(Runtime, "{}", why);
}

void Group::lost(int peer) {
  give_up(fmt::format("{}: {} is gone; its process ended or destroyed its group; expected {} ranks", call_->text,
                      name(peer), size()));
}

void Group::flush(int peer) {
  Peer& p = *peers_[static_cast<size_t>(peer)];
  while (!p.to_send.empty() && !p.ended) {
    const ssize_t n = ::send(p.control, p.to_send.data(), p.to_send.size(), MSG_NOSIGNAL);
    if (n > 0) {
      p.to_send.erase(0, static_cast<size_t>(n));
    } else if (ended(n)) {
      p.to_send.clear();  // what the peer said before it ended is still to be read
    } else if (errno != EINTR) {
      return;
    }
  }
}

void Group::read_control(int peer) {
  Peer& p = *peers_[static_cast<size_t>(peer)];
  char buffer[4096];
  while (!p.ended) {
    const ssize_t n = ::recv(p.control, buffer, sizeof(buffer), 0);
    if (n > 0) {
      p.received.append(buffer, static_cast<size_t>(n));
      if (static_cast<size_t>(n) < sizeof(buffer)) break;
    } else if (ended(n)) {
      p.ended = true;
    } else if (errno != EINTR) {
      break;
    }
  }
  size_t at = 0;
  while (at < p.received.size()) {
    if (p.received[at] == kWake) {
      ++at;
      continue;
    }
    if (p.received.size() - at < 9) break;
    uint64_t length = 0;
    std::memcpy(&length, p.received.data() + at + 1, sizeof(length));
    if (length > 2 * kMostText) {
      p.ended = true;
      break;
    }
    if (p.received.size() - at - 9 < length) break;
    std::string text = p.received.substr(at + 9, length);
    if (p.received[at] == kCall) {
      p.calls.push_back(std::move(text));
    } else {
      p.left = true;
      p.gave_up = std::move(text);
    }
    at += 9 + length;
  }
  p.received.erase(0, at);
}

void Group::wake(int peer) {
  Peer& p = *peers_[static_cast<size_t>(peer)];
  p.to_send += kWake;
  flush(peer);
}

// Raises when the time is up, a rank gave up, or a rank of which something is still needed has ended. While data move
// (`moving`), a rank over TCP has ended only when its data socket is at its end, too: its last bytes may arrive after the
// end of its control socket.
void Group::check_time(const std::function<bool(int)>& needed, bool moving) {
  std::vector<int> missing;
  for (int p = 0; p < size(); ++p) {
    if (p == rank_) continue;
    const Peer& peer = *peers_[static_cast<size_t>(p)];
    if (peer.left) give_up(fmt::format("{}: {} gave up; it said: {}", call_->text, name(p), peer.gave_up));
    if (!needed(p)) continue;
    missing.push_back(p);
  }
  for (const int p : missing) {
    const Peer& peer = *peers_[static_cast<size_t>(p)];
    if (peer.ended && (!moving || peer.out || peer.data_ended)) lost(p);
  }
  if (closing_) give_up(fmt::format("{}: the group was destroyed while the call waited", call_->text));
  if (call_->interrupted && Clock::now() >= look_) {
    look_ = Clock::now() + std::chrono::milliseconds(kPause);
    if (call_->interrupted()) give_up(fmt::format("{}: interrupted", call_->text));
  }
  if (Clock::now() >= deadline_)
    give_up(fmt::format("{}: timed out after {:g} s; {} did not come; expected all {} ranks to make this call",
                        call_->text, call_->timeout, names(missing), size()));
}

// Sleeps until a socket has something, or for a turn.
void Group::wait(const std::vector<Transfer>* transfers, const std::function<bool(int)>& needed) {
  check_time(needed, transfers != nullptr);
  std::vector<pollfd> fds;
  std::vector<int> who;
  for (int p = 0; p < size(); ++p) {
    const Peer& peer = *peers_[static_cast<size_t>(p)];
    if (p == rank_ || peer.ended) continue;
    fds.push_back({peer.control, static_cast<short>(POLLIN | (peer.to_send.empty() ? 0 : POLLOUT)), 0});
    who.push_back(p);
  }
  const size_t controls = fds.size();
  if (transfers)
    for (const Transfer& t : *transfers) {
      const Peer& peer = *peers_[static_cast<size_t>(t.peer)];
      if (t.done < t.bytes && !peer.out) fds.push_back({peer.data, static_cast<short>(t.to ? POLLIN : POLLOUT), 0});
    }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count() + 1;
  ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, kPause)));
  for (size_t i = 0; i < controls; ++i) {
    if (fds[i].revents & POLLOUT) flush(who[i]);
    if (fds[i].revents & ~POLLOUT) read_control(who[i]);
  }
}

// Tells the others about the next call.
void Group::say(const Call& call, bool refused, const std::vector<size_t>& to, const std::vector<size_t>& from) {
  ++calls_;
  for (int p = 0; p < size(); ++p) {
    if (p == rank_) continue;
    const std::string said = bytes_of(calls_) + bytes_of(refused ? 1 : 0) + bytes_of(to[static_cast<size_t>(p)]) +
                             bytes_of(from[static_cast<size_t>(p)]) + with_length(call.signature) +
                             with_length(call.text.substr(0, kMostText));
    peers_[static_cast<size_t>(p)]->to_send += kCall + with_length(said);
    flush(p);
  }
}

void Group::refuse(const Call& call) {
  if (in_child_ || !broken_.empty()) return;
  const std::vector<size_t> none(peers_.size(), 0);
  say(call, true, none, none);
}

// What a rank said about calls before this one is of calls that this rank refused.
void Group::drop_earlier(int peer) {
  std::deque<std::string>& calls = peers_[static_cast<size_t>(peer)]->calls;
  while (!calls.empty()) {
    std::string_view first = calls.front();
    if (take_number(first) >= calls_) return;
    calls.pop_front();
  }
}

void Group::agree(const Call& call, const std::vector<size_t>& to, const std::vector<size_t>& from) {
  const events::Scope log(events::Kind::Wait, "wait for other ranks");
  begin(call);
  say(call, false, to, from);
  const auto needed = [&](int p) {
    drop_earlier(p);
    return peers_[static_cast<size_t>(p)]->calls.empty();
  };
  for (;;) {
    bool all = true;
    for (int p = 0; p < size(); ++p) {
      if (p == rank_) continue;
      if (needed(p)) read_control(p);
      all = all && !needed(p) && peers_[static_cast<size_t>(p)]->to_send.empty();
    }
    if (all) break;
    wait(nullptr, [&](int p) { return needed(p); });
  }
  for (int p = 0; p < size(); ++p) {  // it said which call it makes, and then gave up waiting for this rank
    const Peer& peer = *peers_[static_cast<size_t>(p)];
    if (p != rank_ && peer.left && peer.calls.size() == 1)
      give_up(fmt::format("{}: {} gave up; it said: {}", call_->text, name(p), peer.gave_up));
  }
  compare(call, to, from);
}

// Each rank has all calls, so each of them finds the same difference.
void Group::compare(const Call& call, const std::vector<size_t>& to, const std::vector<size_t>& from) {
  struct Said {
    uint64_t number, refused, to, from;
    std::string signature, text;
  };
  std::vector<Said> said(peers_.size());
  for (size_t p = 0; p < peers_.size(); ++p) {
    if (static_cast<int>(p) == rank_) {
      said[p] = {calls_, 0, to[p], from[p], call.signature, call.text};
      continue;
    }
    const std::string frame = std::move(peers_[p]->calls.front());
    peers_[p]->calls.pop_front();
    std::string_view rest = frame;
    Said& s = said[p];
    s.number = take_number(rest);
    s.refused = take_number(rest);
    s.to = take_number(rest);
    s.from = take_number(rest);
    s.signature = take_text(rest);
    s.text = take_text(rest);
  }
  std::string refusals, difference;
  for (size_t p = 0; p < said.size(); ++p)
    if (said[p].refused)
      refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", name(static_cast<int>(p)), said[p].text);
  PF_CHECK(refusals.empty(), Value,
           "{}: another rank raised an error for this call, which is number {} of the group; got {}; expected a call "
           "that every rank can make; hint: correct it on that rank; the group stays usable",
           call.text, calls_, refusals);
  for (size_t p = 1; p < said.size() && difference.empty(); ++p)
    if (said[p].signature != said[0].signature || said[p].number != said[0].number)
      for (size_t q = 0; q < said.size(); ++q)
        difference += fmt::format("{}{}: {}", q ? "; " : "", name(static_cast<int>(q)), said[q].text);
  PF_CHECK(difference.empty(), Value,
           "{}: the ranks make different calls; got {}; expected the same op, shape and dtype in the same order on "
           "every rank; this is call {} of the group",
           call.text, difference, calls_);
  for (size_t p = 0; p < said.size(); ++p)  // only the pair sees this, so the others are told
    if (static_cast<int>(p) != rank_ && (said[p].to != from[p] || said[p].from != to[p]))
      give_up(fmt::format(
          "{}: sizes differ between two ranks; {} sends {} bytes and expects {}; got {} to send to it, and {} "
          "expected of it; expected equal sizes on both sides",
          call.text, name(static_cast<int>(p)), said[p].to, said[p].from, to[p], from[p]));
}

bool Group::advance(Transfer& t) {
  Peer& p = *peers_[static_cast<size_t>(t.peer)];
  const size_t left = t.bytes - t.done;
  size_t moved = 0;
  if (p.out) {
    moved = t.to ? p.in->take(t.to + t.done, left) : p.out->write(t.from + t.done, left);
    if (moved) {
      std::atomic<uint32_t>& waits = t.to ? p.in->writer_waits : p.out->reader_waits;
      if (waits.load() && waits.exchange(0)) wake(t.peer);
    }
  } else {
    const ssize_t n =
        t.to ? ::recv(p.data, t.to + t.done, left, 0) : ::send(p.data, t.from + t.done, left, MSG_NOSIGNAL);
    if (n > 0) moved = static_cast<size_t>(n);
    else if (ended(n)) p.data_ended = true;  // why it has ended, its control socket says
  }
  t.done += moved;
  return moved > 0;
}

void Group::move(std::vector<Transfer> transfers) {
  std::erase_if(transfers, [](const Transfer& t) { return t.bytes == 0; });
  const auto needed = [&](int p) {
    return std::any_of(transfers.begin(), transfers.end(), [&](const Transfer& t) { return t.peer == p; });
  };
  int looks = 0;
  while (!transfers.empty()) {
    bool moved = false;
    for (Transfer& t : transfers) moved = advance(t) || moved;
    std::erase_if(transfers, [](const Transfer& t) { return t.done == t.bytes; });
    if (moved) {
      looks = 0;
      continue;
    }
    if (transfers.empty()) break;
    if (++looks < kLooks) {
      sched_yield();
      continue;
    }
    bool ready = false;
    for (const Transfer& t : transfers) {
      const Peer& p = *peers_[static_cast<size_t>(t.peer)];
      if (!p.out) continue;
      (t.to ? p.in->reader_waits : p.out->writer_waits).store(1);
      ready = ready || (t.to ? !p.in->empty() : !p.out->full());
    }
    if (!ready) wait(&transfers, needed);
  }
  for (int p = 0; p < size(); ++p)
    if (p != rank_) flush(p);
}

// Waits until a socket of messages is ready; raises when it must not wait any longer.
void Group::message_step(const Call& call, int fd, short events, Clock::time_point deadline, int peer) {
  pollfd p{fd, events, 0};
  ::poll(&p, 1, kPause);
  PF_CHECK(!closing_, Runtime, "{}: the group was destroyed while the call waited", call.text);
  PF_CHECK(!call.interrupted || !call.interrupted(), Runtime, "{}: interrupted", call.text);
  PF_CHECK(p.revents || Clock::now() < deadline, Runtime, "{}: timed out after {:g} s; {} did not come", call.text,
           call.timeout, name(peer));
}

void Group::send(const Call& call, int peer, const void* data, size_t bytes) {
  PF_CHECK(!in_child_, Runtime, "{}: this process was forked from a rank, and is none itself", call.text);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(call.timeout));
  const Logged log(*this, call, bytes, false);
  const int fd = peers_[static_cast<size_t>(peer)]->messages;
  const std::string head = bytes_of(bytes) + with_length(call.signature);
  Whole message(call, *peers_[static_cast<size_t>(peer)], name(peer));
  for (const std::string_view part : {std::string_view(head), std::string_view(static_cast<const char*>(data), bytes)})
    for (size_t done = 0; done < part.size();) {
      const ssize_t n = ::send(fd, part.data() + done, part.size() - done, MSG_NOSIGNAL);
      PF_CHECK(n >= 0 || !ended(n), Runtime, "{}: {} is gone; its process ended or destroyed its group", call.text,
               name(peer));
      if (n > 0) done += static_cast<size_t>(n), message.begin();
      else message_step(call, fd, POLLOUT, deadline, peer);
    }
  message.end();
}

void Group::recv(const Call& call, int peer, void* data, size_t bytes) {
  PF_CHECK(!in_child_, Runtime, "{}: this process was forked from a rank, and is none itself", call.text);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(call.timeout));
  const Logged log(*this, call, bytes, false);
  const int fd = peers_[static_cast<size_t>(peer)]->messages;
  Whole message(call, *peers_[static_cast<size_t>(peer)], name(peer));
  const auto read = [&](char* to, size_t length) {
    for (size_t done = 0; done < length;) {
      const ssize_t n = ::recv(fd, to + done, length - done, 0);
      PF_CHECK(!ended(n), Runtime, "{}: {} is gone; its process ended or destroyed its group", call.text, name(peer));
      if (n > 0) done += static_cast<size_t>(n), message.begin();
      else message_step(call, fd, POLLIN, deadline, peer);
    }
  };
  uint64_t sizes[2];
  {
    const events::Scope wait(events::Kind::Wait, "wait for other ranks");
    read(reinterpret_cast<char*>(sizes), sizeof(sizes));
  }
  PF_CHECK(sizes[1] <= kMostText, Runtime,
           "{}: the next bytes of {} are no message; got a description of {} bytes; expected at most {}", call.text,
           name(peer), sizes[1], kMostText);
  std::string signature(sizes[1], '\0');
  read(signature.data(), signature.size());
  if (signature == call.signature && sizes[0] == bytes) {
    read(static_cast<char*>(data), bytes);
    return message.end();
  }
  std::string dropped(std::min<size_t>(sizes[0], size_t{512} << 10), '\0');
  for (uint64_t left = sizes[0]; left > 0;) {
    const size_t n = std::min<size_t>(left, dropped.size());
    read(dropped.data(), n);
    left -= n;
  }
  message.end();
  PF_FAIL(Value, "{}: the next message of {} is another one; got {}; expected {}", call.text, name(peer), signature,
          call.signature);
}

}  // namespace pyflame::distributed
