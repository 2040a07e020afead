// Profiles of a region: what base/events.h logged, as totals by name and as a Chrome trace that Perfetto and `pyflame report` open.
// A region begins and ends synchronised: what was recorded before it is not in it, and what it recorded is.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/base/events.h"
#include "pyflame/compile/program.h"

namespace pyflame::profiler {

void start(const events::Options& options = {});
// Raises what failed in the region; then there is no recording.
events::Recording stop();

// A region with a name inside of a profile: `profiler::Range r("forward");`
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
  int64_t total_ns = 0, self_ns = 0;  // self: without what lies inside of it on the same thread
  int64_t bytes = 0;
  double flops = 0;
};
// By name, or by name and shapes; by self time, longest first.
std::vector<Average> averages(const events::Recording& r, bool by_shapes = false);

// Writes the trace in pieces.
void write_chrome_trace(const events::Recording& r, const std::function<void(std::string_view)>& sink);
std::string device_name(int32_t device);  // of LabelText::device: "cpu", "launches of rocm:0"

// The labels of a program in the current recording: the program's own, then one for each step. Called while it runs, by its runner.
const std::vector<events::Label>& labels_of(Program& p);
// All of its steps launched as one.
events::Label replay_label(const Program& p);

}  // namespace pyflame::profiler
