"""What is accepted and changes nothing says so, once for each name."""
import os
import sys
import warnings

_said = set()
_PACKAGE = os.path.dirname(__file__) + os.sep


def _outside():
    """The stacklevel with which the caller's warnings.warn() names the line of the program: the first one outside of the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def once(name, text):
    """Warns `name: text` at the line of the program, the first time that this name has something to say."""
    if name not in _said:
        _said.add(name)
        warnings.warn(f"{name}: {text}", stacklevel=_outside())
