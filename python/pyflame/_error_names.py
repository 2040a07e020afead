"""The name at the beginning of an error: that of the function which the user called, where others compute it.

`accepting` (_keywords.py) wraps the public functions that are written in Python, and calls `rename` when one of them raises. A call that succeeds
costs no more there, because entering a try block is free. `naming` wraps those that `accepting` does not; that is one more call of Python.
The compiled functions of `of_compiled_functions` call it when they fail.
"""
import contextlib
import functools

from . import _C

_FIRST = r"([A-Za-z_][\w.]*)(: |\()"
_LATE = "recorded at "  # a kernel that failed names its own op and line, whoever reads the value
_PYTHON = r"'.*' not supported between|'.*' object|object of type '|unsupported operand|bad operand|invalid literal|could not convert|int\(\) |float\(\) |must be |(list|tuple) ind(ex|ices) |not enough values|too many values"


_WINDOWS = ("bartlett", "blackman", "general_cosine", "general_hamming", "hamming", "hann", "kaiser")  # which pf.hann_window and others compute
_NO_TENSORS = frozenset({"bool", "bytes", "complex", "dict", "float", "int", "list", "NoneType", "numpy.ndarray", "range", "set", "str", "tuple"})


@functools.lru_cache(None)
def _ops():
    """The words at the beginning of errors that are names of functions."""
    from . import fft, linalg, special
    from .nn import functional

    spaces = (_C, _C.Tensor, fft, linalg, special, functional)
    return frozenset(n for space in spaces for n in dir(space) if n[:2] != "__") | {"bool", "cast", "dtype", "index", "iter", "item", "len", "generator", "sum_to", "tensor", "shape", "float", "int", "check_matrices", "row_order", "apply_reflectors", "svd_lowrank", "trigamma", *_WINDOWS}


def _no_tensor(text):
    """The type of the first argument that is no tensor, of nanobind's error about a function with one signature that takes one there; None without such an argument."""
    import re

    signatures, types = re.findall(r"^ +\d+\. \w+\((.*)\) -> ", text, re.M), re.search(r"Invoked with types: (.*)", text)
    if len(signatures) != 1 or types is None:
        return None
    wanted = re.findall(r"\w+: ([^,\[]*(?:\[[^\]]*\])?[^,]*)", signatures[0])
    return next((given.rpartition(".")[2] for want, given in zip(wanted, types[1].split(", ")) if want == "pyflame._C.Tensor" and given in _NO_TENSORS), None)


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
        given = _no_tensor(text)
        if given:
            raise TypeError(f"{op}: an argument is not a tensor; got {given}; expected a tensor") from None
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


# Compiled functions that others compute, or that are computed from others; also in place. Functions that complete what was recorded before, such as item() and
# backward(), are not among them: their errors are of other ops.
_COMPILED = """absolute addbmm addmm addmv addr argsort baddbmm batch_matmul bernoulli bfloat16 bool broadcast_to byte cauchy cdouble cfloat char chunk clamp clip col2im concatenate diff div divide dot double
expand_as exponential fill float geometric half hsplit dsplit vsplit i0 im2col index_add index_copy index_fill index_put index_reduce index_select int l1_loss lcm log_normal long masked_fill masked_scatter masked_select mm mse_loss multiply negative
new new_empty new_full new_ones new_zeros normal one_hot polygamma put rand_like randint_like randn_like random repeat reshape_as scatter scatter_add scatter_reduce short special_i0 special_i1 special_modified_bessel_i0
special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 split subtract sum_to_size swapaxes swapdims take take_along_dim true_divide trunc uniform view_as""".split()
of_compiled_functions = frozenset(_COMPILED) | {f"{name}_" for name in _COMPILED}


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
