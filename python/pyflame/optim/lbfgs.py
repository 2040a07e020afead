"""The quasi-Newton method with limited memory, and the line search of Wolfe's strong conditions."""
from __future__ import annotations

import collections
import math

from .. import _C
from .._grad_mode import enable_grad, no_grad
from .optimizer import Optimizer, _pairs_of

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from ._annotations import LossT, Rate
    from .optimizer import ParamsT

_Point = collections.namedtuple("_Point", "t loss grad slope")  # on the line x + t d: the step, and loss, gradient, derivative there

_TENSORS = ("d", "prev_flat_grad", "old_dirs", "old_stps", "ro", "H_diag", "al")


class LBFGS(Optimizer):
    """Moves along d = -H g, where H approximates the inverse Hessian by the last history_size changes y of the gradient and s of the parameters:

    H begins as (s'y / y'y) I, and each pair adds (I - s y' / s'y) H (I - y s' / s'y) + s s' / s'y.

    step(closure) makes up to max_iter such moves; closure() clears the gradients, computes the loss, calls backward() and returns the loss. The
    step's length is lr, or, with line_search_fn='strong_wolfe', one that meets Wolfe's strong conditions (c1 = 1e-4, c2 = 0.9). It ends when
    the largest gradient is at most tolerance_grad, when the change of parameters or loss is below tolerance_change, or after max_eval calls of
    closure (default: 1.25 max_iter). These tests read a few numbers from the device for each move. Only one parameter group is allowed.

    params: tensors, or a list of one dict, the group. maximize: the loss is made larger.

    Nocedal and Wright, "Numerical optimization", 2006: algorithm 7.4 (direction), 3.5 and 3.6 (line search), equation 3.59 (interpolation).

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a second group, a negative lr, and an unknown
    line_search_fn; TypeError for params that are one tensor or not all tensors, and for an lr that is no number.
    step() raises TypeError where closure is no function or returns no number, and NotImplementedError for parts of parameters (fully_shard).
    """

    _numbers = ("n_iter", "func_evals", "t", "prev_loss")
    _other_shapes = _TENSORS

    _needs_whole = True

    def __init__(self, params: ParamsT, lr: Rate = 1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: Literal["strong_wolfe"] | None = None, *,
                 maximize: bool = False) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: unknown line_search_fn; got {line_search_fn!r}; expected None or 'strong_wolfe'")
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                                      history_size=history_size, line_search_fn=line_search_fn, maximize=maximize))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The constructor calls it for its group of parameters. ValueError for a second group, because all parameters are one vector."""
        if self.param_groups:
            raise ValueError("LBFGS: got a second group of parameters; expected one")
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], LossT]) -> LossT:
        """Up to max_iter moves. Returns the loss before the first of them. TypeError where closure is no function, or what it returns is no number."""
        if not callable(closure):
            raise TypeError(f"LBFGS.step: closure is not a function; got {type(closure).__name__}; expected a function that computes the loss, calls backward() and returns the loss")
        with no_grad():
            return self._minimize(closure)

    def _minimize(self, closure):
        group, sign = self.param_groups[0], -1.0 if self.param_groups[0]["maximize"] else 1.0
        params, lr = group["params"], float(group["lr"])
        state = self.state[params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate():
            with enable_grad():
                loss = closure()
            state["func_evals"] += 1
            return loss, sign * float(loss), _flat_gradient(params, sign)

        before = state["func_evals"]
        first, loss, grad = evaluate()
        if _largest(grad) <= group["tolerance_grad"]:
            return first
        for moves in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            _direction(state, grad, group["history_size"])
            d = state["d"]
            state["prev_flat_grad"], state["prev_loss"] = grad, loss
            t = min(1.0, 1.0 / grad.abs().sum().item()) * lr if state["n_iter"] == 1 else lr
            slope = grad.dot(d).item()
            state["t"] = t
            if slope > -group["tolerance_change"]:
                break
            if group["line_search_fn"]:
                left = group["max_eval"] - (state["func_evals"] - before)
                t, loss, grad = self._search(params, evaluate, t, d, _Point(0.0, loss, grad, slope), left)
                state["t"] = t
            else:
                _move(params, d, t)
                if moves < group["max_iter"]:
                    _, loss, grad = evaluate()
            evaluations = state["func_evals"] - before
            if evaluations >= group["max_eval"] or _largest(grad) <= group["tolerance_grad"]:
                break
            if _largest(d) * abs(t) <= group["tolerance_change"] or abs(loss - state["prev_loss"]) < group["tolerance_change"]:
                break
        return first

    def _search(self, params, evaluate, t, d, start, most):
        saved = [p.clone() for p in params]

        def at(t):
            _move(params, d, t)
            _, loss, grad = evaluate()
            for p, x in zip(params, saved):
                p.copy_(x)
            return _Point(t, loss, grad, grad.dot(d).item())

        best = _strong_wolfe(at, t, start, _largest(d), most)
        _move(params, d, best.t)
        return best.t, best.loss, best.grad


def _flat_gradient(params, sign):
    parts = [_pairs_of(_C.zeros_like(p) if p.grad is None else p.grad.detach()).reshape(-1) for p in params]
    return sign * _C.cat(parts)


def _largest(x):
    return x.abs().amax().item()


def _move(params, d, t):
    at = 0
    for p in params:
        p = _pairs_of(p)
        p.add_(t * d.narrow(0, at, p.numel()).view(p.shape))
        at += p.numel()


def _direction(state, grad, history_size):
    """Adds the last move to the history, and sets state['d']. The history's products stay on the device."""
    if state["n_iter"] == 1:
        state.update(d=-grad, old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return
    ys, ss, rs = state["old_dirs"], state["old_stps"], state["ro"]
    y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
    product = y.dot(s)
    if product.item() > 1e-10:
        if len(ys) == history_size:
            for history in (ys, ss, rs):
                history.pop(0)
        ys.append(y), ss.append(s), rs.append(1.0 / product)
        state["H_diag"] = product / y.dot(y)
    q, shares = -grad, []
    for y, s, r in zip(reversed(ys), reversed(ss), reversed(rs)):
        shares.append(s.dot(q) * r)
        q = q - shares[-1] * y
    q = q * state["H_diag"]
    for y, s, r, share in zip(ys, ss, rs, reversed(shares)):
        q = q + s * (share - y.dot(q) * r)
    state["d"] = q


def _cubic_minimum(a, b, bounds=None):
    """Where the cubic through two points with their derivatives is least, within the bounds."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    a, b = (a, b) if a.t <= b.t else (b, a)
    bottom = b.slope - a.slope + 2 * d2
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / bottom) if bottom else math.nan
    return min(max(t, low), high) if t == t else (low + high) / 2


def _strong_wolfe(at, t, start, size, most, c1=1e-4, c2=0.9, tolerance=1e-9):
    """A point that meets the strong Wolfe conditions, or the best one after 1 + `most` evaluations. size: the largest element of the direction."""

    def too_high(p):
        return p.loss > start.loss + c1 * p.t * start.slope

    def flat(p):
        return abs(p.slope) <= -c2 * start.slope

    before, here, count = start, at(t), 0
    while True:  # steps grow until an interval has a good point inside
        if count == most:
            return min(start, here, key=lambda p: p.loss)
        if too_high(here) or (count > 1 and here.loss >= before.loss):
            break
        if flat(here):
            return here
        if here.slope >= 0:
            break
        bounds = here.t + 0.01 * (here.t - before.t), here.t * 10
        before, here, count = here, at(_cubic_minimum(before, here, bounds)), count + 1
    return _zoom(at, before, here, count, too_high, flat, size, tolerance, most)


def _zoom(at, a, b, count, too_high, flat, size, tolerance, most):
    """Shrinks the interval between two points; best is its end with the smaller loss."""
    best, other = (a, b) if a.loss <= b.loss else (b, a)
    near_an_end = False
    while count < most and abs(other.t - best.t) * size >= tolerance:
        low, high = min(best.t, other.t), max(best.t, other.t)
        t, margin = _cubic_minimum(best, other), 0.1 * (high - low)
        if min(high - t, t - low) >= margin:
            near_an_end = False
        elif near_an_end or t >= high or t <= low:
            t = high - margin if abs(t - high) < abs(t - low) else low + margin
            near_an_end = False
        else:
            near_an_end = True
        here, count = at(t), count + 1
        if too_high(here) or here.loss >= best.loss:
            other = here
            continue
        if flat(here):
            return here
        if here.slope * (other.t - best.t) >= 0:
            other = best
        best = here
    return best
