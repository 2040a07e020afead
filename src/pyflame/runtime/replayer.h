// Whether a program's launches are replayed as one GPU graph. A program that ran a few times gets a graph; its first replay, and the
// first one after its addresses changed, are compared bit by bit with launches from the same bytes; and it stays only where it costs the
// host less than launching does. A program whose outputs differ is launched from then on, and says so in pf.explain().
//
// Steps that share no memory may run at the same time; whether that is faster than one after the other is measured once, when the first
// replay has been verified.
//
// Pointers and params are arguments of the nodes. A step whose arguments are those of the last replay is left alone; the others are
// brought up to date by running the step with its launches going to the graph. Up to four graphs are kept, because a training loop
// alternates between the addresses of two batches.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/compile/program.h"

namespace pyflame {

// A program with the addresses of one run.
struct Frame {
  Program& program;
  Window& window;
  DeviceMemory* memory;             // null: the host's
  std::span<void* const> pointers;  // by binding
  std::span<char* const> bases;     // by slot; null: not in memory
  char* arena;
  void* fault;
  int32_t site;
  RunContext context(size_t step) const {
    return {pointers.data(),
            window.params.data(),
            arena + program.steps[step].workspace_offset,
            window.device.index,
            fault,
            site + static_cast<int32_t>(step)};
  }
};

class Replayer {
 public:
  enum class Plan { Launch, Verify, Done };
  // Done: the run has been replayed; frame.site is then the graph's. Verify: call snapshot(), launch, call verify().
  Plan plan(Frame& frame);
  void snapshot(const Frame& frame);
  void verify(const Frame& frame);
  // A run was launched, which took the host so long.
  void launched(double us);
  std::string describe() const;  // one line for pf.explain()

 private:
  struct Graph {
    std::unique_ptr<Replay> replay;
    std::vector<void*> pointers;
    char* arena = nullptr;
    std::vector<Param> params;
    int32_t site = 0;
    uint64_t used = 0;
  };
  struct Uses {  // what a step's arguments are made of
    std::vector<int32_t> bindings, params;
    std::vector<size_t> after;  // the steps that it has to come after, without those that these come after
  };
  void off(std::string why);
  void learn(const Program& p);
  void find_order(const Program& p);
  bool build(Graph& g, const Frame& frame);
  bool bring_up_to_date(Graph& g, const Frame& frame, bool pointers_too);
  Plan replay(Graph& g, Frame& frame);
  void drop_snapshot();
  void restore(const Frame& frame, bool garbage);
  bool same_outputs(const Frame& frame);
  bool replays_right(Graph& g, const Frame& frame);
  double time_graph(Graph& g, const Frame& frame);

  enum class State { Counting, On, Off } state_ = State::Counting;
  std::string why_;  // Off
  int runs_ = 0;
  double launch_us_ = 1e30, replay_us_ = 1e30;
  uint64_t replays_ = 0, builds_ = 0, updates_ = 0, moves_ = 0;
  int measured_ = 0;
  bool branches_ = true;  // steps at the same time
  bool verified_build_ = false, verified_update_ = false;
  std::vector<Uses> uses_;
  std::vector<Graph> graphs_;
  size_t under_test_ = 0;
  // While a replay is verified: what the program writes, before and after the launches.
  struct Saved {
    int32_t slot;
    size_t at, nbytes;
    bool before;  // had contents
  };
  std::vector<Saved> saved_;
  Device device_;
  char *before_ = nullptr, *after_ = nullptr;
  size_t saved_bytes_ = 0;
};

struct ReplayStats {
  uint64_t programs = 0;  // that are replayed
  uint64_t replays = 0, builds = 0, updates = 0, verified = 0, differed = 0;
  uint64_t refused = 0;  // programs that are launched, for whatever reason
};
ReplayStats replay_stats();

}  // namespace pyflame
