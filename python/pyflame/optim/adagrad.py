"""Optimizers that divide by a mean or a sum of squared gradients: Adagrad, Adadelta, RMSprop."""
from __future__ import annotations

from .. import _C
from .adam import decayed
from .optimizer import Optimizer

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Rate
    from .optimizer import ParamsT


class Adagrad(Optimizer):
    """s += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps), where s begins at initial_accumulator_value.

    Duchi et al., "Adaptive subgradient methods for online learning and stochastic optimization", 2011. weight_decay is added to the gradient.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. foreach and fused are accepted for PyTorch's programs
    and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice, is not a leaf or is lazy and has no shape yet, and a negative lr, lr_decay,
    eps, weight_decay or initial_accumulator_value; TypeError for params that are one tensor or not all tensors, and for an option that is no number;
    NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-2, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False, fused: bool | None = None) -> None:
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
                                      foreach=foreach, maximize=maximize, differentiable=differentiable, fused=fused))
        for group in self.param_groups:
            self._check_shapes(group["params"])
            for p in group["params"]:
                self.state[p] = {"step": 0, **self._begin(p, group)}

    def _check(self, group):
        super()._check(group)
        for key in ("lr_decay", "initial_accumulator_value"):
            self._check_number(group, key, lambda v: v >= 0, "must not be negative")

    def _begin(self, p, group):
        first = group["initial_accumulator_value"]
        return {"sum": _C.full_like(p.detach(), complex(first, first) if p.is_complex() else first)}

    def _update_one(self, p, grad, state, group):
        _, grad = decayed(p, grad, 0, group)
        total = state["sum"] + grad * grad
        state["sum"].copy_(total)
        rate = float(group["lr"]) / (1 + (state["step"] - 1) * group["lr_decay"])
        p.copy_(p - rate * grad / (total.sqrt() + group["eps"]))


class Adadelta(Optimizer):
    """v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2; p -= lr d.

    Zeiler, "ADADELTA: an adaptive learning rate method", 2012. weight_decay is added to the gradient.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. foreach and capturable are accepted for PyTorch's
    programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps or weight_decay, and a rho outside of 0
    to 1; TypeError for params that are one tensor or not all tensors, and for an option that is no number; NotImplementedError for
    differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0, foreach: bool | None = None, *,
                 capturable: bool = False, maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable, foreach=foreach,
                                      differentiable=differentiable))

    def _check(self, group):
        super()._check(group)
        self._check_number(group, "rho", lambda v: 0 <= v <= 1, "is out of range 0 to 1")

    def _begin(self, p, group):
        return {"square_avg": _C.zeros_like(p), "acc_delta": _C.zeros_like(p)}

    def _update_one(self, p, grad, state, group):
        rho, eps = group["rho"], group["eps"]
        _, grad = decayed(p, grad, 0, group)
        squares = state["square_avg"] * rho + grad * grad * (1 - rho)
        delta = (state["acc_delta"] + eps).sqrt() / (squares + eps).sqrt() * grad
        state["square_avg"].copy_(squares)
        state["acc_delta"].copy_(state["acc_delta"] * rho + delta * delta * (1 - rho))
        p.copy_(p - float(group["lr"]) * delta)


class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) g^2; with centered also a = alpha a + (1 - alpha) g, and v - a^2 in place of v below;
    d = g / (sqrt(v) + eps); with a momentum b = momentum b + d and p -= lr b, otherwise p -= lr d.

    Hinton, "Neural networks for machine learning", lecture 6, 2012; the centered form is that of Graves, "Generating sequences with recurrent
    neural networks", 2013. weight_decay is added to the gradient.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. foreach and capturable are accepted for PyTorch's
    programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, and a negative lr, alpha, eps, weight_decay or momentum;
    TypeError for params that are one tensor or not all tensors, and for an option that is no number; NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
                 centered: bool = False, capturable: bool = False, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
                                      capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable))

    def _check(self, group):
        super()._check(group)
        self._check_number(group, "alpha", lambda v: v >= 0, "must not be negative")

    def _begin(self, p, group):
        names = ["square_avg", *["momentum_buffer"] * (group["momentum"] > 0), *["grad_avg"] * bool(group["centered"])]
        return {name: _C.zeros_like(p) for name in names}

    def _update_one(self, p, grad, state, group):
        alpha, lr = group["alpha"], float(group["lr"])
        _, grad = decayed(p, grad, lr, group)
        squares = state["square_avg"] * alpha + grad * grad * (1 - alpha)
        state["square_avg"].copy_(squares)
        if group["centered"]:
            mean = state["grad_avg"] * alpha + grad * (1 - alpha)
            state["grad_avg"].copy_(mean)
            squares = squares - mean * mean
        delta = grad / (squares.sqrt() + group["eps"])
        if group["momentum"] > 0:
            delta = state["momentum_buffer"] * group["momentum"] + delta
            state["momentum_buffer"].copy_(delta)
        p.copy_(p - lr * delta)
