"""The states of models and optimizers by the names of their parameters, for checkpoints that any number of processes loads."""
from __future__ import annotations

from ... import _C, _tree
from ..._C import Tensor
from ...nn import Module
from ...nn.parallel import DistributedDataParallel
from .._sharding import ShardedTensor, sharding_of

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...nn.state import IncompatibleKeys
    from ...optim.optimizer import Optimizer


class StateDictOptions:
    """full_state_dict: whole tensors, on every rank. cpu_offload: in the host's memory. strict: of load_state_dict(). Other options of PyTorch
    (ignore_frozen_params, keep_submodule_prefixes, broadcast_from_rank0, flatten_optimizer_state_dict) can only have their defaults: NotImplementedError."""

    def __init__(self, full_state_dict: bool = False, cpu_offload: bool = False, ignore_frozen_params: bool = False, keep_submodule_prefixes: bool = True, strict: bool = True, broadcast_from_rank0: bool = False, flatten_optimizer_state_dict: bool = False) -> None:
        for name, value, default in (("ignore_frozen_params", ignore_frozen_params, False), ("keep_submodule_prefixes", keep_submodule_prefixes, True),
                                     ("broadcast_from_rank0", broadcast_from_rank0, False), ("flatten_optimizer_state_dict", flatten_optimizer_state_dict, False)):
            if value is not default:
                raise NotImplementedError(f"StateDictOptions: {name} is not available; got {value!r}; expected {default}")
        self.full_state_dict, self.cpu_offload, self.strict = full_state_dict, cpu_offload, strict


def _plain(model):
    """The module that DistributedDataParallel has: names do not depend on it."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _check(op, model, options):
    if not isinstance(model, Module):
        raise TypeError(f"{op}: not a module; got {type(model).__name__}; expected a Module")
    if options is not None and not isinstance(options, StateDictOptions):
        raise TypeError(f"{op}: options are of another type; got {type(options).__name__}; expected a StateDictOptions, or None")


def _given(t, options):
    if not isinstance(t, Tensor) or options is None:
        return t
    s = sharding_of(t)
    if options.full_state_dict and s is not None:
        t = s.whole(t.to_local())
    if options.cpu_offload:
        local = t.to_local() if sharding_of(t) is not None else t
        t = ShardedTensor(local.cpu(), t._sharding) if sharding_of(t) is not None else local.cpu()
    return t


def get_model_state_dict(model: Module, *, submodules: None = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """The state dict of a model: each tensor is this rank's part and knows it, or with full_state_dict the whole one.

    model: a Module. options: a StateDictOptions; None: its defaults. TypeError for others. submodules: None; NotImplementedError otherwise."""
    _check("get_model_state_dict", model, options)
    _no_submodules("get_model_state_dict", submodules)
    return {k: _given(t, options) for k, t in _plain(model).state_dict().items()}


def _no_submodules(op, submodules):
    if submodules is not None:
        raise NotImplementedError(f"{op}: submodules is not available; got {submodules!r}; expected None; hint: call it for the submodule")


def _names(op, model, optimizer):
    """{id of a parameter: its name}, for the parameters of an optimizer."""
    names = {id(p): name for name, p in _plain(model).named_parameters()}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in names:
                raise ValueError(f"{op}: the optimizer has a parameter that the model does not have; got one of shape {tuple(p.shape)}; expected parameters of the model")
    return names


def _begin_state(optimizer):
    """Gives an optimizer that made no step the state that its first step makes, with all parameters as they are."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if optimizer.state or not params:
        return
    before = [(p, p.grad, p.detach().clone()) for p in params]
    rates = [group.get("lr") for group in optimizer.param_groups]
    try:
        for p in params:
            p.grad = _C.zeros_like(p.detach())
        for group in optimizer.param_groups:
            if "lr" in group:
                group["lr"] = 0.0
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates):
            if "lr" in group:
                group["lr"] = rate
        for p, grad, value in before:
            p.grad = grad
            p.detach().copy_(value)


def get_optimizer_state_dict(model: Module, optimizers: Optimizer | Sequence[Optimizer], *, submodules: None = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """{'state': {name: {...}}, 'param_groups': [{..., 'params': [names]}]} of one optimizer, or of several with different parameters. An optimizer that made no step yet gets
    its first state, so that there is something to load into.

    model: a Module. optimizers: one, or a list of them, with parameters of the model (ValueError otherwise). options: a StateDictOptions. submodules: None; NotImplementedError otherwise."""
    op = "get_optimizer_state_dict"
    _no_submodules(op, submodules)
    result = {"state": {}, "param_groups": []}
    for optimizer in _several(optimizers):
        names = _names(op, model, optimizer)
        _begin_state(optimizer)
        saved = optimizer.state_dict()
        order = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
        for i, entry in saved["state"].items():
            result["state"][order[int(i)]] = {k: _tree.map(lambda t: _given(t, options), v) for k, v in entry.items()}
        for group in saved["param_groups"]:
            result["param_groups"].append({**{k: v for k, v in group.items() if k != "param_names"}, "params": [order[i] for i in group["params"]]})
    return result


def _several(optimizers):
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


def get_state_dict(model: Module, optimizers: Optimizer | Sequence[Optimizer], *, submodules: None = None, options: StateDictOptions | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pair (model state dict, optimizer state dict) of get_model_state_dict() and get_optimizer_state_dict(), with names of parameters as keys and
    tensors as values.

    The arguments are those of distributed.checkpoint.state_dict.get_optimizer_state_dict, and so are the errors.
    """
    _no_submodules("get_state_dict", submodules)
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def _fitted(op, name, value, target):
    """A whole tensor becomes this rank's part, where the target is a part; a DTensor becomes its part. ValueError for another part than the target."""
    if not isinstance(value, Tensor) and hasattr(value, "_as_part"):
        value = value._as_part(op)
    s = sharding_of(target)
    if not isinstance(value, Tensor):
        return value
    given = sharding_of(value)
    if given is not None:
        has = (given.local_shape, given.offsets, given.global_shape)
        shape = tuple(target.shape) if isinstance(target, Tensor) else None
        wanted = (s.local_shape, s.offsets, s.global_shape) if s is not None else (shape, (0,) * len(shape or ()), shape)
        if shape is not None and value.ndim and has != wanted:
            raise ValueError(f"{op}: another part than the model has; got {name} of shape {has[0]} at {has[1]} of {has[2]}; expected {wanted[0]} at {wanted[1]} of {wanted[2]}; hint: full_tensor(), or distributed.checkpoint.load")
        return value
    if s is None or tuple(value.shape) != s.global_shape or value.ndim == 0:
        return value
    return s.own_of_whole(value)


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> IncompatibleKeys:
    """Loads a state dict of get_model_state_dict(), of parts, DTensors or whole tensors. Returns the missing and the unexpected keys.

    model: a Module. options: a StateDictOptions, of which strict counts; None: its defaults. RuntimeError for tensors of other shapes and for what is no tensor,
    and with strict for missing and unexpected keys; ValueError for a part that is another one than the model has; TypeError for a model, a state dict or options of another type."""
    _check("set_model_state_dict", model, options)
    if not isinstance(model_state_dict, dict):
        raise TypeError(f"set_model_state_dict: not a state dict; got {type(model_state_dict).__name__}; expected a dict of tensors")
    module = _plain(model)
    mine = module.state_dict()
    state = {k: _fitted("set_model_state_dict", k, v, mine.get(k)) for k, v in model_state_dict.items()}
    return module.load_state_dict(state, strict=options.strict if options is not None else True)


def set_optimizer_state_dict(model: Module, optimizers: Optimizer | Sequence[Optimizer], optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> None:
    """Loads a state dict of get_optimizer_state_dict(). ValueError if a parameter has no state in it, or that of another part, and for what is no such dict.

    model: a Module. optimizers: one, or a list of them, with parameters of the model. optim_state_dict: of parts or of whole tensors. options is accepted for PyTorch's programs and changes nothing."""
    op = "set_optimizer_state_dict"
    if not isinstance(optim_state_dict, dict) or not {"state", "param_groups"} <= set(optim_state_dict):
        got = sorted(optim_state_dict) if isinstance(optim_state_dict, dict) else type(optim_state_dict).__name__
        raise ValueError(f"{op}: not the state of an optimizer; got {got}; expected a dict with 'state' and 'param_groups'")
    for optimizer in _several(optimizers):
        names = _names(op, model, optimizer)
        params = [p for group in optimizer.param_groups for p in group["params"]]
        number = {names[id(p)]: i for i, p in enumerate(params)}
        group_of = {name: group for group in optim_state_dict["param_groups"] for name in group["params"]}
        missing = sorted(set(number) - set(group_of))
        if missing:
            raise ValueError(f"{op}: parameters are not in the state; got none for {', '.join(missing)}; expected the state of the same model")
        state = {i: {k: _tree.map(lambda t, p=params[i], k=k: _fitted(op, f"{k} of {name}", t, p), v) for k, v in optim_state_dict["state"][name].items()} for name, i in number.items() if name in optim_state_dict["state"]}
        groups = []
        for group in optimizer.state_dict()["param_groups"]:
            saved = group_of[names[id(params[group["params"][0]])]] if group["params"] else group
            groups.append({**{k: v for k, v in saved.items() if k != "params"}, "params": group["params"]})
        optimizer.load_state_dict({"state": state, "param_groups": groups})


def set_state_dict(model: Module, optimizers: Optimizer | Sequence[Optimizer], *, model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any], options: StateDictOptions | None = None) -> IncompatibleKeys:
    """set_model_state_dict() and set_optimizer_state_dict(). Returns the missing and the unexpected keys of the model.

    model: a Module. optimizers: one, or several of its parameters. model_state_dict, optim_state_dict: what get_state_dict() gave. options: a StateDictOptions, of
    which strict counts. The errors are those of the two functions: RuntimeError for keys and shapes of the model that do not fit; ValueError for an optimizer
    with parameters that the model or the state does not have."""
    keys = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return keys


__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"]
