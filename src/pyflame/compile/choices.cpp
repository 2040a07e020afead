// The SQLite file of measurements.
#include "pyflame/compile/choices.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/compile/program.h"
#include "pyflame/version.h"

namespace pyflame {

namespace {

using sqlite::Statement;

constexpr int kSchema = 2;
constexpr int kMostTries = 2;  // of an entry during whose measurement the process ended
// A query takes as long as reading ten rows. A program reads all rows at once when its queries have cost as much as that.
constexpr int64_t kRowsOfAQuery = 10, kLeastQueries = 8;

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
constexpr Tier kTiers[] = {Tier::bucket, Tier::any_size};

std::mutex g_mutex;

}  // namespace

bool clearly_faster(const Measurement& m, const Measurement& own) {
  constexpr double kWins = 0.97;  // what is gained must be worth a change of the order of sums
  if (m.us >= kWins * own.us || m.us * (1 + m.spread / 2) >= own.us) return false;
  return own.warm_us == 0 || (m.warm_us > 0 && m.warm_us <= own.warm_us);
}

const Environment& environment_of(const Backend& backend, int index) {
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<const Backend*, int>, Environment>;
  std::lock_guard lock(mutex);
  const auto [at, is_new] = all->try_emplace({&backend, index});
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
  std::string key;
  for (size_t i = 0; i < p.size(); ++i) key += (i ? " | " : "") + describe_node(p.graph, p.node(i));
  return key;
}

namespace {
std::mutex g_settings_mutex;
std::optional<double> g_budget_ms;
std::string g_file;
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
std::string choices_file() {
  std::lock_guard lock(g_settings_mutex);
  return g_file.empty() ? env::cache_dir() + "/choices.sqlite" : g_file;
}
void set_choices_file(std::string file) {
  std::lock_guard lock(g_settings_mutex);
  g_file = std::move(file);
}
bool uses_choices() { return env::tuned(); }

Choices& Choices::in(const std::string& file) {
  static auto* all = new std::map<std::string, std::unique_ptr<Choices>>;
  std::lock_guard lock(g_mutex);
  std::unique_ptr<Choices>& c = (*all)[file];
  // A connection must not be used in a child of the process that opened it, nor closed there.
  if (c && c->pid_ != getpid()) static_cast<void>(c.release());
  if (!c) c.reset(new Choices(file));
  return *c;
}

Choices* Choices::if_present(const std::string& file) {
  static std::map<std::string, bool>* there = new std::map<std::string, bool>;
  {
    std::lock_guard lock(g_mutex);
    bool& known = (*there)[file];
    if (!known) known = std::filesystem::exists(file);
    if (!known) return nullptr;
  }
  return &in(file);
}

Choices::Choices(const std::string& path) : db_(path), path_(path), trouble_(db_.trouble()), pid_(getpid()) {
  if (trouble_.empty()) trouble_ = prepare(path);
  if (!trouble_.empty())
    fmt::print(stderr, "pyflame: measured choices are neither read nor kept ({}); printed once\n", trouble_);
}

// Brings the file's tables to this version. A file of the first version keeps its rows.
std::string Choices::prepare(const std::string& path) {
  int64_t version = 0;
  {
    Statement s(db_, "PRAGMA user_version");
    if (s.step() != sqlite::kRow) return path + ": " + db_.message();
    version = s.integer(0);
  }
  if (version == kSchema) return find_tiers(), "";
  if (version != 0 && version != 1)
    return fmt::format("{}: of another version of PyFlame; got schema {}; expected {}", path, version, kSchema);
  if (db_.run(kCreate) && db_.run(kFromFirst)) return find_tiers(), "";
  const std::string why = path + ": " + db_.message();
  db_.run("ROLLBACK");
  Statement s(db_, "PRAGMA user_version");  // another process may have done it meanwhile
  return s.step() == sqlite::kRow && s.integer(0) == kSchema ? "" : why;
}

// Fills the table of tiers of a file that lacks it. Where that is not possible, there are no tiers.
void Choices::find_tiers() {
  {
    Statement s(db_, "SELECT 1 FROM sqlite_master WHERE name = 'tiers'");
    if (s.step() == sqlite::kRow) return;
  }
  if (!db_.run("BEGIN IMMEDIATE")) return;
  if (!db_.run(kCreateTiers)) return static_cast<void>(db_.run("ROLLBACK"));
  {
    Statement s(db_, "SELECT DISTINCT op, problem FROM measurements");
    while (s.step() == sqlite::kRow) add_tiers(s.text(0), s.text(1));
  }
  if (!db_.run("COMMIT")) db_.run("ROLLBACK");
}

void Choices::add_tiers(const std::string& op, const std::string& problem) {
  for (const Tier tier : kTiers) {
    Statement s(db_, "INSERT OR IGNORE INTO tiers (op, tier, problem) VALUES (?, ?, ?)");
    s << op << tier_key(tier, problem) << problem;
    s.step();
  }
}

std::optional<int64_t> Choices::environment_id(const Environment& e, bool make) {
  if (make) {
    Statement s(
        db_,
        "INSERT OR IGNORE INTO environments (device, architecture, driver, libraries, pyflame) VALUES (?, ?, ?, ?, ?)");
    s << e.device << e.architecture << e.driver << e.libraries << e.pyflame;
    s.step();
  }
  Statement s(db_,
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

// The rows of one problem, the fastest first, and what they say.
class ProblemRows {
 public:
  explicit ProblemRows(int64_t here) : here_(here) {}
  // Columns from `first` on: environment, entry, sound, tries, us, spread, own, warm_us.
  void add(const Statement& s, int first) {
    const bool sound = s.integer(first + 2) != 0;
    const int64_t tries = s.integer(first + 3);
    std::string entry = s.text(first + 1);
    if (s.integer(first) != here_) {
      if (sound && tries == 0 && !known_.elsewhere) known_.elsewhere = std::move(entry);
    } else if (tries == 0 || tries >= kMostTries) {
      if (sound && tries == 0) {
        Measurement& m = sound_here_.emplace_back();
        m.entry = entry, m.us = s.real(first + 4), m.spread = s.real(first + 5), m.own = s.integer(first + 6) != 0,
        m.warm_us = s.real(first + 7);
      }
      known_.tried.push_back(std::move(entry));
    }
  }
  Choices::Known finish() {
    const auto end = sound_here_.end();
    const auto own = std::find_if(sound_here_.begin(), end, [](const Measurement& m) { return m.own; });
    const auto wins = [&](const Measurement& m) { return own == end || clearly_faster(m, *own); };
    for (auto m = sound_here_.begin(); m != end && m <= own; ++m) {
      if (m != own && !wins(*m)) continue;
      if (!known_.best) known_.best = std::move(m->entry);
      else known_.next.push_back(std::move(m->entry));
    }
    return std::move(known_);
  }

 private:
  int64_t here_;
  Choices::Known known_;
  std::vector<Measurement> sound_here_;
};

}  // namespace

// A look-up that finds the file as it was costs one call of the system instead of a query, which locks the file.
void Choices::forget_if_changed() {
  struct stat s {};
  Stamp now;
  if (stat(path_.c_str(), &s) == 0) now = {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
  if (now == stamp_) return;
  stamp_ = now, asked_ = 0, rows_ = -1;
  read_.clear(), here_.clear(), all_.clear(), tiers_.clear();
}

int64_t Choices::environment_here(const Environment& e, const std::string& key) {
  const auto [at, is_new] = here_.try_emplace(key, -1);
  if (is_new) at->second = environment_id(e, false).value_or(-1);
  return at->second;
}

int64_t Choices::rows() {
  if (rows_ < 0) {
    Statement s(db_, "SELECT max(rowid) FROM measurements");  // about the number of rows, and it need not count them
    rows_ = s.step() == sqlite::kRow ? s.integer(0) : 0;
  }
  return rows_;
}

// Reads what is known of all problems. False if the file cannot be read.
bool Choices::read_all(const Environment& e, const std::string& environment_key) {
  ++queries_;
  const int64_t here = environment_here(e, environment_key);
  Statement s(db_,
              "SELECT m.op, m.problem, m.environment, m.entry, m.sound, m.tries, m.us, m.spread, m.own, m.warm_us FROM "
              "measurements m JOIN environments e ON e.id = m.environment WHERE e.device = ? AND e.architecture = ? "
              "ORDER BY m.op, m.problem, m.us");
  s << e.device << e.architecture;
  std::string key;
  ProblemRows rows(here);
  int state = 0;
  while ((state = s.step()) == sqlite::kRow) {
    std::string next = environment_key + s.text(0) + '\n' + s.text(1);
    if (next != key) {
      if (!key.empty()) read_[key] = rows.finish();
      key = std::move(next), rows = ProblemRows(here);
    }
    rows.add(s, 2);
  }
  if (state != sqlite::kDone) return false;
  if (!key.empty()) read_[key] = rows.finish();
  all_.insert(environment_key);
  return true;
}

Choices::Known Choices::read_one(const Environment& e, const std::string& environment_key, const std::string& op,
                                 const std::string& problem) {
  ++queries_, ++asked_;
  ProblemRows rows(environment_here(e, environment_key));
  Statement s(
      db_,
      "SELECT m.environment, m.entry, m.sound, m.tries, m.us, m.spread, m.own, m.warm_us FROM measurements m JOIN "
      "environments e ON e.id = m.environment WHERE m.op = ? AND m.problem = ? AND e.device = ? AND "
      "e.architecture = ? ORDER BY m.us");
  s << op << problem << e.device << e.architecture;
  while (s.step() == sqlite::kRow) rows.add(s, 0);
  return rows.finish();
}

Choices::Known Choices::known(const Environment& e, const std::string& op, const std::string& problem) {
  std::lock_guard lock(g_mutex);
  if (!trouble_.empty()) return {};
  forget_if_changed();
  const std::string environment_key = key_of(e), key = environment_key + op + '\n' + problem;
  if (const auto at = read_.find(key); at != read_.end()) return at->second;
  bool all = all_.contains(environment_key);
  if (!all && asked_ >= kLeastQueries && rows() <= kRowsOfAQuery * asked_) all = read_all(e, environment_key);
  if (!all) return read_[key] = read_one(e, environment_key, op, problem);
  return read_[key];
}

std::vector<std::string> Choices::faster_in_tier(const Environment& e, const std::string& op, const std::string& tier) {
  std::lock_guard lock(g_mutex);
  if (!trouble_.empty()) return {};
  forget_if_changed();
  const std::string environment_key = key_of(e);
  const auto [at, is_new] = tiers_.try_emplace(environment_key + op + '\n' + tier);
  if (!is_new) return at->second;
  ++queries_;
  Statement s(db_,
              "SELECT m.problem, m.entry, m.us, m.spread, m.own, m.warm_us FROM tiers t JOIN measurements m ON m.op = "
              "t.op AND m.problem = t.problem WHERE t.op = ? AND t.tier = ? AND m.environment = ? AND m.sound AND "
              "m.tries = 0 ORDER BY m.problem, m.own DESC");
  s << op << tier << environment_here(e, environment_key);
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
    if (std::string next = s.text(0); next != problem) {
      // Without the own entry there is nothing to compare with.
      problem = std::move(next), own = m.own ? m : Measurement{};
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
  if (!trouble_.empty()) return;
  stamp_ = {};
  forget_begun();
  const auto id = environment_id(e, true);
  if (!id) return;
  Statement s(
      db_,
      "INSERT INTO measurements (environment, op, problem, entry, us, error, sound, note, tries) VALUES (?, ?, "
      "?, ?, 1e30, 0, 0, 'the process ended while this was measured', 1) ON CONFLICT (environment, op, problem, "
      "entry) DO UPDATE SET tries = tries + 1");
  s << *id << op << problem << entry;
  if (s.step() != sqlite::kDone) return;
  Statement row(db_, "SELECT rowid FROM measurements WHERE environment = ? AND op = ? AND problem = ? AND entry = ?");
  row << *id << op << problem << entry;
  if (row.step() == sqlite::kRow) begun_ = row.integer(0);
}

void Choices::passed() {
  std::lock_guard lock(g_mutex);
  if (trouble_.empty()) forget_begun();
}

// The caller holds the lock. The result is stored later.
void Choices::forget_begun() {
  if (begun_ == 0) return;
  Statement s(db_, "DELETE FROM measurements WHERE rowid = ? AND tries > 0");
  s << begun_;
  s.step();
  begun_ = 0;
}

void Choices::store(const Environment& e, const std::string& op, const std::string& problem,
                    const std::vector<Measurement>& all) {
  std::lock_guard lock(g_mutex);
  if (!trouble_.empty()) return;
  stamp_ = {};                              // a file that changes twice within a tick of its clock has the same stamp
  if (!db_.run("BEGIN IMMEDIATE")) return;  // another process is writing: this measurement is not stored
  bool ok = false;
  if (const auto id = environment_id(e, true)) {
    ok = true;
    for (const Measurement& m : all) {
      Statement s(
          db_,
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
  if (!db_.run(ok ? "COMMIT" : "ROLLBACK")) db_.run("ROLLBACK");
}

}  // namespace pyflame
