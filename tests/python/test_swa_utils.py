"""Averages of weights: against their formulas, and against PyTorch where it is installed."""
import math

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.optim import SGD, swa_utils


def weights(t):
    return np.sin(np.arange(6).reshape(3, 2) + t).astype(np.float32)


def averaged(lib, make, use_buffers=False, steps=5):
    """The averages after some updates of a layer with given weights and a batch norm with given statistics."""
    model = lib.nn.Sequential(lib.nn.Linear(2, 3, bias=False), lib.nn.BatchNorm1d(3))
    average = lib.optim.swa_utils.AveragedModel(model, use_buffers=use_buffers, **make(lib.optim.swa_utils))
    for t in range(steps):
        with lib.no_grad():
            model[0].weight.copy_(lib.tensor(weights(t)))
            model[1].running_mean.fill_(float(t))
            model[1].num_batches_tracked.fill_(t)
        average.update_parameters(model)
    return average


EMA = 0.75
MAKERS = {
    "equal": lambda u: {},
    "equal, multi": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(EMA)},
    "ema, multi": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(EMA)},
    "own": lambda u: {"avg_fn": lambda a, v, n: a * 0.5 + v * 0.5 / (n * 1.0)},
}


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("case", MAKERS)
def test_averages(case, use_buffers):
    if case == "own" and use_buffers:
        pytest.skip("the function is for floats")
    average = averaged(pf, MAKERS[case], use_buffers)
    want, mean = weights(0), 0.0
    for t in range(1, 5):
        w, m = weights(t), float(t)
        if case.startswith("equal"):
            want, mean = want + (w - want) / (t + 1), mean + (m - mean) / (t + 1)
        elif case.startswith("ema"):
            want, mean = EMA * want + (1 - EMA) * w, EMA * mean + (1 - EMA) * m
        else:
            want = want * 0.5 + w * 0.5 / t
    np.testing.assert_allclose(average.module[0].weight.detach().numpy(), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(average.module[1].running_mean.tolist(), mean if use_buffers else 4.0, rtol=1e-6)
    assert average.n_averaged.item() == 5 and "module.0.weight" in average.state_dict()
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    if case == "equal, multi" and use_buffers:
        return  # PyTorch refuses integer buffers here
    theirs = averaged(torch, MAKERS[case], use_buffers)
    for (name, a), (other, b) in zip(average.state_dict().items(), theirs.state_dict().items()):
        assert name == other
        np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), rtol=1e-6, atol=1e-6, err_msg=name)


def test_forward_and_arguments():
    model = nn.Linear(2, 1)
    average = swa_utils.AveragedModel(model)
    x = pf.ones(1, 2)
    assert average(x).tolist() == model(x).tolist() and average.module is not model
    with pytest.raises(ValueError, match="got avg_fn and multi_avg_fn; expected one"):
        swa_utils.AveragedModel(model, avg_fn=max, multi_avg_fn=max)
    with pytest.raises(ValueError, match="decay is out of range; got 2"):
        swa_utils.get_ema_multi_avg_fn(2)


def test_update_bn():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).eval()
    model[0].running_mean.fill_(7)
    batches = [pf.tensor([[1.0, 2.0], [3.0, 6.0]]), pf.tensor([[0.0, 0.0], [4.0, 2.0]])]
    swa_utils.update_bn([(b, None) for b in batches], model)
    np.testing.assert_allclose(model[0].running_mean.tolist(), np.mean([b.numpy().mean(0) for b in batches], 0))
    np.testing.assert_allclose(model[0].running_var.tolist(), np.mean([b.numpy().var(0, ddof=1) for b in batches], 0))
    assert model[0].momentum == 0.1 and not model[0].training and model[0].num_batches_tracked.item() == 2
    swa_utils.update_bn([], nn.Linear(1, 1))


def swalr(lib, **kw):
    a, b = (lib.zeros(1, requires_grad=True) for _ in range(2))
    optimizer = lib.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.2}], lr=1.0)
    decay, swa = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), lib.optim.swa_utils.SWALR(optimizer, [0.1, 0.05], **kw)
    rates = []
    for t in range(9):
        optimizer.step()
        (decay if t < 2 else swa).step()
        rates.append([g["lr"] for g in optimizer.param_groups])
    return rates


@pytest.mark.parametrize("kw", [{}, {"anneal_epochs": 4, "anneal_strategy": "linear"}, {"anneal_epochs": 0}], ids=str)
def test_swalr(kw):
    rates = swalr(pf, **kw)
    epochs = kw.get("anneal_epochs", 10)
    if kw:
        assert rates[-1] == pytest.approx([0.1, 0.05])
    else:
        a = (1 - math.cos(math.pi * 7 / epochs)) / 2
        assert rates[-1] == pytest.approx([0.1 * a + 0.81 * (1 - a), 0.05 * a + 0.162 * (1 - a)])
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    np.testing.assert_allclose(rates, swalr(torch, **kw), rtol=1e-9)


def test_swalr_errors():
    optimizer = SGD([pf.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match="SWALR: unknown anneal_strategy; got 'x'"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="x")
    with pytest.raises(ValueError, match="SWALR: anneal_epochs must be an integer that is not negative; got -1"):
        swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
