"""The choice of the next token: greedy, temperature, top-k, top-p (arXiv:1904.09751), min-p (arXiv:2407.01082), repetition penalty (arXiv:1909.05858)."""
import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Sampling:
    """How tokens are chosen. temperature 0 takes the likeliest token; top_k 0, top_p 1, min_p 0 and repetition_penalty 1 switch these off.

    The order is: penalty, temperature, top_k, top_p, min_p. The same seed gives the same tokens; without one each call differs. ValueError."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = None

    def __post_init__(self):
        def check(name, fits, expected, kind=(int, float)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind) or not fits(value):
                raise ValueError(f"generate: {name} is out of range; got {value!r}; expected {expected}")

        check("temperature", lambda x: 0 <= x < math.inf, "a number from 0 upwards")
        check("top_k", lambda x: x >= 0, "a whole number from 0 upwards", int)
        check("top_p", lambda x: 0 < x <= 1, "0 < top_p <= 1")
        check("min_p", lambda x: 0 <= x <= 1, "0 <= min_p <= 1")
        check("repetition_penalty", lambda x: 0 < x < math.inf, "a positive number")
        if self.seed is not None:
            check("seed", lambda x: x >= 0, "a whole number from 0 upwards", int)


class Sampler:
    """Draws tokens by a Sampling: sampler(logits, tokens) is an id, an int. probabilities(logits, tokens) has what it draws from."""

    def __init__(self, sampling):
        self.sampling = sampling
        self._random = np.random.Generator(np.random.Philox(sampling.seed))

    def _penalized(self, logits, tokens):
        penalty = self.sampling.repetition_penalty
        if penalty == 1 or not tokens:
            return logits
        logits, seen = logits.copy(), np.unique(np.fromiter(tokens, dtype=np.int64))
        with np.errstate(over="ignore"):
            logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
        largest = np.finfo(np.float64).max
        return np.clip(logits, -largest, largest)

    def probabilities(self, logits, tokens=()):
        """(ids, probabilities) of the tokens that can be drawn, the likeliest first: arrays of int64 and float64 of equal length, at most the vocabulary's.

        logits: one number for each token, shape (vocabulary,); tokens: ids of the text so far. ValueError for logits that are not finite."""
        s, logits = self.sampling, np.asarray(logits, dtype=np.float64)
        if not np.isfinite(logits.max()):
            raise ValueError("generate: the logits are not finite; got nan or inf; expected numbers; hint: the weights are damaged, or overflow in this dtype")
        logits = self._penalized(logits, tokens)
        if s.temperature == 0:
            return np.array([int(logits.argmax())]), np.ones(1)
        if 0 < s.top_k < logits.size:
            ids = np.argpartition(-logits, s.top_k - 1)[: s.top_k]
            ids = ids[np.lexsort((ids, -logits[ids]))]
        else:
            ids = np.argsort(-logits, kind="stable")
        with np.errstate(over="ignore"):  # a tiny temperature makes -inf of all but the likeliest
            p = np.exp((logits[ids] - logits[ids[0]]) / s.temperature)
        p /= p.sum()
        if s.top_p < 1:
            p = p[: int(np.searchsorted(np.cumsum(p), s.top_p)) + 1]
        if s.min_p > 0:
            p = p[p >= s.min_p * p[0]]
        return ids[: p.size], p / p.sum()

    def __call__(self, logits, tokens=()):
        ids, p = self.probabilities(logits, tokens)
        if ids.size == 1:
            return int(ids[0])
        return int(ids[min(int(np.searchsorted(np.cumsum(p), self._random.random(), side="right")), ids.size - 1)])
