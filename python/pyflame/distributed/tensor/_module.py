"""distribute_module: a module whose parameters lie over a mesh, and that computes with DTensors."""
from __future__ import annotations

import copy

from ... import _C
from ..._C import Tensor
from ...autograd.function import Function
from ...nn import activations, embedding, linear, normalization
from ...nn.dropout import Dropout
from ...nn.module import Module
from ...nn.parameter import is_lazy
from .. import _collectives
from .._redistribute import Copy
from .._sharding import _marked
from .._wrapped import wrap
from ._dtensor import DTensor, Layout, _checked_mesh, _elementwise, _made, _refused
from ._placements import Partial, Replicate, Shard

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    from ..device_mesh import DeviceMesh

    ModuleT = TypeVar("ModuleT", bound=Module)


class _Distributed:
    """What the class of a module that computes with DTensors derives from."""

    __slots__ = ()


class _Once(Function):
    """Replicate to Partial: the first process has the value, the others zeros. Each has the whole gradient."""

    @staticmethod
    def forward(ctx, x, group):
        return x.detach().clone() if group.rank() == 0 else _C.zeros_like(x.detach())

    @staticmethod
    def backward(ctx, g):
        return g, None


# ---- how modules of known kinds compute with DTensors


def _linear(m, x):
    y, bias = x.matmul(m.weight.T), m.bias
    if bias is None:
        return y
    local, placements = bias._local_tensor, list(bias.placements)
    for axis, p in enumerate(y.placements):  # a sum gets the bias once
        if isinstance(p, Partial) and isinstance(placements[axis], Replicate):
            local, placements[axis] = _Once.apply(local, bias.device_mesh.get_group(axis)), Partial()
    return y + _made(local, bias.device_mesh, placements, bias.shape)


def _embedding(m, index):
    table, mesh = m.weight, m.weight.device_mesh
    if m.max_norm is not None or m.scale_grad_by_freq:
        raise NotImplementedError(f"Embedding: not available for DTensors; got max_norm={m.max_norm}, scale_grad_by_freq={m.scale_grad_by_freq}; expected None and False")
    if index.device_mesh != mesh:
        raise ValueError(f"Embedding: the meshes differ; got indices on {index.device_mesh} and a table on {mesh}; expected one mesh")
    weight, placements, rows = table._local_tensor, [], False
    for axis, (p, q) in enumerate(zip(index.placements, table.placements)):
        if isinstance(p, Partial) or isinstance(p, Shard) and isinstance(q, Shard):
            raise _refused("embedding", [index, table], "expected the indices or the table as a whole along each axis of the mesh")
        if isinstance(p, Shard):
            weight = Copy.apply(weight, mesh.get_group(axis))
        rows = rows or q.is_shard(0)
        placements.append(Partial() if q.is_shard(0) else Shard(index.ndim) if q.is_shard(1) else p)
    shape, at, padding = (*index.shape, table.shape[1]), index._local_tensor, m.padding_idx
    if not rows:
        return _made(_C.embedding(at, weight, padding), mesh, placements, shape)
    begin, n = Layout(mesh, table.placements, table.shape).offsets[0], weight.shape[0]
    if n == 0:  # this process has no rows
        return _made(_C.zeros(tuple(at.shape) + (weight.shape[1],), dtype=weight.dtype, device=weight.device) + weight.sum(dim=0), mesh, placements, shape)
    here = (at >= begin) & (at < begin + n)
    padding = padding - begin if padding is not None and begin <= padding < begin + n else None
    found = _C.embedding((at - begin) * here.to(at.dtype), weight, padding)
    return _made(found * here.unsqueeze(-1).to(weight.dtype), mesh, placements, shape)


def _norm(m, x, fn):
    """A norm over the last dims, which must be whole."""
    n, op = len(m.normalized_shape), type(m).__name__
    if any(isinstance(p, Partial) or isinstance(p, Shard) and p.dim >= x.ndim - n for p in x.placements):
        raise _refused(op, [x], f"expected the last {n} dims as a whole, and no Partial()")
    locals_ = []
    for name in ("weight", "bias"):
        p = getattr(m, name, None)
        if p is not None and (p.device_mesh != x.device_mesh or any(not isinstance(q, Replicate) for q in p.placements)):
            raise _refused(op, [x, p], f"expected the {name} as a whole, on the mesh of the input")
        local = None if p is None else p._local_tensor
        for axis, q in enumerate(x.placements):
            if local is not None and isinstance(q, Shard):
                local = Copy.apply(local, x.device_mesh.get_group(axis))
        locals_.append(local)
    return _made(fn(x._local_tensor, *locals_), x.device_mesh, x.placements, x.shape)


def _layer_norm(m, x):
    return _norm(m, x, lambda v, w, b: _C.layer_norm(v, m.normalized_shape, w, b, m.eps))


def _rms_norm(m, x):
    return _norm(m, x, lambda v, w, b: _C.rms_norm(v, m.normalized_shape, w, m.eps))


def _softmax(m, x):
    if m.dim is None:
        raise ValueError(f"{type(m).__name__}: dim is not given; got None for a DTensor; expected a dim")
    return x.softmax(m.dim) if isinstance(m, activations.Softmax) else x.log_softmax(m.dim)


def _dropout(m, x):
    if not m.training or m.p == 0:
        return x
    if any(isinstance(p, Replicate) for p in x.placements) and x.device_mesh.size() > 1:
        raise _refused("dropout", [x], "expected Shard(dim) along each axis, because each process draws numbers of its own")
    return None


_RULES = {linear.Linear: _linear, embedding.Embedding: _embedding, normalization.LayerNorm: _layer_norm, normalization.RMSNorm: _rms_norm,
          activations.Softmax: _softmax, activations.LogSoftmax: _softmax}
_ELEMENTWISE = tuple(getattr(activations, name) for name in "ReLU GELU SiLU Sigmoid Tanh Softplus LeakyReLU Threshold Hardshrink Softshrink ELU CELU SELU Hardtanh ReLU6 Hardsigmoid Hardswish Mish Softsign Tanhshrink LogSigmoid".split())


def _rule(m):
    """How a module computes with DTensors: a function of a known kind, unless a subclass has a forward() of its own; None: its forward() does, with operators of DTensors."""
    for kind, rule in _RULES.items():
        if isinstance(m, kind) and type(m).forward is kind.forward:
            return rule
    return None


def _is_elementwise(m):
    return any(isinstance(m, kind) and type(m).forward is kind.forward for kind in (*_ELEMENTWISE, Dropout))


def _name(module):
    """The name of the class that a module had."""
    return next(kind.__name__ for kind in type(module).__mro__ if not issubclass(kind, _Distributed))


def _copied(module, memo):
    made = memo[id(module)] = object.__new__(type(module))
    made.__dict__.update(copy.deepcopy(module.__dict__, memo))
    return made


def _pickled(module, protocol):
    raise RuntimeError(f"pickle: a module of distribute_module() cannot be pickled; got {_name(module)}; expected an ordinary module; hint: distributed.checkpoint.save(module.state_dict())")


def _wrapped(module, mesh):
    rule, elementwise = _rule(module), _is_elementwise(module)
    if not (rule or elementwise or module._parameters or module._buffers):
        return

    def forward(self_, inner, args, kwargs):
        if elementwise:
            x, *rest = args or (None,)
            if not isinstance(x, DTensor):
                return inner(*args, **kwargs)
            kept = _dropout(self_, x) if isinstance(self_, Dropout) else None
            return _elementwise(_name(self_).lower(), lambda v: inner(v, *rest, **kwargs), (x,)) if kept is None else kept
        swapped = []
        try:
            for kind in (self_._parameters, self_._buffers):
                for name, t in list(kind.items()):
                    layout = getattr(t, "_sharding", None)
                    if t is None or isinstance(t, DTensor) or kind is self_._buffers and layout is None and t.ndim == 0:  # a number goes with DTensors as it is
                        continue
                    if kind is self_._buffers and layout is None:
                        layout = Layout(mesh, (Replicate(),) * mesh.ndim, t.shape)
                    if not isinstance(layout, Layout):
                        raise ValueError(f"distribute_module: a parameter is on no mesh; got {name} of {_name(self_)}, which was registered later or divided by fully_shard(); expected nn.Parameter(distribute_tensor(...))")
                    d = _made(t, layout.device_mesh, layout.placements, layout.global_shape)
                    swapped.append((kind, name, t, d))
                    kind[name] = d
            values = [*args, *kwargs.values()]
            if rule is not None and len(values) == 1 and isinstance(values[0], (Tensor, DTensor)):
                x = values[0]
                if isinstance(x, Tensor):
                    raise TypeError(f"{_name(self_)}: the input is an ordinary tensor, and the parameters are DTensors; got a tensor of shape {tuple(x.shape)}; expected a DTensor; hint: input_fn of distribute_module()")
                return rule(self_, x)
            return inner(*args, **kwargs)
        finally:
            for kind, name, t, d in swapped:
                if kind.get(name) is d:
                    kind[name] = t

    wrap(module, "Distributed", _Distributed, forward, __deepcopy__=_copied, __reduce_ex__=_pickled)


def _place(module, mesh):
    """What partition_fn left as ordinary tensors becomes that of the first process, whole on each one. The objects stay."""
    seen = set()
    for path, m in module.named_modules():
        for kind in (m._parameters, m._buffers):
            for name, t in kind.items():
                if t is None or id(t) in seen:
                    continue
                seen.add(id(t))
                full = f"{path}.{name}" if path else name
                if is_lazy(t):
                    raise ValueError(f"distribute_module: a parameter has no shape yet; got {full}; expected a module that was called once")
                s = getattr(t, "_sharding", None)
                if getattr(t, "_gathered_by", None) is not None or s is not None and not isinstance(s, Layout):
                    raise ValueError(f"distribute_module: a parameter is divided already; got {full}; expected a module before fully_shard() and parallelize_module()")
                if s is not None:
                    if s.device_mesh != mesh:
                        raise ValueError(f"distribute_module: a parameter is on another mesh; got {full} on {s.device_mesh}; expected {mesh}")
                    continue
                if t.device.type != "null":
                    for axis in range(mesh.ndim):
                        _collectives.broadcast(t, group=mesh.get_group(axis), group_src=0)
                if kind is m._parameters:
                    _marked(t, Layout(mesh, (Replicate(),) * mesh.ndim, t.shape))


def distribute_module(module: ModuleT, device_mesh: DeviceMesh | None = None, partition_fn: Callable[[str, Module, DeviceMesh], Any] | None = None, input_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None, output_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None) -> ModuleT:
    """Lays the parameters of a module over a mesh, in place, so that it computes with DTensors. Returns the module. All processes of the mesh call it.

    partition_fn(name, submodule, device_mesh): called for the module (name '') and each module in it; replaces parameters, as in
    submodule.register_parameter('weight', nn.Parameter(distribute_tensor(submodule.weight, device_mesh, [Shard(0)]))). What it leaves, and everything without it, becomes the
    values of the first process, whole on each (Replicate()). Between calls each parameter is this process's part, of the part's shape, with full_tensor(), global_shape
    and placements; in forward() it is a DTensor of the whole shape. input_fn(module, inputs, device_mesh): gets the tuple of inputs before each call and returns
    those for forward(), such as DTensors of them. output_fn(module, outputs, device_mesh): returns what the call gives. Each may be None.

    Linear, Embedding, LayerNorm, RMSNorm, Softmax, LogSoftmax, Dropout and elementwise activations compute with DTensors; a forward() of one's own does with operators and methods of DTensors. Dtypes are
    those of the module.

    TypeError: no Module, no mesh, no functions; at a call, an ordinary tensor as the input of a module with parameters. RuntimeError: the module, or one in it, was distributed before. ValueError: a parameter
    is divided already, on another mesh, or without a shape, or this process is not in the mesh; at a call, parts that do not suffice.
    """
    op = "distribute_module"
    if not isinstance(module, Module):
        raise TypeError(f"{op}: not a Module; got {type(module).__name__}; expected a module")
    mesh = _checked_mesh(op, device_mesh)
    for name, fn in (("partition_fn", partition_fn), ("input_fn", input_fn), ("output_fn", output_fn)):
        if fn is not None and not callable(fn):
            raise TypeError(f"{op}: {name} is not a function; got {type(fn).__name__}; expected a function, or None")
    for path, m in module.named_modules():
        if isinstance(m, _Distributed) or m.__dict__.get("_distributed"):
            raise RuntimeError(f"{op}: the module was distributed before; got {path or type(m).__name__}; expected one call for a module")
    if partition_fn is not None:
        for path, m in list(module.named_modules()):
            partition_fn(path, m, mesh)
    _place(module, mesh)
    for m in list(module.modules()):
        _wrapped(m, mesh)
    module._distributed = True
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, mesh))
    return module


__all__ = ["distribute_module"]
