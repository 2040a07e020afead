#include "pyflame/io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "pyflame/io/atomic_file.h"

namespace pyflame {

namespace {

using safetensors::kMaxHeader;
using safetensors::kMetadataKey;

std::string_view wire_name(DType d) {
  for (const safetensors::DTypeName& n : safetensors::kNames) {
    if (n.dtype == d) return n.name;
  }
  PF_FAIL(Runtime, "save_safetensors: dtype without a name in the format; got {}", dtype_name(d));
}

bool valid_utf8(const std::string& s) {
  try {
    (void)nlohmann::json(s).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// The header, with the offsets of the tensors in `order`. It is padded so that the data begins at a multiple of 8.
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
    PF_CHECK(name != kMetadataKey, Value,
             "save_safetensors: a name is reserved by the format; got '{}'; expected another one", kMetadataKey);
    PF_CHECK(names.insert(name).second, Value,
             "save_safetensors: a name occurs twice; got {}; expected different names", cite(name));
    PF_CHECK(valid_utf8(name), Value, "save_safetensors: a name is not valid UTF-8; got {}", cite(name));
  }
  for (const auto& [key, value] : metadata) {
    PF_CHECK(valid_utf8(key) && valid_utf8(value), Value,
             "save_safetensors: metadata is not valid UTF-8; got it at key {}; expected UTF-8", cite(key));
  }
}

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  check_for_saving(tensors, metadata);
  // Wide dtypes come first, so that each tensor begins at a multiple of its element size and readers can map the file.
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
  const safetensors::Reader file(path);
  SafetensorsFile result;
  result.metadata = file.metadata();
  result.tensors.reserve(file.entries().size());
  const DeviceType where = empty({}, DType::uint8, device).device().type;
  for (const safetensors::Entry& e : file.entries()) {
    if (e.begin == e.end || where != DeviceType::cpu) {
      result.tensors.emplace_back(e.name, from_host(file.read(e).get(), e.shape, e.dtype, device));
      continue;
    }
    const Tensor t = empty(e.shape, e.dtype, device);
    file.read_to(e, t.mutable_data());
    result.tensors.emplace_back(e.name, t);
  }
  return result;
}

}  // namespace pyflame
