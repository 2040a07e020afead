// The SQLite file of measurements.
#include "pyflame/compile/choices.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/base/threads.h"
#include "pyflame/compile/program.h"
#include "pyflame/version.h"

namespace pyflame {

namespace {

using sqlite::Statement;

constexpr int kSchema = 2;
constexpr int kMostTries = 2;  // of an entry during whose measurement the process ended
// The first look-up reads all rows of a file that has no more than this; that takes some milliseconds. Otherwise, and after the file has
// changed, all rows are read when the queries for single problems have cost as much as that. A query takes as long as reading a hundred rows.
constexpr int64_t kRowsAtOnce = 20000, kRowsOfAQuery = 100;
// How often the system is asked whether the file has changed. Programs are compiled faster than it answers.
constexpr std::chrono::microseconds kBetweenLooks{1000};
// The clock of files may stand still for some milliseconds. A file that was written a moment ago can change and keep its stamp, so there is no copy of it.
constexpr int64_t kSettledSeconds = 2;
constexpr const char* kColumns = "op, problem, environment, entry, sound, tries, us, spread, own, warm_us";

constexpr const char* kCreate =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS environments (id INTEGER PRIMARY KEY, device TEXT NOT NULL, architecture TEXT NOT NULL,"
    " driver TEXT NOT NULL, libraries TEXT NOT NULL, pyflame TEXT NOT NULL,"
    " UNIQUE (device, architecture, driver, libraries, pyflame));"
    "CREATE TABLE IF NOT EXISTS measurements (environment INTEGER NOT NULL REFERENCES environments, op TEXT NOT NULL,"
    " problem TEXT NOT NULL, entry TEXT NOT NULL, us REAL NOT NULL, error REAL NOT NULL, sound INTEGER NOT NULL,"
    " measured_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (environment, op, problem, entry));";
// own: PyFlame takes the entry if there are no measurements. tries: how often a process began to measure the entry and did not come to an end; 0: it was measured.
constexpr const char* kFromFirst =
    "ALTER TABLE measurements ADD COLUMN spread REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE measurements ADD COLUMN warm_us REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE measurements ADD COLUMN workspace INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE measurements ADD COLUMN note TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE measurements ADD COLUMN origin TEXT NOT NULL DEFAULT 'measured';"
    "ALTER TABLE measurements ADD COLUMN own INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE measurements ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX IF NOT EXISTS problems ON measurements (op, problem);"
    "PRAGMA user_version = 2; COMMIT;";
// Which measured problems a tier has. Files of earlier versions lack it, and these versions do not mind it.
constexpr const char* kCreateTiers =
    "CREATE TABLE IF NOT EXISTS tiers (op TEXT NOT NULL, tier TEXT NOT NULL, problem TEXT NOT NULL, PRIMARY KEY (op, "
    "tier, problem)) WITHOUT ROWID";
// Files of earlier versions lack it, and these versions do not mind it.
constexpr const char* kCreateEnumerations =
    "CREATE TABLE IF NOT EXISTS enumerations (environment INTEGER NOT NULL REFERENCES environments, op TEXT NOT NULL, "
    "problem TEXT NOT NULL, impl TEXT NOT NULL, tried INTEGER NOT NULL, looked INTEGER NOT NULL, size INTEGER NOT NULL,"
    " stored_at TEXT NOT NULL, PRIMARY KEY (environment, op, problem, impl)) WITHOUT ROWID";
constexpr Tier kTiers[] = {Tier::bucket, Tier::any_size};

std::mutex g_mutex;
std::atomic<int> g_forks = 0;
[[maybe_unused]] const int g_counts_forks = pthread_atfork(nullptr, nullptr, [] { ++g_forks; });

}  // namespace

namespace {
template <class Times>
bool is_clearly_faster(const Times& m, const Times& own) {
  constexpr double kWins = 0.97;  // what is gained must be worth a change of the order of sums
  if (m.us >= kWins * own.us || m.us * (1 + m.spread / 2) >= own.us) return false;
  return own.warm_us == 0 || (m.warm_us > 0 && m.warm_us <= own.warm_us);
}
}  // namespace

bool clearly_faster(const Measurement& m, const Measurement& own) { return is_clearly_faster(m, own); }

const Environment& environment_of(const Backend& backend, int index) {
  static std::mutex mutex;
  static auto* all = new std::map<std::tuple<const Backend*, int, int>, Environment>;
  std::lock_guard lock(mutex);
  const auto [at, is_new] = all->try_emplace({&backend, index, num_threads()});
  Environment& e = at->second;
  if (is_new) {
    const DeviceInfo info = backend.info(index);
    e = {info.name, info.architecture, "", backend.libraries(index), PYFLAME_VERSION};
    for (const auto& [key, value] : info.extra)
      if (key == "driver") e.driver = value;
  }
  return e;
}

std::string problem_key(const Problem& p) {
  if (p.size() == 1) return describe_node(p.graph, p.node(0));
  std::string key;
  for (size_t i = 0; i < p.size(); ++i) {
    if (i > 0) key += " | ";
    key += describe_node(p.graph, p.node(i));
  }
  return key;
}

namespace {
std::mutex g_settings_mutex;
std::optional<double> g_budget_ms;
std::optional<std::vector<std::string>> g_entries;
bool g_all_algorithms = false;
std::string g_file;
Choices* g_in_use = nullptr;  // of the file of the settings, once that exists; g_settings_mutex guards it

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

// The caller holds the lock.
const std::vector<std::string>& entries() {
  if (!g_entries) g_entries = split_names(env::tune_entries());
  return *g_entries;
}
// The caller holds the lock.
const std::string& file_of_settings() {
  static const auto* usual = new std::string(env::cache_dir() + "/choices.sqlite");
  return g_file.empty() ? *usual : g_file;
}
}  // namespace

double tune_budget_ms() {
  std::lock_guard lock(g_settings_mutex);
  return g_budget_ms.value_or(static_cast<double>(env::tune_budget_ms()));
}
void set_tune_budget_ms(double ms) {
  PF_CHECK(ms >= 0, Value, "set_tune_budget_ms: a negative budget; got {}; expected milliseconds", ms);
  std::lock_guard lock(g_settings_mutex);
  g_budget_ms = ms;
}
bool may_measure(std::string_view impl) {
  std::lock_guard lock(g_settings_mutex);
  const std::vector<std::string>& names = entries();
  return names.empty() || std::find(names.begin(), names.end(), impl) != names.end();
}
std::vector<std::string> tune_entries() {
  std::lock_guard lock(g_settings_mutex);
  return entries();
}
void set_tune_entries(std::vector<std::string> names) {
  std::lock_guard lock(g_settings_mutex);
  g_entries = std::move(names);
}
bool tunes_all_algorithms() {
  std::lock_guard lock(g_settings_mutex);
  return g_all_algorithms;
}
void set_tune_all_algorithms(bool all) {
  std::lock_guard lock(g_settings_mutex);
  g_all_algorithms = all;
}
std::string choices_file() {
  std::lock_guard lock(g_settings_mutex);
  return file_of_settings();
}
void set_choices_file(std::string file) {
  std::lock_guard lock(g_settings_mutex);
  g_file = std::move(file), g_in_use = nullptr;
}
bool uses_choices() { return env::tuned(); }

namespace {
auto& all_files() {
  static auto* all = new std::map<std::string, std::unique_ptr<Choices>>;
  return *all;
}
}  // namespace

Choices& Choices::in(const std::string& file) {
  std::lock_guard lock(g_mutex);
  std::unique_ptr<Choices>& c = all_files()[file];
  // A connection must not be used in a child of the process that opened it, nor closed there.
  if (c && c->forks_ != g_forks) static_cast<void>(c.release());
  if (!c) c.reset(new Choices(file));
  return *c;
}

Choices* Choices::if_present(const std::string& file) {
  {
    std::lock_guard lock(g_mutex);
    const auto at = all_files().find(file);
    if (at != all_files().end() && at->second && at->second->forks_ == g_forks) return at->second.get();
  }
  return std::filesystem::exists(file) ? &in(file) : nullptr;
}

Choices* Choices::if_present() {
  std::lock_guard lock(g_settings_mutex);
  if (!g_in_use || g_in_use->forks_ != g_forks) g_in_use = if_present(file_of_settings());
  return g_in_use;
}

Choices::Choices(const std::string& path) : path_(path), forks_(g_forks) {}

// Opens the file if no query has done so before. false: it cannot be used.
bool Choices::opens() {
  if (!db_) {
    db_.emplace(path_);
    trouble_ = db_->trouble();
    if (trouble_.empty()) trouble_ = prepare(path_);
    if (!trouble_.empty())
      fmt::print(stderr, "pyflame: measured choices are neither read nor kept ({}); printed once\n", trouble_);
  }
  return trouble_.empty();
}

const std::string& Choices::trouble() {
  std::lock_guard lock(g_mutex);
  opens();
  return trouble_;
}

// Brings the file's tables to this version. A file of the first version keeps its rows.
std::string Choices::prepare(const std::string& path) {
  int64_t version = 0;
  {
    Statement s(*db_, "PRAGMA user_version");
    if (s.step() != sqlite::kRow) return path + ": " + db_->message();
    version = s.integer(0);
  }
  if (version == kSchema) return find_tiers(), "";
  if (version != 0 && version != 1)
    return fmt::format("{}: of another version of PyFlame; got schema {}; expected {}", path, version, kSchema);
  if (db_->run(kCreate) && db_->run(kFromFirst)) return find_tiers(), "";
  const std::string why = path + ": " + db_->message();
  db_->run("ROLLBACK");
  Statement s(*db_, "PRAGMA user_version");  // another process may have done it meanwhile
  return s.step() == sqlite::kRow && s.integer(0) == kSchema ? "" : why;
}

// Fills the table of tiers of a file that lacks it. Where that is not possible, there are no tiers.
void Choices::find_tiers() {
  {
    Statement s(*db_, "SELECT 1 FROM sqlite_master WHERE name = 'tiers'");
    if (s.step() == sqlite::kRow) return;
  }
  if (!db_->run("BEGIN IMMEDIATE")) return;
  if (!db_->run(kCreateTiers)) return static_cast<void>(db_->run("ROLLBACK"));
  {
    Statement s(*db_, "SELECT DISTINCT op, problem FROM measurements");
    while (s.step() == sqlite::kRow) add_tiers(std::string(s.text(0)), std::string(s.text(1)));
  }
  if (!db_->run("COMMIT")) db_->run("ROLLBACK");
}

void Choices::add_tiers(const std::string& op, const std::string& problem) {
  for (const Tier tier : kTiers) {
    Statement s(*db_, "INSERT OR IGNORE INTO tiers (op, tier, problem) VALUES (?, ?, ?)");
    s << op << tier_key(tier, problem) << problem;
    s.step();
  }
}

std::optional<int64_t> Choices::environment_id(const Environment& e, bool make) {
  if (make) {
    Statement s(
        *db_,
        "INSERT OR IGNORE INTO environments (device, architecture, driver, libraries, pyflame) VALUES (?, ?, ?, ?, ?)");
    s << e.device << e.architecture << e.driver << e.libraries << e.pyflame;
    s.step();
  }
  Statement s(*db_,
              "SELECT id FROM environments WHERE device = ? AND architecture = ? AND driver = ? AND libraries = ? AND "
              "pyflame = ?");
  s << e.device << e.architecture << e.driver << e.libraries << e.pyflame;
  if (s.step() != sqlite::kRow) return std::nullopt;
  return s.integer(0);
}

namespace {

std::string key_of(const Environment& e) {
  return e.device + '\n' + e.architecture + '\n' + e.driver + '\n' + e.libraries + '\n' + e.pyflame + '\n';
}

}  // namespace

// What the rows of a problem say, in the order of their times.
Choices::Known Choices::known_from(const std::vector<const ChoiceRow*>& rows, const Place& place, bool for_tuning) {
  Known known;
  const ChoiceRow* own = nullptr;
  const auto is_good = [](const ChoiceRow* r) { return r->sound && r->tries == 0; };
  for (const ChoiceRow* r : rows) {
    const bool good = is_good(r);
    if (r->environment != place.here) {
      const auto end = place.elsewhere.end();
      if (good && !known.elsewhere && std::find(place.elsewhere.begin(), end, r->environment) != end)
        known.elsewhere = r->entry;
    } else if (r->tries == 0 || r->tries >= kMostTries) {
      if (for_tuning) known.tried.emplace_back(r->entry);
      if (good && r->own && !own) own = r;
    }
  }
  for (const ChoiceRow* r : rows) {
    if (r->environment != place.here || !is_good(r)) continue;
    if (!own || r == own || is_clearly_faster(*r, *own)) {
      if (!known.best) known.best = r->entry;
      else known.next.emplace_back(r->entry);
    }
    if (r == own) break;
  }
  return known;
}

void Choices::forget() {
  stamp_ = {}, looked_ = {}, row_count_ = -1, has_all_ = false;
  table_.reset(), asked_.clear(), places_.clear(), tiers_.clear(), environments_.reset();
}

// A call of the system instead of a query, which locks the file.
void Choices::forget_if_changed() {
  const auto time = std::chrono::steady_clock::now();
  if (time - looked_ < kBetweenLooks) return;
  const FileStamp now = FileStamp::of(path_);
  if (now != stamp_) forget();
  stamp_ = now, looked_ = time;
}

const Choices::Place& Choices::place_of(const Environment& e) {
  for (const auto& [known, place] : places_)
    if (known == e) return place;
  Place& place = places_.emplace_back(e, Place{}).second;
  if (!environments_) read_environments();
  for (const auto& [id, other] : *environments_)
    if (other == e) place.here = id;
    else if (other.device == e.device && other.architecture == e.architecture) place.elsewhere.push_back(id);
  return place;
}

void Choices::read_environments() {
  Statement s(*db_, "SELECT id, device, architecture, driver, libraries, pyflame FROM environments");
  environments_.emplace();
  const auto text = [&s](int column) { return std::string(s.text(column)); };
  while (s.step() == sqlite::kRow)
    environments_->emplace_back(s.integer(0), Environment{text(1), text(2), text(3), text(4), text(5)});
}

namespace {
ChoiceRow row_of(const Statement& s) {  // that selects kColumns
  ChoiceRow r;
  r.op = s.text(0), r.problem = s.text(1), r.entry = s.text(3);
  r.environment = s.integer(2), r.tries = s.integer(5);
  r.us = s.real(6), r.spread = s.real(7), r.warm_us = s.real(9);
  r.sound = s.integer(4) != 0, r.own = s.integer(8) != 0;
  return r;
}
}  // namespace

// Whether a process is writing the file, or may have ended while it did. SQLite knows what counts then.
bool Choices::is_written() const {
  return access((path_ + "-journal").c_str(), F_OK) == 0 || access((path_ + "-wal").c_str(), F_OK) == 0;
}

void Choices::read_copy() {
  has_looked_for_copy_ = true;
  if (stamp_.size < 0 || is_written()) return;
  Environments all;
  table_ = ChoiceTable::from_copy(path_ + ".rows", stamp_, all);
  if (!table_) return;
  environments_ = std::move(all), has_all_ = has_read_all_ = true;
}

// Of rows that were read after stamp_, if the file has not changed since.
void Choices::write_copy() const {
  const int64_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  if (stamp_.size < 0 || stamp_.modified + kSettledSeconds > now || is_written()) return;
  if (environments_ && FileStamp::of(path_) == stamp_) table_->write_copy(path_ + ".rows", stamp_, *environments_);
}

bool Choices::reading_all_pays() {
  if (has_read_all_ && asked_.empty()) return false;
  if (row_count_ < 0) {
    Statement s(*db_, "SELECT max(rowid) FROM measurements");  // it need not count them
    row_count_ = s.step() == sqlite::kRow ? s.integer(0) : 0;
  }
  return row_count_ <= kRowsOfAQuery * std::ssize(asked_) + (has_read_all_ ? 0 : kRowsAtOnce);
}

// If the file cannot be read to its end, single problems are asked for.
void Choices::read_all() {
  ++queries_, has_read_all_ = true;
  auto all = std::make_unique<ChoiceTable>(row_count_);
  Statement s(*db_, fmt::format("SELECT {} FROM measurements", kColumns).c_str());
  int state = 0;
  while ((state = s.step()) == sqlite::kRow) all->add(row_of(s));
  if (state != sqlite::kDone) return;
  table_ = std::move(all), has_all_ = true;
  write_copy();
}

void Choices::read_one(const std::string& op, const std::string& problem) {
  if (!asked_.insert(op + '\n' + problem).second) return;
  ++queries_;
  if (!table_) table_ = std::make_unique<ChoiceTable>(1024);
  Statement s(*db_, fmt::format("SELECT {} FROM measurements WHERE op = ? AND problem = ?", kColumns).c_str());
  s << op << problem;
  while (s.step() == sqlite::kRow) table_->add(row_of(s));
}

Choices::Known Choices::known(const Environment& e, const std::string& op, const std::string& problem,
                              bool for_tuning) {
  std::lock_guard lock(g_mutex);
  if (!trouble_.empty()) return {};
  forget_if_changed();
  if (!has_looked_for_copy_) read_copy();
  if (!has_all_ && !db_) {
    if (!opens()) return {};
    looked_ = {}, forget_if_changed();  // it may have been created
  }
  const Place& place = place_of(e);
  if (!has_all_ && reading_all_pays()) read_all();
  if (!has_all_) read_one(op, problem);
  return known_from(table_->rows_of(op, problem), place, for_tuning);
}

std::vector<std::string> Choices::faster_in_tier(const Environment& e, const std::string& op, const std::string& tier) {
  std::lock_guard lock(g_mutex);
  forget_if_changed();
  const auto [at, is_new] = tiers_.try_emplace(key_of(e) + op + '\n' + tier);
  if (!is_new || !opens()) return at->second;
  ++queries_;
  // CROSS: SQLite looks for the few problems of the tier first, not for all rows of the environment.
  Statement s(
      *db_,
      "SELECT m.problem, m.entry, m.us, m.spread, m.own, m.warm_us FROM tiers t CROSS JOIN measurements m ON m.op = "
      "t.op AND m.problem = t.problem WHERE t.op = ? AND t.tier = ? AND m.environment = ? AND m.sound AND "
      "m.tries = 0 ORDER BY m.problem, m.own DESC");
  s << op << tier << place_of(e).here;
  struct Wins {
    size_t problems = 0;
    double product = 0;  // the sum of the logarithms of its times relative to the own entry's
  };
  std::map<std::string, Wins> wins;
  size_t problems = 0;
  Measurement own;
  std::string problem;
  while (s.step() == sqlite::kRow) {
    Measurement m;
    m.entry = s.text(1), m.us = s.real(2), m.spread = s.real(3), m.own = s.integer(4) != 0, m.warm_us = s.real(5);
    if (const std::string_view next = s.text(0); next != problem) {
      // Without the own entry there is nothing to compare with.
      problem = next, own = m.own ? m : Measurement{};
      problems += m.own;
    } else if (own.own && !m.own && clearly_faster(m, own)) {
      Wins& w = wins[m.entry];
      ++w.problems, w.product += std::log(m.us / own.us);
    }
  }
  std::vector<std::pair<double, std::string>> order;
  if (problems >= kLeastProblems)
    for (const auto& [entry, w] : wins)
      if (w.problems == problems) order.emplace_back(w.product, entry);
  std::sort(order.begin(), order.end());
  for (auto& [product, entry] : order) at->second.push_back(std::move(entry));
  return at->second;
}

void Choices::begin(const Environment& e, const std::string& op, const std::string& problem, const std::string& entry) {
  std::lock_guard lock(g_mutex);
  if (!opens()) return;
  forget();
  forget_begun();
  const auto id = environment_id(e, true);
  if (!id) return;
  Statement s(
      *db_,
      "INSERT INTO measurements (environment, op, problem, entry, us, error, sound, note, tries) VALUES (?, ?, "
      "?, ?, 1e30, 0, 0, 'the process ended while this was measured', 1) ON CONFLICT (environment, op, problem, "
      "entry) DO UPDATE SET tries = tries + 1");
  s << *id << op << problem << entry;
  if (s.step() != sqlite::kDone) return;
  Statement row(*db_, "SELECT rowid FROM measurements WHERE environment = ? AND op = ? AND problem = ? AND entry = ?");
  row << *id << op << problem << entry;
  if (row.step() == sqlite::kRow) begun_ = row.integer(0);
}

void Choices::passed() {
  std::lock_guard lock(g_mutex);
  if (begun_ != 0) forget_begun();
}

// The caller holds the lock. The result is stored later.
void Choices::forget_begun() {
  if (begun_ == 0) return;
  Statement s(*db_, "DELETE FROM measurements WHERE rowid = ? AND tries > 0");
  s << begun_;
  s.step();
  begun_ = 0;
}

void Choices::store(const Environment& e, const std::string& op, const std::string& problem,
                    const std::vector<Measurement>& all) {
  std::lock_guard lock(g_mutex);
  if (!opens()) return;
  forget();                                  // a file that changes twice within a tick of its clock has the same stamp
  if (!db_->run("BEGIN IMMEDIATE")) return;  // another process is writing: this measurement is not stored
  bool ok = false;
  if (const auto id = environment_id(e, true)) {
    ok = true;
    for (const Measurement& m : all) {
      Statement s(
          *db_,
          "INSERT INTO measurements (environment, op, problem, entry, us, error, sound, spread, workspace, "
          "note, own, warm_us, measured_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
          "strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT (environment, op, problem, "
          "entry) DO "
          "UPDATE SET us = excluded.us, error = excluded.error, sound = excluded.sound, spread = "
          "excluded.spread, warm_us = excluded.warm_us, workspace = excluded.workspace, note = excluded.note, own = "
          "max(own, excluded.own), "
          "tries = 0, measured_at = excluded.measured_at");
      s << *id << op << problem << m.entry << m.us << m.error << int64_t{m.sound} << m.spread
        << static_cast<int64_t>(m.workspace) << m.note << int64_t{m.own} << m.warm_us;
      ok &= s.step() == sqlite::kDone;
    }
    add_tiers(op, problem);
  }
  if (!db_->run(ok ? "COMMIT" : "ROLLBACK")) db_->run("ROLLBACK");
}

std::vector<Enumerated> Choices::enumerated(const Environment& e, const std::string& op, const std::string& problem) {
  std::lock_guard lock(g_mutex);
  std::vector<Enumerated> all;
  if (!opens() || !db_->run(kCreateEnumerations)) return all;
  const auto id = environment_id(e, false);
  if (!id) return all;
  Statement s(*db_,
              "SELECT impl, tried, looked, size FROM enumerations WHERE environment = ? AND op = ? AND problem = ?");
  s << *id << op << problem;
  const auto number = [&s](int column) { return static_cast<uint64_t>(s.integer(column)); };
  while (s.step() == sqlite::kRow) all.push_back({std::string(s.text(0)), number(1), number(2), number(3)});
  return all;
}

void Choices::store_enumerated(const Environment& e, const std::string& op, const std::string& problem,
                               const Enumerated& so_far) {
  std::lock_guard lock(g_mutex);
  if (!opens() || !db_->run(kCreateEnumerations)) return;
  forget();
  const auto id = environment_id(e, true);
  if (!id) return;
  Statement s(*db_,
              "INSERT OR REPLACE INTO enumerations (environment, op, problem, impl, tried, looked, size, stored_at) "
              "VALUES (?, ?, ?, ?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now'))");
  s << *id << op << problem << so_far.impl << static_cast<int64_t>(so_far.tried) << static_cast<int64_t>(so_far.looked)
    << static_cast<int64_t>(so_far.size);
  s.step();
}

}  // namespace pyflame
