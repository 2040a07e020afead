"""The rewrite found_attention with masks of finite numbers (finite_fills), under autocast and in 16-bit training."""
import os
import re

import numpy as np
import pytest

import pyflame as pf
from pyflame.nn import functional as F
from pyflame.testing.tolerance import differences

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


# ---- training in 16 bits

T, S = 20, 33  # queries and keys
HALVES = {"bfloat16": pf.bfloat16, "float16": pf.float16}
SCALE = 0.3
TRAINED_MASKS = {
    "none": lambda att, hidden, bias: att,
    "masked_fill": lambda att, hidden, bias: att.masked_fill(hidden, float("-inf")),
    "where": lambda att, hidden, bias: pf.where(hidden.logical_not(), att, float("-inf")),
    "added": lambda att, hidden, bias: att + bias.to(att.dtype),
}
SCALES = {"mul": (lambda att: att * SCALE, SCALE), "div": (lambda att: att / 2.5, 1 / 2.5), "no scale": (lambda att: att, 1.0)}
# The probabilities of the scores q k^T, with the ops in the order that each form has.
FORMS = {
    "16 bits": lambda att, scale, mask: pf.softmax(mask(scale(att)), -1),
    "autocast": lambda att, scale, mask: pf.softmax(mask(scale(att)), -1),
    "float32 softmax": lambda att, scale, mask: F.softmax(mask(scale(att)), dim=-1, dtype=pf.float32).to(att.dtype),
    "float32 before the mask": lambda att, scale, mask: pf.softmax(mask(scale(att).float()), -1).to(att.dtype),
    "float32 before the scale": lambda att, scale, mask: pf.softmax(mask(scale(att.float())), -1).to(att.dtype),
}


def by_form(form, mask="none", scale="mul", dtype=pf.bfloat16):
    def attend(q, k, v, hidden, bias):
        with pf.autocast(DEVICE, dtype=dtype, enabled=form == "autocast"):
            att = q @ k.transpose(-2, -1)
            return FORMS[form](att, SCALES[scale][0], lambda x: TRAINED_MASKS[mask](x, hidden, bias)) @ v

    return attend


def numbers(dtype, *shape):
    """Normal numbers that are exact in 16 bits, as float32."""
    return pf.randn(*shape).to(dtype).float()


def leaves_of(form, dtype, shape=(2, 3), columns=16):
    """q, k, v with gradients; under autocast they are float32."""
    kept = pf.float32 if form == "autocast" else dtype
    return [numbers(dtype, *shape, rows, columns).to(kept).requires_grad_() for rows in (T, S, S)]


def hidden_keys():
    return pf.arange(S) > pf.arange(T).unsqueeze(1)


def trained(fn, leaves, weight, *names, steps=2):
    """The result and the gradients of the last step, and how often found_attention fired."""
    before = pf.rewrites.fired()["found_attention"]
    with pf.rewrites.enable(*names) if names else pf.rewrites.disable("found_attention"):
        for _ in range(steps):
            for x in leaves:
                x.grad = None
            out = fn(*leaves)
            (out.float() * weight).sum().backward()
            found = [x.float().cpu().numpy().astype("float64") for x in (out.detach(), *(x.grad for x in leaves))]
            del out
    return found, pf.rewrites.fired()["found_attention"] - before


def exact(leaves, weight, scale=SCALE, hidden=None, bias=None):
    """In float64: the result and the gradients of q, k and v, and what the absolute values of their terms add up to."""
    q, k, v = (x.detach().float().cpu().numpy().astype("float64") for x in leaves)
    g = weight.cpu().numpy().astype("float64")
    turned = lambda x: np.swapaxes(x, -1, -2)  # noqa: E731
    scores = q @ turned(k) * scale
    size = 1 + abs(q) @ turned(abs(k)) * abs(scale)  # an error of a score is a relative one of its probability
    if bias is not None:
        scores, size = scores + bias, size + abs(bias)
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = g @ turned(v)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    least = abs(g) @ turned(abs(v))
    blurred = p * size
    far = (blurred * (least + (least * p).sum(-1, keepdims=True)) + p * (least * blurred).sum(-1, keepdims=True)) * abs(scale)
    values = [p @ v, ds @ k, turned(ds) @ q, turned(p) @ g]
    return values, [blurred @ abs(v), far @ abs(k), turned(far) @ abs(q), turned(blurred) @ abs(g)]


def root_mean_square(x):
    return float(np.sqrt((x**2).mean()))


def check_trained(fn, leaves, dtype, *, scale=SCALE, hidden=None, bias=None, other=None):
    """It fires; each value is within the formula, and as a whole none is farther from float64 than those of the written ops, or of `other`."""
    weight = numbers(HALVES[dtype], *leaves[0].shape)
    args = [None if x is None else x.cpu().numpy().copy() for x in (hidden, bias)]  # a view would end the windows
    values, sizes = exact(leaves, weight, scale, *args)
    call = lambda q, k, v: fn(q, k, v, hidden, bias)  # noqa: E731
    written, fired = trained(call, leaves, weight)
    assert not fired
    found, fired = trained(call, leaves, weight, "found_attention")
    assert fired >= 1
    if other:
        written, _ = trained(other, leaves, weight)
    for name, got, was, want, size in zip(("out", "dq", "dk", "dv"), found, written, values, sizes, strict=True):
        wrong = differences(got, want, dtype, 2, size, composed=True)
        assert not wrong, f"{name}: {wrong}"
        error, written_error = root_mean_square(got - want), root_mean_square(was - want)
        assert error <= (1.05 if DEVICE == "cpu" else 1.1) * written_error, (name, error, written_error)
    with pf.rewrites.enable("found_attention"):
        text = pf.explain(lambda: (call(*leaves).float() * weight).sum().backward())
    short = "attention_grad(" + dtype
    assert short in text and "matmul(" not in text and not re.search(r"softmax\(b?float", text), text
    assert "scaled_dot_product_attention, and its gradient" in text


@pytest.mark.parametrize("dtype", list(HALVES))
@pytest.mark.parametrize("form,mask", [(form, mask) for form in FORMS for mask in TRAINED_MASKS if mask != "added" or not form.startswith("float32 before")])  # those add a float32 mask
def test_a_training_step_in_16_bits_is_attention_and_its_gradient(form, mask, dtype):
    hidden = hidden_keys() if mask in ("masked_fill", "where") else None
    bias = numbers(HALVES[dtype], 3, T, S) if mask == "added" else None
    check_trained(by_form(form, mask, dtype=HALVES[dtype]), leaves_of(form, HALVES[dtype]), dtype, hidden=hidden, bias=bias)


@pytest.mark.parametrize("scale", ["div", "no scale"])
@pytest.mark.parametrize("form", list(FORMS))
def test_scales_of_a_training_step_in_16_bits(form, scale):
    hidden = hidden_keys()
    check_trained(by_form(form, "masked_fill", scale), leaves_of(form, pf.bfloat16, shape=(4,)), "bfloat16", scale=SCALES[scale][1], hidden=hidden)


@pytest.mark.parametrize("dtype", list(HALVES))
@pytest.mark.parametrize("form", ["16 bits", "float32 softmax"])
def test_keys_and_values_with_a_mean_train_as_accurately_as_with_the_function(form, dtype):
    """The gradient reads the result rounded to 16 bits, which shows in that of q if keys have a mean. So it does if attention is called."""
    q, k, v = leaves_of(form, HALVES[dtype])
    k, v = ((x.detach() + 2).requires_grad_() for x in (k, v))
    called = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=SCALE)  # noqa: E731
    check_trained(by_form(form, dtype=HALVES[dtype]), (q, k, v), dtype, other=called)


@pytest.mark.parametrize("form", ["16 bits", "autocast", "float32 softmax"])
def test_repeated_heads_train_in_16_bits(form):
    q, k, v = leaves_of(form, pf.bfloat16, shape=(2, 4))
    k, v = (x.detach()[:, :2].contiguous().requires_grad_() for x in (k, v))
    weight, fn = numbers(pf.bfloat16, *q.shape), by_form(form, "masked_fill")
    call = lambda q, k, v: fn(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), hidden_keys(), None)  # noqa: E731
    written, _ = trained(call, (q, k, v), weight)
    found, fired = trained(call, (q, k, v), weight, "found_attention")
    assert fired >= 1
    repeated = [q, *(x.detach().repeat_interleave(2, 1) for x in (k, v))]
    values, _ = exact(repeated, weight, hidden=hidden_keys().cpu().numpy())
    values[2:] = [x.reshape(2, 2, 2, S, -1).sum(2) for x in values[2:]]
    for got, was, want in zip(found, written, values, strict=True):
        assert root_mean_square(got - want) <= 1.05 * root_mean_square(was - want)


@pytest.mark.parametrize("form", ["16 bits", "autocast", "float32 softmax"])
def test_rows_that_are_hidden_wholly_have_no_gradient_in_16_bits(form):
    leaves, fn = leaves_of(form, pf.bfloat16), by_form(form, "masked_fill")
    hidden = (pf.arange(S) >= pf.tensor([[S], [0]])).view(2, 1, 1, S)
    found, fired = trained(lambda q, k, v: fn(q, k, v, hidden, None), leaves, numbers(pf.bfloat16, *leaves[0].shape), "found_attention")
    assert fired >= 1
    for x in found:
        assert np.isfinite(x).all() and x[0].any() and not x[1].any()


def test_heads_of_one_layer_train_under_autocast():
    """q, k and v are parts of what one product computes, as models have them."""
    pf.manual_seed(2)
    x, w = pf.randn(2, S, 24), (pf.randn(24, 72) * 0.2).requires_grad_()
    weight, hidden = numbers(pf.bfloat16, 2, S, 24), pf.arange(S) > pf.arange(S).unsqueeze(1)

    def attend(enabled):
        with pf.autocast(DEVICE, dtype=pf.bfloat16, enabled=enabled):
            q, k, v = (y.view(2, S, 3, 8).transpose(1, 2) for y in (x @ w).split(24, dim=2))
            att = ((q @ k.transpose(-2, -1)) * 8**-0.5).masked_fill(hidden, float("-inf"))
            return (F.softmax(att, dim=-1) @ v).transpose(1, 2).reshape(2, S, 24)

    def step(enabled=True):
        w.grad = None
        (attend(enabled).float() * weight).sum().backward()
        return w.grad.cpu().numpy().astype("float64")

    want, written = step(enabled=False), step()
    before = pf.rewrites.fired()["found_attention"]
    with pf.rewrites.enable("found_attention"):
        found, text = step(), pf.explain(step)
    assert pf.rewrites.fired()["found_attention"] > before and "attention_grad(bfloat16" in text
    assert root_mean_square(found - want) <= 1.05 * root_mean_square(written - want)


@pytest.mark.parametrize("scales", [(0.5, 2.0), (-3.0, 0.1), (0.0, 0.0)])
@pytest.mark.parametrize("dtype", list(HALVES))
def test_a_gradient_by_hand_in_16_bits_may_have_another_scale(dtype, scales):
    """The gradient of other scores than those of the forward pass: the gradients are scaled by the quotient."""
    half = HALVES[dtype]
    q, k, v, g = (numbers(half, 2, 3, rows, 16).to(half) for rows in (T, S, S, T))

    def step(q, k, v, g):
        p = pf.softmax((q @ k.transpose(-2, -1)) * scales[0], -1)
        out, dp, wide = p @ v, (g @ v.transpose(-2, -1)).float(), p.float()
        dv = p.transpose(-2, -1) @ g
        ds = (wide * (dp - (dp * wide).sum(-1, keepdim=True))).to(half) * scales[1]
        return pf.cat([out, ds @ k, (q.transpose(-2, -1) @ ds).transpose(-2, -1), dv], 2)

    written, _ = values_of(lambda: step(q, k, v, g))
    found, fired = values_of(lambda: step(q, k, v, g), "found_attention")
    assert fired == 1
    assert "attention_grad(" + dtype in explained(lambda: step(q, k, v, g), "found_attention")
    assert root_mean_square(found - written) <= 0.02 * root_mean_square(written) * (1 if dtype == "bfloat16" else 0.125)


WHY_NOT = {
    "scores are seen": "another op reads the scores",
    "probabilities are seen": "another op reads the probabilities",
    "probabilities are used": "reads the probabilities",
    "one gradient": "the gradient is none that is known",
    "dropout": "another op reads the probabilities",
    "a learned mask": "the gradient is none that is known",
    "create_graph": "another op reads the ",
}


@pytest.mark.parametrize("form", ["16 bits", "autocast", "float32 softmax"])
@pytest.mark.parametrize("why", list(WHY_NOT))
def test_training_steps_in_16_bits_that_stay(why, form):
    leaves, seen = leaves_of(form, pf.bfloat16), []
    weight = numbers(pf.bfloat16, *leaves[0].shape)
    bias = numbers(pf.bfloat16, T, S).to(pf.bfloat16).requires_grad_(why == "a learned mask")

    def fn(q, k, v):
        with pf.autocast(DEVICE, dtype=pf.bfloat16, enabled=form == "autocast"):
            att = (q @ (k.detach() if why == "one gradient" else k).transpose(-2, -1)) * SCALE
            if why == "scores are seen":
                seen[:] = [att]
            att = FORMS[form](att, lambda x: x, lambda x: x + bias)
            if why == "probabilities are seen":
                seen[:] = [att]
            used = att.sum(-1, keepdim=True) if why == "probabilities are used" else k.sum() if why == "one gradient" else 0
            pf.manual_seed(4)
            return F.dropout(att, 0.5 if why == "dropout" else 0.0, True) @ v + used

    def step(*leaves):
        out = (fn(*leaves).float() * weight).sum()
        if why != "create_graph":
            return out
        grads = pf.autograd.grad(out, leaves, create_graph=True)
        return out + sum(g.float().square().sum() for g in grads)

    def run():
        for x in leaves:
            x.grad = None
        step(*leaves).backward()
        return [x.grad.float().cpu().numpy().copy() for x in leaves]

    with pf.rewrites.disable("found_attention"):
        expected = run()
    with pf.rewrites.enable("found_attention"):
        before = pf.rewrites.fired()["found_attention"]
        for got, want in zip(run(), expected, strict=True):
            np.testing.assert_array_equal(got, want)
        text = pf.explain(run)
        assert pf.rewrites.fired()["found_attention"] == before
    assert WHY_NOT[why] in text, text


@pytest.mark.parametrize("form", list(FORMS)[1:])
def test_a_float32_mask_that_is_added_in_16_bit_training_stays(form):
    """Attention rounds the mask to 16 bits. The written ops do not, so large numbers would be less accurate."""
    leaves, bias = leaves_of(form, pf.bfloat16), pf.randn(T, S) + 300
    weight = numbers(pf.bfloat16, *leaves[0].shape)

    def fn(q, k, v):
        with pf.autocast(DEVICE, dtype=pf.bfloat16, enabled=form == "autocast"):
            return FORMS[form](q @ k.transpose(-2, -1), lambda x: x * SCALE, lambda x: x + bias).to(pf.bfloat16) @ v.to(pf.bfloat16)

    expected, _ = trained(fn, leaves, weight)
    found, fired = trained(fn, leaves, weight, "found_attention")
    assert not fired
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    with pf.rewrites.enable("found_attention"):
        text = pf.explain(lambda: fn(*leaves).float().sum().backward())
    assert "the mask that is added is float32 and the products are bfloat16, and the gradient is computed too" in text, text
