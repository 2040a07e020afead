"""Convolutions as functions: what the ops in C++ leave to do. nn.functional has their names."""
from __future__ import annotations

from .. import _C
from ._arguments import _tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from ._annotations import Padding, Size


def _sizes(op, name, value, dims):
    """A number for each spatial dim, from one number or one for each."""
    if hasattr(value, "__index__"):
        return (value,) * dims
    value = tuple(value)
    if len(value) == 1:
        return value * dims
    if len(value) != dims:
        raise ValueError(f"{op}: {name} has the wrong length; got {value}; expected one number or {dims}")
    return value


def same_padding(kernel, dilation):
    """The zeros before and after each dim with which a convolution of stride 1 keeps the size; the odd one is after."""
    totals = [d * (k - 1) for d, k in zip(dilation, kernel)]
    return [(t // 2, t - t // 2) for t in totals]


def _numbers(op, input, weight, stride, padding, dilation, dims):
    """The padding as numbers, and the input: padded where 'same' needs more at one end than at the other."""
    for what, value in (("input", input), ("weight", weight)):
        if not isinstance(value, _C.Tensor):
            raise TypeError(f"{op}: {what} is not a tensor; got {type(value).__name__}; expected a tensor")
    if not isinstance(padding, str):
        return input, padding
    if padding == "valid":
        return input, 0
    if padding != "same":
        raise ValueError(f"{op}: no such padding; got '{padding}'; expected 'same', 'valid' or numbers")
    if set(_sizes(op, "stride", stride, dims)) != {1}:
        raise ValueError(f"{op}: padding='same' with a stride; got stride {stride}; expected 1")
    ends = same_padding(weight.shape[2:], _sizes(op, "dilation", dilation, dims))
    if any(a != b for a, b in ends):
        input = _C.pad(input, [n for a, b in reversed(ends) for n in (0, b - a)])
    return input, tuple(a for a, _ in ends)


def _of_complex(function, input, weight, bias, *settings):
    """(a + bi) * (c + di) = (a * c - b * d) + (a * d + b * c) i, of the parts."""
    a, b, c, d = input.real, input.imag, weight.real, weight.imag

    def of(x, w):
        return function(x, w, None, *settings)

    y = _C.complex(of(a, c) - of(b, d), of(a, d) + of(b, c))
    return y if bias is None else y + bias.reshape(-1, *(1,) * (weight.ndim - 2))


def _computed(function, input, weight, bias, *settings):
    """The function, on float64 copies where the numbers are integers; results wrap as integers do."""
    if input.is_complex() and input.dtype == weight.dtype:
        return _of_complex(function, input, weight, bias, *settings)
    if input.numel() == 0 and weight.is_floating_point() and not (input.is_floating_point() or input.is_complex()):
        input = input.to(weight.dtype)  # as PyTorch: integers of no sample
    if input.dtype != weight.dtype or input.dtype.is_floating_point or input.dtype.is_complex or input.dtype == _C.bool_:
        return function(input, weight, bias, *settings)
    result = function(input.double(), weight.double(), bias if bias is None else bias.double(), *settings)
    return result.to(_C.int64).to(input.dtype)


def _one(v):
    return v[0] if isinstance(v, (tuple, list)) and len(v) == 1 else v


def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1) -> Tensor:
    """1-D cross-correlation. input [N, C, L] or [C, L], weight [O, C / groups, K], bias [O] -> [N, O, L'].

    padding: zeros at both ends, 'valid' (none) or 'same' (as many as keep the size; stride 1). Integers are computed in float64.

    dilation: between the elements of a window. stride: between windows. groups: how many parts of the channels are computed apart.

    ValueError for the wrong number of dims, for channels that do not fit the weight, for groups that do not divide the channels, for a stride, dilation or
    window that does not fit, and for another padding. TypeError where the dtypes differ, for bools, and for what is not a tensor.
    """
    input, padding = _numbers("conv1d", input, weight, stride, padding, dilation, 1)
    return _computed(_C.conv1d, input, weight, bias, _one(stride), _one(padding), _one(dilation), groups)


def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1) -> Tensor:
    """2-D cross-correlation. input [N, C, H, W] or [C, H, W], weight [O, C / groups, kH, kW], bias [O] -> [N, O, H', W'],
    H' = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1. padding: as in conv1d.

    ValueError for the wrong number of dims, for channels that do not fit the weight, for groups that do not divide the channels, for a stride, dilation or
    window that does not fit, and for another padding. TypeError where the dtypes differ, for bools, and for what is not a tensor.
    """
    input, padding = _numbers("conv2d", input, weight, stride, padding, dilation, 2)
    return _computed(_C.conv2d, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1) -> Tensor:
    """3-D cross-correlation. input [N, C, D, H, W] or [C, D, H, W], weight [O, C / groups, kD, kH, kW], bias [O] -> [N, O, D', H', W'].
    padding: as in conv1d.

    stride: between windows. padding: zeros at both ends. dilation: between the elements of a window. Each is a number, or one for each spatial dim.
    groups: how many parts of the channels are computed apart.

    ValueError for the wrong number of dims, for channels that do not fit the weight, for groups that do not divide the channels, for a stride, dilation or
    window that does not fit, and for another padding. TypeError where the dtypes differ, for bools, and for what is not a tensor.
    """
    input, padding = _numbers("conv3d", input, weight, stride, padding, dilation, 3)
    return _computed(_C.conv3d, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0, groups: int = 1,
                     dilation: Size = 1) -> Tensor:
    """What conv1d's gradient by its input does. input [N, C, L] or [C, L], weight [C, O / groups, K], bias [O] -> [N, O, L'],
    L' = (L - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1. output_padding is below stride or dilation.

    ValueError for the wrong number of dims, for channels that do not fit the weight, for groups that do not divide them, for a bias of another size, for
    an output_padding that is too large, and where the result would be empty. TypeError where the dtypes differ and for what is not a tensor.
    """
    return _computed(_C.conv_transpose1d, input, weight, bias, _one(stride), _one(padding), _one(output_padding), groups, _one(dilation))


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0, groups: int = 1,
                     dilation: Size = 1) -> Tensor:
    """What conv2d's gradient by its input does. input [N, C, H, W] or [C, H, W], weight [C, O / groups, kH, kW], bias [O] -> [N, O, H', W'].

    bias: [O], or None. stride, padding, dilation: of the convolution whose gradient it is. output_padding: is added to the output's size at one end;
    it is below stride or dilation.

    ValueError for the wrong number of dims, for channels that do not fit the weight, for groups that do not divide them, for a bias of another size, for
    an output_padding that is too large, and where the result would be empty. TypeError where the dtypes differ and for what is not a tensor.
    """
    return _computed(_C.conv_transpose2d, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0, groups: int = 1,
                     dilation: Size = 1) -> Tensor:
    """What conv3d's gradient by its input does. input [N, C, D, H, W] or [C, D, H, W], weight [C, O / groups, kD, kH, kW] -> [N, O, D', H', W'].

    bias: [O], or None. stride, padding, dilation: of the convolution whose gradient it is. output_padding: is added to the output's size at one end;
    it is below stride or dilation.

    ValueError for the wrong number of dims, for channels that do not fit the weight, for groups that do not divide them, for a bias of another size, for
    an output_padding that is too large, and where the result would be empty. TypeError where the dtypes differ and for what is not a tensor.
    """
    return _computed(_C.conv_transpose3d, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _pairs(op, **sizes):
    for name, v in sizes.items():
        if not hasattr(v, "__index__") and not (isinstance(v, (tuple, list)) and all(hasattr(n, "__index__") for n in v)):
            raise TypeError(f"{op}: {name} is not a size; got {v!r}; expected an integer or two")


def unfold(input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """The windows of [N, C, H, W] or [C, H, W] as columns: [N, C kH kW, windows].

    input: the image. kernel_size: of a window. dilation: between its elements. padding: zeros at both ends of the image. stride: between windows.
    Each is a number or a pair.

    Any dtype, which the result has. Raises ValueError for another rank, windows that do not fit, a negative padding and other sizes below 1; TypeError for
    what is no tensor, and sizes that are not ints or pairs.
    """
    _tensor("unfold", "input", input)
    _pairs("unfold", kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)
    return _C.im2col(input, kernel_size, dilation, padding, stride)


def fold(input: Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """Columns [N, C kH kW, windows] or [C kH kW, windows] as windows of an image, added where they overlap: [N, C, *output_size].

    input: the columns. kernel_size: of a window. dilation: between its elements. padding: zeros at both ends of the image. stride: between windows.
    Each is a number or a pair.

    Any dtype, which the result has. Raises ValueError for columns that do not fit the windows, a negative padding and other sizes below 1; TypeError for
    what is no tensor, and sizes that are not ints or pairs.
    """
    _tensor("fold", "input", input)
    _pairs("fold", output_size=output_size, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)
    return _C.col2im(input, output_size, kernel_size, dilation, padding, stride)


def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Size, padding: Size, dilation: Size, transposed: bool, output_padding: Size,
                groups: int) -> Tensor:
    """conv1d, conv2d or conv3d, or the transposed one, by the number of dims of the input.

    input: [N, C, ...] with one to three spatial dims. weight, bias: as of the function, where bias may be None. stride, padding, dilation, output_padding: sequences of one
    number, or of one for each spatial dim. transposed: whether it is conv_transpose1d, 2d or 3d. groups: how many parts of the channels are computed apart. RuntimeError for
    other numbers of dims, and for an output_padding that is not 0 without transposed.

        >>> pf.convolution(pf.ones(1, 1, 3), pf.ones(1, 1, 2), None, [1], [0], [1], False, [0], 1).tolist()
        [[[2.0, 2.0]]]
    """
    dims = input.ndim - 2
    if dims not in (1, 2, 3):
        raise RuntimeError(f"convolution: the input has {input.ndim} dims; got shape {tuple(input.shape)}; expected 3, 4 or 5")
    stride, padding, dilation, extra = (_one(v) for v in (stride, padding, dilation, output_padding))
    if transposed:
        function = (conv_transpose1d, conv_transpose2d, conv_transpose3d)[dims - 1]
        return function(input, weight, bias, stride, padding, extra, groups, dilation)
    if any(extra) if isinstance(extra, (tuple, list)) else extra:
        raise RuntimeError(f"convolution: output_padding without transposed; got {output_padding}; expected 0")
    return (conv1d, conv2d, conv3d)[dims - 1](input, weight, bias, stride, padding, dilation, groups)
