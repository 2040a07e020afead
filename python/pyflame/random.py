"""Random numbers: the seed and the state."""
from __future__ import annotations

import contextlib

from . import _C, _refused
from ._C import get_rng_state as get_rng_state, set_rng_state as set_rng_state
from ._generator import default_generator as default_generator, initial_seed as initial_seed, manual_seed as manual_seed, seed as seed

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def fork_rng(devices: object = None, enabled: bool = True, _caller: object = "fork_rng", _devices_kw: object = "devices",
             device_type: object = "cuda") -> Iterator[None]:
    """A context after which the random numbers continue as if it had drawn none.

    enabled=False: the context changes nothing. devices and device_type are accepted for PyTorch's programs and change nothing: the state is one for all devices.

    It raises nothing.
    """
    before = _C.get_rng_state()
    try:
        yield
    finally:
        if enabled:
            _C.set_rng_state(before)


_refused.unknown(globals())
