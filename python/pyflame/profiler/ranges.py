"""Ranges for the profilers of the GPU vendors: rocprofv3 (roctx) and Nsight Systems (NVTX)."""
import functools

from .. import _C


class emit_ranges:
    """Passes the names of ops, modules, record_function and PyFlame's own ranges to roctx and NVTX: `with emit_ranges():`, or a decorator.

    It is on by itself where such a profiler has started the process (PYFLAME_EMIT_RANGES=auto). Ops run when their window is cut, so an op's range is where its kernel
    is launched; PYFLAME_WINDOW=1 runs each op where it is called, inside of its module's range.

    enabled=False changes nothing. Raises RuntimeError if neither library is found."""

    def __init__(self, enabled=True):
        self.enabled = bool(enabled)
        self._before = []

    def __enter__(self):
        if self.enabled and not _C._markers_open():
            raise RuntimeError("emit_ranges: no library takes ranges; expected roctx or NVTX; hint: install ROCm's rocprofiler-sdk-roctx or roctracer package, or start the program under Nsight Systems")
        self._before.append(_C._markers_on())
        if self.enabled:
            _C.synchronize()  # what was recorded before is not part of it
            _C._markers_emit(True)
        return self

    def __exit__(self, *exc):
        before = self._before.pop()
        if self.enabled:
            try:
                _C.synchronize()
            finally:
                _C._markers_emit(before)
        return False

    def __call__(self, fn):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with type(self)(self.enabled):
                return fn(*args, **kwargs)

        return wrapped


class emit_nvtx(emit_ranges):
    """emit_ranges by PyTorch's name, with its results and errors. enabled: as in emit_ranges. record_shapes is PyTorch's and changes nothing."""

    def __init__(self, enabled=True, record_shapes=False):
        super().__init__(enabled)
