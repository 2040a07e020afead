"""Pooling layers. functional_pools.py and functional_adaptive_pools.py have the functions."""
from __future__ import annotations

from . import functional as F
from ._arguments import _one, _pair, _triple
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._C import Tensor
    from ._annotations import AdaptiveSize, Factor, Size


class _Pool(Module):
    _sizes = staticmethod(_pair)

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        for name, size in (("kernel_size", kernel_size), ("stride", kernel_size if stride is None else stride), ("padding", padding)):
            type(self)._sizes(size, f"{type(self).__name__}: {name}")
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def _make_tuples(self):
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, tuple(type(self)._sizes(getattr(self, name), name)))

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1, return_indices: bool = False,
                 ceil_mode: bool = False) -> None:
        super().__init__(kernel_size, stride, padding)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return type(self)._function(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """The maximum of each window of [N, C, L] or [C, L]: [N, C, L'], and with return_indices also the int64 indices of the maxima. Each size is
    floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, rounded up with ceil_mode.

    The arguments are those of functional.max_pool1d. The result has the dtype of the input. ValueError for other dims, and for a kernel_size that is not
    positive or is larger than the padded input, and for padding above half of the kernel.
    """

    _sizes, _function = staticmethod(_one), staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The maximum of each window of [N, C, H, W] or [C, H, W]: [N, C, H', W'], and with return_indices also the int64 indices of the maxima. Each size is
    floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, rounded up with ceil_mode.

    The arguments are those of functional.max_pool2d. The result has the dtype of the input. ValueError for other dims, and for a kernel_size that is not
    positive or is larger than the padded input, and for padding above half of the kernel.
    """

    _function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The maximum of each window of [N, C, D, H, W] or [C, D, H, W]: [N, C, D', H', W'], and with return_indices also the int64 indices of the maxima. Each
    size is floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, rounded up with ceil_mode.

    The arguments are those of functional.max_pool3d. The result has the dtype of the input. ValueError for other dims, and for a kernel_size that is not
    positive or is larger than the padded input, and for padding above half of the kernel.
    """

    _sizes, _function = staticmethod(_triple), staticmethod(F.max_pool3d)


class _AvgPool(_Pool):
    def __init__(self, kernel_size: Size, stride: Size | None, padding: Size, ceil_mode: bool, count_include_pad: bool) -> None:
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad


class AvgPool1d(_AvgPool):
    """The mean of each window of [N, C, L] or [C, L]: [N, C, L']. Each size is floor((L + 2 padding - kernel_size) / stride) + 1, rounded up with
    ceil_mode.

    The arguments are those of functional.avg_pool1d. The result has the dtype of the input. ValueError for other dims, for a kernel_size that is larger
    than the padded input, for padding above half of the kernel.
    """

    _sizes = staticmethod(_one)

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self._make_tuples()

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolOfPlanes(_AvgPool):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: float | None = None) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPoolOfPlanes):
    """The mean of each window of [N, C, H, W] or [C, H, W], or its sum divided by divisor_override: [N, C, H', W']. Each size is floor((L + 2 padding -
    kernel_size) / stride) + 1, rounded up with ceil_mode.

    The arguments are those of functional.avg_pool2d. The result has the dtype of the input. ValueError for other dims, for a kernel_size that is larger
    than the padded input, for padding above half of the kernel and divisor_override 0.
    """

    _function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolOfPlanes):
    """The mean of each window of [N, C, D, H, W] or [C, D, H, W], or its sum divided by divisor_override: [N, C, D', H', W']. Each size is floor((L + 2
    padding - kernel_size) / stride) + 1, rounded up with ceil_mode.

    The arguments are those of functional.avg_pool3d. The result has the dtype of the input. ValueError for other dims, for a kernel_size that is larger
    than the padded input, for padding above half of the kernel and divisor_override 0.
    """

    _sizes, _function = staticmethod(_triple), staticmethod(F.avg_pool3d)


class _AdaptivePool(Module):
    def __init__(self, output_size: AdaptiveSize) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    pass


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of windows that cover [N, C, L] or [C, L] as evenly as they can: [N, C, output_size]; window i of a dim of size L reaches from floor(i L /
    n) to ceil((i + 1) L / n), n being its output_size.

    output_size: a number; None keeps a size. Floating dtypes, which the result has; TypeError for integers. ValueError for other dims and sizes.
    """

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of windows that cover [N, C, H, W] or [C, H, W] as evenly as they can: [N, C, *output_size]; window i of a dim of size L reaches from
    floor(i L / n) to ceil((i + 1) L / n), n being its output_size.

    output_size: a number, or one for each dim; None keeps a size. Floating dtypes, which the result has; TypeError for integers. ValueError for other
    dims and sizes.
    """

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of windows that cover [N, C, D, H, W] or [C, D, H, W] as evenly as they can: [N, C, *output_size]; window i of a dim of size L reaches from
    floor(i L / n) to ceil((i + 1) L / n), n being its output_size.

    output_size: a number, or one for each dim; None keeps a size. Floating dtypes, which the result has; TypeError for integers. ValueError for other
    dims and sizes.
    """

    _function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: AdaptiveSize, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return type(self)._function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of windows that cover [N, C, L] or [C, L] as evenly as they can: [N, C, output_size], and with return_indices their int64 places in the
    flattened dims L.

    output_size: a number; None keeps a size. Real dtypes, which the result has. ValueError for other dims and sizes below 1.
    """

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of windows that cover [N, C, H, W] or [C, H, W] as evenly as they can: [N, C, *output_size], and with return_indices their int64 places in
    the flattened dims H, W.

    output_size: a number, or one for each dim; None keeps a size. Real dtypes, which the result has. ValueError for other dims and sizes below 1.
    """

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of windows that cover [N, C, D, H, W] or [C, D, H, W] as evenly as they can: [N, C, *output_size], and with return_indices their int64
    places in the flattened dims D, H, W.

    output_size: a number, or one for each dim; None keeps a size. Real dtypes, which the result has. ValueError for other dims and sizes below 1.
    """

    _function = staticmethod(F.adaptive_max_pool3d)


class _LPPool(Module):
    def __init__(self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The p-norm of each window of [N, C, L] or [C, L]: (sum x^p)^(1/p), p being norm_type: [N, C, L'].

    The arguments are those of nn.functional.lp_pool1d, and so are sizes and errors. ZeroDivisionError for norm_type 0.
    """

    _function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """The p-norm of each window of [N, C, H, W] or [C, H, W]: (sum x^p)^(1/p), p being norm_type: [N, C, H', W'].

    The arguments are those of nn.functional.lp_pool2d, and so are sizes and errors. ZeroDivisionError for norm_type 0.
    """

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The p-norm of each window of [N, C, D, H, W] or [C, D, H, W]: (sum x^p)^(1/p), p being norm_type: [N, C, D', H', W'].

    The arguments are those of nn.functional.lp_pool3d, and so are sizes and errors. ZeroDivisionError for norm_type 0.
    """

    _function = staticmethod(F.lp_pool3d)


class _FractionalMaxPool(Module):
    def __init__(self, kernel_size: Size, output_size: Size | None = None, output_ratio: Factor | None = None, return_indices: bool = False,
                 _random_samples: Tensor | None = None) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__}: not one of output_size and output_ratio; expected exactly one of them")
        self.kernel_size, self.return_indices = kernel_size, return_indices
        self.output_size, self.output_ratio = output_size, output_ratio
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return type(self)._function(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maxima of windows at random distances that cover [N, C, H, W] or [C, H, W]: [N, C, *output_size] (Graham, 2014).

    The arguments are those of nn.functional.fractional_max_pool2d. ValueError: not exactly one of output_size and output_ratio, or windows that do not
    fit, which forward raises.
    """

    _function = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maxima of windows at random distances that cover [N, C, D, H, W] or [C, D, H, W]: [N, C, *output_size] (Graham, 2014).

    The arguments are those of nn.functional.fractional_max_pool3d. ValueError: not exactly one of output_size and output_ratio, or windows that do not
    fit, which forward raises.
    """

    _function = staticmethod(F.fractional_max_pool3d)


class _MaxUnpool(_Pool):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__(kernel_size, stride, padding)
        self._make_tuples()

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return type(self)._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """What a MaxPool1d took, at the indices that it gave; zeros elsewhere: input and indices [N, C, L'] or [C, L'] -> [N, C, L].

    The arguments are those of nn.functional.max_unpool1d. forward takes output_size, too. TypeError: indices are not int64. ValueError: shapes that
    differ, an output_size that cannot be.
    """

    _sizes, _function = staticmethod(_one), staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """What a MaxPool2d took, at the indices that it gave; zeros elsewhere: input and indices [N, C, H', W'] or [C, H', W'] -> [N, C, H, W].

    The arguments are those of nn.functional.max_unpool2d. forward takes output_size, too. TypeError: indices are not int64. ValueError: shapes that
    differ, an output_size that cannot be.
    """

    _function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """What a MaxPool3d took, at the indices that it gave; zeros elsewhere: input and indices [N, C, D', H', W'] or [C, D', H', W'] -> [N, C, D, H, W].

    The arguments are those of nn.functional.max_unpool3d. forward takes output_size, too. TypeError: indices are not int64. ValueError: shapes that
    differ, an output_size that cannot be.
    """

    _sizes, _function = staticmethod(_triple), staticmethod(F.max_unpool3d)


class Unfold(Module):
    """The windows of [N, C, H, W] or [C, H, W] as columns: [N, C kH kW, windows], the number of windows being the product of
    floor((H + 2 padding - dilation (kH - 1) - 1) / stride) + 1 over both dims.

    The arguments are those of nn.functional.unfold. Any dtype. ArgumentError for other dims, and where no window fits.
    """

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns [N, C kH kW, windows] as windows of an image, added where they overlap: [N, C, *output_size].

    The arguments are those of functional.fold. ArgumentError where the columns do not fit the windows of output_size.
    """

    def __init__(self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__()
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = output_size, kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
                f"stride={self.stride}")
