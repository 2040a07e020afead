// The table of rows, and the copy of the database's rows. SQLite takes several milliseconds for 10,000 rows; the copy takes one.
// The copy begins with a head: what the file is, the stamp of the database that it belongs to, and a checksum of the rest.
#include "pyflame/compile/choice_rows.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "pyflame/base/error.h"

namespace pyflame {

FileStamp FileStamp::of(const std::string& path) {
  struct stat s {};
  if (stat(path.c_str(), &s) != 0) return {};
  return {s.st_size,        static_cast<int64_t>(s.st_ino), s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec,
          s.st_ctim.tv_nsec};
}

ChoiceTable::ChoiceTable(int64_t rows) : buckets_(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(rows, 64)))) {}

void ChoiceTable::add(const ChoiceRow& row, bool copies) {
  const bool as_last = last_ && last_->op == row.op && last_->problem == row.problem;
  const ChoiceRow*& bucket = as_last ? bucket_of(last_->op, last_->problem) : bucket_of(row.op, row.problem);
  auto* r = new (arena_.allocate(sizeof(ChoiceRow), alignof(ChoiceRow))) ChoiceRow(row);
  if (as_last) r->op = last_->op, r->problem = last_->problem;
  else if (copies) r->op = kept(row.op), r->problem = kept(row.problem);
  if (copies) r->entry = kept(row.entry);
  r->next = bucket, r->before = last_;
  bucket = last_ = r;
  ++count_;
}

const std::vector<const ChoiceRow*>& ChoiceTable::rows_of(std::string_view op, std::string_view problem) {
  found_.clear();
  for (const ChoiceRow* r = bucket_of(op, problem); r; r = r->next) {
    // Rows that were added behind one another have the same texts.
    const bool as_found = !found_.empty() && r->problem.data() == found_.back()->problem.data() &&
                          r->op.data() == found_.back()->op.data();
    if (as_found || (r->problem == problem && r->op == op)) found_.push_back(r);
  }
  if (found_.size() > 1)
    std::sort(found_.begin(), found_.end(), [](const ChoiceRow* a, const ChoiceRow* b) { return a->us < b->us; });
  return found_;
}

std::string_view ChoiceTable::kept(std::string_view text) {
  if (text.empty()) return {};
  char* at = static_cast<char*>(arena_.allocate(text.size(), 1));
  std::memcpy(at, text.data(), text.size());
  return {at, text.size()};
}

const ChoiceRow*& ChoiceTable::bucket_of(std::string_view op, std::string_view problem) {
  const std::hash<std::string_view> hash;
  return buckets_[(hash(problem) + 31 * hash(op)) & (buckets_.size() - 1)];
}

namespace {

// The last digit changes with the format. The whole is a number, so that a machine of the other byte order refuses the file.
constexpr uint64_t kKind = 0x7066726f77733031;

struct Head {
  uint64_t kind = kKind;
  FileStamp stamp;
  uint64_t bytes = 0, check = 0;  // of the rest
  uint64_t environments = 0, rows = 0;
};
static_assert(sizeof(Head) == 11 * 8);  // no padding, whose bits would be random

// Of a row in the copy; the texts follow. Where the problem is that of the row before, op and problem are left out.
struct Numbers {
  int64_t environment;
  double us, spread, warm_us;
  int32_t tries;
  uint16_t sound, own;
  uint32_t as_before, op, problem, entry;
};
static_assert(sizeof(Numbers) == 4 * 8 + 2 * 4 + 4 * 4);

uint64_t checksum(std::string_view text) {
  uint64_t sum = text.size();
  while (!text.empty()) {
    uint64_t word = 0;
    const size_t n = std::min(text.size(), sizeof word);
    std::memcpy(&word, text.data(), n);
    sum = (std::rotl(sum, 23) ^ word) * 0x9e3779b97f4a7c15;
    text.remove_prefix(n);
  }
  return sum;
}

template <class T>
void append(std::string& to, const T& x) {
  to.append(reinterpret_cast<const char*>(&x), sizeof x);
}

// Takes numbers and texts off the front of a text. It stays at the end where too little is left.
struct Reader {
  std::string_view rest;
  bool ok = true;
  std::string_view text(size_t size) {
    ok &= size <= rest.size();
    const std::string_view t = rest.substr(0, size);
    rest.remove_prefix(t.size());
    return t;
  }
  template <class T>
  T number() {
    T x{};
    const std::string_view t = text(sizeof x);
    if (ok) std::memcpy(&x, t.data(), sizeof x);
    return x;
  }
};

std::array<std::string Environment::*, 5> fields_of_environments() {
  return {&Environment::device, &Environment::architecture, &Environment::driver, &Environment::libraries,
          &Environment::pyflame};
}

}  // namespace

void ChoiceTable::write_copy(const std::string& path, const FileStamp& stamp, const Environments& environments) const {
  std::string rest;
  rest.reserve(count_ * 256);
  for (const auto& [id, e] : environments) {
    append(rest, id);
    for (const auto field : fields_of_environments()) append(rest, uint64_t{(e.*field).size()}), rest += e.*field;
  }
  for (const ChoiceRow *r = last_, *behind = nullptr; r; behind = r, r = r->before) {
    const bool as_before = behind && behind->op == r->op && behind->problem == r->problem;
    const auto size = [](std::string_view text) { return static_cast<uint32_t>(text.size()); };
    append(rest, Numbers{r->environment, r->us, r->spread, r->warm_us,
                         static_cast<int32_t>(std::min<int64_t>(r->tries, 1 << 30)), r->sound, r->own, as_before,
                         as_before ? 0 : size(r->op), as_before ? 0 : size(r->problem), size(r->entry)});
    if (!as_before) rest += r->op, rest += r->problem;
    rest += r->entry;
  }
  Head head;
  head.stamp = stamp, head.bytes = rest.size(), head.check = checksum(rest);
  head.environments = environments.size(), head.rows = count_;
  // Other processes see the old copy or the new one.
  const std::string part = fmt::format("{}.{}", path, getpid());
  std::ofstream out(part, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&head), sizeof head);
  out << rest;
  out.close();
  std::error_code failed;
  if (!out.fail()) std::filesystem::rename(part, path, failed);
  if (out.fail() || failed) std::filesystem::remove(part, failed);
}

std::unique_ptr<ChoiceTable> ChoiceTable::from_copy(const std::string& path, const FileStamp& stamp,
                                                    Environments& environments) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return nullptr;
  const int64_t size = FileStamp::of(path).size;
  Head head;
  if (std::fread(&head, sizeof head, 1, file.get()) != 1 || head.kind != kKind || head.stamp != stamp) return nullptr;
  if (size < 0 || head.bytes != static_cast<uint64_t>(size) - sizeof head || head.rows > head.bytes) return nullptr;
  auto bytes = std::make_unique_for_overwrite<char[]>(head.bytes);
  if (std::fread(bytes.get(), 1, head.bytes, file.get()) != head.bytes) return nullptr;
  Reader in{{bytes.get(), head.bytes}};
  if (checksum(in.rest) != head.check) return nullptr;
  auto table = std::make_unique<ChoiceTable>(static_cast<int64_t>(head.rows));
  table->file_ = std::move(bytes);
  Environments all;
  for (uint64_t i = 0; i < head.environments && in.ok; ++i) {
    auto& [id, e] = all.emplace_back();
    id = in.number<int64_t>();
    for (const auto field : fields_of_environments()) e.*field = in.text(in.number<uint64_t>());
  }
  for (uint64_t i = 0; i < head.rows && in.ok; ++i) {
    const auto n = in.number<Numbers>();
    if (n.as_before && !table->last_) return nullptr;
    ChoiceRow row;
    row.op = n.as_before ? table->last_->op : in.text(n.op);
    row.problem = n.as_before ? table->last_->problem : in.text(n.problem);
    row.entry = in.text(n.entry);
    row.environment = n.environment, row.tries = n.tries;
    row.us = n.us, row.spread = n.spread, row.warm_us = n.warm_us;
    row.sound = n.sound != 0, row.own = n.own != 0;
    table->add(row, false);
  }
  if (!in.ok || !in.rest.empty()) return nullptr;
  environments = std::move(all);
  return table;
}

}  // namespace pyflame
