// Files of other programs with tensors: bindings of io/torch_file.h and io/gguf_file.h. pyflame/io.py decides which of them a file is.
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>

#include "casters.h"
#include "pyflame/io/gguf_file.h"
#include "pyflame/io/safetensors.h"
#include "pyflame/io/torch_file.h"
#include "pyflame/tensor/weight_tiles.h"

namespace pyflame::python {

namespace {

using PickleKind = PickleValue::Kind;

nb::object text_object(const std::string& text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (made == nullptr) nb::raise_python_error();
  return nb::steal(made);
}

// The same values as objects of Python. What is no UTF-8 in a text becomes U+FFFD, and a number that is not finite None, as in JSON.
nb::object python_of(const nlohmann::json& v) {
  using Kind = nlohmann::json::value_t;
  switch (v.type()) {
    case Kind::boolean: return nb::bool_(v.get<bool>());
    case Kind::number_integer: return nb::int_(v.get<int64_t>());
    case Kind::number_unsigned: return nb::int_(v.get<uint64_t>());
    case Kind::number_float: {
      const auto number = v.get<double>();
      return std::isfinite(number) ? nb::object(nb::float_(number)) : nb::object(nb::none());
    }
    case Kind::string: {
      const auto& text = v.get_ref<const std::string&>();
      nb::object made = nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
      if (!made.is_valid()) nb::raise_python_error();
      return made;
    }
    case Kind::array: {
      nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(v.size())));
      if (!list.is_valid()) nb::raise_python_error();
      Py_ssize_t i = 0;
      for (const auto& item : v) PyList_SET_ITEM(list.ptr(), i++, python_of(item).release().ptr());
      return list;
    }
    case Kind::object: {
      nb::dict named;
      for (const auto& [name, value] : v.items()) named[python_of(name)] = python_of(value);
      return named;
    }
    default: return nb::none();
  }
}

// Makes the Python objects of a file's structure. Values that are shared in the file are shared afterwards, tensors of one storage too.
class TorchObjects {
 public:
  // place(tensor, location) moves what was at `location` to where it shall be; parameter(tensor, requires_grad) makes an nn.Parameter.
  TorchObjects(const TorchFile& file, nb::callable place, nb::callable parameter)
      : file_(file), place_(std::move(place)), parameter_(std::move(parameter)) {}

  nb::object tensor(size_t index, const std::string& path) {
    const TorchTensor& t = file_.tensors()[index];
    const nb::object base = storage(t, path);
    Tensor view = as_strided(*as_tensor(base), t.shape, t.strides, t.offset);
    if (t.conjugated) view = conj(view);
    if (t.negated) view = neg(view);
    if (t.is_parameter) return parameter_(nb::cast(view), t.requires_grad);
    nb::object made = nb::cast(view);
    if (t.requires_grad) made.attr("requires_grad_")(true);
    return made;
  }

  nb::object convert(const PickleValue& v, const std::string& path, int depth = 0) {
    constexpr int kMaxDepth = 200;
    if (depth > kMaxDepth)
      file_.file().refuse(fmt::format("its structure is nested more than {} levels deep", kMaxDepth));
    if (const auto known = made_.find(&v); known != made_.end()) {
      if (!known->second.is_valid()) file_.file().refuse("its structure contains itself");
      return known->second;
    }
    switch (v.kind) {
      case PickleKind::None: return nb::none();
      case PickleKind::Bool: return nb::bool_(v.integer != 0);
      case PickleKind::Int: return nb::int_(v.integer);
      case PickleKind::BigInt: return big_integer(v.text);
      case PickleKind::Float: return nb::float_(v.number);
      case PickleKind::Text: return text_object(v.text);
      case PickleKind::Bytes: return nb::bytes(v.text.data(), v.text.size());
      case PickleKind::Tensor: return made_[&v] = tensor(static_cast<size_t>(v.integer), path);
      case PickleKind::Global: return global(v, path);
      case PickleKind::List: return list(v, path, depth);
      case PickleKind::Dict: return dict(v, path, depth);
      case PickleKind::Tuple:
      case PickleKind::Set: return tuple_or_set(v, path, depth);
      case PickleKind::Object:
        if (!is_complex_number(v)) refuse(v, path);
        return nb::steal(PyComplex_FromDoubles(number(*v.items[0]), number(*v.items[1])));
    }
    return nb::none();
  }

 private:
  [[noreturn]] void refuse(const PickleValue& v, const std::string& path) const {
    file_.file().refuse(
        fmt::format("it has something that is not data; got {} at {}; expected tensors, numbers, text, None, and "
                    "dicts, lists and tuples "
                    "of them; hint: save model.state_dict() with PyTorch, not the model",
                    describe(v), path.empty() ? "its top" : cite(path)));
  }

  nb::object storage(const TorchTensor& t, const std::string& path) {
    const TorchStorage& s = file_.storages()[t.storage];
    nb::object& base = storages_[{t.storage, t.dtype}];
    if (base.is_valid()) return base;
    const DType dtype = torch_dtype(file_.file(), t.dtype, path);
    const uint64_t elements = s.bytes / t.item_bytes;
    Tensor made;
    {
      Unlocked u;
      const auto bytes = file_.file().read_bytes(elements * t.item_bytes, s.begin, "a storage");
      made = from_host(bytes.get(), {static_cast<int64_t>(elements)}, dtype, Device{});
    }
    base = place_(nb::cast(made), s.location);
    PF_CHECK(as_tensor(base) != nullptr, Type, "load: map_location did not return a tensor; got {}", kind_name(base));
    return base;
  }

  static double number(const PickleValue& v) {
    return v.is(PickleKind::Float) ? v.number : static_cast<double>(v.integer);
  }

  static nb::object big_integer(const std::string& bytes) {
    const nb::object type = nb::module_::import_("builtins").attr("int");
    return type.attr("from_bytes")(nb::bytes(bytes.data(), bytes.size()), "little", "signed"_a = true);
  }

  nb::object global(const PickleValue& v, const std::string& path) const {
    if (v.text.starts_with("torch."))
      for (int d = 0; d < kNumDTypes; ++d)
        if (v.text.substr(6) == dtype_name(static_cast<DType>(d))) return dtype_object(static_cast<DType>(d));
    refuse(v, path);
  }

  nb::object list(const PickleValue& v, const std::string& path, int depth) {
    nb::list made;
    made_[&v] = made;  // before its items: a list may contain itself
    for (size_t i = 0; i < v.items.size(); ++i) made.append(convert(*v.items[i], join(path, i), depth + 1));
    return made;
  }

  nb::object dict(const PickleValue& v, const std::string& path, int depth) {
    nb::dict made;
    made_[&v] = made;
    for (size_t i = 0; i + 1 < v.items.size(); i += 2) {
      const PickleValue& key = *v.items[i];
      const nb::object name = convert(key, path, depth + 1);
      if (PyObject_Hash(name.ptr()) == -1) {
        PyErr_Clear();
        file_.file().refuse("it has a dict whose key cannot be one: " + describe(key));
      }
      made[name] =
          convert(*v.items[i + 1], key.is(PickleKind::Text) ? join(path, key.text) : join(path, i / 2), depth + 1);
    }
    return made;
  }

  nb::object tuple_or_set(const PickleValue& v, const std::string& path, int depth) {
    made_[&v] = nb::object();  // it cannot contain itself
    nb::list items;
    for (size_t i = 0; i < v.items.size(); ++i) items.append(convert(*v.items[i], join(path, i), depth + 1));
    PyObject* made = v.is(PickleKind::Tuple) ? PySequence_Tuple(items.ptr()) : PySet_New(items.ptr());
    if (made == nullptr) {
      PyErr_Clear();
      file_.file().refuse("it has a set with something that cannot be in one");
    }
    return made_[&v] = nb::steal(made);
  }

  template <class Key>
  static std::string join(const std::string& path, const Key& key) {
    return path.empty() ? fmt::format("{}", key) : fmt::format("{}.{}", path, key);
  }

  const TorchFile& file_;
  nb::callable place_, parameter_;
  std::map<std::pair<size_t, std::string>, nb::object> storages_;
  std::unordered_map<const PickleValue*, nb::object> made_;
};

nb::object read_torch_file(const std::string& path, nb::callable place, nb::callable parameter) {
  std::optional<TorchFile> file;
  {
    Unlocked u;
    file.emplace("load", path);
  }
  TorchObjects objects(*file, std::move(place), std::move(parameter));
  if (!file->is_script()) return objects.convert(file->root(), "");
  // The weights of a TorchScript archive, as its state dict would be.
  nb::dict weights;
  for (const NamedTorchTensor& t : torch_contents(*file).tensors)
    weights[text_object(t.name)] = objects.tensor(t.tensor, t.name).attr("detach")();
  return weights;
}

// Reads tensors of a GGUF file to a device, or, if it is mapped and the device's memory is the host's, refers to the
// bytes in the file. For the null device nothing is read.
class GgufTensors {
 public:
  GgufTensors(const gguf::Reader& file, DeviceOpt where, bool mapped)
      : file_(file), where_(where), type_(empty({}, DType::uint8, where).device().type) {
    if (mapped && type_ != DeviceType::null) map_ = file.map();
  }

  // Values that need no conversion are read into the tensor's own memory, if that is the host's.
  Tensor values(const gguf::Entry& e) const {
    if (e.type->dtype != nullptr) return as_they_are(e, e.shape, e.dtype());
    if (type_ == DeviceType::null) return empty(e.shape, e.dtype(), where_);
    return from_host(file_.read(e).get(), e.shape, e.dtype(), where_);
  }

  // uint8 [.., rows, bytes of a row].
  Tensor blocks(const gguf::Entry& e) const {
    Dims shape = e.shape;
    shape.back() = shape.back() / e.type->elements * e.type->bytes;
    return as_they_are(e, shape, DType::uint8);
  }

 private:
  Tensor as_they_are(const gguf::Entry& e, const Dims& shape, DType dtype) const {
    if (type_ == DeviceType::null || e.bytes == 0) return empty(shape, dtype, where_);
    if (map_ && has_own_memory(type_)) return from_host(map_.get() + e.begin, shape, dtype, where_);
    if (map_ && e.begin % static_cast<uint64_t>(dtype_size(dtype)) == 0) return in_the_file(e, shape, dtype);
    if (has_own_memory(type_)) return from_host(file_.read(e).get(), shape, dtype, where_);
    const Tensor t = empty(shape, dtype, where_);
    file_.read_blocks(e, t.mutable_data());
    return t;
  }

  Tensor in_the_file(const gguf::Entry& e, const Dims& shape, DType dtype) const {
    Ref<Storage> s = make_ref<Storage>(Device{}, static_cast<size_t>(e.bytes));
    s->set_data(map_.get() + e.begin, [map = map_] {});
    s->foreign = true;
    return Tensor(std::move(s), shape, contiguous_strides(shape), 0, dtype);
  }

  const gguf::Reader& file_;
  DeviceOpt where_;
  DeviceType type_;
  std::shared_ptr<char> map_;
};

// (dict of tensors, dict of metadata)
// With `packed`, matrices and stacks of matrices of types that quantized_linear takes stay blocks: (uint8 tensor [.., rows, bytes of a row], name of the
// type, columns). With `mapped`, tensors in the host's memory refer to the file where they can; it must not become shorter while they live, and
// writes to them do not change it.
nb::object read_gguf(const std::string& path, DeviceArg device, bool packed, bool mapped) {
  const DeviceOpt where = device;
  NamedTensors tensors;
  std::map<std::string, const gguf::Entry*> blocks;
  std::optional<gguf::Reader> file;
  {
    Unlocked u;
    file.emplace("load", path);
    const GgufTensors read(*file, where, mapped);
    for (const gguf::Entry& e : file->entries()) {
      const bool stays =
          packed && (e.shape.size() == 2 || e.shape.size() == 3) && e.shape.numel() > 0 && tile_form(*e.type);
      if (stays) blocks[e.name] = &e;
      tensors.emplace_back(e.name, stays ? read.blocks(e) : read.values(e));
    }
  }
  nb::dict named;
  for (auto& [name, t] : tensors) {
    const auto found = blocks.find(name);
    if (found == blocks.end()) named[text_object(name)] = nb::cast(t);
    else
      named[text_object(name)] = nb::make_tuple(t, std::string(found->second->type->name), found->second->shape.back());
  }
  return nb::make_tuple(named, python_of(file->metadata()));
}

}  // namespace

void bind_model_files(nb::module_& m) {
  m.def(
      "kind_of_file",
      [](const std::string& path) -> std::string {
        Unlocked u;
        const InputFile file("load", path);
        if (gguf::Reader::is_one(file)) return "gguf";
        if (TorchFile::is_one(file)) return "torch";
        const std::string head = file.read_text(std::min<uint64_t>(file.size(), 6), 0, "the beginning");
        if (head == "\x93NUMPY") return "npy";
        return head.starts_with("PK\x03\x04") ? "npz" : "safetensors";
      },
      "path"_a,
      "What a file is, by its first bytes: gguf, torch, npy, npz, and safetensors for everything else. "
      "OSError for a file that cannot be read, or a folder.");
  m.def(
      "read_torch_file", &read_torch_file, "path"_a, "place"_a, "parameter"_a,
      "Reads a file of torch.save or a TorchScript archive's weights. Nothing in it is executed. OSError, ValueError.");
  // pf.load_gguf is the public function.
  m.def("_read_gguf", &read_gguf, "path"_a, "device"_a.none() = nb::none(), "packed"_a = false, "mapped"_a = false);
}

}  // namespace pyflame::python
