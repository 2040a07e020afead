"""Losses whose gradient is not that of their formula."""
from __future__ import annotations

from .. import _C
from ..autograd import Function
from .functional_losses import reduced

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from ._annotations import Reduction


class _BinaryCrossEntropy(Function):
    """The logarithms are at least -100, and the gradient is (x - y) / max((1 - x) x, 1e-12), so both are finite at 0 and 1."""

    @staticmethod
    def forward(ctx, input, target):
        ctx.save_for_backward(input, target)
        return -(target * _C.clamp(_C.log(input), min=-100) + (1 - target) * _C.clamp(_C.log1p(-input), min=-100))

    @staticmethod
    def backward(ctx, grad):
        input, target = ctx.saved_tensors
        of_input = grad * (input - target) / _C.clamp((1 - input) * input, min=1e-12)
        of_target = None
        if ctx.needs_input_grad[1]:
            of_target = grad * (_C.log1p(-input) - _C.log(input))
        return of_input, of_target


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """-(y log x + (1 - y) log(1 - x)) for probabilities x, the input, and the target y, of one shape, times weight, which broadcasts.

    A logarithm is at least -100. reduction: 'mean', 'sum' or 'none'. The input is not checked to be within [0, 1]: outside, the loss is NaN.
    For logits, which have any value, binary_cross_entropy_with_logits is the function.
    ValueError where shapes differ."""
    if input.shape != target.shape:
        raise ValueError(f"binary_cross_entropy: shapes differ; got {input.shape} and {target.shape}")
    if not input.is_floating_point() or not target.is_floating_point():
        raise TypeError(f"binary_cross_entropy: not floating; got {input.dtype} and {target.dtype}")
    loss = _BinaryCrossEntropy.apply(input, target)
    return reduced("binary_cross_entropy", loss if weight is None else loss * weight, reduction)
