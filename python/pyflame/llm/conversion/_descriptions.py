"""A model's description in the other form: GGUF metadata of a config.json, and config.json of GGUF metadata.

What has been written is read again by the readers of pf.llm, and must be the same model. So what a form cannot say is refused, and never lost."""
import math

import numpy as np

from .. import _architectures
from .._errors import Values
from .._network import _frequencies

# Fields that are compared: all that decide what a model computes. RoPE's are compared as angles, the rest of Config is names.
_COMPARED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "context", "eps", "activation", "rope_dim", "local_base", "window", "windowed", "attention_cap", "logit_cap",
             "scale", "embedding_scale", "qkv_bias", "bias", "mlp_bias", "experts")  # fmt: skip
FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


class Factors:
    """RoPE's factors, as a tensor that is not in a file."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=np.float32)
        self.shape = self.values.shape

    def tolist(self):
        return self.values.tolist()


def _same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6)
    return a == b


def check_same(source, written, form):
    """ValueError where a description that was read again differs from what it was made of. form: what it was written as."""
    wrong = [f"{name}: {getattr(source, name)} became {getattr(written, name)}" for name in _COMPARED if not _same(getattr(source, name), getattr(written, name))]
    if not wrong and source.rope_dim:
        for long in {False, "long" in source.scaling}:
            (a, x), (b, y) = (_frequencies(c, c.rope_base, c.scaling, long) for c in (source, written))
            if not np.allclose(a, b, rtol=1e-5, atol=0) or not math.isclose(x, y, rel_tol=1e-5):
                wrong = [f"RoPE's angles with the scaling '{source.scaling.get('type', 'none')}'"]
    if wrong:
        raise ValueError(f"convert: {form} cannot say everything about this model; got {'; '.join(wrong)[:300]}; expected a description that has a counterpart")


def gguf_architecture(arch):
    """The Architecture of the GGUF file. Models of Mistral are 'llama' there."""
    return _architectures._find("gguf", "llama", "") if arch.gguf == "mistral" else arch


def to_metadata(config, document, name):
    """(metadata, {name: Factors}) of a Config that was read from a config.json, the document."""
    arch = gguf_architecture(config.architecture)
    v, c, learned = Values(document, "config.json"), config, arch.positions == "learned"
    values = {
        "vocab_size": c.vocab, "context_length": c.context if learned else v.size("max_position_embeddings"), "embedding_length": c.hidden, "block_count": c.layers, "feed_forward_length": c.inner,
        "attention.head_count": c.heads, "attention.head_count_kv": c.kv_heads, "attention.layer_norm_epsilon" if arch.norm == "layer" else "attention.layer_norm_rms_epsilon": float(c.eps),
    }  # fmt: skip
    factors = {}
    if not learned:
        values |= {"attention.key_length": c.head_dim, "attention.value_length": c.head_dim, "rope.dimension_count": c.rope_dim, "rope.freq_base": float(c.rope_base)}
        kind = c.scaling.get("type", "none")
        if kind in ("linear", "yarn"):
            values |= {"rope.scaling.type": kind, "rope.scaling.factor": float(c.scaling["factor"])}
            if kind == "yarn":
                values["rope.scaling.original_context_length"] = int(c.scaling["original"])
        elif kind == "llama3":
            plain, scaled = (_frequencies(c, c.rope_base, s)[0] for s in ({}, c.scaling))
            factors["rope_freqs.weight"] = Factors([a / b for a, b in zip(plain, scaled)])
        elif kind == "longrope":
            rope = document.get("rope_parameters") or document.get("rope_scaling") or {}
            values |= {"rope.scaling.original_context_length": int(c.scaling["original"]), "rope.scaling.attn_factor": float(_frequencies(c, c.rope_base, c.scaling)[1])}
            factors = {"rope_factors_short.weight": Factors(c.scaling["short"]), "rope_factors_long.weight": Factors(Values(rope, "config.json: rope_parameters").get("long_factor", list))}
    for key, value in (("attention.sliding_window", c.window), ("attn_logit_softcapping", c.attention_cap), ("final_logit_softcapping", c.logit_cap)):
        if value is not None:
            values[key] = value
    if e := c.experts:
        values |= {"expert_count": e.count, "expert_used_count": e.chosen, "expert_feed_forward_length": e.inner, "expert_weights_norm": e.normed}
        if e.shared:
            values["expert_shared_feed_forward_length"] = e.shared
    return {"general.architecture": arch.gguf, "general.name": name, **{f"{arch.gguf}.{k}": x for k, x in values.items()}}, factors


def to_document(config, metadata, tensors):
    """A config.json of a Config that was read from GGUF metadata. tensors: the file's, for RoPE's factors and to see whether embeddings are tied."""
    arch, c = config.architecture, config
    hf = arch.hf
    if arch.gguf == "llama" and (c.experts or c.window):
        hf = "mixtral" if c.experts else "mistral"
    document = {"architectures": [_architectures._find("hf", hf, "").transformers], "model_type": hf, "vocab_size": c.vocab, "tie_word_embeddings": "output.weight" not in tensors}
    if arch.positions == "learned":
        return document | {"n_embd": c.hidden, "n_layer": c.layers, "n_head": c.heads, "n_inner": c.inner, "n_positions": c.context, "layer_norm_epsilon": c.eps, "activation_function": "gelu_new"}
    activation = "gelu_pytorch_tanh" if c.activation == "gelu_tanh" else c.activation
    document |= {
        "hidden_size": c.hidden, "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "intermediate_size": c.inner,
        "max_position_embeddings": metadata[f"{arch.gguf}.context_length"], "rms_norm_eps": _short(c.eps), "hidden_act": activation, "rope_theta": _short(c.rope_base),
    }  # fmt: skip
    if activation != "silu":
        document["hidden_activation"] = activation
    if c.rope_dim != c.head_dim:
        document["partial_rotary_factor"] = c.rope_dim / c.head_dim
    if c.window:
        document |= {"sliding_window": c.window, "layer_types": ["sliding_attention" if w else "full_attention" for w in c.windowed]}
    elif hf in ("mistral", "qwen2", "qwen3"):
        document |= {"sliding_window": None, "use_sliding_window": False}
    if arch.caps:
        document |= {"attn_logit_softcapping": c.attention_cap, "final_logit_softcapping": c.logit_cap}
    if arch.scaled_embedding:
        document["query_pre_attn_scalar"] = c.scale ** -2
    if c.local_base is not None:
        document["rope_local_base_freq"] = c.local_base
    if e := c.experts:
        document |= {"num_local_experts": e.count, "num_experts_per_tok": e.chosen, "intermediate_size": e.inner} if hf == "mixtral" else {
            "num_experts": e.count, "num_experts_per_tok": e.chosen, "moe_intermediate_size": e.inner, "norm_topk_prob": e.normed, "decoder_sparse_step": 1, "mlp_only_layers": [],
            **({"shared_expert_intermediate_size": e.shared} if e.shared else {})}  # fmt: skip
    if c.qkv_bias and not arch.qkv_bias:
        document["attention_bias"] = True
    scaling = _scaling(config, tensors)
    return document | ({"rope_scaling": scaling} if scaling else {})


def _short(x):
    """The shortest number that is the same in float32: 1e-6 in place of 9.99999997e-07."""
    return float(np.format_float_positional(np.float32(x), unique=True)) if x else x


def _scaling(config, tensors):
    s = config.scaling
    kind = s.get("type", "none")
    if kind == "longrope":
        if "rope_factors_long.weight" not in tensors:
            raise ValueError("convert: the file has no factors of RoPE for long texts; got no tensor 'rope_factors_long.weight'; expected one beside 'rope_factors_short.weight'")
        long = [float(x) for x in tensors["rope_factors_long.weight"].numbers().ravel()]
        return {"rope_type": "longrope", "short_factor": [float(x) for x in s["short"].tolist()], "long_factor": long, "original_max_position_embeddings": int(s["original"]), "attention_factor": s["attention_factor"]}
    if "divisors" in s and kind == "none":
        return _llama3(config)
    scaling = {} if kind == "none" else {"rope_type": kind, "factor": s["factor"], "original_max_position_embeddings": s.get("original"), "attention_factor": s.get("attention_factor")}
    return {k: x for k, x in scaling.items() if x is not None}


def _llama3(config):
    """Llama 3's factors from their divisors: the largest one is the factor itself, the others follow from the lengths that the models have."""
    factor = round(max(config.scaling["divisors"].tolist()), 3)
    want = _frequencies(config, config.rope_base, config.scaling)[0]
    for original in (8192, 4096, 16384, 32768, 2048, 1024, 256):
        s = {"type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original": original}
        if np.allclose(_frequencies(config, config.rope_base, s)[0], want, rtol=1e-5, atol=0):
            return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
    raise ValueError(f"convert: RoPE's factors are not those of Llama 3; got up to {factor}; expected factors that config.json can say")


def paired(weight, heads, head_dim):
    """Rows of q and k from halves (i, i + n/2) to pairs (2i, 2i + 1)."""
    return weight.reordered(np.arange(heads * head_dim).reshape(heads, 2, head_dim // 2).swapaxes(1, 2).reshape(-1))


def unpaired(weight, heads, head_dim):
    """The way back."""
    return weight.reordered(np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1))
