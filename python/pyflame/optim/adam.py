"""Adam and its relatives with two moments: AdamW, Adamax, NAdam, RAdam."""
from __future__ import annotations

import math

from .. import _C
from .optimizer import Optimizer

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from ._annotations import Pair, Rate, State
    from .optimizer import ParamsT


class Adam(Optimizer):
    """Adam: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr m' / (sqrt(v') + eps), with m' = m / (1 - b1^t), v' = v / (1 - b2^t).
    params: tensors, or dicts of groups with values of their own; betas: (b1, b2). maximize: the update goes up.

    weight_decay is added to the gradient; with decoupled_weight_decay, p *= 1 - lr weight_decay instead, as AdamW does. With amsgrad, v' is
    made of the largest v so far. Kingma and Ba, "Adam: a method for stochastic optimization", 2014; Reddi et al., "On the convergence
    of Adam and beyond", 2018 (amsgrad). foreach, capturable and fused are accepted and change nothing: every step is fused and reads
    nothing back.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps or weight_decay, and a beta outside of
    [0, 1); TypeError for params that are one tensor or not all tensors, and for an option that is no number, or betas that are not two numbers;
    NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False) -> None:
        betas = tuple(betas) if isinstance(betas, list) else betas
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
                                      capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=decoupled_weight_decay))

    def _update(self, group):
        if group["amsgrad"]:
            return super()._update(group)
        beta1, beta2 = group["betas"]
        _C._adam_group(group["params"], self.state, float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"],
                       group["decoupled_weight_decay"], group["maximize"])

    def _begin(self, p, group):
        return {name: _C.zeros_like(p) for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}

    def _update_one(self, p, grad, state, group):
        """With amsgrad."""
        t, (beta1, beta2), lr = state["step"], group["betas"], float(group["lr"])
        value, grad = decayed(p, grad, lr, group)
        m, v = moments(grad, state, beta1, beta2)
        if "max_exp_avg_sq" not in state:  # amsgrad was switched on later
            state["max_exp_avg_sq"] = _C.zeros_like(p)
        top = _C.maximum(state["max_exp_avg_sq"], v)
        state["max_exp_avg_sq"].copy_(top)
        p.copy_(value - lr / (1 - beta1**t) * m / (top.sqrt() / math.sqrt(1 - beta2**t) + group["eps"]))


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr weight_decay before the update. Loshchilov and Hutter, "Decoupled weight decay regularization", 2017.

    params: tensors, or dicts of groups with values of their own. The other arguments are those of Adam.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps or weight_decay, and a beta outside of
    [0, 1); TypeError for params that are one tensor or not all tensors, and for an option that is no number, or betas that are not two numbers;
    NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 maximize: bool = False, foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                         differentiable=differentiable, fused=fused, decoupled_weight_decay=True)

    def load_state_dict(self, state_dict: State) -> None:
        """Restores a state dict, also one of Adam; the decay stays decoupled."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class SparseAdam(Optimizer):
    """PyTorch's Adam for sparse gradients. There are none here, so it is a name only: NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("SparseAdam: sparse gradients are not available; hint: Adam takes the dense gradients that embeddings have here")


def decayed(p, grad, lr, group):
    """The parameter and the gradient after weight decay: decoupled if the group says so, otherwise added to the gradient."""
    decay = group["weight_decay"]
    if decay == 0:
        return p, grad
    if group.get("decoupled_weight_decay"):
        return p * (1 - lr * decay), grad
    return p, grad + decay * p


def moments(grad, state, beta1, beta2):
    """Updates exp_avg and exp_avg_sq, and returns them."""
    m = state["exp_avg"] * beta1 + grad * (1 - beta1)
    v = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
    state["exp_avg"].copy_(m)
    state["exp_avg_sq"].copy_(v)
    return m, v


class Adamax(Optimizer):
    """Adam with the infinity norm: m = b1 m + (1 - b1) g; u = max(b2 u, |g| + eps); p -= lr / (1 - b1^t) m / u.

    Kingma and Ba, "Adam: a method for stochastic optimization", 2014, section 7. weight_decay is added to the gradient.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. betas: (b1, b2). foreach and capturable are accepted
    for PyTorch's programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps or weight_decay, and a beta outside of
    [0, 1); TypeError for params that are one tensor or not all tensors, and for an option that is no number, or betas that are not two numbers;
    NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 2e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None,
                 *, maximize: bool = False, differentiable: bool = False, capturable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))

    def _begin(self, p, group):
        return {"exp_avg": _C.zeros_like(p), "exp_inf": _C.zeros_like(p)}

    def _update_one(self, p, grad, state, group):
        (beta1, beta2), lr = group["betas"], float(group["lr"])
        _, grad = decayed(p, grad, lr, group)
        m = state["exp_avg"] * beta1 + grad * (1 - beta1)
        u = _C.maximum(state["exp_inf"] * beta2, grad.abs() + group["eps"])
        state["exp_avg"].copy_(m)
        state["exp_inf"].copy_(u)
        p.copy_(p - lr / (1 - beta1 ** state["step"]) * m / u)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum. With mu_t = b1 (1 - 0.96^(t momentum_decay) / 2), M_t = mu_1 ... mu_t, and m, v and v' as in Adam:

    p -= lr ((1 - mu_t) / (1 - M_t) g + mu_(t+1) / (1 - M_(t+1)) m) / (sqrt(v') + eps).

    Dozat, "Incorporating Nesterov momentum into Adam", 2016. weight_decay is added to the gradient, or decoupled as in AdamW.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. betas: (b1, b2). decoupled_weight_decay: p *= 1 - lr
    weight_decay instead. foreach and capturable are accepted for PyTorch's programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps, weight_decay or momentum_decay, and a
    beta outside of [0, 1); TypeError for params that are one tensor or not all tensors, and for an option that is no number, or betas that are not
    two numbers; NotImplementedError for differentiable=True.
    """

    _numbers = ("step", "mu_product")

    def __init__(self, params: ParamsT, lr: Rate = 2e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable))

    def _check(self, group):
        super()._check(group)
        self._check_number(group, "momentum_decay", lambda v: v >= 0, "must not be negative")

    def _begin(self, p, group):
        return {"mu_product": 1.0, "exp_avg": _C.zeros_like(p), "exp_avg_sq": _C.zeros_like(p)}

    def _update_one(self, p, grad, state, group):
        t, (beta1, beta2), lr = state["step"], group["betas"], float(group["lr"])
        mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (t, t + 1))
        product = state["mu_product"] = float(state["mu_product"]) * mu
        value, grad = decayed(p, grad, lr, group)
        m, v = moments(grad, state, beta1, beta2)
        direction = (1 - mu) / (1 - product) * grad + mu_next / (1 - product * mu_next) * m
        p.copy_(value - lr * direction / ((v / (1 - beta2**t)).sqrt() + group["eps"]))


class RAdam(Optimizer):
    """Adam whose adaptive rate begins when its variance is bounded. With r = 2 / (1 - b2) - 1 and r_t = r - 2 t b2^t / (1 - b2^t):

    r_t > 5: p -= lr m' sqrt(1 - b2^t) / (sqrt(v) + eps) sqrt((r_t - 4)(r_t - 2) r / ((r - 4)(r - 2) r_t)); otherwise p -= lr m'.

    Liu et al., "On the variance of the adaptive learning rate and beyond", 2019. weight_decay is added to the gradient, or decoupled as in AdamW.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. betas: (b1, b2). decoupled_weight_decay: p *= 1 - lr
    weight_decay instead. foreach and capturable are accepted for PyTorch's programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps or weight_decay, and a beta outside of
    [0, 1); TypeError for params that are one tensor or not all tensors, and for an option that is no number, or betas that are not two numbers;
    NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                                      decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable))

    def _begin(self, p, group):
        return {"exp_avg": _C.zeros_like(p), "exp_avg_sq": _C.zeros_like(p)}

    def _update_one(self, p, grad, state, group):
        t, (beta1, beta2), lr = state["step"], group["betas"], float(group["lr"])
        value, grad = decayed(p, grad, lr, group)
        m, v = moments(grad, state, beta1, beta2)
        update = m / (1 - beta1**t)
        r, left = 2 / (1 - beta2) - 1, 1 - beta2**t
        rt = r - 2 * t * beta2**t / left
        if rt > 5:
            rectified = math.sqrt((rt - 4) * (rt - 2) * r / ((r - 4) * (r - 2) * rt))
            update = update * (math.sqrt(left) * rectified) / (v.sqrt() + group["eps"])
        p.copy_(value - lr * update)
