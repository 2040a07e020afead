"""Programs that meet a fault of the GPU's run time. The wave emulator makes the faults (tests/support/emulator): PYFLAME_TEST_EMULATOR names
its folder. Each program is a process of its own, because the emulator reads its settings once and some faults end a device."""
import functools
import os
import pathlib
import signal
import subprocess
import sys

import pytest

EMULATOR = os.environ.get("PYFLAME_TEST_EMULATOR")

HEAD = """
import os, sys
import pyflame as pf

def refused(kind, use):
    try:
        use()
    except kind as e:
        return str(e)
    raise SystemExit(f"nothing was raised; expected {kind.__name__}")

on_cpu = pf.arange(0, 4, dtype='float32')
"""


def pytest_collection_modifyitems(items):
    if not EMULATOR:
        for item in items:
            if pathlib.Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="PYFLAME_TEST_EMULATOR names no folder with the wave emulator"))


@functools.lru_cache(None)
def codes():
    """Compiled kernels of all programs. Each program has an empty cache, so that it compiles; most of them compile the same texts."""
    folder = pathlib.Path(EMULATOR).parent / "emulator-codes"
    folder.mkdir(exist_ok=True)
    return folder


def heeds_interrupts():
    """Runs in the child. Where the tests run in the background of a shell, SIGINT is ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    def __init__(self, folder):
        self.cache = folder / "cache"
        self.libraries = EMULATOR

    def environment(self, **variables):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYFLAME_EMULATOR_")}
        return {**clean, "LD_LIBRARY_PATH": str(self.libraries), "PYFLAME_CACHE_DIR": str(self.cache), "PYFLAME_EMULATOR_CODES": str(codes()), **variables}

    def start(self, text, before=(), **variables):
        """`before`: a command that starts the one behind it."""
        return subprocess.Popen([*before, sys.executable, "-c", HEAD + text], env=self.environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=heeds_interrupts)

    def finish(self, process, timeout=300):
        """What it printed; it must have ended by itself and well."""
        out, err = process.communicate(timeout=timeout)
        ended = f"signal {signal.Signals(-process.returncode).name}" if process.returncode < 0 else f"exit code {process.returncode}"
        assert process.returncode == 0, f"{ended}\n{out}\n{err}"
        return out

    def run(self, text, **variables):
        return self.finish(self.start(text, **variables))

    def kernels(self):
        """The files of the cache of kernels."""
        return sorted(self.cache.rglob("*.bin"))


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)
