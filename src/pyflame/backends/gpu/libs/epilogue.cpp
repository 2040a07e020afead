// Matches the nodes of a group with the epilogues of the libraries.
#include "pyflame/backends/gpu/libs/epilogue.h"

#include "pyflame/backends/gpu/libs/vendor.h"

namespace pyflame::gpu {

namespace {

// Reads the nodes after the product one by one, as long as the library can compute them in its fixed order: sums, then
// an activation.
class Reader {
 public:
  Reader(const Problem& p, std::string* why)
      : p_(p), c_(p.root().outs[0]), numbers_(vendor(p.graph.device.type).blas), why_(why) {
    e_.out = c_.binding;
  }

  std::optional<Epilogue> read() {
    for (size_t i = 1; i < p_.size(); ++i)
      if (const char* no = take(i)) {
        *why_ = fmt::format("{}: {}", op_name(p_.node(i).op), no);
        return std::nullopt;
      }
    return e_;
  }

 private:
  // Whether the operand is a matrix with the same offsets from its first element as the product.
  bool has_layout_of_product(const Operand& o) const {
    return !o.is_param && o.dtype == c_.dtype && o.numel() == c_.numel() &&
           broadcast_strides(o.shape, o.strides, c_.shape) == broadcast_strides(c_.shape, c_.strides, c_.shape);
  }
  bool is_bias(const Operand& o) const {
    const int r = o.shape.size();
    if (o.is_param || o.dtype != c_.dtype || r < 1 || o.numel() != c_.shape.back() || o.shape[r - 1] != o.numel())
      return false;
    return o.numel() == 1 || o.strides[r - 1] == 1;
  }
  bool reads(const Operand& o) const { return !o.is_param && o.binding == e_.out; }

  const char* take(size_t i) {
    const Node& n = p_.node(i);
    if (n.op == OpId::sum) return sum(n);
    if (last_) return "comes after what the library does last";
    if (n.outs.size() != 1 || !has_layout_of_product(n.outs[0])) return "the result does not lie as the product does";
    const bool kept = !p_.group.elided[e_.out];
    if (kept && n.op != OpId::gelu_tanh) return "what comes before it must be kept as well";
    const char* no = n.op == OpId::add ? add(n) : activation(n, kept);
    if (!no) e_.out = n.outs[0].binding;
    return no;
  }
  // The libraries have one pointer for a bias and for the sum of an operand, and their first operand is our second one.
  const char* sum(const Node& n) {
    if (e_.number != kBlasEpilogueNone) return "the library adds up an operand or computes with the result, not both";
    e_.number = p_.group.summed == 0 ? kBlasEpilogueSumB : kBlasEpilogueSumA;
    e_.sum = n.outs[0].binding;
    return nullptr;
  }
  const char* add(const Node& n) {
    if (reads(n.ins[0]) == reads(n.ins[1])) return "not a sum with something else";
    const Operand& other = n.ins[reads(n.ins[0]) ? 1 : 0];
    if (!e_.bias.valid() && !e_.sum.valid() && is_bias(other)) {
      e_.number = kBlasEpilogueBias;
      e_.bias = other.binding;
    } else if (!e_.added.valid() && has_layout_of_product(other)) {
      e_.added = other.binding;
    } else {
      return "neither a bias of one number for each column nor a matrix that lies as the product does";
    }
    return nullptr;
  }
  const char* activation(const Node& n, bool kept) {
    last_ = true;
    if (e_.sum.valid()) return "the library adds up an operand or computes with the result, not both";
    if (n.op == OpId::relu) {
      if (!numbers_.relu_keeps_nan) return "the library's makes zero of a NaN";
      e_.number = (e_.number & kBlasEpilogueBias) | kBlasEpilogueRelu;
      return nullptr;
    }
    // Libraries compute tanh with less precision than float32, and have gradients for 16-bit types only.
    if (dtype_size(c_.dtype) != 2) return "the library's is for 16-bit floats";
    if (n.op == OpId::silu && numbers_.has_silu) {
      e_.number = (e_.number & kBlasEpilogueBias) | kBlasEpilogueSilu;
      return nullptr;
    }
    const int64_t row = c_.strides[c_.shape.size() - 2];
    const bool whole = c_.shape.back() % kBlasArgumentPitch == 0 && row % kBlasArgumentPitch == 0;
    if (n.op == OpId::gelu_tanh && (!kept || whole)) {
      e_.number = (e_.number & kBlasEpilogueBias) | kBlasEpilogueGeluTanh | (kept ? kBlasEpilogueKeeps : 0);
      if (kept) e_.argument = e_.out;
      return nullptr;
    }
    if (n.op == OpId::gelu_tanh_grad && !e_.bias.valid() && !e_.added.valid() && whole && reads(n.ins[0]) &&
        !reads(n.ins[1]) && has_layout_of_product(n.ins[1])) {
      e_.number = kBlasEpilogueGeluTanhGrad;
      e_.argument = n.ins[1].binding;
      return nullptr;
    }
    return "the library has no such epilogue";
  }

  const Problem& p_;
  const Operand& c_;
  const BlasNumbers& numbers_;
  std::string* why_;
  Epilogue e_;
  bool last_ = false;
};

}  // namespace

std::optional<Epilogue> epilogue_of(const Problem& p, std::string* why) { return Reader(p, why).read(); }

}  // namespace pyflame::gpu
