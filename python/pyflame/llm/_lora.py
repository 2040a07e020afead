"""Adapters (LoRA, arXiv:2106.09685) of PEFT's folders: y = W x becomes y = W x + s B A x, with s = alpha / r, or alpha / sqrt(r) (rsLoRA, arXiv:2312.03732).

The adapters of an engine lie side by side: their A's are the rows of one matrix and their B's the columns of another, and a mask says for each row of the input which of them
it takes. So the texts of a batch may have different adapters, and shapes do not depend on which. A product then costs (inputs + outputs) times the sum of all
ranks for each row, in steps in which some text has an adapter. Weights stay as they are, so they may be packed."""
import math
import os
import re

from .. import _C, _numpy as np
from . import _layers
from ._architectures import text_name
from ._errors import Values

_NAME = re.compile(_layers.PATH + r"(.+)\.lora_([AB])(?:\.default)?\.weight")


class Adapter:
    """A folder's factors. factors: {(layer, name of the network's weight): [(A (r, inputs), B (outputs, r) with the scale, first row of the outputs)]}, float32 arrays."""

    def __init__(self, name, path, factors):
        self.name, self.path, self.factors = name, path, factors


def _pattern(patterns, module, default):
    return next((v for k, v in (patterns or {}).items() if re.fullmatch(rf"(.*\.)?({k})", module)), default)


def read_adapter(name, path, network):
    """The Adapter of a folder with adapter_config.json and adapter_model.safetensors. OSError; ValueError for a kind that is not available, and with a list where factors do not fit the network."""
    from ..io import load as load_tensors
    from .language_model import _json

    path = os.fspath(path)
    v = Values(_json(path, "adapter_config.json", needed=True), "adapter_config.json")
    kind = v.get("peft_type", str, "LORA")
    if kind != "LORA":
        raise ValueError(f"lora: the kind of adapter is not available; got peft_type {kind!r} in '{path}'; expected 'LORA'")
    for key, harmless in (("bias", "none"), ("modules_to_save", []), ("use_dora", False), ("alora_invocation_tokens", [])):
        value = v.values.get(key)
        if value is not None and value != harmless and value != []:
            raise ValueError(f"lora: a setting of the adapter is not available; got {key} {value!r} in '{path}'; expected {harmless!r}")
    rank, rslora = v.size("r", most=1 << 16), v.get("use_rslora", bool, False)
    alpha = v.get("lora_alpha", float, float(rank))
    found, wrong = {}, []
    for tensor, value in load_tensors(os.path.join(path, "adapter_model.safetensors"), "cpu").items():
        match = _NAME.fullmatch(text_name(tensor.removeprefix("base_model.model.")) or "")
        if match is None:
            wrong.append(f"{tensor} is not of a layer's matrix")
        else:
            found.setdefault((int(match.group(1)), match.group(2)), {})[match.group(3)] = value.float().numpy()
    factors = {}
    for (layer, module), pair in sorted(found.items()):
        at = f"layer {layer}, {module}"
        if set(pair) != {"A", "B"}:
            wrong.append(f"{at}: only lora_{''.join(pair)}")
            continue
        a, b = pair["A"], pair["B"]
        r, place = _pattern(v.get("rank_pattern", dict, {}), module, rank), _place(network, layer, module)
        if place is None:
            wrong.append(f"{at}: the model has no such weight")
            continue
        key, weight, first, outputs, inputs = place
        if a.shape != (r, inputs) or b.shape != (outputs, r):
            wrong.append(f"{at}: A {a.shape} and B {b.shape} instead of {(r, inputs)} and {(outputs, r)}")
            continue
        if network.share is not None:
            a, b = network.share.factors(network.whole, weight, a, b)
        s = _pattern(v.get("alpha_pattern", dict, {}), module, alpha) / (math.sqrt(r) if rslora else r)
        factors.setdefault((layer, key), []).append((a, (s * b).astype(np.float32), first))
    if wrong:
        raise ValueError(f"lora: the adapter does not fit the model; got {'; '.join(wrong[:8])} ({len(wrong)} in all) in '{path}'; expected factors of the matrices of its layers")
    if not factors:
        raise ValueError(f"lora: the adapter is empty; got no factors in '{path}'; expected some")
    return Adapter(name, path, factors)


def _place(network, layer, module):
    """(name of the network's weight, the Weight (_layers.py) that is it or a part of it, first row of that, outputs, inputs) of a module of Hugging Face's layout, or None. Outputs and inputs are
    those of the whole model, the first row is that in the network's own weight."""
    weight = _layers.of_module(module, network.whole.architecture)
    if weight is None or not weight.adapts or layer >= len(network.layers):
        return None
    weights, shape = network.layers[layer], weight.shape(_layers.sizes(network.whole))
    if weight.name in weights:
        return (weight.name, weight, 0, *shape)
    for joined, parts in _layers.JOINED.items():
        if weight.name in parts and joined in weights:
            own = _layers.sizes(network.config)
            return (joined, weight, sum(_layers.OF_NAME[p].shape(own)[0] for p in parts[:parts.index(weight.name)]), *shape)
    return None


class Adapters:
    """Several adapters side by side. of_rows(numbers) is what a forward pass needs: a function of (layer, name, input, output)."""

    def __init__(self, network, adapters):
        self.adapters, self.network, self._pairs = list(adapters), network, {}
        outputs = {}
        for number, adapter in enumerate(self.adapters):
            for key, parts in adapter.factors.items():
                outputs.setdefault(key, []).extend((number, *p) for p in parts)
        for (layer, name), parts in outputs.items():
            weight = network.layers[layer][name][0]
            ranks = [a.shape[0] for _, a, _, _ in parts]
            b = np.zeros((weight.shape[0], sum(ranks)), dtype=np.float32)
            for (_, _, part, first), end in zip(parts, np.cumsum(ranks)):
                b[first:first + part.shape[0], end - part.shape[1]:end] = part
            owners = tuple(np.repeat([number for number, *_ in parts], ranks).tolist())
            a = np.concatenate([a for _, a, _, _ in parts])
            self._pairs[layer, name] = (*(_C.tensor(m, device=network.device).to(network.dtype) for m in (a, b)), owners)

    def of_rows(self, numbers):
        """numbers: the adapter's number for each row of the input, or None."""
        masks, network = {}, self.network
        rows = np.array([-1 if n is None else n for n in numbers])

        def adapt(layer, name, x, y):
            pair = self._pairs.get((layer, name))
            if pair is None:
                return y
            a, b, owners = pair
            if owners not in masks:
                masks[owners] = _C.tensor((rows[:, None] == np.array(owners)[None, :]).astype(np.float32), device=network.device).to(network.dtype)
            return y + (((x @ a.t()) * masks[owners]) @ b.t()).to(y.dtype)

        return adapt

    def all_rows(self, number):
        """As of_rows, where every row has the same adapter and their number is not known yet."""
        made = {}

        def adapt(layer, name, x, y):
            if x.shape[0] not in made:
                made[x.shape[0]] = self.of_rows([number] * x.shape[0])
            return made[x.shape[0]](layer, name, x, y)

        return adapt
