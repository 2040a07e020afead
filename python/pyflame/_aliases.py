"""Further names of functions that exist, and copies of views."""
from __future__ import annotations

import math

from . import _C
from ._C import Tensor
from ._keywords import write_out
from ._public import method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._C import dtype
    from ._annotations import DType, Device, Dim, Number, Operand

__all__ = ["alias_copy", "constant_pad_nd", "detach_copy", "diagonal_copy", "dsmm", "expand_copy", "logspace", "msort", "permute_copy", "scalar_tensor", "select_copy", "slice_copy", "split_copy", "split_with_sizes", "split_with_sizes_copy",
           "spmm", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unsafe_chunk", "unsafe_split", "unsqueeze_copy", "view_as_complex_copy", "view_as_real_copy", "view_copy"]


def _in_rows(view):
    return view.clone(memory_format=_C.contiguous_format)


def _copy_of(name: str, view: Callable[..., Any], errors: str) -> Callable[..., Any]:
    def function(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        result = view(input, *args, **kwargs)
        if out is not None:
            return write_out(f"{name}_copy", result, out)
        return tuple(map(_in_rows, result)) if isinstance(result, (tuple, list)) else _in_rows(result)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"A contiguous copy of what {name} gives. input: the tensor. args, kwargs: the other arguments of {name}, in the same order and by the same names. {errors}"
    return function


def _slice(input, dim=0, start=None, end=None, step=1):
    if not -input.ndim <= dim < input.ndim:
        raise IndexError(f"slice_copy: no such dim; got {dim} for {input.ndim} dims; expected {-input.ndim} to {input.ndim - 1}" if input.ndim else "slice_copy: a tensor without dims has no slices; got shape (); expected one dim or more")
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, end, step),)]


spmm = dsmm = _C.mm  # of dense matrices
alias_copy: Callable[..., Tensor] = _copy_of("alias", lambda input: input,
                      "TypeError for what is not a tensor.")
detach_copy: Callable[..., Tensor] = _copy_of("detach", lambda input: input.detach(),
                       "TypeError for what is not a tensor.")
diagonal_copy: Callable[..., Tensor] = _copy_of("diagonal", lambda input, *args, **kwargs: input.diagonal(*args, **kwargs),
                         "IndexError for a dim that is not there, ValueError where both are one dim.")
expand_copy: Callable[..., Tensor] = _copy_of("expand", lambda input, size, **kwargs: input.expand(size),
                       "size: the new sizes. ValueError where a size of the input is neither 1 nor the new one, and for fewer sizes than dims.")
permute_copy: Callable[..., Tensor] = _copy_of("permute", lambda input, dims: input.permute(dims),
                        "ValueError where a dim is missing or appears twice, IndexError for one that is not there.")
select_copy: Callable[..., Tensor] = _copy_of("select", lambda input, dim, index: input.select(dim, index),
                       "IndexError for a dim or an index that is not there.")
slice_copy: Callable[..., Tensor] = _copy_of("slice", _slice,
                      "The arguments are dim=0, start=None, end=None and step=1. IndexError for a dim that is not there, ValueError for a step below 1.")
split_copy: Callable[..., tuple[Tensor, ...]] = _copy_of("split", lambda input, split_size, dim=0: input.split(split_size, dim),
                      "A tuple of tensors. ValueError for a size below 1 and for sizes that do not add up to that of the dim, IndexError for a dim that is not there.")
squeeze_copy: Callable[..., Tensor] = _copy_of("squeeze", lambda input, *dim: input.squeeze(*dim),
                        "IndexError for a dim that is not there.")
t_copy: Callable[..., Tensor] = _copy_of("t", lambda input: input.t(),
                  "ValueError for more than two dims.")
transpose_copy: Callable[..., Tensor] = _copy_of("transpose", lambda input, dim0, dim1: input.transpose(dim0, dim1),
                          "IndexError for a dim that is not there.")
unbind_copy: Callable[..., tuple[Tensor, ...]] = _copy_of("unbind", lambda input, dim=0: input.unbind(dim),
                       "A tuple of tensors. IndexError for a dim that is not there.")
unsqueeze_copy: Callable[..., Tensor] = _copy_of("unsqueeze", lambda input, dim: input.unsqueeze(dim),
                          "IndexError for a dim beyond the dims of the result.")
view_as_complex_copy: Callable[..., Tensor] = _copy_of("view_as_complex", lambda input: _C.view_as_complex(input),
                                "TypeError for dtypes other than float32 and float64, ValueError where the last dim is not of size 2.")
view_as_real_copy: Callable[..., Tensor] = _copy_of("view_as_real", lambda input: _C.view_as_real(input),
                             "TypeError for an input that is not complex.")
view_copy: Callable[..., Tensor] = _copy_of("view", lambda input, size: input.reshape(size),
                     "size: the sizes, of which one may be -1. ValueError for another number of elements, TypeError for what is no size.")


@method
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the input: consecutive parts of these sizes along dim, as a tuple. ArgumentError where the sizes do not add up to the size of dim."""
    return tuple(_C.split(input, list(split_sizes), dim))


def split_with_sizes_copy(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Copies of consecutive parts of these sizes along dim. ArgumentError where the sizes do not add up to the size of dim."""
    return tuple(_in_rows(part) for part in split_with_sizes(input, split_sizes, dim))


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The same as chunk: chunks parts of the input along dim, as a tuple of views. The arguments and errors are those of chunk."""
    return input.chunk(chunks, dim)


def unsafe_split(input: Tensor, split_size: Dim, dim: int = 0) -> tuple[Tensor, ...]:
    """The same as split: parts of split_size along dim, as a tuple of views. The arguments and errors are those of split."""
    return input.split(split_size, dim)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """nn.functional.pad with mode 'constant': new elements at the ends of the last dims have this value. The dtype stays.

    ValueError for an odd number of sizes, for more pairs than dims, and where more is cut off than there is. TypeError for a value that is no number.
    """
    return _C.pad(input, list(pad), "constant", value)


def scalar_tensor(s: Number, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor of one number s and no dims; of the default dtype unless dtype says otherwise.

    s is a number of Python: TypeError for a tensor, a list or a string, and for a complex number without a complex dtype.
    """
    return _C.full((), s, dtype=dtype or _C.get_default_dtype(), device=device, requires_grad=requires_grad)


def logspace(start: Operand, end: Operand, steps: int, base: Operand = 10.0, *, dtype: dtype | None = None, device: Device | None = None) -> Tensor:
    """base to the powers of linspace(start, end, steps). For an integer dtype, start, end and the powers are rounded towards zero.

    ValueError for negative steps and for a tensor of several elements. TypeError for steps that are no integer.
    """
    start, end, base = (n.item() if isinstance(n, Tensor) else n for n in (start, end, base))
    dtype = dtype or (_C.promote_types(_C.get_default_dtype(), _C.complex64) if any(isinstance(n, complex) for n in (start, end, base)) else _C.get_default_dtype())
    if dtype.is_complex:
        part = _C.linspace(0.0, 1.0, steps, dtype=dtype, device=device)
        return _C.pow(_C.tensor(base, dtype=dtype, device=device), start + (end - start) * part)
    start, end = float(start), float(end)
    if not dtype.is_floating_point:
        start, end = math.trunc(start), math.trunc(end)
    powers = _C.linspace(start, end, steps, dtype=_C.float64, device=device)
    return _C.pow(float(base), powers).to(dtype)


@method
def msort(input: Tensor) -> Tensor:
    """The values sorted along the first dim, ascending, NaN last. Shape and dtype are those of the input. TypeError for complex numbers."""
    return _C.sort(input, 0)[0]


Tensor.H = property(lambda self: (self.transpose(0, 1) if self.ndim == 2 else self.T).conj(), doc="The transposed matrix, [M, N] -> [N, M], with conjugated elements for complex numbers. A vector keeps its shape. ArgumentError for more than two dims.")
Tensor.mH = property(lambda self: self.mT.conj(), doc="The last two dims swapped, [..., M, N] -> [..., N, M], with conjugated elements for complex numbers. ArgumentError for fewer than two dims.")
