"""Layers and losses that are compositions of others, against NumPy."""
import inspect
import pickle

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F


def close(x, want, tol=1e-5):
    np.testing.assert_allclose(x.detach().numpy(), want, rtol=tol, atol=tol)


def test_layers_of_one_row():
    x = np.random.default_rng(0).standard_normal((2, 4, 11)).astype(np.float32)
    image = pf.tensor(x).unsqueeze(2)
    conv = nn.Conv1d(4, 6, 3, stride=2, padding=(1,), dilation=2, groups=2)
    assert conv.weight.shape == (6, 2, 3) and repr(conv) == "Conv1d(4, 6, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), groups=2)"
    close(conv(pf.tensor(x)), F.conv2d(image, conv.weight.unsqueeze(2), conv.bias, (1, 2), (0, 1), (1, 2), 2).squeeze(2).detach().numpy())
    close(conv(pf.tensor(x[0])), conv(pf.tensor(x))[0].detach().numpy())
    assert nn.Conv1d(4, 1, 5, padding="same")(pf.tensor(x)).shape == (2, 1, 11)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1)), constant_values=-np.inf), 3, axis=-1)[:, :, ::2]
    close(nn.MaxPool1d(3, 2, 1)(pf.tensor(x)), windows.max(-1))
    close(nn.AvgPool1d(3)(pf.tensor(x)), x[:, :, :9].reshape(2, 4, 3, 3).mean(-1))
    values, at = F.max_pool1d(pf.tensor(x), 4, return_indices=True)
    close(values, np.take_along_axis(x, at.numpy(), -1))
    close(nn.AdaptiveAvgPool1d(2)(pf.tensor(x)), np.stack([x[..., :6].mean(-1), x[..., 5:].mean(-1)], -1))


def test_adaptive_windows_keep_what_is_not_finite_to_themselves():
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 7)).astype(np.float32)
    x[0, 0, 0, 0], x[0, 0, 4, 6] = np.inf, np.nan
    y = nn.AdaptiveAvgPool2d((3, 2))(pf.tensor(x)).numpy()[0, 0]
    assert y[0, 0] == np.inf and np.isnan(y[2, 1]) and np.isfinite(y).sum() == 4
    assert nn.AdaptiveAvgPool2d((None, 1))(pf.tensor(x)).shape == (1, 1, 5, 1)


@pytest.mark.parametrize("mode,numpy_mode", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_padding_modes(mode, numpy_mode):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)
    np.testing.assert_array_equal(F.pad(pf.tensor(x), (2, 1, 0, 3), mode).numpy(), np.pad(x, ((0, 0), (0, 0), (0, 3), (2, 1)), mode=numpy_mode))
    same = F.pad(pf.tensor(x), (0, 0), mode)
    assert same.tolist() == x.tolist()
    conv = nn.Conv2d(3, 2, 3, padding=(1, 2), padding_mode=mode)
    assert repr(conv).endswith(f"padding_mode={mode})")
    close(conv(pf.tensor(x)), F.conv2d(pf.tensor(np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), mode=numpy_mode)), conv.weight, conv.bias).detach().numpy())
    row = nn.Conv1d(3, 2, 3, padding="same", padding_mode=mode)
    close(row(pf.tensor(x[:, :, 0])), F.conv1d(pf.tensor(np.pad(x[:, :, 0], ((0, 0), (0, 0), (1, 1)), mode=numpy_mode)), row.weight, row.bias).detach().numpy())


CROPPED = {  # 0 1 2 3 padded by (left, right), as PyTorch does it
    "reflect": {(-1, 1): [1, 2, 3, 2], (1, -1): [1, 0, 1, 2], (-2, 3): [2, 3, 2, 1, 0], (-1, -2): [1]},
    "replicate": {(-1, 1): [1, 2, 3, 3], (1, -1): [0, 0, 1, 2], (-2, 3): [2, 3, 3, 3, 3], (-1, -2): [1]},
    "circular": {(-1, 1): [1, 2, 3, 1], (1, -1): [2, 0, 1, 2], (-2, 2): [2, 3, 2, 3], (-1, -2): [1]},
}


@pytest.mark.parametrize("mode", CROPPED)
def test_padding_that_crops(mode):
    """With negative pads, circular padding repeats what remains; reflect and replicate read only the other end."""
    x = np.arange(48.0).reshape(1, 3, 4, 4)
    for columns, at in CROPPED[mode].items():
        for rows, at_rows in CROPPED[mode].items():
            t = pf.tensor(x, requires_grad=True)
            y = F.pad(t, columns + rows, mode)
            assert y.tolist() == x[:, :, at_rows][:, :, :, at].tolist()
            y.sum().backward()
            assert t.grad[0, 0].tolist() == np.outer(np.bincount(at_rows, minlength=4), np.bincount(at, minlength=4)).tolist()


def test_a_circle_closes_once():
    with pytest.raises(ValueError, match="mode 'circular' does not fit; got padding .-2, 3. for dim 1 of size 4; expected at most 2"):
        F.pad(pf.ones(1, 4), (-2, 3), "circular")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "ELU": (nn.ELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0)))),
    "CELU": (nn.CELU(alpha=1.3), lambda x: np.where(x > 0, x, 1.3 * np.expm1(np.minimum(x, 0) / 1.3))),
    "SELU": (nn.SELU(inplace=False), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))),
    "ReLU6": (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    "Hardtanh": (nn.Hardtanh(-2, 0.5), lambda x: np.clip(x, -2, 0.5)),
    "Hardsigmoid": (nn.Hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "Hardswish": (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "Mish": (nn.Mish(), lambda x: x * np.tanh(np.logaddexp(0, x))),
    "Softsign": (nn.Softsign(), lambda x: x / (1 + np.abs(x))),
    "Tanhshrink": (nn.Tanhshrink(), lambda x: x - np.tanh(x)),
    "LogSigmoid": (nn.LogSigmoid(), lambda x: -np.logaddexp(0, -x)),
    "Softmin": (nn.Softmin(1), lambda x: np.exp(-x) / np.exp(-x).sum(1, keepdims=True)),
    "GLU": (nn.GLU(1), lambda x: x[:, :2] * sigmoid(x[:, 2:])),
    "PReLU": (nn.PReLU(4, init=0.125).double(), lambda x: np.where(x > 0, x, 0.125 * x)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(name):
    layer, want = ACTIVATIONS[name]
    assert type(layer).__name__ == name == repr(layer).split("(")[0] and type(layer).__doc__
    x = np.random.default_rng(0).standard_normal((3, 4)) * 4 + 0.01
    t = pf.tensor(x, requires_grad=True)
    y = pickle.loads(pickle.dumps(layer))(t)
    close(y, want(x), 1e-12)
    w = np.random.default_rng(1).standard_normal(y.shape)
    (y * pf.tensor(w)).sum().backward()
    numeric = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        numeric[i] = ((want(x + step) - want(x - step)) * w).sum() / 2e-6
    close(t.grad, numeric, 1e-7)
    far = pf.tensor([[1000.0, -1000.0, 0.0, 5.0]], dtype=pf.float64, requires_grad=True)
    layer(far).sum().backward()
    assert np.isfinite(far.grad.numpy()).all()


def test_losses_made_of_others():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 5, 3)) * 2
    d, a, b = np.abs(x - y), pf.tensor(x), pf.tensor(y)
    l1 = np.where(d < 0.6, d * d / 1.2, d - 0.3)
    close(nn.SmoothL1Loss(beta=0.6)(a, b), l1.mean(), 1e-12)
    close(nn.SmoothL1Loss("none", 0.6)(a, b), l1, 1e-12)
    close(nn.SmoothL1Loss("sum", 0)(a, b), d.sum(), 1e-12)
    close(nn.HuberLoss("sum", 0.6)(a, b), 0.6 * l1.sum(), 1e-12)
    p = rng.random((5, 3))
    p[0, 0] = 0
    kl = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - x), 0)
    logits = pf.tensor(x, requires_grad=True)
    loss = nn.KLDivLoss("batchmean")(logits, pf.tensor(p))
    close(loss, kl.sum() / 5, 1e-12)
    loss.backward()
    close(logits.grad, -p / 5, 1e-12)
    close(nn.KLDivLoss("sum", log_target=True)(a, b), (np.exp(y) * (y - x)).sum(), 1e-12)
    close(F.cosine_similarity(a, b), (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1), 1e-12)
    assert F.cosine_similarity(a, pf.zeros(5, 3, dtype=pf.float64)).tolist() == [0.0] * 5


@pytest.mark.parametrize("shapes,dim", [(((1, 2, 3), (2, 1, 3)), -2), (((1, 2, 3), (2, 1, 3)), 0), (((3,), (4, 3)), 1), (((2, 3), (3,)), 0), (((4, 1), (1, 3)), 1)])
def test_cosine_similarity_of_different_shapes(shapes, dim):
    """Norms are those of the common shape, as in PyTorch."""
    x, y = (np.random.default_rng(i).standard_normal(s) for i, s in enumerate(shapes))
    a, b = (pf.tensor(v, requires_grad=True) for v in (x, y))
    u, v = np.broadcast_arrays(x, y)
    want = (u * v).sum(dim) / np.linalg.norm(u, axis=dim) / np.linalg.norm(v, axis=dim)
    assert (abs(want) <= 1).all()
    close(F.cosine_similarity(a, b, dim), want, 1e-12)
    assert pf.autograd.gradcheck(lambda s, t: F.cosine_similarity(s, t, dim), [a, b])


def test_prelu_keeps_the_shape():
    weight = pf.tensor([0.25], requires_grad=True)
    for shape in [(), (3,), (2, 3), (2, 1, 3), (0, 3)]:
        x = -pf.ones(*shape) if shape else pf.tensor(-1.0)
        assert F.prelu(x, weight).shape == nn.PReLU()(x).shape == shape
    weight.grad = None
    F.prelu(pf.tensor(-3.0), weight).backward()
    assert weight.grad.tolist() == [-3.0]


def test_group_and_batch_norm():
    x = np.random.default_rng(0).standard_normal((3, 6, 5)).astype(np.float32)
    w, b = np.arange(1.0, 7).astype(np.float32), np.arange(6).astype(np.float32)
    layer = nn.GroupNorm(2, 6)
    layer.load_state_dict({"weight": pf.tensor(w), "bias": pf.tensor(b)})
    g = x.reshape(3, 2, 15)
    want = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)).reshape(x.shape) * w[:, None] + b[:, None]
    close(layer(pf.tensor(x)), want, 1e-4)
    close(nn.BatchNorm1d(6)(pf.tensor(x)), (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5), 1e-4)
    flat = x[:, :, 0]
    close(nn.BatchNorm1d(6)(pf.tensor(flat)), (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5), 1e-4)
    assert nn.Unflatten(-2, (2, 3))(pf.tensor(x)).shape == (3, 2, 3, 5)


def test_class_weights():
    """PyTorch's documented formulas, and weights as part of a module's state."""
    rng = np.random.default_rng(0)
    x, w, y = rng.standard_normal((9, 4)).astype(np.float32), np.array([0.5, 2, 1, 3], np.float32), np.array([0, 1, 2, 3, 3, 1, 0, 2, 1])
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    each = -w[y] * logp[np.arange(9), y]
    kept = y != 2
    for layer, input in ((nn.CrossEntropyLoss, x), (nn.NLLLoss, logp)):
        weight = pf.tensor(w)
        close(layer(weight, reduction="none")(pf.tensor(input), pf.tensor(y)), each)
        close(layer(weight)(pf.tensor(input), pf.tensor(y)), each.sum() / w[y].sum())
        close(layer(weight, ignore_index=2)(pf.tensor(input), pf.tensor(y)), each[kept].sum() / w[y][kept].sum())
        assert list(layer(weight).state_dict()) == ["weight"]
    smooth = nn.CrossEntropyLoss(pf.tensor(w), ignore_index=2, label_smoothing=0.3)(pf.tensor(x), pf.tensor(y))
    spread = -(w * logp).sum(1) / 4
    close(smooth, (0.7 * each + 0.3 * spread)[kept].sum() / w[y][kept].sum())
    logits = pf.tensor(x, requires_grad=True)
    F.cross_entropy(logits, pf.tensor(y), pf.tensor(w)).backward()
    close(logits.grad, w[y][:, None] * (np.exp(logp) - np.eye(4)[y]) / w[y].sum())


def test_signatures_of_activations_show_their_settings():
    shown = {layer: str(inspect.signature(layer)) for layer in (nn.Hardtanh, nn.ReLU6, nn.Softsign)}
    assert shown == {nn.Hardtanh: "(min_val: 'float' = -1.0, max_val: 'float' = 1.0, inplace: 'bool' = False) -> 'None'", nn.ReLU6: "(inplace: 'bool' = False) -> 'None'", nn.Softsign: "() -> 'None'"}
    assert str(inspect.signature(nn.Softmin)) == str(inspect.signature(nn.Softmax)) == "(dim: 'int | None' = None) -> 'None'"
    with pytest.raises(TypeError, match="ELU: no such setting; got beta; expected alpha, inplace"):
        nn.ELU(beta=2)


def test_errors_of_kl_div():
    with pytest.raises(ValueError, match="kl_div: unknown reduction; got 'x'; expected 'none', 'mean', 'sum' or 'batchmean'"):
        F.kl_div(pf.ones(2), pf.ones(2), "x")
    with pytest.raises(ValueError, match="kl_div: 'batchmean' divides by the first size"):
        F.kl_div(pf.tensor(1.0), pf.tensor(1.0), "batchmean")
