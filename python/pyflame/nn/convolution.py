"""Convolutions. A 1-D input is an image of one row, so there is only one implementation."""
from .. import _C
from . import functional as F
from . import init
from ._arguments import _fan_in, _integers, _one, _pair
from .module import Module
from .parameter import Parameter


class _Conv(Module):
    def __init__(self, sizes, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype):
        super().__init__()
        name = type(self).__name__
        _integers(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{name}: groups must divide the channels; got {in_channels} and {out_channels} channels, groups {groups}")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"{name}: no such padding_mode; got '{padding_mode}'; expected 'zeros', 'reflect', 'replicate' or 'circular'")
        self.padding_mode = padding_mode
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = sizes(kernel_size, "kernel_size"), sizes(stride, "stride"), sizes(dilation, "dilation")
        if min(self.kernel_size + self.stride + self.dilation) < 1:
            raise ValueError(f"{name}: sizes must be positive; got kernel_size {self.kernel_size}, stride {self.stride}, dilation {self.dilation}")
        if isinstance(padding, str):
            if padding == "valid":
                padding = 0
            elif padding == "same" and set(self.stride) == {1} and all(d * (k - 1) % 2 == 0 for d, k in zip(self.dilation, self.kernel_size)):
                padding = tuple(d * (k - 1) // 2 for d, k in zip(self.dilation, self.kernel_size))
            else:
                raise ValueError(f"{name}: padding '{padding}' is not possible here; expected 'valid', or 'same' with stride 1 and an odd kernel")
        self.padding = sizes(padding, "padding")
        self.weight = Parameter(_C.empty(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(_C.empty(out_channels, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def _padded(self, input):
        """The padded input, and the padding that the convolution still has to do."""
        if self.padding_mode == "zeros":
            return input, self.padding
        return _C.pad(input, [p for p in reversed(self.padding) for _ in range(2)], self.padding_mode), (0,) * len(self.padding)

    def reset_parameters(self):
        init._fan_in_uniform_(self.weight, _fan_in(self.weight))
        if self.bias is not None:
            init._fan_in_uniform_(self.bias, _fan_in(self.weight))

    def extra_repr(self):
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if any(self.padding):
            s += f", padding={self.padding}"
        if set(self.dilation) != {1}:
            s += f", dilation={self.dilation}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        return s if self.padding_mode == "zeros" else s + f", padding_mode={self.padding_mode}"


class Conv1d(_Conv):
    """1-D convolution: [N, in_channels, L] -> [N, out_channels, L']."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
                 device=None, dtype=None):
        super().__init__(_one, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)

    def forward(self, input):
        input, padding = self._padded(input)
        return F.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """2-D convolution: [N, in_channels, H, W] -> [N, out_channels, H', W']."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
                 device=None, dtype=None):
        super().__init__(_pair, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)

    def forward(self, input):
        input, padding = self._padded(input)
        return _C.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class ConvTranspose2d(_Conv):
    """Transposed convolution, the gradient of a Conv2d with respect to its input: [N, in_channels, H, W] -> [N, out_channels, H', W']. The weight is
    [in_channels, out_channels / groups, kH, kW]."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
                 padding_mode="zeros", device=None, dtype=None):
        if padding_mode != "zeros":
            raise ValueError(f"ConvTranspose2d: no such padding_mode; got '{padding_mode}'; expected 'zeros'")
        super().__init__(_pair, out_channels, in_channels, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.output_padding = _pair(output_padding, "output_padding")
        if bias:
            self.bias = Parameter(_C.empty(out_channels, dtype=dtype, device=device))
            init._fan_in_uniform_(self.bias, _fan_in(self.weight))

    def forward(self, input):
        return _C.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation)

    def extra_repr(self):
        s = super().extra_repr()
        return s + f", output_padding={self.output_padding}" if any(self.output_padding) else s
