// Profiles of a region: the events of base/events.h, as totals by name and as a Chrome trace that Perfetto and `pyflame
// report` can open. A region begins and ends with synchronize(): it contains exactly the work that was recorded in it.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/base/events.h"
#include "pyflame/compile/program.h"

namespace pyflame::profiler {

void start(const events::Options& options = {});
// Raises what failed in the region; then the recording is discarded.
events::Recording stop();

// A named region inside a profile: `profiler::Range r("forward");`
class Range {
 public:
  explicit Range(std::string_view name) : label_(events::on() ? events::label(name) : events::Label{}) {
    if (label_.recording) start_ = events::now();
  }
  ~Range() {
    if (label_.recording) events::add(events::Kind::Range, label_, start_, events::now());
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  events::Label label_;
  int64_t start_ = 0;
};

struct Average {
  std::string name, args, work;
  events::Kind kind = events::Kind::Range;
  int64_t count = 0;
  int64_t total_ns = 0, self_ns = 0;  // self: without nested events of the same thread
  int64_t bytes = 0;
  double flops = 0;
};
// Totals by name, or by name and shapes; sorted by self time, longest first.
std::vector<Average> averages(const events::Recording& r, bool by_shapes = false);

// Writes the trace in pieces.
void write_chrome_trace(const events::Recording& r, const std::function<void(std::string_view)>& sink);
std::string device_name(int32_t device);  // for LabelText::device: "cpu", "launches of rocm:0"

// The labels of a program in the current recording: one for the program, then one per step. Called by the thread that
// runs the program, which keeps them in `labels` for the next run.
const std::vector<events::Label>& labels_of(const Program& p, std::vector<events::Label>& labels);
// The label of a replay, which launches all steps at once.
events::Label replay_label(const Program& p);

}  // namespace pyflame::profiler
