"""Mixed precision under PyTorch's older name."""
from .. import _gpu
from ..amp import GradScaler as _GradScaler
from ..amp import autocast as _autocast
from ..amp import custom_bwd as custom_bwd, custom_fwd as custom_fwd

__path__ = []  # PyTorch has files below it, which are found as this module


class autocast(_autocast):
    """pf.autocast for the GPU that is there, of AMD or NVIDIA. Without a GPU the context is off, and nothing is cast. The arguments are those of pf.autocast:
    TypeError for a dtype that is neither a half type nor float32 or float64."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__(_gpu.kind() or "cuda", dtype=dtype, enabled=enabled and _gpu.count() > 0, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """pf.amp.GradScaler of the GPU there is; without one it is off. The arguments are those of amp.GradScaler: ValueError for a growth_factor that is not above
    1, and for a backoff_factor that is not between 0 and 1."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__(None, init_scale, growth_factor, backoff_factor, growth_interval, enabled and _gpu.count() > 0)
