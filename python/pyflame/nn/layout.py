"""The setting channels_last: the first module with convolutions that the program calls, and its images, are in channels-last order."""
import weakref

from .. import _C, _tree
from .._C import Tensor
from .convolution import Conv2d
from .hooks import register_module_forward_pre_hook


def _images(value):
    """The same nesting, whose floating-point tensors of four dims are in channels-last order."""
    return _tree.map(lambda t: t.contiguous(memory_format=_C.channels_last) if isinstance(t, Tensor) and t.dim() == 4 and t.is_floating_point() else t, value)


def convolutions(model):
    """(how many 2-d convolutions a module has, whether the program itself has put one of their weights in channels-last order)."""
    weights = [m.weight for m in model.modules() if isinstance(m, Conv2d)]
    return len(weights), any(w.is_contiguous(memory_format=_C.channels_last) and not w.is_contiguous() for w in weights)


class _AtFirstCall:
    """A hook of all modules waits for the module, and is removed then. Each call of the module converts its images."""

    def __init__(self):
        self._module, self._own = None, None
        self._waiting = register_module_forward_pre_hook(self._called)

    def _called(self, module, args):
        if not any(isinstance(m, Conv2d) for m in module.modules()):
            return
        self._waiting.remove()
        self._module = weakref.ref(module)
        module.to(memory_format=_C.channels_last)
        self._own = module.register_forward_pre_hook(lambda _, args, kwargs: (_images(args), _images(kwargs)), with_kwargs=True)

    def undo(self):
        self._waiting.remove()
        module = self._module() if self._module is not None else None
        if module is not None:
            self._own.remove()
            module.to(memory_format=_C.contiguous_format)


_held = None


def set_channels_last(value):
    """Returns the value before."""
    global _held
    before = _held is not None
    if value != before:
        if before:
            _held.undo()
        _held = _AtFirstCall() if value else None
    return before
