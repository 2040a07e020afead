"""Names of torch._dynamo. PyFlame compiles every window of ops by itself; these do nothing."""
from . import _refused
from ._refused import identity as allow_in_graph  # noqa: F401
from ._refused import identity as disable  # noqa: F401
from ._refused import identity as disallow_in_graph  # noqa: F401
from ._refused import identity as forbid_in_graph  # noqa: F401
from ._settings import Switches
from .compiler import is_compiling, reset  # noqa: F401

config = Switches("_dynamo.config", "accepted; it changes nothing, because windows of ops are compiled by themselves")
explain = _refused.function("_dynamo.explain", "pyflame.explain(fn, *args) shows how a call is computed")


def optimize(*args, **kwargs):
    """A decorator that gives the function back."""
    return lambda fn: fn


def graph_break(*args, **kwargs):
    """Does nothing."""


def mark_dynamic(*args, **kwargs):
    """Does nothing: programs are compiled for the shapes that occur."""


mark_static = maybe_mark_dynamic = mark_dynamic
