"""Optimizers that look at a parameter as a matrix: Adafactor keeps sums over its rows and columns, Muon makes its update orthogonal."""
from __future__ import annotations

import math

from .. import _C
from .._elementwise import lerp
from .optimizer import Optimizer, _is_number

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from ._annotations import Rate
    from .optimizer import ParamsT


class Adafactor(Optimizer):
    """Adam's second moment from the means over rows and columns, so that a matrix of n x m needs n + m numbers of state.

    With b = t^beta2_decay and a parameter of at least two dims: r += b (mean of g^2 over the last dim - r); c += b (mean over the dim before - c);
    v = r c / max(mean of r, eps1); otherwise v += b (g^2 - v). u = g / sqrt(max(v, eps1^2)); p *= 1 - lr weight_decay;
    p -= a u / max(1, rms(u) / d), a = min(lr, 1 / sqrt(t)) max(eps2, rms(p)). eps = (eps1, eps2); eps1 None: the dtype's epsilon.

    Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018. The root mean squares stay on the device.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. foreach is accepted for PyTorch's programs and changes
    nothing.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, weight_decay or eps, a positive beta2_decay,
    and a d below 1; TypeError for params that are one tensor or not all tensors, and for an option that is no number, or an eps that is no pair.
    step() raises TypeError for complex parameters, and NotImplementedError for parts of parameters (fully_shard).
    """

    _other_shapes = ("row_var", "col_var")

    _needs_whole = True

    def __init__(self, params: ParamsT, lr: Rate = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach, maximize=maximize))

    def _check(self, group):
        super()._check({k: v for k, v in group.items() if k != "eps"})
        self._check_number(group, "beta2_decay", lambda v: v <= 0, "must not be positive")
        eps = group["eps"]
        if not isinstance(eps, (tuple, list)) or len(eps) != 2 or not _is_number(eps[1]) or not (eps[0] is None or _is_number(eps[0])):
            raise TypeError(f"Adafactor: eps is not a pair; got {eps!r}; expected a number or None, and a number")
        eps1, eps2 = eps
        if (eps1 is not None and eps1 < 0) or eps2 < 0:
            raise ValueError(f"Adafactor: eps must not be negative; got {group['eps']}")
        self._check_number(group, "d", lambda v: v >= 1, "must be at least 1")

    def _begin(self, p, group):
        if p.ndim < 2:
            return {"variance": _C.zeros_like(p)}
        return {"row_var": p.new_zeros((*p.shape[:-1], 1)), "col_var": p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))}

    def _update_one(self, p, grad, state, group):
        t, lr, (eps1, eps2) = state["step"], float(group["lr"]), group["eps"]
        eps1 = _EPSILON[p.dtype] if eps1 is None else eps1
        share = t ** group["beta2_decay"]
        variance = self._variance(grad, state, share, eps1)
        update = grad * variance.clamp(min=eps1 * eps1).rsqrt()
        count = math.sqrt(p.numel())
        rate = min(lr, 1 / math.sqrt(t)) * _C.clamp(_norm(p) / count, min=eps2)
        factor = rate / _C.clamp(_norm(update) / (count * group["d"]), min=1.0)
        value = p if group["weight_decay"] == 0 else p * (1 - lr * group["weight_decay"])
        p.copy_(value - update * factor)

    def _variance(self, grad, state, share, eps1):
        squares = grad * grad
        names = ("variance",) if "variance" in state else ("row_var", "col_var")
        news = (squares,) if len(names) == 1 else (squares.mean(-1, keepdim=True), squares.mean(-2, keepdim=True))
        means = [state[name] + share * (new - state[name]) for name, new in zip(names, news)]
        for name, mean in zip(names, means):
            state[name].copy_(mean)
        if len(means) == 1:
            return means[0]
        rows, columns = means
        return rows * columns / rows.mean(-2, keepdim=True).clamp(min=eps1)


_EPSILON = {_C.float16: 2.0**-10, _C.bfloat16: 2.0**-7, _C.float32: 2.0**-23, _C.float64: 2.0**-52}


def _norm(x):
    return (x * x).sum().sqrt()


class Muon(Optimizer):
    """Momentum whose update is made orthogonal, for the matrices of a network's hidden layers; other parameters need another optimizer.

    b += (1 - momentum) (g - b); u = g + momentum (b - g) with nesterov, otherwise b; o = orthogonal(u);
    p = p (1 - lr weight_decay) - lr s o. orthogonal(u) divides u by max(norm(u), eps), then repeats ns_steps times, in bfloat16, Newton-Schulz'
    iteration x = a x + (b y + c y y) x, y = x x', with (a, b, c) = ns_coefficients. For an n x m matrix, s = sqrt(max(1, n / m)) (adjust_lr_fn
    None or 'original'), or s = 0.2 sqrt(max(n, m)) ('match_rms_adamw').

    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon is scalable for LLM training", 2025.

    params: matrices, or dicts of groups with values of their own.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a parameter that is not 2-d or has no shape yet, a negative
    lr, weight_decay, momentum or eps, coefficients that are not three, steps outside of 1 to 99, and an unknown adjust_lr_fn; TypeError for params that
    are one tensor or not all tensors, and for an option that is no number.
    step() raises TypeError for complex parameters, and NotImplementedError for parts of parameters (fully_shard).
    """

    _needs_whole = True

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: Literal["original", "match_rms_adamw"] | None = None) -> None:
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Muon: unknown adjust_lr_fn; got {adjust_lr_fn!r}; expected None, 'original' or 'match_rms_adamw'")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, eps=eps,
                                      ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))

    def _check(self, group):
        super()._check(group)
        self._check_number(group, "ns_steps", lambda v: True, "")
        coefficients = group["ns_coefficients"]
        if not isinstance(coefficients, (tuple, list)) or not all(map(_is_number, coefficients)):
            raise TypeError(f"Muon: ns_coefficients are not numbers; got {coefficients!r}; expected a tuple of three numbers")
        if len(coefficients) != 3 or not 0 < group["ns_steps"] < 100:
            raise ValueError(f"Muon: got ns_coefficients {group['ns_coefficients']} and ns_steps {group['ns_steps']}; expected three numbers and 1 to 99 steps")
        self._check_shapes(group["params"])
        for p in group["params"]:
            if p.ndim != 2:
                raise ValueError(f"Muon: a parameter is not a matrix; got shape {p.shape}; expected 2 dims; hint: give the others to AdamW")

    def _begin(self, p, group):
        return {"momentum_buffer": _C.zeros_like(p)}

    def _update_one(self, p, grad, state, group):
        lr, momentum = float(group["lr"]), group["momentum"]
        buffer = lerp(state["momentum_buffer"], grad, 1 - momentum)
        state["momentum_buffer"].copy_(buffer)
        update = lerp(grad, buffer, momentum) if group["nesterov"] else buffer
        n, m = p.shape
        scale = 0.2 * math.sqrt(max(n, m)) if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1, n / m))
        o = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p.copy_(p * (1 - lr * group["weight_decay"]) - lr * scale * o.to(p.dtype))


def _orthogonal(update, coefficients, steps, eps):
    a, b, c = coefficients
    x = update.to(_C.bfloat16)
    tall = x.shape[0] > x.shape[1]
    x = x.t() if tall else x
    x = x / _norm(x.float()).to(x.dtype).clamp(min=eps)  # one rounding of the norm, as in PyTorch's norm()
    for _ in range(steps):
        y = (x @ x.t()).float()  # one rounding for each product and sum, as in PyTorch's addmm
        y = (b * y + c * (y @ y)).to(_C.bfloat16).float()
        x = (a * x.float() + y @ x.float()).to(_C.bfloat16)
    return x.t() if tall else x
