#include "tools/model_files/document.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "pyflame/base/error.h"
#include "pyflame/io/gguf_file.h"
#include "pyflame/io/safetensors_file.h"
#include "pyflame/io/torch_file.h"
#include "pyflame/io/zip_file.h"
#include "tools/model_files/numpy_header.h"

namespace pyflame::tools::model_files {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kOp = "inspect-model";
constexpr uint64_t kMaxIndex = uint64_t{256} << 20;

// A tensor's bytes in the file may be fewer than its elements' (blocks) or more (a storage with parts that nobody uses).
Json tensor(const std::string& name, const std::vector<int64_t>& shape, std::string_view dtype, uint64_t bytes) {
  double elements = 1;
  for (int64_t size : shape) elements *= static_cast<double>(size);
  return {{"name", name}, {"shape", shape}, {"dtype", dtype}, {"elements", elements}, {"bytes", bytes}};
}
std::vector<int64_t> sizes(const Dims& shape) { return {shape.begin(), shape.end()}; }

void add_safetensors(const std::string& path, Json& doc) {
  const safetensors::Reader file(path);
  doc["format"] = "safetensors";
  for (const safetensors::Entry& e : file.entries())
    doc["tensors"].push_back(tensor(e.name, sizes(e.shape), dtype_name(e.dtype), e.end - e.begin));
  for (const auto& [key, value] : file.metadata()) doc["metadata"][key] = value;
}

void add_gguf(const std::string& path, Json& doc) {
  const gguf::Reader file(kOp, path);
  doc["format"] = fmt::format("GGUF version {}", file.version());
  std::set<std::string_view> unreadable;
  for (const gguf::Entry& e : file.entries()) {
    const bool plain = e.type->dtype != nullptr;
    doc["tensors"].push_back(
        tensor(e.name, sizes(e.shape), plain ? dtype_name(*e.type->dtype) : e.type->name, e.bytes));
    if (!plain && e.type->decode == nullptr) unreadable.insert(e.type->name);
  }
  for (std::string_view type : unreadable)
    doc["notes"].push_back(fmt::format("Blocks of the type {} cannot be read yet.", type));
  doc["metadata"] = file.metadata();
}

void add_torch(const std::string& path, Json& doc) {
  const TorchFile file(kOp, path);
  doc["format"] = file.format();
  const TorchContents contents = torch_contents(file);
  std::map<size_t, std::string> owner;  // of each storage
  for (const NamedTorchTensor& t : contents.tensors) {
    const TorchTensor& of = file.tensors()[t.tensor];
    const auto [at, first] = owner.try_emplace(of.storage, t.name);
    Json row = tensor(t.name, sizes(of.shape), of.dtype, first ? file.storages()[of.storage].bytes : 0);
    if (!first) row["shares"] = at->second;
    doc["tensors"].push_back(row);
  }
  std::set<std::string> places;
  for (const TorchStorage& s : file.storages()) places.insert(s.location);
  for (const std::string& place : places)
    if (place != "cpu")
      doc["notes"].push_back(
          fmt::format("Tensors were saved from {}; pf.load puts them on the current device.", place));
  for (const auto& [where, what] : contents.foreign) {
    if (doc["notes"].size() >= 10) break;
    doc["notes"].push_back(fmt::format("{} is {}, which is not data: pf.load refuses this file.",
                                       where.empty() ? "The file" : where, what));
  }
}

// The first bytes of an entry, decompressed if need be.
std::string head_of(const InputFile& file, const ZipEntry& e) {
  const std::string bytes = file.read_text(std::min(e.stored_bytes, kNumpyHeaderBytes), e.begin, cite(e.name));
  if (e.stored) return bytes;
  if (!e.deflated) file.refuse(cite(e.name) + " is compressed in a way that is not known");
  z_stream z{};
  PF_CHECK(inflateInit2(&z, -MAX_WBITS) == Z_OK, Runtime, "{}: zlib cannot start", kOp);
  std::string out(kNumpyHeaderBytes, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  (void)inflate(&z, Z_SYNC_FLUSH);
  out.resize(out.size() - z.avail_out);
  inflateEnd(&z);
  return out;
}

void add_array(const InputFile& file, const std::string& name, std::string_view head, uint64_t bytes, Json& doc) {
  try {
    const NumpyArray a = read_numpy_header(head);
    doc["tensors"].push_back(tensor(name, a.shape, a.dtype, bytes));
  } catch (const Error& e) {
    file.refuse(fmt::format("{}: {}", cite(name), e.what()));
  }
}

void add_numpy(const std::string& path, Json& doc) {
  const InputFile file(kOp, path);
  doc["format"] = "npy";
  add_array(file, "array", file.read_text(std::min(file.size(), kNumpyHeaderBytes), 0, "the header"), file.size(), doc);
}

void add_archive(const std::string& path, Json& doc) {
  const InputFile file(kOp, path);
  doc["format"] = "npz";
  for (const ZipEntry& e : read_zip(file)) {
    if (!e.name.ends_with(".npy")) file.refuse("it is a zip archive, but neither of torch.save nor of NumPy");
    add_array(file, e.name.substr(0, e.name.size() - 4), head_of(file, e), e.stored_bytes, doc);
  }
}

void add_file(const std::string& path, Json& doc) {
  enum class Kind { Safetensors, Gguf, Torch, Npy, Npz } kind = Kind::Safetensors;
  {
    const InputFile file(kOp, path);
    doc["file_bytes"] = doc["file_bytes"].get<uint64_t>() + file.size();
    if (gguf::Reader::is_one(file)) kind = Kind::Gguf;
    else if (TorchFile::is_one(file)) kind = Kind::Torch;
    else if (is_zip(file)) kind = Kind::Npz;
    else if (file.size() > kNumpyMagic.size() && file.read_text(kNumpyMagic.size(), 0, "the beginning") == kNumpyMagic)
      kind = Kind::Npy;
    else if (file.size() < 10 || file.read_text(1, 8, "the header") != "{")
      file.refuse("its format is not known; expected safetensors, GGUF, torch.save, TorchScript, npy or npz");
  }
  switch (kind) {
    case Kind::Safetensors: return add_safetensors(path, doc);
    case Kind::Gguf: return add_gguf(path, doc);
    case Kind::Torch: return add_torch(path, doc);
    case Kind::Npy: return add_numpy(path, doc);
    case Kind::Npz: return add_archive(path, doc);
  }
}

// The weights of a model's folder: the files that an index names, or all files with weights.
std::vector<std::string> files_of(const std::string& folder, Json& doc) {
  std::set<std::string> found;
  std::optional<fs::path> index;
  for (const fs::directory_entry& e : fs::directory_iterator(folder)) {
    const std::string name = e.path().filename();
    if (name.ends_with(".index.json")) index = e.path();
    for (const std::string_view suffix : {".safetensors", ".bin", ".pt", ".pth", ".gguf"})
      if (name.ends_with(suffix)) found.insert(name);
  }
  if (index) {
    const InputFile file(kOp, *index);
    PF_CHECK(file.size() <= kMaxIndex, Value, "{}: '{}' is too large for an index; got {} bytes", kOp, file.path(),
             file.size());
    const Json places = Json::parse(file.read_text(file.size(), 0, "the index"), nullptr, false);
    const auto map = places.is_object() ? places.find("weight_map") : places.end();
    PF_CHECK(places.is_object() && map != places.end() && map->is_object(), Value,
             "{}: '{}' is not an index of weights; expected weight_map", kOp, file.path());
    std::set<std::string> named;
    for (const auto& [tensor_name, shard] : map->items())
      if (shard.is_string()) named.insert(shard.get<std::string>());
    for (const std::string& name : named)
      if (found.count(name) == 0) doc["notes"].push_back("The index names a file that is not there: " + name);
    std::erase_if(found, [&](const std::string& name) { return named.count(name) == 0; });
  }
  PF_CHECK(!found.empty(), Value, "{}: '{}' has no files with weights; expected .safetensors, .bin, .pt, .pth or .gguf",
           kOp, folder);
  return {found.begin(), found.end()};
}

void add_folder(const std::string& folder, Json& doc) {
  std::set<std::string> formats;
  for (const std::string& name : files_of(folder, doc)) {
    const size_t before = doc["tensors"].size();
    add_file((fs::path(folder) / name).string(), doc);
    formats.insert(doc["format"].get<std::string>());
    for (size_t i = before; i < doc["tensors"].size(); ++i) doc["tensors"][i]["file"] = name;
  }
  std::string all;
  for (const std::string& f : formats) all += (all.empty() ? "" : ", ") + f;
  doc["format"] = "folder of " + all;
}

// "layers.3.weight" is the pattern "layers.\x01#.weight" and the number 3; a number that is too long stays text. A \x01 of the name itself is
// "\x01x".
struct Pattern {
  std::string text;
  std::vector<uint64_t> numbers;
};
Pattern pattern_of(const std::string& name) {
  Pattern p;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    const bool whole =
        end > i && end - i < 10 && (i == 0 || name[i - 1] == '.') && (end == name.size() || name[end] == '.');
    if (whole) {
      p.text += "\x01#";
      p.numbers.push_back(std::stoull(name.substr(i, end - i)));
    } else {
      p.text += end > i ? name.substr(i, end - i) : name[i] == '\x01' ? "\x01x" : name.substr(i, 1);
    }
    i = std::max(end, i + 1);
  }
  return p;
}

std::string shown(const Pattern& first, const std::vector<std::set<uint64_t>>& numbers) {
  std::string out;
  size_t k = 0;
  for (size_t i = 0; i < first.text.size(); ++i) {
    if (first.text[i] != '\x01' || first.text[++i] == 'x') {
      out += first.text[i] == 'x' && i > 0 && first.text[i - 1] == '\x01' ? '\x01' : first.text[i];
      continue;
    }
    const std::set<uint64_t>& n = numbers[k++];
    const bool run = n.size() > 1 && *n.rbegin() - *n.begin() + 1 == n.size();
    out += n.size() == 1 ? std::to_string(*n.begin())
                         : fmt::format("{{{}{}{}}}", *n.begin(), run ? "…" : ",…,", *n.rbegin());
  }
  return out;
}

void add_groups(Json& doc) {
  struct Group {
    Pattern first;
    std::vector<std::set<uint64_t>> numbers;
    size_t row = 0;
  };
  std::map<std::string, Group> groups;
  Json& rows = doc["groups"];
  for (const Json& t : doc["tensors"]) {
    const Pattern p = pattern_of(t["name"].get<std::string>());
    const std::string key = p.text + '\x02' + t["shape"].dump() + t["dtype"].dump();
    const auto [at, added] = groups.try_emplace(key);
    Group& g = at->second;
    if (added) {
      g = {p, std::vector<std::set<uint64_t>>(p.numbers.size()), rows.size()};
      rows.push_back(
          {{"count", 0}, {"shape", t["shape"]}, {"dtype", t["dtype"]}, {"elements", 0.0}, {"bytes", uint64_t{0}}});
    }
    for (size_t i = 0; i < p.numbers.size(); ++i) g.numbers[i].insert(p.numbers[i]);
    Json& row = rows[g.row];
    row["count"] = row["count"].get<int64_t>() + 1;
    row["elements"] = row["elements"].get<double>() + t["elements"].get<double>();
    row["bytes"] = row["bytes"].get<uint64_t>() + t["bytes"].get<uint64_t>();
  }
  for (const auto& [key, g] : groups) rows[g.row]["name"] = shown(g.first, g.numbers);
}

void add_totals(Json& doc) {
  std::map<std::string, Json> by_dtype;
  double elements = 0;
  uint64_t bytes = 0;
  for (const Json& t : doc["tensors"]) {
    Json& d = by_dtype
                  .try_emplace(t["dtype"].get<std::string>(),
                               Json{{"name", t["dtype"]}, {"tensors", 0}, {"elements", 0.0}, {"bytes", uint64_t{0}}})
                  .first->second;
    d["tensors"] = d["tensors"].get<int64_t>() + 1;
    d["elements"] = d["elements"].get<double>() + t["elements"].get<double>();
    d["bytes"] = d["bytes"].get<uint64_t>() + t["bytes"].get<uint64_t>();
    elements += t["elements"].get<double>();
    bytes += t["bytes"].get<uint64_t>();
  }
  for (auto& [name, d] : by_dtype) doc["dtypes"].push_back(d);
  std::stable_sort(doc["dtypes"].begin(), doc["dtypes"].end(),
                   [](const Json& a, const Json& b) { return a["bytes"] > b["bytes"]; });
  doc["totals"] = {{"tensors", doc["tensors"].size()}, {"elements", elements}, {"bytes", bytes}};
}

}  // namespace

Json document(const std::string& path) {
  Json doc = {{"path", path},
              {"format", ""},
              {"file_bytes", uint64_t{0}},
              {"tensors", Json::array()},
              {"groups", Json::array()},
              {"dtypes", Json::array()},
              {"metadata", Json::object()},
              {"notes", Json::array()}};
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) add_folder(path, doc);
  else add_file(path, doc);
  add_groups(doc);
  add_totals(doc);
  return doc;
}

}  // namespace pyflame::tools::model_files
