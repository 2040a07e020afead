"""pf.quantization: linear layers with weights of 8 bits, their errors, state dicts and limits."""
import copy
import io
import pickle

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.quantization import Int8WeightOnlyConfig, Int8WeightOnlyLinear, quantize_

CONFIGS = [Int8WeightOnlyConfig(), Int8WeightOnlyConfig(group_size=32)]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=["rows", "groups"])


def model(seed=0):
    pf.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Sequential(nn.Linear(96, 33, bias=False)))


@each_config
def test_codes_and_outputs(config):
    plain, x = model(), pf.randn(5, 64)
    quantized = copy.deepcopy(plain)
    report = quantize_(quantized, config)
    assert [type(quantized[0]), type(quantized[2][0])] == [Int8WeightOnlyLinear] * 2
    w = plain[0].weight.detach().numpy()
    step = np.abs(w).max(1, keepdims=True) / 127 if config.group_size is None else np.repeat(np.abs(w.reshape(96, 2, 32)).max(2) / 127, 32, 1)
    stored = quantized[0].dequantize().numpy()
    assert (np.abs(stored - w) <= step * 0.57).all()  # half a step, and the rounding of float16 scales
    assert [r.name for r in report] == ["0", "2.0"] and len(report) == 2
    np.testing.assert_allclose(report.layers[0].weight_error, np.linalg.norm(stored - w) / np.linalg.norm(w), rtol=1e-4)
    got, want = quantized(x), plain(x).detach()
    assert got.dtype == pf.float32 and got.shape == (5, 33) and not got.requires_grad
    assert 0 < ((got - want).norm() / want.norm()).item() < 0.02
    exact = pf.nn.functional.linear(x, quantized[0].dequantize(), plain[0].bias.detach())
    np.testing.assert_allclose(quantized[0](x).numpy(), exact.numpy(), atol=1e-5 if config.group_size is None else 0.03)


@each_config
def test_a_report_measures_outputs(config):
    m, x = model(), pf.randn(40, 64)
    m.train()
    plain = copy.deepcopy(m)
    report = quantize_(m, config, sample_inputs=x)
    first = plain[0](x).detach()
    np.testing.assert_allclose(report.layers[0].output_error, ((m[0](x) - first).norm() / first.norm()).item(), rtol=1e-3)
    assert 0 < report.layers[1].output_error < 0.02 and m.training and not m[0].training
    r = report.layers[0]
    assert r.shape == (96, 64) and r.bytes_before == 96 * 64 * 4
    assert r.bytes_after == (96 * 64 + 96 * 4 if config.group_size is None else 96 * 2 * 34)
    text = str(report).split("\n")
    assert text[0].split() == ["layer", "shape", "weight", "error", "output", "error", "bytes", "before"] and text[1].startswith(report.worst.name)
    assert text[-1] == f"2 layers, {sum(r.bytes_after for r in report)} bytes instead of {sum(r.bytes_before for r in report)}"


def test_layers_without_samples_are_reported_without_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, times=1):
            for _ in range(times):
                x = self.used(x)
            return x

    for given in (pf.ones(2, 4), (pf.ones(2, 4), 2), {"x": pf.ones(2, 4), "times": 3}):
        used, unused = quantize_(Two(), Int8WeightOnlyConfig(), sample_inputs=given)
        assert used.output_error > 0 and unused.output_error is None
    assert "-" in str(quantize_(Two(), Int8WeightOnlyConfig()))


@each_config
@pytest.mark.parametrize("dtype", [pf.float16, pf.bfloat16, pf.float64])
def test_dtypes(config, dtype):
    m, x = model().to(dtype), pf.randn(3, 64).to(dtype)
    want = m(x).detach().float()
    quantize_(m, config)
    with pf.no_grad():
        got = m(x)
    assert got.dtype == dtype
    assert ((got.float() - want).norm() / want.norm()).item() < 0.03


@each_config
def test_a_state_dict_loads_again(config):
    first, second, x = model(0), model(1), pf.randn(5, 64)
    quantize_(first, config)
    quantize_(second, config)
    names = {"0.codes", "0.scale", "0.bias", "2.0.codes", "2.0.scale"} if config.group_size is None else {"0.blocks", "0.bias", "2.0.blocks"}
    assert set(first.state_dict()) == names
    before = second(x)
    file = io.BytesIO()
    pf.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(pf.load(file))
    assert second(x).tolist() == first(x).tolist() != before.tolist()
    assert pickle.loads(pickle.dumps(first))(x).tolist() == first(x).tolist()
    assert copy.deepcopy(first)(x).tolist() == first(x).tolist()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0\.'):
        second.load_state_dict(model().state_dict())


def test_tiles_are_made_once_and_again_for_other_blocks():
    layer, x = Int8WeightOnlyLinear.from_float(nn.Linear(32, 16), CONFIGS[1]), pf.randn(2, 32)
    before = layer(x)
    tiles = layer._tiles[2]
    layer(x)
    assert layer._tiles[2] is tiles
    other = Int8WeightOnlyLinear.from_float(nn.Linear(32, 16), CONFIGS[1])
    layer.load_state_dict(other.state_dict(), assign=True)
    assert layer(x).tolist() == other(x).tolist() != before.tolist()


def test_zeros_shared_layers_filters_and_attention():
    shared = nn.Linear(32, 32)
    m = nn.Sequential(shared, shared, nn.Linear(32, 32), nn.MultiheadAttention(32, 2))
    with pf.no_grad():
        m[2].weight.zero_()
    report = quantize_(m, Int8WeightOnlyConfig(), filter_fn=lambda layer, name: layer.out_features == 32, device="cpu")
    assert m[0] is m[1] and [r.name for r in report] == ["0", "2"]
    assert report.layers[1].weight_error == 0 and (m[2].dequantize() == 0).all()
    assert type(m[3].out_proj) is not Int8WeightOnlyLinear
    n = nn.Sequential(nn.Linear(32, 32))
    with pf.no_grad():
        n[0].weight.zero_()
    assert quantize_(n, CONFIGS[1]).worst.weight_error == 0
    assert "group_size=32" in repr(n)


@each_config
def test_a_transformer(config):
    pf.manual_seed(0)
    m, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), pf.randn(2, 5, 32)
    want = m(x).detach()
    report = quantize_(m, config, sample_inputs=x)
    assert [r.name for r in report] == ["linear1", "linear2"] and all(0 < r.output_error < 0.02 for r in report)
    with pf.no_grad():
        assert ((m(x) - want).norm() / want.norm()).item() < 0.01


@each_config
def test_training_is_an_error(config):
    m, x = model(), pf.randn(2, 64)
    quantize_(m, config)
    with pytest.raises(NotImplementedError, match="Int8WeightOnlyLinear: weights of 8 bits are for inference; got an input that requires a gradient; .* hint: train before quantize_"):
        m(x.requires_grad_())
    m.train()
    with pytest.raises(NotImplementedError, match="got a call in training mode"):
        m(x.detach())
    with pf.no_grad():
        assert m(x).shape == (2, 33)


def not_finite():
    m = model()
    with pf.no_grad():
        m[2][0].weight[0, 0] = float("nan")
    return m


def enormous():
    m = model()
    with pf.no_grad():
        m[0].weight.fill_(1e8)
    return m


@pytest.mark.parametrize("call, kind, message", [
    (lambda: Int8WeightOnlyConfig(group_size=64), ValueError, "Int8WeightOnlyConfig: this group_size is not available; got 64; expected None"),
    (lambda: quantize_(model(), "int8"), TypeError, "quantize_: no known configuration; got str"),
    (lambda: quantize_(nn.Linear(2, 2), CONFIGS[0]), ValueError, "a layer cannot replace itself; got an nn.Linear"),
    (lambda: quantize_(nn.Sequential(nn.GELU()), CONFIGS[0]), ValueError, "there is no layer to replace; got Sequential"),
    (lambda: quantize_(not_finite(), CONFIGS[0]), ValueError, "a weight is not finite; got NaN or infinity in 2.0"),
    (lambda: quantize_(enormous(), CONFIGS[1]), ValueError, "quantize_: 0: numbers are too large for float16 scales"),
    (lambda: quantize_(nn.Sequential(nn.Linear(33, 2)), CONFIGS[1]), ValueError, "quantize_: 0: a row is no whole number of groups; got in_features 33; expected a multiple of 32"),
    (lambda: pf.quantization.quantize_dynamic(model()), NotImplementedError, "quantization.quantize_dynamic: not available in PyFlame; quantized tensors are not available"),
])
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_nothing_changes_after_an_error():
    m = not_finite()
    with pytest.raises(ValueError):
        quantize_(m, CONFIGS[0])
    assert type(m[0]) is nn.Linear


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dtype", [pf.float16, pf.bfloat16])
def test_small_weights_in_half(config, dtype):
    """The scale stays float32, in which it is exact; inputs of another dtype than the bias are taken."""
    linear, x = nn.Linear(64, 8), pf.randn(3, 64)
    with pf.no_grad():
        linear.weight.mul_(1e-3), linear.bias.mul_(1e-3)
        layer = Int8WeightOnlyLinear.from_float(linear, config)
        want, before = layer(x), layer.dequantize()
        assert layer(x.to(dtype)).dtype == dtype
        whole = nn.Sequential(layer).to(dtype)
        assert np.array_equal(layer.dequantize().numpy(), before.numpy()) and layer.bias.dtype == dtype
        assert (whole(x.to(dtype)).float() - want).abs().max().item() < 2e-2 * want.abs().max().item()
