"""PyTorch's questions about the CPU."""
from . import _C, amp  # noqa: F401
from .cuda.streams import Stream, current_stream, stream  # noqa: F401


def is_available():
    """Yes."""
    return True


def device_count():
    """1."""
    return 1


def current_device():
    """'cpu'."""
    return "cpu"


def set_device(device):
    """Nothing."""


def synchronize(device=None):
    """Returns when everything that was recorded is complete."""
    _C.synchronize()
