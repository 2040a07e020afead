"""Linear layers with weights of 8 bits for inference, by the names of torchao.quantization, and an error report for each layer.

    report = pf.quantization.quantize_(model, pf.quantization.Int8WeightOnlyConfig())  # in place

Other names of torch.quantization and torch.ao exist so that programs import; they say that tensors with a quantized dtype are not available.
"""
import dataclasses
import typing

from . import _C, _refused, nn
from ._C import Tensor
from ._grad_mode import no_grad

__all__ = ["Int8WeightOnlyConfig", "Int8WeightOnlyLinear", "LayerReport", "QuantizationReport", "quantize_"]

_MOST = 127
_GROUP = 32  # of GGUF's Q8_0

_of_other_names = _refused.module("quantization", "quantized tensors are not available; quantize_ makes linear layers with weights of 8 bits; float16 and bfloat16 take half of the memory")


def __getattr__(name):
    return _of_other_names(name)


@dataclasses.dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """How quantize_ stores weights.

    group_size: None, int8 with one float32 scale for each row of a weight; each call decodes the weight to the input's dtype and multiplies exactly. This saves memory, not time.
    32: blocks of 32 int8 numbers with a float16 scale, GGUF's Q8_0, more accurate weights, which pf.quantized_linear multiplies as they are. It rounds inputs to 15 bits, or 8 on GPUs, where
    its documentation says so. in_features must be a multiple of 32. ValueError for another size."""

    group_size: typing.Optional[int] = None

    def __post_init__(self):
        if self.group_size not in (None, _GROUP):
            raise ValueError(f"Int8WeightOnlyConfig: this group_size is not available; got {self.group_size!r}; expected None (a scale for each row) or {_GROUP}")


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """One layer of a QuantizationReport. name: its path in the model. shape: (out_features, in_features). weight_error: norm(W - W') / norm(W) of the weight W and the stored one W'.
    output_error: the same of the layer's outputs on the sample inputs, or None where the layer saw none. bytes_before, bytes_after: of the weight with its scales."""

    name: str
    shape: typing.Tuple[int, int]
    weight_error: float
    output_error: typing.Optional[float]
    bytes_before: int
    bytes_after: int


class QuantizationReport:
    """What quantize_ returns: layers, a list of LayerReport. print(report) shows a table, the layers with the largest error first; worst is the first of them."""

    def __init__(self, layers):
        self.layers = layers

    def __iter__(self):
        return iter(self.layers)

    def __len__(self):
        return len(self.layers)

    @property
    def _sorted(self):
        return sorted(self.layers, key=lambda r: -_order(r.weight_error if r.output_error is None else r.output_error))

    @property
    def worst(self):
        """The layer with the largest error of its output, or of its weight where there is none."""
        return self._sorted[0]

    def __str__(self):
        width = max(len("layer"), *(len(r.name) for r in self.layers))
        lines = [f"{'layer':<{width}}  {'shape':>14}  {'weight error':>12}  {'output error':>12}  {'bytes':>12}  {'before':>12}"]
        for r in self._sorted:
            output = "-" if r.output_error is None else f"{r.output_error:.5f}"
            lines.append(f"{r.name:<{width}}  {' x '.join(map(str, r.shape)):>14}  {r.weight_error:>12.5f}  {output:>12}  {r.bytes_after:>12}  {r.bytes_before:>12}")
        after, before = (sum(getattr(r, f) for r in self.layers) for f in ("bytes_after", "bytes_before"))
        return "\n".join([*lines, f"{len(self.layers)} layers, {after} bytes instead of {before}"])

    __repr__ = __str__


def _order(error):
    return error if error == error else float("inf")  # NaN first


class Int8WeightOnlyLinear(nn.Module):
    """nn.Linear for inference whose weight has 8 bits. input [..., in_features], floating -> [..., out_features] of the same dtype.

    It is made by quantize_ or from_float. State dict, without groups: codes int8 [out_features, in_features], scale [out_features, 1], float32 also where to() or half() changes the model's dtype; the weight is codes * scale. With groups of 32:
    blocks uint8 [out_features, in_features / 32 * 34], rows of GGUF's Q8_0; the order in which the device multiplies them is made at the first call and takes the same memory once more.
    bias [out_features], as in nn.Linear, or None. NotImplementedError for an input that requires a gradient, and in training mode with gradients enabled.

    config: an Int8WeightOnlyConfig, which says whether there are groups. stored: {'codes': .., 'scale': ..} or {'blocks': ..}, as in the state dict.
    """

    _keep_dtype = ("scale",)  # float16 has few bits for numbers as small

    def __init__(self, in_features, out_features, bias, config, stored):
        super().__init__()
        self.in_features, self.out_features, self.config = in_features, out_features, config
        for name, tensor in stored.items():
            self.register_buffer(name, tensor)
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.detach(), requires_grad=False))
        self._tiles = (None, None, None)  # what they were made of, its version, tiles
        self.training = False

    @classmethod
    def from_float(cls, module, config=None):
        """The layer for an nn.Linear, whose bias it shares. config: an Int8WeightOnlyConfig. ValueError for weights that cannot be stored."""
        config = config or Int8WeightOnlyConfig()
        with no_grad():
            weight = module.weight.detach().to(_C.float32)
            stored = _in_rows(weight) if config.group_size is None else _in_blocks(weight)
        return cls(module.in_features, module.out_features, module.bias, config, stored)

    def dequantize(self):
        """The weight that the codes and scales stand for, a new float32 tensor [out_features, in_features]: each code times the scale of its row or group."""
        if self.config.group_size is None:
            return self.codes.to(_C.float32) * self.scale.to(_C.float32)
        return _C.decode_blocks(self.blocks, "Q8_0")

    def forward(self, input):
        """input @ dequantize()^T + bias: [..., in_features] -> [..., out_features], of the input's dtype. NotImplementedError where gradients are recorded,
        in training mode or for an input that requires one.
        """
        if _C.is_grad_enabled() and (self.training or input.requires_grad):
            what = "an input that requires a gradient" if input.requires_grad else "a call in training mode"
            raise NotImplementedError(f"Int8WeightOnlyLinear: weights of 8 bits are for inference; got {what}; expected pf.no_grad(), or model.eval() and no gradients; hint: train before quantize_")
        bias = None if self.bias is None else self.bias.to(input.dtype)
        if self.config.group_size is None:
            return _C.linear(input, self.dequantize().to(input.dtype), bias)
        return _C.quantized_linear(input, self._in_tiles(), "Q8_0", bias, tiled_rows=self.out_features)

    def _in_tiles(self):
        blocks = self.blocks
        made_of, version, tiles = self._tiles
        if made_of is not blocks or version != blocks._version:
            tiles = _C.weight_tiles(blocks, "Q8_0")
            self._tiles = (blocks, blocks._version, tiles)
        return tiles

    def __getstate__(self):
        return {**self.__dict__, "_tiles": (None, None, None)}

    def extra_repr(self):
        """The arguments as text, for print(module): in_features, out_features, bias and group_size of the config."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, group_size={self.config.group_size}"


def _in_rows(weight):
    amax = weight.abs().amax(1, keepdim=True) if weight.numel() else _C.zeros(weight.shape[0], 1, device=weight.device)
    scale = _C.where(amax == 0, 1.0, amax / _MOST)
    return {"codes": (weight / scale).round().clamp(-_MOST, _MOST).to(_C.int8), "scale": scale}


def _in_blocks(weight):
    rows, columns = weight.shape
    if columns % _GROUP:
        raise ValueError(f"a row is no whole number of groups; got in_features {columns}; expected a multiple of {_GROUP}; hint: leave the layer out with filter_fn, or use group_size=None")
    groups = weight.reshape(rows, columns // _GROUP, _GROUP)
    scale = (groups.abs().amax(2, keepdim=True) / _MOST).to(_C.float16)
    if not scale.isfinite().all().item():
        raise ValueError("numbers are too large for float16 scales; got a magnitude above 8.3e6; expected smaller weights; hint: group_size=None has float32 scales")
    wide = scale.to(_C.float32)
    codes = (groups / _C.where(wide == 0, 1.0, wide)).round().clamp(-_MOST, _MOST)
    codes = _C.where(wide == 0, 0.0, codes).to(_C.int8)
    return {"blocks": _C.cat([scale.view(_C.uint8), codes.view(_C.uint8)], 2).reshape(rows, -1)}


def quantize_(model, config, filter_fn=None, device=None, *, sample_inputs=None):
    """Replaces each nn.Linear below a model by an Int8WeightOnlyLinear, in place, for inference. torchao.quantization's function.

    model: a Module; the layers are of type nn.Linear itself, without those whose weight their parent reads (nn.MultiheadAttention). config: an Int8WeightOnlyConfig.
    filter_fn(module, name): whether to replace this one; default all. device: where the new layers are; default that of the old ones.
    A weight that another module shares, as the embedding of some language models, stays there in its dtype as well.
    sample_inputs: a tensor, a tuple of arguments or a dict of keyword arguments, on which the model runs once before, without gradients and in evaluation mode, to compare each layer's output.
    Returns a QuantizationReport with the errors of each layer. To load a quantized state dict, quantize a model of the same form first.
    Errors: TypeError for a config of another class, ValueError where there is no layer to replace, where the model itself is an nn.Linear, and for weights that are not finite or do not
    fit the groups, with the layer's name; then nothing is changed."""
    if not isinstance(config, Int8WeightOnlyConfig):
        raise TypeError(f"quantize_: no known configuration; got {type(config).__name__}; expected an Int8WeightOnlyConfig")
    if type(model) is nn.Linear:
        raise ValueError("quantize_: a layer cannot replace itself; got an nn.Linear; expected a model around it, such as nn.Sequential(layer)")
    places = [(parent, key, child, f"{path}.{key}" if path else key) for path, parent in model.named_modules() if not isinstance(parent, nn.MultiheadAttention)
              for key, child in parent._modules.items() if type(child) is nn.Linear]
    places = [p for p in places if filter_fn is None or filter_fn(p[2], p[3])]
    if not places:
        raise ValueError(f"quantize_: there is no layer to replace; got {type(model).__name__} without an nn.Linear that filter_fn takes; expected at least one")
    made = {}
    for _, _, layer, name in places:
        if layer not in made:
            made[layer] = _made(layer, name, config)
    errors = {} if sample_inputs is None else _output_errors(model, made, sample_inputs)
    report = QuantizationReport([_report(layer, new, name, errors.get(layer)) for layer, (new, name) in made.items()])
    for parent, key, layer, _ in places:
        new = made[layer][0]
        setattr(parent, key, new if device is None else new.to(device))
    return report


def _made(layer, name, config):
    if not layer.weight.detach().isfinite().all().item():
        raise ValueError(f"quantize_: a weight is not finite; got NaN or infinity in {name}; expected numbers")
    try:
        return Int8WeightOnlyLinear.from_float(layer, config), name
    except ValueError as error:
        raise ValueError(f"quantize_: {name}: {error}") from None


def _report(layer, new, name, output_error):
    with no_grad():
        weight = layer.weight.detach().to(_C.float32)
        error = _relative((weight - new.dequantize()).square().sum().item(), weight.square().sum().item())
    after = sum(b.numel() * b.element_size() for b in new._buffers.values())
    return LayerReport(name, tuple(layer.weight.shape), error, output_error, layer.weight.numel() * layer.weight.element_size(), after)


def _relative(square, of):
    return (square / of) ** 0.5 if of else float(square > 0)


def _output_errors(model, made, sample_inputs):
    """layer -> the relative error of its outputs in one run of the model."""
    sums = {}

    def compare(layer, args, output):
        difference = (made[layer][0](args[0]) - output).to(_C.float32).square().sum()
        size = output.to(_C.float32).square().sum()
        before = sums.get(layer, (0.0, 0.0))
        sums[layer] = (before[0] + difference.item(), before[1] + size.item())

    modes = [(m, m.training) for m in model.modules()]
    handles = [layer.register_forward_hook(compare) for layer in made]
    try:
        model.eval()
        with no_grad():
            if isinstance(sample_inputs, dict):
                model(**sample_inputs)
            else:
                model(*((sample_inputs,) if isinstance(sample_inputs, Tensor) else sample_inputs))
    finally:
        for h in handles:
            h.remove()
        for m, training in modes:
            m.training = training
    return {layer: _relative(*s) for layer, s in sums.items()}
