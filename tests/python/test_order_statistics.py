"""Statistics by sorting, searches and histograms against NumPy; scatter_reduce and its gradients; sampling."""
import math

import numpy as np
import pytest

import pyflame as pf

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 9)).astype(np.float32)
HOLES = np.where(RNG.random((6, 9)) < 0.3, np.nan, X).astype(np.float32)
INTS = RNG.integers(0, 5, (6, 9))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_medians_and_kth_values(dim):
    for x in (X, INTS):
        ordered = np.sort(x, dim)
        for keepdim in (False, True):
            values, indices = pf.median(pf.tensor(x), dim, keepdim)
            want = np.take(ordered, [(x.shape[dim] - 1) // 2], dim)
            np.testing.assert_array_equal(values.numpy(), want if keepdim else want.squeeze(dim))
            at = indices.numpy() if keepdim else np.expand_dims(indices.numpy(), dim)
            np.testing.assert_array_equal(np.take_along_axis(x, at, dim), want)
        for k in (1, 2, 5):
            np.testing.assert_array_equal(pf.kthvalue(pf.tensor(x), k, dim).values.numpy(), np.take(ordered, k - 1, dim))
    assert np.isnan(pf.median(pf.tensor(HOLES)).item())
    flat = np.sort(HOLES[~np.isnan(HOLES)])
    assert pf.nanmedian(pf.tensor(HOLES)).item() == flat[(len(flat) - 1) // 2]
    values = pf.nanmedian(pf.tensor(HOLES), dim).values.numpy()
    for got, line in zip(values, np.moveaxis(HOLES, dim, -1)):
        line = np.sort(line[~np.isnan(line)])
        assert got == line[(len(line) - 1) // 2]


def test_gradient_of_the_median_of_all_is_shared():
    nan = np.nan
    for function, values, want in ((pf.median, [3.0, 1, 1, 2], [0, 0.5, 0.5, 0]), (pf.median, [nan, 1, nan, 2], [0.5, 0, 0.5, 0]), (pf.nanmedian, [nan, 1, 1, 2], [0, 0.5, 0.5, 0]),
                                   (pf.nanmedian, [nan, nan], [0.5, 0.5]), (pf.median, [-np.inf, -np.inf, 1], [0.5, 0.5, 0]), (pf.median, [], [])):
        x = pf.tensor(values, dtype=pf.float32, requires_grad=True)
        function(x).backward()
        assert x.grad.tolist() == want
    assert pf.func.grad(pf.median)(pf.tensor([5.0, 4, 4])).tolist() == [0, 0.5, 0.5]


def test_mode():
    values, indices = pf.mode(pf.tensor(INTS), 1)
    for row, value, at in zip(INTS, values.tolist(), indices.tolist()):
        assert value == np.bincount(row).argmax() and at == np.flatnonzero(row == value)[-1]


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_quantiles(dim, interpolation):
    for q in (0.3, np.array([0.0, 0.25, 0.9, 1.0], np.float32)):
        for keepdim in (False, True):
            given = pf.tensor(q) if isinstance(q, np.ndarray) else q
            got = pf.quantile(pf.tensor(X), given, dim, keepdim, interpolation=interpolation)
            np.testing.assert_allclose(got.numpy(), np.quantile(X, q, axis=dim, keepdims=keepdim, method=interpolation), rtol=1e-5, atol=1e-6)
            got = pf.nanquantile(pf.tensor(HOLES), given, dim, keepdim, interpolation=interpolation)
            np.testing.assert_allclose(got.numpy(), np.nanquantile(HOLES, q, axis=dim, keepdims=keepdim, method=interpolation), rtol=1e-5, atol=1e-6)
    assert pf.quantile(pf.tensor(HOLES), 0.5).isnan().item()
    x = pf.tensor(X, requires_grad=True)
    pf.quantile(x, 0.5, 1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), (X == np.median(X, 1, keepdims=True)).astype(np.float32))


def test_search():
    edges = np.array([-1.0, 0.0, 0.0, 2.0], np.float32)
    for right in (False, True):
        side = "right" if right else "left"
        np.testing.assert_array_equal(pf.bucketize(pf.tensor(X), pf.tensor(edges), right=right).numpy(), np.searchsorted(edges, X, side))
        np.testing.assert_array_equal(pf.searchsorted(pf.tensor(edges), pf.tensor(X), side=side).numpy(), np.searchsorted(edges, X, side))
    assert pf.searchsorted(pf.tensor(edges), 0.0).item() == 1 and pf.searchsorted(pf.arange(4), 1.5).item() == 2
    assert pf.bucketize(pf.tensor(X), pf.tensor(edges), out_int32=True).dtype == pf.int32
    shuffled = pf.tensor([2.0, -1.0, 0.0])
    assert pf.searchsorted(shuffled, pf.tensor([1.0]), sorter=pf.argsort(shuffled)).tolist() == [2]
    nan = pf.tensor([float("nan")])
    assert pf.searchsorted(pf.tensor([0.0, 1.0]), nan).tolist() == [2]


@pytest.mark.parametrize("n", [0, 1, 17, 1000, 70000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_long_rows_are_sorted_stably(n, dtype):
    """Rows of all lengths have their own ways: keys of 32, 64 and 128 bits, halves that are merged."""
    x = RNG.integers(0, 2 if dtype == "bool" else 50, n).astype(dtype)
    for descending in (False, True):
        values, indices = pf.sort(pf.tensor(x), descending=descending)
        wide = x.astype(np.float64)
        order = np.argsort(-wide if descending else wide, kind="stable")
        np.testing.assert_array_equal(indices.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), x[order])
        if dtype != "bool" and n >= 17:
            values, indices = pf.topk(pf.tensor(x), 3, largest=descending)
            np.testing.assert_array_equal(indices.numpy(), order[:3])
    if n:
        assert pf.argmax(pf.tensor(x).to(pf.int64)).item() == x.argmax() and pf.argmin(pf.tensor(x).to(pf.int64)).item() == x.argmin()
    np.testing.assert_array_equal(pf.unique(pf.tensor(x)).numpy(), np.unique(x))


def test_sorting_of_special_numbers():
    x = np.array([0.0, np.nan, -0.0, np.inf, -np.inf, -1.0, np.nan, 1.0, -0.0], np.float32)
    values, indices = pf.sort(pf.tensor(x))
    np.testing.assert_array_equal(indices.numpy(), [4, 5, 0, 2, 8, 7, 3, 1, 6])
    np.testing.assert_array_equal(np.signbit(values.numpy()[2:5]), [False, True, True])
    assert pf.argmax(pf.tensor(x)).item() == pf.argmin(pf.tensor(x)).item() == 1
    wide = np.tile(x, (5, 1)).T.copy()
    assert pf.argmax(pf.tensor(wide), 0).tolist() == pf.argmin(pf.tensor(wide), 0).tolist() == [1] * 5
    assert pf.topk(pf.tensor(np.tile(x, 100)), 3)[1].tolist() == [1, 6, 10]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8])
@pytest.mark.parametrize("n", [2000, 70001])
@pytest.mark.parametrize("k", [1, 50, 400])
def test_few_of_many(dtype, n, k):
    """Equal elements are many: the first of them are taken. An ascending line renews the bound again and again."""
    rng = np.random.default_rng(n + k)
    lines = np.stack([rng.integers(0, 100, n), np.arange(n) % 30000 // 300, -np.arange(n) % 128, np.full(n, 3)]).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        lines[0] -= 50
        lines[0, ::7] = -0.0
        lines[1, 5::1999] = np.nan
    for largest in (True, False):
        values, indices = pf.topk(pf.tensor(lines), k, largest=largest)
        for x, got, at in zip(lines, values.numpy(), indices.numpy()):
            rank = x.astype(np.float64)
            rank = np.where(np.isnan(rank), np.inf, rank)
            want = np.argsort(-rank if largest else rank, kind="stable")[:k]
            np.testing.assert_array_equal(at, want)
            np.testing.assert_array_equal(got, x[want])


def test_unique():
    for dim in (0, 1):
        table = RNG.integers(0, 2, (7, 3) if dim == 0 else (3, 7))
        values, inverse, counts = pf.unique(pf.tensor(table), return_inverse=True, return_counts=True, dim=dim)
        want = np.unique(table, return_inverse=True, return_counts=True, axis=dim)
        for got, expected in zip((values, inverse, counts), want):
            np.testing.assert_array_equal(got.numpy(), expected.reshape(got.shape))
    rows = pf.tensor([[1, 2], [1, 2], [0, 2], [1, 2]])
    values, inverse, counts = pf.unique_consecutive(rows, return_inverse=True, return_counts=True, dim=0)
    assert values.tolist() == [[1, 2], [0, 2], [1, 2]] and inverse.tolist() == [0, 0, 1, 2] and counts.tolist() == [2, 1, 1]
    assert pf.unique(pf.zeros(0, 3), dim=0).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("low,high", [(0, 2), (-100, 27), (5, 6), (-(2**62), -(2**62) + 900), (-(2**63), 2**63 - 1)])
def test_unique_of_many_integers(dtype, low, high):
    """Those of a small range are counted, others are sorted."""
    info = np.iinfo(dtype)
    low, high = (low, high) if info.min <= low and high <= info.max else (info.min, info.max)
    x = np.random.default_rng(4).integers(low, high, (300, 101), dtype=dtype, endpoint=True)
    x.flat[:2] = low, high
    want = np.unique(x, return_inverse=True, return_counts=True)
    values, inverse, counts = pf.unique(pf.tensor(x), return_inverse=True, return_counts=True)
    assert values.numpy().dtype == dtype and inverse.shape == x.shape
    for got, expected in zip((values, inverse, counts), want):
        np.testing.assert_array_equal(got.numpy(), expected.reshape(got.shape))
    np.testing.assert_array_equal(pf.unique(pf.tensor(x)).numpy(), want[0])


def test_histograms():
    for bins, span in ((4, None), (7, (-1.0, 1.0))):
        hist, edges = pf.histogram(pf.tensor(X), bins, range=span)
        want, want_edges = np.histogram(X, bins, range=span)
        np.testing.assert_array_equal(hist.numpy(), want)
        np.testing.assert_allclose(edges.numpy(), want_edges, rtol=1e-5, atol=1e-6)
    assert pf.histc(pf.tensor(X), 7, -1, 1).tolist() == np.histogram(X, 7, (-1, 1))[0].tolist()
    weights = np.abs(X)
    edges = np.array([-1.0, 0.0, 0.5, 2.0], np.float32)
    got = pf.histogram(pf.tensor(X), pf.tensor(edges), weight=pf.tensor(weights), density=True)[0]
    np.testing.assert_allclose(got.numpy(), np.histogram(X, edges, weights=weights, density=True)[0], rtol=1e-5)
    points = RNG.standard_normal((40, 2)).astype(np.float32)
    hist, edges = pf.histogramdd(pf.tensor(points), [3, 4])
    np.testing.assert_array_equal(hist.numpy(), np.histogramdd(points, [3, 4])[0])


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce, include_self):
    x, src = pf.tensor([4.0, 3.0, 2.0, 6.0], dtype=pf.float64, requires_grad=True), pf.tensor([5.0, 1.5, -2.0], dtype=pf.float64, requires_grad=True)
    index = pf.tensor([0, 2, 0])
    lists = [[4.0] * include_self + [5.0, -2.0], [3.0], [2.0] * include_self + [1.5], [6.0]]
    fold = {"sum": sum, "prod": np.prod, "mean": np.mean, "amax": max, "amin": min}[reduce]
    got = pf.scatter_reduce(x, 0, index, src, reduce, include_self=include_self)
    np.testing.assert_allclose(got.detach().numpy(), [fold(v) for v in lists])
    weights = pf.tensor([1.0, 10.0, 100.0, 1000.0], dtype=pf.float64)
    (got * weights).sum().backward()
    step = 1e-6
    for leaf in (x, src):
        for k in range(leaf.shape[0]):
            moved = leaf.detach().clone()
            moved[k] += step
            a, b = (moved, src.detach()) if leaf is x else (x.detach(), moved)
            slope = ((pf.scatter_reduce(a, 0, index, b, reduce, include_self=include_self) - got.detach()) * weights).sum().item() / step
            assert leaf.grad[k].item() == pytest.approx(slope, abs=1e-3)
    if reduce != "sum":
        same = pf.index_reduce(x.detach(), 0, index, src.detach(), reduce, include_self=include_self)
        np.testing.assert_allclose(same.numpy(), got.detach().numpy())


def test_scatter_reduce_of_complex_numbers():
    x, src = pf.tensor([1 + 1j, 2j]), pf.tensor([1j, 3 - 1j])
    assert pf.scatter_reduce(x, 0, pf.tensor([0, 0]), src, "mean", include_self=False).tolist() == [1.5, 2j]


def test_product_gradients_at_zeros_and_shared_extremes():
    x, src = pf.tensor([2.0, 0.0], requires_grad=True), pf.tensor([0.0, 3.0, 5.0], requires_grad=True)
    pf.scatter_reduce(x, 0, pf.tensor([0, 0, 1]), src, "prod").sum().backward()
    assert x.grad.tolist() == [0.0, 5.0] and src.grad.tolist() == [6.0, 0.0, 0.0]
    x, src = pf.tensor([3.0, 1.0], requires_grad=True), pf.tensor([3.0, 3.0, 0.0], requires_grad=True)
    pf.scatter_reduce(x, 0, pf.tensor([0, 0, 1]), src, "amax").sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1 / 3, 1.0], rtol=1e-6)
    np.testing.assert_allclose(src.grad.numpy(), [1 / 3, 1 / 3, 0.0], rtol=1e-6)


def test_multinomial():
    pf.manual_seed(0)
    weights = pf.tensor([0.0, 1.0, 3.0, 0.0])
    drawn = pf.multinomial(weights, 20000, replacement=True)
    counts = np.bincount(drawn.numpy(), minlength=4)
    assert counts[0] == counts[3] == 0 and abs(counts[2] / 20000 - 0.75) < 0.02
    first = pf.multinomial(weights.expand(5000, 4), 1)
    assert first.shape == (5000, 1) and abs((first == 2).float().mean().item() - 0.75) < 0.03
    both = pf.multinomial(weights.expand(1000, 4), 2)
    assert (both.sum(1) == 3).all().item()
    again = pf.multinomial(weights, 5, True, generator=pf.Generator().manual_seed(3))
    assert pf.equal(again, pf.multinomial(weights, 5, True, generator=pf.Generator().manual_seed(3)))


def test_renorm_and_positions():
    x = pf.tensor([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(pf.renorm(x, 2, 0, 1.0).numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    rows, columns = pf.unravel_index(pf.tensor([5, 0]), (2, 4))
    assert rows.tolist() == [1, 0] and columns.tolist() == [1, 0]
    assert pf.nonzero_static(pf.tensor([[0, 3], [1, 0]]), size=3).tolist() == [[0, 1], [1, 0], [-1, -1]]
    assert pf.take_along_dim(pf.tensor([1.0, 2.0, 3.0]), pf.tensor([-1]), 0).tolist() == [3.0]
    x = pf.arange(6.0)
    assert pf.as_strided_copy(x, (2, 2), (3, 1), 1).tolist() == [[1.0, 2.0], [4.0, 5.0]] and x[2:].as_strided((2,), (1,)).tolist() == [2.0, 3.0]


def test_searches_promote_dtypes():
    whole = pf.tensor([1, 2, 2, 3])
    assert pf.searchsorted(whole, pf.tensor([0, 2, 1.5, 3.5])).tolist() == pf.bucketize(pf.tensor([0, 2, 1.5, 3.5]), whole).tolist() == [0, 1, 1, 4]
    assert pf.searchsorted(pf.tensor([1, 2], dtype=pf.uint8), pf.tensor([-1, 300])).tolist() == [0, 2]
    single, double = pf.tensor([0.1, 0.2]), pf.tensor([0.1, 0.2], dtype=pf.float64)  # 0.1 and 0.2 of float32 are larger
    assert pf.searchsorted(single, double).tolist() == [0, 1] and pf.searchsorted(double, single).tolist() == [1, 2]


def test_a_range_of_one_number_is_that_of_the_data():
    x = pf.tensor([0, 2, 1.2, 5, 2])
    assert pf.histc(x, 4, 1, 1).tolist() == pf.histc(x, 4).tolist() == [2.0, 2.0, 0.0, 1.0]
    assert pf.histc(pf.tensor([2.0, 2.0]), 4, 5, 5).tolist() == [0.0, 0.0, 2.0, 0.0]
    assert pf.histogram(pf.ones(2), 3, range=(1.0, 1.0)).hist.tolist() == [0.0, 2.0, 0.0]


ERRORS = [
    (lambda: pf.kthvalue(pf.ones(3), 4), RuntimeError, "kthvalue: k is out of range; got 4 for 3 elements"),
    (lambda: pf.median(pf.ones(0, 3), 0), IndexError, "median: no elements along the dim"),
    (lambda: pf.mode(pf.ones(0, 3), 0), IndexError, "mode: no elements along the dim"),
    (lambda: pf.median(pf.ones(3), 1), IndexError, "median: no such dim; got 1"),
    (lambda: pf.quantile(pf.ones(3), 1.5), RuntimeError, "quantile: q is out of range; got 1.5"),
    (lambda: pf.quantile(pf.arange(3), 0.5), RuntimeError, "quantile: not float32 or float64; got"),
    (lambda: pf.quantile(pf.ones(0), 0.5), RuntimeError, "quantile: no elements"),
    (lambda: pf.quantile(pf.ones(3), pf.ones(1, 1)), RuntimeError, "quantile: q does not fit"),
    (lambda: pf.quantile(pf.ones(3), 0.5, interpolation="best"), RuntimeError, "quantile: unknown interpolation; got 'best'"),
    (lambda: pf.searchsorted(pf.ones(3), pf.ones(2, dtype=pf.complex64)), TypeError, "searchsorted"),
    (lambda: pf.searchsorted(pf.ones(2, 3), pf.ones(3, 2)), ValueError, "searchsorted: the rows do not fit"),
    (lambda: pf.searchsorted(pf.ones(2, 3), pf.ones(3)), ValueError, "searchsorted: ranks differ"),
    (lambda: pf.searchsorted(pf.ones(()), pf.ones(3)), ValueError, "searchsorted: the sorted sequence is a number"),
    (lambda: pf.searchsorted(pf.ones(3), pf.ones(3), side="left", right=True), RuntimeError, "searchsorted: side does not fit"),
    (lambda: pf.searchsorted(pf.ones(3), pf.ones(3), sorter=pf.arange(2)), RuntimeError, "searchsorted: the sorter does not fit"),
    (lambda: pf.bucketize(pf.ones(3), pf.ones(3, 3)), RuntimeError, "bucketize: the boundaries are not a vector"),
    (lambda: pf.histc(pf.ones(3), 0), RuntimeError, "histc: no bins; got 0"),
    (lambda: pf.histc(pf.tensor([float("inf")])), RuntimeError, "histc: the range is not finite"),
    (lambda: pf.histc(pf.ones(3), 4, 2, 1), RuntimeError, "histc: max is less than min"),
    (lambda: pf.histc(pf.ones(3) > 0, 4), TypeError, "histc: not real numbers; got pyflame.bool"),
    (lambda: pf.histogram(pf.arange(3), 4), TypeError, "histogram: not a floating dtype; got pyflame.int64"),
    (lambda: pf.histogram(pf.ones(3), 0), RuntimeError, "histogram: no bins; got 0"),
    (lambda: pf.histogram(pf.ones(3), pf.arange(3)), RuntimeError, r"histogram: the edges do not fit; got shape \(3,\) of pyflame.int64"),
    (lambda: pf.histogram(pf.ones(3), pf.tensor([3.0, 2.0, 1.0])), ValueError, r"histogram: the edges do not ascend; got \[3.0, 2.0, 1.0\]"),
    (lambda: pf.histogram(pf.ones(3), pf.tensor([0.0, math.nan])), ValueError, "histogram: the edges do not ascend"),
    (lambda: pf.histogramdd(pf.ones(3, 1), [pf.arange(9.0).flip(0)]), ValueError, "histogramdd: the edges do not ascend; got 9 edges"),
    (lambda: pf.histogram(pf.ones(3), 4, weight=pf.ones(4)), RuntimeError, "histogram: not one weight for each point; got 4 for 3"),
    (lambda: pf.histogramdd(pf.ones(3, 2).long(), [4, 4]), TypeError, "histogramdd: not a floating dtype; got pyflame.int64"),
    (lambda: pf.histogramdd(pf.ones(3), [4]), RuntimeError, "histogramdd: no points"),
    (lambda: pf.histogramdd(pf.ones(3, 1), [4], range=(0, 1, 2)), RuntimeError, "histogramdd: the range does not fit; got 3 numbers"),
    (lambda: pf.histogramdd(pf.ones(3, 2), [4]), RuntimeError, "histogramdd: not one entry of bins for each dim"),
    (lambda: pf.multinomial(pf.ones(3), 4), RuntimeError, "multinomial: a wrong number of samples; got 4 of 3"),
    (lambda: pf.multinomial(pf.zeros(3), 1), RuntimeError, "multinomial: a weight is negative, inf or NaN, or a row sums to 0"),
    (lambda: pf.multinomial(pf.arange(3), 1), RuntimeError, "multinomial: not rows of weights"),
    (lambda: pf.renorm(pf.ones(3), 2, 0, 1), RuntimeError, "renorm: fewer than two dims"),
    (lambda: pf.renorm(pf.ones(3, 3), 2, 0, -1), RuntimeError, "renorm: not a norm; got p=2 and maxnorm=-1"),
    (lambda: pf.renorm(pf.ones(3, 3), 0, 0, 1), RuntimeError, "renorm: not a norm; got p=0"),
    (lambda: pf.unravel_index(pf.ones(2), (2,)), ValueError, "unravel_index: not integers"),
    (lambda: pf.unravel_index(pf.arange(2), (-2,)), ValueError, "unravel_index: a negative size"),
    (lambda: pf.nonzero_static(pf.ones(2), size=-1), ValueError, "nonzero_static: a negative size; got -1"),
    (lambda: pf.unique(pf.ones(2), dim=1), IndexError, "unique: no such dim; got 1"),
    (lambda: pf.ones(3).scatter(0, pf.tensor([0])), TypeError, "scatter: neither or both of src and value; got none"),
    (lambda: pf.ones(3).scatter(0, pf.tensor([0]), 1.0, reduce="max"), RuntimeError, "scatter: unknown reduction; got 'max'"),
    (lambda: pf.ones(3).scatter(0, pf.tensor([[0]]), 1.0), ValueError, "scatter: ranks differ"),
    (lambda: pf.ones(3).scatter(0, pf.tensor([0, 1]), pf.ones(1)), ValueError, "scatter: the index is larger than src"),
    (lambda: pf.ones(3, 1).scatter(0, pf.tensor([[0, 1]]), 1.0), ValueError, "scatter: the index is larger than the input"),
    (lambda: pf.ones(3).scatter(0, pf.tensor([3]), 1.0), IndexError, "scatter: index out of range; got 3"),
    (lambda: pf.scatter_reduce(pf.ones(3), 0, pf.tensor([0]), pf.ones(1), "max"), RuntimeError, "scatter_reduce: unknown reduction; got 'max'"),
    (lambda: pf.index_reduce(pf.ones(3), 0, pf.tensor([0]), pf.ones(1), "sum"), RuntimeError, "index_reduce: unknown reduction; got 'sum'"),
    (lambda: pf.index_copy(pf.ones(3), 0, pf.tensor([[0]]), pf.ones(1)), ValueError, "index_copy: the index is not a vector"),
    (lambda: pf.index_copy(pf.ones(3), 0, pf.tensor([0]), pf.ones(2)), ValueError, "index_copy: src does not fit"),
    (lambda: pf.index_fill(pf.ones(3), 0, pf.tensor([0]), pf.ones(2)), RuntimeError, "index_fill: not one value"),
    (lambda: pf.index_fill(pf.ones(3), 0, pf.tensor([0]), 1j), TypeError, "index_fill: a complex number for a real dtype; got pyflame.float32"),
    (lambda: pf.ones(3).index_fill_(0, pf.tensor([0]), pf.tensor(1j)), TypeError, "index_fill: a complex number for a real dtype"),
    (lambda: pf.scatter_reduce(pf.ones(3) * 1j, 0, pf.tensor([0]), pf.ones(1) * 1j, "amax", include_self=False), TypeError, "scatter_reduce: 'amax' is not available for complex tensors"),
    (lambda: pf.put(pf.ones(3), pf.tensor([0]), pf.ones(2)), IndexError, "put: not one element for each index"),
    (lambda: pf.masked_scatter(pf.ones(3), pf.ones(3) > 0, pf.ones(2)), RuntimeError, "masked_scatter: too few elements; got 2 for 3"),
    (lambda: pf.masked_scatter(pf.ones(3), pf.ones(3), pf.ones(3)), RuntimeError, "masked_scatter: the mask is not bool"),
    (lambda: pf.masked_scatter(pf.ones(3), pf.ones(3) > 0, pf.arange(3)), RuntimeError, "masked_scatter: dtypes differ"),
    (lambda: pf.topk(pf.ones(3) > 0, 1), TypeError, "topk: not defined for bool"),
    (lambda: pf.index_put(pf.ones(3), (0,), pf.ones(1)), TypeError, "index_put: not an index; got 0"),
]


@pytest.mark.parametrize("which", range(len(ERRORS)))
def test_errors(which):
    call, error, text = ERRORS[which]
    with pytest.raises(error, match=text):
        call()


def test_mode_of_nan():
    nan = float("nan")
    for line, value, index in (([1, 1, nan, nan, nan], 1, 1), ([nan, 2, 1], 1, 2), ([nan, 1, 2, 2, nan, nan], 2, 3), ([nan, nan, nan], nan, 0), ([nan], nan, 0)):
        got = pf.mode(pf.tensor(line, dtype=pf.float32))
        np.testing.assert_equal((got.values.item(), got.indices.item()), (value, index))


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8"])
@pytest.mark.parametrize("shape", [(1,), (3, 1000), (65537,), (200001,)])
def test_sort_of_integers_in_every_range(dtype, shape):
    """Rows whose differences need few bits, and all bits."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(2)
    for low, high in ((limits.min, limits.max), (limits.min, limits.min + 3), (limits.max - 5, limits.max), (0, 0)):
        a = rng.integers(low, high, shape, dtype=dtype, endpoint=True)
        for descending in (False, True):
            values, indices = (t.numpy() for t in pf.tensor(a).sort(descending=descending, stable=True))
            want = np.argsort(~a if descending else a, axis=-1, kind="stable")
            np.testing.assert_array_equal(indices, want)
            np.testing.assert_array_equal(values, np.take_along_axis(a, want, -1))
