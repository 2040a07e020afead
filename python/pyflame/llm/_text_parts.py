"""Normalizers and pre-tokenizers: functions of text that tokenizers consist of, by the names of tokenizer.json and of GGUF."""
import re
import struct
import unicodedata

from ._errors import Values, needed

SPACE = "\u2581"  # SentencePiece's sign for a space


def first_places(items):
    """{item: the place where it is first} of a list."""
    return dict(zip(reversed(items), range(len(items) - 1, -1, -1)))


def compiled(pattern, where):
    """A regular expression with Unicode's properties (\\p{L}). ValueError if it is none."""
    regex = needed("regex", "the patterns of tokenizers")
    try:
        return regex.compile(pattern)
    except regex.error as e:
        raise ValueError(f"llm: {where}: a pattern cannot be read; got {pattern[:80]!r} ({e}); expected a regular expression") from None


def isolated(pattern):
    """Splits at matches; the matches and what is between them are pieces."""

    def split(piece):
        parts, at = [], 0
        for match in pattern.finditer(piece):
            begin, end = match.span()
            if end == begin:
                continue
            if begin > at:
                parts.append(piece[at:begin])
            parts.append(piece[begin:end])
            at = end
        if at < len(piece):
            parts.append(piece[at:])
        return parts

    return split


def _byte_characters():
    """GPT-2's printable character of each byte: itself where it is printable in Latin-1, otherwise one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters, further = {}, 256
    for byte in range(256):
        if byte in printable:
            characters[byte] = chr(byte)
        else:
            characters[byte] = chr(further)
            further += 1
    return characters


CHARACTER_OF_BYTE = _byte_characters()
BYTE_OF_CHARACTER = {c: b for b, c in CHARACTER_OF_BYTE.items()}


def as_byte_characters(text):
    return "".join(CHARACTER_OF_BYTE[b] for b in text.encode("utf-8", "surrogatepass"))


# The patterns are those that the tokenizers' own files publish (the Split and ByteLevel parts of their tokenizer.json).
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LOWER, _UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+END|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*END|NUMBERS| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# DeepSeek-LLM's words are of letters with a case, without those of some scripts and blocks: lower-case Armenian, Georgian, mathematical letters, and others.
_WITHOUT = "\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8f\u2d00-\u2d2f\ua790-\ua7ff\uab30-\uab6f\U00010570-\U000105bf\U00010d50-\U00010d85\U00016e40-\U00016ed3\U0001d400-\U0001dfff"
_DEEPSEEK_LETTERS = rf"(?:(?![{_WITHOUT}])[\p{{Lu}}\p{{Ll}}\p{{Lt}}\u0295])"
PATTERNS = {
    "gpt-2": [_GPT2],
    "llama-bpe": [_LLAMA3],
    "qwen2": [_QWEN2],
    "qwen35": [_QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
    "deepseek-llm": [r"[\r\n]", rf"\s?{_DEEPSEEK_LETTERS}+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
    "smollm": [r"\p{N}", _GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"],
    "gpt-4o": [_CASED.replace("END", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?").replace("NUMBERS", r"\p{N}{1,3}")],
    "tekken": [_CASED.replace("END", "").replace("NUMBERS", r"\p{N}")],
}
for _same, _as in {
    "phi-2": "gpt-2", "mpt": "gpt-2", "olmo": "gpt-2", "jais": "gpt-2", "default": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe", "dbrx": "llama-bpe", "smaug-bpe": "llama-bpe",
    "stablelm2": "qwen2", "deepseek-r1-qwen": "qwen2", "starcoder": "smollm", "refact": "smollm", "command-r": "smollm", "codeshell": "smollm",
}.items():
    PATTERNS[_same] = PATTERNS[_as]


def _is_chinese(c):
    return any(a <= c <= b for a, b in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))


def _is_punctuation(c):
    return c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or unicodedata.category(c).startswith("P")


def bert_normalized(text, clean=True, chinese=True, strip_accents=None, lowercase=True):
    """The normalization of BERT (arXiv:1810.04805): control characters go, white space becomes a space, accents and case are removed."""
    if clean:
        text = "".join(" " if c in "\t\n\r" or unicodedata.category(c) == "Zs" else c for c in text
                       if c in "\t\n\r" or not (c in "\0\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Cs")))
    if chinese:
        text = "".join(f" {c} " if _is_chinese(ord(c)) else c for c in text)
    if strip_accents or (strip_accents is None and lowercase):
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in text) if lowercase else text


def bert_words(text):
    """Words, and each sign of punctuation alone."""
    words = []
    for part in text.split():
        word = ""
        for c in part:
            if _is_punctuation(c):
                words += [word, c] if word else [c]
                word = ""
            else:
                word += c
        if word:
            words.append(word)
    return words


class CharacterMap:
    """SentencePiece's compiled normalization: a trie of UTF-8 prefixes as a double array, and the texts that replace them."""

    def __init__(self, blob, where):
        size = struct.unpack_from("<I", blob)[0] if len(blob) >= 4 else 0
        if size < 4 or size % 4 or 4 + size > len(blob):
            raise ValueError(f"llm: {where}: the map of characters is damaged; got {len(blob)} bytes, of which {size} are its trie; expected a trie and texts")
        self.units, self.texts, self.where = struct.unpack_from(f"<{size // 4}I", blob, 4), blob[4 + size:], where

    def _longest(self, data, at):
        """(bytes matched, offset of the replacement), or None."""
        units, node, found = self.units, 0, None
        node ^= self._base(units[0])
        for length, byte in enumerate(data[at:at + 256], 1):
            node ^= byte
            if byte == 0 or node >= len(units) or units[node] & 0x800000FF != byte:
                break
            unit = units[node]
            node ^= self._base(unit)
            if unit >> 8 & 1:
                if node >= len(units):
                    raise ValueError(f"llm: {self.where}: the map of characters is damaged; got a unit {node} of {len(units)}; expected one inside")
                found = length, units[node] & 0x7FFFFFFF
        return found

    @staticmethod
    def _base(unit):
        return unit >> 10 << ((unit & 1 << 9) >> 6)

    def __call__(self, text):
        data, out, at = text.encode("utf-8", "replace"), bytearray(), 0
        while at < len(data):
            match = self._longest(data, at)
            if match:
                end = self.texts.find(b"\0", match[1])
                out += self.texts[match[1]:end if end >= 0 else None]
                at += match[0]
                continue
            first = data[at]
            length = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            out += data[at:at + length]
            at += length
        return out.decode("utf-8", "replace")


def sentence(normalize, prefix, squeeze, symbols=()):
    """What SentencePiece makes of a text before its model divides it, as Parts.pieces. normalize: a CharacterMap or None; prefix: a space is put before the text; squeeze: several spaces
    become one, and those at the ends are removed. symbols: texts that are not changed, each a piece of its own."""
    whole = re.compile("(" + "|".join(map(re.escape, sorted(symbols, key=len, reverse=True))) + ")") if symbols else None

    def pieces(text, first):
        if normalize:
            text = "".join(part if i % 2 else normalize(part) for i, part in enumerate(whole.split(text) if whole else [text]))
        if squeeze:
            text = re.sub(" +", " ", text).strip(" ")
        text = (SPACE if prefix else "") + text.replace(" ", SPACE) if text else ""
        return [part for part in (whole.split(text) if whole else [text]) if part]

    return pieces


def pattern_of(value, where):
    """The regular expression of tokenizer.json's {"Regex": …} or {"String": …}."""
    if isinstance(value, str):
        value = {"String": value}
    values = Values(value, where)
    if "Regex" in values:
        return compiled(values.get("Regex", str), where)
    return compiled(needed("regex", "the patterns of tokenizers").escape(values.get("String", str)), where)
