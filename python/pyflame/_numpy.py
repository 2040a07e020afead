"""NumPy, which is imported when something of it is first used: `from . import _numpy as np`.

Its import takes longer than that of this package, and a program that only reads or writes text makes no array. Where a module needs NumPy while it is itself imported,
it imports NumPy."""
TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from numpy import *  # noqa: F401,F403
del TYPE_CHECKING


def __getattr__(name):
    if name.startswith("__"):  # what tools ask of every module
        raise AttributeError(name)
    import numpy

    value = globals()[name] = getattr(numpy, name)
    return value
