#include "apps/gpt/smoke.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "apps/gpt/memory.h"
#include "apps/progress.h"
#include "pyflame/ops/ops.h"

namespace pyflame::apps::gpt {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "pyflame-smoke-XXXXXX").string();
    PF_CHECK(mkdtemp(name.data()) != nullptr, OS, "train gpt: no temporary folder can be made; got '{}'", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void compare(const NamedTensors& a, const NamedTensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor x = to_device(contiguous(a[i].second), Device{}), y = to_device(contiguous(b.at(i).second), Device{});
    PF_CHECK(x.nbytes() == y.nbytes() && std::memcmp(x.data(), y.data(), static_cast<size_t>(x.nbytes())) == 0, Runtime,
             "train gpt: a checkpoint gives back another state; got other values of {}; expected the same", a[i].first);
  }
}

// The state that a checkpoint of now gives back, and the loss of the next update from it, are those of the run itself.
void check_checkpoint(GptTrainer& trainer) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "checkpoint.safetensors").string();
  const Checkpoint now = trainer.checkpoint();
  const RngState random = get_rng_state();
  save_checkpoint(path, now);
  GptTrainer resumed(load_checkpoint(path), trainer.options(), trainer.dataset());
  Ranks alone;
  resumed.join(trainer.ranks() ? *trainer.ranks() : alone);
  resumed.set_workers(0);
  const Checkpoint back = resumed.checkpoint();
  compare(now.model, back.model);
  compare(now.optimizer, back.optimizer);
  const double next = resumed.step().item_f64();
  set_rng_state(random);
  const double expected = trainer.step().item_f64();
  PF_CHECK(next == expected, Runtime,
           "train gpt: a resumed run goes on differently; got a loss of {}; expected {}, that of the run itself", next,
           expected);
}

}  // namespace

SmokeResult smoke(GptTrainer& trainer, int64_t log_interval) {
  const int64_t all = trainer.options().steps, steps = std::min(all, std::max<int64_t>(2, all / 100));
  MemoryWatch memory(current_device(), all);
  SmokeResult result;
  Clock::time_point begin = Clock::now();
  double seconds = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    Metric m;
    m.step = step;
    m.loss = trainer.step().item_f64();
    m.lr = trainer.lr();
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    begin = Clock::now();
    m.tokens_per_s = static_cast<double>(trainer.tokens_per_step()) / std::max(seconds, 1e-9);
    m.memory = memory.look();
    m.warnings = memory.warnings(*m.memory, step);
    result.metrics.push_back(m);
    if (step % log_interval == 0 || step == steps)
      fmt::print("step {:>6}  loss {:.4f}  lr {:.3g}  {} tokens/s  memory {}\n", step, m.loss, m.lr,
                 format_count(m.tokens_per_s), memory_size(m.memory->peak));
    for (const std::string& warning : m.warnings) fmt::print("warning: {}\n", warning);
    PF_CHECK(
        std::isfinite(m.loss), Runtime,
        "train gpt: the loss is no longer a number at step {}; expected a finite one; try a smaller --lr (it is {})",
        step, trainer.options().lr);
  }
  result.val_loss =
      result.metrics.back().val_loss.emplace(trainer.evaluate(std::min<int64_t>(2, trainer.options().eval_batches)));
  check_checkpoint(trainer);
  fmt::print(
      "smoke       passed; {} steps, finite losses, validation loss {:.4f}, a checkpoint that gives back the same "
      "state, and the same next\n            update from it; {} steps take about {} without validation\n"
      "            {}\n",
      steps, result.val_loss, all, format_duration(seconds * static_cast<double>(all)), memory.text(memory.look()));
  return result;
}

}  // namespace pyflame::apps::gpt
