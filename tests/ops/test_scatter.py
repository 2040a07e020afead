"""Sums by index and writes by index, whose kernels differ by the shape and by what is added. On the device of PYFLAME_TEST_DEVICE."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="PYFLAME_TEST_DEVICE names no GPU; the CPU adds one source after the other")


def added(x, dim, index, src):
    return pf.tensor(x).to(DEVICE).scatter_add(dim, pf.tensor(index).to(DEVICE), pf.tensor(src).to(DEVICE)).cpu().numpy()


def of_many_sizes(dtype, n=20000, seed=4):
    """Numbers from 2^-14 to 2^13 with both signs, and indices of which some are frequent."""
    rng = np.random.default_rng(seed)
    src = (rng.standard_normal(n) * 2.0 ** rng.integers(-14, 13, n)).astype(dtype)
    return src, np.where(rng.random(n) < 0.3, 7, rng.integers(0, 5000, n))


def sums_of(src, index, size):
    """The sums, and those of the absolute values, in float64."""
    sums, sizes = np.zeros(size), np.zeros(size)
    np.add.at(sums, index, src.astype(np.float64))
    np.add.at(sizes, index, np.abs(src.astype(np.float64)))
    return sums, sizes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [5000, 40])
def test_sums_of_numbers_of_many_sizes(dtype, size):
    src, index = of_many_sizes(dtype)
    index = index % size
    want, sizes = sums_of(src, index, size)
    got = added(np.zeros(size, dtype), 0, index, src).astype(np.float64)
    assert (np.abs(got - want) <= 1e3 * np.finfo(dtype).eps * sizes).all()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_along_rows_and_columns(dim, dtype):
    rng = np.random.default_rng(5)
    src, index = rng.integers(-9, 9, (300, 120)).astype(dtype), rng.integers(0, 70, (300, 120))
    shape = (70, 120) if dim == 0 else (300, 70)
    want, at = np.zeros(shape), np.indices(src.shape)
    at[dim] = index
    np.add.at(want, tuple(at), src)
    np.testing.assert_array_equal(added(np.zeros(shape, dtype), dim, index, src), want.astype(dtype))


@pytest.mark.parametrize("size", [3000, 8])
def test_sums_of_numbers_that_are_not_finite(size):
    """Infinite numbers, NaN, numbers whose sum overflows, subnormal ones and zeros, each at its own destination among plain numbers."""
    big, tiny = np.finfo(np.float32).max, np.float32(1e-45)
    groups = [[np.inf, 1.0], [-np.inf, -np.inf, 2.0], [np.inf, -np.inf], [np.nan, 1.0], [big, big], [big, -big, 1.0], [tiny, tiny, tiny], [-0.0, 0.0]]
    src = np.array([v for g in groups for v in g], np.float32)
    index = np.array([i for i, g in enumerate(groups) for _ in g])
    src, index = np.concatenate([src] + [np.zeros(4, np.float32)] * 400), np.concatenate([index] + [np.array([0, 4, 6, 7])] * 400)
    got = added(np.zeros(size, np.float32), 0, index, src)
    want = np.array([np.inf, -np.inf, np.nan, np.nan, np.inf, got[5], 3 * tiny, 0.0], np.float32)
    np.testing.assert_array_equal(got[:8], want)
    assert got[5] in (0.0, 1.0)  # 1 is nothing beside the largest number
    assert not got[8:].any()


@on_gpu
def test_sums_on_a_gpu_do_not_depend_on_the_order_of_sources():
    src, index = of_many_sizes(np.float32)
    order = np.random.default_rng(6).permutation(len(src))
    for size in (5000, 40):
        a, b = (added(np.zeros(size, np.float32), 0, i % size, s) for s, i in ((src, index), (src[order], index[order])))
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("size, dim", [(64, 1), (1000, 0), (2000, 0), (9000, 0), (64, 0)])
def test_the_last_source_of_many_lines_is_written(size, dim):
    """Short and long lines, along rows and across them."""
    rng = np.random.default_rng(7)
    shape = (600, 90)
    src, index = rng.standard_normal(shape).astype(np.float32), rng.integers(0, size, shape)
    x = np.zeros((size, 90) if dim == 0 else (600, size), np.float32)
    want = x.copy()
    for i in range(shape[dim]):
        line = np.take(index, i, dim)
        if dim == 0:
            want[line, np.arange(90)] = src[i]
        else:
            want[np.arange(600), line] = src[:, i]
    got = pf.tensor(x).to(DEVICE).scatter(dim, pf.tensor(index).to(DEVICE), pf.tensor(src).to(DEVICE))
    np.testing.assert_array_equal(got.cpu().numpy(), want)
