"""Activations, random masks and rearrangements of images. nn.functional has their names."""
from __future__ import annotations

from .. import _C
from .._C import ArgumentError
from .._error_names import rename
from .._keywords import accepting
from .._notes import once

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor


def _result(input, y, inplace):
    """y, or with inplace the input, which then holds y."""
    return input.copy_(y) if inplace else y


def _zero(x):
    return _C.zeros((), dtype=x.dtype, device=x.device)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above the threshold, otherwise value. inplace: the result is written to input, which is returned.

    input: of any shape and a real dtype, which the result has. threshold, value: numbers. TypeError for complex.
    """
    try:
        result = _C.where(input <= threshold, _C.full((), value, dtype=input.dtype, device=input.device), input)
        return _result(input, result, inplace)
    except Exception as error:
        rename("threshold", error, (input, threshold, value))
        raise


@accepting
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input where |input| > lambd, otherwise 0.

    input: of any shape and a real dtype, which the result has. lambd: a number that is not negative; a negative one gives the input. TypeError for
    complex.
    """
    return _C.where(_C.logical_and(input >= -lambd, input <= lambd), _zero(input), input)


@accepting
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by lambd, and 0 where |input| <= lambd. ValueError for a negative lambd.

    input: of any shape, which the result has. Integers become float32. TypeError for complex.
    """
    if lambd < 0:
        raise ValueError(f"softshrink: a negative lambd; got {lambd}; expected 0 or more")
    return _C.where(input > lambd, input - lambd, _C.where(input < -lambd, input + lambd, input * 0))


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """input where it is positive, otherwise times a slope: random between lower and upper while training, their mean otherwise.

    input: of any shape and a floating dtype, which the result has (Xu et al., 2015); TypeError for integers while training. inplace: the result is
    written to input, which is returned.
    """
    if training:
        slope = lower + (upper - lower) * _C.rand(input.shape, dtype=input.dtype, device=input.device)
    else:
        slope = (lower + upper) / 2
    x = input.clone() if inplace else input  # the gradient needs it
    return _result(input, _C.where(x > 0, x, x * slope), inplace)


def _check_probability(op, p):
    if not 0 <= p <= 1:
        raise ValueError(f"{op}: the probability is out of range; got {p}; expected 0 to 1")


def _channels(op, input, dims):
    """The shape of one random number for each channel of each sample."""
    if input.ndim not in dims:
        if input.ndim < 2 or op == "dropout1d":
            raise ArgumentError(f"{op}: wrong rank; got shape {tuple(input.shape)}; expected {' or '.join(map(str, dims))} dims")
        once(op, f"an input of {input.ndim} dims; the second is taken for channels, as PyTorch does; expected {' or '.join(map(str, dims))} dims")
        return (*input.shape[:2], *(1,) * (input.ndim - 2))
    return (*input.shape[:2], *(1,) * (input.ndim - 2)) if input.ndim == max(dims) else (input.shape[0], *(1,) * (input.ndim - 1))


def _dropout_of_channels(op, input, p, training, inplace, dims):
    _check_probability(op, p)
    shape = _channels(op, input, dims)
    if not training or p == 0:
        return input
    return _result(input, input * _C.dropout(_C.ones(shape, dtype=input.dtype, device=input.device), p, True), inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, L] or [C, L] with probability p and scales the others by 1 / (1 - p).

    input: of a floating dtype. training: False returns the input. inplace: the result is written to input, which is returned. ValueError for p outside of [0, 1].
    """
    return _dropout_of_channels("dropout1d", input, p, training, inplace, (2, 3))


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, H, W] or [C, H, W] with probability p and scales the others by 1 / (1 - p).

    Inputs of other dims than 3 or 4 give a warning, and their second dim counts as the channels; ArgumentError for fewer than 2. The other arguments are
    those of dropout1d, and so are dtypes and errors.
    """
    return _dropout_of_channels("dropout2d", input, p, training, inplace, (3, 4))


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, D, H, W] or [C, D, H, W] with probability p and scales the others by 1 / (1 - p).

    Inputs of other dims than 4 or 5 give a warning, and their second dim counts as the channels; ArgumentError for fewer than 2. The other arguments are
    those of dropout1d, and so are dtypes and errors.
    """
    return _dropout_of_channels("dropout3d", input, p, training, inplace, (4, 5))


_SATURATION = -1.7580993408473766  # what selu is for very negative numbers


def _alpha(op, input, p, training, inplace, shape):
    _check_probability(op, p)
    if not training or p == 0:
        return input
    if p == 1:
        return _result(input, input * 0, inplace)
    scale = ((1 - p) * (1 + p * _SATURATION**2)) ** -0.5
    kept = _C.rand(shape, dtype=input.dtype, device=input.device) >= p
    mixed = _C.where(kept, input, _C.full((), _SATURATION, dtype=input.dtype, device=input.device))
    return _result(input, mixed * scale - scale * _SATURATION * p, inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for selu: elements become its saturation value with probability p; mean and variance are kept (Klambauer et al., 2017).

    input: of a floating dtype. training: False returns the input. inplace: the result is written to input, which is returned. ValueError for p outside of [0, 1].
    """
    return _alpha("alpha_dropout", input, p, training, inplace, input.shape)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels of [N, C, ...], the result having this shape: all elements of a channel become selu's saturation value, or none.

    The arguments are those of alpha_dropout, and so are dtypes and errors.
    """
    return _alpha("feature_alpha_dropout", input, p, training, inplace, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels as pixels: [.., C r^2, H, W] -> [.., C, H r, W r], r being upscale_factor (Shi et al., 2016).

    input: of any dtype, which the result has. RuntimeError for fewer than 3 dims, channels that r^2 does not divide, and r < 1.
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise RuntimeError(f"pixel_shuffle: the channels do not divide by the square of the factor; got shape {tuple(input.shape)} and factor {r}; expected [.., C * {r * r}, H, W]")
    *batch, channels, height, width = input.shape
    n, c = len(batch), channels // (r * r)
    parts = input.reshape(*batch, c, r, r, height, width).permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.reshape(*batch, c, height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels as channels: [.., C, H r, W r] -> [.., C r^2, H, W], r being downscale_factor. The inverse of pixel_shuffle.

    input: of any dtype, which the result has. RuntimeError for fewer than 3 dims, a height or width that r does not divide, and r < 1.
    """
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise RuntimeError(f"pixel_unshuffle: height and width do not divide by the factor; got shape {tuple(input.shape)} and factor {r}; expected [.., C, H * {r}, W * {r}]")
    *batch, c, height, width = input.shape
    n, h, w = len(batch), height // r, width // r
    parts = input.reshape(*batch, c, h, r, w, r).permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return parts.reshape(*batch, c * r * r, h, w)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of [N, C, ...] taken in turn from each of the groups: channel g C / groups + i becomes i groups + g (Zhang et al., 2017).

    input: of 3 dims or more and any dtype, which the result has. RuntimeError for fewer dims, and where groups do not divide C.
    """
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise RuntimeError(f"channel_shuffle: the groups do not divide the channels; got shape {tuple(input.shape)} and {groups} groups; expected (N, C, ...)")
    n, c, *rest = input.shape
    return input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest)


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """channel_shuffle under PyTorch's name for its kernel; input and groups are those of channel_shuffle, and so are the errors, such as RuntimeError for fewer than 3 dims."""
    return channel_shuffle(input, groups)


def _per_channel(y, weight, bias):
    """y * weight + bias, which are one number for each channel, or none. Integers without elements become floats by the parameters alone, as in PyTorch."""
    shape = (1, -1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * weight.reshape(*shape)
    return y if bias is None else y + bias.reshape(*shape)


def batch_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None, bias: Tensor | None = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel of [N, C, ...] with mean 0 and variance 1, then times weight [C] plus bias [C].

    While training, of the batch, and the running statistics are updated with its mean and variance; else the running statistics are used.
    An input without elements has no statistics, and leaves the running ones as they are.

    running_mean, running_var: [C], or None. momentum: the running statistics become (1 - momentum) running + momentum batch. eps: is added to the
    variance.

    input is floating and has two dims or more. Raises TypeError for another dtype; ValueError for one dim, for a parameter or statistics of another shape
    than [C], for missing statistics outside of training, and for a single value per channel in training.
    """
    if isinstance(input, _C.Tensor) and input.numel() == 0 and input.ndim > 1:
        if not input.is_floating_point():
            return _per_channel(input, weight, bias)
        training = False
        if running_mean is None or running_var is None:
            running_mean, running_var = (_C.full((input.shape[1],), value, dtype=input.dtype, device=input.device) for value in (0, 1))
    return _C.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
                  bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel of each sample of [N, C, ...] with mean 0 and variance 1, then times weight [C] plus bias [C].

    Running statistics are updated with the means over the samples, if there are any. With use_input_stats=False they are used instead of the input's.

    running_mean, running_var: [C], or None. momentum: the running statistics become (1 - momentum) running + momentum batch. eps: is added to the
    variance.

    input is floating. Raises ValueError for fewer than three dims, a single value per channel, statistics or parameters that do not fit, and
    use_input_stats=False without statistics; TypeError for another dtype.
    """
    if input.ndim < 3:
        raise ValueError(f"instance_norm: no dims after the channels; got shape {tuple(input.shape)}; expected (N, C, ...)")
    n, c, *rest = input.shape
    if input.numel() == 0 and not input.is_floating_point():
        return _per_channel(input, weight, bias)
    if not use_input_stats:
        return _C.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    count = 1
    for size in rest:
        count *= size
    if count == 1:
        raise ValueError(f"instance_norm: one value for each channel has no variance; got shape {tuple(input.shape)}; expected more than 1 spatial element")
    rows = input.reshape(n, c, count)
    if input.numel() and (running_mean is not None or running_var is not None):
        held = rows.detach()
        if running_mean is not None:
            running_mean.copy_(running_mean * (1 - momentum) + held.mean(-1).mean(0) * momentum)
        if running_var is not None:
            running_var.copy_(running_var * (1 - momentum) + held.var(-1).mean(0) * momentum)
    y = _C.layer_norm(rows, (count,), None, None, eps).reshape(input.shape)
    return _per_channel(y, weight, bias)


def _check_window(op, size):
    if not hasattr(size, "__index__"):
        raise TypeError(f"{op}: size is not an integer; got {size!r}; expected a number of channels")
    if size < 1:
        raise ValueError(f"{op}: size is not positive; got {size}; expected 1 or more channels")


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input / (k + alpha * the mean of squares of `size` neighbouring channels)^beta: (N, C, ...) (Krizhevsky et al., 2012).

    input: of 3 dims or more, a ValueError otherwise. The result has its shape and dtype, integers become float32. Channels before the first and after the
    last one count as 0. size: 1 or more, a ValueError otherwise; TypeError for what is no integer.
    """
    _check_window("local_response_norm", size)
    if input.ndim < 3:
        raise ValueError(f"local_response_norm: no dims after the channels; got shape {tuple(input.shape)}; expected (N, C, ...)")
    if input.numel() == 0:
        return input
    n, c, *rest = input.shape
    squares = (input * input).reshape(n, c, -1).transpose(1, 2)
    padded = _C.pad(squares, [size // 2, (size - 1) // 2])
    total = padded.narrow(2, 0, c)
    for i in range(1, size):
        total = total + padded.narrow(2, i, c)
    mean = (total / size).transpose(1, 2).reshape(input.shape)
    return input / _C.pow(mean * alpha + k, beta)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1^T weight[o] input2 + bias[o] for each output: [.., I], [.., J], [O, I, J] -> [.., O].

    The other dims of the inputs broadcast; bias: [O], or None. input1 and weight have one dtype (TypeError otherwise). ValueError, often as an
    ArgumentError, for sizes that do not fit.
    """
    outputs, rows, columns = weight.shape
    left = _C.matmul(input1, weight.permute(1, 0, 2).reshape(rows, outputs * columns)).reshape(*input1.shape[:-1], outputs, columns)
    y = (left * input2.unsqueeze(-2)).sum(-1)
    return y if bias is None else y + bias


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((logits + noise) / tau) with noise = -log(-log(u)), u uniform in [0, 1) (Gumbel's; Jang et al., 2017): near to a random choice with the
    probabilities softmax(logits), more so with a smaller tau.

    logits: of any shape and a floating dtype, which the result has; TypeError for others. tau: a number above 0, which is not checked: 0 gives NaN. hard:
    1 at the largest and 0 elsewhere, with the gradient of the softmax. dim: that of the softmax; IndexError where it is out of range. eps is accepted for
    PyTorch's programs and changes nothing.
    """
    noise = -_C.log(-_C.log(_C.clamp(_C.rand(logits.shape, dtype=logits.dtype, device=logits.device), 2.0**-60, 1 - 2.0**-24)))
    soft = _C.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    at = soft.detach().argmax(dim, keepdim=True)
    one = _C.zeros_like(soft.detach()).scatter_add(dim, at, _C.ones(at.shape, dtype=soft.dtype, device=soft.device))
    return one - soft.detach() + soft
