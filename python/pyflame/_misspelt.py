"""The error for a name that a module does not have, with the nearest name that it has.

Python itself adds such a proposal where it prints the traceback of an error that nobody catches, not for those that notebooks and logs show. Tensor has no
__getattr__ for it: that would make each read of an attribute slower, and hasattr() of an absent one 25 times as long."""
import sys


def near(module, name):
    """The public name of a module that was probably meant by another one; None where no name is near."""
    names = [known for known in dir(sys.modules.get(module)) if known[:1] != "_"]
    for known in names:
        if known.lower() == name.lower() != known:
            return known
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, names, 1, 0.75)), None)


def missing(module, name):
    """An AttributeError that names the module, the name and, where one is near, the name that was meant.

    Private names get no proposal: programs ask for these with hasattr(), where the search would only cost time."""
    text = f"module '{module}' has no attribute '{name}'"
    meant = None if name[:1] == "_" else near(module, name)
    if meant is None:
        return AttributeError(text)
    error = AttributeError(f"{text}; did you mean '{meant}'?")
    error.name = None  # otherwise Python notes the name, and adds a proposal of its own to the printed error
    return error
