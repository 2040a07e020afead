"""Layers that pad the spatial dims. Padding is one number, or two for each dim, last dim first; negative padding cuts off."""
from __future__ import annotations

from .. import _C
from ._arguments import _sequence
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from ._annotations import Size


class _Pad(Module):
    _dims, _mode = 1, "constant"

    def __init__(self, padding: Size) -> None:
        super().__init__()
        count = 2 * type(self)._dims
        self.padding = (padding,) * count if hasattr(padding, "__index__") else _sequence(padding, f"{type(self).__name__}: padding")
        if len(self.padding) != count:
            raise ValueError(f"{type(self).__name__}: the padding has the wrong length; got {padding}; expected one number or {count}")

    def forward(self, input: Tensor) -> Tensor:
        return _C.pad(input, self.padding, type(self)._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Size, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return _C.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """[N, C, L] with a border of one number.

    input: [N, C, L] or [C, L], of any dtype. padding: one number, or 2: left, right; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """[N, C, H, W] with a border of one number.

    input: [N, C, H, W] or [C, H, W], of any dtype. padding: one number, or 4: left, right, top, bottom; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """[N, C, D, H, W] with a border of one number.

    input: [N, C, D, H, W] or [C, D, H, W], of any dtype. padding: one number, or 6: left, right, top, bottom, front, back; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims = 3


class ZeroPad1d(ConstantPad1d):
    """[N, C, L] with a border of zeros.

    input: [N, C, L] or [C, L], of any dtype. padding: one number, or 2: left, right; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    def __init__(self, padding: Size) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad2d(ConstantPad2d):
    """[N, C, H, W] with a border of zeros.

    input: [N, C, H, W] or [C, H, W], of any dtype. padding: one number, or 4: left, right, top, bottom; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    def __init__(self, padding: Size) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad3d(ConstantPad3d):
    """[N, C, D, H, W] with a border of zeros.

    input: [N, C, D, H, W] or [C, D, H, W], of any dtype. padding: one number, or 6: left, right, top, bottom, front, back; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    def __init__(self, padding: Size) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ReflectionPad1d(_Pad):
    """[N, C, L] with a border that mirrors the elements inside of the edge.

    input: [N, C, L] or [C, L], of any dtype. padding: one number, or 2: left, right; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """[N, C, H, W] with a border that mirrors the elements inside of the edge.

    input: [N, C, H, W] or [C, H, W], of any dtype. padding: one number, or 4: left, right, top, bottom; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """[N, C, D, H, W] with a border that mirrors the elements inside of the edge.

    input: [N, C, D, H, W] or [C, D, H, W], of any dtype. padding: one number, or 6: left, right, top, bottom, front, back; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """[N, C, L] with a border that repeats the edge.

    input: [N, C, L] or [C, L], of any dtype. padding: one number, or 2: left, right; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """[N, C, H, W] with a border that repeats the edge.

    input: [N, C, H, W] or [C, H, W], of any dtype. padding: one number, or 4: left, right, top, bottom; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """[N, C, D, H, W] with a border that repeats the edge.

    input: [N, C, D, H, W] or [C, D, H, W], of any dtype. padding: one number, or 6: left, right, top, bottom, front, back; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """[N, C, L] with a border that repeats the elements of the other end.

    input: [N, C, L] or [C, L], of any dtype. padding: one number, or 2: left, right; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """[N, C, H, W] with a border that repeats the elements of the other end.

    input: [N, C, H, W] or [C, H, W], of any dtype. padding: one number, or 4: left, right, top, bottom; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """[N, C, D, H, W] with a border that repeats the elements of the other end.

    input: [N, C, D, H, W] or [C, D, H, W], of any dtype. padding: one number, or 6: left, right, top, bottom, front, back; each is added to its size, and a negative one cuts off. ValueError for another
    count of numbers."""

    _dims, _mode = 3, "circular"
