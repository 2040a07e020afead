"""The text of tokens as it becomes certain, up to the first stop text. Generation and the server share it."""


class Pieces:
    """feed(token) returns the text that is certain by now, finish() what is left at the end; together they are the text before the first stop text.

    A piece never ends inside of a character, and never contains a part of a stop text, unless it is wanted. stopped: a stop text was found, so no more tokens are needed.
    shown: special tokens whose names are part of the text. includes_stop: the text ends behind the first stop text. stop: the stop text that was found, or None. decoded and released: how many characters the tokens so far stand for, and how many of them were returned."""

    def __init__(self, tokenizer, stops=(), continues=False, shown=frozenset(), includes_stop=False):
        self._decoder, self._stops, self._held = tokenizer.stream(continues=continues, shown=shown), tuple(stops), ""
        self._includes_stop, self.stop, self.decoded, self.released = includes_stop, None, 0, 0

    @property
    def stopped(self):
        return self.stop is not None

    def _add(self, text):
        self._held += text
        self.decoded += len(text)

    def _release(self, count):
        text, self._held = self._held[:count], self._held[count:]
        self.released += count
        return text

    def _first_stop(self):
        """(where the first stop text begins, which one of the stop texts it is), or None. Of two at one place, the first of the list."""
        return min(((at, i) for i, at in enumerate(self._held.find(s) for s in self._stops) if at >= 0), default=None)

    def _release_stopped(self, found):
        at, i = found
        self.stop = self._stops[i]
        return self._release(at + len(self.stop) if self._includes_stop else at)

    def feed(self, token):
        if self.stopped:
            return ""
        self._add(self._decoder.feed(token))
        # The end of the text may be the beginning of a stop text, also of one that begins before another that is there already.
        kept = max((n for s in self._stops for n in range(1, min(len(s), len(self._held)) + 1) if self._held.endswith(s[:n])), default=0)
        found = self._first_stop()
        if found is not None and found[0] <= len(self._held) - kept:
            return self._release_stopped(found)
        return self._release(len(self._held) - kept)

    def finish(self):
        if self.stopped:
            return ""
        self._add(self._decoder.finish())
        found = self._first_stop()
        return self._release(len(self._held)) if found is None else self._release_stopped(found)


def stop_reason(pieces, stop_id, named):
    """What ended a text, by vLLM's rule: its stop text, or the token that ended it if that is one of `named`, those that the request asked for. None for another end, such as a token of
    the model's own. pieces: the text's Pieces, or None; stop_id: as of Finished."""
    if pieces is not None and pieces.stopped:
        return pieces.stop
    return stop_id if stop_id in named else None
