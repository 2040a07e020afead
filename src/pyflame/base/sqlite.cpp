// Loads SQLite.
#include "pyflame/base/sqlite.h"

#include <dlfcn.h>

#include <filesystem>
#include <type_traits>

namespace pyflame::sqlite {

namespace {

constexpr int kOk = 0;
constexpr int kOpenFlags = 0x2 | 0x4 | 0x8000;  // read and write, create, no mutex: callers have their own
constexpr int kWaitMs = 200;                    // for another process that writes
const auto kCopyText = reinterpret_cast<void (*)(void*)>(static_cast<intptr_t>(-1));

struct Functions {
  int (*open)(const char*, void**, int, const char*) = nullptr;
  int (*close)(void*) = nullptr;
  int (*exec)(void*, const char*, void*, void*, char**) = nullptr;
  int (*prepare)(void*, const char*, int, void**, const char**) = nullptr;
  int (*bind_text)(void*, int, const char*, int, void (*)(void*)) = nullptr;
  int (*bind_real)(void*, int, double) = nullptr;
  int (*bind_int)(void*, int, int64_t) = nullptr;
  int (*step)(void*) = nullptr;
  int (*finalize)(void*) = nullptr;
  const unsigned char* (*text)(void*, int) = nullptr;
  int64_t (*integer)(void*, int) = nullptr;
  double (*real)(void*, int) = nullptr;
  const char* (*message)(void*) = nullptr;
  int (*wait)(void*, int) = nullptr;
  bool ok = false;
};

const Functions& functions() {
  static const Functions* s = [] {
    auto* f = new Functions;
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
    find(f->close, "sqlite3_close_v2");
    find(f->exec, "sqlite3_exec");
    find(f->prepare, "sqlite3_prepare_v2");
    find(f->bind_text, "sqlite3_bind_text");
    find(f->bind_real, "sqlite3_bind_double");
    find(f->bind_int, "sqlite3_bind_int64");
    find(f->step, "sqlite3_step");
    find(f->finalize, "sqlite3_finalize");
    find(f->text, "sqlite3_column_text");
    find(f->integer, "sqlite3_column_int64");
    find(f->real, "sqlite3_column_double");
    find(f->message, "sqlite3_errmsg");
    find(f->wait, "sqlite3_busy_timeout");
    return f;
  }();
  return *s;
}

}  // namespace

bool found() { return functions().ok; }

Database::Database(const std::string& path) {
  if (!found()) {
    trouble_ = "SQLite (libsqlite3.so.0) was not found";
    return;
  }
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (functions().open(path.c_str(), &db_, kOpenFlags, nullptr) != kOk)
    trouble_ = path + ": " + (db_ ? functions().message(db_) : "out of memory");
  else functions().wait(db_, kWaitMs);
}
Database::~Database() {
  if (db_) functions().close(db_);
}
bool Database::run(const char* sql) { return functions().exec(db_, sql, nullptr, nullptr, nullptr) == kOk; }
std::string Database::message() const { return functions().message(db_); }

Statement::Statement(const Database& db, const char* sql) {
  if (functions().prepare(db.handle(), sql, -1, &s_, nullptr) != kOk) s_ = nullptr;
}
Statement::~Statement() {
  if (s_) functions().finalize(s_);
}
Statement& Statement::operator<<(const std::string& x) {
  if (s_) functions().bind_text(s_, ++bound_, x.data(), static_cast<int>(x.size()), kCopyText);
  return *this;
}
Statement& Statement::operator<<(double x) {
  if (s_) functions().bind_real(s_, ++bound_, x);
  return *this;
}
Statement& Statement::operator<<(int64_t x) {
  if (s_) functions().bind_int(s_, ++bound_, x);
  return *this;
}
int Statement::step() { return s_ ? functions().step(s_) : -1; }
std::string_view Statement::text(int column) const {
  const auto* t = functions().text(s_, column);
  return t ? reinterpret_cast<const char*>(t) : "";
}
int64_t Statement::integer(int column) const { return functions().integer(s_, column); }
double Statement::real(int column) const { return functions().real(s_, column); }

}  // namespace pyflame::sqlite
