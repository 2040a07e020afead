"""Layers, losses, hooks and initial values in which programs rely on PyTorch's behaviour. Numbers that are not a formula's are PyTorch's."""
import warnings

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F


@pytest.mark.parametrize("name", ["relu", "silu", "leaky_relu", "elu", "celu", "selu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "mish"])
def test_inplace_changes_the_input(name):
    data, grads, results = pf.linspace(-4, 4, 9), [], []
    for inplace in (False, True):
        leaf = data.clone().requires_grad_()
        x = leaf * 1
        y = getattr(F, name)(x, inplace=inplace)
        assert (x is y) == inplace
        (y * pf.arange(9)).sum().backward()
        grads.append(leaf.grad.tolist())
        results.append(y.tolist())
    assert grads[0] == grads[1] and results[0] == results[1]


def test_layers_with_inplace():
    for layer in (nn.ReLU(True), nn.LeakyReLU(0.1, True), nn.LeakyReLU(inplace=True), nn.SiLU(inplace=True), nn.ELU(inplace=True), nn.Hardtanh(inplace=True)):
        x = pf.linspace(-4, 4, 9)
        assert layer(x) is x and x.tolist() != pf.linspace(-4, 4, 9).tolist()
        assert "inplace" in repr(layer) or isinstance(layer, (nn.ReLU, nn.SiLU))
    x = pf.ones(100)
    assert F.dropout(x, 0.5, inplace=True) is x and 0 in x.tolist() and nn.Dropout(0.5, inplace=True)(x) is x
    assert repr(nn.ELU()) == "ELU(alpha=1.0)"


def test_softmax_without_dim_warns():
    for shape, dim in (((3,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((2, 3, 4, 5), 1)):
        x = pf.randn(*shape)
        for f in (F.softmax, F.log_softmax, F.softmin, lambda x, **kw: nn.Softmax(**kw)(x)):
            with pytest.warns(UserWarning, match=f"dim {dim} is used"):
                got = f(x)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert pf.equal(got, f(x, dim=dim))
    assert F.softmax(pf.zeros(2), 0, dtype=pf.float64).dtype == pf.float64 and F.softmax(pf.zeros(2), -1, 3).tolist() == [0.5, 0.5]


def test_binary_cross_entropy():
    x, y = pf.tensor([0.0, 0.25, 1.0, 1.0, 0.0], requires_grad=True), pf.tensor([0.0, 1.0, 1.0, 0.0, 0.5])
    loss = F.binary_cross_entropy(x, y, reduction="none")
    np.testing.assert_allclose(loss.tolist(), [0, -np.log(0.25), 0, 100, 50], rtol=1e-6)
    loss.sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), [0, -4, 0, 1e12, -5e11], rtol=1e-6)
    weight = pf.tensor([1.0, 2.0, 3.0, 0.0, 0.0])
    assert F.binary_cross_entropy(x, y, weight).item() == pytest.approx(2 * np.log(4) / 5)
    assert nn.BCELoss(weight, reduction="sum")(x, y).item() == pytest.approx(2 * np.log(4)) and nn.BCELoss()(x, y).item() == pytest.approx((np.log(4) + 150) / 5)
    with pytest.raises(ValueError, match="shapes differ"):
        nn.BCELoss()(x, y[:2])


def test_binary_cross_entropy_gradients():
    pf.manual_seed(0)
    x = pf.rand(6, dtype=pf.float64, requires_grad=True)
    y = pf.rand(6, dtype=pf.float64, requires_grad=True)
    pf.autograd.gradcheck(lambda x, y: F.binary_cross_entropy(x, y), (x, y))
    (g,) = pf.autograd.grad(F.binary_cross_entropy(x, y, reduction="sum"), [x], create_graph=True)
    (gg,) = pf.autograd.grad(g.sum(), [x])
    a, b = x.detach().numpy(), y.detach().numpy()
    np.testing.assert_allclose(gg.tolist(), b / a**2 + (1 - b) / (1 - a) ** 2)


def test_truncated_normal():
    pf.manual_seed(0)
    x = nn.init.trunc_normal_(pf.zeros(200_000), 1.0, 2.0, -1.0, 2.0).numpy()
    assert x.min() >= -1 and x.max() <= 2
    # The mean and deviation of N(1, 4) within [-1, 2], that is of a standard normal number within [-1, 0.5].
    phi = [np.exp(-z * z / 2) / np.sqrt(2 * np.pi) for z in (-1.0, 0.5)]
    mass = 0.6914624612740131 - 0.15865525393145707
    mean = (phi[0] - phi[1]) / mass
    assert x.mean() == pytest.approx(1 + 2 * mean, abs=0.01)
    assert x.std() == pytest.approx(2 * np.sqrt(1 + (-1 * phi[0] - 0.5 * phi[1]) / mass - mean**2), abs=0.01)
    from statistics import NormalDist

    y = pf.tensor([-0.999999, -0.5, 0.0, 1e-9, 0.3, 0.99999999], dtype=pf.float64)
    np.testing.assert_allclose(nn.init._erfinv(y).tolist(), [NormalDist().inv_cdf((v + 1) / 2) / np.sqrt(2) for v in y.tolist()], rtol=1e-7, atol=1e-16)
    g = pf.Generator().manual_seed(1)
    assert pf.equal(nn.init.trunc_normal_(pf.zeros(5), generator=g), nn.init.trunc_normal_(pf.zeros(5), generator=g.manual_seed(1)))


def test_fans():
    assert nn.init._calculate_fan_in_and_fan_out(pf.zeros(5, 3, 2, 2)) == (12, 20) and nn.init._calculate_correct_fan(pf.zeros(5, 3), "fan_OUT") == 5


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(pf.ones(1))
        self.register_buffer("kept", pf.zeros(1))
        self.register_buffer("left_out", pf.zeros(1), persistent=False)

    def forward(self, x, scale=1):
        return x * self.w * scale


def test_hooks_with_keywords():
    m, seen = Scaled(), []
    m.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": kwargs["scale"] * 2}), with_kwargs=True)
    m.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    m.register_forward_hook(lambda m, args, out: out + 1)
    first = m.register_forward_hook(lambda m, args, out: out * 10, prepend=True)
    assert m(pf.ones(1), scale=3).item() == 61 and seen == [{"scale": 6}]
    first.remove()
    assert m(pf.ones(1), scale=3).item() == 7
    bad = Scaled()
    bad.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="args, kwargs"):
        bad(pf.ones(1))
    plain, given = Scaled(), []
    plain.register_forward_pre_hook(lambda m, args, kwargs: given.append((args, kwargs)), with_kwargs=True)
    plain(pf.ones(1))
    assert len(given[0][0]) == 1 and given[0][1] == {}


def test_state_dict_hooks():
    net = nn.Sequential(Scaled(), nn.Linear(1, 1))
    assert list(net.state_dict()) == ["0.w", "0.kept", "1.weight", "1.bias"]
    assert list(net.state_dict(prefix="net.", keep_vars=True))[0] == "net.0.w" and net.state_dict(keep_vars=True)["0.w"] is net[0].w
    into = {"other": 1}
    assert net.state_dict(destination=into) is into and len(into) == 5
    calls = []
    net[0].register_state_dict_pre_hook(lambda m, prefix, keep_vars: calls.append(prefix))
    net[0].register_state_dict_post_hook(lambda m, state, prefix, meta: state.update({prefix + "extra": pf.ones(1)}))
    state = net.state_dict()
    assert calls == ["0."] and "0.extra" in state
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "0.extra"'):
        net.load_state_dict(state)
    net[0].register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: state.pop(prefix + "extra"))
    state["0.w"] = pf.full((1,), 5.0)
    net.load_state_dict(state)
    assert net[0].w.item() == 5 and "0.extra" in state
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    state = {k: v for k, v in state.items() if k != "1.bias"}
    assert net.load_state_dict(state).missing_keys == []


@pytest.mark.parametrize("name, slopes", [("relu6", [0, 0, 0, 1, 0]), ("hardtanh", [0, 0, 1, 0, 0]), ("hardsigmoid", [0, 1 / 6, 1 / 6, 0, 0]), ("hardswish", [0, 1 / 6, 0.5, 1, 1])])
def test_gradients_at_the_bounds(name, slopes):
    at = {"relu6": [-3.0, -1.0, 0.0, 3.0, 6.0], "hardtanh": [-3.0, -1.0, 0.0, 1.0, 6.0]}.get(name, [-3.0, -1.0, 0.0, 3.0, 6.0])
    x = pf.tensor(at, dtype=pf.float64, requires_grad=True)
    (first,) = pf.autograd.grad(getattr(F, name)(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(first.tolist(), slopes, rtol=1e-12)
    if name == "hardswish":
        (second,) = pf.autograd.grad(first.sum(), x)
        np.testing.assert_allclose(second.tolist(), [0, 1 / 3, 1 / 3, 0, 0], rtol=1e-12)
    assert getattr(F, name)(pf.tensor(float("nan"))).isnan().item()


def test_limits_of_hardtanh_are_exact():
    x = pf.tensor([-1.0, 0.05, 1.0], dtype=pf.float64)
    assert F.hardtanh(x, -0.1, 0.1).tolist() == [-0.1, 0.05, 0.1]
    y = F.hardtanh(pf.arange(-2, 3), -1, 1)
    assert y.tolist() == [-1, -1, 0, 1, 1] and y.dtype == pf.int64 and F.relu6(pf.arange(8, dtype=pf.uint8)).dtype == pf.uint8


def test_instance_norm_without_state_takes_any_channels():
    x = pf.randn(2, 4, 5)
    with pytest.warns(UserWarning, match="num_features"):
        y = nn.InstanceNorm1d(3)(x)
    assert pf.equal(y, nn.InstanceNorm1d(4)(x))
    for options in ({"affine": True}, {"track_running_stats": True}):
        with pytest.raises(ValueError, match="wrong channels; got 4; expected 3"):
            nn.InstanceNorm1d(3, **options)(x)


@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("layer, shape", [(nn.BatchNorm1d, (0, 3)), (nn.BatchNorm1d, (2, 3, 0)), (nn.BatchNorm2d, (0, 3, 4, 4))])
def test_batch_norm_of_an_empty_batch(layer, shape, track):
    norm, x = layer(3, track_running_stats=track), pf.ones(shape, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape and norm.weight.grad.tolist() == norm.bias.grad.tolist() == [0, 0, 0]
    assert [b.tolist() for b in norm.buffers()] == ([[0, 0, 0], [1, 1, 1], 1] if track else [])
    with pytest.raises(ValueError, match="one value per channel has no variance"):
        nn.BatchNorm1d(3)(pf.ones(1, 3))


@pytest.mark.parametrize("layer, text", [
    (nn.Dropout(), "Dropout(p=0.5, inplace=False)"), (nn.Dropout2d(0.1, True), "Dropout2d(p=0.1, inplace=True)"), (nn.AlphaDropout(), "AlphaDropout(p=0.5, inplace=False)"),
    (nn.Softplus(), "Softplus(beta=1.0, threshold=20.0)"), (nn.ReLU(True), "ReLU(inplace=True)"), (nn.ReLU(), "ReLU()"), (nn.SiLU(True), "SiLU(inplace=True)"),
    (nn.Threshold(1, 2, True), "Threshold(threshold=1, value=2, inplace=True)"), (nn.LayerNorm(3, bias=False), "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=False)"),
    (nn.ConvTranspose2d(2, 4, 3, 2, 1, 1, 2, False, 2), "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(2, 2), output_padding=(1, 1), groups=2, bias=False)"),
    (nn.AvgPool1d(2), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"), (nn.MaxUnpool2d(2), "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"),
    (nn.EmbeddingBag(3, 2, padding_idx=1), "EmbeddingBag(3, 2, mode='mean', padding_idx=1)"), (nn.Embedding(3, 2, padding_idx=1, max_norm=1.0), "Embedding(3, 2, padding_idx=1, max_norm=1.0)"),
    (nn.Upsample(scale_factor=2), "Upsample(scale_factor=2.0, mode='nearest')"), (nn.Upsample(scale_factor=(2, 3)), "Upsample(scale_factor=(2.0, 3.0), mode='nearest')"),
])
def test_layers_are_printed_as_in_pytorch(layer, text):
    assert repr(layer) == text


@pytest.mark.parametrize("shape", [(0, 2), (0, 2, 3), (2, 2, 0), (0, 2, 3, 3)])
def test_batch_norm_of_nothing(shape):
    for training in (True, False):
        for mean, var in ((pf.full((2,), 3.0), pf.full((2,), 2.0)), (None, None)):
            x, weight, bias = pf.zeros(*shape, requires_grad=True), pf.ones(2, requires_grad=True), pf.ones(2, requires_grad=True)
            y = F.batch_norm(x, mean, var, weight, bias, training=training)
            y.sum().backward()
            assert y.shape == x.grad.shape == shape and weight.grad.tolist() == bias.grad.tolist() == [0, 0]
            assert mean is None or (mean.tolist() == [3, 3] and var.tolist() == [2, 2])


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(3), lambda: nn.BatchNorm2d(3, affine=False), lambda: nn.BatchNorm1d(3, track_running_stats=False), lambda: nn.SyncBatchNorm(3),
                                  lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), lambda: nn.InstanceNorm1d(3), lambda: nn.GroupNorm(3, 3), lambda: nn.LayerNorm(3),
                                  lambda: nn.LayerNorm(3, bias=False), lambda: nn.RMSNorm(3), lambda: nn.RMSNorm(3, elementwise_affine=False), lambda: nn.PReLU(3, 0.5)])
def test_reset_parameters(make):
    layer, fresh = make(), make().state_dict()
    for t in layer.state_dict().values():
        t.fill_(7)
    if hasattr(layer, "reset_running_stats"):
        layer.reset_running_stats()
        state = layer.state_dict()
        assert all((state[k] == v).all().item() for k, v in fresh.items() if k in ("running_mean", "running_var", "num_batches_tracked"))
        assert all((state[k] == 7).all().item() for k in ("weight", "bias") if k in state)
    layer.reset_parameters()
    assert all((v == fresh[k]).all().item() for k, v in layer.state_dict().items()) and all(p.requires_grad for p in layer.parameters())


def test_layers_without_shapes_yet_have_nothing_to_reset():
    layer = nn.LazyBatchNorm1d()
    layer.reset_parameters()
    layer.reset_running_stats()
    layer(pf.ones(2, 3))
    layer.reset_parameters()
    assert layer.running_mean.tolist() == [0, 0, 0] and layer.num_batches_tracked.item() == 0


def test_dropout_that_drops_nothing_returns_its_input():
    weight = pf.nn.Parameter(pf.ones(3))
    pf.manual_seed(0)
    numbers = pf.rand(4).tolist()
    pf.manual_seed(0)
    assert F.dropout(weight, 0.5, training=False) is weight and F.dropout(weight, 0.0, training=True) is weight
    assert pf.rand(4).tolist() == numbers  # no random number was drawn
    assert F.dropout(weight, 0.5) is not weight
    for p in (-0.5, 2.0, float("nan")):
        with pytest.raises(pf.ArgumentError, match="dropout: the probability is out of range"):
            F.dropout(weight, p, training=False)


def test_the_slope_of_rrelu_at_zero():
    x = pf.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    F.rrelu(x, 0.2, 0.4).sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), [0.3, 0.3, 1.0], rtol=1e-6)


@pytest.mark.parametrize("mode, dims, kept", [("linear", 1, True), ("bilinear", 2, True), ("trilinear", 3, True), ("nearest", 1, True), ("nearest", 2, True),
                                              ("nearest-exact", 2, False), ("bicubic", 2, False)])
def test_a_factor_that_does_not_change_the_size(mode, dims, kept):
    x = pf.randn(1, 2, *[3] * dims)
    y = F.interpolate(x, scale_factor=1.3, mode=mode)
    assert y.shape == x.shape and pf.equal(x, y) == kept and not y.is_same(x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_a_factor_that_does_not_change_the_size_with_antialias(mode):
    x = pf.randn(1, 2, 3, 3)
    assert pf.equal(F.interpolate(x, scale_factor=1.3, mode=mode, antialias=True), x)


def test_interpolate_by_lanczos():
    x = pf.arange(64.0).reshape(1, 1, 8, 8).requires_grad_()
    y = F.interpolate(x, size=(5, 5), mode="lanczos", antialias=True)
    np.testing.assert_allclose(y[0, 0, 1].tolist(), [15.342351, 16.920155, 18.540134, 20.160116, 21.737919], rtol=1e-5)
    y.sum().backward()
    assert x.grad.sum().item() == pytest.approx(25, rel=1e-5)
    assert F.interpolate(x.detach().to(pf.uint8), size=(5, 5), mode="lanczos", antialias=True)[0, 0, 1].tolist() == [15, 17, 19, 20, 22]
    for wrong in ({"size": 3}, {"size": 3, "antialias": True, "align_corners": True}):
        with pytest.raises(ValueError, match="'lanczos' needs antialias"):
            F.interpolate(x, mode="lanczos", **wrong)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pools_without_windows(dims):
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[dims - 1]
    for shape in ((2, 3, *[4] * dims), (3, *[4] * dims)):
        x = pf.randn(*shape, requires_grad=True)
        y = pool(x, 0)
        y.sum().backward()
        assert y.shape == (*shape[:-dims], *[0] * dims) and not x.grad.any().item()
    with pytest.raises(ValueError):
        pool(x, -1)
    assert F.interpolate(pf.randn(1, 2, *[4] * dims), size=0, mode="area").numel() == 0


def test_a_float32_mask_in_a_float64_layer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0).double()
    x, mask = pf.randn(5, 2, 4, dtype=pf.float64), nn.Transformer.generate_square_subsequent_mask(5)
    assert mask.dtype == pf.float32
    np.testing.assert_allclose(layer(x, mask).tolist(), layer(x, mask.double()).tolist())


def test_cosine_similarity_of_short_and_long_vectors():
    x, y = pf.tensor([[0.3, 0.4]], dtype=pf.float64, requires_grad=True), pf.tensor([[0.6, 0.8]], dtype=pf.float64)
    F.cosine_similarity(x, y, eps=10).sum().backward()
    # (x / 10) . (y / 10), where the first 10 has the gradient of |x| = 0.5: y / 100 - (x . y) / 1000 x / |x|
    np.testing.assert_allclose(x.grad.numpy()[0], np.array([0.6, 0.8]) / 100 - 0.5 / 1000 * np.array([0.6, 0.8]), rtol=1e-9)
    far = pf.tensor([[1e30, 0.0]])
    assert F.cosine_similarity(far, far).item() == 0  # as PyTorch: the norm is infinite


def test_the_kernel_name_of_channel_shuffle():
    x = pf.arange(6).reshape(1, 6, 1)
    assert F.native_channel_shuffle(x, 2).flatten().tolist() == F.channel_shuffle(x, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5]
