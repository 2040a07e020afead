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
    """Always False, because functions run as Python code: PyFlame has no compiler of scripts."""
    return False


def is_tracing():
    """Always False, because functions run as Python code and are not traced to a script."""
    return False


def annotate(the_type, the_value):
    """Returns the_value as it is. the_type is ignored: PyTorch's compiler of scripts needs it, and PyFlame has none. Never raises."""
    return the_value


def isinstance(obj, target_type):
    """Python's isinstance(obj, target_type), by the name that PyTorch's compiler of scripts needs. Returns a bool. TypeError for what is no type or tuple of
    types, and for a type with a parameter, such as List[int]: PyTorch's function looks at the elements for those."""
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
    """Calls func(*args, **kwargs) at once, in this thread, and returns an object whose wait() gives the result. An error of func is raised here."""
    return _Done(func(*args, **kwargs))


def wait(future):
    """Returns the result of the function that fork called. future: what fork returned. It does not wait, as fork has run the function."""
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize):
    """A context manager that changes nothing, whatever should_optimize is: PyFlame has no executor of scripts to optimize. Never raises."""
    yield


@contextlib.contextmanager
def fuser(name):
    """A context manager that changes nothing, whatever the name: PyFlame fuses ops inside and outside of it. Never raises."""
    yield
