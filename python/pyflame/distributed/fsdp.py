"""Modules whose parameters, gradients and optimizer states are divided over processes, by the names of PyTorch's FSDP2.

Each parameter is split along its first dim. One that tensor parallel layers or distribute_module() have split along another axis of a mesh is split again, and
gathered to that part of it. The parameters of a module are gathered in one collective before its forward pass, and their gradients are averaged
and given back in parts by one collective of the backward pass. The gathered parameters live as long as the tape needs them. Where they are to be given up after the
forward pass, the forward pass of the module is not taped; the backward pass gathers the parameters and computes it again.
"""
from __future__ import annotations

import contextlib

from .. import _C, _refused, _tree
from .._C import Tensor
from ..autograd.function import Function, once_differentiable
from ..nn.module import Module
from ..nn.parameter import is_lazy
from ..nn.recompute import is_recomputed, run_again
from . import _collectives, _state
from ._sharding import ShardedTensor, check_not_divided, padded, rows_per_rank, shard_, sharding_of
from ._wrapped import wrap
from .device_mesh import DeviceMesh
from .tensor._dtensor import DTensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    from .._C import dtype

    ModuleT = TypeVar("ModuleT", bound=Module)


class MixedPrecisionPolicy:
    """The dtypes of a sharded module. param_dtype: of the gathered parameters and of floating inputs, so of the computation. reduce_dtype: in which gradients are
    averaged. output_dtype: of floating outputs. None: as it is. cast_forward_inputs: inputs are converted to param_dtype. The parts keep their dtype, so
    optimizers update those. TypeError for what is no floating dtype."""

    def __init__(self, param_dtype: dtype | None = None, reduce_dtype: dtype | None = None, output_dtype: dtype | None = None, cast_forward_inputs: bool = True) -> None:
        for name, dtype in (("param_dtype", param_dtype), ("reduce_dtype", reduce_dtype), ("output_dtype", output_dtype)):
            if dtype is not None and not (isinstance(dtype, _C.dtype) and dtype.is_floating_point):
                raise TypeError(f"MixedPrecisionPolicy: {name} is not a floating dtype; got {dtype!r}; expected such as bfloat16, or None")
        self.param_dtype, self.reduce_dtype, self.output_dtype, self.cast_forward_inputs = param_dtype, reduce_dtype, output_dtype, cast_forward_inputs

    def __repr__(self):
        return f"MixedPrecisionPolicy(param_dtype={self.param_dtype}, reduce_dtype={self.reduce_dtype}, output_dtype={self.output_dtype}, cast_forward_inputs={self.cast_forward_inputs})"


class OffloadPolicy:
    """The parts of parameters stay on their device: fully_shard's offload_policy. It has no arguments. CPUOffloadPolicy is not available."""


class _Managed:
    """A parameter of a group: its part, its name, and the modules that have it under a name."""

    def __init__(self, name, parameter, places):
        self.name, self.part, self.places = name, parameter, places

    @property
    def sharding(self):
        return self.part._sharding

    def shown(self, t):
        """What the modules have while t is gathered: a part that knows its place, where the parameter was split over another group before."""
        return t if self.sharding.outer is None else ShardedTensor(t, self.sharding.outer)


class _Bucket:
    """Parameters of one dtype, which go in one collective: each rank's row has the padded part of each parameter."""

    def __init__(self, managed, n):
        self.managed, self.n = managed, n
        self.rows = [rows_per_rank(m.sharding.shape[0], n) for m in managed]
        self.inner = [m.sharding.shape[1:] for m in managed]
        self.sizes = [rows * _count(inner) for rows, inner in zip(self.rows, self.inner)]

    def row(self, parts, dtype):
        """This rank's row."""
        return _C.cat([padded(p.to(dtype=dtype), 0, rows).reshape(-1) for p, rows in zip(parts, self.rows)], 0)

    def whole(self, rows):
        """The parameters, of the rows of all ranks [n, size]."""
        found, at = [], 0
        for m, r, inner, size in zip(self.managed, self.rows, self.inner, self.sizes):
            t = rows[:, at : at + size].reshape(self.n * r, *inner)
            found.append(t.narrow(0, 0, m.sharding.shape[0]))
            at += size
        return found

    def matrix(self, gradients, flags, dtype):
        """The gradients of whole parameters as [n, size + flags]: row r has what rank r gets, and then the flags."""
        parts = [padded(g.to(dtype=dtype), 0, self.n * r).reshape(self.n, size) for g, r, size in zip(gradients, self.rows, self.sizes)]
        return _C.cat([*parts, flags.reshape(1, -1).expand(self.n, len(self.managed))], 1)

    def parts(self, row):
        """This rank's parts of the gradients."""
        found, at = [], 0
        for m, r, inner, size in zip(self.managed, self.rows, self.inner, self.sizes):
            found.append(row[at : at + size].reshape(r, *inner).narrow(0, 0, m.sharding.length))
            at += size
        return found


def _count(shape):
    n = 1
    for s in shape:
        n *= s
    return n


class _Gather(Function):
    """The whole parameters of a group, of this rank's parts. Their gradients are averaged over the ranks; each rank gets its part of them."""

    @staticmethod
    def forward(ctx, group, *parts):
        ctx.group, ctx.needed = group, ctx.needs_input_grad[1:]
        ctx.set_materialize_grads(False)
        return tuple(group.gather())

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        return (None, *ctx.group.reduce(gradients, ctx.needed))


class _Group:
    """The parameters of one fully_shard call."""

    inside = 0  # sharded modules whose forward pass is being computed

    def __init__(self, module, managed, shard_group, replica_group, policy, reshard):
        self.module, self.managed, self.shard_group, self.replica_group, self.policy, self.reshard = module, managed, shard_group, replica_group, policy, reshard
        self.n = shard_group.size()
        self.sync, self.divide, self.kept, self.full, self.depth, self.taped = True, None, {}, None, 0, False
        self.prefetched = None
        for m in managed:
            shard_(m.part, shard_group, 0)
        self.forget_dtypes()

    def forget_dtypes(self):
        """The buckets by the dtypes that the parts have now."""
        by = {}
        for m in self.managed:
            by.setdefault(m.part.dtype, []).append(m)
        self.dtypes = [m.part.dtype for m in self.managed]
        self.buckets = [_Bucket(members, self.n) for members in by.values()]

    def compute_dtype(self, dtype):
        return self.policy.param_dtype or dtype if dtype.is_floating_point else dtype

    # ---- collectives

    def begin_gather(self):
        """Starts the collectives of gather()."""
        if self.dtypes != [m.part.dtype for m in self.managed]:  # module.half() and the like
            self.forget_dtypes()
        self.prefetched, self.versions = [], [m.part._version for m in self.managed]
        for b in self.buckets if self.n > 1 else ():
            dtype = self.compute_dtype(b.managed[0].part.dtype)
            row = b.row([m.part.to_local() for m in b.managed], dtype)
            rows = _C.empty((self.n, row.numel()), dtype=dtype, device=row.device)
            self.prefetched.append((b, rows, _collectives.all_gather_into_tensor(rows, row, group=self.shard_group, async_op=True)))

    def prefetch(self):
        """The next gather() finds its collectives begun."""
        if self.full is None and self.prefetched is None:
            self.begin_gather()

    def gather(self):
        """The whole parameters, in the order of `managed`."""
        if self.prefetched is not None and self.versions != [m.part._version for m in self.managed]:  # an optimizer's step since
            for _, _, work in self.prefetched:
                work.wait()
            self.prefetched = None
        if self.prefetched is None:
            self.begin_gather()
        begun, self.prefetched = self.prefetched, None
        if self.n == 1:
            return [m.part.to_local().to(dtype=self.compute_dtype(m.part.dtype)) for m in self.managed]
        found = {}
        for b, rows, work in begun:
            work.wait()
            found.update((id(m), t) for m, t in zip(b.managed, b.whole(rows)))
        return [found[id(m)] for m in self.managed]

    def reduce(self, gradients, needed):
        """The gradients of the parts, of those of the whole parameters on this rank. None: no rank has a gradient, or none is needed."""
        had = {id(m): g for m, g in zip(self.managed, gradients) if g is not None}
        for m in self.managed:
            if id(m) in self.kept:
                before = self.kept.pop(id(m))
                had[id(m)] = before + had[id(m)].to(dtype=before.dtype) if id(m) in had else before
        if not self.sync:
            self.kept = {key: g.to(dtype=self.reduce_dtype(g.dtype)) for key, g in had.items()}
            return [None] * len(self.managed)
        wanted = {id(m) for m, need in zip(self.managed, needed) if need}
        found = {}
        for b in self.buckets:
            members = [m for m in b.managed if id(m) in wanted]
            if members:
                found.update(self._reduced(_Bucket(members, self.n), had))
        return [found.get(id(m)) for m in self.managed]

    def reduce_dtype(self, dtype):
        return self.policy.reduce_dtype or dtype

    def _reduced(self, b, had):
        first = b.managed[0].part
        dtype = self.reduce_dtype(self.compute_dtype(first.dtype))
        op = _state.ReduceOp.AVG if self.divide is None else _state.ReduceOp.SUM
        whole = [had[id(m)] if id(m) in had else _C.zeros(m.sharding.shape, dtype=dtype, device=first.device) for m in b.managed]
        flags = _C.tensor([float(id(m) in had) for m in b.managed], dtype=dtype, device=first.device)
        if self.n > 1:
            matrix = b.matrix(whole, flags, dtype)
            row = _C.empty((matrix.shape[1],), dtype=dtype, device=first.device)
            _collectives.reduce_scatter_tensor(row, matrix, op=op, group=self.shard_group)
        else:
            row = b.matrix(whole, flags, dtype).reshape(-1)
        if self.replica_group is not None:
            _collectives.all_reduce(row, op=op, group=self.replica_group)
        shares = row[-len(b.managed) :].tolist()
        if self.divide is not None:
            row = row / self.divide
        return {id(m): g.to(dtype=m.part.dtype).contiguous() for m, g, share in zip(b.managed, b.parts(row), shares) if share != 0}

    # ---- the parameters in the modules

    def unshard(self):
        taped = _C.is_grad_enabled()
        if self.full is not None and not self.depth and (taped and not self.taped or self.versions != [m.part._version for m in self.managed]):
            self.put_back()  # it was gathered without a tape, or before an optimizer's step
        if self.full is None:
            for m in self.managed:
                for owner, name in m.places:
                    if owner._parameters.get(name) is not m.part:
                        raise RuntimeError(f"fully_shard: a parameter was replaced after the module was sharded; got another object as {m.name}; expected the part that fully_shard() made; hint: copy values into it, as load_state_dict() does without assign")
            self.taped = taped
            self.full = _Gather.apply(self, *(m.part for m in self.managed)) if self.managed else ()
            for m, t in zip(self.managed, self.full):
                shown = m.shown(t)
                for owner, name in m.places:
                    owner._parameters[name] = shown

    def put_back(self):
        self.full = None
        for m in self.managed:
            for owner, name in m.places:
                owner._parameters[name] = m.part

    @contextlib.contextmanager
    def gathered(self):
        """The whole parameters are in the modules."""
        self.unshard()
        self.depth += 1
        _Group.inside += 1
        try:
            yield
        finally:
            self.depth -= 1
            _Group.inside -= 1
            if not self.depth:
                self.put_back()


def _snapshot(module):
    """Copies of a module's buffers and the places of the buffers; later those that the forward pass wrote are taken."""
    return [(m, name, b, b._version, b.detach().clone()) for m in module.modules() for name, b in m._buffers.items() if b is not None and not is_lazy(b)]


class _Again:
    """A forward pass that the backward pass computes once more, with the buffers as they were before the first time."""

    def __init__(self, group, inner):
        self.group, self.inner, self.before = group, inner, None

    def __call__(self, *args, **kwargs):
        group = self.group
        if self.before is None:
            before = _snapshot(group.module) if group.module.training else []
            with group.gathered():
                result = self.inner(*args, **kwargs)
            self.before = [(m, name, copy) for m, name, b, version, copy in before if b._version != version]
            return result
        now = [(m, name, m._buffers[name]) for m, name, _ in self.before]
        for m, name, copy in self.before:
            m._buffers[name] = copy.clone()
        try:
            with group.gathered():
                for other in group.module._prefetch_backward:
                    other._fsdp.prefetch()
                return self.inner(*args, **kwargs)
        finally:
            for m, name, b in now:
                m._buffers[name] = b


def _cast(tree, dtype):
    return _tree.map(lambda t: t.to(dtype=dtype) if isinstance(t, (Tensor, DTensor)) and t.dtype.is_floating_point and t.dtype != dtype else t, tree)


def _forward(module, inner, args, kwargs):
    group = module._fsdp
    if group.depth:  # a method of the module that calls it
        return inner(*args, **kwargs)
    policy = group.policy
    if policy.param_dtype is not None and policy.cast_forward_inputs:
        args, kwargs = _cast((args, kwargs), policy.param_dtype)
    reshard = (_Group.inside > 0 if group.reshard is None else group.reshard) and not is_recomputed(module)
    if reshard and group.n > 1 and group.managed and _C.is_grad_enabled():
        result = run_again(_Again(group, inner), args, kwargs)
    else:
        with group.gathered():
            for other in module._prefetch_forward:
                other._fsdp.prefetch()
            result = inner(*args, **kwargs)
    return result if policy.output_dtype is None else _cast(result, policy.output_dtype)


def _parameters_of(module, ignored):
    """The parameters below a module that no module with a group of its own has, with their places."""
    found, names = {}, {}

    def walk(m, prefix):
        if isinstance(m, FSDPModule):
            return
        for name, p in m._parameters.items():
            if p is not None and id(p) not in ignored:
                found.setdefault(id(p), _Managed(prefix + name, p, [])).places.append((m, name))
        for name, child in m._modules.items():
            if child is not None and id(child) not in names:
                names[id(child)] = True
                walk(child, f"{prefix}{name}.")

    walk(module, "")
    return list(found.values())


def _check(op, managed, shard_group, replica_group):
    for m in managed:
        if is_lazy(m.part):
            raise ValueError(f"{op}: a parameter has no shape yet; got {m.name}; expected a module whose parameters have shapes; hint: call the lazy module with an input first")
        if m.part.ndim == 0:
            raise ValueError(f"{op}: a parameter has no dim that could be split; got {m.name} of shape (); expected at least one dim; hint: shape (1,)")
        if getattr(m.part, "_gathered_by", None) is not None:
            raise ValueError(f"{op}: a parameter belongs to another sharded module already; got {m.name}; expected modules without common parameters; hint: shard the module that contains both")
        for group in (shard_group, replica_group) if replica_group else (shard_group,):
            check_not_divided(op, m.part, group, m.name)
            mesh = getattr(sharding_of(m.part), "device_mesh", None)
            if mesh is not None and len(set(mesh.mesh.reshape(-1).tolist()) & set(group.ranks)) > 1:  # DTensors add up gradients over all of their mesh
                raise ValueError(f"{op}: a parameter lies on a mesh that has these ranks already; got {m.name} on {mesh}; expected a mesh without the axis of fully_shard(); hint: distribute_module(module, mesh['tensor'], ...), then fully_shard(module, mesh=mesh['data'])")


def _compare(op, managed, group):
    """Raises where another rank has other parameters."""
    if group.size() == 1:
        return
    from ._objects import all_gather_object

    everyone = [None] * group.size()
    all_gather_object(everyone, [(m.name, tuple(m.part.shape), str(m.part.dtype)) for m in managed], group=group)
    for r, other in enumerate(everyone):
        if other != everyone[0]:
            a, b = next(((x, y) for x, y in zip(everyone[0], other) if x != y), (f"{len(everyone[0])} parameters", f"{len(other)}"))
            raise ValueError(f"{op}: the modules of the ranks differ; got {a} on rank {group.ranks[0]} and {b} on rank {group.ranks[r]}; expected the same module on every rank")


def _groups_of(op, mesh):
    """(the group that parameters are split over, the group of copies or None)."""
    if mesh is None:
        _state.resolved(op, None)  # raises where this process is one of several that do not know each other yet
        return _state.group.WORLD or _state.new_group([0]), None
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{op}: mesh is not a mesh; got {type(mesh).__name__}; expected what init_device_mesh() returned")
    if mesh.ndim > 2:
        raise ValueError(f"{op}: the mesh has too many axes; got {mesh.ndim}; expected one, or two of which the first has the copies; hint: mesh['dp']")
    if mesh.get_coordinate() is None:
        raise ValueError(f"{op}: this process is not in the mesh; got rank {_state.get_rank()}; expected one of {mesh.mesh.reshape(-1).tolist()}")
    groups = mesh.get_all_groups()
    return groups[-1], groups[0] if len(groups) == 2 and groups[0].size() > 1 else None


def fully_shard(module: ModuleT, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | None = None, shard_placement_fn: None = None, mp_policy: MixedPrecisionPolicy | None = None, offload_policy: OffloadPolicy | None = None, ignored_params: Iterable[Tensor] | None = None) -> ModuleT:
    """Divides the parameters of a module over processes, and with them gradients and optimizer states. Returns the module, whose class is now a subclass of the one it had
    and of FSDPModule. Parameters of modules below that are sharded already stay theirs: call it for the blocks of a model first, then for the model.

    Each parameter, the same object, becomes this rank's part: rows [rank * c, (rank + 1) * c) of its first dim, with c = ceil(rows / ranks). While the module computes
    its forward pass the parameters are whole. After backward(), .grad is this rank's part of the average of the gradients. An optimizer over module.parameters() does the rest.
    Parameters that parallelize_module() or distribute_module() divided along another axis of a mesh are divided again: while the module computes, each process has the part
    that its layer computes with.

    mesh: one axis: the processes to divide over. Two axes: the parameters are divided along the second one, and there are copies along the first one. None: all processes.
    reshard_after_forward: True: the whole parameters are given up after the forward pass; the backward pass gathers them and computes the forward pass of
    this module again (its intermediates are not kept). False: they are kept for the backward pass. None: False for the module that is called, True for those below it.
    mp_policy: a MixedPrecisionPolicy. offload_policy: an OffloadPolicy, or None; both leave the parts on their device. shard_placement_fn: None; NotImplementedError otherwise.
    ignored_params: parameters that stay whole; nobody averages their gradients.
    In a world of one the parameters stay whole. ValueError, on every rank: the modules of the ranks differ; a container without forward; a parameter without a dim, of two modules, or
    divided over ranks of this mesh already; a module of distribute_module() whose mesh has the axis.
    """
    op = "fully_shard"
    if not isinstance(module, Module):
        raise TypeError(f"{op}: not a Module; got {type(module).__name__}; expected a module")
    if isinstance(module, FSDPModule):
        raise ValueError(f"{op}: the module is sharded already; got a second call for {type(module).__name__}; expected one call for each module")
    if type(module).forward is Module.forward:
        raise ValueError(f"{op}: the module has no forward; got {type(module).__name__}; expected a module that is called; hint: shard the modules in it")
    if "forward" in module.__dict__ and not is_recomputed(module):
        raise ValueError(f"{op}: forward was replaced on the object; got {type(module).__name__}; expected a method of its class")
    for name, value, kind in (("mp_policy", mp_policy, MixedPrecisionPolicy), ("offload_policy", offload_policy, OffloadPolicy)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{op}: {name} is not a policy; got {type(value).__name__}; expected {kind.__name__}")
    if shard_placement_fn is not None:
        raise NotImplementedError(f"{op}: shard_placement_fn is not available; got a function; expected None; parameters are split along their first dim")
    if reshard_after_forward is not None and not isinstance(reshard_after_forward, bool):
        raise NotImplementedError(f"{op}: reshard_after_forward is not a bool; got {reshard_after_forward!r}; expected True, False or None")
    managed = _parameters_of(module, {id(p) for p in ignored_params or ()})
    shard_group, replica_group = _groups_of(op, mesh)
    _check(op, managed, shard_group, replica_group)
    _compare(op, managed, shard_group)
    group = _Group(module, managed, shard_group, replica_group, mp_policy or MixedPrecisionPolicy(), reshard_after_forward)
    for m in managed:
        m.part._gathered_by = shard_group
    module.__dict__["_fsdp"] = group
    return wrap(module, "FSDP", FSDPModule, _forward, _prefetch_forward=(), _prefetch_backward=(), __deepcopy__=FSDPModule.__deepcopy__, __reduce_ex__=FSDPModule.__reduce_ex__)


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Parameters are whole in this method of a sharded module too, as they are in forward. A module that is not sharded stays as it is, and nothing is checked.

    method_name: a str. AttributeError where a sharded module has no such method."""
    if not isinstance(module, FSDPModule):
        return
    inner = getattr(module, method_name)

    def method(*args, **kwargs):
        with module._fsdp.gathered():
            return inner(*args, **kwargs)

    module.__dict__[method_name] = method


class UnshardHandle:
    """What unshard(async_op=True) of an FSDPModule returns: parameters begin to be gathered. wait() returns when they are whole; a second wait() does
    nothing. TypeError for a module that is not sharded.
    """

    def __init__(self, module: FSDPModule) -> None:
        if not isinstance(module, FSDPModule):
            raise TypeError(f"UnshardHandle: not a sharded module; got {type(module).__name__}; expected what fully_shard() returned")
        self._module = module

    def wait(self) -> None:
        """Waits for the gathering that unshard(async_op=True) began. When it returns, the parameters are whole."""
        if self._module is not None:
            self._module._fsdp.unshard()
            self._module = None


class FSDPModule:
    """What a module has after fully_shard(). Its class is a subclass of the one it had and of this."""

    __slots__ = ()

    def _each(self, recurse=True):
        return [m for m in (self.modules() if recurse else (self,)) if isinstance(m, FSDPModule)]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the parameters of this module, without those of modules below that are sharded by themselves. They are whole until reshard(), or the end of the next forward
        pass. async_op: returns a handle with wait() at once."""
        if async_op:
            self._fsdp.prefetch()
            return UnshardHandle(self)
        self._fsdp.unshard()
        return None

    def reshard(self) -> None:
        """Frees the whole parameters of this module; each process keeps its part. The next forward pass gathers them again."""
        self._fsdp.put_back()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """False: backward passes add up the gradients of the whole parameters on each process, without communication. The next one after True averages the sum."""
        for m in self._each(recurse):
            m._fsdp.sync = bool(requires_gradient_sync)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Does nothing; is_last_backward is not used. Each backward pass finishes its own gradients, the last one as the others."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Sets reshard_after_forward of fully_shard() anew. It holds from the next forward pass on; recurse: for the modules within, too."""
        for m in self._each(recurse):
            m._fsdp.reshard = bool(reshard_after_forward)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Does nothing. The whole parameters are freed with the record of the forward pass, which backward() ends."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Gradients are summed over the ranks and divided by this number, instead of the number of ranks."""
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor > 0:
            raise ValueError(f"set_gradient_divide_factor: not a factor; got {factor!r}; expected a number above 0")
        self._fsdp.divide = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_modules_to_forward_prefetch(self, modules: Iterable[FSDPModule]) -> None:
        """The parameters of these modules are gathered while this one computes its forward pass. All ranks give the same modules."""
        self._prefetch_forward = _prefetched("set_modules_to_forward_prefetch", modules)

    def set_modules_to_backward_prefetch(self, modules: Iterable[FSDPModule]) -> None:
        """The parameters of these modules are gathered while this one computes its backward pass, where they were given up after the forward pass."""
        self._prefetch_backward = _prefetched("set_modules_to_backward_prefetch", modules)

    def __deepcopy__(self, memo):
        raise RuntimeError(f"deepcopy: a sharded module cannot be copied; got {type(self).__name__}; expected a module before fully_shard(); hint: load its state dict into another one")

    def __reduce_ex__(self, protocol):
        raise RuntimeError(f"pickle: a sharded module cannot be pickled; got {type(self).__name__}; hint: distributed.checkpoint.save(model.state_dict())")


def _prefetched(op, modules):
    modules = list(modules)
    for m in modules:
        if not isinstance(m, FSDPModule):
            raise ValueError(f"{op}: a module is not sharded; got {type(m).__name__}; expected modules after fully_shard()")
    return modules


_ADVICE = "fully_shard(module) has its place"
FullyShardedDataParallel, CPUOffloadPolicy = (_refused.cls(f"distributed.fsdp.{name}", _ADVICE) for name in ("FullyShardedDataParallel", "CPUOffloadPolicy"))

__all__ = ["FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
