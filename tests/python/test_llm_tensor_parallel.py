"""tensor_parallel_size: several processes write what one writes; a process that ends is an error that names it; none is left behind."""
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, BeamSearchParams, Engine, Finished, Sampling, SamplingParams  # noqa: E402
from pyflame.llm import _architectures, bench  # noqa: E402
from pyflame.llm.__main__ import main as command  # noqa: E402
from pyflame.llm._packed import PackedWeight  # noqa: E402
from pyflame.llm._share import Share  # noqa: E402
from pyflame.llm._single import SingleWriter  # noqa: E402
from pyflame.llm._workers import devices_of  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402
from pyflame.testing.cases import quantized  # noqa: E402

PROMPTS = [[5, 6, 7, 8], list(range(10, 60)), [9], [5, 6, 7, 8] * 6]
PARAMS = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True, logprobs=4)
IN_ONE_PROCESS = "each test starts processes of its own; side by side they would wait for each other"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("llama"), seed=3)


def written(model, params=PARAMS, **options):
    with LLM(model, **options) as llm:
        return [output.outputs[0] for output in llm.generate(PROMPTS, params)]


def assert_same(got, wanted, within=1e-5):
    assert [o.token_ids for o in got] == [o.token_ids for o in wanted]
    for a, b in zip(got, wanted):
        for p, q in zip(a.logprobs, b.logprobs):
            assert all(abs(p[i].logprob - q[i].logprob) < within for i in set(p) & set(q))


@pytest.mark.parametrize("kind,size,changes", [
    ("llama", 4, {}), ("qwen2", 2, {"num_key_value_heads": 1}), ("gemma3_text", 2, {"vocab_size": small.VOCABULARY + 1}), ("phi3", 2, {}), ("gpt2", 2, {}), ("qwen2_moe", 2, {}),
], ids=lambda x: str(x) if not isinstance(x, dict) else "-".join(x) or "-")  # fmt: skip
def test_the_tokens_of_one_process(kind, size, changes, tmp_path):
    model = small.write_random_model(tmp_path, kind, seed=3, **changes)
    assert_same(written(model, tensor_parallel_size=size), written(model))


def test_logprobs_of_prompts(folder):
    params, found = SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=2), []
    for size in (1, 2):
        with LLM(folder, tensor_parallel_size=size, max_num_batched_tokens=16) as llm:
            found.append([[{i: x.logprob for i, x in (step or {}).items()} for step in r.prompt_logprobs] for r in llm.generate(PROMPTS, params)])
    assert all(len(a) == len(ids) and b == [pytest.approx(step, abs=1e-4) for step in a] for ids, a, b in zip(PROMPTS, *found))


def test_a_model_in_several_files(tmp_path):
    model = small.write_random_model(tmp_path, "mixtral", seed=3)
    wanted = written(model)
    tensors = pf.load(tmp_path / "model.safetensors")
    names = sorted(tensors, key=lambda name: name[::-1])  # the experts of a layer are in both files
    places = {name: f"part-{i * 2 // len(names)}.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        pf.save({name: tensors[name] for name in names if places[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert_same(written(model, tensor_parallel_size=2), wanted)


def test_all_that_an_engine_does(folder, tmp_path):
    from test_llm_lora import MODULES, write_adapter

    write_adapter(str(tmp_path / "adapter"), small.random_weights(small.config_json("llama"), 3), MODULES, seed=1)
    options = {"lora_modules": {"a": str(tmp_path / "adapter")}, "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}, "swap_space": 0.01, "max_num_seqs": 4}
    found, stats = [], []
    for size in (1, 2):
        # The blocks of one process are twice as large, because it has all heads: both engines have ten.
        with LLM(folder, tensor_parallel_size=size, kv_cache_bytes=11 * 16 * 2 * 4 * 2 * 16 * 4 // size, max_model_len=100, **options) as llm:
            texts = llm.generate(PROMPTS * 2, SamplingParams(max_tokens=40, temperature=0, ignore_eos=True), lora_request=[None, "a"] * 4)
            beams = llm.beam_search(PROMPTS[0], BeamSearchParams(beam_width=3, max_tokens=8))
            again = [llm.generate({"prompt_token_ids": [5 + i] * 70}, SamplingParams(max_tokens=4, temperature=0, ignore_eos=True))[0].outputs[0].token_ids for i in (0, 1, 2, 0)]  # the first one's blocks were evicted
            found.append(([o.outputs[0].token_ids for o in texts], [s.tokens for s in beams[0].sequences], again))
            stats.append(llm.engine.stats())
    assert again[0] == again[3] and found[0] == found[1] and found[0][0][0] != found[0][0][1]
    assert all(s["swapped_in_tokens_total"] and s["cpu_prefix_cache_hits"] and s["spec_decode_num_accepted_tokens"] for s in stats)


def test_the_same_bits_in_any_batch(folder):
    params = SamplingParams(max_tokens=12, seed=5, temperature=0.8, ignore_eos=True, logprobs=2)
    with LLM(folder, tensor_parallel_size=2, batch_invariant=True, max_num_seqs=4) as llm:
        together = [o.outputs[0] for o in llm.generate(PROMPTS, params)]
        alone = [llm.generate(p, params)[0].outputs[0] for p in PROMPTS]
    assert together == alone


def test_where_the_device_finds_the_tokens(folder, monkeypatch):
    """What GPUs do: a step begins before the host has seen the tokens of the one before."""
    from pyflame.llm import _engine_cache

    steps = []
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: True)
    monkeypatch.setattr(Engine, "_new_step", lambda self, parts, rows, logits, ids=None, known=None, original=Engine._new_step: steps.append((ids is not None, known is not None)) or original(self, parts, rows, logits, ids, known))
    params = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True)
    one = written(folder, params)
    assert [o.token_ids for o in written(folder, params, tensor_parallel_size=2)] == [o.token_ids for o in one]
    assert (True, True) in steps


def packed(tmp_path, inner):
    model = small.write_random_model(tmp_path / "m", seed=3, intermediate_size=inner)
    return pf.llm.convert(model, tmp_path / "m.gguf", "Q8_0") and str(tmp_path / "m.gguf")


def test_packed_weights_are_divided_between_blocks(tmp_path):
    # The input of a product is rounded, so a difference in a last bit may become one of such a step.
    path = packed(tmp_path, 128)
    got, wanted = written(path, tensor_parallel_size=2), written(path)
    for a, b in zip(got, wanted):
        p, q = a.logprobs[0], b.logprobs[0]
        assert len(set(p) & set(q)) >= 3 and all(abs(p[i].logprob - q[i].logprob) < 0.05 for i in set(p) & set(q))
    assert_same(written(path, dtype="float32", tensor_parallel_size=2), written(path, dtype="float32"))


def test_packed_weights_that_cannot_be_divided(tmp_path):
    path = packed(tmp_path, 96)
    with pytest.raises(ValueError, match=r"packed weights cannot be divided within a block; got 96 columns of blk.0.ffn_down.weight in blocks of 32 \(Q8_0\) and tensor_parallel_size 2; expected a multiple of 64 columns; hint: dtype="):
        LLM(path, tensor_parallel_size=2)
    written(path, dtype="float32", tensor_parallel_size=2)


@pytest.mark.parametrize("type", quantized.BLOCKS)
def test_columns_of_every_type_are_divided_between_blocks(type):
    config = _architectures.from_hf(small.config_json("llama", hidden_size=256, intermediate_size=1024, head_dim=64))
    elements, size, _ = quantized.BLOCKS[type]
    blocks = quantized.random_blocks(type, np.random.default_rng(1), (256, 1024 // elements * size))
    parts = [Share(rank, 2).tensor(config, "blk.0.ffn_down.weight", PackedWeight(pf.tensor(blocks), type, 1024)) for rank in range(2)]
    assert [p.shape for p in parts] == [(256, 512)] * 2
    np.testing.assert_array_equal(np.concatenate([p.decoded().numpy() for p in parts], 1), pf.decode_blocks(pf.tensor(blocks), type).numpy())
    if elements == 256:
        with pytest.raises(ValueError, match=rf"packed weights cannot be divided within a block; got 1024 columns of blk.0.ffn_down.weight in blocks of 256 \({type}\) and tensor_parallel_size 8; expected a multiple of 2048 columns"):
            Share(0, 8).tensor(config, "blk.0.ffn_down.weight", PackedWeight(pf.tensor(blocks), type, 1024))


def test_a_rank_has_its_part_only(folder):
    whole = pf.llm.load(folder)._network
    with LLM(folder, tensor_parallel_size=2) as llm:
        network = llm.model._network
        layer = network.layers[0]
        heads = [layer["qkv"][0].shape] if "qkv" in layer else [layer[name][0].shape for name in "qkv"]  # joined on a GPU
        assert heads == ([(64, 64)] if "qkv" in layer else [(32, 64), (16, 64), (16, 64)]) and layer["down"][0].shape == (64, 48)
        assert network.output.shape[0] == whole.output.shape[0] // 2 and llm.engine._pages.keys[0].shape[1] == 1
        for call in (lambda: llm.model.logits([1, 2]), lambda: llm.model.generate("x", 3), lambda: llm.model.perplexity([1, 2, 3])):
            with pytest.raises(RuntimeError, match="the model is divided over 2 processes; got a call that this one alone computes"):
                call()


# The command line.


def said(capsys, monkeypatch, *words, text=""):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    code = command([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_generate_and_chat(folder, tmp_path, capsys, monkeypatch):
    pytest.importorskip("jinja2", reason="the package jinja2 is not installed")
    from test_llm_lora import MODULES, write_adapter

    write_adapter(str(tmp_path / "adapter"), small.random_weights(small.config_json("llama"), 3), MODULES, seed=1)
    generate = ["generate", "--model", folder, "--prompt", "the window", "--max_tokens", 12, "--temperature", 0]
    chat = ["chat", "--model", folder, "--max_tokens", 9, "--temperature", 0, "--stop", "zz"]
    found = []
    for words, text in ((generate, ""), ([*generate, "--lora", tmp_path / "adapter"], ""), ([*chat, "--speculative_config", '{"method": "ngram", "num_speculative_tokens": 3}'], "hello\nand\n")):
        one, two = (said(capsys, monkeypatch, *words, "--tensor_parallel_size", size, text=text) for size in (1, 2))
        assert one[0] == two[0] == 0 and one[1] == two[1], two[2]
        found.append(two[1])
    assert found[0] != found[1] and found[2].count("\n") == 2


def test_a_benchmark(folder, capsys):
    for package in ("aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    common = ["--tensor-parallel-size", "2", "--input-len", "9", "--output_len=4", "--json", "--no-record"]
    for words, texts in ((["--throughput", "--num_prompts", "3"], 3), (["--latency", "--batch_sizes", "2", "--iters", "1"], 2), (["--serve", "--num_prompts", "3"], 3)):
        code = bench.main([str(folder), *words, *common])
        s = json.loads(capsys.readouterr().out)
        assert code == 0 and s["failed"] == 0 and s["requests"] == texts and s["output_tokens"] == 4 * texts


def test_command_lines_that_are_refused(folder, capsys, monkeypatch):
    code, out, err = said(capsys, monkeypatch, "generate", "--model", folder, "--tensor_parallel_size", 3)
    assert code == 1 and out == "" and "pyflame: Engine: the query heads cannot be divided; got 4 and tensor_parallel_size 3" in err
    code, out, err = said(capsys, monkeypatch, "generate", "--model", folder, "--tensor_parallel_size", 2, "--top_p", 2)
    assert code == 1 and out == "" and err == "pyflame: generate: top_p is out of range; got 2.0; expected 0 < top_p <= 1\n"
    for words, text in ((["--tensor_parallel_size", "0", "--latency"], "--tensor_parallel_size is out of range; got 0"), (["--serve", "--url", "x", "--tensor_parallel_size", "2"], "--tensor_parallel_size belongs to a server that is started")):
        with pytest.raises(SystemExit):
            bench.main([str(folder), *words])
        assert text in capsys.readouterr().err


def test_a_process_that_ends_during_a_text(folder, capsys, monkeypatch):
    written = SingleWriter._written

    def one_token(self, request, events):
        tokens = written(self, request, events)
        yield next(tokens)
        self._engine._workers._children[0].process.kill()
        yield from tokens

    monkeypatch.setattr(SingleWriter, "_written", one_token)
    code, _, err = said(capsys, monkeypatch, "generate", "--model", folder, "--tensor_parallel_size", 2, "--max_tokens", 200, "--temperature", 0)
    assert code == 1 and "pyflame: generate: the text ended early; got" in err and "rank 1 was ended by signal 9 (SIGKILL)" in err


# What is refused.


def test_what_cannot_be_divided(tmp_path, folder, monkeypatch):
    config = pf.llm.load(folder).config
    for size, text in ((3, "the query heads cannot be divided; got 4 and tensor_parallel_size 3; expected a divisor of 4: 1, 2, 4"),):
        with pytest.raises(ValueError, match=text):
            Share(0, size).check(config)
    for changes, text in (({"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16}, "the key/value heads cannot be divided; got 3 and tensor_parallel_size 2"),
                          ({"intermediate_size": 95}, "the rows of the feed-forward layers cannot be divided; got 95")):
        with pytest.raises(ValueError, match=text):
            LLM(small.write_random_model(tmp_path / str(len(text)), **changes), tensor_parallel_size=2)
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="Engine: tensor_parallel_size is out of range; got"):
            LLM(folder, tensor_parallel_size=wrong)
    model = pf.llm.load(folder)
    model.source = None
    with pytest.raises(ValueError, match="the other processes cannot read the model; got tensor_parallel_size 2 and LanguageModel"):
        Engine(model, tensor_parallel_size=2)
    with pytest.raises(ValueError, match="models for embeddings are not divided; got tensor_parallel_size 2"):
        LLM(folder, runner="pooling", tensor_parallel_size=2)
    monkeypatch.setattr(pf._C, "cuda_device_count", lambda: 2)
    assert devices_of("cuda", 2) == ["cuda:0", "cuda:1"] and devices_of("cpu", 2) == ["cpu", "cpu"]
    with pytest.raises(ValueError, match="there are fewer GPUs than processes; got 2 GPUs, cuda:1 as the first and 2 processes"):
        devices_of("cuda:1", 2)


def test_a_process_of_a_launcher(folder, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="tensor_parallel_size starts the other processes itself; got tensor_parallel_size 2 in rank 1 of 2 .*expected a program that runs once"):
        LLM(folder, tensor_parallel_size=2)


def test_a_missing_model(tmp_path):
    with pytest.raises(OSError, match="none.gguf"):
        LLM(tmp_path / "none.gguf", tensor_parallel_size=2)


# The end of a process.


class Text:
    """A text that an engine writes, as a receiver: it tells when it has begun and when it has ended."""

    def __init__(self):
        self.begun, self.done, self.end = threading.Event(), threading.Event(), None

    def __call__(self, event):
        self.begun.set()
        if isinstance(event, Finished):
            self.end = event
            self.done.set()


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def killed(engine):
    os.kill(engine._workers._children[0].process.pid, signal.SIGKILL)
    return r"rank 1 was ended by signal 9 \(SIGKILL\)"


def failing(engine):
    engine._workers.send("copy", 7)
    return r"rank 1 ended with exit code 1; its last lines:[\s\S]*TypeError"


@pytest.mark.parametrize("end,is_idle", [(killed, False), (killed, True), (failing, False)])
def test_a_worker_that_ends(folder, end, is_idle, tmp_path):
    model = small.write_random_model(tmp_path, seed=3, max_position_embeddings=1 << 16)
    engine = Engine(pf.llm.load(model), tensor_parallel_size=2, max_num_seqs=2)
    text = Text()
    if not is_idle:
        engine.submit([1, 2, 3], Sampling(temperature=0), 60000, stop_ids=(), receive=text)
        assert text.begun.wait(60)
    said = end(engine)
    if not is_idle:
        assert text.done.wait(60) and text.end.reason == "error" and re.search("the engine has failed: EngineDead: " + said, text.end.error), text.end
    engine._thread.join(60)
    assert not engine._thread.is_alive() and engine.has_failed
    with pytest.raises(RuntimeError, match="generate: the engine is closed; got a request after it had failed: EngineDead: " + said):
        engine.submit([1, 2, 3], receive=text)
    engine.close()


@pytest.mark.parametrize("said,logged", [("all_reduce: rank 1 is gone; its process ended", False), ("out of memory", True)])
def test_a_late_error_of_the_last_step_is_nobody_elses(folder, said, logged, monkeypatch, caplog):
    """On GPUs, a collective that waits for a lost rank fails after the engine has told of the loss."""
    engine, synchronize = Engine(pf.llm.load(folder), tensor_parallel_size=2), pf._C.synchronize

    def late():
        monkeypatch.setattr(pf._C, "synchronize", synchronize)
        raise RuntimeError(said)

    monkeypatch.setattr(pf._C, "synchronize", late)
    engine.close()
    assert pf._C.synchronize is synchronize
    assert [r.getMessage() for r in caplog.records] == ["the engine ends; its last work has failed: out of memory"] * logged


def test_close_does_not_wait_for_a_worker_that_hangs(monkeypatch, tmp_path):
    from pyflame.llm import engine as engines

    monkeypatch.setattr(engines, "END_SECONDS", 0.2)
    model = small.write_random_model(tmp_path, seed=3, max_position_embeddings=1 << 16)
    engine, text = Engine(pf.llm.load(model), tensor_parallel_size=2, max_num_seqs=2), Text()
    engine.submit([1, 2, 3], Sampling(temperature=0), 60000, stop_ids=(), receive=text)
    assert text.begun.wait(60)
    worker = engine._workers._children[0].process.pid
    os.kill(worker, signal.SIGSTOP)
    engine.close(drain=False)
    assert text.done.is_set() and not engine._thread.is_alive() and is_gone(worker)


PROGRAM = """
import os, sys, time
import pyflame as pf
from pyflame.llm import LLM
llm = LLM(sys.argv[1], tensor_parallel_size=2)
print(llm.engine._workers._children[0].process.pid, flush=True)
{}
"""
ENDS = {
    "while it writes": ("llm.generate([1, 2], pf.llm.SamplingParams(max_tokens=60000, ignore_eos=True))", signal.SIGKILL, -9),
    "Ctrl-C": ("time.sleep(600)", signal.SIGINT, -2),
    "an exception": ("raise ValueError('x')", None, 1),
    "a fork that goes on": ("pid = os.fork()\nif pid == 0: time.sleep(30)\nprint(pid, flush=True)\nos._exit(3)", None, 3),
    "its end": ("", None, 0),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_the_program(how, tmp_path):
    model = small.write_random_model(tmp_path, seed=3, max_position_embeddings=1 << 16)
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    if safe:
        (tmp_path / "numpy.py").write_text("raise ImportError('the folder of the program is not searched')")
    last, number, code = ENDS[how]
    with subprocess.Popen([sys.executable, *safe, "-c", PROGRAM.format(last), model], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as program:  # a shell's background jobs ignore it
        worker = int(program.stdout.readline())
        try:
            if number is not None:
                program.send_signal(number)
            child = int(program.stdout.readline()) if "fork" in how else None
            assert program.wait(60) == code
            until(lambda: is_gone(worker))
        finally:
            if "fork" in how and child:
                os.kill(child, signal.SIGKILL)
            if not is_gone(worker):
                os.kill(worker, signal.SIGKILL)
