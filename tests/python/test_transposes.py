"""Copies whose input is contiguous along another dim than their output."""
import itertools

import numpy as np
import pyflame as pf
import pytest

DTYPES = ["uint8", "float16", "float32", "float64", "complex64", "bool"]


def numbers(shape, dtype):
    n = np.random.default_rng(1).integers(-100, 100, shape)
    return (n > 0) if dtype == "bool" else n.astype(dtype)


def chosen(fn):
    """The implementations that explain() names."""
    return str(pf.explain(fn))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 64), (65, 131), (16, 300), (1030, 33), (15, 400)])
def test_transposed_matrices(shape, dtype):
    a = numbers(shape, dtype)
    x = pf.tensor(a)
    np.testing.assert_array_equal(x.t().contiguous().numpy(), a.T)
    np.testing.assert_array_equal(x[1:, 3:].t().contiguous().numpy(), a[1:, 3:].T)  # lines do not begin at lines of the cache


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_permuted_dims(order):
    a = numbers((3, 17, 18, 33), "float32")
    np.testing.assert_array_equal(pf.tensor(a).permute(order).contiguous().numpy(), a.transpose(order))


def test_images_change_their_memory_format():
    a = numbers((2, 24, 9, 11), "float32")
    x = pf.tensor(a).contiguous(memory_format=pf.channels_last)
    assert x.stride() == (24 * 99, 1, 24 * 11, 24)
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(x.contiguous().numpy(), a)


def test_the_large_copy_is_written_past_the_caches():
    a = np.arange(2900 * 3001, dtype=np.float32).reshape(2900, 3001)  # 35 MB
    np.testing.assert_array_equal(pf.tensor(a).t().contiguous().numpy(), a.T)


def test_a_copy_onto_its_own_transpose():
    a = numbers((128, 128), "int32")
    x = pf.tensor(a)
    x.copy_(x.t())
    np.testing.assert_array_equal(x.numpy(), a.T)
    y = pf.tensor(numbers((200, 128), "int32"))
    b = y.numpy().copy()
    y[8:136].copy_(y[:128].t())
    b[8:136] = b[:128].T.copy()
    np.testing.assert_array_equal(y.numpy(), b)


def test_blocks_are_chosen():
    x = pf.randn(128, 96)
    pf.synchronize()
    assert "cpu.transpose" in chosen(lambda: x.t().contiguous())
    assert "cpu.transpose" not in chosen(lambda: x[:10, :10].t().contiguous())
    assert "cpu.transpose" not in chosen(lambda: x.t() + 1.0)
