"""Embedding with its options, EmbeddingBag and the CTC loss, against NumPy and enumeration."""
import itertools
import math

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn.functional as F
from pyflame import nn
from pyflame.nn.functional_embedding import _bags

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((7, 3)).astype(np.float32)
BAGS = [[1, 2, 2], [], [4], [0, 5, 5, 6]]
REDUCE = {"sum": lambda rows: rows.sum(0), "mean": lambda rows: rows.mean(0), "max": lambda rows: rows.max(0)}


def expected(mode, padding=None, weights=None):
    out = []
    at = 0
    for bag in BAGS:
        rows = TABLE[bag].reshape(-1, 3)
        if weights is not None:
            rows = rows * weights[at : at + len(bag), None]
        at += len(bag)
        rows = rows[[i != padding for i in bag]] if bag else rows
        out.append(REDUCE[mode](rows) if len(rows) else np.zeros(3))
    return np.array(out)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 5, 4])
@pytest.mark.parametrize("last", [False, True])
def test_bags(mode, padding, last):
    flat = np.concatenate(BAGS).astype(np.int64)
    offsets = np.cumsum([0, *map(len, BAGS)])[: None if last else -1]
    layer = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding, include_last_offset=last, _weight=pf.tensor(TABLE))
    y = layer(pf.tensor(flat), pf.tensor(offsets))
    np.testing.assert_allclose(y.detach().numpy(), expected(mode, padding), rtol=1e-5)
    (y * pf.arange(1.0, 5.0).unsqueeze(1)).sum().backward()
    grad = np.zeros_like(TABLE)
    for k, bag in enumerate(BAGS):
        counted = [i for i in bag if i != padding]
        for column in range(3):
            if mode == "max" and counted:
                grad[counted[int(np.argmax(TABLE[counted, column]))], column] += k + 1
            for i in counted if mode != "max" else ():
                grad[i, column] += (k + 1) / (len(counted) if mode == "mean" else 1)
    np.testing.assert_allclose(layer.weight.grad.numpy(), grad, rtol=1e-5)
    rows = np.array([[1, 5, 2], [5, 5, 5]])
    square = nn.EmbeddingBag.from_pretrained(pf.tensor(TABLE), mode=mode, padding_idx=padding)(pf.tensor(rows))
    for got, bag in zip(square.numpy(), rows):
        kept = TABLE[[i for i in bag if i != padding]]
        np.testing.assert_allclose(got, REDUCE[mode](kept) if len(kept) else 0, rtol=1e-5)


def test_weights_of_samples():
    flat, weights = np.concatenate(BAGS).astype(np.int64), RNG.random(8).astype(np.float32)
    offsets = pf.tensor(np.cumsum([0, *map(len, BAGS[:-1])]))
    table, per_sample = pf.tensor(TABLE, requires_grad=True), pf.tensor(weights, requires_grad=True)
    y = F.embedding_bag(pf.tensor(flat), table, offsets, mode="sum", per_sample_weights=per_sample)
    np.testing.assert_allclose(y.detach().numpy(), expected("sum", weights=weights), rtol=1e-5)
    y.sum().backward()
    np.testing.assert_allclose(per_sample.grad.numpy(), TABLE[flat].sum(1), rtol=1e-5, atol=1e-6)


def test_options_of_embeddings():
    index = pf.tensor([[0, 2], [2, 2]])
    for p in (1.0, 2.0):
        layer = nn.Embedding(7, 3, max_norm=0.5, norm_type=p, _weight=pf.tensor(TABLE))
        assert layer(index).shape == (2, 2, 3)
        norms = np.linalg.norm(layer.weight.detach().numpy(), p, axis=1)
        np.testing.assert_allclose(norms[[0, 2]], 0.5, rtol=1e-5)
        np.testing.assert_array_equal(layer.weight.detach().numpy()[[1, 3, 4, 5, 6]], TABLE[[1, 3, 4, 5, 6]])
    layer = nn.Embedding(7, 3, scale_grad_by_freq=True, padding_idx=-7)
    layer(index).sum().backward()
    np.testing.assert_allclose(layer.weight.grad.numpy()[:3], [[0] * 3, [0] * 3, [1] * 3])
    fixed = nn.Embedding.from_pretrained(pf.tensor(TABLE))
    assert not fixed.weight.requires_grad and repr(nn.Embedding(2, 3, 1, max_norm=1.0)) == "Embedding(2, 3, padding_idx=1, max_norm=1.0)"
    assert repr(nn.EmbeddingBag(2, 3)) == "EmbeddingBag(2, 3, mode='mean')"


def by_enumeration(p, labels, blank):
    """The probability of the labels: the sum over all paths that collapse to them."""
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        collapsed = [c for c, before in zip(path, (None, *path)) if c != before and c != blank]
        if collapsed == list(labels):
            total += math.prod(p[t, c] for t, c in enumerate(path))
    return total


def test_ctc_labels_beyond_their_length_may_be_blank():
    x = F.log_softmax(pf.tensor([[[0.1, 0.7, 0.2]], [[0.3, 0.1, 0.6]]]), 2)
    assert F.ctc_loss(x, pf.tensor([[1, 0]]), [2], [1]).item() == F.ctc_loss(x, pf.tensor([[1]]), [2], [1]).item()


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_is_the_sum_over_all_paths(blank):
    logits = RNG.standard_normal((4, 3, 3))
    labels = [[1 - blank // 2, 1], [1, 1], []]
    lengths, label_lengths = [4, 3, 2], [2, 2, 0]
    x = pf.tensor(logits, requires_grad=True)
    padded = pf.tensor([row + [0] * (2 - len(row)) for row in labels])
    losses = F.ctc_loss(F.log_softmax(x, 2), padded, lengths, pf.tensor(label_lengths), blank, "none")
    p = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    want = [-math.log(by_enumeration(p[: lengths[i], i], labels[i], blank)) for i in range(3)]
    np.testing.assert_allclose(losses.detach().numpy(), want, rtol=1e-9)
    mean = nn.CTCLoss(blank)(F.log_softmax(x, 2), pf.tensor(sum(labels, [])), lengths, label_lengths)
    np.testing.assert_allclose(mean.item(), np.mean([want[0] / 2, want[1] / 2, want[2]]), rtol=1e-9)
    one = F.ctc_loss(F.log_softmax(x[:, 0], 1), pf.tensor(labels[0]), pf.tensor(4), pf.tensor(2), blank, "sum")
    np.testing.assert_allclose(one.item(), want[0], rtol=1e-9)

    def loss(z):
        return F.ctc_loss(F.log_softmax(z, 2), padded, lengths, label_lengths, blank, "sum")

    assert pf.autograd.gradcheck(loss, (x,))


def test_labels_that_do_not_fit():
    x = pf.zeros(2, 2, 3, requires_grad=True)
    args = (pf.tensor([[1, 1], [1, 2]]), [2, 2], [2, 2])
    assert F.ctc_loss(F.log_softmax(x, 2), *args, reduction="none").tolist()[0] == math.inf
    F.ctc_loss(F.log_softmax(x, 2), *args, reduction="sum", zero_infinity=True).backward()
    assert (x.grad[:, 0] == 0).all().item() and (x.grad[:, 1] != 0).any().item()


ONE = pf.zeros(2, 1, 3)
TWO = pf.tensor([[1, 2]])


@pytest.mark.parametrize("wrong,error,text", [
    (lambda: F.embedding_bag(TWO, pf.tensor(TABLE), mode="min"), ValueError, "unknown mode; got 'min'"),
    (lambda: F.embedding_bag(pf.tensor([[0.7, 1.2]]), pf.tensor(TABLE)), TypeError, "embedding_bag: input has the wrong dtype; got float32; expected int64 or int32"),
    (lambda: F.embedding_bag(TWO[0], pf.tensor(TABLE), pf.tensor([0.0])), TypeError, "embedding_bag: offsets has the wrong dtype; got float32"),
    (lambda: F.embedding_bag(TWO, pf.tensor(TABLE), pf.tensor([0])), ValueError, "expected None, because each row is a bag"),
    (lambda: F.embedding_bag(TWO[0], pf.tensor(TABLE)), ValueError, "needs offsets of 1 dimension; got None"),
    (lambda: F.embedding_bag(pf.tensor(1), pf.tensor(TABLE)), ValueError, "the input has 0 dimensions"),
    (lambda: F.embedding_bag(TWO, pf.tensor(TABLE), per_sample_weights=pf.ones(1, 2)), NotImplementedError, "per_sample_weights need mode 'sum'"),
    (lambda: F.embedding_bag(TWO, pf.tensor(TABLE), mode="sum", per_sample_weights=pf.ones(2)), ValueError, "per_sample_weights do not fit"),
    (lambda: F.embedding_bag(TWO, pf.tensor(TABLE), padding_idx=9), ValueError, "padding_idx is out of range; got 9"),
    (lambda: F.embedding_bag(TWO[0], pf.tensor(TABLE), pf.tensor([0])[:0], include_last_offset=True), ValueError, "needs at least one offset"),
    (lambda: nn.Embedding(2, 3, _weight=pf.ones(2, 2)), ValueError, "the weight does not fit"),
    (lambda: nn.Embedding.from_pretrained(pf.ones(2)), ValueError, "not a table"),
    (lambda: F.ctc_loss(ONE, TWO, [2], [2], blank=3), RuntimeError, "blank is out of range; got 3"),
    (lambda: F.ctc_loss(ONE, pf.tensor([[1, 9]]), [2], [2]), IndexError, "ctc_loss: a label is no class; got 9; expected 0 to 2"),
    (lambda: F.ctc_loss(ONE, pf.tensor([1, -1]), [2], [2]), IndexError, "ctc_loss: a label is no class; got -1; expected 0 to 2"),
    (lambda: F.ctc_loss(ONE, pf.tensor([[1, 0]]), [2], [2]), ValueError, "ctc_loss: a label is the blank class; got 0"),
    (lambda: F.ctc_loss(ONE, pf.tensor([2, 1]), [2], [2], blank=2), ValueError, "ctc_loss: a label is the blank class; got 2"),
    (lambda: F.ctc_loss(ONE, TWO, pf.tensor([2.0]), [2]), RuntimeError, "ctc_loss: input_lengths are not integers; got .*float32"),
    (lambda: F.ctc_loss(ONE, TWO, [2], [2.0]), TypeError, r"ctc_loss: target_lengths are not integers; got \[2.0\]"),
    (lambda: F.ctc_loss(ONE, TWO, "ab", [2]), TypeError, "ctc_loss: input_lengths are not integers; got"),
    (lambda: F.ctc_loss([1.0], TWO, [2], [2]), TypeError, "ctc_loss: log_probs is not a tensor; got list"),
    (lambda: F.ctc_loss(ONE, [1, 2], [2], [2]), TypeError, "ctc_loss: targets is not a tensor; got list"),
    (lambda: F.ctc_loss(ONE, TWO, [3], [2]), RuntimeError, r"input_lengths are out of range; got \[3\]; expected 0 to 2"),
    (lambda: F.ctc_loss(ONE, TWO, [2, 2], [2]), RuntimeError, "input_lengths do not fit; got 2"),
    (lambda: F.ctc_loss(ONE, TWO, [2], [3]), RuntimeError, "target_lengths are out of range"),
    (lambda: F.ctc_loss(ONE, TWO.float(), [2], [2]), RuntimeError, "targets do not fit"),
    (lambda: F.ctc_loss(ONE, pf.tensor([[1], [2]]), [2], [1]), RuntimeError, "targets do not fit; got shape"),
    (lambda: F.ctc_loss(ONE[0, 0], TWO, [2], [2]), RuntimeError, "log_probs do not fit"),
])
def test_errors(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()


def test_no_gradient_of_the_gradient_of_ctc():
    x = pf.zeros(2, 1, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="ctc_loss: its gradient has no gradient"):
        pf.autograd.grad(F.ctc_loss(x, TWO[:, :1], [2], [1]), [x], create_graph=True)


@pytest.mark.parametrize("mode, first, last, slopes", [("sum", [2, 4], [10, 12], [1, 1, 1, 1, 0]), ("mean", [1, 2], [5, 6], [0.5, 0.5, 0.5, 0.5, 0]),
                                                       ("max", [2, 3], [6, 7], [0, 1, 0, 1, 0])])
def test_the_last_bag_ends_at_the_last_offset(mode, first, last, slopes):
    table = pf.arange(10.0).view(5, 2).requires_grad_()
    y = F.embedding_bag(pf.arange(5), table, pf.tensor([0, 2, 2, 4]), include_last_offset=True, mode=mode)
    assert y.tolist() == [first, [0, 0], last]
    y.sum().backward()
    assert table.grad[:, 0].tolist() == slopes


def test_bags_are_counted_in_integers():
    n = 2**24 + 4  # float32 counts to 2**24
    assert _bags(pf.arange(n), n)[-2:].tolist() == [n - 2, n - 1]
