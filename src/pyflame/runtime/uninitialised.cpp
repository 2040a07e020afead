// Looks for the pattern of fresh memory.
#include "pyflame/runtime/uninitialised.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pyflame/base/fork.h"
#include "pyflame/runtime/debug_memory.h"
#include "pyflame/runtime/device.h"

namespace pyflame::uninitialised {

namespace {

struct Known {
  std::mutex mutex;
  std::unordered_map<uint64_t, Origin> origins;  // by storage id
  std::atomic<size_t> count{0};
};
Known& known() {
  static Known* k = new Known;
  return *k;
}
const AtFork g_origins_at_fork{ForkOrder::DebugMemory, [] { known().mutex.lock(); },
                               [](bool) { known().mutex.unlock(); }};

constexpr size_t kFewBytes =
    8;  // integers and bytes hold the pattern only in a run of so many: any of their values may be meant

template <class Word>
bool is_pattern(const char* p) {
  Word word, pattern = 0;
  std::memcpy(&word, p, sizeof(Word));
  for (size_t i = 0; i < sizeof(Word); i += 2)
    pattern = static_cast<Word>(pattern | static_cast<Word>(Word{debug_memory::kFresh} << (8 * i)));
  return word == pattern;
}

bool element_is_pattern(const char* p, size_t bytes) {
  switch (bytes) {
    case 2: return is_pattern<uint16_t>(p);
    case 4: return is_pattern<uint32_t>(p);
    case 8: return is_pattern<uint64_t>(p);
    case 16: return is_pattern<uint64_t>(p) || is_pattern<uint64_t>(p + 8);
    default: return false;
  }
}

template <class T>
bool part_is_nan(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return std::isnan(static_cast<float>(v));
  else return std::isnan(v);
}

bool element_is_nan(const char* p, DType dtype) {
  switch (dtype) {
    case DType::float16: return part_is_nan<float16>(p);
    case DType::bfloat16: return part_is_nan<bfloat16>(p);
    case DType::float32: return part_is_nan<float>(p);
    case DType::float64: return part_is_nan<double>(p);
    case DType::complex64: return part_is_nan<float>(p) || part_is_nan<float>(p + 4);
    case DType::complex128: return part_is_nan<double>(p) || part_is_nan<double>(p + 8);
    default: return false;
  }
}

// Elements of one or two bytes that are no floats: runs of the pattern in neighbouring elements.
int64_t runs(const std::vector<const char*>& elements, size_t bytes) {
  int64_t found = 0;
  size_t length = 0;
  const auto end_run = [&] {
    if (length * bytes >= kFewBytes) found += static_cast<int64_t>(length);
    length = 0;
  };
  const uint16_t pattern = debug_memory::kFresh;
  for (const char* p : elements) {
    const auto* want = reinterpret_cast<const char*>(&pattern) + reinterpret_cast<uintptr_t>(p) % 2;
    const bool same = bytes == 2 ? element_is_pattern(p, 2) : *p == *want;
    if (same) ++length;
    else end_run();
  }
  end_run();
  return found;
}

// The address of each element, from that of the first.
std::vector<const char*> addresses(const Operand& o, const char* first) {
  const auto bytes = static_cast<int64_t>(dtype_size(o.dtype));
  std::vector<const char*> out;
  out.reserve(static_cast<size_t>(o.numel()));
  std::vector<int64_t> at(static_cast<size_t>(o.shape.size()), 0);
  for (int64_t i = 0, n = o.numel(), offset = 0; i < n; ++i) {
    out.push_back(first + offset * bytes);
    for (int d = o.shape.size() - 1; d >= 0; --d) {
      offset += o.strides[d];
      if (++at[static_cast<size_t>(d)] < o.shape[d]) break;
      offset -= at[static_cast<size_t>(d)] * o.strides[d];
      at[static_cast<size_t>(d)] = 0;
    }
  }
  return out;
}

// The bytes from the first element in memory to the last one, on the host. Strides may be negative.
struct Span {
  int64_t low = 0, high = 0;  // elements
};
Span span_of(const Operand& o) {
  Span s;
  for (int d = 0; d < o.shape.size(); ++d) (o.strides[d] < 0 ? s.low : s.high) += (o.shape[d] - 1) * o.strides[d];
  return s;
}

}  // namespace

Origin origin_of(const Storage& s) {
  Known& k = known();
  if (k.count == 0) return nullptr;
  std::lock_guard lock(k.mutex);
  const auto it = k.origins.find(s.id);
  return it == k.origins.end() ? nullptr : it->second;
}

void set_origin(const Storage& s, const Origin& origin) {
  Known& k = known();
  if (!origin && k.count == 0) return;
  std::lock_guard lock(k.mutex);
  if (origin) k.origins[s.id] = origin;
  else k.origins.erase(s.id);
  k.count = k.origins.size();
}

Found look(const Operand& o, const void* data, DeviceMemory* memory) {
  Found found;
  if (o.is_param || !data || o.numel() == 0) return found;
  const size_t bytes = dtype_size(o.dtype);
  const char* first = static_cast<const char*>(data);
  std::vector<char> copy;
  if (memory) {
    const Span s = span_of(o);
    copy.resize(static_cast<size_t>(s.high - s.low + 1) * bytes);
    memory->to_host(copy.data(), first + s.low * static_cast<int64_t>(bytes), copy.size());
    first = copy.data() - s.low * static_cast<int64_t>(bytes);
  }
  const std::vector<const char*> elements = addresses(o, first);
  const bool has_nan = is_float(o.dtype) || is_complex(o.dtype);
  if (bytes == 1 || (bytes == 2 && !has_nan)) return {runs(elements, bytes), 0};
  for (const char* p : elements) {
    const bool pattern = element_is_pattern(p, bytes);
    found.pattern += pattern;
    found.nan += pattern || (has_nan && element_is_nan(p, o.dtype));
  }
  return found;
}

void check_read(const Tensor& x) {
  if (!x.storage()->data || x.numel() == 0) return;
  Operand o;
  o.dtype = x.dtype(), o.shape = x.shape(), o.strides = x.strides();
  const Found found =
      look(o, static_cast<const char*>(x.storage()->data) + x.offset() * x.itemsize(), device_memory(x.device()));
  const Origin origin = origin_of(*x.storage());
  const int64_t bad = origin ? found.nan : found.pattern;
  if (bad == 0) return;
  const std::string text = fmt::format(
      "read: memory that nothing has written was read; got {} such values in {}{}; expected values that an op has "
      "written\n  {}",
      bad, dtype_name(x.dtype()), x.shape().str(),
      origin ? *origin : std::string("no op has written them; hint: pf.zeros instead of pf.empty"));
  debug_memory::found(text);
  throw Error(ErrorKind::Runtime, text);
}

}  // namespace pyflame::uninitialised
