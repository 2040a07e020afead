// The SQLite file of measurements. SQLite is loaded when it is first needed; the core does not link it.
#include "pyflame/compile/choices.h"

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/compile/program.h"
#include "pyflame/version.h"

namespace pyflame {

namespace {

constexpr int kOk = 0, kRow = 100, kDone = 101;
constexpr int kOpenFlags = 0x2 | 0x4 | 0x8000;  // read and write, create, no mutex: we have our own
const auto kCopyText = reinterpret_cast<void (*)(void*)>(static_cast<intptr_t>(-1));
constexpr int kSchema = 1;

struct Sqlite {
  int (*open)(const char*, void**, int, const char*) = nullptr;
  int (*exec)(void*, const char*, void*, void*, char**) = nullptr;
  int (*prepare)(void*, const char*, int, void**, const char**) = nullptr;
  int (*bind_text)(void*, int, const char*, int, void (*)(void*)) = nullptr;
  int (*bind_real)(void*, int, double) = nullptr;
  int (*bind_int)(void*, int, int64_t) = nullptr;
  int (*step)(void*) = nullptr;
  int (*finalize)(void*) = nullptr;
  const unsigned char* (*text)(void*, int) = nullptr;
  int64_t (*integer)(void*, int) = nullptr;
  const char* (*message)(void*) = nullptr;
  int (*wait)(void*, int) = nullptr;
  bool ok = false;
};

const Sqlite& sqlite() {
  static const Sqlite* s = [] {
    auto* f = new Sqlite;
    void* library = nullptr;
    for (const char* name : {"libsqlite3.so.0", "libsqlite3.so"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return f;
    f->ok = true;
    const auto find = [&](auto& member, const char* name) {
      member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, name));
      f->ok &= member != nullptr;
    };
    find(f->open, "sqlite3_open_v2");
    find(f->exec, "sqlite3_exec");
    find(f->prepare, "sqlite3_prepare_v2");
    find(f->bind_text, "sqlite3_bind_text");
    find(f->bind_real, "sqlite3_bind_double");
    find(f->bind_int, "sqlite3_bind_int64");
    find(f->step, "sqlite3_step");
    find(f->finalize, "sqlite3_finalize");
    find(f->text, "sqlite3_column_text");
    find(f->integer, "sqlite3_column_int64");
    find(f->message, "sqlite3_errmsg");
    find(f->wait, "sqlite3_busy_timeout");
    return f;
  }();
  return *s;
}

// One statement; parameters are bound in order.
class Statement {
 public:
  Statement(void* db, const char* sql) {
    if (sqlite().prepare(db, sql, -1, &s_, nullptr) != kOk) s_ = nullptr;
  }
  ~Statement() {
    if (s_) sqlite().finalize(s_);
  }
  Statement(const Statement&) = delete;
  Statement& operator<<(const std::string& x) {
    if (s_) sqlite().bind_text(s_, ++bound_, x.data(), static_cast<int>(x.size()), kCopyText);
    return *this;
  }
  Statement& operator<<(double x) {
    if (s_) sqlite().bind_real(s_, ++bound_, x);
    return *this;
  }
  Statement& operator<<(int64_t x) {
    if (s_) sqlite().bind_int(s_, ++bound_, x);
    return *this;
  }
  int step() { return s_ ? sqlite().step(s_) : -1; }
  std::string text(int column) const {
    const auto* t = sqlite().text(s_, column);
    return t ? reinterpret_cast<const char*>(t) : "";
  }
  int64_t integer(int column) const { return sqlite().integer(s_, column); }

 private:
  void* s_ = nullptr;
  int bound_ = 0;
};

std::mutex g_mutex;

}  // namespace

Environment environment_of(const Backend& backend, int index) {
  const DeviceInfo info = backend.info(index);
  Environment e{info.name, info.architecture, "", backend.libraries(index), PYFLAME_VERSION};
  for (const auto& [key, value] : info.extra)
    if (key == "driver") e.driver = value;
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

Choices& Choices::in(const std::string& file) {
  static auto* all = new std::map<std::string, std::unique_ptr<Choices>>;
  std::lock_guard lock(g_mutex);
  std::unique_ptr<Choices>& c = (*all)[file];
  if (!c) c.reset(new Choices(file));
  return *c;
}

Choices::Choices(const std::string& path) {
  if (!sqlite().ok) {
    trouble_ = "SQLite (libsqlite3.so.0) was not found";
  } else {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    if (sqlite().open(path.c_str(), &db_, kOpenFlags, nullptr) != kOk) {
      trouble_ = path + ": " + (db_ ? sqlite().message(db_) : "out of memory");
    } else {
      sqlite().wait(db_, 200);
      int64_t version = 0;
      {
        Statement s(db_, "PRAGMA user_version");
        if (s.step() == kRow) version = s.integer(0);
        else trouble_ = path + ": " + sqlite().message(db_);
      }
      if (trouble_.empty() && version != 0 && version != kSchema)
        trouble_ = fmt::format("{}: of another version of PyFlame; got schema {}; expected {}", path, version, kSchema);
      if (trouble_.empty() && version == 0 &&
          !run("BEGIN;"
               "CREATE TABLE IF NOT EXISTS environments (id INTEGER PRIMARY KEY, device TEXT NOT NULL, architecture "
               "TEXT NOT NULL,"
               " driver TEXT NOT NULL, libraries TEXT NOT NULL, pyflame TEXT NOT NULL,"
               " UNIQUE (device, architecture, driver, libraries, pyflame));"
               "CREATE TABLE IF NOT EXISTS measurements (environment INTEGER NOT NULL REFERENCES environments, op TEXT "
               "NOT NULL,"
               " problem TEXT NOT NULL, entry TEXT NOT NULL, us REAL NOT NULL, error REAL NOT NULL, sound INTEGER NOT "
               "NULL,"
               " measured_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (environment, op, problem, entry));"
               "PRAGMA user_version = 1; COMMIT;"))
        trouble_ = path + ": " + sqlite().message(db_);
    }
  }
  if (!trouble_.empty())
    fmt::print(stderr, "pyflame: measured choices are neither read nor kept ({}); printed once\n", trouble_);
}

bool Choices::run(const char* sql) { return sqlite().exec(db_, sql, nullptr, nullptr, nullptr) == kOk; }

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
  if (s.step() != kRow) return std::nullopt;
  return s.integer(0);
}

std::optional<std::string> Choices::best(const Environment& e, const std::string& op, const std::string& problem) {
  std::lock_guard lock(g_mutex);
  if (!trouble_.empty()) return std::nullopt;
  const auto id = environment_id(e, false);
  if (!id) return std::nullopt;
  Statement s(
      db_,
      "SELECT entry FROM measurements WHERE environment = ? AND op = ? AND problem = ? AND sound ORDER BY us LIMIT 1");
  s << *id << op << problem;
  if (s.step() != kRow) return std::nullopt;
  return s.text(0);
}

void Choices::store(const Environment& e, const std::string& op, const std::string& problem,
                    const std::vector<Measurement>& all) {
  std::lock_guard lock(g_mutex);
  if (!trouble_.empty()) return;
  if (!run("BEGIN IMMEDIATE")) return;  // another process is writing: this measurement is not stored
  bool ok = false;
  if (const auto id = environment_id(e, true)) {
    ok = true;
    for (const Measurement& m : all) {
      Statement s(db_,
                  "INSERT OR REPLACE INTO measurements (environment, op, problem, entry, us, error, sound) VALUES (?, "
                  "?, ?, ?, ?, ?, ?)");
      s << *id << op << problem << m.entry << m.us << m.error << int64_t{m.sound};
      ok &= s.step() == kDone;
    }
  }
  if (!run(ok ? "COMMIT" : "ROLLBACK")) run("ROLLBACK");
}

}  // namespace pyflame
