"""What the functions of linear algebra share: the error, the check of LAPACK's success, results with names."""
import collections

from .. import _C
from .._C import _linalg


class LinAlgError(RuntimeError):
    """A RuntimeError: a matrix for which a factorization does not exist, or did not converge. Functions of pf.linalg raise it; its text says for which matrix of the batch."""


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
        raise LinAlgError(f"{op}: {where}{reason(failure[1])}; got {failure[1]} as LAPACK's info; expected 0")


def raise_for(op, condition, text):
    if condition:
        raise RuntimeError(f"{op}: {text}")


def epsilon(dtype):
    return 2.0**-52 if dtype in (_C.float64, _C.complex128) else 2.0**-23


def real_dtype(dtype):
    """The dtype of a complex dtype's parts; a real one is its own."""
    return _C.float32 if dtype == _C.complex64 else _C.float64 if dtype == _C.complex128 else dtype


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
