"""Compares two functions by fresh processes: what a first call costs, and what the calls after it cost from one process to the next."""
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass

from .compare import Comparison, bootstrap

MARGIN = 120.0  # seconds for the start of a process and its first call


@dataclass
class FreshComparison:
    """first_calls: of the first call of each process; later_calls: of the medians after it. Each is a Comparison over the processes."""

    first_calls: Comparison
    later_calls: Comparison
    runs: int

    def to_dict(self):
        return {"runs": self.runs, "first_calls": self.first_calls.to_dict(), "later_calls": self.later_calls.to_dict()}

    def __str__(self):
        return f"{self.runs} fresh processes each\n  first call: {self.first_calls}\n  calls after it: {self.later_calls}"


def _process(word, args):
    """(first_ms, median_ms) of one process."""
    command = [sys.executable, "-m", "pyflame.benchmarking", word, "--json", "--no-record", f"--seconds={args.seconds}", f"--relative={args.relative}"]
    command += [f"--device={args.device}"] if args.device else []
    try:
        r = subprocess.run(command, capture_output=True, text=True, timeout=3 * args.seconds + MARGIN)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"a process did not end; got {word}; expected at most {3 * args.seconds + MARGIN:.0f} s") from None
    if r.returncode not in (0, 3):  # 3: the spread within this process was large
        raise RuntimeError(f"a process failed; got {word} with exit code {r.returncode}: {r.stderr.strip()}")
    m = json.loads(r.stdout.splitlines()[0])
    return m["first_ms"], m["median"]


def compare_processes(first, second, args):
    """Runs each of the two in `args.runs` processes, in turns. ValueError for fewer than three runs, or for what is no function."""
    for word in (first, second):
        if ".py:" not in word:
            raise ValueError(f"--cold compares functions in fresh processes; got {word!r}; expected FILE.py:function")
    if args.runs < 3:
        raise ValueError(f"--runs is too small; got {args.runs}; expected 3 or more, because fewer give no interval")
    found = {0: [], 1: []}
    for turn in range(args.runs):
        for k in (0, 1) if turn % 2 else (1, 0):
            found[k].append(_process((first, second)[k], args))
    parts = []
    for part in (0, 1):
        a, b = ([process[part] for process in found[k]] for k in (0, 1))
        parts.append(Comparison(f"{first} ({statistics.median(a):.4g} ms)", f"{second} ({statistics.median(b):.4g} ms)", *bootstrap(a, b, paired=True), paired=True))
    return FreshComparison(*parts, args.runs)
