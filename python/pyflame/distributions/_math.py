"""Functions and random numbers that distributions need."""
import math

from .. import _C
from .._elementwise import xlogy  # noqa: F401
from .._generator import draw_seed
from ..autograd import Function
from ..nn.init import _erfinv

EULER = 0.57721566490153286060
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def tiny(x):
    """The smallest normal number of the dtype."""
    return 2.0**-1022 if x.dtype == _C.float64 else 2.0**-126


def eps(x):
    return 2.0**-52 if x.dtype == _C.float64 else 2.0**-23


def clamp_probs(p):
    return _C.clamp(p, min=eps(p), max=1 - eps(p))


def uniform(shape, like):
    """U(0, 1) without 0."""
    return _C.clamp(_C.rand(shape, dtype=like.dtype, device=like.device), min=tiny(like))


def normal(shape, like):
    return _C.randn(shape, dtype=like.dtype, device=like.device)


def _host():
    """A generator of NumPy, seeded by ours."""
    import numpy as np

    return np.random.Generator(np.random.Philox(draw_seed()))


def on_host(draw, shape, like, *parameters):
    """draw(generator, *arrays of the shape), computed by NumPy: draws by rejection, which have no fixed number of steps."""
    import numpy as np

    arrays = [np.broadcast_to(p.detach().cpu().double().numpy(), shape) for p in parameters]
    return _C.tensor(np.asarray(draw(_host(), *arrays)), dtype=like.dtype, device=like.device)


def _digamma(x):
    """For NumPy arrays of positive numbers: the recurrence up to 10, then the asymptotic series."""
    import numpy as np

    total = np.zeros_like(x)
    while (small := x < 10).any():
        total = total - np.where(small, 1 / x, 0)
        x = np.where(small, x + 1, x)
    y = 1 / (x * x)
    return total + np.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))


def _gamma_slope(a, x):
    """dx / da of a draw x of Gamma(a) whose cumulative probability stays the same (Figurnov et al., 2018), as NumPy arrays: the series of the incomplete gamma
    function, and for large a the cube root's normal approximation (Wilson and Hilferty, 1931)."""
    import numpy as np

    large = a > 3000
    z = (np.cbrt(x / a) - 1 + 1 / (9 * a)) * 3 * np.sqrt(a)
    y = np.cbrt(x / a)
    approximate = y**3 + 3 * a * y * y * (1 / (9 * a * a) - z / (6 * a**1.5))
    a, x = np.where(large, 1.0, a), np.maximum(np.where(large, 1.0, x), 1e-300)
    log_x, psi = np.log(x), _digamma(a + 1)
    term, total, n = x / a, np.zeros_like(x), 0
    while True:
        total -= term * (log_x - psi)
        n += 1
        step = x / (a + n)
        term, psi = term * step, psi + 1 / (a + n)
        if n > 10 and ((step < 0.9) & (np.abs(term * (log_x - psi)) <= 1e-14 * np.abs(total))).all() or n > 4000:
            break
    return np.where(large, approximate, total)


_CANDIDATES = 12
_AT_ONCE = 1 << 24  # candidates


def _gamma_by_tensors(a):
    """Draws of Gamma(a, 1) by functions of tensors: Marsaglia and Tsang, 2000. It rejects at most 4.9 % of the candidates, so that none of 12 is accepted for one
    element of 10^15; that one becomes a - 1/3 or a + 2/3. Of a < 1: a draw of Gamma(a + 1, 1) times U^(1 / a)."""
    shape = tuple(a.shape)
    small = a < 1
    d = _C.where(small, a + 1, a) - 1 / 3
    c = 1 / (3 * _C.sqrt(d))
    x = d
    # All candidates of few elements are drawn together, which takes fewer ops; those of many elements one after the other, which takes less memory.
    together = _CANDIDATES if a.numel() * _CANDIDATES <= _AT_ONCE else 1
    for _ in range(_CANDIDATES // together):
        z = normal((together, *shape), a)
        root = 1 + c * z
        v = root * root * root
        fits = (root > 0) & (_C.log(uniform((together, *shape), a)) < 0.5 * z * z + d * (1 - v + _C.log(_C.clamp(v, min=tiny(a)))))
        candidate = _C.where(fits, d * v, -1.0)  # what fits is not below 0
        chosen = candidate.gather(0, fits.to(_C.int32).argmax(0, keepdim=True)).squeeze(0)
        x = _C.where(chosen < 0, x, chosen)
    return _C.where(small, x * _C.exp(_C.log(uniform(shape, a)) / a), x)


class StandardGamma(Function):
    """Draws of Gamma(concentration, 1), with implicit gradients. NumPy draws for the CPU."""

    @staticmethod
    def forward(ctx, concentration):
        a = concentration.detach()
        if a.device.type == "cpu":
            x = on_host(lambda random, a: random.standard_gamma(a), tuple(a.shape), a, a)
        else:
            x = _gamma_by_tensors(a)
        x = _C.clamp(x, min=tiny(a))
        ctx.save_for_backward(concentration, x)
        return x

    @staticmethod
    def backward(ctx, grad):
        a, x = ctx.saved_tensors
        slope = _gamma_slope(a.detach().cpu().double().numpy(), x.detach().cpu().double().numpy())
        return grad * _C.tensor(slope, dtype=a.dtype, device=a.device)


def _log_gamma(x):
    """log(gamma(x)) of positive numbers: Stirling's series at x + 8, and the recurrence back."""
    product, w = x, x + 8
    for k in range(1, 8):
        product = product * (x + k)
    y = 1 / (w * w)
    series = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / w
    return (w - 0.5) * _C.log(w) - w + HALF_LOG_2PI + series - _C.log(product)


def _psi(x):
    """The derivative of _log_gamma."""
    total, w = 1 / x, x + 8
    for k in range(1, 8):
        total = total + 1 / (x + k)
    y = 1 / (w * w)
    return _C.log(w) - 0.5 / w - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240))) - total


lgamma, digamma = getattr(_C, "lgamma", _log_gamma), getattr(_C, "digamma", _psi)
erfinv = getattr(_C, "erfinv", _erfinv)
