"""What the next step of an engine computes: which requests run, which parts of their texts, and who gives up blocks where they run short."""
from __future__ import annotations

import bisect
import itertools
import time

from ._engine_cache import Cache
from ._paged import BLOCK, Part
from ._request import Finished

PROMPT_ROWS = 256  # tokens of prompts whose log probabilities a step finds at most: each has float32 logits over the vocabulary


def goes_on_alone(r):
    """Whether the device can choose the token after the next one before the host knows the next one."""
    return r._beams is None and r._candidates is None and not r._sampler.needs_the_token_before and not r._reads_prompt


class Schedule(Cache):
    """The part of an Engine that plans steps. It has _waiting, a Queue, _running, a sorted list, and _ending, a dict whose keys are the requests that end before the next step. Only the engine's thread plans."""

    def _limit(self, r):
        return min(len(r.prompt_ids) + r.max_tokens, self.max_model_len)

    def _end_soon(self, r, cancelled=None):
        """Notes that a request ends before the next step: with this Finished, or because it needs no further token. A caller from another thread notifies _wake then. A request that ends in another way
        meanwhile may stay in _ending until the next step."""
        with self._wake:
            r._cancelled = r._cancelled or cancelled
            self._ending[r] = None

    def _take_ended(self):
        """Removes the requests that shall end before the next step. [(request, Finished)]"""
        ended, noted, self._ending = [], self._ending, {}
        for r in [*self._running, *self._waiting] if self._closing == "cancel" else noted:
            if r not in self._running and r not in self._waiting:
                continue  # it has ended since then
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
        comes_back = r._candidates is None
        swapped = self._swap_out(r, self._found(r)[: r._computed // BLOCK]) if comes_back else None
        self._remove(r)
        if comes_back:
            r._swapped = swapped
            self._waiting.add(r)
        self._totals["preemptions_total"] += 1

    def _found(self, r):
        """The known blocks that a request can begin with, a list of Known."""
        if not self.enable_prefix_caching:
            return []
        unit, most = self._chunk or BLOCK, len(r.ids) - 1 if self._chunk is None else len(r.prompt_ids) - 1  # the last token's logits are needed
        if r._reads_prompt:
            most = min(most, r._prompt_logprobs.read)
        found = self._blocks.find(r.ids, most, r._root)
        return found[: len(found) * BLOCK // unit * unit // BLOCK]

    def _admit(self):
        """Lets the first request that waits run, if there are blocks for its text. What others have computed of its beginning is taken from them, unless it needs the logits there."""
        r = self._waiting.first()
        looks_up = self.enable_prefix_caching and not r._reads_prompt
        found = self._found(r)
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

    def _part(self, r, size, begin=None):
        """The request's next tokens, from the first that is not computed on, or from `begin` on. Blocks that they fill are known to others from now on: the step writes them
        before anybody reads them."""
        begin = r._computed if begin is None else begin
        self._register(r, begin + size)
        return r, Part(r.ids[begin:begin + size], begin, r._blocks, r._wanted(begin, begin + size), r._adapter)

    def _register(self, r, end):
        """Says what is in the blocks that the first `end` tokens of a request fill, for requests with the same beginning."""
        if not self.enable_prefix_caching:
            return
        full = end if self._chunk is None else min(end, len(r.prompt_ids) // self._chunk * self._chunk)
        while (r._registered + 1) * BLOCK <= full:
            begin = r._registered * BLOCK
            r._content = self._blocks.register(r._blocks[r._registered], r._content, r.ids[begin:begin + BLOCK])
            r._registered += 1

    def _plan_ahead(self, now):
        """The parts of the pass after one that computes `now`: {request: (Part, the place of its next token among those that are found)}. It is planned as by _planned(),
        but nobody gives up blocks. None where that must happen, where the host must see a text's tokens, and, with batch_invariant, where prompts are read."""
        room = self.max_num_seqs - len(self._running)
        if self._has_lost_rank or self._closing == "cancel" or self.speculative_config is not None or not all(map(goes_on_alone, [*self._running, *itertools.islice(self._waiting, max(0, room))])):
            return None
        if self._ending:
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
