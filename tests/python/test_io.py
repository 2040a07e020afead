"""Saving and loading: round trips, atomicity, damaged files, exact resumption."""
import json
import os
import struct

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn

DTYPES = [pf.float64, pf.float32, pf.float16, pf.bfloat16, pf.int64, pf.int32, pf.int16, pf.int8, pf.uint8, pf.bool]


def test_nested_round_trip(tmp_path):
    obj = {
        "tensors": [pf.arange(3), (pf.ones(2, 2).bfloat16(), None)], "text": "é\n", "flag": True, "n": 2**62, "x": 0.1, "inf": float("-inf"),
        3: {"int keys": pf.zeros(())}, "dtype": pf.float16, "$": "dollar", "empty": [{}, [], ()], "numpy": np.float32(0.5), "complex": [1 - 2j, complex("inf"), np.complex64(1j)],
    }
    pf.save(obj, tmp_path / "a.safetensors")
    got = pf.load(tmp_path / "a.safetensors")
    assert got["tensors"][0].tolist() == [0, 1, 2] and isinstance(got["tensors"][1], tuple) and got["tensors"][1][0].dtype == pf.bfloat16
    for k in ("text", "flag", "n", "x", "inf", "dtype", "$", "empty", "numpy", "complex"):
        assert got[k] == obj[k] and type(got[k]) in (type(obj[k]), float), k
    assert got[3]["int keys"].shape == ()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(tmp_path, dtype):
    for shape in ((), (0, 3), (2, 3)):
        x = pf.ones(shape).to(dtype)
        pf.save({"x": x}, tmp_path / "x")
        y = pf.load(tmp_path / "x")["x"]
        assert y.dtype == dtype and y.shape == shape and y.tolist() == x.tolist()


def test_layout_is_safetensors(tmp_path):
    pf.save({"w": pf.tensor([[1.0, 2.0]]), "b": pf.tensor([3], dtype=pf.int64)}, tmp_path / "m.safetensors")
    raw = (tmp_path / "m.safetensors").read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + n])
    assert header["w"]["dtype"] == "F32" and header["w"]["shape"] == [1, 2]
    a, b = header["w"]["data_offsets"]
    assert np.frombuffer(raw[8 + n + a : 8 + n + b], np.float32).tolist() == [1, 2]


def test_reads_what_others_wrote(tmp_path):
    data = np.array([1.5, -2], np.float32).tobytes()
    header = json.dumps({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "o").write_bytes(struct.pack("<Q", len(header)) + header + data)
    assert pf.load(tmp_path / "o")["t"].tolist() == [1.5, -2]


def test_views_and_pending_tensors_are_saved(tmp_path):
    x = pf.arange(6).view(2, 3).T
    pf.save([x, x * 2, nn.Parameter(pf.ones(1))], tmp_path / "v")
    a, b, p = pf.load(tmp_path / "v")
    assert a.tolist() == x.tolist() and b.tolist() == (x * 2).tolist() and not p.requires_grad


def test_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "c"
    pf.save({"a": pf.ones(1)}, path)
    with pytest.raises(TypeError):
        pf.save({"a": pf.ones(1), "b": object()}, path)
    assert pf.load(path)["a"].tolist() == [1] and os.listdir(tmp_path) == ["c"]


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:4], lambda b: b"", lambda b: b"\xff" * 8 + b[8:], lambda b: b[:8] + b"x" + b[9:]])
def test_damaged_files(tmp_path, damage):
    path = tmp_path / "d"
    pf.save({"a": pf.arange(10)}, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError):
        pf.load(path)


def build(seed):
    pf.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
    opt = pf.optim.AdamW(model.parameters(), lr=0.01)
    sched = pf.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    x = pf.tensor(np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32))
    data = pf.data.TensorDataset(x, (x.sum(1) > 0).long())
    return model, opt, sched, pf.data.DataLoader(data, batch_size=5, shuffle=True, seed=9)


def train(parts, batches, after=None):
    model, opt, sched, loader = parts
    losses = []
    while len(losses) < batches:
        for x, y in loader:
            opt.zero_grad()
            loss = pf.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
            if after is not None:
                after(len(losses))
            if len(losses) == batches:
                break
    return losses


def test_resumed_run_is_bit_identical(tmp_path):
    straight, states = build(1), []

    def save(n):
        if n == 7:  # in the middle of the second epoch
            pf.save_checkpoint(tmp_path / "ck", *straight, extra={"step": n, "note": "x"})
            states.append(pf.get_rng_state())

    rest = train(straight, 13, save)[7:]
    other = build(2)
    assert pf.load_checkpoint(tmp_path / "ck", *other) == {"step": 7, "note": "x"}
    assert pf.get_rng_state() == states[0]
    assert train(other, 6) == rest
    for a, b in zip(straight[0].parameters(), other[0].parameters()):
        assert a.tolist() == b.tolist()


def test_checkpoint_that_does_not_fit_changes_nothing(tmp_path):
    parts = build(1)
    pf.save_checkpoint(tmp_path / "ck", parts[0], parts[1])
    small = nn.Linear(4, 2)
    before = small.weight.tolist()
    with pytest.raises(RuntimeError, match="misshapen|missing"):
        pf.load_checkpoint(tmp_path / "ck", small)
    with pytest.raises(ValueError, match="parameters"):
        pf.load_checkpoint(tmp_path / "ck", small, pf.optim.AdamW(small.parameters()))
    with pytest.raises(ValueError, match="has no scheduler"):
        pf.load_checkpoint(tmp_path / "ck", parts[0], parts[1], parts[2])
    assert small.weight.tolist() == before


def test_open_files(tmp_path):
    import io

    state = {"a": pf.arange(3), "b": [1, "x"]}
    buffer = io.BytesIO()
    pf.save(state, buffer)
    buffer.seek(0)
    assert pf.load(buffer)["a"].tolist() == [0, 1, 2]
    with open(tmp_path / "f", "wb") as f:
        pf.save(state, f)
    with open(tmp_path / "f", "rb") as f:
        assert pf.load(f, weights_only=True)["b"] == [1, "x"]
    assert pf.load(tmp_path / "f")["b"] == [1, "x"]
    for wrong in (lambda: pf.save(state, io.StringIO()), lambda: pf.load(io.StringIO("text"))):
        with pytest.raises(TypeError, match="binary file"):
            wrong()


def test_map_location(tmp_path):
    pf.save({"a": pf.arange(3)}, tmp_path / "f")
    for place in ("cpu", pf.device("cpu"), {"cuda:0": "cpu"}, lambda storage, where: storage, lambda storage, where: None, lambda storage, where: where):
        assert pf.load(tmp_path / "f", map_location=place)["a"].device == "cpu"
    assert pf.load(tmp_path / "f", map_location={"cpu": "reference"})["a"].device == "reference"
    assert pf.load(tmp_path / "f", map_location=lambda storage, where: storage.to("reference"))["a"].device == "reference"
