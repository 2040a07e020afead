// Training a Gpt: everything that a run is, in one object that can be written to a checkpoint and continued from it bit by bit.
// Options, data position and random state are part of the checkpoint; the interface to people (progress, files) is cli/'s.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "pyflame/data/text.h"
#include "pyflame/io/checkpoint.h"
#include "pyflame/nn/gpt.h"
#include "pyflame/optim/optim.h"
#include "pyflame/optim/schedule.h"

namespace pyflame::nn {

struct GptTrainOptions {
  int64_t steps = 2500, batch_size = 16, gradient_accumulation_steps = 1;
  double lr = 2e-3;  // peak; a cosine takes it down to lr * min_lr_ratio
  double min_lr_ratio = 0.1;
  int64_t warmup_steps = 100;  // at most a tenth of `steps`
  double weight_decay = 0.1;   // of matrices only
  double beta1 = 0.9, beta2 = 0.99, clip = 1.0;
  uint64_t seed = 1337;
  int64_t eval_batches = 40;
  void check() const;  // ValueError
  std::string to_json() const;
  static GptTrainOptions from_json(const std::string& json);
};

class GptTrainer {
 public:
  // A new run. Seeds the global random generator.
  GptTrainer(const GptConfig& config, const GptTrainOptions& options, data::Tokenizer tokenizer,
             data::TokenDataset dataset);
  // Continues one. Sets the global random generator. ValueError when the data is not the data of the checkpoint.
  GptTrainer(const Checkpoint& checkpoint, const GptTrainOptions& options, data::TokenDataset dataset);

  // One update. The loss (0-d, the mean over the accumulated batches, before the update) is not read: reading it waits.
  Tensor step();
  double lr() const { return lr_; }  // of the last update
  int64_t steps_done() const { return step_; }
  int64_t tokens_per_step() const;
  // Mean loss over a fixed set of held-out batches, without dropout. Leaves the random state alone.
  double evaluate();

  Checkpoint checkpoint();
  Gpt& model() { return *model_; }
  const GptTrainOptions& options() const { return options_; }
  const data::Tokenizer& tokenizer() const { return tokenizer_; }
  const data::TokenDataset& dataset() const { return dataset_; }

 private:
  void build(const GptConfig& config);
  GptTrainOptions options_;
  data::Tokenizer tokenizer_;
  data::TokenDataset dataset_;
  std::unique_ptr<Gpt> model_;
  std::unique_ptr<optim::AdamW> optimizer_;
  Tensors parameters_;
  optim::WarmupCosine schedule_;
  int64_t step_ = 0;
  double lr_ = 0;
};

// A model for generation from a checkpoint, in evaluation mode.
struct TrainedGpt {
  std::unique_ptr<Gpt> model;
  data::Tokenizer tokenizer;
  int64_t steps;
};
TrainedGpt load_trained_gpt(const std::string& path);

}  // namespace pyflame::nn
