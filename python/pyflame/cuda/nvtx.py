"""Marks of NVIDIA's profiler, which nobody reads: pf.profiler.record_function names parts of a run."""
import contextlib


def range_push(msg):
    """Nothing; returns the depth 0."""
    return 0


def range_pop():
    """Nothing; returns the depth 0."""
    return 0


def mark(msg):
    """Nothing."""


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """Nothing."""
    yield
