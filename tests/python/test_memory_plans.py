"""pf.memory.estimate and find_batch_size: plans agree with what programs take, and leave nothing behind."""
import gc
import os

import pytest

import pyflame as pf
from pyflame import nn
from pyflame.models.gpt2 import GPT2Config, GPT2LMHeadModel

F = nn.functional
DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
MIB = 1 << 20


def cross_entropy(output, target):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def mlp():
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))


def encoder():
    return nn.Sequential(*[nn.TransformerEncoderLayer(64, 4, 256, batch_first=True) for _ in range(3)])


def images():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 256, 10))


CASES = {
    "mlp": (mlp, lambda: (pf.zeros(512, 256), pf.zeros(512, dtype=pf.int64)), F.cross_entropy),
    "encoder": (encoder, lambda: (pf.zeros(4, 32, 64), pf.zeros(4, 32, 64)), F.mse_loss),
    "images": (images, lambda: (pf.zeros(16, 3, 16, 16), pf.zeros(16, dtype=pf.int64)), F.cross_entropy),
}


@pytest.fixture(autouse=True)
def on_device():
    gc.collect()  # what other tests left in cycles would be freed between two figures of a test
    before = pf.get_device()
    pf.set_device(DEVICE)
    yield
    pf.set_device(before)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_what_a_step_takes(case):
    make, batch, loss = CASES[case]
    model, batch = make(), batch()
    plan = pf.memory.estimate(model, batch, loss=loss, optimizer="adamw")
    pf.memory.trim()
    own = sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers(), *batch])
    before = pf.memory.stats()["allocated"]
    adam = pf.optim.AdamW(model.parameters())
    for _ in range(2):
        pf.memory.trim()
        pf.memory.reset_peak()
        adam.zero_grad()
        loss(model(batch[0]), batch[1]).backward()
        adam.step()
        pf.synchronize()
    taken = pf.memory.stats()["peak_allocated"] - before + own
    # Workspaces of convolutions are not planned: the null device does not know which implementation will run.
    assert plan.peak == pytest.approx(taken, rel=0.35 if case == "images" else 0.15), case


def test_the_parts_of_a_training():
    n = 256 * 1024 + 1024 + 1024 * 10 + 10
    plan = pf.memory.estimate(mlp(), pf.zeros(512, 256))
    assert plan.parameters == n and plan.weights == plan.gradients == 4 * n
    assert 8 * n <= plan.optimizer <= 8.8 * n  # two moments in blocks of the allocator
    assert plan.inputs == 512 * 256 * 4
    assert plan.activations >= 512 * 1024 * 4
    assert plan.peak >= plan.weights + plan.gradients + plan.optimizer
    assert plan.reserved >= plan.peak
    assert f"{n:,} parameters" in str(plan) and "optimizer" in str(plan)
    sgd, none = (pf.memory.estimate(mlp(), pf.zeros(512, 256), optimizer=o) for o in ("SGD", None))
    assert sgd.optimizer == 0 and sgd.gradients == plan.gradients
    assert none.optimizer == none.gradients == 0 and none.peak < sgd.peak


def test_a_model_larger_than_the_machine():
    config = GPT2Config(vocab_size=50257, n_positions=2048, n_embd=8192, n_layer=80, n_head=64)
    ids = lambda: (pf.zeros(1, 2048, dtype=pf.int64),) * 2  # noqa: E731
    pf.memory.trim("cpu")
    before = pf.memory.stats("cpu")["allocated"]
    pf.memory.reset_peak("cpu")
    plan = pf.memory.estimate(lambda: GPT2LMHeadModel(config), ids, loss=cross_entropy)
    assert plan.parameters > 64e9
    assert plan.peak > 16 * plan.parameters  # Adam: weights, gradients and two moments of four bytes each
    assert pf.memory.stats("cpu")["peak_allocated"] <= before + MIB
    assert not plan.fits("MI300X") and plan.fits(2 << 40)


def test_planning_changes_nothing():
    model, state = mlp(), pf.get_rng_state()
    values = [p.tolist() for p in model.parameters()]
    null = pf.memory.stats("null")["allocated"]
    pf.memory.estimate(model, pf.zeros(4, 256))
    assert [p.tolist() for p in model.parameters()] == values
    assert all(p.grad is None for p in model.parameters())
    assert pf.get_rng_state() == state and str(pf.device(pf.get_device())) == str(pf.device(DEVICE))
    assert pf.memory.stats("null")["allocated"] == null
    with pytest.raises(ValueError):
        pf.memory.estimate(model, pf.zeros(4, 255))
    assert str(pf.device(pf.get_device())) == str(pf.device(DEVICE))
    assert pf.memory.stats("null")["allocated"] == null


def test_tied_weights_count_once_and_mixed_precision_counts():
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    apart = pf.memory.estimate(model, pf.zeros(2048, 256))
    with pf.autocast(DEVICE.split(":")[0], dtype=pf.bfloat16):
        mixed = pf.memory.estimate(model, pf.zeros(2048, 256))
    assert mixed.weights == apart.weights and mixed.activations < 0.8 * apart.activations
    model[4].weight = model[0].weight
    assert pf.memory.estimate(model, pf.zeros(8, 256)).weights == apart.weights - 256 * 256 * 4


@pytest.mark.parametrize("arguments, error, message", [
    ((3, 1), TypeError, "estimate: not a model; got int"),
    ((lambda: 3, 1), TypeError, "estimate: the function returned no Module; got int"),
    (({"optimizer": "adamm"}), ValueError, "estimate: no such optimizer; got 'adamm'; expected None, a function of the parameters, or one of adadelta"),
    (({"loss": F.cross_entropy, "batch": {"input": 1}}), ValueError, "estimate: a loss needs a target; got batch without one"),
])  # fmt: skip
def test_wrong_arguments_of_estimate(arguments, error, message):
    with pytest.raises(error, match="^" + message):
        if isinstance(arguments, dict):
            pf.memory.estimate(mlp(), **{"batch": pf.zeros(2, 256), **arguments})
        else:
            pf.memory.estimate(*arguments)


@pytest.mark.parametrize("where, fits", [("MI300X", True), ("NVIDIA H200", True), ("24GiB", True), (MIB, False), ("1.5 MB", False), ("cpu", True)])
def test_where_it_fits(where, fits):
    assert pf.memory.estimate(mlp(), pf.zeros(512, 256)).fits(where) == fits


def test_unknown_cards_and_sizes():
    plan = pf.memory.estimate(mlp(), pf.zeros(2, 256))
    with pytest.raises(ValueError, match="memory: no such GPU in the table; got 'MI9000'"):
        plan.fits("MI9000")
    with pytest.raises(ValueError, match="memory: not a size; got '24 gigs'"):
        plan.fits("24 gigs")


def step(model, samples):
    device = model[0].weight.device
    x, y = pf.randn(samples, 256, device=device), pf.zeros(samples, dtype=pf.int64, device=device)
    sgd = pf.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(x), y).backward()
    sgd.step()


def test_a_batch_size_is_planned_and_verified_and_leaves_nothing():
    model = mlp()
    values, state = [p.tolist() for p in model.parameters()], pf.get_rng_state()
    pf.memory.trim()
    before = pf.memory.stats()
    budget = before["allocated"] + 6 * MIB
    found = pf.memory.find_batch_size(step, model, memory=budget)
    after = pf.memory.stats()
    assert isinstance(found, int) and 100 < found < 2000
    assert found.trials[-1][0] == found and found.trials[-1][1] <= budget
    assert 4 * 1024 <= found.bytes_per_sample <= 6 * 4 * 1024
    assert len(found.planned) < 20
    assert [p.tolist() for p in model.parameters()] == values and all(p.grad is None for p in model.parameters())
    assert pf.get_rng_state() == state
    for name in ("allocated", "reserved", "limit", "fragmentation"):
        assert after[name] == before[name], name
    assert pf.memory.find_batch_size(step, model, memory=budget, maximum=7) == 7
    assert pf.memory.find_batch_size(step, model, memory=budget, verify=False).trials == []


def test_mixed_precision_inside_a_step_counts():
    def mixed(model, samples):
        with pf.autocast(DEVICE.split(":")[0], dtype=pf.bfloat16):
            x = pf.zeros(samples, 256, device=model[0].weight.device)
            y = model(x)
        y.float().sum().backward()

    wide = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(256, 256), nn.ReLU())])
    plain = lambda model, samples: model(pf.zeros(samples, 256, device=model[0].weight.device)).sum().backward()  # noqa: E731
    budget = pf.memory.stats()["allocated"] + 64 * MIB
    half, full = (pf.memory.find_batch_size(s, wide, memory=budget, verify=False).bytes_per_sample for s in (mixed, plain))
    assert half < 0.8 * full


def test_tensors_that_nobody_holds_take_no_room():
    """The failed attempt before, in a notebook, is in a cycle until Python looks for cycles."""
    pf.memory.trim()
    budget = pf.memory.stats()["allocated"] + 10 * MIB
    gc.disable()
    try:
        lost = [pf.ones(16 * MIB, dtype=pf.uint8)]
        pf.synchronize()
        lost.append(lost)
        del lost
        assert pf.memory.find_batch_size(step, mlp(), memory=budget) > 100
    finally:
        gc.enable()


def test_a_step_that_makes_its_own_model():
    pf.memory.trim()
    budget = pf.memory.stats()["allocated"] + 10 * MIB
    found = pf.memory.find_batch_size(lambda n: step(mlp(), n), memory=budget)
    assert 100 < found < 4000 and "a sample" in str(found)


@pytest.mark.parametrize("take", [lambda n, device: pf.empty(n, dtype=pf.uint8, device=device), lambda n, device: pf.arange(n // 8, device=device) * 3])
def test_what_the_plan_does_not_know_the_trial_finds(take):
    """A step that takes more on the device than on the null device, as the workspace of a library is."""

    def hungry(model, samples):
        on_null = model[0].weight.device.type == "null"
        workspace = None if on_null else take(samples * 4096, device=model[0].weight.device)
        step(model, samples)
        del workspace

    model = mlp()
    values = [p.tolist() for p in model.parameters()]
    pf.memory.trim()
    before = pf.memory.stats()
    found = pf.memory.find_batch_size(hungry, model, memory=before["allocated"] + 6 * MIB)
    assert found.trials[0][1] is None and found.trials[-1] == (found, found.trials[-1][1])
    assert found < found.trials[0][0]
    assert [p.tolist() for p in model.parameters()] == values
    pf.synchronize()
    assert pf.memory.stats()["reserved"] == before["reserved"]


def test_no_batch_fits():
    pf.memory.trim()
    with pytest.raises(pf.OutOfMemoryError, match="find_batch_size: the smallest batch does not fit; got 1.0 MiB for 1 samples, which need .* of it for tensors that are not the model's"):
        pf.memory.find_batch_size(step, mlp(), memory=MIB)


@pytest.mark.parametrize("arguments, error, message", [
    ({"step": 3}, TypeError, "find_batch_size: step is not a function; got int"),
    ({"model": 3}, TypeError, "find_batch_size: not a Module; got int"),
    ({"minimum": 0}, ValueError, "find_batch_size: minimum and maximum are not in order; got 0"),
    ({"fraction": 2}, ValueError, "find_batch_size: fraction is not a fraction; got 2"),
    ({"step": lambda n: None, "model": None}, ValueError, "find_batch_size: the step made nothing on the current device"),
])  # fmt: skip
def test_wrong_arguments_of_find_batch_size(arguments, error, message):
    with pytest.raises(error, match="^" + message):
        pf.memory.find_batch_size(**{"step": step, "model": mlp(), **arguments})


def test_an_error_of_the_step_is_raised_and_the_limit_is_as_before():
    def broken(model, samples):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pf.memory.find_batch_size(broken, mlp())
    assert pf.memory.stats()["limit"] == 0
