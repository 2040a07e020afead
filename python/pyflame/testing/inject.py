"""A kernel that fails on purpose: `with failing("matmul", run=3): ...`. For tests of what follows a failure."""

import contextlib

import pyflame as pf


class Injection:
    runs = None  # how many were counted, once it is over


@contextlib.contextmanager
def failing(op="", run=0, after=False):
    """Inside, the kernel of run number `run` (from 0), counted over kernels that have `op` among their ops (all kernels unless given),
    raises RuntimeError: before it writes anything, or `after` it has written its outputs. What was recorded before runs first; programs
    are planned anew. The null device, which computes nothing, fails and poisons as others do, and its values mean nothing."""
    injection = Injection()
    pf._C._start_injecting(op, run, after)
    try:
        yield injection
    finally:
        with contextlib.suppress(RuntimeError):
            pf.synchronize()  # what is pending belongs to this
        injection.runs = pf._C._stop_injecting()


@contextlib.contextmanager
def misbehaving(op, how, run=0, offset=0, count=4):
    """Inside, the kernel of run number `run` that has `op` among its ops misbehaves: it really accesses `count` bytes at `offset` bytes from the first byte of its
    result. how: 'writes' or 'reads' (on a GPU 'reads' writes, too); 'skips': it computes nothing, and its result stays as it was. For tests of the debug allocator;
    without that, the access goes wherever it goes."""
    injection = Injection()
    pf._C._start_misbehaving(op, run, how, offset, count)
    try:
        yield injection
    finally:
        with contextlib.suppress(RuntimeError):
            pf.synchronize()
        injection.runs = pf._C._stop_injecting()
