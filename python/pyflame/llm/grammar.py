"""Grammars: what a text must be. A model then writes JSON of a schema, a match of a regular expression, or a text of a grammar, and nothing else.

The library llguidance says which tokens may come next (docs/decisions/0020-grammars.md); the others get no probability."""
from __future__ import annotations

import json
import re
import threading

from .. import _numpy as np
from ._errors import SettingsError, needed
from ._masks import bits_of

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_LARK = re.compile(r"(?m)^\s*(%llguidance\b|start\s*:(?!:))")
# Between the parts of a JSON text: nothing, a space, or a new line with its indentation. Without a limit, small models write white space for ever.
SPACE = r"[ ]?|\n[ \t]{0,20}"


# An escape of GBNF, which may be the code of a character in four or eight digits.
_CODE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)


def _plain(match):
    """An escape as the library understands it: it loses the zeros that a code of a character begins with."""
    code = int(match[1] or match[2] or "0", 16)
    if not (match[1] or match[2]) or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return match[0]
    return chr(code) if code >= 128 else f"\\x{code:02x}"


class Grammar:
    """What a text must be. Made by json(), json_schema(), regex(), choice(), gbnf() and lark(). Sampling(grammar=) takes it.

    ValueError for a grammar that is wrong or too large, ImportError without the package llguidance. A Grammar may be used by many requests and models."""

    def __init__(self, kind: str, text: str, compiled: Any) -> None:
        self.kind, self.text, self._compiled = kind, text, compiled
        self._lock, self._prototypes = threading.Lock(), []
        library = needed("llguidance", "grammars")
        message = library.LLMatcher.validate_grammar(compiled)
        if message and not message.startswith("WARNING"):
            raise ValueError(f"grammar: the {kind} is wrong; got {_shortened(message)}; expected {_EXPECTED[kind]}")

    def __reduce__(self):
        return Grammar, (self.kind, self.text, self._compiled)

    @classmethod
    def json(cls) -> Grammar:
        """A grammar that holds a text to be any JSON object: json_schema({'type': 'object'}). ImportError without the package llguidance."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def json_schema(cls, schema: Any) -> Grammar:
        """JSON that fits a schema (json-schema.org): a dict, a text, or a class with model_json_schema() such as pydantic's. Keywords that the library cannot
        hold a text to are an error, and so is oneOf where a value may fit two of its branches."""
        library = needed("llguidance", "grammars")
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as e:
                raise ValueError(f"grammar: the JSON schema is wrong; got {type(e).__name__}: {e}; expected JSON") from None
        if not isinstance(schema, (dict, bool)):
            raise TypeError(f"grammar: the JSON schema is of the wrong type; got {type(schema).__name__}; expected a dict, a text or a class with model_json_schema()")
        try:
            text = json.dumps(schema)
            compiled = library.LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": SPACE})
        except (ValueError, TypeError, RecursionError) as e:
            raise ValueError(f"grammar: the JSON schema is wrong; got {type(e).__name__}: {_shortened(str(e))}; expected {_EXPECTED['JSON schema']}") from None
        return cls("JSON schema", text, compiled)

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """A match of a whole regular expression, in the syntax of Rust's crate regex (without look-around and back references)."""
        library = needed("llguidance", "grammars")
        return cls("regular expression", _text(pattern, "a pattern"), library.LLMatcher.grammar_from_regex(pattern))

    @classmethod
    def choice(cls, texts: Sequence[str]) -> Grammar:
        """A grammar that holds a text to be one of texts. texts: a list or tuple of str, none of them empty (ValueError). ImportError without the package
        llguidance.
        """
        if not isinstance(texts, (list, tuple)) or not texts or not all(isinstance(t, str) and t for t in texts):
            raise ValueError(f"grammar: the choice is wrong; got {texts!r}; expected {_EXPECTED['choice']}")
        library = needed("llguidance", "grammars")
        return cls("choice", json.dumps(texts), library.LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, texts))))

    @classmethod
    def gbnf(cls, text: str) -> Grammar:
        """A text of a grammar in llama.cpp's GBNF, whose first rule is root."""
        needed("llguidance", "grammars")
        translate = needed("llguidance.gbnf_to_lark", "grammars").gbnf_to_lark
        try:
            lark = translate(_CODE.sub(_plain, _text(text, "a grammar")))
        except Exception as e:  # the library raises errors of several kinds
            raise ValueError(f"grammar: the GBNF is wrong; got {_shortened(str(e))}; expected {_EXPECTED['GBNF']}") from None
        return cls("GBNF", text, needed("llguidance", "grammars").LLMatcher.grammar_from_lark(lark))

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """A text of a grammar in Lark's syntax with the extensions of llguidance, whose first rule is start."""
        library = needed("llguidance", "grammars")
        return cls("Lark grammar", _text(text, "a grammar"), library.LLMatcher.grammar_from_lark(text))

    @classmethod
    def of(cls, json: Any = None, regex: str | None = None, choice: Sequence[str] | None = None, grammar: str | None = None,
           json_object: bool | None = None) -> Grammar:
        """A Grammar by vLLM's names, of which exactly one is given. json: a schema; grammar: GBNF, or Lark where it has a rule named start; json_object: True."""
        given = {"json": json, "regex": regex, "choice": choice, "grammar": grammar, "json_object": json_object or None}
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise ValueError(f"grammar: exactly one kind is needed; got {', '.join(names) or 'none'}; expected one of {', '.join(given)}")
        if grammar is not None:
            return (cls.lark if _LARK.search(_text(grammar, "a grammar")) else cls.gbnf)(grammar)
        return cls.json_schema(json) if json is not None else cls.regex(regex) if regex is not None else cls.choice(choice) if choice is not None else cls.json()

    def __repr__(self):
        return f"Grammar({self.kind}, {_shortened(self.text, 60)!r})"

    def matcher(self, vocabulary: Vocabulary) -> Matcher:
        """A Matcher of a new text. vocabulary: a Vocabulary. The grammar is compiled once for a vocabulary. ValueError where it is too large."""
        with self._lock:
            prototype = next((m for v, m in self._prototypes if v is vocabulary), None)
            if prototype is None:
                prototype = needed("llguidance", "grammars").LLMatcher(vocabulary.tokens, self._compiled, log_level=0)
                if prototype.is_error():
                    raise ValueError(f"grammar: the {self.kind} is wrong; got {_error_of(prototype)}; expected {_EXPECTED[self.kind]}")
                self._check_beginning(prototype, vocabulary)
                self._prototypes.append((vocabulary, prototype))
            return Matcher(prototype.deep_copy(), vocabulary, self, prototype)

    def _forget(self, prototype):
        """Texts that begin later are no copies of it: the grammar is compiled anew for them."""
        with self._lock:
            self._prototypes = [(v, m) for v, m in self._prototypes if m is not prototype]

    def _check_beginning(self, prototype, vocabulary):
        """ValueError where a text cannot begin. The library finds that a grammar is too large only when it computes which tokens may come, or when it takes one."""
        allowed = bits_of(np.frombuffer(prototype.compute_bitmask(), dtype="<u4"), vocabulary.size)
        first = next((int(i) for i in np.flatnonzero(allowed) if i not in vocabulary.end_ids), None)
        tried = prototype.deep_copy()
        if first is not None and not tried.is_error():
            tried.consume_token(first)
        if tried.is_error():
            raise ValueError(f"grammar: the {self.kind} is too large; got {_error_of(tried)}; expected a smaller one, or one that repeats less")


_EXPECTED = {
    "JSON schema": "a schema of json-schema.org with keywords that can be held",
    "regular expression": "one in the syntax of Rust's crate regex",
    "choice": "a list of texts that are not empty",
    "GBNF": "rules such as: root ::= \"yes\" | \"no\"",
    "Lark grammar": "rules such as: start: \"yes\" | \"no\"",
}  # fmt: skip


def _text(value, what):
    if not isinstance(value, str):
        raise TypeError(f"grammar: the grammar is of the wrong type; got {type(value).__name__}; expected {what}, a str")
    return value


def _shortened(text, length=300):
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."


def _error_of(matcher):
    """What the library says of a matcher that cannot go on, without its own state, which it adds."""
    return _shortened(matcher.get_error().partition("<state>")[0])


class Vocabulary:
    """A tokenizer as grammars need it: the bytes of each token. size: how many tokens can be drawn; end_ids: tokens that end a text."""

    def __init__(self, tokenizer, size, end_ids):
        library = needed("llguidance", "grammars")
        self.size, self.end_ids = size, sorted(i for i in end_ids if i < size)
        if not self.end_ids:
            raise ValueError("grammar: the model has no token that ends a text; got none; expected one, so that a text can end where its grammar does")
        self.eos_token_id, self.bos_token_id = self.end_ids[0], None
        self._pieces = [tokenizer.token_bytes(i, skip_special=False) for i in range(size)]
        special = {i for i in tokenizer.special_ids if i < size} | set(self.end_ids)
        self.special_token_ids = sorted(special)
        self._encode = tokenizer.encode
        self.tokens = library.LLTokenizer(library.TokenizerWrapper(_Wrapped(self)), n_vocab=size, eos_token=self.end_ids)


class _Wrapped:
    """What the library asks of a tokenizer."""

    def __init__(self, vocabulary):
        self.eos_token_id, self.bos_token_id, self.tokens, self.special_token_ids = vocabulary.eos_token_id, None, vocabulary._pieces, vocabulary.special_token_ids
        self._encode = vocabulary._encode

    def __call__(self, text):
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text, add_special=False)


class Matcher:
    """Where a text is in its grammar. allowed() is an array of bool, one for each token that can be drawn; words() has the same as bits; take(id) adds a token. ended: the text
    is complete.

    Copies of one matcher of the library share what they learn of the grammar, and with it the error of a grammar that grows too large. So that error of one text ends all texts of the same Grammar that have begun;
    those that begin later compile it anew. It takes the library up to a second to meet the error, so texts do not try again."""

    def __init__(self, matcher, vocabulary, grammar, prototype):
        self._matcher, self._vocabulary, self._grammar, self._prototype, self.ended = matcher, vocabulary, grammar, prototype, False

    def allowed(self):
        return bits_of(self.words(), self._vocabulary.size)

    def words(self):
        """Whether tokens are allowed, as bits of a uint32 array: token i is bit i % 32 of the word i // 32."""
        size = self._vocabulary.size
        words = np.frombuffer(self._matcher.compute_bitmask(), dtype="<u4")[: -(-size // 32)].copy()
        self._check()
        if size % 32:
            words[-1] &= np.uint32((1 << size % 32) - 1)
        return words

    def copy(self):
        """A Matcher that goes its own way from here."""
        return Matcher(self._matcher.deep_copy(), self._vocabulary, self._grammar, self._prototype)

    def goes_on(self, id):
        """Adds a token, if it may come here and does not end the text. Whether that is so; if not, the Matcher is at no place of its grammar."""
        if self.ended or not self._matcher.consume_token(id):
            return False
        self.ended = id in self._vocabulary.end_ids
        return not self.ended

    def take(self, id):
        """SettingsError for a grammar that has grown too large; ValueError for a token that may not come here."""
        if not self._matcher.consume_token(id):
            self._check()
            raise ValueError(f"grammar: the token may not come here; got {id}; expected one that the {self._grammar.kind} allows")
        self.ended = id in self._vocabulary.end_ids

    def _check(self):
        if self._matcher.is_error():
            self._grammar._forget(self._prototype)
            raise SettingsError(f"grammar: the text cannot go on; got {_error_of(self._matcher)}; expected a {self._grammar.kind} that is less complex")
