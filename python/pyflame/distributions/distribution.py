"""The base of all distributions: shapes, checks of arguments and of values."""
from .. import _C
from .._C import Tensor
from .._grad_mode import no_grad
from .._shapes import broadcast_shapes
from . import constraints


def broadcast_all(*values):
    """Numbers and tensors as tensors of one shape. Numbers take the dtype and device of the first tensor, or the default ones."""
    first = next((v for v in values if isinstance(v, Tensor)), None)
    for v in values:
        if not isinstance(v, (Tensor, int, float)):
            raise ValueError(f"distributions: not a number or a tensor; got {type(v).__name__}")
    if first is None:
        return [_C.tensor(float(v), device=_C.get_device()) for v in values]
    dtype = first.dtype if first.is_floating_point() else _C.get_default_dtype()
    tensors = [v if isinstance(v, Tensor) else _C.full((), v, dtype=dtype, device=first.device) for v in values]
    shape = broadcast_shapes(*(tuple(t.shape) for t in tensors))
    return [t if tuple(t.shape) == tuple(shape) else t.expand(*shape) for t in tensors]


def check_tensors(op, **values):
    """ValueError for an argument that is not a tensor."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{op}: {name} is not a tensor; got {type(value).__name__}; expected a tensor")


def sum_rightmost(value, dims):
    """The sum over the last dims."""
    return value if dims == 0 else value.reshape(*value.shape[: value.ndim - dims], -1).sum(-1)


def extended(shape):
    """A sample_shape as a tuple."""
    return (shape,) if isinstance(shape, int) else tuple(shape)


class Distribution:
    """A probability distribution: batch_shape are independent distributions with parameters of their own, event_shape is one draw of each.

    validate_args: whether the arguments, and the values of log_prob, are checked, which reads them; None: as set_default_validate_args said, or else True
    (False under python -O). What the checks find is a ValueError. TypeError for a shape that is no tuple. A method for which a distribution has no formula is a
    NotImplementedError."""

    has_rsample = False
    has_enumerate_support = False
    arg_constraints = {}
    support = None
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        """Sets whether distributions that are made without validate_args check their parameters and the values of log_prob and cdf. The checks read values
        from the device. ValueError for anything but True and False.
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: not a bool; got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = _C.Size(batch_shape), _C.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self):
        for name, constraint in self.arg_constraints.items():
            if constraint is constraints.dependent or name not in self.__dict__:
                continue
            value = getattr(self, name)
            if isinstance(value, Tensor) and not bool(constraint.check(value.detach()).all()):
                raise ValueError(f"{type(self).__name__}: the parameter {name} has invalid values; got {name} of shape {tuple(value.shape)}; expected {constraint!r}")

    def _validate_sample(self, value):
        if not isinstance(value, Tensor):
            raise ValueError(f"{type(self).__name__}: the value is not a tensor; got {type(value).__name__}")
        if not self._validate_args:
            return
        dims = len(self._event_shape)
        if tuple(value.shape[value.ndim - dims :]) != tuple(self._event_shape):
            raise ValueError(f"{type(self).__name__}: the value does not fit; got shape {tuple(value.shape)}; expected the event shape {tuple(self._event_shape)} at its end")
        for a, b in zip(reversed(value.shape), reversed(tuple(self._batch_shape) + tuple(self._event_shape))):
            if a != 1 and b != 1 and a != b:
                raise ValueError(f"{type(self).__name__}: the value does not broadcast; got shape {tuple(value.shape)}; expected {tuple(self._batch_shape) + tuple(self._event_shape)}")
        support = self.support
        if support is not None and not bool(support.check(value.detach()).all()):
            raise ValueError(f"{type(self).__name__}: the value is not within the support; got a tensor of shape {tuple(value.shape)}; expected {support!r}")

    @property
    def batch_shape(self):
        """The shape of independent distributions: that of the parameters, without the dims of one value."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one value, a Size: () for a number, [n] for a vector of n numbers."""
        return self._event_shape

    @property
    def mean(self):
        """The expected value, a tensor [*batch_shape, *event_shape] of the parameters' dtype. NotImplementedError where there is no formula."""
        raise NotImplementedError(f"{type(self).__name__}: the mean is not available")

    @property
    def mode(self):
        """The value with the highest density or probability, a tensor [*batch_shape, *event_shape]. NotImplementedError where there is no formula."""
        raise NotImplementedError(f"{type(self).__name__}: the mode is not available")

    @property
    def variance(self):
        """The variance of each element: [*batch_shape, *event_shape]. NotImplementedError where there is no formula."""
        raise NotImplementedError(f"{type(self).__name__}: the variance is not available")

    @property
    def stddev(self):
        """The standard deviation of each element, sqrt(variance): [*batch_shape, *event_shape]. NotImplementedError where the variance has no formula."""
        return _C.sqrt(self.variance)

    def sample(self, sample_shape=()):
        """Random values, a tensor [*sample_shape, *batch_shape, *event_shape] that has no gradient. sample_shape: a tuple of sizes, or one number. The
        generator is the one that pf.manual_seed sets.
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Random values [*sample_shape, *batch_shape, *event_shape] as a differentiable function of the parameters and of noise (reparametrization).
        NotImplementedError where has_rsample is False.
        """
        raise NotImplementedError(f"{type(self).__name__}: draws have no gradient; hint: sample")

    def sample_n(self, n):
        """n random values, a tensor [n, *batch_shape, *event_shape] without a gradient. The same as sample((n,))."""
        return self.sample((n,))

    def log_prob(self, value):
        """The natural logarithm of the density, or of the probability where values are discrete. value: a tensor that broadcasts with [*batch_shape,
        *event_shape]. Returns a tensor without the dims of event_shape. ValueError, where values are checked, for one outside of the support;
        NotImplementedError where there is no formula.
        """
        raise NotImplementedError(f"{type(self).__name__}: log_prob is not available")

    def cdf(self, value):
        """The cumulative distribution function: the probability of a number that is at most value. value: a tensor that broadcasts with batch_shape.
        ValueError, where values are checked, for one outside of the support; NotImplementedError where there is no formula.
        """
        raise NotImplementedError(f"{type(self).__name__}: cdf is not available")

    def icdf(self, value):
        """The inverse of cdf, also called the quantile function: the x with cdf(x) = value. value: a tensor of probabilities that broadcasts with
        batch_shape. NotImplementedError where there is no formula.
        """
        raise NotImplementedError(f"{type(self).__name__}: icdf is not available")

    def entropy(self):
        """The entropy in nats, the mean of -log_prob(x) over values x of the distribution: [*batch_shape]. NotImplementedError where there is no formula."""
        raise NotImplementedError(f"{type(self).__name__}: the entropy is not available")

    def perplexity(self):
        """exp(entropy()), a tensor of the shape batch_shape. NotImplementedError where the entropy has no formula."""
        return _C.exp(self.entropy())

    def enumerate_support(self, expand=True):
        """All values that a discrete distribution can give, along a new first dim: [values, *batch_shape, *event_shape]. With expand=False the dims of
        batch_shape have size 1. NotImplementedError where the support is not finite or the distribution is continuous.
        """
        raise NotImplementedError(f"{type(self).__name__}: the support cannot be enumerated")

    def _extended_shape(self, sample_shape=()):
        return (*extended(sample_shape), *self._batch_shape, *self._event_shape)

    def expand(self, batch_shape, _instance=None):
        """The same distribution with batch_shape made larger: parameters are expanded, not copied. batch_shape: the new shape, with which the present one
        must broadcast (ValueError, RuntimeError).
        """
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor):
                kept = value.ndim - len(self._batch_shape)
                new.__dict__[name] = value.expand(*extended(batch_shape), *value.shape[value.ndim - kept :])
            elif isinstance(value, Distribution):
                new.__dict__[name] = value.expand((*extended(batch_shape), *value.batch_shape[len(self._batch_shape) :]))
        new._batch_shape = _C.Size(extended(batch_shape))
        return new

    def __repr__(self):
        names = [k for k in self.arg_constraints if k in self.__dict__]
        parts = (f"{k}: {v if v.numel() == 1 else tuple(v.shape)}" for k in names if isinstance(v := getattr(self, k), Tensor))
        return f"{type(self).__name__}({', '.join(parts)})"


class ExponentialFamily(Distribution):
    """The base of distributions whose density is h(x) exp(<parameters, statistics of x> - normalizer of the parameters), such as Normal and Gamma. The
    arguments, and the errors for them, are those of Distribution: TypeError for a shape that is no tuple.
    """
