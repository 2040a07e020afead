// `pyflame train gpt`: one training run, whose files are in one folder. The loss is read only every --log_interval steps, because reading
// it waits for the work in flight. The losses of the steps in between are kept as tensors and read together.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/gpt/commands.h"
#include "apps/gpt/metrics.h"
#include "apps/gpt/smoke.h"
#include "apps/gpt/train_report.h"
#include "apps/gpt/trainer.h"
#include "apps/progress.h"
#include "pyflame/io/atomic_file.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/markers.h"

namespace pyflame::apps::gpt {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

constexpr int64_t kMostWorkers = 64;

struct TrainSettings {
  GptConfig model;
  GptTrainOptions train;
  std::string data, out, tokenizer = "chars", device = "cpu", connected;
  int64_t max_bytes = int64_t{64} << 20;
  int64_t eval_interval = 250, checkpoint_interval = 250, log_interval = 10;
  int64_t num_workers = 0;
  bool pin_memory = false;  // changes nothing
  bool resume = false, resume_from_checkpoint = false, overwrite = false, smoke = false, json = false,
       distributed = false;
  CLI::App* app = nullptr;

  bool given(const char* name) const { return app->get_option(std::string("--") + name)->count() > 0; }
  std::string run_json() const {
    const nlohmann::ordered_json j = {{"data", data},
                                      {"max_bytes", max_bytes},
                                      {"eval_interval", eval_interval},
                                      {"checkpoint_interval", checkpoint_interval},
                                      {"log_interval", log_interval}};
    return j.dump();
  }
};

void check(const TrainSettings& s) {
  PF_CHECK(s.max_bytes > 0 && s.eval_interval > 0 && s.checkpoint_interval > 0 && s.log_interval > 0, Value,
           "train gpt: intervals and max_bytes must be positive; got eval_interval {}, checkpoint_interval {}, "
           "log_interval {}, "
           "max_bytes {}",
           s.eval_interval, s.checkpoint_interval, s.log_interval, s.max_bytes);
  PF_CHECK(s.num_workers >= 0 && s.num_workers <= kMostWorkers, Value,
           "train gpt: num_workers is out of range; got {}; expected 0 to {}", s.num_workers, kMostWorkers);
  s.train.check();
  GptConfig with_any_vocabulary = s.model;
  with_any_vocabulary.vocabulary = 1;
  with_any_vocabulary.check();
}

// A resumed run takes its options from the checkpoint. An option on the command line replaces the checkpoint's value if it may change;
// otherwise both values must be equal.
class Merger {
 public:
  explicit Merger(const TrainSettings& given) : given_(given) {}
  template <class T>
  void fixed(const char* name, const T& checkpoint, const T& given) const {
    PF_CHECK(!given_.given(name) || given == checkpoint, Value,
             "train gpt: --{} cannot change when a run is resumed; got {}; expected {} or nothing", name, given,
             checkpoint);
  }
  template <class T>
  void changeable(const char* name, T& checkpoint, const T& given) {
    if (!given_.given(name) || given == checkpoint) return;
    notes += fmt::format("{}{} {} instead of {}", notes.empty() ? "" : ", ", name, given, checkpoint);
    checkpoint = given;
  }
  std::string notes;

 private:
  const TrainSettings& given_;
};

TrainSettings merge(const Checkpoint& c, const TrainSettings& given, std::string& notes) {
  TrainSettings s = given;
  s.model = GptConfig::from_json(c.at("model"));
  s.train = GptTrainOptions::from_json(c.at("options"));
  try {
    const nlohmann::json j = nlohmann::json::parse(c.at("run"));
    s.data = j.at("data");
    s.max_bytes = j.at("max_bytes");
    s.eval_interval = j.at("eval_interval");
    s.checkpoint_interval = j.at("checkpoint_interval");
    s.log_interval = j.at("log_interval");
  } catch (const nlohmann::json::exception&) {
    PF_FAIL(Value, "train gpt: the checkpoint's description of the run is not valid; got {}",
            c.at("run").substr(0, 120));
  }
  // Any number of processes goes on with a run, if they can divide the batches of an update.
  const int64_t batches = s.train.gradient_accumulation_steps * s.train.processes;
  PF_CHECK(batches % given.train.processes == 0, Value,
           "train gpt: the processes cannot divide the batches of an update; got {} processes for {} batches; expected "
           "a number of processes that divides {}",
           given.train.processes, batches, batches);
  s.train.gradient_accumulation_steps = batches / given.train.processes;
  s.train.processes = given.train.processes;
  s.tokenizer = data::Tokenizer::from_json(c.at("tokenizer")).is_bytes() ? "bytes" : "chars";
  Merger m(given);
  m.fixed("n_layer", s.model.n_layer, given.model.n_layer);
  m.fixed("n_head", s.model.n_head, given.model.n_head);
  m.fixed("n_embd", s.model.n_embd, given.model.n_embd);
  m.fixed("block_size", s.model.block_size, given.model.block_size);
  m.fixed("dropout", s.model.dropout, given.model.dropout);
  m.fixed("seed", s.train.seed, given.train.seed);
  m.fixed("tokenizer", s.tokenizer, given.tokenizer);
  m.fixed("max_bytes", s.max_bytes, given.max_bytes);
  m.fixed("batch_size", s.train.batch_size, given.train.batch_size);
  m.fixed("gradient_accumulation_steps", s.train.gradient_accumulation_steps, given.train.gradient_accumulation_steps);
  m.fixed("use_mixed_precision", s.train.mixed_precision, given.train.mixed_precision);
  m.changeable("data", s.data, given.data);  // moved elsewhere; the trainer compares the contents
  m.changeable("steps", s.train.steps, given.train.steps);
  m.changeable("lr", s.train.lr, given.train.lr);
  m.changeable("min_lr_ratio", s.train.min_lr_ratio, given.train.min_lr_ratio);
  m.changeable("warmup_steps", s.train.warmup_steps, given.train.warmup_steps);
  m.changeable("weight_decay", s.train.weight_decay, given.train.weight_decay);
  m.changeable("clip", s.train.clip, given.train.clip);
  m.changeable("eval_batches", s.train.eval_batches, given.train.eval_batches);
  m.changeable("eval_interval", s.eval_interval, given.eval_interval);
  m.changeable("checkpoint_interval", s.checkpoint_interval, given.checkpoint_interval);
  m.changeable("log_interval", s.log_interval, given.log_interval);
  notes = m.notes;
  return s;
}

struct Loaded {
  data::Tokenizer tokenizer;
  data::TokenDataset dataset;
};

// A character that is rarer than one in a million is not worth a place in the vocabulary: it is removed from the text.
constexpr int64_t kRare = 1'000'000;

Loaded load_data(const TrainSettings& s, const data::Tokenizer* known) {
  const bool bytes = s.tokenizer == "bytes";
  const auto start = Clock::now();
  const data::TextSource source = data::read_text(s.data, s.max_bytes, bytes);
  fmt::print("data        {}: {} file{}, {} bytes{}{}\n", s.data, source.files, source.files == 1 ? "" : "s",
             format_count(static_cast<double>(source.text.size())),
             source.skipped ? fmt::format(", {} not UTF-8 or empty left out", source.skipped) : "",
             source.truncated ? ", the rest left out (--max_bytes)" : "");
  int64_t dropped = 0;
  std::vector<data::Token> tokens;
  data::Tokenizer tokenizer = data::Tokenizer::bytes();
  if (bytes) {
    tokens = tokenizer.encode(source.text);
  } else {
    const std::u32string points = data::decode_utf8("train gpt", source.text);
    tokenizer = known ? *known : data::Tokenizer::chars(points, static_cast<int64_t>(points.size()) / kRare);
    tokens = tokenizer.encode_lossy(points, dropped);
  }
  data::TokenDataset dataset(std::move(tokens), s.model.block_size);
  fmt::print("tokens      {} for training, {} held out; {} {}{} ({:.1f} s)\n",
             format_count(static_cast<double>(dataset.train_tokens())),
             format_count(static_cast<double>(dataset.eval_tokens())), tokenizer.vocabulary(),
             bytes ? "bytes" : "characters", dropped ? fmt::format(", rarer ones left out ({} times)", dropped) : "",
             seconds_since(start));
  std::fflush(stdout);
  return {std::move(tokenizer), std::move(dataset)};
}

// ---- standard output with --json

// The records of metrics.jsonl and the result, an object a line. All else that is printed goes to standard error. A closed pipe does not end the run.
class Objects {
 public:
  explicit Objects(bool wanted) {
    if (!wanted) return;
    std::fflush(stdout);
    const int copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    out_ = copy >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0 ? fdopen(copy, "w") : nullptr;
    PF_CHECK(out_ != nullptr, OS, "train gpt: standard output cannot be used; got {}; expected an open one for --json",
             std::generic_category().message(errno));
  }
  ~Objects() {
    if (out_) std::fclose(out_);
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  void write(const std::vector<Metric>& metrics) {
    for (const Metric& m : metrics) write(metric_line(m));
  }
  void write_result(int64_t step, double loss, double val_loss, const std::string& out, double seconds,
                    bool smoke = false) {
    const nlohmann::ordered_json j = {{"end_of_training", true},
                                      {"step", step},
                                      {"loss", loss},
                                      {"val_loss", val_loss},
                                      {"smoke", smoke},
                                      {"out", out.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(out)},
                                      {"total_seconds", seconds}};
    write(j.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }

 private:
  void write(const std::string& line) {
    if (!out_) return;
    std::fwrite(line.data(), 1, line.size(), out_);
    std::fflush(out_);
  }
  std::FILE* out_ = nullptr;
};

// ---- the run

class TrainingRun {
 public:
  TrainingRun(const TrainSettings& s, std::unique_ptr<GptTrainer> trainer, Objects& objects)
      : s_(s),
        objects_(objects),
        trainer_(std::move(trainer)),
        first_(!trainer_->ranks() || trainer_->ranks()->first()),
        progress_(s.train.steps),
        memory_(current_device(), s.train.steps),
        first_step_(trainer_->steps_done()),
        profile_(s.train.steps - trainer_->steps_done()) {
    if (!first_) return;
    metrics_.emplace((fs::path(s.out) / "metrics.jsonl").string(), trainer_->steps_done());
    for (const Metric& m : metrics_->all()) {
      if (m.val_loss) val_loss_ = *m.val_loss;
    }
  }

  int run() {
    start_ = interval_start_ = Clock::now();
    while (trainer_->steps_done() < s_.train.steps && !stopped()) {
      if (interrupted()) trainer_->ask_for_end();
      profile_.before_step();
      const Tensor loss = trainer_->step();
      profile_.after_step();
      const int64_t step = trainer_->steps_done();
      Metric metric;
      metric.step = step;
      metric.lr = trainer_->lr();
      pending_.push_back({loss, metric});
      const bool last = step == s_.train.steps;
      const bool evaluate = last || step % s_.eval_interval == 0;
      const bool save = last || step % s_.checkpoint_interval == 0;
      const bool read = evaluate || save || step % s_.log_interval == 0;
      if (evaluate || save) profile_.interrupt();
      if (read) read_losses();
      if (evaluate) {
        val_loss_ = trainer_->evaluate();
        ready_.back().val_loss = val_loss_;
        progress_.note(fmt::format("step {:>6}  loss {:.4f}  validation loss {:.4f}", step, shown_loss_, val_loss_));
      }
      write_metrics();
      if (save) save_checkpoint();
      interval_start_ = evaluate || save ? Clock::now() : interval_start_;
      if (read || progress_.is_terminal()) progress_.update(step, status(), last);
    }
    return finish();
  }

 private:
  // All processes of a run stop after the same step.
  bool stopped() const { return trainer_->ranks() ? trainer_->end_asked() : interrupted(); }

  struct Pending {
    Tensor loss;
    Metric metric;
  };

  void read_losses() {
    if (pending_.empty()) return;
    std::vector<Metric> lines;
    double sum = 0;
    for (Pending& p : pending_) {
      p.metric.loss = p.loss.item_f64();
      sum += p.metric.loss;
      lines.push_back(p.metric);
    }
    const double elapsed = seconds_since(interval_start_);
    interval_start_ = Clock::now();
    const auto n = static_cast<double>(pending_.size());
    tokens_per_s_ = n * static_cast<double>(trainer_->tokens_per_step()) / std::max(elapsed, 1e-9);
    for (Metric& m : lines) m.tokens_per_s = tokens_per_s_;
    Metric& now = lines.back();
    now.memory = memory_.look();
    peak_ = now.memory->peak;
    now.warnings = memory_.warnings(*now.memory, now.step);
    for (const std::string& warning : now.warnings) progress_.note("warning: " + warning);
    shown_loss_ = sum / n;
    pending_.clear();
    ready_.insert(ready_.end(), lines.begin(), lines.end());
    for (const Metric& m : lines) {
      if (std::isfinite(m.loss)) continue;
      write_metrics();
      PF_FAIL(Runtime,
              "train gpt: the loss is no longer a number at step {}; expected a finite one; try a smaller --lr (it is "
              "{}); {}",
              m.step, s_.train.lr,
              saved_ > 0 ? fmt::format("the checkpoint is of step {}", saved_) : "there is no checkpoint yet");
    }
  }

  void write_metrics() {
    if (metrics_) metrics_->append(ready_);
    objects_.write(ready_);
    ready_.clear();
  }

  void save_checkpoint() {
    read_losses();
    write_metrics();
    saved_ = trainer_->steps_done();
    if (!first_) return;
    Checkpoint c = trainer_->checkpoint();
    c.state["run"] = s_.run_json();
    pyflame::save_checkpoint((fs::path(s_.out) / kCheckpointName).string(), c);
    const GptConfig& m = trainer_->model().config;
    write_file_atomically("loss curve", (fs::path(s_.out) / "loss.svg").string(),
                          loss_curve_svg(metrics_->all(), fmt::format("GPT: {} layers, {} heads, width {}, context {}",
                                                                      m.n_layer, m.n_head, m.n_embd, m.block_size)));
    write_report();
  }

  void write_report() {
    if (!first_) return;
    const bool done = saved_ == s_.train.steps;
    const RunStatus status = done ? RunStatus::finished : stopped() ? RunStatus::interrupted : RunStatus::running;
    write_run_report({s_.out, s_.data, s_.device, first_step_, seconds_since(start_), status}, *trainer_,
                     metrics_->all(), profile_);
  }

  std::string status() const {
    const int64_t done = trainer_->steps_done() - first_step_;
    const double left = seconds_since(start_) / static_cast<double>(std::max<int64_t>(done, 1)) *
                        static_cast<double>(s_.train.steps - trainer_->steps_done());
    std::string text = std::isnan(shown_loss_) ? "loss -" : fmt::format("loss {:.3f}", shown_loss_);
    if (!std::isnan(val_loss_)) text += fmt::format("  val {:.3f}", val_loss_);
    return text + fmt::format("  {} tokens/s  memory {}  ETA {}", format_count(tokens_per_s_), memory_size(peak_),
                              format_duration(left));
  }

  int finish() {
    const bool stopped = trainer_->steps_done() < s_.train.steps;
    profile_.interrupt();
    if (stopped && saved_ != trainer_->steps_done()) save_checkpoint();
    else if (stopped) write_report();
    progress_.finish();
    const std::string out = s_.out;
    if (stopped && !first_) return kInterrupted;
    if (stopped) {
      fmt::print(stderr,
                 "pyflame: interrupted at step {}; the checkpoint is saved, and {}/report.html; to go on: pyflame "
                 "train gpt --out {} --resume\n",
                 trainer_->steps_done(), out, out);
      return kInterrupted;
    }
    if (!first_) return kOk;
    fmt::print("done        {} steps in {}; validation loss {:.4f}\n", trainer_->steps_done() - first_step_,
               format_duration(seconds_since(start_)), val_loss_);
    fmt::print("written     {0}/{1}, {0}/metrics.jsonl, {0}/loss.svg, {0}/report.html\n", out, kCheckpointName);
    objects_.write_result(trainer_->steps_done(), metrics_->all().back().loss, val_loss_, out, seconds_since(start_));
    return kOk;
  }

  const TrainSettings& s_;
  Objects& objects_;
  std::unique_ptr<GptTrainer> trainer_;
  bool first_;  // rank 0, which alone writes and prints
  std::optional<MetricsFile> metrics_;
  Progress progress_;
  MemoryWatch memory_;
  uint64_t peak_ = 0;
  std::vector<Pending> pending_;
  std::vector<Metric> ready_;
  Clock::time_point start_, interval_start_;
  int64_t first_step_, saved_ = 0;
  StepProfile profile_;
  double shown_loss_ = NAN, val_loss_ = NAN, tokens_per_s_ = 0;
};

void prepare_folder(const TrainSettings& s) {
  const fs::path out(s.out);
  std::error_code ec;
  PF_CHECK(!fs::exists(out, ec) || fs::is_directory(out, ec), OS,
           "train gpt: --out '{}' is a file; expected a folder or a new name", s.out);
  const bool used = fs::exists(out / kCheckpointName, ec) || fs::exists(out / "metrics.jsonl", ec);
  PF_CHECK(!used || s.overwrite, Value,
           "train gpt: '{}' already holds a run; add --resume to continue it, --overwrite to replace it, or choose "
           "another --out",
           s.out);
}

// Only one process at a time trains in a folder. It first removes the unfinished files of a killed process. The lock ends with the process,
// however that ends. On a file system without locks, nothing is locked or removed.
void lock_folder(const TrainSettings& s) {
  const int folder = open(s.out.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool locked = folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) == 0;
  PF_CHECK(locked || folder < 0 || errno != EWOULDBLOCK, Value,
           "train gpt: another process trains in '{}'; wait for it, stop it, or choose another --out", s.out);
  if (locked) remove_unfinished_files(s.out);
}

void create_folder(const TrainSettings& s) {
  std::error_code ec;
  fs::create_directories(s.out, ec);
  PF_CHECK(!ec, OS, "train gpt: cannot create the folder '{}': {}", s.out, ec.message());
  lock_folder(s);
  // Remove the old run's checkpoint before the new run starts. Otherwise files of two runs would be taken for one run.
  if (s.overwrite) {
    fs::remove(fs::path(s.out) / kCheckpointName, ec);
    PF_CHECK(!ec, OS, "train gpt: cannot remove the old checkpoint in '{}': {}", s.out, ec.message());
  }
}

std::unique_ptr<GptTrainer> start_run(TrainSettings& s, bool first) {
  PF_CHECK(!s.data.empty(), Value, "train gpt: --data is missing; expected a text file or a folder");
  check(s);
  if (!s.smoke && first) prepare_folder(s);
  Loaded d = load_data(s, nullptr);
  s.model.vocabulary = d.tokenizer.vocabulary();
  auto trainer = std::make_unique<GptTrainer>(s.model, s.train, std::move(d.tokenizer), std::move(d.dataset));
  if (!s.smoke && first) create_folder(s);
  return trainer;
}

std::unique_ptr<GptTrainer> resume_run(TrainSettings& s, bool first) {
  PF_CHECK(!s.overwrite, Value, "train gpt: --resume and --overwrite exclude each other");
  PF_CHECK(!s.smoke, Value, "train gpt: --smoke and --resume exclude each other; a short run begins anew");
  const std::string path = (fs::path(s.out) / kCheckpointName).string();
  std::error_code ec;
  PF_CHECK(fs::exists(path, ec), OS,
           "train gpt: there is no checkpoint to resume; expected '{}'; leave out --resume to start", path);
  if (first) lock_folder(s);
  const Checkpoint c = load_checkpoint(path);
  std::string notes;
  s = merge(c, s, notes);
  check(s);
  const data::Tokenizer tokenizer = data::Tokenizer::from_json(c.at("tokenizer"));
  Loaded d = load_data(s, &tokenizer);
  auto trainer = std::make_unique<GptTrainer>(c, s.train, std::move(d.dataset));
  if (!notes.empty()) fmt::print("changed     {}\n", notes);
  fmt::print("resumed     at step {} of {}\n", trainer->steps_done(), s.train.steps);
  return trainer;
}

int train_gpt(TrainSettings s) {
  Ranks ranks = s.connected.empty() ? Ranks() : Ranks(s.connected);
  s.train.processes = ranks.size();
  if (!ranks.first()) {  // rank 0 speaks
    s.json = false;
    PF_CHECK(std::freopen("/dev/null", "w", stdout) != nullptr, OS, "train gpt: /dev/null cannot be opened; got {}",
             std::generic_category().message(errno));
  }
  if (ranks.size() > 1 && (s.device == "cuda" || s.device == "rocm"))
    s.device += fmt::format(":{}", ranks.local_rank());
  Objects objects(s.json);
  set_current_device(parse_device(s.device));
  s.resume |= s.resume_from_checkpoint && fs::exists(fs::path(s.out) / kCheckpointName);
  std::unique_ptr<GptTrainer> trainer = s.resume ? resume_run(s, ranks.first()) : start_run(s, ranks.first());
  trainer->join(ranks);
  const GptConfig& m = trainer->model().config;
  fmt::print("model       {} parameters: {} layers, {} heads, width {}, context {}; {} tokens a step\n",
             format_count(static_cast<double>(nn::count_parameters(trainer->model()))), m.n_layer, m.n_head, m.n_embd,
             m.block_size, trainer->tokens_per_step());
  trainer->set_workers(s.num_workers);
  if (s.smoke) {
    const auto start = Clock::now();
    const SmokeResult found = smoke(*trainer, s.log_interval);
    objects.write(found.metrics);
    objects.write_result(found.metrics.back().step, found.metrics.back().loss, found.val_loss, s.out,
                         seconds_since(start), true);
    return kOk;
  }
  if (trainer->steps_done() >= s.train.steps) {
    fmt::print("done        the run has all of its {} steps; give more --steps to go on\n", s.train.steps);
    objects.write_result(trainer->steps_done(), NAN, NAN, s.out, 0);  // nothing was trained or measured: null
    return kOk;
  }
  catch_interrupts();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe must not lose the run
  return TrainingRun(s, std::move(trainer), objects).run();
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* train = app.add_subcommand("train", "Train a model");
  train->require_subcommand(1);
  CLI::App* sub = train->add_subcommand("gpt", "Train a small GPT on a text file or a folder of sources");
  auto s = std::make_shared<TrainSettings>();
  s->app = sub;
  const auto option = [&](const char* name, auto& target, const char* text) {
    return sub->add_option(names(name), target, text)
        ->capture_default_str()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  option("data", s->data, "Text to train on: a file, or a folder of source and text files");
  option("out", s->out, "Folder of the run, needed unless --smoke: checkpoint, metrics.jsonl, loss.svg, report.html");
  option("device", s->device, "Device to run on: cpu, rocm, rocm:1, cuda, ...");
  option("steps", s->train.steps, "Updates in total");
  option("batch_size", s->train.batch_size, "Sequences per batch");
  option("block_size", s->model.block_size, "Tokens per sequence: the length of the context");
  option("n_layer", s->model.n_layer, "Transformer blocks");
  option("n_head", s->model.n_head, "Attention heads");
  option("n_embd", s->model.n_embd, "Width of the embedding");
  option("dropout", s->model.dropout, "Dropout probability");
  option("lr", s->train.lr, "Peak learning rate, between a linear warm-up and a cosine decay");
  option("min_lr_ratio", s->train.min_lr_ratio, "Final learning rate as a fraction of --lr");
  option("warmup_steps", s->train.warmup_steps, "Updates of warm-up, at most a tenth of --steps");
  option("weight_decay", s->train.weight_decay, "Weight decay of the weight matrices");
  option("clip", s->train.clip, "Largest norm of the gradient; a larger one is scaled down to it");
  option("gradient_accumulation_steps", s->train.gradient_accumulation_steps, "Batches per update");
  option("seed", s->train.seed, "Seed of initial values, batches and dropout");
  option("tokenizer", s->tokenizer, "What a token is: a character or a byte")->check(CLI::IsMember({"chars", "bytes"}));
  option("max_bytes", s->max_bytes, "Most bytes of text to read");
  option("eval_interval", s->eval_interval, "Updates between measurements of the validation loss");
  option("eval_batches", s->train.eval_batches, "Batches per measurement of the validation loss");
  option("checkpoint_interval", s->checkpoint_interval, "Updates between checkpoints");
  option("log_interval", s->log_interval, "Updates between readings of the loss");
  sub->add_flag("--resume", s->resume, "Continue the run in --out from its checkpoint, bit for bit");
  sub->add_flag(names("resume_from_checkpoint"), s->resume_from_checkpoint,
                "Like --resume, but begins where --out holds no checkpoint");
  option("num_workers", s->num_workers, "Threads that prepare the next batches; 0: each when its step begins");
  sub->add_flag(names("pin_memory"), s->pin_memory, "Accepted: copies to a GPU go through pinned memory anyway");
  option("use_mixed_precision", s->train.mixed_precision,
         "Compute in this type; parameters stay float32. Off unless it is given")
      ->expected(0, 1)
      ->default_str("bfloat16")
      ->check(CLI::IsMember({"bfloat16"}));
  sub->add_flag("--distributed", s->distributed,
                "Data-parallel over the processes of pyflame run --nproc N -m pyflame.train gpt ...");
  sub->add_option("--connected", s->connected)->group("");  // from pyflame.train: the sockets of the processes
  sub->add_flag("--smoke", s->smoke, "A short run that tests the long one, and writes nothing");
  sub->add_flag("--overwrite", s->overwrite, "Replace a run that --out already holds");
  sub->add_flag("--json", s->json,
                "Print one JSON object for each record of metrics.jsonl, then one with the result; all else goes to "
                "standard error");
  sub->callback([&run, s] {
    if (s->out.empty() && !s->smoke) throw CLI::RequiredError("--out");
    run = [s] {
      markers::follow_environment();
      return train_gpt(*s);
    };
  });
}

}  // namespace pyflame::apps::gpt
