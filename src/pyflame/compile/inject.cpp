// Wraps executables so that a chosen run fails.
#include "pyflame/compile/inject.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "pyflame/base/error.h"
#include "pyflame/compile/program.h"

namespace pyflame {

namespace {

struct State {
  std::atomic<bool> on{false};
  std::mutex mutex;
  Injection injection;
  uint64_t runs = 0;
};
State& state() {
  static State* s = new State;
  return *s;
}

struct InjectedRun {
  bool fails = false, after = false;
  Injection how = {};
  std::string op;
  uint64_t run = 0;
};
// Counts one run of a step with these ops.
InjectedRun next_run(const std::vector<std::string>& ops) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const auto found = s.injection.op.empty() ? ops.begin() : std::find(ops.begin(), ops.end(), s.injection.op);
  if (!s.on || found == ops.end()) return {};
  const uint64_t run = s.runs++;
  if (run != s.injection.run) return {};
  return {true, s.injection.after, s.injection, *found, run};
}

class Failing final : public Executable {
 public:
  Failing(const Problem& p, std::unique_ptr<Executable> e) : inner_(std::move(e)) {
    for (size_t i = 0; i < p.size(); ++i) {
      ops_.emplace_back(op_name(p.node(i).op));
      for (const Operand& o : p.node(i).outs)
        if (p.group.stores(o)) result_ = o;
    }
    backend_ = find_backend(p.graph.device.type);
  }
  void run(const RunContext& ctx) override {
    const InjectedRun current = next_run(ops_);
    if (current.fails && current.how.misbehaviour != Injection::Fails) return misbehave(ctx, current.how);
    if (inner_ && (!current.fails || current.after)) inner_->run(ctx);
    if (current.fails)
      PF_FAIL(Runtime, "{}: the kernel failed on purpose; got an injected failure in run {}; expected none", current.op,
              current.run);
  }
  size_t workspace() const override { return inner_ ? inner_->workspace() : 0; }
  bool capturable() const override { return false; }

 private:
  void misbehave(const RunContext& ctx, const Injection& how) {
    if (how.misbehaviour == Injection::Skips) return;
    if (inner_) inner_->run(ctx);
    auto* p = ctx.ptr<volatile unsigned char>(result_) + how.offset;
    constexpr uint8_t kValue = 0x11;
    if (DeviceMemory* memory = backend_->memory(ctx.device))
      return memory->fill(const_cast<unsigned char*>(p), kValue, static_cast<size_t>(how.count));
    unsigned sum = 0;
    for (int64_t i = 0; i < how.count; ++i)
      if (how.misbehaviour == Injection::Writes) p[i] = kValue;
      else sum += p[i];
    static_cast<void>(sum);
  }

  std::unique_ptr<Executable> inner_;
  Operand result_;
  const Backend* backend_ = nullptr;
  std::vector<std::string> ops_;
};

}  // namespace

void start_injecting(Injection injection) {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    s.injection = std::move(injection);
    s.runs = 0;
    s.on = true;
  }
  clear_program_cache();
}

uint64_t stop_injecting() {
  State& s = state();
  uint64_t runs = 0;
  {
    std::lock_guard lock(s.mutex);
    s.on = false;
    runs = s.runs;
  }
  clear_program_cache();
  return runs;
}

bool injecting() { return state().on.load(std::memory_order_relaxed); }

std::unique_ptr<Executable> may_fail(const Problem& p, std::unique_ptr<Executable> e) {
  return std::make_unique<Failing>(p, std::move(e));
}

}  // namespace pyflame
