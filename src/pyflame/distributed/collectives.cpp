// The collectives of a Group. All of them are made of one step, move(): bytes to and from several ranks at the same time. A reduction goes in two
// steps: each rank gets its part of all ranks and combines them in the order of the ranks; then it gives the result to those that want it. A large
// all_reduce of ranks that reach each other's memory is the exception.
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

#include "pyflame/base/error.h"
#include "pyflame/distributed/direct.h"
#include "pyflame/distributed/group.h"
#include "pyflame/distributed/logged.h"
#include "pyflame/distributed/peer.h"

namespace pyflame::distributed {

namespace {

constexpr size_t kPart = size_t{512} << 10;     // bytes of a part that is reduced at a time; less than a ring
constexpr size_t kDirect = size_t{64} << 10;    // a broadcast of fewer bytes goes to each rank directly
constexpr size_t kInPlace = size_t{256} << 10;  // an all_reduce of fewer bytes goes through the rings
constexpr size_t kChunks =
    size_t{1}
    << 20;  // bytes of the chunks of all ranks that are reduced at a time; they stay in the second-level cache
constexpr size_t kLeastChunk = size_t{64} << 10;  // bytes of one of them

constexpr size_t kChecked = size_t{4} << 10;  // bytes that two ranks send each other when a group is new

// Bytes that differ between pairs, directions and places: those of a linear congruential generator.
std::vector<char> pattern(int from, int to) {
  std::vector<char> made(kChecked);
  uint64_t state = static_cast<uint64_t>(from) * 40503 + static_cast<uint64_t>(to) * 9973 + 17;
  for (char& byte : made) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return made;
}

size_t most_elements(DType dtype) { return std::max(kPart / static_cast<size_t>(dtype_size(dtype)), size_t{1}); }

// Memory for a chunk of each rank. In small pages, the processor would need more time to find their addresses than for the copies.
char* chunks_of(size_t ranks) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = (std::max(kChunks, ranks * kLeastChunk) + kHugePage - 1) / kHugePage * kHugePage;
  void* p = std::aligned_alloc(kHugePage, bytes);
  if (!p) throw std::bad_alloc();
  madvise(p, bytes, MADV_HUGEPAGE);  // a hint: refusal is harmless
  return static_cast<char*>(p);
}

}  // namespace

void Group::barrier(const Call& call) {
  const Logged log(*this, call, 0);
  meet(call);
}

// All ranks make this call.
void Group::meet(const Call& call) {
  const std::vector<size_t> none(peers_.size(), 0);
  agree(call, none, none);
}

// Part p of `in` goes to rank p; the parts that others have for this rank come to `scratch`, one after the other by rank.
void Group::parts_exchange(const char* in, char* scratch, size_t part, size_t width) {
  std::vector<Transfer> transfers;
  for (int i = 1; i < size(); ++i) {
    const int p = (rank_ + i) % size();
    const auto at = static_cast<size_t>(p);
    transfers.push_back({p, nullptr, in + at * width, part});
    transfers.push_back({p, scratch + at * part, nullptr, part});
  }
  move(std::move(transfers));
}

// While it exists, the other ranks may read and write these data of a call. Its end waits for those that write, so that nobody writes into memory
// that the caller uses again, however the call ends. That is short: a rank that writes does nothing else until it has.
class Group::Opened {
 public:
  Opened(Group& group, void* data, size_t bytes) : group_(group) {
    active_ = group.broken_.empty() && !group.pids_.empty() && !group.in_child_ && bytes >= kInPlace;
    if (!active_) return;
    if (!group.chunks_) group.chunks_.reset(chunks_of(group.peers_.size()));
    char* at = static_cast<char*>(data);
    const int self = group.pids_[static_cast<size_t>(group.rank_)];
    reachable_ = true;
    for (char* byte : {at, at + bytes - 1}) {  // such as memory that belongs to a device is not
      char value = 0;
      const auto there = reinterpret_cast<uintptr_t>(byte);
      reachable_ = reachable_ && read_memory(self, &value, there, 1) && write_memory(self, there, &value, 1);
    }
    set(reachable_ ? reinterpret_cast<uintptr_t>(data) : Ring::kThroughRings);
  }
  ~Opened() {
    if (!active_) return;
    set(0);
    for (int p = 0; p < group_.size(); ++p) {
      const Peer& peer = *group_.peers_[static_cast<size_t>(p)];
      while (p != group_.rank_ && peer.in->reaching.load() && !peer.ended) {
        ::poll(nullptr, 0, 1);
        group_.read_control(p);
      }
    }
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  // After the ranks agreed: whether the data of all of them are open. All ranks find the same, unless one gave up.
  bool by_all() const {
    return reachable_ && std::all_of(group_.peers_.begin(), group_.peers_.end(),
                                     [](const auto& p) { return !p->in || p->in->open.load() > Ring::kThroughRings; });
  }

 private:
  void set(uint64_t to) {
    for (const auto& p : group_.peers_)
      if (p->out) p->out->open.store(to);
  }
  Group& group_;
  bool active_ = false, reachable_ = false;
};

// Raises what would end a wait.
void Group::look() {
  for (int p = 0; p < size(); ++p)
    if (p != rank_) read_control(p);
  check_time([](int) { return true; }, false);
}

// Copies open memory of a peer to `here`, or `here` to it. `here` may be anything of this process.
void Group::reach(int peer, bool write, char* here, uint64_t there, size_t bytes) {
  Peer& p = *peers_[static_cast<size_t>(peer)];
  const int pid = pids_[static_cast<size_t>(peer)];
  bool done = false;
  int error = 0;
  // Either this rank sees that the peer has closed its memory, or the peer sees that this one is about to write, and waits.
  if (write) p.out->reaching.store(1);
  if (p.in->open.load()) {
    done = write ? write_memory(pid, there, here, bytes) : read_memory(pid, here, there, bytes);
    error = errno;
  }
  if (write) p.out->reaching.store(0);
  if (done) return;
  if (error != ESRCH && p.in->open.load())
    give_up(fmt::format(
        "{}: the memory of {} cannot be {}; got {}; expected what was possible when the ranks connected; hint: "
        "PYFLAME_DIRECT_MEMORY=0",
        call_->text, name(peer), write ? "written" : "read", std::strerror(error)));
  for (;;) wait(nullptr, [&](int q) { return q == peer; });  // it ends or gives up: its socket says why
}

// A rank reduces its part of the data, chunk by chunk: it reads the chunks of the others, and writes the result into the memory of all. Nobody else
// touches this part in the meantime, so there is nothing to wait for until the end.
void Group::reduce_in_place(char* data, size_t count, DType dtype, Reduction op) {
  const size_t n = peers_.size(), item = static_cast<size_t>(dtype_size(dtype)), part = (count + n - 1) / n;
  const size_t most = std::max(kChunks / n, kLeastChunk) / item,
               end = std::min((static_cast<size_t>(rank_) + 1) * part, count);
  std::vector<uint64_t> theirs(n);
  std::vector<const void*> sources(n);
  std::vector<Transfer> ends;
  char ended = 0;
  for (size_t i = 1; i < n; ++i) {
    const size_t p = (static_cast<size_t>(rank_) + i) % n;
    theirs[p] = peers_[p]->in->open.load();
    sources[p] = chunks_.get() + p * most * item;
    ends.push_back({static_cast<int>(p), nullptr, "", 1});
    ends.push_back({static_cast<int>(p), &ended, nullptr, 1});
  }
  for (size_t begin = static_cast<size_t>(rank_) * part; begin < end; begin += most) {
    const size_t elements = std::min(most, end - begin);
    char* own = data + begin * item;
    sources[static_cast<size_t>(rank_)] = own;
    look();
    for (const Transfer& t : ends) {
      const auto p = static_cast<size_t>(t.peer);
      if (t.to) reach(t.peer, false, chunks_.get() + p * most * item, theirs[p] + begin * item, elements * item);
    }
    distributed::reduce(op, dtype, own, sources, elements);
    for (const Transfer& t : ends)
      if (t.to) reach(t.peer, true, own, theirs[static_cast<size_t>(t.peer)] + begin * item, elements * item);
  }
  move(std::move(ends));  // each rank tells the others that it has written
}

void Group::all_reduce(const Call& call, void* data, size_t count, DType dtype, Reduction op) {
  check_reduction(call.text.c_str(), op, dtype);
  const Logged log(*this, call, count * static_cast<size_t>(dtype_size(dtype)));
  const size_t n = peers_.size(), item = static_cast<size_t>(dtype_size(dtype)), most = most_elements(dtype);
  const Opened opened(*this, data, count * item);
  meet(call);
  if (opened.by_all()) return reduce_in_place(static_cast<char*>(data), count, dtype, op);
  std::vector<char> scratch;
  // A block has a part for each rank. Its last part may be shorter than the others, or empty.
  for (size_t begin = 0; begin < count; begin += most * n) {
    const size_t block = std::min(most * n, count - begin), part = (block + n - 1) / n;
    char* at = static_cast<char*>(data) + begin * item;
    const auto first = [&](size_t p) { return std::min(p * part, block); };
    const auto elements = [&](size_t p) { return first(p + 1) - first(p); };
    const auto me = static_cast<size_t>(rank_);
    scratch.resize(n * part * item);
    std::vector<Transfer> out, back;
    std::vector<const void*> sources(n);
    for (size_t i = 1; i < n; ++i) {
      const size_t p = (me + i) % n;
      const int peer = static_cast<int>(p);
      out.push_back({peer, nullptr, at + first(p) * item, elements(p) * item});
      out.push_back({peer, scratch.data() + p * part * item, nullptr, elements(me) * item});
      back.push_back({peer, nullptr, at + first(me) * item, elements(me) * item});
      back.push_back({peer, at + first(p) * item, nullptr, elements(p) * item});
    }
    for (size_t p = 0; p < n; ++p) sources[p] = p == me ? at + first(me) * item : scratch.data() + p * part * item;
    move(std::move(out));
    distributed::reduce(op, dtype, at + first(me) * item, sources, elements(me));
    move(std::move(back));
  }
}

void Group::reduce_scatter(const Call& call, const void* in, void* out, size_t count, DType dtype, Reduction op) {
  check_reduction(call.text.c_str(), op, dtype);
  const Logged log(*this, call, peers_.size() * count * static_cast<size_t>(dtype_size(dtype)));
  meet(call);
  const size_t n = peers_.size(), item = static_cast<size_t>(dtype_size(dtype)), most = most_elements(dtype);
  const auto me = static_cast<size_t>(rank_);
  std::vector<char> scratch(n * std::min(most, count) * item);
  for (size_t begin = 0; begin < count; begin += most) {
    const size_t part = std::min(most, count - begin);
    const char* from = static_cast<const char*>(in) + begin * item;
    parts_exchange(from, scratch.data(), part * item, count * item);
    std::vector<const void*> sources(n);
    for (size_t p = 0; p < n; ++p) sources[p] = p == me ? from + p * count * item : scratch.data() + p * part * item;
    distributed::reduce(op, dtype, static_cast<char*>(out) + begin * item, sources, part);
  }
}

void Group::reduce(const Call& call, void* data, size_t count, DType dtype, Reduction op, int root) {
  check_reduction(call.text.c_str(), op, dtype);
  const Logged log(*this, call, count * static_cast<size_t>(dtype_size(dtype)));
  meet(call);
  const size_t n = peers_.size(), item = static_cast<size_t>(dtype_size(dtype)), most = most_elements(dtype);
  std::vector<char> scratch(rank_ == root ? n * std::min(most, count) * item : 0);
  for (size_t begin = 0; begin < count; begin += most) {
    const size_t part = std::min(most, count - begin);
    char* at = static_cast<char*>(data) + begin * item;
    if (rank_ != root) {
      move({{root, nullptr, at, part * item}});
      continue;
    }
    std::vector<Transfer> transfers;
    std::vector<const void*> sources(n);
    for (size_t p = 0; p < n; ++p) {
      sources[p] = static_cast<int>(p) == root ? at : scratch.data() + p * part * item;
      if (static_cast<int>(p) != root)
        transfers.push_back({static_cast<int>(p), scratch.data() + p * part * item, nullptr, part * item});
    }
    move(std::move(transfers));
    distributed::reduce(op, dtype, at, sources, part);
  }
}

void Group::all_gather(const Call& call, const void* in, void* out, size_t bytes) {
  const Logged log(*this, call, bytes);
  meet(call);
  char* to = static_cast<char*>(out);
  std::vector<Transfer> transfers;
  for (int i = 1; i < size(); ++i) {
    const int p = (rank_ + i) % size();
    transfers.push_back({p, nullptr, static_cast<const char*>(in), bytes});
    transfers.push_back({p, to + static_cast<size_t>(p) * bytes, nullptr, bytes});
  }
  if (bytes) std::memmove(to + static_cast<size_t>(rank_) * bytes, in, bytes);
  move(std::move(transfers));
}

void Group::broadcast(const Call& call, void* data, size_t bytes, int root) {
  const Logged log(*this, call, bytes);
  meet(call);
  char* at = static_cast<char*>(data);
  std::vector<Transfer> transfers;
  const bool direct = bytes < kDirect || size() <= 2;
  // Large ones: each rank gets a part and gives it to the others, so that the root sends every byte once.
  const size_t n = peers_.size(), part = direct ? bytes : (bytes + n - 2) / (n - 1);
  const auto nth = [&](int p) {
    return static_cast<size_t>(p > root ? p - 1 : p);
  };  // among the ranks without the root
  const auto first = [&](int p) { return direct ? 0 : std::min(nth(p) * part, bytes); };
  const auto length = [&](int p) { return direct ? bytes : std::min((nth(p) + 1) * part, bytes) - first(p); };
  if (rank_ != root) {
    move({{root, at + first(rank_), nullptr, length(rank_)}});
    if (direct) return;
    for (int p = 0; p < size(); ++p) {
      if (p == rank_ || p == root) continue;
      transfers.push_back({p, nullptr, at + first(rank_), length(rank_)});
      transfers.push_back({p, at + first(p), nullptr, length(p)});
    }
  } else {
    for (int p = 0; p < size(); ++p)
      if (p != root) transfers.push_back({p, nullptr, at + first(p), length(p)});
  }
  move(std::move(transfers));
}

void Group::exchange(const Call& call, const void* in, const std::vector<size_t>& in_bytes, void* out,
                     const std::vector<size_t>& out_bytes) {
  const Logged log(*this, call, std::accumulate(in_bytes.begin(), in_bytes.end(), size_t{0}));
  agree(call, in_bytes, out_bytes);
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  std::vector<Transfer> transfers;
  for (size_t p = 0; p < peers_.size(); ++p) {
    const int peer = static_cast<int>(p);
    if (peer == rank_) {
      if (in_bytes[p]) std::memmove(to, from, in_bytes[p]);
    } else {
      transfers.push_back({peer, nullptr, from, in_bytes[p]});
      transfers.push_back({peer, to, nullptr, out_bytes[p]});
    }
    from += in_bytes[p];
    to += out_bytes[p];
  }
  move(std::move(transfers));
}

std::vector<std::vector<uint32_t>> Group::check_paths(const Call& call) {
  begin(call);
  const size_t n = peers_.size(), me = static_cast<size_t>(rank_);
  std::vector<std::vector<char>> sent(n), taken(n);
  std::vector<Transfer> transfers;
  for (int i = 1; i < size(); ++i) {
    const int p = (rank_ + i) % size();
    const auto at = static_cast<size_t>(p);
    sent[at] = pattern(rank_, p);
    taken[at].resize(kChecked);
    transfers.push_back({p, nullptr, sent[at].data(), kChecked});
    transfers.push_back({p, taken[at].data(), nullptr, kChecked});
  }
  move(std::move(transfers));
  std::vector<std::vector<uint32_t>> wrong(n, std::vector<uint32_t>(n, 0));
  transfers.clear();
  for (size_t p = 0; p < n; ++p) {
    if (p == me) continue;
    const std::vector<char> expected = pattern(static_cast<int>(p), rank_);
    for (size_t i = 0; i < kChecked; ++i) wrong[me][p] += taken[p][i] != expected[i];
  }
  for (size_t p = 0; p < n; ++p) {
    if (p == me) continue;
    const size_t bytes = n * sizeof(uint32_t);
    transfers.push_back({static_cast<int>(p), nullptr, reinterpret_cast<const char*>(wrong[me].data()), bytes});
    transfers.push_back({static_cast<int>(p), reinterpret_cast<char*>(wrong[p].data()), nullptr, bytes});
  }
  move(std::move(transfers));
  return wrong;
}

}  // namespace pyflame::distributed
