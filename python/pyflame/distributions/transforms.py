"""Invertible functions with the logarithm of their slope, for TransformedDistribution."""
import math

from .. import _C
from . import constraints
from ._math import eps, tiny
from .distribution import sum_rightmost


def _same(a, b):
    if isinstance(a, _C.Tensor) or isinstance(b, _C.Tensor):
        x, y = (a, b) if isinstance(a, _C.Tensor) else (b, a)
        return bool(x.eq(y).all())
    return a == b


class Transform:
    """y = t(x), x = t.inv(y), and log_abs_det_jacobian(x, y). A subclass defines _call, _inverse and log_abs_det_jacobian."""

    bijective = True
    domain = codomain = constraints.real
    sign = 1

    def __init__(self, cache_size=0):
        self._cache_size = cache_size

    @property
    def inv(self):
        """The inverse, as a transform."""
        return _Inverse(self)

    def __call__(self, x):
        return self._call(x)

    def __eq__(self, other):
        return type(self) is type(other) and all(_same(v, other.__dict__[k]) for k, v in self.__dict__.items())

    __hash__ = object.__hash__

    def forward_shape(self, shape):
        """The shape of the result for inputs of a shape."""
        return shape

    def inverse_shape(self, shape):
        """The shape of the input for results of a shape."""
        return shape

    def log_abs_det_jacobian(self, x, y):
        """log |dy / dx| at x with y = self(x), summed over the dims of one value."""
        raise NotImplementedError(f"{type(self).__name__}: log_abs_det_jacobian is not available")

    def __repr__(self):
        return type(self).__name__ + "()"


class _Inverse(Transform):
    def __init__(self, of):
        super().__init__()
        self._of = of

    bijective = property(lambda self: self._of.bijective)
    domain = property(lambda self: self._of.codomain, doc="The numbers that the transform takes, as a constraint.")
    codomain = property(lambda self: self._of.domain, doc="The numbers that the transform gives, as a constraint.")
    sign = property(lambda self: self._of.sign)
    inv = property(lambda self: self._of)

    def _call(self, y):
        return self._of._inverse(y)

    def _inverse(self, x):
        return self._of._call(x)

    def log_abs_det_jacobian(self, y, x):
        return -self._of.log_abs_det_jacobian(x, y)


class ComposeTransform(Transform):
    """Transforms one after the other."""

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size)
        self.parts = list(parts)

    domain = property(lambda self: self.parts[0].domain if self.parts else constraints.real, doc="The numbers that the transform takes, as a constraint.")
    codomain = property(lambda self: self.parts[-1].codomain if self.parts else constraints.real, doc="The numbers that the transform gives, as a constraint.")
    bijective = property(lambda self: all(p.bijective for p in self.parts))
    inv = property(lambda self: ComposeTransform([p.inv for p in reversed(self.parts)]))

    def forward_shape(self, shape):
        for p in self.parts:
            shape = p.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return shape

    @property
    def sign(self):
        return math.prod(p.sign for p in self.parts)

    def _call(self, x):
        for p in self.parts:
            x = p(x)
        return x

    def log_abs_det_jacobian(self, x, y):
        dims = max((max(p.domain.event_dim, p.codomain.event_dim) for p in self.parts), default=0)
        total = _C.zeros_like(x) if not self.parts else 0
        for p in self.parts:
            after = p(x)
            own = max(p.domain.event_dim, p.codomain.event_dim)
            total = total + sum_rightmost(p.log_abs_det_jacobian(x, after), dims - own)
            x = after
        return total


class ExpTransform(Transform):
    """y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x):
        return _C.exp(x)

    def _inverse(self, y):
        return _C.log(y)

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x^exponent, of positive numbers."""

    domain = codomain = constraints.positive

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self):
        return _C.sign(self.exponent) if isinstance(self.exponent, _C.Tensor) else (self.exponent > 0) - (self.exponent < 0)

    def _call(self, x):
        return x**self.exponent

    def _inverse(self, y):
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return _C.log(_C.abs(self.exponent * y / x))


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x))."""

    codomain = constraints.unit_interval

    def _call(self, x):
        return _C.clamp(_C.sigmoid(x), min=2.0**-126, max=1 - eps(x))

    def _inverse(self, y):
        y = _C.clamp(y, min=2.0**-126, max=1 - eps(y))
        return _C.log(y) - _C.log1p(-y)

    def log_abs_det_jacobian(self, x, y):
        return -_C.softplus(-x) - _C.softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x):
        return _C.softplus(x)

    def _inverse(self, y):
        return _C.log(-_C.expm1(-y)) + y

    def log_abs_det_jacobian(self, x, y):
        return -_C.softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x):
        return _C.tanh(x)

    def _inverse(self, y):
        return _C.atanh(y)

    def log_abs_det_jacobian(self, x, y):
        return 2 * (math.log(2) - x - _C.softplus(-2 * x))


class AbsTransform(Transform):
    """y = |x|; its inverse gives the positive one."""

    codomain = constraints.nonnegative
    bijective = False

    def _call(self, x):
        return _C.abs(x)

    def _inverse(self, y):
        return y

    def log_abs_det_jacobian(self, x, y):
        raise NotImplementedError("AbsTransform: two numbers have one absolute value, so there is no slope of the inverse")


class AffineTransform(Transform):
    """y = loc + scale * x. event_dim: how many of the last dims are one value."""

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def sign(self):
        return _C.sign(self.scale) if hasattr(self.scale, "shape") else (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        size = _C.log(_C.abs(self.scale)) if hasattr(self.scale, "shape") else math.log(abs(self.scale))
        return sum_rightmost(_C.zeros_like(x) + size, self.event_dim)


class SoftmaxTransform(Transform):
    """y = exp(x), divided by its sum over the last dim."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, False

    def _call(self, x):
        return _C.softmax(x, -1)

    def _inverse(self, y):
        return _C.log(y)


class StickBreakingTransform(Transform):
    """Vectors as points of a simplex with one more dim: each number says, through a sigmoid, how much of what the ones before it left it takes."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _offsets(self, x, n):
        """Makes zeros the center of the simplex."""
        return _C.log(_C.arange(n, 0, -1, dtype=x.dtype, device=x.device))

    def _call(self, x):
        taken = _C.clamp(_C.sigmoid(x - self._offsets(x, x.shape[-1])), min=tiny(x), max=1 - eps(x))
        return _C.pad(taken, (0, 1), value=1) * _C.pad(_C.cumprod(1 - taken, -1), (1, 0), value=1)

    def _inverse(self, y):
        first = y.narrow(-1, 0, y.shape[-1] - 1)
        left = _C.clamp(1 - _C.cumsum(first, -1), min=tiny(y))
        return _C.log(first) - _C.log(left) + self._offsets(y, first.shape[-1])

    def log_abs_det_jacobian(self, x, y):
        n = x.shape[-1]
        return (_C.log(y.narrow(-1, 0, n)) - _C.softplus(x - self._offsets(x, n))).sum(-1)

    def forward_shape(self, shape):
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)


identity_transform = ComposeTransform([])
