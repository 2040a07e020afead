"""Random numbers are the same on each device, also where a loop computes several and other numbers with them. On the device of PYFLAME_TEST_DEVICE."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")


def numbers(device, n, dtype):
    pf.manual_seed(3)
    normal = pf.empty(n, dtype=dtype, device=device).normal_(1.0, 0.25)
    uniform = pf.rand(n, dtype=dtype, device=device)
    mixed = pf.where(uniform < 0.5, normal * 3.0, pf.randn(n, dtype=dtype, device=device) + 0.125)
    return [t.cpu().float().numpy() for t in (normal, uniform, mixed)]


@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 15, 31, 64, 1001])  # multiples of a vector, and those with a rest
def test_same_numbers_as_on_the_cpu(n, dtype):
    for got, want in zip(numbers(DEVICE, n, dtype), numbers("cpu", n, dtype), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-2 if dtype == pf.bfloat16 else 1e-5, atol=1e-2 if dtype == pf.bfloat16 else 1e-6)
