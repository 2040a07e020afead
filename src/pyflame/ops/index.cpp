// Reading and adding by index. gather and scatter_add, and index_select and index_add, are linear in their values and
// are each other's gradients. Index values are checked at the caller's line if they are already computed, and always by
// the kernel that reads them.
#include <cmath>

#include "pyflame/backends/backend.h"
#include "pyflame/ops/family.h"
#include "pyflame/record/cut_cause.h"

namespace pyflame {

Tensor as_index(const char* op, const Tensor& index) {
  PF_CHECK(index.dtype() == DType::int64 || index.dtype() == DType::int32, Type,
           "{}: the index has the wrong dtype; got {}; expected int64 or int32", op, dtype_name(index.dtype()));
  return cast(index, DType::int64);
}

const void* values_at_hand(const Tensor& x) {
  const Storage& s = *x.storage();
  if (!s.data || s.poison || s.writer.load(std::memory_order_acquire) || !x.is_contiguous()) return nullptr;
  // A backend that only plans has written nothing.
  if (has_own_memory(s.device.type) || !find_backend(s.device.type)->executes()) return nullptr;
  return static_cast<const char*>(s.data) + x.offset() * x.itemsize();
}

void check_index_values(const char* op, const Tensor& index, int64_t size, std::optional<int64_t> ignore) {
  constexpr int64_t kMost = 65536;  // checking more would cost more than a training step of a small model
  if (index.dtype() != DType::int64 || index.numel() > kMost) return;
  const auto* v = static_cast<const int64_t*>(values_at_hand(index));
  if (!v) return;
  for (int64_t i = 0; i < index.numel(); ++i)
    PF_CHECK((v[i] >= 0 && v[i] < size) || v[i] == ignore, Index,
             "{}: index out of range; got {} at position {}; expected 0 <= index < {}", op, v[i], i, size);
}

namespace {

Tensor at_least_1d(const Tensor& x) { return x.dim() == 0 ? view(x, {1}) : x; }

Tensor gather_op(const Tensor& x, int dim, const Tensor& index) {
  Tensor out = emit(OpId::gather, {x, index}, index.shape(), x.dtype(), DimAttrs{dim});
  const Dims from = x.shape();
  attach("gather", {out}, {x}, {index}, [from, dim](GradNode& n, const Tensors& g) -> Tensors {
    return {scatter_add_zeros(n.saved(0), g[0], from, dim)};
  });
  return out;
}

Tensor index_select_op(const Tensor& x, int dim, const Tensor& index) {
  Dims shape = x.shape();
  shape[dim] = index.size(0);
  Tensor out = emit(OpId::index_select, {x, index}, shape, x.dtype(), DimAttrs{dim});
  const Dims from = x.shape();
  attach("index_select", {out}, {x}, {index}, [from, dim](GradNode& n, const Tensors& g) -> Tensors {
    return {index_add_zeros(n.saved(0), g[0], from, dim)};
  });
  return out;
}

// Every dim of the index but `dim` must fit into x.
void check_gather_index(const char* op, const Tensor& x, int dim, const Tensor& index) {
  PF_CHECK(index.dim() == x.dim(), Value, "{}: ranks differ; got input {} and index {}; expected equal ranks", op,
           x.shape().str(), index.shape().str());
  for (int d = 0; d < x.dim(); ++d)
    PF_CHECK(d == dim || index.size(d) <= x.size(d), Value,
             "{}: the index is larger than the input; got input {} and index {}; expected at most {} in dim {}", op,
             x.shape().str(), index.shape().str(), x.size(d), d);
  check_index_values(op, index, x.dim() == 0 ? 1 : x.size(dim));
}

Tensor index_vector(const char* op, const Tensor& index, int64_t size) {
  PF_CHECK(index.dim() <= 1, Value, "{}: the index is not a vector; got {}; expected one dimension", op,
           index.shape().str());
  check_index_values(op, index, size);
  return at_least_1d(as_index(op, index));
}

}  // namespace

Tensor scatter_add_zeros(const Tensor& index, const Tensor& src, const Dims& shape, int dim) {
  Tensor out = emit(OpId::scatter_add, {index, src}, shape, src.dtype(), DimAttrs{dim});
  attach("scatter_add", {out}, {src}, {index},
         [dim](GradNode& n, const Tensors& g) -> Tensors { return {gather_op(g[0], dim, n.saved(0))}; });
  return out;
}

Tensor index_add_zeros(const Tensor& index, const Tensor& src, const Dims& shape, int dim) {
  Tensor out = emit(OpId::index_add, {index, src}, shape, src.dtype(), DimAttrs{dim});
  attach("index_add", {out}, {src}, {index},
         [dim](GradNode& n, const Tensors& g) -> Tensors { return {index_select_op(g[0], dim, n.saved(0))}; });
  return out;
}

Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets) {
  check_same_device("embedding_bag", {index, weight, offsets});
  check_float("embedding_bag", weight);
  PF_CHECK(weight.dim() == 2, Value, "embedding_bag: the weight is not a matrix; got {}; expected (rows, features)",
           weight.shape().str());
  PF_CHECK(offsets.dim() == 1 && offsets.dtype() == DType::int64, Value,
           "embedding_bag: the offsets are not a vector of int64; got {} {}; expected one offset for each bag",
           dtype_name(offsets.dtype()), offsets.shape().str());
  const Tensor at = index_vector("embedding_bag", index, weight.size(0));
  const Dims shape{offsets.size(0), weight.size(1)}, from = weight.shape();
  Tensor out = shape.numel() == 0 ? empty(shape, weight.dtype(), weight.device())
                                  : emit(OpId::embedding_bag, {weight, at, offsets}, shape, weight.dtype());
  attach("embedding_bag", {out}, {weight}, {at, offsets}, [from](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor rows = n.saved(0);
    const Tensor number = arange(0, rows.size(0), 1, DType::int64, rows.device());
    const Tensor bag = sub(searchsorted(n.saved(1), number, true), Scalar(1));
    return {index_add_zeros(rows, index_select(g[0], 0, bag), from, 0)};
  });
  return out;
}

Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding_idx) {
  check_same_device("embedding", {index, weight});
  PF_CHECK(weight.dim() == 2, Value, "embedding: the weight is not a matrix; got {}; expected (rows, features)",
           weight.shape().str());
  const int64_t rows = weight.size(0);
  int64_t padding = padding_idx.value_or(0);
  if (padding < 0) padding += rows;
  PF_CHECK(!padding_idx || (padding >= 0 && padding < rows), Index,
           "embedding: padding_idx is out of range; got {}; expected {} <= padding_idx < {}", *padding_idx, -rows,
           rows);
  check_index_values("embedding", index, rows);
  const Tensor flat = reshape(as_index("embedding", index), {index.numel()});
  Dims shape = index.shape();
  shape.push_back(weight.size(1));
  Tensor out;
  if (padding_idx) {
    out = emit(OpId::index_select, {weight, flat}, {flat.size(0), weight.size(1)}, weight.dtype(), DimAttrs{0});
    const Dims from = weight.shape();
    attach("embedding", {out}, {weight}, {flat}, [from, padding](GradNode& n, const Tensors& g) -> Tensors {
      const Tensor at = n.saved(0);
      const Tensor kept = masked_fill(g[0], unsqueeze(eq(at, padding), 1), 0.0);
      return {index_add_zeros(at, kept, from, 0)};
    });
  } else {
    out = index_select_op(weight, 0, flat);
  }
  return index.dim() == 1 ? out : view(out, shape);
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_same_device("gather", {x, index});
  const int d = normalize_dim("gather", dim, x.dim());
  if (index.numel() == 0) return reshape(narrow(reshape(x, {x.numel()}), 0, 0, 0), index.shape());
  const Tensor at = at_least_1d(as_index("gather", index)), from = at_least_1d(x);
  check_gather_index("gather", from, d, at);
  const Tensor out = gather_op(from, d, at);
  return index.dim() == 0 ? view(out, {}) : out;
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  check_same_device("scatter_add", {x, index, src});
  const int d = normalize_dim("scatter_add", dim, x.dim());
  const Tensor at = as_index("scatter_add", index);
  check_same_dtype("scatter_add", x, src);
  check_gather_index("scatter_add", x, d, at);
  PF_CHECK(src.dim() == at.dim(), Value, "scatter_add: ranks differ; got src {} and index {}; expected equal ranks",
           src.shape().str(), at.shape().str());
  Tensor from = src;
  for (int k = 0; k < src.dim(); ++k) {
    PF_CHECK(at.size(k) <= src.size(k), Value,
             "scatter_add: the index is larger than src; got src {} and index {}; expected at most {} in dim {}",
             src.shape().str(), at.shape().str(), src.size(k), k);
    if (at.size(k) < src.size(k)) from = narrow(from, k, 0, at.size(k));
  }
  // Integers have the same sum in any order, and no gradient. Adding to a copy of x moves fewer bytes than adding to zeros, then to x.
  if (!has_gradient(x.dtype()) && x.dim() > 0) return scatter(x, d, at, from, Combine::Sum);
  if (x.dim() == 0) return add(x, view(scatter_add_zeros(view(at, {1}), view(from, {1}), {1}, 0), {}));
  return add(x, scatter_add_zeros(at, from, x.shape(), d));
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  check_same_device("index_select", {x, index});
  const int d = normalize_dim("index_select", dim, x.dim());
  const Tensor at = index_vector("index_select", index, x.dim() == 0 ? 1 : x.size(d));
  if (x.dim() > 0) return index_select_op(x, d, at);
  PF_CHECK(at.size(0) == 1, Value, "index_select: a 0-d input has one element; got an index of {}; expected one index",
           at.size(0));
  return view(index_select_op(view(x, {1}), 0, at), {});
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  check_same_device("index_add", {x, index, src});
  const int d = normalize_dim("index_add", dim, x.dim());
  const Tensor at = index_vector("index_add", index, x.dim() == 0 ? 1 : x.size(d));
  check_same_dtype("index_add", x, src);
  Dims expected = at_least_1d(x).shape();
  expected[d] = at.size(0);
  const Tensor from = at_least_1d(src);
  PF_CHECK(from.shape() == expected, Value,
           "index_add: src does not fit; got {} for input {} and {} indices; expected {}", src.shape().str(),
           x.shape().str(), at.size(0), expected.str());
  const Tensor sums = index_add_zeros(at, from, at_least_1d(x).shape(), d);
  return add(x, x.dim() == 0 ? view(sums, {}) : sums);
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  check_same_device("take_along_dim", {x, index});
  Tensor at = as_index("take_along_dim", index);
  if (!dim) return gather_op(reshape(x, {x.numel()}), 0, reshape(at, {at.numel()}));
  PF_CHECK(at.dim() == x.dim(), Value, "take_along_dim: ranks differ; got input {} and index {}; expected equal ranks",
           x.shape().str(), index.shape().str());
  const int d = normalize_dim("take_along_dim", *dim, x.dim());
  if (x.dim() == 0) return gather(x, 0, at);
  Dims xs = x.shape(), is = at.shape();
  const int64_t n = xs[d], m = is[d];
  if (n > 0) at = where(lt(at, Scalar(0)), remainder(at, Scalar(n)), at);  // from the end
  xs[d] = is[d] = 1;
  const Dims common = broadcast_shapes("take_along_dim", xs, is);
  xs = is = common;
  xs[d] = n;
  is[d] = m;
  return gather_op(x.shape() == xs ? x : expand(x, xs), d, at.shape() == is ? at : expand(at, is));
}

namespace {
Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool lower) {
  PF_CHECK(x.dim() >= 2, Value, "{}: not a matrix; got {}; expected at least 2 dimensions", op, x.shape().str());
  const Tensor rows = unsqueeze(arange(0, x.size(-2), 1, DType::int64, x.device()), 1);
  const Tensor cols = arange(0, x.size(-1), 1, DType::int64, x.device());
  const Tensor edge = add(rows, diagonal);
  return where(lower ? le(cols, edge) : ge(cols, edge), x, Value(zero_of(x.dtype())));
}

// Moves dim to the end and back, because topk and sort work on the last dim.
struct LastDim {
  Tensor x;
  int dim;
  bool scalar;
  LastDim(const char* op, const Tensor& t, int64_t d) : dim(normalize_dim(op, d, t.dim())), scalar(t.dim() == 0) {
    x = scalar ? view(t, {1}) : dim == t.dim() - 1 ? t : transpose(t, dim, -1);
  }
  Tensor back(const Tensor& y) const {
    if (scalar) return y.size(0) == 1 ? view(y, {}) : y;
    return dim == y.dim() - 1 ? y : transpose(y, dim, -1);
  }
};

void attach_selection(const char* name, const Tensor& values, const Tensor& x, const Tensor& indices) {
  const Dims from = x.shape();
  attach(name, {values}, {x}, {indices}, [from](GradNode& n, const Tensors& g) -> Tensors {
    return {scatter_add_zeros(n.saved(0), g[0], from, from.size() - 1)};
  });
}
}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle("triu", x, diagonal, false); }

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  PF_CHECK(x.dtype() != DType::bool_, Type, "topk: not defined for bool; got bool; expected a number dtype");
  const LastDim last("topk", x, dim);
  const int64_t n = last.x.size(-1);
  PF_CHECK(k >= 0 && k <= n, Value,
           "topk: k is out of range; got k {} for {} elements in dim {}; expected 0 <= k <= {}", k, n, dim, n);
  Dims shape = last.x.shape();
  shape.back() = k;
  const Arg ins[] = {last.x};
  const OutSpec outs[] = {{shape, x.dtype()}, {shape, DType::int64}};
  const Tensors r = emit_many(OpId::topk, ins, outs, TopkAttrs{largest ? 1 : 0});
  attach_selection("topk", r[0], last.x, r[1]);
  return {last.back(r[0]), last.back(r[1])};
}

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending) {
  const LastDim last("sort", x, dim);
  const Arg ins[] = {last.x};
  const OutSpec outs[] = {{last.x.shape(), x.dtype()}, {last.x.shape(), DType::int64}};
  const Tensors r = emit_many(OpId::sort, ins, outs, SortAttrs{descending ? 1 : 0});
  attach_selection("sort", r[0], last.x, r[1]);
  return {last.back(r[0]), last.back(r[1])};
}

Tensor sorted_values(const Tensor& x, int64_t dim, bool descending) {
  const LastDim last("sort", x.detach(), dim);
  const Arg ins[] = {last.x};
  const OutSpec outs[] = {{last.x.shape(), x.dtype()}};
  return last.back(emit_many(OpId::sort, ins, outs, SortAttrs{descending ? 1 : 0})[0]);
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  check_same_device("searchsorted", {sorted, values});
  check_same_dtype("searchsorted", sorted, values);
  PF_CHECK(sorted.dim() > 0, Value,
           "searchsorted: the sorted sequence is a number; got shape {}; expected a vector or rows",
           sorted.shape().str());
  if (sorted.dim() > 1) {
    PF_CHECK(values.dim() == sorted.dim(), Value,
             "searchsorted: ranks differ; got {} and values of {}; expected the same dims before the last one",
             sorted.shape().str(), values.shape().str());
    for (int d = 0; d + 1 < sorted.dim(); ++d)
      PF_CHECK(sorted.size(d) == values.size(d), Value,
               "searchsorted: the rows do not fit; got {} and values of {}; expected the same dims before the last one",
               sorted.shape().str(), values.shape().str());
  }
  return emit(OpId::searchsorted, {sorted.detach(), values.detach()}, values.shape(), DType::int64,
              SearchAttrs{right ? 1 : 0});
}

std::pair<Tensor, Tensor> draw_tokens(const Tensor& logits, const Tensor& settings) {
  constexpr const char* kOp = "draw_tokens";
  check_same_device(kOp, {logits, settings});
  for (const Tensor* t : {&logits, &settings})
    PF_CHECK(t->dtype() == DType::float32, Type, "{}: the dtype is wrong; got {}; expected float32; hint: cast it", kOp,
             dtype_name(t->dtype()));
  PF_CHECK(logits.dim() == 2 && logits.size(1) > 0 && logits.size(1) < int64_t{1} << 31, Value,
           "{}: the logits are no rows of a vocabulary; got {}; expected (B, V) with 1 <= V < 2^31", kOp,
           logits.shape().str());
  PF_CHECK(settings.shape() == (Dims{logits.size(0), 5}), Value,
           "{}: the settings do not fit; got {} for logits {}; expected (B, 5)", kOp, settings.shape().str(),
           logits.shape().str());
  const int64_t rows = logits.size(0);
  if (rows == 0) return {empty({0}, DType::int64, logits.device()), empty({0}, DType::float32, logits.device())};
  Tensor x = logits.detach();
  fix_layout(x);
  if (x.strides()[1] != 1 && x.size(1) > 1) x = contiguous(x);
  const Tensor set = contiguous(settings.detach());
  const Arg ins[] = {x, set};
  const OutSpec outs[] = {{{rows}, DType::int64}, {{rows}, DType::float32}};
  const Tensors r = emit_many(OpId::draw_tokens, ins, outs, NoAttrs{});
  return {r[0], r[1]};
}

std::pair<Tensor, Tensor> bin_sums(const Tensor& values, const Tensor& weights, double scale, bool divide,
                                   int64_t start, int64_t bins) {
  check_same_device("bin_sums", {values, weights});
  PF_CHECK(values.dtype() == DType::float64 || values.dtype() == DType::float32, Type,
           "bin_sums: the values have another dtype; got {}; expected float64 or float32", dtype_name(values.dtype()));
  const DType w = weights.dtype();
  PF_CHECK(w == DType::int64 || w == DType::int32 || w == DType::float64 || w == DType::float32, Type,
           "bin_sums: the weights have another dtype; got {}; expected int64, int32, float64 or float32",
           dtype_name(w));
  PF_CHECK(values.dim() == 1 && weights.shape() == values.shape(), Value,
           "bin_sums: not one weight for each value of a vector; got {} and {}", values.shape().str(),
           weights.shape().str());
  PF_CHECK(bins > 0 && bins < int64_t{1} << 31, Value,
           "bin_sums: the number of bins is out of range; got {}; expected 1 to 2^31 - 1", bins);
  PF_CHECK(std::abs(start) <= int64_t{1} << 51, Value,
           "bin_sums: the first bin is out of range; got {}; expected -2^51 to 2^51", start);
  const Tensor x = values.detach(), added = weights.detach();
  const Arg ins[] = {x, added, Arg(scale, DType::float64), Arg(start, DType::int64)};
  const OutSpec outs[] = {{{bins}, is_float(w) ? DType::float64 : DType::int64}, {{4}, DType::int64}};
  const Tensors r = emit_many(OpId::bin_sums, ins, outs, BinAttrs{divide ? 1 : 0});
  return {r[0], r[1]};
}

Tensor true_positions(const Tensor& mask, int64_t size, int64_t fill) {
  PF_CHECK(size >= 0, Value, "nonzero: a negative size; got {}; expected 0 or more", size);
  return emit(OpId::nonzero, {reshape(cast(mask.detach(), DType::bool_), {mask.numel()}), Arg(fill, DType::int64)},
              {size}, DType::int64);
}

Tensor true_positions(const Tensor& mask) {
  const Tensor set = cast(mask.detach(), DType::bool_);
  const CutCause why("the number of true elements, because the size of the result depends on the data");
  return true_positions(set, set.numel() == 0 ? 0 : sum(set).item_i64());
}

}  // namespace pyflame
