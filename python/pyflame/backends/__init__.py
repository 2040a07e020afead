"""Switches of torch.backends. Those with a meaning here have it; the others are accepted, which is noted once for each."""
import contextlib

from .. import _C, _gpu, _settings

_ACCEPTED = "accepted; it changes nothing, because kernels are chosen by measurement and are deterministic unless use_deterministic_algorithms(False) is set"


class _Library(_settings.Switches):
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
        before = {name: getattr(self, name) for name in values}
        self._set(values)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, values):
        self.__dict__.update(values)


class _Rounding:
    """allow_tf32 and fp32_precision are set_float32_matmul_precision, or set_float32_conv_precision: 'high' or 'highest'."""

    _rounds = "matmul"

    @property
    def allow_tf32(self):
        return getattr(_C, f"get_float32_{self._rounds}_precision")() != "highest"

    @property
    def fp32_precision(self):
        return "tf32" if self.allow_tf32 else "ieee"

    def __setattr__(self, name, value):
        if name in ("allow_tf32", "fp32_precision"):
            rounded = value in ("tf32", "bf16") if name == "fp32_precision" else value
            getattr(_C, f"set_float32_{self._rounds}_precision")("high" if rounded else "highest")
        else:
            super().__setattr__(name, value)


class _Matmul(_Rounding, _settings.Switches):
    """torch.backends.cuda.matmul."""


class _Conv(_Rounding, _settings.Switches):
    """torch.backends.cudnn.conv."""

    _rounds = "conv"


class _Cudnn(_Rounding, _Library):
    """torch.backends.cudnn. allow_tf32 is off at first."""

    _rounds = "conv"

    def _set(self, values):
        for name in values.keys() & {"allow_tf32", "fp32_precision"}:
            setattr(self, name, values[name])
        super()._set({n: v for n, v in values.items() if n not in ("allow_tf32", "fp32_precision")})


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
        """Does nothing."""
        yield


def _there_is_a_gpu():
    return _gpu.count() > 0


cudnn = _Cudnn("cudnn", _there_is_a_gpu, enabled=True, benchmark=False, deterministic=True, benchmark_limit=10, conv=_Conv("backends.cudnn.conv", _ACCEPTED))
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
nnpack = _Library("nnpack", lambda: False)
mha = _Library("mha", lambda: False)
cpu = _Library("cpu", lambda: True)
cpu.__dict__["get_cpu_capability"] = lambda: "DEFAULT"


def _find_as_modules():
    """`import torch.backends.cudnn` finds the object."""
    import sys
    from importlib.machinery import ModuleSpec

    for library in (cudnn, cuda, mps, xpu, mkl, mkldnn, openmp, opt_einsum, quantized, nnpack, mha, cpu):
        name = f"{__name__}.{library._name.rpartition('.')[2]}"
        library.__dict__.update(__name__=name, __spec__=ModuleSpec(name, None), __loader__=None, __path__=[])
        sys.modules[name] = library


_find_as_modules()
