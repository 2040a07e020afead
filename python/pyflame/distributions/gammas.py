"""Distributions made of the gamma function: Gamma, Chi2, Beta, Dirichlet, StudentT, FisherSnedecor. The gradients of draws are implicit ones, computed on the host."""
import math

from .. import _C
from ..special import gammainc
from . import constraints
from ._math import StandardGamma, digamma, lgamma, normal, tiny, xlogy
from .distribution import Distribution, ExponentialFamily, broadcast_all, check_tensors


class Gamma(ExponentialFamily):
    """Density proportional to x^(concentration - 1) exp(-rate x), for x >= 0.

    concentration, rate: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution.
    ValueError, where arguments are checked, for one that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate, doc="The mean, concentration / rate: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.clamp((self.concentration - 1) / self.rate, min=0),
                    doc="The mode, (concentration - 1) / rate, at least 0: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.concentration / (self.rate * self.rate),
                        doc="The variance, concentration / rate^2: a tensor of batch_shape and of the parameters' dtype.")

    def rsample(self, sample_shape=()):
        return StandardGamma.apply(self.concentration.expand(self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value):
        """The logarithm of the density: a log(rate) + (a - 1) log(value) - rate value - log(gamma(a)) for a = concentration. Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        return xlogy(self.concentration, self.rate) + xlogy(self.concentration - 1, value) - self.rate * value - lgamma(self.concentration)

    def cdf(self, value):
        """The probability of a number of at most value: gammainc(concentration, rate value), the regularized lower incomplete gamma function. Shapes and
        errors are those of Distribution.cdf.
        """
        self._validate_sample(value)
        return gammainc(self.concentration, self.rate * value)

    def entropy(self):
        """The entropy in nats, a - log(rate) + log(gamma(a)) + (1 - a) digamma(a) for a = concentration: a tensor of batch_shape and of the parameters'
        dtype.
        """
        a = self.concentration
        return a - _C.log(self.rate) + lgamma(a) + (1 - a) * digamma(a)


class Chi2(Gamma):
    """The sum of df squares of standard normal numbers: Gamma(df / 2, 1 / 2).

    df: a number, or a tensor of batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError, where arguments are
    checked, for a df that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args=validate_args)


class Dirichlet(ExponentialFamily):
    """Points of a simplex, with density proportional to the product of x_i^(concentration_i - 1): concentration, a tensor [.., K].

    validate_args: as in Distribution. ValueError for what is no tensor or has no dims, and, where arguments are checked, for a concentration that is not above
    0; from log_prob for values that are not of the simplex."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration, validate_args=None):
        check_tensors("Dirichlet", concentration=concentration)
        if concentration.ndim < 1:
            raise ValueError("Dirichlet: the concentration is 0-dimensional; expected at least 1 dimension")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self):
        """The mean, concentration / total, where total is the sum over the last dim: a tensor of [*batch_shape, K] and of the parameters' dtype."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self):
        """The mode: concentration - 1, at least 0, divided by its sum. Where all of the concentration is below 1 it is the first corner, as the density is infinite
        in every one. NaN where none is above 1 and one is 1. [*batch_shape, K].
        """
        above = _C.clamp(self.concentration - 1, min=0)
        corner = (_C.arange(self._event_shape[0], device=above.device) == 0).to(above.dtype)
        return _C.where((self.concentration < 1).all(-1, True), corner, above / above.sum(-1, keepdim=True))

    @property
    def variance(self):
        """The variance, a (total - a) / (total^2 (total + 1)) for each concentration a and their sum total: a tensor of [*batch_shape, K] and of the
        parameters' dtype.
        """
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total * total * (total + 1))

    def rsample(self, sample_shape=()):
        x = StandardGamma.apply(self.concentration.expand(self._extended_shape(sample_shape)))
        return x / x.sum(-1, keepdim=True)

    def log_prob(self, value):
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self):
        """The entropy in nats, log B(a) - (K - total) digamma(total) - sum((a - 1) digamma(a)) for a = concentration, their sum total and the multivariate
        beta function B: a tensor of batch_shape and of the parameters' dtype.
        """
        a, total = self.concentration, self.concentration.sum(-1)
        return lgamma(a).sum(-1) - lgamma(total) - (a.shape[-1] - total) * digamma(total) - ((a - 1) * digamma(a)).sum(-1)


class Beta(ExponentialFamily):
    """Density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1) on the unit interval.

    concentration1, concentration0: numbers or tensors, of a floating dtype that draws have. validate_args: as in Distribution. RuntimeError where they do not
    broadcast. ValueError, where arguments are checked, for one that is not above 0; from log_prob for values outside of [0, 1]."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def mean(self):
        """The mean, concentration1 / (concentration1 + concentration0): a tensor of batch_shape and of the parameters' dtype."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self):
        """The mode, (a - 1) / (a + b - 2) for a = concentration1 and b = concentration0 above 1. With others it is an end of the interval, or NaN where none is
        above 1 and one is 1. A tensor of batch_shape.
        """
        return Dirichlet(_C.stack([self.concentration1, self.concentration0], -1), False).mode.select(-1, 0)

    @property
    def variance(self):
        """The variance, a b / ((a + b)^2 (a + b + 1)) for a = concentration1 and b = concentration0: a tensor of batch_shape and of the parameters' dtype."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total * total * (total + 1))

    def rsample(self, sample_shape=()):
        x, y = (StandardGamma.apply(a.expand(self._extended_shape(sample_shape))) for a in (self.concentration1, self.concentration0))
        return x / (x + y)

    def log_prob(self, value):
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1, value) + xlogy(b - 1, 1 - value) + lgamma(a + b) - lgamma(a) - lgamma(b)

    def entropy(self):
        """The entropy in nats, log B(a, b) + (a + b - 2) digamma(a + b) - (a - 1) digamma(a) - (b - 1) digamma(b) for a = concentration1 and b =
        concentration0: a tensor of batch_shape and of the parameters' dtype.
        """
        a, b = self.concentration1, self.concentration0
        of_both = lgamma(a) + lgamma(b) - lgamma(a + b) + (a + b - 2) * digamma(a + b)
        return of_both - (a - 1) * digamma(a) - (b - 1) * digamma(b)


class StudentT(Distribution):
    """Student's t with df degrees of freedom, moved by loc and times scale. df, loc, scale: numbers or tensors, of a floating dtype that draws have.

    validate_args: as in Distribution. RuntimeError where the arguments do not broadcast. ValueError, where they are checked, for a df or a scale that is not
    above 0 and for a loc that is NaN."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    mode = property(lambda self: self.loc, doc="The mode, loc: a tensor of batch_shape and of the parameters' dtype.")
    mean = property(lambda self: _C.where(self.df > 1, self.loc, math.nan),
                    doc="The mean, loc, NaN for a df of at most 1: a tensor of batch_shape and of the parameters' dtype.")

    @property
    def variance(self):
        """The variance, scale^2 df / (df - 2), infinity for a df above 1 up to 2, NaN up to 1: a tensor of batch_shape and of the parameters' dtype."""
        known = self.scale * self.scale * self.df / _C.where(self.df > 2, self.df - 2, 1.0)
        return _C.where(self.df > 2, known, _C.where(self.df > 1, math.inf, math.nan).to(self.df.dtype))

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        chi2 = 2 * StandardGamma.apply((self.df / 2).expand(shape))
        return self.loc + self.scale * normal(shape, self.df) * _C.rsqrt(chi2 / self.df)

    def log_prob(self, value):
        self._validate_sample(value)
        y = (value - self.loc) / self.scale
        z = _C.log(self.scale) + 0.5 * _C.log(self.df) + 0.5 * math.log(math.pi) + lgamma(0.5 * self.df) - lgamma(0.5 * (self.df + 1))
        return -0.5 * (self.df + 1) * _C.log1p(y * y / self.df) - z

    def entropy(self):
        half, more = self.df / 2, (self.df + 1) / 2
        beta = lgamma(half) + lgamma(_C.full_like(half, 0.5)) - lgamma(more)
        return _C.log(self.scale) + more * (digamma(more) - digamma(half)) + 0.5 * _C.log(self.df) + beta


class FisherSnedecor(Distribution):
    """The ratio of two means of df1 and df2 squares of standard normal numbers. df1, df2: numbers or tensors, of a floating dtype that draws have.

    validate_args: as in Distribution. RuntimeError where they do not broadcast. ValueError, where arguments are checked, for one that is not above 0; from
    log_prob for values that are not above 0."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    mean = property(lambda self: _C.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan),
                    doc="The mean, df2 / (df2 - 2), NaN for a df2 of at most 2: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan),
                    doc="The mode, (df1 - 2) / df1 df2 / (df2 + 2), NaN for a df1 of at most 2: a tensor of batch_shape and of the parameters' dtype.")

    @property
    def variance(self):
        """The variance, 2 df2^2 (df1 + df2 - 2) / (df1 (df2 - 2)^2 (df2 - 4)), NaN for a df2 of at most 4: a tensor of batch_shape and of the parameters'
        dtype.
        """
        a, b = self.df1, self.df2
        return _C.where(b > 4, 2 * b * b * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4)), math.nan)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        first, second = (StandardGamma.apply((df / 2).expand(shape)) / df for df in (self.df1, self.df2))
        return _C.clamp(first / _C.clamp(second, min=tiny(second)), min=tiny(first))

    def log_prob(self, value):
        self._validate_sample(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        return lgamma(a + b) - lgamma(a) - lgamma(b) + a * _C.log(ratio) + xlogy(a - 1, value) - (a + b) * _C.log1p(ratio * value)
