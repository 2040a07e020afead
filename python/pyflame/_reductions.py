"""Reductions of the core where PyTorch's rules for arguments, dtypes or gradients need more."""
from __future__ import annotations

from . import _C
from ._public import method
from .autograd.function import Function

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import overload

    from ._C import Tensor
    from ._annotations import Dim
    from ._named_tuples import ValuesIndices
else:
    from ._public import overload

__all__ = ["all", "any", "max", "min", "std", "std_mean", "var", "var_mean"]


def _truth(reduce, input, dim, keepdim):
    if dim is not None and not isinstance(dim, int) and len(dim) == 0:
        result = input != 0  # over no dims
    else:
        result = reduce(input, dim, keepdim)
    return result.to(_C.uint8) if input.dtype == _C.uint8 else result


@method
def any(input: Tensor, dim: Dim | None = None, keepdim: bool = False) -> Tensor:
    """Whether any element is not zero, of all or along dims, as bool; as uint8 of uint8. With dim=() each element alone.

    input: of any dtype. IndexError for a dim out of range.
    """
    return _truth(_C.any, input, dim, keepdim)


@method
def all(input: Tensor, dim: Dim | None = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are not zero, of all or along dims, as bool; as uint8 of uint8. With dim=() each element alone.

    input: of any dtype. IndexError for a dim out of range.
    """
    return _truth(_C.all, input, dim, keepdim)


class OneOfAll(Function):
    """One element of all, which pick(input) finds; the gradient is shared evenly among those that equal it. NaN equals NaN."""

    @staticmethod
    def forward(ctx, input, pick):
        value = pick(input)
        ctx.save_for_backward(input, value)
        return value

    @staticmethod
    def backward(ctx, grad):
        input, value = ctx.saved_tensors
        same = _C.logical_or(input == value, _C.logical_and(_C.isnan(input), _C.isnan(value)))
        return _C.where(same, grad / same.sum().to(grad.dtype), 0.0), None


def _extreme(pick, input, dim, keepdim, other):
    of_all = dim is None and other is None and not keepdim and isinstance(input, _C.Tensor) and input.requires_grad
    return OneOfAll.apply(input, pick) if of_all else pick(input, dim if other is None else other, keepdim)


@overload
def max(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...


@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@overload
def max(input: Tensor, dim: Tensor, keepdim: bool = False) -> Tensor: ...


@overload
def max(input: Tensor, *, other: Tensor) -> Tensor: ...


@method
def max(input: Tensor, dim: Tensor | int | None = None, keepdim: bool = False, *, other: Tensor | None = None) -> Tensor | ValuesIndices:
    """max(input): the maximum of all. max(input, dim, keepdim): (values, indices) along a dim. max(input, other): maximum(). NaN wins.

    TypeError for complex numbers and for a dim that is no integer; amax takes several dims. IndexError for a dim that is not there, and where there are no
    elements. ValueError where the shapes of input and other do not broadcast.
    """
    return _extreme(_C.max, input, dim, keepdim, other)


@overload
def min(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...


@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@overload
def min(input: Tensor, dim: Tensor, keepdim: bool = False) -> Tensor: ...


@overload
def min(input: Tensor, *, other: Tensor) -> Tensor: ...


@method
def min(input: Tensor, dim: Tensor | int | None = None, keepdim: bool = False, *, other: Tensor | None = None) -> Tensor | ValuesIndices:
    """min(input): the minimum of all. min(input, dim, keepdim): (values, indices) along a dim. min(input, other): minimum(). NaN wins.

    TypeError for complex numbers and for a dim that is no integer; amin takes several dims. IndexError for a dim that is not there, and where there are no
    elements. ValueError where the shapes of input and other do not broadcast.
    """
    return _extreme(_C.min, input, dim, keepdim, other)


def _moments(op, dim, unbiased, correction):
    """The dims and the correction."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{op}: both unbiased and correction; got {unbiased} and {correction}; expected one")
    return dim, int(unbiased is not False) if correction is None else correction


@method
def var(input: Tensor, dim: Dim | None = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None) -> Tensor:
    """The variance, of all or along dims: squared deviations over n - correction (1 unless given; unbiased=False is 0). The first argument after input may be unbiased.

    input: of a floating or complex dtype. dim: a number or several; None and (): all. keepdim: the dims stay, with size 1. TypeError for unbiased and correction together.
    """
    dim, correction = _moments("var", dim, unbiased, correction)
    return _C.var(input, dim, correction=correction, keepdim=keepdim)


@method
def std(input: Tensor, dim: Dim | None = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None) -> Tensor:
    """The standard deviation: the root of var. The arguments are those of var.

    TypeError for integers and bools. IndexError for a dim that is not there, ValueError for one that appears twice.
    """
    dim, correction = _moments("std", dim, unbiased, correction)
    return _C.std(input, dim, correction=correction, keepdim=keepdim)


@method
def var_mean(input: Tensor, dim: Dim | None = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: float | None = None) -> tuple[Tensor, Tensor]:
    """The variance and the mean, as a tuple. The arguments are those of var.

    TypeError for integers and bools. IndexError for a dim that is not there.
    """
    dim, correction = _moments("var_mean", dim, unbiased, correction)
    return _C.var(input, dim, correction=correction, keepdim=keepdim), _C.mean(input, dim, keepdim)


@method
def std_mean(input: Tensor, dim: Dim | None = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: float | None = None) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean, as a tuple. The arguments are those of var.

    TypeError for integers and bools. IndexError for a dim that is not there.
    """
    dim, correction = _moments("std_mean", dim, unbiased, correction)
    return _C.std(input, dim, correction=correction, keepdim=keepdim), _C.mean(input, dim, keepdim)
