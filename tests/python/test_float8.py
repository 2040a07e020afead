"""8-bit floats: values, moves, files, products with scales, and layers that train with them. The cases of tests/ops compare every code and every device."""
import copy
import pickle

import numpy as np
import pytest

import pyflame as pf
from pyflame.testing.cases.float8 import FORMATS, encoded, table

NAMES = list(FORMATS)
F = pf.nn.functional


def dtype_of(name):
    return getattr(pf, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_comes_back(name):
    dtype, values = dtype_of(name), table(name)
    codes = pf.arange(256, dtype=pf.int64).to(pf.uint8).view(dtype)
    np.testing.assert_array_equal(codes.to(pf.float32).numpy(), values)
    np.testing.assert_array_equal(np.array(codes.tolist()), values)
    back = codes.to(pf.float32).to(dtype).view(pf.uint8).numpy()
    same = ~np.isnan(values)
    np.testing.assert_array_equal(back[same], np.arange(256)[same])
    assert np.isnan(table(name)[back[~same]]).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_middle_and_what_is_next_to_it(name):
    finite = np.unique(table(name)[np.isfinite(table(name))])
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    x = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf)), [np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-45, -0.0]]).astype(np.float32)
    np.testing.assert_array_equal(pf.tensor(x).to(dtype_of(name)).view(pf.uint8).numpy(), encoded(name, x))


def test_a_value_is_converted_and_not_its_bits():
    x = pf.tensor([1.5, -0.25, 240.0]).to(pf.float8_e4m3fn)
    y = x.to(pf.float8_e4m3fnuz)
    assert y.tolist() == [1.5, -0.25, 240.0]
    assert y.view(pf.uint8).tolist() != x.view(pf.uint8).tolist()
    assert x.view(pf.float8_e4m3fnuz).tolist() == [0.75, -0.125, 120.0]  # the same bits mean half of it


def test_limits():
    rows = {"float8_e4m3fn": (448.0, 0.125, 2.0**-6), "float8_e5m2": (57344.0, 0.25, 2.0**-14), "float8_e4m3fnuz": (240.0, 0.125, 2.0**-7), "float8_e5m2fnuz": (57344.0, 0.25, 2.0**-15)}
    for name, (most, eps, tiny) in rows.items():
        info = pf.finfo(dtype_of(name))
        assert (info.max, info.min, info.eps, info.tiny, info.smallest_normal, info.bits, info.resolution) == (most, -most, eps, tiny, tiny, 8, 1.0)
        assert info.max == np.nanmax(table(name)[np.isfinite(table(name))])
    dtype = pf.float8_e5m2
    assert (dtype.itemsize, dtype.is_floating_point, dtype.is_signed, dtype.is_complex, str(dtype)) == (1, True, True, False, "pyflame.float8_e5m2")


def test_creation_and_reading():
    dtype = pf.float8_e4m3fn
    assert pf.zeros(2, 3, dtype=dtype).tolist() == [[0.0] * 3] * 2
    assert pf.ones(2, dtype=dtype).tolist() == [1.0, 1.0]
    assert pf.full((2,), 0.3, dtype=dtype).tolist() == [0.3125, 0.3125]
    assert pf.tensor([1.0, -2.0, 0.07], dtype=dtype).tolist() == [1.0, -2.0, 0.0703125]
    assert pf.empty(4, dtype=dtype).nbytes == 4
    assert pf.zeros_like(pf.ones(2, dtype=dtype)).dtype == dtype
    assert pf.tensor(2.5, dtype=dtype).item() == 2.5 and float(pf.tensor(2.5, dtype=dtype)) == 2.5
    assert repr(pf.tensor([1.5, -0.25], dtype=dtype, device="cpu")) == "tensor([ 1.5000, -0.2500], dtype=pyflame.float8_e4m3fn)"
    x = pf.ones(3, dtype=dtype)
    x.fill_(0.3)
    x[1] = 7.0
    assert x.tolist() == [0.3125, 7.0, 0.3125]
    assert x.zero_().tolist() == [0.0] * 3


def test_moves():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 120, (4, 6)).astype(np.uint8)
    x = pf.tensor(codes).view(pf.float8_e4m3fn)

    def same(result, expected):
        assert result.dtype == pf.float8_e4m3fn
        np.testing.assert_array_equal(result.contiguous().view(pf.uint8).numpy(), expected)

    same(x.t(), codes.T)
    same(x.t().contiguous(), codes.T)
    same(x.clone(), codes)
    same(x[1:3, ::2], codes[1:3, ::2])
    same(pf.cat([x, x], 1), np.concatenate([codes, codes], 1))
    same(pf.stack([x, x]), np.stack([codes, codes]))
    same(x[[2, 0]], codes[[2, 0]])
    same(x.index_select(1, pf.tensor([5, 0])), codes[:, [5, 0]])
    same(x.gather(1, pf.tensor([[1, 0]] * 4)), np.take_along_axis(codes, np.array([[1, 0]] * 4), 1))
    same(pf.where(pf.tensor(codes > 60), x, x.flip(0)), np.where(codes > 60, codes, codes[::-1]))
    same(x.repeat(2, 1), np.tile(codes, (2, 1)))
    same(x.roll(1, 0), np.roll(codes, 1, 0))
    same(x.reshape(3, 8), codes.reshape(3, 8))
    same(x.expand(2, 4, 6), np.broadcast_to(codes, (2, 4, 6)))
    same(F.pad(x, (1, 0)), np.pad(codes, ((0, 0), (1, 0))))
    same(x.chunk(2, 1)[1], codes[:, 3:])
    y = x.clone()
    y[pf.tensor(codes > 60)] = 1.0
    same(y, np.where(codes > 60, 0x38, codes))
    y.copy_(pf.full((4, 6), 2.0))
    same(y, np.full((4, 6), 0x40))
    assert pf.equal(x.to(pf.float32), x.clone().to(pf.float32))


def test_comparisons_are_of_values():
    x = pf.tensor([0.0, -0.0, 1.0, float("nan"), float("inf")]).to(pf.float8_e5m2)
    assert (x == x).tolist() == [True, True, True, False, True]
    assert (x == 0.0).tolist() == [True, True, False, False, False]
    assert (x > 0.5).tolist() == [False, False, True, False, True]
    assert x.isnan().tolist() == [False, False, False, True, False]
    assert x.isinf().tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("call, named", [(lambda x: x + x, "add"), (lambda x: x * 2, "mul"), (lambda x: x.exp(), "exp"), (lambda x: x.sum(), "sum"), (lambda x: x @ x, "matmul"), (lambda x: x.sort(), "sort"),
                                         (lambda x: x.softmax(-1), "softmax"), (lambda x: x.cumsum(0), "cumsum"), (lambda x: F.relu(x), "relu"), (lambda x: x.index_add_(0, pf.tensor([0]), x[:1]), "index_")])
def test_arithmetic_is_refused_by_name(call, named):
    x = pf.ones(2, 2, dtype=pf.float8_e4m3fn)
    with pytest.raises(TypeError, match=rf"{named}.*: not available for 8-bit floats; got float8_e4m3fn; expected a dtype that computes; hint: .to\(pf.float32\)"):
        call(x)
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_nothing_is_promoted():
    x = pf.ones(2, dtype=pf.float8_e4m3fn)
    for other in (pf.ones(2), pf.ones(2, dtype=pf.float8_e5m2), pf.ones(2, dtype=pf.int64)):
        with pytest.raises(TypeError, match="a float8 dtype is not promoted; got float8_e4m3fn and"):
            x + other
    with pytest.raises(TypeError, match="a float8 dtype is not promoted; got float8_e4m3fn and a complex number"):
        x * 1j
    with pytest.raises(TypeError, match="dtype: no kernel computes in this dtype|not available for 8-bit floats"):
        pf.rand(3, dtype=pf.float8_e5m2)


def test_gradients_pass_a_cast():
    x = pf.tensor([1.1, -0.3, 700.0], requires_grad=True)
    (x.to(pf.float8_e5m2).to(pf.float32) * pf.tensor([1.0, 2.0, 0.5])).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 0.5]


def test_files(tmp_path):
    every = {name: pf.arange(256, dtype=pf.int64).to(pf.uint8).view(dtype_of(name)).reshape(16, 16) for name in NAMES}
    pf.save(every, tmp_path / "a.safetensors")
    pf.save(every, tmp_path / "a.pt", format="pt")
    for path in ("a.safetensors", "a.pt"):
        loaded = pf.load(tmp_path / path)
        for name, x in every.items():
            assert loaded[name].dtype == x.dtype and loaded[name].shape == x.shape
            assert pf.equal(loaded[name].view(pf.uint8), x.view(pf.uint8))
    x = every["float8_e5m2"]
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.dtype == x.dtype and pf.equal(other.view(pf.uint8), x.view(pf.uint8))
    assert pickle.loads(pickle.dumps(pf.float8_e4m3fn)) is pf.float8_e4m3fn


def test_exports_without_such_a_type_say_what_to_do():
    x = pf.ones(2, dtype=pf.float8_e4m3fn, device="cpu")
    with pytest.raises((TypeError, BufferError), match="there is no buffer format for float8_e4m3fn; hint"):
        x.numpy()
    assert pf.from_dlpack(x).tolist() == [1.0, 1.0] and pf.from_dlpack(x).dtype == x.dtype


# --- products

def operands(m, k, n, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    return a, b, pf.tensor(a).to(pf.float8_e4m3fn), pf.tensor(b).to(pf.float8_e4m3fn)


def test_scaled_mm_by_pytorchs_recipes():
    _, _, a, b = operands(8, 256, 160)
    x, w = a.to(pf.float64).numpy(), b.to(pf.float64).numpy()
    S = F.ScalingType
    one = F.scaled_mm(a, b, pf.tensor(0.5), S.TensorWise, pf.tensor([0.25]), S.TensorWise, output_dtype=pf.float32)
    np.testing.assert_allclose(one.numpy(), x @ w * 0.125, rtol=1e-3, atol=4e-3)
    rows, columns = np.linspace(0.5, 2, 8, dtype=np.float32)[:, None], np.linspace(1, 3, 160, dtype=np.float32)[None]
    each = F.scaled_mm(a, b, pf.tensor(rows), S.RowWise, pf.tensor(columns), S.RowWise, output_dtype=pf.float32)
    np.testing.assert_allclose(each.numpy(), (x * rows) @ (w * columns), rtol=1e-3, atol=5e-2)
    of_a, of_b = np.linspace(0.5, 2, 16, dtype=np.float32).reshape(8, 2), np.linspace(1, 3, 4, dtype=np.float32).reshape(2, 2)
    blocks = F.scaled_mm(a, b, pf.tensor(of_a), S.BlockWise1x128, pf.tensor(of_b), S.BlockWise128x128, output_dtype=pf.float32)
    expected = (x * of_a.repeat(128, 1)) @ (w * of_b.repeat(128, 0).repeat(128, 1)[:, :160])
    np.testing.assert_allclose(blocks.numpy(), expected, rtol=1e-3, atol=5e-2)
    bias = pf.ones(160, dtype=pf.bfloat16)
    assert F.scaled_mm(a, b, pf.tensor(1.0), S.TensorWise, [pf.tensor(1.0)], [S.TensorWise], bias=bias).dtype == pf.bfloat16
    assert pf._scaled_mm(a, b, pf.tensor(1.0), pf.tensor(1.0), out_dtype=pf.float32).shape == (8, 160)


@pytest.mark.parametrize("change, error, message", [
    (dict(mat_a=pf.ones(4, 16)), TypeError, "scaled_mm: the matrices are no 8-bit floats; got float32 and float8_e4m3fn; expected float8 dtypes"),
    (dict(mat_b=pf.ones(8, 4, dtype=pf.float8_e4m3fn)), ValueError, r"scaled_mm: the matrices do not fit; got \(4, 16\) and \(8, 4\); expected \[M, K\] and \[K, N\]"),
    (dict(output_dtype=pf.float64), TypeError, "scaled_mm: no such result; got float64; expected float32, float16 or bfloat16"),
    (dict(scale_a=pf.tensor(1)), TypeError, "scaled_mm: scale_a is not float32; got int64; expected float32"),
    (dict(scale_a=pf.ones(3)), ValueError, r"scaled_mm: scale_a does not fit its recipe; got shape \(3,\); expected one element"),
    (dict(scale_a=pf.ones(4), scale_recipe_a=F.ScalingType.RowWise), ValueError, r"scaled_mm: scale_a does not fit its recipe; got shape \(4,\); expected \(4, 1\)"),
    (dict(mat_a=pf.ones(4, 256, dtype=pf.float8_e4m3fn), mat_b=pf.ones(256, 16, dtype=pf.float8_e4m3fn), scale_a=pf.ones(4, 2), scale_recipe_a=F.ScalingType.BlockWise1x128), ValueError,
     r"scaled_mm: only one matrix has scales of blocks; got scale_a \(4, 2\) and scale_b \(\); expected both or none"),
    (dict(scale_recipe_b=F.ScalingType.BlockWise1x32), NotImplementedError, "scaled_mm: not available for scales of the second matrix; got .*; expected ScalingType.TensorWise, RowWise or BlockWise128x128"),
    (dict(swizzle_a=F.SwizzleType.SWIZZLE_32_4_4), NotImplementedError, "scaled_mm: scales are taken in their natural order only"),
    (dict(scale_a=[pf.tensor(1.0)] * 2), ValueError, "scaled_mm: several scales for one matrix; got 2 as scale_a; expected one"),
    (dict(bias=pf.ones(3)), ValueError, r"scaled_mm: the bias does not fit; got float32 \(3,?\); expected bfloat16 \[16\]"),
    (dict(mat_a=pf.ones(16, dtype=pf.float8_e4m3fn)), ValueError, r"scaled_mm: not two matrices; got shapes \(16,\) and \(16, 16\)"),
    (dict(scale_a=pf.tensor(1.0, requires_grad=True)), NotImplementedError, "scaled_mm: there are no gradients; .*pf.float8.Float8Linear"),
])
def test_errors_of_scaled_mm(change, error, message):
    S = F.ScalingType
    given = dict(mat_a=pf.ones(4, 16, dtype=pf.float8_e4m3fn), mat_b=pf.ones(16, 16, dtype=pf.float8_e4m3fn), scale_a=pf.tensor(1.0), scale_recipe_a=S.TensorWise, scale_b=pf.tensor(1.0), scale_recipe_b=S.TensorWise)
    with pytest.raises(error, match=message):
        F.scaled_mm(**{**given, **change})


# --- layers

def test_quantize():
    x = pf.tensor([[1.0, -3.0], [0.0, 0.0], [float("nan"), 1.0]])
    codes, scale = pf.float8.quantize(x[:2], pf.float8_e4m3fn)
    assert scale.shape == () and abs(scale.item() - 3.0 / 448) < 1e-9 and codes.tolist()[0][1] == -448.0
    codes, scale = pf.float8.quantize(x, pf.float8_e4m3fn, dim=1)
    assert scale.shape == (3, 1) and scale[1].item() == 1.0 and codes[1].tolist() == [0.0, 0.0] and np.isnan(codes[2, 0].item())
    codes, scale = pf.float8.quantize(x[:2], pf.float8_e5m2, amax=pf.tensor(0.5))
    assert codes.tolist()[0] == [57344.0, -57344.0]  # limited, not infinite
    assert pf.float8.dequantize(codes, scale).tolist()[0] == [0.5, -0.5]
    for call in (lambda: pf.float8.quantize(x, pf.float16), lambda: pf.float8.dequantize(x, scale)):
        with pytest.raises(TypeError, match="quantize: not a dtype of 8-bit floats; got"):
            call()


def test_an_empty_tensor_has_no_codes():
    codes, scale = pf.float8.quantize(pf.zeros(0), pf.float8_e4m3fn)
    assert codes.shape == (0,) and codes.dtype == pf.float8_e4m3fn and scale.shape == () and scale.item() == 1.0
    assert pf.float8.dequantize(codes, scale).shape == (0,)
    for shape, dim, scales in (((3, 0), 1, (3, 1)), ((3, 0), -1, (3, 1)), ((0, 4), 1, (0, 1)), ((0, 4), 0, (1, 4))):
        codes, scale = pf.float8.quantize(pf.zeros(shape), pf.float8_e5m2, dim=dim)
        assert codes.shape == shape and scale.shape == scales and scale.dtype == pf.float32 and (scale == 1).all()


@pytest.mark.parametrize("bad, rest", [(float("inf"), 0.0), (float("nan"), float("nan"))])
def test_what_is_not_finite_spoils_the_codes_of_its_scale(bad, rest):
    x = pf.tensor([[1.0, bad], [1.0, 2.0]])
    codes, scale = pf.float8.quantize(x, pf.float8_e4m3fn, dim=1)
    np.testing.assert_array_equal(codes.float().numpy(), [[rest, float("nan")], [224.0, 448.0]])
    np.testing.assert_array_equal(scale[0].numpy(), [bad])
    limited = pf.float8.quantize(x, pf.float8_e4m3fn, amax=pf.tensor(2.0))[0]
    np.testing.assert_array_equal(limited.float().numpy(), [[224.0, 448.0 if bad == float("inf") else bad], [224.0, 448.0]])


def test_formats_of_a_cpu():
    assert pf.float8.formats() == (pf.float8_e4m3fn, pf.float8_e5m2) == pf.float8.formats("cpu")


@pytest.mark.parametrize("units", ["fnuz", "ocp", "both", "none"])  # both: of a GPU that is not known
def test_formats_are_those_of_the_units(units, monkeypatch):
    monkeypatch.setattr(pf._C, "_has_units", lambda device, name: units in ("fnuz" if name.endswith("fnuz") else "ocp", "both"))
    assert pf.float8.formats("cpu") == ((pf.float8_e4m3fnuz, pf.float8_e5m2fnuz) if units == "fnuz" else (pf.float8_e4m3fn, pf.float8_e5m2))


@pytest.mark.parametrize("config", [None, pf.float8.Float8LinearConfig(recipe="rowwise"), pf.float8.Float8LinearConfig(scaling="delayed", history=3)])
def test_a_layer_is_near_the_float_one(config):
    pf.manual_seed(0)
    plain = pf.nn.Linear(64, 48)
    layer = pf.float8.Float8Linear.from_float(plain, config)
    assert layer.weight is plain.weight and list(layer.state_dict()) == ["weight", "bias"]
    x, g = pf.randn(4, 8, 64, requires_grad=True), pf.randn(4, 8, 48)
    grads = []
    for module in (plain, layer):
        for p in (x, plain.weight, plain.bias):
            p.grad = None
        out = module(x)
        out.backward(g)
        grads.append([out.detach(), x.grad, plain.weight.grad, plain.bias.grad])
    for expected, got in zip(*grads):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        error = ((got - expected).norm() / expected.norm()).item()
        assert error < 0.06  # 3 and 2 bits of fraction: some 2 to 5 %
    assert ((grads[0][0] - grads[1][0]).norm() / grads[0][0].norm()).item() > 1e-3  # it was rounded


def test_delayed_scaling_looks_back():
    layer = pf.float8.Float8Linear(16, 16, bias=False, config=pf.float8.Float8LinearConfig(scaling="delayed", history=2))
    with pf.no_grad():
        layer.weight.copy_(pf.eye(16))
    layer(pf.full((16, 16), 2.0))
    assert layer.input_amax.tolist() == [2.0, 0.0]
    out = layer(pf.full((16, 16), 8.0))  # beyond the largest magnitude of the steps before: limited to it
    assert layer.input_amax.tolist() == [2.0, 8.0] and abs(out[0, 0].item() - 2.0) < 1e-5
    assert abs(layer(pf.full((16, 16), 8.0))[0, 0].item() - 8.0) < 1e-4


def test_layers_with_the_same_input_round_it_once():
    layers = [pf.float8.Float8Linear(16, 16, bias=False) for _ in range(3)]
    x = pf.randn(16, 16, requires_grad=True)
    sum(layer(x).sum() for layer in layers).backward()
    together = [layer.weight.grad.clone() for layer in layers]
    of_x = x.grad.clone()
    with pf.no_grad():
        x.mul_(2.0)  # another version of the tensor: other codes
    assert not pf.equal(layers[0](x), layers[0](x.detach() / 2))
    with pf.no_grad():
        x.mul_(0.5)
    x.grad = None
    for layer in layers:
        layer.weight.grad = None
        layer(x.clone()).sum().backward()
    assert all(pf.equal(layer.weight.grad, expected) for layer, expected in zip(layers, together))
    np.testing.assert_allclose(x.grad.numpy(), of_x.numpy(), rtol=1e-5, atol=1e-6)


def test_codes_of_an_input_end_with_it():
    layer, x = pf.float8.Float8Linear(16, 16), pf.randn(16, 16)
    layer(x)
    assert pf.float8._inputs.last.made is not None
    del x
    assert pf.float8._inputs.last.made is None


def test_convert():
    model = pf.nn.Sequential(pf.nn.Linear(32, 64), pf.nn.ReLU(), pf.nn.Sequential(pf.nn.Linear(64, 32), pf.nn.Linear(32, 10)))
    names = [n for n, _ in model.named_parameters()]
    assert pf.float8.convert_to_float8_training(model) is model
    assert [type(m).__name__ for m in (model[0], model[2][0], model[2][1])] == ["Float8Linear", "Float8Linear", "Linear"]  # 10 is no multiple of 16
    assert [n for n, _ in model.named_parameters()] == names
    assert "recipe='tensorwise'" in repr(model[0])
    only = pf.float8.convert_to_float8_training(pf.nn.Sequential(pf.nn.Linear(16, 16), pf.nn.Linear(16, 16)), module_filter_fn=lambda layer, name: name == "1")
    assert [type(m).__name__ for m in only] == ["Linear", "Float8Linear"]
    assert type(pf.float8.convert_to_float8_training(pf.nn.Linear(16, 16))) is pf.float8.Float8Linear


@pytest.mark.parametrize("given, message", [(dict(recipe="x"), "unknown recipe; got 'x'; expected 'tensorwise' or 'rowwise'"), (dict(scaling="x"), "unknown scaling; got 'x'; expected 'dynamic' or 'delayed'"),
                                            (dict(recipe="rowwise", scaling="delayed"), "rows have no history"), (dict(history=0), "history is no number of steps; got 0")])
def test_errors_of_a_config(given, message):
    with pytest.raises(ValueError, match=message):
        pf.float8.Float8LinearConfig(**given)


@pytest.mark.parametrize("config", [pf.float8.Float8LinearConfig(), pf.float8.Float8LinearConfig(recipe="rowwise"), pf.float8.Float8LinearConfig(scaling="delayed")])
def test_a_training_follows_that_of_bfloat16(config):
    def losses(convert):
        pf.manual_seed(3)
        rng = np.random.default_rng(0)
        model = pf.nn.Sequential(pf.nn.Linear(32, 128), pf.nn.GELU(), pf.nn.Linear(128, 128), pf.nn.GELU(), pf.nn.Linear(128, 16))
        convert(model)
        optimizer, found = pf.optim.AdamW(model.parameters(), lr=3e-3), []
        for _ in range(60):
            x = pf.tensor(rng.standard_normal((256, 32)).astype(np.float32))
            y = x[:, :16] - x[:, 16:].abs() + pf.tensor(rng.standard_normal((256, 16)).astype(np.float32)) * 0.3
            with pf.autocast("cpu", dtype=pf.bfloat16):
                out = model(x)
            loss = F.mse_loss(out.float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    wide, narrow = losses(lambda model: model), losses(lambda model: pf.float8.convert_to_float8_training(model, config=config))
    assert wide[-1] < 0.4 * wide[0]
    assert narrow != wide and max(abs(np.log(a / b)) for a, b in zip(wide, narrow)) < 0.06


@pytest.mark.parametrize("wrong, error, text", [
    (lambda: pf.float8.Float8Linear(4, 4, config=3), TypeError, "Float8Linear: config is of another type; got int"),
    (lambda: pf.float8.Float8Linear(4, 4)(pf.ones(2, 6)), ValueError, r"Float8Linear: the input does not fit; got shape \(2, 6\); expected \[.., 4\]"),
    (lambda: pf.float8.Float8Linear(4, 4)(pf.tensor(1.0)), ValueError, r"Float8Linear: the input does not fit; got shape \(\)"),
    (lambda: pf.float8.convert_to_float8_training(3), TypeError, "convert_to_float8_training: not a module; got int"),
    (lambda: pf.float8.convert_to_float8_training(pf.nn.ReLU(), config=3), TypeError, "convert_to_float8_training: config is of another type; got int"),
    (lambda: pf.float8.dequantize(3, 1.0), TypeError, "dequantize: not a dtype of 8-bit floats; got int"),
    (lambda: pf.float8.dequantize(pf.ones(2, dtype=pf.float8_e5m2), 1.0, dtype=3), TypeError, "dequantize: not a dtype; got 3"),
    (lambda: pf.float8.formats("gpu"), ValueError, "device: no such device; got 'gpu'"),
])  # fmt: skip
def test_wrong_arguments(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()
