"""grid_sample: each place is a weighted sum of the elements around it, dim after dim."""

import itertools

import numpy as np

from . import FLOATS, Case, Spec

CALLS = (  # image, places, mode, padding_mode, align_corners
    ((2, 3, 5, 7), (4, 6), "bilinear", "zeros", False),
    ((2, 17, 6, 5), (3, 70), "bilinear", "border", True),
    ((1, 9, 4, 9), (5, 31), "bilinear", "reflection", False),
    ((2, 2, 5, 1), (3, 4), "bilinear", "reflection", True),
    ((1, 2, 5, 7), (33, 40), "bilinear", "zeros", True),
    ((2, 3, 5, 7), (4, 6), "nearest", "zeros", True),
    ((1, 20, 6, 5), (3, 5), "nearest", "reflection", False),
    ((2, 3, 5, 7), (4, 6), "bicubic", "zeros", False),
    ((1, 18, 7, 6), (3, 5), "bicubic", "border", True),
    ((2, 1, 4, 5), (3, 5), "bicubic", "reflection", False),
    ((2, 3, 4, 3, 5), (2, 3, 4), "bilinear", "zeros", False),
    ((1, 33, 3, 4, 5), (3, 2, 3), "bilinear", "reflection", True),
    ((1, 2, 3, 4, 5), (3, 2, 3), "nearest", "border", False),
    ((2, 2, 3, 4, 5), (1, 2, 3), "bicubic", "zeros", False),
)


def off_the_elements(rng, shape):
    """Numbers of every dtype, inside and outside, that are at no element and at no edge of one: there gradients and nearest elements jump."""
    return (2 * rng.integers(-44, 44, shape) + 1) / 64


def _padded(x, size, padding, align):
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span == 0:
            return 0 * x
        turns, rest = np.divmod(np.abs(x - low), span)
        x = low + np.where(turns % 2 == 0, rest, span - rest)
    return x if padding == "zeros" else np.clip(x, 0, size - 1)


def _cubic(d):
    d = np.abs(d)
    return np.where(d <= 1, (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3)


def _taps(x, size, mode, padding, align):
    """[(number of the element, its weight)]"""
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    if mode == "bicubic":
        return [(_padded(np.floor(x) + k, size, padding, align), _cubic(x - np.floor(x) - k)) for k in range(-1, 3)]
    x = _padded(x, size, padding, align)
    if mode == "nearest":
        return [(np.round(x), np.ones_like(x))]
    return [(np.floor(x) + k, 1 - np.abs(x - np.floor(x) - k)) for k in range(2)]


def sampled(x, grid, mode, padding, align, weighted=True):
    """Without weights, these are the terms that errors are relative to: a weight is a difference of larger numbers."""
    sizes = x.shape[2:]
    along = [_taps(np.moveaxis(grid, -1, 0)[::-1][d], n, mode, padding, align) for d, n in enumerate(sizes)]
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for corner in itertools.product(*along):
        inside = np.all([(at >= 0) & (at < n) for (at, _), n in zip(corner, sizes)], axis=0)
        where = tuple(np.clip(at, 0, n - 1).astype(int) for (at, _), n in zip(corner, sizes))
        weight = np.prod([w for _, w in corner], axis=0) * inside if weighted else inside
        image = np.arange(x.shape[0]).reshape(-1, *(1,) * len(sizes))
        y += np.moveaxis(x[(image, slice(None), *where)], -1, 1) * weight[:, None]
    return y


def cases():
    result = []
    for dtype in FLOATS:
        for shape, places, mode, padding, align in CALLS if dtype in ("float32", "float64") else CALLS[::3]:
            dims, a = len(places), (mode, padding, align)
            ops = ("grid_sample", *(("grid_sample_grad_input", "grid_sample_grad_grid") if mode == "bilinear" else ()))
            if mode == "bicubic" and dims == 3:
                ops = ("index_select",)
            result.append(Case(f"grid_sample-{mode}-{padding}-{'corners' if align else 'edges'}-{dims}d-{dtype}", ("grid_sample",), ops,
                               (Spec(shape, dtype), Spec((shape[0], *places, dims), dtype, off_the_elements)),
                               lambda pf, x, g, a=a: pf.nn.functional.grid_sample(x, g, *a), lambda x, g, a=a: sampled(x, g, *a), grad=(0,) if mode == "nearest" else (0, 1),
                               c=4, length=64, fused_exact=False, magnitude=lambda x, g, a=a: sampled(np.abs(x), g, *a, False), own_values=True))
    return result
