"""pf.memory: limits, counters and giving memory back."""
import contextlib
import json
import os
import subprocess
import sys

import pytest

import pyflame as pf
from pyflame.memory import _machine

GPU = next((d for d in ("rocm", "cuda") if getattr(pf, d + "_is_available")()), None)
needs_gpu = pytest.mark.skipif(GPU is None, reason="there is no GPU")
MIB = 1 << 20


def run(code, **env):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, timeout=300)


def test_counters_of_the_cpu_add_up():
    x = pf.ones(MIB, device="cpu")
    pf.synchronize()
    s = pf.memory.stats("cpu")
    assert s["device"] == "cpu"
    assert 4 * MIB <= s["allocated"] <= s["reserved"] <= s["total"]
    assert 0 < s["free"] < s["total"]
    assert 0 < s["utilisation"] < 1 and s["fragmentation"] == 0
    assert s["others"] == max(0, s["total"] - s["free"] - s["reserved"])
    del x


@contextlib.contextmanager
def as_in_a_plan():
    """Where a step is planned, values of the null device are zeros; elsewhere reading them is an error."""
    before = pf._C._set_reads_of_null(True)
    try:
        yield
    finally:
        pf._C._set_reads_of_null(before)


def test_the_null_device_counts_what_a_program_would_take_and_takes_nothing():
    pf.memory.trim("null")
    before = pf.memory.stats("null")
    n = 1 << 40  # more than any machine has
    x = pf.ones(n, dtype=pf.uint8, device="null")
    pf.synchronize()
    s = pf.memory.stats("null")
    assert s["allocated"] - before["allocated"] >= n and s["total"] == s["free"] == 0
    with as_in_a_plan():
        assert x[-5:].tolist() == [0] * 5  # nothing was computed
    del x
    assert pf.memory.trim("null") >= n
    assert pf.memory.stats("null")["allocated"] == before["allocated"]


def test_memory_of_the_null_device_reads_as_zeros_after_it_was_used():
    x = pf.tensor([1.0, 2.0, 3.0] * 5000, device="null")
    with as_in_a_plan():
        assert x[2].item() == 3
        for _ in range(3):
            del x
            x = pf.zeros(15000, device="null") + 1
            assert x.sum().item() == 0 and set(x.tolist()) == {0.0}


def test_a_limit_holds_and_can_be_lifted():
    used = pf.memory.stats("cpu")["allocated"]
    pf.memory.configure(limit=used + 8 * MIB, device="cpu")
    try:
        with pytest.raises(pf.OutOfMemoryError, match="the memory limit"):
            pf.empty(16 * MIB, dtype=pf.uint8, device="cpu")
        assert pf.memory.stats("cpu")["limit"] == used + 8 * MIB
    finally:
        pf.memory.configure(limit=0, device="cpu")
    assert pf.ones(16 * MIB, dtype=pf.uint8, device="cpu").sum().item() == 16 * MIB


def test_a_fraction_of_the_host_is_a_limit():
    total = pf.memory.stats("cpu")["total"]
    try:
        pf.memory.configure(fraction=0.5, device="cpu")
        assert pf.memory.stats("cpu")["limit"] == int(0.5 * total)
        pf.memory.configure(fraction=0.5, limit=MIB, device="cpu")
        assert pf.memory.stats("cpu")["limit"] == MIB
    finally:
        pf.memory.configure(fraction=1, device="cpu")
    assert pf.memory.stats("cpu")["limit"] == 0


@pytest.mark.parametrize("values, error, message", [
    ({"fraction": 0}, ValueError, "configure: fraction is not a fraction; got 0"),
    ({"fraction": 1.5}, ValueError, "configure: fraction is not a fraction; got 1.5"),
    ({"limit": -1}, ValueError, "configure: limit is negative; got -1; expected bytes"),
    ({"limit": "4G"}, TypeError, "configure: limit is not a number; got '4G'; expected bytes as an int"),
    ({"limit": 0.5}, TypeError, "configure: limit is not a number; got 0.5; expected bytes as an int"),
    ({"split_size": 64 * MIB}, ValueError, "configure: the host's memory has no blocks to split; got split_size=67108864 for cpu"),
    ({"pinned": MIB}, ValueError, "configure: pinned memory serves copies to a GPU; got pinned=1048576 for cpu"),
])  # fmt: skip
def test_wrong_values_change_nothing(values, error, message):
    before = pf.memory.stats("cpu")["limit"]
    with pytest.raises(error, match="^" + message.replace("(", "\\(")):
        pf.memory.configure(**values, device="cpu")
    assert pf.memory.stats("cpu")["limit"] == before


def test_a_small_split_size_is_refused():
    with pytest.raises(ValueError, match="configure: split_size is too small; got 1048576 bytes; expected 0, or at least 20971520"):
        pf.memory.configure(split_size=MIB, device="null")


def test_a_large_free_block_is_not_broken_up_above_the_split_size():
    code = """
import pyflame as pf
pf.memory.configure(split_size=32 << 20, device="null")
x = pf.empty(100 << 20, dtype=pf.uint8, device="null")
del x
y = pf.empty(12 << 20, dtype=pf.uint8, device="null")
s = pf.memory.stats("null")
print(s["largest_hole"] >> 20, s["segments"], s["fragmentation"])
"""
    assert run(code).stdout.split() == ["100", "2", "0.0"]
    whole = run(code.replace("pf.memory.configure", "0 and pf.memory.configure")).stdout.split()
    assert whole[:2] == ["88", "1"] and float(whole[2]) == 0.88


def test_trim_gives_memory_back():
    x = pf.ones(32 * MIB, dtype=pf.uint8, device="cpu")
    pf.synchronize()
    held = pf.memory.stats("cpu")["reserved"]
    cycle = [x]
    cycle.append(cycle)  # only the garbage collector finds it
    del x, cycle
    assert pf.memory.trim("cpu") >= 32 * MIB
    assert pf.memory.stats("cpu")["reserved"] <= held - 32 * MIB
    assert "live:" in pf.memory.report("cpu")


def test_settings_before_the_device_is_there_open_nothing():
    code = """
import pyflame as pf
pf.memory.configure(fraction=0.5, split_size=64 << 20, pinned=1 << 20, device="rocm:7")
assert not any("hip" in l or "libcuda" in l for l in open("/proc/self/maps"))
"""
    r = run(code)
    assert r.returncode == 0, r.stderr
    with pytest.raises(pf.DeviceError):
        pf.memory.stats("rocm:7")


def machine(root, meminfo, **files):
    for path, text in {"proc/meminfo": meminfo, **files}.items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
    return str(root)


MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"


def test_a_control_group_is_the_machine(tmp_path):
    assert _machine.host_memory(machine(tmp_path / "a", MEMINFO)) == (600 << 10, 1000 << 10)
    limited = machine(tmp_path / "b", MEMINFO, **{"sys/fs/cgroup/memory.max": "409600\n", "sys/fs/cgroup/memory.current": "204800\n"})
    assert _machine.host_memory(limited) == (204800, 409600)
    free_group = machine(tmp_path / "c", MEMINFO, **{"sys/fs/cgroup/memory.max": "max\n"})
    assert _machine.host_memory(free_group) == (600 << 10, 1000 << 10)
    old = machine(tmp_path / "d", MEMINFO, **{"sys/fs/cgroup/memory/memory.limit_in_bytes": "512000", "sys/fs/cgroup/memory/memory.usage_in_bytes": "2000"})
    assert _machine.host_memory(old) == (510000, 512000)


def test_the_kernel_driver_knows_what_other_processes_hold(tmp_path, monkeypatch):
    root = machine(tmp_path, MEMINFO, **{"sys/bus/pci/devices/0000:c1:00.0/mem_info_vram_used": "700\n"})
    info = {"free_memory": 900, "total_memory": 1000, "pci": "0000:C1:00.0"}
    monkeypatch.setattr(_machine._C, "device_info", lambda name: info)
    assert _machine.room("rocm:0", root) == (300, 1000)
    info["pci"] = "0000:c2:00.0"
    assert _machine.room("rocm:0", root) == (900, 1000)


@needs_gpu
def test_a_gpu_gets_its_settings_when_it_is_opened():
    code = f"""
import json
import pyflame as pf
pf.memory.configure(fraction=0.5, split_size=64 << 20, pinned=1 << 20)
early = pf.memory.stats("{GPU}")
pf.memory.configure(limit=32 << 20)
late = pf.memory.stats("{GPU}")
try:
    pf.empty(64 << 20, dtype=pf.uint8, device="{GPU}")
except pf.OutOfMemoryError as e:
    assert "the limit is what stops it" in str(e), e
    late["refused"] = True
assert pf.cuda.memory_allocated() == pf.memory.stats("{GPU}")["allocated"]
print(json.dumps([early, late]))
"""
    r = run(code)
    assert r.returncode == 0, r.stderr
    early, late = json.loads(r.stdout)
    assert early["limit"] == early["total"] // 2 and late["limit"] == 32 * MIB and late["refused"]
    assert early["free"] + early["reserved"] + early["others"] == early["total"]
