// The module pyflame._C. pyflame/__init__.py adds the parts that are written in Python.
#include "casters.h"
#include "distributed.h"
#include "memory.h"
#include "pyflame/base/env.h"
#include "pyflame/base/exit.h"
#include "pyflame/base/fallbacks.h"
#include "pyflame/base/packages.h"
#include "rewrites.h"

namespace {

// GPU libraries that pip installed are found where the interpreter looks for packages.
void hand_over_package_folders() {
  std::vector<std::string> folders;
  for (const nb::handle entry : nb::list(nb::module_::import_("sys").attr("path"))) {
    std::string folder;
    if (nb::try_cast(entry, folder) && folder.starts_with('/')) folders.push_back(std::move(folder));
  }
  pyflame::set_package_folders(std::move(folders));
}

// A compiler that works in the background must end before its library does. Ctrl-C ends the waiting.
void end_with_the_interpreter() {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    const pyflame::python::Unlocked waiting;
    pyflame::begin_exit([] {
      const pyflame::python::Locked held;
      const bool interrupted = PyErr_CheckSignals() != 0;
      if (interrupted) PyErr_Clear();
      return interrupted;
    });
    if (pyflame::env::debug() >= 1) fmt::print(stderr, "{}", pyflame::describe_fallbacks());
  }));
}

}  // namespace

NB_MODULE(_C, m) {
  using namespace pyflame::python;
  hand_over_package_folders();
  nanobind::set_leak_warnings(false);  // dtypes and code objects are kept forever on purpose
  m.doc() = "The core of PyFlame.";
  bind_types(m);
  bind_size(m);
  TensorClass tensor(
      m, "Tensor", nb::type_slots(tensor_slots()), nb::is_weak_referenceable(), nb::dynamic_attr(),
      "An n-dimensional array of one dtype on one device, with gradients. Made by pyflame.tensor() and its siblings. "
      "Tensor(*sizes) is of arbitrary contents, Tensor(data) of the default dtype; TypeError for what is neither, "
      "ValueError for negative sizes.");
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  bind_tensor(m, tensor);
  bind_convert(m, tensor);
  bind_indexing(tensor);
  bind_elementwise(m, tensor);
  bind_complex(m, tensor);
  bind_shape_ops(m, tensor);
  bind_reductions(m, tensor);
  bind_layers(m, tensor);
  bind_creation(m, tensor);
  bind_linalg(m);
  bind_kernels(m);
  bind_autograd(m, tensor);
  bind_runtime(m);
  bind_memory(m);
  bind_settings(m);
  bind_optimizers(m);
  bind_io(m);
  bind_model_files(m);
  bind_module_base(m);
  bind_profiler(m);
  bind_explain(m);
  bind_rewrites(m);
  bind_distributed(m);
  install_location_provider();
  explain_argument_errors(m, tensor);
  show_signatures(m, tensor);
  end_with_the_interpreter();
}
