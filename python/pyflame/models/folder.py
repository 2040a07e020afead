"""Models from folders in Hugging Face's layout: config.json beside the weights."""
import json
import os

from ..io import load


def _gpt2(config, tensors):
    from .gpt2 import GPT2Config, GPT2LMHeadModel

    # Files of the model without its head have no prefix; buffers of masks are not weights.
    tensors = {n if n.startswith(("transformer.", "lm_head.")) else "transformer." + n: t for n, t in tensors.items()}
    tensors = {n: t for n, t in tensors.items() if not n.endswith((".attn.bias", ".attn.masked_bias"))}
    if config.get("tie_word_embeddings", True) and "transformer.wte.weight" in tensors:
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    return GPT2LMHeadModel(GPT2Config.from_dict(config)), tensors


def _bert(config, tensors):
    from .bert import BertConfig, BertModel

    tensors = {n[5:] if n.startswith("bert.") else n: t for n, t in tensors.items()}
    # Names before 2019, a buffer that is not a weight, and heads for other tasks.
    tensors = {n.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): t for n, t in tensors.items()}
    kept = {n: t for n, t in tensors.items() if n.startswith(("embeddings.", "encoder.", "pooler.")) and not n.endswith("position_ids")}
    if config.get("is_decoder"):
        raise ValueError("from_folder: BERT as a decoder is not available; got is_decoder = true; expected an encoder")
    model = BertModel(BertConfig.from_dict(config))
    if not any(n.startswith("pooler.") for n in kept):
        kept.update({n: t for n, t in model.state_dict().items() if n.startswith("pooler.")})
    return model, kept


_BUILDERS = {"gpt2": _gpt2, "bert": _bert}


def from_folder(path):
    """The model of a folder with config.json and weights, in evaluation mode: GPT2LMHeadModel for model_type 'gpt2', BertModel for 'bert'.

    OSError; ValueError for another model_type, or if the weights do not fit; all names that are missing or do not fit are listed."""
    config_path = os.path.join(os.fspath(path), "config.json")
    try:
        with open(config_path, encoding="utf-8") as f:
            config = json.load(f)
        kind = config["model_type"]
    except (ValueError, KeyError, TypeError) as e:
        raise ValueError(f"from_folder: '{config_path}' is not the description of a model ({type(e).__name__}: {e})") from None
    if kind not in _BUILDERS:
        raise ValueError(f"from_folder: the model_type is not available; got {kind!r}; expected one of {', '.join(_BUILDERS)}")
    model, tensors = _BUILDERS[kind](config, load(path))
    model.load_state_dict(tensors)
    return model.eval()
