"""Rules of detection and sampling."""
import numpy as np

import pyflame as pf
from pyflame.nn import functional as F

from ..table import op
from ..values import to_tensor


@op("NonMaxSuppression", host=(0, 1, 2, 3, 4))
def non_max_suppression(node):
    """On the host: what is selected depends on each earlier selection."""
    center = node.attr("center_point_box", 0)

    def run(boxes, scores, most=0, overlap=0.0, least=None):
        most, overlap = int(np.asarray(most).reshape(-1)[0]), float(np.asarray(overlap).reshape(-1)[0])
        rows = []
        for b in range(scores.shape[0]):
            corners = _corners(boxes[b], center)
            for c in range(scores.shape[1]):
                rows += [(b, c, k) for k in _select(corners, scores[b, c], most, overlap, None if least is None else float(np.asarray(least).reshape(-1)[0]))]
        return to_tensor(np.array(rows, np.int64).reshape(-1, 3))

    return run


def _corners(boxes, center):
    if center:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _select(boxes, scores, most, overlap, least):
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], 1)
    chosen = []
    while len(order) and len(chosen) < most:
        best, order = order[0], order[1:]
        chosen.append(best)
        inner = np.minimum(boxes[best, 2:], boxes[order, 2:]) - np.maximum(boxes[best, :2], boxes[order, :2])
        common = np.prod(np.maximum(inner, 0), 1)
        union = areas[best] + areas[order] - common
        order = order[~(common > overlap * union)]
    return chosen


def bilinear(image, y, x):
    """The four weighted neighbours of places y, x inside of an image [C, H, W]: each [C, ...]; their sum is the value."""
    height, width = image.shape[-2:]
    flat = image.reshape(image.shape[0], height * width)
    top, left = pf.floor(y).clamp(0, height - 1), pf.floor(x).clamp(0, width - 1)
    bottom, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    down, across = y - top, x - left

    def at(row, column):
        index = (row * width + column).to(dtype=pf.int64)
        return flat.index_select(1, index.reshape(-1)).reshape((image.shape[0],) + tuple(index.shape))

    return (at(top, left) * (1 - down) * (1 - across), at(top, right) * (1 - down) * across, at(bottom, left) * down * (1 - across),
            at(bottom, right) * down * across)


@op("RoiAlign", host=(2,))
def roi_align(node):
    mode, rows, columns = node.attr("mode", "avg"), node.attr("output_height", 1), node.attr("output_width", 1)
    ratio, scale = node.attr("sampling_ratio", 0), node.attr("spatial_scale", 1.0)
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    shift = 0.5 if node.attr("coordinate_transformation_mode", default) == "half_pixel" else 0.0

    def samples(x, roi):
        x1, y1, x2, y2 = (float(v) * scale - shift for v in roi)
        width, height = x2 - x1, y2 - y1
        if not shift:
            width, height = max(width, 1.0), max(height, 1.0)
        down, across = (ratio or int(np.ceil(height / rows))), (ratio or int(np.ceil(width / columns)))
        y = y1 + (np.arange(rows)[:, None] + (np.arange(down) + 0.5) / down) * height / rows
        x_ = x1 + (np.arange(columns)[:, None] + (np.arange(across) + 0.5) / across) * width / columns
        return y[:, None, :, None], x_[None, :, None, :]

    def one(image, roi):
        y, x = np.broadcast_arrays(*samples(image, roi))
        height, width = image.shape[-2:]
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
        parts = bilinear(image, *(pf.tensor(np.ascontiguousarray(v, np.float32), device=image.device) for v in (y, x)))
        keep = pf.tensor(inside.astype(np.float32), device=image.device)
        if mode == "max":
            values = pf.maximum(pf.maximum(parts[0], parts[1]), pf.maximum(parts[2], parts[3]))
            return pf.amax(values * keep, [-1, -2])
        return ((parts[0] + parts[1] + parts[2] + parts[3]) * keep).mean([-1, -2])

    def run(x, rois, batches):
        places = rois.detach().cpu().numpy()
        return pf.stack([one(x[int(b)], roi) for b, roi in zip(batches, places)])

    return run


@op("GridSample", since=16)
def grid_sample(node):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(node.attr("mode", "bilinear"), node.attr("mode", "bilinear"))
    padding, corners = node.attr("padding_mode", "zeros"), bool(node.attr("align_corners", 0))
    return lambda x, grid: F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)
