"""Rules of reductions, scans, sorting."""
import numpy as np

import pyflame as pf

from ..table import composed, op


def _sum(x, axes, keep):
    return x.sum(axes, keepdim=keep).to(dtype=x.dtype)


def _prod(x, axes, keep):
    dtype = x.dtype
    for axis in sorted((a % x.dim() for a in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x.to(dtype=dtype)


def _extreme(function):
    def run(x, axes, keep):
        if any(x.shape[a] == 0 for a in axes):
            return _empty_extreme(x, axes, keep, function is pf.amax)
        if x.dtype == pf.bool:
            return function(x.to(dtype=pf.uint8), axes, keep).to(dtype=pf.bool)
        return function(x, axes, keep)

    return run


def _empty_extreme(x, axes, keep, largest):
    wanted = {a % x.dim() for a in axes}
    shape = [1 if k in wanted else n for k, n in enumerate(x.shape) if keep or k not in wanted]
    if x.dtype == pf.bool:
        value = not largest
    elif x.is_floating_point():
        value = -float("inf") if largest else float("inf")
    else:
        limits = np.iinfo(x.dtype.name)
        value = limits.min if largest else limits.max
    return pf.full(shape, value, dtype=x.dtype, device=x.device)


def _mean(x, axes, keep):
    return x.mean(axes, keepdim=keep) if x.is_floating_point() else x.double().mean(axes, keepdim=keep).to(dtype=x.dtype)


def _log(x, y):
    return pf.log(y).to(dtype=x.dtype)


_REDUCTIONS = {
    "ReduceSum": _sum, "ReduceProd": _prod, "ReduceMax": _extreme(pf.amax), "ReduceMin": _extreme(pf.amin), "ReduceMean": _mean,
    "ReduceL1": lambda x, a, k: _sum(pf.abs(x), a, k),
    "ReduceL2": lambda x, a, k: pf.sqrt(_sum(x * x, a, k).to(dtype=x.dtype if x.is_floating_point() else pf.float64)).to(dtype=x.dtype),
    "ReduceSumSquare": lambda x, a, k: _sum(x * x, a, k),
    "ReduceLogSum": lambda x, a, k: _log(x, _sum(x, a, k)),
    "ReduceLogSumExp": lambda x, a, k: pf.logsumexp(x if x.is_floating_point() else x.double(), a, k).to(dtype=x.dtype),
}


def _reduce(node):
    function, keep, fixed, no_op = _REDUCTIONS[node.op], bool(node.attr("keepdims", 1)), node.attr("axes"), node.attr("noop_with_empty_axes", 0)

    def parts(do, x, axes=None):
        wanted = fixed if axes is None else axes.tolist()
        if x.dim() == 0 or not wanted and no_op:
            return do(_alone, node.op, x)
        return do(function, x, tuple(wanted or range(x.dim())), keep)

    return composed(parts)


def _alone(name, x):
    """The reduction of each element by itself."""
    if name in ("ReduceL1", "ReduceL2"):
        return pf.abs(x)
    if name == "ReduceSumSquare":
        return x * x
    return pf.log(x) if name == "ReduceLogSum" else x


op(*_REDUCTIONS)(_reduce)
op("ReduceSum", since=13, host=(1,))(_reduce)
op(*(n for n in _REDUCTIONS if n != "ReduceSum"), since=18, host=(1,))(_reduce)


@op("ArgMax", "ArgMin")
def arg_extreme(node):
    axis, keep, last = node.attr("axis", 0), bool(node.attr("keepdims", 1)), node.attr("select_last_index", 0)
    function = pf.argmax if node.op == "ArgMax" else pf.argmin
    if not last:
        return lambda x: function(x, axis, keep)
    return lambda x: x.shape[axis] - 1 - function(pf.flip(x, (axis,)), axis, keep)


def _scan(function, neutral):
    def make(node):
        exclusive, reverse = node.attr("exclusive", 0), node.attr("reverse", 0)

        def run(x, axis):
            axis = int(np.asarray(axis).reshape(-1)[0]) % x.dim()
            dtype = x.dtype
            x = pf.flip(x, (axis,)) if reverse else x
            if exclusive:
                first = pf.full([1 if k == axis else n for k, n in enumerate(x.shape)], neutral, dtype=dtype, device=x.device)
                x = pf.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
            x = function(x, axis).to(dtype=dtype)
            return pf.flip(x, (axis,)) if reverse else x

        return run

    return make


op("CumSum", host=(1,))(_scan(lambda x, axis: pf.cumsum(x, axis), 0))
op("CumProd", host=(1,))(_scan(lambda x, axis: pf.cumprod(x, axis), 1))


@op("TopK", host=(1,))
def top_k(node):
    axis, largest, ordered = node.attr("axis", -1), bool(node.attr("largest", 1)), bool(node.attr("sorted", 1))
    fixed = node.attr("k")

    def run(x, k=None):
        k = fixed if k is None else int(np.asarray(k).reshape(-1)[0])
        return pf.topk(x, k, axis, largest, ordered)

    return run
