"""Distributions made of others: transformed, independent over dims, mixed."""
import math

from .. import _C
from .._shapes import broadcast_shapes
from . import constraints
from ._math import EULER, digamma, lgamma
from .continuous import Exponential, Normal, Uniform
from .discrete import Categorical
from .distribution import Distribution, broadcast_all, sum_rightmost
from .gammas import Gamma
from .transforms import AffineTransform, ComposeTransform, ExpTransform, PowerTransform, StickBreakingTransform, Transform


class TransformedDistribution(Distribution):
    """The distribution of t(x) for x of base_distribution; t is a transform or a list of them. validate_args: as in Distribution.

    ValueError for what is no Distribution and no Transform, and where the base has fewer dims than the transforms take, or sizes that do not fit them. log_prob
    needs the inverses of the transforms, and is a NotImplementedError where one has no log_abs_det_jacobian."""

    arg_constraints = {}

    def __init__(self, base_distribution, transforms, validate_args=None):
        if not isinstance(base_distribution, Distribution):
            raise ValueError(f"TransformedDistribution: not a distribution; got {base_distribution!r}; expected a Distribution")
        self.transforms = list(transforms) if isinstance(transforms, (list, tuple)) else [transforms]
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(f"TransformedDistribution: not transforms; got {transforms!r}; expected a Transform or a list of them")
        whole, shape, dims = ComposeTransform(self.transforms), (*base_distribution.batch_shape, *base_distribution.event_shape), len(base_distribution.event_shape)
        before, after = whole.domain.event_dim, whole.codomain.event_dim
        if len(shape) < before:
            raise ValueError(f"TransformedDistribution: the base distribution has too few dims; got {shape}; expected at least {before} dims")
        result = tuple(whole.forward_shape(shape))
        needed = tuple(whole.inverse_shape(result))
        if needed != shape:
            base_distribution = base_distribution.expand(needed[: len(needed) - dims])
        self.base_dist = Independent(base_distribution, before - dims) if before > dims else base_distribution
        cut = len(result) - max(after, dims + after - before)
        super().__init__(result[:cut], result[cut:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @property
    def support(self):
        """The values that the distribution can give, as a constraint: the codomain of the last transform. Without transforms it is the support of the base.
        """
        base = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        more = len(self._event_shape) - base.event_dim
        return constraints.independent(base, more) if more > 0 else base

    def _through(self, x):
        for t in self.transforms:
            x = t(x)
        return x

    def sample(self, sample_shape=()):
        return self._through(self.base_dist.sample(sample_shape)).detach()

    def rsample(self, sample_shape=()):
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        """The logarithm of the density: that of the base at x = t.inv(value), less log_abs_det_jacobian(x, value) of the transforms. Shapes and errors are
        those of Distribution.log_prob.
        """
        self._validate_sample(value)
        dims, total, y = len(self._event_shape), 0.0, value
        for t in reversed(self.transforms):
            x = t.inv(y)
            dims += t.domain.event_dim - t.codomain.event_dim
            total = total - sum_rightmost(t.log_abs_det_jacobian(x, y), dims - t.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _of_value(self, value, f):
        sign = 1
        for t in reversed(self.transforms):
            sign = sign * t.sign
        p = f(value)
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value):
        """The probability of a number of at most value: that of the base at t.inv(value), or 1 less it where the transforms change the order. Shapes and
        errors are those of the base's cdf, which takes the borders of its support.
        """

        def of_base(y):
            for t in reversed(self.transforms):
                y = t.inv(y)
            return self.base_dist.cdf(y)

        return self._of_value(value, of_base)

    def icdf(self, value):
        """The number x with cdf(x) = value: t(x) for the base's x of value, or of 1 - value where the transforms change the order. value: probabilities,
        which broadcast with batch_shape and are not checked.
        """
        value = self._of_value(value, lambda p: p)
        return self._through(self.base_dist.icdf(value))

    def __repr__(self):
        return f"{type(self).__name__}({self.base_dist}, {self.transforms})" if type(self) is TransformedDistribution else super().__repr__()


class LogNormal(TransformedDistribution):
    """exp(x) for x of N(loc, scale^2).

    loc, scale: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for a scale that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    loc = property(lambda self: self.base_dist.loc, doc="The mean of log(x), which is normally distributed: a tensor of batch_shape.")
    scale = property(lambda self: self.base_dist.scale, doc="The standard deviation of log(x), which is normally distributed: a tensor of batch_shape.")
    mean = property(lambda self: _C.exp(self.loc + self.scale * self.scale / 2),
                    doc="The mean, exp(loc + scale^2 / 2): a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.exp(self.loc - self.scale * self.scale),
                    doc="The mode, exp(loc - scale^2): a tensor of batch_shape and of the parameters' dtype.")

    @property
    def variance(self):
        """The variance, (exp(scale^2) - 1) exp(2 loc + scale^2): a tensor of batch_shape and of the parameters' dtype."""
        s = self.scale * self.scale
        return _C.expm1(s) * _C.exp(2 * self.loc + s)

    def entropy(self):
        """The entropy in nats, 1/2 + log(2 pi) / 2 + log(scale) + loc: a tensor of batch_shape and of the parameters' dtype."""
        return self.base_dist.entropy() + self.loc


class Pareto(TransformedDistribution):
    """Density alpha scale^alpha / x^(alpha + 1) for x >= scale.

    scale, alpha: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError,
    where arguments are checked, for one that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"scale": constraints.positive, "alpha": constraints.positive}
    has_rsample = True

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(Exponential(self.alpha, validate_args), [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    support = property(lambda self: constraints.greater_than_eq(self.scale.detach()),
                       doc="The values that the distribution can give, as a constraint: the numbers from scale on.")
    mean = property(lambda self: _C.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf),
                    doc="The mean, alpha scale / (alpha - 1), infinity for an alpha of at most 1: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: self.scale, doc="The mode, scale: a tensor of batch_shape and of the parameters' dtype.")

    @property
    def variance(self):
        """The variance, scale^2 alpha / ((alpha - 1)^2 (alpha - 2)), infinity for an alpha of at most 2: a tensor of batch_shape and of the parameters'
        dtype.
        """
        a = self.alpha
        return _C.where(a > 2, self.scale * self.scale * a / ((a - 1) * (a - 1) * (a - 2)), math.inf)

    def entropy(self):
        """The entropy in nats, log(scale / alpha) + 1 + 1 / alpha: a tensor of batch_shape and of the parameters' dtype."""
        return _C.log(self.scale / self.alpha) + 1 + 1 / self.alpha


class Weibull(TransformedDistribution):
    """scale times the concentration-th root of an exponentially distributed number: P(X > x) = exp(-(x / scale)^concentration).

    scale, concentration: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution.
    ValueError, where arguments are checked, for one that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(_C.ones_like(self.scale), validate_args)
        super().__init__(base, [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)], validate_args)

    def _moment(self, k):
        return _C.exp(lgamma(1 + k / self.concentration))

    mean = property(lambda self: self.scale * self._moment(1),
                    doc="The mean, scale gamma(1 + 1 / concentration): a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.scale * self.scale * (self._moment(2) - self._moment(1) * self._moment(1)),
                        doc="The variance, scale^2 (gamma(1 + 2 / c) - gamma(1 + 1 / c)^2) for c = concentration: a tensor of batch_shape and of the parameters' "
                            "dtype.")

    @property
    def mode(self):
        """The mode, scale ((c - 1) / c)^(1 / c) for c = concentration, 0 where c is at most 1: a tensor of batch_shape and of the parameters' dtype."""
        return self.scale * _C.clamp((self.concentration - 1) / self.concentration, min=0) ** (1 / self.concentration)

    def entropy(self):
        """The entropy in nats, 0.5772 (1 - 1 / c) + log(scale / c) + 1 for c = concentration, with Euler's constant: a tensor of batch_shape and of the
        parameters' dtype.
        """
        inverse = 1 / self.concentration
        return EULER * (1 - inverse) + _C.log(self.scale * inverse) + 1


class Kumaraswamy(TransformedDistribution):
    """Density concentration1 concentration0 x^(concentration1 - 1) (1 - x^concentration1)^(concentration0 - 1) on the unit interval.

    concentration1, concentration0: numbers or tensors, of a floating dtype that draws have. validate_args: as in Distribution. RuntimeError where they do not
    broadcast. ValueError, where arguments are checked, for one that is not above 0; from log_prob for values outside of [0, 1]."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(_C.zeros_like(self.concentration0), _C.ones_like(self.concentration0), validate_args)
        super().__init__(base, [PowerTransform(1 / self.concentration0), AffineTransform(1.0, -1.0), PowerTransform(1 / self.concentration1)], validate_args)

    def _moment(self, k):
        first, b = 1 + k / self.concentration1, self.concentration0
        return b * _C.exp(lgamma(first) + lgamma(b) - lgamma(first + b))

    mean = property(lambda self: self._moment(1),
                    doc="The mean, b B(1 + 1 / a, b) for a = concentration1, b = concentration0 and the beta function B: a tensor of batch_shape and of the "
                        "parameters' dtype.")
    variance = property(lambda self: self._moment(2) - self._moment(1) * self._moment(1),
                        doc="The variance, m2 - m1^2 for mk = b B(1 + k / a, b), a = concentration1, b = concentration0 and the beta function B: a tensor of "
                            "batch_shape and of the parameters' dtype.")

    @property
    def mode(self):
        """The mode, ((a - 1) / (a b - 1))^(1 / a) for a = concentration1 and b = concentration0, NaN where one of them is below 1: a tensor of batch_shape
        and of the parameters' dtype.
        """
        a, b = self.concentration1, self.concentration0
        return _C.where(_C.logical_or(a < 1, b < 1), math.nan, ((a - 1) / (a * b - 1)) ** (1 / a))

    def entropy(self):
        """The entropy in nats, 1 - 1 / b + (1 - 1 / a) (digamma(b + 1) + 0.5772) - log(a b) for a = concentration1, b = concentration0 and Euler's constant:
        a tensor of batch_shape and of the parameters' dtype.
        """
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * (digamma(b + 1) + EULER) - _C.log(a) - _C.log(b)


class InverseGamma(TransformedDistribution):
    """1 / x for x of Gamma(concentration, rate): density proportional to x^(-concentration - 1) exp(-rate / x).

    concentration, rate: numbers, or tensors that broadcast to batch_shape, of a floating dtype, which draws have. validate_args: as in Distribution.
    ValueError, where arguments are checked, for one that is not above 0; from log_prob for values outside of the support.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration, rate, validate_args=None):
        super().__init__(Gamma(concentration, rate, validate_args), PowerTransform(-1.0), validate_args)

    concentration = property(lambda self: self.base_dist.concentration, doc="The concentration of the Gamma distribution that 1 / x has: a tensor of batch_shape.")
    rate = property(lambda self: self.base_dist.rate, doc="The rate of the Gamma distribution that 1 / x has: a tensor of batch_shape.")
    mean = property(lambda self: _C.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf),
                    doc="The mean, rate / (concentration - 1), infinity for a concentration of at most 1: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: self.rate / (self.concentration + 1),
                    doc="The mode, rate / (concentration + 1): a tensor of batch_shape and of the parameters' dtype.")

    @property
    def variance(self):
        """The variance, rate^2 / ((a - 1)^2 (a - 2)) for a = concentration, infinity where a is at most 2: a tensor of batch_shape and of the parameters'
        dtype.
        """
        a = self.concentration
        return _C.where(a > 2, self.rate * self.rate / ((a - 1) * (a - 1) * (a - 2)), math.inf)

    def entropy(self):
        """The entropy in nats, a + log(rate) + log(gamma(a)) - (1 + a) digamma(a) for a = concentration: a tensor of batch_shape and of the parameters'
        dtype.
        """
        a = self.concentration
        return a + _C.log(self.rate) + lgamma(a) - (1 + a) * digamma(a)


class LogisticNormal(TransformedDistribution):
    """Points of a simplex [.., D + 1]: normal vectors with loc and scale [.., D], through StickBreakingTransform. Numbers are vectors of one.

    loc, scale: numbers or tensors, of a floating dtype that draws have. validate_args: as in Distribution. RuntimeError where they do not broadcast.
    ValueError, where arguments are checked, for a scale that is not above 0; from log_prob for values that are not of the simplex."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args)
        base = base if base.batch_shape else base.expand((1,))
        super().__init__(Independent(base, 1), StickBreakingTransform(), validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc,
                   doc="The means of the normal numbers that the transform takes: [*batch_shape, D], where draws have D + 1 elements.")
    scale = property(lambda self: self.base_dist.base_dist.scale,
                     doc="The standard deviations of the normal numbers that the transform takes: [*batch_shape, D], where draws have D + 1 elements.")


class Independent(Distribution):
    """base_distribution with the last reinterpreted_batch_ndims dims of its batch_shape as the first dims of event_shape: log_prob and entropy are sums over
    them, and values are the same. ValueError for more dims than batch_shape has. validate_args: as in Distribution.
    """

    arg_constraints = {}

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(f"Independent: more dims than there are; got {reinterpreted_batch_ndims}; expected at most {len(base_distribution.batch_shape)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        dims = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        super().__init__(shape[: len(shape) - dims], shape[len(shape) - dims :], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    support = property(lambda self: constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims),
                       doc="The values that the distribution can give, as a constraint: the base distribution's, for values with more dims.")
    mean = property(lambda self: self.base_dist.mean,
                    doc="The mean, that of base_distribution: a tensor of [*batch_shape, *event_shape] and of the parameters' dtype.")
    mode = property(lambda self: self.base_dist.mode,
                    doc="The mode, that of base_distribution: a tensor of [*batch_shape, *event_shape] and of the parameters' dtype.")
    variance = property(lambda self: self.base_dist.variance,
                        doc="The variance, that of base_distribution: a tensor of [*batch_shape, *event_shape] and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        """The logarithm of the density or probability: the sum of the base distribution's over the last reinterpreted_batch_ndims dims. Shapes and errors are
        those of Distribution.log_prob.
        """
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        """The entropy in nats, the sum of the base distribution's over the last reinterpreted_batch_ndims dims: a tensor of batch_shape and of the
        parameters' dtype.
        """
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        return super().enumerate_support() if self.reinterpreted_batch_ndims else self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """A component of component_distribution, whose last batch dim numbers them, chosen by mixture_distribution, a Categorical. validate_args: as in Distribution.

    ValueError for a mixture that is no Categorical, for what is no Distribution, for another number of components than of classes, and where the batch dims of
    the mixture do not broadcast with those of the components."""

    arg_constraints = {}

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(f"MixtureSameFamily: the mixture is not a Categorical; got {type(mixture_distribution).__name__}")
        if not isinstance(component_distribution, Distribution):
            raise ValueError(f"MixtureSameFamily: not a distribution of components; got {type(component_distribution).__name__}; expected a Distribution")
        classes, components = tuple(mixture_distribution.param_shape), tuple(component_distribution.batch_shape)
        sizes = [*zip(classes[-2::-1], components[-2::-1])]
        if not components or classes[-1] != components[-1] or any(a != b and 1 not in (a, b) for a, b in sizes):
            raise ValueError(f"MixtureSameFamily: the components do not fit; got batch_shape {components}; expected {classes}, the classes of the mixture")
        batch = tuple(broadcast_shapes(classes[:-1], components[:-1]))
        self.mixture_distribution = mixture_distribution if classes[:-1] == batch else mixture_distribution.expand(batch)
        self.component_distribution = component_distribution if components[:-1] == batch else component_distribution.expand((*batch, components[-1]))
        super().__init__(batch, component_distribution.event_shape, validate_args)

    support = property(lambda self: self.component_distribution.support,
                       doc="The values that the distribution can give, as a constraint: that of component_distribution.")

    def _weights(self):
        p = self.mixture_distribution.probs
        return p.reshape(*p.shape, *(1,) * len(self._event_shape))

    @property
    def _dim(self):
        return -1 - len(self._event_shape)

    mean = property(lambda self: (self._weights() * self.component_distribution.mean).sum(self._dim),
                    doc="The mean, the weighted sum of the components' means: a tensor of [*batch_shape, *event_shape] and of the parameters' dtype.")

    @property
    def variance(self):
        """The variance, the weighted sum of the components' variances and of the squares of their means' distances from the mean: a tensor of [*batch_shape,
        *event_shape] and of the parameters' dtype.
        """
        mean = self.mean.unsqueeze(self._dim)
        return (self._weights() * (self.component_distribution.variance + (self.component_distribution.mean - mean) ** 2)).sum(self._dim)

    def sample(self, sample_shape=()):
        which = self.mixture_distribution.sample(sample_shape)
        draws = self.component_distribution.sample(sample_shape).detach()
        at = which.reshape(*which.shape, 1, *(1,) * len(self._event_shape)).expand(*which.shape, 1, *self._event_shape)
        return draws.gather(draws.ndim + self._dim, at).squeeze(self._dim)

    def log_prob(self, value):
        """The logarithm of the density or probability: logsumexp over the components of log(weight) + their log_prob(value). Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        of_components = self.component_distribution.log_prob(value.unsqueeze(self._dim))
        return _C.logsumexp(of_components + _C.log_softmax(self.mixture_distribution.logits, -1), -1)

    def cdf(self, value):
        """The probability of a number of at most value: the weighted sum of the components' cdf(value). Shapes and errors are those of Distribution.cdf."""
        self._validate_sample(value)
        return (self.component_distribution.cdf(value.unsqueeze(self._dim)) * self.mixture_distribution.probs).sum(-1)
