"""Sequences of any lengths without padding, under PyTorch's name."""
from __future__ import annotations

from ... import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._C import Tensor


def varlen_attn(query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int, is_causal: bool = False, *,
                scale: float | None = None, window_size: Sequence[int] = (-1, -1), enable_gqa: bool = False) -> Tensor:
    """Attention within each of several sequences that lie one after the other: query [Tq, H, D], key and value [Tk, Hk, D]. Sequence i has
    the queries cu_seq_q[i] up to cu_seq_q[i + 1], and the keys between the same entries of cu_seq_k; both are int32, begin with 0 and end
    with Tq and Tk. Sequences may be empty; none is longer than max_q and max_k. Offsets that do not fit are a ValueError: at the call
    where their values are at hand on the host, and when the result is read otherwise.

    is_causal, or window_size=(-1, 0): the last query of a sequence sees all of its keys, the one before all but the last, and so on. Other windows are a NotImplementedError.
    scale: 1 / sqrt(D) unless given. enable_gqa: key and value have fewer heads, whose number divides H."""
    window = tuple(window_size)
    if window not in ((-1, -1), (-1, 0)):
        raise NotImplementedError(f"varlen_attn: window_size {window_size} is not available; expected (-1, -1) or (-1, 0)")
    return _C.varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal or window == (-1, 0), scale=scale, enable_gqa=enable_gqa)
