"""pf.llm.convert of folders that have only SentencePiece's tokenizer.model: token for token in the GGUF file and on the way back, and what is refused."""
import base64
import json
import pathlib

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import _tokenizer_gguf, conversion  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

DATA = json.loads((pathlib.Path(__file__).parent / "data" / "sentencepiece.json").read_text(encoding="utf-8"))
FILES = {name: base64.b64decode(model["file"]) for name, model in DATA["models"].items()}
TEXTS = [*DATA["texts"], *(pathlib.Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n")[:40], "a<s>b</s> <unk>", "</s></s> x", "<0x41>", "[PAD402]"]
CONFIG = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}",
          "added_tokens_decoder": {"400": {"content": "<|user|>", "special": True}, "401": {"content": "<|end|>", "special": True}}}  # fmt: skip
NO_PREFIX = b"\x1a\x04\x18\x00\x20\x00"  # a normalizer without a space before the text, which leaves all spaces


def piece(text, type):
    data = text.encode()
    inner = b"\x0a" + bytes([len(data)]) + data + b"\x15\0\0\0\0\x18" + bytes([type])
    return b"\x0a" + bytes([len(inner)]) + inner


def folder_with(path, data, config=None, vocabulary=406, name="tokenizer.model"):
    folder = pathlib.Path(small.write_random_model(path, "llama", seed=3, vocab_size=vocabulary))
    (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps(config or {}))
    return folder


def check(source, folder, texts=TEXTS):
    """The three forms have the same tokens, whether the names of special tokens are text or not."""
    done = conversion.convert(source, folder / "m.gguf")
    conversion.convert(folder / "m.gguf", folder / "back")
    first, *others = tokenizers = [pf.llm.load_tokenizer(p) for p in (source, folder / "m.gguf", folder / "back")]
    assert (folder / "back" / "tokenizer.json").exists() and not (folder / "back" / "tokenizer.model").exists()
    for text in texts:
        for special in (False, True):
            ids = first.encode(text, parse_special=special)
            for other in others:
                assert other.encode(text, parse_special=special) == ids, (text, special)
                assert other.decode(ids) == first.decode(ids), text
    assert len({(t.bos_id, t.eos_id, t.unknown_id) for t in tokenizers}) == 1
    return done, first, pf.load_gguf(folder / "m.gguf")[1]


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model"])
@pytest.mark.parametrize("config", [None, CONFIG], ids=["file alone", "tokenizer_config"])
def test_round_trip(config, name, tmp_path):
    done, tokenizer, m = check(folder_with(tmp_path / "small", FILES["llama"], config, name=name), tmp_path)
    assert done.notes == [] and m["tokenizer.ggml.model"] == "llama" and m["tokenizer.ggml.add_space_prefix"] is True
    assert m["tokenizer.ggml.token_type"][:4] == [2, 3, 3, 6] and m["tokenizer.ggml.token_type"][398:] == ([1, 1, 5, 5, 5, 5, 5, 5] if config is None else [1, 1, 3, 3, 5, 5, 5, 5])
    assert m["tokenizer.ggml.tokens"][:3] == ["<unk>", "<s>", "</s>"] and m["tokenizer.ggml.tokens"][405] == "[PAD405]"
    assert m["tokenizer.ggml.add_bos_token"] is True and m["tokenizer.ggml.eos_token_id"] == (2 if config is None else 401)
    lm = pf.llm.load(tmp_path / "m.gguf")
    assert (lm.logits(tokenizer.encode("the window")).numpy() == pf.llm.load(tmp_path / "small").logits(tokenizer.encode("the window")).numpy()).all()
    assert lm._template_source == (config or {}).get("chat_template")


def test_symbols_and_unused_pieces(tmp_path):
    """Symbols are found in any text, with the spaces that are part of them; unused pieces in none."""
    data = FILES["llama"] + piece("\u2581\u2581", 4) + piece("\u2581\u2581\u2581", 4) + piece("<br>", 4) + piece("qq", 5) + NO_PREFIX
    texts = [*(t for t in TEXTS if "\u2581" not in t), "a<br>b  c   d     e<br><br>", "   <br>", "qq qqq q"]
    done, tokenizer, m = check(folder_with(tmp_path / "small", data), tmp_path, texts)
    assert done.notes == ["symbols of several spaces are not found any more where a text has the sign '\u2581' itself"]
    assert m["tokenizer.ggml.tokens"][400:404] == ["  ", "   ", "<br>", "qq"] and m["tokenizer.ggml.token_type"][400:404] == [4, 4, 4, 5]
    ids = tokenizer.encode("a<br>  b   c qq")
    assert {400, 401, 402} < set(ids) and 403 not in ids and tokenizer.decode(ids) == "a<br>  b   c qq"


def test_text_never_becomes_a_token_that_stands_for_none():
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "<", "s", ">", "s>", "/", "</", "ab"]
    m = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0.0] * len(tokens), "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False,
         "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 6, 5], "tokenizer.ggml.unknown_token_id": 0}  # fmt: skip
    tokenizer = _tokenizer_gguf.from_gguf(m)
    for text in ("<s>", "</s>", "ab"):
        assert not {0, 1, 2, len(tokens) - 1} & set(tokenizer.encode(text)) and tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("<s></s>", parse_special=True) == [1, 2]


@pytest.mark.parametrize(
    "data, config, vocabulary, message",
    [
        (FILES["unigram"], None, 500, "convert: the tokenizer cannot be converted: it is of another kind; got SentencePiece's unigram model; expected byte-level BPE"),
        (FILES["bpe"] + NO_PREFIX, None, 500, "convert: the tokenizer cannot be converted: it lacks tokens for bytes; got 0 tokens for bytes"),
        (FILES["llama"] + b"\x1a\x04\x18\x00\x20\x01", None, 406, "it changes the text first; got several spaces that become one"),
        (FILES["llama"] + piece("<br>", 4), None, 406, "it has symbols that are found in any text, and puts a space before the text alone; got the symbol '<br>'"),
        (FILES["llama"], CONFIG, 401, "it has more tokens than the model's embedding has rows; got 402 tokens and 401 rows"),
        (FILES["llama"][:-3], None, 406, "tokenizer.model' is damaged; got a field of "),
    ],
    ids=["unigram", "no bytes", "spaces", "symbols", "rows", "damaged"],
)  # fmt: skip
def test_refused_before_anything_is_written(data, config, vocabulary, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        conversion.convert(folder_with(tmp_path / "small", data, config, vocabulary), tmp_path / "m.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["small"]


def test_tokens_beside_spaces_are_noted(tmp_path):
    config = {**CONFIG, "added_tokens_decoder": {"400": {"content": "<|user|>", "special": True, "rstrip": True}, "401": {"content": "<|end|>", "special": True}}}
    done = conversion.convert(folder_with(tmp_path / "small", FILES["llama"], config), tmp_path / "m.gguf")
    assert done.notes == ["tokens that take the white space beside them, or stand as a word of their own, do not any more: <|user|>"]
