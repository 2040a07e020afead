// user_kernel: kernels of the user's, from source text in the dialect of kernels/device.
#include "pyflame/ops/user_kernel.h"

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/plugin_call.h"
#include "pyflame/kernels/device/view.h"

namespace pyflame::gpu {

namespace {

const char* scalar_type(DType d) {
  if (d == DType::bool_) return "bool";
  return stored_type(d);
}

pf::View view_of(const Operand& o) {
  pf::View v;
  v.rank = static_cast<int>(o.shape.size());
  for (int i = 0; i < v.rank; ++i) v.shape[i] = o.shape[i], v.strides[i] = o.strides[i];
  return v;
}

// Names of <cmath> that compilers at run time lack. PF_TENSOR says which elements the kernel may access, to a compiler that checks accesses.
const std::string kNames =
    "#ifndef PF_TENSOR\n#define PF_TENSOR(name, size)\n#endif\n"
    "#ifndef INFINITY\n#define INFINITY pf::float_of_bits(0x7f800000u)\n#endif\n"
    "#ifndef NAN\n#define NAN pf::float_of_bits(0x7fc00000u)\n#endif\n";

class UserKernelRun final : public Executable {
 public:
  explicit UserKernelRun(const Problem& p)
      : node_(p.root()), attrs_(node_.attr<UserKernelAttrs>()), spec_(user_kernel(attrs_.kernel)) {
    std::string parameters, before;
    const auto add = [&](const std::string& text) { parameters += (parameters.empty() ? "" : ", ") + text; };
    const auto tensor = [&](const std::string& name, const Operand& o, const char* constant) {
      if (mentions(name + "_t")) before += fmt::format("using {}_t = {};\n", name, stored_type(o.dtype));
      add(fmt::format("{}{}* __restrict__ {}", constant, stored_type(o.dtype), name));
      add(fmt::format("const pf::i64 {}_size", name));
      before += fmt::format("PF_TENSOR({0}, {0}_size)\n", name);
      shaped_.push_back(mentions(name + "_shape") || mentions(name + "_rank"));
      if (!shaped_.back()) return;
      add(fmt::format("pf::View {}_view", name));
      before +=
          fmt::format("const pf::i64* const {0}_shape = {0}_view.shape;\nconst int {0}_rank = {0}_view.rank;\n", name);
    };
    for (size_t i = 0; i < spec_.inputs.size(); ++i) tensor(spec_.inputs[i], node_.ins[i], "const ");
    for (size_t i = 0; i < spec_.outputs.size(); ++i) tensor(spec_.outputs[i], node_.outs[i], "");
    for (size_t i = 0; i < spec_.scalars.size(); ++i)
      add(fmt::format("{} {}", scalar_type(spec_.scalar_types[i]), spec_.scalars[i]));
    // The lines of messages are those of the user's text.
    const auto from_user = [&](const std::string& text, const char* which) {
      return text.empty() ? text : fmt::format("#line 1 \"{}{}\"\n{}\n", spec_.name, which, text);
    };
    kernel_.emplace(p.graph.device.type, spec_.threads,
                    kernel_source({}, spec_.threads,
                                  fmt::format("({}) {{\n{}{}}}\n", parameters, before, from_user(spec_.body, "")),
                                  kNames + from_user(spec_.header, " (header)"), spec_.name, Start::after),
                    static_cast<unsigned>(attrs_.shared));
  }

  void run(const RunContext& ctx) override {
    if (attrs_.x == 0 || attrs_.y == 0 || attrs_.z == 0) return;
    std::vector<uint64_t> numbers(spec_.scalars.size());  // 8 bytes for each scalar
    std::vector<void*> pointers;
    std::vector<void*> addresses(shaped_.size());
    std::vector<int64_t> counts(shaped_.size());
    std::vector<pf::View> views(shaped_.size());
    std::vector<uint32_t> sizes;
    const auto pass = [&](void* p, size_t bytes) {
      pointers.push_back(p), sizes.push_back(static_cast<uint32_t>(bytes));
    };
    for (size_t i = 0; i < shaped_.size(); ++i) {
      const Operand& o = i < spec_.inputs.size() ? node_.ins[i] : node_.outs[i - spec_.inputs.size()];
      addresses[i] = ctx.bindings[o.binding];
      pass(&addresses[i], sizeof(void*));
      counts[i] = o.shape.numel();
      pass(&counts[i], sizeof(int64_t));
      if (!shaped_[i]) continue;
      views[i] = view_of(o);
      pass(&views[i], sizeof(pf::View));
    }
    for (size_t i = 0; i < spec_.scalars.size(); ++i) {
      const Param& given = ctx.params[node_.ins[node_.ins.size() - spec_.scalars.size() + i].param];
      const auto put = [&](auto value) {
        std::memcpy(&numbers[i], &value, sizeof value);
        pass(&numbers[i], sizeof value);
      };
      switch (spec_.scalar_types[i]) {
        case DType::float64: put(given.as_f64()); break;
        case DType::float32: put(static_cast<float>(given.as_f64())); break;
        case DType::int64: put(given.as_i64()); break;
        case DType::int32: put(static_cast<int32_t>(given.as_i64())); break;
        default: put(given.as_i64() != 0); break;
      }
    }
    kernel_->run(ctx.device,
                 {static_cast<unsigned>(attrs_.x), static_cast<unsigned>(attrs_.y), static_cast<unsigned>(attrs_.z)},
                 pointers.data(), sizes);
  }

 private:
  bool mentions(const std::string& what) const { return spec_.body.find(what) != std::string::npos; }

  Node node_;
  UserKernelAttrs attrs_;
  const UserKernel& spec_;
  std::vector<bool> shaped_;  // of each tensor: whether the sizes of its dims are passed
  std::optional<Kernel> kernel_;
};

Refusal accept_text(const Problem& p) {
  return user_kernel(p.root().attr<UserKernelAttrs>().kernel).function ? Refusal("it is a compiled function")
                                                                       : std::nullopt;
}

}  // namespace

std::span<const Impl> user_kernel_impls(DeviceType) {
  static const Impl impls[] = {extension_impls()[0], {"gpu.user_kernel", accept_text, make_of<UserKernelRun>}};
  return impls;
}

}  // namespace pyflame::gpu
