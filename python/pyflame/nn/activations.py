"""Activations. Those that are ops of their own come first; those that are composed of other ops follow, and functional.py defines them."""
from __future__ import annotations

from inspect import Parameter as _Argument
from inspect import Signature as _Signature

from .. import _C
from . import functional as F
from .init import constant_ as _constant
from .module import Module
from .parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any, Literal

    from .._C import Tensor
    from .._annotations import DType, Device


class ReLU(Module):
    """max(x, 0). inplace: the result is written to the input, which is returned.

    forward takes a tensor of any shape and integer or floating dtype, and returns the same. TypeError for bool and complex.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """x * P(Z <= x) for a standard normal Z (Hendrycks and Gimpel, 2016). approximate: 'none', or 'tanh' for 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
    x^3))).

    forward takes a tensor of any shape, and returns that shape; integers become float32. ArgumentError for another approximate.
    """

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return _C.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x) (Elfwing et al., 2017). inplace: the result is written to the input, which is returned.

    forward takes a tensor of any shape, and returns that shape; integers become float32, and are a RuntimeError with inplace.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    forward takes a tensor of any shape, and returns that shape; integers and bool become float32.

    Complex numbers are accepted. Raises TypeError for what is no tensor.
    """

    def forward(self, input: Tensor) -> Tensor:
        return _C.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent: (exp(x) - exp(-x)) / (exp(x) + exp(-x)).

    forward takes a tensor of any shape, and returns that shape; integers and bool become float32.

    Complex numbers are accepted. Raises TypeError for what is no tensor.
    """

    def forward(self, input: Tensor) -> Tensor:
        return _C.tanh(input)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above threshold.

    forward takes a tensor of any shape, and returns that shape; integers and bool become float32. TypeError for complex.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return _C.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class LeakyReLU(Module):
    """x where x > 0, otherwise negative_slope * x. inplace: the result is written to the input, which is returned.

    forward takes a tensor of any shape, and returns that shape; integers and bool become float32. TypeError for complex.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class Softmax(Module):
    """exp(x) / sum(exp(x)) along dim. Without dim, a warning, and dim 0 for inputs of 0, 1 or 3 dims, otherwise 1.

    forward takes a tensor of any shape and a floating dtype, and returns the same. TypeError for other dtypes; IndexError for a dim out of range.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) = x - log(sum(exp(x))) along dim; without one, F.softmax chooses.

    forward takes a tensor of any shape and a floating dtype, and returns the same. TypeError for other dtypes; IndexError for a dim out of range.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _Activation(Module):
    """Holds the settings of the function of the same name."""

    _function = None
    _settings = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        names = list(self._settings)
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: takes at most {len(names)} settings; got {len(args)}")
        given = {**dict(zip(names, args)), **kwargs}
        unknown = [k for k in given if k not in self._settings]
        if unknown:
            raise TypeError(f"{type(self).__name__}: no such setting; got {', '.join(unknown)}; expected {', '.join(names) or 'none'}")
        for name, default in self._settings.items():
            setattr(self, name, given.get(name, default))

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._settings if name != "inplace" or self.inplace)


def _layer(name: str, function: str, base: type[_Activation] = _Activation, **settings: Any) -> type[_Activation]:
    def __init__(self, *args, **kwargs):
        _Activation.__init__(self, *args, **kwargs)

    # help() and editors show the settings
    taken = [_Argument(key, _Argument.POSITIONAL_OR_KEYWORD, default=value, annotation="int | None" if value is None else type(value).__name__) for key, value in settings.items()]
    __init__.__signature__ = _Signature([_Argument("self", _Argument.POSITIONAL_ONLY), *taken], return_annotation="None")
    __init__.__qualname__, __init__.__module__ = f"{name}.__init__", __name__
    text = getattr(F, function).__doc__
    return type(name, (base,), {"__doc__": text, "__module__": __name__, "__init__": __init__, "_function": function, "_settings": settings})


if TYPE_CHECKING:  # the classes that _layer makes, for type checkers and editors

    class ELU(_Activation):
        def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...

    class CELU(_Activation):
        def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...

    class SELU(_Activation):
        def __init__(self, inplace: bool = False) -> None: ...

    class Hardtanh(_Activation):
        def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None: ...

    class ReLU6(Hardtanh):
        def __init__(self, inplace: bool = False) -> None: ...

    class Hardsigmoid(_Activation):
        def __init__(self, inplace: bool = False) -> None: ...

    class Hardswish(_Activation):
        def __init__(self, inplace: bool = False) -> None: ...

    class Mish(_Activation):
        def __init__(self, inplace: bool = False) -> None: ...

    class Softsign(_Activation):
        def __init__(self) -> None: ...

    class Tanhshrink(_Activation):
        def __init__(self) -> None: ...

    class LogSigmoid(_Activation):
        def __init__(self) -> None: ...

    class Softmin(_Activation):
        def __init__(self, dim: int | None = None) -> None: ...

    class GLU(_Activation):
        def __init__(self, dim: int = -1) -> None: ...

else:
    ELU = _layer("ELU", "elu", alpha=1.0, inplace=False)
    CELU = _layer("CELU", "celu", alpha=1.0, inplace=False)
    SELU = _layer("SELU", "selu", inplace=False)
    Hardtanh = _layer("Hardtanh", "hardtanh", min_val=-1.0, max_val=1.0, inplace=False)
    ReLU6 = _layer("ReLU6", "relu6", Hardtanh, inplace=False)
    ReLU6.min_val, ReLU6.max_val = 0.0, 6.0
    Hardsigmoid = _layer("Hardsigmoid", "hardsigmoid", inplace=False)
    Hardswish = _layer("Hardswish", "hardswish", inplace=False)
    Mish = _layer("Mish", "mish", inplace=False)
    Softsign = _layer("Softsign", "softsign")
    Tanhshrink = _layer("Tanhshrink", "tanhshrink")
    LogSigmoid = _layer("LogSigmoid", "logsigmoid")
    Softmin = _layer("Softmin", "softmin", dim=None)
    GLU = _layer("GLU", "glu", dim=-1)


class PReLU(Module):
    """x where x > 0, otherwise x times a learned number, for all channels or one for each (He et al., 2015).

    num_parameters: 1, or the number of channels, dim 1 of the input; forward raises ValueError otherwise, and returns the shape of its input. init: the
    number at first.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(_C.full((num_parameters,), init, dtype=dtype or _C.get_default_dtype(), device=device))

    def reset_parameters(self) -> None:
        """Sets all elements of weight to init, the value that the constructor was given (0.25 by default)."""
        _constant(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Threshold(Module):
    """x where it is above the threshold, otherwise value. inplace: the result is written to the input, which is returned.

    threshold, value: numbers. forward takes a tensor of any shape and a real dtype, and returns the same. TypeError for complex.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class Hardshrink(Module):
    """x where |x| > lambd, otherwise 0. lambd: a number that is not negative; a negative one gives the input.

    forward takes a tensor of any shape and a real dtype, and returns the same. TypeError for complex.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(Module):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    forward takes a tensor of any shape, and returns that shape; integers become float32. It raises ValueError for a negative lambd, and TypeError for
    complex.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class RReLU(Module):
    """x where it is positive, otherwise times a slope: random between lower and upper while training, their mean otherwise (Xu et al., 2015). inplace: the
    result is written to the input, which is returned.

    forward takes a tensor of any shape and a floating dtype, and returns the same; TypeError for integers while training.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class Softmax2d(Module):
    """softmax over the channels of [N, C, H, W] or [C, H, W]: exp(x) / the sum of exp(x) of the pixel's channels.

    forward returns the shape and the floating dtype of its input. ValueError for other dims, TypeError for other dtypes.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: the input has {input.ndim} dimensions; expected 3 (C, H, W) or 4 (N, C, H, W)")
        return _C.softmax(input, -3)
