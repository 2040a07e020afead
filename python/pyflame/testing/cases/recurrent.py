"""Recurrent layers over whole sequences. The reference device computes them as one op, and so may a GPU; others go step by step."""

import numpy as np

from . import FLOATS, Case, Spec

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def small(rng, shape):
    return 0.5 * rng.standard_normal(shape)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _step(op, given, own, h, c):
    if op == "rnn_tanh":
        return np.tanh(given + own), c
    if op == "rnn_relu":
        return np.maximum(given + own, 0), c
    if op == "gru":
        (xr, xz, xn), (hr, hz, hn) = np.split(given, 3, -1), np.split(own, 3, -1)
        z = _sigmoid(xz + hz)
        return (1 - z) * np.tanh(xn + _sigmoid(xr + hr) * hn) + z * h, c
    i, f, g, o = np.split(given + own, 4, -1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _layers(op, biases, directions, x, states, weights):
    """The outputs and the final states, by the formulas."""
    each, last = 4 if biases else 2, []
    for level in range(len(weights) // each // directions):
        sides = []
        for direction in range(directions):
            at = level * directions + direction
            w_ih, w_hh, *bias = weights[at * each : (at + 1) * each]
            b_ih, b_hh = bias or (0.0, 0.0)
            h, c = states[0][at], states[-1][at]
            out = [None] * len(x)
            for t in range(len(x))[:: -1 if direction else 1]:
                h, c = _step(op, x[t] @ w_ih.T + b_ih, h @ w_hh.T + b_hh, h, c)
                out[t] = h
            sides.append(np.stack(out))
            last.append((h, c))
        x = np.concatenate(sides, -1)
    return (x, *(np.stack(same) for same in list(zip(*last))[: len(states)]))


def _case(op, dtype, sizes, layers, biases, bidirectional):
    steps, batch, width, hidden = sizes
    directions, states = 2 if bidirectional else 1, 2 if op == "lstm" else 1
    shapes = []
    for at in range(layers * directions):
        columns = width if at < directions else hidden * directions
        shapes += [(GATES[op] * hidden, columns), (GATES[op] * hidden, hidden)] + [(GATES[op] * hidden,)] * (2 * biases)
    inputs = [Spec((steps, batch, width), dtype, small)] + [Spec((layers * directions, batch, hidden), dtype, small) for _ in range(states)] + [Spec(s, dtype, small) for s in shapes]

    def call(pf, x, *rest):
        hx, params = rest[:states], list(rest[states:])
        return getattr(pf, op)(x, hx if states == 2 else hx[0], params, biases, layers, 0.0, False, bidirectional, False)

    def reference(x, *rest):
        return _layers(op, biases, directions, x, rest[:states], rest[states:])

    def magnitude(x, *rest):
        """The largest sum of absolute terms of a gate, or more: states and outputs do not grow beyond the inputs by much."""
        largest = max(1.0, *(np.abs(a).max(initial=0) for a in (x, *rest[:states])))
        return largest * sum(np.abs(w).sum(-1).max(initial=0) for w in rest[states:] if w.ndim == 2)

    label = "x".join(map(str, sizes))
    # Each step has its own roundings; those of the state pass through the later steps.
    return Case(f"{op}-{dtype}-{label}-{layers}{'-biases' * biases}{'-both' * bidirectional}", (op,), ("recurrent", "recurrent_grad"), tuple(inputs), call, reference, grad=tuple(range(len(inputs))), c=8 * steps * layers,
                length=max(width, hidden), magnitude=magnitude, composed=True, fused_exact=False, twice=op != "rnn_relu")  # fmt: skip


def cases():
    for op in GATES:
        for dtype in FLOATS:
            yield _case(op, dtype, (5, 3, 4, 6), 1, True, False)
        yield _case(op, "float32", (3, 2, 5, 4), 2, True, True)
        yield _case(op, "float32", (4, 1, 3, 5), 2, False, False)
        yield _case(op, "float32", (1, 7, 3, 2), 1, False, True)
