"""autograd.graph: what a program does with the tensors that the tape keeps. autograd.forward_ad: tangents."""
import weakref

import numpy as np
import pyflame as pf
import pytest
from pyflame import nn
from pyflame.autograd import forward_ad as fwd
from pyflame.autograd import graph


def model_and_input():
    pf.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 5), nn.LogSoftmax(1)).double()
    return model, pf.randn(3, 2, 6, 6, dtype=pf.float64, requires_grad=True)


def gradients(model, x):
    found = pf.autograd.grad(nn.functional.nll_loss(model(x), pf.tensor([0, 1, 4])), [x, *model.parameters()])
    return [g.numpy() for g in found]


def test_what_is_saved_goes_through_the_hooks():
    model, x = model_and_input()
    want = gradients(model, x)
    kept, asked = {}, []

    def pack(t):
        assert not pf.is_grad_enabled() and not t.requires_grad
        kept[len(kept)] = t.numpy().copy()
        return len(kept) - 1

    def unpack(number):
        asked.append(number)
        return pf.tensor(kept.pop(number))  # a second call for the same gradient would find nothing

    with graph.saved_tensors_hooks(pack, unpack):
        got = gradients(model, x)
    assert len(asked) >= 8 and len(asked) == len(set(asked))
    for a, b in zip(want, got):
        np.testing.assert_array_equal(a, b)


def test_what_unpack_returns_is_what_the_gradient_sees():
    x = pf.tensor([2.0, 3.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t * 10):
        y = x * x
    z = x * x  # outside: the tensor itself
    y.sum().backward()
    assert x.grad.tolist() == [40.0, 60.0]
    x.grad = None
    z.sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_gradients_of_gradients_reach_inputs_and_leaves():
    x = pf.tensor([0.5, -1.5], dtype=pf.float64, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.numpy().copy(), pf.from_numpy):
        y = (x.exp() * x * x).sum()
        (first,) = pf.autograd.grad(y, x, create_graph=True)
    (second,) = pf.autograd.grad(first.sum(), x)
    v = x.detach().numpy()
    np.testing.assert_allclose(first.detach().numpy(), np.exp(v) * (v * v + 2 * v), rtol=1e-12)
    np.testing.assert_allclose(second.numpy(), np.exp(v) * (v * v + 4 * v + 2), rtol=1e-12)


def test_the_innermost_hooks_count():
    x, log = pf.ones(2, requires_grad=True), []
    with graph.saved_tensors_hooks(lambda t: log.append("outer") or t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: log.append("inner") or t, lambda t: t):
            x.exp()
        x.exp()
    x.exp()
    assert log == ["inner", "outer"]


class Square(pf.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


def test_functions_and_checkpoints_are_saved_through_hooks():
    x = pf.tensor([3.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t + 1, lambda t: t - 1):
        (Square.apply(x) + pf.utils.checkpoint.checkpoint(lambda t: t**3, x, use_reentrant=False)).backward()
    assert x.grad.tolist() == [6.0 + 27.0]


def test_save_on_cpu():
    model, x = model_and_input()
    want = gradients(model, x)
    with graph.save_on_cpu(pin_memory=True):
        got = gradients(model, x)
    assert all(np.array_equal(a, b) for a, b in zip(want, got))


def test_an_error_in_a_hook_leaves_everything_as_it_was():
    x = pf.tensor([3.0], requires_grad=True)

    def fails(_):
        raise KeyError("mine")

    with graph.saved_tensors_hooks(fails, lambda t: t):
        with pytest.raises(KeyError, match="mine"):
            x * x
    with graph.saved_tensors_hooks(lambda t: t, fails):
        y = x * x
    with pytest.raises(KeyError, match="mine"):
        y.backward()
    assert x.grad is None
    (x * x).backward()
    assert x.grad.tolist() == [6.0]


@pytest.mark.parametrize("pack, unpack, error, message", [
    (lambda t: t, lambda t: t.float(), RuntimeError, "saved_tensors_hooks: unpack_hook returned a tensor that is not like the saved one; got float32 .2.*expected float64 .2"),
    (lambda t: t, lambda t: t[:1], RuntimeError, "saved_tensors_hooks: unpack_hook returned a tensor that is not like the saved one; got float64 .1"),
    (lambda t: t, lambda t: None, TypeError, "saved_tensors_hooks: unpack_hook returned no tensor; got None"),
    (lambda t: t.add_(1), lambda t: t, RuntimeError, "saved_tensors_hooks: pack_hook modified its argument in place"),
])
def test_hooks_that_do_wrong(pack, unpack, error, message):
    x = pf.ones(2, dtype=pf.float64, requires_grad=True)
    with pytest.raises(error, match=message):
        with graph.saved_tensors_hooks(pack, unpack):
            (x * 2).exp().sum().backward()
    assert x.grad is None


def test_hooks_can_be_disabled():
    with graph.disable_saved_tensors_hooks("no hooks here"):
        with pytest.raises(RuntimeError, match="no hooks here"):
            with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


def test_dual_tensors():
    x, t = pf.tensor([0.3, -1.0], dtype=pf.float64), pf.tensor([2.0, 0.5], dtype=pf.float64)
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        assert fwd.unpack_dual(dual).tangent.tolist() == t.tolist() and fwd.unpack_dual(dual).primal.tolist() == x.tolist()
        dual.mul_(2)  # it may be written in place
        primal, tangent = fwd.unpack_dual(dual.sin() * dual)
        plain = fwd.unpack_dual(x * 2)
        own = pf.ones(1, requires_grad=True)
        assert plain.tangent is None and fwd.unpack_dual(own * 3).tangent is None
    v = 2 * x.numpy()
    np.testing.assert_allclose(primal.numpy(), np.sin(v) * v, rtol=1e-14)
    np.testing.assert_allclose(tangent.numpy(), (np.cos(v) * v + np.sin(v)) * 2 * t.numpy(), rtol=1e-14)
    assert not primal.requires_grad and not tangent.requires_grad


def test_duals_as_parameters_of_a_module():
    pf.manual_seed(0)
    model, x = nn.Linear(3, 2).double(), pf.randn(4, 3, dtype=pf.float64)
    tangents = {name: pf.randn(*p.shape, dtype=pf.float64) for name, p in model.named_parameters()}
    with fwd.dual_level():
        for name, p in list(model.named_parameters()):
            delattr(model, name)
            setattr(model, name, fwd.make_dual(p, tangents[name]))
        out = fwd.unpack_dual(model(x))
    np.testing.assert_allclose(out.tangent.detach().numpy(), x.numpy() @ tangents["weight"].numpy().T + tangents["bias"].numpy(), rtol=1e-12)


def test_a_tangent_has_a_gradient():
    x = pf.tensor([0.5, 2.0], dtype=pf.float64, requires_grad=True)
    with fwd.dual_level():
        tangent = fwd.unpack_dual(fwd.make_dual(x, pf.ones(2, dtype=pf.float64)) ** 3).tangent
    (found,) = pf.autograd.grad(tangent.sum(), x)
    np.testing.assert_allclose(found.numpy(), 6 * x.detach().numpy(), rtol=1e-14)


def test_wrong_uses_of_forward_mode():
    x = pf.ones(2)
    for wrong, error, message in [
        (lambda: fwd.make_dual(x, x), RuntimeError, "make_dual: no such level is open; got no open level"),
        (lambda: fwd.unpack_dual(x), RuntimeError, "unpack_dual: no such level is open"),
        (lambda: fwd.exit_dual_level(), RuntimeError, "exit_dual_level: no such level is open"),
    ]:
        with pytest.raises(error, match=message):
            wrong()
    with fwd.dual_level():
        for wrong, error, message in [
            (lambda: fwd.enter_dual_level(), RuntimeError, "enter_dual_level: a level is open already"),
            (lambda: fwd.make_dual(x, pf.ones(3)), RuntimeError, "make_dual: the tangent does not fit; got .*3.*; expected .*2"),
            (lambda: fwd.make_dual(pf.arange(2), x), ValueError, "make_dual: not two floating tensors; got .*int64"),
            (lambda: pf.no_grad()(fwd.make_dual)(x, x), RuntimeError, "make_dual: gradients are off"),
        ]:
            with pytest.raises(error, match=message):
                wrong()
    with fwd.dual_level():
        pass  # the level was ended


def test_a_function_does_not_keep_arguments_that_it_has_not_saved():
    class Doubled(pf.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    leaf = pf.ones(3, requires_grad=True)
    between = leaf + 1
    seen = weakref.ref(between)
    out = Doubled.apply(between)
    del between
    assert seen() is None
    out.sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0, 2.0]
