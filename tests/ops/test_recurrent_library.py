"""Recurrent layers by a GPU's library, against the steps of the CPU. Libraries do not promise the same bits in every run, so they are taken only
without deterministic algorithms. MIOpen's side, with a library that stands in for it: tests/faults/test_miopen_recurrent.py."""
import contextlib
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE != "cuda" and "PYFLAME_TEST_REAL_GPU" not in os.environ, reason="PYFLAME_TEST_DEVICE names no GPU with a library of recurrent layers")
LAYERS = {"rnn_tanh": nn.RNN, "rnn_relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k), "lstm": nn.LSTM, "gru": nn.GRU}
# A product adds in another order, and the state passes the error on to all later steps.
LIMIT = {pf.float32: 2e-4, pf.float64: 1e-10, pf.float16: 2e-2, pf.bfloat16: 1.5e-1}


@pytest.fixture(autouse=True)
def any_order():
    pf.use_deterministic_algorithms(False)
    with contextlib.ExitStack() as asked:
        if DEVICE == "rocm":  # MIOpen is taken on request only
            for op in ("recurrent", "recurrent_grad"):
                asked.enter_context(pf.tuning.force(op, "gpu.dnn"))
        yield
    pf.use_deterministic_algorithms(True)


def made(kind, dtype=pf.float32, **how):
    pf.manual_seed(0)
    return LAYERS[kind](12, 16, **how).to(dtype)


def inputs(kind, layer, dtype, steps=7, batch=5, width=12):
    rng = np.random.default_rng(1)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    x = pf.tensor(rng.standard_normal((steps, batch, width)).astype(np.float32)).to(dtype)
    states = [pf.tensor(rng.standard_normal((count, batch, layer.hidden_size)).astype(np.float32)).to(dtype) for _ in range(2 if kind == "lstm" else 1)]
    return [x, *states]


def outputs(kind, layer, given):
    x, *states = given
    y, last = layer(x, tuple(states) if kind == "lstm" else states[0])
    return [y, *(last if kind == "lstm" else [last])]


def trained(kind, layer, given):
    """Outputs, and gradients of inputs, states and weights."""
    for p in layer.parameters():
        p.grad = None
    given = [g.detach().requires_grad_() for g in given]
    results = outputs(kind, layer, given)
    sum((r.float() * r.float() * (i + 1)).sum() for i, r in enumerate(results)).backward()
    return results + [g.grad for g in given] + [p.grad for p in layer.parameters()]


def close(got, want, dtype):
    for i, (g, w) in enumerate(zip(got, want)):
        g, w = g.detach().to("cpu").double().numpy(), w.detach().double().numpy()
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=0, atol=LIMIT[dtype] * max(1.0, np.abs(w).max()), err_msg=f"result {i}")


def compare(kind, dtype, run=trained, **how):
    layer = made(kind, dtype, **how)
    given = inputs(kind, layer, dtype)
    exact = made(kind, dtype, **how).double()
    want = run(kind, exact, [g.double() for g in given])
    on_gpu = layer.to(DEVICE)
    got = []
    text = pf.explain(lambda: got.extend(run(kind, on_gpu, [g.to(DEVICE) for g in given])))
    assert "gpu.dnn" in text and "recurrent(" in text, text
    close(got, want, dtype)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_dtypes(kind, dtype):
    compare(kind, dtype)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("how", [dict(num_layers=2), dict(bidirectional=True), dict(num_layers=3, bidirectional=True), dict(bias=False), dict(num_layers=2, bias=False)], ids=str)
def test_layers(kind, how):
    compare(kind, pf.float32, **how)


@pytest.mark.parametrize("kind", LAYERS)
def test_inference(kind):
    with pf.no_grad():
        compare(kind, pf.float32, outputs, num_layers=2)


def test_batch_first_and_no_state():
    layer = made("lstm", batch_first=True)
    x = inputs("lstm", layer, pf.float32, steps=5, batch=7)[0]
    want, _ = layer(x)
    got, _ = layer.to(DEVICE)(x.to(DEVICE))
    close([got], [want], pf.float32)


def test_a_gradient_twice():
    """The library changes what it keeps for the gradient, so the gradient has a copy."""
    layer = made("gru").to(DEVICE)
    x, h = (g.to(DEVICE).requires_grad_() for g in inputs("gru", layer, pf.float32))
    y = layer(x, h)[0].square().sum()
    first, second = (pf.autograd.grad(y, [x, h], retain_graph=True) for _ in range(2))
    close(second, [f.to("cpu") for f in first], pf.float32)


def test_second_derivatives():
    """They go through the steps."""
    layer, on_gpu = made("lstm").double(), made("lstm").double().to(DEVICE)

    def second(layer, x):
        x = x.detach().requires_grad_()
        (g,) = pf.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        return pf.autograd.grad(g.square().sum(), x)

    x = inputs("lstm", layer, pf.float64)[0]
    close(second(on_gpu, x.to(DEVICE)), second(layer, x), pf.float64)


def test_dropout_between_layers_is_our_own():
    """One op for each layer, and between them dropout with PyFlame's numbers."""
    layer = made("lstm", num_layers=3, dropout=0.5).to(DEVICE)
    x = inputs("lstm", layer, pf.float32)[0].to(DEVICE)
    results = []

    def run():
        for mode in (False, True):  # deterministic: the steps
            pf.use_deterministic_algorithms(mode)
            pf.manual_seed(3)
            results.append(layer(x)[0].detach().to("cpu"))

    text = pf.explain(run)
    assert text.count("recurrent(float32") == 3, text
    close(results[:1], results[1:], pf.float32)


def test_what_goes_step_by_step():
    """The explanation says why."""
    lstm = made("lstm").to(DEVICE)
    x = inputs("lstm", lstm, pf.float32)[0].to(DEVICE).requires_grad_()
    text = pf.explain(lambda: lstm(x)[0].sum().item())
    assert "recurrent(" in text and "step by step" not in text
    projected = nn.LSTM(12, 16, proj_size=8, device=DEVICE)
    packed = nn.utils.rnn.pack_padded_sequence(x, pf.tensor([7, 6, 4, 2, 1]))
    for call, why in ((lambda: projected(x)[0], "a projection"), (lambda: lstm(packed)[0].data, "sequences of different lengths")):
        text = pf.explain(lambda: call().sum().item())  # noqa: B023
        assert "recurrent(" not in text and f"1 x  {why}" in text
    pf.use_deterministic_algorithms(True)
    text = pf.explain(lambda: lstm(x)[0].sum().item())
    assert "recurrent(" not in text and "1 x  deterministic algorithms are in use" in text


def test_memory_is_freed():
    layer = made("lstm", num_layers=2).to(DEVICE)
    x = inputs("lstm", layer, pf.float32, steps=64, batch=32)[0].to(DEVICE)

    def used():
        layer(x)[0].sum().backward()
        pf.synchronize()
        return pf.accelerator.memory_allocated()

    first = [used() for _ in range(3)][-1]
    assert [used() for _ in range(5)][-1] <= first


def test_in_a_loop():
    """Training steps of one shape: replays, other addresses, and the same losses as step by step."""
    def losses(mode):
        pf.use_deterministic_algorithms(mode)
        pf.manual_seed(0)
        layer = nn.LSTM(12, 16, num_layers=2).to(DEVICE)
        optimizer = pf.optim.SGD(layer.parameters(), lr=0.1)
        x = inputs("lstm", layer, pf.float32)[0].to(DEVICE)
        all = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = layer(x)[0].square().mean()
            loss.backward()
            optimizer.step()
            all.append(loss.item())
        return all

    got, want = losses(False), losses(True)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert got[-1] < got[0]
