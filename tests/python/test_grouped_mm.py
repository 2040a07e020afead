"""Errors of grouped_mm and quantized_grouped_mm. Their values are in the case tables."""
import pytest

import pyflame as pf


def offs(*ends):
    return pf.tensor(ends, dtype=pf.int32)


X, W = pf.ones(6, 4), pf.ones(3, 4, 2)
ROWS, BLOCKS = pf.ones(6, 32), pf.zeros(24, 34, dtype=pf.uint8)


@pytest.mark.parametrize("call, error, message", [
    (lambda: pf.grouped_mm(X, W), ValueError, "grouped_mm: the groups are missing; got no offs"),
    (lambda: pf.grouped_mm(pf.ones(3, 6, 4), W, offs=offs(2, 4, 6)), ValueError, "grouped_mm: batches have no groups; got offs with two operands of 3 dims"),
    (lambda: pf.grouped_mm(X[0], W, offs=offs(2, 4, 6)), ValueError, "grouped_mm: an operand has the wrong number of dims"),
    (lambda: pf.grouped_mm(X, W, offs=pf.tensor([2, 4, 6])), TypeError, "grouped_mm: offs is no list of ends; got int64"),
    (lambda: pf.grouped_mm(pf.ones(6, 5), W, offs=offs(2, 4, 6)), ValueError, "grouped_mm: inner dimensions differ"),
    (lambda: pf.grouped_mm(X, W, offs=offs(2, 6)), ValueError, "grouped_mm: offs has the wrong length; got 2; expected 3 groups"),
    (lambda: pf.grouped_mm(X.to(pf.int64), W.to(pf.int64), offs=offs(2, 4, 6)), TypeError, "grouped_mm: needs a floating dtype; got int64"),
    (lambda: pf.grouped_mm(X, W, offs=offs(2, 1, 6)).numpy(), ValueError, "grouped_mm: the groups' ends decrease; got 1 after 2"),
    (lambda: pf.grouped_mm(X, W, offs=offs(2, 2, 5)).numpy(), ValueError, "grouped_mm: the last group does not end with the rows; got 5; expected 6"),
    (lambda: pf.quantized_grouped_mm(X, BLOCKS, "Q8_0", offs(2, 4, 6)), ValueError, "quantized_grouped_mm: the input is no rows of whole blocks"),
    (lambda: pf.quantized_grouped_mm(ROWS, BLOCKS, "Q8_0", pf.tensor([2, 4, 6])), TypeError, "quantized_grouped_mm: offs is no list of ends; got int64"),
    (lambda: pf.quantized_grouped_mm(pf.ones(6, 64), BLOCKS, "Q8_0", offs(2, 4, 6)), ValueError, "quantized_grouped_mm: input and weight do not fit"),
    (lambda: pf.quantized_grouped_mm(ROWS, BLOCKS, "Q8_0", offs(1, 2, 3, 4, 6)), ValueError, "the weight's rows do not divide among the groups; got 24 rows and 5 groups"),
    (lambda: pf.quantized_grouped_mm(ROWS, pf.weight_tiles(BLOCKS[:12], "Q8_0"), "Q8_0", offs(2, 4, 6), tiled_rows=12), ValueError, "a tile would belong to two groups; got 4 rows for each group"),
    (lambda: pf.quantized_grouped_mm(pf.ones(6, 32, requires_grad=True), BLOCKS, "Q8_0", offs(2, 4, 6)), NotImplementedError, "quantized_grouped_mm: there are no gradients"),
    (lambda: pf.quantized_grouped_mm(ROWS, BLOCKS, "Q8_0", offs(2, 1, 6)).numpy(), ValueError, "quantized_grouped_mm: the groups' ends decrease; got 1 after 2"),
    (lambda: pf.quantized_grouped_mm(ROWS, BLOCKS, "Q8_0", offs(2, 2, 5)).numpy(), ValueError, "quantized_grouped_mm: the last group does not end with the rows; got 5; expected 6"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert pf.grouped_mm(X, W, offs=offs(2, 2, 6)).sum().item() == 48  # everything goes on
