"""pf.explain names each rewrite that has fired and why one that nearly did has not, and a function can be kept out of each of them."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1" or os.environ.get("PYFLAME_FUSE") == "0", reason="a window of one op has no pattern")
FIRED, LEFT = "what rewrites replaced:", "what rewrites left, and why:"


@pytest.fixture(autouse=True)
def seed():
    pf.manual_seed(0)
    pf.clear_program_cache()  # a rewrite is counted when a program is compiled


def rows(text, title):
    """The lines below a title of the summary."""
    lines = text.splitlines()
    if title not in lines:
        return []
    found = []
    for line in lines[lines.index(title) + 1:]:
        if not line.startswith("  "):
            break
        found.append(line.strip())
    return found


class Norm(nn.Module):
    def __init__(self, seen=None):
        super().__init__()
        self.conv, self.bn, self.seen = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), seen
        with pf.no_grad():
            self.bn.running_var.copy_(pf.rand(8) + 0.5)

    def forward(self, x):
        y = self.conv(x)
        if self.seen is not None:
            self.seen[:] = [y]
        return self.bn(y)


def kept(near=False):
    layer, x, seen = nn.Linear(16, 8, bias=False), pf.randn(4, 16), []

    def fn():
        w = layer.weight.bfloat16().float()
        if near:
            seen[:] = [w]
        return x @ w.t()

    return fn


def merged(near=False):
    a, b, x, seen = nn.Linear(16, 24), nn.Linear(16, 24), pf.randn(4, 16), []

    def fn():
        y, z = a(x), b(x)
        if near:
            seen[:] = [y]
        return pf.relu(y) + pf.relu(z)

    return fn


def folded(near=False):
    model, x = Norm([] if near else None).eval(), pf.randn(2, 4, 6, 6)
    return lambda: model(x)


def grouped(near=False):
    q, k, v, seen = pf.randn(2, 6, 7, 8), pf.randn(2, 3, 7, 8), pf.randn(2, 3, 7, 8), []

    def fn():
        keys, values = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        if near:
            seen[:] = [keys]
        return F.scaled_dot_product_attention(q, keys, values)

    return fn


def attention(near=False):
    q, k, v, seen = *(pf.randn(2, 3, 7, 8) for _ in range(3)), []

    def fn():
        p = pf.softmax(q @ k.transpose(-2, -1) * 0.3, -1)
        if near:
            seen[:] = [p]
        return p @ v

    return fn


def filled(near=False):
    q, k, v = (pf.randn(2, 3, 7, 8) for _ in range(3))
    hidden = pf.arange(7) > pf.arange(7).unsqueeze(1)
    return lambda: pf.softmax((q @ k.transpose(-2, -1)).masked_fill(hidden, -5.0 if near else -1e9), -1) @ v


def padded(near=False):
    q, k, v = (pf.randn(2, 3, 7, 8) for _ in range(3))
    mask = pf.arange(7) < pf.tensor([7, 4]).reshape(2, 1, 1, 1)
    if near:
        mask = mask.repeat(1, 1, 7, 1)
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


REWRITES = {  # by name: the function, the rewrites that it needs, what is said if it fired, the rewrite and the reason if it did not
    "kept_values": (kept, [], "1 value of weights alone is computed once and kept", "kept_values", "a variable or the tape of a gradient holds what is computed of a weight"),
    "merged_products": (merged, [], "2 products of one tensor with constant weights -> one product", "merged_products", "a variable holds the product"),
    "folded_norms": (folded, [], "ops with constants per channel -> the weight of the conv2d", "folded_norms", "another op reads the values between the conv2d and this one"),
    "grouped_heads": (grouped, [], "keys and values repeated for 6 heads -> those of 3 heads, without copies", "grouped_heads", "another op reads the repeated keys or values"),
    "found_attention": (attention, [], "softmax(q k^T * scale) v -> scaled_dot_product_attention", "found_attention", "another op reads the probabilities"),
    "skipped_padding": (padded, [], "queries at positions that the mask hides are left out", "skipped_padding", "the mask has a row for each query"),
    "finite_fills": (filled, ["found_attention"], "a finite number where the mask hides -> -1e30, added to the scores", "found_attention", "the mask fills in a tensor or another number than -inf"),
}


def explained(fn, *names, runs=5):
    """What is said once values are kept, which is from the third run on."""
    with pf.no_grad(), pf.rewrites.enable(*names):
        for _ in range(runs):
            fn().numpy()
        return pf.explain(fn)


def test_each_rewrite_is_here():
    assert set(REWRITES) == {r.name for r in pf.rewrites.registry()}


@pytest.mark.parametrize("name", list(REWRITES))
def test_explain_names_what_fired_with_its_line(name):
    make, also, said, _, _ = REWRITES[name]
    here = os.path.basename(__file__)
    found = [row for row in rows(explained(make(), name, *also), FIRED) if row.startswith(f"{name} at ")]
    assert found and all(said in row for row in found), found
    assert here in found[0] or name in ("merged_products", "folded_norms"), found  # theirs are lines of layers
    assert "an unknown place" not in found[0]


@pytest.mark.parametrize("name", list(REWRITES))
def test_explain_says_why_one_that_nearly_matched_did_not(name):
    make, also, _, which, reason = REWRITES[name]
    before = pf.rewrites.fired()[name]
    text = explained(make(near=True), name, *also)
    assert pf.rewrites.fired()[name] == before
    assert any(row.startswith(f"{which} at ") and reason in row for row in rows(text, LEFT)), text[:3000]
    assert not [row for row in rows(text, FIRED) if row.startswith(name)]


@pytest.mark.parametrize("name", ["found_attention", "grouped_heads"])
def test_explain_says_that_one_is_off(name):
    text = explained(REWRITES[name][0]())
    assert any(row.startswith(f"{name} at ") and f"pf.rewrites.enable(\"{name}\")" in row for row in rows(text, LEFT)), text[:2000]
    assert not rows(text, FIRED)


def test_the_hint_on_finite_fills_has_its_condition():
    [row] = [row for row in rows(explained(filled()), LEFT) if row.startswith("finite_fills at ")]
    assert row.endswith("if all scores are smaller in size than that number less 104")


def test_nothing_is_said_of_other_ops():
    x, w = pf.randn(4, 7, 8), pf.randn(8, 8)
    text = explained(lambda: pf.softmax(pf.relu(x @ w), -1).sum(1), *REWRITES)
    assert not rows(text, LEFT) and not [row for row in rows(text, FIRED) if "kept_values" not in row]


def test_a_training_step_has_one_note_for_each_attention():
    q, k, v = (pf.randn(2, 3, 7, 8, requires_grad=True) for _ in range(3))
    step = lambda: (pf.softmax(q @ k.transpose(-2, -1) * 0.3, -1) @ v).sum().backward()  # noqa: E731
    with pf.rewrites.enable("found_attention"):
        text = pf.explain(step)
        assert [row.partition(": ")[2] for row in rows(text, FIRED)] == ["softmax(q k^T * scale) v -> scaled_dot_product_attention, and its gradient"]
        assert not rows(text, LEFT)
        k.requires_grad_(False)
        assert ["the gradient is none that is known" in row for row in rows(pf.explain(step), LEFT)] == [True]


# ---- a function can be kept out


@pytest.mark.parametrize("name", list(REWRITES))
@pytest.mark.parametrize("how", ["no_fuse", "settings", "disable"])
def test_a_function_is_kept_out(name, how):
    make, also, _, _, _ = REWRITES[name]
    fn = make()
    with pf.no_grad(), pf.rewrites.disable(name):
        expected = fn().numpy().copy()
    kept_out = {"no_fuse": pf.no_fuse(fn), "settings": pf.settings(fuse=False)(fn), "disable": lambda: disabled(fn, name)}[how]
    before = pf.rewrites.fired()[name]
    text = explained(kept_out, name, *also)
    assert pf.rewrites.fired()[name] == before
    assert not [row for row in rows(text, FIRED) if row.startswith(name)]
    with pf.no_grad(), pf.rewrites.enable(name, *also):
        np.testing.assert_allclose(kept_out().numpy(), expected, rtol=0, atol=2e-5)
        for _ in range(5):
            fn().numpy()
    assert pf.rewrites.fired()[name] > before  # outside it fires


def disabled(fn, name):
    with pf.rewrites.disable(name):
        return fn()


def test_explain_says_that_a_function_was_kept_out():
    text = explained(pf.no_fuse(attention()), "found_attention")
    assert any("ops that are not to be fused are not replaced (pf.no_fuse, fuse=False, PYFLAME_FUSE=0)" in row for row in rows(text, LEFT)), text[:2000]


def test_settings_enable_rewrites_and_set_them_back():
    fn = attention()
    before = pf.rewrites.fired()["found_attention"]
    with pf.no_grad(), pf.settings(rewrites=["found_attention"]):
        fn().numpy()
        text = pf.explain(fn)
    assert rows(text, FIRED) and pf.rewrites.fired()["found_attention"] >= before
    with pf.no_grad():
        assert not rows(pf.explain(fn), FIRED)


# ---- the program


def test_the_program_shows_rewrites(tmp_path):
    script = tmp_path / "attend.py"
    script.write_text("import pyflame as pf\nq, k, v = (pf.randn(2, 3, 7, 8) for _ in range(3))\nwith pf.no_grad():\n    print((pf.softmax(q @ k.transpose(-2, -1), -1) @ v).sum().item() != 0)\n")
    env = {**os.environ, "PYFLAME_REWRITES": "found_attention"}
    page, data = tmp_path / "plan.html", tmp_path / "plan.json"
    run = lambda *options: subprocess.run([sys.executable, "-m", "pyflame", "explain", *options, str(script)], capture_output=True, text=True, env=env, timeout=300)  # noqa: E731
    done = run("--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "found_attention at " in page.read_text() and "attend.py:4" in page.read_text()
    done = run("--json", str(data))
    assert done.returncode == 0, done.stderr
    [note] = json.loads(data.read_text())["rewrites"]
    assert note["rewrite"] == "found_attention" and note["fired"] and note["text"] == "softmax(q k^T) v -> scaled_dot_product_attention"
