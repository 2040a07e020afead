"""Beam search on an engine. Each beam is a request whose blocks are its own only behind what it has in common with others.

A search goes on in steps: when the tokens that may follow are known for all its beams, the best beam_width continuations become the beams. A new beam
holds the full blocks of the one that it continues, and takes or copies the last one, which it will write to. Between two steps some beams may have their
candidates while others wait for a place or for blocks; those that have them can give up their blocks."""
from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field

from ._choice import Row
from ._paged import BLOCK
from ._request import Finished, Request
from .sampling import _finite

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


@dataclass
class BeamSearchParams:
    """How beams are searched, by vLLM's names. beam_width: beams that are kept, and sequences that are returned; max_tokens: the most new tokens of a sequence; ignore_eos: the
    model's tokens that end texts do not end one; temperature: divides logits before log p is taken, 0: not at all; length_penalty: exponent of the length in
    a sequence's score, cum_logprob / length ** length_penalty, where length counts the prompt's tokens and not one that ended the text. ValueError.

        params = pf.llm.BeamSearchParams(beam_width=4, max_tokens=16, length_penalty=0.8)"""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0

    def __post_init__(self):
        def check(name, fits, expected, kind):
            value = getattr(self, name)
            if (isinstance(value, bool) and kind is not bool) or not isinstance(value, kind) or not fits(value):
                raise ValueError(f"BeamSearchParams: {name} is out of range; got {value!r}; expected {expected}")

        check("beam_width", lambda x: x >= 1, "a whole number from 1 upwards", int)
        check("max_tokens", lambda x: x >= 1, "a whole number from 1 upwards", int)
        check("ignore_eos", lambda x: True, "True or False", bool)
        check("temperature", lambda x: 0 <= x < math.inf, "a number from 0 upwards", (int, float))
        check("length_penalty", lambda x: -16 <= x <= 16, "a number from -16 to 16", (int, float))


@dataclass
class BeamSearchSequence:
    """A text that a beam search found. tokens: the prompt, what was written, and the token that ended it, if one did; cum_logprob: the sum of log p of what was
    written; text: of the tokens, None without a tokenizer; finish_reason: 'stop' or 'length'.

        best = llm.beam_search("the window", pf.llm.BeamSearchParams(beam_width=2, max_tokens=8))[0].sequences[0]
        print(best.text, best.cum_logprob)

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    tokens: list
    cum_logprob: float
    text: str = None
    finish_reason: str = None


@dataclass
class BeamSearchOutput:
    """What beam_search() found for a prompt. sequences: at most beam_width BeamSearchSequence, that with the highest score first.

        for sequence in llm.beam_search("the window", pf.llm.BeamSearchParams(beam_width=2, max_tokens=8))[0].sequences:
            print(sequence.text)

    It is a result, and its fields are not checked. Only an unknown field is an error, a TypeError.
    """

    sequences: list = field(default_factory=list)


class Beams:
    """What submit_beams() returns. finished: None, or the Finished that has been delivered; sequences: then a list of BeamSearchSequence, the best first, without
    text; num_generation_tokens: how many tokens were appended to beams. num_cached_tokens: as of Finished.

    engine: the Engine that runs the beams. prompt_ids: the prompt's token ids. params: a BeamSearchParams. end_ids: the tokens that end a sequence; empty where
    params.ignore_eos holds. receive: a function that is called once, with the Finished.

    The constructor checks nothing and raises nothing; Engine.submit_beams() checks.
    """

    def __init__(self, engine: Any, prompt_ids: Sequence[int], params: BeamSearchParams, end_ids: Iterable[int], receive: Callable[[Any], object]) -> None:
        self.prompt_ids, self.params, self.end_ids, self.finished = tuple(prompt_ids), params, end_ids, None
        self.sequences, self.num_generation_tokens, self.num_cached_tokens = [], 0, None
        self._engine, self._receive, self._cancelled = engine, receive, None
        self._requests = []  # one for each beam, the best first
        self._ended = []  # the best sequences that have ended

    _prompt_found = None  # log probabilities of the prompt, which no search has

    def __repr__(self):
        return f"Beams({len(self.prompt_ids)} tokens, beam_width {self.params.beam_width}, {self.finished or 'not finished'})"

    @property
    def _is_ready(self):
        return self.finished is None and self._cancelled is None and all(r._candidates is not None for r in self._requests)

    def _row(self):
        """What is wanted of the logits after a beam: the likeliest tokens, twice beam_width, and more if so many could end the text that too few would go on."""
        width = self.params.beam_width
        return Row(top=width + max(width, len(self.end_ids)), temperature=self.params.temperature or 1.0)

    def _following(self, found):
        """The tokens that may follow a beam as (id, log p), the likeliest first."""
        _finite(found.highest)
        return found.top

    def _score(self, sequence):
        return sequence.cum_logprob / (len(sequence.tokens) - (sequence.finish_reason == "stop")) ** self.params.length_penalty

    def _best(self, sequences):
        return sorted(sequences, key=lambda s: -self._score(s))[: self.params.beam_width]

    def _member_ended(self, event):
        """The engine has ended a beam by itself: the search ends. Its other beams end before the next step."""
        engine, self._engine = self._engine, None
        if engine is not None:
            if event.reason == "length":  # the prompt fills the context
                self.sequences = [BeamSearchSequence(list(self.prompt_ids), 0.0, None, "length")]
            for r in self._requests:
                engine._end_soon(r, event)
            self._ended = []
            engine._deliver(self, event)

    def _continued(self):
        """Takes the candidates of all beams. Sequences that end are noted; the best others are returned as (log p, beam, id), the best first."""
        width, found, ended = self.params.beam_width, [], []
        for r in self._requests:
            for rank, (id, logprob) in enumerate(r._candidates):
                if id not in self.end_ids:
                    found.append((r._logprob + logprob, r, id))
                elif rank < 2 * width:
                    ended.append(BeamSearchSequence([*r.ids, id], r._logprob + logprob, None, "stop"))
        self._ended = self._best([*self._ended, *ended])
        return sorted(found, key=lambda c: -c[0])[:width]

    def _is_settled(self, best, length, limit):
        """Whether no beam can become better than the sequences that have ended. Log p only falls, and the length's power is largest at one of the ends."""
        if len(self._ended) < self.params.beam_width:
            return False
        penalty = self.params.length_penalty
        return self._score(self._ended[-1]) >= max(best / length ** penalty, best / limit ** penalty)


def advance(engine, beams):
    """The next step of a search whose beams all have their candidates: new beams replace them, or the search ends. On the engine's thread."""
    kept = beams._continued()
    beams.num_generation_tokens += len(kept)
    length, limit = len(beams._requests[0].ids) + 1, engine._limit(beams._requests[0])
    ends = not kept or length >= limit or beams._is_settled(kept[0][0], length, limit)
    copies, continued, used = [], {r for _, r, _ in kept}, set()
    with engine._wake:
        engine._totals["generation_tokens_total"] += len(kept)
        old, children = beams._requests, [] if ends else [_child(r, id, logprob) for logprob, r, id in kept]
        for r in old:
            if r in engine._running and (ends or r not in continued):
                engine._remove(r)
        places = engine.max_num_seqs - sum(r not in old for r in engine._running)
        for child, (_, parent, _) in zip(children, kept):
            if places > 0 and parent._blocks:  # otherwise it has given them up
                places -= _share(engine._blocks, parent, child, used, copies)
        for r in old:
            if r in engine._running:
                engine._remove(r)
        beams._requests = children
        for child in children:
            if beams._cancelled is not None:
                engine._end_soon(child, beams._cancelled)
            if child._blocks:
                bisect.insort(engine._running, child)
            else:
                engine._waiting.add(child)
    if ends:
        left = [BeamSearchSequence([*r.ids, id], logprob, None, "length") for logprob, r, id in kept]
        beams.sequences, beams._ended, beams._engine = beams._best([*beams._ended, *left]), [], None
        engine._deliver(beams, Finished(beams.sequences[0].finish_reason))
    elif copies:
        engine._pages.copy(copies)


def _child(parent, id, logprob):
    """The beam that continues another one with a token. It has no blocks yet."""
    child = Request(parent.prompt_ids, None, None, parent.max_tokens, parent.stop_ids, parent.logprobs, parent.priority, parent._receive, parent._adapter, parent.client)
    child.ids, child._turn = [*parent.ids, id], parent._turn
    child._beams, child._logprob, child._began = parent._beams, logprob, parent._began
    return child


def _share(blocks, parent, child, used, copies):
    """Gives a beam the blocks of the one that it continues. All its beams hold the full ones. The last one, if it has room, is written to: the first of them
    takes it, the others take copies. False where there is no block to copy to."""
    full = len(parent.ids) // BLOCK
    last = parent._blocks[full:]
    if parent in used:
        copied = blocks.take(len(last))
        if copied is None:
            return False
        copies += zip(last, copied)
        blocks.hold(parent._blocks[:full])
    else:
        used.add(parent)
        copied = last
        blocks.hold(parent._blocks)
    child._blocks, child._computed = parent._blocks[:full] + copied, len(parent.ids)
    child._registered, child._content = parent._registered, parent._content
    return True
