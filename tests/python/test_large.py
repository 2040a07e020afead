"""Tensors of more than 2**31 elements: positions are 64-bit numbers on every path."""
import os

import pytest
from sanitized import SANITIZED

import pyflame as pf

N = (1 << 31) + 64
IN_ONE_PROCESS = "the tensors of one are enough for a machine's memory"
pytestmark = pytest.mark.skipif(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 << 30 or SANITIZED,
                                reason="needs 8 GiB of free memory and no sanitizer")


@pytest.fixture(scope="module")
def big():
    x = pf.zeros(N, dtype=pf.uint8)
    x[N - 3:] = 7
    x[5] = 1
    return x


def test_slices_and_views_beyond_the_limit(big):
    assert big.numel() == N and big[-4:].tolist() == [0, 7, 7, 7] and big[N - 1].item() == 7
    assert big.view(2, N // 2)[1, -1].item() == 7
    assert big[:: N - 1].tolist() == [0, 7]


def test_elementwise_and_reductions(big):
    assert big.sum().item() == 22
    assert (big + 1)[-4:].tolist() == [1, 8, 8, 8]
    assert big.amax().item() == 7


def test_indexing(big):
    rows = big.view(N // 64, 64)
    assert pf.index_select(rows, 0, pf.tensor([0, N // 64 - 1])).sum().item() == 22


def test_numpy_sees_all_of_it(big):
    a = big.numpy()
    assert a.shape == (N,) and a[-1] == 7 and a[5] == 1
