// Kernels of the user's, and ops of extensions. pyflame/_kernels.py and pyflame/utils/cpp_extension.py check the arguments.
#include "casters.h"
#include "pyflame/backends/plugin_call.h"
#include "pyflame/ops/user_kernel.h"
#include "pyflame/tensor/layout.h"

namespace pyflame::python {

namespace {

// The shapes and dtypes of an op's outputs.
std::vector<std::pair<std::vector<int64_t>, DType>> extension_results(const std::string& name, uintptr_t results,
                                                                      uintptr_t context,
                                                                      const std::vector<Tensor>& inputs,
                                                                      const std::vector<Scalar>& scalars,
                                                                      size_t count) {
  std::vector<pyflame_plugin_tensor> described;
  std::vector<Dims> strides;
  strides.reserve(inputs.size());
  for (const Tensor& t : inputs) {
    strides.push_back(contiguous_strides(t.shape()));
    described.push_back(described_tensor(t.dtype(), Device{}, t.shape(), strides.back(), nullptr));
  }
  std::vector<Scalar> numbers = scalars;
  for (Scalar& s : numbers) {
    const bool real = s.kind == Category::Float;
    pyflame_plugin_tensor number{};
    number.device_type = PYFLAME_PLUGIN_NUMBER, number.lanes = 1, number.bits = 64, number.type_code = real ? 2 : 0;
    number.data = real ? static_cast<void*>(&s.f) : &s.i;
    described.push_back(number);
  }
  std::array<char, 256> why{};
  std::vector<pyflame_plugin_result> found(count);
  pyflame_plugin_call call{};
  call.version = PYFLAME_PLUGIN_VERSION, call.asks = 1;
  call.op = name.c_str(), call.attributes = "";
  call.input_count = static_cast<int32_t>(described.size()), call.inputs = described.data();
  call.why = why.data(), call.why_size = why.size(), call.context = reinterpret_cast<void*>(context);
  const auto function = reinterpret_cast<int (*)(pyflame_plugin_call*, pyflame_plugin_result*)>(results);
  PF_CHECK(function(&call, found.data()) == 0, Value, "{}: the extension refuses the arguments: {}", name, why.data());
  static_assert(PYFLAME_PLUGIN_MAX_RANK == kMaxDims);
  std::vector<std::pair<std::vector<int64_t>, DType>> outs;
  for (const pyflame_plugin_result& r : found) {
    outs.emplace_back(std::vector<int64_t>(r.shape, r.shape + r.rank), described_dtype(r.type_code, r.bits));
    for (const int64_t size : outs.back().first)
      PF_CHECK(size >= 0, Value, "{}: the extension gives a result a negative size; got {}; expected 0 or more", name,
               size);
  }
  return outs;
}

}  // namespace

void bind_kernels(nb::module_& m) {
  m.def(
      "_register_kernel",
      [](std::string name, std::string header, std::string body, std::vector<std::string> inputs,
         std::vector<std::string> outputs, std::vector<std::string> scalars, std::vector<DType> scalar_types,
         unsigned threads) {
        UserKernel k;
        k.name = std::move(name), k.header = std::move(header), k.body = std::move(body);
        k.inputs = std::move(inputs), k.outputs = std::move(outputs), k.scalars = std::move(scalars);
        k.scalar_types = std::move(scalar_types), k.threads = threads;
        return register_user_kernel(std::move(k));
      },
      "name"_a, "header"_a, "body"_a, "inputs"_a, "outputs"_a, "scalars"_a, "scalar_types"_a, "threads"_a);
  m.def(
      "_register_extension_op",
      [](std::string name, std::string library, std::vector<std::string> inputs, std::vector<std::string> outputs,
         std::vector<std::string> scalars, std::vector<DType> scalar_types, uintptr_t function, uintptr_t context) {
        UserKernel k;
        k.name = std::move(name), k.library = std::move(library);
        k.inputs = std::move(inputs), k.outputs = std::move(outputs), k.scalars = std::move(scalars);
        k.scalar_types = std::move(scalar_types);
        k.function = reinterpret_cast<pyflame_plugin_function>(function), k.context = reinterpret_cast<void*>(context);
        return register_user_kernel(std::move(k));
      },
      "name"_a, "library"_a, "inputs"_a, "outputs"_a, "scalars"_a, "scalar_types"_a, "function"_a, "context"_a);
  m.def("_extension_results", extension_results, "name"_a, "results"_a, "context"_a, "inputs"_a, "scalars"_a,
        "count"_a);
  m.def(
      "_launch_kernel",
      [](int64_t number, const std::vector<Tensor>& inputs, const std::vector<Scalar>& scalars,
         const std::vector<DimsArg>& shapes, const std::vector<DType>& dtypes, int64_t x, int64_t y, int64_t z,
         int64_t shared, const std::vector<Tensor>& into) {
        std::vector<OutSpec> outs;
        for (size_t i = 0; i < shapes.size(); ++i)
          outs.push_back({shapes[i], dtypes[i], contiguous_strides(shapes[i])});
        return launch_user_kernel(number, inputs, scalars, outs, {x, y, z}, shared, into);
      },
      "number"_a, "inputs"_a, "scalars"_a, "shapes"_a, "dtypes"_a, "x"_a, "y"_a, "z"_a, "shared"_a, "into"_a);
}

}  // namespace pyflame::python
