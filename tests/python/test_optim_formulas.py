"""Every optimizer against PyTorch: 50 steps where it is installed, and 6 recorded steps everywhere."""
import math
import os

import numpy as np
import pytest

import pyflame as pf

DECAY = dict(weight_decay=0.1, maximize=True)
CASES = {
    "SGD": [dict(lr=0.05, momentum=0.9, nesterov=True), dict(momentum=0.8, dampening=0.1, **DECAY)],
    "Adam": [dict(lr=0.02), dict(lr=0.02, amsgrad=True, weight_decay=0.01), dict(lr=0.02, decoupled_weight_decay=True, **DECAY)],
    "AdamW": [dict(lr=0.02, amsgrad=True), dict(lr=0.02, **DECAY)],
    "Adamax": [dict(lr=0.02), DECAY],
    "NAdam": [dict(lr=0.02), DECAY, dict(decoupled_weight_decay=True, **DECAY)],
    "RAdam": [dict(lr=0.02), DECAY, dict(decoupled_weight_decay=True, betas=(0.8, 0.9), **DECAY)],
    "Adagrad": [dict(lr=0.1), dict(lr_decay=0.1, initial_accumulator_value=0.5, **DECAY)],
    "Adadelta": [{}, dict(rho=0.8, **DECAY)],
    "RMSprop": [{}, dict(momentum=0.9, centered=True), dict(momentum=0.5, **DECAY)],
    "ASGD": [dict(lr=0.1), dict(lr=0.1, lambd=0.1, t0=3, **DECAY)],
    "Rprop": [{}, dict(etas=(0.4, 1.5), step_sizes=(1e-3, 0.02), maximize=True)],
    "Adafactor": [{}, dict(lr=0.1, d=1.5, eps=(1e-6, 1e-2), **DECAY)],
    "Muon": [{}, dict(nesterov=False, adjust_lr_fn="match_rms_adamw")],
}
EVERY = [(name, i) for name, all_kw in CASES.items() for i in range(len(all_kw))]


def wave(shape, at):
    return np.sin(np.arange(math.prod(shape)) ** 2 * 0.37 + at).reshape(shape)


def trained(lib, name, kw, steps, dtype="float64"):
    """The parameters after some steps with given gradients, and the optimizer."""
    dtype = getattr(lib, dtype)
    shapes = [(6, 4), (3, 5)] if name == "Muon" else [(6, 4), (4,), (2, 3, 5), ()]
    params = [lib.tensor(wave(s, 0.3).tolist(), dtype=dtype, requires_grad=True) for s in shapes]
    optimizer = getattr(lib.optim, name)(params, **kw)
    for t in range(steps):
        for p, s in zip(params, shapes):
            p.grad = lib.tensor((wave(s, t * t) * (0.1 if t > 40 else 1)).tolist(), dtype=dtype)
        optimizer.step()
    return np.concatenate([p.detach().numpy().ravel() for p in params]), optimizer


# A sum with different weights over all parameters after 6 steps, in float64, computed with PyTorch 2.15.
RECORDED = {
    "SGD": [3.956667373, 4.2829968219],
    "Adam": [4.0881358302, 4.0721731367, 4.4270766902],
    "AdamW": [4.0831973676, 4.4270766902],
    "Adamax": [4.1029940602, 4.297667996],
    "NAdam": [4.2116916108, 4.2864459634, 4.2862792225],
    "RAdam": [4.1392868253, 4.289266442, 4.2875401825],
    "Adagrad": [3.9365073491, 4.2951450455],
    "Adadelta": [4.2813882645, 4.2787271688],
    "RMSprop": [3.9388676979, 2.1184952431, 4.5829221607],
    "ASGD": [4.2707510848, 3.8025432875],
    "Rprop": [4.1957761091, 4.3784706345],
    "Adafactor": [4.2883735247, 3.927125165],
    "Muon": [1.399909881, 1.400058862],
}


def digest(values):
    return float((values * np.cos(np.arange(len(values)))).sum())


@pytest.mark.parametrize("name, i", EVERY)
def test_recorded(name, i):
    got = digest(trained(pf, name, CASES[name][i], 6)[0])
    assert got == pytest.approx(RECORDED[name][i], abs=1e-5 if name == "Muon" else 1e-7)  # PyTorch keeps some numbers in float32


@pytest.mark.parametrize("dtype, tolerance", [("float32", 4e-6), ("float64", 1e-7)])
@pytest.mark.parametrize("name, i", EVERY)
def test_fifty_steps_as_pytorch(name, i, dtype, tolerance):
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    kw = CASES[name][i]
    (got, mine), (want, theirs) = trained(pf, name, kw, 50, dtype), trained(torch, name, kw, 50, dtype)
    # Muon computes in bfloat16, where the order of a sum may change the last of 8 bits.
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-5 if name == "Muon" else tolerance)
    assert repr(mine) == repr(theirs)


# Rows of the orthogonal update of wave(shape, at) in bfloat16, computed with PyTorch 2.15.
ORTHOGONAL = [
    ((4, 4), 2, [[0.68359375, 0.314453125, -0.326171875, -0.5078125], [0.5859375, -0.357421875, -0.1728515625, 0.7109375],
                 [0.1533203125, 0.58984375, 0.76953125, 0.328125], [-0.39453125, 0.671875, -0.5390625, 0.2021484375]]),
    ((3, 5), 33, [[0.314453125, 0.474609375, 0.123046875, -0.4140625, 0.421875], [-0.5625, 0.7734375, 0.46875, 0.138671875, 0.0703125],
                  [0.302734375, 0.50390625, -0.46875, 0.5859375, -0.54296875]]),
    ((6, 4), 26, [[0.0166015625, 0.56640625, 0.408203125, -0.482421875], [0.1083984375, -0.333984375, 0.54296875, 0.1982421875],
                  [-0.376953125, -0.244140625, 0.359375, 0.54296875], [-0.14453125, 0.2890625, -0.408203125, 0.302734375],
                  [0.57421875, 0.43359375, 0.37890625, 0.60546875], [-0.478515625, 0.400390625, -0.1103515625, 0.4296875]]),
]


@pytest.mark.parametrize("shape, at, want", ORTHOGONAL)
def test_muon_rounds_once_for_each_operation(shape, at, want):
    """A second rounding in the norm changes these updates by 0.02 to 0.05."""
    p = pf.zeros(*shape, dtype=pf.float64, requires_grad=True)
    p.grad = pf.tensor(wave(shape, at))
    pf.optim.Muon([p], lr=1.0, momentum=0.0, nesterov=False, adjust_lr_fn="match_rms_adamw").step()
    np.testing.assert_allclose(p.detach().numpy() / (-0.2 * math.sqrt(max(shape))), want, atol=2e-3)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-13)])
def test_adafactor_with_gradients_of_its_own_results(dtype, tolerance):
    """A gradient that depends on the steps before multiplies their rounding errors, by about 10 here."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    results = []
    for lib in (pf, torch):
        a, b, x = (lib.tensor(wave(s, 0.5).tolist(), dtype=getattr(lib, dtype)) for s in ((8, 16), (16, 4), (32, 8)))
        a.requires_grad_(), b.requires_grad_()
        optimizer = lib.optim.Adafactor([a, b], lr=0.1)
        for _ in range(50):
            optimizer.zero_grad()
            ((lib.relu(x @ a) @ b - x[:, :4]) ** 2).mean().backward()
            optimizer.step()
        results.append(np.concatenate([p.detach().numpy().ravel() for p in (a, b)]))
    np.testing.assert_allclose(*results, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name, i", EVERY)
def test_state_continues(name, i, tmp_path):
    """A state that was saved and loaded in the middle changes nothing, and one without numbers that PyTorch keeps as tensors neither."""
    kw = CASES[name][i]
    ps = [pf.tensor(wave((4, 3), 0.0).tolist(), requires_grad=True) for _ in range(3)]
    make = getattr(pf.optim, name)
    opts = [make([p], **kw) for p in ps]
    for t in range(6):
        if t == 3:
            pf.save(opts[0].state_dict(), tmp_path / "state")
            opts[1] = make([ps[1]], **kw)
            opts[1].load_state_dict(pf.load(tmp_path / "state"))
            as_tensors = opts[0].state_dict()
            as_tensors["state"] = {0: {k: v if isinstance(v, pf.Tensor) else pf.tensor(float(v), dtype=pf.float64) for k, v in as_tensors["state"][0].items()}}
            opts[2] = make([ps[2]], **kw)
            opts[2].load_state_dict(as_tensors)
        for p, o in zip(ps, opts):
            p.grad = pf.tensor(wave((4, 3), t).tolist())
            o.step()
    assert ps[0].tolist() == ps[1].tolist() == ps[2].tolist()


@pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="windows of one op have one step for each op")
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("SGD", "Muon", "Adafactor")])
def test_one_loop_for_each_parameter(name):
    """All elementwise work of a parameter is one fused loop, and nothing is read back."""
    kw = next((kw for kw in CASES[name] if kw.get("amsgrad")), CASES[name][-1])
    params = [pf.ones(8, 3, requires_grad=True), pf.ones(5, requires_grad=True)]
    for p in params:
        p.grad = pf.ones(p.shape)
    optimizer = getattr(pf.optim, name)(params, **kw)
    optimizer.step()
    pf.synchronize()
    text = str(pf.explain(optimizer.step))
    one_update = name == "Adam" and not kw.get("amsgrad")
    assert text.count("\n  step ") == (1 if one_update else 2), text
    assert "sync point" not in text, text


@pytest.mark.parametrize("name, i", EVERY)
def test_no_gradients_are_recorded(name, i):
    p = pf.ones(2, 2, requires_grad=True)
    (p * p).sum().backward(create_graph=True)
    optimizer = getattr(pf.optim, name)([p], **CASES[name][i])
    optimizer.step()
    assert p.is_leaf and p.requires_grad and not any(v.requires_grad for v in optimizer.state[p].values() if isinstance(v, pf.Tensor))


# ---- LBFGS

LINE = dict(line_search_fn="strong_wolfe")
LBFGS_CASES = [dict(lr=1e-3), LINE, dict(lr=1e-3, history_size=5, max_iter=4), dict(lr=0.5, maximize=True, **LINE), dict(max_eval=3, **LINE), dict(lr=1e-3, max_eval=4, **LINE)]


def rosenbrock(lib, kw, steps=6):
    x = lib.tensor([-1.2, 1.0, 0.3, -0.5], dtype=lib.float64, requires_grad=True)
    w = lib.tensor([[1.0, 2.0], [3.0, 0.5]], dtype=lib.float64, requires_grad=True)
    optimizer = lib.optim.LBFGS([x, w], **kw)

    def closure():
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] * x[:-1]) ** 2 + (1 - x[:-1]) ** 2).sum() + ((w * w).sum() - x[0]) ** 2
        loss = -loss if kw.get("maximize") else loss
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, optimizer.state[x]


LBFGS_RECORDED = [
    ([347.2025, 337.8321017, 328.4107573, 319.257723, 310.3652754, 301.7259243], 120),
    ([347.2025, 2.448743343, 0.02302083343, 1.380725961e-10, 1.380725961e-10, 1.380725961e-10], 61),
    ([347.2025, 345.7824253, 343.6330571, 341.6441713, 339.5386443, 337.5022231], 24),
    ([-347.2025, -3.690077214, -0.6045458222, -2.314797168e-06, -1.330536027e-10, -1.330536027e-10], 73),
    ([347.2025, 98.10180019, 18.01755494, 5.279751436, 4.139004002, 3.758599615], 18),
    ([347.2025, 320.8754062, 273.7642589, 222.7265919, 177.5214603, 150.0216702], 29),
]


@pytest.mark.parametrize("i", range(len(LBFGS_CASES)))
def test_lbfgs_recorded(i):
    losses, state = rosenbrock(pf, LBFGS_CASES[i])
    want, calls = LBFGS_RECORDED[i]
    np.testing.assert_allclose(losses, want, rtol=1e-5, atol=1e-9)
    assert state["func_evals"] == calls


@pytest.mark.parametrize("i", range(len(LBFGS_CASES)))
def test_lbfgs_as_pytorch(i):
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    (losses, mine), (want, theirs) = rosenbrock(pf, LBFGS_CASES[i]), rosenbrock(torch, LBFGS_CASES[i])
    np.testing.assert_allclose(losses, want, rtol=1e-5, atol=1e-9)
    assert [mine[k] for k in ("func_evals", "n_iter")] == [theirs[k] for k in ("func_evals", "n_iter")]


def test_lbfgs_state_continues(tmp_path):
    results = []
    for again in (False, True):
        x = pf.tensor([3.0, -2.0], requires_grad=True)
        scale = pf.tensor([1.0, 10.0])

        def closure():
            optimizer.zero_grad()
            loss = (scale * x * x).sum() + (x**4).sum()
            loss.backward()
            return loss

        optimizer = pf.optim.LBFGS([x], max_iter=3)
        optimizer.step(closure)
        if again:
            pf.save(optimizer.state_dict(), tmp_path / "state")
            optimizer = pf.optim.LBFGS([x], max_iter=3)
            optimizer.load_state_dict(pf.load(tmp_path / "state"))
        optimizer.step(closure)
        results.append(x.tolist())
    assert results[0] == results[1]


def of_pairs(name, kw, dtype, steps, reloaded=None):
    """Pairs of numbers after some steps of an optimizer, as complex numbers or as real ones. `reloaded`: the step before which the state is saved and loaded."""
    start = pf.tensor(wave((5, 2), 0.3), dtype=pf.float64)
    p = pf.nn.Parameter(start if dtype == pf.float64 else pf.view_as_complex(start))
    other = pf.ones(2, dtype=pf.float64, requires_grad=True)  # of the same group
    make = lambda: getattr(pf.optim, name)([p, other], **kw)  # noqa: E731
    optimizer = make()
    for step in range(steps):
        if step == reloaded:
            state, optimizer = optimizer.state_dict(), make()
            optimizer.load_state_dict(state)

        def closure():
            optimizer.zero_grad()
            pairs = p if dtype == pf.float64 else pf.view_as_real(p)
            loss = (pairs**4).sum() + (pairs * pf.tensor(wave((5, 2), 1.0 if name == "LBFGS" else step))).sum() + (other**2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
    return np.concatenate([(p if dtype == pf.float64 else pf.view_as_real(p)).detach().numpy().ravel(), other.detach().numpy()]), optimizer, p


@pytest.mark.parametrize("name,kw", [(name, kw) for name, all_kw in CASES.items() if name not in ("Adafactor", "Muon") for kw in all_kw] + [("LBFGS", {}), ("LBFGS", {"line_search_fn": "strong_wolfe"})])
def test_a_complex_parameter_is_pairs_of_real_numbers(name, kw):
    want, _, _ = of_pairs(name, kw, pf.float64, 5)
    got, optimizer, p = of_pairs(name, kw, pf.complex128, 5, reloaded=3)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
    assert len(optimizer.state) <= 2 and all(v.dtype == pf.complex128 and v.shape == p.shape for v in optimizer.state[p].values() if isinstance(v, pf.Tensor) and v.ndim and name != "LBFGS")


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_optimizers_whose_updates_need_the_whole_refuse_complex_parameters(name):
    p = pf.nn.Parameter(pf.ones(3, 3, dtype=pf.complex64))
    p.grad = pf.ones(3, 3, dtype=pf.complex64)
    with pytest.raises(TypeError, match=rf"{name}.step: not available for complex parameters; got one of complex64; expected real ones"):
        getattr(pf.optim, name)([p]).step()
