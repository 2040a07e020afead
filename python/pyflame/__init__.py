"""PyFlame: a deep-learning framework. Ops are recorded, fused, and computed when their values are needed.

    import pyflame as pf
    x = pf.randn(2, 3, requires_grad=True)
    (x * x).sum().backward()

Submodules that are written in Python are imported when they are first used, so that `import pyflame` is fast.
"""
from . import _C
from ._C import *  # noqa: F401,F403
from ._C import __version__
from ._C import bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8  # noqa: F401
from ._generator import Generator, default_generator, initial_seed, manual_seed, seed
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from ._functions import allclose, equal, explain, is_floating_point, is_tensor, numel, outer

from ._elementwise import *  # noqa: F401,F403
from ._shapes import *  # noqa: F401,F403
from ._products import *  # noqa: F401,F403
from ._statistics import *  # noqa: F401,F403
from ._selections import *  # noqa: F401,F403
from ._aliases import *  # noqa: F401,F403

bool, half, float, double = bool_, float16, float32, float64
short, int, long = int16, int32, int64

_SUBMODULES = frozenset({"amp", "autograd", "backend", "data", "io", "models", "nn", "optim", "profiler", "testing", "utils"})
_ATTRIBUTES = {
    "autocast": "amp",
    "is_autocast_enabled": "amp",
    "checkpoint": "autograd",
    "einsum": "_einsum",
    "save": "io",
    "load": "io",
    "save_checkpoint": "io",
    "load_checkpoint": "io",
    "load_gguf": "io",
}


def __getattr__(name):
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module("." + name, __name__)
    if name in _ATTRIBUTES:
        value = getattr(import_module("." + _ATTRIBUTES[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pyflame' has no attribute '{name}'")


def __dir__():
    return sorted(set(globals()) | _SUBMODULES | set(_ATTRIBUTES))
