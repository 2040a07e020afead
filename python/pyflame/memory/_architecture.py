"""The sizes of a model from its files: config.json, the header of a GGUF file, the headers of weights."""
import dataclasses
import json
import os
import shutil
import subprocess
import sys

from .._model_packages import model_in

program = None  # the path of the pyflame program, if it started this process


@dataclasses.dataclass
class Architecture:
    """A transformer's sizes. parameters and stored_bytes are those of the files; None: there are no weights, and they are counted from the sizes."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context: int
    gated: bool = True
    tied: bool = False
    experts: int = 1
    experts_used: int = 1
    parameters: int = None
    stored_bytes: int = None
    tensors: list = None  # of a GGUF file, or of a folder with 8-bit floats: dicts with a name, dtype, shape and bytes


@dataclasses.dataclass
class Weights:
    """Files of weights of which no more is known than their size."""

    name: str
    parameters: int
    stored_bytes: int


# Families whose feed-forward layer has two matrices; those of the others have a third one, the gate.
_UNGATED = {"gpt2", "gptj", "gpt_neo", "gpt_neox", "gpt_bigcode", "opt", "bloom", "falcon", "phi", "mpt", "starcoder2", "bert", "roberta", "distilbert", "electra", "vit", "stablelm_epoch"}
_TIED = {"gpt2", "gpt_bigcode", "bert", "roberta", "distilbert", "gemma", "gemma2", "opt", "bloom", "falcon"}


def _first(values, *names, default=None):
    for name in names:
        if values.get(name) is not None:
            return values[name]
    return default


def of_config(values, name):
    """The sizes in the dict of a config.json. ValueError if it does not describe a transformer."""
    from ..llm._architectures import text_document

    values = text_document(values)
    if isinstance(values.get("text_config"), dict):  # a model of text and images; its text part is the large one
        values = {**values["text_config"], "model_type": values["text_config"].get("model_type", values.get("model_type"))}
    found = {
        "layers": _first(values, "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
        "hidden": _first(values, "hidden_size", "n_embd", "d_model", "dim"),
        "heads": _first(values, "num_attention_heads", "n_head", "num_heads", "n_heads"),
        "vocab": _first(values, "vocab_size", default=0),
    }
    _check(found, name)
    kind, hidden, heads = values.get("model_type"), found["hidden"], found["heads"]
    grouped = 1 if values.get("multi_query") else heads
    gated = kind not in _UNGATED
    return Architecture(
        name, **found, kv_heads=_first(values, "num_key_value_heads", "num_kv_heads", "n_head_kv", default=grouped),
        head_dim=_first(values, "head_dim", default=hidden // heads), gated=gated,
        intermediate=_first(values, "intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim", default=4 * hidden),
        context=_first(values, "max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx", default=2048),
        tied=bool(values.get("tie_word_embeddings", kind in _TIED)), experts=_first(values, "num_local_experts", "num_experts", "n_routed_experts", default=1),
        experts_used=_first(values, "num_experts_per_tok", "num_experts_per_token", default=1),
    )  # fmt: skip


def _check(found, name):
    wrong = [k for k, v in found.items() if not isinstance(v, int) or isinstance(v, bool) or v < (0 if k == "vocab" else 1)]
    if wrong:
        raise ValueError(f"fit: {name} does not describe a transformer; got no whole number for {', '.join(wrong)}; hint: FILE.py:function plans any model")


def of_gguf(metadata, name):
    """The sizes in the metadata of a GGUF file; None if it is not of a transformer."""
    kind = metadata.get("general.architecture")
    get = lambda key, default=None: metadata.get(f"{kind}.{key}", default)  # noqa: E731
    found = {"layers": get("block_count"), "hidden": get("embedding_length"), "heads": get("attention.head_count")}
    if any(not isinstance(v, int) for v in found.values()):
        return None
    tokens = metadata.get("tokenizer.ggml.tokens")
    return Architecture(
        name, **found, vocab=get("vocab_size") or (len(tokens) if isinstance(tokens, list) else 0), kv_heads=get("attention.head_count_kv", found["heads"]),
        head_dim=get("attention.key_length", found["hidden"] // found["heads"]), intermediate=get("feed_forward_length", 4 * found["hidden"]),
        context=get("context_length", 2048), gated=kind not in _UNGATED, experts=get("expert_count") or 1, experts_used=get("expert_used_count") or 1,
    )  # fmt: skip


def _program():
    """The pyflame program, which reads the headers of all formats of weights."""
    beside = [os.path.dirname(sys.executable), os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin")]
    found = program or next((p for p in (shutil.which("pyflame", path=folder) for folder in beside) if p), None) or shutil.which("pyflame")
    if not found:
        raise FileNotFoundError("fit: the program that reads files of weights was not found; expected pyflame beside Python or on PATH")
    return found


def _document(path):
    """What `pyflame inspect-model` says of a file or folder. ValueError with its message."""
    done = subprocess.run([_program(), "inspect-model", "--json", path], capture_output=True, text=True, encoding="utf-8", errors="replace")
    if done.returncode:
        raise ValueError("fit: " + done.stderr.strip().removeprefix("pyflame: ").removeprefix("inspect-model: "))
    return json.loads(done.stdout)


def _weights(path):
    doc = _document(path)
    return Weights(os.path.basename(os.path.abspath(path)), int(doc["totals"]["elements"]), int(doc["totals"]["bytes"])), doc


def _config(path):
    with open(path, encoding="utf-8") as f:
        try:
            values = json.load(f)
        except ValueError as e:
            raise ValueError(f"fit: '{path}' is not JSON ({e})") from None
    if not isinstance(values, dict):
        raise ValueError(f"fit: '{path}' is not a config.json; got {type(values).__name__}; expected an object")
    return of_config(values, os.path.basename(os.path.dirname(os.path.abspath(path))) or path)


def _of_8_bit_floats(folder, tensors):
    """The tensors of a folder whose weights pf.llm.load keeps as 8-bit floats, with the names of its types. Scales are missing: those of weights lie in their rows, and others are not
    kept. None for any other folder."""
    from ..llm import _folder_scaled

    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        quantized = json.load(f).get("quantization_config")
    try:
        form = _folder_scaled.form_of(quantized, folder)
    except (ValueError, NotImplementedError):
        return None  # pf.llm.load refuses it; its weights count as stored
    if form is None or form.kind != "fp8":
        return None
    kinds = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
    kept = [t for t in tensors if not t["name"].endswith(("_scale", "_scale_inv"))]
    return [{**t, "dtype": _folder_scaled.type_name(form, kinds[t["dtype"]], t["shape"][-1])} if t["dtype"] in kinds else t for t in kept]


def _has_weights(folder):
    return any(n.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")) for n in os.listdir(folder))


def read(path):
    """The Architecture of a folder with config.json, of a config.json or of a GGUF file, or of an installed package with one of these; Weights of other files. OSError, ValueError."""
    given = path
    path = model_in("fit", given)
    if path is None or not os.path.exists(path):
        raise FileNotFoundError(f"fit: there is no such file, folder or installed package; got '{given}'; expected weights, a folder with config.json, a package with a model, or FILE.py:function")
    if path.endswith(".py"):
        raise ValueError(f"fit: a program is named with a function of it; got '{path}'; expected '{path}:function', which returns a model")
    if path.endswith(".json") and not path.endswith(".index.json"):
        return _config(path)
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    config = os.path.join(folder, "config.json")
    whole = os.path.isdir(path) and os.path.exists(config)
    if whole and not _has_weights(path):
        return _config(config)
    weights, doc = _weights(path)
    found = _config(config) if whole else None
    if found is None and doc["format"].startswith("GGUF"):
        found = of_gguf(doc["metadata"], weights.name)
        if found is not None:
            found.tensors = doc["tensors"]
    elif found is not None:
        found.tensors = _of_8_bit_floats(path, doc["tensors"])
    if found is None:
        return weights
    found.parameters, found.stored_bytes = weights.parameters, weights.stored_bytes
    return found
