"""Layers that change the shape only."""
from __future__ import annotations

from .. import _C
from ._arguments import _integers, _sequence
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import Shape


class Flatten(Module):
    """The dims from start_dim to end_dim as one: [N, C, H, W] -> [N, C H W] unless they are given.

    start_dim, end_dim: integers, from -ndim to ndim - 1. forward takes a tensor of any dtype, which the result has. IndexError for a dim out of range;
    ArgumentError for a start_dim behind end_dim.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        _integers("Flatten", start_dim=start_dim, end_dim=end_dim)
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return _C.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dim as several: dim of size P becomes dims of the sizes unflattened_size, whose product is P.

    dim: an integer. unflattened_size: a sequence of integers, one of which may be -1: it is what the others leave. forward takes a tensor of any dtype,
    which the result has. IndexError for a dim out of range; ValueError for another product; TypeError for
    sizes that are no sequence of integers.
    """

    def __init__(self, dim: int, unflattened_size: Shape) -> None:
        super().__init__()
        _integers("Unflatten", dim=dim)
        self.dim, self.unflattened_size = dim, _sequence(unflattened_size, "Unflatten: unflattened_size")

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
