"""Connectionist temporal classification (Graves et al., 2006): the loss of a sequence of labels whose alignment with the inputs is not known."""
from __future__ import annotations

import math

from .. import _C
from .._kernels import kernel
from .._shapes import flip
from ..autograd import Function
from ._arguments import _tensor
from .functional_losses import reduced

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from ._annotations import Lengths, Reduction

_NONE = -1e30  # the logarithm of probability 0: finite, so that differences and sums of several are numbers
_IMPOSSIBLE = -1e29  # what is less has probability 0


def _log_sum(a, b):
    """log(exp(a) + exp(b)) of finite numbers."""
    top = _C.maximum(a, b)
    return _C.softplus(_C.minimum(a, b) - top) + top


def _steps_by_ops(here, no_jump, first, begins):
    ways, width, begin_steps = here.shape[1], here.shape[3], begins.unsqueeze(2)
    table = _C.full((*here.shape[:3], width + 2), _NONE, dtype=here.dtype, device=here.device)
    at_begin = {0, *begins.reshape(-1).tolist()}
    # Columns of all steps: each, the one before it, the one two before it.
    into, one, two = (table.narrow(3, k, width).unbind(0) for k in (2, 1, 0))
    for t, now in enumerate(here.unbind(0)):
        value = _log_sum(_log_sum(into[t - 1], one[t - 1]), two[t - 1] + no_jump) + now if t else _NONE
        if t in at_begin:
            value = _C.where(begin_steps == t, first + now, value)
        into[t].copy_(value)
    return table


# The recursion over the steps: [T, 1 or 2, N, L], [1 or 2, N, L] twice and [1 or 2, N] to [T, 1 or 2, N, 2 + L], of which the first two columns are
# impossible. `no_jump` and `first` are 0 where a way may jump from two columns before, or begin; elsewhere _NONE. On a GPU a workgroup takes all steps
# of a sample.
_steps = kernel(
    f"""
    using N = pf::C<out_t>;
    const int width = (int)out_shape[3], steps = (int)out_shape[0];
    const pf::i64 lines = out_shape[1] * out_shape[2], line = pf::group().x, begin = begins[line];
    for (int t = 0; t < steps; ++t) {{
      out_t* const to = out + (t * lines + line) * width;
      const out_t* const before = to - lines * width;
      for (int c = (int)pf::thread(); c < width; c += (int)pf::threads()) {{
        N value = (N){_NONE};
        if (c > 1) {{
          const pf::i64 column = line * (width - 2) + c - 2;
          const N now = pf::load(here + t * lines * (width - 2) + column);
          if (t == begin) {{
            value = pf::load(first + column) + now;
          }} else if (t > 0) {{
            const N a = pf::load(before + c), b = pf::load(before + c - 1), d = pf::load(before + c - 2) + pf::load(no_jump + column);
            const N top = pf::maximum<N>(pf::maximum<N>(a, b), d);
            value = pf::log<N>(pf::exp<N>(a - top) + pf::exp<N>(b - top) + pf::exp<N>(d - top)) + top + now;
          }}
        }}
        pf::store(to + c, value);
      }}
      pf::barrier();
    }}
    """,
    "ctc_steps", inputs=["here", "no_jump", "first", "begins"], threads=128, reference=_steps_by_ops,
    result=lambda here, no_jump, first, begins: ((*here.shape[:3], here.shape[3] + 2), here.dtype),
    grid=lambda here, no_jump, first, begins: here.shape[1] * here.shape[2])


class _Alignments:
    """Blank, label, blank, label, ..., blank for each sample: what the columns of the recursions mean.

    Two recursions take the same steps: from the begin of a sample forwards, and from its end backwards, which is forwards where time and columns
    are reversed. They are computed together; without gradients, only the first.
    """

    def __init__(self, log_probs, labels, input_lengths, target_lengths, blank, with_gradient):
        import numpy as np

        n, most = labels.shape
        device = log_probs.device
        extended = np.full((n, 2 * most + 1), blank, np.int64)
        extended[:, 1::2] = labels
        columns = np.arange(2 * most + 1)
        self.steps, self.width = log_probs.shape[0], 2 * most + 1
        jumps = np.zeros_like(extended, bool)  # from two columns before
        jumps[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
        last = 2 * np.asarray(target_lengths)[:, None]
        ends = (columns == last) | (columns == last - 1)
        back = np.zeros_like(jumps)
        back[:, 2:] = jumps[:, :1:-1]
        begin, last_step = np.zeros(n, np.int64), np.asarray(input_lengths) - 1
        first = np.broadcast_to(columns < 2, extended.shape)
        ways = 2 if with_gradient else 1

        def tensor(x):
            return _C.tensor(np.ascontiguousarray(x), device=device)

        self.extended = tensor(extended).unsqueeze(0).expand(self.steps, n, self.width)

        def penalties(possible):
            return _C.where(tensor(np.stack(possible)[:ways]), 0.0, _NONE).to(log_probs.dtype)

        self.no_jump, self.first = penalties([jumps, back]), penalties([first, ends[:, ::-1]])
        self.begins, self.ends, self.last_step = tensor(np.stack([begin, self.steps - 1 - last_step])[:ways]), tensor(ends), tensor(last_step[:, None])
        self.log_probs = _C.clamp(log_probs.gather(2, self.extended), min=_NONE)  # [T, N, L]

    def tables(self):
        """log probability of all ways to each column, and of all ways from each column to the end of the sample: [T, N, L] each."""
        here = self.log_probs
        both = _C.stack([here, flip(here, (0, 2))][: self.begins.shape[0]], 1)
        tables = _steps(both, self.no_jump, self.first, self.begins).narrow(3, 2, self.width)
        return tables.select(1, 0), flip(tables.select(1, 1), (0, 2)) if both.shape[1] == 2 else None

    def loss(self, table):
        """The negative log likelihood of each sample: [N]."""
        n = table.shape[1]
        steps = _C.clamp(self.last_step, min=0).reshape(1, n, 1).expand(1, n, self.width)
        at_end = _C.where(self.ends, table.gather(0, steps).squeeze(0), _NONE)
        top = at_end.max(1, keepdim=True)[0]
        likelihood = (_C.log(_C.exp(at_end - top).sum(1, keepdim=True)) + top).squeeze(1)
        loss = _C.where(likelihood < _IMPOSSIBLE, math.inf, -likelihood)
        empty = (self.last_step < 0).squeeze(1)  # no step: possible only without labels, which end in column 0
        return _C.where(empty, _C.where(self.ends.narrow(1, 0, 1).squeeze(1), 0.0, math.inf).to(loss.dtype), loss)


class _CTC(Function):
    """The loss of each sample. As in PyTorch, the gradient is that of log_probs that are a log_softmax; it has no gradient itself."""

    @staticmethod
    def forward(ctx, log_probs, alignments, zero_infinity):
        table, ctx.back = alignments.tables()
        loss = alignments.loss(table)
        ctx.alignments, ctx.table, ctx.zero_infinity = alignments, table, zero_infinity
        ctx.save_for_backward(log_probs, loss)
        return loss

    @staticmethod
    def backward(ctx, grad):
        log_probs, loss = ctx.saved_tensors
        if _C.is_grad_enabled() and log_probs.requires_grad:
            raise RuntimeError("ctc_loss: its gradient has no gradient; got create_graph=True; expected False")
        log_probs, a = log_probs.detach(), ctx.alignments
        both = ctx.table + ctx.back
        share = _C.where(both < _IMPOSSIBLE, 0.0, _C.exp(both + loss.unsqueeze(1) - a.log_probs))
        of_labels = _C.zeros(log_probs.shape, dtype=log_probs.dtype, device=log_probs.device).scatter_add(2, a.extended, share)
        steps = _C.arange(a.steps, device=log_probs.device).reshape(-1, 1, 1)
        impossible = (loss == math.inf).unsqueeze(1)
        slope = _C.where(impossible, 0.0 if ctx.zero_infinity else math.nan, (_C.exp(log_probs) - of_labels) * grad.unsqueeze(1))
        return _C.where(steps <= a.last_step.unsqueeze(0), slope, 0.0), None, None


def _lengths(op, name, values, n, most):
    if isinstance(values, _C.Tensor) and values.is_floating_point():
        raise RuntimeError(f"{op}: {name} are not integers; got {values.dtype}; expected an integer dtype")
    values = values.tolist() if hasattr(values, "tolist") else values
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    if not all(hasattr(v, "__index__") for v in values):
        raise TypeError(f"{op}: {name} are not integers; got {values}; expected a tensor or a list of integers")
    values = [int(v) for v in values]
    if len(values) != n:
        raise RuntimeError(f"{op}: {name} do not fit; got {len(values)}; expected one for each of {n} samples")
    if min(values, default=0) < 0 or max(values, default=0) > most:
        raise RuntimeError(f"{op}: {name} are out of range; got {values}; expected 0 to {most}")
    return values


def _labels(op, targets, lengths, classes, blank):
    """[N, the longest] with what does not count as 0. IndexError for a label that is no class, ArgumentError for one that is blank."""
    import numpy as np

    most = max(lengths, default=0)
    given = np.asarray(targets.cpu().numpy()).astype(np.int64)
    inside = np.arange(most) < np.asarray(lengths)[:, None]
    out = np.zeros((len(lengths), most), np.int64)
    out[inside] = given[:, :most][inside] if given.ndim == 2 else given[: int(inside.sum())]
    wrong = out[(out < 0) | (out >= classes)]
    if wrong.size:
        raise IndexError(f"{op}: a label is no class; got {wrong[0]}; expected 0 to {classes - 1}")
    if (out[inside] == blank).any():
        raise _C.ArgumentError(f"{op}: a label is the blank class; got {blank}; expected other classes; hint: target_lengths leaves out what fills the rows of targets")
    return out


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Lengths | int, target_lengths: Lengths | int, blank: int = 0, reduction: Reduction = "mean",
             zero_infinity: bool = False) -> Tensor:
    """The negative log likelihood of sequences of labels: log_probs [T, N, C] (log_softmax over C), targets [N, S] or all labels one after the other, the
    lengths of both for each sample; without N for one sample. 'mean' divides each loss by its number of labels and takes the mean. zero_infinity makes
    losses and gradients 0 where the labels do not fit into the input. Reads targets and lengths.

    input_lengths, target_lengths: [N] each. blank: the class that stands for no label. reduction: 'mean', 'sum' or 'none' (the loss of each element
    or sample).

    Raises RuntimeError for log_probs that are not floating or of another rank, targets that are not integers or do not fit, lengths out of range and a
    blank that is no class; ValueError for an unknown reduction and a label that is blank; IndexError for a label that is no class; TypeError for log_probs
    and targets that are no tensors, and lists of lengths that are not integers.
    """
    op = "ctc_loss"
    _tensor(op, "log_probs", log_probs)
    _tensor(op, "targets", targets)
    if log_probs.ndim not in (2, 3) or not log_probs.is_floating_point():
        raise RuntimeError(f"{op}: log_probs do not fit; got {log_probs.dtype} {tuple(log_probs.shape)}; expected floats [T, N, C] or [T, C]")
    if targets.is_floating_point() or targets.ndim not in (1, 2):
        raise RuntimeError(f"{op}: targets do not fit; got {targets.dtype} {tuple(targets.shape)}; expected integers of 1 or 2 dimensions")
    if not 0 <= blank < log_probs.shape[-1]:
        raise RuntimeError(f"{op}: blank is out of range; got {blank}; expected 0 to {log_probs.shape[-1] - 1}")
    x = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    x = x.float() if x.dtype == _C.float16 else x  # whose range is too small
    n = x.shape[1]
    lengths = _lengths(op, "input_lengths", input_lengths, n, x.shape[0])
    label_lengths = _lengths(op, "target_lengths", target_lengths, n, targets.shape[1] if targets.ndim == 2 else targets.shape[0])
    if targets.ndim == 1 and sum(label_lengths) > targets.shape[0] or targets.ndim == 2 and targets.shape[0] != n:
        raise RuntimeError(f"{op}: targets do not fit; got shape {tuple(targets.shape)}; expected {sum(label_lengths)} labels of {n} samples")
    with_lengths = _Alignments(x.detach(), _labels(op, targets, label_lengths, x.shape[2], blank), lengths, label_lengths, blank, _C.is_grad_enabled() and x.requires_grad)
    loss = _CTC.apply(x, with_lengths, zero_infinity)
    if zero_infinity:
        loss = _C.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        loss = loss / _C.tensor([max(1, k) for k in label_lengths], dtype=loss.dtype, device=loss.device)
    loss = loss if log_probs.ndim == 3 else loss.squeeze(0)
    return reduced(op, loss, reduction).to(log_probs.dtype)
