"""The one formula for allowed errors.

    allowed = c * (eps(result) * |ref|  +  eps(accumulator) * growth(n) * magnitude)

c belongs to the op (0: the result is the reference rounded to the dtype, bit for bit), n is the number of terms that are added up
and magnitude is what their absolute values add up to. Half types accumulate in float32, so that only the first term knows them,
unless the op is a composition whose intermediates are tensors (``composed``).
"""

import numpy as np

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
LARGEST = {"float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}


def is_float(dtype):
    return dtype in EPS


def accumulator(dtype):
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def growth(n):
    """Rounding errors of n additions, relative to the sum of absolute values: they walk, they do not conspire."""
    return max(float(n), 1.0) ** 0.5


def allowed(c, dtype, reference, magnitude=None, length=1, composed=False):
    ref = np.abs(np.where(np.isfinite(reference), reference, 0.0))
    size = ref if magnitude is None else np.where(np.isfinite(magnitude), magnitude, 0.0)
    inner = EPS[dtype] if composed else EPS[accumulator(dtype)]
    return c * (EPS[dtype] * ref + inner * growth(length) * size) + TINY[dtype]


def round_to(values, dtype):
    """float64 values rounded to a dtype's values (still float64); to the nearest, ties to even."""
    values = np.asarray(values)
    if dtype == "bfloat16":
        with np.errstate(over="ignore"):
            bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isnan(values), np.nan, rounded.astype(np.float64)).reshape(values.shape)
    if dtype == "bool":
        return values != 0
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(dtype)
    return rounded.astype(np.float64) if is_float(dtype) else rounded


def differences(actual, reference, dtype, c, magnitude=None, length=1, composed=False):
    """Empty text when actual is right, otherwise what is wrong first."""
    actual, reference = np.asarray(actual), np.asarray(reference)
    if actual.shape != reference.shape:
        return f"shape {actual.shape} instead of {reference.shape}"
    if actual.size == 0:
        return ""
    if not is_float(dtype) or c == 0:
        expected = round_to(reference, dtype) if is_float(dtype) else reference
        same = (actual == expected) | (_is_nan(actual) & _is_nan(expected))
        limit = np.zeros(actual.shape)
    else:
        with np.errstate(invalid="ignore"):
            limit = np.broadcast_to(allowed(c, dtype, reference, magnitude, length, composed), actual.shape)
            same = np.abs(actual - reference) <= limit
        same |= (actual == reference) | (np.isnan(actual) & np.isnan(reference))
        # Beyond the largest number of a dtype lies infinity.
        same |= (np.isinf(actual)) & (np.sign(actual) == np.sign(reference)) & (np.abs(reference) + limit > LARGEST[dtype] * (1 - EPS[dtype]))
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return (f"{int((~same).sum())} of {actual.size} elements differ, first at {at}: "
            f"got {actual[at]!r}, expected {reference[at]!r}, allowed {limit[at]!r}")


def _is_nan(a):
    return np.isnan(a) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
