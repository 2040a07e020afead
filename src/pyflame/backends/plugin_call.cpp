#include "pyflame/backends/plugin_call.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "pyflame/base/error.h"
#include "pyflame/ops/user_kernel.h"

namespace pyflame {

namespace {

struct DataType {
  uint8_t code, bits;
};
DataType data_type(DType d) {
  const auto bits = static_cast<uint8_t>(8 * dtype_size(d));
  if (d == DType::bool_) return {6, 8};
  if (d == DType::bfloat16) return {4, 16};
  if (is_complex(d)) return {5, bits};
  switch (d) {  // DLPack 1.1
    case DType::float8_e4m3fn: return {10, 8};
    case DType::float8_e4m3fnuz: return {11, 8};
    case DType::float8_e5m2: return {12, 8};
    case DType::float8_e5m2fnuz: return {13, 8};
    default: break;
  }
  if (is_float(d)) return {2, bits};
  return {static_cast<uint8_t>(d == DType::uint8 ? 1 : 0), bits};
}

// DLPack's number of the kind of device.
int32_t device_number(Device d) {
  const std::string name = d.str();
  if (name.starts_with("cuda")) return 2;
  if (name.starts_with("rocm")) return 10;
  PF_CHECK(name.starts_with("cpu"), Value,
           "plug-in: there are none for this device; got {}; expected cpu, cuda or rocm", name);
  return 1;
}

}  // namespace

pyflame_plugin_tensor described_tensor(DType dtype, Device device, const Dims& shape, const Dims& strides, void* data) {
  const DataType type = data_type(dtype);
  return {
      data, device_number(device), device.index, shape.size(), type.code, type.bits, 1, shape.begin(), strides.begin(),
      0};
}

DType described_dtype(uint8_t type_code, uint8_t bits) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const DataType type = data_type(static_cast<DType>(d));
    if (type.code == type_code && type.bits == bits) return static_cast<DType>(d);
  }
  PF_FAIL(Value,
          "plug-in: no dtype of PyFlame's; got DLPack's code {} with {} bits; expected one of docs/extensions.md",
          type_code, bits);
}

PluginCall::PluginCall(Target target, const Problem& p)
    : target_(std::move(target)), backend_(*find_backend(p.graph.device.type)) {
  const Node& n = p.root();
  operands_.assign(n.ins.begin(), n.ins.end());
  inputs_ = operands_.size();
  operands_.insert(operands_.end(), n.outs.begin(), n.outs.end());
  numbers_.resize(operands_.size());
  for (size_t i = 0; i < operands_.size();
       ++i) {  // the addresses of the copies, which stay where they are from here on
    const Operand& o = operands_[i];
    tensors_.push_back(described_tensor(o.dtype, p.graph.device, o.shape, o.strides, nullptr));
    if (o.is_param) tensors_[i].device_type = PYFLAME_PLUGIN_NUMBER, tensors_[i].rank = 0;
  }
}

Refusal PluginCall::ask() {
  pyflame_plugin_call call = described();
  call.asks = 1;
  if (target_.function(&call) != 0) return why_[0] ? why_.data() : "the plug-in refuses it";
  workspace_ = call.workspace_bytes;
  return std::nullopt;
}

void PluginCall::run(const RunContext& ctx) {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& o = operands_[i];
    if (!o.is_param) {
      tensors_[i].data = ctx.bindings[o.binding];
      continue;
    }
    const double f = ctx.param(o).as_f64();
    const int64_t n = ctx.param(o).as_i64();
    std::memcpy(numbers_[i].data(), is_float(o.dtype) ? static_cast<const void*>(&f) : &n, 8);
    tensors_[i].data = numbers_[i].data();
  }
  pyflame_plugin_call call = described();
  call.stream = backend_.stream(ctx.device);
  call.workspace = ctx.workspace, call.workspace_bytes = workspace_;
  const int status = target_.function(&call);
  PF_CHECK(status == 0, Runtime, "{}: the plug-in {} failed; got status {}{}{}; expected 0", target_.op, target_.entry,
           status, why_[0] ? ": " : "", why_.data());
}

pyflame_plugin_call PluginCall::described() {
  why_[0] = 0;
  pyflame_plugin_call call{};
  call.version = PYFLAME_PLUGIN_VERSION;
  call.op = target_.op.c_str(), call.attributes = target_.attributes.c_str();
  call.input_count = static_cast<int32_t>(inputs_);
  call.output_count = static_cast<int32_t>(operands_.size() - inputs_);
  call.inputs = tensors_.data(), call.outputs = tensors_.data() + inputs_;
  call.why = why_.data(), call.why_size = why_.size();
  call.context = target_.context;
  return call;
}

namespace {

const UserKernel& kernel_of(const Problem& p) { return user_kernel(p.root().attr<UserKernelAttrs>().kernel); }
Refusal accept_extension(const Problem& p) {
  return kernel_of(p).function ? Refusal() : "it is the text of a GPU kernel";
}
std::unique_ptr<Executable> make_extension(const Problem& p) {
  const UserKernel& k = kernel_of(p);
  return std::make_unique<PluginCall>(PluginCall::Target{k.function, k.context, k.library, k.name, ""}, p);
}

}  // namespace

std::span<const Impl> extension_impls() {
  static const Impl impl{"extension", accept_extension, make_extension};
  return {&impl, 1};
}

}  // namespace pyflame
