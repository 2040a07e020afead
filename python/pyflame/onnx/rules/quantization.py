"""Rules of quantized operators. Products of integers are computed in a floating dtype that holds their sums exactly."""
import numpy as np

import pyflame as pf

from ..table import op
from ..values import dtype_of
from .windows import conv

_EXACT = 1 << 24  # float32 holds all integers up to it


def _along(v, x, axis, block):
    """A scale or zero point in the shape that broadcasts over x."""
    if v is None or v.dim() == 0 or v.numel() == 1:
        return v if v is None else v.reshape(())
    if block:
        return v.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = v.shape[0]
    return v.reshape(shape)


def _limits(dtype):
    info = np.iinfo(dtype.name)
    return info.min, info.max


def quantize(x, scale, zero, dtype):
    """round(x / scale) + zero, held within the limits of the dtype; ties go to even numbers."""
    y = pf.round(x / scale)
    y = y if zero is None else y + zero.to(dtype=y.dtype)
    low, high = _limits(dtype)
    return pf.clamp(y, low, high).to(dtype=dtype)


@op("QuantizeLinear")
def quantize_linear(node):
    axis, block, to, precision = node.attr("axis", 1), node.attr("block_size", 0), node.attr("output_dtype", 0), node.attr("precision", 0)
    chosen = dtype_of(to, str(node)) if to else None

    def run(x, scale, zero=None):
        dtype = zero.dtype if zero is not None else chosen or pf.uint8
        k = axis % max(x.dim(), 1)
        if precision:
            x, scale = x.to(dtype=dtype_of(precision)), scale.to(dtype=dtype_of(precision))
        return quantize(x if x.is_floating_point() else x.float(), _along(scale, x, k, block), _along(zero, x, k, block), dtype)

    return run


@op("DequantizeLinear")
def dequantize_linear(node):
    axis, block, to = node.attr("axis", 1), node.attr("block_size", 0), node.attr("output_dtype", 0)

    def run(x, scale, zero=None):
        k = axis % max(x.dim(), 1)
        wide = x.to(dtype=scale.dtype if x.dtype != pf.int32 else pf.float32)
        if zero is not None:
            wide = wide - _along(zero, x, k, block).to(dtype=wide.dtype)
        y = wide * _along(scale, x, k, block)
        return y.to(dtype=dtype_of(to, str(node)) if to else scale.dtype)

    return run


@op("DynamicQuantizeLinear")
def dynamic_quantize(node):
    def run(x):
        low, high = pf.clamp(pf.amin(x, list(range(x.dim()))), max=0.0), pf.clamp(pf.amax(x, list(range(x.dim()))), min=0.0)
        scale = (high - low) / 255.0
        safe = pf.where(scale == 0, pf.ones_like(scale), scale)
        zero = pf.clamp(pf.round(-low / safe), 0, 255)
        y = pf.clamp(pf.round(x / safe) + zero, 0, 255)
        return y.to(dtype=pf.uint8), scale, zero.to(dtype=pf.uint8)

    return run


def _centred(x, zero, dtype, rows=False):
    x = x.to(dtype=dtype)
    if zero is None:
        return x
    zero = zero.to(dtype=dtype)
    if zero.dim() == 1 and zero.numel() > 1:
        zero = zero.unsqueeze(-1) if rows else zero
    return x - (zero.reshape(()) if zero.numel() == 1 else zero)


def _holds(depth):
    """float32 where it holds a sum of so many products of bytes, else float64."""
    return pf.float32 if depth * 255 * 255 < _EXACT else pf.float64


@op("MatMulInteger")
def matmul_integer(node):
    def run(a, b, a_zero=None, b_zero=None):
        dtype = _holds(a.shape[-1])
        return pf.matmul(_centred(a, a_zero, dtype, True), _centred(b, b_zero, dtype)).to(dtype=pf.int32)

    return run


@op("QLinearMatMul")
def qlinear_matmul(node):
    def run(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
        dtype = _holds(a.shape[-1])
        product = pf.matmul(_centred(a, a_zero, dtype, True), _centred(b, b_zero, dtype)).to(dtype=a_scale.dtype)
        rows = a_scale.unsqueeze(-1) if a_scale.dim() == 1 and a_scale.numel() > 1 else a_scale.reshape(())
        scale = rows * (b_scale if b_scale.numel() > 1 else b_scale.reshape(())) / y_scale.reshape(())
        low, high = _limits(y_zero.dtype)
        return pf.clamp(pf.round(product * scale) + y_zero.reshape(()).to(dtype=scale.dtype), low, high).to(dtype=y_zero.dtype)

    return run


def _kernel(w, zero, dtype):
    return _centred(w, zero if zero is None or zero.numel() == 1 else zero.reshape((-1,) + (1,) * (w.dim() - 1)), dtype)


@op("ConvInteger")
def conv_integer(node):
    convolve = conv(node)

    def run(x, w, x_zero=None, w_zero=None):
        dtype = _holds(w.numel() // w.shape[0])
        return pf.round(convolve(_centred(x, x_zero, dtype), _kernel(w, w_zero, dtype))).to(dtype=pf.int32)

    return run


@op("QLinearConv")
def qlinear_conv(node):
    convolve = conv(node)

    def run(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None):
        dtype = _holds(w.numel() // w.shape[0])
        total = pf.round(convolve(_centred(x, x_zero, dtype), _kernel(w, w_zero, dtype)))
        shape = (1, -1) + (1,) * (x.dim() - 2)
        if bias is not None:
            total = total + bias.reshape(shape).to(dtype=dtype)
        scale = (x_scale * w_scale / y_scale)
        scale = scale.reshape(shape) if scale.numel() > 1 else scale.reshape(())
        low, high = _limits(y_zero.dtype)
        return pf.clamp(pf.round(total.float() * scale) + y_zero.reshape(()).float(), low, high).to(dtype=y_zero.dtype)

    return run
