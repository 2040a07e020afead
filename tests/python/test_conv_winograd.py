"""3x3 convolutions of stride 1 by Winograd's algorithm (cpu.conv_winograd) against float64, and what infinities and NaN do to them."""

import contextlib
import os

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn.functional as F
from pyflame.testing.cases.conv import conv2d
from pyflame.testing.tolerance import differences

ENTRY = "cpu.conv_winograd"


@contextlib.contextmanager
def forced(entry, *ops):
    with contextlib.ExitStack() as stack:
        for op in ops or ("conv2d",):
            stack.enter_context(pf.tuning.force(op, entry))
        yield


def last(x):
    return pf.tensor(np.asarray(x, np.float32)).to(memory_format=pf.channels_last)


def convolved(x, w, padding=1, entry=ENTRY, bias=None):
    with forced(entry), pf.no_grad():
        return F.conv2d(last(x), pf.tensor(np.asarray(w, np.float32)), None if bias is None else pf.tensor(bias), padding=padding).numpy()


def random(seed, *shapes):
    g = np.random.default_rng(seed)
    return [g.standard_normal(s).astype(np.float32) for s in shapes]


def right(actual, x, w, padding, bias=None):
    """Within the tolerance of the case table: it is relative to the terms of each result."""
    wide = [np.asarray(v, np.float64) for v in (x, w)]
    b = np.zeros(w.shape[0]) if bias is None else bias
    expected = conv2d(*wide, b, padding=padding)
    size = conv2d(np.abs(wide[0]), np.abs(wide[1]), np.abs(b), padding=padding)
    assert not (text := differences(actual, expected, "float32", 3, size, w.shape[1] * 9 + 1)), text


# Odd and even sizes, less padding than the kernel reaches and more, channels that are no multiple of a vector, several chunks of channels
# (64 of weights, 256 of products), and images that share a call.
@pytest.mark.parametrize("n, c, h, w, o, padding", [
    (2, 64, 12, 14, 64, (1, 1)), (2, 64, 13, 11, 64, (1, 1)), (2, 64, 13, 12, 64, (0, 0)), (3, 61, 15, 10, 64, (2, 0)), (2, 75, 17, 9, 128, (3, 1)),
    (1, 64, 24, 26, 32, (0, 1)), (8, 131, 7, 7, 64, (1, 1)), (6, 300, 6, 5, 64, (1, 1)), (40, 64, 6, 6, 64, (1, 1)),
])
def test_values(n, c, h, w, o, padding):
    x, weight, bias = random(0, (n, c, h, w), (o, c, 3, 3), (o,))
    right(convolved(x, weight, padding), x, weight, padding)
    right(convolved(x, weight, padding, bias=bias), x, weight, padding, bias)


def test_weights_in_either_order():
    x, w = random(1, (2, 72, 12, 12), (64, 72, 3, 3))
    with forced(ENTRY), pf.no_grad():
        y = F.conv2d(last(x), last(w), padding=1).numpy()
    np.testing.assert_array_equal(y, convolved(x, w))


@pytest.mark.parametrize("padding", [(1, 1), (0, 0), (2, 1)])
def test_gradients(padding):
    """The gradient of the input is the same algorithm on the mirrored weights."""
    x, w = random(2, (2, 64, 13, 12), (67, 64, 3, 3))
    gh, gw = 13 + 2 * padding[0] - 2, 12 + 2 * padding[1] - 2
    g, = random(3, (2, 67, gh, gw))
    a = last(x).requires_grad_()
    with forced(ENTRY, "conv2d_grad_input"):
        F.conv2d(a, pf.tensor(w), padding=padding).backward(last(g))
        dx = a.grad.numpy()
    right(dx, g, w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1], tuple(2 - p for p in padding))


def weight_gradient(x, w, g, padding=1, entry=ENTRY, last_weight=False):
    b = (last(w) if last_weight else pf.tensor(np.asarray(w, np.float32))).requires_grad_()
    with forced(entry, "conv2d_grad_weight"):
        F.conv2d(last(x), b, padding=padding).backward(last(g))
        return b.grad.numpy()


def summed(x, g, padding):
    """The gradient of 3x3 weights in float64."""
    n, c, h, w = x.shape
    wide = np.zeros((n, c, h + 2 * padding[0], w + 2 * padding[1]))
    wide[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w] = x
    rows, columns = g.shape[2:]
    taps = [np.tensordot(g.astype(np.float64), wide[:, :, i : i + rows, j : j + columns], ([0, 2, 3], [0, 2, 3])) for i in range(3) for j in range(3)]
    return np.stack(taps, -1).reshape(g.shape[1], c, 3, 3)


# Few channels, whose tiles are divided between threads, and many, for which all threads share a chunk; channels that are no multiple of a vector, odd
# sizes, more padding than the taps reach, several chunks.
@pytest.mark.parametrize("n, c, h, w, o, padding", [
    (2, 64, 12, 14, 64, (1, 1)), (3, 61, 15, 10, 37, (0, 0)), (1, 33, 19, 9, 70, (2, 1)), (5, 32, 40, 31, 48, (1, 1)), (8, 131, 7, 7, 150, (1, 1)), (2, 98, 54, 54, 100, (1, 1)),
])
def test_gradients_of_weights(n, c, h, w, o, padding):
    x, weight, g = random(12, (n, c, h, w), (o, c, 3, 3), (n, o, h + 2 * padding[0] - 2, w + 2 * padding[1] - 2))
    expected, size = summed(x, g, padding), summed(np.abs(x), np.abs(g), padding)
    for last_weight in (False, True):
        actual = weight_gradient(x, weight, g, padding, last_weight=last_weight)
        assert not (text := differences(actual, expected, "float32", 3, size, n * g.shape[2] * g.shape[3])), text


@pytest.mark.parametrize("channels", [64, 160])
def test_gradients_of_weights_with_any_number_of_threads(channels):
    x, w, g = random(13, (6, channels, 18, 22), (channels, channels, 3, 3), (6, channels, 18, 22))
    before, results = pf.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            pf.set_num_threads(threads)
            results.append(weight_gradient(x, w, g))
    finally:
        pf.set_num_threads(before)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_gradients_of_weights_that_are_not_finite():
    """An infinity among the pixels reaches the taps that read it, with its sign; the other channels have their numbers."""
    x, w, g = random(14, (2, 64, 12, 12), (64, 64, 3, 3), (2, 64, 12, 12))
    x[0, 3, 0, 0], g[1, 5, 6, 6] = np.inf, np.nan
    for last_weight in (False, True):
        actual, plain = (weight_gradient(x, w, g, entry=e, last_weight=last_weight) for e in (ENTRY, "cpu.conv_unfold"))
        finite = np.isfinite(plain)
        np.testing.assert_array_equal(actual[~finite], plain[~finite])
        np.testing.assert_allclose(actual[finite], plain[finite], rtol=1e-3, atol=1e-3)
        assert not finite[:, 3, 1, 1].any() and finite[6, 3, 2, 2] and not finite[5].any()  # tap (2, 2) does not read the corner


def test_what_the_gradient_of_weights_does_not_take():
    image = pf.zeros(2, 64, 12, 12).to(memory_format=pf.channels_last)
    for x, w, options in ((image, pf.zeros(64, 64, 3, 3), {"stride": 2}), (image, pf.zeros(64, 64, 3, 1), {}), (image, pf.zeros(64, 32, 3, 3), {"groups": 2}),
                          (image[:, :4].contiguous(memory_format=pf.channels_last), pf.zeros(8, 4, 3, 3), {})):
        w.requires_grad_()
        with pytest.raises(NotImplementedError, match="another implementation is forced"), forced(ENTRY, "conv2d_grad_weight"):
            F.conv2d(x, w, **options).sum().backward()
            w.grad.numpy()


def test_what_follows_is_fused():
    x, w, scale, shift, other = random(4, (2, 64, 12, 12), (64, 64, 3, 3), (64, 1, 1), (64, 1, 1), (2, 64, 12, 12))
    def block():
        return F.relu(F.conv2d(last(x), pf.tensor(w), padding=1) * pf.tensor(scale) + pf.tensor(shift) + last(other))
    with forced(ENTRY), pf.no_grad():
        text, y = str(pf.explain(lambda: block().sum().item())), block().numpy()
    if os.environ.get("PYFLAME_WINDOW") != "1":
        assert f"{ENTRY}, conv2d with epilogue" in text, text
    plain = convolved(x, w)
    np.testing.assert_allclose(y, np.maximum(plain * scale + shift + other, 0), rtol=1e-5, atol=1e-4)


def test_any_number_of_threads():
    x, w = random(11, (6, 96, 9, 11), (64, 96, 3, 3))
    x[4, 0, 0, 0] = np.inf
    before, results = pf.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            pf.set_num_threads(threads)
            results.append(convolved(x, w))
    finally:
        pf.set_num_threads(before)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_half_types():
    x, w = random(5, (2, 64, 12, 12), (64, 64, 3, 3))
    a, b = last(x).to(pf.bfloat16), pf.tensor(w).to(pf.bfloat16)
    with forced(ENTRY), pf.no_grad():
        y = F.conv2d(a, b, padding=1).to(pf.float32).numpy()
    wide = [v.to(pf.float32).numpy().astype(np.float64) for v in (a, b)]
    size = conv2d(np.abs(wide[0]), np.abs(wide[1]), padding=(1, 1))
    assert not (text := differences(y, conv2d(*wide, padding=(1, 1)), "bfloat16", 3, size, 64 * 9)), text


def same_but_rounding(x, w, bias=None):
    """Where the taps give an infinity or NaN, the same one; elsewhere nearly the same number. Returns which results are finite."""
    y, plain = convolved(x, w, bias=bias), convolved(x, w, bias=bias, entry="cpu.conv_taps")
    finite = np.isfinite(plain)
    np.testing.assert_array_equal(y[~finite], plain[~finite])
    np.testing.assert_allclose(y[finite], plain[finite], rtol=1e-3, atol=1e-3)
    return finite


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("at", [(4, 4), (5, 6), (0, 0), (12, 11)])
def test_one_pixel_that_is_not_finite(value, at):
    """Only the nine results that read it are not finite, and they are what a plain convolution gives."""
    x, w = random(6, (2, 64, 13, 12), (64, 64, 3, 3))
    x[1, 3, at[0], at[1]] = value
    finite = same_but_rounding(x, w)
    reads = np.zeros(finite.shape, bool)
    reads[1, :, max(at[0] - 1, 0) : at[0] + 2, max(at[1] - 1, 0) : at[1] + 2] = True
    np.testing.assert_array_equal(finite, ~reads)


def test_infinities_of_both_signs_and_weights_of_zero():
    x, w = random(7, (2, 64, 12, 12), (64, 64, 3, 3))
    x[0, 0, 3, 3], x[0, 1, 3, 4], x[1, 5] = np.inf, -np.inf, np.nan
    w[2] = 0
    same_but_rounding(x, w)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite(value):
    x, w, bias = random(8, (2, 64, 12, 12), (64, 64, 3, 3), (64,))
    w[5, 7, 0, 1] = value
    bias[9] = value
    finite = same_but_rounding(x, w, bias)
    assert finite[:, [c for c in range(64) if c not in (5, 9)]].all() and not finite[:, 9].any()


def test_pixels_whose_sums_overflow():
    """The algorithm adds four pixels before it multiplies. A plain convolution of these has finite results, and so has this one."""
    x, w = random(9, (2, 64, 12, 12), (64, 64, 3, 3))
    x[0, 0, 2:6, 2:6] = np.float32(2e38) * np.array([[1, -1, 1, -1], [1, -1, 1, -1], [-1, 1, -1, 1], [-1, 1, -1, 1]], np.float32)
    w[:, 0] = 0
    w[:, 0, 1, 1] = 1e-30
    assert same_but_rounding(x, w).all()


def test_gradients_that_are_not_finite():
    x, w, g = random(10, (2, 64, 12, 12), (64, 64, 3, 3), (2, 64, 12, 12))
    g[0, 1, 6, 6] = np.inf
    a = last(x).requires_grad_()
    with forced(ENTRY, "conv2d_grad_input"):
        F.conv2d(a, pf.tensor(w), padding=1).backward(last(g))
    expected = np.ones(x.shape, bool)
    expected[0, :, 5:8, 5:8] = False
    np.testing.assert_array_equal(np.isfinite(a.grad.numpy()), expected)


def test_what_it_does_not_take():
    """Another stride, dilation or kernel, planes, too few channels, and images so small that the transforms do not pay."""
    w = pf.zeros(64, 64, 3, 3)
    image = pf.zeros(2, 64, 12, 12).to(memory_format=pf.channels_last)
    for refused in (
        lambda: F.conv2d(image, w, stride=2), lambda: F.conv2d(image, w, dilation=2), lambda: F.conv2d(image, pf.zeros(64, 64, 3, 5)),
        lambda: F.conv2d(image, pf.zeros(60, 64, 3, 3)), lambda: F.conv2d(image.to(pf.float64), w.to(pf.float64)),
        lambda: F.conv2d(image[:, :8].contiguous(memory_format=pf.channels_last), pf.zeros(64, 8, 3, 3)),
        lambda: F.conv2d(pf.zeros(1, 512, 3, 3).to(memory_format=pf.channels_last), pf.zeros(512, 512, 3, 3), padding=1),
    ):
        with pytest.raises(NotImplementedError, match="another implementation is forced"), forced(ENTRY), pf.no_grad():
            refused().numpy()
