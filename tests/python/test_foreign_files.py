"""pf.load and the files of other programs: PyTorch's two formats, TorchScript, GGUF, NumPy, folders with shards; and what pf.save writes for PyTorch."""
import collections
import io
import json
import math
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import pyflame as pf
import pytest

DATA = pathlib.Path(__file__).parent / "data"


@pytest.mark.parametrize("name", ["torch.pt", "torch_legacy.pt"])
def test_a_file_of_torch_save(name):
    loaded = pf.load(DATA / name)
    plain = {k: v for k, v in loaded.items() if not isinstance(v, (pf.Tensor, dict))}
    assert plain == {
        "step": 3, "big": 2**80, "neg": -7, "f": 1.5, "inf": float("inf"), "none": None, "yes": True, "text": "ä", "bytes": b"\x00\xff", "tuple": (1, 2),
        "set": {5}, "list": [1, [2]], "size": (2, 3), "dtype": pf.float16, "device": "cpu",
    }  # fmt: skip
    base = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(loaded["base"].numpy(), base)
    assert np.array_equal(loaded["transposed"].numpy(), base.T) and np.array_equal(loaded["part"].numpy(), base[1:, ::2])
    assert loaded["scalar"].item() == 2.5 and loaded["scalar"].shape == () and loaded["empty"].shape == (0, 3)
    assert type(loaded["param"]) is pf.nn.Parameter and loaded["param"].tolist() == [1, 2]
    dtypes = {"half": pf.float16, "bf16": pf.bfloat16, "double": pf.float64, "int": pf.int32, "byte": pf.uint8, "bool": pf.bool_}
    assert {k: loaded[k].dtype for k in dtypes} == dtypes
    assert loaded["bf16"].tolist() == [1.5, -3] and loaded["byte"].tolist() == [255] and loaded["bool"].tolist() == [True, False]
    assert {k: tuple(v.shape) for k, v in loaded["model"].items()} == {"weight": (1, 2), "bias": (1,)}


@pytest.mark.parametrize("name", ["torch.pt", "torch_legacy.pt"])
def test_tensors_that_shared_memory_share_it(name):
    loaded = pf.load(DATA / name)
    loaded["base"][1, 2] = 50.0
    assert loaded["part"][0, 1].item() == 50 and loaded["transposed"][2, 1].item() == 50


def test_weights_of_torchscript():
    loaded = pf.load(DATA / "torchscript.pt")
    assert loaded["layer.weight"].tolist() == [[1, 2]] and not loaded["layer.weight"].requires_grad
    assert {"layer.bias", "norm.weight", "norm.running_mean", "norm.num_batches_tracked"} < set(loaded)


def test_what_is_not_data_is_named():
    with pytest.raises(ValueError, match=r"not data; got an object of 'torch.nn.modules.linear.Linear' at its top.*state_dict"):
        pf.load(DATA / "torch_module.pt")


def test_a_class_in_an_old_file_is_named(tmp_path):
    class Old(pickle.Pickler):
        def persistent_id(self, value):
            return ("module", collections.OrderedDict, "file.py", "class OrderedDict: ...") if value is collections.OrderedDict else None

    out = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}):
        pickle.dump(part, out, 2)
    Old(out, 2).dump({"class": pathlib.PurePosixPath})
    pickle.dump([], out, 2)
    (tmp_path / "old.pt").write_bytes(out.getvalue())
    with pytest.raises(ValueError, match="not data; got .*pathlib.PurePosixPath"):
        pf.load(tmp_path / "old.pt")


def test_counts_of_a_schedule(tmp_path):
    for protocol in range(2, 6):
        path = tmp_path / f"{protocol}.pt"
        path.write_bytes(zip_with(pickle.dumps({"milestones": collections.Counter([2, 2, 4]), "none": collections.Counter()}, protocol)))
        assert pf.load(path) == {"milestones": {2: 2, 4: 1}, "none": {}}
    schedule = pf.optim.lr_scheduler.MultiStepLR(pf.optim.SGD([pf.ones(1, requires_grad=True)], lr=1.0), [9])
    schedule.load_state_dict({**schedule.state_dict(), "milestones": {1: 2}})
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.01])


def test_an_archive_without_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a/version", "3")
    with pytest.raises(ValueError, match=r"no array of numbers; got a/version \(not an array\)"):
        pf.load(tmp_path / "a.npz")


def zip_with(structure, **parts):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/data.pkl", structure)
        for name, data in parts.items():
            archive.writestr(f"a/data/{name}", data)
    return out.getvalue()


class Runs:
    def __reduce__(self):
        return (open, ("ran", "w"))


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_in_a_file_runs(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pt").write_bytes(zip_with(pickle.dumps({"x": [1, Runs()]}, protocol)))
    with pytest.raises(ValueError, match=r"not data; got an object of '(_?io|__builtin__|builtins).open' at 'x.1'"):
        pf.load("x.pt")
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_pickle(tmp_path, protocol):
    large = [2**63, -(2**100)] if protocol > 1 else []  # numbers as text have 64 bits
    value = {"a": [1, -1, 255, 256, 65536, -(2**31), 2**31, 0.5, -1e300] + large, "b": ("", "a'\"", None, True, False), "c": {1: [], (1, 2): {}}}
    value["b"] += ("ä\n",) if protocol > 0 else ()
    value["shared"] = [value["a"], value["a"]]
    value["ordered"] = collections.OrderedDict([("z", 1), ("y", 2)])
    (tmp_path / "x.pt").write_bytes(zip_with(pickle.dumps(value, protocol)))
    loaded = pf.load(tmp_path / "x.pt")
    assert loaded == value and loaded["shared"][0] is loaded["a"]


def tensor_of(shape, strides, offset, numel=4, storage=b"FloatStorage", mark=b""):
    """The pickle of a list with one tensor on the storage '0'; mark: 'conj' or 'neg'."""
    ints = lambda values: b"(" + b"".join(b"J" + struct.pack("<i", v) for v in values) + b"t"  # noqa: E731
    return (
        b"\x80\x02](ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n" + storage + b"\nX\x01\0\0\0000X\x03\0\0\0cpuJ" + struct.pack("<i", numel)
        + b"tQJ" + struct.pack("<i", offset) + ints(shape) + ints(strides) + b"\x89ccollections\nOrderedDict\n)R"
        + (b"}X" + struct.pack("<I", len(mark)) + mark + b"\x88s" if mark else b"") + b"tRe."
    )  # fmt: skip


def test_operations_that_pytorch_had_put_off(tmp_path):
    z = np.array([1 + 2j, 3 - 4j], np.complex64)
    for mark, storage, data, expected in ((b"conj", b"ComplexFloatStorage", z, z.conj()), (b"neg", b"FloatStorage", z.imag.copy(), -z.imag)):
        (tmp_path / "x.pt").write_bytes(zip_with(tensor_of((2,), (1,), 0, 2, storage, mark), **{"0": data.tobytes()}))
        np.testing.assert_array_equal(pf.load(tmp_path / "x.pt")[0].numpy(), expected)


@pytest.mark.parametrize("protocol", [2, 4])
def test_numbers_of_numpy_become_those_of_python(tmp_path, protocol):
    value = {"best": np.float64(0.25), "half": np.float32(0.5), "step": np.int64(-7), "flag": np.bool_(True), "few": np.uint8(200), "set": frozenset([1])}
    (tmp_path / "x.pt").write_bytes(zip_with(pickle.dumps(value, protocol)))
    loaded = pf.load(tmp_path / "x.pt")
    assert loaded == {"best": 0.25, "half": 0.5, "step": -7, "flag": True, "few": 200, "set": {1}} and type(loaded["best"]) is float


@pytest.mark.parametrize("protocol", range(6))
def test_complex_numbers_of_python(tmp_path, protocol):
    """As torch.save writes them: a call of complex with two numbers."""
    value = {"z": 1 + 2j, "all": [complex(float("inf"), -0.0), (3j,)], 2j: "key"}
    (tmp_path / "x.pt").write_bytes(zip_with(pickle.dumps(value, protocol)))
    loaded = pf.load(tmp_path / "x.pt")
    assert loaded == value and type(loaded["z"]) is complex and str(loaded["all"][0]) == "(inf-0j)"
    with pytest.raises(ValueError, match=r"not data; got an object of '(__builtin__|builtins).complex' at 'x'"):
        pickled = pickle.dumps({"x": 1j}, 0).replace(b"F0.0\n", b"N", 1)
        assert pickled != pickle.dumps({"x": 1j}, 0)
        (tmp_path / "x.pt").write_bytes(zip_with(pickled))
        pf.load(tmp_path / "x.pt")


@pytest.mark.parametrize("storage, dtype, to", [(b"UInt16Storage", "uint16", "torch.int32"), (b"UInt32Storage", "uint32", "torch.int64"), (b"UInt64Storage", "uint64", "torch.int64")])
def test_a_tensor_of_a_dtype_that_is_not_there_is_named(tmp_path, storage, dtype, to):
    inside = tensor_of((2,), (1,), 0, 2, storage)[2:-1]  # without the protocol's number and the stop
    (tmp_path / "x.pt").write_bytes(zip_with(b"\x80\x02}X\x05\0\0\0model" + inside + b"s.", **{"0": bytes(16)}))
    with pytest.raises(ValueError, match=rf"a dtype that is not available; got {dtype} at 'model.0'; expected a dtype of tensors; hint: save tensor.to\({to}\) with PyTorch"):
        pf.load(tmp_path / "x.pt")


def test_a_dtype_that_is_an_argument_is_named(tmp_path):
    v3 = tensor_of((2,), (1,), 0, 2, b"ByteStorage").replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v3").replace(b")RtRe.", b")Rctorch\ncomplex32\ntRe.")
    (tmp_path / "x.pt").write_bytes(zip_with(v3, **{"0": bytes(16)}))
    with pytest.raises(ValueError, match="a tensor has a dtype that is not available; got the class or function 'torch.complex32'"):
        pf.load(tmp_path / "x.pt")


@pytest.mark.parametrize(
    "content, message",
    [
        (zip_with(tensor_of((2, 2), (2, 1), 1), **{"0": bytes(16)}), r"reaches beyond its storage; got shape \(2, 2\), strides \(2, 1\), offset 1"),
        (zip_with(tensor_of((2, 2), (2**31 - 1, 1), 0), **{"0": bytes(16)}), "reaches beyond its storage"),
        (zip_with(tensor_of((2, -2), (2, 1), 0), **{"0": bytes(16)}), "description of a tensor is damaged"),
        (zip_with(tensor_of((4,), (1,), -1), **{"0": bytes(16)}), "reaches beyond its storage"),
        (zip_with(tensor_of((1,) * 9, (1,) * 9, 0), **{"0": bytes(16)}), "9 dimensions; expected at most 8"),
        (zip_with(tensor_of((4,), (1,), 0), **{"0": bytes(15)}), "data of the storage '0' is too short; got 15 bytes; expected 16"),
        (zip_with(tensor_of((4,), (1,), 0)), "no data for the storage '0'"),
        (zip_with(tensor_of((4,), (1,), 0, storage=b"OddStorage"), **{"0": bytes(16)}), "storage of an unknown kind"),
        (zip_with(tensor_of((4,), (1,), 0, storage=b"QInt8Storage"), **{"0": bytes(16)}), "dtype that is not available; got qint8"),
        (zip_with(b"\x80\x02]("), "the pickle is damaged: it ends early"),
        (zip_with(b"\x80\x02]q\x00h\x00a."), None),  # a list that contains itself
        (zip_with(b"(" * 300 + b"t" * 300 + b"."), "nested more than 200 levels"),
        (zip_with(b"\x80\x04\x8f(]\x90."), "a set with something that cannot be in one"),
        (zip_with(b"\x80\x02cm\xff\nx\n."), r"not data; got the class or function"),
        (b"\x93NUMPY\x01\x00\x0a\x00((((((((((", "cannot be read as a file of NumPy"),
        (zip_with(b"}]K\x01s."), "key cannot be one: a list"),
        (zip_with(b"\xff."), "unknown instruction 0xff"),
        (zip_with(b"h\x05."), "refers to a value that is not there"),
        (zip_with(b"t."), "a mark is missing"),
        (zip_with(b"V\xe4\n."), "not plain ASCII"),
        (zip_with(b"I99999999999999999999\n."), "no integer of 64 bits"),
        (zip_with(b"N")[:-30], "no table of contents"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "it ends early"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version is not supported; got 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "promises 1152921504606846976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62), "promises|ends early"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"x", 1, 64, 2, 0), "not inside of the file; got 36 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"x", 1, 33, 2, 0) + bytes(99), "no whole blocks of Q4_0; got 33"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"x", 1, 32, 77, 0) + bytes(99), "unknown type; got 77"),
        (b"\x93NUMPY\x01\x00", "cannot be read as a file of NumPy"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "file",  # the bytes of an archive have the time in them
)
def test_damaged_and_hostile_files(tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    if message is None:
        loaded = pf.load(tmp_path / "x")
        assert loaded[0] is loaded
        return
    with pytest.raises(ValueError, match=message):
        pf.load(tmp_path / "x")


def test_a_location_that_is_not_utf8(tmp_path):
    content = (DATA / "torch_legacy.pt").read_bytes()
    at = content.rindex(b"\x03\x00\x00\x00cpu") + 4  # that of a storage
    (tmp_path / "broken.pt").write_bytes(content[:at] + b"cp\x9f" + content[at + 3:])
    with pytest.raises(pf.ArgumentError, match="broken.pt' is damaged: the location of a tensor is not UTF-8"):
        pf.load(tmp_path / "broken.pt")


def test_a_type_of_blocks_that_is_not_decoded(tmp_path):
    content = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"x", 1, 256, 16, 0)
    (tmp_path / "x.gguf").write_bytes(content + bytes(-len(content) % 32 + 66))
    with pytest.raises(NotImplementedError, match="'x' has a type that cannot be read yet; got IQ2_XXS"):
        pf.load(tmp_path / "x.gguf")


def test_gguf_blocks_are_decoded():
    tensors, metadata = pf.load_gguf(DATA / "blocks.gguf")
    assert metadata["test.numbers"] == [1, 2, 3] and metadata["test.text"] == "ä" and metadata["test.yes"] is True
    assert metadata["test.half"] == 0.5 and metadata["test.words"] == ["a", "b"]
    with np.load(DATA / "blocks_decoded.npz") as decoded:
        assert set(decoded.files) == set(tensors) and len(tensors) == 17
        for name in decoded.files:
            assert np.array_equal(decoded[name], tensors[name].numpy()), name
    assert list(pf.load(DATA / "blocks.gguf")) == list(tensors)


def test_gguf_blocks_that_stay():
    """load_gguf is the one public function for it."""
    decoded, metadata = pf.load_gguf(DATA / "blocks.gguf")
    tensors, same = pf.load_gguf(DATA / "blocks.gguf", "cpu", packed=True)
    assert same == metadata and list(tensors) == list(decoded) and not hasattr(pf, "read_gguf_file")
    blocks = {name: t for name, t in tensors.items() if isinstance(t, tuple)}
    assert len(blocks) >= 5
    for name, t in tensors.items():
        if name in blocks:
            rows, type, columns = t
            assert rows.dtype == pf.uint8 and columns == decoded[name].shape[-1]
            t = pf.decode_blocks(rows.reshape(-1, rows.shape[-1]), type).reshape(decoded[name].shape)
        assert np.array_equal(t.numpy(), decoded[name].numpy()), name


def test_metadata_of_gguf_that_no_text_or_number_is(tmp_path):
    def entry(key, kind, value):
        return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value

    entries = [
        entry(b"text", 8, struct.pack("<Q4s", 4, b"a\xff\xc3\xa4")), entry(b"nan", 6, struct.pack("<f", math.nan)), entry(b"infinite", 12, struct.pack("<d", -math.inf)),
        entry(b"large", 10, struct.pack("<Q", 2**64 - 1)), entry(b"least", 11, struct.pack("<q", -(2**63))), entry(b"single", 6, struct.pack("<f", 0.1)),
        entry(b"nested", 9, struct.pack("<IQ", 9, 2) + struct.pack("<IQ", 7, 1) + b"\1" + struct.pack("<IQ", 8, 0)),
    ]  # fmt: skip
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    assert pf.load_gguf(tmp_path / "x.gguf") == ({}, {
        "text": "a\ufffdä", "nan": None, "infinite": None, "large": 2**64 - 1, "least": -(2**63), "single": float(np.float32(0.1)), "nested": [[True], []],
    })  # fmt: skip


def test_files_of_numpy(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert pf.load(tmp_path / "a.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    np.savez_compressed(tmp_path / "b.npz", x=np.arange(3), y=np.float32(2))
    loaded = pf.load(tmp_path / "b.npz")
    assert loaded["x"].tolist() == [0, 1, 2] and loaded["y"].dtype == pf.float32
    np.save(tmp_path / "c.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as a file of NumPy: Object arrays"):
        pf.load(tmp_path / "c.npy")


def test_dtypes_of_numpy_that_tensors_do_not_have(tmp_path):
    odd = {f"{order}{kind}": np.array([0, 1, 200], dtype=order + kind) for order in "<>" for kind in ("u2", "u4", "u8", "i2", "i8", "f2", "f4", "f8", "c8")}
    np.savez(tmp_path / "a.npz", **odd)
    dtypes = {"u2": pf.int32, "u4": pf.int64, "u8": pf.int64, "i2": pf.int16, "i8": pf.int64, "f2": pf.float16, "f4": pf.float32, "f8": pf.float64, "c8": pf.complex64}
    loaded = pf.load(tmp_path / "a.npz")
    assert {k: v.dtype for k, v in loaded.items()} == {k: dtypes[k[1:]] for k in odd} and all(v.tolist() == [0, 1, 200] for v in loaded.values())
    np.save(tmp_path / "b.npy", np.array([2**32 - 1], dtype=">u4"))
    assert pf.load(tmp_path / "b.npy").tolist() == [2**32 - 1]
    bad = {"large": np.array([2**63], dtype=np.uint64), "text": np.array(["a"]), "time": np.zeros(1, "M8[s]"), "objects": np.array([{}], dtype=object)}
    np.savez(tmp_path / "c.npz", x=np.arange(3), **bad)
    with pytest.warns(UserWarning, match=r"are left out: large \(uint64 with numbers from 2\*\*63 on\), text \(dtype <U1\), time \(dtype datetime64\[s\]\), objects"):
        loaded = pf.load(tmp_path / "c.npz")
    assert list(loaded) == ["x"]
    np.savez(tmp_path / "d.npz", **bad)
    np.save(tmp_path / "e.npy", bad["large"])
    for name, text in (("d.npz", r"no array of numbers; got large \(uint64"), ("e.npy", "got uint64 with numbers from")):
        with pytest.raises(ValueError, match=text):
            pf.load(tmp_path / name)


def shards(folder, places):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def test_a_folder_with_shards(tmp_path):
    pf.save({"a": pf.ones(2)}, tmp_path / "one.safetensors")
    pf.save({"b": pf.zeros(2)}, tmp_path / "two.safetensors")
    shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        assert {k: v.tolist() for k, v in pf.load(path).items()} == {"a": [1, 1], "b": [0, 0]}
    shards(tmp_path, {"a": "one.safetensors", "c": "two.safetensors"})
    with pytest.raises(ValueError, match="tensors that its files do not have; got c"):
        pf.load(tmp_path)
    shards(tmp_path, {"a": "three.safetensors"})
    with pytest.raises(FileNotFoundError, match="not there; got three.safetensors; hint: the download may be incomplete"):
        pf.load(tmp_path)
    shards(tmp_path, {"a": "../one.safetensors"})
    with pytest.raises(ValueError, match="files outside of its folder"):
        pf.load(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ValueError, match="not an index of weights"):
        pf.load(tmp_path)


def test_a_folder_with_one_file(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="has no weights; got config.json; expected model.safetensors"):
        pf.load(tmp_path)
    pf.save({"a": pf.ones(2)}, tmp_path / "pytorch_model.bin", format="pt")
    assert pf.load(tmp_path)["a"].tolist() == [1, 1]
    pf.save({"a": pf.zeros(2)}, tmp_path / "x.safetensors")
    pf.save({"a": pf.zeros(2)}, tmp_path / "y.safetensors")
    with pytest.raises(ValueError, match="several files with weights; got x.safetensors, y.safetensors"):
        pf.load(tmp_path)
    pf.save({"a": pf.full((2,), 2.0)}, tmp_path / "model.safetensors")
    assert pf.load(tmp_path)["a"].tolist() == [2, 2]


def test_tied_weights_of_a_safetensors_file(tmp_path):
    header = json.dumps({"__metadata__": {"format": "pt", "embed": "head"}, "head": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
    for what in (tmp_path, tmp_path / "model.safetensors"):
        loaded = pf.load(what)
        assert loaded["embed"].tolist() == loaded["head"].tolist() == [1, 2]


def test_map_location_of_a_torch_file():
    asked = []
    loaded = pf.load(DATA / "torch.pt", map_location=lambda t, location: asked.append(location))
    assert set(asked) == {"cpu"} and loaded["base"].device.type == "cpu"
    assert pf.load(DATA / "torch.pt", map_location={"cpu": "cpu"})["base"].shape == (3, 4)
    with pytest.raises(TypeError, match="map_location is of the wrong type; got int"):
        pf.load(DATA / "torch.pt", map_location=3)
    with pytest.raises(TypeError, match="not a device, dtype or tensor; got 3.5"):
        pf.load(DATA / "torch.pt", map_location=lambda t, location: 3.5)


def structure():
    tied = pf.tensor([1.0, 2.0])
    return {
        "a": pf.arange(6.0).view(2, 3), "t": pf.arange(6.0).view(2, 3).T, "tied": [tied, tied], "p": pf.nn.Parameter(pf.ones(2)), "bf": pf.tensor([1.5]).bfloat16(),
        "h": pf.tensor([1.5]).half(), "i": pf.arange(3), "b": pf.tensor([True]), "s": pf.tensor(3.0), "e": pf.zeros(0, 2), "n": None, "x": (1, 2.5, "ä", True, 2**40, -(2**70)),
        "bytes": b"\x00\xff", "set": {1}, "dt": pf.float16, "o": collections.OrderedDict(z=1), "z": [1 + 2j, complex("inf")],
    }  # fmt: skip


def check(loaded, of):
    """The same structure, tensors by dtype and values; of PyTorch's or PyFlame's tensors."""
    if isinstance(of, pf.Tensor):
        assert str(loaded.dtype).split(".")[-1] == of.dtype.name and tuple(loaded.shape) == tuple(of.shape)
        assert loaded.tolist() == of.tolist() and loaded.requires_grad == of.requires_grad
    elif isinstance(of, dict):
        assert list(loaded) == list(of)
        for k in of:
            check(loaded[k], of[k])
    elif isinstance(of, (list, tuple)):
        assert type(loaded) is type(of) and len(loaded) == len(of)
        for a, b in zip(loaded, of):
            check(a, b)
    elif isinstance(of, type(pf.float16)):
        assert str(loaded).split(".")[-1] == of.name
    else:
        assert loaded == of and type(loaded) is type(of) or isinstance(of, collections.OrderedDict)


def test_what_save_writes_for_pytorch(tmp_path):
    pf.save(structure(), tmp_path / "x.pt", format="pt")
    loaded = pf.load(tmp_path / "x.pt")
    check(loaded, structure())
    loaded["tied"][0][0] = 9.0
    assert loaded["tied"][1][0].item() == 9
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]
    file = io.BytesIO()
    pf.save([pf.ones(2)], file, format="pt")
    file.seek(0)
    assert pf.load(file)[0].tolist() == [1, 1]


def test_pytorch_reads_it(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pf.save(structure(), tmp_path / "x.pt", format="pt")
    loaded = torch.load(tmp_path / "x.pt", weights_only=True)
    check(loaded, structure())
    assert isinstance(loaded["p"], torch.nn.Parameter) and loaded["tied"][0].data_ptr() == loaded["tied"][1].data_ptr()


def test_what_save_refuses(tmp_path):
    pf.save({"a": 1}, tmp_path / "x.pt", format="pt")
    before = (tmp_path / "x.pt").read_bytes()
    with pytest.raises(TypeError, match="cannot save object at a.0"):
        pf.save({"a": [object()]}, tmp_path / "x.pt", format="pt")
    around = []
    around.append(around)
    with pytest.raises(ValueError, match="contains itself"):
        pf.save(around, tmp_path / "x.pt", format="pt")
    with pytest.raises(ValueError, match="unknown format; got 'zip'; expected 'safetensors' or 'pt'"):
        pf.save(1, tmp_path / "x.pt", format="zip")
    with pytest.raises(OSError, match="save: cannot write"):
        pf.save(1, tmp_path / "no" / "x.pt", format="pt")
    assert (tmp_path / "x.pt").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name,data,text", [
    ("notes.pt", b"hello world, this is a text", r"load: '.*notes.pt' has no format that is known; got the first bytes b'hello wo'; expected a file of safetensors, torch.save,.*cut file"),
    ("empty.bin", b"", "has no format that is known; got the first bytes b''"),
    ("model.onnx", b"\x08\x08\x12\x07pytorch" * 4, "has no format that is known.*hint: pyflame.onnx.load"),
    ("cut.safetensors", b"hello world, this is a text", "^load: .*cut.safetensors' is not a safetensors file"),
])
def test_files_of_no_known_format(tmp_path, name, data, text):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=text):
        pf.load(tmp_path / name)
