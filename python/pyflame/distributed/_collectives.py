"""Collectives of tensors. Every rank makes the same calls in the same order, with the same op, shapes and dtype. Where the ranks' calls differ, the call raises
the same error on every rank. A call that raises an error on one rank before it takes part, such as for an argument, counts as that rank's call: the others raise an error for it, so
that no later call takes its place."""
from __future__ import annotations

import functools
import inspect
import time

from .. import _C
from .._C import Tensor
from .._notes import once
from . import _device
from ._group import ProcessGroup, Work, line_of_caller, said_of, taking_part
from ._state import ReduceOp, _World, get_global_rank, get_group_rank, is_outside, resolved

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._annotations import Function, Timeout


def _name(dtype):
    return str(dtype).rpartition(".")[2]


def _shape(t):
    return str(tuple(t.shape))


def _check(op, name, t):
    if not isinstance(t, Tensor):
        raise TypeError(f"{op}: {name} is not a tensor; got {type(t).__name__}; expected a tensor")
    if t.grad_fn is not None and _C.is_grad_enabled():
        once(f"distributed.{op}", f"{name} has a grad_fn, and gradients do not go through this call: those of the other ranks are left out, without an error; hint: the collectives of distributed.nn.functional have "
             f"gradients; {name}.detach() says that none is meant")
    return t


def _check_list(op, name, tensors, length, like=None):
    if not isinstance(tensors, (list, tuple)) or len(tensors) != length:
        raise ValueError(f"{op}: {name} is not a list of one tensor for each rank; got {len(tensors) if isinstance(tensors, (list, tuple)) else type(tensors).__name__}; expected {length} tensors")
    for i, t in enumerate(tensors):
        _check(op, f"{name}[{i}]", t)
        if like is not None and (tuple(t.shape) != tuple(like.shape) or t.dtype != like.dtype):
            raise ValueError(f"{op}: {name}[{i}] has another shape or dtype; got {_name(t.dtype)} {_shape(t)}; expected {_name(like.dtype)} {_shape(like)}")
    return list(tensors)


def _first_tensor(values):
    for v in values:
        for t in v if isinstance(v, (list, tuple)) else (v,):
            if isinstance(t, Tensor):
                return t
    return None


def counted(call: Function) -> Function:
    """Decorates a collective: an error that it raises before it takes part is told to the other ranks as this rank's call."""
    parameters = inspect.signature(call)

    @functools.wraps(call)
    def collective(*args, **kwargs):
        try:
            return call(*args, **kwargs)
        except Exception as e:
            if not getattr(e, "_took_part", False):
                e._took_part = True  # a collective that is made of another one tells it once
                _refuse(call.__name__, parameters, args, kwargs, e)
            raise

    return collective


def _refuse(op, parameters, args, kwargs, error):
    try:
        given = parameters.bind_partial(*args, **kwargs).arguments
    except TypeError:  # the error says so
        given = kwargs
    group = given.get("group")
    group = _World.default if group is None else group
    if not isinstance(group, ProcessGroup):
        return
    t = _first_tensor(given.values())
    if t is not None and _device.by_library(group, t):
        return  # the others do not read what is said on the host
    group._refuse(f"{op} at {line_of_caller()}: {type(error).__name__}: {error}")


class _Staging:
    """The tensors of a call as contiguous ones on the CPU, and the way back for those that are written. What goes through the host's memory although it is
    on a GPU is in the ledger of fallbacks."""

    def __init__(self, op, group):
        self.op, self.group, self.back, self.gpu, self.seconds, self.kept = op, group, [], None, 0.0, []

    def _on_host(self, t):
        if t.device.type != "cpu":
            self.gpu = str(t.device)
            begin = time.perf_counter()
            t = t.cpu()
            self.seconds += time.perf_counter() - begin
        return t.contiguous()

    def read(self, t):
        """The address of the values of a tensor."""
        t = self._on_host(t.detach())
        self.kept.append(t)
        return _C._host_address(t, False)

    def write(self, t, read=True):
        """The address where the new values of a tensor go; `read`: its old values are there."""
        t = t.detach()
        if t.device.type == "cpu" and t.is_contiguous():
            self.kept.append(t)
            return _C._host_address(t, True)
        if t.device.type != "cpu":
            self.gpu = str(t.device)
        h = self._on_host(t) if read else _C.empty(tuple(t.shape), dtype=t.dtype, device="cpu")
        self.back.append((t, h))
        return _C._host_address(h, True)

    def finish(self):
        begin = time.perf_counter()
        for t, h in self.back:
            t.copy_(h)
        if self.gpu:
            seconds = self.seconds + time.perf_counter() - begin
            why = _device.why_host(self.group, self.gpu.partition(":")[0])
            _C._note_fallback(self.op, self.gpu, "the host's memory", why, f"distributed.{self.op} of a tensor on {self.gpu} goes through the host's memory: {why}", seconds)


def _run(op, group, signature, call, staging, async_op, result=None, dtype=None, seconds=None):
    """Runs call(said) in its turn."""
    said = said_of(op, signature, f"{signature} at {line_of_caller()}", group._timeout if seconds is None else seconds, dtype)
    with taking_part():
        return group._call("collectives", lambda: call(said), async_op, staging.finish if staging else None, result)


def _alone(async_op, result=None):
    """What a call returns that has nothing to do."""
    if not async_op:
        return None
    work = Work(None, result)
    work._ended.set()
    return work


def _alone_in_place(tensor, group, async_op):
    """_alone() of a call that writes its tensor: autograd knows of it, as it does where there are more ranks."""
    if not is_outside(group):
        _C._mark_written(tensor)
    return _alone(async_op, [tensor])


def _reduction(op, name, t):
    if not isinstance(name, str):
        raise TypeError(f"{op}: op is not a reduction; got {type(name).__name__}; expected one of ReduceOp")
    _C._check_reduction(op, name, t.dtype)
    return name


def _peer(op, group, rank, name, group_rank=None):
    """The rank in the group of a rank of the job."""
    if group_rank is not None:
        rank = get_global_rank(group, group_rank)
    if rank is None:
        rank = get_global_rank(group, 0)
    if rank not in group.ranks:
        raise ValueError(f"{op}: {name} is not a rank of the group; got {rank}; expected one of {group.ranks}")
    return get_group_rank(group, rank)


def _single(group):
    return group is None or group.size() == 1


@counted
def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Writes the reduction of this tensor over all ranks to it, on every rank. SUM and the others are combined in the order of the ranks; float16 and
    bfloat16 in float32, rounded once.

    tensor: any shape and dtype, the same on all ranks. op: one of ReduceOp. group: the processes; None: all of the job. async_op: returns a Work at once.
    TypeError: AVG of integers, MIN, MAX or PRODUCT of complex numbers, no tensor, an op that is no string. ArgumentError: an op that is not one of
    ReduceOp, and, on every rank, shapes, dtypes or calls that differ between the ranks.
    """
    reduction = _reduction("all_reduce", op, _check("all_reduce", "tensor", tensor))
    given, group = group, resolved("all_reduce", group)
    if _single(group):
        return _alone_in_place(tensor, given, async_op)
    signature = f"all_reduce({reduction}) of {_name(tensor.dtype)} {_shape(tensor)}"
    if gpu := _device.of("all_reduce", group, tensor, reduction):
        return gpu.all_reduce(signature, tensor, reduction, async_op)
    s = _Staging("all_reduce", group)
    at = s.write(tensor)
    return _run("all_reduce", group, signature,
                lambda said: group._group.all_reduce(said, at, tensor.numel(), tensor.dtype, reduction), s, async_op, [tensor], tensor.dtype)


def averages_signature(tensors):
    """How the average of these tensors is called in messages."""
    return f"all_reduce(avg) of {len(tensors)} {_name(tensors[0].dtype)} tensors with {sum(t.numel() for t in tensors)} elements"


def average_in_place(tensors, signature, group=None):
    """Averages small tensors of one dtype on a GPU over all ranks. What is recorded afterwards runs behind it. signature: averages_signature(tensors)."""
    group = resolved("all_reduce", group)
    if gpu := _device.of("all_reduce", group, tensors[0], ReduceOp.AVG):
        return gpu.average_in_place(signature, tensors)
    work, averages = start_averages(tensors, group)
    work.wait()
    for t, average in zip(tensors, averages):
        t.detach().copy_(average)


def start_averages(tensors, group=None):
    """Starts to average tensors of one dtype on a GPU over all ranks, as one collective. Returns the work, and the new tensors that have the averages when its
    wait() has returned."""
    group = resolved("all_reduce", group)
    if gpu := _device.of("all_reduce", group, tensors[0], ReduceOp.AVG):
        return gpu.averages(averages_signature(tensors), tensors)
    flat = _C.cat([t.detach().reshape(-1) for t in tensors], 0)
    work, begin, parts = all_reduce(flat, ReduceOp.AVG, group, async_op=True), 0, []
    for t in tensors:
        parts.append(flat[begin : begin + t.numel()].reshape(tuple(t.shape)))
        begin += t.numel()
    return work, parts


@counted
def reduce(tensor: Tensor, dst: int | None = None, op: str = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """all_reduce() whose result only rank dst gets; the tensors of the others stay as they are.

    tensor: the input, and on rank dst the result; shape and dtype are the same on all ranks. op: one of ReduceOp. group: the processes; None: all of the
    job. async_op: returns a Work at once. dst: the rank in the job; group_dst: the rank in the group, in its place. Without both it is the group's first.
    ValueError: dst is not of the group. The other errors are those of all_reduce().
    """
    reduction = _reduction("reduce", op, _check("reduce", "tensor", tensor))
    given, group = group, resolved("reduce", group)
    if _single(group):
        return _alone_in_place(tensor, given, async_op)
    root = _peer("reduce", group, dst, "dst", group_dst)
    signature = f"reduce({reduction}, dst={group.ranks[root]}) of {_name(tensor.dtype)} {_shape(tensor)}"
    if gpu := _device.of("reduce", group, tensor, reduction):
        return gpu.reduce(signature, tensor, reduction, root, group.rank() == root, async_op)
    s = _Staging("reduce", group)
    at = s.write(tensor) if group.rank() == root else s.read(tensor)
    return _run("reduce", group, signature,
                lambda said: group._group.reduce(said, at, tensor.numel(), tensor.dtype, reduction, root), s, async_op, [tensor], tensor.dtype)


@counted
def broadcast(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Gives every rank the values that the tensor has on rank src.

    tensor: is read on rank src and written on the others; any shape and dtype, the same on all ranks. group: the processes; None: all of the job.
    async_op: returns a Work at once. src: the rank in the job; group_src: the rank in the group, in its place. Without both it is the group's first.
    ValueError: src is not of the group. TypeError: no tensor. ArgumentError, on every rank: shapes, dtypes or calls that differ between the ranks.
    """
    _check("broadcast", "tensor", tensor)
    group = resolved("broadcast", group)
    if _single(group):
        return _alone(async_op, [tensor])
    root = _peer("broadcast", group, src, "src", group_src)
    signature = f"broadcast(src={group.ranks[root]}) of {_name(tensor.dtype)} {_shape(tensor)}"
    if gpu := _device.of("broadcast", group, tensor):
        return gpu.broadcast(signature, tensor, root, group.rank() == root, async_op)
    s = _Staging("broadcast", group)
    at = s.read(tensor) if group.rank() == root else s.write(tensor, read=False)
    return _run("broadcast", group, signature,
                lambda said: group._group.broadcast(said, at, tensor.nbytes, root), s, async_op, [tensor], tensor.dtype)


@counted
def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Writes the input of all ranks, by rank, to the output: as one more dim in front, or one behind the other in the first dim.

    output_tensor, input_tensor: of one dtype; the output has as many times the elements of the input as there are ranks (ValueError otherwise). group:
    the processes; None: all of the job. async_op: returns a Work at once. TypeError: no tensor. ArgumentError, on every rank: shapes, dtypes or calls
    that differ between the ranks.
    """
    op = "all_gather_into_tensor"
    _check(op, "output_tensor", output_tensor), _check(op, "input_tensor", input_tensor)
    if is_outside(group):
        return _alone(async_op)
    group = resolved(op, group)
    n = group.size() if group else 1
    _sizes(op, "output_tensor", output_tensor, "input_tensor", input_tensor, n)
    if _single(group):
        output_tensor.detach().copy_(input_tensor.detach().reshape(tuple(output_tensor.shape)))
        return _alone(async_op, [output_tensor])
    signature = f"{op} of {_name(input_tensor.dtype)} {_shape(input_tensor)}"
    if gpu := _device.of(op, group, input_tensor):
        return gpu.all_gather(op, signature, input_tensor, output_tensor, async_op)
    s = _Staging(op, group)
    read, write = s.read(input_tensor), s.write(output_tensor, read=False)
    return _run(op, group, signature, lambda said: group._group.all_gather(said, read, write, input_tensor.nbytes), s, async_op, [output_tensor], input_tensor.dtype)


def _sizes(op, big_name, big, small_name, small, n):
    if big.dtype != small.dtype or big.numel() != n * small.numel():
        raise ValueError(f"{op}: {big_name} does not fit {small_name}; got {_name(big.dtype)} {_shape(big)} and {_name(small.dtype)} {_shape(small)}; expected one dtype, and {n} times as many elements in {big_name}")


@counted
def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Writes the tensor of each rank to the tensors of the list, by rank: tensor_list[r] becomes what rank r gave. Returns None.

    tensor: any shape and dtype, the same on all ranks. tensor_list: a tensor of that shape and dtype for each rank. group: the processes; None: all of
    the job. async_op: returns a Work at once. ValueError: the list has another length, or a tensor with another shape or dtype. TypeError: no tensor.
    ArgumentError, on every rank: shapes, dtypes or calls that differ between the ranks.
    """
    _check("all_gather", "tensor", tensor)
    if is_outside(group):
        return _alone(async_op)
    group = resolved("all_gather", group)
    n = group.size() if group else 1
    _check_list("all_gather", "tensor_list", tensor_list, n, tensor)
    if _single(group):
        tensor_list[0].detach().copy_(tensor.detach())
        return _alone(async_op, tensor_list)
    signature = f"all_gather of {_name(tensor.dtype)} {_shape(tensor)}"
    if gpu := _device.of("all_gather", group, tensor):
        whole = _C.empty((n, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        parts = [t.detach() for t in tensor_list]
        return gpu.all_gather("all_gather", signature, tensor, whole, async_op, lambda: [p.copy_(whole[i]) for i, p in enumerate(parts)], tensor_list)
    s = _Staging("all_gather", group)
    s.gpu = str(tensor.device) if tensor.device.type != "cpu" else None
    read = s.read(tensor)
    whole = _C.empty((n, *tensor.shape), dtype=tensor.dtype, device="cpu")
    s.back = [(t.detach(), whole[i]) for i, t in enumerate(tensor_list)]
    write = _C._host_address(whole, True)
    return _run("all_gather", group, signature, lambda said: group._group.all_gather(said, read, write, tensor.nbytes), s, async_op, tensor_list, tensor.dtype)


@counted
def reduce_scatter_tensor(output: Tensor, input: Tensor, op: str = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Reduces the input over all ranks, and writes this rank's part of it to the output: part r of the input goes to rank r.

    input, output: of one dtype; the input has as many times the elements of the output as there are ranks (ValueError otherwise). op: one of ReduceOp.
    group: the processes; None: all of the job. async_op: returns a Work at once. The other errors are those of all_reduce().
    """
    name = "reduce_scatter_tensor"
    _check(name, "output", output), _check(name, "input", input)
    reduction = _reduction(name, op, input)
    if is_outside(group):
        return _alone(async_op)
    group = resolved(name, group)
    _sizes(name, "input", input, "output", output, group.size() if group else 1)
    if _single(group):
        output.detach().copy_(input.detach().reshape(tuple(output.shape)))
        return _alone(async_op, [output])
    signature = f"{name}({reduction}) of {_name(input.dtype)} {_shape(input)}"
    if gpu := _device.of(name, group, input, reduction):
        return gpu.reduce_scatter(name, signature, input, output, reduction, async_op)
    s = _Staging(name, group)
    read, write = s.read(input), s.write(output, read=False)
    return _run(name, group, signature,
                lambda said: group._group.reduce_scatter(said, read, write, output.numel(), output.dtype, reduction), s, async_op, [output], output.dtype)


@counted
def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: str = ReduceOp.SUM, group: ProcessGroup | None = None,
                   async_op: bool = False) -> Work | None:
    """reduce_scatter_tensor() of a list of one tensor for each rank: output becomes the reduction of what the ranks have in input_list[r], r being this
    rank.

    output: this rank's result. input_list: a tensor for each rank, of the shape and dtype of the output (ValueError otherwise). op: one of ReduceOp.
    group: the processes; None: all of the job. async_op: returns a Work at once. The other errors are those of all_reduce().
    """
    _check("reduce_scatter", "output", output)
    if is_outside(group):
        return _alone(async_op)
    group = resolved("reduce_scatter", group)
    parts = _check_list("reduce_scatter", "input_list", input_list, group.size() if group else 1, output)
    if _single(group):
        output.detach().copy_(parts[0].detach())
        return _alone(async_op, [output])
    return reduce_scatter_tensor(output, _C.stack([p.detach() for p in parts], 0), op, group, async_op)


def _elements(counts, item):
    return [c * item for c in counts]


def _exchange(op, group, signature, dtype, parts_in, parts_out, async_op, result):
    """Parts to and from each rank, as lists of tensors (None: nothing)."""
    some = next(p for p in [*parts_in, *parts_out] if p is not None)
    if gpu := _device.of(op, group, some):
        return gpu.exchange(op, signature, *([(r, p) for r, p in enumerate(parts) if p is not None] for parts in (parts_in, parts_out)), async_op, result)
    staging = _Staging(op, group)
    item = dtype.itemsize
    given = [p for p in parts_in if p is not None]
    read = staging.read(_C.cat([p.detach().reshape(-1) for p in given], 0) if len(given) != 1 else given[0]) if given else 0
    out_counts = [0 if p is None else p.numel() for p in parts_out]
    write = 0
    if sum(out_counts):
        whole = _C.empty((sum(out_counts),), dtype=dtype, device="cpu")
        write, begin = _C._host_address(whole, True), 0
        for p, n in zip(parts_out, out_counts):
            if p is not None:
                if p.device.type != "cpu":
                    staging.gpu = str(p.device)
                staging.back.append((p.detach(), whole[begin : begin + n].reshape(tuple(p.shape))))
            begin += n
    in_bytes = _elements([0 if p is None else p.numel() for p in parts_in], item)
    out_bytes = _elements(out_counts, item)
    return _run(op, group, signature, lambda said: group._group.exchange(said, read, in_bytes, write, out_bytes), staging, async_op, result, dtype)


@counted
def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None, group: ProcessGroup | None = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Writes the tensor of each rank to the list that rank dst gives; the other ranks give none.

    tensor: any shape and dtype, the same on all ranks. gather_list: on rank dst, a tensor of that shape and dtype for each rank. group: the processes;
    None: all of the job. async_op: returns a Work at once. dst: the rank in the job; group_dst: the rank in the group, in its place. Without both it is
    the group's first. ValueError: dst is not of the group, the list on rank dst does not fit, another rank gives one. TypeError: no tensor.
    ArgumentError, on every rank: shapes, dtypes or calls that differ between the ranks.
    """
    _check("gather", "tensor", tensor)
    if is_outside(group):
        return _alone(async_op)
    group = resolved("gather", group)
    if _single(group):
        _check_list("gather", "gather_list", gather_list, 1, tensor)
        gather_list[0].detach().copy_(tensor.detach())
        return _alone(async_op, gather_list)
    root, n = _peer("gather", group, dst, "dst", group_dst), group.size()
    if group.rank() == root:
        _check_list("gather", "gather_list", gather_list, n, tensor)
    elif gather_list:
        raise ValueError(f"gather: gather_list is given on rank {group.ranks[group.rank()]}; got {len(gather_list)} tensors; expected None on every rank but dst={group.ranks[root]}")
    return _exchange("gather", group, f"gather(dst={group.ranks[root]}) of {_name(tensor.dtype)} {_shape(tensor)}", tensor.dtype,
                     [tensor if r == root else None for r in range(n)], gather_list if group.rank() == root else [None] * n, async_op, gather_list)


@counted
def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None, group: ProcessGroup | None = None, async_op: bool = False,
            group_src: int | None = None) -> Work | None:
    """Writes to the tensor of each rank its tensor of the list that rank src gives; the other ranks give none.

    tensor: is written; any shape and dtype, the same on all ranks. scatter_list: on rank src, a tensor of that shape and dtype for each rank. group: the
    processes; None: all of the job. async_op: returns a Work at once. src: the rank in the job; group_src: the rank in the group, in its place. Without
    both it is the group's first. ValueError: src is not of the group, the list on rank src does not fit, another rank gives one. TypeError: no tensor.
    ArgumentError, on every rank: shapes, dtypes or calls that differ between the ranks.
    """
    _check("scatter", "tensor", tensor)
    if is_outside(group):
        return _alone(async_op)
    group = resolved("scatter", group)
    if _single(group):
        _check_list("scatter", "scatter_list", scatter_list, 1, tensor)
        tensor.detach().copy_(scatter_list[0].detach())
        return _alone(async_op, [tensor])
    root, n = _peer("scatter", group, src, "src", group_src), group.size()
    if group.rank() == root:
        _check_list("scatter", "scatter_list", scatter_list, n, tensor)
    elif scatter_list:
        raise ValueError(f"scatter: scatter_list is given on rank {group.ranks[group.rank()]}; got {len(scatter_list)} tensors; expected None on every rank but src={group.ranks[root]}")
    return _exchange("scatter", group, f"scatter(src={group.ranks[root]}) of {_name(tensor.dtype)} {_shape(tensor)}", tensor.dtype,
                     scatter_list if group.rank() == root else [None] * n, [tensor if r == root else None for r in range(n)], async_op, [tensor])


@counted
def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: ProcessGroup | None = None,
               async_op: bool = False) -> Work | None:
    """Gives tensor r of each rank's input list to rank r, which writes them to its output list, by rank. Shapes may differ; what a rank sends to another has
    as many elements as that one expects.

    output_tensor_list, input_tensor_list: a tensor for each rank, all of one dtype. group: the processes; None: all of the job. async_op: returns a Work
    at once. ValueError: a list has another length, or the dtypes differ. RuntimeError, on every rank: two ranks expect different numbers of elements; the
    group cannot be used afterwards.
    """
    if is_outside(group):
        return _alone(async_op)
    group = resolved("all_to_all", group)
    n = group.size() if group else 1
    outs, ins = _check_list("all_to_all", "output_tensor_list", output_tensor_list, n), _check_list("all_to_all", "input_tensor_list", input_tensor_list, n)
    if len({t.dtype for t in outs + ins}) > 1:
        raise ValueError(f"all_to_all: the dtypes differ; got {', '.join(sorted({_name(t.dtype) for t in outs + ins}))}; expected one dtype")
    if _single(group):
        outs[0].detach().copy_(ins[0].detach())
        return _alone(async_op, output_tensor_list)
    return _exchange("all_to_all", group, f"all_to_all of {_name(ins[0].dtype)}", ins[0].dtype, ins, outs, async_op, output_tensor_list)


@counted
def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None,
                      group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """all_to_all() of the parts of one tensor, in its first dim: equal parts, or of these sizes.

    output, input: of one dtype. output_split_sizes, input_split_sizes: rows for each rank; None: equal parts. ValueError for sizes that do not fit.
    group: the processes; None: all of the job. async_op: returns a Work at once. ValueError also for dtypes that differ. TypeError: no tensor.
    RuntimeError: as of all_to_all().
    """
    op = "all_to_all_single"
    _check(op, "output", output), _check(op, "input", input)
    if is_outside(group):
        return _alone(async_op)
    group = resolved(op, group)
    n = group.size() if group else 1

    def parts(name, t, sizes):
        if t.dim() == 0:
            raise ValueError(f"{op}: {name} has no dim that could be split; got a tensor of shape (); expected at least one dim")
        if not sizes:
            if t.shape[0] % n:
                raise ValueError(f"{op}: the first dim of {name} cannot be split in equal parts; got {t.shape[0]}; expected a multiple of {n}, or {name}_split_sizes")
            sizes = [t.shape[0] // n] * n
        if len(sizes) != n or sum(sizes) != t.shape[0]:
            raise ValueError(f"{op}: {name}_split_sizes do not fit; got {list(sizes)} for a first dim of {t.shape[0]}; expected {n} sizes with this sum")
        return list(t.detach().split(list(sizes), 0))

    outs, ins = parts("output", output, output_split_sizes), parts("input", input, input_split_sizes)
    if output.dtype != input.dtype:
        raise ValueError(f"{op}: the dtypes differ; got {_name(input.dtype)} and {_name(output.dtype)}; expected one dtype")
    if _single(group):
        output.detach().copy_(input.detach())
        return _alone(async_op, [output])
    return _exchange(op, group, f"{op} of {_name(input.dtype)}", input.dtype, ins, outs, async_op, [output])


@counted
def barrier(group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Returns when all ranks have called it.

    group: the processes; None: all of the job. async_op: returns a Work at once, whose wait() returns then. device_ids is accepted for PyTorch's programs
    and changes nothing. RuntimeError: a rank did not come within the group's timeout, or is gone.
    """
    group = resolved("barrier", group)
    if _single(group):
        return _alone(async_op)
    return _run("barrier", group, "barrier", lambda said: group._group.barrier(said), None, async_op)


@counted
def monitored_barrier(group: ProcessGroup | None = None, timeout: Timeout | None = None, wait_all_ranks: bool = False) -> None:
    """barrier() with a timeout of its own; the RuntimeError names the ranks that did not come.

    group: the processes; None: all of the job. timeout: a timedelta or seconds above 0 (ValueError otherwise); None: that of the group. wait_all_ranks
    changes nothing: all missing ranks are named.
    """
    from ._state import seconds_of

    group = resolved("monitored_barrier", group)
    if not _single(group):
        seconds = seconds_of("monitored_barrier", timeout) if timeout is not None else group._timeout
        _run("monitored_barrier", group, "monitored_barrier", lambda said: group._group.barrier(said), None, False, seconds=seconds)


def _message(op, tensor, peer, name, group, tag, group_peer, async_op):
    _check(op, "tensor", tensor)
    group = resolved(op, group)
    if group is None:
        raise ValueError(f"{op}: there is no other rank; got {name}={peer}; expected init_process_group() in several processes")
    r = _peer(op, group, peer, name, group_peer)
    if r == group.rank():
        raise ValueError(f"{op}: {name} is this rank; got {group.ranks[r]}; expected another one")
    if gpu := _device.of(op, group, tensor):
        signature = f"{op} of {_name(tensor.dtype)} {_shape(tensor)} ({name}={group.ranks[r]})"
        parts = [(r, tensor)]
        return gpu.exchange(op, signature, *((parts, []) if op == "send" else ([], parts)), async_op, [tensor])
    s = _Staging(op, group)
    signature = f"a message of {_name(tensor.dtype)} {_shape(tensor)}, tag {tag}"
    line = line_of_caller()
    if op == "send":
        at, move = s.read(tensor), group._group.send
    else:
        at, move = s.write(tensor, read=False), group._group.recv
    text = f"{op} of {_name(tensor.dtype)} {_shape(tensor)} ({name}={group.ranks[r]}) at {line}"
    said = said_of(op, signature, text, group._timeout, tensor.dtype)
    return group._call((op, r), lambda: move(said, r, at, tensor.nbytes), async_op, s.finish, [tensor])


def _check_peer(op, name, rank, group_rank, hint=""):
    if rank is None and group_rank is None:
        raise ValueError(f"{op}: {name} is not given; got None; expected a rank{hint}")


def send(tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends the tensor to a rank, which receives it by recv(). Messages between two ranks keep their order.

    tensor: any shape and dtype. dst: the rank in the job; group_dst: the rank in the group, in its place. group: the processes; None: all of the job.
    tag: a number; recv() must have the same. ValueError: no dst, one that is not of the group or is this rank, or no other process. TypeError: no tensor.
    """
    _check_peer("send", "dst", dst, group_dst)
    return _message("send", tensor, dst, "dst", group, tag, group_dst, False)


def recv(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_src: int | None = None) -> int:
    """Writes the next message of rank src to the tensor; returns src. ValueError when that message has another shape, dtype or tag; it is then dropped.

    tensor: of the shape and dtype of the message. src: the rank in the job, which must be given; group_src: the rank in the group, in its place. group:
    the processes; None: all of the job. tag: as in send(). ValueError also: no src, one that is not of the group or is this rank, or no other process.
    """
    _check_peer("recv", "src", src, group_src, "; hint: a message of any rank is not available")
    _message("recv", tensor, src, "src", group, tag, group_src, False)
    return src if src is not None else get_global_rank(group, group_src)


def isend(tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_dst: int | None = None) -> Work:
    """send() that returns at once, with a Work.

    tensor: what is sent. dst, group, tag, group_dst: as in send(). The errors for them are those of send(): ValueError for no dst, one that is not of the group or
    is this rank, and where there is no other process; TypeError for what is no tensor or no group. An error of the message itself comes from wait() of the Work.
    """
    _check_peer("isend", "dst", dst, group_dst)
    return _message("send", tensor, dst, "dst", group, tag, group_dst, True)


def irecv(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_src: int | None = None) -> Work:
    """recv() that returns at once, with a Work.

    tensor: is written. src, group, tag, group_src: as in recv(). The errors for them are those of recv(): ValueError for no src, one that is not of the group or
    is this rank, and where there is no other process; TypeError for what is no tensor or no group. An error of the message itself, such as another shape,
    comes from wait() of the Work.
    """
    _check_peer("irecv", "src", src, group_src, "; hint: a message of any rank is not available")
    return _message("recv", tensor, src, "src", group, tag, group_src, True)


class P2POp:
    """A message of batch_isend_irecv(): isend or irecv, its tensor and the other rank.

    op: isend or irecv. peer: the other rank in the job; group_peer: the rank in the group, in its place. tag: a number, the same on both sides.
    group: the processes; None: all of the job. ValueError for another op and for no peer; TypeError for what is no tensor. batch_isend_irecv() checks the rest.
    """

    def __init__(self, op: Callable[..., Work], tensor: Tensor, peer: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
                 group_peer: int | None = None) -> None:
        if op not in (isend, irecv):
            raise ValueError(f"P2POp: op is not isend or irecv; got {op!r}; expected distributed.isend or distributed.irecv")
        if not isinstance(tensor, _C.Tensor):
            raise TypeError(f"P2POp: tensor is not a tensor; got {type(tensor).__name__}; expected a tensor")
        _check_peer("P2POp", "peer", peer, group_peer)
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Starts messages together; returns a list with a Work for each. Those of GPUs are one call of their library, so that both ranks may send before they
    receive.

    p2p_op_list: a list of P2POp. ValueError: as of send() and recv().
    """
    if p2p_op_list and all(p.tensor.device.type != "cpu" for p in p2p_op_list):
        group = resolved("batch_isend_irecv", p2p_op_list[0].group)
        same = group is not None and all(resolved("batch_isend_irecv", p.group) is group for p in p2p_op_list)
        if same and (gpu := _device.of("batch_isend_irecv", group, p2p_op_list[0].tensor)):
            peers = [_peer("batch_isend_irecv", group, p.peer, "peer", p.group_peer) for p in p2p_op_list]
            both = ([(r, p.tensor) for r, p in zip(peers, p2p_op_list) if p.op is op] for op in (isend, irecv))
            return [gpu.exchange("batch_isend_irecv", f"batch_isend_irecv of {len(peers)} messages", *both, True, [p.tensor for p in p2p_op_list])] * len(peers)
    return [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
