"""paged_attention with keys and values of 8-bit floats: every code of every format has its value. And a long text in 16 bits, whose parts have several
steps on matrix cores. On the device of PYFLAME_TEST_DEVICE."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.testing.cases.float8 import FORMATS, table

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")


def attended(q, keys, values, name, dtype, scale):
    """q (sequences, head size) over keys and values, codes (sequences, keys, head size): each sequence has a page of its own. scale: of all keys."""
    sequences, count, dim = keys.shape
    keys, values = (pf.tensor(x.astype(np.uint8)).to(DEVICE).view(getattr(pf, name)).reshape(sequences, count, 1, dim) for x in (keys, values))
    where = (pf.arange(sequences, dtype=pf.int32).reshape(-1, 1).to(DEVICE), pf.full((sequences,), count, dtype=pf.int32).to(DEVICE))
    ones = pf.ones(sequences, count, 1).to(DEVICE)
    q = pf.tensor(q.astype(np.float32)).to(DEVICE).to(dtype).reshape(sequences, 1, dim)
    return pf.paged_attention(q, keys, values, *where, scale=1.0, key_scale=ones * scale, value_scale=ones).reshape(sequences, dim).double().cpu().numpy()


@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16, pf.float16, pf.float64], ids=str)
@pytest.mark.parametrize("dim", [64, 5])  # vectors, and single codes
@pytest.mark.parametrize("name", FORMATS)
def test_values_of_all_codes(name, dim, dtype):
    """The value of a single key has the weight 1."""
    codes = np.resize(np.arange(256), (-(-256 // dim), 1, dim))
    y = attended(np.zeros((len(codes), dim)), np.zeros_like(codes), codes, name, dtype, 1)
    np.testing.assert_array_equal(y, table(name)[codes[:, 0]])


@pytest.mark.parametrize("name", FORMATS)
def test_keys_of_all_codes(name):
    """One element of a key decides about its weight beside a key of zeros."""
    dim, values = 64, table(name)
    codes = np.flatnonzero(np.isfinite(values))
    scale = 2.0 ** (3 - np.ceil(np.log2(values[codes].max())))  # scores up to 8, of a scale that float32 has
    at = np.arange(len(codes)), codes % dim
    q, keys, ones = np.zeros((len(codes), dim)), np.zeros((len(codes), 2, dim)), np.zeros((len(codes), 2, dim))
    q[at], keys[at[0], 0, at[1]], ones[:, 0] = 1, codes, np.flatnonzero(values == 1)[0]
    y = attended(q, keys, ones, name, pf.float64, scale)
    np.testing.assert_allclose(y, np.broadcast_to(1 / (1 + np.exp(-values[codes] * scale))[:, None], y.shape), rtol=1e-7)
    np.testing.assert_allclose(attended(q, keys, ones, name, pf.float32, scale), y, rtol=1e-5)


@pytest.mark.parametrize("dtype, rounding", [(pf.bfloat16, 2**-8), (pf.float16, 2**-11)], ids=str)
def test_a_text_of_many_keys(dtype, rounding):
    """At most 64 parts, so each has 256 keys: on matrix cores, a workgroup has several steps of 64 keys."""
    count, page, dim, random = 8400, 16, 16, np.random.default_rng(0)
    rounded = lambda *shape: pf.tensor(random.standard_normal(shape).astype(np.float32)).to(dtype)  # noqa: E731
    q, keys, values = rounded(1, 1, dim), rounded(count // page, page, 1, dim), rounded(count // page, page, 1, dim)
    table = random.permutation(count // page).astype(np.int32)
    where = pf.tensor(table[None]).to(DEVICE), pf.tensor(np.array([count - 5], np.int32)).to(DEVICE)
    y = pf.paged_attention(q.to(DEVICE), keys.to(DEVICE), values.to(DEVICE), *where, scale=1.0).cpu().double().numpy().reshape(dim)
    k, v = (x.double().numpy()[table].reshape(count, dim)[:-5] for x in (keys, values))
    scores = k @ q.double().numpy().reshape(dim)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    np.testing.assert_allclose(y, weights @ v, rtol=0, atol=2 * rounding * (weights @ np.abs(v)).max())
