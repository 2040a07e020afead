"""Initial values, with PyTorch's formulas. Every function fills a tensor in place (without a gradient) and returns it; each makes one
random call. What is no tensor is a TypeError."""
from __future__ import annotations

import functools
import math

from .. import _deprecation, _generator, _refused
from .._grad_mode import no_grad
from ._arguments import _tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._C import Tensor
    from .._annotations import Function, Number
    from .._generator import Generator


def _filling(function: Function) -> Function:
    """The function, which raises TypeError where its first argument is no tensor."""

    @functools.wraps(function)
    def checked(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        _tensor(function.__name__, "the argument", tensor)
        return function(tensor, *args, **kwargs)

    return checked


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity's weights are scaled to keep the variance: 1 for 'linear', 'sigmoid' and the names of convolutions ('conv2d', ..),
    5 / 3 for 'tanh', sqrt(2) for 'relu', sqrt(2 / (1 + param^2)) for 'leaky_relu', 3 / 4 for 'selu'.

    param: the negative slope of 'leaky_relu', 0.01 unless given. Returns a number. ValueError for another nonlinearity.
    """
    if nonlinearity in ("linear", "sigmoid") or nonlinearity in {f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)}:
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


@_filling
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, in place, from U(a, b), and returns it. generator: a Generator, or None for the global one; so for all functions.

    tensor: any shape and a floating dtype, a TypeError otherwise. ArgumentError for a > b.
    """
    with no_grad(), _generator.drawing_from(generator):
        return tensor.uniform_(a, b)


@_filling
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, in place, from N(mean, std^2), and returns it.

    tensor: any shape and a floating dtype, a TypeError otherwise. generator: a Generator, or None for the global one. ArgumentError for std < 0.
    """
    with no_grad(), _generator.drawing_from(generator):
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


@_filling
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Generator | None = None) -> Tensor:
    """N(mean, std^2) restricted to [a, b], by inversion of the distribution. generator: a Generator, or None for the global one.

    tensor: is written in place. ArgumentError if a is larger than b.
    """
    from .. import _C

    if a > b:
        raise _C.ArgumentError(f"trunc_normal_: an empty range; got a={a} and b={b}; expected a <= b")
    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    dtype = _C.float64 if tensor.dtype == _C.float64 else _C.float32
    limit = 1 - 2.0 ** (-53 if dtype == _C.float64 else -24)
    with no_grad():
        with _generator.drawing_from(generator):
            u = _C.rand(tensor.shape, dtype=dtype, device=tensor.device)
        y = _C.clamp(low + u * (high - low), -limit, limit)
        return tensor.copy_(_C.clamp(mean + std * math.sqrt(2) * _erfinv(y), a, b))


@_filling
def constant_(tensor: Tensor, val: Number) -> Tensor:
    """Fills the tensor, in place, with the number val, and returns it.

    tensor: any shape and dtype; integers lose the fraction of val. TypeError if val is no number.
    """
    with no_grad():
        return tensor.fill_(val)


@_filling
def zeros_(tensor: Tensor) -> Tensor:
    """Fills the tensor with zeros, in place. Returns it. tensor: any shape and dtype.

    Raises TypeError for what is no tensor, and RuntimeError where several elements share memory.
    """
    return constant_(tensor, 0.0)


@_filling
def ones_(tensor: Tensor) -> Tensor:
    """Fills the tensor with ones, in place. Returns it. tensor: any shape and dtype.

    Raises TypeError for what is no tensor, and RuntimeError where several elements share memory.
    """
    return constant_(tensor, 1.0)


@_filling
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix: fills the tensor, in place, with 1 where row and column are equal and 0 elsewhere, and returns it.

    tensor: [M, N] of any dtype, which need not be square. ValueError for another number of dims.
    """
    from .. import _C

    if tensor.ndim != 2:
        raise ValueError(f"eye_: needs a matrix; got shape {tensor.shape}")
    with no_grad():
        return tensor.copy_(_C.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype, device=tensor.device))


@_filling
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """U(-b, b) with b = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010). The tensor is filled in place and returned.

    tensor: a weight of 2 dims or more, a ValueError otherwise, and of a floating dtype. Its first dim counts the outputs, its second one the inputs, and
    each fan is that number times the product of the other sizes. generator: a Generator, or None for the global one.
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    # The order of operations is that of the C++ layers, so that both draw the same numbers.
    bound = gain * math.sqrt(6.0) * (1.0 / math.sqrt(fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


@_filling
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """N(0, gain^2 2 / (fan_in + fan_out)) (Glorot and Bengio, 2010). The tensor is filled in place and returned.

    tensor, generator and errors: as in xavier_uniform_.
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"kaiming: unknown mode; got '{mode}'; expected fan_in or fan_out")
    return _calculate_fan_in_and_fan_out(tensor)[0 if mode == "fan_in" else 1]


def _kaiming_std(tensor, a, mode, nonlinearity):
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


@_filling
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: Literal["fan_in", "fan_out"] = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Generator | None = None) -> Tensor:
    """U(-b, b) with b = gain sqrt(3 / fan) (He et al., 2015). The tensor is filled in place and returned.

    tensor: as in xavier_uniform_. mode: 'fan_in' or 'fan_out', the fan. nonlinearity and its slope a (leaky_relu): the gain is that of calculate_gain.
    ValueError for another mode or nonlinearity.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@_filling
def kaiming_normal_(tensor: Tensor, a: float = 0, mode: Literal["fan_in", "fan_out"] = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Generator | None = None) -> Tensor:
    """N(0, gain^2 / fan) (He et al., 2015). The tensor is filled in place and returned.

    tensor: as in xavier_uniform_. mode: 'fan_in' or 'fan_out', the fan. nonlinearity and its slope a (leaky_relu): the gain is that of calculate_gain.
    ValueError for another mode or nonlinearity.
    """
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _fan_in_uniform_(tensor, fan_in):
    """kaiming_uniform_ with a = sqrt(5), in closed form: U(-1 / sqrt(fan_in), 1 / sqrt(fan_in))."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(tensor, -bound, bound)


@_filling
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """A random matrix with orthogonal rows or columns, times gain; dims after the first count as one (Saxe et al., 2013). The factorization is done on the
    host. The tensor is filled in place and returned.

    tensor: 2 dims or more, a ValueError otherwise. generator: a Generator, or None for the global one.
    """
    import numpy as np

    from .. import _C

    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: needs two dimensions; got shape {tensor.shape}")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with no_grad():
        with _generator.drawing_from(generator):
            random = _C.randn((rows, columns), dtype=_C.float64 if tensor.dtype == _C.float64 else _C.float32, device=tensor.device).cpu().numpy()
        q, r = np.linalg.qr(random.T if rows < columns else random)
        q = q * np.sign(np.diag(r))  # makes the distribution uniform
        q = q.T if rows < columns else q
        return tensor.copy_(_C.tensor(np.ascontiguousarray(q), device=tensor.device).view(tensor.shape)).mul_(gain)


@_filling
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, a matrix, in place, from N(0, std^2); a part `sparsity` of each column, rounded up, is zero (Martens, 2010). Returns it.

    tensor: [M, N] (ValueError otherwise), of a floating dtype. sparsity: from 0 to 1. generator: a Generator, or None for the global one.
    """
    from .. import _C

    if tensor.ndim != 2:
        raise ValueError(f"sparse_: needs a matrix; got shape {tensor.shape}")
    zeros = math.ceil(sparsity * tensor.shape[0])
    with no_grad():
        normal_(tensor, 0.0, std, generator)
        with _generator.drawing_from(generator):
            order = _C.argsort(_C.rand(tensor.shape, device=tensor.device), 0)
        places = _C.arange(tensor.shape[0], device=tensor.device).unsqueeze(1).expand(tensor.shape)
        rank = _C.zeros(tensor.shape, device=tensor.device).scatter_add(0, order, places.float())
        return tensor.masked_fill_(rank < zeros, 0.0)


@_filling
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Makes a convolution keep its input: 1 at the centre where a channel meets itself, otherwise 0. Weights of 3 to 5 dims. The tensor is filled in place
    and returned.

    tensor: [out_channels, in_channels / groups, K, ..]. groups: divides the first size. ValueError otherwise, and for other numbers of dims.
    """
    import numpy as np

    from .. import _C

    if not 3 <= tensor.ndim <= 5:
        raise ValueError(f"dirac_: needs 3, 4 or 5 dimensions; got shape {tensor.shape}")
    if tensor.shape[0] % groups:
        raise ValueError(f"dirac_: the groups do not divide the first size; got {tensor.shape[0]} and {groups} groups")
    each = tensor.shape[0] // groups
    n = min(each, tensor.shape[1])
    values = np.zeros(tuple(tensor.shape), np.float32)
    out = np.arange(groups)[:, None] * each + np.arange(n)
    values[(out, np.arange(n)[None, :].repeat(groups, 0), *(size // 2 for size in tensor.shape[2:]))] = 1
    with no_grad():
        return tensor.copy_(_C.tensor(values, device=tensor.device))


def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def old(*args: Any, **kwargs: Any) -> Tensor:
        _deprecation.deprecated(f"nn.init.{old.__name__}", f"nn.init.{function.__name__}")
        return function(*args, **kwargs)

    old.__name__, old.__wrapped__ = function.__name__[:-1], function  # whose signature help() shows
    old.__doc__ = f"The deprecated name of {function.__name__}: each call warns. The arguments are those of {function.__name__}, and so are the result and the errors."
    return old


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(_deprecated, (xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_))
orthogonal, sparse = map(_deprecated, (orthogonal_, sparse_))

# Names that programs import; the functions above need no context without gradients.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_, _no_grad_fill_, _no_grad_zero_ = uniform_, normal_, trunc_normal_, constant_, zeros_
_refused.unknown(globals())
