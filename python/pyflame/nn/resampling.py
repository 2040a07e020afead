"""Images, signals and volumes in another size: interpolate, and the layers that use it.

One dim is treated after the other: each new element is a weighted sum of old ones, by the op `resample`.
"""
from __future__ import annotations

import math

from .. import _C
from .functional_adaptive_pools import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from ._annotations import Factor, InterpolateMode, Size

_DIMS = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,), "lanczos": (2,)}
_FILTERS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _nearest(x, dim, out, scale, exact):
    """Of integers: the elements themselves."""
    size = x.shape[dim]
    to = _C.arange(out, device=x.device).to(_C.float32)
    index = _C.floor((to + 0.5) * scale if exact else to * scale).to(_C.int64)
    return x.index_select(dim, _C.clamp(index, 0, size - 1))


def _lanczos(old, new, scale):
    """The weights [new, old] of Lanczos' filter of three lobes, which is as much wider as the dim shrinks."""
    import numpy as np

    scale = scale or old / new
    width = max(scale, 1.0)
    table = np.zeros((new, old))
    for i in range(new):
        centre = scale * (i + 0.5)
        begin, end = max(int(centre - 3 * width + 0.5), 0), min(int(centre + 3 * width + 0.5), old)
        at = (np.arange(begin, end) + 0.5 - centre) / width
        weights = np.where(np.abs(at) < 3, np.sinc(at) * np.sinc(at / 3), 0.0)
        table[i, begin:end] = weights / weights.sum()
    return table


def _by_lanczos(x, dim, new, scale):
    """Bytes: with weights of 16 bits, rounded and limited to uint8, as the other filters do."""
    import numpy as np

    table = _lanczos(x.shape[dim], new, scale)
    if x.dtype != _C.uint8:
        return _C.matmul(x.transpose(dim, -1), _C.tensor(table.T, dtype=x.dtype, device=x.device)).transpose(dim, -1).contiguous()
    bits = next((b for b in range(22) if int(0.5 + table.max() * 2.0 ** (b + 1)) >= 2**15), 22)
    whole = np.trunc(table * 2.0**bits + np.copysign(0.5, table))
    sums = _C.matmul(x.transpose(dim, -1).double(), _C.tensor(whole.T.copy(), device=x.device)).transpose(dim, -1)
    return _C.clamp(_C.floor((sums + 2.0 ** (bits - 1)) / 2.0**bits), 0, 255).to(_C.uint8)


def _keeps(mode, dims, antialias):
    """Whether a dim whose size stays is left as it is, though a factor of another scale was given: PyTorch's rule."""
    return antialias or mode in ("linear", "bilinear", "trilinear") or (mode == "nearest" and dims < 3)


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


def interpolate(input: Tensor, size: Size | None = None, scale_factor: Factor | None = None, mode: InterpolateMode = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor:
    """[N, C, spatial ...] in another size.

    size or scale_factor: one number, or one for each spatial dim. mode: 'nearest', 'nearest-exact' (1 to 3 dims), 'linear' (1), 'bilinear',
    'bicubic' (2), 'trilinear' (3), 'area' (1 to 3: means of windows). With align_corners the centres of the first and the last elements stay
    where they are; otherwise the outer edges do. A scale_factor is used for coordinates as it is, unless recompute_scale_factor says that they
    come from the sizes; a dim whose size it does not change stays as it is in the linear modes, with antialias, and in 'nearest' of 1 and 2 dims. antialias
    ('bilinear', 'bicubic'): averages where it shrinks. 'lanczos' (2 dims) needs antialias. ValueError for other modes and dims. Floating dtypes; 'nearest'
    takes all, 'bilinear', 'bicubic' and 'lanczos' also uint8: with weights of 16 bits, and rounded to uint8 after each dim, as in PyTorch.

    input: [N, C, spatial ...], one to three spatial dims.
    """
    dims = input.ndim - 2
    if mode not in _DIMS or dims not in _DIMS[mode]:
        takes = f"{' or '.join(str(d + 2) for d in _DIMS[mode])} dims" if mode in _DIMS else f"one of {', '.join(_DIMS)}"
        raise ValueError(f"interpolate: mode and dims do not fit; got mode '{mode}' for {input.ndim} dims; expected {takes}")
    if antialias and mode not in ("bilinear", "bicubic", "lanczos"):
        raise ValueError(f"interpolate: antialias is for 'bilinear', 'bicubic' and 'lanczos'; got mode '{mode}'")
    if mode == "lanczos" and (not antialias or align_corners):
        raise ValueError(f"interpolate: mode 'lanczos' needs antialias and has no align_corners; got antialias={antialias}, align_corners={align_corners}; expected antialias=True")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(f"interpolate: align_corners has no meaning for mode '{mode}'; got {align_corners}; expected None")
    sizes, factors = _target(input, size, scale_factor, dims)
    if mode == "area" and min(sizes) == 0 < min(input.shape[2:]):
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[dims - 1](input, sizes)  # no elements
    if any(n < 1 for n in (*sizes, *input.shape[2:])):
        raise ValueError(f"interpolate: an empty size; got {tuple(input.shape[2:])} to {sizes}; expected 1 or more")
    bytes_too = mode in ("bilinear", "bicubic", "lanczos")
    if not (input.is_floating_point() or mode.startswith("nearest") or (bytes_too and input.dtype == _C.uint8)):
        raise TypeError(f"interpolate: mode '{mode}' does not take this dtype; got {input.dtype}; expected {'uint8 or ' if bytes_too else ''}a floating dtype; hint: input.float()")
    y = input
    for d in reversed(range(dims)):
        old, new, factor = input.shape[d + 2], sizes[d], factors[d]
        scale = 1.0 / factor if factor and not recompute_scale_factor else 0.0
        if old == new and _keeps(mode, dims, antialias):
            continue
        if not input.is_floating_point() and mode.startswith("nearest"):
            y = _nearest(y, d + 2, new, scale or old / new, mode == "nearest-exact")
        elif mode == "lanczos":
            y = _by_lanczos(y, d + 2, new, scale)
        elif old != new or (scale and input.dtype != _C.uint8):  # as PyTorch: bytes of a dim that keeps its size stay
            y = _C._resample(y, d + 2, new, _FILTERS.get(mode, mode), 0.0 if mode == "area" else scale, bool(align_corners), antialias)
    return y if y is not input else input.clone()


def upsample(input: Tensor, size: Size | None = None, scale_factor: Factor | None = None, mode: InterpolateMode = "nearest",
             align_corners: bool | None = None) -> Tensor:
    """The same as interpolate: [N, C, spatial ...] in another size, such as [N, C, H, W] -> [N, C, size, size].

    The arguments are those of interpolate, and so are dtypes and errors.
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Size | None = None, scale_factor: Factor | None = None) -> Tensor:
    """interpolate with mode 'nearest': [N, C, spatial ...] in another size, of any dtype, by copies of elements.

    The arguments are those of interpolate, and so are the errors.
    """
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Size | None = None, scale_factor: Factor | None = None) -> Tensor:
    """interpolate with mode 'bilinear' and align_corners=True: [N, C, H, W] -> [N, C, H', W'].

    input: floating, or uint8. The arguments are those of interpolate, and so are the errors; ValueError for other numbers of dims.
    """
    return interpolate(input, size, scale_factor, "bilinear", True)


class Upsample(Module):
    """interpolate as a layer: [N, C, spatial ...] in another size.

    The arguments are those of functional.interpolate, and so are modes, dtypes and errors, which forward raises.
    """

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None, mode: InterpolateMode = "nearest", align_corners: bool | None = None,
                 recompute_scale_factor: bool | None = None) -> None:
        super().__init__()
        self.size, self.mode = size, mode
        self.scale_factor = tuple(map(float, scale_factor)) if isinstance(scale_factor, (list, tuple)) else float(scale_factor) if scale_factor else None
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        given = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode 'nearest': [N, C, H, W] -> [N, C, H', W'], by copies of elements. Any dtype.

    size: H' and W', or one number for both; scale_factor: in its place, a factor, or one for each dim. forward raises ValueError unless exactly one of
    them is given.
    """

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode 'bilinear' and align_corners=True: [N, C, H, W] -> [N, C, H', W'].

    size: H' and W', or one number for both; scale_factor: in its place, a factor, or one for each dim. forward raises ValueError unless exactly one of
    them is given, and for other dims. Dtypes: floating, and uint8.
    """

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)
