"""GGUF files are mapped into memory: weights are repacked or copied out of the file once, or stay in it."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame import _C  # noqa: E402
from pyflame.llm._packed import PackedWeight  # noqa: E402
from pyflame.llm.conversion import _blocks, _gguf_file  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

MIB = 1 << 20
IDS = [int(i) for i in np.random.RandomState(0).randint(4, small.VOCABULARY, 40)]


def write_large(path, type, layers, hidden=1024, inner=4096, vocab=8192):
    """A file of the architecture llama with random numbers, of the same rows over and over, and no tokenizer."""
    metadata = {"general.architecture": "llama", **{f"llama.{k}": v for k, v in {
        "context_length": 512, "embedding_length": hidden, "block_count": layers, "feed_forward_length": inner, "attention.head_count": hidden // 64,
        "attention.head_count_kv": hidden // 64, "attention.layer_norm_rms_epsilon": 1e-5}.items()}}  # fmt: skip
    matrices = {"attn_q": (hidden, hidden), "attn_k": (hidden, hidden), "attn_v": (hidden, hidden), "attn_output": (hidden, hidden), "ffn_gate": (inner, hidden), "ffn_up": (inner, hidden), "ffn_down": (hidden, inner)}
    tensors = {"token_embd.weight": (vocab, hidden), "output.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
    for i in range(layers):
        tensors |= {f"blk.{i}.{name}.weight": shape for name, shape in {**matrices, "attn_norm": (hidden,), "ffn_norm": (hidden,)}.items()}
    random = np.random.default_rng(0)
    rows = {n: np.ascontiguousarray(_blocks.encode(random.standard_normal((64, n), dtype=np.float32), type)).tobytes() for n in (hidden, inner)}

    def write_tensor(file, name):
        shape = tensors[name]
        if len(shape) == 1:
            file.write(np.ones(shape, np.float32).tobytes())
        else:
            for _ in range(shape[0] // 64):
                file.write(rows[shape[1]])

    with open(path, "wb") as file:
        _gguf_file.write(file, metadata, [(name, type if len(shape) > 1 else "F32", shape) for name, shape in tensors.items()], write_tensor)
    return str(path)


# The largest anonymous memory while a model is loaded, and what is left of it afterwards, beyond what the process had before.
MEASURE = """
import json, sys, threading
import pyflame as pf

def anonymous():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon:"))

before, largest, done = anonymous(), [0], threading.Event()

def watch():
    while not done.wait(0.002):
        largest[0] = max(largest[0], anonymous())

thread = threading.Thread(target=watch)
thread.start()
model = pf.llm.load(sys.argv[1], *(getattr(pf, name) for name in sys.argv[2:]), device="cpu")
pf.synchronize()
done.set()
thread.join()
after = anonymous()
print(json.dumps([max(after, largest[0]) - before, after - before]))
"""


def measured(path, *dtype):
    done = subprocess.run([sys.executable, "-c", MEASURE, path, *dtype], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say how much anonymous memory a process has")
@pytest.mark.parametrize("type, layers, dtype, needed", [
    ("Q8_0", 28, (), 493),  # all matrices in the order of products, but the embedding stays in the file
    ("Q8_0", 6, ("bfloat16",), 224),  # decoded: 7 MiB in the file become 13 MiB
    ("F32", 2, (), 16),  # rows of q and k change their order; all others stay in the file
    ("F16", 4, ("float16",), 16),
], ids=["blocks", "decoded", "float32", "float16"])  # fmt: skip
def test_the_memory_of_a_load(tmp_path, type, layers, dtype, needed):
    path = write_large(tmp_path / "large.gguf", type, layers)
    largest, after = measured(path, *dtype)
    os.remove(path)
    assert largest / MIB <= needed * 1.05 + 96 and after <= largest, (largest / MIB, after / MIB)


def test_rows_of_several_matrices_in_tiles():
    random = np.random.RandomState(1)
    matrices = [_C.tensor(np.ascontiguousarray(_blocks.encode(random.randn(rows, 64).astype(np.float32), "Q8_0")), device="cpu") for rows in (24, 8, 12)]
    weights = [PackedWeight(m, "Q8_0", 64) for m in matrices]
    paired = weights[0].in_halves(3)
    order = np.arange(24).reshape(3, 4, 2).swapaxes(1, 2).reshape(-1)
    want = np.concatenate([matrices[0].numpy()[order], matrices[1].numpy(), matrices[2].numpy()])
    for made in (PackedWeight.cat([paired, *weights[1:]]), PackedWeight.cat([PackedWeight.cat([paired, weights[1]]), weights[2]])):
        assert made.shape == (44, 64)
        made.tile(keep_rows=True)
        assert (made._tiles.numpy() == _C.weight_tiles(_C.tensor(want, device="cpu"), "Q8_0").numpy()).all()
        assert (made.blocks.numpy() == want).all()
    stacks = [PackedWeight.stack([weights[0], paired]), PackedWeight.stack([paired, weights[0]])]
    both = PackedWeight.cat(stacks)
    plain, turned = matrices[0].numpy(), matrices[0].numpy()[order]
    assert both.shape == (2, 48, 64) and (both.blocks.numpy() == np.stack([np.concatenate([plain, turned]), np.concatenate([turned, plain])])).all()
    for pieces, message in (([], "there are no weights"), ([(matrices[0], 5)], "the rows are no pairs of heads; got 24 rows and 5 heads; expected a multiple of 10")):
        with pytest.raises(ValueError, match="weight_tiles: " + message):
            _C._weight_tiles_of(pieces, "Q8_0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("m"), "llama", seed=3)


@pytest.mark.parametrize("type", ["F32", "F16", "Q8_0"])
def test_a_dtype_decodes_as_the_reader_does(folder, tmp_path, type):
    path = str(tmp_path / "m.gguf")
    pf.llm.convert(folder, path, type)
    tensors, _ = pf.load_gguf(path, "cpu")
    for dtype in (pf.float32, pf.bfloat16):
        model = pf.llm.load(path, dtype, "cpu")
        for name, t in (("up", tensors["blk.0.ffn_up.weight"]), ("o", tensors["blk.0.attn_output.weight"])):
            assert (model._network.layers[0][name][0].float().numpy() == t.to(dtype).float().numpy()).all()
        assert np.isfinite(model.logits(IDS).numpy()).all()


def test_a_model_outlives_the_name_of_its_file(folder, tmp_path):
    path = str(tmp_path / "m.gguf")
    pf.llm.convert(folder, path, "F32")
    model = pf.llm.load(path, device="cpu")
    before = model.logits(IDS).numpy()
    other = str(tmp_path / "other.gguf")
    with open(other, "wb") as f:
        f.write(b"\0" * os.path.getsize(path))
    os.replace(other, path)
    assert (model.logits(IDS).numpy() == before).all()


def test_writes_to_mapped_weights_stay_in_the_process(folder, tmp_path):
    path = str(tmp_path / "m.gguf")
    pf.llm.convert(folder, path, "F32")
    with open(path, "rb") as f:
        before = f.read()
    t = _C._read_gguf(path, "cpu", True, True)[0]["output_norm.weight"]
    t.fill_(7.0)
    assert (t.numpy() == 7).all()
    with open(path, "rb") as f:
        assert f.read() == before
    assert not (_C._read_gguf(path, "cpu", True, True)[0]["output_norm.weight"].numpy() == 7).any()


def test_tensors_that_are_not_aligned(tmp_path):
    values = {"a": np.arange(5, dtype=np.float32), "b": np.arange(6, dtype=np.float16).reshape(2, 3), "c": np.zeros((0, 4), np.float32)}
    for padding in range(4):
        path, at, head, body = str(tmp_path / f"{padding}.gguf"), 0, b"", b""
        for name, v in values.items():
            head += _gguf_file._string(name) + np.array([v.ndim], "<u4").tobytes() + np.array(v.shape[::-1], "<u8").tobytes() + np.array([v.dtype == np.float16], "<u4").tobytes() + np.array([at], "<u8").tobytes()
            body, at = body + v.tobytes(), at + v.nbytes
        key = _gguf_file._string("general.alignment") + _gguf_file.packed_value(1) + _gguf_file._string("k" * (padding + 1)) + _gguf_file.packed_value(True)
        with open(path, "wb") as f:
            f.write(b"GGUF" + np.array([3], "<u4").tobytes() + np.array([3, 2], "<u8").tobytes() + key + head + body)
        tensors, _ = _C._read_gguf(path, "cpu", True, True)
        for name, v in values.items():
            assert tensors[name].shape == v.shape and (tensors[name].numpy() == v).all()
