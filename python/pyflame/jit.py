"""Names of torch.jit. PyFlame compiles every window of ops by itself, so there is nothing to script. Decorators of functions give the function back;
what would make or read a file of TorchScript says what to do instead."""
import contextlib
import typing

from . import _notes, _refused
from ._refused import identity as export  # noqa: F401
from ._refused import identity as ignore  # noqa: F401
from ._refused import identity as interface  # noqa: F401
from ._refused import identity as script_method  # noqa: F401
from ._refused import identity as unused  # noqa: F401

__path__ = []  # PyTorch has files below it
_ADVICE = "every window of ops is compiled by itself; call the module as it is, and save its state_dict()"
Final = typing.Final
Attribute = _refused.cls("jit.Attribute", _ADVICE)
ScriptModule = _refused.cls("jit.ScriptModule", _ADVICE)
RecursiveScriptModule = _refused.cls("jit.RecursiveScriptModule", _ADVICE)
TracedModule = TopLevelTracedModule = _refused.cls("jit.TracedModule", _ADVICE)
ScriptFunction = _refused.cls("jit.ScriptFunction", _ADVICE)
_overload = _overload_method = export
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
    """Always False: functions run as they are."""
    return False


def is_tracing():
    """Always False: nothing is traced."""
    return False


def annotate(the_type, the_value):
    """Returns the value; the type is for readers."""
    return the_value


def isinstance(obj, target_type):
    """Python's isinstance(obj, target_type)."""
    import builtins

    return builtins.isinstance(obj, target_type)


class _Done:
    def __init__(self, value):
        self._value = value

    def value(self):
        """The result."""
        return self._value

    wait = value


def fork(func, *args, **kwargs):
    """Calls func at once; wait() gives its result."""
    return _Done(func(*args, **kwargs))


def wait(future):
    """The result of what fork called."""
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize):
    """A context that changes nothing."""
    yield


@contextlib.contextmanager
def fuser(name):
    """A context that changes nothing: ops are fused as everywhere."""
    yield
