"""Switches of torch.backends. Those with a meaning here have it; the others are accepted, which is noted once for each."""
import contextlib

from .. import _C, _gpu
from .._settings import Switches

_ACCEPTED = "accepted; it changes nothing, because kernels are chosen by measurement and are deterministic unless use_deterministic_algorithms(False) is set"


class _Library(Switches):
    def __init__(self, name, available, **values):
        super().__init__(f"backends.{name}", _ACCEPTED, **values)
        object.__setattr__(self, "_available", available)

    def is_available(self):
        """Whether the library, or what does its work here, can be used."""
        return self._available()

    def version(self):
        """Not known: None."""
        return None

    @contextlib.contextmanager
    def flags(self, **values):
        """A context in which switches have these values."""
        before = {name: self.__dict__.get(name) for name in values}
        self.__dict__.update(values)
        try:
            yield
        finally:
            self.__dict__.update(before)


class _Matmul(Switches):
    """allow_tf32 is set_float32_matmul_precision('high') or 'highest'."""

    @property
    def allow_tf32(self):
        return _C.get_float32_matmul_precision() != "highest"

    def __setattr__(self, name, value):
        if name == "allow_tf32":
            _C.set_float32_matmul_precision("high" if value else "highest")
        elif name == "fp32_precision":
            _C.set_float32_matmul_precision("highest" if value == "ieee" else "high")
        else:
            super().__setattr__(name, value)


class _Attention(_Library):
    """Which kernels of attention may be used: the answer is always yes, and the fastest that fits is taken."""

    def __getattr__(self, name):
        if name.endswith("_sdp_enabled"):
            return lambda: True
        if name.startswith("enable_") and name.endswith("_sdp"):
            return lambda enabled: self.__setattr__(name[len("enable_") :], enabled)
        return super().__getattr__(name)

    @contextlib.contextmanager
    def sdp_kernel(self, *args, **kwargs):
        """Nothing."""
        yield


def _there_is_a_gpu():
    return _gpu.count() > 0


cudnn = _Library("cudnn", _there_is_a_gpu, enabled=True, benchmark=False, deterministic=True, allow_tf32=True, benchmark_limit=10)
cuda = _Attention("cuda", _there_is_a_gpu, matmul=_Matmul("backends.cuda.matmul", _ACCEPTED))
cuda.__dict__["is_built"] = _there_is_a_gpu
mps = _Library("mps", lambda: False)
mps.__dict__["is_built"] = lambda: False
xpu = _Library("xpu", lambda: False)
mkl = _Library("mkl", lambda: False)
mkldnn = _Library("mkldnn", lambda: True, enabled=True, deterministic=True, allow_tf32=False)
openmp = _Library("openmp", lambda: True)
opt_einsum = _Library("opt_einsum", lambda: False, enabled=False, strategy=None)
quantized = _Library("quantized", lambda: False, engine="none", supported_engines=[])
cpu = _Library("cpu", lambda: True)
cpu.__dict__["get_cpu_capability"] = lambda: "DEFAULT"


def _find_as_modules():
    """`import torch.backends.cudnn` finds the object."""
    import sys
    from importlib.machinery import ModuleSpec

    for library in (cudnn, cuda, mps, xpu, mkl, mkldnn, openmp, opt_einsum, quantized, cpu):
        name = f"{__name__}.{library._name.rpartition('.')[2]}"
        library.__dict__.update(__name__=name, __spec__=ModuleSpec(name, None), __loader__=None, __path__=[])
        sys.modules[name] = library


_find_as_modules()
