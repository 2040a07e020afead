// Views, joining, and the functions that move elements by index.
#include "casters.h"
#include "pyflame/ops/view_dtype.h"

namespace pyflame::python {

namespace {

nb::tuple tuple_of(const Tensors& parts) { return nb::tuple(nb::cast(parts)); }

void bind_views(nb::module_& m, TensorClass& c) {
  c.def(
      "view",
      [](const Tensor& x, nb::args size) {
        DType dtype;
        if (size.size() == 1 && !PyLong_Check(size[0].ptr()) && dtype_from(size[0], &dtype))
          return view_dtype(x, dtype);
        return view(x, dims_from_args("view", size));
      },
      "size"_a,
      "The same elements in another shape, sharing memory; one size may be -1. ValueError when the strides do not "
      "allow it (use reshape). view(dtype): the same bytes as elements of another dtype, without a gradient; the last "
      "dim grows or shrinks where the sizes differ.");
  c.def(
      "reshape", [](const Tensor& x, nb::args size) { return reshape(x, dims_from_args("reshape", size)); }, "shape"_a,
      "The same elements in another shape; a view where possible, otherwise a copy. One size may be -1. "
      "ValueError for sizes that give another number of elements, and for several of -1.");
  m.def(
      "reshape", [](const Tensor& x, const DimsArg& shape) { return reshape(x, shape); }, "input"_a, "shape"_a,
      "The same elements in another shape; a view where possible, otherwise a copy. One size may be -1. "
      "ValueError for sizes that give another number of elements, and for several of -1.");
  c.def(
      "permute", [](const Tensor& x, nb::args dims) { return permute(x, dims_from_args("permute", dims)); }, "dims"_a,
      "A view with the dimensions in the order of dims: size i of the result is size dims[i] of the input. ValueError "
      "unless dims names each dimension once.");
  m.def(
      "permute", [](const Tensor& x, const DimsArg& dims) { return permute(x, dims); }, "input"_a, "dims"_a,
      "A view with the dimensions in the order of dims: size i of the result is size dims[i] of the input. ValueError "
      "unless dims names each dimension once.");
  c.def(
      "expand", [](const Tensor& x, nb::args size) { return expand(x, dims_from_args("expand", size)); }, "size"_a,
      "A view in which dims of size 1 are repeated; -1 keeps a size. New dims may come first.");
  c.def(
      "expand_as", [](const Tensor& x, const Tensor& other) { return expand(x, other.shape()); }, "other"_a,
      "A view in which dims of size 1 are repeated to the shape of other, as expand(other.shape). ValueError where "
      "another size differs.");
  c.def(
      "view_as", [](const Tensor& x, const Tensor& other) { return view(x, other.shape()); }, "other"_a,
      "The same elements in the shape of other, sharing memory, as view(other.shape). ValueError when the numbers of "
      "elements differ, or the strides do not allow it.");
  c.def(
      "reshape_as", [](const Tensor& x, const Tensor& other) { return reshape(x, other.shape()); }, "other"_a,
      "The same elements in the shape of other, as reshape(other.shape): a view where possible, otherwise a copy. "
      "ValueError when the numbers of elements differ.");
  m.def(
      "broadcast_to", [](const Tensor& x, const DimsArg& size) { return expand(x, size); }, "input"_a, "size"_a,
      "The same as expand: a view in which dims of size 1 are repeated to `size`. ValueError where another size "
      "differs.");
  both(
      m, c, "flatten", &flatten, "start_dim"_a = 0, "end_dim"_a = -1,
      "The dimensions from start_dim to end_dim, both included, as one: a view where possible, otherwise a copy. A 0-d "
      "tensor gets the shape [1]. ValueError when start_dim comes after end_dim.");
  for (const char* name : {"transpose", "swapaxes"})
    both(m, c, name, &transpose, "dim0"_a, "dim1"_a,
         "A view with the dimensions dim0 and dim1 swapped. IndexError when one is out of range.");
  both(
      m, c, "t",
      [](const Tensor& x) {
        PF_CHECK(x.dim() <= 2, Value, "t: only for up to 2 dimensions; got shape {}", x.shape().str());
        return x.dim() == 2 ? transpose(x, 0, 1) : x;
      },
      "The transpose of a matrix, a view: [M, N] becomes [N, M]. A tensor of one or no dimension is returned as it is; "
      "ValueError for more than two.");
  both(
      m, c, "squeeze",
      [](const Tensor& x, const DimsArg& dim) {
        if (!dim.given) return squeeze(x);
        Dims d = dim.get();
        for (int64_t& v : d) v = normalize_dim("squeeze", v, x.dim());
        std::sort(d.begin(), d.end());
        Tensor y = x;
        for (int i = d.size() - 1; i >= 0; --i) y = squeeze(y, d[i]);
        return y;
      },
      "dim"_a.none() = nb::none(),
      "A view without the dims of size 1 (or without those of `dim` that have size 1). "
      "IndexError for a dim that is not there.");
  both(m, c, "unsqueeze", &unsqueeze, "dim"_a,
       "A view with a new dimension of size 1 at `dim`; a negative one counts from the end. IndexError out of range.");
  both(m, c, "narrow", &narrow, "dim"_a, "start"_a, "length"_a,
       "A view of `length` entries of a dim of input from `start` on. "
       "A negative start counts from the end. IndexError for a dim or a start that is not there, ValueError for a "
       "length that does not fit.");
  both(
      m, c, "select", [](const Tensor& x, int64_t dim, int64_t index) { return select(x, dim, index); }, "dim"_a,
      "index"_a,
      "A view of the entry `index` of a dimension; the result has one dimension fewer. IndexError when dim or index is "
      "out of range.");
  both(
      m, c, "as_strided",
      [](const Tensor& x, const DimsArg& size, const DimsArg& stride, std::optional<int64_t> offset) {
        return as_strided(x, size, stride, offset ? *offset : x.offset());
      },
      "size"_a, "stride"_a, "storage_offset"_a.none() = nb::none(),
      "A view with this shape, strides and offset in elements, which is the input's unless given. ValueError beyond "
      "the storage.\nsize, stride: sequences of equal length; a stride is 0 or more. storage_offset: counts from the "
      "beginning of the storage.");
  auto split_fn = [](const Tensor& x, nb::handle given, int64_t dim) {
    const Tensor* t = as_tensor(given);
    const nb::object size = t && t->dim() == 0 ? nb::object(given.attr("item")()) : nb::borrow(given);
    DimsArg d;
    PF_CHECK(dims_from(size, &d) && d.given, Type,
             "split: not a size; got {}; expected an integer or a sequence of integers", short_repr(given));
    return tuple_of(PyIndex_Check(size.ptr()) ? split(x, d.get()[0], dim) : split(x, d.get(), dim));
  };
  m.def("split", split_fn, "tensor"_a, "split_size_or_sections"_a, "dim"_a = 0,
        "Views of the tensor along a dim. split_size_or_sections: a number of entries for each view (the last may be "
        "smaller), "
        "or a list with the size of each view. "
        "Returns a tuple. ValueError for a size below 1 and for sizes that do not add up to that of the dim, "
        "IndexError for a dim that is not there, TypeError for what is no size.");
  c.def("split", split_fn, "split_size"_a, "dim"_a = 0,
        "Views along a dim of `split_size` entries each (the last may be smaller); a list has the size of each view.");
  both(
      m, c, "chunk", [](const Tensor& x, int64_t chunks, int64_t dim) { return tuple_of(chunk(x, chunks, dim)); },
      "chunks"_a, "dim"_a = 0,
      "At most this many views of equal size (the last may be smaller). "
      "Returns a tuple. ValueError for chunks below 1, IndexError for a dim that is not there.");
  both(
      m, c, "unbind",
      [](const Tensor& x, int64_t dim) {
        const int d = normalize_dim("unbind", dim, x.dim());
        nb::list parts;
        for (int64_t i = 0; i < x.shape()[d]; ++i) parts.append(select(x, d, i));
        return nb::tuple(parts);
      },
      "dim"_a = 0,
      "The entries of a dimension as a tuple of views, which have one dimension fewer. IndexError out of range.");
}

void bind_join(nb::module_& m) {
  for (const char* name : {"cat", "concat", "concatenate"})
    m.def(
        name, [](const Tensors& xs, int64_t dim) { return cat(xs, dim); }, "tensors"_a, "dim"_a = 0,
        "The tensors one after the other along a dim; all other sizes must agree. ValueError otherwise and for an "
        "empty list.");
  m.def(
      "stack", [](const Tensors& xs, int64_t dim) { return stack(xs, dim); }, "tensors"_a, "dim"_a = 0,
      "The tensors side by side along a new dim, in the dtype to which theirs are promoted. ValueError for different "
      "shapes and for an empty list; IndexError for a dim out of range.");
  m.def(
      "pad",
      [](const Tensor& x, const DimsArg& pads, const std::string& mode, std::optional<Scalar> value) {
        return pad(x, pads, mode, value.value_or(Scalar(0.0)));
      },
      "input"_a, "pad"_a, "mode"_a = "constant", "value"_a.none() = nb::none(),
      "input with a border. pad: (before, after) pairs from the last dim on; negative numbers crop.\n"
      "mode: 'constant', or of its own elements: 'reflect', 'replicate', 'circular'. value: that of 'constant', 0 "
      "unless "
      "given. "
      "ValueError for another mode, for an odd number of sizes, for more pairs than dims, and where more is cut off "
      "or reflected than there is.");
  m.def(
      "broadcast_tensors",
      [](nb::args tensors) {
        Dims shape;
        Tensors xs;
        for (nb::handle h : tensors) {
          const Tensor* t = as_tensor(h);
          PF_CHECK(t, Type, "broadcast_tensors: not a tensor; got {}", kind_name(h));
          xs.push_back(*t);
          shape = broadcast_shapes("broadcast_tensors", shape, t->shape());
        }
        for (Tensor& x : xs) x = expand(x, shape);
        return nb::tuple(nb::cast(xs));
      },
      "tensors"_a,
      "Views of all tensors in the shape to which they broadcast together, as a tuple. ValueError when they do not.");
}

// Indices of leading dims; None: all of a dim.
Tensors index_list(nb::handle indices) {
  Tensors list;
  for (nb::handle h : nb::tuple(indices)) {
    const Tensor* t = as_tensor(h);
    PF_CHECK(t || h.is_none(), Type, "index_put: not an index; got {}; expected tensors or None", short_repr(h));
    list.push_back(t ? *t : Tensor());
  }
  return list;
}

// What the Python functions of _scatters.py and _selections.py are made of.
void bind_writes(nb::module_& m) {
  m.def("_scatter",
        [](const Tensor& x, int64_t dim, const Tensor& index, const Value& src, int64_t how, bool in_place) {
          return (in_place ? scatter_ : scatter)(x, dim, index, src, static_cast<Combine>(how));
        });
  m.def("_put_slices",
        [](const Tensor& x, int64_t dim, const Tensor& index, const Value& src, int64_t how, bool in_place) {
          return (in_place ? put_slices_ : put_slices)(x, dim, index, src, static_cast<Combine>(how));
        });
  m.def("_index", [](const Tensor& x, nb::handle indices) { return index(x, index_list(indices)); });
  m.def("_index_put", [](const Tensor& x, nb::handle indices, const Value& value, bool accumulate, bool in_place) {
    return (in_place ? index_put_ : index_put)(x, index_list(indices), value, accumulate);
  });
  m.def("_true_positions", [](const Tensor& mask) { return true_positions(mask); });
  m.def("_true_positions",
        [](const Tensor& mask, int64_t size, int64_t fill) { return true_positions(mask, size, fill); });
  m.def("_searchsorted", &searchsorted);
  m.def("_draw_tokens", &draw_tokens, "logits"_a, "settings"_a,
        "(ids int64 [B], largest logits [B]): the choice of the next token from each row of logits [B, V] by settings "
        "[B, 5], which are temperature, top_k, top_p, min_p and a drawn number from 0 to 1; all float32. ValueError, "
        "TypeError.");
  m.def("_bin_sums", &bin_sums, "values"_a, "weights"_a, "scale"_a, "divide"_a, "start"_a, "bins"_a);
  m.def("_sorted_values", &sorted_values);
}

void bind_indices(nb::module_& m, TensorClass& c) {
  bind_writes(m);
  both(
      m, c, "gather", [](const Tensor& x, int64_t dim, const Tensor& index) { return gather(x, dim, index); }, "dim"_a,
      "index"_a,
      "out[i][j] = input[index[i][j]][j] for dim 0, likewise for others. index: int64 or int32, with as many dims as "
      "input; the result has its shape. IndexError out of range.");
  both(
      m, c, "scatter_add",
      [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
        return scatter_add(x, dim, index, src);
      },
      "dim"_a, "index"_a, "src"_a,
      "input plus src at index along dim, as a copy: out[index[i][j]][j] += src[i][j] for dim 0. Several that go to "
      "one place are all added. "
      "The dtypes of input and src are equal; index is int64 or int32; TypeError otherwise. ValueError where the "
      "numbers of dims differ, or where index is larger than input or src, IndexError for an index out of range.");
  both(
      m, c, "index_select",
      [](const Tensor& x, int64_t dim, const Tensor& index) { return index_select(x, dim, index); }, "dim"_a, "index"_a,
      "The entries of a dim that a 1-D int64 index names, in its order. IndexError out of range.");
  both(
      m, c, "index_add",
      [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::optional<Scalar> alpha) {
        return index_add(x, dim, index, alpha ? mul(src, *alpha) : src);
      },
      "dim"_a, "index"_a, "source"_a, nb::kw_only(), "alpha"_a.none() = nb::none(),
      "input plus the slices of source, times alpha, at the entries of dim that index names. "
      "The dtypes of input and source are equal; index is a vector of int64 or int32. TypeError for other dtypes, "
      "ValueError for other shapes, IndexError for an index or a dim out of range.");
  both(
      m, c, "take_along_dim",
      [](const Tensor& x, const Tensor& index, std::optional<int64_t> dim) { return take_along_dim(x, index, dim); },
      "indices"_a, "dim"_a.none() = nb::none(),
      "The elements along dim that indices names, as gather; the other dimensions broadcast. Without dim over the "
      "flattened input.\nindices: int64 or int32; TypeError otherwise. ValueError when the numbers of dimensions "
      "differ.");
  both(m, c, "tril", &tril, "diagonal"_a = 0,
       "The lower triangle of the last two dims; zero above the diagonal. "
       "ValueError for fewer than two dims.");
  both(m, c, "triu", &triu, "diagonal"_a = 0,
       "The upper triangle of the last two dims; zero below the diagonal. "
       "ValueError for fewer than two dims.");
}

}  // namespace

void bind_shape_ops(nb::module_& m, TensorClass& c) {
  bind_views(m, c);
  bind_join(m);
  bind_indices(m, c);
}

}  // namespace pyflame::python
