"""Continuous batching: one thread computes a step for all running requests at a time, and requests begin and end between steps.

A step has a budget of tokens. Requests that write take one each; what is left goes to prompts, in parts if need be (chunked prefill, arXiv:2308.16369).
Keys and values lie in blocks (arXiv:2309.06180): texts with the same beginning share them, and where they run short, the request that came last
gives up its own and is computed again later. docs/language-models.md describes it."""
from __future__ import annotations

import atexit
import bisect
import collections
import contextlib
import dataclasses
import itertools
import logging
import math
import os
import threading
import time
import weakref

from .. import _C, memory
from . import _attention_backend, _kv_cache_gate, _memory_turn
from ._beams import Beams, BeamSearchParams, advance
from ._blocks import Blocks
from ._choice import LIKELIEST, Choices, Row
from ._intake import Intake
from ._kv_cache import check_name
from ._lora import Adapters, read_adapter
from ._network import _on_gpu
from ._offload import check as check_offload
from ._paged import BLOCK, WASTE, Pages, Part, Size, Step, block_bytes, coarsely_rounded, reading_sizes, step_sizes, writing_sizes
from ._queue import Queue
from ._request import Finished, PromptLogprobs, Request, Token
from ._speculation import NGrams, SpeculativeConfig, draft_model

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Any

    from .._annotations import TensorLike
    from .language_model import LanguageModel
    from .sampling import Sampling

DEFAULT_BYTES = 1 << 30  # the most that a cache of keys and values has by default, if one text fits
FREE_SHARE = 0.75  # on a GPU it may have this share of what is free there; the rest is for what steps compute, and for other programs
_log = logging.getLogger("pyflame.llm")
END_SECONDS = 10.0  # that close(drain=False) gives the other ranks to end the step that runs
CHUNKS = (128, 64, 32, 16)  # sizes of a prompt's parts with batch_invariant
PROMPT_ROWS = 256  # tokens of prompts whose log probabilities a step finds at most: each has float32 logits over the vocabulary


def default_texts(device):
    """max_num_seqs where nobody says it. A GPU takes hardly longer for a step of 64 texts than for one of 8: it reads the weights once for all."""
    return 64 if _on_gpu(device) else 8


def default_cache_bytes(device):
    """The most bytes that keys and values take where nobody says how many: 1 GiB, or on a GPU FREE_SHARE of what is free there, if that is more."""
    if not _on_gpu(device):
        return DEFAULT_BYTES
    now = memory.stats(device)
    free = now["free"] + now["cached"]
    if now["limit"]:
        free = min(free, now["limit"] - now["allocated"])
    return max(DEFAULT_BYTES, int(FREE_SHARE * free))


def cache_bytes_of_share(device, share):
    """The bytes of gpu_memory_utilization: this share of the device's memory, or of the process's limit, less what is in use there. ValueError where nothing is left, and on a CPU."""
    if not _on_gpu(device):
        raise ValueError(f"Engine: gpu_memory_utilization is the share of a GPU's memory; got {share} and the device {device}; expected a GPU; hint: kv_cache_bytes")
    now = memory.stats(device)
    used = now["total"] - now["free"] - now["cached"]
    most = min(share * now["total"] - used, share * now["limit"] - now["allocated"] if now["limit"] else math.inf)
    if most <= 0:
        raise ValueError(f"Engine: gpu_memory_utilization leaves nothing for keys and values; got {share} of {now['total']} bytes, of which {used} are in use; expected a larger share, or more that is free")
    return int(most)


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


def _goes_on_alone(r):
    """Whether the device can choose the token after the next one before the host knows the next one."""
    return r._beams is None and r._candidates is None and not r._sampler.needs_the_token_before and not r._reads_prompt


def _places(parts):
    """For each part of a pass, the place of its token among those that the pass finds, or None."""
    places = itertools.count()
    return [next(places) if p.wanted else None for _, p in parts]


STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)  # bounds of how many tokens a step computes, for stats()
WARM_UP_READS = 1 << 14  # tokens of the longest prompt whose steps an engine warms up with: those of longer ones take much longer than to plan them
# How the steps of one size choose a token that warm the engine up: the likeliest one, or a drawn one. After six runs a program becomes a graph, whose first replay is compared with a run.
# The first run takes the tokens of another size, which is a program of its own, so nine are needed.
WARM_UP_SETTINGS = (LIKELIEST, (1.0, 0, 1.0, 0.0, 0.5)) * 5


class Engine(Intake):
    """Writes many texts at once with one LanguageModel, on a thread of its own, which close() or `with` ends.

    max_num_seqs: the most requests that run at a time (default: 8, on a GPU 64). max_num_batched_tokens: the most tokens of a step. max_model_len: the most tokens of a text with its
    prompt (default: the model's context, or what the cache has room for). kv_cache_bytes: memory for keys and values (default: what max_num_seqs texts of
    max_model_len need, but at most 1 GiB, or what one text needs if that is more; on a GPU at most three quarters of its free memory). max_waiting: the most requests that wait.

    batch_invariant: a request with a seed gives the same bits alone and in any batch, because each token is computed in a product of the same shape always.
    Without it, products have as many rows as the step needs; their results, and so logits, may differ in the last bits from batch to batch.
    speculative_config: how tokens are guessed, a SpeculativeConfig or a dict; None: not at all. lora_modules: a dict of names and PEFT's folders.
    swap_space: GiB of host memory for the keys and values of requests that are preempted. The rest of it keeps beginnings of earlier texts that had to leave the device. What finds no room there is computed
    again.
    kv_cache_dtype: what keys and values are stored as, by vLLM's names: 'auto', the model's dtype; 'fp8' or 'fp8_e4m3', 'fp8_e5m2', 'int8': 8 bits, rounded with a float32 scale for each token
    and head, so that the cache has room for more tokens. It holds for a draft model, too.
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
        self._shares_beginnings = enable_prefix_caching
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
        self._swap_blocks = int(swap_space * (1 << 30)) // block_bytes(self._network, self.kv_cache_dtype)  # that no preempted request has in host memory; known beginnings take what they leave
        self._swap_count = self._swap_blocks
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
        self._to_warm_up, self._warm_ids, self._warm_step = collections.deque(self._sizes_to_warm_up()), None, None
        self._waiting, self._running = Queue(), []  # those that run are sorted
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

    def _new_step(self, parts, rows, logits_rows, found=None, start=None):
        """A Step of the model, in which all ranks take part."""
        if self._workers is not None:
            return self._workers.step(self._network, self._pages, parts, rows, logits_rows, self._adapters, found, start)
        return Step(self._network, self._pages, parts, rows, logits_rows, self._adapters, found)

    @contextlib.contextmanager
    def _turn(self):
        """On a GPU, the time in which only this process looks at the memory and takes its part. At the end what it takes is allocated."""
        device = self._network.device
        if not _on_gpu(device):
            yield
            return
        with _memory_turn.turn(device, _C.device_info(str(device)).get("pci")):
            _C.synchronize()  # the weights are where they belong
            yield
            _C.synchronize()

    def _pages_of(self, max_model_len, kv_cache_bytes, asked):
        """Takes the memory for keys and values. asked: how kv_cache_bytes was said, for the error."""
        bytes_each = sum(block_bytes(network, self.kv_cache_dtype) for network in (self._network, self._draft) if network)
        length = max_model_len or self.model.config.context
        one = -(-length // BLOCK)
        if kv_cache_bytes is None:
            least = one if max_model_len or not _on_gpu(self._network.device) else 1  # a CPU's memory is taken as it is written
            count = min(one * self.max_num_seqs, max(least, default_cache_bytes(self._network.device) // bytes_each))
        else:
            count = kv_cache_bytes // bytes_each - 1  # one block is for rows without a token
            if count < (1 if max_model_len is None else one):
                raise ValueError(f"Engine: the cache is too small; got {asked}; expected at least {(2 if max_model_len is None else one + 1) * bytes_each} "
                                 f"for one text of {BLOCK if max_model_len is None else length} tokens")
            count = min(count, one * self.max_num_seqs)
        self.max_model_len = min(length, count * BLOCK)
        if self.max_model_len < length:
            _log.info("texts have at most %d tokens, because keys and values of more do not fit into the cache; the model's context is %d", self.max_model_len, length)
        self._blocks = Blocks(count, BLOCK, first=1, save=self._save_evicted if self._swap_count and self._shares_beginnings else None)
        self._backend = _attention_backend.measured(self._network, self._new_pages(1, self.kv_cache_dtype), self.attention_backend)
        if self._draft:
            _attention_backend.measured(self._draft, Pages(self._draft, 1, self.kv_cache_dtype), self.attention_backend)
        if self.attention_backend != "auto":
            _log.info("attention over pages: %s", self._backend[0])
        if self.kv_cache_dtype != "auto" and self.kv_cache_gate is not None:
            self._check_cache()
        self._make_pages()

    def _new_pages(self, count, kv_cache_dtype, longest=1):
        return (Pages if self._workers is None else self._workers.pages)(self._network, count, kv_cache_dtype, longest, self._room())

    def _room(self):
        """How many texts a step with a part of a prompt has room for at least. On a GPU some more rows cost hardly any time, but a step of another size must be planned."""
        return self.max_num_seqs if _on_gpu(self._network.device) else 1

    def _check_cache(self):
        """Measures what the cache's dtype costs in perplexity. ValueError beyond kv_cache_gate."""
        begin, losses, ids = time.perf_counter(), [], _kv_cache_gate.ids_of(self.model, self.max_model_len)
        if len(ids) < 2:
            raise ValueError(f"Engine: kv_cache_gate cannot be measured; got {len(ids)} tokens in a text of max_model_len {self.max_model_len}; expected two at least; hint: kv_cache_gate=None")
        for name in ("auto", self.kv_cache_dtype):
            self._pages = self._new_pages(-(-len(ids) // BLOCK), name, self.max_model_len)
            losses.append(_kv_cache_gate.loss(self._new_step, ids))
        self._pages = None
        self.kv_cache_check = _kv_cache_gate.CacheCheck(self.kv_cache_dtype, len(ids) - 1, *map(_kv_cache_gate.perplexity, losses), _kv_cache_gate.change(*losses), time.perf_counter() - begin)
        _log.info("kv_cache_dtype %s: %s; measured in %.1f s", self.kv_cache_dtype, self.kv_cache_check, self.kv_cache_check.seconds)
        _kv_cache_gate.check(self.kv_cache_check, self.kv_cache_gate)

    def _make_pages(self):
        self._pages = self._new_pages(self._blocks.count, self.kv_cache_dtype, self.max_model_len)
        self._draft_pages = Pages(self._draft, self._blocks.count, self.kv_cache_dtype, self.max_model_len) if self._draft else None

    def _sizes_to_warm_up(self):
        """The sizes of the steps that are computed while there are no requests, those of short texts first. Guesses make other steps. Where weights lie in host memory, a step takes longer
        than to plan it. With batch_invariant all parts of prompts but the last ones have one number of rows."""
        if not self._warms_up or not _on_gpu(self._network.device) or self.speculative_config is not None or self._network.offloaded_bytes():
            return []
        writing = writing_sizes(self.max_num_seqs, self.max_model_len)
        if self._rows is not None:
            writing = list(dict.fromkeys(Size(self._rows, size.written) for size in writing))
        reading = reading_sizes(self._chunk or self.max_num_batched_tokens, min(self.max_model_len, WARM_UP_READS))
        if self._chunk is not None:
            reading = [size for size in reading if size.written == 0]
        return [*reading[:1], *writing, *reading[1:]]

    def _is_idle(self):
        return not (self._waiting or self._running or self._closing or self._has_lost_rank)

    def _warm_up(self, size):
        """Computes steps of a size for no text, until there is a request. Returns whether all of them were computed. What is written goes to the waste block.

        The first step takes the token that the last size has found, as where texts have ended; the second takes it from another row; those after it have each row's own."""
        for i, settings in enumerate(WARM_UP_SETTINGS):
            if not self._is_idle():
                return False
            after = None if self._warm_ids is None or not size.written else min(int(i == 1), size.rows - 1)
            parts = []
            if size.written:
                end = min(size.written * BLOCK, self.max_model_len)
                parts.append(Part([0], end - 1, [WASTE] * -(-end // BLOCK), True, after=after))
            if size.read:
                parts += self._prompts_to_warm_up(size, size.rows - len(parts))
            self._warm_ids = self._warming_step(parts, size, settings, None if after is None else self._warm_ids)
        return True

    def _prompts_to_warm_up(self, size, tokens):
        """Parts of so many tokens in all, whose tables have the size's blocks: of several prompts, where one of max_model_len has fewer."""
        parts, left = [], size.read
        while left > 0 and len(parts) < self.max_num_seqs and tokens > 1:
            end = min(left * BLOCK, self.max_model_len)
            blocks = -(-end // BLOCK)
            left -= blocks
            count = min(end, tokens if left <= 0 else 2)
            tokens -= count
            parts.append(Part([0] * count, end - count, [WASTE] * blocks, size.wanted and not size.written and left <= 0))
        return parts

    def _warming_step(self, parts, size, settings, found):
        """The tokens that a step of these parts finds, on the device."""
        logits_rows = size.rows
        if size.read:
            logits_rows = 1 if self._chunk is not None else step_sizes(parts, 1, self._room())[1]
        start = self._known, Choices([Row(settings)] * sum(p.wanted for p in parts), logits_rows, self.model.config.vocab, every=self._rows is not None)
        step = self._new_step(parts, size.rows, logits_rows, found, start)
        step.start(*start)
        step.chosen()
        self._warm_step = step  # the one before is let go now: texts, too, have the next step begun before they let go of one, and a GPU graph is made for the addresses of both
        return step.next_ids

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
            self._wake.notify_all()

    def cancel(self, request: Request | Beams) -> None:
        """Ends a request or a beam search with the reason 'cancelled', at the latest after the step that runs now. Nothing happens if it has ended already."""
        with self._wake:
            for r in [request, *request._requests]:
                r._cancelled = r._cancelled or Finished("cancelled")
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
                     "cache_config": {"block_size": BLOCK, "num_gpu_blocks": self._blocks.count, "cache_dtype": self.kv_cache_dtype, "enable_prefix_caching": self._shares_beginnings}}
            if self._swap_count:
                found["cpu_cache_usage"] = 1 - self._swap_blocks / self._swap_count
            if self.kv_cache_check is not None:
                found.update(kv_cache_perplexity=self.kv_cache_check.perplexity, kv_cache_perplexity_auto=self.kv_cache_check.auto)
            return {**found, "spec_decode_num_accepted_tokens_per_pos": list(self._accepted)} if self._accepted else found

    def __repr__(self):
        s = self.stats()
        return f"Engine({self.model!r}, {s['num_requests_running']} running, {s['num_requests_waiting']} waiting)"

    # The engine's thread. Only it changes running requests and blocks, and it does so under the lock, because stats() reads them.

    def _work(self):
        try:
            while self._step():
                pass
        except BaseException as e:  # such as no memory for new blocks after a failed step: nobody may wait for ever
            self._failure = f"{type(e).__name__}: {e}"
            with self._wake:
                self._closing, left = "cancel", [*self._running, *self._waiting]
                self._running, self._waiting = [], Queue()
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
            while self._is_idle() and not self._to_warm_up:
                self._wake.wait()
            lost, idle = self._has_lost_rank, self._is_idle()
        if lost:
            raise self._workers.failure(None)
        if idle:
            self._warm_up_next()
            return True
        self._warm_ids = self._warm_step = None  # the steps of requests come between
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

    def _warm_up_next(self):
        """Warms up for the next size. Where that fails, no further one is tried: a request that needs such a step says why it cannot be computed."""
        try:
            if self._warm_up(self._to_warm_up[0]):
                self._to_warm_up.popleft()
                if not self._to_warm_up:
                    self._warm_ids = self._warm_step = None
        except Exception as e:
            self._to_warm_up.clear()
            self._warm_ids = self._warm_step = None
            self._failed([], e)

    def _limit(self, r):
        return min(len(r.prompt_ids) + r.max_tokens, self.max_model_len)

    def _take_ended(self):
        """Removes the requests that shall end before the next step. [(request, Finished)]"""
        ended = []
        for r in [*self._running, *self._waiting]:
            end = r._cancelled
            if end is None and self._closing == "cancel":
                end = Finished("cancelled", "the engine was closed before the text was complete")
            if end is None and len(r.ids) >= self._limit(r) and not r._reads_prompt:
                end = Finished("length")  # no token is asked for, or the prompt fills the context
            if end is not None:
                self._remove(r)
                ended.append((r, end))
        return ended

    def _remove(self, r):
        (self._running if r in self._running else self._waiting).remove(r)
        self._forget_swapped(r)
        self._blocks.release(r._blocks)
        r._clear()

    # Scheduling.

    def _schedule(self):
        """What the next step computes: a list of forward passes, each a list of (request, Part). Where nothing can be computed because beams that wait for others of
        their search hold the places or blocks, the last of them gives up its own."""
        passes = self._planned()
        while not passes and self._waiting and (idle := [r for r in self._running if r._candidates is not None]):
            self._preempt(idle[-1])
            passes = self._planned()
        return passes

    def _planned(self):
        writing, chunks, budget = [], [], self.max_num_batched_tokens
        for r in list(self._running):
            if r in self._running and r._candidates is None and not self._is_chunk(r) and self._grow(r, 1):
                writing.append(self._part(r, 1))
                budget -= 1
        budget = self._reserve(writing, budget)
        for r in list(self._running):
            if r in self._running and self._is_chunk(r):
                budget = self._plan_chunk(r, budget, writing, chunks)
        while self._waiting and len(self._running) < self.max_num_seqs and budget > 0 and (admitted := self._admit()):
            budget = self._plan_chunk(admitted, budget, writing, chunks)
        if self._chunk is None:
            return [writing + chunks] if writing or chunks else []
        return ([writing] if writing else []) + [[c] for c in chunks]

    def _reserve(self, writing, budget):
        """Makes room for guesses, as far as blocks are free and the budget has tokens. Returns the rest of the budget."""
        for r, _ in writing:
            r._room = 0
            if self.speculative_config is not None and r._beams is None:
                most = min(self.speculative_config.num_speculative_tokens, self._limit(r) - len(r.ids) - 1, budget)
                needed = -(-(len(r.ids) + most) // BLOCK) - len(r._blocks) if most > 0 else 0
                if most > 0 and (taken := self._blocks.take(max(0, needed))) is not None:
                    r._blocks += taken
                    r._room = most
                    budget -= most
        return budget

    def _is_chunk(self, r):
        """Is the next part of this request a part of a prompt. With batch_invariant, what has been written is computed again as it was at first."""
        return r._computed < (len(r.ids) - 1 if self._chunk is None else len(r.prompt_ids))

    def _plan_chunk(self, r, budget, writing, chunks):
        """Adds the next part of a prompt if there is room for it. Returns the rest of the budget."""
        if self._chunk is None:
            size = min(len(r.ids) - r._computed, budget)
            if r._reads_prompt:  # each of its tokens has logits
                size = min(size, PROMPT_ROWS - sum(p.wanted for other, p in chunks if other._reads_prompt))
        else:  # parts begin at multiples of the chunk's size; a step has one at least
            size = min(self._chunk, len(r.prompt_ids) - r._computed) if budget >= self._chunk or not chunks else 0
        room = (len(r._blocks) + self._blocks.available) * BLOCK - r._computed
        if size > room and (writing or chunks):  # the others will end and leave room; if nothing else can run, _grow makes room
            size = room if self._chunk is None else 0
        if size <= 0 or not self._grow(r, size):
            return budget
        chunks.append(self._part(r, size))
        return budget - (size if self._chunk is None else self._chunk)

    def _grow(self, r, size):
        """Gives a running request blocks for `size` more tokens. Where there are none, the requests that come last give up theirs. False where that is this one."""
        needed = -(-(r._computed + size) // BLOCK) - len(r._blocks)
        while (taken := self._blocks.take(max(0, needed))) is None:
            last = self._running[-1]
            self._preempt(last)
            if last is r:
                return False
        r._blocks += taken
        return True

    def _preempt(self, r):
        """Takes the blocks and the place of a running request. It is computed again later; a beam whose candidates are known need not be."""
        count = -(-r._computed // BLOCK)
        saved = self._saved(r._blocks[:count]) if r._candidates is None and count > 0 else None
        computed = r._computed
        self._remove(r)
        if saved is not None:
            r._swapped = computed, saved
            self._swap_blocks -= count
            self._totals["swapped_out_tokens_total"] += computed
        if r._candidates is None:
            self._waiting.add(r)
        self._totals["preemptions_total"] += 1

    def _make_swap_room(self, count):
        """Whether host memory has room for so many blocks. Known beginnings make room, those that were evicted first."""
        if count > self._swap_blocks:
            return False
        while count > self._swap_blocks - self._blocks.saved_count:
            self._blocks.forget_saved()
        return True

    def _saved(self, blocks):
        """The contents of blocks in host memory, or None where there is no room for them. What is lost is computed again."""
        if not self._make_swap_room(len(blocks)):
            return None
        try:
            return self._pages.saved(blocks)
        except MemoryError as e:
            _log.warning("keys and values of %d tokens could not be copied to host memory: %s", len(blocks) * BLOCK, e)
            return None

    def _save_evicted(self, blocks):
        """The contents of blocks that are evicted. No step that has begun writes to these blocks, because no request holds them."""
        saved = self._saved(blocks)
        if saved is not None:
            self._totals["swapped_out_tokens_total"] += len(blocks) * BLOCK
        return saved

    def _hold(self, found):
        """The blocks of a known beginning, held. What was evicted is copied back."""
        blocks, restores = self._blocks.hold_found(found)
        for saved, targets, places in restores:
            self._pages.restore(targets, saved, places)
            self._totals["swapped_in_tokens_total"] += len(targets) * BLOCK
        return blocks

    def _swap_in(self, r):
        """Copies what is in host memory back, behind what was found in blocks of others. There are blocks for the whole text."""
        computed, saved = r._swapped
        begin, end = len(r._blocks), -(-computed // BLOCK)
        try:
            if end > begin:
                taken = self._blocks.take(end - begin)
                self._pages.restore(taken, saved, range(begin, end))
                self._totals["swapped_in_tokens_total"] += computed - r._computed
                r._blocks, r._computed = r._blocks + taken, computed
        finally:  # where it fails, the text is computed again
            self._forget_swapped(r)

    def _forget_swapped(self, r):
        if r._swapped is not None:
            self._swap_blocks += -(-r._swapped[0] // BLOCK)
            r._swapped = None

    def _part(self, r, size, begin=None):
        """The request's next tokens, from the first that is not computed on, or from `begin` on. Blocks that they fill are known to others from now on: the step writes them
        before anybody reads them."""
        begin = r._computed if begin is None else begin
        self._register(r, begin + size)
        return r, Part(r.ids[begin:begin + size], begin, r._blocks, r._wanted(begin, begin + size), r._adapter)

    def _register(self, r, end):
        """Says what is in the blocks that the first `end` tokens of a request fill, for requests with the same beginning."""
        if not self._shares_beginnings:
            return
        full = end if self._chunk is None else min(end, len(r.prompt_ids) // self._chunk * self._chunk)
        while (r._registered + 1) * BLOCK <= full:
            begin = r._registered * BLOCK
            r._content = self._blocks.register(r._blocks[r._registered], r._content, r.ids[begin:begin + BLOCK])
            r._registered += 1

    def _admit(self):
        """Lets the first request that waits run, if there are blocks for its text. What others have computed of its beginning is taken from them, unless it needs the logits there."""
        r, unit = self._waiting.first(), self._chunk or BLOCK
        most = len(r.ids) - 1 if self._chunk is None else len(r.prompt_ids) - 1  # the last token's logits are needed
        if r._reads_prompt:
            most = min(most, r._prompt_logprobs.read)
        looks_up = self._shares_beginnings and not r._reads_prompt
        found = self._blocks.find(r.ids, most, r._root) if self._shares_beginnings else []
        found = found[: len(found) * BLOCK // unit * unit // BLOCK]
        there = [known.block for known in found if known.block is not None]
        if -(-len(r.ids) // BLOCK) - len(there) > self._blocks.available - self._blocks.kept_among(there):
            return None
        self._waiting.begin(r)
        bisect.insort(self._running, r)  # from here on it is among the requests that an error ends or puts back
        blocks = self._hold(found)
        r._blocks, r._computed, r._registered, r._content = blocks, len(blocks) * BLOCK, len(blocks), found[-1].content if found else r._root
        if r._swapped is not None:
            self._swap_in(r)
        if r._began is None:  # and not again after it was preempted
            r._began, r.num_cached_tokens = time.monotonic(), r._computed
            if r._beams is not None and r._beams.num_cached_tokens is None:
                r._beams.num_cached_tokens = r._computed
            self._totals["prompt_tokens_total"] += len(r.prompt_ids)
            self._totals["prefix_cache_queries"] += len(r.prompt_ids) * looks_up
            self._totals["prefix_cache_hits"] += r._computed
            if self._swap_count:
                self._totals["cpu_prefix_cache_hits"] += (len(found) - len(there)) * BLOCK
        return r

    # A step.

    def _compute(self, parts):
        """One forward pass and what follows of it. False where it failed: the blocks are new then. While a GPU chooses all tokens, the next passes follow from here: each begins
        before the host knows the tokens of the one before, so the device does not wait for the host. The CPU would compute it before it hands the tokens over."""
        try:
            drafts = self._drafts_of(parts) if self.speculative_config is not None else {}
            for r, p in parts:
                p.ids, p.wanted = p.ids + drafts.get(r, []), p.wanted + len(drafts.get(r, []))
            begun = self._begin(parts)
        except Exception as e:
            self._failed([r for r, _ in parts], e)
            return False
        while begun is not None:
            parts, step = begun
            begun, error = None, None
            try:
                begun = self._begin_next(parts, step) if _on_gpu(self._network.device) else None
            except Exception as e:
                error = e  # the tokens of this pass are right
            try:
                found = step.chosen()
                self._pages.settle()  # what was copied before the step that runs now
            except Exception as e:
                self._failed([r for r, _ in parts if r.finished is None], e)
                return False
            self._count_step(sum(len(p.ids) for _, p in parts))
            at = 0
            for r, p in parts:
                rows, guesses = found[at:at + p.wanted], drafts.get(r, [])
                at += p.wanted
                if r.finished is not None:
                    continue  # the token before this one was its last, which nobody knew when this pass began
                r._computed = p.end - len(guesses)
                if r._reads_prompt:
                    rows = self._note_prompt(r, p, rows)
                if rows and len(r.ids) < self._limit(r):
                    if not r._cancelled:
                        self._register(r, r._computed)
                    self._take(r, rows, guesses)
            if error is not None:
                self._failed([r for r, _ in parts if r.finished is None], error)
                return False
            ready = [b for b in dict.fromkeys(r._beams for r, _ in parts if r._beams is not None) if b._is_ready]
            if not all([self._advance(beams) for beams in ready]):  # if one fails, the others go on, without their blocks
                return False
        return True

    def _note_prompt(self, r, p, found):
        """Takes the log probabilities of a prompt's tokens from what was found of a part. Returns the rest, what was found of the next token; nothing where the logits are not finite, and
        the request has ended."""
        count = r._prompt_logprobs.count(p.begin, p.end)
        try:
            r._prompt_logprobs.take(found[:count])
        except ValueError as e:
            self._end(r, Finished("error", f"{type(e).__name__}: {e}"))
            return []
        return found[count:]

    def _count_step(self, tokens):
        with self._wake:
            self._totals["iteration_tokens_total"] += tokens
            self._step_sizes[bisect.bisect_left(STEP_TOKENS, tokens)] += 1

    def _advance(self, beams):
        """The next step of a search. False where it failed."""
        try:
            advance(self, beams)
        except Exception as e:
            self._failed(beams._requests, e)
            return False
        return True

    def _begin(self, parts, found=None):
        """Begins a forward pass: (parts, step). found: the tokens of the pass before, where only the device knows them."""
        wanted = sum(p.wanted for _, p in parts)
        rows, logits_rows = step_sizes([p for _, p in parts], wanted, self._room())
        if self._chunk is not None:
            chunk = len(parts) == 1 and parts[0][1].begin < len(parts[0][0].prompt_ids)
            rows, logits_rows = (rows, coarsely_rounded(wanted, 1)) if chunk else (self._rows, self._rows)  # how a prompt is divided depends on the prompt alone
        # Other ranks choose, too, where the next pass may take the tokens from the device. Otherwise the choice is prepared while the device computes.
        start = (self._known, self._choices(parts, logits_rows)) if all(_goes_on_alone(r) for r, _ in parts) else None
        step = self._new_step([p for _, p in parts], rows, logits_rows, found, start)
        step.start(*start or (self._known, lambda: self._choices(parts, logits_rows)))
        return parts, step

    def _choices(self, parts, count):
        """How the tokens of a pass with so many rows of logits are chosen."""
        rows = []
        for r, p in parts:
            of_prompt = r._prompt_logprobs.count(p.begin, p.end) if r._reads_prompt else 0
            if of_prompt:
                rows += r._prompt_logprobs.rows(of_prompt)
            if p.wanted > of_prompt and r._beams is not None:
                rows.append(r._beams._row())
            elif p.wanted > of_prompt:
                guesses = p.ids[len(p.ids) - (p.wanted - of_prompt) + 1:]
                rows += r._sampler.rows(self._known, r.ids, len(r.prompt_ids), r.stop_ids, guesses, -1 if p.after is None else p.after, r.logprobs)
        return Choices(rows, count, self.model.config.vocab, every=self._rows is not None)

    def _begin_next(self, parts, step):
        """Begins the pass after one that has begun, with the tokens that this one finds. Texts that are complete with these are left out. None where the host must see
        the tokens first, where a request was cancelled (one that waits, too), or where a request must give up its blocks."""
        with self._wake:
            planned = self._plan_ahead({r: (p, place) for (r, p), place in zip(parts, _places(parts))})
        if not planned or (self._chunk is not None and step.next_ids.shape[0] != self._rows):
            return None
        return self._begin(planned, step.next_ids if any(p.after is not None for _, p in planned) else None)

    def _plan_ahead(self, now):
        """The parts of the pass after one that computes `now`: {request: (Part, the place of its next token among those that are found)}. It is planned as by _planned(),
        but nobody gives up blocks. None where that must happen, where the host must see a text's tokens, and, with batch_invariant, where prompts are read."""
        room = self.max_num_seqs - len(self._running)
        if self._has_lost_rank or self._closing == "cancel" or self.speculative_config is not None or not all(map(_goes_on_alone, [*self._running, *itertools.islice(self._waiting, max(0, room))])):
            return None
        if any(r._cancelled is not None for r in self._running) or any(r._cancelled is not None or len(r.ids) >= self._limit(r) for r in self._waiting):
            return None
        writing, chunks, budget = [], [], self.max_num_batched_tokens
        for r in self._running:
            p, place = now.get(r, (None, None))
            if place is not None and p.end + 2 <= self._limit(r):
                writing.append((r, Part([0], p.end, r._blocks, True, r._adapter, place)))
        budget -= len(writing)
        for r in self._running:
            p, place = now.get(r, (None, None))
            if place is None and budget > 0:
                begin = r._computed if p is None else p.end
                chunks.append((r, begin, min(len(r.ids) - begin, budget)))
                budget -= chunks[-1][2]
        if self._chunk is not None and (chunks or len(writing) != len(now) or (room > 0 and self._waiting)):
            return None  # a part of a prompt is a pass of its own
        if not all([self._take_blocks(r, p.end) for r, p in writing] + [self._take_blocks(r, begin + size) for r, begin, size in chunks]):
            return None
        parts = writing + [self._part(r, size, begin) for r, begin, size in chunks]
        while self._waiting and len(self._running) < self.max_num_seqs and budget > 0 and (r := self._admit()):
            size = min(len(r.ids) - r._computed, budget)
            if not self._take_blocks(r, r._computed + size):
                break
            parts.append(self._part(r, size))
            budget -= size
        return parts

    def _take_blocks(self, r, end):
        """Gives a running request blocks for its first `end` tokens, if there are any."""
        taken = self._blocks.take(max(0, -(-end // BLOCK) - len(r._blocks)))
        r._blocks += taken or []
        return taken is not None

    def _take(self, r, found, guesses):
        """Writes the next token, and those after it as long as the guesses are right. found: what was found after the last token and after each guess."""
        before, right = len(r.ids), 0
        while self._write(r, found[right]) and right < len(guesses) and r.ids[-1] == guesses[right]:
            right += 1
            r._computed += 1  # the guess's keys and values are the token's
        if guesses:
            accepted = 0  # the last one may have ended the text
            while accepted < min(len(guesses), len(r.ids) - before) and r.ids[before + accepted] == guesses[accepted]:
                accepted += 1
            r._drafted = min(r._drafted, r._computed)
            with self._wake:
                self._totals["spec_decode_num_drafts"] += 1
                self._totals["spec_decode_num_draft_tokens"] += len(guesses)
                self._totals["spec_decode_num_accepted_tokens"] += accepted
                for i in range(accepted):
                    self._accepted[i] += 1

    def _drafts_of(self, parts):
        """Guesses for the requests of a step: {request: list of ids}."""
        c, found = self.speculative_config, {}
        wants = [r for r, p in parts if r._room and len(p.ids) == 1 and p.wanted and not r._cancelled]
        if self._draft is not None:
            return self._drafts_of_model(wants)
        for r in wants:
            if r._ngrams is None:
                r._ngrams = NGrams(c.prompt_lookup_min, c.prompt_lookup_max)
            if guesses := r._ngrams.propose(r.ids, r._room):
                found[r] = guesses
        return found

    def _drafts_of_model(self, wants):
        """What the draft model takes for the likeliest: one forward pass for each guess, of all requests at once. It first reads what it has not seen."""
        wants = [r for r in wants if len(r.ids) + r._room <= self._draft.config.context]
        for r in wants:
            while len(r.ids) - r._drafted > self.max_num_batched_tokens:
                end = r._drafted + self.max_num_batched_tokens
                Step(self._draft, self._draft_pages, [Part(r.ids[r._drafted:end], r._drafted, r._blocks, False)], self.max_num_batched_tokens, 1).run()
                r._drafted = end
        found, left = {r: [] for r in wants}, list(wants)
        while left:
            parts = [Part((r.ids + found[r])[r._drafted:], r._drafted, r._blocks, True) for r in left]
            step = Step(self._draft, self._draft_pages, parts, *step_sizes(parts, len(parts)))
            step.start(self._known)
            for r, p, chosen in zip(left, parts, step.chosen()):
                r._drafted = p.end
                found[r].append(chosen.id)
            left = [r for r in left if len(found[r]) < r._room]
        return found

    def _failed(self, requests, error):
        """Ends these requests. The others are computed again, because a failed step leaves no block that can be trusted. Where several processes compute, they may be at
        different places then: the engine ends."""
        if self._workers is not None:
            raise self._workers.failure(error) from error
        _log.error("a step has failed, and with it %d requests", len(requests), exc_info=error)
        with self._wake:
            for r in list(self._running):
                self._remove(r)
                if r not in requests and r._candidates is None:
                    self._waiting.add(r)
            for r in [r for r in self._waiting if r in requests]:
                self._remove(r)
            self._blocks.clear()
            self._pages = self._draft_pages = None
        for r in requests:
            self._deliver(r, Finished("error", f"{type(error).__name__}: {error}"))
        self._make_pages()

    def _write(self, r, found):
        """Hands over a request's next token, a Found. Returns whether the text goes on."""
        if r._cancelled:
            return False
        end, token = None, None
        try:
            if r._beams is not None:
                r._candidates = r._beams._following(found)
                return False
            id = r._sampler.take(found)
            if id in r.stop_ids or r._sampler.ended:
                end = Finished("stop", logprob=found.logprob, stop_id=id) if id in r.stop_ids else Finished("stop")
            else:
                token = Token(id, found.logprob, list(found.top), *self._times(r))
        except Exception as e:  # such as logits that are not finite
            end = Finished("error", f"{type(e).__name__}: {e}")
        if token is not None:
            r.ids.append(token.id)
            self._totals["generation_tokens_total"] += 1
            self._deliver(r, token)
            if not r._cancelled and len(r.ids) >= self._limit(r):
                end = Finished("length")
        if end is not None:
            self._end(r, end)
        return end is None and not r._cancelled

    def _end(self, r, finished):
        """Ends a running request."""
        with self._wake:
            self._remove(r)
        self._deliver(r, finished)

    @staticmethod
    def _times(r):
        """For a text's first token: the seconds that its request waited, those since then, how many tokens of its prompt were in the cache, and the log probabilities of these."""
        return (r._began - r._came, time.monotonic() - r._began, r.num_cached_tokens, r._prompt_found) if len(r.ids) == len(r.prompt_ids) else ()

    def _deliver(self, r, event):
        receive = r._receive
        if isinstance(event, Finished):
            event = dataclasses.replace(event, num_cached_tokens=r.num_cached_tokens, prompt_logprobs=r._prompt_found)
            r.finished, r._receive = event, None  # what it refers to may end with the request
        try:
            receive(event)
        except BaseException as e:  # whatever it is, it concerns this request alone
            text = f"receive() has failed: {type(e).__name__}: {e}"
            if isinstance(event, Token):
                r._cancelled = r._cancelled or Finished("cancelled", text)
            else:
                _log.exception("%s: %s", r, text)
