"""`pyflame serve` and what it refuses: wrong and malformed requests, clients that leave or do not read, keys, origins, limits. Real sockets."""
import asyncio
import json
import logging
import random
import re
import socket
import threading

import pytest

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, ECHO, HELLO, echo, everything_is_free, lm, start, text_of, until  # noqa: E402, F401
from pyflame.llm.engine import EngineFull  # noqa: E402
from pyflame.llm.serving import Limits, _answers  # noqa: E402

# What is wrong with a request.

WRONG = [  # path, fields, param, a part of the message
    (CHAT, {"messages": None}, "messages", "there are no messages; got none"),
    (CHAT, {"messages": []}, "messages", "there are no messages"),
    (CHAT, {"messages": "hello"}, "messages", "messages has the wrong type; got a text; expected a list"),
    (CHAT, {"messages": ["hello"]}, "messages", "a message is damaged; got a text"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages", "there is no such role; got king"),
    (CHAT, {"messages": [{"role": "tool", "content": "x"}]}, "messages", "messages of tools are not available with this model"),
    (CHAT, {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "messages", "a call of a message is damaged"),
    (CHAT, {"messages": [{"role": 7, "content": "x"}]}, "messages", "messages has the wrong type; got a whole number"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages", "messages has the wrong type; got null; expected a text"),
    (CHAT, {"messages": [{"role": "user", "content": ["x"]}]}, "messages", "a part of a message is damaged"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages", "parts of the type image_url are not available yet"),
    (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "messages is no Unicode text"),
    (CHAT, {"temperature": "hot"}, "temperature", "temperature has the wrong type; got a text; expected a number"),
    (CHAT, {"temperature": True}, "temperature", "got true or false; expected a number"),
    (CHAT, {"temperature": -1}, "temperature", "temperature is out of range; got -1.0; expected 0 to 100"),
    (CHAT, {"top_p": 0}, "top_p", "top_p is out of range"),
    (CHAT, {"presence_penalty": 3}, "presence_penalty", "presence_penalty is out of range"),
    (CHAT, {"max_tokens": 0}, "max_tokens", "max_tokens is out of range; got 0; expected at least 1"),
    (CHAT, {"max_tokens": 1.5}, "max_tokens", "max_tokens has the wrong type; got a number; expected a whole number"),
    (CHAT, {"max_completion_tokens": 1 << 40}, "max_completion_tokens", "the context has no room for these tokens"),
    (CHAT, {"n": 0}, "n", "n is out of range"),
    (CHAT, {"n": 129}, "n", "n is out of range"),
    (CHAT, {"stream": "yes"}, "stream", "stream has the wrong type; got a text; expected true or false"),
    (CHAT, {"stream_options": [1]}, "stream_options", "stream_options has the wrong type"),
    (CHAT, {"stop": 5}, "stop", "stop has the wrong type"),
    (CHAT, {"stop": ["a", 5]}, "stop", "stop has the wrong type"),
    (CHAT, {"stop": ""}, "stop", "the stop texts do not fit"),
    (CHAT, {"stop": ["a"] * 17}, "stop", "the stop texts do not fit"),
    (CHAT, {"stop_token_ids": [1 << 40]}, "stop_token_ids", "a token that is not in the vocabulary"),
    (CHAT, {"bad_words": "x"}, "bad_words", "bad_words has the wrong type; got a text; expected a list"),
    (CHAT, {"bad_words": [""]}, "bad_words", "bad_words do not fit; got 1 texts of 0 characters"),
    (CHAT, {"bad_words": [3]}, "bad_words", "bad_words has the wrong type; got a whole number"),
    (CHAT, {"allowed_token_ids": []}, "allowed_token_ids", "allowed_token_ids is empty; got no token"),
    (CHAT, {"allowed_token_ids": [1 << 40]}, "allowed_token_ids", "a token that is not in the vocabulary"),
    (CHAT, {"skip_special_tokens": 1}, "skip_special_tokens", "skip_special_tokens has the wrong type"),
    (CHAT, {"include_stop_str_in_output": "x"}, "include_stop_str_in_output", "include_stop_str_in_output has the wrong type"),
    (CHAT, {"seed": 1.5}, "seed", "seed has the wrong type"),
    (CHAT, {"logit_bias": {"x": 1}}, "logit_bias", "logit_bias does not fit; got x: 1"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias", "logit_bias does not fit"),
    (CHAT, {"logit_bias": {str(i): 0 for i in range(1025)}}, "logit_bias", "logit_bias has too many tokens; got 1025"),
    (CHAT, {"logprobs": 3}, "logprobs", "logprobs has the wrong type"),
    (CHAT, {"top_logprobs": 3}, "top_logprobs", "top_logprobs needs logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "top_logprobs is out of range"),
    (CHAT, {"user": 5}, "user", "user has the wrong type"),
    (CHAT, {"chat_template_kwargs": []}, "chat_template_kwargs", "chat_template_kwargs has the wrong type"),
    (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "chat_template_kwargs has a name that is taken; got messages"),
    (CHAT, {"add_generation_prompt": 1}, "add_generation_prompt", "add_generation_prompt has the wrong type"),
    (CHAT, {"continue_final_message": True}, "messages", "the last message has no text that can go on; got one of user"),
    (CHAT, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "truncate_prompt_tokens is out of range; got 0; expected at least 1, or -1"),
    (CHAT, {"truncate_prompt_tokens": "x"}, "truncate_prompt_tokens", "truncate_prompt_tokens has the wrong type"),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools", "tools of the type custom are not available yet"),
    (CHAT, {"model": 5}, "model", "model has the wrong type"),
    (COMPLETE, {"prompt": None}, "prompt", "there is no prompt"),
    (COMPLETE, {"prompt": 5}, "prompt", "prompt has the wrong type"),
    (COMPLETE, {"prompt": [1, "x"]}, "prompt", "a list with a text"),
    (COMPLETE, {"prompt": ["x", [1]], "n": 100}, "n", "there are too many choices; got 2 prompts, n = 100"),
    (COMPLETE, {"prompt": ["x", 1]}, "prompt", "a list of several types"),
    (COMPLETE, {"prompt": ["x"] * 129}, "prompt", "there are too many prompts"),
    (COMPLETE, {"prompt": [-1]}, "prompt", "a token that is not in the vocabulary; got -1"),
    (COMPLETE, {"prompt": ""}, "prompt", "there are no tokens; got a prompt without tokens"),
    (COMPLETE, {"prompt": [[]]}, "prompt", "there are no tokens; got a prompt without tokens"),
    (COMPLETE, {"prompt": "x", "n": 3, "best_of": 2}, "best_of", "best_of is out of range; got best_of = 2 and n = 3; expected best_of to be at least n"),
    (COMPLETE, {"prompt": "x", "best_of": 0}, "best_of", "best_of is out of range; got 0"),
    (COMPLETE, {"prompt": "x", "best_of": "2"}, "best_of", "best_of has the wrong type; got a text"),
    (COMPLETE, {"prompt": ["x", "y"], "best_of": 100}, "best_of", "there are too many choices; got 2 prompts, best_of = 100"),
    (COMPLETE, {"prompt": "x", "best_of": 2, "stream": True}, "best_of", "best_of and stream exclude each other"),
    (COMPLETE, {"prompt": "x", "logprobs": True}, "logprobs", "logprobs has the wrong type"),
    ("/tokenize", {}, "prompt", "there is no text"),
    ("/tokenize", {"prompt": 5}, "prompt", "prompt has the wrong type"),
    ("/detokenize", {}, "tokens", "there are no tokens"),
    ("/detokenize", {"tokens": [1 << 40]}, "tokens", "a token that is not in the vocabulary"),
]
REFUSED = {
    "functions": [], "suffix": "x", "chat_template": "x", "audio": {}, "modalities": ["audio"], "detokenize": False,
    "return_token_ids": True, "return_tokens_as_token_ids": True, "logits_processors": ["x"], "documents": [{"text": "x"}], "cache_salt": "x", "thinking_token_budget": 5,
}  # fmt: skip


def test_wrong_fields_are_refused_by_name(echo):
    for path, fields, param, part in WRONG:
        e = echo.error(path, {**HELLO, **fields} if path == CHAT else fields)
        assert e["param"] == param and part in e["message"] and e["type"] == "invalid_request_error", (fields, e)
        assert re.fullmatch(r"\w+: .+; got .+; expected .+", e["message"]), e
    assert not echo.engine.requests


def test_what_is_not_available_is_refused_by_name(echo):
    for name, value in REFUSED.items():
        e = echo.error(CHAT, {**HELLO, name: value})
        assert e["param"] == name and e["message"].startswith(f"chat: {name} is not available yet; got ") and e["code"] == "unsupported_parameter"
        assert echo.error(COMPLETE, {"prompt": "x", name: value})["param"] == name
    assert not echo.engine.requests
    asks_for_nothing = {"tools": None, "tool_choice": "none", "response_format": {"type": "text"}, "echo": False, "suffix": "", "best_of": 1, "modalities": ["text"],
                        "bad_words": [], "detokenize": True, "return_token_ids": False, "logits_processors": [], "top_logprobs": 0, "chat_template_kwargs": {}}
    assert echo.ask(CHAT, {**HELLO, **asks_for_nothing})


def test_other_models_paths_and_methods(echo):
    assert echo.error(CHAT, {**HELLO, "model": "gpt-4"}, 404)["code"] == "model_not_found"
    assert "there is no such path; got /v1/nothing" in echo.error("/v1/nothing", HELLO, 404)["message"]
    assert "there is no such path" in echo.error("/%0a%00", status=404)["message"]
    assert "the path has no such method; got GET; expected POST" in echo.error(CHAT, status=405)["message"]


def test_bodies_that_are_no_json_object(echo):
    for data in (b"", b"{", b"[]", b"5", b"\xff\xfe", b'{"messages": NaN}', b"[" * 100000, b'{"a":' * 50000, b"9" * 10000, json.dumps("x").encode()):
        e = echo.error(CHAT, data)
        assert e["message"].startswith("chat: the body ") and "; got " in e["message"] and "; expected a JSON object" in e["message"]


def malformed(r):
    """Bytes that are no request that the server can answer well."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    body = json.dumps({**HELLO, "stream": True}).encode()
    kind = r.randrange(9)
    if kind == 0:
        return r.randbytes(r.randrange(1, 400))
    if kind == 1:
        return b"GET /" + r.randbytes(30) + b" HTTP/1.1\r\n\r\n"
    if kind == 2:
        return head + b"X: " + b"a" * r.choice((9000, 100000)) + b"\r\n\r\n"
    if kind == 3:
        return head + b"".join(b"X-%d: a\r\n" % i for i in range(2000)) + b"\r\n"
    if kind == 4:
        return head + b"Content-Length: " + r.choice((b"-1", b"x", b"99999999999999999999", b"1e3", b"5, 6")) + b"\r\n\r\n" + body
    if kind == 5:
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + r.choice((b"zz\r\n", b"-5\r\n", b"ffffffffffffffff\r\nx", b"5\r\nab"))
    if kind == 6:
        damaged = bytearray(body)
        damaged[r.randrange(len(damaged))] = r.randrange(256)
        damaged = damaged[: r.randrange(len(damaged))]
        return head + b"Content-Length: %d\r\n\r\n" % len(damaged) + damaged
    if kind == 7:
        value = r.choice((None, [], {}, "x", -1, 1e300, True, [[]], {"a": 1}))
        wrong = json.dumps({**HELLO, r.choice(("messages", "n", "stop", "logit_bias", "stream", "max_tokens")): value, "temperature": "wrong"}).encode()
        return head + b"Content-Length: %d\r\n\r\n" % len(wrong) + wrong
    return (head + b"Content-Length: %d\r\n\r\n" % len(body) + body)[: r.randrange(10, 100)]


def test_malformed_requests_leave_the_server_and_other_streams_whole(start, caplog):
    echo = start(most=2, limits=Limits(body_bytes=1 << 16))
    stream = echo.stream(CHAT, HELLO)
    first = [next(stream)]
    r = random.Random(1)
    if not hasattr(r, "randbytes"):
        r.randbytes = lambda n: bytes(r.randrange(256) for _ in range(n))
    for _ in range(10000):
        with socket.create_connection(("127.0.0.1", echo.port), timeout=60) as s:
            try:
                s.sendall(malformed(r))
                s.shutdown(socket.SHUT_WR)
                answer = s.recv(1 << 16)
            except ConnectionError:  # the server did not want all of it
                continue
            assert not answer or re.match(rb"HTTP/1\.[01] 4", answer), answer
    assert echo.ask("/health") == {"status": "ok"}
    until(lambda: echo.server.connections.count <= 1)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]  # strangers cannot fill the log with stacks
    echo.engine.allow()
    assert text_of(first + stream.rest()) == ECHO and len(echo.engine.requests) == 1
    assert echo.ask(CHAT, HELLO)["choices"][0]["message"]["content"] == ECHO
    everything_is_free(echo)


def test_a_head_that_cannot_be_read_is_one_line_of_the_log(echo, caplog):
    with caplog.at_level(logging.INFO, "pyflame.serve"), socket.create_connection(("127.0.0.1", echo.port), timeout=60) as s:
        s.sendall(b"GET / HTTP/9.x\r\n\r\n")
        assert s.recv(1 << 16).startswith(b"HTTP/1.0 400 ")
        until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.getMessage().startswith(("a request of 127.0.0.1 cannot be read; got ", "a request of a client cannot be read; got ")) and not record.exc_info and "\n" not in record.getMessage()


# Clients that leave or do not read.


def test_clients_that_leave_free_everything(start):
    echo = start(most=2)
    stream = echo.stream(CHAT, {**HELLO, "n": 3})
    next(stream)
    until(lambda: len(echo.engine.requests) == 3)
    stream.break_off()
    everything_is_free(echo)
    assert all(r.is_cancelled for r in echo.engine.requests)
    body = json.dumps(HELLO).encode()
    with socket.create_connection(("127.0.0.1", echo.port)) as s:  # one that waits for a whole answer
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: len(echo.engine.requests) == 4)
    everything_is_free(echo)
    assert echo.engine.requests[3].is_cancelled
    until(lambda: echo.server.connections.count == 0)


def slow_client(echo, body):
    """A connection that has asked for a stream and reads nothing of it. Both sides' buffers are small."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", echo.port))
    data = json.dumps({**body, "stream": True}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return s


def test_a_client_that_does_not_read_stops_nobody_else(start, lm):
    tokens = lm.tokenizer.encode("ab") * 20000
    echo = start(lambda prompt: tokens if len(prompt) == 1 else prompt, limits=Limits(waiting_pieces=500))
    echo.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # connections have what the listening socket has
    with slow_client(echo, {"prompt": "x", "max_tokens": len(tokens)}) as slow:
        assert echo.ask(COMPLETE, {"prompt": "other"})["choices"][0]["text"] == "other"
        until(lambda: echo.engine.requests and any(r.is_cancelled for r in echo.engine.requests))
        everything_is_free(echo)
        until(lambda: echo.server.connections.count == 0)
        with pytest.raises(ConnectionError):
            while slow.recv(1 << 16):
                pass
            raise ConnectionResetError  # it ended without the reset
    assert echo.ask("/health")


# Keys, origins, ids.


def test_api_keys(start, lm):
    echo = start(keys=["first", "second"])
    for key in ("first", "second"):
        assert echo.ask(CHAT, HELLO, headers={"Authorization": f"Bearer {key}"})
    for headers in ({}, {"Authorization": "Bearer third"}, {"Authorization": "first"}, {"Authorization": "Basic first"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer first\xe9"}):
        for path, body in ((CHAT, HELLO), ("/v1/models", None), ("/metrics", None), ("/tokenize", {"prompt": "x"}), ("/nothing", None)):
            e = echo.error(path, body, 401, headers=headers)
            assert e["code"] == "invalid_api_key" and "the API key is missing or wrong" in e["message"]
    assert echo.ask("/health") and echo.raw("/")[0] == 200 and len(echo.engine.requests) == 2


def test_pages_of_other_origins(start):
    echo = start(origins=["https://a.example"])
    preflight = {"Access-Control-Request-Method": "POST"}
    status, headers, _ = echo.raw(CHAT, method="OPTIONS", headers={"Origin": "https://a.example", **preflight})
    assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://a.example" and "Authorization" in headers["Access-Control-Allow-Headers"]
    _, headers, _ = echo.raw(CHAT, HELLO, headers={"Origin": "https://a.example"})
    assert headers["Access-Control-Allow-Origin"] == "https://a.example" and headers["Vary"] == "Origin"
    for origin in ("https://b.example", "null", "http://a.example"):
        assert echo.error(CHAT, HELLO, 403, headers={"Origin": origin})["code"] == "origin_refused"
    own = f"http://127.0.0.1:{echo.port}"  # the server's own page
    assert "Access-Control-Allow-Origin" not in echo.raw(CHAT, HELLO, headers={"Origin": own})[1]
    assert start(origins=["*"]).raw(CHAT, HELLO, headers={"Origin": "https://b.example"})[1]["Access-Control-Allow-Origin"] == "*"


def test_request_ids_are_in_answers_and_in_the_log(echo, caplog):
    with caplog.at_level(logging.INFO, "pyflame.serve"):
        _, headers, data = echo.raw(CHAT, HELLO, headers={"X-Request-Id": "mine-1"})
        assert headers["X-Request-Id"] == "mine-1" and json.loads(data)["id"] == "chatcmpl-mine-1"
        _, headers, _ = echo.raw("/nothing%0aFAKE", headers={"X-Request-Id": "a b"})
        assert re.fullmatch("[0-9a-f]{32}", headers["X-Request-Id"])
        until(lambda: len(caplog.messages) == 2)
    request = echo.engine.requests[0]
    assert re.fullmatch(rf"mine-1 127.0.0.1 POST {CHAT} 200 prompt {len(request.prompt)} written {request.sent} \d+\.\d+ s", caplog.messages[0])
    assert "/nothing%0aFAKE 404" in caplog.messages[1] and "\n" not in caplog.messages[1]


# Limits.


def test_limits_of_size(start):
    echo = start(limits=Limits(body_bytes=1000), max_model_len=64)
    e = echo.error(CHAT, {"messages": [{"role": "user", "content": "x" * 2000}]}, 413)
    assert e["message"] == "serve: the body is too large; got more than 1000 bytes; expected at most these"
    e = echo.error(COMPLETE, {"prompt": "x" * 64})
    assert e["code"] == "context_length_exceeded" and "got 64 of the prompt; expected at most 64 in all, one of them new" in e["message"]
    assert echo.error(COMPLETE, {"prompt": "x" * 60, "max_tokens": 5})["param"] == "max_tokens"
    assert echo.ask(COMPLETE, {"prompt": "x" * 60, "max_tokens": 4})["usage"]["total_tokens"] == 64
    assert echo.ask(COMPLETE, {"prompt": "x" * 60}) and echo.engine.requests[-1].max_tokens == 4


def test_a_full_queue(start):
    echo = start(most=1, limits=Limits(choices=3))
    stream = echo.stream(CHAT, {**HELLO, "n": 2})
    next(stream)
    e = echo.error(CHAT, {**HELLO, "n": 2}, 429)
    assert e["code"] == "queue_full" and "got 2 texts that are written or wait; expected at most 3" in e["message"] and e["type"] == "rate_limit_error"
    echo.engine.full = EngineFull("generate: the engine's queue is full")
    status, headers, data = echo.raw(CHAT, HELLO)
    assert status == 429 and headers["Retry-After"] == "1" and "the queue is full" in json.loads(data)["error"]["message"]
    echo.engine.allow()
    stream.rest()
    everything_is_free(echo)


def test_too_many_clients(start):
    echo = start(most=1, limits=Limits(clients=2))
    streams = [echo.stream(CHAT, HELLO) for _ in range(2)]
    assert echo.error(CHAT, HELLO, 503)["code"] == "too_many_clients"
    streams[0].break_off()
    until(lambda: echo.server.connections.count == 1)
    assert echo.ask("/health")


def test_limits_of_time(start):
    echo = start(most=2, limits=Limits(request_seconds=0.3))
    e = echo.error(CHAT, HELLO, 504)
    assert e["message"] == "chat: the answer took too long; got no end after 0.3 s; expected it within these"
    chunks = echo.stream(CHAT, HELLO).rest()
    assert chunks[-1]["error"]["code"] == "timeout" and "us".startswith(text_of(chunks[:-1]))
    everything_is_free(echo)
    with socket.create_connection(("127.0.0.1", start(limits=Limits(head_seconds=0.3)).port), timeout=60) as s:
        s.sendall(b"GET /health HT")
        try:
            assert s.recv(100) == b""
        except ConnectionError:
            pass
    with socket.create_connection(("127.0.0.1", start(limits=Limits(body_seconds=0.3)).port), timeout=60) as s:
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1")
        assert s.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_leaves_while_its_prompt_is_tokenized(echo, monkeypatch, caplog):
    prepared, states = echo.server._in_pool, []

    async def as_it_leaves(request, op, function):
        """The connection ends when the job is ready, before the end of the handler's task has come through."""
        job = await prepared(request, op, function)
        request.transport.abort()
        while request.transport is not None:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        states.append(request.transport)
        return job

    monkeypatch.setattr(echo.server, "_in_pool", as_it_leaves)
    with caplog.at_level(logging.INFO):
        with pytest.raises(ConnectionError):
            echo.ask(COMPLETE, {"prompt": "x"})
        until(lambda: states and not echo.server._busy)
    assert "failed" not in caplog.text and echo.engine.requests == []
    monkeypatch.undo()
    assert echo.ask(COMPLETE, {"prompt": "x", "max_tokens": 1})["choices"]


def test_a_client_that_does_not_read_is_cut_off_in_time(start, lm):
    tokens = lm.tokenizer.encode("ab") * 20000
    echo = start(lambda prompt: tokens, limits=Limits(request_seconds=0.3, waiting_pieces=1 << 30))
    echo.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    with slow_client(echo, {"prompt": "x", "max_tokens": len(tokens)}):
        until(lambda: echo.engine.requests)
        everything_is_free(echo)
        until(lambda: echo.server.connections.count == 0)


class LooksEmpty:
    """A connection whose buffer looks empty at the moment when its answer's time is over; what is written after that fills it."""

    def __init__(self, transport):
        self.transport = transport

    def get_write_buffer_size(self):
        return 0

    def abort(self):
        self.transport.abort()


def test_a_client_that_does_not_read_the_rest_is_cut_off(start, lm):
    tokens = lm.tokenizer.encode("ab") * 20000
    echo = start(lambda prompt: tokens, limits=Limits(waiting_pieces=1 << 30))
    echo.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    echo.server.GRACE_SECONDS = 0.1
    with slow_client(echo, {"prompt": "x", "max_tokens": len(tokens)}):
        until(lambda: echo.server.answers and not echo.engine.unfinished)
        (answer,) = echo.server.answers
        transport = echo.server.answers[answer]
        until(transport.get_write_buffer_size)
        echo.server.answers[answer] = LooksEmpty(transport)
        echo.loop.call_soon_threadsafe(echo.server._expire, answer)
        everything_is_free(echo)


def test_a_stream_that_waits_says_that_it_is_there(start):
    stream = start(most=0, limits=Limits(beat_seconds=0.05)).stream(COMPLETE, {"prompt": "x"})
    assert stream.response.readline() == b": still there\n"
    stream.break_off()


def test_a_stream_goes_on_while_others_are_parsed(start, lm):
    """Two requests take both threads that parse. The stream has a backlog of tokens with log probabilities, more than a document that is built on the loop has."""
    echo = start(lambda prompt: lm.tokenizer.encode("ab") * 100, most=1)
    stream = echo.stream(COMPLETE, {"prompt": "x", "max_tokens": 200, "logprobs": 1})
    next(stream)
    parse, has_ended = threading.Event(), threading.Event()
    parsing = [echo.server._pool.submit(parse.wait, 60) for _ in range(2)]

    def loop_waits():  # until all tokens wait to be sent
        echo.engine.allow()
        until(lambda: not echo.engine.unfinished)

    echo.loop.call_soon_threadsafe(loop_waits)
    reading = threading.Thread(target=lambda: stream.rest() and has_ended.set())
    reading.start()
    try:
        assert has_ended.wait(20)
    finally:
        parse.set()
        reading.join()
    assert all(p.result(60) for p in parsing)


@pytest.mark.parametrize("fields", [{"logprobs": 1, "max_tokens": 100}, {"logprobs": 1, "max_tokens": 1, "n": 100}], ids=["long", "many"])
def test_the_time_of_an_answer_ends_while_it_is_built(start, monkeypatch, fields):
    """The text was complete in time, so the client gets it. Until then its choices count as texts that are written."""
    count = fields.get("n", 1)
    echo, original, built = start(lambda prompt: list(prompt) * 100, limits=Limits(choices=count)), _answers.CompletionForm._likeliest, []
    echo.server.GRACE_SECONDS = 0.0

    def slowly(self, top):
        if not built:
            built.append(None)
            (answer,) = echo.server.answers
            assert f"got {count} texts that are written or wait" in echo.error(COMPLETE, {"prompt": "x"}, 429)["message"]
            expired = asyncio.run_coroutine_threadsafe(expire(answer), echo.loop)
            built.append(expired.result(60))
        return original(self, top)

    async def expire(answer):
        echo.server._expire(answer)
        await asyncio.sleep(0.01)  # what was due to happen at once has happened
        return True

    monkeypatch.setattr(_answers.CompletionForm, "_likeliest", slowly)
    assert len(echo.ask(COMPLETE, {"prompt": "x", **fields})["choices"]) == count and built == [None, True]
    everything_is_free(echo)
