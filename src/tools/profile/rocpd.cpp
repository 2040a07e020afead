// rocprofv3's database (rocpd, SQLite). Its tables have a suffix for each process, and their columns differ between versions of the schema, so tables and columns are looked up in the file. Its views are not used, because they need functions that not every SQLite has.
// The file may be hostile: it is opened read-only, triggers and views are not trusted, and each text has a limit.
#include <algorithm>
#include <memory>
#include <set>

#include "pyflame/base/error.h"
#include "tools/base/sqlite.h"
#include "tools/profile/importer.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

class Query {
 public:
  Query(ForeignDatabase& db, const std::string& sql) : db_(db), statement_(db.prepare(sql)) {
    if (!statement_) error_ = db.error();
  }
  bool next() {
    if (!error_.empty()) return false;
    const int code = db_.step(statement_.get());
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) error_ = db_.error();
    return false;
  }
  bool null(int i) const { return sqlite3_column_type(statement_.get(), i) == SQLITE_NULL; }
  int64_t integer(int i) const { return sqlite3_column_int64(statement_.get(), i); }
  double real(int i) const { return sqlite3_column_double(statement_.get(), i); }
  std::string text(int i) const {
    const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), i));
    return p == nullptr
               ? ""
               : std::string(p, std::min<size_t>(static_cast<size_t>(sqlite3_column_bytes(statement_.get(), i)), 8192));
  }
  const std::string& error() const { return error_; }

 private:
  ForeignDatabase& db_;
  SqliteStatement statement_;
  std::string error_;
};

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (char c : name) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

class RocpdReader {
 public:
  RocpdReader(const Source& source, Profile& profile, const Progress& progress)
      : source_(source), profile_(profile), trace_(profile.trace), progress_(progress), db_(source.path, 64 << 20) {}

  void read() {
    PF_CHECK(db_.problem().empty(), Value, "report: '{}' cannot be opened as a database; {}", source_.path,
             db_.problem());
    list_tables();
    PF_CHECK(!suffixes_.empty(), Value,
             "report: '{}' is a database, but not of rocprofv3; expected a table rocpd_kernel_dispatch{}", source_.path,
             list_error_.empty() ? "" : "; " + list_error_);
    for (const std::string& suffix : suffixes_) read_run(suffix);
  }

 private:
  void list_tables() {
    Query q(db_, "SELECT name FROM sqlite_master WHERE type = 'table'");
    while (q.next() && tables_.size() < 10'000) tables_.insert(q.text(0));
    list_error_ = q.error();
    constexpr std::string_view dispatch = "rocpd_kernel_dispatch", copy = "rocpd_memory_copy";
    for (const std::string& t : tables_)
      for (std::string_view base : {dispatch, copy})
        if (t.starts_with(base)) suffixes_.insert(t.substr(base.size()));
  }

  std::set<std::string> columns(const std::string& table) const {
    std::set<std::string> out;
    Query q(db_, "PRAGMA table_info(" + quoted(table) + ")");
    while (q.next() && out.size() < 1000) out.insert(q.text(1));
    return out;
  }

  // Reads the rows of a table of this run. `wanted` are the columns; a column that this version lacks is NULL. False if there is no such table.
  template <class Row>
  bool each(const std::string& base, const std::vector<std::string>& wanted, const Row& row) {
    const std::string table = base + suffix_;
    if (tables_.count(table) == 0) return false;
    const std::set<std::string> have = columns(table);
    std::string sql = "SELECT ";
    for (size_t i = 0; i < wanted.size(); ++i)
      sql += (i == 0 ? "" : ", ") + (have.count(wanted[i]) != 0 ? quoted(wanted[i]) : "NULL");
    Query q(db_, sql + " FROM " + quoted(table));
    int64_t n = 0;
    while (q.next()) {
      row(q);
      if (progress_ && ++n % 65536 == 0) progress_(source_.path, 0.5);
    }
    if (!q.error().empty())
      profile_.problem(source_.path, fmt::format("table {}: {}; the rows before are reported", table, q.error()));
    return true;
  }

  const std::string& string_of(int64_t id) const {
    static const std::string none;
    const auto found = strings_.find(id);
    return found == strings_.end() ? none : found->second;
  }

  struct Symbol {
    NameId name = 0;
    int32_t vgpr = -1;
  };
  struct Track {
    int64_t agent = 0, stream = 0, queue = 0, thread = 0;
  };

  void read_run(const std::string& suffix) {
    suffix_ = suffix;
    process_ = profile_.process(source_.path + suffix);
    strings_.clear();
    agents_.clear();
    symbols_.clear();
    correlations_.clear();
    tracks_.clear();
    each("rocpd_string", {"id", "string"}, [&](const Query& q) {
      if (strings_.size() < 2'000'000) strings_[q.integer(0)] = q.text(1);
    });
    each("rocpd_info_agent", {"id", "type", "absolute_index", "name", "product_name", "generic_name", "model_name"},
         [&](const Query& q) { agent(q); });
    each("rocpd_info_kernel_symbol", {"id", "display_name", "kernel_name", "arch_vgpr_count", "accum_vgpr_count"},
         [&](const Query& q) {
           Symbol s;
           s.name = trace_.names.intern(q.null(1) ? q.text(2) : q.text(1));
           if (!q.null(3))
             s.vgpr = small(std::clamp<int64_t>(q.integer(3), -1, 4096) + std::clamp<int64_t>(q.integer(4), 0, 4096));
           if (symbols_.size() < 2'000'000) symbols_[q.integer(0)] = s;
         });
    each("rocpd_event", {"id", "correlation_id"}, [&](const Query& q) {
      if (!q.null(1) && correlations_.size() < 16'000'000)
        correlations_[q.integer(0)] = static_cast<uint64_t>(q.integer(1));
    });
    each("rocpd_track", {"id", "agent_id", "stream_id", "queue_id", "tid"}, [&](const Query& q) {
      if (tracks_.size() < 1'000'000) tracks_[q.integer(0)] = {q.integer(1), q.integer(2), q.integer(3), q.integer(4)};
    });
    kernels();
    copies();
    regions();
    counters();
    if (bad_ > 0) profile_.problem(source_.path, fmt::format("{} rows without a usable time were left out", bad_));
    bad_ = 0;
  }

  void agent(const Query& q) {
    const int64_t index = q.null(2) ? q.integer(0) : q.integer(2);
    if (q.text(1) != "GPU" || index < 0 || index > (1 << 20)) {
      if (agents_.size() < 100'000) agents_[q.integer(0)] = -1;
      return;
    }
    if (agents_.size() < 100'000) agents_[q.integer(0)] = static_cast<int32_t>(index);
    Device& d = trace_.device(static_cast<int32_t>(index));
    for (int column : {3, 5, 6})
      if (q.text(column).starts_with("gfx")) d.gfx = q.text(column);
    d.name = q.null(4) || q.text(4).empty() ? d.gfx : q.text(4);
  }

  static int32_t small(int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, -1, INT32_MAX)); }

  bool times(const Query& q, int64_t& start, int64_t& end) {
    start = q.integer(0);
    end = q.integer(1);
    const bool good = !q.null(0) && !q.null(1) && start >= 0 && end >= start && end <= kMaxTime;
    bad_ += !good;
    return good;
  }

  // The place is in the columns of the table, or in those of its track.
  void place(const Query& q, int agent, int stream, int queue, int track, GpuEvent& e) const {
    Track t;
    const auto found = tracks_.find(q.integer(track));
    if (!q.null(track) && found != tracks_.end()) t = found->second;
    if (!q.null(agent)) t.agent = q.integer(agent);
    if (!q.null(stream)) t.stream = q.integer(stream);
    if (!q.null(queue)) t.queue = q.integer(queue);
    const auto device = agents_.find(t.agent);
    e.device = device == agents_.end() ? small(std::clamp<int64_t>(t.agent, 0, 1 << 20)) : std::max(0, device->second);
    e.stream = static_cast<int32_t>(((static_cast<int64_t>(process_) & 0x7FF) << 20) +
                                    ((t.stream != 0 ? t.stream : t.queue) & 0xFFFFF));
    e.process = process_;
  }

  uint64_t correlation(const Query& q, int column) const {
    const auto found = q.null(column) ? correlations_.end() : correlations_.find(q.integer(column));
    return found == correlations_.end() ? 0 : found->second;
  }

  void kernels() {
    each("rocpd_kernel_dispatch",
         {"start", "end", "kernel_id", "agent_id", "stream_id", "queue_id", "track_id", "event_id",
          "group_segment_size", "private_segment_size", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z",
          "grid_size_x", "grid_size_y", "grid_size_z"},
         [&](const Query& q) {
           GpuEvent e;
           if (!times(q, e.start, e.end)) return;
           const auto symbol = symbols_.find(q.integer(2));
           if (symbol != symbols_.end()) {
             e.name = symbol->second.name;
             e.vgpr = symbol->second.vgpr;
           }
           place(q, 3, 4, 5, 6, e);
           e.correlation = correlation(q, 7);
           e.lds = q.null(8) ? -1 : small(q.integer(8));
           e.scratch = q.null(9) ? -1 : small(q.integer(9));
           e.grid_in_threads = true;
           for (int i = 0; i < 3; ++i) {
             const auto k = static_cast<size_t>(i);
             e.block[k] = static_cast<uint32_t>(std::clamp<int64_t>(q.integer(10 + i), 0, UINT32_MAX));
             e.grid[k] = static_cast<uint32_t>(std::clamp<int64_t>(q.integer(13 + i), 0, UINT32_MAX));
           }
           trace_.add(e);
         });
  }

  void copies() {
    each("rocpd_memory_copy",
         {"start", "end", "name_id", "dst_agent_id", "src_agent_id", "stream_id", "queue_id", "track_id", "event_id",
          "size"},
         [&](const Query& q) {
           GpuEvent e;
           if (!times(q, e.start, e.end)) return;
           const std::string& name = string_of(q.integer(2));
           e.kind = GpuKind::copy;
           e.name = trace_.names.intern(name);
           e.direction = direction_of(name);
           place(q, e.direction == Direction::device_to_host ? 4 : 3, 5, 6, 7, e);
           e.correlation = correlation(q, 8);
           e.bytes = q.null(9) ? -1 : std::max<int64_t>(-1, q.integer(9));
           trace_.add(e);
         });
  }

  void regions() {
    // The category of a region tells whether it is a call or a marker.
    std::map<int64_t, std::string> categories;
    each("rocpd_info_category", {"id", "name"}, [&](const Query& q) {
      if (categories.size() < 10'000) categories[q.integer(0)] = q.text(1);
    });
    const bool own = !categories.empty();
    std::unordered_map<int64_t, int64_t> category_of;
    each("rocpd_event", {"id", "category_id"}, [&](const Query& q) {
      if (!q.null(1) && category_of.size() < 16'000'000) category_of[q.integer(0)] = q.integer(1);
    });
    each("rocpd_region", {"start", "end", "name_id", "tid", "track_id", "event_id"}, [&](const Query& q) {
      int64_t start = 0, end = 0;
      if (!times(q, start, end)) return;
      const auto id = category_of.find(q.integer(5));
      const std::string category = id == category_of.end() ? "" : own ? categories[id->second] : string_of(id->second);
      const std::string& name = string_of(q.integer(2));
      auto thread = static_cast<uint64_t>(q.integer(3));
      const auto track = tracks_.find(q.integer(4));
      if (q.null(3) && track != tracks_.end()) thread = static_cast<uint64_t>(track->second.thread);
      if (category.starts_with("HSA")) return;  // they are inside of HIP's calls
      if (category.starts_with("MARKER") || category.starts_with("RCCL")) {
        CpuOp op;
        op.start = start;
        op.end = end;
        op.name = trace_.names.intern(name);
        op.annotation = true;
        op.process = process_;
        op.thread = thread;
        trace_.add(op);
      } else {
        ApiCall c;
        c.start = start;
        c.end = end;
        c.name = trace_.names.intern(name);
        c.process = process_;
        c.thread = thread;
        c.correlation = correlation(q, 5);
        trace_.add(c);
      }
    });
  }

  void counters() {
    std::map<int64_t, NameId> names;
    each("rocpd_info_pmc", {"id", "symbol", "name"}, [&](const Query& q) {
      if (names.size() < 100'000) names[q.integer(0)] = trace_.names.intern(q.null(1) ? q.text(2) : q.text(1));
    });
    if (names.empty()) return;
    std::unordered_map<int64_t, NameId> kernel_of;
    each("rocpd_kernel_dispatch", {"event_id", "kernel_id"}, [&](const Query& q) {
      const auto symbol = symbols_.find(q.integer(1));
      if (!q.null(0) && symbol != symbols_.end() && kernel_of.size() < 16'000'000)
        kernel_of[q.integer(0)] = symbol->second.name;
    });
    // A counter has a row for each of its dimensions, such as shader engines, one after the other.
    std::map<std::pair<NameId, NameId>, int64_t> last_event;
    each("rocpd_pmc_event", {"event_id", "pmc_id", "value"}, [&](const Query& q) {
      const auto kernel = kernel_of.find(q.integer(0));
      const auto name = names.find(q.integer(1));
      if (kernel == kernel_of.end() || name == names.end() || trace_.counters.size() >= 100'000) return;
      const std::pair key(kernel->second, name->second);
      Counter& c = trace_.counters[key];
      c.sum += q.real(2);
      const auto [last, first] = last_event.try_emplace(key, q.integer(0));
      if (first || last->second != q.integer(0)) ++c.count;
      last->second = q.integer(0);
    });
  }

  const Source& source_;
  Profile& profile_;
  Trace& trace_;
  const Progress& progress_;
  mutable ForeignDatabase db_;  // the progress handler is called after so many steps
  std::set<std::string> tables_, suffixes_;
  std::string list_error_, suffix_;
  int32_t process_ = 0;
  int64_t bad_ = 0;
  std::unordered_map<int64_t, std::string> strings_;
  std::unordered_map<int64_t, int32_t> agents_;
  std::unordered_map<int64_t, Symbol> symbols_;
  std::unordered_map<int64_t, uint64_t> correlations_;
  std::unordered_map<int64_t, Track> tracks_;
};

}  // namespace

bool is_rocpd(const Source& s) {
  // Recognises a database by the names of its tables, which are at the start of the file. MIOpen's databases have no table that begins with rocpd_.
  return s.head.starts_with("SQLite format 3") && s.head.find("rocpd_") != std::string::npos;
}

void read_rocpd(const Source& source, Profile& profile, const Progress& progress) {
  RocpdReader(source, profile, progress).read();
}

}  // namespace pyflame::tools::profile
