"""Rules of convolutions and pools."""
import itertools
import math

import numpy as np

import pyflame as pf
from pyflame.nn import functional as F

from ... import _C
from ..table import composed, op
from .shapes import pad


def same_pads(node, sizes, kernel, strides, dilations):
    """The pads (before, after) of auto_pad or of the attribute pads."""
    mode, count = node.attr("auto_pad", "NOTSET"), len(kernel)
    if mode in ("NOTSET", ""):
        pads = node.attr("pads", [0] * (2 * count))
        return list(pads[:count]), list(pads[count:])
    before, after = [0] * count, [0] * count
    if mode != "VALID":
        for k in range(count):
            extent = (kernel[k] - 1) * dilations[k] + 1
            total = max((-(-sizes[k] // strides[k]) - 1) * strides[k] + extent - sizes[k], 0)
            before[k] = total // 2 if mode == "SAME_UPPER" else -(-total // 2)
            after[k] = total - before[k]
    return before, after


def _padded(x, before, after, value=0.0):
    lead = [0] * (x.dim() - len(before))
    return pad(x, lead + before + lead + after, "constant", value)


@op("Conv")
def conv(node):
    strides, dilations, groups = node.attr("strides"), node.attr("dilations"), node.attr("group", 1)
    relu = "Relu" in node.attr("then", ())

    def parts(do, x, w, b=None):
        ones = (1,) * (x.dim() - 2)
        stride, dilation = tuple(strides or ones), tuple(dilations or ones)
        before, after = same_pads(node, tuple(x.shape)[2:], tuple(w.shape)[2:], stride, dilation)
        column = len(ones) == 2 and x.shape[3] == w.shape[3] == 1 and not before[1] and not after[1]
        if column:  # a sequence, for which kernels are faster
            x, w = do(pf.Tensor.select, x, 3, 0), do(pf.Tensor.select, w, 3, 0)
            stride, dilation, before, after = stride[:1], dilation[:1], before[:1], after[:1]
        if len(stride) == 1 and groups == 1 and dilation[0] == 1 and _as_product(x, w, stride[0], before[0], after[0]):
            y = _windows_times_weight(do, x, w, b, stride[0], before[0], after[0], relu)
        else:
            if before != after:
                x, before = do(_padded, x, before, after), [0] * len(before)
            settings = (stride, tuple(before), dilation) if len(stride) > 1 else (stride[0], before[0], dilation[0])
            y = do(_convolution(len(stride), x), x, w, b, *settings, groups)
            y = do(pf.relu, y) if relu else y
        return do(pf.Tensor.unsqueeze, y, 3) if column else y

    return composed(parts)


def _convolution(count, x):
    """The function for so many dims."""
    if count > 3:
        raise NotImplementedError(f"Conv: too many dims; got {count}; expected 1 to 3")
    return getattr(_C if x.is_floating_point() else F, f"conv{count}d")


def _as_product(x, w, stride, before, after):
    """Whether a convolution over a sequence is faster as a product of its windows with the weight: they overlap little (frames of a signal, as for a
    short-time Fourier transform); or the arranged weight can be kept, and the sequence is short, or it is one whose positions lie one after the other in
    memory, so that its windows are a view (a product of one sequence has work for all threads)."""
    kernel, length = w.shape[2], x.shape[2]
    count = (length + before + after - kernel) // stride + 1
    if w.shape[1] == 1 and not before and not after and stride * 4 >= kernel > 16:
        return x.is_floating_point() and count > 0
    kept = not pf.is_grad_enabled() and x.dtype == w.dtype == pf.float32 and x.device.type == "cpu"
    largest = 8 if x.shape[0] > 1 else 64 if x.stride()[1] > 1 or before or after else count
    return kept and 0 <= before < kernel and after >= 0 and length > 0 and 1 <= count <= largest


def _weight_of_windows(w, first, count):
    """[out, in, kernel] -> [out, count * in]: the weight for windows whose rows are positions; its transpose is contiguous."""
    return w[:, :, first:first + count].permute(2, 1, 0).reshape(-1, w.shape[0]).contiguous().t()


def _windows_times_weight(do, x, w, b, stride, before, after, relu):
    """conv1d for _as_product."""
    (n, channels, length), kernel = tuple(x.shape), w.shape[2]
    count = (length + before + after - kernel) // stride + 1
    if count == 1:  # what lies on the padding alone adds nothing
        first, kernel = max(-before, 0), min(length, kernel - before) - max(-before, 0)
        if length == 1:
            windows = do(pf.Tensor.select, x, 2, 0)
        else:
            windows = do(pf.Tensor.reshape, do(pf.Tensor.narrow, do(pf.Tensor.transpose, x, 1, 2), 1, first, kernel), (n, kernel * channels))
        y = do(F.linear, windows, do(_weight_of_windows, w, before + first, kernel), b)
        return do(pf.Tensor.unsqueeze, do(pf.relu, y) if relu else y, 2)
    rows = do(pf.Tensor.transpose, x, 1, 2)
    rows = do(pf.pad, rows, (0, 0, before, after)) if before or after else do(pf.Tensor.contiguous, rows)
    windows = do(pf.Tensor.as_strided, rows, (n, count, kernel * channels), ((length + before + after) * channels, stride * channels, 1))
    y = do(F.linear, windows, do(_weight_of_windows, w, 0, kernel), b)
    return do(pf.Tensor.transpose, do(pf.relu, y) if relu else y, 1, 2)


@op("ConvTranspose")
def conv_transpose(node):
    groups = node.attr("group", 1)

    def run(x, w, b=None):
        count = x.dim() - 2
        strides, dilations = node.attr("strides", [1] * count), node.attr("dilations", [1] * count)
        extra, sizes, kernel = node.attr("output_padding", [0] * count), tuple(x.shape)[2:], tuple(w.shape)[2:]
        before, after = node.attr("pads", [0] * (2 * count))[:count], node.attr("pads", [0] * (2 * count))[count:]
        wanted, mode = node.attr("output_shape"), node.attr("auto_pad", "NOTSET")
        full = [(sizes[k] - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 for k in range(count)]
        if wanted is not None or mode.startswith("SAME"):
            goal = wanted[-count:] if wanted is not None else [sizes[k] * strides[k] for k in range(count)]
            total = [max(full[k] + extra[k] - goal[k], 0) for k in range(count)]
            before = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
            after = [full[k] + extra[k] - goal[k] - before[k] for k in range(count)]  # below 0 where the goal is larger: zeros behind
        function = getattr(F, f"conv_transpose{count}d")
        y = function(x, w, None, strides, [0] * count, [0] * count, groups, dilations)
        y = _padded(y, [-n for n in before], [extra[k] - after[k] for k in range(count)])
        return y if b is None else y + b.reshape((1, -1) + (1,) * count)

    return run


def _between_pixels(x, rows, columns):
    """x [N, C, H, W] at places [N, ...] between its pixels, [N, C, places]: bilinear, with zeros around the image."""
    (n, channels, height, width), total = tuple(x.shape), 0.0
    flat, first = x.reshape(n, channels, height * width), (pf.floor(rows), pf.floor(columns))
    for down, right in itertools.product((0, 1), (0, 1)):
        row, column = first[0] + down, first[1] + right
        share = (1 - pf.abs(rows - row)) * (1 - pf.abs(columns - column)) * ((row >= 0) & (row < height) & (column >= 0) & (column < width)).to(x.dtype)
        at = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long().reshape(n, 1, -1)
        total = total + pf.gather(flat, 2, at.expand(n, channels, at.shape[2])) * share.reshape(n, 1, -1)
    return total


@op("DeformConv")
def deform_conv(node):
    """A convolution whose window has its places moved by offset [N, groups of offsets * kh * kw * 2, H', W'] (rows, columns) and weighted by mask."""
    offsets_groups, groups = node.attr("offset_group", 1), node.attr("group", 1)

    def run(x, w, offset, b=None, mask=None):
        if x.dim() != 4:
            raise NotImplementedError(f"DeformConv: only images are available; got {x.dim() - 2} dims; expected 2")
        (n, channels, *sizes), kernel, out = tuple(x.shape), tuple(w.shape)[2:], tuple(offset.shape)[2:]
        strides, dilations, pads = node.attr("strides", [1, 1]), node.attr("dilations", [1, 1]), node.attr("pads", [0] * 4)
        many, taps = n * offsets_groups, math.prod(kernel)
        moved = offset.reshape((many, *kernel, 2, *out))
        places = []
        for k in range(2):
            taken = np.arange(kernel[k]) * dilations[k] - pads[k]
            at = taken.reshape([-1 if d == k else 1 for d in range(4)]) + (np.arange(out[k]) * strides[k]).reshape([-1 if d == k + 2 else 1 for d in range(4)])
            places.append(moved[:, :, :, k] + pf.tensor(at, device=x.device).to(x.dtype))
        seen = _between_pixels(x.reshape(many, channels // offsets_groups, *sizes), *places).reshape(n, offsets_groups, -1, taps, *out)
        if mask is not None:
            seen = seen * mask.reshape(n, offsets_groups, 1, taps, *out)
        y = w.reshape(groups, w.shape[0] // groups, -1) @ seen.reshape(n, groups, -1, math.prod(out))
        y = y.reshape(n, w.shape[0], *out)
        return y if b is None else y + b.reshape(1, -1, 1, 1)

    return run


class _Window:
    """The attributes of a pool, for an input."""

    def __init__(self, node, x):
        kernel = node.attr("kernel_shape")
        count = len(kernel)
        self.kernel, self.sizes = kernel, tuple(x.shape)[2:]
        self.strides, self.dilations = node.attr("strides", [1] * count), node.attr("dilations", [1] * count)
        self.before, self.after = same_pads(node, self.sizes, kernel, self.strides, self.dilations)
        self.declared = list(self.after)
        self.ceil = node.attr("ceil_mode", 0) and node.attr("auto_pad", "NOTSET") in ("NOTSET", "")
        if self.ceil:
            self._reach()

    def extent(self, k):
        return (self.kernel[k] - 1) * self.dilations[k] + 1

    def _reach(self):
        """ceil_mode is more padding behind, as far as the last window reaches; a window that begins there is left out."""
        for k, size in enumerate(self.sizes):
            room = size + self.before[k] + self.after[k] - self.extent(k)
            count = -(-room // self.strides[k]) + 1
            if (count - 1) * self.strides[k] >= size + self.before[k]:
                count -= 1
            self.after[k] = max(self.after[k], (count - 1) * self.strides[k] + self.extent(k) - size - self.before[k])

    def counts(self, k):
        return (self.sizes[k] + self.before[k] + self.after[k] - self.extent(k)) // self.strides[k] + 1

    def plain(self):
        """Whether the pools of PyFlame take it as it is: equal pads of at most half of the kernel."""
        return self.before == self.after and all(2 * p <= n for p, n in zip(self.before, self.kernel))

    def parts(self, x):
        """The shifted parts of a padded input, one for each place in the kernel, with the places."""
        for offset in itertools.product(*(range(n) for n in self.kernel)):
            cut = [slice(None), slice(None)]
            for k, o in enumerate(offset):
                first = o * self.dilations[k]
                cut.append(slice(first, first + (self.counts(k) - 1) * self.strides[k] + 1, self.strides[k]))
            yield offset, x[tuple(cut)]


@op("MaxPool")
def max_pool(node):
    indices = len(node.outputs) > 1

    def run(x):
        w = _Window(node, x)
        count = len(w.kernel)
        simple = getattr(F, f"max_pool{count}d", None)
        if not indices and simple is not None and w.plain() and x.is_floating_point():
            return simple(x, w.kernel, w.strides, w.before, w.dilations)
        lowest = -float("inf") if x.is_floating_point() else np.iinfo(x.dtype.name).min
        best = where = None
        place = _places(w, x, node.attr("storage_order", 0)) if indices else None
        for _, part in w.parts(_padded(x, w.before, w.after, lowest)):
            if indices:
                p = next(place)
                where = p if best is None else pf.where(part > best, p, where)
            best = part if best is None else pf.maximum(best, part)
        return (best, where.expand(tuple(best.shape)) + _channel_offsets(x)) if indices else best

    return run


def _places(w, x, column_major):
    sizes = w.sizes
    strides = [math.prod(sizes[k + 1:]) for k in range(len(sizes))]
    if column_major:
        strides = [math.prod(sizes[:k]) for k in range(len(sizes))]
    flat = 0
    for k, size in enumerate(sizes):
        shape = [1] * (len(sizes) + 2)
        shape[k + 2] = size + w.before[k] + w.after[k]
        flat = flat + (np.arange(-w.before[k], size + w.after[k]) * strides[k]).reshape(shape)
    tensor = pf.tensor(np.ascontiguousarray(flat), device=x.device)
    for _, part in w.parts(tensor):
        yield part


def _channel_offsets(x):
    n, c = x.shape[:2]
    each = math.prod(x.shape[2:])
    return (pf.arange(n * c, device=x.device) * each).reshape((n, c) + (1,) * (x.dim() - 2))


def _mean_of_parts(w, x, divisors, power=None):
    total = None
    for _, part in w.parts(_padded(x, w.before, w.after)):
        part = part if power is None else pf.abs(part) ** power
        total = part if total is None else total + part
    return total if divisors is None else total / divisors


@op("AveragePool")
def average_pool(node):
    include = node.attr("count_include_pad", 0)

    def run(x):
        w = _Window(node, x)
        count = len(w.kernel)
        simple = getattr(F, f"avg_pool{count}d", None)
        plain = w.plain() and all(d == 1 for d in w.dilations) and not w.ceil and (include or not any(w.before))
        if simple is not None and plain:
            return simple(x, w.kernel, w.strides, w.before)
        divisor = _counts(w, include, x)
        return _mean_of_parts(w, x, divisor)

    return run


def _counts(w, include, x):
    """How many elements each window has; padding that ceil_mode adds never counts."""
    result = 1
    for k, size in enumerate(w.sizes):
        starts = np.arange(w.counts(k)) * w.strides[k]
        places = starts[:, None] + np.arange(w.kernel[k]) * w.dilations[k] - w.before[k]
        low, high = (-w.before[k], size + w.declared[k]) if include else (0, size)
        counts = ((places >= low) & (places < high)).sum(1)
        result = result * counts.reshape((1, 1) + (1,) * k + (-1,) + (1,) * (len(w.sizes) - k - 1))
    return pf.tensor(result.astype(np.float32), device=x.device).to(dtype=x.dtype)


@op("LpPool")
def lp_pool(node):
    p = node.attr("p", 2)
    return lambda x: _mean_of_parts(_Window(node, x), x, None, p) ** (1.0 / p)


@op("GlobalAveragePool")
def global_average_pool(node):
    return lambda x: x.mean(list(range(2, x.dim())), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(node):
    return lambda x: pf.amax(x, list(range(2, x.dim())), True)


@op("GlobalLpPool")
def global_lp_pool(node):
    p = node.attr("p", 2)
    return lambda x: (pf.abs(x) ** p).sum(list(range(2, x.dim())), keepdim=True) ** (1.0 / p)


@op("MaxUnpool", host=(2,))
def max_unpool(node):
    kernel = node.attr("kernel_shape")
    count = len(kernel)
    strides, pads = node.attr("strides", [1] * count), node.attr("pads", [0] * (2 * count))

    def run(x, indices, shape=None):
        n, c = x.shape[:2]
        natural = [(x.shape[k + 2] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + count] for k in range(count)]
        flat = pf.zeros(n * c * math.prod(natural), dtype=x.dtype, device=x.device)
        y = pf.scatter(flat, 0, indices.reshape(-1), x.reshape(-1)).reshape([n, c] + natural)
        if shape is not None:
            wanted = [int(v) for v in shape]
            y = _padded(y, [0] * count, [wanted[k + 2] - natural[k] for k in range(count)])
        return y

    return run


@op("Col2Im", host=(1, 2))
def col2im(node):
    def run(x, image, block):
        image, block = [int(v) for v in image], [int(v) for v in block]
        count = len(image)
        dilations, strides = node.attr("dilations", [1] * count), node.attr("strides", [1] * count)
        pads = node.attr("pads", [0] * (2 * count))
        n, channels = x.shape[0], x.shape[1] // math.prod(block)
        full = [image[k] + pads[k] + pads[k + count] for k in range(count)]
        index = np.zeros((1, 1), np.int64)
        for k in range(count):
            windows = (full[k] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1
            each = np.arange(block[k])[:, None] * dilations[k] + np.arange(windows)[None] * strides[k]
            index = (index[:, None, :, None] * full[k] + each[None, :, None, :]).reshape(index.shape[0] * block[k], -1)
        y = pf.zeros(n * channels, math.prod(full), dtype=x.dtype, device=x.device)
        place = pf.tensor(np.ascontiguousarray(index.reshape(1, -1)), device=x.device).expand(n * channels, index.size)
        y = pf.scatter_add(y, 1, place, x.reshape(n * channels, -1)).reshape([n, channels] + full)
        return _padded(y, [-p for p in pads[:count]], [-p for p in pads[count:]])

    return run
