"""Functions of pyflame.fft, pyflame.special and pyflame.signal.windows that are composed of ops. Complex numbers are given and compared as their parts."""

import math

import numpy as np
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

import pyflame as pf

from . import Spec, any_of, integers
from .elementwise import _erfc
from .layers import MOST, composition, size

BOTH = ("float32", "float64")


# ---- spectra
def _hfftn(x, s=None, axes=None, norm="backward"):
    """The spectrum, a real one, of a signal of which half is given, since the other half is its conjugate."""
    return np.fft.irfftn(np.conj(x), s, axes, {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm])


def _ihfftn(x, s=None, axes=None, norm="backward"):
    return np.conj(np.fft.rfftn(x, s, axes, {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm]))


def _named(two, many):
    """NumPy's functions of n dims, of two, and of one, by the same arguments."""
    return {**{f"{n}2": lambda x, s=None, dim=(-2, -1), norm="backward", f=f: f(x, s, dim, norm) for n, f in many.items()},
            **{f"{n}n": lambda x, s=None, dim=None, norm="backward", f=f: f(x, s, dim, norm) for n, f in many.items()},
            **{n: lambda x, n=None, dim=-1, norm="backward", f=f: f(x, None if n is None else (n,), (dim,), norm) for n, f in two.items()}}


SPECTRA = _named({"hfft": _hfftn, "ihfft": _ihfftn}, {"fft": np.fft.fftn, "ifft": np.fft.ifftn, "rfft": np.fft.rfftn, "irfft": np.fft.irfftn, "hfft": _hfftn, "ihfft": _ihfftn})
OF_REAL = ("rfft", "ihfft")  # the others take complex numbers
TO_REAL = ("irfft", "hfft")

# For each kind of function: tag, shape, arguments
ARGUMENTS = {
    "2": (("", (3, 4, 5), {}), ("sizes", (5, 7), {"s": (6, 4), "norm": "ortho"}), ("dims", (4, 2, 6), {"dim": (2, 0), "norm": "forward"})),
    "n": (("", (2, 3, 4), {}), ("dims", (2, 3, 4, 5), {"s": (4, 6), "dim": (1, 3)})),
    "": (("", (3, 9), {}), ("sizes", (8, 3), {"n": 10, "dim": 0, "norm": "ortho"})),
}


def _parts(y):
    return np.stack([y.real, y.imag], -1) if np.iscomplexobj(y) else y


def _spectra():
    for name, reference in SPECTRA.items():
        kind = name[-1] if name[-1] in "2n" else ""
        base = name[: len(name) - len(kind)]
        for tag, shape, arguments in ARGUMENTS[kind]:
            pair = base not in OF_REAL

            def call(fft, *x, name=name, a=arguments, pair=pair, back=base in TO_REAL):
                y = getattr(fft, name)(pf.complex(*x) if pair else x[0], **a)
                return y if back else pf.view_as_real(y)

            def numpys(*x, f=reference, a=arguments, pair=pair):
                return _parts(f(x[0] + 1j * x[1] if pair else x[0], **a))

            yield from composition(f"fft.{name}", (shape, shape) if pair else (shape,), call, numpys, BOTH, tag, fused_exact=False, magnitude=lambda *x: size(*x) * max(x[0].size, 1) ** 0.5)
    exact = {"c": 0, "composed": False, "magnitude": None}
    for name, reference in (("fftshift", np.fft.fftshift), ("ifftshift", np.fft.ifftshift)):
        yield from composition(f"fft.{name}", ((3, 67),), lambda fft, x, n=name: getattr(fft, n)(x), lambda x, f=reference: f(x), MOST, **exact)
        yield from composition(f"fft.{name}", ((3, 4, 5),), lambda fft, x, n=name: getattr(fft, n)(x, (0, -1)), lambda x, f=reference: f(x, (0, -1)), tag="dims", **exact)
        yield from composition(f"fft.{name}", (Spec((6, 5), "int64"),), lambda fft, x, n=name: getattr(fft, n)(x, 0), lambda x, f=reference: f(x, 0), ("int64",), **exact)
    for n in (1, 8, 67):
        for dtype in BOTH:
            for name, reference in (("fftfreq", np.fft.fftfreq), ("rfftfreq", np.fft.rfftfreq)):
                yield from composition(f"fft.{name}", (), lambda fft, f=name, n=n, t=dtype: getattr(fft, f)(n, 0.3, dtype=getattr(pf, t)), lambda f=reference, n=n: f(n, 0.3), (dtype,), str(n), out=dtype, c=2)


# ---- special functions

def _second_kind(n, x):
    """U(n) is the derivative of T(n + 1), divided by n + 1."""
    return np.zeros_like(x) if n < 0 else chebyshev.chebval(x, chebyshev.chebder(np.eye(n + 2)[n + 1])) / (n + 1)


POLYNOMIALS = {
    "chebyshev_polynomial_t": lambda n, x: chebyshev.chebval(x, np.eye(n + 1)[n]),
    "chebyshev_polynomial_u": _second_kind,
    "chebyshev_polynomial_v": lambda n, x: _second_kind(n, x) - _second_kind(n - 1, x),
    "chebyshev_polynomial_w": lambda n, x: _second_kind(n, x) + _second_kind(n - 1, x),
    "hermite_polynomial_h": lambda n, x: hermite.hermval(x, np.eye(n + 1)[n]),
    "hermite_polynomial_he": lambda n, x: hermite_e.hermeval(x, np.eye(n + 1)[n]),
    "laguerre_polynomial_l": lambda n, x: laguerre.lagval(x, np.eye(n + 1)[n]),
    "legendre_polynomial_p": lambda n, x: legendre.legval(x, np.eye(n + 1)[n]),
}
POLYNOMIALS |= {f"shifted_{name}": lambda n, x, f=f: f(n, 2 * x - 1) for name, f in POLYNOMIALS.items() if name.startswith("chebyshev")}


def within_one(rng, shape):
    return rng.uniform(-1, 1, shape)


def _degrees(f, x, n):
    x, n = np.broadcast_arrays(x, n)
    y = np.zeros(x.shape)
    for degree in np.unique(n):
        y[n == degree] = f(max(int(degree), 0), x[n == degree])
    return y


def _xlog1py(x, y):
    with np.errstate(all="ignore"):
        return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log1p(y))


def _special():
    for name, f in POLYNOMIALS.items():
        # A recurrence's rounding errors are relative to its largest numbers.
        terms = {"magnitude": lambda x, n=5, f=f: 1 + np.abs(_degrees(f, x, n)).max(initial=0), "length": 8}
        yield from composition(f"special.{name}", (((3, 67), within_one),), lambda special, x, n=name: getattr(special, n)(x, 5), lambda x, f=f: np.asarray(f(5, x)), BOTH if name.endswith(("_t", "_l")) else ("float32",), "5", **terms)
        yield from composition(f"special.{name}", (((5, 13), within_one), Spec((13,), "int64", integers(0, 7))), lambda special, x, n, name=name: getattr(special, name)(x, n), lambda x, n, f=f: _degrees(f, x, n), **terms)
    yield from composition("special.ndtr", ((3, 67),), lambda special, x: special.ndtr(x), lambda x: 0.5 * _erfc(-x / math.sqrt(2)), MOST)
    yield from composition("special.xlog1py", ((3, 67), ((3, 67), lambda rng, shape: rng.uniform(-0.4, 3, shape))), lambda special, x, y: special.xlog1py(x, y), _xlog1py, MOST)
    yield from composition("special.spherical_bessel_j0", (((3, 67), lambda rng, shape: 5 * rng.standard_normal(shape)),), lambda special, x: special.spherical_bessel_j0(x), lambda x: np.sinc(x / np.pi), MOST)
    yield from composition("special.spherical_bessel_j0", (((4, 5), any_of((0.0, 0.001, -0.01, 0.1, 40.0))),), lambda special, x: special.spherical_bessel_j0(x), lambda x: np.sinc(x / np.pi), tag="zero")


# ---- windows: arguments, and the value at position k of 0 to n
def _cosines(*a):
    return lambda k, n: sum((-1) ** i * c * np.cos(2 * np.pi * i * k / n) for i, c in enumerate(a))


WINDOWS = {
    "bartlett": ({}, lambda k, n: 1 - np.abs(2 * k / n - 1)),
    "blackman": ({}, _cosines(0.42, 0.5, 0.08)),
    "cosine": ({}, lambda k, n: np.sin(np.pi * (k + 0.5) / (n + 1))),
    "exponential": ({"tau": 7.0}, lambda k, n: np.exp(-np.abs(k - n / 2) / 7)),
    "gaussian": ({"std": 5.0}, lambda k, n: np.exp(-0.5 * ((k - n / 2) / 5) ** 2)),
    "general_cosine": ({"a": [0.5, 0.3, 0.2]}, _cosines(0.5, 0.3, 0.2)),
    "general_hamming": ({"alpha": 0.6}, _cosines(0.6, 0.4)),
    "hamming": ({}, _cosines(0.54, 0.46)),
    "hann": ({}, _cosines(0.5, 0.5)),
    "kaiser": ({"beta": 5.0}, lambda k, n: np.i0(5 * np.sqrt(np.maximum(1 - (2 * k / n - 1) ** 2, 0))) / np.i0(5.0)),
    "nuttall": ({}, _cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411)),
}


def _windows():
    for name, (arguments, f) in WINDOWS.items():
        for m, sym, dtype in ((67, True, "float32"), (8, False, "float64"), (1, True, "float32"), (0, True, "float32")):
            if m > 1 or name in ("hann", "kaiser"):
                yield from composition(f"signal.windows.{name}", (), lambda w, n=name, m=m, s=sym, a=arguments, t=dtype: getattr(w, n)(m, sym=s, dtype=getattr(pf, t), **a),
                                       lambda f=f, m=m, s=sym: f(np.arange(m, dtype=np.float64), m - 1 if s else m) if m > 1 else np.ones(m), (dtype,), f"{m}-{'symmetric' if sym else 'periodic'}", out=dtype, c=2)


def cases():
    return [c for part in (_spectra, _special, _windows) for c in part()]
