"""Distributions of random numbers: moments of large samples, which a seed fixes, and the arguments."""
import math

import numpy as np
import pytest

import pyflame as pf

N = 200_000


def sample(draw, **options):
    pf.manual_seed(1)
    return draw(pf.empty(N, **options)).double().numpy()


def test_distributions():
    x = sample(lambda t: t.exponential_(2.0))
    assert x.min() >= 0 and abs(x.mean() - 0.5) < 0.01 and abs(x.std() - 0.5) < 0.01
    x = sample(lambda t: t.geometric_(0.3))
    assert x.min() == 1 and np.all(x == np.round(x)) and abs(x.mean() - 1 / 0.3) < 0.03
    x = sample(lambda t: t.cauchy_(1.0, 2.0))
    assert abs(np.median(x) - 1) < 0.05 and abs(np.quantile(x, 0.75) - 3) < 0.1
    x = np.log(sample(lambda t: t.log_normal_(0.5, 0.25)))
    assert abs(x.mean() - 0.5) < 0.005 and abs(x.std() - 0.25) < 0.005
    x = sample(lambda t: t.uniform_(-1, 3))
    assert x.min() >= -1 and x.max() < 3 and abs(x.mean() - 1) < 0.01
    x = sample(lambda t: t.normal_(1, 2))
    assert abs(x.mean() - 1) < 0.02 and abs(x.std() - 2) < 0.02
    x = sample(lambda t: t.random_(3, 7), dtype=pf.int64)
    assert sorted(set(x)) == [3, 4, 5, 6]
    assert sample(lambda t: t.random_(), dtype=pf.uint8).max() == 255
    x = sample(lambda t: t.bernoulli_(0.25))
    assert set(x) == {0, 1} and abs(x.mean() - 0.25) < 0.005
    rates = pf.tensor([0.0, 0.5, 4.0, 100.0], dtype=pf.float64).repeat_interleave(5000)
    counts = pf.poisson(rates).reshape(4, -1).numpy()
    np.testing.assert_allclose(counts.mean(1), [0, 0.5, 4, 100], atol=0.6)
    np.testing.assert_allclose(counts.var(1), [0, 0.5, 4, 100], rtol=0.1, atol=1e-9)
    hits = pf.binomial(pf.full((N,), 10.0), pf.full((N,), 0.3)).numpy()
    assert hits.min() >= 0 and hits.max() <= 10 and abs(hits.mean() - 3) < 0.02 and abs(hits.var() - 2.1) < 0.05


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_normal_numbers_are_pairs_of_uniform_ones(dtype):
    """Box and Muller's formula, at every place in a block."""
    pf.manual_seed(5)
    x = pf.randn(100_003, dtype=dtype).double().numpy()
    assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02 and abs((x**4).mean() - 3) < 0.15
    pairs = x[:100_002].reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.02
    assert abs(np.mean(np.sum(pairs**2, 1) > 2 * math.log(2)) - 0.5) < 0.01
    pf.manual_seed(5)
    np.testing.assert_array_equal(pf.randn(4099, dtype=dtype).double().numpy(), x[:4099])


def test_normal_of_tensors():
    mean, std = pf.tensor([[0.0], [10.0]]), pf.full((2, N), 0.5)
    x = pf.normal(mean, std).numpy()
    assert x.shape == (2, N) and abs(x[1].mean() - 10) < 0.01 and abs(x[0].std() - 0.5) < 0.01
    assert pf.normal(2.0, std).shape == std.shape and pf.normal(mean, 2.0).shape == mean.shape
    assert tuple(pf.normal(0.0, 1.0, (2, 3), dtype=pf.float64).shape) == (2, 3)


def test_generators():
    """The same seed gives the same numbers, and the global generator goes on as if nothing had been drawn."""
    calls = [lambda g: pf.rand(5, generator=g), lambda g: pf.randn(5, generator=g), lambda g: pf.randint(9, (5,), generator=g), lambda g: pf.randperm(9, generator=g),
             lambda g: pf.bernoulli(pf.full((5,), 0.5), generator=g), lambda g: pf.normal(0.0, 1.0, (5,), generator=g), lambda g: pf.empty(5).exponential_(generator=g),
             lambda g: pf.poisson(pf.ones(5), generator=g), lambda g: pf.randint_like(pf.zeros(5), 9, generator=g)]
    for call in calls:
        before = pf.get_rng_state()
        first, again = (call(pf.Generator().manual_seed(3)) for _ in range(2))
        assert pf.equal(first, again) and pf.get_rng_state() == before
    g = pf.Generator().manual_seed(3)
    assert not pf.equal(pf.rand(5, generator=g), pf.rand(5, generator=g))
    before = pf.get_rng_state()
    pf.rand(5, generator=pf.default_generator)
    assert pf.get_rng_state() != before


def test_integers_of_any_range():
    for low, high in ((0, 1), (-3, 4), (0, 1 << 40), (-(2**63), 2**63 - 1), (5, 2**32 + 5)):
        x = pf.randint(low, high, (1000,)).numpy()
        assert low <= x.min() and x.max() < high


@pytest.mark.parametrize("call, kind, text", [
    (lambda: pf.empty(2).exponential_(0), ValueError, "exponential_: the rate is not positive"),
    (lambda: pf.empty(2).geometric_(1.0), ValueError, "geometric_: the probability is out of range"),
    (lambda: pf.empty(2).cauchy_(0, 0), ValueError, "cauchy_: sigma is not positive"),
    (lambda: pf.empty(2).log_normal_(0, 0), ValueError, "log_normal_: std is not positive"),
    (lambda: pf.empty(2).uniform_(2, 1), ValueError, "uniform_: empty range"),
    (lambda: pf.empty(2).normal_(0, -1), ValueError, "normal_: negative standard deviation"),
    (lambda: pf.empty(2).random_(3, 3), ValueError, "random_: empty range"),
    (lambda: pf.empty(2).bernoulli_(1.5), ValueError, "bernoulli: the probability is out of range"),
    (lambda: pf.empty(2, dtype=pf.int64).uniform_(), TypeError, "uniform_: not a floating dtype"),
    (lambda: pf.normal(0.0, 1.0), TypeError, "normal: no tensor and no size"),
    (lambda: pf.normal(pf.ones(2), -1.0), ValueError, "normal: negative standard deviation"),
    (lambda: pf.poisson(-pf.ones(2)), RuntimeError, "poisson: a negative rate"),
    (lambda: pf.binomial(pf.ones(2), pf.ones(2).double()), RuntimeError, "binomial: two dtypes"),
    (lambda: pf.rand(2, generator=3), TypeError, "generator: not a Generator"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("call", [lambda: pf.randint(0, 300, (4,), dtype=pf.uint8), lambda: pf.randint(0, 2**40, (4,), dtype=pf.int32), lambda: pf.empty(4, dtype=pf.int8).random_(0, 300)])
def test_a_range_that_the_dtype_cannot_hold(call):
    with pytest.raises(ValueError, match="(randint|random_): the number does not fit the dtype; got"):
        call()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 64, 129, 16383, 16385, 32768, 100001])
def test_permutations_are_those_of_the_definition(n):
    """Sorted by random keys (base/philox.h), as the reference does it in plain loops, for sizes at the ends of parts and buckets."""
    found = []
    for device in ("cpu", "reference"):
        pf.manual_seed(n)
        found.append(pf.randperm(n, device=device).tolist())
    assert found[0] == found[1] and sorted(found[0]) == list(range(n))
