"""How a value goes from one layout over a group to another, with its gradient.

Replicate: each rank has the whole value, and the whole gradient. Shard(dim): each rank has a part of both. Partial: the value is the sum of what the ranks have, and each rank
has the whole gradient. Each function below has another one of them as its gradient.
"""
from .. import _C
from ..autograd.function import Function
from . import _collectives, _state


def reduced(x, group, op=_state.ReduceOp.SUM):
    """The reduction over the ranks, as a new tensor."""
    x = x.detach().contiguous().clone()
    _collectives.all_reduce(x, op=op, group=group)
    return x


def gathered(x, group, dim):
    """The tensors of all ranks, one behind the other along a dim."""
    x = x.detach().contiguous()
    parts = [_C.empty(tuple(x.shape), dtype=x.dtype, device=x.device) for _ in range(group.size() if group else 1)]
    _collectives.all_gather(parts, x, group=group)
    return _C.cat(parts, dim)


def scattered(x, group, dim):
    """This rank's part along a dim of the sum over the ranks."""
    n = _divided("reduce_scatter", x, group, dim)
    x = x.detach().movedim(dim, 0).contiguous()
    out = _C.empty((x.shape[0] // n, *x.shape[1:]), dtype=x.dtype, device=x.device)
    _collectives.reduce_scatter_tensor(out, x, group=group)
    return out.movedim(0, dim)


def _divided(op, x, group, dim):
    n = group.size() if group else 1
    if x.shape[dim] % n:
        raise ValueError(f"{op}: the dim cannot be split in equal parts; got shape {tuple(x.shape)} along dim {dim}; expected a multiple of {n}, the number of ranks")
    return n


def _own(x, group, dim):
    n = _divided("split", x, group, dim)
    size = x.shape[dim] // n
    return x.narrow(dim, (group.rank() if group else 0) * size, size)


class Copy(Function):
    """Replicate, for a computation of which each rank does a part: the gradients of all ranks are added."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.detach()

    @staticmethod
    def backward(ctx, g):
        return Reduce.apply(g, ctx.group), None


class Reduce(Function):
    """Partial to Replicate."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return reduced(x, group)

    @staticmethod
    def backward(ctx, g):
        return Copy.apply(g, ctx.group), None


class Gather(Function):
    """Shard(dim) to Replicate."""

    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        return gathered(x, group, dim)

    @staticmethod
    def backward(ctx, g):
        return Split.apply(g, ctx.group, ctx.dim), None, None


class Split(Function):
    """Replicate to Shard(dim)."""

    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        return _own(x.detach(), group, dim).clone()

    @staticmethod
    def backward(ctx, g):
        return Gather.apply(g, ctx.group, ctx.dim), None, None


class GatherForParts(Function):
    """Shard(dim) to Replicate, for a computation of which each rank does a part."""

    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        return gathered(x, group, dim)

    @staticmethod
    def backward(ctx, g):
        return ReduceScatter.apply(g, ctx.group, ctx.dim), None, None


class ReduceScatter(Function):
    """Partial to Shard(dim)."""

    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        return scattered(x, group, dim)

    @staticmethod
    def backward(ctx, g):
        return GatherForParts.apply(g, ctx.group, ctx.dim), None, None
