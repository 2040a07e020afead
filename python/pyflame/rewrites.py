"""Rewrites of what a program has recorded: patterns that the compiler replaces by something cheaper.

Exact ones give the same bits and are on. The others agree within the tolerance of pyflame.testing and are off until
enable() or PYFLAME_REWRITES=name,name switches them on. docs/rewrites.md says what each of them does.
"""
from . import _C

__all__ = ["Rewrite", "disable", "enable", "fired", "registry"]


class Rewrite:
    """One rewrite: its name, whether it is exact (the same bits), what it does (describe), and whether it is on (enabled).

    Made by registry(). Raises KeyError for a name of no rewrite when it is shown or asked whether it is on.
    """

    __slots__ = ("describe", "exact", "name")

    def __init__(self, name, exact, describe):
        self.name, self.exact, self.describe = name, exact, describe

    @property
    def enabled(self):
        """Whether the rewrite is on for what is recorded from now on, a bool that enable() and disable() change."""
        return _C._rewrite_on(self.name)

    def __repr__(self):
        return f"Rewrite({self.name!r}, exact={self.exact}, enabled={self.enabled})"


class _Switched:
    """What enable() and disable() return. As a context it sets back at its end what was switched."""

    def __init__(self, names, on):
        known = {r.name for r in registry()}
        for name in names:  # all are checked before any is switched
            if name not in known:
                _C._rewrite_on(name)
        self._before = [(name, _C._set_rewrite(name, on)) for name in names]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for name, on in reversed(self._before):
            _C._set_rewrite(name, on)
        return False


def registry():
    """All rewrites of this build, a list of Rewrite objects, each with name, exact, describe and enabled."""
    return [Rewrite(*r) for r in _C._rewrites()]


def enable(*names):
    """Switches rewrites on, for what any thread records from now on. `with enable(name):` is until the end of the block.

    KeyError for a name that registry() does not have.
    """
    return _Switched(names, True)


def disable(*names):
    """Switches rewrites off, for what any thread records from now on. `with disable(name):` is until the end of the block.

    KeyError for a name that registry() does not have.
    """
    return _Switched(names, False)


def fired():
    """How often each rewrite has changed a program of this process, by name. A program that runs many times counts once."""
    return dict(_C._rewrites_fired())

