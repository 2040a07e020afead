"""paged_attention beyond the case table: errors, sequences that do not depend on each other, caches that are written between calls."""
import numpy as np
import pytest

import pyflame as pf

RANDOM = np.random.default_rng(0)


def tensor(x, dtype=np.float32):
    return pf.tensor(np.asarray(x, dtype))


def numbers(*shape):
    return tensor(RANDOM.standard_normal(shape))


Q, K = numbers(2, 4, 8), numbers(5, 4, 2, 8)
TABLE, LENGTHS = tensor([[0, 3], [4, 1]], np.int32), tensor([6, 3], np.int32)


def test_sequences_do_not_depend_on_each_other():
    lengths = [1, 16, 17, 300, 0, 129]
    table = RANDOM.permutation(6 * 20).reshape(6, 20).astype(np.int32)
    q, keys, values = numbers(6, 4, 16), numbers(120, 16, 2, 16), numbers(120, 16, 2, 16)
    together = pf.paged_attention(q, keys, values, tensor(table, np.int32), tensor(lengths, np.int32)).numpy()
    for s, n in enumerate(lengths):
        columns = max(1, -(-n // 16))
        alone = pf.paged_attention(q[s:s + 1], keys, values, tensor(table[s:s + 1, :columns], np.int32), tensor([n], np.int32)).numpy()
        np.testing.assert_array_equal(alone[0], together[s])


def test_numbers_in_pages_of_others_do_not_matter():
    keys = RANDOM.standard_normal((3, 4, 1, 8)).astype(np.float32)
    keys[1], keys[2, 2:] = np.nan, np.inf
    y = pf.paged_attention(Q[:1, :1], tensor(keys), tensor(keys), tensor([[0, 2]], np.int32), tensor([6], np.int32))
    assert np.isfinite(y.numpy()).all()


def test_a_cache_that_is_written_between_calls():
    keys = pf.zeros(2, 4, 2, 8)
    before = pf.paged_attention(Q[:1], keys, keys, tensor([[1]], np.int32), tensor([2], np.int32))
    keys.reshape(8, 2, 8).index_copy_(0, pf.tensor([4, 5]), pf.ones(2, 2, 8))
    after = pf.paged_attention(Q[:1], keys, keys, tensor([[1]], np.int32), tensor([2], np.int32))
    assert (before.numpy() == 0).all() and np.allclose(after.numpy(), 1)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, r"paged_attention: the shapes do not fit; got query \(2, 4, 8\), keys \(5, 4, 2, 8\), values \(5, 4, 2, 4\)", lambda: pf.paged_attention(Q, K, K[..., :4], TABLE, LENGTHS)),
        (ValueError, "paged_attention: the heads do not group; got 3 query heads and 2 key heads; expected a multiple", lambda: pf.paged_attention(Q[:, :3], K, K, TABLE, LENGTHS)),
        (ValueError, "paged_attention: a page has the wrong size; got 3 keys; expected a power of two", lambda: pf.paged_attention(Q, K[:, :3], K[:, :3], TABLE, LENGTHS)),
        (TypeError, "paged_attention: the block table and the lengths have the wrong dtype; got int64; expected int32", lambda: pf.paged_attention(Q, K, K, TABLE.long(), LENGTHS)),
        (ValueError, r"paged_attention: the block table or the lengths do not fit; got \(2, 2\) and \(1,\) for 2 sequences", lambda: pf.paged_attention(Q, K, K, TABLE, LENGTHS[:1])),
        (ValueError, "paged_attention: the window is out of range; got 0; expected at least 1", lambda: pf.paged_attention(Q, K, K, TABLE, LENGTHS, window=0)),
        (ValueError, "paged_attention: the soft cap is out of range; got -1; expected more than 0", lambda: pf.paged_attention(Q, K, K, TABLE, LENGTHS, softcap=-1.0)),
        (TypeError, "paged_attention: dtypes differ", lambda: pf.paged_attention(Q, K.double(), K.double(), TABLE, LENGTHS)),
        (TypeError, "paged_attention: needs a floating dtype; got int64", lambda: pf.paged_attention(Q.long(), K, K, TABLE, LENGTHS)),
        (NotImplementedError, "paged_attention: there are no gradients; got an input that requires one", lambda: pf.paged_attention(Q.clone().requires_grad_(), K, K, TABLE, LENGTHS)),
        (IndexError, "paged_attention: index out of range; got 5; expected 0 <= index < 5", lambda: pf.paged_attention(Q, K, K, TABLE + tensor(1, np.int32), LENGTHS).numpy()),
        (IndexError, "paged_attention: index out of range; got 9; expected 0 <= index < 9", lambda: pf.paged_attention(Q, K, K, TABLE, LENGTHS + tensor(3, np.int32)).numpy()),
    ],
)
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call()
    assert np.isfinite(pf.paged_attention(Q, K, K, TABLE, LENGTHS).numpy()).all()


# _rotary_store: what comes before it in a decoder.

TURNS = numbers(5, 8)
AT, SLOTS = pf.tensor([1, 4]), pf.tensor([3, 0])


def store(q=None, k=None, v=None, cos=TURNS, sin=TURNS, at=AT, slots=SLOTS, keys=None, values=None):
    new = lambda: numbers(2, 2, 8)  # noqa: E731
    q, k, v = Q if q is None else q, new() if k is None else k, new() if v is None else v
    keys, values = (pf.zeros(6, 2, 8) if x is None else x for x in (keys, values))
    with pf.no_grad():
        return pf._C._rotary_store(q, k, v, cos, sin, at, slots, keys, values)


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (ValueError, r"rotary_store: the shapes do not fit; got q \(2, 4, 8\), k \(2, 2, 8\), v \(2, 2, 4\)", lambda: {"v": numbers(2, 2, 4)}),
        (ValueError, r"rotary_store: the cache does not fit; got keys \(6, 2, 8\) and values \(5, 2, 8\) for k", lambda: {"values": pf.zeros(5, 2, 8)}),
        (ValueError, r"rotary_store: the tables do not fit; got cos \(5, 7\)", lambda: {"cos": TURNS[:, :7], "sin": TURNS[:, :7]}),
        (TypeError, "rotary_store: positions or slots have the wrong dtype; got int32; expected int64; hint: cast them", lambda: {"slots": SLOTS.int()}),
        (ValueError, r"rotary_store: positions or slots do not fit; got \(1,\) for 2 rows; expected \(T\)", lambda: {"at": AT[:1]}),
        (TypeError, "rotary_store: dtypes differ", lambda: {"k": numbers(2, 2, 8).double()}),
        (TypeError, "rotary_store: needs a floating dtype; got int64", lambda: {"q": Q.long()}),
        (ValueError, "rotary_store: the cache is not contiguous", lambda: {"keys": pf.zeros(6, 8, 2).transpose(1, 2)}),
    ],
)
def test_errors_of_rotary_store(error, message, changes):
    with pytest.raises(error, match=message):
        store(**changes())


def test_keys_and_values_of_rotary_store_are_two_tensors():
    both = pf.zeros(6, 2, 8)
    with pytest.raises(ValueError, match="rotary_store: keys and values share their memory; got two views of one tensor; expected two tensors"):
        store(keys=both, values=both)


def test_rotary_store_has_no_gradient():
    with pytest.raises(NotImplementedError, match="rotary_store: there are no gradients; got an input that requires one; expected inference; hint: call it under no_grad"):
        pf._C._rotary_store(Q.clone().requires_grad_(), numbers(2, 2, 8), numbers(2, 2, 8), TURNS, TURNS, AT, SLOTS, pf.zeros(6, 2, 8), pf.zeros(6, 2, 8))


@pytest.mark.parametrize("changes", [{"at": pf.tensor([5, 0])}, {"at": pf.tensor([0, -1])}, {"slots": pf.tensor([0, 6])}, {"slots": pf.tensor([-2, 0])}])
def test_rows_of_rotary_store_that_do_not_exist(changes):
    with pytest.raises(IndexError, match="rotary_store: index out of range"):
        store(**changes).numpy()


def test_a_row_without_a_slot_is_not_stored():
    keys, values = pf.ones(6, 2, 8), pf.ones(6, 2, 8)
    q = store(slots=pf.tensor([-1, -1]), keys=keys, values=values)
    assert q.shape == (2, 4, 8) and (keys.numpy() == 1).all() and (values.numpy() == 1).all()
