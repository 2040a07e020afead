"""Continuous batching: one thread computes a step for all running requests at a time, and requests begin and end between steps.

A step has a budget of tokens. Requests that write take one each; what is left goes to prompts, in parts if need be (chunked prefill, arXiv:2308.16369).
Keys and values lie in blocks (arXiv:2309.06180): texts with the same beginning share them, and where they run short, the request that came last
gives up its own and is computed again later. docs/language-models.md describes it.

An Engine is one class in four files, each of which uses those before it: its memory (_engine_cache.py), what a step computes (_engine_schedule.py), the steps (_engine_steps.py), and this one: how an
engine is made, what other threads call, and the loop of its thread. A fifth file, _engine_warm_up.py, has the steps of no text that it computes before there are requests."""
from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import threading
import weakref

from . import _attention_backend, _kv_cache_gate
from ._beams import Beams, BeamSearchParams
from ._engine_cache import cache_bytes_of_share, default_texts
from ._engine_steps import STEP_TOKENS, Steps
from ._engine_warm_up import WarmUp, sizes_of
from ._kv_cache import check_name
from ._lora import Adapters, read_adapter
from ._offload import check as check_offload
from ._paged import BLOCK, Part, block_bytes
from ._queue import Queue
from ._request import Finished, PromptLogprobs, Request, Token  # noqa: F401: Token is a name of this module for others
from ._speculation import SpeculativeConfig, draft_model

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Any

    from .._annotations import TensorLike
    from .language_model import LanguageModel
    from .sampling import Sampling

_log = logging.getLogger("pyflame.llm")
END_SECONDS = 10.0  # that close(drain=False) gives the other ranks to end the step that runs
CHUNKS = (128, 64, 32, 16)  # sizes of a prompt's parts with batch_invariant


class EngineFull(RuntimeError):
    """A RuntimeError: the queue of an engine has reached its limit, max_waiting requests. submit() raises it; the request was not taken, and may be sent
    again later.
    """


_engines = weakref.WeakSet()


@atexit.register
def _close_all():
    for engine in list(_engines):
        if engine._pid == os.getpid():  # a fork has no such thread
            engine.close(drain=False)


class Engine(Steps):
    """Writes many texts at once with one LanguageModel, on a thread of its own, which close() or `with` ends.

    max_num_seqs: the most requests that run at a time (default: 8, on a GPU 64). max_num_batched_tokens: the most tokens of a step. max_model_len: the most tokens of a text with its
    prompt (default: the model's context, or what the cache has room for). kv_cache_bytes: memory for keys and values (default: what max_num_seqs texts of
    max_model_len need, but at most 1 GiB, or what one text needs if that is more; on a GPU at most three quarters of its free memory). max_waiting: the most requests that wait.

    batch_invariant: a request with a seed gives the same bits alone and in any batch, because each token is computed in a product of the same shape always.
    Without it, products have as many rows as the step needs; their results, and so logits, may differ in the last bits from batch to batch.
    speculative_config: how tokens are guessed, a SpeculativeConfig or a dict; None: not at all. lora_modules: a dict of names and PEFT's folders.
    swap_space: GiB of host memory for the keys and values of requests that are preempted, as long as they wait. The rest of it keeps beginnings of earlier texts that had to leave the device. What finds no room
    there is computed again.
    kv_cache_dtype: what keys and values are stored as, by vLLM's names: 'auto', the model's dtype; 'fp8' or 'fp8_e4m3', 'fp8_e5m2', 'int8': 8 bits, rounded with a float32 scale for each token
    and head, so that the cache has room for more tokens. 8-bit floats have the format of the device (pf.float8.formats). It holds for a draft model, too.
    kv_cache_gate: how much worse such a cache may make the perplexity of a short text, as a part of it, or None. It is measured when the engine begins, and logged; the text is read twice for that.
    attention_backend: 'auto', or the name of the implementation of the op paged_attention that computes attention over pages for tokens that are written, as pf.tuning.force takes it
    ('reference', 'gpu.paged_attention'). It holds for the whole process until the engine is closed, so all engines that are open have the same. stats() has what is used.
    kv_cache_check then has the numbers: a CacheCheck with kv_cache_dtype, tokens, auto and perplexity (with 'auto' and with this dtype), change and seconds, otherwise None.
    cpu_offload_gb: GiB of weights that lie in host memory, as of pf.llm.load; of each process. A model that is loaded already is moved there: where the GPU has no room for it at first, it is for pf.llm.load,
    LLM or `pyflame serve`. 0: the model stays as it is.
    tensor_parallel_size: the number of processes that compute each step together (_workers.py), each with its part of the weights, and with the keys and values of its heads; swap_space and
    kv_cache_bytes are those of each process. The others are started here and read the files that pf.llm.load has read; engine.model has this process's part, and only the engine computes with it.
    warm_up: on a GPU, whether the engine computes steps of all sizes that writing texts takes, of no text, as long as it has no requests. A step of a size that was not there before waits until its
    program is planned. A request that comes meanwhile waits for one of them.
    gpu_memory_utilization: instead of kv_cache_bytes, on a GPU: keys and values take this share of the GPU's whole memory, above 0 and at most 1, less all that is in use there when the engine begins: the
    weights, and what other processes hold. What steps compute takes the rest. They take no more than max_num_seqs texts of max_model_len need.
    enable_prefix_caching: False: nothing that was computed for one request is used for another.
    On a GPU, engines of several processes with one cache folder (PYFLAME_CACHE_DIR) take their keys and values in turns, so that each sees what is left; a turn of more than 30 s is a warning of the log.
    ValueError for arguments out of range, a cache that is too small and one that kv_cache_gate refuses, and an attention_backend that does not exist for the device;
    NotImplementedError for one that cannot compute attention of this model; MemoryError."""

    def __init__(self, model: LanguageModel, max_num_seqs: int | None = None, max_num_batched_tokens: int = 512, max_model_len: int | None = None,
                 kv_cache_bytes: int | None = None, *, max_waiting: int = 1024, batch_invariant: bool = False,
                 speculative_config: SpeculativeConfig | dict[str, Any] | None = None, lora_modules: dict[str, Any] | None = None, swap_space: float = 0,
                 tensor_parallel_size: int = 1, kv_cache_dtype: str = "auto", kv_cache_gate: float | None = _kv_cache_gate.DEFAULT,
                 attention_backend: str = "auto", cpu_offload_gb: float = 0, warm_up: bool = True, gpu_memory_utilization: float | None = None,
                 enable_prefix_caching: bool = True) -> None:
        offload_bytes = check_offload("Engine", cpu_offload_gb)
        check_name("Engine", kv_cache_dtype)
        _attention_backend.check_name("Engine", attention_backend)
        _kv_cache_gate.check_limit("Engine", kv_cache_gate)
        for name, value, low in (("max_num_seqs", max_num_seqs, 1), ("max_num_batched_tokens", max_num_batched_tokens, 1), ("max_model_len", max_model_len, 1), ("kv_cache_bytes", kv_cache_bytes, 1),
                                 ("max_waiting", max_waiting, 1), ("tensor_parallel_size", tensor_parallel_size, 1)):
            if (value is None and name not in ("max_num_seqs", "max_model_len", "kv_cache_bytes")) or (value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low)):
                raise ValueError(f"Engine: {name} is out of range; got {value!r}; expected a whole number from {low} upwards")
        if isinstance(swap_space, bool) or not isinstance(swap_space, (int, float)) or not 0 <= swap_space < 1 << 20:
            raise ValueError(f"Engine: swap_space is out of range; got {swap_space!r}; expected a number of GiB from 0 upwards")
        share = gpu_memory_utilization
        if share is not None and (isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1):
            raise ValueError(f"Engine: gpu_memory_utilization is out of range; got {share!r}; expected a number above 0, at most 1")
        if share is not None and kv_cache_bytes is not None:
            raise ValueError(f"Engine: kv_cache_bytes and gpu_memory_utilization exclude each other; got {kv_cache_bytes} and {share}; expected one of them")
        if not isinstance(enable_prefix_caching, bool):
            raise TypeError(f"Engine: enable_prefix_caching is of the wrong type; got {enable_prefix_caching!r}; expected True or False")
        self.enable_prefix_caching = enable_prefix_caching
        if max_num_seqs is not None and max_num_batched_tokens < max_num_seqs:
            raise ValueError(f"Engine: a step has no room for all requests; got max_num_batched_tokens {max_num_batched_tokens} and max_num_seqs {max_num_seqs}; expected at least as many tokens")
        self._pid, self._failure, self._has_lost_rank = os.getpid(), None, False
        self._wake, self._closing = threading.Condition(), None  # closing: None, 'drain' or 'cancel'
        self._workers, self.kv_cache_dtype, self.kv_cache_gate, self.kv_cache_check = None, kv_cache_dtype, kv_cache_gate, None
        self.attention_backend, self._warms_up = attention_backend, bool(warm_up)
        if tensor_parallel_size > 1:
            if getattr(model, "source", model) is None:
                raise ValueError(f"Engine: the other processes cannot read the model; got tensor_parallel_size {tensor_parallel_size} and {model!r}, which is of no file; expected a model of pf.llm.load")
            source = getattr(model, "source", model)
            from ._workers import Workers

            self._workers = Workers(dataclasses.replace(source, cpu_offload_gb=cpu_offload_gb or source.cpu_offload_gb), tensor_parallel_size, self._lost_rank)
            model = self._workers.model
            self._workers.send("attention_backend", attention_backend)
        else:
            model._network.offload(offload_bytes)
        is_held = False
        try:
            _attention_backend.hold(attention_backend)
            is_held = True
            self._make(model, max_num_seqs, max_num_batched_tokens, max_model_len, kv_cache_bytes, share, max_waiting, batch_invariant, speculative_config, lora_modules, swap_space)
        except BaseException:
            if is_held:
                _attention_backend.release(attention_backend)
            if self._workers is not None:
                self._workers.close()
            raise
        self._thread = threading.Thread(target=self._work, name="pyflame.llm.Engine", daemon=True)
        self._thread.start()
        _engines.add(self)

    def _make(self, model, max_num_seqs, max_num_batched_tokens, max_model_len, kv_cache_bytes, share, max_waiting, batch_invariant, speculative_config, lora_modules, swap_space):
        context = model.config.context
        if max_model_len is not None and max_model_len > context:
            raise ValueError(f"Engine: max_model_len is out of range; got {max_model_len}; expected at most the model's context of {context}")
        self._network = model._network
        if max_num_seqs is None:
            max_num_seqs = min(default_texts(self._network.device), max_num_batched_tokens)
        self.model, self.max_num_seqs, self.max_num_batched_tokens, self.max_waiting = model, max_num_seqs, max_num_batched_tokens, max_waiting
        self._swap_count = int(swap_space * (1 << 30)) // block_bytes(self._network, self.kv_cache_dtype)
        self._swap_blocks = self._swap_count  # less those that preempted requests have copied themselves; contents of known blocks take what these leave
        self.speculative_config = SpeculativeConfig.of(speculative_config)
        if self.speculative_config and batch_invariant:
            raise ValueError("Engine: speculative_config and batch_invariant exclude each other; got both; expected one of them, because guesses change the shapes of products")
        draft = draft_model(self.speculative_config, model)
        self._draft = draft and draft._network
        self._adapters = None
        if lora_modules:
            self._set_adapters([read_adapter(name, path, self._network) for name, path in lora_modules.items()])
        with self._turn():
            if share is None:
                self._pages_of(max_model_len, kv_cache_bytes, f"kv_cache_bytes {kv_cache_bytes}")
            else:
                bytes = cache_bytes_of_share(self._network.device, share)
                self._pages_of(max_model_len, bytes, f"gpu_memory_utilization {share}, which is {bytes} bytes")
        self.batch_invariant, self._rows, self._chunk = batch_invariant, None, None
        if batch_invariant:
            self._chunk = next((c for c in CHUNKS if c <= max_num_batched_tokens), CHUNKS[-1])
            self._rows = self._invariant_rows()
        self._warm_up = WarmUp(sizes_of(self) if self._warms_up else ())
        self._waiting, self._running = Queue(), []  # those that run are sorted
        self._ending = {}
        self._cannot_schedule = False  # whether the last attempt has failed
        self._totals = dict.fromkeys(("prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries", "prefix_cache_hits", "preemptions_total", "iteration_tokens_total"), 0)
        self._step_sizes = [0] * (len(STEP_TOKENS) + 1)  # how many steps had so many tokens
        if self._swap_count:
            self._totals.update({"swapped_out_tokens_total": 0, "swapped_in_tokens_total": 0, "cpu_prefix_cache_hits": 0})
        self._accepted = []
        if self.speculative_config:
            self._totals.update(dict.fromkeys(("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"), 0))
            self._accepted = [0] * self.speculative_config.num_speculative_tokens

    def _lost_rank(self):
        """A worker has ended by itself. The engine's thread says so to all requests."""
        with self._wake:
            self._has_lost_rank = True
            self._wake.notify_all()

    def _set_adapters(self, adapters):
        if self._workers is not None:
            self._workers.adapters(adapters)
        self._adapters = Adapters(self._network, adapters)

    def _is_idle(self):
        return not (self._waiting or self._running or self._closing or self._has_lost_rank)

    def _invariant_rows(self):
        """The number of rows of a writing step: the smallest in which all rows of all products get the same bits, by a test on this machine."""
        if self._network.experts_depend_on_batch():
            raise NotImplementedError("Engine: batch_invariant is not available here; got a mixture of experts of float weights, whose products on a CPU depend on how many tokens an expert has; "
                                      "expected packed weights; hint: batch_invariant=False")
        tried = []
        blocks = self._blocks.take(1)
        try:
            for unit in (1, 4, 8, 12, 16, 24, 48):
                rows = -(-self.max_num_seqs // unit) * unit
                if rows in tried:
                    continue
                tried.append(rows)
                token = 7 % self.model.config.vocab
                logits = self._new_step([Part([token], 0, blocks, True) for _ in range(rows)], rows, rows).run()
                if (logits == logits[0]).all():
                    return rows
        finally:
            self._blocks.release(blocks)
        raise NotImplementedError(f"Engine: batch_invariant is not available here; got products whose rows differ in their last bits, with each of {tried} rows; expected one number of rows in which "
                                  "they are equal; hint: batch_invariant=False")

    # What other threads call.

    def add_lora(self, name: str, path: str | os.PathLike[str]) -> None:
        """Adds an adapter (PEFT's folder) under a name, for requests that come from now on. A name that is there already stays what it is. OSError, ValueError."""
        if name in self.lora_names:
            return
        adapter = read_adapter(name, path, self._network)
        with self._wake:
            if name in self.lora_names:  # another thread has added it meanwhile
                return
            self._set_adapters([*(self._adapters.adapters if self._adapters else []), adapter])

    @property
    def has_failed(self):
        """Whether the engine has ended by itself, after an error that it cannot go on from."""
        return self._failure is not None

    @property
    def lora_names(self):
        """The names of the adapters that requests can ask for, a list of str in the order in which they were added."""
        return [a.name for a in self._adapters.adapters] if self._adapters else []

    def submit(self, prompt_ids: str | TensorLike, sampling: Sampling | None = None, max_tokens: int = 256, *, stop_ids: Iterable[int] | None = None,
               logprobs: int | None = None, prompt_logprobs: int | None = None, priority: int = 0, client: Hashable = None, lora: str | None = None,
               receive: Callable[[Any], object]) -> Request:
        """Puts a request into the queue. Returns a Request at once.

        prompt_ids: token ids, or a text; sampling: a Sampling (default: the files' settings); stop_ids: tokens that end the text (default: the model's);
        logprobs: None, or from 0 to 20: each Token has its logprob and so many likeliest tokens; prompt_logprobs: None, or from 0 to 20: the first event, a Token or
        the Finished, has the log probabilities of the prompt's tokens and so many likeliest tokens for each; nothing that was computed for other requests is used then; priority: requests with a
        lower number go first, equal ones in turn over their clients, and of one client in the order of their coming; client: for whom the request is, any key of a dict; lora: the name of an
        adapter; receive(event) is called on the engine's thread, which waits for it: with a Token for each new token, and once with a
        Finished. An exception that it raises ends this request alone. ValueError, TypeError; EngineFull where max_waiting requests wait; RuntimeError after close()."""
        ids = self._prompt("generate", prompt_ids, priority, client, lora, receive)
        sampling, sampler, stops = self._settings(sampling, max_tokens, stop_ids, logprobs, prompt_logprobs)
        of_prompt = None if prompt_logprobs is None else PromptLogprobs(ids, prompt_logprobs, self._known)
        request = Request(ids, sampling, sampler, max_tokens, stops, logprobs, priority, receive, self._adapter_number(lora), client, of_prompt)
        self._enqueue("generate", request)
        return request

    def submit_beams(self, prompt_ids: str | TensorLike, params: BeamSearchParams, *, priority: int = 0, client: Hashable = None, lora: str | None = None,
                     receive: Callable[[Any], object]) -> Beams:
        """Puts a beam search into the queue. Returns a Beams at once. Its beams are requests of this engine: each takes a place of max_num_seqs while it is computed,
        they share the blocks of their common beginning, and beams without a place or blocks wait.

        params: a BeamSearchParams; receive(event) is called on the engine's thread, once, with a Finished: 'stop' or 'length', by the best sequence, or 'cancelled' or
        'error'. The Beams has the sequences then. prompt_ids, priority, client, lora and errors are as in submit().

            ended = threading.Event()
            search = engine.submit_beams("the window", pf.llm.BeamSearchParams(beam_width=4, max_tokens=8), receive=lambda event: ended.set())
            ended.wait()
            print(search.finished.reason, search.sequences[0].tokens)"""
        ids = self._prompt("beam_search", prompt_ids, priority, client, lora, receive)
        if not isinstance(params, BeamSearchParams):
            raise TypeError(f"beam_search: params is of the wrong type; got {type(params).__name__}; expected BeamSearchParams")
        beams = Beams(self, ids, params, frozenset() if params.ignore_eos else self.model.end_ids, receive)
        first = Request(ids, None, None, params.max_tokens, beams.end_ids, 0, priority, beams._member_ended, self._adapter_number(lora), client)
        first._beams, first._logprob = beams, 0.0
        beams._requests = [first]
        self._enqueue("beam_search", first)
        return beams

    def _adapter_number(self, name):
        return None if name is None else self.lora_names.index(name)

    def _enqueue(self, op, request):
        if os.getpid() != self._pid:
            raise RuntimeError(f"{op}: the engine has no thread here; got a process that fork() made; expected the one that made the engine; hint: make an engine after the fork")
        with self._wake:
            if self._failure:
                raise RuntimeError(f"{op}: the engine is closed; got a request after it had failed: {self._failure}; expected another engine")
            if self._closing:
                raise RuntimeError(f"{op}: the engine is closed; got a request after close(); expected it before")
            if len(self._waiting) >= self.max_waiting:
                raise EngineFull(f"{op}: the engine's queue is full; got {len(self._waiting)} requests that wait; expected fewer than max_waiting; hint: try again later")
            self._waiting.add(request)
            if len(request.ids) >= self._limit(request) and not request._reads_prompt:
                self._end_soon(request)
            self._wake.notify_all()

    def cancel(self, request: Request | Beams) -> None:
        """Ends a request or a beam search with the reason 'cancelled', at the latest after the step that runs now. Nothing happens if it has ended already."""
        with self._wake:
            if request.finished is not None:
                return
            request._cancelled = request._cancelled or Finished("cancelled")
            for r in request._requests:
                self._end_soon(r, request._cancelled)
            self._wake.notify_all()

    def close(self, drain: bool = True) -> None:
        """Ends the engine. It takes no more requests. drain: those that it has are finished first; otherwise they end with the reason 'cancelled'. Waits for
        the engine's thread, unless that thread calls. A second call with drain=False ends a first one that waits."""
        with self._wake:
            if self._closing != "cancel":
                self._closing = "drain" if drain else "cancel"
            self._wake.notify_all()
        if threading.current_thread() is not self._thread and os.getpid() == self._pid:
            if not drain and self._workers is not None:
                self._thread.join(END_SECONDS)
                if self._thread.is_alive():
                    self._workers.kill()  # a step waits for a rank that hangs
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(drain=kind is None)

    def stats(self) -> dict[str, Any]:
        """A dict: num_requests_running, num_requests_waiting; kv_cache_usage: the share of the blocks that requests hold, 0 to 1; prompt_tokens_total,
        generation_tokens_total; prefix_cache_queries and prefix_cache_hits, tokens of prompts that were looked up and found; preemptions_total; attention_backend and attention_backend_reason: the implementation of attention over pages, a text (None within pf.explain), and why it is that one. With swap_space also
        cpu_cache_usage, the share of that memory that preempted requests hold, swapped_out_tokens_total and swapped_in_tokens_total, and cpu_prefix_cache_hits, those of prefix_cache_hits that were copied from there. Also
        kv_cache_perplexity and kv_cache_perplexity_auto where kv_cache_gate has measured them. iteration_tokens_total and iteration_tokens_counts: the tokens of all steps, and a list of how many steps had at most
        1, 8, 16, 32 and so on up to 16384 tokens, but more than the number before, and how many had more; cache_config: a dict of what the cache is (block_size, num_gpu_blocks, cache_dtype, enable_prefix_caching). With speculative_config also spec_decode_num_drafts (steps with guesses), _num_draft_tokens and _num_accepted_tokens, and _num_accepted_tokens_per_pos, a list."""
        with self._wake:
            found = {"num_requests_running": len(self._running), "num_requests_waiting": len(self._waiting), "kv_cache_usage": self._blocks.used / self._blocks.count, **self._totals,
                     "attention_backend": self._backend[0], "attention_backend_reason": self._backend[1], "iteration_tokens_counts": list(self._step_sizes),
                     "cache_config": {"block_size": BLOCK, "num_gpu_blocks": self._blocks.count, "cache_dtype": self.kv_cache_dtype, "enable_prefix_caching": self.enable_prefix_caching}}
            if self._swap_count:
                found["cpu_cache_usage"] = self._swapped_share()
            if self.kv_cache_check is not None:
                found.update(kv_cache_perplexity=self.kv_cache_check.perplexity, kv_cache_perplexity_auto=self.kv_cache_check.auto)
            return {**found, "spec_decode_num_accepted_tokens_per_pos": list(self._accepted)} if self._accepted else found

    def __repr__(self):
        s = self.stats()
        return f"Engine({self.model!r}, {s['num_requests_running']} running, {s['num_requests_waiting']} waiting)"

    # The engine's thread. Only it changes running requests and blocks. It begins and ends requests, and takes and releases blocks, under the lock _wake, because stats() counts them.

    def _work(self):
        try:
            while self._step():
                pass
        except BaseException as e:  # such as no memory for new blocks after a failed step: nobody may wait for ever
            self._failure = f"{type(e).__name__}: {e}"
            with self._wake:
                self._closing, left = "cancel", [*self._running, *self._waiting]
                self._running, self._waiting, self._ending = [], Queue(), {}
                self._blocks.clear()
            for r in left:
                r._clear()
                self._deliver(r, Finished("error", f"the engine has failed: {self._failure}"))
            _log.error("the engine has failed: %s", self._failure)
            if not isinstance(e, Exception):
                raise
        finally:
            _attention_backend.release(self.attention_backend)
            if self._workers is not None:
                self._workers.close()

    def _step(self):
        """Waits for work and does a step. False where the engine is closed and nothing is left."""
        with self._wake:
            while self._is_idle() and not self._warm_up.left:
                self._wake.wait()
            lost, idle = self._has_lost_rank, self._is_idle()
        if lost:
            raise self._workers.failure(None)
        if idle:
            try:
                self._warm_up.compute_next(self)
            except Exception as e:
                self._failed([], e)
            return True
        self._warm_up.let_go()
        with self._wake:
            ended, passes, error = self._take_ended(), [], None
            try:
                passes = self._schedule()
            except Exception as e:  # such as no memory to copy blocks
                if self._cannot_schedule:
                    raise  # it was so with new blocks, too
                error = e
            done = self._closing and not (self._waiting or self._running)
        for r, finished in ended:
            self._deliver(r, finished)
        self._cannot_schedule = error is not None
        if error is not None:
            self._failed([], error)
        for parts in passes:
            if not self._compute(parts):
                break
        return not done
