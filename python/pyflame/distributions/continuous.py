"""Distributions of real numbers."""
import math

from .. import _C
from ..special import i0e, i1e, xlog1py
from . import constraints
from ._math import EULER, HALF_LOG_2PI, erfinv, normal, on_host, uniform
from .distribution import Distribution, ExponentialFamily, broadcast_all


class _LocScale:
    """What distributions with a location and a scale share."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * self._standard(self._extended_shape(sample_shape))


class Normal(_LocScale, ExponentialFamily):
    """N(loc, scale^2): density exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi)).

    loc, scale: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    mean = mode = property(lambda self: self.loc, doc="The mean and the mode, loc: a tensor of batch_shape and of the parameters' dtype.")
    stddev = property(lambda self: self.scale, doc="The standard deviation, scale: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.scale * self.scale, doc="The variance, scale^2: a tensor of batch_shape and of the parameters' dtype.")

    def _standard(self, shape):
        return normal(shape, self.loc)

    def log_prob(self, value):
        """The logarithm of the density: -z^2 / 2 - log(scale) - log(2 pi) / 2 for z = (value - loc) / scale. Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - _C.log(self.scale) - HALF_LOG_2PI

    def cdf(self, value):
        """The probability of a number of at most value: (1 + erf(z / sqrt(2))) / 2 for z = (value - loc) / scale. Shapes and errors are those of
        Distribution.cdf.
        """
        self._validate_sample(value)
        return 0.5 * (1 + _C.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value):
        """The number x with cdf(x) = value: loc + scale sqrt(2) erfinv(2 value - 1). value: probabilities, which broadcast with batch_shape and are not
        checked.
        """
        return self.loc + self.scale * math.sqrt(2) * erfinv(2 * value - 1)

    def entropy(self):
        """The entropy in nats, 1/2 + log(2 pi) / 2 + log(scale): a tensor of batch_shape and of the parameters' dtype."""
        return 0.5 + HALF_LOG_2PI + _C.log(self.scale)


class Laplace(_LocScale, Distribution):
    """Density exp(-|x - loc| / scale) / (2 scale).

    loc, scale: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    mean = mode = property(lambda self: self.loc, doc="The mean and the mode, loc: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: 2 * self.scale * self.scale, doc="The variance, 2 scale^2: a tensor of batch_shape and of the parameters' dtype.")
    stddev = property(lambda self: math.sqrt(2) * self.scale, doc="The standard deviation, sqrt(2) scale: a tensor of batch_shape and of the parameters' dtype.")

    def _standard(self, shape):
        u = uniform(shape, self.loc) - 0.5
        return -_C.sign(u) * _C.log1p(-2 * _C.clamp(_C.abs(u), max=0.5 - 2.0**-25))

    def log_prob(self, value):
        """The logarithm of the density: -log(2 scale) - |value - loc| / scale. Shapes and errors are those of Distribution.log_prob."""
        self._validate_sample(value)
        return -_C.log(2 * self.scale) - _C.abs(value - self.loc) / self.scale

    def cdf(self, value):
        """The probability of a number of at most value: 1/2 - sign(d) (exp(-|d| / scale) - 1) / 2 for d = value - loc. Shapes and errors are those of
        Distribution.cdf.
        """
        self._validate_sample(value)
        d = value - self.loc
        return 0.5 - 0.5 * _C.sign(d) * _C.expm1(-_C.abs(d) / self.scale)

    def icdf(self, value):
        """The number x with cdf(x) = value: loc - scale sign(d) log(1 - 2 |d|) for d = value - 1/2. value: probabilities, which broadcast with batch_shape
        and are not checked.
        """
        d = value - 0.5
        return self.loc - self.scale * _C.sign(d) * _C.log1p(-2 * _C.abs(d))

    def entropy(self):
        """The entropy in nats, 1 + log(2 scale): a tensor of batch_shape and of the parameters' dtype."""
        return 1 + _C.log(2 * self.scale)


class Cauchy(_LocScale, Distribution):
    """Density 1 / (pi scale (1 + ((x - loc) / scale)^2)). mean is NaN, variance infinite.

    loc, scale: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    mode = property(lambda self: self.loc, doc="The mode, loc: a tensor of batch_shape and of the parameters' dtype.")
    mean = property(lambda self: _C.full(self._batch_shape, math.nan, dtype=self.loc.dtype, device=self.loc.device),
                    doc="The mean, NaN, because the integral does not exist: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: _C.full(self._batch_shape, math.inf, dtype=self.loc.dtype, device=self.loc.device),
                        doc="The variance, infinity: a tensor of batch_shape and of the parameters' dtype.")

    def _standard(self, shape):
        return normal(shape, self.loc) / normal(shape, self.loc)

    def log_prob(self, value):
        """The logarithm of the density: -log(pi scale (1 + z^2)) for z = (value - loc) / scale. Shapes and errors are those of Distribution.log_prob."""
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - _C.log(self.scale) - _C.log1p(z * z)

    def cdf(self, value):
        """The probability of a number of at most value: atan((value - loc) / scale) / pi + 1/2. Shapes and errors are those of Distribution.cdf."""
        self._validate_sample(value)
        return _C.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value):
        """The number x with cdf(x) = value: loc + scale tan(pi (value - 1/2)). value: probabilities, which broadcast with batch_shape and are not checked."""
        return _C.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self):
        """The entropy in nats, log(4 pi scale): a tensor of batch_shape and of the parameters' dtype."""
        return math.log(4 * math.pi) + _C.log(self.scale)


class Gumbel(_LocScale, Distribution):
    """The distribution of the largest of many: cumulative probability exp(-exp(-(x - loc) / scale)).

    loc, scale: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    mean = property(lambda self: self.loc + self.scale * EULER,
                    doc="The mean, loc + 0.5772 scale (Euler's constant): a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: self.loc, doc="The mode, loc: a tensor of batch_shape and of the parameters' dtype.")
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale,
                      doc="The standard deviation, pi scale / sqrt(6): a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.stddev * self.stddev, doc="The variance, pi^2 scale^2 / 6: a tensor of batch_shape and of the parameters' dtype.")

    def _standard(self, shape):
        return -_C.log(-_C.log(_C.clamp(uniform(shape, self.loc), max=1 - 2.0**-24)))

    def log_prob(self, value):
        """The logarithm of the density: y - exp(y) - log(scale) for y = (loc - value) / scale. Shapes and errors are those of Distribution.log_prob."""
        self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - _C.exp(y) - _C.log(self.scale)

    def cdf(self, value):
        """The probability of a number of at most value: exp(-exp(-(value - loc) / scale)). Shapes and errors are those of Distribution.cdf."""
        self._validate_sample(value)
        return _C.exp(-_C.exp((self.loc - value) / self.scale))

    def icdf(self, value):
        """The number x with cdf(x) = value: loc - scale log(-log(value)). value: probabilities, which broadcast with batch_shape and are not checked."""
        return self.loc - self.scale * _C.log(-_C.log(value))

    def entropy(self):
        """The entropy in nats, log(scale) + 1 + 0.5772 (Euler's constant): a tensor of batch_shape and of the parameters' dtype."""
        return _C.log(self.scale) + 1 + EULER


class _Half(Distribution):
    """The distribution of |x|, where x is of a symmetric distribution around 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale, validate_args=None):
        (self.scale,) = broadcast_all(scale)
        self.base_dist = self._of(0.0, self.scale, validate_args=False)
        super().__init__(self.scale.shape, validate_args=validate_args)

    mode = property(lambda self: _C.zeros_like(self.scale), doc="The mode, 0: a tensor of batch_shape and of the parameters' dtype.")

    def rsample(self, sample_shape=()):
        return _C.abs(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        """The logarithm of the density: log(2) plus that of the symmetric distribution, and -infinity for negative values. Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        return _C.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        """The probability of a number of at most value: 2 F(value) - 1, where F is the cdf of the symmetric distribution. Shapes and errors are those of
        Distribution.cdf.
        """
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value):
        """The number x with cdf(x) = value: that of the symmetric distribution at (value + 1) / 2. value: probabilities, which broadcast with batch_shape and
        are not checked.
        """
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self):
        """The entropy in nats, that of the symmetric distribution less log(2): a tensor of batch_shape and of the parameters' dtype."""
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """|x| for x of N(0, scale^2): density sqrt(2 / pi) exp(-(x / scale)^2 / 2) / scale for x >= 0.

    scale: a number, or a tensor of batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError, where arguments are
    checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    _of = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi), doc="The mean, scale sqrt(2 / pi): a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.scale * self.scale * (1 - 2 / math.pi),
                        doc="The variance, scale^2 (1 - 2 / pi): a tensor of batch_shape and of the parameters' dtype.")


class HalfCauchy(_Half):
    """|x| for x of Cauchy(0, scale): density 2 / (pi scale (1 + (x / scale)^2)) for x >= 0.

    scale: a number, or a tensor of batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError, where arguments are
    checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    _of = Cauchy
    mean = property(lambda self: _C.full_like(self.scale, math.inf), doc="The mean, infinity: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.base_dist.variance, doc="The variance, infinity: a tensor of batch_shape and of the parameters' dtype.")


class Uniform(Distribution):
    """Equal density 1 / (high - low) from low to high.

    low, high: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for a low that is not below high; from log_prob for values outside of the support.
    """

    has_rsample = True
    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError("Uniform: low is not below high; expected low < high")

    support = property(lambda self: constraints.interval(self.low.detach(), self.high.detach()),
                       doc="The values that the distribution can give, as a constraint: the numbers from low to high.")
    mean = property(lambda self: (self.high + self.low) / 2, doc="The mean, (low + high) / 2: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: self.high * math.nan,
                    doc="The mode, NaN, because all values are equally likely: a tensor of batch_shape and of the parameters' dtype.")
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12),
                      doc="The standard deviation, (high - low) / sqrt(12): a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: (self.high - self.low) ** 2 / 12,
                        doc="The variance, (high - low)^2 / 12: a tensor of batch_shape and of the parameters' dtype.")

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return self.low + _C.rand(shape, dtype=self.low.dtype, device=self.low.device) * (self.high - self.low)

    def log_prob(self, value):
        """The logarithm of the density: -log(high - low) from low to below high, otherwise -infinity. Shapes and errors are those of Distribution.log_prob.
        """
        self._validate_sample(value)
        inside = _C.logical_and(value >= self.low, value < self.high)
        return _C.where(inside, 0.0, -math.inf).to(self.low.dtype) - _C.log(self.high - self.low)

    def cdf(self, value):
        """The probability of a number of at most value: (value - low) / (high - low), within 0 and 1. Shapes and errors are those of Distribution.cdf."""
        self._validate_sample(value)
        return _C.clamp((value - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value):
        """The number x with cdf(x) = value: low + value (high - low). value: probabilities, which broadcast with batch_shape and are not checked."""
        return value * (self.high - self.low) + self.low

    def entropy(self):
        """The entropy in nats, log(high - low): a tensor of batch_shape and of the parameters' dtype."""
        return _C.log(self.high - self.low)


class Exponential(ExponentialFamily):
    """Density rate exp(-rate x) for x >= 0.

    rate: a number, or a tensor of batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError, where arguments are
    checked, for a rate that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = stddev = property(lambda self: 1 / self.rate, doc="The mean and the standard deviation, 1 / rate: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.zeros_like(self.rate), doc="The mode, 0: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: 1 / (self.rate * self.rate), doc="The variance, 1 / rate^2: a tensor of batch_shape and of the parameters' dtype.")

    def rsample(self, sample_shape=()):
        return -_C.log(uniform(self._extended_shape(sample_shape), self.rate)) / self.rate

    def log_prob(self, value):
        """The logarithm of the density: log(rate) - rate value. Shapes and errors are those of Distribution.log_prob."""
        self._validate_sample(value)
        return _C.log(self.rate) - self.rate * value

    def cdf(self, value):
        """The probability of a number of at most value: 1 - exp(-rate value). Shapes and errors are those of Distribution.cdf."""
        self._validate_sample(value)
        return -_C.expm1(-self.rate * value)

    def icdf(self, value):
        """The number x with cdf(x) = value: -log(1 - value) / rate. value: probabilities, which broadcast with batch_shape and are not checked."""
        return -_C.log1p(-value) / self.rate

    def entropy(self):
        """The entropy in nats, 1 - log(rate): a tensor of batch_shape and of the parameters' dtype."""
        return 1 - _C.log(self.rate)


class VonMises(Distribution):
    """Angles with density proportional to exp(concentration cos(x - loc)). Mean and variance are those of directions. Draws are made on the host, and have no
    gradient: rsample is a NotImplementedError.

    loc, concentration: numbers or tensors, of a floating dtype that draws have. validate_args: as in Distribution. RuntimeError where they do not broadcast.
    ValueError, where arguments are checked, for a concentration that is not above 0 and for a loc that is NaN."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc, doc="The mean and the mode, the angle loc: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: 1 - i1e(self.concentration) / i0e(self.concentration),
                        doc="The variance, the circular one, 1 - I1(concentration) / I0(concentration) of modified Bessel functions: a tensor of batch_shape and "
                            "of the parameters' dtype.")

    def sample(self, sample_shape=()):
        return on_host(lambda random, loc, kappa: random.vonmises(loc, kappa), self._extended_shape(sample_shape), self.loc, self.loc, self.concentration)

    def log_prob(self, value):
        """The logarithm of the density: concentration cos(value - loc) - log(2 pi I0(concentration)), with the modified Bessel function I0. Shapes and errors
        are those of Distribution.log_prob.
        """
        self._validate_sample(value)
        return self.concentration * (_C.cos(value - self.loc) - 1) - math.log(2 * math.pi) - _C.log(i0e(self.concentration))


class GeneralizedPareto(Distribution):
    """Density (1 + concentration z)^(-1 - 1 / concentration) / scale for z = (x - loc) / scale >= 0; exp(-z) / scale for concentration 0.

    The tails of other distributions have this form. A negative concentration bounds the values at loc - scale / concentration. mean is NaN for a
    concentration of 1 or more, variance of 1/2 or more. Pickands, "Statistical inference using extreme order statistics", 1975.

    loc, scale, concentration: numbers or tensors, of a floating dtype that draws have. validate_args: as in Distribution. RuntimeError where they do not
    broadcast. ValueError, where arguments are checked, for a scale that is not above 0; from log_prob for values outside of the bounds."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mode = property(lambda self: self.loc, doc="The mode, loc: a tensor of batch_shape and of the parameters' dtype.")

    def _by_concentration(self, at_zero, elsewhere):
        """at_zero where the concentration is 0 (to 1e-8, as in PyTorch), otherwise elsewhere(concentration)."""
        zero = _C.abs(self.concentration) <= 1e-8
        return _C.where(zero, at_zero, elsewhere(_C.where(zero, 1.0, self.concentration)))

    def _z(self, value):
        return (value - self.loc) / self.scale

    @property
    def support(self):
        """The values that the distribution can give, as a constraint: the numbers from loc on, up to loc - scale / concentration where the concentration is
        negative.
        """
        c, loc = self.concentration.detach(), self.loc.detach()
        bounded = c < 0
        return constraints.interval(loc, _C.where(bounded, loc - self.scale.detach() / _C.where(bounded, c, -1.0), math.inf))

    def rsample(self, sample_shape=()):
        return self.icdf(_C.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value):
        self._validate_sample(value)
        z = self._z(value)
        return self._by_concentration(-z, lambda c: -xlog1py(1 + 1 / c, c * z)) - _C.log(self.scale)

    def log_survival_function(self, value):
        """The logarithm of the probability of more than value: -log(1 + concentration z) / concentration for z = (value - loc) / scale; -z for concentration
        0. ValueError, where values are checked, for one outside of the support.
        """
        self._validate_sample(value)
        z = self._z(value)
        return self._by_concentration(-z, lambda c: -_C.log1p(c * z) / c)

    def log_cdf(self, value):
        """log(cdf(value)), computed from log_survival_function so that it is exact where cdf is near 0 or 1. ValueError, where values are checked, for one
        outside of the support.
        """
        rest = self.log_survival_function(value)
        return _C.where(rest > -0.5, _C.log(-_C.expm1(rest)), _C.log1p(-_C.exp(rest)))

    def cdf(self, value):
        """The probability of a number of at most value: 1 - (1 + concentration z)^(-1 / concentration) for z = (value - loc) / scale; 1 - exp(-z) for
        concentration 0. Shapes and errors are those of Distribution.cdf.
        """
        return -_C.expm1(self.log_survival_function(value))

    def icdf(self, value):
        """The number x with cdf(x) = value: loc + scale ((1 - value)^-concentration - 1) / concentration; loc - scale log(1 - value) for concentration 0.
        value: probabilities, which broadcast with batch_shape and are not checked.
        """
        log_rest = _C.log1p(-value)
        return self.loc + self.scale * self._by_concentration(-log_rest, lambda c: _C.expm1(-c * log_rest) / c)

    @property
    def mean(self):
        """The mean, loc + scale / (1 - concentration), NaN for a concentration of 1 or more: a tensor of batch_shape and of the parameters' dtype."""
        c = self.concentration
        return _C.where(c < 1, self.loc + self.scale / (1 - _C.where(c < 1, c, 0.5)), math.nan)

    @property
    def variance(self):
        """The variance, scale^2 / ((1 - c)^2 (1 - 2 c)) for the concentration c, NaN where c is 1/2 or more: a tensor of batch_shape and of the parameters'
        dtype.
        """
        within = self.concentration < 0.5
        c = _C.where(within, self.concentration, 0.25)
        return _C.where(within, self.scale * self.scale / ((1 - c) * (1 - c) * (1 - 2 * c)), math.nan)

    def entropy(self):
        """The entropy in nats, log(scale) + concentration + 1: a tensor of batch_shape and of the parameters' dtype."""
        return _C.log(self.scale) + self.concentration + 1
