"""What docs/optimization-guide.md gives as the reasons of its advice, as far as it can be observed without the GPU that the advice is for: in
bytes, numbers of allocations, compiled programs and bits, never in times. tests/doctor/test_advice.py has the rules of doctor."""
import gc
import os
import subprocess
import sys

import pytest

import pyflame as pf
import pyflame.nn.functional as F
from pyflame import nn


@pytest.fixture(autouse=True)
def on_the_cpu():
    gc.collect()  # what earlier tests left must not be freed in the middle of one
    with pf.device("cpu"):
        yield


def peak_of_attention(attention, length):
    q, k, v = (pf.randn(1, 4, length, 32) for _ in range(3))
    pf.synchronize()
    pf.empty_cache()
    pf.reset_peak_memory("cpu")
    before = pf.memory_stats("cpu")["allocated"]
    attention(q, k, v).sum().item()
    return pf.memory_stats("cpu")["peak_allocated"] - before


def test_attention_without_a_fused_kernel_needs_quadratic_memory():
    """Products and a softmax hold length x length numbers; fused attention holds them nowhere."""
    def products(q, k, v):
        return pf.softmax(q @ k.transpose(-1, -2) / 32 ** 0.5, -1) @ v

    short, long = (peak_of_attention(products, length) for length in (512, 2048))
    assert 14 < long / short < 18
    assert long >= 4 * 2048 * 2048 * 4  # of four heads, in float32
    short, long = (peak_of_attention(F.scaled_dot_product_attention, length) for length in (512, 2048))
    assert long / short < 5


def scaled_gradients(dtype, scale, size):
    """Gradients of a loss of about `size`, divided by the scale again, as an optimizer sees them."""
    pf.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    x = pf.randn(16, 64)
    scaler = pf.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1)
    with pf.autocast("cpu", dtype=dtype):
        loss = model(x).float().square().mean() * size
    scaler.scale(loss).backward()
    scaler.unscale_(pf.optim.SGD(model.parameters(), lr=0.1))
    return [p.grad.numpy() for p in model.parameters()]


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-7])
def test_scaling_the_loss_changes_no_bit_in_bfloat16(size):
    plain, scaled = (scaled_gradients(pf.bfloat16, scale, size) for scale in (1, 2.0**16))
    assert all((a == b).all() and a.any() for a, b in zip(plain, scaled, strict=True))


def test_scaling_the_loss_saves_gradients_in_float16():
    """So the test above would notice a dtype for which scaling matters."""
    plain, scaled = (scaled_gradients(pf.float16, scale, 1e-7) for scale in (1, 2.0**16))
    assert not any(a.any() for a in plain) and all(b.any() for b in scaled)


def test_a_step_after_empty_cache_allocates_again():
    x = pf.randn(1 << 20)

    def allocations_of_a_step(empty):
        if empty:
            pf.empty_cache()
        before = pf.memory_stats("cpu")["allocations"]
        y = x * 2
        z = y.exp()
        pf.synchronize()
        z.sum().item()
        return pf.memory_stats("cpu")["allocations"] - before

    allocations_of_a_step(False), allocations_of_a_step(False)
    assert [allocations_of_a_step(False) for _ in range(3)] == [0, 0, 0]
    assert all(allocations_of_a_step(True) > 0 for _ in range(3))


@pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="each op is a window of its own")
def test_the_first_runs_compile_and_later_ones_do_not():
    pf.clear_program_cache()
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), pf.randn(16, 64)

    def compiled():
        before = pf.program_cache_stats()["misses"]
        model(x).sum().item()
        return pf.program_cache_stats()["misses"] - before

    runs = [compiled() for _ in range(8)]
    assert runs[0] > 0 and runs[3:] == [0] * 5, runs


def test_emptying_the_cache_of_another_process_frees_nothing_here():
    x = pf.randn(1 << 20)
    (x * 2).sum().item()
    y = x.exp()
    pf.synchronize()
    del y
    cached = pf.memory_stats("cpu")["cached"]
    assert cached >= 4 << 20
    subprocess.run([sys.executable, "-c", "import pyflame as pf; pf.empty_cache()"], check=True, timeout=120)
    assert pf.memory_stats("cpu")["cached"] == cached
    pf.empty_cache()
    assert pf.memory_stats("cpu")["cached"] == 0
