"""Devices, synchronisation, explain, counters: complete for the CPU, and honest about what is not there."""
import os
import re
import subprocess
import sys
import threading

import pytest

import pyflame as pf


def test_cpu_is_the_default():
    assert pf.get_device() == "cpu" and pf.zeros(1).device == "cpu"
    pf.set_device("cpu")
    info = pf.device_info()
    assert info["device"] == "cpu" and info["total_memory"] > 0 and info["compute_units"] >= 1 and info["name"]
    assert pf.device_info("cpu")["name"] == info["name"]


def test_other_devices_of_this_build():
    x = pf.tensor([1.0, 2.0]).to("reference")
    assert x.device == "reference" and (x * 2).tolist() == [2, 4] and (x * 2).cpu().device == "cpu"
    pf.set_device("reference")
    try:
        assert pf.get_device() == "reference" and pf.ones(2).device == "reference" and pf.ones(2).sum().item() == 2
    finally:
        pf.set_device("cpu")


def test_the_default_device_is_per_thread():
    seen = []
    pf.set_device("reference")
    try:
        t = threading.Thread(target=lambda: seen.append(pf.get_device()))
        t.start()
        t.join()
    finally:
        pf.set_device("cpu")
    assert seen == ["cpu"]


@pytest.mark.skipif(pf.rocm_is_available(), reason="there is an AMD GPU here")
def test_rocm_is_absent_with_a_reason():
    assert pf.rocm_device_count() == 0
    reason = pf.rocm_unavailable_reason()
    assert len(reason) > 10
    for use in (lambda: pf.set_device("rocm"), lambda: pf.set_device("rocm:1"), lambda: pf.rocm_get_device_info(0), lambda: pf.zeros(2, device="rocm"),
                lambda: pf.ones(2).to("rocm")):
        with pytest.raises(pf.DeviceError) as e:
            use()
        assert "rocm" in str(e.value).lower()
    assert pf.get_device() == "cpu"


@pytest.mark.skipif(pf.cuda_is_available() or pf.rocm_is_available(), reason="there is a GPU here")
def test_cuda_is_absent_with_what_was_found_and_the_name_of_amds():
    for op, use in (("device", lambda: pf.ones(2).to("cuda")), ("set_device", lambda: pf.set_device("cuda")), ("device", lambda: pf.ones(2, device="cuda:1")), ("device_info", lambda: pf.device_info("cuda"))):
        with pytest.raises(pf.DeviceError) as e:
            use()
        assert re.fullmatch(rf"{op}: the device is not available; got 'cuda:[01]' \(.+\); expected one of those found here: 'cpu', 'reference', 'null'; hint: no GPU was found; `pyflame doctor` says what to do", str(e.value)), e.value
    with pytest.raises(pf.DeviceError, match="expected one of those found here: 'cpu', 'reference', 'null'; hint: `pyflame doctor` says what to do$"):
        pf.set_device("rocm")


def test_synchronize_and_explain():
    x = pf.ones(64, 64)
    pf.synchronize()
    text = pf.explain(lambda: (x @ x).relu() + 1)
    assert "matmul" in text and "window" in text.lower()
    with pytest.raises(ZeroDivisionError):
        pf.explain(lambda: 1 / 0)
    assert "matmul" in pf.explain(lambda: x @ x)


def test_counters():
    x = pf.ones(8)
    for _ in range(5):
        (x * 3).sum().item()
    before = pf.program_cache_stats()
    for _ in range(5):
        (x * 3).sum().item()
    after = pf.program_cache_stats()
    assert after["hits"] > before["hits"] and after["programs"] == before["programs"]
    m = pf.memory_stats()
    assert m["allocated"] > 0 and m["peak_allocated"] >= m["allocated"]
    big = pf.zeros(1 << 20)
    pf.synchronize()
    assert pf.memory_stats()["allocated"] >= m["allocated"] + (4 << 20)
    del big


def test_threads_setting():
    n = pf.get_num_threads()
    x = pf.randn(300, 300)
    want = (x @ x).sum().item()
    try:
        pf.set_num_threads(1)
        assert pf.get_num_threads() == 1 and (x @ x).sum().item() == want
    finally:
        pf.set_num_threads(n)


def test_op_names():
    names = pf.op_names()
    assert {"add", "matmul", "softmax", "adam_step"} <= set(names) and len(names) == len(set(names))


def test_recording_from_several_threads():
    x = pf.arange(1000).float()
    results = [None] * 4

    def work(i):
        y = x
        for _ in range(50):
            y = y * 1.01 + i
        results[i] = y.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    again = []
    for i in range(4):
        work(i)
        again.append(results[i])
    assert results == again


# What `import pyflame` must not load, because it costs a fraction of the import and is needed by few programs. Submodules load what they need when they are used.
HEAVY = ("argparse", "ast", "asyncio", "ctypes", "dataclasses", "datetime", "gzip", "inspect", "json", "logging", "multiprocessing", "numpy", "onnx", "pathlib", "pickle", "re",
         "socket", "subprocess", "tempfile", "threading", "tomllib", "typing", "urllib", "pyflame._explain.document", "pyflame.distributed", "pyflame.llm", "pyflame.nn", "pyflame.optim",
         "pyflame.profiler")


def test_import_is_light():
    code = ("import sys; before = set(sys.modules); import pyflame; new = set(sys.modules) - before; "
            f"print([m for m in sorted(new) if any(m == h or m.startswith(h + '.') for h in {HEAVY})])")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYFLAME_")}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout.strip() == "[]"


def test_exit_with_pending_work_is_clean():
    code = "import pyflame as pf, numpy as np; a = np.ones(3, np.float32); x = pf.from_numpy(a) * 2; y = pf.randn(100, 100) @ pf.randn(100, 100); b = x.numpy()"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert r.returncode == 0 and r.stderr == ""


def test_a_memory_limit_that_makes_no_sense_is_refused_every_time():
    code = """
import pyflame as pf
for _ in range(2):
    try:
        pf.ones(4).tolist()
    except ValueError as e:
        print(e)
"""
    env = dict(os.environ, PYFLAME_MEMORY_LIMIT="abc")
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert out.count("PYFLAME_MEMORY_LIMIT: not a valid value; got 'abc'") == 2, out


def test_empty_cache_returns_the_arena():
    """A program whose results in between are large keeps its arena for the next run, until the memory is asked back."""
    a = pf.randn(512, 512)
    ((a @ a) @ (a @ a)).sum().item()
    assert pf.memory_stats()["arena"] >= 1 << 20 or os.environ.get("PYFLAME_WINDOW") == "1"  # then each product is a program
    pf.empty_cache()
    m = pf.memory_stats()
    assert m["arena"] == 0 and m["cached"] == 0
    assert ((a @ a) @ (a @ a)).sum().isfinite().item()


def test_names_of_devices_that_there_are_not():
    """Also without a GPU, where questions about its memory have an answer."""
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "reset_peak_memory_stats", "memory_stats", "synchronize", "get_device_name", "get_device_properties", "mem_get_info", "memory_summary", "get_rng_state",
                 "current_stream", "default_stream", "set_device", "device"):
        with pytest.raises(ValueError, match="device: no such device; got 'nope'"):
            getattr(pf.cuda, name)("nope")
    for call in (lambda: pf.cuda.set_rng_state(pf.cuda.get_rng_state(), "nope"), lambda: pf.cpu.synchronize("nope")):
        with pytest.raises(ValueError, match="device: no such device; got 'nope'"):
            call()
    if not pf.cuda.is_available():
        assert pf.cuda.memory_allocated("cpu") == pf.cuda.memory_allocated(pf.device("cpu")) == pf.cuda.memory_allocated(0) == 0


@pytest.mark.parametrize("name", ["hip", "gpu", "amd", "hip:0"])
def test_other_names_of_gpus_have_a_hint(name):
    with pytest.raises(ValueError, match=f"no such device; got '{name}'.*hint: an AMD GPU is 'rocm', an NVIDIA GPU 'cuda'"):
        pf.zeros(2, device=name)
    with pytest.raises(ValueError, match="no such device; got 'nope'; expected .* or null$"):
        pf.zeros(2, device="nope")
