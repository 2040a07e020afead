"""Attention beyond functional.scaled_dot_product_attention, and names for the choice of its kernel, which needs none."""
from __future__ import annotations

import contextlib
import enum

from . import bias as bias, varlen as varlen

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator


class SDPBackend(enum.IntEnum):
    """The names of PyTorch's kernels of attention, an IntEnum. sdpa_kernel() takes them, and they change nothing: the fastest kernel that fits is always
    taken.

    Raises ValueError for a value of no member.
    """

    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = -1, 0, 1, 2, 3, 4


@contextlib.contextmanager
def sdpa_kernel(backends: SDPBackend | list[SDPBackend] | tuple[SDPBackend, ...], set_priority: bool = False) -> Iterator[None]:
    """A context that changes nothing: the fastest kernel that fits is taken, and results are equal but for rounding.

    backends: an SDPBackend or a list of them; set_priority: whether their order counts. Both are accepted for PyTorch's programs. TypeError for other backends, ValueError for none.
    """
    several = list(backends) if isinstance(backends, (list, tuple)) else [backends]
    if not all(isinstance(b, SDPBackend) for b in several):
        raise TypeError(f"sdpa_kernel: not a kernel of attention; got {backends!r}; expected an SDPBackend or a list of them")
    if not several:
        raise ValueError("sdpa_kernel: no kernel is left; got an empty list; expected one SDPBackend or more")
    yield
