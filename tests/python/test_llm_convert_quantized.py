"""`pf.llm.convert` of folders with quantized weights: AWQ, GPTQ, fp8 and compressed-tensors."""
import json
import os

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
import test_llm_folder_blocks as blocks  # noqa: E402
import test_llm_folder_scaled as scaled  # noqa: E402
from pyflame.llm import conversion  # noqa: E402
from pyflame.llm.conversion import _quantized  # noqa: E402
from pyflame.llm.conversion.__main__ import main  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

IDS = [3, 5, 7, 9]
GROUPS = {"group_size": 32}
SCALED = {name: scaled.CASES[name] for name in ("matrix", "rows", "blocks", "e5m2", "compressed-tensors", "int8", "4 bits in groups", "4 bits in groups of 32", "4 bits in rows", "8 bits packed")}


def write(case, folder):
    """(the folder with quantized weights, the same with float weights)."""
    if case in SCALED:
        return scaled.write(folder, *SCALED[case])
    form, order = {
        "gptq": (blocks.GPTQ, False), "gptq in groups of 32": ({**blocks.GPTQ, **GROUPS}, False), "gptq in order": ({**blocks.GPTQ, **GROUPS}, True), "gptq 8 bits": ({**blocks.GPTQ, "bits": 8}, False),
        "awq": (blocks.AWQ, False), "awq in groups of 32": ({**blocks.AWQ, **GROUPS}, False),
    }[case]  # fmt: skip
    return blocks.write(folder, form, order)


# What the matrices of layers are in a GGUF file without a type, and what the report calls those of the source.
KINDS = {
    "gptq": ("F32", "gptq 4 bits"), "gptq in groups of 32": ("Q4_1", "gptq 4 bits"), "gptq in order": ("F32", "gptq 4 bits"), "gptq 8 bits": ("F32", "gptq 8 bits"),
    "awq": ("F32", "awq 4 bits"), "awq in groups of 32": ("Q4_1", "awq 4 bits"), "matrix": ("F32", "fp8"), "rows": ("F32", "fp8"), "blocks": ("F32", "fp8"), "e5m2": ("F32", "fp8"),
    "compressed-tensors": ("F32", "fp8"), "int8": ("Q8_0", "int8"), "4 bits in groups": ("F32", "4 bits"), "4 bits in groups of 32": ("Q4_0", "4 bits"), "4 bits in rows": ("Q4_0", "4 bits"),
    "8 bits packed": ("Q8_0", "8 bits"),
}  # fmt: skip


def logits(path, **options):
    return pf.llm.load(path, **options).logits(IDS).numpy()


def arrays(path):
    return {name: t.float().numpy() for name, t in pf.load(os.path.join(path, "model.safetensors")).items()}


@pytest.mark.parametrize("case", KINDS)
def test_to_a_folder(case, tmp_path):
    """The float weights, exactly, and all other files."""
    packed, plain = write(case, tmp_path)
    done = conversion.convert(packed, tmp_path / "floats")
    got, want = arrays(tmp_path / "floats"), arrays(plain)
    assert got.keys() == want.keys() and all(np.array_equal(got[k], want[k].reshape(got[k].shape)) for k in want)
    np.testing.assert_array_equal(logits(tmp_path / "floats"), logits(plain))
    assert {t.source for t in done.tensors if "_proj" in t.name} == {KINDS[case][1]} and all(t.relative == t.largest == 0 for t in done.tensors)
    config = json.loads((tmp_path / "floats" / "config.json").read_text())
    assert "quantization_config" not in config and config["torch_dtype"] == "float32"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "floats" / name).read_bytes() == open(os.path.join(packed, name), "rb").read()


@pytest.mark.parametrize("case", KINDS)
def test_to_gguf(case, tmp_path):
    """Blocks stay blocks where GGUF has them; the report has what rounding the scales to float16 costs."""
    packed, plain = write(case, tmp_path)
    type, source = KINDS[case]
    done = conversion.convert(packed, tmp_path / "m.gguf")
    matrices = [t for t in done.tensors if t.name.startswith("blk.") and len(t.name.split(".")) == 4 and "norm" not in t.name]
    assert len(matrices) == 28 and {(t.source, t.type) for t in matrices} == {(source, type)}
    weights, exact = (pf.llm.load(p, dtype=pf.float32)._network.layers for p in (tmp_path / "m.gguf", plain))
    differences = np.abs(weights[1]["down"][0].numpy() - exact[1]["down"][0].numpy())
    largest = next(t.largest for t in matrices if t.name == "blk.1.ffn_down.weight")
    assert largest == pytest.approx(differences.max(), rel=1e-5)
    assert largest == 0 if type == "F32" else largest < 0.002
    if type == "Q4_1":
        assert largest > 0
    if type == "F32":
        np.testing.assert_allclose(logits(tmp_path / "m.gguf"), logits(plain), rtol=1e-4, atol=1e-4)
    else:  # as the folder itself is computed
        np.testing.assert_allclose(logits(tmp_path / "m.gguf"), logits(packed), rtol=1e-4, atol=1e-4 * np.abs(logits(packed)).max())


@pytest.mark.parametrize("case", ["awq in groups of 32", "rows"])
def test_to_another_type(case, tmp_path):
    """It is rounded from the exact numbers: as from the folder with floats."""
    packed, plain = write(case, tmp_path)
    a, b = conversion.convert(packed, tmp_path / "a.gguf", "Q8_0"), conversion.convert(plain, tmp_path / "b.gguf", "Q8_0")
    errors = {t.name: (t.type, t.relative, t.largest) for t in b.tensors}
    assert {t.name: (t.type, t.relative, t.largest) for t in a.tensors} == errors and max(e[1] for e in errors.values()) > 1e-4
    c = conversion.convert(packed, tmp_path / "c", "BF16")
    assert {t.type for t in c.tensors} == {"BF16"} and 0 < c.layers()["blk.0"][0] < 0.01
    assert json.loads((tmp_path / "c" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_parts_of_tensors(tmp_path, monkeypatch):
    packed, _ = write("awq in groups of 32", tmp_path)
    conversion.convert(packed, tmp_path / "a.gguf")
    monkeypatch.setattr(conversion, "_AT_ONCE", 300)
    conversion.convert(packed, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_experts(tmp_path):
    """Experts of few bits become one tensor; the report is that of the numbers."""
    rng, packed, plain = np.random.default_rng(0), {}, {}
    for name, value in small.random_weights(small.config_json("mixtral"), 3).items():
        if ".experts." in name or "_proj" in name:
            parts, plain[name] = scaled.of_packed(4, 32)(rng, value.shape)
            packed.update({f"{name[:-7]}.{k}": v for k, v in parts.items()})
        else:
            packed[name], plain[name] = ("F32", value), value
    form = scaled.tensors_of("pack-quantized", 4, "int", "group", group_size=32)
    folder, floats = (small.write_random_model(tmp_path / n, "mixtral", **c) for n, c in (("packed", {"quantization_config": form}), ("plain", {})))
    scaled.safetensors(os.path.join(folder, "model.safetensors"), packed)
    pf.save({k: pf.tensor(np.asarray(v, np.float32)) for k, v in plain.items()}, os.path.join(floats, "model.safetensors"))
    done = conversion.convert(folder, tmp_path / "m.gguf")
    stack = next(t for t in done.tensors if t.name == "blk.0.ffn_up_exps.weight")
    assert (stack.source, stack.type) == ("4 bits", "Q4_0") and stack.relative < 1e-3
    np.testing.assert_allclose(logits(tmp_path / "m.gguf", dtype=pf.float32), logits(floats), rtol=1e-4, atol=1e-3)
    conversion.convert(folder, tmp_path / "back")
    np.testing.assert_array_equal(logits(tmp_path / "back"), logits(floats))


def test_scales_of_activations_are_not_needed(tmp_path):
    packed, plain = scaled.write(tmp_path, scaled.FP8, scaled.of_fp8(scaled.tensor_scale), lambda t: t.update({"model.layers.0.self_attn.k_scale": ("F32", np.float32(2))}))
    conversion.convert(packed, tmp_path / "m.gguf")
    np.testing.assert_allclose(logits(tmp_path / "m.gguf"), logits(plain), rtol=1e-4, atol=1e-4)


def test_several_files(tmp_path):
    packed, plain = write("awq", tmp_path)
    names = sorted(t := pf.load(os.path.join(packed, "model.safetensors")))
    for i in range(2):
        pf.save({n: t[n] for n in names[i::2]}, os.path.join(packed, f"model-{i}.safetensors"))
    os.remove(os.path.join(packed, "model.safetensors"))
    with open(os.path.join(packed, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"weight_map": {n: f"model-{i % 2}.safetensors" for i, n in enumerate(names)}}, f)
    done = conversion.convert(packed, tmp_path / "floats")
    assert done.bytes_before == sum(os.path.getsize(os.path.join(packed, f"model-{i}.safetensors")) for i in range(2))
    assert not (tmp_path / "floats" / "model.safetensors.index.json").exists()
    np.testing.assert_array_equal(logits(tmp_path / "floats"), logits(plain))


def test_matrices_are_not_held_after_they_are_written(tmp_path):
    packed, _ = write("awq in groups of 32", tmp_path)
    found = _quantized.read(packed, blocks.AWQ | GROUPS, lambda path: None)
    w = found["model.layers.0.mlp.down_proj.weight"]
    assert not w._held and w.raw(0, 8).shape == (8, 60) and w.rows(0, 8).shape == (8, 96) and set(w._held) == {"blocks", "numbers"}
    w.raw(8, w.height), w.rows(8, w.height)
    assert not w._held


def test_the_command(tmp_path, capsys):
    packed, _ = write("awq in groups of 32", tmp_path)
    assert main([str(packed), str(tmp_path / "m.gguf"), "--perplexity"]) == 0
    out = capsys.readouterr().out
    assert "Q4_1" in out and "perplexity: " in out
    assert main([str(packed), str(tmp_path / "floats"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"]["blk.0"]["types"] == ["F32"]


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda p: blocks.write(p, blocks.GPTQ, damage=lambda t: t.pop("scales")), ValueError, "is not complete; got no scales"),
        (lambda p: [small.write_random_model(p / "a", "llama", quantization_config={**blocks.GPTQ, "bits": 3})], NotImplementedError, "gptq weights of a kind that is not available; got bits 3"),
        (lambda p: scaled.write(p, *scaled.CASES["rows"], lambda t: t.pop("model.layers.1.mlp.down_proj.weight_scale")), ValueError, "is not complete; got no scale"),
        (lambda p: scaled.write(p, *scaled.CASES["rows"], lambda t: [t.pop(f"model.layers.1.mlp.down_proj.{k}") for k in ("weight", "weight_scale")]), ValueError, "the weights do not fit the model's description; got no blk.1.ffn_down.weight"),
        (lambda p: scaled.write(p, *scaled.CASES["rows"], lambda t: t.pop("model.layers.1.mlp.down_proj.weight")), ValueError, "is not complete; got weight_scale without numbers of few bits; expected weight too"),
        (lambda p: scaled.write(p, *scaled.CASES["rows"], lambda t: t.update({"model.norm.weight": ("F64", np.ones(64))})), ValueError, "a tensor has a dtype that is not available; got F64 of 'model.norm.weight'"),
        (lambda p: scaled.write(p, *scaled.CASES["rows"], lambda t: t.update({"model.layers.1.mlp.down_proj.weight_scale": ("U16", np.ones(64, np.uint16))})), NotImplementedError, "has a type that is not available; got U16 of weight_scale"),
        (lambda p: [small.write_random_model(p / "a", "gpt2", quantization_config=blocks.AWQ)], NotImplementedError, "the folder has quantized weights, which are not available for this architecture; got 'gpt2'"),
        (lambda p: [small.write_random_model(p / "a", "llama", quantization_config={"quant_method": "bitsandbytes"})], NotImplementedError, "got quantization_config of 'bitsandbytes'"),
    ],
)
def test_refused_before_anything_is_written(make, error, message, tmp_path):
    packed = make(tmp_path)[0]
    for target in ("m.gguf", "floats"):
        with pytest.raises(error, match=message):
            conversion.convert(packed, tmp_path / target)
        assert not (tmp_path / target).exists()
