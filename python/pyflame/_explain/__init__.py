"""pf.explain and `pyflame explain`: what was computed, how, what it should cost, and where and why it was divided."""
from __future__ import annotations

from .. import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _synchronize():
    with _C._CutCause("the end of what is explained"):
        _C.synchronize()


def explain(fn: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """Runs fn(*args, **kwargs) and returns a text on how it was computed. The most important comes first: totals with the time that they should take at the
    device's ceilings, the steps that cost most, why and where (file and line) windows were cut and fusion ended and what a fusion would save, which
    rewrites (pf.rewrites) fired on which line and why others nearly did, and what ran on a fallback. Then each window follows: its ops, the implementation of each step, and why others refused.

    Steps have a measured time too if a profile of them was recorded in this process before (pf.profiler.profile, the last one that ended). The ceilings are
    measured at the first call for a device, which takes about a second, and kept in PYFLAME_CACHE_DIR. docs/execution.md explains the text.

    TypeError if fn cannot be called, RuntimeError for an explain inside of another one. What fn raises is raised."""
    if not callable(fn):
        raise TypeError(f"explain: not a function; got {type(fn).__name__}; expected something to call; hint: pf.explain(lambda: x @ w)")
    from ..nn import _recurrence
    from ..profiler import last_averages
    from . import document, text

    _C.synchronize()
    _C._explain_begin(False)
    _recurrence.reasons = reasons = {}
    try:
        result = fn(*args, **kwargs)
        _synchronize()
    finally:
        found = _C._explain_end(False)
        _recurrence.reasons = None
    del result
    return text.render(document.make(found, averages=last_averages(), by_steps=reasons))
