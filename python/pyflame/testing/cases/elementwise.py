"""Unary, binary and ternary ops, casts, in-place forms and mixed dtypes."""

import math

import numpy as np

from . import FLOATS, INTS, SHAPES, Case, Spec, away_from_zero, booleans, integers, label, literal, normal, positive, smooth

_erf, _erfc = np.vectorize(math.erf, otypes=[np.float64]), np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def softplus(x, beta=1.0, threshold=20.0):
    z = x * beta
    return np.where(z > threshold, x, (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta)


def at_minus_infinity(f):
    """The limit there, 0, where the formula says 0 times infinity."""
    return lambda x: np.where(np.isneginf(x), 0.0, f(x))


def gelu(x):
    return 0.5 * x * _erfc(-x / math.sqrt(2))


def gelu_tanh(x):
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _nan_where(bad, y):
    return np.where(bad, np.nan, y)


def inside(rng, shape):
    """Values in the open interval (-1, 1), not so near its ends that their rounding decides."""
    return rng.uniform(-0.95, 0.95, shape)


def above_one(rng, shape):
    return 1.05 + np.abs(rng.standard_normal(shape))


# name: (reference, values, factor, magnitude, differentiable). Factor 0: correctly rounded by IEEE 754, or a selection.
UNARY = {
    "neg": (np.negative, normal, 0, None, True),
    "abs": (np.abs, away_from_zero, 0, None, True),
    "sign": (np.sign, smooth, 0, None, True),
    "sqrt": (np.sqrt, positive, 0, None, True),
    "rsqrt": (lambda x: 1 / np.sqrt(x), positive, 2, None, True),
    "reciprocal": (lambda x: 1 / x, away_from_zero, 0, None, True),
    "exp": (np.exp, normal, 4, None, True),
    "exp2": (np.exp2, normal, 4, None, True),
    "expm1": (np.expm1, normal, 4, None, True),
    "log": (np.log, positive, 4, None, True),
    "log2": (np.log2, positive, 4, None, True),
    "log10": (np.log10, positive, 4, None, True),
    "log1p": (np.log1p, positive, 4, None, True),
    "sin": (np.sin, normal, 4, np.ones_like, True),
    "cos": (np.cos, normal, 4, np.ones_like, True),
    "tan": (np.tan, inside, 8, lambda x: 1 + np.tan(x) ** 2, True),
    "asin": (np.arcsin, inside, 4, None, True),
    "acos": (np.arccos, inside, 4, None, True),
    "atan": (np.arctan, normal, 4, None, True),
    "sinh": (np.sinh, normal, 6, None, True),
    "cosh": (np.cosh, normal, 6, None, True),
    "tanh": (np.tanh, normal, 4, None, True),
    "asinh": (np.arcsinh, normal, 4, None, True),
    "acosh": (np.arccosh, above_one, 4, None, True),
    "atanh": (np.arctanh, inside, 4, None, True),
    "erf": (_erf, normal, 4, None, True),
    "sigmoid": (sigmoid, normal, 4, None, True),
    "relu": (lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)), away_from_zero, 0, None, True),
    "silu": (at_minus_infinity(lambda x: x * sigmoid(x)), normal, 6, None, True),
    "floor": (np.floor, smooth, 0, None, True),
    "ceil": (np.ceil, smooth, 0, None, True),
    "round": (np.round, smooth, 0, None, True),
    "trunc": (np.trunc, smooth, 0, None, True),
    "square": (np.square, normal, 0, None, True),
    # 1 + erf loses what erf has below -1, so the error counts against x.
    "gelu": (at_minus_infinity(gelu), normal, 4, np.abs, True),
    "softplus": (softplus, normal, 4, None, True),
    "leaky_relu": (lambda x: np.where(x > 0, x, x * 0.01), away_from_zero, 1, None, True),
    "isnan": (np.isnan, normal, 0, None, False),
    "isinf": (np.isinf, normal, 0, None, False),
    "logical_not": (np.logical_not, integers(-1, 2), 0, None, False),
}
COMPOSED = {"square": ("mul",), "trunc": ("floor", "ceil", "where", "lt")}
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 65504.0, -65504.0, 1e-6, -1e-6, 20.5, -20.5])
INT_UNARY = ("neg", "abs", "sign", "relu", "floor", "ceil", "round", "trunc", "square", "logical_not")


def _unary():
    for name, (reference, values, c, magnitude, differentiable) in UNARY.items():
        predicate = name in ("isnan", "isinf", "logical_not")
        for dtype in FLOATS:
            for shape in SHAPES if dtype == "float32" else ((65,), (31, 33)):
                yield Case(
                    f"{name}-{dtype}-{label(shape)}", (name,), COMPOSED.get(name, (name,)), (Spec(shape, dtype, values),),
                    lambda pf, x, name=name: getattr(pf, name)(x), reference, c=c, magnitude=magnitude, out="bool" if predicate else None,
                    grad=(0,) if differentiable else (), flops=lambda s: int(np.prod(s)), bytes=lambda s, d=dtype: 2 * int(np.prod(s)),
                )
        if name != "sign":  # the sign of NaN is nobody's business
            yield Case(f"{name}-special", (name,), (), (Spec(SPECIAL.shape, "float32", literal(SPECIAL)),), lambda pf, x, name=name: getattr(pf, name)(x),
                       _quiet(reference), c=c, magnitude=magnitude, out="bool" if predicate else None)
        if name in INT_UNARY:
            for dtype in INTS if name not in ("neg", "abs") else INTS[:4]:
                yield Case(f"{name}-{dtype}", (name,), (), (Spec((65,), dtype, integers(0, 10) if dtype == "uint8" else integers(-10, 10)),),
                           lambda pf, x, name=name: getattr(pf, name)(x), lambda x, r=reference, d=dtype, p=predicate: r(x).astype(bool if p else d), out="bool" if predicate else None)
    for dtype in FLOATS:
        x = (Spec((31, 33), dtype),)
        yield Case(f"gelu-tanh-{dtype}", ("gelu",), ("gelu_tanh", "gelu_tanh_grad"), x, lambda pf, x: pf.gelu(x, approximate="tanh"), gelu_tanh, grad=(0,), c=6, magnitude=np.abs)
        yield Case(f"gelu-silu-grads-{dtype}", ("gelu", "silu"), ("gelu_grad", "silu_grad"), x, lambda pf, x: pf.silu(pf.gelu(x)), lambda x: gelu(x) * sigmoid(gelu(x)),
                   grad=(0,), c=8, magnitude=np.abs, composed=True)
        yield Case(f"softplus-parameters-{dtype}", ("softplus",), ("softplus",), x, lambda pf, x: pf.softplus(x, beta=2.0, threshold=4.0), lambda x: softplus(x, 2.0, 4.0), c=4)
        yield Case(f"leaky_relu-slope-{dtype}", ("leaky_relu",), ("leaky_relu",), x, lambda pf, x: pf.leaky_relu(x, 0.3), lambda x: np.where(x > 0, x, 0.3 * x), c=1)
    # Integers become float32.
    yield Case("exp-int64", ("exp",), ("exp",), (Spec((65,), "int64", integers(-10, 10)),), lambda pf, x: pf.exp(x), lambda x: np.exp(x.astype(np.float64)), c=4, out="float32")


def _quiet(f):
    def run(*xs):
        with np.errstate(all="ignore"):
            return f(*xs)

    return run


def _maximum(f):
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, f(a, b)) if np.asarray(a).dtype.kind == "f" else f(a, b)


BINARY = {
    "add": (np.add, normal, normal, 0),
    "sub": (np.subtract, normal, normal, 0),
    "mul": (np.multiply, normal, normal, 0),
    "div": (np.divide, normal, away_from_zero, 0),
    "floor_divide": (np.floor_divide, smooth, away_from_zero, 0),
    "remainder": (np.remainder, smooth, away_from_zero, 0),
    "pow": (np.power, positive, lambda rng, shape: 1.5 * rng.standard_normal(shape), 8),
    "atan2": (np.arctan2, normal, away_from_zero, 4),
    "maximum": (_maximum(np.maximum), normal, normal, 0),
    "minimum": (_maximum(np.minimum), normal, normal, 0),
    "eq": (np.equal, integers(0, 3), integers(0, 3), 0),
    "ne": (np.not_equal, integers(0, 3), integers(0, 3), 0),
    "lt": (np.less, integers(0, 3), integers(0, 3), 0),
    "le": (np.less_equal, integers(0, 3), integers(0, 3), 0),
    "gt": (np.greater, integers(0, 3), integers(0, 3), 0),
    "ge": (np.greater_equal, integers(0, 3), integers(0, 3), 0),
    "logical_and": (np.logical_and, integers(0, 2), integers(0, 2), 0),
    "logical_or": (np.logical_or, integers(0, 2), integers(0, 2), 0),
    "logical_xor": (np.logical_xor, integers(0, 2), integers(0, 2), 0),
}
PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
BROADCASTS = (((31, 33), (33,)), ((31, 1), (1, 33)), ((2, 3, 5), (3, 1)), ((), (65,)), ((0,), (1,)))
PAIRS = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0, -1.0, 3.5, -2.0])


def _binary():
    for name, (reference, left, right, c) in BINARY.items():
        predicate = name in PREDICATES
        out = "bool" if predicate else None
        # A quotient beside an integer may round to it; the floor then jumps. Such pairs of values are a matter of the special cases.
        stepped = name in ("floor_divide", "remainder")
        grad = () if predicate or name == "floor_divide" else (0, 1)

        def call(pf, a, b, name=name):
            return getattr(pf, name)(a, b)

        for dtype in FLOATS:
            for shape in SHAPES if dtype == "float32" else ((65,), (31, 33)):
                yield Case(f"{name}-{dtype}-{label(shape)}", (name,), (name,), (Spec(shape, dtype, left), Spec(shape, dtype, right)), call, reference, grad=grad, c=c or (2 if stepped else 0),
                           magnitude=(lambda a, b: np.abs(a) + np.abs(b)) if stepped else _power_magnitude if name == "pow" else None, out=out,
                           flops=lambda s, t: int(np.prod(s)), bytes=lambda s, t: 3 * int(np.prod(s)))
        for i, (s, t) in enumerate(BROADCASTS):
            yield Case(f"{name}-broadcast-{i}", (name,), (name,), (Spec(s, "float32", left), Spec(t, "float32", right)), call, reference, grad=grad, c=c or (2 if stepped else 0),
                       magnitude=(lambda a, b: np.abs(a) + np.abs(b)) if stepped else _power_magnitude if name == "pow" else None, out=out)
        a, b = (m.ravel() for m in np.meshgrid(PAIRS, PAIRS))
        if not stepped:
            yield Case(f"{name}-special", (name,), (name,), (Spec(a.shape, "float32", literal(a)), Spec(b.shape, "float32", literal(b))), call, _quiet(reference), c=c, out=out)
        if stepped:  # the divisors that are all ones in memory: no quotient for signed numbers' lowest, and a number like others without a sign
            for dtype in INTS:
                info = np.iinfo(dtype)
                a, b = (m.ravel() for m in np.meshgrid(np.array([info.min, info.min + 1, 1, 7, info.max - 1, info.max]), np.array([info.max, info.max - 1, 3] + ([-1, -3] if info.min else []))))
                yield Case(f"{name}-{dtype}-extremes", (name,), (name,), (Spec(a.shape, dtype, literal(a)), Spec(b.shape, dtype, literal(b))), call, _quiet(_wrapped(reference, dtype)))
        for dtype in INTS:
            if name in ("div", "pow", "atan2") and dtype == "uint8":
                continue
            low = integers(0, 5) if name == "pow" else integers(1, 10)
            values = integers(0, 10) if dtype == "uint8" else integers(-10, 10)
            expected = {"div": "float32", "atan2": "float32"}.get(name, "bool" if predicate else dtype)
            int_reference = (lambda a, b, f=reference: f(a.astype(np.float64), b)) if expected == "float32" else _wrapped(reference, expected)
            yield Case(f"{name}-{dtype}", (name,), (name,), (Spec((65,), dtype, integers(-2, 3) if name == "pow" else values), Spec((65,), dtype, low)), call, int_reference, c=c if expected == "float32" else 0, out=expected)
    for name in ("logical_and", "logical_or", "logical_xor", "eq", "ne"):
        yield Case(f"{name}-bool", (name,), (name,), (Spec((65,), "bool"), Spec((65,), "bool")), lambda pf, a, b, name=name: getattr(pf, name)(a, b), BINARY[name][0], out="bool")


def _power_magnitude(a, b):
    with np.errstate(all="ignore"):
        return np.power(a, b) * (1 + np.abs(b * np.log(a)))


def _wrapped(f, dtype):
    return lambda a, b: np.asarray(f(a, b)).astype(dtype)


def _mixed():
    """Promotion: PyTorch's table."""
    for a, b, out in (("int64", "float32", "float32"), ("float16", "float32", "float32"), ("float16", "bfloat16", "float32"), ("uint8", "int8", "int16"), ("bool", "int64", "int64"),
                      ("int32", "int64", "int64"), ("float32", "float64", "float64"), ("int64", "float16", "float16"), ("bool", "bfloat16", "bfloat16")):
        small = integers(0, 2)
        yield Case(f"add-{a}-{b}", ("add",), ("cast", "add"), (Spec((65,), a, small), Spec((65,), b, small)), lambda pf, x, y: pf.add(x, y),
                   lambda x, y: (x.astype(np.float64) + y).astype(np.float64 if "float" in out else out), out=out)
    numbers = (("float32", 2, "float32"), ("int64", 2, "int64"), ("int64", 0.5, "float32"), ("bool", 3, "int64"), ("float16", 0.5, "float16"), ("uint8", 7, "uint8"))
    for dtype, number, out in numbers:
        yield Case(f"mul-{dtype}-number-{number}", ("mul",), ("mul",), (Spec((65,), dtype, integers(0, 5)),), lambda pf, x, n=number: pf.mul(x, n),
                   lambda x, n=number, o=out: x.astype(np.float64) * n if "float" in o else x.astype(np.int64) * n, out=out)
    # A 0-d tensor does not widen a tensor of its own kind.
    yield Case("add-scalar-tensor", ("add",), ("add",), (Spec((65,), "float32"), Spec((), "float64", literal(0.5))), lambda pf, x, y: pf.add(x, y), lambda x, y: x + 0.5, out="float32", c=1)
    yield Case("sub-alpha", ("sub",), ("sub",), (Spec((65,)), Spec((65,))), lambda pf, x, y: pf.sub(x, y, alpha=0.5), lambda x, y: x - 0.5 * y, c=1)
    yield Case("pow-number", ("pow",), ("pow",), (Spec((65,)),), lambda pf, x: pf.pow(x, 3), lambda x: x**3, grad=(0,), c=4)
    yield Case("pow-base-number", ("pow",), ("pow",), (Spec((65,), "float32", smooth),), lambda pf, x: pf.pow(2.0, x), lambda x: 2.0**x, grad=(0,), c=8, magnitude=lambda x: 2.0**x * (1 + np.abs(x)))


def _rest():
    for dtype in FLOATS + ("int64",):
        g = (1, 2) if dtype != "int64" else ()
        x = Spec((31, 33), dtype)
        yield Case(f"where-{dtype}", ("where",), ("where",), (Spec((31, 33), "bool"), x, x), lambda pf, c, a, b: pf.where(c, a, b), lambda c, a, b: np.where(c, a, b), grad=g, out=dtype)
        yield Case(f"where-broadcast-{dtype}", ("where",), ("where",), (Spec((31, 1), "bool"), Spec((33,), dtype), Spec((), dtype)), lambda pf, c, a, b: pf.where(c, a, b),
                   lambda c, a, b: np.where(c, a, b), grad=g, out=dtype)
        one = (0,) if dtype != "int64" else ()
        yield Case(f"clamp-{dtype}", ("clamp",), (), (x,), lambda pf, x: pf.clamp(x, -1, 1), lambda x: np.clip(x, -1, 1), grad=one)
        yield Case(f"clamp-min-{dtype}", ("clamp",), (), (x,), lambda pf, x: pf.clamp(x, min=0), lambda x: np.maximum(x, 0), grad=one)
        yield Case(f"clamp-tensors-{dtype}", ("clamp_between",), (), (x, Spec((33,), dtype), Spec((), dtype, literal(1))), lambda pf, x, lo, hi: pf.clamp(x, lo, hi),
                   lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi), grad=(0, 1) if one else ())
        yield Case(f"masked_fill-{dtype}", ("masked_fill",), (), (x, Spec((33,), "bool")), lambda pf, x, m: pf.masked_fill(x, m, 7), lambda x, m: np.where(m, np.asarray(7, x.dtype), x), grad=one)
        yield Case(f"clone-{dtype}", ("clone",), ("cast",), (x,), lambda pf, x: pf.clone(x), lambda x: x, grad=one)
        yield Case(f"contiguous-{dtype}", ("contiguous",), ("cast",), (Spec((31, 33), dtype, None, "transposed"),), lambda pf, x: x.contiguous(), lambda x: x, grad=one)
        for other in FLOATS + INTS + ("bool",):
            yield Case(f"cast-{dtype}-{other}", ("cast",), ("cast",), (Spec((65,), dtype, integers(0, 100)),), lambda pf, x, o=other: x.to(o),
                       lambda x, o=other: x.astype(np.float64) if "float" in o else x.astype(o), grad=one if "float" in other else (), out=other)
    yield Case("to_device", ("to_device",), ("cast",), (Spec((65,)),), lambda pf, x: x.to("reference").to("cpu").to(x.device), lambda x: x, grad=(0,))
    for name in ("add", "mul", "sub", "div"):
        yield Case(f"{name}_-in-place", ("binary_",), (name,), (Spec((31, 33)), Spec((33,), "float32", away_from_zero)), lambda pf, x, y, n=name: getattr(pf.clone(x), n + "_")(y), BINARY[name][0], grad=(0, 1))
    yield Case("exp_-in-place", ("unary_",), ("exp",), (Spec((31, 33)),), lambda pf, x: pf.clone(x).exp_(), np.exp, grad=(0,), c=4)
    yield Case("copy_", ("copy_",), ("cast",), (Spec((31, 33)), Spec((33,))), lambda pf, x, y: pf.clone(x).copy_(y), lambda x, y: np.broadcast_to(y, x.shape), grad=(1,))
    yield Case("copy_-view", ("copy_",), ("cast",), (Spec((31, 33)), Spec((33,))), _copy_into_row, lambda x, y: np.concatenate([x[:3], y[None], x[4:]]), grad=(0, 1))
    yield Case("fill_", ("fill_",), ("full",), (Spec((31, 33)),), lambda pf, x: pf.clone(x).fill_(2.5), lambda x: np.full(x.shape, 2.5))


def _copy_into_row(pf, x, y):
    z = pf.clone(x)
    z.select(0, 3).copy_(y)
    return z


def cases():
    return [*_unary(), *_binary(), *_mixed(), *_rest()]
