"""Functions whose results have as many elements as values say. They read that number, which is a sync point."""
from __future__ import annotations

import math

from . import _C
from ._C import Tensor
from ._public import method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any, Literal, overload

    from ._annotations import Operand, Shape, TensorLike
else:
    from ._public import overload

__all__ = ["argwhere", "bincount", "isin", "masked_select", "nonzero", "nonzero_static", "take", "unique", "unique_consecutive", "unravel_index", "where"]


def _true(input):
    return input if input.dtype == _C.bool_ else input != 0


def _coordinates(flat, shape):
    """The index along each dim of flat positions."""
    parts = []
    for n in reversed(shape):
        parts.append(flat % n if n else flat)
        flat = flat // n if n else flat
    return tuple(reversed(parts))


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...


@overload
def nonzero(input: Tensor, *, as_tuple: bool) -> Tensor | tuple[Tensor, ...]: ...


@method
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The indices of all elements that are not zero, in order: [number, dims] as int64, or with as_tuple one vector for each dim.

    The number of elements is read: a sync point.

    input: any shape and dtype. TypeError for what is not a tensor.
    """
    if input.ndim == 0 and as_tuple:
        input = input.reshape(1)
    flat = _C._true_positions(_true(input))
    if input.ndim == 0:
        return _C.zeros((flat.shape[0], 0), dtype=_C.int64, device=input.device)
    parts = _coordinates(flat, input.shape)
    return parts if as_tuple else _C.stack(list(parts), 1)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Tensor, input: Operand, other: Operand, **others: Any) -> Tensor: ...


def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None, **others: Any) -> Tensor | tuple[Tensor, ...]:
    """input where the bool condition holds, otherwise other; all three broadcast. Of the condition alone: nonzero(condition, as_tuple=True).

    input, other: tensors or numbers. others: out, and NumPy's words for the arguments.

    ValueError where the shapes do not broadcast. TypeError for a condition that is neither bool nor uint8, and where only one of input and other is given.
    """
    if input is None and other is None and not others:
        return nonzero(condition, as_tuple=True)
    return _C.where(condition, input, other, **others) if others else _C.where(condition, input, other)


@method
def nonzero_static(input: Tensor, *, size: int, fill_value: float = -1) -> Tensor:
    """The indices of the first `size` elements that are not zero: [size, dims] as int64. Rows that are left are fill_value. Nothing is read.

    ValueError for a negative size. TypeError for a size that is no integer, for a fill_value that is no number, and for what is not a tensor.
    """
    flat = _C._true_positions(_true(input), size, -1)
    if input.ndim == 0:
        return _C.zeros((size, 0), dtype=_C.int64, device=input.device)
    there = flat >= 0
    return _C.stack([_C.where(there, part, fill_value) for part in _coordinates(flat, input.shape)], 1)


def unravel_index(indices: Tensor, shape: int | Shape) -> tuple[Tensor, ...]:
    """Flat positions as a tuple of indices for each dim of a shape: 5 in (2, 3) is (1, 2).

    indices: of any shape and integer dtype. Those outside of the shape are not an error: they count modulo its number of elements. ValueError for other dtypes
    and for a negative size.
    """
    shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if indices.is_floating_point() or indices.dtype == _C.bool_:
        raise ValueError(f"unravel_index: not integers; got {indices.dtype}; expected an integer dtype")
    if any(n < 0 for n in shape):
        raise ValueError(f"unravel_index: a negative size; got {shape}; expected 0 or more")
    return _coordinates(indices, shape)


@method
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not 0, as nonzero: int64 [K, ndim], in the order of the elements. Their number is read, a sync point.

    input: any shape and dtype.

    TypeError for what is not a tensor.
    """
    return nonzero(input)


@method
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of input where the bool mask is true, as a vector; both broadcast. Their number is read: a sync point.

    input: of any dtype, which the result has. RuntimeError for a mask that is not bool; ArgumentError for shapes that do not broadcast.
    """
    if mask.dtype != _C.bool_:
        raise RuntimeError(f"masked_select: the mask is not bool; got {mask.dtype}; expected bool; hint: compare with 0")
    input, mask = _C.broadcast_tensors(input, mask)
    return input.reshape(-1).index_select(0, _C._true_positions(mask))


@method
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at flat positions, in the shape of index; negative ones count from the end. IndexError out of range, at the read."""
    n = input.numel()
    at = index.reshape(-1)
    at = _C.where(at < 0, at + n, at)
    return input.reshape(-1).index_select(0, at).reshape(index.shape)


@method
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number occurs in a vector of integers that are not negative, or the sum of their weights. Its size is read: a sync point.

    input: [N], of an integer dtype. weights: [N]; the result has their dtype if it is float32, otherwise float64; without weights it is int64. minlength: the least size.
    RuntimeError for negative numbers, other shapes and dtypes.
    """
    if input.ndim != 1 or input.is_floating_point():
        raise RuntimeError(f"bincount: not a vector of integers; got shape {tuple(input.shape)} and {input.dtype}")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError(f"bincount: not one weight for each number; got weights of shape {tuple(weights.shape)}; expected {tuple(input.shape)}")
    if minlength < 0:
        raise RuntimeError(f"bincount: a negative minlength; got {minlength}; expected 0 or more")
    with _C._CutCause("the range of the numbers, because the size of the result depends on the data"):
        least, most = _C.stack([input.min(), input.max()]).tolist() if input.shape[0] else (0, -1)
    if least < 0:
        raise RuntimeError(f"bincount: a negative number; got {least}; expected 0 or more")
    size = max(most + 1, minlength)
    if weights is None:
        return _C._scatter(_C.zeros(size, dtype=_C.int64, device=input.device), 0, input.to(_C.int64), 1, 1, True)
    values = weights if weights.dtype == _C.float32 else weights.double()
    counts = _C.zeros(size, dtype=values.dtype, device=input.device)
    return counts.scatter_add(0, input.to(_C.int64), values) if input.shape[0] else counts


def isin(elements: TensorLike, test_elements: TensorLike, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is one of the test elements, as bool. Either may be a number. Many test elements are sorted and searched.

    elements, test_elements: at least one of them is a tensor. invert: whether each element is none of them. assume_unique is accepted for PyTorch's programs and changes nothing.

    The result has the shape of elements. TypeError where both are numbers, and for what no tensor can be made of.
    """
    numbers = [x for x in (elements, test_elements) if isinstance(x, Tensor)]
    if not numbers:
        raise TypeError(f"isin: no tensor; got {type(elements).__name__} and {type(test_elements).__name__}")
    device = numbers[0].device
    a, b = (x if isinstance(x, Tensor) else _C.tensor(x, device=device) for x in (elements, test_elements))
    n = b.numel()
    if n == 0:
        found = _C.zeros(a.shape, dtype=_C.bool_, device=device)
    elif n <= 16 or a.dtype != b.dtype:
        found = (a.unsqueeze(-1) == b.reshape(-1)).any(-1)
    else:
        ordered = _C._sorted_values(b.reshape(-1), 0, False)
        at = _C.clamp(_C._searchsorted(ordered, a, False), max=n - 1).reshape(-1)
        found = ordered.index_select(0, at).reshape(a.shape) == a
    return _C.logical_not(found) if invert else found


# ---- groups of equal elements


def _differ(slices):
    """Whether each slice along dim 0 differs from the one before. The first one does."""
    n = slices.shape[0]
    if n == 0:
        return _C.zeros(0, dtype=_C.bool_, device=slices.device)
    other = slices.narrow(0, 1, n - 1) != slices.narrow(0, 0, n - 1)
    for d in range(slices.ndim - 1, 0, -1):
        other = other.any(d)
    return _C.cat([_C.ones(1, dtype=_C.bool_, device=slices.device), other], 0)


def _groups(slices, first, return_inverse, return_counts):
    """The first slice of each group; the group of each slice; the sizes of the groups."""
    starts = _C._true_positions(first)
    n, inverse, counts = slices.shape[0], None, None
    if return_inverse:
        inverse = _C.cumsum(first.to(_C.int64), 0) - 1
    if return_counts:
        counts = _C.cat([starts, _C.full((1,), n, dtype=_C.int64, device=starts.device)], 0)
        counts = counts.narrow(0, 1, starts.shape[0]) - starts
    return slices.index_select(0, starts), inverse, counts


def _results(values, inverse, counts):
    results = [r for r in (values, inverse, counts) if r is not None]
    return results[0] if len(results) == 1 else tuple(results)


def _as_rows(op, input, dim):
    """The slices along dim as the first dim; and back."""
    if not -max(input.ndim, 1) <= dim < max(input.ndim, 1):
        raise IndexError(f"{op}: no such dim; got {dim} for shape {tuple(input.shape)}")
    if input.ndim < 2:
        return input.reshape(-1), lambda t: t
    dim %= input.ndim
    return input.transpose(0, dim).contiguous(), lambda t: t.transpose(0, dim).contiguous()


@overload
def unique_consecutive(input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None) -> Tensor: ...


@overload
def unique_consecutive(input: Tensor, *, return_inverse: Literal[True], return_counts: bool = False, dim: int | None = None) -> tuple[Tensor, ...]: ...


@overload
def unique_consecutive(input: Tensor, return_inverse: bool = False, *, return_counts: Literal[True], dim: int | None = None) -> tuple[Tensor, ...]: ...


@overload
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Tensor | tuple[Tensor, ...]: ...


@method
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Tensor | tuple[Tensor, ...]:
    """The elements, or the slices along dim, without those that equal the one before; with the group of each one, and the size of each group.

    input: any shape. return_inverse: the group of each one is asked for; it has the input's shape, or with dim the size of that dim. return_counts: the sizes are. The result
    is one tensor, or a tuple. The number of groups is read: a sync point.

    TypeError for what is not a tensor. IndexError for a dim that is not there.
    """
    slices, back = (input.reshape(-1), lambda t: t) if dim is None else _as_rows("unique_consecutive", input, dim)
    values, inverse, counts = _groups(slices, _differ(slices), return_inverse, return_counts)
    if inverse is not None and dim is None:
        inverse = inverse.reshape(input.shape)
    return _results(back(values), inverse, counts)


def _lexicographic(rows):
    """The order that sorts rows by their first column, then by the second, and so on."""
    rows = rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))
    order = None
    for column in reversed(range(rows.shape[1])):
        keys = rows.select(1, column)
        here = _C.sort(keys if order is None else keys.index_select(0, order), 0)[1]
        order = here if order is None else order.index_select(0, here)
    return _C.arange(rows.shape[0], device=rows.device) if order is None else order


_COUNTED_FROM = 1 << 14  # elements; for fewer, reading their range takes longer than sorting them


def _counted(flat, return_inverse, return_counts):
    """The groups of integers whose range is not larger than their number, by counting each; None for others. The range is read."""
    n, dtype = flat.shape[0], flat.dtype
    if n < _COUNTED_FROM or dtype == _C.bool_ or dtype.is_floating_point or dtype.is_complex:
        return None
    with _C._CutCause("the range of the numbers, because the size of the result depends on the data"):
        least, most = _C.stack([flat.min(), flat.max()]).tolist()
    if most - least >= n:
        return None
    at = flat.to(_C.int64) - least
    sizes = _C._scatter(_C.zeros(most - least + 1, dtype=_C.int64, device=flat.device), 0, at, 1, 1, True)
    here = sizes > 0
    values = _C._true_positions(here)
    inverse = (_C.cumsum(here.to(_C.int64), 0) - 1).index_select(0, at) if return_inverse else None
    return (values + least).to(dtype), inverse, sizes.index_select(0, values) if return_counts else None


@overload
def unique(input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None) -> Tensor: ...


@overload
def unique(input: Tensor, sorted: bool = True, *, return_inverse: Literal[True], return_counts: bool = False, dim: int | None = None) -> tuple[Tensor, ...]: ...


@overload
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, *, return_counts: Literal[True], dim: int | None = None) -> tuple[Tensor, ...]: ...


@overload
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Tensor | tuple[Tensor, ...]: ...


@method
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> Tensor | tuple[Tensor, ...]:
    """The different elements in ascending order, or the different slices along dim in lexicographic order; with the place of each one among
    them (return_inverse), and how often each occurs (return_counts): one tensor, or a tuple with those that are asked for.

    input: any shape. The places have the input's shape, or with dim the size of that dim. sorted changes nothing: they are always sorted. Their number is read, and the range of many integers: sync points.

    TypeError for complex numbers and for what is not a tensor. IndexError for a dim that is not there.
    """
    if dim is None:
        flat = input.detach().reshape(-1)
        if (counted := _counted(flat, return_inverse, return_counts)) is not None:
            values, inverse, counts = counted
            return _results(values, None if inverse is None else inverse.reshape(input.shape), counts)
        slices, order = _C.sort(flat, 0) if return_inverse else (_C._sorted_values(flat, 0, False), None)
        back = lambda t: t  # noqa: E731
    else:
        rows, back = _as_rows("unique", input.detach(), dim)
        if rows.ndim == 1:
            slices, order = _C.sort(rows, 0)
        else:
            order = _lexicographic(rows)
            slices = rows.index_select(0, order)
    values, inverse, counts = _groups(slices, _differ(slices), return_inverse, return_counts)
    if inverse is not None:
        inverse = _C._scatter(_C.empty_like(inverse), 0, order, inverse, 0, True)
        inverse = inverse.reshape(input.shape) if dim is None else inverse
    return _results(back(values), inverse, counts)
