"""`pyflame tune`: measures the implementations of what a program computes, checks that the program is faster with them, and keeps or reverts."""
import argparse
import contextlib
import datetime
import fcntl
import os
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
from dataclasses import dataclass

from .. import _C
from .._command_help import Parser, program_of
from .._entry import command, end_in_order
from ..benchmarking.compare import Comparison, bootstrap
from . import exchange, imports, watch
from .database import document, problems, reading, rows, table
from .products import LEFT_OUT

MOST_ROUNDS = 3  # of pairs of runs, where the first ones say nothing, or that the program is slower
FEWEST_PAIRS = 5  # that show a slower program: if there is no difference, all of n pairs look slower in up to one of 2^n comparisons
MOST_LOSS = 0.97  # an interval that begins above says that the program loses nothing that counts: an entry is taken for a gain of as much
_PROBE = bytes(1 << 16)  # about what the file of measurements takes at first


def _say(text=""):
    print(f"pyflame tune: {text}" if text else "", file=sys.stderr, flush=True)


def seconds(text):
    """60, 60s, 10m, 1h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"not a time; got {text!r}; expected seconds, or a number with s, m or h, such as 90s or 10m")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def names_of_entries(text):
    """A list of names with commas between them."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(":" in name for name in names):
        raise argparse.ArgumentTypeError(f"not names of entries; got {text!r}; expected names without configurations, with commas between them, such as gpu.blas,gpu.matmul_units")
    return names


def _arguments():
    p = Parser(prog="pyflame tune", add_help=False)
    p.add_argument("--budget", type=seconds, default=60.0)
    p.add_argument("--compare", type=int, default=3)
    p.add_argument("--idle", type=seconds, default=20.0)
    p.add_argument("--hang", type=seconds, default=60.0)
    p.add_argument("--start", type=seconds, default=600.0)
    p.add_argument("--entries", type=names_of_entries, default=[])
    p.add_argument("--all-algorithms", action="store_true")
    p.add_argument("--problems")
    p.add_argument("--import", dest="imported", action="append", default=[])
    p.add_argument("--device", default="cpu")
    p.add_argument("--export")
    p.add_argument("--validators")
    p.add_argument("--list", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("--module")
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    args.program = program_of(args)
    return args


def _tail(log, lines=20):
    with open(log, encoding="utf-8", errors="replace") as f:
        return "".join(f.readlines()[-lines:])


def verdict(comparison, pairs):
    """'kept', 'slower' or 'undecided'. An interval that has 1 in it is enough where it excludes a loss that counts: entries that are faster alone are kept. A wide one says nothing, and few pairs
    do not say that the program is slower."""
    if comparison.verdict == "slower":
        return "slower" if pairs >= FEWEST_PAIRS else "undecided"
    return "kept" if comparison.verdict == "faster" or comparison.low > MOST_LOSS else "undecided"


@dataclass(frozen=True)
class Compared:
    """outcome: 'kept', 'slower', 'undecided', 'fails' (the tuned program alone does), or 'not compared'. why: what ended the comparison early."""

    outcome: str
    comparison: Comparison = None
    why: str = ""


def _compare(words, folder, pairs, most_seconds, held=()):
    """Runs the program without and with what was measured, in turns, and for more turns until the interval says that it is kept. A Compared."""
    report, log = os.path.join(folder, "steps"), os.path.join(folder, "log")
    times, progress, wanted = {"0": [], "1": []}, watch.Progress(), 2 * pairs
    for turn, which in enumerate(watch.in_turns(MOST_ROUNDS * pairs)):
        if turn == wanted:
            if _compared(times).outcome == "kept":
                break
            wanted += 2 * pairs
        tuned = "01"[which]
        progress.show(turn / wanted, f"comparing the whole program: run {turn + 1} of {wanted}")
        outcome = watch.run_once(words, report, log, {"PYFLAME_TUNED": tuned, "PYFLAME_TUNE_BUDGET_MS": "0"}, lambda s: "stopped" if s > most_seconds else None, held)
        if outcome.why != "ended" or outcome.step_seconds is None:
            progress.clear()
            return _cut_short(outcome.why, tuned == "1", times, pairs, f" did not come to an end within {most_seconds:.0f} s" if outcome.why == "stopped" else f" failed:\n{_tail(log)}")
        times[tuned].append(outcome.step_seconds)
    progress.clear()
    return _compared(times)


def _cut_short(why, tuned, times, pairs, how):
    """A Compared where a run has no time. If it is the tuned program that has none, this says something of what was found; otherwise the pairs so far decide, if there was a round of them."""
    text = "the comparison was interrupted" if why == "interrupted" else f"the {'tuned ' * tuned}program{how}"
    fails = tuned and why != "interrupted"  # the first run is one without what was found
    if fails and why != "stopped":
        return Compared("fails", None, text)
    if min(map(len, times.values())) >= pairs:
        return _compared(times, text)
    return Compared("undecided" if fails else "not compared", None, text)


def _compared(times, why=""):
    pairs = min(map(len, times.values()))
    comparison = Comparison("the program as it was", "the tuned program", *bootstrap(times["0"], times["1"], paired=True), paired=True)
    return Compared(verdict(comparison, pairs), comparison, why)


def _copy(path, folder):
    """A copy of the file of measurements as it is before a session. It is empty where there is no such file yet."""
    copy = os.path.join(folder, "before.sqlite")
    with contextlib.closing(sqlite3.connect(copy)) as to:
        if os.path.exists(path):
            with reading(path) as db:
                db.backup(to)
    return copy


@contextlib.contextmanager
def _with_earlier(path, before):
    """The file of measurements, beside the copy of it that was made before the session, as one transaction."""
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as db:
        db.execute("ATTACH ? AS before", (before,))
        with db:
            yield db


def _columns(db, schema, table):
    return [row[1] for row in db.execute(f"PRAGMA {schema}.table_info({table})")]


def _put_back(db, table, key, changed, *values):
    """The earlier rows of a table come back where they are missing or fulfil `changed`, a condition of the present rows in SQL with its values."""
    columns = ", ".join(_columns(db, "before", table))
    if columns:
        same = " AND ".join(f"now.{name} = {table}.{name}" for name in key)
        db.execute(f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM before.{table} AS {table}"
                   f" WHERE NOT EXISTS (SELECT 1 FROM main.{table} AS now WHERE {same} AND NOT ({changed}))", values)


_KEY = "environment", "op", "problem", "entry"


def _put_measurements_back(db, since):
    """What an earlier session measured, and this one again, is as it was. What this session found to be wrong stays known."""
    _put_back(db, "measurements", _KEY, "now.sound = 1 AND now.measured_at >= ?", since)


def _revert(path, before, since, note):
    """What was found in this session no longer decides; what earlier sessions found does as before. How far the searches are stays known, since what they found does, too."""
    with _with_earlier(path, before) as db:
        known = f"AND NOT EXISTS (SELECT 1 FROM before.measurements AS b WHERE b.sound = 1 AND {' AND '.join(f'b.{name} = m.{name}' for name in _KEY)})" if _columns(db, "before", "measurements") else ""
        db.execute(f"UPDATE main.measurements AS m SET sound = 0, note = ? WHERE own = 0 AND sound = 1 AND measured_at >= ? {known}", (note, since))
        _put_measurements_back(db, since)


def _forget(path, before, since):
    """What was measured in this session decides nothing, and is measured again; what earlier sessions measured is as before. What is wrong stays known."""
    with _with_earlier(path, before) as db:
        db.execute("DELETE FROM main.measurements WHERE own = 0 AND sound = 1 AND measured_at >= ?", (since,))
        _put_measurements_back(db, since)
        if _columns(db, "main", "enumerations"):
            db.execute("DELETE FROM main.enumerations WHERE stored_at >= ?", (since,))
            _put_back(db, "enumerations", (*_KEY[:3], "impl"), "0")


def _locked(file, folder):
    """Takes the lock of a cache folder. Where another session has it, this one waits."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process, _, host = file.read().decode("utf-8", "replace").strip().partition(" ")
        _say(f"another pyflame tune, process {process or '?'} on {host or '?'}, measures with the cache folder {folder!r}; this one waits until it has ended")
        fcntl.flock(file, fcntl.LOCK_EX)
    with contextlib.suppress(OSError):  # a full disk; who has the lock is for the message alone
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}".encode())


@contextlib.contextmanager
def alone(folder):
    """One session at a time for a cache folder: two at once would disturb each other's times, and what one of them takes back could be the other's. The file descriptors that hold the lock; a program
    that gets them keeps the folder locked if this process is killed."""
    with contextlib.ExitStack() as stack:
        held = ()
        try:
            file = stack.enter_context(open(os.path.join(folder, "tune.lock"), "a+b", buffering=0))
            file.seek(0)
            _locked(file, folder)
            held = (file.fileno(),)
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)  # also where something that the program began still has it
        except OSError as e:  # a lock of another user, or a file system without locks
            _say(f"the folder has no lock for one pyflame tune at a time: {e.strerror or e}; got {folder!r}; hint: let no other pyflame tune run with it")
        yield held


def _left_out(log):
    """What the program that multiplies a list said of rows that it does not measure, each once: it reads the list again in each run."""
    with open(log, encoding="utf-8", errors="replace") as file:
        return list(dict.fromkeys(line.rstrip("\n") for line in file if line.startswith(LEFT_OUT)))


def _kept_nowhere(folder):
    """Why measurements cannot be kept in a folder, which is made if it is missing; None: they can."""
    try:
        if not os.path.exists(folder):
            os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            left = len(_PROBE)
            while left:
                left -= probe.write(_PROBE[:left])
    except OSError as e:
        return e.strerror or str(e)
    return None


def _not_measured(names, path):
    """Which of these entries no measurement is of."""
    known = {row.entry.partition(":")[0] for row in rows(path)} if names else ()
    return [name for name in names if name not in known]


def _tune(words, args, folder, held=()):
    path = _C._choices_file()
    before, since = _copy(path, folder), datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    log = os.path.join(folder, "log")
    outcome = watch.measure(words, os.path.join(folder, "steps"), log, path, since, args.budget, watch.Limits(args.idle, args.hang, args.start), watch.Progress(),
                            {"PYFLAME_TUNE_ENTRIES": ",".join(args.entries)} if args.entries else {}, held)
    for lost in outcome.lost:
        _say(f"{lost}; this entry is left out")
    if args.problems or args.imported:
        for line in _left_out(log):
            _say(line)
    if outcome.why in ("failed", "hung"):
        _say(f"the program failed with exit code {outcome.code}; its last lines:\n{_tail(log)}")
        return 1
    if outcome.why == "late" and not rows(path, since):
        _say(f"the program computed nothing within {args.start:.0f} s; hint: --start, if it prepares for longer")
        return 1
    for name in _not_measured(args.entries, path):
        _say(f"there are no measurements of the entry {name}: there is none of this name, or it accepts nothing that the program computes; hint: pyflame explain names entries and why they refuse")
    print(document(path, since) if args.json else table(path, since))
    if outcome.why == "interrupted":
        _say("interrupted; what was measured is kept")
        return 130
    if args.imported:
        print(imports.report(args.imported, rows(path)), file=sys.stderr if args.json else sys.stdout)
    found = problems(path, since)
    if not found and outcome.programs == 0 and not (args.problems or args.imported):
        _say("the program computed nothing with PyFlame in its own process, and nothing new was measured in others; hint: pyflame explain shows what a program computes")
    elif not found:
        _say("every problem of the program was measured before, or it has none that several entries can compute; pyflame tune --list shows what is known")
    elif args.problems or args.imported or not any(t.gain > 1 for t in found):
        _say(f"the measurements are in {path}")
    elif args.compare > 0:
        return _keep_or_revert(words, args, folder, path, before, since, held)
    return 0


def _keep_or_revert(words, args, folder, path, before, since, held=()):
    limit, runs = max(60.0, args.budget), 2 * args.compare
    _say(f"now the whole program runs without and with what was found, {runs} times, or up to {MOST_ROUNDS * runs} where the times differ too much; the budget was for the measurements, and each run has "
         f"{limit:.0f} s; Ctrl-C ends the comparison and keeps what was measured, and --compare 0 leaves it out")  # fmt: skip
    result = _compare(words, folder, args.compare, limit, held)
    if result.outcome == "not compared":
        _say(f"the whole program was not compared: {result.why}; the measurements are kept")
        return 0
    if result.why:
        _say(f"the comparison ended early: {result.why}")
    if result.comparison is not None:
        print(result.comparison, file=sys.stderr if args.json else sys.stdout)
    if result.outcome == "slower":
        _revert(path, before, since, "the whole program was slower with it")
        _say("the program is slower with what was found, so nothing of this session is used")
    elif result.outcome == "fails":
        _revert(path, before, since, "the whole program failed with it")
        _say("the program fails with what was found, so nothing of this session is used")
    elif result.outcome == "undecided":
        _forget(path, before, since)
        _say(f"the runs do not say that the program does not lose more than {1 - MOST_LOSS:.0%}, so nothing of this session is used, and a later call measures it again; hint: stop other programs, or "
             f"take a larger --compare; it is {args.compare}")
    else:
        _say(f"kept in {path}; every later run uses it; PYFLAME_TUNED=0 ignores it")
    return 0


@command()
def main():
    args = _arguments()
    if args.list:
        print(document() if args.json else table(most=1000))
        return 0
    if why := args.export and exchange.wrong(args.export, args.validators):
        _say(why)
        return 1
    if args.export and not args.problems and not args.imported and not args.program and not args.module:
        return exchange.write(args.export, args.validators, _say)
    if args.problems or args.imported:
        for path, what in [(args.problems, "a list of products")] * bool(args.problems) + [(path, "measurements of other software") for path in args.imported]:
            if not os.path.isfile(path):
                _say(f"there is no such file; got {path!r}; expected {what}")
                return 1
        module, file = "pyflame.tuning.products", None
        arguments = [*(["--problems", args.problems] if args.problems else []), *(word for path in args.imported for word in ("--import", path)), "--device", args.device]
    else:
        from ..profiler.run import NoProgram, find_program, framework_of

        try:
            file, module, arguments = find_program(args, here=False)
        except NoProgram as e:
            _say(e)
            return 1
        if file is not None and framework_of(file) == "torch":
            _say("this is a program of PyTorch; hint: record its products with PYTORCH_TUNABLEOP_TUNING=0 PYTORCH_TUNABLEOP_RECORD_UNTUNED=1 and use "
                 "pyflame tune --problems tunableop_untuned0.csv --export tunableop=tunableop_results0.csv")
            return 1
    kept_in = os.path.dirname(os.path.abspath(_C._choices_file()))
    if why := _kept_nowhere(kept_in):
        _say(f"the cache folder cannot be written: {why}; got {kept_in!r}; hint: PYFLAME_CACHE_DIR")
        return 1
    folder = tempfile.mkdtemp(prefix="pyflame-tune-")
    try:
        with alone(kept_in) as held:
            code = _tune(watch.command(module, file, arguments, os.path.join(folder, "steps"), all_algorithms=args.all_algorithms), args, folder, held)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code == 0 and args.export:
        return exchange.write(args.export, args.validators, _say)
    return code


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
