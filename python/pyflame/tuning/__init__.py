"""Which implementation computes an op: what was measured, what is forced, and measuring now.

    with pf.tuning.measure(budget=30):         # seconds
        step()                                 # the first run of each program measures
    print(pf.tuning.table())                   # what is known
    with pf.tuning.force("matmul", "gpu.blas"):
        step()
    pyflame tune train.py                      # the same for a whole program, with a comparison before and after
"""
import contextlib

from .. import _C, _refused
from .database import Row, problems, rows, table  # noqa: F401
from .plugin_entries import plugin_header, plugins, register, unregister  # noqa: F401

__all__ = ["Row", "force", "measure", "path", "plugin_header", "plugins", "problems", "register", "rows", "table", "unregister"]


def path():
    """The path of the file that measurements are kept in, a str. It is an SQLite database in PyFlame's cache folder."""
    return _C._choices_file()


@contextlib.contextmanager
def force(op, entry):
    """Within the context, `entry` computes every group that begins with `op` (names as pf.explain prints them): "gpu.matmul_units", or with a configuration
    "gpu.matmul_units:tile=64x64,splits=2". Where the entry cannot compute the group, fusion is given up, and if that does not help, the run raises an error.
    It holds for what runs within the context: results that are still pending at its end are computed there."""
    _C.synchronize()
    before = _C._force_entry(op, entry)
    try:
        yield
        _C.synchronize()
    finally:
        _C._force_entry(op, before)


def _checked(entries):
    """The names of entries as a list; [] for None."""
    if entries is None:
        return []
    names = None if isinstance(entries, str) else list(entries)
    if not names or not all(isinstance(name, str) and name and "," not in name and ":" not in name for name in names):
        raise ValueError(f"measure: not names of entries; got {entries!r}; expected a list such as ['gpu.blas', 'gpu.matmul_units'], without configurations")
    return names


@contextlib.contextmanager
def measure(budget=60.0, entries=None, all_algorithms=False):
    """Within the context, implementations and their configurations are timed against each other at the first run of each program, for at most `budget` seconds
    in all. A candidate must compute the right result. What wins is used from the next run on, and by later processes. Yields a function that returns
    what was done so far: a dict with the numbers of problems, entries, unsound entries and changed choices, the milliseconds spent, and algorithms_left, how many that libraries enumerate were not
    looked at. all_algorithms: these are tried, too, as far as the budget goes, and not only the usual number (the budget of one problem is then not limited). entries: a list of names as pf.explain
    prints them; these entries and their configurations alone are timed, besides PyFlame's own choice; None: those that PYFLAME_TUNE_ENTRIES names, or all. Entering it is a
    ValueError for a budget that is not above 0, and for entries that are no such list."""
    if budget <= 0:
        raise ValueError(f"measure: the budget is not positive; got {budget}; expected seconds")
    names = _checked(entries)
    _C.synchronize()
    start = _C._choice_stats()
    before, before_entries, before_all = _C._tune_budget_ms(), _C._tune_entries(), _C._tune_all_algorithms()
    if names:
        _C._set_tune_entries(names)
    _C._set_tune_budget_ms(start["spent_ms"] + 1000.0 * budget)
    _C._set_tune_all_algorithms(bool(all_algorithms))
    _C.clear_program_cache()  # those that are compiled already would not be measured

    def done():
        now = _C._choice_stats()
        return {key: now[key] - start[key] for key in now}

    try:
        yield done
        _C.synchronize()
    finally:
        _C._set_tune_budget_ms(before)
        _C._set_tune_entries(before_entries)
        _C._set_tune_all_algorithms(before_all)


_refused.unknown(globals())
