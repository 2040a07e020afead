"""pf.llm.convert and `pyflame convert`: small random models in both directions, types of blocks against a second decoder, tokenizers, refusals."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import conversion  # noqa: E402
from pyflame.llm.conversion import _blocks, _gguf_file  # noqa: E402
from pyflame.llm.conversion.__main__ import main as command  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402
from pyflame.testing.cases import quantized  # noqa: E402

IDS = [int(i) for i in np.random.RandomState(0).randint(4, small.VOCABULARY, 40)]


def logits(path, **options):
    return pf.llm.load(path, **options).logits(IDS).numpy()


def close(a, b, tolerance=1e-5):
    return np.abs(a - b).max() <= tolerance * np.abs(b).max()


def folder_with(path, config=None, tokenizer=None, kind="llama", **changes):
    """A small model with changed config.json and tokenizer.json. tokenizer: a function that changes the document."""
    folder = pathlib.Path(small.write_random_model(path, kind, seed=3, **changes))
    if tokenizer:
        document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer(document)
        (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    if config:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**document, **config}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_with(tmp_path_factory.mktemp("models") / "small", intermediate_size=128)


# Both directions.

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2, 2, 2.5, 3, 3, 4], "long_factor": [2.0] * 8, "original_max_position_embeddings": 128}
CASES = {
    "llama": ("llama", {}), "llama-3": ("llama", {"rope_scaling": LLAMA3}), "linear": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}), "biases": ("llama", {"attention_bias": True}),
    "tied": ("llama", {"tie_word_embeddings": True}), "mistral": ("mistral", {}), "qwen2": ("qwen2", {}), "qwen3": ("qwen3", {}), "gemma": ("gemma", {}), "gemma2": ("gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", {"query_pre_attn_scalar": 16}), "phi3": ("phi3", {}), "longrope": ("phi3", {"rope_scaling": LONGROPE}), "gpt2": ("gpt2", {}),
    "mixtral": ("mixtral", {}), "qwen2_moe": ("qwen2_moe", {"mlp_only_layers": []}), "qwen3_moe": ("qwen3_moe", {"mlp_only_layers": []}),
}  # fmt: skip


@pytest.mark.parametrize("kind, changes", CASES.values(), ids=CASES.keys())
def test_to_gguf_and_back(kind, changes, tmp_path):
    source = folder_with(tmp_path / "small", kind=kind, **changes)
    done = conversion.convert(source, tmp_path / "m.gguf")
    assert all(t.relative == 0 and t.type == "F32" for t in done.tensors) and done.perplexity_before is None
    assert done.notes == (["llama.cpp does not apply the sliding window of 17 tokens, which PyFlame reads"] if kind == "mistral" else [])
    want, lm, original = logits(source), pf.llm.load(tmp_path / "m.gguf"), pf.llm.load(source)
    assert close(lm.logits(IDS).numpy(), want)
    assert lm.end_ids == original.end_ids and lm.name == "small" and lm._template_source == original._template_source
    text = "the window, hello 123 \U0001f642 <|im_end|>"
    assert lm.tokenizer.encode(text, parse_special=True) == original.tokenizer.encode(text, parse_special=True)
    conversion.convert(tmp_path / "m.gguf", tmp_path / "back")
    back = pf.llm.load(tmp_path / "back")
    assert close(back.logits(IDS).numpy(), want) and back.end_ids == original.end_ids
    assert back.tokenizer.encode(text, parse_special=True) == original.tokenizer.encode(text, parse_special=True)
    assert back.tokenizer.bos_id == original.tokenizer.bos_id and back._template_source == original._template_source
    # The weights themselves come back, with the same names and bits, apart from norms that have become 1 + w meanwhile.
    weights, again = pf.load(source), pf.load(tmp_path / "back")
    assert set(again) == set(weights) - ({"lm_head.weight"} if changes.get("tie_word_embeddings") else set())
    for name, w in again.items():
        assert np.abs(w.numpy() - weights[name].numpy()).max() <= (1e-6 if kind.startswith("gemma") and "norm" in name else 0), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "m.gguf", "small"]


def test_the_pairs_of_llama(folder, tmp_path):
    conversion.convert(folder, tmp_path / "m.gguf")
    q = pf.load(folder)["model.layers.0.self_attn.q_proj.weight"].numpy()
    got = pf.load_gguf(tmp_path / "m.gguf")[0]["blk.0.attn_q.weight"].numpy()
    assert np.array_equal(got[0], q[0]) and np.array_equal(got[1], q[8]) and np.array_equal(got[2], q[1]) and np.array_equal(got[16], q[16])


@pytest.mark.parametrize("type", ["F16", "BF16"])
def test_types_of_16_bits(folder, type, tmp_path):
    done = conversion.convert(folder, tmp_path / "m.gguf", type)
    dtype = {"F16": pf.float16, "BF16": pf.bfloat16}[type]
    tensors = pf.load_gguf(tmp_path / "m.gguf")[0]
    assert tensors["blk.0.ffn_up.weight"].dtype == dtype and tensors["blk.0.attn_norm.weight"].dtype == pf.float32
    want = pf.load(folder)["model.layers.0.mlp.up_proj.weight"].to(dtype).float().numpy()
    assert np.array_equal(tensors["blk.0.ffn_up.weight"].float().numpy(), want)
    assert 0 < max(t.relative for t in done.tensors) < 2.0**-8
    conversion.convert(folder, tmp_path / "32.gguf")
    conversion.convert(tmp_path / "32.gguf", tmp_path / "16", type.lower())
    assert {t.dtype for t in pf.load(tmp_path / "16").values()} == {dtype}
    assert json.loads((tmp_path / "16" / "config.json").read_text())["torch_dtype"] == str(dtype).rpartition(".")[2]


# Blocks.

MOST = {"Q4_0": 0.09, "Q4_1": 0.082, "Q5_0": 0.046, "Q5_1": 0.041, "Q8_0": 0.0056, "Q4_K": 0.082, "Q5_K": 0.041, "Q6_K": 0.02}  # relative error of normal numbers


@pytest.mark.parametrize("type", MOST)
def test_blocks(type):
    x = np.random.RandomState(1).standard_normal((16, 1024)).astype(np.float32)
    x[3], x[4, :32], x[5], x[6] = 0, 0, np.abs(x[5]), -np.abs(x[6])
    x[7] *= 1e-5
    packed = _blocks.encode(x, type)
    decoded = quantized.decoded(type, packed)  # the layouts a second time, in float64
    assert np.array_equal(_blocks.decode(packed, type), decoded.astype(np.float32)) and not decoded[3].any()
    rows = np.delete(np.arange(16), [3, 7])
    assert np.linalg.norm(decoded[rows] - x[rows]) < MOST[type] * np.linalg.norm(x[rows])
    if type in ("Q4_0", "Q5_0", "Q8_0"):  # each number is the nearest of its block's, so encoding the decoded numbers again changes nothing
        assert np.array_equal(quantized.decoded(type, _blocks.encode(decoded.astype(np.float32), type)), decoded)


def test_a_block_by_hand():
    x = np.zeros((1, 32), np.float32)
    x[0, :4], x[0, 16] = [-8, 7, 1, 0], 3
    packed = _blocks.encode(x, "Q4_0")
    assert packed.shape == (1, 18) and packed[0, :2].view(np.float16)[0] == 1
    assert [packed[0, 2 + i] & 15 for i in range(4)] == [0, 15, 9, 8] and packed[0, 2] >> 4 == 11


@pytest.mark.parametrize("type", ["Q4_0", "Q8_0", "Q5_1"])
def test_quantized_models(folder, type, tmp_path):
    done = conversion.convert(folder, tmp_path / "m.gguf", type, text=conversion.TEXT)
    lm, original = pf.llm.load(tmp_path / "m.gguf"), pf.llm.load(folder)
    assert {t.type for t in done.tensors} == {type, "F32"} and done.bytes_after < 0.55 * done.bytes_before
    assert lm._network.embedding.type == type and pf.load_gguf(tmp_path / "m.gguf")[1]["general.file_type"] == {"Q4_0": 2, "Q8_0": 7, "Q5_1": 9}[type]
    assert done.perplexity_before == original.perplexity(conversion.TEXT) and done.perplexity_after == lm.perplexity(conversion.TEXT)
    # The report's numbers are those of the file.
    w, written = pf.load(folder)["model.layers.1.mlp.down_proj.weight"].numpy(), pf.load_gguf(tmp_path / "m.gguf")[0]["blk.1.ffn_down.weight"].numpy()
    t = next(t for t in done.tensors if t.name == "blk.1.ffn_down.weight")
    assert t.relative == pytest.approx(np.linalg.norm(written - w) / np.linalg.norm(w), rel=1e-5) and t.largest == pytest.approx(np.abs(written - w).max())
    assert 0.5 * MOST[type] < done.layers()["blk.1"][0] < MOST[type] and done.layers()["blk.1"][2] == [type]
    assert list(done.layers()) == ["token_embd", "blk.0", "blk.1", "blk.2", "blk.3", "output_norm", "output"]


def test_rows_that_whole_blocks_do_not_fit_into(tmp_path):
    source = folder_with(tmp_path / "small", hidden_size=256, intermediate_size=80, head_dim=64, num_hidden_layers=1)
    done = conversion.convert(source, tmp_path / "m.gguf", "Q6_K")
    types = {t.name: t.type for t in done.tensors}
    assert types["blk.0.ffn_up.weight"] == "Q6_K" and types["blk.0.ffn_down.weight"] == "F16" and types["blk.0.attn_norm.weight"] == "F32"
    assert close(logits(tmp_path / "m.gguf", dtype=pf.float32), logits(source), 0.1)


def test_quantized_experts(tmp_path):
    source = folder_with(tmp_path / "small", kind="mixtral")
    done = conversion.convert(source, tmp_path / "m.gguf", "Q8_0")
    types = {t.name: t.type for t in done.tensors}
    assert types["blk.1.ffn_up_exps.weight"] == "Q8_0" and types["blk.1.ffn_gate_inp.weight"] == "F32"
    conversion.convert(tmp_path / "m.gguf", tmp_path / "back")
    weights, back = pf.load(source), pf.load(tmp_path / "back")
    assert set(back) == set(weights)
    for name in weights:  # a router would choose other experts for a logit that is nearly the same, so the weights are compared
        a, b = weights[name].numpy(), back[name].numpy()
        assert a.shape == b.shape and np.linalg.norm(a - b) < 0.007 * np.linalg.norm(a), name
    conversion.convert(tmp_path / "m.gguf", tmp_path / "4.gguf", "Q5_1")  # stacks of matrices from file to file
    assert np.linalg.norm(pf.load_gguf(tmp_path / "4.gguf")[0]["blk.2.ffn_up_exps.weight"].numpy()[4] - weights["model.layers.2.block_sparse_moe.experts.4.w3.weight"].numpy()) < 0.5


def test_from_blocks(folder, tmp_path):
    conversion.convert(folder, tmp_path / "8.gguf", "Q8_0")
    conversion.convert(tmp_path / "8.gguf", tmp_path / "4.gguf", "Q4_0")
    assert pf.load_gguf(tmp_path / "4.gguf")[1]["general.file_type"] == 2
    assert pf.load_gguf(tmp_path / "4.gguf")[1]["tokenizer.ggml.tokens"] == pf.load_gguf(tmp_path / "8.gguf")[1]["tokenizer.ggml.tokens"]
    done = conversion.convert(tmp_path / "4.gguf", tmp_path / "back")
    assert {t.relative for t in done.tensors} == {0.0} and {t.type for t in done.tensors} == {"F32"}
    assert close(logits(tmp_path / "back"), logits(tmp_path / "4.gguf", dtype=pf.float32))


@pytest.mark.parametrize("type", ["Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS"])
def test_from_types_that_are_not_written(type, tmp_path):
    source = folder_with(tmp_path / "small", hidden_size=256, intermediate_size=256, head_dim=64, num_hidden_layers=1)
    conversion.convert(source, tmp_path / "f.gguf")
    _, raw, weights = _gguf_file.read(tmp_path / "f.gguf")
    random = np.random.default_rng(3)
    elements, size, _ = quantized.BLOCKS[type]
    packed = {n: quantized.random_blocks(type, random, (w.shape[0], w.shape[1] // elements * size), 0.06) for n, w in weights.items() if len(w.shape) == 2}
    with open(tmp_path / "m.gguf", "wb") as f:
        _gguf_file.write(f, raw, [(n, type if n in packed else w.type, w.shape) for n, w in weights.items()],
                         lambda file, n: file.write((packed[n] if n in packed else weights[n].raw(0, weights[n].height)).tobytes()))
    conversion.convert(tmp_path / "m.gguf", tmp_path / "back")
    decoded = quantized.decoded(type, packed["blk.0.ffn_down.weight"])
    np.testing.assert_allclose(pf.load(tmp_path / "back")["model.layers.0.mlp.down_proj.weight"].numpy(), decoded, rtol=1e-6, atol=1e-6)
    done = conversion.convert(tmp_path / "m.gguf", tmp_path / "8.gguf", "Q8_0")
    written = pf.load_gguf(tmp_path / "8.gguf")[0]["blk.0.ffn_down.weight"].numpy()
    t = next(t for t in done.tensors if t.name == "blk.0.ffn_down.weight")
    assert (t.source, t.type) == (type, "Q8_0") and 0 < np.linalg.norm(written - decoded) < 0.01 * np.linalg.norm(decoded)


def test_parts_of_tensors(folder, tmp_path, monkeypatch):
    whole = conversion.convert(folder, tmp_path / "a.gguf", "Q4_1")
    monkeypatch.setattr(conversion, "_AT_ONCE", 500)
    parts = conversion.convert(folder, tmp_path / "b.gguf", "Q4_1")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert [t.relative for t in parts.tensors] == pytest.approx([t.relative for t in whole.tensors])


def test_shards(folder, tmp_path):
    source = folder_with(tmp_path / "small", intermediate_size=128)
    tensors = pf.load(source)
    (source / "model.safetensors").unlink()
    places = {name: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, name in enumerate(tensors)}
    for file in set(places.values()):
        pf.save({name: t for name, t in tensors.items() if places[name] == file}, source / file)
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    conversion.convert(source, tmp_path / "m.gguf")
    assert close(logits(tmp_path / "m.gguf"), logits(folder))


# Tokenizers.


def test_patterns_have_names(tmp_path):
    def qwen(document):
        pattern = pf.llm._text_parts.PATTERNS["qwen2"][0]
        document["normalizer"] = {"type": "NFC"}
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}
        document["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}

    source = folder_with(tmp_path / "small", tokenizer=qwen)
    done = conversion.convert(source, tmp_path / "m.gguf")
    assert done.notes == ["text is not brought to Unicode's form NFC any more"]
    m = pf.load_gguf(tmp_path / "m.gguf")[1]
    assert m["tokenizer.ggml.pre"] == "qwen2" and m["tokenizer.ggml.add_bos_token"] is True and m["tokenizer.ggml.token_type"][:6] == [3, 3, 3, 3, 1, 1]
    conversion.convert(tmp_path / "m.gguf", tmp_path / "back")
    tokenizers = [pf.llm.load_tokenizer(p) for p in (source, tmp_path / "m.gguf", tmp_path / "back")]
    assert len({tuple(t.encode("I'LL be there 1234 times\n\n the end")) for t in tokenizers}) == 1 and tokenizers[0].encode("a")[0] == 0


def sentence_piece(document, prefix=True, **model):
    """Makes a tokenizer.json one of SentencePiece's BPE, with 256 bytes and some words."""
    words = ["\u2581the", "\u2581th", "th", "he", "the", "in", "\u2581w", "win", "\u2581\u2581", "indow", "dow", "ow", "aa", "aaaa", "aaa"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, *"\u2581aehindowt"]
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = [[w[:i], w[i:]] for w in words if w in vocab for i in range(1, len(w)) if w[:i] in vocab and w[i:] in vocab]
    document.update(
        added_tokens=[{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, t in enumerate(tokens[:3])],
        normalizer={"type": "Sequence", "normalizers": [*([{"type": "Prepend", "prepend": "\u2581"}] if prefix else []), {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        pre_tokenizer=None, post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}},
        decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else [])]},
        model={"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges, **model})  # fmt: skip


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece(prefix, tmp_path):
    source = folder_with(tmp_path / "small", tokenizer=lambda document: sentence_piece(document, prefix), vocab_size=300)
    assert conversion.convert(source, tmp_path / "m.gguf").notes == []
    m = pf.load_gguf(tmp_path / "m.gguf")[1]
    assert m["tokenizer.ggml.model"] == "llama" and m["tokenizer.ggml.add_space_prefix"] is prefix and m["tokenizer.ggml.token_type"][:4] == [2, 3, 3, 6] and m["tokenizer.ggml.token_type"][-1] == 5
    conversion.convert(tmp_path / "m.gguf", tmp_path / "back")
    tokenizers = [pf.llm.load_tokenizer(p) for p in (source, tmp_path / "m.gguf", tmp_path / "back")]
    for text in ("the window", "  two  the\u00e9 aaaaaaa \U0001f642", "thein thewindow"):
        ids = tokenizers[0].encode(text)
        assert ids[0] == 1 and [t.encode(text) for t in tokenizers[1:]] == [ids, ids] and [t.decode(ids) for t in tokenizers] == [text] * 3
    assert json.loads((tmp_path / "back" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"][:2] == [["\u2581th", "e"], ["\u2581", "the"]]


def test_a_space_before_the_first_part(tmp_path):
    def first(document):
        sentence_piece(document)
        document.update(normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False})

    source = folder_with(tmp_path / "small", tokenizer=first, vocab_size=300)
    assert conversion.convert(source, tmp_path / "m.gguf").notes == [
        "a space is put before the text behind each special token, too, not before the first alone", "a space is put before text that begins with a space, too"]  # fmt: skip
    a, b = pf.llm.load_tokenizer(source), pf.llm.load_tokenizer(tmp_path / "m.gguf")
    assert a.encode("the window") == b.encode("the window") and a.encode("the</s>the", parse_special=True) != b.encode("the</s>the", parse_special=True)
    assert a.encode(" the") != b.encode(" the")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["model"]["merges"].pop(0), "its merges are not those of SentencePiece; got . merges of '\u2581the'"),
        (lambda d: d["model"]["merges"].append(d["model"]["merges"][0]), "its merges are not those of SentencePiece; got merges of '\u2581the' in two places"),
        (lambda d: d["model"]["vocab"].pop("<0x41>"), "it lacks tokens for bytes, or for what is unknown; got 255 tokens"),
        (lambda d: d["model"].update(ignore_merges=True), "it takes whole words; got ignore_merges"),
        (lambda d: d.update(normalizer=None), "it has no sign for a space"),
        (lambda d: d["normalizer"]["normalizers"].append({"type": "NFKC"}), "it changes the text first; got the normalizer NFKC"),
    ],
)
def test_other_merges_with_bytes(change, message, tmp_path):
    def changed(document):
        sentence_piece(document)
        change(document)

    source = folder_with(tmp_path / "small", tokenizer=changed, vocab_size=300)
    with pytest.raises(ValueError, match="convert: the tokenizer cannot be converted: " + message):
        conversion.convert(source, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_rows_without_a_token(tmp_path):
    source = folder_with(tmp_path / "small", vocab_size=small.VOCABULARY + 5)
    conversion.convert(source, tmp_path / "m.gguf")
    m = pf.load_gguf(tmp_path / "m.gguf")[1]
    assert m["tokenizer.ggml.tokens"][-1] == f"[PAD{small.VOCABULARY + 4}]" and m["tokenizer.ggml.token_type"][-6:] == [1, 5, 5, 5, 5, 5]


def test_without_a_tokenizer(tmp_path):
    source = folder_with(tmp_path / "small")
    (source / "tokenizer.json").unlink()
    assert conversion.convert(source, tmp_path / "m.gguf").notes == ["the source has no tokenizer"]
    conversion.convert(tmp_path / "m.gguf", tmp_path / "back")
    assert close(logits(tmp_path / "back"), logits(source)) and not (tmp_path / "back" / "tokenizer.json").exists()


def _changed(**changes):
    return lambda document: document.update(changes)


def _model(**changes):
    return lambda document: document["model"].update(changes)


@pytest.mark.parametrize(
    "config, tokenizer, message",
    [
        (None, _model(type="WordPiece", unk_token="<s>"), "the tokenizer cannot be converted: it is of another kind; got WordPiece; expected byte-level BPE with the patterns of one of these: gpt-2"),
        (None, _model(byte_fallback=True), "a part of its pre-tokenizer has no counterpart; got ByteLevel"),
        (None, _model(end_of_word_suffix="</w>"), "its symbols have marks; got end_of_word_suffix '</w>'"),
        (None, _model(ignore_merges=True), "GGUF has no name for its patterns; got .* with ignore_merges"),
        (None, _changed(normalizer={"type": "Lowercase"}), "it changes the text first; got the normalizer Lowercase"),
        (None, _changed(pre_tokenizer={"type": "Whitespace"}), "a part of its pre-tokenizer has no counterpart; got Whitespace"),
        (None, _changed(pre_tokenizer={"type": "Digits"}), "it does not split text into bytes"),
        (None, _changed(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True}), "puts a space before the text"),
        (None, _changed(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}), "its pre-tokenizer has no pattern"),
        (None, _changed(post_processor={"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<|im_end|>", 3]}), "tokens around a text that GGUF has no place for"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}}, None, "GGUF metadata cannot say everything about this model; got RoPE's angles with the scaling 'dynamic'"),
        ({"hidden_act": "gelu"}, None, "GGUF metadata cannot say everything about this model; got activation: gelu became silu"),
        ({"mlp_bias": True}, None, "got mlp_bias: True became False"),
        ({"vocab_size": small.VOCABULARY - 1}, None, "more tokens than the model's embedding has rows|vocab: .* became"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_written(config, tokenizer, message, tmp_path):
    source = folder_with(tmp_path / "small", config, tokenizer)
    with pytest.raises(ValueError, match="convert: .*" + message):
        conversion.convert(source, tmp_path / "m.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["small"]


def test_other_tokenizer_files(tmp_path):
    source = folder_with(tmp_path / "small")
    (source / "tokenizer.json").rename(source / "vocab.json")
    with pytest.raises(ValueError, match="convert: the tokenizer cannot be converted; got vocab.json without tokenizer.json"):
        conversion.convert(source, tmp_path / "m.gguf")


def test_a_folder_of_another_kind_of_tokenizer(folder, tmp_path):
    conversion.convert(folder, tmp_path / "m.gguf")
    metadata, raw, weights = _gguf_file.read(tmp_path / "m.gguf")
    raw |= {"tokenizer.ggml.model": "t5", "tokenizer.ggml.scores": [0.0] * small.VOCABULARY}
    with open(tmp_path / "t5.gguf", "wb") as f:
        _gguf_file.write(f, raw, [(n, w.type, w.shape) for n, w in weights.items()], lambda file, n: file.write(weights[n].raw(0, weights[n].height).tobytes()))
    with pytest.raises(ValueError, match="convert: the tokenizer cannot be converted: it is of another kind; got the model 't5'"):
        conversion.convert(tmp_path / "t5.gguf", tmp_path / "back")
    assert not (tmp_path / "back").exists()


# Wrong arguments, files and weights.


def test_wrong_arguments(folder, tmp_path):
    for arguments, kind, message in (
        ((folder, tmp_path / "m.gguf", "Q9"), ValueError, "the type is not available; got 'Q9'; expected one of F32, F16, BF16, Q4_0"),
        ((folder, tmp_path / "m.gguf", "Q2_K"), ValueError, "the type is not available; got 'Q2_K'; expected one of F32, .*Q6_K$"),
        ((folder, tmp_path / "m.gguf", 4), ValueError, "the type is not available; got 4"),
        ((folder, tmp_path / "other"), ValueError, "source and target are folders with float weights; got .*other"),
        ((folder, tmp_path / "no" / "m.gguf"), FileNotFoundError, "the target's folder is not there"),
        ((folder, folder), FileExistsError, "there is something at the target already"),
        ((tmp_path / "no.gguf", tmp_path / "m.gguf"), FileNotFoundError, "convert: there is no such file; expected a GGUF file, a folder with config.json"),
        ((folder / "config.json", tmp_path / "m.gguf"), ValueError, "is no language model; got a file of another kind|cannot"),
    ):
        with pytest.raises(kind, match=message):
            conversion.convert(*arguments)
    with pytest.raises(ValueError, match="convert: the text is too short for a perplexity; got 'a'"):
        conversion.convert(folder, tmp_path / "m.gguf", text="a")
    conversion.convert(folder, tmp_path / "a.gguf")
    with pytest.raises(ValueError, match="source and target are GGUF files; got no type"):
        conversion.convert(tmp_path / "a.gguf", tmp_path / "b.gguf")
    with pytest.raises(ValueError, match="the type is not available; got 'Q4_0'; expected one of F32, F16, BF16 for a folder"):
        conversion.convert(tmp_path / "a.gguf", tmp_path / "b", "Q4_0")
    assert [p.name for p in tmp_path.iterdir()] == ["a.gguf"]


@pytest.mark.parametrize("value, type, message", [(np.nan, "Q4_0", "a weight is not finite"), (1e6, "F16", "a weight is beyond float16"), (1e30, "Q8_0", "a scale is beyond float16")])
def test_weights_that_do_not_fit(value, type, message, tmp_path):
    source = folder_with(tmp_path / "small")
    tensors = dict(pf.load(source))
    tensors["model.layers.2.mlp.up_proj.weight"][5, 6] = value
    pf.save(tensors, source / "model.safetensors")
    with pytest.raises(ValueError, match=f"convert: the tensor 'blk.2.ffn_up.weight' cannot be written as {type}; got {message}"):
        conversion.convert(source, tmp_path / "m.gguf", type)
    assert [p.name for p in tmp_path.iterdir()] == ["small"]  # no part of a file is left


def test_wrong_tensors(tmp_path):
    source = folder_with(tmp_path / "small")
    tensors = dict(pf.load(source))
    for name, tensor, message in (
        ("model.layers.0.mlp.other.weight", pf.zeros(2, 2), "a tensor has no counterpart in a GGUF file; got 'model.layers.0.mlp.other.weight'"),
        ("model.norm.weight", pf.zeros(64, dtype=pf.float64), "a tensor has a dtype that is not available; got F64 of 'model.norm.weight'"),
        ("model.layers.0.self_attn.q_proj.weight", pf.zeros(32, 64), "a tensor has another shape; got .32, 64. of 'model.layers.0.self_attn.q_proj.weight'; expected 64 rows"),
    ):
        pf.save({**tensors, name: tensor}, source / "model.safetensors")
        with pytest.raises(ValueError, match="convert: " + message):
            conversion.convert(source, tmp_path / "m.gguf")
    name = "model.layers.3.mlp.up_proj.weight"
    pf.save({n: t for n, t in tensors.items() if n != name}, source / "model.safetensors")
    with pytest.raises(ValueError, match="convert: the weights do not fit the model's description; got no blk.3.ffn_up.weight; expected 4 layers with the same tensors"):
        conversion.convert(source, tmp_path / "m.gguf")
    pf.save({**tensors, "model.layers.4.mlp.up_proj.weight": tensors[name]}, source / "model.safetensors")
    with pytest.raises(ValueError, match="got the layers 4, too; expected 4 layers"):
        conversion.convert(source, tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["post_attention_norm", "attn_q_norm", "ffn_gate_inp"])
def test_a_file_with_tensors_of_other_architectures_becomes_no_folder(folder, name, tmp_path):
    conversion.convert(folder, tmp_path / "m.gguf")
    _, raw, weights = _gguf_file.read(tmp_path / "m.gguf")
    names = {**{n: n for n in weights}, **{f"blk.{i}.{name}.weight": f"blk.{i}.ffn_norm.weight" for i in range(4)}}
    with open(tmp_path / "other.gguf", "wb") as f:
        _gguf_file.write(f, raw, [(n, weights[o].type, weights[o].shape) for n, o in names.items()], lambda file, n: file.write(weights[names[n]].raw(0, weights[names[n]].height).tobytes()))
    with pytest.raises(ValueError, match=f"convert: a tensor has no counterpart in a folder; got 'blk.0.{name}.weight'; expected the tensors of the architecture 'llama'"):
        conversion.convert(tmp_path / "other.gguf", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_experts_that_do_not_fit(tmp_path):
    source = folder_with(tmp_path / "small", kind="qwen3_moe")
    with pytest.raises(ValueError, match="convert: GGUF metadata cannot say everything about this model; got experts: .*dense=.1,"):
        conversion.convert(source, tmp_path / "m.gguf")
    source = folder_with(tmp_path / "other", kind="mixtral")
    tensors = dict(pf.load(source))
    del tensors["model.layers.1.block_sparse_moe.experts.3.w1.weight"]
    pf.save(tensors, source / "model.safetensors")
    with pytest.raises(ValueError, match="convert: the experts do not fit each other; got 4 matrices for 'blk.1.ffn_gate_exps.weight'; expected 5 of one shape and type"):
        conversion.convert(source, tmp_path / "m.gguf")


def test_damaged_files(folder, tmp_path):
    conversion.convert(folder, tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    for name, damaged in (("short", data[:len(data) // 2]), ("head", data[:100]), ("count", data[:8] + struct.pack("<Q", 1 << 60) + data[16:]), ("version", data[:4] + b"\t" + data[5:])):
        (tmp_path / f"{name}.gguf").write_bytes(damaged)
        with pytest.raises(ValueError, match="convert: .* is damaged; got .*; expected a GGUF file of version 2 or 3"):
            conversion.convert(tmp_path / f"{name}.gguf", tmp_path / "back")
    source = folder_with(tmp_path / "small")
    weights = (source / "model.safetensors").read_bytes()
    for damaged in (weights[:50], weights[:-100], struct.pack("<Q", 1 << 60) + weights[8:], b"\0" * 8 + weights[8:]):
        (source / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ValueError, match="convert: .* is damaged; got .*; expected a safetensors file"):
            conversion.convert(source, tmp_path / "n.gguf")


# The command.


@pytest.mark.parametrize("target", ["m.gguf", "back"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_part_of_the_target(folder, tmp_path, target, number):
    source = tmp_path / "source.gguf"
    pf.llm.convert(folder, source)
    program = f"""
import os, runpy, signal, sys
from pyflame.llm import conversion
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts programs in the background without it
write = conversion._write_tensor
def written(*arguments):
    done = write(*arguments)
    parts = [name for name in os.listdir({str(tmp_path)!r}) if name.startswith(".{target}.")]
    print(len(parts), flush=True)
    os.kill(os.getpid(), {int(number)})
    return done
conversion._write_tensor = written
sys.argv[1:] = ["--type=F32", {str(source)!r}, {str(tmp_path / target)!r}]
runpy.run_module("pyflame.llm.conversion", run_name="__main__")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (128 + number, "1\n") and "Traceback" not in ran.stderr, ran.stderr
    assert os.listdir(tmp_path) == ["source.gguf"]


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_file_that_is_cut_short(folder, tmp_path, keep):
    """The places are those in the file, which the message also says the size of."""
    pf.llm.convert(folder, tmp_path / "m.gguf")
    whole = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(ValueError, match="hint: the file is cut short or damaged; download it again$") as error:
        pf.llm.load(tmp_path / "m.gguf")
    size, at, all_bytes = map(int, re.search(r"is not inside of the file; got (\d+) bytes at (\d+); expected within (\d+) bytes", str(error.value)).groups())
    assert all_bytes == int(keep * len(whole)) < at + size <= len(whole)
    with pytest.raises(ValueError, match=r"convert: '.*' is damaged; got ValueError: the tensor '.*' has \d+ bytes at \d+, and the file has \d+ bytes; expected a GGUF file .*; hint: if the file is cut short") as error:
        pf.llm.convert(tmp_path / "m.gguf", tmp_path / "n.gguf", "F32")
    size, at, all_bytes = map(int, re.search(r"has (\d+) bytes at (\d+), and the file has (\d+)", str(error.value)).groups())
    assert all_bytes == int(keep * len(whole)) < at + size <= len(whole)


def test_a_report_without_numbers_that_are_not_finite():
    done = conversion.Conversion("a", "b", 10, 5, [], 2.0, float("inf"))
    assert json.loads(json.dumps(done.as_dict(), allow_nan=False))["perplexity_after"] is None and "2.0000 -> inf" in str(done)


def test_the_command(folder, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("the window is open, and the door is shut. " * 3)
    assert command([str(folder), str(tmp_path / "m.gguf"), "--type=q8_0", f"--text={text}"]) == 0
    out = capsys.readouterr()
    lines = out.out.splitlines()
    assert lines[0].split() == ["layer", "types", "relative", "error", "largest", "error"] and any(line.startswith("blk.3") and "Q8_0" in line for line in lines)
    assert "bytes of weights: " in out.out and "perplexity: " in out.out and "blk.3.ffn_up.weight" in out.err
    assert command([str(tmp_path / "m.gguf"), str(tmp_path / "back"), "--json", "--perplexity"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["layers"]["blk.0"] == {"relative": 0.0, "largest": 0.0, "types": ["F32"]} and report["perplexity_before"] > 1 and report["bytes_after"] > report["bytes_before"]
    assert report["tensors"][0].keys() == {"name", "layer", "source", "type", "relative", "largest"}
    assert command([str(folder), str(tmp_path / "m.gguf")]) == 1
    assert "there is something at the target already" in capsys.readouterr().err
    assert command([str(folder), str(tmp_path / "n.gguf"), f"--text={tmp_path / 'no'}"]) == 1
    assert "No such file" in capsys.readouterr().err and not os.path.exists(tmp_path / "n.gguf")
