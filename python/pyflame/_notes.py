"""What is accepted and changes nothing says so, once for each name."""
import warnings

_said = set()


def once(name, text, stacklevel=3):
    """Warns `name: text`, the first time that this name has something to say."""
    if name not in _said:
        _said.add(name)
        warnings.warn(f"{name}: {text}", stacklevel=stacklevel)
