"""Pools of signals, images and volumes. nn.functional has their names.

The ops in C++ pool images. A signal is an image of one row. A volume is pooled plane by plane, and then along its depth.
"""
from __future__ import annotations

from .. import _C
from .._keywords import accepting
from .functional_convs import _sizes

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal, overload

    from .._C import Tensor
    from ._annotations import Size


class _Call:
    """The sizes of a pooling call, and its input with a batch dim."""

    def __init__(self, op, dims, input, kernel_size, stride, padding, dilation=1):
        if input.ndim not in (dims + 1, dims + 2):
            raise ValueError(f"{op}: wrong rank; got shape {tuple(input.shape)}; expected {dims + 2} dims, or {dims + 1} without a batch")
        self.op, self.dims, self.batched = op, dims, input.ndim == dims + 2
        self.x = input if self.batched else input.unsqueeze(0)
        if 0 in self.x.shape[1:]:
            raise ValueError(f"{op}: an empty dim besides the batch; got shape {tuple(input.shape)}")
        self.kernel = _sizes(op, "kernel_size", kernel_size, dims)
        no_stride = stride is None or (isinstance(stride, (tuple, list)) and not len(stride))
        self.stride = self.kernel if no_stride else _sizes(op, "stride", stride, dims)
        self.padding, self.dilation = _sizes(op, "padding", padding, dims), _sizes(op, "dilation", dilation, dims)

    def settings(self, part):
        """(kernel, stride, padding, dilation) for an op on images: of this one, of a volume's 'planes', or of its 'depth'."""
        rest = (1, 1, 0, 1)  # a dim that is not pooled
        every = (self.kernel, self.stride, self.padding, self.dilation)
        if part == "depth":
            return [(v[0], r) for v, r in zip(every, rest)]
        return [(r, *v)[-2:] if self.dims == 1 else tuple(v[-2:]) for v, r in zip(every, rest)]

    def result(self, y):
        return y if self.batched else y.squeeze(0)


def _planes(x):
    """[N, C, D, H, W] as images: [N, C * D, H, W]."""
    n, c, depth, height, width = x.shape
    return x.reshape(n, c * depth, height, width)


def _pooled_volume(call, pool):
    """Pools planes, and then the depth: [N, C, D', H', W']. `pool` takes images and the settings of a call."""
    n, c, depth = call.x.shape[:3]
    planes = pool(_planes(call.x), *call.settings("planes"))
    height, width = planes.shape[-2:]
    y = pool(planes.reshape(n, c, depth, height * width), *call.settings("depth"))
    return y.reshape(n, c, y.shape[2], height, width)


def _max_pool_volume(call, ceil_mode):
    """Values, and indices in the volume."""
    n, c, depth, rows, columns = call.x.shape
    values, at = _C.max_pool2d(_planes(call.x), *call.settings("planes"), ceil_mode, True)
    height, width = values.shape[-2:]
    values, line = _C.max_pool2d(values.reshape(n, c, depth, height * width), *call.settings("depth"), ceil_mode, True)
    shape = (n, c, values.shape[2], height, width)
    line = line.reshape(n, c, shape[2] * height * width)
    at = at.reshape(n, c, depth * height * width).gather(2, line)
    return values.reshape(shape), (line // (height * width) * (rows * columns) + at).reshape(shape)


def _max_pool(op, dims, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    if input.is_complex():
        raise NotImplementedError(f"{op}: complex numbers have no order; got {input.dtype}; expected a floating or integer dtype; hint: input.abs()")
    floats = input if input.is_floating_point() else input.double()
    call = _Call(op, dims, floats, kernel_size, stride, padding, dilation)
    if dims == 3:
        if return_indices:
            values, at = _max_pool_volume(call, ceil_mode)
        else:
            values, at = _pooled_volume(call, lambda x, *settings: _C.max_pool2d(x, *settings, ceil_mode)), None
    else:
        x = call.x.unsqueeze(-2) if dims == 1 else call.x
        values, at = _C.max_pool2d(x, *call.settings("image"), ceil_mode, True)
        if dims == 1:
            values, at = values.squeeze(-2), at.squeeze(-2)
    values = call.result(values).to(input.dtype)
    return (values, call.result(at)) if return_indices else values


if TYPE_CHECKING:

    @overload
    def max_pool1d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                   return_indices: Literal[False] = False) -> Tensor: ...

    @overload
    def max_pool1d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False, *,
                   return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def max_pool1d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                   return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def max_pool1d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
               return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The maximum of each window of [N, C, L] or [C, L]; stride is kernel_size unless given. Returns [N, C, floor((L + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1].

    ceil_mode: a last window may reach beyond the padding, and the size is rounded up. return_indices: also the index of each maximum in the signal,
    int64.

    input: floating, or integers, which are computed in float64; the result has its dtype. kernel_size: of a window, a number or one for each spatial dim.
    stride: between windows. padding: at both ends. dilation: between the elements of a window. ValueError for other dims and for an empty dim besides the
    batch; ArgumentError for a kernel_size that is not positive or is larger than the padded input, and for padding above half of the kernel.
    """
    return _max_pool("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


if TYPE_CHECKING:

    @overload
    def max_pool2d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                   return_indices: Literal[False] = False) -> Tensor: ...

    @overload
    def max_pool2d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False, *,
                   return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def max_pool2d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                   return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def max_pool2d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
               return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The maximum of each window of [N, C, H, W] or [C, H, W]: [N, C, H', W'], each size as in max_pool1d; indices are those in the flattened plane.

    The arguments are those of max_pool1d, and so are dtypes and errors.
    """
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


if TYPE_CHECKING:

    @overload
    def max_pool3d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                   return_indices: Literal[False] = False) -> Tensor: ...

    @overload
    def max_pool3d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False, *,
                   return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def max_pool3d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                   return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def max_pool3d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
               return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The maximum of each window of [N, C, D, H, W] or [C, D, H, W]: [N, C, D', H', W'], each size as in max_pool1d; indices are those in the flattened
    volume.

    The arguments are those of max_pool1d, and so are dtypes and errors.
    """
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d_with_indices(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """max_pool1d with the indices: (maxima, indices), both [N, C, L'] for an input of [N, C, L]; indices are int64.

    The other arguments are those of max_pool1d, and so are the errors; return_indices changes nothing, since the indices are always returned.
    """
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d_with_indices(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """max_pool2d with the indices: (maxima, indices), both [N, C, H', W'] for an input of [N, C, H, W]; indices are int64. Indices are those in the
    flattened plane.

    The other arguments are those of max_pool1d, and so are the errors; return_indices changes nothing, since the indices are always returned.
    """
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d_with_indices(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """max_pool3d with the indices: (maxima, indices), both [N, C, D', H', W'] for an input of [N, C, D, H, W]; indices are int64. Indices are those in the
    flattened volume.

    The other arguments are those of max_pool1d, and so are the errors; return_indices changes nothing, since the indices are always returned.
    """
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def _divisors(call, sizes):
    """How many elements each window has in the padded input: one number for each window, over the spatial dims."""
    total = None
    for d, out in enumerate(sizes):
        length, k, s, p = call.x.shape[2 + d], call.kernel[d], call.stride[d], call.padding[d]
        counts = [min(i * s - p + k, length + p) - (i * s - p) for i in range(out)]
        each = _C.tensor(counts, dtype=_C.float64, device=call.x.device).reshape(*[-1 if d == e else 1 for e in range(len(sizes))])
        total = each if total is None else total * each
    return total


def _averages(call, ceil_mode, count_include_pad):
    def pool(x, kernel, stride, padding, dilation):
        return _C.avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad)

    if call.dims == 3:
        return _pooled_volume(call, pool)
    y = pool(call.x.unsqueeze(-2) if call.dims == 1 else call.x, *call.settings("image"))
    return y.squeeze(-2) if call.dims == 1 else y


def _avg_pool(op, dims, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    if divisor_override == 0:
        raise ValueError(f"{op}: divisor_override is 0; expected another number, or None")
    if input.is_complex():
        raise NotImplementedError(f"{op}: complex numbers have no order; got {input.dtype}; expected a floating or integer dtype; hint: input.abs()")
    floats = input if input.is_floating_point() else input.double()
    call = _Call(op, dims, floats, kernel_size, stride, padding)
    if divisor_override is None and floats is input:
        return call.result(_averages(call, ceil_mode, count_include_pad))
    y = _averages(call, ceil_mode, True)
    sums = y * _divisors(call, y.shape[2:]).to(y.dtype)
    if floats is input:
        return call.result(sums / divisor_override)
    # Of integers: the exact sum, divided towards zero.
    shares = _averages(_Call(op, dims, _C.ones(floats.shape, dtype=_C.float64, device=floats.device), kernel_size, stride, padding), ceil_mode, True)
    counts = _divisors(call, y.shape[2:])
    counts = counts if count_include_pad else _C.round(shares * counts)
    return call.result(_C.round(sums) / (counts if divisor_override is None else divisor_override)).to(input.dtype)


def avg_pool1d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of [N, C, L] or [C, L]; stride is kernel_size unless given. Returns [N, C, floor((L + 2 padding - kernel_size) / stride) + 1].

    ceil_mode: a last window may reach beyond the padding, and the size is rounded up. count_include_pad: the padding counts as zeros.

    input: floating, or integers, which are computed in float64; the result has its dtype. kernel_size: of a window, a number or one for each spatial dim.
    stride: between windows. padding: at both ends. ValueError for other dims and for an empty dim besides the batch; ArgumentError for a kernel_size that
    is not positive or is larger than the padded input, and for padding above half of the kernel.
    """
    return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@accepting
def avg_pool2d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: float | None = None) -> Tensor:
    """The mean of each window of [N, C, H, W] or [C, H, W], or its sum divided by divisor_override: [N, C, H', W'], each size as in avg_pool1d.

    The arguments are those of avg_pool1d, and so are dtypes and errors; ValueError also for divisor_override 0.
    """
    return _avg_pool("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@accepting
def avg_pool3d(input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: float | None = None) -> Tensor:
    """The mean of each window of [N, C, D, H, W] or [C, D, H, W], or its sum divided by divisor_override: [N, C, D', H', W'], each size as in avg_pool1d.

    The arguments are those of avg_pool1d, and so are dtypes and errors; ValueError also for divisor_override 0.
    """
    return _avg_pool("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(dims, pool, input, norm_type, kernel_size, stride, ceil_mode):
    count = 1
    for k in _sizes(f"lp_pool{dims}d", "kernel_size", kernel_size, dims):
        count *= k
    mean = pool(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (_C.sign(mean) * _C.relu(_C.abs(mean)) * count).pow(1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window of [N, C, L] or [C, L]: (sum x^p)^(1/p).

    input: of a real dtype; integers become floats. norm_type: p. kernel_size, stride, ceil_mode: as in avg_pool1d.

    Raises ValueError for another rank, a kernel that is larger than the input, and a kernel_size or stride below 1;
    NotImplementedError for complex numbers; ZeroDivisionError for norm_type 0.
    """
    return _lp_pool(1, avg_pool1d, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window of [N, C, H, W] or [C, H, W]: (sum x^p)^(1/p).

    input: of a real dtype; integers become floats. norm_type: p. kernel_size, stride, ceil_mode: as in avg_pool1d.

    Raises ValueError for another rank, a kernel that is larger than the input, and a kernel_size or stride below 1;
    NotImplementedError for complex numbers; ZeroDivisionError for norm_type 0.
    """
    return _lp_pool(2, avg_pool2d, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window of [N, C, D, H, W] or [C, D, H, W]: (sum x^p)^(1/p).

    input: of a real dtype; integers become floats. norm_type: p. kernel_size, stride, ceil_mode: as in avg_pool1d.

    Raises ValueError for another rank, a kernel that is larger than the input, and a kernel_size or stride below 1;
    NotImplementedError for complex numbers; ZeroDivisionError for norm_type 0.
    """
    return _lp_pool(3, avg_pool3d, input, norm_type, kernel_size, stride, ceil_mode)
