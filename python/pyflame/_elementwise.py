"""Elementwise functions that are composed of others. They are recorded and fused like what they are composed of.

All of them broadcast, promote dtypes as PyTorch's functions of the same name, and have the gradients of their parts.
"""
from __future__ import annotations

import collections
import math

from . import _C
from ._C import Tensor
from ._dtypes import result_type as _result_type
from ._grad_mode import no_grad as _no_grad
from ._public import floating, method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._annotations import Dim, Number, Operand
    from ._named_tuples import Frexp

_Frexp = collections.namedtuple("frexp", ["mantissa", "exponent"])

__all__ = ["addcdiv", "addcmul", "clamp_max", "clamp_min", "copysign", "deg2rad", "fill", "fix", "float_power", "fmax", "fmin", "fmod", "frac", "frexp", "gradient", "heaviside",
           "hypot", "isclose", "isneginf", "isposinf", "isreal", "ldexp", "lerp", "logaddexp", "logaddexp2", "logit", "mvlgamma", "nan_to_num", "positive", "rad2deg",
           "rsub", "signbit", "sinc", "xlogy"]


def _both_tensors(op, input, other):
    """input and other, of which one may be a number: it becomes a tensor without dims, of the dtype that the result has and on the other's device."""
    number, tensor = (other, input) if isinstance(input, Tensor) else (input, other)
    if not isinstance(tensor, Tensor) or not isinstance(number, (int, float, complex)):
        raise TypeError(f"{op}: the arguments do not fit; got {type(input).__name__} and {type(other).__name__}; expected two tensors, or a tensor and a number")
    made = _C.full((), number, dtype=_result_type(tensor, number), device=tensor.device)
    return (tensor, made) if tensor is input else (made, tensor)


@method
def fix(input: Tensor) -> Tensor:
    """The same as trunc: each element without its fraction, towards 0. Any shape and integer or floating dtype, which the result has;
    TypeError for bool and complex."""
    return _C.trunc(input)


@method
def frac(input: Tensor) -> Tensor:
    """x - trunc(x): what follows the decimal point, with the sign of x. input: of any shape and integer or floating dtype, which the result has; of integers it is 0. TypeError for bool and complex."""
    return input - _C.trunc(input)


@method
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians: x * pi / 180 for each element. Integers and bool become float32; other dtypes stay. TypeError for what is not a tensor."""
    return floating(input) * (math.pi / 180)


@method
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees: x * 180 / pi for each element. Integers and bool become float32; other dtypes stay. TypeError for what is not a tensor."""
    return floating(input) * (180 / math.pi)


@method
def positive(input: Tensor) -> Tensor:
    """Returns the input as it is: the same object, of any shape and numeric dtype. TypeError for a bool tensor."""
    if input.dtype == _C.bool_:
        raise TypeError("positive: not defined for bool; got a bool tensor; expected integers or floats")
    return input


@method
def signbit(input: Tensor) -> Tensor:
    """Whether the sign bit is set, as bool: true for negative numbers and for -0.0. TypeError for complex numbers and for what is not a tensor."""
    if input.dtype == _C.bool_:
        return _C.zeros(input.shape, dtype=_C.bool_, device=input.device)
    negative = input < 0
    return _C.logical_or(negative, _C.reciprocal(input) < 0) if input.is_floating_point() else negative


@method
def copysign(input: Tensor, other: Tensor | float) -> Tensor:
    """|input| with the sign of other, which may be that of -0.0. Integers become float32.

    The shapes broadcast: ValueError where they cannot. TypeError for a complex other and for an input that is not a tensor.
    """
    if not isinstance(other, Tensor):
        magnitude = floating(input)
        return _C.abs(magnitude) if math.copysign(1, other) > 0 else -_C.abs(magnitude)
    magnitude = _C.abs(floating(input.to(_result_type(input, other))))
    return _C.where(signbit(other), -magnitude, magnitude)


@method
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where input < 0, values where input is 0, and 1 where input > 0. Both have one dtype (RuntimeError otherwise)."""
    if input.dtype != values.dtype:
        raise RuntimeError(f"heaviside: two dtypes; got {input.dtype} and {values.dtype}; expected the same")
    return _C.where(input == 0, values.detach(), (input > 0).to(input.dtype))


@method
def fmod(input: Tensor | float, other: Tensor | float) -> Tensor:
    """The rest of a division that rounds towards zero: input - trunc(input / other) * other. Its sign is that of input.

    ValueError where the shapes do not broadcast. TypeError for complex numbers, for two bools, and for an input that is not a tensor. RuntimeError for
    integers divided by 0; floats give NaN.
    """
    x = input if isinstance(input, Tensor) else _C.full(other.shape, input, device=other.device)
    if x.dtype == _C.bool_:
        x = x.to(_result_type(x, other))
    if x.dtype in (_C.uint8, _C.bool_):
        return _C.remainder(x, other)
    if not x.is_floating_point() and not (other.is_floating_point() if isinstance(other, Tensor) else isinstance(other, float)):
        rest = _C.remainder(x, other)  # with the sign of other; the lowest integer has no absolute value
        return _C.where(_C.logical_and(rest != 0, (rest < 0) != (x < 0)), rest - other, rest)
    magnitude = _C.where(other < 0, -other, other) if isinstance(other, Tensor) else abs(other)
    negative = x < 0
    rest = _C.remainder(_C.where(negative, -x, x), magnitude)
    return _C.where(negative, -rest, rest)


@method
def fmax(input: Tensor | float, other: Tensor | float) -> Tensor:
    """The larger of both, element by element; where one is NaN, the other. The shapes broadcast and the dtypes promote. One of them may be a number. TypeError for
    complex numbers."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        input, other = _both_tensors("fmax", input, other)
    return _C.where(_C.isnan(other), input, _C.where(_C.isnan(input), other, _C.maximum(input, other)))


@method
def fmin(input: Tensor | float, other: Tensor | float) -> Tensor:
    """The smaller of both, element by element; where one is NaN, the other. The shapes broadcast and the dtypes promote. One of them may be a number. TypeError for
    complex numbers."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        input, other = _both_tensors("fmin", input, other)
    return _C.where(_C.isnan(other), input, _C.where(_C.isnan(input), other, _C.minimum(input, other)))


@method
def clamp_min(input: Tensor, min: Tensor | float) -> Tensor:
    """Values below min become min; min is a number or a tensor that broadcasts.

    ValueError where the shapes do not broadcast, or where min is None. TypeError for complex numbers and for a min that is neither number nor tensor.
    """
    return _C.maximum(input, min) if isinstance(min, Tensor) else _C.clamp(input, min=min)


@method
def clamp_max(input: Tensor, max: Tensor | float) -> Tensor:
    """Values above max become max; max is a number or a tensor that broadcasts.

    ValueError where the shapes do not broadcast, or where max is None. TypeError for complex numbers and for a max that is neither number nor tensor.
    """
    return _C.minimum(input, max) if isinstance(max, Tensor) else _C.clamp(input, max=max)


@method
def float_power(input: Operand, exponent: Operand) -> Tensor:
    """input to the power exponent, computed in float64, or in complex128 where one of them is complex.

    The shapes broadcast: ValueError where they cannot. Two numbers give a tensor without dims.
    """
    def wide(x):
        if isinstance(x, Tensor):
            return x.cdouble() if x.is_complex() else x.double()
        return x if isinstance(x, complex) else float(x)

    base, power = wide(input), wide(exponent)
    if not isinstance(base, Tensor) and not isinstance(power, Tensor):  # the op's dtype for two numbers is the default one
        base = _C.tensor(base, dtype=_C.complex128 if isinstance(base, complex) or isinstance(power, complex) else _C.float64)
    return _C.pow(base, power)


def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input for each element. other is a tensor or a number; the shapes broadcast and the dtypes promote.

    ValueError where the shapes do not broadcast. TypeError for two bool tensors and for an other that is neither number nor tensor.
    """
    return other - (input if alpha == 1 else input * alpha)


_INTEGERS = (_C.uint8, _C.int8, _C.int16, _C.int32, _C.int64)


@method
def lerp(input: Tensor, end: Operand, weight: Operand) -> Tensor:
    """input + weight * (end - input): linear interpolation. The weight is a number or a tensor.

    input, end, weight: number dtypes; they broadcast to the shape of the result, whose dtype is the promoted one of all three: of
    integers and a weight of 0.5 it is float32. ArgumentError for shapes that do not broadcast; TypeError for two bool tensors.
    """
    dtype = _result_type(input, weight)
    if dtype.is_floating_point and _result_type(input, end) in _INTEGERS:
        input, end = input.to(dtype), end.to(dtype)  # a difference of unsigned integers would wrap
    step = end - input
    near = input + step * weight
    far = end - step * (1 - weight)  # exact at weight 1
    if isinstance(weight, Tensor):
        return _C.where(_C.abs(weight) < 0.5, near, far)
    return near if abs(weight) < 0.5 else far


@method
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 * tensor2, elementwise. The three broadcast, an ArgumentError otherwise.

    tensors of any number dtypes, which are promoted; integers stay integers. value: a number.
    """
    product = tensor1 * tensor2
    return input + (product if value == 1 else product * value)


@method
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2, elementwise. The three broadcast, an ArgumentError otherwise.

    tensors of any number dtypes, which are promoted; the quotient of integers is float32. A division by 0 gives infinity or NaN. value: a number.
    """
    quotient = tensor1 / tensor2
    return input + (quotient if value == 1 else quotient * value)


# The largest finite number of each floating dtype.
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


@method
def nan_to_num(input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN of input becomes nan, infinity posinf, and minus infinity neginf. The defaults of the last two are the dtype's largest finite numbers and their negative.

    Shape and dtype: those of the input; integers stay as they are. TypeError for what is not a tensor, and for a nan that is no number where the input is
    floating.
    """
    if input.is_complex():
        return _C.complex(nan_to_num(input.real, nan, posinf, neginf), nan_to_num(input.imag, nan, posinf, neginf))
    if not input.is_floating_point():
        return input.clone()
    most = _LARGEST[str(input.dtype).rpartition(".")[2]]
    nan, posinf, neginf = nan or 0.0, most if posinf is None else posinf, -most if neginf is None else neginf
    infinite = _C.isinf(input)
    finite = _C.where(infinite, _C.where(input > 0, _C.full_like(input, posinf), neginf), input)
    return _C.where(_C.isnan(input), nan, finite)


@method
def isposinf(input: Tensor) -> Tensor:
    """Whether each element is positive infinity, as a bool tensor of the same shape. False for integers. TypeError for complex numbers."""
    return _C.logical_and(_C.isinf(input), input > 0)


@method
def isneginf(input: Tensor) -> Tensor:
    """Whether each element is negative infinity, as a bool tensor of the same shape. False for integers. TypeError for complex numbers."""
    return _C.logical_and(_C.isinf(input), input < 0)


@method
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0, as bool: true everywhere for real dtypes. TypeError for what is not a tensor."""
    return input.imag == 0 if input.is_complex() else _C.ones(input.shape, dtype=_C.bool_, device=input.device)


@method
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, elementwise, as bool. Equal infinities are close; NaN is close to NaN with equal_nan.

    ValueError where the shapes do not broadcast and for a negative tolerance, RuntimeError for two dtypes, TypeError where one of them is not a tensor,
    as a number of Python.
    """
    if rtol < 0 or atol < 0:
        raise _C.ArgumentError(f"isclose: a negative tolerance; got rtol={rtol} and atol={atol}; expected 0 or more")
    if input.dtype != other.dtype:
        raise RuntimeError(f"isclose: two dtypes; got {input.dtype} and {other.dtype}; expected the same")
    if not input.is_floating_point() and not input.is_complex():
        input, other = input.double(), other.double()
    same = _C.eq(input, other)
    close = _C.logical_and(_C.isfinite(other), _C.le(_C.abs(input - other), atol + rtol * _C.abs(other)))
    close = _C.logical_or(same, close)
    return _C.logical_or(close, _C.logical_and(_C.isnan(input), _C.isnan(other))) if equal_nan else close


def sine_quotient(angle: Tensor) -> Tensor:
    """sin(angle) / angle, and 1 at 0."""
    near = _C.abs(angle) < 0.3  # the quotient loses digits of the derivatives there: a series in the square
    square, far = _C.where(near, angle * angle, 0.0), _C.where(near, 1.0, angle)
    series = 1 / math.factorial(13)
    for n in (11, 9, 7, 5, 3, 1):
        series = 1 / math.factorial(n) - square * series
    return _C.where(near, series, _C.sin(far) / far)


@method
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0. Integers become float32. TypeError for what is not a tensor."""
    return sine_quotient(floating(input) * math.pi)


@method
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)). With eps, x is first clamped to [eps, 1 - eps]. Integers become float32.

    Shape: that of the input. TypeError for what is not a tensor. An eps outside of [0, 1/2] is not refused.
    """
    x = floating(input)
    if eps is not None:
        x = _C.where(x < eps, eps, _C.where(x > 1 - eps, 1 - eps, x))
    if not x.is_complex():  # the slopes of log and log1p go on where their values are NaN
        x = x * _C.where(_C.logical_and(x >= 0, x <= 1), 1.0, math.nan).to(x.dtype)
    return _C.log(x) - _C.log1p(-x)  # a quotient's gradient is NaN at 0 and 1


def _log_add(input, other, more):
    """The larger one plus more(the smaller one minus it). Equal ones differ by 0: infinite ones too, whose difference would be NaN."""
    most, least = _C.maximum(input, other), _C.minimum(input, other)
    return most + more(_C.where(_C.eq(least, most), 0.0, least - most))


@method
def logaddexp(input: Operand, other: Operand) -> Tensor:
    """log(exp(input) + exp(other)), without overflow. Floating and complex dtypes; the imaginary part is right up to a multiple of 2 pi. One of them may be a number.

    Integers become the default dtype. ValueError where the shapes do not broadcast; TypeError for two bool tensors and for two numbers of Python.
    """
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        input, other = _both_tensors("logaddexp", input, other)
    if input.is_complex() or other.is_complex():
        return _C._complex_logaddexp(input, other)
    return _log_add(input, other, _C.softplus)


@method
def logaddexp2(input: Tensor | float, other: Tensor | float) -> Tensor:
    """log2(2^input + 2^other) for each element, without overflow on the way. The shapes broadcast. Integers become float32; TypeError for complex numbers."""
    return _log_add(input, other, lambda x: _C.log1p(_C.exp2(x)) * (1 / math.log(2)))


@method
def hypot(input: Tensor | float, other: Tensor | float) -> Tensor:
    """sqrt(input^2 + other^2) for each element, without overflow on the way. The shapes broadcast. One of them may be a number. Integers become float32; TypeError for
    bool."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        input, other = _both_tensors("hypot", input, other)
    a, b = _C.abs(input), _C.abs(other)
    most, least = _C.maximum(a, b), _C.minimum(a, b)
    plain = _C.logical_and(_C.isfinite(most), most > 0)
    ratio = least / _C.where(plain, most, 1.0)
    infinite = _C.logical_or(_C.isinf(a), _C.isinf(b))
    return _C.where(infinite, math.inf, _C.where(plain, most * _C.sqrt(1 + ratio * ratio), most))


@method
def xlogy(input: Tensor | float, other: Tensor | float) -> Tensor:
    """input * log(other), and 0 where input is 0 and other is not NaN. Integers become float32.

    ValueError where the shapes do not broadcast. TypeError for complex numbers and for two numbers of Python.
    """
    x = floating(input) if isinstance(input, Tensor) else input
    y = floating(other) if isinstance(other, Tensor) else _C.full((), float(other), dtype=x.dtype, device=x.device)
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        dtype = _result_type(input, other)
        x, y = (x.to(dtype), y.to(dtype)) if dtype.is_floating_point else (x, y)
    # Where log(y) is infinite, 0 times it would be NaN.
    outside = _C.logical_and(_C.eq(x, 0) if isinstance(x, Tensor) else x == 0, _C.logical_or(y <= 0, _C.isinf(y)))
    return x * _C.log(_C.where(outside, 1.0, y))


def fill(input: Tensor, value: Operand) -> Tensor:
    """A tensor like input with value, a number or a tensor without dims, in every element; the gradient of a tensor is the sum.

    RuntimeError for a value with dims. TypeError for a complex value and a real input, and for a value that is neither number nor tensor.
    """
    if not isinstance(value, Tensor):
        return input.clone().fill_(value)
    if value.ndim:
        raise RuntimeError(f"fill: the value has dims; got shape {tuple(value.shape)}; expected a number or a tensor without dims")
    return input.clone().copy_(value)


@method
def ldexp(input: Tensor | float, other: Tensor | float) -> Tensor:
    """input * 2^other for each element. The shapes broadcast. Integers become float32; complex numbers stay complex.

    The dtype is that of the promoted inputs otherwise. ValueError where the shapes do not broadcast.
    """
    if not isinstance(other, Tensor):
        return input * _C.pow(2.0, float(other))
    dtype, power = _result_type(input, other), _C.pow(2.0, floating(other))
    if not dtype.is_floating_point or not isinstance(input, Tensor):
        return input * power
    wide = _C.promote_types(dtype, power.dtype)  # a power of 2 may not fit into float16 where the product does
    return (input.to(wide) * power.to(wide)).to(dtype)


@method
def frexp(input: Tensor) -> Frexp:
    """(mantissa, exponent) with input = mantissa * 2^exponent and 1/2 <= |mantissa| < 1; the exponent is int32. 0 for zero; an infinite number or NaN
    is its own mantissa.

    Both have the shape of the input. TypeError for dtypes that are not floating.
    """
    return _Frexp(*_C._frexp(input))


@method
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p: log(pi) p (p - 1) / 4 plus the sum of lgamma(x - i / 2) for i from 0 to p - 1.
    Digital Library of Mathematical Functions, 35.3.

    input: any shape, which the result has; the function is defined for elements above (p - 1) / 2. Integers become float32. p: an int. RuntimeError for p
    below 1; TypeError for complex input.
    """
    if p < 1:
        raise RuntimeError(f"mvlgamma: p is not positive; got {p}; expected 1 or more")
    x = floating(input)
    total = _C.lgamma(x)
    for i in range(1, p):
        total = total + _C.lgamma(x - i / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)


def _steps(x, dim, spacing):
    """The distances between neighbours along a dim as a tensor that broadcasts, or one number."""
    if not isinstance(spacing, Tensor):
        return float(spacing)
    if spacing.ndim == 0:
        return spacing
    shape = [1] * x.ndim
    shape[dim] = -1
    n = spacing.shape[0]
    return (spacing.narrow(0, 1, n - 1) - spacing.narrow(0, 0, n - 1)).reshape(shape)


def _slope(x, dim, step, edge_order):
    n = x.shape[dim]
    part = lambda t, start, length: t if not isinstance(t, Tensor) or t.ndim == 0 else t.narrow(dim, start, length)  # noqa: E731
    difference = (x.narrow(dim, 1, n - 1) - x.narrow(dim, 0, n - 1)) / step
    if not isinstance(step, Tensor) or step.ndim == 0:  # equal distances: the element itself does not count
        inner = (x.narrow(dim, 2, n - 2) - x.narrow(dim, 0, n - 2)) / (2 * step)
    else:  # the slope of the parabola through three neighbours: weights are the distances to the other side
        before, after = part(step, 0, n - 2), part(step, 1, n - 2)
        left, right = difference.narrow(dim, 0, n - 2), difference.narrow(dim, 1, n - 2)
        inner = (left * after + right * before) / (before + after)
    first, last = difference.narrow(dim, 0, 1), difference.narrow(dim, n - 2, 1)
    if edge_order == 2:
        b, a = part(step, 0, 1), part(step, 1, 1)
        first = first + (first - difference.narrow(dim, 1, 1)) * (b / (b + a))
        b, a = part(step, n - 2, 1), part(step, n - 3, 1)
        last = last + (last - difference.narrow(dim, n - 3, 1)) * (b / (b + a))
    return _C.cat([first, inner, last], dim)


@method
def gradient(input: Tensor, *, spacing: Tensor | float | Sequence[Tensor | float] | None = None, dim: Dim | None = None,
             edge_order: int = 1) -> tuple[Tensor, ...]:
    """The slope along each dim (or those given), a tuple: central differences inside, of second order for any distances, and one-sided ones of
    edge_order 1 or 2 at the ends. spacing: a number, a number for each dim, or a vector of coordinates for each dim.
    input: with edge_order + 1 elements or more along each of these dims (RuntimeError otherwise)."""
    if edge_order not in (1, 2):
        raise RuntimeError(f"gradient: wrong edge_order; got {edge_order}; expected 1 or 2")
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [d + input.ndim if d < 0 else d for d in dims]
    spacing = 1 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(spacings) != len(dims):
        raise RuntimeError(f"gradient: numbers of spacings and dims differ; got {len(spacings)} and {len(dims)}; expected the same")
    for d in dims:
        if not 0 <= d < input.ndim or input.shape[d] < edge_order + 1:
            raise RuntimeError(f"gradient: too few elements; got shape {tuple(input.shape)}; expected at least {edge_order + 1} along dim {d}")
    x = floating(input)
    return tuple(_slope(x, d, _steps(x, d, s), edge_order) for d, s in zip(dims, spacings))
