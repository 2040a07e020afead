"""Rules of normalizations."""
import pyflame as pf
from pyflame.nn import functional as F

from ..table import op
from ..values import dtype_of


@op("BatchNormalization", since=7)
def batch_norm(node):
    eps, momentum, training = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9), node.attr("training_mode", 0)

    def run(x, scale, bias, mean, var):
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, eps)

    def train(x, scale, bias, mean, var):
        dims = [0] + list(range(2, x.dim()))
        own = x.mean(dims)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        own_var = ((x - own.reshape(shape)) ** 2).mean(dims)
        y = run(x, scale, bias, own, own_var)
        return (y, mean * momentum + own * (1 - momentum), var * momentum + own_var * (1 - momentum))[:len(node.outputs)]

    if training:
        return train if len(node.outputs) > 1 else lambda *args: train(*args)[0]
    return run


@op("LayerNormalization")
def layer_norm(node):
    axis, eps, more = node.attr("axis", -1), node.attr("epsilon", 1e-5), len(node.outputs) > 1

    def run(x, scale, bias=None):
        first = axis % x.dim()
        shape = tuple(x.shape)[first:]
        if not more:
            if tuple(scale.shape) == shape and (bias is None or tuple(bias.shape) == shape):
                return F.layer_norm(x, shape, scale, bias, eps)
            y = F.layer_norm(x, shape, None, None, eps) * scale
            return y if bias is None else y + bias
        dims = list(range(first, x.dim()))
        mean = x.float().mean(dims, keepdim=True)
        inverse = pf.rsqrt(((x.float() - mean) ** 2).mean(dims, keepdim=True) + eps)
        y = ((x.float() - mean) * inverse).to(dtype=x.dtype) * scale
        return (y if bias is None else y + bias, mean, inverse)

    return run


@op("RMSNormalization")
def rms_norm(node):
    axis, eps, stash = node.attr("axis", -1), node.attr("epsilon", 1e-5), node.attr("stash_type", 1)

    def run(x, scale):
        first = axis % x.dim()
        shape = tuple(x.shape)[first:]
        if tuple(scale.shape) == shape and x.dtype == pf.float32:
            return F.rms_norm(x, shape, scale, eps)
        wide = x.to(dtype=dtype_of(stash))
        wide = wide * pf.rsqrt((wide * wide).mean(list(range(first, x.dim())), keepdim=True) + eps)
        return wide.to(dtype=scale.dtype) * scale

    return run


@op("InstanceNormalization")
def instance_norm(node):
    eps = node.attr("epsilon", 1e-5)

    def run(x, scale, bias):
        shape = (1, -1) + (1,) * (x.dim() - 2)
        y = F.layer_norm(x, tuple(x.shape)[2:], None, None, eps)
        return y * scale.reshape(shape) + bias.reshape(shape)

    return run


@op("GroupNormalization", since=21)
def group_norm(node):
    eps, groups = node.attr("epsilon", 1e-5), node.attr("num_groups")
    return lambda x, scale, bias: F.group_norm(x, groups, scale, bias, eps)


@op("GroupNormalization", since=18)
def group_norm_18(node):
    """In opset 18 scale and bias belong to groups."""
    eps, groups = node.attr("epsilon", 1e-5), node.attr("num_groups")

    def run(x, scale, bias):
        each = x.shape[1] // groups
        return F.group_norm(x, groups, scale.repeat_interleave(each), bias.repeat_interleave(each), eps)

    return run


@op("LRN")
def lrn(node):
    size, alpha, beta, bias = node.attr("size"), node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)

    def run(x):
        channels, square = x.shape[1], x * x
        before = (size - 1) // 2
        padded = F.pad(square, [0, 0] * (x.dim() - 2) + [before, size - 1 - before])
        total = padded.narrow(1, 0, channels)
        for k in range(1, size):
            total = total + padded.narrow(1, k, channels)
        return x / (bias + total * (alpha / size)) ** beta

    return run


@op("MeanVarianceNormalization")
def mean_variance(node):
    axes = node.attr("axes", [0, 2, 3])

    def run(x):
        centred = x - x.mean(axes, keepdim=True)
        return centred / (pf.sqrt((centred * centred).mean(axes, keepdim=True)) + 1e-9)

    return run


@op("LpNormalization")
def lp_norm(node):
    axis, p = node.attr("axis", -1), node.attr("p", 2)

    def run(x):
        length = pf.abs(x).sum(axis, keepdim=True) if p == 1 else pf.sqrt((x * x).sum(axis, keepdim=True))
        return pf.where(length == 0, pf.zeros_like(x), x / length)

    return run
