// Chrome traces as PyTorch (Kineto) writes them, of NVIDIA and AMD devices. They may have gigabytes, so the file is parsed as a stream of tokens, and only what a report needs is kept. Of a truncated trace, the events before the end are used.
#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/profile/file_input.h"
#include "tools/profile/importer.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;

constexpr int64_t kMaxRank = 1 << 16;
constexpr size_t kMaxCapture = 2048;  // bytes of an array kept as text
constexpr size_t kMostFallbacks = 200;

enum class Key : uint8_t {
  none,
  ph,
  cat,
  name,
  ts,
  dur,
  pid,
  tid,
  args,  // of an event
  external,
  correlation,
  device,
  stream,
  grid,
  block,
  bytes,
  shared,
  vgpr,
  dims,
  types,
  values,
  collective,
  in_elements,
  dtype,
  group,
  process_group,
  group_ranks,
  sequence,
  rank,
  work,
  flops,
  ceiling,
  rate,
  source,
  fallback,
  id,
  cus,
  memory,
  warp,
  major,
  minor,  // of a device
};

Key key_of(std::string_view k) {
  static const std::unordered_map<std::string_view, Key> keys = {
      {"ph", Key::ph},
      {"cat", Key::cat},
      {"name", Key::name},
      {"ts", Key::ts},
      {"dur", Key::dur},
      {"pid", Key::pid},
      {"tid", Key::tid},
      {"args", Key::args},
      {"External id", Key::external},
      {"external id", Key::external},
      {"correlation", Key::correlation},
      {"device", Key::device},
      {"stream", Key::stream},
      {"grid", Key::grid},
      {"block", Key::block},
      {"bytes", Key::bytes},
      {"Bytes", Key::bytes},
      {"shared memory", Key::shared},
      {"registers per thread", Key::vgpr},
      {"Input Dims", Key::dims},
      {"Input dims", Key::dims},
      {"Input type", Key::types},
      {"Concrete Inputs", Key::values},
      {"Collective name", Key::collective},
      {"In msg nelems", Key::in_elements},
      {"dtype", Key::dtype},
      {"Group size", Key::group},
      {"Process Group Name", Key::process_group},
      {"Process Group Ranks", Key::group_ranks},
      {"Seq", Key::sequence},
      {"rank", Key::rank},
      {"work", Key::work},
      {"flops", Key::flops},
      {"ceiling", Key::ceiling},
      {"rate", Key::rate},
      {"source", Key::source},
      {"fallback", Key::fallback},
      {"id", Key::id},
      {"numSms", Key::cus},
      {"totalGlobalMem", Key::memory},
      {"warpSize", Key::warp},
      {"computeMajor", Key::major},
      {"computeMinor", Key::minor},
  };
  const auto found = keys.find(k);
  return found == keys.end() ? Key::none : found->second;
}

enum class EventKind : uint8_t { other, op, annotation, call, frame, kernel, copy, set };

EventKind kind_of_event(std::string_view cat) {
  static const std::unordered_map<std::string_view, EventKind> table = {
      {"cpu_op", EventKind::op},
      {"Operator", EventKind::op},
      {"user_annotation", EventKind::annotation},
      {"cuda_runtime", EventKind::call},
      {"cuda_driver", EventKind::call},
      {"hip_runtime", EventKind::call},
      {"hip_driver", EventKind::call},
      {"runtime", EventKind::call},
      {"Runtime", EventKind::call},
      {"privateuse1_runtime", EventKind::call},
      {"python_function", EventKind::frame},
      {"kernel", EventKind::kernel},
      {"Kernel", EventKind::kernel},
      {"gpu_memcpy", EventKind::copy},
      {"Memcpy", EventKind::copy},
      {"gpu_memset", EventKind::set},
      {"Memset", EventKind::set},
      // A trace of pf.profiler: a launch is a step on the host.
      {"launch", EventKind::kernel},
      {"wait", EventKind::call},
      {"plan", EventKind::call},
      {"allocation", EventKind::call},
      {"ready", EventKind::call},
  };
  const auto found = table.find(cat);
  return found == table.end() ? EventKind::other : found->second;
}

struct Scalar {
  bool number = false;
  int64_t integer = 0;
  double real = 0;
  std::string_view text;  // as in the file
};

// The token handler. The depth tells where a token belongs: an event is an object in the array traceEvents (or in a top-level array).
class Handler {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  Handler(Profile& profile, const std::string& path) : profile_(profile), trace_(profile.trace), path_(path) {
    rank_.process = profile.process(path);
  }

  bool null() { return scalar({}); }
  bool boolean(bool v) {
    return scalar({.number = true, .integer = v, .real = v ? 1.0 : 0.0, .text = v ? "True" : "False"});
  }
  bool number_integer(number_integer_t v) {
    text_ = std::to_string(v);
    return scalar({.number = true, .integer = v, .real = static_cast<double>(v), .text = text_});
  }
  bool number_unsigned(number_unsigned_t v) {
    text_ = std::to_string(v);
    const auto bounded = static_cast<int64_t>(std::min<uint64_t>(v, INT64_MAX));
    return scalar({.number = true, .integer = bounded, .real = static_cast<double>(v), .text = text_});
  }
  bool number_float(number_float_t v, const string_t& raw) {
    const bool fits = std::isfinite(v) && std::abs(v) < 9e18;
    return scalar(
        {.number = true, .integer = fits ? static_cast<int64_t>(v) : 0, .real = std::isfinite(v) ? v : 0, .text = raw});
  }
  bool string(string_t& v) { return scalar({.text = v}); }
  bool binary(binary_t&) { return true; }

  bool start_object(size_t) { return open(true); }
  bool start_array(size_t) { return open(false); }
  bool end_object() { return close(true); }
  bool end_array() { return close(false); }
  bool key(string_t& k) {
    if (depth_ == 1) section_ = section_of(k);
    else if (depth_ == 2 && section_ == Section::distributed) job_key_ = k;
    else if (depth_ == record_depth_) key_ = in_record() ? key_of(k) : Key::none;
    else if (depth_ == record_depth_ + 1 && in_args_) arg_ = key_of(k);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& e) {
    error_position_ = static_cast<int64_t>(position);
    error_ = e.what();
    return false;
  }

  // Call it at the end of the file, which may name its rank there.
  void commit_ranks() {
    if (merged_.empty()) trace_.ranks.push_back(rank_);
    for (const auto& [rank, process] : merged_)
      trace_.ranks.push_back({process, rank, static_cast<int32_t>(merged_.size())});
  }

  int64_t events() const { return events_; }
  int64_t bad_times() const { return bad_times_; }
  int64_t error_position() const { return error_position_; }

 private:
  enum class Section : uint8_t { none, other, events, devices, distributed };

  static Section section_of(std::string_view key) {
    return key == "traceEvents"        ? Section::events
           : key == "deviceProperties" ? Section::devices
           : key == "distributedInfo"  ? Section::distributed
                                       : Section::other;
  }

  struct Event {
    std::string name, ph, cat, dims, types, values, collective, dtype, work, fallback, process_group, group_ranks,
        ceiling, source;
    double flops = -1, rate = 0;
    int64_t ts = 0, dur = 0, external = 0, correlation = 0, pid = 0, tid = 0;
    int64_t device = -1, stream = -1, bytes = -1, shared = -1, vgpr = -1, in_elements = -1, group = 0, sequence = -1,
            rank = -1;
    bool timed = false, bad_time = false;
    std::array<uint32_t, 3> grid = {0, 0, 0}, block = {0, 0, 0};
    size_t grid_n = 0, block_n = 0;
    std::string tid_text;
  };

  bool in_record() const { return section_ == Section::events || section_ == Section::devices; }

  bool open(bool object) {
    ++depth_;
    if (depth_ == 1) {
      // A top-level array is an array of events.
      record_depth_ = object ? 3 : 2;
      section_ = object ? Section::none : Section::events;
      return true;
    }
    if (depth_ == record_depth_ && object && in_record()) {
      event_ = {};
      device_ = {};
      key_ = Key::none;
      in_args_ = false;
    } else if (depth_ == record_depth_ + 1 && in_record()) {
      in_args_ = object && key_ == Key::args;
      arg_ = Key::none;
    } else if (depth_ > record_depth_ + 1 && in_args_) {
      capture(object ? "{" : "[");
    }
    return true;
  }

  bool close(bool object) {
    if (depth_ == record_depth_ && object && in_record()) {
      if (section_ == Section::events) commit_event();
      else commit_device();
    } else if (depth_ > record_depth_ + 1 && in_args_) {
      capture(object ? "}" : "]");
    } else if (depth_ == record_depth_ + 1) {
      in_args_ = false;
    }
    if (depth_ > 0) --depth_;
    return true;
  }

  // Collects the arrays that are kept as text.
  std::string* captured() {
    switch (arg_) {
      case Key::dims: return &event_.dims;
      case Key::types: return &event_.types;
      case Key::values: return &event_.values;
      default: return nullptr;
    }
  }
  void capture(std::string_view token) {
    std::string* to = captured();
    if (to == nullptr || to->size() + token.size() > kMaxCapture) return;
    const bool closing = token == "]" || token == "}";
    if (!closing && !to->empty() && to->back() != '[' && to->back() != '{') *to += ',';
    *to += token;
  }

  bool scalar(const Scalar& v) {
    if (section_ == Section::distributed && depth_ == 2 && v.number) {
      if (job_key_ == "rank") rank_.rank = to_i32(v.integer);
      else if (job_key_ == "world_size") rank_.world = to_i32(v.integer);
    }
    if (!in_record()) return true;
    if (depth_ == record_depth_) {
      if (section_ == Section::events) event_value(v);
      else device_value(v);
    } else if (in_args_ && depth_ == record_depth_ + 1) {
      arg_value(v);
    } else if (in_args_ && depth_ > record_depth_ + 1) {
      if (arg_ == Key::grid && event_.grid_n < 3) event_.grid[event_.grid_n++] = to_u32(v.integer);
      else if (arg_ == Key::block && event_.block_n < 3) event_.block[event_.block_n++] = to_u32(v.integer);
      else if (arg_ == Key::dims) capture(v.text);
      else if (arg_ == Key::types || arg_ == Key::values) capture("\"" + std::string(v.text) + "\"");
    }
    return true;
  }

  static uint32_t to_u32(int64_t v) { return static_cast<uint32_t>(std::clamp<int64_t>(v, 0, UINT32_MAX)); }
  static int32_t to_i32(int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX)); }

  void event_value(const Scalar& v) {
    switch (key_) {
      case Key::ph: event_.ph = v.text.substr(0, 4); break;
      case Key::cat: event_.cat = v.text.substr(0, 64); break;
      case Key::name: event_.name = v.text.substr(0, 8192); break;
      case Key::ts:
        event_.timed = microseconds_to_ns(v.text, event_.ts);
        event_.bad_time |= !event_.timed;
        break;
      case Key::dur: event_.bad_time |= !microseconds_to_ns(v.text, event_.dur); break;
      case Key::pid: event_.pid = v.number ? v.integer : -1; break;
      case Key::tid:
        event_.tid = v.number ? v.integer : -1;
        // "stream 7": the form of older versions
        if (!v.number) event_.tid_text = v.text.substr(0, 64);
        break;
      default: break;
    }
  }

  void arg_value(const Scalar& v) {
    switch (arg_) {
      case Key::external: event_.external = v.integer; break;
      case Key::correlation: event_.correlation = v.integer; break;
      case Key::device:
        if (v.number) event_.device = v.integer;
        break;
      case Key::stream:
        if (v.number) event_.stream = v.integer;
        break;
      case Key::bytes:
        if (v.number) event_.bytes = v.integer;
        break;
      case Key::shared:
        if (v.number) event_.shared = v.integer;
        break;
      case Key::vgpr:
        if (v.number) event_.vgpr = v.integer;
        break;
      case Key::collective: event_.collective = v.text.substr(0, 128); break;
      case Key::dtype: event_.dtype = v.text.substr(0, 64); break;
      case Key::work: event_.work = v.text.substr(0, 64); break;
      case Key::flops:
        if (v.number) event_.flops = v.real;
        break;
      case Key::fallback: event_.fallback = v.text.substr(0, 1024); break;
      case Key::ceiling: event_.ceiling = v.text.substr(0, 64); break;
      case Key::rate:
        if (v.number) event_.rate = v.real;
        break;
      case Key::source: event_.source = v.text.substr(0, 1024); break;
      case Key::in_elements:
        if (v.number) event_.in_elements = v.integer;
        break;
      case Key::group:
        if (v.number) event_.group = v.integer;
        break;
      case Key::process_group: event_.process_group = v.text.substr(0, 64); break;
      case Key::group_ranks: event_.group_ranks = v.text.substr(0, 1024); break;
      case Key::sequence:
        if (v.number) event_.sequence = v.integer;
        break;
      case Key::rank:
        if (v.number && v.integer >= 0 && v.integer < kMaxRank) event_.rank = v.integer;
        break;
      case Key::dims: event_.dims = v.text.substr(0, kMaxCapture); break;
      default: break;
    }
  }

  void device_value(const Scalar& v) {
    switch (key_) {
      case Key::id: device_.id = to_i32(v.integer); break;
      case Key::name: device_.name = v.text.substr(0, 256); break;
      case Key::cus: device_.cus = to_i32(v.integer); break;
      case Key::memory: device_.memory_bytes = v.integer; break;
      case Key::warp: device_.wave = to_i32(v.integer); break;
      case Key::major: device_.major = to_i32(v.integer); break;
      case Key::minor: device_.minor = to_i32(v.integer); break;
      default: break;
    }
  }

  void commit_device() { trace_.device(device_.id) = device_; }

  void commit_event() {
    ++events_;
    if (event_.ph == "M" && !event_.fallback.empty() && trace_.fallbacks.size() < kMostFallbacks)
      trace_.fallbacks.push_back(event_.fallback);
    if (event_.ph == "M" && !event_.ceiling.empty() && event_.rate > 0) commit_ceiling();
    if (event_.ph != "X") return;
    const EventKind category = kind_of_event(event_.cat);
    if (category == EventKind::other) return;
    // Relative clocks may begin a little before their zero.
    const bool sane = event_.timed && !event_.bad_time && event_.ts >= -kMaxTime / 40 && event_.dur >= 0 &&
                      event_.ts <= kMaxTime - event_.dur;
    if (!sane) {
      ++bad_times_;
      return;
    }
    if (category == EventKind::op || category == EventKind::annotation) commit_op(category);
    else if (category == EventKind::call) commit_call();
    else if (category == EventKind::frame) commit_frame();
    else commit_gpu(category);
  }

  // Of the memory in 10^9 bytes, or of products of a dtype in 10^9 operations a second.
  void commit_ceiling() {
    if (!trace_.ceilings) trace_.ceilings.emplace();
    Ceilings& c = *trace_.ceilings;
    c.text = event_.source;
    if (event_.ceiling == "memory") c.gbs = event_.rate;
    else if (const std::string_view type = type_family(event_.ceiling); !type.empty())
      c.tflops[std::string(type)] = event_.rate / 1e3;
  }

  uint64_t thread() const {
    return event_.tid_text.empty() ? static_cast<uint64_t>(event_.tid) : std::hash<std::string>{}(event_.tid_text);
  }

  // The trace of a rank is a process. A file of several merged ranks names the rank in each event.
  int32_t process() {
    if (event_.rank < 0 || rank_.rank >= 0) return rank_.process;
    const auto rank = static_cast<int32_t>(event_.rank);
    const auto [at, fresh] = merged_.try_emplace(rank, 0);
    if (fresh) at->second = profile_.process(fmt::format("{} rank {}", path_, rank));
    return at->second;
  }

  void commit_op(EventKind category) {
    CpuOp op;
    op.start = event_.ts;
    op.end = event_.ts + event_.dur;
    op.name = trace_.names.intern(event_.name);
    op.dims = trace_.names.intern(event_.dims);
    op.types = trace_.names.intern(event_.types);
    // Values (strides, "is causal") are kept only for operators whose cost depends on them.
    const bool wanted =
        event_.name.find("conv") != std::string::npos || event_.name.find("attention") != std::string::npos;
    if (wanted) op.values = trace_.names.intern(event_.values);
    op.annotation = category == EventKind::annotation;
    op.process = process();
    op.thread = thread();
    op.external = static_cast<uint64_t>(std::max<int64_t>(0, event_.external));
    trace_.add(op);
  }

  void commit_call() {
    ApiCall call;
    call.start = event_.ts;
    call.end = event_.ts + event_.dur;
    call.name = trace_.names.intern(event_.name);
    call.process = process();
    call.thread = thread();
    call.correlation = static_cast<uint64_t>(std::max<int64_t>(0, event_.correlation));
    call.external = static_cast<uint64_t>(std::max<int64_t>(0, event_.external));
    trace_.add(call);
  }

  void commit_frame() {
    ++trace_.python_calls;
    // Modules are few, and say what their kernels are for.
    if (event_.dur < kMinFrame && !event_.name.starts_with("nn.Module: ")) return;
    Frame frame;
    frame.start = event_.ts;
    frame.end = event_.ts + event_.dur;
    frame.name = trace_.names.intern(event_.name);
    frame.process = process();
    frame.thread = thread();
    trace_.add(frame);
  }

  void commit_gpu(EventKind category) {
    GpuEvent e;
    e.start = event_.ts;
    e.end = event_.ts + event_.dur;
    e.name = trace_.names.intern(event_.name);
    e.kind = category == EventKind::kernel ? GpuKind::kernel
             : category == EventKind::copy ? GpuKind::copy
                                           : GpuKind::set;
    e.device = to_i32(event_.device >= 0 ? event_.device : std::max<int64_t>(0, event_.pid));
    e.stream = to_i32(event_.stream >= 0 ? event_.stream : std::max<int64_t>(0, event_.tid));
    e.grid = event_.grid;
    e.block = event_.block;
    e.vgpr = to_i32(event_.vgpr);
    e.lds = to_i32(event_.shared);
    e.bytes = event_.bytes;
    e.correlation = static_cast<uint64_t>(std::max<int64_t>(0, event_.correlation));
    e.external = static_cast<uint64_t>(std::max<int64_t>(0, event_.external));
    e.process = process();
    e.work = trace_.names.intern(event_.work);
    if (event_.cat == "launch") e.bytes = -1;
    else if (event_.flops >= 0 && event_.flops < 1e18) e.flops = event_.flops;
    if (const size_t quote = event_.types.find('"'); quote != std::string::npos) {
      const std::string_view first = std::string_view(event_.types).substr(quote + 1);
      e.dtype = trace_.names.intern(std::string(type_family(first.substr(0, first.find('"')))));
    }
    if (e.kind == GpuKind::copy) {
      e.direction = direction_of(event_.name);
      e.host = host_memory_of(event_.name);
    }
    if (!event_.collective.empty()) {
      e.collective = trace_.names.intern(event_.collective);
      e.group = to_i32(event_.group);
      const int64_t size = type_bytes(event_.dtype);
      if (event_.in_elements >= 0 && event_.in_elements < (int64_t{1} << 50) && size > 0)
        e.bytes = event_.in_elements * size;
    }
    if (e.collective != 0 || event_.name.starts_with("nccl")) commit_collective(e);
    trace_.add(e);
  }

  void commit_collective(const GpuEvent& e) {
    Collective c;
    c.start = e.start;
    c.end = e.end;
    c.name = e.collective != 0 ? e.collective : e.name;
    c.group = trace_.names.intern(event_.process_group + " " + event_.group_ranks);
    c.dtype = trace_.names.intern(event_.dtype);
    c.elements = event_.in_elements;
    c.sequence = event_.sequence;
    c.bytes = e.collective != 0 ? e.bytes : -1;
    c.process = e.process;
    c.size = e.group;
    trace_.add(c);
  }

  Profile& profile_;
  Trace& trace_;
  std::string path_, text_, error_;
  int64_t depth_ = 0, record_depth_ = 3;
  Section section_ = Section::none;
  Key key_ = Key::none, arg_ = Key::none;
  bool in_args_ = false;
  std::string job_key_;
  RankTrace rank_;                     // of this file
  std::map<int32_t, int32_t> merged_;  // the processes of the ranks, in a file that has several
  Event event_;
  Device device_;
  int64_t events_ = 0, bad_times_ = 0, error_position_ = -1;
};

}  // namespace

bool is_kineto(const Source& s) {
  if (!s.head_starts_with("{") && !s.head_starts_with("[")) return false;
  if (s.head.find("\"traceEvents\"") != std::string::npos) return true;
  // An array of events; or an object whose metadata is longer than the head.
  const bool phases = s.head.find("\"ph\"") != std::string::npos;
  return phases || s.head.find("\"schemaVersion\"") != std::string::npos ||
         s.head.find("\"deviceProperties\"") != std::string::npos;
}

void read_kineto(const Source& source, Profile& profile, const Progress& progress) {
  FileInput input(source.path);
  JsonStreambuf buffer(input, [&] {
    if (progress) progress(source.path, input.fraction());
  });
  std::istream stream(&buffer);
  Handler handler(profile, source.path);
  // Not strict: text after the trace is ignored.
  const bool whole = json::sax_parse(stream, &handler, json::input_format_t::json, false);
  handler.commit_ranks();
  if (!whole || !input.error().empty()) {
    profile.trace.truncated = true;
    const std::string why = input.error().empty()
                                ? fmt::format("it is cut off or damaged at byte {}", handler.error_position())
                                : input.error();
    PF_CHECK(handler.events() > 0, Value, "report: '{}' holds no events: {}", source.path, why);
    profile.problem(source.path, fmt::format("{}; the {} events before it are reported", why, handler.events()));
  }
  if (buffer.repaired() > 0)
    profile.problem(source.path,
                    fmt::format("{} places were not valid JSON (such as inf, nan or broken text) and were repaired",
                                buffer.repaired()));
  if (handler.bad_times() > 0)
    profile.problem(source.path, fmt::format("{} events without a usable time were left out", handler.bad_times()));
}

bool is_own_trace(const Source& s) { return s.head_starts_with("{\"pyflame\":"); }

void read_own_trace(const Source& source, Profile& profile, const Progress& progress) {
  read_kineto(source, profile, progress);
  Trace& t = profile.trace;
  t.own = true;
  t.on_host = std::none_of(t.gpu.begin(), t.gpu.end(), [](const GpuEvent& e) { return e.correlation != 0; });
  if (!t.on_host) t.ceilings.reset();
}

}  // namespace pyflame::tools::profile
