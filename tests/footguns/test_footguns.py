"""Surprising but accepted behaviour, written down so that it changes only on purpose."""
import os
import threading

import numpy as np
import pytest

import pyflame as pf


def test_from_numpy_shares_and_tensor_copies():
    a = np.zeros(2, np.float32)
    shared, copied = pf.from_numpy(a), pf.tensor(a)
    a[0] = 1
    assert shared.tolist() == [1, 0] and copied.tolist() == [0, 0]


def test_numpy_float64_stays_float64():
    assert pf.tensor(np.ones(1)).dtype == pf.float64 and pf.tensor([1.0]).dtype == pf.float32
    assert (pf.tensor(np.ones(1)) + pf.tensor([1.0])).dtype == pf.float64


def test_grad_is_a_new_name_each_time():
    x = pf.ones(2, requires_grad=True)
    x.sum().backward()
    assert x.grad is not x.grad and x.grad.is_same(x.grad)
    x.grad.zero_()  # yet it is the same tensor
    assert x.grad.tolist() == [0, 0]


def test_two_names_of_one_tensor_are_two_keys():
    x = pf.ones(2)
    assert len({x, x.view(2)}) == 2 and hash(x) == hash(x)


def test_equality_is_by_element_and_none_is_not_equal():
    x = pf.ones(2)
    assert (x == x).tolist() == [True, True] and (x == None) is False and (x != None) is True  # noqa: E711
    with pytest.raises(RuntimeError):
        assert x == x


def test_index_errors_of_computed_values_come_at_the_read():
    with pytest.raises(IndexError):
        pf.index_select(pf.ones(2, 2), 0, pf.tensor([5]))  # the values are at hand
    if os.environ.get("PYFLAME_WINDOW") != "1":
        y = pf.index_select(pf.ones(2, 2), 0, pf.tensor([2]) + 3)  # they are not: no error here
        with pytest.raises(IndexError):
            y.tolist()


def test_negative_entries_count_from_the_end_in_brackets_only():
    x = pf.arange(4).reshape(2, 2)
    assert x[pf.tensor([-1])].tolist() == [[2, 3]]
    for wrong in (lambda: x[pf.tensor([-3])], lambda: pf.index_select(x, 0, pf.tensor([-1])), lambda: pf.gather(x, 0, pf.tensor([[-1]]))):
        with pytest.raises(IndexError):
            wrong().tolist()


def test_multihead_masks_are_the_opposite_of_attention_masks():
    q = pf.randn(1, 1, 2, 4)
    seen = pf.tensor([[True, False], [True, True]])
    a = pf.scaled_dot_product_attention(q, q, q, seen)
    assert pf.allclose(a[0, 0, 0], q[0, 0, 0])  # True: may be seen
    mha = pf.nn.MultiheadAttention(4, 1, batch_first=True)
    _, w = mha(q[0], q[0], q[0], attn_mask=~seen)  # True: may not
    assert w[0, 0].tolist() == [1, 0]


def test_grad_modes_belong_to_a_thread():
    seen = []
    with pf.no_grad():
        t = threading.Thread(target=lambda: seen.append(pf.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_a_loader_left_early_starts_the_next_epoch():
    loader = pf.data.DataLoader(pf.data.TensorDataset(pf.arange(6)), 2, shuffle=True, seed=0)
    next(iter(loader))
    next(iter(loader))
    assert loader.state_dict()["epoch"] == 1


def test_expanded_views_cannot_be_written_element_by_element():
    x = pf.zeros(1).expand(3)
    with pytest.raises(Exception):
        x += pf.arange(3).float()


def test_var_divides_by_n_minus_1():
    assert pf.tensor([1.0, 3.0]).var().item() == 2 and np.var([1.0, 3.0]) == 1


def test_round_goes_to_even():
    assert pf.round(pf.tensor([0.5, 1.5, 2.5])).tolist() == [0, 2, 2]


def test_integer_division_gives_floats():
    assert (pf.tensor([3]) / 2).tolist() == [1.5] and (pf.tensor([-3]) // 2).tolist() == [-2] and (pf.tensor([-3]) % 2).tolist() == [1]
