// report.html of a training run, and the few steps that are profiled for it. Five steps after the warm-up are enough: a step does the same
// work each time, and recording them costs less than reading a loss.
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
  // Records kSteps steps from the kWarmup-th of `to_do` on, or earlier where there are fewer.
  explicit StepProfile(int64_t to_do);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;
  void before_step();
  void after_step();
  // Something else than a step comes (a measurement, a checkpoint): what has been recorded counts, until a longer stretch is found.
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
  int64_t first_step = 0;  // more than 0: resumed there
  double seconds = 0;
  RunStatus status = RunStatus::running;
};

nlohmann::json run_document(const RunFacts& facts, GptTrainer& trainer, const std::vector<Metric>& metrics,
                            const StepProfile& profile);
// Writes report.html, and trace.json where steps were recorded.
void write_run_report(const RunFacts& facts, GptTrainer& trainer, const std::vector<Metric>& metrics,
                      const StepProfile& profile);

}  // namespace pyflame::apps::gpt
