"""`pyflame fit`, `pyflame memory monitor` and pf.memory.fit: what is read, what is planned, what is advised."""
import json
import signal
import subprocess
import time

import numpy as np
import pytest

import pyflame as pf
from pyflame.memory import _architecture, _watch

GIB = 1 << 30
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False}  # fmt: skip
LLAMA_PARAMETERS = 8_030_261_248  # of the released model
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


def folder(path, config):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_a_model_of_eight_billion_parameters(tmp_path):
    f = pf.memory.fit(folder(tmp_path / "llama", LLAMA), context=8192)
    assert f.parameters == LLAMA_PARAMETERS
    inference, training = f.needs["inference"], f.needs["training"]
    assert inference["weights"] == 2 * LLAMA_PARAMETERS and inference["gradients"] == inference["optimizer"] == 0
    assert inference["KV cache"] == 2 * 32 * 8 * 128 * 8192 * 2
    # Adam in mixed precision: weights, gradients and two moments, each of four bytes
    assert [training[k] for k in ("weights", "gradients", "optimizer")] == [4 * LLAMA_PARAMETERS, 4 * LLAMA_PARAMETERS, 8 * LLAMA_PARAMETERS]
    fits = {c["name"]: c["fits"] for c in f.as_dict()["cards"]}
    assert fits["AMD Instinct MI300X"] == {"inference": True, "training": True}
    assert fits["AMD Radeon RX 7900 XTX"] == {"inference": True, "training": False}
    assert fits["AMD Radeon RX 7800 XT"] == {"inference": False, "training": False}


def test_advice_is_planned_too(tmp_path):
    path = folder(tmp_path / "llama", LLAMA)
    f = pf.memory.fit(path, device="RX 7900 XTX", batch=16, context=8192, kinds=("inference",))
    assert not f.fits("inference", 24 * GIB)
    assert f.advice["inference"][0].startswith("--batch 1: ") and f.advice["inference"][0].endswith("fits")
    assert pf.memory.fit(path, batch=1, context=8192).fits("inference", 24 * GIB)
    tight = pf.memory.fit(path, device="MI300X", batch=4, context=8192, kinds=("training",))
    assert not tight.fits("training", 192 * GIB)
    checkpointing = next(line for line in tight.advice["training"] if line.startswith("--checkpointing: "))
    assert checkpointing.endswith(", fits")
    assert pf.memory.fit(path, batch=4, context=8192, checkpointing=True).fits("training", 192 * GIB)


def test_weights_in_host_memory_are_advised(tmp_path):
    """Layers of 0.41 GiB each: so many that what is left fits, beside the copies, which have the room of a layer."""
    path = folder(tmp_path / "llama", LLAMA)
    layer = 2 * (LLAMA_PARAMETERS - 2 * 128256 * 4096) // 32

    def said(device, **options):
        lines = pf.memory.fit(path, device=device, context=2048, **options).advice[options.get("kinds", ("inference",))[0]]
        return next((line for line in lines if line.startswith("cpu_offload_gb=")), None)

    line = said("12GiB", kinds=("inference",))
    moved = float(line.partition("=")[2].split()[0]) * GIB
    total = pf.memory.fit(path, context=2048).total("inference")
    count = int(moved // layer)
    assert line.endswith(", fits; each step copies these weights to the GPU") and 0 <= moved - count * layer < 0.011 * GIB
    assert total - (count - 1) * layer <= 0.9 * 12 * GIB < total - (count - 2) * layer
    few = said("1GiB", kinds=("inference",))  # the embedding and the head alone take 2 GiB
    assert "does not fit" in few and abs(float(few.partition("=")[2].split()[0]) * GIB - 32 * layer) < 0.011 * GIB
    assert said("80GiB", kinds=("inference",)) is None and said("12GiB", kinds=("training",)) is None


def test_the_largest_batch_and_context_fit_and_more_does_not(tmp_path):
    path = folder(tmp_path / "gpt2", GPT2)
    f = pf.memory.fit(path, device="24GiB", kinds=("training",))
    most = {line.split(" that")[0].split()[-1]: int(line.split(": ")[1].replace(",", "")) for line in f.advice["training"]}
    for field, value in most.items():
        assert pf.memory.fit(path, **{field: value}).fits("training", 24 * GIB)
        assert not pf.memory.fit(path, **{field: int(1.05 * value) + 1}).fits("training", 24 * GIB)


def test_optimizer_and_precision_count(tmp_path):
    path = folder(tmp_path / "gpt2", GPT2)
    n = pf.memory.fit(path).parameters
    static = lambda **kw: sum(pf.memory.fit(path, **kw).needs["training"][k] for k in ("weights", "gradients", "optimizer")) / n  # noqa: E731
    assert static() == static(precision="float32") == 16
    assert static(optimizer="sgd") == 8
    assert static(precision="bfloat16") == 8
    more = pf.memory.fit(path, batch=8, precision="float32").total("training")
    assert pf.memory.fit(path, batch=8, precision="float32", checkpointing=True).total("training") < more


def test_weights_say_how_many_parameters_there_are(tmp_path, run):
    path = folder(tmp_path / "gpt2", GPT2)
    pf.save({"wte.weight": pf.zeros(100, 10, dtype=pf.float16)}, tmp_path / "gpt2" / "model.safetensors")
    f = pf.memory.fit(path)
    assert f.parameters == 1000 and f.needs["inference"]["weights"] == 2000 and f.needs["training"]["weights"] == 4000
    alone = pf.memory.fit(str(tmp_path / "gpt2" / "model.safetensors"))
    assert alone.parameters == 1000 and alone.needs["training"]["activations"] is None and "not included" in str(alone)
    np.save(tmp_path / "a.npy", np.zeros(10, np.float32))
    assert pf.memory.fit(tmp_path / "a.npy").needs["training"]["weights"] == 40


@pytest.mark.parametrize("config, layers, kv_heads, gated, experts", [
    ({**LLAMA, "num_key_value_heads": None}, 32, 32, True, 1),
    (GPT2, 12, 12, False, 1),
    ({**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}, 32, 8, True, 8),
    ({"model_type": "gemma3", "text_config": LLAMA}, 32, 8, True, 1),
    ({"model_type": "gpt_bigcode", "multi_query": True, **{k: GPT2[k] for k in ("n_embd", "n_layer", "n_head", "vocab_size")}}, 12, 1, False, 1),
])  # fmt: skip
def test_families(config, layers, kv_heads, gated, experts):
    a = _architecture.of_config(config, "x")
    assert (a.layers, a.kv_heads, a.gated, a.experts) == (layers, kv_heads, gated, experts)


def test_a_mixture_of_experts_has_the_weights_of_all_and_the_activations_of_some(tmp_path):
    dense = pf.memory.fit(folder(tmp_path / "a", LLAMA), kinds=("training",))
    mixture = pf.memory.fit(folder(tmp_path / "b", {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 1}), kinds=("training",))
    assert mixture.parameters > 5 * dense.parameters
    assert mixture.needs["training"]["activations"] < 3 * dense.needs["training"]["activations"] + GIB


def test_the_header_of_gguf():
    a = _architecture.of_gguf({"general.architecture": "llama", "llama.block_count": 32, "llama.embedding_length": 4096, "llama.attention.head_count": 32,
                               "llama.attention.head_count_kv": 8, "llama.feed_forward_length": 14336, "llama.context_length": 8192,
                               "tokenizer.ggml.tokens": ["a"] * 100}, "x.gguf")  # fmt: skip
    assert (a.layers, a.hidden, a.kv_heads, a.head_dim, a.intermediate, a.context, a.vocab) == (32, 4096, 8, 128, 14336, 8192, 100)
    assert _architecture.of_gguf({"general.architecture": "clip"}, "x.gguf") is None


def nbytes(weight):
    return weight.nbytes if hasattr(weight, "nbytes") and hasattr(weight, "blocks") else weight.numel() * weight.dtype.itemsize


def held(network):
    """The bytes of a network's weights; those of an embedding that is the head, too, in both orders."""
    weights = [w for layer in network.layers for w, _ in layer.values()] + [network.output_norm[0], network.output]
    rows = network.embedding.blocks.numel() if hasattr(network.embedding, "blocks") else nbytes(network.embedding)
    same = network.embedding is network.output
    return sum(map(nbytes, weights)) + (rows if not same or hasattr(network.embedding, "blocks") else 0)


@pytest.mark.parametrize("types", [("Q2_K",), ("Q6_K", "Q5_0"), ("Q3_K", "IQ4_XS"), ("Q4_1", "MXFP4"), ("MXFP4",)], ids="-".join)
@pytest.mark.parametrize("tied", [False, True], ids=["", "tied"])
def test_weights_in_blocks_count_as_they_are_loaded(tmp_path, monkeypatch, types, tied):
    pytest.importorskip("regex", reason="the package regex is not installed")
    import test_llm as files

    if tied:
        as_gguf = files.as_gguf

        def without_head(*args):
            metadata, tensors = as_gguf(*args)
            return metadata, {name: t for name, t in tensors.items() if name != "output.weight"}

        monkeypatch.setattr(files, "as_gguf", without_head)
    path = files.write_packed(tmp_path / "m.gguf", types) if types != ("MXFP4",) else files.write_gguf(tmp_path / "m.gguf", *of_mxfp4(files))
    f = pf.memory.fit(path, device="cpu", context=64)
    assert f.needs["inference"]["weights"] == held(pf.llm.load(path, device="cpu")._network)
    assert f.needs["inference"]["KV cache"] == 2 * 2 * 2 * 64 * 64 * 4  # layers, key/value heads, head_dim, tokens, float32
    assert f.settings.device == "cpu" and f.cards[0]["name"] == "CPU" and "as pf.llm.load keeps them" in f.note
    assert "GPUs" not in str(f)

    # On a GPU, rows of blocks are padded to 16 bytes, and numbers beside them are bfloat16.
    weights, packed = 0, types != ("MXFP4",)
    listed = _architecture._document(path)["tensors"]
    for t in listed:
        rows, padded = t["shape"][0], t["bytes"]
        if t["dtype"] == "MXFP4":
            padded = t["elements"] * (2 if packed else 4)
        elif len(t["shape"]) == 2 and t["name"] != "token_embd.weight":
            padded = rows * -(-t["bytes"] // rows // 16) * 16
        elif tied and t["name"] == "token_embd.weight":
            padded += rows * -(-t["bytes"] // rows // 16) * 16
        weights += padded
    on_gpu = pf.memory.fit(path, context=64)
    assert on_gpu.needs["inference"]["weights"] == weights and on_gpu.settings.device == "gpu"


@pytest.mark.parametrize("case", ["matrix", "blocks of 48 columns", "blocks", "e5m2"])
def test_8_bit_floats_in_a_folder_count_as_they_are_loaded(tmp_path, case):
    import test_llm_folder_scaled as files

    path, _ = files.write(tmp_path, *files.CASES[case])
    f = pf.memory.fit(path, device="cpu", context=64)
    assert f.needs["inference"]["weights"] == held(pf.llm.load(path, device="cpu")._network) and "as pf.llm.load keeps them" in f.note

    # On a GPU, all else is bfloat16 if some weights are packed.
    weights, each = 0, 4 if case == "blocks" else 2
    for t in _architecture._document(path)["tensors"]:
        columns = t["shape"][-1] if t["shape"] else 0
        if t["dtype"].startswith("float8") and case != "blocks":
            scales = -(-columns // 48) if case == "blocks of 48 columns" else 1
            weights += t["elements"] // columns * (columns + -(-4 * scales // 16) * 16)
        elif "scale" not in t["name"]:
            weights += t["elements"] * each
    assert pf.memory.fit(path, context=64).needs["inference"]["weights"] == weights


def of_mxfp4(files):
    """A model all of whose matrices are MXFP4, which no product takes: zeros."""
    config = files.small.config_json("llama", hidden_size=256, intermediate_size=512, num_hidden_layers=2, head_dim=64)
    metadata, tensors = files.as_gguf("llama", config, files.small.random_weights(config, 3))
    return metadata, {n: (files.TYPES["MXFP4"], t.shape, bytes(t.shape[0] * t.shape[1] // 32 * 17)) if t.ndim == 2 else t for n, t in tensors.items()}


def test_experts_whose_tiles_would_be_shared_count_as_stored():
    from pyflame.llm._packed import nbytes_when_loaded

    stored = 4 * 12 * 210  # four matrices of 12 rows of one block of Q6_K
    assert nbytes_when_loaded("Q6_K", (4, 12, 256), stored, False) == stored
    assert nbytes_when_loaded("Q6_K", (4, 16, 256), 4 * 16 * 210, False) == 64 * 274
    assert nbytes_when_loaded("MXFP4", (4, 16, 256), 4 * 16 * 136, False) == 0


def test_weights_of_few_bits_in_a_folder_count_as_stored(tmp_path):
    path = folder(tmp_path / "gpt2", GPT2)
    pf.save({"wte.weight": pf.zeros(100, 10, dtype=pf.int8)}, tmp_path / "gpt2" / "model.safetensors")
    f = pf.memory.fit(path)
    assert f.needs["inference"]["weights"] == 1000 and f.note == "Weights of few bits count as stored."


PROGRAM = """
import pyflame as pf
nn = pf.nn

def model(batch=1):
    net = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
    return net, (pf.zeros(batch, 1000), pf.zeros(batch, dtype=pf.int64)), nn.functional.cross_entropy

def alone():
    return nn.Linear(1000, 1000)

def wrong():
    return 3

if __name__ == "__main__":
    raise SystemExit("a program's own code does not run")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return str(path)


def test_the_function_of_a_program(run, script):
    doc = json.loads(run("fit", script + ":model", "--batch", "64", "--json").stdout)
    n = 1000 * 1000 + 1000 + 10 * 1000 + 10
    assert doc["parameters"] == n and doc["needs"]["training"]["weights"] == 4 * n
    large = json.loads(run("fit", script + ":model", "--batch", "100000", "--json").stdout)
    assert large["needs"]["training"]["activations"] > 100000 * 1000 * 2
    out = run("fit", script + ":model", "--device", "MI300X", "--batch", "1000000000").stdout
    assert "--batch 1: " in out and "training:" in out
    assert "context" not in out and "batch 1000000000; inference: weights as bfloat16" in out
    assert "returns a model without inputs" in run("fit", script + ":alone").stdout


def test_a_function_that_needs_other_arguments(run, tmp_path):
    program = tmp_path / "wide.py"
    program.write_text("import pyflame as pf\ndef net(width, batch):\n    return pf.nn.Linear(width, width)\ndef wide(batch, width=3):\n    return pf.nn.Linear(width, width)\n")
    said = run("fit", f"{program}:net", code=1).stderr
    assert said == (f"pyflame fit: the function needs arguments; got net(width, batch) of {program}: missing a required argument: 'width'; expected one that takes batch, context or nothing; "
                    "hint: give the others defaults, as in def model(width=64)\n")
    assert "12 parameters" in run("fit", f"{program}:wide").stdout


def test_a_package_stands_for_its_model(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    info = tmp_path / "small_model-1.0.dist-info"
    (tmp_path / "small_model").mkdir()
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n")
    path = folder(tmp_path / "small_model" / "gpt2", GPT2)
    (info / "RECORD").write_text("small_model/gpt2/config.json,,\nsmall_model/gpt2/model.safetensors,,\n")
    pf.save({"w": pf.zeros(3, 5)}, path + "/model.safetensors")
    assert pf.memory.fit("small-model").as_dict() == pf.memory.fit(path).as_dict()
    (info / "RECORD").write_text("small_model/gpt2/config.json,,\n")
    with pytest.raises(ValueError, match="fit: the package 'small-model' is no language model; got 0 GGUF files or folders with config.json in it; expected one"):
        pf.memory.fit("small-model")


def test_the_table_of_the_command(run, tmp_path):
    path = folder(tmp_path / "llama", LLAMA)
    out = run("fit", path, "--device", "MI300X", "--for", "inference").stdout
    assert "8,030,261,248 parameters" in out and "KV cache" in out and "the largest context that fits: " in out and "training" not in out
    out = run("fit", path).stdout
    assert "AMD Radeon RX 7900 XTX" in out and "optimizer" in out and "total" in out


@pytest.mark.parametrize("words, code, message", [
    (["{tmp}/none"], 1, "pyflame fit: there is no such file, folder or installed package; got '{tmp}/none'; expected weights, a folder with config.json, a package with a model, or FILE.py:function"),
    (["no-such-model"], 1, "pyflame fit: there is no such file, folder or installed package; got 'no-such-model'"),
    (["{tmp}/bad"], 1, "pyflame fit: bad does not describe a transformer; got no whole number for layers, heads; hint: FILE.py:function plans any model"),
    (["{tmp}/broken/config.json"], 1, "is not JSON"),
    (["{tmp}"], 1, "has no files with weights"),
    (["{tmp}/gpt2", "--device", "MI9000"], 1, "no such GPU in the table; got 'MI9000'"),
    (["{tmp}/gpt2", "--optimizer", "adamm"], 1, "no such optimizer; got 'adamm'"),
    (["{tmp}/train.py:nothing"], 1, "has no function 'nothing'; it has model, alone, wrong"),
    (["{tmp}/train.py:wrong"], 1, "returned int; expected a Module, (Module, inputs) or (Module, inputs, loss)"),
    (["{tmp}/train.py"], 1, "a program is named with a function of it; got '{tmp}/train.py'; expected '{tmp}/train.py:function'"),
    (["{tmp}/none.py:f"], 1, "there is no such file; got '{tmp}/none.py'"),
    (["{tmp}/arguments.py:model"], 1, "returned Namespace; expected a Module"),
    (["{tmp}/ends.py:model"], 1, "pyflame fit: the program ended while it was imported; got {tmp}/ends.py, which called sys.exit(3); expected only what its functions need"),
    (["{tmp}/gpt2", "--batch", "0"], 2, "--batch"),
    (["{tmp}/gpt2", "--precision", "int4"], 2, "--precision"),
    ([], 2, "model"),
])  # fmt: skip
def test_messages(run, tmp_path, script, words, code, message):
    folder(tmp_path / "gpt2", GPT2)
    folder(tmp_path / "bad", {"hidden_size": 3, "num_hidden_layers": "many"})
    folder(tmp_path / "broken", {})
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "arguments.py").write_text("import argparse\nargs = argparse.ArgumentParser().parse_args()\ndef model():\n    argparse.ArgumentParser().parse_args()\n    return args\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
    r = run("fit", *(w.format(tmp=tmp_path) for w in words), code=code)
    assert message.format(tmp=tmp_path) in r.stderr and "Traceback" not in r.stderr


def test_wrong_arguments_in_python(tmp_path):
    path = folder(tmp_path / "gpt2", GPT2)
    for values, message in (({"batch": 0}, "fit: batch is not a positive number; got 0"), ({"dtype": "int4"}, "fit: unknown dtype; got 'int4'"), ({"precision": 1}, "fit: unknown precision; got 1")):
        with pytest.raises(ValueError, match=message):
            pf.memory.fit(path, **values)
    with pytest.raises(TypeError, match="fit: not a model; got Linear; expected a path, or 'FILE.py:function'; hint: pf.memory.estimate plans a Module"):
        pf.memory.fit(pf.nn.Linear(2, 2))


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(str(text))


def test_the_monitor_reads_the_drivers_files(tmp_path):
    write(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\nMemAvailable: 400 kB\n")
    write(tmp_path, "sys/bus/pci/devices/0000:c3:00.0/mem_info_vram_total", 16 * GIB)
    write(tmp_path, "sys/bus/pci/devices/0000:c3:00.0/mem_info_vram_used", 4 * GIB)
    write(tmp_path, "sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086")
    write(tmp_path, "sys/class/kfd/kfd/topology/nodes/0/gpu_id", 0)
    write(tmp_path, "sys/class/kfd/kfd/topology/nodes/1/gpu_id", 4711)
    write(tmp_path, "sys/class/kfd/kfd/topology/nodes/1/properties", f"simd_count 10\nlocation_id {0xC3 << 8}\ndomain 0\n")
    write(tmp_path, "sys/class/kfd/kfd/proc/12/vram_4711", GIB)
    write(tmp_path, "sys/class/kfd/kfd/proc/13/vram_4711", 2 * GIB)
    write(tmp_path, "proc/13/comm", "python\n")
    host, gpu = _watch.look(str(tmp_path))
    assert host == {"device": "host", "total": 1000 << 10, "free": 400 << 10, "processes": [], "utilisation": 0.6}
    assert (gpu["device"], gpu["total"], gpu["free"], gpu["utilisation"]) == ("AMD 0000:c3:00.0", 16 * GIB, 12 * GIB, 0.25)
    assert gpu["processes"] == [{"pid": 13, "name": "python", "bytes": 2 * GIB}, {"pid": 12, "name": "", "bytes": GIB}]
    assert "python (13) 2.00 GiB" in _watch._as_text([host, gpu])


def test_the_monitor_in_a_terminal(run):
    out = run("memory", "monitor", "--count", "2", "--interval", "0.01").stdout
    assert out.count("host") == 2 and "GiB" in out
    lines = run("memory", "monitor", "--count", "2", "--interval", "0.01", "--json").stdout.splitlines()
    assert [json.loads(line)["devices"][0]["device"] for line in lines] == ["host", "host"]
    assert "--interval" in run("memory", "monitor", "--interval", "0", code=2).stderr
    run("memory", code=2)


def test_the_monitor_ends_by_ctrl_c(program):
    p = subprocess.Popen([program, "memory", "monitor", "--interval", "0.05"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout.readline()
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=60) == 130
    assert p.stderr.read() == ""


def test_a_monitor_around_a_block():
    with pf.memory.monitor(0.01, device="null") as m:
        x = pf.zeros(3 << 20, dtype=pf.uint8, device="null")
        pf.synchronize()
        while len(m.samples) < 4:
            time.sleep(0.01)
        del x
        pf.synchronize()
    assert m.peak >= 3 << 20 and max(s["allocated"] for s in m.samples) >= 3 << 20
    assert m.samples[-1]["time"] <= m.seconds and "peak 3.0" in m.report()
    with m:  # again
        pass
    assert len(m.samples) == 2
    for wrong in (0, -1, "1", float("inf")):
        with pytest.raises(ValueError, match="monitor: the interval is not a positive number of seconds"):
            pf.memory.monitor(wrong)


def test_samples_of_a_monitor_as_json(tmp_path):
    with pf.memory.monitor() as m:
        pass
    m.save(tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["samples"] == m.samples
