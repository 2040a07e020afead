"""From a piece of text to the ids of its tokens: byte pair encoding by merges or by scores, unigram, WordPiece.

Sources: BPE, arXiv:1508.07909; SentencePiece's BPE and unigram, arXiv:1808.06226 and 1804.10959; WordPiece, arXiv:1609.08144."""
import heapq
import math
from functools import lru_cache

from ._text_parts import first_places


def _merged(symbols, rank_of):
    """Merges the neighbours with the least rank, the leftmost first among equals, until rank_of(left, right) has no rank for any pair.

    symbols: a list of str. The work is n log n: a heap of pairs, and a linked list of symbols."""
    n = len(symbols)
    if n < 2:
        return symbols
    following, previous = list(range(1, n)) + [-1], list(range(-1, n - 1))
    heap = []

    def offer(i):
        j = following[i]
        if j >= 0 and (rank := rank_of(symbols[i], symbols[j])) is not None:
            heapq.heappush(heap, (rank, i, symbols[i], symbols[j]))

    for i in range(n - 1):
        offer(i)
    while heap:
        _, i, left, right = heapq.heappop(heap)
        j = following[i]
        if symbols[i] != left or j < 0 or symbols[j] != right:
            continue  # one of the two has been merged meanwhile
        symbols[i], symbols[j] = left + right, None
        following[i] = following[j]
        if following[j] >= 0:
            previous[following[j]] = i
        if previous[i] >= 0:
            offer(previous[i])
        offer(i)
    return [s for s in symbols if s is not None]


class BytePairs:
    """BPE by a list of merges. Symbols begin as single characters; what is not in the vocabulary becomes byte tokens or the unknown token.

    merges: pairs of symbols; or texts, each of two symbols with a space between, where no symbol has a space."""

    def __init__(self, vocab, merges, unknown=None, byte_fallback=False, ignore_merges=False, fuse_unknown=False, continuing="", ending=""):
        self.vocab, self.ranks, self._of_texts = vocab, first_places(merges), bool(merges) and isinstance(merges[0], str)
        self.unknown, self.byte_fallback, self.ignore_merges, self.fuse_unknown = unknown, byte_fallback, ignore_merges, fuse_unknown
        self.continuing, self.ending = continuing, ending
        self.encode = lru_cache(maxsize=1 << 14)(self._encode)

    def _rank(self, left, right):
        return self.ranks.get(f"{left} {right}" if self._of_texts else (left, right))

    def _encode(self, word):
        if self.ignore_merges and word in self.vocab:
            return (self.vocab[word],)
        symbols = list(word)
        if self.ending and symbols:
            symbols[-1] += self.ending
        return tuple(_ids(self.vocab, _merged(symbols, self._rank), self.unknown, self.byte_fallback, self.fuse_unknown))


class ScoredPairs:
    """BPE of SentencePiece: of all neighbours that together are a token, those with the highest score are merged first."""

    def __init__(self, vocab, scores, unknown, byte_fallback=True, fuse_unknown=False):
        self.vocab, self.scores, self.unknown, self.byte_fallback, self.fuse_unknown = vocab, scores, unknown, byte_fallback, fuse_unknown

    def _rank(self, left, right):
        token = self.vocab.get(left + right)
        return None if token is None else -self.scores[token]

    def encode(self, word):
        return _ids(self.vocab, _merged(list(word), self._rank), self.unknown, self.byte_fallback, self.fuse_unknown)


def _ids(vocab, symbols, unknown, byte_fallback, fuse_unknown):
    ids, was_unknown = [], False
    for symbol in symbols:
        token = vocab.get(symbol)
        if token is not None:
            ids.append(token)
            was_unknown = False
            continue
        bytes_ = [vocab.get(f"<0x{b:02X}>") for b in symbol.encode("utf-8", "surrogatepass")] if byte_fallback else [None]
        if None not in bytes_:
            ids += bytes_
            was_unknown = False
        elif unknown is not None and not (fuse_unknown and was_unknown):
            ids.append(unknown)
            was_unknown = True
    return ids


class Unigram:
    """The split of a text whose tokens have the largest sum of scores (Viterbi). A character that no token covers costs 10 more than the worst token.
    ValueError for a score that is not finite."""

    def __init__(self, vocab, scores, unknown, byte_fallback=False, left_out=()):
        self.vocab = {text: token for text, token in vocab.items() if token not in left_out and text}
        self.scores, self.unknown, self.byte_fallback, self.all = scores, unknown, byte_fallback, vocab
        used = [scores[t] for t in self.vocab.values()]
        if not all(map(math.isfinite, used)):
            raise ValueError(f"llm: the vocabulary is damaged: a score is not finite; got {next(s for s in used if not math.isfinite(s))}; expected a number")
        self.cost_of_unknown = (min(used) if used else 0.0) - 10.0
        self.longest = max(map(len, self.vocab), default=1)

    def encode(self, text):
        n = len(text)
        best, back = [0.0] + [-math.inf] * n, [None] * (n + 1)
        for begin in range(n):
            for end in range(begin + 1, min(n, begin + self.longest) + 1):
                token = self.vocab.get(text[begin:end])
                if token is not None and (score := best[begin] + self.scores[token]) > best[end]:
                    best[end], back[end] = score, (begin, token)
            if self.vocab.get(text[begin]) is None and (score := best[begin] + self.cost_of_unknown) > best[begin + 1]:
                best[begin + 1], back[begin + 1] = score, (begin, None)
        pieces, end = [], n
        while end > 0:
            begin, token = back[end]
            pieces.append((token, text[begin:end]))
            end = begin
        ids, was_unknown = [], False
        for token, piece in reversed(pieces):
            if token is not None:
                ids.append(token)
            elif self.byte_fallback:
                ids += _ids(self.all, [piece], self.unknown, True, False)
            elif not was_unknown:
                ids.append(self.unknown)
            was_unknown = token is None
        return ids


class WordPiece:
    """The longest token first. A word of which a part is in no token is the unknown token as a whole."""

    def __init__(self, vocab, unknown, first="", continuing="##", longest_word=100):
        self.vocab, self.unknown, self.first, self.continuing, self.longest_word = vocab, unknown, first, continuing, longest_word

    def encode(self, word):
        if len(word) > self.longest_word:
            return [self.unknown]
        ids, begin = [], 0
        while begin < len(word):
            prefix = self.continuing if begin else self.first
            for end in range(len(word), begin, -1):
                token = self.vocab.get(prefix + word[begin:end])
                if token is not None:
                    break
            else:
                return [self.unknown]
            ids.append(token)
            begin = end
        return ids
