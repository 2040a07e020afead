"""Runs a program in a child process, restarts it where a candidate ended it or hangs, and shows progress."""
import contextlib
import itertools
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from .._bar import bar
from .database import reading

POLL = 0.1  # seconds


@dataclass
class Outcome:
    """What a run of the program came to. why: 'ended', 'stopped' (there was nothing more to measure), 'late' (it computed nothing), 'interrupted', 'failed'."""

    why: str
    code: int = 0
    seconds: float = 0.0
    lost: list = field(default_factory=list)  # entries during which the process ended or hung
    steps: list = field(default_factory=list)  # times at which steps ended, in seconds
    blocks: list = field(default_factory=list)  # seconds a step, each of some steps at whose end the device was done
    start: float = None
    end: float = None
    programs: float = None  # how many programs its process compiled, if it came to its end; 0: it computed nothing

    @property
    def step_seconds(self):
        """The median time of a step without the first ones; that of the whole program if it has fewer than eight steps; None if it did not end."""
        if self.blocks:
            return statistics.median(self.blocks)
        return None if self.end is None else self.end - self.start


class Progress:
    """A line that is rewritten on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, stream=sys.stderr):
        self._stream, self._tty, self._last = stream, stream.isatty(), 0.0

    def show(self, part, text):
        now = time.monotonic()
        if now - self._last < (0.2 if self._tty else 10):
            return
        self._last = now
        line = f"{bar(part)} {text}"
        self._stream.write(f"\r\033[K{line[:118]}" if self._tty else line + "\n")
        self._stream.flush()

    def clear(self):
        if self._tty:
            self._stream.write("\r\033[K")
            self._stream.flush()


class Database:
    """What the child has written so far."""

    def __init__(self, path):
        self._path = path

    def _ask(self, sql, *values):
        if not os.path.exists(self._path):
            return []
        try:
            with reading(self._path, timeout=2) as db:
                return db.execute(sql, values).fetchall()
        except sqlite3.OperationalError:  # it is being made
            return []

    def running(self):
        """(rowid, tries, op, problem, entry) of entries whose first run was not survived yet."""
        return self._ask("SELECT rowid, tries, op, problem, entry FROM measurements WHERE tries > 0")

    def counts(self, since):
        """(problems, entries, places of enumerations that were looked at). All are larger where the search goes on."""
        found = self._ask("SELECT count(DISTINCT op || problem), count(*) FROM measurements WHERE tries = 0 AND measured_at >= ?", since)
        looked = self._ask("SELECT coalesce(sum(looked), 0) FROM enumerations WHERE stored_at >= ?", since)
        return (*(found[0] if found else (0, 0)), *(looked[0] if looked else (0,)))


def command(module, file, arguments, report, observe=None, plan=False, all_algorithms=False):
    words = [sys.executable, "-m", "pyflame.tuning.child", "--report", report, *(["--observe", observe] if observe else []), *(["--plan"] if plan else []),
             *(["--all-algorithms"] if all_algorithms else [])]
    return [*words, *(["--module", module] if module else []), "--", *([file] if file else []), *arguments]


def _read_report(path, outcome):
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as f:
        for line in f:
            word, _, at = line.strip().partition(" ")
            with contextlib.suppress(ValueError):
                if word == "step":
                    outcome.steps.append(float(at))
                elif word == "block":
                    outcome.blocks.append(float(at))
                elif word in ("start", "end", "programs"):
                    setattr(outcome, word, float(at))


def _computes(path):
    """Whether the program has begun to compute, by its report. The first steps of a fast program may be there before the line that says so."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as f:
        return any(line.startswith(("computes ", "step ")) for line in itertools.islice(f, 3))
    return False


def _end(process):
    """Ends the process and what it started."""
    for sig, wait in ((signal.SIGTERM, 3), (signal.SIGKILL, 30)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait)
            return


def run_once(words, report, log, environment, stop, held=()):
    """Runs the program until it ends or stop(seconds) returns a word; it ends with this process, if this one is not killed. held: file descriptors that stay open while it runs. `log` gets what it prints. Fused ops wait for their kernels: while these are compiled, a GPU would interpret the ops,
    which is slow, and the times would be those of the interpreter."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(report)
    start = time.monotonic()
    with open(log, "ab") as out:
        process = subprocess.Popen(words, env={"PYFLAME_INTERPRET": "0", **os.environ, **environment}, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                   pass_fds=held)
    why = None
    try:
        while process.poll() is None:
            time.sleep(POLL)
            if process.poll() is None and (why := stop(time.monotonic() - start)):
                break
    except KeyboardInterrupt:
        why = "interrupted"
    finally:
        if why or process.poll() is None:
            _end(process)
    outcome = Outcome(why or ("ended" if process.returncode == 0 else "failed"), process.returncode, time.monotonic() - start)
    _read_report(report, outcome)
    return outcome


def in_turns(pairs):
    """Which of two programs runs next: 0 1 1 0 0 1 …, so that a drift of the clock meets both."""
    return ((turn + turn // 2) % 2 for turn in range(2 * pairs))


@dataclass(frozen=True)
class Limits:
    """Seconds. start: until the program's first op. idle: without a new measurement from then on. hang: for one candidate."""

    idle: float = 20.0
    hang: float = 60.0
    start: float = 600.0


class Quiet:
    """Decides when a program is stopped: nothing computed for `start` seconds, nothing new for `idle` seconds since it computes, or a candidate that runs for more than `hang` seconds. A launcher computes nothing itself, but what is measured in a child of it shows that this one computes. Once the candidates
    of a problem have passed their first runs, they are timed in turns and nothing is written until the result is; slow candidates take longer for that than `idle`, so it may last as long as `hang`."""

    def __init__(self, limits):
        self.limits, self.at, self.seen, self.counts, self.timing, self.measures = limits, 0.0, None, None, False, False

    def stop(self, seconds, running, counts, computes=True):
        """'hung', 'stopped', 'late' (it has not begun to compute) or None. running: the candidate in its first run, or None; counts: what is stored; computes: whether the program has begun to compute, by its own report."""
        self.measures = self.measures or running is not None or self.counts not in (None, counts)
        computes = computes or self.measures
        if not computes and seconds > self.limits.start:
            return "late"
        if (running, counts) != self.seen or not computes:
            self.seen, self.at = (running, counts), seconds
        if counts != self.counts:
            self.counts, self.timing = counts, False
        self.timing = self.timing or running is not None
        quiet = seconds - self.at
        if running is not None:
            return "hung" if quiet > self.limits.hang else None
        return "stopped" if quiet > (max(self.limits.idle, self.limits.hang) if self.timing else self.limits.idle) else None


def measure(words, report, log, path, since, budget, limits, progress, further=(), held=()):
    """Runs the program with a budget for measurements, again where a candidate ended it. further: a dict of more variables. held: as of run_once. Returns the last Outcome."""
    database, lost, spent = Database(path), [], 0.0
    environment = {**dict(further), "PYFLAME_TUNE_BUDGET_MS": "", "PYFLAME_TUNED": "1"}
    while True:
        before = {row[:2] for row in database.running()}
        activity = Quiet(limits)

        def stop(seconds):
            now = [row for row in database.running() if row[:2] not in before]
            counts = database.counts(since)
            part = (spent + seconds) / budget
            computes = _computes(report)
            doing = f"  {now[-1][2]} {now[-1][4]}" if now else "" if computes else "  the program has not computed anything yet"
            progress.show(part, f"{spent + seconds:.0f} s of {budget:.0f} s, {counts[0]} problems, {counts[1]} entries{doing}")
            return activity.stop(seconds, now[-1][:2] if now else None, counts, computes)

        environment["PYFLAME_TUNE_BUDGET_MS"] = str(max(1, round(1000 * (budget - spent))))
        outcome = run_once(words, report, log, environment, stop, held)
        spent += outcome.seconds
        left = [row for row in database.running() if row[:2] not in before]
        if outcome.why in ("failed", "hung") and left and spent < budget:
            lost.append(f"{left[-1][2]} {left[-1][4]}" + (f" ran for more than {limits.hang:.0f} s" if outcome.why == "hung" else f" ended the process ({_how(outcome.code)})"))
            continue
        outcome.lost = lost
        progress.clear()
        return outcome


def _how(code):
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
