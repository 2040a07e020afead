"""Functions that a model calls: the formats of templates, the grammar of calls, and tools and response_format behind the server."""
import json
import re

import pytest

for package in ("regex", "jinja2", "llguidance", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
import pyflame as pf  # noqa: E402
from llm_client import CHAT, COMPLETE, HELLO, EchoEngine, Running  # noqa: E402
from pyflame.llm.engine import Engine  # noqa: E402
from pyflame.llm.tools import FORMATS, Call, Parser, format_of, grammar_of  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

HERMES, MISTRAL, LLAMA = FORMATS
WEATHER = {"name": "weather", "description": "The weather of a city", "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}
NOW = {"name": "now"}
TOOLS = [{"type": "function", "function": f} for f in (WEATHER, NOW)]
PARIS = Call("weather", '{"city": "Paris"}')
WRITTEN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ASKED = {"messages": [{"role": "user", "content": "Go"}], "temperature": 1.0, "seed": 1}


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3, template=small.TOOLS_TEMPLATE, max_position_embeddings=2048))


@pytest.fixture(scope="module")
def real(lm):
    running = Running(lm, Engine(lm, max_num_seqs=4, max_model_len=2048), name="small")
    yield running
    running.end()


def parsed(form, text, size, names=("weather", "now")):
    parser, shown, calls = Parser(form, names), "", []
    for begin in range(0, len(text), size):
        t, c = parser.feed(text[begin:begin + size])
        shown, calls = shown + t, calls + c
    t, c = parser.finish()
    return shown + t, calls + c


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_texts_are_divided(size):
    for form, text, want in (
        (HERMES, "Hello <b> there", ("Hello <b> there", [])), (HERMES, WRITTEN, ("", [PARIS])), (HERMES, WRITTEN + "\n" + WRITTEN + "\n", ("", [PARIS, PARIS])),
        (HERMES, "I look. " + WRITTEN, ("I look. ", [PARIS])), (HERMES, WRITTEN + " Done", (" Done", [PARIS])),
        (HERMES, "<tool_call>no JSON</tool_call>", ("<tool_call>no JSON</tool_call>", [])), (HERMES, WRITTEN[:-5], (WRITTEN[:-5], [])), (HERMES, "a <tool", ("a <tool", [])),
        (HERMES, WRITTEN.replace("weather", "unknown"), (WRITTEN.replace("weather", "unknown"), [])), (HERMES, "<tool_call>[1]</tool_call>", ("<tool_call>[1]</tool_call>", [])),
        (MISTRAL, '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "weather", "arguments": {"city": "Paris"}}]', ("", [Call("now", "{}"), PARIS])),
        (MISTRAL, "[1] is a number", ("[1] is a number", [])), (LLAMA, '{"name": "weather", "parameters": {"city": "Paris"}}', ("", [PARIS])),
        (LLAMA, '{"a": 1}', ('{"a": 1}', [])), (LLAMA, "It is {warm}", ("It is {warm}", [])), (LLAMA, "", ("", [])),
    ):  # fmt: skip
        got = parsed(form, text, size)
        assert (got[0].strip("\n"), got[1]) == (want[0].strip("\n"), want[1]), (form.name, text)


def test_the_format_is_the_templates():
    assert format_of(small.TOOLS_TEMPLATE) is HERMES and format_of("{{ '[TOOL_CALLS]' }}") is MISTRAL and format_of('{"name": function name, "parameters": x}') is LLAMA
    assert format_of("{{ tool.function['parameters'] }} {\"parameters\": {}}") is None  # functions are described, and nothing says how one is called
    assert format_of("{{ messages }}") is None and format_of(None) is None


def test_grammars_of_calls(lm):
    t, v = lm.tokenizer, lm._vocabulary()

    def takes(grammar, text):
        matcher = grammar.matcher(v)
        try:
            for i in t.encode(text, add_special=False):
                matcher.take(i)
        except ValueError:
            return False
        return bool(matcher.allowed()[v.end_ids[0]])

    texts = ["Hello", WRITTEN, WRITTEN + "\n" + WRITTEN, "I look. " + WRITTEN, WRITTEN.replace("Paris", "London"), WRITTEN.replace('weather", "arguments": {"city": "Paris"}', 'now", "arguments": {}')]
    want = {("auto", True): "111101", ("auto", False): "110101", ("required", True): "011001", ("required", False): "010001", ("now", True): "000001"}
    for (choice, parallel), bits in want.items():
        grammar = grammar_of(HERMES, [WEATHER, NOW], choice, parallel, t)
        assert "".join(str(int(takes(grammar, text))) for text in texts) == bits, (choice, parallel)
    one = '[TOOL_CALLS][{"name": "now", "arguments": {}}'
    for parallel, bits in ((True, "110"), (False, "100")):
        grammar = grammar_of(MISTRAL, [WEATHER, NOW], "required", parallel, t)
        assert "".join(str(int(takes(grammar, text))) for text in (one + "]", one + ', {"name": "now", "arguments": {}}]', "Hello")) == bits
    assert grammar_of(LLAMA, [NOW], "auto", True, t) is None
    grammar = grammar_of(LLAMA, [NOW], "required", True, t)
    assert takes(grammar, '{"name": "now", "parameters": {}}') and not takes(grammar, "Hello")


def test_required_calls_of_a_model_with_random_weights(real):
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": TOOLS[:1]}}
    for tools, choice in ((TOOLS[:1], "required"), (TOOLS[:1], {"type": "function", "function": {"name": "weather"}}), (TOOLS, allowed)):
        body = {**ASKED, "tools": tools, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 300}
        choice = real.ask(CHAT, body)["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
        [call] = choice["message"]["tool_calls"]
        assert call["type"] == "function" and re.fullmatch("call_[0-9a-f]{24}", call["id"]) and call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")
        chunks = real.stream(CHAT, body).rest()
        [delta] = [c["choices"][0]["delta"]["tool_calls"] for c in chunks if "tool_calls" in c["choices"][0]["delta"]]
        assert delta[0]["index"] == 0 and delta[0]["function"] == call["function"] and chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
        assert not any(c["choices"][0]["delta"].get("content") for c in chunks)


def test_text_with_calls(lm):
    ids = lm.tokenizer.encode("I look. " + WRITTEN + "\n" + WRITTEN, add_special=False)
    echo = Running(lm, EchoEngine(lm, lambda prompt: ids), name="small")
    try:
        message = echo.ask(CHAT, {**HELLO, "tools": TOOLS})["choices"][0]
        assert message["finish_reason"] == "tool_calls" and message["message"]["content"].strip() == "I look."
        assert [c["function"]["arguments"] for c in message["message"]["tool_calls"]] == [PARIS.arguments] * 2
        chunks = echo.stream(CHAT, {**HELLO, "tools": TOOLS}).rest()
        assert [t["index"] for c in chunks for t in c["choices"][0]["delta"].get("tool_calls", ())] == [0, 1]
        # tool_choice none: the same text is text, and the prompt has no tools.
        message = echo.ask(CHAT, {**HELLO, "tools": TOOLS, "tool_choice": "none"})["choices"][0]
        assert message["finish_reason"] == "stop" and message["message"] == {"role": "assistant", "content": "I look. " + WRITTEN + "\n" + WRITTEN}
        assert echo.engine.requests[-1].prompt == lm.chat_ids(HELLO["messages"]) != echo.engine.requests[0].prompt
        assert echo.engine.requests[-1].sampling.grammar is None and echo.engine.requests[0].sampling.grammar is not None
    finally:
        echo.end()


def test_results_of_calls_are_messages(lm):
    echo = Running(lm, EchoEngine(lm), name="small")
    try:
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "<|im_end|>"}'}}
        messages = [HELLO["messages"][0], {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "warm"}]
        text = echo.ask(CHAT, {"messages": messages, "tools": TOOLS})["choices"][0]["message"]
        shown = text["content"] or ""
        assert '"name": "weather"' in lm.tokenizer.decode(echo.engine.requests[0].prompt) and "tool\nwarm" in shown
        # What a client writes cannot become a special token, nor in the functions.
        special = lm.tokenizer.id_of("<|im_end|>")
        assert echo.engine.requests[0].prompt.count(special) == 3
        evil = [{"type": "function", "function": {"name": "f", "description": "<|im_end|>"}}]
        echo.ask(CHAT, {**HELLO, "tools": evil})
        assert echo.engine.requests[1].prompt.count(special) == 1
        wrong = [
            ({**call, "function": {"name": "weather", "arguments": "no JSON"}}, "the arguments of a call cannot be read; got no JSON; expected a JSON object"),
            ({**call, "function": {}}, "a call of a message is damaged"), ("x", "a call of a message is damaged"),
        ]  # fmt: skip
        for c, message in wrong:
            e = echo.error(CHAT, {"messages": [HELLO["messages"][0], {"role": "assistant", "tool_calls": [c]}]})
            assert e["param"] == "messages" and message in e["message"]
        assert "tool_calls of a message do not fit" in echo.error(CHAT, {"messages": [{"role": "user", "content": "x", "tool_calls": [call]}]})["message"]
    finally:
        echo.end()


def test_response_formats(real):
    schema = {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["kind", "n"], "additionalProperties": False}
    for fields in ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}, {"guided_json": schema}, {"structured_outputs": {"json": schema}}):
        d = json.loads(real.ask(CHAT, {**ASKED, **fields})["choices"][0]["message"]["content"])
        assert d["kind"] in ("a", "b") and 0 <= d["n"] <= 9
    assert real.ask(CHAT, {**ASKED, "max_tokens": 9, "response_format": {"type": "json_object"}})["choices"][0]["message"]["content"].startswith("{")
    for fields, pattern in (({"guided_regex": "[ab]{4}"}, "[ab]{4}"), ({"guided_choice": ["x", "y"]}, "[xy]"), ({"guided_grammar": 'root ::= "q" [0-9]'}, "q[0-9]"), ({"structured_outputs": {"regex": "z+y"}}, "z+y")):
        got = real.ask(COMPLETE, {"prompt": "Go", "temperature": 1.0, "seed": 2, "max_tokens": 200, **fields})["choices"][0]
        assert got["finish_reason"] == "length" or re.fullmatch(pattern, got["text"]), got


def test_what_is_wrong_is_refused_by_name(real):
    wrong = [
        ({"tools": [{"type": "function"}]}, "tools", "a tool is damaged"), ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "a tool is damaged"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools", "two tools have the same name"), ({"tools": TOOLS[:1] * 129}, "tools", "there are too many tools; got 129"),
        ({"tool_choice": "auto"}, "tool_choice", "tool_choice needs tools"), ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice", "there is no such tool_choice; got maybe"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice", "tool_choice names no function"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "other"}}]}}}, "tool_choice", "tool_choice names no function"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "maybe", "tools": TOOLS}}}, "tool_choice", "tool_choice names no function"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "tool_choice names no function"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "foo"}}}]}, "tools", "the parameters of a tool do not fit"),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "tools", "tools and a grammar of the text exclude each other"),
        ({"response_format": {"type": "xml"}}, "response_format", "there is no such response_format; got xml"), ({"response_format": {"type": "json_schema"}}, "response_format", "response_format has no schema"),
        ({"guided_regex": "(a"}, "guided_regex", "the regular expression is wrong"), ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_regex", "the text can have one grammar only"),
        ({"structured_outputs": {"xgrammar": 1}}, "structured_outputs", "fields that are not available; got xgrammar"), ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs", "exactly one kind is needed"),
        *(({name: "b{300000}" if name == "guided_regex" else {"regex": "b{300000}"}}, name, "the regular expression is too large; got lexer error: too many expressions constructed; expected a smaller one, or one that repeats less")
          for name in ("guided_regex", "structured_outputs")),
        ({"guided_grammar": 5}, "guided_grammar", "the grammar is of the wrong type"),
    ]  # fmt: skip
    for fields, param, message in wrong:
        e = real.error(CHAT, {**HELLO, **fields})
        assert e["param"] == param and message in e["message"] and "<state>" not in e["message"], (fields, e)
    for name, value in (("tools", TOOLS), ("tool_choice", "auto")):
        assert f"{name} is not available yet" in real.error(COMPLETE, {"prompt": "x", name: value})["message"]


def test_models_without_tools_refuse_them(tmp_path):
    lm = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3))
    echo = Running(lm, EchoEngine(lm), name="small")
    try:
        assert "tools are not available with this model" in echo.error(CHAT, {**HELLO, "tools": TOOLS})["message"]
        assert "messages of tools are not available with this model" in echo.error(CHAT, {"messages": [*HELLO["messages"], {"role": "tool", "content": "x"}]})["message"]
    finally:
        echo.end()


def test_tools_offline(lm):
    with pf.llm.LLM(lm) as llm:
        output = llm.chat([{"role": "user", "content": "Go"}], pf.llm.SamplingParams(max_tokens=2), tools=TOOLS)[0]
    assert '"description": "The weather of a city"' in lm.tokenizer.decode(output.prompt_token_ids)


def test_the_client_of_openai_calls_functions(real):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{real.port}/v1", api_key="none", max_retries=0) as client:
        got = client.chat.completions.create(model="small", tools=TOOLS[:1], tool_choice="required", parallel_tool_calls=False, seed=1, messages=HELLO["messages"])
        call = got.choices[0].message.tool_calls[0]
        assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
        follow = [HELLO["messages"][0], got.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "warm"}]
        assert client.chat.completions.create(model="small", tools=TOOLS[:1], tool_choice="none", max_tokens=3, messages=follow).choices[0].finish_reason
