"""What an engine is asked for and what it delivers: requests, their tokens and their ends."""
from __future__ import annotations

import time
from dataclasses import dataclass, field

from ._blocks import ROOT

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


@dataclass
class Token:
    """A new token. logprob: log p by the model's own logits, top: the likeliest tokens as (id, logprob); None and empty where the request did not ask for them.
    queue_seconds, prefill_seconds: of a text's first token, how long the request waited until it first ran, and the time from then to this token; None of the others.
    num_cached_tokens: of a text's first token, as of Finished.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    id: int
    logprob: float = None
    top: list = field(default_factory=list)
    queue_seconds: float = None
    prefill_seconds: float = None
    num_cached_tokens: int = None


@dataclass
class Finished:
    """The end of a request. reason: 'stop' (a token that ends texts; it is not delivered), 'length', 'cancelled' or 'error'; error: a text, or None. logprob: log p
    of the token that ended the text, by the model's own logits; None where no token ended it, or the request did not ask for logprobs. stop_id: that token, or None. num_cached_tokens: how
    many tokens of the prompt were in the cache when the request first ran; None where it never ran. These two do not count where two are compared."""

    reason: str
    error: str = None
    logprob: float = None
    stop_id: int = field(default=None, compare=False)
    num_cached_tokens: int = field(default=None, compare=False)


class Request:
    """What submit() returns. finished: None, or the Finished that has been delivered. prompt_ids; ids: the prompt and what has been written.

    number: counts the requests of an engine; of equal priority, the lower number goes first. sampling: a Sampling. sampler: what draws the tokens by it.
    max_tokens: the most tokens that are written. stop_ids: tokens that end the text. logprobs: None, or how many likeliest tokens each Token has. priority: requests
    with a lower one go first. receive: a function that is called with each Token and with the Finished. num_cached_tokens: as of Finished. adapter: the number of the adapter (LoRA), or None.

    The constructor checks nothing and raises nothing; Engine.submit() checks.
    """

    def __init__(self, number: int, prompt_ids: Sequence[int], sampling: Any, sampler: Any, max_tokens: int, stop_ids: Iterable[int], logprobs: int | None,
                 priority: int, receive: Callable[[Any], object], adapter: int | None = None) -> None:
        self.prompt_ids, self.ids, self.finished = tuple(prompt_ids), list(prompt_ids), None
        self.sampling, self.max_tokens, self.stop_ids, self.logprobs = sampling, max_tokens, stop_ids, logprobs
        self._rank, self._receive = (priority, number), receive
        self._sampler = sampler
        self._cancelled, self._came, self._began = None, time.monotonic(), None  # began: when it first ran
        self.num_cached_tokens = None
        self._adapter, self._ngrams = adapter, None
        self._swapped = None  # while it waits after it was preempted: how many tokens' keys and values are in host memory, and these
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

    def __lt__(self, other):
        return self._rank < other._rank

    def __repr__(self):
        return f"Request({len(self.prompt_ids)} + {len(self.ids) - len(self.prompt_ids)} tokens, {self.finished or 'not finished'})"
