"""What the engine writes, as the documents of OpenAI's API: whole answers and chunks of streams.

The engine calls from its own thread. A Mailbox brings its events to the loop of the server, where everything else here runs."""
import asyncio
import itertools
import json
import logging
import time
import uuid
from collections import deque
from functools import partial
from typing import NamedTuple

from .._pieces import Pieces, stop_reason
from ..engine import EngineFull, Finished
from ..tools import Parser
from ._requests import RequestError

log = logging.getLogger("pyflame.serve")

LEAST_LOGPROB = -9999.0  # stands for minus infinity, which JSON lacks


def _text(value):
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _bytes(text):
    return text.encode("utf-8", "backslashreplace")


def encoded(document):
    """JSON as UTF-8. Halves of surrogate pairs, which a message about wrong input may quote, are escaped."""
    return _bytes(_text(document))


SLICE = 1024  # values that are encoded at once, without a pause for other threads. It bounds the pieces of a large document, and _server.MOST_ENTRIES says which document is large.


def encoded_in_slices(document):
    """What encoded() returns, of a large document: json holds the interpreter until it has encoded what it gets, so it gets a part of the document at a time, and other threads go on."""
    return b"".join(map(_bytes, _slices(document)))


def _size(value, most):
    """How many values are in a list or dict, however deep. It stops counting above `most`."""
    size = len(value)
    for element in value.values() if isinstance(value, dict) else value:
        if size > most:
            break
        if isinstance(element, (dict, list, tuple)):
            size += _size(element, most - size)
    return size


def _slices(value):
    """The JSON of a value, in texts. None of them has more than SLICE values, but for the names in a dict."""
    if not isinstance(value, (dict, list, tuple)) or _size(value, SLICE) <= SLICE:
        yield _text(value)
    elif isinstance(value, dict):
        for i, (key, element) in enumerate(value.items()):
            yield ("," if i else "{") + _text({key: 0})[1:-2]
            yield from _slices(element)
        yield "}"
    else:
        group, size, mark = [], 0, "["  # elements that are encoded together
        for element in value:
            more = 1 + (_size(element, SLICE) if isinstance(element, (dict, list, tuple)) else 0)
            if group and size + more > SLICE:
                yield mark + _text(group)[1:-1]
                group, size, mark = [], 0, ","
            if more > SLICE:
                yield mark
                yield from _slices(element)
                mark = ","
            else:
                group.append(element)
                size += more
        yield (mark + _text(group)[1:-1] if group else "") + "]"


def event(document, encode=encoded):
    """One server-sent event."""
    return b"data: " + encode(document) + b"\n\n"


def unexpected(op, what, error):
    """The RequestError for a client whose request an error of the server ends. what: what has failed, for the log, which gets the cause."""
    log.error("%s failed", what, exc_info=error)
    return RequestError(f"{op}: the request failed; got an error of the server; expected an answer; hint: its log has the cause", status=500, code="internal_error")


class Mailbox:
    """Brings events from the engine's thread to the loop: put() may be called in any thread, and choice.receive(event) is called on the loop.

    The loop is woken once for all events that wait, not once for each of them."""

    def __init__(self, loop):
        self._loop, self._events, self._is_scheduled = loop, deque(), False

    def put(self, choice, event):
        self._events.append((choice, event))
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has ended, and with it everybody who waits
                pass

    def _deliver(self):
        self._is_scheduled = False
        while self._events:
            choice, event = self._events.popleft()
            try:
                choice.receive(event)
            except Exception as e:  # it concerns this answer alone
                choice.answer.fail(unexpected(choice.answer.op, "an answer", e))


class Delta(NamedTuple):
    """What is new of a choice. index: its number; entries: of its tokens' logprobs; reason: why it ended, None as long as it goes on; calls: of functions; stop_reason: the stop text or
    the token of the request that ended it."""

    index: int
    text: str
    entries: list
    reason: str = None
    calls: list = ()
    stop_reason: object = None


class Choice:
    """One text that the engine writes for an answer."""

    def __init__(self, answer, index, prompt, tokenizer):
        job = answer.job
        self.answer, self.index, self.request, self.reason, self._stop_id = answer, index, None, None, None
        self._pieces = Pieces(tokenizer, job.stops, job.continues[prompt], job.shown, job.includes_stop)
        self._parser, self._calls = (Parser(job.tool_format, job.tool_names), 0) if job.tool_format else (None, 0)
        self.tokens, self.cumulative_logprob, self._entries = 0, 0.0, deque()
        self._prompt_tokens, self._first, self._last = len(job.prompts[prompt]), None, None  # the times of two tokens
        self._queue, self._prefill = None, None  # seconds, which the first token brings
        self.held_seconds = 0.0  # from the request until the engine got this choice
        self.cached_tokens = None  # of the prompt, which the first token and the end bring
        self.prompt_logprobs = None  # of the prompt, which the first event brings
        self._prompt, self._offset = prompt if job.echo else None, 0  # the number of the prompt that is repeated before the text, and how long that is
        self.followers = []  # the other choices of the prompt, where they wait for the first event of this one

    def receive(self, event):
        """An event of the engine, on the loop."""
        if self.reason is not None:
            return
        if event.num_cached_tokens is not None:
            self.cached_tokens = event.num_cached_tokens
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        if not isinstance(event, Finished) or event.reason in ("stop", "length"):
            if self.followers:
                self.answer.submit_followers(self)
                if self.reason is not None:  # the engine did not take them, and the answer has failed
                    return
            self._repeat_prompt()
        if isinstance(event, Finished):
            if event.reason in ("stop", "length"):
                self.cumulative_logprob += event.logprob or 0.0
                self._stop_id = event.stop_id
                ending = self._pieces.feed(event.stop_id) if self.answer.job.includes_stop and event.stop_id is not None else ""
                self._finish(ending + self._pieces.finish(), "stop" if self._pieces.stopped else event.reason)
            else:
                self.reason = event.reason
                self.answer.count_failure(event.reason)
                self.answer.fail(self._error_of(event))
            return
        self.tokens += 1
        if event.queue_seconds is not None:
            self._queue, self._prefill = self.held_seconds + event.queue_seconds, event.prefill_seconds
        self._count_time()
        self.cumulative_logprob += event.logprob or 0.0
        at = self._pieces.decoded
        text = self._pieces.feed(event.id)
        if self.answer.job.logprobs is not None:
            self._entries.append((at, event))
        if self._pieces.stopped:
            self.cancel("stop")
            self._finish(text, "stop")
        elif text or self.answer.job.continuous_usage:
            self._add(text, self._entries_of(False))
        self.answer.count_token(self)

    def _error_of(self, end):
        """The RequestError for a text that ended early."""
        if end.by_settings:
            return RequestError(f"{self.answer.op}: {end.error}", param=self.answer.job.grammar_field)
        status = 500 if end.reason == "error" else 503
        return RequestError(f"{self.answer.op}: the text ended early; got {end.error or end.reason}; expected its end", status=status, code=end.reason)

    def take(self, sequence):
        """A whole text that a beam search has found."""
        ids = sequence.tokens[self._prompt_tokens : len(sequence.tokens) - (sequence.finish_reason == "stop")]
        self._first = self._last = time.monotonic()
        self.tokens, self.cumulative_logprob = len(ids), sequence.cum_logprob
        text = "".join([self._pieces.feed(id) for id in ids])
        self._finish(text + self._pieces.finish(), sequence.finish_reason)

    def _repeat_prompt(self):
        """Before the first token, with echo: the prompt is the begin of the text, and has logprobs as the text has them."""
        if self._prompt is None:
            return
        prompt, self._prompt = self._prompt, None
        text, entries = self.answer.repeated(prompt)
        self._offset = len(text)
        self.answer.add(Delta(self.index, text, entries))

    def _count_time(self):
        now = time.monotonic()
        if self._first is None:
            self._first = now
        else:
            self.answer.metrics.next_token(now - self._last)
        self._last = now

    def _add(self, text, entries):
        calls = []
        if self._parser is not None:
            text, calls = self._parser.feed(text)
            self._calls += len(calls)
        if text or calls or entries or self.answer.job.continuous_usage:
            self.answer.add(Delta(self.index, text, entries, None, calls))

    def _finish(self, text, reason):
        self.reason, calls = reason, []
        job = self.answer.job
        prompt, number = divmod(self.index, job.best_of)
        self.answer.metrics.text(self._prompt_tokens, self.tokens, self._last - self._first if self.tokens else 0.0, self._queue, self._prefill,
                                 max_tokens=job.max_tokens[prompt], n=None if number else job.n)
        if self._parser is not None:
            first, calls = self._parser.feed(text)
            last, more = self._parser.finish()
            text, calls = first + last, calls + more
            if self._calls + len(calls) and reason == "stop":
                reason = "tool_calls"
        self.answer.add(Delta(self.index, text, self._entries_of(not self._pieces.stopped), reason, calls, stop_reason(self._pieces, self._stop_id, job.named_ends)))

    def _entries_of(self, every):
        """Logprobs of the tokens whose text has been released: those that begin before its end."""
        ready = []
        while self._entries and (every or self._entries[0][0] < self._pieces.released):
            at, token = self._entries.popleft()
            ready.append((self._offset + at, token.id, token.logprob, token.top or []))
        return ready

    def cancel(self, reason):
        """Tells the engine that no more tokens are needed."""
        if self.reason is None:
            self.reason = reason
            if self.request is not None:
                self.answer.engine.cancel(self.request)


class Search:
    """The beam search of one prompt, whose best texts are the choices."""

    def __init__(self, answer, choices):
        self.answer, self.choices, self.beams = answer, choices, None

    def begin(self, prompt_ids, params):
        lora = {} if self.answer.job.lora is None else {"lora": self.answer.job.lora}
        self.beams = self.answer.engine.submit_beams(prompt_ids, params, priority=self.answer.job.priority, client=self.answer.job.client, **lora, receive=partial(self.answer.mailbox.put, self))
        for choice in self.choices:
            choice.request = self.beams

    def receive(self, event):
        """The search has ended, on the loop."""
        if event.reason not in ("stop", "length"):
            self.choices[0].receive(event)
            return
        if any(choice.reason is not None for choice in self.choices):  # nobody waits for it
            return
        self.choices[0].cached_tokens = event.num_cached_tokens
        for choice, sequence in zip(self.choices, self.beams.sequences):
            choice.take(sequence)
            self.answer.count_token(choice)
        for choice in self.choices[len(self.beams.sequences) :]:
            choice.receive(Finished("error", f"the search found {len(self.beams.sequences)} texts"))


class Answer:
    """All choices of one request. deltas: what is not sent yet.

    most_deltas: where more than these wait, the reader is too slow; the answer fails then, and on_overflow() is called. on_engine_failure(): called where the engine takes no requests any more."""

    def __init__(self, op, job, model, engine, mailbox, metrics, most_deltas=None, on_overflow=None, on_engine_failure=None):
        self.op, self.job, self.engine, self._model, self.metrics = op, job, engine, model, metrics
        self.deltas, self.error, self.first_token, self.begin = deque(), None, None, time.monotonic()
        self._most, self._overflow, self._engine_failure, self._event, self.mailbox = most_deltas, on_overflow, on_engine_failure, asyncio.Event(), mailbox
        self._repeated = {}  # with echo, of each prompt that a choice has repeated, by its number: its text, and the entries of its tokens
        self.choices = [Choice(self, p * job.best_of + i, p, model.tokenizer) for p in range(len(job.prompts)) for i in range(job.best_of)]
        self.unfinished = len(self.choices)
        self.prompt_tokens = sum(map(len, job.prompts))

    def submit(self):
        """Gives the choices to the engine. RequestError if it takes none, or does not like the settings; nothing is left running then."""
        if self.job.beams is None:
            self._give(lambda: self._submit_texts(self._first_choices()))
        else:
            self._give(self._submit_searches)

    def _give(self, submit):
        """submit(), which gives choices to the engine. RequestError."""
        try:
            submit()
        except EngineFull as e:
            self.cancel()
            raise RequestError(f"{self.op}: the queue is full; got {e}; expected room; hint: try again later", status=429, code="queue_full", kind="rate_limit_error", headers={"Retry-After": "1"}) from None
        except (ValueError, TypeError) as e:
            self.cancel()
            raise RequestError(str(e)) from None
        except RuntimeError as e:  # it has ended by itself
            self.cancel()
            if self._engine_failure is not None:
                self._engine_failure()
            raise RequestError(f"{self.op}: the engine takes no requests; got {e}; expected an engine that runs; hint: the server's log has the cause", status=503, code="engine_failed") from None
        except Exception as e:  # such as no memory
            self.cancel()
            raise unexpected(self.op, "an answer", e) from None

    def _submit_searches(self):
        for i, (ids, params) in enumerate(zip(self.job.prompts, self.job.beams)):
            Search(self, self.choices[i * self.job.n : (i + 1) * self.job.n]).begin(ids, params)

    def _first_choices(self):
        """The choices that begin at once. Where log probabilities of prompts are wanted, the engine computes a whole prompt for these, so the first choice of each prompt reads it, and the others begin
        with the first event of that one: the prompt's blocks are in the cache then. Where the engine keeps no known beginnings, they wait only if they repeat what the first one finds."""
        is_repeated = self.job.echo and self.job.logprobs is not None
        if not is_repeated and (self.job.prompt_logprobs is None or not getattr(self.engine, "enable_prefix_caching", True)):
            return self.choices
        firsts = self.choices[:: self.job.best_of]
        for first in firsts:
            first.followers = self.choices[first.index + 1 : first.index + self.job.best_of]
        return firsts

    def submit_followers(self, first):
        """Gives the engine the choices that wait for this one, whose prompt has been read. If the engine does not take them, the answer fails."""
        followers, first.followers = first.followers, []
        for choice in followers:
            choice.held_seconds = time.monotonic() - self.begin
        try:
            self._give(lambda: self._submit_texts(followers))
        except RequestError as e:
            self.fail(e)

    def repeated(self, prompt):
        """The text of a prompt that is repeated, and the entries of its tokens, which all its choices share. With logprobs, its first choice has begun."""
        if prompt not in self._repeated:
            text, places = self.job.repeated[prompt]
            ids, entries = self.job.prompts[prompt], []
            if self.job.logprobs is not None:
                found = self.choices[prompt * self.job.best_of].prompt_logprobs
                entries = [(at, id, *(of_token or (None, None))) for at, id, of_token in zip(places, ids, found or [None] * len(ids))]
            self._repeated[prompt] = text, entries
        return self._repeated[prompt]

    def _submit_texts(self, choices):
        seed = self.job.sampling.get("seed")
        logprobs = 0 if self.job.logprobs is None and self.job.best_of > self.job.n else self.job.logprobs
        for choice in choices:
            prompt, number = divmod(choice.index, self.job.best_of)
            of_prompt = [top for top in (self.job.prompt_logprobs, self.job.logprobs if self.job.echo else None) if number == 0 and top is not None]
            sampling = self._model._sampling({**self.job.sampling, **({} if seed is None else {"seed": seed + number})})
            choice.request = self.engine.submit(
                self.job.prompts[prompt], sampling, self.job.max_tokens[prompt], stop_ids=self.job.stop_ids, logprobs=logprobs, prompt_logprobs=max(of_prompt, default=None), priority=self.job.priority, client=self.job.client,
                **({"lora": self.job.lora} if self.job.lora is not None else {}), receive=partial(self.mailbox.put, choice),
            )  # fmt: skip

    @property
    def completion_tokens(self):
        return sum(c.tokens for c in self.choices)

    def usage(self):
        """OpenAI's usage. The cached tokens are those that the first choice of each prompt found; there are none in it until the engine has said so of all prompts."""
        found = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens, "total_tokens": self.prompt_tokens + self.completion_tokens}
        cached = [c.cached_tokens for c in self.choices[:: self.job.best_of]]
        return found if None in cached else {**found, "prompt_tokens_details": {"cached_tokens": sum(cached)}}

    @property
    def prompt_logprobs(self):
        """Of each prompt its tokens' log probabilities, as pairs of a token and what the engine has found of it; None where the request did not ask for them."""
        if self.job.prompt_logprobs is None:
            return None
        return [list(zip(ids, c.prompt_logprobs)) for ids, c in zip(self.job.prompts, self.choices[:: self.job.best_of])]

    @property
    def is_whole(self):
        """Whether all texts of an answer that is no stream have ended well."""
        return not self.job.stream and self.error is None and not self.unfinished

    def add(self, delta):
        if self._most is not None and len(self.deltas) >= self._most and self.error is None:
            self.fail(RequestError(f"{self.op}: the client reads too slowly; got {len(self.deltas)} pieces that wait; expected fewer", status=503, code="slow_client"))
            self._overflow()
        if self.error is None:
            self.deltas.append(delta)
            if delta.reason is not None:
                self.unfinished -= 1
                self.metrics.finished(delta.reason)
            self._event.set()

    def count_token(self, choice):
        if self.first_token is None:
            self.first_token = time.monotonic()
            self.metrics.first_token(self.first_token - self.begin)

    def count_failure(self, reason):
        self.metrics.finished("error" if reason == "error" else "abort")

    def fail(self, error):
        """Ends the answer with an error; the engine stops writing it."""
        if self.error is None and self.unfinished:
            self.error = error
            self.cancel()
            self._event.set()

    def cancel(self):
        """Ends what is still being written."""
        for choice in self.choices:
            if choice.reason is None:
                choice.cancel("cancelled")
                self.metrics.finished("abort")

    def wake(self):
        """Lets the one who waits for something to send go on without it."""
        self._event.set()

    async def some(self):
        """Waits until there is something to send, or until wake(). Returns all of it; an empty list at the end. Raises the error once everything before it was taken."""
        if not self.deltas and self.error is None and self.unfinished:
            self._event.clear()
            await self._event.wait()
        ready = list(self.deltas)
        self.deltas.clear()
        if not ready and self.error is not None:
            raise self.error
        return ready

    async def whole(self):
        """Waits for the end. Returns a Delta with all of each choice; of best_of texts the n of each prompt with the highest cumulative log
        probability, the highest first. Raises the error."""
        parts = [[] for _ in self.choices]
        while self.unfinished or self.deltas:
            for delta in await self.some():
                parts[delta.index].append(delta)
        found = [self._joined(deltas) for deltas in parts]
        n, best_of = self.job.n, self.job.best_of
        if best_of == n:
            return found
        best = []
        for begin in range(0, len(found), best_of):
            best += sorted(range(begin, begin + best_of), key=lambda i: -self.choices[i].cumulative_logprob)[:n]
        return [found[i] for i in best]

    @staticmethod
    def _joined(deltas):
        """One Delta of those of a choice."""
        last = deltas[-1]
        entries = list(itertools.chain.from_iterable(d.entries for d in deltas))  # fast, because an answer may have many
        return last._replace(text="".join(d.text for d in deltas), entries=entries, calls=[c for d in deltas for c in d.calls])


class Form:
    """The documents of the answer to a Job. tokenizer: for the texts of logprobs."""

    def __init__(self, id, model, tokenizer, job):
        self.head = {"id": id, "object": self.kind, "created": int(time.time()), "model": model}
        self._tokenizer, self._job, self._logprobs, self._include_usage = tokenizer, job, job.logprobs, job.include_usage

    @staticmethod
    def _number(logprob):
        return None if logprob is None else max(logprob, LEAST_LOGPROB)

    def _named(self, id, logprob):
        data = self._tokenizer.token_bytes(id, skip_special=False)
        return {"token": data.decode("utf-8", "replace"), "logprob": self._number(logprob), "bytes": list(data)}

    def _ranked(self, token):
        """vLLM's object for a token of a prompt, by ids as texts, the token's own first; None for the first token."""
        id, found = token
        if found is None:
            return None
        logprob, top = found
        top = top[: self._job.prompt_logprobs]
        ranks = {i: rank for rank, (i, _) in enumerate(top, 1)}
        shown = {id: logprob, **dict(top)}
        return {str(i): {"logprob": self._number(p), "rank": ranks.get(i), "decoded_token": self._named(i, p)["token"]} for i, p in shown.items()}

    def _of_prompts(self, prompts):
        """The fields that have the log probabilities of each prompt."""
        return [{} if tokens is None else {"prompt_logprobs": list(map(self._ranked, tokens))} for tokens in prompts or [None] * len(self._job.prompts)]

    @staticmethod
    def _end(delta):
        return {"finish_reason": delta.reason, "stop_reason": delta.stop_reason}

    def whole(self, answer, choices):
        """The document of a whole answer. choices: as of Answer.whole()."""
        return {**self.head, "choices": [self._choice(i, delta) for i, delta in enumerate(choices)], "usage": answer.usage()}

    def chunk(self, choices):
        usage = {"usage": None} if self._include_usage else {}
        return {**self.head, "object": self.chunk_kind, "choices": choices, **usage}

    def last(self, usage):
        return {**self.head, "object": self.chunk_kind, "choices": [], "usage": usage}


class ChatForm(Form):
    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def _entries(self, entries):
        if self._logprobs is None:
            return None
        return {"content": [{**self._named(id, logprob), "top_logprobs": [self._named(*t) for t in top[: self._logprobs]]} for _, id, logprob, top in entries], "refusal": None}

    def whole(self, answer, choices):
        [of_prompt] = self._of_prompts(answer.prompt_logprobs)
        return {**super().whole(answer, choices), **of_prompt}

    @staticmethod
    def _call(call):
        return {"id": "call_" + uuid.uuid4().hex[:24], "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _choice(self, index, delta):
        message = {"role": "assistant", "content": delta.text}
        if delta.calls:
            message = {"role": "assistant", "content": delta.text or None, "tool_calls": list(map(self._call, delta.calls))}
        return {"index": index, "message": message, "logprobs": self._entries(delta.entries), **self._end(delta)}

    def begin(self, count):
        self._sent = [0] * count  # calls of each choice
        return [self.chunk([{"index": i, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None, "stop_reason": None}]) for i in range(count)]

    def piece(self, delta):
        new = {"content": delta.text} if delta.text else {}
        if delta.calls:
            new["tool_calls"] = [{"index": self._sent[delta.index] + i, **self._call(c)} for i, c in enumerate(delta.calls)]
            self._sent[delta.index] += len(delta.calls)
        return self.chunk([{"index": delta.index, "delta": new, "logprobs": self._entries(delta.entries) if delta.entries else None, **self._end(delta)}])


class CompletionForm(Form):
    kind, chunk_kind, prefix = "text_completion", "text_completion", "cmpl-"

    def _entries(self, entries):
        if self._logprobs is None:
            return None
        named = [(at, self._named(id, logprob), self._likeliest(top)) for at, id, logprob, top in entries]
        return {"tokens": [n["token"] for _, n, _ in named], "token_logprobs": [n["logprob"] for _, n, _ in named], "top_logprobs": [t for _, _, t in named], "text_offset": [at for at, _, _ in named]}

    def _likeliest(self, top):
        return None if top is None else {t["token"]: t["logprob"] for t in (self._named(*o) for o in top[: self._logprobs])}

    def whole(self, answer, choices):
        document, of_prompts = super().whole(answer, choices), self._of_prompts(answer.prompt_logprobs)
        return {**document, "choices": [{**c, **of_prompts[c["index"] // self._job.n]} for c in document["choices"]]}

    def _choice(self, index, delta):
        return {"index": index, "text": delta.text, "logprobs": self._entries(delta.entries), **self._end(delta)}

    def begin(self, count):
        return []

    def piece(self, delta):
        return self.chunk([{"index": delta.index, "text": delta.text, "logprobs": self._entries(delta.entries) if delta.entries else None, **self._end(delta)}])
