"""NaN and infinity are results like any other: they are not lost, and they do not appear by mistake. Also sizes of zero."""
import os

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn.functional as F

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
DEVICES = list(dict.fromkeys((DEVICE, "reference")))
NAN = float("nan")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("keys", [1, 2, 70, 300])
@pytest.mark.parametrize("where", ["one row", "all rows"])
def test_attention_keeps_a_query_that_is_nan(device, keys, where):
    q = np.ones((1, 2, 3, 4), np.float32)
    q[0, 1, 1 if where == "one row" else slice(None), 0] = NAN
    k = v = np.ones((1, 2, keys, 4), np.float32)
    tensors = [pf.tensor(x, device=device, requires_grad=True) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*tensors)
    expected = np.broadcast_to(np.isnan(q).any(-1, keepdims=True), (1, 2, 3, 4))
    np.testing.assert_array_equal(np.isnan(y.detach().cpu().numpy()), expected)
    y.sum().backward()
    np.testing.assert_array_equal(np.isnan(tensors[0].grad.cpu().numpy()), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_attention_that_sees_nothing_is_zero(device):
    q = pf.ones(1, 1, 3, 4, device=device)
    seen = pf.tensor([[True, False], [False, False], [True, True]], device=device)
    assert F.scaled_dot_product_attention(q, q[:, :, :2], q[:, :, :2], attn_mask=seen)[0, 0, :, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_attention_of_no_width(device):
    q = pf.ones(2, 2, 8, 0, device=device)
    assert F.scaled_dot_product_attention(q, q, q, is_causal=True).tolist() == [[[[]] * 8] * 2] * 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_nan(device, name):
    x = pf.tensor([[NAN] * 3, [0.0, NAN, 0.0], [0.0, 0.0, 0.0]], device=device)
    y = getattr(F, name)(x, dim=1).cpu().numpy()
    assert np.isnan(y[:2]).all() and np.isfinite(y[2]).all()


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_without_weight_decay_an_infinite_parameter_stays_so(device):
    p, g, m, v = (pf.tensor([x, 1.0], device=device) for x in (np.inf, 1.0, 0.0, 0.0))
    pf.adam_step([p], [g], [m], [v], lr=0.1, beta1=0.9, beta2=0.9, eps=1e-8, weight_decay=0.0, step=1, decoupled=False, maximize=False)
    assert p.tolist()[0] == np.inf
    pf.sgd_step([p], [g], [], lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False, first=True)
    assert p.tolist()[0] == np.inf
