"""Images, signals and volumes in another size: interpolate, and the layers that use it.

All modes but 'area' treat one dim after the other: for each new index they read one, two or four old ones, and weigh them.
"""
import math

from .. import _C
from .functional_adaptive_pools import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .module import Module

_DIMS = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
_CUBIC = -0.75  # the coefficient of the cubic convolution (Keys, 1981) that PyTorch and OpenCV take


def _places(size, out, scale, align_corners, dtype, device):
    """Where the new elements lie among the old ones, in units of these, as numbers."""
    to = _C.arange(out, device=device).to(dtype)
    if align_corners:
        return to * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (to + 0.5) * scale - 0.5


def _taken(x, dim, index, size):
    return x.index_select(dim, _C.clamp(index, 0, size - 1))


def _nearest(x, dim, out, scale, exact):
    size = x.shape[dim]
    to = _C.arange(out, device=x.device).to(_C.float32)
    return _taken(x, dim, _C.floor((to + 0.5) * scale if exact else to * scale).to(_C.int64), size)


def _weights_along(dim, rank, weight):
    return weight.reshape(*[-1 if d == dim else 1 for d in range(rank)])


def _linear(x, dim, out, scale, align_corners):
    size = x.shape[dim]
    at = _C.clamp(_places(size, out, scale, align_corners, _wide(x), x.device), min=0)
    low = _C.clamp(_C.floor(at), max=size - 1)
    weight = _weights_along(dim, x.ndim, (at - low).to(x.dtype))
    index = low.to(_C.int64)
    return _taken(x, dim, index, size) * (1 - weight) + _taken(x, dim, index + 1, size) * weight


def _cubic(x, dim, out, scale, align_corners):
    size = x.shape[dim]
    at = _places(size, out, scale, align_corners, _wide(x), x.device)
    low = _C.floor(at)
    t, index = at - low, low.to(_C.int64)

    def near(d):  # for distances up to 1
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    def far(d):  # for distances from 1 to 2
        return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC

    weights = far(t + 1), near(t), near(1 - t), far(2 - t)
    parts = (_taken(x, dim, index + (k - 1), size) * _weights_along(dim, x.ndim, w.to(x.dtype)) for k, w in enumerate(weights))
    return sum(parts)


def _wide(x):
    """The dtype of coordinates."""
    return _C.float64 if x.dtype == _C.float64 else _C.float32


def _target(input, size, scale_factor, dims):
    """The new sizes, and old over new ones by the factor that was given, or none."""
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: not one of size and scale_factor; expected exactly one of them")
    given = size if scale_factor is None else scale_factor
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * dims
    if len(values) != dims:
        raise ValueError(f"interpolate: not one number for each spatial dim; got {given} for {dims} dims; expected {dims} numbers or one")
    if scale_factor is None:
        return tuple(int(v) for v in values), (None,) * dims
    return tuple(int(math.floor(n * v)) for n, v in zip(input.shape[2:], values)), values


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """[N, C, spatial ...] in another size.

    size or scale_factor: one number, or one for each spatial dim. mode: 'nearest', 'nearest-exact' (1 to 3 dims), 'linear' (1), 'bilinear',
    'bicubic' (2), 'trilinear' (3), 'area' (1 to 3: means of windows). With align_corners the centres of the first and the last elements stay
    where they are; otherwise the outer edges do. A scale_factor is used for coordinates as it is, unless recompute_scale_factor says that they
    come from the sizes. ValueError for other modes and dims, NotImplementedError for antialias. Floating dtypes; 'nearest' takes all.
    """
    dims = input.ndim - 2
    if mode not in _DIMS or dims not in _DIMS[mode]:
        takes = f"{' or '.join(str(d + 2) for d in _DIMS[mode])} dims" if mode in _DIMS else f"one of {', '.join(_DIMS)}"
        raise ValueError(f"interpolate: mode and dims do not fit; got mode '{mode}' for {input.ndim} dims; expected {takes}")
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not available; expected False")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(f"interpolate: align_corners has no meaning for mode '{mode}'; got {align_corners}; expected None")
    sizes, factors = _target(input, size, scale_factor, dims)
    if any(n < 1 for n in (*sizes, *input.shape[2:])):
        raise ValueError(f"interpolate: an empty size; got {tuple(input.shape[2:])} to {sizes}; expected 1 or more")
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[dims - 1](input, sizes)
    y = input
    for d in range(dims):
        old, new, factor = input.shape[d + 2], sizes[d], factors[d]
        scale = 1.0 / factor if factor and not recompute_scale_factor else old / new
        if mode.startswith("nearest"):
            y = _nearest(y, d + 2, new, scale, mode == "nearest-exact")
        else:
            y = (_cubic if mode == "bicubic" else _linear)(y, d + 2, new, scale, bool(align_corners))
    return y


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """The same as interpolate."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode 'nearest'."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode 'bilinear' and align_corners=True."""
    return interpolate(input, size, scale_factor, "bilinear", True)


class Upsample(Module):
    """interpolate as a layer."""

    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input):
        return interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self):
        given = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode 'nearest'."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode 'bilinear' and align_corners=True."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "bilinear", True)
