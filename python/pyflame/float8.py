"""Linear layers that multiply 8-bit floats, as torchao.float8.

    model = pf.float8.convert_to_float8_training(model)  # in place; then train as before

Parameters, gradients and the optimizer's state keep their dtypes. The three products of a layer (its output, and the gradients of its input and of its
weight) take matrices that are rounded to 8-bit floats with a scale: inputs and weights with 3 bits of fraction, gradients, which span more powers of two,
with 2 bits (Micikevicius et al. 2022, arXiv:2209.05433). A GPU whose matrix cores multiply these formats does so; other devices multiply the rounded
matrices decoded, which gives the same result more slowly.
"""
import dataclasses
import threading
import weakref

from . import _C, nn
from ._C import Tensor
from ._dtypes import finfo
from ._grad_mode import no_grad
from .autograd import Function

__all__ = ["Float8Linear", "Float8LinearConfig", "convert_to_float8_training", "dequantize", "formats", "quantize"]

_HISTORIES = ("input_amax", "weight_amax", "grad_amax")
_TINY = 2.0**-100


def formats(device=None):
    """The dtypes for inputs and weights, and for gradients, that the matrix cores of a device multiply: float8_e4m3fnuz and float8_e5m2fnuz on MI300 (gfx942), otherwise
    float8_e4m3fn and float8_e5m2. device: a device or its name; default the current device. ValueError for an unknown one; DeviceError for a GPU that is
    not there."""
    name = str(_C.device(device)) if device is not None else _C.get_device()
    has_fnuz, has_ocp = (_C._has_units(name, dtype.name) for dtype in (_C.float8_e4m3fnuz, _C.float8_e4m3fn))  # of a GPU that is not known both are true
    return (_C.float8_e4m3fnuz, _C.float8_e5m2fnuz) if has_fnuz and not has_ocp else (_C.float8_e4m3fn, _C.float8_e5m2)


def _check_format(op, dtype):
    if not getattr(dtype, "name", "").startswith("float8_"):
        raise TypeError(f"{op}: not a dtype of 8-bit floats; got {dtype}; expected one such as pyflame.float8_e4m3fn")


def quantize(input, dtype, dim=None, amax=None):
    """Rounds a tensor to 8-bit floats with a scale: (codes, scale), where codes * scale is the rounded tensor.

    scale = amax / finfo(dtype).max, or 1 where amax is below 2**-100; codes = input * (1 / scale) in the dtype, limited to its finite numbers. NaN stays NaN.
    Nothing is raised for numbers that are not finite. A NaN in the input makes its scale and all codes of that scale NaN. An infinity makes the scale
    infinite, its own code NaN and the others 0. With amax=, an infinity becomes the largest number, and the other codes are as usual.
    input: of any shape, a floating dtype. dim: one scale for each row along this dim (kept with size 1); None: one for all, of shape [].
    amax: float32, the largest magnitude to provide for, in place of that of the input.
    codes: dtype, the shape of the input. scale: float32. TypeError for a dtype that is not float8."""
    _check_format("quantize", dtype)
    if amax is None:
        amax = _largest(input, dim)
    scale = _scale(amax, dtype)
    return _codes(input, scale, dtype), scale


def _largest(input, dim=None):
    size = input.abs()
    largest = size.amax if input.numel() else size.sum  # of nothing: 0
    return (largest() if dim is None else largest(dim, keepdim=True)).to(_C.float32)


def _scale(amax, dtype):
    return _C.where(amax < _TINY, 1.0, amax / finfo(dtype).max)  # 1 / scale is finite


def _codes(input, scale, dtype):
    """Multiplied by the inverse, because a division of float32 is many instructions on a GPU."""
    most = finfo(dtype).max
    return (input.to(_C.float32) * (1 / scale)).clamp(-most, most).to(dtype)


def dequantize(codes, scale, dtype=_C.float32):
    """codes * scale in a dtype. codes: a float8 tensor; scale: float32, broadcast to its shape, or a number. dtype: any; the result has the shape of codes.
    TypeError for codes that are no float8 tensor, and for what is no dtype; ValueError for a scale that does not broadcast."""
    _check_format("dequantize", getattr(codes, "dtype", type(codes).__name__))
    if not isinstance(dtype, _C.dtype):
        raise TypeError(f"dequantize: not a dtype; got {dtype!r}; expected such as pyflame.float32")
    return (codes.to(_C.float32) * scale).to(dtype)


@dataclasses.dataclass(frozen=True)
class Float8LinearConfig:
    """How Float8Linear rounds its matrices.

    recipe: 'tensorwise', one scale for each matrix; 'rowwise', one for each row that is summed over, which is more accurate and slower.
    scaling: 'dynamic', by the largest magnitude of the matrix itself; 'delayed', by the largest one of the last `history` steps (tensorwise only), which
    does not wait for it. ValueError for other words."""

    recipe: str = "tensorwise"
    scaling: str = "dynamic"
    history: int = 16

    def __post_init__(self):
        for field, known in (("recipe", ("tensorwise", "rowwise")), ("scaling", ("dynamic", "delayed"))):
            if getattr(self, field) not in known:
                raise ValueError(f"Float8LinearConfig: unknown {field}; got {getattr(self, field)!r}; expected {known[0]!r} or {known[1]!r}")
        if self.recipe == "rowwise" and self.scaling == "delayed":
            raise ValueError("Float8LinearConfig: rows have no history; got recipe='rowwise' and scaling='delayed'; expected scaling='dynamic'")
        if self.history < 1:
            raise ValueError(f"Float8LinearConfig: history is no number of steps; got {self.history}; expected at least 1")


class _Codes:
    """A matrix as codes with one scale. columns(): its transposed codes, which several products of a backward pass share."""

    def __init__(self, codes, scale, amax=None):
        self.codes, self.scale, self.amax = codes, scale, amax  # amax: the largest magnitude, where a history wants it
        self._columns = None

    def columns(self):
        if self._columns is None:
            self._columns = self.codes.t().contiguous()
        return self._columns


class _History:
    """The largest magnitudes of the last steps, in a buffer of the layer. Without a buffer, scaling is dynamic."""

    def __init__(self, buffer=None):
        self.buffer, self.steps = buffer, 0

    def quantize(self, x, dtype):
        if self.buffer is None:
            return _Codes(*quantize(x, dtype))
        amax = _largest(x)
        # One pass over x gives its codes, and the largest magnitude for the steps to come. At the first step there is nothing to look back to.
        scale = _scale(self.buffer.amax() if self.steps else amax, dtype)
        made = _Codes(_codes(x, scale, dtype), scale, amax)
        self.note(amax)
        return made

    def note(self, amax):
        if self.buffer is not None:
            self.buffer[self.steps % len(self.buffer)] = amax.detach()
            self.steps += 1


class _Inputs:
    """The codes of the last input while it exists, because several layers often take the same one: queries, keys and values, or gate and up."""

    def __init__(self):
        self.forget()

    def forget(self):
        self.key, self.made = None, None

    def codes(self, input, rows, history, dtype):
        delayed = history.buffer is not None
        key = (weakref.ref(input, lambda _: self.forget()), input._version, dtype, delayed)
        if self.key is not None and self.key[0]() is input and self.key[1:] == key[1:]:
            history.note(self.made.amax)
            return self.made
        self.key, self.made = key, history.quantize(rows, dtype)
        return self.made


_inputs = threading.local()


def _codes_of_input(input, rows, history, dtype):
    if not hasattr(_inputs, "last"):
        _inputs.last = _Inputs()
    with no_grad():
        return _inputs.last.codes(input, rows, history, dtype)


class _Tensorwise(Function):
    """x [M, K] times the transposed weight [N, K], with one scale for each matrix. given: the codes of x."""

    @staticmethod
    def forward(ctx, x, weight, given, histories, types, dtype):
        w = histories[1].quantize(weight, types[0])
        ctx.x, ctx.w, ctx.history, ctx.type, ctx.dtypes = given, w, histories[2], types[1], (x.dtype, weight.dtype, dtype)
        return _C._scaled_mm(given.codes, w.codes.t(), given.scale, w.scale, dtype=dtype, fast=True)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.x, ctx.w
        of_x, of_w, dtype = ctx.dtypes
        g = ctx.history.quantize(grad, ctx.type)
        grad_x = _C._scaled_mm(g.codes, w.columns().t(), g.scale, w.scale, dtype=dtype).to(of_x) if ctx.needs_input_grad[0] else None
        grad_w = _C._scaled_mm(g.columns(), x.columns().t(), g.scale, x.scale, dtype=dtype).to(of_w) if ctx.needs_input_grad[1] else None
        return grad_x, grad_w, None, None, None, None


def _of_rows(a, b, type_a, type_b, dtype):
    """a [M, K] times the transposed b [N, K], each row with a scale."""
    a8, scale_a = quantize(a, type_a, 1)
    b8, scale_b = quantize(b, type_b, 1)
    return _C._scaled_mm(a8, b8.t(), scale_a, scale_b.t(), dtype=dtype)


class _Rowwise(Function):
    """x [M, K] times the transposed weight [N, K], with a scale for each row of a product's operands."""

    @staticmethod
    def forward(ctx, x, weight, types, dtype):
        ctx.save_for_backward(x, weight)
        ctx.types, ctx.dtype = types, dtype
        return _of_rows(x, weight, types[0], types[0], dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wide, narrow = ctx.types
        grad_x = _of_rows(grad, weight.t(), narrow, wide, ctx.dtype).to(x.dtype) if ctx.needs_input_grad[0] else None
        grad_w = _of_rows(grad.t(), x.t(), narrow, wide, ctx.dtype).to(weight.dtype) if ctx.needs_input_grad[1] else None
        return grad_x, grad_w, None, None


def _result_dtype(x):
    enabled, dtype = _C._autocast(str(x.device).split(":")[0])
    return dtype if enabled and x.dtype == _C.float32 else x.dtype


class Float8Linear(nn.Linear):
    """nn.Linear whose products take 8-bit floats.

    input [..., in_features] of float32, float16 or bfloat16 -> [..., out_features] of the same dtype (under autocast of its dtype). A GPU's matrix cores take
    sizes that are multiples of 16 (features, and for the weight's gradient the number of rows); other sizes are multiplied decoded.
    bias: whether a learned vector is added. config: a Float8LinearConfig; None: its defaults.
    With scaling='delayed' the layer has three buffers float32 [history], input_amax, weight_amax and grad_amax, which are not in the state dict.

    The errors for sizes are those of nn.Linear; TypeError for a config of another type. A call is a ValueError for another last dim of the input, and a TypeError
    for another dtype."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None, config=None):
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self._set_up(config)

    def _set_up(self, config):
        if config is not None and not isinstance(config, Float8LinearConfig):
            raise TypeError(f"Float8Linear: config is of another type; got {type(config).__name__}; expected a Float8LinearConfig, or None")
        self.config = config or Float8LinearConfig()
        if self.config.scaling == "delayed":
            for name in _HISTORIES:
                self.register_buffer(name, _C.zeros(self.config.history, device=self.weight.device), persistent=False)
        self._past = None

    @classmethod
    def from_float(cls, module, config=None):
        """A Float8Linear with the weight and bias of an nn.Linear, the same tensors and not copies. config: a Float8LinearConfig, or None for its defaults.
        """
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.in_features, made.out_features = module.in_features, module.out_features
        made.weight, made.bias = module.weight, module.bias
        made.training = module.training
        made._set_up(config)
        return made

    def _histories(self):
        """Of the input, the weight and the gradient. The buffers may have been moved to another device since."""
        buffers = [getattr(self, name) if self.config.scaling == "delayed" else None for name in _HISTORIES]
        if self._past is None:
            self._past = tuple(_History(buffer) for buffer in buffers)
        for history, buffer in zip(self._past, buffers):
            history.buffer = buffer
        return self._past

    def forward(self, input):
        """input @ weight^T + bias, with both factors rounded to 8 bits by the config's recipe: [..., in_features] -> [..., out_features], of the dtype of
        nn.Linear's result.
        """
        if not input.ndim or input.shape[-1] != self.in_features:
            raise ValueError(f"Float8Linear: the input does not fit; got shape {tuple(input.shape)}; expected [.., {self.in_features}]")
        dtype, types = _result_dtype(input), formats(input.device)
        rows = input.reshape(-1, self.in_features)
        if self.config.recipe == "rowwise":
            out = _Rowwise.apply(rows, self.weight, types, dtype)
        else:
            past = self._histories()
            out = _Tensorwise.apply(rows, self.weight, _codes_of_input(input, rows, past[0], types[0]), past, types, dtype)
        if self.bias is not None:
            out = out + self.bias.to(dtype)
        return out.reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self):
        """The arguments as text, for print(module): those of nn.Linear, then recipe and scaling of the config."""
        return f"{super().extra_repr()}, recipe={self.config.recipe!r}, scaling={self.config.scaling!r}"


def convert_to_float8_training(module, *, module_filter_fn=None, config=None):
    """Replaces each nn.Linear below a module by a Float8Linear with the same parameters, in place; returns the module (a new one where it is an nn.Linear itself).

    module_filter_fn(module, name): whether to replace this one; default all whose features are multiples of 16, which matrix cores take.
    config: a Float8LinearConfig. TypeError for what is no Module, and for a config of another type."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"convert_to_float8_training: not a module; got {type(module).__name__}; expected a Module")
    if config is not None and not isinstance(config, Float8LinearConfig):
        raise TypeError(f"convert_to_float8_training: config is of another type; got {type(config).__name__}; expected a Float8LinearConfig, or None")
    wanted = module_filter_fn or (lambda layer, name: layer.in_features % 16 == 0 and layer.out_features % 16 == 0)

    def replaced(layer, name):
        return Float8Linear.from_float(layer, config) if type(layer) is nn.Linear and wanted(layer, name) else layer

    if type(module) is nn.Linear:
        return replaced(module, "")
    for prefix, parent in list(module.named_modules()):
        for name, child in list(parent.named_children()):
            made = replaced(child, f"{prefix}.{name}" if prefix else name)
            if made is not child:
                setattr(parent, name, made)
    return module
