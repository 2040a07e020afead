"""cross_entropy of a linear layer without its logits."""
from __future__ import annotations

import dataclasses
import math

from .. import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from ._annotations import Reduction

_LOGITS_BYTES = 64 << 20  # of a chunk; more than that are never there at one time


@dataclasses.dataclass
class LinearCrossEntropyOptions:
    """How linear_cross_entropy divides its rows. Only batch_chunk_size has an effect: the number of rows of a chunk. Logits are computed in the input's dtype,
    sums in at least float32, and gradients are recorded as those of any function, so the other fields change nothing.

    batch_chunk_size: None: as many rows as have 64 MiB of logits. allow_retain_graph, chunking_method, acc_policy and acc_dtype are accepted for PyTorch's programs.

    The fields are checked by linear_cross_entropy: ValueError for a batch_chunk_size that is not None or a positive int. An unknown field is a TypeError.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str = "auto"
    acc_policy: str = "auto"
    acc_dtype: object = None


def _chunk_rows(input, classes, options):
    if options is not None and not hasattr(options, "batch_chunk_size"):
        raise TypeError(f"linear_cross_entropy: options are of the wrong type; got {type(options).__name__}; expected LinearCrossEntropyOptions or None")
    chosen = None if options is None else options.batch_chunk_size
    if chosen is not None and not (isinstance(chosen, int) and chosen > 0):
        raise ValueError(f"linear_cross_entropy: batch_chunk_size is not a number of rows; got {chosen!r}; expected a positive int or None")
    return chosen if chosen else max(1, _LOGITS_BYTES // max(1, classes * input.dtype.itemsize))


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
                         reduction: Reduction = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
                         options: LinearCrossEntropyOptions | None = None) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target) that never holds all logits.

    input [N, K] or [K], linear_weight [C, K], target [N] (classes). Where the logits [N, C] would be large, chunks of rows are computed one after the
    other, and once more for the gradients (autograd.checkpoint). linear_weight [C, d1, .., K] and targets that are probabilities take the whole.

    linear_bias: [C], or of the shape of linear_weight without K. weight, reduction and label_smoothing: as of cross_entropy. ignore_index: None is -100. options: a
    LinearCrossEntropyOptions, which says how many rows a chunk has.

    Raises RuntimeError where input and linear_weight do not fit; ValueError for a bias or target that does not fit, an unknown reduction, a
    label_smoothing outside of 0 to 1 and a batch_chunk_size below 1; TypeError for tensors that are not floating and other options; IndexError for a target that
    is no class, at the latest when the loss is computed.
    """
    from ..autograd import checkpoint
    from .functional import cross_entropy, linear

    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"linear_cross_entropy: unknown reduction; got {reduction!r}; expected 'mean', 'sum' or 'none'")
    if linear_weight.ndim < 2 or input.ndim not in (1, 2) or input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(f"linear_cross_entropy: input and weight do not fit; got shapes {tuple(input.shape)} and {tuple(linear_weight.shape)}; expected [N, K] and [C, K]")
    classes, *places = linear_weight.shape[:-1]
    matrix = linear_weight.reshape(-1, linear_weight.shape[-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    settings = {"ignore_index": -100 if ignore_index is None else ignore_index, "label_smoothing": label_smoothing}
    if weight is not None:
        settings["weight"] = weight
    rows = _chunk_rows(input, classes * math.prod(places), options)
    if places or input.ndim == 1 or target.is_floating_point() or input.shape[0] <= rows:
        logits = linear(input, matrix, bias)
        logits = logits.reshape(*input.shape[:-1], classes, *places) if places else logits
        return cross_entropy(logits, target, reduction=reduction, **settings)
    each = "none" if reduction == "none" else "sum"
    records = _C.is_grad_enabled() and any(t is not None and t.requires_grad for t in (input, linear_weight, linear_bias, weight))
    losses = []
    for first in range(0, input.shape[0], rows):
        count = min(rows, input.shape[0] - first)
        wanted = target.narrow(0, first, count)

        def loss(x, w, *b, wanted=wanted):
            return cross_entropy(linear(x, w, *b), wanted, reduction=each, **settings)

        arguments = (input.narrow(0, first, count), matrix, *(() if bias is None else (bias,)))
        losses.append(checkpoint(loss, *arguments) if records else loss(*arguments))
    if reduction == "none":
        return _C.cat(losses)
    total = _C.stack(losses).sum()
    if reduction == "sum":
        return total
    counted = target != settings["ignore_index"]
    if weight is None:
        return total / counted.sum()
    return total / _C.where(counted, weight.index_select(0, _C.where(counted, target, 0)), 0.0).sum()
