"""pf.rewrites: that each rewrite fires where its pattern is, does not where a condition fails, and gives the right values."""
import os
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F

ONE_OP_WINDOWS = os.environ.get("PYFLAME_WINDOW") == "1" or os.environ.get("PYFLAME_FUSE") == "0"
whole_windows = pytest.mark.skipif(ONE_OP_WINDOWS, reason="a window of one op has no pattern")
RUNS = 6


@pytest.fixture(autouse=True)
def seed():
    pf.manual_seed(0)


def run(fn, *args, runs=RUNS):
    """The values of each run, without gradients."""
    with pf.no_grad():
        return [fn(*args).detach().float().cpu().numpy().copy() for _ in range(runs)]


def fires(name, fn, *args, runs=RUNS):
    """How often a rewrite fired in these runs, and their values."""
    before = pf.rewrites.fired()[name]
    values = run(fn, *args, runs=runs)
    return pf.rewrites.fired()[name] - before, values


def check_close(got, expected, tolerance=2e-5):
    scale = max(1.0, float(np.abs(expected).max()))
    for value in got:
        np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance * scale)


def reference(fn, *args):
    """The values without any rewrite."""
    with pf.rewrites.disable(*(r.name for r in pf.rewrites.registry())):
        return run(fn, *args, runs=1)[0]


# ---- the switches


def test_registry_says_what_there_is():
    registry = {r.name: r for r in pf.rewrites.registry()}
    assert registry["kept_values"].exact and registry["kept_values"].enabled
    assert not registry["merged_products"].exact
    assert all(r.describe.endswith(".") for r in registry.values())
    assert set(pf.rewrites.fired()) == set(registry)


def test_a_context_sets_back_what_it_switched():
    on = {r.name for r in pf.rewrites.registry() if r.enabled}
    with pf.rewrites.enable("merged_products", "folded_norms"), pf.rewrites.disable("kept_values"):
        assert {r.name for r in pf.rewrites.registry() if r.enabled} == on - {"kept_values"} | {"merged_products", "folded_norms"}
    assert {r.name for r in pf.rewrites.registry() if r.enabled} == on


def test_an_unknown_name_switches_nothing():
    with pytest.raises(KeyError, match="rewrites: no such rewrite; got 'merge'"):
        pf.rewrites.enable("merged_products", "merge")
    assert not {r.name: r for r in pf.rewrites.registry()}["merged_products"].enabled


def test_the_environment_switches():
    code = "import pyflame as pf; print(sorted(r.name for r in pf.rewrites.registry() if r.enabled))"
    env = {**os.environ, "PYFLAME_REWRITES": "grouped_heads,-kept_values"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.stdout.strip() == "['grouped_heads']", done.stderr
    env["PYFLAME_REWRITES"] = "heads"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode and "PYFLAME_REWRITES" in done.stderr and "got 'heads'" in done.stderr


# ---- kept_values


def norm_model():
    bn = nn.BatchNorm2d(5).eval()
    with pf.no_grad():
        for t in (bn.running_mean, bn.weight, bn.bias):
            t.copy_(pf.randn(5))
        bn.running_var.copy_(pf.rand(5) + 0.5)
    return bn


@whole_windows
def test_the_scale_of_a_batch_norm_is_kept():
    bn, x = norm_model(), pf.randn(2, 5, 8, 8)
    expected = reference(bn, x)
    count, values = fires("kept_values", bn, x)
    assert count == 1
    for value in values:
        np.testing.assert_array_equal(value, expected)


@whole_windows
def test_a_cast_weight_is_kept_and_counted():
    layer, x = nn.Linear(64, 48), pf.randn(32, 64).bfloat16()

    def cast(x):
        return F.linear(x, layer.weight.bfloat16(), layer.bias.bfloat16())

    before = pf.memory_stats()["kept"]
    expected = reference(cast, x)
    count, values = fires("kept_values", cast, x)
    assert count == 1
    assert pf.memory_stats()["kept"] - before >= 64 * 48 * 2
    for value in values:
        np.testing.assert_array_equal(value, expected)


@whole_windows
def test_joined_weights_are_kept():
    a, b, x = nn.Linear(16, 8, bias=False), nn.Linear(16, 8, bias=False), pf.randn(4, 16)

    def both(x):
        return x @ pf.cat([a.weight, b.weight]).t()

    expected = reference(both, x)
    count, values = fires("kept_values", both, x)
    assert count == 1
    for value in values:
        np.testing.assert_array_equal(value, expected)


def changes(change):
    layer, x = nn.Linear(16, 8, bias=False), pf.randn(4, 16)

    def fn(x):
        return x @ (layer.weight * 2.0).t().contiguous()

    run(fn, x)
    change(layer)
    expected = reference(fn, x)
    for value in run(fn, x):
        np.testing.assert_array_equal(value, expected)


def test_a_weight_that_was_written_is_computed_again():
    def write(layer):
        with pf.no_grad():
            layer.weight.mul_(3.0)

    changes(write)


def test_a_weight_that_an_optimizer_changed_is_computed_again():
    def train(layer):
        optimizer = pf.optim.SGD(layer.parameters(), lr=0.5)
        layer(pf.ones(2, 16)).sum().backward()
        optimizer.step()

    changes(train)


def test_a_weight_that_was_loaded_is_computed_again():
    changes(lambda layer: layer.load_state_dict({"weight": pf.randn(8, 16)}))


def test_a_weight_that_was_replaced_is_computed_again():
    def replace(layer):
        layer.weight = nn.Parameter(pf.randn(8, 16))

    changes(replace)


@pytest.mark.skipif(os.environ.get("PYFLAME_TEST_DEVICE", "cpu") != "cpu", reason="NumPy shares the memory of the CPU only")
def test_a_weight_that_numpy_wrote_is_computed_again():
    def write(layer):
        view = layer.weight.detach().numpy()
        view[:] = 7.0
        del view

    changes(write)


@whole_windows
def test_a_kept_value_is_of_one_view():
    schedule = pf.nn.Module()
    schedule.register_buffer("scale", pf.arange(1.0, 21.0))
    x = pf.ones(4)
    with pf.inference_mode():
        for _ in range(4):
            for t in (19, 15, 11, 7, 3):
                got = (x * schedule.scale[t].sqrt()).tolist()
                np.testing.assert_allclose(got, [(t + 1) ** 0.5] * 4, rtol=1e-6)


@whole_windows
def test_a_weight_that_is_written_in_each_run_is_not_kept():
    layer, x = nn.Linear(16, 8, bias=False), pf.randn(4, 16)

    def fn(x):
        y = x @ (layer.weight * 2.0).t().contiguous()
        layer.weight.add_(1.0)
        return y

    assert fires("kept_values", fn, x)[0] == 0


@whole_windows
def test_what_a_handle_sees_is_not_kept():
    layer, x = nn.Linear(16, 8, bias=False), pf.randn(4, 16)
    seen = []

    def fn(x):
        seen[:] = [layer.weight.bfloat16().float()]
        return x @ seen[0].t()

    assert fires("kept_values", fn, x)[0] == 0


@whole_windows
def test_inputs_are_not_kept():
    x, y = pf.randn(4, 16), pf.randn(16, 8)
    assert fires("kept_values", lambda x: x @ (y * 2.0).t().contiguous().t(), x)[0] == 0


@whole_windows
def test_layers_that_share_a_program_keep_their_own_values():
    layers, x = [nn.Linear(16, 16, bias=False) for _ in range(3)], pf.randn(4, 16)

    def fn(layer):
        return run(lambda x: x @ layer.weight.bfloat16().float().t(), x, runs=1)[0]

    with pf.rewrites.disable("kept_values"):
        expected = [fn(layer) for layer in layers]
    for _ in range(RUNS):
        for layer, values in zip(layers, expected):
            np.testing.assert_array_equal(fn(layer), values)


@whole_windows
def test_numbers_that_change_are_heeded():
    layer, x = nn.Linear(16, 8, bias=False), pf.randn(4, 16)
    weight = layer.weight.detach().cpu().numpy()
    for k in [1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 2.0, 3.0]:
        got = run(lambda x: x @ (layer.weight * k).t().contiguous(), x, runs=1)[0]
        np.testing.assert_allclose(got, x.cpu().numpy() @ (weight * np.float32(k)).T, rtol=1e-4, atol=1e-4)


@whole_windows
def test_kept_values_are_freed_with_unused_memory():
    layer, x = nn.Linear(64, 32, bias=False), pf.randn(4, 64)

    def fn(x):
        return x.bfloat16() @ layer.weight.bfloat16().t()

    expected = run(fn, x)[-1]
    assert pf.memory_stats()["kept"] >= 64 * 32 * 2
    pf.memory.trim()
    assert pf.memory_stats()["kept"] == 0
    for value in run(fn, x):
        np.testing.assert_array_equal(value, expected)


# ---- merged_products


class Three(nn.Module):
    def __init__(self, bias=True, heads=4):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, n, bias=bias) for n in (32, 32, 32))
        self.heads = heads

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).reshape(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)


@whole_windows
@pytest.mark.parametrize("bias", [True, False])
def test_q_k_and_v_are_one_product(bias):
    model, x = Three(bias), pf.randn(2, 9, 32)
    expected = reference(model, x)
    with pf.rewrites.enable("merged_products"):
        count, values = fires("merged_products", model, x)
        with pf.no_grad():
            text = str(pf.explain(lambda: model(x)))
    assert count == 1
    assert text.count("matmul(") == 1, text
    check_close(values, expected)


@whole_windows
def test_gate_and_up_are_one_product():
    gate, up, down = nn.Linear(16, 40, bias=False), nn.Linear(16, 40, bias=False), nn.Linear(40, 16, bias=False)

    def mlp(x):
        return down(F.silu(gate(x)) * up(x))

    x = pf.randn(3, 5, 16)
    expected = reference(mlp, x)
    with pf.rewrites.enable("merged_products"):
        count, values = fires("merged_products", mlp, x)
        assert count == 1
        check_close(values, expected)
        with pf.no_grad():
            up.weight.mul_(-1.0)
        check_close(run(mlp, x), reference(mlp, x))


@whole_windows
def test_products_of_different_widths_and_bfloat16():
    a, b, x = nn.Linear(16, 24).bfloat16(), nn.Linear(16, 8).bfloat16(), pf.randn(4, 16).bfloat16()

    def fn(x):
        y, z = a(x), b(x)
        return (y * 2.0).float().sum(1, keepdim=True) + pf.relu(z).float()

    expected = reference(fn, x)
    with pf.rewrites.enable("merged_products"):
        count, values = fires("merged_products", fn, x)
    assert count == 1
    check_close(values, expected, 2e-2)


@whole_windows
@pytest.mark.parametrize("why", ["off", "other input", "seen", "sliced"])
def test_products_that_stay_apart(why):
    a, b, x = nn.Linear(16, 24), nn.Linear(16, 24), pf.randn(4, 16)
    seen = []

    def fn(x):
        y, z = a(x), b(x + 1.0 if why == "other input" else x)
        if why == "seen":
            seen[:] = [y]
        return pf.relu(y[:, 3:9] if why == "sliced" else y).sum() + pf.relu(z).sum()

    expected = reference(fn, x)
    with pf.rewrites.enable("merged_products") if why != "off" else pf.rewrites.disable("merged_products"):
        count, values = fires("merged_products", fn, x)
    assert count == 0
    check_close(values, expected)


def test_merged_products_leave_training_alone():
    def gradients():
        pf.manual_seed(1)
        model = Three()
        x = pf.randn(2, 5, 32)
        for _ in range(4):
            model.zero_grad()
            model(x).square().sum().backward()
        return [p.grad.cpu().numpy() for p in model.parameters()]

    expected = gradients()
    with pf.rewrites.enable("merged_products"):
        for got, want in zip(gradients(), expected):
            check_close([got], want)


# ---- folded_norms


class Block(nn.Module):
    def __init__(self, bias=False, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1, bias=bias, groups=groups)
        self.bn = nn.BatchNorm2d(8)
        with pf.no_grad():
            for t in (self.bn.running_mean, self.bn.weight, self.bn.bias):
                t.copy_(pf.randn(8))
            self.bn.running_var.copy_(pf.rand(8) + 0.5)

    def forward(self, x):
        return pf.relu(self.bn(self.conv(x)))


@whole_windows
@pytest.mark.parametrize("bias,groups,dtype", [(False, 1, "float32"), (True, 1, "float32"), (True, 2, "float32"), (True, 1, "bfloat16")])
def test_a_batch_norm_becomes_part_of_the_convolution(bias, groups, dtype):
    model, x = Block(bias, groups).eval(), pf.randn(2, 4, 6, 6)
    if dtype == "bfloat16":
        model, x = model.bfloat16(), x.bfloat16()
    expected = reference(lambda x: model(x).float(), x)
    with pf.rewrites.enable("folded_norms"):
        count, values = fires("folded_norms", lambda x: model(x).float(), x)
        assert count == 1
        check_close(values, expected, 2e-2 if dtype == "bfloat16" else 2e-5)
        with pf.no_grad():
            model.bn.running_var.add_(1.0)
        check_close(run(lambda x: model(x).float(), x), reference(lambda x: model(x).float(), x), 2e-2 if dtype == "bfloat16" else 2e-5)


@whole_windows
def test_a_batch_norm_becomes_part_of_a_linear_layer():
    layer, bn, x = nn.Linear(6, 8), nn.BatchNorm1d(8), pf.randn(5, 6)
    with pf.no_grad():
        bn.running_mean.copy_(pf.randn(8))
        bn.weight.copy_(pf.randn(8))
    bn.eval()
    expected = reference(lambda x: bn(layer(x)), x)
    with pf.rewrites.enable("folded_norms"):
        count, values = fires("folded_norms", lambda x: bn(layer(x)), x)
    assert count == 1
    check_close(values, expected)


@whole_windows
@pytest.mark.parametrize("why", ["off", "training", "seen"])
def test_batch_norms_that_stay(why):
    model, x = Block(), pf.randn(2, 4, 6, 6)
    if why != "training":
        model.eval()
    seen = []

    def fn(x):
        y = model.conv(x)
        if why == "seen":
            seen[:] = [y]
        return model.bn(y)

    with pf.rewrites.enable("folded_norms") if why != "off" else pf.rewrites.disable("folded_norms"):
        assert fires("folded_norms", fn, x)[0] == 0


# ---- grouped_heads


def repeats(kind):
    def attend(q, k, v):
        if kind == "repeat_interleave":
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        elif kind == "expand":
            b, h, s, d = k.shape
            k, v = (x[:, :, None].expand(b, h, 2, s, d).reshape(b, 2 * h, s, d) for x in (k, v))
        else:  # [B, S, Hk, D], repeated and then transposed
            k, v = (x.transpose(1, 2).contiguous().repeat_interleave(2, 2).transpose(1, 2) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend


@whole_windows
@pytest.mark.parametrize("kind", ["repeat_interleave", "expand", "rows"])
def test_repeated_heads_are_not_copied(kind):
    q, k, v = pf.randn(2, 6, 7, 8), pf.randn(2, 3, 7, 8), pf.randn(2, 3, 7, 8)
    expected = reference(repeats(kind), q, k, v)
    with pf.rewrites.enable("grouped_heads"):
        count, values = fires("grouped_heads", repeats(kind), q, k, v)
        assert count == 1
        with pf.no_grad():
            text = str(pf.explain(lambda: repeats(kind)(q, k, v)))
    assert "float32(2, 3, 7, 8)" in text
    check_close(values, expected)


@whole_windows
@pytest.mark.parametrize("why", ["off", "seen", "tiled"])
def test_heads_that_stay(why):
    q, k, v = pf.randn(2, 6, 7, 8), pf.randn(2, 3, 7, 8), pf.randn(2, 3, 7, 8)
    seen = []

    def fn(q, k, v):
        if why == "tiled":  # the order of the heads is another one
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        else:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        if why == "seen":
            seen[:] = [k]
        return F.scaled_dot_product_attention(q, k, v)

    expected = reference(fn, q, k, v)
    with pf.rewrites.enable("grouped_heads") if why != "off" else pf.rewrites.disable("grouped_heads"):
        count, values = fires("grouped_heads", fn, q, k, v)
    assert count == 0
    check_close(values, expected)


# ---- found_attention


def by_hand(scale="mul", masked=False):
    def attend(q, k, v, *mask):
        scores = q @ k.transpose(-2, -1)
        scores = scores * 0.3 if scale == "mul" else scores / 3.0 if scale == "div" else scores
        if masked:
            scores = scores + mask[0]
        return pf.softmax(scores, -1) @ v

    return attend


@whole_windows
@pytest.mark.parametrize("scale,shape,mask", [("mul", (2, 3, 7, 8), None), ("div", (2, 3, 7, 8), (2, 1, 1, 7)), ("none", (4, 7, 8), None), ("mul", (4, 7, 8), (7, 7)), ("mul", (2, 3, 7, 8), (7, 7))])
def test_attention_by_hand_is_one_op(scale, shape, mask):
    args = [pf.randn(*shape) for _ in range(3)] + ([pf.randn(*mask)] if mask else [])
    fn = by_hand(scale, bool(mask))
    expected = reference(fn, *args)
    with pf.rewrites.enable("found_attention"):
        count, values = fires("found_attention", fn, *args)
        with pf.no_grad():
            text = str(pf.explain(lambda: fn(*args)))
    assert count == 1
    assert "attention(" in text and "matmul(" not in text
    check_close(values, expected)


@whole_windows
@pytest.mark.parametrize("why", ["off", "seen", "width", "other dim"])
def test_softmaxes_that_stay(why):
    q, k = pf.randn(2, 3, 8, 8), pf.randn(2, 3, 8, 8)
    v = pf.randn(2, 3, 8, 5 if why == "width" else 8)
    seen = []

    def fn(q, k, v):
        p = pf.softmax(q @ k.transpose(-2, -1), 2 if why == "other dim" else -1)
        if why == "seen":
            seen[:] = [p]
        return p @ v

    expected = reference(fn, q, k, v)
    with pf.rewrites.enable("found_attention") if why != "off" else pf.rewrites.disable("found_attention"):
        count, values = fires("found_attention", fn, q, k, v)
    assert count == 0
    check_close(values, expected)


# ---- found_attention with bool masks


HIDDEN = {  # masks that are true where a key is hidden, for scores of [2, 3, 7, 7]
    "causal": lambda: pf.tril(pf.ones(7, 7)).view(1, 1, 7, 7) == 0,
    "keys of a batch": lambda: (pf.arange(7) >= pf.tensor([[7], [4]])).view(2, 1, 1, 7),
    "heads": lambda: (pf.arange(7) > pf.tensor([2, 3, 4]).view(3, 1)).view(3, 1, 7),
    "rows": lambda: pf.arange(7) > pf.arange(7).unsqueeze(1),
    "expanded": lambda: (pf.arange(7) > pf.arange(7).unsqueeze(1)).expand(2, 3, 7, 7),
    "full": lambda: (pf.rand(2, 3, 7, 7) > 0.6) & (pf.arange(7) > 0),
}


def nano(fill=float("-inf"), how="masked_fill", dropout=0.0, training=False, then=None):
    """Attention as nanoGPT writes it without the fused op."""
    def attend(q, k, v, hidden):
        att = (q @ k.transpose(-2, -1)) * (1.0 / 8 ** 0.5)
        att = {
            "masked_fill": lambda: att.masked_fill(hidden, fill),
            "where": lambda: pf.where(hidden, fill, att),
            "where seen": lambda: pf.where(hidden.logical_not(), att, fill),
        }[how]()
        att = F.dropout(pf.softmax(att, -1), dropout, training)
        if then is not None:
            then(att)
        return att @ v

    return attend


def three_of(*shape, requires_grad=False):
    return [pf.randn(*shape, requires_grad=requires_grad) for _ in range(3)]


@whole_windows
@pytest.mark.parametrize("how,width", [("masked_fill", 8), ("where", 16), ("where seen", 24)])  # equal programs are compiled once
@pytest.mark.parametrize("mask", list(HIDDEN))
def test_a_bool_mask_becomes_the_mask_of_attention(mask, how, width):
    args, fn = [*three_of(2, 3, 7, width), HIDDEN[mask]()], nano(how=how)
    expected = reference(fn, *args)
    with pf.rewrites.enable("found_attention"):
        count, values = fires("found_attention", fn, *args)
        with pf.no_grad():
            text = str(pf.explain(lambda: fn(*args)))
    assert count == 1
    assert "attention(" in text and "matmul(" not in text and "softmax(float32" not in text
    check_close(values, expected)


@whole_windows
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_causal_block_that_makes_its_mask(dtype):
    """The mask is made from a buffer in the same window, and q, k and v are parts of one layer's output."""
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(32, 96), nn.Linear(32, 32)
            self.register_buffer("bias", pf.tril(pf.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, 4, c // 4).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
            att = (q @ k.transpose(-2, -1)) * (1.0 / (c // 4) ** 0.5)
            att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            att = F.dropout(F.softmax(att, dim=-1), 0.0, self.training)
            return self.c_proj((att @ v).transpose(1, 2).contiguous().view(b, t, c))

    model, x = Attention().eval().to(getattr(pf, dtype)), pf.randn(2, 9, 32).to(getattr(pf, dtype))
    expected = reference(model, x)
    with pf.rewrites.enable("found_attention"):
        count, values = fires("found_attention", model, x)
    assert count >= 1
    check_close(values, expected, 2e-5 if dtype == "float32" else 2e-2)


@whole_windows
def test_a_bool_mask_over_three_dims():
    args, fn = [*three_of(4, 7, 8), pf.rand(4, 7, 7) > 0.7], nano()
    args[3] = args[3] & (pf.arange(7) > 0)
    expected = reference(fn, *args)
    with pf.rewrites.enable("found_attention"):
        count, values = fires("found_attention", fn, *args)
    assert count == 1
    check_close(values, expected)


@whole_windows
def test_rows_that_a_bool_mask_hides_wholly_are_zero():
    hidden = (pf.arange(7) >= pf.tensor([[7], [0]])).view(2, 1, 1, 7)
    args = [*three_of(2, 3, 7, 12), hidden]
    expected = reference(nano(), *args)
    assert np.isnan(expected[1]).all()
    with pf.rewrites.enable("found_attention"):
        count, values = fires("found_attention", nano(), *args)
    assert count == 1
    check_close(values, np.where(np.isnan(expected), 0, expected))


@whole_windows
@pytest.mark.parametrize("fill", [-5.0, -1e4, -1e9, float(np.finfo("float32").min), 0.0, float("inf")])
@pytest.mark.parametrize("how", ["masked_fill", "where", "where seen"])
def test_other_fill_values_stay(fill, how):
    """A finite number is a score like others: a row of such scores alone is the mean of v."""
    hidden = (pf.arange(7) >= pf.tensor([[7], [0]])).view(2, 1, 1, 7)
    args, fn = [*three_of(2, 3, 7, 8), hidden], nano(fill, how)
    expected = reference(fn, *args)
    with pf.rewrites.enable("found_attention"):
        count, values = fires("found_attention", fn, *args)
    assert count == 0
    np.testing.assert_array_equal(values[-1], expected)


@whole_windows
def test_fill_values_do_not_share_a_program():
    args = [*three_of(2, 3, 7, 8), HIDDEN["causal"]()]
    with pf.rewrites.enable("found_attention"):
        for fill in (float("-inf"), -1.0, float("-inf"), 0.5):
            check_close(run(nano(fill), *args, runs=3), reference(nano(fill), *args))


@whole_windows
@pytest.mark.parametrize("why", ["off", "probabilities are seen", "dropout", "mask before the scale", "larger mask"])
def test_bool_masks_that_stay(why):
    seen = []
    q, k, v = three_of(2, 3, 7, 8)
    hidden = HIDDEN["causal"]()
    fn = nano(then=lambda p: seen.__setitem__(slice(None), [p])) if why == "probabilities are seen" else nano()
    if why == "dropout":
        fn = nano(dropout=0.5, training=True)
    elif why == "mask before the scale":
        def fn(q, k, v, hidden):
            return pf.softmax((q @ k.transpose(-2, -1)).masked_fill(hidden, float("-inf")) * 0.3, -1) @ v
    elif why == "larger mask":
        q, hidden = q[:1], pf.cat([hidden, hidden])
        k = k[:1]
    with pf.rewrites.enable("found_attention") if why != "off" else pf.rewrites.disable("found_attention"):
        count, values = fires("found_attention", fn, q, k, v, hidden)
    assert count == 0
    if why != "dropout":
        check_close(values, reference(fn, q, k, v, hidden))


@whole_windows
def test_a_mask_that_is_written_later():
    """The mask of the moment when it was applied counts."""
    def fn(q, k, v, hidden):
        hidden = hidden.clone()
        att = (q @ k.transpose(-2, -1)).masked_fill(hidden, float("-inf"))
        hidden.fill_(False)
        return pf.softmax(att, -1) @ v + hidden.sum()

    def fn_where(q, k, v, hidden):
        seen = hidden.logical_not()
        att = pf.where(seen, q @ k.transpose(-2, -1), float("-inf"))
        seen.fill_(True)
        return pf.softmax(att, -1) @ v + seen.sum()

    args = [*three_of(2, 3, 7, 8), HIDDEN["causal"]().expand(2, 3, 7, 7)]
    for f in (fn, fn_where):
        expected = reference(f, *args)
        with pf.rewrites.enable("found_attention"):
            check_close(run(f, *args), expected)


# ---- found_attention in training


def train(fn, *args, steps=4, weight=None):
    """Loss and gradients of each step; forward and backward are one window."""
    found = []
    for _ in range(steps):
        for a in args[:3]:
            a.grad = None
        loss = (fn(*args) * weight).sum()
        loss.backward()
        found.append([loss.item(), *(a.grad.cpu().numpy().copy() for a in args[:3])])
    return found


def check_training(fn, args, count, tolerance=2e-5):
    weight = pf.randn(*args[0].shape)
    for a in args:
        a.detach().numpy()  # the window of a step begins with the step
    with pf.rewrites.disable("found_attention"):
        expected = train(fn, *args, weight=weight, steps=1)[0]
    with pf.rewrites.enable("found_attention"):
        before = pf.rewrites.fired()["found_attention"]
        steps = train(fn, *args, weight=weight)
        assert (pf.rewrites.fired()["found_attention"] - before > 0) == bool(count)
    for step in steps:
        for got, want in zip(step, expected):
            check_close([got], want, tolerance)


def scaled(scale, how="masked_fill"):
    def attend(q, k, v, *hidden):
        att = q @ k.transpose(-2, -1)
        if scale == "div":
            att = att / 2.5
        elif scale is not None:
            att = att * scale
        if hidden:
            att = att.masked_fill(hidden[0], float("-inf")) if how == "masked_fill" else pf.where(hidden[0].logical_not(), att, float("-inf"))
        return F.dropout(pf.softmax(att, -1), 0.0, True) @ v

    return attend


@whole_windows
@pytest.mark.parametrize("scale", [0.35, "div", None, 0.0, -0.5])
@pytest.mark.parametrize("mask", ["masked_fill", "where seen", None])
@pytest.mark.parametrize("rank", [3, 4])
def test_a_training_step_is_attention_and_its_gradient(scale, mask, rank):
    shape = (2, 3, 9, 4 + 4 * rank) if rank == 4 else (5, 9, 8)
    width = {None: 0, 0.35: 1, "div": 2, 0.0: 3, -0.5: 4}[scale]
    shape = (*shape[:-1], shape[-1] + 4 * width)  # equal programs are compiled once
    hidden = [pf.arange(9) > pf.arange(9).unsqueeze(1)] if mask else []
    check_training(scaled(scale, mask), [*three_of(*shape, requires_grad=True), *hidden], 1)


@whole_windows
def test_a_training_step_of_many_layers_is_one_window():
    """A step of 1,000 ops is longer than other windows. If it were cut between a softmax and its gradient, the probabilities would be kept for the next window."""
    layers = 24

    def fn(x):
        for i in range(layers):
            q = x * (1 + i / 100)
            x = x + (pf.softmax((q @ x.transpose(-2, -1)) * 0.3, -1) @ q).tanh() * 0.1
        return x

    args = three_of(2, 3, 7, 44, requires_grad=True)[:1]
    with pf.rewrites.enable("found_attention"):
        before = pf.rewrites.fired()["found_attention"]
        steps = train(fn, *args, weight=pf.ones(2, 3, 7, 44), steps=2)
        assert pf.rewrites.fired()["found_attention"] - before == 2 * layers  # of the program, which both steps share
    with pf.rewrites.disable("found_attention"):
        expected = train(fn, *args, weight=pf.ones(2, 3, 7, 44), steps=1)[0]
    for step in steps:
        for got, want in zip(step, expected):
            check_close([got], want, 1e-4)


@whole_windows
@pytest.mark.parametrize("mask", list(HIDDEN))
def test_masks_of_a_training_step(mask):
    args = [*three_of(2, 3, 7, 40, requires_grad=True), HIDDEN[mask]()]
    check_training(scaled(0.2), args, 1)


@whole_windows
@pytest.mark.parametrize("learned", [False, True])
def test_a_mask_that_is_added_in_training(learned):
    def fn(q, k, v, mask):
        return pf.softmax((q @ k.transpose(-2, -1)) * 0.4 + mask, -1) @ v

    mask = pf.randn(1, 3, 7, 7, requires_grad=learned)
    check_training(fn, [*three_of(2, 3, 7, 56, requires_grad=True), mask], not learned)


@whole_windows
def test_explain_shows_the_gradient_op():
    args, fn = [*three_of(2, 3, 7, 8, requires_grad=True), HIDDEN["causal"]()], scaled(0.35)
    with pf.rewrites.enable("found_attention"):
        text = str(pf.explain(lambda: fn(*args).sum().backward()))
    assert "attention_grad(" in text and "matmul(" not in text and "softmax(float32" not in text


@whole_windows
def test_rows_that_are_hidden_wholly_have_no_gradient():
    hidden = (pf.arange(7) >= pf.tensor([[7], [0]])).view(2, 1, 1, 7)
    args = [*three_of(2, 3, 7, 44, requires_grad=True), hidden]
    with pf.rewrites.enable("found_attention"):
        loss, *grads = train(scaled(0.35), *args, weight=1.0)[-1]
    with pf.rewrites.disable("found_attention"):
        _, *expected = train(scaled(0.35), *args, weight=1.0)[-1]
    assert np.isfinite(loss)
    for got, want in zip(grads, expected):
        check_close([got[0]], want[0])
        assert not got[1].any()


@whole_windows
@pytest.mark.parametrize("scales", [(0.5, 2.0), (0.5, 0.5), (-3.0, 0.1), (0.0, 0.0)])
def test_a_gradient_by_hand_may_have_another_scale(scales):
    """A program is compiled without its numbers, so the scale of the gradient need not be that of the scores."""
    def step(q, k, v, g):
        p = pf.softmax((q @ k.transpose(-2, -1)) * scales[0], -1)
        out, dp, dv = p @ v, g @ v.transpose(-2, -1), p.transpose(-2, -1) @ g
        ds = (p * (dp - (dp * p).sum(-1, keepdim=True))) * scales[1]
        dq, dk = ds @ k, q.transpose(-2, -1) @ ds
        return pf.cat([out, dq, dk.transpose(-2, -1), dv])

    args = [pf.randn(2, 3, 7, 52) for _ in range(4)]
    expected = reference(step, *args)
    with pf.rewrites.enable("found_attention"):
        values = run(step, *args)
        with pf.no_grad():
            assert "attention_grad(" in str(pf.explain(lambda: step(*args)))
    check_close(values, expected)


@whole_windows
@pytest.mark.parametrize("why", ["scores are seen", "probabilities are seen", "probabilities are used", "one gradient", "other mask value"])
def test_training_steps_that_stay(why):
    seen = []

    def fn(q, k, v, hidden):
        att = (q @ (k.detach() if why == "one gradient" else k).transpose(-2, -1)) * 0.5
        if why == "scores are seen":
            seen[:] = [att]
        att = pf.softmax(att.masked_fill(hidden, -1e9 if why == "other mask value" else float("-inf")), -1)
        if why == "probabilities are seen":
            seen[:] = [att]
        if why == "probabilities are used":
            return att @ v + att.sum(-1, keepdim=True)
        return att @ v + (k if why == "one gradient" else 0)

    check_training(fn, [*three_of(2, 3, 7, 48, requires_grad=True), HIDDEN["causal"]()], 0)


@whole_windows
@pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])
def test_a_gpt_trains_to_the_same_losses(precision):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.c_attn, self.c_proj = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
            self.register_buffer("bias", pf.tril(pf.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, 4, c // 4).transpose(1, 2) for y in self.c_attn(self.norm(x)).split(c, dim=2))
            att = (q @ k.transpose(-2, -1)) * (1.0 / (c // 4) ** 0.5)
            att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            att = F.dropout(F.softmax(att, dim=-1), 0.0, self.training)
            return x + self.c_proj((att @ v).transpose(1, 2).contiguous().view(b, t, c))

    def losses():
        pf.manual_seed(1)
        model = nn.Sequential(nn.Embedding(20, 32), Block(), Block(), nn.Linear(32, 20))
        if precision == "bfloat16":
            model = model.bfloat16()
        optimizer, found = pf.optim.AdamW(model.parameters(), lr=1e-2), []
        tokens = pf.randint(0, 20, (3, 13))
        for _ in range(5):
            with pf.autocast(tokens.device.type, dtype=pf.bfloat16, enabled=precision == "autocast"):
                logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.float().reshape(-1, 20), tokens[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses()
    with pf.rewrites.enable("found_attention"):
        before = pf.rewrites.fired()["found_attention"]
        found = losses()
        assert pf.rewrites.fired()["found_attention"] - before >= 2
    np.testing.assert_allclose(found, expected, rtol=1e-4 if precision == "float32" else 1e-2)


def gradients_of(fn, *shapes):
    pf.manual_seed(3)
    args = [pf.randn(*s, requires_grad=True) for s in shapes]
    for _ in range(3):
        for a in args:
            a.grad = None
        (fn(*args) * pf.arange(shapes[0][-1])).sum().backward()
    return [a.grad.cpu().numpy() for a in args]


@pytest.mark.parametrize("name,fn,shapes", [
    ("found_attention", by_hand(), [(2, 3, 7, 8)] * 3),
    ("grouped_heads", repeats("repeat_interleave"), [(2, 6, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)]),
    ("grouped_heads", repeats("expand"), [(2, 6, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)]),
])
def test_gradients_agree(name, fn, shapes):
    expected = gradients_of(fn, *shapes)
    with pf.rewrites.enable(name):
        for got, want in zip(gradients_of(fn, *shapes), expected):
            check_close([got], want, 1e-4)


# ---- all together


@whole_windows
def test_all_rewrites_at_once():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.mix = Block(), Three(heads=2)

        def forward(self, x):
            y = self.block(x)
            return self.mix(y.reshape(x.shape[0], -1, 32)).sum(1)

    model, x = Model().eval(), pf.randn(2, 4, 6, 6)
    expected = reference(model, x)
    with pf.rewrites.enable(*(r.name for r in pf.rewrites.registry())):
        check_close(run(model, x), expected)


@pytest.mark.parametrize("fuse", ["0", "1"])
def test_the_variable_that_stops_fusion_stops_rewrites(fuse):
    code = """
import pyflame as pf
q = pf.randn(2, 4, 16, 8)
with pf.no_grad():
    for _ in range(3):
        ((q @ q.mT * 0.25).softmax(-1) @ q).sum().item()
print(sum(pf.rewrites.fired().values()))
"""
    environment = {**{k: v for k, v in os.environ.items() if k != "PYFLAME_WINDOW"}, "PYFLAME_FUSE": fuse, "PYFLAME_REWRITES": "found_attention"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0 and (int(done.stdout) > 0) is (fuse == "1"), (done.stdout, done.stderr)
