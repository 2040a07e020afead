// Attention by a vendor's library. It gets only what its engines are fast at: 16-bit types, and no mask except the
// causal one with as many queries as keys.
#include "pyflame/backends/gpu/libs/sdpa.h"

#include <algorithm>

#include "pyflame/backends/gpu/libs/fallback.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kVector = 8;  // elements that make 16 bytes
constexpr int64_t kMostWidth = 256;
// For smaller problems our own kernels are as fast, and a plan for a new shape takes tens of milliseconds.
constexpr int64_t kLeastLength = 128;
constexpr double kLeastWork = 1 << 27;  // operations of the two products

size_t at(SdpaTensor t) { return static_cast<size_t>(t); }

// The op's tensors in the order of SdpaTensor.
std::array<const Operand*, kSdpaTensors> operands(const Node& n) {
  std::array<const Operand*, kSdpaTensors> all{};
  const bool gradient = n.op == OpId::attention_grad;
  for (size_t i = 0; i < 3; ++i) all[i] = &n.ins[gradient ? i + 1 : i];  // q, k, v
  all[at(SdpaTensor::out)] = gradient ? &n.ins[4] : &n.outs[0];
  all[at(SdpaTensor::lse)] = gradient ? &n.ins[5] : &n.outs[1];
  if (!gradient) return all;
  all[at(SdpaTensor::grad)] = &n.ins[0];
  for (size_t i = 0; i < 3; ++i) all[at(SdpaTensor::dq) + i] = &n.outs[i];
  return all;
}

SdpaProblem problem_of(const Problem& p, bool any_order) {
  const Node& n = p.root();
  const auto all = operands(n);
  SdpaProblem s;
  s.gradient = n.op == OpId::attention_grad;
  s.causal = n.attr<AttentionAttrs>().causal != 0;
  s.any_order = any_order;
  s.dtype = all[0]->dtype;
  s.queries = all[0]->shape, s.keys = all[1]->shape;
  for (size_t i = 0; i < kSdpaTensors; ++i) {
    if (!all[i]) continue;
    Dims& strides = s.strides[i] = all[i]->strides;
    // The stride of a dim of size one is arbitrary, but a library may check it.
    for (int d = strides.size() - 2; d >= 0; --d)
      if (all[i]->shape[d] == 1) strides[d] = strides[d + 1] * all[i]->shape[d + 1];
  }
  return s;
}

Refusal refuses_operands(const Node& n) {
  if (n.op != OpId::attention && n.op != OpId::attention_grad) return "libraries take sequences of one length";
  const auto all = operands(n);
  const Operand &q = *all[0], &k = *all[1];
  if (dtype_size(q.dtype) != 2) return "libraries take float16 and bfloat16";
  if (n.attr<AttentionAttrs>().has_mask) return "libraries take no mask but the causal one";
  if (q.numel() == 0 || k.numel() == 0) return "a tensor has no elements";
  if (q.shape[3] % kVector != 0 || q.shape[3] > kMostWidth)
    return fmt::format("libraries take heads of 8, 16, ..., {}", kMostWidth);
  if (q.shape[2] < kLeastLength || k.shape[2] < kLeastLength)
    return fmt::format("fewer than {} queries or keys", kLeastLength);
  if (4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.shape[2]) < kLeastWork) return "too little work";
  // If their numbers differ, the queries are the last ones of a length that is known only at run time.
  if (n.attr<AttentionAttrs>().causal && q.shape[2] != k.shape[2]) return "causal, and not as many queries as keys";
  for (size_t i = 0; i < kSdpaTensors; ++i) {
    if (!all[i] || i == at(SdpaTensor::lse)) continue;
    bool ok = all[i]->strides[3] == 1;
    for (int d = 0; d < 3; ++d)
      ok &= all[i]->shape[d] == 1 || (all[i]->strides[d] > 0 && all[i]->strides[d] % kVector == 0);
    if (!ok) return "rows of a tensor do not begin at multiples of 16 bytes";
  }
  return std::nullopt;
}

std::unique_ptr<SdpaPlan> plan_of(const Problem& p, bool any_order, std::string* why) {
  const DeviceType type = p.graph.device.type;
  return vendor(type).attention(device(type, p.graph.device.index), problem_of(p, any_order), why);
}

class Sdpa final : public Executable {
 public:
  Sdpa(const Problem& p, bool any_order, std::unique_ptr<Executable> own)
      : node_(p.root()),
        type_(p.graph.device.type),
        plan_(plan_of(p, any_order, nullptr)),
        own_(std::move(own)),
        repeats_(!any_order) {
    const bool gradient = node_.op == OpId::attention_grad;
    const size_t params = gradient ? 6 : 3;
    scale_ = node_.ins[params].param, length_ = node_.ins[params + 1].param;
    keys_ = operands(node_)[1]->shape[2];
  }
  size_t workspace() const override { return std::max(plan_->workspace(), own_->workspace()); }
  bool repeats() const override { return repeats_; }
  void run(const RunContext& ctx) override {
    std::array<void*, kSdpaTensors> tensors{};
    const auto all = operands(node_);
    bool ok = !failed_ && ctx.params[length_].as_i64() == keys_;
    for (size_t i = 0; i < kSdpaTensors; ++i) {
      if (!all[i]) continue;
      tensors[i] = ctx.bindings[all[i]->binding];
      ok &= reinterpret_cast<uintptr_t>(tensors[i]) % 16 == 0;
    }
    if (ok) {
      try {
        return plan_->run(device(type_, ctx.device), tensors, ctx.params[scale_].as_f64(), ctx.workspace);
      } catch (const Error& e) {
        fall_back(e);
        failed_ = true;
      }
    }
    own_->run(ctx);
  }

 private:
  Node node_;
  DeviceType type_;
  std::unique_ptr<SdpaPlan> plan_;
  std::unique_ptr<Executable> own_;
  ParamId scale_, length_;
  int64_t keys_;
  bool repeats_, failed_ = false;
};

}  // namespace

Refusal sdpa_refuses(const Problem& p, bool any_order) {
  if (!vendor(p.graph.device.type).attention) return "this device's libraries have no attention";
  if (any_order && !p.root().attr<AttentionAttrs>().any_order) return "deterministic algorithms are in use";
  if (Refusal no = refuses_operands(p.root())) return no;
  std::string why;
  if (!plan_of(p, any_order, &why)) return why;
  return std::nullopt;
}

std::unique_ptr<Executable> make_sdpa(const Problem& p, bool any_order, std::unique_ptr<Executable> own) {
  return std::make_unique<Sdpa>(p, any_order, std::move(own));
}

}  // namespace pyflame::gpu
