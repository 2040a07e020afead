"""best_of of pf.llm.LLM and of `pyflame serve`: the texts with the highest cumulative log probability."""
import numpy as np
import pytest

import pyflame as pf

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, HELLO, Running, until  # noqa: E402
from pyflame.llm import Engine, Sampling, SamplingParams  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

PROMPT = "the window"


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


def logprob_of(lm, prompt, ids):
    """log p(ids | prompt), by one forward pass of the whole text."""
    logits = lm.logits([*prompt, *ids]).numpy().astype(np.float64)[len(prompt) - 1:-1]
    logs = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)
    return sum(float(row[i]) for row, i in zip(logs, ids))


def drawn(lm, prompt, count, seeds, stop_ids, **settings):
    """[(log p with the token that ended the text, ids)] of the texts that these seeds draw."""
    found = []
    for seed in seeds:
        every = list(lm.tokens(prompt, count, Sampling(seed=seed, **settings), stop_ids=()))
        end = next((i for i, id in enumerate(every) if id in stop_ids), None)
        ids, ended = (every, every) if end is None else (every[:end], every[: end + 1])
        found.append((logprob_of(lm, prompt, ended), ids))
    return found


def test_the_likeliest_texts_are_the_result(lm):
    prompt = lm.tokenizer.encode(PROMPT)
    stops = [i for i in range(4, lm.config.vocab) if i % 9 == 0]  # some texts end early: the token that ends them counts
    texts = drawn(lm, prompt, 8, range(5, 11), stops, temperature=1.5)
    best = sorted(texts, key=lambda t: -t[0])
    assert len({len(ids) for _, ids in texts}) > 1 and best != texts
    params = SamplingParams(n=2, best_of=6, max_tokens=8, seed=5, temperature=1.5, ignore_eos=True, stop_token_ids=stops)
    with pf.llm.LLM(lm) as llm:
        [o, again] = llm.generate([PROMPT, PROMPT], params)
        assert [c.token_ids for c in o.outputs] == [ids for _, ids in best[:2]] and [c.index for c in o.outputs] == [0, 1] and [c.token_ids for c in again.outputs] == [ids for _, ids in best[:2]]
        assert np.allclose([c.cumulative_logprob for c in o.outputs], [p for p, _ in best[:2]], atol=1e-3) and all(c.logprobs is None for c in o.outputs)
        assert o.num_generation_tokens == sum(len(ids) for _, ids in texts)
        [every] = llm.generate(PROMPT, SamplingParams(n=6, max_tokens=8, seed=5, temperature=1.5, ignore_eos=True, stop_token_ids=stops, logprobs=1))
        assert [c.token_ids for c in every.outputs] == [ids for _, ids in texts]  # without best_of in the order of the seeds
        assert np.allclose([c.cumulative_logprob for c in every.outputs], [p for p, _ in texts], atol=1e-3)
        [same] = llm.generate(PROMPT, SamplingParams(n=2, best_of=2, max_tokens=8, seed=5, temperature=1.5, ignore_eos=True, stop_token_ids=stops))
        assert [c.token_ids for c in same.outputs] == [ids for _, ids in texts[:2]] and same.outputs[0].cumulative_logprob is None
        [shown] = llm.generate(PROMPT, SamplingParams(n=1, best_of=6, max_tokens=8, seed=5, temperature=1.5, ignore_eos=True, stop_token_ids=stops, logprobs=2))
        assert shown.outputs[0].token_ids == best[0][1] and len(shown.outputs[0].logprobs) == len(best[0][1])
        with llm.engine._wake:
            assert llm.engine._blocks.used == 0


@pytest.mark.parametrize("value, n, message", [(0, 1, "got 0; expected a whole number from 1 upwards or None"), (1.0, 1, "got 1.0; "), (2, 3, "got best_of 2 and n 3; expected best_of to be at least n")])
def test_best_of_out_of_range(value, n, message):
    with pytest.raises(ValueError, match="SamplingParams: best_of is out of range; " + message):
        SamplingParams(n=n, best_of=value)


def test_the_server_answers_with_the_best(lm):
    running = Running(lm, Engine(lm, max_num_seqs=4), name="small")
    try:
        body = {"prompt": PROMPT, "max_tokens": 6, "seed": 5, "temperature": 1.5, "ignore_eos": True}
        prompt = lm.tokenizer.encode(PROMPT)
        texts = sorted(drawn(lm, prompt, 6, range(5, 10), (), temperature=1.5, **{k: v for k, v in lm.defaults.items() if k != "temperature"}), key=lambda t: -t[0])
        want = sorted(running.ask(COMPLETE, {**body, "n": 5, "logprobs": 0})["choices"], key=lambda c: -sum(c["logprobs"]["token_logprobs"]))
        got = running.ask(COMPLETE, {**body, "n": 2, "best_of": 5})
        assert [c["text"] for c in got["choices"]] == [c["text"] for c in want[:2]] and [c["index"] for c in got["choices"]] == [0, 1]
        assert np.allclose([sum(c["logprobs"]["token_logprobs"]) for c in want], [p for p, _ in texts], atol=1e-3)
        assert all(c["logprobs"] is None for c in got["choices"])
        assert got["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 5 * 6, "total_tokens": len(prompt) + 5 * 6, "prompt_tokens_details": {"cached_tokens": 0}}  # tokens of texts that are left out count
        several = running.ask(COMPLETE, {**body, "prompt": [PROMPT, "a hill"], "best_of": 5, "logprobs": 1})
        assert [c["index"] for c in several["choices"]] == [0, 1] and several["choices"][0]["text"] == want[0]["text"]
        assert np.allclose(several["choices"][0]["logprobs"]["token_logprobs"], want[0]["logprobs"]["token_logprobs"], atol=1e-3) and several["usage"]["completion_tokens"] == 2 * 5 * 6
        answer = running.ask(CHAT, {**HELLO, "max_tokens": 4, "seed": 1, "temperature": 1.5, "best_of": 3, "ignore_eos": True})
        assert len(answer["choices"]) == 1 and answer["usage"]["completion_tokens"] == 12
        assert len(running.ask(COMPLETE, {**body, "n": 2, "best_of": 2, "stream": False})["choices"]) == 2
        until(lambda: running.engine.stats()["kv_cache_usage"] == 0)
    finally:
        running.end()


def test_texts_that_are_left_out_count_towards_the_limit(lm):
    running = Running(lm, Engine(lm, max_num_seqs=4), name="small")
    try:
        running.server.limits.choices = 4
        assert "the queue is full" in running.error(COMPLETE, {"prompt": PROMPT, "best_of": 5}, 429)["message"]
    finally:
        running.end()
