"""Checks of the arguments of layers, and sizes made from them."""
from .. import _C


def _pair(v, what):
    if hasattr(v, "__index__"):
        return (v, v)
    if not isinstance(v, (tuple, list)) or not all(hasattr(n, "__index__") for n in v):
        raise TypeError(f"{what}: not sizes; got {v!r}; expected an integer or two")
    if len(v) != 2:
        raise ValueError(f"{what}: needs one number or two; got {v}")
    return tuple(v)


def _triple(v, what):
    if hasattr(v, "__index__"):
        return (v, v, v)
    if not isinstance(v, (tuple, list)) or not all(hasattr(n, "__index__") for n in v):
        raise TypeError(f"{what}: not sizes; got {v!r}; expected an integer or three")
    if len(v) != 3:
        raise ValueError(f"{what}: needs one number or three; got {v}")
    return tuple(v)


def _one(v, what):
    if isinstance(v, (tuple, list)) and len(v) == 1:
        v = v[0]
    if not hasattr(v, "__index__"):
        raise TypeError(f"{what}: not a size; got {v!r}; expected an integer")
    return (v,)


def _integers(layer, **sizes):
    for name, v in sizes.items():
        if not hasattr(v, "__index__"):
            raise TypeError(f"{layer}: {name} is not an integer; got {v!r}")


def _sequence(v, what):
    """The sizes of a sequence of integers. TypeError for anything else."""
    if not isinstance(v, (tuple, list)) or not all(hasattr(n, "__index__") for n in v):
        raise TypeError(f"{what}: not sizes; got {v!r}; expected a sequence of integers")
    return tuple(v)


def _tensor(op, name, v):
    """TypeError unless v is a tensor, which a DTensor is, too."""
    if not isinstance(v, _C.Tensor) and not hasattr(v, "_local_tensor"):
        raise TypeError(f"{op}: {name} is not a tensor; got {type(v).__name__}; expected a tensor")


def _probability(op, name, v):
    """TypeError for what is no number, ValueError outside of 0 to 1."""
    if isinstance(v, (str, bytes)) or not hasattr(v, "__float__"):
        raise TypeError(f"{op}: {name} is not a number; got {v!r}; expected 0 to 1")
    if not 0 <= v <= 1:
        raise ValueError(f"{op}: {name} is out of range; got {v}; expected 0 to 1")


def _fan_in(weight):
    n = 1
    for s in weight.shape[1:]:
        n *= s
    return n
