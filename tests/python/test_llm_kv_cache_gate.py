"""kv_cache_gate: an Engine refuses a cache of 8 bits that makes the model worse."""
import json
import logging
import math
import os
import re

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, SamplingParams, _kv_cache_gate  # noqa: E402
from pyflame.llm.__main__ import main  # noqa: E402
from pyflame.llm.serving.__main__ import main as serve  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402
from test_llm_kv_cache_dtype import EIGHT_BITS, logits_of  # noqa: E402


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("m"), "llama", seed=3))


@pytest.fixture(scope="module")
def ruined(tmp_path_factory):
    """A folder with a model that knows the gate's text, as long as its keys are not rounded: some channels of them are so large that the rounding decides which token
    attention sees. Its head is fitted to the hidden states after each token of the text."""
    folder = str(tmp_path_factory.mktemp("ruined"))
    changes = {"hidden_size": 256, "num_hidden_layers": 2}
    small.write_random_model(folder, "llama", seed=3, **changes)
    path = os.path.join(folder, "model.safetensors")
    weights = pf.load(path)
    for layer in range(2):
        k = weights[f"model.layers.{layer}.self_attn.k_proj.weight"].numpy().copy()
        k[::8] *= 200  # outliers
        weights[f"model.layers.{layer}.self_attn.k_proj.weight"] = pf.tensor(k)
    vocabulary = weights["lm_head.weight"].shape[0]
    weights["lm_head.weight"] = pf.tensor(np.eye(vocabulary, 256, dtype=np.float32))
    pf.save(weights, path)
    model = pf.llm.load(folder)
    ids = _kv_cache_gate.ids_of(model, 256)
    hidden = model.logits(ids).numpy()[:-1, :256].astype(np.float64)
    wanted = 20 * np.eye(vocabulary)[ids[1:]]
    head = np.linalg.solve(hidden.T @ hidden + 1e-2 * np.eye(256), hidden.T @ wanted).T
    weights["lm_head.weight"] = pf.tensor(head.astype(np.float32))
    pf.save(weights, path)
    return folder


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_perplexities_are_those_of_the_text(lm, name):
    ids = _kv_cache_gate.ids_of(lm, 10**6)
    assert len(ids) == 256 and "".join(lm.tokenizer.decode(ids)) == _kv_cache_gate.TEXT[: len(lm.tokenizer.decode(ids))]
    with Engine(lm, kv_cache_dtype=name) as engine:
        found, stats = engine.kv_cache_check, engine.stats()

    def perplexity(logits):
        losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(255), ids[1:]]
        return math.exp(losses.mean())

    assert found.tokens == 255 and found.kv_cache_dtype == name and found.seconds > 0
    assert found.auto == pytest.approx(lm.perplexity(ids), rel=1e-4)
    assert found.perplexity == pytest.approx(perplexity(logits_of(lm, ids, name)[:-1].astype(np.float64)), rel=1e-3)
    assert found.perplexity != found.auto and found.change == pytest.approx(found.perplexity / found.auto - 1, rel=1e-6, abs=1e-9)
    assert (stats["kv_cache_perplexity"], stats["kv_cache_perplexity_auto"]) == (found.perplexity, found.auto)


@pytest.mark.parametrize("model_type", ["gemma3_text", "gpt2", "qwen3_moe"])
def test_random_models_pass(tmp_path, model_type):
    with Engine(pf.llm.load(small.write_random_model(tmp_path, model_type, seed=3)), kv_cache_dtype="fp8") as engine:
        assert 0 < abs(engine.kv_cache_check.change) < 0.02


def test_what_is_written_does_not_depend_on_it(lm):
    texts = []
    for limit in (None, 0.5):
        with LLM(lm, kv_cache_dtype="int8", kv_cache_gate=limit) as llm:
            texts.append(llm.generate("the window", SamplingParams(temperature=0))[0].outputs[0].token_ids)
            assert (llm.engine.kv_cache_check is None) == (limit is None) == ("kv_cache_perplexity" not in llm.engine.stats())
    assert texts[0] == texts[1]
    with Engine(lm) as engine:
        assert engine.kv_cache_check is None


def test_the_log_has_the_numbers(lm, caplog):
    with caplog.at_level(logging.INFO, logger="pyflame.llm"), Engine(lm, kv_cache_dtype="int8") as engine:
        c = engine.kv_cache_check
    assert f"kv_cache_dtype int8, stored as int8: a perplexity of {c.perplexity:.4f} over 255 tokens, {c.auto:.4f} with 'auto' ({100 * c.change:+.2f}%); measured in" in caplog.text


def test_a_ruined_cache_is_refused(ruined):
    lm = pf.llm.load(ruined)
    message = r"Engine: kv_cache_dtype 'fp8' makes the model worse than kv_cache_gate allows; got a perplexity of (\S+) over 255 tokens, (\S+) with 'auto' \(\+(\S+)%\); expected at most \+5%; hint:"
    for make in (Engine, LLM):
        with pytest.raises(ValueError, match=message) as e:
            make(lm, kv_cache_dtype="fp8")
    eight_bits, auto, change = map(float, re.search(message, str(e.value)).groups())
    assert auto == pytest.approx(lm.perplexity(_kv_cache_gate.ids_of(lm, 256)), rel=1e-3) and auto < 10
    assert eight_bits > 1.5 * auto and change == pytest.approx(100 * (eight_bits / auto - 1), rel=1e-3)
    with Engine(lm, kv_cache_dtype="fp8", kv_cache_gate=change / 100 * 1.01) as engine:
        assert engine.stats()["kv_cache_perplexity"] == pytest.approx(eight_bits, rel=1e-4)
    with Engine(lm, kv_cache_dtype="fp8", kv_cache_gate=None) as engine:
        assert engine.kv_cache_check is None


def test_commands(ruined, capsys):
    words = ["generate", "--model", ruined, "--prompt", "a", "--max_tokens", "2", "--kv_cache_dtype", "fp8"]
    assert main(words) == 1
    assert "makes the model worse than kv_cache_gate allows" in capsys.readouterr().err
    for limit in ("off", "1e9"):
        assert main([*words, "--kv_cache_gate", limit]) == 0
    assert serve(["--model", ruined, "--port", "0", "--kv_cache_dtype", "fp8"]) == 1
    assert "makes the model worse than kv_cache_gate allows" in capsys.readouterr().err
    for command, run in (("generate", lambda: main([*words, "--kv_cache_gate", "much"])), ("serve", lambda: serve(["--model", ruined, "--kv_cache_gate", "-1"]))):
        assert run() == 1
        assert f"{command}: --kv_cache_gate is out of range; got" in capsys.readouterr().err


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    folder = small.write_random_model(tmp_path, "llama", seed=3)
    path = os.path.join(folder, "model.safetensors")
    weights = pf.load(path)
    weights["model.layers.0.self_attn.v_proj.weight"] = weights["model.layers.0.self_attn.v_proj.weight"] * float("nan")
    pf.save(weights, path)
    with pytest.raises(ValueError, match=r"got a perplexity of nan over 255 tokens, nan with 'auto' \(\+nan%\)"):
        Engine(pf.llm.load(folder), kv_cache_dtype="int8")


def test_a_short_context(tmp_path):
    lm = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3))
    with Engine(lm, kv_cache_dtype="int8", max_model_len=20) as engine:
        assert engine.kv_cache_check.tokens == 19
    with pytest.raises(ValueError, match="Engine: kv_cache_gate cannot be measured; got 1 tokens in a text of max_model_len 1; expected two at least; hint: kv_cache_gate=None"):
        Engine(lm, kv_cache_dtype="int8", max_model_len=1)


def test_a_model_without_a_tokenizer(tmp_path):
    folder = small.write_random_model(tmp_path, "llama", seed=3)
    os.remove(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        assert json.load(f)["vocab_size"] > 200
    with Engine(pf.llm.load(folder), kv_cache_dtype="int8") as engine:
        assert engine.kv_cache_check.tokens == 255 and 0 < abs(engine.kv_cache_check.change) < 0.02


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True, "0.1"])
def test_limits_out_of_range(lm, value):
    with pytest.raises(ValueError, match=re.escape(f"Engine: kv_cache_gate is out of range; got {value!r}; expected None, or a number from 0 upwards such as 0.05")):
        Engine(lm, kv_cache_gate=value)
