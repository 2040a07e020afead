"""Rules of elementwise operators."""
import functools
import math

import numpy as np

import pyflame as pf
from pyflame.nn import functional as F

from ..table import composed, fixed, op
from ..values import dtype_of, to_tensor

_UNARY = {
    "Abs": pf.abs, "Neg": pf.neg, "Sqrt": pf.sqrt, "Exp": pf.exp, "Log": pf.log, "Floor": pf.floor, "Ceil": pf.ceil, "Round": pf.round, "Sign": pf.sign,
    "Reciprocal": pf.reciprocal, "Sin": pf.sin, "Cos": pf.cos, "Tan": pf.tan, "Asin": pf.asin, "Acos": pf.acos, "Atan": pf.atan, "Sinh": pf.sinh,
    "Cosh": pf.cosh, "Tanh": pf.tanh, "Asinh": pf.asinh, "Acosh": pf.acosh, "Atanh": pf.atanh, "Erf": pf.erf, "Sigmoid": pf.sigmoid, "Relu": pf.relu,
    "Softplus": pf.softplus, "Softsign": F.softsign, "Not": pf.logical_not, "IsNaN": pf.isnan, "HardSwish": F.hardswish, "Mish": F.mish,
}
_BINARY = {
    "And": pf.logical_and, "Or": pf.logical_or, "Xor": pf.logical_xor, "Less": pf.lt, "LessOrEqual": pf.le, "Greater": pf.gt, "GreaterOrEqual": pf.ge,
    "Equal": pf.eq, "Add": pf.add, "Sub": pf.sub, "Mul": pf.mul,
}
_BITWISE = {"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "bitwise_not"}


@op(*_UNARY)
def unary(node):
    return _UNARY[node.op]


@op("Identity", kind="any")
def identity(node):
    return lambda x: x


@op(*_BITWISE)
def bitwise(node):
    return getattr(pf, _BITWISE[node.op])


@op(*_BINARY, since=7)
def binary(node):
    return _BINARY[node.op]


@op(*_BINARY)
def binary_1(node):
    """Before opset 7 the second input broadcasts only from an axis on."""
    return _from_axis(_BINARY[node.op], node.attr("axis"))


def _from_axis(function, axis):
    if axis is None:
        return function

    def run(a, b):
        first = axis % a.dim()
        return function(a, b.reshape(tuple(b.shape) + (1,) * (a.dim() - first - b.dim())))

    return run


@op("Div")
def div(node):
    return _from_axis(_divide, node.attr("axis"))


def _divide(a, b):
    """Integers are divided towards zero, as in C."""
    if a.is_floating_point():
        return pf.div(a, b)
    quotient = pf.floor_divide(a, b)
    if a.dtype == pf.uint8:
        return quotient
    return quotient + pf.logical_and(pf.remainder(a, b) != 0, pf.logical_xor(a < 0, b < 0)).to(dtype=a.dtype)


@op("Mod")
def mod(node):
    if not node.attr("fmod", 0):
        return pf.remainder

    def run(a, b):
        if a.is_floating_point():
            return pf.fmod(a, b)
        rest = pf.remainder(pf.abs(a), pf.abs(b))
        return pf.where(a < 0, -rest, rest)

    return run


@op("Pow", either=(1,))
def power(node):
    def of_tensors(a, b):
        b = to_tensor(b, a.device)
        if a.is_floating_point() or not b.is_floating_point():
            return pf.pow(a, b.to(dtype=a.dtype))
        return pf.pow(a.to(dtype=b.dtype), b).to(dtype=a.dtype)

    def parts(do, a, b):
        number = not isinstance(b, pf.Tensor) and b.size == 1 and b.ndim <= a.dim() and a.is_floating_point()
        return do(pf.pow, a, b.item()) if number else do(of_tensors, a, b)

    return composed(parts)


@op("Min", "Max")
def extreme(node):
    function = pf.minimum if node.op == "Min" else pf.maximum
    return lambda *xs: functools.reduce(function, xs)


@op("Sum")
def total(node):
    return lambda *xs: functools.reduce(pf.add, xs)


@op("Mean")
def mean(node):
    return lambda *xs: functools.reduce(pf.add, xs) / len(xs)


@op("Where")
def where(node):
    return pf.where


@op("Cast", "CastLike")
def cast(node):
    if node.op == "CastLike":
        return lambda x, like: _convert(x, like.dtype)
    dtype = dtype_of(node.attr("to"), str(node))
    return fixed(lambda x: _convert(x, dtype), lambda result, x: [] if x.dtype == dtype else None)


def _convert(x, dtype):
    """Floating to a smaller integer goes over int64, so that it wraps as in C."""
    if x.dtype == dtype:
        return x
    if x.is_floating_point() and dtype in (pf.uint8, pf.int8, pf.int16, pf.int32):
        x = x.to(dtype=pf.int64)
    return x.to(dtype=dtype)


@op("Clip", since=11)
def clip(node):
    def run(x, low=None, high=None):
        x = x if low is None else pf.maximum(x, low)
        return x if high is None else pf.minimum(x, high)

    return run


@op("Clip")
def clip_6(node):
    low, high = node.attr("min"), node.attr("max")
    return lambda x: pf.clamp(x, low, high) if low is not None or high is not None else x


@op("IsInf")
def is_inf(node):
    negative, positive = node.attr("detect_negative", 1), node.attr("detect_positive", 1)
    if negative and positive:
        return pf.isinf
    if not negative and not positive:
        return lambda x: pf.zeros(tuple(x.shape), dtype=pf.bool, device=x.device)
    return pf.isposinf if positive else pf.isneginf


@op("LeakyRelu")
def leaky_relu(node):
    alpha = node.attr("alpha", 0.01)
    return lambda x: pf.leaky_relu(x, alpha)


@op("PRelu")
def prelu(node):
    return lambda x, slope: pf.where(x < 0, x * slope, x)


@op("Elu")
def elu(node):
    alpha = node.attr("alpha", 1.0)
    return lambda x: F.elu(x, alpha)


@op("Celu")
def celu(node):
    alpha = node.attr("alpha", 1.0)
    return lambda x: F.celu(x, alpha)


@op("Selu")
def selu(node):
    alpha, gamma = node.attr("alpha", 1.6732632423543772), node.attr("gamma", 1.0507009873554805)
    return lambda x: gamma * pf.where(x > 0, x, alpha * pf.expm1(x))


@op("ThresholdedRelu")
def thresholded_relu(node):
    alpha = node.attr("alpha", 1.0)
    return lambda x: F.threshold(x, alpha, 0.0)


@op("HardSigmoid")
def hard_sigmoid(node):
    alpha, beta = node.attr("alpha", 0.2), node.attr("beta", 0.5)
    return lambda x: pf.clamp(x * alpha + beta, 0.0, 1.0)


@op("Shrink")
def shrink(node):
    bias, lambd = node.attr("bias", 0.0), node.attr("lambd", 0.5)

    def run(x):
        zero = pf.zeros_like(x)
        return pf.where(x < -lambd, x + bias, pf.where(x > lambd, x - bias, zero)).to(dtype=x.dtype)

    return run


@op("Gelu")
def gelu(node):
    approximate = node.attr("approximate", "none")
    return lambda x: pf.gelu(x, approximate=approximate)


@op("Swish")
def swish(node):
    alpha = node.attr("alpha", 1.0)
    return F.silu if alpha == 1 else lambda x: x * pf.sigmoid(x * alpha)


@op("BitShift")
def bit_shift(node):
    return pf.bitwise_left_shift if node.attr("direction") == "LEFT" else pf.bitwise_right_shift


@op("Dropout")
def dropout(node):
    """Inference: nothing is dropped. In training mode with a ratio of 0 it is the same."""

    def run(x, ratio=None, training=None):
        if training is not None and bool(np.all(training)):
            rate = 0.5 if ratio is None else float(np.asarray(ratio))
            if rate > 0:
                mask = pf.rand(tuple(x.shape), device=x.device) >= rate
                return pf.where(mask, x / (1 - rate), pf.zeros_like(x)), mask
        return x, pf.ones(tuple(x.shape), dtype=pf.bool, device=x.device)

    if len(node.outputs) == 1:
        return lambda *args: run(*args)[0]
    return run


dropout_host = op("Dropout", since=12, host=(1, 2))(dropout)


@op("LogSoftmax", "Softmax", "Hardmax", since=13)
def softmax(node):
    axis = node.attr("axis", -1)
    if node.op == "Hardmax":
        return lambda x: _hardmax(x, axis)
    function = pf.softmax if node.op == "Softmax" else pf.log_softmax
    return lambda x: function(x, axis)


@op("LogSoftmax", "Softmax", "Hardmax")
def softmax_1(node):
    """Before opset 13 all dims from the axis on are one."""
    axis, function = node.attr("axis", 1), {"Softmax": pf.softmax, "LogSoftmax": pf.log_softmax, "Hardmax": _hardmax}[node.op]

    def run(x):
        shape = tuple(x.shape)
        first = axis % max(len(shape), 1) if axis < 0 else axis
        return function(x.reshape(math.prod(shape[:first]), math.prod(shape[first:])), 1).reshape(shape)

    return run


def _hardmax(x, axis):
    best = x.argmax(axis, True)
    place = pf.arange(x.shape[axis], device=x.device)
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    return (place.reshape(shape) == best).to(dtype=x.dtype)
