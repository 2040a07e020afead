"""einops with tensors of PyFlame: the functions by their backend, and the layers as modules."""
import subprocess
import sys

import numpy as np
import pyflame as pf
import pytest

einops = pytest.importorskip("einops", reason="einops is not installed")
layers = pytest.importorskip("pyflame.einops")

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1


def tensor():
    return pf.tensor(VALUES, requires_grad=True)


@pytest.mark.parametrize("pattern", ["a b c -> c (a b)", "a (b d) c -> d a b c", "a b c -> (a b c)", "a b c -> a 1 b c"])
def test_rearrange(pattern):
    sizes = {"d": 3} if "d" in pattern else {}
    x = tensor()
    moved = einops.rearrange(x, pattern, **sizes)
    np.testing.assert_array_equal(moved.detach().numpy(), einops.rearrange(VALUES, pattern, **sizes))
    (moved * moved.detach()).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), VALUES)


@pytest.mark.parametrize("operation", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("pattern", ["a b c -> b", "a b (c d) -> c a", "a b c -> ", "a b c -> a 1 c"])
def test_reduce(operation, pattern):
    sizes = {"d": 2} if "d" in pattern else {}
    got = einops.reduce(tensor(), pattern, operation, **sizes).detach().numpy()
    np.testing.assert_allclose(got, einops.reduce(VALUES, pattern, operation, **sizes), rtol=1e-6)


@pytest.mark.parametrize("operation", ["any", "all"])
def test_reduce_of_bools(operation):
    got = einops.reduce(pf.tensor(VALUES > 12), "a b c -> a c", operation)
    np.testing.assert_array_equal(got.numpy(), einops.reduce(VALUES > 12, "a b c -> a c", operation))


def test_repeat_pack_and_einsum():
    x = tensor()
    for pattern in ("a b c -> a r b c", "a b c -> (a r) b c q"):
        sizes = {"r": 3, "q": 2} if "q" in pattern else {"r": 3}
        np.testing.assert_array_equal(einops.repeat(x, pattern, **sizes).detach().numpy(), einops.repeat(VALUES, pattern, **sizes))
    packed, shapes = einops.pack([x, x[0], x[0, 0]], "* c")
    assert packed.shape == (10, 4)
    whole, matrix, row = einops.unpack(packed, shapes, "* c")
    assert whole.shape == (2, 3, 4) and matrix.shape == (3, 4) and row.shape == (4,) and pf.equal(whole, x)
    got = einops.einsum(x, x, "a b c, d b c -> a d").detach().numpy()
    np.testing.assert_allclose(got, np.einsum("abc,dbc->ad", VALUES, VALUES))
    assert einops.parse_shape(x, "a _ c") == {"a": 2, "c": 4} and (einops.asnumpy(x) == VALUES).all()
    np.testing.assert_array_equal(einops.rearrange([x[0], x[1]], "a b c -> c a b").detach().numpy(), VALUES.transpose(2, 0, 1))


def test_average_of_integers_is_refused_as_by_einops():
    with pytest.raises(NotImplementedError, match="reduce_mean"):
        einops.reduce(pf.tensor([[1, 2]]), "a b -> a", "mean")


def test_layers():
    pf.manual_seed(0)
    model = pf.nn.Sequential(layers.Rearrange("a b c -> a (b c)"), layers.EinMix("a i -> a o", weight_shape="i o", bias_shape="o", i=12, o=6), layers.Reduce("a (o k) -> a o", "max", k=2))
    out = model(tensor())
    weight, bias = (p.detach().numpy() for p in model.parameters())
    np.testing.assert_allclose(out.detach().numpy(), (VALUES.reshape(2, 12) @ weight + bias).reshape(2, 3, 2).max(-1), rtol=1e-5)
    out.sum().backward()
    assert list(model.state_dict()) == ["1.weight", "1.bias"] and np.abs(model[1].weight.grad.numpy()).sum() > 0
    assert repr(model[0]) == "Rearrange('a b c -> a (b c)')"
    assert layers.EinMix("b (h c) -> b h", weight_shape="h c", h=2, c=3)(pf.ones(4, 6)).shape == (4, 2)
    with pytest.raises(einops.EinopsError):
        layers.Rearrange("a (b 2) -> a b")(pf.ones(2, 3))


def test_the_alias_makes_einops_work():
    program = """
import pyflame.torch as torch
import einops
assert einops.rearrange(torch.ones(2, 3), "a b -> b a").shape == (3, 2)
import pyflame.torch.as_torch
from einops.layers.torch import Rearrange
assert isinstance(Rearrange("a b -> b a"), torch.nn.Module) and Rearrange("a b -> b a")(torch.ones(2, 3)).shape == (3, 2)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
