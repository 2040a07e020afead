"""Fields of vLLM in requests to `pyflame serve`: which tokens may come, what is part of the text, and what the usage says of the cache."""
import threading

import pytest

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, HELLO, Running, echo, lm, start, text_of, until  # noqa: E402, F401
from pyflame.llm._queue import Queue  # noqa: E402
from pyflame.llm.engine import Engine  # noqa: E402


@pytest.fixture
def running(lm):  # noqa: F811
    running = Running(lm, Engine(lm, max_num_seqs=4, max_model_len=512), name="small")
    yield running
    running.end()


def writes(lm, text):  # noqa: F811
    return lambda prompt: lm.tokenizer.encode(text, add_special=False)


def test_the_settings_reach_the_engine(echo, lm):  # noqa: F811
    echo.ask(CHAT, {**HELLO, "bad_words": ["the"], "allowed_token_ids": [5, 6]})
    sampling = echo.engine.requests[-1].sampling
    assert sampling.allowed_token_ids == [5, 6]
    assert sampling.bad_words_ids == [lm.tokenizer.encode(text, add_special=False) for text in ("the", " the")]
    echo.ask(CHAT, {**HELLO, "bad_words": [], "allowed_token_ids": None, "include_stop_str_in_output": False, "skip_special_tokens": True})
    assert echo.engine.requests[-1].sampling.bad_words_ids is None


def test_words_that_are_not_written(running, lm):  # noqa: F811
    body = {"prompt": "the window", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    plain = running.ask(COMPLETE, body)["choices"][0]["text"]
    ids = list(lm.tokens("the window", 12, lm._sampling({"temperature": 0}), stop_ids=()))
    word = next(t for t in map(lm.tokenizer.decode, [[i] for i in ids]) if t.isprintable() and len(lm.tokenizer.encode(t, add_special=False)) == 1)
    [forbidden] = lm.tokenizer.encode(word, add_special=False)
    entries = running.ask(COMPLETE, {**body, "bad_words": [word], "logprobs": 0})["choices"][0]
    assert entries["text"] != plain and lm.tokenizer.token_bytes(forbidden).decode() not in entries["logprobs"]["tokens"]
    only = running.ask(COMPLETE, {**body, "allowed_token_ids": [forbidden]})["choices"][0]
    assert only["text"].strip() == (word * 12).strip()


def test_the_stop_is_part_of_the_text(start, lm):  # noqa: F811
    echo = start(writes(lm, "one STOP two"))  # noqa: F811
    for stop, want in (("STOP", "one STOP"), (["two", "TO"], "one STO"), ("never", "one STOP two")):
        body = {**HELLO, "stop": stop, "include_stop_str_in_output": True}
        assert echo.ask(CHAT, body)["choices"][0]["message"]["content"] == want
        chunks = echo.stream(CHAT, {**body, "logprobs": True}).rest()
        assert text_of(chunks) == want and chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_the_token_that_ends_the_text_is_part_of_it(running, lm):  # noqa: F811
    end = min(lm.end_ids)
    body = {"prompt": "the window", "max_tokens": 5, "temperature": 0, "logit_bias": {str(end): 100}}
    for fields, want in (({}, ""), ({"skip_special_tokens": False}, ""), ({"include_stop_str_in_output": True}, ""),
                         ({"include_stop_str_in_output": True, "skip_special_tokens": False}, lm.tokenizer.token(end))):  # fmt: skip
        choice = running.ask(COMPLETE, {**body, **fields})["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (want, "stop")
        assert text_of(running.stream(COMPLETE, {**body, **fields}).rest()) == want


def test_what_ended_a_text(running, lm):  # noqa: F811
    """vLLM's stop_reason: the stop text or the token that the request named, null for any other end; in streams in the last piece of a choice."""
    body = {"prompt": "the window", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    plain = running.ask(COMPLETE, body)["choices"][0]
    ids = list(lm.tokens("the window", 12, lm._sampling({"temperature": 0}), stop_ids=()))
    stop, end = plain["text"][3:5], min(lm.end_ids)
    for fields, want in (({}, ("length", None)), ({"stop": ["never", stop]}, ("stop", stop)), ({"stop_token_ids": [ids[4]]}, ("stop", ids[4])),
                         ({"ignore_eos": False, "logit_bias": {str(end): 100}}, ("stop", None)),
                         ({"ignore_eos": False, "logit_bias": {str(end): 100}, "stop_token_ids": [end]}, ("stop", None)),
                         ({"logit_bias": {str(end): 100}, "stop_token_ids": [end]}, ("stop", end))):  # fmt: skip
        choice = running.ask(COMPLETE, {**body, **fields})["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == want, fields
        pieces = [c for chunk in running.stream(COMPLETE, {**body, **fields}).rest() for c in chunk["choices"]]
        assert (pieces[-1]["finish_reason"], pieces[-1]["stop_reason"]) == want and all(p["stop_reason"] is None for p in pieces[:-1])


def test_what_ended_an_answer(start, lm):  # noqa: F811
    echo = start(writes(lm, "one STOP two"))  # noqa: F811
    for fields, want in (({"stop": "STOP"}, "STOP"), ({}, None)):
        assert echo.ask(CHAT, {**HELLO, **fields})["choices"][0]["stop_reason"] == want
        pieces = [c for chunk in echo.stream(CHAT, {**HELLO, **fields}).rest() for c in chunk["choices"]]
        assert [p["stop_reason"] for p in pieces] == [None] * (len(pieces) - 1) + [want]


def test_names_of_special_tokens(start, lm):  # noqa: F811
    special = min(lm.tokenizer.special_ids)
    echo = start(lambda prompt: [special, *lm.tokenizer.encode("one", add_special=False)])  # noqa: F811
    assert echo.ask(COMPLETE, {"prompt": "x"})["choices"][0]["text"] == "one"
    assert echo.ask(COMPLETE, {"prompt": "x", "skip_special_tokens": False})["choices"][0]["text"] == lm.tokenizer.token(special) + "one"


def test_tokens_that_the_cache_had(running):
    ids = list(range(5, 55))

    def details(**fields):
        return running.ask(COMPLETE, {"prompt": ids, "max_tokens": 3, "ignore_eos": True, **fields})["usage"]["prompt_tokens_details"]

    assert details() == {"cached_tokens": 0} and details() == {"cached_tokens": 48} and details(n=2) == {"cached_tokens": 48}
    assert details(prompt=[ids, ids[:20]]) == {"cached_tokens": 48 + 16}
    chunks = running.stream(COMPLETE, {"prompt": ids, "max_tokens": 3, "ignore_eos": True, "stream_options": {"include_usage": True}}).rest()
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 48}


def test_an_engine_that_does_not_count(echo):  # noqa: F811
    assert "prompt_tokens_details" not in echo.ask(CHAT, HELLO)["usage"]


def clients_of(server, *requests):
    """What the engine takes for the clients of requests, which are pairs of fields and headers."""
    for fields, headers in requests:
        server.ask(CHAT, {**HELLO, **fields}, headers=headers)
    return [r.client for r in server.engine.requests[-len(requests):]]


def test_whose_turn_a_request_is(start):
    """Clients take turns: those of API keys where there are some, otherwise users, otherwise addresses."""
    one, same, other, address, again = clients_of(start(), ({"user": "one"}, ()), ({"user": "one"}, ()), ({"user": "two"}, ()), ({}, ()), ({"user": ""}, ()))
    assert one == same and len({one, other, address}) == 3 and address == again == ("address", "127.0.0.1")
    keys = [{"Authorization": f"Bearer {key}"} for key in ("first", "second")]
    one, same, other = clients_of(start(keys=["first", "second"]), ({"user": "one"}, keys[0]), ({"user": "two"}, keys[0]), ({"user": "one"}, keys[1]))
    assert one == same != other and not any(b"first" in part for part in one if isinstance(part, bytes))


def test_clients_take_turns(lm, monkeypatch):  # noqa: F811
    """A client with many requests that wait delays one with a single request by one text. Nothing is computed until all of them wait."""
    gate, order, compute, begin = threading.Event(), [], Engine._compute, Queue.begin
    monkeypatch.setattr(Engine, "_compute", lambda self, parts: gate.wait(60) and compute(self, parts))
    monkeypatch.setattr(Queue, "begin", lambda self, request: order.append(request.client[1]) or begin(self, request))
    running = Running(lm, Engine(lm, max_num_seqs=1, max_model_len=512), name="small")
    try:
        streams = []
        for user, priority in (("many", 0), ("many", 0), ("many", 0), ("many", 0), ("few", 0), ("other", 0), ("few", 0), ("first", -1)):
            streams.append(running.stream(COMPLETE, {"prompt": "x", "max_tokens": 2, "user": user, "priority": priority}))
            until(lambda: order)  # the first one runs before the second comes
        until(lambda: running.engine.stats()["num_requests_waiting"] == len(streams) - 1)
        gate.set()
        for stream in streams:
            stream.rest()
    finally:
        gate.set()
        running.end()
    assert order == ["many", "first", "many", "few", "other", "many", "few", "many"]


def test_top_p_of_zero_says_what_to_do(echo):  # noqa: F811
    message = echo.error(CHAT, {**HELLO, "top_p": 0})["message"]
    assert message == "chat: top_p is out of range; got 0.0; expected 0 < top_p <= 1; hint: temperature 0 takes the likeliest token"
    assert echo.ask(CHAT, {**HELLO, "top_p": 1e-300}) and echo.engine.requests[-1].sampling.top_p == 1e-300
