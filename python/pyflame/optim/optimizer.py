"""Optimizers. A step is one fused update of all tensors of a group (divided if they differ in dtype or step count). It ends the window, so
the recorded work starts to run."""
from .. import _C
from .._C import Tensor


def _is_number(v):
    return hasattr(v, "__float__") and not isinstance(v, (str, bytes))


class Optimizer:
    """Base class: parameter groups, state, state dicts."""

    def __init__(self, params, defaults):
        self.defaults = defaults
        self.state = {}
        self.param_groups = []
        if isinstance(params, Tensor):
            raise TypeError("optimizer: params is a tensor; expected an iterable of tensors or of dicts")
        if not hasattr(params, "__iter__"):
            raise TypeError(f"optimizer: params cannot be iterated; got {type(params).__name__}; expected an iterable of tensors or of dicts")
        params = list(params)
        if not params:
            raise ValueError("optimizer: the list of parameters is empty")
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        for g in groups:
            self.add_param_group(g)

    def add_param_group(self, param_group):
        """Adds {'params': [...], 'lr': ...}; missing entries get the optimizer's defaults."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError("add_param_group: not a group; expected a dict with 'params'")
        group = dict(param_group)
        params = group["params"]
        group["params"] = params = [params] if isinstance(params, Tensor) else list(params)
        params[:] = [p[1] if isinstance(p, tuple) and len(p) == 2 else p for p in params]  # named_parameters() is fine too
        taken = {id(p) for g in self.param_groups for p in g["params"]}
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
        self._check(group)
        self.param_groups.append(group)

    def _check(self, group):
        for key in ("lr", "weight_decay", "eps", "momentum"):
            if key in group and not _is_number(group[key]):
                raise TypeError(f"{type(self).__name__}: {key} is not a number; got {group[key]!r}")
            if key in group and not group[key] >= 0:
                raise ValueError(f"{type(self).__name__}: {key} must not be negative; got {group[key]}")

    def zero_grad(self, set_to_none=True):
        """Removes the gradients of all parameters (or sets them to zero)."""
        for g in self.param_groups:
            _C._drop_gradients(g["params"], set_to_none)

    def step(self, closure=None):
        """Updates all parameters. If given, closure() is called first to compute the loss, which is returned."""
        loss = None
        if closure is not None:
            loss = closure()
        for g in self.param_groups:
            self._update(g)
        _C.cut()
        return loss

    def _update(self, group):
        raise NotImplementedError(f"{type(self).__name__}: _update is not implemented")

    # ---- state

    def state_dict(self):
        """{'state': {index: {...}}, 'param_groups': [...]}, in which parameters are identified by numbers."""
        index = {}
        groups = []
        for g in self.param_groups:
            for p in g["params"]:
                index[id(p)] = len(index)
            groups.append({**{k: v for k, v in g.items() if k != "params"}, "params": [index[id(p)] for p in g["params"]]})
        state = {index[id(p)]: dict(self.state[p]) for g in self.param_groups for p in g["params"] if p in self.state}
        return {"state": state, "param_groups": groups}

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
                if isinstance(v, Tensor) and v.ndim > 0 and v.shape != p.shape:
                    raise ValueError(f"load_state_dict: '{name}' of parameter {key} has shape {v.shape}; expected {p.shape}")
        return params

    def load_state_dict(self, state_dict):
        """Restores a state dict. ValueError if groups or shapes differ; then nothing is changed."""
        params = self._match(state_dict)
        self.state = {
            params[int(key)]: {k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in entry.items()}
            for key, entry in state_dict["state"].items()
        }
        for saved, mine in zip(state_dict["param_groups"], self.param_groups):
            mine.update({k: v for k, v in saved.items() if k != "params"})

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, g in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {v}" for k, v in sorted(g.items()) if k != "params"]
        return "\n".join(lines) + "\n)"


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (Nesterov's if asked), dampening and weight decay:
    g += wd p; b = momentum b + (1 - dampening) g; p -= lr (g + momentum b if nesterov else b)."""

    def __init__(self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, *, maximize=False):
        if not _is_number(momentum) or not _is_number(dampening):
            raise TypeError(f"SGD: momentum and dampening must be numbers; got {momentum!r} and {dampening!r}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"SGD: nesterov needs a momentum and no dampening; got momentum {momentum}, dampening {dampening}")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize))

    def _update(self, group):
        _C._sgd_group(group["params"], self.state, float(group["lr"]), group["momentum"], group["dampening"], group["weight_decay"],
                      group["nesterov"], group["maximize"])


class Adam(Optimizer):
    """Adam: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr m' / (sqrt(v') + eps), with bias-corrected m', v'.
    weight_decay is added to the gradient (AdamW shrinks the parameter instead)."""

    _decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, *, maximize=False, fused=None):
        if amsgrad:
            raise NotImplementedError(f"{type(self).__name__}: amsgrad is not available; expected False")
        super().__init__(params, dict(lr=lr, betas=tuple(betas) if isinstance(betas, (tuple, list)) else betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _check(self, group):
        super()._check(group)
        betas = group["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2 or not all(map(_is_number, betas)):
            raise TypeError(f"{type(self).__name__}: betas are not two numbers; got {betas!r}")
        for i, b in enumerate(betas):
            if not 0 <= b < 1:
                raise ValueError(f"{type(self).__name__}: beta{i + 1} is out of range; got {b}; expected 0 <= beta < 1")

    def _update(self, group):
        beta1, beta2 = group["betas"]
        _C._adam_group(group["params"], self.state, float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], self._decoupled,
                       group["maximize"])


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr weight_decay before the update."""

    _decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False, fused=None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, fused=fused)
