"""The memory of an engine: how much of it keys and values take, its blocks, and what is copied to host memory and back."""
from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import NamedTuple

from .. import _C, memory
from . import _attention_backend, _kv_cache_gate, _memory_turn
from ._blocks import Blocks
from ._intake import Intake
from ._network import _on_gpu
from ._paged import BLOCK, Pages, Step, block_bytes

DEFAULT_BYTES = 1 << 30  # the most that a cache of keys and values has by default, if one text fits
FREE_SHARE = 0.75  # on a GPU it may have this share of what is free there; the rest is for what steps compute, and for other programs
_log = logging.getLogger("pyflame.llm")


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


class Swapped(NamedTuple):
    """What a preempted request needs when it comes back. contents: the numbers of the contents of its first blocks, which were known when it was preempted; they are kept, or saved when they are
    evicted. saved: the contents of the blocks behind these, up to the one before the number `end`, in host memory. computed: how many of its tokens all these have."""

    contents: list
    end: int
    computed: int
    saved: list


class Cache(Intake):
    """The part of an Engine that has its memory. _pages_of() makes _blocks and _backend, and _make_pages() makes _pages and _draft_pages. The other fields are made in engine.py, by the constructor and _make()."""

    @property
    def _is_on_gpu(self):
        return _on_gpu(self._network.device)

    @contextlib.contextmanager
    def _turn(self):
        """On a GPU, the time in which only this process looks at the memory and takes its part. At the end what it takes is allocated."""
        device = self._network.device
        if not self._is_on_gpu:
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
            least = one if max_model_len or not self._is_on_gpu else 1  # a CPU's memory is taken as it is written
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
        self._blocks = Blocks(count, BLOCK, first=1, save=self._save_evicted if self._swap_count and self.enable_prefix_caching else None)
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
        return self.max_num_seqs if self._is_on_gpu else 1

    def _check_cache(self):
        """Measures what the cache's dtype costs in perplexity. ValueError beyond kv_cache_gate."""
        begin, losses, ids = time.perf_counter(), [], _kv_cache_gate.ids_of(self.model, self.max_model_len)
        if len(ids) < 2:
            raise ValueError(f"Engine: kv_cache_gate cannot be measured; got {len(ids)} tokens in a text of max_model_len {self.max_model_len}; expected two at least; hint: kv_cache_gate=None")
        for name in ("auto", self.kv_cache_dtype):
            self._pages = self._new_pages(-(-len(ids) // BLOCK), name, self.max_model_len)
            losses.append(_kv_cache_gate.loss(self._new_step, ids))
        stored, self._pages = self._pages.format.name, None
        self.kv_cache_check = _kv_cache_gate.CacheCheck(self.kv_cache_dtype, len(ids) - 1, *map(_kv_cache_gate.perplexity, losses), _kv_cache_gate.change(*losses), time.perf_counter() - begin)
        _log.info("kv_cache_dtype %s, stored as %s: %s; measured in %.1f s", self.kv_cache_dtype, stored, self.kv_cache_check, self.kv_cache_check.seconds)
        _kv_cache_gate.check(self.kv_cache_check, self.kv_cache_gate)

    def _make_pages(self):
        self._pages = self._new_pages(self._blocks.count, self.kv_cache_dtype, self.max_model_len)
        self._draft_pages = Pages(self._draft, self._blocks.count, self.kv_cache_dtype, self.max_model_len) if self._draft else None

    def _new_step(self, parts, rows, logits_rows, found=None, start=None):
        """A Step of the model, in which all ranks take part."""
        if self._workers is not None:
            return self._workers.step(self._network, self._pages, parts, rows, logits_rows, self._adapters, found, start)
        return Step(self._network, self._pages, parts, rows, logits_rows, self._adapters, found)

    def _make_swap_room(self, count):
        """Whether host memory has room for so many blocks. Known beginnings that no preempted request needs make room, those that were evicted first."""
        if count > self._swap_blocks:
            return False
        while count > self._swap_blocks - self._blocks.saved_count:
            if not self._blocks.forget_saved():
                return False  # requests that wait need what is there
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

    def _swap_out(self, r, found):
        """Keeps the keys and values of a running request that is preempted, a Swapped; None without swap_space. found: the Known of its first blocks. These are copied to host memory when they are evicted,
        and are not dropped as long as the request waits. The blocks behind them are copied now. What finds no room is computed again."""
        if not self._swap_count:
            return None
        contents, end = [known.content for known in found], -(-r._computed // BLOCK)
        self._blocks.need(contents)
        behind = r._blocks[len(contents):end]
        saved = self._saved(behind) if behind else None
        if saved is None:
            return Swapped(contents, len(contents), len(contents) * BLOCK, [])
        self._swap_blocks -= len(behind)
        self._totals["swapped_out_tokens_total"] += r._computed - len(contents) * BLOCK
        return Swapped(contents, end, r._computed, saved)

    def _swap_in(self, r):
        """Copies what is in host memory back, behind what was found in known blocks. There are blocks for the whole text. Where fewer blocks are known than when it was preempted, the rest is computed again."""
        contents, end, computed, saved = r._swapped
        begin = len(r._blocks)
        try:
            if len(contents) <= begin < end:
                taken = self._blocks.take(end - begin)
                self._pages.restore(taken, saved, range(begin - len(contents), end - len(contents)))
                self._totals["swapped_in_tokens_total"] += computed - r._computed
                r._blocks, r._computed = r._blocks + taken, computed
        finally:  # where it fails, the text is computed again
            self._forget_swapped(r)

    def _forget_swapped(self, r):
        if r._swapped is not None:
            self._swap_blocks += r._swapped.end - len(r._swapped.contents)
            self._blocks.need_no_more(r._swapped.contents)
            r._swapped = None

    def _swapped_share(self):
        """The share of swap_space that preempted requests hold: their own copies, and saved contents that they need."""
        return 1 - (self._swap_blocks - self._blocks.saved_needed) / self._swap_count
