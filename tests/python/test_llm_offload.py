"""cpu_offload_gb: the matrices of the last layers in host memory.

The tests of a device with memory of its own run where there is one, and over the wave emulator (make test-emulator). The others take the CPU for such a device: its copies are the
weights themselves, and all else is as on a GPU."""
import io
import warnings

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, SamplingParams  # noqa: E402
from pyflame.llm import _offload  # noqa: E402
from pyflame.llm._lora import Adapter, Adapters  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

GPU = next((d for d in ("rocm", "cuda") if getattr(pf._C, d + "_device_count")()), None)
needs_gpu = pytest.mark.skipif(GPU is None, reason="needs a device with memory of its own: a GPU, or the wave emulator")
PROMPTS = [[5, 9, 23, 7] * 5, [40, 41, 42], list(range(4, 44))]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
MODELS = ("llama", "Q8_0", "Q4_K", "qwen2_moe", "gemma2", "phi3")


@pytest.fixture(scope="module")
def path_of(tmp_path_factory):
    """The path of a model by its type; 'Q8_0' and 'Q4_K' are files of llama with such blocks."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def path(kind):
        if kind not in made:
            changes = {"hidden_size": 256, "intermediate_size": 256} if kind.startswith("Q") else {}
            made[kind] = small.write_random_model(folder / kind, "llama" if kind.startswith("Q") else kind, seed=3, **changes)
            if kind.startswith("Q"):
                pf.llm.convert(made[kind], folder / (kind + ".gguf"), kind)
                made[kind] = str(folder / (kind + ".gguf"))
        return made[kind]

    return path


@pytest.fixture
def copies(monkeypatch):
    """The CPU counts as a device with memory of its own. The weights that products copied, a list."""
    made, on_device = [], _offload.HostWeight.on_device
    monkeypatch.setattr(_offload, "can_offload", lambda device: True)
    monkeypatch.setattr(_offload.HostWeight, "on_device", lambda self: made.append(self) or on_device(self))
    return made


def sizes(model):
    """The bytes of the matrices of each layer."""
    n = model._network
    return [sum(map(_offload.nbytes_of, n._matrices(i))) for i in range(n.config.layers)]


def offloaded(model):
    """For each layer, whether its matrices lie in host memory: {True}, {False}, or both."""
    n = model._network
    return [{isinstance(w, _offload.HostWeight) for w in n._matrices(i)} for i in range(n.config.layers)]


def gib(nbytes):
    return nbytes / _offload.GIB


def written(model, **options):
    """The tokens of each prompt, and the model. One text at a time: which texts share a step depends on time, and a GPU rounds products of blocks by the number of rows."""
    with LLM(model, max_num_seqs=1, **options) as llm:
        return [r.outputs[0].token_ids for r in llm.generate(PROMPTS, GREEDY)], llm.model


def test_which_layers():
    assert [_offload.first_offloaded([5, 4, 3, 2], n) for n in (0, 2, 4, 5, 8, 9, 13, 14, 99)] == [4, 3, 3, 2, 2, 1, 1, 0, 0]
    with pytest.raises(ValueError, match="llm: cpu_offload_gb is too small for a layer; got 0.5; expected at least 2, for the matrices of the last layer"):
        _offload.first_offloaded([1 << 30, 2 << 30], 1 << 29)


@pytest.mark.parametrize("kind", MODELS)
def test_the_tokens_are_the_same(path_of, copies, kind):
    want, plain = written(path_of(kind))
    assert not copies
    each = sizes(plain)
    got, model = written(path_of(kind), cpu_offload_gb=gib(each[-1] + each[-2]))
    assert got == want and copies
    assert offloaded(model) == [{False}] * (len(each) - 2) + [{True}] * 2
    assert model._network.offloaded_bytes() == each[-1] + each[-2] and sizes(model) == each
    assert {id(w) for w in copies} == {id(w) for i in (-1, -2) for w in model._network._matrices(len(each) + i)}
    # The functions of one text use them, too.
    del copies[:]
    one, expected = (list(m.tokens(PROMPTS[0], 6, pf.llm.Sampling(temperature=0), stop_ids=())) for m in (model, plain))
    assert one == expected and copies


def test_an_engine_moves_a_loaded_model(path_of, copies):
    model = pf.llm.load(path_of("llama"))
    want, each = written(model)[0], sizes(model)
    assert written(model, cpu_offload_gb=gib(each[-1]))[0] == want
    assert offloaded(model) == [{False}] * 3 + [{True}]
    assert written(model)[0] == want and offloaded(model)[-1] == {True}  # without it, the model stays as it is
    assert written(model, cpu_offload_gb=100)[0] == want and offloaded(model) == [{True}] * 4


def test_adapters_add_to_offloaded_weights(path_of, copies):
    rs, texts = np.random.RandomState(0), []
    a, b = rs.standard_normal((2, 64)).astype(np.float32), rs.standard_normal((64, 2)).astype(np.float32)
    for options in ({}, {"cpu_offload_gb": 100}):
        model = pf.llm.load(path_of("llama"), **options)
        lora = Adapters(model._network, [Adapter("a", "", {(3, "o"): [(a, b, 0)]})])
        texts += [list(model.tokens(PROMPTS[0], 8, pf.llm.Sampling(temperature=0), stop_ids=(), lora=x)) for x in (lora, None)]
    assert copies and texts[:2] == texts[2:] and texts[0] != texts[1]


@pytest.mark.parametrize("value", [-1, True, "4", None, float("nan"), float("inf")])
def test_what_is_no_number_of_gib(path_of, value):
    model = pf.llm.load(path_of("llama"))
    for call, op in ((lambda: pf.llm.load(path_of("llama"), cpu_offload_gb=value), "load"), (lambda: Engine(model, cpu_offload_gb=value), "Engine"), (lambda: LLM(model, cpu_offload_gb=value), "LLM")):
        with pytest.raises(ValueError, match=f"{op}: cpu_offload_gb is out of range; got .*; expected a number of GiB from 0 upwards"):
            call()


def test_too_little_for_a_layer(path_of, copies):
    with pytest.raises(ValueError, match=r"llm: cpu_offload_gb is too small for a layer; got 9.99e-07; expected at least 0.001, for the matrices of the last layer"):
        pf.llm.load(path_of("llama"), cpu_offload_gb=1e-6)


def test_models_for_embeddings_have_none(path_of):
    with pytest.raises(ValueError, match="LLM: weights of models for embeddings are not offloaded; got cpu_offload_gb 1; expected 0"):
        LLM(path_of("llama"), runner="pooling", cpu_offload_gb=1)


def test_a_cpu_says_that_nothing_is_offloaded(path_of, monkeypatch):
    from pyflame import _notes

    monkeypatch.setattr(_notes, "_said", set())
    with pytest.warns(UserWarning, match="cpu_offload_gb: the weights are in host memory already, because the device is cpu; nothing is offloaded"):
        model = pf.llm.load(path_of("llama"), device="cpu", cpu_offload_gb=1)
    assert offloaded(model) == [{False}] * 4 and model._network.offloaded_bytes() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written(pf.llm.load(path_of("llama"), device="cpu"))  # who did not ask for it hears nothing


@pytest.mark.parametrize("more", [[], ["--kv_cache_dtype", "int8", "--kv_cache_gate", "off"]])  # without an engine, and with one
def test_generate_and_chat_pass_it_on(path_of, monkeypatch, capfd, more):
    from pyflame import _notes
    from pyflame.llm.__main__ import main

    monkeypatch.setattr("sys.stdin", io.StringIO("the window\n"))
    for words in (["generate", "--prompt", "the window"], ["chat"]):
        monkeypatch.setattr(_notes, "_said", set())
        with pytest.warns(UserWarning, match="cpu_offload_gb: the weights are in host memory already"):
            assert main([*words, "--model", path_of("llama"), "--device", "cpu", "--max_tokens", "2", "--cpu_offload_gb", "0.5", *more]) == 0
    assert main(["generate", "--model", path_of("llama"), "--cpu_offload_gb", "-1"]) == 1
    assert "cpu_offload_gb" in capfd.readouterr().err


@needs_gpu
@pytest.mark.parametrize("kind", ["llama", "Q8_0", "Q4_K", "qwen2_moe"])
def test_on_a_device_the_tokens_are_the_same_and_its_memory_is_less(path_of, kind):
    def allocated():
        pf.synchronize()
        pf.empty_cache()
        return pf.memory.stats(GPU)["tensors"]

    results = []
    for options in ({}, {"cpu_offload_gb": 100}):
        before = allocated()
        model = pf.llm.load(path_of(kind), device=GPU, **options)
        held = allocated() - before
        tokens = written(model)[0]
        results.append((tokens, held, model._network.offloaded_bytes()))
        if options:
            assert {str(w._host.device) for i in range(model.config.layers) for w in model._network._matrices(i)} == {"cpu"}
        del model
    (want, all_of_it, none), (got, less, moved) = results
    assert got == want and none == 0
    assert moved > 0 and all_of_it - less >= 0.98 * moved
