#include "pyflame/io/zip_file.h"

#include <algorithm>
#include <cstring>

#include "pyflame/base/error.h"

namespace pyflame {

namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kMaxComment = 65535;
// A table of contents larger than this is not of a file with tensors.
constexpr uint64_t kMaxTable = uint64_t{1} << 30;

template <class T>
T number_at(std::string_view text, size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof value);
  return value;
}

struct Table {
  uint64_t entries = 0, bytes = 0, begin = 0;
};

Table find_table(const InputFile& file) {
  const uint64_t tail_bytes = std::min(file.size(), kEndBytes + kMaxComment);
  const std::string tail = file.read_text(tail_bytes, file.size() - tail_bytes, "the end of the archive");
  for (size_t at = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1; at-- > 0;) {
    if (number_at<uint32_t>(tail, at) != kEnd) continue;
    Table t = {number_at<uint16_t>(tail, at + 10), number_at<uint32_t>(tail, at + 12),
               number_at<uint32_t>(tail, at + 16)};
    const bool has64 = t.entries == 0xffff || t.bytes == 0xffffffff || t.begin == 0xffffffff;
    if (!has64 || at < kLocatorBytes || number_at<uint32_t>(tail, at - kLocatorBytes) != kLocator64) return t;
    const auto end64 = number_at<uint64_t>(tail, at - kLocatorBytes + 8);
    const std::string_view what = "the 64-bit end of the archive";
    if (file.read_number<uint32_t>(end64, what) != kEnd64) file.refuse("the archive is damaged at its end");
    return {file.read_number<uint64_t>(end64 + 32, what), file.read_number<uint64_t>(end64 + 40, what),
            file.read_number<uint64_t>(end64 + 48, what)};
  }
  file.refuse("the zip archive is damaged or incomplete: it has no table of contents");
}

// Sizes and offset that do not fit into 32 bits are in an extra field, in this order, each only where it is needed.
void read_extra64(std::string_view extra, ZipEntry& e, uint64_t& local) {
  while (extra.size() >= 4) {
    const size_t id = number_at<uint16_t>(extra, 0), bytes = number_at<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    std::string_view field = extra.substr(0, bytes);
    extra.remove_prefix(field.size());
    if (id != 1) continue;
    for (uint64_t* value : {&e.size, &e.stored_bytes, &local}) {
      if (*value != 0xffffffff || field.size() < 8) continue;
      *value = number_at<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
  }
}

// Reads one record of the table and removes it.
ZipEntry read_entry(const InputFile& file, std::string_view& table, uint64_t& local) {
  if (table.size() < kCentralBytes || number_at<uint32_t>(table, 0) != kCentral)
    file.refuse("the table of contents of the archive is damaged");
  const size_t name = number_at<uint16_t>(table, 28), extra = number_at<uint16_t>(table, 30),
               comment = number_at<uint16_t>(table, 32);
  if (table.size() < kCentralBytes + name + extra + comment)
    file.refuse("the table of contents of the archive is damaged");
  ZipEntry e;
  e.name = table.substr(kCentralBytes, name);
  const auto flags = number_at<uint16_t>(table, 8), method = number_at<uint16_t>(table, 10);
  if ((flags & 1) != 0) file.refuse(cite(e.name) + " is encrypted; expected an archive without a password");
  e.stored = method == 0;
  e.deflated = method == 8;
  e.stored_bytes = number_at<uint32_t>(table, 20);
  e.size = number_at<uint32_t>(table, 24);
  local = number_at<uint32_t>(table, 42);
  read_extra64(table.substr(kCentralBytes + name, extra), e, local);
  table.remove_prefix(kCentralBytes + name + extra + comment);
  return e;
}

void find_bytes(const InputFile& file, ZipEntry& e, uint64_t local) {
  const std::string what = cite(e.name);
  const std::string header = file.read_text(kLocalBytes, local, what);
  if (number_at<uint32_t>(header, 0) != kLocal) file.refuse("the archive is damaged before " + what);
  e.begin = local + kLocalBytes + number_at<uint16_t>(header, 26) + number_at<uint16_t>(header, 28);
  if (e.begin > file.size() || e.stored_bytes > file.size() - e.begin)
    file.refuse("the archive is damaged: " + what + " reaches beyond its end");
  if (e.stored && e.size != e.stored_bytes) file.refuse("the archive is damaged: two sizes of " + what + " differ");
}

}  // namespace

bool is_zip(const InputFile& file) {
  return file.size() >= kEndBytes && file.read_number<uint32_t>(0, "the beginning") == kLocal;
}

std::vector<ZipEntry> read_zip(const InputFile& file) {
  const Table t = find_table(file);
  if (t.bytes > kMaxTable)
    file.refuse(fmt::format("the table of contents has {} bytes; expected at most {}", t.bytes, kMaxTable));
  const std::string text = file.read_text(t.bytes, t.begin, "the table of contents");
  std::string_view rest = text;
  std::vector<ZipEntry> entries;
  while (entries.size() < t.entries) {
    uint64_t local = 0;
    entries.push_back(read_entry(file, rest, local));
    find_bytes(file, entries.back(), local);
  }
  return entries;
}

}  // namespace pyflame
