"""Helpers that distributions of programs use, as PyTorch's torch.distributions.utils."""
import functools

from .. import _C
from .._grad_mode import enable_grad
from ._math import clamp_probs as clamp_probs
from .distribution import broadcast_all as broadcast_all


def logits_to_probs(logits, is_binary=False):
    """Probabilities of logits: sigmoid where each is a number of its own, softmax along the last dim otherwise."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs, is_binary=False):
    """Logits of probabilities, which are kept away from 0 and 1 by the dtype's eps: log(p / (1 - p)) for binary ones, log(p) otherwise."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


def tril_matrix_to_vec(mat, diag=0):
    """The numbers of matrices [.., D, D] on and below a diagonal, in order of rows, as vectors. diag: 0 for the main diagonal, negative below it."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: no such diagonal; got diag {diag}; expected {-n} to {n - 1}")
    places = [i * n + j for i in range(n) for j in range(n) if j <= i + diag]
    return mat.reshape(*mat.shape[:-2], n * n).index_select(-1, _C.tensor(places, dtype=_C.int64, device=mat.device))


def vec_to_tril_matrix(vec, diag=0):
    """Vectors as matrices [.., D, D] with their numbers on and below a diagonal, in order of rows, and 0 elsewhere: the inverse of tril_matrix_to_vec."""
    size, n = vec.shape[-1], 0
    while sum(max(0, min(n, i + diag + 1)) for i in range(n)) < size:
        n += 1
    places = [(i, j) for i in range(n) for j in range(n) if j <= i + diag]
    if len(places) != size:
        raise ValueError(f"vec_to_tril_matrix: no square matrix has so many numbers there; got a last dim of {size} and diag {diag}")
    n = max(n, -diag)
    at = [size] * (n * n)
    for k, (i, j) in enumerate(places):
        at[i * n + j] = k
    return _C.pad(vec, (0, 1)).index_select(-1, _C.tensor(at, dtype=_C.int64, device=vec.device)).reshape(*vec.shape[:-1], n, n)


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

