// CSV files of rocprofv3, of rocpd's converter and of the older rocprof. Columns are found by their names in the header, in any order and case, because versions differ. The header also tells the kind of the file. A run is several files (kernels,
// copies, calls, agents), which share a prefix and the clock.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <regex>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/profile/file_input.h"
#include "tools/profile/importer.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

constexpr size_t kMaxFields = 8192;      // rocprof-compute writes a column for each counter and channel
constexpr int32_t kMaxRegisters = 4096;  // more than any device has

// The fields of a line. Quoted fields may contain commas, and a doubled quote means one.
void split(const std::string& line, std::vector<std::string>& fields) {
  fields.clear();
  std::string field;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c != '"') field += c;
      else if (i + 1 < line.size() && line[i + 1] == '"') field += line[++i];
      else quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      if (fields.size() + 1 < kMaxFields) fields.push_back(std::move(field));
      field.clear();
    } else {
      field += c;
    }
  }
  fields.push_back(std::move(field));
}

class Columns {
 public:
  explicit Columns(const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) index_.try_emplace(lower(names[i]), i);
  }
  bool has(const char* name) const { return index_.count(name) != 0; }
  // The column of the first of these names that the header has; -1 if it has none.
  int find(std::initializer_list<const char*> names) const {
    for (const char* n : names) {
      const auto found = index_.find(n);
      if (found != index_.end()) return static_cast<int>(found->second);
    }
    return -1;
  }

 private:
  std::map<std::string, size_t> index_;
};

enum class Table { none, kernels, copies, calls, counters, stats, agents, passes, system };

Table table_of(const Columns& c) {
  const bool timed = c.find({"start_timestamp", "beginns"}) >= 0 && c.find({"end_timestamp", "endns"}) >= 0;
  if (c.has("counter_name") && c.has("counter_value")) return Table::counters;
  if (c.has("agent_type") && c.has("node_id")) return Table::agents;
  if (c.has("gpu_arch") && c.has("gpu_model") && c.has("cu_per_gpu")) return Table::system;
  if (timed && c.has("dispatch_id") && c.has("gpu_id") && c.has("kernel_name")) return Table::passes;
  if (timed && c.find({"kernel_name", "kernelname"}) >= 0) return Table::kernels;
  if (timed && c.has("direction")) return Table::copies;
  if (timed && c.has("function")) return Table::calls;
  if (c.has("name") && c.has("calls") && c.has("totaldurationns")) return Table::stats;
  return Table::none;
}

// Whether a column of rocprof-compute is a counter: SQ_WAVES, TCC_HIT_sum. Those of single channels, TCC_HIT[3], are
// left out.
bool is_counter(std::string_view name) {
  const std::string_view block = name.substr(0, name.find('_'));
  return block.size() >= 2 && block.size() < name.size() && block != "GPU" && block != "LDS" &&
         name.find('[') == std::string_view::npos && std::all_of(block.begin(), block.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

// A number somewhere in the text: "Agent 4", "GPU 3", "4".
int64_t number_in(const std::string& text) {
  const size_t at = text.find_first_of("0123456789");
  if (at == std::string::npos) return -1;
  const size_t end = text.find_first_not_of("0123456789", at);
  int64_t value = -1;
  return to_int(std::string_view(text).substr(at, end - at), value) ? value : -1;
}

class CsvReader {
 public:
  CsvReader(const Source& source, Profile& profile, const Progress& progress)
      : source_(source), profile_(profile), trace_(profile.trace), progress_(progress) {}

  void read() {
    LineReader lines(source_.path);
    std::string line;
    PF_CHECK(lines.next(line), Value, "report: '{}' is empty", source_.path);
    if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    split(line, fields_);
    const size_t width = fields_.size();
    const Columns columns(fields_);
    const Table table = table_of(columns);
    locate(columns);
    if (table == Table::passes)
      for (size_t i = 0; i < width; ++i)
        if (is_counter(fields_[i])) counters_.emplace_back(static_cast<int>(i), trace_.names.intern(fields_[i]));
    // The files of a folder of rocprof-compute measure the same dispatches, so the times of one file are used.
    const std::string key = prefix() + (table == Table::passes ? "/passes" : "");
    const bool again = table == Table::counters ? other_pass_timed() : known_process(key);
    process_ = profile_.process(key);
    while (lines.next(line)) {
      if (line.empty()) continue;
      if (progress_ && lines.line() % 65536 == 0) progress_(source_.path, lines.fraction());
      split(line, fields_);
      if (fields_.size() < width || !row(table)) {
        ++bad_;
        if (bad_ == 1) first_bad_ = lines.line();
      } else {
        ++rows_;
      }
    }
    if (!again)
      for (const auto& [name, total] : passes_) trace_.totals.push_back(total);
    if (!lines.error().empty()) profile_.problem(source_.path, lines.error() + "; the rows before are reported");
    if (bad_ > 0)
      profile_.problem(source_.path, fmt::format("{} rows could not be read and were left out, the first is line {}",
                                                 bad_, first_bad_));
  }

 private:
  bool known_process(const std::string& key) const {
    return std::find(profile_.processes.begin(), profile_.processes.end(), key) != profile_.processes.end();
  }

  // rocprofv3 runs the program once for each group of counters and writes a folder pmc_N or pass_N for each. The times
  // of one such folder are used.
  bool other_pass_timed() {
    static const std::regex pass("^(.*/)?((?:pmc|pass)_[0-9]+)/");
    std::smatch parts;
    if (!std::regex_search(source_.path, parts, pass)) return false;
    const std::string run = parts[1].str() + "/timed passes ", own = run + parts[2].str();
    const bool other = std::any_of(profile_.processes.begin(), profile_.processes.end(),
                                   [&](const std::string& p) { return p.starts_with(run) && p != own; });
    if (!other) profile_.process(own);
    return other;
  }

  // The common part of the names of files of one run: host/1234_kernel_trace.csv -> host/1234
  std::string prefix() const {
    std::string p = source_.path;
    for (const char* suffix :
         {"_kernel_trace.csv", "_memory_copy_trace.csv", "_hip_api_trace.csv", "_hsa_api_trace.csv",
          "_marker_api_trace.csv", "_rccl_api_trace.csv", "_counter_collection.csv", "_agent_info.csv"})
      if (p.ends_with(suffix)) return p.substr(0, p.size() - std::string_view(suffix).size());
    const size_t slash = p.rfind('/');
    return slash == std::string::npos ? "" : p.substr(0, slash);
  }

  void locate(const Columns& c) {
    name_ = c.find({"kernel_name", "kernelname", "function", "name"});
    start_ = c.find({"start_timestamp", "beginns"});
    end_ = c.find({"end_timestamp", "endns"});
    agent_ = c.find({"agent_id", "gpu-id", "gpu_id"});
    stream_ = c.find({"stream_id", "queue_id", "queue-id"});
    queue_ = c.find({"queue_id", "queue-id"});
    correlation_ = c.find({"correlation_id"});
    lds_ = c.find({"lds_block_size", "group_segment_size", "lds_per_workgroup", "lds"});
    scratch_ = c.find({"scratch_size", "private_segment_size", "scratch_per_workitem", "scr"});
    vgpr_ = c.find({"vgpr_count", "arch_vgpr"});
    agpr_ = c.find({"accum_vgpr_count", "accum_vgpr"});
    block_[0] = c.find({"workgroup_size_x", "workgroup_size", "wgr"});
    block_[1] = c.find({"workgroup_size_y"});
    block_[2] = c.find({"workgroup_size_z"});
    grid_[0] = c.find({"grid_size_x", "grid_size", "grd"});
    grid_[1] = c.find({"grid_size_y"});
    grid_[2] = c.find({"grid_size_z"});
    direction_ = c.find({"direction"});
    source_agent_ = c.find({"source_agent_id"});
    destination_agent_ = c.find({"destination_agent_id"});
    domain_ = c.find({"domain"});
    thread_ = c.find({"thread_id", "tid"});
    counter_ = c.find({"counter_name"});
    value_ = c.find({"counter_value"});
    calls_ = c.find({"calls"});
    total_ = c.find({"totaldurationns"});
    min_ = c.find({"minns"});
    max_ = c.find({"maxns"});
    type_ = c.find({"agent_type"});
    node_ = c.find({"logical_node_id", "node_id"});
    cus_ = c.find({"cu_count", "cu_per_gpu"});
    gpu_arch_ = c.find({"gpu_arch"});
    wave_ = c.find({"wave_front_size"});
    product_ = c.find({"product_name"});
    agent_name_ = c.find({"name"});
  }

  const std::string& text(int column) const {
    static const std::string none;
    return column < 0 || static_cast<size_t>(column) >= fields_.size() ? none : fields_[static_cast<size_t>(column)];
  }
  int64_t number(int column, int64_t otherwise) const {
    int64_t v = 0;
    return column >= 0 && to_int(text(column), v) ? v : otherwise;
  }
  uint32_t small(int column) const {
    return static_cast<uint32_t>(std::clamp<int64_t>(number(column, 0), 0, UINT32_MAX));
  }
  int32_t signed_small(int column) const {
    return static_cast<int32_t>(std::clamp<int64_t>(number(column, -1), -1, INT32_MAX));
  }

  bool times(int64_t& start, int64_t& end) const {
    return to_int(text(start_), start) && to_int(text(end_), end) && start >= 0 && end >= start && end <= kMaxTime;
  }

  bool row(Table table) {
    switch (table) {
      case Table::kernels: return kernel();
      case Table::copies: return copy();
      case Table::calls: return call();
      case Table::counters: return counter();
      case Table::stats: return stats();
      case Table::agents: return agent();
      case Table::passes: return pass();
      case Table::system: return system();
      case Table::none: break;
    }
    return false;
  }

  bool kernel() {
    GpuEvent e;
    if (!times(e.start, e.end)) return false;
    e.name = trace_.names.intern(text(name_));
    e.device = static_cast<int32_t>(std::clamp<int64_t>(number_in(text(agent_)), 0, 1 << 20));
    e.stream = stream_of();
    e.process = process_;
    e.correlation = static_cast<uint64_t>(std::max<int64_t>(0, number(correlation_, 0)));
    e.lds = signed_small(lds_);
    e.scratch = signed_small(scratch_);
    e.vgpr = std::min(kMaxRegisters, signed_small(vgpr_));
    if (e.vgpr >= 0 && agpr_ >= 0) e.vgpr += std::clamp(signed_small(agpr_), 0, kMaxRegisters);
    e.grid_in_threads = true;
    for (size_t i = 0; i < 3; ++i) {
      // A single number is the product of the three sizes.
      e.grid[i] = grid_[i] >= 0 ? small(grid_[i]) : 1;
      e.block[i] = block_[i] >= 0 ? small(block_[i]) : 1;
    }
    if (grid_[0] < 0) e.grid = e.block = {0, 0, 0};
    trace_.add(e);
    return true;
  }

  // Streams of different processes are different. Stream 0 with a queue is the default stream.
  int32_t stream_of() const {
    int64_t id = number(stream_, -1);
    if (id < 0) id = number(queue_, 0);
    return static_cast<int32_t>(((static_cast<int64_t>(process_) & 0x7FF) << 20) + (id & 0xFFFFF));
  }

  bool copy() {
    GpuEvent e;
    if (!times(e.start, e.end)) return false;
    const std::string& direction = text(direction_);
    e.kind = GpuKind::copy;
    e.direction = direction_of(direction);
    e.name = trace_.names.intern(direction);
    // The device is the destination, except for copies to the host.
    const int column = e.direction == Direction::device_to_host ? source_agent_ : destination_agent_;
    e.device = static_cast<int32_t>(std::clamp<int64_t>(number_in(text(column)), 0, 1 << 20));
    e.stream = stream_of();
    e.process = process_;
    e.correlation = static_cast<uint64_t>(std::max<int64_t>(0, number(correlation_, 0)));
    trace_.add(e);
    return true;
  }

  bool call() {
    int64_t start = 0, end = 0;
    if (!times(start, end)) return false;
    const std::string domain = lower(text(domain_));
    const auto thread = static_cast<uint64_t>(std::max<int64_t>(0, number(thread_, 0)));
    if (domain.starts_with("marker") || domain.starts_with("rccl")) {
      CpuOp op;
      op.start = start;
      op.end = end;
      op.name = trace_.names.intern(text(name_));
      op.annotation = true;
      op.process = process_;
      op.thread = thread;
      trace_.add(op);
      return true;
    }
    // HSA's calls are inside of HIP's calls. The outer calls tell what the program did.
    if (domain.starts_with("hsa")) return true;
    ApiCall c;
    c.start = start;
    c.end = end;
    c.name = trace_.names.intern(text(name_));
    c.process = process_;
    c.thread = thread;
    c.correlation = static_cast<uint64_t>(std::max<int64_t>(0, number(correlation_, 0)));
    trace_.add(c);
    return true;
  }

  bool counter() {
    double value = 0;
    try {
      value = std::stod(text(value_));
    } catch (const std::exception&) {
      return false;
    }
    if (!std::isfinite(value) || text(counter_).empty()) return false;
    const NameId kernel = trace_.names.intern(text(name_));
    Counter& c = trace_.counters[{kernel, trace_.names.intern(text(counter_))}];
    c.sum += value;
    ++c.count;
    // A dispatch has a row for each counter. Its time is used where no file has timed dispatches.
    int64_t start = 0, end = 0;
    if (times(start, end) && passes_.size() < 100'000 && dispatch_ != std::pair(start, end)) {
      dispatch_ = {start, end};
      add_time(passes_[kernel], kernel, end - start);
    }
    return trace_.counters.size() < 100'000;
  }

  static void add_time(KernelTotal& t, NameId kernel, int64_t ns) {
    const auto length = static_cast<double>(ns);
    t.name = kernel;
    t.min_ns = t.calls == 0 ? length : std::min(t.min_ns, length);
    t.max_ns = std::max(t.max_ns, length);
    t.total_ns += length;
    ++t.calls;
  }

  // A dispatch of rocprof-compute, which runs the program once for each group of counters, one kernel at a time. So the
  // time between kernels says nothing, and only their own times are used.
  bool pass() {
    int64_t start = 0, end = 0;
    if (!times(start, end) || passes_.size() >= 100'000) return false;
    std::string name = text(name_);
    for (const char* suffix : {" [clone .kd]", ".kd"})
      if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
    const NameId kernel = trace_.names.intern(name);
    add_time(passes_[kernel], kernel, end - start);
    for (const auto& [column, counter] : counters_) {
      const std::string& field = text(column);
      double value = 0;
      if (std::from_chars(field.data(), field.data() + field.size(), value).ec != std::errc() || !std::isfinite(value))
        continue;
      if (trace_.counters.size() >= 100'000) break;
      Counter& c = trace_.counters[{kernel, counter}];
      c.sum += value;
      ++c.count;
    }
    return true;
  }

  // sysinfo.csv of rocprof-compute.
  bool system() {
    Device& d = trace_.device(0);
    d.gfx = text(gpu_arch_);
    d.cus = signed_small(cus_);
    return d.gfx.starts_with("gfx");
  }

  bool stats() {
    KernelTotal t;
    const std::string& name = text(name_);
    int64_t total = 0;
    if (name.empty() || !to_int(text(calls_), t.calls) || !to_int(text(total_), total) || t.calls < 0 || total < 0)
      return false;
    // Statistics of calls and those of whole domains have the same header.
    for (const char* other : {"hip", "__hip", "hsa_", "roctx", "nccl", "HIP_", "HSA_", "KERNEL_DISPATCH",
                              "MEMORY_COPY\"", "MARKER_", "SCRATCH_"})
      if (name.starts_with(other) && !name.starts_with("ncclDevKernel") && !name.starts_with("ncclKernel")) return true;
    t.name = trace_.names.intern(name);
    t.kind = name.starts_with("MEMORY_COPY") ? GpuKind::copy : GpuKind::kernel;
    t.total_ns = static_cast<double>(total);
    t.min_ns = static_cast<double>(number(min_, 0));
    t.max_ns = static_cast<double>(number(max_, 0));
    if (trace_.totals.size() < 1'000'000) trace_.totals.push_back(t);
    return true;
  }

  bool agent() {
    if (lower(text(type_)) != "gpu") return true;
    const int64_t node = number(node_, -1);
    if (node < 0 || node > (1 << 20)) return false;
    Device& d = trace_.device(static_cast<int32_t>(node));
    d.gfx = text(agent_name_);
    d.name = text(product_).empty() ? d.gfx : text(product_);
    d.cus = signed_small(cus_);
    d.wave = signed_small(wave_);
    return true;
  }

  const Source& source_;
  Profile& profile_;
  Trace& trace_;
  const Progress& progress_;
  std::vector<std::string> fields_;
  int32_t process_ = 0;
  int64_t rows_ = 0, bad_ = 0, first_bad_ = 0;
  int name_ = -1, start_ = -1, end_ = -1, agent_ = -1, stream_ = -1, queue_ = -1, correlation_ = -1, lds_ = -1,
      scratch_ = -1;
  int vgpr_ = -1, agpr_ = -1, direction_ = -1, source_agent_ = -1, destination_agent_ = -1, domain_ = -1, thread_ = -1;
  int counter_ = -1, value_ = -1, calls_ = -1, total_ = -1, min_ = -1, max_ = -1, type_ = -1, node_ = -1, cus_ = -1,
      wave_ = -1;
  int product_ = -1, agent_name_ = -1, gpu_arch_ = -1;
  std::vector<std::pair<int, NameId>> counters_;  // columns of counters
  std::map<NameId, KernelTotal> passes_;
  std::pair<int64_t, int64_t> dispatch_ = {-1, -1};  // the times of the last row of counters
  std::array<int, 3> grid_ = {-1, -1, -1}, block_ = {-1, -1, -1};
};

Table recognise(const Source& source, bool& old) {
  std::vector<std::string> fields;
  const std::string line = source.first_line();
  if (line.find(',') == std::string::npos) return Table::none;
  split(line, fields);
  const Columns columns(fields);
  const Table table = table_of(columns);
  old = columns.has("beginns") || (table == Table::stats && !columns.has("minns"));
  return table;
}

bool is_trace(const Source& source, bool v1) {
  bool old = false;
  const Table table = recognise(source, old);
  return table != Table::none && table != Table::passes && table != Table::system && old == v1;
}

}  // namespace

bool is_rocprof_csv(const Source& s) { return is_trace(s, false); }
bool is_rocprof_v1_csv(const Source& s) { return is_trace(s, true); }
bool is_rocprof_compute_csv(const Source& s) {
  bool old = false;
  const Table table = recognise(s, old);
  return table == Table::passes || table == Table::system;
}

void read_rocprof_csv(const Source& source, Profile& profile, const Progress& progress) {
  CsvReader(source, profile, progress).read();
}
void read_rocprof_v1_csv(const Source& source, Profile& profile, const Progress& progress) {
  read_rocprof_csv(source, profile, progress);
}

}  // namespace pyflame::tools::profile
