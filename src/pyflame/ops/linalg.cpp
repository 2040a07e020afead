// Linear algebra: checks, shapes, and gradients, which are products and solutions of the same functions. X' is the conjugate transpose.
#include "pyflame/ops/linalg.h"

#include "pyflame/backends/backend.h"
#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"

namespace pyflame::linalg {

namespace {

Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }
Tensor adjoint_of(const Tensor& x) { return conj(transposed(x)); }
Tensor row(const Tensor& v) { return unsqueeze(v, -2); }
Tensor column(const Tensor& v) { return unsqueeze(v, -1); }

Dims batch_of(const Tensor& x, int dims = 2) {
  return Dims(std::span<const int64_t>(x.shape().begin(), x.shape().end() - dims));
}
Dims with(Dims batch, std::initializer_list<int64_t> sizes) {
  for (const int64_t n : sizes) batch.push_back(n);
  return batch;
}
Tensor expand_batch(const Tensor& x, const Dims& batch) {
  const Dims shape = with(batch, {x.size(-2), x.size(-1)});
  return shape == x.shape() ? x : expand(x, shape);
}

// Where a matrix of this shape has its diagonal, as bool [M, N].
Tensor on_diagonal(const Tensor& x) {
  return eq(column(arange(0, x.size(-2), 1, DType::int64, x.device())),
            arange(0, x.size(-1), 1, DType::int64, x.device()));
}
Tensor diagonal_of(const Tensor& x) { return sum(where(on_diagonal(x), x, 0.0), {-1}); }  // of a square matrix
Tensor with_diagonal(const Tensor& x, const Value& d) { return where(on_diagonal(x), d, x); }
// x with the real parts of numbers [.., N] on its diagonal.
Tensor with_real_diagonal(const Tensor& x, const Tensor& d) {
  return with_diagonal(x, column(is_complex(d.dtype()) ? cast(real(d), d.dtype()) : d));
}
Tensor identity(const Tensor& like, int64_t n) { return eye(n, n, like.dtype(), like.device()); }
// The lower triangle with half its diagonal, and the upper one its adjoint.
Tensor half_symmetric(const Tensor& x) { return mul(add(tril(x), adjoint_of(tril(x, -1))), 0.5); }

}  // namespace

void check_matrices(const char* op, const Tensor& x, bool square) {
  ops::check_defined(op, x);
  PF_CHECK(x.dim() >= 2, Value, "{}: The input tensor A must have at least 2 dimensions; got shape {}", op,
           x.shape().str());
  PF_CHECK(!square || x.size(-1) == x.size(-2), Value,
           "{}: A must be batches of square matrices, but they are {} by {} matrices; got shape {}", op, x.size(-2),
           x.size(-1), x.shape().str());
  const DType part = part_dtype(x.dtype());
  PF_CHECK(part == DType::float32 || part == DType::float64, NotImplemented,
           "{}: not implemented for this dtype; got {}; expected float32, float64, complex64 or complex128; hint: cast "
           "first",
           op, dtype_name(x.dtype()));
}

std::optional<std::pair<int64_t, int64_t>> first_failure(const Tensor& info) {
  const Tensor host = info.on_host();
  const auto* values = static_cast<const int32_t*>(host.data());
  for (int64_t i = 0; i < host.numel(); ++i)
    if (values[i] != 0) return std::pair<int64_t, int64_t>{i, values[i]};
  return {};
}

std::pair<Tensor, Tensor> cholesky(const Tensor& a) {
  check_matrices("linalg.cholesky", a, true);
  const Arg ins[] = {a};
  const OutSpec outs[] = {{a.shape(), a.dtype()}, {batch_of(a), DType::int32}};
  const Tensors r = emit_many(OpId::cholesky, ins, outs, NoAttrs{});
  attach("cholesky", {r[0]}, {a}, {r[0]}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor l = n.saved(0), lt = adjoint_of(l);
    const Tensor inner = half_symmetric(matmul(lt, g[0]));
    const Tensor left = triangular_solve(lt, inner, true, false);
    return {adjoint_of(triangular_solve(lt, adjoint_of(left), true, false))};
  });
  return {r[0], r[1]};
}

namespace {
Tensor triangular_op(const Tensor& a, const Tensor& b, bool upper, bool unit) {
  const Tensor x = emit(OpId::triangular_solve, {a, b}, b.shape(), b.dtype(), TriangularAttrs{upper, unit});
  attach("triangular_solve", {x}, {a, b}, {a, x}, [upper, unit](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor to_b = triangular_op(adjoint_of(n.saved(0)), g[0], !upper, unit);
    if (!n.needs(0)) return {Tensor(), to_b};
    const Tensor to_a = neg(matmul(to_b, adjoint_of(n.saved(1))));
    return {upper ? triu(to_a, unit) : tril(to_a, unit ? -1 : 0), to_b};
  });
  return x;
}
}  // namespace

Tensor triangular_solve(const Tensor& a, const Tensor& b, bool upper, bool unit) {
  check_matrices("linalg.solve_triangular", a, true);
  check_matrices("linalg.solve_triangular", b, false);
  check_same_device("linalg.solve_triangular", {a, b});
  check_same_dtype("linalg.solve_triangular", a, b);
  PF_CHECK(a.size(-1) == b.size(-2), Value,
           "linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = B ({}x{} and {}x{}); got {} "
           "and {}",
           a.size(-2), a.size(-1), b.size(-2), b.size(-1), a.shape().str(), b.shape().str());
  const Dims batch = broadcast_shapes("linalg.solve_triangular", batch_of(a), batch_of(b));
  return triangular_op(expand_batch(a, batch), expand_batch(b, batch), upper, unit);
}

Tensor row_order(const Tensor& pivots, int64_t rows, bool inverse) {
  PF_CHECK(pivots.dtype() == DType::int32, Runtime, "lu: pivots are not int32; got {}", dtype_name(pivots.dtype()));
  return emit(OpId::row_order, {pivots}, with(batch_of(pivots, 1), {rows}), DType::int64, RowOrderAttrs{inverse});
}

namespace {

// Rows of x in another order, which has no gradient.
Tensor ordered_rows(const Tensor& x, const Tensor& order) { return gather(x, -2, expand(column(order), x.shape())); }

// For A [.., M, N] = P L U: with K = min(M, N), M' the K x K part of inv(L) P' dA inv(U), dL = L tril(M', -1) and dU = triu(M') U; the rows
// below it, or the columns beside it, are solved for.
Tensor lu_gradient(const Tensor& lu, const Tensor& order, const Tensor& g) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor square = narrow(narrow(lu, -2, 0, k), -1, 0, k), sg = narrow(narrow(g, -2, 0, k), -1, 0, k);
  const Tensor lower = add(tril(square, -1), identity(lu, k)), upper = triu(square);
  Tensor below = matmul(adjoint_of(lower), tril(sg, -1)), above = matmul(triu(sg), adjoint_of(upper));
  if (m > k) {
    const Tensor rest = narrow(lu, -2, k, m - k), rest_g = narrow(g, -2, k, m - k);
    above = sub(above, matmul(adjoint_of(rest), rest_g));
  }
  if (n > k) {
    const Tensor rest = narrow(lu, -1, k, n - k), rest_g = narrow(g, -1, k, n - k);
    below = sub(below, matmul(rest_g, adjoint_of(rest)));
  }
  const Tensor lt = adjoint_of(square);                 // its upper triangle
  const auto times_inverse_ut = [&](const Tensor& x) {  // x inv(U')
    return adjoint_of(triangular_solve(square, adjoint_of(x), true, false));
  };
  Tensor result = times_inverse_ut(triangular_solve(lt, add(tril(below, -1), triu(above)), true, true));
  if (n > k) result = cat({result, triangular_solve(lt, narrow(g, -1, k, n - k), true, true)}, -1);
  if (m > k) result = cat({result, times_inverse_ut(narrow(g, -2, k, m - k))}, -2);
  return ordered_rows(result, order);
}

}  // namespace

Lu lu_factor(const Tensor& a) {
  check_matrices("linalg.lu_factor", a, false);
  const Arg ins[] = {a};
  const Dims batch = batch_of(a);
  const OutSpec outs[] = {
      {a.shape(), a.dtype()}, {with(batch, {std::min(a.size(-1), a.size(-2))}), DType::int32}, {batch, DType::int32}};
  const Tensors r = emit_many(OpId::lu_factor, ins, outs, NoAttrs{});
  attach("lu_factor", {r[0]}, {a}, {r[0], r[1]}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor lu = n.saved(0);
    return {lu_gradient(lu, row_order(n.saved(1), lu.size(-2), true), g[0])};
  });
  return {r[0], r[1], r[2]};
}

Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool adjoint) {
  const Tensor x = emit(OpId::lu_solve, {lu, pivots, b}, b.shape(), b.dtype(), AdjointAttrs{adjoint});
  attach("lu_solve", {x}, {b}, {lu, pivots}, [adjoint](GradNode& n, const Tensors& g) -> Tensors {
    return {lu_solve(n.saved(0), n.saved(1), g[0], !adjoint)};
  });
  return x;
}

namespace {

// The solution by the factors of A, which have no gradient themselves.
Tensor solve_factored(const Tensor& a, const Tensor& lu, const Tensor& pivots, const Tensor& b, bool adjoint) {
  const Tensor x = emit(OpId::lu_solve, {lu, pivots, b}, b.shape(), b.dtype(), AdjointAttrs{adjoint});
  attach("solve", {x}, {a, b}, {a, lu, pivots, x}, [adjoint](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor to_b = solve_factored(n.saved(0), n.saved(1), n.saved(2), g[0], !adjoint);
    if (!n.needs(0)) return {Tensor(), to_b};
    const Tensor solution = n.saved(3);
    return {neg(adjoint ? matmul(solution, adjoint_of(to_b)) : matmul(to_b, adjoint_of(solution))), to_b};
  });
  return x;
}

Lu factors(const Tensor& a) {
  const grad_mode::Guard off(false, grad_mode::inference());
  return lu_factor(a);
}

// 1 or -1: whether the rows of a matrix were exchanged an even number of times.
Tensor parity(const Tensor& pivots, DType dtype) {
  const Tensor moved = ne(pivots, arange(1, pivots.size(-1) + 1, 1, DType::int32, pivots.device()));
  return cast(sub(1, mul(remainder(sum(moved, {-1}), 2), 2)), dtype);
}

}  // namespace

std::pair<Tensor, Lu> solve(const Tensor& a, const Tensor& b) {
  check_matrices("linalg.solve", a, true);
  check_same_device("linalg.solve", {a, b});
  check_same_dtype("linalg.solve", a, b);
  const Dims batch = broadcast_shapes("linalg.solve", batch_of(a), batch_of(b));
  const Lu f = factors(a);  // of matrices that are the same for several right sides, once
  const Tensor pivots = expand(f.pivots, with(batch, {f.pivots.size(-1)}));
  return {solve_factored(expand_batch(a, batch), expand_batch(f.lu, batch), pivots, expand_batch(b, batch), false), f};
}

std::pair<Tensor, Tensor> inv(const Tensor& a) {
  check_matrices("linalg.inv", a, true);
  const Lu f = factors(a);
  const Tensor unit = expand_batch(identity(a, a.size(-1)), batch_of(a));
  const Tensor y = emit(OpId::lu_solve, {f.lu, f.pivots, unit}, a.shape(), a.dtype(), AdjointAttrs{0});
  attach("inv", {y}, {a}, {y}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor t = adjoint_of(n.saved(0));
    return {neg(matmul(matmul(t, g[0]), t))};
  });
  return {y, f.info};
}

// The gradient is conj(det(A)) inv(A)'. Where A is singular, zeros on U's diagonal are replaced by a small number: the product has a limit.
std::array<Tensor, 2> det(const Tensor& a) {
  check_matrices("linalg.det", a, true);
  const Lu f = factors(a);
  Tensor d;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    d = mul(prod(diagonal_of(f.lu), {-1}), parity(f.pivots, a.dtype()));
  }
  attach("det", {d}, {a}, {a, d, f.lu, f.pivots}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor matrix = n.saved(0), value = n.saved(1), lu = n.saved(2), pivots = n.saved(3);
    const DType dtype = matrix.dtype();
    const double small = part_dtype(dtype) == DType::float64 ? 2.2e-16 : 1.2e-7;
    const Tensor regular = where(logical_and(on_diagonal(lu), eq(lu, 0)), small, lu);
    const Tensor about = mul(prod(diagonal_of(regular), {-1}), parity(pivots, dtype));
    const Tensor unit = expand_batch(identity(matrix, matrix.size(-1)), batch_of(matrix));
    const Tensor scale = mul(g[0], conj(where(eq(value, 0), about, value)));
    return {mul(column(column(scale)), solve_factored(matrix, regular, pivots, unit, true))};
  });
  return {d, f.lu};
}

std::array<Tensor, 3> slogdet(const Tensor& a) {
  check_matrices("linalg.slogdet", a, true);
  const Lu f = factors(a);
  Tensor signs, logs;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const Tensor d = diagonal_of(f.lu);
    signs = mul(prod(sgn(d), {-1}), parity(f.pivots, a.dtype()));
    logs = sum(log(abs(d)), {-1});
  }
  // With z = tr(inv(A) dA), the logarithm changes by Re(z), and a complex sign by i sign Im(z).
  const auto gradient = [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor matrix = n.saved(0);
    const Tensor unit = expand_batch(identity(matrix, matrix.size(-1)), batch_of(matrix));
    Tensor scale = g[0];
    if (g.size() > 1 && g[1]) {
      const Tensor from_sign = imag(mul(conj(n.saved(3)), g[1]));
      scale = complex(scale ? scale : zeros_like(from_sign), from_sign);
    }
    return {mul(column(column(scale)), solve_factored(matrix, n.saved(1), n.saved(2), unit, true))};
  };
  if (is_complex(a.dtype())) attach("slogdet", {logs, signs}, {a}, {a, f.lu, f.pivots, signs}, gradient);
  else attach("slogdet", {logs}, {a}, {a, f.lu, f.pivots}, gradient);
  return {signs, logs, f.info};
}

std::pair<Tensor, Tensor> geqrf(const Tensor& a) {
  check_matrices("geqrf", a, false);
  const Arg ins[] = {a};
  const OutSpec outs[] = {{a.shape(), a.dtype()}, {with(batch_of(a), {std::min(a.size(-1), a.size(-2))}), a.dtype()}};
  const Tensors r = emit_many(OpId::geqrf, ins, outs, NoAttrs{});
  return {r[0], r[1]};
}

namespace {

// The product of reflectors is I - V T V' with T = inv(I + diag(tau) striu(V' V)) diag(tau).
struct Reflectors {
  Tensor v, t;
  Reflectors(const Tensor& a, const Tensor& tau) {
    const int64_t k = tau.size(-1);
    v = add(tril(narrow(a, -1, 0, k), -1), eye(a.size(-2), k, a.dtype(), a.device()));
    const Tensor system = mul(column(tau), matmul(adjoint_of(v), v));
    const Tensor zero = zeros({k, k}, a.dtype(), a.device());
    t = triangular_solve(system, with_diagonal(zero, column(tau)), true, true);
  }
};

}  // namespace

namespace {

// The last dim filled with zeros to `size`.
Tensor widened(const Tensor& x, int64_t size) {
  const int64_t missing = size - x.size(-1);
  return missing == 0 ? x : cat({x, zeros(with(batch_of(x), {x.size(-2), missing}), x.dtype(), x.device())}, -1);
}

// Of Q = I - V T V1', where V1 is the first rows of V, T = inv(S) D, D = diag(tau) and S = I + striu(D V' V). Only the
// entries of A below the diagonal of V are read.
Tensors householder_gradient(const Tensor& a, const Tensor& tau, const Tensor& g) {
  const Reflectors r(a, tau);
  const int64_t k = tau.size(-1), m = a.size(-2), columns = g.size(-1);
  const Tensor vt = adjoint_of(r.v), tt = adjoint_of(r.t), first = narrow(r.v, -2, 0, columns);
  const Tensor products = matmul(vt, r.v), g_first = matmul(g, first), gt = adjoint_of(g);
  // V' gQ V1 = -gT, and inv(S') of it.
  const Tensor system = adjoint_of(mul(column(tau), products));
  const Tensor y = neg(triangular_solve(system, matmul(vt, g_first), false, true));
  const Tensor gs = triu(neg(matmul(y, tt)), 1);
  const Tensor g_products = mul(column(conj(tau)), gs);
  Tensor gv = sub(matmul(r.v, add(g_products, adjoint_of(g_products))), matmul(g_first, tt));
  Tensor g_top = matmul(gt, matmul(r.v, r.t));
  if (columns < m) g_top = cat({g_top, zeros(with(batch_of(a), {m - columns, k}), a.dtype(), a.device())}, -2);
  gv = sub(gv, g_top);
  const Tensor g_tau = add(diagonal_of(y), sum(mul(gs, conj(products)), {-1}));
  return {widened(tril(gv, -1), a.size(-1)), g_tau};
}

}  // namespace

Tensor householder_product(const Tensor& a, const Tensor& tau, int64_t columns) {
  const Tensor q = emit(OpId::orgqr, {a, tau}, with(batch_of(a), {a.size(-2), columns}), a.dtype(), NoAttrs{});
  attach("householder_product", {q}, {a, tau}, {a, tau},
         [](GradNode& n, const Tensors& g) -> Tensors { return householder_gradient(n.saved(0), n.saved(1), g[0]); });
  return q;
}

Tensor apply_reflectors(const Tensor& a, const Tensor& tau, const Tensor& c, bool is_transposed) {
  const Reflectors r(a, tau);
  const Tensor middle = is_transposed ? adjoint_of(r.t) : r.t;
  return sub(c, matmul(r.v, matmul(middle, matmul(adjoint_of(r.v), c))));
}

namespace {

// Of a matrix with at least as many rows as columns: (gQ + Q sym(triu(gR R' - Q' gQ))) inv(R').
Tensor tall_qr_gradient(const Tensor& q, const Tensor& r, const Tensor& gq, const Tensor& gr) {
  Tensor inner;
  if (gr) inner = matmul(gr, adjoint_of(r));
  if (gq) {
    const Tensor t = matmul(adjoint_of(q), gq);
    inner = inner ? sub(inner, t) : neg(t);
  }
  const Tensor above = triu(inner, 1),
               symmetric = with_real_diagonal(add(above, adjoint_of(above)), diagonal_of(inner));
  Tensor sum = matmul(q, symmetric);
  if (gq) sum = add(sum, gq);
  return adjoint_of(triangular_solve(r, adjoint_of(sum), true, false));
}

// A wide matrix is [A1 A2] = Q [R1 R2]: R2 = Q' A2.
Tensor qr_gradient(const Tensor& q, const Tensor& r, Tensor gq, const Tensor& gr) {
  const int64_t m = q.size(-2), n = r.size(-1);
  if (m >= n) return tall_qr_gradient(q, r, gq, gr);
  const Tensor r1 = narrow(r, -1, 0, m), r2 = narrow(r, -1, m, n - m);
  if (!gr) return cat({tall_qr_gradient(q, r1, gq, gr), zeros_like(r2)}, -1);
  const Tensor gr2 = narrow(gr, -1, m, n - m);
  const Tensor more = matmul(matmul(q, r2), adjoint_of(gr2));
  gq = gq ? add(gq, more) : more;
  return cat({tall_qr_gradient(q, r1, gq, narrow(gr, -1, 0, m)), matmul(q, gr2)}, -1);
}

}  // namespace

std::pair<Tensor, Tensor> qr(const Tensor& a, bool complete, bool with_q) {
  check_matrices("linalg.qr", a, false);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  Tensor q, r;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const auto [factored, tau] = geqrf(a);
    r = triu(complete ? factored : narrow(factored, -2, 0, k));
    if (!with_q) q = zeros({0}, a.dtype(), a.device());
    else q = emit(OpId::orgqr, {factored, tau}, with(batch_of(a), {m, complete ? m : k}), a.dtype(), NoAttrs{});
  }
  const int refused = !with_q ? 1 : complete && m > n ? 2 : 0;
  attach("qr", {q, r}, {a}, {q, r}, [refused](GradNode& node, const Tensors& g) -> Tensors {
    PF_CHECK(refused != 1, Runtime,
             "linalg.qr: The derivative depends on Q, which is not computed when mode='r'; hint: use mode='reduced'");
    PF_CHECK(refused != 2, Runtime,
             "linalg.qr: The QR decomposition is not differentiable when mode='complete' and nrows > ncols");
    return {qr_gradient(node.saved(0), node.saved(1), g[0], g[1])};
  });
  return {q, r};
}

std::array<Tensor, 3> eig(const Tensor& a, bool vectors) {
  check_matrices("linalg.eig", a, true);
  const Arg ins[] = {a};
  const Dims batch = batch_of(a), none{0, 0};
  const DType dtype = complex_dtype(a.dtype());
  const OutSpec outs[] = {
      {with(batch, {a.size(-1)}), dtype}, {vectors ? a.shape() : none, dtype}, {batch, DType::int32}};
  const Tensors r = emit_many(OpId::eig, ins, outs, EigAttrs{vectors});
  return {r[0], r[1], r[2]};
}

namespace {

// RuntimeError unless numbers, which say how a loss depends on the phase of vectors, vanish. As in PyTorch, with its tolerance: a sync point.
void check_phase(const char* op, const Tensor& numbers) {
  if (numbers.numel() == 0 || !find_backend(numbers.device().type)->executes()) return;
  const Tensor host = cast(sum(gt(abs(numbers), 1e-2), {}), DType::int64).on_host();
  PF_CHECK(
      *static_cast<const int64_t*>(host.data()) == 0, Runtime,
      "{}: the result depends on the phase of the vectors, which is arbitrary for complex matrices, so that it has "
      "no gradient; got a gradient with such a part; expected none",
      op);
}

// diag(d) or, without it, zeros, as a column in the dtype of x.
Tensor diagonal_column(const Tensor& d, const Tensor& x, const Tensor& like) {
  return cast(column(d ? d : zeros_like(like)), x.dtype());
}

}  // namespace

std::array<Tensor, 3> eigh(const Tensor& a, bool upper, bool vectors) {
  check_matrices("linalg.eigh", a, true);
  vectors = vectors || any_requires_grad({a});  // the gradient of the values needs them
  const Arg ins[] = {a};
  const Dims batch = batch_of(a), none{0, 0};
  const OutSpec outs[] = {{with(batch, {a.size(-1)}), part_dtype(a.dtype())},
                          {vectors ? a.shape() : none, a.dtype()},
                          {batch, DType::int32}};
  const Tensors r = emit_many(OpId::eigh, ins, outs, EighAttrs{upper, vectors});
  attach("eigh", {r[0], r[1]}, {a}, {r[0], r[1]}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor w = n.saved(0), v = n.saved(1), vh = adjoint_of(v);
    if (!g[1]) return {matmul(mul(v, row(g[0])), vh)};
    const Tensor inner = matmul(vh, g[1]), gaps = with_diagonal(sub(row(w), column(w)), 1.0);
    if (is_complex(v.dtype())) check_phase("linalg.eigh", imag(diagonal_of(inner)));
    return {matmul(v, matmul(with_diagonal(div(inner, gaps), diagonal_column(g[0], v, w)), vh))};
  });
  return {r[0], r[1], r[2]};
}

namespace {

Tensor skew(const Tensor& x) { return sub(x, adjoint_of(x)); }

// U, V [.., N, K]: U (off-diagonal((skew(U' gU) / E) S + S (skew(V' gV) / E)) + diag(gS)) V', and what is orthogonal to U and V. For complex
// numbers the diagonal has also skew(U' gU) / (2 S): the loss must not depend on a phase of U and V.
Tensor svd_gradient(const Tensor& u, const Tensor& s, const Tensor& vh, const Tensor& gu, const Tensor& gs,
                    const Tensor& gvh) {
  const int64_t m = u.size(-2), n = vh.size(-1), k = s.size(-1);
  if (!gu && !gvh) return m >= n ? matmul(u, mul(column(gs), vh)) : matmul(mul(u, row(gs)), vh);
  const Tensor squares = mul(s, s), gaps = with_diagonal(sub(row(squares), column(squares)), 1.0);
  const Tensor uh_gu = gu ? matmul(adjoint_of(u), gu) : Tensor(), gvh_v = gvh ? matmul(gvh, adjoint_of(vh)) : Tensor();
  const Tensor skew_u = gu ? skew(uh_gu) : Tensor(), skew_v = gvh ? skew(adjoint_of(gvh_v)) : Tensor();
  Tensor inner, along = diagonal_column(gs, u, s);
  if (gu) inner = mul(div(skew_u, gaps), row(s));
  if (gvh) {
    const Tensor more = mul(column(s), div(skew_v, gaps));
    inner = inner ? add(inner, more) : more;
  }
  if (is_complex(u.dtype())) {
    const Tensor from_u = gu ? diagonal_of(skew_u) : Tensor(), from_v = gvh ? diagonal_of(skew_v) : Tensor();
    check_phase("linalg.svd", mul(imag(gu && gvh ? add(from_u, from_v) : gu ? from_u : from_v), 0.5));
    if (gu) along = add(along, column(div(from_u, mul(s, 2.0))));
  }
  Tensor left = matmul(u, with_diagonal(inner, along));
  if (gu && m > k) left = add(left, div(sub(gu, matmul(u, uh_gu)), row(s)));
  Tensor result = matmul(left, vh);
  if (gvh && n > k) result = add(result, matmul(div(u, row(s)), sub(gvh, matmul(gvh_v, vh))));
  return result;
}

}  // namespace

std::array<Tensor, 4> svd(const Tensor& a, bool full, bool vectors) {
  check_matrices("linalg.svd", a, false);
  vectors = vectors || any_requires_grad({a});
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const Arg ins[] = {a};
  const Dims batch = batch_of(a), none{0, 0};
  const OutSpec outs[] = {{vectors ? with(batch, {m, full ? m : k}) : none, a.dtype()},
                          {with(batch, {k}), part_dtype(a.dtype())},
                          {vectors ? with(batch, {full ? n : k, n}) : none, a.dtype()},
                          {batch, DType::int32}};
  const Tensors r = emit_many(OpId::svd, ins, outs, SvdAttrs{full, vectors});
  attach("svd", {r[0], r[1], r[2]}, {a}, {r[0], r[1], r[2]}, [k](GradNode& node, const Tensors& g) -> Tensors {
    const auto first = [&](const Tensor& x, int dim) { return x ? narrow(x, dim, 0, k) : x; };
    return {svd_gradient(first(node.saved(0), -1), node.saved(1), first(node.saved(2), -2), first(g[0], -1), g[1],
                         first(g[2], -2))};
  });
  return {r[0], r[1], r[2], r[3]};
}

Tensor pinv_of(const Tensor& a, const Tensor& p) {
  Tensor y(p.storage(), p.shape(), p.strides(), p.offset(), p.dtype());
  attach("pinv", {y}, {a}, {a, y}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor matrix = n.saved(0), inverse = n.saved(1), it = adjoint_of(inverse), gt = adjoint_of(g[0]);
    const Tensor right = matmul(gt, matmul(inverse, it)), left = matmul(matmul(it, inverse), gt);
    Tensor sum = neg(matmul(matmul(it, g[0]), it));
    sum = add(sum, sub(right, matmul(matrix, matmul(inverse, right))));
    return {add(sum, sub(left, matmul(matmul(left, inverse), matrix)))};
  });
  return y;
}

// Y with X Y + Y X = G, for Hermitian positive X.
Tensor sylvester(const Tensor& x, const Tensor& g) {
  Tensor y;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const auto [w, v, info] = eigh(x, false, true);
    const Tensor inner = div(matmul(matmul(adjoint_of(v), g), v), add(row(w), column(w)));
    y = matmul(matmul(v, inner), adjoint_of(v));
  }
  attach("sylvester", {y}, {x, g}, {x, y}, [](GradNode& n, const Tensors& grads) -> Tensors {
    const Tensor z = sylvester(n.saved(0), grads[0]), solution = n.saved(1);
    if (!n.needs(0)) return {Tensor(), z};
    const Tensor t = adjoint_of(solution);
    return {neg(add(matmul(z, t), matmul(t, z))), z};
  });
  return y;
}

std::pair<Tensor, Tensor> matrix_sqrth(const Tensor& a) {
  check_matrices("linalg.matrix_sqrth", a, true);
  Tensor x, failed;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const auto [w, v, info] = eigh(a, false, true);
    x = matmul(mul(v, row(sqrt(w))), adjoint_of(v)), failed = info;
  }
  attach("matrix_sqrth", {x}, {a}, {x}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor y = sylvester(n.saved(0), g[0]);
    return {mul(add(y, adjoint_of(y)), 0.5)};
  });
  return {x, failed};
}

// A = U H: H H = A' A, and U = A inv(H).
std::array<Tensor, 3> polar(const Tensor& a) {
  check_matrices("linalg.polar", a, false);
  PF_CHECK(a.size(-2) >= a.size(-1), Value,
           "linalg.polar: input must have at least as many rows as columns, but got {} by {} matrices", a.size(-2),
           a.size(-1));
  Tensor u, h, failed;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const auto [left, s, right, info] = svd(a, false, true);
    u = matmul(left, right), h = matmul(adjoint_of(right), mul(column(s), right)), failed = info;
  }
  attach("polar", {u, h}, {a}, {a, u, h}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor matrix = n.saved(0), unitary = n.saved(1), symmetric = n.saved(2);
    Tensor to_h = g[1], result;
    if (g[0]) {
      result = adjoint_of(solve(symmetric, adjoint_of(g[0])).first);
      const Tensor t = neg(matmul(adjoint_of(unitary), result));
      to_h = to_h ? add(to_h, t) : t;
    }
    const Tensor m = sylvester(symmetric, to_h);
    const Tensor more = matmul(matrix, add(m, adjoint_of(m)));
    return {result ? add(result, more) : more};
  });
  return {u, h, failed};
}

std::array<Tensor, 3> ldl_factor(const Tensor& a, bool hermitian) {
  check_matrices("linalg.ldl_factor", a, true);
  const Arg ins[] = {a, Arg(Scalar(int64_t{hermitian}), DType::int64)};
  const OutSpec outs[] = {{a.shape(), a.dtype()}, {batch_of(a, 1), DType::int32}, {batch_of(a), DType::int32}};
  const Tensors r = emit_many(OpId::ldl_factor, ins, outs, NoAttrs{});
  return {r[0], r[1], r[2]};
}

Tensor ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian) {
  check_matrices("linalg.ldl_solve", ld, true);
  check_matrices("linalg.ldl_solve", b, false);
  check_same_dtype("linalg.ldl_solve", ld, b);
  PF_CHECK(ld.size(-1) == b.size(-2) && pivots.shape() == batch_of(ld, 1) && pivots.dtype() == DType::int32, Value,
           "linalg.ldl_solve: LD, pivots and B do not fit; got {}, {} and {}; expected [.., N, N], int32 [.., N] and "
           "[.., N, K]",
           ld.shape().str(), pivots.shape().str(), b.shape().str());
  const Dims batch = broadcast_shapes("linalg.ldl_solve", batch_of(ld), batch_of(b));
  const Tensor rhs = expand_batch(b, batch);
  return emit(OpId::ldl_solve,
              {expand_batch(ld, batch), expand(pivots, with(batch, {ld.size(-1)})), rhs,
               Arg(Scalar(int64_t{hermitian}), DType::int64)},
              rhs.shape(), b.dtype());
}

std::array<Tensor, 4> lstsq(const Tensor& a, const Tensor& b, double rcond, int64_t driver) {
  check_matrices("linalg.lstsq", a, false);
  const int64_t m = a.size(-2), n = a.size(-1);
  const Dims batch = batch_of(a);
  const DType real = part_dtype(a.dtype());
  const Arg ins[] = {a, b, Arg(Scalar(rcond), real)};
  const OutSpec outs[] = {{with(batch, {std::max(m, n), b.size(-1)}), a.dtype()},
                          {batch, DType::int32},
                          {with(batch, {std::min(m, n)}), real},
                          {batch, DType::int32}};
  const Tensors r = emit_many(OpId::lstsq, ins, outs, LstsqAttrs{driver});
  return {r[0], r[1], r[2], r[3]};
}

}  // namespace pyflame::linalg
