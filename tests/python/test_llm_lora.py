"""Adapters (LoRA): a text with an adapter is that of a model whose weights the adapter has changed; several adapters in one batch; what does not fit."""
import json
import math
import os
import time

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, LoRARequest, Sampling, SamplingParams  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


GREEDY = Sampling(temperature=0)
MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def write_adapter(folder, weights, modules, rank=4, alpha=8, seed=0, rslora=False, layers=range(4), **settings):
    """Writes PEFT's folder for these weights. Returns the weights that it makes of them, by name."""
    rs, tensors, merged = np.random.RandomState(seed), {}, dict(weights)
    for i in layers:
        for module in modules:
            name = f"model.layers.{i}.{module}.weight"
            outputs, inputs = weights[name].shape
            a, b = rs.randn(rank, inputs).astype(np.float32) * 0.2, rs.randn(outputs, rank).astype(np.float32) * 0.2
            tensors[f"base_model.model.model.layers.{i}.{module}.lora_A.weight"], tensors[f"base_model.model.model.layers.{i}.{module}.lora_B.weight"] = pf.tensor(a), pf.tensor(b)
            merged[name] = weights[name] + alpha / (math.sqrt(rank) if rslora else rank) * (b @ a)
    os.makedirs(folder, exist_ok=True)
    pf.save(tensors, os.path.join(folder, "adapter_model.safetensors"))
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_rslora": rslora, "target_modules": sorted({m.split(".")[-1] for m in modules}), "bias": "none", **settings}
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return merged


def with_weights(folder, target, weights):
    """A copy of a model's folder with other weights."""
    os.makedirs(target)
    for name in os.listdir(folder):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f, open(os.path.join(target, name), "w", encoding="utf-8") as g:
                g.write(f.read())
    pf.save({n: pf.tensor(w) for n, w in weights.items()}, os.path.join(target, "model.safetensors"))
    return pf.llm.load(target)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the model, {name: (adapter's folder, the merged model)})."""
    root = tmp_path_factory.mktemp("lora")
    folder = small.write_random_model(root / "base", "llama", seed=3)
    weights, adapters = small.random_weights(small.config_json("llama"), 3), {}
    for name, options in (("all", dict(modules=MODULES, seed=1)), ("some", dict(modules=("self_attn.v_proj", "mlp.up_proj"), seed=2, rank=2, rslora=True, layers=(1, 3)))):
        merged = write_adapter(str(root / name), weights, **options)
        adapters[name] = str(root / name), with_weights(folder, str(root / (name + "-merged")), merged)
    return pf.llm.load(folder), adapters


def logits(lm, ids, lora):
    from pyflame.llm._network import Cache

    return lm._network.forward(ids, Cache(lm._network, len(ids) + 32), every=True, adapt=None if lora is None else lora.all_rows(0)).numpy()


def test_logits_of_merged_weights(made):
    lm, adapters = made
    ids = [int(i) for i in np.random.RandomState(1).randint(4, small.VOCABULARY, 45)]
    plain = logits(lm, ids, None)
    for path, merged in adapters.values():
        got, want = logits(lm, ids, lm.load_lora(path)), merged.logits(ids).numpy()
        assert np.abs(got - want).max() < 1e-4 * np.abs(want).max() and np.abs(plain - want).max() > 0.05 * np.abs(want).max()
    assert np.array_equal(logits(lm, ids, None), plain)


def test_joined_weights(made):
    """q, k and v, and gate and up, are one product each, as those of a GGUF file in blocks."""
    from pyflame.llm._lora import Adapters, read_adapter

    lm, adapters = made
    joined = pf.llm.load(str(os.path.dirname(adapters["all"][0]) + "/base"))
    for layer in joined._network.layers:
        for name, parts in (("qkv", "qkv"), ("gate_up", ("gate", "up"))):
            layer[name] = pf.cat([layer.pop(p)[0] for p in parts]), None
    ids = list(range(10, 50))
    for path, merged in adapters.values():
        want = merged.logits(ids).numpy()
        assert np.abs(logits(joined, ids, Adapters(joined._network, [read_adapter("a", path, joined._network)])) - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize("as_on_gpus", [False, True])
def test_several_adapters_in_one_batch(made, as_on_gpus, monkeypatch):
    """as_on_gpus: with the ops of an engine on a GPU, and passes that begin before the tokens of the one before are known."""
    if as_on_gpus:
        monkeypatch.setattr("pyflame.llm._engine_cache._on_gpu", lambda device: True)
    lm, adapters = made
    prompt = [9, 8, 7] * 7  # more than a block, so that its beginning could be shared
    want = {name: list(m.tokens(prompt, 12, GREEDY, stop_ids=())) for name, (_, m) in adapters.items()}
    want[None] = list(lm.tokens(prompt, 12, GREEDY, stop_ids=()))
    assert len({tuple(w) for w in want.values()}) == 3
    with Engine(lm, lora_modules={name: path for name, (path, _) in adapters.items()}) as engine:
        assert engine.lora_names == ["all", "some"]
        for _ in range(2):  # the second time the beginnings are known
            requests = [(name, engine.submit(prompt, GREEDY, 12, stop_ids=(), lora=name, receive=lambda e: None)) for name in (None, "all", "some", "all", None)]
            until(lambda: all(r.finished is not None for _, r in requests))
            assert all(r.ids[len(prompt):] == want[name] for name, r in requests)
        assert engine.stats()["prefix_cache_hits"] > 0
        with pytest.raises(ValueError, match="generate: there is no such adapter; got 'more'; expected 'all' or 'some'"):
            engine.submit(prompt, lora="more", receive=print)
    with Engine(lm, lora_modules={"all": adapters["all"][0]}, speculative_config={"method": "ngram"}) as engine:
        request = engine.submit(prompt, GREEDY, 12, stop_ids=(), lora="all", receive=lambda e: None)
        engine.close()
        assert request.ids[len(prompt):] == want["all"]


def test_other_ways_to_ask(made):
    lm, adapters = made
    path, merged = adapters["all"]
    want = merged.generate("the window", max_tokens=8, temperature=0)
    adapter = lm.load_lora(path)
    plain = lm.generate("the window", max_tokens=8, temperature=0)
    assert lm.generate("the window", max_tokens=8, temperature=0, lora=adapter) == want != plain
    assert lm.generate("the window", max_tokens=8, temperature=0) == plain  # the cache of keys and values is not the adapter's
    params = SamplingParams(temperature=0, max_tokens=8)
    with LLM(lm) as llm:
        outputs = llm.generate(["the window"] * 2, params, lora_request=[LoRARequest("all", 1, path), None])
        assert [o.outputs[0].text for o in outputs] == [want, plain]
        assert llm.generate("the window", params, lora_request="all")[0].outputs[0].text == want
        with pytest.raises(ValueError, match="generate: the adapters do not fit; got 3 lora_request for 1 prompts"):
            llm.generate("a", params, lora_request=["all"] * 3)
        with pytest.raises(TypeError, match="generate: lora_request is of the wrong type; got int"):
            llm.generate("a", params, lora_request=7)
    with pytest.raises(TypeError, match="generate: lora is of the wrong type; got str; expected what this model's load_lora"):
        lm.generate("a", lora="all")


def test_the_server(made):
    for package in ("aiohttp", "prometheus_client", "jinja2"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from llm_client import COMPLETE, Running

    lm, adapters = made
    running = Running(lm, Engine(lm, lora_modules={"all": adapters["all"][0]}), name="small")
    try:
        cards = running.ask("/v1/models")["data"]
        assert [(c["id"], c.get("parent")) for c in cards] == [("small", None), ("all", "small")] and running.ask("/v1/models/all") == cards[1]
        body = {"prompt": "the window", "max_tokens": 8, "temperature": 0}
        for name, model in (("all", adapters["all"][1]), ("small", lm)):
            got = running.ask(COMPLETE, {**body, "model": name})
            assert got["model"] == name and got["choices"][0]["text"] == model.generate("the window", max_tokens=8, temperature=0)
        assert running.error(COMPLETE, {**body, "model": "some"}, 404)["code"] == "model_not_found"
    finally:
        running.end()


def test_what_does_not_fit(made, tmp_path):
    lm, _ = made
    weights = small.random_weights(small.config_json("llama"), 3)
    bigger = {n: np.zeros((w.shape[0], 2 * w.shape[1]), np.float32) if "q_proj" in n else w for n, w in weights.items()}
    write_adapter(str(tmp_path / "a"), bigger, MODULES[:2], layers=(0,))
    with pytest.raises(ValueError, match=r"lora: the adapter does not fit the model; got layer 0, self_attn.q_proj: A \(4, 128\) and B \(64, 4\) instead of \(4, 64\) and \(64, 4\) \(1 in all\)"):
        lm.load_lora(str(tmp_path / "a"))
    write_adapter(str(tmp_path / "b"), {**weights, "model.layers.9.mlp.up_proj.weight": np.zeros((96, 64), np.float32)}, ("mlp.up_proj",), layers=(0, 9))
    with pytest.raises(ValueError, match="got layer 9, mlp.up_proj: the model has no such weight"):
        lm.load_lora(str(tmp_path / "b"))
    for settings, message in (({"use_dora": True}, "a setting of the adapter is not available; got use_dora True"), ({"bias": "all"}, "got bias 'all'"), ({"peft_type": "IA3"}, "the kind of adapter is not available; got peft_type 'IA3'")):
        write_adapter(str(tmp_path / "c"), weights, MODULES[:1], **settings)
        with pytest.raises(ValueError, match=message):
            lm.load_lora(str(tmp_path / "c"))
    with pytest.raises(OSError):
        lm.load_lora(str(tmp_path / "none"))
