// MIOpen's databases of compiled kernels (.kdb, .ukdb): SQLite with one table, whose code objects are compressed with
// bzip2.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

bool is_sqlite(Bytes data);

// Calls `code_object` with the name of the source and the decompressed bytes of each row. Returns what could not be
// read. If the database has no kernels, it returns nothing and `is_kernel_db` is false.
struct KernelDb {
  bool is_kernel_db = false;
  std::vector<std::string> problems;
};
KernelDb read_kernel_db(const std::string& path,
                        const std::function<void(std::string_view name, const Memory& code)>& code_object);

}  // namespace pyflame::tools::inspect
