"""PyTorch's questions about the CPU."""
from . import _C, amp  # noqa: F401
from .cuda.streams import Stream, current_stream, stream  # noqa: F401


def is_available():
    """Always True: tensors can be made on the CPU of every machine. PyTorch's programs ask it of each kind of device."""
    return True


def device_count():
    """Always 1: all cores of the machine, and all of its sockets, are one device."""
    return 1


def current_device():
    """Always the str 'cpu': there is one device of this kind, which has no number."""
    return "cpu"


def set_device(device):
    """Does nothing: there is one CPU. pyflame.set_device chooses where tensors are made."""


def synchronize(device=None):
    """Waits until all work that was recorded is complete, on every device. Raises the error of an op that failed. device is ignored."""
    _C.synchronize()
