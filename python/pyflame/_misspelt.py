"""The error for a name that a module does not have, with the nearest name that it has."""
import sys


def missing(module, name):
    """An AttributeError that names the module, the name and, where one is near, the name that was meant.

    Private names get no proposal: programs ask for these with hasattr(), where the search would only cost time."""
    text = f"module '{module}' has no attribute '{name}'"
    if name[:1] != "_":
        from difflib import get_close_matches

        names = [known for known in dir(sys.modules[module]) if known[:1] != "_"]
        if near := get_close_matches(name, names, 1, 0.75):
            text += f"; did you mean '{near[0]}'?"
    return AttributeError(text)
