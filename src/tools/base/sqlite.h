// Reads a SQLite database that another program wrote; it is never written. Its schema is not trusted, its values are
// limited in size, and queries that a damaged or hostile database makes endless are stopped. For the tools only; the
// core does not link SQLite.
#pragma once
#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

namespace pyflame::tools {

struct SqliteClose {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using SqliteStatement = std::unique_ptr<sqlite3_stmt, SqliteClose>;

class ForeignDatabase {
 public:
  ForeignDatabase(const std::string& path, int most_value_bytes) {
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(uri(path).c_str(), &handle,
                                     SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
    db_.reset(handle);
    if (code != SQLITE_OK) {
      problem_ = handle ? sqlite3_errmsg(handle) : "out of memory";
      return;
    }
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, most_value_bytes);
    sqlite3_limit(handle, SQLITE_LIMIT_SQL_LENGTH, 1 << 20);
    sqlite3_progress_handler(handle, kInstructionsPerCall, count_down, this);
  }
  ForeignDatabase(const ForeignDatabase&) = delete;
  ForeignDatabase& operator=(const ForeignDatabase&) = delete;

  const std::string& problem() const { return problem_; }  // why it cannot be opened; empty: it is open
  sqlite3* handle() const { return db_.get(); }
  const char* error() const { return sqlite3_errmsg(db_.get()); }  // of the last call
  SqliteStatement prepare(const std::string& sql) const {          // null: see error()
    sqlite3_stmt* s = nullptr;
    sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &s, nullptr);
    return SqliteStatement(s);
  }
  // SQLITE_ROW, SQLITE_DONE or an error. It is an error too if SQLite works too long without a row, as a hostile view
  // can make it do.
  int step(sqlite3_stmt* statement) {
    calls_ = kMostCalls;
    return sqlite3_step(statement);
  }

 private:
  static constexpr int kInstructionsPerCall = 1 << 20, kMostCalls = 200;  // seconds

  // "immutable" takes no locks and creates no -shm file next to a database that may not be ours. If there is a log next
  // to it, the file alone is not the whole database, and SQLite must open both.
  static std::string uri(const std::string& path) {
    std::string out = "file:";
    for (const char c : path) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
                         c == '.' || c == '_' || c == '-';
      if (plain) out += c;
      else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    std::error_code ignored;
    const bool log =
        std::filesystem::exists(path + "-wal", ignored) || std::filesystem::exists(path + "-journal", ignored);
    return log ? out : out + "?immutable=1";
  }
  static int count_down(void* self) { return --static_cast<ForeignDatabase*>(self)->calls_ < 0; }

  std::unique_ptr<sqlite3, SqliteClose> db_;
  std::string problem_;
  int calls_ = kMostCalls;
};

}  // namespace pyflame::tools
