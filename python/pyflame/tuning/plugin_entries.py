"""Entries from outside of PyFlame: compiled functions that compute an op."""
import ctypes
import importlib
import os

from .. import _C

_held = {}  # functions by entry, which must stay while they are registered


def plugin_header():
    """The path of plugin.h, the C header that describes a plug-in's function."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "include", "pyflame", "plugin.h")


def register(op, name, function, *, device="cpu", version="", context=0, repeats=True):
    """Makes a compiled function one more implementation of `op` (a name as pf.explain prints them, such as "matmul") on a kind of device: "cpu", "rocm" or
    "cuda". Returns the entry's name, "<device>.plugin.<name>@<version>".

    function: a function of a ctypes library, or an address. Its form is pyflame_plugin_function of plugin.h (plugin_header()). It is asked whether it would
    compute a problem, and it computes it. It must not call Python.
    version: part of the name, because measurements of one version say nothing of another.
    context: a number or an address that each call gets.
    repeats: False if two runs may give different bits; then it is taken only where pf.use_deterministic_algorithms(False) holds.

    The entry computes where a measurement found it to be right and faster (pf.tuning.measure, `pyflame tune`), or where it is forced (pf.tuning.force). It
    computes single ops, nothing that is fused. Programs that call it are not replayed as GPU graphs.
    ValueError: an op or device that does not exist, or a name that is taken. TypeError: something else than a function."""
    address = function if isinstance(function, int) and not isinstance(function, bool) else None
    if address is None:
        if not isinstance(function, ctypes._CFuncPtr):
            raise TypeError(f"register: not a compiled function; got {type(function).__name__}; expected a function of a ctypes library or an address; hint: pf.tuning.plugin_header() has its form")
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    entry = _C._add_plugin(op, f"{name}@{version}" if version else name, device, address, int(context), repeats)
    _held.setdefault(entry, []).append(function)
    return entry


def unregister(entry):
    """Removes an entry, the name that register() returned, after all queued work has ended. ValueError if there is none of this name."""
    _C.synchronize()  # what is queued may still call it
    _C._remove_plugin(entry)
    _held.pop(entry, None)


def plugins():
    """The entries that register() added and that are still there, a list of pairs (op, entry)."""
    return _C._plugins()


def load(names):
    """Imports the modules of a list with commas, which register their entries then. ImportError: one of them cannot be imported."""
    for module in filter(None, (n.strip() for n in names.split(","))):
        try:
            importlib.import_module(module)
        except Exception as e:
            raise ImportError(f"PYFLAME_PLUGINS: a module cannot be imported; got '{module}' ({type(e).__name__}: {e}); expected a module that calls pf.tuning.register; hint: PYTHONPATH names its folder") from e
