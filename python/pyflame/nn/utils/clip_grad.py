"""Gradient clipping."""
import math
import warnings

from ... import _C
from ..._C import Tensor
from ..._grad_mode import no_grad


def _with_grads(parameters):
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in params:
        if not isinstance(p, Tensor):
            raise TypeError(f"clip_grad: not a tensor; got {type(p).__name__}; expected parameters")
    return [p for p in params if p.grad is not None]


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The p-norm of all tensors together, as if they were one vector; a 0-d tensor. norm_type: p, also inf and -inf."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return _C.tensor(0.0, device="cpu")
    if norm_type == 2 and all(t.dtype == _C.float32 for t in tensors):
        total = _C.total_norm(tensors)
    else:
        norms = [_norm(t, norm_type).to(tensors[0].device) for t in tensors]
        total = _norm(_C.stack(norms), norm_type)
    if error_if_nonfinite and not bool(_C.isfinite(total)):
        raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {total.item()}; expected a finite number")
    return total


def _norm(t, p):
    t = _C.abs(t.detach())
    if p == math.inf:
        return t.max()
    if p == -math.inf:
        return t.min()
    if p == 0:
        return (t != 0).to(t.dtype).sum()
    return _C.pow(_C.pow(t, p).sum(), 1 / p)


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales the gradients in place by max_norm / (total_norm + 1e-6), where that is below 1."""
    with no_grad():
        factor = _C.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for p in _with_grads(parameters):
            p.grad.mul_(factor.to(device=p.grad.device, dtype=p.grad.dtype))


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales the gradients in place so that their joint p-norm is at most max_norm; norm_type: p, also inf. Returns the norm before, a 0-d tensor."""
    try:
        max_norm = float(max_norm)
    except (TypeError, ValueError):
        raise TypeError(f"clip_grad_norm_: max_norm is not a number; got {max_norm!r}") from None
    if not max_norm >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm is out of range; got {max_norm}; expected a number >= 0")
    params = _with_grads(parameters)
    if not params:
        return _C.tensor(0.0)
    if norm_type != 2:
        total = get_total_norm([p.grad for p in params], norm_type, error_if_nonfinite)
        clip_grads_with_norm_(params, max_norm, total)
        return total
    if error_if_nonfinite:
        total = _C.total_norm([p.grad for p in params])
        if not bool(_C.isfinite(total)):
            raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {total.item()}; expected a finite number")
    return _C.clip_grad_norm_(params, max_norm)


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """The deprecated name of clip_grad_norm_."""
    warnings.warn("nn.utils.clip_grad_norm is deprecated in favour of clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Limits every element of the gradients to [-clip_value, clip_value], in place."""
    if clip_value < 0:
        raise ValueError(f"clip_grad_value_: the limit is negative; got {clip_value}")
    with no_grad():
        for p in _with_grads(parameters):
            p.grad.clamp_(-clip_value, clip_value)
