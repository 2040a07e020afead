"""Every schedule against PyTorch where it is installed, and against recorded rates everywhere."""
import math

import numpy as np
import pytest

import pyflame as pf

# Each makes a schedule of an optimizer `o` from a library's lr_scheduler `s`.
CASES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda t: 0.9**t),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, [lambda t: 0.9 + 0.01 * t, lambda t: 0.5]),
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], 0.3),
    "constant": lambda s, o: s.ConstantLR(o, 0.4, 6),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.8, 7),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.8),
    "polynomial": lambda s, o: s.PolynomialLR(o, 8, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 6, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 1, 0.01),
    "longer restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 2),
    "cycle": lambda s, o: s.CyclicLR(o, 0.1, [1.0, 2.0], 3, 5),
    "smaller cycles": lambda s, o: s.CyclicLR(o, [0.1, 0.2], 1.0, 4, mode="triangular2", base_momentum=[0.5, 0.6]),
    "shrinking cycles": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, mode="exp_range", gamma=0.95, cycle_momentum=False),
    "own cycles": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, scale_fn=lambda t: 1 / (1 + t), scale_mode="iterations"),
    "one cycle": lambda s, o: s.OneCycleLR(o, [1.0, 2.0], 20),
    "three phases": lambda s, o: s.OneCycleLR(o, 1.0, 20, three_phase=True, anneal_strategy="linear"),
    "sequence": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.CosineAnnealingWarmRestarts(o, 3)], [4, 9]),
    "chain": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.MultiStepLR(o, [6])]),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1, factor=0.5, min_lr=[0.1, 0.0], cooldown=1),
    "plateau of numbers": lambda s, o: s.ReduceLROnPlateau(o, "max", patience=0, factor=0.5, threshold=0.5, threshold_mode="abs"),
}
METRICS = [3.0, 2.0, 2.5, 2.1, 2.0, 1.9999, 1.5, math.nan, 1.6, 1.7, 1.8, 1.9, 2.9, 2.8, 2.7, 2.6, 1.0, 1.0, 1.0]


def two_groups(lib, adam=False):
    a, b = (lib.zeros(1, requires_grad=True) for _ in range(2))
    groups = [{"params": [a]}, {"params": [b], "lr": 0.25}]
    return lib.optim.Adam(groups, lr=0.5) if adam else lib.optim.SGD(groups, lr=0.5, momentum=0.9)


def now(optimizer):
    return [float(v) for g in optimizer.param_groups for v in (g["lr"], g["betas"][0] if "betas" in g else g["momentum"])]


def run(lib, case, by_hand=False, adam=False):
    """Rates and momenta of both groups at each step."""
    optimizer = two_groups(lib, adam)
    schedule = CASES[case](lib.optim.lr_scheduler, optimizer)
    out = [now(optimizer)]
    for t, metric in enumerate(METRICS):
        optimizer.step()
        schedule.step(*[metric] * case.startswith("plateau"))
        if by_hand and t == 4:
            optimizer.param_groups[0]["lr"] *= 0.5
        out.append(now(optimizer))
        assert schedule.get_last_lr() == pytest.approx([r * (2 if by_hand and t == 4 and i == 0 else 1) for i, r in enumerate(out[-1][::2])])
    return np.array(out)


# The sums over all steps, of rates and momenta of both groups, computed with PyTorch 2.15.
RECORDED = {
    "lambda": [4.39211672705, 18, 2.19605836352, 18],
    "multiplicative": [7.4941802301, 18, 0.499999523163, 18],
    "step": [2.96875, 18, 1.484375, 18],
    "multistep": [1.54855, 18, 0.774275, 18],
    "constant": [8.2, 18, 4.1, 18],
    "linear": [6.8, 18, 3.4, 18],
    "exponential": [2.47117696238, 18, 1.23558848119, 18],
    "polynomial": [1.59375, 18, 0.796875, 18],
    "cosine": [4.88782377607, 18, 2.49607695155, 18],
    "restarts": [6.9375, 18, 3.5, 18],
    "longer restarts": [6.99970285986, 18, 3.49985142993, 18],
    "cycle": [11, 17, 21, 17],
    "smaller cycles": [7.7375, 15.45, 9.1, 16.0875],
    "shrinking cycles": [7.42111738029, 18, 7.42111738029, 18],
    "own cycles": [3.16726157067, 17.8703042699, 3.16726157067, 17.8703042699],
    "one cycle": [9.62003, 18.05, 19.24006, 18.05],
    "three phases": [5.40002, 18.5, 5.40002, 18.5],
    "sequence": [6.57255, 18, 3.286275, 18],
    "chain": [1.3282271727, 18, 0.664113586352, 18],
    "plateau": [4.425, 18, 1.9765625, 18],
    "plateau of numbers": [1.49999809265, 18, 0.749999046326, 18],
}


@pytest.mark.parametrize("case", CASES)
def test_recorded(case):
    np.testing.assert_allclose(run(pf, case).sum(0), RECORDED[case], rtol=1e-9)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")
def test_as_pytorch(case, by_hand, adam):
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    np.testing.assert_allclose(run(pf, case, by_hand, adam), run(torch, case, by_hand, adam), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_fractions_of_epochs_as_pytorch():
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    for case in ("restarts", "longer restarts"):
        rates = []
        for lib in (pf, torch):
            optimizer = two_groups(lib)
            schedule = CASES[case](lib.optim.lr_scheduler, optimizer)
            rates.append([])
            for at in (0.25, 0.5, 1.75, 2.0, 3.5, 9.25, None, None, 0.5, None):
                schedule.step(at)
                rates[-1].append([now(optimizer), schedule.last_epoch, schedule.T_cur, schedule.T_i])
        assert str(rates[0]) == str(rates[1])


@pytest.mark.parametrize("case", CASES)
def test_state_continues(case, tmp_path):
    optimizers = [two_groups(pf) for _ in range(2)]
    schedules = [CASES[case](pf.optim.lr_scheduler, o) for o in optimizers]
    for t, metric in enumerate(METRICS):
        if t == 7:
            state = [optimizers[0].state_dict(), schedules[0].state_dict()]
            pf.save(state, tmp_path / "state")
            state = pf.load(tmp_path / "state")
            optimizers[1] = two_groups(pf)
            schedules[1] = CASES[case](pf.optim.lr_scheduler, optimizers[1])
            optimizers[1].load_state_dict(state[0]), schedules[1].load_state_dict(state[1])
        for o, s in zip(optimizers, schedules):
            s.step(*[metric] * case.startswith("plateau"))
    assert now(optimizers[0]) == now(optimizers[1])


@pytest.mark.parametrize("make, message", [
    (lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="x"), "CyclicLR: unknown mode; got 'x'"),
    (lambda s, o: s.CyclicLR(o, 0.1, 1.0, scale_fn=abs, scale_mode="x"), "CyclicLR: unknown scale_mode; got 'x'; expected 'cycle' or 'iterations'"),
    (lambda s, o: s.CyclicLR(o, [0.1], 1.0), "CyclicLR: got 1 values of base_lr; expected 2, one for each group"),
    (lambda s, o: s.ConstantLR(o, 2.0), "ConstantLR: factor is out of range; got 2.0"),
    (lambda s, o: s.MultiplicativeLR(o, [abs]), "MultiplicativeLR: got 1 functions; expected 2"),
    (lambda s, o: s.CosineAnnealingWarmRestarts(o, 0), "CosineAnnealingWarmRestarts: T_0 must be a positive integer; got 0"),
    (lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1), "the epoch is negative; got -1"),
    (lambda s, o: s.ChainedScheduler([]), "ChainedScheduler: the list of schedulers is empty"),
    (lambda s, o: s.ChainedScheduler([s.StepLR(o, 1), s.StepLR(two_groups(pf), 1)]), "ChainedScheduler: a scheduler belongs to another optimizer"),
    (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)] * 3, [4, 1]), r"SequentialLR: the milestones fall; got \[4, 1\]"),
    (lambda s, o: s.ReduceLROnPlateau(o, factor=1.0), "ReduceLROnPlateau: factor is out of range; got 1.0"),
    (lambda s, o: s.ReduceLROnPlateau(o, "up"), "ReduceLROnPlateau: unknown mode; got 'up'"),
    (lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"), "ReduceLROnPlateau: unknown threshold_mode; got 'x'"),
    (lambda s, o: s.CyclicLR(pf.optim.Adagrad([pf.zeros(1, requires_grad=True)]), 0.1, 1.0), "CyclicLR: the optimizer has no momentum"),
])
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make(pf.optim.lr_scheduler, two_groups(pf))


class Falling:
    def __init__(self):
        self.by = 2

    def __call__(self, step):
        return self.by**-step


def test_a_state_leaves_the_rates_to_the_optimizer():
    schedulers = pf.optim.lr_scheduler
    for make in (lambda o: schedulers.StepLR(o, 1), lambda o: schedulers.ChainedScheduler([schedulers.StepLR(o, 1)]),
                 lambda o: schedulers.SequentialLR(o, [schedulers.StepLR(o, 1), schedulers.StepLR(o, 1)], [5])):
        (optimizer, schedule), (other_optimizer, other) = ((o, make(o)) for o in (two_groups(pf), two_groups(pf)))
        before = [g["lr"] for g in other_optimizer.param_groups]
        schedule.step()
        other.load_state_dict(schedule.state_dict())
        assert [g["lr"] for g in other_optimizer.param_groups] == before != [g["lr"] for g in optimizer.param_groups]
        assert other.get_last_lr() == schedule.get_last_lr()


def test_states_have_the_entries_of_pytorch():
    schedulers, optimizer = pf.optim.lr_scheduler, two_groups(pf)
    for kind in (schedulers.LambdaLR, schedulers.MultiplicativeLR):
        one, other = Falling(), Falling()
        one.by = 3
        state = kind(optimizer, [lambda step: 1.0, one]).state_dict()
        assert state["lr_lambdas"] == [None, {"by": 3}]
        kind(optimizer, [lambda step: 1.0, other]).load_state_dict(state)
        assert other.by == 3 and "lr_lambdas" in state
    for options, want in (({}, None), ({"scale_fn": lambda x: 1.0}, None), ({"scale_fn": one}, {"by": 3})):
        state = schedulers.CyclicLR(optimizer, 0.1, 1.0, cycle_momentum=False, **options).state_dict()
        assert state["_scale_fn_custom"] == want and state["scale_mode"] == "cycle"
    other = Falling()
    schedulers.CyclicLR(optimizer, 0.1, 1.0, cycle_momentum=False, scale_fn=other).load_state_dict(state)
    assert other.by == 3
    assert schedulers.MultiStepLR(optimizer, [3, 1, 3]).state_dict()["milestones"] == {1: 1, 3: 2}


def test_one_cycle_leaves_in_the_groups_what_pytorch_reads_there():
    optimizer = pf.optim.SGD([pf.ones(1, requires_grad=True)], lr=0.1, momentum=0.9)
    pf.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20)
    group = optimizer.state_dict()["param_groups"][0]
    assert [round(group[name], 8) for name in ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum")] == [0.02, 0.5, 2e-06, 0.95, 0.85]


@pytest.mark.parametrize("make, message", [
    (lambda s, o: s.MultiStepLR(o, ["3", "5"]), r"MultiStepLR: milestones are not numbers; got \['3', '5'\]"),
    (lambda s, o: s.MultiStepLR(o, "35"), "MultiStepLR: milestones are not numbers"),
    (lambda s, o: s.MultiStepLR(o, [None]), "MultiStepLR: milestones are not numbers"),
    (lambda s, o: s.MultiStepLR(o, None), "MultiStepLR: milestones are not a list; got None"),
    (lambda s, o: s.MultiStepLR(o, 5), "MultiStepLR: milestones are not a list; got 5"),
    (lambda s, o: s.LambdaLR(3, abs), "LambdaLR: not an optimizer; got int"),
    (lambda s, o: s.MultiplicativeLR(3, abs), "MultiplicativeLR: not an optimizer; got int"),
    (lambda s, o: s.LambdaLR(o, 3), "LambdaLR: lr_lambda is not a function; got 3"),
    (lambda s, o: s.SequentialLR(o, [3], []), "SequentialLR: not a scheduler; got int"),
    (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)] * 2, ["3"]), r"SequentialLR: milestones are not numbers; got \['3'\]"),
    (lambda s, o: s.ChainedScheduler([3]), "ChainedScheduler: not a scheduler; got int"),
    (lambda s, o: s.CyclicLR(o, 0.1, 1.0, scale_fn=3), "CyclicLR: scale_fn is not a function; got 3"),
    (lambda s, o: s.CyclicLR(o, 0.1, 1.0, "3"), "CyclicLR: step_size_up is not a number; got '3'"),
    (lambda s, o: s.CyclicLR(o, "0.1", 1.0), "CyclicLR: base_lr is not a number; got '0.1'"),
    (lambda s, o: s.CyclicLR(o, 0.1, [1.0, None]), "CyclicLR: max_lr is not a number; got None"),
    (lambda s, o: s.CyclicLR(o, 0.1, 1.0, gamma="x", cycle_momentum=False), "CyclicLR: gamma is not a number; got 'x'"),
    (lambda s, o: s.StepLR(o, 2, "0.1"), "StepLR: gamma is not a number; got '0.1'"),
    (lambda s, o: s.ConstantLR(o, total_iters="x"), "ConstantLR: total_iters is not a number; got 'x'"),
    (lambda s, o: s.ConstantLR(o, "x"), "ConstantLR: factor is not a number; got 'x'"),
    (lambda s, o: s.ConstantLR(o, last_epoch=None), "ConstantLR: last_epoch is not a number; got None"),
    (lambda s, o: s.LinearLR(o, "x"), "LinearLR: start_factor is not a number; got 'x'"),
    (lambda s, o: s.LinearLR(o, 0.5, None), "LinearLR: end_factor is not a number; got None"),
    (lambda s, o: s.ExponentialLR(o, None), "ExponentialLR: gamma is not a number; got None"),
    (lambda s, o: s.MultiStepLR(o, [2], "x"), "MultiStepLR: gamma is not a number; got 'x'"),
    (lambda s, o: s.PolynomialLR(o, "x"), "PolynomialLR: total_iters is not a number; got 'x'"),
    (lambda s, o: s.PolynomialLR(o, 3, "x"), "PolynomialLR: power is not a number; got 'x'"),
    (lambda s, o: s.CosineAnnealingLR(o, 3, "x"), "CosineAnnealingLR: eta_min is not a number; got 'x'"),
    (lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, eta_min="x"), "CosineAnnealingWarmRestarts: eta_min is not a number; got 'x'"),
    (lambda s, o: s.OneCycleLR(o, "x", 9, cycle_momentum=False), "OneCycleLR: max_lr is not a number; got 'x'"),
    (lambda s, o: s.OneCycleLR(o, 1.0, 9, div_factor="x"), "OneCycleLR: div_factor is not a number; got 'x'"),
    (lambda s, o: s.OneCycleLR(o, 1.0, 9, max_momentum="x"), "OneCycleLR: max_momentum is not a number; got 'x'"),
    (lambda s, o: s.ReduceLROnPlateau(o, patience="x"), "ReduceLROnPlateau: patience is not a number; got 'x'"),
    (lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0, "x"]), "ReduceLROnPlateau: min_lr is not a number; got 'x'"),
    (lambda s, o: s.SequentialLR(o, 3, []), "SequentialLR: schedulers are not a list; got int"),
    (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)] * 2, 3), "SequentialLR: milestones are not a list; got int"),
    (lambda s, o: s.ChainedScheduler(s.StepLR(o, 1)), "ChainedScheduler: schedulers are not a list; got StepLR"),
])
def test_wrong_types(make, message):
    with pytest.raises(TypeError, match=message):
        make(pf.optim.lr_scheduler, two_groups(pf))


@pytest.mark.parametrize("make", [lambda s, o: s.StepLR(o, 2), lambda s, o: s.LambdaLR(o, abs), lambda s, o: s.CyclicLR(o, 0.1, 1.0, cycle_momentum=False), lambda s, o: s.ReduceLROnPlateau(o),
                                  lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)] * 2, [3]), lambda s, o: s.ChainedScheduler([s.StepLR(o, 1)])])
def test_what_is_no_state_is_refused(make):
    optimizer = two_groups(pf)
    schedule = make(pf.optim.lr_scheduler, optimizer)
    before = str(schedule.state_dict())
    for state, got in (({}, "a dict with no entries"), (optimizer.state_dict(), "a dict with 'state', 'param_groups'"), (5, "int"), (None, "NoneType")):
        with pytest.raises(ValueError, match=f"{type(schedule).__name__}.load_state_dict: not a scheduler's state; got {got}; expected a dict with '"):
            schedule.load_state_dict(state)
    assert str(schedule.state_dict()) == before


def test_a_state_of_another_number_of_schedulers_is_refused():
    schedulers, optimizer = pf.optim.lr_scheduler, two_groups(pf)
    one, two = (schedulers.ChainedScheduler([schedulers.StepLR(optimizer, 1) for _ in range(n)]) for n in (1, 2))
    with pytest.raises(ValueError, match="ChainedScheduler.load_state_dict: got the states of 1 schedulers; expected 2"):
        two.load_state_dict(one.state_dict())


def test_cycles_without_momentum_do_not_read_momenta():
    schedule = pf.optim.lr_scheduler.CyclicLR(two_groups(pf), 0.1, 1.0, cycle_momentum=False, base_momentum=None, max_momentum=None)
    schedule.step()
    assert "base_momentums" not in schedule.state_dict()


@pytest.mark.parametrize("make", [lambda s, o: s.ExponentialLR(o, 0.5), lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, cycle_momentum=False), lambda s, o: s.OneCycleLR(o, 1.0, 9, cycle_momentum=False),
                                  lambda s, o: s.ReduceLROnPlateau(o, factor=0.5, patience=0), lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)], [4])])
def test_a_rate_that_is_a_tensor_stays_that_tensor(make):
    rates, numbers = [], []
    for lr in (pf.tensor(0.4), 0.4):
        optimizer = pf.optim.SGD([pf.ones(2, requires_grad=True)], lr=lr)
        schedule = make(pf.optim.lr_scheduler, optimizer)
        for _ in range(5):
            optimizer.step()
            schedule.step(*([1.0] if isinstance(schedule, pf.optim.lr_scheduler.ReduceLROnPlateau) else []))
            (rates if isinstance(lr, pf.Tensor) else numbers).append(float(schedule.get_last_lr()[0]))
        if isinstance(lr, pf.Tensor):
            assert optimizer.param_groups[0]["lr"] is lr and lr.item() == rates[-1]
            assert optimizer.param_groups[0].get("initial_lr") is not lr
    assert rates == pytest.approx(numbers) and len(set(rates)) > 1


def test_cycles_leave_their_momenta_in_the_groups():
    optimizer = pf.optim.SGD([pf.ones(2, requires_grad=True)], lr=0.1, momentum=0.3)
    pf.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, 4, base_momentum=0.5, max_momentum=0.7)
    group = optimizer.param_groups[0]
    assert (group["base_momentum"], group["max_momentum"], group["momentum"]) == (0.5, 0.7, 0.7)


def test_one_cycle_goes_on_with_the_rates_of_the_groups():
    optimizer = pf.optim.SGD([pf.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    optimizer.param_groups[0].update(initial_lr=0.2, max_lr=2.0, min_lr=0.01, base_momentum=0.4, max_momentum=0.6)
    schedule = pf.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 20, last_epoch=5 - 1)
    assert schedule.get_last_lr() == [pytest.approx(2.0)] and optimizer.param_groups[0]["momentum"] == pytest.approx(0.4)
