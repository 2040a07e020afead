"""Losses. Each takes reduction 'mean', 'sum' or 'none'; with 'none' the result has one loss per element or per row."""
from __future__ import annotations

import math

from .. import _C
from .._error_names import named
from . import functional as F
from ._old_arguments import with_size_average
from .linear import Linear
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from .._C import Tensor
    from .._annotations import DType, Device, Shape
    from ._annotations import Lengths, Reduction
    from .functional_linear_loss import LinearCrossEntropyOptions


class _Loss(Module):
    _reductions = ("none", "mean", "sum")

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__ and cls.__module__.startswith("pyflame."):
            cls.__init__ = with_size_average(cls.__init__)

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        if reduction not in self._reductions:
            known = ", ".join(f"'{name}'" for name in self._reductions[:-1])
            raise ValueError(f"{type(self).__name__}: unknown reduction; got '{reduction}'; expected {known} or '{self._reductions[-1]}'")
        self.reduction = reduction

    __init__ = with_size_average(__init__)


class MSELoss(_Loss):
    """(input - target)^2 of each element. input and target have the same shape: a ValueError otherwise, nothing is broadcast.

    reduction: 'mean' or 'sum' of the losses, or 'none': one loss for each element. Floating dtypes."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        with named("mse_loss", "mean", "sub"):
            return _C.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """|input - target| of each element. input and target have the same shape: a ValueError otherwise, nothing is broadcast.

    reduction: 'mean' or 'sum' of the losses, or 'none': one loss for each element. Floating dtypes."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        with named("l1_loss", "mean", "sub"):
            return _C.l1_loss(input, target, self.reduction)


class CrossEntropyLoss(_Loss):
    """-log(softmax(input)[target]) for logits [N, C, ...] and classes [N, ...] (int64 or int32), or -sum(target log(softmax(input))) for probabilities of the
    input's shape. Also without a batch: [C] and a class.

    - weight [C]: a factor for the losses of each class. ignore_index: a class whose places count 0.
    - reduction: 'mean' (the sum divided by that of the weights of the targets; of probabilities, by the number of places), 'sum', or 'none': one loss for each
      place. The mean of no places is NaN.
    - label_smoothing: the part of each target that is spread evenly over all classes, 0 to 1.

    IndexError for a class that is not in [0, C).
    The arguments are those of nn.functional.cross_entropy."""

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean", label_smoothing: float = 0.0) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if not isinstance(input, _C.Tensor) and hasattr(input, "_cross_entropy"):
            return input._cross_entropy(target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)
        return _C.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class LinearCrossEntropyLoss(_Loss):
    """functional.linear_cross_entropy of a linear layer of its own (`linear`): the cross entropy of its outputs, which are not held all at one time.

    input [N, in_features], target [N] with classes below num_classes; out_features (d1, ...): places of one input, target [N, d1, ...]. weight
    [num_classes] is what each class counts. RuntimeError: weight or label_smoothing do not fit.

    bias: the layer has a bias. reduction: 'mean', 'sum' or 'none'. ignore_index: targets of this class do not count; None: -100. label_smoothing: from 0 to 1, as of
    cross_entropy. options: a LinearCrossEntropyOptions, or None.
    """

    def __init__(self, in_features: int, num_classes: int, *, out_features: Shape = (), bias: bool = False, device: Device | None = None,
                 dtype: DType | None = None, reduction: Reduction = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
                 label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None) -> None:
        super().__init__(reduction)
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"LinearCrossEntropyLoss: the weight does not fit; got shape {tuple(weight.shape)}; expected {(num_classes,)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"LinearCrossEntropyLoss: label_smoothing is out of range; got {label_smoothing}; expected 0 to 1")
        self.register_buffer("weight", weight)
        self.num_classes, self.out_features, self.ignore_index, self.label_smoothing, self.options = num_classes, tuple(out_features), ignore_index, label_smoothing, options
        self.linear = Linear(in_features, math.prod(self.out_features, start=num_classes), bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        sizes, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(input, self.linear.weight.reshape(*sizes, self.linear.in_features), target, linear_bias=None if bias is None else bias.reshape(sizes), weight=self.weight,
                                      reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, options=self.options)

    def extra_repr(self) -> str:
        return f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, reduction={self.reduction}"


class NLLLoss(_Loss):
    """-weight[target[i]] input[i, target[i]] for log-probabilities [N, C, ...] and classes [N, ...] (int64 or int32).

    weight [C]: a factor for each class. ignore_index: a class whose places count 0. reduction: 'mean' (the sum divided by that of the weights of the
    targets), 'sum', or 'none': one loss for each place. IndexError for a class that is not in [0, C).
    The arguments are those of nn.functional.nll_loss."""

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _C.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class NLLLoss2d(NLLLoss):
    """The older name of NLLLoss for log-probabilities [N, C, H, W] and classes [N, H, W], int64 or int32.

    The arguments are those of nn.functional.nll_loss, and so are the errors, which forward raises.
    """


class BCELoss(_Loss):
    """-(target log(input) + (1 - target) log(1 - input)) times weight, for probabilities; a logarithm counts at least -100.

    input and target have the same shape, and weight broadcasts to it. Probabilities outside of [0, 1] are not checked and give NaN.
    reduction: 'mean' or 'sum' of the losses, or 'none': one loss for each element.

    Raises ValueError for shapes that differ or do not broadcast and for an unknown reduction; TypeError where input or target is not floating, and for a
    weight that is no tensor.
    """

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits x: -(pos_weight target log(sigmoid(x)) + (1 - target) log(1 - sigmoid(x))), times weight.

    Floating dtypes. target has the shape of the input: a ValueError otherwise. weight and pos_weight broadcast to it.
    reduction: 'mean' or 'sum' of the losses, or 'none': one loss for each element.
    The arguments are those of nn.functional.binary_cross_entropy_with_logits."""

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _C.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class SmoothL1Loss(_Loss):
    """d^2 / (2 beta) where d = |input - target| is below beta, and d - beta / 2 beyond. With beta 0 it is the L1Loss.

    reduction: 'mean' or 'sum' of the losses, or 'none': one loss for each element. input and target have the same shape: a
    ValueError otherwise, nothing is broadcast. ValueError for a negative beta."""

    def __init__(self, reduction: Reduction = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """d^2 / 2 where d = |input - target| is at most delta, and delta (d - delta / 2) beyond.

    reduction: 'mean' or 'sum' of the losses, or 'none': one loss for each element. input and target have the same shape: a
    ValueError otherwise, nothing is broadcast. ValueError unless delta is positive."""

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class KLDivLoss(_Loss):
    """target (log(target) - input) of each element, for inputs that are log-probabilities, and 0 where the target is 0. input and target have the same shape.

    log_target: the targets are logarithms too. reduction: 'mean' of all elements, 'batchmean' (the sum divided by the first size, the divergence as
    mathematics has it), 'sum' or 'none'.

    Raises ValueError for shapes that differ and for an unknown reduction.
    """

    _reductions = ("none", "mean", "sum", "batchmean")

    def __init__(self, reduction: Literal["none", "mean", "sum", "batchmean"] = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class CTCLoss(_Loss):
    """The negative log likelihood of labels whose alignment with the inputs is not known (Graves et al., 2006): log-probabilities [T, N, C] and labels [N,
    S].

    The arguments are those of nn.functional.ctc_loss, which gives shapes and dtypes. Errors come from forward, and are those of ctc_loss.
    """

    def __init__(self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Lengths | int, target_lengths: Lengths | int) -> Tensor:
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)
