"""A kernel that fails on purpose: `with failing("matmul", run=3): ...`. For tests of what follows a failure."""

import contextlib

import pyflame as pf


@contextlib.contextmanager
def failing(op="", run=0, after=False):
    """Inside, the kernel of run number `run` (from 0), counted over kernels that have `op` among their ops (all kernels unless given),
    raises RuntimeError: before it writes anything, or `after` it has written its outputs. Programs are planned anew."""
    pf._C._start_injecting(op, run, after)
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            pf.synchronize()  # what is pending belongs to this
        pf._C._stop_injecting()
