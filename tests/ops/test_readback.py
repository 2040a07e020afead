"""Values on their way to the host while the device goes on with later work. PYFLAME_TEST_DEVICE names the device."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
Readback = pf._C._Readback
FOUND_BY_KERNELS = pytest.mark.skipif(DEVICE == "cpu", reason="on the CPU an index is checked at the call; PYFLAME_TEST_DEVICE names the device")


def on_device(x):
    return pf.tensor(x).to(DEVICE)


def rows(index):
    """Rows of [0, 1, 2] on the device. An index beyond is found by the kernel."""
    return on_device(np.arange(3, dtype=np.float32)).index_select(0, on_device(np.array(index, dtype=np.int64)))


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 7), (300, 1000)], ids=str)
def test_values_as_they_were_when_the_copy_began(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    t = on_device(x) * 2
    early = Readback(t)
    t.mul_(3)
    late = Readback(t)
    for _ in range(2):
        assert late.wait().numpy().tolist() == (x * 2 * 3).tolist() and early.wait().numpy().tolist() == (x * 2).tolist()
    assert early.wait().device == pf.zeros(1).device and early.wait().shape == shape


def test_views():
    x = np.arange(60, dtype=np.int64).reshape(3, 4, 5)
    t = on_device(x)
    for view, want in ((t.transpose(0, 2), x.transpose(2, 1, 0)), (t[1:, ::2], x[1:, ::2]), (t[2, 3, 4], x[2, 3, 4])):
        assert (Readback(view).wait().numpy() == want).all()


def test_copies_that_nobody_reads():
    for i in range(20):
        Readback(on_device(np.full(1000, i, dtype=np.float32)) + 1)
    kept = [Readback(on_device(np.full(1000, i, dtype=np.float32)) + 1) for i in range(20)]
    assert [float(r.wait().numpy().mean()) for r in reversed(kept)] == [float(i + 1) for i in reversed(range(20))]


@FOUND_BY_KERNELS
def test_a_fault_is_told_to_those_that_read_what_it_spoiled():
    right = Readback(rows([2, 0]))
    bad = rows([0, 3])
    for _ in range(2):  # every copy says so, and every time
        with pytest.raises(IndexError, match="index out of range; got 3"):
            Readback(bad + 1).wait()
    late = Readback(rows([1, 1]))  # has other inputs
    assert late.wait().numpy().tolist() == [1, 1] and right.wait().numpy().tolist() == [2, 0]
    with pytest.raises(IndexError, match="index out of range; got 3"):
        bad.cpu().numpy()


@FOUND_BY_KERNELS
def test_copies_are_read_in_any_order():
    """A report that was requested earlier and is read later says nothing new."""
    copies = []
    for i in range(6):
        copies.append((i, Readback(rows([0, i]))))
    for i, copy in sorted(copies, key=lambda c: (c[0] % 2, -c[0])):
        for _ in range(2):
            if i < 3:
                assert copy.wait().numpy().tolist() == [0, i]
            else:
                with pytest.raises(IndexError, match=f"index out of range; got {i}"):
                    copy.wait()


@FOUND_BY_KERNELS
def test_a_dropped_copy_loses_no_report():
    bad = rows([0, 4])
    dropped = Readback(bad)
    del dropped
    assert Readback(rows([1])).wait().numpy().tolist() == [1]
    with pytest.raises(IndexError, match="index out of range; got 4"):
        bad.cpu().numpy()


def test_a_tensor_without_values():
    with pytest.raises(NotImplementedError, match="read: a tensor of the device 'null' .'meta'. has no values"):
        Readback(pf.zeros(2, device="meta"))
