"""The text of tokens as it becomes certain, up to the first stop text. Generation and the server share it."""


class Pieces:
    """feed(token) returns the text that is certain by now, finish() what is left at the end; together they are the text before the first stop text.

    A piece never ends inside of a character, and never contains a part of a stop text. stopped: a stop text was found, so no more tokens are needed.
    shown: special tokens whose names are part of the text. decoded and released: how many characters the tokens so far stand for, and how many of them were returned."""

    def __init__(self, tokenizer, stops=(), continues=False, shown=frozenset()):
        self._decoder, self._stops, self._held = tokenizer.stream(continues=continues, shown=shown), tuple(stops), ""
        self.stopped, self.decoded, self.released = False, 0, 0

    def _add(self, text):
        self._held += text
        self.decoded += len(text)

    def _release(self, count):
        text, self._held = self._held[:count], self._held[count:]
        self.released += count
        return text

    def _first_stop(self):
        return min((at for at in (self._held.find(s) for s in self._stops) if at >= 0), default=None)

    def feed(self, token):
        if self.stopped:
            return ""
        self._add(self._decoder.feed(token))
        # The end of the text may be the beginning of a stop text, also of one that begins before another that is there already.
        kept = max((n for s in self._stops for n in range(1, min(len(s), len(self._held)) + 1) if self._held.endswith(s[:n])), default=0)
        found = self._first_stop()
        if found is not None and found <= len(self._held) - kept:
            self.stopped = True
            return self._release(found)
        return self._release(len(self._held) - kept)

    def finish(self):
        if self.stopped:
            return ""
        self._add(self._decoder.finish())
        found = self._first_stop()
        self.stopped = found is not None
        return self._release(len(self._held) if found is None else found)
