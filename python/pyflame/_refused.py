"""Names that exist so that programs import, and whose use says what to do instead."""
from __future__ import annotations

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


def _error(name, advice):
    return NotImplementedError(f"{name}: not available in PyFlame; {advice}")


def function(name: str, advice: str) -> Callable[..., NoReturn]:
    """A function that raises."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise _error(name, advice)

    refused.__name__ = refused.__qualname__ = name.rpartition(".")[2]
    refused.__doc__ = f"Not available in PyFlame: {advice}. The name is there so that programs can import it; a call is a NotImplementedError with this advice."
    return refused


def cls(name: str, advice: str) -> Any:
    """A class without objects: isinstance() is false for everything, and making one raises."""

    def new(kind, *args, **kwargs):
        raise _error(name, advice)

    return type(name.rpartition(".")[2], (), {"__new__": new, "__doc__": f"Not available in PyFlame: {advice}. The name is there for imports and isinstance(), which is False; to make an object is a NotImplementedError with this advice."})


def module(name, advice):
    """A module's __getattr__: every public name of it is a function that raises, or a class if it is written as one."""

    def __getattr__(attribute):
        from ._misspelt import missing, near

        if attribute.startswith("_"):
            raise missing(f"pyflame.{name}", attribute)
        made, meant = cls if attribute[0].isupper() else function, near(f"pyflame.{name}", attribute)
        return made(f"{name}.{attribute}", f"did you mean '{meant}'? {advice}" if meant else advice)

    return __getattr__


def unknown(names, module_of={}, modules=()):
    """Gives a module, by its globals(), a __getattr__ whose error for an unknown name has the nearest one. Type checkers do not see it, and go on to report unknown names.

    module_of: names that are imported when they are first used, and of each the submodule that has it. modules: submodules that are imported in the same way."""

    def __getattr__(attribute):
        if attribute in module_of or attribute in modules:
            from importlib import import_module

            module = import_module(f"{names['__name__']}.{module_of.get(attribute, attribute)}")
            value = names[attribute] = getattr(module, attribute) if attribute in module_of else module
            return value
        from ._misspelt import missing

        raise missing(names["__name__"], attribute)

    names["__getattr__"] = __getattr__
    if module_of:
        names["__dir__"] = lambda: sorted({*names, *module_of, *modules})


def identity(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator that returns what it is given, with or without arguments of its own, which change nothing. Never raises."""
    if callable(fn):
        return fn
    return lambda decorated: decorated
