"""Activations. Those that are ops of their own come first; those that are composed of other ops follow, and functional.py defines them."""
from .. import _C
from . import functional as F
from .module import Module
from .parameter import Parameter


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return input.relu_() if self.inplace else _C.relu(input)


class GELU(Module):
    """x * P(Z <= x) for a standard normal Z."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return _C.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return input.silu_() if self.inplace else _C.silu(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input):
        return _C.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input):
        return _C.tanh(input)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta."""

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return _C.softplus(input, self.beta, self.threshold)


class LeakyReLU(Module):
    """x where x > 0, otherwise negative_slope * x."""

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input):
        return _C.leaky_relu(input, self.negative_slope)

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along dim."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return _C.softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along dim."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return _C.log_softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class _Activation(Module):
    """Holds the settings of the function of the same name. `inplace` is accepted and ignored, because fusion already works in place."""

    _function = None
    _settings = {}

    def __init__(self, *args, **kwargs):
        super().__init__()
        names = list(self._settings)
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: takes at most {len(names)} settings; got {len(args)}")
        given = {**dict(zip(names, args)), **kwargs}
        given.pop("inplace", None)
        unknown = [k for k in given if k not in self._settings]
        if unknown:
            raise TypeError(f"{type(self).__name__}: no such setting; got {', '.join(unknown)}; expected {', '.join(names) or 'none'}")
        for name, default in self._settings.items():
            setattr(self, name, given.get(name, default))

    def forward(self, input):
        return getattr(F, self._function)(input, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._settings)


def _layer(name, function, **settings):
    text = getattr(F, function).__doc__
    return type(name, (_Activation,), {"__doc__": text, "__module__": __name__, "_function": function, "_settings": settings})


ELU = _layer("ELU", "elu", alpha=1.0)
CELU = _layer("CELU", "celu", alpha=1.0)
SELU = _layer("SELU", "selu")
ReLU6 = _layer("ReLU6", "relu6")
Hardtanh = _layer("Hardtanh", "hardtanh", min_val=-1.0, max_val=1.0)
Hardsigmoid = _layer("Hardsigmoid", "hardsigmoid")
Hardswish = _layer("Hardswish", "hardswish")
Mish = _layer("Mish", "mish")
Softsign = _layer("Softsign", "softsign")
Tanhshrink = _layer("Tanhshrink", "tanhshrink")
LogSigmoid = _layer("LogSigmoid", "logsigmoid")
Softmin = _layer("Softmin", "softmin", dim=-1)
GLU = _layer("GLU", "glu", dim=-1)


class PReLU(Module):
    """x where x > 0, otherwise x times a learned number, for all channels or one for each."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(_C.full((num_parameters,), init, dtype=dtype or _C.float32, device=device))

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"
