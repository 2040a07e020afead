"""pf.func and autograd.functional against formulas."""
import numpy as np
import pyflame as pf
import pytest
from pyflame import func
from pyflame.autograd import functional


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a.detach().numpy() if isinstance(a, pf.Tensor) else a, b, rtol=tolerance, atol=tolerance)


X = pf.tensor([0.3, -1.2, 2.0], dtype=pf.float64)
A = pf.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]], dtype=pf.float64)


def cube(x):
    return (x**3).sum()


def test_grad_and_nested_grad():
    close(func.grad(cube)(X), 3 * X.numpy() ** 2)
    second = func.grad(lambda x: func.grad(cube)(x).sum())(X)
    close(second, 6 * X.numpy())
    assert not second.requires_grad
    gradient, value = func.grad_and_value(cube)(X)
    close(value, (X.numpy() ** 3).sum())
    close(gradient, 3 * X.numpy() ** 2)


def test_grad_of_several_arguments_and_dicts():
    first, second = func.grad(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(X, X)
    close(first, X.numpy() ** 2)
    close(second, 2 * X.numpy() ** 2)
    found = func.grad(lambda p: (p["w"] ** 2).sum() + p["b"].sum())({"w": X, "b": A})
    close(found["w"], 2 * X.numpy())
    close(found["b"], np.ones((2, 3)))
    gradient, aux = func.grad(lambda x: (cube(x), x * 2), has_aux=True)(X)
    close(aux, 2 * X.numpy())
    with pytest.raises(RuntimeError, match="the value is not a scalar"):
        func.grad(lambda x: x * 2)(X)
    with pytest.raises(RuntimeError, match="argnums is out of range"):
        func.grad(cube, argnums=1)(X)


def test_grad_closes_over_outer_variables():
    close(func.grad(lambda x: func.grad(lambda y: (x * y).sum())(X).sum())(X), np.ones(3))
    w = pf.tensor(2.0, dtype=pf.float64, requires_grad=True)
    func.grad(lambda x: w * cube(x))(X).sum().backward()
    close(w.grad, (3 * X.numpy() ** 2).sum())


def test_jacobians():
    f = lambda x: (A @ x).sin()  # noqa: E731
    want = np.cos(A.numpy() @ X.numpy())[:, None] * A.numpy()
    for jacobian in (func.jacrev(f)(X), func.jacfwd(f)(X), functional.jacobian(f, X), functional.jacobian(f, X, strategy="forward-mode")):
        close(jacobian, want)
    close(func.hessian(cube)(X), np.diag(6 * X.numpy()))
    close(functional.hessian(cube, X), np.diag(6 * X.numpy()))
    rows = functional.jacobian(lambda a, b: (a * b, a.sum()), (X, X))
    close(rows[0][1], np.diag(X.numpy()))
    close(rows[1][0], np.ones(3))
    close(rows[1][1], np.zeros(3))


def test_products():
    v, u = pf.tensor([1.0, 2.0], dtype=pf.float64), pf.tensor([1.0, 0.0, -1.0], dtype=pf.float64)
    f = lambda x: (A @ x).sin()  # noqa: E731
    j = np.cos(A.numpy() @ X.numpy())[:, None] * A.numpy()
    out, back = func.vjp(f, X)
    close(back(v)[0], v.numpy() @ j)
    close(out, np.sin(A.numpy() @ X.numpy()))
    out, moved = func.jvp(f, (X,), (u,))
    close(moved, j @ u.numpy())
    close(functional.vjp(f, X, v)[1], v.numpy() @ j)
    close(functional.jvp(f, X, u)[1], j @ u.numpy())
    for product in (functional.hvp, functional.vhp):
        value, found = product(cube, X, u)
        close(found, 6 * X.numpy() * u.numpy())
        close(value, (X.numpy() ** 3).sum())
    with pytest.raises(RuntimeError, match="vjp: v does not fit"):
        functional.vjp(f, X, u)
    with pytest.raises(RuntimeError, match="jvp: the tangents do not fit"):
        func.jvp(f, (X,), (v,))


def test_linearize_and_batch_norms():
    out, push = func.linearize(lambda x: x**2, X)
    close(out, X.numpy() ** 2)
    close(push(X), 2 * X.numpy() ** 2)
    net = func.replace_all_batch_norm_modules_(pf.nn.Sequential(pf.nn.BatchNorm1d(2)))
    assert net.eval()(pf.tensor([[0.0, 1.0], [2.0, 3.0]])).mean().item() == pytest.approx(0, abs=1e-6)


def test_functional_call_and_stacked_models():
    models = [pf.nn.Linear(3, 2) for _ in range(3)]
    parameters, buffers = func.stack_module_state(models)
    assert parameters["weight"].shape == (3, 2, 3) and parameters["weight"].requires_grad and buffers == {}
    x = pf.randn(4, 3)
    with pytest.warns(UserWarning, match="vmap: the batch is a loop"):
        pf._notes._said.discard("vmap")
        out = func.vmap(lambda p, x: func.functional_call(models[0], p, x), in_dims=(0, None))(parameters, x)
    for got, model in zip(out, models):
        close(got, model(x).detach().numpy(), 1e-6)
    before = models[0].weight
    func.functional_call(models[0], {"weight": pf.zeros(2, 3)}, (x,))
    assert models[0].weight is before
    with pytest.raises(KeyError, match="the module has no 'nosuch'"):
        func.functional_call(models[0], {"nosuch": x}, (x,))


def test_vmap():
    x, y = pf.randn(5, 3), pf.randn(3, 5)
    close(func.vmap(pf.dot, in_dims=(0, 1))(x, y), (x.numpy() * y.numpy().T).sum(1), 1e-6)
    both = func.vmap(lambda a: {"sum": a.sum(), "twice": a * 2}, out_dims=0)(x)
    assert both["sum"].shape == (5,) and both["twice"].shape == (5, 3)
    assert func.vmap(lambda a: a * 2, out_dims=1)(x).shape == (3, 5)
    close(func.vmap(func.grad(cube))(x), 3 * x.numpy() ** 2, 1e-5)
    with pytest.raises(RuntimeError, match="drew random numbers"):
        func.vmap(lambda a: a + pf.rand(3))(x)
    same = func.vmap(lambda a: pf.rand(3), randomness="same")(x)
    assert pf.equal(same[0], same[4])
    different = func.vmap(lambda a: pf.rand(3), randomness="different")(x)
    assert not pf.equal(different[0], different[4])
    with pytest.raises(ValueError, match="sizes along in_dims differ"):
        func.vmap(pf.dot)(x, y)


def test_function_in_full():
    class Scale(pf.autograd.Function):
        @staticmethod
        def forward(x, factor):
            return x * factor, (x > 0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]
            ctx.mark_non_differentiable(output[1])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, g, mask):
            assert mask is None
            return (None if g is None else g * ctx.factor), None

    x = pf.ones(3, requires_grad=True)
    y, mask = Scale.apply(x, 3.0)
    assert not mask.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [3.0] * 3

    class AddOne(pf.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx, g):
            return g * 5

    z = x * 1.0
    out = AddOne.apply(z)
    assert out is z
    (z * 2).sum().backward()
    assert x.grad.tolist() == [13.0] * 3
    with pytest.raises(RuntimeError, match="AddOne: a leaf that requires a gradient was written in place"):
        AddOne.apply(pf.ones(2, requires_grad=True))


def test_once_differentiable():
    class Square(pf.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @pf.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = pf.tensor(3.0, requires_grad=True)
    (g,) = pf.autograd.grad(Square.apply(x) * x, x, create_graph=True)
    assert g.item() == 27
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (g * 2).backward()


def test_backward_into_inputs_and_hooks_after_accumulation():
    a, b = pf.ones(2, requires_grad=True), pf.ones(2, requires_grad=True)
    (a * b).sum().backward(inputs=[a])
    assert a.grad.tolist() == [1, 1] and b.grad is None
    pf.autograd.backward((a * b).sum(), inputs=a)
    assert a.grad.tolist() == [2, 2]
    seen = []
    handle = b.register_post_accumulate_grad_hook(lambda t: seen.append((t is b, t.grad.tolist())))
    (b * 3).sum().backward()
    assert seen == [(True, [3.0, 3.0])]
    handle.remove()
    (b * 3).sum().backward()
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="not a leaf"):
        (b * 2).register_post_accumulate_grad_hook(print)


def test_anomaly_names_the_op():
    x = pf.zeros(2, requires_grad=True)
    with pf.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="sqrt.*gradient has NaN values; recorded at .*test_func.py"):
        (x.sqrt() * 0).sum().backward()
    assert not pf.is_anomaly_enabled()


def test_grad_of_batches_and_zeros():
    x = pf.tensor([1.0, 2.0], requires_grad=True)
    (rows,) = pf.autograd.grad(x * x, x, pf.eye(2), is_grads_batched=True)
    assert rows.tolist() == [[2, 0], [0, 4]]
    unused = pf.ones(3, requires_grad=True)
    assert pf.autograd.grad(x.sum(), [unused], materialize_grads=True)[0].tolist() == [0, 0, 0]


def test_gradgradcheck():
    x = pf.rand(3, dtype=pf.float64, requires_grad=True)
    assert pf.autograd.gradgradcheck(lambda x: (x**3).sin(), x)


def test_functionalize_gives_what_the_function_gives():
    def f(x, scale):
        """Doc."""
        y = x.clone()
        y[0].mul_(scale)
        return y.sum()

    same = pf.func.functionalize(f, remove="mutations_and_views")
    x = pf.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert same(x, scale=3.0).item() == 16 and same.__doc__ == "Doc." and pf.func.grad(same)(x, 3.0).tolist() == [[3, 3], [1, 1]]
    assert pf.func.vmap(pf.func.functionalize(lambda t: t.clone().add_(1)))(x).tolist() == [[2, 3], [4, 5]]
    with pytest.raises(ValueError, match="functionalize: remove is unknown; got 'views'"):
        pf.func.functionalize(f, remove="views")


def test_errors_name_what_does_not_fit():
    f, x = pf.func, pf.ones(2)
    for wrong, error, text in [
        (lambda: f.grad(lambda y: y.sum(), "a")(x), TypeError, "grad: argnums are no places; got 'a'"),
        (lambda: f.grad(lambda y: y.sum(), has_aux=True)(x), RuntimeError, "grad: has_aux needs two results; got Tensor"),
        (lambda: f.vjp(lambda y: y, x, has_aux=True), RuntimeError, "vjp: has_aux needs two results; got Tensor"),  # not the two elements of the tensor
        (lambda: f.vjp(lambda y: 3, x), RuntimeError, "vjp: the function returned what is no tensor; got int"),
        (lambda: f.vjp(lambda y: (y, y), x)[1](x), RuntimeError, "vjp: the cotangents do not fit; got .'Tensor'.; expected a tensor for each of the 2 results"),
        (lambda: f.vjp(lambda y: y, x)[1](3), RuntimeError, "vjp: the cotangents do not fit"),
        (lambda: f.jvp(lambda y: y, x, x), RuntimeError, "jvp: primals are no tuple; got Tensor"),
        (lambda: f.jvp(lambda y: y, (x,), (3,)), RuntimeError, "jvp: a tangent is no tensor"),
        (lambda: f.hessian(lambda y: 3)(x), RuntimeError, "jacrev: the function returned what is no tensor; got int"),
        (lambda: f.linearize(lambda y: y, pf.arange(2)), RuntimeError, "linearize: not a floating tensor"),
        (lambda: f.replace_all_batch_norm_modules_(3), TypeError, "replace_all_batch_norm_modules_: not a module"),
        (lambda: f.stack_module_state([3]), TypeError, "stack_module_state: not a list of modules"),
        (lambda: f.stack_module_state([pf.nn.Linear(2, 3, bias=False), pf.nn.Linear(2, 3)]), RuntimeError, "stack_module_state: the models have different parameters"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            wrong()


def test_vmap_of_no_entries():
    none = pf.zeros(0, 3, dtype=pf.float64)
    assert func.vmap(lambda a: a.sum())(none).shape == (0,) and func.vmap(lambda a: a.argmax())(none).dtype == pf.int64
    twice = func.vmap(lambda a: (a, {"b": a.outer(a)}), out_dims=(1, {"b": -1}))(none)
    assert twice[0].shape == (3, 0) and twice[1]["b"].shape == (3, 3, 0) and twice[0].dtype == pf.float64
    assert func.vmap(lambda a, b: a @ b, in_dims=(-1, None))(pf.zeros(3, 0), pf.ones(3)).shape == (0,)


def test_strict_jacobian_of_an_unused_input():
    assert len(functional.jacobian(lambda a, b: a * 2, (X, X))) == 2
    for create_graph in (False, True):
        with pytest.raises(RuntimeError, match="output 0 does not depend on input 1"):
            functional.jacobian(lambda a, b: a.sin(), (X, X), create_graph=create_graph, strict=True)
    functional.jacobian(lambda a: a * 2, X, strict=True)
    with pytest.raises(RuntimeError, match="the Jacobian does not depend"):
        functional.jacobian(lambda a: a * 2, X, create_graph=True, strict=True)
    with pytest.raises(RuntimeError, match="does not depend on input 0"):
        functional.hessian(lambda a, b: (a * b).sum(), (X, X), strict=True)
