#include "pyflame/io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>

#include "pyflame/io/atomic_file.h"

namespace pyflame {

namespace {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian and read without swapping");

// The limit that the format's own reader has.
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, kNumDTypes> kNames = {{
    {DType::float64, "F64"},
    {DType::float32, "F32"},
    {DType::float16, "F16"},
    {DType::bfloat16, "BF16"},
    {DType::int64, "I64"},
    {DType::int32, "I32"},
    {DType::int16, "I16"},
    {DType::int8, "I8"},
    {DType::uint8, "U8"},
    {DType::bool_, "BOOL"},
}};

std::string_view wire_name(DType d) {
  for (const DTypeName& n : kNames) {
    if (n.dtype == d) return n.name;
  }
  PF_FAIL(Runtime, "save_safetensors: dtype without a name in the format; got {}", dtype_name(d));
}

// ---- reading

struct Entry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<Dims> shape;
  std::vector<uint64_t> offsets;
  bool has_offsets = false;
};

// Shortens and escapes what a message quotes from a file.
std::string cite(std::string_view s) {
  constexpr size_t kMax = 80;
  std::string out = "'";
  for (char c : s.substr(0, kMax)) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return out + (s.size() > kMax ? "…'" : "'");
}

// The streaming parser: anything outside the schema stops it at once, so memory stays proportional to the header.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
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

class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) fail_errno(errno);
    struct stat st {};
    if (::fstat(fd_, &st) != 0) fail_errno(errno);
    if (!S_ISREG(st.st_mode)) {
      ::close(fd_);
      PF_FAIL(OS, "load_safetensors: '{}' is {}; expected a file", path,
              S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    }
    size_ = static_cast<uint64_t>(st.st_size);
  }
  ~InputFile() { ::close(fd_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  void read(void* to, uint64_t bytes, uint64_t at) const {
    constexpr uint64_t kChunk = uint64_t{1} << 26;
    char* p = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = ::pread(fd_, p, static_cast<size_t>(std::min(bytes, kChunk)), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      PF_CHECK(n >= 0, OS, "load_safetensors: cannot read '{}': {}", path_, std::generic_category().message(errno));
      PF_CHECK(n > 0, OS, "load_safetensors: '{}' became shorter while it was read; got {} bytes; expected {}", path_,
               at, at + bytes);
      p += n;
      at += static_cast<uint64_t>(n);
      bytes -= static_cast<uint64_t>(n);
    }
  }

 private:
  [[noreturn]] void fail_errno(int error) {
    if (fd_ >= 0) ::close(fd_);
    PF_FAIL(OS, "load_safetensors: cannot open '{}': {}", path_, std::generic_category().message(error));
  }
  std::string path_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

// Elements of the shape, or nothing when that overflows.
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

// Every tensor has its fields, its size, and the tensors tile the data section without gaps or overlaps.
void check_entries(const std::string& path, const std::vector<Entry>& entries, uint64_t data_bytes) {
  for (const Entry& e : entries) {
    PF_CHECK(e.dtype && e.shape && e.has_offsets && e.offsets.size() == 2, Value,
             "load_safetensors: '{}': {} lacks dtype, shape or two data_offsets", path, cite(e.name));
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

std::unique_ptr<char[]> allocate(const std::string& name, uint64_t bytes) {
  try {
    return std::unique_ptr<char[]>(new char[bytes]);
  } catch (const std::bad_alloc&) {
    PF_FAIL(OutOfMemory, "load_safetensors: no memory for {}; expected {} bytes", cite(name), bytes);
  }
}

// ---- writing

bool valid_utf8(const std::string& s) {
  try {
    (void)nlohmann::json(s).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// The header, with the offsets given to the tensors in `order`; padded so that the data begins at a multiple of 8.
std::string make_header(const NamedTensors& tensors, const std::vector<uint64_t>& begin, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, t] = tensors[i];
    nlohmann::ordered_json e;
    e["dtype"] = wire_name(t.dtype());
    e["shape"] = std::vector<int64_t>(t.shape().begin(), t.shape().end());
    e["data_offsets"] = {begin[i], begin[i] + static_cast<uint64_t>(t.nbytes())};
    header[name] = std::move(e);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

void check_for_saving(const NamedTensors& tensors, const Metadata& metadata) {
  std::set<std::string_view> names;
  for (const auto& [name, t] : tensors) {
    PF_CHECK(static_cast<bool>(t), Value, "save_safetensors: {} is not a tensor; got an undefined one", cite(name));
    PF_CHECK(name != kMetadataKey, Value, "save_safetensors: the name '{}' is reserved by the format", kMetadataKey);
    PF_CHECK(names.insert(name).second, Value, "save_safetensors: the name {} occurs twice", cite(name));
    PF_CHECK(valid_utf8(name), Value, "save_safetensors: a name is not valid UTF-8; got {}", cite(name));
  }
  for (const auto& [key, value] : metadata) {
    PF_CHECK(valid_utf8(key) && valid_utf8(value), Value, "save_safetensors: metadata of key {} is not valid UTF-8",
             cite(key));
  }
}

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  check_for_saving(tensors, metadata);
  // Wide dtypes first: every tensor then lies at a multiple of its element size, and readers can map the file.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].second.itemsize() > tensors[b].second.itemsize(); });
  std::vector<uint64_t> begin(tensors.size());
  uint64_t data_bytes = 0;
  for (size_t i : order) {
    begin[i] = data_bytes;
    data_bytes += static_cast<uint64_t>(tensors[i].second.nbytes());
  }
  const std::string header = make_header(tensors, begin, metadata);
  PF_CHECK(header.size() <= kMaxHeader, Value,
           "save_safetensors: the header is too long; got {} bytes; expected at most {}", header.size(), kMaxHeader);

  AtomicFile file("save_safetensors", path, sizeof(uint64_t) + header.size() + data_bytes);
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  for (size_t i : order) {
    const Tensor t = contiguous(tensors[i].second.detach());
    if (t.nbytes() > 0) file.write(t.on_host().data(), static_cast<uint64_t>(t.nbytes()));
  }
  file.commit();
}

SafetensorsFile load_safetensors(const std::string& path, DeviceOpt device) {
  const InputFile file(path);
  uint64_t length = 0;
  PF_CHECK(file.size() >= sizeof length, Value,
           "load_safetensors: '{}' is too short to be a safetensors file; got {} bytes", path, file.size());
  file.read(&length, sizeof length, 0);
  const uint64_t room = file.size() - sizeof length;
  PF_CHECK(length >= 2 && length <= std::min(room, kMaxHeader), Value,
           "load_safetensors: '{}' is not a safetensors file; got a header of {} bytes; expected 2 to {}", path, length,
           std::min(room, kMaxHeader));
  std::string header(length, '\0');
  file.read(header.data(), length, sizeof length);
  PF_CHECK(header[0] == '{', Value,
           "load_safetensors: '{}' is not a safetensors file: its header does not begin with '{{'", path);

  HeaderHandler handler;
  const bool ok = nlohmann::json::sax_parse(header, &handler);
  PF_CHECK(ok && handler.problem.empty(), Value, "load_safetensors: '{}': {}", path,
           handler.problem.empty() ? "the header is not valid JSON" : handler.problem);
  const uint64_t data_at = sizeof length + length;
  check_entries(path, handler.entries, file.size() - data_at);

  SafetensorsFile result;
  result.metadata = std::move(handler.metadata);
  result.tensors.reserve(handler.entries.size());
  for (Entry& e : handler.entries) {
    const uint64_t bytes = e.offsets[1] - e.offsets[0];
    const std::unique_ptr<char[]> buffer = allocate(e.name, bytes);
    file.read(buffer.get(), bytes, data_at + e.offsets[0]);
    if (*e.dtype == DType::bool_) {
      const auto* p = reinterpret_cast<const unsigned char*>(buffer.get());
      PF_CHECK(std::all_of(p, p + bytes, [](unsigned char b) { return b <= 1; }), Value,
               "load_safetensors: '{}': {} is BOOL but has bytes other than 0 and 1", path, cite(e.name));
    }
    result.tensors.emplace_back(std::move(e.name), from_host(buffer.get(), *e.shape, *e.dtype, device));
  }
  return result;
}

}  // namespace pyflame
