#include "pyflame/ops/recurrent.h"

#include <array>

#include "pyflame/backends/backend.h"
#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

template <size_t n>
std::array<Tensor, n> gates_of(const Tensor& z) {
  const int64_t size = z.size(1) / static_cast<int64_t>(n);
  std::array<Tensor, n> out;
  for (size_t i = 0; i < n; ++i) out[i] = narrow(z, 1, static_cast<int64_t>(i) * size, size);
  return out;
}

Tensor one_minus(const Tensor& x) { return sub(1.0, x); }
Tensor slope_of_sigmoid(const Tensor& s) { return mul(s, one_minus(s)); }
Tensor slope_of_tanh(const Tensor& t) { return one_minus(mul(t, t)); }

constexpr const char* kOp = "recurrent";

// The case of these operands, whose sizes must fit: the layers have checked what users gave.
RecurrentCase case_of(RecurrentMode mode, bool bidirectional, bool biases, bool kept, const Tensor& x,
                      const Tensors& states, const Tensors& weights) {
  const size_t each = biases ? 4 : 2, directions = bidirectional ? 2 : 1;
  PF_CHECK(x.dim() == 3 && states.size() == (mode == RecurrentMode::Lstm ? 2u : 1u) && !weights.empty() &&
               weights.size() % (each * directions) == 0,
           Value, "{}: the operands do not fit; got x {}, {} states and {} weights", kOp, x.shape().str(),
           states.size(), weights.size());
  RecurrentCase c;
  c.attrs = {static_cast<int64_t>(mode),
             weights[1].size(1),
             static_cast<int64_t>(weights.size() / (each * directions)),
             static_cast<int64_t>(directions),
             biases,
             kept,
             any_order(x.device()),
             x.dtype() == DType::float32 && float32_matmul_precision() != MatmulPrecision::highest};
  c.dtype = x.dtype(), c.steps = x.size(0), c.batch = x.size(1), c.inputs = x.size(2);
  const int64_t h = c.attrs.hidden, gates = mode == RecurrentMode::Lstm ? 4 : mode == RecurrentMode::Gru ? 3 : 1;
  for (const Tensor& s : states) {
    check_same_dtype(kOp, x, s);
    PF_CHECK(s.shape() == (Dims{c.attrs.layers * c.attrs.directions, c.batch, h}), Value,
             "{}: a state does not fit; got {}; expected {}", kOp, s.shape().str(),
             (Dims{c.attrs.layers * c.attrs.directions, c.batch, h}).str());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    check_same_dtype(kOp, x, weights[i]);
    const int64_t inputs = i < each * directions ? c.inputs : h * c.attrs.directions;
    const Dims expected = i % each >= 2 ? Dims{gates * h} : Dims{gates * h, i % each == 0 ? inputs : h};
    PF_CHECK(weights[i].shape() == expected, Value, "{}: weight {} does not fit; got {}; expected {}", kOp, i,
             weights[i].shape().str(), expected.str());
  }
  return c;
}

// Arguments do not keep tensors alive, so all of them are in one place.
Tensors contiguous_of(std::initializer_list<const Tensors*> lists) {
  Tensors all;
  for (const Tensors* list : lists)
    for (const Tensor& t : *list) all.push_back(contiguous(t));
  return all;
}
OutSpec as(const Dims& shape, DType dtype) { return {shape, dtype, contiguous_strides(shape)}; }

}  // namespace

Tensors lstm_step(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight) {
  const Tensor z = add(matmul(h, weight), x);
  const auto [i, f, g, o] = gates_of<4>(z);
  const Tensor new_c = add(mul(sigmoid(f), c), mul(sigmoid(i), tanh(g)));
  return {mul(sigmoid(o), tanh(new_c)), new_c, z};
}

Tensor lstm_step_grad(const Tensor& gates, const Tensor& c, const Tensor& new_c, const Tensor& dh, const Tensor& dc,
                      const Tensor& into) {
  const auto [zi, zf, zg, zo] = gates_of<4>(gates);
  const Tensor i = sigmoid(zi), f = sigmoid(zf), g = tanh(zg), o = sigmoid(zo), t = tanh(new_c);
  const Tensor all = add(dc, mul(mul(dh, o), slope_of_tanh(t)));
  const auto [to_i, to_f, to_g, to_o] = gates_of<4>(into);
  copy_(to_i, mul(mul(all, g), slope_of_sigmoid(i)));
  copy_(to_f, mul(mul(all, c), slope_of_sigmoid(f)));
  copy_(to_g, mul(mul(all, i), slope_of_tanh(g)));
  copy_(to_o, mul(mul(dh, t), slope_of_sigmoid(o)));
  return mul(all, f);
}

Tensors gru_step(const Tensor& x, const Tensor& h, const Tensor& weight, const Tensor& bias) {
  const Tensor product = matmul(h, weight), own = bias ? add(product, bias) : product;
  const auto [xr, xz, xn] = gates_of<3>(x);
  const auto [hr, hz, hn] = gates_of<3>(own);
  const Tensor n = tanh(add(xn, mul(sigmoid(add(xr, hr)), hn)));
  return {add(n, mul(sigmoid(add(xz, hz)), sub(h, n))), own};
}

Tensor gru_step_grad(const Tensor& h, const Tensor& x, const Tensor& own, const Tensor& dh, const Tensor& into_x,
                     const Tensor& into_own) {
  const auto [xr, xz, xn] = gates_of<3>(x);
  const auto [hr, hz, hn] = gates_of<3>(own);
  const Tensor r = sigmoid(add(xr, hr)), z = sigmoid(add(xz, hz)), n = tanh(add(xn, mul(r, hn)));
  const Tensor dn = mul(mul(dh, one_minus(z)), slope_of_tanh(n));
  const Tensor dr = mul(mul(dn, hn), slope_of_sigmoid(r)), dz = mul(mul(dh, sub(h, n)), slope_of_sigmoid(z));
  for (const auto& [into, last] : {std::pair{into_x, dn}, std::pair{into_own, mul(dn, r)}}) {
    const auto [to_r, to_z, to_n] = gates_of<3>(into);
    copy_(to_r, dr);
    copy_(to_z, dz);
    copy_(to_n, last);
  }
  return mul(dh, z);
}

std::optional<Tensors> recurrent(RecurrentMode mode, bool bidirectional, bool biases, bool kept, const Tensor& x,
                                 const Tensors& states, const Tensors& weights, std::string* why) {
  const RecurrentCase c = case_of(mode, bidirectional, biases, kept, x, states, weights);
  const std::optional<int64_t> bytes = find_backend(x.device().type)->recurrent_bytes(x.device().index, c, why);
  if (!bytes) return std::nullopt;
  const Tensors in = contiguous_of({&states, &weights});
  const Tensor first = contiguous(x);
  std::vector<Arg> args{first};
  args.insert(args.end(), in.begin(), in.end());
  std::vector<OutSpec> outs{as({c.steps, c.batch, c.attrs.directions * c.attrs.hidden}, c.dtype)};
  for (const Tensor& s : states) outs.push_back(as(s.shape(), c.dtype));
  outs.push_back(as({*bytes}, DType::uint8));
  return emit_many(OpId::recurrent, args, outs, c.attrs);
}

Tensors recurrent_grad(RecurrentMode mode, bool bidirectional, bool biases, const Tensors& grads, const Tensor& x,
                       const Tensor& y, const Tensors& states, const Tensor& kept, const Tensors& weights) {
  const RecurrentCase c = case_of(mode, bidirectional, biases, true, x, states, weights);
  const Tensors both{x, y}, last{kept};
  const Tensors in = contiguous_of({&grads, &both, &states, &last, &weights});
  const std::vector<Arg> args(in.begin(), in.end());
  std::vector<OutSpec> outs{as(x.shape(), c.dtype)};
  for (const Tensor& s : states) outs.push_back(as(s.shape(), c.dtype));
  for (const Tensor& w : weights) outs.push_back(as(w.shape(), c.dtype));
  return emit_many(OpId::recurrent_grad, args, outs, c.attrs);
}

}  // namespace pyflame
