"""Where PyTorch keeps its tools: pyflame.utils.data is pyflame.data."""
from . import data as data

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from . import (
        _pytree as _pytree,
        checkpoint as checkpoint,
        collect_env as collect_env,
        cpp_extension as cpp_extension,
        dlpack as dlpack,
        hooks as hooks,
        model_zoo as model_zoo,
        tensorboard as tensorboard,
    )
del TYPE_CHECKING

_SUBMODULES = ("_pytree", "checkpoint", "collect_env", "cpp_extension", "dlpack", "hooks", "model_zoo", "tensorboard")


def __getattr__(name):
    if name in _SUBMODULES:
        from importlib import import_module

        return import_module("." + name, __name__)
    from .._misspelt import missing

    raise missing(__name__, name)


def __dir__():
    return sorted({*globals(), *_SUBMODULES})


def swap_tensors(t1, t2):
    """Swaps what two tensors are: elements, gradients, hooks, class and attributes. Each Python object gets what the other had, so that those that hold t1,
    such as an optimizer, see the content of t2. What was computed before gives its gradients to the content. TypeError where the classes cannot be swapped."""
    from .. import _C, no_grad

    try:
        t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    except TypeError as error:
        raise TypeError(f"swap_tensors: the classes cannot be swapped; got {type(t1).__name__} and {type(t2).__name__}; expected equal ones") from error
    attributes = dict(t1.__dict__)
    for tensor, those in ((t1, dict(t2.__dict__)), (t2, attributes)):
        tensor.__dict__.clear()
        tensor.__dict__.update(those)
    with no_grad():
        held = _C.empty(0, device=t1.device)
        held._rebind(t1)
        t1._rebind(t2)
        t2._rebind(held)
