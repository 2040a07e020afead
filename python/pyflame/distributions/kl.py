"""Kullback-Leibler divergences of pairs of distributions."""
import math

from .. import _C
from ._math import digamma, lgamma, xlogy
from .continuous import Exponential, Laplace, Normal, Uniform
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .distribution import sum_rightmost
from .gammas import Beta, Dirichlet, Gamma
from .transformed import Independent, LogNormal

_table = {}


def register_kl(type_p, type_q):
    """A decorator: f(p, q) is the divergence of such a pair."""

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


@register_kl(Normal, Normal)
def _normals(p, q):
    ratio, t = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + t - 1 - _C.log(ratio))


@register_kl(LogNormal, LogNormal)
def _log_normals(p, q):
    return _normals(p.base_dist, q.base_dist)


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p, q):
    return xlogy(p.probs, p.probs) + xlogy(1 - p.probs, 1 - p.probs) + _C.softplus(q.logits) - p.probs * q.logits


@register_kl(Binomial, Binomial)
def _binomials(p, q):
    if bool((p.total_count != q.total_count).any()):
        raise NotImplementedError("kl_divergence: Binomials of different total_count")
    return p.total_count * _bernoullis(p, q)


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


@register_kl(Uniform, Uniform)
def _uniforms(p, q):
    result = _C.log((q.high - q.low) / (p.high - p.low))
    return _C.where(_C.logical_or(q.low > p.low, q.high < p.high), math.inf, result)


@register_kl(Uniform, Normal)
def _uniform_normal(p, q):
    t = (p.high - p.low) ** 2 / 12 + ((p.high + p.low - 2 * q.loc) / 2) ** 2
    return 0.5 * (math.log(2 * math.pi) + 2 * _C.log(q.scale) + t / (q.scale * q.scale)) - _C.log(p.high - p.low)


@register_kl(Independent, Independent)
def _independents(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(f"kl_divergence: Independents of different dims; got {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
