"""Modules without initial values."""
from __future__ import annotations

import inspect

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from .._annotations import ModuleT


def skip_init(module_cls: type[ModuleT], *args: Any, **kwargs: Any) -> ModuleT:
    """module_cls(*args, **kwargs) with any values in its parameters and buffers: for modules that are loaded anyway. RuntimeError if the class takes no device."""
    parameters = inspect.signature(module_cls).parameters
    if "device" not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise RuntimeError(f"skip_init: {module_cls.__name__} takes no device; expected a class with the argument device")
    return module_cls(*args, **kwargs)
