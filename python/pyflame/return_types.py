"""The types of results with names: pf.return_types.max is the type of pf.max(x, dim)."""
from . import _C

_ARGUMENTS = {"topk": (1,), "kthvalue": (1,), "aminmax": (), "frexp": (), "histogram": (1,)}  # after a tensor of one element; otherwise (0,), a dim
_NAMES = ("aminmax", "cummax", "cummin", "frexp", "histogram", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk")


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'pyflame.return_types' has no attribute '{name}'")
    import pyflame

    globals()[name] = kind = type(getattr(pyflame, name)(_C.zeros(1, device="cpu"), *_ARGUMENTS.get(name, (0,))))
    return kind
