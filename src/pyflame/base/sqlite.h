// SQLite as far as PyFlame needs it. The library is loaded when it is first needed; the core does not link it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pyflame::sqlite {

constexpr int kRow = 100, kDone = 101;

// Whether libsqlite3 and all functions that are needed were found.
bool found();

// One open file. Not for several threads at once.
class Database {
 public:
  // Opens the file and creates it if it is missing. `trouble` says why it cannot be used; empty: it can.
  explicit Database(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  const std::string& trouble() const { return trouble_; }
  bool run(const char* sql);    // false: it failed
  std::string message() const;  // of the last failure
  void* handle() const { return db_; }

 private:
  void* db_ = nullptr;
  std::string trouble_;
};

// One statement; parameters are bound in order.
class Statement {
 public:
  Statement(const Database& db, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement& operator<<(const std::string& x);
  Statement& operator<<(double x);
  Statement& operator<<(int64_t x);
  int step();                               // kRow, kDone, or another number: it failed
  std::string_view text(int column) const;  // until the next step
  int64_t integer(int column) const;
  double real(int column) const;

 private:
  void* s_ = nullptr;
  int bound_ = 0;
};

}  // namespace pyflame::sqlite
