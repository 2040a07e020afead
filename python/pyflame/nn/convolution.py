"""Convolutions. A 1-D input is an image of one row, so there is only one implementation."""
from __future__ import annotations

from .. import _C
from . import functional as F
from . import init
from ._arguments import _fan_in, _integers, _one, _pair, _triple
from .functional_convs import same_padding
from .module import Module
from .parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._C import Tensor
    from .._annotations import DType, Device
    from ._annotations import Padding, PaddingMode, Size


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
            if padding not in ("valid", "same"):
                raise ValueError(f"{name}: no such padding; got '{padding}'; expected 'valid', 'same' or numbers")
            if padding == "same" and set(self.stride) != {1}:
                raise ValueError(f"{name}: padding 'same' is not possible here; got stride {self.stride}; expected stride 1")
            self.padding = padding
        else:
            self.padding = sizes(padding, "padding")
        self.weight = Parameter(_C.empty(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(_C.empty(out_channels, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def _padded(self, input):
        """The padded input, and the padding that the convolution still has to do."""
        if self.padding_mode == "zeros":
            return input, self.padding
        if self.padding == "valid":
            return input, 0
        ends = same_padding(self.kernel_size, self.dilation) if self.padding == "same" else [(p, p) for p in self.padding]
        return _C.pad(input, [n for end in reversed(ends) for n in end], self.padding_mode), 0

    def reset_parameters(self) -> None:
        init._fan_in_uniform_(self.weight, _fan_in(self.weight))
        if self.bias is not None:
            init._fan_in_uniform_(self.bias, _fan_in(self.weight))

    def extra_repr(self) -> str:
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            s += f", padding={self.padding}"
        if set(self.dilation) != {1}:
            s += f", dilation={self.dilation}"
        if any(getattr(self, "output_padding", ())):
            s += f", output_padding={self.output_padding}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        return s if self.padding_mode == "zeros" else s + f", padding_mode={self.padding_mode}"


class Conv1d(_Conv):
    """1-D convolution: [N, in_channels, L] -> [N, out_channels, L'], also without N, with
    L' = floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1. The weight is [out_channels, in_channels / groups, K].

    The arguments are those of Conv2d. ValueError for wrong arguments, and in forward for another number of channels or dims and a kernel that is larger
    than the padded input; TypeError for another dtype than that of the weight.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1,
                 bias: bool = True, padding_mode: PaddingMode = "zeros", device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__(_one, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """2-D convolution: [N, in_channels, H, W] -> [N, out_channels, H', W'], with
    H' = floor((H + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, and W' in the same way. The weight is [out_channels, in_channels / groups, kH, kW].

    - kernel_size, stride, padding, dilation: a number for all dims, or one for each dim. stride: the step from one window to the next; dilation: the step
      between two elements of a window.
    - padding: elements that are added at each border; "valid": none; "same": as many as give an output of the input's size (stride 1 only).
    - padding_mode: what stands there: "zeros", "reflect", "replicate" or "circular".
    - groups: input and output channels are divided into so many groups, and each group of outputs sees one group of inputs.
    - bias: whether a learned number is added to each output channel.
    - device, dtype: of the parameters; the current ones unless given.

    Raises ValueError for sizes below 1, a number of channels that groups does not divide, an unknown padding or padding_mode and 'same' with a stride;
    TypeError for sizes that are not ints. A call raises ValueError for an input of another rank or number of channels, a kernel that is larger than the
    padded input and a negative padding, and TypeError for another dtype than the weight's.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1,
                 bias: bool = True, padding_mode: PaddingMode = "zeros", device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__(_pair, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """3-D convolution: [N, in_channels, D, H, W] -> [N, out_channels, D', H', W'], also without N, with L' = floor((L + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1 for each dim. The weight is [out_channels, in_channels / groups, kD, kH, kW].

    The arguments are those of Conv2d. ValueError for wrong arguments, and in forward for another number of channels or dims and a kernel that is larger
    than the padded input; TypeError for another dtype than that of the weight.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1,
                 bias: bool = True, padding_mode: PaddingMode = "zeros", device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__(_triple, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv3d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _ConvTranspose(_Conv):
    _sizes = staticmethod(_pair)

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0, output_padding: Size = 0, groups: int = 1,
                 bias: bool = True, dilation: Size = 1, padding_mode: PaddingMode = "zeros", device: Device | None = None, dtype: DType | None = None) -> None:
        name, sizes = type(self).__name__, type(self)._sizes
        if padding_mode != "zeros":
            raise ValueError(f"{name}: no such padding_mode; got '{padding_mode}'; expected 'zeros'")
        if isinstance(padding, str):
            raise ValueError(f"{name}: no such padding; got '{padding}'; expected numbers")
        super().__init__(sizes, out_channels, in_channels, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.output_padding = sizes(output_padding, "output_padding")
        if bias:
            self.bias = Parameter(_C.empty(out_channels, dtype=dtype, device=device))
            init._fan_in_uniform_(self.bias, _fan_in(self.weight))

    def _output_padding(self, input, output_size):
        """What makes the result as large as asked for."""
        if output_size is None:
            return self.output_padding
        dims = len(self.kernel_size)
        wanted = tuple(output_size)[-dims:]
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1
                 for n, s, p, d, k in zip(input.shape[-dims:], self.stride, self.padding, self.dilation, self.kernel_size)]
        if len(wanted) != dims or not all(a <= w < a + s for w, a, s in zip(wanted, least, self.stride)):
            most = [a + s - 1 for a, s in zip(least, self.stride)]
            raise ValueError(f"{type(self).__name__}: output_size does not fit; got {tuple(output_size)}; expected sizes from {least} to {most}")
        return tuple(w - a for w, a in zip(wanted, least))

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        more = self._output_padding(input, output_size)
        return type(self)._function(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution, the gradient of a Conv1d with respect to its input: [N, in_channels, L] -> [N, out_channels, L']. The weight is
    [in_channels, out_channels / groups, K]. forward's output_size chooses among the sizes that a strided Conv1d brings to the input's.
    output_padding adds to the output's size at one end. The other arguments are those of Conv2d; padding takes away from the output.

    Each size of the output is (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1. ValueError for wrong arguments, such as a padding_mode
    other than 'zeros'; in forward for another number of channels or dims, an output_size that cannot be, and an output_padding that is not less than stride or
    dilation. TypeError there for another dtype than that of the weight."""

    _sizes = staticmethod(_one)
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution, the gradient of a Conv2d with respect to its input: [N, in_channels, H, W] -> [N, out_channels, H', W']. The weight is
    [in_channels, out_channels / groups, kH, kW]. forward's output_size chooses among the sizes that a strided Conv2d brings to the input's.
    output_padding adds to the output's size at one end. The other arguments are those of Conv2d; padding takes away from the output.

    Each size of the output is (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1. ValueError for wrong arguments, such as a padding_mode
    other than 'zeros'; in forward for another number of channels or dims, an output_size that cannot be, and an output_padding that is not less than stride or
    dilation. TypeError there for another dtype than that of the weight."""

    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution, the gradient of a Conv3d with respect to its input: [N, in_channels, D, H, W] -> [N, out_channels, D', H', W']. The
    weight is [in_channels, out_channels / groups, kD, kH, kW]. forward's output_size chooses among the sizes that a strided Conv3d brings to the input's.
    output_padding adds to the output's size at one end. The other arguments are those of Conv2d; padding takes away from the output.

    Each size of the output is (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1. ValueError for wrong arguments, such as a padding_mode
    other than 'zeros'; in forward for another number of channels or dims, an output_size that cannot be, and an output_padding that is not less than stride or
    dilation. TypeError there for another dtype than that of the weight."""

    _sizes = staticmethod(_triple)
    _function = staticmethod(F.conv_transpose3d)
