// rocprofv3's JSON (--output-format json). Records name their agents, kernels, counters and operations by numbers; the
// tables with the names are in the same file, before the records.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>

#include "pyflame/base/error.h"
#include "tools/profile/importer.h"
#include "tools/profile/json_records.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

constexpr std::string_view kRoot = "rocprofiler-sdk-tool.";
constexpr size_t kMaxTable = 2'000'000, kMaxCounters = 100'000;

int32_t to_i32(int64_t v, int64_t least = -1) { return static_cast<int32_t>(std::clamp<int64_t>(v, least, INT32_MAX)); }

class RocprofReader {
 public:
  RocprofReader(const Source& source, Profile& profile) : source_(source), profile_(profile), trace_(profile.trace) {
    process_ = profile.process(source.path);
  }

  void read(const Progress& progress) {
    const auto wanted = [](const std::string& list) {
      return list.starts_with(kRoot) && tables().count(std::string_view(list).substr(kRoot.size())) != 0;
    };
    read_json_records(source_, profile_, progress, wanted, [this](const std::string& list, const JsonRecord& r) {
      (this->*tables().at(std::string_view(list).substr(kRoot.size())))(r);
    });
    if (dispatches_ == 0)
      for (const auto& [name, total] : counted_) trace_.totals.push_back(total);
    if (bad_ > 0) profile_.problem(source_.path, fmt::format("{} records without a usable time were left out", bad_));
  }

 private:
  using Table = void (RocprofReader::*)(const JsonRecord&);
  static const std::map<std::string_view, Table>& tables() {
    static const std::map<std::string_view, Table> all = {
        {"agents", &RocprofReader::agent},
        {"counters", &RocprofReader::counter_name},
        {"strings.buffer_records", &RocprofReader::kind},
        {"strings.marker_api", &RocprofReader::message},
        {"kernel_symbols", &RocprofReader::symbol},
        {"callback_records.counter_collection", &RocprofReader::counters},
        {"buffer_records.kernel_dispatch", &RocprofReader::kernel},
        {"buffer_records.memory_copy", &RocprofReader::copy},
        {"buffer_records.hip_api", &RocprofReader::call},
        {"buffer_records.marker_api", &RocprofReader::marker},
        {"buffer_records.rccl_api", &RocprofReader::marker},
    };
    return all;
  }

  struct Kind {
    std::vector<NameId> operations;
  };
  struct Symbol {
    NameId name = 0;
    int32_t vgpr = -1;
  };

  void agent(const JsonRecord& r) {
    const int64_t node = r.integer("logical_node_id", r.integer("node_id", -1));
    if (r.integer("type") != 2 || node < 0 || node > (1 << 20)) return;
    agents_[r.integer("id.handle")] = static_cast<int32_t>(node);
    Device& d = trace_.device(static_cast<int32_t>(node));
    d.gfx = r.text("name");
    d.name = r.text("product_name").empty() ? r.text("name") : r.text("product_name");
    d.cus = to_i32(r.integer("cu_count"));
    d.wave = to_i32(r.integer("wave_front_size"));
    d.memory_bytes = r.integer("mem_banks.size_in_bytes");
  }

  void counter_name(const JsonRecord& r) {
    if (counters_.size() < kMaxCounters) counters_[r.integer("id.handle")] = trace_.names.intern(r.text("name"));
  }

  void kind(const JsonRecord& r) {
    Kind k;
    for (std::string_view operation : r.all("operations")) k.operations.push_back(trace_.names.intern(operation));
    if (kinds_.size() < 1000) kinds_.push_back(std::move(k));
  }

  void message(const JsonRecord& r) {
    if (messages_.size() < kMaxTable) messages_[r.integer("key")] = trace_.names.intern(r.text("value"));
  }

  void symbol(const JsonRecord& r) {
    Symbol s;
    const std::string_view name = r.text("formatted_kernel_name");
    s.name = trace_.names.intern(name.empty() ? r.text("kernel_name") : name);
    const int64_t vgpr = r.integer("arch_vgpr_count", -1);
    if (vgpr >= 0)
      s.vgpr = to_i32(std::min<int64_t>(vgpr, 4096) + std::clamp<int64_t>(r.integer("accum_vgpr_count"), 0, 4096));
    if (symbols_.size() < kMaxTable) symbols_[r.integer("kernel_id")] = s;
  }

  NameId operation(const JsonRecord& r) const {
    const auto kind = static_cast<size_t>(r.integer("kind", -1)), op = static_cast<size_t>(r.integer("operation", -1));
    return kind < kinds_.size() && op < kinds_[kind].operations.size() ? kinds_[kind].operations[op] : 0;
  }

  bool times(const JsonRecord& r, int64_t& start, int64_t& end) {
    start = r.integer("start_timestamp", -1);
    end = r.integer("end_timestamp", -1);
    const bool good = start >= 0 && end >= start && end <= kMaxTime;
    bad_ += !good;
    return good;
  }

  int32_t device(int64_t handle) const {
    const auto found = agents_.find(handle);
    return found == agents_.end() ? 0 : found->second;
  }
  // Streams of different processes are different. Work without a stream is in that of its queue.
  int32_t stream(const JsonRecord& r) const {
    const int64_t stream = r.integer("stream_id.handle"), queue = r.integer("dispatch_info.queue_id.handle");
    return static_cast<int32_t>(((static_cast<int64_t>(process_) & 0x7FF) << 20) +
                                ((stream != 0 ? stream : queue) & 0xFFFFF));
  }
  static uint64_t correlation(const JsonRecord& r) {
    return static_cast<uint64_t>(std::max<int64_t>(0, r.integer("correlation_id.internal")));
  }

  void kernel(const JsonRecord& r) {
    ++dispatches_;
    GpuEvent e;
    if (!times(r, e.start, e.end)) return;
    if (const auto s = symbols_.find(r.integer("dispatch_info.kernel_id")); s != symbols_.end()) {
      e.name = s->second.name;
      e.vgpr = s->second.vgpr;
    }
    e.device = device(r.integer("dispatch_info.agent_id.handle"));
    e.stream = stream(r);
    e.process = process_;
    e.correlation = correlation(r);
    e.lds = to_i32(r.integer("dispatch_info.group_segment_size", -1));
    e.scratch = to_i32(r.integer("dispatch_info.private_segment_size", -1));
    e.grid_in_threads = true;
    const auto dims = [&](std::string_view x, std::string_view y, std::string_view z) {
      const auto one = [&](std::string_view path) {
        return static_cast<uint32_t>(std::clamp<int64_t>(r.integer(path), 0, UINT32_MAX));
      };
      return std::array<uint32_t, 3>{one(x), one(y), one(z)};
    };
    e.block =
        dims("dispatch_info.workgroup_size.x", "dispatch_info.workgroup_size.y", "dispatch_info.workgroup_size.z");
    e.grid = dims("dispatch_info.grid_size.x", "dispatch_info.grid_size.y", "dispatch_info.grid_size.z");
    trace_.add(e);
  }

  void copy(const JsonRecord& r) {
    GpuEvent e;
    if (!times(r, e.start, e.end)) return;
    e.kind = GpuKind::copy;
    e.name = operation(r);
    e.direction = direction_of(trace_.names[e.name]);
    // The device is the destination, except for copies to the host.
    e.device =
        device(r.integer(e.direction == Direction::device_to_host ? "src_agent_id.handle" : "dst_agent_id.handle"));
    e.stream = stream(r);
    e.process = process_;
    e.correlation = correlation(r);
    e.bytes = std::max<int64_t>(-1, r.integer("bytes", -1));
    trace_.add(e);
  }

  void call(const JsonRecord& r) {
    ApiCall c;
    if (!times(r, c.start, c.end)) return;
    c.name = operation(r);
    c.process = process_;
    c.thread = static_cast<uint64_t>(std::max<int64_t>(0, r.integer("thread_id")));
    c.correlation = correlation(r);
    trace_.add(c);
  }

  void marker(const JsonRecord& r) {
    CpuOp op;
    if (!times(r, op.start, op.end)) return;
    const auto message = messages_.find(r.integer("correlation_id.internal"));
    op.name = message == messages_.end() ? operation(r) : message->second;
    op.annotation = true;
    op.process = process_;
    op.thread = static_cast<uint64_t>(std::max<int64_t>(0, r.integer("thread_id")));
    trace_.add(op);
  }

  // The counters of a dispatch. Its time is used only where the file has no timed dispatches: with counters, kernels
  // run one at a time, so the time between them says nothing.
  void counters(const JsonRecord& r) {
    const auto symbol = symbols_.find(r.integer("dispatch_data.dispatch_info.kernel_id"));
    if (symbol == symbols_.end()) return;
    const NameId kernel = symbol->second.name;
    const std::vector<std::string_view> ids = r.all("records.counter_id.handle"), values = r.all("records.value");
    // A counter has a value for each of its dimensions, such as shader engines.
    std::map<NameId, double> sums;
    for (size_t i = 0; i < ids.size() && i < values.size(); ++i) {
      int64_t id = 0;
      double value = 0;
      const char* end = values[i].data() + values[i].size();
      if (!to_int(ids[i], id) || std::from_chars(values[i].data(), end, value).ptr != end || !std::isfinite(value))
        continue;
      if (const auto name = counters_.find(id); name != counters_.end()) sums[name->second] += value;
    }
    for (const auto& [name, sum] : sums) {
      if (trace_.counters.size() >= kMaxCounters) break;
      Counter& c = trace_.counters[{kernel, name}];
      c.sum += sum;
      ++c.count;
    }
    const int64_t start = r.integer("dispatch_data.start_timestamp", -1),
                  end = r.integer("dispatch_data.end_timestamp", -1);
    if (start < 0 || end < start || end > kMaxTime || counted_.size() >= kMaxCounters) return;
    KernelTotal& total = counted_[kernel];
    const auto length = static_cast<double>(end - start);
    total.name = kernel;
    total.min_ns = total.calls == 0 ? length : std::min(total.min_ns, length);
    total.max_ns = std::max(total.max_ns, length);
    total.total_ns += length;
    ++total.calls;
  }

  const Source& source_;
  Profile& profile_;
  Trace& trace_;
  int32_t process_ = 0;
  int64_t bad_ = 0, dispatches_ = 0;
  std::unordered_map<int64_t, int32_t> agents_;
  std::unordered_map<int64_t, NameId> counters_, messages_;
  std::unordered_map<int64_t, Symbol> symbols_;
  std::vector<Kind> kinds_;
  std::map<NameId, KernelTotal> counted_;
};

}  // namespace

bool is_rocprof_json(const Source& s) {
  return s.head_starts_with("{") && s.head.substr(0, 4096).find("\"rocprofiler-sdk-tool\"") != std::string::npos;
}

void read_rocprof_json(const Source& source, Profile& profile, const Progress& progress) {
  RocprofReader(source, profile).read(progress);
}

}  // namespace pyflame::tools::profile
