"""Several GPUs of one kind in one process: copies between them, work on all of them at once. PYFLAME_TEST_DEVICE names the kind; skipped where
there are fewer than two."""
import os
import threading

import numpy as np
import pytest

import pyflame as pf

KIND = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")


def devices():
    if KIND not in ("rocm", "cuda"):
        return []
    found = []
    for i in range(8):
        try:
            pf.device_info(f"{KIND}:{i}")
        except (pf.DeviceError, RuntimeError, ValueError):
            break
        found.append(f"{KIND}:{i}")
    return found


DEVICES = devices()
pytestmark = pytest.mark.skipif(len(DEVICES) < 2, reason=f"one device of kind {KIND} or none; PYFLAME_TEST_DEVICE names the kind")


@pytest.fixture(autouse=True)
def default_device():
    before = pf.get_device()
    yield
    pf.set_device(before)


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[3:, ::2], lambda x: x[1:2].expand(5, 64)], ids=["whole", "transposed", "strided", "expanded"])
def test_copies_keep_values(view):
    x = numbers(64, 64)
    for a in DEVICES[:3]:
        for b in DEVICES[:3]:
            there = view(pf.tensor(x).to(a)).to(b)
            assert str(there.device) == b
            np.testing.assert_array_equal(there.numpy(), view(pf.tensor(x)).numpy())


def test_a_copy_is_made_before_its_source_changes():
    x = pf.zeros(1 << 16, device=DEVICES[0])
    copies = []
    for i in range(20):
        copies.append(x.to(DEVICES[1]))
        x += 1
    for i, c in enumerate(copies):
        assert c.min().item() == c.max().item() == i
    assert x.max().item() == 20


def test_the_same_bits_on_each():
    def step(device):
        w = pf.tensor(numbers(48, 32)).to(device).requires_grad_()
        x = pf.tensor(numbers(16, 48)).to(device)
        loss = pf.softmax(pf.nn.functional.gelu(x @ w), -1).pow(2).sum()
        loss.backward()
        return loss.item(), w.grad.numpy()

    first, *others = [step(d) for d in DEVICES]
    for loss, grad in others:
        assert loss == first[0]
        np.testing.assert_array_equal(grad, first[1])


def test_gradients_go_back_through_a_copy():
    w = pf.tensor(numbers(8, 8)).to(DEVICES[0]).requires_grad_()
    (w.to(DEVICES[1]) * 3).sum().backward()
    assert str(w.grad.device) == DEVICES[0]
    np.testing.assert_array_equal(w.grad.numpy(), np.full((8, 8), 3, np.float32))


def test_threads_on_different_devices():
    results = {}

    def work(device):
        x = pf.ones(64, 64, device=device)
        for _ in range(30):
            x = (x @ x).mul(1 / 64)
        results[device] = x.sum().item()

    threads = [threading.Thread(target=work, args=(d,)) for d in DEVICES]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == dict.fromkeys(DEVICES, 64.0 * 64)


def test_the_default_device():
    pf.set_device(DEVICES[1])
    assert str(pf.zeros(3).device) == DEVICES[1]
    assert str((pf.randn(4) * 2).device) == DEVICES[1]


def test_mixing_is_refused():
    a, b = pf.ones(3, device=DEVICES[0]), pf.ones(3, device=DEVICES[1])
    with pytest.raises(ValueError) as e:
        a + b
    assert DEVICES[0] in str(e.value) and DEVICES[1] in str(e.value)
    assert (a + b.to(DEVICES[0])).tolist() == [2, 2, 2]
