"""Causal masks of attention, for scaled_dot_product_attention(attn_mask=)."""
from __future__ import annotations

from ... import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ..._C import Tensor
    from ..._annotations import Shape


def _sizes(op, size):
    """(L, S), which may be given as two numbers or as one sequence."""
    given = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    if len(given) != 2:
        raise ValueError(f"{op}: wrong number of sizes; got {tuple(given)}; expected two, L and S")
    return given


def causal_upper_left(*size: int | Shape) -> Tensor:
    """A bool mask [L, S]: query i sees the keys 0 to i.

    size: two numbers L and S, or one pair. Raises ValueError for another number of sizes and a negative size; TypeError for what is no int.
    """
    rows, columns = _sizes("causal_upper_left", size)
    return _C.tril(_C.ones(rows, columns, dtype=_C.bool_))


def causal_lower_right(*size: int | Shape) -> Tensor:
    """A bool mask [L, S] in which the last query sees all keys, the one before all but the last, and so on.

    size: two numbers L and S, or one pair. Raises ValueError for another number of sizes and a negative size; TypeError for what is no int.
    """
    rows, columns = _sizes("causal_lower_right", size)
    return _C.tril(_C.ones(rows, columns, dtype=_C.bool_), columns - rows)
