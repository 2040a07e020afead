"""From the JSON of a request to what the engine is asked for. Each field's type and range is checked, fields that nobody knows are ignored, and fields
whose work is not available are refused by name: an answer that leaves out what was asked for would be wrong without a word."""
import json
import math
import re
from dataclasses import dataclass, field

from .. import tools as calls
from .._beams import BeamSearchParams
from .._intake import last_tokens
from .._masks import bad_words_ids
from .._pieces import Pieces
from .._templates import TAKEN
from ..grammar import Grammar

MOST_CHOICES = 128  # prompts times n, or times best_of
MOST_STOPS = 16
MOST_STOP_LENGTH = 1024  # characters
MOST_WORDS = 1024  # that are not written
MOST_TOP = 20  # logprobs of other tokens
MOST_TOOLS = 128
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RequestError(Exception):
    """An answer that is an error, in OpenAI's form. param: the field that is wrong."""

    def __init__(self, message, param=None, status=400, code=None, kind=None, headers=None):
        super().__init__(message)
        self.message, self.param, self.status, self.code, self.headers = message, param, status, code, headers or {}
        self.kind = kind or ("invalid_request_error" if status < 500 else "server_error")

    def document(self):
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


# Fields whose work is not available: the values that ask for nothing.
_NOT_YET = {
    "functions": (), "function_call": ("none",), "modalities": (["text"],), "audio": (), "prediction": (), "web_search_options": (),
    "chat_template": (), "suffix": ("",),
    "detokenize": (True,), "return_token_ids": (False,), "return_tokens_as_token_ids": (False,), "logits_processors": ([],), "documents": ([],), "cache_salt": ("",), "thinking_token_budget": (),
}  # fmt: skip

# Fields that do nothing in a beam search: the values that ask for nothing. A seed has nothing to choose there.
_NOT_WITH_BEAMS = {
    "stream": (False,), "logprobs": (False,), "prompt_logprobs": (), "echo": (False,), "stop": ([], ""), "stop_token_ids": ([],), "logit_bias": ({},), "top_p": (1, 1.0), "min_p": (0, 0.0), "top_k": (-1, 0), "min_tokens": (0,),
    "repetition_penalty": (1, 1.0), "presence_penalty": (0, 0.0), "frequency_penalty": (0, 0.0), "tools": ([],), "response_format": ({"type": "text"},), "structured_outputs": ({},),
    "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    "bad_words": ([],), "allowed_token_ids": (), "include_stop_str_in_output": (False,),
}  # fmt: skip


def parse(op, data):
    """The JSON object of a body. RequestError."""
    def constant(name):
        raise ValueError(f"{name} is no JSON")

    try:
        document = json.loads(data.decode("utf-8"), parse_constant=constant)
    except (ValueError, RecursionError) as e:
        raise RequestError(f"{op}: the body cannot be read; got {type(e).__name__}: {str(e)[:120]}; expected a JSON object") from None
    if not isinstance(document, dict):
        raise RequestError(f"{op}: the body has another form; got {_kind(document)}; expected a JSON object")
    return document


_KINDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "an object", "NoneType": "null"}


def _kind(value):
    return _KINDS.get(type(value).__name__, type(value).__name__)


def _shown(value):
    try:
        text = json.dumps(value) if not isinstance(value, str) else value
    except RecursionError:
        text = _kind(value)
    return text if len(text) <= 80 else text[:77] + "..."


class Fields:
    """The fields of a request."""

    def __init__(self, op, values):
        self.op, self.values = op, values

    def wrong(self, name, what, got, expected, **options):
        return RequestError(f"{self.op}: {what}; got {got}; expected {expected}", param=name, **options)

    def get(self, name, kind, default=None, low=-math.inf, high=math.inf):
        """The value of a field of this type, or the default for a field that is missing or null. RequestError."""
        value = self.values.get(name)
        if value is None:
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 1000:
            value = float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise self.wrong(name, f"{name} has the wrong type", _kind(value), _KINDS[kind.__name__])
        if kind in (int, float) and not low <= value <= high:
            expected = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
            raise self.wrong(name, f"{name} is out of range", _shown(value), expected)
        return self.text(name, value) if kind is str else value

    def text(self, name, value):
        """A text that is whole Unicode. RequestError."""
        if not isinstance(value, str):
            raise self.wrong(name, f"{name} has the wrong type", _kind(value), "a text")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise self.wrong(name, f"{name} is no Unicode text", "half of a surrogate pair", "whole characters") from None
        return value

    def _refuse(self, table, why):
        for name, harmless in table.items():
            value = self.values.get(name)
            if value is not None and not any(value == h and type(value) is type(h) for h in harmless):
                raise self.wrong(name, f"{name} is not available {why}", _shown(value), "a request without it", code="unsupported_parameter")

    def refuse_what_is_missing(self, also=()):
        self._refuse({**_NOT_YET, **dict(also)}, "yet")

    def refuse_what_beams_lack(self):
        self._refuse(_NOT_WITH_BEAMS, "with use_beam_search")


@dataclass
class Job:
    """What the engine is asked for: a choice for each prompt and each of n. Lists of token ids; sampling: keyword arguments of Sampling."""

    prompts: list
    max_tokens: list  # of each prompt
    n: int = 1
    best_of: int = 1  # texts that are written for each prompt; the n likeliest are the answer
    sampling: dict = field(default_factory=dict)
    stops: tuple = ()
    stop_ids: frozenset = frozenset()
    named_ends: frozenset = frozenset()  # those of stop_ids that the request asked for, and that are not the model's own
    logprobs: int = None
    prompt_logprobs: int = None
    echo: bool = False  # the text begins with the prompt
    repeated: list = None  # with echo, of each prompt: its text, and where in it each token begins
    grammar_field: str = None  # of the request, where it has a grammar
    priority: int = 0
    user: str = None  # of the request's field
    client: object = None  # clients with texts of equal priority take turns
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False  # each piece of a stream has the usage so far, and each token has a piece
    continues: list = field(default_factory=list)  # of each prompt: is there text before what is written
    tool_format: object = None  # how calls of functions are written, where there are some
    tool_names: frozenset = frozenset()
    lora: str = None  # the name of an adapter
    beams: list = None  # of each prompt a BeamSearchParams: the n best texts of a search are its choices
    shown: frozenset = frozenset()  # special tokens that are part of the text
    includes_stop: bool = False  # the text has what ended it


def _stops(f):
    value = f.values.get("stop")
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise f.wrong("stop", "stop has the wrong type", _kind(value), "a text or a list of texts")
    if len(stops) > MOST_STOPS or not all(0 < len(f.text("stop", s)) <= MOST_STOP_LENGTH for s in stops):
        raise f.wrong("stop", "the stop texts do not fit", f"{len(stops)} texts of {', '.join(str(len(s)) for s in stops[:4])} characters", f"at most {MOST_STOPS} texts of 1 to {MOST_STOP_LENGTH} characters")
    return tuple(stops)


def _bad_words(f, tokenizer):
    """The token ids of the words that are not written. RequestError."""
    words = f.get("bad_words", list, [])
    if len(words) > MOST_WORDS or not all(0 < len(f.text("bad_words", w)) <= MOST_STOP_LENGTH for w in words):
        raise f.wrong("bad_words", "bad_words do not fit", f"{len(words)} texts of {', '.join(str(len(w)) for w in words[:4])} characters", f"at most {MOST_WORDS} texts of 1 to {MOST_STOP_LENGTH} characters")
    return bad_words_ids(tokenizer, words)


def _allowed_ids(f, known):
    """The tokens that may be drawn, or None for all. RequestError."""
    ids = f.get("allowed_token_ids", list)
    if ids == []:
        raise f.wrong("allowed_token_ids", "allowed_token_ids is empty", "no token", "one at least, or null for all")
    return None if ids is None else _ids(f, "allowed_token_ids", ids, known)


def _ids(f, name, value, vocab):
    """A list of token ids. RequestError."""
    for i in value:
        if isinstance(i, bool) or not isinstance(i, int):
            raise f.wrong(name, f"{name} has the wrong type", f"a list with {_kind(i)}", "token ids, whole numbers")
        if not 0 <= i < vocab:
            raise f.wrong(name, f"{name} has a token that is not in the vocabulary", _shown(i), f"0 to {vocab - 1}")
    return list(value)


def _logit_bias(f, vocab):
    bias = f.get("logit_bias", dict, {})
    if len(bias) > 1024:
        raise f.wrong("logit_bias", "logit_bias has too many tokens", len(bias), "at most 1024")
    found = {}
    for token, value in bias.items():
        known = token.isascii() and token.isdigit() and len(token) < 12 and int(token) < vocab
        if not known or isinstance(value, bool) or not isinstance(value, (int, float)) or not -100 <= value <= 100:
            raise f.wrong("logit_bias", "logit_bias does not fit", f"{_shown(token)}: {_shown(value)}", f"token ids from 0 to {vocab - 1} with numbers from -100 to 100")
        found[int(token)] = float(value)
    return found


_NUMBERS = (  # field, type, least, greatest
    ("temperature", float, 0, 100), ("top_p", float, 0, 1), ("min_p", float, 0, 1), ("repetition_penalty", float, 1e-6, 100), ("presence_penalty", float, -2, 2),
    ("frequency_penalty", float, -2, 2), ("top_k", int, -1, 1 << 31), ("min_tokens", int, 0, 1 << 31), ("seed", int, -(1 << 63), (1 << 64) - 1),
)  # fmt: skip


def _sampling(f, model):
    given = {name: f.get(name, kind, None, low, high) for name, kind, low, high in _NUMBERS}
    if given["top_p"] == 0:
        raise f.wrong("top_p", "top_p is out of range", "0.0", "0 < top_p <= 1; hint: temperature 0 takes the likeliest token")
    if given["top_k"] == -1:  # another way to say: all
        given["top_k"] = 0
    if given["seed"] is not None:
        given["seed"] %= 1 << 64
    given["logit_bias"] = _logit_bias(f, model._known()) or None
    given["allowed_token_ids"], given["bad_words_ids"] = _allowed_ids(f, model._known()), _bad_words(f, model.tokenizer) or None
    return {name: value for name, value in given.items() if value is not None}


def _truncated(f, prompts, most):
    """The last truncate_prompt_tokens of each prompt; with -1 those that the context has room for. RequestError."""
    count = f.get("truncate_prompt_tokens", int)
    if count is None:
        return prompts
    if count < -1 or count == 0:
        raise f.wrong("truncate_prompt_tokens", "truncate_prompt_tokens is out of range", count, "at least 1, or -1 for as many as there is room for")
    return [last_tokens(ids, count, most) for ids in prompts]


def _common(f, model, prompts, continues, most_tokens, default):
    """The Job of fields that chats and completions share."""
    n = f.get("n", int, 1, 1, MOST_CHOICES)
    best_of = f.get("best_of", int, n, 1, MOST_CHOICES)
    if best_of < n:
        raise f.wrong("best_of", "best_of is out of range", f"best_of = {best_of} and n = {n}", "best_of to be at least n")
    if best_of * len(prompts) > MOST_CHOICES:
        name = "best_of" if best_of > n else "n"
        raise f.wrong(name, "there are too many choices", f"{len(prompts)} prompts, {name} = {best_of}", f"at most {MOST_CHOICES} in all")
    if best_of > n and f.get("stream", bool, False):
        raise f.wrong("best_of", "best_of and stream exclude each other", f"best_of = {best_of} and n = {n}", "best_of = n, or no stream, because all texts must have ended before the best are known")
    echo = f.get("echo", bool, False)
    least = 0 if echo else 1  # the prompt alone
    asked = f.get("max_completion_tokens", int, f.get("max_tokens", int, None, least), least)
    name = "max_tokens" if f.values.get("max_completion_tokens") is None else "max_completion_tokens"
    room, prompts = [], _truncated(f, prompts, most_tokens - (asked or 1))
    for ids in prompts:
        if not ids:
            raise f.wrong("prompt", "there are no tokens", "a prompt without tokens", "at least one token")
        if len(ids) + (1 if asked is None else asked) > most_tokens:
            got = f"{len(ids)} of the prompt" + (f" and {name} = {asked}" if asked is not None else "")
            raise f.wrong(name if asked is not None else "messages", "the context has no room for these tokens", got, f"at most {most_tokens} in all{', one of them new' * least}", code="context_length_exceeded")
        left = most_tokens - len(ids)
        room.append(asked if asked is not None else min(default or left, left))
    options = Fields(f.op, f.get("stream_options", dict, {}))
    include_usage, continuous = options.get("include_usage", bool, False), options.get("continuous_usage_stats", bool, False)
    stop_ids = frozenset(_ids(f, "stop_token_ids", f.get("stop_token_ids", list, []), model.config.vocab))
    own_ends = frozenset() if f.get("ignore_eos", bool, False) else model.end_ids
    prompt_logprobs = f.get("prompt_logprobs", int, None, 0, MOST_TOP)
    if prompt_logprobs is not None and f.get("stream", bool, False):
        raise f.wrong("prompt_logprobs", "prompt_logprobs and stream exclude each other", "both", "one of them; hint: echo with logprobs of /v1/completions has a stream")
    shown = frozenset() if f.get("skip_special_tokens", bool, True) else model.tokenizer.special_ids
    beams = _beams(f, n, best_of, room) if f.get("use_beam_search", bool, False) else None
    return Job(
        prompts=prompts, continues=continues, max_tokens=room, n=n, best_of=best_of, sampling=_sampling(f, model), stops=_stops(f), priority=f.get("priority", int, 0, -(1 << 31), 1 << 31),
        stop_ids=stop_ids | own_ends, named_ends=stop_ids - own_ends, stream=f.get("stream", bool, False),
        include_usage=include_usage, continuous_usage=include_usage and continuous, beams=beams,
        prompt_logprobs=prompt_logprobs, echo=echo, user=f.get("user", str), shown=shown, includes_stop=f.get("include_stop_str_in_output", bool, False),
    )  # fmt: skip


def _beams(f, n, best_of, room):
    """A BeamSearchParams for each prompt, by vLLM's names: n beams, temperature, length_penalty, ignore_eos. RequestError."""
    f.refuse_what_beams_lack()
    if best_of > n:
        raise f.wrong("best_of", "best_of and use_beam_search exclude each other", f"best_of = {best_of} and n = {n}", "best_of = n, because a search with n beams returns the n best")
    fixed = {"beam_width": n, "ignore_eos": f.get("ignore_eos", bool, False), "temperature": f.get("temperature", float, 0.0, 0, 100), "length_penalty": f.get("length_penalty", float, 1.0, -16, 16)}
    return [BeamSearchParams(max_tokens=most, **fixed) for most in room]


def check_model(f, names):
    name = f.get("model", str)
    if name is not None and name not in names:
        raise f.wrong("model", "there is no such model", _shown(name), " or ".join(names), status=404, code="model_not_found")


def _content(f, message):
    content = message.get("content")
    if isinstance(content, list):
        parts = []
        for part in content:
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise f.wrong("messages", "a part of a message is damaged", _shown(part), "an object with type and text")
            if part["type"] not in ("text", "refusal"):
                raise f.wrong("messages", f"parts of the type {_shown(part['type'])} are not available yet", "one", "text", code="unsupported_parameter")
            parts.append(f.text("messages", part.get(part["type"])))
        return "\n".join(parts)
    return f.text("messages", content)


def _earlier_calls(f, role, given):
    """The calls in a message of the assistant, as templates expect them: the arguments are an object. RequestError."""
    if role != "assistant" or not isinstance(given, list):
        raise f.wrong("messages", "tool_calls of a message do not fit", f"{_kind(given)} of {_shown(role)}", "a list of an assistant's message")
    found = []
    for call in given:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(function.get("arguments"), str):
            raise f.wrong("messages", "a call of a message is damaged", _shown(call), "an object with a function that has name and arguments")
        try:
            arguments = json.loads(f.text("messages", function["arguments"]) or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise f.wrong("messages", "the arguments of a call cannot be read", _shown(function["arguments"]), "a JSON object as a text")
        found.append({"id": f.text("messages", call.get("id") or ""), "type": "function", "function": {"name": f.text("messages", function["name"]), "arguments": arguments}})
    return found


def messages_of(f):
    """The messages of a chat, each a dict with role, content and perhaps name. RequestError."""
    given, found = f.get("messages", list, []), []
    if not given:
        raise f.wrong("messages", "there are no messages", "none", "a list of objects with role and content")
    for m in given:
        if not isinstance(m, dict):
            raise f.wrong("messages", "a message is damaged", _kind(m), "an object with role and content")
        for name in ("function_call", "audio"):
            if m.get(name):
                raise f.wrong("messages", f"{name} of messages is not available yet", _shown(m[name]), "messages without it", code="unsupported_parameter")
        role = f.text("messages", m.get("role"))
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise f.wrong("messages", "there is no such role", _shown(role), "system, developer, user, assistant or tool")
        message = {"role": "system" if role == "developer" else role}
        if m.get("tool_calls"):
            message["tool_calls"] = _earlier_calls(f, role, m["tool_calls"])
        message["content"] = "" if m.get("content") is None and "tool_calls" in message else _content(f, m)
        if m.get("tool_call_id") is not None:
            message["tool_call_id"] = f.text("messages", m["tool_call_id"])
        if m.get("name") is not None:
            message["name"] = f.text("messages", m["name"])
        found.append(message)
    return found


def _tools(f):
    """(functions, choice): the functions that may be called, as OpenAI's objects, and 'none', 'auto', 'required' or a function's name. RequestError."""
    tools = f.get("tools", list, [])
    if len(tools) > MOST_TOOLS:
        raise f.wrong("tools", "there are too many tools", len(tools), f"at most {MOST_TOOLS}")
    names = []
    for tool in tools:
        if isinstance(tool, dict) and tool.get("type") == "custom":
            raise f.wrong("tools", "tools of the type custom are not available yet", "one", "functions", code="unsupported_parameter")
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not _TOOL_NAME.fullmatch(function["name"]) or not isinstance(function.get("parameters", {}), (dict, type(None))):
            raise f.wrong("tools", "a tool is damaged", _shown(tool), "an object with type 'function' and a function that has name (letters, digits, _ and -) and parameters (a JSON schema)")
        names.append(function["name"])
    if len(set(names)) < len(names):
        raise f.wrong("tools", "two tools have the same name", _shown(", ".join(names)), "one name each")
    choice = f.values.get("tool_choice")
    if choice is None:
        choice = "auto" if tools else "none"
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools, choice = _allowed_tools(f, tools, choice)
    if isinstance(choice, dict):
        function = choice.get("function")
        choice = function.get("name") if choice.get("type") == "function" and isinstance(function, dict) else None
        if choice not in names:
            raise f.wrong("tool_choice", "tool_choice names no function", _shown(f.values["tool_choice"]), "the name of one of tools")
    elif choice not in ("none", "auto", "required"):
        raise f.wrong("tool_choice", "there is no such tool_choice", _shown(choice), "none, auto, required, or an object with a function's name")
    if choice != "none" and not tools:
        raise f.wrong("tool_choice", "tool_choice needs tools", _shown(choice), "tools, or none")
    return (tools if choice != "none" else []), choice


def _allowed_tools(f, tools, choice):
    """(those of the tools that a tool_choice of OpenAI's type allowed_tools names, its mode). RequestError."""
    inner = choice.get("allowed_tools")
    entries = inner.get("tools") if isinstance(inner, dict) else None
    functions = [e.get("function") if isinstance(e, dict) else None for e in entries] if isinstance(entries, list) else []
    allowed = [x.get("name") if isinstance(x, dict) else None for x in functions]
    found = [t for t in tools if t["function"]["name"] in allowed]
    if not found or len(found) < len(set(map(str, allowed))) or inner.get("mode") not in ("auto", "required"):
        raise f.wrong("tool_choice", "tool_choice names no function", _shown(choice), "allowed_tools with a mode, auto or required, and tools that are among the request's")
    return found, inner["mode"]


def _grammar(f):
    """(the field, the Grammar that the text must be of), or (None, None): OpenAI's response_format, or vLLM's structured_outputs and guided_ fields. RequestError."""
    given = {}
    form = f.get("response_format", dict)
    if form is not None:
        kind = form.get("type")
        if kind == "json_object":
            given["response_format"] = {"json_object": True}
        elif kind == "json_schema":
            holder = form.get("json_schema")
            schema = holder.get("schema") if isinstance(holder, dict) else None
            if not isinstance(schema, dict):
                raise f.wrong("response_format", "response_format has no schema", _shown(form), "json_schema with a schema, an object")
            given["response_format"] = {"json": schema}
        elif kind != "text":
            raise f.wrong("response_format", "there is no such response_format", _shown(kind), "text, json_object or json_schema")
    outputs = f.get("structured_outputs", dict)
    if outputs:
        unknown = set(outputs) - {"json", "regex", "choice", "grammar", "json_object"}
        if unknown:
            raise f.wrong("structured_outputs", "structured_outputs has fields that are not available", _shown(", ".join(sorted(unknown))), "json, regex, choice, grammar or json_object")
        given["structured_outputs"] = outputs
    for name in ("json", "regex", "choice", "grammar"):
        if f.values.get("guided_" + name) is not None:
            given["guided_" + name] = {name: f.values["guided_" + name]}
    if len(given) > 1:
        raise f.wrong(next(iter(given)), "the text can have one grammar only", ", ".join(given), "one of these")
    for name, fields in given.items():
        try:
            return name, Grammar.of(**fields)
        except (ValueError, TypeError) as e:
            raise RequestError(f"{f.op}: {e}", param=name) from None
        except ImportError as e:
            raise RequestError(f"{f.op}: {name} is not available; got {e}; expected the package llguidance on the server", param=name, status=501, code="unsupported_parameter") from None
    return None, None


def _take_grammar(f, job, model, name, grammar):
    """Compiles the grammar of the field name for the model, so that what is wrong with it is known before the text begins. RequestError."""
    if grammar is None:
        return
    try:
        grammar.matcher(model._vocabulary())
    except ValueError as e:
        raise RequestError(f"{f.op}: {e}", param=name) from None
    job.sampling["grammar"], job.grammar_field = grammar, name


def _take_tools(f, job, model, tools, choice):
    """Notes in the Job how calls are written. Returns the Grammar that holds the text to them, or None. RequestError."""
    form = model.tool_format()
    functions = [t["function"] for t in tools]
    job.tool_format, job.tool_names = form, frozenset(t["name"] for t in functions)
    job.shown |= calls.shown_ids(form, model.tokenizer)
    try:
        grammar = calls.grammar_of(form, functions, choice, f.get("parallel_tool_calls", bool, True), model.tokenizer)
    except ValueError as e:
        raise RequestError(f"{f.op}: the parameters of a tool do not fit; got {e}; expected JSON schemas", param="tools") from None
    except ImportError as e:
        raise RequestError(f"{f.op}: tools are not available; got {e}; expected the package llguidance on the server", param="tools", status=501, code="unsupported_parameter") from None
    return grammar


def _template_names(f):
    """What else the template gets: chat_template_kwargs, and where its text ends. RequestError."""
    names = f.get("chat_template_kwargs", dict, {})
    for name in names:
        if name in TAKEN or not name.isidentifier():
            raise f.wrong("chat_template_kwargs", "chat_template_kwargs has a name that is taken" if name in TAKEN else "chat_template_kwargs has what is no name", _shown(name), "names that the model's chat template knows")
    f.text("chat_template_kwargs", json.dumps(names, ensure_ascii=False))
    goes_on = f.get("continue_final_message", bool, False)
    if goes_on and f.get("add_generation_prompt", bool, False):
        raise f.wrong("continue_final_message", "continue_final_message and add_generation_prompt exclude each other", "both", "one of them")
    return {**names, "add_generation_prompt": f.get("add_generation_prompt", bool, True), "continue_final_message": goes_on}


def _chat_ids(f, model, tools=()):
    messages, names = messages_of(f), _template_names(f)
    if model.tool_format() is None and any(m["role"] == "tool" or "tool_calls" in m for m in messages):
        raise f.wrong("messages", "messages of tools are not available with this model", "a chat template that does not say how functions are called", "one that does, or no such messages", code="unsupported_parameter")
    try:
        return model.chat_ids(messages, **names, **({"tools": list(tools)} if tools else {}))
    except ValueError as e:
        raise RequestError(str(e), param="messages") from None


def _lora(f, names):
    """The adapter that the request's model stands for: the first name is the model itself."""
    name = f.get("model", str)
    return name if name in names[1:] else None


def chat_job(document, model, names, most_tokens):
    """The Job of a request to /v1/chat/completions. names: of the model and of its adapters. RequestError."""
    f = Fields("chat", document)
    check_model(f, names)
    f.refuse_what_is_missing({"add_special_tokens": (False,), "echo": (False,)})
    top = f.get("top_logprobs", int, None, 0, MOST_TOP)
    if top and not f.get("logprobs", bool, False):
        raise f.wrong("top_logprobs", "top_logprobs needs logprobs", "logprobs that is not true", "logprobs = true")
    tools, choice = _tools(f)
    if tools and model.tool_format() is None:
        raise f.wrong("tools", "tools are not available with this model", "a chat template that does not say how functions are called", "one that does, or no tools", code="unsupported_parameter")
    name, grammar = _grammar(f)
    if tools and grammar is not None:
        raise f.wrong("tools", "tools and a grammar of the text exclude each other", "both", "one of them")
    ids = _chat_ids(f, model, tools)
    job = _common(f, model, [ids], [f.get("continue_final_message", bool, False)], most_tokens, None)
    job.lora = _lora(f, names)
    job.logprobs = (top or 0) if f.get("logprobs", bool, False) else None
    if tools:
        name, grammar = "tools", _take_tools(f, job, model, tools, choice)
    _take_grammar(f, job, model, name, grammar)
    return job


def _prompts(f, model, name="prompt"):
    """The prompts as lists of token ids: of a text, a list of texts, ids, or a list of lists of ids. RequestError."""
    value = f.values.get(name)
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise f.wrong(name, "there is no prompt" if value in (None, []) else f"{name} has the wrong type", _kind(value), "a text, texts, token ids, or lists of token ids")
    if isinstance(value[0], int):
        value = [value]
    if len(value) > MOST_CHOICES:
        raise f.wrong(name, "there are too many prompts", len(value), f"at most {MOST_CHOICES}")
    if not all(isinstance(v, (str, list)) for v in value):
        raise f.wrong(name, f"{name} has the wrong type", "a list of several types", "a text, texts, token ids, or lists of token ids")
    special = f.get("add_special_tokens", bool, True)
    return [model.tokenizer.encode(f.text(name, v), add_special=special) if isinstance(v, str) else _ids(f, name, v, model.config.vocab) for v in value]


def completion_job(document, model, names, most_tokens):
    """The Job of a request to /v1/completions. RequestError."""
    f = Fields("completions", document)
    check_model(f, names)
    f.refuse_what_is_missing({"tools": (), "tool_choice": ("none",)})
    prompts = _prompts(f, model)
    job = _common(f, model, prompts, [model._has_text(ids) for ids in prompts], most_tokens, 16)
    job.lora = _lora(f, names)
    job.logprobs = f.get("logprobs", int, None, 0, MOST_TOP)
    _take_grammar(f, job, model, *_grammar(f))
    if job.echo:
        job.repeated = [_repeated(model.tokenizer, ids, job.shown) for ids in job.prompts]
    return job


def _repeated(tokenizer, ids, shown):
    """(the text of a prompt, where in it each token begins)."""
    pieces, texts, places = Pieces(tokenizer, shown=shown), [], []
    for id in ids:
        places.append(pieces.decoded)
        texts.append(pieces.feed(id))
    return "".join(texts) + pieces.finish(), places


def tokenized(document, model, names, most_tokens):
    """The answer of /tokenize. RequestError."""
    f = Fields("tokenize", document)
    check_model(f, names)
    special = f.get("add_special_tokens", bool, True)
    if f.values.get("messages") is not None:
        ids = _chat_ids(f, model)
    else:
        if f.values.get("prompt") is None:
            raise f.wrong("prompt", "there is no text", "neither prompt nor messages", "one of them")
        ids = model.tokenizer.encode(f.get("prompt", str), add_special=special)
    return {"count": len(ids), "max_model_len": most_tokens, "tokens": ids}


def detokenized(document, model, names):
    """The answer of /detokenize. RequestError."""
    f = Fields("detokenize", document)
    check_model(f, names)
    tokens = f.get("tokens", list)
    if tokens is None:
        raise f.wrong("tokens", "there are no tokens", "none", "a list of token ids")
    return {"prompt": model.tokenizer.decode(_ids(f, "tokens", tokens, model.tokenizer.vocab_size), skip_special=False)}
