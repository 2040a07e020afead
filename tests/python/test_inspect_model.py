"""`pyflame inspect-model`: what it shows of each format, and what it refuses."""
import json
import os
import pathlib
import struct
import sys

import numpy as np
import pyflame as pf
import pytest

DATA = pathlib.Path(__file__).parent / "data"


def document(run, path):
    return json.loads(run("inspect-model", "--json", str(path)).stdout)


def rows(doc):
    return {t["name"]: (t["shape"], t["dtype"], t["bytes"]) for t in doc["tensors"]}


def test_safetensors_by_layer(run, tmp_path):
    path = tmp_path / "m.safetensors"
    pf.save({f"layers.{i}.w": pf.ones(2, 3) for i in (0, 1, 2, 3)} | {"head": pf.zeros(5).half(), "layers.7.w": pf.ones(2, 3)}, path)
    doc = document(run, path)
    assert doc["format"] == "safetensors" and doc["totals"] == {"tensors": 6, "elements": 35, "bytes": 130} and doc["file_bytes"] == path.stat().st_size
    assert rows(doc)["layers.2.w"] == ([2, 3], "float32", 24) and doc["metadata"] == {"format": "pyflame-1"}
    groups = {g["name"]: (g["count"], g["elements"], g["bytes"]) for g in doc["groups"]}
    assert groups == {"layers.{0,…,7}.w": (5, 30, 120), "head": (1, 5, 10)}
    assert [d["name"] for d in doc["dtypes"]] == ["float32", "float16"]
    text = run("inspect-model", str(path)).stdout
    assert "6 tensors, 35 elements" in text and "layers.{0,…,7}.w  2 x 3" in text and "--all has a row for each" in text
    assert "layers.3.w" in run("inspect-model", "--all", str(path)).stdout


def test_files_of_pytorch(run):
    doc = document(run, DATA / "torch.pt")
    assert doc["format"] == "PyTorch zip archive" and rows(doc)["transposed"] == ([4, 3], "float32", 0) and rows(doc)["base"][2] == 48
    assert {t["name"]: t.get("shares") for t in doc["tensors"]}["part"] == "base" and doc["notes"] == []
    assert rows(document(run, DATA / "torch_legacy.pt")) == rows(doc)
    assert rows(document(run, DATA / "torchscript.pt"))["layer.weight"] == ([1, 2], "float32", 8)
    module = document(run, DATA / "torch_module.pt")
    assert rows(module)["weight"][0] == [1, 2] and "not data: pf.load refuses this file" in module["notes"][0]


def test_gguf(run):
    doc = document(run, DATA / "blocks.gguf")
    assert doc["format"] == "GGUF version 3" and doc["metadata"]["test.words"] == ["a", "b"]
    assert rows(doc)["Q6_K"] == ([1, 256], "Q6_K", 210) and rows(doc)["float16"] == ([2, 3, 4], "float16", 48)


def test_files_of_numpy(run, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), dtype=">i4"))
    assert rows(document(run, tmp_path / "a.npy"))["array"][:2] == ([2, 3], "int32 (big-endian)")
    np.savez(tmp_path / "b.npz", x=np.zeros((), np.uint16), y=np.zeros((4, 1)))
    np.savez_compressed(tmp_path / "c.npz", x=np.zeros((), np.uint16), y=np.zeros((4, 1)))
    for name in ("b.npz", "c.npz"):
        assert {k: v[:2] for k, v in rows(document(run, tmp_path / name)).items()} == {"x": ([], "uint16"), "y": ([4, 1], "float64")}


def test_a_folder(run, tmp_path):
    pf.save({"a": pf.ones(2)}, tmp_path / "one.safetensors")
    pf.save({"b": pf.ones(3)}, tmp_path / "two.safetensors")
    pf.save({"other": pf.ones(3)}, tmp_path / "consolidated.pth", format="pt")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "three.safetensors"}}))
    doc = document(run, tmp_path)
    assert {t["name"]: t["file"] for t in doc["tensors"]} == {"a": "one.safetensors", "b": "two.safetensors"}
    assert doc["notes"] == ["The index names a file that is not there: three.safetensors"] and doc["format"] == "folder of safetensors"


def test_page(run, tmp_path):
    name = "<script>alert(1)</script>"
    pf.save({name: pf.ones(2)}, tmp_path / "m.safetensors")
    run("inspect-model", str(tmp_path / "m.safetensors"), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "1 tensor," in page and name not in page and "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    "content, message",
    [
        (b"plain text that is no model", "its format is not known; expected safetensors, GGUF, torch.save"),
        (b"", "its format is not known"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "GGUF version is not supported; got 9"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': [('a', '<f4')], 'shape': (1,)}", "dtype of several fields"),
    ],
)
def test_what_is_refused(run, tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    failed = run("inspect-model", str(tmp_path / "x"), code=1)
    assert message in failed.stderr and failed.stderr.count("\n") == 1


def test_no_weights(run, tmp_path):
    assert "has no files with weights" in run("inspect-model", str(tmp_path), code=1).stderr
    assert "No such file" in run("inspect-model", str(tmp_path / "none"), code=1).stderr


def test_a_name_with_a_control_character(run, tmp_path):
    header = json.dumps({f"a.\x01.{i}.x": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in (0, 1)}).encode()
    file = tmp_path / "odd.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert [g["name"] for g in document(run, file)["groups"]] == ["a.\x01.{0…1}.x"]


def test_a_package_stands_for_its_model(run, tmp_path):
    package, info = tmp_path / "small_model", tmp_path / "small_model-1.0.dist-info"
    package.mkdir(), info.mkdir()
    pf.save({"w": pf.ones(2, 3)}, package / "model.safetensors")
    (package / "config.json").write_text("{}")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: small_model\nVersion: 1.0\n")
    (info / "RECORD").write_text("small_model/model.safetensors,,\nsmall_model/config.json,,\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = ["inspect-model", "--python", sys.executable]
    doc = json.loads(run(*words, "--json", "small-model", env=environment).stdout)
    assert doc["path"] == str(package) and rows(doc)["w"] == ([2, 3], "float32", 24)
    run(*words, "small-model", "--html", "page.html", env=environment, cwd=tmp_path)
    assert "small_model" in (tmp_path / "page.html").read_text()
    assert "1 tensor, 6 elements" in run(*words, "--all", "small-model", env=environment).stdout
    for other in ("small.model", "Small_Model"):  # names of packages are compared without regard to case, dots, hyphens and underscores
        assert json.loads(run(*words, "--json", other, env=environment).stdout)["path"] == str(package)
    assert "got 'no.such-model2'; expected a file of weights" in run(*words, "no.such-model2", code=1).stderr
    failed = run(*words, "no-such-model", code=1)
    assert failed.stderr.startswith("pyflame: inspect-model: there is no such file, and no installed package of this name; got 'no-such-model'; expected a file of weights, a folder with some, or a package with a model; hint: ")
    assert failed.stdout == ""


@pytest.mark.parametrize("name", ["missing.safetensors", "missing.v1.gguf", "missing.npz", ".missing", "missing model", "missing."])
def test_what_is_no_name_of_a_package_is_a_file(run, name):
    """The interpreter, which would look for a package, is not started."""
    assert "no installed package" not in run("inspect-model", "--python", "no-such-python", name, code=1).stderr
