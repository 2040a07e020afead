"""The table of a layer's weights: its names in folders and in GGUF files, its shapes, and the parts of ranks, against folders that are written without it."""
import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import _architectures, _layers  # noqa: E402
from pyflame.llm._share import Share  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

CASES = [(kind, {}) for kind in small.MODEL_TYPES] + [("llama", {"attention_bias": True, "mlp_bias": True})]


def gguf_tensors(kind, changes, part=lambda name, t: t):
    """(the Config, the tensors under the names of GGUF)."""
    document = small.config_json(kind, **changes)
    config = _architectures.from_hf(document)
    names = _architectures.GgufNames(config.architecture, part)
    names.add({name: pf.tensor(t) for name, t in small.random_weights(document).items()})
    return config, names.finish()


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_names_lead_there_and_back(kind, changes):
    config = _architectures.from_hf(small.config_json(kind, **changes))
    for name in small.random_weights(small.config_json(kind, **changes)):
        base, _, end = name.rpartition(".")
        _, gguf, number = _layers.gguf_name(base, config.architecture)
        back = _layers.hf_name(f"{gguf}.{end}", config.architecture)
        assert (back if number is None else back.format(number)) == name


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_a_model_has_the_tensors_and_shapes_of_the_table(kind, changes):
    config, tensors = gguf_tensors(kind, changes)
    sizes, expected = _layers.sizes(config), {}
    for i in range(config.layers):
        sparse = config.experts is not None and i not in config.experts.dense
        layer = {w.name: w for w in _layers.of_layer(config, sparse)}
        for w in layer.values():
            if w.unless not in layer:
                expected[f"blk.{i}.{w.gguf}.weight"] = w.shape(sizes)
    assert {name: tuple(t.shape) for name, t in tensors.items() if name.startswith("blk.") and name.endswith(".weight")} == expected


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_the_parts_of_ranks_are_the_whole(kind, changes):
    config, whole = gguf_tensors(kind, changes)
    shares = [Share(rank, 2) for rank in range(2)]
    parts = [gguf_tensors(kind, changes, lambda name, t, share=share: share.tensor(config, name, t))[1] for share in shares]
    for name, t in whole.items():
        a, b = (p[name].numpy() for p in parts)
        w, layer = _layers.of_gguf(name.rpartition(".")[0], config.architecture)
        if w.columns in _layers.DIVIDED:
            joined = a + b if name.endswith(".bias") else np.concatenate([a, b], -1)
        elif layer is not None and w.rows[0] in _layers.DIVIDED:
            dim = 0 if t.dim() == 1 or name.endswith(".bias") else t.dim() - 2
            sizes, own = _layers.sizes(config), _layers.sizes(shares[0].config(config))
            ends = np.cumsum([own[r] for r in w.rows])[:-1]
            joined = np.concatenate([x for pair in zip(*(np.split(p, ends, dim) for p in (a, b))) for x in pair], dim)
            assert sizes[w.rows[0]] == 2 * own[w.rows[0]]
        else:
            joined = a
            np.testing.assert_array_equal(a, b, name)
        np.testing.assert_array_equal(joined, t.numpy(), name)


@pytest.mark.parametrize("name", ["blk.0.attn_q_norm.weight", "blk.0.post_attention_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.attn_qkv.weight", "blk.0.ffn_gate_exps.bias", "blk.x.attn_q.weight", "blk.0.attn_q.scale"])
def test_a_tensor_that_the_architecture_lacks_has_no_name_in_folders(name):
    assert _layers.hf_name(name, _architectures.from_hf(small.config_json("llama")).architecture) is None


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.x.mlp.up_proj", "self_attn.q_proj", "model.layers.0.lm_head", "visual.blocks.0.attn.qkv"])
def test_other_names_of_folders_are_not_of_this_decoder(name):
    assert _layers.gguf_name(name, _architectures.from_hf(small.config_json("llama")).architecture) is None
