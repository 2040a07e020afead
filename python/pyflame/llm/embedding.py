"""Embeddings: a vector for each text, by an encoder (BERT) or by a language model whose last hidden states are pooled.

What a folder of Sentence Transformers says about pooling and the length of texts holds; otherwise vLLM's defaults do."""
from __future__ import annotations

import json
import os
from dataclasses import dataclass

from .. import _C, _numpy as np
from .. import no_grad
from . import _architectures
from ._errors import Values
from ._paged import rounded

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._annotations import Device, DType, TensorLike
    from .tokenizer import Tokenizer

POOLINGS = ("MEAN", "CLS", "LAST")
MOST_TEXTS, MOST_TOKENS = 32, 4096  # of a batch; padding counts


@dataclass
class PoolerConfig:
    """How the hidden states of a text's tokens become its vector, by vLLM's names. pooling_type: 'MEAN' of all tokens, 'CLS' the first one, 'LAST' the last one; normalize: divide by the length, so that products of vectors are cosines. None: what the model's files say. ValueError."""

    pooling_type: str = None
    normalize: bool = None

    def __post_init__(self):
        if self.pooling_type is not None and self.pooling_type not in POOLINGS:
            raise ValueError(f"PoolerConfig: there is no such pooling_type; got {self.pooling_type!r}; expected one of {', '.join(POOLINGS)}")
        if self.normalize is not None and not isinstance(self.normalize, bool):
            raise ValueError(f"PoolerConfig: normalize is of the wrong type; got {self.normalize!r}; expected True, False or None")

    @classmethod
    def of(cls, given: PoolerConfig | dict[str, Any] | None) -> PoolerConfig:
        """A PoolerConfig of None, a dict of its fields, or a PoolerConfig. ValueError, TypeError."""
        if given is None or isinstance(given, cls):
            return given or cls()
        if not isinstance(given, dict):
            raise TypeError(f"PoolerConfig: the settings are of the wrong type; got {type(given).__name__}; expected a dict or a PoolerConfig")
        unknown = set(given) - {"pooling_type", "normalize"}
        if unknown:
            raise ValueError(f"PoolerConfig: there are no such settings; got {', '.join(sorted(map(str, unknown)))}; expected pooling_type and normalize")
        return cls(**given)


@dataclass
class PoolingParams:
    """Settings of one call, by vLLM's names. dimensions: keep so many of the first numbers, for models that were trained for it (Matryoshka, arXiv:2205.13147);
    normalize: None is the model's. truncate_prompt_tokens: keep so many of a text's first tokens, -1: as many as the model takes; None: a text that is too long is an error."""

    dimensions: int = None
    normalize: bool = None
    truncate_prompt_tokens: int = None


class _Encoder:
    """BERT's hidden states, in batches that are padded."""

    def __init__(self, model, dtype, device):
        self.model = model
        self.device = _C.get_device() if device is None else _C.device(device) if isinstance(device, str) else device
        self.model.to(self.device)
        if dtype is not None:
            self.model.to(dtype)
        c = self.model.config
        self.size, self.vocab, self.context, self.pad = c.hidden_size, c.vocab_size, c.max_position_embeddings, c.pad_token_id

    def pooled(self, texts, pooling):
        """Vectors of the lists of ids, float32 (texts, size)."""
        rows, width = rounded(len(texts)), min(rounded(max(map(len, texts))), self.context)
        ids, mask = np.full((rows, width), self.pad, dtype=np.int64), np.zeros((rows, width), dtype=np.float32)
        mask[len(texts):, 0] = 1  # rows without a text have a token, because a softmax over nothing is no number
        for i, t in enumerate(texts):
            ids[i, : len(t)], mask[i, : len(t)] = t, 1
        with no_grad():
            mask = _C.tensor(mask, device=self.device)
            x = self.model(_C.tensor(ids, device=self.device), mask)[0].float()
            if pooling == "MEAN":
                x = (x * mask.unsqueeze(2)).sum(1) / mask.sum(1).unsqueeze(1)
            elif pooling == "CLS":
                x = x[:, 0]
            else:
                last = _C.tensor(np.array([len(t) - 1 for t in texts] + [0] * (rows - len(texts)), dtype=np.int64), device=self.device)
                x = x.gather(1, last.reshape(rows, 1, 1).expand(rows, 1, self.size)).squeeze(1)
            return x.cpu().numpy()[: len(texts)]


class _Decoder:
    """The hidden states of a LanguageModel after its last norm."""

    def __init__(self, lm):
        self.lm, self.size, self.vocab, self.context = lm, lm.config.hidden, lm.config.vocab, lm.config.context

    def pooled(self, texts, pooling):
        return np.stack([self._one(t, pooling) for t in texts])

    def _one(self, ids, pooling):
        x = self.lm._network.hidden(ids)
        x = x.mean(0) if pooling == "MEAN" else x[0] if pooling == "CLS" else x[len(ids) - 1]
        return x.cpu().numpy()


class EmbeddingModel:
    """Made by pf.llm.load_embedding. tokenizer; size: numbers of a vector; context: the most tokens of a text; pooling: 'MEAN', 'CLS' or 'LAST'; normalize: have the
    vectors the length 1; matryoshka: True where any smaller number of dimensions makes sense, a list of numbers, or False.

    part: what computes the vectors of token ids, an encoder or a language model, with its size, vocabulary and context. tokenizer: a Tokenizer, or None where the
    files have none. name: the model's name.

    The constructor checks nothing; its methods raise ValueError for a text without tokens, too many tokens, tokens that are not in the vocabulary and
    dimensions that the model lacks.
    """

    def __init__(self, part: Any, tokenizer: Tokenizer | None, pooling: str, normalize: bool, context: int | None = None, name: str = "",
                 matryoshka: bool | Sequence[int] = False) -> None:
        self._part, self.tokenizer, self.name, self.pooling, self.normalize, self.matryoshka = part, tokenizer, name, pooling, normalize, matryoshka
        self.size, self.vocab, self.context = part.size, part.vocab, min(context or part.context, part.context)
        self._lm = getattr(part, "lm", None)

    def __repr__(self):
        return f"EmbeddingModel({self.name or type(self._part).__name__}: {self.size} numbers, pooling {self.pooling}, context {self.context})"

    def ids(self, text: str | TensorLike, truncate: int | None = None) -> list[int]:
        """The token ids of a text, or checked ids. truncate: as PoolingParams' truncate_prompt_tokens; what the tokenizer puts after a text stays. ValueError, TypeError."""
        if isinstance(text, str):
            if self.tokenizer is None:
                raise ValueError("embed: the model's files have no tokenizer; got a text; expected token ids")
            found, suffix = self.tokenizer.encode(text), len(self.tokenizer._parts.suffix)
        else:
            from .language_model import LanguageModel

            found, suffix = LanguageModel._numbers("embed", text), 0
        if truncate is not None and (isinstance(truncate, bool) or not isinstance(truncate, int) or not (truncate == -1 or 1 <= truncate <= self.context)):
            raise ValueError(f"embed: truncate_prompt_tokens is out of range; got {truncate!r}; expected -1, or 1 to {self.context}")
        most = self.context if truncate in (None, -1) else truncate
        if truncate is not None and len(found) > most:
            found = found[: max(most - suffix, 0)] + (found[-suffix:] if suffix else [])
            found = found[:most]
        if not found:
            raise ValueError("embed: there are no tokens; got an empty text; expected at least one token")
        if len(found) > self.context:
            raise ValueError(f"embed: too many tokens; got {len(found)}; expected at most {self.context}; hint: truncate_prompt_tokens=-1 keeps the first ones")
        if min(found) < 0 or max(found) >= self.vocab:
            raise ValueError(f"embed: a token is not in the vocabulary; got {min(found) if min(found) < 0 else max(found)}; expected 0 to {self.vocab - 1}")
        return found

    def check_dimensions(self, dimensions: int | None) -> None:
        """ValueError for a number of dimensions that the model does not have."""
        if dimensions is None or dimensions == self.size:
            return
        if not self.matryoshka:
            raise ValueError(f"embed: dimensions is not available with this model; got {dimensions}; expected {self.size}, because its files do not say that shorter vectors make sense (is_matryoshka)")
        allowed = self.matryoshka if isinstance(self.matryoshka, (list, tuple)) else range(1, self.size + 1)
        if isinstance(dimensions, bool) or not isinstance(dimensions, int) or dimensions not in allowed:
            expected = f"1 to {self.size}" if isinstance(allowed, range) else f"one of {', '.join(map(str, allowed))}"
            raise ValueError(f"embed: dimensions is out of range; got {dimensions!r}; expected {expected}")

    def embed(self, texts: str | Sequence[Any], dimensions: int | None = None, normalize: bool | None = None,
              truncate_prompt_tokens: int | None = None) -> np.ndarray[Any, Any]:
        """The vectors of texts, a float32 array (texts, size), of one text (size,). texts: a text, a list of token ids, or a list of texts and of lists of ids.
        The settings are those of PoolingParams. Texts of similar length are computed together, so a vector may differ in its last bits with the others of a call.
        ValueError, TypeError."""
        single = isinstance(texts, str) or (isinstance(texts, (list, tuple)) and len(texts) > 0 and all(isinstance(i, int) for i in texts))
        ids = [self.ids(t, truncate_prompt_tokens) for t in ([texts] if single else texts)]
        found = self.vectors(ids, dimensions, normalize)
        return found[0] if single else found

    def vectors(self, ids: Sequence[list[int]], dimensions: int | None = None, normalize: bool | None = None) -> np.ndarray[Any, Any]:
        """The embeddings of lists of token ids, as embed() computes them: a float32 array [lists, size], or [lists, dimensions]. ids: lists that ids()
        returned, which are not checked again. ValueError for dimensions that the model does not have, and for results that are not finite.
        """
        self.check_dimensions(dimensions)
        found = np.empty((len(ids), self.size), dtype=np.float32)
        order, at = sorted(range(len(ids)), key=lambda i: -len(ids[i])), 0
        while at < len(order):
            count = min(MOST_TEXTS, max(1, MOST_TOKENS // len(ids[order[at]])), len(order) - at)
            batch = order[at:at + count]
            found[batch] = self._part.pooled([ids[i] for i in batch], self.pooling)
            at += count
        if not np.isfinite(found).all():
            raise ValueError("embed: a vector is not finite; got nan or inf; expected numbers; hint: the weights are damaged, or overflow in this dtype")
        if dimensions is not None:
            found = found[:, :dimensions]
        if self.normalize if normalize is None else normalize:
            found = found / np.maximum(np.sqrt((found.astype(np.float64) ** 2).sum(1, keepdims=True)), 1e-12).astype(np.float32)
        return found


def _sentence_transformers(folder):
    """(pooling, normalize, most tokens) by the files of Sentence Transformers; None for what they do not say. ValueError."""
    from .language_model import _json

    path = os.path.join(folder, "modules.json")
    if not os.path.exists(path):
        return None, None, None
    with open(path, encoding="utf-8") as f:
        modules = json.load(f)
    pooling, normalize = None, False
    for m in modules:
        kind = str(m.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            modes = _json(os.path.join(folder, str(m.get("path", ""))), "config.json", needed=True)
            names = {"pooling_mode_mean_tokens": "MEAN", "pooling_mode_cls_token": "CLS", "pooling_mode_lasttoken": "LAST"}
            on = [n for n, v in modes.items() if n.startswith("pooling_mode_") and v is True]
            if len(on) != 1 or on[0] not in names:
                raise ValueError(f"embed: the model's pooling is not available; got {', '.join(on) or 'none'}; expected one of {', '.join(names)}")
            pooling = names[on[0]]
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise ValueError(f"embed: a module of the model is not available; got {kind!r} in modules.json; expected Transformer, Pooling and Normalize")
    sizes = _json(folder, "sentence_bert_config.json") or {}
    return pooling, normalize, Values(sizes, "sentence_bert_config.json").size("max_seq_length", None)


def load_embedding(path: Any, dtype: DType | None = None, device: Device | None = None,
                   pooler_config: PoolerConfig | dict[str, Any] | None = None) -> EmbeddingModel:
    """An EmbeddingModel: of a folder with a BERT model (config.json, safetensors, tokenizer.json), of a GGUF file of the architecture bert, or of any model that pf.llm.load
    takes, whose hidden states are pooled. path, dtype, device: as in load; the blocks of a GGUF file stay as they are without a dtype. pooler_config: a PoolerConfig or a dict; what it
    does not say, the files of Sentence Transformers or the GGUF file's metadata do, otherwise it is CLS for encoders and LAST for others, with vectors of length 1.
    OSError, ValueError, TypeError as of load."""
    from . import _tokenizer_json
    from .language_model import LanguageModel, _json, _place, load

    config = PoolerConfig.of(pooler_config)
    if isinstance(path, LanguageModel):
        return EmbeddingModel(_Decoder(path), path.tokenizer, config.pooling_type or "LAST", True if config.normalize is None else config.normalize, name=path.name)
    path = _place(path)
    pooling, normalize, most, document = None, None, None, {}
    if os.path.isdir(path):
        pooling, normalize, most = _sentence_transformers(path)
        document = _json(path, "config.json", needed=True)
    matryoshka = document.get("matryoshka_dimensions") or document.get("is_matryoshka") or False
    pooling, normalize = config.pooling_type or pooling, config.normalize if config.normalize is not None else True if normalize is None else normalize
    if is_encoder_path(path):
        if dtype is not None and dtype not in (_C.float32, _C.float16, _C.bfloat16):
            raise ValueError(f"llm: the dtype is not available; got {dtype}; expected float32, float16 or bfloat16")
        if not os.path.isdir(path):
            from . import _encoder_gguf

            e = _encoder_gguf.read(path, dtype, device)
            return EmbeddingModel(_Encoder(e.model, None, device), e.tokenizer, pooling or e.pooling or "CLS", normalize, e.context, e.name)
        from ..models import from_folder

        tokens = _json(path, "tokenizer.json")
        tokenizer = _tokenizer_json.from_json(tokens, _json(path, "tokenizer_config.json")) if tokens else None
        return EmbeddingModel(_Encoder(from_folder(path), dtype, device), tokenizer, pooling or "CLS", normalize, most, os.path.basename(os.path.abspath(path)), matryoshka)
    lm = load(path, dtype, device)
    return EmbeddingModel(_Decoder(lm), lm.tokenizer, pooling or "LAST", normalize, most, lm.name, matryoshka)


def is_encoder_path(path):
    """Whether a path is that of a model which makes embeddings and writes no texts."""
    from .language_model import _json, _place

    path = _place(path)
    if os.path.isdir(path):
        return _architectures.is_encoder((_json(path, "config.json") or {}).get("model_type"))
    from . import _gguf_header

    return os.path.isfile(path) and _architectures.is_encoder(_gguf_header.architecture(path))


def makes_embeddings(path, runner):
    """Whether a model is loaded to make embeddings: where the runner is 'pooling', and with 'auto' where it writes no texts."""
    return runner == "pooling" or (runner == "auto" and is_encoder_path(path))
