"""Layers that get the size of their input from the first input. Then they become the layers without Lazy in their names."""
from __future__ import annotations

from .. import _C
from . import convolution, normalization
from ._arguments import _integers
from .linear import Linear
from .module import Module
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from .._C import Tensor
    from .._annotations import DType, Device
    from ._annotations import Padding, PaddingMode, Size


class LazyModuleMixin(Module):  # a Module, so that a subclass is laid out like the class that it becomes
    """For a module whose parameters are made of UninitializedParameter: before its first forward, initialize_parameters(*args) is called, which gives
    them their shapes; then the module's class becomes cls_to_become, if that is not None.

    Its parameters raise RuntimeError when their shape is asked for before that.
    """

    cls_to_become = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._infer_hook = self.register_forward_pre_hook(LazyModuleMixin._infer_parameters, with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of the module itself, not of its children, has no shape yet. Returns a bool."""
        return any(is_lazy(t) for group in (self._parameters, self._buffers) for t in group.values())

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives all parameters and buffers their shapes and first values. It is called with the arguments of the first forward. NotImplementedError unless a
        subclass defines it.
        """
        raise NotImplementedError(f"{type(self).__name__}: initialize_parameters is not implemented")

    def _infer_parameters(self, args, kwargs=None):
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"{type(self).__name__}: initialize_parameters left parameters without a shape")
        self._infer_hook.remove()
        del self._infer_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become

    def _replicate_for_data_parallel(self):
        raise RuntimeError(f"{type(self).__name__}: call it with an input before it is replicated")


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose in_features is the last size of the first input. Before that call its parameters have no shape, and asking for it is a RuntimeError; then
    the class is Linear.

    The other arguments are those of nn.Linear. IndexError for a first input without dims.
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws weight and bias again as Linear does, once they have shapes. Before the first input it does nothing."""
        if self.in_features and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()


class _LazyConv(LazyModuleMixin):
    def __init__(self, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1, bias: bool = True,
                 padding_mode: PaddingMode = "zeros", device: Device | None = None, dtype: DType | None = None) -> None:
        self._begin(out_channels, bias, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation, groups=groups, padding_mode=padding_mode, device=device, dtype=dtype)

    def _begin(self, out_channels, bias, *, groups, device, dtype, **sizes):
        _integers(type(self).__name__, out_channels=out_channels, groups=groups)
        super().__init__(groups, groups, bias=False, groups=groups, device=device, dtype=dtype, **sizes)
        if out_channels % groups:
            raise ValueError(f"{type(self).__name__}: groups must divide the channels; got {out_channels} channels, groups {groups}")
        self.in_channels, self.out_channels = 0, out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def _weight_shape(self):
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        name, dims = type(self).__name__, len(self.kernel_size)
        if input.ndim not in (dims + 1, dims + 2):
            raise RuntimeError(f"{name}: the input has {input.ndim} dimensions; expected {dims + 1} without a batch or {dims + 2} with one")
        self.in_channels = input.shape[-dims - 1]
        if self.in_channels % self.groups:
            raise ValueError(f"{name}: groups must divide the channels; got {self.in_channels} channels, groups {self.groups}")
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConvTranspose(_LazyConv):
    def __init__(self, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0, output_padding: Size = 0, groups: int = 1, bias: bool = True,
                 dilation: Size = 1, padding_mode: PaddingMode = "zeros", device: Device | None = None, dtype: DType | None = None) -> None:
        self._begin(out_channels, bias, kernel_size=kernel_size, stride=stride, padding=padding, output_padding=output_padding, groups=groups, dilation=dilation,
                    padding_mode=padding_mode, device=device, dtype=dtype)  # fmt: skip

    def _weight_shape(self):
        return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)


class _LazyNorm(LazyModuleMixin):
    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True, device: Device | None = None,
                 dtype: DType | None = None, *, bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False, device=device, dtype=dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        where = {"device": device, "dtype": dtype}
        if affine:
            self.weight, self.bias = UninitializedParameter(**where), UninitializedParameter(**where) if bias else None
        if track_running_stats:
            self.running_mean, self.running_var = UninitializedBuffer(**where), UninitializedBuffer(**where)
            self.num_batches_tracked = _C.zeros((), dtype=_C.int64, device=device)

    def reset_running_stats(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_running_stats()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if input.ndim not in self._ranks:
            raise ValueError(f"{type(self).__name__}: the input has {input.ndim} dimensions; expected {self._shapes}")
        self.num_features = input.shape[self._channel(input)]
        for t, value in ((self.weight, 1), (self.bias, 0), (self.running_mean, 0), (self.running_var, 1)):
            if is_lazy(t):
                t.materialize((self.num_features,))
                t.detach().fill_(value)

    def _channel(self, input):
        return 1


class _LazyInstanceNorm(_LazyNorm):
    def _channel(self, input):
        return 0 if input.ndim == min(self._ranks) else 1


def _lazy(kind, base):
    size, error = ("in_channels", "RuntimeError") if issubclass(kind, _LazyConv) else ("num_features", "ValueError")
    text = f"""{base.__name__} whose number of channels, {size}, is that of the first input; shapes and dtypes are those of {base.__name__}. The first call gives the
    parameters their shapes, after which the class is {base.__name__}. {error} for a first input with another number of dims than {base.__name__} takes. Until the first call,
    reading a parameter's shape is a RuntimeError. The other arguments are those of {base.__name__}."""
    return type("Lazy" + base.__name__, (kind, base), {"__doc__": text, "__module__": __name__, "cls_to_become": base})


def _all_lazy():
    for module, kinds in ((convolution, {"Conv": _LazyConv, "ConvTranspose": _LazyConvTranspose}), (normalization, {"BatchNorm": _LazyNorm, "InstanceNorm": _LazyInstanceNorm})):
        for stem, kind in kinds.items():
            for dims in (1, 2, 3):
                base = getattr(module, f"{stem}{dims}d", None)
                if base is not None:
                    yield "Lazy" + base.__name__, _lazy(kind, base)


if TYPE_CHECKING:  # the classes that _lazy makes, for type checkers and editors

    class LazyConv1d(_LazyConv, convolution.Conv1d): ...

    class LazyConv2d(_LazyConv, convolution.Conv2d): ...

    class LazyConv3d(_LazyConv, convolution.Conv3d): ...

    class LazyConvTranspose1d(_LazyConvTranspose, convolution.ConvTranspose1d): ...

    class LazyConvTranspose2d(_LazyConvTranspose, convolution.ConvTranspose2d): ...

    class LazyConvTranspose3d(_LazyConvTranspose, convolution.ConvTranspose3d): ...

    class LazyBatchNorm1d(_LazyNorm, normalization.BatchNorm1d): ...

    class LazyBatchNorm2d(_LazyNorm, normalization.BatchNorm2d): ...

    class LazyBatchNorm3d(_LazyNorm, normalization.BatchNorm3d): ...

    class LazyInstanceNorm1d(_LazyInstanceNorm, normalization.InstanceNorm1d): ...

    class LazyInstanceNorm2d(_LazyInstanceNorm, normalization.InstanceNorm2d): ...

    class LazyInstanceNorm3d(_LazyInstanceNorm, normalization.InstanceNorm3d): ...

    __all__ = ["LazyLinear", "LazyModuleMixin", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
               "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d"]
else:
    globals().update(_all_lazy())
    __all__ = ["LazyLinear", *(name for name, c in globals().items() if name.startswith("Lazy") and isinstance(c, type) and issubclass(c, Module) and c is not LazyLinear)]
