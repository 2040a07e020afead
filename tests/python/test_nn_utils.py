"""nn.utils: parametrizations, weight and spectral norm, pruning, fusion, clipping; and the initial values of nn.init."""
import copy
import math
import pickle

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn.utils import parametrizations, parametrize, prune


F64 = pf.float64


class Symmetric(nn.Module):
    def forward(self, x):
        return pf.triu(x) + pf.triu(x, 1).t()

    def right_inverse(self, x):
        return pf.triu(x)


class Doubled(nn.Module):
    calls = 0

    def forward(self, x):
        Doubled.calls += 1
        return 2 * x


def test_parametrize():
    layer = nn.Linear(3, 3)
    weight = layer.weight
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert layer.parametrizations.weight.original is weight and list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert pf.equal(layer.weight, layer.weight.t()) and isinstance(layer, nn.Linear) and parametrize.type_before_parametrizations(layer) is nn.Linear
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(layer, "bias")
    layer(pf.ones(1, 3)).sum().backward()
    assert weight.grad[0, 1].item() == 4 and weight.grad[1, 0].item() == 0
    Doubled.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight and Doubled.calls == 1
    assert layer.weight is not layer.weight
    twin = copy.deepcopy(layer)
    assert pf.equal(twin.weight, layer.weight) and twin.parametrizations.weight.original is not weight
    parametrize.remove_parametrizations(twin, "weight")
    assert type(twin) is nn.Linear and isinstance(twin.weight, nn.Parameter) and pf.equal(twin.weight, layer.weight)
    with pytest.raises(RuntimeError, match="Doubled: it has no right_inverse"):
        layer.weight = pf.zeros(3, 3)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is weight and not parametrize.is_parametrized(layer)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.weight = pf.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    assert layer.weight.tolist() == [[1, 2, 3], [2, 4, 5], [3, 5, 6]] and weight.tolist()[1] == [0, 4, 5]
    other = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(3, 3))
    assert pf.equal(other.weight, layer.weight)


class Shorter(nn.Module):
    def forward(self, x):
        return x[:1]


@pytest.mark.parametrize("wrong,error,text", [
    (lambda: parametrize.register_parametrization(nn.Linear(2, 2), "wait", Symmetric()), ValueError, "'wait' is neither a parameter nor a buffer"),
    (lambda: parametrize.register_parametrization(nn.Linear(2, 2), "weight", Shorter()), ValueError, r"it changes the tensor; got .* \(1, 2\); expected .* \(2, 2\)"),
    (lambda: parametrize.remove_parametrizations(nn.Linear(2, 2), "weight"), ValueError, "'weight' of Linear is not parametrized"),
    (lambda: parametrize.remove_parametrizations(parametrizations.weight_norm(nn.Linear(2, 2)), "weight", False), ValueError, "has 2 original tensors"),
    (lambda: pickle.dumps(parametrizations.weight_norm(nn.Linear(2, 2))), RuntimeError, "cannot be pickled; hint: its state_dict"),
    (lambda: parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError, "n_power_iterations must be positive; got 0"),
    (lambda: nn.utils.remove_weight_norm(nn.Linear(2, 2)), ValueError, "has no weight norm"),
    (lambda: nn.utils.remove_spectral_norm(nn.Linear(2, 2)), ValueError, "has no spectral norm"),
    (lambda: nn.utils.spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 2))), RuntimeError, "has spectral norm already"),
    (lambda: prune.remove(nn.Linear(2, 2), "weight"), ValueError, "'weight' of Linear is not pruned"),
    (lambda: prune.l1_unstructured(nn.Linear(2, 2), "weight", 1.5), ValueError, "the amount is out of range; got 1.5"),
    (lambda: prune.l1_unstructured(nn.Linear(2, 2), "weight", 5), ValueError, "got 5; expected at most 4"),
    (lambda: prune.l1_unstructured(nn.Linear(2, 2), "weight", "x"), TypeError, "the amount is not a number"),
    (lambda: prune.ln_structured(nn.Linear(2, 2), "bias", 1, 2, 0), ValueError, "slices need at least 2 dimensions"),
    (lambda: prune.global_unstructured([], prune.LnStructured), TypeError, "not an unstructured method"),
    (lambda: nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), AssertionError, "must be in evaluation mode"),
    (lambda: nn.utils.vector_to_parameters([1], []), TypeError, "not a tensor; got list"),
    (lambda: nn.utils.skip_init(nn.ReLU), RuntimeError, "ReLU takes no device"),
    (lambda: nn.utils.stateless.functional_call(nn.Linear(1, 1), {"x": pf.ones(1)}, pf.ones(1), strict=True), RuntimeError, r"unknown: \['x'\]; missing: \['weight', 'bias'\]"),
    (lambda: nn.init.orthogonal_(pf.ones(3)), ValueError, "orthogonal_: needs two dimensions"),
    (lambda: nn.init.sparse_(pf.ones(3), 0.5), ValueError, "sparse_: needs a matrix"),
    (lambda: nn.init.dirac_(pf.ones(3, 3)), ValueError, "dirac_: needs 3, 4 or 5 dimensions"),
    (lambda: nn.init.dirac_(pf.ones(3, 3, 3), 2), ValueError, "the groups do not divide"),
])
def test_errors(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    layer = nn.Linear(3, 4)
    w = layer.weight.detach().numpy().copy()
    parametrizations.weight_norm(layer, dim=dim)
    g, v = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    axes = {0: (1,), 1: (0,), None: (0, 1)}[dim]
    np.testing.assert_allclose(g.detach().numpy(), np.sqrt((w**2).sum(axes, keepdims=dim is not None)), rtol=1e-5)
    with pf.no_grad():
        g.mul_(2.0)
        v.mul_(3.0)
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * w, rtol=1e-5)
    with pytest.warns(FutureWarning, match="deprecated"):
        old = nn.utils.weight_norm(nn.Linear(3, 4), dim=dim)
    assert list(old.state_dict()) == ["bias", "weight_g", "weight_v"]
    layer.load_state_dict(old.state_dict())
    x = pf.randn(2, 3)
    np.testing.assert_allclose(layer(x).detach().numpy(), old(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    removed = nn.utils.remove_weight_norm(old)
    assert list(removed.state_dict()) == ["bias", "weight"] and not removed._forward_pre_hooks


@pytest.mark.parametrize("make", [parametrizations.spectral_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("layer,axis", [(lambda: nn.Linear(5, 4), 0), (lambda: nn.Conv2d(2, 3, 2), 0), (lambda: nn.ConvTranspose2d(2, 3, 2), 1)])
def test_spectral_norm(make, layer, axis):
    pf.manual_seed(0)  # the iterations converge slowly where the two largest singular values are close
    layer = layer()
    w = np.moveaxis(layer.weight.detach().numpy().copy(), axis, 0)
    make(layer, n_power_iterations=50)
    x = pf.ones(1, 5) if isinstance(layer, nn.Linear) else pf.ones(1, 2, 3, 3)
    layer(x)
    got = np.moveaxis(layer.weight.detach().numpy(), axis, 0)
    np.testing.assert_allclose(got * np.linalg.norm(w.reshape(len(w), -1), 2), w, rtol=1e-3, atol=1e-5)
    u = next(b for name, b in layer.named_buffers() if name.endswith("_u")).clone()
    layer.eval()(x)
    assert pf.equal(u, next(b for name, b in layer.named_buffers() if name.endswith("_u")))
    layer.train()(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_pruning():
    layer = nn.Linear(4, 2)
    with pf.no_grad():
        layer.weight.copy_(pf.tensor([[1.0, -5, 2, 3], [-7, 0.5, 6, -4]]))
    prune.l1_unstructured(layer, "weight", 0.25)
    assert layer.weight.tolist() == [[0, -5, 2, 3], [-7, 0, 6, -4]] and list(layer.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    prune.l1_unstructured(layer, "weight", 1)  # of what is left
    assert layer.weight.tolist() == [[0, -5, 0, 3], [-7, 0, 6, -4]]
    prune.ln_structured(layer, "weight", 1, 1, 1)
    assert layer.weight.tolist() == [[0, 0, 0, 3], [-7, 0, 6, -4]] and prune.is_pruned(nn.Sequential(layer))
    layer(pf.ones(1, 4)).sum().backward()
    assert layer.weight_orig.grad.tolist() == [[0, 0, 0, 1], [1, 0, 1, 1]]
    weight = layer.weight_orig
    prune.remove(layer, "weight")
    assert layer.weight is weight and weight.tolist() == [[0, 0, 0, 3], [-7, 0, 6, -4]] and not prune.is_pruned(layer)
    for name, args in (("random_unstructured", (3,)), ("random_structured", (0.5, 0)), ("identity", ())):
        pruned = getattr(prune, name)(nn.Linear(4, 2), "weight", *args)
        assert (pruned.weight_mask == 0).sum().item() == {"random_unstructured": 3, "random_structured": 4, "identity": 0}[name]
    net = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 2))
    with pf.no_grad():
        net[0].weight.copy_(pf.tensor([[1.0, 4.0]]))
        net[1].weight.copy_(pf.tensor([[2.0], [3.0]]))
    prune.global_unstructured([(net[0], "weight"), (net[1], "weight")], prune.L1Unstructured, amount=2)
    assert net[0].weight.tolist() == [[0, 4]] and net[1].weight.tolist() == [[0], [3]]


def test_fusion_with_batch_norm():
    for layer, norm, x in ((nn.Conv2d(3, 4, 2, bias=False), nn.BatchNorm2d(4), pf.randn(2, 3, 5, 5)), (nn.Linear(3, 4), nn.BatchNorm1d(4), pf.randn(2, 3)),
                           (nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d(4), pf.randn(2, 3, 5, 5))):
        norm(pf.randn(8, 4) if x.ndim == 2 else pf.randn(8, 4, 2, 2))
        nn.init.normal_(norm.weight)
        layer.eval(), norm.eval()
        args = (True,) if isinstance(layer, nn.ConvTranspose2d) else ()
        fused = nn.utils.fuse_linear_bn_eval(layer, norm) if x.ndim == 2 else nn.utils.fuse_conv_bn_eval(layer, norm, *args)
        np.testing.assert_allclose(fused(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [0, 1, 2, 3.5, math.inf, -math.inf])
def test_norms_of_gradients(p):
    grads = [np.random.default_rng(i).standard_normal(n).astype(np.float32) for i, n in enumerate((3, 4))]
    params = [nn.Parameter(pf.zeros(len(g))) for g in grads]
    for q, g in zip(params, grads):
        q.grad = pf.tensor(g)
    want = np.linalg.norm([np.linalg.norm(g, p) for g in grads], p) if p else np.count_nonzero(np.concatenate(grads))
    if p == 0:
        want = 2  # of the two norms, none is 0
    total = nn.utils.clip_grad_norm_(params, 0.5, p)
    np.testing.assert_allclose(total.item(), want, rtol=1e-5)
    factor = min(1.0, 0.5 / (want + 1e-6))
    for q, g in zip(params, grads):
        np.testing.assert_allclose(q.grad.numpy(), g * factor, rtol=1e-5)
    np.testing.assert_allclose(nn.utils.get_total_norm([q.grad for q in params], 2.0).item(), factor * np.linalg.norm(np.concatenate(grads)), rtol=1e-5)
    with pytest.raises(RuntimeError, match="expected a finite number"):
        nn.utils.get_total_norm([pf.tensor([np.inf])], p or 1, error_if_nonfinite=True)


def test_other_parameters():
    layer = nn.Linear(2, 2)
    assert nn.utils.stateless.functional_call(layer, {"weight": pf.zeros(2, 2)}, pf.ones(1, 2)).tolist() == [layer.bias.tolist()]
    tied = nn.Sequential(layer, layer)
    both = nn.utils.stateless.functional_call(tied, [{"0.weight": pf.eye(2)}, {"0.bias": pf.ones(2)}], (pf.zeros(1, 2),))
    assert both.tolist() == [[2.0, 2.0]] and (layer.weight != pf.eye(2)).any().item()
    assert nn.utils.skip_init(nn.Linear, 3, 4).weight.shape == (4, 3)
    assert nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(4, 2, 3), pf.channels_last).weight.is_contiguous(memory_format=pf.channels_last)


def test_initial_values():
    for shape in ((5, 3), (3, 5), (4, 3, 2)):
        w = nn.init.orthogonal_(pf.empty(*shape), 2.0).view(shape[0], -1).numpy()
        small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)
    w = nn.init.sparse_(pf.empty(10, 50), 0.35).numpy()
    assert ((w == 0).sum(0) == 4).all() and 0.005 < w[w != 0].std() < 0.015
    x = pf.randn(1, 4, 5, 5)
    assert pf.equal(pf.nn.functional.conv2d(x, nn.init.dirac_(pf.empty(4, 4, 3, 3)), padding=1), x)
    assert pf.equal(pf.nn.functional.conv2d(x, nn.init.dirac_(pf.empty(4, 2, 1, 1), 2), groups=2), x)
    with pytest.warns(FutureWarning, match="nn.init.uniform is deprecated"):
        assert nn.init.uniform(pf.empty(3)).shape == (3,)
    for name, args in (("uniform_", ()), ("normal_", ()), ("xavier_uniform_", ()), ("kaiming_normal_", ()), ("orthogonal_", ()), ("sparse_", (0.5,)), ("trunc_normal_", ())):
        first, second = (getattr(nn.init, name)(pf.empty(3, 4), *args, generator=pf.Generator().manual_seed(3)) for _ in range(2))
        assert pf.equal(first, second)
    assert nn.init.calculate_gain("conv_transpose2d") == 1


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder", None])
def test_orthogonal(shape, orthogonal_map):
    layer = nn.Linear(shape[1], shape[0], dtype=pf.float64)
    with pf.no_grad():
        start = nn.init.orthogonal_(layer.weight).clone()
    parametrizations.orthogonal(layer, orthogonal_map=orthogonal_map)
    np.testing.assert_allclose(np.abs(layer.weight.detach().numpy()), np.abs(start.numpy()), atol=1e-9)  # up to the signs that the factorization gives
    optimizer = pf.optim.SGD(layer.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (layer(pf.ones(1, shape[1], dtype=F64)) ** 2).sum().backward()
        optimizer.step()
    w = layer.weight.detach().numpy()
    assert np.abs(w - start.numpy()).max() > 1e-3
    small = w @ w.T if shape[0] <= shape[1] else w.T @ w
    np.testing.assert_allclose(small, np.eye(min(shape)), atol=1e-9)
    wanted = np.linalg.qr(np.random.default_rng(0).standard_normal((max(shape), min(shape))))[0]
    wanted = wanted if shape[0] >= shape[1] else wanted.T
    layer.weight = pf.tensor(np.ascontiguousarray(wanted))
    np.testing.assert_allclose(layer.weight.detach().numpy(), wanted, atol=1e-9)


def test_errors_of_orthogonal():
    for wrong, error, text in ((lambda: parametrizations.orthogonal(nn.Linear(2, 2), "bias"), ValueError, "needs a matrix"),
                               (lambda: parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr"), ValueError, "unknown orthogonal_map; got 'qr'")):
        with pytest.raises(error, match=text):
            wrong()


@pytest.mark.parametrize("norm_type", [2, 2.0, 1, float("inf")])
def test_the_norm_of_float64_gradients_is_float64(norm_type):
    grads = [np.array([1 / 3, 1e25]), np.array([[0.7, -1e24]])]
    params = [pf.zeros(*g.shape, dtype=pf.float64, requires_grad=True) for g in grads]
    for p, g in zip(params, grads):
        p.grad = pf.tensor(g)
    want = np.linalg.norm(np.concatenate([g.ravel() for g in grads]), norm_type)
    total = pf.nn.utils.clip_grad_norm_(params, 2.0, norm_type)
    assert total.dtype == pf.float64 and abs(total.item() / want - 1) < 1e-14
    for p, g in zip(params, grads):
        np.testing.assert_allclose(p.grad.numpy(), g * (2.0 / want), rtol=1e-14)


@pytest.mark.parametrize("dtype", [pf.complex64, pf.complex128])
@pytest.mark.parametrize("norm_type,norm", [(2.0, 10.0), (1.0, 14.0), (float("inf"), 8.0)])
def test_gradients_of_complex_parameters_are_clipped(dtype, norm_type, norm):
    p, real = nn.Parameter(pf.zeros(2, dtype=dtype)), nn.Parameter(pf.zeros(1))
    p.grad, real.grad = pf.tensor([3.6 + 4.8j, 0], dtype=dtype), pf.tensor([8.0])
    total = nn.utils.clip_grad_norm_([p, real], 1.0, norm_type)
    assert not total.is_complex() and abs(total.item() - norm) < 1e-5
    assert abs(p.grad[0].item() - (3.6 + 4.8j) / norm) < 1e-5 and abs(real.grad.item() - 8 / norm) < 1e-5
