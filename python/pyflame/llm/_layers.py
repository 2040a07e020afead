"""What a layer of a decoder consists of: one table of its weights.

What has to know a weight reads it here: names in files (below), which tensors a network takes (_network.py), the parts of ranks (_share.py), adapters (_lora.py) and conversions.

A shape is written as names of sizes, which sizes() gives for a model. How ranks divide a weight follows from it: each rank has a part of the sizes in DIVIDED, and all of the
others. So a weight is divided by its rows, by its columns, or not at all, and one whose columns are divided gives a part of a sum."""
import re
from collections.abc import Callable
from typing import NamedTuple

PRODUCT, NORM, SMALL = "product", "norm", "small"
DIVIDED = ("q", "kv", "inner", "expert", "shared")  # sizes; _share.py says which part of each a rank has
PATHS = {"llama": "model.layers", "gpt2": "transformer.h"}  # of layers in folders, by the kind of names


class Weight(NamedTuple):
    """A weight of each layer, or of the model outside of its layers.

    name: in Network.layers.
    gguf: in GGUF files, behind 'blk.N.'.
    hf: in folders, behind 'model.layers.N.', by the kind of names; the first of Architecture.names that is here counts. {} stands for an expert's number.
    rows, columns: names of sizes. The rows of all follow each other; a vector has no columns.
    kind: PRODUCT, a matrix for products: it may be packed and may lie in host memory, and adapters may change it outside of experts; NORM, of the architecture's kind of norm; SMALL, numbers that are never packed.
    part: '' of all layers; 'dense' of those without experts, 'experts' of those with them, 'shared' of those where all tokens have an expert in common; 'model' outside of layers.
    bias: the field of Config that says whether it has one; 'file': where the file has one. With Config.bias it has one in any case.
    when: which architectures have it. optional: a file may lack it. unless: the name of another weight that replaces it, where the layer has that one.
    heads: the field of Config with the number of heads that RoPE turns in its rows."""

    name: str
    gguf: str
    hf: dict
    rows: tuple
    columns: str = ""
    kind: str = PRODUCT
    part: str = ""
    bias: str = ""
    when: Callable = lambda architecture: True
    optional: bool = False
    unless: str = ""
    heads: str = ""

    def hf_name(self, architecture):
        """The name in folders of an architecture, or None."""
        return next((self.hf[kind] for kind in architecture.names if kind in self.hf), None)

    @property
    def of_experts(self):
        """Whether it is a part of a mixture of experts."""
        return self.part in ("experts", "shared")

    @property
    def adapts(self):
        """Whether adapters may change it."""
        return self.kind == PRODUCT and self.part in ("", "dense")

    def shape(self, sizes):
        """The shape in a model with these sizes."""
        rows = sum(sizes[r] for r in self.rows)
        return (*([sizes["experts"]] if self.part == "experts" and self.kind == PRODUCT else []), rows, *([sizes[self.columns]] if self.columns else []))


def _hf(llama=None, **others):
    return {**({"llama": llama} if llama else {}), **others}


def _of_experts(part, gguf, hf, mixtral=None):
    """gate, up and down of experts."""
    for name, own in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
        rows, columns = ("hidden", part) if name == "down" else (part, "hidden")
        yield Weight(f"{part}_{name}", f"ffn_{name}_{gguf}", _hf(f"{hf}.{name}_proj", **({"mixtral": f"{mixtral}.{own}"} if mixtral else {})), (rows,), columns, part="shared" if part == "shared" else "experts")


# In the order in which a network takes them.
LAYER = [
    Weight("qkv", "attn_qkv", _hf("self_attn.qkv_proj", gpt2="attn.c_attn"), ("q", "kv", "kv"), "hidden", bias="qkv_bias", when=lambda a: a.fused, optional=True),
    Weight("q", "attn_q", _hf("self_attn.q_proj"), ("q",), "hidden", bias="qkv_bias", unless="qkv", heads="heads"),
    Weight("k", "attn_k", _hf("self_attn.k_proj"), ("kv",), "hidden", bias="qkv_bias", unless="qkv", heads="kv_heads"),
    Weight("v", "attn_v", _hf("self_attn.v_proj"), ("kv",), "hidden", bias="qkv_bias", unless="qkv"),
    Weight("router", "ffn_gate_inp", _hf("mlp.gate", mixtral="block_sparse_moe.gate"), ("experts",), "hidden", SMALL, "experts"),
    *_of_experts("expert", "exps", "mlp.experts.{}", "block_sparse_moe.experts.{}"),
    *_of_experts("shared", "shexp", "mlp.shared_expert"),
    Weight("shared_scale", "ffn_gate_inp_shexp", _hf("mlp.shared_expert_gate"), ("one",), "hidden", SMALL, "shared", optional=True),
    Weight("gate_up", "ffn_up", _hf("mlp.gate_up_proj"), ("inner", "inner"), "hidden", part="dense", bias="mlp_bias", when=lambda a: a.fused and a.gated),
    Weight("up", "ffn_up", _hf("mlp.up_proj", gpt2="mlp.c_fc"), ("inner",), "hidden", part="dense", bias="mlp_bias", unless="gate_up"),
    Weight("gate", "ffn_gate", _hf("mlp.gate_proj"), ("inner",), "hidden", part="dense", bias="mlp_bias", when=lambda a: a.gated, unless="gate_up"),
    Weight("down", "ffn_down", _hf("mlp.down_proj", gpt2="mlp.c_proj"), ("hidden",), "inner", part="dense", bias="mlp_bias"),
    Weight("o", "attn_output", _hf("self_attn.o_proj", gpt2="attn.c_proj"), ("hidden",), "q", bias="file"),
    Weight("attn_norm", "attn_norm", _hf("input_layernorm", gpt2="ln_1"), ("hidden",), kind=NORM),
    Weight("ffn_norm", "ffn_norm", _hf("post_attention_layernorm", gpt2="ln_2", gemma2="pre_feedforward_layernorm"), ("hidden",), kind=NORM),
    Weight("after_attn", "post_attention_norm", _hf(gemma2="post_attention_layernorm"), ("hidden",), kind=NORM, when=lambda a: a.after),
    Weight("after_ffn", "post_ffw_norm", _hf(gemma2="post_feedforward_layernorm"), ("hidden",), kind=NORM, when=lambda a: a.after),
    Weight("q_norm", "attn_q_norm", _hf("self_attn.q_norm"), ("head",), kind=NORM, when=lambda a: a.qk_norm),
    Weight("k_norm", "attn_k_norm", _hf("self_attn.k_norm"), ("head",), kind=NORM, when=lambda a: a.qk_norm),
]  # fmt: skip
# Outside of the layers.
MODEL = [
    Weight("embedding", "token_embd", _hf("model.embed_tokens", gpt2="transformer.wte"), ("vocab",), "hidden", part="model"),
    Weight("positions", "position_embd", _hf(gpt2="transformer.wpe"), ("context",), "hidden", SMALL, "model", when=lambda a: a.positions == "learned"),
    Weight("output_norm", "output_norm", _hf("model.norm", gpt2="transformer.ln_f"), ("hidden",), kind=NORM, part="model"),
    Weight("output", "output", _hf("lm_head", gpt2="lm_head"), ("vocab",), "hidden", part="model"),
]  # fmt: skip
# Weights that a network makes one where it can: they have the same inputs, and their rows follow each other.
JOINED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
OF_NAME = {w.name: w for w in LAYER + MODEL}
SUMMED = frozenset(w.name for w in LAYER if w.columns in DIVIDED)  # a rank's product with one of these is a part of a sum


def sizes(c):
    """The sizes of a Config by their names."""
    own = {"one": 1, "vocab": c.vocab, "context": c.context, "hidden": c.hidden, "head": c.head_dim, "q": c.heads * c.head_dim, "kv": c.kv_heads * c.head_dim, "inner": c.inner}
    return own if c.experts is None else {**own, "experts": c.experts.count, "expert": c.experts.inner, "shared": c.experts.shared}


def of_layer(c, sparse):
    """The weights of a model's layers with experts, or without them, and those among them that a file may lack."""
    parts = ("", "dense") if not sparse else ("", "experts", "shared") if c.experts.shared else ("", "experts")
    return [w for w in LAYER if w.part in parts and w.when(c.architecture)]


# Names.

PATH = r"(?:model|transformer)\.(?:layers|h)\.(\d+)\."  # of a layer in folders
_MODULE = re.compile(PATH + r"(?:(.+\.experts)\.(\d+)\.)?(.+)")


def _by(keys):
    found = {}
    for w in LAYER + MODEL:
        for key in keys(w):
            found.setdefault(key, []).append(w)
    return found


_OF_GGUF, _OF_HF = _by(lambda w: [w.gguf]), _by(lambda w: w.hf.values())


def of_gguf(name, architecture):
    """(the Weight, its layer or None) of a name of GGUF without '.weight' or '.bias'. None where the architecture has no such weight."""
    layer, own = None, name
    if name.startswith("blk."):
        layer, _, own = name[4:].partition(".")
        if not layer.isdigit():
            return None
    for weight in _OF_GGUF.get(own, ()):
        if (weight.part == "model") == (layer is None) and weight.when(architecture):
            return weight, layer
    return None


def heads_of(name, c):
    """How many heads RoPE turns in the rows of a GGUF tensor; 0: in none."""
    weight, _ = of_gguf(name.rpartition(".")[0], c.architecture) or (None, None)
    return getattr(c, weight.heads) if weight and weight.heads else 0


def of_module(module, architecture):
    """The Weight of a module of a layer in folders, behind 'model.layers.N.', or None. A module with another kind of name is known too, so that an error can name it."""
    found = _OF_HF.get(module, (None,))
    return found[0] if len(found) == 1 else next((w for w in found if w.hf_name(architecture) == module), found[0])


def gguf_name(name, architecture):
    """(the Weight, its name in GGUF files, an expert's number or None) of a name in folders without '.weight' or '.bias'. None where it is not of this decoder."""
    match = _MODULE.fullmatch(name)
    layer, experts, number, module = match.groups() if match else (None, None, None, name)
    weight = of_module(module if experts is None else f"{experts}.{{}}.{module}", architecture)
    if weight is None or (weight.part == "model") != (match is None):
        return None
    return weight, f"blk.{layer}.{weight.gguf}" if match else weight.gguf, number and int(number)


def hf_name(name, architecture):
    """The name in folders of a GGUF tensor, with {} in place of an expert's number; None where it has none."""
    base, _, kind = name.rpartition(".")
    weight, layer = of_gguf(base, architecture) or (None, None)
    own = weight and weight.hf_name(architecture)
    if own is None or kind not in ("weight", "bias") or (kind == "bias" and "{}" in own) or (weight.of_experts and not architecture.sparse):
        return None
    path = next(PATHS[names] for names in architecture.names if names in PATHS)
    return f"{own}.{kind}" if layer is None else f"{path}.{layer}.{own}.{kind}"
