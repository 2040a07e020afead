"""Collectives that have gradients, by the names of torch.distributed.nn.functional. The gradient is that of the sum of what all ranks call backward() on."""
from __future__ import annotations

from ... import _C
from ...autograd.function import Function
from .. import _collectives, _state
from .._redistribute import gathered, reduced, scattered

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._C import Tensor
    from .._group import ProcessGroup


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, x, op, group):
        ctx.op, ctx.group = op, group
        return reduced(x, group, op)

    @staticmethod
    def backward(ctx, g):
        return _AllReduce.apply(g, ctx.op, ctx.group), None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return gathered(x.unsqueeze(0), group, 0)

    @staticmethod
    def backward(ctx, g):
        return _ReduceScatter.apply(g, ctx.group), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return scattered(x, group, 0).squeeze(0)

    @staticmethod
    def backward(ctx, g):
        return _AllGather.apply(g, ctx.group), None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, x, sent, received, group):
        ctx.sent, ctx.received, ctx.group = sent, received, group
        rows = x.shape[0] if received is None else sum(received)
        out = _C.empty((rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
        _collectives.all_to_all_single(out, x.contiguous(), output_split_sizes=received, input_split_sizes=sent, group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        return _AllToAll.apply(g, ctx.received, ctx.sent, ctx.group), None, None, None


def _sums(op, reduction, also=()):
    if reduction not in (_state.ReduceOp.SUM, *also):
        raise NotImplementedError(f"nn.functional.{op}: this reduction has no gradient here; got {reduction}; expected ReduceOp.SUM{''.join(f' or {a.upper()}' for a in also)}")
    return reduction


def _check_tensor(op, x):
    if not isinstance(x, _C.Tensor):
        raise TypeError(f"nn.functional.{op}: not a tensor; got {type(x).__name__}; expected a tensor")


def all_reduce(tensor: Tensor, op: str = _state.ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """The sum (or AVG) of the tensors of all ranks, as a new tensor. Its gradient is the sum (or AVG) of the gradients of all ranks.

    tensor: of one shape and dtype on all ranks. op: ReduceOp.SUM or AVG; NotImplementedError for others. group: None: all processes. TypeError for what is no
    tensor or no group."""
    _check_tensor("all_reduce", tensor)
    return _AllReduce.apply(tensor, _sums("all_reduce", op, (_state.ReduceOp.AVG,)), _state.resolved("nn.functional.all_reduce", group))


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """A tuple of the tensors of all ranks, which have one shape. The gradient of this rank's tensor is the sum of what all ranks have for it.

    group: None: all processes. TypeError for what is no tensor or no group."""
    _check_tensor("all_gather", tensor)
    group = _state.resolved("nn.functional.all_gather", group)
    return tuple(_AllGather.apply(tensor, group))


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: str = _state.ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """The sum over the ranks of the tensors that each has for this rank: input_list[r] goes to rank r. `output` gives the shape; the result is a new tensor.

    op: ReduceOp.SUM; NotImplementedError otherwise. group: None: all processes."""
    _sums("reduce_scatter", op)
    group = _state.resolved("nn.functional.reduce_scatter", group)
    n = group.size() if group else 1
    if len(input_list) != n or any(tuple(t.shape) != tuple(output.shape) for t in input_list):
        raise ValueError(f"nn.functional.reduce_scatter: input_list does not fit; got shapes {[tuple(t.shape) for t in input_list]}; expected {n} tensors of shape {tuple(output.shape)}")
    return _ReduceScatter.apply(_C.stack(list(input_list)), group)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None, group: ProcessGroup | None = None) -> Tensor:
    """The rows that all ranks have for this one, as a new tensor: the first dim is split in equal parts, or in those given. `output` is not written.

    input: the rows for all ranks, in their order. input_split_sizes: how many of them go to each rank. output_split_sizes: how many come from each. None: equally
    many, for which the first dim is a multiple of the number of ranks. group: None: all processes. The gradient takes the same way back.

    ValueError for an input without dims, and for sizes that are not one for each rank or do not have the first dim as their sum; TypeError for what is no tensor
    or no group."""
    _check_tensor("all_to_all_single", input)
    if not input.ndim:
        raise ValueError("nn.functional.all_to_all_single: the input has no rows; got shape (); expected at least 1 dim")
    return _AllToAll.apply(input, input_split_sizes, output_split_sizes, _state.resolved("nn.functional.all_to_all_single", group))


__all__ = ["all_gather", "all_reduce", "all_to_all_single", "reduce_scatter"]
