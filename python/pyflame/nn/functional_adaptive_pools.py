"""Pools with a given number of windows: adaptive and fractional ones, and max_unpool. nn.functional has their names."""
from __future__ import annotations

import math

from .. import _C
from .functional_convs import _sizes
from .functional_pools import _Call, max_pool1d, max_pool2d, max_pool3d

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, overload

    from .._C import Tensor
    from ._annotations import AdaptiveSize, Factor, Size

_MAX_POOLS = (max_pool1d, max_pool2d, max_pool3d)


def _targets(op, output_size, input, dims):
    """The output's sizes; None keeps one of the input's."""
    sizes = (output_size,) * dims if output_size is None or hasattr(output_size, "__index__") else tuple(output_size)
    if len(sizes) == 1:
        sizes *= dims
    if len(sizes) != dims:
        raise ValueError(f"{op}: output_size has the wrong length; got {output_size}; expected one number or {dims}")
    sizes = tuple(have if want is None else want for want, have in zip(sizes, input.shape[-dims:]))
    if max(sizes) >= 2**31 or math.prod((*input.shape[:-dims], *(abs(n) for n in sizes))) >= 2**60:
        raise ValueError(f"{op}: the output is too large; got output_size {output_size}; expected sizes below 2^31 and fewer than 2^60 elements")
    return sizes


def _without_windows(op, input, sizes):
    """No means, where a size of the output is 0; None otherwise."""
    if 0 not in sizes or min(sizes) < 0 or input.ndim - len(sizes) not in (1, 2):
        return None
    if not input.is_floating_point():
        raise TypeError(f"{op}: not a float dtype; got {input.dtype}; expected a float dtype")
    return _C.zeros(*input.shape[:-len(sizes)], *sizes, dtype=input.dtype, device=input.device) + input.sum() * 0


def adaptive_avg_pool1d(input: Tensor, output_size: AdaptiveSize) -> Tensor:
    """The means of windows that cover [N, C, L] or [C, L] as evenly as they can: [N, C, output_size].

    input: of a floating dtype, which the result has; TypeError otherwise. output_size: a number; None keeps L. ArgumentError for other dims and sizes.
    """
    sizes = _targets("adaptive_avg_pool1d", output_size, input, 1)
    if (none := _without_windows("adaptive_avg_pool1d", input, sizes)) is not None:
        return none
    return _C.adaptive_avg_pool2d(input.unsqueeze(-2), (1, *sizes)).squeeze(-2)


def adaptive_avg_pool2d(input: Tensor, output_size: AdaptiveSize) -> Tensor:
    """The means of windows that cover [N, C, H, W] as evenly as they can: [N, C, *output_size]; None keeps a size. Also [C, H, W].

    input: of a floating dtype, which the result has; TypeError otherwise. output_size: a number, or one for each dim. ArgumentError for other dims and
    sizes.
    """
    sizes = _targets("adaptive_avg_pool2d", output_size, input, 2)
    none = _without_windows("adaptive_avg_pool2d", input, sizes)
    return _C.adaptive_avg_pool2d(input, sizes) if none is None else none


def adaptive_avg_pool3d(input: Tensor, output_size: AdaptiveSize) -> Tensor:
    """The means of windows that cover [N, C, D, H, W] as evenly as they can: [N, C, *output_size]; None keeps a size.

    input: floating, [N, C, D, H, W] or [C, D, H, W]. output_size: a number or three. Raises ValueError for another rank, another number of sizes or a size
    below 0, and TypeError for integers, bools and complex numbers.
    """
    call = _Call("adaptive_avg_pool3d", 3, input, 1, 1, 0)
    depth, height, width = sizes = _targets("adaptive_avg_pool3d", output_size, input, 3)
    if (none := _without_windows("adaptive_avg_pool3d", input, sizes)) is not None:
        return none
    n, c, old, rows, columns = call.x.shape
    planes = _C.adaptive_avg_pool2d(call.x.reshape(n, c * old, rows, columns), (height, width))
    y = _C.adaptive_avg_pool2d(planes.reshape(n, c, old, height * width), (depth, height * width))
    return call.result(y.reshape(n, c, depth, height, width))


def _windows(size, count):
    """The indices in each of `count` windows that cover `size`; shorter windows repeat their last one. None where all are equal."""
    import numpy as np

    if size % count == 0:
        return None
    at = np.arange(count)
    begin, end = at * size // count, -(-(at + 1) * size // count)
    return np.minimum(begin[:, None] + np.arange((end - begin).max()), end[:, None] - 1)


def _even_maxima(x, dim, count):
    shape = list(x.shape)
    each = shape[dim] // count
    values, at = x.reshape(*shape[:dim], count, each, *shape[dim + 1:]).max(dim + 1)
    begin = _C.arange(0, shape[dim], each, device=x.device).reshape(*[-1 if d == dim else 1 for d in range(x.ndim)])
    return values, at + begin


def _maxima(x, dim, windows):
    """The maximum of each window along a dim, and its index. windows: [count, length], or [N, C, count, length]."""
    count, each = windows.shape[-2:]
    shape, taken = list(x.shape), list(x.shape)
    shape[dim:dim + 1] = [count, each]
    taken[dim] = count * each
    outer = windows.shape[:-2] or (1, 1)

    def along(numbers, n):
        return numbers.reshape(*outer, *[n if d == dim else 1 for d in range(2, x.ndim)])

    if windows.ndim == 2:
        parts = x.index_select(dim, windows.reshape(count * each))
    else:
        parts = x.gather(dim, along(windows, count * each).expand(*taken))
    values, at = parts.reshape(*shape).max(dim + 1)
    return values, at + along(windows.narrow(-1, 0, 1), count)


def _flat_maxima(x, along):
    """The maxima along all spatial dims, and their indices in the flattened spatial dims. along(x, dim): those of a dim."""
    dims, where = x.ndim - 2, []
    y = x
    for dim in reversed(range(2, x.ndim)):
        y, at = along(y, dim)
        where = [at, *(w.gather(dim, at) for w in where)]
    flat = where[0]
    for d in range(1, dims):
        flat = flat * x.shape[2 + d] + where[d]
    return y, flat


def _adaptive_max(op, dims, input, output_size, return_indices):
    call = _Call(op, dims, input, 1, 1, 0)
    sizes = _targets(op, output_size, input, dims)
    if min(sizes) < 1:
        raise ValueError(f"{op}: an empty output; got output_size {output_size}; expected 1 or more")

    if all(n % count == 0 for n, count in zip(call.x.shape[2:], sizes)):
        kernel = tuple(n // count for n, count in zip(call.x.shape[2:], sizes))
        return _MAX_POOLS[dims - 1](input, kernel, return_indices=return_indices)

    def along(x, dim):
        count = sizes[dim - 2]
        windows = _windows(x.shape[dim], count)
        return _even_maxima(x, dim, count) if windows is None else _maxima(x, dim, _C.tensor(windows, device=x.device))

    values, at = _flat_maxima(call.x, along)
    return (call.result(values), call.result(at)) if return_indices else call.result(values)


if TYPE_CHECKING:

    @overload
    def adaptive_max_pool1d(input: Tensor, output_size: AdaptiveSize, return_indices: Literal[False] = False) -> Tensor: ...

    @overload
    def adaptive_max_pool1d(input: Tensor, output_size: AdaptiveSize, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def adaptive_max_pool1d(input: Tensor, output_size: AdaptiveSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def adaptive_max_pool1d(input: Tensor, output_size: AdaptiveSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of windows that cover input [N, C, L] or [C, L] as evenly as they can: [N, C, output_size], and with return_indices their int64 places.

    ValueError for other numbers of dims and for an output_size below 1. NotImplementedError for complex numbers.
    """
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


if TYPE_CHECKING:

    @overload
    def adaptive_max_pool2d(input: Tensor, output_size: AdaptiveSize, return_indices: Literal[False] = False) -> Tensor: ...

    @overload
    def adaptive_max_pool2d(input: Tensor, output_size: AdaptiveSize, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def adaptive_max_pool2d(input: Tensor, output_size: AdaptiveSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def adaptive_max_pool2d(input: Tensor, output_size: AdaptiveSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of windows that cover input [N, C, H, W] or [C, H, W] as evenly as they can: [N, C, *output_size]; None keeps a size.

    output_size: a number, or one for each of the 2 dims. return_indices: (values, indices); an index is the int64 place of the maximum in the plane of its channel.

    The values have the dtype of input, which may be of floats, integers or bools. Raises ValueError for another rank, another number of sizes or a size
    below 1, and NotImplementedError for complex numbers.
    """
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


if TYPE_CHECKING:

    @overload
    def adaptive_max_pool3d(input: Tensor, output_size: AdaptiveSize, return_indices: Literal[False] = False) -> Tensor: ...

    @overload
    def adaptive_max_pool3d(input: Tensor, output_size: AdaptiveSize, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def adaptive_max_pool3d(input: Tensor, output_size: AdaptiveSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def adaptive_max_pool3d(input: Tensor, output_size: AdaptiveSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of windows that cover input [N, C, D, H, W] or [C, D, H, W] as evenly as they can: [N, C, *output_size]; None keeps a size.

    output_size: a number, or one for each of the 3 dims. return_indices: (values, indices); an index is the int64 place of the maximum in the volume of its channel.

    The values have the dtype of input, which may be of floats, integers or bools. Raises ValueError for another rank, another number of sizes or a size
    below 1, and NotImplementedError for complex numbers.
    """
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: AdaptiveSize, return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool1d with the indices: (maxima, indices), of [N, C, L] or [C, L]; both have the shape [N, C, *output_size], and the indices are int64.

    The other arguments are those of adaptive_max_pool1d, and so are the errors; return_indices changes nothing.
    """
    return adaptive_max_pool1d(input, output_size, True)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: AdaptiveSize, return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool2d with the indices: (maxima, indices), of [N, C, H, W] or [C, H, W]; both have the shape [N, C, *output_size], and the indices are
    int64.

    The other arguments are those of adaptive_max_pool2d, and so are the errors; return_indices changes nothing.
    """
    return adaptive_max_pool2d(input, output_size, True)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: AdaptiveSize, return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool3d with the indices: (maxima, indices), of [N, C, D, H, W] or [C, D, H, W]; both have the shape [N, C, *output_size], and the indices
    are int64.

    The other arguments are those of adaptive_max_pool3d, and so are the errors; return_indices changes nothing.
    """
    return adaptive_max_pool3d(input, output_size, True)


def _fractional_windows(sample, size, kernel, count, device):
    """[N, C, count, kernel]: windows whose distances vary at random between two numbers (Graham, 2014)."""
    last = _C.full((*sample.shape, 1), size - kernel, dtype=_C.int64, device=device)
    if count > 1:
        step = (size - kernel) / (count - 1)
        u = sample.unsqueeze(-1)
        begin = (_C.floor((_C.arange(count - 1, device=device).to(sample.dtype) + u) * step) - _C.floor(u * step)).to(_C.int64)
        last = _C.cat([begin, last], -1)
    return last.unsqueeze(-1) + _C.arange(kernel, device=device)


def _fractional(op, dims, input, kernel_size, output_size, output_ratio, return_indices, samples):
    call = _Call(op, dims, input, kernel_size, 1, 0)
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{op}: not one of output_size and output_ratio; expected exactly one of them")
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * dims
        if not all(0 < r < 1 for r in ratios):
            raise ValueError(f"{op}: output_ratio is out of range; got {output_ratio}; expected between 0 and 1")
        output_size = tuple(int(n * r) for n, r in zip(call.x.shape[2:], ratios))
    sizes = _sizes(op, "output_size", output_size, dims)
    for n, k, out in zip(call.x.shape[2:], call.kernel, sizes):
        if out < 1 or out + k - 1 > n:
            raise ValueError(f"{op}: the windows do not fit; got kernel_size {call.kernel} and output_size {sizes} for {tuple(input.shape)}")
    x = call.x
    if samples is None:
        samples = _C.rand((*x.shape[:2], dims), dtype=x.dtype, device=x.device)
    elif tuple(samples.shape) != (*x.shape[:2], dims):
        raise ValueError(f"{op}: _random_samples has the wrong shape; got {tuple(samples.shape)}; expected {(*x.shape[:2], dims)}")

    def along(y, dim):
        which = dims - 1 - (dim - 2) if dims == 2 else dim - 2  # the first number of an image's sample is for its columns
        return _maxima(y, dim, _fractional_windows(samples.select(2, which), y.shape[dim], call.kernel[dim - 2], sizes[dim - 2], y.device))

    values, at = _flat_maxima(x, along)
    return (call.result(values), call.result(at)) if return_indices else call.result(values)


if TYPE_CHECKING:

    @overload
    def fractional_max_pool2d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None,
                              return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor: ...

    @overload
    def fractional_max_pool2d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None, *,
                              return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def fractional_max_pool2d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None,
                              return_indices: bool = False, _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]: ...


def fractional_max_pool2d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None, return_indices: bool = False,
                          _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of windows at random distances, so many that they cover [N, C, H, W] or [C, H, W]: [N, C, *output_size] (Graham, 2014).

    input: of a floating dtype. kernel_size, output_size: a number, or one for each of the two dims. output_ratio: the output's sizes in relation to the input's,
    instead of output_size: a number between 0 and 1, or one for each dim. return_indices: (values, indices); an index is the int64 place of the maximum in the plane
    of its channel, by rows. _random_samples: [N, C, 2] numbers below 1. ValueError where the windows do not fit, or unless one of output_size and output_ratio is given.
    """
    return _fractional("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


if TYPE_CHECKING:

    @overload
    def fractional_max_pool3d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None,
                              return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor: ...

    @overload
    def fractional_max_pool3d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None, *,
                              return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def fractional_max_pool3d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None,
                              return_indices: bool = False, _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]: ...


def fractional_max_pool3d(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None, return_indices: bool = False,
                          _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of windows at random distances, so many that they cover [N, C, D, H, W] or [C, D, H, W]: [N, C, *output_size] (Graham, 2014).

    The arguments are those of fractional_max_pool2d, with three dims in place of two: output_size, output_ratio and kernel_size have one number, or
    three. The errors are the same.
    """
    return _fractional("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool2d_with_indices(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None,
                                       return_indices: bool = True, _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """fractional_max_pool2d with the indices, whatever return_indices says: (maxima, indices), both [N, C, *output_size], the indices int64.

    The other arguments are those of fractional_max_pool2d, and so are the errors.
    """
    return fractional_max_pool2d(input, kernel_size, output_size, output_ratio, True, _random_samples)


def fractional_max_pool3d_with_indices(input: Tensor, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None,
                                       return_indices: bool = True, _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """fractional_max_pool3d with the indices, whatever return_indices says: (maxima, indices), both [N, C, *output_size], the indices int64.

    The other arguments are those of fractional_max_pool3d, and so are the errors.
    """
    return fractional_max_pool3d(input, kernel_size, output_size, output_ratio, True, _random_samples)


def _unpooled_sizes(call, op, output_size):
    plain = [(n - 1) * s - 2 * p + k for n, k, s, p in zip(call.x.shape[2:], call.kernel, call.stride, call.padding)]
    if output_size is None:
        return plain
    sizes = list(output_size)[-call.dims:]
    for want, have, s in zip(sizes, plain, call.stride):
        if not have - s < want < have + s:
            raise ValueError(f"{op}: output_size does not fit; got {tuple(output_size)}; expected {plain}, give or take less than stride {call.stride}")
    return sizes


def _unpool(op, dims, input, indices, kernel_size, stride, padding, output_size):
    if input.shape != indices.shape:
        raise ValueError(f"{op}: shapes differ; got input {tuple(input.shape)} and indices {tuple(indices.shape)}")
    if indices.dtype != _C.int64:
        raise TypeError(f"{op}: the indices are not int64; got {indices.dtype}")
    call = _Call(op, dims, input, kernel_size, stride, padding)
    sizes = _unpooled_sizes(call, op, output_size)
    n, c = call.x.shape[:2]
    total, windows = 1, 1
    for new, old in zip(sizes, call.x.shape[2:]):
        total, windows = total * new, windows * old
    at, values = indices.reshape(n, c, windows), call.x.reshape(n, c, windows)
    # Windows that overlap may name an element several times, with the same value: any of them may be the one that stays.
    y = _C.zeros((n, c, total), dtype=values.dtype, device=values.device).scatter(2, at, values)
    return call.result(y.reshape(n, c, *sizes))


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 output_size: Sequence[int] | None = None) -> Tensor:
    """What max_pool1d took, at the indices that it gave; zeros elsewhere. output_size: where several sizes lead to the same windows.

    input: [N, C, L] or [C, L], the values. indices: int64, of the shape of input. kernel_size, stride, padding: a number, as of max_pool1d; stride is kernel_size
    unless given. output_size: one number for each of the last dims; the numbers before them may be given, too. It differs from (L - 1) stride - 2 padding +
    kernel_size, the size without it, by less than stride (ValueError).
    """
    return _unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 output_size: Sequence[int] | None = None) -> Tensor:
    """What max_pool2d took, at the indices that it gave; zeros elsewhere. output_size: where several sizes lead to the same windows.

    input: [N, C, H, W] or [C, H, W]. kernel_size, stride, padding: a number, or one for each dim. The arguments are those of max_unpool1d.
    TypeError: indices are not int64. ValueError: shapes that differ, an output_size that cannot be. IndexError: an index outside of the result.
    """
    return _unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 output_size: Sequence[int] | None = None) -> Tensor:
    """What max_pool3d took, at the indices that it gave; zeros elsewhere. output_size: where several sizes lead to the same windows.

    input: [N, C, D, H, W] or [C, D, H, W]. kernel_size, stride, padding: a number, or one for each dim. The arguments are those of max_unpool1d.
    TypeError: indices are not int64. ValueError: shapes that differ, an output_size that cannot be. IndexError: an index outside of the result.
    """
    return _unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
