"""Mixed precision: which op runs in which dtype, and the scaler's arithmetic, against the same work in float32."""
import concurrent.futures
import warnings

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn


@pytest.mark.parametrize("dtype", [pf.bfloat16, pf.float16])
def test_products_take_the_half_type_and_sums_float32(dtype):
    x, w = pf.randn(4, 8), pf.randn(16, 8)
    with pf.autocast("cpu", dtype=dtype):
        y = nn.functional.linear(x, w)
        assert y.dtype == dtype
        assert pf.matmul(x, w.t()).dtype == dtype
        assert pf.bmm(x[None], w.t()[None]).dtype == dtype
        assert nn.functional.conv2d(pf.randn(1, 2, 5, 5), pf.randn(3, 2, 3, 3)).dtype == dtype
        q = pf.randn(1, 2, 4, 8)
        assert nn.functional.scaled_dot_product_attention(q, q, q).dtype == dtype
        for f in (lambda t: pf.softmax(t, -1), lambda t: pf.log_softmax(t, -1), pf.exp, pf.log1p, pf.rsqrt, lambda t: t**1.5, lambda t: t.sum(),
                  lambda t: nn.functional.layer_norm(t, (16,)), lambda t: nn.functional.mse_loss(t, t)):
            assert f(y).dtype == pf.float32
        assert nn.functional.relu(y).dtype == dtype
        assert (y + x[:, :1]).dtype == pf.float32
    assert nn.functional.linear(x, w).dtype == pf.float32


def test_results_are_those_of_the_cast_inputs():
    x, w = pf.randn(4, 8), pf.randn(16, 8)
    with pf.autocast("cpu", dtype=pf.bfloat16):
        y = nn.functional.linear(x, w)
    np.testing.assert_array_equal(y.float().numpy(), nn.functional.linear(x.bfloat16(), w.bfloat16()).float().numpy())


def test_nesting_other_devices_and_the_decorator():
    x = pf.randn(4, 4)
    with pf.autocast("cpu"):
        assert pf.is_autocast_enabled("cpu")
        with pf.autocast("cpu", enabled=False):
            assert pf.matmul(x, x).dtype == pf.float32
        assert pf.matmul(x, x).dtype == pf.bfloat16
    with pf.autocast("rocm"):
        assert pf.matmul(x, x).dtype == pf.float32

    @pf.autocast("cpu", dtype=pf.float16)
    def f():
        return pf.matmul(x, x)

    assert f().dtype == pf.float16
    assert not pf.is_autocast_enabled("cpu")


def test_gradients_have_the_parameters_dtype():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with pf.autocast("cpu"):
        loss = nn.functional.cross_entropy(model(pf.randn(5, 8)), pf.tensor([0, 1, 2, 0, 1]))
    assert loss.dtype == pf.float32
    loss.backward()
    assert all(p.grad.dtype == pf.float32 and p.dtype == pf.float32 for p in model.parameters())


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64])
def test_autocast_to_a_full_type_is_off_and_says_so(dtype):
    x = pf.ones(2, 2)
    with pytest.warns(UserWarning, match="autocast: it is off inside this context, because .*float.* is no half type"):
        context = pf.autocast("cpu", dtype=dtype)
    with context:
        assert not pf.is_autocast_enabled("cpu") and (x @ x).dtype == pf.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pf.autocast("cpu", dtype=dtype, enabled=False)


def test_errors_name_what_was_expected():
    with pytest.raises(TypeError, match="autocast: not a half type; got .*int64.*; expected float16 or bfloat16"):
        pf.autocast("cpu", dtype=pf.int64)
    with pytest.raises(TypeError, match="autocast: not a half type; got .*float8_e4m3fn.*hint: .*pf.float8.convert_to_float8_training"):
        pf.autocast(dtype=pf.float8_e4m3fn)
    with pytest.raises(ValueError, match="growth_factor is out of range; got 1.0; expected a number above 1"):
        pf.amp.GradScaler(growth_factor=1.0)
    with pytest.raises(RuntimeError, match="update: no step was taken"):
        pf.amp.GradScaler().update()


def test_a_scaled_step_is_the_plain_step():
    rows = pf.randn(6, 4)
    plain, scaled = nn.Linear(4, 2), nn.Linear(4, 2)
    scaled.load_state_dict(plain.state_dict())
    optimizers = [pf.optim.SGD(m.parameters(), lr=0.1) for m in (plain, scaled)]
    plain(rows).square().mean().backward()
    optimizers[0].step()
    scaler = pf.amp.GradScaler(init_scale=1024.0)
    scaler.scale(scaled(rows).square().mean()).backward()
    scaler.step(optimizers[1])
    scaler.update()
    for a, b in zip(plain.parameters(), scaled.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_step_with_a_bad_gradient_is_skipped_and_the_factor_shrinks(bad):
    layer = nn.Linear(3, 1)
    before = layer.weight.detach().numpy().copy()
    optimizer, scaler = pf.optim.Adam(layer.parameters(), lr=0.1), pf.amp.GradScaler(init_scale=8.0, growth_interval=2)
    scaler.scale((layer(pf.ones(2, 3)) * bad).sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert scaler.get_scale() == 4.0
    np.testing.assert_array_equal(layer.weight.detach().numpy(), before)
    for expected in (4.0, 8.0):  # grows after two good steps
        optimizer.zero_grad()
        scaler.scale(layer(pf.ones(2, 3)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == expected
    assert (layer.weight.detach().numpy() != before).any()


def test_unscale_before_clipping_and_saved_state():
    layer = nn.Linear(3, 1)
    optimizer, scaler = pf.optim.SGD(layer.parameters(), lr=0.1), pf.amp.GradScaler(init_scale=256.0)
    scaler.scale(layer(pf.ones(2, 3)).sum()).backward()
    scaler.unscale_(optimizer)
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.full((1, 3), 2.0))
    with pytest.raises(RuntimeError, match="unscale_: called twice for one step"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update(32.0)
    other = pf.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 32.0 and other.state_dict() == scaler.state_dict()
    with pytest.raises(RuntimeError, match="entries are missing; got none for"):
        other.load_state_dict({"scale": 1.0})
    off = pf.amp.GradScaler(enabled=False)
    assert off.scale(3) == 3 and off.get_scale() == 1.0


def test_large_gradients_are_finite_though_their_squares_are_not():
    p = nn.Parameter(pf.ones(4))
    optimizer = pf.optim.SGD([p], lr=1e-25)
    scaler = pf.amp.GradScaler(init_scale=2.0)
    scaler.scale((p * 1e25).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    np.testing.assert_allclose(p.detach().numpy(), 0.0, atol=1e-6)


@pytest.mark.parametrize("make", [pf.optim.SGD, lambda params, lr: pf.optim.SGD(params, lr=lr, momentum=0.9), pf.optim.Adam, pf.optim.AdamW])
def test_a_model_on_two_devices(make):
    """The reference device represents a second GPU: updates, norm and scaler equal those of the same model on one device."""
    results = []
    for second in ("cpu", "reference"):
        pf.manual_seed(1)
        layers = [nn.Linear(4, 3), nn.Linear(3, 2).to(second)]
        params = [p for layer in layers for p in layer.parameters()]
        optimizer, scaler = make(params, lr=0.1), pf.amp.GradScaler(init_scale=8.0)
        norms = []
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(layers[1](layers[0](pf.ones(5, 4)).relu().to(second)).square().mean()).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(params, 0.05)
            assert str(norm.device) == "cpu"
            norms.append(norm.item())
            scaler.step(optimizer)
            scaler.update()
        results.append([norms, *(p.detach().to("cpu").numpy() for p in params)])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert max(results[0][0]) > 0.05


@pytest.fixture
def in_a_thread():
    """Runs a function in a thread of its own, whose autocast nobody has set."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield lambda f: pool.submit(f).result()


def test_autocast_without_a_context(in_a_thread):
    def run():
        x = pf.ones(2, 2)
        pf.set_autocast_enabled("cpu", True)
        assert pf.is_autocast_enabled("cpu") and (x @ x).dtype == pf.bfloat16
        pf.set_autocast_dtype("cpu", pf.float16)
        assert (x @ x).dtype == pf.get_autocast_dtype("cpu") == pf.get_autocast_cpu_dtype() == pf.float16
        pf.set_autocast_enabled("cpu", False)
        assert (x @ x).dtype == pf.float32 and pf.get_autocast_dtype("cpu") == pf.float16
        with pf.autocast("cpu"):
            assert (x @ x).dtype == pf.float16
        pf.set_autocast_cpu_dtype(pf.bfloat16), pf.set_autocast_cpu_enabled(True)
        assert (x @ x).dtype == pf.bfloat16
        pf.set_autocast_enabled(False)
        assert not pf.is_autocast_cpu_enabled()
        return True

    assert in_a_thread(run) and pf.get_autocast_dtype("cpu") == pf.bfloat16


def test_autocast_takes_the_dtype_of_the_one_around(in_a_thread):
    def run():
        x = pf.ones(2, 2)
        with pf.autocast("cpu", dtype=pf.float16):
            assert pf.get_autocast_dtype("cpu") == pf.float16
            with pf.autocast("cpu", enabled=False), pf.autocast("cpu"):
                assert (x @ x).dtype == pf.float16
        assert pf.get_autocast_dtype("cpu") == pf.bfloat16
        with pf.autocast("rocm"):
            assert pf.get_autocast_dtype("rocm") == pf.float16
        return pf.get_autocast_dtype("rocm")

    assert in_a_thread(run) == pf.float16


def test_no_cache_of_autocast():
    pf.set_autocast_cache_enabled(True), pf.clear_autocast_cache()
    assert not pf.is_autocast_cache_enabled()
    with pytest.raises(TypeError, match="set_autocast_enabled: enabled is no bool; got str; expected True or False"):
        pf.set_autocast_enabled("cpu", "yes")
    assert not pf.is_autocast_enabled("cpu")
    with pytest.raises(TypeError, match="set_autocast_dtype: not a half type; got .*float64; expected float16 or bfloat16"):
        pf.set_autocast_dtype("cpu", pf.float64)


def test_contexts_made_by_hand_are_counted():
    assert [pf.autocast_increment_nesting(), pf.autocast_increment_nesting(), pf.autocast_decrement_nesting(), pf.autocast_decrement_nesting()] == [1, 2, 1, 0]


def test_wrong_types_of_devices_and_dtypes():
    with pytest.raises(TypeError, match="autocast: device_type is no str; got .*cpu.*; hint: x.device.type"):
        pf.autocast(pf.device("cpu"))
    with pytest.raises(TypeError, match="custom_fwd: cast_inputs is no floating dtype; got 3"):
        pf.amp.custom_fwd(lambda ctx: None, cast_inputs=3)


@pytest.mark.parametrize("name, value", [("growth_interval", 0), ("growth_interval", -1), ("init_scale", -1.0), ("init_scale", 0), ("init_scale", float("inf")), ("init_scale", float("nan"))])
def test_scaler_refuses(name, value):
    with pytest.raises(ValueError, match=f"^GradScaler: {name} is out of range; got {value}"):
        pf.amp.GradScaler(**{name: value})


def test_scaler_refuses_a_new_scale():
    scaler = pf.amp.GradScaler(init_scale=8.0)
    with pytest.raises(ValueError, match="^GradScaler.update: new_scale is out of range; got -1.0"):
        scaler.update(-1)
    assert scaler.get_scale() == 8.0
