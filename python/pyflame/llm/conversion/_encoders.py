"""GGUF files of encoders: what is written of a folder with a BERT model."""
import unicodedata

from .. import _tokenizer_gguf, _tokenizer_json
from .._architectures import ENCODER
from .._encoder_gguf import POOLINGS, gguf_name
from .._errors import Values
from .._text_parts import SPACE
from ..embedding import _sentence_transformers
from ..language_model import _json
from . import _tokenizers

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
EMBEDDINGS = ("token_embd.weight", "position_embd.weight", "token_types.weight", "token_embd_norm.weight", "token_embd_norm.bias")


def _refused(what, got):
    return ValueError(f"convert: the encoder cannot be converted: {what}; got {got}; expected a BERT model with a WordPiece tokenizer that ignores case and accents")


def tensors(weights):
    """{GGUF's name: Weight} of a folder's tensors. The heads of other tasks, and the pooler, which embeddings do not use, are left out."""
    found = {}
    for name, weight in weights.items():
        name = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if not name.startswith(("embeddings.", "encoder.")) or name.endswith("position_ids"):
            continue
        new = gguf_name(name)
        if new is None:
            raise _refused("a tensor has no counterpart in a GGUF file", f"'{name}'")
        found[new] = weight
    return found


def metadata(folder, document, name):
    """(the metadata without the tokenizer's, notes) of a folder with this config.json."""
    v = Values(document, "config.json")
    if v.get("hidden_act", str, "gelu") != "gelu":
        raise _refused("GGUF has no name for its activation", f"hidden_act {v.get('hidden_act', str)!r}")
    if v.get("is_decoder", bool, False) or v.get("position_embedding_type", str, "absolute") != "absolute":
        raise _refused("it is no encoder with learned positions", f"is_decoder {document.get('is_decoder')}, position_embedding_type {document.get('position_embedding_type')!r}")
    pooling, normalize, most = _sentence_transformers(folder)
    notes = [f"texts may have {v.size('max_position_embeddings', 512)} tokens, not {most} as sentence_bert_config.json says"] if most and most != v.size("max_position_embeddings", 512) else []
    if normalize is False:
        notes.append("readers of GGUF files divide vectors by their length, which the folder does not")
    if document.get("matryoshka_dimensions") or document.get("is_matryoshka"):
        notes.append("GGUF has no place for the sizes of shorter vectors (Matryoshka)")
    values = {
        "context_length": v.size("max_position_embeddings", 512), "embedding_length": v.size("hidden_size", 768), "block_count": v.size("num_hidden_layers", 12), "feed_forward_length": v.size("intermediate_size", 3072),
        "attention.head_count": v.size("num_attention_heads", 12), "attention.layer_norm_epsilon": v.get("layer_norm_eps", float, 1e-12), "attention.causal": False,
        "pooling_type": next((k for k, n in POOLINGS.items() if n == pooling), 0),
    }  # fmt: skip
    return {"general.architecture": ENCODER, "general.name": name, **{f"{ENCODER}.{k}": x for k, x in values.items()}}, notes


def tokenizer(folder, size, types):
    """(the keys tokenizer.*, notes) of a folder's tokenizer.json. size: rows of the embedding; types: kinds of segments."""
    document = _json(folder, "tokenizer.json")
    if document is None:
        return {}, ["the source has no tokenizer.json"]
    own = _tokenizer_json.from_json(document, _json(folder, "tokenizer_config.json"))
    parts, model = own._parts, Values(document["model"], "tokenizer.json: the model")
    if model.get("type", str, "WordPiece") != "WordPiece" or parts.continuing != "##":
        raise _refused("its tokenizer is of another kind", f"{model.get('type', str, 'WordPiece')} with the prefix {parts.continuing!r}")
    if len(parts.prefix) != 1 or len(parts.suffix) != 1:
        raise _refused("it puts other tokens around a text than one before and one behind it", f"the ids {list(parts.prefix)} and {list(parts.suffix)}")
    if len(parts.tokens) > size:
        raise _refused("it has more tokens than the embedding has rows", f"{len(parts.tokens)} tokens and {size} rows")
    special = {a.id: _CONTROL if a.special else _USER_DEFINED for a in parts.added} | {own._parts.model.unknown: _UNKNOWN}

    def written(i, text):
        """Beginnings of words have a sign, and what continues a word has none."""
        return text if i in special else text[2:] if text.startswith("##") and len(text) > 2 else SPACE + text if text else f"[PAD{i}]"

    texts = [*parts.tokens, *[""] * (size - len(parts.tokens))]
    made = {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default", "tokenizer.ggml.token_type_count": types, "tokenizer.ggml.tokens": [written(i, t) for i, t in enumerate(texts)],
        "tokenizer.ggml.token_type": [special.get(i, _NORMAL if t else _UNUSED) for i, t in enumerate(texts)], "tokenizer.ggml.unknown_token_id": parts.model.unknown,
        "tokenizer.ggml.cls_token_id": parts.prefix[0], "tokenizer.ggml.bos_token_id": parts.prefix[0], "tokenizer.ggml.seperator_token_id": parts.suffix[0], "tokenizer.ggml.eos_token_id": parts.suffix[0],
    }  # fmt: skip
    for key, id in (("padding", own.pad_id), ("mask", own.id_of("[MASK]"))):
        if id is not None:
            made[f"tokenizer.ggml.{key}_token_id"] = id
    again = _tokenizer_gguf.from_gguf(made)
    for text in _tokenizers.PROBE:
        for form in (text, unicodedata.normalize("NFD", text)):
            if own.encode(form) != again.encode(form):
                raise _refused("its tokens would be others", f"{again.encode(form)[:12]} in place of {own.encode(form)[:12]} for {form[:40]!r}")
    return made, []
