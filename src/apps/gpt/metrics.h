// Two files of a run: metrics.jsonl, to which the run appends one JSON object per update, and the loss curve that is drawn from it.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "apps/gpt/memory.h"

namespace pyflame::apps::gpt {

struct Metric {
  int64_t step = 0;  // updates done
  double loss = 0;
  std::optional<double> val_loss;
  double lr = 0, tokens_per_s = 0;
  std::optional<MemoryUse> memory;  // where the loss was read
  std::vector<std::string> warnings;
};

class MetricsFile {
 public:
  // Keeps the lines up to and including step `keep_until` and appends to them. Later lines are from updates that a resumed run does
  // again. With keep_until = 0 the file begins anew.
  MetricsFile(const std::string& path, int64_t keep_until);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void append(const std::vector<Metric>& lines);  // OSError if they cannot be written
  const std::vector<Metric>& all() const { return all_; }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  std::vector<Metric> all_;
};

// The losses smoothed by a centred running mean over about a fortieth of the run.
std::vector<Metric> running_mean(const std::vector<Metric>& metrics);

std::string metric_line(const Metric& m);
// A self-contained SVG picture: the training loss (thin as measured, thick as a running mean) and the validation loss.
std::string loss_curve_svg(const std::vector<Metric>& metrics, const std::string& title);

}  // namespace pyflame::apps::gpt
