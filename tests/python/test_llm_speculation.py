"""Speculative decoding: texts are what they are without guesses, what is counted, and wrong settings."""
import json
import random

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, Finished, Sampler, Sampling, SamplingParams, SpeculativeConfig  # noqa: E402
from pyflame.llm._speculation import Drafter, NGrams  # noqa: E402
from pyflame.llm.__main__ import main as command  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3)


@pytest.fixture(scope="module")
def lm(folder):
    return pf.llm.load(folder)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("draft"), "llama", seed=4, num_hidden_layers=2))


def test_n_grams_by_hand():
    assert NGrams(1, 3).propose([1, 2, 3, 4, 1, 2, 3], 3) == [4, 1, 2]
    assert NGrams(1, 3).propose([7, 1, 9, 1], 5) == [9, 1, 9, 1, 9]  # it goes on with itself
    assert NGrams(1, 1).propose([5, 5], 3) == [5, 5, 5]
    assert NGrams(2, 3).propose([7, 1, 9, 1], 5) == [] and NGrams(1, 3).propose([1, 2, 3], 4) == []
    assert NGrams(1, 2).propose([1, 2, 8, 1, 2, 9, 3, 2, 1, 2], 1) == [9]  # the latest place of the longest beginning
    rs, ngrams, ids = random.Random(1), NGrams(1, 3), []
    for _ in range(200):
        ids.append(rs.randrange(4))
        assert ngrams.propose(ids, 4) == NGrams(1, 3).propose(list(ids), 4)


# With another seed two tokens may be equally likely but for the last digit, and then the order of sums decides which one is drawn.
SETTINGS = [Sampling(temperature=0), Sampling(temperature=1.0, seed=9), Sampling(temperature=0.5, seed=6, top_k=4, repetition_penalty=1.3, presence_penalty=0.5),
            Sampling(temperature=0, min_tokens=30, frequency_penalty=-1.0), Sampling(temperature=0, logit_bias={65: 30})]  # fmt: skip


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(5))
def test_one_text_is_the_same(lm, other, sampling):
    prompt = lm.tokenizer.encode("the window the window the")
    want = list(lm.tokens(prompt, 60, sampling))
    for config in (NGRAM, {"model": other, "num_speculative_tokens": 3}, {"model": lm}):
        assert list(lm.tokens(prompt, 60, sampling, speculative_config=config)) == want
    assert len(list(lm.tokens(prompt, 1000, sampling, stop_ids=(), speculative_config=NGRAM))) == 256 - len(prompt)


def written(lm, prompts, settings, config=None, **options):
    """(ids of each request, stats) of one engine."""
    with Engine(lm, speculative_config=config, **options) as engine:
        requests = [engine.submit(p, s, 40, stop_ids=(), receive=lambda e: None) for p, s in zip(prompts, settings)]
        engine.close()
        assert all(r.finished.reason == "length" for r in requests)
        assert engine._blocks.used == 0
        return [r.ids for r in requests], engine.stats()


@pytest.mark.parametrize("as_on_gpus", [False, True])
def test_an_engine_writes_the_same(lm, other, as_on_gpus, monkeypatch):
    """as_on_gpus: with the ops of an engine on a GPU."""
    if as_on_gpus:
        monkeypatch.setattr("pyflame.llm._engine_cache._on_gpu", lambda device: True)
    prompts = [lm.tokenizer.encode(t) for t in ("the window the window", "once upon", "a", "in the the in the the", "hello hello")]
    want, plain = written(lm, prompts, SETTINGS)
    assert "spec_decode_num_drafts" not in plain
    for config in (NGRAM, {"model": other, "num_speculative_tokens": 3}):
        got, stats = written(lm, prompts, SETTINGS, config)
        assert got == want and stats["generation_tokens_total"] == 200
        drafts, tokens, accepted = (stats["spec_decode_num_" + n] for n in ("drafts", "draft_tokens", "accepted_tokens"))
        assert 0 < drafts and accepted <= tokens <= drafts * len(stats["spec_decode_num_accepted_tokens_per_pos"])
        assert sum(stats["spec_decode_num_accepted_tokens_per_pos"]) == accepted
    # The model itself guesses what it takes for the likeliest: greedy texts accept all, but guesses beyond the end are not made.
    got, stats = written(lm, prompts[:3], [SETTINGS[0]] * 3, {"model": lm, "num_speculative_tokens": 3})
    assert got == written(lm, prompts[:3], [SETTINGS[0]] * 3)[0] and stats["spec_decode_num_accepted_tokens"] == stats["spec_decode_num_draft_tokens"] > 3 * 25


def test_where_memory_and_tokens_are_short(lm):
    prompts = [lm.tokenizer.encode("the window the window"), lm.tokenizer.encode("in the in the"), [9, 8, 9]]
    want = written(lm, prompts, SETTINGS[:3])[0]
    for options in ({"max_model_len": 64, "kv_cache_bytes": 6 * 16 * 2 * 4 * 2 * 16 * 4}, {"max_num_seqs": 2, "max_num_batched_tokens": 3}):
        assert written(lm, prompts, SETTINGS[:3], NGRAM, **options)[0] == want


def test_the_distribution_is_the_models(lm):
    """The second token's frequencies over 1500 seeds: those of the model, by a chi-squared test over its eight likeliest tokens and the others."""
    prompt = [9, 9, 9]
    first = next(lm.tokens(prompt, 1, Sampling(temperature=0), stop_ids=()))
    logits = lm.logits([*prompt, first]).numpy()[-1].astype(np.float64)
    p = np.exp(logits * 2 - (logits * 2).max())
    p /= p.sum()
    guess = int(p.argsort()[-2])
    drafter, proposed = Drafter(SpeculativeConfig(num_speculative_tokens=1)), []
    drafter.propose = lambda ids, count: proposed.append(guess) or [guess]
    counts = np.zeros(p.size)

    class FirstGiven(Sampler):  # the first token is always the same, and each text's second one has another number
        texts = 0

        def rows(self, size, tokens, prompt, stop_ids, guesses=()):
            self.texts += len(tokens) == 3
            self.begins = len(tokens) == 3
            return super().rows(size, tokens, prompt, stop_ids, guesses, drawn=2 * self.texts)

        def take(self, found):
            return first if self.begins else super().take(found)

    sampler = FirstGiven(Sampling(temperature=0.5, seed=1))
    for _ in range(1500):
        counts[list(lm._tokens(prompt, 3, sampler, frozenset(), drafter))[1]] += 1
    assert len(proposed) == 1500
    top = p.argsort()[-8:]
    want = np.append(p[top], 1 - p[top].sum()) * 1500
    got = np.append(counts[top], 1500 - counts[top].sum())
    assert ((got - want) ** 2 / np.maximum(want, 1)).sum() < 27.9  # 8 degrees of freedom: one in 2000 is above


def test_a_grammar_holds(lm):
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    from pyflame.llm import Grammar

    grammar = Grammar.regex("(the window ){2,6}end")
    want = lm.generate("the window ", seed=1, grammar=grammar, max_tokens=80)
    assert lm.generate("the window ", seed=1, grammar=grammar, max_tokens=80, speculative_config=NGRAM) == want and want.endswith("end")
    with LLM(lm, speculative_config=NGRAM) as llm:
        assert llm.generate("the window ", SamplingParams(seed=1, max_tokens=80, structured_outputs=grammar, temperature=0.7, top_k=20))[0].outputs[0].text == want


def test_metrics(lm):
    pytest.importorskip("prometheus_client", reason="the package prometheus_client is not installed")
    pytest.importorskip("aiohttp", reason="the package aiohttp is not installed")
    from pyflame.llm.serving._metrics import Metrics

    with Engine(lm, speculative_config=NGRAM) as engine:
        engine.submit([9, 9, 9, 9], Sampling(temperature=0, logit_bias={9: 100}), 20, stop_ids=(), receive=lambda e: None)
        engine.close()
        text, stats = Metrics(engine, "small").document().decode(), engine.stats()
    assert stats["spec_decode_num_accepted_tokens"] == stats["spec_decode_num_draft_tokens"] == 15  # 20 tokens: one by the prompt, then 4 guesses and one more at a time
    assert 'vllm:spec_decode_num_accepted_tokens_total{model_name="small"} 15.0' in text and 'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="small",position="0"} 4.0' in text


def test_wrong_settings(lm, tmp_path, folder, capsys):
    for config, message in (
        ({"method": "eagle"}, "speculative_config: the method is not available; got 'eagle'; expected one of ngram, draft_model"),
        ({"method": "draft_model"}, "speculative_config: method and model do not fit; got method 'draft_model' and model None"),
        ({"num_speculative_tokens": 0}, "speculative_config: num_speculative_tokens is out of range; got 0; expected 1 to 64"),
        ({"prompt_lookup_max": 2, "prompt_lookup_min": 3}, "speculative_config: the lengths do not fit; got prompt_lookup_min 3 and prompt_lookup_max 2"),
        ({"tokens": 3}, "speculative_config: there are no such settings; got tokens; expected method"),
    ):
        with pytest.raises(ValueError, match=message):
            lm.generate("a", speculative_config=config)
    with pytest.raises(TypeError, match="speculative_config: the settings are of the wrong type; got list; expected a dict"):
        Engine(lm, speculative_config=[])
    with pytest.raises(ValueError, match="Engine: speculative_config and batch_invariant exclude each other; got both"):
        Engine(lm, speculative_config=NGRAM, batch_invariant=True)
    strange = pf.llm.load(small.write_random_model(tmp_path, "llama", vocab_size=270))
    strange.tokenizer = None
    with pytest.raises(ValueError, match="speculative_config: the draft model has another vocabulary; got 270 tokens of .*; expected the 272 tokens of"):
        Engine(lm, speculative_config={"model": strange})
    words = ["generate", "--model", folder, "--prompt", "the", "--max_tokens", "6", "--temperature", "0"]
    assert command([*words]) == 0
    want = capsys.readouterr().out
    assert command([*words, "--speculative_config", json.dumps(NGRAM)]) == 0 and capsys.readouterr().out == want
    assert command([*words, "--speculative_config", "ngram"]) == 1 and "generate: --speculative_config is no JSON; got 'ngram'" in capsys.readouterr().err


def test_a_stop_within_the_guesses(lm):
    always = Sampling(temperature=0, logit_bias={9: 100})
    for most in (1, 2, 5, 6, 7):
        with Engine(lm, speculative_config=NGRAM) as engine:
            events = []
            engine.submit([9, 9, 9], always, most, stop_ids=(), receive=events.append)
            engine.close()
            assert [e.id for e in events[:-1]] == [9] * most and isinstance(events[-1], Finished) and events[-1].reason == "length"
    with Engine(lm, speculative_config=NGRAM) as engine:
        events = []
        engine.submit([7, 9, 7, 9, 7], Sampling(temperature=0, logit_bias={9: 100}), 5, stop_ids=(9,), receive=events.append)
        engine.close()
        assert [e.reason for e in events] == ["stop"]
