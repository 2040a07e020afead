"""What the functions of linear algebra share: the error, the check of LAPACK's success, results with names, and `out`."""
import collections
import functools

from .. import _C
from .._C import _linalg


class LinAlgError(RuntimeError):
    """A matrix for which a factorization does not exist, or did not converge."""


def named(name, fields):
    """A type of results: a tuple whose parts have names."""
    return collections.namedtuple(name, fields)


def check(op, info, reason):
    """LinAlgError if LAPACK failed for a matrix of the batch; reason(info) says why. Reading info is a sync point."""
    if info.device.type == "null":
        return
    failure = _linalg.first_failure(info)
    if failure is not None:
        where = f"(Batch element {failure[0]}): " if info.ndim else ""
        raise LinAlgError(f"{op}: {where}{reason(failure[1])}")


def raise_for(op, condition, text):
    if condition:
        raise RuntimeError(f"{op}: {text}")


def into(out, result):
    """Writes a result, or each part of one, to `out` and returns that."""
    if isinstance(out, (tuple, list)):
        for to, part in zip(out, result):
            into(to, part)
        return result if not isinstance(out, tuple) else out
    if out.dtype != result.dtype:
        raise RuntimeError(f"out: another dtype; got {out.dtype}; expected {result.dtype}")
    if tuple(out.shape) != tuple(result.shape):
        raise RuntimeError(f"out: another shape; got {tuple(out.shape)}; expected {tuple(result.shape)}; hint: pass a tensor of this shape")
    return out.copy_(result)


def with_out(function):
    """Adds the argument `out`: the results are written to it."""

    @functools.wraps(function)
    def wrapper(*args, out=None, **kwargs):
        result = function(*args, **kwargs)
        return result if out is None else into(out, result)

    return wrapper


def epsilon(dtype):
    return 2.0**-52 if dtype == _C.float64 else 2.0**-23


def batch(x, dims=2):
    return tuple(x.shape[: x.ndim - dims])


def common_batch(op, a, b):
    """The batch dims to which those of both broadcast."""
    a, b = batch(a), batch(b)
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    raise_for(op, any(m != n and 1 not in (m, n) for m, n in zip(a, b)), f"the batch dims do not broadcast; got {a} and {b}")
    return tuple(n if m == 1 else m for m, n in zip(a, b))


def identity(n, like):
    return _C.eye(n, dtype=like.dtype, device=like.device)
