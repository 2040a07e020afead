"""The choice of the next token: greedy, temperature, top-k, top-p (arXiv:1904.09751), min-p (arXiv:2407.01082), repetition penalty (arXiv:1909.05858), and
OpenAI's logit bias, presence penalty and frequency penalty."""
from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _C, _numpy as np
from ._choice import LIKELIEST, Changes, Choices, Row, choose
from ._errors import SettingsError
from ._masks import Mask, bits_of, without
from ._random_numbers import RandomNumbers
from .grammar import Grammar

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from .._annotations import TensorLike
    from .grammar import Matcher


@dataclass
class Sampling:
    """How tokens are chosen. temperature 0 takes the likeliest token; top_k 0, top_p 1, min_p 0, repetition_penalty 1 and 0 of the others switch these off.

    The order is: logit_bias, repetition_penalty, frequency_penalty and presence_penalty, min_tokens, allowed_token_ids and bad_words_ids, grammar, temperature, top_k, top_p, min_p.
    - logit_bias: a dict of token ids and numbers from -100 to 100, which are added to these tokens' logits.
    - repetition_penalty r: logits of tokens in the text so far, prompt included, become x / r if x > 0, otherwise x r.
    - frequency_penalty f and presence_penalty p, from -2 to 2: the logit of a token that has been written n times becomes x - n f - p. The prompt does not count.
    - min_tokens: the tokens that end a text are not drawn before so many tokens have been written. A grammar goes first: what it allows alone is drawn.
    - grammar: a Grammar, which says what the text must be. Tokens that it does not allow are not drawn; the text ends where it is complete.
    - allowed_token_ids: a list of token ids; no others are drawn, not even those that end a text.
    - bad_words_ids: a list of lists of token ids. The last token of each is not drawn where those before it are what has just been written; the prompt does not count.
    - seed: the same seed gives the same tokens on the same kind of device, alone and beside other requests; without one each call differs. Other devices draw the same numbers and
      add the probabilities in the same order, that of the ids, so their tokens differ only where the last bits of logits or sums decide.
    ValueError."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict = None
    min_tokens: int = 0
    grammar: Grammar = None
    allowed_token_ids: list = None
    bad_words_ids: list = None

    def __post_init__(self):
        def check(name, fits, expected, kind=(int, float)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind) or not fits(value):
                raise ValueError(f"generate: {name} is out of range; got {value!r}; expected {expected}")

        check("temperature", lambda x: 0 <= x < math.inf, "a number from 0 upwards")
        check("top_k", lambda x: x >= 0, "a whole number from 0 upwards", int)
        check("top_p", lambda x: 0 < x <= 1, "0 < top_p <= 1" + ("; hint: temperature=0 takes the likeliest token" if self.top_p == 0 else ""))
        check("min_p", lambda x: 0 <= x <= 1, "0 <= min_p <= 1")
        check("repetition_penalty", lambda x: 0 < x < math.inf, "a positive number")
        check("presence_penalty", lambda x: -2 <= x <= 2, "a number from -2 to 2")
        check("frequency_penalty", lambda x: -2 <= x <= 2, "a number from -2 to 2")
        check("min_tokens", lambda x: x >= 0, "a whole number from 0 upwards", int)
        if self.seed is not None:
            check("seed", lambda x: x >= 0, "a whole number from 0 upwards", int)

        def whole(i):
            return isinstance(i, int) and not isinstance(i, bool) and i >= 0

        def ids(x):
            return isinstance(x, (list, tuple)) and len(x) > 0 and all(map(whole, x))

        if self.allowed_token_ids is not None:
            check("allowed_token_ids", ids, "a list of token ids, one at least", (list, tuple))
        if self.bad_words_ids is not None:
            check("bad_words_ids", lambda x: all(map(ids, x)), "a list of lists of token ids that are not empty", (list, tuple))
        if self.logit_bias is not None:
            def number(x):
                return isinstance(x, (int, float)) and not isinstance(x, bool) and -100 <= x <= 100

            check("logit_bias", lambda d: all(whole(i) and number(x) for i, x in d.items()), "a dict of token ids and numbers from -100 to 100", dict)
            self.logit_bias = dict(self.logit_bias)
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise TypeError(f"generate: grammar is of the wrong type; got {type(self.grammar).__name__}; expected a pf.llm.Grammar")

    def check_vocabulary(self, size: int) -> None:
        """ValueError where logit_bias, allowed_token_ids or bad_words_ids has a token that is not in a vocabulary of this size."""
        words = self.bad_words_ids or ()
        for name, ids in (("logit_bias", self.logit_bias), ("allowed_token_ids", self.allowed_token_ids), ("bad_words_ids", [i for word in words for i in word])):
            beyond = max(ids or (-1,))
            if beyond >= size:
                raise ValueError(f"generate: {name} has a token that is not in the vocabulary; got {beyond}; expected 0 to {size - 1}")


class Sampler:
    """Draws tokens by a Sampling: sampler(logits, tokens) is an id, an int. probabilities(logits, tokens) has what it draws from.

    tokens: ids of the text so far, of which the first `prompt` were given and the others written. stop_ids: tokens that end a text, for min_tokens.
    matcher: where the text is in the grammar of `sampling`, a grammar's Matcher or None. With one, a Sampler serves one text, and each call continues it.
    ended: the last token that was drawn ended a text whose grammar is complete.

    A call computes in float32, as a device does that chooses tokens where the logits are: rows() says what it needs for that. probabilities() computes in float64. So a token
    whose logit after biases and penalties, or whose part of the sum, differs from another's in the last bits of float32 only may be in one and not in the other.

    A call raises ValueError for logits that are not finite, and where a grammar or min_tokens leaves no token.
    """

    def __init__(self, sampling: Sampling, matcher: Matcher | None = None) -> None:
        self.sampling, self._matcher = sampling, matcher
        self._random = RandomNumbers(sampling.seed)
        self._numbers = []  # one for each token that is written
        self._changes, self._mask, self._limits = None, None, (0, 0)

    @property
    def ended(self):
        """Whether the grammar allows nothing more, so that the text is complete."""
        return self._matcher is not None and self._matcher.ended

    @property
    def needs_the_token_before(self):
        """Whether only the host can say what the next token may be, and only when it knows the one before: there is a grammar, or a forbidden word of several tokens."""
        return self._matcher is not None or Mask.depends_on_tokens(self.sampling)

    def settings(self, written: int) -> tuple[float, ...]:
        """What the op draw_tokens needs to choose the next token, after so many were written: temperature, top_k, top_p, min_p and the number that is drawn for this token, as float32 can hold them."""
        s = self.sampling
        if s.temperature == 0:
            return LIKELIEST
        while len(self._numbers) <= written:
            self._numbers.append(self._random.random())
        return (min(s.temperature, 1e30), min(s.top_k, 1 << 30), max(s.top_p, 1e-30), s.min_p, self._numbers[written])

    def rows(self, size: int, tokens: Sequence[int], prompt: int, stop_ids: Iterable[int], guesses: Sequence[int] = (), place: int = -1, top: int | None = None,
             drawn: int | None = None) -> list[Row]:
        """What choose() needs for the next token, and for those after each guess: a list of Row. The text may only grow between calls. size: how many tokens can be drawn; place, top: as
        of Row, where the host does not know the token behind `tokens` yet, and where log probabilities are wanted; drawn: how many numbers were drawn before (default: as many as tokens
        were written)."""
        s, written = self.sampling, len(tokens) - prompt + (place >= 0)
        drawn = written if drawn is None else drawn
        self._limits = len(stop_ids), size
        if self._changes is None and (s.logit_bias or s.repetition_penalty != 1 or s.frequency_penalty or s.presence_penalty or (s.min_tokens and self._matcher is None)):
            s.check_vocabulary(size)
            self._changes = Changes(s, size, stop_ids if self._matcher is None else ())
        if self._changes is not None:
            self._changes.grow(tokens, prompt)
            place = place if self._changes.depend_on_tokens else -1
        if self._mask is None and Mask.is_needed(s):
            s.check_vocabulary(size)
            self._mask = Mask(s, size)
        if self._matcher is not None:
            masks = self._masks(guesses, tokens, prompt, stop_ids)
        else:
            masks = [(self._left(tokens, prompt, guesses[:i]), None) for i in range(len(guesses) + 1)]
        rows = []
        for i, (allowed, error) in enumerate(masks):
            changes, penalties = (None, Row.penalties) if self._changes is None else (self._changes.after(guesses[:i], written + i), self._changes.penalties)
            rows.append(Row(self.settings(drawn + i), changes, penalties, place, allowed, top, 1.0, error))
        return rows

    def _left(self, tokens, prompt, guesses, words=None):
        """The words of what a grammar allows (None: everything) that the settings leave behind a text and these guesses. None where that is everything."""
        if self._mask is not None:
            longest = max(map(len, self.sampling.bad_words_ids or ((),)))
            left = self._mask.words([*tokens[max(prompt, len(tokens) - longest):], *guesses])
            words = left if words is None else words & left
        return None if words is None else words.view(np.int32)

    def _masks(self, guesses, tokens, prompt, stop_ids):
        """For each row the words of what the grammar allows, and an error that it has met. None for rows behind a guess that may not come, which nobody will need."""
        masks, matcher, written = [], self._matcher if not guesses else self._matcher.copy(), len(tokens) - prompt
        for i in range(len(guesses) + 1):
            if i > 0 and not matcher.goes_on(guesses[i - 1]):
                break
            try:
                words = self._left(tokens, prompt, guesses[:i], matcher.words()).view(np.uint32)
                masks.append((self._without_ends(words, stop_ids if written + i < self.sampling.min_tokens else ()), None))
            except ValueError as e:
                masks.append((None, e))
        return masks + [(None, None)] * (len(guesses) + 1 - len(masks))

    @staticmethod
    def _without_ends(words, ends):
        """The words without the bits of these tokens, unless nothing is left: a grammar goes before min_tokens."""
        left = without(words, ends)
        return (left if left.any() else words).view(np.int32)

    def take(self, found: Any) -> int:
        """The id that choose() has found for the row, as an int. With a grammar, the text goes on with it. ValueError as for a call."""
        if found.error is not None:
            raise found.error
        _finite(found.highest)
        if found.left == -math.inf:
            self._raise_for_no_token(*self._limits)
        if self._matcher is not None:
            self._matcher.take(found.id)
        return found.id

    def _raise_for_no_token(self, ends, size):
        s = self.sampling
        if Mask.is_needed(s):
            allowed, words = "all" if s.allowed_token_ids is None else len(s.allowed_token_ids), len(s.bad_words_ids or ())
            raise SettingsError(f"generate: the settings leave no token; got {allowed} allowed_token_ids and {words} bad_words_ids; expected a token that these, the grammar and min_tokens allow")
        if self._matcher is not None:
            raise SettingsError(f"generate: the grammar leaves no token; got {s.grammar!r}; expected one that the model's vocabulary can write")
        raise SettingsError(f"generate: min_tokens leaves no token; got {ends} tokens that end the text; expected fewer than the vocabulary's {size}")

    def __call__(self, logits, tokens=(), prompt=0, stop_ids=()):
        logits = _C.tensor(np.asarray(logits, dtype=np.float32)[None], device="cpu")
        size = logits.shape[1]
        self._changes = self._mask = None  # the text may be another one
        rows = self.rows(size, tokens, prompt, stop_ids, drawn=len(self._numbers))
        return self.take(choose(logits, size, Choices(rows, 1, size)).wait()[0])

    def _adjusted(self, logits, tokens, prompt, stop_ids):
        """The logits after biases and penalties, and whether tokens are forbidden, which have -inf."""
        s, forbidden = self.sampling, False
        if s.logit_bias:
            s.check_vocabulary(logits.size)
            logits = logits.copy()
            logits[list(s.logit_bias)] += list(s.logit_bias.values())
        if s.repetition_penalty != 1 and tokens:
            logits, seen = logits.copy(), np.unique(np.fromiter(tokens, dtype=np.int64))
            seen = seen[seen < logits.size]  # a prompt may have ids that are never drawn
            with np.errstate(over="ignore"):
                logits[seen] = np.where(logits[seen] > 0, logits[seen] / s.repetition_penalty, logits[seen] * s.repetition_penalty)
            largest = np.finfo(np.float64).max
            logits = np.clip(logits, -largest, largest)
        if (s.frequency_penalty or s.presence_penalty) and len(tokens) > prompt:
            logits = logits.copy()
            seen, counts = np.unique(np.fromiter(tokens[prompt:], dtype=np.int64), return_counts=True)
            logits[seen] -= counts * s.frequency_penalty + s.presence_penalty
        if Mask.is_needed(s):
            s.check_vocabulary(logits.size)
            logits, forbidden = np.where(bits_of(Mask(s, logits.size).words(list(tokens[prompt:])), logits.size), logits, -np.inf), True
        ends = [i for i in stop_ids if i < logits.size] if len(tokens) - prompt < s.min_tokens else []
        if self._matcher is not None:
            allowed = self._matcher.allowed()
            left = allowed.copy()
            left[ends] = False
            if Mask.is_needed(s):
                left, allowed = left & (logits > -np.inf), allowed & (logits > -np.inf)
            logits, forbidden = np.where(left if left.any() else allowed, logits, -np.inf), True  # a grammar goes before min_tokens
        elif ends:
            logits, forbidden = logits.copy(), True
            logits[ends] = -np.inf
        return logits, forbidden

    def probabilities(self, logits: TensorLike, tokens: Sequence[int] = (), prompt: int = 0,
                      stop_ids: Iterable[int] = ()) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(ids, probabilities) of the tokens that can be drawn, the likeliest first: arrays of int64 and float64 of equal length, at most the vocabulary's.

        logits: one number for each token, shape (vocabulary,); tokens: ids of the text so far, a list or a tuple. ValueError for logits that are not finite."""
        logits, forbidden = self._checked(logits, tokens, prompt, stop_ids)
        return self._sorted(logits, forbidden)

    def _checked(self, logits, tokens, prompt, stop_ids):
        logits = np.asarray(logits, dtype=np.float64)
        _finite(logits.max())
        logits, forbidden = self._adjusted(logits, tokens, prompt, stop_ids)
        if forbidden and logits.max() == -np.inf:
            self._raise_for_no_token(len(stop_ids), logits.size)
        return logits, forbidden

    def _sorted(self, logits, forbidden):
        s = self.sampling
        if s.temperature == 0:
            return np.array([int(logits.argmax())]), np.ones(1)
        if 0 < s.top_k < logits.size:
            ids = _likeliest(logits, s.top_k)
        else:
            ids = np.argsort(-logits, kind="stable")
        if forbidden:
            ids = ids[logits[ids] > -np.inf]
        with np.errstate(over="ignore"):  # a tiny temperature makes -inf of all but the likeliest
            p = np.exp((logits[ids] - logits[ids[0]]) / s.temperature)
        p /= p.sum()
        if s.top_p < 1:
            p = p[: int(np.searchsorted(np.cumsum(p), s.top_p)) + 1]
        if s.min_p > 0:
            p = p[p >= s.min_p * p[0]]
        return ids[: p.size], p / p.sum()


def _finite(logit):
    if not math.isfinite(logit):
        raise ValueError("generate: the logits are not finite; got nan or inf; expected numbers; hint: the weights are damaged, or overflow in this dtype")


def _likeliest(logits, n):
    """The ids of the n largest logits, the largest first, of equal ones the lower id first."""
    ids = np.argpartition(-logits, n - 1)[:n]
    return ids[np.lexsort((ids, -logits[ids]))]
