"""GPTQ and AWQ folders: written here bit by bit, and compared with the model of the decoded weights."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm import _folder_blocks
from pyflame.llm._packed import PackedWeight
from pyflame.testing import language_models as small

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def words(values, bits):
    """Rows of integers as int32, the first value in the lowest bits."""
    count = 32 // bits
    out = np.zeros((values.shape[0], values.shape[1] // count), np.int64)
    for k in range(count):
        out |= values[:, k::count].astype(np.int64) << (k * bits)
    return out.astype(np.uint32).view(np.int32)


def awq_words(values):
    return words(np.concatenate([values[:, i : i + 8][:, [0, 2, 4, 6, 1, 3, 5, 7]] for i in range(0, values.shape[1], 8)], 1), 4)


def write(folder, form, act_order=False, damage=None):
    """Two folders: quantized, and with the float weights. damage(parts) changes each matrix' tensors."""
    rng = np.random.default_rng(0)
    bits, group, awq = form["bits"], form["group_size"], form["quant_method"] == "awq"
    packed, plain = {}, {}
    for name, value in small.random_weights(small.config_json("llama"), 3).items():
        base = name[: -len(".weight")]
        if base.split(".")[-1] not in MATRICES:
            packed[name] = plain[name] = value
            continue
        columns, rows = value.shape
        size = rows if group == -1 else group
        q, z = rng.integers(0, 2**bits, (rows, columns)), rng.integers(1, 2**bits, (rows // size, columns))
        s = (rng.random(z.shape) * 0.2 / 2**bits + 0.01 / 2**bits).astype(np.float16)
        g = np.arange(rows) // size
        if act_order:
            rng.shuffle(g)
        w = np.empty((columns, rows), np.float32)
        for i in range(rows):
            w[:, i] = s[g[i]].astype(np.float32) * (q[i] - z[g[i]])
        plain[name] = w
        stored = z if awq or form.get("checkpoint_format") == "gptq_v2" else z - 1
        parts = {"qweight": awq_words(q), "qzeros": awq_words(stored)} if awq else {"qweight": words(q.T, bits).T.copy(), "qzeros": words(stored, bits), "g_idx": g.astype(np.int32)}
        parts["scales"] = s
        if damage:
            damage(parts)
        packed.update({f"{base}.{k}": v for k, v in parts.items()})
    paths = []
    for kind, tensors, changes in (("packed", packed, {"quantization_config": form}), ("plain", plain, {})):
        paths.append(small.write_random_model(folder / kind, "llama", seed=3, **changes))
        pf.save({k: pf.tensor(v, device="cpu") for k, v in tensors.items()}, os.path.join(paths[-1], "model.safetensors"))
    return paths


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 8}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm"}


@pytest.mark.parametrize("form, act_order", [(GPTQ, False), (GPTQ, True), ({**GPTQ, "bits": 8}, False), ({**GPTQ, "checkpoint_format": "gptq_v2"}, False), ({**GPTQ, "group_size": -1}, False), (AWQ, False)])
def test_logits_of_the_decoded_weights(form, act_order, tmp_path):
    packed, plain = write(tmp_path, form, act_order)
    ids = [3, 5, 7, 9]
    np.testing.assert_array_equal(pf.llm.load(packed, dtype=pf.float32).logits(ids).numpy(), pf.llm.load(plain).logits(ids).numpy())


@pytest.mark.parametrize("form, act_order, type", [({**GPTQ, "group_size": 32}, False, "Q4_1"), ({**AWQ, "group_size": 32}, False, "Q4_1"), ({**GPTQ, "group_size": -1}, False, "Q4_1"),
                                                   ({**GPTQ, "group_size": 32}, True, None), ({**GPTQ, "bits": 8, "group_size": 32}, False, None), (GPTQ, False, None)])  # fmt: skip
def test_weights_stay_in_blocks(form, act_order, type, tmp_path):
    """Where 32 numbers that follow each other have one scale and one zero. Products then round their inputs."""
    packed, plain = write(tmp_path, form, act_order)
    model, exact = pf.llm.load(packed), pf.llm.load(plain)
    weight = model._network.layers[0]["down"][0]
    assert (weight.type if isinstance(weight, PackedWeight) else None) == type
    if type is not None:
        matrix = _folder_blocks.taken(pf.load(packed, map_location="cpu"), _folder_blocks.settings(form, packed), None)["model.layers.0.mlp.down_proj.weight"].decoded().numpy()
        want = exact._network.layers[0]["down"][0].numpy()
        np.testing.assert_allclose(matrix, want, rtol=0, atol=2**-10 * np.abs(want).max())
        logits = exact.logits([3, 5, 7, 9]).numpy()
        assert 0 < np.abs(model.logits([3, 5, 7, 9]).numpy() - logits).std() < 0.03 * logits.std()


@pytest.mark.parametrize("damage, error, message", [
    (lambda p: p.pop("scales"), ValueError, "is not complete; got no scales"),
    (lambda p: p.update(scales=p["scales"][:, 1:].copy()), ValueError, "has shapes that do not fit"),
    (lambda p: p.update(qzeros=p["qzeros"][0].copy()), ValueError, "has a wrong qzeros"),
    (lambda p: p.update(g_idx=p["g_idx"] + 1), ValueError, "has a wrong g_idx"),
    (lambda p: p.update(g_idx=p["g_idx"] - 1), ValueError, "has a wrong g_idx"),
    (lambda p: p.update(qzeros=np.full_like(p["qzeros"], -1)), NotImplementedError, "a zero that readers of this format understand in two ways; got 15"),
])  # fmt: skip
def test_damaged_matrices(damage, error, message, tmp_path):
    with pytest.raises(error, match=message):
        pf.llm.load(write(tmp_path, GPTQ, damage=damage)[0])


def test_the_order_of_rows_is_needed_where_the_config_names_one(tmp_path):
    with pytest.raises(ValueError, match="is not complete; got no g_idx; expected .* and g_idx where desc_act is true"):
        pf.llm.load(write(tmp_path, {**GPTQ, "desc_act": True}, damage=lambda p: p.pop("g_idx"))[0])


@pytest.mark.parametrize("changes", [{"bits": 3}, {"bits": True}, {"group_size": 0}, {"group_size": None}, {"checkpoint_format": "marlin"}, {"quant_method": "awq", "bits": 8}, {"quant_method": "awq", "version": "gemv"}])
def test_kinds_that_are_not_available(changes, tmp_path):
    path = small.write_random_model(tmp_path, "llama", quantization_config={**GPTQ, **changes})
    with pytest.raises(NotImplementedError, match="weights of a kind that is not available; got bits"):
        pf.llm.load(path)


def test_architectures_with_transposed_matrices(tmp_path):
    with pytest.raises(NotImplementedError, match="not available for this architecture; got 'gptq' of 'gpt2'"):
        pf.llm.load(small.write_random_model(tmp_path, "gpt2", quantization_config=GPTQ))
