"""Modules on several devices, by PyTorch's names."""
from __future__ import annotations

import contextlib
import copy
import functools
import weakref

from .. import _C, _refused, distributed
from .._notes import once
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .._annotations import Device
    from ..distributed._group import ProcessGroup

_MIB = 1 << 20


class DataParallel(Module):
    """The module itself, as `.module`, with PyTorch's names in the state dict. It computes on one device, which is noted once where there are several GPUs.

    device_ids, output_device and dim are kept as attributes for PyTorch's programs and change nothing.

    Raises TypeError where module is no Module.
    """

    def __init__(self, module: Module, device_ids: Sequence[Device] | None = None, output_device: Device | None = None, dim: int = 0) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"DataParallel: not a module; got {type(module).__name__}; expected a Module")
        super().__init__()
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids or [], output_device, dim
        if max(_C.rocm_device_count(), _C.cuda_device_count()) > 1:
            once("nn.DataParallel", "computes on one GPU; use DistributedDataParallel with one process for each GPU: `pyflame run --nproc N script.py`")

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Sequence[Device] | None = None, output_device: Device | None = None, dim: int = 0,
                  module_kwargs: dict[str, Any] | None = None) -> Any:
    """Calls the module, on one device.

    inputs: a tuple of positional arguments, or one argument. module_kwargs: a dict of those by name. device_ids, output_device and dim are accepted for PyTorch's
    programs and change nothing.

    Raises TypeError where module cannot be called with these arguments, and what the module raises.
    """
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


class _Bucket:
    """Parameters whose gradients are reduced together: one dtype, in the reverse order of the parameters."""

    def __init__(self, first):
        self.parameters, self.bytes, self.dtype, self.device = [first[1]], first[1].nbytes, first[1].dtype, first[1].device
        self.names = [first[0]]

    def takes(self, p, limit):
        return p.dtype == self.dtype and p.device == self.device and self.bytes + p.nbytes <= limit

    def add(self, name, p):
        self.names.append(name)
        self.parameters.append(p)
        self.bytes += p.nbytes


def _buckets(named, first_limit, limit):
    made, now = [], None
    for name, p in named:
        if now is None or not now.takes(p, first_limit if len(made) == 1 else limit):
            now = _Bucket((name, p))
            made.append(now)
        else:
            now.add(name, p)
    return made


def _broadcast(tensors, group, limit):
    """Gives all ranks the values of the group's rank 0, in few large messages."""
    for bucket in _buckets([("", t) for t in tensors], limit, limit):
        parts = [t.detach() for t in bucket.parameters]
        flat = _C.cat([p.reshape(-1) for p in parts], 0)
        distributed.broadcast(flat, group=group, group_src=0)
        begin = 0
        for p in parts:
            p.copy_(flat[begin : begin + p.numel()].reshape(tuple(p.shape)))
            begin += p.numel()


def _has_buffers(module):
    return any(b is not None for b in module._buffers.values()) or any(_has_buffers(m) for m in module._modules.values() if m is not None)


class DistributedDataParallel(Module):
    """Trains `module`, a copy of which each process has, on a part of each batch: at the end of backward() every .grad is the average of the gradients of all
    processes. When each part has the same size and the loss is a mean over it, the losses and steps are those of one process with the whole batch, up to
    rounding.

    module: its parameters and buffers get the values of rank 0 now, and its buffers before each forward() in training (broadcast_buffers). bucket_cap_mb: MiB
    of gradients that go in one collective. Gradients on GPUs that take no more bytes than `DistributedDataParallel.in_order_bytes` and than bucket_cap_mb are
    averaged behind the backward pass instead of beside it, which costs the host less. find_unused_parameters: a parameter that a process did not use counts
    with the .grad that it has there, or with zeros; without it, such a parameter is an error on every rank. ValueError: the modules differ between ranks. In a
    world of one it calls the module. init_sync: whether the modules
    are compared and get the values of rank 0. process_group: the processes; None: all of the job. mixed_precision, device_mesh and
    delay_all_reduce_named_params are refused (NotImplementedError). TypeError: module is no Module. device_ids: None or a list of one device, which changes
    nothing; ValueError for more. output_device, dim, check_reduction, gradient_as_bucket_view, static_graph,
    param_to_hook_all_reduce and skip_all_reduce_unused_params are accepted for PyTorch's programs and change nothing.
    """

    in_order_bytes = 4 * _MIB  # to average more takes longer than what a stream of its own costs the host. It is read when a module is wrapped

    def __init__(self, module: Module, device_ids: Sequence[Device] | None = None, output_device: Device | None = None, dim: int = 0,
                 broadcast_buffers: bool = True, init_sync: bool = True, process_group: ProcessGroup | None = None, bucket_cap_mb: float | None = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False, static_graph: bool = False,
                 delay_all_reduce_named_params: None = None, param_to_hook_all_reduce: Any = None, mixed_precision: None = None, device_mesh: None = None,
                 skip_all_reduce_unused_params: bool = False) -> None:
        op = "DistributedDataParallel"
        if not isinstance(module, Module):
            raise TypeError(f"{op}: not a module; got {type(module).__name__}; expected a Module")
        if device_ids is not None and (not isinstance(device_ids, (list, tuple)) or len(device_ids) > 1):
            raise ValueError(f"{op}: device_ids is not a list of one device; got {device_ids!r}; expected None or such as [0]; hint: one process for each GPU, `pyflame run --nproc gpu script.py`")
        super().__init__()
        for name, value in (("mixed_precision", mixed_precision), ("device_mesh", device_mesh), ("delay_all_reduce_named_params", delay_all_reduce_named_params)):
            if value is not None:
                raise NotImplementedError(f"{op}: {name} is not available; got {value!r}; expected None")
        limit = 25 if bucket_cap_mb is None else bucket_cap_mb
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit <= 0:
            raise ValueError(f"{op}: bucket_cap_mb is not a size; got {bucket_cap_mb!r}; expected MiB above 0")
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise RuntimeError(f"{op}: there is nothing to train; got a module without a parameter that requires a gradient; expected at least one; hint: call the module itself")
        self.module = module
        self.process_group, self.device_ids, self.output_device, self.dim = process_group, device_ids, output_device, dim
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.require_backward_grad_sync = True
        self._sync = True
        self._limit = max(1, int(limit * _MIB))
        self._alone = distributed.get_world_size(process_group) == 1
        self._on_gpus = all(p.device.type != "cpu" for _, p in named)
        self._in_order = self._on_gpus and sum(p.nbytes for _, p in named) <= min(self.in_order_bytes, self._limit)
        self._buckets = _buckets(named[::-1], self._limit if self._in_order else min(_MIB, self._limit), self._limit)
        self._signatures = [distributed._collectives.averages_signature(b.parameters) for b in self._buckets]
        if self._alone:
            return
        from ..distributed._sharding import check_not_divided

        for name, p in module.named_parameters():
            check_not_divided(op, p, process_group or distributed.group.WORLD, name)
        if init_sync:
            self._compare(op)
            _broadcast([*module.parameters(), *module.buffers()], process_group, self._limit)
        self._watch()

    def _watch(self):
        """Hears of each gradient of its parameters. On GPUs a bucket is reduced while the rest of the backward pass goes on, unless all are small."""
        me, early = weakref.ref(self), self._on_gpus and not self.find_unused_parameters and not self._in_order
        self._works = []
        self._gradients = _C._gradient_buckets([b.parameters for b in self._buckets], early, functools.partial(_start, me), functools.partial(_reduce, me))

    def __deepcopy__(self, memo):
        """A copy, in the same process group, that reduces the gradients of its own parameters."""
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update({k: v if k == "process_group" else copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in ("_works", "_gradients")})
        if not made._alone:
            made._watch()
        return made

    def _compare(self, op):
        """Raises where the module of another rank has other parameters."""
        own = [(name, tuple(t.shape), str(t.dtype)) for name, t in [*self.module.named_parameters(), *self.module.named_buffers()]]
        all_ranks = [None] * distributed.get_world_size(self.process_group)
        distributed.all_gather_object(all_ranks, own, group=self.process_group)
        for r, other in enumerate(all_ranks):
            if other != all_ranks[0]:
                different = next(((a, b) for a, b in zip(all_ranks[0], other) if a != b), (f"{len(all_ranks[0])} parameters and buffers", f"{len(other)}"))
                raise ValueError(f"{op}: the modules of the ranks differ; got {different[0]} on rank 0 and {different[1]} on rank {r}; expected the same module on every rank")

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes of forward passes in this block leave .grad as each process has it. The next one outside reduces what came together."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Returns module(*inputs, **kwargs). Before that, in training, the ranks' buffers are set to those of rank 0 (broadcast_buffers=True)."""
        if not self._alone:
            self._sync = self.require_backward_grad_sync
            self._begin()
            if self.broadcast_buffers and self.training and self._sync and _has_buffers(self.module):
                _broadcast(list(self.module.buffers()), self.process_group, self._limit)
        return self.module(*inputs, **kwargs)

    def _begin(self):
        """Forgets what the backward pass before has left, which may have raised."""
        self._works = []
        self._gradients.begin(self._sync)

    def _reduce(self):
        """Averages the gradients, bucket by bucket. Each bucket ends with two numbers for each parameter: 1 where this process used it in this pass, and 1
        where it has a gradient, which may be from passes before."""
        used = {id(p) for b, flags in zip(self._buckets, self._gradients.used()) for p, flag in zip(b.parameters, flags) if flag}
        works = []
        for b in self._buckets:
            gradients = [_C.zeros(tuple(p.shape), dtype=b.dtype, device=b.device) if p.grad is None else p.grad.detach() for p in b.parameters]
            flags = _C.tensor([*(float(id(p) in used) for p in b.parameters), *(float(p.grad is not None) for p in b.parameters)], dtype=b.dtype, device=b.device)
            flat = _C.cat([*(g.reshape(-1) for g in gradients), flags], 0)
            works.append((flat, distributed.all_reduce(flat, op=distributed.ReduceOp.AVG, group=self.process_group, async_op=True)))
        shares = []
        for b, (flat, work) in zip(self._buckets, works):
            work.wait()
            shares.append([share.real for share in flat[-2 * len(b.parameters) :].tolist()])
        unused = sorted(name for b, s in zip(self._buckets, shares) for name, share in zip(b.names, s) if share < 1)  # the first number of each parameter
        if unused and not self.find_unused_parameters:
            own = sorted(name for b in self._buckets for name, p in zip(b.names, b.parameters) if id(p) not in used)
            raise RuntimeError(
                f"DistributedDataParallel: parameters got no gradient on every rank; got {', '.join(unused)} (on this rank {', '.join(own) or 'none of them'}); expected a loss that depends on "
                "all parameters; hint: find_unused_parameters=True, or requires_grad_(False) for those that are not trained, before DistributedDataParallel is made"
            )
        for b, (flat, _), s in zip(self._buckets, works, shares):
            begin = 0
            for p, share in zip(b.parameters, s[len(b.parameters) :]):
                if share > 0:
                    g = flat[begin : begin + p.numel()].reshape(tuple(p.shape))
                    if p.grad is None:
                        p.grad = g.clone()
                    else:
                        p.grad.detach().copy_(g)
                begin += p.numel()

    def _finish(self):
        """On GPUs, at the end of a backward pass: makes .grad of each parameter the average. Whether a parameter was used is known on this rank; the host
        waits for no other."""
        if self._in_order:
            for k, signature in enumerate(self._signatures):
                distributed._collectives.average_in_place(self._gradients.gradients(k), signature, self.process_group)
        else:
            self._finish_buckets()
        if self._gradients.all_used():
            return
        used = self._gradients.used()
        unused = sorted(name for b, flags in zip(self._buckets, used) for name, flag in zip(b.names, flags) if not flag)
        raise RuntimeError(
            f"DistributedDataParallel: parameters got no gradient; got {', '.join(unused)} on rank {distributed.get_rank()}; expected a loss that depends on "
            "all parameters; hint: find_unused_parameters=True, or requires_grad_(False) for those that are not trained, before DistributedDataParallel is made"
        )

    def _finish_buckets(self):
        """Starts the buckets that were not whole before the end of the pass, and gives the parameters the averages."""
        for b in self._buckets[len(self._works) :]:
            self._works.append(distributed._collectives.start_averages([_C.zeros(tuple(p.shape), dtype=b.dtype, device=b.device) if p.grad is None else p.grad.detach() for p in b.parameters],
                                                                       self.process_group))
        for k, (work, averages) in enumerate(self._works):
            work.wait()
            self._gradients.set_gradients(k, averages)


def _start(me, gradients):
    """All gradients of the next bucket are known. They are averaged behind what computes them; what is recorded afterwards runs beside it."""
    self = me()
    if self is not None:
        self._works.append(distributed._collectives.start_averages(gradients, self.process_group))


def _reduce(me):
    """A backward pass ends that used a parameter."""
    self = me()
    if self is None:
        return
    try:
        if self._on_gpus and not self.find_unused_parameters:
            self._finish()
        else:
            self._reduce()
    finally:
        self._begin()


__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
__path__ = []  # PyTorch has files below it, which are found as this module
_ONE_DEVICE = "DataParallel computes on one device; use DistributedDataParallel with one process for each GPU"
for _name in ("gather", "parallel_apply", "replicate", "scatter", "scatter_kwargs", "Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"):
    globals()[_name] = _refused.function(f"nn.parallel.{_name}", _ONE_DEVICE)
