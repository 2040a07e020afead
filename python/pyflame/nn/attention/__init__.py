"""Attention beyond functional.scaled_dot_product_attention, and names for the choice of its kernel, which needs none."""
import contextlib
import enum

from . import bias, varlen  # noqa: F401


class SDPBackend(enum.IntEnum):
    """The names of PyTorch's kernels of attention, an IntEnum. sdpa_kernel() takes them, and they change nothing: the fastest kernel that fits is always
    taken.
    """

    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = -1, 0, 1, 2, 3, 4


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """A context that changes nothing: the fastest kernel that fits is taken."""
    yield
