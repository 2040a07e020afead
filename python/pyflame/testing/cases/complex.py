"""Complex numbers and Fourier transforms. Inputs and results are real and imaginary parts, so that the tables know real arrays only."""
import numpy as np

from . import Case, Spec, away_from_zero, label

DTYPES = ("float32", "float64")
SHAPES = ((), (0,), (1,), (65,), (31, 33), (2, 0, 3), (1027,))
# Powers of two around a vector and with passes of all kinds, mixed radices, primes with and without their own radix, a long prime.
LENGTHS = (1, 2, 3, 4, 7, 8, 12, 13, 16, 30, 49, 64, 81, 97, 100, 128, 210, 256, 1000, 1009, 2048)
LONG = (4096, 8192, 15360, 65536)


def _pairs(z):
    return np.stack([z.real, z.imag], -1)


def _z(a, b):
    return a + 1j * b


ELEMENTWISE = {  # name, function of PyFlame, of NumPy
    "mul": (lambda pf, x, y: x * y, lambda x, y: x * y),
    "div": (lambda pf, x, y: x / y, lambda x, y: x / y),
    "conj": (lambda pf, x, y: x.conj() + y, lambda x, y: x.conj() + y),
    "where": (lambda pf, x, y: pf.where(x.real > 0, x, y), lambda x, y: np.where(x.real > 0, x, y)),
    "mixed": (lambda pf, x, y: x * y.real - y, lambda x, y: x * y.real - y),
}


def _elementwise():
    ops = {"float32": ("pack_complex", "real_part", "imag_part", "mul_complex", "div_complex"), "float64": ()}
    for dtype in DTYPES:
        for name, (f, g) in ELEMENTWISE.items():
            for shape in SHAPES if name == "mul" else ((31, 33),):
                values = Spec(shape, dtype, away_from_zero)
                yield Case(f"complex-{name}-{dtype}-{label(shape)}", ("complex", "view_as_real"), ops[dtype], (values,) * 4,
                           lambda pf, a, b, c, d, f=f: pf.view_as_real(f(pf, pf.complex(a, b), pf.complex(c, d))),
                           lambda a, b, c, d, g=g: _pairs(np.asarray(g(_z(a, b), _z(c, d)))), grad=() if name == "where" else (0, 1, 2, 3), c=8,
                           magnitude=lambda a, b, c, d: np.asarray(1 + (np.abs(_z(a, b)) + 1) * (np.abs(_z(c, d)) + 1) * (1 + 1 / np.abs(_z(c, d))))[..., None])


def _size(x, axis=-1):
    return np.abs(x).sum(axis, keepdims=True)


PARTS = {  # name, function of PyFlame, of NumPy
    "real": (lambda pf, x: pf.real(x), np.real),
    "imag": (lambda pf, x: pf.imag(x), np.imag),
    "angle": (lambda pf, x: pf.angle(x), np.angle),
    "conj": (lambda pf, x: pf.view_as_real(pf.conj(x)), lambda x: _pairs(x.conj())),
    "sgn": (lambda pf, x: pf.view_as_real(pf.sgn(x)), lambda x: _pairs(x / np.abs(x))),
    "view_as_complex": (lambda pf, x: pf.view_as_real(2 * pf.view_as_complex(pf.view_as_real(x))), lambda x: _pairs(2 * x)),
}


def _parts():
    for dtype in DTYPES:
        for name, (f, g) in PARTS.items():
            values = Spec((31, 33), dtype, away_from_zero)
            yield Case(f"complex-{name}-{dtype}", (name,), (), (values,) * 2, lambda pf, a, b, f=f: f(pf, pf.complex(a, b)), lambda a, b, g=g: g(_z(a, b)), grad=(0, 1), c=8,
                       magnitude=lambda a, b, n=name: np.maximum(np.abs(a), 4)[(...,) if n in ("real", "imag", "angle") else (..., None)])


def _transforms():
    for dtype in DTYPES:
        for n in (*LENGTHS, *LONG) if dtype == "float32" else (*LENGTHS[::3], 1009, 4096):
            lines = 3 if n < 4096 else 1
            grad = (0, 1) if n in (7, 12, 97) else ()
            two = (Spec((lines, n), dtype), Spec((lines, n), dtype))
            shared = dict(c=1, length=max(n.bit_length(), 1), twice=n == 12)
            yield Case(f"fft-{dtype}-{n}", ("fft.fft",), ("fft",), two, lambda pf, a, b: pf.view_as_real(pf.fft.fft(pf.complex(a, b))), lambda a, b: _pairs(np.fft.fft(_z(a, b))),
                       magnitude=lambda a, b: _size(_z(a, b))[..., None], grad=grad, **shared)
            yield Case(f"ifft-{dtype}-{n}", ("fft.ifft",), ("fft",), two, lambda pf, a, b: pf.view_as_real(pf.fft.ifft(pf.complex(a, b), norm="ortho")),
                       lambda a, b: _pairs(np.fft.ifft(_z(a, b), norm="ortho")), magnitude=lambda a, b: _size(_z(a, b))[..., None], grad=grad, **shared)
            yield Case(f"rfft-{dtype}-{n}", ("fft.rfft",), ("fft",), two[:1], lambda pf, a: pf.view_as_real(pf.fft.rfft(a)), lambda a: _pairs(np.fft.rfft(a)),
                       magnitude=lambda a: _size(a)[..., None], grad=grad[:1], **shared)
            half = Spec((lines, n // 2 + 1), dtype)
            yield Case(f"irfft-{dtype}-{n}", ("fft.irfft",), ("fft",), (half, half), lambda pf, a, b, n=n: pf.fft.irfft(pf.complex(a, b), n), lambda a, b, n=n: np.fft.irfft(_z(a, b), n),
                       magnitude=lambda a, b: _size(_z(a, b)), grad=grad, **shared)
        cube = (Spec((3, 20, 5), dtype), Spec((3, 20, 5), dtype))
        yield Case(f"fft-{dtype}-middle", ("fft.fft",), ("fft",), cube, lambda pf, a, b: pf.view_as_real(pf.fft.fft(pf.complex(a, b), dim=1)), lambda a, b: _pairs(np.fft.fft(_z(a, b), axis=1)),
                   magnitude=lambda a, b: _size(_z(a, b), 1)[..., None], grad=(0, 1), c=1, length=5)
        yield Case(f"rfft-{dtype}-middle", ("fft.rfft",), ("fft",), cube[:1], lambda pf, a: pf.view_as_real(pf.fft.rfft(a, dim=1)), lambda a: _pairs(np.fft.rfft(a, axis=1)),
                   magnitude=lambda a: _size(a, 1)[..., None], grad=(0,), c=1, length=5)


def cases():
    return [*_elementwise(), *_parts(), *_transforms()]
