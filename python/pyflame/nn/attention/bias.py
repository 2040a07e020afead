"""Causal masks of attention, for scaled_dot_product_attention(attn_mask=)."""
from ... import _C


def causal_upper_left(*size):
    """A bool mask [L, S]: query i sees the keys 0 to i."""
    return _C.tril(_C.ones(*size, dtype=_C.bool_))


def causal_lower_right(*size):
    """A bool mask [L, S] in which the last query sees all keys, the one before all but the last, and so on."""
    rows, columns = size
    return _C.tril(_C.ones(rows, columns, dtype=_C.bool_), columns - rows)
