"""Details of ops that programs for PyTorch rely on: arguments, dtypes, results that are written in place, gradients of empty and of expanded inputs."""
import numpy as np
import pyflame as pf
import pytest
from pyflame.nn import functional as F  # noqa: N812

# The gradients of these need their operands, not their results, so that a program may write to the results.
WRITTEN = {
    "div": lambda x, y: x / y,
    "div by a number": lambda x, y: 3 / y,
    "pow 0.5": lambda x, y: y**0.5,
    "pow -0.5": lambda x, y: y**-0.5,
    "pow -1": lambda x, y: y**-1,
    "lgamma": lambda x, y: y.lgamma(),
    "digamma": lambda x, y: y.digamma(),
    "erfc": lambda x, y: pf.erfc(x),
    "erfinv": lambda x, y: pf.erfinv(x / 10),
    "i0": lambda x, y: pf.i0(x),
    "softsign": lambda x, y: F.softsign(x),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=-1),
    "normalize": lambda x, y: F.normalize(x, dim=-1),
    "lp_pool2d": lambda x, y: F.lp_pool2d(y.reshape(1, 1, 2, 2), 2, 2),
}


def operands():
    return pf.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=pf.float64, requires_grad=True), pf.tensor([[1.5, 2.0], [0.7, 4.0]], dtype=pf.float64, requires_grad=True)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_result_may_be_written(name):
    x, y = operands()
    (WRITTEN[name](x, y) * 2 + 1).sum().backward()
    written, other = operands()
    result = WRITTEN[name](written, other)
    result.mul_(2).add_(1).sum().backward()
    for want, got in ((x, written), (y, other)):
        assert (want.grad is None) == (got.grad is None)
        assert want.grad is None or np.allclose(want.grad.numpy(), got.grad.numpy(), rtol=1e-12)


def test_pow_has_the_gradients_of_its_formula():
    for exponent in (0.5, -0.5, -1):
        x = pf.tensor([0.25, 4.0], dtype=pf.float64, requires_grad=True)
        first = pf.autograd.grad((x**exponent).sum(), x, create_graph=True)[0]
        second = pf.autograd.grad(first.sum(), x)[0]
        values = np.array([0.25, 4.0])
        assert np.allclose(first.detach().numpy(), exponent * values ** (exponent - 1))
        assert np.allclose(second.numpy(), exponent * (exponent - 1) * values ** (exponent - 2))
    z = pf.tensor([1 + 2j], requires_grad=True)
    (z**0.5).real.sum().backward()
    assert np.allclose(z.grad.numpy(), np.conj(0.5 * np.array([1 + 2j]) ** -0.5))


def test_nextafter_of_a_number_has_a_gradient():
    x = pf.ones(2, dtype=pf.float64, requires_grad=True)
    pf.nextafter(2, x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_where_takes_a_mask_of_uint8():
    mask, x = pf.tensor([0, 1, 2], dtype=pf.uint8), pf.ones(3, requires_grad=True)
    y = pf.where(mask, x, 0)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(TypeError, match="the condition is not bool; got int64"):
        pf.where(mask.long(), x, 0)


def test_masked_fill_keeps_the_dtype():
    mask = pf.tensor([True, False])
    assert pf.tensor([False, False]).masked_fill(mask, pf.tensor(1)).dtype == pf.bool_
    assert pf.ones(2).masked_fill(mask, pf.tensor(3.0, dtype=pf.float64)).dtype == pf.float32
    x, value = pf.zeros(2), pf.tensor(2.0, requires_grad=True)
    x.masked_fill_(mask, value)
    x.sum().backward()
    assert x.tolist() == [2.0, 0.0] and value.grad.item() == 1


def test_cat_of_complex_and_real_has_gradients():
    x, z = pf.ones(2, requires_grad=True), pf.tensor([1j], requires_grad=True)
    (pf.cat([z, x]) * pf.tensor([1.0, 2 + 5j, 3j])).real.sum().backward()
    assert x.grad.tolist() == [2.0, 0.0] and z.grad.tolist() == [1.0]


def test_new_tensor_takes_options():
    x = pf.ones(1, dtype=pf.int32)
    assert x.new_tensor([1.5]).dtype == pf.int32
    y = x.new_tensor([1.5], dtype=pf.float64, device="cpu", requires_grad=True)
    assert y.dtype == pf.float64 and y.tolist() == [1.5] and y.requires_grad


def test_div_in_place_takes_a_rounding_mode():
    x = pf.tensor([-7.0, 7.0])
    assert x.div_(2, rounding_mode="floor") is x and x.tolist() == [-4.0, 3.0]
    assert pf.tensor([-7, 7]).div_(2, rounding_mode="trunc").tolist() == [-3, 3]


def test_fmod_of_bools():
    assert pf.fmod(pf.tensor([True, False]), -2).tolist() == [1, 0]
    assert pf.fmod(pf.tensor([True]), pf.tensor([-3.5])).tolist() == [1.0]


def test_fmod_of_the_lowest_integer():
    x, y = np.array([-128, -128, 1, -100, 127, 7], np.int8), np.array([127, 7, -128, -128, -128, -2], np.int8)
    assert np.array_equal(pf.fmod(pf.tensor(x), pf.tensor(y)).numpy(), np.fmod(x, y))
    assert pf.fmod(pf.tensor([-(2**63)]), 3).tolist() == [-2] and pf.fmod(pf.tensor([-7]), 2.5).tolist() == [-2.0]


def test_repeat_interleave_of_counts_alone():
    assert pf.repeat_interleave(pf.tensor([2, 0, 1])).tolist() == [0, 0, 2]
    assert pf.repeat_interleave(pf.tensor([], dtype=pf.int64)).shape == (0,)
    assert pf.repeat_interleave(pf.tensor([3.0, 4.0]), pf.tensor(2), output_size=4).tolist() == [3.0, 3.0, 4.0, 4.0]


def test_broadcast_shapes_is_a_size():
    assert isinstance(pf.broadcast_shapes((3, 1), (4,)), pf.Size) and pf.broadcast_shapes((3, 1), (4,)) == (3, 4)


def test_logspace_of_complex_numbers():
    got = pf.logspace(0, 1.2, 3, dtype=pf.complex128).numpy()
    assert np.allclose(got, np.logspace(0, 1.2, 3))
    assert np.allclose(pf.logspace(pf.tensor(0), 1.2, 3, dtype=pf.complex128).numpy(), np.logspace(0, 1.2, 3), rtol=1e-12)
    assert np.allclose(pf.logspace(1j, 2, 3).numpy(), 10 ** np.linspace(1j, 2, 3))


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_cdist_of_no_rows_has_a_gradient_of_zeros(mode):
    x, y = pf.zeros(0, 5, requires_grad=True), pf.ones(4, 5, requires_grad=True)
    distances = pf.cdist(x, y, compute_mode=mode)
    distances.sum().backward()
    assert distances.shape == (0, 4) and not y.grad.any() and x.grad.shape == (0, 5)


def test_views_of_an_expanded_tensor_have_gradients():
    x = pf.arange(3.0, requires_grad=True)
    x.expand(3, 3).diagonal().sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    x.grad = None
    x.expand(2, 3).unfold(1, 2, 1).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 2.0]
    x.grad = None
    pf.einsum("iij->j", x.expand(2, 2, 3)).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.fixture
def float64_by_default():
    pf.set_default_dtype(pf.float64)
    yield
    pf.set_default_dtype(pf.float32)


MADE = {
    "Tensor": lambda: pf.Tensor([1]),
    "Tensor of sizes": lambda: pf.Tensor(2, 3),
    "hann_window": lambda: pf.hann_window(4),
    "cosine": lambda: pf.signal.windows.cosine(4),
    "scalar_tensor": lambda: pf.scalar_tensor(1.0),
    "fftfreq": lambda: pf.fft.fftfreq(3),
    "rfftfreq": lambda: pf.fft.rfftfreq(3),
    "logspace": lambda: pf.logspace(0, 1, 3),
    "zeta": lambda: pf.special.zeta(2, pf.arange(1, 3)),
    "fft": lambda: pf.fft.fft(pf.arange(3)).real,
    "rfft": lambda: pf.fft.rfft(pf.arange(3)).real,
    "PReLU": lambda: pf.nn.PReLU().weight,
    "Normal": lambda: pf.distributions.Normal(0, pf.tensor(1)).loc,
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_has_the_default_dtype(name, float64_by_default):
    assert MADE[name]().dtype == pf.float64
    pf.set_default_dtype(pf.float32)
    assert MADE[name]().dtype == pf.float32


def test_types_of_python_as_dtypes():
    assert pf.zeros(1, dtype=float).dtype == pf.ones(1).to(float).dtype == pf.float64
    assert pf.zeros(1, dtype=complex).dtype == pf.complex128
    assert pf.zeros(1, dtype=int).dtype == pf.int64 and pf.zeros(1, dtype=bool).dtype == pf.bool_


def test_logsumexp_of_complex_numbers():
    z = pf.tensor([[1 + 2j, -3 + 9j], [800 + 1j, 799 - 2j]], requires_grad=True)
    y = z.logsumexp(1)
    y[0].real.backward()
    want = np.log(np.exp(1 + 2j) + np.exp(-3 + 9j))
    assert np.allclose(y.detach().numpy(), [want, 800 + np.log(np.exp(1j) + np.exp(-1 - 2j))])
    assert np.allclose(z.grad[0].numpy(), np.conj(np.exp(np.array([1 + 2j, -3 + 9j]) - want)), atol=1e-6)
    assert np.allclose(pf.tensor(2 + 7j).logsumexp(0).item(), 2 + (7 - 2 * np.pi) * 1j)  # the logarithm of exp()


def test_clamp_takes_bounds_that_the_dtype_cannot_hold():
    x = pf.tensor([0, 7, 255], dtype=pf.uint8)
    assert x.clamp(-1).tolist() == x.clamp(max=300).tolist() == x.clamp(-1, 300).tolist() == [0, 7, 255]
    y = pf.tensor([-128, 5, 127], dtype=pf.int8)
    assert y.clamp(-1000, 1000).tolist() == [-128, 5, 127] and y.clamp(min=-3).tolist() == [-3, 5, 127]
    assert y.clone().clamp_(-200, 100).tolist() == [-128, 5, 100]


def test_xlogy_with_a_number_keeps_16_bits():
    x = pf.tensor([0.0, 2.0], dtype=pf.float16)
    assert pf.xlogy(x, 3).dtype == x.xlogy(True).dtype == pf.float16
    assert pf.xlogy(x, 0).tolist() == [0.0, -float("inf")]


def test_addbmm_keeps_the_dtype_of_integers():
    m = pf.ones(2, 2, 2, dtype=pf.int32)
    assert pf.addbmm(m[0], m, m).dtype == pf.int32 and pf.addbmm(m[0], m, m).tolist() == [[5, 5], [5, 5]]


def test_repeat_of_many_dims():
    values = np.arange(32).reshape(1, 2, 2, 2, 2, 2)
    x = pf.tensor(values)
    for repeats in ((2, 1, 1, 1, 1, 1), (1, 2, 3, 1, 2, 2), (2, 1, 1, 1, 1, 1, 1, 3), (1, 1, 0, 1, 2, 2)):
        assert np.array_equal(x.repeat(repeats).numpy(), np.tile(values, repeats))
    y = pf.ones(1, 2, 1, 2, 1, 2, requires_grad=True)
    y.repeat(2, 1, 3, 1, 2, 1).sum().backward()
    assert (y.grad == 12).all()


@pytest.mark.parametrize("dtype", [pf.int32, pf.uint8, pf.int8])
def test_convolutions_of_integers_wrap(dtype):
    x, w = pf.full((1, 1, 4), 100, dtype=dtype), pf.tensor([[[1, 2]]], dtype=dtype)
    assert F.conv1d(x, w).tolist() == pf.full((1, 1, 3), 300).to(dtype).tolist()
    assert F.conv_transpose1d(x, w).dtype == dtype and F.conv2d(x[None], w[None]).dtype == dtype


def test_losses_take_size_average_and_reduce():
    x, y = pf.tensor([[1.0, 2.0], [0.5, -1.0]]), pf.tensor([[0.0, 1.0], [1.0, 0.0]])
    labels = pf.tensor([0, 1])
    nll = F.nll_loss(x, labels, reduction="none")
    for got in (F.nll_loss(x, labels, size_average=False), pf.nn.NLLLoss(None, False)(x, labels), pf.nn.NLLLoss(size_average=False)(x, labels)):
        assert got.item() == nll.sum().item()
    assert pf.nn.NLLLoss(None, None, 1)(x, labels).item() == nll[0].item()
    assert pf.equal(F.mse_loss(x, y, reduce=False), pf.nn.MSELoss(None, None, "none")(x, y)) and pf.nn.MSELoss(False)(x, y).item() == F.mse_loss(x, y, "sum").item()
    assert pf.equal(F.smooth_l1_loss(x, y, None, False), F.smooth_l1_loss(x, y, "none")) and F.kl_div(x, y, "sum", False).item() == F.kl_div(x, y, False).item()
    assert F.poisson_nll_loss(x, y, True, False, None, 1e-3, None, "sum").item() == F.poisson_nll_loss(x, y, True, False, eps=1e-3, reduction="sum").item()
    assert F.cross_entropy(x, labels, None, None, -100, None, "sum").item() == F.cross_entropy(x, labels, size_average=False, reduce=True).item()
    assert F.binary_cross_entropy(y * 0.5, y, size_average=True).item() == pf.nn.BCELoss(None, True)(y * 0.5, y).item()
    with pytest.raises(TypeError):
        F.huber_loss(x, y, size_average=False)


def test_losses_have_pytorchs_order_of_arguments():
    """Each place is read as PyTorch reads it. A number in the place of a bool is refused: it would be another argument than the one that was meant."""
    x, labels, w = pf.tensor([[1.0, 2.0], [0.5, -1.0]]), pf.tensor([0, 1]), pf.tensor([1.0, 3.0])
    p = pf.tensor([[0.0, 1.0], [1.0, 0.5]])
    for got, want in [
        (F.cross_entropy(x, labels, None, False), F.cross_entropy(x, labels, reduction="sum")),
        (F.cross_entropy(x, labels, w, None, 1, False, "mean", 0.1), F.cross_entropy(x, labels, w, ignore_index=1, reduction="none", label_smoothing=0.1)),
        (F.nll_loss(x, labels, None, True, 0), F.nll_loss(x, labels, ignore_index=0)),
        (F.nll_loss(x, labels, w, None, -100, None, "sum"), F.nll_loss(x, labels, w, reduction="sum")),
        (F.binary_cross_entropy_with_logits(x, p, None, False, None, "mean", w), F.binary_cross_entropy_with_logits(x, p, reduction="sum", pos_weight=w)),
        (F.mse_loss(x, p, None, False), F.mse_loss(x, p, reduction="none")), (F.l1_loss(x, p, False, None), F.l1_loss(x, p, reduction="sum")),
        (F.mse_loss(x, p, None, None, "none", w.expand(2, 2)), (x - p) ** 2 * w), (F.l1_loss(x, p, False, weight=w.expand(2, 2)), ((x - p).abs() * w).sum()),
        (F.mse_loss(x, p, weight=w.expand(2, 2)), ((x - p) ** 2 * w).sum() / 8), (F.huber_loss(x, p, "mean", 1.0, w.expand(2, 2)), (F.huber_loss(x, p, "none") * w).mean()),
    ]:
        assert pf.equal(got, want) and got.numel()
    for wrong, text in [
        (lambda: F.cross_entropy(x, labels, None, -100), "cross_entropy: size_average is not a bool; got -100; expected None, True or False in this place"),
        (lambda: F.nll_loss(x, labels, None, None, -100, "sum"), "nll_loss: reduce is not a bool; got 'sum'"),
        (lambda: pf.nn.PoissonNLLLoss(True, False, 1e-3), "PoissonNLLLoss: size_average is not a bool; got 0.001"),
        (lambda: F.mse_loss(x, p, None, None, "sum", reduction="mean"), "mse_loss: got two values for reduction"),
        (lambda: F.mse_loss(x, p, None, None, "sum", None, 1), "mse_loss"),
    ]:
        with pytest.raises(TypeError, match=text):
            wrong()
    for loss in (F.mse_loss, F.l1_loss, F.huber_loss):
        with pytest.raises(ValueError, match=f"{loss.__name__}: the weight does not fit; got weight .2,.; expected the input's shape .2, 2."):
            loss(x, p, weight=w)


def test_arguments_that_fit_nothing_are_refused():
    x = pf.ones(3, 4)
    with pytest.raises(RuntimeError, match="the numbers of dims differ"):
        F.triplet_margin_loss(x, x, x[0])
    with pytest.raises(ValueError, match="min_val is greater than max_val"):
        F.hardtanh(x, 2.0, 1.0)
    for function in (pf.tril_indices, pf.triu_indices):
        with pytest.raises(RuntimeError, match="negative size"):
            function(-1, 2)


def test_round_in_place_to_decimals():
    x = pf.tensor([1.26, -0.349])
    assert x.round_(decimals=1) is x and np.allclose(x.numpy(), [1.3, -0.3]) and x.round_().tolist() == [1.0, -0.0]


@pytest.mark.parametrize("name", ["ndtr", "spherical_bessel_j0", "xlog1py", "hermite_polynomial_h", "shifted_chebyshev_polynomial_w"])
def test_special_functions_write_to_out(name):
    function = getattr(pf.special, name)
    args = (pf.tensor([0.2, 0.7]), pf.tensor([1.0, 2.0]))[: 1 if name in ("ndtr", "spherical_bessel_j0") else 2]
    out = pf.empty(0)
    assert function(*args, out=out) is out and pf.equal(out, function(*args))


def test_transforms_write_to_an_empty_out():
    x, out = pf.arange(6.0).view(2, 3), pf.empty(0, dtype=pf.complex64)
    assert pf.fft.fft2(x, out=out) is out and pf.equal(out, pf.fft.fft2(x))
    with pytest.raises(RuntimeError, match="rfft: the result cannot be cast to the dtype of out"):
        pf.fft.rfft(x, out=pf.empty(2, 2))


def test_functions_of_numpy_give_tensors():
    x = pf.tensor([1.0, 4.0])
    assert type(np.sqrt(x)) is pf.Tensor and np.sqrt(x).tolist() == [1.0, 2.0] and np.add(x, np.ones(2)).dtype == pf.float64
    assert (np.less(x, 2)).dtype == pf.bool_ and type(np.asarray(x)) is np.ndarray


def test_dtypes_have_their_counterparts():
    assert pf.float32.to_complex() == pf.complex64 and pf.float64.to_complex() == pf.complex128 and pf.complex64.to_complex() == pf.complex64
    assert pf.complex128.to_real() == pf.float64 and pf.float16.to_real() == pf.float16 and pf.int64.to_real() == pf.int64
    with pytest.raises(RuntimeError, match="int32 has no complex dtype"):
        pf.int32.to_complex()


def test_logit_outside_of_its_range_has_no_slope():
    x = pf.tensor([-0.5, 0.25, 1.5], requires_grad=True)
    pf.logit(x).sum().backward()
    assert np.isnan(x.grad.numpy()).tolist() == [True, False, True] and abs(x.grad[1].item() - 1 / (0.25 * 0.75)) < 1e-5
    x.grad = None
    assert pf.logit(x.half()).dtype == pf.float16 and pf.logit(x.double()).dtype == pf.float64
    pf.logit(x, eps=1e-3).sum().backward()
    assert x.grad[0].item() == x.grad[2].item() == 0


def test_convolution_over_time():
    x, w, b = pf.randn(7, 2, 3), pf.randn(3, 3, 4), pf.randn(4)
    y = F.conv_tbc(x, w, b, pad=1)
    assert y.shape == (7, 2, 4) and pf.allclose(y, F.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1).permute(2, 0, 1), atol=1e-6)
    assert pf.equal(pf.conv_tbc(x, w, b), F.conv_tbc(x, w, b, 0)) and pf.equal(x.conv_tbc(w, b, 1), y)
    with pytest.raises(ValueError, match="conv_tbc: sizes do not fit"):
        F.conv_tbc(x, w[:, :2], b)


def test_linear_cross_entropy_as_a_layer():
    loss = pf.nn.LinearCrossEntropyLoss(4, 3, bias=True, label_smoothing=0.1, options=pf.nn.LinearCrossEntropyOptions(batch_chunk_size=2))
    x, target = pf.randn(5, 4), pf.tensor([0, 2, 1, 1, 0])
    want = F.cross_entropy(F.linear(x, loss.linear.weight, loss.linear.bias), target, label_smoothing=0.1)
    assert list(loss.state_dict()) == ["linear.weight", "linear.bias"] and pf.allclose(loss(x, target), want)
    places = pf.nn.LinearCrossEntropyLoss(4, 3, out_features=(2,), reduction="none", weight=pf.ones(3))
    assert places(x, pf.zeros(5, 2, dtype=pf.int64)).shape == (5, 2) and places.linear.weight.shape == (6, 4) and "num_classes=3" in repr(places)
    with pytest.raises(RuntimeError, match="the weight does not fit; got shape .2,.; expected .3,."):
        pf.nn.LinearCrossEntropyLoss(4, 3, weight=pf.ones(2))
    with pytest.raises(RuntimeError, match="label_smoothing is out of range; got 2"):
        pf.nn.LinearCrossEntropyLoss(4, 3, label_smoothing=2)


def test_layers_that_are_others():
    nn = pf.nn
    assert isinstance(nn.ReLU6(), nn.Hardtanh) and repr(nn.ReLU6(inplace=True)) == "ReLU6(inplace=True)" and nn.ReLU6()(pf.tensor([-1.0, 7.0])).tolist() == [0.0, 6.0]
    assert isinstance(nn.ZeroPad2d(1), nn.ConstantPad2d) and repr(nn.ZeroPad2d(1)) == "ZeroPad2d((1, 1, 1, 1))" and nn.ZeroPad2d(1)(pf.ones(1, 1, 1)).sum().item() == 1
    assert not isinstance(nn.AvgPool3d(2), nn.AvgPool2d)


OUT = {
    "avg_pool2d": (F.avg_pool2d, (2,)),
    "avg_pool3d": (F.avg_pool3d, (2,)),
    "normalize": (F.normalize, ()),
    "logsigmoid": (F.logsigmoid, ()),
    "softshrink": (F.softshrink, (0.3,)),
    "hardshrink": (F.hardshrink, (0.3,)),
    "t_copy": (lambda x, **out: pf.t_copy(x[0, 0], **out), ()),
    "view_copy": (pf.view_copy, ((8,),)),
    "select_copy": (pf.select_copy, (1, 1)),
    "view_as_complex_copy": (pf.view_as_complex_copy, ()),
    "view_as_real_copy": (lambda x, **out: pf.view_as_real_copy(pf.view_as_complex(x), **out), ()),
}


@pytest.mark.parametrize("name", OUT)
def test_functions_write_to_out(name):
    function, args = OUT[name]
    x, out = pf.randn(2, 2, 2), pf.empty(0, dtype=pf.complex64 if name == "view_as_complex_copy" else pf.float32)
    x = x.unsqueeze(0) if name == "avg_pool3d" else x
    assert function(x, *args, out=out) is out and pf.equal(out, function(x, *args))


def test_functions_with_several_results_write_to_out():
    x = pf.randn(3, 2)
    for function, dtypes in (
        (pf.svd, [pf.float32] * 3),
        (lambda x, **out: pf.linalg.lstsq(x, pf.ones(3, 1), **out), [pf.float32, pf.float32, pf.int64, pf.float32]),
        (pf.unbind_copy, [pf.float32] * 3),
        (lambda x, **out: pf.split_copy(x, 2, **out), [pf.float32] * 2),
        (lambda x, **out: pf.split_with_sizes_copy(x, [1, 2], **out), [pf.float32] * 2),
    ):
        outs, want = tuple(pf.empty(0, dtype=d) for d in dtypes), function(x)
        got = function(x, out=outs)
        assert all(a is b and pf.equal(a, c) for a, b, c in zip(got, outs, want)) and len(got) == len(want)
    with pytest.raises(TypeError, match="unbind_copy: wrong number of outputs; got 1; expected 3"):
        pf.unbind_copy(x, out=[pf.empty(2)])


def test_tensors_swap_what_they_are():
    a, b = pf.nn.Parameter(pf.ones(2)), pf.zeros(3, dtype=pf.float64)
    (a * 3).sum().backward()
    a.note = "a"
    ids = id(a), id(b)
    pf.utils.swap_tensors(a, b)
    assert (id(a), id(b)) == ids and type(a) is pf.Tensor and type(b) is pf.nn.Parameter
    assert a.tolist() == [0, 0, 0] and a.dtype == pf.float64 and not a.requires_grad and a.grad is None and not hasattr(a, "note")
    assert b.tolist() == [1, 1] and b.requires_grad and b.grad.tolist() == [3, 3] and b.note == "a"
    layer, fresh = pf.nn.Linear(2, 1, bias=False), pf.nn.Parameter(pf.tensor([[1.0, 2.0]]))
    optimizer = pf.optim.SGD(layer.parameters(), lr=1.0)
    pf.utils.swap_tensors(layer.weight, fresh)
    layer(pf.tensor([[3.0, 4.0]])).sum().backward()
    optimizer.step()
    assert layer.weight.tolist() == [[-2.0, -2.0]] and fresh.grad is None

    class Slotted(pf.Tensor):
        __slots__ = ("place",)

    with pytest.raises(TypeError, match="swap_tensors: the classes cannot be swapped; got Slotted and Tensor"):
        pf.utils.swap_tensors(Slotted(pf.ones(1)), pf.ones(1))


@pytest.mark.parametrize("name,instead", [("eig", "linalg.eig"), ("symeig", "linalg.eigh"), ("solve", "linalg.solve"), ("lstsq", "linalg.lstsq"), ("matrix_rank", "linalg.matrix_rank")])
def test_functions_that_pytorch_removed_say_what_to_use(name, instead):
    with pytest.raises(NotImplementedError, match=f"{name}: not available in PyFlame; PyTorch removed it; use {instead}"):
        getattr(pf, name)(pf.ones(2, 2))
    if name != "matrix_rank":
        with pytest.raises(NotImplementedError, match=f"Tensor.{name}: not available in PyFlame; PyTorch removed it; use {instead}"):
            getattr(pf.ones(2, 2), name)()


def test_norms_of_slices():
    v = pf.arange(6.0).view(2, 3)
    for dim, want in ((0, [[5**0.5], [50**0.5]]), (1, [[3.0, 17**0.5, 29**0.5]]), (-2, [[5**0.5], [50**0.5]]), (-1, 55**0.5)):
        assert pf.allclose(pf.norm_except_dim(v, 2, dim), pf.tensor(want))
    assert pf.norm_except_dim(v, 1).tolist() == [[3.0], [12.0]]


def test_names_that_programs_import():
    assert pf.sym_sum([1, 2, 3]) == 6 and pf.sym_ite(True, 1, 2) == 1 and pf.sym_ite(False, 1, 2) == 2
    from pyflame.functional import pca_lowrank, svd_lowrank
    from pyflame.serialization import clear_safe_globals, get_safe_globals
    from pyflame.utils.checkpoint import CheckpointError, CheckpointPolicy, SelectiveCheckpointContext
    from pyflame.utils.data import IterDataPipe, MapDataPipe, functional_datapipe

    assert (pca_lowrank, svd_lowrank) == (pf.pca_lowrank, pf.svd_lowrank)
    assert clear_safe_globals() is None and get_safe_globals() == []
    assert issubclass(CheckpointError, RuntimeError) and CheckpointPolicy(2) is CheckpointPolicy.MUST_RECOMPUTE
    pytest.raises(NotImplementedError, SelectiveCheckpointContext)

    @functional_datapipe("twice")
    class Pipe(IterDataPipe):
        pass

    for cls in (Pipe, MapDataPipe):
        with pytest.raises(NotImplementedError, match="use a Dataset or an IterableDataset with DataLoader"):
            cls()

    @pf.compiler.nested_compile_region
    def double(x):
        return 2 * x

    assert double(3) == 6


@pytest.mark.parametrize("old", [True, False, None])
def test_losses_of_the_package_refuse_old_arguments(old):
    x, target = pf.randn(2, 3), pf.tensor([0, 1])
    for loss in (pf.nll_loss, pf.cross_entropy):
        with pytest.raises(TypeError, match=f"{loss.__name__}: " + ("wrong arguments" if old is None else f"ignore_index is no class; got {old}; expected an int; hint: nn.functional.{loss.__name__} has PyTorch's order")):
            loss(x, target, None, old)
    for loss, args in ((pf.mse_loss, ()), (pf.l1_loss, ()), (pf.binary_cross_entropy_with_logits, (None,))):
        with pytest.raises(TypeError, match=f"{loss.__name__}: wrong arguments"):
            loss(x, x, *args, old)
    assert pf.equal(pf.cross_entropy(x, target, None, 1, "sum"), F.cross_entropy(x, target, None, None, 1, None, "sum"))
    assert pf.equal(pf.binary_cross_entropy_with_logits(x, x, None, "sum", x), F.binary_cross_entropy_with_logits(x, x, None, None, None, "sum", x))
