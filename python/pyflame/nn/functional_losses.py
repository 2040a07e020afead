"""Losses that compare distances, margins and distributions. nn.functional has their names.

Each takes reduction 'mean', 'sum' or 'none'. What PyTorch's older arguments size_average and reduce said, reduction says.
"""
from __future__ import annotations

import math

from .. import _C
from .._error_names import named

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._C import Tensor
    from ._annotations import Reduction

REDUCTIONS = {"none": lambda loss: loss, "mean": lambda loss: loss.mean(), "sum": lambda loss: loss.sum()}


def reduced(op, loss, reduction):
    """The loss of each element or sample, reduced."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{op}: unknown reduction; got '{reduction}'; expected 'none', 'mean' or 'sum'")
    return REDUCTIONS[reduction](loss)


def _weighted(op, loss, weight, reduction):
    """The loss of each element times its weight; 'mean' divides by the sum of the weights."""
    if loss.shape != weight.shape:
        raise ValueError(f"{op}: the weight does not fit; got weight {weight.shape}; expected the input's shape {loss.shape}")
    total = reduced(op, loss * weight, "sum" if reduction == "mean" else reduction)
    return total / weight.sum() if reduction == "mean" else total


def mse_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean", weight: Tensor | None = None) -> Tensor:
    """(input - target)^2 for tensors of one shape. weight, of the same shape, is what each element counts: 'mean' divides by its sum. reduction: 'mean',
    'sum' or 'none'.

    input, target: of one shape, a ValueError otherwise, and of a floating dtype, a TypeError otherwise. Returns a scalar, or with 'none' the input's
    shape. ValueError for another weight or reduction.
    """
    if weight is None:
        with named("mse_loss", "mean", "sub"):
            return _C.mse_loss(input, target, reduction)
    return _weighted("mse_loss", _C.mse_loss(input, target, "none"), weight, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean", weight: Tensor | None = None) -> Tensor:
    """|input - target| for tensors of one shape. weight, of the same shape, is what each element counts: 'mean' divides by its sum. reduction: 'mean', 'sum'
    or 'none'.

    input, target: of one shape, a ValueError otherwise, and of a floating dtype, a TypeError otherwise. Returns a scalar, or with 'none' the input's shape.
    ValueError for another weight or reduction.
    """
    if weight is None:
        with named("l1_loss", "mean", "sub"):
            return _C.l1_loss(input, target, reduction)
    return _weighted("l1_loss", _C.l1_loss(input, target, "none"), weight, reduction)


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean") -> Tensor:
    """-input[i, target[i]] for log-probabilities [N, C] and classes [N], or [N, C, ...] and [N, ...]; places with ignore_index count nothing.

    weight [C] is what each class counts; 'mean' divides by the weights of the targets.

    input: of a floating dtype. target: int64 or int32, a TypeError otherwise. reduction: 'mean', 'sum' or 'none' (the loss of each place). IndexError for
    a class that is not from 0 to C - 1; ValueError for shapes that do not fit.
    """
    return _C.nll_loss(input, target, weight, ignore_index, reduction)


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """nll_loss(log_softmax(input), target, weight) for logits [N, C] and int64 or int32 classes [N], or probabilities [N, C]; also [N, C, ...] and [N, ...].

    weight [C] is what each class counts, or None. ignore_index: rows with this class count nothing; it is not for probabilities. reduction: 'mean', 'sum'
    or 'none' (the loss of each row); 'mean' divides by the weights of the targets. label_smoothing: from 0 to 1, the part of each target that is spread
    evenly over all classes. input: of a floating dtype, a TypeError otherwise; a DTensor that is whole, or split along the classes within
    distributed.tensor.parallel.loss_parallel(). IndexError for a class that is not from 0 to C - 1; ValueError for shapes that do not fit.
    """
    if not isinstance(input, _C.Tensor) and hasattr(input, "_cross_entropy"):
        return input._cross_entropy(target, weight, ignore_index, reduction, label_smoothing)
    return _C.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Reduction = "mean",
                                     pos_weight: Tensor | None = None) -> Tensor:
    """-(t log s(x) + (1 - t) log(1 - s(x))) with the sigmoid s, without overflow; the first term times pos_weight, all times weight.

    input: the logits x, of a floating dtype. target: the t, of the same shape. weight, pos_weight: broadcast to that shape, or None. reduction: 'mean', 'sum' or 'none'
    (the loss of each element).

    Raises ValueError where the shapes of input and target differ, where a weight does not broadcast, and for an unknown reduction; TypeError where input
    or target is not floating.
    """
    return _C.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dim: [.., D], [.., D] -> [..].

    keepdim: the last dim stays, with size 1.

    p: which norm, a number. x1, x2: of any dtype; integers become float32. Raises ValueError where their shapes do not broadcast, and TypeError for a p
    that is no number.
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Reduction = "mean") -> Tensor:
    """max(0, -target * (input1 - input2) + margin), where target is 1 or -1.

    The three broadcast (ArgumentError otherwise). reduction: 'mean', 'sum' or 'none' (the loss of each element); ValueError otherwise. Returns a scalar,
    or with 'none' the common shape.
    """
    return reduced("margin_ranking_loss", _C.relu(-target * (input1 - input2) + margin), reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1. reduction: 'mean', 'sum' or 'none' (the loss of each element).

    input and target broadcast (ArgumentError otherwise). ValueError for another reduction. Returns a scalar, or with 'none' the common shape.
    """
    zero = _C.zeros((), dtype=input.dtype, device=input.device)
    loss = _C.where(target != 1, _C.clamp(margin - input, min=0), zero) + _C.where(target != -1, input, zero)
    return reduced("hinge_embedding_loss", loss, reduction)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Reduction = "mean") -> Tensor:
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1: [N, D], [N, D], [N], or [D], [D] and a scalar.

    reduction: 'mean', 'sum' or 'none' (the loss of each row); ValueError otherwise. Returns a scalar, or with 'none' target's shape. ArgumentError for
    sizes that do not fit.
    """
    dim = target.ndim
    products, squares1, squares2 = ((a * b).sum(dim) for a, b in ((input1, input2), (input1, input1), (input2, input2)))
    cosine = products / _C.sqrt((squares1 + 1e-12) * (squares2 + 1e-12))
    zero = _C.zeros((), dtype=cosine.dtype, device=cosine.device)
    loss = _C.where(target == 1, 1 - cosine, zero) + _C.where(target == -1, _C.clamp(cosine - margin, min=0), zero)
    return reduced("cosine_embedding_loss", loss, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
    """log(1 + exp(-target * input)), where target is 1 or -1. reduction: 'mean', 'sum' or 'none' (the loss of each element).

    input and target broadcast (ArgumentError otherwise). ValueError for another reduction. Returns a scalar, or with 'none' the common shape.
    """
    return reduced("soft_margin_loss", _C.softplus(-target * input, 1, 40), reduction)


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """Binary cross entropy of the logits of each class with 0 or 1, averaged over the classes: input [.., C], target [.., C].

    weight [C] is what each class counts, or None. reduction: 'mean', 'sum' or 'none' (the loss of each row); ValueError otherwise. Returns a scalar, or
    with 'none' [..]. ArgumentError for shapes that do not fit.
    """
    loss = target * _C.softplus(-input, 1, 40) + (1 - target) * _C.softplus(input, 1, 40)
    loss = loss if weight is None else loss * weight
    return reduced("multilabel_soft_margin_loss", loss.mean(-1), reduction)


def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """The sum over all other classes of max(0, margin - x[target] + x[class])^p, divided by C, of input x: [N, C] or [C], with classes [N] or one.

    weight [C] is what each class counts: that of the target. p is 1 or 2. reduction: 'mean', 'sum' or 'none' (the loss of each row). target: int64.
    ValueError for another p or reduction; IndexError for a class that is not from 0 to C - 1.
    """
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p = 1 and p = 2; got {p}")
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    at = target.reshape(-1, 1)
    classes = rows.shape[1]
    over = _C.clamp(margin - rows.gather(1, at) + rows, min=0)
    over = over if p == 1 else over * over
    over = over if weight is None else over * weight.index_select(0, target.reshape(-1)).unsqueeze(1)
    other = _C.arange(classes, device=input.device).unsqueeze(0) != at
    loss = _C.where(other, over, _C.zeros((), dtype=over.dtype, device=over.device)).sum(1) / classes
    return reduced("multi_margin_loss", loss if input.ndim == 2 else loss.reshape(()), reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
    """The sum over labels and other classes of max(0, 1 - (x[label] - x[class])), divided by the number of classes.

    input [N, C] or [C]; target of the same shape, int64 or int32, has the labels of each row; they end before the first -1. reduction: 'mean', 'sum' or 'none'
    (the loss of each row); ValueError otherwise. IndexError for a label of C or more.
    """
    rows, labels = (input, target) if input.ndim == 2 else (input.reshape(1, -1), target.reshape(1, -1))
    classes = rows.shape[1]
    valid = _C.cumsum((labels < 0).to(_C.int64), 1) == 0
    at = _C.where(valid, labels, 0)
    index = _C.arange(classes, device=input.device)
    named = _C.logical_and(at.unsqueeze(2) == index, valid.unsqueeze(2)).any(1)  # [N, C]: whether a class is a label
    over = _C.clamp(1 - (rows.gather(1, at).unsqueeze(2) - rows.unsqueeze(1)), min=0)  # [N, labels, C]
    counts = _C.logical_and(valid.unsqueeze(2), _C.logical_not(named).unsqueeze(1))
    loss = _C.where(counts, over, _C.zeros((), dtype=over.dtype, device=over.device)).sum((1, 2)) / classes
    return reduced("multilabel_margin_loss", loss if input.ndim == 2 else loss.reshape(()), reduction)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Reduction = "mean") -> Tensor:
    """The negative log likelihood of counts: exp(input) - target * input, or with log_input=False input - target * log(input + eps).

    full adds Stirling's approximation of log(target!) where target > 1. reduction: 'mean', 'sum' or 'none' (the loss of each element); ValueError
    otherwise. input and target broadcast (ArgumentError otherwise). Returns a scalar, or with 'none' the common shape.
    """
    loss = _C.exp(input) - target * input if log_input else input - target * _C.log(input + eps)
    if full:
        many = target > 1
        safe = _C.where(many, target, _C.ones((), dtype=target.dtype, device=target.device))
        stirling = target * _C.log(safe) - target + 0.5 * _C.log(2 * math.pi * safe)
        loss = loss + _C.where(many, stirling, _C.zeros((), dtype=stirling.dtype, device=stirling.device))
    return reduced("poisson_nll_loss", loss, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean") -> Tensor:
    """The negative log likelihood of a normal distribution: (log(var) + (input - target)^2 / var) / 2, with var at least eps.

    full adds log(2 pi) / 2. var is a number, or a tensor that broadcasts to the input, or has its shape without the last dim. ValueError for a negative
    number. Looking for negative elements of a tensor would wait for its values: the loss of such an element is NaN.

    input, target: of one shape, or they broadcast (ArgumentError otherwise). reduction: 'mean', 'sum' or 'none' (the loss of each element or sample).
    """
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError(f"gaussian_nll_loss: a negative variance; got {var}; expected 0 or more")
        var = _C.full(input.shape, float(var), dtype=input.dtype, device=input.device)
    elif var.ndim == input.ndim - 1 and tuple(var.shape) == tuple(input.shape[:-1]):
        var = var.unsqueeze(-1)
    values = var.detach()
    clamped = var + (_C.where(values < 0, math.nan, _C.clamp(values, min=eps)) - values)  # its gradient is that of var
    loss = 0.5 * (_C.log(clamped) + (input - target) ** 2 / clamped)
    return reduced("gaussian_nll_loss", loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
                                      reduction: Reduction = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin). With swap, d(positive, negative) counts where it is the smaller one.

    anchor, positive, negative: [.., D], which broadcast. distance_function: of two tensors; pairwise_distance unless given. reduction: 'mean', 'sum' or
    'none' (the loss of each sample, [..]); ValueError otherwise, and for a margin that is not positive. ArgumentError for shapes that do not fit. Balntas et al., 2016.
    """
    if margin <= 0:
        raise ValueError(f"triplet_margin_with_distance_loss: the margin is not positive; got {margin}; expected more than 0")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _C.minimum(far, distance(positive, negative))
    return reduced("triplet_margin_with_distance_loss", _C.clamp(margin + near - far, min=0), reduction)


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
                        reduction: Reduction = "mean") -> Tensor:
    """triplet_margin_with_distance_loss with d = pairwise_distance(p, eps): [.., D], [.., D], [.., D]. ArgumentError unless they have as many dims.

    p: the order of the norm. eps: is added to the differences. The other arguments are those of triplet_margin_with_distance_loss, and so are result and
    errors.
    """
    if not anchor.ndim == positive.ndim == negative.ndim:
        shapes = ", ".join(str(tuple(t.shape)) for t in (anchor, positive, negative))
        raise _C.ArgumentError(f"triplet_margin_loss: the numbers of dims differ; got shapes {shapes}; expected as many dims; hint: unsqueeze()")
    return triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=lambda a, b: pairwise_distance(a, b, p, eps), margin=margin, swap=swap, reduction=reduction)
