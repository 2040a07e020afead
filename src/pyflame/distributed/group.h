// A group of processes that exchange bytes through sockets and, where two of them are on one host, through rings in shared memory
// (docs/decisions/0018-distributed.md). Each pair of ranks has three sockets: `control` for what is said about calls, `data` for bytes where there is
// no shared memory, `messages` for send and recv. Large reductions between processes of one host that may reach each other's memory need
// no rings: each rank reads and writes its part of the others' data where it lies. Collective calls of a group are made by one thread at a time.
//
// Before any data is moved, each rank tells all others which call it makes. The calls of a group are numbered, and a rank takes from each other
// rank what that one said about the call of the same number. A call that a rank refuses before it takes part (refuse()) has a number as well: then the
// others raise an error for that call, and no later call is taken for it. Calls that differ raise the same error on every rank, and the
// group stays usable. A rank whose call fails for another reason (timeout, a rank that ended, an interrupt) tells the others, whose calls then fail too,
// and the group is broken.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/base/collective_event.h"
#include "pyflame/distributed/reduce.h"

namespace pyflame::distributed {

// What a rank says about its call. The signatures of all ranks must be equal; `text` is for people: the op, its shapes and the line of Python.
struct Call {
  std::string signature, text;
  double timeout = 0;                 // seconds
  std::function<bool()> interrupted;  // asked while the call waits; true ends it
  std::string op = {}, dtype = {};    // for profiles: "all_reduce", "float32"
  size_t item = 1;                    // bytes of an element
};

struct Peer;

// This process as one rank of a group. The calls block until the rank's part is done. A profile gets an event of each of them, with the wait for the other ranks in it.
class Group {
 public:
  // The sockets of each peer, by rank in the group; -1 for this rank itself. `memory`: for each rank, the memory file with the rings in which it
  // writes (memory_bytes() long); -1 where that rank is on another host, and for all if this one has none. The files may be closed
  // afterwards, the sockets belong to the group. `pids`: the processes of the ranks, if all of them have rings and may read and write the memory
  // of each other; otherwise nothing. It is the same on all ranks.
  Group(int rank, std::vector<int> names, const std::vector<int>& control, const std::vector<int>& data,
        const std::vector<int>& messages, const std::vector<int>& memory, std::vector<int> pids);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  static size_t memory_bytes(int size);
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  void set_label(std::string name) { label_.name = std::move(name); }  // of the group, in profiles

  // This rank raised an error for a call before it took part, such as for an argument. The call counts: the others raise an error where they make
  // it. Waits for nobody; does nothing in a group that is broken. `call.text` ends with the error.
  void refuse(const Call& call);

  void barrier(const Call& call);
  void all_reduce(const Call& call, void* data, size_t count, DType dtype, Reduction op);
  // `in` has size() parts of `count` elements; this rank's part of the result goes to `out`.
  void reduce_scatter(const Call& call, const void* in, void* out, size_t count, DType dtype, Reduction op);
  void reduce(const Call& call, void* data, size_t count, DType dtype, Reduction op, int root);
  void all_gather(const Call& call, const void* in, void* out, size_t bytes);
  void broadcast(const Call& call, void* data, size_t bytes, int root);
  // Bytes to and from each rank, one after the other in `in` and `out`.
  void exchange(const Call& call, const void* in, const std::vector<size_t>& in_bytes, void* out,
                const std::vector<size_t>& out_bytes);

  // Every rank calls it first of all, without an agreement. Each two ranks send each other bytes that both can compute. [r][p] is
  // how many bytes came to rank r otherwise than rank p sent them.
  std::vector<std::vector<uint32_t>> check_paths(const Call& call);

  // Not collective. One thread at a time may send to a peer, and one may receive from it.
  void send(const Call& call, int peer, const void* data, size_t bytes);
  // ValueError when the message is another one than `signature` says; it is then taken and dropped.
  void recv(const Call& call, int peer, void* data, size_t bytes);

  void close();           // calls under way and later ones fail; the sockets are closed when the group is destroyed
  void close_in_child();  // after a fork: the parent's connections must end with the parent
  std::string transport(int peer) const;  // "direct", "shared memory", "TCP" or "itself"
  std::vector<int> gone() const;          // the ranks (in the world) whose processes ended; asks, and waits for nothing

 private:
  void unmap();
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    int peer;
    char* to;          // null when it is sent
    const char* from;  // null when it is received
    size_t bytes, done = 0;
  };

  class Logged;
  void meet(const Call& call);
  void say(const Call& call, bool refused, const std::vector<size_t>& to, const std::vector<size_t>& from);
  void drop_earlier(int peer);
  void agree(const Call& call, const std::vector<size_t>& to, const std::vector<size_t>& from);
  void compare(const Call& call, const std::vector<size_t>& to, const std::vector<size_t>& from);
  void move(std::vector<Transfer> transfers);
  bool advance(Transfer& t);
  void read_control(int peer);
  void flush(int peer);
  void wait(const std::vector<Transfer>* transfers, const std::function<bool(int)>& needed);
  void check_time(const std::function<bool(int)>& needed, bool moving);
  void wake(int peer);
  class Opened;
  void reduce_in_place(char* data, size_t count, DType dtype, Reduction op);
  void reach(int peer, bool write, char* here, uint64_t there, size_t bytes);
  void look();
  void parts_exchange(const char* in, char* scratch, size_t part, size_t width);
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void lost(int peer);
  std::string name(int peer) const;
  std::string names(const std::vector<int>& ranks) const;
  void begin(const Call& call);
  void message_step(const Call& call, int fd, short events, Clock::time_point deadline, int peer);

  int rank_;
  std::vector<int> names_;  // the ranks in the world
  std::vector<int> pids_;   // of the ranks, which may reach each other's memory; none: they may not
  events::GroupName label_;
  std::vector<std::unique_ptr<Peer>> peers_;
  const Call* call_ = nullptr;
  Clock::time_point deadline_, look_;
  uint64_t calls_ = 0;
  std::string broken_;
  std::atomic<bool> closing_{false};
  std::vector<std::pair<void*, size_t>> mapped_;
  bool in_child_ = false;
  struct Freed {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Freed> chunks_;  // of the others' data, while they are reduced
};

}  // namespace pyflame::distributed
