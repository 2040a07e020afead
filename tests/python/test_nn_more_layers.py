"""Bilinear, SyncBatchNorm, AdaptiveLogSoftmaxWithLoss, gumbel_softmax and functions in place."""
import numpy as np
import pytest

import pyflame as pf
import pyflame.nn.functional as F
from pyflame import nn


def test_bilinear():
    layer, a, b = nn.Bilinear(3, 4, 2), pf.randn(5, 3), pf.randn(5, 4)
    want = np.einsum("ni,oij,nj->no", a.numpy(), layer.weight.detach().numpy(), b.numpy()) + layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(a, b).detach().numpy(), want, rtol=1e-4, atol=1e-5)
    assert repr(layer) == "Bilinear(in1_features=3, in2_features=4, out_features=2, bias=True)" and layer.weight.abs().max().item() <= 3**-0.5
    with pytest.raises(ValueError, match="in1_features must be positive"):
        nn.Bilinear(0, 1, 1)


def test_batch_norm_of_one_process():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm1d(4), nn.InstanceNorm1d(4)))
    other = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert [type(m).__name__ for m in other.modules()] == ["Sequential", "Conv2d", "SyncBatchNorm", "Sequential", "SyncBatchNorm", "InstanceNorm1d"]
    x = pf.randn(2, 4, 3, 3)
    plain, weight = nn.BatchNorm2d(4), other[1].weight
    assert pf.equal(other[1](x), plain(x)) and pf.equal(other[1].running_var, plain.running_var) and weight is other[1].weight


def test_adaptive_softmax():
    layer, x = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6], 2.0), pf.randn(5, 8)
    log_p = layer.log_prob(x)
    np.testing.assert_allclose(log_p.exp().sum(1).detach().numpy(), 1, rtol=1e-5)
    target = pf.tensor([0, 3, 9, 5, 2])
    output, loss = layer(x, target)
    np.testing.assert_allclose(output.detach().numpy(), log_p.detach().numpy()[np.arange(5), target.numpy()], rtol=1e-6)
    np.testing.assert_allclose(loss.item(), -output.mean().item(), rtol=1e-6)
    assert layer.predict(x).tolist() == log_p.argmax(1).tolist() and layer(x[0], target[0]).output.shape == ()
    assert [tuple(p.shape) for p in layer.parameters()] == [(5, 8), (4, 8), (3, 4), (2, 8), (4, 2)]
    with pytest.raises(ValueError, match="cutoffs do not fit"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 10, [6, 3])
    with pytest.raises(RuntimeError, match="input and target do not fit"):
        layer(x, target[:2])


def test_gumbel_softmax():
    logits = pf.log(pf.tensor([[0.2, 0.5, 0.3]])).expand(20000, 3).clone().requires_grad_()
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(hard.detach().reshape(-1).round(decimals=3).tolist()) == {0.0, 1.0}
    np.testing.assert_allclose(hard.detach().numpy().mean(0), [0.2, 0.5, 0.3], atol=0.02)
    hard[:, 0].sum().backward()
    assert (logits.grad != 0).any().item()
    np.testing.assert_allclose(F.gumbel_softmax(logits, 0.5).sum(1).detach().numpy(), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["celu", "elu", "selu", "hardtanh", "leaky_relu", "threshold"])
def test_in_place(name):
    args = (0.1, 2.0) if name == "threshold" else ()
    x = pf.randn(7)
    want = getattr(F, name)(x, *args)
    assert getattr(F, name + "_")(x, *args) is x and pf.equal(x, want)


def test_softmax_of_channels():
    x = pf.randn(2, 3, 4, 5)
    assert pf.equal(nn.Softmax2d()(x), pf.softmax(x, 1)) and pf.equal(nn.Softmax2d()(x[0]), pf.softmax(x[0], 0))
    with pytest.raises(ValueError, match="Softmax2d: the input has 2 dimensions"):
        nn.Softmax2d()(x[0, 0])
