"""Objects with switches that are accepted and change nothing."""
from ._notes import once


class Switches:
    """Attributes that can be read and set. Setting one to another value is noted once for each name."""

    def __init__(self, name, advice="accepted; it changes nothing", **values):
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_advice", advice)
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __setattr__(self, name, value):
        if self.__dict__.get(name, ...) != value:
            once(f"{self._name}.{name}", self._advice)
        self.__dict__[name] = value
