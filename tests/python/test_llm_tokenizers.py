"""Tokenizers: the same ids as the packages tokenizers and sentencepiece gave (tests/python/data/tokenizers.json, sentencepiece.json), GGUF metadata, decoding piece by piece, special
tokens, wrong files. Where these packages are installed, further texts are compared with them."""
import base64
import copy
import json
import math
import pathlib
import random

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import _text_parts  # noqa: E402
from pyflame.llm._tokenizer_gguf import are_texts_of_two, from_gguf, merge_pairs  # noqa: E402
from pyflame.llm._tokenizer_json import from_json  # noqa: E402
from pyflame.llm._tokenizer_model import from_bytes  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

VECTORS = json.loads((pathlib.Path(__file__).parent / "data" / "tokenizers.json").read_text(encoding="utf-8"))
NAMES = sorted(VECTORS["tokenizers"])


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_texts_as_the_original(name):
    v = VECTORS["tokenizers"][name]
    tokenizer = from_json(v["json"])
    for text, ids, plain, decoded in zip(VECTORS["texts"], v["ids"], v["plain"], v["decoded"]):
        assert tokenizer.encode(text, parse_special=True) == ids, text
        assert tokenizer.encode(text, add_special=False, parse_special=True) == plain, text
        assert tokenizer.decode(ids) == decoded, text


@pytest.mark.parametrize("name", NAMES)
def test_further_texts_against_the_original(name):
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    document = VECTORS["tokenizers"][name]["json"]
    theirs, ours = tokenizers.Tokenizer.from_str(json.dumps(document)), from_json(document)
    for line in (pathlib.Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n"):
        assert ours.encode(line, parse_special=True) == theirs.encode(line).ids, line


SENTENCES = json.loads((pathlib.Path(__file__).parent / "data" / "sentencepiece.json").read_text(encoding="utf-8"))
FILES = {name: base64.b64decode(model["file"]) for name, model in SENTENCES["models"].items()}


@pytest.mark.parametrize("name", FILES)
def test_files_of_sentencepiece(name):
    model = SENTENCES["models"][name]
    tokenizer = from_bytes(FILES[name])
    for text, ids, decoded in zip(SENTENCES["texts"], model["ids"], model["decoded"]):
        assert tokenizer.encode(text, add_special=False) == ids, text
        if tokenizer.unknown_id not in ids and "\u2581" not in text:  # theirs writes a sign for an unknown token, ours nothing
            assert tokenizer.decode(ids) == decoded, text


@pytest.mark.parametrize("name", FILES)
def test_further_texts_against_sentencepiece(name):
    theirs = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed").SentencePieceProcessor(model_proto=FILES[name])
    ours = from_bytes(FILES[name])
    for line in (pathlib.Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n"):
        assert ours.encode(line, add_special=False) == theirs.encode(line), line


def test_a_folder_with_a_file_of_sentencepiece(tmp_path):
    text, name = SENTENCES["texts"][0], "tokenizer.model"
    (tmp_path / name).write_bytes(FILES["llama"])
    bare = pf.llm.load_tokenizer(tmp_path)
    ids = SENTENCES["models"]["llama"]["ids"][0]
    assert bare.encode(text) == [1, *ids] == pf.llm.load_tokenizer(tmp_path / name).encode(text)
    assert (bare.unknown_id, bare.bos_id, bare.eos_id, bare.pad_id, len(bare)) == (0, 1, 2, None, 400)
    # What the other files say: tokens behind those of the file, and what stands around a text.
    config = {"add_bos_token": False, "add_eos_token": True, "eos_token": "<|end|>", "pad_token": {"content": "<pad>"}, "added_tokens_decoder": {"401": {"content": "<|end|>", "special": True}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text('{"<pad>": 400}')
    tokenizer = pf.llm.load_tokenizer(tmp_path)
    assert tokenizer.encode(text) == [*ids, 401] and (tokenizer.eos_id, tokenizer.pad_id, len(tokenizer)) == (401, 400, 402)
    assert 401 not in tokenizer.encode("<|end|>", add_special=False) and tokenizer.encode("<|end|>", add_special=False, parse_special=True) == [401]
    assert 2 not in bare.encode("</s>", add_special=False) and bare.encode("</s>", add_special=False, parse_special=True) == [2]
    # A model is loaded with it, where there is no tokenizer.json.
    folder = small.write_random_model(tmp_path / "model", vocab_size=402)
    for file in (name, "tokenizer_config.json", "added_tokens.json"):
        (pathlib.Path(folder) / file).write_bytes((tmp_path / file).read_bytes())
    (pathlib.Path(folder) / "tokenizer.json").unlink()
    assert pf.llm.load(folder).tokenizer.encode(text) == [*ids, 401]


def test_symbols_of_users_that_are_special():
    # "<sep>" is a symbol of the file, so it is found in any text; not where tokenizer_config.json calls it special.
    sep = SENTENCES["models"]["bpe"]["ids"][SENTENCES["texts"].index("a<sep>b <sep> c")][1]
    config = {"added_tokens_decoder": {str(sep): {"content": "<sep>", "special": True}}}
    assert sep in from_bytes(FILES["bpe"]).encode("a<sep>") and sep not in from_bytes(FILES["bpe"], config).encode("a<sep>")


def test_damaged_files_of_sentencepiece():
    data = FILES["unigram"]
    draw, outcomes = random.Random(1), set()
    for i in range(300):
        damaged = bytearray(data[: draw.randrange(len(data))] if i % 2 else data)
        for _ in range(draw.randrange(1, 4) if damaged else 0):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            from_bytes(bytes(damaged)).encode("the window")
            outcomes.add("read")
        except ValueError as e:
            assert str(e).startswith("llm: tokenizer.model"), e
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(
    "data, config, added, message",
    [
        (b"", None, None, "tokenizer.model is damaged; got no pieces"),
        (b"IQ== 0\nIg== 1\n", None, None, "tokenizer.model is damaged; got "),
        (b"\x0a\x03\x0d\0\0", None, None, "tokenizer.model is damaged; got a field of 4 bytes, of which there are 2"),
        (b"\x0a\x02\x0f\0", None, None, "tokenizer.model is damaged; got a field of the kind 7 at byte 1"),
        (b"\x0a\x02\x0a", None, None, "tokenizer.model is damaged; got a field of 2 bytes, of which there are 1"),
        (b"\x0a\x02\x08\1", None, None, "tokenizer.model is damaged; got a field 1 of the kind 0"),
        (b"\x08" + b"\xff" * 12, None, None, "tokenizer.model is damaged; got a number without an end at byte 1"),
        (b"\x0a\xff\xff\xff\x7f", None, None, "got a field of 268435455 bytes, of which there are 0"),
        (b"\x0a\x00\x12\x02\x18\x03", None, None, "the kind of tokenizer is not available; got SentencePiece's model type 3"),
        (b"\x0a\x00\x12\x03\xc0\x01\x01", None, None, "the way to write spaces is not available"),
        (FILES["llama"], {"added_tokens_decoder": {"x": {"content": "a"}}}, None, "an added token is damaged; got the id 'x'"),
        (FILES["llama"], {"added_tokens_decoder": {"100000": {"content": "a"}}}, None, "the added tokens do not fit; got ids up to 100000 with 400 pieces"),
        (FILES["llama"], None, {"a": -1}, "an added token is damaged; got the id -1"),
        (FILES["llama"], {"add_bos_token": 3}, None, "'add_bos_token' has the wrong type"),
    ],
)
def test_wrong_files_of_sentencepiece(data, config, added, message):
    with pytest.raises(ValueError, match=message):
        from_bytes(data, config, added)


def metadata(kind, document, **more):
    model = document["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    special = {t["content"] for t in document["added_tokens"]}
    types = [3 if t in special else 6 if t.startswith("<0x") else 1 for t in vocab]
    return {"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": vocab, "tokenizer.ggml.token_type": types, **{f"tokenizer.ggml.{k}": v for k, v in more.items()}}


def merges(document):
    return [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]


@pytest.mark.parametrize("name, pre", [("bpe_bytes", "gpt-2"), ("llama3", "llama-bpe")])
def test_byte_pairs_of_gguf(name, pre):
    v = VECTORS["tokenizers"][name]
    tokenizer = from_gguf(metadata("gpt2", v["json"], pre=pre, merges=merges(v["json"]), bos_token_id=0, add_bos_token=False))
    for text, plain in zip(VECTORS["texts"], v["plain"]):
        assert tokenizer.encode(text, parse_special=True) == plain, text


def test_scores_of_gguf():
    v = VECTORS["tokenizers"]["spm"]
    rank = {m.replace(" ", ""): i for i, m in enumerate(merges(v["json"]))}
    m = metadata("llama", v["json"], unknown_token_id=0, bos_token_id=1, eos_token_id=2)
    m["tokenizer.ggml.scores"] = [-float(rank.get(t, 1e6)) for t in m["tokenizer.ggml.tokens"]]
    tokenizer = from_gguf(m)
    for text, plain, decoded in zip(VECTORS["texts"], v["plain"], v["decoded"]):
        assert tokenizer.encode(text, parse_special=True) == [1, *plain], text
        assert tokenizer.decode(plain) == decoded, text


def test_unigram_of_gguf():
    tokens = ["<pad>", "</s>", "<unk>", "\u2581", "\u2581a", "b", "ab", "\u2581ab", "c"]
    m = {"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0, 0, 0, -2.0, -3.0, -3.5, -3.0, -4.0, -5.0], "tokenizer.ggml.token_type": [3, 3, 2] + [1] * 6}
    # The best sums: "\u2581ab" -4 against -5 and -6.5; "\u2581a" + unknown, whose neighbours are one token.
    tokenizer = from_gguf(m)
    assert tokenizer.encode("ab c") == [7, 3, 8, 1]
    assert tokenizer.encode("axyb", add_special=False) == [4, 2, 5]


def test_word_pieces_of_gguf():
    tokens = ["[UNK]", "[CLS]", "[SEP]", "\u2581hell", "o", "\u2581,", "\u2581cafe"]
    m = {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1]}
    m.update({"tokenizer.ggml.cls_token_id": 1, "tokenizer.ggml.seperator_token_id": 2, "tokenizer.ggml.unknown_token_id": 0})
    tokenizer = from_gguf(m)
    assert tokenizer.encode("Hello, CAF\u00c9 xyz") == [1, 3, 4, 5, 6, 0, 2]
    assert tokenizer.encode("Hello, cafe\u0301 xyz") == [1, 3, 4, 5, 6, 0, 2]
    assert tokenizer.decode([3, 4, 5, 6]) == "hello , cafe"


def test_patterns_of_pre_tokenizers():
    def split(name, text):
        parts = [text]
        for pattern in _text_parts.PATTERNS[name]:
            parts = [p for part in parts for p in _text_parts.isolated(_text_parts.compiled(pattern, name))(part)]
        return parts

    text = "It's 12345\n\n  caf\u00e9!! WE'LL"
    assert split("gpt-2", text) == ["It", "'s", " 12345", "\n\n ", " caf\u00e9", "!!", " WE", "'", "LL"]
    assert split("llama-bpe", text) == ["It", "'s", " ", "123", "45", "\n\n", " ", " caf\u00e9", "!!", " WE", "'LL"]
    assert split("qwen2", text) == ["It", "'s", " ", "1", "2", "3", "4", "5", "\n\n", " ", " caf\u00e9", "!!", " WE", "'LL"]
    assert split("deepseek-llm", text) == ["It", "'", "s", " ", "1", "2", "3", "4", "5", "\n", "\n", " ", " caf", "\u00e9", "!!", " WE", "'", "LL"]
    assert split("deepseek-llm", "\u041f\u0440\u0438\u0432\u0435\u0442 \u4e16\u754c\u3002\u0561\u0562 \U0001d400 end  ") == ["\u041f\u0440\u0438\u0432\u0435\u0442", " ", "\u4e16\u754c", "\u3002", "\u0561\u0562 \U0001d400", " end", "  "]
    assert split("smollm", text) == ["It", "'s", " ", "1", "2", "3", "4", "5", "\n\n ", " caf\u00e9", "!!", " WE", "'", "LL"]


def test_stream_never_splits_a_character():
    tokenizer = from_json(small.tokenizer_json())
    text = "na\u00efve \u4f60\u597d \U0001f642 the end"
    ids = tokenizer.encode(text)
    assert len(ids) > len(text)
    stream = tokenizer.stream()
    pieces = [stream.feed(i) for i in ids]
    assert "" in pieces and "".join(pieces) + stream.finish() == text
    assert not any("\ufffd" in p for p in pieces)
    assert tokenizer.decode(tokenizer.encode("\U0001f642")[:2]) == "\ufffd"


def test_special_tokens_only_where_the_text_is_trusted():
    tokenizer = from_json(small.tokenizer_json())
    end = tokenizer.id_of("<|im_end|>")
    text = "a<|im_end|>b"
    assert end in tokenizer.encode(text, parse_special=True) and end not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text and tokenizer.decode(tokenizer.encode(text, parse_special=True)) == "ab"
    assert tokenizer.decode(tokenizer.encode(text, parse_special=True), skip_special=False) == text
    # No part of a stranger's text becomes a special token, however the names are divided.
    for stranger, around in ((text, "{}"), ("<|im_", "{}end|>"), ("im_end|>", "<|{}"), ("<", "{}|im_end|>"), ("<<|im_end|>", "{}"), ("x\ufdd0<|im_\ufdd0end|>", "{}")):
        guarded = around.format(tokenizer.guarded(stranger)) + "<s>"
        ids = tokenizer.encode_guarded(guarded)
        assert ids.count(end) == 0 and ids[-1] == 0, stranger
        assert tokenizer.decode(ids, skip_special=False) == around.format(stranger.replace("\ufdd0", "")) + "<s>"


def test_map_of_characters_of_sentencepiece():
    import struct

    # A trie of one entry, 'A' to 'b': the root's children begin at unit 1 ^ byte, the leaf's value is the offset 0 of the text.
    units = [0] * 256
    units[0] = 1 << 10  # children at 0 ^ 1
    child = 1 ^ ord("A")
    leaf = child ^ 2
    units[child] = 2 << 10 | 1 << 8 | ord("A")
    units[leaf] = 0
    blob = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"b\0"
    assert _text_parts.CharacterMap(blob, "test")("xA\u00e9A") == "xb\u00e9b"
    with pytest.raises(ValueError, match="the map of characters is damaged; got 3 bytes"):
        _text_parts.CharacterMap(b"abc", "test")


def broken(change):
    document = copy.deepcopy(small.tokenizer_json())
    change(document)
    return document


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d.pop("model"), "no 'model'"),
        (lambda d: d["model"].update(type="Fancy"), "the model of tokenizer.json is not available; got 'Fancy'"),
        (lambda d: d["model"].update(vocab={}), "the vocabulary is damaged"),
        (lambda d: d["model"].update(vocab={"a": -1}), "the vocabulary is damaged"),
        (lambda d: d["model"].update(vocab={"a": 1 << 23}), "expected ids without such gaps"),
        (lambda d: d["model"].update(merges=["ab"]), "a merge is damaged; got"),
        (lambda d: d["model"].update(merges=[["a"]]), "a merge is damaged; got"),
        (lambda d: d["model"].update(merges=7), "'merges' has the wrong type; got int; expected list"),
        (lambda d: d["model"].update(dropout=0.5), "dropout is not available"),
        (lambda d: d.update(normalizer={"type": "Upper"}), "the normalizer of tokenizer.json is not available; got 'Upper'"),
        (lambda d: d.update(pre_tokenizer={"type": "Cut"}), "the pre_tokenizer of tokenizer.json is not available; got 'Cut'"),
        (lambda d: d.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}), "a pattern cannot be read; got '\\('"),
        (lambda d: d.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Some"}), "the behavior of a split is not available; got 'Some'"),
        (lambda d: d.update(decoder={"type": "Odd"}), "the decoder of tokenizer.json is not available; got 'Odd'"),
        (lambda d: d.update(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}]}), "a special token is not in the vocabulary; got '<x>'"),
        (lambda d: d.update(post_processor={"type": "BertProcessing", "cls": [], "sep": ["a", 1]}), "'cls' is damaged; got \\[\\]; expected a token and its id"),
        (lambda d: d.update(model={"type": "Unigram", "unk_id": 0, "vocab": [["a", float("nan")]]}), "the vocabulary is damaged; got an entry that is no text with a score"),
        (lambda d: d.update(post_processor={"type": "TemplateProcessing", "single": []}), "the template has no place for the text"),
    ],
)
def test_wrong_tokenizer_json(change, message):
    with pytest.raises(ValueError, match=message):
        from_json(broken(change))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tokenizer.ggml.model": "magic"}, "the kind of tokenizer is not available; got 'magic'"),
        ({"tokenizer.ggml.pre": "unheard"}, "the pre-tokenizer is not available; got 'unheard'"),
        ({"tokenizer.ggml.tokens": []}, "the file's vocabulary is damaged"),
        ({"tokenizer.ggml.tokens": [1]}, "the file's vocabulary is damaged"),
        ({"tokenizer.ggml.tokens": None}, "no 'tokenizer.ggml.tokens'"),
        ({"tokenizer.ggml.token_type": [1]}, "expected a number for each of"),
        ({"tokenizer.ggml.merges": None}, "no 'tokenizer.ggml.merges'"),
        ({"tokenizer.ggml.merges": ["x"]}, "a merge is damaged"),
        ({"tokenizer.ggml.eos_token_id": 1 << 20}, "the file's eos token is not in its vocabulary; got 1048576"),
        ({"tokenizer.ggml.model": "llama"}, "the file's vocabulary has no scores"),
        ({"tokenizer.ggml.model": "t5"}, "the file's vocabulary has no scores"),
        ({"tokenizer.ggml.model": "t5", "tokenizer.ggml.scores": [-math.inf] * small.VOCABULARY, "tokenizer.ggml.unknown_token_id": 0}, "a score is not finite; got -inf; expected a number"),
        ({"tokenizer.ggml.model": "bert", "tokenizer.ggml.unknown_token_id": 0xFFFFFFFF}, "the file's vocabulary has no unknown token; got none"),
        ({"tokenizer.ggml.model": "t5", "tokenizer.ggml.scores": [0.0] * small.VOCABULARY, "tokenizer.ggml.precompiled_charsmap": ["x"]}, "the map of characters is damaged; got an item"),
    ],
)
def test_wrong_gguf_metadata(change, message):
    d = small.tokenizer_json()
    with pytest.raises(ValueError, match=message):
        from_gguf({**metadata("gpt2", d, pre="gpt-2", merges=merges(d)), **change})


def test_merges_are_read():
    want = [("a", "b"), (" ", "c"), (" \u0120", "d"), ("e", "f g"), ("h", "i j")]
    assert merge_pairs(["a b", "  c", " \u0120 d", ["e", "f g"], "h i j"], "x") == want
    for damaged in ("a", "a ", " a", "", ["a"], ["a", ""], 5):
        with pytest.raises(ValueError, match="llm: x: a merge is damaged; got .*; expected two texts"):
            merge_pairs([damaged], "x")
    assert _text_parts.first_places(["a", "b", "a"]) == {"a": 0, "b": 1} and _text_parts.first_places([]) == {}


def test_merges_of_texts_are_those_of_pairs():
    """A vocabulary's merges stay texts where each is two symbols around its only space; a merge of another form makes all of them pairs."""
    assert are_texts_of_two(["a b", "\u0120 c", "\u00e9 \u00fc"])
    for other in ("ab", " b", "b ", "a b c", "a\nb c", "a b\n", "", " ", "a  b", ["a", "b"], 5):
        assert not are_texts_of_two(["a b", other]) and not are_texts_of_two([other, "a b"]), other
    assert not are_texts_of_two([]) and not are_texts_of_two(["ab", "a b c"])
    d = small.tokenizer_json()
    texts = from_gguf(metadata("gpt2", d, pre="gpt-2", merges=merges(d)))
    pairs = from_gguf(metadata("gpt2", d, pre="gpt-2", merges=[m.split(" ") for m in merges(d)]))
    for text in VECTORS["texts"]:
        assert texts.encode(text) == pairs.encode(text), text


def test_merges_in_a_circle_end():
    d = small.tokenizer_json()
    d["model"]["merges"] = ["a b", "ab a", "b a", "a ba", "aba b", "a a", "aa a"]
    d["model"]["vocab"].update({t: 300 + i for i, t in enumerate(("ab", "aba", "ba", "abab", "aa", "aaa"))})
    tokenizer = from_json(d)
    for text in ("abababa", "a" * 5000, "ab" * 5000):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_wrong_arguments():
    tokenizer = from_json(small.tokenizer_json())
    with pytest.raises(TypeError, match="encode: not a text; got bytes; expected str"):
        tokenizer.encode(b"a")
    with pytest.raises(IndexError, match="token: there is no such token; got 100000; expected 0 to"):
        tokenizer.decode([100000])
    assert len(tokenizer) == tokenizer.vocab_size == small.VOCABULARY and "BytePairs" in repr(tokenizer)
    assert isinstance(tokenizer, pf.llm.Tokenizer)
