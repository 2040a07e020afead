"""8-bit floats: rounding to them, their values, and products with scales. The formats are written here by their definition, as tables of all 256 codes."""
import numpy as np

from . import Case, Spec, label

#          bits of the fraction, bias, the largest finite code, the code of NaN, whether there is an infinity
FORMATS = {"float8_e4m3fn": (3, 7, 0x7E, 0x7F, False), "float8_e5m2": (2, 15, 0x7B, 0x7F, True), "float8_e4m3fnuz": (3, 8, 0x7F, 0x80, False), "float8_e5m2fnuz": (2, 16, 0x7F, 0x80, False)}


def table(name):
    """The values of the codes 0 to 255, float64."""
    fraction, bias, largest, nan, infinite = FORMATS[name]
    values = np.empty(256)
    for code in range(256):
        size = code & 127
        exponent, digits = size >> fraction, size & (2**fraction - 1)
        value = digits * 2.0 ** (1 - bias - fraction) if exponent == 0 else (2**fraction + digits) * 2.0 ** (exponent - bias - fraction)
        if size > largest:
            value = np.inf if infinite and size == largest + 1 else np.nan
        values[code] = -value if code > 127 else value
    if nan == 0x80:
        values[0x80] = np.nan
    return values


def encoded(name, x):
    """The codes of the nearest values, of two the even one; beyond the largest number infinity, or NaN where there is none. x is rounded to float32 first."""
    fraction, bias, largest, nan, infinite = FORMATS[name]
    x = np.asarray(x, np.float32).astype(np.float64)
    finite = table(name)[: largest + 1]
    # One step beyond the largest number decides what is rounded to it.
    steps = np.append(finite, 2 * finite[-1] - finite[-2])
    size = np.abs(x)
    above = np.clip(np.searchsorted(steps, size), 1, len(steps) - 1)
    low, high = steps[above - 1], steps[above]
    code = np.where((size - low > high - size) | ((size - low == high - size) & (above % 2 == 0)), above, above - 1)
    code = np.where(size > steps[-1], len(steps) - 1, code)
    over = nan if nan == 0x80 else largest + 1
    sign = np.where(np.signbit(x), 128, 0)
    if nan == 0x80:
        sign = np.where(code == 0, 0, sign)
        result = np.where(code > largest, over, code | sign)
    else:
        result = np.minimum(code, over) | sign
    return np.where(np.isnan(x), nan, result).astype(np.uint8)


def wide(rng, shape):
    """Numbers of all sizes: subnormal ones of every format, and some too large for it. In each format some are halfway between two."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 12, shape)
    halves = np.ldexp(rng.integers(-31, 32, shape), rng.integers(-18, 12, shape))
    x = np.where(rng.random(shape) < 0.5, x, halves)
    return np.where(rng.random(shape) < 0.03, rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], shape), x)


def tame(rng, shape):
    return rng.integers(-40, 40, shape)


def all_codes(rng, shape):
    return np.resize(np.arange(256), shape).astype(np.uint8)


def finite_codes(name):
    """Codes of numbers, none of them large, so that sums are far from overflow."""
    values = table(name)
    codes = np.flatnonzero(np.abs(np.where(np.isfinite(values), values, np.inf)) <= 16).astype(np.uint8)
    return lambda rng, shape: rng.choice(codes, shape)


def _conversions():
    for name in FORMATS:
        for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "int8", "bool"):
            floats = dtype.startswith(("float", "bfloat"))
            for shape in ((), (0,), (1,), (65,), (31, 33), (1027,)) if dtype == "float32" else ((31, 33),):
                ops = (f"to_{name}",) + (() if dtype == "float32" else ("cast",))
                yield Case(f"to-{name}-{dtype}-{label(shape)}", ("to",), ops, (Spec(shape, dtype, wide if floats else None if dtype == "bool" else tame),),
                           lambda pf, x, name=name: x.to(getattr(pf, name)).view(pf.uint8), lambda x, name=name: encoded(name, x), out="uint8")  # fmt: skip
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            for shape in ((256,), (), (0,), (31, 33)) if dtype == "float32" else ((256,),):
                yield Case(f"from-{name}-{dtype}-{label(shape)}", ("to",), (f"from_{name}",), (Spec(shape, "uint8", all_codes),),
                           lambda pf, x, name=name, dtype=dtype: x.view(getattr(pf, name)).to(getattr(pf, dtype)), lambda x, name=name: table(name)[x], out=dtype)  # fmt: skip
        yield Case(f"rounded-{name}", ("to",), (f"to_{name}", f"from_{name}", "mul"), (Spec((31, 33), "float32", tame),),
                   lambda pf, x, name=name: (x * 0.37).to(getattr(pf, name)).to(pf.float32) * 2, lambda x, name=name: table(name)[encoded(name, np.float32(x) * np.float32(0.37))] * 2, composed=True, c=1)  # fmt: skip


def _transposed():
    # Whole and partial tiles, a matrix with space between its rows, and sizes that other kernels take.
    for shape, part in (((272, 144), None), ((64, 64), None), ((128, 400), 256), ((65, 96), None), ((160, 128), 144)):
        columns = slice(None) if part is None else slice(16, 16 + part) if part + 16 <= shape[1] else slice(0, part)
        yield Case(f"transposed-codes-{label(shape)}{'' if part is None else f'-{part}'}", ("contiguous",), ("cast",), (Spec(shape, "uint8", all_codes),),
                   lambda pf, x, columns=columns: x.view(pf.float8_e4m3fn)[:, columns].t().contiguous().view(pf.uint8), lambda x, columns=columns: np.ascontiguousarray(x[:, columns].T), out="uint8", composed=True)  # fmt: skip


def _product(names, dtype, shapes, scales):
    (m, k), n = shapes
    sizes = {"whole": ((), ()), "rows": ((m, 1), (1, n)), "blocks": ((m, -(-k // 128)), (-(-k // 128), -(-n // 128)))}[scales]

    def spread(scale, dims):
        for axis, size in enumerate(dims):
            if scale.ndim and scale.shape[axis] not in (1, size):
                scale = np.repeat(scale, 128, axis)[(slice(None),) * axis + (slice(size),)]
        return scale

    def factors(a, b, scale_a, scale_b):
        if scales == "blocks":
            scale_a, scale_b = np.repeat(scale_a, 128, 1)[:, :k], np.repeat(np.repeat(scale_b, 128, 0)[:k], 128, 1)[:, :n]
        return table(names[0])[a] * scale_a, table(names[1])[b.T] * scale_b

    def call(pf, a, b, scale_a, scale_b):
        return pf._C._scaled_mm(a.view(getattr(pf, names[0])), b.view(getattr(pf, names[1])).t(), scale_a, scale_b, dtype=getattr(pf, dtype))

    def reference(*x):
        a, b = factors(*x)
        return a @ b

    def magnitude(*x):
        a, b = factors(*x)
        return np.abs(a) @ np.abs(b)

    inputs = (Spec((m, k), "uint8", finite_codes(names[0])), Spec((n, k), "uint8", finite_codes(names[1])), Spec(sizes[0], "float32", lambda rng, shape: 0.5 + rng.random(shape)), Spec(sizes[1], "float32", lambda rng, shape: 0.5 + rng.random(shape)))
    # Hopper's matrix cores add such products with some 13 bits, counted from the largest one, so that a result of float32 has no more of them.
    c = 1000 if dtype == "float32" and scales == "whole" else 4
    return Case(f"scaled_mm-{names[0]}-{names[1]}-{dtype}-{label((m, k))}-{n}-{scales}", ("nn.functional.scaled_mm",), ("scaled_mm",), inputs, call, reference, c=c, length=k, magnitude=magnitude, out=dtype, composed=True,
                fused_exact=False, layouts=False)  # fmt: skip


def cases():
    products = []
    for wide_format, narrow in (("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")):
        for names in ((wide_format, wide_format), (narrow, wide_format), (narrow, narrow)):
            for dtype in ("bfloat16", "float16", "float32"):
                products.append(_product(names, dtype, ((48, 64), 32), "whole"))
        for scales in ("whole", "rows", "blocks"):
            products += [_product((wide_format, wide_format), "bfloat16", shapes, scales) for shapes in (((32, 256), 160), ((5, 7), 3), ((0, 16), 16), ((3, 0), 16))]
    return [*_conversions(), *_transposed(), *products]
