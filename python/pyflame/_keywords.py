"""Keywords that PyTorch takes beside an op's own: NumPy's words for its arguments, out=, generator=, and those of memory. The compiled functions come
here when they do not know a keyword, so that calls without one cost nothing; functions that are written in Python are wrapped by `accepting`.

Type checkers know them from the stubs. Their generator, python/stub_keywords.py, reads these tables and the variable `others` of a wrapper."""
from __future__ import annotations

import functools
import warnings

from . import _C
from ._C import Tensor
from ._error_names import rename

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from ._annotations import Function

RENAMED = {"axis": "dim", "axis0": "dim0", "axis1": "dim1", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
OTHERS = frozenset(RENAMED) | {"out", "generator", "layout", "pin_memory", "memory_format", "names"}
# PyTorch's words of single functions: for sizes that may also be given one by one, and for other arguments.
SIZES = {**dict.fromkeys(("zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty", "view", "expand"), "size"), "reshape": "shape", "permute": "dims"}
WORDS = {"pow": ("exponent", "other"), "dropout": ("train", "training")}
LOSSES = ("binary_cross_entropy_with_logits", "cross_entropy", "l1_loss", "mse_loss", "nll_loss")
_RELEVANT = OTHERS | frozenset(RENAMED.values())
_MATRICES = (("input", "A"), ("b", "B"))  # some functions of PyTorch's linalg have one of these words, some the other
_CATEGORIES = ("bool", "int", "float", "complex")


def _category(dtype):
    return 0 if dtype == _C.bool_ else 3 if "complex" in dtype.name else 2 if dtype.is_floating_point else 1


def write_out(op: str, result: Any, out: Any) -> Any:
    """Writes a result to out= and returns it: numbers are cast within their category or to a wider one; an empty tensor takes the result's shape."""
    if isinstance(out, (tuple, list)):
        parts = list(result)
        if len(parts) != len(out):
            raise TypeError(f"{op}: wrong number of outputs; got {len(out)}; expected {len(parts)}")
        written = [write_out(op, r, o) for r, o in zip(parts, out)]
        return type(result)(*written) if hasattr(result, "_fields") else tuple(written)
    if not isinstance(out, Tensor):
        raise TypeError(f"{op}: out is not a tensor; got {type(out).__name__}; expected a tensor")
    if out.device != result.device:
        raise RuntimeError(f"{op}: out is on another device; got '{out.device}'; expected '{result.device}'")
    if _category(result.dtype) > _category(out.dtype):
        raise RuntimeError(f"{op}: the result cannot be cast to the dtype of out; got {result.dtype}; expected one that {out.dtype} can hold")
    if _C.is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise RuntimeError(f"{op}: out= has no gradient; got a tensor that requires one; expected no_grad() or no out=")
    if out.shape == result.shape:
        return out.copy_(result)
    if out.numel():
        warnings.warn(f"{op}: out of shape {tuple(out.shape)} takes the shape of the result, {tuple(result.shape)}; hint: out.resize_(0) before says that this is meant", stacklevel=4)
    out._become(result.to(out.dtype), False)
    return out


def _translated(keywords):
    """(the keywords of the op, what the others ask for)."""
    own, asked = {}, {}
    for name, value in keywords.items():
        if name in RENAMED:
            own[RENAMED[name]] = value
        elif name in ("out", "generator", "layout", "pin_memory", "memory_format", "names"):
            asked[name] = value
        else:
            own[name] = value
    return own, asked


def _check(op, asked):
    layout = asked.get("layout")
    if layout is not None and str(layout) != "pyflame.strided":
        raise NotImplementedError(f"{op}: only strided tensors are available; got layout={layout}; expected pyflame.strided")
    if asked.get("names") is not None:
        raise NotImplementedError(f"{op}: dims have no names; got {asked['names']!r}; expected None")


def _call(function, args, keywords):
    own, asked = _translated(keywords)
    op = getattr(function, "__name__", "op")
    _check(op, asked)
    generator = asked.get("generator")
    if generator is None:
        result = function(*args, **own)
    else:
        from ._generator import drawing_from

        with drawing_from(generator):
            result = function(*args, **own)
    if asked.get("memory_format") is not None:
        result = result.contiguous(memory_format=asked["memory_format"]) if asked["memory_format"] != _C.preserve_format else result
    out = asked.get("out")
    return result if out is None else write_out(op, result, out)


def retry(function, args, keywords):
    """The call with its keywords translated; Ellipsis if there is nothing to translate."""
    if "rounding_mode" in keywords and function.__name__ == "div_":
        return args[0].divide_(*args[1:], **keywords)
    if {"size_average", "reduce"} & keywords.keys() and function.__name__ in LOSSES:
        from .nn._old_arguments import reduction_of

        size_average, reduce = keywords.pop("size_average", None), keywords.pop("reduce", None)
        if size_average is not None or reduce is not None:
            keywords["reduction"] = reduction_of(size_average, reduce)
    elif "sparse_grad" in keywords and function.__name__ == "gather":
        del keywords["sparse_grad"]  # the gradient is a dense tensor
    elif SIZES.get(function.__name__) in keywords:
        args = (*args, keywords.pop(SIZES[function.__name__]))
    elif WORDS.get(function.__name__, ("",))[0] in keywords:
        old, new = WORDS[function.__name__]
        keywords[new] = keywords.pop(old)
    elif OTHERS.isdisjoint(keywords):
        return _with_numbers(function, args, keywords)
    return _call(function, args, keywords)


def _with_numbers(function, args, keywords):
    """The call with numbers in place of tensors without dims, which PyTorch takes where an argument is a number; Ellipsis if there are none, and where the
    arguments do not fit then, either. The input, and tensors that require a gradient, stay tensors. The numbers are read: a sync point."""

    def number(value):
        return value.item() if isinstance(value, Tensor) and not value.ndim and not value.requires_grad else value

    numbers = (*args[:1], *map(number, args[1:]))
    named = {name: value if name == "input" else number(value) for name, value in keywords.items()}
    if all(a is b for a, b in zip((*args, *keywords.values()), (*numbers, *named.values()))):
        return ...
    try:
        return function(*numbers, **named)
    except TypeError as error:
        if ": wrong arguments; got (" in str(error):
            return ...
        raise


@functools.lru_cache(None)  # many functions have the same ones, and `import pyflame` asks for each function
def _further(own):
    """The keywords that a function with these own ones takes, too."""
    return frozenset(word for word in OTHERS - own if word not in RENAMED or RENAMED[word] in own)


def accepting(function: Function) -> Function:
    """The function, which also takes these keywords, except those that it has itself. Its errors begin with its name."""
    code = function.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    # One that takes any keyword gets no others.
    others = frozenset() if code.co_flags & 0x08 else _further(_RELEVANT.intersection(own))
    matrices = {word: letter for word, letter in _MATRICES if letter in own and word not in own}
    others = others.union(matrices)
    name = function.__name__

    @functools.wraps(function)
    def wrapped(*args, **keywords):
        try:
            if keywords and not others.isdisjoint(keywords):
                keywords = {matrices.get(word, word): value for word, value in keywords.items()}
                return _call(function, args, keywords)
            return function(*args, **keywords)
        except Exception as error:
            rename(name, error, (*args, *keywords.values()))
            raise

    wrapped.names_errors = True
    return wrapped


def naming(functions, module, besides=()):
    """Wraps the functions of a package whose errors may have other names, so that their errors begin with their names, and only for that.

    functions: the globals of the public module. module: how the names of the modules begin that define them, one text or several. besides: names that stay as they are.
    """
    from sys import modules
    from types import FunctionType

    for name, function in list(functions.items()):
        if isinstance(function, FunctionType) and name[0] != "_" and name not in besides and function.__name__ == name and function.__module__.startswith(module):
            if not hasattr(function, "names_errors"):
                functions[name] = _named(function)
                home = modules[function.__module__].__dict__
                if home.get(name) is function:  # a function is pickled by its place
                    home[name] = functions[name]


def _named(function):
    name = function.__name__

    @functools.wraps(function)
    def wrapped(*args, **keywords):
        try:
            return function(*args, **keywords)
        except Exception as error:
            rename(name, error, (*args, *keywords.values()))
            raise

    wrapped.names_errors = True
    return wrapped
