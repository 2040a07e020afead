"""The rewrite found_attention with masks of finite numbers (finite_fills) and under autocast."""
import os

import numpy as np
import pytest

import pyflame as pf

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1" or os.environ.get("PYFLAME_FUSE") == "0", reason="a window of one op has no pattern")
LOWEST = float(np.finfo("float32").min)


@pytest.fixture(autouse=True)
def seed():
    pf.manual_seed(0)
    pf.clear_program_cache()  # a rewrite is counted when a program is compiled


def three_of(*shape, **options):
    return [pf.randn(*shape, **options) for _ in range(3)]


def explained(fn, *names):
    """The text of pf.explain for a call without gradients, with these rewrites on."""
    with pf.no_grad(), pf.rewrites.enable(*names):
        return pf.explain(fn)


def values_of(fn, *names):
    """The values of one run, and how often found_attention fired."""
    before = pf.rewrites.fired()["found_attention"]
    with pf.no_grad(), pf.rewrites.enable(*names):
        values = fn().float().numpy().copy()
    return values, pf.rewrites.fired()["found_attention"] - before


def hides(fill, how="masked_fill", scale=0.35):
    def attend(q, k, v, hidden):
        att = (q @ k.transpose(-2, -1)) * scale
        if how == "masked_fill":
            att = att.masked_fill(hidden, fill)
        else:
            att = pf.where(hidden, fill, att) if how == "where" else pf.where(hidden.logical_not(), att, fill)
        return pf.softmax(att, -1) @ v

    return attend


def mask_with_a_hidden_row():
    """Causal, and the last row sees nothing."""
    return (pf.arange(7) > pf.arange(7).unsqueeze(1)) | (pf.arange(7) == 6).unsqueeze(1)


# ---- masks of finite numbers


@pytest.mark.parametrize("fill", [-1e4, -1e9, LOWEST])
@pytest.mark.parametrize("how", ["masked_fill", "where", "where seen"])
def test_a_finite_fill_becomes_a_mask_on_request(fill, how):
    args, fn = [*three_of(2, 3, 7, 8), mask_with_a_hidden_row()], hides(fill, how)
    expected, fired = values_of(lambda: fn(*args))
    assert not fired
    values, fired = values_of(lambda: fn(*args), "found_attention", "finite_fills")
    assert fired == 1
    text = explained(lambda: fn(*args), "found_attention", "finite_fills")
    assert "attention(" in text and " softmax(float32" not in text and "matmul(" not in text
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5)
    # A row that is hidden wholly is the mean of the values, as the softmax of equal scores gives it.
    np.testing.assert_allclose(values[:, :, 6], args[2].numpy().mean(2), rtol=0, atol=2e-5)


@pytest.mark.parametrize("mask", ["keys", "heads", "three dims"])
def test_shapes_of_masks_with_finite_fills(mask):
    args = three_of(*((4, 7, 9) if mask == "three dims" else (2, 3, 7, 9)))
    hidden = {"keys": lambda: (pf.arange(7) >= pf.tensor([[7], [0]])).view(2, 1, 1, 7), "heads": lambda: (pf.arange(7) > pf.tensor([2, 3, 4]).view(3, 1)).view(3, 1, 7), "three dims": lambda: pf.rand(4, 7, 7) > 0.5}[mask]()
    fn = hides(-1e9)
    expected, _ = values_of(lambda: fn(*args, hidden))
    values, fired = values_of(lambda: fn(*args, hidden), "found_attention", "finite_fills")
    assert fired
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5)


def test_a_finite_fill_in_bfloat16():
    args = [*three_of(2, 3, 7, 10, dtype=pf.bfloat16), mask_with_a_hidden_row()]
    expected, _ = values_of(lambda: hides(-1e9)(*args))
    values, fired = values_of(lambda: hides(-1e9)(*args), "found_attention", "finite_fills")
    assert fired
    np.testing.assert_allclose(values, expected, rtol=0, atol=3e-2)


def test_the_bound_of_finite_fills():
    """A weight is 0 from a distance of 104 on, so -1e4 is as good as -inf for scores that are larger than -9896."""
    weights = pf.softmax(pf.tensor([[0.0, -104.0, -200.0]]), -1).numpy()
    assert weights.tolist() == [[1, 0, 0]]
    q, k, v = three_of(1, 1, 4, 11)
    q = q * 1000
    hidden = pf.arange(4) > pf.arange(4).unsqueeze(1)
    assert 1000 < float((q @ k.transpose(-2, -1)).abs().max()) * 0.35 < 9896
    expected, _ = values_of(lambda: hides(-1e4)(q, k, v, hidden))
    values, fired = values_of(lambda: hides(-1e4)(q, k, v, hidden), "found_attention", "finite_fills")
    assert fired
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("why", ["not asked for", "small number", "positive", "float16", "tensor"])
def test_finite_fills_that_stay(why):
    args = [*three_of(2, 3, 7, 12), mask_with_a_hidden_row()]
    if why == "float16":
        args[:3] = [a.half() for a in args[:3]]
    fill = {"small number": -9999.0, "positive": 1e9, "tensor": pf.tensor(-1e9)}.get(why, -1e4)
    fn = hides(fill, "where" if why == "tensor" else "masked_fill")
    expected, _ = values_of(lambda: fn(*args))
    names = ["found_attention"] if why == "not asked for" else ["found_attention", "finite_fills"]
    values, fired = values_of(lambda: fn(*args), *names)
    assert not fired
    np.testing.assert_array_equal(values, expected)
    reason = "pf.rewrites.enable(\"finite_fills\")" if why == "not asked for" else "the mask fills in a tensor or another number than -inf"
    assert reason in explained(lambda: fn(*args), *names)


def test_a_finite_fill_stays_in_training():
    q, k, v = three_of(2, 3, 7, 13, requires_grad=True)
    hidden = mask_with_a_hidden_row()

    def step():
        for x in (q, k, v):
            x.grad = None
        hides(-1e9)(q, k, v, hidden).sum().backward()
        return [x.grad.numpy().copy() for x in (q, k, v)]

    expected = step()
    with pf.rewrites.enable("found_attention", "finite_fills"):
        before = pf.rewrites.fired()["found_attention"]
        for got, want in zip(step(), expected):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
        assert pf.rewrites.fired()["found_attention"] == before
        text = pf.explain(step)
    assert "the mask fills in a finite number, and the gradient is computed too" in text


# ---- autocast

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu").split(":")[0]
MASKS = {
    "none": lambda att, hidden, bias: att,
    "masked_fill": lambda att, hidden, bias: att.masked_fill(hidden, float("-inf")),
    "where": lambda att, hidden, bias: pf.where(hidden.logical_not(), att, float("-inf")),
    "bfloat16 added": lambda att, hidden, bias: att + bias.bfloat16(),
    "float32 added": lambda att, hidden, bias: att + bias,
    "finite": lambda att, hidden, bias: att.masked_fill(hidden, -1e9),
}


def under_autocast(mask, dtype=pf.bfloat16):
    def attend(q, k, v, hidden, bias):
        with pf.autocast(DEVICE, dtype=dtype):
            att = (q @ k.transpose(-2, -1)) * 0.3
            return pf.softmax(MASKS[mask](att, hidden, bias), -1) @ v

    return attend


@pytest.mark.parametrize("mask", list(MASKS))
def test_attention_under_autocast_is_one_op(mask):
    args = [*three_of(2, 3, 7, 14), pf.arange(7) > pf.arange(7).unsqueeze(1), pf.randn(7, 7)]
    fn, names = under_autocast(mask), ["found_attention"] + ["finite_fills"] * (mask == "finite")
    expected, _ = values_of(lambda: fn(*args))
    values, fired = values_of(lambda: fn(*args), *names)
    assert fired == 1
    text = explained(lambda: fn(*args), *names)
    assert "attention(bfloat16" in text and "matmul(" not in text and "softmax(float32" not in text
    np.testing.assert_allclose(values, expected, rtol=0, atol=4e-2)


@pytest.mark.parametrize("why", ["probabilities are seen", "scores are seen", "mixed products"])
def test_autocasts_that_stay(why):
    q, k, v = three_of(2, 3, 7, 15)
    seen = []

    def fn():
        with pf.autocast(DEVICE, dtype=pf.bfloat16):
            att = q @ k.transpose(-2, -1)
            if why == "scores are seen":
                seen[:] = [att]
            att = pf.softmax(att, -1)
            if why == "probabilities are seen":
                seen[:] = [att]
        if why == "mixed products":
            return att @ v
        with pf.autocast(DEVICE, dtype=pf.bfloat16):
            return att @ v

    expected, _ = values_of(fn)
    values, fired = values_of(fn, "found_attention")
    assert not fired
    np.testing.assert_array_equal(values, expected)
    text = explained(fn, "found_attention")
    reason = {"probabilities are seen": "another op reads the probabilities", "scores are seen": "another op reads the scores", "mixed products": "cast is between the products"}[why]
    assert reason in text, text


def test_training_under_autocast_stays_and_says_why():
    q, k, v = three_of(2, 3, 7, 16, requires_grad=True)
    args = (pf.arange(7) > pf.arange(7).unsqueeze(1), None)
    with pf.rewrites.enable("found_attention"):
        before = pf.rewrites.fired()["found_attention"]
        text = pf.explain(lambda: under_autocast("masked_fill")(q, k, v, *args).float().sum().backward())
        assert pf.rewrites.fired()["found_attention"] == before
    assert text.count("found_attention at ") == 1 and "as the gradient does" in text
