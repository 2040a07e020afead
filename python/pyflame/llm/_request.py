"""What an engine is asked for and what it delivers: requests, their tokens and their ends."""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from ._blocks import ROOT
from ._choice import Row
from .sampling import _finite

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence
    from typing import Any


@dataclass
class Token:
    """A new token. logprob: log p by the model's own logits, top: the likeliest tokens as (id, logprob); None and empty where the request did not ask for them.
    queue_seconds, prefill_seconds: of a text's first token, how long the request waited until it first ran, and the time from then to this token; None of the others.
    num_cached_tokens: of a text's first token, as of Finished. prompt_logprobs: of a text's first token, where the request asked for them: for each token of the prompt a pair of its log p after
    those before it and the likeliest tokens in its place, as top; None in the place of the first, which follows nothing.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    id: int
    logprob: float = None
    top: list = field(default_factory=list)
    queue_seconds: float = None
    prefill_seconds: float = None
    num_cached_tokens: int = None
    prompt_logprobs: list = None


@dataclass
class Finished:
    """The end of a request. reason: 'stop' (a token that ends texts; it is not delivered), 'length', 'cancelled' or 'error'; error: a text, or None. logprob: log p
    of the token that ended the text, by the model's own logits; None where no token ended it, or the request did not ask for logprobs. stop_id: that token, or None. num_cached_tokens: how
    many tokens of the prompt were in the cache when the request first ran; None where it never ran. prompt_logprobs: as of Token, where no token
    was written; otherwise None. by_settings: the request's own settings ended the text with an error, such as a grammar that grew too large in its middle. These four do not count where two are compared."""

    reason: str
    error: str = None
    logprob: float = None
    stop_id: int = field(default=None, compare=False)
    num_cached_tokens: int = field(default=None, compare=False)
    prompt_logprobs: list = field(default=None, compare=False)
    by_settings: bool = field(default=False, compare=False)


class PromptLogprobs:
    """Log probabilities of a prompt's tokens, which its parts bring as they are computed. top: how many likeliest tokens each has; known: how many of the ids can be drawn; found: as of
    Token.prompt_logprobs."""

    def __init__(self, ids, top, known):
        self._ids, self._top, self._known, self.found = ids, top, known, [None]

    @property
    def is_complete(self):
        return len(self.found) == len(self._ids)

    @property
    def read(self):
        """How many of the prompt's first tokens need not be computed again: what follows each of them is known."""
        return len(self.found) - 1

    def count(self, begin, end):
        """How many rows of logits are wanted of a part of the text, from the token `begin` to the one before `end`: the tokens that follow these rows are the prompt's."""
        return max(0, min(end, len(self._ids) - 1) - max(begin, self.read))

    def rows(self, count):
        """The Rows of the next logits. A prompt may have ids that are never drawn."""
        following = self._ids[len(self.found):len(self.found) + count]
        return [Row(top=self._top, given=id if id < self._known else None) for id in following]

    def take(self, found):
        """Notes what was found of these rows. ValueError for logits that are not finite."""
        for f in found:
            _finite(f.highest)
            self.found.append((f.logprob if self._ids[len(self.found)] < self._known else -math.inf, list(f.top)))


class Request:
    """What submit() returns. finished: None, or the Finished that has been delivered. prompt_ids; ids: the prompt and what has been written.

    sampling: a Sampling. sampler: what draws the tokens by it.
    max_tokens: the most tokens that are written. stop_ids: tokens that end the text. logprobs: None, or how many likeliest tokens each Token has. priority: requests
    with a lower one go first. receive: a function that is called with each Token and with the Finished. num_cached_tokens: as of Finished. adapter: the number of the adapter (LoRA), or None.
    client: for whom it is; clients with requests of equal priority take turns. prompt_logprobs: a PromptLogprobs, or None where they are not wanted.

    The constructor checks nothing and raises nothing; Engine.submit() checks.
    """

    def __init__(self, prompt_ids: Sequence[int], sampling: Any, sampler: Any, max_tokens: int, stop_ids: Iterable[int], logprobs: int | None,
                 priority: int, receive: Callable[[Any], object], adapter: int | None = None, client: Hashable = None,
                 prompt_logprobs: PromptLogprobs | None = None) -> None:
        self.prompt_ids, self.ids, self.finished = tuple(prompt_ids), list(prompt_ids), None
        self.sampling, self.max_tokens, self.stop_ids, self.logprobs = sampling, max_tokens, stop_ids, logprobs
        self.priority, self.client, self._turn, self._receive = priority, client, None, receive  # turn: its place among all that were begun
        self._prompt_logprobs = prompt_logprobs
        self._sampler = sampler
        self._cancelled, self._came, self._began = None, time.monotonic(), None  # began: when it first ran
        self.num_cached_tokens = None
        self._adapter, self._ngrams = adapter, None
        self._swapped = None  # while it waits after it was preempted, with swap_space: what is kept of its keys and values, a Swapped
        self._beams = self._candidates = None  # of a beam: its Beams, and the tokens that may follow, once they are known
        self._clear()

    def _clear(self):
        self._blocks, self._computed = [], 0  # tokens of ids whose keys and values are in the blocks
        self._registered, self._content = 0, self._root  # blocks whose content is known, and the content of the last of them
        self._room, self._drafted = 0, 0  # guesses that the blocks have room for; tokens whose keys and values the draft model has

    @property
    def _root(self):
        """The content before the text: with an adapter, keys and values are others."""
        return ROOT if self._adapter is None else (ROOT, self._adapter)

    @property
    def _requests(self):
        """What the engine runs for this: itself."""
        return [self]

    @property
    def _reads_prompt(self):
        """Whether log probabilities of the prompt are still wanted."""
        return self._prompt_logprobs is not None and not self._prompt_logprobs.is_complete

    @property
    def _prompt_found(self):
        """The log probabilities of the prompt, for the first event of a request that asked for them. None where they are not complete, and behind the first token."""
        wants = self._prompt_logprobs is not None and not self._reads_prompt and len(self.ids) == len(self.prompt_ids)
        return self._prompt_logprobs.found if wants else None

    def _wanted(self, begin, end):
        """After how many of its last tokens a part of the text, which ends before the token `end`, needs the logits."""
        of_prompt = self._prompt_logprobs.count(begin, end) if self._prompt_logprobs is not None else 0
        return of_prompt + (end == len(self.ids))

    def __lt__(self, other):
        """Of requests that were begun, those with a lower priority are first, and of equal ones those that were begun first."""
        return (self.priority, self._turn) < (other.priority, other._turn)

    def __repr__(self):
        return f"Request({len(self.prompt_ids)} + {len(self.ids) - len(self.prompt_ids)} tokens, {self.finished or 'not finished'})"
