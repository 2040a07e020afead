// Training of a Gpt: the whole state of a run in one object that can be written to a checkpoint and resumed with the
// same bits. Options, data position and random state are part of the checkpoint. Progress display and output files
// belong to train.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "apps/gpt/gpt.h"
#include "pyflame/data/text.h"
#include "pyflame/io/checkpoint.h"
#include "pyflame/optim/optim.h"
#include "pyflame/optim/schedule.h"

namespace pyflame::apps::gpt {

struct GptTrainOptions {
  int64_t steps = 2500, batch_size = 16, gradient_accumulation_steps = 1;
  double lr = 2e-3;  // peak; a cosine schedule decays it to lr * min_lr_ratio
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
  // Starts a new run. Seeds the global random generator.
  GptTrainer(const GptConfig& config, const GptTrainOptions& options, data::Tokenizer tokenizer,
             data::TokenDataset dataset);
  // Resumes a run. Sets the global random generator. ValueError if the data is not that of the checkpoint.
  GptTrainer(const Checkpoint& checkpoint, const GptTrainOptions& options, data::TokenDataset dataset);

  // One update. Returns the loss (0-d, the mean over the accumulated batches, before the update). It is not read,
  // because reading waits.
  Tensor step();
  double lr() const { return lr_; }  // of the last update
  int64_t steps_done() const { return step_; }
  int64_t tokens_per_step() const;
  // Mean loss over a fixed set of held-out batches, without dropout. Does not change the random state.
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

// The model of a checkpoint, in evaluation mode, for generation.
struct TrainedGpt {
  std::unique_ptr<Gpt> model;
  data::Tokenizer tokenizer;
  int64_t steps;
};
TrainedGpt load_trained_gpt(const std::string& path);

}  // namespace pyflame::apps::gpt
