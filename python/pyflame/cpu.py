"""PyTorch's questions about the CPU."""
from . import _C, amp  # noqa: F401
from .cuda.streams import Stream, current_stream, stream  # noqa: F401


def is_available():
    """Always True: there is a CPU."""
    return True


def device_count():
    """Always 1: all cores are one device."""
    return 1


def current_device():
    """Always 'cpu'."""
    return "cpu"


def set_device(device):
    """Does nothing: there is one CPU. pyflame.set_device chooses where tensors are made."""


def synchronize(device=None):
    """Returns when everything that was recorded is complete."""
    _C.synchronize()
