"""Special functions, operations on bits, and what else of the elementwise ops has references of its own. The references are integrals and
series in NumPy, none of them the formula of an op."""
import math

import numpy as np

from . import FLOATS, INTS, Case, Spec, any_of, integers, label, literal, positive

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def _elementwise(f):
    return np.vectorize(f, otypes=[np.float64])


def _integral(f, low, high):
    """Of f(x, t) over t by Gauss's rule in eight parts, for each x."""
    half, edges = (high - low) / 16, np.linspace(low, high, 9)
    t = np.concatenate([half * _NODES + (a + b) / 2 for a, b in zip(edges, edges[1:])])
    w = np.tile(half * _WEIGHTS, 8)

    def run(x):
        x = np.asarray(x, np.float64)
        return np.sum(f(x[..., None], t) * w, axis=-1)

    return run


def _harmonic(power):
    """digamma (power 1) or trigamma (2) for x > 0: by the recurrence up to 30, and the asymptotic series there."""
    def at(x):
        total = 0.0
        while x < 30:
            total += x**-power
            x += 1
        q = 1 / (x * x)
        if power == 1:
            return math.log(x) - 0.5 / x - q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q / 240))) - total
        return 1 / x + 0.5 * q + q / x * (1 / 6 - q * (1 / 30 - q * (1 / 42 - q / 30))) + total
    return _elementwise(at)


def _inverse(f, slope, start):
    def at(y):
        x = start(y)
        for _ in range(60):
            x -= (f(x) - y) / slope(x)
        return x
    return _elementwise(at)


def _bessel_j(n):
    return _integral(lambda x, t: np.cos(n * t - x * np.sin(t)) / math.pi, 0, math.pi)


def _bessel_y(n):
    wave = _integral(lambda x, t: np.sin(x * np.sin(t) - n * t) / math.pi, 0, math.pi)
    tail = _integral(lambda x, t: (np.exp(n * t) + (-1) ** n * np.exp(-n * t)) * np.exp(-x * np.sinh(t)) / math.pi, 0, 9)
    return lambda x: wave(x) - tail(x)


def _k(n, x):
    return _integral(lambda x, t: np.exp(x - x * np.cosh(t)) * np.cosh(n * t), 0, 9)(x)


def _airy(x):
    """Its power series: x between -5 and 5."""
    f, g = np.ones_like(x), np.array(x)
    a, b = f.copy(), g.copy()
    for k in range(1, 60):
        a, b = a * x**3 / ((3 * k - 1) * (3 * k)), b * x**3 / ((3 * k) * (3 * k + 1))
        f, g = f + a, g + b
    return 0.355028053887817239260 * f - 0.258819403792806798405 * g


def _between(low, high):
    return lambda rng, shape: rng.uniform(low, high, shape)


def _zeta(s, q):
    """The sum of the first terms, and the integral of the rest with its corrections."""
    at = q + 40
    total = sum((q + k) ** -s for k in range(40)) + at ** (1 - s) / (s - 1) + at**-s / 2
    return total + s * at ** (-s - 1) / 12 - s * (s + 1) * (s + 2) * at ** (-s - 3) / 720 + s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * at ** (-s - 5) / 30240


def _lower_gamma(a, x):
    def at(a, x):
        term = total = 1.0
        k = 0
        while term > 1e-18 * total:
            k += 1
            term *= x / (a + k)
            total += term
        return total * math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    return np.vectorize(at, otypes=[np.float64])(a, x)


def _i1e(x):
    return _integral(lambda x, t: np.exp(x * np.cos(t) - np.abs(x)) * np.cos(t) / math.pi, 0, math.pi)(x)


_erf = math.erf
_ndtri = _inverse(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi), lambda y: 0.0)
# name: (reference, values, magnitude). Magnitude: where zeros are, errors count against the values around.
UNARY = {
    "erfc": (_elementwise(math.erfc), _between(-3, 5), None),
    "erfinv": (_inverse(_erf, lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x), lambda y: 0.0), _between(-0.99, 0.99), None),
    "lgamma": (_elementwise(math.lgamma), _between(0.05, 20), np.ones_like),
    "digamma": (_harmonic(1), _between(0.05, 20), np.ones_like),
    "i0": (np.i0, _between(-9, 9), None),
    "special_i1": (lambda x: _i1e(x) * np.exp(np.abs(x)), _between(-9, 9), None),
    "special_erfcx": (_integral(lambda x, t: np.exp(-t * t - 2 * x * t) * 2 / math.sqrt(math.pi), 0, 7), _between(-0.5, 8), None),
    "special_ndtri": (_ndtri, _between(0.01, 0.99), np.ones_like),
    "special_trigamma": (_harmonic(2), _between(0.05, 20), None),
    "special_i0e": (_integral(lambda x, t: np.exp(x * np.cos(t) - np.abs(x)) / math.pi, 0, math.pi), _between(-20, 20), None),
    "special_i1e": (_i1e, _between(-20, 20), None),
    "special_modified_bessel_k0": (lambda x: _k(0, x) * np.exp(-x), _between(0.1, 9), None),
    "special_modified_bessel_k1": (lambda x: _k(1, x) * np.exp(-x), _between(0.1, 9), None),
    "special_scaled_modified_bessel_k0": (lambda x: _k(0, x), _between(0.1, 9), None),
    "special_scaled_modified_bessel_k1": (lambda x: _k(1, x), _between(0.1, 9), None),
    "special_bessel_j0": (_bessel_j(0), _between(-30, 30), np.ones_like),
    "special_bessel_j1": (_bessel_j(1), _between(-30, 30), np.ones_like),
    "special_bessel_y0": (_bessel_y(0), _between(0.1, 30), np.ones_like),
    "special_bessel_y1": (_bessel_y(1), _between(0.1, 30), lambda x: 1 + 1 / x),
    "special_airy_ai": (_airy, _between(-5, 3), lambda x: 0.2 * np.ones_like(x)),
    "special_log_ndtr": (lambda x: np.log(0.5 * _elementwise(math.erfc)(-x / math.sqrt(2))), _between(-30, 3), None),
    "special_entr": (lambda x: -x * np.log(x), positive, lambda x: np.abs(x * np.log(x)) + x),
}
PARTS = {"i0": "i0e", "i1": "i1e", "modified_bessel_k0": "scaled_modified_bessel_k0", "modified_bessel_k1": "scaled_modified_bessel_k1", "entr": "log"}
NO_GRADIENT = ("special_airy_ai",)


def _cost(dtype):
    return 300 if dtype == "float64" else 10  # 7e-14; the references are no better


def _parts_of_numbers():
    for dtype in FLOATS:
        yield Case(f"frexp-{dtype}", ("frexp",), ("frexp_mantissa", "frexp_exponent"), (Spec((31, 33), dtype, _between(-30, 8)),), lambda pf, x: tuple(pf.frexp(x)), np.frexp, out=(dtype, "int32"))


def _unary():
    for name, (reference, values, magnitude) in UNARY.items():
        plain = name.replace("special_", "")
        op = PARTS.get(plain, plain)
        grad = () if name in NO_GRADIENT else (0,)
        for dtype in FLOATS:
            for shape in ((), (0,), (65,), (31, 33)) if dtype == "float32" else ((65,),):
                yield Case(f"{name}-{dtype}-{label(shape)}", (plain,), (op,), (Spec(shape, dtype, values),), lambda pf, x, name=name: getattr(pf, name)(x), reference,
                           grad=grad, c=_cost(dtype), magnitude=magnitude, composed=op != plain)
        yield Case(f"{name}-int64", (plain,), ("cast",), (Spec((9,), "int64", integers(1, 3) if "erfinv" not in name and "ndtri" not in name else integers(0, 1)),),
                   lambda pf, x, name=name: getattr(pf, name)(x), lambda x, name=name, r=reference: np.full(x.shape, -np.inf) if "ndtri" in name else r(x.astype(np.float64)),
                   c=20, magnitude=magnitude, out="float32")


def _limits():
    """Values at the ends, by definition."""
    inf, nan = np.inf, np.nan
    x = np.array([nan, inf, -inf, 0.0, 1.0, -1.0])
    ends = {
        "erfc": [nan, 0, 2, 1, math.erfc(1), math.erfc(-1)],
        "erfinv": [nan, nan, nan, 0, inf, -inf],
        "lgamma": [nan, inf, inf, inf, 0, inf],
        "digamma": [nan, inf, nan, -inf, -0.57721566490153286, nan],
        "i0": [nan, nan, nan, 1, np.i0(1.0), np.i0(1.0)],
        "special_ndtri": [nan, nan, nan, -inf, inf, nan],
        "special_erfcx": [nan, 0, inf, 1, math.e * math.erfc(1), math.e * math.erfc(-1)],
        "special_bessel_j0": [nan, 0, 0, 1, 0.76519768655796655, 0.76519768655796655],
        "special_bessel_j1": [nan, 0, 0, 0, 0.44005058574493352, -0.44005058574493352],
        "special_bessel_y0": [nan, 0, nan, -inf, 0.088256964215676958, nan],
        "special_bessel_y1": [nan, 0, nan, -inf, -0.78121282130028872, nan],
        "special_scaled_modified_bessel_k0": [nan, 0, nan, inf, 1.1444630798068947, nan],
        "special_scaled_modified_bessel_k1": [nan, 0, nan, inf, 1.6361534862632582, nan],
        "special_entr": [nan, -inf, -inf, 0, 0, -inf],
    }
    for name, values in ends.items():
        for dtype in ("float32", "float64"):
            yield Case(f"{name}-ends-{dtype}", (name.replace("special_", ""),), (), (Spec(x.shape, dtype, literal(x)),), lambda pf, x, name=name: getattr(pf, name)(x),
                       lambda x, v=np.array(values, np.float64): v, c=20)


    left = np.array([-0.5, -1.5, -2.25, -3.75, -10.5, -1e-5])
    yield Case("lgamma-left", ("lgamma",), ("lgamma",), (Spec(left.shape, "float64", literal(left)),), lambda pf, x: pf.lgamma(x), _elementwise(math.lgamma), c=100)
    yield Case("digamma-left", ("digamma",), ("digamma",), (Spec((3,), "float64", literal(np.array([-0.5, -1.5, -2.5]))),), lambda pf, x: pf.digamma(x),
               lambda x: _harmonic(1)(1 - x), c=100)  # the cotangent of the reflection is 0 there


def _binary():
    for dtype in ("float32", "float64"):
        pair = lambda a, b: (Spec((65,), dtype, a), Spec((65,), dtype, b))  # noqa: E731, B023
        yield Case(f"zeta-{dtype}", ("zeta",), ("zeta",), pair(_between(1.2, 6), _between(0.3, 12)), lambda pf, x, q: pf.special_zeta(x, q), _zeta, grad=(1,), c=2 * _cost(dtype))
        yield Case(f"igamma-{dtype}", ("igamma",), ("igamma",), pair(_between(0.3, 30), _between(0.3, 40)), lambda pf, a, x: pf.igamma(a, x), _lower_gamma, grad=(1,), c=4 * _cost(dtype))
        yield Case(f"igammac-{dtype}", ("igammac",), ("igammac",), pair(_between(0.3, 30), _between(0.3, 40)), lambda pf, a, x: pf.igammac(a, x), lambda a, x: 1 - _lower_gamma(a, x),
                   grad=(1,), c=4 * _cost(dtype), magnitude=lambda a, x: np.ones_like(x))
        yield Case(f"polygamma-{dtype}", ("polygamma",), ("zeta",), (Spec((65,), dtype, _between(0.3, 9)),), lambda pf, x: pf.polygamma(2, x), lambda x: -2 * _zeta(3.0, x), grad=(0,),
                   c=4 * _cost(dtype), composed=True)
        # Far arguments, from the integrals to 20 digits.
        a, x, upper = (np.array(v) for v in ([1e9, 1e9, 1e30], [1e9, 1e9 + 4e4, 1e30], [0.49999579477912994304, 0.10295273902284886248, 0.5]))
        far = (Spec(a.shape, dtype, literal(a)), Spec(x.shape, dtype, literal(x)))
        yield Case(f"igammac-far-{dtype}", ("igammac",), ("igammac",), far, lambda pf, a, x: pf.igammac(a, x), lambda a, x, v=upper: v, c=8 * _cost(dtype), magnitude=lambda a, x: np.ones_like(x), own_values=True)
        yield Case(f"igamma-far-{dtype}", ("igamma",), ("igamma",), far, lambda pf, a, x: pf.igamma(a, x), lambda a, x, v=1 - upper: v, c=8 * _cost(dtype), magnitude=lambda a, x: np.ones_like(x), own_values=True)
        s, q = np.array([1.5, 3.0]), np.array([1e30, 1e9])
        yield Case(f"zeta-far-{dtype}", ("zeta",), ("zeta",), (Spec(s.shape, dtype, literal(s)), Spec(q.shape, dtype, literal(q))), lambda pf, s, q: pf.special_zeta(s, q),
                   lambda s, q: np.array([1.99999999999999998e-15, 5.0000000050000000025e-19]), c=4 * _cost(dtype), own_values=True)
        a, b = (m.ravel() for m in np.meshgrid(np.array([0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, np.inf, np.nan]), np.array([0.0, 2.0, -2.0, np.inf, -np.inf, np.nan])))
        a, b = a.astype(dtype), b.astype(dtype)
        yield Case(f"nextafter-{dtype}", ("nextafter",), ("nextafter",), (Spec(a.shape, dtype, any_of(a)), Spec(b.shape, dtype, any_of(b))), lambda pf, a, b: pf.nextafter(a, b),
                   lambda a, b, d=dtype: np.nextafter(np.asarray(a, d), np.asarray(b, d)).astype(np.float64))
    shapes = (((31, 1), (1, 33)), ((), (65,)), ((0,), (1,)))
    for i, (s, t) in enumerate(shapes):
        yield Case(f"igamma-broadcast-{i}", ("igamma",), ("igamma",), (Spec(s, "float64", positive), Spec(t, "float64", positive)), lambda pf, a, x: pf.igamma(a, x), _lower_gamma, c=2000)


def _shift_left(a, b):
    bits = 8 * a.dtype.itemsize
    wide = a.astype(np.int64).view(np.uint64) << np.clip(b, 0, bits - 1).astype(np.uint64)
    return np.where((b < 0) | (b >= bits), 0, wide.astype(np.uint64).view(np.int64)).astype(a.dtype)


def _shift_right(a, b):
    bits = 8 * a.dtype.itemsize
    return np.where((b < 0) | (b >= bits), np.where(a < 0, -1, 0).astype(a.dtype), a >> np.clip(b, 0, bits - 1).astype(a.dtype)).astype(a.dtype)


def _integers():
    pairs = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "gcd": np.gcd, "lcm": np.lcm}
    for dtype in INTS:
        info = np.iinfo(dtype)
        wide = lambda rng, shape, i=info: rng.integers(max(i.min, -(2**62)), min(i.max, 2**62), shape)  # noqa: E731
        small = integers(0 if dtype == "uint8" else -11, 11)
        for name, reference in pairs.items():
            values = small if name in ("gcd", "lcm") else wide
            yield Case(f"{name}-{dtype}", (name,), ("gcd" if name == "lcm" else name,), (Spec((65,), dtype, values), Spec((65,), dtype, values)), lambda pf, a, b, n=name: getattr(pf, n)(a, b),
                       lambda a, b, f=reference, d=dtype: f(a, b).astype(d))
        yield Case(f"bitwise_not-{dtype}", ("bitwise_not",), ("bitwise_not",), (Spec((65,), dtype, wide),), lambda pf, a: ~a, np.invert)
        counts = integers(0, 12) if dtype == "uint8" else integers(-2, 70)
        for name, reference in (("bitwise_left_shift", _shift_left), ("bitwise_right_shift", _shift_right)):
            yield Case(f"{name}-{dtype}", (name,), (name,), (Spec((65,), dtype, wide), Spec((65,), dtype, counts)), lambda pf, a, b, n=name: getattr(pf, n)(a, b), reference)
    for name, reference in (("bitwise_and", np.logical_and), ("bitwise_or", np.logical_or), ("bitwise_xor", np.logical_xor)):
        yield Case(f"{name}-bool", (name,), (), (Spec((31, 1), "bool"), Spec((33,), "bool")), lambda pf, a, b, n=name: getattr(pf, n)(a, b), reference)
        yield Case(f"{name}-broadcast", (name,), (name,), (Spec((31, 1), "int64"), Spec((33,), "int32")), lambda pf, a, b, n=name: getattr(pf, n)(a, b), pairs[name])
    yield Case("bitwise_not-bool", ("bitwise_not",), (), (Spec((65,), "bool"),), lambda pf, a: pf.bitwise_not(a), np.logical_not)
    yield Case("shift-of-floats", ("bitwise_left_shift",), (), (Spec((65,)),), lambda pf, a: a << 3, lambda a: a * 8.0)


def cases():
    return [*_parts_of_numbers(), *_unary(), *_limits(), *_binary(), *_integers()]
