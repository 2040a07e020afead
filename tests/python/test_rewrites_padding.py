"""The rewrite skipped_padding: attention leaves out the queries at positions of padding, and what other positions get stays as it was."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.nn import functional as F

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1" or os.environ.get("PYFLAME_FUSE") == "0", reason="a window of one op has no pattern")
LENGTHS = [600, 150, 1]


@pytest.fixture(autouse=True)
def seed():
    pf.manual_seed(0)
    pf.clear_program_cache()  # a rewrite is counted when a program is compiled


def padding(lengths, size):
    return pf.arange(size) < pf.tensor(lengths).reshape(-1, 1, 1, 1)


def fired():
    return pf.rewrites.fired()["skipped_padding"]


def leaves(dtype, heads=2, size=600, dim=16):
    return [pf.randn(len(LENGTHS), heads, size, dim).to(dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_what_is_no_padding_keeps_its_bits(dtype, kind):
    tensors, hidden = leaves(dtype), padding(LENGTHS, 600)
    mask = hidden if kind == "bool" else pf.where(hidden, 0.0, float("-inf")).to(dtype)

    def fn():
        for t in tensors:
            t.grad = None
        out = F.scaled_dot_product_attention(*tensors, attn_mask=mask)
        real = out.float() * hidden.transpose(-2, -1).float()
        (real * real).sum().backward()
        return [x.detach().float().numpy(force=True) for x in (real, *(t.grad for t in tensors))]

    expected, before = fn(), fired()
    with pf.rewrites.enable("skipped_padding"):
        got = fn()
    assert fired() > before
    for g, e in zip(got, expected):
        np.testing.assert_array_equal(g, e)


def test_results_of_padding_are_0():
    """The last block of a sequence has positions of both kinds: those of padding may be 0 or computed. Blocks of padding alone are 0."""
    q, k, v = leaves(pf.float32)
    with pf.no_grad():
        plain = F.scaled_dot_product_attention(q, k, v, attn_mask=padding(LENGTHS, 600)).numpy(force=True)
        with pf.rewrites.enable("skipped_padding"):
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=padding(LENGTHS, 600)).numpy(force=True)
    assert (plain[1, :, 400:] != 0).all()
    assert (out[1, :, 400:] == 0).all() and (out[2, :, 256:] == 0).all()
    np.testing.assert_array_equal(out[0], plain[0])


@pytest.mark.parametrize("why", ["fewer queries", "a row for each query", "no mask"])
def test_attention_that_stays(why):
    q, k, v = leaves(pf.float32)
    mask = padding(LENGTHS, 600)
    if why == "fewer queries":
        q = q.detach()[:, :, :300]
    elif why == "a row for each query":
        mask = mask.repeat(1, 1, 600, 1)
    before = fired()
    with pf.no_grad(), pf.rewrites.enable("skipped_padding"):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=None if why == "no mask" else mask).numpy(force=True)
    assert fired() == before and (out[1, :, 200:] != 0).all()


@pytest.mark.parametrize("lengths", [[600, 0], [0, 300]])
def test_a_sequence_of_padding_alone(lengths):
    """All its results are 0 and its gradients, too, with the rewrite and without."""
    tensors = [pf.randn(2, 2, 600, 16, requires_grad=True) for _ in range(3)]
    mask = padding(lengths, 600)
    at = lengths.index(0)
    for names in ([], ["skipped_padding"]):
        with pf.rewrites.enable(*names):
            for t in tensors:
                t.grad = None
            out = F.scaled_dot_product_attention(*tensors, attn_mask=mask)
            (out * out).sum().backward()
            assert (out.numpy(force=True)[at] == 0).all()
            assert all((t.grad.numpy(force=True)[at] == 0).all() for t in tensors)


def test_hidden_blocks_of_keys_are_not_read():
    """A NaN in keys and values of padding reaches no other position, because whole blocks of hidden keys are skipped."""
    q, k, v = (pf.randn(2, 2, 1200, 16) for _ in range(3))
    mask = padding([1200, 100], 1200)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).numpy(force=True)
    k[1, :, 1024:] = float("nan")
    v[1, :, 1024:] = float("nan")
    np.testing.assert_array_equal(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).numpy(force=True)[:, :, :1024], expected[:, :, :1024])
