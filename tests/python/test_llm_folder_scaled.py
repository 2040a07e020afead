"""Folders with fp8 weights and with integers of compressed-tensors: written here, and compared with the model of the decoded weights."""
import json
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm import _folder_scaled
from pyflame.llm._packed import PackedWeight
from pyflame.testing import language_models as small

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
IDS = [3, 5, 7, 9]


def number(code, exponent_bits):
    """The number of an fp8 code: (-1)^s 2^(e - bias) (1 + m / 2^bits), and 2^(1 - bias) m / 2^bits where e is 0."""
    bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    e, m = code // 2**bits % 2**exponent_bits, code % 2**bits
    return (-1.0) ** (code // 128) * (2.0 ** (e - bias) * (1 + m / 2**bits) if e else 2.0 ** (1 - bias) * m / 2**bits)


def safetensors(path, tensors):
    """tensors: {name: (type, array)}."""
    header, body = {}, b""
    for name, (kind, array) in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(np.shape(array)), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + body)


def fp8(rng, shape, kind="F8_E4M3"):
    """(type, codes), and the numbers. The codes are those of numbers below 2, so no NaN or infinity is among them."""
    exponent_bits = 4 if kind == "F8_E4M3" else 5
    codes = rng.integers(0, number_below(2, exponent_bits), shape).astype(np.uint8) | (rng.integers(0, 2, shape) << 7).astype(np.uint8)
    table = np.array([number(c, exponent_bits) for c in range(256)], np.float32)
    return (kind, codes), table[codes]


def number_below(limit, exponent_bits):
    return next(c for c in range(128) if number(c, exponent_bits) >= limit)


def tensor_scale(rng, shape):
    s = np.float32(0.02 * (1 + rng.random()))
    return {"weight_scale": ("F32", s), "input_scale": ("F32", np.float32(3))}, s


def row_scale(rng, shape):
    s = (0.02 * (1 + rng.random((shape[0], 1)))).astype(np.float32)
    return {"weight_scale": ("F32", s)}, s


def bfloat16_row_scale(rng, shape):
    s = ((0.02 * (1 + rng.random(shape[0]))).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return {"weight_scale": ("BF16", s)}, (s.astype(np.uint32) << 16).view(np.float32)[:, None]


def block_scale(rng, shape, columns=24):
    s = (0.02 * (1 + rng.random((-(-shape[0] // 20), -(-shape[1] // columns))))).astype(np.float32)
    return {"weight_scale_inv": ("F32", s)}, np.array([[s[i // 20, j // columns] for j in range(shape[1])] for i in range(shape[0])])


def wide_block_scale(rng, shape):
    return block_scale(rng, shape, 48)


def of_fp8(scale, kind="F8_E4M3"):
    def parts(rng, shape):
        stored, numbers = fp8(rng, shape, kind)
        scales, each = scale(rng, shape)
        return {"weight": stored, **scales}, numbers * each

    return parts


def of_int8(rng, shape):
    q, (scales, each) = rng.integers(-127, 128, shape).astype(np.int8), row_scale(rng, shape)
    return {"weight": ("I8", q), "weight_scale": ("F32", scales["weight_scale"][1] / 100)}, q.astype(np.float32) * (each / 100).astype(np.float32)


def of_packed(bits, group):
    def parts(rng, shape):
        half, count = 2 ** (bits - 1), 32 // bits
        q = rng.integers(-half, half, shape)
        words = np.zeros((shape[0], shape[1] // count), np.uint32)
        for i in range(shape[1]):
            words[:, i // count] |= ((q[:, i] + half) << (i % count * bits)).astype(np.uint32)
        s = (0.1 * (1 + rng.random((shape[0], shape[1] // (group or shape[1])))) / half).astype(np.float16)
        each = np.array([[s[i, j // (group or shape[1])] for j in range(shape[1])] for i in range(shape[0])], np.float32)
        return {"weight_packed": ("I32", words.view(np.int32)), "weight_scale": ("F16", s), "weight_shape": ("I64", np.array(shape))}, q.astype(np.float32) * each

    return parts


def tensors_of(name, bits, kind, strategy, **more):
    return {"quant_method": "compressed-tensors", "format": name, "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, **more}}}}


def write(folder, form, make, damage=None):
    """Two folders: quantized, and with the float weights. damage(tensors) changes what is written."""
    rng, packed, plain = np.random.default_rng(0), {}, {}
    for name, value in small.random_weights(small.config_json("llama"), 3).items():
        base = name[: -len(".weight")]
        if base.split(".")[-1] in MATRICES:
            parts, plain[name] = make(rng, value.shape)
            packed.update({f"{base}.{k}": v for k, v in parts.items()})
        else:  # norms and embeddings in bfloat16, as such folders have them
            bits = (value.view(np.uint32) >> 16).astype(np.uint16)
            packed[name], plain[name] = ("BF16", bits), (bits.astype(np.uint32) << 16).view(np.float32)
    if damage:
        damage(packed)
    paths = [small.write_random_model(folder / kind, "llama", seed=3, **changes) for kind, changes in (("packed", {"quantization_config": form}), ("plain", {}))]
    safetensors(os.path.join(paths[0], "model.safetensors"), packed)
    pf.save({k: pf.tensor(np.asarray(v, np.float32), device="cpu") for k, v in plain.items()}, os.path.join(paths[1], "model.safetensors"))
    return paths


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
CASES = {
    "matrix": (FP8, of_fp8(tensor_scale)),
    "rows": (FP8, of_fp8(row_scale)),
    "bfloat16 scales": (FP8, of_fp8(bfloat16_row_scale)),
    "blocks": ({**FP8, "weight_block_size": [20, 24]}, of_fp8(block_scale)),
    "blocks of 48 columns": ({**FP8, "weight_block_size": [20, 48]}, of_fp8(wide_block_scale)),
    "e5m2": (FP8, of_fp8(tensor_scale, "F8_E5M2")),
    "compressed-tensors": (tensors_of("float-quantized", 8, "float", "channel"), of_fp8(row_scale)),
    "int8": (tensors_of("int-quantized", 8, "int", "channel"), of_int8),
    "4 bits in groups": (tensors_of("pack-quantized", 4, "int", "group", group_size=16), of_packed(4, 16)),
    "4 bits in groups of 32": (tensors_of("pack-quantized", 4, "int", "group", group_size=32), of_packed(4, 32)),
    "4 bits in rows": (tensors_of("pack-quantized", 4, "int", "channel"), of_packed(4, None)),
    "8 bits packed": (tensors_of("pack-quantized", 8, "int", "group", group_size=32), of_packed(8, 32)),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_of_the_decoded_weights(case, tmp_path):
    packed, plain = write(tmp_path, *CASES[case])
    want = pf.llm.load(plain).logits(IDS).numpy()
    np.testing.assert_allclose(pf.llm.load(packed, dtype=pf.float32).logits(IDS).numpy(), want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("case, type", [("int8", "Q8_0"), ("4 bits in rows", "Q4_0"), ("4 bits in groups of 32", "Q4_0"), ("4 bits in groups", None)])
def test_integers_stay_in_blocks(case, type, tmp_path):
    """Where blocks of 32 have one scale each. Products then round their inputs; the weights differ by a float16 scale's rounding."""
    packed, plain = write(tmp_path, *CASES[case])
    model, exact = pf.llm.load(packed), pf.llm.load(plain)
    weight, want = model._network.layers[0]["down"][0], exact._network.layers[0]["down"][0].numpy()
    assert (weight.type if isinstance(weight, PackedWeight) else None) == type
    if type is not None:
        tensors = _folder_scaled.read(packed, _folder_scaled.form_of(CASES[case][0], packed), None)
        got = tensors["model.layers.0.mlp.down_proj.weight"].decoded().numpy()
        np.testing.assert_allclose(got, want, rtol=2**-10, atol=1e-7)
        logits = exact.logits(IDS).numpy()
        assert 0 < np.abs(model.logits(IDS).numpy() - logits).std() < 0.03 * logits.std()


@pytest.mark.parametrize("case, type", [
    ("matrix", "F8_E4M3"), ("rows", "F8_E4M3"), ("bfloat16 scales", "F8_E4M3"), ("blocks of 48 columns", "F8_E4M3:48"), ("e5m2", "F8_E5M2"), ("compressed-tensors", "F8_E4M3"), ("blocks", None)])  # fmt: skip
def test_8_bit_floats_keep_their_codes(case, type, tmp_path):
    """Where rows and blocks have multiples of 16 columns. Weights and inputs are not rounded, so logits are those of the decoded weights."""
    packed, plain = write(tmp_path, *CASES[case])
    model, exact = pf.llm.load(packed), pf.llm.load(plain)
    weight, want = model._network.layers[0]["down"][0], exact._network.layers[0]["down"][0].numpy()
    assert (weight.type if isinstance(weight, PackedWeight) else None) == type
    if type is not None:
        scales = -(-want.shape[1] // int(type.partition(":")[2] or want.shape[1]))
        assert weight.nbytes == want.shape[0] * (want.shape[1] + -(-4 * scales // 16) * 16)
        tensors = _folder_scaled.read(packed, _folder_scaled.form_of(CASES[case][0], packed), None)
        np.testing.assert_allclose(tensors["model.layers.0.mlp.down_proj.weight"].decoded().numpy(), want, rtol=1e-6)
    logits = exact.logits(IDS).numpy()
    np.testing.assert_allclose(model.logits(IDS).numpy(), logits, rtol=0, atol=2e-5 * np.abs(logits).max())


@pytest.mark.parametrize("case", ["rows", "blocks of 48 columns"])
def test_parts_of_8_bit_floats(case, tmp_path):
    """The rows and columns that the ranks of tensor parallelism have."""
    packed, _ = write(tmp_path, *CASES[case])
    tensors = _folder_scaled.read(packed, _folder_scaled.form_of(CASES[case][0], packed), None)
    weight = tensors["model.layers.0.mlp.down_proj.weight"]
    want, middle = weight.decoded().numpy(), weight.shape[1] // 96 * 48
    for begin, end in ((0, middle), (middle, weight.shape[1])):
        part = weight.part_of_columns(begin, end)
        assert part.shape == (weight.shape[0], end - begin)
        np.testing.assert_array_equal(part.decoded().numpy(), want[:, begin:end])


def test_codes_that_are_not_finite(tmp_path):
    """They are errors, also where a row divides into units; a scale with which a code that is not there would be infinite is none."""
    def change(value):
        def damage(tensors):
            kind, codes = tensors[f"{Q}.weight"]
            codes = np.array(codes)
            codes[3, 5] = value
            tensors[f"{Q}.weight"] = kind, codes
        return damage

    for value in (0x7F, 0xFF):
        with pytest.raises(ValueError, match="is not finite; got NaN or infinity"):
            pf.llm.load(write(tmp_path / str(value), *CASES["rows"], change(value))[0])
    with pytest.raises(ValueError, match="is not finite"):
        pf.llm.load(write(tmp_path / "e5m2", *CASES["e5m2"], change(0x7C))[0])


def test_weights_in_16_bits(tmp_path):
    packed, plain = write(tmp_path, *CASES["blocks"])
    want = pf.llm.load(plain, dtype=pf.bfloat16).logits(IDS).numpy()
    np.testing.assert_allclose(pf.llm.load(packed, dtype=pf.bfloat16).logits(IDS).numpy(), want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_several_files(tmp_path):
    packed, plain = write(tmp_path, *CASES["matrix"])
    whole, parts = os.path.join(packed, "model.safetensors"), [{}, {}]
    for i, (name, kind, array) in enumerate(_folder_scaled._arrays(whole)):
        parts[i % 2][name] = kind, np.array(array)
    os.remove(whole)
    for i, part in enumerate(parts):
        safetensors(os.path.join(packed, f"model-{i}.safetensors"), part)
    index = os.path.join(packed, "model.safetensors.index.json")
    with open(index, "w", encoding="utf-8") as f:
        json.dump({"weight_map": {name: f"model-{i}.safetensors" for i, part in enumerate(parts) for name in part}}, f)
    np.testing.assert_allclose(pf.llm.load(packed).logits(IDS).numpy(), pf.llm.load(plain).logits(IDS).numpy(), atol=1e-5)
    with open(index, "w", encoding="utf-8") as f:
        json.dump({"weight_map": {"x": "../model.safetensors"}}, f)
    with pytest.raises(ValueError, match="names a file elsewhere; got '../model.safetensors'"):
        pf.llm.load(packed)


def test_all_numbers_of_8_bits():
    for kind, exponent_bits, known in (("F8_E4M3", 4, {0x38: 1, 0x7E: 448, 0x01: 2.0**-9, 0xB8: -1}), ("F8_E5M2", 5, {0x3C: 1, 0x7B: 57344, 0x01: 2.0**-16})):
        table = _folder_scaled._float(kind, np.arange(256, dtype=np.uint8))
        assert all(table[c] == value for c, value in known.items())
        finite = np.isfinite(table)
        assert [float(x) for x in table[finite]] == [number(c, exponent_bits) for c in np.flatnonzero(finite)]
        assert np.flatnonzero(np.isnan(table)).tolist() == ([0x7F, 0xFF] if kind == "F8_E4M3" else [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF])
        assert np.flatnonzero(np.isinf(table)).tolist() == ([] if kind == "F8_E4M3" else [0x7C, 0xFC])


Q = "model.layers.0.self_attn.q_proj"


def changed(name, value):
    return lambda tensors: tensors.update({f"{Q}.{name}": value(*tensors[f"{Q}.{name}"])})


@pytest.mark.parametrize("case, damage, error, message", [
    ("matrix", lambda t: t.pop(f"{Q}.weight_scale"), ValueError, "is not complete; got no scale"),
    ("matrix", lambda t: t.update({f"{Q}.weight_scale_inv": ("F32", np.float32(1))}), ValueError, "is not complete; got weight_scale and weight_scale_inv"),
    ("matrix", lambda t: t.pop(f"{Q}.weight"), ValueError, "is not complete; got weight_scale without numbers of few bits"),
    ("rows", changed("weight_scale", lambda k, a: (k, a[1:])), ValueError, r"has scales that do not fit; got \(63, 1\); expected one number, or 64"),
    ("blocks", changed("weight_scale_inv", lambda k, a: (k, a[:, 1:])), ValueError, r"has scales that do not fit; got \(4, 2\); expected \(4, 3\)"),
    ("matrix", changed("weight", lambda k, a: (k, a | np.uint8(0x7F))), ValueError, "is not finite"),
    ("matrix", changed("weight", lambda k, a: ("I8", a.view(np.int8))), ValueError, "has a wrong form; got shape .* I8; expected a matrix of F8_E4M3 or F8_E5M2"),
    ("matrix", changed("weight_scale", lambda k, a: ("F8_E8M0", np.zeros(1, np.uint8))), NotImplementedError, "has a type that is not available; got F8_E8M0"),
    ("4 bits in groups", lambda t: t.pop(f"{Q}.weight_shape"), ValueError, "has a weight_shape that does not fit; got none"),
    ("4 bits in groups", lambda t: t.update({f"{Q}.weight_g_idx": ("I32", np.zeros(64, np.int32))}), NotImplementedError, "has its groups in an order of their own"),
    ("int8", lambda t: t.update({f"{Q}.weight_zero_point": ("I8", np.ones((64, 1), np.int8))}), NotImplementedError, "has zero points, which are not available"),
])  # fmt: skip
def test_damaged_matrices(case, damage, error, message, tmp_path):
    with pytest.raises(error, match=message):
        pf.llm.load(write(tmp_path, *CASES[case], damage)[0])


@pytest.mark.parametrize("form, message", [
    ({**FP8, "weight_block_size": [128]}, r"a block of \[128\]; expected two positive numbers"),
    (tensors_of("mxfp4-quantized", 4, "float", "group"), "got format 'mxfp4-quantized' with 1 groups of layers"),
    ({**tensors_of("float-quantized", 8, "float", "tensor"), "config_groups": {}}, "with 0 groups of layers"),
    (tensors_of("pack-quantized", 3, "int", "group", group_size=16), "got 3 bits, type 'int', strategy 'group', symmetric True"),
    (tensors_of("pack-quantized", 4, "int", "group", group_size=16, symmetric=False), "symmetric False"),
    (tensors_of("int-quantized", 8, "int", "token"), "strategy 'token'"),
])  # fmt: skip
def test_kinds_that_are_not_available(form, message, tmp_path):
    with pytest.raises(NotImplementedError, match=message):
        pf.llm.load(write(tmp_path, form, CASES["matrix"][1])[0])


def test_damaged_files(tmp_path):
    path = write(tmp_path, *CASES["matrix"])[0]
    file = os.path.join(path, "model.safetensors")
    with open(file, "rb") as f:
        good = f.read()
    header = json.loads(good[8:8 + int.from_bytes(good[:8], "little")])
    name = f"{Q}.weight"

    def with_entry(**changes):
        text = json.dumps({**header, name: {**header[name], **changes}}).encode()
        return len(text).to_bytes(8, "little") + text + good[8 + int.from_bytes(good[:8], "little"):]

    for data, message in (
        (b"", "is damaged; got 0 bytes"), (good[:4], "is damaged; got 4 bytes"), (b"\xff" * 8 + good[8:], "a header of 18446744073709551615"), (good[:8] + b"[" + good[9:], "JSONDecodeError in the header"),
        ((2).to_bytes(8, "little") + b"[]", "a header of list"), (good[:-5], "is damaged"), (with_entry(shape=[1 << 40, 1 << 40]), "is damaged"), (with_entry(shape=[-1, 2]), "not complete"),
        (with_entry(data_offsets=[0, 5]), "is damaged"), (with_entry(dtype=7), "not complete"),
    ):  # fmt: skip
        with open(file, "wb") as f:
            f.write(data)
        with pytest.raises(ValueError, match=message):
            pf.llm.load(path)
    os.remove(file)
    with pytest.raises(FileNotFoundError, match="cannot open the file"):
        pf.llm.load(path)
