"""Rules of Resize and Upsample: for each axis a table of source places and weights."""
import math

import numpy as np

import pyflame as pf

from ..table import op


class _Axis:
    """How one axis is resampled: input and output size, scale, and the part of roi."""

    def __init__(self, size, out, scale, roi=None):
        self.size, self.out, self.scale, self.roi = size, out, scale, roi


def _coordinates(axis, mode):
    """Where each output element is in the input."""
    x = np.arange(axis.out, dtype=np.float64)
    if mode == "asymmetric":
        return x / axis.scale
    if mode == "align_corners":
        exact = axis.scale * axis.size
        return x * (axis.size - 1) / (exact - 1) if axis.out > 1 else x * 0
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return x * 0
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / axis.scale
    if mode == "tf_crop_and_resize":
        first, last = axis.roi
        if axis.out > 1:
            return first * (axis.size - 1) + x * (last - first) * (axis.size - 1) / (axis.out - 1)
        return x * 0 + 0.5 * (first + last) * (axis.size - 1)
    places = (x + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        exact = axis.scale * axis.size
        places = places + axis.size / 2 * (1 - axis.out / exact)
    return places


def _nearest(places, size, mode):
    if mode == "round_prefer_floor":
        index = np.ceil(places - 0.5)
    elif mode == "round_prefer_ceil":
        index = np.floor(places + 0.5)
    else:
        index = np.floor(places) if mode == "floor" else np.ceil(places)
    return np.clip(index.astype(np.int64), 0, size - 1)


def _cubic(distance, a):
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _taps(places, axis, node):
    """Indices [out, taps] and weights of the same shape."""
    cubic, a = node.attr("mode") == "cubic", node.attr("cubic_coeff_a", -0.75)
    scale = min(axis.scale, 1.0) if node.attr("antialias", 0) else 1.0
    reach = 2 if cubic else 1
    base = np.floor(places)
    whole = base == places
    base = np.where(whole, base - 1, base)  # an exact place counts as the end of its interval
    ratio = places - base
    first = int(math.floor(-reach / scale)) + 1
    steps = np.arange(first, 2 - first) if cubic else np.arange(first, first + 2 - 2 * first)
    distance = (steps - ratio[:, None]) * scale
    weights = _cubic(distance, a) if cubic else np.clip(1 - np.abs(distance), 0, 1)
    index = base[:, None].astype(np.int64) + steps
    if node.attr("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= axis.size), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    elif node.attr("antialias", 0):
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(index, 0, axis.size - 1), weights


def _resample(x, k, axis, node, mode):
    """x with its dim k resampled."""
    places = _coordinates(axis, mode)
    if node.attr("mode", "nearest") == "nearest":
        index = _nearest(places, axis.size, node.attr("nearest_mode", "round_prefer_floor"))
        if axis.out % axis.size == 0 and np.array_equal(index, np.repeat(np.arange(axis.size), axis.out // axis.size)):
            return _repeat(x, k, axis.out // axis.size)
        return x.index_select(k, pf.tensor(index, device=x.device))
    index, weights = _taps(places, axis, node)
    if index.shape[1] > 4:
        dense = np.zeros((axis.out, axis.size))
        np.add.at(dense, (np.arange(axis.out)[:, None], index), weights)
        return pf.matmul(x.movedim(k, -1), pf.tensor(dense.T.astype(np.float32), device=x.device).to(dtype=x.dtype)).movedim(-1, k)
    shape, total = [1] * x.dim(), None
    shape[k] = axis.out
    for j in range(index.shape[1]):
        if not weights[:, j].any():
            continue
        factor = pf.tensor(weights[:, j].astype(np.float32).reshape(shape), device=x.device).to(dtype=x.dtype)
        part = x.index_select(k, pf.tensor(np.ascontiguousarray(index[:, j]), device=x.device)) * factor
        total = part if total is None else total + part
    return total


def _repeat(x, k, times):
    """Each element of a dim several times: a view that is copied."""
    if times == 1:
        return x
    shape = tuple(x.shape)
    wide = x.unsqueeze(k + 1).expand(shape[:k + 1] + (times,) + shape[k + 1:])
    return wide.reshape(shape[:k] + (shape[k] * times,) + shape[k + 1:])


def _sizes(node, shape, axes, scales, sizes):
    """The output sizes and the scales for the axes."""
    if sizes is None or len(sizes) == 0:
        scales = [float(s) for s in scales]
        return [int(math.floor(shape[a] * s)) for a, s in zip(axes, scales)], scales
    sizes = [int(s) for s in sizes]
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        each = [s / shape[a] for a, s in zip(axes, sizes)]
        scale = min(each) if policy == "not_larger" else max(each)
        return [int(math.floor(scale * shape[a] + 0.5)) for a in axes], [scale] * len(axes)
    return sizes, [s / shape[a] for a, s in zip(axes, sizes)]


def _resize(node, mode, x, roi, scales, sizes):
    dtype = x.dtype
    shape, axes = tuple(x.shape), [a % x.dim() for a in node.attr("axes", range(x.dim()))]
    out, scales = _sizes(node, shape, axes, scales, sizes)
    if not x.is_floating_point() and node.attr("mode", "nearest") != "nearest":
        x = x.float()
    outside = None
    for k, a in enumerate(axes):
        part = None if roi is None or mode != "tf_crop_and_resize" else (float(roi[k]), float(roi[k + len(axes)]))
        axis = _Axis(shape[a], out[k], scales[k], part)
        if part is None and axis.out == axis.size and axis.scale == 1:
            continue
        if part is not None:
            places = _coordinates(axis, mode)
            beyond = ((places < 0) | (places > axis.size - 1)).reshape([-1 if d == a else 1 for d in range(len(shape))])
            outside = beyond if outside is None else outside | beyond
        x = _resample(x, a, axis, node, mode)
    if outside is not None and outside.any():
        x = x.masked_fill(pf.tensor(outside, device=x.device), node.attr("extrapolation_value", 0.0))
    return x.to(dtype=dtype)


@op("Resize", since=11, host=(1, 2, 3))
def resize(node):
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    return lambda x, roi=None, scales=None, sizes=None: _resize(node, mode, x, roi, scales, sizes)


@op("Resize", "Upsample", since=9, host=(1,))
def resize_10(node):
    node.attrs.update(nearest_mode="floor", mode="linear" if "linear" in node.attr("mode", "nearest") else "nearest")
    return lambda x, scales: _resize(node, "asymmetric", x, None, scales, None)


@op("Upsample")
def upsample_7(node):
    node.attrs.update(nearest_mode="floor", mode="linear" if "linear" in node.attr("mode", "nearest") else "nearest")
    scales = node.attr("scales")
    return lambda x: _resize(node, "asymmetric", x, None, scales, None)
