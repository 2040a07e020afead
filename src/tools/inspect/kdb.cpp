#include "tools/inspect/kdb.h"

#include <fmt/format.h>

#include <memory>

#include "tools/base/sqlite.h"
#include "tools/inspect/decompress.h"

namespace pyflame::tools::inspect {

namespace {

constexpr int kMostValueBytes = 256 << 20;
constexpr size_t kMostKdbProblems = 20;

}  // namespace

bool is_sqlite(Bytes data) { return starts_with(data, std::string_view("SQLite format 3\0", 16)); }

KernelDb read_kernel_db(const std::string& path,
                        const std::function<void(std::string_view, const Memory&)>& code_object) {
  KernelDb result;
  ForeignDatabase db(path, kMostValueBytes);
  if (!db.problem().empty()) {
    result.problems.push_back(fmt::format("SQLite cannot open it: {}", db.problem()));
    return result;
  }
  const SqliteStatement exists = db.prepare("SELECT 1 FROM sqlite_master WHERE type='table' AND name='kern_db'");
  if (!exists) {
    result.problems.push_back(fmt::format("the database cannot be read: {}", db.error()));
    return result;
  }
  if (db.step(exists.get()) != SQLITE_ROW) return result;
  result.is_kernel_db = true;
  const SqliteStatement rows =
      db.prepare("SELECT kernel_name, kernel_blob, uncompressed_size FROM kern_db ORDER BY kernel_name, kernel_args");
  int step = rows ? SQLITE_ROW : SQLITE_ERROR;
  while (rows && (step = db.step(rows.get())) == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(rows.get(), 0));
    const std::string name = text ? text : "";
    const auto* blob = static_cast<const uint8_t*>(sqlite3_column_blob(rows.get(), 1));
    const Bytes packed(blob, blob ? static_cast<size_t>(sqlite3_column_bytes(rows.get(), 1)) : 0);
    const int64_t size = sqlite3_column_int64(rows.get(), 2);
    Memory code;
    if (size > 0) {
      Decompressed d = decompress(Compression::bzip2, packed, static_cast<uint64_t>(size));
      if (!d.problem.empty() && result.problems.size() < kMostKdbProblems)
        result.problems.push_back(fmt::format("kernel '{}': {}", name, d.problem));
      code = d.data;
    } else if (!packed.empty()) {  // stored without compression; SQLite's memory is valid only for this row
      auto copy = std::make_shared<std::vector<uint8_t>>(packed.begin(), packed.end());
      code = {Bytes(*copy), copy};
    }
    if (!code.bytes.empty()) code_object(name, code);
  }
  if (step != SQLITE_DONE)
    result.problems.push_back(fmt::format("the database cannot be read completely: {}", db.error()));
  return result;
}

}  // namespace pyflame::tools::inspect
