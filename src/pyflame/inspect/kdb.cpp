#include "pyflame/inspect/kdb.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cctype>
#include <memory>

#include "pyflame/inspect/decompress.h"

namespace pyflame::inspect {

namespace {

constexpr int kMostValueBytes = 256 << 20, kInstructionsPerCall = 1 << 20;
constexpr int64_t kMostCalls = 20'000;  // of kInstructionsPerCall: a damaged database cannot keep SQLite busy for ever
constexpr size_t kMostProblems = 20;

using Database = std::unique_ptr<sqlite3, decltype(&sqlite3_close)>;
using Statement = std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)>;

// `immutable`: nothing is locked, and no -wal or -shm file is made beside a database that may not be ours.
std::string uri(const std::string& path) {
  std::string out = "file:";
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '_' || c == '-';
    if (plain) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out + "?immutable=1";
}

Statement prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* s = nullptr;
  sqlite3_prepare_v2(db, sql, -1, &s, nullptr);
  return Statement(s, &sqlite3_finalize);
}

int count_down(void* calls) { return --*static_cast<int64_t*>(calls) < 0; }

}  // namespace

bool is_sqlite(Bytes data) { return starts_with(data, std::string_view("SQLite format 3\0", 16)); }

KernelDb read_kernel_db(const std::string& path,
                        const std::function<void(std::string_view, const Memory&)>& code_object) {
  KernelDb result;
  sqlite3* handle = nullptr;
  const int rc = sqlite3_open_v2(uri(path).c_str(), &handle,
                                 SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  const Database db(handle, &sqlite3_close);
  if (rc != SQLITE_OK) {
    result.problems.push_back(fmt::format("SQLite cannot open it: {}", handle ? sqlite3_errmsg(handle) : "no memory"));
    return result;
  }
  int64_t calls = kMostCalls;
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kMostValueBytes);
  sqlite3_progress_handler(handle, kInstructionsPerCall, count_down, &calls);
  sqlite3_exec(handle, "PRAGMA trusted_schema=OFF", nullptr, nullptr, nullptr);
  const Statement exists = prepare(handle, "SELECT 1 FROM sqlite_master WHERE type='table' AND name='kern_db'");
  if (!exists) {
    result.problems.push_back(fmt::format("the database cannot be read: {}", sqlite3_errmsg(handle)));
    return result;
  }
  if (sqlite3_step(exists.get()) != SQLITE_ROW) return result;
  result.is_kernel_db = true;
  const Statement rows = prepare(
      handle, "SELECT kernel_name, kernel_blob, uncompressed_size FROM kern_db ORDER BY kernel_name, kernel_args");
  int step = rows ? SQLITE_ROW : SQLITE_ERROR;
  while (rows && (step = sqlite3_step(rows.get())) == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(rows.get(), 0));
    const std::string name = text ? text : "";
    const auto* blob = static_cast<const uint8_t*>(sqlite3_column_blob(rows.get(), 1));
    const Bytes packed(blob, blob ? static_cast<size_t>(sqlite3_column_bytes(rows.get(), 1)) : 0);
    const int64_t size = sqlite3_column_int64(rows.get(), 2);
    Memory code;
    if (size > 0) {
      Decompressed d = decompress(Compression::bzip2, packed, static_cast<uint64_t>(size));
      if (!d.problem.empty() && result.problems.size() < kMostProblems)
        result.problems.push_back(fmt::format("kernel '{}': {}", name, d.problem));
      code = d.data;
    } else if (!packed.empty()) {  // stored as it is; SQLite's memory ends with the row
      auto copy = std::make_shared<std::vector<uint8_t>>(packed.begin(), packed.end());
      code = {Bytes(*copy), copy};
    }
    if (!code.bytes.empty()) code_object(name, code);
  }
  if (step != SQLITE_DONE)
    result.problems.push_back(fmt::format("the database cannot be read to its end: {}", sqlite3_errmsg(handle)));
  return result;
}

}  // namespace pyflame::inspect
