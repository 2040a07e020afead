"""Layers as functions that also return what their gradients need, and gradients as functions: torch.native_layer_norm and others."""
from __future__ import annotations

from . import _C
from ._keywords import naming

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._C import Tensor
    from ._annotations import Shape

__all__ = ["max_pool2d_with_indices_backward", "native_batch_norm", "native_dropout", "native_dropout_backward", "native_group_norm", "native_layer_norm"]


def native_layer_norm(input: Tensor, normalized_shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(layer_norm, mean, 1 / standard deviation); the last two have size 1 in the normalised dims.

    input: of a floating dtype. normalized_shape: the sizes of its last dims, over which it is normalised. weight, bias: of that shape, or None. eps: is added to the
    variance.

    ValueError where normalized_shape is not the end of the shape, and for weights of another shape. TypeError for dtypes that are not floating.
    """
    rank = len(normalized_shape)
    y = _C.layer_norm(input, tuple(normalized_shape), weight, bias, eps)
    shape = (*input.shape[: input.ndim - rank], *(1,) * rank)
    rows = input.reshape(*input.shape[: input.ndim - rank], -1) if input.numel() else input.reshape(*input.shape[: input.ndim - rank], 1)
    rows = rows.float() if input.dtype in (_C.float16, _C.bfloat16) else rows
    mean, rstd = rows.mean(-1), (rows.var(-1, correction=0) + eps).rsqrt()
    return y, mean.reshape(*shape).to(input.dtype), rstd.reshape(*shape).to(input.dtype)


def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(group_norm, mean, 1 / standard deviation) of N samples with C channels of HxW elements; the last two are [N, group].

    input: [N, C, ...], of a floating dtype. weight, bias: [C], or None. group: how many groups the channels are divided into; it divides C. eps: is added to the
    variance.

    ValueError where group does not divide C, and where N, C, HxW or the weights do not fit the input. TypeError for dtypes that are not floating.
    """
    from .nn.functional import group_norm

    y = group_norm(input, group, weight, bias, eps)
    rows = input.reshape(N, group, C // group * HxW)
    rows = rows.float() if input.dtype in (_C.float16, _C.bfloat16) else rows
    return y, rows.mean(-1).to(input.dtype), (rows.var(-1, correction=0) + eps).rsqrt().to(input.dtype)


def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool,
                      momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(batch_norm, mean, 1 / standard deviation) of each channel; the last two are empty where not training.

    input: [N, C, ...], of a floating dtype. weight, bias: [C], or None. running_mean, running_var: [C]; while training they are updated in place, and may be None;
    otherwise they are what the input is normalised by. momentum: the part of the new value in the running ones. eps: is added to the variance.

    ValueError for fewer than 2 dims, for weights or statistics of another size, and where not training without statistics. TypeError for dtypes that are
    not floating.
    """
    y = _C.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    wide = input.float() if input.dtype in (_C.float16, _C.bfloat16) else input
    if not training:
        nothing = _C.zeros(0, dtype=wide.dtype, device=input.device)
        return y, nothing, nothing
    dims = [d for d in range(input.ndim) if d != 1]
    return y, wide.mean(dims), (wide.var(dims, correction=0) + eps).rsqrt()


def native_dropout(input: Tensor, p: float, train: bool) -> tuple[Tensor, Tensor]:
    """(dropout, the mask of what was kept). input: of a floating dtype. p: the probability of zeros. train: False returns the input and a mask of True.

    ValueError for a p outside of 0 to 1.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"native_dropout: p is out of range; got {p}; expected 0 to 1")
    if not train:
        return input, _C.ones(input.shape, dtype=_C.bool_, device=input.device)
    kept = _C.rand(input.shape, device=input.device) >= p
    return input * kept.to(input.dtype) * (0.0 if p == 1 else 1 / (1 - p)), kept


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of native_dropout's input: grad_output * mask * scale, elementwise.

    mask: what native_dropout kept, a bool tensor of the same shape. scale: a number, 1 / (1 - p) of the dropout.

    ValueError where the shapes do not broadcast, TypeError for a scale that is no number.
    """
    return grad_output * mask * scale


def max_pool2d_with_indices_backward(grad_output: Tensor, self: Tensor, kernel_size: object, stride: object, padding: object, dilation: object,
                                     ceil_mode: object, indices: Tensor) -> Tensor:
    """The gradient of max_pool2d: each number of grad_output is added to the element of `self` whose index it has.

    grad_output: of the shape of max_pool2d's result. self: the input of max_pool2d, of which only the shape counts. indices: the int64 indices that max_pool2d gave.
    kernel_size, stride, padding, dilation and ceil_mode are not used: the indices say all.

    ValueError for a self of other than 3 or 4 dims, for indices of another shape than grad_output, and for a grad_output whose dims before the last two are
    not those of self. TypeError for indices that are not integers. IndexError for an index outside of an image, when the numbers are computed.
    """
    op, given, like = "max_pool2d_with_indices_backward", tuple(grad_output.shape), tuple(self.shape)
    if len(like) not in (3, 4):
        raise _C.ArgumentError(f"{op}: self has another number of dims; got shape {like}; expected [C, H, W] or [N, C, H, W]")
    if len(given) != len(like) or given[:-2] != like[:-2]:
        raise _C.ArgumentError(f"{op}: grad_output does not fit self; got shape {given} for {like}; expected the same number of dims, and the same sizes before the last two")
    if tuple(indices.shape) != given:
        raise _C.ArgumentError(f"{op}: the indices do not fit grad_output; got shape {tuple(indices.shape)}; expected {given}")
    *outer, height, width = self.shape
    planes = 1
    for n in outer:
        planes *= n
    windows = grad_output.shape[-2] * grad_output.shape[-1]
    zeros = _C.zeros((planes, height * width), dtype=grad_output.dtype, device=grad_output.device)
    return zeros.scatter_add(1, indices.reshape(planes, windows), grad_output.reshape(planes, windows)).reshape(self.shape)


naming(globals(), __name__)
