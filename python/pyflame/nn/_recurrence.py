"""What recurrent layers compute over a sequence: the steps, and their gradients.

The rows of all steps lie one after the other, as in a PackedSequence: step t has sizes[t] rows. The products with the inputs are computed for all steps
at once, before the loop, and so are the gradients of the weights after it. A step is a product and one fused loop.

Where a library of the device computes all steps, layers and directions in one call, one op stands for them (`whole`).
"""
from .. import _C
from .._kernels import kernel
from .._grad_mode import no_grad
from ..autograd import Function, grad


_FEW = 4


class Steps:
    """The rows of each step, and the order in which the steps come."""

    def __init__(self, sizes, reverse):
        self.sizes = sizes
        self.starts, total = [], 0
        for n in sizes:
            self.starts.append(total)
            total += n
        self.rows = total
        self.order = list(range(len(sizes) - 1, -1, -1) if reverse else range(len(sizes)))

    def part(self, x, t):
        return x.narrow(0, self.starts[t], self.sizes[t])


def _transposed(weight, rows):
    """The weight as the right operand of a product; contiguous where steps have so many rows that the copy pays."""
    return weight.t().contiguous() if rows >= _FEW else weight.t()


class LSTMStep:
    """i, f, g, o = x + h w_hh^T; c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c), times w_hr^T where there is a projection."""

    gates, states = 4, 2

    def __init__(self, rows, w_hh, w_hr=None):
        self.w_hh, self.w_hr = w_hh, w_hr
        self.right = _transposed(w_hh, rows)
        self.project = None if w_hr is None else _transposed(w_hr, rows)

    def forward(self, x, state):
        h, c = state
        m, new_c, z = _C._lstm_step(x, h, c, self.right)
        new_h = m if self.project is None else _C.matmul(m, self.project)
        return (new_h, new_c), (h, z, c, new_c, m)

    def buffers(self, steps, like):
        """Where the gradients of the gates go, and those of the projected outputs."""
        width = self.w_hh.shape[0]
        wide = _C.empty(steps.rows, width, dtype=like.dtype, device=like.device)
        return (wide,) if self.w_hr is None else (wide, _C.empty(steps.rows, self.w_hr.shape[0], dtype=like.dtype, device=like.device))

    def backward(self, trace, grads, into):
        _, z, c, new_c, _ = trace
        dh, dc = grads
        if self.w_hr is not None:
            into[1].copy_(dh)
            dh = _C.matmul(dh, self.w_hr)
        dc = _C._lstm_step_grad(z, c, new_c, dh, dc, into[0])
        return _C.matmul(into[0], self.w_hh), dc

    def weight_grads(self, buffers, traces):
        dz = buffers[0]
        dw = _C.matmul(dz.t(), _C.cat([t[0] for t in traces]))
        if self.w_hr is None:
            return dz, (dw,)
        return dz, (dw, _C.matmul(buffers[1].t(), _C.cat([t[4] for t in traces])))


# All steps of an LSTM for few sequences on a GPU: a workgroup for each sequence, because a launch for each step takes longer than the step. Its threads
# have one column of the products each, and where there are several for a column, equal parts of its sum.
_THREADS = 1024
_lstm_steps = kernel(
    f"""
    PF_SHARED float sums[{_THREADS}], now[{_THREADS // 4}];
    const int hidden = (int)h_shape[1], width = 4 * hidden, rows = (int)h_shape[0], steps = (int)x_shape[0] / rows;
    const int row = (int)pf::group().x, me = (int)pf::thread(), parts = {_THREADS} / width, part = me / width, column = me % width;
    float cell = 0;
    if (me < hidden) now[me] = h[row * hidden + me], cell = c[row * hidden + me];
    pf::barrier();
    for (int step = 0; step < steps; ++step) {{
      const pf::i64 line = (pf::i64)(reverse ? steps - 1 - step : step) * rows + row;
      if (part < parts) {{
        float sum = 0;
    #pragma unroll 8
        for (int k = hidden * part / parts; k < hidden * (part + 1) / parts; ++k) sum += now[k] * weight[k * width + column];
        sums[me] = sum;
      }}
      pf::barrier();
      if (me < hidden) {{
        float gate[4];
        for (int g = 0; g < 4; ++g) {{
          gate[g] = x[line * width + g * hidden + me];
          for (int p = 0; p < parts; ++p) gate[g] += sums[p * width + g * hidden + me];
        }}
        cell = pf::sigmoid<float>(gate[1]) * cell + pf::sigmoid<float>(gate[0]) * pf::tanh<float>(gate[2]);
        now[me] = pf::sigmoid<float>(gate[3]) * pf::tanh<float>(cell);
        out[line * hidden + me] = now[me];
      }}
      pf::barrier();
    }}
    if (me < hidden) last[row * hidden + me] = cell;
    """,
    "lstm_steps", inputs=["x", "h", "c", "weight"], outputs=["out", "last"], scalars={"reverse": "bool"}, threads=_THREADS,
    result=lambda x, h, c, weight, reverse: [((x.shape[0], h.shape[1]), x.dtype), (tuple(c.shape), x.dtype)], grid=lambda x, h, c, weight, reverse: h.shape[0])


def _fits_lstm_steps(kind, sizes, x, initial, weights):
    few = len(weights) == 1 and sizes[0] <= _FEW and sizes[0] == sizes[-1] and 4 * initial[0].shape[1] <= _THREADS
    return kind is LSTMStep and few and x.device.type in ("cuda", "rocm") and all(t.dtype == _C.float32 for t in (x, *initial, *weights))


class GRUStep:
    """r, z, n of x and of h w_hh^T + b_hh; n = tanh(x_n + sigmoid(r) h_n); h = n + sigmoid(z) (h - n)."""

    gates, states = 3, 1

    def __init__(self, rows, w_hh, b_hh=None):
        self.w_hh, self.b_hh = w_hh, b_hh
        self.right = _transposed(w_hh, rows)

    def forward(self, x, state):
        (h,) = state
        new, own = _C._gru_step(x, h, self.right, self.b_hh)
        return (new,), (h, x, own)

    def buffers(self, steps, like):
        shape = (steps.rows, self.w_hh.shape[0])
        return tuple(_C.empty(shape, dtype=like.dtype, device=like.device) for _ in range(2))

    def backward(self, trace, grads, into):
        h, x, own = trace
        (dh,) = grads
        of_h = _C._gru_step_grad(h, x, own, dh, *into)
        return (_C.matmul(into[1], self.w_hh) + of_h,)

    def weight_grads(self, buffers, traces):
        dx, down = buffers
        dw = _C.matmul(down.t(), _C.cat([t[0] for t in traces]))
        return dx, (dw,) if self.b_hh is None else (dw, down.sum(0))


class RNNStep:
    """h = tanh(x + h w_hh^T), or relu."""

    gates, states = 1, 1
    relu = False

    def __init__(self, rows, w_hh):
        self.w_hh = w_hh
        self.right = _transposed(w_hh, rows)

    def forward(self, x, state):
        (h,) = state
        z = _C.matmul(h, self.right) + x
        new = _C.relu(z) if self.relu else _C.tanh(z)
        return (new,), (h, new)

    def buffers(self, steps, like):
        return (_C.empty(steps.rows, self.w_hh.shape[0], dtype=like.dtype, device=like.device),)

    def backward(self, trace, grads, into):
        (dh,), new = grads, trace[1]
        into[0].copy_(_C.where(new > 0, dh, 0.0) if self.relu else dh * (1 - new * new))
        return (_C.matmul(into[0], self.w_hh),)

    def weight_grads(self, buffers, traces):
        return buffers[0], (_C.matmul(buffers[0].t(), _C.cat([t[0] for t in traces])),)


class ReLUStep(RNNStep):
    relu = True


def _rows(state, first, last):
    return tuple(s.narrow(0, first, last - first) for s in state)


def _joined(parts):
    return parts[0] if len(parts) == 1 else tuple(_C.cat(same) for same in zip(*parts))


def _walk(step, x, initial, steps):
    """The outputs of all steps, the final state, and what each step keeps for its gradient."""
    outputs, traces, ended = [None] * len(steps.sizes), [None] * len(steps.sizes), []
    state = initial
    have = steps.sizes[steps.order[0]]
    if have < initial[0].shape[0]:
        state = _rows(initial, 0, have)
    for t in steps.order:
        rows = steps.sizes[t]
        if rows < have:  # sequences that ended
            ended.append(_rows(state, rows, have))
            state = _rows(state, 0, rows)
        elif rows > have:  # sequences whose last step this is, in reverse
            state = _joined([state, _rows(initial, have, rows)])
        have = rows
        state, traces[t] = step.forward(steps.part(x, t), state)
        outputs[t] = state[0]
    return _C.cat(outputs), _joined([state, *reversed(ended)]), traces


def _walk_back(step, steps, traces, dy, dfinal, like):
    """The gradients: of the inputs' products, of the initial state, of the weights."""
    buffers, ended = step.buffers(steps, like), []
    have = steps.sizes[steps.order[-1]]
    total = dfinal[0].shape[0]
    grads = dfinal if have == total else _rows(dfinal, 0, have)
    for t in reversed(steps.order):
        rows = steps.sizes[t]
        if rows > have:
            grads = _joined([grads, _rows(dfinal, have, rows)])
        elif rows < have:
            ended.append(_rows(grads, rows, have))
            grads = _rows(grads, 0, rows)
        have = rows
        total_h = grads[0] + steps.part(dy, t)
        grads = step.backward(traces[t], (total_h, *grads[1:]), [steps.part(b, t) for b in buffers])
    dx, dweights = step.weight_grads(buffers, traces)
    return dx, _joined([tuple(grads), *reversed(ended)]), dweights


class _Sequence(Function):
    """The steps with gradients that need one product for each weight, not one for each step."""

    @staticmethod
    def forward(ctx, kind, steps, x, *rest):
        ctx.kind, ctx.steps, ctx.step = kind, steps, kind(steps.sizes[0], *rest[kind.states :])
        y, final, ctx.traces = _walk(ctx.step, x, rest[: kind.states], steps)
        ctx.save_for_backward(x, *rest)
        # The traces hold the last state. As results those tensors would hold this node, and it them, so that neither is ever freed.
        return (y, *(s.detach() for s in final))

    @staticmethod
    def backward(ctx, dy, *dfinal):
        saved, kind = ctx.saved_tensors, ctx.kind
        if _C.is_grad_enabled():  # gradients of gradients: through the steps as they are
            y, final, _ = _walk(kind(ctx.steps.sizes[0], *saved[1 + kind.states :]), saved[0], saved[1 : 1 + kind.states], ctx.steps)
            wanted = [s for s in saved if s.requires_grad]
            found = iter(grad((y, *final), wanted, (dy, *dfinal), create_graph=True, allow_unused=True))
            return (None, None, *(next(found) if s.requires_grad else None for s in saved))
        dx, dinitial, dweights = _walk_back(ctx.step, ctx.steps, ctx.traces, dy, dfinal, saved[0])
        return (None, None, dx, *dinitial, *dweights)


def run(kind, sizes, reverse, x, initial, weights):
    """Runs the steps over x, the products with the inputs: [rows, gates * H]. Returns the outputs [rows, H] and the final state."""
    weights = [w for w in weights if w is not None]
    steps = Steps(sizes, reverse)
    if _C.is_grad_enabled() and any(a.requires_grad for a in (x, *initial, *weights)):
        y, *final = _Sequence.apply(kind, steps, x, *initial, *weights)
        return y, tuple(final)
    if _fits_lstm_steps(kind, sizes, x, initial, weights):
        y, cell = _lstm_steps(x, *initial, weights[0].t(), reverse=reverse)
        return y, (steps.part(y, steps.order[-1]), cell)
    y, final, _ = _walk(kind(sizes[0], *weights), x, initial, steps)
    return y, final


_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}  # RecurrentMode
_ONE_OP = ("cuda", "rocm", "reference")  # devices that may have an implementation of the op
reasons = None  # while something is explained: why layers on such devices went step by step, and how often


class _Whole(Function):
    """The gradient of layers that one op has computed."""

    @staticmethod
    def forward(ctx, kind, again, results, x, *rest):
        ctx.kind, ctx.again = kind, again
        y, *last, kept = results
        results.clear()  # the node keeps its arguments, and would keep what holds it
        ctx.save_for_backward(x, *rest, y.detach(), kept)
        return (y, *last)

    @staticmethod
    def backward(ctx, dy, *dlast):
        *given, y, kept = ctx.saved_tensors
        states = len(dlast)
        if _C.is_grad_enabled():  # gradients of gradients: through the steps
            wanted = [g for g in given if g.requires_grad]
            found = iter(grad(ctx.again(*given), wanted, (dy, *dlast), create_graph=True, allow_unused=True))
            return (None, None, None, *(next(found) if g.requires_grad else None for g in given))
        return (None, None, None, *_C._recurrent_grad(*ctx.kind, [dy, *dlast], given[0], y, given[1 : 1 + states], kept, given[1 + states :]))


def whole(mode, weights, data, sizes, initial, bidirectional, again):
    """All layers by one op: the outputs [rows, directions * H] and the final states. None where the device has no implementation that takes them; then the
    layers go step by step. again(x, *states, *weights) computes them so, for gradients of gradients: x is [T, N, I], and so are its outputs."""
    if data.device.type not in _ONE_OP:
        return None
    names = [n for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if weights[0].get(n) is not None]
    given = [w[n] for w in weights for n in names]
    kept = _C.is_grad_enabled() and any(t.requires_grad for t in (data, *initial, *given))
    why = _no_case_for_libraries(mode, weights, data, sizes, initial, given, kept)
    if not why:
        x, kind = data.view(len(sizes), sizes[0], data.shape[1]), (_MODES[mode], bidirectional, len(names) == 4)
        with no_grad():
            results, why = _C._recurrent(*kind, kept, x, list(initial), given)
    if why:
        if reasons is not None:
            reasons[why] = reasons.get(why, 0) + 1
        return None
    y, *last = _Whole.apply(kind, again, results, x, *initial, *given) if kept else results[:-1]
    return y.view(data.shape[0], y.shape[2]), tuple(last)


def _no_case_for_libraries(mode, weights, data, sizes, initial, given, kept):
    """Why the layers go step by step, whatever the device's library computes; or ""."""
    if data.device.type == "rocm" and _C._forced_entry("recurrent") != "gpu.dnn":
        return "MIOpen computes recurrent layers on request only, because this has not run on an AMD GPU: PYFLAME_FORCE='recurrent:gpu.dnn;recurrent_grad:gpu.dnn'"
    if not data.numel() or not initial[0].numel():
        return "there are no elements"
    if sizes[0] != sizes[-1]:
        return "sequences of different lengths"
    if any(w.get("weight_hr") is not None for w in weights):
        return "a projection"
    if _C._autocast(data.device.type)[0] or any(t.dtype != data.dtype for t in (*initial, *given)):
        return "operands of several dtypes"
    if len({len(w) for w in weights}) > 1 or len(given) % 2:
        return "one bias of two"
    if mode == "LSTM" and not kept and _fits_lstm_steps(LSTMStep, sizes, data, [s[0] for s in initial], [weights[0]["weight_hh"]]):
        return "one kernel for all steps of few sequences"
    return ""
