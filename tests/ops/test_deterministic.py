"""Deterministic algorithms, and faster ones where they are not asked for. On the device of PYFLAME_TEST_DEVICE, sizes small enough for the
emulator and, on a real GPU, such that its libraries take them. What a library is asked for: tests/faults/test_miopen.py."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
REAL = DEVICE == "cuda" or "PYFLAME_TEST_REAL_GPU" in os.environ
F = pf.nn.functional
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="PYFLAME_TEST_DEVICE names no GPU")
ATTENTION = (2, 4, 512, 64) if REAL else (1, 1, 20, 16)
CONVOLUTION = ((16, 64, 28, 28), (64, 64, 3, 3)) if REAL else ((1, 8, 6, 6), (8, 8, 3, 3))


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    pf.use_deterministic_algorithms(True)


def random(*shape, seed=0):
    return pf.tensor(np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)).to(pf.bfloat16).to(DEVICE)


def attention(before=True, after=True, shape=ATTENTION, causal=True):
    """The gradients, with these modes set when attention is recorded and when its gradient is recorded."""
    q, k, v, g = (random(*shape, seed=i) for i in range(4))
    for t in (q, k, v):
        t.requires_grad_()
    pf.use_deterministic_algorithms(before)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    pf.use_deterministic_algorithms(after)
    y.backward(g)
    return [t.grad for t in (q, k, v)]


def convolution(mode):
    x, w = (random(*s, seed=i) for i, s in enumerate(CONVOLUTION))
    x.requires_grad_()
    w.requires_grad_()
    pf.use_deterministic_algorithms(mode)
    y = F.conv2d(x, w, padding=1)
    y.backward(y.detach())
    return [y.detach(), x.grad, w.grad]


def asked(text, op):
    return [line.split("any_order=")[1][0] for line in text.splitlines() if line.strip().startswith(op + "(")]


def test_the_setting():
    assert pf.are_deterministic_algorithms_enabled() is True
    for mode in (False, True):
        pf.use_deterministic_algorithms(mode, warn_only=True)
        assert pf.are_deterministic_algorithms_enabled() is mode
    for wrong, name in ((1, "int"), (None, "NoneType"), ("warn", "str")):
        with pytest.raises(TypeError, match=f"^use_deterministic_algorithms: mode is not a bool; got {name}; expected True or False$"):
            pf.use_deterministic_algorithms(wrong)
    with pytest.raises(TypeError):
        pf.use_deterministic_algorithms()
    assert pf.are_deterministic_algorithms_enabled() is True


@pytest.mark.skipif(DEVICE != "cpu", reason="of the CPU")
def test_the_cpu_does_not_heed_it():
    exact = [t.tolist() for t in convolution(True) + attention()]
    got = []
    text = pf.explain(lambda: got.extend(convolution(False) + attention(False, False)))
    assert "any_order=0" in text and "any_order=1" not in text and "not deterministic" not in text
    assert [t.tolist() for t in got] == exact


@on_gpu
def test_each_op_keeps_the_mode_it_was_called_in():
    for before in (True, False):
        for after in (True, False):
            text = pf.explain(lambda b=before, a=after: attention(b, a))
            assert asked(text, "attention") == ["0"], "forward, every way is deterministic"
            assert asked(text, "attention_grad") == ["0" if after else "1"]
    for mode in (True, False):
        text = pf.explain(lambda m=mode: convolution(m))
        for op in ("conv2d", "conv2d_grad_input", "conv2d_grad_weight"):
            assert asked(text, op) == ["0" if mode else "1"], text
        if mode:
            assert "not deterministic" not in text


@on_gpu
def test_modes_share_no_program():
    pf.synchronize()
    pf.clear_program_cache()

    def misses(mode):
        before = pf.program_cache_stats()["misses"]
        convolution(mode)
        attention(mode, mode)
        pf.synchronize()
        return pf.program_cache_stats()["misses"] - before

    assert misses(True) and misses(False)
    assert not misses(True) and not misses(False)


@on_gpu
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dim", [64, 128])
def test_attention_in_any_order(causal, dim):
    shape = (*ATTENTION[:3], dim) if REAL else ATTENTION
    for exact, got in zip(attention(shape=shape, causal=causal), attention(after=False, shape=shape, causal=causal), strict=True):
        exact, got = exact.float(), got.float()
        assert (exact - got).abs().max().item() <= 0.02 * exact.abs().max().item()


@on_gpu
def test_convolutions_in_any_order():
    for exact, got in zip(convolution(True), convolution(False), strict=True):
        exact, got = exact.float(), got.float()
        assert (exact - got).abs().max().item() <= 0.02 * exact.abs().max().item()


@on_gpu
def test_the_same_bits_again():
    first = [t.tolist() for t in attention() + convolution(True)]
    attention(False, False)
    convolution(False)
    assert [t.tolist() for t in attention() + convolution(True)] == first
