// The JSON of the first rocprof (--sys-trace, --hip-trace): a Chrome trace without categories, in which the labels of
// its "processes" tell what an event is. Exact times are texts of nanoseconds in an event's arguments.
#include <algorithm>
#include <map>

#include "pyflame/base/error.h"
#include "tools/profile/importer.h"
#include "tools/profile/json_records.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

enum class Part { other, markers, calls, copies, kernels };

Part part_of(std::string_view label) {
  if (label == "Markers and Ranges") return Part::markers;
  if (label == "CPU HIP API") return Part::calls;
  if (label == "COPY") return Part::copies;
  // Barrier packets and HSA's calls, which are inside of HIP's, are left out.
  return label.starts_with("GPU") && !label.starts_with("GPU Barriers") ? Part::kernels : Part::other;
}

int32_t small(int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, -1, INT32_MAX)); }

class FirstRocprofReader {
 public:
  FirstRocprofReader(const Source& source, Profile& profile)
      : source_(source), profile_(profile), trace_(profile.trace), process_(profile.process(source.path)) {}

  void read(const Progress& progress) {
    read_json_records(
        source_, profile_, progress, [](const std::string& list) { return list == "traceEvents"; },
        [this](const std::string&, const JsonRecord& r) { event(r); });
    if (bad_ > 0) profile_.problem(source_.path, fmt::format("{} events without a usable time were left out", bad_));
  }

 private:
  void event(const JsonRecord& r) {
    if (r.text("name") == "process_name" && r.text("ph") == "M") {
      if (parts_.size() < 10'000) parts_[r.integer("pid")] = part_of(r.text("args.name"));
      return;
    }
    const auto part = parts_.find(r.integer("pid", -1));
    if (r.text("ph") != "X" || part == parts_.end() || part->second == Part::other) return;
    int64_t start = 0, end = 0;
    if (!to_int(r.text("args.BeginNs"), start) || !to_int(r.text("args.EndNs"), end) || start < 0 || end < start ||
        end > kMaxTime) {
      ++bad_;
      return;
    }
    if (part->second == Part::kernels || part->second == Part::copies) work(r, part->second, start, end);
    else cpu(r, part->second, start, end);
  }

  void work(const JsonRecord& r, Part part, int64_t start, int64_t end) {
    GpuEvent e;
    e.start = start;
    e.end = end;
    e.name = trace_.names.intern(r.text("name"));
    if (part == Part::copies) {
      const bool fill = r.text("name").find("Fill") != std::string_view::npos;
      e.kind = fill ? GpuKind::set : GpuKind::copy;
      e.direction = fill ? Direction::unknown : direction_of(r.text("name"));
    }
    e.device = std::max(0, small(r.integer("args.dev-id", r.integer("args.gpu-id"))));
    e.stream = std::max(0, small(r.integer("args.stream-id", r.integer("args.queue-id"))));
    e.process = process_;
    // A grid is the product of its sizes, in work-items.
    const int64_t grid = r.integer("args.grd"), block = r.integer("args.wgr");
    if (grid > 0 && block > 0) {
      e.grid = {static_cast<uint32_t>(std::min<int64_t>(grid, UINT32_MAX)), 1, 1};
      e.block = {static_cast<uint32_t>(std::min<int64_t>(block, UINT32_MAX)), 1, 1};
      e.grid_in_threads = true;
    }
    e.lds = small(r.integer("args.lds", -1));
    e.scratch = small(r.integer("args.scr", -1));
    trace_.add(e);
  }

  void cpu(const JsonRecord& r, Part part, int64_t start, int64_t end) {
    const auto thread = static_cast<uint64_t>(std::max<int64_t>(0, r.integer("args.tid")));
    const NameId name = trace_.names.intern(r.text("name"));
    if (part == Part::calls) {
      ApiCall c;
      c.start = start;
      c.end = end;
      c.name = name;
      c.process = process_;
      c.thread = thread;
      trace_.add(c);
      return;
    }
    CpuOp op;
    op.start = start;
    op.end = end;
    op.name = name;
    op.annotation = true;
    op.process = process_;
    op.thread = thread;
    trace_.add(op);
  }

  const Source& source_;
  Profile& profile_;
  Trace& trace_;
  int32_t process_ = 0;
  int64_t bad_ = 0;
  std::map<int64_t, Part> parts_;
};

}  // namespace

bool is_rocprof_v1_json(const Source& s) {
  return s.head_starts_with("{") && s.head.substr(0, 4096).find("\"traceEvents\"") != std::string::npos &&
         s.head.find("\"BeginNs\"") != std::string::npos && s.head.find("\"process_name\"") != std::string::npos;
}

void read_rocprof_v1_json(const Source& source, Profile& profile, const Progress& progress) {
  FirstRocprofReader(source, profile).read(progress);
}

}  // namespace pyflame::tools::profile
