"""varlen_attn where few queries see many keys: a GPU then divides the keys among workgroups, and adds their sums."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.nn.attention.varlen import varlen_attn
from pyflame.testing.cases.attention import packed_attention

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
HEADS, KEY_HEADS = 4, 2


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
@pytest.mark.parametrize("queries, keys", (((40,), (1100,)), ((1,), (700,)), ((3, 70, 0, 1), (900, 640, 64, 0)), ((20, 20), (256, 300))))
def test_it_is_right(queries, keys, dtype, causal):
    rng, dim = np.random.default_rng(sum(keys)), 32
    q, k, v = (pf.tensor(rng.standard_normal(shape).astype(np.float32)).to(getattr(pf, dtype)) for shape in ((sum(queries), HEADS, dim), (sum(keys), KEY_HEADS, dim), (sum(keys), KEY_HEADS, dim)))
    from_q, from_k = (np.cumsum([0, *lengths]).astype(np.int32) for lengths in (queries, keys))
    expected = packed_attention(*(x.double().numpy() for x in (q, k, v)), from_q, from_k, causal)
    a, b = pf.tensor(from_q, device=DEVICE), pf.tensor(from_k, device=DEVICE)

    def run():
        return varlen_attn(*(x.to(DEVICE) for x in (q, k, v)), a, b, max(queries), max(keys), causal, enable_gqa=True).cpu()

    found = run()
    assert np.abs(found.double().numpy() - expected).max() < (0.02 if dtype == "bfloat16" else 0.003)
    assert (run() == found).all()  # the sums have one order


def test_the_gradient_follows():
    rng, dim, queries, keys = np.random.default_rng(0), 32, 30, 800
    data = [rng.standard_normal(shape).astype(np.float32) for shape in ((queries, HEADS, dim), (keys, KEY_HEADS, dim), (keys, KEY_HEADS, dim))]

    def gradients(dtype, device):
        q, k, v = (pf.tensor(x).to(dtype).to(device).requires_grad_() for x in data)
        y = varlen_attn(q, k, v, pf.tensor([0, queries], dtype=pf.int32, device=device), pf.tensor([0, keys], dtype=pf.int32, device=device), queries, keys, True, enable_gqa=True)
        (y.float() * y.float()).sum().backward()
        return [x.grad.float().cpu().numpy() for x in (q, k, v)]

    for found, expected in zip(gradients(pf.bfloat16, DEVICE), gradients(pf.float32, "cpu")):
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max() + 0.01
