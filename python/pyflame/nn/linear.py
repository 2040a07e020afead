"""Linear and identity layers. Names, defaults and initial values of all layers are PyTorch's; random draws come in the order of the C++ layers."""
from __future__ import annotations

from .. import _C
from . import init
from ._arguments import _integers
from .functional_maps import bilinear
from .module import Module
from .parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from .._C import Tensor
    from .._annotations import DType, Device


class Identity(Module):
    """The input itself, whatever it is: forward(input) returns the same object. args, kwargs: are accepted and not used. Never raises."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """input @ weight.T + bias: [..., in_features] -> [..., out_features]. bias: whether a learned vector is added; device, dtype: of the
    parameters, the current ones unless given.

    The weight is [out_features, in_features]. ValueError for negative sizes; forward raises ArgumentError where the last size of the input is not
    in_features, and TypeError for another dtype than that of the weight.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__()
        _integers("Linear", in_features=in_features, out_features=out_features)
        if in_features < 0 or out_features < 0:
            raise ValueError(f"Linear: sizes must not be negative; got in_features {in_features}, out_features {out_features}")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(_C.empty(out_features, in_features, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(_C.empty(out_features, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew, uniformly between -1 / sqrt(in_features) and 1 / sqrt(in_features)."""
        init._fan_in_uniform_(self.weight, self.in_features)
        if self.bias is not None:
            init._fan_in_uniform_(self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        return _C.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1^T weight[o] x2 + bias[o] for each output: [..., in1_features], [..., in2_features] -> [..., out_features].

    The weight is [out_features, in1_features, in2_features]. bias: whether a learned vector is added. ValueError unless in1_features is positive, and in
    forward for inputs that do not fit; TypeError there for another dtype.
    """

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        _integers("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        if in1_features <= 0:
            raise ValueError(f"Bilinear: in1_features must be positive; got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(_C.empty(out_features, in1_features, in2_features, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(_C.empty(out_features, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias again, from the uniform distribution between -1 / sqrt(in1_features) and 1 / sqrt(in1_features)."""
        init._fan_in_uniform_(self.weight, self.in1_features)
        if self.bias is not None:
            init._fan_in_uniform_(self.bias, self.in1_features)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, bias={self.bias is not None}"
