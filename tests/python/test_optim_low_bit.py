"""Adam with moments of 8 bits: their codes, sizes and state dicts, the losses, and stochastic rounding."""
import io

import numpy as np
import pytest

import pyflame as pf
from pyflame import optim
from pyflame.optim import low_bit

CLASSES = [optim.Adam8bit, optim.AdamW8bit, optim.AdamWFp8]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)


def large(*shape, dtype=pf.float32):
    pf.manual_seed(0)
    return pf.randn(*shape).to(dtype).requires_grad_()


def step(optimizer, *grads):
    for p, g in zip(optimizer.param_groups[0]["params"], grads):
        p.grad = g
    optimizer.step()


def dynamic_levels(signed):
    """The numbers of dynamic quantization in their order, from their definition, and how far they are from what they stand for."""
    found = {0.0: 0.5 * (0.55e-6 if signed else 0.325e-6), 1.0: 0.0036}
    for i in range(7):
        count = 2**i if signed else 2 ** (i + 1)
        for k in range(count):
            x, half = 10.0 ** (i - 6) * (0.1 + 0.9 * (k + 0.5) / count), 10.0 ** (i - 6) * 0.45 / count
            found[x] = half
            if signed:
                found[-x] = half
    return np.array(sorted(found)), np.array([found[x] for x in sorted(found)])


@pytest.mark.parametrize("signed", [True, False])
def test_dynamic_codes_mean_the_levels(signed):
    levels, _ = dynamic_levels(signed)
    assert len(levels) == 256
    codes, c = pf.arange(256).to(pf.uint8).reshape(1, 256), low_bit._Dynamic(signed)
    decoded = c.decode(codes, pf.full((1, 1), 2.0))
    np.testing.assert_allclose(decoded.numpy()[0], 2 * levels, rtol=3e-6)
    again, scale = c.encode(decoded)
    assert scale.item() == 2 and again.tolist() == codes.tolist()


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("format", ["_Dynamic", "_Float8"])
def test_codes_are_near(signed, format):
    pf.manual_seed(1)
    c = getattr(low_bit, format)(signed)
    x = pf.randn(9, 256) * pf.tensor([1e-6, 1e-3, 1, 10, 1e4, 1, 0, 1e-30, 1e30]).reshape(9, 1)
    x[5] = 10.0 ** pf.linspace(-9, 0, 256) * pf.tensor([1.0, -1.0]).repeat(128)
    x = x if signed else x.abs()
    codes, scale = c.encode(x)
    assert codes.dtype == c.dtype and codes.shape == x.shape and scale.dtype == pf.float32 and scale.shape == (9, 1)
    y, x, most = c.decode(codes, scale).numpy(), x.numpy(), np.abs(x.numpy()).max(1, keepdims=True)
    assert (y[6] == 0).all()
    if format == "_Float8":
        bound = np.maximum(np.abs(x) / 16, most / 448 * 2.0 ** (-10 if signed else -9))
    else:
        levels, half = dynamic_levels(signed)
        with np.errstate(invalid="ignore"):
            stands = np.abs(np.nan_to_num(y / most)[..., None] - levels).argmin(-1)
        bound = np.where((stands == 0) & signed, 0.0071, half[stands]) * most  # -1 is no level
        bound = np.maximum(bound, 0.0 if signed else np.where((0 < x), 0.325e-6 * most, 0))  # what is not 0 becomes at least the least level
    assert (np.abs(y - x) <= bound * (1 + 1e-5)).all()
    assert signed or ((y > 0) == (x > 0)).all()


@pytest.mark.parametrize("format", ["_Dynamic", "_Float8"])
def test_numbers_that_are_not_finite_stay_visible(format):
    c = getattr(low_bit, format)(True)
    x = pf.zeros(2, 256)
    x[0, 3] = float("nan")
    x[1, 3] = float("inf")
    y = c.decode(*c.encode(x))
    assert y[0, 3].isnan().item() and not y[1, 3].isfinite().item()


@each_class
@pytest.mark.parametrize("shape, blocks", [((64, 64), 16), ((41, 101), 17)])
def test_sizes_of_states(cls, shape, blocks):
    p, small = large(*shape), large(4095)
    optimizer = cls([p, small])
    step(optimizer, pf.ones_like(p), pf.ones_like(small))
    state = optimizer.state[p]
    codes = pf.float8_e4m3fn if cls is optim.AdamWFp8 else pf.uint8
    for name in ("exp_avg", "exp_avg_sq"):
        assert state[name].dtype == codes and state[name].shape == shape
        assert state[name + "_scale"].dtype == pf.float32 and state[name + "_scale"].shape == (blocks,)
        assert optimizer.state[small][name].dtype == pf.float32
    assert set(optimizer.state[small]) == {"step", "exp_avg", "exp_avg_sq"}
    bytes_of_state = sum(t.numel() * t.element_size() for t in state.values() if isinstance(t, pf.Tensor))
    assert bytes_of_state == 2 * (p.numel() + 4 * blocks)


@pytest.mark.parametrize("cls, like, options", [
    (optim.Adam8bit, optim.Adam, dict(weight_decay=0.1)), (optim.AdamW8bit, optim.AdamW, {}), (optim.AdamW8bit, optim.AdamW, dict(amsgrad=True, maximize=True)), (optim.AdamWFp8, optim.AdamW, {})])
def test_small_parameters_are_updated_as_by_adam(cls, like, options):
    p, q = large(8, 9), large(8, 9)
    a, b = cls([p], lr=0.1, **options), like([q], lr=0.1, **options)
    for i in range(4):
        g = pf.randn(8, 9)
        step(a, g)
        step(b, g.clone())
    np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("cls, most", [(optim.Adam8bit, 0.01), (optim.AdamW8bit, 0.01), (optim.AdamWFp8, 0.05)])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_the_loss_follows_that_of_adamw(cls, most, amsgrad):
    def losses(make):
        pf.manual_seed(5)
        model = pf.nn.Sequential(pf.nn.Linear(64, 96), pf.nn.GELU(), pf.nn.Linear(96, 64))
        target = pf.nn.Sequential(pf.nn.Linear(64, 32), pf.nn.Tanh(), pf.nn.Linear(32, 64))
        optimizer, found = make(model.parameters()), []
        for _ in range(40):
            x = pf.randn(64, 64)
            loss = pf.nn.functional.mse_loss(model(x), target(x).detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return np.array(found)

    options = dict(lr=3e-3, amsgrad=amsgrad)
    got, want = losses(lambda p: cls(p, **options)), losses(lambda p: (optim.Adam if cls is optim.Adam8bit else optim.AdamW)(p, **options))
    assert want[-1] < 0.6 * want[0]
    np.testing.assert_allclose(got, want, rtol=most)


@each_class
def test_a_second_moment_does_not_become_zero_by_rounding(cls):
    """Elements with gradients far below the largest of their block must not move by lr m / eps."""
    p = pf.zeros(4096, requires_grad=True)
    g = pf.full((4096,), 1e-4)
    g[::256] = 1.0
    optimizer, q = cls([p], lr=1e-3, weight_decay=0), pf.zeros(4096, requires_grad=True)
    reference = optim.AdamW([q], lr=1e-3, weight_decay=0)
    for grad in (g, pf.zeros(4096), pf.zeros(4096)):
        step(optimizer, grad)
        step(reference, grad.clone())
    assert q.detach().abs().max() < 4e-3
    assert p.detach().abs().max() < 4e-3


@each_class
@pytest.mark.parametrize("shape", [(300, 77), (100, 256), (8192,)])
def test_large_parameters_are_updated_in_pieces(cls, shape, monkeypatch):
    def run():
        p = large(*shape)
        optimizer = cls([p], lr=0.01, amsgrad=True)
        for i in range(3):
            pf.manual_seed(i)
            step(optimizer, pf.randn(*shape))
        return p, optimizer.state[p]

    (p, one), _ = run(), monkeypatch.setattr(low_bit, "_PIECE", 5000)
    q, many = run()
    assert p.tolist() == q.tolist()
    for name in one:
        assert name == "step" or one[name].float().tolist() == many[name].float().tolist(), name


def test_a_step_in_pieces_takes_less_memory(monkeypatch):
    def peak(optimizer):
        return pf.memory.estimate(pf.nn.Linear(1024, 1024, bias=False), pf.zeros(4, 1024), optimizer=optimizer).peak

    whole, _ = peak("adamw8bit"), monkeypatch.setattr(low_bit, "_PIECE", 1 << 16)
    assert peak("adamw8bit") < 0.5 * whole
    assert peak("adamw8bit") < 0.95 * peak("adamw")


@each_class
def test_state_dicts_load_again(cls):
    def run(steps, optimizer, p):
        for i in range(*steps):
            pf.manual_seed(i)
            step(optimizer, pf.randn(*p.shape))

    p = large(70, 70)
    whole = cls([p], lr=0.01, amsgrad=True, block_size=128)
    run((0, 6), whole, p)
    q = large(70, 70)
    first = cls([q], lr=0.01, amsgrad=True, block_size=128)
    run((0, 3), first, q)
    file = io.BytesIO()
    pf.save(first.state_dict(), file)
    file.seek(0)
    second = cls([q])
    second.load_state_dict(pf.load(file))
    assert second.param_groups[0]["block_size"] == 128 and second.state[q]["exp_avg"].dtype == whole.state[p]["exp_avg"].dtype
    run((3, 6), second, q)
    assert p.tolist() == q.tolist()


@each_class
def test_a_state_of_adamw_is_encoded(cls):
    p = large(64, 64, dtype=pf.bfloat16)
    adam = optim.AdamW([p])
    step(adam, pf.ones_like(p))
    optimizer = cls([p])
    optimizer.load_state_dict(adam.state_dict())
    assert optimizer.state[p]["exp_avg"].dtype == cls._format.dtype and optimizer.param_groups[0]["decoupled_weight_decay"] == (cls is not optim.Adam8bit)
    np.testing.assert_allclose(optimizer._decoded("exp_avg", optimizer.state[p], optimizer.param_groups[0]).numpy(), 0.1, rtol=0.01)
    step(optimizer, pf.ones_like(p))
    assert optimizer.state[p]["step"] == 2


def test_stochastic_rounding_is_unbiased_and_repeatable():
    x = pf.tensor([1.0, 1.001, -1.001, 3e-5, -7.77, 1e-40, 0.0, float("inf"), float("-inf"), float("nan")])
    exact, count = x.numpy().astype(np.float64), 20000
    pf.manual_seed(3)
    draws = low_bit._rounded_stochastically(x.expand(count, 10).contiguous())
    assert draws.dtype == pf.bfloat16
    values = draws.float().numpy().astype(np.float64)
    np.testing.assert_array_equal(values[:, 6:], np.tile(exact[6:], (count, 1)))
    for i in range(6):
        found = np.unique(values[:, i])
        assert len(found) == (1 if i == 0 else 2) and found[0] <= exact[i] <= found[-1]
        gap = found[-1] - found[0]
        assert abs(values[:, i].mean() - exact[i]) <= 4 * 0.5 * gap / count**0.5, i
    pf.manual_seed(3)
    again = low_bit._rounded_stochastically(x.expand(count, 10).contiguous())
    assert again[:, :6].tolist() == draws[:, :6].tolist()


@each_class
def test_bf16_parameters_with_and_without_stochastic_rounding(cls):
    def mean_after(steps, rounding, seed=0):
        p = pf.ones(4096, dtype=pf.bfloat16, requires_grad=True)
        pf.manual_seed(seed)
        optimizer = cls([p], lr=1e-4, weight_decay=0, bf16_stochastic_round=rounding)
        for _ in range(steps):
            step(optimizer, pf.ones_like(p))
        return p.detach().float()

    assert (mean_after(10, False) == 1).all()  # each update is lost
    moved = mean_after(10, True)
    assert abs(moved.mean().item() - (1 - 10e-4)) < 1e-4
    assert moved.tolist() == mean_after(10, True).tolist() != mean_after(10, True, seed=1).tolist()


def test_errors():
    p = large(64, 64)
    with pytest.raises(ValueError, match="AdamW8bit: block_size is no number of elements; got 0; expected a positive int"):
        optim.AdamW8bit([p], block_size=0)
    with pytest.raises(TypeError, match="Adam8bit: a parameter has no floating dtype; got pyflame.complex64"):
        optim.Adam8bit([pf.zeros(2, dtype=pf.complex64, requires_grad=True)])
    with pytest.raises(ValueError, match="AdamWFp8: beta1 is out of range; got 1"):
        optim.AdamWFp8([p], betas=(1, 0.9))
    codes = optim.AdamW8bit([p])
    step(codes, pf.ones_like(p))
    other = optim.AdamWFp8([p])
    with pytest.raises(ValueError, match="load_state_dict: 'exp_avg' of parameter 0 has codes of another format; got pyflame.uint8; expected pyflame.float8_e4m3fn of AdamWFp8"):
        other.load_state_dict(codes.state_dict())
