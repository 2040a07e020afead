"""Layers of which each process computes a part, by the names of torch.distributed.tensor.parallel.

Weights are split over the processes along an axis of a mesh. What goes into a layer and comes out of it are ordinary tensors, each of which is whole (Replicate) or a part
(Shard); a layer's style says which. An input may also be a DTensor, which says it itself; with use_local_output=False the output is one. The collectives between have gradients: a whole value has the whole gradient on each process.
"""
from __future__ import annotations

import fnmatch

from ... import _refused
from ..._C import Tensor
from ...nn import functional as F
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from ...nn.module import Module
from .. import _collectives, _state
from .._redistribute import Copy, Gather, GatherForParts, Reduce, ReduceScatter, Split
from .._sharding import shard_
from .._wrapped import wrap
from ..device_mesh import DeviceMesh
from ._dtensor import DTensor
from ._loss import loss_parallel
from ._placements import Partial, Replicate, Shard

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from ._placements import Placement

    ModuleT = TypeVar("ModuleT", bound=Module)


def _dim(x, placement):
    if not -x.ndim <= placement.dim < x.ndim:
        raise ValueError(f"tensor.parallel: there is no such dim; got {placement} for shape {tuple(x.shape)}; expected a dim of the tensor")
    return placement.dim % x.ndim


def redistribute(x, group, now, then, for_parts=False):
    """x in another layout. for_parts: what is whole then goes into a computation of which each rank does a part, so that gradients of all ranks are added."""
    if isinstance(now, Partial):
        return Reduce.apply(x, group) if isinstance(then, Replicate) else ReduceScatter.apply(x, group, _dim(x, then))
    if isinstance(now, Shard) and isinstance(then, Replicate):
        return (GatherForParts if for_parts else Gather).apply(x, group, _dim(x, now))
    if isinstance(now, Replicate):
        if isinstance(then, Shard):
            return Split.apply(x, group, _dim(x, then))
        return Copy.apply(x, group) if for_parts else x
    if _dim(x, now) == _dim(x, then):
        return x
    return Split.apply(Gather.apply(x, group, _dim(x, now)), group, _dim(x, then))


def _layout(op, name, given, default):
    given = default if given is None else given
    if isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    if not isinstance(given, (Shard, Replicate)):
        raise TypeError(f"{op}: {name} is not a layout; got {given!r}; expected Shard(dim) or Replicate()")
    return given


def _taken(x, group, now, then, for_parts=False):
    """An input of a layer as an ordinary tensor in the layout `then`. now: the layout of an ordinary tensor; a DTensor says its own."""
    if not isinstance(x, DTensor):
        return redistribute(x, group, now, then, for_parts)
    if x.device_mesh.ndim != 1 or x.device_mesh.get_group() is not group:
        raise ValueError(f"tensor.parallel: the input is on another mesh than the layer; got {x.device_mesh}; expected a mesh of the ranks {list(group.ranks)}")
    local = x.redistribute(placements=[then]).to_local()
    return Copy.apply(local, group) if for_parts and isinstance(then, Replicate) else local


def _given(y, mesh, layout, use_local_output):
    """An output of a layer, of which this process has y."""
    return y if use_local_output else DTensor.from_local(y, mesh, [layout])


def _mesh_of(group):
    """The mesh for which parallelize_module() applies styles to the processes of a group."""
    return group._mesh if group._mesh is not None else DeviceMesh("cpu", list(group.ranks), _parts=[group])


class ParallelStyle:
    """How a module is divided among the processes of a group: parallelize_module() applies it. A subclass defines _apply(module, group).

    This class itself divides nothing: applying it is a NotImplementedError. ColwiseParallel and RowwiseParallel are styles.
    """

    def _apply(self, module, group):
        raise NotImplementedError(f"{type(self).__name__}: _apply is not implemented; expected a style of distributed.tensor.parallel")


def _same_values(module, group):
    """Parameters get the values of the first rank of the group."""
    for name, p in module._parameters.items():
        if p is None:
            continue
        if getattr(p, "_gathered_by", None) is not None or getattr(p, "_sharding", None) is not None:
            raise ValueError(f"parallelize_module: a parameter is divided already; got {name} of {type(module).__name__}; expected parallelize_module() before fully_shard(), once for each module")
        if group.size() > 1 and p.device.type != "null":
            _collectives.broadcast(p, group=group, group_src=0)


def _split(module, name, group, dim):
    p = module._parameters.get(name)
    if p is None:
        return
    if p.shape[dim] % group.size():
        raise ValueError(f"parallelize_module: a weight cannot be split in equal parts; got {name} of {type(module).__name__} of shape {tuple(p.shape)} along dim {dim}; expected a multiple of {group.size()}, the number of processes")
    shard_(p, group, dim)


def _kind(style, module):
    for kind in (Linear, Embedding):
        if isinstance(module, kind):
            return kind
    raise NotImplementedError(f"{style}: this kind of module cannot be divided; got {type(module).__name__}; expected Linear or Embedding")


class _Parallel:
    """What a divided module's class derives from."""

    __slots__ = ()


class ColwiseParallel(ParallelStyle):
    """Each process computes a part of the outputs: of a Linear weight.shape[0] / n features, of an Embedding a part of the columns.

    input_layouts: how the input comes (Replicate()). output_layouts: how the output is to go (Shard(-1), as it is computed).
    use_local_output=False: the output is a DTensor. An input that is a DTensor says its own layout.

    TypeError for what is no layout. parallelize_module() with it is a NotImplementedError for a module that is no Linear or Embedding, and a ValueError where
    the processes do not get equal parts."""

    def __init__(self, *, input_layouts: Placement | Sequence[Placement] | None = None, output_layouts: Placement | Sequence[Placement] | None = None, use_local_output: bool = True) -> None:
        self.input, self.output = _layout("ColwiseParallel", "input_layouts", input_layouts, Replicate()), _layout("ColwiseParallel", "output_layouts", output_layouts, Shard(-1))
        self.use_local_output = use_local_output

    def _apply(self, module, group):
        kind = _kind("ColwiseParallel", module)
        _same_values(module, group)
        _split(module, "weight", group, 0 if kind is Linear else 1)
        if kind is Linear:
            _split(module, "bias", group, 0)

        mesh = _mesh_of(group)

        def forward(self_, inner, args, kwargs):
            x = _taken(args[0], group, self.input, Replicate(), for_parts=kind is Linear)
            y = redistribute(inner(x, *args[1:], **kwargs), group, Shard(-1), self.output)
            return _given(y, mesh, self.output, self.use_local_output)

        return wrap(module, "ColwiseParallel", _Parallel, forward)


class RowwiseParallel(ParallelStyle):
    """Each process computes with a part of the inputs, and the results are added: of a Linear weight.shape[1] / n features, of an Embedding a part of the rows.

    input_layouts: how the input comes (Shard(-1) for a Linear; indices of an Embedding are Replicate()). output_layouts: how the output is to go (Replicate(), or Shard(dim)).
    The bias is whole on each process, and is added once. use_local_output=False: the output is a DTensor. An input that is a DTensor says its own layout.

    TypeError for what is no layout. parallelize_module() with it is a NotImplementedError for a module that is no Linear or Embedding and for an Embedding with
    max_norm or padding_idx, and a ValueError where the processes do not get equal parts."""

    def __init__(self, *, input_layouts: Placement | Sequence[Placement] | None = None, output_layouts: Placement | Sequence[Placement] | None = None, use_local_output: bool = True) -> None:
        _layout("RowwiseParallel", "input_layouts", input_layouts, Replicate())
        self.given, self.output = input_layouts, _layout("RowwiseParallel", "output_layouts", output_layouts, Replicate())
        self.use_local_output = use_local_output

    def _apply(self, module, group):
        kind = _kind("RowwiseParallel", module)
        layout = _layout("RowwiseParallel", "input_layouts", self.given, Shard(-1) if kind is Linear else Replicate())
        if kind is Embedding and (module.max_norm is not None or module.padding_idx is not None):
            raise NotImplementedError(f"RowwiseParallel: rows with a meaning of their own cannot be divided; got an Embedding with max_norm={module.max_norm}, padding_idx={module.padding_idx}; expected neither; hint: ColwiseParallel")
        _same_values(module, group)
        _split(module, "weight", group, 1 if kind is Linear else 0)
        rows, mesh = module.weight.shape[0] * group.rank(), _mesh_of(group)

        def linear(self_, inner, args, kwargs):
            return _given(product(self_, args[0]), mesh, self.output, self.use_local_output)

        def product(self_, x):
            x = _taken(x, group, layout, Shard(-1))
            y = redistribute(F.linear(x, self_.weight), group, Partial(), self.output)
            bias = self_.bias
            if bias is None:
                return y
            if isinstance(self.output, Shard):
                bias = Copy.apply(bias, group)
                bias = _part_of_vector(bias, group) if _dim(y, self.output) == y.ndim - 1 else bias
            return y + bias

        def embedding(self_, inner, args, kwargs):
            index = _taken(args[0], group, layout, Replicate())
            weight = self_.weight
            here = (index >= rows) & (index < rows + weight.shape[0])
            found = F.embedding((index - rows) * here.to(index.dtype), weight) * here.unsqueeze(-1).to(weight.dtype)
            return _given(redistribute(found, group, Partial(), self.output), mesh, self.output, self.use_local_output)

        return wrap(module, "RowwiseParallel", _Parallel, linear if kind is Linear else embedding)


def _part_of_vector(x, group):
    """This rank's part of a vector whose gradients of all ranks are added by who gave it."""
    size = x.shape[0] // group.size()
    return x.narrow(0, group.rank() * size, size)


class SequenceParallel(ParallelStyle):
    """A module that treats each position of a sequence by itself, such as LayerNorm, RMSNorm or Dropout, for a part of the positions. Parameters are whole on each process, and their
    gradients are added over the processes.

    sequence_dim: the dim that is split (1), an int; TypeError otherwise. The input is a part, or a DTensor; the output is a part as an ordinary tensor.
    use_local_output changes nothing."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        Shard(sequence_dim)
        self.dim = sequence_dim

    def _apply(self, module, group):
        _same_values(module, group)

        def forward(self_, inner, args, kwargs):
            before = dict(self_._parameters)
            try:
                for name, p in before.items():
                    if p is not None:
                        self_._parameters[name] = Copy.apply(p, group)
                return inner(*(_taken(a, group, None, Shard(self.dim)) if isinstance(a, DTensor) else a for a in args), **kwargs)
            finally:
                self_._parameters.update(before)

        return wrap(module, "SequenceParallel", _Parallel, forward)


def _layouts(op, name, given):
    given = given if isinstance(given, (list, tuple)) else (given,)
    for v in given:
        if v is not None and not isinstance(v, (Shard, Replicate)):
            raise TypeError(f"{op}: {name} is not a layout; got {v!r}; expected Shard(dim), Replicate() or None")
    return tuple(given)


def _changed(op, values, group, now, then):
    if len(values) != len(now):
        raise ValueError(f"{op}: the number of layouts does not fit; got {len(values)} values and {len(now)} layouts; expected one layout for each, or None")
    return tuple(_taken(v, group, a, b) if isinstance(v, (Tensor, DTensor)) and b is not None and (a is not None or isinstance(v, DTensor)) else v for v, a, b in zip(values, now, then))


class PrepareModuleInput(ParallelStyle):
    """Changes the layouts of a module's inputs: input_layouts says how they come, desired_input_layouts how forward gets them; one for each, None: as it is.
    input_kwarg_layouts, desired_input_kwarg_layouts: the same for keywords. An input that is a DTensor says its own layout. forward gets ordinary tensors:
    use_local_output changes nothing. TypeError for what is no layout; ValueError for different numbers of layouts, for desired_input_layouts alone, and in the call for another number of
    inputs."""

    def __init__(self, *, input_layouts: Placement | Sequence[Placement | None] | None = None, desired_input_layouts: Placement | Sequence[Placement | None] | None = None, input_kwarg_layouts: Mapping[str, Placement] | None = None, desired_input_kwarg_layouts: Mapping[str, Placement] | None = None, use_local_output: bool = False) -> None:
        op = "PrepareModuleInput"
        if input_layouts is None and desired_input_layouts is not None:
            raise ValueError(f"{op}: desired_input_layouts without input_layouts; got {desired_input_layouts!r}; expected both; hint: an entry None in input_layouts is for an input that is a DTensor")
        self.now, self.then = (None, None) if input_layouts is None else (_layouts(op, "input_layouts", input_layouts), _layouts(op, "desired_input_layouts", desired_input_layouts))
        self.kwargs_now, self.kwargs_then = dict(input_kwarg_layouts or {}), dict(desired_input_kwarg_layouts or {})
        if self.now is not None and len(self.now) != len(self.then) or set(self.kwargs_now) != set(self.kwargs_then):
            raise ValueError(f"{op}: the layouts do not belong together; got {input_layouts!r} and {desired_input_layouts!r}, {input_kwarg_layouts!r} and {desired_input_kwarg_layouts!r}; expected one of each for each input")

    def _apply(self, module, group):
        def forward(self_, inner, args, kwargs):
            if self.now is not None:
                args = _changed("PrepareModuleInput", args, group, self.now, self.then)
            for k in [k for k in kwargs if k in self.kwargs_now]:
                kwargs[k], = _changed("PrepareModuleInput", (kwargs[k],), group, (self.kwargs_now[k],), (self.kwargs_then[k],))
            return inner(*args, **kwargs)

        return wrap(module, "Prepared", _Parallel, forward)


class PrepareModuleOutput(ParallelStyle):
    """Changes the layouts of a module's outputs: output_layouts says how they are computed, desired_output_layouts how they go; one for each, None: as it is.
    use_local_output=False: outputs that have layouts are DTensors. TypeError for what is no layout; ValueError for different numbers of layouts, and in the call
    for another number of outputs."""

    def __init__(self, *, output_layouts: Placement | Sequence[Placement | None], desired_output_layouts: Placement | Sequence[Placement | None], use_local_output: bool = True) -> None:
        op = "PrepareModuleOutput"
        self.now, self.then = _layouts(op, "output_layouts", output_layouts), _layouts(op, "desired_output_layouts", desired_output_layouts)
        if len(self.now) != len(self.then):
            raise ValueError(f"{op}: the layouts do not belong together; got {output_layouts!r} and {desired_output_layouts!r}; expected one of each for each output")
        self.use_local_output = use_local_output

    def _apply(self, module, group):
        mesh = _mesh_of(group)

        def forward(self_, inner, args, kwargs):
            out = inner(*args, **kwargs)
            single = not isinstance(out, (tuple, list))
            changed = _changed("PrepareModuleOutput", (out,) if single else tuple(out), group, self.now, self.then)
            changed = tuple(_given(v, mesh, then, self.use_local_output) if isinstance(v, Tensor) and then is not None else v for v, then in zip(changed, self.then))
            return changed[0] if single else changed

        return wrap(module, "Prepared", _Parallel, forward)


def _matching(module, path):
    """The modules below whose dotted name fits a path, in which a part may have the wildcards * and ?."""
    found = [module]
    for word in path.split("."):
        found = [child for m in found for name, child in m._modules.items() if child is not None and fnmatch.fnmatchcase(name, word)]
    return found


def parallelize_module(module: ModuleT, device_mesh: DeviceMesh | None = None, parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None, *, src_data_rank: int | None = 0) -> ModuleT:
    """Divides modules over the processes along an axis of a mesh, in place. Returns the module.

    device_mesh: a mesh of one axis, such as mesh['tp']. parallelize_plan: a style for the module itself, or {name of a module below it: style}, where a part of the dotted name may be a
    wildcard ('blocks.*.up'). Weights have the values of the first process of the group; src_data_rank is accepted for PyTorch's programs and changes nothing.
    ValueError: a name fits no module (PyTorch warns), a weight cannot be split in equal parts."""
    op = "parallelize_module"
    if not isinstance(module, Module):
        raise TypeError(f"{op}: not a Module; got {type(module).__name__}; expected a module")
    if not isinstance(device_mesh, DeviceMesh):
        raise TypeError(f"{op}: device_mesh is not a mesh; got {type(device_mesh).__name__}; expected what init_device_mesh() returned")
    if device_mesh.ndim != 1:
        raise ValueError(f"{op}: the mesh has several axes; got {device_mesh}; expected one; hint: mesh['tp']")
    if device_mesh.get_coordinate() is None:
        raise ValueError(f"{op}: this process is not in the mesh; got rank {_state.get_rank()}; expected one of {device_mesh.mesh.tolist()}")
    group = device_mesh.get_group()
    plan = {"": parallelize_plan} if isinstance(parallelize_plan, ParallelStyle) else parallelize_plan
    if not isinstance(plan, dict):
        raise TypeError(f"{op}: parallelize_plan is not a plan; got {type(plan).__name__}; expected a style, or a dict of names and styles")
    work = []
    for path, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(f"{op}: not a style; got {style!r} for '{path}'; expected such as ColwiseParallel()")
        found = _matching(module, path) if path else [module]
        if not found:
            raise ValueError(f"{op}: a name fits no module; got '{path}'; expected a name below {type(module).__name__}")
        work += [(m, style) for m in found]
    group._mesh = device_mesh
    for m, style in work:
        style._apply(m, group)
    return module


__getattr__ = _refused.module("distributed.tensor.parallel", "ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, PrepareModuleOutput and loss_parallel are")
__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module"]
