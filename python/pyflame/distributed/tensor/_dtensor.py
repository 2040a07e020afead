"""DTensor: a tensor that is divided over the processes of a mesh, and says how.

It holds this process's part as an ordinary tensor, with which ops compute; the tape is that of the parts. A Replicate value has the whole gradient on each
process, a Shard the gradient of its part, a Partial one the whole gradient. Where each process computes a part of a result from a whole operand, the
gradients of that operand are added over the processes. Parts have the sizes of torch.chunk, so the last ones may have fewer rows, or none.

Ops move no data: where a result cannot be computed from the parts, the error says so, and redistribute() is what moves them.
"""
from __future__ import annotations

import math
import numbers
import operator

from ... import _C, _signatures
from ..._C import Tensor
from ...autograd.function import Function
from .. import _collectives, _objects, _state
from .._redistribute import Copy, Reduce, gathered, scattered
from .._sharding import ShardedParameter, ShardedTensor, padded, part_of, rows_per_rank
from ..device_mesh import DeviceMesh
from ._placements import Partial, Placement, Replicate, Shard

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..._annotations import Dim, Operand


def _own(x, group, dim):
    begin, length = part_of(x.shape[dim], group.size(), group.rank())
    return x.detach().narrow(dim, begin, length).clone()


def _whole(x, group, dim, size):
    rows = rows_per_rank(size, group.size())
    return gathered(padded(x.detach(), dim, rows), group, dim).narrow(dim, 0, size)


def _sum_part(x, group, dim):
    size, n = x.shape[dim], group.size()
    return scattered(padded(x.detach(), dim, rows_per_rank(size, n) * n), group, dim).narrow(dim, 0, part_of(size, n, group.rank())[1])


class _Gather(Function):
    """Shard(dim) to Replicate."""

    @staticmethod
    def forward(ctx, x, group, dim, size):
        ctx.group, ctx.dim = group, dim
        return _whole(x, group, dim, size)

    @staticmethod
    def backward(ctx, g):
        return _Split.apply(g, ctx.group, ctx.dim), None, None, None


class _Split(Function):
    """Replicate to Shard(dim)."""

    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim, ctx.size = group, dim, x.shape[dim]
        return _own(x, group, dim)

    @staticmethod
    def backward(ctx, g):
        return _Gather.apply(g, ctx.group, ctx.dim, ctx.size), None, None


class _GatherForParts(Function):
    """Shard(dim) to Replicate, for a computation of which each process does a part."""

    @staticmethod
    def forward(ctx, x, group, dim, size):
        ctx.group, ctx.dim = group, dim
        return _whole(x, group, dim, size)

    @staticmethod
    def backward(ctx, g):
        return _Scatter.apply(g, ctx.group, ctx.dim), None, None, None


class _Scatter(Function):
    """Partial to Shard(dim)."""

    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim, ctx.size = group, dim, x.shape[dim]
        return _sum_part(x, group, dim)

    @staticmethod
    def backward(ctx, g):
        return _GatherForParts.apply(g, ctx.group, ctx.dim, ctx.size), None, None


def _checked_mesh(op, mesh):
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{op}: device_mesh is not a mesh; got {type(mesh).__name__}; expected what init_device_mesh() returned")
    if mesh.get_coordinate() is None:
        raise ValueError(f"{op}: this process is not in the mesh; got rank {_state.get_rank()}; expected one of {mesh.mesh.reshape(-1).tolist()}")
    return mesh


def _checked_placements(op, placements, mesh, ndim):
    """A tuple of placements, one for each axis of the mesh, whose dims are not negative."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    if not isinstance(placements, (Placement, list, tuple)):
        raise TypeError(f"{op}: placements are no list; got {type(placements).__name__}; expected Shard(dim), Replicate() or Partial() for each of {mesh.ndim} axes of the mesh")
    given = (placements,) if isinstance(placements, Placement) else tuple(placements)
    if len(given) != mesh.ndim or not all(isinstance(p, (Shard, Replicate, Partial)) for p in given):
        raise ValueError(f"{op}: placements do not fit the mesh; got {list(given)}; expected Shard(dim), Replicate() or Partial() for each of {mesh.ndim} axes")
    for p in given:
        if isinstance(p, Shard) and not -ndim <= p.dim < ndim:
            raise ValueError(f"{op}: there is no such dim; got {p} for a tensor of {ndim} dims; expected a dim of the tensor")
    return tuple(Shard(p.dim % ndim) if isinstance(p, Shard) else p for p in given)


def _extent(shape, mesh, placements, axis, dim):
    """The size along a dim of what is split along an axis of the mesh: the axes before it may have split that dim already."""
    size = shape[dim]
    for j, p in enumerate(placements[:axis]):
        if p.is_shard(dim):
            size = part_of(size, mesh.size(j), mesh.get_local_rank(j))[1]
    return size


def _local_shape(shape, mesh, placements):
    found = list(shape)
    for axis, p in enumerate(placements):
        if isinstance(p, Shard):
            found[p.dim] = part_of(found[p.dim], mesh.size(axis), mesh.get_local_rank(axis))[1]
    return tuple(found)


def _reshaped(op, x, shape):
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else tuple(shape)
    if any(isinstance(n, bool) or not isinstance(n, int) for n in shape):
        raise TypeError(f"DTensor.{op}: not a shape; got {shape}; expected integers")
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known > 0 and x.numel() % known == 0:
        shape = tuple(x.numel() // known if n == -1 else n for n in shape)
    if any(n < 0 for n in shape) or math.prod(shape) != x.numel():
        raise ValueError(f"DTensor.{op}: the shape does not fit; got {shape} for {x.shape}; expected {x.numel()} elements")
    placements = list(x.placements)
    for d in {p.dim for p in placements if isinstance(p, Shard)}:
        axes = [i for i, p in enumerate(x.placements) if p.is_shard(d)]
        n = math.prod(x.device_mesh.size(i) for i in axes)
        places = [e for e in range(len(shape)) if math.prod(shape[:e]) == math.prod(x.shape[:d])]  # what lies before the dim is as much as it was
        found = [e for e in places if shape[e] == x.shape[d]] or [e for e in places if x.shape[d] % n == 0 and shape[e] % n == 0 and shape[e]]
        if not found or x.numel() == 0 and shape[: d + 1] != x.shape[: d + 1]:
            raise _refused(op, [x], f"expected a shape in which dim {d} of {x.shape} stays, or begins a dim whose size is a multiple of {n}, not {shape}")
        for i in axes:
            placements[i] = Shard(found[0])
    local = x._local_tensor
    local = (local.view if op == "view" else local.reshape)(_local_shape(shape, x.device_mesh, placements))
    return _made(local, x.device_mesh, placements, shape)


class Layout:
    """How a tensor lies over a mesh: what a part in a module, an optimizer or a checkpoint knows of the whole. It has the members of a Sharding that others ask for."""

    def __init__(self, mesh, placements, shape):
        self.device_mesh, self.placements, self.global_shape = mesh, tuple(placements), tuple(shape)
        self.local_shape, at = list(shape), [0] * len(shape)
        for axis, p in enumerate(self.placements):
            if isinstance(p, Shard):
                begin, length = part_of(self.local_shape[p.dim], mesh.size(axis), mesh.get_local_rank(axis))
                at[p.dim] += begin
                self.local_shape[p.dim] = length
        self.local_shape, self.offsets = tuple(self.local_shape), tuple(at)
        self.groups = tuple(mesh.get_group(axis) for axis, p in enumerate(self.placements) if isinstance(p, Shard))

    def whole(self, t):
        """The whole tensor, of the parts of all processes. A collective."""
        return _made(Tensor(t).detach(), self.device_mesh, self.placements, self.global_shape).full_tensor()

    def own_of_whole(self, t):
        """This process's part of the whole tensor."""
        for dim, (begin, length) in enumerate(zip(self.offsets, self.local_shape)):
            t = t if length == t.shape[dim] else t.narrow(dim, begin, length)
        return t


def _made(local, mesh, placements, shape):
    made = object.__new__(DTensor)
    made._local_tensor, made.device_mesh, made.placements, made.shape, made._parameter = local, mesh, tuple(placements), tuple(shape), None
    return made


def _moved(x, target):
    """This process's part where a DTensor is placed otherwise."""
    now, local, mesh = list(x.placements), x._local_tensor, x.device_mesh
    dims = [{p.dim for p in both if isinstance(p, Shard)} for both in zip(now, target)]
    change = [a != b for a, b in zip(now, target)]
    for i, changes in enumerate(change):  # a split within a split that changes is undone first, and made again
        for j in range(i + 1, len(now)):
            change[j] = change[j] or changes and bool(dims[i] & dims[j])
    for i in reversed(range(len(now))):
        group = mesh.get_group(i)
        if change[i] and isinstance(now[i], Shard):
            local = _Gather.apply(local, group, now[i].dim, _extent(x.shape, mesh, now, i, now[i].dim))
            now[i] = Replicate()
        elif isinstance(now[i], Partial) and isinstance(target[i], Replicate):
            local = Reduce.apply(local, group)
            now[i] = Replicate()
    for i, to in enumerate(target):
        if now[i] != to:
            local = (_Scatter if isinstance(now[i], Partial) else _Split).apply(local, mesh.get_group(i), to.dim)
            now[i] = to
    return local


def _refused(op, values, why):
    placed = ", ".join(str(v.placements if len(v.placements) > 1 else v.placements[0]) if isinstance(v, DTensor) else type(v).__name__ for v in values)
    return ValueError(f"DTensor.{op}: the result cannot be computed from the parts; got {placed}; {why}; hint: redistribute() one of them, or all to Replicate()")


def _operands(op, values):
    """The mesh, and the values: DTensors of it, and numbers."""
    mesh = next(v for v in values if isinstance(v, DTensor)).device_mesh
    found = []
    for v in values:
        if isinstance(v, Tensor) and v.ndim == 0:  # a number, the same on all processes
            v = _made(v, mesh, (Replicate(),) * mesh.ndim, ())
        if isinstance(v, Tensor):
            raise TypeError(f"DTensor.{op}: a DTensor and an ordinary tensor do not go together; got a tensor of shape {tuple(v.shape)}; expected DTensors of one mesh, or numbers; hint: distribute_tensor(), or DTensor.from_local()")
        if isinstance(v, DTensor) and v.device_mesh != mesh:
            raise ValueError(f"DTensor.{op}: the meshes differ; got {v.device_mesh} and {mesh}; expected one mesh")
        found.append(v)
    return mesh, found


def _broadcast_shape(op, shapes):
    n = max(map(len, shapes))
    out = [1] * n
    for shape in shapes:
        for d, size in enumerate(shape, n - len(shape)):
            if out[d] != size and 1 not in (out[d], size):
                raise ValueError(f"DTensor.{op}: the shapes do not fit together; got {' and '.join(map(str, shapes))}; expected sizes that are equal, or 1")
            out[d] = size if out[d] == 1 else out[d]
    return tuple(out)


class _Plan:
    """What is done with the operands of an op before it computes: for each one and axis, the dim along which it is split, or that its gradients are added."""

    def __init__(self, op, values):
        self.op, self.values, self.steps = op, values, [[] for _ in values]

    def split(self, k, axis, dim):
        """The whole operand becomes this process's part."""
        if any(p.is_shard(dim) for p in self.values[k].placements[axis + 1 :]):
            raise _refused(self.op, self.values, f"expected splits of dim {dim} in the order of the mesh")
        self.steps[k].append((_Split, axis, dim))

    def copy(self, k, axis):
        """The whole operand is used for a part of the result."""
        self.steps[k].append((Copy, axis))

    def locals(self):
        """This process's parts of the operands; numbers as they are."""
        found = []
        for v, steps in zip(self.values, self.steps):
            x = v._local_tensor if isinstance(v, DTensor) else v
            for step, axis, *dim in steps:
                x = step.apply(x, v.device_mesh.get_group(axis), *dim)
            found.append(x)
        return found


def _elementwise(op, fn, values, linear=None):
    """linear: 'add' for a sum of the operands, 'mul' for a product, 'div' for a quotient, which is linear in the first one; None: nothing of these."""
    mesh, values = _operands(op, values)
    shape = _broadcast_shape(op, [v.shape for v in values if isinstance(v, DTensor)])
    plan, placements = _Plan(op, values), []
    for axis in range(mesh.ndim):
        at = {k: v.placements[axis] for k, v in enumerate(values) if isinstance(v, DTensor)}
        partial = [k for k, p in at.items() if isinstance(p, Partial)]
        lead = {k: len(shape) - values[k].ndim for k in at}
        dims = {p.dim + lead[k] for k, p in at.items() if isinstance(p, Shard)}
        if partial:
            if linear == "add" and len(partial) == len(values):
                pass
            elif not dims and len(partial) == 1 and (linear == "mul" or linear == "div" and partial == [0]):
                for k in at:
                    if k not in partial:
                        plan.copy(k, axis)
            else:
                raise _refused(op, values, f"expected no Partial(), because {op} of a sum is not the sum of what the processes compute")
            placements.append(Partial())
        elif dims:
            if len(dims) > 1:
                raise _refused(op, values, f"expected one dim that is split along an axis of the mesh, not dims {sorted(dims)} of {shape}")
            (dim,) = dims
            for k, p in at.items():
                own = dim - lead[k]
                whole = own >= 0 and values[k].shape[own] == shape[dim]
                if isinstance(p, Shard) and not whole:
                    raise _refused(op, values, f"expected no split along dim {own}, which is broadcast")
                if isinstance(p, Replicate):
                    plan.split(k, axis, own) if whole else plan.copy(k, axis)
            placements.append(Shard(dim))
        else:
            placements.append(Replicate())
    return _made(fn(*plan.locals()), mesh, placements, shape)


def _matmul(a, b):
    mesh, values = _operands("matmul", (a, b))
    a, b = values
    if not (isinstance(a, DTensor) and isinstance(b, DTensor)) or a.ndim < 2 or b.ndim < 2:
        shapes = [tuple(v.shape) if isinstance(v, DTensor) else v for v in values]
        raise ValueError(f"DTensor.matmul: the operands are no matrices; got {shapes[0]} and {shapes[1]}; expected two or more dims; hint: unsqueeze()")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"DTensor.matmul: the shapes do not fit together; got {a.shape} and {b.shape}; expected a second operand of {a.shape[-1]} rows")
    batch = _broadcast_shape("matmul", [a.shape[:-2], b.shape[:-2]])
    shape = (*batch, a.shape[-2], b.shape[-1])
    n, plan, placements = len(shape), _Plan("matmul", values), []
    for axis in range(mesh.ndim):
        p, q = a.placements[axis], b.placements[axis]
        row, column = (v.dim - w.ndim if isinstance(v, Shard) else 0 for v, w in ((p, a), (q, b)))  # from the end; 0: not split
        if isinstance(p, Replicate) and isinstance(q, Replicate):
            placements.append(Replicate())
        elif (row == -1 and column in (-2, 0) or row == 0 and column == -2) and not isinstance(p, Partial) and not isinstance(q, Partial):
            if isinstance(p, Replicate):
                plan.split(0, axis, a.ndim - 1)
            if isinstance(q, Replicate):
                plan.split(1, axis, b.ndim - 2)
            placements.append(Partial())
        elif isinstance(p, Replicate) and (isinstance(q, Partial) or column == -1):
            plan.copy(0, axis)
            placements.append(Partial() if isinstance(q, Partial) else Shard(n - 1))
        elif isinstance(q, Replicate) and (isinstance(p, Partial) or row == -2):
            plan.copy(1, axis)
            placements.append(Partial() if isinstance(p, Partial) else Shard(n - 2))
        elif min(row, column) < -2 and not isinstance(p, Partial) and not isinstance(q, Partial) and (row == column or isinstance(p, Replicate) or isinstance(q, Replicate)):
            dim = min(row, column)
            for k, (v, at) in enumerate(((a, p), (b, q))):
                whole = -dim <= v.ndim and v.shape[dim] == shape[dim]
                if isinstance(at, Shard) and not whole:
                    raise _refused("matmul", values, f"expected no split along dim {dim}, which is broadcast")
                if isinstance(at, Replicate):
                    plan.split(k, axis, v.ndim + dim) if whole else plan.copy(k, axis)
            placements.append(Shard(n + dim))
        else:
            raise _refused("matmul", values, "expected whole operands, rows of the first, columns of the second, or the dim between them split in both")
    return _made(operator.matmul(*plan.locals()), mesh, placements, shape)


def _dims(op, x, dim):
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    for d in dims:
        if isinstance(d, bool) or not isinstance(d, int) or not -x.ndim <= d < max(x.ndim, 1):
            raise IndexError(f"DTensor.{op}: there is no such dim; got {d!r}; expected {-x.ndim} to {x.ndim - 1}")
    return sorted({d % x.ndim for d in dims if x.ndim})


def _reduced(op, x, dim, keepdim):
    """sum() and mean(): what is reduced along a dim that is split is the sum of what the processes have."""
    dims = _dims(op, x, dim)
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    placements = [p if not isinstance(p, Shard) else Partial() if p.dim in dims else Shard(p.dim if keepdim else p.dim - sum(d < p.dim for d in dims)) for p in x.placements]
    local = x._local_tensor.sum(dim=dims, keepdim=keepdim) if dims else x._local_tensor
    if op == "mean":
        if not x.dtype.is_floating_point and not x.dtype.is_complex:
            raise TypeError(f"DTensor.mean: the values are no floating point numbers; got {x.dtype}; expected such as float32")
        local = local / math.prod(x.shape[d] for d in dims)
    return _made(local, x.device_mesh, placements, shape)


def _along(op, x, dim, fn):
    """An op along a dim, which must not be split."""
    found = _dims(op, x, dim)
    if len(found) != 1:
        raise IndexError(f"DTensor.{op}: not one dim; got {dim!r} for shape {x.shape}; expected a dim")
    d = found[0]
    if any(p.is_shard(d) or isinstance(p, Partial) for p in x.placements):
        raise _refused(op, [x], f"expected dim {d} as a whole, and no Partial()")
    return _made(fn(x._local_tensor, d), x.device_mesh, x.placements, x.shape)


class DTensor:
    """A tensor of which each process of a mesh has a part, or the whole. distribute_tensor() and DTensor.from_local() make one.

    shape is that of the whole tensor, device_mesh the mesh, and placements has a Shard(dim), Replicate() or Partial() for each axis of it. Operators,
    elementwise methods, matmul, sum, mean, softmax, reshape, transpose, permute and unsqueeze give a DTensor and move no data; ValueError where the parts do not
    suffice. +=, -=, *= and /= write the part of this process. Optimizers, clip_grad_norm_, nn.Parameter and distributed.checkpoint take DTensors, and so do the modules of distribute_module(). Other functions
    of pyflame and nn.functional and other modules take ordinary tensors: TypeError for a DTensor, which is no Tensor. TypeError: DTensor().
    """

    __array_ufunc__ = None  # a NumPy number on the left leaves the op to this class
    __hash__ = object.__hash__

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("DTensor: it is not made by its name; got a call; expected distribute_tensor(tensor, mesh, placements), or DTensor.from_local(part, mesh, placements)")

    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, run_check: bool = False, shape: Sequence[int] | None = None, stride: Sequence[int] | None = None) -> DTensor:
        """A DTensor of the part that each process has. Gradients go to the part.

        local_tensor: this process's part; all parts have one shape, unless `shape` says that of the whole tensor, which is then divided as by torch.chunk
        (ValueError for a part of another shape). placements: one for each axis of device_mesh; None: Replicate(). run_check: the processes compare their
        shapes, and a Replicate() value becomes that of the first process. stride changes nothing. TypeError: no tensor, or no mesh.
        """
        op = "DTensor.from_local"
        if not isinstance(local_tensor, Tensor):
            raise TypeError(f"{op}: local_tensor is not a tensor; got {type(local_tensor).__name__}; expected a tensor")
        mesh = _checked_mesh(op, device_mesh)
        placements = _checked_placements(op, placements, mesh, local_tensor.ndim)
        if shape is None:
            whole = list(local_tensor.shape)
            for axis, p in enumerate(placements):
                if isinstance(p, Shard):
                    whole[p.dim] *= mesh.size(axis)
            shape = tuple(whole)
        shape = tuple(shape)
        expected = _local_shape(shape, mesh, placements) if len(shape) == local_tensor.ndim else shape
        if tuple(local_tensor.shape) != expected:
            raise ValueError(f"{op}: the part does not fit; got shape {tuple(local_tensor.shape)}; expected {expected}, this process's part of {shape} with {list(placements)}")
        if run_check:
            for axis, p in enumerate(placements):
                group, shapes = mesh.get_group(axis), [None] * mesh.size(axis)
                _objects.all_gather_object(shapes, shape, group=group)
                if len(set(shapes)) > 1:
                    raise ValueError(f"{op}: the parts of the processes do not belong together; got whole shapes {shapes}; expected one; hint: give shape")
                if isinstance(p, Replicate):
                    _collectives.broadcast(local_tensor, group=group, group_src=0)
        return _made(local_tensor, mesh, placements, shape)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This process's part, an ordinary tensor, through which gradients go. It is no copy.

        grad_placements: how the gradient of the part is placed; None: as this tensor. Partial() for a Replicate() value: the gradients of all processes
        are added. NotImplementedError for others.
        """
        x = self._local_tensor
        x = Tensor(x) if isinstance(x, (ShardedParameter, ShardedTensor)) else x  # the same value on the tape, as an ordinary tensor
        if grad_placements is not None:
            given = _checked_placements("DTensor.to_local", grad_placements, self.device_mesh, self.ndim)
            for axis, (p, g) in enumerate(zip(self.placements, given)):
                if isinstance(p, Replicate) and isinstance(g, Partial):
                    x = Copy.apply(x, self.device_mesh.get_group(axis))
                elif p != g and not (isinstance(p, Partial) and isinstance(g, Replicate)):
                    raise NotImplementedError(f"DTensor.to_local: such a gradient is not available; got {g} for a value that is {p}; expected the same, or Partial() for Replicate()")
        return x

    def redistribute(self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, async_op: bool = False) -> DTensor:
        """The same value, placed otherwise: moves data between the processes, all of which call it. Has a gradient.

        placements: one for each axis of the mesh. device_mesh: that of the tensor, or None. ValueError: no placements, another mesh, or Partial() where
        the value is none. async_op changes nothing.
        """
        op = "DTensor.redistribute"
        if placements is None:
            raise ValueError(f"{op}: placements are not given; got None; expected Shard(dim) or Replicate() for each of {self.device_mesh.ndim} axes")
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise ValueError(f"{op}: a value stays on its mesh; got {device_mesh}; expected {self.device_mesh}; hint: full_tensor(), then distribute_tensor()")
        target = _checked_placements(op, placements, self.device_mesh, self.ndim)
        for p, q in zip(self.placements, target):
            if isinstance(q, Partial) and not isinstance(p, Partial):
                raise ValueError(f"{op}: a value does not become a sum; got {p} to Partial(); expected Shard(dim) or Replicate()")
        return _made(_moved(self, target), self.device_mesh, target, self.shape)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole tensor on each process, an ordinary tensor. All processes call it. grad_placements: as of to_local()."""
        return self.redistribute(placements=[Replicate()] * self.device_mesh.ndim).to_local(grad_placements=grad_placements)

    @property
    def dtype(self) -> _C.dtype:
        """The dtype of the elements, which is that of the part of each process."""
        return self._local_tensor.dtype

    @property
    def device(self) -> _C.device:
        """The device on which this process has its part. Each process may have another one, such as its own GPU."""
        return self._local_tensor.device

    @property
    def ndim(self) -> int:
        """The number of dims of the whole tensor, an int. The parts have as many dims."""
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        """A bool: whether backward() computes a gradient for this value, as of a Tensor."""
        return self._local_tensor.requires_grad

    @property
    def is_leaf(self) -> bool:
        """A bool: whether the part of this process was not computed from others that require gradients, as of a Tensor."""
        return self._local_tensor.is_leaf

    @property
    def grad(self):
        """The gradient, a DTensor that is placed as the value is (whole where that is a Partial()), or None."""
        g = Tensor.grad.__get__(self._local_tensor)
        return None if g is None else _made(g, self.device_mesh, [Replicate() if isinstance(p, Partial) else p for p in self.placements], self.shape)

    @grad.setter
    def grad(self, value):
        if value is not None and not isinstance(value, DTensor):
            raise TypeError(f"DTensor.grad: not a gradient of a DTensor; got {type(value).__name__}; expected a DTensor, or None")
        self._local_tensor.grad = None if value is None else _gradient("grad", self, value)

    def requires_grad_(self, requires_grad: bool = True) -> DTensor:
        """Sets whether backward() computes a gradient for this value. requires_grad: a bool. Returns the DTensor."""
        self._local_tensor.requires_grad_(requires_grad)
        return self

    def backward(self, gradient: DTensor | None = None, **kwargs: Any) -> None:
        """Computes the gradients of the leaves. All processes call it. gradient: a DTensor that is placed as .grad is; None for a single number."""
        if gradient is None and self.shape != ():
            raise RuntimeError(f"DTensor.backward: the tensor has several elements; got shape {self.shape}; expected a single number, or gradient=")
        self._local_tensor.backward(None if gradient is None else _gradient("backward", self, gradient), **kwargs)

    def _with_local(self, local):
        """A DTensor that is placed as this one, of another part."""
        return _made(local, self.device_mesh, self.placements, self.shape)

    def _layout(self, op):
        """How this tensor lies, for who updates or writes the parts. ValueError for a sum, of which the processes have no parts."""
        if any(isinstance(p, Partial) for p in self.placements):
            raise ValueError(f"{op}: the value is a sum that is not computed yet; got placements {list(self.placements)}; expected Shard(dim) or Replicate(); hint: redistribute()")
        return Layout(self.device_mesh, self.placements, self.shape)

    def _as_parameter(self, op):
        """The part as what optimizers update: another object of the same leaf, which knows its place in the whole."""
        if self._parameter is None:
            local = self._local_tensor
            if not isinstance(local, ShardedParameter):
                local = ShardedParameter.__new__(ShardedParameter)
                Tensor.__init__(local, self._local_tensor)
                local._sharding = self._layout(op)
                local._lasts()
            self._parameter = local
        return self._parameter

    def _as_part(self, op):
        """The part without a gradient, which shares memory and knows its place in the whole."""
        return ShardedTensor(Tensor(self._local_tensor).detach(), self._layout(op))

    def _cross_entropy(self, *args):
        """What nn.functional.cross_entropy computes where the logits are a DTensor."""
        from ._loss import cross_entropy

        return cross_entropy(self, *args)

    def dim(self) -> int:
        """The number of dims of the whole tensor, an int; the same as ndim."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape of the whole tensor; with dim, its size along that dim, an int. IndexError for a dim that is not there."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements of the whole tensor, an int: the product of its sizes, not the number of the part."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a DTensor without dims; got shape (); expected at least one dim")
        return self.shape[0]

    def item(self) -> Any:
        """The only element as a Python number, where each process has it; ValueError otherwise."""
        if not all(isinstance(p, Replicate) for p in self.placements):
            raise _refused("item", [self], "expected Replicate()")
        return self._local_tensor.item()

    def __bool__(self):
        return bool(self.item())

    def detach(self) -> DTensor:
        """The same value with the same placements and memory, from which no gradient goes back. It is a leaf."""
        return _made(Tensor(self._local_tensor).detach(), self.device_mesh, self.placements, self.shape)

    def clone(self) -> DTensor:
        """A copy of the value with the same placements; each process copies its part. Gradients go back through it."""
        return _made(self._local_tensor.clone(), self.device_mesh, self.placements, self.shape)

    def contiguous(self) -> DTensor:
        """The same value with the same placements; the part of each process is contiguous in memory, copied where it was not."""
        return _made(self._local_tensor.contiguous(), self.device_mesh, self.placements, self.shape)

    def to(self, dtype: _C.dtype) -> DTensor:
        """The value in another dtype, with the same placements; each process casts its part. TypeError for what is no dtype, such as a device: parts stay where they are."""
        if not isinstance(dtype, _C.dtype):
            raise TypeError(f"DTensor.to: not a dtype; got {dtype!r}; expected a dtype; hint: a value stays on the devices of its mesh")
        return _elementwise("to", lambda x: x.to(dtype), (self,))

    def matmul(self, other: DTensor) -> DTensor:
        """The matrix product: whole, or split as the rows of the first or the columns of the second operand; Partial() where the dim between them is split."""
        return _matmul(self, other)

    mm = matmul

    def __matmul__(self, other: DTensor) -> DTensor:
        return _matmul(self, other)

    def __rmatmul__(self, other: DTensor) -> DTensor:
        return _matmul(other, self)

    def sum(self, dim: Dim | None = None, keepdim: bool = False) -> DTensor:
        """The sum over some dims (all), Partial() where one of them is split."""
        return _reduced("sum", self, dim, keepdim)

    def mean(self, dim: Dim | None = None, keepdim: bool = False) -> DTensor:
        """The mean over some dims (all), Partial() where one of them is split."""
        return _reduced("mean", self, dim, keepdim)

    def softmax(self, dim: int) -> DTensor:
        """softmax along a dim, with the placements of the value. ValueError where the dim is split or the value is a Partial(); IndexError for a dim that is not there."""
        return _along("softmax", self, dim, lambda x, d: x.softmax(d))

    def log_softmax(self, dim: int) -> DTensor:
        """log_softmax along a dim, with the placements of the value. ValueError where the dim is split or the value is a Partial(); IndexError for a dim that is not there."""
        return _along("log_softmax", self, dim, lambda x, d: x.log_softmax(d))

    def permute(self, *dims: Any) -> DTensor:
        """The dims in another order, as Tensor.permute. A dim that is split stays split at its new place. IndexError for a dim that is not there; ValueError for what is no order of the dims."""
        dims = tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims
        if len(dims) != self.ndim or _dims("permute", self, dims) != list(range(self.ndim)):
            raise ValueError(f"DTensor.permute: not an order of the dims; got {dims}; expected each of {self.ndim} dims once")
        order = [d % self.ndim for d in dims]
        placements = [Shard(order.index(p.dim)) if isinstance(p, Shard) else p for p in self.placements]
        return _made(self._local_tensor.permute(order), self.device_mesh, placements, [self.shape[d] for d in order])

    def transpose(self, dim0: int, dim1: int) -> DTensor:
        """Two dims change places, as Tensor.transpose. A dim that is split stays split at its new place. IndexError for a dim that is not there."""
        order = list(range(self.ndim))
        if not _dims("transpose", self, (dim0, dim1)):
            return self
        a, b = dim0 % self.ndim, dim1 % self.ndim
        order[a], order[b] = b, a
        return self.permute(order)

    def t(self) -> DTensor:
        """The transposed matrix: its two dims change places, and a split goes with its dim. ValueError unless there are two dims."""
        if self.ndim != 2:
            raise ValueError(f"DTensor.t: not a matrix; got shape {self.shape}; expected two dims; hint: transpose()")
        return self.transpose(0, 1)

    @property
    def T(self) -> DTensor:
        """The transposed matrix, as t(): its two dims change places, and a split goes with its dim. ValueError unless there are two dims."""
        return self.t()

    @property
    def mT(self) -> DTensor:
        """The transposed matrices of a batch: the last two dims change places, and a split goes with its dim. IndexError for fewer than two dims."""
        return self.transpose(-2, -1)

    def reshape(self, *shape: Any) -> DTensor:
        """The elements in another shape, as Tensor.reshape; -1: one size that follows. A dim that is split keeps its size, or begins what is merged or divided where both sizes are multiples
        of the number of processes. ValueError for other changes of split dims, and for a shape of another number of elements."""
        return _reshaped("reshape", self, shape)

    def view(self, *shape: Any) -> DTensor:
        """reshape() that copies nothing, as Tensor.view: RuntimeError where the part of this process is not laid out for it."""
        return _reshaped("view", self, shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> DTensor:
        """The dims from start_dim to end_dim as one, as Tensor.flatten, by the rules of reshape(). IndexError for a dim that is not there, ValueError where they are not in order."""
        if self.ndim == 0:
            return self.reshape(1)
        _dims("flatten", self, (start_dim, end_dim))
        start, end = start_dim % self.ndim, end_dim % self.ndim
        if start > end:
            raise ValueError(f"DTensor.flatten: the dims are not in order; got {start_dim} and {end_dim}; expected the first one before the last one")
        return _reshaped("flatten", self, (*self.shape[:start], math.prod(self.shape[start : end + 1]), *self.shape[end + 1 :]))

    def unsqueeze(self, dim: int) -> DTensor:
        """One more dim of size 1 at this place, as Tensor.unsqueeze. Dims that are split stay split, at their new places. IndexError for dim outside -ndim - 1 to ndim."""
        if isinstance(dim, bool) or not isinstance(dim, int) or not -self.ndim - 1 <= dim <= self.ndim:
            raise IndexError(f"DTensor.unsqueeze: there is no such dim; got {dim!r}; expected {-self.ndim - 1} to {self.ndim}")
        dim %= self.ndim + 1
        placements = [Shard(p.dim + (p.dim >= dim)) if isinstance(p, Shard) else p for p in self.placements]
        return _made(self._local_tensor.unsqueeze(dim), self.device_mesh, placements, (*self.shape[:dim], 1, *self.shape[dim:]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"'DTensor' object has no attribute '{name}'")
        raise AttributeError(f"DTensor.{name}: not available for a DTensor; got placements {list(self.placements)}; expected an ordinary tensor; hint: full_tensor(), or to_local() and DTensor.from_local()")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"DTensor: it cannot be iterated; got placements {list(self.placements)}; expected an ordinary tensor; hint: full_tensor(), or to_local()")

    def __getitem__(self, index: object) -> DTensor:
        raise TypeError(f"DTensor: it cannot be indexed; got placements {list(self.placements)}; expected an ordinary tensor; hint: full_tensor(), or to_local()")

    def __setitem__(self, index, value):
        raise TypeError(f"DTensor: it cannot be written by index; got placements {list(self.placements)}; expected an ordinary tensor; hint: to_local() for this process's part")

    def __array__(self, *args, **kwargs):
        raise TypeError(f"DTensor: it is no array; got placements {list(self.placements)}; expected an ordinary tensor; hint: full_tensor().numpy(), or to_local().numpy()")

    def __copy__(self):
        return _made(self._local_tensor, self.device_mesh, self.placements, self.shape)

    def __deepcopy__(self, memo):
        made = memo[id(self)] = self.detach().clone()
        return made.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol):
        raise RuntimeError("pickle: a DTensor is divided over processes; got a part on each rank; expected a whole tensor; hint: full_tensor()")

    def __repr__(self):
        return f"DTensor(shape={self.shape}, local_tensor={Tensor.__repr__(self._local_tensor)}, device_mesh={self.device_mesh!r}, placements={self.placements!r})"


def _gradient(op, x, value):
    if not isinstance(value, DTensor):
        raise TypeError(f"DTensor.{op}: the gradient is not a DTensor; got {type(value).__name__}; expected a DTensor of shape {x.shape}")
    expected = tuple(Replicate() if isinstance(p, Partial) else p for p in x.placements)
    if (value.shape, value.placements, value.device_mesh) != (x.shape, expected, x.device_mesh):
        raise ValueError(f"DTensor.{op}: the gradient does not fit; got shape {value.shape} with {list(value.placements)}; expected {x.shape} with {list(expected)}; hint: redistribute()")
    return value._local_tensor


def _unary(name, linear=False):
    def method(self, *args: Any, **kwargs: Any) -> DTensor:
        if any(isinstance(v, (Tensor, DTensor)) for v in (*args, *kwargs.values())):
            raise TypeError(f"DTensor.{name}: an argument is a tensor; got {name} of a DTensor and a tensor; expected numbers")
        return _elementwise(name, lambda x: getattr(x, name)(*args, **kwargs), (self,), "add" if linear else None)

    method.__name__, method.__qualname__ = name, f"DTensor.{name}"
    method.__doc__ = f"Tensor.{name} of each element, with its arguments: each process computes its part, and the result is placed as the value is. "
    method.__doc__ += "A Partial() stays one." if linear else "ValueError for a Partial(), of which a process has no whole element."
    return _signatures.forwarding(method, getattr(Tensor, name), "DTensor")


def _binary(name, fn, linear=None, swapped=False):
    def method(self, other: Operand | DTensor) -> DTensor:
        if not isinstance(other, (DTensor, Tensor, numbers.Number)):
            return NotImplemented
        return _elementwise(name.strip("_"), fn, (other, self) if swapped else (self, other), linear)

    method.__name__, method.__qualname__ = name, f"DTensor.{name}"
    method.__doc__ = f"Tensor.{name} with another DTensor of the same mesh or a number, with its broadcasting. Each process computes its part; ValueError where the parts of both do not fit, with a hint to redistribute(), or the shapes do not broadcast; TypeError for an ordinary Tensor."
    return method


def _in_place(name, op):
    def method(self, other):
        if not isinstance(other, (DTensor, Tensor, numbers.Number)):
            return NotImplemented
        result = op(self, other)
        if (result.shape, result.placements) != (self.shape, self.placements):
            raise ValueError(f"DTensor.{name.strip('_')}: the result does not fit in place; got shape {result.shape} with {list(result.placements)}; expected {self.shape} with {list(self.placements)}; hint: redistribute()")
        self._local_tensor.copy_(result._local_tensor)
        return self

    method.__name__, method.__qualname__ = name, f"DTensor.{name}"
    return method


for _name, _op in (("__iadd__", operator.add), ("__isub__", operator.sub), ("__imul__", operator.mul), ("__itruediv__", operator.truediv)):
    setattr(DTensor, _name, _in_place(_name, _op))
for _name in "abs acos asin atan bfloat16 bool ceil clamp cos cosh double erf exp expm1 float floor half int log log1p log2 long pow reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh".split():
    setattr(DTensor, _name, _unary(_name))
DTensor.neg = _unary("neg", linear=True)
DTensor.__neg__ = _unary("__neg__", linear=True)
DTensor.__abs__ = _unary("__abs__")
for _name, _fn, _linear in (("add", operator.add, "add"), ("sub", operator.sub, "add"), ("mul", operator.mul, "mul"), ("truediv", operator.truediv, "div"), ("pow", operator.pow, None)):
    setattr(DTensor, f"__{_name}__", _binary(f"__{_name}__", _fn, _linear))
    setattr(DTensor, f"__r{_name}__", _binary(f"__r{_name}__", _fn, _linear, swapped=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(DTensor, f"__{_name}__", _binary(f"__{_name}__", getattr(operator, _name)))
    setattr(DTensor, _name, _binary(_name, getattr(operator, _name)))
for _name, _fn, _linear in (("add", operator.add, "add"), ("sub", operator.sub, "add"), ("mul", operator.mul, "mul"), ("div", operator.truediv, "div"), ("maximum", _C.maximum, None), ("minimum", _C.minimum, None)):
    setattr(DTensor, _name, _binary(_name, _fn, _linear))


def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, src_data_rank: int | None = 0) -> DTensor:
    """A DTensor of a whole tensor: each process keeps its part. It is a leaf, which requires a gradient if the tensor does.

    tensor: of one shape and dtype on all processes, all of which call this. placements: Shard(dim) or Replicate() for each axis of device_mesh; None: Replicate(). src_data_rank: the
    place along each axis of the mesh whose values all get (0); None: each process has the same values already, and nothing is sent. TypeError: no
    tensor, or no mesh. ValueError: placements that do not fit.
    """
    op = "distribute_tensor"
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{op}: tensor is not a tensor; got {type(tensor).__name__}; expected a whole tensor on each process")
    mesh = _checked_mesh(op, device_mesh)
    placements = _checked_placements(op, placements, mesh, tensor.ndim)
    if any(isinstance(p, Partial) for p in placements):
        raise ValueError(f"{op}: a tensor is not divided into a sum; got {list(placements)}; expected Shard(dim) or Replicate()")
    x = tensor.detach().clone()
    if src_data_rank is not None and x.device.type != "null":  # a tensor of the device 'meta' has no values
        for axis in range(mesh.ndim):
            _collectives.broadcast(x, group=mesh.get_group(axis), group_src=src_data_rank)
    whole = _made(x, mesh, (Replicate(),) * mesh.ndim, tensor.shape)
    return _made(_moved(whole, placements).detach(), mesh, placements, tensor.shape).requires_grad_(tensor.requires_grad)


__all__ = ["DTensor", "distribute_tensor"]
