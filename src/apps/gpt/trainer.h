// Training of a Gpt: the whole state of a run in one object that can be written to a checkpoint and resumed with the
// same bits. Options, data position and random state are part of the checkpoint. Progress display and output files
// belong to train.cpp.
#pragma once
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <string>

#include "apps/gpt/gpt.h"
#include "apps/gpt/ranks.h"
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
  int64_t processes = 1;        // each takes gradient_accumulation_steps batches of an update
  std::string mixed_precision;  // "bfloat16": steps compute in it, and parameters stay float32; empty: off
  void check() const;           // ValueError
  std::string to_json() const;
  static GptTrainOptions from_json(const std::string& json);
};

// Prepares the next `workers` training batches, each on a thread of its own; 0: a batch is made when it is taken.
class BatchReader {
 public:
  // Batch n of this reader is batch n * every + first of the stream.
  BatchReader(const data::TokenDataset& dataset, uint64_t seed, int64_t batch_size, int64_t workers, int64_t first,
              int64_t every);
  // The batch of this number. They are taken in the order of their numbers, from any first one.
  std::pair<Tensor, Tensor> take(int64_t number);

 private:
  const data::TokenDataset& dataset_;
  uint64_t seed_;
  int64_t batch_size_, workers_, first_, every_, next_ = -1;  // next_: the number of the first that is prepared
  std::deque<std::future<data::TokenDataset::Rows>> ahead_;   // from next_ on
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
  double evaluate() { return evaluate(options_.eval_batches); }
  double evaluate(int64_t batches);
  // Makes this process one of those of a data-parallel run, which outlives this object. Each takes its part of the batches of an update; the update is that
  // of one process that takes all of them, up to the order of sums and the dropout. Call it before the first step.
  void join(Ranks& ranks);
  Ranks* ranks() { return ranks_; }
  // Whether a process of the run asked for the end before the last update (ask_for_end); the same in all of them.
  void ask_for_end() { end_wanted_ = true; }
  bool end_asked() const { return end_asked_; }
  // How many threads prepare batches; the batches are the same. 0 at first.
  void set_workers(int64_t workers);

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
  std::unique_ptr<BatchReader> reader_;
  optim::WarmupCosine schedule_;
  int64_t step_ = 0;
  double lr_ = 0;
  Ranks* ranks_ = nullptr;
  bool end_wanted_ = false, end_asked_ = false;
};

// The model of a checkpoint, in evaluation mode, for generation.
struct TrainedGpt {
  std::unique_ptr<Gpt> model;
  data::Tokenizer tokenizer;
  int64_t steps;
};
TrainedGpt load_trained_gpt(const std::string& path);

}  // namespace pyflame::apps::gpt
