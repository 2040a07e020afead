"""Hooks of modules: their registration, those for all modules, and those around gradients.

A module without hooks is called in C, and so are plain forward hooks. As long as a hook of another kind is registered anywhere (for all modules, around a
gradient, or with always_call), every module is called by Module._call_in_python below.
"""
from __future__ import annotations

import warnings
import weakref

from .. import _C
from .._C import Tensor
from .._deprecation import deprecated
from ..autograd import Function

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class RemovableHandle:
    """The result of registering a hook; remove() unregisters it. As a context manager, it does so at the end."""

    _next = 0

    def __init__(self, hooks, extra=()):
        self._hooks, self._extra = hooks, extra
        self.id = RemovableHandle._next
        RemovableHandle._next += 1

    def remove(self) -> None:
        self._hooks.pop(self.id, None)
        for group in self._extra:
            (group.pop(self.id, None) if isinstance(group, dict) else group.discard(self.id))
        if self.id in _special:
            del _special[self.id]
            _C._module_calls_in_python(bool(_special))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


_special = {}  # hooks that need Python's call, by id
_always = set()  # ids of forward hooks that are called after an exception, too
_everywhere = {kind: {} for kind in ("forward_pre", "forward", "backward_pre", "backward", "parameter", "buffer", "module")}
_everywhere_with_kwargs = set()


def _is_special(handle, owner):
    """Python calls modules as long as the handle is registered and its module lives."""
    _special[handle.id] = True
    _C._module_calls_in_python(True)
    if owner is not None:
        weakref.finalize(owner, _forget, handle.id).atexit = False


def _forget(at):
    _special.pop(at, None)
    _C._module_calls_in_python(bool(_special))


def add(op, hooks, hook, prepend=False, extra=()):
    """Registers a hook in a dict; returns its handle."""
    if not callable(hook):
        raise TypeError(f"{op}: not callable; got {type(hook).__name__}")
    handle = RemovableHandle(hooks, extra)
    others = dict(hooks) if prepend else {}
    for k in others:
        del hooks[k]
    hooks[handle.id] = hook
    hooks.update(others)
    return handle


def _add_everywhere(kind, hook, with_kwargs=False, always_call=False):
    handle = add(f"register_module_{kind}_hook", _everywhere[kind], hook, extra=(_everywhere_with_kwargs, _always))
    if with_kwargs:
        _everywhere_with_kwargs.add(handle.id)
    if always_call:
        _always.add(handle.id)
    if kind not in ("parameter", "buffer", "module"):
        _is_special(handle, None)
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, args) before the forward of every module; what it returns (if not None) replaces args."""
    return _add_everywhere("forward_pre", hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """hook(module, args, output), with_kwargs hook(module, args, kwargs, output), after the forward of every module; what it returns replaces output."""
    return _add_everywhere("forward", hook, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, grad_output) before the gradients of every module; what it returns replaces grad_output."""
    return _add_everywhere("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, grad_input, grad_output) after the gradients of every module; what it returns replaces grad_input."""
    return _add_everywhere("backward", hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, name, parameter) when a parameter is registered; what it returns (if not None) is registered instead."""
    return _add_everywhere("parameter", hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, name, buffer) when a buffer is registered; what it returns (if not None) is registered instead."""
    return _add_everywhere("buffer", hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, name, child) when a child is registered; what it returns (if not None) is registered instead."""
    return _add_everywhere("module", hook)


def registered(kind, module, name, value):
    """What is registered under a name, after the hooks for that."""
    for hook in tuple(_everywhere[kind].values()):
        other = hook(module, name, value)
        value = value if other is None else other
    return value


# ---- gradients


class _Passing(Function):
    """The tensors themselves; their gradients go through a function."""

    @staticmethod
    def forward(ctx, notify, *tensors):
        ctx.notify = notify
        return tensors

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ctx.notify(grads))


def _pass(values, notify):
    """The values, of which tensors that need a gradient tell it; and whether there were any."""
    at = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not _C.is_grad_enabled() or not any(values[i].requires_grad for i in at):
        return values, False

    def full(grads):
        given = [None] * len(values)
        for i, g in zip(at, grads):
            given[i] = g
        new = notify(tuple(given))
        return [new[i] for i in at]

    out = list(values)
    for i, t in zip(at, _Passing.apply(full, *(values[i] for i in at))):
        out[i] = t
    return tuple(out), True


def _replaced(op, new, old):
    if new is None:
        return old
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != len(old):
        raise RuntimeError(f"{op}: the hook returned {len(new)} gradients; expected {len(old)}")
    return new


class _Gradients:
    """Calls the hooks around one call's gradients."""

    def __init__(self, module, before, after):
        self.module, self.before, self.after, self.outputs, self.inputs_tell = module, before, after, None, False

    def of_outputs(self, grads):
        for hook in self.before:
            grads = _replaced("full_backward_pre_hook", hook(self.module, grads), grads)
        self.outputs = grads
        if not self.inputs_tell:  # nothing comes back through the inputs
            for hook in self.after:
                if hook(self.module, (None,) * self.count, grads) is not None:
                    raise RuntimeError("full_backward_hook: the hook returned gradients, but no input needs one; expected None")
        return grads

    def of_inputs(self, grads):
        for hook in self.after:
            grads = _replaced("full_backward_hook", hook(self.module, grads, self.outputs), grads)
        return grads

    def inputs(self, args):
        self.count = len(args)
        args, self.inputs_tell = _pass(args, self.of_inputs)
        return args

    def outputs_of(self, result):
        if isinstance(result, Tensor):
            return _pass((result,), self.of_outputs)[0][0]
        if isinstance(result, (tuple, list)):
            return type(result)(_pass(tuple(result), self.of_outputs)[0]) if type(result) in (tuple, list) else result
        warnings.warn(f"full_backward_hook: the output is not a tensor or a tuple; got {type(result).__name__}; the hook is not called", stacklevel=4)
        return result


# ---- the call


class Hooked:
    """What a Module is to its hooks."""

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """hook(module, args) before forward; what it returns (if not None) replaces args. With with_kwargs, hook(module, args, kwargs) returns
        (args, kwargs) or None. prepend: before the hooks that are there."""
        handle = add("register_forward_pre_hook", self._forward_pre_hooks, hook, prepend, (self._hooks_with_kwargs,))
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.id)
        return handle

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """hook(module, args, output) after forward; what it returns (if not None) replaces output. With with_kwargs,
        hook(module, args, kwargs, output). prepend: before the hooks that are there. always_call: also after an exception, with output None."""
        handle = add("register_forward_hook", self._forward_hooks, hook, prepend, (self._hooks_with_kwargs, _always))
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.id)
        if always_call:
            _always.add(handle.id)
            _is_special(handle, self)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """hook(module, grad_output) before the gradients of the module are computed; what it returns (if not None) replaces grad_output, a tuple."""
        return self._add_backward("register_full_backward_pre_hook", "_backward_pre_hooks", hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """hook(module, grad_input, grad_output) when the gradients of the module's inputs were computed; what it returns (if not None) replaces
        grad_input. Both are tuples: of the positional arguments (None where one is no tensor), and of the outputs."""
        return self._add_backward("register_full_backward_hook", "_backward_hooks", hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The same as register_full_backward_hook, with a warning: PyTorch's hook of this name saw the gradients of the last op only."""
        deprecated("nn.Module.register_backward_hook", "register_full_backward_hook")
        return self.register_full_backward_hook(hook)

    def _add_backward(self, op, kind, hook, prepend):
        handle = add(op, self.__dict__.setdefault(kind, {}), hook, prepend)
        _is_special(handle, self)
        return handle

    def _call_in_python(self, *args, **kwargs):
        called = set()
        try:
            return self._call_with_all_hooks(args, kwargs, called)
        except BaseException:
            for hooks, wants in ((_everywhere["forward"], _everywhere_with_kwargs), (self._forward_hooks, self._hooks_with_kwargs)):
                for at, hook in tuple(hooks.items()):
                    if at in _always and at not in called:
                        try:
                            hook(self, args, kwargs, None) if at in wants else hook(self, args, None)
                        except Exception as e:  # noqa: BLE001 - the first exception counts
                            warnings.warn(f"forward hook: raised after an exception of forward: {e}", stacklevel=3)
            raise

    def _call_with_all_hooks(self, args, kwargs, called):
        for hooks, wants in ((_everywhere["forward_pre"], ()), (self._forward_pre_hooks, self._hooks_with_kwargs)):
            for at, hook in tuple(hooks.items()):
                args, kwargs = _after_pre_hook(hook(self, args, kwargs) if at in wants else hook(self, args), at in wants, args, kwargs)
        own = self.__dict__
        before = [*_everywhere["backward_pre"].values(), *own.get("_backward_pre_hooks", {}).values()]
        after = [*_everywhere["backward"].values(), *own.get("_backward_hooks", {}).values()]
        gradients = _Gradients(self, before, after) if before or after else None
        if gradients:
            args = gradients.inputs(args)
        result = self._run_forward(*args, **kwargs)
        for hooks, wants in ((_everywhere["forward"], _everywhere_with_kwargs), (self._forward_hooks, self._hooks_with_kwargs)):
            for at, hook in tuple(hooks.items()):
                called.add(at)
                new = hook(self, args, kwargs, result) if at in wants else hook(self, args, result)
                result = result if new is None else new
        return gradients.outputs_of(result) if gradients else result


def _after_pre_hook(result, with_kwargs, args, kwargs):
    if result is None:
        return args, kwargs
    if not with_kwargs:
        return (result if isinstance(result, tuple) else (result,)), kwargs
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], tuple) or not isinstance(result[1], dict):
        raise RuntimeError("forward pre-hook: expected None or a tuple of (args, kwargs)")
    return result
