"""Tensors by shape and strides."""
from __future__ import annotations

from . import _C
from ._public import method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._C import Tensor
    from ._annotations import Shape

__all__ = ["as_strided_copy", "as_strided_scatter"]


def as_strided_copy(input: Tensor, size: Shape, stride: Shape, storage_offset: int | None = None) -> Tensor:
    """A contiguous copy of the elements that as_strided(input, size, stride, storage_offset) shows. ArgumentError for elements beyond the storage. The
    arguments are those of as_strided.
    """
    return _C.as_strided(input, size, stride, storage_offset).clone(memory_format=_C.contiguous_format)


@method
def as_strided_scatter(input: Tensor, src: Tensor, size: Shape, stride: Shape, storage_offset: int | None = None) -> Tensor:
    """A copy of input with src in the elements that as_strided(size, stride, storage_offset) shows.

    src broadcasts to size; ValueError where it cannot, where size and stride differ in length, for negative strides, and for elements beyond the storage.
    TypeError for what is not a tensor.
    """
    result = input.clone()
    _C.as_strided(result, size, stride, storage_offset or 0).copy_(src)
    return result
