"""`pf.llm.convert` and `pyflame convert`: language models between GGUF files and Hugging Face folders, and their weights in types of fewer bits.

Tensors stay in the source's file; a few million numbers are in memory at a time. What is wrong with a source is found before anything is written, and the target
is there as a whole or not at all. _blocks.py has the types of numbers, _gguf_file.py the files, _descriptions.py config.json and metadata, _tokenizers.py the tokenizers."""
from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field

import numpy as np

from ... import _C, _foreign_files
from ...io import _umask, _write_atomically
from .. import _architectures, _layers, _tokenizer_model
from ..language_model import _check_gguf, _json, _place, _template_of, load, load_tokenizer
from . import _blocks, _descriptions, _encoders, _gguf_file, _quantized, _tokenizers
from ._weights import Stack, Weight, of_safetensors, write_safetensors

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_AT_ONCE = 1 << 22  # numbers in memory
_IGNORED = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")  # buffers that some folders have among their weights
_KEPT = (*(w.gguf for w in _layers.OF_NAME.values() if w.kind == _layers.SMALL), "token_types")  # matrices that stay float32: small, and every token's way depends on them
TEXT = (
    "The harbour was quiet in the early morning. Two men carried boxes from a small boat to a cart, and a dog followed them back and forth. "
    "When the sun came over the hills, the first shops opened, and the smell of fresh bread filled the street. "
    "A teacher explained to her class that water boils at a lower temperature on a mountain, because there is less air above it to press it down. "
    "After the lesson, one of the children asked how people on high mountains cook their rice, and nobody in the room knew the answer."
)


@dataclass
class ConvertedTensor:
    """A tensor of the target. source, type: the types before and after; relative: the L2 norm of the difference over that of the numbers before; largest: the largest absolute difference."""

    name: str
    layer: str
    source: str
    type: str
    relative: float
    largest: float
    squares: tuple = ()  # the sums that relative is made of: of the difference, of the numbers before


@dataclass
class Conversion:
    """What convert() has done.

    bytes_before, bytes_after: of the files with weights. tensors: a list with name, layer, source and type (types of numbers), relative (L2 norm of the difference over that of
    the numbers before) and largest (absolute difference) for each. perplexity_before, perplexity_after: of `text`, None if it was not asked for. notes: what the target does not say.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    source: str
    target: str
    bytes_before: int
    bytes_after: int
    tensors: list
    perplexity_before: float = None
    perplexity_after: float = None
    notes: list = field(default_factory=list)

    def layers(self) -> dict[str, tuple[float, float, list[str]]]:
        """{layer: (relative L2 error, largest absolute error, types of its tensors)}: 'blk.0' and so on, and the tensors outside of the layers by their names."""
        found = {}
        for t in self.tensors:
            found.setdefault(t.layer, []).append(t)
        return {
            layer: (_relative(sum(t.squares[0] for t in ts), sum(t.squares[1] for t in ts)), max(t.largest for t in ts), sorted({t.type for t in ts if t.type != "F32"} or {"F32"}))
            for layer, ts in sorted(found.items(), key=lambda item: _place_of(item[0]))
        }

    def as_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, numbers and texts; a perplexity that is not finite is None."""
        tensors = [{k: v for k, v in asdict(t).items() if k != "squares"} for t in self.tensors]
        layers = {name: {"relative": r, "largest": m, "types": types} for name, (r, m, types) in self.layers().items()}
        own = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in self.__dict__.items() if k != "tensors"}
        return {**own, "layers": layers, "tensors": tensors}

    def __str__(self):
        rows = [("layer", "types", "relative error", "largest error")]
        rows += [(name, " ".join(types), f"{r:.3g}", f"{m:.3g}") for name, (r, m, types) in self.layers().items()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        lines.append(f"bytes of weights: {self.bytes_before} -> {self.bytes_after} ({self.bytes_after / self.bytes_before:.1%})")
        if self.perplexity_before is not None:
            lines.append(f"perplexity: {self.perplexity_before:.4f} -> {self.perplexity_after:.4f}")
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])


def _place_of(layer):
    """Where a layer stands in a report: embeddings, layers by their numbers, what comes after them."""
    name, _, number = layer.rpartition(".")
    return int(number) if name == "blk" else -1 if layer.endswith(("embd", "embed_tokens", "wte", "wpe", "rope_freqs")) else 1 << 20


def _relative(differences, before):
    return math.sqrt(differences / before) if before else 0.0 if differences == 0 else math.inf


@dataclass
class _Plan:
    """What is written: tensors {name: (Weight or Factors, type)}, and the documents of the target."""

    tensors: dict
    metadata: dict = None  # of a GGUF file
    documents: dict = None  # of a folder: {name: JSON}
    notes: list = field(default_factory=list)
    copies: list = field(default_factory=list)  # files that a folder gets as they are


def _check_layers(names, layers):
    """ValueError unless all layers are there, with the same tensors."""
    found = {}
    for name in names:
        parts = name.split(".", 2)
        if parts[0] == "blk" and len(parts) == 3:
            found.setdefault(parts[1], set()).add(parts[2])
    every = set().union(*found.values())
    missing = [f"blk.{i}.{n}" for i in range(layers) for n in sorted(every - found.get(str(i), set()))]
    more = sorted(set(found) - {str(i) for i in range(layers)})
    if missing or more or not every:
        got = f"no {', '.join(missing[:4])}" if missing else f"the layers {', '.join(more[:4])}, too"
        raise ValueError(f"convert: the weights do not fit the model's description; got {got}; expected {layers} layers with the same tensors")


class _AnyFolder:
    """A source in Hugging Face's layout, with weights of which bytes are those of the files."""

    def __init__(self, path, document):
        self.path, self.document, self.bytes, self.weights = path, document, 0, {}
        self.is_quantized = document.get("quantization_config") is not None

    def _load(self, path):
        self._check_file(path)
        return of_safetensors(path)

    def _check_file(self, path):
        if not path.endswith(".safetensors"):
            raise ValueError(f"convert: the folder's weights are in a file of another kind; got '{path}'; expected safetensors; hint: pf.save(pf.load(PATH), 'model.safetensors') makes such a file")
        self.bytes += os.path.getsize(path)


class _EncoderFolder(_AnyFolder):
    """A folder with a BERT model."""

    def __init__(self, path, document):
        super().__init__(path, document)
        if self.is_quantized:
            raise NotImplementedError(f"convert: the folder has quantized weights, which are not available for encoders; got {document['quantization_config']!r:.80}; expected float weights")
        self.weights = _encoders.tensors(_foreign_files.load_folder(path, self._load))
        for name, w in self.weights.items():
            if not isinstance(w, Weight):
                raise ValueError(f"convert: a tensor has a dtype that is not available; got {w} of '{name}'; expected float32, float16 or bfloat16")

    def to_gguf(self, type):
        metadata, notes = _encoders.metadata(self.path, self.document, os.path.basename(os.path.abspath(self.path)))
        missing = [n for n in _encoders.EMBEDDINGS if n not in self.weights]
        if missing:
            raise ValueError(f"convert: the weights do not fit the model's description; got no {', '.join(missing)}; expected the tensors of BERT")
        _check_layers(self.weights, metadata["bert.block_count"])
        tokenizer, more = _encoders.tokenizer(self.path, self.weights["token_embd.weight"].shape[0], self.weights["token_types.weight"].shape[0])
        plan = _Plan({k: (w, _matrix_type(k, w, type)) for k, w in self.weights.items()}, {**metadata, **tokenizer}, notes=[*notes, *more])
        plan.metadata |= {"general.file_type": _file_type(plan.tensors), "general.quantization_version": 2}
        return plan


class _Folder(_AnyFolder):
    """A folder with a decoder."""

    def __init__(self, path, document):
        super().__init__(path, document)
        self.config = _architectures.from_hf(self.document)
        quantized = self.document.get("quantization_config")
        if self.is_quantized and self.config.architecture.transposed:
            raise NotImplementedError(f"convert: the folder has quantized weights, which are not available for this architecture; got {self.config.architecture.hf!r}; expected float weights")
        found = _quantized.read(path, quantized, self._check_file) if self.is_quantized else _foreign_files.load_folder(path, self._load)
        for name, w in found.items():
            if not name.endswith(_IGNORED):
                self.weights[name] = w

    def to_folder(self, type):
        """The same folder with float weights, where they are of few bits."""
        _check_layers(self.renamed(), self.config.layers)
        tensors = {name: (w, type or (w.type if w.type in _blocks.PLAIN else "F32")) for name, w in self.weights.items()}
        document = {k: v for k, v in self.document.items() if k not in ("quantization_config", "dtype")}
        document["torch_dtype"] = _dtype_name(tensors)
        copies = [n for n in sorted(os.listdir(self.path)) if n.endswith((".json", ".jinja", ".txt", ".model")) and n not in ("config.json", "quantize_config.json", "quant_config.json")
                  and not n.endswith(".index.json") and os.path.isfile(os.path.join(self.path, n))]  # fmt: skip
        return _Plan(tensors, documents={"config.json": document}, copies=[os.path.join(self.path, n) for n in copies])

    def renamed(self):
        """{GGUF's name: Weight}, with the rows of q and k in the GGUF file's order."""
        c, arch, renamed, stacks = self.config, self.config.architecture, {}, {}
        pairs = _descriptions.gguf_architecture(arch).interleaved
        for name, w in self.weights.items():
            if (name := _architectures.text_name(name)) is None:
                continue
            if not isinstance(w, Weight):
                raise ValueError(f"convert: a tensor has a dtype that is not available; got {w} of '{name}'; expected float32, float16 or bfloat16")
            if arch.sparse and name.endswith(".weight") and (stack := _layers.gguf_name(name.removesuffix(".weight"), arch)) and stack[2] is not None:
                stacks.setdefault(stack[1] + ".weight", {})[stack[2]] = w
                continue
            new = _architectures.gguf_names({name: w}, arch)
            if len(new) != 1:
                raise ValueError(f"convert: a tensor has no counterpart in a GGUF file; got '{name}'; expected the tensors of the architecture '{arch.hf}'")
            (new, w), = new.items()
            if new == "output.weight" and c.tied:
                continue
            heads = _layers.heads_of(new, c)
            if pairs and heads:
                if w.shape[0] != heads * c.head_dim:
                    raise ValueError(f"convert: a tensor has another shape; got {w.shape} of '{name}'; expected {heads * c.head_dim} rows")
                if len(w.shape) == 1:
                    w = _OneRow(_descriptions.paired(Weight.of_bytes(w.raw(0, 1).reshape(-1), w.type, (w.shape[0], 1)), heads, c.head_dim))
                else:
                    w = _descriptions.paired(w, heads, c.head_dim)
            renamed[new] = w.reshaped(w.columns) if new.endswith("ffn_gate_inp_shexp.weight") else w
        for name, parts in stacks.items():
            if sorted(parts) != list(range(c.experts.count)) or len({(p.shape, p.type) for p in parts.values()}) != 1:
                raise ValueError(f"convert: the experts do not fit each other; got {len(parts)} matrices for '{name}'; expected {c.experts.count} of one shape and type")
            renamed[name] = Stack([parts[i] for i in range(len(parts))])
        if "token_embd.weight" not in renamed:
            raise ValueError(f"convert: the folder has no embedding; got {', '.join(list(self.weights)[:5])}; expected the tensors of the architecture '{arch.hf}'")
        return renamed

    def to_gguf(self, type):
        tensors, name = self.renamed(), os.path.basename(os.path.abspath(self.path))
        metadata, factors = _descriptions.to_metadata(self.config, _architectures.text_document(self.document), name)
        _descriptions.check_same(self.config, _architectures.from_gguf(metadata, {**tensors, **factors}), "GGUF metadata")
        _check_layers(tensors, self.config.layers)
        tokenizer, notes = self._tokenizer()
        if self.config.window and metadata["general.architecture"] == "llama":
            notes = [*notes, f"llama.cpp does not apply the sliding window of {self.config.window} tokens, which PyFlame reads"]
        plan = _Plan({**{k: (f, "F32") for k, f in factors.items()}, **{k: (w, _matrix_type(k, w, type)) for k, w in tensors.items()}}, {**metadata, **tokenizer}, notes=notes)
        plan.metadata |= {"general.file_type": _file_type(plan.tensors), "general.quantization_version": 2}
        return plan

    def _tokenizer(self):
        document, config = _json(self.path, "tokenizer.json"), _json(self.path, "tokenizer_config.json")
        own = next((p for n in _tokenizer_model.NAMES if os.path.exists(p := os.path.join(self.path, n))), None)  # SentencePiece's
        if document is None and own is None:
            others = [n for n in ("vocab.json", "tekken.json") if os.path.exists(os.path.join(self.path, n))]
            if others:
                raise ValueError(f"convert: the tokenizer cannot be converted; got {', '.join(others)} without tokenizer.json; expected tokenizer.json; hint: AutoTokenizer.from_pretrained(…).save_pretrained(…) writes one")
            return {}, ["the source has no tokenizer"]
        ends = (_json(self.path, "generation_config.json") or {}).get("eos_token_id", self.document.get("eos_token_id"))
        ends = [i for i in (ends if isinstance(ends, list) else [ends]) if isinstance(i, int) and not isinstance(i, bool)]
        rest = self.config.vocab, _template_of(self.path, config), ends
        if document is None:
            return _tokenizers.of_sentence_piece(own, config, _json(self.path, "added_tokens.json"), *rest)
        return _tokenizers.to_metadata(document, config, *rest)


class _OneRow(Weight):
    """A vector whose numbers are in another order."""

    def __init__(self, column):
        self._column = column
        super().__init__(column.raw(0, 0), column.type, (column.shape[0],), plus=column.plus)

    def raw(self, begin, end):
        return self._column.raw(0, self._column.height).reshape(1, -1)[begin:end]


class _File:
    """A source in a GGUF file."""

    def __init__(self, path):
        self.path, self.bytes = path, os.path.getsize(path)
        self.metadata, self.raw, self.weights = _gguf_file.read(path)
        if self.metadata.get("split.count", 0) not in (0, 1):
            raise ValueError(f"convert: the file is a part of a model; got {self.metadata['split.count']} parts; expected one file")
        for name, w in self.weights.items():
            if not isinstance(w, Weight):
                raise ValueError(f"convert: a tensor has a type that is not available; got number {w} of '{name}'; expected one of {', '.join(_blocks.TYPES)}")

    def to_gguf(self, type):
        if type is None:
            raise ValueError(f"convert: source and target are GGUF files; got no type; expected one of {', '.join(_blocks.WRITTEN)}")
        tensors = {k: (w, _matrix_type(k, w, type) if w.height > 1 else w.type) for k, w in self.weights.items()}
        return _Plan(tensors, {**self.raw, "general.alignment": _gguf_file.ALIGNMENT, "general.file_type": _file_type(tensors), "general.quantization_version": 2})

    def to_folder(self, type):
        config = _architectures.from_gguf(self.metadata, {k: _descriptions.Factors(w.numbers()) if k in _descriptions.FACTORS else w for k, w in self.weights.items()})
        arch, tensors = config.architecture, {}
        document = _descriptions.to_document(config, self.metadata, self.weights)
        written = _architectures.from_hf(document)
        _descriptions.check_same(config, written, "config.json")
        _check_layers(self.weights, config.layers)
        for name, w in self.weights.items():
            if name in _descriptions.FACTORS:
                continue
            new = _layers.hf_name(name, written.architecture)
            if new is None:
                raise ValueError(f"convert: a tensor has no counterpart in a folder; got '{name}'; expected the tensors of the architecture '{arch.gguf}'")
            if "{}" in new:
                tensors |= {new.format(i): (w.part(i), type or (w.type if w.type in _blocks.PLAIN else "F32")) for i in range(w.shape[0])}
                continue
            heads = _layers.heads_of(name, config)
            if arch.interleaved and heads:
                if w.shape[0] != heads * config.head_dim:
                    raise ValueError(f"convert: a tensor has another shape; got {w.shape} of '{name}'; expected {heads * config.head_dim} rows")
                if len(w.shape) == 1:
                    w = _OneRow(_descriptions.unpaired(Weight.of_bytes(w.raw(0, 1).reshape(-1), w.type, (w.shape[0], 1)), heads, config.head_dim))
                else:
                    w = _descriptions.unpaired(w, heads, config.head_dim)
            if arch.transposed and w.dim() == 2 and name.startswith("blk."):
                w = _Transposed(w)
            if arch.unit_norms and name.endswith("_norm.weight"):
                w = w + -1
            if name.endswith("ffn_gate_inp_shexp.weight"):
                w = w.reshaped(1, w.columns)
            tensors[new] = w, type or (w.type if w.type in _blocks.PLAIN else "F32")
        document["torch_dtype"] = _dtype_name(tensors)
        documents, notes = {"config.json": document}, []
        if "tokenizer.ggml.model" in self.metadata:
            documents["tokenizer.json"], documents["tokenizer_config.json"] = _tokenizers.to_documents(self.metadata)
            ids = {k: self.metadata.get(f"tokenizer.ggml.{k}_token_id") for k in ("bos", "eos", "eot", "eom")}
            ends = [ids[k] for k in ("eos", "eot", "eom") if ids[k] is not None]
            documents["generation_config.json"] = {**({"bos_token_id": ids["bos"]} if ids["bos"] is not None else {}), **({"eos_token_id": ends} if ends else {})}
        else:
            notes.append("the source has no tokenizer")
        return _Plan(tensors, documents=documents, notes=notes)


def _dtype_name(tensors):
    """torch_dtype of config.json: that of most matrices."""
    most = max((t for _, t in tensors.values()), key=[t for w, t in tensors.values() if w.height > 1].count)
    return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[most]


class _Transposed(Weight):
    """The transposed matrix of a Weight whose rows may be in blocks. Its rows are read from all of the other's, which is in memory meanwhile."""

    def __init__(self, weight):
        super().__init__(weight.raw(0, 0), weight.type, weight.shape[::-1], transposed=True)
        self._weight, self._numbers = weight, None

    def rows(self, begin, end):
        if begin == 0:
            self._numbers = np.ascontiguousarray(self._weight.numbers().T)
        rows = self._numbers[begin:end]
        if end >= self.height:
            self._numbers = None
        return rows


def _matrix_type(name, weight, type):
    """The type of a tensor in a GGUF file: vectors are float32, matrices have the type that was asked for, if whole blocks fit into their rows; otherwise Q8_0, or else F16."""
    if len(weight.shape) < 2 or name.rpartition(".")[0].endswith((*_KEPT, "_norm")) or name in _descriptions.FACTORS:
        return "F32"
    for candidate in (type or weight.type, "Q8_0", "F16"):
        if weight.columns % _blocks.TYPES[candidate].elements == 0:
            return candidate


def _file_type(tensors):
    """general.file_type: that of the type that most matrices have."""
    types = [t for w, t in tensors.values() if getattr(w, "height", 1) > 1] or ["F32"]
    return _blocks.TYPES[max(types, key=types.count)].file


def _write_tensor(file, name, layer, weight, type):
    """Writes a tensor and returns its ConvertedTensor."""
    if isinstance(weight, _descriptions.Factors):
        file.write(weight.values.astype("<f4").tobytes())
        return ConvertedTensor(name, layer, "F32", type, 0.0, 0.0, (0.0, float(np.square(weight.values, dtype=np.float64).sum())))
    same, differences, before, largest = weight.type == type and weight.as_is, 0.0, 0.0, 0.0
    step = max(1, _AT_ONCE // weight.columns)
    for begin in range(0, weight.height, step):
        end = min(begin + step, weight.height)
        numbers = weight.rows(begin, end)
        if same:
            packed = np.ascontiguousarray(weight.raw(begin, end))
        else:
            try:
                packed = _blocks.encode(numbers, type)
            except (ValueError, OverflowError) as e:
                raise ValueError(f"convert: the tensor '{name}' cannot be written as {type}; got {e}; expected finite numbers in the range of the type") from None
        file.write(packed.data)
        if not same or weight.rounds:
            difference = np.abs(_blocks.decode(packed, type) - numbers)
            differences += float(np.square(difference, dtype=np.float64).sum())
            largest = max(largest, float(difference.max()))
        before += float(np.square(numbers, dtype=np.float64).sum())
    return ConvertedTensor(name, layer, weight.source, type, _relative(differences, before), largest, (differences, before))


def _layer(name):
    parts = name.split(".")
    if parts[0] == "blk":
        return ".".join(parts[:2])
    return f"blk.{parts[2]}" if len(parts) > 3 and parts[1] in ("layers", "h") else name.rpartition(".")[0]


def _written(plan, target, progress):
    """Writes a plan. Returns the list of ConvertedTensor."""
    done = []

    def write(file, name):
        if progress:
            progress(len(done), len(plan.tensors), name)
        weight, type = plan.tensors[name]
        done.append(_write_tensor(file, name, _layer(name), weight, type))

    entries = [(name, type, w.shape) for name, (w, type) in plan.tensors.items()]
    if plan.metadata is not None:
        _write_atomically(target, lambda file: _gguf_file.write(file, plan.metadata, entries, write), "convert")
        return done
    parent, name = os.path.split(os.path.abspath(target))
    folder = tempfile.mkdtemp(dir=parent, prefix=f".{name}.")
    try:
        _write_atomically(os.path.join(folder, "model.safetensors"), lambda file: write_safetensors(file, entries, write), "convert")
        for document, value in plan.documents.items():
            with open(os.path.join(folder, document), "w", encoding="utf-8") as f:
                json.dump(value, f, indent=2, ensure_ascii=False)
        for path in plan.copies:
            shutil.copyfile(path, os.path.join(folder, os.path.basename(path)))
        os.chmod(folder, 0o777 & ~_umask())
        os.rename(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return done


def _folder(path):
    """The source in a folder."""
    document = _json(path, "config.json", needed=True)
    return (_EncoderFolder if _architectures.is_encoder(document.get("model_type")) else _Folder)(path, document)


def _checked_type(type, to_file):
    names = _blocks.WRITTEN if to_file else _blocks.PLAIN
    if type is None:
        return None
    if not isinstance(type, str) or type.upper() not in names:
        raise ValueError(f"convert: the type is not available; got {type!r}; expected one of {', '.join(names)}{'' if to_file else ' for a folder'}")
    return type.upper()


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], type: str | None = None, *, text: str | None = None,
            progress: Callable[[int, int, str], object] | None = None) -> Conversion:
    """Converts a language model between a GGUF file and a folder in Hugging Face's layout (config.json, safetensors, tokenizer.json or SentencePiece's tokenizer.model), and its weights to another type. A folder
    with a BERT model becomes a GGUF file, too, but not the other way. Returns a Conversion.

    source: a GGUF file, a folder, or the name of an installed package, as of pf.llm.load; a folder may have quantized weights, which become floats in another folder, and in a GGUF file
    blocks where pf.llm.load keeps them in such (type=None), otherwise floats, or blocks of type. target: a path that ends in .gguf is a GGUF file; any other is a folder. type: the type of matrices,
    'F32', 'F16' or 'BF16', for GGUF also 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K', 'Q5_K' or 'Q6_K'; None: that of the source, where a folder gets float32 for blocks. Sources may have 'Q2_K', 'Q3_K', 'IQ4_NL' and 'IQ4_XS', too. In GGUF files, vectors
    are float32, and a matrix into whose rows whole blocks do not fit is Q8_0, or else F16. text: a str whose perplexity is computed before and after, by what pf.llm.load makes of source
    and target. progress: a function of (tensors written, all tensors, name of the next one).
    Numbers are rounded to the nearest one that the type has; no calibration data is used. A few million numbers are in memory at a time; texts need the whole models.
    FileNotFoundError, FileExistsError, OSError; ValueError for sources that are damaged, or that the target cannot say everything about, before anything is written, and for weights
    that are not finite; then no target is left."""
    source, target = _place(source), os.fspath(target)
    to_file = target.endswith(".gguf")
    if not os.path.exists(source):
        raise FileNotFoundError(errno.ENOENT, "convert: there is no such file; expected a GGUF file, a folder with config.json, or an installed package with one of these", source)
    type = _checked_type(type, to_file)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "convert: there is something at the target already; expected a new path; hint: remove it first", target)
    if not os.path.isdir(os.path.dirname(os.path.abspath(target))):
        raise FileNotFoundError(errno.ENOENT, "convert: the target's folder is not there; expected an existing folder", os.path.dirname(os.path.abspath(target)))
    is_folder = os.path.isdir(source)
    if not is_folder:
        _check_gguf("convert", source)
    model = _folder(source) if is_folder else _File(source)
    if is_folder and not to_file and not model.is_quantized:
        raise ValueError(f"convert: source and target are folders with float weights; got '{target}'; expected a target that ends in .gguf")
    plan = model.to_gguf(type) if to_file else model.to_folder(type)
    before = None if text is None else _perplexity(source, text)
    tensors = _written(plan, target, progress)
    written = os.path.getsize(target if to_file else os.path.join(target, "model.safetensors"))
    return Conversion(os.fspath(source), target, model.bytes, written, tensors, before, None if text is None else load(target).perplexity(text), plan.notes)


def _perplexity(source, text):
    if not isinstance(text, str) or len(load_tokenizer(source).encode(text)) < 2:
        raise ValueError(f"convert: the text is too short for a perplexity; got {text!r:.80}; expected a str of at least two tokens")
    return load(source).perplexity(text)
