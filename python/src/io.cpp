// Files: bindings of io/safetensors.h and io/atomic_file.h. pyflame/io.py handles the nested structure around the
// tensors.
#include <nanobind/stl/map.h>

#include "casters.h"
#include "pyflame/io/atomic_file.h"
#include "pyflame/io/safetensors.h"

namespace pyflame::python {

void bind_io(nb::module_& m) {
  m.def(
      "save_safetensors",
      [](const std::string& path, nb::dict tensors, const Metadata& metadata) {
        NamedTensors named;
        for (auto [k, v] : tensors) {
          const Tensor* t = as_tensor(v);
          PF_CHECK(t && PyUnicode_Check(k.ptr()), Type, "save_safetensors: not a tensor under a name; got {}: {}",
                   short_repr(k), kind_name(v));
          named.emplace_back(nb::cast<std::string>(k), *t);
        }
        Unlocked u;
        save_safetensors(path, named, metadata);
      },
      "path"_a, "tensors"_a, "metadata"_a = Metadata{},
      "Writes a dict of tensors in the safetensors layout, atomically: the new file is there as a whole, or the old "
      "one as it was. "
      "TypeError for values that are no tensors and for names that are no strings. OSError where the file cannot be "
      "written.");
  m.def(
      "load_safetensors",
      [](const std::string& path, DeviceArg device) {
        const DeviceOpt where = device;
        SafetensorsFile f;
        {
          Unlocked u;
          f = load_safetensors(path, where);
        }
        nb::dict tensors;
        for (auto& [k, t] : f.tensors) tensors[nb::str(k.c_str(), k.size())] = nb::cast(t);
        return nb::make_tuple(tensors, f.metadata);
      },
      "path"_a, "device"_a.none() = nb::none(),
      "Reads a safetensors file: (dict of tensors, dict of metadata). OSError, or ValueError for an invalid file.");
  m.def(
      "write_file_atomically",
      [](const std::string& path, nb::bytes data) {
        const std::string_view view(data.c_str(), data.size());
        Unlocked u;
        write_file_atomically("save", path, view);
      },
      "path"_a, "data"_a,
      "Writes bytes to a file as a whole: it has the old contents until all of the new ones are written. OSError when "
      "it cannot be written.");
}

}  // namespace pyflame::python
