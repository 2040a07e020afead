"""How exact float32 convolutions are. On the device of PYFLAME_TEST_DEVICE; only cuDNN has kernels that round."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
F = pf.nn.functional
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="PYFLAME_TEST_DEVICE names no GPU")


@pytest.fixture(autouse=True)
def as_before():
    yield
    pf.set_float32_conv_precision("highest")


def convolution(device, size=8):
    """Result and gradients of a convolution of 16 channels, as float64 arrays."""
    random = np.random.default_rng(0)
    x, w = (pf.tensor(random.standard_normal(shape).astype(np.float32)).to(device).requires_grad_() for shape in ((2, 16, size, size), (16, 16, 3, 3)))
    y = F.conv2d(x, w, padding=1)
    (y * y).sum().backward()
    return [t.detach().cpu().numpy().astype(np.float64) for t in (y, x.grad, w.grad)]


def test_the_cpu_does_not_heed_it():
    exact = convolution("cpu")
    pf.set_float32_conv_precision("high")
    for a, b in zip(exact, convolution("cpu"), strict=True):
        assert np.array_equal(a, b)
    x = pf.ones(1, 1, 4, 4)
    assert "rounded=0" in pf.explain(lambda: F.conv2d(x, pf.ones(1, 1, 3, 3)))


@on_gpu
def test_float32_is_rounded_only_on_request():
    exact = convolution("cpu", 32)

    def error():
        return max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(exact, convolution(DEVICE, 32), strict=True))

    assert error() < 1e-5
    pf.set_float32_conv_precision("high")
    x = pf.ones(1, 16, 8, 8).to(DEVICE)
    text = pf.explain(lambda: F.conv2d(x, pf.ones(16, 16, 3, 3).to(DEVICE), padding=1))
    assert "rounded=1" in text
    rounded = error()
    assert rounded < 1e-2
    if "cudnn" in text:
        assert rounded > 1e-5
    pf.set_float32_conv_precision("highest")
    assert error() < 1e-5
