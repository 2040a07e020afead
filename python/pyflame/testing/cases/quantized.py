"""Weights in GGUF's blocks of a few bits and in rows of 8-bit floats. The layouts are written here a second time, in NumPy and in float64."""

import numpy as np

from ..tolerance import EPS
from . import Case, Spec, label

# name: (elements and bytes of a block, where its float16 scales are)
BLOCKS = {
    "Q4_0": (32, 18, (0,)), "Q4_1": (32, 20, (0, 2)), "Q5_0": (32, 22, (0,)), "Q5_1": (32, 24, (0, 2)), "Q8_0": (32, 34, (0,)),
    "Q2_K": (256, 84, (80, 82)), "Q3_K": (256, 110, (108,)), "Q4_K": (256, 144, (0, 2)), "Q5_K": (256, 176, (0, 2)), "Q6_K": (256, 210, (208,)),
    "IQ4_NL": (32, 18, (0,)), "IQ4_XS": (256, 136, (0,)),
}  # fmt: skip
# Rows of 8-bit floats: (bits of the exponent, elements of a scale or None for the whole row).
FLOATS = {"F8_E4M3": (4, None), "F8_E4M3:32": (4, 32), "F8_E5M2": (5, None), "F8_E5M2:16": (5, 16)}
# The standard deviation of weights with random bits and scales of 1.
_SPREAD = {"Q4_0": 4.6, "Q4_1": 8.8, "Q5_0": 9.2, "Q5_1": 18, "Q8_0": 74, "Q2_K": 19, "Q3_K": 43, "Q4_K": 320, "Q5_K": 660, "Q6_K": 1370, "IQ4_NL": 67, "IQ4_XS": 1250}
# What the numbers of 4 bits of IQ4_NL and IQ4_XS stand for.
_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)


def random_blocks(name, rng, shape, spread=0.2):
    """Rows of blocks with random bits and random scales: uint8 of this shape, [rows, bytes of a row]. spread: about the weights' standard deviation."""
    _, size, scales = BLOCKS[name]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // size, size)).astype(np.uint8)
    for at in scales:
        values = (rng.standard_normal(blocks.shape[:2]) * spread / _SPREAD[name]).astype(np.float16)
        blocks[..., at:at + 2] = values[..., None].view(np.uint8)
    return blocks.reshape(shape)


def values_of_codes(exponent_bits):
    """The numbers of all codes of 8-bit floats, OCP's formats, float64."""
    codes, bits = np.arange(256), 7 - exponent_bits
    e, m = codes >> bits & (1 << exponent_bits) - 1, codes & (1 << bits) - 1
    bias = 2 ** (exponent_bits - 1) - 1
    values = np.where(e == 0, m / 2**bits * 2.0 ** (1 - bias), (1 + m / 2**bits) * 2.0 ** (e - bias))
    if exponent_bits == 4:
        values[codes & 127 == 127] = np.nan
    else:
        values[e == 31] = np.where(m[e == 31] == 0, np.inf, np.nan)
    return np.where(codes < 128, values, -values)


def rows_of_floats(codes, scales):
    """Rows of codes, uint8 [rows, columns], and of their scales, [rows, scales of a row]."""
    scales = np.ascontiguousarray(scales, np.float32).view(np.uint8)
    return np.concatenate([codes, scales, np.zeros((len(codes), -scales.shape[1] % 16), np.uint8)], 1)


def random_floats(name, rng, rows, columns, spread=0.2):
    """Rows of random finite codes and scales. spread: about the weights' standard deviation."""
    exponent_bits, group = FLOATS[name]
    values = values_of_codes(exponent_bits)
    finite = np.flatnonzero(np.isfinite(values))
    scales = rng.standard_normal((rows, -(-columns // (group or columns)))) * spread / values[finite].std()
    return rows_of_floats(rng.choice(finite, (rows, columns)).astype(np.uint8), scales)


def _decoded_floats(name, rows):
    exponent_bits, group = FLOATS[name]
    size = rows.shape[1]
    columns = next(c for c in range(16, size, 16) if c + -(-4 * -(-c // (group or c)) // 16) * 16 == size)
    count = -(-columns // (group or columns))
    scales = np.ascontiguousarray(rows[:, columns:columns + 4 * count]).view(np.float32).astype(np.float64)
    return values_of_codes(exponent_bits)[rows[:, :columns]] * np.repeat(scales, group or columns, 1)[:, :columns]


def _elements(name):
    """What the numbers of columns in the cases are multiples of."""
    return BLOCKS[name][0] if name in BLOCKS else 48


def _spec(name, rows, columns):
    if name in FLOATS:
        return Spec(random_floats(name, np.random.default_rng(0), rows, columns).shape, "uint8", lambda rng, shape: random_floats(name, rng, rows, columns))
    elements, size, _ = BLOCKS[name]
    return Spec((rows, columns // elements * size), "uint8", lambda rng, shape: random_blocks(name, rng, shape))


def decoded(name, rows):
    """float64 [rows, columns]."""
    if name in FLOATS:
        return _decoded_floats(name, rows)
    elements, size, scales = BLOCKS[name]
    b = rows.reshape(rows.shape[0], rows.shape[1] // size, size)
    d, m = (b[..., at:at + 2].copy().view(np.float16).astype(np.float64) for at in (scales[0], scales[-1]))
    nibbles = np.concatenate([b[..., -16:] & 15, b[..., -16:] >> 4], -1).astype(np.float64)
    i = np.arange(256)
    half, part, rest = i // 128, i % 128 // 32, i % 32
    if name in ("Q4_0", "Q4_1"):
        w = d * (nibbles - 8) if name == "Q4_0" else d * nibbles + m
    elif name in ("Q5_0", "Q5_1"):
        at = 2 if name == "Q5_0" else 4
        q = nibbles + 16 * np.unpackbits(b[..., at:at + 4], axis=-1, bitorder="little")
        w = d * (q - 16) if name == "Q5_0" else d * q + m
    elif name == "Q8_0":
        w = d * b[..., 2:].view(np.int8)
    elif name == "Q2_K":
        q, s = (b[..., 16 + half * 32 + rest] >> (part * 2) & 3).astype(np.float64), b[..., i // 16]
        w = d * (s & 15) * q - m * (s >> 4)
    elif name == "Q3_K":
        q = (b[..., 32 + half * 32 + rest] >> (part * 2) & 3) + 4.0 * (b[..., rest] >> (i // 32) & 1) - 4
        packed, k = b[..., 96:108], np.arange(16)
        scale = (packed[..., k % 8] >> (k // 8 * 4) & 15) + 16.0 * (packed[..., 8 + k % 4] >> (k // 4 * 2) & 3) - 32
        w = d * scale[..., i // 16] * q
    elif name == "IQ4_NL":
        w = d * _NON_LINEAR[nibbles.astype(int)]
    elif name == "IQ4_XS":
        k = np.arange(8)
        scale = (b[..., 4 + k // 2] >> (k % 2 * 4) & 15) + 16.0 * (b[..., 2 + k // 4] >> (k % 4 * 2) & 3) - 32
        w = d * scale[..., i // 32] * _NON_LINEAR[b[..., 8 + i // 32 * 16 + rest % 16] >> (rest // 16 * 4) & 15]
    elif name == "Q6_K":
        low = b[..., half * 64 + part % 2 * 32 + rest] >> (part // 2 * 4) & 15
        q = low + 16.0 * (b[..., 128 + half * 32 + rest] >> (part * 2) & 3) - 32
        w = d * b[..., 192:208].view(np.int8)[..., i // 16] * q
    else:
        packed, at = b[..., 4:16].astype(int), 16 if name == "Q4_K" else 48
        scale = np.concatenate([packed[..., :4] & 63, packed[..., 8:] & 15 | packed[..., :4] >> 6 << 4], -1)
        minimum = np.concatenate([packed[..., 4:8] & 63, packed[..., 8:] >> 4 | packed[..., 4:8] >> 6 << 4], -1)
        q = (b[..., at + i // 64 * 32 + i % 32] >> (i // 32 % 2 * 4) & 15).astype(np.float64)
        if name == "Q5_K":
            q += 16.0 * (b[..., 16 + i % 32] >> (i // 32) & 1)
        w = d * scale[..., i // 32] * q - m * minimum[..., i // 32]
    return w.reshape(rows.shape[0], -1)


def _magnitude(name, dtype):
    """What the tolerance's epsilon is multiplied with: the sum of the terms, and by how much rounding 32 elements to 8 bits, as GPUs do, may change a product.
    Products with 8-bit floats round nothing and add in float32; a bias is added to the product in its dtype."""

    def magnitude(x, blocks, bias=None):
        w = np.abs(decoded(name, blocks))
        if name in FLOATS:
            total = np.abs(x) @ w.T * (EPS["float32"] / EPS["float64"] if dtype == "float64" else 1)
            return total if bias is None else total + np.abs(bias) + np.abs(x @ decoded(name, blocks).T) * max(0, EPS[dtype] / EPS["float32"])
        parts, columns = np.abs(x).reshape(-1, x.shape[-1] // 32, 32), w.shape[1]
        rounding = (parts.max(-1) / 254) @ w.reshape(-1, columns // 32, 32).sum(-1).T
        total = np.abs(x).reshape(-1, columns) @ w.T + rounding / EPS["float32" if dtype != "float64" else dtype]
        return total.reshape(*x.shape[:-1], -1) + (0 if bias is None else np.abs(bias))

    return magnitude


def _products():
    for name in (*BLOCKS, *FLOATS):
        elements = _elements(name)
        shapes = [((3, elements), 8), ((2, 5, 2 * elements), 13), ((elements,), 3)] + ([((1, 5 * elements), 17), ((7, 3 * elements), 1)] if name in ("Q4_0", "Q8_0", "Q6_K", *FLOATS) else [])
        for k, (shape, outputs) in enumerate(shapes):
            for dtype in ("float32", "float16", "bfloat16", "float64") if k == 1 else ("float32",):
                for tiled in (False, True):
                    inputs = (Spec(shape, dtype), _spec(name, outputs, shape[-1]), Spec((outputs,), dtype))
                    inputs = inputs if k == 1 else inputs[:2]

                    def call(pf, x, w, *bias, name=name, outputs=outputs, tiled=tiled):
                        return pf.quantized_linear(x, pf.weight_tiles(w, name) if tiled else w, name, *bias, tiled_rows=outputs if tiled else 0)

                    yield Case(
                        f"quantized_linear-{name}-{'tiles' if tiled else 'rows'}-{dtype}-{label(shape)}-{outputs}", ("quantized_linear",) + (("weight_tiles",) if tiled else ()), ("quantized_linear",),
                        inputs, call, lambda x, w, *bias, name=name: x @ decoded(name, w).T + (bias[0] if bias else 0), c=2, length=shape[-1], magnitude=_magnitude(name, dtype))  # fmt: skip


def _by_groups(name, x, blocks, ends):
    w, begins = decoded(name, blocks).reshape(len(ends), -1, x.shape[1]), [0, *ends[:-1]]
    return np.concatenate([x[i:j] @ w[g].T for g, (i, j) in enumerate(zip(begins, ends))])


def _groups():
    for name in (*BLOCKS, *FLOATS):
        elements = _elements(name)
        for k, (ends, outputs) in enumerate((((2, 2, 5), 8), ((0, 7, 7, 40), 16), ((3, 4), 5))):
            rows, columns = ends[-1], elements * (1 + k % 2)
            for dtype in ("float32", "float16", "bfloat16") if k == 0 else ("float32",):
                for tiled in (False, True) if outputs % 8 == 0 else (False,):
                    inputs = (Spec((rows, columns), dtype), _spec(name, outputs * len(ends), columns), Spec((len(ends),), "int32", lambda rng, shape, ends=ends: np.array(ends, np.int32)))

                    def call(pf, x, w, offs, name=name, outputs=outputs, tiled=tiled):
                        rows = w.shape[0]
                        return pf.quantized_grouped_mm(x, pf.weight_tiles(w, name) if tiled else w, name, offs, tiled_rows=rows if tiled else 0)

                    def magnitude(x, w, ends, name=name, dtype=dtype):
                        each, begins = w.reshape(len(ends), -1, w.shape[1]), [0, *ends[:-1]]
                        return np.concatenate([_magnitude(name, dtype)(x[i:j], each[g]) for g, (i, j) in enumerate(zip(begins, ends)) if j > i])

                    yield Case(
                        f"quantized_grouped_mm-{name}-{'tiles' if tiled else 'rows'}-{dtype}-{label((rows, columns))}-{outputs}", ("quantized_grouped_mm",) + (("weight_tiles",) if tiled else ()), ("quantized_grouped_mm",),
                        inputs, call, lambda x, w, ends, name=name: _by_groups(name, x, w, ends), c=2, length=columns, magnitude=magnitude, own_values=True)  # fmt: skip


def _decoding():
    for name in (*BLOCKS, *FLOATS):
        elements = _elements(name)
        yield Case(
            f"decode_blocks-{name}", ("decode_blocks",), ("decode_blocks",), (_spec(name, 5, 2 * elements),),
            lambda pf, w, name=name: pf.decode_blocks(w, name), lambda w, name=name: decoded(name, w), c=4, magnitude=lambda w, name=name: np.abs(decoded(name, w)) + 1, out="float32")  # fmt: skip


def cases():
    return [*_products(), *_groups(), *_decoding()]
