"""Recurrent layers and their cells: RNN, LSTM, GRU. Names of parameters, initial values and shapes are PyTorch's."""
from __future__ import annotations

import math
import warnings

from .. import _C
from .._keywords import naming
from . import _recurrence as steps
from . import init
from ._arguments import _integers, _tensor
from .functional import dropout
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from .._C import Tensor
    from .._annotations import DType, Device

_MOST_LAYERS = 2**16  # each layer has parameters of its own, so a number without a bound would fill the memory before it ends
_STEPS = {"LSTM": steps.LSTMStep, "GRU": steps.GRUStep, "RNN_TANH": steps.RNNStep, "RNN_RELU": steps.ReLUStep}


def _sum(a, b):
    return a if b is None else a + b


class RNNBase(Module):
    """What RNN, LSTM and GRU share: parameters, layers, directions, packed sequences.

    mode: 'RNN_TANH', 'RNN_RELU', 'LSTM' or 'GRU'. input_size: I. hidden_size: H. num_layers: how many layers, the next on the outputs of the one
    before. bias: whether there are bias_ih and bias_hh. batch_first: the batch is the first dim of input and output. dropout: the probability of
    zeros between layers; it needs several layers. bidirectional: also from the end to the beginning. proj_size: the size of h in an LSTM with a
    projection; 0: there is none.

    Raises ValueError for an unknown mode, a hidden_size or num_layers below 1, more than 65536 layers, a dropout outside of 0 to 1, and a proj_size that is not below hidden_size
    or is given to another mode than 'LSTM'; TypeError for sizes that are not ints.
    """

    def __init__(self, mode: Literal["LSTM", "GRU", "RNN_TANH", "RNN_RELU"], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        _check_sizes(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional, self.proj_size = bias, batch_first, float(dropout), bidirectional, proj_size
        if dropout > 0 and num_layers == 1:
            warnings.warn(f"{type(self).__name__}: dropout is between layers, so it needs num_layers greater than 1; got dropout={dropout} and num_layers=1", stacklevel=3)
        gates, directions = _STEPS[mode].gates * hidden_size, 2 if bidirectional else 1
        self._flat_weights_names, self._all_weights = [], []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[:directions]:
                width = input_size if layer == 0 else (proj_size or hidden_size) * directions
                shapes = {"weight_ih": (gates, width), "weight_hh": (gates, proj_size or hidden_size)}
                if bias:
                    shapes.update(bias_ih=(gates,), bias_hh=(gates,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = [f"{name}_l{layer}{suffix}" for name in shapes]
                for name, shape in zip(names, shapes.values()):
                    setattr(self, name, Parameter(_C.empty(shape, dtype=dtype, device=device)))
                self._flat_weights_names += names
                self._all_weights.append(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew, uniformly between -1 / sqrt(hidden_size) and 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing. PyTorch puts the parameters into one block of memory for its kernels, which PyFlame's do not need."""

    @property
    def all_weights(self):
        """The parameters of each layer and direction, as a list of lists."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        for name, otherwise in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False)):
            if getattr(self, name) != otherwise:
                s += f", {name}={getattr(self, name)}"
        return s

    # ---- states

    def _state_widths(self):
        return (self.proj_size or self.hidden_size, self.hidden_size)[: _STEPS[self.mode].states]

    def _initial(self, hx, batch, like, batched):
        """The initial states as a tuple of [layers * directions, batch, width]; zeros without hx."""
        layers = self.num_layers * (2 if self.bidirectional else 1)
        widths = self._state_widths()
        if hx is None:
            return tuple(_C.zeros(layers, batch, w, dtype=like.dtype, device=like.device) for w in widths)
        given = (hx,) if len(widths) == 1 else hx
        if not isinstance(given, (tuple, list)) or len(given) != len(widths):
            raise TypeError(f"{type(self).__name__}: the initial state is not a pair (h_0, c_0); got {type(hx).__name__}")
        for s in given:
            _tensor(type(self).__name__, "the initial state", s)
        if not batched:
            given = tuple(s.unsqueeze(1) if s.ndim == 2 else s for s in given)
        for s, w in zip(given, widths):
            if tuple(s.shape) != (layers, batch, w):
                raise _C.ArgumentError(f"{type(self).__name__}: the initial state does not fit; got shape {tuple(s.shape)}; expected {(layers, batch, w)}")
        return tuple(given)

    def _run(self, data, sizes, initial):
        """data [rows, width] and states [layers * directions, batch, width] -> outputs [rows, width], final states."""
        weights = [{name.split("_l")[0]: getattr(self, name) for name in names} for names in self._all_weights]
        return run_layers(self.mode, weights, data, sizes, initial, self.dropout if self.training else 0.0, self.bidirectional)

    # ---- the call

    def _result(self, states):
        return states[0] if len(states) == 1 else states

    def _check_width(self, x):
        if x.shape[-1] != self.input_size:
            raise _C.ArgumentError(f"{type(self).__name__}: the input's last size does not fit; got {x.shape[-1]}; expected input_size {self.input_size}")

    def forward(self, input: Tensor | PackedSequence,
                hx: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor | PackedSequence, Tensor | tuple[Tensor, Tensor]]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        _tensor(type(self).__name__, "the input", input)
        if input.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: the input has {input.ndim} dimensions; expected 2 (T, I) or 3 (T, N, I)")
        self._check_width(input)
        batched = input.ndim == 3
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        x = x.transpose(0, 1) if self.batch_first else x
        time, batch = x.shape[:2]
        if time == 0:
            raise _C.ArgumentError(f"{type(self).__name__}: the sequence is empty; got shape {tuple(input.shape)}; expected at least one step")
        y, final = self._run(x.reshape(time * batch, self.input_size), [batch] * time, self._initial(hx, batch, x, batched))
        y = y.view(time, batch, y.shape[1])
        y = y.transpose(0, 1) if self.batch_first else y
        if batched:
            return y, self._result(final)
        return y.squeeze(0 if self.batch_first else 1), self._result(tuple(s.squeeze(1) for s in final))

    def _forward_packed(self, packed, hx):
        self._check_width(packed.data)
        sizes = packed.batch_sizes.tolist()
        initial = self._initial(hx, sizes[0], packed.data, True)
        if hx is not None and packed.sorted_indices is not None:
            initial = tuple(s.index_select(1, packed.sorted_indices) for s in initial)
        y, final = self._run(packed.data, sizes, initial)
        if packed.unsorted_indices is not None:
            final = tuple(s.index_select(1, packed.unsorted_indices) for s in final)
        return PackedSequence(y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), self._result(final)


def run_layers(mode, weights, data, sizes, initial, p, bidirectional):
    """All layers over data [rows, width], whose steps have `sizes` rows, from the states [layers * directions, batch, width]: outputs [rows, width], final states.

    weights: for each layer and direction a dict of weight_ih, weight_hh and, where they are there, bias_ih, bias_hh, weight_hr. p: dropout between layers."""
    each = (2 if bidirectional else 1) if p else len(weights)  # dropout is between the layers
    finals = []
    for first in range(0, len(weights), each):
        part = slice(first, first + each)
        given = (mode, weights[part], data, sizes, initial if each == len(weights) else tuple(s[part] for s in initial), bidirectional)
        data, final = _run_whole(*given) or _run_steps(*given)
        finals.append(final)
        if p and part.stop < len(weights):
            data = dropout(data, p, True)
    return data, finals[0] if len(finals) == 1 else tuple(_C.cat(same) for same in zip(*finals))


def _run_whole(mode, weights, data, sizes, initial, bidirectional):
    """All layers by one op, or None (_recurrence.whole)."""
    names, count = [[n for n, t in w.items() if t is not None] for w in weights], len(initial)

    def again(x, *rest):
        states, given = rest[:count], iter(rest[count:])
        y, final = _run_steps(mode, [{n: next(given) for n in of} for of in names], x.reshape(-1, x.shape[2]), sizes, states, bidirectional)
        return (y.view(*x.shape[:2], y.shape[1]), *final)

    return steps.whole(mode, weights, data, sizes, initial, bidirectional, again)


def _run_steps(mode, weights, data, sizes, initial, bidirectional):
    """All layers step by step, without dropout."""
    finals, directions = [], 2 if bidirectional else 1
    for first in range(0, len(weights), directions):
        outputs = []
        for at in range(first, first + directions):
            y, final = _run_one(mode, weights[at], data, sizes, at > first, tuple(s.select(0, at) for s in initial))
            outputs.append(y)
            finals.append(final)
        data = outputs[0] if directions == 1 else _C.cat(outputs, 1)
    return data, tuple(_C.stack(same) for same in zip(*finals))


def _run_one(mode, w, data, sizes, reverse, initial):
    b_ih, b_hh = w.get("bias_ih"), w.get("bias_hh")
    if mode == "GRU":
        rest = (w["weight_hh"], b_hh)
    else:
        rest, b_ih = (w["weight_hh"], w.get("weight_hr")), b_ih if b_ih is None else b_ih + b_hh
    return steps.run(_STEPS[mode], sizes, reverse, _C.linear(data, w["weight_ih"], b_ih), initial, rest)


def _check_sizes(mode, input_size, hidden_size, num_layers, dropout, proj_size):
    if mode not in _STEPS:
        raise ValueError(f"RNNBase: there is no such mode; got {mode!r}; expected one of {', '.join(_STEPS)}")
    for name, v in (("hidden_size", hidden_size), ("input_size", input_size)):
        if not isinstance(v, int):
            raise TypeError(f"{mode}: {name} is not an integer; got {type(v).__name__}")
    for name, v in (("num_layers", num_layers), ("proj_size", proj_size)):
        if not hasattr(v, "__index__"):
            raise TypeError(f"{mode}: {name} is not an integer; got {type(v).__name__}")
    if input_size < 0:
        raise ValueError(f"{mode}: input_size is negative; got {input_size}; expected 0 or more")
    if hidden_size <= 0 or num_layers <= 0:
        raise ValueError(f"{mode}: hidden_size and num_layers must be positive; got {hidden_size} and {num_layers}")
    if num_layers > _MOST_LAYERS:
        raise ValueError(f"{mode}: too many layers; got num_layers {num_layers}; expected at most {_MOST_LAYERS}")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError(f"{mode}: dropout is not a probability; got {dropout}; expected a number between 0 and 1")
    if proj_size < 0 or proj_size >= hidden_size:
        raise ValueError(f"{mode}: proj_size is out of range; got {proj_size}; expected 0 or more and less than hidden_size {hidden_size}")
    if proj_size and mode != "LSTM":
        raise ValueError(f"{mode}: only LSTM has projections; got proj_size {proj_size}; expected 0")


class RNN(RNNBase):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), or relu, in each layer: input [T, N, I] ([N, T, I] with batch_first; [T, I] without a batch) or a
    PackedSequence, h_0 [layers * directions, N, H] -> outputs of the last layer [T, N, directions * H], h_n.

    - input_size I and hidden_size H: the sizes of x_t and h_t. num_layers: each layer reads the outputs of the one before.
    - nonlinearity: "tanh" or "relu". bias: whether b_ih and b_hh are there.
    - batch_first: the batch is the first dim of inputs and outputs; that of h_0 stays the second.
    - dropout: the probability with which outputs of all layers but the last become 0 in training.
    - bidirectional: a second direction reads from the end, and the outputs are side by side.
    - device, dtype: of the parameters; the current ones unless given.

    Raises ValueError for a hidden_size or num_layers below 1 a dropout outside of 0 to 1 and an unknown nonlinearity; TypeError for sizes that are not
    ints. A call raises ValueError for an input or a state that does not fit and for a sequence without steps, and TypeError for another dtype than the
    parameters'.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: Literal["tanh", "relu"] = "tanh", bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: unknown nonlinearity; got '{nonlinearity}'; expected 'tanh' or 'relu'")
        super().__init__("RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         device=device, dtype=dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): input [T, N, I] ([N, T, I] with batch_first; [T, I] without a batch) or a PackedSequence,
    (h_0, c_0) each [layers * directions, N, H] -> outputs of the last layer [T, N, directions * H], (h_n, c_n). h_0 and c_0 are zeros unless given.
    With proj_size P, each h_t is projected to P elements: outputs are [T, N, directions * P], h_0 and h_n [layers * directions, N, P]; c keeps H.
    With i, f, g, o = the four parts of W_ih x_t + b_ih + W_hh h_(t-1) + b_hh: c_t = sigmoid(f) c_(t-1) + sigmoid(i) tanh(g); h_t = sigmoid(o) tanh(c_t).
    The other arguments are those of RNN.

    input_size: I. hidden_size: H. num_layers: how many layers, the next on the outputs of the one before. bias: whether there are bias_ih and bias_hh.
    batch_first: the batch is the first dim of input and output. dropout: the probability of zeros between layers; with one layer it does nothing.
    bidirectional: also from the end to the beginning. ValueError for sizes that are not positive, a dropout outside of [0, 1] and a P that is not less
    than H; in forward for other dims, another I and a state of another shape. TypeError there for another dtype than that of the parameters.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, proj_size: int = 0, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014), with the reset gate after the product: input [T, N, I] ([N, T, I] with batch_first; [T, I] without a batch)
    or a PackedSequence, h_0 [layers * directions, N, H] -> outputs of the last layer [T, N, directions * H], h_n. The other arguments are
    those of RNN.

    input_size: I. hidden_size: H. num_layers: how many layers, the next on the outputs of the one before. bias: whether there are bias_ih and
    bias_hh. batch_first: the batch is the first dim of input and output. dropout: the probability of zeros between layers; with one layer it does nothing.
    bidirectional: also from the end to the beginning.

    Raises ValueError for a hidden_size or num_layers below 1 and a dropout outside of 0 to 1; TypeError for sizes that are not ints. A call raises
    ValueError for an input or a state that does not fit and for a sequence without steps, and TypeError for another dtype than the parameters'.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype)


class RNNCellBase(Module):
    """What the cells share: one step of a layer, with parameters weight_ih, weight_hh, bias_ih and bias_hh.

    input_size: I. hidden_size: H. bias: whether there are bias_ih and bias_hh. num_chunks: how many times H rows the parameters have: 1 for an RNN, 4
    for an LSTM, 3 for a GRU.

    Raises ValueError for a negative size, and TypeError for a size that is not an int.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__()
        _integers(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        if input_size < 0 or hidden_size < 0:
            raise ValueError(f"{type(self).__name__}: sizes must not be negative; got input_size {input_size}, hidden_size {hidden_size}")
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        for name, shape in (("weight_ih", (input_size,)), ("weight_hh", (hidden_size,)), ("bias_ih", ()), ("bias_hh", ())):
            used = bias or name.startswith("weight")
            self.register_parameter(name, Parameter(_C.empty(num_chunks * hidden_size, *shape, dtype=dtype, device=device)) if used else None)
        self.reset_parameters()

    reset_parameters = RNNBase.reset_parameters

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            s += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return s if nonlinearity == "tanh" else s + f", nonlinearity={nonlinearity}"

    def _batched(self, input, states):
        """Input and states as [N, width]; zeros where there is no state."""
        name = type(self).__name__
        _tensor(name, "the input", input)
        for s in states:
            if s is not None:
                _tensor(name, "the state", s)
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: the input has {input.ndim} dimensions; expected 1 (I) or 2 (N, I)")
        if input.shape[-1] != self.input_size:
            raise _C.ArgumentError(f"{name}: the input's last size does not fit; got {input.shape[-1]}; expected input_size {self.input_size}")
        x = input if input.ndim == 2 else input.unsqueeze(0)
        shape = (x.shape[0], self.hidden_size)
        out = []
        for s in states:
            if s is None:
                s = _C.zeros(shape, dtype=x.dtype, device=x.device)
            elif s.ndim not in (1, 2):
                raise ValueError(f"{name}: the state has {s.ndim} dimensions; expected 1 (H) or 2 (N, H)")
            s = s if s.ndim == 2 else s.unsqueeze(0)
            if tuple(s.shape) != shape:
                raise _C.ArgumentError(f"{name}: the state does not fit; got shape {tuple(s.shape)}; expected {shape}")
            out.append(s)
        return x, tuple(out)

    def _step(self, kind, input, states):
        x, states = self._batched(input, states)
        gru = kind is steps.GRUStep
        bias = self.bias_ih if gru or not self.bias else self.bias_ih + self.bias_hh
        rest = (self.weight_hh, self.bias_hh) if gru else (self.weight_hh,)
        new, _ = kind(x.shape[0], *rest).forward(_C.linear(x, self.weight_ih, bias), states)
        return new if input.ndim == 2 else tuple(s.squeeze(0) for s in new)


class RNNCell(RNNCellBase):
    """One step of an RNN: [N, I] and h [N, H] -> h' [N, H]; also without a batch.

    input_size: I. hidden_size: H. bias: whether there are bias_ih and bias_hh. nonlinearity: 'tanh' or 'relu'.

    Raises ValueError for a negative size and an unknown nonlinearity; TypeError for a size that is not an int. A call raises ValueError for an input or a
    state that does not fit, and TypeError for what is no tensor and another dtype than the parameters'.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: Literal["tanh", "relu"] = "tanh", device: Device | None = None,
                 dtype: DType | None = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: unknown nonlinearity; got {nonlinearity!r}; expected 'tanh' or 'relu'")
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):  # of a program that set it later
            raise RuntimeError(f"RNNCell: unknown nonlinearity; got '{self.nonlinearity}'; expected 'tanh' or 'relu'")
        return self._step(steps.RNNStep if self.nonlinearity == "tanh" else steps.ReLUStep, input, (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: [N, I] and (h, c), each [N, H] -> (h', c'); also without a batch.

    input_size: I. hidden_size: H. bias: whether there are bias_ih and bias_hh.

    Raises ValueError for a negative size; TypeError for a size that is not an int. A call raises ValueError for an input or a state that does not fit, and
    TypeError for another dtype than the parameters'.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise TypeError(f"LSTMCell: the state is not a pair (h, c); got {type(hx).__name__}; expected two tensors")
        return self._step(steps.LSTMStep, input, (None, None) if hx is None else tuple(hx))


class GRUCell(RNNCellBase):
    """One step of a GRU: [N, I] and h [N, H] -> h' [N, H]; also without a batch.

    input_size: I. hidden_size: H. bias: whether there are bias_ih and bias_hh.

    Raises ValueError for a negative size; TypeError for a size that is not an int. A call raises ValueError for an input or a state that does not fit, and
    TypeError for another dtype than the parameters'.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(steps.GRUStep, input, (hx,))[0]


def _cell(op, kind, input, states, w_ih, w_hh, b_ih, b_hh):
    gru, hidden = kind is steps.GRUStep, states[0].shape[-1]
    rows = kind.gates * hidden
    for name, value, expected in (("w_ih", w_ih, (rows, input.shape[-1])), ("w_hh", w_hh, (rows, hidden)), ("b_ih", b_ih, (rows,)), ("b_hh", b_hh, (rows,))):
        if value is not None and tuple(value.shape) != expected:
            raise _C.ArgumentError(f"{op}: {name} does not fit; got shape {tuple(value.shape)}; expected {expected} for an input of width {input.shape[-1]} and a state of width {hidden}")
    bias = b_ih if gru or b_hh is None else b_hh if b_ih is None else b_ih + b_hh
    rest = (w_hh, b_hh) if gru else (w_hh,)
    return kind(input.shape[0], *rest).forward(_C.linear(input, w_ih, bias), states)[0]


def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, as LSTMCell: input [N, I] and hx = (h, c), each [N, H] -> (h', c').

    w_ih, w_hh: [gates * H, I] and [gates * H, H]. b_ih, b_hh: [gates * H], or None.

    ValueError where the sizes do not fit, TypeError where the dtypes differ.
    """
    return tuple(_cell("lstm_cell", steps.LSTMStep, input, tuple(hx), w_ih, w_hh, b_ih, b_hh))


def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """One step of a GRU, as GRUCell: input [N, I] and hx [N, H] -> [N, H].

    w_ih, w_hh: [gates * H, I] and [gates * H, H]. b_ih, b_hh: [gates * H], or None.

    ValueError where the sizes do not fit, TypeError where the dtypes differ.
    """
    return _cell("gru_cell", steps.GRUStep, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """One step of an RNN with tanh, as RNNCell: input [N, I] and hx [N, H] -> [N, H].

    w_ih, w_hh: [gates * H, I] and [gates * H, H]. b_ih, b_hh: [gates * H], or None.

    ValueError where the sizes do not fit, TypeError where the dtypes differ.
    """
    return _cell("rnn_tanh_cell", steps.RNNStep, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """One step of an RNN with ReLU, as RNNCell: input [N, I] and hx [N, H] -> [N, H].

    w_ih, w_hh: [gates * H, I] and [gates * H, H]. b_ih, b_hh: [gates * H], or None.

    ValueError where the sizes do not fit, TypeError where the dtypes differ.
    """
    return _cell("rnn_relu_cell", steps.ReLUStep, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


naming(globals(), __name__, ("run_layers",))
