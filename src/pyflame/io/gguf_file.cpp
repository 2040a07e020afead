#include "pyflame/io/gguf_file.h"

#include <algorithm>
#include <set>

#include "pyflame/base/error.h"

namespace pyflame::gguf {

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxHeader = uint64_t{1} << 30, kDefaultAlignment = 32;
constexpr int kMaxArrayDepth = 4;
constexpr const char* kCutShort = "the file is cut short or damaged; download it again";

enum Kind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64 };
constexpr std::array<uint64_t, 13> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

}  // namespace

// Reads forward through the header, of which it keeps what it has read so far.
class Reader::Cursor {
 public:
  explicit Cursor(const InputFile& file) : file_(file), size_(std::min(file.size(), kMaxHeader)) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  // Valid until the next call.
  std::string_view take(uint64_t bytes) {
    if (bytes > size_ - at_) file_.refuse(fmt::format("it is damaged: its header ends early; hint: {}", kCutShort));
    if (at_ + bytes > text_.size()) read_on(at_ + bytes);
    const std::string_view part = std::string_view(text_).substr(at_, static_cast<size_t>(bytes));
    at_ += part.size();
    return part;
  }
  std::string text() { return std::string(take(number<uint64_t>())); }
  // A count of items that need `least` bytes each.
  uint64_t count(uint64_t n, uint64_t least, std::string_view what) const {
    if (n > (size_ - at_) / least)
      file_.refuse(fmt::format("it is damaged: it promises {} {}, more than its size allows", n, what));
    return n;
  }
  uint64_t position() const { return at_; }

 private:
  // Twice as much as before, and at least to `end`.
  void read_on(uint64_t end) {
    constexpr uint64_t kFirst = uint64_t{1} << 20;
    const uint64_t known = text_.size(), to = std::min(size_, std::max({end, 2 * known, kFirst}));
    text_ += file_.read_text(to - known, known, "the header");
  }

  const InputFile& file_;
  uint64_t size_;
  std::string text_;
  size_t at_ = 0;
};

bool Reader::is_one(const InputFile& file) {
  return file.size() >= 24 && file.read_number<uint32_t>(0, "the beginning") == kMagic;
}

Reader::Reader(std::string op, const std::string& path) : file_(std::move(op), path) {
  if (!is_one(file_)) file_.refuse(file_.size() == 0 ? "it is empty; expected a GGUF file" : "it is not a GGUF file");
  Cursor at(file_);
  (void)at.number<uint32_t>();
  version_ = at.number<uint32_t>();
  if (version_ != 2 && version_ != 3)
    file_.refuse(fmt::format("its GGUF version is not supported; got {}; expected 2 or 3, little-endian", version_));
  const uint64_t tensors = at.count(at.number<uint64_t>(), 24, "tensors");
  read_metadata(at, at.count(at.number<uint64_t>(), 13, "entries of metadata"));
  read_entries(at, tensors);
}

nlohmann::json Reader::read_value(Cursor& at, uint32_t kind, int depth) const {
  switch (kind) {
    case U8: return at.number<uint8_t>();
    case I8: return at.number<int8_t>();
    case U16: return at.number<uint16_t>();
    case I16: return at.number<int16_t>();
    case U32: return at.number<uint32_t>();
    case I32: return at.number<int32_t>();
    case F32: return at.number<float>();
    case Bool: return at.number<uint8_t>() != 0;
    case Text: return at.text();
    case U64: return at.number<uint64_t>();
    case I64: return at.number<int64_t>();
    case F64: return at.number<double>();
    case Array: break;
    default: file_.refuse(fmt::format("its metadata has a value of the unknown kind {}", kind));
  }
  if (depth >= kMaxArrayDepth) file_.refuse("its metadata has arrays that are nested too deep");
  const auto items = at.number<uint32_t>();
  if (items >= kLeastBytes.size()) file_.refuse(fmt::format("its metadata has a value of the unknown kind {}", items));
  nlohmann::json list = nlohmann::json::array();
  for (uint64_t n = at.count(at.number<uint64_t>(), kLeastBytes[items], "items of an array"); n > 0; --n)
    list.push_back(read_value(at, items, depth + 1));
  return list;
}

void Reader::read_metadata(Cursor& at, uint64_t count) {
  for (; count > 0; --count) {
    const std::string key = at.text();
    const auto kind = at.number<uint32_t>();
    if (metadata_.contains(key)) file_.refuse("its metadata has the key " + cite(key) + " twice");
    metadata_[key] = read_value(at, kind, 0);
  }
}

void Reader::read_entries(Cursor& at, uint64_t count) {
  std::set<std::string_view> names;
  entries_.reserve(count);
  for (; count > 0; --count) {
    Entry e;
    e.name = at.text();
    const auto dims = at.number<uint32_t>();
    if (dims > kMaxDims)
      file_.refuse(fmt::format("the tensor {} has {} dimensions; expected at most {}", cite(e.name), dims, kMaxDims));
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dims; ++i) {
      const auto size = at.number<uint64_t>();
      if (size > static_cast<uint64_t>(INT64_MAX) || __builtin_mul_overflow(elements, size, &elements) ||
          elements > static_cast<uint64_t>(INT64_MAX) / 16)
        file_.refuse("the shape of the tensor " + cite(e.name) + " is too large");
      e.shape.insert(0, static_cast<int64_t>(size));
    }
    const auto type = at.number<uint32_t>();
    e.type = find_type(type);
    if (e.type == nullptr) file_.refuse(fmt::format("the tensor {} has an unknown type; got {}", cite(e.name), type));
    const uint64_t row = dims == 0 ? 1 : static_cast<uint64_t>(e.shape.back());
    if (row % e.type->elements != 0)
      file_.refuse(
          fmt::format("the rows of the tensor {} are no whole blocks of {}; got {} elements; expected a multiple of {}",
                      cite(e.name), e.type->name, row, e.type->elements));
    e.bytes = elements / e.type->elements * e.type->bytes;
    e.begin = at.number<uint64_t>();
    entries_.push_back(std::move(e));
  }
  const auto given = metadata_.find("general.alignment");
  const uint64_t alignment =
      given != metadata_.end() && given->is_number_unsigned() ? given->get<uint64_t>() : kDefaultAlignment;
  if (alignment == 0 || alignment > (1 << 20)) file_.refuse(fmt::format("its alignment is wrong; got {}", alignment));
  const uint64_t data = (at.position() + alignment - 1) / alignment * alignment;
  uint64_t total = 0;
  for (Entry& e : entries_) {
    if (!names.insert(e.name).second) file_.refuse("it has the tensor " + cite(e.name) + " twice");
    if (__builtin_add_overflow(e.begin, data, &e.begin)) e.begin = UINT64_MAX;
    if (e.begin > file_.size() || e.bytes > file_.size() - e.begin)
      file_.refuse(
          fmt::format("the tensor {} is not inside of the file; got {} bytes at {}; expected within {} bytes; "
                      "hint: {}",
                      cite(e.name), e.bytes, e.begin, file_.size(), kCutShort));
    total += e.bytes;
  }
  if (total > file_.size()) file_.refuse("its tensors overlap");
}

std::unique_ptr<char[]> Reader::read(const Entry& e) const {
  if (e.type->dtype != nullptr) return file_.read_bytes(e.bytes, e.begin, cite(e.name));
  PF_CHECK(e.type->decode != nullptr, NotImplemented,
           "{}: '{}': the tensor {} has a type that cannot be read yet; got {}", file_.op(), file_.path(), cite(e.name),
           e.type->name);
  // In pieces, so that the blocks need little memory beside the result.
  constexpr uint64_t kBlocks = 4096;
  const uint64_t blocks = e.bytes / e.type->bytes;
  std::unique_ptr<char[]> out;
  try {
    out.reset(new char[blocks * e.type->elements * sizeof(float)]);
  } catch (const std::bad_alloc&) {
    PF_FAIL(OutOfMemory, "{}: no memory for {}; expected {} bytes", file_.op(), cite(e.name),
            blocks * e.type->elements * sizeof(float));
  }
  auto* values = reinterpret_cast<float*>(out.get());
  for (uint64_t first = 0; first < blocks; first += kBlocks) {
    const uint64_t n = std::min(kBlocks, blocks - first);
    const std::string bytes = file_.read_text(n * e.type->bytes, e.begin + first * e.type->bytes, cite(e.name));
    for (uint64_t i = 0; i < n; ++i)
      e.type->decode(reinterpret_cast<const uint8_t*>(bytes.data()) + i * e.type->bytes,
                     values + (first + i) * e.type->elements);
  }
  return out;
}

}  // namespace pyflame::gguf
