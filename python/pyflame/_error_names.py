"""The name at the beginning of an error: that of the function which the user called, where others compute it.

`accepting` (_keywords.py) wraps the public functions that are written in Python, and calls `rename` when one of them raises. A call that succeeds
costs no more there, because entering a try block is free. `naming` wraps those that `accepting` does not; that is one more call of Python.
"""
import contextlib
import functools

from . import _C

_FIRST = r"([A-Za-z_][\w.]*)(: |\()"
_LATE = "recorded at "  # a kernel that failed names its own op and line, whoever reads the value
_PYTHON = r"'.*' not supported between|'.*' object|object of type '|unsupported operand|bad operand|invalid literal|could not convert|int\(\) |float\(\) |must be |(list|tuple) ind(ex|ices) |not enough values|too many values"


@functools.lru_cache(None)
def _ops():
    """The words at the beginning of errors that are names of functions."""
    from . import fft, linalg, special
    from .nn import functional

    spaces = (_C, _C.Tensor, fft, linalg, special, functional)
    return frozenset(n for space in spaces for n in dir(space) if n[:2] != "__") | {"bool", "cast", "dtype", "index", "iter", "item", "len", "generator", "sum_to", "tensor", "shape", "float", "int", "check_matrices", "row_order", "apply_reflectors", "old_svd"}


def rename(op, error, values):
    """Writes op at the beginning of the error's text, in place of another function's name or where there is none.

    values: the arguments of the call. Raises a TypeError if the error is that one of them is not a tensor. Errors of functions that call one of their
    arguments stay as they are, and so do errors of kernels that ran later.
    """
    if any(callable(value) for value in values):
        return
    if isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)
        if any(value is owner for value in values) and hasattr(_C.Tensor, error.name or ""):
            raise TypeError(f"{op}: an argument is not a tensor; got {type(owner).__name__}; expected a tensor") from None
        return
    text = error.args[0] if error.args else None
    if not isinstance(text, str) or _LATE in text:
        return
    import re  # `import pyflame` does without

    if " incompatible function arguments." in text:
        error.args = (f"{op}: wrong arguments; got ({', '.join(type(v).__name__ for v in values)}); expected the types that its signature and docstring name",)
        return
    found = re.match(_FIRST, text)
    if found is None or found[2] == "(":
        if re.match(_PYTHON, text) and isinstance(error, (TypeError, ValueError, IndexError)):
            error.args = (f"{op}: {text}", *error.args[1:])
        return
    first = found[1].rpartition(".")[2]
    if first.removeprefix("special_").strip("_") != op.strip("_") and (first in _ops() or first[0] == "_"):
        error.args = (op + text[found.end(1) :], *error.args[1:])


@contextlib.contextmanager
def named(op, *inner):
    """Inside, an error whose text begins with one of these names begins with op instead."""
    try:
        yield
    except Exception as error:
        text = str(error)
        for name in inner:
            if text.startswith(f"{name}: "):
                raise type(error)(op + text[len(name):]) from None
        raise


def check_dim(op, dim, rank):
    """IndexError unless a tensor of so many dims has this one; a single number has the dims 0 and -1."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise IndexError(f"{op}: dim out of range; got {dim}; expected {-size} <= dim < {size} for a tensor with {rank} dimensions")
