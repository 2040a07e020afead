"""Functions on shapes that are composed of others: joins, splits, repetitions, diagonals, grids."""
from __future__ import annotations

import itertools
import math

from . import _C
from ._C import Tensor
from ._dtypes import result_type
from ._error_names import rename
from ._public import method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import overload

    from ._C import Size
    from ._annotations import DType, Device, Dim, Operand, Shape
else:
    from ._public import overload

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "cartesian_prod", "column_stack", "combinations", "diag", "diag_embed", "diagflat",
           "diagonal", "diagonal_scatter", "dsplit", "dstack", "flip", "fliplr", "flipud", "hsplit", "hstack", "kron", "meshgrid", "moveaxis", "movedim", "narrow_copy", "ravel",
           "repeat_interleave", "roll", "rot90", "row_stack", "select_scatter", "slice_scatter", "swapdims", "tensor_split", "tile", "trace", "tril_indices", "triu_indices",
           "unflatten", "unfold_copy", "vsplit", "vstack"]


def _wrap(op, dim, rank):
    """A dim counted from the front. IndexError where there is no such dim."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"{op}: no such dim; got {dim}; expected {-max(rank, 1)} to {max(rank, 1) - 1}")
    return dim % max(rank, 1)


def _of_own_elements(input):
    """A copy where elements share memory, as after expand(), and a gradient is recorded: the gradient of as_strided() needs elements of their own."""
    shared = any(stride == 0 and size > 1 for size, stride in zip(input.shape, input.stride()))
    return input.clone() if shared and input.requires_grad and _C.is_grad_enabled() else input


def _sizes(sizes):
    """Sizes that were given one by one, or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) and getattr(sizes[0], "ndim", 1) else tuple(sizes)


def _many(tensors):
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def _all_tensors(name, tensors):
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}: an entry is not a tensor; got {type(t).__name__} at position {i}; expected tensors")


def broadcast_shapes(*shapes: int | Shape) -> Size:
    """The shape that tensors of these shapes broadcast to. RuntimeError where they do not."""
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    result = []
    for sizes in itertools.zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise RuntimeError(f"broadcast_shapes: the shapes do not broadcast; got {', '.join(map(str, shapes))}; expected equal sizes or 1, from the right")
        result.append(wide.pop() if wide else 1)
    return _C.Size(reversed(result))


# ---- more dims


def _at_least(name, tensors, reshape):
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return reshape(tensors[0])
    tensors = _many(tensors)
    _all_tensors(name, tensors)
    return tuple(reshape(t) for t in tensors)


@overload
def atleast_1d(tensor: Tensor, /) -> Tensor: ...


@overload
def atleast_1d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...


@overload
def atleast_1d(tensor1: Tensor, tensor2: Tensor, /, *tensors: Tensor) -> tuple[Tensor, ...]: ...


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Scalars as tensors of shape (1,); all others as they are. One tensor or several. TypeError for what is not a tensor."""
    return _at_least("atleast_1d", tensors, lambda t: t.reshape(1) if t.ndim == 0 else t)


@overload
def atleast_2d(tensor: Tensor, /) -> Tensor: ...


@overload
def atleast_2d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...


@overload
def atleast_2d(tensor1: Tensor, tensor2: Tensor, /, *tensors: Tensor) -> tuple[Tensor, ...]: ...


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """A view with at least two dims: () becomes (1, 1), (n,) becomes (1, n), and other shapes stay. TypeError for what is not a tensor."""
    return _at_least("atleast_2d", tensors, lambda t: t.reshape(1, 1) if t.ndim == 0 else t.unsqueeze(0) if t.ndim == 1 else t)


@overload
def atleast_3d(tensor: Tensor, /) -> Tensor: ...


@overload
def atleast_3d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...


@overload
def atleast_3d(tensor1: Tensor, tensor2: Tensor, /, *tensors: Tensor) -> tuple[Tensor, ...]: ...


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """A view with at least three dims: (n,) becomes (1, n, 1), and (m, n) becomes (m, n, 1). TypeError for what is not a tensor."""
    def view(t):
        return t.reshape(1, 1, 1) if t.ndim == 0 else t.unsqueeze(0).unsqueeze(-1) if t.ndim == 1 else t.unsqueeze(-1) if t.ndim == 2 else t

    return _at_least("atleast_3d", tensors, view)


@method
def ravel(input: Tensor) -> Tensor:
    """All elements in one dim, in the order of the input: a view where its strides allow one, otherwise a copy.

    TypeError for what is not a tensor.
    """
    return input.reshape(-1)


@method
def unflatten(input: Tensor, dim: int, sizes: Shape) -> Tensor:
    """One dim as several. One of the sizes may be -1. ValueError where their product is not the dim's size."""
    dim = _wrap("unflatten", dim, input.ndim)
    sizes, n = list(sizes), input.shape[dim]
    if -1 in sizes:
        rest = -math.prod(sizes)
        if rest == 0:
            raise ValueError(f"unflatten: -1 is ambiguous next to a size of 0; got {tuple(sizes)} for {n}")
        sizes[sizes.index(-1)] = n // rest
    if math.prod(sizes) != n:
        raise ValueError(f"unflatten: the sizes do not multiply to the dim's; got {tuple(sizes)} for {n}; expected a product of {n}")
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1:])


@method
def movedim(input: Tensor, source: Dim, destination: Dim) -> Tensor:
    """A view of input with the dims source at the places destination, a number or several each; the others keep their order.

    IndexError for a dim out of range; ValueError unless there are as many different dims on both sides.
    """
    source = [source] if isinstance(source, int) else list(source)
    destination = [destination] if isinstance(destination, int) else list(destination)
    source, destination = ([_wrap("movedim", d, input.ndim) for d in dims] for dims in (source, destination))
    if len(source) != len(destination) or len(set(source)) != len(source) or len(set(destination)) != len(destination):
        raise ValueError(f"movedim: not one destination for each source; got {source} and {destination}; expected as many different dims")
    rest = iter(d for d in range(input.ndim) if d not in source)
    at = dict(zip(destination, source))
    return input.permute(*[at[d] if d in at else next(rest) for d in range(input.ndim)]) if input.ndim else input


@method
def moveaxis(input: Tensor, source: Dim, destination: Dim) -> Tensor:
    """The same as movedim: a view of input with the dims source at the places destination, and the others in their order.

    IndexError for a dim that is out of range; ValueError unless there is one destination for each source.
    """
    return movedim(input, source, destination)


@method
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """The same as transpose: a view with dim0 and dim1 exchanged. IndexError for a dim that is not there."""
    return input.transpose(dim0, dim1)


# ---- joins and splits


def hstack(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors joined along the second dim; vectors and single numbers along their only one. ArgumentError where the other sizes differ, and for no tensors."""
    tensors = [atleast_1d(t) for t in tensors]
    return _C.cat(tensors, 1 if tensors and tensors[0].ndim > 1 else 0)


def vstack(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors joined along the first dim; a vector [N] counts as a row [1, N]. ArgumentError where the other sizes differ, and for no tensors."""
    return _C.cat([atleast_2d(t) for t in tensors], 0)


def row_stack(tensors: Iterable[Tensor]) -> Tensor:
    """The same as vstack: tensors joined along the first dim, vectors as rows. ArgumentError where the other sizes differ."""
    return vstack(tensors)


def dstack(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors joined along the third dim, which is made where it is missing.

    ValueError for no tensors, and for sizes that differ outside of the third dim. TypeError for what is not a tensor.
    """
    tensors = list(tensors)
    _all_tensors("dstack", tensors)
    return _C.cat([atleast_3d(t) for t in tensors], 2)


def column_stack(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors joined along the second dim; vectors are columns: [N], [N, M] -> [N, 1 + M].

    tensors: a list of tensors of one first size. ArgumentError for none, and for sizes that differ outside of the second dim.
    """
    return _C.cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors], 1)


def _parts(op, *words):
    """The one argument of three words that says where to split."""
    given = [w for w in words if w is not None]
    if len(given) != 1:
        raise TypeError(f"{op}: no single number of parts or list of indices; got {len(given)} of indices_or_sections, indices and sections; expected one of them")
    return given[0]


@method
def tensor_split(input: Tensor, indices_or_sections: Tensor | Dim | None = None, dim: int = 0, *, indices: Tensor | Sequence[int] | None = None,
                 sections: Tensor | int | None = None) -> tuple[Tensor, ...]:
    """Views of parts along a dim: that many parts, the first ones longer by one where they are not equal; or parts that end at the indices.

    indices_or_sections: a number of parts, or a sequence of indices; indices and sections are other words for it.
    ValueError for fewer than 1 part. IndexError for a dim that is not there, and for an input without dims. TypeError without indices_or_sections.
    """
    indices_or_sections = _parts("tensor_split", indices_or_sections, indices, sections)
    if not input.ndim:
        raise IndexError("tensor_split: a tensor without dims has no parts; got shape (); expected one dim or more")
    dim = _wrap("tensor_split", dim, input.ndim)
    n = input.shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ValueError(f"tensor_split: no parts; got {indices_or_sections}; expected at least 1")
        size, longer = divmod(n, indices_or_sections)
        ends = [(i + 1) * size + min(i + 1, longer) for i in range(indices_or_sections - 1)]
    else:
        ends = [min(max(e + n if e < 0 else e, 0), n) for e in indices_or_sections]
    starts = [0, *ends]
    return tuple(input.narrow(dim, s, max(e - s, 0)) for s, e in zip(starts, [*ends, n]))


def _split_evenly(op, input, parts, dim):
    needed = {"hsplit": 1, "vsplit": 2, "dsplit": 3}[op]
    if input.ndim < needed:
        raise ValueError(f"{op}: too few dims; got shape {tuple(input.shape)}; expected at least {needed}")
    if isinstance(parts, int) and (parts < 1 or input.shape[dim] % parts):
        raise ValueError(f"{op}: the dim does not divide into equal parts; got {input.shape[dim]} for {parts} parts; hint: tensor_split()")
    return tensor_split(input, parts, dim)


@method
def hsplit(input: Tensor, indices_or_sections: Tensor | Dim | None = None, *, indices: Tensor | Sequence[int] | None = None,
           sections: int | None = None) -> tuple[Tensor, ...]:
    """tensor_split along the second dim (of a vector: the first). ValueError for a number of parts that does not divide the size, and for no dims.

    input: of any shape and dtype. indices and sections: other words for indices_or_sections. TypeError without one of them."""
    return _split_evenly("hsplit", input, _parts("hsplit", indices_or_sections, indices, sections), 0 if input.ndim == 1 else 1)


@method
def vsplit(input: Tensor, indices_or_sections: Tensor | Dim | None = None, *, indices: Tensor | Sequence[int] | None = None,
           sections: int | None = None) -> tuple[Tensor, ...]:
    """tensor_split along the first dim. ValueError for a number of parts that does not divide the size, and for fewer than two dims.

    input: of any shape and dtype. indices and sections: other words for indices_or_sections. TypeError without one of them."""
    return _split_evenly("vsplit", input, _parts("vsplit", indices_or_sections, indices, sections), 0)


@method
def dsplit(input: Tensor, indices_or_sections: Tensor | Dim | None = None, *, indices: Tensor | Sequence[int] | None = None,
           sections: int | None = None) -> tuple[Tensor, ...]:
    """tensor_split along the third dim. ValueError for a number of parts that does not divide the size, and for fewer than three dims.

    input: of any shape and dtype. indices and sections: other words for indices_or_sections. TypeError without one of them."""
    return _split_evenly("dsplit", input, _parts("dsplit", indices_or_sections, indices, sections), 2)


# ---- repetitions and reversals


def _repeat(input: Tensor, *args: Dim, repeats: Dim = ()) -> Tensor:
    try:
        repeats = _sizes(args or (repeats,))
        if len(repeats) < input.ndim:
            raise ValueError(f"repeat: fewer repeats than dims; got {repeats} for {input.ndim} dims; expected at least {input.ndim}")
        return tile(input, repeats)
    except Exception as error:
        rename("repeat", error, (input, *args))
        raise


@method
def tile(input: Tensor, *args: Dim, dims: Dim = ()) -> Tensor:
    """The tensor repeated that often along each dim, counted from the last one. Missing numbers are 1, missing dims have size 1.

    input: of any dtype, which the result has. ArgumentError for a negative number.
    """
    repeats = _sizes(args or (dims,))
    if any(r < 0 for r in repeats):
        raise _C.ArgumentError(f"tile: a negative number of repeats; got {repeats}; expected 0 or more")
    rank = max(len(repeats), input.ndim)
    repeats = (1,) * (rank - len(repeats)) + repeats
    shape = (1,) * (rank - input.ndim) + tuple(input.shape)
    if not rank:
        return input.clone()
    if rank + sum(r != 1 for r in repeats) > 8 - input.is_complex():  # more dims than a tensor can have
        result = input.reshape(shape)
        for dim, r in enumerate(repeats):
            result = result if r == 1 else _repeated_along(result, dim, r)
        return result.clone()
    pairs = [((r, size), (1, size)) if r != 1 else ((size,), (size,)) for r, size in zip(repeats, shape)]
    paired = input.reshape(*[n for _, one in pairs for n in one]).expand(*[n for wide, _ in pairs for n in wide])
    return paired.reshape(*[r * size for r, size in zip(repeats, shape)]).clone()


def _repeated_along(input, dim, r):
    """The tensor r times along one dim."""
    shape = list(input.shape)
    before, after = math.prod(shape[:dim]), math.prod(shape[dim:])
    shape[dim] *= r
    return input.reshape(before, 1, after).expand(before, r, after).reshape(shape)


_repeat.__name__, _repeat.__doc__ = "repeat", "The tensor repeated that often along each dim. ValueError where there are fewer numbers than dims."
Tensor.repeat = _repeat


@method
def repeat_interleave(input: Tensor, repeats: Tensor | Dim | None = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element, or each slice along dim, repeated. repeats is a number, or a tensor with one number for each. Of repeats alone, as the only
    argument: the index of each number, as often as the number says.

    input: any shape; without dim it is flattened. output_size: the sum of repeats, if you know it; another number is a RuntimeError, as are negative repeats.
    With a tensor, the size of the result depends on values, so they are read: that is a sync point.
    """
    if repeats is None:
        input, repeats, dim = _C.arange(input.numel(), device=input.device), input, None
    if dim is None:
        input, dim = input.reshape(-1), 0
    dim = _wrap("repeat_interleave", dim, input.ndim)
    n = input.shape[dim]
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError(f"repeat_interleave: repeats are negative; got {repeats}; expected numbers from 0 upwards")
        if output_size is not None and output_size != n * repeats:
            raise RuntimeError(f"repeat_interleave: output_size does not fit; got {output_size}; expected {n * repeats}, the sum of repeats")
        shape = (*input.shape[:dim], n, repeats, *input.shape[dim + 1:])
        return input.unsqueeze(dim + 1).expand(*shape).reshape(*shape[:dim], n * repeats, *shape[dim + 2:]).clone()
    repeats = repeats if isinstance(repeats, Tensor) else _C.tensor(repeats, device=input.device)
    counts = repeats.reshape(-1).to(input.device).to(_C.int64)
    if counts.numel() == 1:
        counts = counts.expand(n)
    if repeats.ndim > 1 or counts.numel() != n:
        raise ValueError(f"repeat_interleave: not one number for each slice; got {tuple(repeats.shape)} for {n}; expected ({n},)")
    ends = counts.cumsum(0)
    total = 0
    if n:
        with _C._CutCause("the repeats, because the size of the result depends on the data"):
            total, least = _C.stack([ends[-1], counts.amin()]).tolist()
        if least < 0:
            raise RuntimeError(f"repeat_interleave: repeats are negative; got {least}; expected numbers from 0 upwards")
    if output_size is not None and output_size != total:
        raise RuntimeError(f"repeat_interleave: output_size does not fit; got {output_size}; expected {total}, the sum of repeats")
    at = _C._searchsorted(ends, _C.arange(total, device=input.device), True)
    return input.index_select(dim, at.to(_C.int64))


@method
def flip(input: Tensor, *args: Dim, dims: Dim = ()) -> Tensor:
    """A copy with the order of elements reversed along these dims: numbers, or one sequence.

    input: of any dtype, which the result has. Without dims it is copied as it is. IndexError for a dim out of range; ValueError for one that is named twice.
    """
    dims = [_wrap("flip", d, input.ndim) for d in _sizes(args or (dims,))]
    if len(set(dims)) != len(dims):
        raise ValueError(f"flip: a dim is named twice; got {dims}; expected different dims")
    for d in dims if input.ndim else ():
        n = input.shape[d]
        input = input.index_select(d, _C.arange(n - 1, -1, -1, device=input.device)) if n > 1 else input
    return input.clone()


@method
def fliplr(input: Tensor) -> Tensor:
    """The order of elements reversed along the second dim. Shape and dtype stay. IndexError for fewer than two dims."""
    return flip(input, 1)


@method
def flipud(input: Tensor) -> Tensor:
    """The order of elements reversed along the first dim. Shape and dtype stay; a tensor without dims stays as it is.

    TypeError for what is not a tensor.
    """
    return flip(input, 0)


@method
def roll(input: Tensor, shifts: Tensor | Dim, dims: Dim | None = None) -> Tensor:
    """Elements moved by the shifts along the dims; what leaves at one end enters at the other. Without dims, of all elements as one dim.

    input: of any shape and dtype, which the result has. shifts: integers, one or a sequence; a 0-d tensor of integers counts as one.
    ValueError unless there is a shift for each dim; IndexError for a dim out of range.
    """
    if isinstance(shifts, Tensor) and shifts.ndim == 0:
        if shifts.is_floating_point() or shifts.is_complex():
            raise TypeError(f"roll: not a shift; got a tensor of {shifts.dtype}; expected integers")
        shifts = int(shifts)
    if dims is None or dims == () or dims == []:
        if not isinstance(shifts, int) and len(shifts) != 1:
            raise ValueError(f"roll: several shifts and no dims; got {tuple(shifts)}; expected one shift, or as many dims")
        return roll(input.reshape(-1), shifts, 0).reshape(input.shape)
    shifts, dims = ((v,) if isinstance(v, int) else tuple(v) for v in (shifts, dims))
    if len(shifts) != len(dims):
        raise ValueError(f"roll: not one shift for each dim; got {shifts} and {dims}; expected as many")
    for shift, d in zip(shifts, dims):
        d = _wrap("roll", d, input.ndim)
        n = input.shape[d] if input.ndim else 1
        shift = shift % n if n else 0
        if shift:
            input = _C.cat([input.narrow(d, n - shift, shift), input.narrow(d, 0, n - shift)], d)
    return input.clone()


@method
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor turned k times by 90 degrees in the plane of two dims, from the first towards the second.

    dims: two different ones; ValueError otherwise. IndexError for a dim that is not there, and so for fewer than two dims.
    """
    a, b = (_wrap("rot90", d, input.ndim) for d in dims)
    if a == b:
        raise ValueError(f"rot90: not two dims; got {tuple(dims)}; expected different ones")
    k %= 4
    if k == 2:
        return flip(input, a, b)
    if k == 1:
        return flip(input, b).transpose(a, b).clone()
    return flip(input, a).transpose(a, b).clone() if k == 3 else input.clone()


# ---- diagonals


@method
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal of two dims; it is the last dim of the result. The offset is above the main diagonal, below where it is negative.

    input: with two dims or more. dim1, dim2: the dims of rows and of columns, different ones.

    IndexError for a dim that is not there, and so for fewer than two dims. ValueError where dim1 and dim2 are one dim. An offset beyond the last diagonal
    gives an empty one.
    """
    dim1, dim2 = _wrap("diagonal", dim1, input.ndim), _wrap("diagonal", dim2, input.ndim)
    if dim1 == dim2:
        raise ValueError(f"diagonal: not two dims; got {dim1} twice; expected different ones")
    input = _of_own_elements(input)
    rows, columns, strides = input.shape[dim1], input.shape[dim2], input.stride()
    n = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    start = input.storage_offset() + (offset * strides[dim2] if offset > 0 else -offset * strides[dim1]) * (n > 0)
    kept = [d for d in range(input.ndim) if d not in (dim1, dim2)]
    return _C.as_strided(input, [*(input.shape[d] for d in kept), n], [*(strides[d] for d in kept), strides[dim1] + strides[dim2]], start)


@method
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros with the last dim of the input on a diagonal. Shape: [.., N] becomes [.., N + |offset|, N + |offset|].

    offset: above the main diagonal, below where it is negative. dim1, dim2: where the result has its rows and its columns; the last dims unless given.

    IndexError for an input without dims and for a dim that is not there. ValueError where dim1 and dim2 are one dim.
    """
    if not input.ndim:
        raise IndexError("diag_embed: a tensor without dims has no last dim; got shape (); expected one dim or more")
    n = input.shape[-1] + abs(offset)
    dim1, dim2 = _wrap("diag_embed", dim1, input.ndim + 1), _wrap("diag_embed", dim2, input.ndim + 1)
    rows = _C.arange(n, device=input.device).unsqueeze(1)
    columns = _C.arange(n, device=input.device).unsqueeze(0)
    before, after = max(offset, 0), max(-offset, 0)
    wide = _C.pad(input, [before, after]) if before or after else input  # by column
    matrices = _C.where(columns - rows == offset, wide.unsqueeze(-2), _C.zeros((), dtype=input.dtype, device=input.device))
    return movedim(matrices, (-2, -1), (dim1, dim2))


@method
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix of zeros; of a matrix, a copy of its diagonal.

    ValueError for other numbers of dims. TypeError for what is not a tensor.
    """
    if input.ndim not in (1, 2):
        raise ValueError(f"diag: neither a vector nor a matrix; got shape {tuple(input.shape)}; hint: diagonal() or diag_embed()")
    return diag_embed(input, diagonal) if input.ndim == 1 else globals()["diagonal"](input, diagonal).clone()


@method
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements as the diagonal of a matrix of zeros: K elements -> [K + |offset|, K + |offset|], of the input's dtype.

    input: any shape. offset: above 0, the diagonal lies above the main one; below 0, below it. Never raises.
    """
    return diag_embed(input.reshape(-1), offset)


@method
def trace(input: Tensor) -> Tensor:
    """The sum of the main diagonal of a matrix [N, M], as a tensor without dims. Integers and bool become int64. ValueError for other shapes."""
    if input.ndim != 2:
        raise ValueError(f"trace: not a matrix; got shape {tuple(input.shape)}; expected two dims")
    return diagonal(input).sum()


# ---- parts replaced


@method
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with src at one index of a dim.

    IndexError for a dim or an index that is not there. ValueError where src does not broadcast to the slice. TypeError where one of them is not a tensor.
    """
    dim = _wrap("select_scatter", dim, input.ndim)
    size = input.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"select_scatter: index out of range; got {index} for dim {dim} of size {size}; expected {-size} <= index < {size}")
    index %= size
    return slice_scatter(input, src.unsqueeze(dim), dim, index, index + 1)


@method
def slice_scatter(input: Tensor, src: Operand, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """A copy of input with src at the slice start:end:step of a dim.

    IndexError for a dim that is not there. ValueError for a step below 1, and where src does not broadcast to the slice.
    """
    dim = _wrap("slice_scatter", dim, input.ndim)
    result = input.clone()
    result[(slice(None),) * dim + (slice(start, end, step),)] = src
    return result


@method
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input with src on a diagonal of two dims.

    offset: 0 is the main diagonal, above 0 are those above it, below 0 those below it. dim1, dim2: the dims of rows and of columns.
    src: broadcasts to what diagonal(input, offset, dim1, dim2) gives, whose last dim is the diagonal.

    IndexError for a dim that is not there. ValueError where dim1 and dim2 are one dim, and where src does not broadcast. TypeError for a complex src and a
    real input.
    """
    result = input.clone()
    diagonal(result, offset, dim1, dim2).copy_(src)
    return result


@method
def narrow_copy(input: Tensor, dim: int, start: Tensor | int, length: int) -> Tensor:
    """A copy of the slice of a dim of input that begins at start and has length entries: narrow, which returns a view, and a copy of that.

    input: of any dtype, which the result has. A negative start counts from the end. ArgumentError for a start and a length that do not fit the dim;
    IndexError for a dim out of range.
    """
    return input.narrow(dim, start, length).clone()


def _unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of all slices of that size along a dim, one for every step. The slice is the last dim of the result."""
    dim = _wrap("unfold", dimension, input.ndim)
    n = input.shape[dim] if input.ndim else 1
    if size > n or size < 0 or step < 1:
        raise ValueError(f"unfold: no such slices; got size {size} and step {step} of a dim of {n}; expected 0 <= size <= {n} and step >= 1")
    if not input.ndim:
        return input.reshape(1).narrow(0, 0, size)
    input = _of_own_elements(input)
    strides, shape = list(input.stride()), list(input.shape)
    shape[dim] = (n - size) // step + 1
    stride = strides[dim]
    strides[dim] = stride * step
    return _C.as_strided(input, [*shape, size], [*strides, stride], input.storage_offset())


_unfold.__name__ = "unfold"
Tensor.unfold = _unfold


def unfold_copy(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A copy of what Tensor.unfold of input gives: slices of that size along dimension, one for every step. The slice is the last dim of the result.

    IndexError for a dimension that is not there. ValueError for a step below 1, and for a size below 0 or above that of the dim.
    """
    return _unfold(input, dimension, size, step).clone()


# ---- grids


def _vectors(op, tensors):
    for t in tensors:
        if t.ndim > 1:
            raise _C.ArgumentError(f"{op}: not a vector; got shape {tuple(t.shape)}; expected one dim, or none; hint: reshape(-1)")
    return [t.reshape(-1) for t in tensors]


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: a tuple with a view of each vector, of the shape of the grid: [N], [M] -> two of [N, M]. indexing 'xy' exchanges the first two dims.

    tensors: vectors and single numbers, one by one or as a list. Each view has the dtype of its vector. ValueError for another indexing, and for more dims.
    """
    vectors = _vectors("meshgrid", _many(tensors))
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: unknown indexing; got '{indexing}'; expected 'ij' or 'xy'")
    order = list(range(len(vectors)))  # of each vector: its dim
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shape = [vectors[order.index(d)].shape[0] for d in range(len(vectors))]
    return tuple(v.reshape(*[-1 if d == at else 1 for d in range(len(shape))]).expand(*shape) for v, at in zip(vectors, order))


def cartesian_prod(*tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """All tuples with one element of each vector: shape (product of sizes, number of vectors). Of one vector, that vector.

    The dtype is the promoted one of all. ValueError for a tensor of more than one dim, and for no tensors.
    """
    vectors = _vectors("cartesian_prod", _many(tensors))
    return vectors[0] if len(vectors) == 1 else _C.stack([g.reshape(-1) for g in meshgrid(*vectors)], -1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector [N], in the order of itertools.combinations: [number, r], and [0] for r = 0.

    input: of any dtype, which the result has. with_replacement: an element may be taken several times. RuntimeError unless input is a vector; ValueError for
    r < 0.
    """
    if input.ndim != 1:
        raise RuntimeError(f"combinations: not a vector; got shape {tuple(input.shape)}; expected one dim")
    if r < 0:
        raise ValueError(f"combinations: r is negative; got {r}; expected 0 or more")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    if not rows or r == 0:
        return input.narrow(0, 0, 0).reshape(*(0,) if r == 0 else (0, r))
    at = _C.tensor([i for row in rows for i in row], dtype=_C.int64, device=input.device)
    return input.index_select(0, at).reshape(len(rows), r)


def _triangle(spans, dtype, device):
    """The elements of a matrix by row: spans has the first column of each row and the column after its last one."""
    ends, shifts, count = [], [], 0
    for begin, end in spans:
        shifts.append(begin - count)
        count += max(end - begin, 0)
        ends.append(count)
    if count == 0:
        return _C.zeros(2, 0, dtype=dtype, device=device)
    at = _C.arange(count, dtype=_C.int64, device=device)
    row = _C._searchsorted(_C.tensor(ends, dtype=_C.int64, device=device), at, True)
    return _C.stack([row, at + _C.tensor(shifts, dtype=_C.int64, device=device).index_select(0, row)]).to(dtype)


def _check_sizes(op, row, col):
    if row < 0 or col < 0:
        raise _C.ArgumentError(f"{op}: negative size; got {row} rows and {col} columns; expected 0 or more")


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Rows and columns of the lower triangle of a matrix, by row. Shape: (2, number of elements). int64 by default.

    row, col: the sizes of the matrix. offset: of the diagonal that is still in the triangle: 0 is the main one, 1 the next one above it, -1 the next one below. ArgumentError
    for negative sizes.
    """
    _check_sizes("tril_indices", row, col)
    return _triangle([(0, min(max(i + offset + 1, 0), col)) for i in range(row)], dtype or _C.int64, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Rows and columns of the upper triangle of a matrix, by row. Shape: (2, number of elements). int64 by default.

    row, col: the sizes of the matrix. offset: of the diagonal that is still in the triangle: 0 is the main one, 1 the next one above it, -1 the next one below. ArgumentError
    for negative sizes.
    """
    _check_sizes("triu_indices", row, col)
    return _triangle([(min(max(i + offset, 0), col), col) for i in range(row)], dtype or _C.int64, device)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix of zeros with these matrices along its diagonal. Vectors are rows, single numbers are 1 by 1. The dtype is the promoted one of all,
    as in arithmetic: a tensor without dims does not change it within its category.

    ValueError for more than two dims. Without tensors the result is [1, 0].
    """
    for t in tensors:
        if t.ndim > 2:
            raise _C.ArgumentError(f"block_diag: more than two dims; got shape {tuple(t.shape)}; expected matrices, vectors or numbers")
    blocks = [atleast_2d(t) for t in tensors] or [_C.empty((1, 0))]
    width = sum(b.shape[1] for b in blocks)
    rows, at = [], 0
    for b in blocks:
        rows.append(_C.pad(b, [at, width - at - b.shape[1]]))
        at += b.shape[1]
    dtype = _common_dtype(tensors)
    return _C.cat([row if row.dtype == dtype else row.to(dtype) for row in rows], 0)


def _common_dtype(tensors):
    """The dtype that an op of all these tensors has: those without dims count only where their category is above. None without tensors."""
    samples = [None, None]
    for t in tensors:
        dims = min(t.ndim, 1)
        dtype = t.dtype if samples[dims] is None else _C.promote_types(samples[dims], t.dtype)
        samples[dims] = dtype
    single, whole = samples
    if single is None or whole is None:
        return single or whole or _C.get_default_dtype()
    return result_type(_C.empty(0, dtype=whole, device="cpu"), _C.empty((), dtype=single, device="cpu"))


@method
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of input times all of other.

    input, other: of any shapes; the one of fewer dims gets dims of size 1 in front. Each size of the result is the product of both sizes: (2, 3) and (4, 5) give
    (8, 15). The dtype is that of input * other.

    TypeError where one of them is not a tensor, as a number of Python.
    """
    rank = max(input.ndim, other.ndim)
    a, b = ((1,) * (rank - t.ndim) + tuple(t.shape) for t in (input, other))
    product = input.reshape(*[n for s in a for n in (s, 1)]) * other.reshape(*[n for s in b for n in (1, s)]) if rank else input * other
    return product.reshape(*[m * n for m, n in zip(a, b)]) if rank else product
