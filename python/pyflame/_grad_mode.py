"""Turns the recording of gradients on and off: context managers that are also decorators."""
from __future__ import annotations

import functools

from . import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, overload

    from typing_extensions import Self  # type checkers have it, of whichever version of Python

    from ._annotations import Function
else:
    from ._public import overload


class _Mode:
    _grad = True
    _inference = False

    @overload
    def __new__(cls, fn: Function) -> Function: ...

    @overload
    def __new__(cls, fn: None = None) -> Self: ...

    def __new__(cls, fn=None):
        if callable(fn):  # @no_grad without parentheses
            return cls()(fn)
        return super().__new__(cls)

    def __init__(self, fn: Callable[..., Any] | None = None) -> None:
        self._before = []

    def __enter__(self) -> _Mode:
        self._before.append(_C._grad_mode())
        _C._set_grad_mode(self._grad, self._inference)
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        _C._set_grad_mode(*self._before.pop())
        return False

    @overload
    def __call__(self, fn: Function) -> Function: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # of what @no_grad without parentheses gives

    def __call__(self, fn):
        mode = type(self)

        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with mode._copy(self):
                return fn(*args, **kwargs)

        return wrapped

    @classmethod
    def _copy(cls, of):
        return cls()


class no_grad(_Mode):
    """A context in which ops are not recorded for gradients in this thread: results have requires_grad=False. ``with pf.no_grad():``, or
    ``@pf.no_grad()`` for a function. It raises nothing.
    """

    _grad = False


class enable_grad(_Mode):
    """A context in which ops are recorded for gradients in this thread, also inside of no_grad. ``with pf.enable_grad():``, or ``@pf.enable_grad()`` for
    a function. It raises nothing.
    """

    _grad = True


class inference_mode(_Mode):
    """Like no_grad; also, tensors made inside can never take part in a gradient. mode=False: ops are recorded inside, as under
    enable_grad. Any other value is taken as a bool, and nothing is raised."""

    _grad = False
    _inference = True

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...

    @overload
    def __new__(cls, mode: Function) -> Function: ...

    def __new__(cls, mode=True):
        if callable(mode):
            return cls()(mode)
        return object.__new__(cls)

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        super().__init__()
        self._inference = bool(mode)
        self._grad = not mode

    @classmethod
    def _copy(cls, of):
        return cls(of._inference)


class set_grad_enabled(_Mode):
    """Turns the recording of gradients on or off immediately. As a context manager, it restores the previous mode at the end. Any value is taken
    as a bool; TypeError without one."""

    def __new__(cls, mode: bool) -> Self:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        self._before = [_C._grad_mode()]
        self._grad = bool(mode)
        _C._set_grad_mode(self._grad, False)

    def __enter__(self) -> set_grad_enabled:
        return self

    def __call__(self, fn):
        self.__exit__()  # as a decorator it changes nothing until the function is called
        return super().__call__(fn)

    @classmethod
    def _copy(cls, of):
        return cls(of._grad)
