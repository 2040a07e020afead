"""Fields of SamplingParams by vLLM's names: which tokens may come, what is part of the text, and what is refused by name."""
import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, Engine, Sampler, Sampling, SamplingParams  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


@pytest.fixture(scope="module")
def llm(lm):
    with LLM(lm) as llm:
        yield llm


def text_of(llm, prompt="the window", **fields):
    return llm.generate(prompt, SamplingParams(**{"temperature": 0, "max_tokens": 24, "ignore_eos": True, **fields}))[0].outputs[0]


# Which tokens may come.


def test_allowed_and_forbidden_tokens_by_hand():
    logits = np.arange(1.0, 41.0)
    sampler = Sampler(Sampling(temperature=0, allowed_token_ids=[3, 33, 5]))
    assert sampler(logits) == 33 and sampler.probabilities(logits)[0].tolist() == [33]
    ids, p = Sampler(Sampling(allowed_token_ids=[3, 5])).probabilities(logits)
    assert ids.tolist() == [5, 3] and np.allclose(p, np.exp([6, 4]) / np.exp([6, 4]).sum())
    words = Sampling(temperature=0, bad_words_ids=[[39], [7, 8, 38]])
    for tokens, prompt, want in (([], 0, 38), ([7, 8], 0, 37), ([7, 8], 1, 38), ([7, 8], 2, 38), ([8, 7], 0, 38), ([8], 0, 38), ([1, 7, 8], 1, 37), ([7, 8, 37], 0, 38)):
        assert Sampler(words)(logits, tokens, prompt) == want, (tokens, prompt)
        assert Sampler(words).probabilities(logits, tokens, prompt)[0].tolist() == [want]
    assert Sampler(Sampling(temperature=0, bad_words_ids=[[38]], allowed_token_ids=[2, 38]))(logits) == 2
    assert Sampler(Sampling(temperature=0, allowed_token_ids=[2, 38], min_tokens=1))(logits, [], 0, {38}) == 2


def test_settings_that_leave_no_token():
    logits = np.arange(1.0, 41.0)
    message = "generate: the settings leave no token; got 1 allowed_token_ids and 1 bad_words_ids; expected a token that these, the grammar and min_tokens allow"
    for call in (Sampler(Sampling(allowed_token_ids=[3], bad_words_ids=[[3]])), Sampler(Sampling(allowed_token_ids=[3], bad_words_ids=[[3]], temperature=0)).probabilities):
        with pytest.raises(ValueError, match=message):
            call(logits)
    with pytest.raises(ValueError, match="allowed_token_ids has a token that is not in the vocabulary; got 40; expected 0 to 39"):
        Sampler(Sampling(allowed_token_ids=[40]))(logits)
    with pytest.raises(ValueError, match="bad_words_ids has a token that is not in the vocabulary; got 50; expected 0 to 39"):
        Sampler(Sampling(bad_words_ids=[[1, 50]]))(logits)


@pytest.mark.parametrize("name, value", [("allowed_token_ids", []), ("allowed_token_ids", [-1]), ("allowed_token_ids", 3), ("allowed_token_ids", [True]), ("bad_words_ids", [[]]), ("bad_words_ids", [3])])
def test_wrong_ids(name, value):
    with pytest.raises(ValueError, match=f"generate: {name} is out of range; got "):
        Sampling(**{name: value})


def test_an_engine_and_a_model_alone_draw_what_is_allowed(lm):
    plain = list(lm.tokens([5, 6], 24, GREEDY, stop_ids=()))
    assert len(set(plain[3:])) > 4
    settings = [Sampling(temperature=0, allowed_token_ids=sorted(set(range(3, 200)) - {plain[0]})), Sampling(temperature=0, bad_words_ids=[[plain[1]], plain[3:5], plain[6:9]]),
                Sampling(seed=4, allowed_token_ids=[7, 8, 9, 40], frequency_penalty=0.5)]  # fmt: skip
    alone = [list(lm.tokens([5, 6], 24, s, stop_ids=())) for s in settings]
    assert alone[0][0] != plain[0] and plain[1] not in alone[1] and set(alone[2]) <= {7, 8, 9, 40} and len(set(alone[2])) > 1
    found = [(tuple(word) == tuple(alone[1][i:i + len(word)])) for word in (plain[3:5], plain[6:9]) for i in range(24)]
    assert not any(found)
    guessed = [list(lm.tokens([5, 6], 24, s, stop_ids=(), speculative_config={"method": "ngram", "num_speculative_tokens": 4})) for s in settings]
    assert guessed[:2] == alone[:2]
    with Engine(lm) as engine:
        requests = [engine.submit([5, 6], s, 24, stop_ids=(), receive=lambda event: None) for s in settings]
    assert [r.ids[2:] for r in requests] == alone


def test_the_last_token_of_a_word_is_forbidden_only_behind_its_beginning(lm):
    plain = list(lm.tokens([5, 6], 24, GREEDY, stop_ids=()))
    at = next(i for i in range(1, 20) if plain[i] in plain[:i] + plain[i + 1:] and plain[i - 1] != plain[i])  # a token that also comes elsewhere
    written = list(lm.tokens([5, 6], 24, Sampling(temperature=0, bad_words_ids=[[plain[at - 1], plain[at]]]), stop_ids=()))
    first = next(i for i in range(1, 24) if plain[i - 1:i + 1] == plain[at - 1:at + 1])
    assert written[:first] == plain[:first] and written[first] != plain[first]
    assert all(written[i - 1:i + 1] != plain[at - 1:at + 1] for i in range(1, 24))


def test_bad_words_with_a_grammar(lm):
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    grammar = pf.llm.Grammar.choice(["yes", "no"])
    beginning = {i: lm.tokenizer.token_bytes(i)[:1] for i in range(lm.tokenizer.vocab_size)}
    for letter, want in ((b"y", "no"), (b"n", "yes")):
        sampling = Sampling(temperature=0, grammar=grammar, bad_words_ids=[[i] for i, first in beginning.items() if first == letter])
        assert lm.tokenizer.decode(list(lm.tokens([5, 6], 20, sampling))) == want
        ids, _ = Sampler(sampling, grammar.matcher(lm._vocabulary())).probabilities(np.zeros(lm.tokenizer.vocab_size))
        assert lm.tokenizer.token_bytes(int(ids[0]))[:1] == want[:1].encode()


def test_bad_words_are_texts(llm, lm):
    plain, t = text_of(llm), lm.tokenizer

    def written(count):
        """A part of the text whose tokens are so many and those that the tokenizer makes of it."""
        parts = [plain.token_ids[i:i + count] for i in range(25 - count)]
        return next(text for part in parts if (text := t.decode(part)).isprintable() and t.encode(text, add_special=False) == part)

    for word in (written(1), written(2)):
        ids = t.encode(word, add_special=False)
        for bad in (word, " " + word):
            got = text_of(llm, bad_words=["never", bad])
            assert got.token_ids != plain.token_ids and all(got.token_ids[i:i + len(ids)] != ids for i in range(24)), (bad, got.text)
    assert text_of(llm, bad_words=[]) == plain and set(text_of(llm, allowed_token_ids=[7, 8]).token_ids) <= {7, 8}


# What is part of the text.


def test_the_stop_is_part_of_the_text(llm):
    plain = text_of(llm)
    stop = next(plain.text[i:i + 3] for i in range(4, len(plain.text) - 3) if plain.text.find(plain.text[i:i + 3]) == i)
    at = plain.text.index(stop)
    got = text_of(llm, stop=["never", stop])
    assert (got.text, got.finish_reason, got.stop_reason) == (plain.text[:at], "stop", stop)
    got = text_of(llm, stop=["never", stop], include_stop_str_in_output=True)
    assert (got.text, got.finish_reason, got.stop_reason) == (plain.text[:at + 3], "stop", stop)
    # The text of a token that ends it.
    id = next(i for i in plain.token_ids[2:] if llm.model.tokenizer.token_bytes(i).decode("utf-8", "replace").isprintable())
    without = text_of(llm, stop_token_ids=[id])
    assert (without.token_ids, without.stop_reason) == (plain.token_ids[:plain.token_ids.index(id)], id)
    got = text_of(llm, stop_token_ids=[id], include_stop_str_in_output=True)
    assert got.token_ids == without.token_ids and got.text == without.text + llm.model.tokenizer.token_bytes(id).decode()
    assert plain.stop_reason is None and text_of(llm, max_tokens=2).stop_reason is None


def test_names_of_special_tokens_are_part_of_the_text(llm, lm):
    special = sorted(lm.tokenizer.special_ids)[:2]
    fields = {"logit_bias": {special[0]: 100}, "max_tokens": 3}
    assert text_of(llm, **fields).text == "" and text_of(llm, **fields, skip_special_tokens=False).text == lm.tokenizer.token(special[0]) * 3
    # An end token of the model, which is not among token_ids.
    [end] = sorted(lm.end_ids)[:1]
    fields = {"logit_bias": {end: 100}, "ignore_eos": False}
    assert text_of(llm, **fields).text == text_of(llm, **fields, skip_special_tokens=False).text == ""
    got = text_of(llm, **fields, skip_special_tokens=False, include_stop_str_in_output=True)
    assert (got.text, got.token_ids, got.finish_reason, got.stop_reason) == (lm.tokenizer.token(end), [], "stop", None)
    assert text_of(llm, spaces_between_special_tokens=False) == text_of(llm)


def test_ids_without_text(llm):
    got = text_of(llm, detokenize=False)
    assert got.text == "" and got.token_ids == text_of(llm).token_ids
    with pytest.raises(ValueError, match="SamplingParams: stop needs the text; got stop .* and detokenize=False; expected detokenize=True"):
        SamplingParams(stop="a", detokenize=False)


def test_the_last_tokens_of_a_prompt(llm):
    def ids(prompt, count, **fields):
        return llm.generate([prompt], SamplingParams(max_tokens=2, truncate_prompt_tokens=count, **fields))[0].prompt_token_ids

    assert ids([5, 6, 7], 2) == [6, 7] and ids([5, 6, 7], 9) == ids([5, 6, 7], None) == [5, 6, 7]
    long = [7] + [6] * 300
    assert ids(long, -1) == [6] * 254 and ids(long, 4) == [6] * 4
    whole = llm.model.tokenizer.encode("the window")
    assert ids("the window", 1) == whole[-1:]
    with pytest.raises(ValueError, match="generate: too many tokens; got 301"):
        ids(long, None)
    chat = [[{"role": "user", "content": "on " * 400}]]
    assert len(llm.chat(chat, SamplingParams(max_tokens=2, truncate_prompt_tokens=-1))[0].prompt_token_ids) == 254


# What is refused.


@pytest.mark.parametrize("name, value", [("bad_words", "x"), ("bad_words", [""]), ("bad_words", [3]), ("skip_special_tokens", 1), ("include_stop_str_in_output", None), ("detokenize", "no"),
                                         ("spaces_between_special_tokens", 0)])  # fmt: skip
def test_fields_of_a_wrong_type(name, value):
    with pytest.raises(TypeError, match=f"SamplingParams: {name} is of the wrong type; got "):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("value", [0, -2, 1.5, True])
def test_a_wrong_number_of_tokens(value):
    with pytest.raises(ValueError, match="SamplingParams: truncate_prompt_tokens is out of range; got "):
        SamplingParams(truncate_prompt_tokens=value)


@pytest.mark.parametrize("name, value", [("output_kind", 2), ("extra_args", {"a": 1})])
def test_what_is_not_available_is_refused_by_name(name, value):
    with pytest.raises(NotImplementedError, match=f"SamplingParams: {name} is not available; got .*; expected None; hint: "):
        SamplingParams(**{name: value})
    SamplingParams(**{name: None})
    SamplingParams(extra_args={})


def test_words_need_a_tokenizer(llm, monkeypatch):
    monkeypatch.setattr(llm.model, "tokenizer", None)
    with pytest.raises(ValueError, match="generate: the model's files have no tokenizer"):
        llm.generate([5, 6], SamplingParams(bad_words=["x"]))
