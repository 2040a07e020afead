"""Engines that start at the same time on one GPU: each sees what the ones before have taken. The GPU's memory is a file here, which two processes share."""
import logging
import os
import subprocess
import sys
import threading

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Engine, _engine_cache, _memory_turn, _paged  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

# An engine on a device whose memory is a file. It says what it does, and allocates once it is told to.
CHILD = """
import sys
from pyflame import llm
from pyflame.llm import _engine_cache, _memory_turn

model, memory = sys.argv[1:]

def free():
    with open(memory) as f:
        return int(f.read())

def say(text):
    print(text, flush=True)

def waits(seconds):
    if not waits.said:
        waits.said = True
        say("waits")
    sleep(seconds)

class Pages(_engine_cache.Pages):
    def __init__(self, network, count, *rest):
        super().__init__(network, count, *rest)
        if count > 1:
            say("allocates")
            sys.stdin.readline()
            left = free() - count * llm._paged.block_bytes(network)
            with open(memory, "w") as f:
                f.write(str(left))

waits.said, sleep = False, _memory_turn.sleep
_memory_turn.sleep = waits
_engine_cache._on_gpu, _engine_cache.DEFAULT_BYTES, _engine_cache.Pages = lambda device: True, 0, Pages
_engine_cache.memory.stats = lambda device: {"free": free(), "cached": 0, "allocated": 0, "limit": 0, "total": 1 << 40}
engine = llm.Engine(llm.load(model), max_num_seqs=64, warm_up=False)
say(engine._blocks.count)
sys.stdin.readline()
engine.close()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_engine_sees_what_the_first_one_has_left(folder, cache, tmp_path):
    memory, block = tmp_path / "memory", _paged.block_bytes(pf.llm.load(folder)._network)
    memory.write_text(str(160 * block))

    def start():
        return subprocess.Popen([sys.executable, "-c", CHILD, folder, str(memory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(child):
        child.stdin.write("\n")
        child.stdin.flush()

    first = start()
    children = [first]
    try:
        assert first.stdout.readline() == "allocates\n"
        second = start()
        children.append(second)
        assert second.stdout.readline() == "waits\n"
        tell(first)
        assert first.stdout.readline() == "120\n"  # three quarters of 160
        assert second.stdout.readline() == "allocates\n"
        tell(second)
        assert second.stdout.readline() == "30\n"  # three quarters of the 40 that are left
        for child in children:
            tell(child)
            assert child.wait(60) == 0
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_each_device_has_a_turn_of_its_own(cache):
    with _memory_turn.turn("rocm:0", "0000:01:00.0"), _memory_turn.turn("rocm:1", "0000:02:00.0"):
        assert sorted(os.listdir(cache)) == ["memory-0000_01_00.0.lock", "memory-0000_02_00.0.lock"]


def test_a_process_that_holds_the_turn_for_long_is_named(cache, monkeypatch, caplog):
    now, has_waited = [0.0], threading.Event()

    def sleep(seconds):
        now[0] += 1.0
        if now[0] > 40:
            has_waited.set()

    monkeypatch.setattr(_memory_turn, "monotonic", lambda: now[0])
    holding = threading.Event()

    def hold():
        with _memory_turn.turn("rocm:0", "x"):
            holding.set()
            has_waited.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(60)
    monkeypatch.setattr(_memory_turn, "sleep", sleep)
    with caplog.at_level(logging.WARNING, "pyflame.llm"), _memory_turn.turn("rocm:0", "x"):
        pass
    thread.join()
    [record] = caplog.records
    assert f"process {os.getpid()} has held" in record.getMessage() and "memory-x.lock" in record.getMessage() and "rocm:0" in record.getMessage() and "30 s" in record.getMessage()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "pyflame.llm"), _memory_turn.turn("rocm:0", "x"):
        pass
    assert "engines that start at the same time" in caplog.text and str(tmp_path / "file") in caplog.text


def test_an_engine_that_fails_ends_its_turn(folder, cache, monkeypatch):
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: True)
    monkeypatch.setattr(_engine_cache.memory, "stats", lambda device: {"free": 1 << 20, "cached": 0, "allocated": 0, "limit": 0, "total": 1 << 30})
    model = pf.llm.load(folder)
    with pytest.raises(ValueError, match="the cache is too small"):
        Engine(model, kv_cache_bytes=1, warm_up=False)
    Engine(model, max_num_seqs=1, warm_up=False).close()
    assert os.listdir(cache)
