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
