"""pf.compile, which has nothing to do, and names of torch that are constants or refused."""
from __future__ import annotations

import math

from . import _C
from ._notes import once

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, overload

    from ._annotations import Function
else:
    from ._public import overload

_SPARSE = "sparse tensors are not available; dense ones and index ops (index_add, scatter_add) do their work"
_QUANTIZED = "quantized tensors are not available; float16 and bfloat16 take half of the memory"
_PROCESS = "random numbers are one sequence for all devices; manual_seed() starts it"
REFUSED = {
    **dict.fromkeys(("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor", "sparse_compressed_tensor", "smm", "sspaddmm", "hspmm", "hsmm", "saddmm"), _SPARSE),
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "dequantize", "q_scale", "q_zero_point", "empty_quantized", "fake_quantize_per_tensor_affine",
                     "fake_quantize_per_channel_affine", "choose_qparams_optimized"), _QUANTIZED),
    **dict.fromkeys(("cond", "while_loop"), "write the condition or the loop in Python"),
    "from_file": "map the file with numpy.memmap and share it with pyflame.from_numpy",
    "lobpcg": "pyflame.linalg.eigh computes all eigenvalues",
}
CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e, "newaxis": None, "legacy_contiguous_format": _C.contiguous_format, "has_lapack": True, "has_mkl": False, "has_openmp": True,
             "has_spectral": True, "has_cuda": False, "has_mps": False, "torch_version": None, "AcceleratorError": _C.DeviceError}


@overload
def compile(model: Function, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False, **kwargs: Any) -> Function: ...


@overload
def compile(model: None = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False, **kwargs: Any) -> Callable[[Function], Function]: ...


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False, **kwargs: Any) -> Any:
    """Returns its argument, and says so in one message: PyFlame compiles all ops without being asked, so there is nothing to do. Also a decorator.

    model: a module or a function. fullgraph, dynamic, backend, mode, options, disable and kwargs are accepted for PyTorch's programs and change
    nothing. What it is given is returned unchecked, and nothing is raised; without a model it returns a decorator.
    """
    if model is None:
        return lambda fn: compile(fn)
    once("compile", "returns its argument; every window of ops is compiled by itself, without a call")
    return model


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turns the detection of NaN gradients on or off, as autograd.set_detect_anomaly does: with it, a NaN in a gradient is a RuntimeError. With check_nan=False it is off.
    """
    _C._set_anomaly(bool(mode and check_nan))


def is_anomaly_check_nan_enabled() -> bool:
    """Whether a NaN in a gradient is an error: True after set_anomaly_enabled(True) and inside autograd.detect_anomaly()."""
    return _C.is_anomaly_enabled()
