"""The HTTP server: routes, limits, keys, and the end. One thread runs all connections; the engine computes in its own (decision 0019)."""
import asyncio
import base64
import hashlib
import hmac
import logging
import os
import re
import time
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

from aiohttp import web
from aiohttp.http import HttpProcessingError

from ..embedding import EmbeddingModel
from . import _requests as requests
from ._answers import Answer, ChatForm, CompletionForm, Mailbox, encoded, encoded_in_slices, event, unexpected
from ._connections import Connections
from ._embeddings import embedding_job, embedding_document
from ._metrics import CONTENT_TYPE, Metrics
from ._requests import RequestError

log = logging.getLogger("pyflame.serve")

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
MOST_ENTRIES = 64  # tokens with log probabilities of a document that is built on the loop. A larger one is built in a thread of its own, in slices (_answers.SLICE).
_OPEN = ("/", "/health")  # without a key
_QUIET = ("/", "/health", "/metrics")  # not in the log where all is well


class _Notes:
    """What is known of a request while it is answered. counts: by the names of OpenAI's usage; status: of what was said in a stream, whose head has said 200."""

    def __init__(self, id):
        self.id, self.counts, self.status = id, {}, None


_SHORT = {"prompt_tokens": "prompt", "completion_tokens": "written", "vectors": "vectors"}  # names of counts in a line for people


def _log_request(notes, request, status, seconds):
    path, counts = request.rel_url.raw_path[:80], "".join(f" {_SHORT[name]} {count}" for name, count in notes.counts.items())
    fields = {"request_id": notes.id, "client": request.remote, "method": request.method, "path": path, "status": status, **notes.counts, "seconds": seconds}
    log.info("%s %s %s %s %d%s %.3f s", notes.id, request.remote, request.method, path, status, counts, seconds, extra={"event": "request", "fields": fields})


_notes = ContextVar("notes")  # of the task that answers a request


def _shorten(record):
    """The library's record of a head that it cannot read, without the stack: strangers could fill the log with it."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        client = record.args[0] if record.args else "a client"
        record.msg, record.args, record.exc_info, record.exc_text = "a request of %s cannot be read; got %r", (client, str(error)[:120]), None, None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


_of_library = logging.getLogger("pyflame.serve.http")
_of_library.addFilter(_shorten)


@dataclass
class Limits:
    """What clients may take. Seconds of 0: no limit.

    body_bytes: of a request's body; clients: open connections; choices: texts that are written, or wait, or are put into one answer at the same time (prompts times n or best_of, of all
    requests); request_seconds: from a request to the end of its answer; head_seconds and body_seconds: until the first request's head, and each body,
    have come; waiting_pieces: pieces of a stream that the client has not read; beat_seconds: after which a stream that has nothing to say sends a
    comment, so that nobody takes it for dead.

    The fields are not checked. An unknown one is a TypeError.
    """

    body_bytes: int = 4 << 20
    clients: int = 1024
    choices: int = 1024
    request_seconds: float = 600.0
    head_seconds: float = 30.0
    body_seconds: float = 60.0
    waiting_pieces: int = 4096
    beat_seconds: float = 15.0


def page():
    """(the page, its Content-Security-Policy): only the page's own script and style run, and it talks only to this server."""
    with open(os.path.join(os.path.dirname(__file__), "page.html"), encoding="utf-8") as f:
        text = f.read()

    def digest(tag):
        inner = re.search(f"<{tag}>(.*?)</{tag}>", text, re.S).group(1)
        return "'sha256-" + base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode() + "'"

    policy = f"default-src 'none'; script-src {digest('script')}; style-src {digest('style')}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return text.encode(), policy


class Server:
    """Serves a LanguageModel through an Engine, or an EmbeddingModel through an Embedder (_embeddings.py).

    name: the model's name in requests and answers; keys: if there are some, each request needs one of them; origins: of other pages that browsers
    let talk to the server, '*' for all. limits: a Limits, what clients may take; None: its defaults. tls: an ssl.SSLContext, with which it speaks HTTPS.

    start(socket) begins to listen, drain(seconds) refuses what is new and waits for what runs, stop() cuts off what is left. All three are coroutines
    of one loop. The engine is not closed."""

    GRACE_SECONDS = 2.0  # for the rest of an answer that ended with an error

    def __init__(self, model, engine, name=None, keys=(), limits=None, origins=(), tls=None):
        self.model, self.engine, self.limits = model, engine, limits or Limits()
        self.name = name or model.name or "model"
        self.created, self.is_draining, self.has_failed, self.answers = int(time.time()), False, False, {}
        self._keys, self._origins = [hashlib.sha256(k.encode()).digest() for k in keys], frozenset(origins)
        self._metrics, self._busy, self._idle = Metrics(engine, self.name), 0, None
        self._tls = tls
        self._page, self._policy = page()
        # Requests are parsed in one pool and large answers are built in another, so neither waits for the other.
        self._pool, self._builders = ThreadPoolExecutor(2, thread_name_prefix="pyflame-tokenizer"), ThreadPoolExecutor(2, thread_name_prefix="pyflame-answers")

    # Life.

    async def start(self, socket):
        """A coroutine that begins to answer requests that come to a listening address. socket: a bound socket.socket. Returns when the server listens."""
        loop = asyncio.get_running_loop()
        self._mailbox, self._idle = Mailbox(loop), asyncio.Event()
        self._idle.set()
        app = web.Application(client_max_size=self.limits.body_bytes, middlewares=[self._around])
        app.on_response_prepare.append(self._add_headers)
        app.add_routes([
            web.get("/", self._get_page), web.get("/health", self._health), web.get("/metrics", self._get_metrics), web.get("/v1/models", self._models),
            web.get("/v1/models/{name:.+}", self._model), web.post("/v1/chat/completions", self._chat), web.post("/v1/completions", self._complete), web.post("/v1/embeddings", self._embed),
            web.post("/tokenize", self._tokenize), web.post("/detokenize", self._detokenize),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, keepalive_timeout=75, auto_decompress=False, shutdown_timeout=1.0, logger=_of_library)
        await self._runner.setup()
        self.connections = Connections(self._runner.server, self.limits.clients, self.limits.head_seconds)
        self._listener = await loop.create_server(self.connections, sock=socket, backlog=1024, **({"ssl": self._tls, "ssl_handshake_timeout": self.limits.head_seconds or None} if self._tls else {}))
        self._beat = loop.create_task(self._beats())

    async def drain(self, seconds):
        """Refuses new work with status 503, and waits for the answers that are being written. Returns whether all of them ended in time."""
        self.is_draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    async def stop(self):
        """Ends the answers that are still being written with an error, and closes all connections."""
        self.is_draining = True
        self._beat.cancel()
        for answer in list(self.answers):
            self._break_off(answer, RequestError("serve: the server ends; got a text that was not finished; expected its end", status=503, code="server_ends"))
        self._listener.close()
        try:
            await asyncio.wait_for(self._idle.wait(), 5)  # they say so to their clients
        except asyncio.TimeoutError:
            pass
        await self._runner.cleanup()
        for pool in (self._pool, self._builders):
            pool.shutdown(wait=False)

    async def _beats(self):
        while True:
            await asyncio.sleep(self.limits.beat_seconds)
            for answer in list(self.answers):
                answer.wake()

    # Around each request.

    @web.middleware
    async def _around(self, request, handler):
        self.connections.asked(request.transport)
        given = request.headers.get("X-Request-Id", "")
        notes = _Notes(given if _ID.fullmatch(given) else uuid.uuid4().hex)
        _notes.set(notes)
        begin, status = time.monotonic(), 499
        try:
            try:
                response = await self._checked(request, handler)
            except RequestError as e:
                response = self._error(e)
            except web.HTTPException as e:
                response = self._error(self._of_library(e, request))
            except asyncio.CancelledError:
                raise
            except ConnectionError:  # the client has left; nobody reads this
                return web.Response(status=status)
            except Exception as e:
                response = self._error(unexpected("serve", notes.id, e))
            status = notes.status or response.status
            return response
        finally:
            if status >= 400 or request.path not in _QUIET:
                _log_request(notes, request, status, time.monotonic() - begin)

    @staticmethod
    def _error(e):
        return web.Response(body=encoded(e.document()), status=e.status, content_type="application/json", headers=e.headers)

    def _of_library(self, e, request):
        if e.status == 413:
            return RequestError(f"serve: the body is too large; got more than {self.limits.body_bytes} bytes; expected at most these", status=413, code="body_too_large")
        if e.status == 404:
            return RequestError(f"serve: there is no such path; got {request.rel_url.raw_path[:80]}; expected one such as /v1/chat/completions", status=404, code="not_found")
        if e.status == 405:
            allowed = ", ".join(sorted(e.allowed_methods))
            return RequestError(f"serve: the path has no such method; got {request.method[:20]}; expected {allowed}", status=405, code="method_not_allowed", headers={"Allow": allowed})
        return RequestError(f"serve: the request cannot be answered; got {e.reason}; expected another", status=e.status)

    async def _checked(self, request, handler):
        origin = request.headers.get("Origin")
        if origin is not None and not self._allows(origin) and urllib.parse.urlsplit(origin).netloc != request.host:
            raise RequestError(f"serve: pages of this origin may not use the server; got {origin[:80]}; expected none, or one of --cors", status=403, code="origin_refused", kind="permission_error")
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return web.Response(status=204, headers={"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Request-Id", "Access-Control-Max-Age": "600"})
        if self._keys and request.path not in _OPEN and not self._knows(request.headers.get("Authorization", "")):
            raise RequestError("serve: the API key is missing or wrong; got no known key; expected the header Authorization: Bearer KEY", status=401, code="invalid_api_key", kind="authentication_error", headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    def _allows(self, origin):
        return "*" in self._origins or origin in self._origins

    @staticmethod
    def _digest(key):
        return hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()

    def _client_of(self, request, job):
        """Whose texts a request's are, for the engine, which lets clients take turns: those of its API key where the server has keys, otherwise of its user, otherwise of its address."""
        if self._keys:
            return "key", self._digest(request.headers["Authorization"].partition(" ")[2])
        return ("user", job.user) if job.user else ("address", request.remote)

    def _knows(self, header):
        kind, _, key = header.partition(" ")
        digest = self._digest(key)
        found = [hmac.compare_digest(digest, k) for k in self._keys]  # all of them, so that the time says nothing
        return kind.lower() == "bearer" and any(found)

    async def _add_headers(self, request, response):
        notes = _notes.get(None)  # none where the head of the request could not be read
        if notes is not None:
            response.headers["X-Request-Id"] = notes.id
        response.headers["Server"] = "pyflame"
        response.headers["X-Content-Type-Options"] = "nosniff"
        origin = request.headers.get("Origin")
        if origin is not None and self._allows(origin):
            response.headers["Access-Control-Allow-Origin"] = "*" if "*" in self._origins else origin
            response.headers["Access-Control-Expose-Headers"] = "X-Request-Id"
            response.headers["Vary"] = "Origin"

    # Answers that need no engine.

    async def _get_page(self, request):
        return web.Response(body=self._page, content_type="text/html", charset="utf-8", headers={"Content-Security-Policy": self._policy, "Referrer-Policy": "no-referrer"})

    async def _health(self, request):
        status = "failed" if self.has_failed or getattr(self.engine, "has_failed", False) else "ends" if self.is_draining else "ok"
        return web.json_response({"status": status}, status=200 if status == "ok" else 503)

    async def _get_metrics(self, request):
        return web.Response(body=self._metrics.document(), headers={"Content-Type": CONTENT_TYPE})

    @property
    def names(self):
        """The names that requests may give as `model`, a list: that of the model, then those of its adapters."""
        return [self.name, *getattr(self.engine, "lora_names", ())]

    def _card(self, name):
        adapter = {} if name == self.name else {"parent": self.name}
        return {"id": name, "object": "model", "created": self.created, "owned_by": "pyflame", "max_model_len": self.engine.max_model_len, **adapter}

    async def _models(self, request):
        return web.json_response({"object": "list", "data": [self._card(name) for name in self.names]})

    async def _model(self, request):
        name = request.match_info["name"]
        requests.check_model(requests.Fields("models", {"model": name}), self.names)
        return web.json_response(self._card(name))

    # Work.

    async def _body(self, request):
        try:
            return await asyncio.wait_for(request.read(), self.limits.body_seconds or None)
        except (web.RequestPayloadError, HttpProcessingError) as e:
            raise RequestError(f"serve: the body cannot be read; got {str(e)[:80]!r}; expected as many bytes as its head says") from None
        except asyncio.TimeoutError:
            raise RequestError(f"serve: the body took too long; got no end after {self.limits.body_seconds:g} s; expected all of it", status=408, code="timeout") from None

    async def _in_pool(self, request, op, function):
        """function(the request's JSON) in another thread: a long text takes long to tokenize, and streams go on meanwhile."""
        if self.is_draining:
            raise RequestError("serve: the server ends; got a new request; expected none; hint: try another server", status=503, code="server_ends", headers={"Retry-After": "10"})
        data = await self._body(request)
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(requests.parse(op, data)))

    async def _tokenize(self, request):
        self._check_writes("tokenize")
        document = await self._in_pool(request, "tokenize", partial(requests.tokenized, model=self.model, names=self.names, most_tokens=self.engine.max_model_len))
        return web.Response(body=encoded(document), content_type="application/json")

    async def _detokenize(self, request):
        self._check_writes("detokenize")
        document = await self._in_pool(request, "detokenize", partial(requests.detokenized, model=self.model, names=self.names))
        return web.Response(body=encoded(document), content_type="application/json")

    async def _chat(self, request):
        return await self._generate(request, "chat", requests.chat_job, ChatForm)

    async def _complete(self, request):
        return await self._generate(request, "completions", requests.completion_job, CompletionForm)

    async def _embed(self, request):
        self._busy += 1
        self._idle.clear()
        try:
            if not isinstance(self.model, EmbeddingModel):
                raise RequestError(f"embeddings: the model writes texts; got {self.name}; expected one for embeddings; hint: pyflame serve --runner pooling", param="model", code="unsupported_parameter")
            begin = time.monotonic()
            job = await self._in_pool(request, "embeddings", partial(embedding_job, model=self.model, names=self.names))
            waiting = self.engine.waiting
            if waiting + len(job.ids) > self.limits.choices:
                raise RequestError(f"embeddings: the queue is full; got {waiting} texts that wait; expected at most {self.limits.choices}; hint: try again later", status=429, code="queue_full", kind="rate_limit_error", headers={"Retry-After": "1"})
            try:
                vectors = await asyncio.wait_for(asyncio.wrap_future(self.engine.submit(job)), self.limits.request_seconds or None)
            except asyncio.TimeoutError:
                raise RequestError(f"embeddings: the answer took too long; got no end after {self.limits.request_seconds:g} s; expected it within these", status=504, code="timeout") from None
            except (ValueError, RuntimeError, MemoryError) as e:
                raise RequestError(str(e), status=500, code="error") from None
            self._metrics.request(time.monotonic() - begin)
            _notes.get().counts = {"prompt_tokens": sum(map(len, job.ids)), "vectors": len(job.ids)}
            return web.Response(body=encoded(embedding_document(job, vectors, self.name)), content_type="application/json")
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    def _check_writes(self, op):
        if isinstance(self.model, EmbeddingModel):
            raise RequestError(f"{op}: the model makes embeddings; got {self.name}; expected one that writes texts; hint: /v1/embeddings", param="model", code="unsupported_parameter")

    async def _generate(self, request, op, make_job, form):
        self._check_writes(op)
        self._busy += 1
        self._idle.clear()
        try:
            job = await self._in_pool(request, op, partial(make_job, model=self.model, names=self.names, most_tokens=self.engine.max_model_len))
            job.client = self._client_of(request, job)
            return await self._answer(request, op, job, form(form.prefix + _notes.get().id, job.lora or self.name, self.model.tokenizer, job))
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _answer(self, request, op, job, form):
        if self.is_draining:
            raise RequestError("serve: the server ends; got a new request; expected none; hint: try another server", status=503, code="server_ends", headers={"Retry-After": "10"})
        running = sum(len(a.choices) if a.is_whole else a.unfinished for a in self.answers)  # those of a whole answer until it is built
        if running + len(job.prompts) * job.best_of > self.limits.choices:
            raise RequestError(f"{op}: the queue is full; got {running} texts that are written or wait; expected at most {self.limits.choices}; hint: try again later", status=429, code="queue_full", kind="rate_limit_error", headers={"Retry-After": "1"})
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client left while its request was prepared")
        answer = Answer(op, job, self.model, self.engine, self._mailbox, self._metrics, self.limits.waiting_pieces if job.stream else None, transport.abort, self._note_failure)
        answer.submit()
        self.answers[answer] = transport
        limit = self.limits.request_seconds
        timer = asyncio.get_running_loop().call_later(limit, self._expire, answer) if limit else None
        try:
            if job.stream:
                return await self._stream(request, answer, form)
            choices = await answer.whole()
            entries = sum(len(choice.entries) for choice in choices) + (answer.prompt_tokens if job.prompt_logprobs is not None else 0)
            return web.Response(body=await self._built(entries, lambda encode: encode(form.whole(answer, choices))), content_type="application/json")
        finally:
            if timer is not None:
                timer.cancel()
            del self.answers[answer]
            answer.cancel()
            self._metrics.request(time.monotonic() - answer.begin)
            _notes.get().counts = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}

    async def _built(self, entries, build):
        """build(encode), the bytes of an answer. entries: how many tokens with log probabilities its largest document has. If these are many, another thread builds it, and streams go on meanwhile."""
        if entries <= MOST_ENTRIES:
            return build(encoded)
        return await asyncio.get_running_loop().run_in_executor(self._builders, build, encoded_in_slices)

    def _note_failure(self):
        """The engine has ended by itself. /health says so."""
        self.has_failed = True

    def _expire(self, answer):
        self._break_off(answer, RequestError(f"{answer.op}: the answer took too long; got no end after {self.limits.request_seconds:g} s; expected it within these", status=504, code="timeout"))

    def _break_off(self, answer, error):
        """Ends an answer with an error. A client that does not read what was written for it is cut off: at once where something waits for it
        now, and after GRACE_SECONDS where the rest of its answer still waits then. Nothing happens where all texts of a whole answer are there: it is only built and sent."""
        if answer.is_whole:
            return
        transport = self.answers[answer]
        answer.fail(error)
        if transport.get_write_buffer_size():
            transport.abort()
        else:
            asyncio.get_running_loop().call_later(self.GRACE_SECONDS, self._cut_off, answer)

    def _cut_off(self, answer):
        if answer in self.answers:
            self.answers[answer].abort()

    @staticmethod
    def _counted(answer, chunk):
        """A piece of a stream with the usage so far, where the request asks for it in each piece."""
        return {**chunk, "usage": answer.usage()} if answer.job.continuous_usage else chunk

    async def _stream(self, request, answer, form):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        try:
            first = [self._counted(answer, chunk) for chunk in form.begin(len(answer.choices))]
            if first:
                await response.write(b"".join(map(event, first)))
            while True:
                ready = await answer.some()
                if ready:
                    entries = max(len(delta.entries) for delta in ready)  # each piece is a document
                    await response.write(await self._built(entries, lambda encode: b"".join(event(self._counted(answer, form.piece(delta)), encode) for delta in ready)))
                elif not answer.unfinished:
                    break
                else:
                    await response.write(b": still there\n\n")
            if answer.job.include_usage:
                await response.write(event(form.last(answer.usage())))
        except RequestError as e:
            _notes.get().status = e.status
            await response.write(event(e.document()))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response
