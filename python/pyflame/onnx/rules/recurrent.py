"""Rules of RNN, GRU and LSTM."""

import pyflame as pf
from pyflame.nn import functional as F

from ... import _C
from ..table import composed, op

_ACTIVATIONS = {
    "Relu": lambda x, a, b: pf.relu(x), "Tanh": lambda x, a, b: pf.tanh(x), "Sigmoid": lambda x, a, b: pf.sigmoid(x),
    "Affine": lambda x, a, b: x * a + b, "LeakyRelu": lambda x, a, b: pf.leaky_relu(x, a), "ThresholdedRelu": lambda x, a, b: F.threshold(x, a, 0.0),
    "ScaledTanh": lambda x, a, b: a * pf.tanh(b * x), "HardSigmoid": lambda x, a, b: pf.clamp(a * x + b, 0.0, 1.0),
    "Elu": lambda x, a, b: F.elu(x, a), "Softsign": lambda x, a, b: F.softsign(x), "Softplus": lambda x, a, b: pf.softplus(x),
}
_DEFAULTS = {"Affine": (1.0, 0.0), "LeakyRelu": (0.01, 0.0), "ThresholdedRelu": (1.0, 0.0), "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0)}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


class Cell:
    """The attributes of a recurrent node."""

    def __init__(self, node):
        self.op, self.hidden = node.op, node.attr("hidden_size")
        self.direction, self.clip = node.attr("direction", "forward"), node.attr("clip")
        self.directions = 2 if self.direction == "bidirectional" else 1
        self.batch_first, self.joined = node.attr("layout", 0), node.attr("input_forget", 0)
        self.reset_later = node.attr("linear_before_reset", 0)
        self.names = node.attr("activations") or _USUAL[node.op] * self.directions
        self.functions = [self.activation(n, k, node) for k, n in enumerate(self.names)]
        self.standard = self.names == _USUAL[node.op] * self.directions and self.clip is None and not self.joined

    @staticmethod
    def activation(name, k, node):
        known = {n.lower(): n for n in _ACTIVATIONS}
        function = _ACTIVATIONS[known[name.lower()]]
        alphas, betas = node.attr("activation_alpha", []), node.attr("activation_beta", [])
        a, b = _DEFAULTS.get(known[name.lower()], (0.0, 0.0))
        a, b = alphas[k] if k < len(alphas) else a, betas[k] if k < len(betas) else b
        return lambda x: function(x, a, b)

    def activations(self, d):
        count = len(_USUAL[self.op])
        return self.functions[d * count:(d + 1) * count]

    def bounded(self, x):
        return x if self.clip is None else pf.clamp(x, -self.clip, self.clip)


def _rnn_step(cell, d, gates, h, c, r, rb, p):
    f, = cell.activations(d)
    return f(cell.bounded(gates + pf.matmul(h, r.t()) + (0 if rb is None else rb))), None


def _gru_step(cell, d, gates, h, c, r, rb, p):
    f, g = cell.activations(d)
    n = cell.hidden
    inner = pf.matmul(h, r.t()[:, :2 * n])
    inner = inner if rb is None else inner + rb[:2 * n]
    both = f(cell.bounded(gates[:, :2 * n] + inner))
    update, reset = both[:, :n], both[:, n:]
    bias = 0 if rb is None else rb[2 * n:]
    if cell.reset_later:
        new = g(cell.bounded(gates[:, 2 * n:] + reset * (pf.matmul(h, r.t()[:, 2 * n:]) + bias)))
    else:
        new = g(cell.bounded(gates[:, 2 * n:] + pf.matmul(reset * h, r.t()[:, 2 * n:]) + bias))
    return (1 - update) * new + update * h, None


def _lstm_step(cell, d, gates, h, c, r, rb, p):
    f, g, last = cell.activations(d)
    n = cell.hidden
    gates = gates + pf.matmul(h, r.t())
    gates = gates if rb is None else gates + rb
    i, o, forget, new = (gates[:, k * n:(k + 1) * n] for k in range(4))
    if p is not None:
        i, forget = i + p[:n] * c, forget + p[2 * n:] * c
    i = f(cell.bounded(i))
    forget = 1 - i if cell.joined else f(cell.bounded(forget))
    c = forget * c + i * g(cell.bounded(new))
    o = o if p is None else o + p[n:2 * n] * c
    return f(cell.bounded(o)) * last(c), c


_STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}


class Prepared:
    """A tensor that is made of weights alone, and kept as long as they do not change."""

    def __init__(self, make):
        self.make, self.key, self.value = make, None, None

    def __call__(self, *weights):
        if pf.is_grad_enabled():
            return self.make(*weights)
        key = [(w, None if w is None else w._version) for w in weights]
        if self.key is None or any(a is not b or m != n for (a, m), (b, n) in zip(key, self.key)):
            self.key, self.value = key, self.make(*weights)
        return self.value


def _reordered(w):
    """The gates of each direction in the order of pyflame's step: input, forget, new, output."""
    i, o, forget, new = w.chunk(4, 1)
    return pf.cat([i, forget, new, o], 1)


def _right(w):
    """The weights of all directions as right operands of products."""
    return _reordered(w).transpose(1, 2).contiguous()


def _sum_of_biases(b):
    half = b.shape[1] // 2
    return _reordered(b[:, :half] + b[:, half:])


def _lstm_steps(x, w, r, b, h, c, backward):
    """A standard LSTM over all steps, as _layer."""
    gates = pf.matmul(x, w) if b is None else pf.matmul(x, w) + b
    rows = [None] * x.shape[0]
    for t in (range(len(rows) - 1, -1, -1) if backward else range(len(rows))):
        h, c, _ = _C._lstm_step(gates.select(0, t), h, c, r)
        rows[t] = h
    return pf.stack(rows), h, c


def _layer(cell, d, x, w, r, b, h, c, p, lengths):
    """One direction over all steps: [steps, batch, in] -> the outputs [steps, batch, hidden], the last h and c."""
    count, backward = x.shape[0], d == 1 or cell.direction == "reverse"
    gates = pf.matmul(x, w.t())
    half = _GATES[cell.op] * cell.hidden
    rb = None
    if b is not None:
        gates, rb = gates + b[:half], b[half:]
        if cell.op != "GRU":
            gates, rb = gates + rb, None
    rows = [None] * count
    for t in (range(count - 1, -1, -1) if backward else range(count)):
        new_h, new_c = _STEPS[cell.op](cell, d, gates[t], h, c, r, rb, p)
        if lengths is not None:
            alive = (lengths > t).unsqueeze(1)
            rows[t] = pf.where(alive, new_h, pf.zeros_like(new_h))
            h = pf.where(alive, new_h, h)
            c = None if c is None else pf.where(alive, new_c, c)
        else:
            rows[t], h, c = new_h, new_h, new_c
    return pf.stack(rows), h, c


def _zeros(x, hidden):
    return pf.zeros(x.shape[1], hidden, dtype=x.dtype, device=x.device)


def _stack(do, tensors, axis):
    return do(pf.Tensor.unsqueeze, tensors[0], axis) if len(tensors) == 1 else do(pf.stack, tensors, axis)


@op("RNN", "GRU", "LSTM", since=7)
def recurrent(node):
    cell, outputs = Cell(node), len(node.outputs)
    right_w, right_r, summed = Prepared(_right), Prepared(_right), Prepared(_sum_of_biases)

    def general(x, w, r, b=None, lengths=None, h=None, c=None, p=None):
        zero = _zeros(x, cell.hidden) if h is None or c is None else None
        found = []
        for d in range(cell.directions):
            state, memory = zero if h is None else h[d], None if cell.op != "LSTM" else zero if c is None else c[d]
            found.append(_layer(cell, d, x, w[d], r[d], None if b is None else b[d], state, memory, None if p is None else p[d], lengths))
        return [v for of_direction in found for v in of_direction]

    def standard(do, x, w, r, b, h, c):
        """An LSTM whose arranged weights are kept."""
        w, r, b = do(right_w, w), do(right_r, r), None if b is None else do(summed, b)
        row = pf.Tensor.select
        zero = do(_zeros, x, cell.hidden) if h is None or c is None else None
        found = []
        for d in range(cell.directions):
            state, memory = zero if h is None else do(row, h, 0, d), zero if c is None else do(row, c, 0, d)
            bias = None if b is None else do(row, b, 0, d)
            if x.shape[0] > 1:
                found += do(_lstm_steps, x, do(row, w, 0, d), do(row, r, 0, d), bias, state, memory, d == 1 or cell.direction == "reverse")
                continue
            gates = do(pf.matmul, do(row, x, 0, 0), do(row, w, 0, d))
            state, memory, _ = do(_C._lstm_step, gates if bias is None else do(pf.add, gates, bias), state, memory, do(row, r, 0, d))
            found += do(pf.Tensor.unsqueeze, state, 0), state, memory
        return found

    def parts(do, x, w, r, b=None, lengths=None, h=None, c=None, p=None):
        if cell.batch_first:
            x, h, c = (v if v is None else do(pf.Tensor.transpose, v, 0, 1) for v in (x, h, c))
        if cell.op == "LSTM" and cell.standard and p is None and lengths is None and x.dtype == pf.float32 and not pf.is_grad_enabled():
            found = standard(do, x, w, r, b, h, c)
        else:
            found = do(general, x, w, r, b, lengths, h, c, p)
        y, hn = _stack(do, found[0::3], 1), _stack(do, found[1::3], 0)
        cn = _stack(do, found[2::3], 0) if cell.op == "LSTM" else None
        if cell.batch_first:
            y, hn = do(pf.Tensor.permute, y, (2, 0, 1, 3)), do(pf.Tensor.transpose, hn, 0, 1)
            cn = None if cn is None else do(pf.Tensor.transpose, cn, 0, 1)
        return (y, hn, cn)[:outputs] if outputs > 1 else y

    return composed(parts)
