"""Which tokens may come next by allowed_token_ids and bad_words_ids of a Sampling, as bits of the form that a grammar's Matcher has."""
from .. import _numpy as np


def bad_words_ids(tokenizer, words):
    """The token ids of each word, as it is written at the beginning of a text and behind a space. Two ways that are the same are one."""
    found = {}
    for word in words:
        for text in (word.lstrip() or word, " " + word.lstrip()):
            if ids := tokenizer.encode(text, add_special=False):
                found[tuple(ids)] = None
    return [list(ids) for ids in found]


def bits_of(words, size):
    """The bits of words as an array of bool, one for each of the first `size` tokens."""
    return np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little", count=size).view(bool)


class Mask:
    """The tokens that a Sampling leaves, for a vocabulary of `size` tokens. words(written): bits, uint32, of what may follow the tokens that were written. A forbidden word of several
    tokens forbids its last token, where those before it have just been written."""

    def __init__(self, sampling, size):
        allowed, forbidden = sampling.allowed_token_ids, sampling.bad_words_ids or ()
        bits = np.zeros(-(-size // 32) * 32, bool)
        bits[slice(size) if allowed is None else list(allowed)] = True
        bits[[word[0] for word in forbidden if len(word) == 1]] = False
        self._words = np.packbits(bits, bitorder="little").view("<u4")
        self._longer = [(list(word[:-1]), word[-1]) for word in forbidden if len(word) > 1]

    @staticmethod
    def is_needed(sampling):
        return sampling.allowed_token_ids is not None or bool(sampling.bad_words_ids)

    @staticmethod
    def depends_on_tokens(sampling):
        """Whether what may follow depends on what was written."""
        return any(len(word) > 1 for word in sampling.bad_words_ids or ())

    def words(self, written):
        ends = [last for begin, last in self._longer if len(written) >= len(begin) and list(written[len(written) - len(begin):]) == begin]
        return without(self._words, ends)


def without(words, ids):
    """The words without the bits of these tokens."""
    left = words.copy() if ids else words
    for i in ids:
        if i < 32 * left.size:
            left[i // 32] &= ~np.uint32(1 << i % 32)
    return left
