"""attention_backend: which implementation computes attention over pages."""
import re

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, SamplingParams, _attention_backend  # noqa: E402
from pyflame.llm.__main__ import main  # noqa: E402
from pyflame.llm.serving.__main__ import main as serve  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(small.write_random_model(tmp_path_factory.mktemp("m"), "llama", seed=3))


@pytest.fixture(scope="module")
def lm(folder):
    return pf.llm.load(folder)


def used():
    """The implementation that computes an op of paged_attention of the caller."""
    pages = pf.zeros(2, 16, 2, 8)
    text = pf.explain(lambda: pf.paged_attention(pf.zeros(1, 4, 8), pages, pages, pf.zeros(1, 2, dtype=pf.int32), pf.ones(1, dtype=pf.int32)))
    return re.search(r"step \d+: (\S+)\n(?:(?!step).*\n)*? *paged_attention\(", text).group(1)


@pytest.mark.parametrize("name", ["reference", "cpu.paged_attention"])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_the_forced_one_computes(lm, name, kv_cache_dtype):
    with LLM(lm, kv_cache_dtype=kv_cache_dtype) as llm:
        want = llm.generate([[5, 6, 7]], GREEDY)[0].outputs[0].token_ids
    assert used() == "cpu.paged_attention"
    with LLM(lm, attention_backend=name, kv_cache_dtype=kv_cache_dtype) as llm:
        assert llm.generate([[5, 6, 7]], GREEDY)[0].outputs[0].token_ids == want
        stats = llm.engine.stats()
        assert (stats["attention_backend"], stats["attention_backend_reason"]) == (name, f"attention_backend={name!r}") and llm.engine.attention_backend == name
        assert used() == name  # for the whole process
    assert used() == "cpu.paged_attention"


def test_what_computes_the_steps(lm):
    def slow():
        """How often the reference has computed attention over pages."""
        return sum(f["times"] for f in pf.fallbacks() if f["op"] == "paged_attention")

    with LLM(lm, attention_backend="reference") as llm:
        before = slow()
        llm.generate([[5, 6, 7]], GREEDY)
        assert slow() - before == 5 * lm.config.layers  # the prompt's step, which gives the first token, reads no pages in place
    before = slow()
    with LLM(lm) as llm:
        llm.generate([[5, 6, 7]], GREEDY)
    assert slow() == before


def test_auto(lm):
    with Engine(lm) as engine:
        stats = engine.stats()
        assert stats["attention_backend"] == "cpu.paged_attention" and stats["attention_backend_reason"].startswith("auto: the first of the list")
    with pf.tuning.force("paged_attention", "reference"), Engine(lm) as engine:
        stats = engine.stats()
        assert (stats["attention_backend"], stats["attention_backend_reason"]) == ("reference", "reference is forced (PYFLAME_FORCE or pf.tuning.force)")
    assert used() == "cpu.paged_attention"


def test_within_explain(lm):
    found = []
    pf.explain(lambda: found.append(Engine(lm)))
    with found[0] as engine:
        assert engine.stats()["attention_backend"] is None and "within pf.explain" in engine.stats()["attention_backend_reason"]
    with pytest.raises(ValueError, match="there is no such attention_backend for cpu; got 'gpu.paged_tiles'"):
        pf.explain(lambda: Engine(lm, attention_backend="gpu.paged_tiles"))


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "gpt2"])
def test_windows_and_soft_caps(tmp_path, model_type):
    with Engine(pf.llm.load(small.write_random_model(tmp_path, model_type, seed=3)), attention_backend="reference") as engine:
        assert engine.stats()["attention_backend"] == "reference"


@pytest.mark.parametrize("name", ["flash", "gpu.paged_tiles", "cpu.tile"])
def test_names_that_do_not_exist(lm, name):
    message = f"Engine: there is no such attention_backend for cpu; got {name!r}; expected 'auto' or one of cpu.paged_attention, reference"
    for make in (Engine, LLM):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(lm, attention_backend=name)
    assert used() == "cpu.paged_attention" and not _attention_backend._held


@pytest.mark.parametrize("value", ["", None, 3])
def test_what_is_no_name(lm, value):
    with pytest.raises(ValueError, match=re.escape(f"Engine: there is no such attention_backend; got {value!r}; expected 'auto' or the name of an implementation of paged_attention")):
        Engine(lm, attention_backend=value)


def test_one_that_cannot_compute_it(lm):
    """Plug-ins take no numbers that differ from call to call, which paged_attention has."""
    import ctypes

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda call: 1)
    entry = pf.tuning.register("paged_attention", "theirs", function, device="cpu")
    try:
        message = "Engine: the attention_backend cannot compute attention over this model's pages; got 'cpu.plugin.theirs': a plug-in takes no numbers that differ from call to call; expected 'auto' or another one of "
        with pytest.raises(NotImplementedError, match=re.escape(message + "cpu.paged_attention, cpu.plugin.theirs, reference")):
            Engine(lm, attention_backend=entry)
    finally:
        pf.tuning.unregister(entry)
    assert used() == "cpu.paged_attention" and not _attention_backend._held


def test_two_engines(lm):
    with Engine(lm, attention_backend="reference"):
        with Engine(lm, attention_backend="reference"):
            pass
        assert used() == "reference"
        message = "Engine: attention_backend holds for the whole process; got 'auto' while an engine with 'reference' is open; expected the same for both"
        with pytest.raises(ValueError, match=re.escape(message)):
            Engine(lm)
    with Engine(lm), Engine(lm):
        assert used() == "cpu.paged_attention"


def test_two_processes(folder):
    with LLM(folder, attention_backend="reference", tensor_parallel_size=2) as llm:
        got = llm.generate([[5, 6, 7]], GREEDY)[0].outputs[0].token_ids
        assert llm.engine.stats()["attention_backend"] == "reference"
    with LLM(folder) as llm:
        assert llm.generate([[5, 6, 7]], GREEDY)[0].outputs[0].token_ids == got


def test_commands(folder, capfd):
    words = ["generate", "--model", folder, "--prompt", "the window", "--max_tokens", "4", "--temperature", "0"]
    assert main(words) == 0
    want = capfd.readouterr().out
    assert main([*words, "--attention_backend", "reference"]) == 0
    assert capfd.readouterr().out == want
    for run in (lambda: main([*words, "--attention_backend", "flash"]), lambda: serve(["--model", folder, "--port", "0", "--attention_backend", "flash"])):
        assert run() == 1
        assert "there is no such attention_backend for cpu; got 'flash'; expected 'auto' or one of cpu.paged_attention, reference" in capfd.readouterr().err


def test_replicas_have_one_name(folder):
    pytest.importorskip("aiohttp", reason="the package aiohttp is not installed")
    from pyflame.llm.serving._replicas import Replicas

    replicas = Replicas(folder, 1, attention_backend="reference", kv_cache_dtype="int8")
    try:
        stats = replicas.stats()
        assert stats["attention_backend"] == "reference" and np.isfinite(stats["kv_cache_perplexity"])
    finally:
        replicas.close(drain=False)
