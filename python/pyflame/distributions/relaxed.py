"""Distributions of real numbers that stand for classes: draws have gradients with respect to the probabilities."""
import math

from .. import _C
from . import constraints
from ._math import clamp_probs
from .discrete import Categorical, _bce, _Probable
from .distribution import Distribution, ExponentialFamily, broadcast_all
from .transformed import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform


def _logistic(shape, like):
    u = clamp_probs(_C.rand(shape, dtype=like.dtype, device=like.device))
    return _C.log(u) - _C.log1p(-u)


class ContinuousBernoulli(_Probable, ExponentialFamily):
    """Density proportional to probs^x (1 - probs)^(1 - x) on the unit interval (Loaiza-Ganem and Cunningham, 2019). Where probs is within lims, near 1/2,
    series replace formulas that would divide by 0.

    One of the two is given: probs, in [0, 1], or logits, log(probs / (1 - probs)), a number or a tensor. validate_args: as in Distribution. ValueError for
    both or none, for lims that are not two numbers, and, where arguments are checked, for probs outside of [0, 1]; from log_prob for values outside of it."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        if not isinstance(lims, (tuple, list)) or len(lims) != 2:
            raise ValueError(f"ContinuousBernoulli: lims are not two numbers; got {lims!r}; expected (low, high)")
        self._take(probs, logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)
        if logits is None:
            self.probs = clamp_probs(self.probs)

    def __getattr__(self, name):
        if name == "probs" and "logits" in self.__dict__:
            self.probs = clamp_probs(_C.sigmoid(self.logits))
            return self.probs
        return super().__getattr__(name)

    def _away(self):
        """Where probs is not near 1/2, and logits, with another value where it is."""
        low, high = self._lims
        away = _C.logical_or(self.probs <= low, self.probs > high)
        return away, _C.where(away, self.logits, math.log(low / (1 - low)))

    def _log_norm(self):
        away, logits = self._away()
        square = (self.probs - 0.5) ** 2
        return _C.where(away, _C.log(logits / _C.tanh(logits / 2)), math.log(2) + (4 / 3 + 104 / 45 * square) * square)

    @property
    def mean(self):
        """The mean, p / (2 p - 1) + 1 / (2 atanh(1 - 2 p)) for p = probs, and 1/2 for 1/2: a tensor of batch_shape and of the parameters' dtype."""
        away, logits = self._away()
        d = self.probs - 0.5
        return _C.where(away, _C.sigmoid(logits) / _C.tanh(logits / 2) - 1 / logits, 0.5 + (1 / 3 + 16 / 45 * d * d) * d)

    @property
    def variance(self):
        away, logits = self._away()
        square = (self.probs - 0.5) ** 2
        spread = 1 / (logits * logits) - _C.sigmoid(logits) * _C.sigmoid(-logits) / _C.tanh(logits / 2) ** 2
        return _C.where(away, spread, 1 / 12 - (1 / 15 - 128 / 945 * square) * square)

    def rsample(self, sample_shape=()):
        return self.icdf(_C.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value):
        """The logarithm of the density: value log(probs) + (1 - value) log(1 - probs) + the logarithm of what makes the density integrate to 1. Shapes and
        errors are those of Distribution.log_prob.
        """
        self._validate_sample(value)
        return self._log_norm() - _bce(self.logits, value)

    def _of_falling(self, f, value):
        """f of a falling density and a value between 0 and 1: a rising density is a falling one seen from the other side."""
        away, logits = self._away()
        rising = logits > 0
        result = f(-_C.abs(logits), _C.where(rising, 1 - value, value))
        return _C.where(away, _C.where(rising, 1 - result, result), value)

    def cdf(self, value):
        self._validate_sample(value)
        inner = self._of_falling(lambda logits, x: _C.expm1(logits * x) / _C.expm1(logits), value)
        return _C.where(value <= 0, 0.0, _C.where(value >= 1, 1.0, inner))

    def icdf(self, value):
        return self._of_falling(lambda logits, p: _C.log1p(p * _C.expm1(logits)) / logits, value)

    def entropy(self):
        return _C.softplus(self.logits) - self.mean * self.logits - self._log_norm()


def _positive(name, temperature, validate_args):
    """The temperature as a tensor. ValueError unless it is above 0, where arguments are validated."""
    (temperature,) = broadcast_all(temperature)
    if (Distribution._validate_args if validate_args is None else validate_args) and not bool((temperature > 0).all()):
        raise ValueError(f"{name}: the temperature is not positive; got {temperature.tolist()}; expected > 0")
    return temperature


class LogitRelaxedBernoulli(_Probable):
    """Logits of RelaxedBernoulli: those of probs plus logistic noise, divided by the temperature (Maddison et al., 2017)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = _positive("RelaxedBernoulli", temperature, validate_args)
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        p = clamp_probs(self.probs.expand(shape))
        return (_logistic(shape, p) + _C.log(p) - _C.log1p(-p)) / self.temperature

    def log_prob(self, value):
        self._validate_sample(value)
        d = self.logits - value * self.temperature
        return _C.log(self.temperature) + d - 2 * _C.softplus(d)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1 that come closer to them the lower the temperature: a Bernoulli whose draws have gradients.

    temperature: above 0 (ValueError). One of the two is given: probs, in [0, 1], or logits, log(probs / (1 - probs)). validate_args: as in Distribution."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform(), validate_args)

    temperature = property(lambda self: self.base_dist.temperature, doc="The temperature, a tensor: the lower it is, the nearer values are to 0 and 1.")
    probs = property(lambda self: self.base_dist.probs, doc="The probability with which values come close to 1, sigmoid(logits): a tensor of batch_shape.")
    logits = property(lambda self: self.base_dist.logits, doc="The logarithm of the odds, log(probs / (1 - probs)): a tensor of batch_shape.")


class ExpRelaxedCategorical(Distribution):
    """Logarithms of RelaxedOneHotCategorical: log_softmax of logits plus Gumbel's noise, divided by the temperature."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature, self._categorical = _positive("RelaxedOneHotCategorical", temperature, validate_args), Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    probs = property(lambda self: self._categorical.probs, doc="The probabilities of the classes, which sum to 1 over the last dim: [*batch_shape, classes].")
    logits = property(lambda self: self._categorical.logits,
                      doc="The logarithms of the probabilities, of which exp sums to 1 over the last dim: [*batch_shape, classes].")

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape)
        new.temperature = self.temperature
        return new

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(_C.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        return _C.log_softmax((self.logits - _C.log(-_C.log(u))) / self.temperature, -1)

    def log_prob(self, value):
        self._validate_sample(value)
        n = self._event_shape[0]
        return _C.log_softmax(self.logits - value * self.temperature, -1).sum(-1) + math.lgamma(n) + (n - 1) * _C.log(self.temperature)


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of a simplex that come closer to its corners the lower the temperature: a OneHotCategorical whose draws have gradients.

    temperature: above 0 (ValueError). One of the two is given, with the classes in the last dim: probs, which need not sum to 1, or logits, their logarithms up to a constant.
    validate_args: as in Distribution."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args), ExpTransform(), validate_args)

    temperature = property(lambda self: self.base_dist.temperature,
                           doc="The temperature, a tensor: the lower it is, the nearer values are to the corners of the simplex.")
    probs = property(lambda self: self.base_dist.probs, doc="The probabilities of the classes, which sum to 1 over the last dim: [*batch_shape, classes].")
    logits = property(lambda self: self.base_dist.logits,
                      doc="The logarithms of the probabilities, of which exp sums to 1 over the last dim: [*batch_shape, classes].")
