"""Rules of operators that change shapes, join and cut."""
import math

import numpy as np

import pyflame as pf
from pyflame.nn import functional as F

from ..host import clipped, slices
from ..table import fixed, op
from ..values import to_tensor


def _ints(values):
    return values.reshape(-1).tolist() if isinstance(values, np.ndarray) else [int(v) for v in np.asarray(values).reshape(-1)]


def _to_shape(result, x, *_):
    return [("reshape", tuple(result.shape))] if tuple(result.shape) != tuple(x.shape) else []


@op("Shape", kind="host")
def shape(node):
    start, end = node.attr("start", 0), node.attr("end")
    return lambda x: np.array(tuple(x.shape)[start:end], np.int64)


@op("Size", kind="host")
def size(node):
    return lambda x: np.asarray(x.numel(), np.int64)


@op("Reshape", since=5, host=(1,))
def reshape(node):
    keep = node.attr("allowzero", 0)

    def run(x, shape):
        wanted = shape.tolist()
        if not keep and 0 in wanted:
            wanted = [x.shape[k] if n == 0 else n for k, n in enumerate(wanted)]
        return x.reshape(wanted)

    return fixed(run, _to_shape)


@op("Flatten")
def flatten(node):
    axis = node.attr("axis", 1)

    def run(x):
        dims = tuple(x.shape)
        first = axis + len(dims) if axis < 0 else axis
        return x.reshape(math.prod(dims[:first]), math.prod(dims[first:]))

    return fixed(run, _to_shape)


@op("Transpose")
def transpose(node):
    perm = node.attr("perm")
    return fixed(lambda x: x.permute(perm if perm is not None else list(range(x.dim()))[::-1]),
                 lambda result, x: [("permute", tuple(perm if perm is not None else range(x.dim())[::-1]))])


def _unsqueezes(x, axes):
    rank = x.dim() + len(axes)
    return [("unsqueeze", axis) for axis in sorted(a % rank for a in axes)]


def _unsqueeze(x, axes):
    return _follow(x, _unsqueezes(x, axes))


def _follow(x, steps):
    for method, *arguments in steps:
        x = getattr(x, method)(*arguments)
    return x


@op("Unsqueeze", since=13, host=(1,))
def unsqueeze(node):
    return fixed(lambda x, axes: _unsqueeze(x, _ints(axes)), lambda result, x, axes: _unsqueezes(x, _ints(axes)))


@op("Unsqueeze")
def unsqueeze_1(node):
    axes = node.attr("axes")
    return fixed(lambda x: _unsqueeze(x, axes), lambda result, x: _unsqueezes(x, axes))


def _squeezes(x, axes):
    if axes is None:
        axes = [k for k, n in enumerate(x.shape) if n == 1]
    return [("squeeze", axis) for axis in sorted((a % x.dim() for a in axes), reverse=True)]


def _squeeze(x, axes):
    return _follow(x, _squeezes(x, axes))


@op("Squeeze", since=13, host=(1,))
def squeeze(node):
    return fixed(lambda x, axes=None: _squeeze(x, None if axes is None else _ints(axes)),
                 lambda result, x, axes=None: _squeezes(x, None if axes is None else _ints(axes)))


@op("Squeeze")
def squeeze_1(node):
    axes = node.attr("axes")
    return fixed(lambda x: _squeeze(x, axes), lambda result, x: _squeezes(x, axes))


@op("Concat")
def concat(node):
    axis = node.attr("axis", 1)
    return lambda *xs: pf.cat(xs, axis) if xs[0].dim() else pf.stack(xs)


@op("Expand", host=(1,))
def expand(node):
    def run(x, shape):
        wanted = pf.broadcast_shapes(tuple(x.shape), tuple(_ints(shape)))
        return x.expand(tuple(wanted))

    return fixed(run, lambda result, x, shape: [("expand", tuple(result.shape))] if tuple(result.shape) != tuple(x.shape) else [])


@op("Tile", since=6, host=(1,))
def tile(node):
    return lambda x, repeats: x.tile(tuple(_ints(repeats)))


def _slices(x, starts, ends, axes, steps):
    """The methods that cut x; None where a step is not 1."""
    result = []
    for axis, rule in enumerate(slices(x.dim(), starts, ends, axes, steps)):
        if rule.start is not None:
            start, end, step = clipped(rule, x.shape[axis])
            if step != 1:
                return None
            count = max(0, end - start)
            if count != x.shape[axis]:
                result.append(("narrow", axis, min(start, x.shape[axis] - count), count))
    return result


def _slice(x, starts, ends, axes, steps):
    simple = _slices(x, starts, ends, axes, steps)
    if simple is not None:
        return _follow(x, simple)
    for axis, rule in enumerate(slices(x.dim(), starts, ends, axes, steps)):
        if rule.start is None:
            continue
        start, end, step = clipped(rule, x.shape[axis])
        if not range(start, end, step):
            x = x.narrow(axis, 0, 0)
        elif step > 0:
            x = x[(slice(None),) * axis + (slice(start, end, step),)]
        else:
            x = x.index_select(axis, pf.tensor(list(range(start, end, step)), dtype=pf.int64, device=x.device))
    return x


def _cut(starts, ends, axes=None, steps=None):
    return _ints(starts), _ints(ends), None if axes is None else _ints(axes), None if steps is None else _ints(steps)


@op("Slice", since=10, host=(1, 2, 3, 4))
def slice_(node):
    return fixed(lambda x, *where: _slice(x, *_cut(*where)), lambda result, x, *where: _slices(x, *_cut(*where)))


@op("Slice")
def slice_1(node):
    starts, ends, axes = node.attr("starts"), node.attr("ends"), node.attr("axes")
    return fixed(lambda x: _slice(x, starts, ends, axes, None), lambda result, x: _slices(x, starts, ends, axes, None))


def split_sizes(size, sizes, count):
    """The sizes of the parts that Split makes."""
    if sizes is not None:
        return _ints(sizes)
    each = -(-size // count)
    return [max(0, min(each, size - k * each)) for k in range(count)]


@op("Split", since=13, host=(1,))
def split(node):
    axis, count = node.attr("axis", 0), node.attr("num_outputs", len(node.outputs))
    return _one_or_more(node, lambda x, sizes=None: pf.split(x, split_sizes(x.shape[axis], sizes, count), axis))


@op("Split")
def split_1(node):
    axis, count, sizes = node.attr("axis", 0), len(node.outputs), node.attr("split")
    return _one_or_more(node, lambda x: pf.split(x, split_sizes(x.shape[axis], sizes, count), axis))


def _one_or_more(node, function):
    return (lambda *args: function(*args)[0]) if len(node.outputs) == 1 else function


def pad(x, pads, mode, value=0.0):
    """x with pads (before, after) for each dim; negative ones cut."""
    rank = x.dim()
    before, after = pads[:rank], pads[rank:]
    if mode == "constant":
        flat = [n for k in range(rank - 1, -1, -1) for n in (before[k], after[k])]
        while len(flat) > 2 and flat[-1] == 0 and flat[-2] == 0:
            del flat[-2:]
        return F.pad(x, flat, value=value) if any(flat) else x
    for method, *arguments in places(x, before, after, mode):
        x = getattr(x, method)(*arguments)
    return x


def places(x, before, after, mode):
    """The methods that pad x with its own elements."""
    steps = []
    for axis in range(x.dim()):
        if before[axis] or after[axis]:
            size = x.shape[axis]
            place = np.arange(-before[axis], size + after[axis])
            if mode == "edge":
                place = np.clip(place, 0, size - 1)
            elif mode == "wrap":
                place = place % size
            else:
                period = max(2 * (size - 1), 1)
                place = np.abs((place + size - 1) % period - (size - 1)) if size > 1 else np.zeros_like(place)
            steps.append(("index_select", axis, pf.tensor(place.astype(np.int64), device=x.device)))
    return steps


@op("Pad", since=11, host=(1, 2, 3))
def pad_11(node):
    mode = node.attr("mode", "constant")

    def all_pads(rank, pads, axes):
        pads = _ints(pads)
        if axes is None:
            return pads
        full = [0] * (2 * rank)
        for k, axis in enumerate(_ints(axes)):
            full[axis % rank], full[axis % rank + rank] = pads[k], pads[k + len(pads) // 2]
        return full

    def run(x, pads, value=None, axes=None):
        return pad(x, all_pads(x.dim(), pads, axes), mode, 0 if value is None else np.asarray(value).reshape(-1)[0].item())

    def fix(result, x, pads, value=None, axes=None):
        pads = all_pads(x.dim(), pads, axes)
        return None if mode == "constant" else places(x, pads[:x.dim()], pads[x.dim():], mode)

    return fixed(run, fix)


@op("Pad")
def pad_2(node):
    mode, pads, value = node.attr("mode", "constant"), node.attr("pads", node.attr("paddings")), node.attr("value", 0.0)
    return lambda x: pad(x, pads, mode, value)


@op("ConstantOfShape", host=(0,))
def constant_of_shape(node):
    value = node.attr("value")
    value = np.zeros(1, np.float32) if value is None else value
    number, dtype = value.reshape(-1)[0].item(), to_tensor(value).dtype
    return lambda shape: pf.full(tuple(_ints(shape)), number, dtype=dtype)


@op("Range", host=(0, 1, 2))
def range_(node):
    return lambda *bounds: to_tensor(np.arange(*(np.asarray(b).reshape(-1)[0] for b in bounds), dtype=np.asarray(bounds[0]).dtype))


@op("EyeLike")
def eye_like(node):
    k, to = node.attr("k", 0), node.attr("dtype")
    from ..values import dtype_of

    def run(x):
        rows, columns = x.shape
        i, j = pf.arange(rows, device=x.device).unsqueeze(1), pf.arange(columns, device=x.device)
        return (j - i == k).to(dtype=x.dtype if to is None else dtype_of(to, str(node)))

    return run


@op("DepthToSpace")
def depth_to_space(node):
    block, mode = node.attr("blocksize"), node.attr("mode", "DCR")

    def run(x):
        n, c, h, w = x.shape
        if mode == "DCR":
            y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
        else:
            y = x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
        return y.reshape(n, c // block**2, h * block, w * block)

    return run


@op("SpaceToDepth")
def space_to_depth(node):
    block, mode = node.attr("blocksize"), node.attr("mode", "DCR")

    def run(x):
        n, c, h, w = x.shape
        y = x.reshape(n, c, h // block, block, w // block, block)
        order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return y.permute(order).reshape(n, c * block**2, h // block, w // block)

    return run


@op("CenterCropPad", host=(1,))
def center_crop_pad(node):
    axes = node.attr("axes")

    def run(x, shape):
        before, after = [0] * x.dim(), [0] * x.dim()
        for axis, wanted in zip(axes if axes is not None else range(x.dim()), _ints(shape)):
            less = x.shape[axis] - wanted
            if less > 0:
                x = x.narrow(axis, less // 2, wanted)
            else:
                before[axis], after[axis] = -less // 2, -less - (-less // 2)
        return pad(x, before + after, "constant", 0)

    return run
