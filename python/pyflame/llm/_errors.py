"""What the modules of this package share: packages that are needed, values of foreign files whose type is checked, and the errors of a text that its own settings end and of an engine that has ended."""
from importlib import import_module


# The packages of the extras of pyproject.toml. The name pyflame belongs to another project in the Python package index, so pip is not told to look for it.
EXTRAS = {"llm": "regex jinja2 llguidance", "serve": "regex jinja2 llguidance aiohttp prometheus-client"}


def needed(package, what, extra="llm"):
    """The imported package. ImportError that says how to install it: it belongs to this extra of pyflame."""
    try:
        return import_module(package)
    except ImportError as e:
        raise ImportError(f"llm: the package {package} is not available; got {e}; expected it for {what}; hint: pip install {EXTRAS[extra]}") from None


class SettingsError(ValueError):
    """A text cannot go on by its own settings: its grammar has grown too large, or they leave no token. Nothing else has failed."""


class EngineDead(RuntimeError):
    """The processes of an engine can no longer compute together."""


_MISSING = object()


class Values:
    """The keys and values of a foreign file. Each look-up checks the type, so a wrong file is a clear error."""

    def __init__(self, values, where):
        if not isinstance(values, dict):
            raise ValueError(f"llm: {where} is damaged; got {type(values).__name__}; expected keys and values")
        self.values, self.where = values, where

    def __contains__(self, key):
        return self.values.get(key) is not None

    def get(self, key, kind, default=_MISSING):
        """The value of a key. kind: str, int, float, bool, list or dict; float also accepts an int. ValueError for a missing key without a
        default, or a value of another type."""
        value = self.values.get(key)
        if value is None:
            if default is _MISSING:
                raise ValueError(f"llm: {self.where} has no '{key}'; got {', '.join(sorted(map(str, self.values))[:12]) or 'nothing'}; expected {kind.__name__}")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 1000:
            return float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"llm: {self.where}: '{key}' has the wrong type; got {type(value).__name__}; expected {kind.__name__}")
        return value

    def size(self, key, default=_MISSING, most=1 << 31, least=1):
        """An integer from `least` to `most`, or None where that is the default. ValueError."""
        value = self.get(key, int, default)
        if value is not None and not least <= value <= most:
            raise ValueError(f"llm: {self.where}: '{key}' is out of range; got {value}; expected {least} to {most}")
        return value
