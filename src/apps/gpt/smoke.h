// A short run before a long one: `pyflame train gpt --smoke`.
#pragma once
#include <vector>

#include "apps/gpt/metrics.h"
#include "apps/gpt/trainer.h"

namespace pyflame::apps::gpt {

struct SmokeResult {
  std::vector<Metric> metrics;
  double val_loss = 0;
};

// Trains a hundredth of the steps (at least two), measures the validation loss, and checks that losses are finite and that a checkpoint gives back the same
// state, from which the next update is the same. Says how long the real run will take. Writes nothing but a temporary file. RuntimeError if a check fails.
SmokeResult smoke(GptTrainer& trainer, int64_t log_interval);

}  // namespace pyflame::apps::gpt
