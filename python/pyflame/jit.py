"""Names of torch.jit. PyFlame compiles every window of ops by itself, so there is nothing to script. Decorators of functions give the function back;
what would make or read a file of TorchScript says what to do instead."""
from __future__ import annotations

import contextlib
import types
import typing

from . import _notes, _refused

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__path__ = []  # PyTorch has files below it
_ADVICE = "every window of ops is compiled by itself; call the module as it is, and save its state_dict()"
Final = typing.Final
Attribute = _refused.cls("jit.Attribute", _ADVICE)
ScriptModule = _refused.cls("jit.ScriptModule", _ADVICE)
RecursiveScriptModule = _refused.cls("jit.RecursiveScriptModule", _ADVICE)
TracedModule = TopLevelTracedModule = _refused.cls("jit.TracedModule", _ADVICE)
ScriptFunction = _refused.cls("jit.ScriptFunction", _ADVICE)
export = ignore = interface = script_method = unused = _overload = _overload_method = _refused.identity
__getattr__ = _refused.module("jit", _ADVICE)


def script(obj=None, *args, **kwargs):
    """A function or class is returned as it is, which is noted once; its numbers are the same. NotImplementedError for a module."""
    from .nn import Module

    if isinstance(obj, Module):
        raise NotImplementedError(f"jit.script: not available in PyFlame; got a {type(obj).__name__}; {_ADVICE}")
    if obj is None:
        return script
    _notes.once("jit.script", "functions stay as they are; every window of ops is compiled by itself")
    return obj


script_if_tracing = export


def is_scripting():
    """Always False, because functions run as Python code: PyFlame has no compiler of scripts."""
    return False


def is_tracing():
    """Always False, because functions run as Python code and are not traced to a script."""
    return False


def annotate(the_type, the_value):
    """Returns the_value as it is. the_type is ignored: PyTorch's compiler of scripts needs it, and PyFlame has none. Never raises."""
    return the_value


def isinstance(obj, target_type):
    """Whether obj is of a type, a bool. List[T], Dict[K, V], Tuple[..] and their forms list[T], dict[K, V], tuple[..] are checked with all elements, at any depth; an
    empty list or dict fits every one of them.

    target_type: a type, Optional or Union, or a tuple of types. RuntimeError for List, Dict and Tuple without a parameter; TypeError for other types with one, such
    as Set[int], and for what is no type.
    """
    return _is_of(obj, target_type)


def _is_of(obj, target):
    import builtins

    if builtins.isinstance(target, tuple):
        return any(_is_of(obj, t) for t in target)
    if target is typing.Any:
        return True
    if target is None:
        return obj is None
    if target in (typing.List, typing.Dict, typing.Tuple):
        raise RuntimeError(f"jit.isinstance: a type without a parameter; got {target}; expected one such as {target}[int]")
    origin, inner = typing.get_origin(target), typing.get_args(target)
    if origin is None:
        return builtins.isinstance(obj, target)
    if origin is typing.Union or origin is types.UnionType:
        return any(_is_of(obj, t) for t in inner)
    if origin is list:
        return builtins.isinstance(obj, list) and all(_is_of(x, inner[0]) for x in obj)
    if origin is dict:
        return builtins.isinstance(obj, dict) and all(_is_of(k, inner[0]) and _is_of(v, inner[1]) for k, v in obj.items())
    if origin is tuple:
        if not builtins.isinstance(obj, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(_is_of(x, inner[0]) for x in obj)
        return len(obj) == len(inner) and all(_is_of(x, t) for x, t in zip(obj, inner))
    raise TypeError(f"jit.isinstance: not a type that is checked; got {target}; expected a type without a parameter, List, Dict, Tuple, Optional or Union")


class _Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self) -> Any:
        """The result."""
        return self._value

    wait = value


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> _Done:
    """Calls func(*args, **kwargs) at once, in this thread, and returns an object whose wait() gives the result. An error of func is raised here."""
    return _Done(func(*args, **kwargs))


def wait(future: Any) -> Any:
    """Returns the result of the function that fork called. future: what fork returned. It does not wait, as fork has run the function.

    TypeError for what fork did not return.
    """
    if not hasattr(future, "wait"):
        raise TypeError(f"wait: not what fork returned; got {type(future).__name__}; expected an object with wait()")
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize):
    """A context manager that changes nothing, whatever should_optimize is: PyFlame has no executor of scripts to optimize. Never raises."""
    yield


@contextlib.contextmanager
def fuser(name):
    """A context manager that changes nothing, whatever the name: PyFlame fuses ops inside and outside of it. Never raises."""
    yield
