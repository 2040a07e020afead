// Profiles of JAX and TensorFlow (NAME.xplane.pb): a protobuf of planes (devices and the host), which have lines
// (streams and threads), which have events. Names stand in tables of their plane, which may follow its lines.
#include <algorithm>
#include <unordered_map>

#include "pyflame/base/error.h"
#include "tools/profile/file_input.h"
#include "tools/profile/importer.h"
#include "tools/profile/protobuf.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace xplane {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30, kMaxTable = 2'000'000;

// The numbers of fields in xplane.proto.
namespace space {
constexpr uint32_t planes = 1;
}
namespace plane {
constexpr uint32_t name = 2, lines = 3, event_names = 4, stat_names = 5, stats = 6;
}
namespace entry {  // of a table
constexpr uint32_t key = 1, value = 2;
}
namespace meta {
constexpr uint32_t name = 2;
}
namespace line {
constexpr uint32_t id = 1, name = 2, time = 3, events = 4;
}
namespace event {
constexpr uint32_t meta = 1, offset = 2, duration = 3, stats = 4, occurrences = 5;
}
namespace stat {
constexpr uint32_t meta = 1, unsigned_value = 3, signed_value = 4, text = 5, reference = 7;
}

using Table = std::unordered_map<uint64_t, std::string_view>;

std::string_view find(const Table& table, uint64_t id) {
  const auto found = table.find(id);
  return found == table.end() ? std::string_view{} : found->second;
}

bool contains(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

// A number after a word: "grid:16,1,1 block:512,1,1".
int64_t number_after(std::string_view text, std::string_view word, size_t nth = 0) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return -1;
  text.remove_prefix(at + word.size());
  for (; nth > 0; --nth) {
    const size_t comma = text.find_first_of(", ");
    if (comma == std::string_view::npos || text[comma] != ',') return -1;
    text.remove_prefix(comma + 1);
  }
  int64_t value = -1;
  return to_int(text.substr(0, text.find_first_not_of("0123456789")), value) ? value : -1;
}

int32_t small(int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, -1, INT32_MAX)); }

struct Stats {
  uint64_t correlation = 0;
  int64_t step = -1;
  std::string_view kernel, copy, hlo_op;
};

struct Line {
  uint64_t id = 0;
  std::string_view name;
  int64_t time = 0;
};

class Reader {
 public:
  Reader(const Source& source, Profile& profile)
      : source_(source), profile_(profile), trace_(profile.trace), process_(profile.process(source.path)) {}

  void read(const Progress& progress) {
    load(progress);
    Message m(bytes_);
    while (m.next())
      if (m.field() == space::planes) read_plane(m.bytes());
    damaged_ = damaged_ || m.damaged();
    PF_CHECK(events_ > 0, Value, "report: '{}' holds no events{}", source_.path, damaged_ ? ": it is damaged" : "");
    if (damaged_) {
      trace_.truncated = true;
      profile_.problem(source_.path, fmt::format("it is cut off or damaged; {} events are reported", events_));
    }
    if (bad_ > 0) profile_.problem(source_.path, fmt::format("{} events without a usable time were left out", bad_));
  }

 private:
  void load(const Progress& progress) {
    FileInput input(source_.path);
    std::string piece(1 << 20, '\0');
    for (size_t got = piece.size(); got == piece.size() && bytes_.size() <= kMaxBytes;) {
      got = input.read(piece.data(), piece.size());
      bytes_.append(piece, 0, got);
      if (progress) progress(source_.path, input.fraction());
    }
    PF_CHECK(bytes_.size() <= kMaxBytes, Value, "report: '{}' is larger than 1 GB; hint: record fewer steps",
             source_.path);
    if (!input.error().empty()) profile_.problem(source_.path, input.error());
  }

  static void add_name(std::string_view bytes, Table& table) {
    uint64_t key = 0;
    std::string_view value, name;
    for (Message m(bytes); m.next();) {
      if (m.field() == entry::key) key = m.number();
      else if (m.field() == entry::value) value = m.bytes();
    }
    for (Message m(value); m.next();)
      if (m.field() == meta::name) name = m.bytes();
    if (table.size() < kMaxTable) table[key] = name;
  }

  void read_plane(std::string_view bytes) {
    std::string_view name;
    event_names_.clear();
    stat_names_.clear();
    for (Message m(bytes); m.next();) {
      if (m.field() == plane::name) name = m.bytes();
      else if (m.field() == plane::event_names) add_name(m.bytes(), event_names_);
      else if (m.field() == plane::stat_names) add_name(m.bytes(), stat_names_);
    }
    const int64_t number = number_after(name, "/device:GPU:");
    const bool host = name.starts_with("/host:CPU");
    device_ = static_cast<int32_t>(std::clamp<int64_t>(number, 0, 1 << 20));
    if (number < 0 && !host) return;
    Message m(bytes);
    while (m.next()) {
      if (m.field() == plane::lines) read_line(m.bytes(), host);
      else if (m.field() == plane::stats && !host) device_fact(m.bytes());
    }
    damaged_ = damaged_ || m.damaged();
  }

  void device_fact(std::string_view bytes) {
    std::string_view name;
    int64_t value = 0;
    for (Message m(bytes); m.next();) {
      if (m.field() == stat::meta) name = find(stat_names_, m.number());
      else if (m.field() == stat::unsigned_value || m.field() == stat::signed_value) value = m.integer();
    }
    if (name == "core_count") trace_.device(device_).cus = small(value);
    else if (name == "memory_size") trace_.device(device_).memory_bytes = std::max<int64_t>(0, value);
    else if (name == "compute_cap_major") trace_.device(device_).major = small(value);
    else if (name == "compute_cap_minor") trace_.device(device_).minor = small(value);
  }

  void read_line(std::string_view bytes, bool host) {
    Line l;
    for (Message m(bytes); m.next();) {
      if (m.field() == line::id) l.id = m.number();
      else if (m.field() == line::name) l.name = m.bytes();
      else if (m.field() == line::time) l.time = m.integer();
    }
    // The other lines of a device are views that were derived from its streams.
    if (!host && !l.name.starts_with("Stream #")) return;
    Message m(bytes);
    while (m.next())
      if (m.field() == line::events) read_event(m.bytes(), l, host);
    damaged_ = damaged_ || m.damaged();
  }

  void read_event(std::string_view bytes, const Line& l, bool host) {
    int64_t offset = 0, duration = 0;
    std::string_view name;
    Stats stats;
    bool total = false;
    for (Message m(bytes); m.next();) {
      if (m.field() == event::meta) name = find(event_names_, m.number());
      else if (m.field() == event::offset) offset = m.integer();
      else if (m.field() == event::duration) duration = m.integer();
      else if (m.field() == event::stats) read_stat(m.bytes(), stats);
      else if (m.field() == event::occurrences) total = true;
    }
    if (total) return;
    // Picoseconds after the start of the line.
    const bool good = l.time >= 0 && l.time < kMaxTime / 4 && offset >= 0 && duration >= 0;
    if (!good) {
      ++bad_;
      return;
    }
    const int64_t start = l.time + offset / 1000,
                  end = l.time + (offset + std::min(duration, INT64_MAX - offset)) / 1000;
    ++events_;
    if (host) cpu(name, stats, l, start, end);
    else work(name, stats, l, start, end);
  }

  void read_stat(std::string_view bytes, Stats& stats) const {
    std::string_view name, text;
    uint64_t value = 0;
    for (Message m(bytes); m.next();) {
      if (m.field() == stat::meta) name = find(stat_names_, m.number());
      else if (m.field() == stat::text) text = m.bytes();
      else if (m.field() == stat::reference) text = find(stat_names_, m.number());
      else if (m.field() == stat::unsigned_value || m.field() == stat::signed_value) value = m.number();
    }
    if (name == "correlation_id") stats.correlation = value;
    else if (name == "step_num") stats.step = static_cast<int64_t>(value & INT64_MAX);
    else if (name == "kernel_details") stats.kernel = text;
    else if (name == "memcpy_details") stats.copy = text;
    else if (name == "hlo_op") stats.hlo_op = text;
  }

  void work(std::string_view name, const Stats& stats, const Line& l, int64_t start, int64_t end) {
    GpuEvent e;
    e.start = start;
    e.end = end;
    e.name = trace_.names.intern(name.ends_with(".kd") ? name.substr(0, name.size() - 3) : name);
    e.device = device_;
    e.stream = std::max(0, small(number_after(l.name, "Stream #")));
    e.process = process_;
    e.correlation = stats.correlation;
    if (name.starts_with("Memset")) {
      e.kind = GpuKind::set;
    } else if (!stats.copy.empty() || name.starts_with("Memcpy")) {
      e.kind = GpuKind::copy;
      e.direction = contains(name, "D2H")   ? Direction::device_to_host
                    : contains(name, "H2D") ? Direction::host_to_device
                    : contains(name, "D2D") ? Direction::device_to_device
                    : contains(name, "P2P") ? Direction::peer
                                            : direction_of(name);
      e.bytes = number_after(stats.copy, "size:");
    } else {
      for (size_t i = 0; i < 3; ++i) {
        e.grid[i] = static_cast<uint32_t>(std::max(0, small(number_after(stats.kernel, "grid:", i))));
        e.block[i] = static_cast<uint32_t>(std::max(0, small(number_after(stats.kernel, "block:", i))));
      }
      e.grid_as_run = true;
      e.lds = small(number_after(stats.kernel, "group_mem:"));
      e.scratch = small(number_after(stats.kernel, "private_mem:"));
    }
    trace_.add(e);
  }

  // A call of the runtime names the HLO operation for which it was made.
  void cpu(std::string_view name, const Stats& stats, const Line& l, int64_t start, int64_t end) {
    if (name.starts_with("$")) {  // a Python function: "$profiler.py:101 start_trace"
      ++trace_.python_calls;
      if (end - start < kMinFrame) return;
      Frame frame;
      frame.start = start;
      frame.end = end;
      frame.name = trace_.names.intern(name.substr(1));
      frame.process = process_;
      frame.thread = l.id;
      trace_.add(frame);
      return;
    }
    const bool call = name.starts_with("hip") || name.starts_with("cuda") || name.starts_with("cu");
    if (call) {
      ApiCall c;
      c.start = start;
      c.end = end;
      c.name = trace_.names.intern(name);
      c.process = process_;
      c.thread = l.id;
      c.correlation = stats.correlation;
      c.external = stats.hlo_op.empty() ? 0 : stats.correlation;
      trace_.add(c);
      if (stats.hlo_op.empty()) return;
    }
    CpuOp op;
    op.start = start;
    op.end = end;
    op.annotation = stats.step >= 0;
    op.name = trace_.names.intern(call            ? std::string(stats.hlo_op)
                                  : op.annotation ? fmt::format("ProfilerStep#{}", stats.step)
                                                  : std::string(name));
    op.process = process_;
    op.thread = l.id;
    op.external = call ? stats.correlation : 0;
    trace_.add(op);
  }

  const Source& source_;
  Profile& profile_;
  Trace& trace_;
  int32_t process_ = 0, device_ = 0;
  std::string bytes_;
  Table event_names_, stat_names_;
  int64_t events_ = 0, bad_ = 0;
  bool damaged_ = false;
};

}  // namespace
}  // namespace xplane

bool is_xplane(const Source& s) {
  // The first field is a plane. Its name, "/host:metadata" or "/device:GPU:0", is one of its first fields.
  const std::string_view head = std::string_view(s.head).substr(0, 64);
  if (!head.starts_with('\x0A')) return false;
  const size_t at = std::min(head.find("/host:"), head.find("/device:"));
  return at != std::string_view::npos && at >= 4 && at < 32 && head[at - 2] == '\x12' && head[at - 1] < 64;
}

void read_xplane(const Source& source, Profile& profile, const Progress& progress) {
  xplane::Reader(source, profile).read(progress);
}

}  // namespace pyflame::tools::profile
