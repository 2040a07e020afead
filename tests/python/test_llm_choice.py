"""The choice of tokens where the logits are (pyflame/llm/_choice.py): biases, penalties, grammars and log probabilities, against Sampler.probabilities() and NumPy."""
import os
import pickle

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Sampler, Sampling  # noqa: E402
from pyflame.llm._choice import LEAST_CHANGES, LIKELIEST, Choices, Row, choose  # noqa: E402
from pyflame.testing.cases.index import kept_weights  # noqa: E402

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
KNOWN, WIDTH = 333, 350  # a model may have more rows than its tokenizer has tokens
ENDS = frozenset({2, 9, KNOWN + 5})
SETTINGS = [
    {}, {"repetition_penalty": 1.7}, {"repetition_penalty": 0.4}, {"frequency_penalty": 0.8}, {"frequency_penalty": -1.5}, {"presence_penalty": 1.2}, {"presence_penalty": -2.0},
    {"logit_bias": {3: -100, 7: 4.5, 332: 2.25}}, {"min_tokens": 40}, {"min_tokens": 1}, {"repetition_penalty": 1e300}, {"repetition_penalty": 1e-30},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.3, "presence_penalty": 0.6, "logit_bias": {2: 9.0, 11: -3.5}, "min_tokens": 30, "top_k": 40, "top_p": 0.9},
    {"frequency_penalty": 0.7, "min_tokens": 50, "min_p": 0.02, "temperature": 0.7}, {"logit_bias": {5: 1.5}, "repetition_penalty": 1.1, "temperature": 1.8},
]  # fmt: skip


def random_text(rs, length=40):
    """(tokens, how many of them were given). A prompt may have ids that are never drawn."""
    tokens = [int(i) for i in rs.zipf(1.3, length) % KNOWN]
    tokens[1] = KNOWN + 7
    return tokens, int(rs.randint(2, length - 5))


def chosen(logits, rows, found=None, known=KNOWN, **options):
    """(what was found, the logits that were drawn from)."""
    x = pf.tensor(np.asarray(logits, dtype=np.float32), device=DEVICE)
    choices = pickle.loads(pickle.dumps(Choices(rows, *x.shape, **options)))  # as another process has them
    result = choose(x, known, choices, None if found is None else pf.tensor(np.array(found, dtype=np.int64), device=DEVICE))
    return result.wait(len(rows)), x.cpu().numpy()[:, :known]


def probabilities(logits, settings):
    """Of each token, by adjusted logits and temperature, top_k, top_p and min_p."""
    x = logits.astype(np.float64)
    w = kept_weights(np.where(x == -np.inf, -1e300, x), *settings[:4])
    return w / w.sum()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_probabilities_are_the_hosts(settings):
    rs = np.random.RandomState(1)
    for _ in range(4):
        tokens, prompt = random_text(rs)
        logits = (rs.standard_normal(WIDTH) * 3).astype(np.float32)
        sampler = Sampler(Sampling(seed=5, **settings))
        rows = sampler.rows(KNOWN, tokens, prompt, ENDS)
        _, adjusted = chosen(logits[None], rows)
        want = np.zeros(KNOWN)
        ids, p = sampler.probabilities(logits[:KNOWN], tokens, prompt, ENDS)
        want[ids] = p
        assert np.abs(probabilities(adjusted[0], rows[0].settings) - want).max() < 2e-5
        greedy = Sampler(Sampling(**{**settings, "temperature": 0}))
        [found], _ = chosen(logits[None], greedy.rows(KNOWN, tokens, prompt, ENDS))
        assert greedy.take(found) == greedy.probabilities(logits[:KNOWN], tokens, prompt, ENDS)[0][0]
        assert found.highest == logits[:KNOWN].max() and found.left == adjusted.max()


def test_a_row_is_chosen_alike_in_any_company():
    """Rows with settings of all kinds and without any, together and alone."""
    rs = np.random.RandomState(2)
    texts = [random_text(rs) for _ in SETTINGS]
    logits = (rs.standard_normal((len(SETTINGS), WIDTH)) * 3).astype(np.float32)
    rows = [Sampler(Sampling(seed=i, **s)).rows(KNOWN, *text, ENDS, top=i % 5 if i % 3 == 0 else None)[0] for i, (s, text) in enumerate(zip(SETTINGS, texts))]
    together, adjusted = chosen(logits, rows)
    assert np.array_equal(adjusted[0], logits[0, :KNOWN])
    for i, row in enumerate(rows):
        [alone], x = chosen(logits[i:i + 1], [row])
        assert np.array_equal(x[0], adjusted[i])
        assert (alone.id, alone.highest, alone.left) == (together[i].id, together[i].highest, together[i].left)
        assert (alone.logprob is None) == (row.top is None) == (together[i].logprob is None)
        if row.top is not None:
            assert abs(alone.logprob - together[i].logprob) < 1e-5 and len(together[i].top) == row.top and [t for t, _ in alone.top] == [t for t, _ in together[i].top]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_token_that_only_the_device_knows(settings):
    """The text's last token is that of another row of the step before: a new one, one that the text has, one that the prompt alone has, and one with a bias."""
    rs = np.random.RandomState(3)
    tokens, prompt = random_text(rs)
    logits = (rs.standard_normal((4, WIDTH)) * 3).astype(np.float32)
    new = next(i for i in range(KNOWN) if i not in tokens)
    given = next((i for i in tokens[:prompt] if i not in tokens[prompt:] and i < KNOWN), new)
    last = [new, tokens[-1], given, 7]
    place = [3, 1, 0, 2]
    found = [last[place.index(k)] for k in range(4)]
    ahead = [Sampler(Sampling(seed=1, **settings)).rows(KNOWN, tokens, prompt, ENDS, place=k)[0] for k in place]
    after = [Sampler(Sampling(seed=1, **settings)).rows(KNOWN, [*tokens, id], prompt, ENDS)[0] for id in last]
    got, want = chosen(logits, ahead, found), chosen(logits, after)
    assert got[0] == want[0] and np.array_equal(got[1], want[1])


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_guesses_count_as_the_text(settings):
    rs = np.random.RandomState(4)
    tokens, prompt = random_text(rs)
    guesses = [tokens[-1], 17, 17, 2, 300]
    logits = (rs.standard_normal((6, WIDTH)) * 3).astype(np.float32)
    rows = Sampler(Sampling(seed=1, **settings)).rows(KNOWN, tokens, prompt, ENDS, guesses)
    growing = Sampler(Sampling(seed=1, **settings))
    after = [growing.rows(KNOWN, tokens + guesses[:i], prompt, ENDS)[0] for i in range(6)]
    after = [r._replace(changes=r.changes and tuple(x.copy() for x in r.changes)) for r in after]
    want = [chosen(logits[i:i + 1], Sampler(Sampling(seed=1, **settings)).rows(KNOWN, tokens + guesses[:i], prompt, ENDS)) for i in range(6)]
    got = chosen(logits, rows)
    assert np.array_equal(got[1], np.concatenate([x for _, x in want]))
    assert [r.settings for r in rows] == [r.settings for r in after]


def test_a_text_that_grows_is_a_text_that_is_given_at_once():
    rs = np.random.RandomState(5)
    tokens, settings = [int(i) for i in rs.randint(0, KNOWN, 300)], {"frequency_penalty": 0.3, "repetition_penalty": 1.2}
    logits = (rs.standard_normal((1, WIDTH)) * 3).astype(np.float32)
    growing = Sampler(Sampling(seed=1, **settings))
    for n in (0, 1, 2, 70, 130, 131, 300):
        at_once = Sampler(Sampling(seed=1, **settings)).rows(KNOWN, tokens[:n], 0, ())
        assert np.array_equal(chosen(logits, growing.rows(KNOWN, tokens[:n], 0, ()))[1], chosen(logits, at_once)[1])


def test_lists_of_many_lengths_have_few_shapes():
    def length(rows):
        return Choices(rows, 8, WIDTH).changes[1].size

    def rows(n, count=1):
        return [Row(LIKELIEST, (np.arange(n, dtype=np.int32), np.ones(n, np.int32), np.zeros(n, np.float32)))] * count

    assert {length(rows(n)) for n in (0, 1, 100, LEAST_CHANGES)} == {3 * LEAST_CHANGES + 8}
    assert {length(rows(n, 2)) for n in (129, 200, LEAST_CHANGES)} == {6 * LEAST_CHANGES + 8}
    assert Choices([Row()] * 8, 8, WIDTH).is_plain and not Choices(rows(0), 8, WIDTH).is_plain


@pytest.mark.parametrize("every", [False, True])
def test_log_probabilities(every):
    rs = np.random.RandomState(6)
    logits = np.round(rs.standard_normal((5, WIDTH)) * 3, 1).astype(np.float32)  # some are equal: lower ids go first
    logits[:, KNOWN:] = 100
    tops = [None, 20, 0, None, 3]
    rows = [Sampler(Sampling(seed=i, frequency_penalty=0.5)).rows(KNOWN, [5, 6, 7, 8, 5], 1, (), top=top)[0] for i, top in enumerate(tops)]
    found, adjusted = chosen(logits, rows, every=every)
    assert not np.array_equal(adjusted, logits[:, :KNOWN])
    x = logits[:, :KNOWN].astype(np.float64)
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    for f, log, top in zip(found, logs, tops):
        if top is None:
            assert f.logprob is None and not f.top
            continue
        order = np.argsort(-log, kind="stable")[:top]
        assert [i for i, _ in f.top] == order.tolist() and np.allclose([p for _, p in f.top], log[order], rtol=0, atol=1e-5)
        assert abs(f.logprob - log[f.id]) < 1e-5 and type(f.logprob) is float


def test_log_probabilities_of_divided_logits_and_of_a_small_vocabulary():
    logits = np.array([[1.0, 3.0, 2.0], [0.5, 0.5, -1.0]], np.float32)
    found, _ = chosen(logits, [Row(top=4, temperature=0.5), Row(top=2)], known=3)
    for f, x, n in zip(found, (logits[0] / 0.5, logits[1]), (3, 2)):
        x = x.astype(np.float64)
        logs = x - np.log(np.exp(x).sum())
        order = np.argsort(-logs, kind="stable")[:n]
        assert [i for i, _ in f.top] == order.tolist() and np.allclose([p for _, p in f.top], logs[order], rtol=0, atol=1e-6)


def test_rows_with_words_of_allowed_tokens():
    rs = np.random.RandomState(7)
    logits = rs.standard_normal((5, WIDTH)).astype(np.float32)
    allowed = rs.rand(5, KNOWN) < 0.2
    words = [np.packbits(np.pad(a, (0, -KNOWN % 32)), bitorder="little").view(np.int32) for a in allowed]
    rows = [Row(allowed=words[i]) if i in (0, 3, 4) else Row() for i in range(5)]
    found, adjusted = chosen(logits, rows)
    want = np.where(allowed | np.isin(np.arange(5), (1, 2))[:, None], logits[:, :KNOWN], -np.inf)
    assert np.array_equal(adjusted, want) and [f.id for f in found] == want.argmax(1).tolist() and [f.left for f in found] == want.max(1).tolist()


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"logit_bias": {4: -100}}, {"frequency_penalty": 1.0}, {"min_tokens": 9, "temperature": 0}], ids=str)
def test_logits_that_are_not_finite_are_refused(settings, number):
    logits = np.zeros((2, WIDTH), np.float32)
    logits[0, 4] = number
    samplers = [Sampler(Sampling(seed=1, **settings)) for _ in range(2)]
    found, _ = chosen(logits, [s.rows(KNOWN, [3, 4, 4], 1, {4}, top=3)[0] for s in samplers])
    with pytest.raises(ValueError, match="generate: the logits are not finite; got nan or inf"):
        samplers[0].take(found[0])
    assert 0 <= samplers[1].take(found[1]) < KNOWN
    with pytest.raises(ValueError, match="generate: the logits are not finite; got nan or inf"):
        samplers[0](logits[0], [3, 4, 4], 1, {4})


def test_a_penalty_beyond_the_range_of_float32():
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=1e-320))
    logits = np.float32([[-3, 5, 1, 2]])
    [found], adjusted = chosen(logits, sampler.rows(4, [0, 3], 2, ()), known=4)
    assert np.isfinite(adjusted).all() and found.id == 3 == sampler.probabilities(logits[0], [0, 3])[0][0]


def test_min_tokens_that_leaves_no_token():
    sampler = Sampler(Sampling(seed=1, min_tokens=3))
    found, _ = chosen(np.zeros((1, 3)), sampler.rows(3, [0], 1, {0, 1, 2}), known=3)
    with pytest.raises(ValueError, match="generate: min_tokens leaves no token; got 3 tokens that end the text; expected fewer than the vocabulary's 3"):
        sampler.take(found[0])
