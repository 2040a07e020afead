"""Distributions of classes and counts."""
import math

from .. import _C
from .._grad_mode import no_grad
from .._shapes import broadcast_shapes
from . import constraints
from ._math import clamp_probs, eps, lgamma, on_host, uniform, xlogy
from .distribution import Distribution, ExponentialFamily, broadcast_all, check_tensors


def _given_one(name, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either probs or logits; got {'both' if probs is not None else 'none'}")


def _probs_of(logits, binary):
    return _C.sigmoid(logits) if binary else _C.softmax(logits, -1)


def _logits_of(probs, binary):
    p = clamp_probs(probs)
    return _C.log(p) - _C.log1p(-p) if binary else _C.log(p)


class _Probable(Distribution):
    """What distributions with probs or logits share: the other one is computed when it is asked for."""

    _binary = True

    def __getattr__(self, name):
        if name == "probs" and "logits" in self.__dict__:
            self.probs = _probs_of(self.logits, self._binary)
            return self.probs
        if name == "logits" and "probs" in self.__dict__:
            self.logits = _logits_of(self.probs, self._binary)
            return self.logits
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def _param(self):
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self):
        return self._param.shape

    def _take(self, probs, logits, *others):
        """Stores what was given, broadcast with the others, which are returned."""
        _given_one(type(self).__name__, probs, logits)
        name = "probs" if logits is None else "logits"
        value, *others = broadcast_all(probs if logits is None else logits, *others)
        setattr(self, name, value)
        return others


def _bce(logits, value):
    """-(value log p + (1 - value) log(1 - p)) of logits."""
    return (1 - value) * logits + _C.softplus(-logits)


class Bernoulli(_Probable, ExponentialFamily):
    """1 with probability probs, otherwise 0.

    One of the two is given, a number or a tensor of batch_shape: probs, from 0 to 1, or logits, log(probs / (1 - probs)). Draws have its dtype.
    validate_args: as in Distribution. ValueError for both or none and, where arguments are checked, for other probs; from log_prob for values other than
    0 and 1.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.probs, doc="The mean, probs: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.probs * (1 - self.probs), doc="The variance, probs (1 - probs): a tensor of batch_shape and of the parameters' dtype.")

    @property
    def mode(self):
        """The mode, 1 where probs is above 1/2, 0 where it is below, NaN at 1/2: a tensor of batch_shape and of the parameters' dtype."""
        return _C.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    def sample(self, sample_shape=()):
        with no_grad():
            p = self.probs
            return (_C.rand(self._extended_shape(sample_shape), dtype=p.dtype, device=p.device) < p).to(p.dtype)

    def log_prob(self, value):
        """The logarithm of the probability: log(probs) of the value 1, log(1 - probs) of the value 0. Shapes and errors are those of Distribution.log_prob.
        """
        self._validate_sample(value)
        return -_bce(self.logits, value)

    def entropy(self):
        """The entropy in nats, -probs log(probs) - (1 - probs) log(1 - probs): a tensor of batch_shape and of the parameters' dtype."""
        return _bce(self.logits, self.probs)

    def enumerate_support(self, expand=True):
        """The values 0 and 1 along a new first dim, of the parameters' dtype: [2, *batch_shape], or with expand=False [2, 1, ..]."""
        p = self._param
        values = _C.arange(2, dtype=p.dtype, device=p.device).view(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class Geometric(_Probable):
    """The number of failures before the first success: probability probs (1 - probs)^k of k = 0, 1, ..

    One of the two is given, a number or a tensor of batch_shape: probs, above 0 and at most 1, or logits, log(probs / (1 - probs)). Draws have its dtype.
    validate_args: as in Distribution. ValueError for both or none and, where arguments are checked, for other probs; from log_prob for values that are
    not counts.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and logits is None and not bool((self.probs.detach() > 0).all()):
            raise ValueError("Geometric: the parameter probs has invalid values; got 0; expected more")

    mean = property(lambda self: 1 / self.probs - 1, doc="The mean, 1 / probs - 1: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.zeros_like(self.probs), doc="The mode, 0: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: (1 / self.probs - 1) / self.probs,
                        doc="The variance, (1 / probs - 1) / probs: a tensor of batch_shape and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        with no_grad():
            return _C.floor(_C.log(uniform(self._extended_shape(sample_shape), self.probs)) / _C.log1p(-self.probs))

    def log_prob(self, value):
        """The logarithm of the probability: value log(1 - probs) + log(probs). Shapes and errors are those of Distribution.log_prob."""
        self._validate_sample(value)
        p = _C.where(_C.logical_and(self.probs == 1, value == 0), 0.0, self.probs)
        return value * _C.log1p(-p) + _C.log(self.probs)

    def entropy(self):
        """The entropy in nats, (-p log(p) - (1 - p) log(1 - p)) / p for p = probs: a tensor of batch_shape and of the parameters' dtype."""
        return _bce(self.logits, self.probs) / self.probs


class Categorical(_Probable):
    """Class numbers from 0, int64, with the last dim's probabilities, or logits: one of them is given, a tensor [.., classes]. They need not sum to 1.

    validate_args: as in Distribution. ValueError for both or none, for what is no tensor or has no dims, and, where arguments are checked, for probabilities of
    which one is negative or NaN or all are 0, and for logits that are NaN; from log_prob for what is no class."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _binary = False

    def __init__(self, probs=None, logits=None, validate_args=None):
        _given_one("Categorical", probs, logits)
        given = probs if logits is None else logits
        check_tensors("Categorical", **{"probs" if logits is None else "logits": given})
        if given.ndim < 1:
            raise ValueError("Categorical: the parameter is 0-dimensional; expected at least 1 dimension")
        if logits is None:
            total = probs.sum(-1, keepdim=True)
            if (Distribution._validate_args if validate_args is None else validate_args) and probs.numel() and bool((total < 0).any()):
                raise ValueError(f"Categorical: the parameter probs has invalid values; got a negative sum of probabilities in probs of shape {tuple(probs.shape)}; expected probabilities that are 0 or more")
            self.probs = probs / total
        else:
            self.logits = logits - _C.logsumexp(logits, -1, True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    support = property(lambda self: constraints.integer_interval(0, self._num_events - 1),
                       doc="The values that the distribution can give, as a constraint: the integers from 0 to the number of classes - 1.")
    mean = variance = property(lambda self: _C.full(self._batch_shape, math.nan, dtype=self._param.dtype, device=self._param.device),
                               doc="The mean and the variance, NaN, because classes are no quantities: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: self._param.argmax(-1), doc="The class with the highest probability, int64 of batch_shape; the first of equal ones.")

    def sample(self, sample_shape=()):
        with no_grad():  # the largest of logits plus Gumbel's noise
            logits = _C.log(self.probs) if "probs" in self.__dict__ and "logits" not in self.__dict__ else self.logits
            noise = _C.log(-_C.log(_C.clamp(uniform((*self._extended_shape(sample_shape), self._num_events), logits), max=1 - eps(logits) / 2)))
            return (logits - noise).argmax(-1)

    def log_prob(self, value):
        """The logarithm of the probability: log(probs[value]), where value has indices of classes, of any dtype. Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        at = value.to(_C.int64).unsqueeze(-1)
        shape = broadcast_shapes(tuple(at.shape[:-1]), tuple(self.logits.shape[:-1]))
        return self.logits.expand(*shape, self._num_events).gather(-1, at.expand(*shape, 1)).squeeze(-1)

    def entropy(self):
        """The entropy in nats, -sum(probs log(probs)) over the classes: a tensor of batch_shape and of the parameters' dtype."""
        lowest = _C.clamp(self.logits, min=-3.4e38 if self.logits.dtype == _C.float32 else -1.7e308)
        return -(lowest * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        """The class numbers along a new first dim, int64: [classes, *batch_shape], or with expand=False [classes, 1, ..]."""
        values = _C.arange(self._num_events, device=self._param.device).view(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class OneHotCategorical(Distribution):
    """Categorical with classes as vectors that are 1 at the class and 0 elsewhere: draws [.., classes] of the dtype of probs. The arguments, and the errors for
    them, are those of Categorical; log_prob is a ValueError, where arguments are checked, for vectors of another kind."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    probs = property(lambda self: self._categorical.probs, doc="The probabilities of the classes, which sum to 1 over the last dim: [*batch_shape, classes].")
    logits = property(lambda self: self._categorical.logits,
                      doc="The logarithms of the probabilities, of which exp sums to 1 over the last dim: [*batch_shape, classes].")
    param_shape = property(lambda self: self._categorical.param_shape, doc="The shape of probs or logits, whichever was given: [*batch_shape, classes].")
    mean = property(lambda self: self.probs, doc="The mean, probs: a tensor of [*batch_shape, classes] and of the parameters' dtype.")
    variance = property(lambda self: self.probs * (1 - self.probs),
                        doc="The variance, probs (1 - probs): a tensor of [*batch_shape, classes] and of the parameters' dtype.")

    def _one_hot(self, index):
        classes = _C.arange(self._event_shape[0], device=index.device)
        return (index.unsqueeze(-1) == classes).to(self._categorical._param.dtype)

    mode = property(lambda self: self._one_hot(self._categorical.mode),
                    doc="The mode, 1 at the class with the highest probability and 0 elsewhere: a tensor of [*batch_shape, classes] and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        """The entropy in nats, -sum(probs log(probs)) over the classes: a tensor of batch_shape and of the parameters' dtype."""
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        """The unit vectors along a new first dim, of the parameters' dtype: [classes, *batch_shape, classes], or with expand=False [classes, 1, .., classes].
        """
        n = self._event_shape[0]
        values = _C.eye(n, dtype=self.probs.dtype, device=self.probs.device).view(n, *(1,) * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws, [.., classes], have the gradients of the probabilities: rsample() is the draw plus probs - probs.detach() (Bengio et
    al., 2013).

    The arguments are those of OneHotCategorical, and so are the errors.
    """

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Poisson(ExponentialFamily):
    """Counts with mean rate: probability rate^k exp(-rate) / k! of k = 0, 1, .. Draws are made on the host.

    rate: a number, or a tensor of batch_shape, 0 or more, of a floating dtype, which draws have. validate_args: as in Distribution. ValueError, where
    arguments are checked, for a negative rate; from log_prob for values that are not counts.
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = variance = property(lambda self: self.rate, doc="The mean and the variance, rate: a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.floor(self.rate), doc="The mode, floor(rate): a tensor of batch_shape and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        return on_host(lambda random, rate: random.poisson(rate), self._extended_shape(sample_shape), self.rate, self.rate)

    def log_prob(self, value):
        """The logarithm of the probability: value log(rate) - rate - log(value!). Shapes and errors are those of Distribution.log_prob."""
        self._validate_sample(value)
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)


class _Trials(_Probable):
    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        (self.total_count,) = self._take(probs, logits, total_count)
        self.total_count = self.total_count.to(self._param.dtype)
        super().__init__(self._param.shape, validate_args=validate_args)


class Binomial(_Trials):
    """The number of successes in total_count trials. Draws are made on the host.

    total_count: integers from 0 on, a number or a tensor, which broadcasts with the other argument (RuntimeError). One of the two is given: probs, of a success,
    or logits, log(probs / (1 - probs)), a number or a tensor, whose dtype draws have. validate_args: as in Distribution. ValueError for both or none, and, where
    arguments are checked, for a total_count that is negative or no integer and for probs outside of [0, 1]."""

    support = property(lambda self: constraints.integer_interval(0, self.total_count),
                       doc="The values that the distribution can give, as a constraint: the integers from 0 to total_count.")
    has_enumerate_support = True
    mean = property(lambda self: self.total_count * self.probs, doc="The mean, total_count probs: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs),
                        doc="The variance, total_count probs (1 - probs): a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.minimum(_C.floor((self.total_count + 1) * self.probs), self.total_count),
                    doc="The mode, floor((total_count + 1) probs), at most total_count: a tensor of batch_shape and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        draw = lambda random, n, p: random.binomial(n.astype("int64"), p)  # noqa: E731
        return on_host(draw, self._extended_shape(sample_shape), self._param, self.total_count, self.probs)

    def log_prob(self, value):
        """The logarithm of the probability: log(n! / (k! (n - k)!)) + k log(probs) + (n - k) log(1 - probs) for k = value and n = total_count. Shapes and
        errors are those of Distribution.log_prob.
        """
        self._validate_sample(value)
        n = self.total_count
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return ways + value * self.logits - n * _C.softplus(self.logits)

    def entropy(self):
        """The entropy in nats, -sum(p log(p)) over the probabilities p of 0 to total_count: a tensor of batch_shape and of the parameters' dtype."""
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(_C.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand=True):
        """The numbers 0 to total_count along a new first dim, of the parameters' dtype: [total_count + 1, *batch_shape], or with expand=False [total_count +
        1, 1, ..]. NotImplementedError where total_count differs within the batch.
        """
        n = int(self.total_count.max().item())
        if n != int(self.total_count.min().item()):
            raise NotImplementedError("Binomial: total_count differs within the batch, so the support cannot be enumerated")
        values = _C.arange(n + 1, dtype=self._param.dtype, device=self._param.device).view(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class NegativeBinomial(_Trials):
    """The number of successes with probability probs before total_count failures. Draws are made on the host.

    total_count: 0 or more, a number or a tensor that broadcasts with the other argument (RuntimeError). One of the two is given: probs, of a success, in [0, 1),
    or logits, log(probs / (1 - probs)), a number or a tensor, whose dtype draws have. validate_args: as in Distribution. ValueError for both or none, and,
    where arguments are checked, for a negative total_count and for probs outside of [0, 1)."""

    arg_constraints = {"total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real}
    support = constraints.nonnegative_integer
    mean = property(lambda self: self.total_count * _C.exp(self.logits),
                    doc="The mean, total_count probs / (1 - probs): a tensor of batch_shape and of the parameters' dtype.")
    mode = property(lambda self: _C.clamp(_C.floor((self.total_count - 1) * _C.exp(self.logits)), min=0),
                    doc="The mode, floor((total_count - 1) probs / (1 - probs)), at least 0: a tensor of batch_shape and of the parameters' dtype.")
    variance = property(lambda self: self.mean / _C.sigmoid(-self.logits),
                        doc="The variance, total_count probs / (1 - probs)^2: a tensor of batch_shape and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        draw = lambda random, n, p: random.negative_binomial(n, 1 - p)  # noqa: E731
        return on_host(draw, self._extended_shape(sample_shape), self._param, self.total_count, self.probs)

    def log_prob(self, value):
        """The logarithm of the probability: log(gamma(n + k) / (k! gamma(n))) + n log(1 - probs) + k log(probs) for k = value and n = total_count. Shapes and
        errors are those of Distribution.log_prob.
        """
        self._validate_sample(value)
        n = self.total_count
        unnormalized = -n * _C.softplus(self.logits) - value * _C.softplus(-self.logits)
        return unnormalized + lgamma(n + value) - lgamma(value + 1) - lgamma(n)


class Multinomial(Distribution):
    """How often each class came in total_count draws of a Categorical.

    total_count: an int. One of the two is given, with the classes in the last dim: probs, which need not sum to 1, or logits, their logarithms up to a constant.
    validate_args: as in Distribution. NotImplementedError for a total_count that is no int. ValueError for a negative one; the errors for probs and logits are
    those of Categorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError(f"Multinomial: total_count is not an integer; got {type(total_count).__name__}")
        if total_count < 0:
            raise ValueError(f"Multinomial: a negative total_count; got {total_count}; expected 0 or more")
        self.total_count, self._categorical = total_count, Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    support = property(lambda self: constraints.multinomial(self.total_count),
                       doc="The values that the distribution can give, as a constraint: counts, 0 or more, that sum to total_count over the last dim.")
    probs = property(lambda self: self._categorical.probs, doc="The probabilities of the classes, which sum to 1 over the last dim: [*batch_shape, classes].")
    logits = property(lambda self: self._categorical.logits,
                      doc="The logarithms of the probabilities, of which exp sums to 1 over the last dim: [*batch_shape, classes].")
    param_shape = property(lambda self: self._categorical.param_shape, doc="The shape of probs or logits, whichever was given: [*batch_shape, classes].")
    mean = property(lambda self: self.probs * self.total_count, doc="The mean, total_count probs: a tensor of [*batch_shape, classes] and of the parameters' dtype.")
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs),
                        doc="The variance, total_count probs (1 - probs): a tensor of [*batch_shape, classes] and of the parameters' dtype.")

    def sample(self, sample_shape=()):
        draws = self._categorical.sample((self.total_count, *((sample_shape,) if isinstance(sample_shape, int) else sample_shape)))
        classes = _C.arange(self._event_shape[0], device=draws.device)
        return (draws.unsqueeze(-1) == classes).to(self.probs.dtype).sum(0)

    def log_prob(self, value):
        """The logarithm of the probability: log(n! / product of value_i!) + sum(value log(probs)) for n = sum(value). Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        logits = _C.where(_C.logical_and(value == 0, self.logits == -math.inf), 0.0, self.logits)
        return lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1) + (logits * value).sum(-1)

    def entropy(self):
        """The entropy in nats, total_count H - log(total_count!) + the mean of log(k!) for each class, where H is the Categorical's and k, the class's count,
        is Binomial: a tensor of batch_shape and of the parameters' dtype.
        """
        n = self.total_count
        counts = Binomial(n, self.probs)
        k = counts.enumerate_support(False)[1:]
        mean = (_C.exp(counts.log_prob(k)) * lgamma(k + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + mean
