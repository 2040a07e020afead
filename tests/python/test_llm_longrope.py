"""LongRoPE (arXiv:2402.13753): the factors of short and of long texts, which one cache of keys does not mix."""
import json
import math
import os

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, SamplingParams  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

ORIGINAL, CONTEXT = 64, 256
SHORT, LONG = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
IDS = [int(i) for i in np.random.RandomState(0).randint(4, small.VOCABULARY, 120)]


def written(folder, short=SHORT, long=LONG, **scaling):
    scaling = {"rope_type": "longrope", "short_factor": short, "original_max_position_embeddings": ORIGINAL, **({} if long is None else {"long_factor": long}), **scaling}
    return small.write_random_model(folder, "phi3", seed=3, max_position_embeddings=CONTEXT, rope_scaling=scaling)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="module")
def lm(folder):
    return pf.llm.load(folder)


@pytest.fixture(scope="module")
def only(tmp_path_factory):
    """Models that have the short, and the long factors for all texts."""
    return [pf.llm.load(written(tmp_path_factory.mktemp(name), factors, factors)) for name, factors in (("short", SHORT), ("long", LONG))]


def close(a, b):
    return np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


def test_the_angles(lm):
    network, n = lm._network, lm.config.rope_dim
    assert (lm.config.context, n) == (CONTEXT, 16)
    network.reserve(CONTEXT, True)
    attention = math.sqrt(1 + math.log(CONTEXT / ORIGINAL) / math.log(ORIGINAL))
    for long, factors in ((False, SHORT), (True, LONG)):
        angles = np.arange(CONTEXT)[:, None] / (np.array(factors) * 10000.0 ** (np.arange(0, n, 2) / n))
        angles = np.concatenate([angles, angles], axis=1)
        cos, sin = (t.float().cpu().numpy() for t in network.turns(False, long))
        assert cos.shape == sin.shape == (CONTEXT, n)
        tolerance = 1e-5 if network.dtype == pf.float32 else 1e-2
        assert np.abs(cos - attention * np.cos(angles)).max() < tolerance and np.abs(sin - attention * np.sin(angles)).max() < tolerance


def test_a_number_of_the_folder_in_the_place_of_the_attention_factor(tmp_path):
    network = pf.llm.load(written(tmp_path, attention_factor=1.5))._network
    network.reserve(CONTEXT, True)
    assert [network.turns(False, long)[0].numpy()[0, 0] for long in (False, True)] == [1.5, 1.5]


def test_the_length_of_a_text_decides(lm, only):
    short, long = only
    for count, same, other in ((40, short, long), (ORIGINAL, short, long), (ORIGINAL + 1, long, short), (120, long, short)):
        got = lm.logits(IDS[:count]).numpy()
        assert close(got, same.logits(IDS[:count]).numpy()) and not close(got, other.logits(IDS[:count]).numpy())
    vectors = pf.llm.load_embedding(lm)
    assert np.abs(vectors.embed(IDS[:100]) - pf.llm.load_embedding(long).embed(IDS[:100])).max() < 1e-5
    assert np.abs(vectors.embed(IDS[:50]) - pf.llm.load_embedding(short).embed(IDS[:50])).max() < 1e-5


def test_what_is_written_counts(lm, only):
    """The prompt and max_tokens decide, and a cache of the other factors is not used again."""
    short, long = only
    greedy = pf.llm.Sampling(temperature=0)
    for room, same in ((20, short), (40, long), (20, short), (100, long)):
        got = list(lm.tokens(IDS[:40], room, greedy, stop_ids=()))
        assert len(got) == room and got == list(same.tokens(IDS[:40], room, greedy, stop_ids=()))
    assert list(short.tokens(IDS[:40], 20, greedy, stop_ids=())) != list(long.tokens(IDS[:40], 20, greedy, stop_ids=()))
    running = lm.tokens(IDS[:40], 40, greedy, stop_ids=()), lm.tokens(IDS[:40], 20, greedy, stop_ids=())  # they take turns
    taken = [[next(r) for r in running] for _ in range(20)]
    assert [t[0] for t in taken] == list(long.tokens(IDS[:40], 20, greedy, stop_ids=())) and [t[1] for t in taken] == list(short.tokens(IDS[:40], 20, greedy, stop_ids=()))


@pytest.mark.parametrize("length, which", [(ORIGINAL, 0), (ORIGINAL + 1, 1), (None, 1)])
def test_max_model_len_of_an_engine_decides(lm, only, length, which):
    settings = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    with LLM(lm, max_model_len=length, max_num_seqs=2) as llm:
        got = llm.generate({"prompt_token_ids": IDS[:40]}, settings)[0].outputs[0].token_ids
    greedy = pf.llm.Sampling(temperature=0)
    want = [list(model.tokens(IDS[:40], 10, greedy, stop_ids=())) for model in only]
    assert list(got) == want[which] != want[1 - which]


def test_gguf(folder, lm, tmp_path):
    path = str(tmp_path / "m.gguf")
    pf.llm.convert(folder, path)
    got = pf.llm.load(path)
    assert got.config.context == CONTEXT
    for count in (40, 100):
        assert close(got.logits(IDS[:count]).numpy(), lm.logits(IDS[:count]).numpy())
    again = str(tmp_path / "folder")
    pf.llm.convert(path, again)
    assert close(pf.llm.load(again).logits(IDS[:100]).numpy(), lm.logits(IDS[:100]).numpy())


def test_without_the_long_factors(tmp_path):
    assert pf.llm.load(written(tmp_path, long=None)).config.context == ORIGINAL


@pytest.mark.parametrize("long, message", [([2.0] * 7, "RoPE's factors do not fit; got 7; expected 8 positive numbers"), ([0.0] * 8, "RoPE's factors do not fit"), (["a"] * 8, "'long_factor' is damaged; got .*; expected a list of numbers")])
def test_wrong_factors(tmp_path, long, message):
    with pytest.raises(ValueError, match="llm: .*" + message):
        pf.llm.load(written(tmp_path, long=long))
    with open(os.path.join(tmp_path, "config.json"), encoding="utf-8") as f:
        assert json.load(f)["rope_scaling"]["long_factor"] == long
