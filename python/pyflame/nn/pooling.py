"""Pooling. A 1-D input is an image of one row, so there is only one implementation of each."""
from .. import _C
from . import functional as F
from ._arguments import _one, _pair
from .module import Module


class _Pool(Module):
    _sizes = staticmethod(_pair)

    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        for name, size in (("kernel_size", kernel_size), ("stride", kernel_size if stride is None else stride), ("padding", padding)):
            self._sizes(size, f"{type(self).__name__}: {name}")
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_Pool):
    """The maximum of each window of [N, C, H, W]."""

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__(kernel_size, stride, padding)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input):
        return _C.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self):
        return f"{super().extra_repr()}, dilation={self.dilation}"


class MaxPool1d(_Pool):
    """The maximum of each window of [N, C, L]."""

    _sizes = staticmethod(_one)

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__(kernel_size, stride, padding)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input):
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self):
        return f"{super().extra_repr()}, dilation={self.dilation}"


class AvgPool2d(_Pool):
    """The mean of each window of [N, C, H, W]."""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input):
        return _C.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool1d(_Pool):
    """The mean of each window of [N, C, L]."""

    _sizes = staticmethod(_one)

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AdaptiveAvgPool2d(Module):
    """The means of windows that cover [N, C, H, W]: [N, C, *output_size]; None keeps a size."""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """The means of windows that cover [N, C, L]: [N, C, output_size]."""

    def forward(self, input):
        return F.adaptive_avg_pool1d(input, self.output_size)
