"""pf.distributions: densities that integrate to 1, moments of draws, gradients of draws, divergences by their definition, checks."""
import math

import numpy as np
import pytest

import pyflame as pf
from pyflame import distributions as D
from pyflame.distributions._math import _gamma_by_tensors

F64 = pf.float64


def t(*values):
    return pf.tensor(values, dtype=F64)


CONTINUOUS = {  # a distribution of one number, and where almost all of it lies
    "Normal": (lambda: D.Normal(t(0.3), t(1.7)), (-15, 15)), "LogNormal": (lambda: D.LogNormal(t(0.1), t(0.4)), (1e-6, 12)),
    "Laplace": (lambda: D.Laplace(t(0.3), t(0.7)), (-15, 15)), "Gumbel": (lambda: D.Gumbel(t(0.3), t(0.7)), (-4, 20)),
    "HalfNormal": (lambda: D.HalfNormal(t(1.3)), (0, 12)), "Uniform": (lambda: D.Uniform(t(-1.0), t(2.0)), (-1, 2)),
    "Exponential": (lambda: D.Exponential(t(1.4)), (0, 25)), "Gamma": (lambda: D.Gamma(t(2.5), t(1.5)), (1e-9, 30)), "Chi2": (lambda: D.Chi2(t(4.0)), (1e-9, 60)),
    "Beta": (lambda: D.Beta(t(2.5), t(1.5)), (1e-9, 1 - 1e-9)), "StudentT": (lambda: D.StudentT(t(9.0), t(0.3), t(0.5)), (-20, 20)),
    "Kumaraswamy": (lambda: D.Kumaraswamy(t(2.5), t(1.5)), (1e-9, 1 - 1e-9)), "InverseGamma": (lambda: D.InverseGamma(t(8.0), t(3.0)), (1e-3, 30)),
    "FisherSnedecor": (lambda: D.FisherSnedecor(t(6.0), t(20.0)), (1e-9, 60)), "ContinuousBernoulli": (lambda: D.ContinuousBernoulli(t(0.8)), (0, 1)),
    "ContinuousBernoulli-even": (lambda: D.ContinuousBernoulli(logits=t(0.001)), (0, 1)),
    "GeneralizedPareto": (lambda: D.GeneralizedPareto(t(1.0), t(2.0), t(-0.3)), (1, 1 + 2 / 0.3)),
    "Pareto": (lambda: D.Pareto(t(1.0), t(8.0)), (1, 60)), "Weibull": (lambda: D.Weibull(t(1.5), t(2.0)), (1e-9, 10)),
}
UNBOUNDED = {"Cauchy": lambda: D.Cauchy(t(0.3), t(0.7)), "HalfCauchy": lambda: D.HalfCauchy(t(0.7))}  # without moments
DISCRETE = {
    "Bernoulli": lambda: D.Bernoulli(t(0.3)), "Geometric": lambda: D.Geometric(t(0.4)), "Categorical": lambda: D.Categorical(t(0.1, 0.6, 0.3)),
    "Poisson": lambda: D.Poisson(t(2.5)), "Binomial": lambda: D.Binomial(6, t(0.3)), "NegativeBinomial": lambda: D.NegativeBinomial(t(3.0), t(0.4)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    make, (low, high) = CONTINUOUS[name]
    d = make()
    x = np.linspace(low, high, 400_001)
    density = np.exp(d.log_prob(pf.tensor(x)).numpy())
    np.testing.assert_allclose(np.trapezoid(density, x) if hasattr(np, "trapezoid") else np.trapz(density, x), 1, rtol=2e-3)
    weights = density * (x[1] - x[0])
    mean = (weights * x).sum()
    np.testing.assert_allclose(d.mean.item(), mean, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(d.variance.item(), (weights * (x - mean) ** 2).sum(), rtol=2e-2)
    np.testing.assert_allclose(d.entropy().item(), -(weights * np.log(np.maximum(density, 1e-300))).sum(), rtol=5e-3, atol=5e-3) if name not in ("Chi2", "FisherSnedecor") else None
    draws = d.sample((20_000,))
    assert draws.shape == (20_000, 1) and not draws.requires_grad
    assert abs(draws.numpy().mean() - mean) < 6 * d.stddev.item() / 20_000**0.5
    try:
        p = d.cdf(pf.tensor([0.5 * (low + high) if name != "LogNormal" else 1.0], dtype=F64))
    except NotImplementedError:
        return
    at = 0.5 * (low + high) if name != "LogNormal" else 1.0
    np.testing.assert_allclose(p.item(), weights[x <= at].sum(), rtol=5e-3, atol=1e-4)
    if name not in ("Pareto", "Weibull", "Gamma", "Chi2", "InverseGamma"):
        np.testing.assert_allclose(d.cdf(d.icdf(t(0.25))).item(), 0.25, rtol=1e-5)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_without_moments(name):
    d = UNBOUNDED[name]()
    assert not math.isfinite(d.mean.item()) and not math.isfinite(d.variance.item())
    half = d.icdf(t(0.5)).item()
    assert abs((d.sample((20_000,)) < half).double().mean().item() - 0.5) < 0.03
    x = np.linspace(half - 1e-3, half + 1e-3, 3)
    slope = np.diff(d.cdf(pf.tensor(x)).numpy()) / np.diff(x)
    np.testing.assert_allclose(slope, np.exp(d.log_prob(t(half)).item()), rtol=1e-2)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    d = DISCRETE[name]()
    last = {"Bernoulli": 2, "Categorical": 3, "Binomial": 7}.get(name, 80)
    values = pf.arange(last, dtype=F64).reshape(-1, 1) if name != "Categorical" else pf.arange(last).reshape(-1, 1)
    p = np.exp(d.log_prob(values).numpy())
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-6)
    draws = d.sample((20_000,)).double().numpy()
    counts = np.array([(draws == k).mean() for k in range(last)])
    np.testing.assert_allclose(counts, p.reshape(-1), atol=0.02)
    if name != "Categorical":
        mean = (p.reshape(-1) * np.arange(last)).sum()
        np.testing.assert_allclose([d.mean.item(), d.variance.item()], [mean, (p.reshape(-1) * (np.arange(last) - mean) ** 2).sum()], rtol=1e-4)
    if name in ("Bernoulli", "Categorical", "Binomial", "Geometric"):
        np.testing.assert_allclose(d.entropy().item(), -(p * np.log(p + 1e-300)).sum(), rtol=1e-5)
    if d.has_enumerate_support:
        assert d.enumerate_support().reshape(-1).tolist() == list(range(last))


def test_events_of_several_numbers():
    d = D.Dirichlet(t(2.0, 3.0, 5.0))
    draws = d.sample((5000,))
    np.testing.assert_allclose(draws.sum(-1).numpy(), 1, rtol=1e-12)
    np.testing.assert_allclose(draws.numpy().mean(0), d.mean.numpy(), atol=0.02)
    np.testing.assert_allclose(draws.numpy().var(0), d.variance.numpy(), rtol=0.2)
    both = D.Beta(t(2.0), t(3.0)).log_prob(t(0.4)), D.Dirichlet(t(2.0, 3.0)).log_prob(t(0.4, 0.6))
    np.testing.assert_allclose(both[0].item(), both[1].item(), rtol=1e-10)
    one_hot = D.OneHotCategoricalStraightThrough(logits=pf.zeros(4, requires_grad=True))
    draw = one_hot.rsample((7,))
    assert draw.shape == (7, 4) and draw.requires_grad and (draw.detach().sum(-1) == 1).all().item()
    many = D.Multinomial(10, t(0.2, 0.8))
    assert (many.sample((6,)).sum(-1) == 10).all().item()
    np.testing.assert_allclose(many.log_prob(t(3.0, 7.0)).item(), D.Binomial(10, t(0.2)).log_prob(t(3.0)).item(), rtol=1e-6)
    rows = D.Independent(D.Normal(pf.zeros(3, 2), pf.ones(3, 2)), 1)
    assert rows.batch_shape == (3,) and rows.event_shape == (2,) and rows.log_prob(pf.zeros(3, 2)).shape == (3,) and rows.entropy().shape == (3,)
    mixture = D.MixtureSameFamily(D.Categorical(t(0.25, 0.75)), D.Normal(t(-2.0, 2.0), t(1.0, 1.0)))
    np.testing.assert_allclose([mixture.mean.item(), mixture.variance.item()], [1.0, 4.0], rtol=1e-6)
    assert abs(mixture.sample((4000,)).mean().item() - 1) < 0.2


def test_gradients_of_draws():
    loc, scale = pf.tensor(0.5, requires_grad=True), pf.tensor(2.0, requires_grad=True)
    pf.manual_seed(0)
    x = D.Normal(loc, scale).rsample((1000,))
    x.sum().backward()
    np.testing.assert_allclose([loc.grad.item(), scale.grad.item()], [1000, ((x.detach() - 0.5) / 2).sum().item()], rtol=1e-4)
    for a in (0.3, 2.0, 40.0, 5000.0):  # the mean of a Gamma's draws is its concentration: d mean / d a = 1; d E[x^2] / d a = 2 a + 1
        pf.manual_seed(1)
        concentration = pf.tensor(a, dtype=F64, requires_grad=True)
        x = D.Gamma(concentration, 1.0).rsample((20_000,))
        (x.mean() + (x * x).mean() / (2 * a + 1)).backward()
        np.testing.assert_allclose(concentration.grad.item(), 2.0, rtol=0.06)
    first, second = pf.tensor(2.0, dtype=F64, requires_grad=True), pf.tensor(3.0, dtype=F64, requires_grad=True)
    D.Beta(first, second).rsample((20_000,)).mean().backward()
    np.testing.assert_allclose([first.grad.item(), second.grad.item()], [3 / 25, -2 / 25], rtol=0.08)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("a", [0.1, 0.7, 1.0, 3.5, 200.0])
def test_gamma_by_tensors(a, together, monkeypatch):
    """The draws of devices other than the CPU have the distribution function of NumPy's: Kolmogorov and Smirnov's statistic of equal distributions is below 0.0087 in
    999 of 1,000 seeds."""
    if not together:
        monkeypatch.setattr("pyflame.distributions._math._AT_ONCE", 0)
    pf.manual_seed(3)
    ours, theirs = np.sort(_gamma_by_tensors(pf.full((100_000,), a)).numpy()), np.sort(np.random.default_rng(5).standard_gamma(a, 100_000).astype(np.float32))
    at = np.concatenate([ours, theirs])
    assert np.abs(np.searchsorted(ours, at, "right") - np.searchsorted(theirs, at, "right")).max() / 100_000 < 0.0087


def test_transforms():
    base = D.Independent(D.Normal(pf.zeros(2, dtype=F64), 1.0), 1)
    d = D.TransformedDistribution(base, [D.AffineTransform(1.0, 2.0, event_dim=1), D.TanhTransform()])
    y = t(0.3, -0.5)
    x = np.arctanh([0.3, -0.5])
    want = sum(-0.5 * ((v - 1) / 2) ** 2 - 0.5 * math.log(2 * math.pi) - math.log(2) - math.log(1 - math.tanh(v) ** 2) for v in x)
    np.testing.assert_allclose(d.log_prob(y).item(), want, rtol=1e-9)
    assert d.event_shape == (2,) and d.rsample((3,)).shape == (3, 2) and d.expand((4,)).sample().shape == (4, 2)
    same = D.TransformedDistribution(D.Normal(t(0.2), t(0.3)), D.ExpTransform())
    np.testing.assert_allclose(same.log_prob(t(1.3)).item(), D.LogNormal(t(0.2), t(0.3)).log_prob(t(1.3)).item(), rtol=1e-12)
    np.testing.assert_allclose(same.cdf(same.icdf(t(0.3))).item(), 0.3, rtol=1e-6)
    for f in (D.SigmoidTransform(), D.TanhTransform(), D.SoftplusTransform(), D.ExpTransform(), D.AffineTransform(1.0, -2.0), D.ComposeTransform([D.ExpTransform(), D.PowerTransform(2.0)])):
        x = t(-0.7, 0.4)
        np.testing.assert_allclose(f.inv(f(x)).numpy(), x.numpy(), rtol=1e-7)
        h = 1e-6
        slope = (f(x + h) - f(x - h)).numpy() / (2 * h)
        np.testing.assert_allclose(f.log_abs_det_jacobian(x, f(x)).numpy(), np.log(np.abs(slope)), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(f.inv.log_abs_det_jacobian(f(x), x).numpy(), -np.log(np.abs(slope)), rtol=1e-5, atol=1e-7)


PAIRS = [
    (D.Normal(0.1, 1.2), D.Normal(-0.3, 0.9)), (D.LogNormal(0.1, 0.4), D.LogNormal(0.2, 0.5)), (D.Exponential(1.3), D.Exponential(0.7)), (D.Laplace(0.1, 0.8), D.Laplace(0.5, 1.1)),
    (D.Gamma(2.0, 1.5), D.Gamma(2.5, 1.0)), (D.Beta(2.0, 3.0), D.Beta(2.5, 2.0)), (D.Uniform(0.2, 0.7), D.Uniform(0.0, 1.0)), (D.Uniform(0.2, 0.7), D.Normal(0.3, 1.0)),
    (D.Poisson(2.0), D.Poisson(2.6)), (D.Bernoulli(0.3), D.Bernoulli(0.6)), (D.Geometric(0.4), D.Geometric(0.6)), (D.Binomial(5, pf.tensor(0.3)), D.Binomial(5, pf.tensor(0.5))),
    (D.Categorical(pf.tensor([0.2, 0.8])), D.Categorical(pf.tensor([0.5, 0.5]))), (D.OneHotCategorical(pf.tensor([0.2, 0.8])), D.OneHotCategorical(pf.tensor([0.5, 0.5]))),
    (D.Dirichlet(pf.tensor([2.0, 3.0])), D.Dirichlet(pf.tensor([3.0, 3.5]))),
    (D.HalfNormal(1.0), D.HalfNormal(1.3)), (D.Cauchy(0.1, 1.0), D.Cauchy(0.3, 1.2)), (D.HalfCauchy(1.0), D.HalfCauchy(1.2)), (D.Gumbel(0.1, 1.0), D.Gumbel(-0.2, 1.3)),
    (D.Pareto(1.0, 3.0), D.Pareto(0.8, 2.5)), (D.ContinuousBernoulli(0.3), D.ContinuousBernoulli(0.8)), (D.InverseGamma(3.0, 2.0), D.InverseGamma(2.5, 2.2)),
    (D.LogisticNormal(pf.zeros(2), pf.ones(2)), D.LogisticNormal(pf.tensor([0.2, -0.3]), pf.ones(2))),
    (D.LowRankMultivariateNormal(pf.zeros(2), pf.ones(2, 1), pf.ones(2)), D.LowRankMultivariateNormal(pf.ones(2), 0.5 * pf.ones(2, 1), pf.tensor([1.0, 2.0]))),
    (D.Wishart(4.0, pf.eye(2)), D.Wishart(5.0, pf.tensor([[1.0, 0.2], [0.2, 0.8]]))),
    (D.Independent(D.Normal(pf.zeros(2), 1.0), 1), D.Independent(D.Normal(pf.ones(2), 1.0), 1)),
]


UNIT = [D.Beta(2.0, 3.0), D.ContinuousBernoulli(0.3), D.Uniform(0.2, 0.7)]
CROSSED = {
    D.Normal(0.3, 1.0): [*UNIT, D.Exponential(1.3), D.Gamma(2.0, 1.5), D.Gumbel(0.1, 0.7), D.Laplace(0.1, 0.8), D.Pareto(1.0, 5.0)], D.Uniform(-0.1, 1.2): UNIT[:2],
    D.Exponential(0.8): [*UNIT, D.Gamma(2.0, 1.5), D.Pareto(1.0, 5.0)], D.Gamma(2.5, 1.5): [UNIT[0], UNIT[2], D.Exponential(1.3), D.Pareto(1.0, 5.0)],
    D.Gumbel(0.2, 1.2): [UNIT[2], D.Exponential(1.3), D.Gamma(2.0, 1.5), D.Normal(0.1, 0.8)], D.Laplace(0.3, 1.1): [D.Normal(0.1, 0.8)], D.Beta(1.5, 2.0): UNIT[2:],
    D.ContinuousBernoulli(0.8): [UNIT[0], UNIT[2]], D.Pareto(0.1, 2.0): UNIT[2:], D.Poisson(0.7): [D.Bernoulli(0.4)],
    D.LowRankMultivariateNormal(pf.ones(2), pf.ones(2, 1), pf.ones(2)): [D.MultivariateNormal(pf.zeros(2), pf.eye(2))],
    D.MultivariateNormal(pf.zeros(2), pf.eye(2)): [D.LowRankMultivariateNormal(pf.ones(2), pf.ones(2, 1), pf.ones(2))],
}  # fmt: skip
CROSSED = [(p, q) for q, sources in CROSSED.items() for p in sources]


@pytest.mark.parametrize("p,q", CROSSED, ids=[f"{type(p).__name__}-{type(q).__name__}" for p, q in CROSSED])
def test_divergences_of_two_kinds(p, q):
    pf.manual_seed(3)
    x = p.sample((40_000,))
    differences = (p.log_prob(x) - q.log_prob(x)).double().numpy()
    assert abs(D.kl_divergence(p, q).item() - differences.mean()) < 6 * differences.std() / 200 + 1e-4


@pytest.mark.parametrize("p,q", [
    (D.Beta(2.0, 3.0), D.Pareto(0.1, 1.0)), (D.Beta(2.0, 3.0), D.Uniform(0.1, 1.0)), (D.Exponential(1.0), D.Beta(1.0, 1.0)), (D.Gamma(1.0, 1.0), D.Uniform(0.0, 9.0)),
    (D.Normal(0.0, 1.0), D.Gamma(1.0, 1.0)), (D.Laplace(0.0, 1.0), D.ContinuousBernoulli(0.4)), (D.Gumbel(0.0, 1.0), D.Pareto(1.0, 1.0)), (D.Pareto(1.0, 1.0), D.Uniform(1.0, 2.0)),
    (D.Pareto(1.0, 1.0), D.Pareto(2.0, 1.0)), (D.Pareto(1.0, 0.9), D.Exponential(1.0)), (D.Pareto(1.0, 1.9), D.Normal(0.0, 1.0)), (D.Poisson(1.0), D.Bernoulli(0.5)),
    (D.Uniform(-0.1, 0.5), D.Exponential(1.0)), (D.Uniform(0.1, 1.5), D.Beta(1.0, 1.0)), (D.Uniform(0.1, 1.5), D.Pareto(0.2, 1.0)), (D.Binomial(3, pf.tensor(0.3)), D.Binomial(2, pf.tensor(0.3))),
])
def test_infinite_divergences(p, q):
    assert D.kl_divergence(p, q).item() == math.inf


def test_divergences_at_the_borders():
    half = math.log(2)
    p, q = t(0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 0.0, 1.0), t(0.0, 0.5, 0.0, 1.0, 1.0, 0.5, 1.0, 0.0)
    want = [0, half, math.inf, math.inf, 0, half, math.inf, math.inf]
    np.testing.assert_allclose(D.kl_divergence(D.Bernoulli(p), D.Bernoulli(q)).numpy(), want, atol=1e-15)
    np.testing.assert_allclose(D.kl_divergence(D.Binomial(3, p), D.Binomial(3, q)).numpy(), [3 * w for w in want], atol=1e-15)
    p = t(0.0, 1.0).requires_grad_()
    D.kl_divergence(D.Bernoulli(p), D.Bernoulli(t(0.5, 0.5))).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), [-half, half])
    with pytest.raises(NotImplementedError, match="of which the second has a larger total_count"):
        D.kl_divergence(D.Binomial(2, t(0.3)), D.Binomial(3, t(0.3)))
    with pytest.raises(NotImplementedError, match="of different transforms"):
        D.kl_divergence(D.LogNormal(0.0, 1.0), D.InverseGamma(1.0, 1.0))


@pytest.mark.parametrize("make", [lambda x: D.Bernoulli(logits=x), lambda x: D.Binomial(1, logits=x), lambda x: D.ContinuousBernoulli(logits=x)])
def test_gradient_at_even_odds(make):
    logits = t(0.0).requires_grad_()
    make(logits).log_prob(t(1.0)).backward()
    np.testing.assert_allclose(logits.grad.item(), 0.5, rtol=1e-12)


@pytest.mark.parametrize("p,q", PAIRS, ids=[f"{type(p).__name__}-{type(q).__name__}" for p, q in PAIRS])
def test_divergences(p, q):
    pf.manual_seed(3)
    x = p.sample((40_000,))
    differences = (p.log_prob(x) - q.log_prob(x)).double().numpy()
    assert abs(D.kl_divergence(p, q).item() - differences.mean()) < 6 * differences.std() / 200 + 1e-4
    np.testing.assert_allclose(D.kl_divergence(p, p).item(), 0, atol=1e-5)


@pytest.mark.parametrize("wrong,error,text", [
    (lambda: D.Normal(0.0, -1.0), ValueError, r"Normal: the parameter scale has invalid values; .* expected GreaterThan\(lower_bound=0.0\)"),
    (lambda: D.Bernoulli(1.5), ValueError, "Bernoulli: the parameter probs has invalid values"),
    (lambda: D.Bernoulli(0.5, logits=0.1), ValueError, "either probs or logits; got both"),
    (lambda: D.Categorical(), ValueError, "either probs or logits; got none"),
    (lambda: D.Categorical(pf.tensor([-1.0, 2.0])), ValueError, "Categorical: the parameter probs has invalid values"),
    (lambda: D.Categorical(pf.tensor(1.0)), ValueError, "Categorical: the parameter is 0-dimensional"),
    (lambda: D.Dirichlet(pf.tensor(1.0)), ValueError, "Dirichlet: the concentration is 0-dimensional"),
    (lambda: D.Uniform(1.0, 0.0), ValueError, "Uniform: low is not below high"),
    (lambda: D.Normal("a", 1.0), ValueError, "not a number or a tensor; got str"),
    (lambda: D.Normal(0.0, 1.0).log_prob(3.0), ValueError, "Normal: the value is not a tensor; got float"),
    (lambda: D.Beta(1.0, 1.0).log_prob(pf.tensor(2.0)), ValueError, "Beta: the value is not within the support"),
    (lambda: D.Normal(pf.zeros(3), 1.0).log_prob(pf.zeros(2)), ValueError, "Normal: the value does not broadcast"),
    (lambda: D.Dirichlet(pf.ones(3)).log_prob(pf.ones(2)), ValueError, "Dirichlet: the value does not fit"),
    (lambda: D.Bernoulli(0.5).rsample(), NotImplementedError, "Bernoulli: draws have no gradient; hint: sample"),
    (lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0)), NotImplementedError, "not available for Normal and Poisson"),
    (lambda: D.Independent(D.Normal(0.0, 1.0), 1), ValueError, "more dims than there are"),
    (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [3]), ValueError, "not transforms"),
    (lambda: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)), ValueError, "the mixture is not a Categorical"),
    (lambda: D.Multinomial(pf.tensor(3), pf.ones(2)), NotImplementedError, "total_count is not an integer"),
    (lambda: D.Geometric(0.0), ValueError, "Geometric: the parameter probs has invalid values; got 0"),
    (lambda: D.Wishart(1.0, pf.eye(2)), ValueError, "Wishart: df is too small; got 1.0 for matrices of size 2; expected more than 1"),
    (lambda: D.Wishart(3.0), ValueError, "Wishart: needs one of covariance_matrix"),
    (lambda: D.Wishart(3.0, pf.tensor([[1.0, 2.0], [2.0, 1.0]])), ValueError, "Wishart: the parameter covariance_matrix has invalid values"),
    (lambda: D.Wishart(3.0, pf.ones(2)), ValueError, "Wishart: covariance_matrix is not of square matrices"),
    (lambda: D.LKJCholesky(1), ValueError, "LKJCholesky: too small; got dim=1"),
    (lambda: D.LKJCholesky(2).log_prob(2 * pf.eye(2)), ValueError, "LKJCholesky: the value is not within the support"),
    (lambda: D.LowRankMultivariateNormal(pf.zeros(2), pf.ones(3, 1), pf.ones(2)), ValueError, "LowRankMultivariateNormal: the parameters do not fit"),
    (lambda: D.VonMises(0.0, 1.0).rsample(), NotImplementedError, "VonMises: draws have no gradient"),
    (lambda: D.Poisson(1.0).entropy(), NotImplementedError, "the entropy is not available"),
    (lambda: D.Distribution.set_default_validate_args(3), ValueError, "not a bool"),
])
def test_errors(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()


def test_checks_can_be_left_out():
    assert math.isnan(D.Normal(0.0, -1.0, validate_args=False).log_prob(pf.tensor(0.0)).item())
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    assert repr(D.Normal(0.0, 1.0)).startswith("Normal(loc: ")
    d = D.Normal(pf.zeros(2), 1.0).expand((3, 2))
    assert d.sample((4,)).shape == (4, 3, 2) and d.batch_shape == (3, 2) and D.Normal(0.0, 1.0).sample_n(3).shape == (3,) and d.perplexity().shape == (3, 2)


def test_normal_vectors():
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    loc, covariance = t(0.3, -0.2), pf.tensor(matrix, requires_grad=True)
    d = D.MultivariateNormal(loc, covariance)
    x = np.array([[0.1, 0.4], [1.0, -1.0]])
    z = x - loc.numpy()
    want = -0.5 * np.einsum("ni,ij,nj->n", z, np.linalg.inv(matrix), z) - 0.5 * np.log(np.linalg.det(2 * np.pi * matrix))
    others = D.MultivariateNormal(loc, precision_matrix=pf.tensor(np.linalg.inv(matrix))), D.MultivariateNormal(loc, scale_tril=pf.tensor(np.linalg.cholesky(matrix)))
    for e in (d, *others):
        np.testing.assert_allclose(e.log_prob(pf.tensor(x)).detach().numpy(), want, rtol=1e-9)
        np.testing.assert_allclose(e.covariance_matrix.detach().numpy(), matrix, rtol=1e-9)
        np.testing.assert_allclose(e.precision_matrix.detach().numpy(), np.linalg.inv(matrix), rtol=1e-9)
        np.testing.assert_allclose(e.entropy().item(), 0.5 * np.log(np.linalg.det(2 * np.pi * np.e * matrix)), rtol=1e-9)
        np.testing.assert_allclose(e.variance.detach().numpy(), [2, 1], rtol=1e-9)
    pf.manual_seed(0)
    draws = d.rsample((20_000,))
    np.testing.assert_allclose(np.cov(draws.detach().numpy().T), matrix, atol=0.1)
    (draws * draws).sum().backward()
    assert covariance.grad is not None
    other = D.MultivariateNormal(t(1.0, 1.0), pf.eye(2, dtype=F64))
    wide = 0.5 * (np.trace(matrix) + ((1 - loc.numpy()) ** 2).sum() - 2 - np.log(np.linalg.det(matrix)))
    np.testing.assert_allclose(D.kl_divergence(d, other).item(), wide, rtol=1e-9)
    assert D.MultivariateNormal(pf.zeros(3, 2), pf.eye(2)).sample((4,)).shape == (4, 3, 2)
    for wrong, text in ((lambda: D.MultivariateNormal(loc), "one of covariance_matrix, precision_matrix and scale_tril"),
                        (lambda: D.MultivariateNormal(loc, pf.eye(3)), "covariance_matrix does not fit"),
                        (lambda: D.MultivariateNormal(pf.zeros(2), scale_tril=-pf.eye(2)), "the parameter scale_tril has invalid values")):
        with pytest.raises(ValueError, match=text):
            wrong()


def test_gradients_where_a_factor_of_a_logarithm_is_0():
    def slopes(make, *values):
        tensors = [pf.tensor(v, dtype=pf.float64, requires_grad=True) for v in values]
        make(*tensors).sum().backward()
        return [t.grad.tolist() for t in tensors]

    euler = 0.5772156649015329
    d = pf.distributions
    np.testing.assert_allclose(slopes(lambda value: d.Poisson(3.0).log_prob(value), 0.0), [np.log(3) + euler], rtol=1e-7)
    np.testing.assert_allclose(slopes(lambda a: d.Gamma(a, 2.0).log_prob(pf.tensor(0.5)), 1.0), [np.log(2) + np.log(0.5) + euler], rtol=1e-6, atol=1e-6)
    psi2 = 1 - euler  # digamma(2); of 1 it is -euler
    np.testing.assert_allclose(slopes(lambda a, b: d.Beta(a, b).log_prob(pf.tensor(0.3, dtype=pf.float64)), 1.0, 1.0), np.log([0.3, 0.7]) + psi2 + euler, rtol=1e-7)
    value = pf.tensor([0.2, 0.3, 0.5], dtype=pf.float64)
    np.testing.assert_allclose(slopes(lambda a: d.Dirichlet(a).log_prob(value), [1.0, 1.0, 1.0])[0], np.log(value.numpy()) + 1.5, rtol=1e-7)


def integral(density, x):
    return (density[1:] + density[:-1]).sum() * (x[1] - x[0]) / 2


def test_angles():
    d = D.VonMises(t(0.4), t(2.0))
    x = np.linspace(-math.pi, math.pi, 20_001)
    density = np.exp(d.log_prob(pf.tensor(x)).numpy())
    np.testing.assert_allclose([integral(density, x), integral(density * np.cos(x - 0.4), x)], [1, 1 - d.variance.item()], rtol=1e-7)
    draws = d.sample((20_000,)).numpy()
    assert d.mean.item() == d.mode.item() == 0.4 and abs(draws).max() <= math.pi and abs(np.cos(draws - 0.4).mean() - (1 - d.variance.item())) < 0.02 and abs(np.sin(draws - 0.4).mean()) < 0.02
    assert d.expand((3,)).sample((2,)).shape == (2, 3)


def test_modes():
    np.testing.assert_allclose(D.Dirichlet(t(2.0, 3.0, 1.0)).mode.numpy(), [1 / 3, 2 / 3, 0])
    np.testing.assert_allclose(D.Dirichlet(t(0.5, 0.7, 0.2)).mode.numpy(), [1, 0, 0])
    np.testing.assert_allclose(D.Beta(t(2.0, 0.5), t(4.0, 0.7)).mode.numpy(), [0.25, 1])
    np.testing.assert_allclose(D.Weibull(t(3.0), t(2.0)).mode.item(), 3 * 0.5**0.5)
    np.testing.assert_allclose(D.Weibull(t(3.0), t(0.5, 1 / 3, 1.0)).mode.numpy(), [0, 0, 0])  # the density falls from 0 on
    np.testing.assert_allclose(D.NegativeBinomial(t(5.0, 0.5), t(0.5, 0.5)).mode.numpy(), [4, 0])
    assert D.Independent(D.Bernoulli(t(0.5)), 0).enumerate_support().tolist() == [[0], [1]]


def test_extreme_logits():
    for logits in (-200.0, 200.0):
        d, x, far = D.ContinuousBernoulli(logits=t(logits)), t(0.01 if logits < 0 else 0.99), math.exp(-2.0)
        np.testing.assert_allclose([d.mean.item(), d.variance.item()], [0.005 if logits < 0 else 0.995, 0.005**2], rtol=1e-12)
        np.testing.assert_allclose([d.log_prob(x).item(), d.entropy().item()], [math.log(200) - 2, 1 - math.log(200)], rtol=1e-12)
        p = 1 - far if logits < 0 else far
        np.testing.assert_allclose([d.cdf(x).item(), d.icdf(t(p)).item()], [p, x.item()], rtol=1e-12)


def test_relaxed_classes():
    x = np.linspace(1e-6, 1 - 1e-6, 200_001)
    one = D.RelaxedBernoulli(t(0.7), probs=t(0.3))
    density = one.log_prob(pf.tensor(x)).numpy()
    np.testing.assert_allclose(integral(np.exp(density), x), 1, rtol=2e-3)
    classes = D.RelaxedOneHotCategorical(t(0.7)[0], probs=t(0.7, 0.3))
    np.testing.assert_allclose(classes.log_prob(pf.tensor(np.stack([1 - x, x], -1))).numpy(), density, rtol=1e-6, atol=1e-6)
    pf.manual_seed(0)
    assert abs((one.sample((20_000,)) > 0.5).double().mean().item() - 0.3) < 0.02 and abs((classes.sample((20_000,)).select(-1, 1) > 0.5).double().mean().item() - 0.3) < 0.02
    logits = t(0.3).requires_grad_()
    D.RelaxedBernoulli(t(0.7), logits=logits).rsample((5,)).sum().backward()
    assert logits.grad.item() > 0 and D.RelaxedOneHotCategorical(t(0.7), probs=t(0.7, 0.3)).expand((5,)).rsample((2,)).shape == (2, 5, 2)


def test_normal_points_of_a_simplex():
    d = D.LogisticNormal(t(0.3), t(0.8))
    x = np.linspace(1e-6, 1 - 1e-6, 100_001)
    np.testing.assert_allclose(integral(np.exp(d.log_prob(pf.tensor(np.stack([x, 1 - x], -1))).numpy()), x), 1, rtol=1e-4)
    d = D.LogisticNormal(pf.zeros(3, dtype=F64), pf.ones(3, dtype=F64))
    draws = d.rsample((5,))
    assert d.event_shape == (4,) and d.batch_shape == () and d.expand((2,)).sample().shape == (2, 4)
    np.testing.assert_allclose(draws.sum(-1).numpy(), 1, rtol=1e-12)
    stick = d.transforms[0]
    np.testing.assert_allclose(stick(stick.inv(draws)).numpy(), draws.numpy(), rtol=1e-9)
    np.testing.assert_allclose(stick(pf.zeros(3, dtype=F64)).numpy(), 0.25)


def test_normal_vectors_of_low_rank():
    loc, factor, diagonal = t(0.3, -0.2, 1.0), pf.tensor([[1.0, 0.5], [0.2, -0.3], [0.0, 2.0]], dtype=F64), t(0.5, 1.0, 2.0)
    d = D.LowRankMultivariateNormal(loc, factor, diagonal)
    same, x = D.MultivariateNormal(loc, d.covariance_matrix), pf.tensor([[0.1, 0.4, 1.0], [1.0, -1.0, 0.0]], dtype=F64)
    for a, b in ((d.log_prob(x), same.log_prob(x)), (d.entropy(), same.entropy()), (d.precision_matrix, same.precision_matrix), (d.variance, same.variance), (d.scale_tril, same.scale_tril)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([D.kl_divergence(d, same).item(), D.kl_divergence(same, d).item(), D.kl_divergence(d, d).item()], 0, atol=1e-12)
    pf.manual_seed(0)
    np.testing.assert_allclose(np.cov(d.sample((40_000,)).numpy().T), d.covariance_matrix.numpy(), atol=0.15)
    assert d.expand((4,)).rsample((2,)).shape == (2, 4, 3) and d.expand((4,)).log_prob(x[0]).shape == (4,)


def test_wishart():
    one, same = D.Wishart(t(3.5), covariance_matrix=pf.tensor([[[2.0]]], dtype=F64)), D.Gamma(t(1.75), t(0.25))
    x = t(0.7, 3.0)
    np.testing.assert_allclose(one.log_prob(x.reshape(2, 1, 1)).numpy(), same.log_prob(x).numpy(), rtol=1e-9)
    np.testing.assert_allclose([one.entropy().item(), one.mean.item(), one.variance.item()], [same.entropy().item(), same.mean.item(), same.variance.item()], rtol=1e-9)
    matrix = pf.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=F64)
    d = D.Wishart(5.0, matrix)
    pf.manual_seed(0)
    draws = d.rsample((20_000,)).numpy()
    np.testing.assert_allclose(draws.mean(0), d.mean.numpy(), atol=0.15)
    np.testing.assert_allclose(draws.var(0), d.variance.numpy(), rtol=0.1)
    np.testing.assert_allclose(-d.log_prob(pf.tensor(draws)).mean().item(), d.entropy().item(), atol=0.1)
    np.testing.assert_allclose(d.mode.numpy(), 2 * matrix.numpy())
    for other in (D.Wishart(5.0, precision_matrix=pf.linalg.inv(matrix)), D.Wishart(5.0, scale_tril=pf.linalg.cholesky(matrix))):
        np.testing.assert_allclose([other.entropy().item(), D.kl_divergence(other, d).item()], [d.entropy().item(), 0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(other.precision_matrix.numpy(), np.linalg.inv(matrix.numpy()), rtol=1e-9)
    assert d.expand((3,)).sample((2,)).shape == (2, 3, 2, 2)


def test_factors_of_correlation_matrices():
    r = np.linspace(-1 + 1e-7, 1 - 1e-7, 100_001)
    rows = np.stack([np.stack([np.ones_like(r), np.zeros_like(r)], -1), np.stack([r, np.sqrt(1 - r * r)], -1)], -2)
    for concentration in (1.0, 2.5):
        d = D.LKJCholesky(2, t(concentration)[0])
        np.testing.assert_allclose(integral(np.exp(d.log_prob(pf.tensor(rows)).numpy()), r), 1, rtol=1e-5)
        draws = d.sample((20_000,)).numpy()[:, 1, 0]
        np.testing.assert_allclose([draws.mean(), draws.var()], [0, 1 / (2 * concentration + 1)], atol=0.02)
    d = D.LKJCholesky(4, t(0.5, 1.5))
    factors = d.sample((2000,))
    products = pf.matmul(factors, factors.mT).numpy()
    np.testing.assert_allclose(np.diagonal(products, axis1=-2, axis2=-1), 1, rtol=1e-9)
    variances = products.var(0)  # of each correlation: 1 / (2 concentration + dim - 1)
    np.testing.assert_allclose(variances[:, [1, 2, 3, 3], [0, 1, 0, 2]], np.array([[1 / 4] * 4, [1 / 6] * 4]), atol=0.03)
    assert d.log_prob(factors).shape == (2000, 2) and d.expand((3, 2)).sample().shape == (3, 2, 4, 4)


def test_transforms_to_what_a_constraint_allows():
    x = pf.tensor([-1.5, 0.25, 2.0])
    c = D.constraints
    for constraint, expected in [(c.real, x), (c.positive, x.exp()), (c.unit_interval, x.sigmoid()), (c.interval(-1.0, 3.0), x.sigmoid() * 4 - 1), (c.greater_than(2.0), x.exp() + 2),
                                 (c.less_than(2.0), 2 - x.exp()), (c.interval(pf.zeros(3), pf.arange(1.0, 4.0)), x.sigmoid() * pf.arange(1.0, 4.0))]:  # fmt: skip
        for registry in (D.biject_to, D.transform_to):
            transform = registry(constraint)
            y = transform(x)
            assert pf.allclose(y, expected) and constraint.check(y).all().item() and pf.allclose(transform.inv(y), x, atol=1e-5)
    assert pf.allclose(D.transform_to(c.simplex)(x), x.softmax(-1)) and D.biject_to(c.simplex)(x).shape == (4,)
    assert D.constraint_registry.biject_to is D.biject_to
    for wrong in (c.boolean, c.nonnegative_integer, c.lower_triangular):
        with pytest.raises(NotImplementedError, match="no transform to"):
            D.transform_to(wrong)
    with pytest.raises(TypeError, match="transform_to.register: not a constraint"):
        D.transform_to.register(int, abs)

    class Even(c.Constraint):
        pass

    registry = D.constraint_registry.ConstraintRegistry("own")
    registry.register(Even)(lambda constraint: D.AffineTransform(0.0, 2.0))
    assert registry(Even())(x).tolist() == [-3.0, 0.5, 4.0]


def test_entropy_of_multinomial():
    probs = pf.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], dtype=pf.float64)
    for n in (0, 1, 4):
        d = pf.distributions.Multinomial(n, probs)
        counts = pf.tensor([[i, j, n - i - j] for i in range(n + 1) for j in range(n + 1 - i)], dtype=pf.float64)
        log_prob = d.log_prob(counts.unsqueeze(1))
        assert pf.allclose(d.entropy(), -(log_prob.exp() * log_prob).sum(0))


# loc 0.5, scale 2: log_prob and cdf at 0.6, 1.7 and 4.9, icdf at 0.1, 0.5 and 0.95, (mean, variance, entropy), computed with PyTorch 2.15 in float64.
GENERALIZED_PARETO = [
    (-0.4, [-0.7234512415, -1.104802449, -3.873542485], [0.04925250629, 0.496459994, 0.9950116937], [0.7063424224, 1.710708584, 3.991455916], [1.928571429, 1.133786848, 1.293147181]),
    (0.0, [-0.7431471806, -1.293147181, -2.893147181], [0.0487705755, 0.4511883639, 0.8891968416], [0.7107210313, 1.886294361, 6.491464547], [2.5, 4.0, 1.693147181]),
    (0.3, [-0.7576645014, -1.410376414, -2.889356791], [0.04841732635, 0.4240386924, 0.8153682555], [0.7140866495, 2.040962756, 10.20970701], [3.357142857, 20.40816327, 1.993147181]),
]  # fmt: skip


@pytest.mark.parametrize("c, log_prob, cdf, icdf, moments", GENERALIZED_PARETO)
def test_generalized_pareto(c, log_prob, cdf, icdf, moments):
    d, x = D.GeneralizedPareto(t(0.5), t(2.0), t(c)), t(0.6, 1.7, 4.9)
    for got, want in [(d.log_prob(x), log_prob), (d.cdf(x), cdf), (d.icdf(t(0.1, 0.5, 0.95)), icdf), (pf.cat([d.mean, d.variance, d.entropy()]), moments), (d.mode, [0.5]),
                      (d.log_cdf(x), np.log(cdf)), (d.log_survival_function(x), np.log1p(-np.array(cdf)))]:  # fmt: skip
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-7)
    assert d.expand((3, 1)).batch_shape == (3, 1) and d.has_rsample
    pf.manual_seed(0)
    assert d.support.check(d.sample((100,))).all().item()


def test_generalized_pareto_has_gradients_and_borders():
    c = pf.tensor([0.0, 0.3, -1.0], dtype=F64, requires_grad=True)
    loc, scale = (pf.tensor(v, dtype=F64, requires_grad=True) for v in (0.5, 2.0))
    D.GeneralizedPareto(loc, scale, c).log_prob(t(1.7, 1.7, 1.7)).sum().backward()
    h = 1e-6
    slopes = [(D.GeneralizedPareto(t(0.5), t(2.0), t(v + h)).log_prob(t(1.7)) - D.GeneralizedPareto(t(0.5), t(2.0), t(v - h)).log_prob(t(1.7))).item() / (2 * h) for v in (0.3, -1.0)]
    np.testing.assert_allclose(c.grad.numpy(), [0.0, *slopes], rtol=1e-6)  # at 0, the exponential density does not depend on it, as in PyTorch
    assert scale.grad.isfinite().item() and loc.grad.isfinite().item()
    d = D.GeneralizedPareto(t(0.0, 0.0), t(1.0, 1.0), t(1.0, 0.6))
    assert d.mean.isnan().tolist() == [True, False] and d.variance.isnan().all().item()
    assert D.GeneralizedPareto(0.0, 1.0, -1.0).log_prob(pf.tensor(1.0)).item() == 0  # U(0, 1) at its upper bound
    draws = D.GeneralizedPareto(loc, scale, 0.2).rsample((5,))
    draws.sum().backward()
    assert scale.grad.isfinite().item() and draws.min().item() >= 0.5
    with pytest.raises(ValueError, match="the parameter scale has invalid values"):
        D.GeneralizedPareto(0.0, -1.0, 0.1)
    with pytest.raises(ValueError, match="not within the support"):
        D.GeneralizedPareto(0.0, 1.0, -1.0).log_prob(pf.tensor(1.5))


# The transform, the shape of its input [0.3, -1.2, 0.7, 0.1, -0.4, 1.1], the shape of the result, the result and log_abs_det_jacobian, computed with PyTorch 2.15 in float64.
OF_SHAPES = {
    "correlations": (D.CorrCholeskyTransform(), (6,), (4, 4), [1.0, 0.0, 0.0, 0.0, 0.2913126125, 0.9566279119, 0.0, 0.0, -0.833654607, 0.3337839554, 0.4400093946, 0.0,
                     0.09966799462, -0.378057101, 0.7367805865, 0.5516280328], -3.601988403),
    "cat": (D.CatTransform([D.ExpTransform(), D.AffineTransform(1.0, 3.0), D.TanhTransform()], -1, [2, 1, 3]), (6,), (6,),
            [1.349858808, 0.3011942119, 3.1, 0.09966799462, -0.3799489623, 0.8004990218], [0.3, -1.2, 1.098612289, -0.009983377643, -0.1559069708, -1.023872278]),
    "stack": (D.StackTransform([D.ExpTransform(), D.SigmoidTransform()], 1), (3, 2), (3, 2), [1.349858808, 0.2314752165, 2.013752707, 0.5249791875, 0.670320046, 0.7502601056],
              [0.3, -1.726564935, 0.7, -1.38879332, -0.4, -1.67467065]),
    "independent": (D.IndependentTransform(D.ExpTransform(), 1), (2, 3), (2, 3), [1.349858808, 0.3011942119, 2.013752707, 1.105170918, 0.670320046, 3.004166024], [-0.2, 0.8]),
    "reshape": (D.ReshapeTransform((6,), (2, 3)), (6,), (2, 3), [0.3, -1.2, 0.7, 0.1, -0.4, 1.1], 0.0),
    "cumulative": (D.CumulativeDistributionTransform(D.Normal(t(0.3), t(1.2))), (6,), (6,), [0.5, 0.1056497737, 0.6305586598, 0.4338161674, 0.2798344636, 0.7475074625],
                   [-1.10126009, -1.88251009, -1.156815646, -1.115148979, -1.271398979, -1.323482312]),
    "composed": (D.ComposeTransform([D.StickBreakingTransform(), D.ReshapeTransform((4,), (2, 2)), D.AffineTransform(0.0, 2.0)]), (2, 3), (2, 2, 2),
                 [0.620644884, 0.1805383374, 0.8010347125, 0.3977820661, 0.5384286989, 0.3668925541, 0.8212937924, 0.2733849547], [-3.332510327, -3.115535213]),
}  # fmt: skip
SIX = (0.3, -1.2, 0.7, 0.1, -0.4, 1.1)


@pytest.mark.parametrize("name", OF_SHAPES)
def test_transforms_of_shapes_and_parts(name):
    transform, shape, shape_after, want, slope = OF_SHAPES[name]
    x = t(*SIX).reshape(shape)
    y = transform(x)
    assert y.shape == shape_after == tuple(transform.forward_shape(shape)) and tuple(transform.inverse_shape(shape_after)) == shape
    np.testing.assert_allclose(y.numpy().ravel(), want, rtol=1e-8)
    np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), rtol=1e-6)
    of = transform.log_abs_det_jacobian(x, y)
    np.testing.assert_allclose(of.numpy().ravel(), slope, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(transform.inv.log_abs_det_jacobian(y, x).numpy(), -of.numpy(), rtol=1e-8, atol=1e-12)
    assert of.ndim == x.ndim - transform.domain.event_dim and (name == "composed" or transform.codomain.check(y).all().item())


def test_transforms_to_matrices():
    x = t(*SIX, 0.2, 0.9, -0.6).reshape(3, 3)
    lower, definite = D.LowerCholeskyTransform(), D.PositiveDefiniteTransform()
    np.testing.assert_allclose(lower(x).numpy().ravel(), [1.349858808, 0.0, 0.0, 0.1, 0.670320046, 0.0, 0.2, 0.9, 0.5488116361], rtol=1e-8)
    np.testing.assert_allclose(definite(x).numpy(), (lower(x) @ lower(x).mT).numpy(), rtol=1e-12)
    for transform in (lower, definite):
        np.testing.assert_allclose(transform.inv(transform(x)).numpy(), pf.tril(x).numpy(), rtol=1e-9)
        assert transform.codomain.check(transform(x)).item() and transform == type(transform)()


def test_distributions_through_transforms_of_shapes():
    """What the dims of one value are follows the transforms; the base distribution gets them. Values computed with PyTorch 2.15 in float64."""
    x = t(*SIX).reshape(2, 3)
    d = D.TransformedDistribution(D.Normal(pf.zeros(2, 3, dtype=F64), 1.0), [D.AffineTransform(1.0, 2.0), D.CorrCholeskyTransform()])
    assert (d.batch_shape, d.event_shape, d.sample((5,)).shape) == ((2,), (3, 3), (5, 2, 3, 3))
    np.testing.assert_allclose(d.log_prob(D.CorrCholeskyTransform()(x)).numpy(), [-3.189468228, -3.916041029], rtol=1e-7)
    d = D.TransformedDistribution(D.Normal(pf.zeros(4, 2, 3, dtype=F64), 1.0), [D.ExpTransform(), D.ReshapeTransform((2, 3), (6,))])
    assert (d.batch_shape, d.event_shape) == ((4,), (6,)) and d.expand((5, 4)).sample().shape == (5, 4, 6)
    np.testing.assert_allclose(d.log_prob(x.exp().reshape(6)).numpy(), [-7.813631199] * 4, rtol=1e-8)
    wide = D.TransformedDistribution(D.Normal(t(0.0), t(1.0)), D.AffineTransform(pf.zeros(3, dtype=F64), 2.0))
    assert wide.batch_shape == (3,) and wide.sample().unique().numel() == 3  # three draws, not one for all


def test_a_transform_may_keep_its_last_result():
    x = t(0.3, 40.0)
    kept = D.SigmoidTransform(cache_size=1)
    assert kept.inv(kept(x)) is x and D.SigmoidTransform().inv(D.SigmoidTransform()(x)) is not x
    again = kept.with_cache(0)
    assert again == kept and again.inv(again(x)) is not x and D.ExpTransform().with_cache().inv.event_dim == 0
    both = D.ComposeTransform([D.ExpTransform(), D.SigmoidTransform()], cache_size=1)
    assert both.inv(both(x)) is x and both.with_cache(0).inv(both(x)) is not x and all(p.inv(p(x)) is x for p in both.parts)
    with pytest.raises(ValueError, match="ExpTransform: cache_size is not 0 or 1; got 2"):
        D.ExpTransform(2)
    with pytest.raises(ValueError, match="StickBreakingTransform|ReshapeTransform: values and results have different numbers of dims"):
        D.ReshapeTransform((2, 3), (6,)).event_dim  # noqa: B018


def test_constraints_of_matrices_and_parts():
    c = D.constraints
    m = pf.tensor([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [3.0, -1.0]], [[1.0, 1.0], [1.0, 1.0]]], dtype=F64)
    for constraint, want in [(c.square, [True] * 4), (c.symmetric, [True, True, False, True]), (c.lower_triangular, [False, False, True, False]), (c.lower_cholesky, [False] * 4)]:
        assert constraint.check(m).tolist() == want and constraint.event_dim == 2
    assert c.positive_definite.check(m).tolist() == [False, True, False, False] and c.positive_semidefinite.check(m[:3]).tolist() == [False, True, False]
    assert c.square.check(m[:, :1]).tolist() == [False] * 4 and c.symmetric.check(m[:, :1]).tolist() == [False] * 4
    x = t(-1.0, 2.0, 0.5)
    assert c.cat([c.positive, c.unit_interval], 0, [2, 1]).check(x).tolist() == [False, True, True]
    assert c.stack([c.positive, c.positive, c.unit_interval]).check(x).tolist() == [False, True, True] and c.stack([c.real_vector]).event_dim == 1
    for registry in (D.biject_to, D.transform_to):
        parts = registry(c.cat([c.positive, c.unit_interval], 0, [2, 1]))
        np.testing.assert_allclose(parts(x).numpy(), [*np.exp([-1.0, 2.0]), 1 / (1 + math.exp(-0.5))])
        assert registry(c.stack([c.real, c.positive], -1))(t(3.0, 0.0)).tolist() == [3.0, 1.0] and registry(c.real_vector)(x).tolist() == x.tolist()
        assert c.corr_cholesky.check(registry(c.corr_cholesky)(x)).item()
    assert D.transform_to(c.lower_cholesky) == D.LowerCholeskyTransform() and D.transform_to(c.positive_semidefinite) == D.PositiveDefiniteTransform()


def test_triangles_as_vectors():
    from pyflame.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

    m = pf.arange(16.0).reshape(4, 4)
    for diag, want in [(0, [0, 4, 5, 8, 9, 10, 12, 13, 14, 15]), (-1, [4, 8, 9, 12, 13, 14]), (-2, [8, 12, 13]), (1, [0, 1, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15])]:
        assert tril_matrix_to_vec(m, diag).tolist() == want
        assert pf.equal(vec_to_tril_matrix(tril_matrix_to_vec(m, diag), diag), m.tril(diag))
    with pytest.raises(ValueError, match="vec_to_tril_matrix: no square matrix has so many numbers there"):
        vec_to_tril_matrix(pf.ones(4))
    with pytest.raises(ValueError, match="tril_matrix_to_vec: no such diagonal; got diag 4"):
        tril_matrix_to_vec(m, 4)


@pytest.mark.parametrize("wrong, text", [
    (lambda: D.ReshapeTransform((2, 3), (5,)), "ReshapeTransform: different numbers of elements"),
    (lambda: D.ReshapeTransform((2, 3), (6,))(pf.ones(3, 2)), "ReshapeTransform: the last dims do not fit; got shape .3, 2.; expected .2, 3. at its end"),
    (lambda: D.CatTransform([abs]), "CatTransform: not transforms"),
    (lambda: D.CatTransform([D.ExpTransform()], lengths=[1, 2]), "CatTransform: lengths and transforms differ in number; got 2 and 1"),
    (lambda: D.CatTransform([D.ExpTransform()])(pf.ones(2)), "CatTransform: the tensor does not fit; got shape .2,.; expected 1 as the size of dim 0"),
    (lambda: D.StackTransform([D.ExpTransform()], 1)(pf.ones(1)), "StackTransform: the tensor does not fit"),
    (lambda: D.IndependentTransform(D.ExpTransform(), 2)(pf.ones(1)), "IndependentTransform: too few dims; got shape .1,.; expected at least 2"),
    (lambda: D.CorrCholeskyTransform().forward_shape((4,)), "CorrCholeskyTransform: no matrix has so many numbers below its diagonal"),
    (lambda: D.CorrCholeskyTransform().inverse_shape((4, 3)), "CorrCholeskyTransform: not square matrices"),
    (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.CorrCholeskyTransform()), "TransformedDistribution: the base distribution has too few dims"),
    (lambda: D.ComposeTransform([abs]), "ComposeTransform: not transforms"),
    (lambda: D.IndependentTransform(abs, 1), "IndependentTransform: not a transform"),
    (lambda: D.IndependentTransform(D.ExpTransform(), -1), "IndependentTransform: a negative number of dims; got -1"),
    (lambda: D.AffineTransform(0.0, 1.0, -1), "independent: a negative number of dims; got -1"),
    (lambda: D.PowerTransform(0), "PowerTransform: the exponent has no inverse; got 0"),
    (lambda: D.StickBreakingTransform()(pf.tensor(1.0)), "StickBreakingTransform: not vectors"),
    (lambda: D.StickBreakingTransform().inv(pf.tensor(1.0)), "StickBreakingTransform: not vectors"),
    (lambda: D.CorrCholeskyTransform()(pf.ones(2)), "CorrCholeskyTransform: no matrix has so many numbers below its diagonal; got shape .2,."),
    (lambda: D.CorrCholeskyTransform().inv(pf.ones(2, 3)), "CorrCholeskyTransform: not square matrices; got shape .2, 3."),
    (lambda: D.LowerCholeskyTransform()(pf.ones(2, 3)), "LowerCholeskyTransform: not square matrices; got shape .2, 3."),
    (lambda: D.LowerCholeskyTransform().inv(pf.ones(3)), "LowerCholeskyTransform: not square matrices; got shape .3,."),
    (lambda: D.PositiveDefiniteTransform()(pf.ones(2, 3)), "PositiveDefiniteTransform: not square matrices; got shape .2, 3."),
    (lambda: D.CumulativeDistributionTransform(3), "CumulativeDistributionTransform: not a distribution; got 3"),
    (lambda: D.constraints.independent(3, 1), "independent: not a constraint; got 3"),
    (lambda: D.constraints.cat([1]), "Cat: not constraints"), (lambda: D.constraints.cat([D.constraints.real], lengths=[]), "Cat: lengths and constraints differ in number"),
])  # fmt: skip
def test_errors_of_transforms(wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong()


@pytest.mark.parametrize("wrong, error, text", [
    (lambda: D.Categorical([0.5, 0.5]), ValueError, "Categorical: probs is not a tensor; got list"),
    (lambda: D.Dirichlet([1.0, 1.0]), ValueError, "Dirichlet: concentration is not a tensor; got list"),
    (lambda: D.MultivariateNormal([0.0], pf.eye(1)), ValueError, "MultivariateNormal: loc is not a tensor; got list"),
    (lambda: D.LowRankMultivariateNormal(pf.ones(2), [1.0], pf.ones(2)), ValueError, "LowRankMultivariateNormal: cov_factor is not a tensor; got list"),
    (lambda: D.Wishart(3.0, [1.0]), ValueError, "Wishart: covariance_matrix is not a tensor; got list"),
    (lambda: D.ContinuousBernoulli(0.5, lims=0.1), ValueError, "ContinuousBernoulli: lims are not two numbers; got 0.1"),
    (lambda: D.LKJCholesky(2.5), TypeError, "LKJCholesky: dim is not a size; got 2.5"),
    (lambda: D.constraints.independent(D.constraints.real, 1.5), TypeError, "independent: not a number of dims; got 1.5"),
    (lambda: D.constraints.Constraint().check(pf.ones(1)), NotImplementedError, "Constraint: check is not implemented"),
    (lambda: D.Transform()(pf.ones(1)), NotImplementedError, "Transform: _call is not implemented"),
    (lambda: D.Transform().inv(pf.ones(1)), NotImplementedError, "Transform: _inverse is not implemented"),
    (lambda: D.TransformedDistribution(3, []), ValueError, "TransformedDistribution: not a distribution; got 3"),
    (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), 3), ValueError, "TransformedDistribution: not transforms; got 3"),
    (lambda: D.MixtureSameFamily(D.Categorical(pf.ones(2)), 3), ValueError, "MixtureSameFamily: not a distribution of components; got int"),
    (lambda: D.MixtureSameFamily(D.Categorical(pf.ones(2)), D.Normal(pf.zeros(3), 1.0)), ValueError, "MixtureSameFamily: the components do not fit; got batch_shape .3,."),
    (lambda: D.MixtureSameFamily(D.Categorical(pf.ones(2)), D.Normal(0.0, 1.0)), ValueError, "MixtureSameFamily: the components do not fit; got batch_shape ..;"),
    (lambda: D.MixtureSameFamily(D.Categorical(pf.ones(3, 2)), D.Normal(pf.zeros(4, 2), 1.0)), ValueError, "MixtureSameFamily: the components do not fit"),
    (lambda: D.register_kl(D.Normal, int), TypeError, "register_kl: type_q is not a class of distributions"),
])  # fmt: skip
def test_errors_of_what_is_no_distribution_or_tensor(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()


def test_a_mixture_broadcasts_its_weights_and_its_components():
    many, one = pf.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), pf.tensor([0.0, 1.0])
    for weights, means in [(pf.ones(2), many), (pf.ones(3, 2), one)]:
        mixture = D.MixtureSameFamily(D.Categorical(weights), D.Normal(means, 1e-3))
        assert mixture.batch_shape == (3,) and mixture.mean.shape == (3,) and mixture.log_prob(pf.zeros(3)).shape == (3,)
        draws = mixture.sample((50,))
        assert draws.shape == (50, 3) and ((draws - means.expand(3, 2).mean(-1)).abs() < 0.6).all()


def test_an_affine_transform_by_0_has_no_slope():
    slope = D.AffineTransform(1.0, 0).log_abs_det_jacobian(pf.ones(2), pf.ones(2))
    assert slope.tolist() == [-math.inf] * 2 == D.AffineTransform(1.0, pf.tensor(0.0)).log_abs_det_jacobian(pf.ones(2), pf.ones(2)).tolist()


def test_probabilities_that_are_all_negative():
    for make in (pf.distributions.Categorical, pf.distributions.OneHotCategorical, lambda p: pf.distributions.Multinomial(2, p)):
        with pytest.raises(ValueError, match="Categorical: the parameter probs has invalid values; got a negative sum"):
            make(pf.tensor([[0.5, 0.5], [-1.0, -2.0]]))
    assert pf.distributions.Categorical(pf.tensor([-1.0, -3.0]), validate_args=False).probs.tolist() == [0.25, 0.75]


def test_places_that_have_no_constraint():
    c = pf.distributions.constraints
    stack, cat = c.stack([c.real, c.positive], 0), c.cat([c.real, c.positive], 0, [1, 2])
    assert stack.check(pf.tensor([[-1.0], [-1.0]])).tolist() == [[True], [False]] and cat.check(pf.tensor([-1.0, 1.0, -1.0])).tolist() == [True, True, False]
    for check, text in (
        (lambda: stack.check(pf.ones(3, 2)), "stack: the value does not fit the constraints; got size 3 in dim 0"), (lambda: stack.check(pf.ones(1, 2)), "stack: .*; got size 1"),
        (lambda: cat.check(pf.ones(4)), "cat: .*; got size 4 .*; expected 3, the sum of lengths"), (lambda: cat.check(pf.ones(2)), "cat: .*; got size 2"),
    ):
        with pytest.raises(ValueError, match=text):
            check()


def test_fractional_counts_of_a_multinomial():
    """As in PyTorch, whose value this is: only their sum is checked."""
    assert abs(pf.distributions.Multinomial(3, pf.tensor([0.5, 0.5])).log_prob(pf.tensor([1.5, 1.5])).item() + 0.8570) < 1e-4


def test_sigmoids_of_float64_near_zero():
    sigmoid = D.transforms.SigmoidTransform()
    assert sigmoid.inv(t(0.0)).item() == pytest.approx(math.log(2.0**-1022)) and sigmoid(t(-800.0)).item() == 2.0**-1022
    assert sigmoid.inv(pf.tensor([0.0])).item() == pytest.approx(math.log(2.0**-126))
    small = D.RelaxedBernoulli(t(0.7), t(0.3))
    assert small.log_prob(t(1e-300)).item() > small.log_prob(t(1e-60)).item()


def test_counts_are_finite():
    for d in (D.Poisson(t(2.0)), D.Geometric(t(0.3)), D.NegativeBinomial(5, t(0.3))):
        with pytest.raises(ValueError, match="within the support"):
            d.log_prob(t(math.inf))


def test_shapes_of_the_parameters_of_classes():
    for d in (D.OneHotCategorical(logits=pf.zeros(3, 5)), D.OneHotCategoricalStraightThrough(pf.ones(3, 5)), D.Multinomial(4, pf.ones(3, 5))):
        assert d.param_shape == (3, 5)


def test_the_degrees_of_freedom_of_wishart_have_a_constraint():
    assert D.Wishart.arg_constraints["df"].check(t(1.0, 0.0)).tolist() == [True, False]


def test_cdf_at_the_border_of_a_support():
    assert D.LogNormal(t(0.3), t(0.7)).cdf(t(0.0)).item() == D.InverseGamma(t(3.0), t(2.0)).cdf(t(0.0)).item() == 0
    with pytest.raises(ValueError, match="within the support"):
        D.LogNormal(t(0.3), t(0.7)).cdf(t(-1.0))


@pytest.mark.parametrize("make", [lambda m: D.MultivariateNormal(t(0.0, 1.0), m), lambda m: D.Wishart(t(4.0).squeeze(), m)])
def test_gradients_of_the_precision_matrix_are_symmetric(make):
    m = pf.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=F64, requires_grad=True)
    precision = make(m).precision_matrix
    np.testing.assert_allclose(precision.detach().numpy(), np.linalg.inv(m.detach().numpy()), rtol=1e-12)
    precision[0, 1].backward()
    np.testing.assert_allclose(m.grad.numpy(), m.grad.numpy().T, rtol=1e-12)
