"""Ranges of a program's own, for the profilers of the GPU vendors: roctx's on AMD's GPUs, NVTX's on NVIDIA's. Without such a library nothing happens.

pf.profiler.record_function names parts of a run for pf.profiler, too."""
import contextlib

from .. import _C


def range_push(msg):
    """Begins a range inside of this thread's current one. Returns its depth, negative if nobody listens. msg: its name, of which str() is taken; never raises."""
    return _C._marker_push(str(msg))


def range_pop():
    """Ends the range that this thread began last. Returns its depth, negative if nobody listens."""
    return _C._marker_pop()


def range_start(msg):
    """Begins a range that any thread may end. Returns its number for range_end, 0 without a library. msg: its name, of which str() is taken; never raises."""
    return _C._marker_start(str(msg))


def range_end(range_id):
    """Ends a range that range_start() began. range_id: what range_start() returned; TypeError for what is no int. Without a profiler of the vendor it does
    nothing."""
    _C._marker_stop(range_id)


def mark(msg):
    """Names this moment in the recording of a profiler of the vendor, rocprofv3 or Nsight Systems. Without one it does nothing. msg: its name, of which str() is
    taken; never raises."""
    _C._marker_mark(str(msg))


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """A context that is a range for a profiler of the vendor, and a decorator of functions whose calls are ranges. The name is msg.format(*args, **kwargs).

    Entering it raises the errors of str.format: IndexError or KeyError where msg names arguments that are not there; TypeError for a msg that is no str."""
    if not isinstance(msg, str):
        raise TypeError(f"nvtx.range: msg is no str; got {type(msg).__name__}; expected the name of the range")
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
