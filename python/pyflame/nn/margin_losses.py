"""Losses that compare distances, margins and distributions; functional_losses.py has their formulas."""
from __future__ import annotations

from . import functional as F
from .losses import _Loss
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._C import Tensor
    from ._annotations import Reduction


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin), where target is 1 or -1; the three broadcast.

    reduction: 'mean', 'sum' or 'none' (the loss of each element). ValueError otherwise; forward raises one for shapes that do not fit.
    """

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """input where target is 1, max(0, margin - input) where it is -1; both broadcast.

    reduction: 'mean', 'sum' or 'none' (the loss of each element). ValueError otherwise; forward raises one for shapes that do not fit.
    """

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1: [N, D], [N, D], [N].

    reduction: 'mean', 'sum' or 'none' (the loss of each row). ValueError otherwise; forward raises one for shapes that do not fit.
    """

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)), where target is 1 or -1; both broadcast.

    reduction: 'mean', 'sum' or 'none' (the loss of each element). ValueError otherwise; forward raises one for shapes that do not fit.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """Binary cross entropy of the logits of each class, averaged over the classes; weight [C] is what each class counts: input and target [.., C].

    reduction: 'mean', 'sum' or 'none' (the loss of each row). ValueError otherwise; forward raises one for shapes that do not fit.
    """

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiMarginLoss(_Loss):
    """The sum over the other classes of max(0, margin - x[target] + x[class])^p, divided by the number of classes C: x [N, C], target [N], int64 or int32.

    The arguments are those of nn.functional.multi_margin_loss, and so are the errors.
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.p, self.margin = p, margin
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """The mean over labels and other classes of max(0, 1 - (x[label] - x[class])); labels end before the first -1: x [N, C], labels [N, C], int64 or int32.

    The sum is divided by C. reduction: 'mean', 'sum' or 'none' (the loss of each row); ValueError otherwise. forward raises
    IndexError for a label of C or more.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, self.reduction)


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts: exp(input) - target * input, or with log_input=False input - target * log(input + eps). input and target
    broadcast.

    The arguments are those of nn.functional.poisson_nll_loss, and so are the errors, which forward raises.
    """

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """The negative log likelihood of a normal distribution with the variance that forward(input, target, var) is given: (log(var) + (input - target)^2 /
    var) / 2.

    input, target: of one shape. var: a number, or a tensor that broadcasts to it. The arguments are those of nn.functional.gaussian_nll_loss, and so are
    the errors, which forward raises.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), with d the p-norm of the difference.

    eps: is added to each element of the difference. swap: d(positive, negative) counts where it is the smaller one. reduction: 'mean', 'sum' or
    'none' (the loss of each element or sample).

    anchor, positive and negative: [N, D] or [D]. Raises ValueError for an unknown reduction at once, and, when it is called, for a margin that is not
    positive, numbers of dims that differ and shapes that do not broadcast.
    """

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance function of your own: max(0, d(anchor, positive) - d(anchor, negative) + margin) for tensors [N, D].

    The arguments are those of nn.functional.triplet_margin_with_distance_loss, and so are the errors, which forward raises.
    """

    def __init__(self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
                 reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap, reduction=self.reduction)


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along dim: sum(x1 x2) / (max(norm(x1), eps) max(norm(x2), eps)).

    forward takes two tensors that broadcast, and returns their common shape without dim: numbers in [-1, 1]. ArgumentError for shapes that do not
    broadcast; IndexError for a dim out of range.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps over the last dim. keepdim: the last dim stays, with size 1.

    x1, x2: [N, D] or [D], broadcast against each other; the result is [N] or a scalar. ArgumentError where the shapes do not broadcast. eps keeps the gradient of
    equal vectors finite."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
