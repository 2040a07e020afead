"""Recomputation of intermediates in the backward pass."""
from __future__ import annotations

from .. import _C
from .._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

enabled = True  # the setting gradient_checkpointing = false switches it off
used = False  # whether the program has asked for recomputation


def _checked(result):
    if not isinstance(result, (Tensor, tuple, list)):
        raise TypeError(f"checkpoint: the function returned {type(result).__name__}; expected a tensor or a tuple of tensors")
    return result


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: object = None, preserve_rng_state: object = True) -> Any:
    """Runs function(*args) without keeping its intermediates. The backward pass computes them again, with the same random numbers and in the same
    mixed precision.

    function takes and returns tensors (a tensor or a tuple); other arguments are passed on as they are. With pf.settings(gradient_checkpointing=False) the
    intermediates are kept. use_reentrant and preserve_rng_state are accepted for PyTorch's programs and change nothing.

    TypeError where the function returns anything else than tensors.
    """
    global used
    used = True
    if not enabled:
        result = _checked(function(*args))
        return result if isinstance(result, Tensor) else tuple(result)
    tensor_at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    single = []
    kinds = {args[i].device.type for i in tensor_at} | {_C.get_device().partition(":")[0]}
    precision = {kind: _C._autocast(kind) for kind in kinds}

    def run(tensors):
        full = list(args)
        for i, t in zip(tensor_at, tensors):
            full[i] = t
        before = {kind: _C._autocast(kind) for kind in kinds}
        try:
            for kind, mode in precision.items():
                _C._set_autocast(kind, *mode)
            result = _checked(function(*full))
        finally:
            for kind, mode in before.items():
                _C._set_autocast(kind, *mode)
        single.append(isinstance(result, Tensor))
        return [result] if single[-1] else list(result)

    outs = _C._checkpoint(run, [args[i] for i in tensor_at])
    return outs[0] if single[0] else tuple(outs)
