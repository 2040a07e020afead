"""Connectionist temporal classification (Graves et al., 2006): the loss of a sequence of labels whose alignment with the inputs is not known."""
import math

from .. import _C
from ..autograd import Function
from .functional_losses import reduced

_NONE = -math.inf


def _log_sum(parts):
    """log of the sum of exponentials of tensors; -inf where all are."""
    top = parts[0]
    for p in parts[1:]:
        top = _C.maximum(top, p)
    safe = _C.where(top == _NONE, 0.0, top)
    total = _C.exp(parts[0] - safe)
    for p in parts[1:]:
        total = total + _C.exp(p - safe)
    return _C.log(total) + safe


class _Alignments:
    """Blank, label, blank, label, ..., blank for each sample: what the columns of the recursions mean."""

    def __init__(self, log_probs, labels, input_lengths, target_lengths, blank):
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

        def tensor(x):
            return _C.tensor(np.ascontiguousarray(x), device=device)

        self.extended = tensor(extended).unsqueeze(0).expand(self.steps, n, self.width)
        self.jumps, self.ends, self.first = tensor(jumps), tensor(ends), tensor(np.broadcast_to(columns < 2, extended.shape))
        later = np.zeros_like(jumps)
        later[:, :-2] = jumps[:, 2:]
        self.jumps_after = tensor(later)
        self.last_step = tensor((np.asarray(input_lengths) - 1)[:, None])
        self.log_probs = log_probs.gather(2, self.extended)  # [T, N, L]

    def _table(self):
        t, n, _ = self.log_probs.shape
        return _C.full((t, n, self.width + 2), _NONE, dtype=self.log_probs.dtype, device=self.log_probs.device)

    def forward_table(self):
        """log probability of all ways to each column: [T, N, 2 + L], where the first two columns are -inf."""
        table, width = self._table(), self.width
        for t in range(self.steps):
            into = table.select(0, t).narrow(1, 2, width)
            if t == 0:
                into.copy_(_C.where(self.first, self.log_probs[0], _NONE))
                continue
            before = table.select(0, t - 1)
            ways = [before.narrow(1, 2, width), before.narrow(1, 1, width), _C.where(self.jumps, before.narrow(1, 0, width), _NONE)]
            into.copy_(_log_sum(ways) + self.log_probs[t])
        return table.narrow(2, 2, width)

    def backward_table(self):
        """log probability of all ways from each column to the end of the sample, that of the column included: [T, N, L]."""
        table, width = self._table(), self.width
        for t in reversed(range(self.steps)):
            into, here = table.select(0, t).narrow(1, 0, width), self.log_probs[t]
            start = _C.where(self.ends, here, _NONE)
            if t + 1 == self.steps:
                into.copy_(_C.where(self.last_step == t, start, _NONE))
                continue
            after = table.select(0, t + 1)
            ways = [after.narrow(1, 0, width), after.narrow(1, 1, width), _C.where(self.jumps_after, after.narrow(1, 2, width), _NONE)]
            into.copy_(_C.where(self.last_step == t, start, _log_sum(ways) + here))
        return table.narrow(2, 0, width)

    def loss(self, table):
        """The negative log likelihood of each sample: [N]."""
        n = table.shape[1]
        steps = _C.clamp(self.last_step, min=0).reshape(1, n, 1).expand(1, n, self.width)
        at_end = _C.where(self.ends, table.gather(0, steps).squeeze(0), _NONE)
        top = at_end.max(1, keepdim=True)[0]
        safe = _C.where(top == _NONE, 0.0, top)
        likelihood = (_C.log(_C.exp(at_end - safe).sum(1, keepdim=True)) + safe).squeeze(1)
        empty = (self.last_step < 0).squeeze(1)  # no step: possible only without labels, which end in column 0
        return _C.where(empty, _C.where(self.ends.narrow(1, 0, 1).squeeze(1), 0.0, math.inf).to(likelihood.dtype), -likelihood)


class _CTC(Function):
    """The loss of each sample. As in PyTorch, the gradient is that of log_probs that are a log_softmax; it has no gradient itself."""

    @staticmethod
    def forward(ctx, log_probs, alignments, zero_infinity):
        table = alignments.forward_table()
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
        both = ctx.table + a.backward_table()
        share = _C.where(both == _NONE, 0.0, _C.exp(both + loss.unsqueeze(1) - _C.where(both == _NONE, 0.0, a.log_probs)))
        of_labels = _C.zeros(log_probs.shape, dtype=log_probs.dtype, device=log_probs.device).scatter_add(2, a.extended, share)
        steps = _C.arange(a.steps, device=log_probs.device).reshape(-1, 1, 1)
        impossible = (loss == math.inf).unsqueeze(1)
        slope = _C.where(impossible, 0.0 if ctx.zero_infinity else math.nan, (_C.exp(log_probs) - of_labels) * grad.unsqueeze(1))
        return _C.where(steps <= a.last_step.unsqueeze(0), slope, 0.0), None, None


def _lengths(op, name, values, n, most):
    values = values.tolist() if hasattr(values, "tolist") else values
    values = [int(v) for v in (values if isinstance(values, (list, tuple)) else [values])]
    if len(values) != n:
        raise RuntimeError(f"{op}: {name} do not fit; got {len(values)}; expected one for each of {n} samples")
    if min(values, default=0) < 0 or max(values, default=0) > most:
        raise RuntimeError(f"{op}: {name} are out of range; got {values}; expected 0 to {most}")
    return values


def _labels(targets, lengths):
    """[N, the longest] with what does not count as 0."""
    import numpy as np

    most = max(lengths, default=0)
    given = np.asarray(targets.cpu().numpy()).astype(np.int64)
    inside = np.arange(most) < np.asarray(lengths)[:, None]
    out = np.zeros((len(lengths), most), np.int64)
    out[inside] = given[:, :most][inside] if given.ndim == 2 else given[: int(inside.sum())]
    return out


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The negative log likelihood of sequences of labels: log_probs [T, N, C] (log_softmax over C), targets [N, S] or all labels one after the other, the
    lengths of both for each sample; without N for one sample. 'mean' divides each loss by its number of labels and takes the mean. zero_infinity makes
    losses and gradients 0 where the labels do not fit into the input. Reads targets and lengths."""
    op = "ctc_loss"
    if log_probs.ndim not in (2, 3) or not log_probs.is_floating_point():
        raise RuntimeError(f"{op}: log_probs do not fit; got {log_probs.dtype} {tuple(log_probs.shape)}; expected floats [T, N, C] or [T, C]")
    if targets.is_floating_point() or targets.ndim not in (1, 2):
        raise RuntimeError(f"{op}: targets do not fit; got {targets.dtype} {tuple(targets.shape)}; expected integers of 1 or 2 dimensions")
    if not 0 <= blank < log_probs.shape[-1]:
        raise RuntimeError(f"{op}: blank is out of range; got {blank}; expected 0 to {log_probs.shape[-1] - 1}")
    x = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    n = x.shape[1]
    lengths = _lengths(op, "input_lengths", input_lengths, n, x.shape[0])
    label_lengths = _lengths(op, "target_lengths", target_lengths, n, targets.shape[1] if targets.ndim == 2 else targets.shape[0])
    if targets.ndim == 1 and sum(label_lengths) > targets.shape[0] or targets.ndim == 2 and targets.shape[0] != n:
        raise RuntimeError(f"{op}: targets do not fit; got shape {tuple(targets.shape)}; expected {sum(label_lengths)} labels of {n} samples")
    with_lengths = _Alignments(x.detach(), _labels(targets, label_lengths), lengths, label_lengths, blank)
    loss = _CTC.apply(x, with_lengths, zero_infinity)
    if zero_infinity:
        loss = _C.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        loss = loss / _C.tensor([max(1, k) for k in label_lengths], dtype=loss.dtype, device=loss.device)
    loss = loss if log_probs.ndim == 3 else loss.squeeze(0)
    return reduced(op, loss, reduction)
