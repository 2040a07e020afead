"""pf.llm.Grammar: a model with random weights writes texts of a grammar, alone, in a batch and behind the server."""
import json
import pathlib
import re

import numpy as np
import pytest

for package in ("regex", "jinja2", "llguidance"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
import pyflame as pf  # noqa: E402
from pyflame.llm import Engine, Grammar, Sampler, Sampling, SamplingParams, StructuredOutputsParams  # noqa: E402
from pyflame.llm._errors import SettingsError  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "ages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 2},
                                           "kind": {"enum": ["a", "b"]}}, "required": ["name", "ages", "kind"], "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3, max_position_embeddings=512))


def fits(text):
    d = json.loads(text)
    return set(d) == {"name", "ages", "kind"} and len(d["name"]) <= 5 and len(d["ages"]) <= 2 and all(isinstance(a, int) and 0 <= a <= 99 for a in d["ages"]) and d["kind"] in ("a", "b")


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_json_of_a_schema(lm, temperature):
    for seed in range(4):
        assert fits(lm.generate("Hello", max_tokens=300, temperature=temperature, seed=seed, grammar=Grammar.json_schema(SCHEMA)))


def test_any_json_object(lm):
    text = lm.generate("Hello", max_tokens=40, temperature=1.0, seed=1, grammar=Grammar.json())
    assert text.startswith("{")  # random weights do not end it
    assert not re.search(r"\n\s*\n", text.split('"')[0])


def test_regular_expressions_choices_and_grammars(lm):
    for grammar, pattern in (
        (Grammar.regex("[ab]{3,5}[0-9]"), "[ab]{3,5}[0-9]"), (Grammar.choice(["yes", "no", 'a "quoted" one\n']), 'yes|no|a "quoted" one\n'),
        (Grammar.gbnf('root ::= "(" [a-c]{2} ")" | "é"'), r"\([a-c]{2}\)|é"), (Grammar.lark('start: "x" /[0-9]{1,3}/'), "x[0-9]{1,3}"),
        (Grammar.of(grammar='root ::= "a"'), "a"), (Grammar.of(grammar='start: "b"'), "b"),
        (Grammar.gbnf(r'root ::= "\u00e9\U0001F600\\u0041" [\u00e0-\u00e2] [\u0041-\u0043]{2} "\u0022\u005c\u000a"'), 'é\U0001F600\\\\u0041[à-â][A-C]{2}"\\\\\n'),
    ):  # fmt: skip
        found = {lm.generate("Hello", max_tokens=60, temperature=2.0, seed=seed, grammar=grammar) for seed in range(6)}
        assert all(re.fullmatch(pattern, text) for text in found), found
    found = {lm.generate("Hello", max_tokens=60, temperature=3.0, seed=seed, grammar=Grammar.choice(["yes", "no"])) for seed in range(30)}
    assert found == {"yes", "no"}


KINDS = {"$defs": {"Cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "n": {"enum": [1, 2]}}, "required": ["kind", "n"], "additionalProperties": False},
                   "Dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}}, "required": ["kind"], "additionalProperties": False}}}  # fmt: skip


@pytest.mark.parametrize(
    "branches",
    [
        [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], [{"const": 1}, {"const": True}, {"const": "1"}], [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": ["null", "boolean"]}],
        [{"enum": ["a", None]}, {"$ref": "#/$defs/Dog"}],
    ],
)  # fmt: skip
def test_one_of_where_no_text_fits_two(lm, branches):
    schema = {**KINDS, "type": "object", "properties": {"x": {"oneOf": branches, "discriminator": {"propertyName": "kind"}}}, "required": ["x"], "additionalProperties": False}
    found = [json.loads(lm.generate("Hello", max_tokens=200, temperature=2.0, seed=seed, grammar=Grammar.json_schema(schema)))["x"] for seed in range(4)]
    assert all(x in ({"kind": "cat", "n": 1}, {"kind": "cat", "n": 2}, {"kind": "dog"}, {"kind": "wolf"}, "1", "a", None) or type(x) in (int, bool) for x in found), found


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "integer"}, {"type": "number"}], [{"const": 1}, {"const": 1.0}], [{"const": 1}, {}], [{"type": "string"}, {"enum": ["a"]}], [{"$ref": "#/$defs/Dog"}, {"type": "object"}],
        [{"type": "object", "properties": {"k": {"const": 1}}}, {"type": "object", "properties": {"k": {"const": 2}}}],
    ],
)  # fmt: skip
def test_one_of_where_a_text_may_fit_two(branches):
    with pytest.raises(ValueError, match="grammar: the JSON schema is wrong; got .*oneOf"):
        Grammar.json_schema({**KINDS, "oneOf": branches})


def test_a_batch_of_several_grammars(lm):
    with pf.llm.LLM(lm, max_num_seqs=4) as llm:
        params = [SamplingParams(max_tokens=300, seed=i, n=2, structured_outputs=StructuredOutputsParams(json=SCHEMA) if i % 2 else {"regex": "[a-f]{4}"}) for i in range(4)]
        outputs = llm.generate(["Hello"] * 4, [*params, ][:4])
        free = llm.generate("Hello", SamplingParams(max_tokens=5, seed=1, ignore_eos=True))[0].outputs[0]
    for i, output in enumerate(outputs):
        for o in output.outputs:
            assert o.finish_reason == "stop" and (fits(o.text) if i % 2 else re.fullmatch("[a-f]{4}", o.text)), o
    assert len(free.token_ids) == 5


def test_a_preempted_text_goes_on_in_its_grammar(lm):
    # Two texts of 200 tokens do not fit; one gives up its blocks and is computed again.
    from test_llm_engine import Received, cache_of

    grammar = Grammar.regex("[ab]{100}")
    with Engine(lm, max_num_seqs=3, kv_cache_bytes=cache_of(lm, 12)) as engine:
        received = [Received() for _ in range(3)]
        for i, r in enumerate(received):
            engine.submit("Hello", Sampling(seed=i, grammar=grammar), 150, receive=r)
        for r in received:
            assert r.wait().reason == "stop" and re.fullmatch("[ab]{100}", lm.tokenizer.decode(r.ids))
        assert engine.stats()["preemptions_total"] > 0


def test_a_text_ends_with_its_grammar_also_where_no_token_ends_it(lm):
    ids = list(lm.tokens("Hello", 50, Sampling(seed=1, grammar=Grammar.regex("ab")), stop_ids=()))
    assert lm.tokenizer.decode(ids) == "ab"
    ids = list(lm.tokens("Hello", 50, Sampling(seed=1, min_tokens=20, grammar=Grammar.regex("ab"))))
    assert lm.tokenizer.decode(ids) == "ab"


def test_other_settings_hold_among_what_is_allowed(lm):
    vocabulary = lm._vocabulary()
    grammar = Grammar.regex("[ab]")
    a, b = (lm.tokenizer.encode(c, add_special=False)[0] for c in "ab")
    logits = np.zeros(lm._known())
    logits[5], logits[a], logits[b] = 9, 2, 1

    def probabilities(**settings):
        ids, p = Sampler(Sampling(grammar=grammar, **settings), grammar.matcher(vocabulary)).probabilities(logits)
        return dict(zip(ids.tolist(), p.round(6).tolist()))

    e = float(np.exp(1))
    assert probabilities() == {a: round(e / (1 + e), 6), b: round(1 / (1 + e), 6)}
    assert probabilities(temperature=0) == {a: 1} and probabilities(top_k=1) == {a: 1} and probabilities(logit_bias={b: 10}, top_p=0.5) == {b: 1}


def test_a_device_chooses_among_what_is_allowed(lm):
    """By the words of bits, alone and behind guesses; tokens that would end the text too early are left out, unless nothing else is left."""
    from pyflame.llm._choice import Choices, choose

    vocabulary, size = lm._vocabulary(), lm._known()
    every, end, (a, b) = set(lm.end_ids), min(lm.end_ids), (lm.tokenizer.encode(x, add_special=False)[0] for x in "ab")
    matcher = Grammar.regex("ab?").matcher(vocabulary)
    assert np.array_equal(np.unpackbits(matcher.words().view(np.uint8), bitorder="little", count=size).view(bool), matcher.allowed())
    logits = np.random.RandomState(0).standard_normal((5, size)).astype(np.float32)
    for least, ends in ((0, every), (3, every), (3, {*every, b})):
        sampler = Sampler(Sampling(temperature=0, grammar=Grammar.regex("ab?"), min_tokens=least), Grammar.regex("ab?").matcher(vocabulary))
        rows = sampler.rows(size, [5], 1, ends, [a, b, end, 7])
        found = choose(pf.tensor(logits), size, Choices(rows, 5, size)).wait()
        assert [r.allowed is None for r in rows] == [False, False, False, True, True] and [f.id for f in found[3:]] == logits[3:].argmax(1).tolist()
        for i, text in enumerate(([5], [5, a], [5, a, b])):
            assert found[i].id == sampler.probabilities(logits[i], text, 1, ends)[0][0] and sampler.take(found[i]) == found[i].id
            if found[i].id != [a, b, end][i]:
                break


def test_a_matcher_refuses_other_tokens(lm):
    matcher = Grammar.regex("ab").matcher(lm._vocabulary())
    b = lm.tokenizer.encode("b", add_special=False)[0]
    with pytest.raises(ValueError, match=re.escape(f"grammar: the token may not come here; got {b}; expected one that the regular expression allows") + "|the text cannot go on"):
        matcher.take(b)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: Grammar.regex("(a"), ValueError, "the regular expression is wrong; got .*unclosed group.*; expected one in the syntax of Rust's crate regex"),
        (lambda: Grammar.regex(5), TypeError, "the grammar is of the wrong type; got int; expected a pattern, a str"),
        (lambda: Grammar.json_schema({"type": "foo"}), ValueError, "the JSON schema is wrong; got .*foo.*; expected a schema of json-schema.org"),
        (lambda: Grammar.json_schema({"type": "array", "uniqueItems": True}), ValueError, "the JSON schema is wrong; got .*uniqueItems"),
        (lambda: Grammar.json_schema("{"), ValueError, "the JSON schema is wrong; got JSONDecodeError"),
        (lambda: Grammar.json_schema(5), TypeError, "the JSON schema is of the wrong type; got int; expected a dict"),
        (lambda: Grammar.gbnf("root ::= foo"), ValueError, "the GBNF is wrong; got .*foo.*; expected rules such as"),
        (lambda: Grammar.lark('x: "a"'), ValueError, "the Lark grammar is wrong; got no start rule found; expected rules"),
        (lambda: Grammar.choice([]), ValueError, "the choice is wrong; got \\[\\]; expected a list of texts"),
        (lambda: Grammar.choice("ab"), ValueError, "the choice is wrong; got 'ab'; expected a list of texts"),
        (lambda: Grammar.of(), ValueError, "exactly one kind is needed; got none; expected one of json, regex"),
        (lambda: SamplingParams(structured_outputs=StructuredOutputsParams(regex="a", json={})), ValueError, "exactly one kind is needed; got json, regex"),
    ],
)
def test_wrong_grammars(make, error, message):
    with pytest.raises(error, match="grammar: " + message):
        make()


ANY, LIST, OBJECT = {}, {"type": "array"}, {"type": "object"}


@pytest.mark.parametrize(
    "schema",
    [
        {"not": ANY}, {"if": ANY, "then": ANY, "else": ANY}, {**LIST, "uniqueItems": True}, {**LIST, "contains": ANY, "minContains": 1, "maxContains": 2}, {**OBJECT, "propertyNames": {"pattern": "^a"}},
        {**OBJECT, "dependentRequired": {"a": ["b"]}}, {**OBJECT, "dependentSchemas": {"a": ANY}}, {**OBJECT, "dependencies": {"a": ["b"]}}, {**OBJECT, "unevaluatedProperties": False},
        {**LIST, "unevaluatedItems": False}, {"$dynamicRef": "#a"},
    ],
    ids=lambda schema: " ".join(sorted(set(schema) - {"type"})),
)  # fmt: skip
def test_keywords_that_cannot_be_held_are_refused_by_name(schema):
    """Those that docs/serving.md lists."""
    page = (pathlib.Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")
    listed = page[page.index("These keywords of a schema are refused"):].partition("\n\n")[0]
    with pytest.raises(ValueError) as error:
        Grammar.json_schema({**OBJECT, "properties": {"x": schema}})
    for name in set(schema) - {"type"}:
        assert f'"{name}"' in str(error.value) and f"`{name}`" in listed


def test_a_grammar_that_is_too_large_for_any_text(lm):
    with pytest.raises(ValueError, match="^grammar: the regular expression is too large; got lexer error: too many expressions constructed; expected a smaller one, or one that repeats less$"):
        lm.generate("Hello", max_tokens=2, grammar=Grammar.regex("b{300000}"))


def test_a_grammar_that_is_too_large_in_its_middle(lm):
    """The error has nothing of the library's own state."""
    with pytest.raises(ValueError, match="^grammar: the text cannot go on; got lexer error: too many expressions constructed; expected a regular expression that is less complex$"):
        lm.generate("Hello", max_tokens=60, grammar=Grammar.regex("[a-c]{40}b{300000}"))


GROWS = "[a-c]{20}b{300000}"  # the library finds it too large while the text is written
TOO_LARGE = "grammar: the text cannot go on; got lexer error: too many expressions constructed; expected a regular expression that is less complex"


def test_a_grammar_that_grows_too_large_ends_its_request_alone(lm):
    """Also where tokens are guessed. The end says that the settings are its cause; what comes of the server's own errors does not."""
    from test_llm_engine import Received

    grammar = Grammar.regex(GROWS)
    for speculative_config in (None, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}):
        with Engine(lm, max_num_seqs=4, speculative_config=speculative_config) as engine:
            received = [Received() for _ in range(4)]
            for i, r in enumerate(received):
                engine.submit("Hello", Sampling(seed=i, grammar=grammar if i % 2 else Grammar.regex("[ab]{60}")), 90, receive=r)
            for i, r in enumerate(received):
                end = r.wait()
                assert (end.reason, end.error, end.by_settings) == (("error", TOO_LARGE, True) if i % 2 else ("stop", None, False))
                text = lm.tokenizer.decode(r.ids)
                assert re.fullmatch("[a-c]{2,}b*" if i % 2 else "[ab]{60}", text), text
            stats = engine.stats()
            assert (stats["num_requests_running"], stats["num_requests_waiting"], stats["kv_cache_usage"]) == (0, 0, 0)


def test_a_grammar_that_has_grown_too_large_for_one_text_serves_later_ones(lm, monkeypatch):
    """Texts that have begun share the error. It is met once, whichever of them meets it."""
    import llguidance

    vocabulary, grammar = lm._vocabulary(), Grammar.regex(GROWS)
    compiled, matcher = [], llguidance.LLMatcher
    monkeypatch.setattr(llguidance, "LLMatcher", lambda *args, **kwargs: compiled.append(1) or matcher(*args, **kwargs))
    a, b, c = (lm.tokenizer.encode(x, add_special=False)[0] for x in "abc")
    first, second, third = (grammar.matcher(vocabulary) for _ in range(3))
    for text in (second, third):
        text.take(a)
    with pytest.raises(SettingsError, match=re.escape(TOO_LARGE)):
        for _ in range(60):
            first.take(a if first.allowed()[a] else b)
    later = grammar.matcher(vocabulary)
    for text in (second, third):
        with pytest.raises(SettingsError, match=re.escape(TOO_LARGE)):
            text.allowed()
    for text in (later, later.copy(), grammar.matcher(vocabulary)):
        assert set(np.flatnonzero(text.allowed())) >= {a, b, c}
        text.take(a)
    assert len(compiled) == 2, "the errors of the other two do not make the library compile the grammar again"


def test_a_grammar_that_grows_too_large_in_a_text_of_the_command_line(tmp_path):
    """Where an engine writes it, for `--kv_cache_dtype` and others: the same error as without one."""
    from pyflame.llm._single import SingleWriter

    with SingleWriter(small.write_random_model(tmp_path, "llama", seed=3), "cpu", 1) as writer, pytest.raises(ValueError, match=f"^{re.escape(TOO_LARGE)}$"):
        list(writer.tokens(writer.model.tokenizer.encode("Hello"), 90, Sampling(seed=1, grammar=Grammar.regex(GROWS))))


@pytest.fixture(scope="module")
def server(lm):
    for package in ("aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from llm_client import Running

    running = Running(lm, Engine(lm, max_num_seqs=4), name="small")
    yield running
    running.end()


@pytest.mark.parametrize(
    "field, value", [("guided_regex", GROWS), ("structured_outputs", {"grammar": 'start: /[a-c]{20}/ "," /b{300000}/'}),
                     ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "prefixItems": [{"enum": ["a" * 20]}, {"type": "string", "pattern": "^b{300000}$"}], "minItems": 2}}})],
    ids=lambda x: x if isinstance(x, str) and "{" not in x else "",
)  # fmt: skip
def test_a_grammar_that_grows_too_large_behind_the_server(lm, server, field, value):
    """Status 400 with the field; in a stream an event in its place. Other requests go on, the same field with another grammar, too."""
    from llm_client import COMPLETE, text_of, until

    body = {"prompt": "Hello", "max_tokens": 90, "seed": 1, field: value}
    others = [server.stream(COMPLETE, {"prompt": "Hello", "max_tokens": 300, "ignore_eos": True, "seed": i}) for i in range(2)]
    error = server.error(COMPLETE, body)
    assert re.fullmatch("completions: grammar: the text cannot go on; got .*; expected a .* that is less complex", error.pop("message"))
    assert error == {"type": "invalid_request_error", "param": field, "code": None}
    for n in (1, 2):
        chunks = server.stream(COMPLETE, {**body, "n": n}).rest()  # it ends with [DONE]
        assert [c for c in chunks if "error" in c] == chunks[-1:] and chunks[-1]["error"].pop("message").startswith("completions: grammar: the text cannot go on; got ")
        assert chunks[-1]["error"] == error and text_of(chunks[:-1])
    assert all(o.rest()[-1]["choices"][0]["finish_reason"] == "length" for o in others)
    until(lambda: not server.server.answers and server.engine.stats()["num_requests_running"] == 0 == server.engine.stats()["kv_cache_usage"])


def test_settings_that_leave_no_token_behind_the_server(lm, server):
    from llm_client import COMPLETE

    error = server.error(COMPLETE, {"prompt": "Hello", "guided_regex": "[ab]", "allowed_token_ids": lm.tokenizer.encode("x", add_special=False)})
    assert error["message"].startswith("completions: generate: the settings leave no token; got ") and (error["type"], error["param"]) == ("invalid_request_error", "guided_regex")


def test_wrong_arguments(lm):
    with pytest.raises(TypeError, match="generate: grammar is of the wrong type; got str; expected a pf.llm.Grammar"):
        lm.generate("Hello", grammar="[ab]")


def test_the_package_is_missing(lm, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match=r"llm: the package llguidance is not available; got .*; expected it for grammars; hint: pip install regex jinja2 llguidance"):
        Grammar.json()


def test_structured_outputs_are_refused_when_they_are_made():
    for fields, error in (({"json": {"type": "nothing"}}, ValueError), ({"json": "{"}, ValueError), ({"regex": "("}, ValueError), ({"grammar": "root ="}, ValueError), ({}, ValueError), ({"regex": "a", "json": {}}, ValueError), ({"choice": 3}, ValueError), ({"regex": 3}, TypeError)):
        with pytest.raises(error, match="^grammar: "):
            StructuredOutputsParams(**fields)
        with pytest.raises(error, match="^grammar: "):
            SamplingParams(structured_outputs=fields)
    with pytest.raises(TypeError):
        SamplingParams(structured_outputs="[a-f]")
