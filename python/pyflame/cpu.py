"""PyTorch's questions about the CPU."""
from . import _C, amp as amp
from .cuda.streams import Stream as Stream, current_stream as current_stream, stream as stream


def is_available():
    """Always True: there is a CPU, on which PyFlame computes without further libraries. Never raises."""
    return True


def device_count():
    """Always 1. All cores of the machine are one device; pyflame.set_num_threads() says how many are used."""
    return 1


def current_device():
    """Always the str 'cpu', the only device of this kind. pyflame.get_device() says where new tensors are made."""
    return "cpu"


def set_device(device):
    """Does nothing: there is one CPU. pyflame.set_device chooses where tensors are made. device is not used or checked; never raises."""


def synchronize(device=None):
    """Returns when all work that was recorded is complete, on every device. An error of that work is raised. device is not used.
    ValueError for a name that no device has."""
    if device is not None and not isinstance(device, int):
        _C.device(device)
    _C.synchronize()
