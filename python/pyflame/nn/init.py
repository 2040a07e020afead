"""Initial values, with PyTorch's formulas. Every function fills a tensor in place (without a gradient) and returns it; each makes one
random call."""
import math

from .._grad_mode import no_grad


def calculate_gain(nonlinearity, param=None):
    """The factor by which a nonlinearity's weights are scaled to keep the variance."""
    if nonlinearity in ("linear", "conv1d", "conv2d", "conv3d", "sigmoid"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"calculate_gain: unknown nonlinearity; got '{nonlinearity}'; expected linear, sigmoid, tanh, relu, leaky_relu or selu")


def _calculate_fan_in_and_fan_out(tensor):
    """(fan_in, fan_out): how many inputs an output has, and how many outputs an input reaches."""
    if tensor.ndim < 2:
        raise ValueError(f"init: fans need two dimensions; got shape {tensor.shape}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def uniform_(tensor, a=0.0, b=1.0):
    """U(a, b)."""
    with no_grad():
        return tensor.uniform_(a, b)


def normal_(tensor, mean=0.0, std=1.0):
    """N(mean, std^2)."""
    with no_grad():
        return tensor.normal_(mean, std)


# Giles, Approximating the erfinv function (2010), single precision: polynomials in w - 2.5 and sqrt(w) - 3.
_CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def _polynomial(coefficients, x):
    y = coefficients[0] * x + coefficients[1]
    for c in coefficients[2:]:
        y = y * x + c
    return y


def _erfinv(y):
    """The inverse of erf for y within (-1, 1), to single precision; in float64 two of Newton's steps follow."""
    from .. import _C

    w = -_C.log1p(-y * y)
    x = y * _C.where(w < 5, _polynomial(_CENTRAL, w - 2.5), _polynomial(_TAIL, _C.sqrt(w) - 3))
    for _ in range(2 if y.dtype == _C.float64 else 0):
        x = x - (_C.erf(x) - y) * (0.5 * math.sqrt(math.pi)) * _C.exp(x * x)
    return x


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """N(mean, std^2) restricted to [a, b], by inversion of the distribution. generator: a Generator, or None for the global one."""
    from .. import _C
    from .._generator import drawing_from

    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    dtype = _C.float64 if tensor.dtype == _C.float64 else _C.float32
    limit = 1 - 2.0 ** (-53 if dtype == _C.float64 else -24)
    with no_grad():
        with drawing_from(generator):
            u = _C.rand(tensor.shape, dtype=dtype, device=tensor.device)
        y = _C.clamp(low + u * (high - low), -limit, limit)
        return tensor.copy_(_C.clamp(mean + std * math.sqrt(2) * _erfinv(y), a, b))


def constant_(tensor, val):
    """Fills with val."""
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor):
    return constant_(tensor, 0.0)


def ones_(tensor):
    return constant_(tensor, 1.0)


def eye_(tensor):
    """The identity matrix."""
    from .. import _C

    if tensor.ndim != 2:
        raise ValueError(f"eye_: needs a matrix; got shape {tensor.shape}")
    with no_grad():
        return tensor.copy_(_C.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype, device=tensor.device))


def xavier_uniform_(tensor, gain=1.0):
    """U(-b, b) with b = gain sqrt(6 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    # The order of operations is that of the C++ layers, so that both draw the same numbers.
    bound = gain * math.sqrt(6.0) * (1.0 / math.sqrt(fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor, gain=1.0):
    """N(0, gain^2 2 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"kaiming: unknown mode; got '{mode}'; expected fan_in or fan_out")
    return _calculate_fan_in_and_fan_out(tensor)[0 if mode == "fan_in" else 1]


def _kaiming_std(tensor, a, mode, nonlinearity):
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """U(-b, b) with b = gain sqrt(3 / fan)."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """N(0, gain^2 / fan)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))


def _fan_in_uniform_(tensor, fan_in):
    """kaiming_uniform_ with a = sqrt(5), in closed form: U(-1 / sqrt(fan_in), 1 / sqrt(fan_in))."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(tensor, -bound, bound)
