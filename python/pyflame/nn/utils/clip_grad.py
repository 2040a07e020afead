"""Gradient clipping."""
from __future__ import annotations

import math

from ... import _C
from ..._C import Tensor
from ..._deprecation import deprecated
from ..._grad_mode import no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._annotations import Tensors


def _listed(tensors, method):
    """A tensor or several, as a list; of each DTensor the part that this method of it gives."""
    tensors = [tensors] if isinstance(tensors, Tensor) or hasattr(tensors, method) else list(tensors)
    return [getattr(t, method)("clip_grad") if not isinstance(t, Tensor) and hasattr(t, method) else t for t in tensors]


def _with_grads(parameters):
    params = _listed(parameters, "_as_parameter")
    for p in params:
        if not isinstance(p, Tensor):
            raise TypeError(f"clip_grad: not a tensor; got {type(p).__name__}; expected parameters")
    return [p for p in params if p.grad is not None]


def get_total_norm(tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The p-norm of all tensors together, as if they were one vector; a 0-d tensor. norm_type: p, also inf and -inf.

    DTensors and parts of larger tensors (pf.distributed.fsdp, tensor parallel layers) count as the whole tensors: a collective, which all their ranks call.

    error_if_nonfinite: RuntimeError where the norm is inf or NaN; it is read, so this is a sync point. foreach is accepted for PyTorch's programs and changes nothing.
    """
    tensors = _listed(tensors, "_as_part")
    norm_type = float(norm_type)
    if not tensors:
        return _C.tensor(0.0, device="cpu")
    if _are_parts(tensors):
        total = _norm(_norms_of_wholes(tensors, norm_type), norm_type).to(dtype=_C.float32)
    elif norm_type == 2 and all(t.dtype == _C.float32 for t in tensors):
        total = _C.total_norm(tensors)
    else:
        norms = [_norm(t, norm_type).to(tensors[0].device) for t in tensors]
        total = _norm(_C.stack(norms), norm_type)
    if error_if_nonfinite and not bool(_C.isfinite(total)):
        raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {total.item()}; expected a finite number")
    return total


def _are_parts(tensors):
    return any(getattr(t, "_sharding", None) is not None for t in tensors)


def _norms_of_wholes(tensors, p):
    """The norms of tensors, some of which are parts of larger ones, as float64 on the device of the first: sums, maxima or minima over the groups."""
    from ... import distributed

    op = {math.inf: distributed.ReduceOp.MAX, -math.inf: distributed.ReduceOp.MIN}.get(p, distributed.ReduceOp.SUM)
    device, by = tensors[0].device, {}
    for i, t in enumerate(tensors):
        s = getattr(t, "_sharding", None)
        groups = [g for g in s.groups if g.size() > 1] if s is not None else []
        by.setdefault(tuple(id(g) for g in groups), (groups, []))[1].append(i)
    found = [None] * len(tensors)
    for groups, members in by.values():
        terms = _C.stack([_term(tensors[i], p).to(device) for i in members])
        for g in groups:
            distributed.all_reduce(terms, op=op, group=g)
        for i, term in zip(members, terms):
            found[i] = term if p in (0, math.inf, -math.inf) else _C.pow(term, 1 / p)
    return _C.stack(found)


def _term(t, p):
    """What a part contributes to the norm of the whole, before the root."""
    t = _C.abs(t.detach()).to(dtype=_C.float64)
    if p == math.inf:
        return t.max() if t.numel() else t.sum()
    if p == -math.inf:
        return t.min() if t.numel() else t.sum() + math.inf
    return (t != 0).to(t.dtype).sum() if p == 0 else _C.pow(t, p).sum()


def _norm(t, p):
    t = _C.abs(t.detach())
    if p == math.inf:
        return t.max()
    if p == -math.inf:
        return t.min()
    if p == 0:
        return (t != 0).to(t.dtype).sum()
    return _C.pow(_C.pow(t, p).sum(), 1 / p)


def clip_grads_with_norm_(parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scales the gradients in place by max_norm / (total_norm + 1e-6), where that is below 1.

    parameters: a tensor or several; those without a gradient are left out. total_norm: a 0-d tensor, such as get_total_norm gives. foreach is accepted for PyTorch's programs
    and changes nothing.

    max_norm: a number. Raises TypeError for what is no tensor among parameters.
    """
    with no_grad():
        factor = _C.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for p in _with_grads(parameters):
            p.grad.mul_(factor.to(device=p.grad.device, dtype=p.grad.dtype))


def clip_grad_norm_(parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """Scales the gradients in place so that their joint p-norm is at most max_norm; norm_type: p, also inf. Returns the norm before, a 0-d tensor.

    parameters: a tensor or several; those without a gradient do not count. error_if_nonfinite: RuntimeError where the norm is inf or NaN; it is read, so this is a sync
    point. Without it, gradients with such a norm become 0 or NaN. foreach is accepted for PyTorch's programs and changes nothing.
    """
    try:
        max_norm = float(max_norm)
    except (TypeError, ValueError):
        raise TypeError(f"clip_grad_norm_: max_norm is not a number; got {max_norm!r}") from None
    if not max_norm >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm is out of range; got {max_norm}; expected a number >= 0")
    params = _with_grads(parameters)
    if not params:
        return _C.tensor(0.0)
    if norm_type != 2 or _are_parts(params) or any(p.grad.dtype == _C.float64 or p.grad.is_complex() for p in params):  # the fused kernel sums real numbers in float32
        total = get_total_norm([p.grad for p in params], norm_type, error_if_nonfinite)
        clip_grads_with_norm_(params, max_norm, total)
        return total
    if error_if_nonfinite:
        total = _C.total_norm([p.grad for p in params])
        if not bool(_C.isfinite(total)):
            raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {total.item()}; expected a finite number")
    return _C.clip_grad_norm_(params, max_norm)


def clip_grad_norm(parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The deprecated name of clip_grad_norm_, with its result and errors; each call warns. The arguments are those of clip_grad_norm_."""
    deprecated("nn.utils.clip_grad_norm", "nn.utils.clip_grad_norm_")
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limits every element of the gradients to [-clip_value, clip_value], in place. parameters: a tensor or several. foreach is accepted for PyTorch's programs and changes nothing.

    Raises ValueError for a negative clip_value; TypeError for one that is no number, and for what is no tensor among parameters.
    """
    if clip_value < 0:
        raise ValueError(f"clip_grad_value_: the limit is negative; got {clip_value}")
    with no_grad():
        for p in _with_grads(parameters):
            p.grad.clamp_(-clip_value, clip_value)
