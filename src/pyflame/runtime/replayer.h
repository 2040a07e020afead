// Decides whether a program's launches are replayed as one GPU graph. A program that ran a few times gets a graph. Its
// first replay, and the first one after its addresses changed, are compared bit by bit with launches that start from
// the same bytes. Replay is kept only if it costs the host less than launching. A program whose outputs differ is
// launched step by step from then on, and pf.explain() says so. See docs/internals/replay.md.
//
// Steps that share no memory may run at the same time. Whether that is faster than one after the other is measured
// once, when the first replay has been verified.
//
// Pointers and params are arguments of the graph's nodes. A step whose arguments are those of the last replay is not
// changed. The others are brought up to date by calling the step's run() while its launches are directed to the graph.
// Up to four graphs are kept, because a training loop often alternates between the addresses of two batches.
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
  const Program& program;
  Window& window;
  DeviceMemory* memory;  // null: the host's
  const Indexed<BindingId, void*>& pointers;
  const Indexed<SlotId, char*>& bases;  // null: it has no memory
  char* arena;
  void* fault;
  int32_t site;
  void* const* workspaces = nullptr;  // of the steps, where they are not in the arena (debugged_run.h)
  char* workspace(size_t step) const {
    if (workspaces) return static_cast<char*>(workspaces[step]);
    const Placement& at = program.memory.workspaces[step];
    return (at.donor.valid() ? bases[at.donor] : arena) + at.offset;
  }
  RunContext context(size_t step) const {
    return {pointers.data(), window.params.data(),
            workspace(step), window.device.index,
            fault,           site + static_cast<int32_t>(step)};
  }
};

class Replayer {
 public:
  enum class Plan { Launch, Verify, Done };
  // Done: the run was replayed; frame.site is then that of the graph. Verify: call snapshot(), launch the steps, call
  // verify().
  Plan plan(Frame& frame);
  void snapshot(const Frame& frame);
  void verify(const Frame& frame);
  // The run was launched step by step, which took the host this long.
  void launched(double us);
  std::string describe() const;  // one line for pf.explain()
  bool on() const { return state_ == State::On; }

 private:
  struct Graph {
    std::unique_ptr<Replay> replay;
    Indexed<BindingId, void*> pointers;
    char* arena = nullptr;
    Indexed<ParamId, Param> params;
    int32_t site = 0;
    uint64_t used = 0;
  };
  struct Uses {  // the arguments of a step
    std::vector<BindingId> bindings;
    std::vector<ParamId> params;
    std::vector<size_t> after;  // the steps that must come before it, without those that are implied by others
    bool reports = false;       // it may report a fault, so each replay needs a site of its own
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
  double time_graph(Graph& g, const Frame& frame, int times);

  enum class State { Counting, On, Off } state_ = State::Counting;
  std::string why_;  // Off
  int runs_ = 0;
  double launch_us_ = 1e30, replay_us_ = 1e30;  // of the host
  double device_us_ = 0;                        // from the launch of a graph to its end
  uint64_t replays_ = 0, builds_ = 0, updates_ = 0, moves_ = 0;
  int measured_ = 0;
  bool branches_ = true;  // steps that share no memory may run at the same time
  bool verified_build_ = false, verified_update_ = false;
  std::vector<Uses> uses_;
  bool reports_ = false;  // one of the steps does
  std::vector<Graph> graphs_;
  size_t under_test_ = 0;
  // While a replay is verified: the contents of what the program writes, before and after the launches.
  struct Saved {
    SlotId slot;
    size_t at, nbytes;
    bool before;    // had contents before the run
    bool compared;  // workspaces only are not: what lies there afterwards is nobody's result
  };
  std::vector<Saved> saved_;
  bool rows_unsaved_ = false;  // some slot of which rows are replaced is not saved
  Device device_;
  char *before_ = nullptr, *after_ = nullptr;
  size_t saved_bytes_ = 0;
};

struct ReplayStats {
  uint64_t programs = 0;  // programs that are replayed
  uint64_t replays = 0, builds = 0, updates = 0, verified = 0, differed = 0;
  uint64_t refused = 0;  // programs that are launched step by step, for any reason
};
ReplayStats replay_stats();

}  // namespace pyflame
