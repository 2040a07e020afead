"""Tokenizers of GGUF metadata (the keys tokenizer.ggml.*)."""
import re

from . import _text_parts as text_parts
from . import _word_models as word_models
from ._errors import Values
from ._text_parts import SPACE, first_places
from .tokenizer import AddedToken, Parts, Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_NO_MARKS = bytes(set(range(256)) - set(b" \n"))
_PREFIXED = ("llama-bpe", "llama3", "llama-v3", "tekken")  # pre-tokenizers of models that expect bos unless the file says otherwise


def _all_are(items, *types):
    """Whether there are items, and all of them of exactly these types. Vocabularies are long, so no code of Python looks at each item."""
    return bool(items) and set(map(type, items)) <= set(types)


class _Source:
    def __init__(self, metadata):
        self.values = v = Values(metadata, "the file's metadata")
        self.tokens = v.get("tokenizer.ggml.tokens", list)
        if not _all_are(self.tokens, str):
            raise ValueError("llm: the file's vocabulary is damaged; got tokens that are not text, or none; expected a list of texts")
        self._other = [(i, t) for i, t in enumerate(self.numbers("tokenizer.ggml.token_type") or ()) if t != _NORMAL]
        self.vocab = first_places(self.tokens)

    def numbers(self, key):
        found = self.values.get(key, list, None)
        if found is not None and (len(found) != len(self.tokens) or not _all_are(found, int, float, bool)):
            raise ValueError(f"llm: the file's vocabulary is damaged: '{key}'; got {len(found)} items; expected a number for each of {len(self.tokens)} tokens")
        return found

    def id(self, name, default=None):
        value = self.values.get(f"tokenizer.ggml.{name}_token_id", int, default)
        if value is not None and not 0 <= value < len(self.tokens):
            if value == default or value in (-1, 0xFFFFFFFF):
                return None
            raise ValueError(f"llm: the file's {name} token is not in its vocabulary; got {value}; expected 0 to {len(self.tokens) - 1}")
        return value

    def needed_id(self, name, default):
        value = self.id(name, default)
        if value is None:
            raise ValueError(f"llm: the file's vocabulary has no {name} token; got none; expected tokenizer.ggml.{name}_token_id for this kind of tokenizer")
        return value

    def flag(self, name, default):
        return self.values.get(f"tokenizer.ggml.{name}", bool, default)

    def with_type(self, *types):
        return {i for i, t in self._other if t in types}


def merge_pairs(merges, where):
    """The pairs of a list of merges: 'left right', or [left, right]. A list of (str, str); ValueError for anything else in the list."""
    pairs = []
    for m in merges:
        if isinstance(m, str):
            left, _, right = m.partition(" ")
            if left and right:  # nearly all of them, so that hundreds of thousands are read fast
                pairs.append((left, right))
                continue
            at = m.find(" ", 1)
            m = (m[:at], m[at + 1:]) if at > 0 else ()
        if not isinstance(m, (list, tuple)) or len(m) != 2 or not all(isinstance(x, str) and x for x in m):
            raise ValueError(f"llm: {where}: a merge is damaged; got {m!r}; expected two texts")
        pairs.append((m[0], m[1]))
    return pairs


def are_texts_of_two(merges):
    """Whether each merge is a text of two symbols with the only space between them, as BytePairs takes them. It is so in files of models; merge_pairs() takes the others apart."""
    if not _all_are(merges, str):
        return False
    lines = "\n".join(["", *merges, ""]).encode("utf-8", "surrogatepass")
    return lines.translate(None, _NO_MARKS) == b"\n" + b" \n" * len(merges) and b"\n " not in lines and b" \n" not in lines


def _byte_pairs(s):
    pre = s.values.get("tokenizer.ggml.pre", str, "default")
    if pre not in text_parts.PATTERNS:
        raise ValueError(f"llm: the pre-tokenizer is not available; got '{pre}'; expected one of {', '.join(sorted(text_parts.PATTERNS))}")
    splits = [text_parts.isolated(text_parts.compiled(p, pre)) for p in text_parts.PATTERNS[pre]]
    merges = s.values.get("tokenizer.ggml.merges", list)
    if not are_texts_of_two(merges):
        merges = merge_pairs(merges, "the file's vocabulary")

    def pieces(text, first):
        parts = [text]
        for split in splits:
            parts = [piece for part in parts for piece in split(part)]
        return [text_parts.as_byte_characters(p) for p in parts]

    model = word_models.BytePairs(s.vocab, merges, ignore_merges=text_parts.PATTERNS[pre] is text_parts.PATTERNS["llama-bpe"] or pre == "tekken")
    return Parts(s.tokens, model, pieces, "bytes"), pre in _PREFIXED


def _scored(s):
    prefix = s.flag("add_space_prefix", True)
    scores = s.numbers("tokenizer.ggml.scores")
    if scores is None:
        raise ValueError("llm: the file's vocabulary has no scores; got none; expected tokenizer.ggml.scores for the model 'llama'")
    unknown = s.id("unknown", 0)
    names = s.with_type(_UNKNOWN, _CONTROL, _UNUSED)  # which no text becomes, as in SentencePiece
    model = word_models.ScoredPairs({t: i for t, i in s.vocab.items() if i not in names}, scores, unknown)
    return Parts(s.tokens, model, lambda text, first: [((SPACE if prefix else "") + text.replace(" ", SPACE))], "spaces", strip_first_space=prefix), True


def _unigram(s):
    prefix, squeeze, where = s.flag("add_space_prefix", True), s.flag("remove_extra_whitespaces", False), "the file's vocabulary"
    scores = s.numbers("tokenizer.ggml.scores")
    if scores is None:
        raise ValueError("llm: the file's vocabulary has no scores; got none; expected tokenizer.ggml.scores for the model 't5'")
    blob = s.values.get("tokenizer.ggml.precompiled_charsmap", list, None)
    if blob and not all(isinstance(b, int) for b in blob):
        raise ValueError(f"llm: {where}: the map of characters is damaged; got an item that is no byte; expected bytes")
    normalize = text_parts.CharacterMap(bytes(b & 255 for b in blob), where) if blob else None
    model = word_models.Unigram(s.vocab, scores, s.needed_id("unknown", 2), left_out=s.with_type(_UNKNOWN, _CONTROL, _UNUSED))
    return Parts(s.tokens, model, text_parts.sentence(normalize, prefix, squeeze), "spaces", strip_first_space=prefix), False


def _word_pieces(s):
    def pieces(text, first):  # files do not say whether case and accents count; the models that are in use ignore both
        return text_parts.bert_words(text_parts.bert_normalized(text))

    model = word_models.WordPiece(s.vocab, s.needed_id("unknown", 100), first=SPACE, continuing="")
    return Parts(s.tokens, model, pieces, "words", continuing=""), True


_MODELS = {"gpt2": _byte_pairs, "llama": _scored, "t5": _unigram, "bert": _word_pieces}


def from_gguf(metadata):
    """The tokenizer of a GGUF file's metadata (the second value of pf.load_gguf). ValueError if it is damaged or of a kind that is not available."""
    s = _Source(metadata)
    kind = s.values.get("tokenizer.ggml.model", str)
    if kind not in _MODELS:
        raise ValueError(f"llm: the kind of tokenizer is not available; got '{kind}'; expected one of {', '.join(_MODELS)}")
    parts, has_bos = _MODELS[kind](s)
    parts.id_of = s.vocab
    control = s.with_type(_CONTROL, _UNKNOWN)
    parts.added = [AddedToken(i, s.tokens[i], i in control) for i in sorted(control | s.with_type(_USER_DEFINED))]
    for i in s.with_type(_BYTE):
        match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", s.tokens[i])
        if match:
            parts.byte_tokens[i] = int(match.group(1), 16)
    bert = kind == "bert"
    bos = s.id("bos", s.id("cls", 101) if bert else 1 if kind == "llama" else None)
    eos = s.id("eos", 2 if kind == "llama" else 1 if kind == "t5" else None)
    last = s.id("seperator", s.id("separator", 102)) if bert else eos
    parts.prefix = (bos,) if bos is not None and s.flag("add_bos_token", has_bos) else ()
    parts.suffix = (last,) if last is not None and s.flag("add_eos_token", kind in ("bert", "t5")) else ()
    return Tokenizer(parts, bos, eos, s.id("unknown"), s.id("padding"))
