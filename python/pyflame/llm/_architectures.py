"""Language models as data: one table of architectures, and the sizes of a model from GGUF metadata or config.json.

Every model here is the same decoder (_network.py) with other parts, so an architecture is one row of ARCHITECTURES."""
import math
from dataclasses import dataclass, field

from .. import _C
from . import _layers
from ._errors import Values
from ._packed import PackedWeight


@dataclass(frozen=True)
class Architecture:
    """What differs between architectures. Names in files: gguf (general.architecture) and hf (model_type)."""

    gguf: str
    hf: str
    transformers: str  # the class of Hugging Face's library
    names: tuple = ("llama",)  # kinds of names that its folders have: of those that a weight has (_layers.py), the first one counts
    norm: str = "rms"  # 'rms' (arXiv:1910.07467) or 'layer' (with bias)
    unit_norms: bool = False  # config.json's weights count from 1: x (1 + w). GGUF files have 1 + w
    after: bool = False  # also a norm after attention and after the feed-forward part
    qk_norm: bool = False  # a norm of each head's queries and keys
    activation: str = "silu"
    gated: bool = True
    qkv_bias: bool = False
    bias: bool = False  # every linear layer has one
    fused: bool = False  # q, k and v are one weight, gate and up are another
    positions: str = "rope"  # or 'learned'
    interleaved: bool = False  # GGUF's rows of q and k are in pairs (2i, 2i + 1); config.json's are in halves (i, i + n/2)
    transposed: bool = False  # Hugging Face's weights are (inputs, outputs)
    scaled_embedding: bool = False  # embeddings times sqrt(hidden)
    period: int = 0  # with a sliding window: every period-th layer sees everything; 0: no layer does
    local_base: float = None  # RoPE's base in layers with a window
    caps: tuple = ()  # defaults of the soft caps of attention and logits
    sparse: bool = False  # config.json's layers are mixtures of experts
    normed_experts: bool = True  # the weights of a token's experts are divided by their sum (GGUF files do not say it)


ARCHITECTURES = [
    Architecture("llama", "llama", "LlamaForCausalLM", interleaved=True),
    Architecture("mistral", "mistral", "MistralForCausalLM"),
    Architecture("llama", "mixtral", "MixtralForCausalLM", ("mixtral", "llama"), interleaved=True, sparse=True),
    Architecture("qwen2", "qwen2", "Qwen2ForCausalLM", qkv_bias=True),
    Architecture("qwen3", "qwen3", "Qwen3ForCausalLM", qk_norm=True),
    Architecture("qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", qkv_bias=True, sparse=True, normed_experts=False),
    Architecture("qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", qk_norm=True, sparse=True),
    Architecture("gemma", "gemma", "GemmaForCausalLM", unit_norms=True, activation="gelu_tanh", scaled_embedding=True),
    Architecture("gemma2", "gemma2", "Gemma2ForCausalLM", ("gemma2", "llama"), unit_norms=True, after=True, activation="gelu_tanh", scaled_embedding=True, period=2, caps=(50.0, 30.0)),
    Architecture("gemma3", "gemma3_text", "Gemma3ForCausalLM", ("gemma2", "llama"), unit_norms=True, after=True, qk_norm=True, activation="gelu_tanh", scaled_embedding=True, period=6, local_base=10000.0),
    Architecture("phi3", "phi3", "Phi3ForCausalLM", fused=True),
    Architecture("gpt2", "gpt2", "GPT2LMHeadModel", ("gpt2",), norm="layer", activation="gelu_tanh", gated=False, bias=True, fused=True, positions="learned", transposed=True),
]


@dataclass
class ExpertSizes:
    """A mixture of experts (arXiv:1701.06538): each token's feed-forward part is that of its `chosen` experts out of `count`."""

    count: int
    chosen: int
    inner: int
    shared: int = 0  # the inner size of the expert that all tokens have
    normed: bool = True  # the weights of a token's experts are divided by their sum
    dense: tuple = ()  # layers without experts


@dataclass
class Config:
    """A model's sizes and numbers."""

    architecture: Architecture
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    context: int
    eps: float
    activation: str
    rope_base: float = 10000.0
    rope_dim: int = 0
    scaling: dict = field(default_factory=dict)  # RoPE's: type, factor and others
    local_base: float = None
    window: int = None
    windowed: tuple = ()  # for each layer: has it the window
    attention_cap: float = None
    logit_cap: float = None
    scale: float = None  # of queries times keys
    embedding_scale: float = 1.0
    qkv_bias: bool = False
    bias: bool = False
    mlp_bias: bool = False
    experts: ExpertSizes = None
    tied: bool = None  # are the embeddings also the weights of the logits; None: where the file has no others


ENCODER = "bert"  # of general.architecture and of model_type


def is_encoder(name):
    """Whether the models of this name, general.architecture or model_type, make embeddings and write no texts."""
    return name == ENCODER


def _find(kind, value, where):
    for a in ARCHITECTURES:
        if getattr(a, kind) == value:
            return a
    known = dict.fromkeys(getattr(a, kind) for a in ARCHITECTURES) | ({"gemma3": None} if kind == "hf" else {})  # gemma3: text_document() makes gemma3_text of it
    hint = "; hint: pf.llm.load_embedding and pyflame embed take encoders" if is_encoder(value) else ""
    raise ValueError(f"llm: the architecture is not available; got '{value}' in {where}; expected one of {', '.join(known)}{hint}")


_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
_SCALINGS = ("none", "linear", "dynamic", "yarn", "llama3", "longrope")


def _checked(c, where):
    if c.heads % c.kv_heads:
        raise ValueError(f"llm: {where}: the heads do not fit; got {c.heads} of queries and {c.kv_heads} of keys; expected a multiple")
    if c.rope_dim % 2 or c.rope_dim > c.head_dim:
        raise ValueError(f"llm: {where}: RoPE's dims do not fit; got {c.rope_dim} for heads of {c.head_dim}; expected an even number, at most the head's")
    for name, value, low in (("the base of RoPE", c.rope_base, 1.0), ("the local base of RoPE", c.local_base, 1.0), ("the scale of attention", c.scale, 0.0)):
        if value is not None and not low < value < math.inf:
            raise ValueError(f"llm: {where}: {name} is out of range; got {value}; expected a number above {low:g}")
    if not 0 <= c.eps < math.inf:
        raise ValueError(f"llm: {where}: the epsilon of the norms is out of range; got {c.eps}; expected a number from 0 upwards")
    if c.experts and c.experts.chosen > c.experts.count:
        raise ValueError(f"llm: {where}: a token has too many experts; got {c.experts.chosen} of {c.experts.count}; expected at most all of them")
    if c.layers * c.hidden > 1 << 28 or c.context > 1 << 26:
        raise ValueError(f"llm: {where}: the sizes are out of range; got {c.layers} layers of {c.hidden}, context {c.context}; expected a model that exists")
    kind = c.scaling.get("type", "none")
    if kind not in _SCALINGS:
        raise ValueError(f"llm: {where}: the scaling of RoPE is not available; got '{kind}'; expected one of {', '.join(_SCALINGS)}")
    for name in ("factor", "original", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor"):
        value = c.scaling.get(name)
        if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise ValueError(f"llm: {where}: the {name} of RoPE's scaling is out of range; got {value}; expected a positive number")
    for name in ("mscale", "mscale_all_dim"):
        if not 0 <= c.scaling.get(name, 0.0) < math.inf:
            raise ValueError(f"llm: {where}: the {name} of RoPE's scaling is out of range; got {c.scaling[name]}; expected a number from 0 upwards")
    low, high = c.scaling.get("low_freq_factor", 1.0), c.scaling.get("high_freq_factor", 4.0)
    if kind == "llama3" and not low < high:
        raise ValueError(f"llm: {where}: the factors of RoPE's scaling do not fit; got low_freq_factor {low} and high_freq_factor {high}; expected the first to be less")
    if kind == "dynamic" and c.rope_dim < 4:
        raise ValueError(f"llm: {where}: RoPE's dims do not fit its scaling; got {c.rope_dim}; expected at least 4 for the scaling 'dynamic'")
    if kind == "longrope" and c.scaling["original"] < 2:
        raise ValueError(f"llm: {where}: the original of RoPE's scaling is out of range; got {c.scaling['original']}; expected at least 2")
    if kind == "longrope" and "long" not in c.scaling:
        c.context = min(c.context, int(c.scaling["original"]))
    return c


def _head_dim(v, key, hidden, heads):
    given = v.size(key, None, most=1 << 16)
    if given is None and hidden < heads:
        raise ValueError(f"llm: {v.where}: the size of a head is out of range; got {hidden} // {heads} = 0; expected at least 1")
    return hidden // heads if given is None else given


def _windows(arch, layers, window, period=None):
    period = arch.period if period is None else period
    return tuple(bool(window) and (period == 0 or (i + 1) % period != 0) for i in range(layers))


def _experts_of_gguf(v, arch, prefix, layers, inner):
    if not v.get(prefix + "expert_count", int, 0):
        return None
    shared = v.size(prefix + "expert_shared_feed_forward_length", 0, most=1 << 24, least=0)
    return ExpertSizes(v.size(prefix + "expert_count", most=1 << 12), v.size(prefix + "expert_used_count", most=1 << 12), v.size(prefix + "expert_feed_forward_length", inner, most=1 << 24), shared,
                       v.get(prefix + "expert_weights_norm", bool, arch.normed_experts))


def _experts_of_hf(v, arch, layers, inner):
    if not arch.sparse:
        return None
    if arch.hf == "mixtral":
        return ExpertSizes(v.size("num_local_experts", most=1 << 12), v.size("num_experts_per_tok", most=1 << 12), inner)
    step, only = v.size("decoder_sparse_step", 1), v.get("mlp_only_layers", list, None) or []
    dense = tuple(i for i in range(layers) if i in only or (i + 1) % step)
    shared = v.size("shared_expert_intermediate_size", 0, most=1 << 24, least=0) if arch.hf == "qwen2_moe" else 0
    return ExpertSizes(v.size("num_experts", most=1 << 12), v.size("num_experts_per_tok", most=1 << 12), v.size("moe_intermediate_size", most=1 << 24), shared, v.get("norm_topk_prob", bool, False), dense)


def from_gguf(metadata, tensors):
    """The Config of a GGUF file. ValueError for a missing or wrong value or another architecture."""
    v = Values(metadata, "the file's metadata")
    arch = _find("gguf", v.get("general.architecture", str), "general.architecture")
    prefix = arch.gguf + "."
    hidden, layers, heads = v.size(prefix + "embedding_length", most=1 << 20), v.size(prefix + "block_count", most=4096), v.size(prefix + "attention.head_count", most=1 << 16)
    head_dim = _head_dim(v, prefix + "attention.key_length", hidden, heads)
    inner = v.size(prefix + "feed_forward_length", most=1 << 24)
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ValueError("llm: the file has no embedding; got no matrix 'token_embd.weight'; expected one")
    eps = "attention.layer_norm_epsilon" if arch.norm == "layer" else "attention.layer_norm_rms_epsilon"
    window = v.size(prefix + "attention.sliding_window", None)
    scaling = {}
    kind = v.get(prefix + "rope.scaling.type", str, "none")
    if kind != "none":
        scaling = {"type": kind, "factor": v.get(prefix + "rope.scaling.factor", float, 1.0), "original": v.get(prefix + "rope.scaling.original_context_length", int, None)}
        if prefix + "rope.scaling.attn_factor" in v:
            scaling["attention_factor"] = v.get(prefix + "rope.scaling.attn_factor", float)
    if "rope_factors_short.weight" in tensors:
        original = v.size(prefix + "rope.scaling.original_context_length")
        scaling = {"type": "longrope", "original": original, "short": tensors["rope_factors_short.weight"], "attention_factor": v.get(prefix + "rope.scaling.attn_factor", float, 1.0)}
        if "rope_factors_long.weight" in tensors:
            scaling["long"] = tensors["rope_factors_long.weight"]
    elif "rope_freqs.weight" in tensors:
        scaling = {**scaling, "divisors": tensors["rope_freqs.weight"]}
    caps = arch.caps or (None, None)
    scale = head_dim ** -0.5
    if arch.gguf in ("gemma2", "gemma3") and layers in (46, 62) and arch.period and hidden // heads != head_dim:
        scale = (hidden // heads) ** -0.5  # the 27B models: their files do not say it
    return _checked(Config(
        arch, layers, hidden, heads, v.size(prefix + "attention.head_count_kv", heads, most=1 << 16), head_dim, inner, embedding.shape[0],
        v.size(prefix + "context_length"), v.get(prefix + eps, float), arch.activation, v.get(prefix + "rope.freq_base", float, 10000.0),
        0 if arch.positions == "learned" else v.size(prefix + "rope.dimension_count", head_dim), scaling, arch.local_base, window, _windows(arch, layers, window),
        v.get(prefix + "attn_logit_softcapping", float, caps[0]), v.get(prefix + "final_logit_softcapping", float, caps[1]), scale,
        math.sqrt(hidden) if arch.scaled_embedding else 1.0, qkv_bias=arch.qkv_bias or "blk.0.attn_q.bias" in tensors, bias=arch.bias,
        experts=_experts_of_gguf(v, arch, prefix, layers, inner)), "the file's metadata")


def _rope_of(v, arch):
    """(base, scaling, base in layers with a window) of config.json, in its old and its new form."""
    rope, local = v.get("rope_parameters", dict, None), v.get("rope_local_base_freq", float, arch.local_base)
    if rope and isinstance(rope.get("full_attention"), dict):
        inner = rope.get("sliding_attention")
        local = Values(inner, "config.json: rope_parameters").get("rope_theta", float, local) if inner is not None else local
        rope = rope["full_attention"]
    old = v.get("rope_scaling", dict, None)
    base = v.get("rope_theta", float, 10000.0)
    if rope is None:
        rope = old or {}
    r = Values(rope, "config.json: rope_parameters")
    base = r.get("rope_theta", float, base)
    kind = r.get("rope_type", str, r.get("type", str, "default"))
    if kind in ("default", "none"):
        return base, {}, local
    original = r.size("original_max_position_embeddings", v.size("original_max_position_embeddings", v.size("max_position_embeddings")))
    s = {"type": {"su": "longrope"}.get(kind, kind), "factor": r.get("factor", float, 1.0), "original": original}
    if s["type"] == "longrope":
        s |= {name: r.get(f"{name}_factor", list) for name in ("short", "long") if name == "short" or "long_factor" in r}
        for name in ("short", "long"):
            if not all(isinstance(x, (int, float)) for x in s.get(name, [])):
                raise ValueError(f"llm: config.json: '{name}_factor' is damaged; got {str(s[name])[:80]}; expected a list of numbers")
        if "factor" not in r:
            s["factor"] = v.size("max_position_embeddings") / original
    for name in ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"):
        if name in r:
            s[name] = r.get(name, float)
    return base, s, local


# What the config.json of a Gemma 3 with images leaves out of its text_config, because transformers has these values as its defaults.
_GEMMA3_DEFAULTS = {
    "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "tie_word_embeddings": True,
}  # fmt: skip


def text_document(document):
    """The config.json of the text part of a model that has other parts too: Gemma 3 with images. Any other document is returned as it is. ValueError."""
    if not isinstance(document, dict) or document.get("model_type") != "gemma3":
        return document
    text = Values(document, "config.json").get("text_config", dict)
    return {**_GEMMA3_DEFAULTS, **{k: x for k, x in text.items() if x is not None or k == "sliding_window"}, "model_type": "gemma3_text"}


_OTHER_PARTS = ("vision_tower.", "multi_modal_projector.")  # of models whose text part is a decoder of this table


def text_name(name):
    """The name that a tensor of a model with other parts has in a model of text alone; None for one that belongs to such a part."""
    plain = name.removeprefix("model.")
    if plain.startswith(_OTHER_PARTS):
        return None
    if name.startswith("language_model."):  # language_model.model.layers.… and language_model.lm_head.weight
        return name.removeprefix("language_model.")
    return "model." + plain.removeprefix("language_model.") if plain.startswith("language_model.") else name


def from_hf(document):
    """The Config of a parsed config.json. ValueError for a missing or wrong value or another architecture."""
    v = Values(text_document(document), "config.json")
    arch = _find("hf", v.get("model_type", str), "model_type")
    learned = arch.positions == "learned"
    name = {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head", "inner": "n_inner", "context": "n_positions", "eps": "layer_norm_epsilon", "act": "activation_function"} if learned else {
        "hidden": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads", "inner": "intermediate_size", "context": "max_position_embeddings",
        "eps": "rms_norm_eps", "act": "hidden_activation" if "hidden_activation" in v else "hidden_act"}
    hidden, layers, heads = v.size(name["hidden"], most=1 << 20), v.size(name["layers"], most=4096), v.size(name["heads"], most=1 << 16)
    head_dim = _head_dim(v, "head_dim", hidden, heads)
    inner = v.size(name["inner"], 4 * hidden if learned else 11008, most=1 << 24)
    act = v.get(name["act"], str, "gelu_new" if learned else "silu")
    if act not in _ACTIVATIONS:
        raise ValueError(f"llm: config.json: the activation is not available; got '{act}'; expected one of {', '.join(_ACTIVATIONS)}")
    base, scaling, local = (10000.0, {}, None) if learned else _rope_of(v, arch)
    window = v.size("sliding_window", None)
    if not v.get("use_sliding_window", bool, True):
        window = None
    types = v.get("layer_types", list, None)
    if types is not None and len(types) != layers:
        raise ValueError(f"llm: config.json: 'layer_types' has the wrong length; got {len(types)}; expected {layers}")
    windowed = tuple(bool(window) and t == "sliding_attention" for t in types) if types else _windows(arch, layers, window, v.get("sliding_window_pattern", int, None))
    partial = v.get("partial_rotary_factor", float, 1.0)
    if not 0 < partial <= 1:
        raise ValueError(f"llm: config.json: 'partial_rotary_factor' is out of range; got {partial}; expected 0 < factor <= 1")
    caps = arch.caps or (None, None)
    scalar = v.get("query_pre_attn_scalar", float, float(head_dim))
    if not 0 < scalar < math.inf:
        raise ValueError(f"llm: config.json: 'query_pre_attn_scalar' is out of range; got {scalar}; expected a positive number")
    return _checked(Config(
        arch, layers, hidden, heads, v.size("num_key_value_heads", heads, most=1 << 16), head_dim, inner, v.size("vocab_size"),
        v.size(name["context"]), v.get(name["eps"], float, 1e-5 if learned else 1e-6), _ACTIVATIONS[act], base, 0 if learned else int(head_dim * partial), scaling, local, window, windowed,
        v.get("attn_logit_softcapping", float, caps[0]) if arch.caps else None, v.get("final_logit_softcapping", float, caps[1]), scalar ** -0.5,
        math.sqrt(hidden) if arch.scaled_embedding else 1.0, arch.qkv_bias or v.get("attention_bias", bool, False), arch.bias, v.get("mlp_bias", bool, False), _experts_of_hf(v, arch, layers, inner),
        v.get("tie_word_embeddings", bool, None)), "config.json")


def _stacked(parts):
    """The matrices of all experts in one tensor (experts, outputs, inputs), by name. parts: {name: {number: matrix}}. ValueError if one is missing or has another shape."""
    for name, matrices in parts.items():
        numbers, shapes = sorted(matrices), {tuple(t.shape) for t in matrices.values()}
        if numbers != list(range(len(numbers))) or len(shapes) != 1:
            raise ValueError(f"llm: the experts do not fit each other; got numbers {numbers[:8]} … {numbers[-1]} with shapes {sorted(shapes)} for {name}; expected one matrix for each, of one shape")
        kinds = {t.type if isinstance(t, PackedWeight) else None for t in matrices.values()}
        if len(kinds) > 1:  # some of them could not stay in blocks
            matrices = {i: t.decoded() if isinstance(t, PackedWeight) else t for i, t in matrices.items()}
        together = PackedWeight.stack if len(kinds) == 1 and None not in kinds else _C.stack
        yield name, together([matrices.pop(i) for i in numbers])


class GgufNames:
    """Collects tensors with Hugging Face's names under those of GGUF. Names that are not of this decoder are left out. part(name, tensor): what is kept of a tensor; of an
    expert's matrix, before it is one of a stack."""

    def __init__(self, arch, part=lambda name, tensor: tensor):
        self._arch, self._part, self._renamed, self._experts = arch, part, {}, {}

    def add(self, tensors):
        arch = self._arch
        for name, tensor in tensors.items():
            base, _, kind = (text_name(name) or "").rpartition(".")
            if arch.hf == "gpt2" and not base.startswith(("transformer.", "lm_head")):
                base = "transformer." + base
            weight, new, number = _layers.gguf_name(base, arch) or (None, None, None)
            if weight is None or kind not in ("weight", "bias"):
                continue
            if number is not None:
                if kind == "weight":
                    self._experts.setdefault(f"{new}.weight", {})[number] = self._part(f"{new}.weight", tensor)
                continue
            if arch.transposed and tensor.dim() == 2 and weight.part != "model":
                tensor = tensor.t().contiguous()
            if arch.unit_norms and weight.kind == _layers.NORM:
                tensor = tensor.float() + 1
            self._renamed[f"{new}.{kind}"] = self._part(f"{new}.{kind}", tensor)

    def finish(self):
        """The tensors."""
        self._renamed.update(_stacked(self._experts))
        return self._renamed


def gguf_names(tensors, arch):
    """The tensors of one dict, by GgufNames."""
    names = GgufNames(arch)
    names.add(tensors)
    return names.finish()
