"""Writing by index. The C++ functions behind them combine what an index leads to one place in order, so results repeat on every device."""
import math

from . import _C
from ._C import Tensor
from ._error_names import check_dim, named, rename
from ._public import method

__all__ = ["index_copy", "index_fill", "index_put", "index_put_", "index_reduce", "masked_scatter", "put", "scatter", "scatter_reduce"]

_REPLACE, _SUM, _PRODUCT, _LARGEST, _SMALLEST = range(5)  # Combine of ops/attrs.h
_INTEGERS = {_C.uint8: (0, 8), _C.int8: (-2**7, 8), _C.int16: (-2**15, 16), _C.int32: (-2**31, 32), _C.int64: (-2**63, 64)}  # lowest number, bits
_BY_NAME = {"sum": _SUM, "mean": _SUM, "prod": _PRODUCT, "amax": _LARGEST, "amin": _SMALLEST}


def _no_effect_on(dtype, reduce):
    """The number that a reduction ignores."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    if dtype == _C.bool_:
        return reduce == "amin"
    lowest, bits = _INTEGERS[dtype]
    return lowest if reduce == "amax" else lowest + 2**bits - 1


def _reduced(write, input, dim, index, src, reduce, include_self, op, names):
    """scatter_reduce and index_reduce; `write` is the C++ function that writes."""
    if reduce not in names:
        raise RuntimeError(f"{op}: unknown reduction; got '{reduce}'; expected one of {', '.join(names)}")
    if reduce == "mean" and input.dtype == _C.bool_:
        raise TypeError(f"{op}: no mean of bools; got bool; expected a number dtype")
    if reduce not in ("sum", "mean") and input.is_complex():
        raise TypeError(f"{op}: '{reduce}' is not available for complex tensors; got {input.dtype}; expected a real dtype; hint: real(), imag() or abs()")
    if not include_self:
        input = write(input, dim, index, _no_effect_on(input.dtype, reduce), _REPLACE, False)
    result = write(input, dim, index, src, _BY_NAME[reduce], False)
    if reduce != "mean":
        return result
    number = _C.ones_like(input) if include_self else _C.zeros_like(input)
    number = write(number, dim, index, 1, _SUM, False)
    number = _C.where(number == 0, 1, number).to(input.dtype)
    return result / number if input.is_floating_point() or input.is_complex() else _C.floor_divide(result, number)


# ---- one index for each element


def _scatter_arguments(src, value):
    if (src is None) == (value is None):
        raise TypeError("scatter: neither or both of src and value; got " + ("none" if src is None else "both") + "; expected one")
    return value if src is None else src


def _scatter_how(reduce):
    how = {None: _REPLACE, "add": _SUM, "multiply": _PRODUCT}
    if reduce not in how:
        raise RuntimeError(f"scatter: unknown reduction; got '{reduce}'; expected 'add' or 'multiply'; hint: scatter_reduce() has others")
    return how[reduce]


@method
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """A copy of input with src, a tensor or a number, written at index along dim: out[index[i][j]][j] = src[i][j] for dim 0.

    value: a number, in place of src. TypeError unless exactly one of them is given.
    reduce 'add' or 'multiply' combines with what is there. Of several that go to one place, the last counts. IndexError out of range.
    """
    return _C._scatter(input, dim, index, _scatter_arguments(src, value), _scatter_how(reduce), False)


def _scatter_(input, dim, index, src=None, *, value=None, reduce=None):
    """Writes src, a tensor, or value, a number, at index along dim of the tensor itself, as scatter does to a copy. Returns the tensor itself.

    TypeError unless exactly one of src and value is given, and for a src of another dtype. IndexError for an index out of range. RuntimeError for a
    leaf that requires a gradient, except under no_grad.
    """
    _C._scatter(input, dim, index, _scatter_arguments(src, value), _scatter_how(reduce), True)
    return input


def _scatter_add_(input, dim, index, src):
    """Adds src at index along dim of the tensor itself, as scatter_add does to a copy. Returns the tensor itself.

    TypeError for a src of another dtype. IndexError for an index out of range. RuntimeError for a leaf that requires a gradient, except under no_grad.
    """
    try:
        _C._scatter(input, dim, index, src, _SUM, True)
        return input
    except Exception as error:
        rename("scatter_add_", error, (input, dim, index, src))
        raise


_scatter_.__name__, _scatter_add_.__name__ = "scatter_", "scatter_add_"
Tensor.scatter_, Tensor.scatter_add_ = _scatter_, _scatter_add_


@method
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """A copy of input with elements of src combined at index along dim: reduce is 'sum', 'prod', 'mean', 'amax' or 'amin'. Without include_self, elements of
    input that an index leads to do not take part. The gradient of the extremes is shared evenly among equals.

    With dim=0 and 2 dims, src[i, j] goes to result[index[i, j], j]. index: int64 or int32, as many dims as input, no size larger than src's, and none but that
    of dim larger than input's. The result has input's shape and dtype, which src must have. TypeError for other dtypes, and for the extremes of complex ones;
    ArgumentError for sizes that do not fit; RuntimeError for another reduce; IndexError for a dim out of range, and for such an index when the result is read.
    """
    with named("scatter_reduce", "scatter", "scatter_add"):
        return _reduced(_C._scatter, input, dim, index, src, reduce, include_self, "scatter_reduce", _BY_NAME)


# ---- one index for each slice


def _from_the_end(index, size):
    """Negative entries count from the end."""
    return _C.where(index < 0, index + size, index) if index.numel() else index


def _size(input, dim):
    check_dim("index_copy", dim, input.ndim)
    return input.shape[dim] if input.ndim else 1


def _as_slices(input, source):
    """A scalar is one slice of a vector."""
    return source.reshape(1) if source.ndim == 0 and input.ndim == 1 else source


@method
def index_copy(input, dim, index, source):
    """A copy of input with the slices of source at the entries of index along dim. Of several that go to one place, the last counts.

    index: a vector [K] of indices that are not negative. source: the shape of input with K along dim, and input's dtype; TypeError for another dtype. ArgumentError for
    sizes that do not fit; IndexError for a dim out of range, and for such an index when the result is read.
    """
    return _C._put_slices(input, dim, index, _as_slices(input, source), _REPLACE, False)


def _index_copy_(input, dim, index, source):
    """Writes the slices of source at the entries of index along dim of the tensor itself, as index_copy does to a copy. Returns the tensor itself.

    ArgumentError for a shape that does not fit, TypeError for a source of another dtype, IndexError for an index out of range. RuntimeError for a
    leaf that requires a gradient, except under no_grad.
    """
    try:
        _C._put_slices(input, dim, index, _as_slices(input, source), _REPLACE, True)
        return input
    except Exception as error:
        rename("index_copy_", error, (input, dim, index, source))
        raise


def _fill_value(input, value):
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(f"index_fill: not one value; got shape {tuple(value.shape)}; expected a number or a 0-d tensor")
    if not input.is_complex() and (value.is_complex() if isinstance(value, Tensor) else isinstance(value, complex)):
        raise TypeError(f"index_fill: a complex number for a real dtype; got {input.dtype}; expected complex64 or complex128")
    return value.to(input.dtype) if isinstance(value, Tensor) else value


def _filled(input, dim, index, value, in_place):
    value, index = _fill_value(input, value), _from_the_end(index, _size(input, dim))
    if isinstance(value, Tensor) and value.requires_grad and not in_place:  # an index may occur twice
        return _C.where(_C._put_slices(_C.zeros(input.shape, dtype=_C.bool_, device=input.device), dim, index, True, _REPLACE, True), value, input)
    if isinstance(value, Tensor):
        at = dim % max(input.ndim, 1)
        value = value.expand(*[index.numel() if d == at else n for d, n in enumerate(input.shape or (1,))])
    return _C._put_slices(input, dim, index, value, _REPLACE, in_place)


@method
def index_fill(input, dim, index, value):
    """A copy of input with a number, or a 0-d tensor, in the slices at the entries of index along dim; negative ones count from the end.

    input: of any shape. index: a vector of integers. value: is cast to the dtype of input.

    IndexError for a dim that is not there, and for an entry of index out of range, for the latter when the numbers are computed. ValueError for an index
    that is no vector, RuntimeError for a value with dims, TypeError for an index that is not of integers.
    """
    with named("index_fill", "index_copy"):
        return _filled(input, dim, index, value, False)


def _index_fill_(input, dim, index, value):
    """Writes value, a number or a 0-d tensor, to the slices at the entries of index along dim of the tensor itself, as index_fill does to a copy.
    Returns the tensor itself.

    ArgumentError unless index is a vector. RuntimeError for a leaf that requires a gradient, except under no_grad.
    """
    with named("index_fill_", "index_copy", "index_copy_"):
        if isinstance(value, Tensor) and value.requires_grad and _C.is_grad_enabled():
            return input.copy_(_filled(input.clone(), dim, index, value, False))
        _filled(input, dim, index, value, True)
        return input


def _index_add_(input, dim, index, source, *, alpha=1):
    """Adds the slices of source, times alpha, at the entries of index along dim of the tensor itself, as index_add does to a copy. Returns the tensor
    itself.

    TypeError for a source of another dtype, IndexError for an index out of range. RuntimeError for a leaf that requires a gradient, except under no_grad.
    """
    try:
        _C._put_slices(input, dim, index, source if alpha == 1 else source * alpha, _SUM, True)
        return input
    except Exception as error:
        rename("index_add_", error, (input, dim, index, source))
        raise


_index_copy_.__name__, _index_fill_.__name__, _index_add_.__name__ = "index_copy_", "index_fill_", "index_add_"
Tensor.index_copy_, Tensor.index_fill_, Tensor.index_add_ = _index_copy_, _index_fill_, _index_add_


@method
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """Slices of source combined at the entries of index along dim: reduce is 'prod', 'mean', 'amax' or 'amin'; include_self as in scatter_reduce.

    input: of any shape; the result has its shape and dtype. index: a vector of integers from 0 to the size of dim - 1. source: of the dtype and
    shape of the input, except that its size along dim is that of index.

    IndexError for a dim that is not there, and for entries out of range. RuntimeError for another reduce. ValueError where source does not fit. TypeError
    where the dtypes differ.
    """
    with named("index_reduce", "index_copy", "index_add"):
        return _reduced(_C._put_slices, input, dim, index, source, reduce, include_self, "index_reduce", ("prod", "mean", "amax", "amin"))


# ---- several index tensors, masks and flat positions


def _sequence(op, indices):
    if not isinstance(indices, (tuple, list, _C.Tensor)):
        raise TypeError(f"{op}: indices are not a tuple; got {type(indices).__name__}; expected a tuple of tensors")
    return indices


@method
def index_put(input, indices, values, accumulate=False):
    """A copy of input with input[indices] = values; indices is a tuple of tensors of integers or bools, at least one. accumulate adds instead. values broadcast to input[indices].

    Of several values that go to one place, the last counts. A mask's true elements are counted: a sync point. IndexError without an index.
    """
    return _C._index_put(input, _sequence("index_put", indices), values, accumulate, False)


@method
def index_put_(input, indices, values, accumulate=False):
    """Writes values to input[indices] in place, as index_put does to a copy; with accumulate, adds them. Returns input.

    The arguments are those of index_put. RuntimeError for values of another dtype; for a leaf that requires a gradient,
    except under no_grad. IndexError for an index out of range.
    """
    _C._index_put(input, _sequence("index_put_", indices), values, accumulate, True)
    return input


@method
def put(input, index, source, accumulate=False):
    """A copy of input with source at flat positions, which count from the end where they are negative. accumulate adds instead.

    index: the positions, integers. source: as many elements, of the dtype of input. IndexError where the numbers differ, or a position is out of range.
    """
    if index.numel() != source.numel():
        raise IndexError(f"put: not one element for each index; got {source.numel()} for {index.numel()}; expected as many")
    if index.numel() and not input.numel():
        raise IndexError(f"put: index out of range; got {index.numel()} positions in an input without elements; expected none")
    flat = _C._index_put(input.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate, False)
    return flat.reshape(input.shape)


@method
def masked_scatter(input, mask, source):
    """A copy of input with the elements of source, in order, where the bool mask is true. Input and mask broadcast to the shape of the result.

    source: of any shape and input's dtype, which the result has. RuntimeError where source has too few elements, for another dtype, and for a mask that is
    not bool; ArgumentError for shapes that do not broadcast. The true elements are counted: a sync point.
    """
    if mask.dtype != _C.bool_:
        raise RuntimeError(f"masked_scatter: the mask is not bool; got {mask.dtype}; expected bool")
    if input.dtype != source.dtype:
        raise RuntimeError(f"masked_scatter: dtypes differ; got {input.dtype} and {source.dtype}; expected equal dtypes")
    input, mask = _C.broadcast_tensors(input, mask)
    at = _C._true_positions(mask)
    n = at.shape[0]
    if source.numel() < n:
        raise RuntimeError(f"masked_scatter: too few elements; got {source.numel()} for {n} true elements of the mask")
    return _C._index_put(input.reshape(-1), (at,), source.reshape(-1).narrow(0, 0, n), False, False).reshape(input.shape)
