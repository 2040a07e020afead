"""Log probabilities of the tokens of prompts, of the engine, of LLM and of the server: they are those of one forward pass over the whole prompt."""
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyflame as pf

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, HELLO, Running, echo, lm, start, until  # noqa: E402, F401
from pyflame.llm import LLM, Engine, EngineFull, Finished, Sampling, SamplingParams  # noqa: E402
from pyflame.llm.serving import _answers  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402
from test_llm_engine import GREEDY, Received, ahead, cache_of, idle, written  # noqa: E402, F401

PROMPTS = [[4 + (7 * i * i + 3 * n) % 200 for i in range(n)] for n in (1, 2, 17, 48, 49, 100)]
COUNTS = [3, 0, 8, 1, 5, 4]


def logs_of(lm, ids):  # noqa: F811
    """log p of all tokens after each token of a text, by one forward pass."""
    logits = lm.logits(ids).numpy()[:, : lm._known()].astype(np.float64)
    return logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)


def check(lm, ids, got, top, within=1e-4):  # noqa: F811
    assert len(got) == len(ids) and got[0] is None
    logs = logs_of(lm, ids)
    for i in range(1, len(ids)):
        logprob, likeliest = got[i]
        assert abs(logprob - logs[i - 1, ids[i]]) < within and len(likeliest) == top
        best = np.sort(logs[i - 1])[::-1][:top]
        assert np.allclose([p for _, p in likeliest], best, atol=within) and all(abs(logs[i - 1, id] - p) < within for id, p in likeliest)


def found_of(received):
    """The log probabilities that the first event has, and no other one."""
    first, *others = received.events
    assert all(e.prompt_logprobs is None for e in others)
    return first.prompt_logprobs


@pytest.mark.parametrize("top", [0, 1, 20])
@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 16}, {"max_num_seqs": 1, "max_num_batched_tokens": 7}, {"batch_invariant": True, "max_num_batched_tokens": 32},
                                     {"speculative_config": {"method": "ngram", "prompt_lookup_min": 1}}], ids=str)  # fmt: skip
def test_one_forward_pass_says_the_same(lm, options, top):  # noqa: F811
    with Engine(lm, max_model_len=256, **options) as engine:
        plain = [r.ids for r in written(engine, PROMPTS, COUNTS)]
        received = written(engine, PROMPTS, COUNTS, prompt_logprobs=top)
        assert [r.ids for r in received] == plain and idle(engine)
        for ids, r in zip(PROMPTS, received):
            check(lm, ids, found_of(r), top)


@pytest.mark.parametrize("model_type", ["gemma3_text", "gpt2", "mixtral"])
def test_other_architectures(model_type, tmp_path):
    model = pf.llm.load(small.write_random_model(tmp_path, model_type, seed=3))
    with Engine(model, max_num_batched_tokens=16) as engine:
        for ids, r in zip(PROMPTS, written(engine, PROMPTS, COUNTS, prompt_logprobs=2)):
            check(model, ids, found_of(r), 2)


def test_the_cache_is_not_read_but_written(lm):  # noqa: F811
    ids = PROMPTS[-1]
    with Engine(lm, max_model_len=256) as engine:
        written(engine, [ids], [1])
        (known,) = written(engine, [ids], [1])
        assert known.end.num_cached_tokens == 96 and found_of(known) is None
        before = engine.stats()
        (asked,) = written(engine, [ids], [1], prompt_logprobs=3)
        after = engine.stats()
        assert asked.end.num_cached_tokens == 0 and after["prefix_cache_queries"] == before["prefix_cache_queries"]
        check(lm, ids, found_of(asked), 3)
        other = [9, *ids]
        written(engine, [other], [1], prompt_logprobs=3)
        assert written(engine, [other], [1])[0].end.num_cached_tokens == 96


def test_requests_that_give_up_their_blocks(lm):  # noqa: F811
    """What is known of a prompt is not computed again, and not lost, when its request is preempted, whether its keys and values are swapped or not."""
    prompts, counts = [PROMPTS[-1], PROMPTS[-2] * 2, PROMPTS[-1][::-1]], [60, 60, 60]
    for options in ({}, {"swap_space": 0.01}):
        with Engine(lm, max_num_seqs=3, max_num_batched_tokens=32, max_model_len=176, kv_cache_bytes=cache_of(lm, 21), **options) as engine:
            received = written(engine, prompts, counts, prompt_logprobs=1)
            assert engine.stats()["preemptions_total"] > 0
            for ids, r, n in zip(prompts, received, counts):
                check(lm, ids, found_of(r), 1)
                assert r.ids == list(lm.tokens(ids, n, GREEDY, stop_ids=()))


def test_a_prompt_that_is_preempted_while_it_is_read(lm, monkeypatch):  # noqa: F811
    ids, preempted, compute = PROMPTS[-1], [], Engine._compute

    def computed(self, parts):
        done = compute(self, parts)
        for r in [r for r in self._running if r._computed == 48 and not preempted]:
            preempted.append(r._prompt_logprobs.read)
            with self._wake:
                self._preempt(r)
        return done

    monkeypatch.setattr(Engine, "_compute", computed)
    with Engine(lm, max_num_batched_tokens=16, max_model_len=256) as engine:
        (received,) = written(engine, [ids], [2], prompt_logprobs=1)
        assert preempted == [48] and received.end.num_cached_tokens == 0
        check(lm, ids, found_of(received), 1)
        assert engine.stats()["iteration_tokens_total"] == len(ids) + 1  # its own blocks were there again


def test_beside_passes_that_begin_early(lm, ahead):  # noqa: F811
    """As on a GPU: the host must see what is found of a prompt, and the passes go on from each other again behind it."""
    with Engine(lm, max_num_seqs=4, max_num_batched_tokens=24, warm_up=False) as engine:
        received = [Received() for _ in PROMPTS]
        with engine._wake:
            for i, (ids, r) in enumerate(zip(PROMPTS, received)):
                engine.submit(ids, GREEDY, 20, stop_ids=(), prompt_logprobs=1 if i % 2 else None, receive=r)
        for i, (ids, r) in enumerate(zip(PROMPTS, received)):
            r.wait()
            assert r.ids == list(lm.tokens(ids, 20, GREEDY, stop_ids=()))
            check(lm, ids, found_of(r), 1) if i % 2 else None
    assert ahead[0] > 5


def test_no_token_is_asked_for(lm):  # noqa: F811
    with Engine(lm, max_num_batched_tokens=16, max_model_len=100) as engine:
        for ids in (PROMPTS[0], PROMPTS[-1]):  # the last one fills the context
            (received,) = written(engine, [ids], [0], prompt_logprobs=2)
            assert received.events == [Finished("length")] and engine.stats()["generation_tokens_total"] == 0
            check(lm, ids, found_of(received), 2)


def test_a_text_that_ends_at_once(lm):  # noqa: F811
    end = min(lm.end_ids)
    received = Received()
    with Engine(lm, max_model_len=256) as engine:
        engine.submit(PROMPTS[2], Sampling(temperature=0, logit_bias={end: 100}), 5, prompt_logprobs=1, receive=received)
        assert received.wait().reason == "stop" and len(received.events) == 1
        check(lm, PROMPTS[2], found_of(received), 1)


def test_ids_that_are_never_drawn(tmp_path):
    """A model may have more rows than its tokenizer has tokens."""
    model = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3, vocab_size=small.VOCABULARY + 9))
    ids = [5, model.config.vocab - 1, 6]
    assert ids[1] >= model._known()
    with Engine(model, max_model_len=64) as engine:
        found = found_of(written(engine, [ids], [1], prompt_logprobs=1)[0])
    assert found[1][0] == -math.inf and math.isfinite(found[1][1][0][1]) and math.isfinite(found[2][0])


def test_logits_that_are_not_finite(tmp_path):
    model = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3))
    model._network.embedding[9] = math.nan
    with Engine(model, max_num_batched_tokens=16, max_model_len=64) as engine:
        received = Received()
        engine.submit([5] * 8 + [9] + [5] * 30, GREEDY, 3, prompt_logprobs=1, receive=received)
        assert received.wait().reason == "error" and "the logits are not finite" in received.end.error and received.end.prompt_logprobs is None
        check(model, [5, 6, 7], found_of(written(engine, [[5, 6, 7]], [1], prompt_logprobs=1)[0]), 1)


@pytest.mark.parametrize("value", [-1, 21, True, "1"])
def test_wrong_numbers(lm, value):  # noqa: F811
    with Engine(lm, max_model_len=64) as engine, pytest.raises(ValueError, match="generate: prompt_logprobs is out of range; got .*; expected None or a whole number from 0 to 20"):
        engine.submit([5], prompt_logprobs=value, receive=print)


# LLM.


def test_outputs_have_those_of_their_prompts(lm):  # noqa: F811
    with LLM(lm, max_model_len=256) as llm:
        outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=2, temperature=0, n=2, prompt_logprobs=3))
        for ids, output in zip(PROMPTS, outputs):
            assert len(output.outputs) == 2 and output.prompt_logprobs[0] is None
            check(lm, ids, [p and (p[id].logprob, [(i, x.logprob) for i, x in sorted(p.items(), key=lambda t: t[1].rank or 99) if x.rank]) for id, p in zip(ids, output.prompt_logprobs)], 3)
            for id, p in zip(ids[1:], output.prompt_logprobs[1:]):
                assert next(iter(p)) == id and p[id].decoded_token == llm._text_of(id) and len(p) == 3 + (p[id].rank is None)
        assert llm.generate(PROMPTS, SamplingParams(max_tokens=1))[0].prompt_logprobs is None
        [cut] = llm.generate([PROMPTS[-1]], SamplingParams(max_tokens=1, prompt_logprobs=0, truncate_prompt_tokens=5))
        check(lm, PROMPTS[-1][-5:], [p and (next(iter(p.values())).logprob, []) for p in cut.prompt_logprobs], 0)


def test_wrong_settings():
    with pytest.raises(ValueError, match="SamplingParams: prompt_logprobs is out of range; got -1; expected a whole number from 0 upwards or None"):
        SamplingParams(prompt_logprobs=-1)


# The server.


@pytest.fixture
def running(lm):  # noqa: F811
    running = Running(lm, Engine(lm, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=128), name="small")
    yield running
    running.end()


def of_vllm(ids, got):
    """vLLM's objects as check() takes them."""
    return [p and (p[str(id)]["logprob"], [(int(i), x["logprob"]) for i, x in sorted(p.items(), key=lambda t: t[1]["rank"] or 99) if x["rank"]]) for id, p in zip(ids, got)]


def test_completions_of_several_prompts(running, lm):  # noqa: F811
    prompts = PROMPTS[1:4]
    choices = running.ask(COMPLETE, {"prompt": prompts, "n": 2, "max_tokens": 2, "prompt_logprobs": 2})["choices"]
    assert len(choices) == 6 and all("prompt_logprobs" not in c for c in running.ask(COMPLETE, {"prompt": prompts, "max_tokens": 1})["choices"])
    for c in choices:
        ids = prompts[c["index"] // 2]
        check(lm, ids, of_vllm(ids, c["prompt_logprobs"]), 2)
        assert c["prompt_logprobs"][1][str(ids[1])]["decoded_token"] == lm.tokenizer.token_bytes(ids[1], False).decode("utf-8", "replace")


def test_chats(running, lm):  # noqa: F811
    answer = running.ask(CHAT, {**HELLO, "max_tokens": 2, "prompt_logprobs": 1})
    ids = lm.chat_ids(HELLO["messages"])
    check(lm, ids, of_vllm(ids, answer["prompt_logprobs"]), 1)
    assert "prompt_logprobs" not in running.ask(CHAT, {**HELLO, "max_tokens": 2})


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"max_tokens": 0}])
def test_echo(running, lm, fields):  # noqa: F811
    """The text begins with the prompt; its tokens have logprobs as those of the text have, in streams, too."""
    prompt, body = "the window", {"prompt": "the window", "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 2, **fields}
    ids = lm.tokenizer.encode(prompt)
    plain = running.ask(COMPLETE, {**body, "max_tokens": 6})["choices"]
    for c in running.ask(COMPLETE, {**body, "echo": True})["choices"]:
        of_text, logprobs = plain[c["index"]], c["logprobs"]
        if body["max_tokens"] == 0:
            of_text = {"text": "", "finish_reason": "length", "logprobs": {name: [] for name in logprobs}}
        assert c["text"] == prompt + of_text["text"] and c["finish_reason"] == of_text["finish_reason"]
        count = len(logprobs["tokens"])
        assert count == len(ids) + len(of_text["logprobs"]["tokens"]) == len(logprobs["top_logprobs"])
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
        logs = logs_of(lm, ids)
        assert np.allclose(logprobs["token_logprobs"][1:len(ids)], [logs[i, id] for i, id in enumerate(ids[1:])], atol=1e-4)
        assert all(math.isclose(max(top.values()), logs[i].max(), abs_tol=1e-4) for i, top in enumerate(logprobs["top_logprobs"][1:len(ids)]))
        assert np.allclose(logprobs["token_logprobs"][len(ids):], of_text["logprobs"]["token_logprobs"], atol=1e-4)
        assert all(c["text"][at:].startswith(token) for at, token in zip(logprobs["text_offset"], logprobs["tokens"]) if token.isprintable() and token not in map(lm.tokenizer.token, lm.tokenizer.special_ids))
        pieces = [p for chunk in running.stream(COMPLETE, {**body, "echo": True}).rest() for p in chunk["choices"] if p["index"] == c["index"]]
        assert "".join(p["text"] for p in pieces) == c["text"] and pieces[0]["text"] == prompt
        for name in ("tokens", "text_offset"):
            assert [x for p in pieces if p["logprobs"] for x in p["logprobs"][name]] == logprobs[name]


@pytest.mark.parametrize("fields", [{"stream": True}, {"max_tokens": 0}, {"best_of": 4}])
def test_echo_reads_a_prompt_once(running, lm, fields):  # noqa: F811
    """One choice reads it with log probabilities. The others begin then, take what they can of its beginning, and repeat what was found."""
    ids, asked, submit = [5, 6, 7, 8] * 20, [], running.engine.submit
    running.engine.submit = lambda *args, **options: asked.append(options["prompt_logprobs"]) or submit(*args, **options)
    body = {"prompt": [ids, ids[::-1]], "echo": True, "logprobs": 1, "n": 3, "max_tokens": 3, "temperature": 0, "ignore_eos": True, **fields}
    if body.get("stream"):
        chunks = running.stream(COMPLETE, body).rest()
        found = [[x for c in chunks for p in c["choices"] if p["index"] == i and p["logprobs"] for x in p["logprobs"]["token_logprobs"]] for i in range(6)]
    else:
        found = [c["logprobs"]["token_logprobs"] for c in running.ask(COMPLETE, body)["choices"]]
    count = body.get("best_of", 3)
    assert sorted(asked, key=str) == [1] * 2 + [None] * 2 * (count - 1) and [len(logs) for logs in found] == [80 + body["max_tokens"]] * 6
    of_prompts = [logs[:80] for logs in found]
    assert of_prompts[:3] == of_prompts[:1] * 3 and of_prompts[3:] == of_prompts[3:4] * 3 and of_prompts[0] != of_prompts[3]
    hits = 64 * 2 * (count - 1) if body["max_tokens"] else 0  # the last token is computed, and with it its block; where no token is wanted, the others compute nothing
    assert running.engine.stats()["prefix_cache_hits"] == hits


def test_where_the_queue_has_no_room_for_further_choices(running, lm):  # noqa: F811
    submit = running.engine.submit

    def once(*args, **options):
        running.engine.submit = full
        return submit(*args, **options)

    def full(*args, **options):
        raise EngineFull("no room")

    running.engine.submit = once
    e = running.error(COMPLETE, {"prompt": "the window", "echo": True, "logprobs": 1, "n": 2}, 429)
    assert e["code"] == "queue_full" and "completions: the queue is full; got no room" in e["message"]
    running.engine.submit = submit
    until(lambda: idle(running.engine))


@pytest.mark.parametrize("error, status, code", [(MemoryError("no memory"), 500, "internal_error"), (OSError("gone"), 500, "internal_error"), (RuntimeError("closed"), 503, "engine_failed")])
def test_where_the_engine_fails_at_further_choices(running, monkeypatch, error, status, code):
    """The answer ends with an error, and each of its texts is counted once."""
    submit = running.engine.submit

    def once(*args, **options):
        monkeypatch.setattr(running.engine, "submit", fails)
        return submit(*args, **options)

    def fails(*args, **options):
        raise error

    monkeypatch.setattr(running.engine, "submit", once)
    assert running.error(COMPLETE, {"prompt": "the window", "echo": True, "logprobs": 1, "n": 3, "max_tokens": 0}, status)["code"] == code
    assert running.server.has_failed == (status == 503)
    until(lambda: idle(running.engine))
    assert counted(running, 'request_success_total{finished_reason="abort"') == 3 and counted(running, "request_prompt_tokens_count") == 0


def counted(running, name):
    """The sum of the metrics whose lines begin so."""
    return sum(float(line.split()[-1]) for line in running.raw("/metrics")[2].decode().splitlines() if line.startswith("vllm:" + name))


@pytest.mark.parametrize("options", [{}, {"enable_prefix_caching": False}], ids=str)
def test_choices_wait_for_the_first_one_of_their_prompt(lm, options):  # noqa: F811
    """With log probabilities of the prompt they begin with its first token and take its beginning from the cache. Where there are no known beginnings, they begin at once."""
    ids, asked = [5, 6, 7, 8] * 20, []
    running = Running(lm, Engine(lm, max_num_seqs=4, max_model_len=128, warm_up=False, **options), name="small")
    try:
        submit = running.engine.submit
        running.engine.submit = lambda *args, **options: asked.append(running.engine.stats()["generation_tokens_total"]) or submit(*args, **options)
        choices = running.ask(COMPLETE, {"prompt": ids, "n": 3, "max_tokens": 2, "prompt_logprobs": 1, "temperature": 0, "ignore_eos": True})["choices"]
        assert [len(c["prompt_logprobs"]) for c in choices] == [80] * 3 and len({c["text"] for c in choices}) == 1
        assert running.engine.stats()["prefix_cache_hits"] == (0 if options else 2 * 64)
        assert len(asked) == 3 and asked[0] == 0 and (asked[1] > 0) == (not options)
        # What the others repeat, the first one finds.
        choices = running.ask(COMPLETE, {"prompt": ids, "n": 3, "max_tokens": 1, "echo": True, "logprobs": 1})["choices"]
        assert [len(c["logprobs"]["tokens"]) for c in choices] == [81] * 3 and len({str(c["logprobs"]["token_logprobs"][:80]) for c in choices}) == 1
    finally:
        running.end()


def test_choices_share_what_they_repeat(running, monkeypatch):
    """The entries of a prompt's tokens are made once. The wait for the first choice is part of the time in the queue."""
    prompt, shared, add = PROMPTS[-1], [], _answers.Answer.add
    held, submitted = [], _answers.Answer.submit_followers

    def noted(answer, delta):
        if len(delta.entries) == len(prompt):
            shared.append(delta.entries)
        add(answer, delta)

    def begins_later(answer, first):
        answer.begin -= 1000.0  # as if the first choice had taken so long
        held.extend(first.followers)
        submitted(answer, first)

    monkeypatch.setattr(_answers.Answer, "add", noted)
    monkeypatch.setattr(_answers.Answer, "submit_followers", begins_later)
    choices = running.ask(COMPLETE, {"prompt": prompt, "n": 3, "max_tokens": 1, "echo": True, "logprobs": 1})["choices"]
    assert [len(c["logprobs"]["tokens"]) for c in choices] == [101] * 3 and len(shared) == 3 and len(set(map(id, shared))) == 1
    assert len(held) == 2 and 2 * 1000 <= counted(running, "request_queue_time_seconds_sum") < 3 * 1000


def test_an_event_that_fails_ends_one_answer(echo, monkeypatch):  # noqa: F811
    """The events behind it reach their choices."""
    receive, waiting = _answers.Choice.receive, threading.Event()

    def fails(choice, event):
        if choice.answer.job.user == "unlucky":
            raise MemoryError("no memory")
        receive(choice, event)

    monkeypatch.setattr(_answers.Choice, "receive", fails)
    echo.engine.allow(0)
    with ThreadPoolExecutor(2) as pool:
        unlucky = pool.submit(echo.error, COMPLETE, {"prompt": "once", "user": "unlucky"}, 500)
        until(lambda: len(echo.engine.requests) == 1)
        other = pool.submit(echo.ask, COMPLETE, {"prompt": "once"})
        until(lambda: len(echo.engine.requests) == 2)

        def loop_waits():  # until events of both wait to be delivered
            echo.engine.allow()
            until(lambda: not echo.engine.unfinished)
            waiting.set()

        echo.loop.call_soon_threadsafe(loop_waits)
        assert waiting.wait(60) and unlucky.result(60)["code"] == "internal_error" and other.result(60)["choices"][0]["text"] == "once"


def test_echo_without_logprobs(echo, lm):  # noqa: F811
    choice = echo.ask(COMPLETE, {"prompt": "once", "echo": True})["choices"][0]
    assert (choice["text"], choice["logprobs"]) == ("onceonce", None)
    special = [min(lm.tokenizer.special_ids), *lm.tokenizer.encode("once", add_special=False)]
    assert echo.ask(COMPLETE, {"prompt": special, "echo": True, "skip_special_tokens": False})["choices"][0]["text"].startswith(lm.tokenizer.token(special[0]) + "once")
    assert echo.ask(COMPLETE, {"prompt": "once upon", "echo": True, "stop": "once"})["choices"][0]["text"] == "once upon"  # a stop text of the prompt ends nothing


@pytest.mark.parametrize("fields, builds", [
    ({"prompt_logprobs": 1}, "_ranked"), ({"echo": True, "logprobs": 1}, "_likeliest"), ({"echo": True, "logprobs": 1, "stream": True}, "_likeliest"),
], ids=["prompt_logprobs", "echo", "stream"])  # fmt: skip
def test_streams_go_on_while_a_long_answer_is_built(running, monkeypatch, fields, builds):
    original, builds_now, has_ended, seen = getattr(_answers.CompletionForm, builds), threading.Event(), threading.Event(), []

    def waits(self, *args):
        builds_now.set()
        seen.append(has_ended.wait(20 if all(seen) else 0))
        return original(self, *args)

    monkeypatch.setattr(_answers.CompletionForm, builds, waits)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(running.raw, COMPLETE, {"prompt": PROMPTS[-1], "max_tokens": 1, **fields})
        assert builds_now.wait(60)
        chunks = running.stream(COMPLETE, {"prompt": "the window", "max_tokens": 5, "ignore_eos": True}).rest()  # from its begin to its end
        has_ended.set()
        status, _, _ = long.result(60)
    assert status == 200 and chunks[-1]["choices"][0]["finish_reason"] == "length" and len(seen) >= len(PROMPTS[-1]) and all(seen)


def test_large_documents_are_encoded_in_slices(monkeypatch):
    document = {"a": [{"b": [{str(i): i / 7, "é": None} for i in range(200)], "c": "x\ud800", "d": {}, "e": []}], "f": (1, 2), "g": [[True], 0.5], "h": [None] * 65}
    document["i"] = [{"j": [0.5] * 900, "k": [{"x": [1, 2]}] * 100} for _ in range(130)]  # as many choices with log probabilities
    want, text, sizes = _answers.encoded(document), _answers._text, []

    def size(value):
        return 1 + sum(map(size, value.values() if isinstance(value, dict) else value)) if isinstance(value, (dict, list, tuple)) else 1

    monkeypatch.setattr(_answers, "_text", lambda value: sizes.append(size(value)) or text(value))
    assert _answers.encoded_in_slices(document) == want and max(sizes) <= 1 + _answers.SLICE and len(sizes) < 1000


@pytest.mark.parametrize("path, fields, param, message", [
    (COMPLETE, {"prompt": "x", "prompt_logprobs": 21}, "prompt_logprobs", "completions: prompt_logprobs is out of range; got 21; expected 0 to 20"),
    (COMPLETE, {"prompt": "x", "prompt_logprobs": -1}, "prompt_logprobs", "prompt_logprobs is out of range; got -1"),
    (COMPLETE, {"prompt": "x", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "prompt_logprobs and stream exclude each other; got both; expected one of them"),
    (COMPLETE, {"prompt": "x", "prompt_logprobs": 1, "use_beam_search": True}, "prompt_logprobs", "prompt_logprobs is not available with use_beam_search"),
    (COMPLETE, {"prompt": "x", "echo": True, "use_beam_search": True}, "echo", "echo is not available with use_beam_search"),
    (COMPLETE, {"prompt": "x", "max_tokens": 0}, "max_tokens", "max_tokens is out of range; got 0"),
    (COMPLETE, {"prompt": "x", "echo": 1}, "echo", "echo has the wrong type"),
    (CHAT, {**HELLO, "echo": True}, "echo", "echo is not available yet"),
])  # fmt: skip
def test_wrong_fields(echo, path, fields, param, message):  # noqa: F811
    e = echo.error(path, fields)
    assert e["param"] == param and message in e["message"] and not echo.engine.requests
