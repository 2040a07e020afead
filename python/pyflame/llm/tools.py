"""Calls of functions (tools) in what a model writes. How a call is written depends on the model's chat template: FORMATS has a row for each way.

A grammar (grammar.py) holds calls to the functions' names and to the schemas of their parameters, wherever they can be told from text before they are complete."""
import json
from dataclasses import dataclass

from .grammar import SPACE, Grammar


@dataclass(frozen=True)
class Call:
    """A call that a model wrote. arguments: a JSON object as a text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Format:
    """How calls are written. mark: what a template's source has if its model writes so. begin and end stand around a call: a JSON object with 'name' and the key
    `arguments`; lists: around a list of calls. A format without `begin` is for models whose whole text is a call, if it is one."""

    name: str
    mark: str
    begin: str
    end: str
    arguments: str = "arguments"
    lists: bool = False


FORMATS = (
    Format("hermes", "<tool_call>", "<tool_call>", "</tool_call>"),  # Hermes, Qwen 2.5 and 3, SmolLM3
    Format("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "", lists=True),
    Format("llama", '{"name": function name, "parameters":', "", "", arguments="parameters"),  # Llama 3.1 to 3.3
)


def format_of(source):
    """The Format that the source of a chat template names, or None."""
    return next((f for f in FORMATS if f.mark in (source or "")), None)


def shown_ids(form, tokenizer):
    """The special tokens that a Parser of this format must see as text."""
    return frozenset(i for i in (tokenizer.id_of(form.begin), tokenizer.id_of(form.end)) if i in tokenizer.special_ids)


def grammar_of(form, tools, choice, parallel, tokenizer):
    """The Grammar of a text with calls, or None for choice 'auto' of a format whose calls have no beginning.

    tools: the functions, dicts with 'name' and perhaps 'parameters', a JSON schema; choice: 'auto' (text, calls or both), 'required' (calls), or a function's name;
    parallel: may there be several calls. ValueError for a schema that is wrong."""
    tools = [t for t in tools if choice in ("auto", "required", t["name"])]
    calls = []
    for tool in tools:
        schema = tool.get("parameters") or {"type": "object"}
        Grammar.json_schema(schema)  # its error names what is wrong
        head = json.dumps({"name": tool["name"], form.arguments: None})[: -len("null}")]
        calls.append(f'{json.dumps(head)} %json {json.dumps({**schema, "x-guidance": {"whitespace_pattern": SPACE}})} "}}"')
    call, more = "call", "call_more"
    rules = [f"call: {' | '.join(calls)}"]
    if form.lists:
        rules.append('calls: "[" call' + (' (", " call)*' if parallel else "") + ' "]"')
        call = "calls"
    if not form.begin:
        return None if choice == "auto" else Grammar.lark("\n".join(["start: call", *rules]))

    def literal(text):
        id = tokenizer.id_of(text)
        return f"<[{id}]>" if id in tokenizer.special_ids else json.dumps(text)

    space = "" if form.lists else '"\\n"'
    rules.append(f"rest: {space} {call} {space if form.end else ''} {literal(form.end) if form.end else ''}")
    several = parallel and not form.lists
    if choice == "auto":
        rules.append("TEXT: /(.|\\n)*/")
        if literal(form.begin)[0] == "<":
            rules.append(f"{more}: TEXT {literal(form.begin)} rest")
        else:  # a lazy lexeme ends where the beginning of a call is complete
            rules += [f"head[lazy]: TEXT {literal(form.begin)}", f"{more}: head rest"]
        start = f"start: {more}* TEXT" if several else f"start: {more} | TEXT"
    else:
        rules.append(f"one: {literal(form.begin)} rest")
        start = 'start: one ("\\n" one)*' if several else "start: one"
    return Grammar.lark("\n".join([start, *rules]))


class Parser:
    """Divides a text into what a user reads and calls. feed(text) and finish() return (text to show, a list of Call).

    What looks like a call and is none, or calls a function that there is not, is text to show."""

    def __init__(self, form, names):
        self._form, self._names, self._held, self._is_inside, self._space = form, frozenset(names), "", False, None

    def feed(self, text):
        self._held += text
        shown, calls = [], []
        while self._step(shown, calls):
            pass
        return self._out(shown, calls)

    def finish(self):
        shown, calls = [], []
        if self._is_inside or not self._form.begin:
            self._close(self._held, self._held if not self._form.begin else self._form.begin + self._held, shown, calls)
        else:
            shown.append(self._held)
        self._held, self._is_inside = "", False
        return self._out(shown, calls)

    def _out(self, shown, calls):
        text = "".join(shown)
        if calls:
            text, self._space = text.rstrip("\n"), ""
        elif self._space is not None:  # white space after a call is shown only if there is text after it
            text, self._space = (self._space + text, None) if text.strip() else ("", self._space + text)
        return text, calls

    def _step(self, shown, calls):
        """Takes what is certain from the held text. Whether more may be."""
        form = self._form
        if not form.begin:
            if self._held.lstrip()[:1] in ("", "{"):  # it may become a call, which is known at the end
                return False
            shown.append(self._held)
            self._held = ""
            return False
        if self._is_inside:
            at = self._held.find(form.end) if form.end else -1
            if at < 0:
                return False
            body, self._held, self._is_inside = self._held[:at], self._held[at + len(form.end):], False
            self._close(body, form.begin + body + form.end, shown, calls)
            return True
        at = self._held.find(form.begin)
        if at < 0:
            kept = max((n for n in range(1, min(len(form.begin), len(self._held)) + 1) if self._held.endswith(form.begin[:n])), default=0)
            shown.append(self._held[: len(self._held) - kept])
            self._held = self._held[len(self._held) - kept:]
            return False
        before = self._held[:at]
        shown.append(before.rstrip("\n") if before.strip() else "")
        self._held, self._is_inside = self._held[at + len(form.begin):], True
        return True

    def _close(self, body, whole, shown, calls):
        found = self._calls(body)
        if found is None:
            shown.append(whole)
        else:
            calls += found

    def _calls(self, body):
        """The calls of a text, or None where it is something else."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        found = []
        for d in document if isinstance(document, list) and self._form.lists else [document]:
            arguments = d.get(self._form.arguments) if isinstance(d, dict) else None
            if not isinstance(arguments, dict) or d.get("name") not in self._names:
                return None
            found.append(Call(d["name"], json.dumps(arguments, ensure_ascii=False)))
        return found or None
