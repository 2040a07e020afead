"""The steps of an engine: a forward pass of what was planned, the tokens that it finds, and what is handed over of them."""
from __future__ import annotations

import bisect
import dataclasses
import itertools
import logging
import time

from ._beams import advance
from ._choice import Choices
from ._engine_schedule import Schedule, goes_on_alone
from ._errors import SettingsError
from ._paged import Part, Step, coarsely_rounded, step_sizes
from ._request import Finished, Token
from ._speculation import NGrams

STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)  # bounds of how many tokens a step computes, for stats()
_log = logging.getLogger("pyflame.llm")


def _places(parts):
    """For each part of a pass, the place of its token among those that the pass finds, or None."""
    places = itertools.count()
    return [next(places) if p.wanted else None for _, p in parts]


class Steps(Schedule):
    """The part of an Engine that computes. All of it runs on the engine's thread."""

    def _compute(self, parts):
        """One forward pass and what follows of it. False where it failed: the blocks are new then. While a GPU chooses all tokens, the next passes follow from here: each begins
        before the host knows the tokens of the one before, so the device does not wait for the host. The CPU would compute it before it hands the tokens over."""
        try:
            drafts = self._drafts_of(parts) if self.speculative_config is not None else {}
            for r, p in parts:
                p.ids, p.wanted = p.ids + drafts.get(r, []), p.wanted + len(drafts.get(r, []))
            begun = self._begin(parts)
        except Exception as e:
            self._failed([r for r, _ in parts], e)
            return False
        while begun is not None:
            parts, step = begun
            begun, error = None, None
            try:
                begun = self._begin_next(parts, step) if self._is_on_gpu else None
            except Exception as e:
                error = e  # the tokens of this pass are right
            try:
                found = step.chosen()
                self._pages.settle()  # what was copied before the step that runs now
            except Exception as e:
                self._failed([r for r, _ in parts if r.finished is None], e)
                return False
            self._count_step(sum(len(p.ids) for _, p in parts))
            at = 0
            for r, p in parts:
                rows, guesses = found[at:at + p.wanted], drafts.get(r, [])
                at += p.wanted
                if r.finished is not None:
                    continue  # the token before this one was its last, which nobody knew when this pass began
                r._computed = p.end - len(guesses)
                if r._reads_prompt:
                    rows = self._note_prompt(r, p, rows)
                if len(r.ids) >= self._limit(r):
                    if not r._reads_prompt:
                        self._end_soon(r)  # the prompt was all that was wanted
                elif rows:
                    if not r._cancelled:
                        self._register(r, r._computed)
                    self._take(r, rows, guesses)
            if error is not None:
                self._failed([r for r, _ in parts if r.finished is None], error)
                return False
            ready = [b for b in dict.fromkeys(r._beams for r, _ in parts if r._beams is not None) if b._is_ready]
            if not all([self._advance(beams) for beams in ready]):  # if one fails, the others go on, without their blocks
                return False
        return True

    def _begin(self, parts, found=None):
        """Begins a forward pass: (parts, step). found: the tokens of the pass before, where only the device knows them."""
        wanted = sum(p.wanted for _, p in parts)
        rows, logits_rows = step_sizes([p for _, p in parts], wanted, self._room())
        if self._chunk is not None:
            chunk = len(parts) == 1 and parts[0][1].begin < len(parts[0][0].prompt_ids)
            rows, logits_rows = (rows, coarsely_rounded(wanted, 1)) if chunk else (self._rows, self._rows)  # how a prompt is divided depends on the prompt alone
        # Other ranks choose, too, where the next pass may take the tokens from the device. Otherwise the choice is prepared while the device computes.
        start = (self._known, self._choices(parts, logits_rows)) if all(goes_on_alone(r) for r, _ in parts) else None
        step = self._new_step([p for _, p in parts], rows, logits_rows, found, start)
        step.start(*start or (self._known, lambda: self._choices(parts, logits_rows)))
        return parts, step

    def _begin_next(self, parts, step):
        """Begins the pass after one that has begun, with the tokens that this one finds. Texts that are complete with these are left out. None where the host must see
        the tokens first, where a request was cancelled (one that waits, too), or where a request must give up its blocks."""
        with self._wake:
            planned = self._plan_ahead({r: (p, place) for (r, p), place in zip(parts, _places(parts))})
        if not planned or (self._chunk is not None and step.next_ids.shape[0] != self._rows):
            return None
        return self._begin(planned, step.next_ids if any(p.after is not None for _, p in planned) else None)

    def _choices(self, parts, count):
        """How the tokens of a pass with so many rows of logits are chosen."""
        rows = []
        for r, p in parts:
            of_prompt = r._prompt_logprobs.count(p.begin, p.end) if r._reads_prompt else 0
            if of_prompt:
                rows += r._prompt_logprobs.rows(of_prompt)
            if p.wanted > of_prompt and r._beams is not None:
                rows.append(r._beams._row())
            elif p.wanted > of_prompt:
                guesses = p.ids[len(p.ids) - (p.wanted - of_prompt) + 1:]
                rows += r._sampler.rows(self._known, r.ids, len(r.prompt_ids), r.stop_ids, guesses, -1 if p.after is None else p.after, r.logprobs)
        return Choices(rows, count, self.model.config.vocab, every=self._rows is not None)

    def _note_prompt(self, r, p, found):
        """Takes the log probabilities of a prompt's tokens from what was found of a part. Returns the rest, what was found of the next token; nothing where the logits are not finite, and
        the request has ended."""
        count = r._prompt_logprobs.count(p.begin, p.end)
        try:
            r._prompt_logprobs.take(found[:count])
        except ValueError as e:
            self._end(r, Finished("error", f"{type(e).__name__}: {e}"))
            return []
        return found[count:]

    def _take(self, r, found, guesses):
        """Writes the next token, and those after it as long as the guesses are right. found: what was found after the last token and after each guess."""
        before, right = len(r.ids), 0
        while self._write(r, found[right]) and right < len(guesses) and r.ids[-1] == guesses[right]:
            right += 1
            r._computed += 1  # the guess's keys and values are the token's
        if guesses:
            accepted = 0  # the last one may have ended the text
            while accepted < min(len(guesses), len(r.ids) - before) and r.ids[before + accepted] == guesses[accepted]:
                accepted += 1
            r._drafted = min(r._drafted, r._computed)
            with self._wake:
                self._totals["spec_decode_num_drafts"] += 1
                self._totals["spec_decode_num_draft_tokens"] += len(guesses)
                self._totals["spec_decode_num_accepted_tokens"] += accepted
                for i in range(accepted):
                    self._accepted[i] += 1

    def _write(self, r, found):
        """Hands over a request's next token, a Found. Returns whether the text goes on."""
        if r._cancelled:
            return False
        end, token = None, None
        try:
            if r._beams is not None:
                r._candidates = r._beams._following(found)
                return False
            id = r._sampler.take(found)
            if id in r.stop_ids or r._sampler.ended:
                end = Finished("stop", logprob=found.logprob, stop_id=id) if id in r.stop_ids else Finished("stop")
            else:
                token = Token(id, found.logprob, list(found.top), *self._times(r))
        except SettingsError as e:
            end = Finished("error", str(e), by_settings=True)
        except Exception as e:  # such as logits that are not finite
            end = Finished("error", f"{type(e).__name__}: {e}")
        if token is not None:
            r.ids.append(token.id)
            self._totals["generation_tokens_total"] += 1
            self._deliver(r, token)
            if not r._cancelled and len(r.ids) >= self._limit(r):
                end = Finished("length")
        if end is not None:
            self._end(r, end)
        return end is None and not r._cancelled

    @staticmethod
    def _times(r):
        """For a text's first token: the seconds that its request waited, those since then, how many tokens of its prompt were in the cache, and the log probabilities of the prompt's tokens."""
        return (r._began - r._came, time.monotonic() - r._began, r.num_cached_tokens, r._prompt_found) if len(r.ids) == len(r.prompt_ids) else ()

    def _advance(self, beams):
        """The next step of a search. False where it failed."""
        try:
            advance(self, beams)
        except Exception as e:
            self._failed(beams._requests, e)
            return False
        return True

    def _count_step(self, tokens):
        with self._wake:
            self._totals["iteration_tokens_total"] += tokens
            self._step_sizes[bisect.bisect_left(STEP_TOKENS, tokens)] += 1

    def _end(self, r, finished):
        """Ends a running request."""
        with self._wake:
            self._remove(r)
        self._deliver(r, finished)

    def _deliver(self, r, event):
        receive = r._receive
        if isinstance(event, Finished):
            event = dataclasses.replace(event, num_cached_tokens=r.num_cached_tokens, prompt_logprobs=r._prompt_found)
            r.finished, r._receive = event, None  # what it refers to may end with the request
        try:
            receive(event)
        except BaseException as e:  # whatever it is, it concerns this request alone
            text = f"receive() has failed: {type(e).__name__}: {e}"
            if isinstance(event, Token):
                self._end_soon(r, Finished("cancelled", text))
            else:
                _log.exception("%s: %s", r, text)

    def _failed(self, requests, error):
        """Ends these requests. The others are computed again, because a failed step leaves no block that can be trusted. Where several processes compute, they may be at
        different places then: the engine ends."""
        if self._workers is not None:
            raise self._workers.failure(error) from error
        _log.error("a step has failed, and with it %d requests", len(requests), exc_info=error)
        with self._wake:
            for r in list(self._running):
                self._remove(r)
                if r not in requests and r._candidates is None:
                    self._waiting.add(r)
            for r in [r for r in self._waiting if r in requests]:
                self._remove(r)
            self._blocks.clear()
            self._pages = self._draft_pages = None
        for r in requests:
            self._deliver(r, Finished("error", f"{type(error).__name__}: {error}"))
        self._make_pages()

    def _drafts_of(self, parts):
        """Guesses for the requests of a step: {request: list of ids}."""
        c, found = self.speculative_config, {}
        wants = [r for r, p in parts if r._room and len(p.ids) == 1 and p.wanted and not r._cancelled]
        if self._draft is not None:
            return self._drafts_of_model(wants)
        for r in wants:
            if r._ngrams is None:
                r._ngrams = NGrams(c.prompt_lookup_min, c.prompt_lookup_max)
            if guesses := r._ngrams.propose(r.ids, r._room):
                found[r] = guesses
        return found

    def _drafts_of_model(self, wants):
        """What the draft model takes for the likeliest: one forward pass for each guess, of all requests at once. It first reads what it has not seen."""
        wants = [r for r in wants if len(r.ids) + r._room <= self._draft.config.context]
        for r in wants:
            while len(r.ids) - r._drafted > self.max_num_batched_tokens:
                end = r._drafted + self.max_num_batched_tokens
                Step(self._draft, self._draft_pages, [Part(r.ids[r._drafted:end], r._drafted, r._blocks, False)], self.max_num_batched_tokens, 1).run()
                r._drafted = end
        found, left = {r: [] for r in wants}, list(wants)
        while left:
            parts = [Part((r.ids + found[r])[r._drafted:], r._drafted, r._blocks, True) for r in left]
            step = Step(self._draft, self._draft_pages, parts, *step_sizes(parts, len(parts)))
            step.start(self._known)
            for r, p, chosen in zip(left, parts, step.chosen()):
                r._drafted = p.end
                found[r].append(chosen.id)
            left = [r for r in left if len(found[r]) < r._room]
        return found
