"""The choice of the next tokens where the logits are (the op draw_tokens), against NumPy; its cases are in pyflame/testing/cases/index.py."""
import os

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm.sampling import Sampler, Sampling  # noqa: E402
from pyflame.testing.cases.index import draw_tokens, kept_weights  # noqa: E402

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
KNOWN, WIDTH = 650, 700  # a model may have more rows than its tokenizer has tokens


def draw(logits, settings):
    """Rows without settings take the likeliest token."""
    numbers = np.zeros((logits.shape[0], 5), dtype=np.float32)
    numbers[: len(settings)] = np.reshape(settings, (-1, 5))
    return pf._C._draw_tokens(logits, pf.tensor(numbers, device=logits.device))


def chosen(logits, settings, device=DEVICE, known=KNOWN):
    ids, highest = draw(pf.tensor(np.asarray(logits, dtype=np.float32), device=device)[:, :known], settings)
    assert ids.dtype == pf.int64 and highest.dtype == pf.float32
    return ids.cpu().numpy(), highest.cpu().numpy()


@pytest.mark.parametrize("kind", ["normal", "ties", "equal", "impossible"])
def test_the_choice_is_numpys(kind):
    rs = np.random.RandomState(["normal", "ties", "equal", "impossible"].index(kind))
    logits = (rs.standard_normal((48, WIDTH)) * 2).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    if kind == "equal":
        logits[:] = 1.5
    if kind == "impossible":
        logits[:, rs.permutation(KNOWN)[:400]] = -np.inf
    logits[:, KNOWN:] = 100  # nobody draws these
    settings = [(rs.choice([0, 0.5, 1, 1.7]), rs.choice([0, 1, 5, 50, 1000]), rs.choice([1, 0.93, 0.51, 0.07]), rs.choice([0, 0.04, 0.3]), rs.rand()) for _ in logits]
    ids, highest = chosen(logits, settings)
    want, _ = draw_tokens(logits[:, :KNOWN].astype(np.float64), np.float32(settings).astype(np.float64))
    assert ids.tolist() == want.tolist()
    assert np.array_equal(highest, logits[:, :KNOWN].max(1))


def test_the_ends_of_the_sum():
    """0 takes the first token that is kept; a number that float32 rounds to 1 takes the last."""
    logits = np.zeros((2, WIDTH), dtype=np.float32)
    logits[:, [7, 9, 600]] = 3
    ids, _ = chosen(logits, [(1, 3, 1, 0, 0.0), (1, 3, 1, 0, 1 - 1e-12)])
    assert ids.tolist() == [7, 600]


def test_rows_without_settings_take_the_likeliest():
    logits = np.random.RandomState(4).standard_normal((3, WIDTH)).astype(np.float32)
    likeliest = logits[:, :KNOWN].argmax(1)
    assert chosen(logits, [])[0].tolist() == likeliest.tolist() and chosen(logits, [(1, 1, 1, 0, 0.5)])[0].tolist() == likeliest.tolist()


def test_a_row_is_chosen_alike_in_any_company():
    rs = np.random.RandomState(5)
    logits = rs.standard_normal((9, WIDTH)).astype(np.float32)
    settings = [(1.3, 40, 0.9, 0.01, rs.rand()) for _ in logits]
    together, _ = chosen(logits, settings)
    assert [chosen(logits[i:i + 1], settings[i:i + 1])[0][0] for i in range(9)] == together.tolist()


def test_rows_without_numbers_say_so():
    logits = np.zeros((4, WIDTH), dtype=np.float32)
    logits[0, 3], logits[1, 3], logits[2, :] = np.nan, np.inf, -np.inf
    _, highest = chosen(logits, [(1, 0, 1, 0, 0.5)] * 4)
    assert np.isnan(highest[0]) and highest[1] == np.inf and highest[2] == -np.inf and highest[3] == 0


# Statistics that 999 of 1000 fair draws do not reach, by degrees of freedom.
CHI_SQUARE = {5: 20.5, 19: 43.8}
DRAWS = 4000 if DEVICE in ("cpu", "reference") else 500  # the wave emulator is slow


@pytest.mark.parametrize("settings", [(0.8, 0, 1, 0), (1.3, 6, 1, 0), (1.0, 0, 0.8, 0), (0.7, 12, 0.9, 0.05), (1.0, 0, 1, 0.1)], ids=str)
def test_tokens_come_as_often_as_they_should(settings):
    """A chi-square test with a fixed seed."""
    rs = np.random.RandomState(1)
    x = np.full(WIDTH, -30.0, np.float32)
    x[rs.permutation(KNOWN)[:20]] = rs.standard_normal(20)
    w = kept_weights(x[:KNOWN].astype(np.float64), *settings)
    w[w < 1e-9] = 0  # nobody will see these
    ids, _ = chosen(np.repeat(x[None], DRAWS, 0), [(*settings, u) for u in rs.rand(DRAWS)])
    kept = np.flatnonzero(w)
    assert np.isin(ids, kept).all() and 2 < len(kept) <= 20
    expected = DRAWS * w[kept] / w.sum()
    statistic = ((np.bincount(ids, minlength=KNOWN)[kept] - expected) ** 2 / expected).sum()
    assert statistic < next(limit for freedom, limit in CHI_SQUARE.items() if len(kept) - 1 <= freedom)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "top_k": 40, "top_p": 0.95}, {"top_p": 0.9}, {"min_p": 0.02}, {"temperature": 1e308}, {"temperature": 1e-310}, {"top_p": 1e-300},
                                      {"top_k": 10**400}], ids=str)  # fmt: skip
def test_a_sampler_draws_what_the_device_draws(settings):
    """The same seed has the same numbers, whether the host calls a Sampler or the device gets its settings."""
    logits = np.random.RandomState(2).standard_normal((20, KNOWN)).astype(np.float32) * 3
    host, sampler = Sampler(Sampling(seed=7, **settings)), Sampler(Sampling(seed=7, **settings))
    ids, _ = chosen(logits, [sampler.settings(i) for i in range(20)])
    assert ids.tolist() == [host(x) for x in logits]


@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0, 300.0])
def test_a_large_vocabulary(spread):
    """On the CPU, without a GPU's 20 passes over it."""
    rs = np.random.RandomState(3)
    logits = (rs.standard_normal((6, 128256)) * spread).astype(np.float32)
    logits[0, rs.permutation(128256)[:1000]] = -1e30
    logits[1] = np.round(logits[1])
    settings = [(t, k, p, m, rs.rand()) for t, k, p, m in ((1, 40, 0.95, 0), (0.8, 0, 1, 0), (1.5, 0, 0.9, 0), (1, 5000, 1, 0.001), (1, 100000, 0.999, 0), (100, 0, 0.5, 0))]
    ids, highest = chosen(logits, settings, "cpu", None)
    x, s = logits.astype(np.float64), np.float32(settings).astype(np.float64)
    want, _ = draw_tokens(x, s)
    assert np.array_equal(highest, logits.max(1))
    for row, (id, wanted) in enumerate(zip(ids, want)):  # float32 may round a probability's end to the other side of the drawn number
        w = kept_weights(x[row], *s[row, :4])
        assert id == wanted or (w[id] > 0 and abs(int(np.count_nonzero(w[:id])) - int(np.count_nonzero(w[:wanted]))) <= 1), (row, id, wanted)


@pytest.mark.parametrize("error, message, logits, settings", [
    (TypeError, "draw_tokens: the dtype is wrong; got float64; expected float32; hint: cast it", pf.zeros(2, 5, dtype=pf.float64), pf.zeros(2, 5)),
    (ValueError, r"draw_tokens: the logits are no rows of a vocabulary; got \(5,\); expected \(B, V\)", pf.zeros(5), pf.zeros(1, 5)),
    (ValueError, r"draw_tokens: the logits are no rows of a vocabulary; got \(2, 0\)", pf.zeros(2, 0), pf.zeros(2, 5)),
    (ValueError, r"draw_tokens: the settings do not fit; got \(2, 4\) for logits \(2, 9\); expected \(B, 5\)", pf.zeros(2, 9), pf.zeros(2, 4)),
])  # fmt: skip
def test_errors(error, message, logits, settings):
    with pytest.raises(error, match=message):
        pf._C._draw_tokens(logits, settings)
