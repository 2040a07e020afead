"""Gemma 3 with images: the text part of its folders, whose config.json is nested and whose weights have a prefix of their own. The vision tower is left out."""
import json
import pathlib

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import _architectures  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

IDS = [int(i) for i in np.random.RandomState(0).randint(4, small.VOCABULARY, 40)]
LINEAR = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
OLD = {"model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
NEW = {"model.": "model.language_model."}
VISION = {"vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight": (8, 8), "multi_modal_projector.mm_input_projection_weight": (8, 64)}


def renamed(name, prefixes):
    return next((new + name.removeprefix(old) for old, new in prefixes.items() if name.startswith(old)), name)


def nested(folder, prefixes, text_changes=(), **changes):
    """The folder of a small gemma3_text as one of model_type gemma3."""
    folder = pathlib.Path(folder)
    text = json.loads((folder / "config.json").read_text())
    config = {"model_type": "gemma3", "text_config": {k: v for k, v in text.items() if k not in ("tie_word_embeddings", "hidden_activation")} | dict(text_changes), "vision_config": {"hidden_size": 8, "num_hidden_layers": 1}}
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    weights = {renamed(name, prefixes): w for name, w in pf.load(folder / "model.safetensors").items()}
    pf.save({**weights, **{("model." if prefixes is NEW else "") + name: pf.ones(*shape) for name, shape in VISION.items()}}, folder / "model.safetensors")
    return folder


@pytest.fixture(params=[OLD, NEW], ids=["language_model.model", "model.language_model"])
def pair(request, tmp_path):
    """A model of text alone, and the same within one that has images."""
    plain = small.write_random_model(tmp_path / "plain", "gemma3_text", seed=3, query_pre_attn_scalar=16, **LINEAR)
    return plain, nested(small.write_random_model(tmp_path / "nested", "gemma3_text", seed=3, query_pre_attn_scalar=16, **LINEAR), request.param)


def test_the_text_part_is_the_model_of_text_alone(pair):
    plain, folder = (pf.llm.load(path) for path in pair)
    assert folder.config == plain.config and folder.config.architecture.hf == "gemma3_text"
    assert folder.config.scaling["type"] == "linear" and folder.config.local_base == 10000.0 and any(folder.config.windowed) and not all(folder.config.windowed)
    assert (folder.logits(IDS).numpy() == plain.logits(IDS).numpy()).all()
    assert folder.end_ids == plain.end_ids


def test_linear_scaling_changes_the_global_layers(pair, tmp_path):
    other = pf.llm.load(small.write_random_model(tmp_path / "other", "gemma3_text", seed=3, query_pre_attn_scalar=16))
    assert np.abs(other.logits(IDS).numpy() - pf.llm.load(pair[1]).logits(IDS).numpy()).max() > 1e-3


def test_to_gguf(pair, tmp_path):
    done = pf.llm.convert(pair[1], tmp_path / "m.gguf")
    assert not [t.name for t in done.tensors if not t.name.startswith(("blk.", "token_embd", "output"))]
    got, want = pf.llm.load(tmp_path / "m.gguf"), pf.llm.load(pair[0])
    a, b = got.logits(IDS).numpy(), want.logits(IDS).numpy()
    assert got.config.architecture.gguf == "gemma3" and np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


def test_an_output_of_its_own(tmp_path):
    folder = nested(small.write_random_model(tmp_path / "a", "gemma3_text", tie_word_embeddings=False), OLD, {"tie_word_embeddings": False})
    plain = small.write_random_model(tmp_path / "b", "gemma3_text", tie_word_embeddings=False)
    assert (pf.llm.load(folder).logits(IDS).numpy() == pf.llm.load(plain).logits(IDS).numpy()).all()


def test_what_the_files_of_4b_leave_out():
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}
    document = {"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": text, "vision_config": {"hidden_size": 1152}}
    c = _architectures.from_hf(document)
    assert (c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.inner, c.vocab, c.context) == (34, 2560, 8, 4, 256, 10240, 262208, 131072)
    assert (c.rope_base, c.local_base, c.window, c.scale, c.eps, c.activation, c.tied) == (1e6, 1e4, 1024, 1 / 16, 1e-6, "gelu_tanh", True)
    assert [i for i, w in enumerate(c.windowed) if not w] == [5, 11, 17, 23, 29]
    new = {**text, "rope_scaling": None, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    assert _architectures.from_hf({**document, "text_config": new}) == c


def test_fit_counts_the_text_part(tmp_path):
    from pyflame.memory import _architecture

    a = _architecture.of_config({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34}}, "x")
    assert (a.layers, a.heads, a.kv_heads, a.head_dim, a.vocab, a.tied) == (34, 8, 4, 256, 262208, True)


def test_an_adapter_of_the_text_part(pair, tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    pf.manual_seed(0)
    factors = {"A": pf.randn(2, 64), "B": pf.randn(64, 2)}
    texts = []
    for path, prefix in ((pair[0], "model."), (pair[1], "language_model.model."), (pair[1], "model.language_model.")):
        pf.save({f"base_model.model.{prefix}layers.1.self_attn.q_proj.lora_{k}.weight": t for k, t in factors.items()}, folder / "adapter_model.safetensors")
        lm = pf.llm.load(path)
        texts.append(list(lm.tokens(IDS, 12, pf.llm.Sampling(temperature=0), stop_ids=(), lora=lm.load_lora(folder))))
    assert texts[0] == texts[1] == texts[2] != list(lm.tokens(IDS, 12, pf.llm.Sampling(temperature=0), stop_ids=()))


@pytest.mark.parametrize("document, message", [
    ({"text_config": None}, "config.json has no 'text_config'"),
    ({"text_config": 3}, "'text_config' has the wrong type; got int"),
    ({"text_config": {"head_dim": 7}}, "RoPE's dims do not fit; got 7"),
    ({"model_type": "gemma3n"}, "the architecture is not available; got 'gemma3n' in model_type; expected one of .*gemma3_text.*, gemma3$"),
])  # fmt: skip
def test_wrong_documents(document, message):
    with pytest.raises(ValueError, match=message):
        _architectures.from_hf({"model_type": "gemma3", **document})


@pytest.mark.parametrize("kind", ["image", "image_url"])
def test_images_in_messages_are_refused(pair, kind):
    pytest.importorskip("jinja2", reason="the package jinja2 is not installed")
    with pytest.raises(ValueError, match=f"chat: a part of a message is no text; got one of the type '{kind}'; expected text"):
        pf.llm.load(pair[1]).chat([{"role": "user", "content": [{"type": kind, kind: "x.png"}, {"type": "text", "text": "What is it?"}]}])
