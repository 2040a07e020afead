"""Speculative decoding (arXiv:2211.17192): several tokens are guessed, and one forward pass of the model checks all of them.

A guess is always one token, so its own distribution has a single value, and the rejection sampling of that paper is: draw the next token as without guesses; the guess
is accepted if it is the same. So a text is what it would be without guesses, token by token: with the same seed, penalties and grammar. What changes is the
shape of products, and with it the last bits of logits."""
from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

METHODS = ("ngram", "draft_model")
MOST_DRAFTS = 64


@dataclass
class SpeculativeConfig:
    """How tokens are guessed, by vLLM's names. method: 'ngram' (what followed the same last tokens earlier in the text) or 'draft_model'; num_speculative_tokens: guesses of a
    step, from 1 to 64 (default: 4); prompt_lookup_max and prompt_lookup_min, from 1 to 16: how many last tokens are looked for, the most first (default: 5 and 1; if one is given, the other is the same); model: the draft model, a LanguageModel or a path
    that pf.llm.load takes. It needs the same vocabulary. ValueError, TypeError."""

    method: str = None
    num_speculative_tokens: int = None
    prompt_lookup_max: int = None
    prompt_lookup_min: int = None
    model: object = None

    def __post_init__(self):
        if self.method is None:
            self.method = "draft_model" if self.model is not None else "ngram"
        if self.method not in METHODS:
            raise ValueError(f"speculative_config: the method is not available; got {self.method!r}; expected one of {', '.join(METHODS)}")
        if (self.model is not None) != (self.method == "draft_model"):
            raise ValueError(f"speculative_config: method and model do not fit; got method {self.method!r} and model {self.model!r}; expected a model for 'draft_model', none for 'ngram'")
        if self.num_speculative_tokens is None:
            self.num_speculative_tokens = 4
        given = self.prompt_lookup_max, self.prompt_lookup_min
        if given == (None, None):
            given = 5, 1
        most, least = given[0] if given[0] is not None else given[1], given[1] if given[1] is not None else given[0]
        for name, value, low, high in (("num_speculative_tokens", self.num_speculative_tokens, 1, MOST_DRAFTS), ("prompt_lookup_max", most, 1, 16), ("prompt_lookup_min", least, 1, 16)):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"speculative_config: {name} is out of range; got {value!r}; expected {low} to {high}")
        if least > most:
            raise ValueError(f"speculative_config: the lengths do not fit; got prompt_lookup_min {least} and prompt_lookup_max {most}; expected the first to be at most the second")
        self.prompt_lookup_max, self.prompt_lookup_min = most, least

    @classmethod
    def of(cls, given: SpeculativeConfig | dict[str, Any] | None) -> SpeculativeConfig | None:
        """A SpeculativeConfig of None, a dict of its fields, or a SpeculativeConfig. None for None."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, dict):
            raise TypeError(f"speculative_config: the settings are of the wrong type; got {type(given).__name__}; expected a dict")
        unknown = set(given) - set(cls.__dataclass_fields__)
        if unknown:
            raise ValueError(f"speculative_config: there are no such settings; got {', '.join(sorted(map(str, unknown)))}; expected {', '.join(cls.__dataclass_fields__)}")
        return cls(**given)


class NGrams:
    """What followed the last tokens earlier in a text. The text may only grow between calls."""

    def __init__(self, least, most):
        self._least, self._most, self._places, self._length = least, most, {}, 0

    def propose(self, ids, count):
        """`count` tokens, or none where the last tokens are new. Where what followed reaches the end of the text, it goes on with itself: a period is repeated."""
        for end in range(self._length, len(ids)):
            for n in range(self._least, min(self._most, end) + 1):
                self._places[tuple(ids[end - n:end])] = end
        self._length = len(ids)
        for n in range(min(self._most, len(ids)), self._least - 1, -1):
            at = self._places.get(tuple(ids[len(ids) - n:]))
            if at is not None:
                found = ids[at:at + count]
                while len(found) < count:
                    found.append(found[len(found) - (len(ids) - at)])
                return found
        return []


def draft_model(config, target):
    """The LanguageModel that guesses, or None. ValueError where its vocabulary is another one."""
    if config is None or config.method != "draft_model":
        return None
    from .language_model import LanguageModel, load

    draft = config.model
    if not isinstance(draft, LanguageModel):
        draft = load(draft, device=target._network.device)
        config.model = draft
    same = draft._known() == target._known()
    if same and draft.tokenizer is not None and target.tokenizer is not None:
        same = draft.tokenizer._parts.tokens == target.tokenizer._parts.tokens
    if not same:
        raise ValueError(f"speculative_config: the draft model has another vocabulary; got {draft._known()} tokens of {draft!r}; expected the {target._known()} tokens of {target!r}")
    return draft


class Drafter:
    """Guesses for one text: propose(ids, count) is a list of at most `count` tokens."""

    def __init__(self, config, draft=None):
        from .sampling import Sampler, Sampling

        self.count, self._draft = config.num_speculative_tokens, draft
        self._ngrams = NGrams(config.prompt_lookup_min, config.prompt_lookup_max) if draft is None else None
        self._greedy = Sampler(Sampling(temperature=0))

    def propose(self, ids, count):
        if self._ngrams is not None:
            return self._ngrams.propose(ids, count)
        if len(ids) >= self._draft.config.context:
            return []
        return list(self._draft._tokens(ids, count, self._greedy, frozenset()))
