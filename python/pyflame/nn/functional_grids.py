"""Images and volumes read at any places: grid_sample, and the grids of affine maps. nn.functional has their names.

The places become flat indices and weights, which are computed elementwise; each neighbour of a place is one gather.
"""
import itertools

from .. import _C
from .resampling import _CUBIC

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _unnormalized(x, size, align_corners):
    """From [-1, 1] to units of elements."""
    return (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2


def _clipped(x, size):
    """Into [0, size - 1], with no gradient at the ends and outside; NaN becomes 0."""
    inside = _C.logical_and(x > 0, x < size - 1)
    end = _C.where(x > 0, float(size - 1), _C.zeros((), dtype=x.dtype, device=x.device))
    return _C.where(inside, x, end.detach())


def _reflected(x, size, align_corners):
    """Mirrored at the centres of the first and the last element, or at their outer edges, as often as needed."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return x * 0
    distance = _C.abs(x - low)
    turns = _C.floor(distance / span).detach()
    rest = distance - turns * span
    even = turns - 2 * _C.floor(turns / 2) == 0
    return _C.where(even, rest + low, (span + low) - rest)


def _padded(x, size, padding_mode, align_corners):
    if padding_mode == "border":
        return _clipped(x, size)
    if padding_mode == "reflection":
        return _clipped(_reflected(x, size, align_corners), size)
    return x


def _linear_taps(x, size, padding_mode, align_corners):
    x = _padded(x, size, padding_mode, align_corners)
    low = _C.floor(x).detach()
    return [(low, low + 1 - x), (low + 1, x - low)]


def _nearest_taps(x, size, padding_mode, align_corners):
    return [(_C.round(_padded(x, size, padding_mode, align_corners)).detach(), None)]


def _cubic_taps(x, size, padding_mode, align_corners):
    low = _C.floor(x).detach()
    t = x - low

    def near(d):  # for distances up to 1
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    def far(d):  # for distances from 1 to 2
        return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC

    weights = far(t + 1), near(t), near(1 - t), far(2 - t)
    return [(_padded(low + (k - 1), size, padding_mode, align_corners).detach(), w) for k, w in enumerate(weights)]


_TAPS = {"bilinear": _linear_taps, "nearest": _nearest_taps, "bicubic": _cubic_taps}


def _sampled(input, places, mode, padding_mode, align_corners):
    """places: for each spatial dim the places along it, [N, L]. -> [N, C, L]"""
    n, c, *sizes = input.shape
    flat = input.flatten(2)
    count = places[0].shape[1]
    taps = []  # for each dim: (index, whether inside, weight)
    for x, size in zip(places, sizes):
        x = _unnormalized(x, size, align_corners)
        every = []
        for at, weight in _TAPS[mode](x, size, padding_mode, align_corners):
            inside = _C.logical_and(at >= 0, at <= size - 1)
            every.append((_C.clamp(at, 0, size - 1).to(_C.int64), inside, weight))
        taps.append(every)
    total = None
    for corner in itertools.product(*taps):
        index, inside, weight = corner[0]
        for (more, here, factor), size in zip(corner[1:], sizes[1:]):
            index, inside = index * size + more, _C.logical_and(inside, here)
            weight = None if weight is None else weight * factor
        inside = inside.to(flat.dtype)
        weight = inside if weight is None else weight * inside
        part = flat.gather(2, index.unsqueeze(1).expand(n, c, count)) * weight.unsqueeze(1)
        total = part if total is None else total + part
    return total


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """input [N, C, H, W] at the places of grid [N, H', W', 2], or [N, C, D, H, W] at [N, D', H', W', 3] -> [N, C, H', W'].

    The last dim of grid is (x, y) or (x, y, z), where -1 and 1 are the ends of the image: the centres of the outermost elements with
    align_corners, otherwise their outer edges. mode: 'bilinear' (trilinear for volumes), 'nearest' or 'bicubic'. padding_mode: what is outside of the
    image: 'zeros', 'border' (the nearest element) or 'reflection'. The gradient is of both; that of 'nearest' by grid is 0.
    """
    if mode not in _MODES:
        raise ValueError(f"grid_sample: no such mode; got '{mode}'; expected one of {', '.join(_MODES)}")
    if padding_mode not in _PADDINGS:
        raise ValueError(f"grid_sample: no such padding_mode; got '{padding_mode}'; expected one of {', '.join(_PADDINGS)}")
    dims = input.ndim - 2
    if dims not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise ValueError(f"grid_sample: input and grid do not fit; got {tuple(input.shape)} and {tuple(grid.shape)}; "
                         "expected (N, C, H, W) and (N, H', W', 2), or (N, C, D, H, W) and (N, D', H', W', 3)")
    if grid.dtype != input.dtype:
        raise TypeError(f"grid_sample: dtypes differ; got {input.dtype} and {grid.dtype}; expected equal dtypes")
    if 0 in input.shape[2:]:
        raise ValueError(f"grid_sample: an image without elements; got {tuple(input.shape)}")
    n, count = grid.shape[0], 1
    for size in grid.shape[1:-1]:
        count *= size
    half = input.dtype in (_C.float16, _C.bfloat16)
    x, at = (input.float(), grid.float()) if half else (input, grid)
    at = at.reshape(n, count, dims)
    places = [at.select(2, dims - 1 - d) for d in range(dims)]
    y = _sampled(x, places, mode, padding_mode, bool(align_corners)).reshape(n, input.shape[1], *grid.shape[1:-1])
    if mode == "nearest" and grid.requires_grad:
        y = y + (grid.sum() * 0).to(y.dtype)
    return y.to(input.dtype)


def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample of images, with modes by number: 0 'bilinear', 1 'nearest', 2 'bicubic'; 0 'zeros', 1 'border', 2 'reflection'."""
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample of volumes, with modes by number: 0 'bilinear', 1 'nearest'; 0 'zeros', 1 'border', 2 'reflection'."""
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample with modes by number, as in grid_sampler_2d."""
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def affine_grid(theta, size, align_corners=None):
    """The grid with which grid_sample maps by theta: [N, 2, 3] for size (N, C, H, W) -> [N, H, W, 2]; [N, 3, 4] for (N, C, D, H, W).

    Place (x, y) of the result is theta @ (x, y, 1). align_corners: as in grid_sample.
    """
    dims = len(size) - 2
    if dims not in (2, 3) or not theta.is_floating_point() or tuple(theta.shape) != (size[0], dims, dims + 1):
        raise ValueError(f"affine_grid: theta does not fit the size; got {theta.dtype} {tuple(theta.shape)} for {tuple(size)}; "
                         "expected floats (N, 2, 3) for (N, C, H, W), or (N, 3, 4) for (N, C, D, H, W)")
    if any(n < 1 for n in size):
        raise ValueError(f"affine_grid: an empty size; got {tuple(size)}; expected 1 or more")
    parts = []
    for d, n in enumerate(reversed(size[2:])):
        line = _C.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) if n > 1 else _C.zeros(1, dtype=theta.dtype, device=theta.device)
        line = line if align_corners else line * ((n - 1) / n)
        parts.append(line.reshape(*[-1 if e == dims - 1 - d else 1 for e in range(dims)]).expand(*size[2:]))
    parts.append(_C.ones(tuple(size[2:]), dtype=theta.dtype, device=theta.device))
    base = _C.stack(parts, -1).reshape(1, -1, dims + 1)
    return _C.matmul(base, theta.transpose(1, 2)).reshape(size[0], *size[2:], dims)


def affine_grid_generator(theta, size, align_corners):
    """The same as affine_grid."""
    return affine_grid(theta, size, align_corners)
