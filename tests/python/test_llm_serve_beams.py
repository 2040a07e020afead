"""use_beam_search of `pyflame serve`: the texts of Engine.submit_beams, from one engine and from replicas; and what is refused beside it."""
import http.client
import json
import threading

import pytest

import pyflame as pf

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, HELLO, Running, until  # noqa: E402
from pyflame.llm import BeamSearchParams, Engine  # noqa: E402
from pyflame.llm.serving import _replicas  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

IN_ONE_PROCESS = "a test starts processes of its own; side by side they would wait for each other"
PROMPT = "the window"
BEAMS = {"use_beam_search": True, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("beams"), seed=3)


@pytest.fixture(scope="module")
def lm(folder):
    return pf.llm.load(folder)


@pytest.fixture
def running(lm):
    server = Running(lm, Engine(lm, max_num_seqs=4), name="small")
    yield server
    server.end()


def searched(lm, ids, **params):
    """The texts of a search by the engine itself, and their tokens."""
    engine, ended = Engine(lm, max_num_seqs=4), threading.Event()
    search = engine.submit_beams(ids, BeamSearchParams(ignore_eos=True, **params), receive=lambda event: ended.set())
    assert ended.wait(60)
    engine.close()
    return [lm.tokenizer.decode(s.tokens[len(ids) :]) for s in search.sequences]


def test_the_choices_are_the_best_texts_of_the_search(lm, running):
    ids = lm.tokenizer.encode(PROMPT)
    answer = running.ask(COMPLETE, {"prompt": PROMPT, "n": 3, "max_tokens": 6, **BEAMS})
    assert [c["text"].strip() for c in answer["choices"]] == [t.strip() for t in searched(lm, ids, beam_width=3, max_tokens=6)]
    assert len({c["text"] for c in answer["choices"]}) > 1 and [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert all(c["finish_reason"] == "length" for c in answer["choices"])
    assert answer["usage"] == {"prompt_tokens": len(ids), "completion_tokens": 18, "total_tokens": len(ids) + 18, "prompt_tokens_details": {"cached_tokens": 0}}
    until(lambda: running.engine.stats()["kv_cache_usage"] == 0)


def test_settings_of_the_search_are_used(lm, running):
    ids = lm.tokenizer.encode(PROMPT)
    answer = running.ask(COMPLETE, {"prompt": PROMPT, "n": 2, "max_tokens": 5, "temperature": 4.0, "length_penalty": 0.5, "top_p": 1, "seed": 3, **BEAMS})
    assert [c["text"].strip() for c in answer["choices"]] == [t.strip() for t in searched(lm, ids, beam_width=2, max_tokens=5, temperature=4.0, length_penalty=0.5)]


def test_several_prompts_and_chats(lm, running):
    answer = running.ask(COMPLETE, {"prompt": [PROMPT, "a hill"], "n": 2, "max_tokens": 4, **BEAMS})
    texts = [c["text"].strip() for c in answer["choices"]]
    assert texts == [t.strip() for p in (PROMPT, "a hill") for t in searched(lm, lm.tokenizer.encode(p), beam_width=2, max_tokens=4)]
    answer = running.ask(CHAT, {**HELLO, "n": 2, "max_tokens": 4, **BEAMS})
    assert len(answer["choices"]) == 2 and answer["usage"]["completion_tokens"] == 8


def test_what_a_search_cannot_do_is_refused_by_name(running):
    for name, value in {"stream": True, "stop": "x", "stop_token_ids": [1], "logit_bias": {"1": 1}, "top_p": 0.5, "min_tokens": 2, "presence_penalty": 1, "guided_regex": "a"}.items():
        e = running.error(COMPLETE, {"prompt": PROMPT, "max_tokens": 2, **BEAMS, name: value})
        assert e["param"] == name and f"completions: {name} is not available with use_beam_search; got " in e["message"] and e["code"] == "unsupported_parameter"
    e = running.error(COMPLETE, {"prompt": PROMPT, "n": 2, "best_of": 3, **BEAMS})
    assert e["param"] == "best_of" and "best_of and use_beam_search exclude each other; got best_of = 3 and n = 2" in e["message"]
    assert running.error(COMPLETE, {"prompt": PROMPT, "length_penalty": 17, **BEAMS})["param"] == "length_penalty"
    assert running.error(COMPLETE, {"prompt": PROMPT, "use_beam_search": 1})["param"] == "use_beam_search"


def test_a_client_that_leaves_ends_its_search(lm, running):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request("POST", COMPLETE, json.dumps({"prompt": PROMPT, "n": 4, "max_tokens": 200, **BEAMS}), {"Content-Type": "application/json"})
    until(lambda: running.engine.stats()["generation_tokens_total"])
    connection.close()
    until(lambda: running.engine.stats()["kv_cache_usage"] == 0 and not running.engine.stats()["num_requests_running"])
    assert running.ask("/health") == {"status": "ok"}


def test_replicas_search(folder, lm):
    replicas = _replicas.Replicas(folder, 2, threads=1, max_num_seqs=4)
    server = Running(replicas.model, replicas, name="small")
    try:
        answer = server.ask(COMPLETE, {"prompt": PROMPT, "n": 3, "max_tokens": 6, **BEAMS})
        assert [c["text"].strip() for c in answer["choices"]] == [t.strip() for t in searched(lm, lm.tokenizer.encode(PROMPT), beam_width=3, max_tokens=6)]
        assert server.ask(COMPLETE, {"prompt": PROMPT, "max_tokens": 3, "ignore_eos": True})["usage"]["completion_tokens"] == 3
    finally:
        server.end()
