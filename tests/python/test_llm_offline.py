"""pf.llm.LLM, by vLLM's names, and the penalties and biases of pf.llm.Sampling."""
import importlib.util
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Engine, Sampler, Sampling, SamplingParams, _engine_cache  # noqa: E402
from pyflame.llm.engine import Finished  # noqa: E402
from pyflame.llm.offline import _Call, _Writing  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


def idle(engine):
    with engine._wake:
        return not engine._running and not engine._waiting and engine._blocks.used == 0


# Sampling.


def test_penalties_by_hand():
    logits = np.array([1.0, 2.0, 3.0, 4.0])

    def adjusted(tokens, prompt=0, **settings):
        ids, p = Sampler(Sampling(**settings)).probabilities(logits, tokens, prompt)
        got = np.log(p[np.argsort(ids)])
        return got - got[0]

    assert np.allclose(adjusted([3, 3, 1], frequency_penalty=0.5), [0, 1 - 0.5, 2, 3 - 1.0])
    assert np.allclose(adjusted([3, 3, 1], presence_penalty=0.5), [0, 1 - 0.5, 2, 3 - 0.5])
    assert np.allclose(adjusted([3, 3, 1], presence_penalty=-1, frequency_penalty=2), [0, 1 - 2 + 1, 2, 3 - 4 + 1])
    assert np.allclose(adjusted([3, 3, 1], prompt=2, presence_penalty=1, frequency_penalty=0.25), [0, 1 - 1.25, 2, 3])  # a prompt does not count
    assert np.allclose(adjusted([], logit_bias={0: 2, 3: -1.5}), [0, 1 - 2, 2 - 2, 3 - 1.5 - 2])
    # First the bias, then repetition_penalty, then the others, then the temperature.
    want = np.array([1.0, (2 - 6) * 2.0 - 0.5, 3.0, 4 / 2.0 - 0.5])
    assert np.allclose(adjusted([1, 3], logit_bias={1: -6}, repetition_penalty=2.0, presence_penalty=0.5, temperature=0.5), (want - want[0]) / 0.5)


def test_min_tokens(lm):
    sampler = Sampler(Sampling(temperature=0, min_tokens=2))
    logits = np.array([1.0, 2.0, 3.0])
    assert [sampler(logits, [0] * n, 1, {2}) for n in (1, 2, 3)] == [1, 1, 2]
    ids, p = Sampler(Sampling(min_tokens=1)).probabilities(logits, [0], 1, {2, 7})
    assert ids.tolist() == [1, 0] and np.allclose(p, np.exp([2, 1]) / np.exp([2, 1]).sum())
    with pytest.raises(ValueError, match="generate: min_tokens leaves no token; got 3 tokens that end the text; expected fewer than the vocabulary's 3"):
        sampler(logits, [], 0, {0, 1, 2})
    first = list(lm.tokens([9, 9], 1, GREEDY, stop_ids=()))
    least = Sampling(temperature=0, min_tokens=5)
    want = list(lm.tokens([9, 9], 20, least, stop_ids=first))
    with Engine(lm) as engine:
        request = engine.submit([9, 9], least, 20, stop_ids=first, receive=lambda event: None)
    assert request.ids[2:] == want and len(want) >= 5


@pytest.mark.parametrize("settings", [{}, {"top_p": 0.5}, {"min_p": 0.3}, {"top_k": 7, "top_p": 0.9}, {"temperature": 3.0, "frequency_penalty": 1.0}, {"min_tokens": 9}, {"logit_bias": {4: -100, 9: 3}}], ids=str)
def test_what_is_drawn_is_what_the_probabilities_say(settings):
    """Each token has a part of the sum in the order of the ids; the next number of the seed lies in the one that is drawn."""
    rs = np.random.RandomState(1)
    sampler, numbers = Sampler(Sampling(seed=3, **settings)), np.random.Generator(np.random.Philox(3))
    for _ in range(60):
        logits = (rs.randn(300) * 2).astype(np.float32)
        ids, p = Sampler(Sampling(**settings)).probabilities(logits, [1, 8], 1, {2, 5})
        order = np.argsort(ids)
        place = np.searchsorted(np.cumsum(p[order]), numbers.random(), side="right")
        assert sampler(logits, [1, 8], 1, {2, 5}) == ids[order][min(place, ids.size - 1)]


@pytest.mark.parametrize("name, value", [("presence_penalty", 2.5), ("frequency_penalty", -3), ("frequency_penalty", "1"), ("min_tokens", -1), ("min_tokens", 1.0), ("logit_bias", {3: 101}), ("logit_bias", {-1: 0}),
                                         ("logit_bias", {"3": 1}), ("logit_bias", [3])])  # fmt: skip
def test_wrong_settings(name, value):
    with pytest.raises(ValueError, match=f"generate: {name} is out of range; got "):
        Sampling(**{name: value})


def test_logit_bias_in_a_model(lm):
    assert list(lm.tokens([5], 4, Sampling(temperature=0, logit_bias={77: 100}), stop_ids=())) == [77] * 4
    with pytest.raises(ValueError, match=f"logit_bias has a token that is not in the vocabulary; got 9999; expected 0 to {small.VOCABULARY - 1}"):
        lm.tokens([5], 4, Sampling(logit_bias={9999: 1}))


# LLM.


def test_llm_generate(lm):
    prompts = ["the window", "on", "a hill in the"]
    with pf.llm.LLM(lm) as llm:
        outputs = llm.generate(prompts, SamplingParams(max_tokens=12, temperature=0))
        assert [o.prompt for o in outputs] == prompts and [o.prompt_token_ids for o in outputs] == [lm.tokenizer.encode(p) for p in prompts]
        assert [o.outputs[0].text for o in outputs] == [lm.generate(p, 12, temperature=0) for p in prompts]
        assert [o.outputs[0].token_ids for o in outputs] == [list(lm.tokens(p, 12, GREEDY)) for p in prompts]
        assert all(o.outputs[0].logprobs is None for o in outputs)
        ids = llm.generate([5, 6, 7], SamplingParams(max_tokens=3, seed=1, ignore_eos=True))
        assert len(ids) == 1 and ids[0].prompt is None and ids[0].outputs[0].token_ids == list(lm.tokens([5, 6, 7], 3, Sampling(seed=1), stop_ids=())) and ids[0].outputs[0].finish_reason == "length"
        same = llm.generate([{"prompt_token_ids": [5, 6, 7]}, {"prompt": "on"}], [SamplingParams(max_tokens=3, seed=1, ignore_eos=True), SamplingParams(max_tokens=None, temperature=0, ignore_eos=True)])
        assert same[0] == ids[0] and len(same[1].outputs[0].token_ids) == 256 - len(same[1].prompt_token_ids)


def test_llm_with_several_texts_logprobs_and_ends(lm):
    with pf.llm.LLM(lm) as llm:
        [o] = llm.generate("the window", SamplingParams(n=3, max_tokens=6, seed=5, logprobs=2, ignore_eos=True))
        assert [c.index for c in o.outputs] == [0, 1, 2] and [c.token_ids for c in o.outputs] == [list(lm.tokens("the window", 6, Sampling(seed=5 + i), stop_ids=())) for i in range(3)]
        for c in o.outputs:
            assert len(c.logprobs) == 6
            for id, entry in zip(c.token_ids, c.logprobs):
                assert next(iter(entry)) == id and 2 <= len(entry) <= 3 and sorted(x.rank for x in entry.values() if x.rank) == [1, 2] and entry[id].logprob < 0
        whole = lm.generate("the window", 40, temperature=0)
        stop = next(whole[i:i + 3] for i in range(4, len(whole)) if whole.find(whole[i:i + 3]) == i)
        [o] = llm.generate(["the window"], SamplingParams(max_tokens=40, temperature=0, stop=stop))
        assert o.outputs[0].text == whole[:whole.index(stop)] and o.outputs[0].finish_reason == "stop"
        first = list(lm.tokens("the window", 3, GREEDY))
        [o] = llm.generate(["the window"], SamplingParams(max_tokens=3, temperature=0, stop_token_ids=[first[0]]))
        assert o.outputs[0].finish_reason == "stop" and o.outputs[0].token_ids == [] and o.outputs[0].text == ""
        assert idle(llm.engine)


def test_llm_chat(lm):
    pytest.importorskip("jinja2", reason="the package jinja2 is not installed")
    hello = [{"role": "user", "content": "hello"}]
    with pf.llm.LLM(lm) as llm:
        params = SamplingParams(max_tokens=8, temperature=0)
        [one] = llm.chat(hello, params)
        assert one.outputs[0].text == lm.chat(hello, max_tokens=8, temperature=0) and one.prompt_token_ids == lm.chat_ids(hello)
        assert llm.chat([hello, hello], params) == [one, one]
        assert llm.get_default_sampling_params() == SamplingParams(temperature=0.7, top_k=20) and llm.get_tokenizer() is lm.tokenizer
        assert len(llm.chat(hello)[0].outputs[0].token_ids) <= 16
        [one] = llm.chat([*hello, {"role": "assistant", "content": "the window"}], params, continue_final_message=True)
        assert one.prompt_token_ids == lm.chat_ids(hello) + lm.tokenizer.encode("the window", add_special=False)
        assert llm.chat(hello, params, add_generation_prompt=False)[0].prompt_token_ids == lm.chat_ids(hello)[:-len(lm.tokenizer.encode("<|im_start|>assistant\n", False, True))]
        lm._template._template, before = lm._template._template.environment.from_string("{{ messages[0].content }}{{ style }}"), lm._template._template
        try:
            assert lm.tokenizer.decode(llm.chat(hello, params, chat_template_kwargs={"style": " kind"})[0].prompt_token_ids) == "hello kind"
        finally:
            lm._template._template = before


def test_llm_of_a_path(tmp_path):
    path = small.write_random_model(tmp_path, "llama", seed=3)
    with pf.llm.LLM(path, dtype="bfloat16", max_num_seqs=2) as llm:
        assert llm.model._network.dtype == pf.bfloat16 and llm.engine.max_num_seqs == 2
        assert len(llm.generate("on", SamplingParams(max_tokens=2, ignore_eos=True))[0].outputs[0].token_ids) == 2
    assert not llm.engine._thread.is_alive()
    with pytest.raises(ValueError, match="LLM: the dtype is not available; got 'int8'; expected one of auto, "):
        pf.llm.LLM(path, dtype="int8")


def test_the_end_of_an_llm_ends_its_thread(lm):
    llm = pf.llm.LLM(lm)
    thread = llm.engine._thread
    llm.generate("on", SamplingParams(max_tokens=2))
    del llm
    thread.join(60)
    assert not thread.is_alive()


def test_calls_of_several_threads(lm):
    prompts = [["on", "a"], ["the window"], ["hello", "on the"], ["w"]]
    with pf.llm.LLM(lm, max_num_seqs=3) as llm:
        def texts(i):
            return llm.generate(prompts[i], SamplingParams(max_tokens=12, seed=i, n=2))

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(texts, range(4)))
        assert found == [texts(i) for i in range(4)] and idle(llm.engine)


def test_a_call_that_is_watched_and_cancelled(lm):
    """What _cpp_host does: a function gets what is new, and another thread, or this function, ends the texts."""
    with pf.llm.LLM(lm) as llm:
        seen = []
        prompts, params = [llm._prompt(p) for p in ("on", "a")], SamplingParams(max_tokens=None, ignore_eos=True)

        def each(place, output, text, ids):
            seen.append((place, text, ids))
            if len(seen) == 5:
                call.cancel()

        call = _Call(llm, each)
        found = llm._write(prompts, params, False, None, call)
        assert idle(llm.engine)
        for place, r in enumerate(found):
            [output] = r.outputs
            assert output.finish_reason == "cancelled" and len(output.token_ids) < 20
            assert output.text == "".join(t for p, t, _ in seen if p == place) and output.token_ids == [i for p, _, ids in seen if p == place for i in ids]
        early = _Call(llm)
        early.cancel()
        [r] = llm._write(prompts[:1], params, False, None, early)
        assert r.outputs[0].finish_reason == "cancelled" and len(r.outputs[0].token_ids) < 20 and idle(llm.engine)


def test_llm_that_fails(lm, monkeypatch):
    with pf.llm.LLM(lm) as llm:
        with pytest.raises(ValueError, match="generate: there are no tokens"):
            llm.generate(["on", []])
        with pytest.raises(ValueError, match="generate: the settings do not fit; got 1 sampling_params for 2 prompts; expected one for all, or one for each"):
            llm.generate(["on", "a"], [SamplingParams()])
        with pytest.raises(TypeError, match="generate: sampling_params is of the wrong type; got dict; expected SamplingParams"):
            llm.generate("on", {"n": 1})
        with pytest.raises(TypeError, match="generate: a prompt is of the wrong type; got a dict with text; expected 'prompt' or 'prompt_token_ids'"):
            llm.generate({"text": "on"})
        with pytest.raises(ValueError, match="logprobs is out of range; got 21"):
            llm.generate(["on", "a"], [SamplingParams(max_tokens=200), SamplingParams(logprobs=21)])
        assert idle(llm.engine)

        class Fails(_engine_cache.Step):
            def chosen(self):
                raise MemoryError("no memory")

        with monkeypatch.context() as patch:
            patch.setattr(_engine_cache, "Step", Fails)
            with pytest.raises(RuntimeError, match="generate: a text could not be finished; got MemoryError: no memory; expected the text"):
                llm.generate(["on", "a"])
        assert llm.generate("on", SamplingParams(max_tokens=5, temperature=0))[0].outputs[0].text == lm.generate("on", 5, temperature=0)


@pytest.mark.parametrize("name, value, kind", [("n", 0, ValueError), ("max_tokens", -1, ValueError), ("top_k", -2, ValueError), ("temperature", -1, ValueError), ("stop", [""], TypeError), ("stop", 3, TypeError),
                                               ("stop_token_ids", ["a"], TypeError), ("logit_bias", {"a": 1}, ValueError), ("logit_bias", {"3": 101}, ValueError)])  # fmt: skip
def test_wrong_sampling_params(name, value, kind):
    with pytest.raises(kind, match=f"{name} is (out of range|of the wrong type); got "):
        SamplingParams(**{name: value})


def test_top_p_of_zero_says_what_to_do():
    with pytest.raises(ValueError, match="generate: top_p is out of range; got 0; expected 0 < top_p <= 1; hint: temperature=0 takes the likeliest token"):
        SamplingParams(top_p=0)


def test_results_say_how_they_came_about(lm):
    """The names are vLLM's: request_id, finished, num_cached_tokens."""
    ids = list(range(5, 55))
    with pf.llm.LLM(lm) as llm:
        first = llm.generate([ids, [7] * 20], SamplingParams(max_tokens=3, ignore_eos=True))
        again = llm.generate([ids, [7] * 40], SamplingParams(max_tokens=3, ignore_eos=True, n=2))
        assert [o.request_id for o in first + again] == ["0", "1", "2", "3"] and all(o.finished for o in first + again)
        assert [o.num_cached_tokens for o in first + again] == [0, 0, 48, 16]
        assert all(c.stop_reason is None for o in first for c in o.outputs)
        call = _Call(llm, lambda *_: call.cancel())
        [cancelled] = llm._write([(None, ids)], SamplingParams(max_tokens=40, ignore_eos=True), False, None, call)
        assert cancelled.outputs[0].finish_reason == "cancelled" and not cancelled.finished


def test_priority_of_each_prompt(lm, monkeypatch):
    """The engine waits until all texts of a call have come, so what their order is the priorities alone say."""
    ended, submit, receive = [], _Call.submit, _Writing.receive

    def submitted(call, w):
        if not call.writings:
            llm.engine._wake.acquire()
        submit(call, w)
        if len(call.writings) == 8:
            llm.engine._wake.release()

    def received(w, event):
        if isinstance(event, Finished):
            ended.append((w.place, w.output.index))
        return receive(w, event)

    def order(write, prompts, priority=None):
        """The places of prompts in the order in which their texts ended, two for each, and the texts."""
        ended.clear()
        found = write(prompts, SamplingParams(n=2, max_tokens=2, temperature=0, ignore_eos=True), priority=priority)
        assert [i for _, i in ended] == [0, 1] * 4 and [p for p, _ in ended[::2]] == [p for p, _ in ended[1::2]]
        return [p for p, _ in ended[::2]], found

    prompts = ["on", "a", "the", "w"]
    with pf.llm.LLM(lm, max_num_seqs=1) as llm:
        with monkeypatch.context() as patch:
            patch.setattr(_Call, "submit", submitted)
            patch.setattr(_Writing, "receive", received)
            places, texts = order(llm.generate, prompts)
            assert places == [0, 1, 2, 3]
            assert order(llm.generate, prompts, [3, 0, -1, 3]) == ([2, 1, 0, 3], texts)
            if importlib.util.find_spec("jinja2"):
                assert order(llm.chat, [[{"role": "user", "content": p}] for p in prompts], (0, 0, 0, -5))[0] == [3, 0, 1, 2]
        with pytest.raises(ValueError, match="generate: the priorities do not fit; got 1 priority for 2 prompts; expected one for each"):
            llm.generate(["on", "a"], priority=[1])
        for wrong in (1, ["x", 1], [True, 0], [1.0, 2]):
            with pytest.raises(TypeError, match="generate: priority is of the wrong type; got .*; expected a list of whole numbers"):
                llm.generate(["on", "a"], priority=wrong)
        assert idle(llm.engine)
