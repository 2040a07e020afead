// Files of torch.save, as zip archive or in the older format (pickles one after the other), and the weights of TorchScript archives. The
// structure is read as data (io/pickle.h): nothing is executed. What is not data, such as a whole module, stays an Object with its name,
// and the caller says so.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/io/input_file.h"
#include "pyflame/io/pickle.h"
#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

struct TorchStorage {
  std::string key;
  std::string dtype;     // PyTorch's name: "float32"; "uint8" for a storage without a type
  std::string location;  // where it was: "cpu", "cuda:0"
  uint64_t item_bytes = 0;
  uint64_t begin = 0, bytes = 0;  // in the file
};

struct TorchTensor {
  size_t storage = 0;
  std::string dtype;  // PyTorch's name
  uint64_t item_bytes = 0;
  Dims shape, strides;
  int64_t offset = 0;  // in elements
  bool requires_grad = false, is_parameter = false;
  bool conjugated = false, negated = false;  // the storage holds the conjugates, or the negated values
};

class TorchFile {
 public:
  // OSError; ValueError if it is no such file or is damaged.
  TorchFile(std::string op, const std::string& path);
  // By its first bytes.
  static bool is_one(const InputFile& file);

  const InputFile& file() const { return file_; }
  const PickleValue& root() const { return *root_; }
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  const std::vector<TorchStorage>& storages() const { return storages_; }
  bool is_script() const { return script_; }
  std::string_view format() const {
    return zip_ ? script_ ? "TorchScript archive" : "PyTorch zip archive" : "PyTorch file before 1.6";
  }

 private:
  class Rebuild;
  void read_archive();
  void read_legacy();
  void check_tensors() const;

  InputFile file_;
  Pickle pickle_;
  PickleValue* root_ = nullptr;
  std::vector<TorchTensor> tensors_;
  std::vector<TorchStorage> storages_;
  bool zip_ = false, script_ = false;
};

// The dtype of PyTorch's name; ValueError (with the file's name) if PyFlame has none of this kind.
DType torch_dtype(const InputFile& file, std::string_view name, const std::string& place = {});

// A complex number of Python: an Object of its class with two numbers.
bool is_complex_number(const PickleValue& value);

// The tensors in a structure by their path in it ("model.layer.weight"); a path that ends in an Object is reported to `foreign`, once each.
struct NamedTorchTensor {
  std::string name;
  size_t tensor = 0;
};
struct TorchContents {
  std::vector<NamedTorchTensor> tensors;
  std::map<std::string, std::string> foreign;  // path: description
};
// For TorchScript and for modules that were saved as a whole, the attributes are followed as in a state dict.
TorchContents torch_contents(const TorchFile& file);

}  // namespace pyflame
