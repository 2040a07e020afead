"""Discrete Fourier transforms, with PyTorch's names, arguments and normalization.

Every function transforms some dims of a tensor and leaves the others. `n` or `s` is the size of a transformed dim: a longer one is cut, a shorter one is
filled with zeros. `norm` says where the result is divided: "backward" (the default) divides the inverse transform by the number n of elements, "forward"
the other one, and "ortho" both by the square root of n.

Functions with an r are of real numbers, of whose frequencies only the first n // 2 + 1 are kept, as the others are their conjugates; those with an h have
real numbers on the side of the frequencies.
"""
from __future__ import annotations

import math

from ._keywords import naming
from . import _C, _refused
from ._dtypes import check_layout
from ._keywords import write_out

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from ._C import Tensor
    from ._annotations import DType, Device, Dim, Function, Out
    from ._dtypes import layout as Layout

    Norm = Literal["backward", "ortho", "forward"]

__all__ = ["fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft",
           "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"]

_NORMS = (None, "backward", "ortho", "forward")


def _scale(op, norm, inverse):
    """What the result is divided by: 0 nothing, 1 the square root of n, 2 n."""
    if norm not in _NORMS:
        raise RuntimeError(f"{op}: invalid normalization mode; got {norm!r}; expected None, 'backward', 'ortho' or 'forward'")
    return 1 if norm == "ortho" else 2 * ((norm == "forward") != inverse)


def _number(op, input, real=False):
    """The input with a dtype that has transforms: complex, or a float of 32 or 64 bits."""
    if input.is_complex():
        if real:
            raise RuntimeError(f"{op}: expects a real input tensor; got {input.dtype}")
        return input
    if input.dtype in (_C.float16, _C.bfloat16):
        raise RuntimeError(f"{op}: unsupported dtype; got {input.dtype}; expected float32 or float64; hint: input.float()")
    return input if input.is_floating_point() else input.to(_C.get_default_dtype())


def _complex(input):
    return input if input.is_complex() else input.to(_C.complex128 if input.dtype == _C.float64 else _C.complex64)


def _wrap(op, dim, rank):
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"{op}: dim out of range; got {dim}; expected {-max(rank, 1)} to {max(rank, 1) - 1}")
    return dim % max(rank, 1)


def _sized(op, input, dim, n):
    """The dim with n elements."""
    if n < 1:
        raise RuntimeError(f"{op}: invalid number of data points; got {n}; expected at least 1")
    have = input.shape[dim]
    if n == have:
        return input
    return input.narrow(dim, 0, n) if n < have else _C.pad(input, [0, 0] * (input.ndim - 1 - dim) + [0, n - have])


def _one(op, input, n, dim, need=lambda n: n):
    """The dim counted from 0, and the input with that many elements along it."""
    if input.ndim == 0:
        raise IndexError(f"{op}: a tensor without dims has none to transform; got shape (); expected 1-D or more")
    dim = _wrap(op, dim, input.ndim)
    return dim, _sized(op, input, dim, need(input.shape[dim] if n is None else n))


def _given(op, result, out):
    return result if out is None else write_out(op, result, out)


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """X[k] = sum over j of x[j] exp(-2 pi i j k / n): the discrete Fourier transform along a dim, for k = 0, 1, .., n - 1.

    input: [..., N, ...], real or complex, of 32 or 64 bits; integers and bool become the default dtype. n: how many elements the dim gets, by zeros at
    its end or a cut; None: N. dim: the dim of the transform. norm: 'backward' or None, 'ortho' or 'forward': the sum is divided by 1, sqrt(n) or n.
    Returns complex64, or complex128 for 64 bits, of the input's shape with n in place of N.
    RuntimeError for n < 1, an unknown norm, float16 and bfloat16. IndexError for a dim out of range and for an input without dims.
    """
    scale = _scale("fft", norm, False)
    dim, x = _one("fft", _number("fft", input), n, dim)
    return _given("fft", _C._fft(_complex(x), dim, False, scale), out)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """x[j] = sum over k of X[k] exp(2 pi i j k / n) / n: the inverse of fft.

    input, n, dim, shapes, dtypes and errors: as in fft. norm: 'backward' or None, 'ortho' or 'forward': the sum is divided by n, sqrt(n) or 1.
    """
    scale = _scale("ifft", norm, True)
    dim, x = _one("ifft", _number("ifft", input), n, dim)
    return _given("ifft", _C._fft(_complex(x), dim, True, scale), out)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """fft of real numbers: [..., N, ...] -> [..., n // 2 + 1, ...], the frequencies from 0 to n // 2. The others are conjugates of these.

    input, n, dim and norm: as in fft. Returns complex64, or complex128 for float64. RuntimeError for complex input; the other errors are those of fft.
    """
    scale = _scale("rfft", norm, False)
    dim, x = _one("rfft", _number("rfft", input, real=True), n, dim)
    return _given("rfft", _C._rfft(x, dim, scale), out)


def _back_to_real(op, x, n, dim, scale):
    dim, _ = _one(op, x, 1, dim)
    n = 2 * (x.shape[dim] - 1) if n is None else n
    if n < 1:
        raise RuntimeError(f"{op}: invalid number of data points; got {n}; expected at least 1")
    return _C._irfft(_sized(op, _complex(x), dim, n // 2 + 1), dim, n, scale)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """The inverse of rfft: [..., M, ...] -> n real numbers [..., n, ...], n being 2 (M - 1) unless given. Give an odd n, since M does not tell it.

    input, dim: as in fft. norm: as in ifft. Of the input, n // 2 + 1 frequencies count. Returns float32, or float64 for 64 bits.
    RuntimeError for n < 1, which M = 1 leads to unless n is given; the other errors are those of fft.
    """
    return _given("irfft", _back_to_real("irfft", _number("irfft", input), n, dim, _scale("irfft", norm, True)), out)


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """fft of the first half of a signal whose other half is its conjugate: [..., M, ...] -> n real frequencies [..., n, ...], by default n = 2 (M - 1).

    input, dim and norm: as in fft. Returns float32, or float64 for 64 bits. RuntimeError for n < 1, which M = 1 leads to unless n is given; the other
    errors are those of fft.
    """
    return _given("hfft", _back_to_real("hfft", _number("hfft", input).conj(), n, dim, _scale("hfft", norm, False)), out)


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """The inverse of hfft: of n real frequencies [..., N, ...], the first half of their signal, [..., n // 2 + 1, ...].

    input, n, dim: as in fft. norm: as in ifft. Returns complex64, or complex128 for float64. RuntimeError for complex input; the other errors are those
    of fft.
    """
    scale = _scale("ihfft", norm, True)
    dim, x = _one("ihfft", _number("ihfft", input, real=True), n, dim)
    return _given("ihfft", _C._rfft(x, dim, scale).conj(), out)


# ---- several dims


def _dims(op, input, s, dim):
    """(dims counted from 0, their sizes or None)."""
    rank = input.ndim
    s = (s,) if isinstance(s, int) else s
    if dim is None:
        if s is not None and len(s) > rank:
            raise RuntimeError(f"{op}: more sizes than dims; got {tuple(s)} for {rank} dims")
        dims = list(range(rank if s is None else len(s)))
        dims = [d + rank - len(dims) for d in dims]
    else:
        dims = [_wrap(op, d, rank) for d in ((dim,) if isinstance(dim, int) else dim)]
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"{op}: FFT dims must be unique; got {tuple(dim)}")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(f"{op}: not one size for each dim; got {tuple(s)} and {tuple(dim)}")
    sizes = [None] * len(dims) if s is None else [None if n == -1 else n for n in s]
    return dims, sizes


def _all_sized(op, x, dims, sizes):
    for d, n in zip(dims, sizes):
        x = _sized(op, x, d, x.shape[d] if n is None else n)
    return x


def _many(op, input, s, dim, norm, inverse):
    scale = _scale(op, norm, inverse)
    x = _number(op, input)
    dims, sizes = _dims(op, x, s, dim)
    x = _complex(_all_sized(op, x, dims, sizes))
    for d in reversed(dims):
        x = _C._fft(x, d, inverse, scale)
    return x if dims else x.clone()


def fftn(input: Tensor, s: Dim | None = None, dim: Dim | None = None, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """fft along several dims: all of them, or those of dim, or the last len(s) ones.

    input: any shape, dtypes as in fft. s: how many elements each of the dims gets, by zeros or a cut, -1 for as many as there are; None: -1 for each.
    dim: a number or several. norm: as in fft, n being the product of the sizes. Returns complex64, or complex128 for 64 bits, of the input's shape with
    the sizes s. RuntimeError for dims that repeat, a number of sizes that differs from that of the dims, a size below 1 other than -1, an unknown norm,
    float16 and bfloat16. IndexError for a dim out of range.
    """
    return _given("fftn", _many("fftn", input, s, dim, norm, False), out)


def ifftn(input: Tensor, s: Dim | None = None, dim: Dim | None = None, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """The inverse of fftn: ifft along several dims.

    input, s, dim, shapes, dtypes and errors: as in fftn. norm: as in ifft, n being the product of the sizes.
    """
    return _given("ifftn", _many("ifftn", input, s, dim, norm, True), out)


def _of_real(op, input, s, dim, norm, inverse):
    """rfft along the last of the dims, then complex transforms along the others. inverse: ihfftn, whose result is the conjugate of the same with
    the norm of an inverse."""
    scale = _scale(op, norm, inverse)
    x = _number(op, input, real=True)
    dims, sizes = _dims(op, x, s, dim)
    if not dims:
        raise RuntimeError(f"{op}: must transform at least one axis")
    x = _all_sized(op, x, dims, sizes)
    x = _C._rfft(x, dims[-1], scale)
    for d in reversed(dims[:-1]):
        x = _C._fft(x, d, False, scale)
    return x.conj() if inverse else x


def rfftn(input: Tensor, s: Dim | None = None, dim: Dim | None = None, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """rfft along the last of several dims, and fft along the others. That dim has n // 2 + 1 elements in the result, n being its size in s or the input.

    input, s, dim and norm: as in fftn. Returns complex64, or complex128 for float64. RuntimeError for complex input and where there is no dim to
    transform; the other errors are those of fftn.
    """
    return _given("rfftn", _of_real("rfftn", input, s, dim, norm, False), out)


def ihfftn(input: Tensor, s: Dim | None = None, dim: Dim | None = None, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """The inverse of hfftn: ihfft along the last of several dims, of which n // 2 + 1 elements are left, and ifft along the others.

    input, s, dim: as in fftn. norm: as in ifftn. Dtypes and errors are those of rfftn.
    """
    return _given("ihfftn", _of_real("ihfftn", input, s, dim, norm, True), out)


def _to_real(op, input, s, dim, norm, inverse):
    """Complex transforms along all dims but the last one, and irfft along that. Not inverse: hfftn, which is the same of the conjugate."""
    scale = _scale(op, norm, inverse)
    x = _number(op, input)
    dims, sizes = _dims(op, x, s, dim)
    if not dims:
        raise RuntimeError(f"{op}: must transform at least one axis")
    last = dims[-1]
    n = 2 * (x.shape[last] - 1) if sizes[-1] is None else sizes[-1]
    if n < 1:
        raise RuntimeError(f"{op}: invalid number of data points; got {n}; expected at least 1")
    x = _complex(_all_sized(op, x, dims, [*sizes[:-1], n // 2 + 1]))
    x = x if inverse else x.conj()
    for d in dims[:-1]:
        x = _C._fft(x, d, True, scale)
    return _C._irfft(x, last, n, scale)


def irfftn(input: Tensor, s: Dim | None = None, dim: Dim | None = None, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """The inverse of rfftn: ifft along all dims but the last one, and irfft along that. The last size of s is that of the result; by default 2 (M - 1) of M
    frequencies.

    input, s, dim: as in fftn. norm: as in ifftn. Returns float32, or float64 for 64 bits. RuntimeError where there is no dim to transform,
    and where the last size is below 1, which M = 1 leads to unless s is given; the other errors are those of fftn.
    """
    return _given("irfftn", _to_real("irfftn", input, s, dim, norm, True), out)


def hfftn(input: Tensor, s: Dim | None = None, dim: Dim | None = None, norm: Norm | None = None, *, out: Out = None) -> Tensor:
    """fft along all dims but the last one, then hfft along that. The last size of s is that of the result; by default 2 (M - 1) of M elements.

    input, s, dim and norm: as in fftn. Dtypes and errors are those of irfftn.
    """
    return _given("hfftn", _to_real("hfftn", input, s, dim, norm, False), out)


_SHAPES_OF_TWO = {
    **dict.fromkeys(("fftn", "ifftn"), "[..., H, W] -> [..., H, W]"),
    **dict.fromkeys(("rfftn", "ihfftn"), "[..., H, W] -> [..., H, W // 2 + 1]"),
    **dict.fromkeys(("irfftn", "hfftn"), "[..., H, M] -> [..., H, 2 (M - 1)], or the last size of s"),
}


def _of_two(name: str, function: Function) -> Function:
    def two(input: Tensor, s: Dim | None = None, dim: Dim | None = (-2, -1), norm: Norm | None = None, *, out: Out = None) -> Tensor:
        return function(input, s, dim, norm, out=out)

    two.__name__ = two.__qualname__ = name
    two.__doc__ = f"""{function.__name__} along two dims, by default the last ones: {_SHAPES_OF_TWO[function.__name__]}.

    dim: two dims, or as many as given; None: as in {function.__name__}. IndexError for an input of fewer dims than two. The other arguments are those of
    {function.__name__}, and so are dtypes and errors, which name {function.__name__}."""
    return two


fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = (_of_two(f.__name__[:-1] + "2", f) for f in (fftn, ifftn, rfftn, irfftn, hfftn, ihfftn))


# ---- orders of frequencies


def _one_over(x):
    return 1.0 / x if x else math.copysign(math.inf, x)


def fftfreq(n: int, d: float = 1.0, *, out: Out = None, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
            requires_grad: bool = False) -> Tensor:
    """The frequencies of fft of n samples at distance d: 0, 1, .., -2, -1, each divided by n d.

    n: an integer from 0. d: a number, such as the seconds between two samples, which gives hertz. Returns [n], of the default dtype unless dtype is
    given. With a d of 0 they are infinite, and NaN for 0. ArgumentError for n < 0. layout: pyflame.strided, or None; ArgumentError for others.
    """
    check_layout("fftfreq", layout)
    k = _C.arange(n, device=device)
    k = _C.where(k < (n + 1) // 2, k, k - n).to(dtype or _C.get_default_dtype()) * _one_over(n * d)
    return _given("fftfreq", k.requires_grad_() if requires_grad else k, out)


def rfftfreq(n: int, d: float = 1.0, *, out: Out = None, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
             requires_grad: bool = False) -> Tensor:
    """The frequencies of rfft of n samples at distance d: 0, 1, .., n // 2, each divided by n d.

    n: an integer from 0. d: a number, such as the seconds between two samples, which gives hertz. Returns [n // 2 + 1], of the default dtype unless dtype
    is given. With n or d of 0 they are infinite, and NaN for 0. layout: pyflame.strided, or None; ArgumentError for others.
    """
    check_layout("rfftfreq", layout)
    k = _C.arange(n // 2 + 1, device=device).to(dtype or _C.get_default_dtype()) * _one_over(n * d)
    return _given("rfftfreq", k.requires_grad_() if requires_grad else k, out)


def _shifted(input, dim, by):
    from ._shapes import roll

    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return roll(input, [by(input.shape[d]) for d in dims], dims) if dims else input.clone()


def fftshift(input: Tensor, dim: Dim | None = None) -> Tensor:
    """Frequency 0 in the middle: the elements of each dim of size n move by n // 2, and those that leave at the end enter at the start.

    input: any shape and dtype, which the result has too. dim: a number or several; None: all dims. IndexError for a dim out of range.
    """
    return _shifted(input, dim, lambda n: n // 2)


def ifftshift(input: Tensor, dim: Dim | None = None) -> Tensor:
    """The inverse of fftshift: the elements of each dim of size n move by (n + 1) // 2.

    input: any shape and dtype, which the result has too. dim: a number or several; None: all dims. IndexError for a dim out of range.
    """
    return _shifted(input, dim, lambda n: (n + 1) // 2)


naming(globals(), __name__, ("check_layout",))

_refused.unknown(globals())
