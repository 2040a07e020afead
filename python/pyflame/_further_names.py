"""Further names of what is there: PyTorch has many functions under two names, and those of nn.functional in the package itself. A name that has its own
function keeps it."""
from __future__ import annotations

import builtins

from . import _C, _refused
from ._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

    from ._annotations import DType, Device
    from ._aliases import split_with_sizes as unsafe_split_with_sizes
    from ._functions import outer as ger

    # The second names, which complete() adds when a program runs.
    arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, greater, greater_equal, less, less_equal, not_equal = (
        _C.acos, _C.acosh, _C.asin, _C.asinh, _C.atan, _C.atan2, _C.atanh, _C.gt, _C.ge, _C.lt, _C.le, _C.ne
    )

_SAME = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "ger": "outer", "unsafe_split_with_sizes": "split_with_sizes",
}  # fmt: skip
_IN_PLACE_OF = {f"{name}_": f"{of}_" for name, of in _SAME.items()}
FUNCTIONAL = frozenset("""alpha_dropout celu channel_shuffle cosine_embedding_loss cosine_similarity ctc_loss embedding_bag feature_alpha_dropout group_norm hardshrink hinge_embedding_loss
instance_norm kl_div margin_ranking_loss native_channel_shuffle pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rrelu rrelu_ selu selu_ celu_ threshold threshold_
triplet_margin_loss bilinear binary_cross_entropy_with_logits conv_tbc grid_sampler max_pool1d max_pool3d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d conv3d conv_transpose1d
conv_transpose3d""".split())


def complete(functions):
    """Adds the second names, at the end of the package's import."""
    for name, of in _SAME.items():
        if name not in functions and of in functions:
            functions[name] = functions[of]
        if not hasattr(Tensor, name) and hasattr(Tensor, of):
            setattr(Tensor, name, getattr(Tensor, of))
    for name, of in _IN_PLACE_OF.items():
        if not hasattr(Tensor, name) and hasattr(Tensor, of):
            setattr(Tensor, name, getattr(Tensor, of))
    if not hasattr(Tensor, "adjoint"):
        Tensor.adjoint = adjoint


def adjoint(input: Tensor) -> Tensor:
    """The last two dims swapped, and conjugated where the elements are complex."""
    return input.mH


def detach(input: Tensor) -> Tensor:
    """The same elements without history."""
    return input.detach()


def range(start: float = 0, end: float | None = None, step: float = 1, *, dtype: DType | None = None, device: Device | None = None,
          requires_grad: bool = False) -> Tensor:
    """start, start + step, ... up to end, which is included: PyTorch's old function. float32 unless dtype says otherwise. arange excludes the end."""
    if end is None:
        raise TypeError("range: no end; expected range(start, end)")
    count = int((end - start) / step) + 1
    if step == 0 or count < 1:
        raise RuntimeError(f"range: the step does not lead to the end; got {start}, {end}, {step}")
    values = start + step * _C.arange(count, dtype=_C.float64, device=device)
    values = values.to(dtype or _C.get_default_dtype())
    return values.requires_grad_() if requires_grad else values


def get_num_interop_threads() -> int:
    """1: ops run one after the other, each on all threads."""
    return 1


def set_num_interop_threads(num: int) -> None:
    """Does nothing: ops run one after the other, each on all threads."""


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept."""
    return False


def set_warn_always(b: bool) -> None:
    """Does nothing: notes are given once."""


def is_warn_always_enabled() -> bool:
    """Always False: notes are given once."""
    return False


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Always False: no op is without a deterministic way."""
    return False


def get_deterministic_debug_mode() -> int:
    """2 with deterministic algorithms, which is the start, otherwise 0."""
    return 2 if _C.are_deterministic_algorithms_enabled() else 0


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """'default' or 0 allows algorithms that are not deterministic; 'warn', 'error', 1 and 2 do not."""
    if debug_mode not in ("default", "warn", "error", 0, 1, 2):
        raise RuntimeError(f"set_deterministic_debug_mode: no such mode; got {debug_mode!r}; expected 'default', 'warn', 'error' or 0, 1, 2")
    _C.use_deterministic_algorithms(debug_mode not in ("default", 0))


def get_device_module(device: Device | None = None) -> ModuleType:
    """The module of a device's type: pyflame.cpu or pyflame.cuda."""
    from importlib import import_module

    where = _C.get_device() if device is None else str(_C.device(device))
    return import_module("pyflame.cpu" if where.startswith(("cpu", "reference", "null")) else "pyflame.cuda")


def compiled_with_cxx11_abi() -> bool:
    """Always True."""
    return True


eig = _refused.function("eig", "PyTorch removed it; use linalg.eig(A)")
symeig = _refused.function("symeig", "PyTorch removed it; use linalg.eigh(A), or linalg.eigvalsh(A)")
solve = _refused.function("solve", "PyTorch removed it; use linalg.solve(A, B); its A comes first")
lstsq = _refused.function("lstsq", "PyTorch removed it; use linalg.lstsq(A, B); its A comes first")
matrix_rank = _refused.function("matrix_rank", "PyTorch removed it; use linalg.matrix_rank(A)")
hash_tensor = _refused.function("hash_tensor", "compare tensors with pyflame.equal")


def _assert(condition: object, message: object) -> None:
    """AssertionError with the message unless the condition is true; the value of a tensor is read."""
    if not condition:
        raise AssertionError(message)


_SIZES = "sizes are numbers of Python: there is no tracing"
SymInt, SymFloat, SymBool = (_refused.cls(name, _SIZES) for name in ("SymInt", "SymFloat", "SymBool"))


def sym_int(a: float) -> int:
    """int(a)."""
    return int(a)


def sym_float(a: float) -> float:
    """float(a)."""
    return float(a)


def sym_not(a: object) -> bool:
    """not a."""
    return not a


def sym_max(a: float, b: float) -> float:
    """The larger number."""
    return max(a, b)


def sym_min(a: float, b: float) -> float:
    """The smaller number."""
    return min(a, b)


def sym_sum(args: Iterable[float]) -> float:
    """The sum of numbers."""
    return sum(args)


def sym_ite(b: object, t: Any, f: Any) -> Any:
    """t if b, otherwise f."""
    return t if b else f


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norms of the slices of v along dim, with the other dims kept at size 1: sum(|v|^pow)^(1 / pow). dim -1: one norm of all elements, without dims."""
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, [d for d in builtins.range(v.ndim) if d != dim % v.ndim], True)
