"""DLPack, by PyTorch's path."""
from __future__ import annotations

from .._C import Tensor, from_dlpack as from_dlpack


def to_dlpack(tensor: Tensor) -> object:
    """The tensor as a DLPack capsule, tensor.__dlpack__(), that from_dlpack of another library takes once. Memory is shared, not copied.

    TypeError for what is not a tensor, RuntimeError for a tensor that requires a gradient.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_dlpack: not a tensor; got {type(tensor).__name__}; expected a tensor")
    return tensor.__dlpack__()
