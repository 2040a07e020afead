"""Windows that read slices of one tensor run a known program, whichever of the slices coincide."""
import os

import numpy as np
import pytest

import pyflame as pf


@pytest.fixture(autouse=True)
def empty_cache():
    pf.clear_program_cache()
    yield
    pf.clear_program_cache()


def dataset(rows=12, cols=6):
    values = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols) / 8
    return pf.tensor(values), values


def misses_in(step, steps):
    before = pf.program_cache_stats()["misses"]
    for k in range(steps):
        step(k)
    return pf.program_cache_stats()["misses"] - before


def test_slices_that_coincide_at_times_need_few_plans():
    data, values = dataset()
    rng = np.random.default_rng(0)
    starts = [rng.integers(0, 9, 8) for _ in range(60)]

    def step(k):
        got = pf.stack([data[int(i):int(i) + 3] for i in starts[k]]).sin().numpy()
        np.testing.assert_allclose(got, np.sin(np.stack([values[i:i + 3] for i in starts[k]])), rtol=1e-5, atol=1e-6)

    misses_in(step, 20)
    assert misses_in(step, 60) <= 2  # of the steps that come after, none is new but for a rare coincidence


def test_inputs_and_targets_that_overlap_need_few_plans():
    data, values = dataset()
    rng = np.random.default_rng(1)
    starts = [rng.integers(0, 8, 6) for _ in range(60)]

    def step(k):
        x = pf.stack([data[int(i):int(i) + 3] for i in starts[k]])
        y = pf.stack([data[int(i) + 1:int(i) + 4] for i in starts[k]])
        got = ((x - 2 * y) ** 2).sum().item()
        want = sum(float(((values[i:i + 3] - 2 * values[i + 1:i + 4]) ** 2).sum()) for i in starts[k])
        assert got == pytest.approx(want, rel=1e-5)

    misses_in(step, 20)
    assert misses_in(step, 60) <= 2


def test_a_write_to_one_of_the_slices_is_seen_by_those_that_overlap():
    data, values = dataset()
    values = values.copy()
    rng = np.random.default_rng(2)
    for _ in range(60):
        i, j, k = (int(n) for n in rng.integers(0, 9, 3))
        first = data[i:i + 3] * 2
        data[j:j + 3].add_(1)
        second = data[i:i + 3] - data[k:k + 3]
        third = data[k:k + 3] + data[j:j + 3]
        want_first = values[i:i + 3] * 2
        values[j:j + 3] += 1
        np.testing.assert_allclose(first.numpy(), want_first)
        np.testing.assert_allclose(second.numpy(), values[i:i + 3] - values[k:k + 3])
        np.testing.assert_allclose(third.numpy(), values[k:k + 3] + values[j:j + 3])
    np.testing.assert_allclose(data.numpy(), values)


def test_the_memory_of_a_tensor_that_ends_is_not_taken_too_early():
    rng = np.random.default_rng(3)
    for _ in range(40):
        i, j, k = (int(n) for n in rng.integers(0, 3, 3))
        data, values = dataset()
        data = data + 0
        data.numpy()
        out = (data[3 * i:3 * i + 3].exp() + data[3 * j:3 * j + 3]) * data[3 * k:3 * k + 3]
        del data
        want = (np.exp(values[3 * i:3 * i + 3]) + values[3 * j:3 * j + 3]) * values[3 * k:3 * k + 3]
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


@pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="windows of one op keep nothing")
def test_values_kept_under_inference_follow_the_slices():
    weight = pf.nn.Linear(16, 8, bias=False).weight
    values = np.array(weight.tolist(), np.float32)
    x = pf.ones(4, 16)
    rng = np.random.default_rng(4)
    fired = pf.rewrites.fired()["kept_values"]
    with pf.no_grad():
        for n in range(80):
            starts = [int(m) for m in rng.integers(0, 2, 3)]
            got = (x @ pf.cat([weight[i:i + 3] for i in starts]).t()).numpy()
            want = np.ones((4, 16), np.float32) @ np.concatenate([values[i:i + 3] for i in starts]).T
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            if n == 50:
                weight.mul_(0.5)
                values *= 0.5
    assert pf.rewrites.fired()["kept_values"] > fired
