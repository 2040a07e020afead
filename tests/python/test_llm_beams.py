"""Beam search on the engine: the same texts as a search of full forward passes finds, with shared blocks, and all blocks free afterwards."""
import threading

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import BeamSearchParams, Engine, Sampling  # noqa: E402
from pyflame.llm import _beams, _engine_cache, _engine_steps, _paged  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

BLOCK = _paged.BLOCK
LONG = list(range(20, 20 + 2 * BLOCK + 5))  # two full blocks and a part of a third


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


def idle(engine):
    with engine._wake:
        return not engine._running and not engine._waiting and engine._blocks.used == 0 and not engine._blocks._holders


def cache_of(lm, blocks):
    return (blocks + 1) * _paged.block_bytes(lm._network)


def plain_search(lm, prompt, width, steps, ends=(), temperature=0.0, penalty=1.0):
    """[(tokens, cum_logprob)], the best first: each step computes each beam's whole text."""
    def score(tokens, logprob):
        return logprob / (len(tokens) - (tokens[-1] in ends)) ** penalty

    beams, ended = [(list(prompt), 0.0)], []
    for _ in range(steps):
        found = []
        for tokens, logprob in beams:
            x = lm.logits(tokens).numpy()[-1].astype(np.float64)[: lm._known()] / (temperature or 1.0)
            logs = x - x.max() - np.log(np.exp(x - x.max()).sum())
            order = np.argsort(-logs, kind="stable")
            found += [([*tokens, int(i)], logprob + float(logs[i])) for i in order if i not in ends]
            ended += [([*tokens, int(i)], logprob + float(logs[i])) for i in order[: 2 * width] if i in ends]
        beams = sorted(found, key=lambda b: -b[1])[:width]
    return sorted([*ended, *beams], key=lambda b: -score(*b))[:width]


def same(sequences, want):
    return [s.tokens for s in sequences] == [tokens for tokens, _ in want] and np.allclose([s.cum_logprob for s in sequences], [p for _, p in want], atol=1e-3)


class Search:
    """A search that an engine runs."""

    def __init__(self, engine, prompt, params, **options):
        self.events, self.done = [], threading.Event()
        self.beams = engine.submit_beams(prompt, params, receive=self, **options)

    def __call__(self, event):
        self.events.append(event)
        self.done.set()

    def wait(self):
        assert self.done.wait(60) and len(self.events) == 1 and self.events[0] is self.beams.finished
        return self.beams


@pytest.mark.parametrize("width, steps, settings", [(1, 6, {}), (3, 12, {}), (4, 18, {"temperature": 0.3}), (5, 4, {"length_penalty": 0.0}), (2, 8, {"length_penalty": -1.5})], ids=str)
def test_the_texts_are_those_of_a_plain_search(lm, width, steps, settings):
    prompts = [[5], LONG[:BLOCK], LONG]
    named = {"temperature": settings.get("temperature", 0.0), "penalty": settings.get("length_penalty", 1.0)}
    with pf.llm.LLM(lm) as llm:
        outputs = llm.beam_search(prompts, BeamSearchParams(width, steps, True, **settings))
        for output, prompt in zip(outputs, prompts):
            assert same(output.sequences, plain_search(lm, prompt, width, steps, **named))
            assert all(s.finish_reason == "length" and s.text == lm.tokenizer.decode(s.tokens) for s in output.sequences)
        assert idle(llm.engine)


@pytest.mark.parametrize("kind, options", [("gemma2", {}), ("gpt2", {"speculative_config": {"method": "ngram"}})])  # windows and soft caps; learned positions, and guesses for others
def test_other_models(tmp_path, kind, options):
    model = pf.llm.load(small.write_random_model(tmp_path, kind, seed=3))
    with pf.llm.LLM(model, **options) as llm:
        [output] = llm.beam_search([LONG], BeamSearchParams(3, 8, True))
        assert same(output.sequences, plain_search(model, LONG, 3, 8)) and idle(llm.engine)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 4.0, -2.0])
@pytest.mark.parametrize("ends", [1, 8])
def test_texts_that_end_early(lm, monkeypatch, ends, penalty):
    # Tokens that the beams want to take end the texts, more of them than beam_width.
    prompt = LONG[:7]
    liked = [t for tokens, _ in plain_search(lm, prompt, 4, 8) for t in tokens[len(prompt) + 1:]]
    stops = frozenset(sorted(set(liked), key=liked.index)[:ends])
    monkeypatch.setattr(lm, "end_ids", stops)
    want = plain_search(lm, prompt, 3, 10, stops, penalty=penalty)
    with pf.llm.LLM(lm) as llm:
        [output] = llm.beam_search([prompt], BeamSearchParams(3, 10, length_penalty=penalty))
        assert same(output.sequences, want)
        assert [s.finish_reason for s in output.sequences] == ["stop" if tokens[-1] in stops else "length" for tokens, _ in want]
        [other] = llm.beam_search([prompt], BeamSearchParams(3, 10, ignore_eos=True, length_penalty=penalty))
        assert same(other.sequences, plain_search(lm, prompt, 3, 10, penalty=penalty))
        assert idle(llm.engine)


def test_a_search_ends_as_soon_as_nothing_can_become_better(lm, monkeypatch):
    monkeypatch.setattr(lm, "end_ids", frozenset(range(lm.config.vocab)) - {7, 8, 9})
    with Engine(lm) as engine:
        beams = Search(engine, [5], BeamSearchParams(2, 200, length_penalty=0.0)).wait()
        assert same(beams.sequences, plain_search(lm, [5], 2, 5, lm.end_ids, penalty=0.0)) and beams.finished.reason == "stop"
        assert engine.stats()["generation_tokens_total"] == beams.num_generation_tokens < 10


def test_beams_share_the_blocks_of_what_they_have_in_common(lm, monkeypatch):
    seen, copied = [], []
    advance, copy = _engine_steps.advance, _paged.Pages.copy

    def watched(engine, beams):
        advance(engine, beams)
        with engine._wake:
            seen.append(([(r.ids, list(r._blocks)) for r in beams._requests], engine._blocks.used))

    monkeypatch.setattr(_engine_steps, "advance", watched)
    monkeypatch.setattr(_paged.Pages, "copy", lambda self, pairs: copied.append(len(pairs)) or copy(self, pairs))
    with Engine(lm) as engine:
        beams = Search(engine, LONG, BeamSearchParams(4, 40, True)).wait()
        assert same(beams.sequences, plain_search(lm, LONG, 4, 40)) and engine.stats()["preemptions_total"] == 0
    steps = [s for s in seen if s[0]]
    assert len(steps) == 39 and seen[-1] == ([], 0)
    for texts, used in steps:
        assert len(texts) == 4 and all(len(blocks) == -(-(len(ids) - 1) // BLOCK) for ids, blocks in texts)
        for ids, blocks in texts:
            for others, their in texts:
                full = (len(ids) - 1) // BLOCK
                common = next((i for i in range(full) if ids[i * BLOCK:(i + 1) * BLOCK] != others[i * BLOCK:(i + 1) * BLOCK]), full)
                if ids is others:
                    continue
                assert blocks[:2] == their[:2]  # the prompt's
                assert blocks[full:] == [] or blocks[-1] != their[-1]  # what will be written to is one beam's alone
                assert not set(blocks[common:full]) & set(their[common:full])
        assert used == len({b for _, blocks in texts for b in blocks}) <= sum(len(blocks) for _, blocks in texts) - 2 * 3
    assert copied and max(copied) <= 3


@pytest.mark.parametrize("options", [{"max_num_seqs": 2}, {"kv_cache_bytes": 7}, {"kv_cache_bytes": 5, "max_num_seqs": 3}, {"kv_cache_bytes": 7, "swap_space": 0.01}, {"max_num_batched_tokens": 8}, {"batch_invariant": True, "kv_cache_bytes": 8}], ids=str)
def test_few_places_or_blocks_change_nothing(lm, options):
    if "kv_cache_bytes" in options:
        options = {**options, "kv_cache_bytes": cache_of(lm, options["kv_cache_bytes"])}
    prompts, want = [LONG, LONG[3:30]], []
    params = BeamSearchParams(4, 14, True)
    texts = [list(lm.tokens(p, 14, Sampling(temperature=0), stop_ids=())) for p in prompts]
    want = [plain_search(lm, p, 4, 14) for p in prompts]
    with Engine(lm, **options) as engine:
        written = [[], []]
        with engine._wake:
            searches = [Search(engine, p, params, priority=i % 2) for i, p in enumerate(prompts)]
            for p, ids in zip(prompts, written):
                engine.submit(p, Sampling(temperature=0), 14, stop_ids=(), receive=ids.append)
        for s, w in zip(searches, want):
            assert same(s.wait().sequences, w)
    assert [[t.id for t in ids[:-1]] for ids in written] == texts
    assert idle(engine)
    if "swap_space" in options:
        assert engine.stats()["swapped_in_tokens_total"] > 0 and engine.stats()["cpu_cache_usage"] == 0
    if "max_num_batched_tokens" not in options:
        assert engine.stats()["preemptions_total"] > 0


def test_the_end_of_the_context(lm):
    prompt = list(range(30, 50))
    with Engine(lm, max_model_len=25) as engine:
        assert same(Search(engine, prompt, BeamSearchParams(3, 50, True)).wait().sequences, plain_search(lm, prompt, 3, 5))
        beams = Search(engine, list(range(25)), BeamSearchParams(3, 50)).wait()
        assert beams.finished.reason == "length" and [(s.tokens, s.cum_logprob) for s in beams.sequences] == [(list(range(25)), 0.0)]
    assert idle(engine)


def test_a_search_is_cancelled(lm, monkeypatch):
    advance, steps = _engine_steps.advance, []

    def cancels(engine, beams):
        advance(engine, beams)
        steps.append(1)
        if len(steps) == 3:
            engine.cancel(beams)

    monkeypatch.setattr(_engine_steps, "advance", cancels)
    with Engine(lm) as engine:
        beams = Search(engine, LONG, BeamSearchParams(4, 40)).wait()
        assert beams.finished.reason == "cancelled" and beams.sequences == [] and len(steps) == 3 and idle(engine)
        engine.cancel(beams)
        assert same(Search(engine, [5], BeamSearchParams(2, 3, True)).wait().sequences, plain_search(lm, [5], 2, 3))
        with engine._wake:
            left = Search(engine, LONG, BeamSearchParams(4, 40))
            engine._closing = "cancel"
    assert left.wait().finished.reason == "cancelled" and idle(engine)


@pytest.mark.parametrize("fails", ["copy", "_continued", "chosen", "_following"])
def test_a_search_that_fails_ends_alone(lm, monkeypatch, fails):
    owner = {"copy": _paged.Pages, "_continued": _beams.Beams, "chosen": _engine_cache.Step, "_following": _beams.Beams}[fails]
    function, calls = getattr(owner, fails), []

    def broken(*args):
        calls.append(1)
        if len(calls) == 5:
            raise MemoryError("no memory")
        return function(*args)

    with pf.llm.LLM(lm) as llm:
        with monkeypatch.context() as patch:
            patch.setattr(owner, fails, broken)
            with pytest.raises(RuntimeError, match="beam_search: a search could not be finished; got MemoryError: no memory; expected its texts"):
                llm.beam_search([LONG, LONG[2:]], BeamSearchParams(3, 9, True))
        [output] = llm.beam_search([LONG], BeamSearchParams(3, 4, True))
        assert same(output.sequences, plain_search(lm, LONG, 3, 4)) and idle(llm.engine)


def test_arguments_of_a_search(lm):
    for name, value in [("beam_width", 0), ("beam_width", True), ("max_tokens", 0), ("temperature", -1), ("temperature", float("inf")), ("length_penalty", float("nan")), ("length_penalty", 17), ("ignore_eos", 1)]:
        with pytest.raises(ValueError, match=f"BeamSearchParams: {name} is out of range; got {value}; expected "):
            BeamSearchParams(**{"beam_width": 2, "max_tokens": 3, name: value})
    with pf.llm.LLM(lm) as llm:
        with pytest.raises(TypeError, match="beam_search: params is of the wrong type; got dict; expected BeamSearchParams"):
            llm.beam_search("on", {"beam_width": 3})
        with pytest.raises(ValueError, match="beam_search: there are no tokens"):
            llm.beam_search(["on", []], BeamSearchParams(2, 3))
        with pytest.raises(ValueError, match="beam_search: there is no such adapter; got 'x'"):
            llm.beam_search("on", BeamSearchParams(2, 3), lora_request="x")
        with pytest.raises(ValueError, match="beam_search: priority is no whole number"):
            llm.engine.submit_beams("on", BeamSearchParams(2, 3), priority="x", receive=print)
        with pytest.raises(TypeError, match="beam_search: receive cannot be called"):
            llm.engine.submit_beams("on", BeamSearchParams(2, 3), receive=None)
        assert idle(llm.engine)
    with pytest.raises(RuntimeError, match="beam_search: the engine is closed"):
        llm.beam_search("on", BeamSearchParams(2, 3))
