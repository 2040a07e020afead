"""pf.llm writes text: streams, several at once, threads, the end of the context, stop texts, perplexity, and the choice of tokens."""
import json
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Sampler, Sampling  # noqa: E402
from pyflame.llm import _network, language_model  # noqa: E402
from pyflame.llm.tokenizer import AddedToken, Parts, Tokenizer  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

IDS = [int(i) for i in np.random.RandomState(1).randint(4, small.VOCABULARY, 40)]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


def close(got, want, tolerance=1e-4):
    return np.abs(np.asarray(got) - np.asarray(want)).max() <= tolerance * np.abs(np.asarray(want)).max()


# Text.


def test_generate_streams_the_same_text(lm):
    whole = lm.generate("the window", max_tokens=30, seed=5)
    assert whole and "".join(lm.generate("the window", max_tokens=30, seed=5, stream=True)) == whole
    assert lm.generate("the window", max_tokens=30, seed=6) != whole
    greedy = lm.generate("the window", max_tokens=12, temperature=0)
    assert greedy == lm.generate("the window", max_tokens=12, temperature=0, seed=9) == lm.generate("the window", max_tokens=12, top_k=1, seed=3)


def test_greedy_is_the_argmax_of_logits(lm):
    ids = [10, 20, 30]
    for token in lm.tokens(list(ids), 20, Sampling(temperature=0), stop_ids=()):
        assert token == int(lm.logits(ids)[-1].argmax().item())
        ids.append(token)
    assert len(ids) == 23


def test_two_generations_at_once_and_a_reused_prefix(lm):
    sampling = Sampling(temperature=0)
    alone = [list(lm.tokens(p, 10, sampling, stop_ids=())) for p in ([9, 8, 7], [9, 8, 6, 5])]
    both = list(zip(lm.tokens([9, 8, 7], 10, sampling, stop_ids=()), lm.tokens([9, 8, 6, 5], 10, sampling, stop_ids=())))
    assert [[a for a, _ in both], [b for _, b in both]] == alone


def test_threads_share_a_model(lm):
    def written(i):
        return list(lm.tokens([9, 8, 7 - i], 40, Sampling(seed=i), stop_ids=()))

    want = [written(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(written, range(4))) == want


def test_an_interrupted_stream_leaves_nothing(lm, monkeypatch):
    want = list(lm.tokens([9, 8, 7], 10, Sampling(temperature=0), stop_ids=()))
    iterator = lm.tokens([9, 8, 7], 10, Sampling(temperature=0), stop_ids=())
    assert [next(iterator), next(iterator)] == want[:2]
    iterator.close()
    block = lm._network._block

    def interrupted(*args):
        block(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lm._network, "_block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(lm.tokens([9, 8, 7], 10, Sampling(temperature=0), stop_ids=()))
    assert list(lm.tokens([9, 8, 7], 10, Sampling(temperature=0), stop_ids=())) == want


@pytest.mark.parametrize("model_type", ["mistral", "gemma2", "gemma3_text"])
def test_windows_reach_the_end_of_the_context(model_type, tmp_path):
    # The cache is longer than the context there.
    model = pf.llm.load(small.write_random_model(tmp_path, model_type, seed=3))
    ids = [5, 6, 7]
    ids += model.tokens(ids, 1000, Sampling(temperature=0), stop_ids=())
    assert len(ids) == 256 and ids[-1] == int(model.logits(ids[:-1])[-1].argmax().item())


def test_a_long_context_takes_memory_only_when_it_is_used(tmp_path):
    short = pf.llm.load(small.write_random_model(tmp_path / "a", "llama", seed=3))
    model = pf.llm.load(small.write_random_model(tmp_path / "b", "llama", seed=3, max_position_embeddings=1 << 26))
    assert model.config.context == 1 << 26 and model._network.index.shape[0] == 256
    assert model.generate("the window", max_tokens=5, temperature=0) == short.generate("the window", max_tokens=5, temperature=0)
    ids = [5, 6, 7] * 200
    assert model.logits(ids).shape[0] == 600 and model._network.index.shape[0] == model._network.rope[0][0].shape[0] == 1024
    # Tables that have grown have the same numbers at the beginning.
    assert close(model.logits(ids[:200]).numpy(), short.logits(ids[:200]).numpy())


@pytest.mark.parametrize("model_type", ["llama", "mistral", "gpt2"])
def test_the_cache_grows_with_the_text(model_type, tmp_path, monkeypatch):
    monkeypatch.setattr(_network, "STEP", 16)
    model = pf.llm.load(small.write_random_model(tmp_path, model_type, seed=3))
    want = list(model.tokens([5, 6, 7], 1000, Sampling(seed=1), stop_ids=()))
    whole = model._cache.capacity
    model._cache, model._cached = None, []
    monkeypatch.setattr(language_model, "FIRST_ROOM", 4)
    capacities, got = [], []
    for token in model.tokens([5, 6, 7], 10**12, Sampling(seed=1), stop_ids=()):
        got.append(token)
        capacities.append(model._cache.capacity)
    assert got == want and len(got) == 253
    assert capacities[0] == 48 and sorted(set(capacities)) == [48, 96, 192, whole] and capacities == sorted(capacities)


def test_a_conversation_that_outgrows_the_cache_computes_only_what_is_new(lm, monkeypatch):
    blocks, block = [], lm._network._block
    monkeypatch.setattr(_network, "STEP", 16)
    monkeypatch.setattr(lm, "_cache", None)
    monkeypatch.setattr(lm, "_cached", [])
    monkeypatch.setattr(lm._network, "_block", lambda ids, cache, begin, adapt: blocks.append(begin) or block(ids, cache, begin, adapt))
    first = [5, 6, 7] * 20
    list(lm.tokens(first, 1, Sampling(temperature=0), stop_ids=()))
    got = list(lm.tokens(first + [9, 8] * 20, 3, Sampling(temperature=0), stop_ids=()))
    assert blocks == [0, 32, 60, 92, 100, 101] and lm._cache.capacity > 112
    lm._cache, lm._cached = None, []
    assert list(lm.tokens(first + [9, 8] * 20, 3, Sampling(temperature=0), stop_ids=())) == got


def test_a_cache_that_cannot_grow_is_unchanged(lm, monkeypatch):
    cache = _network.Cache(lm._network, 10)
    lm._network.forward([5, 6, 7], cache)
    keys, before = list(cache.keys), [k.numpy().copy() for k in cache.keys]

    def fails(*args, **kwargs):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(_network._C, "zeros", fails)
        with pytest.raises(MemoryError):
            cache.grow(lm._network, 1000)
    assert cache.capacity == 256 and cache.length == 3 and all(a is b for a, b in zip(cache.keys, keys))
    cache.grow(lm._network, 1000)
    assert cache.capacity == 1024 and all(np.array_equal(k.numpy()[:, :, :3], b[:, :, :3]) for k, b in zip(cache.keys, before))


def test_ids_without_a_token_are_not_drawn(tmp_path):
    model = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=1, vocab_size=1000))
    ids = list(model.tokens([5], 100, Sampling(temperature=5.0, seed=1), stop_ids=()))
    assert len(ids) == 100 and max(ids) < model.tokenizer.vocab_size
    assert model.logits([999]).shape == (1, 1000)  # ids themselves may be given


def test_a_continued_text_keeps_its_first_space(lm, monkeypatch):
    # SentencePiece's tokens begin with the space before a word. Only at the beginning of a text it stands for nothing.
    parts = Parts(["<s>", "\u2581on", "ce", "\u2581the"], None, lambda text, first: [], "spaces", [AddedToken(0, "<s>")], prefix=(0,), strip_first_space=True)
    monkeypatch.setattr(lm, "tokenizer", Tokenizer(parts))
    monkeypatch.setattr(lm, "_tokens", lambda ids, most, sampler, stops, *_: iter([3, 2]))
    assert lm.generate([0, 1, 2]) == " thece" and lm.tokenizer.decode([0, 1, 2, 3, 2]) == "once thece"
    assert lm.generate([0]) == "thece"
    assert list(lm.generate([0, 1], stream=True)) == [" the", "ce"]
    monkeypatch.setattr(lm, "chat_ids", lambda messages: [0, 1, 2])
    assert lm.chat("x") == "thece"


@pytest.mark.parametrize("tied, has_own", [(True, True), (False, False), (False, True)])
def test_tied_embeddings(tied, has_own, tmp_path):
    path = small.write_random_model(tmp_path, "llama", seed=3)
    weights = pf.load(os.path.join(path, "model.safetensors"))
    if not has_own:
        del weights["lm_head.weight"]
        pf.save(weights, os.path.join(path, "model.safetensors"))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    if not tied and not has_own:
        with pytest.raises(ValueError, match="got no output.weight; expected the tensors"):
            pf.llm.load(path)
        return
    network = pf.llm.load(path)._network
    want = weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
    assert np.array_equal(network.output.numpy(), want.numpy()) and (network.output is network.embedding) == tied


def test_the_context_ends_a_text(lm):
    assert len(list(lm.tokens([5] * 250, 100, Sampling(temperature=0), stop_ids=()))) == 6
    assert list(lm.tokens([5] * 256, 100)) == [] and list(lm.tokens([5], 0)) == []


def test_end_tokens_and_stop_texts(lm, monkeypatch):
    # A network that writes a fixed text shows where the text ends.
    written = lm.tokenizer.encode("one STOP two")
    monkeypatch.setattr(lm, "_tokens", lambda ids, most, sampler, stops, *_: iter(written))
    assert lm.generate("x") == "one STOP two"
    assert lm.generate("x", stop="STOP") == "one " and lm.generate("x", stop=["zzz", "two", "STOP"]) == "one "
    pieces = list(lm.generate("x", stop="STOP", stream=True))
    assert "".join(pieces) == "one " and not any("S" in p for p in pieces)
    assert lm.generate("x", stop="STOPS") == "one STOP two"
    for stops in (["STOP", "T"], ["T", "STOP"], ["STOP two", "OP", "TOP"]):  # the one that begins first counts, also where another one ends before it
        assert "".join(lm.generate("x", stop=stops, stream=True)) == lm.generate("x", stop=stops) == "one "
    assert lm.generate("x", stop=["STOPS", "TO"]) == "one S"
    assert lm.end_ids == {1, 3}


def test_a_token_that_ends_the_text_is_not_returned(lm):
    first = list(lm.tokens([9, 9], 3, Sampling(temperature=0), stop_ids=()))
    assert list(lm.tokens([9, 9], 3, Sampling(temperature=0), stop_ids={first[0]})) == []


def test_settings_of_the_files(lm):
    assert lm.defaults == {"temperature": 0.7, "top_k": 20}
    assert lm._sampling({"top_k": 3, "seed": 1}) == Sampling(temperature=0.7, top_k=3, seed=1)


def test_perplexity(lm):
    ids = IDS
    logits = lm.logits(ids).numpy().astype(np.float64)[:-1]
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(ids) - 1), ids[1:]]
    assert abs(lm.perplexity(ids) / np.exp(losses.mean()) - 1) < 1e-4
    assert lm.perplexity(ids, window=8) > 1


# Sampling.

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3]))


@pytest.mark.parametrize(
    "settings, ids, probabilities",
    [
        ({}, [1, 3, 2, 0], [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 0}, [1], [1]),
        ({"temperature": 0.5}, [1, 3, 2, 0], [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        ({"top_k": 2}, [1, 3], [4 / 7, 3 / 7]),
        ({"top_p": 0.65}, [1, 3], [4 / 7, 3 / 7]),
        ({"top_p": 0.1}, [1], [1]),
        ({"min_p": 0.6}, [1, 3], [4 / 7, 3 / 7]),
        ({"top_k": 3, "min_p": 0.6}, [1, 3], [4 / 7, 3 / 7]),
    ],
)
def test_what_is_drawn_from(settings, ids, probabilities):
    got, p = Sampler(Sampling(**settings)).probabilities(LOGITS)
    assert got.tolist() == ids and np.allclose(p, probabilities)


def test_settings_at_the_edge_of_floats():
    for settings in ({"temperature": 1e-310}, {"temperature": 1e-310, "top_p": 0.5}, {"temperature": 1e308, "top_k": 1}, {"top_p": 1e-300}):
        ids, p = Sampler(Sampling(**settings)).probabilities(LOGITS)
        assert ids[0] == 1 and p[0] == 1 and p[1:].sum() == 0
    with pytest.raises(ValueError, match="generate: temperature is out of range; got nan"):
        Sampling(temperature=float("nan"))
    ids, p = Sampler(Sampling(repetition_penalty=1e-320)).probabilities(LOGITS + 3, [0])
    assert ids[0] == 0 and p[0] == 1
    ids, p = Sampler(Sampling(repetition_penalty=1e300)).probabilities(LOGITS, [0, 2])
    assert list(ids[:2]) == [1, 3] and np.allclose(p, [4 / 7, 3 / 7, 0, 0])


def test_repetition_penalty():
    logits = np.array([2.0, -2.0, 1.0])
    _, p = Sampler(Sampling(repetition_penalty=2.0)).probabilities(logits, [0, 1, 1])
    want = np.exp([1.0, 1.0, -4.0])
    assert np.allclose(p, want / want.sum())


def test_draws_follow_the_probabilities_and_the_seed():
    sampler = Sampler(Sampling(seed=1))
    counts = np.bincount([sampler(LOGITS) for _ in range(4000)], minlength=4) / 4000
    assert np.abs(counts - np.exp(LOGITS)).max() < 0.04
    assert [Sampler(Sampling(seed=4))(LOGITS) for _ in range(3)] == [Sampler(Sampling(seed=4))(LOGITS)] * 3


@pytest.mark.parametrize("name, value", [("temperature", -1), ("temperature", float("nan")), ("top_k", 1.5), ("top_k", -1), ("top_p", 0), ("top_p", 1.1), ("min_p", 2), ("repetition_penalty", 0), ("seed", -1)])
def test_wrong_sampling(name, value):
    with pytest.raises(ValueError, match=f"generate: {name} is out of range; got {value}; expected"):
        Sampling(**{name: value})
