"""Helpers that distributions of programs use, as PyTorch's torch.distributions.utils."""
import functools

from .._grad_mode import enable_grad
from ._math import clamp_probs  # noqa: F401
from .distribution import broadcast_all  # noqa: F401


def logits_to_probs(logits, is_binary=False):
    """Probabilities of logits: sigmoid where each is a number of its own, softmax along the last dim otherwise."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs, is_binary=False):
    """Logits of probabilities, which are kept away from 0 and 1 by the dtype's eps: log(p / (1 - p)) for binary ones, log(p) otherwise."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


class lazy_property:  # noqa: N801
    """A property that is computed at its first use, with gradients, and kept."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)

    def __get__(self, instance, obj_type=None):
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value

