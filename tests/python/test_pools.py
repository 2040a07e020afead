"""Pools, grids, paddings and layers of convolutions that are composed in Python, against loops over their definitions."""
import itertools
import math

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F

RNG = np.random.default_rng(0)


def values(*shape):
    """Distinct numbers, so that a maximum has one place."""
    n = math.prod(shape)
    return ((RNG.permutation(n) - n // 2) * 0.25).reshape(shape).astype(np.float32)


SPATIAL = {1: (11,), 2: (7, 9), 3: (5, 6, 7)}


def each_window(x, begins, ends, f):
    """f of each window of x[n, c], from its begin to its end along each dim."""
    sizes = [len(b) for b in begins]
    y = np.empty((*x.shape[:2], *sizes), dtype=np.float64)
    for at in np.ndindex(*sizes):
        window = x[(slice(None), slice(None), *(slice(b[i], e[i]) for b, e, i in zip(begins, ends, at)))]
        y[(slice(None), slice(None), *at)] = f(window.reshape(*x.shape[:2], -1))
    return y


def covering(n, count):
    return [i * n // count for i in range(count)], [-(-(i + 1) * n // count) for i in range(count)]


@pytest.mark.parametrize("dims", SPATIAL)
@pytest.mark.parametrize("count", (1, 2, 3, 5))
def test_adaptive_pools(dims, count):
    x = values(2, 3, *SPATIAL[dims])
    begins, ends = zip(*(covering(n, count) for n in SPATIAL[dims]))
    y, at = getattr(F, f"adaptive_max_pool{dims}d")(pf.tensor(x), count, return_indices=True)
    np.testing.assert_array_equal(y.numpy(), each_window(x, begins, ends, lambda w: w.max(-1)))
    np.testing.assert_array_equal(np.take_along_axis(x.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), -1), y.numpy().reshape(2, 3, -1))
    mean = getattr(F, f"adaptive_avg_pool{dims}d")(pf.tensor(x), count)
    np.testing.assert_allclose(mean.numpy(), each_window(x, begins, ends, lambda w: w.mean(-1)), rtol=1e-5, atol=1e-5)
    one = pf.tensor(x[0])
    assert getattr(nn, f"AdaptiveMaxPool{dims}d")(count)(one).shape == mean.shape[1:]


@pytest.mark.parametrize("dims", SPATIAL)
@pytest.mark.parametrize("ceil", (False, True))
def test_windows_of_pools(dims, ceil):
    """Maximum, mean with and without padding, divisor_override, p-norm, with indices; a window may be cut off by the end."""
    x, k, s, p = values(2, 3, *SPATIAL[dims]), 3, 2, 1
    counts = [(math.ceil if ceil else math.floor)((n + 2 * p - k) / s) + 1 for n in SPATIAL[dims]]
    counts = [c - 1 if (c - 1) * s >= n + p else c for c, n in zip(counts, SPATIAL[dims])]
    begins = [[i * s - p for i in range(c)] for c in counts]
    inner = [[max(b, 0) for b in begin] for begin in begins], [[min(b + k, n) for b in begin] for begin, n in zip(begins, SPATIAL[dims])]
    t, settings = pf.tensor(x), {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": ceil}
    best, at = getattr(F, f"max_pool{dims}d")(t, return_indices=True, **settings)
    np.testing.assert_array_equal(best.numpy(), each_window(x, *inner, lambda w: w.max(-1)))
    np.testing.assert_array_equal(np.take_along_axis(x.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), -1), best.numpy().reshape(2, 3, -1))
    pool = getattr(F, f"avg_pool{dims}d")
    np.testing.assert_allclose(pool(t, count_include_pad=False, **settings).numpy(), each_window(x, *inner, lambda w: w.mean(-1)), rtol=1e-5, atol=1e-5)
    sums = each_window(x, *inner, lambda w: w.sum(-1))
    padded = [[min(b + k, n + p) - b for b in begin] for begin, n in zip(begins, SPATIAL[dims])]
    taps = np.array([math.prod(t) for t in itertools.product(*padded)]).reshape(counts)
    np.testing.assert_allclose(pool(t, **settings).numpy(), sums / taps, rtol=1e-5, atol=1e-5)
    if dims > 1:
        np.testing.assert_allclose(pool(t, divisor_override=-7, **settings).numpy(), sums / -7, rtol=1e-4, atol=1e-4)
    whole = pf.tensor((x * 4).astype(np.int64))
    assert pool(whole, **settings).tolist() == np.trunc(np.round(sums * 4) / taps).astype(np.int64).tolist()
    unpadded = {"kernel_size": k, "stride": s, "ceil_mode": ceil}
    want = (getattr(F, f"avg_pool{dims}d")(pf.tensor(np.abs(x)) ** 3, **unpadded) * k**dims) ** (1 / 3)
    np.testing.assert_allclose(getattr(F, f"lp_pool{dims}d")(pf.tensor(np.abs(x)), 3.0, k, s, ceil).numpy(), want.numpy(), rtol=1e-5)


@pytest.mark.parametrize("channels", (3, 8, 16, 21, 64))
def test_channels_last_pools(channels):
    """The same values and places as in planes, with and without indices."""
    x = np.random.default_rng(channels).integers(-4, 5, (2, channels, 11, 10)).astype(np.float32)
    x[0, 1, 4, 4], x[1, 2, 3, 7], x[1, 0, 0, 0] = np.nan, np.inf, -np.inf
    planes = pf.tensor(x)
    last = planes.to(memory_format=pf.channels_last)
    for settings in ((3, 2, 1), (2, 2, 0), (3, 1, 1), ((3, 2), (1, 3), (1, 0))):
        values, places = (v.numpy() for v in F.max_pool2d(planes, *settings, return_indices=True))
        for got, expected in zip(F.max_pool2d(last, *settings, return_indices=True), (values, places)):
            np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(F.max_pool2d(last, *settings).numpy(), values)
        np.testing.assert_array_equal(F.avg_pool2d(last, *settings).numpy(), F.avg_pool2d(planes, *settings).numpy())


@pytest.mark.parametrize("dims", SPATIAL)
def test_unpool(dims):
    """Undoes max_pool; an element that several windows took is written once, and each window gets its gradient."""
    x = values(2, 3, *SPATIAL[dims])
    for kernel, stride in ((2, 2), (3, 1)):
        t = pf.tensor(x, requires_grad=True)
        y, at = getattr(F, f"max_pool{dims}d")(t, kernel, stride, return_indices=True)
        y = y.detach().requires_grad_()
        back = getattr(F, f"max_unpool{dims}d")(y, at, kernel, stride, output_size=x.shape)
        want = np.zeros_like(x).reshape(2, 3, -1)
        np.put_along_axis(want, at.numpy().reshape(2, 3, -1), y.detach().numpy().reshape(2, 3, -1), -1)
        np.testing.assert_allclose(back.detach().numpy(), want.reshape(x.shape), rtol=1e-6)
        weights = pf.tensor(values(*x.shape))
        (back * weights).sum().backward()
        got = np.take_along_axis(weights.numpy().reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), -1)
        np.testing.assert_allclose(y.grad.numpy(), got.reshape(y.shape), rtol=1e-6)


def test_unpool_writes_an_element_twice():
    """The later value stays, and is exact."""
    y = pf.tensor([[[1e30, 0.1, 0.1]]], requires_grad=True)
    back = F.max_unpool1d(y, pf.tensor([[[1, 1, 1]]]), 2)
    assert back.detach().numpy().tolist() == [[[0.0, np.float32(0.1), 0.0, 0.0, 0.0, 0.0]]]
    back.sum().backward()
    assert y.grad.tolist() == [[[1.0, 1.0, 1.0]]]


@pytest.mark.parametrize("dims", (2, 3))
def test_fractional_pools(dims):
    x, count, k = values(2, 3, *SPATIAL[dims]), 3, 2
    sample = RNG.random((2, 3, dims)).astype(np.float64)
    y, at = getattr(F, f"fractional_max_pool{dims}d")(pf.tensor(x.astype(np.float64)), k, count, return_indices=True, _random_samples=pf.tensor(sample))
    for n, c in np.ndindex(2, 3):
        order = [1, 0] if dims == 2 else [0, 1, 2]
        begins = []
        for size, u in zip(SPATIAL[dims], sample[n, c][order]):
            step = (size - k) / (count - 1)
            begins.append([int((i + u) * step) - int(u * step) for i in range(count - 1)] + [size - k])
        want = each_window(x[n : n + 1, c : c + 1], begins, [[b + k for b in begin] for begin in begins], lambda w: w.max(-1))
        np.testing.assert_array_equal(y.numpy()[n, c], want[0, 0])
    np.testing.assert_array_equal(np.take_along_axis(x.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), -1), y.numpy().reshape(2, 3, -1))
    pf.manual_seed(1)
    assert getattr(nn, f"FractionalMaxPool{dims}d")(2, output_ratio=0.5)(pf.tensor(x)).shape == (2, 3, *(n // 2 for n in SPATIAL[dims]))


def padded_place(x, size, padding, align):
    if padding == "reflection":
        low, span = (0.0, size - 1) if align else (-0.5, size)
        if span == 0:
            return 0.0
        d = abs(x - low)
        turns, rest = int(d // span), d % span
        x = low + rest if turns % 2 == 0 else low + span - rest
    return x if padding == "zeros" else min(max(x, 0.0), size - 1.0)


def taps_along(x, size, mode, padding, align):
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    if mode == "bicubic":
        low = math.floor(x)
        a, result = -0.75, []
        for k in range(-1, 3):
            d = abs(x - (low + k))
            w = ((a + 2) * d - (a + 3)) * d * d + 1 if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            result.append((int(padded_place(low + k, size, padding, align)), w))
        return result
    x = padded_place(x, size, padding, align)
    if mode == "nearest":
        return [(round(x), 1.0)]
    return [(math.floor(x), 1 - (x - math.floor(x))), (math.floor(x) + 1, x - math.floor(x))]


def test_numbers_of_modes():
    image, at = pf.randn(1, 1, 3, 3), pf.zeros(1, 2, 2, 2)
    assert pf.grid_sampler(image, at, 1, 2, False).shape == (1, 1, 2, 2)
    for f in (pf.grid_sampler, pf.grid_sampler_2d, pf.grid_sampler_3d):
        for numbers, what in (((-1, 0), "interpolation_mode"), ((3, 0), "interpolation_mode"), ((0, -1), "padding_mode"), ((0, 3), "padding_mode")):
            with pytest.raises(ValueError, match=f"{f.__name__}: {what} is out of range"):
                f(image, at, *numbers, False)


@pytest.mark.parametrize("align", (False, True))
@pytest.mark.parametrize("padding", ("zeros", "border", "reflection"))
@pytest.mark.parametrize("mode", ("bilinear", "nearest", "bicubic"))
@pytest.mark.parametrize("dims", (2, 3))
def test_grid_sample(dims, mode, padding, align):
    sizes, places = SPATIAL[dims], (2, 3, 4)[:dims]
    x, grid = RNG.standard_normal((2, 2, *sizes)), RNG.uniform(-1.6, 1.6, (2, *places, dims))
    want = np.zeros((2, 2, *places))
    for n, *at in np.ndindex(2, *places):
        along = [taps_along(c, s, mode, padding, align) for c, s in zip(grid[(n, *at)][::-1], sizes)]
        for corner in itertools.product(*along):
            index = tuple(i for i, _ in corner)
            if all(0 <= i < s for i, s in zip(index, sizes)):
                want[(n, slice(None), *at)] += x[(n, slice(None), *index)] * math.prod(w for _, w in corner)
    t, g = pf.tensor(x, requires_grad=True), pf.tensor(grid, requires_grad=True)
    got = F.grid_sample(t, g, mode, padding, align)
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-9)
    if mode != "nearest":
        small = pf.tensor(x[:1, :1], requires_grad=True), pf.tensor(grid[:1], requires_grad=True)
        assert pf.autograd.gradcheck(lambda a, b: F.grid_sample(a, b, mode, padding, align), small)


def test_a_grid_of_an_affine_map():
    """The identity reads every element; a turn by a right angle turns the image."""
    x = pf.tensor(values(1, 2, 5, 5))
    one, turn = pf.tensor([[[1.0, 0, 0], [0, 1, 0]]]), pf.tensor([[[0.0, 1, 0], [-1, 0, 0]]])
    for align in (False, True):
        np.testing.assert_allclose(F.grid_sample(x, F.affine_grid(one, (1, 2, 5, 5), align), align_corners=align).numpy(), x.numpy(), atol=1e-4)
        got = F.grid_sample(x, F.affine_grid(turn, (1, 2, 5, 5), align), align_corners=align)
        np.testing.assert_allclose(got.numpy(), np.rot90(x.numpy(), -1, (2, 3)), atol=1e-4)
    assert F.affine_grid(pf.ones(2, 3, 4), (2, 1, 3, 4, 5)).shape == (2, 3, 4, 5, 3)


@pytest.mark.parametrize("dims", SPATIAL)
def test_padding_same(dims):
    """As many zeros as keep the size; the odd one at the end."""
    x, k = pf.tensor(values(2, 3, *SPATIAL[dims])), 4
    w = pf.tensor(RNG.standard_normal((2, 3, *(k,) * dims)).astype(np.float32))
    conv = getattr(F, f"conv{dims}d")
    y = conv(x, w, padding="same", dilation=1)
    assert y.shape == (2, 2, *SPATIAL[dims])
    np.testing.assert_allclose(y.numpy(), conv(F.pad(x, (1, 2) * dims), w).numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(conv(x, w, padding="valid").numpy(), conv(x, w).numpy())
    layer = getattr(nn, f"Conv{dims}d")(3, 2, k, padding="same", padding_mode="circular", bias=False)
    layer.weight.data = w
    np.testing.assert_allclose(layer(x).detach().numpy(), conv(F.pad(x, (1, 2) * dims, "circular"), w).numpy(), rtol=1e-4, atol=1e-3)
    assert layer.padding == "same" and "padding=same" in repr(layer)


@pytest.mark.parametrize("dims", SPATIAL)
def test_transposed_layers_make_the_size_asked_for(dims):
    layer, x = getattr(nn, f"ConvTranspose{dims}d")(3, 2, 3, stride=2, padding=1), pf.tensor(values(2, 3, *SPATIAL[dims]))
    least = layer(x).shape[2:]
    assert layer(x, output_size=[n + 1 for n in least]).shape[2:] == tuple(n + 1 for n in least)
    assert layer(x, output_size=(2, 2, *least)).shape[2:] == least
    with pytest.raises(ValueError, match="output_size does not fit"):
        layer(x, output_size=[n + 2 for n in least])


def test_integers_are_exact():
    x, w = pf.tensor(RNG.integers(-9, 9, (1, 2, 5, 4))), pf.tensor(RNG.integers(-9, 9, (3, 2, 2, 2)))
    y = F.conv2d(x, w, w.sum((1, 2, 3)))
    assert y.dtype == pf.int64 and y.tolist() == F.conv2d(x.double(), w.double(), w.sum((1, 2, 3)).double()).long().tolist()
    best, at = F.max_pool2d(x, 2, return_indices=True)
    assert best.dtype == pf.int64 and x.flatten(2).gather(2, at.flatten(2)).tolist() == best.flatten(2).tolist()


def test_empty_batches():
    """Every layer takes a batch of nothing, and so does its gradient."""
    for layer, shape in ((nn.Conv3d(3, 2, 3), (3, 4, 5, 6)), (nn.ConvTranspose3d(3, 2, 3, stride=2), (3, 4, 5, 6)), (nn.ConvTranspose1d(3, 2, 3), (3, 6)), (nn.MaxPool3d(2), (3, 4, 5, 6)),
                         (nn.AvgPool3d(2), (3, 4, 5, 6)), (nn.AdaptiveMaxPool2d(2), (3, 5, 6)), (nn.Unfold(2), (3, 4, 5)), (nn.GroupNorm(1, 3), (3, 4)), (nn.LPPool2d(2, 2), (3, 4, 4)),
                         (nn.FractionalMaxPool2d(2, 2), (3, 5, 6)), (nn.ReflectionPad2d(1), (3, 4, 5)), (nn.AdaptiveAvgPool3d(2), (3, 3, 4, 5))):
        x = pf.zeros(0, *shape, requires_grad=True)
        y = layer(x)
        assert y.shape[0] == 0
        y.sum().backward()
        assert x.grad.shape == x.shape and all(p.grad.abs().sum().item() == 0 for p in layer.parameters())
    assert F.batch_norm(pf.zeros(0), None, None, training=True).shape == (0,)


@pytest.mark.parametrize("stride, padding, dilation, shape, kernel", [
    (1, 1, 1, (2, 16, 16, 12, 10), (3, 3, 3)), (1, (2, 1, 0), 1, (1, 16, 12, 14, 14), (3, 3, 2)), (2, 1, 1, (1, 32, 16, 14, 14), (3, 3, 3)),
    ((3, 1, 1), 0, (2, 1, 1), (1, 16, 24, 12, 12), (2, 3, 3)), ((3, 1, 2), 1, 1, (18, 8, 8, 8, 8), (2, 3, 3)), (1, 1, 1, (1, 3, 8, 40, 40), (3, 3, 3)),
])
def test_volumes_in_parts(stride, padding, dilation, shape, kernel):
    """Large volumes are computed in parts along the depth: as in float64, where they are not."""
    rng = np.random.default_rng(5)
    x, w, b = rng.standard_normal(shape), rng.standard_normal((16, shape[1], *kernel)), rng.standard_normal(16)

    def results(dtype):
        args = [pf.tensor(a, dtype=dtype, requires_grad=True) for a in (x, w, b)]
        y = F.conv3d(*args, stride, padding, dilation)
        z = F.silu(y)  # relu's gradient would depend on the rounding of what is near 0
        loss = (z * pf.tensor(np.cos(np.arange(z.numel())).reshape(z.shape), dtype=dtype)).sum() + (y * y).mean()
        with pf.no_grad():  # the bias and relu are in the convolution's kernel
            fused = F.relu(F.conv3d(*args, stride, padding, dilation))
            back = F.conv_transpose3d(z, args[1], None, stride, padding, dilation=dilation)
        return [z, fused, back, *pf.autograd.grad(loss, args)]

    exact = results(pf.float64)
    for dtype, tolerance in ((pf.float32, 2e-5), (pf.bfloat16, 0.03)):
        for got, want in zip(results(dtype)[: 6 if dtype == pf.float32 else 3], exact):
            want = want.detach().numpy()
            assert np.abs(got.detach().float().numpy() - want).max() < tolerance * np.abs(want).max()


def test_second_gradients_of_volumes():
    x = pf.tensor(RNG.standard_normal((1, 2, 4, 3, 4)), requires_grad=True)
    w = pf.tensor(RNG.standard_normal((2, 2, 2, 2, 3)), requires_grad=True)

    def first(f):
        def gradient(*args):
            with pf.enable_grad():
                args = [a if a.requires_grad else a.detach().requires_grad_() for a in args]
                return pf.autograd.grad((f(*args) ** 2).sum(), args, create_graph=True)[0]

        return gradient

    assert pf.autograd.gradcheck(first(lambda a, b: F.conv3d(a, b, stride=(2, 1, 1), padding=1)), (x, w))
    assert pf.autograd.gradcheck(first(lambda a, b: F.conv_transpose3d(a, b, stride=2)), (x, w))
    assert pf.autograd.gradcheck(first(lambda a: F.fold(F.unfold(a[0], 2, padding=1) ** 2, (3, 4), 2, padding=1)), (x.detach().requires_grad_(),))


def test_native_functions():
    """Their further results are what the gradients need: means, and 1 / standard deviations."""
    x = pf.tensor(values(4, 6, 5))
    a = x.numpy().astype(np.float64)
    y, mean, rstd = pf.native_layer_norm(x, (6, 5), None, None, 1e-5)
    np.testing.assert_allclose(mean.numpy(), a.mean((1, 2), keepdims=True), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y.numpy(), (a - a.mean((1, 2), keepdims=True)) * rstd.numpy(), rtol=1e-4, atol=1e-5)
    y, mean, rstd = pf.native_group_norm(x, None, None, 4, 6, 5, 3, 1e-5)
    assert mean.shape == rstd.shape == (4, 3)
    np.testing.assert_allclose(rstd.numpy(), 1 / np.sqrt(a.reshape(4, 3, -1).var(-1) + 1e-5), rtol=1e-4)
    y, mean, rstd = pf.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    np.testing.assert_allclose(y.numpy(), (a - mean.numpy()[:, None]) * rstd.numpy()[:, None], rtol=1e-4, atol=1e-4)
    y, kept = pf.native_dropout(pf.ones(1000), 0.25, True)
    assert set(y.tolist()) == {0.0, y.max().item()} and kept.dtype == pf.bool_ and abs(y.max().item() - 4 / 3) < 1e-6
    assert pf.native_dropout_backward(pf.ones(1000), kept, 4 / 3).tolist() == y.tolist()


def test_embedding_with_bounds_and_frequencies():
    """Rows that are named and too long are shortened in place; a row's gradient is divided by how often it is named."""
    table, index = RNG.standard_normal((5, 3)).astype(np.float32) * 3, np.array([[0, 2], [2, 4]])
    weight = pf.tensor(table)
    y = F.embedding(pf.tensor(index), weight, max_norm=1.0)
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    want = np.where(np.isin(np.arange(5), index)[:, None] & (lengths > 1), table / lengths, table)
    np.testing.assert_allclose(weight.numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(y.numpy(), want[index], rtol=1e-5)
    weight = pf.tensor(table, requires_grad=True)
    F.embedding(pf.tensor(index), weight, scale_grad_by_freq=True).sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), np.isin(np.arange(5), index)[:, None] * np.ones((5, 3)), rtol=1e-6)


X4, X5 = pf.zeros(1, 2, 4, 4), pf.zeros(1, 2, 4, 4, 4)
WRONG = [
    (lambda: F.conv2d(X4, pf.zeros(2, 2, 3, 3), padding="some"), ValueError, "no such padding"),
    (lambda: F.conv3d(X5, pf.zeros(2, 2, 3, 3, 3), padding="same", stride=2), ValueError, "padding='same' with a stride"),
    (lambda: F.conv3d(X5, pf.zeros(2, 2, 3, 3, 3), padding="same", dilation=(1, 2)), ValueError, "dilation has the wrong length"),
    (lambda: F.conv3d(X5, pf.zeros(2, 2, 3, 3, 3), stride=(1, 2)), ValueError, "stride needs one number or three"),
    (lambda: F.conv3d(X4, pf.zeros(2, 2, 3, 3)), ValueError, "conv3d: wrong rank"),
    (lambda: F.conv3d(X5, pf.zeros(2, 3, 3, 3, 3)), ValueError, "conv3d: input channels do not fit"),
    (lambda: F.conv3d(X5, pf.zeros(2, 2, 5, 3, 3)), ValueError, "conv3d: the kernel is larger"),
    (lambda: F.conv3d(X5, pf.zeros(2, 2, 3, 0, 3)), ValueError, "conv3d: empty kernel"),
    (lambda: F.conv3d(X5, pf.zeros(2, 2, 3, 3, 3), pf.zeros(3)), ValueError, "conv3d: the bias does not fit"),
    (lambda: F.conv_transpose1d(pf.zeros(1, 2, 4), pf.zeros(2, 2, 3), output_padding=1), ValueError, "conv_transpose1d: wrong output_padding"),
    (lambda: F.conv_transpose3d(X5, pf.zeros(2, 2, 1, 1, 1), padding=2), ValueError, "conv_transpose3d: the result would be empty"),
    (lambda: nn.Conv2d(2, 2, 3, padding="some"), ValueError, "no such padding"),
    (lambda: nn.Conv3d(2, 2, 3, stride=2, padding="same"), ValueError, "padding 'same' is not possible"),
    (lambda: nn.ConvTranspose3d(2, 2, 3, padding="same"), ValueError, "no such padding"),
    (lambda: nn.ConvTranspose1d(2, 2, 3, padding_mode="circular"), ValueError, "no such padding_mode"),
    (lambda: nn.MaxPool3d((2, 2)), ValueError, "needs one number or three"),
    (lambda: nn.MaxPool3d("a"), TypeError, "not sizes"),
    (lambda: F.max_pool3d(X4[0], 2), ValueError, "wrong rank"),
    (lambda: F.max_pool2d(pf.zeros(1, 0, 4, 4), 2), ValueError, "an empty dim besides the batch"),
    (lambda: F.max_pool2d(X4, (2, 2, 2)), ValueError, "kernel_size has the wrong length"),
    (lambda: F.avg_pool2d(X4, 2, divisor_override=0), ValueError, "divisor_override is 0"),
    (lambda: F.adaptive_max_pool2d(X4, (1, 2, 3)), ValueError, "output_size has the wrong length"),
    (lambda: F.adaptive_max_pool2d(X4, 0), ValueError, "an empty output"),
    (lambda: nn.AdaptiveMaxPool1d(2**70)(X4[0]), ValueError, f"adaptive_max_pool1d: the output is too large; got output_size {2**70}"),
    (lambda: pf.max_pool2d_with_indices_backward(X4, X4[0, 0], 2, 2, 0, 1, False, X4.long()), ValueError, "max_pool2d_with_indices_backward: self has another number of dims"),
    (lambda: pf.max_pool2d_with_indices_backward(X4[:, :1], X4, 2, 2, 0, 1, False, X4[:, :1].long()), ValueError, "max_pool2d_with_indices_backward: grad_output does not fit self"),
    (lambda: pf.max_pool2d_with_indices_backward(X4[..., :2], X4, 2, 2, 0, 1, False, X4[..., :1].long()), ValueError, "max_pool2d_with_indices_backward: the indices do not fit"),
    (lambda: F.fractional_max_pool2d(X4, 2), ValueError, "not one of output_size and output_ratio"),
    (lambda: nn.FractionalMaxPool3d(2), ValueError, "not one of output_size and output_ratio"),
    (lambda: F.fractional_max_pool2d(X4, 2, output_ratio=1.5), ValueError, "output_ratio is out of range"),
    (lambda: F.fractional_max_pool2d(X4, 3, 3), ValueError, "the windows do not fit"),
    (lambda: F.fractional_max_pool2d(X4, 2, 2, _random_samples=pf.zeros(1, 2, 3)), ValueError, "_random_samples has the wrong shape"),
    (lambda: F.max_unpool2d(X4, pf.zeros(1, 2, 4, 3, dtype=pf.int64), 2), ValueError, "shapes differ"),
    (lambda: F.max_unpool2d(X4, X4, 2), TypeError, "not int64"),
    (lambda: F.max_unpool2d(X4, X4.long(), 2, output_size=(20, 8)), ValueError, "output_size does not fit"),
    (lambda: F.unfold(pf.zeros(4), 2), ValueError, "unfold: wrong rank"),
    (lambda: F.unfold(X4, 0), ValueError, "unfold: a size is not positive"),
    (lambda: F.unfold(X4, 2, padding=-1), ValueError, "unfold: padding is negative"),
    (lambda: F.unfold(X4, 5), ValueError, "unfold: no window fits"),
    (lambda: F.fold(pf.zeros(1, 8, 5), 4, 2), ValueError, "fold: the columns do not fit"),
    (lambda: F.grid_sample(X4, pf.zeros(1, 2, 2, 2), "cubic"), ValueError, "no such mode"),
    (lambda: F.grid_sample(X4, pf.zeros(1, 2, 2, 2), padding_mode="wrap"), ValueError, "no such padding_mode"),
    (lambda: F.grid_sample(X4, pf.zeros(1, 2, 2, 3)), ValueError, "input and grid do not fit"),
    (lambda: F.grid_sample(X4, pf.zeros(1, 2, 2, 2, dtype=pf.float64)), TypeError, "dtypes differ"),
    (lambda: F.grid_sample(pf.zeros(1, 2, 0, 4), pf.zeros(1, 2, 2, 2)), ValueError, "without elements"),
    (lambda: F.affine_grid(pf.zeros(1, 2, 2), (1, 1, 4, 4)), ValueError, "theta does not fit"),
    (lambda: F.affine_grid(pf.zeros(1, 2, 3), (1, 1, 0, 4)), ValueError, "an empty size"),
    (lambda: nn.ZeroPad2d((1, 2)), ValueError, "the padding has the wrong length"),
]


@pytest.mark.parametrize("call, error, text", WRONG, ids=[f"{i}" for i in range(len(WRONG))])
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
