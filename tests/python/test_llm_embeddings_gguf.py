"""Encoders in GGUF files: what `pf.llm.convert` writes and what files of llama.cpp's converter have, against the same model's folder."""
import json
import os

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM  # noqa: E402
from pyflame.llm import embed as command  # noqa: E402
from pyflame.llm._packed import PackedWeight  # noqa: E402
from pyflame.llm.conversion import _gguf_file  # noqa: E402
from pyflame.llm.embedding import is_encoder_path  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

TEXTS = ["the window is open", "A door", "The DOORS and the wíndows in the house!", "shut", "houses is opening to the door and in a window", "xyzzy 中"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_encoder(tmp_path_factory.mktemp("encoder"), seed=1)


@pytest.fixture(scope="module")
def model(folder):
    return pf.llm.load_embedding(folder)


def written(folder, path, tensors=None, **changes):
    """A GGUF file as llama.cpp's converter writes it, made here of the folder's files. tensors: a function that changes them; changes: of the metadata, None removes a key."""
    config, words = json.loads(_text(folder, "config.json")), small.ENCODER_WORDS
    tokens = [w if w[0] == "[" else w[2:] if w.startswith("##") else "\u2581" + w for w in words]
    metadata = {
        "general.architecture": "bert", "general.name": "small", "bert.vocab_size": len(words), "bert.context_length": 64, "bert.embedding_length": config["hidden_size"], "bert.feed_forward_length": config["intermediate_size"],
        "bert.block_count": config["num_hidden_layers"], "bert.attention.head_count": config["num_attention_heads"], "bert.attention.layer_norm_epsilon": 1e-12, "bert.attention.causal": False, "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default", "tokenizer.ggml.token_type_count": 2, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3] * 5 + [1] * (len(words) - 5),
        "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.mask_token_id": 4,
    }  # fmt: skip
    metadata = {k: v for k, v in {**metadata, **{k.replace("__", "."): v for k, v in changes.items()}}.items() if v is not None}
    renamed = {}
    for name, t in pf.load(os.path.join(folder, "model.safetensors")).items():
        for old, new in (
            ("embeddings.word_embeddings", "token_embd"), ("embeddings.position_embeddings", "position_embd"), ("embeddings.token_type_embeddings", "token_types"), ("embeddings.LayerNorm", "token_embd_norm"),
            ("encoder.layer", "blk"), ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"), ("attention.self.value", "attn_v"), ("attention.output.dense", "attn_output"),
            ("attention.output.LayerNorm", "attn_output_norm"), ("intermediate.dense", "ffn_up"), ("output.dense", "ffn_down"), ("output.LayerNorm", "layer_output_norm"),
        ):  # fmt: skip
            name = name.replace(old, new)
        if not name.startswith("pooler."):
            renamed[name] = t.numpy()
    if tensors:
        tensors(renamed)
    with open(path, "wb") as f:
        _gguf_file.write(f, metadata, [(n, "F32", v.shape) for n, v in renamed.items()], lambda file, name: file.write(renamed[name].tobytes()))
    return str(path)


def _text(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return f.read()


def test_a_file_of_llama_cpps_form(folder, model, tmp_path):
    path = written(folder, tmp_path / "m.gguf")
    assert is_encoder_path(path)
    got = pf.llm.load_embedding(path)
    assert (got.pooling, got.normalize, got.context, got.size, got.name, got.matryoshka) == ("MEAN", True, 64, 32, "small", False)
    assert [got.ids(t) for t in TEXTS] == [model.ids(t) for t in TEXTS]
    assert np.abs(got.embed(TEXTS) - model.embed(TEXTS)).max() < 1e-6
    assert got.tokenizer.decode(got.ids("the doors")) == "the doors"
    half = pf.llm.load_embedding(path, pf.bfloat16).embed(TEXTS)
    assert 0 < np.abs(half - model.embed(TEXTS)).max() < 0.05


@pytest.mark.parametrize("number, pooling", [(0, "CLS"), (None, "CLS"), (2, "CLS"), (3, "LAST")])
def test_the_pooling_of_the_metadata(folder, tmp_path, number, pooling):
    path = written(folder, tmp_path / "m.gguf", bert__pooling_type=number)
    got = pf.llm.load_embedding(path)
    want = pf.llm.load_embedding(folder, pooler_config={"pooling_type": pooling})
    assert got.pooling == pooling and np.abs(got.embed(TEXTS) - want.embed(TEXTS)).max() < 1e-6
    assert pf.llm.load_embedding(path, pooler_config={"pooling_type": "MEAN"}).pooling == "MEAN"


@pytest.mark.parametrize("type, tolerance", [(None, 1e-6), ("F16", 2e-3), ("Q8_0", 0.05)])
def test_convert(folder, model, tmp_path, type, tolerance):
    path = str(tmp_path / "m.gguf")
    report = pf.llm.convert(folder, path, type)
    assert report.notes == ["texts may have 64 tokens, not 32 as sentence_bert_config.json says"]
    assert {t.name: t.type for t in report.tensors}["token_types.weight"] == "F32"
    got = pf.llm.load_embedding(path)
    assert got.pooling == "MEAN" and [got.ids(t) for t in TEXTS] == [model.ids(t) for t in TEXTS]
    assert np.abs(got.embed(TEXTS) - model.embed(TEXTS)).max() < tolerance
    if type is None:
        again = str(tmp_path / "smaller.gguf")
        pf.llm.convert(path, again, "Q8_0")
        assert os.path.getsize(again) < os.path.getsize(path) and np.abs(pf.llm.load_embedding(again).embed(TEXTS) - model.embed(TEXTS)).max() < 0.05
    with pytest.raises(ValueError, match="the architecture is not available; got 'bert'"):
        pf.llm.convert(path, str(tmp_path / "folder"))


@pytest.mark.parametrize("type, bits", [("Q8_0", 8.5), ("Q4_0", 4.5), ("Q4_K", 4.625), ("Q6_K", 8.5625)])
def test_matrices_stay_in_blocks(tmp_path, type, bits):
    """All that are multiplied, and the rows of the words. Vectors are those of decoded weights, but for the rounding of the products' inputs."""
    folder = small.write_random_encoder(tmp_path / "source", seed=1, hidden_size=256, intermediate_size=512)
    path = str(tmp_path / "m.gguf")
    pf.llm.convert(folder, path, type)
    got, decoded = pf.llm.load_embedding(path, device="cpu"), pf.llm.load_embedding(path, pf.float32, "cpu")
    layers = {name: m for name, m in got._part.model.named_modules() if isinstance(getattr(m, "weight", None), PackedWeight)}
    linear = [m.weight for name, m in layers.items() if name.startswith("encoder.")]
    assert len(linear) == 2 * 6 and set(layers) - {n for n in layers if n.startswith("encoder.")} == {"embeddings.word_embeddings"}
    assert {w.type for w in linear} == {type} and sum(w.nbytes for w in linear) == sum(w.shape[0] * w.shape[1] for w in linear) * bits / 8
    assert not any(isinstance(m.weight, PackedWeight) for m in decoded._part.model.modules() if hasattr(m, "weight"))
    assert not any(p.device.type == "null" for p in got._part.model.parameters())
    want = decoded.embed(TEXTS)
    assert 0 < np.abs(got.embed(TEXTS) - want).max() < 5e-3 and np.abs(want - pf.llm.load_embedding(folder).embed(TEXTS)).max() > 0
    tensors = pf.load_gguf(path, "cpu")[0]
    weight = decoded._part.model.encoder.layer[1].output.dense.weight
    assert np.array_equal(weight.detach().numpy(), tensors["blk.1.ffn_down.weight"].numpy())


def test_a_packed_matrix_of_another_shape(tmp_path):
    source, path = small.write_random_encoder(tmp_path / "source", seed=1, hidden_size=64, intermediate_size=64), str(tmp_path / "m.gguf")
    pf.llm.convert(source, path, "Q8_0")
    _, raw, weights = _gguf_file.read(path)
    smaller, name = weights["blk.1.ffn_down.weight"].raw(0, 32).tobytes(), "blk.1.ffn_down.weight"
    with open(tmp_path / "wrong.gguf", "wb") as f:
        _gguf_file.write(f, raw, [(n, w.type, (32, 64) if n == name else w.shape) for n, w in weights.items()], lambda file, n: file.write(smaller if n == name else weights[n].raw(0, weights[n].height).tobytes()))
    with pytest.raises(ValueError, match=r"the weights do not fit the architecture 'bert'; got encoder.layer.1.output.dense.weight \(32, 64\); expected \(64, 64\)"):
        pf.llm.load_embedding(str(tmp_path / "wrong.gguf"))


def test_the_calls_of_a_user(folder, model, tmp_path, capsys):
    path = written(folder, tmp_path / "m.gguf")
    assert command.main([path, "the door"]) == 0
    assert np.allclose(json.loads(capsys.readouterr().out)["embedding"], model.embed("the door"), atol=1e-5)
    with LLM(path) as llm:
        assert np.allclose(llm.embed(["the door"])[0].outputs.embedding, model.embed("the door"), atol=1e-5)
    with pytest.raises(ValueError, match="llm: the architecture is not available; got 'bert' in general.architecture.*hint: pf.llm.load_embedding and pyflame embed take encoders"):
        pf.llm.load(path)


def test_the_server(folder, model, tmp_path):
    for package in ("aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from llm_client import Running
    from pyflame.llm.serving._embeddings import Embedder

    loaded = pf.llm.load_embedding(written(folder, tmp_path / "m.gguf"))
    running = Running(loaded, Embedder(loaded), name="small")
    try:
        got = running.ask("/v1/embeddings", {"model": "small", "input": TEXTS[:2]})
        assert np.allclose([d["embedding"] for d in got["data"]], model.embed(TEXTS[:2]), atol=1e-5)
    finally:
        running.end()


@pytest.mark.parametrize("changes, change, message", [
    ({"bert__attention__causal": True}, None, "embed: BERT as a decoder is not available; got bert.attention.causal = true; expected an encoder"),
    ({"bert__pooling_type": 4}, None, r"embed: the model's pooling is not available; got bert.pooling_type 4; expected one of 1 \(MEAN\), 2 \(CLS\), 3 \(LAST\)"),
    ({"bert__attention__head_count": 5}, None, "the heads do not fit; got 5 heads and embedding_length 32; expected a divisor"),
    ({"bert__embedding_length": None}, None, "the file's metadata has no 'bert.embedding_length'"),
    ({}, lambda t: t.pop("token_types.weight"), "the file has no matrix 'token_types.weight'; got none"),
    ({}, lambda t: t.update({"cls.weight": np.zeros((1, 32), np.float32)}), "the weights do not fit the architecture 'bert'; got cls.weight"),
    ({}, lambda t: t.pop("blk.1.ffn_up.bias"), r"tensors of the architecture 'bert' are missing; got no encoder.layer.1.intermediate.dense.bias \(1 in all\); expected a whole file"),
    ({"bert__embedding_length": 1 << 20}, None, "the file's metadata: bert.embedding_length does not fit the tensors; got 1048576; expected 32"),
    ({"bert__block_count": 4096}, None, "bert.block_count does not fit the tensors; got 4096; expected 2"),
    ({"bert__feed_forward_length": 1 << 24}, None, "bert.feed_forward_length does not fit the tensors; got 16777216; expected 48"),
])  # fmt: skip
def test_files_that_do_not_fit(folder, tmp_path, changes, change, message):
    with pytest.raises(ValueError, match=message):
        pf.llm.load_embedding(written(folder, tmp_path / "m.gguf", change, **changes))


def changed(folder, path, name, change):
    """A copy of the folder with another JSON file."""
    small.write_random_encoder(path, seed=1)
    document = json.loads(_text(path, name))
    change(document)
    with open(os.path.join(path, name), "w", encoding="utf-8") as f:
        json.dump(document, f)
    return str(path)


@pytest.mark.parametrize("name, change, message", [
    ("tokenizer.json", lambda d: d["normalizer"].update(lowercase=False), "its tokens would be others"),
    ("tokenizer.json", lambda d: d.update(post_processor=None), "it puts other tokens around a text"),
    ("config.json", lambda d: d.update(hidden_act="relu"), "GGUF has no name for its activation; got hidden_act 'relu'"),
    ("config.json", lambda d: d.update(num_hidden_layers=3), "the weights do not fit the model's description; got no blk.2"),
])  # fmt: skip
def test_folders_that_gguf_cannot_say(folder, tmp_path, name, change, message):
    source = changed(folder, tmp_path / "source", name, change)
    with pytest.raises(ValueError, match="convert: .*" + message):
        pf.llm.convert(source, str(tmp_path / "m.gguf"))
    assert not os.path.exists(tmp_path / "m.gguf")
