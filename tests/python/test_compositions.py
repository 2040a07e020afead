"""Functions that are composed of others: what they refuse, and what is special about them. The tables pyflame.testing.cases compare them with NumPy
and tools/opinfo.py with PyTorch, gradients included."""
import itertools
import math

import numpy as np
import pytest

import pyflame as pf

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 5)).astype(np.float32), RNG.standard_normal((4, 5)).astype(np.float32)


def test_triangles_of_each_size_and_offset():
    for row, col, offset in itertools.product((0, 1, 3, 5), (0, 1, 4, 6), (-7, -2, -1, 0, 1, 3, 8)):
        np.testing.assert_array_equal(pf.tril_indices(row, col, offset).numpy(), np.stack(np.tril_indices(row, offset, col)))
        np.testing.assert_array_equal(pf.triu_indices(row, col, offset).numpy(), np.stack(np.triu_indices(row, offset, col)))


def test_views_share_memory():
    x = pf.zeros(3, 4)
    x.diagonal(1).fill_(1.0)
    x[1:].diagonal().add_(2.0)
    np.testing.assert_array_equal(x.numpy(), np.eye(3, 4, 1) + 2 * np.eye(3, 4, -1))
    assert pf.arange(7).unfold(0, 3, 2).tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]


def test_gradients_at_corners():
    """Where a formula has no gradient, it is 0 and not NaN."""
    for function in (pf.sinc, lambda x: pf.norm(x, 2, 0), lambda x: pf.cdist(x.reshape(1, 3), x.detach().reshape(1, 3)), lambda x: pf.xlogy(x, 0.0)):
        x = pf.zeros(3, requires_grad=True)
        function(x).sum().backward()
        assert pf.isfinite(x.grad).all().item()


def test_derivatives_of_sinc_near_zero():
    for dtype, tolerance in ((pf.float64, 1e-12), (pf.float32, 1e-5)):
        values = np.array([0.0, 1e-20, -1e-8, 1e-4, 1e-3, 0.05, 0.0955], np.float64)
        x = pf.tensor(values, dtype=dtype, requires_grad=True)
        (slope,) = pf.autograd.grad(pf.sinc(x).sum(), x, create_graph=True)
        (bend,) = pf.autograd.grad(slope.sum(), x)
        a = np.pi * values
        np.testing.assert_allclose(slope.detach().numpy(), -np.pi * (a / 3 - a**3 / 30 + a**5 / 840 - a**7 / 45360 + a**9 / 3991680), rtol=tolerance)
        np.testing.assert_allclose(bend.numpy(), -np.pi**2 * (1 / 3 - a**2 / 10 + a**4 / 168 - a**6 / 6480 + a**8 / 443520), rtol=10 * tolerance)
    assert pf.autograd.gradgradcheck(pf.sinc, (pf.tensor([0.0, 0.05, 0.3, 2.2], dtype=pf.float64, requires_grad=True),))


def test_gradient_of_logit():
    values = np.array([0.0, 1e-30, 0.3, 0.5, 1 - 1e-7, 1.0])
    for eps, want in ((None, np.array([np.inf, 1e30, 1 / 0.21, 4, 1 / (1e-7 * (1 - 1e-7)), np.inf])), (0.4, np.array([0, 0, 0, 4, 0, 0]))):
        x = pf.tensor(values, dtype=pf.float64, requires_grad=True)
        pf.logit(x, eps).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-8)


ERRORS = [
    (lambda: pf.broadcast_shapes((2,), (3,)), RuntimeError, r"broadcast_shapes: the shapes do not broadcast; got \(2,\), \(3,\)"),
    (lambda: pf.ones(2, 2).movedim(0, 2), IndexError, "movedim: no such dim; got 2"),
    (lambda: pf.ones(2, 2).movedim((0, 0), (0, 1)), ValueError, "movedim: not one destination"),
    (lambda: pf.ones(4).unflatten(0, (3, 2)), ValueError, r"unflatten: the sizes do not multiply to the dim's; got \(3, 2\) for 4"),
    (lambda: pf.tensor_split(pf.ones(4), 0), ValueError, "tensor_split: no parts; got 0"),
    (lambda: pf.tensor(1.0).hsplit(1), ValueError, "hsplit: too few dims; got shape ..; expected at least 1"),
    (lambda: pf.ones(4).vsplit(2), ValueError, "vsplit: too few dims; got shape .4,.; expected at least 2"),
    (lambda: pf.ones(2, 2).dsplit(2), ValueError, "dsplit: too few dims; got shape .2, 2.; expected at least 3"),
    (lambda: pf.ones(5).hsplit(2), ValueError, "hsplit: the dim does not divide into equal parts; got 5 for 2 parts"),
    (lambda: pf.ones(2, 2).repeat(2), ValueError, "repeat: fewer repeats than dims"),
    (lambda: pf.repeat_interleave(pf.ones(3), pf.tensor([1, 2])), ValueError, r"repeat_interleave: not one number for each slice; got \(2,\) for 3"),
    (lambda: pf.repeat_interleave(pf.ones(3), pf.tensor([1, -2, 1])), RuntimeError, "repeat_interleave: repeats are negative; got -2; expected numbers from 0"),
    (lambda: pf.repeat_interleave(pf.ones(3), -1), RuntimeError, "repeat_interleave: repeats are negative; got -1"),
    (lambda: pf.repeat_interleave(pf.ones(3), pf.tensor([1, 2, 1]), output_size=5), RuntimeError, "repeat_interleave: output_size does not fit; got 5; expected 4"),
    (lambda: pf.repeat_interleave(pf.ones(3), 2, output_size=5), RuntimeError, "repeat_interleave: output_size does not fit; got 5; expected 6"),
    (lambda: pf.native_dropout(pf.ones(3), 1.5, True), ValueError, "native_dropout: p is out of range; got 1.5; expected 0 to 1"),
    (lambda: pf.utils.checkpoint.checkpoint_sequential([pf.sin, pf.cos], 3, pf.ones(2)), ValueError, "checkpoint_sequential: segments is out of range; got 3; expected 1 to 2"),
    (lambda: pf.utils.checkpoint.checkpoint_sequential([pf.sin, pf.cos], 2, pf.ones(2), preserve_rng_state=False), NotImplementedError, "preserve_rng_state=False is not available"),
    (lambda: pf.utils.checkpoint.checkpoint_sequential([pf.sin], 1, pf.ones(2), other=1), ValueError, "checkpoint_sequential: unknown arguments; got other"),
    (lambda: pf.flip(pf.ones(2), (0, 0)), ValueError, "flip: a dim is named twice"),
    (lambda: pf.roll(pf.ones(2), (1, 2), 0), ValueError, "roll: not one shift for each dim"),
    (lambda: pf.rot90(pf.ones(2, 2), 1, (0, 0)), ValueError, "rot90: not two dims"),
    (lambda: pf.diagonal(pf.ones(2, 2), 0, 1, 1), ValueError, "diagonal: not two dims"),
    (lambda: pf.diag(pf.ones(2, 2, 2)), ValueError, "diag: neither a vector nor a matrix"),
    (lambda: pf.meshgrid(pf.ones(2, 2)), ValueError, r"meshgrid: not a vector; got shape \(2, 2\)"),
    (lambda: pf.cartesian_prod(pf.ones(2), pf.ones(1, 2)), ValueError, r"^cartesian_prod: not a vector; got shape \(1, 2\)"),
    (lambda: pf.block_diag(pf.ones(1, 1, 1)), ValueError, r"block_diag: more than two dims; got shape \(1, 1, 1\)"),
    (lambda: pf.cross(pf.ones(3), pf.ones(3), 1), IndexError, "cross: dim out of range; got 1; expected -1 <= dim < 1"),
    (lambda: pf.cross(pf.tensor(1.0), pf.tensor(1.0)), RuntimeError, "cross: not vectors of three; got two single numbers"),
    (lambda: pf.diff(pf.ones(3), dim=1), IndexError, "diff: dim out of range; got 1"),
    (lambda: pf.diff(pf.tensor(1.0)), RuntimeError, "diff: a single number has no neighbours"),
    (lambda: pf.trapezoid(pf.ones(3), dim=1), IndexError, "trapezoid: dim out of range; got 1"),
    (lambda: pf.cumulative_trapezoid(pf.ones(3), dim=1), IndexError, "^cumulative_trapezoid: dim out of range; got 1"),
    (lambda: pf.cumulative_trapezoid(pf.tensor(1.0)), RuntimeError, "^cumulative_trapezoid: a single number has no neighbours"),
    (lambda: pf.index_fill(pf.ones(3), 1, pf.tensor([0]), 1), IndexError, "index_fill: dim out of range; got 1"),
    (lambda: pf.nn.functional.glu(pf.ones(2), 1), IndexError, "glu: dim out of range; got 1"),
    (lambda: pf.einsum("i,i", pf.ones(2), pf.tensor([1, 2])), TypeError, "^einsum: dtypes differ; got float32 and int64"),
    (lambda: pf.combinations(pf.ones(2), -1), ValueError, "combinations: r is negative; got -1; expected 0 or more"),
    (lambda: pf.combinations(pf.ones(2, 2)), RuntimeError, r"combinations: not a vector; got shape \(2, 2\)"),
    (lambda: pf.vander(pf.ones(2, 2)), RuntimeError, r"vander: not a vector; got shape \(2, 2\)"),
    (lambda: pf.vander(pf.ones(2), -1), RuntimeError, "vander: a negative number of columns; got -1"),
    (lambda: pf.diff(pf.ones(2), n=-1), RuntimeError, "diff: a negative order; got -1"),
    (lambda: pf.std_mean(pf.ones(2), unbiased=True, correction=1), TypeError, "std_mean: both unbiased and correction; got True and 1"),
    (lambda: pf.var_mean(pf.ones(2), 0, False, correction=0), TypeError, "var_mean: both unbiased and correction; got False and 0"),
    (lambda: pf.std(pf.ones(2), unbiased=True, correction=1), TypeError, "std: both unbiased and correction; got True and 1"),
    (lambda: pf.ones(2).var(0, True, correction=1), TypeError, "var: both unbiased and correction"),
    (lambda: pf.ones(2).std(True, correction=1), TypeError, "std: both unbiased and correction"),
    (lambda: pf.trace(pf.ones(2)), ValueError, "trace: not a matrix"),
    (lambda: pf.ones(3).unfold(0, 4, 1), ValueError, "unfold: no such slices; got size 4"),
    (lambda: pf.meshgrid(pf.ones(2), indexing="yx"), ValueError, "meshgrid: unknown indexing; got 'yx'"),
    (lambda: pf.heaviside(pf.ones(2), pf.tensor([1, 2])), RuntimeError, "heaviside: two dtypes"),
    (lambda: pf.isclose(pf.ones(2), pf.tensor([1, 2])), RuntimeError, "isclose: two dtypes"),
    (lambda: pf.positive(pf.ones(2, dtype=pf.bool)), TypeError, "positive: not defined for bool"),
    (lambda: pf.mv(pf.ones(2), pf.ones(2)), RuntimeError, "mv: not a matrix and a vector"),
    (lambda: pf.addr(pf.ones(2, 2), pf.ones(2, 1), pf.ones(2)), RuntimeError, "addr: not two vectors"),
    (lambda: pf.inner(pf.ones(2), pf.ones(3)), RuntimeError, "inner: the last dims differ"),
    (lambda: pf.cross(pf.ones(2), pf.ones(2)), RuntimeError, "cross: not vectors of three"),
    (lambda: pf.tensordot(pf.ones(2, 3), pf.ones(4, 5), 1), RuntimeError, "tensordot: the dims do not fit"),
    (lambda: pf.tensordot(pf.ones(2), pf.ones(2), 2), RuntimeError, "tensordot: no such number of dims"),
    (lambda: pf.matrix_power(pf.ones(2, 3), 2), RuntimeError, "matrix_power: not square matrices"),
    (lambda: pf.cdist(pf.ones(2, 3), pf.ones(2, 4)), RuntimeError, "cdist: no rows of one length"),
    (lambda: pf.cdist(pf.ones(2, 3), pf.ones(2, 3), p=-1), RuntimeError, "cdist: a negative norm"),
    (lambda: pf.cov(pf.ones(2, 2, 2)), RuntimeError, "cov: more than two dims"),
    (lambda: pf.cov(pf.ones(2, 2), fweights=pf.tensor([1, -1])), RuntimeError, r"cov: a negative weight; got fweights = \[1, -1\]"),
    (lambda: pf.cov(pf.ones(2, 2), aweights=pf.tensor([1, -1.0])), RuntimeError, "cov: a negative weight; got aweights"),
    (lambda: pf.cov(pf.ones(2, 2), aweights=pf.tensor([1, float("nan")])), RuntimeError, "cov: a negative weight; got aweights"),
    (lambda: pf.cov(pf.ones(2, 2), aweights=pf.tensor([0.0, 0.0])), RuntimeError, "cov: the weights sum to zero"),
    (lambda: pf.cov(pf.ones(2, 2), aweights=pf.tensor([1, 1])), RuntimeError, "cov: wrong dtype of aweights; got pyflame.int64; expected a floating dtype"),
    (lambda: pf.cov(pf.ones(2, 2), fweights=pf.ones(2)), RuntimeError, "cov: wrong dtype of fweights; got pyflame.float32; expected integers"),
    (lambda: pf.cov(pf.ones(2, 2), fweights=pf.tensor([1, 2, 3])), RuntimeError, r"cov: fweights is not a vector with a weight for each observation; got shape \(3,\); expected \(2,\)"),
    (lambda: pf.div(pf.ones(2), 2, rounding_mode="up"), ValueError, "div: unknown rounding_mode; got 'up'"),
    (lambda: pf.round(pf.tensor([1, 2]), decimals=1), RuntimeError, "round: decimals of integers"),
]


@pytest.mark.parametrize("which", range(len(ERRORS)))
def test_errors(which):
    call, kind, text = ERRORS[which]
    with pytest.raises(kind, match=text):
        call()


def test_losses_of_a_number_and_of_one_sample():
    F = pf.nn.functional
    x, y = pf.tensor(A), pf.tensor(B)
    np.testing.assert_allclose(F.gaussian_nll_loss(x, y, 2.0).numpy(), (0.5 * (math.log(2) + (A - B) ** 2 / 2)).mean(), rtol=1e-5)
    np.testing.assert_allclose(F.multilabel_margin_loss(pf.tensor([0.1, 0.2, 0.4, 0.8]), pf.tensor([3, 0, -1, 1])).numpy(), 0.85, rtol=1e-5)


def test_rearrangements_are_each_others_inverse():
    F = pf.nn.functional
    x = pf.randn(2, 8, 3, 4)
    y = F.pixel_shuffle(x, 2)
    assert tuple(y.shape) == (2, 2, 6, 8) and pf.equal(F.pixel_unshuffle(y, 2), x)
    assert y[0, 0, 1, 0].item() == x[0, 2, 0, 0].item()
    assert pf.equal(F.channel_shuffle(F.channel_shuffle(x, 2), 4), x)


def test_masks_of_channels():
    """A channel is whole or zero, and while not training nothing changes."""
    for layer, shape in ((pf.nn.Dropout1d(0.5), (64, 8, 3)), (pf.nn.Dropout2d(0.5), (64, 8, 3, 2)), (pf.nn.Dropout3d(0.5), (64, 8, 3, 2, 2))):
        x = pf.ones(*shape)
        sums = layer(x).reshape(64, 8, -1).mean(-1)
        assert set(sums.reshape(-1).tolist()) == {0.0, 2.0}
        assert pf.equal(layer.eval()(x), x)
    y = pf.nn.AlphaDropout(0.3)(pf.randn(200, 500))
    assert abs(y.mean().item()) < 0.05 and abs(y.std().item() - 1) < 0.05


def test_running_statistics_of_instances():
    x = pf.randn(3, 4, 5, 6)
    running = pf.zeros(4), pf.ones(4)
    pf.nn.functional.instance_norm(x, *running)
    np.testing.assert_allclose(running[0].numpy(), 0.1 * x.numpy().mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(running[1].numpy(), 0.9 + 0.1 * x.numpy().var((2, 3), ddof=1).mean(0), rtol=1e-4)


def attention(F, size, heads, out=None):
    x = pf.ones(2, 1, size)
    return F.multi_head_attention_forward(x, x, x, size, heads, pf.ones(3 * size, size), None, None, None, False, 0.0, pf.ones(size, size) if out is None else out, None)


LAYER_ERRORS = [
    (lambda F: F.multi_margin_loss(pf.ones(2, 2), pf.tensor([0, 1]), p=3), "multi_margin_loss: only p = 1 and p = 2; got 3"),
    (lambda F: F.gaussian_nll_loss(pf.ones(2), pf.ones(2), -1.0), "gaussian_nll_loss: a negative variance"),
    (lambda F: F.softshrink(pf.ones(2), -1), "softshrink: a negative lambd"),
    (lambda F: F.dropout2d(pf.ones(2), 0.5), "dropout2d: wrong rank"),
    (lambda F: F.alpha_dropout(pf.ones(2), 1.5), "alpha_dropout: the probability is out of range; got 1.5"),
    (lambda F: F.pixel_shuffle(pf.ones(3, 2, 2), 2), "pixel_shuffle: the channels do not divide"),
    (lambda F: F.pixel_unshuffle(pf.ones(3, 3, 2), 2), "pixel_unshuffle: height and width do not divide"),
    (lambda F: F.channel_shuffle(pf.ones(1, 3, 2), 2), "channel_shuffle: the groups do not divide"),
    (lambda F: F.instance_norm(pf.ones(2, 3)), "instance_norm: no dims after the channels"),
    (lambda F: F.instance_norm(pf.ones(2, 3, 1)), "instance_norm: one value for each channel has no variance"),
    (lambda F: F.local_response_norm(pf.ones(2, 3), 2), "local_response_norm: no dims after the channels"),
    (lambda F: attention(F, 0, 1), "multi_head_attention_forward: sizes do not fit; got query .2, 1, 0., embed_dim 0 and 1 heads"),
    (lambda F: attention(F, 4, 0), "multi_head_attention_forward: sizes do not fit; got query .2, 1, 4., embed_dim 4 and 0 heads"),
    (lambda F: attention(F, 4, 2, out=pf.ones(4)), "multi_head_attention_forward: out_proj_weight does not fit; got shape .4,.; expected a matrix with 4 columns"),
    (lambda F: F.margin_ranking_loss(pf.ones(2), pf.ones(2), pf.ones(2), reduction="all"), "margin_ranking_loss: unknown reduction; got 'all'"),
]


@pytest.mark.parametrize("which", range(len(LAYER_ERRORS)))
def test_layer_errors(which):
    call, text = LAYER_ERRORS[which]
    with pytest.raises((ValueError, RuntimeError), match=text):
        call(pf.nn.functional)


# By PyTorch 2.15, of [0, 1, 3, 7] and of the 3 x 3 image 0 to 8.
RESAMPLED = [
    ("linear", {"size": 6}, [0, 0.5, 1.3333, 2.6667, 5, 7]),
    ("linear", {"size": 6, "align_corners": True}, [0, 0.6, 1.4, 2.6, 4.6, 7]),
    ("linear", {"scale_factor": 0.5}, [0.5, 5]),
    ("nearest", {"size": 6}, [0, 0, 1, 3, 3, 7]),
    ("nearest-exact", {"size": 6}, [0, 1, 1, 3, 7, 7]),
    ("area", {"size": 2}, [0.5, 5]),
]


@pytest.mark.parametrize("which", range(len(RESAMPLED)))
def test_interpolate(which):
    mode, arguments, want = RESAMPLED[which]
    x = pf.tensor([[[0.0, 1.0, 3.0, 7.0]]])
    np.testing.assert_allclose(pf.nn.functional.interpolate(x, mode=mode, **arguments)[0, 0].numpy(), want, atol=1e-4)


# By PyTorch 2.15, of bytes in 5 rows and 6 columns: mode, antialias, size, the first and the last row.
BYTES = [
    ("bilinear", False, (3, 4), [62, 54, 109, 165], [140, 196, 123, 51]),
    ("bilinear", True, (3, 4), [68, 51, 104, 156], [149, 188, 108, 50]),
    ("bicubic", False, (3, 4), [57, 48, 113, 169], [135, 213, 123, 45]),
    ("bicubic", True, (3, 4), [66, 39, 110, 162], [147, 204, 103, 42]),
    ("bilinear", False, (2, 9), [167, 90, 18, 43, 68, 92, 117, 142, 160], [146, 165, 189, 214, 143, 60, 42, 57, 75]),
    ("bilinear", True, (2, 9), [141, 107, 69, 55, 65, 83, 108, 133, 151], [154, 167, 176, 162, 125, 83, 54, 65, 83]),
    ("bicubic", False, (2, 9), [192, 75, 0, 36, 73, 96, 117, 147, 165], [140, 155, 195, 251, 158, 40, 32, 51, 75]),
    ("bicubic", True, (2, 9), [143, 107, 64, 45, 55, 80, 112, 141, 158], [156, 172, 186, 170, 130, 82, 45, 58, 80]),
]


@pytest.mark.parametrize("mode, antialias, size, first, last", BYTES)
def test_interpolate_of_bytes(mode, antialias, size, first, last):
    x = (pf.arange(30) * 37 % 256).to(pf.uint8).reshape(1, 1, 5, 6)
    for images in (x, x.expand(2, 3, 5, 6).contiguous(memory_format=pf.channels_last)):
        y = pf.nn.functional.interpolate(images, size, mode=mode, antialias=antialias)
        assert y.dtype == pf.uint8 and y.shape == (*images.shape[:2], *size)
        assert y[-1, -1, 0].tolist() == first and y[0, 0, -1].tolist() == last


def test_bytes_of_a_dim_that_keeps_its_size_stay():
    x = (pf.arange(30) * 37 % 256).to(pf.uint8).reshape(1, 1, 5, 6)
    assert pf.equal(pf.nn.functional.interpolate(x, scale_factor=1.01, mode="bilinear"), x)


def test_interpolate_keeps_polynomials():
    """Linear modes keep planes, and the cubic one squares, away from the edges."""
    F = pf.nn.functional
    grid = np.arange(12.0)
    plane = pf.tensor((grid[:, None] + 2 * grid)[None, None])
    y = F.interpolate(plane, scale_factor=2, mode="bilinear").numpy()[0, 0]
    at = (np.arange(24) + 0.5) / 2 - 0.5
    np.testing.assert_allclose(y[1:-1, 1:-1], (at[:, None] + 2 * at)[1:-1, 1:-1], atol=1e-6)
    y = F.interpolate(plane, size=23, mode="bicubic", align_corners=True).numpy()[0, 0]
    at = np.arange(23) / 2
    np.testing.assert_allclose(y[4:-4, 4:-4], (at[:, None] + 2 * at)[4:-4, 4:-4], atol=1e-5)
    x = pf.randn(1, 2, 3, 4, 5, requires_grad=True)
    y = F.interpolate(x, scale_factor=(2, 1, 3), mode="trilinear")
    y.sum().backward()
    assert tuple(y.shape) == (1, 2, 6, 4, 15)
    assert abs(x.grad.sum().item() - y.numel()) < 1e-2  # the weights of each new element sum to 1


@pytest.mark.parametrize("call, text", [
    (lambda F, x: F.interpolate(x), "not one of size and scale_factor"),
    (lambda F, x: F.interpolate(x, 2, mode="linear"), "mode and dims do not fit; got mode 'linear' for 4 dims"),
    (lambda F, x: F.interpolate(x, 2, mode="sinc"), "mode and dims do not fit; got mode 'sinc'"),
    (lambda F, x: F.interpolate(x, 2, mode="lanczos"), "mode 'lanczos' needs antialias"),
    (lambda F, x: F.interpolate(x, 2, antialias=True), "antialias is for 'bilinear', 'bicubic' and 'lanczos'; got mode 'nearest'"),
    (lambda F, x: F.interpolate(x, 2, align_corners=True), "align_corners has no meaning"),
    (lambda F, x: F.interpolate(x, (2, 2, 2)), "not one number for each spatial dim"),
    (lambda F, x: F.interpolate(x, 0), "an empty size"),
    (lambda F, x: F.interpolate(x.to(pf.int32), 2, mode="bicubic"), "mode 'bicubic' does not take this dtype; got pyflame.int32; expected uint8 or a floating dtype"),
    (lambda F, x: F.interpolate(x.to(pf.uint8), 2, mode="area"), "mode 'area' does not take this dtype; got pyflame.uint8; expected a floating dtype"),
])
def test_interpolate_errors(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call(pf.nn.functional, pf.ones(1, 1, 3, 3))


SPARSE = np.array([[0, 3, 0, -1], [0, 0, 2, 2], [7, 0, 0, 0]], np.float32)


def test_selections():
    x = pf.tensor(SPARSE)
    np.testing.assert_array_equal(pf.nonzero(x).numpy(), np.argwhere(SPARSE))
    for got, want in zip(x.nonzero(as_tuple=True), np.nonzero(SPARSE)):
        np.testing.assert_array_equal(got.numpy(), want)
    for got, want in zip(pf.where(x > 1), np.nonzero(SPARSE > 1)):
        np.testing.assert_array_equal(got.numpy(), want)
    assert tuple(pf.nonzero(pf.zeros(2, 3)).shape) == (0, 2) and tuple(pf.nonzero(pf.zeros(0, 3)).shape) == (0, 2)
    assert tuple(pf.nonzero(pf.tensor(5)).shape) == (1, 0)
    np.testing.assert_array_equal(x.masked_select(x > 1).numpy(), SPARSE[SPARSE > 1])


def test_gradients_of_selections():
    x = pf.tensor(SPARSE, requires_grad=True)
    (x.masked_select(x > 1) * 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2.0 * (SPARSE > 1))


def test_aliases():
    x = pf.arange(6).reshape(2, 3)
    assert x.byte().dtype == pf.uint8 and x.char().dtype == pf.int8 and pf.equal(x.H, x.T) and pf.equal(x.mH, x.mT)
    y = pf.transpose_copy(x, 0, 1)
    y.fill_(0)
    assert x.sum().item() == 15
    np.testing.assert_array_equal(pf.msort(pf.tensor(SPARSE)).numpy(), np.sort(SPARSE, 0))
    assert pf.scalar_tensor(2).dtype == pf.float32


@pytest.mark.parametrize("call, kind, text", [
    (lambda: pf.ones(2).masked_select(pf.ones(2)), RuntimeError, "masked_select: the mask is not bool"),
    (lambda: pf.bincount(pf.tensor([1, -1])), RuntimeError, "bincount: a negative number; got -1"),
    (lambda: pf.bincount(pf.ones(2)), RuntimeError, "bincount: not a vector of integers"),
    (lambda: pf.bincount(pf.tensor([1, 2]), pf.ones(3)), RuntimeError, r"bincount: not one weight for each number; got weights of shape \(3,\); expected \(2,\)"),
    (lambda: pf.bincount(pf.tensor([1, 2]), minlength=-1), RuntimeError, "bincount: a negative minlength; got -1"),
    (lambda: pf.where(pf.ones(2) > 0, 1.0), TypeError, "where: wrong arguments"),
    (lambda: pf.isin(1, 2), TypeError, "isin: no tensor"),
    (lambda: pf.take(pf.ones(2), pf.tensor([2])).tolist(), IndexError, "out of range"),
])
def test_errors_of_selections(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("f, base", [(pf.logaddexp, np.e), (pf.logaddexp2, 2.0)])
def test_logaddexp_of_equal_and_infinite_numbers(f, base):
    inf = np.inf
    a = pf.tensor([inf, -inf, inf, -inf, 3.0, 1e-3], dtype=pf.float64, requires_grad=True)
    b = pf.tensor([inf, -inf, -inf, 1.0, 3.0, -1e6], dtype=pf.float64, requires_grad=True)
    y = f(a, b)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), [inf, -inf, inf, 1, 3 + np.log(2) / np.log(base), 1e-3], rtol=1e-15)
    np.testing.assert_allclose(a.grad.numpy(), [0.5, 0.5, 1, 0, 0.5, 1])
    np.testing.assert_allclose(b.grad.numpy(), [0.5, 0.5, 0, 1, 0.5, 0])


@pytest.mark.parametrize("error, message, call", [
    (IndexError, "select_scatter: index out of range; got 4", lambda a: pf.select_scatter(a, a[0], 0, 4)),
    (IndexError, "select_scatter: index out of range; got -5", lambda a: pf.select_scatter(a, a[0], 0, -5)),
    (IndexError, "diag_embed: a tensor without dims", lambda a: pf.diag_embed(a[0, 0])),
    (IndexError, "tensor_split: a tensor without dims", lambda a: pf.tensor_split(a[0, 0], 2)),
    (ValueError, "chain_matmul: no matrices", lambda a: pf.chain_matmul()),
    (ValueError, "chain_matmul: not a matrix", lambda a: pf.chain_matmul(a, a[0])),
    (ValueError, "cdist: no such compute_mode; got 'fast'", lambda a: pf.cdist(a, a, compute_mode="fast")),
    (TypeError, "dstack: an entry is not a tensor; got int at position 1", lambda a: pf.dstack([a, 3])),
    (TypeError, "conv1d: input is not a tensor; got int", lambda a: pf.conv1d(3, a)),
    (TypeError, "conv2d: weight is not a tensor; got int", lambda a: pf.conv2d(a, 3)),
    (TypeError, "is_autocast_enabled: device_type is not a string; got int", lambda a: pf.is_autocast_enabled(3)),
    (TypeError, "wait: not what fork returned; got int", lambda a: pf.wait(3)),
    (TypeError, "to_dlpack: not a tensor; got int", lambda a: pf.to_dlpack(3)),
    (TypeError, "atleast_2d: an entry is not a tensor; got str at position 0", lambda a: pf.atleast_2d("a", a)),
])
def test_an_argument_that_does_not_fit_is_refused(error, message, call):
    with pytest.raises(error, match=message):
        call(pf.ones(4, 3))


def test_the_distances_of_each_compute_mode_agree():
    a, b = pf.rand(30, 3), pf.rand(4, 3)
    expected = pf.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    for mode in ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", None):
        assert pf.allclose(pf.cdist(a, b, compute_mode=mode), expected, atol=1e-3)


def test_float_power_of_two_numbers():
    for base, power, want, dtype in ((2, 3, 8, pf.float64), (2, 0.5, 2**0.5, pf.float64), (2j, 2, -4, pf.complex128), (2, 1j, 2**1j, pf.complex128)):
        found = pf.float_power(base, power)
        assert found.dtype == dtype and abs(found.item() - want) < 1e-14
