"""The error for a name that a module does not have, with the nearest name that it has.

Python itself adds such a proposal where it prints the traceback of an error that nobody catches, not for those that notebooks and logs show. Tensor has no
__getattr__ for it: that would make each read of an attribute slower, and hasattr() of an absent one 25 times as long."""
import sys
from types import ModuleType

_PLACES = ("nn", "nn.functional", "optim", "optim.lr_scheduler", "data", "autograd", "linalg", "fft", "special", "models", "distributions")  # where a name of pf or pf.nn may be


def elsewhere(module, name):
    """The full name where a submodule of the package has what was looked for in pf or in pf.nn; None where none has it."""
    package, _, inner = module.partition(".")
    if inner not in ("", "nn"):
        return None
    from importlib import import_module

    for place in _PLACES:
        found = import_module(f"{package}.{place}")
        if name in dir(found) and not isinstance(getattr(found, name), ModuleType):  # nn.grad is a module that is there once something has imported it
            return f"{package}.{place}.{name}"
    return None


def but_for_case(module, name):
    """The public name of a module that differs in capital letters alone; None where there is none."""
    return next((known for known in dir(sys.modules.get(module)) if known[:1] != "_" and known.lower() == name.lower() and known != name), None)


def near(module, name):
    """The public name of a module that was probably meant by another one; None where no name is near."""
    from difflib import get_close_matches

    names = [known for known in dir(sys.modules.get(module)) if known[:1] != "_"]
    close = next(iter(get_close_matches(name, names, 1, 0.75)), None)
    return but_for_case(module, name) or close or next((known for known in names if known == f"{name}_is_available"), None)  # pf.rocm


def proposal(module, name):
    """What was probably meant. A class, which begins with a capital letter, is looked for elsewhere before a function takes its place: pf.Softmax is nn.Softmax."""
    same = None if name[:1].isupper() else but_for_case(module, name)
    return same or elsewhere(module, name) or near(module, name)


def missing(module, name):
    """An AttributeError that names the module, the name and, where one is near, the name that was meant.

    Private names get no proposal: programs ask for these with hasattr(), where the search would only cost time."""
    text = f"module '{module}' has no attribute '{name}'"
    meant = None if name[:1] == "_" else proposal(module, name)
    if meant is None:
        return AttributeError(text)
    error = AttributeError(f"{text}; did you mean '{meant}'?")
    error.name = None  # otherwise Python notes the name, and adds a proposal of its own to the printed error
    return error
