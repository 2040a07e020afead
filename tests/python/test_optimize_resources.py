"""`pyflame optimize`: changes that need figures of the program's loaders, memory and accumulation. Clocks and figures are injected; no test measures time."""
import os
import subprocess
import sys

import pytest

import pyflame as pf
from pyflame import _configuration
from pyflame.optimizing import candidates, gate, machine, page, resources
from pyflame.optimizing.journal import Journal

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_TEST_DEVICE", "cpu") != "cpu", reason="programs on the CPU")


def names(found):
    return [c.name for c in found]


def proposed(facts, name, tmp_path, level=2):
    """The candidate of this name, or None."""
    found = [c for c in candidates.candidates(level, facts, tmp_path) if c.name == name]
    for c in found:
        _configuration.write_settings(tmp_path / "s.toml", c.changes, c.name)
        assert {k: v for k, v in _configuration.read_settings(tmp_path / "s.toml").items() if v} == c.changes  # a settings file can say it
    return found[0] if found else None


def run(tmp_path, text, tables):
    """A run of a program in a process of its own, as the machine makes it: (head, records), or what it printed if it failed."""
    (tmp_path / "t.py").write_text(text)
    _configuration.write_settings(tmp_path / "run.toml", tables, "A trial.")
    words = [sys.executable, "-m", "pyflame.tuning.child", "--report", "steps", "--observe", "observed", "--", "t.py"]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYFLAME_SETTINGS": "run.toml"}, capture_output=True, text=True)
    return gate.read(tmp_path / "observed") if done.returncode == 0 else done.stdout + done.stderr


class Trial(machine.Machine):
    """Tries one candidate. The runs that are given stand for real ones: `without` it and `with_it`."""

    def __init__(self, tmp_path, candidate, without, with_it):
        self.said, self._runs = [], (without, with_it)
        super().__init__((__file__, None, []), str(tmp_path), Journal(str(tmp_path / "optimize.jsonl")), "step time", 1e6, 5, 3, 60.0, self.said.append, None)
        self._found = candidate

    def run(self, kept, what):
        return self._runs[self._found in kept]

    def profile(self):
        return candidates.Facts()

    def play(self, monkeypatch):
        """(the verdict in the journal, the settings that are kept, the page)."""
        monkeypatch.setattr(candidates, "candidates", lambda *_: [self._found])
        self.cycle(set())
        [entry] = self.journal.of("candidate")
        return entry["verdict"], {k: v for k, v in _configuration.read_settings(self.result).items() if v}, page.render(self.journal, "t.py", "")


def tried(tmp_path, monkeypatch, candidate, without, with_it, speed=2.0):
    """What the machine makes of a candidate, from what two real runs computed and a speed that is given."""
    runs = [machine.Run(1.0 / s, "" if isinstance(r, tuple) else r, *reversed(r if isinstance(r, tuple) else ({}, [])), 1.0, 9) for r, s in ((without, 1.0), (with_it, speed))]
    return Trial(tmp_path, candidate, *runs).play(monkeypatch)


# ---- workers of loaders


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def waiting(batch, work, count=20):
    """The share that is found for a program whose batches take `batch` seconds, and its work on each `work` seconds."""
    clock = Clock()
    loaders = resources.Loaders(clock)

    def batches():
        for k in range(count):
            clock.now += batch
            yield k

    for k in loaders.timed(batches()):
        clock.now += 100.0 if k < 3 else work  # the first steps compile
    return loaders.share()


def test_the_time_that_a_program_waits_for_its_loader():
    assert abs(waiting(0.03, 0.01) - 0.75) < 1e-9 and waiting(0.0, 0.01) == 0.0 and abs(waiting(0.01, 0.0) - 1.0) < 1e-9
    assert waiting(1.0, 1.0, count=1) == 0.0 and resources.Loaders(Clock()).share() == 0.0  # one batch says nothing


def test_workers_are_proposed_when_the_program_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "_cores", lambda: 8)
    found = proposed(candidates.Facts(waiting=0.75, shares={"idle": 0.75}), "loader_workers", tmp_path)
    assert found.changes == {"engine": {"loader_workers": 3}} and abs(found.gain - 4.0) < 1e-9 and found.precision is None and "75%" in found.reason
    few = proposed(candidates.Facts(waiting=0.5, shares={"GEMM": 0.5}), "loader_workers", tmp_path)
    assert few.changes == {"engine": {"loader_workers": 1}} and abs(few.gain - 2.0) < 1e-9
    monkeypatch.setattr(candidates, "_cores", lambda: 3)
    slow = proposed(candidates.Facts(waiting=0.9), "loader_workers", tmp_path)
    assert slow.changes == {"engine": {"loader_workers": 2}} and abs(slow.gain - 1 / 0.45) < 1e-9  # the two workers are what it waits for


def test_workers_are_not_proposed_when_they_cannot_help(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "_cores", lambda: 8)
    for facts in (candidates.Facts(), candidates.Facts(waiting=0.001), candidates.Facts("cuda:0", waiting=0.5, idle=0.0, shares={"GEMM": 1.0})):
        assert proposed(facts, "loader_workers", tmp_path) is None
    assert abs(proposed(candidates.Facts("cuda:0", waiting=0.5, idle=0.2, shares={"GEMM": 0.8}), "loader_workers", tmp_path).gain - 1.25) < 1e-9
    monkeypatch.setattr(candidates, "_cores", lambda: 1)
    assert proposed(candidates.Facts(waiting=0.5), "loader_workers", tmp_path) is None  # one core has no time for workers


LOADED = """
import numpy as np
import pyflame as pf

class Squares(pf.data.BASE):
    BODY

if __name__ == "__main__":
    pf.data.loader.start_method = "fork"
    total = 0.0
    for batch in pf.data.DataLoader(Squares(), batch_size=2):
        total += batch.sum().item()
    print(total)
"""
MAP = LOADED.replace("BASE", "Dataset").replace("BODY", "__len__ = lambda self: 12\n    __getitem__ = lambda self, i: np.float32(i * i) + np.float32(np.random.rand())")
STREAM = LOADED.replace("BASE", "IterableDataset").replace("BODY", "__iter__ = lambda self: iter(np.arange(12, dtype=np.float32))")  # each worker gives all of it
WORKERS = candidates.Candidate("loader_workers", 2, {"engine": {"loader_workers": 2}}, "why", None, 2.0)


def test_workers_that_help_are_kept(tmp_path, monkeypatch):
    without, with_it = run(tmp_path, MAP, {}), run(tmp_path, MAP, WORKERS.changes)
    assert 0 < without[0]["waiting"] <= 1 and with_it[0]["waiting"] == 0  # what has workers is not waited for here
    verdict, kept, text = tried(tmp_path, monkeypatch, WORKERS, without, with_it)
    assert verdict == "kept" and kept == WORKERS.changes and "2.00 times as fast" in text


def test_the_gate_reverts_workers_that_repeat_a_stream(tmp_path, monkeypatch):
    verdict, kept, text = tried(tmp_path, monkeypatch, WORKERS, run(tmp_path, STREAM, {}), run(tmp_path, STREAM, WORKERS.changes))
    assert verdict == "wrong" and kept == {} and "instead of" in text
