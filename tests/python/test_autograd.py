"""Gradients from Python: modes, accumulation, hooks, Function, double backward, recomputation, gradcheck."""
import gc
import threading
import weakref

import numpy as np
import pytest

import pyflame as pf
from pyflame.autograd import Function, gradcheck


def leaf(*shape, seed=0, dtype=np.float64):
    return pf.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), requires_grad=True)


def test_backward_of_a_product():
    x, y = leaf(3), leaf(3, seed=1)
    (x * y + x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.detach().numpy() + 1)
    np.testing.assert_allclose(y.grad.numpy(), x.detach().numpy())
    assert x.is_leaf and not (x * y).is_leaf and (x * y).grad_fn.name == "mul" and x.grad_fn is None


def test_gradients_accumulate_and_clear():
    x = leaf(2)
    for k in range(1, 4):
        (3 * x).sum().backward()
        assert x.grad.tolist() == [3.0 * k] * 2
    x.grad.zero_()
    assert x.grad.tolist() == [0, 0]
    x.grad = None
    assert x.grad is None


def test_backward_with_a_gradient_and_broadcasting():
    x, b = leaf(2, 3), leaf(3, seed=1)
    g = np.arange(6.0).reshape(2, 3)
    (x + b).backward(pf.tensor(g))
    np.testing.assert_allclose(b.grad.numpy(), g.sum(0))
    np.testing.assert_allclose(x.grad.numpy(), g)


def test_modes():
    x = leaf(2)
    assert pf.is_grad_enabled()
    with pf.no_grad():
        assert not pf.is_grad_enabled() and not (x * 2).requires_grad
        with pf.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad

    @pf.no_grad()
    def f():
        return x * 2

    @pf.no_grad
    def g():
        return x * 2

    assert not f().requires_grad and not g().requires_grad and not f().requires_grad
    with pf.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    pf.set_grad_enabled(False)
    assert not pf.is_grad_enabled()
    pf.set_grad_enabled(True)
    with pf.inference_mode():
        assert pf.is_inference_mode_enabled() and not (x * 2).requires_grad
    with pytest.raises(ZeroDivisionError):
        with pf.no_grad():
            1 / 0
    assert pf.is_grad_enabled()


def test_modes_are_per_thread():
    seen = []
    with pf.no_grad():
        t = threading.Thread(target=lambda: seen.append(pf.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_detach_shares_without_history():
    x = leaf(2)
    d = (x * 2).detach()
    assert not d.requires_grad and d.is_leaf
    y = x.detach()
    with pf.no_grad():
        y += 1
    assert x.tolist() == y.tolist()


def test_grad_function():
    x, y = leaf(2), leaf(2, seed=1)
    gx, gy = pf.autograd.grad((x * y).sum(), [x, y])
    np.testing.assert_allclose(gx.numpy(), y.detach().numpy())
    np.testing.assert_allclose(gy.numpy(), x.detach().numpy())
    assert x.grad is None
    assert pf.autograd.grad(x.sum(), [x, y], allow_unused=True)[1] is None
    h = x * 2  # not a leaf
    assert pf.autograd.grad((h * h).sum(), h)[0].tolist() == (2 * h).tolist()


def test_double_backward():
    x = leaf(3)
    (g,) = pf.autograd.grad((x**3).sum(), x, create_graph=True)
    (gg,) = pf.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(gg.numpy(), 6 * x.detach().numpy())


def test_retain_graph():
    x = leaf(2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * x.detach().numpy())


def test_hooks():
    x = leaf(2)
    seen = []
    h = x.register_hook(lambda g: seen.append(g.tolist()))
    double = x.register_hook(lambda g: g * 2)
    (x * 3).sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [6, 6]
    h.remove()
    double.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert len(seen) == 1 and x.grad.tolist() == [3, 3]
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [20, 20] and y.grad.tolist() == [10, 10]


def test_exception_in_a_hook_arrives():
    x = leaf(2)
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        x.sum().backward()


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class ScaleAndShift(Function):
    """A function with two outputs, an argument that is not a tensor, and a saved output."""

    @staticmethod
    def forward(ctx, x, factor, y):
        out = x * factor
        ctx.factor = factor
        ctx.save_for_backward(out, None)
        ctx.needs = ctx.needs_input_grad
        where = out > 0
        ctx.mark_non_differentiable(where)
        return out, y + 1, where

    @staticmethod
    def backward(ctx, g_out, g_y, g_where):
        out, nothing = ctx.saved_tensors
        assert nothing is None and g_where.shape == out.shape
        return g_out * ctx.factor, None, g_y


def test_function():
    x = leaf(3)
    y = Cube.apply(x)
    assert y.requires_grad and y.grad_fn.name == "Cube"
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * x.detach().numpy() ** 2)
    assert gradcheck(Cube.apply, [leaf(2, 2)])
    assert not Cube.apply(x.detach()).requires_grad


def test_function_with_several_outputs():
    x, y = leaf(2), leaf(2, seed=1)
    a, b, where = ScaleAndShift.apply(x, 3.0, y)
    assert not where.requires_grad and where.dtype == pf.bool
    (a + 2 * b).sum().backward()
    assert x.grad.tolist() == [3, 3] and y.grad.tolist() == [2, 2]
    a, b, _ = ScaleAndShift.apply(x, 3.0, y.detach())
    x.grad = None
    a.sum().backward()  # b got no gradient
    assert x.grad.tolist() == [3, 3]


def test_function_that_returns_its_input():
    class Pass(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(2)
    Pass.apply(x).sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_function_double_backward():
    x = leaf(2)
    (g,) = pf.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    (gg,) = pf.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(gg.numpy(), 6 * x.detach().numpy())


def test_saved_tensor_overwritten():
    x = leaf(2)
    y = x * 2
    z = Cube.apply(y)
    with pf.no_grad():
        y += 1
    with pytest.raises(RuntimeError, match="Cube"):
        z.sum().backward()


def test_checkpoint_gives_the_same_gradients():
    x, w = leaf(4, 3), leaf(3, 3, seed=1)

    def f(a, factor):
        return (a @ w).tanh() * factor

    f(x, 2.0).sum().backward()
    gx, gw = x.grad.numpy().copy(), w.grad.numpy().copy()
    x.grad = w.grad = None
    pf.checkpoint(f, x, 2.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gx)
    np.testing.assert_allclose(w.grad.numpy(), gw)


def test_checkpoint_repeats_random_numbers():
    x = pf.ones(1000, requires_grad=True)
    pf.manual_seed(3)
    y = pf.checkpoint(lambda a: pf.dropout(a, 0.5), x)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


def test_gradcheck_finds_a_wrong_gradient():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    with pytest.raises(RuntimeError, match=r"gradcheck: a gradient is wrong; got d output 0\[0\] / d input 0\[0\] = 3; expected 2"):
        gradcheck(Wrong.apply, [leaf(2)])
    assert gradcheck(Wrong.apply, [leaf(2)], raise_exception=False) is False


@pytest.mark.parametrize("check", [gradcheck, pf.autograd.gradgradcheck])
def test_checks_that_cannot_be_made_are_errors(check):
    for name in ("check_forward_ad", "check_batched_grad", "check_batched_forward_grad"):
        with pytest.raises(NotImplementedError, match=f"{check.__name__}: there is nothing that {name} could check; got {name}=True; expected False"):
            check(lambda x: x * x, [leaf(2)], **{name: True})
    with pytest.raises(ValueError, match=f"{check.__name__}: nothing is left to check; got check_backward_ad=False"):
        check(lambda x: x * x, [leaf(2)], check_backward_ad=False)


@pytest.mark.parametrize("f", [
    lambda a, b: a @ b, lambda a, b: pf.softmax(a, -1) @ b, lambda a, b: (a.exp() * b.T).sum(0), lambda a, b: pf.cat([a, b.T], 0)[1:3], lambda a, b: a[:, 1] * b[1, :2].sum(),
])
def test_gradcheck_of_compositions(f):
    assert gradcheck(f, [leaf(3, 2), leaf(2, 3, seed=1)])


def complex_leaf(*shape, seed=0):
    return pf.complex(leaf(*shape, seed=seed).detach(), leaf(*shape, seed=seed + 7).detach()).requires_grad_()


@pytest.mark.parametrize("f", [
    lambda a, b: a @ b, lambda a, b: (a * b.T.conj()).exp(), lambda a, b: (a.abs() + b.T.real), lambda a, b: pf.fft.fft(a, dim=0) / (b.T + 3), lambda a, b: pf.view_as_real(a).sum(-1),
])
def test_gradcheck_of_complex_functions(f):
    assert gradcheck(f, [complex_leaf(3, 2), complex_leaf(2, 3, seed=1)]) and pf.autograd.gradgradcheck(f, [complex_leaf(3, 2), complex_leaf(2, 3, seed=1)])


def test_gradcheck_finds_a_wrong_complex_gradient():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2j

        @staticmethod
        def backward(ctx, g):
            return g * 2j  # not conjugate

    with pytest.raises(RuntimeError, match=r"gradcheck: a gradient is wrong; got d output 0\[0, [01]\] / d input 0\[0, [01]\] = -?2; expected -?2"):
        gradcheck(Wrong.apply, [complex_leaf(2)])
    with pytest.raises(RuntimeError, match="gradcheck: a gradient is wrong"):  # of real inputs, too
        gradcheck(lambda x: Wrong.apply(x.to(pf.complex128)), [leaf(2)])
    with pytest.raises(ValueError, match="input 0 is .*complex64; expected pyflame.float64 or complex128"):
        gradcheck(lambda x: x * 2, [complex_leaf(2).detach().to(pf.complex64).requires_grad_()])


def test_backward_from_a_thread():
    x = leaf(10)
    errors = []

    def work():
        try:
            (x * x).sum().backward()
        except Exception as e:  # noqa: BLE001
            errors.append(e)

    t = threading.Thread(target=work)
    t.start()
    t.join()
    assert not errors
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_in_place_ops_are_differentiated():
    x = leaf(3)
    y = x * 1
    y[1:] *= 3
    y.add_(x)
    y.sum().backward()
    assert x.grad.tolist() == [2, 4, 4]


@pytest.mark.parametrize("retained", [False, True])
def test_parts_whose_gradients_lie_together_are_not_copied(retained):
    """Queries, keys and values are parts of one product. Attention writes their gradients to the places that the product's gradient reads."""
    heads, width = 3, 8
    rows = heads * width
    grad = pf.randn(2, 5, rows)

    def gradients(x, apart):
        x = x.detach().requires_grad_()
        parts = [part.clone() if apart else part for part in x.split(rows, dim=2)]
        if retained:
            for part in parts:
                part.retain_grad()
        q, k, v = (part.view(2, 5, heads, width).transpose(1, 2) for part in parts)
        out = pf.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.transpose(1, 2).reshape(2, 5, rows).backward(grad)
        return [x.grad] + ([part.grad for part in parts] if retained else [])

    x = pf.randn(2, 5, 3 * rows)
    for got, want in zip(gradients(x, False), gradients(x, True), strict=True):
        assert got.tolist() == want.tolist()
    plan = pf.explain(lambda: gradients(x, False))
    # A leaf's gradient is its own: where others hold parts of it, it is a copy.
    assert "attention_grad" in plan and plan.count(" cast(") == retained, plan
    assert pf.explain(lambda: gradients(x, True)).count(" cast(") > 1


def test_gradients_to_the_values_of_a_dict():
    weights = {"a": pf.ones(2, requires_grad=True), "b": pf.ones(1, requires_grad=True)}
    loss = (weights["a"] * 3).sum() + weights["b"].sum()
    assert [g.tolist() for g in pf.autograd.grad(loss, weights.values(), retain_graph=True)] == [[3.0, 3.0], [1.0]]
    assert [g.tolist() for g in pf.autograd.grad(loss, (w for w in weights.values()))] == [[3.0, 3.0], [1.0]]
    with pytest.raises(TypeError, match="grad: not tensors; got dict"):
        pf.autograd.grad(loss, weights)


def test_retains_grad():
    x = pf.ones(2, requires_grad=True)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad(), x.retain_grad()
    assert y.retains_grad and not x.retains_grad and not y.detach().retains_grad and not pf.ones(1).retains_grad
    y.sum().backward()
    assert y.grad.tolist() == [1, 1]


def several():
    a, b = pf.tensor([2.0], requires_grad=True), pf.tensor([3.0], requires_grad=True)
    return a, b, a * b, a * b


def numbers(seen):
    return [[None if g is None else g.item() for g in grads] for grads in seen]


def test_a_hook_of_several_tensors():
    a, b, c, d = several()
    seen, last, first = [], [], []
    handle = pf.autograd.graph.register_multi_grad_hook((a, b, c, d), seen.append)
    early = pf.autograd.graph.register_multi_grad_hook((c, d), lambda grads: last.append(a.grad is None))
    some = pf.autograd.graph.register_multi_grad_hook((a, d, pf.ones(1)), lambda g: first.append(g.item()), mode="any")
    (c + 5 * d).sum().backward(retain_graph=True)
    assert numbers(seen) == [[18.0, 12.0, 1.0, 5.0]] and last == [True] and first == [5.0]
    c.sum().backward(retain_graph=True)
    assert numbers(seen[1:]) == [[3.0, 2.0, 1.0, None]] and first == [5.0, 3.0]
    c.sum().backward(inputs=(a,), retain_graph=True)
    pf.autograd.grad(2 * c, (b,), retain_graph=True)
    assert numbers(seen[2:]) == [[3.0, None, 1.0, None], [None, 4.0, 2.0, None]] and first == [5.0, 3.0, 3.0]
    for h in (handle, early, some):
        h.remove()
    c.sum().backward()
    assert len(seen) == 4 and len(first) == 3


def test_a_hook_of_several_tensors_after_a_pass_that_failed():
    a, b, c, _ = several()
    seen = []
    failing = a.register_hook(lambda g: 1 / 0)
    with pf.autograd.graph.register_multi_grad_hook((b, c), seen.append):
        with pytest.raises(ZeroDivisionError):
            c.sum().backward(retain_graph=True)
        with pytest.raises(ZeroDivisionError):
            pf.autograd.grad(c, (a, b), retain_graph=True)
        failing.remove()
        seen.clear()
        gc.collect()
        assert a.grad is None and b.grad is None
        (7 * b).sum().backward()
        assert numbers(seen) == [[7.0, None]]
    with pytest.raises(ValueError, match="register_multi_grad_hook: no such mode; got 'some'; expected 'all' or 'any'"):
        pf.autograd.graph.register_multi_grad_hook((a,), print, mode="some")
    with pytest.raises(RuntimeError, match="register_hook: the tensor does not require grad"):
        pf.autograd.graph.register_multi_grad_hook((pf.ones(1),), print)


def test_a_hook_of_several_tensors_that_fails_leaves_the_next_pass_alone():
    a, b, c, d = several()
    calls = []

    def fails_once(grads):
        calls.append(numbers([grads])[0])
        if len(calls) == 1:
            raise KeyError("first")

    with pf.autograd.graph.register_multi_grad_hook((c, d), fails_once):
        with pytest.raises(KeyError):
            pf.autograd.grad(c, (a,), retain_graph=True)
        pf.autograd.grad(4 * d, (a,), retain_graph=True)
        (c + d).sum().backward()
    assert calls == [[1.0, None], [None, 4.0], [1.0, 1.0]] and a.grad.item() == 6.0


def test_a_hook_of_several_tensors_in_passes_within_passes():
    a, b, c, d = several()
    seen = []
    inner = c.register_hook(lambda g: pf.autograd.grad(d, (b,), pf.tensor([9.0]), retain_graph=True) and None)
    with pf.autograd.graph.register_multi_grad_hook((c, d), seen.append):
        (3 * c).sum().backward(retain_graph=True)
    inner.remove()
    assert numbers(seen) == [[None, 9.0], [3.0, None]]
    with pytest.raises(RuntimeError, match="run_at_end: no backward pass runs on this thread"):
        pf._C._run_at_end_of_backward(print)


def test_a_hook_of_several_tensors_does_not_keep_them():
    _, _, c, d = several()
    handle = pf.autograd.graph.register_multi_grad_hook((c, d), print)
    kept = weakref.ref(c), weakref.ref(handle)
    fn = c.grad_fn
    del c, d, handle
    gc.collect()
    assert kept[0]() is None and kept[1]() is None and fn is not None


def test_callbacks_at_the_end_of_a_pass():
    a, b, c, _ = several()
    queue, calls = pf.autograd.graph.queue_callback, []
    handle = c.register_hook(lambda g: queue(lambda: calls.append((a.grad, b.grad))))
    c.sum().backward(retain_graph=True)
    assert [g.item() for g in calls.pop()] == [3.0, 2.0]
    pf.autograd.grad(c, (a,), retain_graph=True)
    c.sum().backward(inputs=(b,), retain_graph=True)
    assert len(calls) == 2
    failing = b.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        c.sum().backward(retain_graph=True)
    failing.remove()
    handle.remove()
    (2 * a).sum().backward()
    assert len(calls) == 2 and pf.autograd.Variable._execution_engine.queue_callback is queue
    with pytest.raises(RuntimeError, match="queue_callback: no backward pass runs on this thread"):
        queue(print)


def test_retain_grad_needs_a_gradient():
    with pytest.raises(RuntimeError, match="retain_grad: the tensor does not require grad"):
        pf.ones(2).retain_grad()


def test_a_variable_is_a_tensor():
    assert pf.autograd.Variable(pf.ones(1), requires_grad=True).requires_grad and pf.autograd.Variable().numel() == 0
    with pytest.raises(TypeError, match="Variable: data is not a tensor; got list"):
        pf.autograd.Variable([1.0])


def test_only_a_tensor_has_a_tangent():
    with pf.autograd.forward_ad.dual_level(), pytest.raises(ValueError, match="unpack_dual: not a tensor; got int"):
        pf.autograd.forward_ad.unpack_dual(3)


def test_the_names_of_pytorch_for_gradgradcheck():
    x = pf.rand(2, 3, dtype=pf.float64, requires_grad=True)
    assert pf.autograd.gradgradcheck(lambda x: x**3, x, gen_non_contig_grad_outputs=True, check_rev_over_rev=True)
    with pytest.raises(NotImplementedError):
        pf.autograd.gradgradcheck(lambda x: x**3, x, check_fwd_over_rev=True)
    with pytest.raises(ValueError):
        pf.autograd.gradgradcheck(lambda x: x**3, x, check_rev_over_rev=False)
