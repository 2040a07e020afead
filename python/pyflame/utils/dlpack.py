"""DLPack, by PyTorch's path."""
from .._C import from_dlpack  # noqa: F401


def to_dlpack(tensor):
    """The tensor as a DLPack capsule, tensor.__dlpack__(), that from_dlpack of another library takes once. Memory is shared, not copied."""
    return tensor.__dlpack__()
