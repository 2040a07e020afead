"""Names of torch.compiler. PyFlame compiles every window of ops by itself; these do nothing."""
import contextlib

from . import _refused

allow_in_graph = assume_constant_result = disable = nested_compile_region = substitute_in_graph = _refused.identity


def compile(model=None, *args, **kwargs):
    """The same as pyflame.compile: returns model, a function or a module, as it is. Its ops are compiled window by window anyway. The further arguments are those of
    pyflame.compile and change nothing; TypeError for more than one by position."""
    from . import compile

    return compile(model, *args, **kwargs)


def reset():
    """Does nothing: there is no state of a compiler to forget. pyflame.clear_program_cache() forgets compiled programs."""


def cudagraph_mark_step_begin():
    """Does nothing: programs that repeat are replayed as GPU graphs without being asked."""


def is_compiling():
    """Always False: a function is never traced, it runs as it is."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def list_backends(exclude_tags=()):
    """Always an empty list: PyFlame has one compiler of its own, and no other can be chosen. exclude_tags is not used. Never raises."""
    return []


@contextlib.contextmanager
def set_stance(*args, **kwargs):
    """A context that changes nothing: windows of ops are compiled in it as well. The arguments are accepted for PyTorch's programs and not used; never raises."""
    yield
