// Profiles of a region: the events of base/events.h, as totals by name and as a Chrome trace that Perfetto and `pyflame
// report` can open. A region begins and ends with synchronize(): it contains exactly the work that was recorded in it.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/base/events.h"
#include "pyflame/compile/program.h"

namespace pyflame::profiler {

// Begins a recording. RuntimeError if one is under way.
void start(const events::Options& options = {});
// Raises what failed in the region; then the recording is discarded.
events::Recording stop();

void log_memory(Device device);  // the bytes that are in use now

// A named region inside a profile: `profiler::Range r("forward");`
class Range {
 public:
  explicit Range(std::string_view name)
      : marker_(markers::on() ? std::string(name).c_str() : ""),
        label_(events::on() ? events::label(name) : events::Label{}) {
    if (label_.recording) start_ = events::now();
  }
  ~Range() {
    if (label_.recording) events::add(events::Kind::Range, label_, start_, events::now());
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  markers::Scope marker_;
  events::Label label_;
  int64_t start_ = 0;
};

// One row of the totals.
struct Average {
  std::string name, args, place, work;
  events::Kind kind = events::Kind::Range;
  int64_t count = 0;
  int64_t total_ns = 0, self_ns = 0;  // of the host; self: without nested events of the same thread
  // Of devices with times of their own: of the steps that were launched meanwhile, and of this step itself.
  int64_t device_ns = 0, self_device_ns = 0;
  // Of the earliest event, which may have compiled, packed or allocated what later ones use.
  int64_t first_start = std::numeric_limits<int64_t>::max(), first_ns = 0;
  int64_t bytes = 0;
  double flops = 0;
};
// Totals by name, and by shapes and the line that recorded the op; sorted by self time of the device, then of the host, longest first. A step on a GPU and its launches
// are one row.
std::vector<Average> averages(const events::Recording& r, bool by_shapes = false, bool by_place = false);

// Writes the trace in pieces. `further`: more events as JSON, each after a comma.
void write_chrome_trace(const events::Recording& r, const std::function<void(std::string_view)>& sink,
                        std::string_view further = {});
std::string device_name(int32_t device);  // for LabelText::device: "cpu", "launches of rocm:0"

// The labels of a program in the current recording: one for the program, then one per step. Called by the thread that
// runs the program, which keeps them in `labels` for the next run.
events::LabelText text_of(const Program& p, const Step& step);
const std::vector<events::Label>& labels_of(const Program& p, std::vector<events::Label>& labels);
// The name of a step, such as "onednn.sgemm matmul+add", and the line that recorded it, for the vendors' profilers.
std::string step_text(const Program& p, const Step& step);
std::string replay_text(const Program& p);
// The label of a replay, which launches all steps at once.
events::Label replay_label(const Program& p);

}  // namespace pyflame::profiler
