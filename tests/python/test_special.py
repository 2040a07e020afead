"""pyflame.special, windows, and elementwise functions of integers: against NumPy and definitions. The cases of pyflame.testing have the functions of
the op table; tools/opinfo.py compares all with PyTorch."""
import math

import numpy as np
import pytest

import pyflame as pf

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (7, 9))
erfc = np.vectorize(math.erfc)


def close(got, want, rtol=1e-12, atol=1e-13):
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=atol)


def test_compositions():
    x = pf.tensor(X)
    close(pf.special.ndtr(x), 0.5 * erfc(-X / math.sqrt(2)))
    close(pf.special.spherical_bessel_j0(x), np.sinc(X / math.pi))
    assert pf.special.spherical_bessel_j0(pf.tensor([0.0, math.inf, -math.inf])).tolist() == [1, 0, 0]
    y = np.abs(X)
    close(pf.special.xlog1py(x, pf.tensor(y)), X * np.log1p(y))
    close(pf.special.xlog1py(x, 0.7), X * np.log1p(0.7))
    assert pf.special.xlog1py(pf.zeros(3), pf.tensor([-1.0, math.inf, -2.0])).tolist() == [0, 0, 0]
    close(pf.special.log_ndtr(pf.tensor([-1e3, -40.0, 10.0])), [-500007.82669481, -804.6084420138, -7.6198530241605e-24], 1e-7)
    close(pf.mvlgamma(pf.tensor([2.5, 4.0], dtype=pf.float64), 3), [1.5 * math.log(math.pi) + sum(math.lgamma(a - i / 2) for i in range(3)) for a in (2.5, 4.0)])


def test_aliases_are_the_same():
    s = pf.special
    for alias, name in (("expit", "sigmoid"), ("psi", "digamma"), ("gammaln", "lgamma"), ("multigammaln", "mvlgamma"), ("gammainc", "igamma"), ("gammaincc", "igammac")):
        assert getattr(s, alias) is getattr(pf, name)
    assert set(s.__all__) <= set(dir(s))


# name, coefficients of degrees 0 to 5 in powers of x
def _powers(name, first, following):
    """Polynomials of degrees 0 to 5 as arrays of coefficients, by their recurrence."""
    one, x = np.array([1.0]), np.array([0.0, 1.0])
    polynomials = [one, np.array(first, float)]
    for k in range(1, 5):
        polynomials.append(following(k, x, polynomials[k - 1], polynomials[k]))
    return polynomials


P = np.polynomial.polynomial
FAMILIES = {
    "chebyshev_polynomial_t": [0, 1], "chebyshev_polynomial_u": [0, 2], "chebyshev_polynomial_v": [-1, 2], "chebyshev_polynomial_w": [1, 2],
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_chebyshev(name):
    want = _powers(name, FAMILIES[name], lambda k, x, p, q: P.polysub(2 * P.polymul(x, q), p))
    for n in range(6):
        close(getattr(pf.special, name)(pf.tensor(X), n), P.polyval(X, want[n]), 1e-10, 1e-10)
        close(getattr(pf.special, "shifted_" + name)(pf.tensor(X), n), P.polyval(2 * X - 1, want[n]), 1e-9, 1e-9)
    degrees = RNG.integers(-1, 6, X.shape)
    each = np.stack([np.zeros(X.shape), *(P.polyval(X, w) for w in want)])
    close(getattr(pf.special, name)(pf.tensor(X), pf.tensor(degrees)), np.take_along_axis(each, degrees[None] + 1, 0)[0], 1e-10, 1e-10)


@pytest.mark.parametrize("name", ["chebyshev_polynomial_t", "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "laguerre_polynomial_l", "legendre_polynomial_p"])
@pytest.mark.parametrize("degree, text", [(1e30, r"too large; got 1\S*e\+30"), (math.inf, "too large; got inf"), (math.nan, "not a number; got nan")])
def test_a_degree_without_a_bound_is_an_error(name, degree, text):
    """One step is computed for each degree, so the call would not end."""
    for n in (degree, pf.tensor(degree, dtype=pf.float64), pf.tensor([1.0, degree], dtype=pf.float64)):
        with pytest.raises(ValueError, match=f"{name}: the degree is {text}.*; expected at most 1000000"):
            getattr(pf.special, name)(pf.ones(2), n)
    assert getattr(pf.special, name)(pf.ones(2), -math.inf).tolist() == getattr(pf.special, name)(pf.ones(2), pf.tensor(-math.inf)).tolist() == [0, 0]
    assert getattr(pf.special, name)(pf.ones(2), -0.5).tolist() == [1, 1]


def test_other_polynomials():
    modules = {"legendre_polynomial_p": np.polynomial.legendre.legval, "laguerre_polynomial_l": np.polynomial.laguerre.lagval,
               "hermite_polynomial_h": np.polynomial.hermite.hermval, "hermite_polynomial_he": np.polynomial.hermite_e.hermeval}
    for name, evaluate in modules.items():
        for n in (0, 1, 2, 5, 9):
            close(getattr(pf.special, name)(pf.tensor(X), n), evaluate(X, [0] * n + [1]), 1e-9, 1e-9)
        assert getattr(pf.special, name)(2.0, pf.tensor([0.0])).tolist() == [1.0]
        with pytest.raises(TypeError, match=f"{name}: no tensor"):
            getattr(pf.special, name)(1.0, 2)


def test_windows():
    w = pf.signal.windows
    for name, reference in (("bartlett", np.bartlett), ("blackman", np.blackman), ("hamming", np.hamming), ("hann", np.hanning)):
        for n in (0, 1, 2, 7, 10):
            close(getattr(w, name)(n, dtype=pf.float64), reference(n), 1e-10, 1e-12)
            if n > 2:
                close(getattr(w, name)(n - 1, sym=False, dtype=pf.float64), reference(n)[:-1], 1e-10, 1e-12)
                close(getattr(pf, name + "_window")(n, periodic=False, dtype=pf.float64), reference(n), 1e-10, 1e-12)
                close(getattr(pf, name + "_window")(n - 1, dtype=pf.float64), reference(n)[:-1], 1e-10, 1e-12)
    close(w.kaiser(8, beta=5.0, dtype=pf.float64), np.kaiser(8, 5.0), 1e-10)
    close(pf.kaiser_window(7, False, 5.0, dtype=pf.float64), np.kaiser(7, 5.0), 1e-10)
    close(w.cosine(5, dtype=pf.float64), np.sin(np.pi * (np.arange(5) + 0.5) / 5))
    close(w.gaussian(5, std=0.9, dtype=pf.float64), np.exp(-0.5 * ((np.arange(5) - 2) / 0.9) ** 2))
    close(w.exponential(5, tau=2.0, dtype=pf.float64), np.exp(-np.abs(np.arange(5) - 2) / 2))
    close(w.exponential(4, center=0, tau=2.0, sym=False, dtype=pf.float64), np.exp(-np.arange(4) / 2))
    k = 2 * np.pi * np.arange(9) / 8
    close(w.nuttall(9, dtype=pf.float64), 0.3635819 - 0.4891775 * np.cos(k) + 0.1365995 * np.cos(2 * k) - 0.0106411 * np.cos(3 * k))
    assert w.hann(4).dtype == pf.float32 and w.hann(4, requires_grad=True).requires_grad


def test_numbers_in_parts():
    values = np.array([0.0, -0.0, 1.0, -1.0, 0.75, 1e-45, 3.4e38, 1e-30, -7.25, np.inf, -np.inf, 8.0, 0.9999999], np.float32)
    mantissa, exponent = pf.frexp(pf.tensor(values))
    want = np.frexp(values)
    np.testing.assert_array_equal(mantissa.numpy(), want[0])
    np.testing.assert_array_equal(exponent.numpy()[:9], want[1][:9])
    assert exponent.dtype == pf.int32
    small = np.abs(values) < 1e38  # 2^128 alone is infinite
    close(pf.ldexp(mantissa, exponent).masked_select(pf.tensor(small)), values[small], 0, 0)
    x = pf.tensor([3.0], requires_grad=True)
    pf.frexp(x).mantissa.sum().backward()
    assert x.grad.item() == 0.25
    assert pf.frexp(pf.tensor([1e300, 5e-324, 3.0], dtype=pf.float64)).exponent.tolist() == [997, -1073, 2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_parts_of_any_number(dtype):
    """All exponents, next to powers of 2 and with any bits: exact."""
    info = np.finfo(dtype)
    powers = np.ldexp(dtype(1), np.arange(info.minexp - info.nmant, info.maxexp)).astype(dtype)
    bits = np.frombuffer(np.random.default_rng(3).bytes(8 * 20000), dtype)
    values = np.concatenate([powers, -powers, np.nextafter(powers, dtype(0)), np.nextafter(powers, dtype(np.inf)), bits[np.isfinite(bits)], [info.max, 0, -0.0]]).astype(dtype)
    values = values[np.isfinite(values)]
    mantissa, exponent = pf.frexp(pf.tensor(values))
    want = np.frexp(values)
    assert mantissa.numpy().tobytes() == want[0].astype(dtype).tobytes()
    np.testing.assert_array_equal(exponent.numpy(), want[1])
    x = pf.tensor(np.array([0.0, np.inf, 3.0, info.tiny], dtype), requires_grad=True)
    pf.frexp(x).mantissa.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 0.25, min(2.0**(-info.minexp - 1), np.inf)]


def test_slopes():
    x = np.sin(np.arange(12.0)).reshape(3, 4)
    at = np.array([0.0, 0.5, 2.0, 2.25])
    for order in (1, 2):
        for got, want in zip(pf.gradient(pf.tensor(x), edge_order=order), np.gradient(x, edge_order=order)):
            close(got, want)
        close(pf.gradient(pf.tensor(x), dim=1, spacing=[pf.tensor(at)], edge_order=order)[0], np.gradient(x, at, axis=1, edge_order=order))
    close(pf.gradient(pf.tensor(x), dim=0, spacing=0.5)[0], np.gradient(x, 0.5, axis=0))


def test_fill_and_real():
    x = pf.ones(2, 3)
    assert pf.fill(x, 2.5).tolist() == [[2.5] * 3] * 2
    v = pf.tensor(2.0, requires_grad=True)
    pf.fill(x, v).sum().backward()
    assert v.grad.item() == 6


def test_operators_on_bits():
    a, b = np.array([5, -6, 0, 1 << 40]), np.array([3, 12, -1, 255])
    x, y = pf.tensor(a), pf.tensor(b)
    for got, want in ((x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a), (x & 6, a & 6), (6 | x, 6 | a), (x << 2, a << 2), (x >> 1, a >> 1), (1 << pf.tensor([3]), [8])):
        np.testing.assert_array_equal(got.numpy(), want)
    z = x.clone()
    z &= y
    z <<= 1
    z.bitwise_or_(1)
    np.testing.assert_array_equal(z.numpy(), (a & b) << 1 | 1)
    assert (pf.tensor([True, False]) ^ True).tolist() == [False, True]
    assert (pf.tensor([True]) & 1).dtype == pf.int64
    assert (pf.tensor([1.5]) << 2).tolist() == [6.0] and (pf.tensor([6.0]) >> pf.tensor([1.0])).tolist() == [3.0]


def test_gradients_where_pytorch_has_none():
    x = pf.ones(2, requires_grad=True)
    for f in (pf.special.airy_ai, lambda x: pf.special.zeta(x + 1, 2.0), lambda x: pf.igamma(x, pf.ones(2))):
        with pytest.raises(NotImplementedError, match="it has no gradient"):
            f(x).sum().backward()


@pytest.mark.parametrize("call, kind, text", [
    (lambda: pf.ones(2) & pf.ones(2), TypeError, "bitwise_and: only for integers; got float32"),
    (lambda: ~pf.ones(2), TypeError, "bitwise_not: not defined for floats"),
    (lambda: pf.bitwise_left_shift(pf.tensor([True]), pf.tensor([True])), TypeError, "bitwise_left_shift: only for integers; got bool"),
    (lambda: pf.gcd(pf.ones(2), pf.ones(2)), TypeError, "gcd: only for integers"),
    (lambda: pf.polygamma(-1, pf.ones(2)), ValueError, "polygamma: negative order; got n=-1"),
    (lambda: pf.nextafter(pf.ones(2).half(), pf.ones(2).half()), TypeError, "nextafter: not defined for float16"),
    (lambda: pf.logcumsumexp(pf.tensor([1, 2]), 0), TypeError, "logcumsumexp: not defined for int64"),
    (lambda: pf.cummax(pf.ones(2), 1), IndexError, "cummax: dim out of range"),
    (lambda: pf.mvlgamma(pf.ones(2), 0), RuntimeError, "mvlgamma: p is not positive"),
    (lambda: pf.frexp(pf.tensor([1])), TypeError, "frexp: not a floating dtype"),
    (lambda: pf.gradient(pf.ones(1)), RuntimeError, "gradient: too few elements"),
    (lambda: pf.gradient(pf.ones(4), edge_order=3), RuntimeError, "gradient: wrong edge_order"),
    (lambda: pf.gradient(pf.ones(4), spacing=[1, 2]), RuntimeError, "gradient: numbers of spacings and dims differ"),
    (lambda: pf.fill(pf.ones(2), pf.ones(2)), RuntimeError, "fill: the value has dims"),
    (lambda: pf.signal.windows.hann(-1), ValueError, "hann: negative length"),
    (lambda: pf.signal.windows.hann(3, dtype=pf.int64), ValueError, "hann: not a floating dtype"),
    (lambda: pf.signal.windows.kaiser(3, beta=-1), ValueError, "kaiser: beta is negative"),
    (lambda: pf.signal.windows.gaussian(3, std=0), ValueError, "gaussian: std is not positive"),
    (lambda: pf.signal.windows.exponential(3, tau=0), ValueError, "exponential: tau is not positive"),
    (lambda: pf.signal.windows.exponential(3, center=1), ValueError, "exponential: a symmetric window with a center"),
    (lambda: pf.signal.windows.general_cosine(3, a=[]), ValueError, "general_cosine: no coefficients"),
    (lambda: pf.signal.windows.general_cosine(3, a=1), TypeError, "general_cosine: coefficients must be a list"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_gcd_of_all_numbers_of_a_type(dtype):
    """Zeros, the least number, equal ones, and each length of the last vector."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(1)
    for low, high in ((limits.min, limits.max), (max(limits.min, -12), 12)):
        for size in (1, 5, 16, 1003):
            a, b = (rng.integers(low, high, size, dtype=dtype, endpoint=True) for _ in range(2))
            a[::7], b[::5], b[::11] = limits.min, 0, a[::11]
            np.testing.assert_array_equal(pf.gcd(pf.tensor(a), pf.tensor(b)).numpy(), np.gcd(a, b))
