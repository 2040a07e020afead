"""What an engine on a GPU computes as long as it has no requests: steps of all sizes that writing texts takes, so that their programs are planned."""
from __future__ import annotations

import collections

from ._choice import LIKELIEST, Choices, Row
from ._paged import BLOCK, WASTE, Part, Size, reading_sizes, step_sizes, whole_prompt, writing_sizes

READS = 1 << 14  # tokens of the longest prompt whose steps an engine warms up with: those of longer ones take much longer than to plan them
# How the steps of one size choose a token: the likeliest one, or a drawn one. After six runs a program becomes a graph, whose first replay is compared with a run.
# The first run takes the tokens of another size, which is a program of its own, so nine are needed.
SETTINGS = (LIKELIEST, (1.0, 0, 1.0, 0.0, 0.5)) * 5


def sizes_of(engine):
    """The sizes of the steps that are computed while there are no requests, those of short texts first. Guesses make other steps. Where weights lie in host memory, a step takes longer
    than to plan it. With batch_invariant all parts of prompts but the last ones have one number of rows."""
    if not engine._is_on_gpu or engine.speculative_config is not None or engine._network.offloaded_bytes():
        return []
    writing = writing_sizes(engine.max_num_seqs, engine.max_model_len)
    if engine._rows is not None:
        writing = list(dict.fromkeys(Size(engine._rows, size.written) for size in writing))
    reading = reading_sizes(engine._chunk or engine.max_num_batched_tokens, min(engine.max_model_len, READS))
    if engine._chunk is not None:
        reading = [size for size in reading if size.written == 0]
    return [*reading[:1], *writing, *reading[1:]]


class WarmUp:
    """The steps of no text that an engine computes, on its thread. sizes: of which steps. left: the sizes that are not computed yet."""

    def __init__(self, sizes):
        self.left = collections.deque(sizes)
        self.let_go()

    def let_go(self):
        """Keeps nothing of the last step: what comes now is no step of a warm-up."""
        self._ids = self._step = None

    def compute_next(self, engine):
        """Computes steps of the next size, until there is a request. Where that fails, no further size is tried: a request that needs such a step says why it cannot be computed."""
        try:
            if self._compute(engine, self.left[0]):
                self.left.popleft()
                if not self.left:
                    self.let_go()
        except Exception:
            self.left.clear()
            self.let_go()
            raise

    def _compute(self, engine, size):
        """Computes steps of a size for no text, until there is a request. Returns whether all of them were computed. What is written goes to the waste block.

        The first step takes the token that the last size has found, as where texts have ended; the second takes it from another row; those after it have each row's own."""
        for i, settings in enumerate(SETTINGS):
            if not engine._is_idle():
                return False
            after = None if self._ids is None or not size.written else min(int(i == 1), size.rows - 1)
            parts = []
            if size.written:
                end = min(size.written * BLOCK, engine.max_model_len)
                parts.append(Part([0], end - 1, [WASTE] * -(-end // BLOCK), True, after=after))
            if size.read:
                parts += self._prompts(engine, size, size.rows - len(parts))
            self._ids = self._found(engine, parts, size, settings, None if after is None else self._ids)
        return True

    @staticmethod
    def _prompts(engine, size, tokens):
        """Parts of so many tokens in all, whose tables have the size's blocks: of several prompts, where one of max_model_len has fewer."""
        parts, left = [], size.read
        while left > 0 and len(parts) < engine.max_num_seqs and tokens > 1:
            end = min(left * BLOCK, engine.max_model_len)
            blocks = -(-end // BLOCK)
            left -= blocks
            count = min(end, tokens if left <= 0 else 2)
            tokens -= count
            parts.append(Part([0] * count, end - count, [WASTE] * blocks, size.wanted and not size.written and left <= 0))
        if whole_prompt(engine._network.device, parts):
            # Such a step has a program of its own, and takes longer than to plan it. The one of several prompts is planned, with as many blocks.
            (only,) = parts
            count = len(only.ids) - BLOCK
            parts = [Part([0] * count, 0, only.blocks[1:], False), Part([0] * BLOCK, 0, only.blocks[:1], only.wanted)]
        return parts

    def _found(self, engine, parts, size, settings, before):
        """The tokens that a step of these parts finds, on the device. before: those that the step before has found."""
        logits_rows = size.rows
        if size.read:
            logits_rows = 1 if engine._chunk is not None else step_sizes(parts, 1, engine._room())[1]
        start = engine._known, Choices([Row(settings)] * sum(p.wanted for p in parts), logits_rows, engine.model.config.vocab, every=engine._rows is not None)
        step = engine._new_step(parts, size.rows, logits_rows, before, start)
        step.start(*start)
        step.chosen()
        self._step = step  # the one before is let go now: texts, too, have the next step begun before they let go of one, and a GPU graph is made for the addresses of both
        return step.next_ids
