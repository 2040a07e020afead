"""Names for the annotations of layers and of their functions. Type checkers and editors read this module; nothing imports it when a program runs."""
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Optional, TypeVar, Union

from .._C import Tensor
from .module import Module

# What a loss makes of the losses of all elements.
Reduction = Literal["none", "mean", "sum"]
# A number for all spatial dims, or one for each.
Size = Union[int, Sequence[int]]
# What an adaptive pool takes; None keeps a size.
AdaptiveSize = Union[int, None, Sequence[Optional[int]]]
# The padding of a convolution.
Padding = Union[int, Sequence[int], Literal["valid", "same"]]
# A factor for all spatial dims, or one for each.
Factor = Union[float, Sequence[float]]
InterpolateMode = Literal["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area", "lanczos"]
GridMode = Literal["bilinear", "nearest", "bicubic"]
GridPadding = Literal["zeros", "border", "reflection"]
# The lengths of sequences.
Lengths = Union[Tensor, Sequence[int]]
# A tensor or several, such as the parameters of a model.
Tensors = Union[Tensor, Iterable[Tensor]]
# A module, or the class of one, which a function returns.
ModuleT = TypeVar("ModuleT", bound=Module)
TensorT = TypeVar("TensorT", bound=Tensor)
# What a convolution pads its input with.
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
# The activation of a transformer's layers.
AttentionActivation = Union[Literal["relu", "gelu"], Callable[[Tensor], Tensor]]
