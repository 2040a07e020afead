#include "pyflame/ops/recurrent.h"

#include <array>

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

}  // namespace pyflame
