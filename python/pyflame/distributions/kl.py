"""Kullback-Leibler divergences of pairs of distributions."""
import math

from .. import _C, _shapes
from . import _math, distribution
from ._math import EULER, HALF_LOG_2PI, digamma, lgamma
from .continuous import Cauchy, Exponential, Gumbel, HalfCauchy, HalfNormal, Laplace, Normal, Uniform
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .gammas import Beta, Dirichlet, Gamma
from .relaxed import ContinuousBernoulli
from .transformed import Independent, Pareto, TransformedDistribution

_table = {}


def register_kl(type_p, type_q):
    """A decorator for a function f(p, q) that returns KL(p || q), a tensor of batch_shape. kl_divergence calls it for p of type_p and q of type_q, classes,
    or of subclasses of them. A later function for the same pair replaces the earlier one. TypeError for what is no class of distributions.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type) or not issubclass(kind, distribution.Distribution):
            raise TypeError(f"register_kl: {name} is not a class of distributions; got {kind!r}; expected a subclass of Distribution")

    def decorate(f):
        _table[type_p, type_q] = f
        return f

    return decorate


def kl_divergence(p, q):
    """KL(p || q): the mean of log p(x) - log q(x) for x of p. NotImplementedError for a pair that has none."""
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _table:
                return _table[a, b](p, q)
    raise NotImplementedError(f"kl_divergence: not available for {type(p).__name__} and {type(q).__name__}; hint: register_kl, or the mean over draws")


# ---- two of the same kind


@register_kl(Normal, Normal)
def _normals(p, q):
    ratio, t = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + t - 1 - _C.log(ratio))


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1 - _C.log(ratio))


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchys(p, q):
    return 2 * _C.log(p.scale + q.scale) - _C.log(4 * p.scale * q.scale)


@register_kl(Cauchy, Cauchy)
def _cauchys(p, q):
    return _C.log((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) - _C.log(4 * p.scale * q.scale)


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p, q):
    of_one = p.probs * (_C.softplus(-q.logits) - _C.softplus(-p.logits))
    of_zero = (1 - p.probs) * (_C.softplus(q.logits) - _C.softplus(p.logits))
    of_one = _C.where(p.probs == 0, 0.0, _C.where(q.probs == 0, math.inf, of_one))
    return of_one + _C.where(p.probs == 1, 0.0, _C.where(q.probs == 1, math.inf, of_zero))


@register_kl(Binomial, Binomial)
def _binomials(p, q):
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("kl_divergence: not available for Binomials of which the second has a larger total_count")
    return _C.where(p.total_count > q.total_count, math.inf, p.total_count * _bernoullis(p, q))


@register_kl(Categorical, Categorical)
def _categoricals(p, q):
    t = p.probs * (p.logits - q.logits)
    t = _C.where(q.probs == 0, math.inf, t)
    return _C.where(p.probs == 0, 0.0, t).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hots(p, q):
    return _categoricals(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometrics(p, q):
    return -p.entropy() - _C.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poissons(p, q):
    return p.rate * (_C.log(p.rate) - _C.log(q.rate)) - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _exponentials(p, q):
    ratio = q.rate / p.rate
    return -_C.log(ratio) + ratio - 1


@register_kl(Gamma, Gamma)
def _gammas(p, q):
    a, b = p.concentration, q.concentration
    return b * _C.log(p.rate / q.rate) + lgamma(b) - lgamma(a) + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Beta, Beta)
def _betas(p, q):
    sum_p, sum_q = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    t = lgamma(q.concentration1) + lgamma(q.concentration0) + lgamma(sum_p) - lgamma(p.concentration1) - lgamma(p.concentration0) - lgamma(sum_q)
    differences = (p.concentration1 - q.concentration1) * digamma(p.concentration1) + (p.concentration0 - q.concentration0) * digamma(p.concentration0)
    return t + differences + (sum_q - sum_p) * digamma(sum_p)


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    t = lgamma(total) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return t + ((a - b) * (digamma(a) - digamma(total).unsqueeze(-1))).sum(-1)


@register_kl(Laplace, Laplace)
def _laplaces(p, q):
    ratio, distance = p.scale / q.scale, _C.abs(p.loc - q.loc)
    return -_C.log(ratio) + distance / q.scale + ratio * _C.exp(-distance / p.scale) - 1


@register_kl(Pareto, Pareto)
def _paretos(p, q):
    ratio = q.alpha / p.alpha
    return _C.where(p.scale < q.scale, math.inf, q.alpha * _C.log(p.scale / q.scale) - _C.log(ratio) + ratio - 1)


@register_kl(Uniform, Uniform)
def _uniforms(p, q):
    result = _C.log((q.high - q.low) / (p.high - p.low))
    return _C.where(_C.logical_or(q.low > p.low, q.high < p.high), math.inf, result)


@register_kl(Independent, Independent)
def _independents(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(f"kl_divergence: Independents of different dims; got {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}")
    return distribution.sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(f"kl_divergence: not available for {type(p).__name__} and {type(q).__name__} of different transforms")
    dims = len(p.event_shape) - len(p.base_dist.event_shape)
    return distribution.sum_rightmost(kl_divergence(p.base_dist, q.base_dist), dims)


# ---- two kinds: minus the entropy of p, minus the mean of log q(x) for x of p

_MEAN_OF_LOG = {  # of x
    Beta: lambda p: digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0),
    Exponential: lambda p: -_C.log(p.rate) - EULER,
    Pareto: lambda p: _C.log(p.scale) + 1 / p.alpha,
    Uniform: lambda p: _mean_of_log_between(p.low, p.high),
}
_LOG_MEAN_OF_EXP = {  # of -x / s
    Exponential: lambda p, s: -_C.log1p(1 / (p.rate * s)),
    Gamma: lambda p, s: -p.concentration * _C.log1p(1 / (p.rate * s)),
    Gumbel: lambda p, s: lgamma(1 + p.scale / s) - p.loc / s,
    Normal: lambda p, s: 0.5 * (p.scale / s) ** 2 - p.loc / s,
    Uniform: lambda p, s: _C.log(-_C.expm1((p.low - p.high) / s) * s / (p.high - p.low)) - p.low / s,
}


def _mean_of_log_between(low, high):
    return (_math.xlogy(high, high) - _math.xlogy(low, low)) / (high - low) - 1


def _to_normal(p, q):
    return _C.log(q.scale) + HALF_LOG_2PI + (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale * q.scale) - p.entropy()


def _to_exponential(p, q):
    return q.rate * p.mean - _C.log(q.rate) - p.entropy()


def _to_gamma(p, q):
    b, kind = q.concentration, next(k for k in _MEAN_OF_LOG if isinstance(p, k))
    return lgamma(b) - b * _C.log(q.rate) - (b - 1) * _MEAN_OF_LOG[kind](p) + q.rate * p.mean - p.entropy()


def _to_gumbel(p, q):
    s, kind = q.scale, next(k for k in _LOG_MEAN_OF_EXP if isinstance(p, k))
    return _C.log(s) + (p.mean - q.loc) / s + _C.exp(q.loc / s + _LOG_MEAN_OF_EXP[kind](p, s)) - p.entropy()


def _to_continuous_bernoulli(p, q):
    return _C.softplus(q.logits) - p.mean * q.logits - q._log_norm() - p.entropy()


def _to_uniform(p, q):  # from the unit interval
    return _C.where(_C.logical_or(q.low > 0, q.high < 1), math.inf, _C.log(q.high - q.low) - p.entropy())


def _from_uniform(lowest, highest, divergence):
    """The divergence where the uniform p lies within the support of q, otherwise infinity."""

    def checked(p, q):
        low = lowest(q) if callable(lowest) else lowest
        return _C.where(_C.logical_or(p.low < low, p.high > highest), math.inf, divergence(p, q))

    return checked


def _uniform_to_beta(p, q):
    a, b = q.concentration1, q.concentration0
    logs = (a - 1) * _mean_of_log_between(p.low, p.high) + (b - 1) * _mean_of_log_between(1 - p.high, 1 - p.low)
    return lgamma(a) + lgamma(b) - lgamma(a + b) - logs - p.entropy()


def _uniform_to_pareto(p, q):
    return (q.alpha + 1) * _mean_of_log_between(p.low, p.high) - _C.log(q.alpha) - q.alpha * _C.log(q.scale) - p.entropy()


@register_kl(Normal, Laplace)
def _normal_to_laplace(p, q):
    d = p.loc - q.loc
    z = d / (math.sqrt(2) * p.scale)
    distance = math.sqrt(2 / math.pi) * p.scale * _C.exp(-z * z) + d * _C.erf(z)  # the mean of |x - q.loc|
    return _C.log(2 * q.scale) + distance / q.scale - p.entropy()


@register_kl(Bernoulli, Poisson)
def _bernoulli_to_poisson(p, q):
    return q.rate - p.probs * _C.log(q.rate) - p.entropy()


def _infinite(p, q):
    some = next(v for v in p.__dict__.values() if isinstance(v, _C.Tensor))
    return _C.full(_shapes.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)), math.inf, dtype=some.dtype, device=some.device)


_INTERVAL, _POSITIVE = (Beta, ContinuousBernoulli, Uniform), (Exponential, Gamma)
for _q, _f, _kinds in (
    (Normal, _to_normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform)),
    (Exponential, _to_exponential, (Beta, ContinuousBernoulli, Gamma, Pareto)),
    (Gamma, _to_gamma, (Beta, Exponential, Pareto)),
    (Gumbel, _to_gumbel, (Exponential, Gamma, Gumbel, Normal, Uniform)),
    (ContinuousBernoulli, _to_continuous_bernoulli, (Beta, ContinuousBernoulli)),
    (Uniform, _to_uniform, (Beta, ContinuousBernoulli)),
):
    _table.update({(_p, _q): _f for _p in _kinds})
_table.update({
    (Uniform, Beta): _from_uniform(0, 1, _uniform_to_beta), (Uniform, ContinuousBernoulli): _from_uniform(0, 1, _to_continuous_bernoulli),
    (Uniform, Exponential): _from_uniform(0, math.inf, _to_exponential), (Uniform, Gamma): _from_uniform(0, math.inf, _to_gamma),
    (Uniform, Pareto): _from_uniform(lambda q: q.scale, math.inf, _uniform_to_pareto),
})
for _p, _kinds in {  # p has values that q does not have
    Beta: (Pareto,), ContinuousBernoulli: (Pareto,), Pareto: _INTERVAL, Poisson: (Bernoulli, Binomial), **dict.fromkeys(_POSITIVE, (*_INTERVAL, Pareto)),
    **dict.fromkeys((Gumbel, Laplace, Normal), (*_INTERVAL, *_POSITIVE, Pareto)),
}.items():
    _table.update({(_p, _q): _infinite for _q in _kinds})
