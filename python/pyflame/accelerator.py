"""PyTorch's questions about the accelerator, answered for the GPU there is."""
from . import _C, _gpu
from .cuda import (  # noqa: F401
    current_stream,
    device_count,
    empty_cache,
    get_device_capability,
    get_memory_info,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from .cuda import current_device as current_device_index  # noqa: F401
from .cuda import device as device_index  # noqa: F401
from .cuda import set_device as set_device_index  # noqa: F401

current_device_idx, set_device_idx = current_device_index, set_device_index


def current_accelerator(check_available=False):
    """The device type of the GPU there is, as a device; None without one. check_available is not used, as the GPU is looked for in any case; never raises."""
    name = _gpu.kind()
    return _C.device(name) if name else None
