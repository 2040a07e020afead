"""DLPack, by PyTorch's path."""
from .._C import from_dlpack  # noqa: F401


def to_dlpack(tensor):
    """The capsule of tensor.__dlpack__()."""
    return tensor.__dlpack__()
