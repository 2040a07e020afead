"""`pyflame serve`: each endpoint, streams, several clients at once, and the clients of others. Real sockets; nothing here waits for a fixed time."""
import asyncio
import base64
import hashlib
import http.client
import json
import re
import resource
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
import pyflame as pf  # noqa: E402
from llm_client import CHAT, COMPLETE, ECHO, HELLO, EchoEngine, Running, echo, everything_is_free, lm, start, text_of, until  # noqa: E402, F401
from pyflame.llm.engine import Engine  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402


def writes(lm, text):
    ids = lm.tokenizer.encode(text)
    return lambda prompt: ids


# Answers.


def test_a_chat(echo):
    status, headers, data = echo.raw(CHAT, HELLO)
    got = json.loads(data)
    assert status == 200 and headers["Content-Type"].startswith("application/json") and headers["X-Request-Id"] == got["id"][len("chatcmpl-"):]
    assert got["object"] == "chat.completion" and got["model"] == "small" and abs(got["created"] - time.time()) < 600
    assert got["choices"] == [{"index": 0, "message": {"role": "assistant", "content": ECHO}, "logprobs": None, "finish_reason": "stop", "stop_reason": None}]
    request = echo.engine.requests[0]
    assert got["usage"] == {"prompt_tokens": len(request.prompt), "completion_tokens": request.sent, "total_tokens": len(request.prompt) + request.sent}
    assert request.prompt == echo.model.chat_ids(HELLO["messages"]) and request.stop_ids == echo.model.end_ids
    assert request.max_tokens == echo.model.config.context - len(request.prompt)
    assert (request.sampling.temperature, request.sampling.top_k) == (0.7, 20)  # the file's


def test_usage_in_each_piece(echo):
    ids = echo.model.tokenizer.encode("\U0001f600")[:3]  # three of the four bytes of a character: no text until the last comes
    options = {"include_usage": True, "continuous_usage_stats": True}
    echo.engine.allow(2)
    stream = echo.stream(COMPLETE, {"prompt": ids, "stream_options": options})
    echo.engine.allow()
    chunks = stream.rest()
    counts = [c["usage"]["completion_tokens"] for c in chunks]
    assert counts == sorted(counts) and counts[-1] == 3 and chunks[-1]["choices"] == []
    assert len(chunks) == 5 and [c["choices"][0]["text"] for c in chunks[:3]] == ["", "", ""]  # a piece for each token, the end, the usage
    plain = echo.stream(COMPLETE, {"prompt": ids, "stream_options": {**options, "include_usage": False}}).rest()
    assert len(plain) == 1 and "usage" not in plain[0]
    message = echo.error(COMPLETE, {"prompt": ids, "stream_options": {**options, "continuous_usage_stats": 1}})["message"]
    assert "continuous_usage_stats" in message


def test_a_chat_as_a_stream(echo):
    chunks = echo.stream(CHAT, {**HELLO, "stream_options": {"include_usage": True}}).rest()
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"} and len({c["id"] for c in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""} and text_of(chunks) == ECHO
    reasons = [c["choices"][0]["finish_reason"] for c in chunks[:-1]]
    assert reasons[-1] == "stop" and not any(reasons[:-1])
    request = echo.engine.requests[0]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == request.sent == len(request.tokens)
    assert all(c["usage"] is None for c in chunks[:-1])
    assert not any("usage" in c for c in echo.stream(CHAT, HELLO).rest())


def test_completions(echo):
    got = echo.ask(COMPLETE, {"prompt": "once", "model": "small"})
    assert got["object"] == "text_completion" and got["choices"] == [{"index": 0, "text": "once", "logprobs": None, "finish_reason": "stop", "stop_reason": None}]
    assert echo.ask(COMPLETE, {"prompt": "x" * 40})["choices"][0]["finish_reason"] == "length" and echo.engine.requests[-1].max_tokens == 16
    ids = [echo.model.tokenizer.encode(t) for t in ("one", "two")]
    for prompt in (["one", "two"], ids):
        got = echo.ask(COMPLETE, {"prompt": prompt, "n": 2, "seed": 7})
        assert [(c["index"], c["text"]) for c in got["choices"]] == [(0, "one"), (1, "one"), (2, "two"), (3, "two")]
        assert [r.sampling.seed for r in echo.engine.requests[-4:]] == [7, 8, 7, 8] and got["usage"]["prompt_tokens"] == len(ids[0]) + len(ids[1])
    assert echo.ask(COMPLETE, {"prompt": ids[0]})["choices"][0]["text"] == "one"
    chunks = echo.stream(COMPLETE, {"prompt": ["one", "two"]}).rest()
    assert [text_of(chunks, i) for i in range(2)] == ["one", "two"]


def test_settings_reach_the_engine(echo):
    sent = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": -0.5, "min_tokens": 2, "seed": -1}
    echo.ask(CHAT, {**HELLO, **sent, "max_completion_tokens": 5, "logit_bias": {"7": -100}, "stop_token_ids": [9], "user": "me", "priority": 3, "nobody_knows_this": {"a": 1}})
    request = echo.engine.requests[0]
    want = {**sent, "seed": (1 << 64) - 1, "logit_bias": {7: -100.0}}
    assert {name: getattr(request.sampling, name) for name in want} == want
    assert request.max_tokens == 5 and request.priority == 3 and request.stop_ids == echo.model.end_ids | {9}
    echo.ask(CHAT, {**HELLO, "ignore_eos": True, "top_k": -1, "temperature": 1})
    assert echo.engine.requests[1].stop_ids == frozenset() and echo.engine.requests[1].sampling.top_k == 0


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ style }}{% endif %}"


def test_fields_of_the_template(tmp_path):
    lm = pf.llm.load(small.write_random_model(tmp_path))
    lm._template_source = TEMPLATE
    running = Running(lm, EchoEngine(lm), name="small")
    try:
        def prompt(path=CHAT, messages=HELLO["messages"], **fields):
            answer = running.ask(path, {"messages": messages, **fields})
            return lm.tokenizer.decode(answer["tokens"] if path == "/tokenize" else running.engine.requests[-1].prompt, skip_special=False)

        head = "<|im_start|>user\nHello there<|im_end|>\n"
        for path in (CHAT, "/tokenize"):
            assert prompt(path) == head + "<|im_start|>assistant\n"
            assert prompt(path, add_generation_prompt=False) == head
            # What comes from a request is text, also here.
            ids = lm.tokenizer.encode("<|im_end|>")
            assert prompt(path, chat_template_kwargs={"style": "kind", "unknown": [1, {"a": None}]}) == head + "<|im_start|>assistant\nkind"
            asked = running.ask("/tokenize", {**HELLO, "chat_template_kwargs": {"style": "<|im_end|>"}})["tokens"]
            assert asked[-len(ids):] == ids and asked.count(lm.tokenizer.id_of("<|im_end|>")) == 1
            begun = [*HELLO["messages"], {"role": "assistant", "content": "I am the <|im_end|>"}]
            assert prompt(path, begun, continue_final_message=True, add_generation_prompt=False) == head + "<|im_start|>assistant\nI am the <|im_end|>"
        # The text goes on behind the message: a space that begins it stays.
        running.engine.write = lambda ids: lm.tokenizer.encode(" a")
        assert running.ask(CHAT, {"messages": begun, "continue_final_message": True})["choices"][0]["message"]["content"] == " a"
    finally:
        running.end()


def test_the_last_tokens_of_a_prompt(lm):
    running, ids = Running(lm, EchoEngine(lm, max_model_len=16), name="small"), lm.tokenizer.encode("the window is the one")
    try:
        for fields, count in (({"truncate_prompt_tokens": 3}, 3), ({"truncate_prompt_tokens": -1, "max_tokens": 1}, 15), ({"truncate_prompt_tokens": -1, "max_tokens": 6}, 10)):
            assert running.ask(COMPLETE, {"prompt": ids * 3, **fields})["usage"]["prompt_tokens"] == count
            assert running.engine.requests[-1].prompt == (ids * 3)[-count:]
    finally:
        running.end()


def test_stop_texts_that_several_tokens_make(start, lm):
    echo = start(writes(lm, "one STOP two"))
    for stop, want in (("STOP", "one "), (["zzz", "two", "STOP"], "one "), ("STOPS", "one STOP two")):
        assert echo.ask(CHAT, {**HELLO, "stop": stop})["choices"][0]["message"]["content"] == want
        chunks = echo.stream(CHAT, {**HELLO, "stop": stop}).rest()
        assert text_of(chunks) == want and chunks[-1]["choices"][0]["finish_reason"] == "stop"
    echo.engine.allow(5)  # the request ends at the stop text, although the engine has not finished it
    ids = lm.tokenizer.encode("one STOP two")
    assert lm.tokenizer.decode(ids[:5]).endswith("ST")
    assert echo.ask(CHAT, {**HELLO, "stop": "ST"})["choices"][0] == {"index": 0, "message": {"role": "assistant", "content": "one "}, "logprobs": None, "finish_reason": "stop", "stop_reason": "ST"}
    everything_is_free(echo)
    assert echo.engine.requests[-1].is_cancelled


def test_pieces_are_whole_characters(start, lm):
    echo = start(writes(lm, "a€😀z"))
    chunks = echo.stream(CHAT, HELLO).rest()
    assert [c["choices"][0]["delta"].get("content") for c in chunks[1:-1]] == ["a", "€", "😀", "z"]


def test_logprobs(start, lm):
    echo = start(writes(lm, "the STOP"))
    (choice,) = echo.ask(CHAT, {**HELLO, "logprobs": True, "top_logprobs": 2})["choices"]
    entries = choice["logprobs"]["content"]
    assert "".join(e["token"] for e in entries) == "the STOP" == bytes(b for e in entries for b in e["bytes"]).decode()
    assert all(e["logprob"] == -0.5 and [t["logprob"] for t in e["top_logprobs"]] == [-0.5, -9999.0] for e in entries)
    # What a stop text cuts off has no logprobs, and in a stream each comes once, with its text.
    for stop, want in (("STOP", "the "), ("OP", "the ST"), ("none", "the STOP")):
        chunks = echo.stream(CHAT, {**HELLO, "logprobs": True, "stop": stop}).rest()
        assert text_of(chunks) == want == "".join(e["token"] for c in chunks for e in (c["choices"][0]["logprobs"] or {"content": []})["content"])
    got = echo.ask(COMPLETE, {"prompt": "x", "logprobs": 1})["choices"][0]["logprobs"]
    assert "".join(got["tokens"]) == "the STOP" and got["text_offset"][:3] == [0, 3, 4] and got["top_logprobs"][0] == {"the": -0.5} and set(got["token_logprobs"]) == {-0.5}
    assert echo.engine.requests[-1].logprobs == 1 and echo.ask(CHAT, HELLO)["choices"][0]["logprobs"] is None


def test_a_failing_engine(echo):
    echo.engine.fails = MemoryError("generate: no memory; got none; expected some")
    e = echo.error(CHAT, HELLO, 500)
    assert "generate: no memory" in e["message"] and e["type"] == "server_error"
    chunks = echo.stream(CHAT, HELLO).rest()
    assert "generate: no memory" in chunks[-1]["error"]["message"]
    everything_is_free(echo)


def test_an_engine_that_has_ended(echo):
    echo.engine.full = RuntimeError("generate: the engine is closed")
    e = echo.error(CHAT, HELLO, 503)
    assert e["code"] == "engine_failed" and "the engine takes no requests; got generate: the engine is closed; expected an engine that runs" in e["message"]
    assert echo.ask("/health", status=503) == {"status": "failed"}


def test_models_and_health(echo):
    (model,) = echo.ask("/v1/models")["data"]
    assert model == echo.ask("/v1/models/small") and model["id"] == "small" and model["max_model_len"] == echo.model.config.context
    assert echo.error("/v1/models/other", status=404)["code"] == "model_not_found"
    assert echo.ask("/health") == {"status": "ok"}


def test_tokenize_and_detokenize(echo):
    tokenizer = echo.model.tokenizer
    got = echo.ask("/tokenize", {"prompt": "the window"})
    assert got == {"tokens": tokenizer.encode("the window"), "count": len(got["tokens"]), "max_model_len": echo.model.config.context}
    assert echo.ask("/tokenize", HELLO)["tokens"] == echo.model.chat_ids(HELLO["messages"])
    assert echo.ask("/detokenize", {"tokens": got["tokens"]}) == {"prompt": "the window"}
    assert tokenizer.id_of("<|im_end|>") not in echo.ask("/tokenize", {"prompt": "<|im_end|>"})["tokens"]


def test_text_of_users_never_becomes_a_special_token(echo):
    end = echo.model.tokenizer.id_of("<|im_end|>")
    for content in ("<|im_end|>", [{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}], "<|im_end|"):
        assert echo.ask(CHAT, {"messages": [{"role": "user", "content": content}]})
        assert echo.engine.requests[-1].prompt.count(end) == 1  # the template's
    echo.ask(COMPLETE, {"prompt": "a<|im_end|>b"})
    assert end not in echo.engine.requests[-1].prompt


def test_metrics(start):
    echo = start(most=2)
    streams = [echo.stream(CHAT, HELLO) for _ in range(2)]
    until(lambda: all(r.sent == 2 for r in echo.engine.requests) and len(echo.engine.requests) == 2)
    streams[1].break_off()
    until(lambda: len(echo.engine.unfinished) == 1)
    label = 'model_name="small"'

    def numbers():
        return dict(re.match(r"(\S+) (\S+)$", line).groups() for line in echo.raw("/metrics")[2].decode().splitlines() if not line.startswith("#"))

    got = numbers()
    assert [float(got[f"vllm:{n}{{{label}}}"]) for n in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")] == [1, 3, 0.25]
    assert float(got[f"vllm:generation_tokens_total{{{label}}}"]) == 4 and float(got[f"vllm:prompt_tokens_total{{{label}}}"]) > 4
    echo.engine.allow()
    streams[0].rest()
    everything_is_free(echo)
    echo.ask(CHAT, {**HELLO, "max_tokens": 1})
    got = numbers()
    assert {r: float(got[f'vllm:request_success_total{{finished_reason="{r}",{label}}}']) for r in ("stop", "length", "abort")} == {"stop": 1, "length": 1, "abort": 1}

    def number(name):
        return float(got[f"vllm:{name}{{{label}}}"])

    assert number("time_to_first_token_seconds_count") == number("e2e_request_latency_seconds_count") == 3
    assert number("inter_token_latency_seconds_count") == number("generation_tokens_total") - 3  # each of the three texts has a first token
    ended = ("request_prompt_tokens", "request_generation_tokens", "request_decode_time_seconds")
    assert [number(n + "_count") for n in ended] == [2, 2, 2]  # not the one that was broken off, of which two tokens came
    assert number("request_generation_tokens_sum") == number("generation_tokens_total") - 2 and number("request_prompt_tokens_sum") == number("prompt_tokens_total") / 3 * 2
    assert number("request_time_per_output_token_seconds_count") == 1  # the text of one token has no time between two
    between, means, whole = (number(n + "_sum") for n in ("inter_token_latency_seconds", "request_time_per_output_token_seconds", "request_decode_time_seconds"))
    assert 0 < means < whole <= between
    of_the_engine = [number(f"request_{n}_time_seconds_sum") for n in ("queue", "prefill")]
    assert of_the_engine == [0.5, 1.0] and number("request_inference_time_seconds_sum") == pytest.approx(1.0 + whole)
    assert [number(f"request_{n}_time_seconds_count") for n in ("queue", "prefill", "inference")] == [2, 2, 2]
    left = echo.model.config.context - len(echo.engine.requests[0].prompt)  # what the first text might have
    assert (number("request_params_max_tokens_count"), number("request_params_max_tokens_sum")) == (2, left + 1)
    assert (number("request_params_n_count"), number("request_params_n_sum")) == (2, 2)
    echo.ask(CHAT, {**HELLO, "max_tokens": 2, "n": 2, "best_of": 3})
    got = numbers()
    assert (number("request_params_max_tokens_count"), number("request_params_max_tokens_sum")) == (5, left + 7)  # of each text
    assert (number("request_params_n_count"), number("request_params_n_sum")) == (3, 4)  # once for the prompt


def test_the_page(echo):
    status, headers, data = echo.raw("/")
    text, policy = data.decode(), headers["Content-Security-Policy"]
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    for tag in ("script", "style"):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://|\bon\w+=", text)


# Several at once.


def test_several_clients_get_their_own_text(echo):
    def client(i):
        text = f"client {i} " * (1 + i % 5)
        body = {"messages": [{"role": "user", "content": text}]}
        got = text_of(echo.stream(CHAT, body).rest()) if i % 2 else echo.ask(CHAT, body)["choices"][0]["message"]["content"]
        return got == f"user\n{text}\nassistant\n"

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(client, range(48)))
    everything_is_free(echo)


def test_512_streams_at_once_need_no_thread_each(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"the process may open {hard} files; the test needs 2048")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    echo = start(most=1)  # no text ends before all have begun
    assert echo.ask("/health") == {"status": "ok"}
    threads = threading.active_count()
    streams = [echo.stream(CHAT, {"messages": [{"role": "user", "content": f"I am client {i}."}]}) for i in range(512)]
    until(lambda: len(echo.engine.requests) == 512)
    assert echo.server.connections.count >= 512 and threading.active_count() <= threads + 8  # a few tokenize
    echo.engine.allow()
    late = streams[::8]  # these read after the others have ended
    for i, stream in [(i, s) for i, s in enumerate(streams) if s not in late] + [(8 * i, s) for i, s in enumerate(late)]:
        assert text_of(stream.rest()) == f"user\nI am client {i}.\nassistant\n"
    everything_is_free(echo)


def test_bodies_that_come_in_turns(echo):
    """Two clients send their bodies a piece at a time, in turns; each body has more bytes than one read."""
    texts = [letter * 200_000 for letter in "ab"]
    bodies = [json.dumps({"prompt": text}).encode() for text in texts]
    connections = [http.client.HTTPConnection("127.0.0.1", echo.port, timeout=60) for _ in bodies]
    for connection, body in zip(connections, bodies):
        connection.putrequest("POST", "/tokenize")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
    for begin in range(0, max(map(len, bodies)), 30_000):
        for connection, body in zip(connections, bodies):
            connection.send(body[begin:begin + 30_000])
    for connection, text in zip(connections, texts):
        tokens = json.loads(connection.getresponse().read())["tokens"]
        connection.close()
        assert echo.ask("/detokenize", {"tokens": tokens})["prompt"].endswith(text)


def test_no_read_makes_a_buffer(echo):
    """asyncio's default is bytes of 256 KiB for each read, whose rest is a hole in the heap."""
    protocol = echo.server.connections()
    assert isinstance(protocol, asyncio.BufferedProtocol)
    assert protocol.get_buffer(-1) is protocol.get_buffer(1 << 20) is echo.server.connections().get_buffer(-1)


def test_streams_come_token_by_token(start):
    echo = start(most=1)
    streams = [echo.stream(COMPLETE, {"prompt": text}) for text in ("abc", "xyz")]
    assert [next(s)["choices"][0]["text"] for s in streams] == ["a", "x"]
    echo.engine.allow(2)
    assert [next(s)["choices"][0]["text"] for s in streams] == ["b", "y"]
    echo.engine.allow()
    assert [text_of(s.rest()) for s in streams] == ["c", "z"]


def test_the_engine_behind_the_server(lm):
    # Each text is the one that the model writes alone.
    running = Running(lm, Engine(lm, max_num_seqs=4, max_model_len=512), name="small")
    try:
        prompts = [f"the window {i}" for i in range(6)]
        want = [lm.generate(p, max_tokens=12, seed=i) for i, p in enumerate(prompts)]

        def client(i):
            body = {"prompt": prompts[i], "max_tokens": 12, "seed": i}
            return text_of(running.stream(COMPLETE, body).rest()) if i % 2 else running.ask(COMPLETE, body)["choices"][0]["text"]

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(client, range(6))) == want
        stats = running.engine.stats()
        assert stats["num_requests_running"] == stats["num_requests_waiting"] == 0
    finally:
        running.end()


# Clients of others.


def test_curl(echo):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    run = subprocess.run([curl, "-sSN", f"http://127.0.0.1:{echo.port}{CHAT}", "-d", json.dumps({**HELLO, "stream": True})], capture_output=True, text=True, timeout=60, check=True)
    lines = run.stdout.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""] and text_of([json.loads(line[6:]) for line in lines[:-2]]) == ECHO


def test_the_client_of_openai(start):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    echo = start(keys=["key"])
    with openai.OpenAI(base_url=f"http://127.0.0.1:{echo.port}/v1", api_key="key", max_retries=0) as client:
        assert [m.id for m in client.models.list()] == ["small"]
        got = client.chat.completions.create(model="small", logprobs=True, top_logprobs=1, **HELLO)
        assert got.choices[0].message.content == ECHO == "".join(e.token for e in got.choices[0].logprobs.content)
        chunks = list(client.chat.completions.create(model="small", stream=True, stream_options={"include_usage": True}, **HELLO))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ECHO and chunks[-1].usage.completion_tokens == got.usage.completion_tokens
        assert client.completions.create(model="small", prompt="once").choices[0].text == "once"
        with pytest.raises(openai.BadRequestError, match="tools are not available with this model"):
            client.chat.completions.create(model="small", tools=[{"type": "function", "function": {"name": "f"}}], **HELLO)
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="other", **HELLO)
