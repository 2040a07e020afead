"""Marks of NVIDIA's profiler, which nobody reads: pf.profiler.profile measures a run."""
import contextlib


def start():
    """Nothing."""


def stop():
    """Nothing."""


@contextlib.contextmanager
def profile():
    """Nothing."""
    yield
