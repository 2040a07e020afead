"""pf.llm.Engine on a GPU: the tokens of small random models are those of the CPU, with each of its settings. Over the wave emulator these tests run for waves of 32 and of 64 (make test-emulator)."""
import threading
from functools import partial

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, BeamSearchParams, Sampling, SamplingParams, Token, _paged  # noqa: E402
from pyflame.llm._workers import devices_of  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402
from test_llm_lora import MODULES, write_adapter  # noqa: E402

GPU = next((d for d in ("rocm", "cuda") if getattr(pf._C, d + "_device_count")()), None)
pytestmark = pytest.mark.skipif(GPU is None, reason="needs a GPU, or the wave emulator")
needs_two_gpus = pytest.mark.skipif(GPU is None or getattr(pf._C, GPU + "_device_count")() < 2, reason="needs two GPUs, or the wave emulator with two")
PROMPTS = [[5, 9, 20, 31, 8, 6, 4, 60, 70, 80, 90, 91, 92], [7] * 20, [40, 41, 42]]  # the first and the second need two blocks of the cache, the first not at once
SETTINGS = [
    SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, logprobs=2),
    SamplingParams(max_tokens=6, temperature=0.8, seed=3, top_k=20, top_p=0.9, min_p=0.01, presence_penalty=0.5, repetition_penalty=1.1, logit_bias={9: 1}, ignore_eos=True),
    SamplingParams(max_tokens=6, temperature=1.5, seed=4, min_tokens=6),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3, num_hidden_layers=2)


def prompts():
    return [{"prompt_token_ids": p} for p in PROMPTS]


def tokens(llm):
    return [r.outputs[0].token_ids for r in llm.generate(prompts(), SETTINGS)]


@pytest.fixture(scope="module")
def on_cpu(folder):
    """What the CPU writes, by the engine's options."""
    made = {}

    def write(**options):
        key = tuple(sorted(options.items()))
        if key not in made:
            with LLM(folder, device="cpu", kv_cache_gate=None, **options) as llm:
                made[key] = tokens(llm)
        return made[key]

    return write


def sums_by_the_host():
    """How many sums over ranks went through the host's memory."""
    return sum(line["times"] for line in pf.fallbacks() if line["op"] == "all_reduce")


def test_the_tokens_are_the_cpus(folder, on_cpu):
    with LLM(folder, device=GPU) as llm:
        assert tokens(llm) == on_cpu()
        assert llm.engine.stats()["attention_backend"].startswith("gpu.")


@pytest.mark.parametrize("name", ["fp8", "fp8_e5m2"])
def test_a_cache_of_8_bits(folder, on_cpu, monkeypatch, name):
    fnuz = pf._C.device_info(GPU)["architecture"].startswith("gfx942")
    stored = {"fp8": pf.float8_e4m3fnuz if fnuz else pf.float8_e4m3fn, "fp8_e5m2": pf.float8_e5m2fnuz if fnuz else pf.float8_e5m2}[name]
    with LLM(folder, device=GPU, kv_cache_dtype=name) as llm:  # its accuracy is measured here, too
        got = tokens(llm)
        assert llm.engine._pages.keys[0].dtype == stored and llm.engine.kv_cache_check.change < 0.05
    monkeypatch.setattr(_paged, "format_of", lambda name, device: stored)  # a CPU's own are the OCP's
    assert got == on_cpu(kv_cache_dtype=name)


def test_logprobs_and_beams(folder):
    found = []
    for device in ("cpu", GPU):
        with LLM(folder, device=device) as llm:
            [text, *_] = llm.generate(prompts(), SETTINGS)
            logprobs = [{i: x.logprob for i, x in step.items()} for step in text.outputs[0].logprobs]
            found.append((logprobs, [[s.tokens for s in r.sequences] for r in llm.beam_search(prompts()[:1], BeamSearchParams(beam_width=2, max_tokens=3))]))
    (cpu, cpu_beams), (gpu, gpu_beams) = found
    assert cpu_beams == gpu_beams and gpu == [pytest.approx(step, abs=1e-4) for step in cpu]


def test_logprobs_of_prompts(folder):
    """Prompts in parts beside texts that are written, whose passes begin before the host knows the tokens."""
    params, found = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True, prompt_logprobs=2), []
    for device in ("cpu", GPU):
        with LLM(folder, device=device, max_num_seqs=2, max_num_batched_tokens=8) as llm:
            outputs = llm.generate(prompts(), [params, SETTINGS[0], params])
            found.append([[{i: x.logprob for i, x in (step or {}).items()} for step in r.prompt_logprobs or []] for r in outputs])
            assert [len(steps) for steps in found[-1]] == [len(PROMPTS[0]), 0, len(PROMPTS[2])]
    assert all(gpu == [pytest.approx(step, abs=1e-4) for step in cpu] for cpu, gpu in zip(*found))


def test_a_grammar(folder):
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    with LLM(folder, device=GPU) as llm:
        [output] = llm.generate("a", SamplingParams(max_tokens=20, seed=1, structured_outputs={"regex": "[ab]{3}"}))
    assert len(output.outputs[0].text) == 3 and set(output.outputs[0].text) <= set("ab")


def test_settings_of_the_engine_change_no_token(folder, on_cpu):
    block = 2 * 2 * 16 * 2 * 16 * 4  # bytes: keys and values, layers, tokens, heads, size of a head, float32
    for options, counts in (
        ({"batch_invariant": True}, []), ({"max_num_batched_tokens": 8, "max_num_seqs": 2}, []),
        ({"speculative_config": {"method": "draft_model", "model": folder, "num_speculative_tokens": 2}}, ["spec_decode_num_accepted_tokens"]),
        ({"swap_space": 0.001, "max_model_len": 32, "kv_cache_bytes": 5 * block}, ["preemptions_total", "swapped_in_tokens_total"]),  # four blocks, and one for rows without a token
    ):  # fmt: skip
        with LLM(folder, device=GPU, **options) as llm:
            assert tokens(llm) == on_cpu(), options
            stats = llm.engine.stats()
        assert all(stats[name] > 0 for name in counts), (options, stats)


@pytest.fixture(scope="module")
def shallow(tmp_path_factory):
    """A model of one layer, (its folder, what the CPU writes, an adapter's folder, what the CPU writes with it): each process of an engine plans and computes anew."""
    root = tmp_path_factory.mktemp("shallow")
    folder = small.write_random_model(root / "model", "llama", seed=3, num_hidden_layers=1)
    write_adapter(str(root / "adapter"), small.random_weights(small.config_json("llama", num_hidden_layers=1), 3), MODULES[2:6], seed=1, layers=(0,))
    with LLM(folder, device="cpu", lora_modules={"a": str(root / "adapter")}) as llm:
        return folder, few_tokens(llm), str(root / "adapter"), few_tokens(llm, "a")


def few_tokens(llm, lora=None):
    return [r.outputs[0].token_ids for r in llm.generate(prompts()[:2], SamplingParams(max_tokens=3, temperature=0, ignore_eos=True), lora_request=lora)]


def test_adapters(shallow):
    """A text with an adapter and one without are in the same steps."""
    folder, plain, adapter, adapted = shallow
    with LLM(folder, device=GPU, lora_modules={"a": adapter}, warm_up=False) as llm:
        assert few_tokens(llm, ["a", None]) == [adapted[0], plain[1]] and adapted[0] != plain[0]


@needs_two_gpus
def test_two_ranks(shallow):
    """Where there is no RCCL or NCCL, as over the wave emulator, their sums go through the host's memory, and the ledger of fallbacks says so."""
    folder, plain, _, _ = shallow
    before = sums_by_the_host()
    with LLM(folder, device=GPU, tensor_parallel_size=2, warm_up=False) as llm:
        assert few_tokens(llm) == plain
        assert (llm.engine._workers._group.name() == "host") == (sums_by_the_host() > before)


@needs_two_gpus
def test_replicas(shallow):
    for package in ("jinja2", "aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from pyflame.llm.serving._replicas import Replicas

    folder, plain, _, _ = shallow
    replicas, written, ends = Replicas(folder, 2, devices=devices_of(GPU, 2), max_num_seqs=2, warm_up=False), [[], []], [threading.Event(), threading.Event()]

    def receive(i, event):
        if isinstance(event, Token):
            written[i].append(event.id)
        else:
            ends[i].set()

    try:
        texts = [replicas.submit(PROMPTS[i], Sampling(temperature=0), 3, stop_ids=(), receive=partial(receive, i)) for i in range(2)]
        assert all(end.wait(120) for end in ends) and {text.replica.number for text in texts} == {0, 1} and written == plain
    finally:
        replicas.close(drain=False)


def test_known_beginnings_come_back_from_host_memory(folder):
    a, b = [5, 9, 20, 31, 8, 6, 4, 60] * 4 + [7, 7], [40, 41, 42] * 11 + [9]  # two full blocks each, of three in the cache
    found = []
    for device in ("cpu", GPU):
        with LLM(folder, device=device, max_model_len=48, max_num_seqs=1, swap_space=0.001) as llm:
            texts = [llm.generate({"prompt_token_ids": p}, SETTINGS[0])[0].outputs[0].token_ids for p in (a, b, a)]
            found.append((texts, llm.engine.stats()["cpu_prefix_cache_hits"]))
    assert found[0] == found[1] and found[0][1] == 32 and texts[0] == texts[2]
