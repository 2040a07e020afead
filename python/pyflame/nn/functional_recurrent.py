"""Recurrent layers as functions of their weights: lstm, gru, rnn_tanh, rnn_relu, in PyTorch's two forms."""
from __future__ import annotations

from .. import _C
from .._C import Tensor
from .._keywords import naming
from .recurrent import run_layers

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

_AFTER = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
_PADDED, _PACKED = ("input", *_AFTER, "batch_first"), ("data", "batch_sizes", *_AFTER)


def _given(op, args, keywords):
    """(the arguments by name, whether the form is the packed one)."""
    pair = op == "lstm"
    packed = "batch_sizes" in keywords or len(args) > 2 and isinstance(args[1 if pair else 2], Tensor)
    names = _PACKED if packed else _PADDED
    given = dict(zip(names, args))
    if len(args) > len(names) or given.keys() & keywords.keys() or given.keys() | keywords.keys() != set(names):
        raise TypeError(f"{op}: the arguments fit no form; got {len(args)} and {', '.join(keywords) or 'no keywords'}; expected {op}({', '.join(_PADDED)}) or {op}({', '.join(_PACKED)})")
    return {**given, **keywords}, packed


def _weights(op, a, projected):
    """The params as a dict for each layer and direction."""
    names = ("weight_ih", "weight_hh") + ("bias_ih", "bias_hh") * bool(a["has_biases"]) + ("weight_hr",) * projected
    params, each = list(a["params"]), len(names)
    count = a["num_layers"] * (2 if a["bidirectional"] else 1)
    if len(params) != count * each:
        raise _C.ArgumentError(f"{op}: wrong number of params; got {len(params)}; expected {count * each}: {', '.join(names)} for each of {count} layers and directions")
    return [dict(zip(names, params[i : i + each])) for i in range(0, len(params), each)]


def _run(op, mode, args, keywords):
    a, packed = _given(op, args, keywords)
    states = tuple(a["hx"]) if op == "lstm" else (a["hx"],)
    if len(states) != (2 if op == "lstm" else 1) or any(s.ndim != 3 for s in states):
        raise _C.ArgumentError(f"{op}: hx does not fit; got shapes {[tuple(s.shape) for s in states]}; expected {'h_0 and c_0' if op == 'lstm' else 'h_0'} of [layers * directions, N, H]")
    weights = _weights(op, a, op == "lstm" and states[0].shape[2] != states[1].shape[2])
    x = a["data" if packed else "input"]
    if x.ndim != (2 if packed else 3):
        raise _C.ArgumentError(f"{op}: the input does not fit; got shape {tuple(x.shape)}; expected {'[rows, I]' if packed else '[T, N, I], or [N, T, I] with batch_first'}")
    if packed:
        sizes = a["batch_sizes"].tolist()
    else:
        x = x.transpose(0, 1) if a["batch_first"] else x
        sizes = [x.shape[1]] * x.shape[0]
    _check(op, x, sizes, states, weights)
    y, final = run_layers(mode, weights, x.reshape(-1, x.shape[-1]), sizes, states, a["dropout"] if a["train"] else 0.0, a["bidirectional"])
    if not packed:
        y = y.view(*x.shape[:2], y.shape[1])
        y = y.transpose(0, 1) if a["batch_first"] else y
    return (y, *final)


def _check(op, x, sizes, states, weights):
    if not sizes:
        raise _C.ArgumentError(f"{op}: the sequence is empty; got shape {tuple(x.shape)}; expected at least one step")
    if x.ndim == 2 and sum(sizes) != x.shape[0]:
        raise _C.ArgumentError(f"{op}: batch_sizes do not fit; got a sum of {sum(sizes)}; expected the {x.shape[0]} rows of data")
    width = weights[0]["weight_ih"].shape[1]
    if x.shape[-1] != width:
        raise _C.ArgumentError(f"{op}: the input's last size does not fit; got {x.shape[-1]}; expected {width}, that of weight_ih")
    out = weights[0]["weight_hh"].shape[1]
    for s in states[:1]:
        if tuple(s.shape) != (len(weights), sizes[0], out):
            raise _C.ArgumentError(f"{op}: hx does not fit; got shape {tuple(s.shape)}; expected {(len(weights), sizes[0], out)}")
    for s in states[1:]:
        if tuple(s.shape[:2]) != (len(weights), sizes[0]):
            raise _C.ArgumentError(f"{op}: hx does not fit; got shape {tuple(s.shape)}; expected {(len(weights), sizes[0], s.shape[2])}")


def lstm(*args: Any, **keywords: Any) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM of given weights: lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) -> (outputs, h_n, c_n), or for the rows of
    a PackedSequence lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional).

    input [T, N, I] ([N, T, I] with batch_first) or data [rows, I]; hx = (h_0, c_0), each [layers * directions, N, H]; params: for each layer and direction weight_ih,
    weight_hh, with has_biases bias_ih and bias_hh, and weight_hr where h_0 is narrower than c_0. dropout: between layers if train. nn.LSTM has the formulas.
    ArgumentError for sizes that do not fit, TypeError for other arguments."""
    return _run("lstm", "LSTM", args, keywords)


def gru(*args: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
    """A GRU of given weights: gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) -> (outputs, h_n), or for the rows of a
    PackedSequence gru(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional). hx is h_0; the others are as in lstm.

    ValueError for another number of params, and where hx or the weights do not fit the input; TypeError where the dtypes differ.
    """
    return _run("gru", "GRU", args, keywords)


def rnn_tanh(*args: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
    """An RNN with tanh of given weights -> (outputs, h_n). The arguments are those of gru.

    ValueError for another number of params, and where hx or the weights do not fit the input; TypeError where the dtypes differ.
    """
    return _run("rnn_tanh", "RNN_TANH", args, keywords)


def rnn_relu(*args: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
    """An RNN with ReLU of given weights -> (outputs, h_n). The arguments are those of gru.

    ValueError for another number of params, and where hx or the weights do not fit the input; TypeError where the dtypes differ.
    """
    return _run("rnn_relu", "RNN_RELU", args, keywords)


naming(globals(), __name__)
