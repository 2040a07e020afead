"""A server for tests in a thread of this process, an engine that writes what a test wants, and a client that sees every byte."""
import asyncio
import contextlib
import http.client
import json
import math
import socket
import threading
import time

import pytest

import pyflame as pf
from pyflame.llm.engine import Finished, Token
from pyflame.llm.serving import Server
from pyflame.testing import language_models as small

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello there"}]}
ECHO = "user\nHello there\nassistant\n"  # what the EchoEngine writes to it


def until(condition, seconds=60):
    """Waits for something that happens in another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


class Written:
    """A request of the EchoEngine."""

    def __init__(self, engine, prompt, sampling, max_tokens, stop_ids, logprobs, priority, client, receive):
        self.client = client
        self.prompt, self.sampling, self.max_tokens, self.stop_ids, self.logprobs, self.priority, self.receive = prompt, sampling, max_tokens, stop_ids, logprobs, priority, receive
        self.tokens = engine.write(prompt)[:max_tokens]
        self.is_cut, self.sent, self.is_cancelled, self.is_finished = len(engine.write(prompt)) > max_tokens, 0, False, False


class EchoEngine:
    """An engine that writes the prompt's own tokens, or what write(prompt) says, so that each client can tell its text. Each request gets at most `most` tokens
    until the test allows more. full: the error that submit raises; fails: the error of the next token."""

    def __init__(self, model, write=None, most=math.inf, max_model_len=None):
        special = model.tokenizer.special_ids
        self.write = write or (lambda prompt: [i for i in prompt if i not in special])
        self.max_model_len, self.most, self.full, self.fails, self.requests, self._changed, self._is_closed = max_model_len or model.config.context, most, None, None, [], threading.Condition(), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, prompt_ids, sampling, max_tokens, *, stop_ids=None, logprobs=None, prompt_logprobs=None, priority=0, client=None, receive):
        if self.full:
            raise self.full
        with self._changed:
            self.requests.append(Written(self, list(prompt_ids), sampling, max_tokens, stop_ids, logprobs, priority, client, receive))
            self._changed.notify()
            return self.requests[-1]

    def cancel(self, request):
        with self._changed:
            request.is_cancelled = True
            self._changed.notify()

    def allow(self, most=math.inf):
        with self._changed:
            self.most = most
            self._changed.notify()

    def close(self, drain=True):
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def unfinished(self):
        return [r for r in self.requests if not r.is_finished]

    def stats(self):
        return {"num_requests_running": len(self.unfinished), "num_requests_waiting": 3, "kv_cache_usage": 0.25, "prompt_tokens_total": sum(len(r.prompt) for r in self.requests),
                "generation_tokens_total": sum(r.sent for r in self.requests), "prefix_cache_hits": 5, "prefix_cache_queries": 7, "preemptions_total": 0}  # fmt: skip

    def _step(self, r):
        """One event of a request, or None."""
        if r.is_cancelled or self.fails or r.sent == len(r.tokens):
            r.is_finished = True
            return Finished("cancelled", None) if r.is_cancelled else Finished("error", self.fails) if self.fails else Finished("length" if r.is_cut else "stop", None)
        if r.sent >= self.most:
            return None
        r.sent += 1
        id = r.tokens[r.sent - 1]
        return Token(id, -0.5, [] if r.logprobs is None else [(id, -0.5), (id + 1, -math.inf)][: r.logprobs], *((0.25, 0.5) if r.sent == 1 else ()))

    def _run(self):
        with self._changed:
            while not self._is_closed:
                moved = False
                for r in self.unfinished:
                    event = self._step(r)
                    moved |= event is not None
                    if event is not None:
                        r.receive(event)
                if not moved:
                    self._changed.wait()


class Running:
    """A server that runs in a thread, at a port that the system chose."""

    def __init__(self, model, engine, **options):
        self.model, self.engine = model, engine
        self.server, self.loop = Server(model, engine, **options), asyncio.new_event_loop()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.call(self.server.start(self.socket))

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def begin(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, coroutine):
        return self.begin(coroutine).result(60)

    def end(self):
        self.call(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.engine.close(drain=False)

    # The client.

    def open(self, path, body=None, method=None, headers=()):
        """(connection, response) of a request whose response has begun."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method or ("GET" if data is None else "POST"), path, data, {"Content-Type": "application/json", **dict(headers)})
        return connection, connection.getresponse()

    def raw(self, path, body=None, method=None, headers=()):
        """(status, headers, body) of a request."""
        connection, response = self.open(path, body, method, headers)
        with contextlib.closing(connection):
            return response.status, response.headers, response.read()

    def ask(self, path, body=None, status=200, **options):
        """The JSON of an answer with this status."""
        got, _, data = self.raw(path, body, **options)
        assert got == status, data
        return json.loads(data)

    def error(self, path, body=None, status=400, **options):
        """The error of an answer, whose form is OpenAI's."""
        document = self.ask(path, body, status, **options)
        assert set(document) == {"error"} and set(document["error"]) == {"message", "type", "param", "code"}
        return document["error"]

    def stream(self, path, body, **options):
        """A Stream of a request."""
        return Stream(*self.open(path, {**body, "stream": True}, **options))


class Stream:
    """Server-sent events as they come: an iterator over their JSON. rest(): all of them that are left."""

    def __init__(self, connection, response):
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        self.connection, self.response, self.is_done = connection, response, False

    def __iter__(self):
        return self

    def __next__(self):
        while line := self.response.readline():
            if line == b"data: [DONE]\n":
                self.is_done = True
            elif line.startswith(b"data: "):
                return json.loads(line[6:])
            else:
                assert line == b"\n" or line.startswith(b":"), line
        self.connection.close()
        raise StopIteration

    def rest(self):
        found = list(self)
        assert self.is_done
        return found

    def break_off(self):
        """Closes the connection as a client that dies does, with what it has not read."""
        self.response.close()
        self.connection.close()


def text_of(chunks, index=0):
    """The text of one choice of a stream."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("small"), seed=3, max_position_embeddings=1 << 20))


@pytest.fixture
def start(lm):
    """start(write, most, **options of Server): a server with an EchoEngine, which the test's end ends."""
    running = []

    def begin(write=None, most=float("inf"), max_model_len=None, **options):
        running.append(Running(lm, EchoEngine(lm, write, most, max_model_len), **{"name": "small", **options}))
        return running[-1]

    yield begin
    for r in running:
        r.end()


@pytest.fixture
def echo(start):
    return start()


def everything_is_free(echo):
    until(lambda: not echo.engine.unfinished and not echo.server.answers and echo.server._busy == 0)
