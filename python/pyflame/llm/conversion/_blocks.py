"""Numbers in the types of GGUF files: how many bytes they take, and the way from float32 to them and back.

Layouts: the format's description in ggml (ggml-common.h). A block of Q8_0, Q4_0 and Q5_0 has one scale; those of Q4_1 and Q5_1 have a scale and a least
value; those of the K types have scales of parts of the block, which are whole numbers times a scale of the block. Scales are rounded to float16
first and weights are divided by what they have become, so each weight gets the nearest of the numbers that its block has."""
from dataclasses import dataclass

import numpy as np

from ... import _C


@dataclass(frozen=True)
class Type:
    """A type of numbers. number: in a tensor's entry; file: general.file_type of a file whose matrices have it, None where the type is read and not written; elements
    and size (bytes) of a block."""

    name: str
    number: int
    elements: int
    size: int
    file: int = None


TYPES = {t.name: t for t in (
    Type("F32", 0, 1, 4, 0), Type("F16", 1, 1, 2, 1), Type("BF16", 30, 1, 2, 32),
    Type("Q4_0", 2, 32, 18, 2), Type("Q4_1", 3, 32, 20, 3), Type("Q5_0", 6, 32, 22, 8), Type("Q5_1", 7, 32, 24, 9), Type("Q8_0", 8, 32, 34, 7),
    Type("Q4_K", 12, 256, 144, 14), Type("Q5_K", 13, 256, 176, 16), Type("Q6_K", 14, 256, 210, 18),
    Type("Q2_K", 10, 256, 84), Type("Q3_K", 11, 256, 110), Type("IQ4_NL", 20, 32, 18), Type("IQ4_XS", 23, 256, 136),
)}  # fmt: skip
WRITTEN = tuple(t.name for t in TYPES.values() if t.file is not None)
BY_NUMBER = {t.number: t for t in TYPES.values()}
PLAIN = ("F32", "F16", "BF16")
_ARRAYS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def _halves(values):
    """float16 as bytes in a new last dim."""
    return np.ascontiguousarray(values.astype("<f2"))[..., None].view(np.uint8)


def _scale(values):
    """(float16 values as float32, 1 / values, 0 where they are 0). OverflowError for a scale beyond float16."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise OverflowError("a scale is beyond float16")
    with np.errstate(divide="ignore"):
        return rounded, np.where(rounded == 0, 0, 1 / rounded)


def _whole(values, low, high):
    return np.clip(np.rint(values), low, high).astype(np.int32)


def _extreme(x):
    """Of each row, the number with the largest absolute value."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]


def _low_and_high_halves(q):
    """32 numbers of 4 bits in 16 bytes: the first half is in the low bits."""
    return (q[..., :16] & 15 | (q[..., 16:] & 15) << 4).astype(np.uint8)


def _fifth_bits(q):
    return np.packbits((q >> 4 & 1).astype(np.uint8), axis=-1, bitorder="little")


def _q8_0(x):
    d, inverse = _scale(np.abs(x).max(-1) / 127)
    return np.concatenate([_halves(d), _whole(x * inverse[..., None], -127, 127).astype(np.int8).view(np.uint8)], -1)


def _symmetric(levels):
    """Q4_0 and Q5_0: (q - levels / 2) d. The number with the largest absolute value becomes the end of the scale with one level more."""

    def encode(x):
        d, inverse = _scale(_extreme(x) / -(levels // 2))
        q = _whole(x * inverse[..., None], -(levels // 2), levels // 2 - 1) + levels // 2
        return np.concatenate([_halves(d), *([_fifth_bits(q)] if levels == 32 else []), _low_and_high_halves(q)], -1)

    return encode


def _with_least(levels):
    """Q4_1 and Q5_1: q d + m."""

    def encode(x):
        low = x.min(-1)
        m, _ = _scale(low)
        d, inverse = _scale((x.max(-1) - m) / (levels - 1))
        q = _whole((x - m[..., None]) * inverse[..., None], 0, levels - 1)
        return np.concatenate([_halves(d), _halves(m), *([_fifth_bits(q)] if levels == 32 else []), _low_and_high_halves(q)], -1)

    return encode


def _q6_k(x):
    parts = x.reshape(*x.shape[:-1], 16, 16)
    scales = _extreme(parts) / -32
    d, inverse = _scale(_extreme(scales) / -128)
    s = _whole(scales * inverse[..., None], -128, 127)
    step = d[..., None] * s
    with np.errstate(divide="ignore"):
        q = _whole(parts * np.where(step == 0, 0, 1 / step)[..., None], -32, 31).reshape(*x.shape[:-1], 2, 4, 32) + 32
    low = np.concatenate([q[..., 0:2, :] & 15 | (q[..., 2:4, :] & 15) << 4], -1).reshape(*x.shape[:-1], 128)
    high = (q[..., 0, :] >> 4 | q[..., 1, :] >> 4 << 2 | q[..., 2, :] >> 4 << 4 | q[..., 3, :] >> 4 << 6).reshape(*x.shape[:-1], 64)
    return np.concatenate([low.astype(np.uint8), high.astype(np.uint8), s.astype(np.int8).view(np.uint8), _halves(d)], -1)


def _k_with_least(levels):
    """Q4_K and Q5_K: eight parts of 32, each q d s - e m with 6 bits for s and m."""

    def encode(x):
        parts = x.reshape(*x.shape[:-1], 8, 32)
        low = np.minimum(parts.min(-1), 0)
        scale = (np.maximum(parts.max(-1), 0) - low) / (levels - 1)
        d, d_inverse = _scale(scale.max(-1) / 63)
        e, e_inverse = _scale(-low.min(-1) / 63)
        s, m = _whole(scale * d_inverse[..., None], 0, 63), _whole(-low * e_inverse[..., None], 0, 63)
        step = (d[..., None] * s)[..., None]
        with np.errstate(divide="ignore"):
            q = _whole((parts + (e[..., None] * m)[..., None]) * np.where(step == 0, 0, 1 / step), 0, levels - 1)
        packed = np.concatenate([s[..., :4] | s[..., 4:] >> 4 << 6, m[..., :4] | m[..., 4:] >> 4 << 6, s[..., 4:] & 15 | (m[..., 4:] & 15) << 4], -1).astype(np.uint8)
        fifth = [sum((q[..., i, :] >> 4) << i for i in range(8)).astype(np.uint8)] if levels == 32 else []
        nibbles = (q[..., 0::2, :] & 15 | (q[..., 1::2, :] & 15) << 4).astype(np.uint8).reshape(*x.shape[:-1], 128)
        return np.concatenate([_halves(d), _halves(e), packed, *fifth, nibbles], -1)

    return encode


_ENCODERS = {
    "Q4_0": _symmetric(16), "Q4_1": _with_least(16), "Q5_0": _symmetric(32), "Q5_1": _with_least(32), "Q8_0": _q8_0, "Q4_K": _k_with_least(16), "Q5_K": _k_with_least(32),
    "Q6_K": _q6_k,
}  # fmt: skip


def _bfloat16(x):
    """Bits of the nearest bfloat16, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def encode(x, name):
    """float32 (rows, columns) as uint8 (rows, bytes of a row). OverflowError for numbers beyond the type's, ValueError for numbers that are not finite."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(x).all():
        raise ValueError("a weight is not finite")
    t = TYPES[name]
    if name in PLAIN:
        if name == "F16" and np.abs(x).max(initial=0) >= 65520:
            raise OverflowError("a weight is beyond float16")
        packed = x.astype("<f4") if name == "F32" else x.astype("<f2") if name == "F16" else _bfloat16(x)
        return packed.view(np.uint8).reshape(x.shape[0], -1)
    blocks = _ENCODERS[name](x.reshape(x.shape[0], -1, t.elements))
    return blocks.reshape(x.shape[0], -1)


def decode(blocks, name):
    """uint8 (rows, bytes of a row) as float32 (rows, columns)."""
    blocks = np.ascontiguousarray(blocks)
    if name in PLAIN:
        values = blocks.view(_ARRAYS[name])
        return (values.astype(np.uint32) << 16).view(np.float32) if name == "BF16" else values.astype(np.float32)
    return _C.decode_blocks(_C.tensor(blocks, device="cpu"), name).numpy()
