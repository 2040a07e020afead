"""Tokenizers of tokenizer.json (the format of Hugging Face's tokenizers)."""
import base64
import re
import unicodedata

from . import _text_parts as text_parts
from . import _word_models as word_models
from ._errors import Values, needed
from ._text_parts import SPACE
from ._tokenizer_gguf import merge_pairs
from .tokenizer import AddedToken, Parts, Tokenizer

_WHERE = "tokenizer.json"


def _kind(node, what):
    values = Values(node, f"{_WHERE}: the {what}")
    return values.get("type", str), values


def _unavailable(what, kind, table):
    return ValueError(f"llm: the {what} of tokenizer.json is not available; got '{kind}'; expected one of {', '.join(sorted(table))}")


# Normalizers: a function of (text, is the section the first one) for each.


def _stripped(v):
    left, right = v.get("strip_left", bool, True), v.get("strip_right", bool, True)
    return lambda text: text.strip() if left and right else text.lstrip() if left else text.rstrip() if right else text


def _replaced(v):
    pattern, content = text_parts.pattern_of(v.values.get("pattern"), v.where), v.get("content", str)
    return lambda text: pattern.sub(lambda match: content, text)


def _bert(v):
    options = v.get("clean_text", bool, True), v.get("handle_chinese_chars", bool, True), v.get("strip_accents", bool, None), v.get("lowercase", bool, True)
    return lambda text: text_parts.bert_normalized(text, *options)


def _precompiled(v):
    try:
        blob = base64.b64decode(v.get("precompiled_charsmap", str, ""), validate=True)
    except ValueError as e:
        raise ValueError(f"llm: {v.where}: the map of characters is damaged; got {e}; expected base64") from None
    return text_parts.CharacterMap(blob, v.where) if blob else lambda text: text


def _prepended(v):
    prefix = v.get("prepend", str)
    return lambda text: prefix + text if text else text


_NORMALIZERS = {
    **{form: lambda v, form=form: lambda text: unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": lambda v: str.lower,
    "StripAccents": lambda v: lambda text: "".join(c for c in text if not unicodedata.category(c).startswith("M")),
    "Strip": _stripped,
    "Replace": _replaced,
    "Prepend": _prepended,
    "BertNormalizer": _bert,
    "Precompiled": _precompiled,
    "ByteLevel": lambda v: text_parts.as_byte_characters,
}


def _flat(node, what, key):
    """The parts of a sequence, also where sequences are nested."""
    if node is None:
        return []
    kind, values = _kind(node, what)
    if kind != "Sequence":
        return [(kind, values)]
    return [part for child in values.get(key, list) for part in _flat(child, what, key)]


def _normalizer(node):
    steps = []
    for kind, values in _flat(node, "normalizer", "normalizers"):
        if kind not in _NORMALIZERS:
            raise _unavailable("normalizer", kind, _NORMALIZERS)
        steps.append(_NORMALIZERS[kind](values))

    def normalize(text):
        for step in steps:
            text = step(text)
        return text

    return normalize


# Pre-tokenizers: a function of (piece, is it the first one of the text) to pieces for each.


def _merged_with(pattern, behavior):
    split = text_parts.isolated(pattern)
    if behavior == "Isolated":
        return split
    if behavior == "Removed":
        return lambda piece: [p for p in split(piece) if not pattern.fullmatch(p)]

    def merge(piece):
        parts, matches = [], []
        for p in split(piece):
            is_match = pattern.fullmatch(p) is not None
            before = matches[-1] if matches else None
            if parts and ((behavior == "Contiguous" and is_match and before) or (behavior == "MergedWithPrevious" and is_match and not before) or (behavior == "MergedWithNext" and before and not is_match)):
                parts[-1] += p
                matches[-1] = is_match and behavior != "MergedWithPrevious"
            else:
                parts.append(p)
                matches.append(is_match)
        return parts

    return merge


_BEHAVIORS = ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def _behavior(v, default):
    behavior = v.get("behavior", str, default)
    if behavior not in _BEHAVIORS:
        raise ValueError(f"llm: {v.where}: the behavior of a split is not available; got '{behavior}'; expected one of {', '.join(_BEHAVIORS)}")
    return behavior


def _split(v):
    pattern, behavior = text_parts.pattern_of(v.values.get("pattern"), v.where), _behavior(v, "Isolated")
    if v.get("invert", bool, False):
        if behavior == "Removed":
            return lambda piece, first: [m.group() for m in pattern.finditer(piece) if m.group()]
        if behavior != "Isolated":
            raise ValueError(f"llm: {v.where}: an inverted split is not available; got '{behavior}'; expected Isolated or Removed")
    split = _merged_with(pattern, behavior)
    return lambda piece, first: split(piece)


def _byte_level(v):
    space = v.get("add_prefix_space", bool, True)
    split = text_parts.isolated(text_parts.compiled(text_parts.PATTERNS["gpt-2"][0], v.where)) if v.get("use_regex", bool, True) else lambda piece: [piece]

    def pieces(piece, first):
        piece = " " + piece if space and not piece.startswith(" ") else piece
        return [text_parts.as_byte_characters(p) for p in split(piece)]

    return pieces


def _metaspace(v):
    sign, scheme = v.get("replacement", str, SPACE), v.get("prepend_scheme", str, "always" if v.get("add_prefix_space", bool, True) else "never")
    words = _merged_with(text_parts.pattern_of(sign, v.where), "MergedWithNext") if v.get("split", bool, True) else lambda piece: [piece]

    def pieces(piece, first):
        piece = piece.replace(" ", sign)
        if (scheme == "always" or (scheme == "first" and first)) and not piece.startswith(sign):
            piece = sign + piece
        return words(piece)

    return pieces


def _of_pattern(pattern, behavior):
    def make(v):
        split = _merged_with(text_parts.compiled(pattern, v.where), behavior)
        return lambda piece, first: split(piece)

    return make


_PRE_TOKENIZERS = {
    "Split": _split,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "Digits": lambda v: _of_pattern(r"\p{N}" if v.get("individual_digits", bool, False) else r"\p{N}+", "Isolated")(v),
    "Punctuation": lambda v: _of_pattern(r"[\p{P}$+<=>^`|~]", _behavior(v, "Isolated"))(v),
    "WhitespaceSplit": lambda v: lambda piece, first: piece.split(),
    "Whitespace": lambda v: lambda piece, first, p=text_parts.compiled(r"\w+|[^\w\s]+", v.where): p.findall(piece),
    "BertPreTokenizer": lambda v: lambda piece, first: text_parts.bert_words(piece),
}


def _pre_tokenizer(node):
    steps = []
    for kind, values in _flat(node, "pre_tokenizer", "pretokenizers"):
        if kind not in _PRE_TOKENIZERS:
            raise _unavailable("pre_tokenizer", kind, _PRE_TOKENIZERS)
        steps.append(_PRE_TOKENIZERS[kind](values))

    def split(text, first):
        parts = [text]
        for step in steps:
            parts = [p for i, part in enumerate(parts) for p in step(part, first and i == 0) if p]
        return parts

    return split


# Models.


def _vocabulary(v):
    vocab = v.get("vocab", dict)
    if not vocab or not all(isinstance(i, int) and 0 <= i < 1 << 24 for i in vocab.values()):
        raise ValueError(f"llm: {v.where}: the vocabulary is damaged; got an id that is none, or no token; expected texts with ids from 0 on")
    return vocab


def _bpe(v):
    vocab, unknown = _vocabulary(v), v.get("unk_token", str, None)
    if v.get("dropout", float, None):
        raise ValueError(f"llm: {v.where}: dropout is not available; got {v.values['dropout']}; expected null")
    return vocab, word_models.BytePairs(
        vocab, merge_pairs(v.get("merges", list), v.where), vocab.get(unknown), v.get("byte_fallback", bool, False), v.get("ignore_merges", bool, False),
        v.get("fuse_unk", bool, False), ending=v.get("end_of_word_suffix", str, ""))


def _unigram(v):
    pairs = v.get("vocab", list)
    if not pairs or not all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], (int, float)) and abs(p[1]) < 1e30 for p in pairs):
        raise ValueError(f"llm: {v.where}: the vocabulary is damaged; got an entry that is no text with a score, or none; expected a list of both")
    unknown = v.get("unk_id", int, None)
    vocab = {}
    for i, (text, _) in enumerate(pairs):
        vocab.setdefault(text, i)
    if unknown is None or not 0 <= unknown < len(pairs):
        raise ValueError(f"llm: {v.where}: the unknown token is not in the vocabulary; got {unknown}; expected 0 to {len(pairs) - 1}")
    return vocab, word_models.Unigram(vocab, [score for _, score in pairs], unknown, v.get("byte_fallback", bool, False))


def _word_piece(v):
    vocab, unknown = _vocabulary(v), v.get("unk_token", str, "[UNK]")
    if unknown not in vocab:
        raise ValueError(f"llm: {v.where}: the unknown token is not in the vocabulary; got '{unknown}'; expected a token")
    return vocab, word_models.WordPiece(vocab, vocab[unknown], continuing=v.get("continuing_subword_prefix", str, "##"), longest_word=v.get("max_input_chars_per_word", int, 100))


_MODELS = {"BPE": _bpe, "Unigram": _unigram, "WordPiece": _word_piece}


def _model(node):
    values = Values(node, f"{_WHERE}: the model")
    kind = values.get("type", str, "BPE" if "merges" in values else "Unigram" if isinstance(values.values.get("vocab"), list) else "WordPiece")
    if kind not in _MODELS:
        raise _unavailable("model", kind, _MODELS)
    return _MODELS[kind](values)


# What stands around the text, and the way back.


def _token_of(v, key):
    """The token of a pair [token, id]."""
    pair = v.get(key, list)
    if not pair:
        raise ValueError(f"llm: {v.where}: '{key}' is damaged; got {pair}; expected a token and its id")
    return pair[0]


def _around(node, id_of):
    """(ids before the text, ids after it) of the post-processor."""
    before, after = [], []
    for kind, v in _flat(node, "post_processor", "processors"):
        if kind == "TemplateProcessing":
            ids, seen = before, False
            for item in v.get("single", list):
                if isinstance(item, dict) and "Sequence" in item:
                    ids, seen = after, True
                elif isinstance(item, dict) and isinstance(item.get("SpecialToken"), dict):
                    ids.append(id_of(item["SpecialToken"].get("id")))
            if not seen:
                raise ValueError(f"llm: {v.where}: the template has no place for the text; got {str(v.values['single'])[:80]}; expected a Sequence")
        elif kind in ("BertProcessing", "RobertaProcessing"):
            before.append(id_of(_token_of(v, "cls")))
            after.append(id_of(_token_of(v, "sep")))
        elif kind != "ByteLevel":
            raise _unavailable("post_processor", kind, ("ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing"))
    return tuple(before), tuple(after)


def _decoding(parts, node):
    for kind, v in _flat(node, "decoder", "decoders"):
        if kind == "ByteLevel":
            parts.decoder = "bytes"
        elif kind == "WordPiece":
            parts.decoder, parts.continuing, parts.clean_up = "words", v.get("prefix", str, "##"), v.get("cleanup", bool, True)
        elif kind == "Metaspace":
            parts.decoder, parts.strip_first_space = "spaces", v.get("prepend_scheme", str, "always") != "never"
        elif kind == "Replace" and v.values.get("pattern") == {"String": SPACE} and v.values.get("content") == " ":
            parts.decoder = "spaces"
        elif kind == "ByteFallback":
            for i, token in enumerate(parts.tokens):
                match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", token)
                if match:
                    parts.byte_tokens[i] = int(match.group(1), 16)
        elif kind == "Strip" and v.get("content", str, " ") == " " and v.get("start", int, 0) <= 1:
            parts.strip_first_space = v.get("start", int, 0) == 1
        elif kind != "Fuse":
            raise _unavailable("decoder", kind, ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece"))


def from_json(document, config=None):
    """The tokenizer of a parsed tokenizer.json. config: the parsed tokenizer_config.json, which names bos, eos and others. ValueError."""
    needed("regex", "the patterns of tokenizers")
    top = Values(document, _WHERE)
    vocab, model = _model(top.get("model", dict))
    added = []
    for node in top.get("added_tokens", list, []):
        v = Values(node, f"{_WHERE}: an added token")
        flags = {name: v.get(name, bool, False) for name in ("special", "lstrip", "rstrip", "single_word")}
        added.append(AddedToken(v.get("id", int), v.get("content", str), **flags))
    size = max([*vocab.values(), *(a.id for a in added)]) + 1
    if size > 4 * (len(vocab) + len(added)) + 1024 or min(a.id for a in [*added, AddedToken(0, "")]) < 0:
        raise ValueError(f"llm: {_WHERE}: the vocabulary is damaged; got {len(vocab)} tokens with ids up to {size - 1}; expected ids without such gaps")
    tokens = [""] * size
    for text, i in vocab.items():
        tokens[i] = text
    for a in added:
        tokens[a.id] = a.text
    normalize, split = _normalizer(top.values.get("normalizer")), _pre_tokenizer(top.values.get("pre_tokenizer"))
    parts = Parts(tokens, model, lambda text, first: split(normalize(text), first), "plain", added)
    by_text = {**vocab, **{a.text: a.id for a in added}}

    def id_of(text):
        if not isinstance(text, str) or text not in by_text:
            raise ValueError(f"llm: {_WHERE}: a special token is not in the vocabulary; got {text!r}; expected a token")
        return by_text[text]

    parts.prefix, parts.suffix = _around(top.values.get("post_processor"), id_of)
    _decoding(parts, top.values.get("decoder"))
    named = {}
    for name in ("bos", "eos", "unk", "pad"):
        token = (config or {}).get(name + "_token")
        token = token.get("content") if isinstance(token, dict) else token
        named[name] = by_text.get(token) if isinstance(token, str) else None
    return Tokenizer(parts, named["bos"], named["eos"], named["unk"], named["pad"])
