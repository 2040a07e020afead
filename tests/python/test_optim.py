"""Optimizers against their formulas in NumPy float64; schedules against theirs."""
import math
import re

import numpy as np
import pytest

import pyflame as pf
from pyflame.optim import SGD, Adam, AdamW
from pyflame.optim import lr_scheduler as ls


def run(make, steps=5, shapes=((3, 2), (4,)), dtype=pf.float32):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s) for s in shapes]
    params = [pf.tensor(v, dtype=dtype, requires_grad=True) for v in values]
    opt = make(params)
    grads = [[rng.standard_normal(s) for s in shapes] for _ in range(steps)]
    for gs in grads:
        for p, g in zip(params, gs):
            p.grad = pf.tensor(g, dtype=dtype)
        opt.step()
    return values, grads, [p.detach().double().numpy() for p in params], opt


@pytest.mark.parametrize("kw", [
    {}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.8, "dampening": 0.3}, {"weight_decay": 0.1}, {"momentum": 0.9, "maximize": True, "weight_decay": 0.01},
], ids=str)
def test_sgd(kw):
    values, grads, got, _ = run(lambda p: SGD(p, lr=0.1, **kw))
    m, damp, wd = kw.get("momentum", 0), kw.get("dampening", 0), kw.get("weight_decay", 0)
    for i, p in enumerate(values):
        buf = None
        for gs in grads:
            g = (-gs[i] if kw.get("maximize") else gs[i]) + wd * p
            if m:
                buf = g if buf is None else m * buf + (1 - damp) * g
                g = g + m * buf if kw.get("nesterov") else buf
            p = p - 0.1 * g
        np.testing.assert_allclose(got[i], p, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls, kw", [(Adam, {}), (Adam, {"weight_decay": 0.1}), (AdamW, {}), (AdamW, {"weight_decay": 0.3, "maximize": True}), (Adam, {"betas": (0.8, 0.9), "eps": 1e-4})], ids=str)
def test_adam(cls, kw):
    values, grads, got, _ = run(lambda p: cls(p, lr=0.01, **kw))
    b1, b2 = kw.get("betas", (0.9, 0.999))
    eps, wd = kw.get("eps", 1e-8), kw.get("weight_decay", 0.01 if cls is AdamW else 0)
    for i, p in enumerate(values):
        m = v = 0
        for t, gs in enumerate(grads, 1):
            g = -gs[i] if kw.get("maximize") else gs[i]
            if cls is AdamW:
                p = p * (1 - 0.01 * wd)
            else:
                g = g + wd * p
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            p = p - 0.01 * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        np.testing.assert_allclose(got[i], p, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64, pf.bfloat16], ids=str)
@pytest.mark.parametrize("make", [lambda p: Adam(p, lr=0.01), lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: SGD(p, lr=0.1)], ids=["adam", "momentum", "sgd"])
@pytest.mark.parametrize("layouts", [("last", "last"), ("last", "rows"), ("rows", "last"), ("turned", "turned"), ("turned", "rows")], ids=str)
def test_any_memory_order(layouts, make, dtype):
    """A parameter and its gradient have the same values wherever their elements lie."""
    lay = {"rows": lambda x: x, "last": lambda x: x.to(memory_format=pf.channels_last), "turned": lambda x: x.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0)}
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal((6, 5, 3, 4)), [rng.standard_normal((6, 5, 3, 4)) for _ in range(3)]

    def trained(of_p, of_g):
        p = lay[of_p](pf.tensor(start, dtype=dtype)).detach().requires_grad_()
        opt = make([p])
        for g in grads:
            p.grad = lay[of_g](pf.tensor(g, dtype=dtype))
            pf.nn.utils.clip_grad_norm_([p], 3.0)
            opt.step()
        assert p.stride() == lay[of_p](pf.tensor(start)).stride()
        steps = re.findall(r"^ *step \d+: .*", str(pf.explain(opt.step)), re.M)
        assert steps and not any("reference" in step for step in steps), steps
        return p.detach().double().numpy()

    np.testing.assert_array_equal(trained(*layouts), trained("rows", "rows"))


def test_groups_and_missing_gradients():
    a, b, c = (pf.ones(2, requires_grad=True) for _ in range(3))
    opt = SGD([{"params": [a]}, {"params": [b, c], "lr": 1.0}], lr=0.1)
    a.grad, b.grad = pf.ones(2), pf.ones(2)
    opt.step()
    assert c.tolist() == [1, 1] and b.tolist() == [0, 0]
    np.testing.assert_allclose(a.detach().numpy(), [0.9, 0.9], rtol=1e-6)
    opt.zero_grad()
    assert a.grad is None
    a.grad = pf.ones(2)
    opt.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0, 0]
    d = pf.zeros(1, requires_grad=True)
    opt.add_param_group({"params": d, "momentum": 0.5})
    assert opt.param_groups[2]["lr"] == 0.1 and "Parameter Group 2" in repr(opt)


def test_late_gradients_have_their_own_step():
    a, b = pf.ones(1, requires_grad=True), pf.ones(1, requires_grad=True)
    opt = Adam([a, b], lr=0.1)
    a.grad = pf.ones(1)
    opt.step()
    b.grad = pf.ones(1)
    opt.step()
    assert opt.state[a]["step"] == 2 and opt.state[b]["step"] == 1
    assert b.item() == pytest.approx(0.9, abs=1e-5)


def test_what_the_state_may_be():
    p, q = pf.nn.Parameter(pf.ones(2)), pf.nn.Parameter(pf.ones(2))
    p.grad, q.grad = pf.ones(2), pf.ones(2)
    a, b = pf.optim.Adam([p], lr=0.1), pf.optim.Adam([q], lr=0.1)
    a.state[p] = {}  # as good as none
    a.step(), b.step()
    assert list(a.state[p]) == ["step", "exp_avg", "exp_avg_sq"] and a.state[p]["step"] == 1
    a.state[p]["step"] = pf.tensor(1)  # as PyTorch's checkpoints have it
    a.step(), b.step()
    assert a.state[p]["step"] == 2 and p.tolist() == q.tolist()
    del a.state[p]["exp_avg"]
    with pytest.raises(KeyError, match="exp_avg"):
        a.step()
    a.state[p]["exp_avg"] = 3
    with pytest.raises(TypeError, match="a parameter's state is not a tensor; got int for 'exp_avg'"):
        a.step()
    s = pf.optim.SGD([p, q], lr=0.1, momentum=0.9)
    s.state[p] = {"momentum_buffer": None}  # PyTorch's, before the first step
    before = p.tolist()
    s.step()
    assert s.state[p]["momentum_buffer"].tolist() == [1, 1] and np.allclose(p.tolist(), np.array(before) - 0.1)


def test_steps_are_not_recorded_for_gradients():
    p = pf.nn.Parameter(pf.ones(2))
    (p * p).sum().backward(create_graph=True)
    assert p.grad.requires_grad
    for opt in (pf.optim.SGD([p], lr=0.1, momentum=0.9), pf.optim.Adam([p])):
        opt.step()
        assert p.is_leaf and p.requires_grad and not any(t.requires_grad for t in opt.state[p].values() if isinstance(t, pf.Tensor))
    opt.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0] and not p.grad.requires_grad


def test_closure_and_training():
    pf.manual_seed(0)
    x = pf.randn(64, 3)
    y = x @ pf.tensor([[1.0], [-2.0], [0.5]]) + 0.3
    model = pf.nn.Linear(3, 1)
    opt = Adam(model.parameters(), lr=0.1)

    def closure():
        opt.zero_grad()
        loss = pf.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    losses = [opt.step(closure).item() for _ in range(200)]
    assert losses[-1] < 1e-4 < losses[0]
    np.testing.assert_allclose(model.weight.detach().numpy(), [[1, -2, 0.5]], atol=0.02)


@pytest.mark.parametrize("make", [lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: AdamW(p, lr=0.01)])
def test_state_dict_continues_exactly(make):
    def train(p, opt, n, start=0):
        for i in range(start, start + n):
            opt.zero_grad()
            (p * p * (i + 1)).sum().backward()
            opt.step()

    p = pf.tensor([1.0, -2.0], requires_grad=True)
    opt = make([p])
    train(p, opt, 3)
    q = p.detach().clone().requires_grad_()
    other = make([q])
    other.load_state_dict(opt.state_dict())
    train(p, opt, 3, 3)
    train(q, other, 3, 3)
    assert p.tolist() == q.tolist()
    state = opt.state_dict()
    assert list(state["state"]) == [0] and state["param_groups"][0]["params"] == [0]


def test_model_cast_after_optimizer():
    lin = pf.nn.Linear(2, 2)
    opt = Adam(lin.parameters(), lr=0.1)
    lin.double()
    lin(pf.ones(1, 2, dtype=pf.float64)).sum().backward()
    before = lin.weight.tolist()
    opt.step()
    assert lin.weight.tolist() != before and lin.weight.dtype == pf.float64


# ---- schedules


def rates(make, n=12, lr=0.5, **kw):
    opt = SGD([pf.zeros(1, requires_grad=True)], lr=lr, **kw)
    s = make(opt)
    out = []
    for _ in range(n):
        out.append(opt.param_groups[0]["lr"])
        s.step()
    return out


def test_step_lr():
    np.testing.assert_allclose(rates(lambda o: ls.StepLR(o, 3, 0.1)), [0.5 * 0.1 ** (t // 3) for t in range(12)])


def test_cosine():
    want = [0.1 + 0.4 * (1 + math.cos(math.pi * t / 10)) / 2 for t in range(12)]
    np.testing.assert_allclose(rates(lambda o: ls.CosineAnnealingLR(o, 10, 0.1)), want)


def test_linear():
    want = [0.5 * (0.25 + 0.75 * min(t, 4) / 4) for t in range(12)]
    np.testing.assert_allclose(rates(lambda o: ls.LinearLR(o, 0.25, 1.0, 4)), want)


def test_lambda():
    np.testing.assert_allclose(rates(lambda o: ls.LambdaLR(o, lambda t: 0.9**t)), [0.5 * 0.9**t for t in range(12)])


def test_one_cycle():
    # max 1, 10 steps, 30 % up: the peak is at step 2, the end at step 9.
    got = rates(lambda o: ls.OneCycleLR(o, 1.0, total_steps=10, cycle_momentum=False), n=10)
    cos = lambda a, b, t: b + (a - b) / 2 * (1 + math.cos(math.pi * t))  # noqa: E731
    want = [cos(1 / 25, 1, t / 2) for t in range(3)] + [cos(1, 1 / 25e4, (t - 2) / 7) for t in range(3, 10)]
    np.testing.assert_allclose(got, want)
    opt = SGD([pf.zeros(1, requires_grad=True)], lr=1, momentum=0.9)
    s = ls.OneCycleLR(opt, 1.0, total_steps=10, anneal_strategy="linear")
    assert opt.param_groups[0]["momentum"] == pytest.approx(0.95)
    s.step()
    s.step()
    assert opt.param_groups[0]["momentum"] == pytest.approx(0.85)


def test_sequential():
    got = rates(lambda o: ls.SequentialLR(o, [ls.LinearLR(o, 0.5, 1.0, 4), ls.StepLR(o, 2, 0.1)], [4]), n=8)
    np.testing.assert_allclose(got, [0.25, 0.3125, 0.375, 0.4375, 0.5, 0.5, 0.05, 0.05])


def test_one_cycle_three_phases():
    got = rates(lambda o: ls.OneCycleLR(o, 1.0, total_steps=10, three_phase=True, anneal_strategy="linear", cycle_momentum=False), n=10)
    np.testing.assert_allclose(got, [0.04, 0.52, 1.0, 0.52, 0.04, 0.0320008, 0.0240016, 0.0160024, 0.0080032, 4e-06], rtol=1e-6)


def test_rate_set_by_hand_is_kept():
    """A schedule goes on from the rate that the group has, as PyTorch's do. The numbers are PyTorch's."""
    for make, want in [
        (lambda o: ls.StepLR(o, 2, 0.1), [0.5, 0.5, 0.05, 0.05, 0.2, 0.2, 0.02, 0.02]),
        (lambda o: ls.LinearLR(o, 0.5, 1.0, 6), [0.25, 0.25 * 7 / 6, 0.25 * 8 / 6, 0.375, 0.2, 0.22, 0.24, 0.24]),
        (lambda o: ls.LambdaLR(o, lambda t: 0.5**t), [0.5 * 0.5**t if t != 4 else 0.2 for t in range(8)]),
    ]:
        opt = SGD([pf.zeros(1, requires_grad=True)], lr=0.5)
        s, got = make(opt), []
        for t in range(8):
            if t == 4:
                opt.param_groups[0]["lr"] = 0.2
            got.append(opt.param_groups[0]["lr"])
            s.step()
        np.testing.assert_allclose(got, want)


def test_two_schedulers_multiply():
    opt = SGD([pf.zeros(1, requires_grad=True)], lr=0.5)
    both = [ls.LinearLR(opt, 0.5, 1.0, 4), ls.StepLR(opt, 3, 0.1)]
    for t in range(12):
        np.testing.assert_allclose(opt.param_groups[0]["lr"], 0.5 * (0.5 + 0.5 * min(t, 4) / 4) * 0.1 ** (t // 3))
        for s in both:
            s.step()


def test_scheduler_of_a_program():
    """A program's own schedule defines get_lr, as PyTorch's do."""

    class Halves(ls.LRScheduler):
        def get_lr(self):
            return [g["lr"] if self.last_epoch == 0 else g["lr"] / 2 for g in self.optimizer.param_groups]

    assert rates(Halves, n=4) == [0.5, 0.25, 0.125, 0.0625]


def test_scheduler_state():
    opt = SGD([pf.zeros(1, requires_grad=True)], lr=0.5)
    s = ls.CosineAnnealingLR(opt, 10)
    for _ in range(4):
        s.step()
    other_opt = SGD([pf.zeros(1, requires_grad=True)], lr=0.5)
    other = ls.CosineAnnealingLR(other_opt, 10)
    other.load_state_dict(s.state_dict())
    assert other_opt.param_groups[0]["lr"] == 0.5 and other.get_last_lr() == s.get_last_lr()  # the rate is in the optimizer's state
    other_opt.load_state_dict(opt.state_dict())
    assert other_opt.param_groups[0]["lr"] == opt.param_groups[0]["lr"]
    other.step()
    s.step()
    assert other.get_last_lr() == s.get_last_lr()
