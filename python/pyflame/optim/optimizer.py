"""The base class of all optimizers. A step records its work and ends the window, so that the work starts to run; no value is read back.
SGD and Adam record one fused update of all tensors of a group. The others write the update of one parameter as tensor ops, whose elementwise
part is one fused loop."""
from __future__ import annotations

import collections
import functools
from collections.abc import Iterable
from typing import Any, Union

from .. import _C
from .._C import Tensor
from .._grad_mode import enable_grad, no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import overload

    from ._annotations import LossT, State

    # Hooks of step(): what it is called with, as (args, kwargs), and, before the step, what to call it with instead.
    PreHook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], Union[tuple[tuple[Any, ...], dict[str, Any]], None]]
    PostHook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], None]

ParamsT = Union[Iterable[Tensor], Iterable[dict[str, Any]], Iterable[tuple[str, Tensor]]]
_pre_hooks = collections.OrderedDict()  # of all optimizers
_post_hooks = collections.OrderedDict()


def _is_number(v):
    return hasattr(v, "__float__") and not isinstance(v, (str, bytes))


class _Handle:
    """Removes a hook with remove(), or at the end of a `with` block."""

    _next = 0

    def __init__(self, hooks, hook, prepend=False):
        self.id = _Handle._next
        _Handle._next += 1
        self._hooks = hooks
        hooks[self.id] = hook
        if prepend:
            hooks.move_to_end(self.id, last=False)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def _use_grad_for_differentiable(step):
    """A step() without gradients: what PyTorch's optimizers decorate theirs with, for classes that are derived from Optimizer."""

    @functools.wraps(step)
    def without(*args, **kwargs):
        with no_grad():
            return step(*args, **kwargs)

    return without


def _get_value(x):
    """A number, also of a tensor with one element."""
    return x.item() if isinstance(x, Tensor) else x


def register_optimizer_step_pre_hook(hook: PreHook) -> _Handle:
    """Calls hook(optimizer, args, kwargs) before each step of every optimizer. Returns a handle with remove()."""
    return _Handle(_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: PostHook) -> _Handle:
    """Calls hook(optimizer, args, kwargs) after each step of every optimizer. Returns a handle with remove()."""
    return _Handle(_post_hooks, hook)


def _with_hooks(step):
    """A class's step(), between the hooks. A step that calls its base class's step runs them once."""

    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        if self.__dict__.get("_stepping"):
            return step(self, *args, **kwargs)
        if self._needs_whole:
            self._check_whole()
        for hook in (*_pre_hooks.values(), *self._hooks["step_pre"].values()):
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise RuntimeError(f"{type(self).__name__}.step: a pre-hook returned {type(changed).__name__}; expected None or a tuple (args, kwargs)")
            args, kwargs = changed
        self._stepping = True
        try:
            result = step(self, *args, **kwargs)
        finally:
            self._stepping = False
        for hook in (*self._hooks["step_post"].values(), *_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    return hooked


def _pairs_of(value):
    """A complex tensor of a state as pairs of real numbers, in the same memory."""
    return _C.view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()  # the default of an option that has none: each group must give it


class Optimizer:
    """Base class of all optimizers: parameter groups, state, state dicts and hooks.

    params: an iterable of tensors, of pairs (name, tensor), or of dicts {'params': ..., 'lr': ...} with a group's own options. Of a DTensor the group has this process's part.
    defaults: the options of groups that have none of their own.

    A subclass defines _begin(p, group), the first state of a parameter, and _update_one(p, grad, state, group), which records one
    update under no_grad; or it overrides step(), as in PyTorch. state['step'] counts the updates of each parameter, as an int.

    Raises ValueError for no parameters, a parameter that appears twice and one that is not a leaf; TypeError for a tensor in place of a list, what is no
    tensor and a group without 'params'.
    """

    _numbers = ("step",)  # entries of a parameter's state that are Python numbers
    _other_shapes = ()  # entries whose shape is not the parameter's
    _needs_whole = False  # the update of an element depends on others, so parts of parameters do not do

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        if defaults.get("differentiable"):
            raise NotImplementedError(f"{type(self).__name__}: differentiable steps are not available; got differentiable=True; expected False")
        self.defaults = defaults
        self._hooks = collections.defaultdict(collections.OrderedDict)
        self.state: collections.defaultdict[Tensor, dict[str, Any]] = collections.defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if isinstance(params, Tensor) or hasattr(params, "_as_parameter"):
            raise TypeError("optimizer: params is a tensor; expected an iterable of tensors or of dicts; hint: put it into a list")
        if not hasattr(params, "__iter__"):
            raise TypeError(f"optimizer: params cannot be iterated; got {type(params).__name__}; expected an iterable of tensors or of dicts{'; hint: .parameters()' if hasattr(params, 'parameters') else ''}")
        params = list(params)
        if not params:
            raise ValueError("optimizer: the list of parameters is empty")
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        for g in groups:
            self.add_param_group(g)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds {'params': [...], 'lr': ...}; missing entries get the optimizer's defaults. Names of pairs (name, tensor) become 'param_names'."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError("add_param_group: not a group; expected a dict with 'params'")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, (set, frozenset)):
            raise TypeError("optimizer: params is a set, which has no order; expected a list")
        group["params"] = params = [params] if isinstance(params, Tensor) or hasattr(params, "_as_parameter") else list(params)
        named = [isinstance(p, tuple) and len(p) == 2 for p in params]
        if params and all(named):
            group["param_names"] = [name for name, _ in params]
            params[:] = [p for _, p in params]
        elif any(named):
            raise ValueError("optimizer: some parameters have names and others not; expected pairs (name, tensor) or tensors only")
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            raise ValueError("add_param_group: some groups have names of parameters and others not; expected pairs (name, tensor) in all groups or in none")
        taken = {id(p) for g in self.param_groups for p in g["params"]}
        params[:] = [p._as_parameter("optimizer") if not isinstance(p, Tensor) and hasattr(p, "_as_parameter") else p for p in params]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer: not a tensor; got {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("optimizer: can only optimize leaf tensors; hint: use .detach().requires_grad_()")
            if id(p) in taken:
                raise ValueError("optimizer: a parameter appears twice")
            taken.add(id(p))
        for k, v in self.defaults.items():
            group.setdefault(k, v)
        missing = [k for k, v in group.items() if v is required]
        if missing:
            raise ValueError(f"{type(self).__name__}: an option has no default; got a group without '{missing[0]}'; expected a value, as an argument or in the group")
        self._check(group)
        self.param_groups.append(group)

    def _check(self, group):
        for key in ("lr", "weight_decay", "eps", "momentum"):
            if key in group:
                self._check_number(group, key, lambda v: v >= 0, "must not be negative")
        if "betas" in group:
            self._check_betas(group["betas"])

    def _check_number(self, group, key, good, what):
        v = group[key]
        if not _is_number(v):
            raise TypeError(f"{type(self).__name__}: {key} is not a number; got {v!r}")
        if not good(v):
            raise ValueError(f"{type(self).__name__}: {key} {what}; got {v}")

    def _check_shapes(self, params):
        """ValueError for lazy parameters, where an optimizer reads shapes when it is made."""
        from ..nn.parameter import is_lazy

        for p in params:
            if is_lazy(p):
                raise ValueError(f"{type(self).__name__}: a parameter has no shape yet; got {type(p).__name__} of a lazy module; expected parameters with shapes; "
                                 "hint: call the module with a first batch before you make the optimizer")

    def _check_betas(self, betas):
        self._check_pair("betas", betas)
        for i, b in enumerate(betas):
            if not 0 <= b < 1:
                raise ValueError(f"{type(self).__name__}: beta{i + 1} is out of range; got {b}; expected 0 <= beta < 1")

    def _check_pair(self, key, pair):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(map(_is_number, pair)):
            raise TypeError(f"{type(self).__name__}: {key} are not two numbers; got {pair!r}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters, so that .grad is None. set_to_none=False fills them with zeros instead."""
        for g in self.param_groups:
            _C._drop_gradients(g["params"], set_to_none)

    if TYPE_CHECKING:

        @overload
        def step(self, closure: None = None) -> None: ...

        @overload
        def step(self, closure: Callable[[], LossT]) -> LossT: ...

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters. If given, closure() is called first to compute the loss, which is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for g in self.param_groups:
            if any(p.is_complex() for p in g["params"]):
                self._update_as_pairs(g)
            else:
                self._update(g)
        _C._end_step()
        return loss

    def _update_as_pairs(self, group):
        """_update() where parameters are complex: as in PyTorch, each is a real tensor of pairs, and its state is complex again afterwards."""
        if self._needs_whole:
            raise TypeError(f"{type(self).__name__}.step: not available for complex parameters; got one of {next(p.dtype.name for p in group['params'] if p.is_complex())}; expected real ones; hint: Adam or SGD")
        stand_ins, params = {}, []
        with no_grad():
            for p in group["params"]:
                if p.is_complex() and p.grad is not None:
                    pairs = _C.view_as_real(p.detach()).requires_grad_()
                    pairs.grad = _C.view_as_real(p.grad.detach())
                    if p in self.state:
                        self.state[pairs] = {k: _pairs_of(v) for k, v in self.state[p].items()}
                    stand_ins[p] = pairs
                    params.append(pairs)
                else:
                    params.append(p)
            try:
                self._update({**group, "params": params})
            finally:
                for p, pairs in stand_ins.items():
                    entries = self.state.pop(pairs, {})
                    self.state[p].update({k: _C.view_as_complex(v) if isinstance(v, Tensor) and v.shape == pairs.shape else v for k, v in entries.items()})

    def _update(self, group):
        with no_grad():
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, **self._begin(p, group))
                state["step"] = int(state.get("step", 0)) + 1
                grad = grad.detach()
                self._update_one(p, -grad if group.get("maximize") else grad, state, group)

    def _begin(self, p, group):
        return {}

    def _update_one(self, p, grad, state, group):
        raise NotImplementedError(f"{type(self).__name__}: step is not implemented")

    # ---- hooks

    def register_step_pre_hook(self, hook: PreHook) -> _Handle:
        """Calls hook(optimizer, args, kwargs) before each step; it may return new (args, kwargs). Returns a handle with remove()."""
        return _Handle(self._hooks["step_pre"], hook)

    def register_step_post_hook(self, hook: PostHook) -> _Handle:
        """Calls hook(optimizer, args, kwargs) after each step. Returns a handle with remove()."""
        return _Handle(self._hooks["step_post"], hook)

    def register_state_dict_pre_hook(self, hook: Callable[[Optimizer], None], prepend: bool = False) -> _Handle:
        """Calls hook(optimizer) before state_dict() reads the state. Returns a handle with remove()."""
        return _Handle(self._hooks["save_pre"], hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[[Optimizer, State], State | None], prepend: bool = False) -> _Handle:
        """Calls hook(optimizer, state_dict) at the end of state_dict(); what it returns, unless None, is the result. Returns a handle with remove()."""
        return _Handle(self._hooks["save_post"], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[[Optimizer, State], State | None], prepend: bool = False) -> _Handle:
        """Calls hook(optimizer, state_dict) before load_state_dict(); what it returns, unless None, is loaded. Returns a handle with remove()."""
        return _Handle(self._hooks["load_pre"], hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[[Optimizer], None], prepend: bool = False) -> _Handle:
        """Calls hook(optimizer) after each load_state_dict(). prepend: before the hooks that are there. Returns a handle, whose remove() ends it."""
        return _Handle(self._hooks["load_post"], hook, prepend)

    # ---- state

    def state_dict(self) -> State:
        """{'state': {index: {...}}, 'param_groups': [...]}, in which parameters are identified by numbers."""
        for hook in self._hooks["save_pre"].values():
            hook(self)
        index = {}
        groups = []
        for g in self.param_groups:
            for p in g["params"]:
                index[id(p)] = len(index)
            groups.append({**{k: v for k, v in g.items() if k != "params"}, "params": [index[id(p)] for p in g["params"]]})
        state = {index[id(p)]: self._saved(p) for g in self.param_groups for p in g["params"] if p in self.state}
        result = {"state": state, "param_groups": groups}
        for hook in self._hooks["save_post"].values():
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def _check_whole(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = getattr(p, "_sharding", None)
                if s is not None and any(g.size() > 1 for g in s.groups):
                    raise NotImplementedError(f"{type(self).__name__}.step: the update of a parameter depends on all of it; got a part of a parameter of shape {s.global_shape}; expected whole parameters; hint: DistributedDataParallel, or another optimizer")

    def _saved(self, p):
        """The state of a parameter. If the parameter is a part of a larger one, its tensors say so too."""
        if getattr(p, "_sharding", None) is None:
            return dict(self.state[p])
        from ..distributed._sharding import like

        return {k: like(p, v) for k, v in self.state[p].items()}

    def _match(self, state_dict):
        """The parameter for each number of a state dict. ValueError if they do not fit."""
        if not isinstance(state_dict, dict) or "state" not in state_dict or "param_groups" not in state_dict:
            raise ValueError("load_state_dict: not an optimizer's state; expected a dict with 'state' and 'param_groups'")
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(f"load_state_dict: the number of groups differs; got {len(groups)}; expected {len(self.param_groups)}")
        params = {}
        for i, (saved, mine) in enumerate(zip(groups, self.param_groups)):
            if len(saved["params"]) != len(mine["params"]):
                raise ValueError(f"load_state_dict: group {i} has {len(saved['params'])} parameters; expected {len(mine['params'])}")
            params.update(zip(saved["params"], mine["params"]))
        for key, entry in state_dict["state"].items():
            p = params.get(int(key))
            if p is None:
                raise ValueError(f"load_state_dict: there is no parameter {key}; expected one of {len(params)}")
            for name, v in entry.items():
                if isinstance(v, Tensor) and v.ndim > 0 and v.shape != p.shape and name not in self._other_shapes:
                    raise ValueError(f"load_state_dict: '{name}' of parameter {key} has shape {v.shape}; expected {p.shape}")
        return params

    def _loaded(self, name, value, p):
        """One entry of a loaded state: a copy on the parameter's device, in its dtype."""
        if isinstance(value, (list, tuple)):
            return type(value)(self._loaded(name, v, p) for v in value)
        if not isinstance(value, Tensor):
            return value
        if name in self._numbers:
            return int(value.item()) if name == "step" else value.item()
        return value.detach().to(device=p.device, dtype=p.dtype if p.is_floating_point() else value.dtype).clone()

    def load_state_dict(self, state_dict: State) -> None:
        """Restores a state dict. State tensors get the parameter's device and dtype. ValueError if groups or shapes differ; then nothing is changed."""
        for hook in self._hooks["load_pre"].values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        params = self._match(state_dict)
        self.state = collections.defaultdict(dict, {
            params[int(key)]: {k: self._loaded(k, v, params[int(key)]) for k, v in entry.items()}
            for key, entry in state_dict["state"].items()
        })
        for saved, mine in zip(state_dict["param_groups"], self.param_groups):
            mine.update({k: v for k, v in saved.items() if k not in ("params", "param_names")})
        for hook in self._hooks["load_post"].values():
            hook(self)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, g in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {v}" for k, v in sorted(g.items()) if k != "params"]
        return "\n".join(lines) + "\n)"


Optimizer.step = _with_hooks(Optimizer.step)
