"""The choice of the next tokens where the logits are (pyflame/llm/_draw.py), against NumPy: on a GPU the kernel, on the CPU the same by tensor ops."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm._draw import draw, settings_of

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
KNOWN, WIDTH = 650, 700  # a model may have more rows than its tokenizer has tokens


def kept_by_numpy(logits, temperature, top_k, top_p, min_p):
    """The probability of each token, relative to the likeliest; 0 for those that are not kept."""
    x = logits.astype(np.float64)
    w = np.exp((x - x.max()) / temperature)
    order = np.argsort(-x, kind="stable")
    order = order[: top_k if 0 < top_k < x.size else None]
    if top_p < 1:
        sums = np.cumsum(w[order])
        order = order[: int(np.searchsorted(sums, top_p * sums[-1])) + 1]
    kept = np.zeros(x.size)
    kept[order] = w[order]
    return np.where(w >= min_p, kept, 0)


def chosen_by_numpy(logits, temperature, top_k, top_p, min_p, drawn):
    if temperature == 0:
        return int(logits.argmax())
    w = kept_by_numpy(logits, temperature, int(top_k), top_p, min_p)
    return int(np.searchsorted(np.cumsum(w), drawn * w.sum(), side="right"))


def chosen(logits, settings):
    rows = pf.tensor(np.asarray(logits, dtype=np.float32), device=DEVICE)
    ids, highest = draw(rows, pf.tensor(settings_of(settings, len(logits)), device=DEVICE), known=KNOWN)
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
    want = [chosen_by_numpy(x[:KNOWN], *(np.float32(s) for s in row)) for x, row in zip(logits, settings)]
    assert ids.tolist() == want
    assert np.array_equal(highest, logits[:, :KNOWN].max(1))


def test_the_ends_of_the_sum():
    """0 takes the first token that is kept; a number that float32 rounds to 1 takes the last."""
    logits = np.zeros((2, WIDTH), dtype=np.float32)
    logits[:, [7, 9, 600]] = 3
    ids, _ = chosen(logits, [(1, 3, 1, 0, 0.0), (1, 3, 1, 0, 1 - 1e-12)])
    assert ids.tolist() == [7, 600]


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


def test_all_tokens_come_as_often_as_they_should():
    rs = np.random.RandomState(1)
    logits = np.repeat(np.concatenate([[2.0, 1, 0, 1], np.full(WIDTH - 4, -20.0)])[None], 2000, 0).astype(np.float32)
    ids, _ = chosen(logits, [(1.0, 0, 1.0, 0.0, u) for u in rs.rand(2000)])
    share = np.bincount(ids, minlength=4)[:4] / 2000
    want = np.exp([2.0, 1, 0, 1]) / np.exp([2.0, 1, 0, 1]).sum()
    assert np.abs(share - want).max() < 4 * np.sqrt(0.25 / 2000)
