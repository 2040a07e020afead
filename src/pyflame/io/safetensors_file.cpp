#include "pyflame/io/safetensors_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "pyflame/base/error.h"

namespace pyflame::safetensors {

namespace {

struct Fields {
  std::string name;
  std::optional<DType> dtype;
  std::optional<Dims> shape;
  std::vector<uint64_t> offsets;
  bool has_offsets = false;
};

// The streaming parser. Anything outside the schema stops it at once, so memory use is proportional to the header.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Fields> entries;
  Metadata metadata;
  std::string problem;

  bool null() override { return bad("null"); }
  bool boolean(bool) override { return bad("a boolean"); }
  bool number_integer(number_integer_t v) override { return bad(fmt::format("the negative number {}", v)); }
  bool number_float(number_float_t, const string_t& s) override { return bad("the number " + cite(s)); }
  bool binary(binary_t&) override { return bad("binary data"); }
  bool number_unsigned(number_unsigned_t v) override {
    if (state_ == State::Shape) {
      if (v > static_cast<uint64_t>(INT64_MAX)) return bad(fmt::format("the size {}", v));
      if (entries.back().shape->size() >= kMaxDims) {
        return set(fmt::format("{} has more than {} dimensions", cite(entries.back().name), kMaxDims));
      }
      entries.back().shape->push_back(static_cast<int64_t>(v));
      return true;
    }
    if (state_ == State::Offsets) {
      if (entries.back().offsets.size() >= 2) return bad("a third data offset");
      entries.back().offsets.push_back(v);
      return true;
    }
    return bad(fmt::format("the number {}", v));
  }
  bool string(string_t& s) override {
    if (state_ == State::Metadata) {
      metadata[key_] = s;
      return true;
    }
    if (state_ == State::Tensor && key_ == "dtype") {
      for (const DTypeName& n : kNames) {
        if (n.name == s) entries.back().dtype = n.dtype;
      }
      if (entries.back().dtype) return true;
      return set(
          fmt::format("{} has a dtype that is not supported; got {}; expected one of F64, F32, F16, BF16, I64, "
                      "I32, I16, I8, U8, BOOL",
                      cite(entries.back().name), cite(s)));
    }
    return bad("the text " + cite(s));
  }
  bool key(string_t& k) override {
    const bool top = state_ == State::Top;
    if (!(top ? names_ : fields_).insert(k).second) return set("the name " + cite(k) + " occurs twice");
    key_ = k;
    if (top && k != kMetadataKey) {
      entries.emplace_back();
      entries.back().name = k;
    }
    if (state_ == State::Tensor && k != "dtype" && k != "shape" && k != "data_offsets") {
      return set(cite(entries.back().name) + " has the unknown field " + cite(k));
    }
    return true;
  }
  bool start_object(std::size_t) override {
    fields_.clear();
    switch (state_) {
      case State::Begin: state_ = State::Top; return true;
      case State::Top: state_ = key_ == kMetadataKey ? State::Metadata : State::Tensor; return true;
      default: return bad("an object");
    }
  }
  bool end_object() override {
    state_ = state_ == State::Top ? State::Done : State::Top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (state_ != State::Tensor) return bad("an array");
    if (key_ == "shape") {
      state_ = State::Shape;
      entries.back().shape.emplace();
      return true;
    }
    if (key_ == "data_offsets") {
      state_ = State::Offsets;
      entries.back().has_offsets = true;
      return true;
    }
    return bad("an array");
  }
  bool end_array() override {
    state_ = State::Tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return set(fmt::format("the header is not valid JSON at its byte {}", position));
  }

 private:
  enum class State { Begin, Top, Metadata, Tensor, Shape, Offsets, Done };
  bool set(std::string text) {
    if (problem.empty()) problem = std::move(text);
    return false;
  }
  bool bad(const std::string& what) {
    return set(fmt::format("the header has {} where the format has none (after the key {})", what, cite(key_)));
  }
  State state_ = State::Begin;
  std::string key_;
  std::set<std::string> names_, fields_;
};

// The number of elements of the shape; none if it overflows.
std::optional<uint64_t> checked_bytes(const Dims& shape, DType dtype) {
  uint64_t n = static_cast<uint64_t>(dtype_size(dtype));
  for (int64_t d : shape) {
    if (d == 0) return 0;
  }
  for (int64_t d : shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n) || n > static_cast<uint64_t>(INT64_MAX)) return {};
  }
  return n;
}

// Checks that every tensor has all fields and the right size, and that the tensors cover the data section without gaps
// or overlaps.
void check_entries(const std::string& path, const std::vector<Fields>& entries, uint64_t data_bytes) {
  for (const Fields& e : entries) {
    PF_CHECK(e.dtype && e.shape && e.has_offsets && e.offsets.size() == 2, Value,
             "load_safetensors: '{}': the entry of {} is incomplete; expected dtype, shape and two data_offsets", path,
             cite(e.name));
    PF_CHECK(e.offsets[0] <= e.offsets[1] && e.offsets[1] <= data_bytes, Value,
             "load_safetensors: '{}': the offsets of {} are out of range; got [{}, {}]; expected within {} bytes", path,
             cite(e.name), e.offsets[0], e.offsets[1], data_bytes);
    const std::optional<uint64_t> expected = checked_bytes(*e.shape, *e.dtype);
    PF_CHECK(expected && *expected == e.offsets[1] - e.offsets[0], Value,
             "load_safetensors: '{}': the size of {} does not fit; got {} bytes; expected shape {} of {}", path,
             cite(e.name), e.offsets[1] - e.offsets[0], e.shape->str(), dtype_name(*e.dtype));
  }
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return entries[a].offsets < entries[b].offsets; });
  uint64_t end = 0;
  for (size_t i : order) {
    PF_CHECK(entries[i].offsets[0] == end, Value,
             "load_safetensors: '{}': the data of {} {} other data; got offset {}; expected {}", path,
             cite(entries[i].name), entries[i].offsets[0] < end ? "overlaps" : "leaves a gap after",
             entries[i].offsets[0], end);
    end = entries[i].offsets[1];
  }
  PF_CHECK(end == data_bytes, Value,
           "load_safetensors: '{}': the tensors do not cover the file; got {} bytes of data; expected {}", path,
           data_bytes, end);
}

}  // namespace

Reader::Reader(const std::string& path) : file_("load_safetensors", path) { read_header(); }

void Reader::read_header() {
  const uint64_t file_bytes = file_.size();
  uint64_t length = 0;
  PF_CHECK(file_bytes >= sizeof length, Value,
           "load_safetensors: '{}' is too short to be a safetensors file; got {} bytes; expected at least {}",
           file_.path(), file_bytes, sizeof length);
  file_.read(&length, sizeof length, 0);
  const uint64_t room = file_bytes - sizeof length;
  PF_CHECK(length >= 2 && length <= std::min(room, kMaxHeader), Value,
           "load_safetensors: '{}' is not a safetensors file; got a header of {} bytes; expected 2 to {}", file_.path(),
           length, std::min(room, kMaxHeader));
  const std::string header = file_.read_text(length, sizeof length, "the header");
  PF_CHECK(
      header[0] == '{', Value,
      "load_safetensors: '{}' is not a safetensors file; got a header that begins with byte 0x{:02x}; expected '{{'",
      file_.path(), static_cast<unsigned char>(header[0]));

  HeaderHandler handler;
  const bool ok = nlohmann::json::sax_parse(header, &handler);
  PF_CHECK(ok && handler.problem.empty(), Value, "load_safetensors: '{}': {}", file_.path(),
           handler.problem.empty() ? "the header is not valid JSON" : handler.problem);
  const uint64_t data_at = sizeof length + length;
  check_entries(file_.path(), handler.entries, file_bytes - data_at);

  metadata_ = std::move(handler.metadata);
  entries_.reserve(handler.entries.size());
  for (Fields& e : handler.entries)
    entries_.push_back({std::move(e.name), *e.dtype, *e.shape, data_at + e.offsets[0], data_at + e.offsets[1]});
}

void Reader::check_values(const Entry& entry, const void* data) const {
  if (entry.dtype != DType::bool_) return;
  const auto* p = static_cast<const unsigned char*>(data);
  const unsigned char* end = p + (entry.end - entry.begin);
  const unsigned char* other = std::find_if(p, end, [](unsigned char b) { return b > 1; });
  PF_CHECK(other == end, Value, "load_safetensors: '{}': {} is not a valid BOOL tensor; got byte {}; expected 0 or 1",
           file_.path(), cite(entry.name), *other);
}

std::unique_ptr<char[]> Reader::read(const Entry& entry) const {
  std::unique_ptr<char[]> buffer = file_.read_bytes(entry.end - entry.begin, entry.begin, cite(entry.name));
  check_values(entry, buffer.get());
  return buffer;
}

void Reader::read_to(const Entry& entry, void* to) const {
  file_.read(to, entry.end - entry.begin, entry.begin);
  check_values(entry, to);
}

}  // namespace pyflame::safetensors
