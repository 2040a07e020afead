// Writes report.html of a training run, and profiles a few steps for it. Five steps after the warm-up are enough, because each step does
// the same work. Recording them costs less than reading a loss.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/gpt/metrics.h"
#include "apps/gpt/trainer.h"
#include "pyflame/runtime/profiler.h"

namespace pyflame::apps::gpt {

class StepProfile {
 public:
  // Records kSteps of the `to_do` steps. The first kWarmup steps are skipped, or fewer if too few steps would remain.
  explicit StepProfile(int64_t to_do);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;
  void before_step();
  void after_step();
  // Call before work that is not a step (a measurement, a checkpoint). It ends the recording. The longest recording is kept.
  void interrupt();
  const std::optional<events::Recording>& recording() const { return recording_; }
  int64_t steps() const { return steps_; }  // in the recording

 private:
  int64_t first_, seen_ = 0, recorded_ = 0, steps_ = 0;
  int attempts_ = 0;
  bool on_ = false;
  int64_t began_ = 0;
  std::optional<events::Recording> recording_;
};

enum class RunStatus : uint8_t { running, interrupted, finished };

struct RunFacts {
  std::string out, data, device;
  int64_t first_step = 0;  // more than 0 if the run was resumed at that step
  double seconds = 0;
  RunStatus status = RunStatus::running;
};

nlohmann::json run_document(const RunFacts& facts, GptTrainer& trainer, const std::vector<Metric>& metrics,
                            const StepProfile& profile);
// Writes report.html, and trace.json if steps were recorded.
void write_run_report(const RunFacts& facts, GptTrainer& trainer, const std::vector<Metric>& metrics,
                      const StepProfile& profile);

}  // namespace pyflame::apps::gpt
