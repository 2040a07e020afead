"""BERT encoders in GGUF files (general.architecture 'bert'): the names of their tensors, and the model of a file."""
from dataclasses import dataclass

from .. import _C, nn
from . import _loading, _tokenizer_gguf
from ._errors import Values
from ._packed import PackedWeight
from .language_model import _dtype_beside_blocks, _read_gguf

POOLINGS = {1: "MEAN", 2: "CLS", 3: "LAST"}  # bert.pooling_type; 0 says nothing
_TOP = {"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings", "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm"}
_LAYER = {
    "attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value", "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
}  # fmt: skip
_GGUF_TOP, _GGUF_LAYER = {v: k for k, v in _TOP.items()}, {v: k for k, v in _LAYER.items()}


def hf_name(name):
    """The name that a tensor of a GGUF file has in BertModel, or None."""
    base, _, kind = name.rpartition(".")
    new, parts = _TOP.get(base), base.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[1].isdigit() and parts[2] in _LAYER:
        new = f"encoder.layer.{parts[1]}.{_LAYER[parts[2]]}"
    return f"{new}.{kind}" if new and kind in ("weight", "bias") else None


def gguf_name(name):
    """The name that a tensor of BertModel has in a GGUF file, or None."""
    base, _, kind = name.rpartition(".")
    new, parts = _GGUF_TOP.get(base), base.split(".", 3)
    if len(parts) == 4 and parts[:2] == ["encoder", "layer"] and parts[2].isdigit() and parts[3] in _GGUF_LAYER:
        new = f"blk.{parts[2]}.{_GGUF_LAYER[parts[3]]}"
    return f"{new}.{kind}" if new and kind in ("weight", "bias") else None


@dataclass
class Encoder:
    """What a file has: the BertModel, the tokenizer or None, the pooling or None, the most tokens of a text, the model's name."""

    model: object
    tokenizer: object
    pooling: str
    context: int
    name: str


def _config(v, tensors):
    from ..models import BertConfig

    def rows(name):
        t = tensors.get(name)
        if t is None or len(t.shape) != 2:
            raise ValueError(f"llm: the file has no matrix '{name}'; got {'none' if t is None else tuple(t.shape)}; expected one, as files of encoders have")
        return t.shape[0]

    def check(what, got, expected):
        if got != expected:
            raise ValueError(f"llm: {v.where}: {what} does not fit the tensors; got {got}; expected {expected}")

    hidden, heads = v.size("bert.embedding_length", most=1 << 20), v.size("bert.attention.head_count", most=1 << 16)
    if hidden % heads:
        raise ValueError(f"llm: {v.where}: the heads do not fit; got {heads} heads and embedding_length {hidden}; expected a divisor")
    # What the model takes of memory is what the file has: a few bytes of metadata cannot ask for more.
    vocabulary, layers, inner = rows("token_embd.weight"), v.size("bert.block_count", most=4096), v.size("bert.feed_forward_length", most=1 << 24)
    check("bert.embedding_length", hidden, tensors["token_embd.weight"].shape[1])
    check("bert.block_count", layers, len({name.split(".")[1] for name in tensors if name.startswith("blk.")}))
    for i in range(layers):
        check("bert.feed_forward_length", inner, rows(f"blk.{i}.ffn_up.weight"))
    return BertConfig(vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                      intermediate_size=inner, max_position_embeddings=rows("position_embd.weight"), type_vocab_size=rows("token_types.weight"),
                      layer_norm_eps=v.get("bert.attention.layer_norm_epsilon", float, 1e-12))  # fmt: skip


class PackedLinear(nn.Module):
    """nn.Linear with a PackedWeight."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(_C.empty(weight.shape[0], device=_C.get_device()))
        weight.tile()

    def forward(self, x):
        return self.weight.linear(x, self.bias)


class PackedEmbedding(nn.Module):
    """nn.Embedding with a PackedWeight, whose rows become `dtype`."""

    def __init__(self, weight, dtype):
        super().__init__()
        self.weight, self._dtype = weight, dtype

    def forward(self, ids):
        return self.weight.rows(ids.reshape(-1)).to(self._dtype).reshape(*ids.shape, -1)


def _model(config, tensors, dtype, device):
    """The BertModel of a file's tensors, on the device. Matrices that are PackedWeight stay so, where they are multiplied, and so do the words' rows."""
    from ..models import BertModel

    device, numbers = _C.get_device() if device is None else device, dtype or _C.float32
    with _C.device("null"):  # no memory for numbers that those of the file replace
        model, weights = BertModel(config), {}
        for name, t in ((hf_name(n), t) for n, t in tensors.items()):
            place, _, leaf = name.rpartition(".")[0].rpartition(".")
            if isinstance(t, PackedWeight) and not t.as_floats and name.endswith(".weight"):
                parent = model.get_submodule(place)
                layer = getattr(parent, leaf)
                if tuple(t.shape) != tuple(layer.weight.shape):
                    raise ValueError(f"llm: the weights do not fit the architecture 'bert'; got {name} {tuple(t.shape)}; expected {tuple(layer.weight.shape)}")
                if isinstance(layer, nn.Linear):
                    setattr(parent, leaf, PackedLinear(t.to(device)))
                    continue
                if leaf == "word_embeddings":
                    setattr(parent, leaf, PackedEmbedding(t.to(device), numbers))
                    continue
            weights[name] = t.decoded(numbers) if isinstance(t, PackedWeight) else t.to(numbers)
    # Files have no pooler: embeddings do not use it.
    weights |= {n: _C.zeros(*t.shape, dtype=numbers, device=device) for n, t in model.state_dict().items() if n.startswith("pooler.")}
    if missing := [n for n in model.state_dict() if n not in weights]:
        raise ValueError(f"llm: tensors of the architecture 'bert' are missing; got no {', '.join(missing[:8])} ({len(missing)} in all); expected a whole file")
    model.load_state_dict({n: t.to(device) for n, t in weights.items()}, assign=True)
    return model.eval()


def read(path, dtype=None, device=None):
    """The Encoder of a GGUF file. dtype, device: as of pf.llm.load. OSError; ValueError for a file that is damaged, or whose tensors or metadata are not those of an encoder."""
    with _loading.file(path):
        tensors, metadata = _read_gguf(path, dtype)
    v = Values(metadata, "the file's metadata")
    if v.get("bert.attention.causal", bool, False):
        raise ValueError("embed: BERT as a decoder is not available; got bert.attention.causal = true; expected an encoder")
    pooling = v.get("bert.pooling_type", int, 0)
    if pooling != 0 and pooling not in POOLINGS:
        raise ValueError(f"embed: the model's pooling is not available; got bert.pooling_type {pooling}; expected one of {', '.join(f'{k} ({n})' for k, n in POOLINGS.items())}")
    config = _config(v, tensors)
    if unknown := [n for n in tensors if hf_name(n) is None]:
        raise ValueError(f"llm: the weights do not fit the architecture 'bert'; got {', '.join(unknown[:8])} ({len(unknown)} in all), which it does not use; expected the tensors of an encoder")
    model = _model(config, tensors, _dtype_beside_blocks(tensors, dtype, device), device)
    tokenizer = _tokenizer_gguf.from_gguf(metadata) if "tokenizer.ggml.model" in v else None
    context = min(v.size("bert.context_length", config.max_position_embeddings), config.max_position_embeddings)
    return Encoder(model, tokenizer, POOLINGS.get(pooling), context, v.get("general.name", str, ""))
