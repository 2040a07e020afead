"""Wrong sizes, modes and types of layers and of the functions beside them are errors that name the call."""
import numpy as np
import pytest

import pyflame as pf
from pyflame import nn

ROWS = {"constant_": (1.0,), "sparse_": (0.5,)}
FILLING = ["constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_",
           "xavier_normal_", "xavier_uniform_", "zeros_"]


@pytest.mark.parametrize("name", FILLING)
def test_initial_values_of_no_tensor(name):
    with pytest.raises(TypeError, match=f"^{name}: the argument is not a tensor; got list; expected a tensor"):
        getattr(nn.init, name)([1.0, 2.0], *ROWS.get(name, ()))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
def test_recurrent_layers_of_no_tensor(name):
    layer = getattr(nn, name)(2, 3)
    with pytest.raises(TypeError, match=f"^{name}: the input is not a tensor; got list"):
        layer([1.0, 2.0])
    pair = "LSTM" in name
    with pytest.raises(TypeError, match=f"^{name}: the (initial )?state is not a (pair|tensor)"):
        layer(pf.ones(1, 2), [1.0])
    with pytest.raises(TypeError, match=f"^{name}: the (initial )?state is not a tensor; got (list|int)"):
        layer(pf.ones(1, 2), [1, 2] if pair else [1.0])
    for size, error in ((-1, ValueError), ("2", TypeError), (2.0, TypeError), (None, TypeError)):
        for sizes in ((size, 2), (2, size)):
            with pytest.raises(error, match=rf"^{name}\w*: .*got"):
                getattr(nn, name)(*sizes)


LAYER = nn.TransformerEncoderLayer(4, 2, 8)


@pytest.mark.parametrize("call, error, text", [
    (lambda: nn.TransformerEncoder(LAYER, -1), ValueError, "TransformerEncoder: num_layers is negative; got -1"),
    (lambda: nn.TransformerEncoder(LAYER, "2"), TypeError, "TransformerEncoder: num_layers is not an integer; got '2'"),
    (lambda: nn.TransformerEncoder(None, 1), TypeError, "TransformerEncoder: the layer is not a Module; got NoneType"),
    (lambda: nn.TransformerDecoder(LAYER, -2), ValueError, "TransformerDecoder: num_layers is negative; got -2"),
    (lambda: nn.Transformer(4, 2, -1, 1, 8), ValueError, "TransformerEncoder: num_layers is negative; got -1"),
    (lambda: nn.LocalResponseNorm(0), ValueError, "LocalResponseNorm: size is not positive; got 0"),
    (lambda: nn.LocalResponseNorm(1.5), TypeError, "LocalResponseNorm: size is not an integer; got 1.5"),
    (lambda: nn.functional.local_response_norm(pf.ones(1, 4, 3), -1), ValueError, "local_response_norm: size is not positive; got -1"),
    (lambda: nn.EmbeddingBag(3, 2, mode="x"), ValueError, "EmbeddingBag: unknown mode; got 'x'"),
    (lambda: nn.EmbeddingBag.from_pretrained(pf.ones(2, 2), mode=None), ValueError, "EmbeddingBag: unknown mode; got None"),
    (lambda: nn.RNNCell(2, 2, nonlinearity="x"), ValueError, "RNNCell: unknown nonlinearity; got 'x'"),
    (lambda: nn.LSTM(2, 2, proj_size="1"), TypeError, "LSTM: proj_size is not an integer; got str"),
    (lambda: nn.RNN(2, 2, 1.5), TypeError, "RNN_TANH: num_layers is not an integer; got float"),
    (lambda: nn.LayerNorm(2.0), TypeError, "LayerNorm: normalized_shape: not sizes; got 2.0; expected a sequence of integers"),
    (lambda: nn.RMSNorm(None), TypeError, "RMSNorm: normalized_shape: not sizes; got None"),
    (lambda: nn.Unflatten(1, 2), TypeError, "Unflatten: unflattened_size: not sizes; got 2"),
    (lambda: nn.ZeroPad2d(2.0), TypeError, "ZeroPad2d: padding: not sizes; got 2.0"),
    (lambda: nn.ReflectionPad1d("12"), TypeError, "ReflectionPad1d: padding: not sizes; got '12'"),
    (lambda: nn.Embedding(3, 2, padding_idx="2"), TypeError, "Embedding: padding_idx is not an integer; got '2'"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, 2), TypeError, "AdaptiveLogSoftmaxWithLoss: cutoffs are not a list; got 2"),
    (lambda: nn.LazyConv2d(None, 2), TypeError, "LazyConv2d: out_channels is not an integer; got None"),
    (lambda: pf.pdist([1.0, 2.0]), TypeError, "pdist: not a tensor; got list"),
    (lambda: nn.functional.pdist(pf.ones(2, 2), "a"), TypeError, "pdist: p is not a number; got 'a'"),
    (lambda: nn.functional.grid_sample([1.0], pf.ones(1, 1, 1, 2)), TypeError, "grid_sample: input is not a tensor; got list"),
    (lambda: nn.functional.grid_sample(pf.ones(1, 1, 2, 2), [2.0]), TypeError, "grid_sample: grid is not a tensor; got list"),
    (lambda: nn.functional.grid_sample(pf.ones(1, 1, 2, 2), pf.ones(1, 1, 1, 2), 3), TypeError, "grid_sample: mode is not a text; got 3; expected 'bilinear'"),
    (lambda: nn.functional.unfold([1.0], 2), TypeError, "unfold: input is not a tensor; got list"),
    (lambda: nn.functional.unfold(pf.ones(1, 1, 3, 3), 1.5), TypeError, "unfold: kernel_size is not a size; got 1.5"),
    (lambda: nn.functional.fold([1.0], 2, 2), TypeError, "fold: input is not a tensor; got list"),
    (lambda: nn.functional.fold(pf.ones(1, 4, 1), "a", 2), TypeError, "fold: output_size is not a size; got 'a'"),
])
def test_errors(call, error, text):
    with pytest.raises(error, match=f"^{text}"):
        call()


def test_helpers():
    with pytest.raises(TypeError, match="rows: since is not a text; got 3"):
        pf.tuning.rows(since=3)
    with pytest.raises(TypeError, match="rows: since is not a text; got 3"):
        pf.tuning.problems(since=3)
    assert repr(pf.memory.BatchSize(4)) == "batch size 4" and pf.memory.BatchSize(4) == 4


def test_sizes_of_numpy():
    assert nn.LayerNorm(np.int64(4))(pf.ones(2, 4)).shape == nn.RMSNorm(np.int64(4))(pf.ones(2, 4)).shape == (2, 4)
    assert nn.TransformerEncoderLayer(np.int64(4), 2, 8)(pf.ones(3, 1, 4)).shape == (3, 1, 4)
