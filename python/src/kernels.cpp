// Kernels of the user's. pyflame/_kernels.py checks the arguments and makes pf.kernel of these.
#include "casters.h"
#include "pyflame/ops/user_kernel.h"
#include "pyflame/tensor/layout.h"

namespace pyflame::python {

void bind_kernels(nb::module_& m) {
  m.def(
      "_register_kernel",
      [](std::string name, std::string header, std::string body, std::vector<std::string> inputs,
         std::vector<std::string> outputs, std::vector<std::string> scalars, std::vector<DType> scalar_types,
         unsigned threads) {
        return register_user_kernel({std::move(name), std::move(header), std::move(body), std::move(inputs), std::move(outputs),
                                     std::move(scalars), std::move(scalar_types), threads});
      },
      "name"_a, "header"_a, "body"_a, "inputs"_a, "outputs"_a, "scalars"_a, "scalar_types"_a, "threads"_a);
  m.def(
      "_launch_kernel",
      [](int64_t number, const std::vector<Tensor>& inputs, const std::vector<Scalar>& scalars,
         const std::vector<DimsArg>& shapes, const std::vector<DType>& dtypes, int64_t x, int64_t y, int64_t z, int64_t shared,
         const std::vector<Tensor>& into) {
        std::vector<OutSpec> outs;
        for (size_t i = 0; i < shapes.size(); ++i)
          outs.push_back({shapes[i], dtypes[i], contiguous_strides(shapes[i])});
        return launch_user_kernel(number, inputs, scalars, outs, {x, y, z}, shared, into);
      },
      "number"_a, "inputs"_a, "scalars"_a, "shapes"_a, "dtypes"_a, "x"_a, "y"_a, "z"_a, "shared"_a, "into"_a);
}

}  // namespace pyflame::python
