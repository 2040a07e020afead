"""Tokenizers in the other form: tokenizer.ggml.* of a tokenizer.json or of SentencePiece's own file, and the way back to a tokenizer.json. Byte-level BPE and BPE of SentencePiece.

GGUF names a pre-tokenizer, whose patterns a reader has to know, where tokenizer.json has the patterns themselves. So the patterns are looked up in the
table of names. Both tokenizers are then made and must give the same tokens for texts with digits, contractions, spaces and several scripts."""
import unicodedata

from .. import _text_parts as text_parts
from .. import _tokenizer_gguf, _tokenizer_json, _tokenizer_model
from .._errors import Values
from .._text_parts import SPACE

PROBE = (
    "The window isn't open; I'LL close it, they've said 3 times in 2024: 12345.678!\n\n  def f(x):\n\t\treturn x**2  # ok\r\n",
    " leading and trailing  ", "Größe, ÇA VA, café naïve Ελληνικά русский язык العربية हिन्दी 日本語のテキスト 한국어 中文字符 🙂👍🏽", "HTTPServer camelCase snake_case 0x1F 1,000,000 a'b'c ''' \u00a0\u3000x",
)  # fmt: skip
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_GPT2 = text_parts.PATTERNS["gpt-2"][0]
# One name for each list of patterns; of several, the one that other programs know best. llama-bpe and tekken take whole words of the vocabulary without merges.
_NAMES = ("gpt-2", "llama-bpe", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "smollm", "falcon", "gpt-4o", "tekken")
_WHOLE_WORDS = ("llama-bpe", "tekken")
EXPECTED = "byte-level BPE with the patterns of one of these: " + ", ".join(_NAMES) + "; or BPE of SentencePiece with tokens for bytes"


def _refused(what, got):
    return ValueError(f"convert: the tokenizer cannot be converted: {what}; got {got}; expected {EXPECTED}")


def _patterns(node):
    """The patterns of a pre-tokenizer, as the table of names has them."""
    patterns, byte_level = [], False
    for kind, v in _tokenizer_json._flat(node, "pre_tokenizer", "pretokenizers"):
        pattern = v.values.get("pattern")
        if kind == "Split" and isinstance(pattern, dict) and "Regex" in pattern and v.get("behavior", str, "Isolated") == "Isolated" and not v.get("invert", bool, False):
            patterns.append(v.get("pattern", dict)["Regex"])
        elif kind == "Split" and isinstance(pattern, dict) and "Regex" in pattern and v.get("behavior", str) == "Removed" and v.get("invert", bool, False):
            patterns.append(pattern["Regex"])
        elif kind == "Digits":
            patterns.append(r"\p{N}" if v.get("individual_digits", bool, False) else r"\p{N}+")
        elif kind == "ByteLevel":
            byte_level = True
            if v.get("add_prefix_space", bool, True):
                raise _refused("its pre-tokenizer puts a space before the text", "ByteLevel with add_prefix_space")
            if v.get("use_regex", bool, True):
                patterns.append(_GPT2)
        else:
            raise _refused("a part of its pre-tokenizer has no counterpart", f"{kind} {str(v.values)[:120]}")
    if not byte_level:
        raise _refused("it does not split text into bytes", "no pre-tokenizer ByteLevel")
    return patterns


def _pre(node, whole_words):
    patterns = _patterns(node)
    for name in _NAMES:
        if text_parts.PATTERNS[name] == patterns and (name in _WHOLE_WORDS) == whole_words:
            return name
    raise _refused("GGUF has no name for its patterns" if patterns else "its pre-tokenizer has no pattern", f"{str(patterns)[:200]}{' with' if whole_words else ' without'} ignore_merges")


def _around(known, ids):
    """(is a token added, its id) of the ids that a tokenizer puts before a text or behind it. known: the id of bos or eos, or None."""
    if not ids:
        return False, known
    if len(ids) > 1 or known not in (None, ids[0]):
        raise _refused("it puts tokens around a text that GGUF has no place for", f"the ids {list(ids)}")
    return True, ids[0]


def _byte_level(document, model, tokenizer):
    """The keys of GGUF's model 'gpt2'."""
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name, str, ""):
            raise _refused("its symbols have marks", f"{name} {model.values[name]!r}")
    if others := [k for k in _normalizers(document) if k != "NFC"]:
        raise _refused("it changes the text first", f"the normalizer {', '.join(others)}")
    merges = _tokenizer_gguf.merge_pairs(model.get("merges", list), "tokenizer.json")
    pre = _pre(document.get("pre_tokenizer"), model.get("ignore_merges", bool, False))
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges]}


def _normalizers(document):
    return [k for k, _ in _tokenizer_json._flat(document.get("normalizer"), "normalizer", "normalizers")]


def _has_prefix(document):
    """Does a SentencePiece tokenizer put a space before the text. ValueError for one that does something else."""
    prefix, replaced = False, False
    for kind, v in _tokenizer_json._flat(document.get("normalizer"), "normalizer", "normalizers"):
        if kind == "Prepend" and v.values.get("prepend") == SPACE:
            prefix = True
        elif kind == "Replace" and v.values.get("pattern") == {"String": " "} and v.values.get("content") == SPACE:
            replaced = True
        else:
            raise _refused("it changes the text first", f"the normalizer {kind} {str(v.values)[:80]}")
    for kind, v in _tokenizer_json._flat(document.get("pre_tokenizer"), "pre_tokenizer", "pretokenizers"):
        if kind == "Metaspace" and v.get("replacement", str, SPACE) == SPACE and not v.get("split", bool, True):
            prefix, replaced = v.get("prepend_scheme", str, "always") != "never", True
        elif not (kind == "Split" and v.values.get("pattern") == {"String": " "} and replaced):  # no space is left
            raise _refused("a part of its pre-tokenizer has no counterpart", f"{kind} {str(v.values)[:120]}")
    if not replaced:
        raise _refused("it has no sign for a space", "no normalizer Replace and no pre-tokenizer Metaspace")
    return prefix


def _splits(token, vocab):
    return [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]


def _sentence_piece(document, model, tokenizer):
    """The keys of GGUF's model 'llama'. A token's score is the place of its first merge: SentencePiece merges what has the highest score. It merges all pairs that are a token, so the list of
    merges has to have them all, those of a token beside each other."""
    prefix, vocab, byte_tokens = _has_prefix(document), model.get("vocab", dict), set(tokenizer._parts.byte_tokens)
    if len(byte_tokens) != 256 or tokenizer._parts.model.unknown is None:
        raise _refused("it lacks tokens for bytes, or for what is unknown", f"{len(byte_tokens)} tokens for bytes")
    if model.get("ignore_merges", bool, False):
        raise _refused("it takes whole words", "ignore_merges with byte_fallback")
    of_token, last, scores = {}, None, [0.0] * len(tokenizer)
    for rank, (left, right) in enumerate(_tokenizer_gguf.merge_pairs(model.get("merges", list), "tokenizer.json")):
        token = left + right
        if token in of_token and token != last:
            raise _refused("its merges are not those of SentencePiece", f"merges of {token!r} in two places")
        of_token.setdefault(token, set()).add((left, right))
        if token in vocab and token != last:
            scores[vocab[token]] = -float(rank)
        last = token
    special = {a.text for a in tokenizer._parts.added} | {tokenizer.token(tokenizer._parts.model.unknown)}
    for token, i in vocab.items():
        if token not in special and i not in byte_tokens and of_token.get(token, set()) != set(_splits(token, vocab)):
            raise _refused("its merges are not those of SentencePiece", f"{len(of_token.get(token, ()))} merges of {token!r}, which has {len(_splits(token, vocab))} pairs of tokens")
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.scores": scores, "tokenizer.ggml.add_space_prefix": prefix}


def to_metadata(document, tokenizer_config, size, template, ends):
    """(the keys tokenizer.* of a parsed tokenizer.json, notes on what GGUF does not say). size: rows of the embedding; rows without a token get a name and are marked as unused.
    ends: ids of tokens that end texts. ValueError."""
    tokenizer = _tokenizer_json.from_json(document, tokenizer_config)
    model = Values(document["model"], "tokenizer.json: the model")
    kind = model.get("type", str, "BPE" if "merges" in model else "")
    if kind != "BPE":
        raise _refused("it is of another kind", kind or "a model without a type")
    parts, with_bytes = tokenizer._parts, model.get("byte_fallback", bool, False)
    own = (_sentence_piece if with_bytes else _byte_level)(document, model, tokenizer)
    unknown = parts.model.unknown if with_bytes else tokenizer.unknown_id
    metadata, notes = _with_tokens(tokenizer, own, {}, unknown, size, template, ends)
    if "NFC" in _normalizers(document):
        notes.append("text is not brought to Unicode's form NFC any more")
    metaspace = [v.get("prepend_scheme", str, "always") for k, v in _tokenizer_json._flat(document.get("pre_tokenizer"), "pre_tokenizer", "pretokenizers") if k == "Metaspace"]
    first, leading = "first" in metaspace, bool(metaspace) and "never" not in metaspace
    if first:
        notes.append("a space is put before the text behind each special token, too, not before the first alone")
    if leading:
        notes.append("a space is put before text that begins with a space, too")
    _check_same(tokenizer, _tokenizer_gguf.from_gguf(metadata), not first and not _spaced(parts), not leading)
    return metadata, notes


def of_sentence_piece(path, tokenizer_config, added_tokens, size, template, ends):
    """to_metadata() of SentencePiece's own file. added_tokens: the parsed added_tokens.json. OSError, ValueError."""
    data, where = _tokenizer_model.read(path), f"'{path}'"
    d, tokenizer = _tokenizer_model.described(data, where), _tokenizer_model.from_bytes(data, tokenizer_config, added_tokens, where)
    v, parts = d.vocabulary, tokenizer._parts
    if d.kind != _tokenizer_model.BPE:
        raise _refused("it is of another kind", "SentencePiece's unigram model")
    if d.characters or d.squeeze:
        raise _refused("it changes the text first", "a map of characters" if d.characters else "several spaces that become one")
    if len(parts.byte_tokens) != 256:
        raise _refused("it lacks tokens for bytes", f"{len(parts.byte_tokens)} tokens for bytes")
    symbols = d.symbols({a.id for a in parts.added})
    if symbols and d.prefix:  # GGUF's readers put the space behind each symbol, too
        raise _refused("it has symbols that are found in any text, and puts a space before the text alone", f"the symbol {next(iter(symbols))!r}")
    types = {i: _UNUSED for i in v.with_type(_UNUSED)} | {i: _USER_DEFINED for i in symbols.values()}
    own = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.scores": v.scores + [0.0] * (len(parts.tokens) - len(v.scores)), "tokenizer.ggml.add_space_prefix": d.prefix}
    metadata, notes = _with_tokens(tokenizer, own, types, d.ids["unk"], size, template, ends, {i: t.replace(SPACE, " ") for t, i in symbols.items()})
    if any(SPACE in t for t in symbols):
        notes.append(f"symbols of several spaces are not found any more where a text has the sign {SPACE!r} itself")
    shown = [t.replace(SPACE, " ") for t in list(symbols)[:200]]
    texts = ["".join(shown), "a".join(shown), " ".join(shown), *(tokenizer.token(i) for i in sorted(tokenizer.special_ids)[:200])]
    _check_same(tokenizer, _tokenizer_gguf.from_gguf(metadata), not _spaced(parts), more=texts)
    return metadata, notes


def _spaced(parts):
    """The texts of the tokens that take the white space beside them, or stand as a word of their own."""
    return [a.text for a in parts.added if a.lstrip or a.rstrip or a.single_word]


def _with_tokens(tokenizer, own, types, unknown, size, template, ends, texts=None):
    """(metadata, notes): `own` with the tokens, their types and what is put around a text. types: of tokens that are no added ones and no bytes; unknown: an id or None;
    texts: of tokens that are written in another way, by id."""
    parts, texts = tokenizer._parts, texts or {}
    types = types | {i: _BYTE for i in parts.byte_tokens} | {a.id: _CONTROL if a.special else _USER_DEFINED for a in parts.added}
    if "tokenizer.ggml.scores" in own and unknown is not None:
        types[unknown] = _UNKNOWN
    if len(parts.tokens) > size:
        raise _refused("it has more tokens than the model's embedding has rows", f"{len(parts.tokens)} tokens and {size} rows")
    tokens = [texts.get(i, t) or f"[PAD{i}]" for i, t in enumerate([*parts.tokens, *[""] * (size - len(parts.tokens))])]
    if len(set(tokens)) != len(tokens):
        raise _refused("two tokens have the same text", f"{len(tokens)} tokens with {len(set(tokens))} texts")
    (add_bos, bos), (add_eos, eos) = _around(tokenizer.bos_id, parts.prefix), _around(tokenizer.eos_id, parts.suffix)
    metadata = {
        **own, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [types.get(i, _NORMAL if i < len(parts.tokens) and parts.tokens[i] else _UNUSED) for i in range(len(tokens))],
        "tokenizer.ggml.add_bos_token": add_bos, "tokenizer.ggml.add_eos_token": add_eos,
    }  # fmt: skip
    if "tokenizer.ggml.scores" in own:
        metadata["tokenizer.ggml.scores"] = own["tokenizer.ggml.scores"] + [0.0] * (len(tokens) - len(parts.tokens))
    ends = [e for e in ends if e != eos and e < len(tokens)]
    for name, value in (("bos", bos), ("eos", eos), ("unknown", unknown), ("padding", tokenizer.pad_id), ("eot", ends[0] if ends else None), ("eom", ends[1] if len(ends) > 1 else None)):
        if value is not None:
            metadata[f"tokenizer.ggml.{name}_token_id"] = value
    if template:
        metadata["tokenizer.chat_template"] = template
    notes = [f"token {tokenizer.token(i)!r} ends texts, too; GGUF has no place for it" for i in ends[2:]]
    if spaced := _spaced(parts):
        notes.append(f"tokens that take the white space beside them, or stand as a word of their own, do not any more: {', '.join(spaced[:5])}")
    return metadata, notes


def _check_same(tokenizer, written, beside_special=True, leading=True, more=()):
    """ValueError unless two tokenizers give the same tokens. beside_special, leading: also for text between special tokens, and for text that begins with a space. more: texts in which the
    names of special tokens are text."""
    names = "".join(tokenizer.token(i) for i in sorted(tokenizer.special_ids)[:40])
    texts = [unicodedata.normalize("NFC", text if leading else text.lstrip(" ")) for text in (*PROBE, *([names + "x " + names] if beside_special else []))]
    for text, special in [*((text, True) for text in texts), *((text, False) for text in more)]:
        if (a := tokenizer.encode(text, parse_special=special)) != (b := written.encode(text, parse_special=special)):
            i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            raise _refused("its tokens would be others", f"{b[i:i + 3]} in place of {a[i:i + 3]} for a part of {text[:40]!r}")


def to_documents(metadata):
    """(tokenizer.json, tokenizer_config.json) of GGUF metadata. ValueError for kinds that have no counterpart."""
    v = Values(metadata, "the file's metadata")
    tokenizer = _tokenizer_gguf.from_gguf(metadata)
    kind, pre = v.get("tokenizer.ggml.model", str), v.get("tokenizer.ggml.pre", str, "default")
    if kind not in ("gpt2", "llama"):
        raise _refused("it is of another kind", f"the model '{kind}'")
    parts = tokenizer._parts
    vocab = {}
    for i, t in enumerate(parts.tokens):
        if t in vocab:
            raise _refused("two tokens have the same text", repr(t))
        vocab[t] = i
    own = _of_scores(v, parts, vocab) if kind == "llama" else _of_patterns(v, pre)
    document = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": a.id, "content": a.text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": a.special} for a in sorted(parts.added, key=lambda a: a.id)],
        "normalizer": None, "pre_tokenizer": None, "post_processor": _template_of(tokenizer), **own,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, **own["model"]},
    }  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, value in (("bos", tokenizer.bos_id), ("eos", tokenizer.eos_id), ("unk", tokenizer.unknown_id), ("pad", tokenizer.pad_id)):
        if value is not None:
            config[f"{name}_token"] = tokenizer.token(value)
    if template := v.get("tokenizer.chat_template", str, None):
        config["chat_template"] = template
    _check_same(tokenizer, _tokenizer_json.from_json(document, config))
    return document, config


def _of_patterns(v, pre):
    """What differs in the tokenizer.json of GGUF's model 'gpt2'."""
    steps = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in text_parts.PATTERNS[pre]]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    whole = text_parts.PATTERNS[pre] is text_parts.PATTERNS["llama-bpe"] or pre == "tekken"
    merges = [list(m) for m in _tokenizer_gguf.merge_pairs(v.get("tokenizer.ggml.merges", list), "the file's vocabulary")]
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, byte_level]}, "decoder": byte_level, "model": {"ignore_merges": whole, "merges": merges}}


def _of_scores(v, parts, vocab):
    """What differs in the tokenizer.json of GGUF's model 'llama': the merges are all pairs of tokens that are a token, those with the highest score first."""
    unused = {i for i, t in enumerate(v.get("tokenizer.ggml.token_type", list, [])) if t == _UNUSED}
    scores, left_out, merges = v.get("tokenizer.ggml.scores", list), {a.id for a in parts.added} | set(parts.byte_tokens) | unused, []
    for token, i in vocab.items():
        if i not in left_out:
            merges += [(-scores[i], i, vocab[left], vocab[right]) for left, right in _splits(token, vocab)]
    merges = [[parts.tokens[left], parts.tokens[right]] for _, _, left, right in sorted(merges)]
    prefix = parts.strip_first_space
    decoders = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else [])]
    unknown = parts.model.unknown
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*([{"type": "Prepend", "prepend": SPACE}] if prefix else []), {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"unk_token": None if unknown is None else parts.tokens[unknown], "fuse_unk": True, "byte_fallback": True, "merges": merges},
    }  # fmt: skip


def _template_of(tokenizer):
    before, after = ([tokenizer.token(i) for i in ids] for ids in (tokenizer._parts.prefix, tokenizer._parts.suffix))
    if not before and not after:
        return None
    single = [*({"SpecialToken": {"id": t, "type_id": 0}} for t in before), {"Sequence": {"id": "A", "type_id": 0}}, *({"SpecialToken": {"id": t, "type_id": 0}} for t in after)]
    second = [*({"SpecialToken": {"id": t, "type_id": 1}} for t in before), {"Sequence": {"id": "B", "type_id": 1}}, *({"SpecialToken": {"id": t, "type_id": 1}} for t in after)]
    tokens = {t: {"id": t, "ids": [tokenizer.id_of(t)], "tokens": [t]} for t in [*before, *after]}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *second], "special_tokens": tokens}
