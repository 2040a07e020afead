"""What every optimizer has: groups, hooks, state dicts, arguments that PyTorch's have."""
import inspect

import pytest

import pyflame as pf
from pyflame import optim

NAMES = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Rprop", "Adafactor"]


def one(*shape):
    p = pf.ones(*(shape or (2,)), requires_grad=True)
    p.grad = pf.ones(p.shape)
    return p


def test_hooks_of_steps():
    p, calls = one(), []
    optimizer = optim.SGD([p], lr=0.1)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append(("pre", o is optimizer, args, kwargs)))
    after = optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append(("post", p.tolist()[0] < 1)))
    before_all = optim.optimizer.register_optimizer_step_pre_hook(lambda o, args, kwargs: calls.append("all"))
    optimizer.step()
    assert calls == ["all", ("pre", True, (), {}), ("post", True)]
    after.remove(), before_all.remove()
    optimizer.step()
    assert len(calls) == 4
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 7,), {}))
    assert optimizer.step() == 7
    with optimizer.register_step_pre_hook(lambda o, args, kwargs: 3), pytest.raises(RuntimeError, match="a pre-hook returned int"):
        optimizer.step()


def test_hooks_of_states():
    optimizer = optim.SGD([one()], lr=0.1)
    optimizer.register_state_dict_pre_hook(lambda o: o.param_groups[0].update(mark=1))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 2})
    state = optimizer.state_dict()
    assert state["extra"] == 2 and state["param_groups"][0]["mark"] == 1
    seen = []
    optimizer.register_load_state_dict_pre_hook(lambda o, state: {**state, "param_groups": [{**state["param_groups"][0], "lr": 5.0}]})
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    optimizer.load_state_dict(state)
    assert seen == [5.0]


def test_an_optimizer_written_as_for_pytorch():
    """It overrides step(), and finds an empty state for each parameter."""

    class Signs(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @pf.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if len(state) == 0:
                        state["steps"] = 0
                    state["steps"] += 1
                    p.add_(-group["lr"] * p.grad.sign())

    p, calls = one(), []
    optimizer = Signs([p], lr=0.25)
    optimizer.register_step_post_hook(lambda *a: calls.append(1))
    optimizer.step()
    optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5).step()
    optimizer.step()
    assert p.tolist() == [0.625, 0.625] and calls == [1, 1] and optimizer.state[p]["steps"] == 2


def test_names_of_parameters():
    layer = pf.nn.Linear(2, 2)
    optimizer = optim.SGD(layer.named_parameters(), lr=0.1)
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="some groups have names of parameters and others not"):
        optimizer.add_param_group({"params": [one()]})
    with pytest.raises(ValueError, match="some parameters have names and others not"):
        optim.SGD([("a", one()), one()])


def test_options_of_groups():
    a, b = one(), one()
    optimizer = optim.RMSprop([{"params": [a]}, {"params": b, "lr": 0.5, "momentum": 0.9}], lr=0.1)
    optimizer.step()
    assert a.tolist()[0] == pytest.approx(0.0, abs=1e-5) and b.tolist()[0] == pytest.approx(-4.0, abs=1e-4)
    assert "momentum_buffer" in optimizer.state[b] and "momentum_buffer" not in optimizer.state[a]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_that_choose_an_implementation(name):
    """They change nothing here. A step that autograd could follow is refused."""
    make = getattr(optim, name)
    known = {"foreach", "fused", "capturable"} & set(inspect.signature(make).parameters)
    assert "foreach" in known
    p, q = one(3), one(3)
    make([p], **{k: True for k in known}).step()
    make([q]).step()
    assert p.tolist() == q.tolist() != [1, 1, 1]
    if "differentiable" in inspect.signature(make).parameters:
        with pytest.raises(NotImplementedError, match="differentiable steps are not available"):
            make([p], differentiable=True)


def test_a_loaded_state_has_the_parameters_dtype():
    p, q = one(3), pf.ones(3, dtype=pf.float64, requires_grad=True)
    first = optim.Adam([p])
    first.step()
    second = optim.Adam([q])
    second.load_state_dict(first.state_dict())
    assert second.state[q]["exp_avg"].dtype == pf.float64 and second.state[q]["step"] == 1


def test_adamw_takes_a_state_of_adam():
    first, second = optim.Adam([one()], lr=0.5), optim.AdamW([one()])
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["decoupled_weight_decay"] and second.param_groups[0]["lr"] == 0.5
    with pytest.raises(NotImplementedError, match="SparseAdam: sparse gradients are not available"):
        optim.SparseAdam([one()])


def test_amsgrad_may_be_switched_on():
    p = one()
    optimizer = optim.Adam([p])
    optimizer.step()
    optimizer.param_groups[0]["amsgrad"] = True
    optimizer.step()
    assert optimizer.state[p]["step"] == 2 and "max_exp_avg_sq" in optimizer.state[p]


@pytest.mark.parametrize("make, message", [
    (lambda p: optim.Adam([p], betas=(1.0, 0.9)), "Adam: beta1 is out of range; got 1.0"),
    (lambda p: optim.Adadelta([p], rho=2), "Adadelta: rho is out of range 0 to 1; got 2"),
    (lambda p: optim.Adagrad([p], lr_decay=-1), "Adagrad: lr_decay must not be negative; got -1"),
    (lambda p: optim.RMSprop([p], alpha=-1), "RMSprop: alpha must not be negative; got -1"),
    (lambda p: optim.NAdam([p], momentum_decay=-1), "NAdam: momentum_decay must not be negative; got -1"),
    (lambda p: optim.Rprop([p], etas=(2, 3)), "Rprop: etas are out of range"),
    (lambda p: optim.Adafactor([p], d=0.5), "Adafactor: d must be at least 1; got 0.5"),
    (lambda p: optim.Adafactor([p], beta2_decay=1), "Adafactor: beta2_decay must not be positive; got 1"),
    (lambda p: optim.Adafactor([p], eps=(1, -1)), "Adafactor: eps must not be negative"),
    (lambda p: optim.Muon([p]), "Muon: a parameter is not a matrix; got shape"),
    (lambda p: optim.Muon([one(2, 2)], adjust_lr_fn="x"), "Muon: unknown adjust_lr_fn; got 'x'"),
    (lambda p: optim.Muon([one(2, 2)], ns_steps=100), "Muon: got ns_coefficients .* and ns_steps 100"),
    (lambda p: optim.LBFGS([{"params": [p]}, {"params": [one()]}]), "LBFGS: got a second group"),
    (lambda p: optim.LBFGS([p], line_search_fn="x"), "LBFGS: unknown line_search_fn; got 'x'"),
])
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make(one())


@pytest.mark.parametrize("make, message", [
    (lambda p: optim.Adam([p], betas=3), "Adam: betas are not two numbers; got 3"),
    (lambda p: optim.ASGD([p], lambd="x"), "ASGD: lambd is not a number; got 'x'"),
    (lambda p: optim.ASGD([p], alpha=None), "ASGD: alpha is not a number; got None"),
    (lambda p: optim.ASGD([p], t0="x"), "ASGD: t0 is not a number; got 'x'"),
    (lambda p: optim.Rprop([p], etas=(0.5,)), "Rprop: etas are not two numbers; got"),
    (lambda p: optim.Rprop([p], step_sizes=3), "Rprop: step_sizes are not two numbers; got 3"),
    (lambda p: optim.Adafactor([p], eps=1e-3), "Adafactor: eps is not a pair; got 0.001"),
    (lambda p: optim.Adafactor([p], beta2_decay="x"), "Adafactor: beta2_decay is not a number; got 'x'"),
    (lambda p: optim.Muon([one(2, 2)], ns_coefficients=3), "Muon: ns_coefficients are not numbers; got 3"),
    (lambda p: optim.Muon([one(2, 2)], ns_steps="x"), "Muon: ns_steps is not a number; got 'x'"),
    (lambda p: optim.LBFGS([p]).step(None), "LBFGS.step: closure is not a function; got NoneType"),
])
def test_what_is_no_number(make, message):
    with pytest.raises(TypeError, match=message):
        make(one())


def test_a_set_of_parameters():
    with pytest.raises(TypeError, match="params is a set"):
        optim.SGD([{"params": {one()}}])
    with pytest.raises(NotImplementedError, match="Optimizer: step is not implemented"):
        optim.Optimizer([one()], {}).step()
