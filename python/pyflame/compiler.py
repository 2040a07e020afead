"""Names of torch.compiler. PyFlame compiles every window of ops by itself; these do nothing."""
import contextlib

from ._refused import identity as allow_in_graph  # noqa: F401
from ._refused import identity as assume_constant_result  # noqa: F401
from ._refused import identity as disable  # noqa: F401
from ._refused import identity as substitute_in_graph  # noqa: F401


def compile(model=None, *args, **kwargs):
    """The same as pyflame.compile."""
    from . import compile

    return compile(model, *args, **kwargs)


def reset():
    """Nothing."""


def cudagraph_mark_step_begin():
    """Nothing."""


def is_compiling():
    """No."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def list_backends(exclude_tags=()):
    """None."""
    return []


@contextlib.contextmanager
def set_stance(*args, **kwargs):
    """Nothing."""
    yield
