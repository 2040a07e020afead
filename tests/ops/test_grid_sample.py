"""grid_sample beside its cases (pyflame/testing/cases/grids.py): nothing to sample, places that are no numbers, many places at one element."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.nn import functional as F

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")


@pytest.mark.parametrize("create_graph", (False, True))
@pytest.mark.parametrize("image, grid", (
    ((2, 3, 4, 4), (2, 0, 5, 2)), ((2, 3, 4, 4), (2, 5, 0, 2)), ((2, 0, 4, 4), (2, 3, 5, 2)), ((0, 3, 4, 4), (0, 3, 5, 2)), ((2, 3, 3, 4, 4), (2, 0, 5, 2, 3))))
def test_nothing_to_sample(image, grid, create_graph):
    x, g = pf.ones(*image, device=DEVICE).requires_grad_(), pf.zeros(*grid, device=DEVICE).requires_grad_()
    y = F.grid_sample(x, g)
    assert y.shape == (*image[:2], *grid[1:-1])
    for gradient, of in zip(pf.autograd.grad(y.sum(), [x, g], create_graph=create_graph), (x, g)):
        np.testing.assert_array_equal(gradient.detach().cpu().numpy(), np.zeros(of.shape, np.float32))


@pytest.mark.parametrize("channels", (1, 9))
@pytest.mark.parametrize("align", (False, True))
def test_places_that_are_no_numbers(channels, align):
    """Where outside is 0, nothing times a weight that is no number; otherwise they become the first element, as in PyTorch. An element that is
    infinite does not reach places that it has no part in."""
    x = np.arange(12 * channels, dtype=np.float32).reshape(1, channels, 3, 4) + 1
    x[:, :, 2, 3] = np.inf
    g = pf.tensor([[[[np.nan, 0.0], [-1.0, -1.0], [1e30, 1.0], [9.0, -9.0]]]], device=DEVICE)
    image = pf.tensor(x, device=DEVICE)
    zeros, border = (F.grid_sample(image, g, padding_mode=p, align_corners=align).cpu().numpy()[0, :, 0] for p in ("zeros", "border"))
    assert np.isnan(zeros[:, 0]).all()
    np.testing.assert_array_equal(zeros[:, 1], x[0, :, 0, 0] * (1 if align else 0.25))
    np.testing.assert_array_equal(zeros[:, 2:], 0)
    np.testing.assert_array_equal(border[:, 0], x[0, :, 1, 0])
    np.testing.assert_array_equal(border[:, 3], x[0, :, 0, 3])


@pytest.mark.parametrize("channels", (2, 11))
def test_many_places_at_one_element(channels):
    """Their gradients are added in the order of the places: the same bits each time, and on another number of threads."""
    rng = np.random.default_rng(5)
    g = np.where(rng.random((2, 45, 40, 2)) < 0.9, 3.0, rng.uniform(-1, 1, (2, 45, 40, 2))).astype(np.float32)
    u = rng.standard_normal((2, channels, 45, 40)).astype(np.float32)

    def gradient(device):
        x = pf.zeros(2, channels, 6, 7, device=device).requires_grad_()
        F.grid_sample(x, pf.tensor(g, device=device), padding_mode="border").backward(pf.tensor(u, device=device))
        return x.grad.cpu().numpy()

    got, threads = gradient(DEVICE), pf.get_num_threads()
    np.testing.assert_allclose(got, gradient("reference"), rtol=1e-4, atol=1e-3)
    try:
        pf.set_num_threads(1 if threads > 1 else 3)
        np.testing.assert_array_equal(gradient(DEVICE), got)
    finally:
        pf.set_num_threads(threads)
