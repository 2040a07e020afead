"""PyTorch's questions about the accelerator, answered for the GPU there is."""
from . import _C, _gpu, cuda as _cuda
from .cuda import (
    current_stream as current_stream,
    device_count as device_count,
    empty_cache as empty_cache,
    get_device_capability as get_device_capability,
    get_memory_info as get_memory_info,
    is_available as is_available,
    max_memory_allocated as max_memory_allocated,
    max_memory_reserved as max_memory_reserved,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    memory_stats as memory_stats,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_peak_memory_stats as reset_peak_memory_stats,
    set_stream as set_stream,
    synchronize as synchronize,
)

current_device_index = current_device_idx = _cuda.current_device
set_device_index = set_device_idx = _cuda.set_device
device_index = _cuda.device


def current_accelerator(check_available=False):
    """The device type of the GPU there is, as a device; None without one. check_available is not used, as the GPU is looked for in any case; never raises."""
    name = _gpu.kind()
    return _C.device(name) if name else None
