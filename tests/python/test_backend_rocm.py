"""pyflame.backend.rocm and the pf.rocm_* functions: importable everywhere, an error with the reason without a device, and doing what they
say with one (an AMD GPU, or an NVIDIA one in its place)."""
import os
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
from pyflame.backend import rocm

GPU = "rocm" if pf.rocm_is_available() else "cuda" if pf.cuda_is_available() else None
needs_gpu = pytest.mark.skipif(GPU is None, reason="no GPU")
without_rocm = pytest.mark.skipif(pf.rocm_is_available(), reason="this machine has an AMD GPU")


@without_rocm
@pytest.mark.parametrize("call", [
    lambda: rocm.warmup_memory_pool(32, "medium"),
    lambda: rocm.get_pinned_pool().warmup([1024]),
    lambda: rocm.get_memory_manager().clear_pool(),
    lambda: rocm.get_memory_manager().stats(),
    lambda: pf.rocm_get_device_info(0),
    lambda: pf.rocm_set_device(0),
], ids=["warmup_memory_pool", "pinned", "clear_pool", "stats", "device_info", "set_device"])
def test_without_a_gpu_the_reason_is_given(call):
    with pytest.raises(pf.DeviceError) as e:
        call()
    assert pf.rocm_unavailable_reason() and pf.rocm_unavailable_reason().split(";")[0] in str(e.value)


@without_rocm
def test_the_document_functions_without_a_gpu():
    assert pf.rocm_device_count() == 0 and pf.rocm_get_device() == -1
    pf.rocm_synchronize()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="warmup_memory_pool: no such model_size; got 'huge'"):
        rocm.warmup_memory_pool(32, "huge")
    with pytest.raises(ValueError, match="warmup_memory_pool: batch_size is not positive; got 0"):
        rocm.warmup_memory_pool(0)
    with pytest.raises(ValueError, match="warmup: a size is negative"):
        rocm.get_pinned_pool().warmup([-1])


def test_the_tuning_cache_is_a_file_of_ones_own(tmp_path):
    cache = rocm.get_tuning_cache()
    before = cache.path
    assert before.endswith("choices.sqlite")
    try:
        cache.set_cache_file(tmp_path / "mine.sqlite")
        assert rocm.get_tuning_cache().path == str(tmp_path / "mine.sqlite")
        if GPU:
            cache.enable_exhaustive_search()
            row, columns = pf.randn(1, 512, device=GPU), pf.randn(512, 64, device=GPU)  # which kernels of our own compete for
            assert np.isfinite(pf.matmul(row, columns).sum().item())
            pf.synchronize()
            assert (tmp_path / "mine.sqlite").exists()
    finally:
        cache.enable_exhaustive_search(False)
        cache.set_cache_file(before)
    with pytest.raises(ValueError, match="set_tune_budget_ms: a negative budget; got -1"):
        cache.enable_exhaustive_search(True, budget_ms=-1)


def test_importing_opens_no_device():
    code = "import sys; from pyflame.backend import rocm; assert not any('hip' in l or 'libcuda' in l for l in open('/proc/self/maps'))"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@needs_gpu
def test_memory_is_asked_for_once_and_given_back():
    manager = rocm.get_memory_manager(GPU)
    manager.clear_pool()
    assert pf.ones(4, device=GPU).sum().item() == 4  # small blocks have a segment of their own
    assert rocm.warmup_memory_pool(1, "small", GPU) == 68 << 20
    pf.synchronize()
    before = manager.stats()
    assert before["cached"] >= 64 << 20
    x = pf.zeros(1 << 20, device=GPU)
    assert x.sum().item() == 0
    assert manager.stats()["allocations"] == before["allocations"]
    assert "cached" in manager.report()
    del x
    manager.clear_pool()
    assert manager.stats()["cached"] < 4 << 20  # the segment of small blocks may be in use


@needs_gpu
def test_the_memory_of_a_model_is_planned():
    model = pf.nn.Sequential(pf.nn.Linear(512, 512), pf.nn.ReLU(), pf.nn.Linear(512, 10)).to(GPU)
    planned = pf.memory.estimate(model, pf.zeros(4096, 512)).reserved
    assert rocm.warmup_memory_pool(4096, device=GPU, model=model, sample=pf.zeros(512)) == planned
    manager = rocm.get_memory_manager(GPU)
    pf.synchronize()
    assert manager.stats()["reserved"] >= planned
    with pytest.raises(ValueError, match="warmup_memory_pool: model and sample belong together"):
        rocm.warmup_memory_pool(1, device=GPU, model=model)
    manager.clear_pool()


@needs_gpu
def test_a_fraction_limits():
    manager = rocm.get_memory_manager(GPU)
    with pytest.raises(ValueError, match="set_memory_fraction: not a fraction; got 0"):
        manager.set_fraction(0)
    info = pf.device_info(GPU)
    manager.set_fraction(0.01)
    try:
        with pytest.raises(pf.OutOfMemoryError):
            pf.empty(info["total_memory"] // 50, dtype=pf.uint8, device=GPU).fill_(1).sum().item()
    finally:
        manager.set_fraction(1)


@needs_gpu
def test_pinned_memory_ahead():
    rocm.get_pinned_pool(GPU).warmup([1 << 20, 1 << 20])
    assert pf.ones(1 << 20, device=GPU).cpu().sum().item() == 1 << 20
