"""Tokenizers: text to token ids and back, token for token as the originals. _tokenizer_json.py and _tokenizer_gguf.py make them of files."""
from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from ._errors import needed
from ._text_parts import BYTE_OF_CHARACTER, SPACE, first_places

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

BREAK = "\ufdd0"  # a noncharacter of Unicode: no text contains it


@dataclass
class AddedToken:
    """A token that is found in the text before anything else. special: only where the text is trusted."""

    id: int
    text: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass
class Parts:
    """What a tokenizer consists of. pieces(text, is_first) normalizes a section of text and splits it; model.encode(piece) gives ids."""

    tokens: list
    model: object
    pieces: object
    decoder: str  # 'bytes': GPT-2's byte characters; 'spaces': SentencePiece's; 'words': WordPiece's; 'plain'
    added: list = field(default_factory=list)
    byte_tokens: dict = field(default_factory=dict)  # id: byte
    prefix: tuple = ()  # ids before the text, such as bos
    suffix: tuple = ()
    strip_first_space: bool = False
    clean_up: bool = False
    continuing: str = "##"
    id_of: dict = None  # the first id of each token, where that is known


_CLEAN_UP = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))


class Tokenizer:
    """encode() makes token ids of text, decode() text of token ids.

    bos_id, eos_id, unknown_id and pad_id are None where the model has no such token. special_ids: the tokens that stand for no text.

    parts: what it consists of: the vocabulary, the model that encodes pieces of a text, what splits a text into them, the decoder, and the added tokens.

    encode() raises TypeError for what is no str; decode() and token() raise IndexError for an id that is not in the vocabulary.
    """

    def __init__(self, parts: Any, bos_id: int | None = None, eos_id: int | None = None, unknown_id: int | None = None, pad_id: int | None = None) -> None:
        self._parts = parts
        self.bos_id, self.eos_id, self.unknown_id, self.pad_id = bos_id, eos_id, unknown_id, pad_id
        self.special_ids = frozenset(a.id for a in parts.added if a.special)
        self._added = {a.text: a for a in parts.added if a.text}
        self._added_ids = {a.id for a in parts.added}
        self._finders = {}
        self._id_of = first_places(parts.tokens) if parts.id_of is None else parts.id_of

    @property
    def vocab_size(self):
        """The number of token ids, an int: ids are from 0 to vocab_size - 1, with special tokens among them."""
        return len(self._parts.tokens)

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self):
        return f"Tokenizer({self.vocab_size} tokens, {type(self._parts.model).__name__})"

    def token(self, id: int) -> str:
        """The text of the token with this id, a str, as the vocabulary writes it: bytes and spaces may be encoded. IndexError for an id outside of 0 to
        vocab_size - 1.
        """
        if not isinstance(id, int) or not 0 <= id < self.vocab_size:
            raise IndexError(f"token: there is no such token; got {id!r}; expected 0 to {self.vocab_size - 1}")
        return self._parts.tokens[id]

    def id_of(self, token: str) -> int | None:
        """The id of a token by its text in the vocabulary, or None."""
        return self._id_of.get(token)

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The token ids of a text, a list of int.

        add_special: tokens that the model expects before and after a text, such as bos, are added.
        parse_special: a special token's name in the text becomes that token. It is off, so text of strangers cannot contain one. TypeError."""
        if not isinstance(text, str):
            raise TypeError(f"encode: not a text; got {type(text).__name__}; expected str")
        return self._encoded(self._sections(text, parse_special), add_special)

    def encode_guarded(self, text: str, add_special: bool = False) -> list[int]:
        """The token ids of a text in which guarded() has been applied to the parts of strangers. Special tokens are parsed, but not in those parts."""
        pieces, breaks, at = text.split(BREAK), set(), 0
        for piece in pieces[:-1]:
            at += len(piece)
            breaks.add(at)
        return self._encoded(self._sections("".join(pieces), True, breaks), add_special)

    def guarded(self, text: str) -> str:
        """The text with marks where the name of a special token is in it, or could be completed by what stands before or after the text."""
        text = text.replace(BREAK, "")
        names = [self._parts.tokens[i] for i in self.special_ids if self._parts.tokens[i]]
        if not names or not text:
            return text
        longest, breaks = max(map(len, names)), set()
        first = {n[0] for n in names}
        known, begins = set(names), {n[:k] for n in names for k in range(1, len(n))}
        for i, c in enumerate(text):
            if c in first and ((len(text) - i < longest and text[i:] in begins) or any(text[i:i + k] in known for k in range(1, longest + 1))):
                breaks.add(i + 1)
        if any(text.startswith(n[k:]) for n in names for k in range(1, len(n))):
            breaks.add(0)
        return "".join((BREAK if i in breaks else "") + c for i, c in enumerate(text)) + (BREAK if len(text) in breaks else "")

    def _encoded(self, sections, add_special):
        ids = list(self._parts.prefix) if add_special else []
        first = True
        for part in sections:
            if isinstance(part, int):
                ids.append(part)
            elif part:
                for piece in self._parts.pieces(part, first):
                    ids.extend(self._parts.model.encode(piece))
            first = False
        if add_special:
            ids.extend(self._parts.suffix)
        return ids

    def _sections(self, text, parse_special, breaks=()):
        """Ids of added tokens, and the texts between them. A name with one of `breaks` (positions) inside is text."""
        finder = self._finder(parse_special)
        if finder is None:
            return [text]
        parts, at, look = [], 0, 0
        while match := finder.search(text, look):
            token = self._added[match.group()]
            begin, end = match.span()
            inside_word = token.single_word and (text[begin - 1:begin].isalnum() or text[end:end + 1].isalnum())
            if inside_word or any(i in breaks for i in range(begin + 1, end)):
                look = begin + 1
                continue
            between = text[at:begin]
            parts.append(between.rstrip() if token.lstrip else between)
            parts.append(token.id)
            at = end
            while token.rstrip and at < len(text) and text[at].isspace():
                at += 1
            look = at
        parts.append(text[at:])
        return parts

    def _finder(self, parse_special):
        if parse_special not in self._finders:
            names = sorted((a.text for a in self._added.values() if parse_special or not a.special), key=len, reverse=True)
            regex = needed("regex", "the patterns of tokenizers") if names else None
            self._finders[parse_special] = regex.compile("|".join(map(regex.escape, names))) if names else None
        return self._finders[parse_special]

    def token_bytes(self, id: int, skip_special: bool = True) -> bytes:
        """What a token adds to the text, as UTF-8 bytes that may begin or end inside of a character."""
        text, p = self.token(id), self._parts
        if id in self.special_ids:
            return b"" if skip_special else text.encode("utf-8", "replace")
        if id in p.byte_tokens:
            return bytes([p.byte_tokens[id]])
        if id in self._added_ids and p.decoder != "words":
            return (text.replace(SPACE, " ") if p.decoder == "spaces" else text).encode("utf-8", "replace")
        if p.decoder == "bytes":
            known = [BYTE_OF_CHARACTER.get(c) for c in text]
            return text.encode("utf-8", "replace") if None in known else bytes(known)
        if p.decoder == "spaces":
            text = text.replace(SPACE, " ")
        elif p.decoder == "words":
            if not p.continuing:  # GGUF marks the beginnings of words instead
                text = text.replace(SPACE, " ")
            else:
                text = text[len(p.continuing):] if text.startswith(p.continuing) else " " + text
        return text.encode("utf-8", "replace")

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of token ids (any iterable of int). Bytes that are no UTF-8 become U+FFFD. IndexError for an id that is not in the vocabulary."""
        stream = self.stream(skip_special)
        return "".join([stream.feed(int(i)) for i in ids]) + stream.finish()

    def stream(self, skip_special: bool = True, continues: bool = False, shown: Collection[int] = frozenset()) -> TextStream:
        """A TextStream, which decodes one token at a time. continues: there is text before the first token, so a space that begins it stays. shown: ids of
        special tokens that are not skipped."""
        return TextStream(self, skip_special, continues, shown)


class TextStream:
    """feed(id) returns the text that is complete so far; it never splits a character. finish() returns what is left.

    tokenizer: a Tokenizer. skip_special: special tokens give no text, except those of shown, a set of ids. continues: there is text before the first token, so a space that
    begins it stays.

    feed raises IndexError for an id that is not in the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True, continues: bool = False, shown: Collection[int] = frozenset()) -> None:
        self._tokenizer, self._skip, self._shown, self._parts = tokenizer, skip_special, shown, tokenizer._parts
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._first = not continues

    def feed(self, id: int) -> str:
        """The text that the next token adds. Bytes of a character that is not complete wait for the next token."""
        data = self._tokenizer.token_bytes(id, self._skip and id not in self._shown)
        if self._parts.clean_up:
            text = data.decode("utf-8", "replace")
            for old, new in _CLEAN_UP:
                text = text.replace(old, new)
            data = text.encode()
        if self._first and data:
            self._first = False
            if (self._parts.strip_first_space or self._parts.decoder == "words") and data[:1] == b" ":
                data = data[1:]
        return self._utf8.decode(data)

    def finish(self) -> str:
        """The text of the bytes that still wait for the rest of a character, a str. Each incomplete character becomes U+FFFD. '' where none wait."""
        return self._utf8.decode(b"", True)
