"""Tokenizers of SentencePiece's own files (tokenizer.model), which folders in Hugging Face's layout have beside a tokenizer.json or in the place of one.

The file is a message of Protocol Buffers. Of its fields those are read that say how a text becomes ids; the others are skipped."""
import os
import re
import struct
from dataclasses import dataclass

from . import _text_parts as text_parts
from . import _word_models as word_models
from ._errors import Values, needed
from ._text_parts import first_places
from .tokenizer import AddedToken, Parts, Tokenizer

NAMES = ("tokenizer.model", "spiece.model")
_MOST_BYTES, _MOST_ID = 1 << 28, 1 << 24
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is written


def _damaged(where, got):
    return ValueError(f"llm: {where} is damaged; got {got}; expected a model of SentencePiece")


def _number(data, at, where):
    """(a number of 7 bits in each byte, the place behind it)."""
    value = 0
    for i, byte in enumerate(data[at:at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    raise _damaged(where, f"a number without an end at byte {at}")


class _Message:
    """The fields of a message: of each number a list of its values, which are whole numbers, bytes, or four bytes."""

    def __init__(self, data, where):
        self._fields, self._where, at = {}, where, 0
        while at < len(data):
            key, at = _number(data, at, where)
            kind = key & 7
            if kind == _VARINT:
                value, at = _number(data, at, where)
            elif kind in (_BYTES, _FIXED32, _FIXED64):
                size, at = _number(data, at, where) if kind == _BYTES else (4 if kind == _FIXED32 else 8, at)
                if size > len(data) - at:
                    raise _damaged(where, f"a field of {size} bytes, of which there are {len(data) - at}")
                value, at = data[at:at + size], at + size
            else:
                raise _damaged(where, f"a field of the kind {kind} at byte {at}")
            self._fields.setdefault(key >> 3, []).append((kind, value))

    def _last(self, number, kind, default):
        found = self._fields.get(number)
        if not found:
            return default
        if found[-1][0] != kind:
            raise _damaged(self._where, f"a field {number} of the kind {found[-1][0]}")
        return found[-1][1]

    def all(self, number):
        """The messages of a field."""
        if any(kind != _BYTES for kind, _ in self._fields.get(number, ())):
            raise _damaged(self._where, f"a field {number} that is no message")
        return [_Message(value, self._where) for _, value in self._fields.get(number, ())]

    def one(self, number):
        """The last message of a field, an empty one where there is none."""
        return _Message(self._last(number, _BYTES, b""), self._where)

    def number(self, number, default):
        """A whole number of 32 bits with a sign."""
        value = self._last(number, _VARINT, None)
        return default if value is None else ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000

    def float(self, number):
        return struct.unpack("<f", self._last(number, _FIXED32, b"\0\0\0\0"))[0]

    def bytes(self, number):
        return bytes(self._last(number, _BYTES, b""))

    def text(self, number):
        try:
            return self.bytes(number).decode("utf-8")
        except UnicodeDecodeError as e:
            raise _damaged(self._where, f"a text that is no UTF-8: {e.reason}") from None


@dataclass
class _Vocabulary:
    """The pieces of the file: texts, scores and types by id."""

    tokens: list
    scores: list
    types: list

    def with_type(self, *types):
        return {i for i, t in enumerate(self.types) if t in types}


def _vocabulary(top, where):
    pieces = top.all(1)
    if not pieces:
        raise _damaged(where, "no pieces")
    return _Vocabulary([p.text(1) for p in pieces], [p.float(2) for p in pieces], [p.number(3, _NORMAL) for p in pieces])


@dataclass
class Description:
    """What a file says of the way from a text to ids. kind: UNIGRAM, BPE or another number; characters: the bytes of the map of characters; prefix: a space is put before a text; squeeze: spaces are left out."""

    vocabulary: _Vocabulary
    kind: int
    characters: bytes
    prefix: bool
    squeeze: bool
    ids: dict  # of unk, bos, eos and pad, or None

    def symbols(self, added):
        """The ids of the pieces that are found in any text, by their texts. added: ids of the tokens that are known otherwise."""
        v = self.vocabulary
        return {v.tokens[i]: i for i in v.with_type(_USER_DEFINED) if i not in added and v.tokens[i]}


def described(data, where="tokenizer.model"):
    """The Description of the bytes of a file. ValueError."""
    top = _Message(data, where)
    v, trainer, normalizer = _vocabulary(top, where), top.one(2), top.one(3)
    if trainer.number(24, 0) or not normalizer.number(5, 1):
        raise ValueError(f"llm: {where}: the way to write spaces is not available; got spaces behind words, or spaces as they are; expected SentencePiece's mark before words")
    ids = {name: i if 0 <= (i := trainer.number(number, default)) < len(v.tokens) else None for name, number, default in (("unk", 40, 0), ("bos", 41, 1), ("eos", 42, 2), ("pad", 43, -1))}
    if ids["unk"] is None:
        raise _damaged(where, "no unknown token")
    return Description(v, trainer.number(3, UNIGRAM), normalizer.bytes(2), bool(normalizer.number(3, 1)), bool(normalizer.number(4, 1)), ids)


def _word_model(kind, v, unknown, where):
    vocab, has_bytes = first_places(v.tokens), bool(v.with_type(_BYTE))
    if kind == UNIGRAM:
        return word_models.Unigram(vocab, v.scores, unknown, has_bytes, v.with_type(_UNKNOWN, _CONTROL, _UNUSED, _BYTE))
    if kind == BPE:
        names = {v.tokens[i] for i in v.with_type(_UNKNOWN, _CONTROL, _UNUSED)}
        return word_models.ScoredPairs({t: i for t, i in vocab.items() if t not in names}, v.scores, unknown, has_bytes, fuse_unknown=True)
    raise ValueError(f"llm: {where}: the kind of tokenizer is not available; got SentencePiece's model type {kind}; expected unigram (1) or BPE (2)")


class _WithSymbols:
    """A model of words beside which some pieces are a token as they are. ids: these tokens by their texts."""

    def __init__(self, model, ids):
        self._model, self._ids = model, ids

    def encode(self, piece):
        return [self._ids[piece]] if piece in self._ids else self._model.encode(piece)


def _added(v, config, more):
    """The AddedTokens by their ids: those of the file that stand for no text, of added_tokens.json (`more`: ids by text), and of tokenizer_config.json, which knows most of them."""
    found = {i: AddedToken(i, v.tokens[i]) for i in v.with_type(_CONTROL, _UNKNOWN)}
    for text, i in more.items():
        found[_id(i, "added_tokens.json")] = AddedToken(i, text)
    for key, node in config.get("added_tokens_decoder", dict, {}).items():
        i = _id(int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key, config.where)
        t = Values(node, f"{config.where}: an added token")
        found[i] = AddedToken(i, t.get("content", str), **{name: t.get(name, bool, False) for name in ("special", "lstrip", "rstrip", "single_word")})
    return found


def _id(i, where):
    if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < _MOST_ID:
        raise ValueError(f"llm: {where}: an added token is damaged; got the id {i!r}; expected 0 to {_MOST_ID - 1}")
    return i


def _spread(v, added, where):
    """The tokens by id, with those of `added` in their places."""
    size = max([len(v.tokens) - 1, *added]) + 1
    if size > len(v.tokens) + 2 * len(added) + 1024:
        raise ValueError(f"llm: {where}: the added tokens do not fit; got ids up to {size - 1} with {len(v.tokens)} pieces; expected ids without such gaps")
    tokens = v.tokens + [""] * (size - len(v.tokens))
    for a in added.values():
        tokens[a.id] = a.text
    return tokens


def from_bytes(data, config=None, added_tokens=None, where="tokenizer.model"):
    """The tokenizer of the bytes of a file. config: the parsed tokenizer_config.json; added_tokens: the parsed added_tokens.json. ValueError for a file that is damaged or of a kind that is
    not available."""
    needed("regex", "the patterns of tokenizers")
    d, c = described(data, where), Values(config or {}, "tokenizer_config.json")
    v, blob, prefix, squeeze, ids = d.vocabulary, d.characters, d.prefix, d.squeeze, d.ids
    model = _word_model(d.kind, v, ids["unk"], where)
    added = _added(v, c, added_tokens or {})
    tokens = _spread(v, added, where)
    symbols = d.symbols(added)  # what tokenizer_config.json calls special is not found in texts of strangers
    pieces = text_parts.sentence(text_parts.CharacterMap(blob, where) if blob else None, prefix, squeeze, symbols)
    parts = Parts(tokens, _WithSymbols(model, symbols), pieces, "spaces", [added[i] for i in sorted(added)], strip_first_space=prefix or squeeze)
    for i in v.with_type(_BYTE):
        if match := re.fullmatch("<0x([0-9A-Fa-f]{2})>", v.tokens[i]):
            parts.byte_tokens[i] = int(match.group(1), 16)
    by_text = {**first_places(tokens), **{a.text: a.id for a in added.values()}}
    for name in ids:
        token = c.values.get(name + "_token")
        token = token.get("content") if isinstance(token, dict) else token
        ids[name] = by_text.get(token, ids[name]) if isinstance(token, str) else ids[name]
    parts.prefix = (ids["bos"],) if ids["bos"] is not None and c.get("add_bos_token", bool, True) else ()
    parts.suffix = (ids["eos"],) if ids["eos"] is not None and c.get("add_eos_token", bool, False) else ()
    return Tokenizer(parts, ids["bos"], ids["eos"], ids["unk"], ids["pad"])


def read(path):
    """The bytes of a file. OSError; ValueError for one that is too large."""
    size = os.path.getsize(path)
    if size > _MOST_BYTES:
        raise ValueError(f"llm: '{path}' is too large; got {size} bytes; expected a model of SentencePiece with at most {_MOST_BYTES}")
    with open(path, "rb") as f:
        return f.read()


def from_file(path, config=None, added_tokens=None):
    """from_bytes() of a file. OSError; ValueError."""
    return from_bytes(read(path), config, added_tokens, f"'{path}'")
