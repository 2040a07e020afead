// The log behind pf.explain(): per thread, filled by the executor while it is on.
#include "pyflame/runtime/explain.h"

#include "pyflame/runtime/explain_log.h"
#include "pyflame/runtime/state.h"

namespace pyflame {

namespace {
struct Log {
  bool on = false;
  int windows = 0;
  std::string text;
};
thread_local Log t_log;
}  // namespace

void explain_start() {
  Recorder::current().cut(CutReason::Sync);
  t_log = {};
  t_log.on = true;
}

std::string explain_stop() {
  Recorder::current().cut(CutReason::Sync);
  t_log.on = false;
  std::string text = fmt::format("{} window{}\n", t_log.windows, t_log.windows == 1 ? "" : "s") + t_log.text;
  t_log = {};
  return text;
}

void explain_log(const CachedProgram& p, const char* reason, bool cached, double plan_us) {
  if (!t_log.on) return;
  ++t_log.windows;
  t_log.text += fmt::format("window {} (cut by {}; {}): {}", t_log.windows, reason,
                            cached ? std::string("cached program") : fmt::format("planned in {:.0f} us", plan_us),
                            describe_program(*p.program));
  if (has_own_memory(p.program->graph.device.type) && p.state->runs > 0)
    t_log.text += "  " + p.state->replayer.describe() + "\n";
}

}  // namespace pyflame
