// Where the time of a device was spent. Each instant of the analysed window is assigned to what ran then (shared if
// several streams ran), to the wait for the CPU's launches, or to idleness. So the shares always add up to one.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "pyflame/base/gpu_arch.h"
#include "tools/profile/classify.h"
#include "tools/profile/importer.h"
#include "tools/profile/roofline.h"

namespace pyflame::tools::profile {

struct Options {
  int top = 25;                             // kernels, gaps and so on in the tables
  int64_t first_step = -1, last_step = -1;  // by the number in ProfilerStep#N, or the position; negative: all
  int device = -1;                          // negative: the busiest
  std::string gfx, product;                 // the device, if the trace does not name it, or names it wrongly
};

enum class GapCause : uint8_t {
  dispatch,
  dependency,
  launching,
  python,
  host_code,
  synchronise,
  copy_to_host,
  data_loading,
  allocation,
  compilation,
  loading,
  capture,
  unseen,
  executor,
  recording,
  overhead,
  between,
  no_processor,
  unknown_short,
  unknown
};
// `operators`: the work is that of the CPU, so nothing is launched.
const char* describe(GapCause cause, bool operators = false);
bool is_launch_bound(GapCause cause);

struct Gap {
  int64_t start = 0, end = 0;
  int32_t before = -1, after = -1;  // indices of GPU events
  GapCause cause = GapCause::unknown;
  NameId call = 0;   // the call or operator that the CPU was in
  NameId frame = 0;  // the function, operator or range that ran on the CPU for nearly all of it
};

struct Step {
  int64_t start = 0, end = 0;          // the time that the report assigns to it
  int64_t cpu_start = 0, cpu_end = 0;  // of the annotation
  int64_t number = 0;
};
enum class StepSource : uint8_t { whole, annotation, repetition };

// Work of the device that belongs to no step.
struct Outside {
  int64_t events = 0, before = 0;  // before: launched before the recording
  double us = 0;
};

struct KernelGroup {
  std::string name, full;
  Category category = Category::other;
  std::string_view library;
  NameId id = 0;  // of one of the full names
  std::vector<NameId> names;
  std::string op;  // the operator that launched most of its time
  int64_t calls = 0;
  double us = 0, min_us = 0, max_us = 0;
  std::array<uint32_t, 3> grid = {0, 0, 0}, block = {0, 0, 0};
  int32_t vgpr = -1, lds = -1, scratch = -1;
  double flops = 0, bytes = 0, sized_us = 0;  // of the calls with known sizes
  std::string dtype;
  double narrow_us =
      0;  // of calls with fewer workgroups than compute units, the part of the time of those without work
};

struct CopyGroup {
  GpuKind kind = GpuKind::copy;
  Direction direction = Direction::unknown;
  HostMemory host = HostMemory::unknown;
  int64_t calls = 0, small = 0;  // small: under 64 KiB
  double us = 0, bytes = 0, sized_us = 0;
};

struct CollectiveGroup {
  std::string name;
  int64_t calls = 0;
  double us = 0, bytes = 0;
  int32_t group = 0;
};

struct Analysis {
  const Device* device = nullptr;
  int32_t device_id = 0;
  std::vector<int32_t> devices;  // with work
  const GpuProduct* product = nullptr;
  std::string gfx;
  bool amd = true;
  double compute_units = 0;  // 0 if unknown

  bool timeline = false;       // the trace has times of single events, not only totals
  int64_t start = 0, end = 0;  // of the first and the last span
  double wall_us = 0, busy_us = 0, launch_us = 0, idle_us = 0;
  double device_span_us = 0;  // from the first to the last event of the steps
  StepSource step_source = StepSource::whole;
  std::string step_name;  // of annotated steps: "ProfilerStep"
  std::vector<Step> steps;
  std::vector<int32_t> step_of;                    // of each event, while the steps are chosen
  std::vector<std::pair<int64_t, int64_t>> spans;  // what is analysed: the steps, or everything
  Outside outside;
  std::vector<int32_t> foreign;  // GPU events outside of the steps, which may run during one
  bool has_calls = false;        // the trace has events of the CPU

  std::array<double, kCategories> share_us = {};   // of the window; simultaneous events share an instant
  std::array<double, kCategories> kernel_us = {};  // sums of durations
  std::array<int64_t, kCategories> kernels = {};
  std::vector<KernelClass> classes;  // of each GPU event
  std::vector<int32_t> events;       // GPU events of the steps, by start
  std::vector<KernelGroup> groups;   // by time, longest first
  std::vector<Gap> gaps;             // by length, longest first
  std::vector<CopyGroup> copies;
  std::vector<CollectiveGroup> collectives;
  // Time with communication, and the part of it with compute at the same time.
  double communication_us = 0, overlapped_us = 0;
  int64_t short_kernels = 0;  // shorter than their launch
  double mean_launch_us = 0;
};

Analysis analyse(const Profile& profile, const Options& options);

// In device.cpp: selects the device, and says which product it is.
void choose_device(const Trace& trace, const Options& options, Analysis& a);
// In steps.cpp: finds the steps, their time and their events.
void choose_window(const Trace& trace, const Options& options, Analysis& a);
// In gaps.cpp: why the device was idle.
void explain_gaps(const Trace& trace, Analysis& a);
bool has_capture(const Trace& trace);  // of graphs

inline double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

}  // namespace pyflame::tools::profile
