"""Small functions that are composed of others."""
from __future__ import annotations

from . import _C
from ._C import Tensor


def _rebuild_tensor(data, shape, dtype, device, requires_grad):
    """Rebuilds a pickled tensor. It is a Python function because compiled functions cannot be pickled."""
    return _C._rebuild_tensor(data, shape, dtype, device, requires_grad)


def is_tensor(obj: object) -> bool:
    """Whether obj is a pyflame.Tensor or an object of a subclass, such as nn.Parameter. Returns a bool; any object is accepted. It raises nothing."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """A bool: whether the dtype of input is a floating-point dtype. False for integers, bool and complex numbers.

    TypeError for what is not a tensor.
    """
    return input.is_floating_point()


def numel(input: Tensor) -> int:
    """The number of elements of input, an int: the product of its sizes, and 1 without dims. TypeError for what is not a tensor."""
    return input.numel()


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The outer product of two vectors, [N], [M] -> [N, M]: the element i, j is input[i] * vec2[j]. The dtypes promote. ValueError for other shapes."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise ValueError(f"outer: needs two vectors; got shapes {input.shape} and {vec2.shape}")
    return input.unsqueeze(1) * vec2


def _two_tensors(op, input, other):
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise TypeError(f"{op}: not two tensors; got {type(input).__name__} and {type(other).__name__}")


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and equal elements (a Python bool).

    TypeError where one of them is not a tensor. Different shapes are no error: the result is False.
    """
    _two_tensors("equal", input, other)
    return input.shape == other.shape and bool(_C.all(_C.eq(input, other)))


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether |input - other| <= atol + rtol * |other| everywhere (a Python bool); equal infinities are close.

    equal_nan: NaN is close to NaN; without it, to nothing. Dtypes are promoted. ArgumentError for shapes that do not broadcast. Reads the values: a sync
    point.
    """
    _two_tensors("allclose", input, other)
    if not any(t.is_floating_point() or t.is_complex() for t in (input, other)):
        input, other = input.double(), other.double()
    close = _C.logical_or(_C.eq(input, other), _C.le(_C.abs(input - other), atol + rtol * _C.abs(other)))
    close = _C.logical_and(close, _C.logical_or(_C.isfinite(other), _C.eq(input, other)))
    if equal_nan:
        close = _C.logical_or(close, _C.logical_and(_C.isnan(input), _C.isnan(other)))
    return bool(_C.all(close))
