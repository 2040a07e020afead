#include "pyflame/io/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "pyflame/base/error.h"
#include "pyflame/io/zip_file.h"

namespace pyflame {

namespace {

using PickleKind = PickleValue::Kind;

constexpr uint64_t kMaxPickle = uint64_t{1} << 28;
// The numbers that begin a file of the older format, as a pickle each.
// A file that is no archive begins with the pickle of one number. Its protocol is 2, unless pickle_protocol= says otherwise; from 4 on it has a frame.
constexpr std::string_view kLegacyMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 13);
constexpr uint64_t kFrameBytes = 9;

bool begins_as_legacy(const InputFile& file) {
  const uint64_t most = 2 + kFrameBytes + kLegacyMagic.size();
  const std::string begin = file.read_text(std::min(file.size(), most), 0, "the beginning");
  if (begin.size() < 2 || begin[0] != '\x80' || begin[1] < 2 || begin[1] > 5) return false;
  std::string_view rest = std::string_view(begin).substr(2);
  if (rest.starts_with('\x95')) rest.remove_prefix(std::min<size_t>(rest.size(), kFrameBytes));
  return rest.starts_with(kLegacyMagic);
}

struct TypeName {
  std::string_view dtype;    // torch.<dtype>
  std::string_view storage;  // torch.<storage>Storage
  uint64_t bytes;
};
constexpr std::array<TypeName, 22> kTypes = {{
    {"float32", "Float", 4},
    {"float64", "Double", 8},
    {"float16", "Half", 2},
    {"bfloat16", "BFloat16", 2},
    {"int64", "Long", 8},
    {"int32", "Int", 4},
    {"int16", "Short", 2},
    {"int8", "Char", 1},
    {"uint8", "Byte", 1},
    {"bool", "Bool", 1},
    {"complex64", "ComplexFloat", 8},
    {"complex128", "ComplexDouble", 16},
    {"quint8", "QUInt8", 1},
    {"qint8", "QInt8", 1},
    {"qint32", "QInt32", 4},
    {"uint16", "UInt16", 2},
    {"uint32", "UInt32", 4},
    {"uint64", "UInt64", 8},
    {"float8_e4m3fn", "Float8_e4m3fn", 1},
    {"float8_e5m2", "Float8_e5m2", 1},
    {"float8_e4m3fnuz", "Float8_e4m3fnuz", 1},
    {"float8_e5m2fnuz", "Float8_e5m2fnuz", 1},
}};

const TypeName* type_of_storage(std::string_view name) {
  for (const std::string_view module : {"torch.cuda.", "torch."}) {
    if (!name.starts_with(module) || !name.ends_with("Storage")) continue;
    const std::string_view kind = name.substr(module.size(), name.size() - module.size() - 7);
    for (const TypeName& t : kTypes)
      if (t.storage == kind) return &t;
  }
  return nullptr;
}

const TypeName* type_of_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  const auto at = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.dtype == name; });
  return at == kTypes.end() ? nullptr : &*at;
}

bool is_size_list(const PickleValue& v) {
  return v.is(PickleKind::Tuple) && std::all_of(v.items.begin(), v.items.end(), [](const PickleValue* i) {
           return i->is(PickleKind::Int) && i->integer >= 0;
         });
}

}  // namespace

// What the names of a PyTorch file mean.
class TorchFile::Rebuild : public Pickle::Meaning {
 public:
  using Arguments = std::vector<PickleValue*>;

  explicit Rebuild(TorchFile& of) : of_(of) {}

  PickleValue* call(Pickle& pickle, const std::string& name, const Arguments& args) override {
    if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor" ||
        name == "torch._utils._rebuild_tensor_v3")
      return tensor(pickle, name, args);
    if (name == "torch._utils._rebuild_parameter" || name == "torch._utils._rebuild_parameter_with_state")
      return parameter(pickle, args);
    // A Counter is in the state of a schedule with milestones.
    if (name == "collections.OrderedDict" || name == "collections.defaultdict" || name == "builtins.dict" ||
        name == "collections.Counter")
      return dict(pickle, args);
    if (name == "torch.Size" || name == "builtins.tuple" || name == "__builtin__.tuple")
      return sequence(pickle, PickleKind::Tuple, args);
    if (name == "builtins.set" || name == "__builtin__.set" || name == "builtins.frozenset" ||
        name == "__builtin__.frozenset")
      return sequence(pickle, PickleKind::Set, args);
    if (name == "torch.device") return device(pickle, args);
    if (name == "_codecs.encode") return bytes(pickle, args);
    if (name == "numpy._core.multiarray.scalar" || name == "numpy.core.multiarray.scalar")
      return numpy_scalar(pickle, args);
    if (name == "torch.jit._pickle.restore_type_tag") return args.empty() ? nullptr : args[0];
    if (name.starts_with("torch.jit._pickle.build_") && name.ends_with("list"))
      return args.size() == 1 ? args[0] : nullptr;
    return nullptr;
  }

  // ("storage", its class, its key, where it was, its elements), and in old files a view of another storage.
  PickleValue* persistent(Pickle& pickle, const PickleValue& id) override {
    const Arguments& parts = id.items;
    // Old files name the class of a module in this way, with its source.
    if (id.is(PickleKind::Tuple) && parts.size() > 1 && parts[0]->is(PickleKind::Text) && parts[0]->text == "module" &&
        parts[1]->is(PickleKind::Global))
      return parts[1];
    if (!id.is(PickleKind::Tuple) || parts.size() < 5 || !parts[0]->is(PickleKind::Text) || parts[0]->text != "storage")
      return nullptr;
    if (!parts[2]->is(PickleKind::Text) || !parts[3]->is(PickleKind::Text) || !parts[4]->is(PickleKind::Int) ||
        parts[4]->integer < 0)
      return nullptr;
    // A storage without a type counts bytes.
    const bool untyped = parts[1]->is_global("torch.storage.UntypedStorage");
    const TypeName* type = untyped                            ? type_of_dtype("uint8")
                           : parts[1]->is(PickleKind::Global) ? type_of_storage(parts[1]->text)
                                                              : nullptr;
    if (type == nullptr) of_.file_.refuse("it has a storage of an unknown kind: " + describe(*parts[1]));
    int64_t offset = 0;
    if (parts.size() > 5 && parts[5]->is(PickleKind::Tuple) && parts[5]->items.size() == 3 &&
        parts[5]->items[1]->is(PickleKind::Int))
      offset = parts[5]->items[1]->integer;
    PickleValue* v = pickle.make(PickleKind::Object);
    v->text = kStorage;
    v->integer = static_cast<int64_t>(storage_of(parts[2]->text, *type, parts[3]->text, parts[4]->integer));
    v->number = static_cast<double>(offset);
    return v;
  }

  const std::map<std::string, size_t>& keys() const { return keys_; }

 private:
  static constexpr const char* kStorage = "torch storage";

  size_t storage_of(const std::string& key, const TypeName& type, const std::string& location, int64_t elements) {
    const auto [at, added] = keys_.try_emplace(key, of_.storages_.size());
    if (added) {
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(static_cast<uint64_t>(elements), type.bytes, &bytes))
        of_.file_.refuse("a storage is too large");
      of_.storages_.push_back({key, std::string(type.dtype), location, type.bytes, 0, bytes});
    }
    return at->second;
  }

  // (storage, offset, shape, strides[, requires_grad, hooks, …]); version 3 ends with the dtype.
  PickleValue* tensor(Pickle& pickle, const std::string& name, const Arguments& args) {
    if (args.size() < 4 || !args[0]->is(PickleKind::Object) || args[0]->text != kStorage ||
        !args[1]->is(PickleKind::Int) || !is_size_list(*args[2]) || !is_size_list(*args[3]) ||
        args[2]->items.size() != args[3]->items.size())
      of_.file_.refuse("the description of a tensor is damaged");
    TorchTensor t;
    t.storage = static_cast<size_t>(args[0]->integer);
    t.dtype = of_.storages_[t.storage].dtype;
    t.item_bytes = of_.storages_[t.storage].item_bytes;
    if (name.ends_with("_v3")) {
      const TypeName* type =
          args.size() > 6 && args[6]->is(PickleKind::Global) ? type_of_dtype(args[6]->text) : nullptr;
      if (type == nullptr)
        of_.file_.refuse("a tensor has a dtype that is not available; got " +
                         (args.size() > 6 ? describe(*args[6]) : std::string("none")));
      t.dtype = type->dtype;
      t.item_bytes = type->bytes;
    }
    t.offset = args[1]->integer + static_cast<int64_t>(args[0]->number);
    if (args[2]->items.size() > kMaxDims)
      of_.file_.refuse(fmt::format("a tensor has {} dimensions; expected at most {}", args[2]->items.size(), kMaxDims));
    for (const PickleValue* v : args[2]->items) t.shape.push_back(v->integer);
    for (const PickleValue* v : args[3]->items) t.strides.push_back(v->integer);
    for (size_t i = 6; i < args.size(); ++i) marks(t, *args[i]);
    t.requires_grad = args.size() > 4 && args[4]->is(PickleKind::Bool) && args[4]->integer != 0;
    PickleValue* v = pickle.make(PickleKind::Tensor);
    v->integer = static_cast<int64_t>(of_.tensors_.size());
    of_.tensors_.push_back(t);
    return v;
  }

  // A dict after the hooks says that PyTorch had put off an operation.
  static void marks(TorchTensor& t, const PickleValue& v) {
    if (!v.is(PickleKind::Dict)) return;
    for (size_t i = 0; i + 1 < v.items.size(); i += 2) {
      const bool set = v.items[i + 1]->is(PickleKind::Bool) && v.items[i + 1]->integer != 0;
      if (!v.items[i]->is(PickleKind::Text) || !set) continue;
      if (v.items[i]->text == "conj") t.conjugated = true;
      if (v.items[i]->text == "neg") t.negated = true;
    }
  }

  // (its dtype, its bytes): the number.
  static PickleValue* numpy_scalar(Pickle& pickle, const Arguments& args) {
    if (args.size() != 2 || !args[0]->is(PickleKind::Object) || args[0]->text != "numpy.dtype" ||
        !args[1]->is(PickleKind::Bytes) || args[0]->items.empty() || !args[0]->items[0]->is(PickleKind::Text))
      return nullptr;
    const PickleValue& state = *args[0]->items.back();  // (version, byte order, …)
    if (state.is(PickleKind::Tuple) && state.items.size() > 1 && state.items[1]->is(PickleKind::Text) &&
        state.items[1]->text == ">")
      return nullptr;
    const std::string &type = args[0]->items[0]->text, &data = args[1]->text;
    PickleValue* v = nullptr;
    const auto read = [&]<class T>(const char* name) {
      if (type != name || data.size() != sizeof(T)) return;
      T value;
      std::memcpy(&value, data.data(), sizeof(T));
      if constexpr (std::is_floating_point_v<T>) v = pickle.make(PickleKind::Float), v->number = value;
      else v = pickle.make_integer(static_cast<int64_t>(value));
    };
    read.template operator()<double>("f8"), read.template operator()<float>("f4");
    read.template operator()<int64_t>("i8"), read.template operator()<int32_t>("i4");
    read.template operator()<int16_t>("i2"), read.template operator()<int8_t>("i1");
    read.template operator()<uint32_t>("u4"), read.template operator()<uint16_t>("u2");
    read.template operator()<uint8_t>("u1");
    if (type == "b1" && data.size() == 1) v = pickle.make(PickleKind::Bool), v->integer = data[0] != 0;
    return v;
  }

  PickleValue* parameter(Pickle& pickle, const Arguments& args) {
    if (args.size() < 2 || !args[0]->is(PickleKind::Tensor)) return nullptr;
    TorchTensor t = of_.tensors_[static_cast<size_t>(args[0]->integer)];
    t.is_parameter = true;
    t.requires_grad = args[1]->is(PickleKind::Bool) && args[1]->integer != 0;
    PickleValue* v = pickle.make(PickleKind::Tensor);
    v->integer = static_cast<int64_t>(of_.tensors_.size());
    of_.tensors_.push_back(t);
    return v;
  }

  // A hostile file may copy the same long list again and again.
  void count_copies(size_t items) {
    copied_ += items;
    if (copied_ > of_.file_.size()) of_.file_.refuse("it copies more items than it has");
  }

  // Empty, of a list of pairs (Python 2), or with the function for missing keys (defaultdict).
  PickleValue* dict(Pickle& pickle, const Arguments& args) {
    PickleValue* v = pickle.make(PickleKind::Dict);
    if (args.size() == 1 && args[0]->is(PickleKind::Dict)) {
      count_copies(args[0]->items.size());
      v->items = args[0]->items;
      return v;
    }
    if (args.empty() || !args.back()->is(PickleKind::List)) return v;
    count_copies(args.back()->items.size());
    for (const PickleValue* pair : args.back()->items) {
      if (pair->items.size() != 2) return nullptr;
      v->items.insert(v->items.end(), pair->items.begin(), pair->items.end());
    }
    return v;
  }

  PickleValue* sequence(Pickle& pickle, PickleKind kind, const Arguments& args) {
    PickleValue* v = pickle.make(kind);
    if (args.empty()) return v;
    if (args.size() != 1 || (!args[0]->is(PickleKind::Tuple) && !args[0]->is(PickleKind::List))) return nullptr;
    count_copies(args[0]->items.size());
    v->items = args[0]->items;
    return v;
  }

  // The name of a device: ("cpu") or ("cuda", 0).
  static PickleValue* device(Pickle& pickle, const Arguments& args) {
    if (args.empty() || !args[0]->is(PickleKind::Text)) return nullptr;
    PickleValue* v = pickle.make(PickleKind::Text);
    v->text = args[0]->text;
    if (args.size() > 1 && args[1]->is(PickleKind::Int)) v->text += fmt::format(":{}", args[1]->integer);
    return v;
  }

  // Protocol 2 has no bytes: they are the text of the same Latin-1 characters.
  static PickleValue* bytes(Pickle& pickle, const Arguments& args) {
    if (args.size() != 2 || !args[0]->is(PickleKind::Text) || !args[1]->is(PickleKind::Text) ||
        !args[1]->text.starts_with("latin"))
      return nullptr;
    PickleValue* v = pickle.make(PickleKind::Bytes);
    const std::string_view text = args[0]->text;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c < 0x80) v->text += text[i];
      else if ((c & 0xfc) == 0xc0 && i + 1 < text.size())
        v->text += static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f));
      else return nullptr;
    }
    return v;
  }

  TorchFile& of_;
  std::map<std::string, size_t> keys_;
  size_t copied_ = 0;
};

namespace {

// A pickle's errors with the name of the file.
PickleValue* read_pickle(const InputFile& file, Pickle& pickle, std::string_view& text, Pickle::Meaning& meaning) {
  try {
    return pickle.read(text, meaning);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Value || std::string_view(e.what()).starts_with(file.op())) throw;
    file.refuse(e.what());
  }
}

}  // namespace

bool TorchFile::is_one(const InputFile& file) {
  if (is_zip(file)) {
    const std::vector<ZipEntry> entries = read_zip(file);
    return std::any_of(entries.begin(), entries.end(), [](const ZipEntry& e) { return e.name.ends_with("/data.pkl"); });
  }
  return begins_as_legacy(file);
}

TorchFile::TorchFile(std::string op, const std::string& path) : file_(std::move(op), path) {
  zip_ = is_zip(file_);
  if (zip_) read_archive();
  else read_legacy();
  check_tensors();
}

void TorchFile::read_archive() {
  const std::vector<ZipEntry> entries = read_zip(file_);
  std::map<std::string_view, const ZipEntry*> by_name;
  const ZipEntry* structure = nullptr;
  for (const ZipEntry& e : entries) {
    by_name[e.name] = &e;
    if (e.name.ends_with("/data.pkl") && std::count(e.name.begin(), e.name.end(), '/') == 1) structure = &e;
  }
  if (structure == nullptr) file_.refuse("it is a zip archive without data.pkl; expected a file of torch.save");
  const std::string folder = structure->name.substr(0, structure->name.size() - 8);
  script_ = by_name.count(folder + "constants.pkl") != 0;
  if (const auto at = by_name.find(folder + "byteorder"); at != by_name.end() && at->second->size == 3)
    file_.refuse("it was written on a big-endian machine, which is not supported");
  if (!structure->stored || structure->size > kMaxPickle)
    file_.refuse("data.pkl is compressed or too large; hint: repack the archive without compression");
  const std::string text = file_.read_text(structure->size, structure->begin, "data.pkl");
  std::string_view rest = text;
  Rebuild rebuild(*this);
  root_ = read_pickle(file_, pickle_, rest, rebuild);
  uint64_t total = 0;
  for (TorchStorage& s : storages_) {
    const auto at = by_name.find(folder + "data/" + s.key);
    if (at == by_name.end()) file_.refuse("the archive has no data for the storage " + cite(s.key));
    if (!at->second->stored)
      file_.refuse("the data of the storage " + cite(s.key) +
                   " is compressed; hint: repack the archive without compression");
    if (at->second->size < s.bytes)
      file_.refuse(fmt::format("the data of the storage {} is too short; got {} bytes; expected {}", cite(s.key),
                               at->second->size, s.bytes));
    s.begin = at->second->begin;
    total += s.bytes;
    if (total > file_.size()) file_.refuse("its storages overlap");
  }
}

void TorchFile::read_legacy() {
  if (!begins_as_legacy(file_)) file_.refuse("it is not a file of torch.save");
  // The structure is at the beginning, and nothing says how long it is.
  const std::string text = file_.read_text(std::min(file_.size(), kMaxPickle), 0, "the structure");
  std::string_view rest = text;
  Rebuild rebuild(*this);
  for (int part = 0; part < 3; ++part)
    (void)read_pickle(file_, pickle_, rest, rebuild);  // magic, version, sizes of the writer's types
  root_ = read_pickle(file_, pickle_, rest, rebuild);
  const PickleValue* keys = read_pickle(file_, pickle_, rest, rebuild);
  uint64_t at = text.size() - rest.size();
  std::set<size_t> seen;
  for (const PickleValue* key : keys->items) {
    const auto known = key->is(PickleKind::Text) ? rebuild.keys().find(key->text) : rebuild.keys().end();
    if (known == rebuild.keys().end() || !seen.insert(known->second).second)
      file_.refuse("its list of storages does not fit its tensors");
    TorchStorage& s = storages_[known->second];
    const auto elements = file_.read_number<int64_t>(at, "a storage");
    at += sizeof elements;
    if (elements < 0 || static_cast<uint64_t>(elements) > file_.size() ||
        static_cast<uint64_t>(elements) * s.item_bytes > file_.size() - at)
      file_.refuse(fmt::format("the storage {} is not inside of the file; got {} elements of {}", cite(s.key), elements,
                               s.dtype));
    s.begin = at;
    s.bytes = static_cast<uint64_t>(elements) * s.item_bytes;
    at += s.bytes;
  }
  if (seen.size() != storages_.size()) file_.refuse("the data of a storage is missing");
}

// Each element of each tensor lies inside its storage.
void TorchFile::check_tensors() const {
  for (const TorchTensor& t : tensors_) {
    const TorchStorage& s = storages_[t.storage];
    bool empty = false, overflow = t.offset < 0;
    uint64_t last = static_cast<uint64_t>(t.offset);
    for (int i = 0; i < t.shape.size(); ++i) {
      uint64_t step = 0;
      empty = empty || t.shape[i] == 0;
      overflow = overflow ||
                 __builtin_mul_overflow(static_cast<uint64_t>(std::max<int64_t>(t.shape[i] - 1, 0)),
                                        static_cast<uint64_t>(t.strides[i]), &step) ||
                 __builtin_add_overflow(last, step, &last);
    }
    if (overflow || (!empty && last >= s.bytes / t.item_bytes))
      file_.refuse(fmt::format(
          "a tensor reaches beyond its storage; got shape {}, strides {}, offset {}; expected it inside of {} elements",
          t.shape.str(), t.strides.str(), t.offset, s.bytes / t.item_bytes));
  }
}

DType torch_dtype(const InputFile& file, std::string_view name, const std::string& place) {
  for (int d = 0; d < kNumDTypes; ++d)
    if (dtype_name(static_cast<DType>(d)) == name) return static_cast<DType>(d);
  const std::string_view as = name.starts_with("q") ? "tensor.dequantize()"
                              : name == "uint16"    ? "tensor.to(torch.int32)"
                                                    : "tensor.to(torch.int64)";
  file.refuse(fmt::format(
      "it has a tensor of a dtype that is not available; got {} at {}; expected a dtype of tensors; hint: save {}"
      " with PyTorch",
      name, place.empty() ? "its top" : cite(place), as));
}

bool is_complex_number(const PickleValue& value) {
  const auto is_number = [](const PickleValue* v) { return v->is(PickleKind::Float) || v->is(PickleKind::Int); };
  return value.is(PickleKind::Object) && (value.text == "builtins.complex" || value.text == "__builtin__.complex") &&
         value.items.size() == 2 && is_number(value.items[0]) && is_number(value.items[1]);
}

namespace {

class Walk {
 public:
  explicit Walk(const TorchFile& file) : file_(file) {}

  void visit(const PickleValue& v, const std::string& path, int depth) {
    constexpr int kMaxDepth = 200;
    if (depth > kMaxDepth)
      file_.file().refuse(fmt::format("its structure is nested more than {} levels deep", kMaxDepth));
    switch (v.kind) {
      case PickleKind::Tensor:
        contents.tensors.push_back({path.empty() ? "tensor" : path, static_cast<size_t>(v.integer)});
        return;
      case PickleKind::List:
      case PickleKind::Tuple:
      case PickleKind::Set:
        if (!enter(v)) return;
        for (size_t i = 0; i < v.items.size(); ++i) visit(*v.items[i], join(path, std::to_string(i)), depth + 1);
        return;
      case PickleKind::Dict:
        if (enter(v)) visit_items(v, path, depth);
        return;
      case PickleKind::Object:
        if (enter(v)) visit_object(v, path, depth);
        return;
      default: return;
    }
  }

  TorchContents contents;

 private:
  // Shared parts are visited once, so that a small file cannot ask for endless work; tensors are listed wherever they occur.
  bool enter(const PickleValue& v) { return seen_.insert(&v).second; }

  static std::string join(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  }

  static std::string key_text(const PickleValue& key) {
    if (key.is(PickleKind::Text)) return key.text;
    if (key.is(PickleKind::Int)) return std::to_string(key.integer);
    return "?";
  }

  void visit_items(const PickleValue& dict, const std::string& path, int depth) {
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
      visit(*dict.items[i + 1], join(path, key_text(*dict.items[i])), depth + 1);
  }

  // A module's state is the dict of its attributes; its parameters, buffers and children are in dicts of their own.
  void visit_object(const PickleValue& v, const std::string& path, int depth) {
    if (is_complex_number(v)) return;
    const PickleValue* state = v.items.empty() ? nullptr : v.items.back();
    if (!file_.is_script()) contents.foreign.emplace(path, describe(v));
    if (state == nullptr || !state->is(PickleKind::Dict)) return;
    for (size_t i = 0; i + 1 < state->items.size(); i += 2) {
      const std::string key = key_text(*state->items[i]);
      const PickleValue& value = *state->items[i + 1];
      const bool own = key == "_parameters" || key == "_buffers" || key == "_modules";
      if (own && value.is(PickleKind::Dict)) visit_items(value, path, depth);
      else visit(value, join(path, key), depth + 1);
    }
  }

  const TorchFile& file_;
  std::set<const PickleValue*> seen_;
};

}  // namespace

TorchContents torch_contents(const TorchFile& file) {
  Walk walk(file);
  walk.visit(file.root(), "", 0);
  return std::move(walk.contents);
}

}  // namespace pyflame
