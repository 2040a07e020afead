"""Recursions over the steps of sequences, which GPUs compute by kernels of their own, against the CPU. On the device of PYFLAME_TEST_DEVICE."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")


def close(a, b, tolerance=2e-5):
    np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), tolerance, tolerance)


@pytest.mark.parametrize("hidden, batch, layers, both", [(128, 1, 1, False), (20, 3, 2, True), (256, 2, 1, True), (300, 1, 1, False), (1, 4, 1, False), (8, 6, 1, False)])
def test_lstm(hidden, batch, layers, both):
    """Few sequences with a small state, and others."""
    pf.manual_seed(0)
    layer = pf.nn.LSTM(7, hidden, layers, bidirectional=both, device="cpu")
    x = pf.randn(5, batch, 7, device="cpu")
    state = tuple(pf.randn(layers * (1 + both), batch, hidden, device="cpu") for _ in range(2))
    with pf.no_grad():
        want, ends = layer(x, state)
        got, got_ends = layer.to(DEVICE)(x.to(DEVICE), tuple(s.to(DEVICE) for s in state))
        close(got, want)
        for a, b in zip(got_ends, ends, strict=True):
            close(a, b)
    with_gradient, _ = layer(x.to(DEVICE), tuple(s.to(DEVICE) for s in state))
    close(got, with_gradient)


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64])
@pytest.mark.parametrize("steps, labels, blank", [(30, 9, 0), (12, 5, 3), (140, 70, 1)])
def test_ctc(steps, labels, blank, dtype):
    """Samples of different lengths, one without steps, one whose labels do not fit; 70 labels are more columns than a workgroup has threads."""
    rng = np.random.default_rng(steps)
    n, classes = 5, 6
    x = pf.tensor(rng.standard_normal((steps, n, classes)), dtype=dtype)
    targets = pf.tensor((blank + 1 + rng.integers(0, classes - 1, (n, labels))) % classes)
    lengths, label_lengths = [steps, steps - 3, 2, 0, steps], [labels, labels // 2, labels, 0, 0]

    def run(device):
        leaf = x.to(device).requires_grad_()
        loss = pf.nn.functional.ctc_loss(leaf.log_softmax(2), targets.to(device), lengths, label_lengths, blank=blank, reduction="none", zero_infinity=True)
        loss.sum().backward()
        return loss, leaf.grad

    for a, b in zip(run(DEVICE), run("cpu"), strict=True):
        close(a, b, 1e-4 if dtype == pf.float32 else 1e-10)
