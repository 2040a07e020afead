"""Windows: vectors of M numbers that fall towards both ends, by the names of torch.signal.windows.

sym=True gives a symmetric window; sym=False the first M numbers of the symmetric one of M + 1 numbers, which repeats without a seam. They are
computed in float64 and rounded to dtype (the default dtype unless given). ArgumentError for a negative M, for a dtype that is not floating,
and for a layout other than pyflame.strided.
"""
from __future__ import annotations

import math
import operator

from .. import _C
from .._dtypes import check_layout
from .._keywords import naming

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from .._C import Tensor
    from .._annotations import DType, Device
    from .._dtypes import layout as Layout

    class PeriodicWindow(Protocol):
        def __call__(self, window_length: int, periodic: bool = True, *, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
                     requires_grad: bool = False) -> Tensor: ...

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall"]


def _window(name, M, values, sym, dtype, device, requires_grad, layout):
    """values(k, n): at the positions k = 0, 1, ..., n of a symmetric window."""
    check_layout(name, layout)
    dtype = _C.get_default_dtype() if dtype is None else dtype
    try:
        M = operator.index(M)
    except TypeError:
        raise TypeError(f"{name}: the length is not an integer; got M={M!r}; expected 0 or more") from None
    if M < 0:
        raise _C.ArgumentError(f"{name}: negative length; got M={M}; expected 0 or more")
    if not _C.zeros(0, dtype=dtype, device="cpu").is_floating_point():
        raise _C.ArgumentError(f"{name}: not a floating dtype; got {dtype}; expected float32 or float64")
    k = _C.arange(M, dtype=_C.float64, device=device)
    w = values(k, M - 1 if sym else M) if M > 1 else _C.ones_like(k)
    w = w.to(dtype)
    return w.requires_grad_() if requires_grad else w


def _cosines(factors):
    def values(k, n):
        return sum(((-1) ** i * a * _C.cos(k * (2 * math.pi * i / n)) if i else a + 0 * k) for i, a in enumerate(factors))
    return values


def general_cosine(M: int, *, a: list[float] | tuple[float, ...], sym: bool = True, dtype: DType | None = None, layout: Layout | None = None,
                   device: Device | None = None, requires_grad: bool = False) -> Tensor:
    """The sum of (-1)^i a[i] cos(2 pi i k / (M - 1)). a is a sequence of numbers that is not empty.

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int and an a that is neither list nor tuple; ValueError for a negative M, a dtype that is not
    floating, another layout and an empty a.
    """
    factors = [float(x) for x in a] if isinstance(a, (list, tuple)) else None
    if not isinstance(a, (list, tuple)):
        raise TypeError(f"general_cosine: coefficients must be a list or a tuple; got {type(a).__name__}")
    if not factors:
        raise _C.ArgumentError("general_cosine: no coefficients; got an empty sequence; expected at least one number")
    return _window("general_cosine", M, _cosines(factors), sym, dtype, device, requires_grad, layout)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
                    requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi k / (M - 1)).

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("general_hamming", M, _cosines([alpha, 1 - alpha]), sym, dtype, device, requires_grad, layout)


def hamming(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
            requires_grad: bool = False) -> Tensor:
    """0.54 - 0.46 cos(2 pi k / (M - 1)).

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("hamming", M, _cosines([0.54, 0.46]), sym, dtype, device, requires_grad, layout)


def hann(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
         requires_grad: bool = False) -> Tensor:
    """(1 - cos(2 pi k / (M - 1))) / 2.

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("hann", M, _cosines([0.5, 0.5]), sym, dtype, device, requires_grad, layout)


def blackman(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
             requires_grad: bool = False) -> Tensor:
    """0.42 - 0.5 cos(2 pi k / (M - 1)) + 0.08 cos(4 pi k / (M - 1)).

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("blackman", M, _cosines([0.42, 0.5, 0.08]), sym, dtype, device, requires_grad, layout)


def nuttall(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
            requires_grad: bool = False) -> Tensor:
    """Nuttall's window of four cosines with the smallest side lobes.

    M: how many samples. sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("nuttall", M, _cosines([0.3635819, 0.4891775, 0.1365995, 0.0106411]), sym, dtype, device, requires_grad, layout)


def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
             requires_grad: bool = False) -> Tensor:
    """1 - |2 k / (M - 1) - 1|: a triangle.

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("bartlett", M, lambda k, n: 1 - _C.abs(k * (2 / n) - 1), sym, dtype, device, requires_grad, layout)


def cosine(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
           requires_grad: bool = False) -> Tensor:
    """sin(pi (k + 1/2) / M): half a period, which does not reach 0.

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating and another layout.
    """
    return _window("cosine", M, lambda k, n: _C.sin((k + 0.5) * (math.pi / (n + 1))), sym, dtype, device, requires_grad, layout)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None,
                device: Device | None = None, requires_grad: bool = False) -> Tensor:
    """exp(-|k - center| / tau). center: the middle, and nothing else if sym.

    M: how many samples. layout: pyflame.strided, or None.

    Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating, another layout, a center with sym, and a tau
    that is not positive.
    """
    if tau <= 0:
        raise _C.ArgumentError(f"exponential: tau is not positive; got {tau}; expected > 0")
    if sym and center is not None:
        raise _C.ArgumentError(f"exponential: a symmetric window with a center of its own; got center={center}; expected None; hint: sym=False")
    return _window("exponential", M, lambda k, n: _C.exp(-_C.abs(k - (n / 2 if center is None else center)) / tau), sym, dtype, device, requires_grad, layout)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
             requires_grad: bool = False) -> Tensor:
    """exp(-(k - middle)^2 / (2 std^2)).

    M: how many samples. sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating, another layout and a std that is not positive.
    """
    if std <= 0:
        raise _C.ArgumentError(f"gaussian: std is not positive; got {std}; expected > 0")
    return _window("gaussian", M, lambda k, n: _C.exp(-0.5 * _C.square((k - n / 2) / std)), sym, dtype, device, requires_grad, layout)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
           requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - (2 k / (M - 1) - 1)^2)) / I0(beta), with the modified Bessel function I0.

    sym: symmetric; False: one period of a periodic window, as spectra need it. layout: pyflame.strided, or None.

    M: how many samples. Raises TypeError for an M that is no int; ValueError for a negative M, a dtype that is not floating, another layout and a
    negative beta.
    """
    if beta < 0:
        raise _C.ArgumentError(f"kaiser: beta is negative; got {beta}; expected >= 0")

    def values(k, n):
        inside = _C.sqrt(_C.clamp(1 - _C.square(k * (2 / n) - 1), min=0.0)) * float(beta)
        return _C.special_i0e(inside) / _C.special_i0e(_C.full((), float(beta), dtype=_C.float64, device=k.device)) * _C.exp(inside - beta)

    return _window("kaiser", M, values, sym, dtype, device, requires_grad, layout)


_WINDOW_ERRORS = "A vector of window_length numbers. ValueError for a negative length, for dtypes of integers, and for another layout. TypeError for what is no dtype."


def _periodic(window: Callable[..., Tensor], name: str) -> PeriodicWindow:
    def function(window_length: int, periodic: bool = True, *, dtype: DType | None = None, layout: Layout | None = None, device: Device | None = None,
                 requires_grad: bool = False) -> Tensor:
        return window(window_length, sym=not periodic, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The window {window.__name__} of pyflame.signal.windows; periodic=False makes it symmetric.\n\nwindow_length: how many samples. layout: pyflame.strided, or None.\n\n{_WINDOW_ERRORS}"
    return function


bartlett_window = _periodic(bartlett, "bartlett_window")
blackman_window = _periodic(blackman, "blackman_window")
hann_window = _periodic(hann, "hann_window")


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: DType | None = None,
                   layout: Layout | None = None, device: Device | None = None, requires_grad: bool = False) -> Tensor:
    """alpha - beta cos(2 pi k / window_length); periodic=False makes it symmetric.

    window_length: how many samples. layout: pyflame.strided, or None.

    A vector of window_length numbers. ValueError for a negative length, for dtypes of integers, and for another layout. TypeError for what is no dtype.
    """
    return _window("hamming_window", window_length, _cosines([alpha, beta]), not periodic, dtype, device, requires_grad, layout)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None, layout: Layout | None = None,
                  device: Device | None = None, requires_grad: bool = False) -> Tensor:
    """The window kaiser of pyflame.signal.windows; periodic=False makes it symmetric.

    window_length: how many samples. beta: at least 0; the larger it is, the narrower is the window. layout: pyflame.strided, or None.

    A vector of window_length numbers. ValueError for a negative length or beta, for dtypes of integers, and for another layout. TypeError for what is no
    dtype.
    """
    return kaiser(window_length, beta=beta, sym=not periodic, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


naming(globals(), __name__)
