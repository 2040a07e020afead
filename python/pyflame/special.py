"""Special functions, by the names of torch.special.

The functions of one argument broadcast nothing and keep the shape; integers and bools become float32. Orthogonal polynomials are computed by
their recurrences, degree by degree; their gradient is that of the argument. Formulas: Digital Library of Mathematical Functions,
chapters 5 to 10 and 18.
"""
from __future__ import annotations

import math

from . import _C, _refused, logit, mvlgamma, sinc, xlogy
from ._C import (
    Tensor, digamma, erf, erfc, erfinv, exp2, expm1, i0, igamma, igammac, lgamma, log1p, log_softmax, logsumexp, polygamma, round, sigmoid, softmax,
    special_airy_ai as airy_ai, special_bessel_j0 as bessel_j0, special_bessel_j1 as bessel_j1, special_bessel_y0 as bessel_y0,
    special_bessel_y1 as bessel_y1, special_entr as entr, special_erfcx as erfcx, special_i0e as i0e, special_i1 as i1, special_i1e as i1e,
    special_log_ndtr as log_ndtr, special_modified_bessel_k0 as modified_bessel_k0, special_modified_bessel_k1 as modified_bessel_k1,
    special_ndtri as ndtri, special_scaled_modified_bessel_k0 as scaled_modified_bessel_k0,
    special_scaled_modified_bessel_k1 as scaled_modified_bessel_k1, special_zeta as zeta,
)
from ._elementwise import sine_quotient
from ._keywords import accepting
from ._public import floating

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Function

__all__ = ["airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
           "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
           "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr",
           "log_softmax", "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln",
           "ndtr", "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
           "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0",
           "xlog1py", "xlogy", "zeta"]

expit, psi, gammaln, multigammaln, gammainc, gammaincc = sigmoid, digamma, lgamma, mvlgamma, igamma, igammac
modified_bessel_i0, modified_bessel_i1 = i0, i1


def ndtr(input: Tensor) -> Tensor:
    """The probability that a standard normal variable is below x: erfc(-x / sqrt 2) / 2.

    input: any shape, which the result has. Integers and bool become float32. TypeError for complex.
    """
    return erfc(input * (-math.sqrt(0.5))) * 0.5


def xlog1py(input: Tensor | float, other: Tensor | float) -> Tensor:
    """input * log(1 + other), and 0 where input is 0 and other is not NaN. Integers become float32.

    input, other: tensors whose shapes broadcast (ArgumentError otherwise), or one of them a number. NaN where other < -1 and input is not 0.
    """
    x = floating(input) if isinstance(input, Tensor) else input
    y = floating(other) if isinstance(other, Tensor) else _C.full((), float(other), dtype=x.dtype, device=input.device)
    # Where log(1 + y) is infinite or NaN, 0 times it would be NaN.
    outside = _C.logical_and(_C.eq(x, 0) if isinstance(x, Tensor) else x == 0, _C.logical_or(y <= -1, _C.isinf(y)))
    return x * _C.log1p(_C.where(outside, 0.0, y))


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x: 1 at 0, and 0 where x is infinite; the spherical Bessel function of the first kind of order 0.

    input: any shape, which the result has. Integers and bool become float32.

    Raises TypeError for what is no tensor. Complex numbers are accepted.
    """
    x = floating(input)
    infinite = _C.isinf(x)
    return _C.where(infinite, 0.0, sine_quotient(_C.where(infinite, 1.0, x)))


# --- orthogonal polynomials


_MOST = 1000000  # a polynomial takes one step for each degree


def _checked(name, n):
    """The largest degree, a number, as an int. ValueError for NaN and for more than _MOST."""
    if n != n or n > _MOST:
        raise ValueError(f"{name}: the degree is {'not a number' if n != n else 'too large'}; got {n}; expected at most {_MOST}")
    return int(n) if n > 0 else min(0, math.ceil(max(n, -1)))


def _argument(name, input, n):
    """x of a floating dtype and the degree, a number or a tensor of that dtype."""
    if not isinstance(input, Tensor) and not isinstance(n, Tensor):
        raise TypeError(f"{name}: no tensor; got {type(input).__name__} and {type(n).__name__}; expected at least one")
    if not isinstance(n, Tensor):
        return floating(input), _checked(name, n)
    n = n.detach()
    x = input if isinstance(input, Tensor) else _C.full((), input, device=n.device, dtype=n.dtype if n.is_floating_point() else None)
    dtype = _C.promote_types(floating(x).dtype, floating(n).dtype) if n.ndim >= x.ndim or not x.ndim else floating(x).dtype
    return x.to(dtype), _C.trunc(n.to(dtype))


def _recurrence(name, input, n, first, following, factor=lambda x: x):
    """The polynomial of degree n, 0 for a negative n. first(x) is that of degree 1; following(k, factor(x), p, q) is that of degree k + 1, from q and p
    of degrees k and k - 1."""
    x, degree = _argument(name, input, n)
    if not isinstance(degree, Tensor):
        if degree < 1:
            return _C.ones_like(x) if degree == 0 else _C.zeros_like(x)
        before, now, a = 1.0, first(x), factor(x)
        for k in range(1, degree):
            before, now = now, following(k, a, before, now)
        return now
    before, now, a = _C.ones_like(x), first(x), factor(x)
    most = _checked(name, degree.max().item()) if degree.numel() else 0
    result = _C.where(degree == 0, before, _C.where(degree == 1, now, _C.zeros_like(x)))
    for k in range(1, most):
        before, now = now, following(k, a, before, now)
        result = _C.where(degree == k + 1, now, result)
    return result


def _chebyshev(name, input, n, first):
    return _recurrence(name, input, n, first, lambda k, a, p, q: a * q - p, factor=lambda x: 2 * x)


def chebyshev_polynomial_t(input: Tensor | float, n: Tensor | float) -> Tensor:
    """Chebyshev's polynomial of the first kind of degree n: cos(n arccos x). A tensor n is read: a sync point. 0 for a negative n.

    T_0 = 1, T_1 = x, T_(k+1) = 2 x T_k - T_(k-1). input, n: one of them a tensor, a TypeError otherwise; they broadcast. Integers become float32. The
    result has the common shape. ValueError for a degree that is NaN or above 1000000.
    """
    return _chebyshev("chebyshev_polynomial_t", input, n, lambda x: x)


def chebyshev_polynomial_u(input: Tensor | float, n: Tensor | float) -> Tensor:
    """Chebyshev's polynomial of the second kind of degree n: sin((n + 1) t) / sin t with x = cos t. A tensor n is read. 0 for a negative n.

    U_0 = 1, U_1 = 2 x, U_(k+1) = 2 x U_k - U_(k-1). input, n and the result: as in chebyshev_polynomial_t.

    Raises TypeError where neither input nor n is a tensor, and ValueError where they do not broadcast and for a degree that is NaN or above
    1000000. A fraction of n is cut off.
    """
    return _chebyshev("chebyshev_polynomial_u", input, n, lambda x: 2 * x)


def chebyshev_polynomial_v(input: Tensor | float, n: Tensor | float) -> Tensor:
    """Chebyshev's polynomial of the third kind of degree n: cos((n + 1/2) t) / cos(t / 2) with x = cos t. A tensor n is read. 0 for a negative n.

    V_0 = 1, V_1 = 2 x - 1, V_(k+1) = 2 x V_k - V_(k-1). input, n and the result: as in chebyshev_polynomial_t.

    Raises TypeError where neither input nor n is a tensor, and ValueError where they do not broadcast and for a degree that is NaN or above
    1000000. A fraction of n is cut off.
    """
    return _chebyshev("chebyshev_polynomial_v", input, n, lambda x: 2 * x - 1)


def chebyshev_polynomial_w(input: Tensor | float, n: Tensor | float) -> Tensor:
    """Chebyshev's polynomial of the fourth kind of degree n: sin((n + 1/2) t) / sin(t / 2) with x = cos t. A tensor n is read. 0 for a negative n.

    W_0 = 1, W_1 = 2 x + 1, W_(k+1) = 2 x W_k - W_(k-1). input, n and the result: as in chebyshev_polynomial_t.

    Raises TypeError where neither input nor n is a tensor, and ValueError where they do not broadcast and for a degree that is NaN or above
    1000000. A fraction of n is cut off.
    """
    return _chebyshev("chebyshev_polynomial_w", input, n, lambda x: 2 * x + 1)


def _shifted(polynomial: Function, kind: str) -> Function:
    def function(input: Tensor | float, n: Tensor | float) -> Tensor:
        return polynomial(2 * (floating(input) if isinstance(input, Tensor) else input) - 1, n)

    function.__name__ = function.__qualname__ = "shifted_" + polynomial.__name__
    function.__doc__ = f"""Chebyshev's polynomial of the {kind} kind of degree n at 2 x - 1, for x between 0 and 1: {polynomial.__name__}(2 * input - 1, n).

    input: a tensor, or a number where n is a tensor. n, dtypes, the result's shape and errors: as in {polynomial.__name__}."""
    return function


shifted_chebyshev_polynomial_t = _shifted(chebyshev_polynomial_t, "first")
shifted_chebyshev_polynomial_u = _shifted(chebyshev_polynomial_u, "second")
shifted_chebyshev_polynomial_v = _shifted(chebyshev_polynomial_v, "third")
shifted_chebyshev_polynomial_w = _shifted(chebyshev_polynomial_w, "fourth")


def hermite_polynomial_h(input: Tensor | float, n: Tensor | float) -> Tensor:
    """The physicist's Hermite polynomial of degree n. A tensor n is read: a sync point. 0 for a negative n.

    H_0 = 1, H_1 = 2 x, H_(k+1) = 2 x H_k - 2 k H_(k-1). input, n: one of them a tensor, a TypeError otherwise; they broadcast. Integers become float32.
    The result has the common shape.
    """
    return _recurrence("hermite_polynomial_h", input, n, lambda x: 2 * x, lambda k, a, p, q: a * q - (2 * k) * p, factor=lambda x: 2 * x)


def hermite_polynomial_he(input: Tensor | float, n: Tensor | float) -> Tensor:
    """The probabilist's Hermite polynomial of degree n. A tensor n is read: a sync point. 0 for a negative n.

    He_0 = 1, He_1 = x, He_(k+1) = x He_k - k He_(k-1). input, n and the result: as in hermite_polynomial_h.

    Raises TypeError where neither input nor n is a tensor, and ValueError where they do not broadcast and for a degree that is NaN or above
    1000000. A fraction of n is cut off.
    """
    return _recurrence("hermite_polynomial_he", input, n, lambda x: x, lambda k, x, p, q: x * q - k * p)


def laguerre_polynomial_l(input: Tensor | float, n: Tensor | float) -> Tensor:
    """Laguerre's polynomial of degree n. A tensor n is read: a sync point. 0 for a negative n.

    L_0 = 1, L_1 = 1 - x, (k + 1) L_(k+1) = (2 k + 1 - x) L_k - k L_(k-1). input, n and the result: as in hermite_polynomial_h.

    Raises TypeError where neither input nor n is a tensor, and ValueError where they do not broadcast and for a degree that is NaN or above
    1000000. A fraction of n is cut off.
    """
    return _recurrence("laguerre_polynomial_l", input, n, lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * q - k * p) / (k + 1))


def legendre_polynomial_p(input: Tensor | float, n: Tensor | float) -> Tensor:
    """Legendre's polynomial of degree n. A tensor n is read: a sync point. 0 for a negative n.

    P_0 = 1, P_1 = x, (k + 1) P_(k+1) = (2 k + 1) x P_k - k P_(k-1). input, n and the result: as in hermite_polynomial_h.

    Raises TypeError where neither input nor n is a tensor, and ValueError where they do not broadcast and for a degree that is NaN or above
    1000000. A fraction of n is cut off.
    """
    return _recurrence("legendre_polynomial_p", input, n, lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * q - k * p) / (k + 1))


for _name in __all__:
    if getattr(globals()[_name], "__module__", None) == __name__:
        globals()[_name] = accepting(globals()[_name])
_refused.unknown(globals())
