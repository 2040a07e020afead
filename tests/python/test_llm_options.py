"""Options of pf.llm.LLM and Engine by vLLM's names: a default seed, a share of a GPU's memory, another tokenizer, no shared beginnings, and names that are refused with what to do."""
import dataclasses
import inspect
import json
import pathlib
import re
import shutil

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, SamplingParams, _engine_cache, _paged  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3)


@pytest.fixture(scope="module")
def lm(folder):
    return pf.llm.load(folder)


def test_a_default_seed(lm):
    def texts(seed, own=None):
        with LLM(lm, seed=seed) as llm:
            calls = [llm.generate([[5, 6], [5, 6]], SamplingParams(max_tokens=12, ignore_eos=True, n=2, seed=own)) for _ in range(2)]
            return [o.token_ids for call in calls for r in call for o in r.outputs]

    first = texts(7)
    assert texts(7) == first and len({tuple(t) for t in first}) == 8  # each text has numbers of its own
    assert texts(8) != first and texts(None) != texts(None)
    assert texts(7, own=3) == texts(None, own=3)  # a text's own seed goes before
    for seed in (-1, 1.5, True):
        with pytest.raises(ValueError, match="LLM: seed is out of range; got .*; expected None or a whole number from 0 upwards"):
            LLM(lm, seed=seed)


def test_no_shared_beginnings(lm):
    ids = list(range(5, 55))
    with LLM(lm, enable_prefix_caching=False) as llm, LLM(lm, enable_prefix_caching=True) as other:
        params = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True, n=2)
        found, want = ([o.generate([ids, ids], params) for _ in range(2)] for o in (llm, other))
        assert [[o.token_ids for o in r.outputs] for call in found for r in call] == [[o.token_ids for o in r.outputs] for call in want for r in call]
        assert {r.num_cached_tokens for call in found for r in call} == {0} and want[1][0].num_cached_tokens == 48
        stats = llm.engine.stats()
        assert (stats["prefix_cache_queries"], stats["prefix_cache_hits"], stats["kv_cache_usage"]) == (0, 0, 0)
    with pytest.raises(TypeError, match="Engine: enable_prefix_caching is of the wrong type; got 1"):
        Engine(lm, enable_prefix_caching=1)


def test_a_share_of_the_memory(lm, monkeypatch, tmp_path):
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(tmp_path))
    block = _paged.block_bytes(lm._network)
    room = {"total": 1000 * block, "free": 90 * block, "cached": 10 * block, "allocated": 30 * block, "limit": 0}
    monkeypatch.setattr(_engine_cache.memory, "stats", lambda device: room)
    with pytest.raises(ValueError, match="gpu_memory_utilization is the share of a GPU's memory; got 0.9 and the device cpu.*; expected a GPU; hint: kv_cache_bytes"):
        Engine(lm, gpu_memory_utilization=0.9)
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: True)

    def blocks(share):
        with LLM(lm, gpu_memory_utilization=share, max_num_seqs=64) as llm:
            return llm.engine._blocks.count

    assert blocks(0.95) == 49 and blocks(1.0) == 99  # one block is for rows without a token
    room["limit"] = 50 * block
    assert blocks(1.0) == 19 and blocks(0.97) == 17
    room["limit"] = 0
    with pytest.raises(ValueError, match=f"gpu_memory_utilization leaves nothing for keys and values; got 0.9 of {1000 * block} bytes, of which {900 * block} are in use"):
        blocks(0.9)
    with pytest.raises(ValueError, match="the cache is too small; got gpu_memory_utilization 0.91, which is .* bytes; expected at least"):
        Engine(lm, gpu_memory_utilization=0.91, max_model_len=200)
    for share in (0, 1.5, True, "x"):
        with pytest.raises(ValueError, match="Engine: gpu_memory_utilization is out of range; got "):
            Engine(lm, gpu_memory_utilization=share)
    with pytest.raises(ValueError, match="kv_cache_bytes and gpu_memory_utilization exclude each other; got 4096 and 0.5"):
        Engine(lm, kv_cache_bytes=4096, gpu_memory_utilization=0.5)


def test_another_tokenizer(folder, lm, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    document = json.loads((other / "tokenizer.json").read_text())
    document["model"]["merges"] = []
    (other / "tokenizer.json").write_text(json.dumps(document))
    with LLM(folder, tokenizer=other) as llm:
        want = pf.llm.load_tokenizer(other)
        [output] = llm.generate("the window", SamplingParams(max_tokens=4, temperature=0))
        assert output.prompt_token_ids == want.encode("the window") != lm.tokenizer.encode("the window")
        assert llm.get_tokenizer().vocab_size == want.vocab_size and want.eos_id in llm.model.end_ids
    with pytest.raises(ValueError, match="LLM: tokenizer belongs to a path; got .* and a model that is loaded; expected no tokenizer"):
        LLM(lm, tokenizer=other)
    with pytest.raises(ValueError, match="LLM: another tokenizer is not available here; got tokenizer .* and tensor_parallel_size 2; expected no tokenizer; hint: "):
        LLM(folder, tokenizer=other, tensor_parallel_size=2)


@pytest.mark.parametrize("name, value, hint", [("enforce_eager", True, "PYFLAME_GPU_GRAPHS"), ("trust_remote_code", True, "no code of a model's files ever runs"), ("quantization", "awq", "by the files"),
                                               ("revision", "main", "a path"), ("tokenizer_revision", "main", "a path"), ("hf_token", "x", "a path"), ("download_dir", "x", "a path"),
                                               ("pipeline_parallel_size", 2, "tensor_parallel_size"), ("max_seq_len_to_capture", 5, "warm_up")])  # fmt: skip
def test_names_that_are_refused_say_what_to_do(lm, name, value, hint):
    with pytest.raises(TypeError, match=f"LLM: there is no {name}; got .*; expected none; hint: .*{hint}"):
        LLM(lm, **{name: value})


def test_values_that_ask_for_nothing_are_taken(lm):
    with LLM(lm, enforce_eager=False, trust_remote_code=False, quantization=None, revision=None, pipeline_parallel_size=1) as llm:
        assert llm.engine is not None
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        LLM(lm, nonsense=1)
    assert not {"options", "trust_remote_code"} & set(inspect.signature(LLM).parameters)


def test_cpp_has_the_same_names():
    """fields.def has the names of Python's classes, in their order."""
    path = pathlib.Path(__file__).parents[2] / "src/pyflame/llm/fields.def"
    found = re.findall(r"^(LLM_OPTION|SAMPLING_PARAM)\(.*, (\w+)\)$", path.read_text(), re.MULTILINE)
    options = [n for n in inspect.signature(LLM).parameters if n not in ("model", "use_tqdm_on_load")]
    assert found == [("LLM_OPTION", n) for n in options] + [("SAMPLING_PARAM", f.name) for f in dataclasses.fields(SamplingParams)]
