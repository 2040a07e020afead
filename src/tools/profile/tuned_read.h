// Readers of tuning files: TunableOp results, MIOpen's databases, and what the benchmark programs of hipBLASLt,
// rocBLAS, MIOpen and aiter log or print. A line that cannot be read becomes a problem, and the rest of the file is
// still used. (The libraries themselves drop a whole file if one key differs.)
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/base/finding.h"
#include "tools/profile/importer.h"
#include "tools/profile/tuned.h"

namespace pyflame {
struct GpuProduct;
}

namespace pyflame::tools::profile {

// One per format, for the table of importer.cpp.
std::span<const Importer> tuned_importers();

// The contents of a file.
struct TunedFile {
  TunedFiles out;
  std::vector<std::pair<std::string, std::string>> problems;  // where, what
};

// The name of the format, from the first bytes (64 KiB are enough) and the file's name; empty if unknown.
std::string tuned_format(std::string_view head, std::string_view file_name);
// Reads text of that format. At most kMostEntries entries are kept; if there are more, a problem says so.
TunedFile read_tuned_text(std::string_view format, std::string_view text, std::string_view file_name);
// MIOpen's perf-db in SQLite (tables config and perf_db). Error(Value) if it is not one.
TunedFile read_miopen_sqlite(const std::string& path);
constexpr size_t kMostEntries = 1000000;

// Architecture and CU count in the name of a MIOpen database, in all its forms: gfx90a68 (hexadecimal CUs), gfx1030_36
// (decimal; WGPs on gfx10 and later), gfx942130, gfx1100_48. {"", 0} if the name has none.
std::pair<std::string, int> miopen_device(std::string_view file_name);

// For the report: the list "tuned", and what to do about it.
// The rows with the most time to win come first: time beyond the roofline. The product of a row is `told`, or the one that
// the row or its file names, or `otherwise`.
nlohmann::json tuned_rows(const TunedFiles& files, const GpuProduct* told, const GpuProduct* otherwise = nullptr);
bool only_tuned(const std::vector<std::string>& formats);  // no profile among them
std::vector<Finding> tuned_advice(const TunedFiles& files, const nlohmann::json& rows,
                                  const std::vector<std::string>& formats);
std::string tuned_verdict(const TunedFiles& files, const std::vector<std::string>& formats);

namespace detail {
struct DtypeFact {
  std::string_view name;  // as PyFlame prints it
  double bytes;
};
DtypeFact dtype_of(std::string_view any_spelling);  // {"", 0} when unknown
TunedEntry gemm_entry(double m, double n, double k, double batch, std::string_view layout,
                      const std::vector<std::string>& types);
bool number(std::string_view text, double& value);  // the whole text, finite
// The format of a table with this header; empty: unknown.
std::string_view table_format(std::string_view header);
// A line of a table with these names of columns, in lower case. Empty: not there.
struct TableRow {
  const std::vector<std::string>& header;
  const std::vector<std::string_view>& field;
  std::string_view get(std::initializer_list<std::string_view> names) const;
  double number_of(std::initializer_list<std::string_view> names, double otherwise) const;
};
// aiter's tables, which name neither all types nor the operation: the file's name and the kernel's do.
bool aiter_row(const TableRow& row, std::string_view file_name, TunedEntry& entry);
void read_tunableop(std::string_view text, TunedFile& file);
void read_bench_lines(std::string_view text, TunedFile& file);
void read_table(std::string_view text, std::string_view file_name, TunedFile& file);
void read_miopen_text(std::string_view text, bool find_db, TunedFile& file);
bool read_miopen_driver(const std::vector<std::string_view>& words, TunedEntry& entry);
}  // namespace detail

}  // namespace pyflame::tools::profile
