#include "apps/gpt/train_report.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/gpt/page.h"
#include "apps/progress.h"
#include "pyflame/base/fallbacks.h"
#include "pyflame/base/threads.h"
#include "pyflame/io/atomic_file.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/version.h"

namespace pyflame::apps::gpt {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kWarmup = 8, kSteps = 5;
constexpr int kAttempts = 20;
constexpr size_t kMostPoints = 1200, kMostSteps = 25;

// One point for each stretch of the run: the mean of the finite values in it.
template <class Value>
json curve(const std::vector<Metric>& metrics, Value value) {
  const size_t stride = std::max<size_t>(1, (metrics.size() + kMostPoints - 1) / kMostPoints);
  json out = json::array();
  for (size_t i = 0; i < metrics.size(); i += stride) {
    double sum = 0, steps = 0;
    int64_t n = 0;
    for (size_t k = i; k < std::min(i + stride, metrics.size()); ++k) {
      const double v = value(metrics[k]);
      if (!std::isfinite(v)) continue;
      sum += v;
      steps += static_cast<double>(metrics[k].step);
      ++n;
    }
    if (n > 0) out.push_back({std::round(steps / static_cast<double>(n)), sum / static_cast<double>(n)});
  }
  return out;
}

json validation(const std::vector<Metric>& metrics) {
  std::vector<Metric> measured;
  for (const Metric& m : metrics)
    if (m.val_loss) measured.push_back(m);
  return curve(measured, [](const Metric& m) { return *m.val_loss; });
}

json memory_curve(const std::vector<Metric>& metrics, uint64_t MemoryUse::*what) {
  std::vector<Metric> measured;
  for (const Metric& m : metrics)
    if (m.memory) measured.push_back(m);
  return curve(measured, [what](const Metric& m) { return static_cast<double>((*m.memory).*what) / (1 << 20); });
}

json curves_of(const std::vector<Metric>& metrics) {
  const auto loss = [](const Metric& m) { return m.loss; };
  return {{"loss", curve(metrics, loss)},
          {"loss_mean", curve(running_mean(metrics), loss)},
          {"val_loss", validation(metrics)},
          {"lr", curve(metrics, [](const Metric& m) { return m.lr; })},
          {"memory", memory_curve(metrics, &MemoryUse::allocated)},
          {"memory_peak", memory_curve(metrics, &MemoryUse::peak)},
          {"memory_host", memory_curve(metrics, &MemoryUse::host)},
          {"tokens_per_s", curve(metrics, [](const Metric& m) { return m.tokens_per_s; })}};
}

json profile_of(const StepProfile& profile, bool of_gpu) {
  if (!profile.recording() || profile.steps() == 0) return nullptr;
  const events::Recording& r = *profile.recording();
  const double wall = static_cast<double>(r.end - r.start) / 1000, n = static_cast<double>(profile.steps());
  std::map<std::string, double> kinds;
  double busy = 0;
  json steps = json::array();
  for (const profiler::Average& a : profiler::averages(r)) {
    const double us = static_cast<double>(of_gpu ? a.self_device_ns : a.total_ns) / 1000;
    if (a.kind == events::Kind::Range && a.name == "next batch") {
      kinds["data"] += static_cast<double>(a.self_ns) / 1000;
      busy += static_cast<double>(a.self_ns) / 1000;
    }
    if (a.kind != events::Kind::Step) continue;
    kinds[a.work] += us;
    busy += us;
    if (steps.size() < kMostSteps)
      steps.push_back({{"name", a.name},
                       {"kind", a.work},
                       {"share", us / wall},
                       {"us", us / n},
                       {"calls", static_cast<double>(a.count) / n},
                       {"mean_us", us / static_cast<double>(a.count)}});
  }
  kinds["between steps"] = std::max(0.0, wall - busy);
  json categories = json::array();
  for (const auto& [name, us] : kinds) categories.push_back({{"name", name}, {"share", us / wall}, {"us", us / n}});
  std::stable_sort(categories.begin(), categories.end(),
                   [](const json& a, const json& b) { return a["us"].get<double>() > b["us"].get<double>(); });
  return {{"wall_us", wall},
          {"count", profile.steps()},
          {"categories", std::move(categories)},
          {"steps", std::move(steps)}};
}

json memory_of(Device device) {
  const MemoryStats m = memory_stats(device);
  json out = {{"peak_allocated", m.peak_allocated}, {"allocated", m.allocated}, {"arena", m.arena}};
  if (const uint64_t total = device_info(device).total_memory) out["total"] = total;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) out["peak_resident"] = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  return out;
}

json run_of(const RunFacts& facts, GptTrainer& trainer, Device device) {
  const GptConfig& m = trainer.model().config;
  const GptTrainOptions& o = trainer.options();
  const DeviceInfo info = device_info(device);
  nlohmann::ordered_json run;
  run["Data"] = facts.data;
  run["Vocabulary"] =
      fmt::format("{} {}", trainer.tokenizer().vocabulary(), trainer.tokenizer().is_bytes() ? "bytes" : "characters");
  run["Training tokens"] = format_count(static_cast<double>(trainer.dataset().train_tokens()));
  run["Held out"] = format_count(static_cast<double>(trainer.dataset().eval_tokens()));
  run["Parameters"] = format_count(static_cast<double>(nn::count_parameters(trainer.model())));
  run["Model"] = fmt::format("{} layers, {} heads, width {}, context {}", m.n_layer, m.n_head, m.n_embd, m.block_size);
  run["Dropout"] = fmt::format("{:g}", m.dropout);
  run["Batch"] = fmt::format(
      "{} rows{}, {} tokens a step", o.batch_size,
      (o.gradient_accumulation_steps > 1 ? fmt::format(" × {} accumulated", o.gradient_accumulation_steps) : "") +
          (o.processes > 1 ? fmt::format(" × {} processes", o.processes) : ""),
      trainer.tokens_per_step());
  run["Learning rate"] = fmt::format("{:g}, to {:g}; {} steps of warm-up", o.lr, o.lr * o.min_lr_ratio,
                                     std::min(o.warmup_steps, o.steps / 10));
  run["Weight decay"] = fmt::format("{:g}", o.weight_decay);
  run["Gradient clip"] = fmt::format("{:g}", o.clip);
  run["Mixed precision"] = o.mixed_precision.empty() ? "off" : o.mixed_precision;
  run["Seed"] = fmt::format("{}", o.seed);
  run["Device"] = fmt::format("{}: {}", device.str(), info.name);
  if (!has_own_memory(device.type)) run["Threads"] = fmt::format("{}", num_threads());
  run["Version"] = PYFLAME_VERSION;
  // Pairs, because a plain JSON object would sort them.
  json out = json::array();
  for (const auto& [name, value] : run.items()) out.push_back({name, value});
  return out;
}

double median(std::vector<double> v) {
  if (v.empty()) return NAN;
  const auto middle = v.begin() + static_cast<int64_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

std::string headline(const RunFacts& facts, const GptTrainer& trainer, double val_loss) {
  const int64_t done = trainer.steps_done(), all = trainer.options().steps;
  const std::string reached = std::isfinite(val_loss) ? fmt::format("validation loss {:.4f}", val_loss) : "";
  switch (facts.status) {
    case RunStatus::finished:
      return reached.empty() ? fmt::format("Trained for {} steps", done)
                             : fmt::format("V{} after {} steps", reached.substr(1), done);
    case RunStatus::interrupted:
      return fmt::format("Interrupted at step {} of {}{}", done, all, reached.empty() ? "" : "; " + reached);
    case RunStatus::running: break;
  }
  return fmt::format("At step {} of {}{}", done, all, reached.empty() ? "" : "; " + reached);
}

}  // namespace

// ---- profile

StepProfile::StepProfile(int64_t to_do) : first_(std::clamp<int64_t>(to_do - kSteps, 0, kWarmup)) {}

StepProfile::~StepProfile() {
  if (!on_) return;
  try {
    (void)profiler::stop();
  } catch (const Error&) {  // an error of the run is on its way already
  }
}

void StepProfile::before_step() {
  if (seen_++ < first_ || steps_ == kSteps) return;
  if (!on_) {
    if (attempts_ == kAttempts) return;
    ++attempts_;
    profiler::start();
    recorded_ = 0;
    on_ = true;
  }
  began_ = events::now();
}

void StepProfile::after_step() {
  if (!on_) return;
  events::add(events::Kind::Range, events::label(fmt::format("ProfilerStep#{}", seen_ - 1)), began_, events::now());
  if (++recorded_ == kSteps) interrupt();
}

void StepProfile::interrupt() {
  if (!on_) return;
  on_ = false;
  events::Recording r = profiler::stop();
  if (recorded_ <= steps_) return;
  recording_ = std::move(r);
  steps_ = recorded_;
}

// ---- document and files

json run_document(const RunFacts& facts, GptTrainer& trainer, const std::vector<Metric>& metrics,
                  const StepProfile& profile) {
  const Device device = parse_device(facts.device);
  const GptConfig& m = trainer.model().config;
  static constexpr const char* kStatus[] = {"running", "interrupted", "finished"};
  json d;
  d["schema"] = "pyflame.train/1";
  d["name"] = fs::path(facts.out).filename().string();
  d["status"] = kStatus[static_cast<size_t>(facts.status)];
  d["steps_done"] = trainer.steps_done();
  d["steps"] = trainer.options().steps;
  if (facts.first_step > 0) d["resumed_at"] = facts.first_step;
  d["duration"] = format_duration(facts.seconds);
  std::vector<double> speeds;
  double last_val = NAN;
  for (const Metric& x : metrics) {
    if (x.tokens_per_s > 0) speeds.push_back(x.tokens_per_s);
    if (!x.val_loss || !std::isfinite(*x.val_loss)) continue;
    last_val = *x.val_loss;
    if (!d.contains("best") || last_val < d["best"]["val_loss"].get<double>())
      d["best"] = {{"step", x.step}, {"val_loss", last_val}};
  }
  d["last"] = json::object();
  if (std::isfinite(last_val)) d["last"]["val_loss"] = last_val;
  double sum = 0;
  int64_t n = 0;
  for (auto x = metrics.rbegin(); x != metrics.rend() && n < 20; ++x, ++n) sum += x->loss;
  if (n > 0) d["last"]["loss"] = sum / static_cast<double>(n);
  if (!speeds.empty()) d["median_tokens_per_s"] = median(speeds);
  d["headline"] = headline(facts, trainer, last_val);
  d["subline"] = fmt::format("GPT with {} parameters ({} layers, {} heads, width {}, context {}) on {}",
                             format_count(static_cast<double>(nn::count_parameters(trainer.model()))), m.n_layer,
                             m.n_head, m.n_embd, m.block_size, facts.data);
  d["curves"] = curves_of(metrics);
  d["fallbacks"] = json::array();
  for (const Fallback& f : fallbacks()) d["fallbacks"].push_back(describe_fallback(f));
  d["warnings"] = json::array();
  for (const Metric& x : metrics)
    for (const std::string& warning : x.warnings) d["warnings"].push_back(fmt::format("step {}: {}", x.step, warning));
  d["profile"] = profile_of(profile, has_own_memory(device.type));
  d["memory"] = memory_of(device);
  d["run"] = run_of(facts, trainer, device);
  if (facts.status != RunStatus::finished) d["resume"] = fmt::format("pyflame train gpt --out {} --resume", facts.out);
  return d;
}

void write_run_report(const RunFacts& facts, GptTrainer& trainer, const std::vector<Metric>& metrics,
                      const StepProfile& profile) {
  write_file_atomically("report", (fs::path(facts.out) / "report.html").string(),
                        html_page(run_document(facts, trainer, metrics, profile)));
  if (!profile.recording()) return;
  std::string trace;
  profiler::write_chrome_trace(*profile.recording(), [&trace](std::string_view piece) { trace += piece; });
  write_file_atomically("trace", (fs::path(facts.out) / "trace.json").string(), trace);
}

}  // namespace pyflame::apps::gpt
