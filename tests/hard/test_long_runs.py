"""A long run: neither memory nor the number of cached programs grows. With PYFLAME_SOAK, 100,000 steps; the last ones are as fast as the first."""
import gc
import os
import time

import pyflame as pf
from pyflame import nn, optim
from sanitized import SANITIZED

SOAK = int(os.environ.get("PYFLAME_SOAK", "0"))
STEPS = 100_000 if SOAK else 4_000


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_tiny_model():
    pf.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    opt = optim.AdamW(model.parameters(), lr=1e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS)
    x = pf.randn(32, 8)
    y = x.sum(dim=1, keepdim=True)

    def steps(n):
        start = time.thread_time()
        for i in range(n):
            loss = nn.functional.mse_loss(model(x + i / STEPS), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
            if i % 50 == 49:
                assert loss.item() == loss.item()
        pf.synchronize()
        return time.thread_time() - start

    part = STEPS // 10
    steps(part)
    gc.collect()
    programs, tensors, memory = pf.program_cache_stats(), pf.memory_stats(), resident()
    times = [steps(part) for _ in range(9)]
    gc.collect()
    after = pf.program_cache_stats()
    assert after["programs"] == programs["programs"], f"programs were still made: {programs} then {after}"
    assert after["misses"] == programs["misses"]
    assert pf.memory_stats()["allocated"] == tensors["allocated"]
    if SANITIZED:
        return  # AddressSanitizer keeps freed memory for a while: what is resident says nothing
    assert resident() - memory < 4 << 20, f"{(resident() - memory) / 2**20:.1f} MiB more after {9 * part} steps"
    if SOAK:  # by the minimum, and of processor time: a busy machine stretches both less
        assert min(times[5:]) < 1.4 * min(times[:4]), times


def test_shapes_that_never_come_again():
    """Every window is a new one. The cache of programs is bounded, and so is memory."""
    limit = int(os.environ.get("PYFLAME_CACHE_SIZE", "4096"))
    for n in range(1, 300):
        assert (pf.ones(n, 3) * 2).sum().item() == 6 * n
    assert pf.program_cache_stats()["programs"] <= limit
    pf.clear_program_cache()
    assert pf.program_cache_stats()["programs"] == 0
    assert (pf.ones(4, 3) * 2).sum().item() == 24
