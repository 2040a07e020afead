"""Many prompts at once, by vLLM's names: LLM, SamplingParams and the objects that generate() returns. The work is the Engine's."""
from __future__ import annotations

import functools
import itertools
import os
import random
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field

from .. import _C
from . import _kv_cache_gate, _loading
from ._beams import BeamSearchOutput, BeamSearchParams
from ._intake import last_tokens
from ._masks import bad_words_ids
from ._offload import check as check_offload
from ._pieces import Pieces, stop_reason
from .embedding import EmbeddingModel, PoolerConfig, PoolingParams, load_embedding, makes_embeddings
from .engine import Engine, Finished
from .grammar import Grammar
from .language_model import LanguageModel, Source, load, load_tokenizer
from .sampling import Sampling

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from .._annotations import Device, DType
    from ._speculation import SpeculativeConfig
    from .tokenizer import Tokenizer

    Constructor = TypeVar("Constructor", bound=Callable[..., None])

_DTYPES = {"auto": None, "float": _C.float32, "float32": _C.float32, "half": _C.float16, "float16": _C.float16, "bfloat16": _C.bfloat16}
_NO_LIMIT = 1 << 60
_NOT_AVAILABLE = {  # fields of SamplingParams, and what to do instead
    "output_kind": "LLM returns whole texts; Engine.submit(receive=) hands over each token",
    "extra_args": "there is nothing that reads them",
}  # fmt: skip


@dataclass
class StructuredOutputsParams:
    """What a text must be, by vLLM's names; exactly one is given. json: a JSON schema (a dict, a text, or a pydantic class); regex; choice: a list of texts;
    grammar: GBNF, or Lark with a rule named start; json_object: True for any JSON object. ValueError unless exactly one is given, and ValueError or TypeError for one that is
    wrong, when the object is made; ImportError without the package llguidance."""

    json: object = None
    regex: str = None
    choice: list = None
    grammar: str = None
    json_object: bool = None

    def __post_init__(self):
        self.grammar_of()

    def grammar_of(self) -> Grammar:
        """The Grammar of the field that is given. ValueError unless exactly one is given, or for one that is wrong; ImportError without the package
        llguidance.
        """
        return Grammar.of(self.json, self.regex, self.choice, self.grammar, self.json_object)


@dataclass
class LoRARequest:
    """An adapter of a call, by vLLM's names. lora_name: its name in the engine; lora_path: PEFT's folder. lora_int_id is not used.

    The fields are not checked here: a missing or unknown one is a TypeError, and a folder without an adapter is an error of the call that gets the
    request.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass
class SamplingParams:
    """How a text is written, by vLLM's names. They mean the same as in Sampling; what differs:

    n: texts for each prompt; text i is drawn with seed + i where there is a seed. top_k: -1 and 0 switch it off. max_tokens: None is up to the end of the context.
    stop: a text or several; the result ends before the first of them. stop_token_ids: further tokens that end a text. ignore_eos: the model's own tokens that
    end texts do not end this one. logprobs: None, or from 0 to 20 likeliest tokens for each token. prompt_logprobs: the same for each token of the prompt but the first; the whole prompt is computed then,
    whatever the cache has of it. logit_bias: keys may be numbers as text.
    structured_outputs: what the text must be: a Grammar, a StructuredOutputsParams, or a dict of its fields.
    bad_words: texts that are not written, each also behind a space. Of one that is several tokens the last one is not drawn where those before it have just been written, so a text may still
    contain it in other tokens. allowed_token_ids: no other tokens are drawn, not even those that end a text.
    skip_special_tokens: False: the names of special tokens are part of the text. include_stop_str_in_output: the text has the stop text that ended it, or the text of the token that did.
    detokenize: False: there are no texts, only ids. truncate_prompt_tokens: the last so many tokens of the prompt are read; -1: as many as there is room for beside max_tokens.
    spaces_between_special_tokens changes nothing: no tokenizer here puts spaces there.
    output_kind, extra_args: not available: NotImplementedError unless None (or an empty dict).
    best_of: texts that are written for each prompt, at least n. The n with the highest cumulative_logprob are the result, the highest first; None: n texts, in the order of
    their seeds, as with best_of = n. ValueError, TypeError.

    temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty, min_tokens: as in Sampling, with the same defaults and ranges.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 16
    stop: object = None
    stop_token_ids: object = None
    seed: int = None
    logprobs: int = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict = None
    min_tokens: int = 0
    ignore_eos: bool = False
    structured_outputs: object = None
    best_of: int = None
    bad_words: object = None
    allowed_token_ids: list = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    detokenize: bool = True
    truncate_prompt_tokens: int = None
    prompt_logprobs: int = None
    output_kind: object = None
    extra_args: dict = None

    def __post_init__(self):
        def whole(x, low):
            return isinstance(x, int) and not isinstance(x, bool) and x >= low

        for name, low, none in (("n", 1, False), ("best_of", 1, True), ("max_tokens", 0, True), ("logprobs", 0, True), ("prompt_logprobs", 0, True), ("top_k", -1, False)):
            value = getattr(self, name)
            if not whole(value, low) and not (none and value is None):
                raise ValueError(f"SamplingParams: {name} is out of range; got {value!r}; expected a whole number from {low} upwards{' or None' if none else ''}")
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"SamplingParams: best_of is out of range; got best_of {self.best_of} and n {self.n}; expected best_of to be at least n")
        self.stop = self._texts("stop", [self.stop] if isinstance(self.stop, str) else self.stop, "a text or a list of texts")
        self.bad_words = self._texts("bad_words", self.bad_words, "a list of texts")
        for name in ("skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output", "detokenize"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"SamplingParams: {name} is of the wrong type; got {getattr(self, name)!r}; expected True or False")
        if self.stop and not self.detokenize:
            raise ValueError(f"SamplingParams: stop needs the text; got stop {self.stop!r} and detokenize=False; expected detokenize=True")
        count = self.truncate_prompt_tokens
        if count is not None and not (whole(count, -1) and count != 0):
            raise ValueError(f"SamplingParams: truncate_prompt_tokens is out of range; got {count!r}; expected None, a whole number from 1 upwards, or -1")
        for name, hint in _NOT_AVAILABLE.items():
            if getattr(self, name) not in (None, {}):
                raise NotImplementedError(f"SamplingParams: {name} is not available; got {getattr(self, name)!r}; expected None; hint: {hint}")
        ids = [] if self.stop_token_ids is None else self.stop_token_ids
        if not isinstance(ids, (list, tuple, set, frozenset)) or not all(whole(i, 0) for i in ids):
            raise TypeError(f"SamplingParams: stop_token_ids is of the wrong type; got {self.stop_token_ids!r}; expected a list of token ids")
        self.stop_token_ids = list(ids)
        if isinstance(self.logit_bias, dict):
            try:
                self.logit_bias = {int(k) if isinstance(k, str) else k: v for k, v in self.logit_bias.items()}
            except ValueError:
                raise ValueError(f"SamplingParams: logit_bias is out of range; got {self.logit_bias!r}; expected a dict of token ids and numbers from -100 to 100") from None
        if isinstance(self.structured_outputs, dict):
            self.structured_outputs = StructuredOutputsParams(**self.structured_outputs)
        self._grammar = self.structured_outputs.grammar_of() if isinstance(self.structured_outputs, StructuredOutputsParams) else self.structured_outputs
        self._sampling(self.seed)

    def _texts(self, name, texts, expected):
        texts = [] if texts is None else texts
        if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) and t for t in texts):
            raise TypeError(f"SamplingParams: {name} is of the wrong type; got {texts!r}; expected {expected} that are not empty")
        return list(texts)

    @property
    def _chooses(self):
        """Whether more texts are written than returned."""
        return self.best_of is not None and self.best_of > self.n

    def _sampling(self, seed, tokenizer=None):
        words = bad_words_ids(tokenizer, self.bad_words) if tokenizer else None
        return Sampling(self.temperature, max(self.top_k, 0), self.top_p, self.min_p, self.repetition_penalty, seed, self.presence_penalty,
                        self.frequency_penalty, self.logit_bias, self.min_tokens, self._grammar, self.allowed_token_ids, words)


@dataclass
class Logprob:
    """log p of a token by the model's own logits. logprob: the number. decoded_token: the text of the token. rank: 1 is the likeliest; None where the token is not among those that were asked for.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    logprob: float
    rank: int = None
    decoded_token: str = None


@dataclass
class CompletionOutput:
    """One text. index: its place among the texts of its prompt, from 0. token_ids: a list; the token that ended it is not among them. finish_reason: 'stop' or 'length'. stop_reason: the stop text
    or the id of stop_token_ids that ended it; None where it is another end, such as a token of the model's own that ends texts. logprobs: None, or for each token a dict of ids
    and Logprob, the token's own included. cumulative_logprob: the sum of the logprobs of all tokens and of the one that ended the text; None without logprobs and
    best_of.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    index: int
    text: str = ""
    token_ids: list = field(default_factory=list)
    finish_reason: str = None
    logprobs: list = None
    cumulative_logprob: float = None
    stop_reason: object = None


@dataclass
class RequestOutput:
    """What a prompt became. prompt: its text, or None where ids were given; prompt_token_ids: a list; outputs: n CompletionOutput. num_generation_tokens: how many
    tokens were written for it, those of texts that best_of left out included. request_id: a text, the number of the prompt among all of its LLM. finished: True; False where the call was
    cancelled first. prompt_logprobs: None, or for each token of the prompt a dict of ids and Logprob, the token's own included, after the tokens before it; None in the place of the first token.
    num_cached_tokens: how many tokens of the prompt the engine had computed before, for other texts; with several outputs, when the first of them began; None where it never did.
    request_id and num_cached_tokens do not count where two are compared.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    prompt: str
    prompt_token_ids: list
    outputs: list
    num_generation_tokens: int = 0
    request_id: str = field(default=None, compare=False)
    finished: bool = False
    prompt_logprobs: list = None
    num_cached_tokens: int = field(default=None, compare=False)


@dataclass
class EmbeddingOutput:
    """A vector. embedding: a list of float, as long as the model's size or the dimensions of PoolingParams.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    embedding: list


@dataclass
class EmbeddingRequestOutput:
    """What a prompt became. prompt_token_ids: a list of int, the tokens that were read; outputs: an EmbeddingOutput. LLM.embed() returns one for each
    prompt.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    prompt_token_ids: list
    outputs: EmbeddingOutput


class _Call:
    """The texts of one call while the engine writes them. Calls of several threads may run at the same time.

    each: None, or a function that the engine's thread calls with (the text's place among prompts, its CompletionOutput, new text, new token ids) as soon as there is something new,
    and at the end of each text, when the output has its finish_reason."""

    def __init__(self, llm, each=None):
        self.llm, self.each, self.writings, self.cancelled = llm, each, [], False
        self.changed, self._left = threading.Condition(), 0

    def submit(self, w):
        p, llm = w.params, self.llm
        stop_ids = frozenset(p.stop_token_ids) | (frozenset() if p.ignore_eos else llm.model.end_ids)
        with self.changed:
            w.request = llm.engine.submit(w.job.prompt_token_ids, w.sampling, llm.model.config.context if p.max_tokens is None else p.max_tokens,
                                          stop_ids=stop_ids, logprobs=0 if p.logprobs is None and p._chooses else p.logprobs,
                                          prompt_logprobs=None if w.output.index else p.prompt_logprobs, priority=w.priority, lora=w.lora, receive=w.receive)
            self.writings.append(w)
            self._left += 1
            if self.cancelled:
                llm.engine.cancel(w.request)

    def ended(self):
        with self.changed:
            self._left -= 1
            self.changed.notify_all()

    def cancel(self):
        """Ends the texts, also those that are submitted later; what was written until then is their result, with the finish_reason 'cancelled'. Any thread may call it."""
        with self.changed:
            self.cancelled = True
            for w in self.writings:
                self.llm.engine.cancel(w.request)

    def stop(self):
        """After an error: ends the texts and waits until the engine has left them."""
        for w in self.writings:
            self.llm.engine.cancel(w.request)
        with self.changed:
            self.changed.wait_for(lambda: not self._left)

    def forget(self):
        """Lets go of the texts, which refer to this, so that an LLM ends with its last reference."""
        with self.changed:
            self.writings = []

    def wait(self, total, progress):
        """Waits for the texts, `total` of them. RuntimeError as soon as one of them failed."""
        begin = time.perf_counter()
        with self.changed:
            while self._left and not self._failed():
                self.changed.wait()
                if progress:
                    tokens = sum(len(w.output.token_ids) for w in self.writings)
                    sys.stderr.write(f"\r{total - self._left} of {total} texts, {tokens / (time.perf_counter() - begin):.0f} tokens/s ")
                    sys.stderr.flush()
            if progress:
                sys.stderr.write("\n")
            failed = self._failed()
        if failed:
            raise RuntimeError(f"generate: a text could not be finished; got {failed[0].error}; expected the text")

    def _failed(self):
        return [w for w in self.writings if w.error]


class _Writing:
    """Collects one text on the engine's thread. place: that of its prompt among those of the call."""

    def __init__(self, call, place, job, output, params, lora=None, priority=0):
        self.lora, self.priority = lora, priority
        self.call, self.place, self.job, self.output, self.params, self.request = call, place, job, output, params, None
        model = call.llm.model
        self.sampling, self.pieces = params._sampling(call.llm._seed_of(params, output.index), model.tokenizer), None
        if model.tokenizer and params.detokenize:
            shown = frozenset() if params.skip_special_tokens else model.tokenizer.special_ids
            self.pieces = Pieces(model.tokenizer, params.stop, model._has_text(job.prompt_token_ids), shown, params.include_stop_str_in_output)
        self.error, self.parts = None, []

    def receive(self, event):
        if event.prompt_logprobs is not None:
            ids = self.job.prompt_token_ids
            self.job.prompt_logprobs = [None if found is None else self._ranked(id, *found) for id, found in zip(ids, event.prompt_logprobs)]
        if isinstance(event, Finished):
            self._end(event)
            return self.call.ended()
        self._take(event)
        text = self._add(self.pieces.feed(event.id)) if self.pieces else ""
        if self.pieces and self.pieces.stopped:
            with self.call.changed:  # submit() holds it until the request is known
                request = self.request
            self.call.llm.engine.cancel(request)
        if self.call.each:
            self.call.each(self.place, self.output, text, [event.id])

    def _take(self, event):
        output = self.output
        output.token_ids.append(event.id)
        if output.cumulative_logprob is not None:
            output.cumulative_logprob += event.logprob
        if output.logprobs is not None:
            output.logprobs.append(self._ranked(event.id, event.logprob, event.top))

    def _ranked(self, id, logprob, top):
        """The log probabilities of a token and of the likeliest ones in its place, which are (id, log p): a dict of ids and Logprob, that of the token first."""
        text_of = self.call.llm._text_of
        ranks = {i: Logprob(p, rank, text_of(i)) for rank, (i, p) in enumerate(top, 1)}
        return {id: ranks.pop(id, None) or Logprob(logprob, None, text_of(id)), **ranks}

    def _add(self, text):
        self.parts.append(text)
        return text

    def _end(self, event):
        output, rest = self.output, ""
        if self.pieces and self.params.include_stop_str_in_output and event.stop_id is not None:
            rest = self._add(self.pieces.feed(event.stop_id))
        if self.pieces:
            rest += self._add(self.pieces.finish())
        output.text = "".join(self.parts)
        stopped = self.pieces is not None and self.pieces.stopped
        output.finish_reason = "stop" if stopped else event.reason
        output.stop_reason = stop_reason(self.pieces, event.stop_id, frozenset(self.params.stop_token_ids) - self._own_ends)
        if output.index == 0:
            self.job.num_cached_tokens = event.num_cached_tokens
        if output.cumulative_logprob is not None and event.logprob is not None:
            output.cumulative_logprob += event.logprob
        if not stopped and (event.reason == "error" or event.reason == "cancelled" and not self.call.cancelled):
            self.error = event.error or event.reason
        if self.call.each:
            self.call.each(self.place, output, rest, [])

    @property
    def _own_ends(self):
        """The model's own tokens that end this text."""
        return frozenset() if self.params.ignore_eos else self.call.llm.model.end_ids



def _several(prompts):
    single = isinstance(prompts, (str, dict)) or (isinstance(prompts, (list, tuple)) and prompts and all(isinstance(i, int) for i in prompts))
    return [prompts] if single else prompts


def _text_or_ids(op, prompt):
    """The text or the ids of a prompt, which may be a dict. TypeError."""
    if not isinstance(prompt, dict):
        return prompt
    found = prompt.get("prompt_token_ids", prompt.get("prompt"))
    if found is None:
        raise TypeError(f"{op}: a prompt is of the wrong type; got a dict with {', '.join(map(str, prompt))}; expected 'prompt' or 'prompt_token_ids'")
    return found


_NO_HUB = (None,), "nothing is downloaded: give a path, or the name of an installed package"
_REFUSED = {  # arguments of vLLM's LLM that have no meaning here: the values that ask for nothing, and what to do
    "enforce_eager": ((None, False), "the variable PYFLAME_GPU_GRAPHS=0 computes without GPU graphs"),
    "trust_remote_code": ((None, False), "leave it out: no code of a model's files ever runs, and architectures are those of pf.llm.load"),
    "quantization": ((None,), "leave it out: quantized weights are found by the files"),
    "revision": _NO_HUB, "tokenizer_revision": _NO_HUB, "code_revision": _NO_HUB, "hf_token": _NO_HUB, "download_dir": _NO_HUB,
    "pipeline_parallel_size": ((None, 1), "tensor_parallel_size divides a model over processes"),
    "max_seq_len_to_capture": ((None,), "warm_up prepares the steps of all sizes"),
    "disable_custom_all_reduce": ((None, False), "leave it out: there is one way"),
}  # fmt: skip


def _refusing(function: Constructor) -> Constructor:
    """LLM's constructor, with a TypeError that says what to do for these names of vLLM's."""
    @functools.wraps(function)
    def checked(self, *args, **options):
        for name in _REFUSED.keys() & options.keys():
            value, (harmless, hint) = options.pop(name), _REFUSED[name]
            if not any(value is h or type(value) is int and value == h for h in harmless):
                raise TypeError(f"LLM: there is no {name}; got {value!r}; expected none; hint: {hint}")
        return function(self, *args, **options)

    return checked


class LLM:
    """A language model that writes many texts at once.

    model: a LanguageModel, an EmbeddingModel, or a path that pf.llm.load or load_embedding takes. runner: 'generate' for texts, 'pooling' for embeddings, 'auto': by the
    files. pooler_config: how hidden states become embeddings, a PoolerConfig or a dict. dtype: a dtype, or vLLM's names 'auto', 'float32', 'float16', 'half', 'bfloat16'. The other
    arguments are the Engine's. enable_lora is taken for vLLM's sake. Several threads may call generate(), chat() and beam_search() at the same time; the engine writes all their texts together. close() ends the engine's thread; so does `with`, and the end of the object.

    max_num_seqs, max_num_batched_tokens, max_model_len, kv_cache_bytes, batch_invariant, speculative_config, lora_modules, swap_space,
    tensor_parallel_size, kv_cache_dtype, kv_cache_gate, attention_backend, cpu_offload_gb and warm_up: as of the Engine, but that warm_up is off; a path is loaded with cpu_offload_gb. use_tqdm_on_load: a line of progress while the files are read, where standard error is a terminal.
    gpu_memory_utilization, enable_prefix_caching: as of the Engine. seed: texts whose SamplingParams have no seed are drawn with numbers that follow from this one, in the order of the calls and prompts, so
    that the same calls write the same texts; None: each call differs. tokenizer: what load_tokenizer takes, in the place of the tokenizer of the model's files; for a path and one process.
    Names of vLLM's that have no meaning here (enforce_eager, trust_remote_code, quantization, revision, …) are a TypeError that says what to do, unless their value asks for nothing. ValueError for a tensor_parallel_size other than 1 with a model for embeddings.
    """

    @_refusing
    def __init__(self, model: Any, dtype: DType = "auto", device: Device | None = None, max_num_seqs: int | None = None, max_num_batched_tokens: int = 512,
                 max_model_len: int | None = None, kv_cache_bytes: int | None = None, batch_invariant: bool = False, *, runner: str = "auto",
                 pooler_config: PoolerConfig | dict[str, Any] | None = None, speculative_config: SpeculativeConfig | dict[str, Any] | None = None,
                 lora_modules: dict[str, Any] | None = None, enable_lora: bool | None = None, swap_space: float = 0, tensor_parallel_size: int = 1,
                 kv_cache_dtype: str = "auto", kv_cache_gate: float | None = _kv_cache_gate.DEFAULT, attention_backend: str = "auto", cpu_offload_gb: float = 0,
                 warm_up: bool = False, seed: int | None = None, tokenizer: str | os.PathLike[str] | None = None, gpu_memory_utilization: float | None = None,
                 enable_prefix_caching: bool = True, use_tqdm_on_load: bool = True) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"LLM: seed is out of range; got {seed!r}; expected None or a whole number from 0 upwards")
        self._seeds = None if seed is None else random.Random(seed)
        with _loading.shown(f"loading {model}", use_tqdm_on_load and not isinstance(model, (LanguageModel, EmbeddingModel))):
            self._load(model, dtype, device, runner, pooler_config, tensor_parallel_size, cpu_offload_gb)
            if tokenizer is not None:
                self._replace_tokenizer(model, tokenizer, tensor_parallel_size)
            self.engine = None
            if isinstance(self.model, EmbeddingModel):
                return
            self.engine = Engine(self.model, max_num_seqs, max_num_batched_tokens, max_model_len, kv_cache_bytes, max_waiting=_NO_LIMIT, batch_invariant=batch_invariant,
                                 speculative_config=speculative_config, lora_modules=lora_modules, swap_space=swap_space, tensor_parallel_size=tensor_parallel_size,
                                 kv_cache_dtype=kv_cache_dtype, kv_cache_gate=kv_cache_gate, attention_backend=attention_backend, cpu_offload_gb=cpu_offload_gb, warm_up=warm_up,
                                 gpu_memory_utilization=gpu_memory_utilization, enable_prefix_caching=enable_prefix_caching)
        self.model = self.engine.model
        self._numbers = itertools.count()
        self._end = weakref.finalize(self, self.engine.close, drain=False)

    def _load(self, model, dtype, device, runner, pooler_config, tensor_parallel_size, cpu_offload_gb):
        """Sets self.model: a LanguageModel, the Source of one, or an EmbeddingModel. ValueError for arguments that do not fit it."""
        if runner not in ("auto", "generate", "pooling"):
            raise ValueError(f"LLM: there is no such runner; got {runner!r}; expected 'auto', 'generate' or 'pooling'")
        check_offload("LLM", cpu_offload_gb)
        divided = tensor_parallel_size != 1
        if isinstance(model, (LanguageModel, EmbeddingModel)):
            self.model = model
        else:
            if isinstance(dtype, str) and dtype not in _DTYPES:
                raise ValueError(f"LLM: the dtype is not available; got {dtype!r}; expected one of {', '.join(_DTYPES)}")
            model, dtype = os.fspath(model), _DTYPES[dtype] if isinstance(dtype, str) else dtype
            if makes_embeddings(model, runner):
                runner = "pooling"
            if runner != "pooling" and divided:
                self.model = Source(os.path.abspath(model) if os.path.exists(model) else model, dtype, device)  # each process reads its part
            else:
                self.model = load_embedding(model, dtype, device, pooler_config) if runner == "pooling" else load(model, dtype, device, cpu_offload_gb=cpu_offload_gb)
        if divided and (runner == "pooling" or isinstance(self.model, EmbeddingModel)):
            raise ValueError(f"LLM: models for embeddings are not divided; got tensor_parallel_size {tensor_parallel_size}; expected 1")
        if cpu_offload_gb and (runner == "pooling" or isinstance(self.model, EmbeddingModel)):
            raise ValueError(f"LLM: weights of models for embeddings are not offloaded; got cpu_offload_gb {cpu_offload_gb}; expected 0")
        if isinstance(self.model, LanguageModel) and runner == "pooling":
            self.model = load_embedding(self.model, pooler_config=pooler_config)
        if isinstance(self.model, EmbeddingModel):
            if runner == "generate":
                raise ValueError(f"LLM: the model writes no texts; got {self.model!r} and runner='generate'; expected runner='pooling'")
        elif pooler_config is not None:  # otherwise load_embedding has had it
            raise ValueError("LLM: pooler_config belongs to runner='pooling'; got it with a model that writes texts; expected no pooler_config")

    def _replace_tokenizer(self, model, tokenizer, tensor_parallel_size):
        if isinstance(model, (LanguageModel, EmbeddingModel)):
            raise ValueError(f"LLM: tokenizer belongs to a path; got {os.fsdecode(tokenizer)!r} and a model that is loaded; expected no tokenizer, or the model's path")
        if not isinstance(self.model, LanguageModel):
            got = f"tensor_parallel_size {tensor_parallel_size}" if isinstance(self.model, Source) else "a model for embeddings"
            raise ValueError(f"LLM: another tokenizer is not available here; got tokenizer {os.fsdecode(tokenizer)!r} and {got}; expected no tokenizer; hint: put its files into the model's folder")
        self.model._set_tokenizer(load_tokenizer(tokenizer))

    def _seed_of(self, params, index):
        """The seed of text `index` of a prompt: the request's own, or a number that follows from the seed of this LLM, or None."""
        if params.seed is not None:
            return params.seed + index
        return None if self._seeds is None else self._seeds.getrandbits(63)

    def close(self) -> None:
        """Ends the engine, which frees the model's weights and the caches of keys and values. A `with` block calls it at its end. A second call does nothing,
        nor does one with a model for embeddings, which has no engine.
        """
        if self.engine is not None:
            self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def embed(self, prompts: str | dict[str, Any] | Sequence[Any], pooling_params: PoolingParams | None = None,
              use_tqdm: bool = True) -> list[EmbeddingRequestOutput]:
        """The embeddings of prompts, by vLLM's names: a list of EmbeddingRequestOutput in their order. prompts: as in generate(); pooling_params: a PoolingParams for all.
        use_tqdm is ignored. ValueError, TypeError; ValueError for a model that was loaded to write texts."""
        if not isinstance(self.model, EmbeddingModel):
            raise ValueError("embed: the model was loaded to write texts; got runner 'generate'; expected one for embeddings; hint: LLM(model, runner='pooling')")
        p = PoolingParams() if pooling_params is None else pooling_params
        if not isinstance(p, PoolingParams):
            raise TypeError(f"embed: pooling_params is of the wrong type; got {type(p).__name__}; expected PoolingParams")
        ids = [self.model.ids(_text_or_ids("embed", prompt), p.truncate_prompt_tokens) for prompt in _several(prompts)]
        vectors = self.model.vectors(ids, p.dimensions, p.normalize)
        return [EmbeddingRequestOutput(i, EmbeddingOutput([float(x) for x in v])) for i, v in zip(ids, vectors)]

    def get_tokenizer(self) -> Tokenizer | None:
        """The Tokenizer of the model's files, or None for a model that was loaded without one."""
        return self.model.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """A SamplingParams with the settings of the model's generation_config.json; fields that it does not have keep their defaults."""
        return SamplingParams(**{k: v for k, v in self.model.defaults.items() if k in SamplingParams.__dataclass_fields__})

    def generate(self, prompts: str | dict[str, Any] | Sequence[Any], sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
                 use_tqdm: bool = True, lora_request: LoRARequest | str | Sequence[LoRARequest | str | None] | None = None,
                 priority: Sequence[int] | None = None) -> list[RequestOutput]:
        """The texts that follow prompts: a list of RequestOutput in their order.

        prompts: one or a list; each is a text, a list of token ids, or a dict with 'prompt' or 'prompt_token_ids'. sampling_params: one for all, or a list with
        one for each; by default those of the model's files, with max_tokens 16. lora_request: None, a LoRARequest or the name of an adapter of lora_modules, or
        a list with one of these for each prompt. use_tqdm: a line of progress, where standard error is a terminal.
        priority: a list of whole numbers, one for each prompt, or None: 0 for each. Of the texts that wait, those with the lowest number are begun first, and equal ones in the order of their
        coming, those of other calls included; where the cache is full, the running text that would be begun last makes room. It changes when a text is written, not what it says.
        ValueError, TypeError; RuntimeError with the engine's words where a text could not be finished. If one fails, the others are cancelled."""
        self._needs_texts("generate")
        return self._write([self._prompt(p) for p in _several(prompts)], sampling_params, use_tqdm, lora_request, priority=priority)

    def chat(self, messages: Sequence[Any], sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, use_tqdm: bool = True,
             tools: Sequence[dict[str, Any]] | None = None,
             lora_request: LoRARequest | str | Sequence[LoRARequest | str | None] | None = None, add_generation_prompt: bool = True,
             continue_final_message: bool = False, chat_template_kwargs: dict[str, Any] | None = None, priority: Sequence[int] | None = None) -> list[RequestOutput]:
        """Answers to conversations by the model's chat template: a list of RequestOutput. messages: a conversation ([{'role': 'user', 'content': 'Hello'}, …]),
        or a list of conversations. tools: functions in OpenAI's form, for templates that take them; calls are part of the text. continue_final_message: the text goes on with the last
        message, which is the assistant's. add_generation_prompt: whether the template begins an answer. chat_template_kwargs: further names of the template, such as
        {'enable_thinking': False}. priority: one number for each conversation. The rest is as in generate()."""
        self._needs_texts("chat")
        single = isinstance(messages, (list, tuple)) and messages and isinstance(messages[0], dict)
        prompts = self._conversations([messages] if single else messages, tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        return self._write(prompts, sampling_params, use_tqdm, lora_request, priority=priority)

    def beam_search(self, prompts: str | dict[str, Any] | Sequence[Any], params: BeamSearchParams,
                    lora_request: LoRARequest | str | Sequence[LoRARequest | str | None] | None = None, use_tqdm: bool = False) -> list[BeamSearchOutput]:
        """The likeliest texts that follow prompts, as far as a search with params.beam_width beams finds them: a list of BeamSearchOutput in the prompts' order.

        Each step continues all beams of a prompt and keeps the beam_width continuations with the highest cum_logprob. A continuation by a token that ends texts, if
        it is among the 2 beam_width likeliest of its beam, has ended; the result is the beam_width best of all that ended and of the beams that are left after
        max_tokens or at the end of the context. prompts and lora_request: as in generate(); params: a BeamSearchParams for all; use_tqdm is ignored.
        ValueError, TypeError; RuntimeError where a search could not be finished; the others are cancelled then.

            [output] = llm.beam_search("the window", pf.llm.BeamSearchParams(beam_width=4, max_tokens=8))
            print(output.sequences[0].text)"""
        self._needs_texts("beam_search")
        ids = [self.model._ids("beam_search", _text_or_ids("beam_search", p)) for p in _several(prompts)]
        searches, changed, left = [], threading.Condition(), len(ids)

        def receive(event):
            nonlocal left
            with changed:
                left -= 1
                changed.notify_all()

        def failed():
            return [s.finished for s in searches if s.finished is not None and s.finished.reason not in ("stop", "length")]

        try:
            for i, name in zip(ids, self._lora_names(lora_request, len(ids))):
                searches.append(self.engine.submit_beams(i, params, lora=name, receive=receive))
            with changed:
                changed.wait_for(lambda: not left or failed())
            if failed():
                raise RuntimeError(f"beam_search: a search could not be finished; got {failed()[0].error or failed()[0].reason}; expected its texts")
        except BaseException:
            for s in searches:
                self.engine.cancel(s)
            with changed:
                changed.wait_for(lambda: len(ids) - left == len(searches))
            raise
        for s in searches:
            for sequence in s.sequences:
                sequence.text = self.model.tokenizer.decode(sequence.tokens) if self.model.tokenizer else None
        return [BeamSearchOutput(s.sequences) for s in searches]

    def _needs_texts(self, op):
        if self.engine is None:
            raise ValueError(f"{op}: the model makes embeddings; got {self.model!r}; expected one that writes texts; hint: embed()")

    def _prompt(self, prompt):
        """A text (or None) and token ids, whose number is not checked yet."""
        text = _text_or_ids("generate", prompt)
        if isinstance(text, str):
            return text, self.model._needed("generate", self.model.tokenizer, "tokenizer").encode(text)
        return None, self.model._numbers("generate", text)

    def _read(self, ids, params):
        """The ids of a prompt that are read, which the model has room for. ValueError."""
        ids = last_tokens(ids, params.truncate_prompt_tokens, self.engine.max_model_len - (params.max_tokens or 1))
        return self.model._ids("generate", ids)

    def _conversations(self, conversations, tools=None, add_generation_prompt=True, continue_final_message=False, chat_template_kwargs=None):
        """What _write() takes of conversations: no text, and token ids."""
        names = {**(chat_template_kwargs or {}), "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message, **({"tools": list(tools)} if tools else {})}
        return [(None, self.model.chat_ids(messages, **names)) for messages in conversations]

    def _text_of(self, id):
        t = self.model.tokenizer
        return t.token_bytes(id, False).decode("utf-8", "replace") if t and id < t.vocab_size else None

    def _lora_names(self, given, count):
        """The name of the adapter of each prompt, or None. Adapters that the engine does not have are loaded."""
        given = list(given) if isinstance(given, (list, tuple)) else [given] * count
        if len(given) != count:
            raise ValueError(f"generate: the adapters do not fit; got {len(given)} lora_request for {count} prompts; expected one for all, or one for each")
        for g in given:
            if isinstance(g, LoRARequest):
                self.engine.add_lora(g.lora_name, g.lora_path)
            elif g is not None and not isinstance(g, str):
                raise TypeError(f"generate: lora_request is of the wrong type; got {type(g).__name__}; expected a LoRARequest, a name or None")
        return [g.lora_name if isinstance(g, LoRARequest) else g for g in given]

    @staticmethod
    def _priorities(given, count):
        """The priority of each prompt."""
        if given is None:
            return [0] * count
        if not isinstance(given, (list, tuple)) or not all(isinstance(p, int) and not isinstance(p, bool) for p in given):
            raise TypeError(f"generate: priority is of the wrong type; got {given!r}; expected a list of whole numbers")
        if len(given) != count:
            raise ValueError(f"generate: the priorities do not fit; got {len(given)} priority for {count} prompts; expected one for each")
        return given

    def _write(self, prompts, params, progress, lora=None, call=None, priority=None):
        """The RequestOutput of prompts, which are pairs of a text (or None) and token ids. call: the _Call to write them in, of another thread that watches or cancels it."""
        call = call or _Call(self)
        params = self.get_default_sampling_params() if params is None else params
        params = list(params) if isinstance(params, (list, tuple)) else [params] * len(prompts)
        if len(params) != len(prompts):
            raise ValueError(f"generate: the settings do not fit; got {len(params)} sampling_params for {len(prompts)} prompts; expected one for all, or one for each")
        for p in params:
            if not isinstance(p, SamplingParams):
                raise TypeError(f"generate: sampling_params is of the wrong type; got {type(p).__name__}; expected SamplingParams")
            if p.stop or p.bad_words:
                self.model._needed("generate", self.model.tokenizer, "tokenizer")
        jobs, writings = [], []
        priorities = self._priorities(priority, len(prompts))
        for place, ((text, ids), p, name) in enumerate(zip(prompts, params, self._lora_names(lora, len(prompts)))):
            job = RequestOutput(text, self._read(ids, p), [CompletionOutput(i, logprobs=None if p.logprobs is None else [], cumulative_logprob=None if p.logprobs is None and not p._chooses else 0.0)
                                            for i in range(p.best_of or p.n)], request_id=str(next(self._numbers)))
            jobs.append(job)
            writings += [_Writing(call, place, job, output, p, name, priorities[place]) for output in job.outputs]
        try:
            for w in writings:
                call.submit(w)
            call.wait(len(writings), progress and sys.stderr.isatty())
        except BaseException:
            call.stop()
            raise
        finally:
            call.forget()
        for job, p in zip(jobs, params):
            job.finished = all(o.finish_reason != "cancelled" for o in job.outputs)
            job.num_generation_tokens = sum(len(o.token_ids) for o in job.outputs)
            if p._chooses:
                job.outputs = sorted(job.outputs, key=lambda o: -o.cumulative_logprob)[: p.n]
                for i, output in enumerate(job.outputs):
                    output.index = i
        return jobs
