"""Gradient clipping."""
from ... import _C
from ..._C import Tensor
from ..._grad_mode import no_grad


def _with_grads(parameters):
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in params:
        if not isinstance(p, Tensor):
            raise TypeError(f"clip_grad: not a tensor; got {type(p).__name__}; expected parameters")
    return [p for p in params if p.grad is not None]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scales the gradients in place so that their joint 2-norm is at most max_norm. Returns the norm before, a 0-d tensor."""
    if norm_type != 2:
        raise NotImplementedError(f"clip_grad_norm_: only the 2-norm is available; got norm_type {norm_type}")
    try:
        max_norm = float(max_norm)
    except (TypeError, ValueError):
        raise TypeError(f"clip_grad_norm_: max_norm is not a number; got {max_norm!r}") from None
    if not max_norm >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm is out of range; got {max_norm}; expected a number >= 0")
    params = _with_grads(parameters)
    if not params:
        return _C.tensor(0.0)
    if error_if_nonfinite:
        total = _C.total_norm([p.grad for p in params])
        if not bool(_C.isfinite(total)):
            raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {total.item()}; expected a finite number")
    return _C.clip_grad_norm_(params, max_norm)


def clip_grad_value_(parameters, clip_value):
    """Limits every element of the gradients to [-clip_value, clip_value], in place."""
    if clip_value < 0:
        raise ValueError(f"clip_grad_value_: the limit is negative; got {clip_value}")
    with no_grad():
        for p in _with_grads(parameters):
            p.grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters):
    """All parameters as one vector."""
    return _C.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Copies the parts of a vector into the parameters."""
    at = 0
    with no_grad():
        for p in parameters:
            p.copy_(vec[at : at + p.numel()].view(p.shape))
            at += p.numel()
