#include "apps/gpt/trainer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pyflame/autograd/autograd.h"
#include "pyflame/base/events.h"
#include "pyflame/ops/autocast.h"
#include "pyflame/runtime/device.h"

namespace pyflame::apps::gpt {

using nlohmann::json;

// ---- options

void GptTrainOptions::check() const {
  const auto positive = [](const char* name, auto v) {
    PF_CHECK(v > 0, Value, "train: {} must be positive; got {}", name, v);
  };
  positive("steps", steps);
  positive("batch_size", batch_size);
  positive("gradient_accumulation_steps", gradient_accumulation_steps);
  positive("eval_batches", eval_batches);
  positive("processes", processes);
  PF_CHECK(lr > 0 && std::isfinite(lr), Value, "train: lr must be a positive number; got {}", lr);
  positive("clip", clip);
  PF_CHECK(min_lr_ratio >= 0 && min_lr_ratio <= 1, Value,
           "train: min_lr_ratio is out of range; got {}; expected 0 to 1", min_lr_ratio);
  PF_CHECK(warmup_steps >= 0, Value, "train: warmup_steps must not be negative; got {}", warmup_steps);
  PF_CHECK(mixed_precision.empty() || mixed_precision == "bfloat16", Value,
           "train: use_mixed_precision does not fit; got '{}'; expected bfloat16", mixed_precision);
  PF_CHECK(weight_decay >= 0, Value, "train: weight_decay must not be negative; got {}", weight_decay);
}

std::string GptTrainOptions::to_json() const {
  const nlohmann::ordered_json j = {{"steps", steps},
                                    {"batch_size", batch_size},
                                    {"gradient_accumulation_steps", gradient_accumulation_steps},
                                    {"lr", lr},
                                    {"min_lr_ratio", min_lr_ratio},
                                    {"warmup_steps", warmup_steps},
                                    {"weight_decay", weight_decay},
                                    {"beta1", beta1},
                                    {"beta2", beta2},
                                    {"clip", clip},
                                    {"seed", seed},
                                    {"eval_batches", eval_batches},
                                    {"mixed_precision", mixed_precision},
                                    {"processes", processes}};
  return j.dump();
}

GptTrainOptions GptTrainOptions::from_json(const std::string& text) {
  GptTrainOptions o;
  try {
    const json j = json::parse(text);
    j.at("steps").get_to(o.steps);
    j.at("batch_size").get_to(o.batch_size);
    j.at("gradient_accumulation_steps").get_to(o.gradient_accumulation_steps);
    j.at("lr").get_to(o.lr);
    j.at("min_lr_ratio").get_to(o.min_lr_ratio);
    j.at("warmup_steps").get_to(o.warmup_steps);
    j.at("weight_decay").get_to(o.weight_decay);
    j.at("beta1").get_to(o.beta1);
    j.at("beta2").get_to(o.beta2);
    j.at("clip").get_to(o.clip);
    j.at("seed").get_to(o.seed);
    j.at("eval_batches").get_to(o.eval_batches);
    o.mixed_precision = j.value("mixed_precision", "");
    o.processes = j.value("processes", int64_t{1});
  } catch (const json::exception&) {
    PF_FAIL(Value, "train: the run's options are not valid; got {}", text.substr(0, 120));
  }
  o.check();
  return o;
}

// ---- batches

BatchReader::BatchReader(const data::TokenDataset& dataset, uint64_t seed, int64_t batch_size, int64_t workers,
                         int64_t first, int64_t every)
    : dataset_(dataset), seed_(seed), batch_size_(batch_size), workers_(workers), first_(first), every_(every) {}

std::pair<Tensor, Tensor> BatchReader::take(int64_t number) {
  const auto rows = [this](int64_t n) {
    return dataset_.rows(seed_, data::Stream::train, n * every_ + first_, batch_size_);
  };
  if (workers_ == 0) return dataset_.tensors(rows(number));
  if (number != next_) ahead_.clear();
  next_ = number + 1;
  for (int64_t n = number + static_cast<int64_t>(ahead_.size()); n <= number + workers_; ++n)
    ahead_.push_back(std::async(std::launch::async, rows, n));
  const data::TokenDataset::Rows taken = ahead_.front().get();
  ahead_.pop_front();
  return dataset_.tensors(taken);
}

// ---- trainer

namespace {

// Mixed precision for a scope, on the current device.
class Precision {
 public:
  explicit Precision(const std::string& dtype) : type_(current_device().type), before_(autocast::state(type_)) {
    if (!dtype.empty()) autocast::set_state(type_, {true, DType::bfloat16});
  }
  ~Precision() { autocast::set_state(type_, before_); }
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  DeviceType type_;
  autocast::State before_;
};

// The description is in the same file as the tensors and is not trusted: a model is built only if the tensors
// confirm its sizes.
GptConfig checked_config(const Checkpoint& c) {
  const GptConfig config = GptConfig::from_json(c.at("model"));
  int64_t held = 0;
  for (const auto& [name, t] : c.model) held += t.numel();
  const auto times = [](double a, int64_t b) { return a * static_cast<double>(b); };
  const double per_layer = times(12.0 * static_cast<double>(config.n_embd), config.n_embd);
  const double needed = times(per_layer, config.n_layer) +
                        times(2.0 * static_cast<double>(config.vocabulary), config.n_embd) +
                        times(static_cast<double>(config.block_size), config.n_embd);
  PF_CHECK(
      needed <= static_cast<double>(held), Value,
      "load_checkpoint: the model's description does not fit its tensors; got {} numbers; expected at least {:.0f}",
      held, needed);
  return config;
}

}  // namespace

GptTrainer::GptTrainer(const GptConfig& config, const GptTrainOptions& options, data::Tokenizer tokenizer,
                       data::TokenDataset dataset)
    : options_(options), tokenizer_(std::move(tokenizer)), dataset_(std::move(dataset)) {
  manual_seed(options_.seed);
  build(config);
}

GptTrainer::GptTrainer(const Checkpoint& checkpoint, const GptTrainOptions& options, data::TokenDataset dataset)
    : options_(options),
      tokenizer_(data::Tokenizer::from_json(checkpoint.at("tokenizer"))),
      dataset_(std::move(dataset)) {
  build(checked_config(checkpoint));
  nn::load_state_dict(*model_, checkpoint.model);
  optimizer_->load_state_dict(checkpoint.optimizer);
  try {
    const json progress = json::parse(checkpoint.at("progress"));
    const uint64_t fingerprint = progress.at("data_fingerprint");
    PF_CHECK(fingerprint == dataset_.fingerprint(), Value,
             "train: the data is not the data of the checkpoint; got fingerprint {:016x}; expected {:016x}; continue "
             "with the "
             "same text and tokenizer",
             dataset_.fingerprint(), fingerprint);
    progress.at("step").get_to(step_);
    set_rng_state({progress.at("rng_seed"), progress.at("rng_offset")});
  } catch (const json::exception&) {
    PF_FAIL(Value, "train: the checkpoint's progress is not valid; got {}", checkpoint.at("progress").substr(0, 120));
  }
}

void GptTrainer::build(const GptConfig& config) {
  options_.check();
  PF_CHECK(config.vocabulary == tokenizer_.vocabulary(), Value,
           "train: the model's vocabulary is {}; the tokenizer's is {}", config.vocabulary, tokenizer_.vocabulary());
  model_ = std::make_unique<Gpt>(config);
  NamedTensors decayed, others;
  for (auto& [name, t] : nn::named_parameters(*model_)) (t.dim() >= 2 ? decayed : others).emplace_back(name, t);
  optim::AdamOptions o;
  o.lr = options_.lr;
  o.beta1 = options_.beta1;
  o.beta2 = options_.beta2;
  o.weight_decay = options_.weight_decay;
  optimizer_ = std::make_unique<optim::AdamW>(decayed, o);
  o.weight_decay = 0;
  optimizer_->add_group(others, o);
  parameters_ = nn::parameters(*model_);
  set_workers(0);
  schedule_ = {options_.lr, std::min(options_.warmup_steps, options_.steps / 10), options_.steps,
               options_.lr * options_.min_lr_ratio};
}

void GptTrainer::join(Ranks& ranks) {
  PF_CHECK(ranks.size() == options_.processes, Value,
           "train: the number of processes does not fit; got {}; expected {}", ranks.size(), options_.processes);
  ranks_ = ranks.size() > 1 ? &ranks : nullptr;
  if (!ranks_) return;
  nn::load_state_dict(*model_, ranks.of_first(nn::state_dict(*model_)));
  const RngState random = get_rng_state();  // other dropout masks in each process
  set_rng_state({random.seed + static_cast<uint64_t>(ranks.rank()), random.offset});
}

void GptTrainer::set_workers(int64_t workers) {
  const int64_t first = ranks_ ? ranks_->rank() : 0;
  reader_ =
      std::make_unique<BatchReader>(dataset_, options_.seed, options_.batch_size, workers, first, options_.processes);
}

int64_t GptTrainer::tokens_per_step() const {
  return options_.batch_size * options_.gradient_accumulation_steps * options_.processes * model_->config.block_size;
}

Tensor GptTrainer::step() {
  nn::train(*model_, true);
  optimizer_->zero_grad();
  const int64_t n = options_.gradient_accumulation_steps;
  Tensor total;
  for (int64_t micro = 0; micro < n; ++micro) {
    const auto [x, y] = [&] {
      const events::Scope log(events::Kind::Range, "next batch");
      return reader_->take(step_ * n + micro);
    }();
    Tensor loss;
    {
      const Precision precision(options_.mixed_precision);
      loss = model_->loss(x, y);
    }
    if (n > 1) loss = div(loss, static_cast<double>(n));
    autograd::backward({loss});
    grad_mode::Guard no_grad(false);
    total = total ? add(total, loss.detach()) : loss.detach();
  }
  if (ranks_) {
    std::vector<float> values = {static_cast<float>(total.item_f64()), end_wanted_ ? 1.0F : 0.0F};
    ranks_->average(parameters_, values);
    end_asked_ = values[1] > 0;
    total = from_host(values.data(), {}, DType::float32);
  }
  clip_grad_norm_(parameters_, options_.clip);
  lr_ = schedule_(step_);
  optimizer_->set_lr(lr_);
  optimizer_->step();
  ++step_;
  return total;
}

double GptTrainer::evaluate(int64_t batches) {
  grad_mode::Guard no_grad(false);
  nn::train(*model_, false);
  double total = 0;
  const Precision precision(options_.mixed_precision);
  for (int64_t i = ranks_ ? ranks_->rank() : 0; i < batches; i += options_.processes) {
    const auto [x, y] = dataset_.batch(options_.seed, data::Stream::eval, i, options_.batch_size);
    total += model_->loss(x, y).item_f64();
  }
  nn::train(*model_, true);
  return (ranks_ ? ranks_->sum(total) : total) / static_cast<double>(batches);
}

Checkpoint GptTrainer::checkpoint() {
  Checkpoint c;
  c.model = nn::state_dict(*model_);
  c.optimizer = optimizer_->state_dict();
  c.state["model"] = model_->config.to_json();
  c.state["options"] = options_.to_json();
  c.state["tokenizer"] = tokenizer_.to_json();
  const RngState rng = get_rng_state();
  const nlohmann::ordered_json progress = {
      {"step", step_},
      {"rng_seed", rng.seed},
      {"rng_offset", rng.offset},
      {"next_batch", step_ * options_.gradient_accumulation_steps * options_.processes},
      {"data_fingerprint", dataset_.fingerprint()}};
  c.state["progress"] = progress.dump();
  return c;
}

TrainedGpt load_trained_gpt(const std::string& path) {
  const Checkpoint c = load_checkpoint(path);
  TrainedGpt r{std::make_unique<Gpt>(checked_config(c)), data::Tokenizer::from_json(c.at("tokenizer")), 0};
  PF_CHECK(r.model->config.vocabulary == r.tokenizer.vocabulary(), Value,
           "load_trained_gpt: '{}': the model's vocabulary is {}; the tokenizer's is {}", path,
           r.model->config.vocabulary, r.tokenizer.vocabulary());
  nn::load_state_dict(*r.model, c.model);
  nn::train(*r.model, false);
  try {
    json::parse(c.at("progress")).at("step").get_to(r.steps);
  } catch (const json::exception&) {
    PF_FAIL(Value, "load_trained_gpt: '{}': the progress is not valid", path);
  }
  return r;
}

}  // namespace pyflame::apps::gpt
