"""Averaged stochastic gradient descent, and resilient backpropagation."""
from __future__ import annotations

from .. import _C
from .adam import decayed
from .optimizer import Optimizer

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Pair, Rate
    from .optimizer import ParamsT


class ASGD(Optimizer):
    """p = p (1 - lambd eta) - eta g, and the average ax += mu (p - ax), with eta = lr / (1 + lambd lr t)^alpha and mu = 1 / max(1, t - t0) of
    the step before (at first, eta = lr and mu = 1). state[p]['ax'] is the average.

    Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992. weight_decay is added to the gradient.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. foreach and capturable are accepted for PyTorch's
    programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, and a negative lr or weight_decay; TypeError for params
    that are one tensor or not all tensors, and for an option that is no number; NotImplementedError for differentiable=True.
    """

    _numbers = ("step", "eta", "mu")

    def __init__(self, params: ParamsT, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False, capturable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))

    def _check(self, group):
        super()._check(group)
        for key in ("lambd", "alpha", "t0"):
            self._check_number(group, key, lambda v: True, "")

    def _begin(self, p, group):
        return {"eta": float(group["lr"]), "mu": 1.0, "ax": _C.zeros_like(p)}

    def _update_one(self, p, grad, state, group):
        lr, lambd, t = float(group["lr"]), group["lambd"], state["step"]
        eta, mu = float(state["eta"]), float(state["mu"])
        _, grad = decayed(p, grad, lr, group)
        new = p * (1 - lambd * eta) - eta * grad
        state["ax"].copy_(new if mu == 1 else state["ax"] + mu * (new - state["ax"]))
        p.copy_(new)
        state["eta"] = lr / (1 + lambd * lr * t) ** group["alpha"]
        state["mu"] = 1 / max(1, t - group["t0"])


class Rprop(Optimizer):
    """Resilient backpropagation, for full batches. Each element has a step size, lr at first. It is multiplied by etas[1] where the gradient's
    sign is that of the step before, and by etas[0] where the sign changed, within step_sizes; where it changed, g = 0 in this step.
    Then p -= sign(g) step_size.

    Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning: the RPROP algorithm", 1993.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. foreach and capturable are accepted for PyTorch's
    programs and change nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, and etas that are not 0 < etas[0] < 1 <
    etas[1]; TypeError for params that are one tensor or not all tensors, and for an lr that is no number, or etas or step_sizes that are not two
    numbers; NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-2, etas: Pair = (0.5, 1.2), step_sizes: Pair = (1e-6, 50), *, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize, differentiable=differentiable,
                                      capturable=capturable))

    def _check(self, group):
        super()._check(group)
        for key in ("etas", "step_sizes"):
            self._check_pair(key, group[key])
        if not 0 < group["etas"][0] < 1 < group["etas"][1]:
            raise ValueError(f"Rprop: etas are out of range; got {group['etas']}; expected 0 < etas[0] < 1 < etas[1]")

    def _begin(self, p, group):
        return {"prev": _C.zeros_like(p), "step_size": _C.full_like(p.detach(), float(group["lr"]))}

    def _update_one(self, p, grad, state, group):
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        agreement = grad * state["prev"]
        size = state["step_size"]
        size = _C.where(agreement > 0, size * grow, _C.where(agreement < 0, size * shrink, size)).clamp(least, most)
        kept = grad.masked_fill(agreement < 0, 0)
        state["step_size"].copy_(size)
        state["prev"].copy_(kept)
        p.copy_(p - kept.sign() * size)
