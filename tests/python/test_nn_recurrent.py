"""RNN, LSTM, GRU and their cells against NumPy; packed sequences."""
import warnings

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
from pyflame.nn.utils import rnn

RNG = np.random.default_rng(0)
T, N, I, H = 5, 3, 4, 6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def one_step(mode, w, x, h, c):
    """One step by its formula: (h, c)."""
    own, given = h @ w["weight_hh"].T + w["bias_hh"], x @ w["weight_ih"].T + w["bias_ih"]
    if mode == "RNN":
        return np.tanh(given + own), c
    if mode == "GRU":
        (xr, xz, xn), (hr, hz, hn) = np.split(given, 3, -1), np.split(own, 3, -1)
        z = sigmoid(xz + hz)
        return (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h, c
    i, f, g, o = np.split(given + own, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (h @ w["weight_hr"].T if "weight_hr" in w else h), c


def by_hand(mode, layer, x, h, c):
    """All layers and directions of x [T, N, I], step by step."""
    finals, at = [], 0
    for k in range(layer.num_layers):
        outputs = []
        for direction in range(2 if layer.bidirectional else 1):
            suffix = f"_l{k}" + "_reverse" * direction
            w = {name[: -len(suffix)]: p.detach().numpy() for name, p in layer.named_parameters() if name.endswith(suffix)}
            state, ys = (h[at], c[at]), [None] * len(x)
            for t in range(len(x))[:: -1 if direction else 1]:
                state = one_step(mode, w, x[t], *state)
                ys[t] = state[0]
            outputs.append(np.stack(ys))
            finals.append(state)
            at += 1
        x = np.concatenate(outputs, -1)
    return x, np.stack([s[0] for s in finals]), np.stack([s[1] for s in finals])


@pytest.mark.parametrize("mode,options", [
    (mode, options) for mode in ("RNN", "LSTM", "GRU") for options in ({}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "num_layers": 2})
] + [("LSTM", {"proj_size": 2, "bidirectional": True})])
def test_layers_are_their_formulas(mode, options):
    layer = getattr(nn, mode)(I, H, dtype=pf.float64, **options)
    many = layer.num_layers * (2 if layer.bidirectional else 1)
    x, h, c = RNG.standard_normal((T, N, I)), RNG.standard_normal((many, N, getattr(layer, "proj_size", 0) or H)), RNG.standard_normal((many, N, H))
    state = (pf.tensor(h), pf.tensor(c)) if mode == "LSTM" else pf.tensor(h)
    given = pf.tensor(x.swapaxes(0, 1).copy() if layer.batch_first else x)
    y, final = layer(given, state)
    want, want_h, want_c = by_hand(mode, layer, x, h, c)
    np.testing.assert_allclose(y.detach().numpy().swapaxes(0, 1) if layer.batch_first else y.detach().numpy(), want, rtol=1e-10)
    np.testing.assert_allclose((final[0] if mode == "LSTM" else final).detach().numpy(), want_h, rtol=1e-10)
    if mode == "LSTM":
        np.testing.assert_allclose(final[1].detach().numpy(), want_c, rtol=1e-10)
    with pf.no_grad():  # the way without gradients
        np.testing.assert_allclose(layer(given, state)[0].numpy(), y.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("mode,options", [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {}), ("LSTM", {"proj_size": 1}), ("GRU", {}), ("GRU", {"bias": False})])
def test_gradients(mode, options):
    """With respect to inputs, states and parameters, of a packed sequence; and gradients of gradients."""
    layer = getattr(nn, mode)(2, 3, bidirectional=True, dtype=pf.float64, **options)
    x = pf.tensor(RNG.standard_normal((3, 2, 2)), requires_grad=True)
    states = [pf.tensor(RNG.standard_normal((2, 2, width)), requires_grad=True) for width in layer._state_widths()]
    weights = list(layer.parameters())

    def run(x, *rest):
        for p, value in zip([q for q, _ in names], rest[len(states):]):
            setattr(layer, p, value)
        packed = rnn.pack_padded_sequence(x, [3, 2])
        y, final = layer(packed, rest[0] if len(states) == 1 else rest[: len(states)])
        return (y.data, *(final if isinstance(final, tuple) else (final,)))

    names = list(layer.named_parameters())
    for name, _ in names:
        delattr(layer, name)
    assert pf.autograd.gradcheck(run, (x, *states, *[w.detach().requires_grad_() for w in weights]))

    def slope(x):
        with pf.enable_grad():
            x = x if x.requires_grad else x.clone().requires_grad_()
            return pf.autograd.grad((run(x, *states, *weights)[0] ** 2).sum(), [x], create_graph=True)[0]

    assert pf.autograd.gradcheck(slope, (x,))


@pytest.mark.parametrize("mode", ["RNN", "LSTM", "GRU"])
def test_cells_are_steps_of_the_layers(mode):
    layer, cell = getattr(nn, mode)(I, H), getattr(nn, mode + "Cell")(I, H)
    cell.load_state_dict({k: layer.state_dict()[k + "_l0"] for k in cell.state_dict()})
    x, state = pf.randn(T, N, I), None
    for t in range(T):
        state = cell(x[t], state)
    y, _ = layer(x)
    h = state[0] if mode == "LSTM" else state
    np.testing.assert_allclose(h.detach().numpy(), y[-1].detach().numpy(), rtol=1e-5, atol=1e-6)
    one = cell(x[0, 0])
    assert (one[0] if mode == "LSTM" else one).shape == (H,)
    assert repr(cell) == f"{mode}Cell({I}, {H})"


def test_packed_sequences_are_the_sequences_one_by_one():
    layer = nn.LSTM(I, H, 2, bidirectional=True)
    lengths = [2, 5, 1]
    parts = [pf.randn(n, I) for n in lengths]
    packed = rnn.pack_sequence(parts, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1, 1] and packed.sorted_indices.tolist() == [1, 0, 2] and packed.unsorted_indices.tolist() == [1, 0, 2]
    y, (h, c) = layer(packed)
    for i, (own, part) in enumerate(zip(rnn.unpack_sequence(y), parts)):
        alone, (h1, c1) = layer(part)
        for got, want in ((own, alone), (h[:, i], h1), (c[:, i], c1)):
            np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_padding_and_back():
    parts = [pf.arange(n, dtype=pf.float32).view(n, 1) + 10 * n for n in (3, 1, 2)]
    assert rnn.pad_sequence(parts, True, -1.0)[..., 0].tolist() == [[30, 31, 32], [10, -1, -1], [20, 21, -1]]
    assert rnn.pad_sequence(parts, True, padding_side="left")[..., 0].tolist() == [[30, 31, 32], [0, 0, 10], [0, 20, 21]]
    assert rnn.pad_sequence(parts).shape == (3, 3, 1)
    for first in (False, True):
        packed = rnn.pack_padded_sequence(rnn.pad_sequence(parts, first), pf.tensor([3, 1, 2]), first, enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed, first, 7.0, total_length=4)
        assert lengths.tolist() == [3, 1, 2]
        assert [p.tolist() for p in rnn.unpad_sequence(padded, lengths, first)] == [p.tolist() for p in parts]
        assert (padded if first else padded.transpose(0, 1))[1, :, 0].tolist() == [10, 7, 7, 7]
    assert packed.to(pf.float64).data.dtype == pf.float64 and packed.double().batch_sizes is packed.batch_sizes
    assert rnn.PackedSequence(packed.data, packed.batch_sizes, packed.sorted_indices).unsorted_indices.tolist() == packed.unsorted_indices.tolist()


def test_names_initial_values_and_options():
    layer = nn.LSTM(I, H, num_layers=2, bidirectional=True, proj_size=2)
    assert [name for name, _ in layer.named_parameters()][:10] == [f"{part}_l0{way}" for way in ("", "_reverse") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]
    assert layer.weight_ih_l1.shape == (4 * H, 4) and layer.weight_hh_l1_reverse.shape == (4 * H, 2) and len(layer.all_weights) == 4
    assert all(p.abs().max().item() <= H**-0.5 for p in layer.parameters())
    assert repr(layer) == f"LSTM({I}, {H}, proj_size=2, num_layers=2, bidirectional=True)"
    assert layer.flatten_parameters() is None
    dropped = nn.GRU(I, H, 2, dropout=1.0)
    x = pf.randn(T, N, I)
    assert not np.allclose(dropped(x)[0].detach().numpy(), dropped.eval()(x)[0].detach().numpy())
    with pytest.warns(UserWarning, match="dropout is between layers"):
        nn.RNN(I, H, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.RNN(I, H, 2, dropout=0.5)


@pytest.mark.parametrize("wrong,error,text", [
    (lambda: nn.RNN(I, H, nonlinearity="gelu"), ValueError, "RNN: unknown nonlinearity; got 'gelu'"),
    (lambda: nn.LSTM(I, 0), ValueError, "LSTM: hidden_size and num_layers must be positive"),
    (lambda: nn.GRU(I, H, 2**70), ValueError, f"GRU: too many layers; got num_layers {2**70}; expected at most 65536"),
    (lambda: nn.LSTM(I, 2.0), TypeError, "LSTM: hidden_size is not an integer; got float"),
    (lambda: nn.LSTM(I, H, proj_size=H), ValueError, "LSTM: proj_size is out of range"),
    (lambda: nn.GRU(I, H, 2, dropout=2), ValueError, "GRU: dropout is not a probability; got 2"),
    (lambda: nn.GRU(I, H)(pf.ones(I)), ValueError, "GRU: the input has 1 dimensions"),
    (lambda: nn.GRU(I, H)(pf.ones(T, N, I + 1)), RuntimeError, "GRU: the input's last size does not fit; got 5; expected input_size 4"),
    (lambda: nn.GRU(I, H)(pf.ones(T, N, I), pf.ones(1, N, I)), RuntimeError, "GRU: the initial state does not fit"),
    (lambda: nn.LSTM(I, H)(pf.ones(T, N, I), pf.ones(1, N, H)), TypeError, r"LSTM: the initial state is not a pair \(h_0, c_0\)"),
    (lambda: nn.LSTM(I, H)(pf.ones(0, N, I)), RuntimeError, "LSTM: the sequence is empty"),
    (lambda: nn.GRUCell(I, H)(pf.ones(N, I + 1)), RuntimeError, "GRUCell: the input's last size does not fit"),
    (lambda: nn.GRUCell(I, H)(pf.ones(N, I), pf.ones(N, I)), RuntimeError, "GRUCell: the state does not fit"),
    (lambda: nn.GRUCell(I, H)(pf.ones(1, N, I)), ValueError, "GRUCell: the input has 3 dimensions"),
    (lambda: nn.GRUCell(I, H)(pf.ones(N, I), pf.ones(1, N, I)), ValueError, "GRUCell: the state has 3 dimensions"),
    (lambda: rnn.pack_padded_sequence(pf.ones(T, N, I), [1, 2, 3]), RuntimeError, "the lengths do not fall; .*enforce_sorted=False"),
    (lambda: rnn.pack_padded_sequence(pf.ones(T, N, I), [3, 2, 0]), RuntimeError, r"a length is out of range; got \[3, 2, 0\]; expected 1 to 5"),
    (lambda: rnn.pack_padded_sequence(pf.ones(T, N, I), [3]), RuntimeError, "the lengths do not fit; got 1 for a batch of 3"),
    (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([pf.ones(3, 1)]), total_length=2), ValueError, "total_length is too small; got 2"),
    (lambda: rnn.pad_sequence([]), RuntimeError, "pad_sequence: no sequences"),
    (lambda: rnn.pad_sequence([pf.ones(1)], padding_side="up"), ValueError, "unknown padding_side; got 'up'"),
])
def test_errors(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()


@pytest.mark.parametrize("layer", [lambda: nn.LSTM(16, 64), lambda: nn.LSTM(16, 64, 2, bidirectional=True, proj_size=8), lambda: nn.GRU(16, 64), lambda: nn.RNN(16, 64)])
@pytest.mark.parametrize("steps, device", [(1, "cpu"), (20, "cpu"), (3, "reference")])
def test_training_steps_free_their_memory(layer, steps, device):
    """The states of all steps are kept for the gradients, and no longer. The reference device has one op for the layers."""
    layer, x = layer().to(device), pf.randn(steps, 32, 16).to(device)

    def live():
        for _ in range(4):
            layer(x)[0].sum().backward()
        pf.synchronize()
        return pf.memory_stats()["allocated"]

    first = live()
    assert live() - first < 1 << 14


def everything(layer, x, states, device):
    """Outputs, final states, gradients of inputs, states and weights, and a second derivative."""
    layer = layer.to(device)
    x, *states = (t.detach().to(device).requires_grad_() for t in (x, *states))
    pf.manual_seed(4)
    y, last = layer(x, tuple(states) if len(states) == 2 else states[0])
    results = [y, *(last if isinstance(last, tuple) else (last,))]
    loss = sum((r * r * (i + 1)).sum() for i, r in enumerate(results))
    wanted = [x, *states, *layer.parameters()]
    grads, again = (pf.autograd.grad(loss, wanted, retain_graph=True) for _ in range(2))
    assert all(pf.equal(a, b) for a, b in zip(grads, again))
    (dx,) = pf.autograd.grad(loss, x, create_graph=True)
    second = pf.autograd.grad((dx * dx).sum(), wanted)
    return [t.detach().to("cpu") for t in (*results, *grads, *second)]


@pytest.mark.parametrize("options", [{}, {"num_layers": 3, "bidirectional": True}, {"num_layers": 2, "bias": False}, {"num_layers": 3, "dropout": 0.5}], ids=str)
@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_one_op_for_all_layers_is_their_steps(cls, options):
    """The op is the reference device's; GPUs have it where a library computes it (tests/ops/test_recurrent_library.py)."""
    layer = cls(I, H, dtype=pf.float64, **options)
    many = layer.num_layers * (2 if layer.bidirectional else 1)
    x, *states = (pf.randn(*s, dtype=pf.float64) for s in ((T, N, I), *[(many, N, H)] * (2 if cls is nn.LSTM else 1)))
    want = everything(layer, x, states, "cpu")
    got = []
    text = pf.explain(lambda: got.extend(everything(layer, x, states, "reference")))
    assert " recurrent(" in text and " recurrent_grad(" in text, text
    for g, w in zip(got, want):
        assert g.shape == w.shape and pf.allclose(g, w, rtol=1e-9, atol=1e-9)


def test_why_layers_go_step_by_step():
    layer, projected = nn.LSTM(I, H, device="reference"), nn.LSTM(I, H, proj_size=2, device="reference")
    x = pf.randn(T, N, I, device="reference")
    packed = rnn.pack_padded_sequence(x, pf.tensor([5, 3, 1]))
    for call, why in ((lambda: layer(x)[0], None), (lambda: projected(x)[0], "a projection"), (lambda: layer(packed)[0].data, "sequences of different lengths"),
                      (lambda: layer(pf.randn(T, 0, I, device="reference"))[0], "there are no elements")):
        text = pf.explain(lambda: call().sum().item())  # noqa: B023
        assert ("recurrent(" in text) == (why is None) and ("step by step" in text) == (why is not None)
        assert why is None or f"1 x  {why}" in text


FUNCTIONS = {"lstm": (nn.LSTM, {}), "lstm with projections": (nn.LSTM, {"proj_size": 1}), "gru": (nn.GRU, {}), "rnn_tanh": (nn.RNN, {}), "rnn_relu": (nn.RNN, {"nonlinearity": "relu"})}


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}, {"num_layers": 2, "batch_first": True}])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_weights_are_the_layers(name, options):
    cls, own = FUNCTIONS[name]
    layer = cls(I, H, dtype=pf.float64, **own, **options)
    many = layer.num_layers * (2 if layer.bidirectional else 1)
    lstm, function = cls is nn.LSTM, getattr(pf, name.split()[0])
    h, c = (pf.randn(many, 3, n, dtype=pf.float64) for n in (layer.proj_size or H, H))
    hx = (h, c) if lstm else h
    rest = (list(layer.parameters()), layer.bias, layer.num_layers, 0.5, False, layer.bidirectional)
    x = pf.randn(3, 3, I, dtype=pf.float64)

    def same(got, want):
        y, final = want
        want = (y, *final) if lstm else (y, final)
        assert len(got) == len(want) and all(a.shape == b.shape and pf.allclose(a, b, rtol=1e-12, atol=0) for a, b in zip(got, want))

    same(function(x, hx, *rest, layer.batch_first), layer(x, hx))
    same(function(input=x, hx=hx, **dict(zip(("params", "has_biases", "num_layers", "dropout", "train", "bidirectional"), rest)), batch_first=layer.batch_first), layer(x, hx))
    packed = rnn.pack_padded_sequence(x, [3, 2, 1], batch_first=layer.batch_first)
    y, final = layer(packed, hx)
    same(function(packed.data, packed.batch_sizes, hx, *rest), (y.data, final))


def test_functions_of_weights_drop_in_training():
    layer, x, h = nn.GRU(I, H, 2, dropout=1.0), pf.randn(T, N, I), pf.zeros(2, N, H)
    run = lambda train: pf.gru(x, h, list(layer.parameters()), True, 2, 1.0, train, False, False)[0]  # noqa: E731
    assert pf.equal(run(False), layer.eval()(x)[0]) and pf.equal(run(True), layer.train()(x)[0]) and not pf.equal(run(True), run(False))


@pytest.mark.parametrize("change,text", [
    ({"params": []}, "gru: wrong number of params; got 0; expected 4: weight_ih, weight_hh, bias_ih, bias_hh for each of 1 layers and directions"),
    ({"input": pf.ones(2, I)}, r"gru: the input does not fit; got shape .2, 4.; expected .T, N, I."),
    ({"input": pf.ones(2, N, I + 1)}, "gru: the input's last size does not fit; got 5; expected 4"),
    ({"input": pf.ones(0, N, I)}, "gru: the sequence is empty"),
    ({"hx": pf.ones(1, N)}, "gru: hx does not fit"),
    ({"hx": pf.ones(2, N, H)}, "gru: hx does not fit; got shape"),
])
def test_errors_of_functions_of_weights(change, text):
    layer = nn.GRU(I, H)
    given = {"input": pf.ones(T, N, I), "hx": pf.zeros(1, N, H), "params": list(layer.parameters()), "has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False,
             "bidirectional": False, "batch_first": False, **change}
    with pytest.raises(pf.ArgumentError, match=text):
        pf.gru(**given)


def test_forms_of_functions_of_weights():
    layer, h = nn.LSTM(I, H), pf.zeros(1, N, H)
    for args in ((), (pf.ones(T, N, I), (h, h), list(layer.parameters()))):
        with pytest.raises(TypeError, match="lstm: the arguments fit no form; got"):
            pf.lstm(*args)
    with pytest.raises(pf.ArgumentError, match="lstm: batch_sizes do not fit; got a sum of 3; expected the 4 rows of data"):
        pf.lstm(pf.ones(4, I), pf.tensor([2, 1]), (h[:, :1].expand(1, 2, H), h[:, :1].expand(1, 2, H)), list(layer.parameters()), True, 1, 0.0, False, False)
    with pytest.raises(pf.ArgumentError, match="lstm: hx does not fit; got shapes .*; expected h_0 and c_0"):
        pf.lstm(pf.ones(T, N, I), (h,), list(layer.parameters()), True, 1, 0.0, False, False, False)
