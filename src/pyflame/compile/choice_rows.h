// Rows of the tuning database in memory, and a copy of them in a second file that is read faster than the database.
#pragma once
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pyflame {

// Where a measurement was made.
struct Environment {
  std::string device, architecture, driver, libraries, pyflame;
  bool operator==(const Environment&) const = default;
};
// The environments of a file, with the numbers that its rows have for them.
using Environments = std::vector<std::pair<int64_t, Environment>>;

// What tells that a file has changed.
struct FileStamp {
  int64_t size = -1;  // -1: there is no such file
  int64_t inode = 0, modified = 0, modified_ns = 0, changed = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
  static FileStamp of(const std::string& path);
};

struct ChoiceRow {
  const ChoiceRow* next = nullptr;    // of the same bucket
  const ChoiceRow* before = nullptr;  // the row that was added before
  std::string_view op = {}, problem = {}, entry = {};
  int64_t environment = 0, tries = 0;
  double us = 0, spread = 0, warm_us = 0;
  bool sound = false, own = false;
};

// Rows by their problem: a hash table whose buckets are lists. Rows and texts are behind one another in large blocks, so that 10,000 rows
// can be read within the first look-up.
class ChoiceTable {
 public:
  explicit ChoiceTable(int64_t rows);
  // The texts are copied. next and before do not matter.
  void add(const ChoiceRow& row) { add(row, true); }
  // In the order of their times; until the next call.
  const std::vector<const ChoiceRow*>& rows_of(std::string_view op, std::string_view problem);

  // Writes the rows to a copy of the database. `stamp` is the database's while they were read. A copy that cannot be written is left out, as it
  // saves no more than time.
  void write_copy(const std::string& path, const FileStamp& stamp, const Environments& environments) const;
  // The rows of a copy. Null if there is none, if the database has changed since it was made, or if it is damaged.
  static std::unique_ptr<ChoiceTable> from_copy(const std::string& path, const FileStamp& stamp,
                                                Environments& environments);

 private:
  void add(const ChoiceRow& row, bool copies);
  std::string_view kept(std::string_view text);
  const ChoiceRow*& bucket_of(std::string_view op, std::string_view problem);

  std::pmr::monotonic_buffer_resource arena_{1 << 16};
  std::unique_ptr<char[]> file_;  // of a copy; rows have their texts in it
  std::vector<const ChoiceRow*> buckets_, found_;
  const ChoiceRow* last_ = nullptr;
  uint64_t count_ = 0;
};

}  // namespace pyflame
