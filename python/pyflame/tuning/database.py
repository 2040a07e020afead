"""Reads the file of measurements."""
import contextlib
import json
import os
import re
import sqlite3
import urllib.parse
from dataclasses import asdict, dataclass, field

from .. import _C


@dataclass
class Row:
    """One measurement. device: its name. libraries: names and versions of those that were used; on the CPU the number of threads. op: its name. problem: its attributes, and the
    shapes, strides and dtypes of its operands. entry: the implementation. workspace: the bytes of memory that it needs besides. measured_at: a text, in UTC. sound: its result is right. us: the median of its runs, on a GPU with cold caches; warm_us: with warm ones (0: it was not measured); spread: the quartiles' distance over the median; error: the largest difference to the result of the reference
    implementation (of PyFlame's own entry where that would take long), as a part of what is allowed; own: PyFlame takes this entry if there are no measurements; note: why it is not sound."""

    device: str
    libraries: str
    op: str
    problem: str
    entry: str
    us: float
    spread: float
    error: float
    sound: bool
    own: bool
    workspace: int
    warm_us: float
    measured_at: str
    note: str


@dataclass
class Enumerated:
    """How far searches have come among what a library enumerates for a problem besides what it lists. entry: the implementation. tried: how many were measured; refused: of how many the library says
    that they do not compute the problem; left: how many were not looked at."""

    entry: str
    tried: int
    refused: int
    left: int


@dataclass
class Tuned:
    """One problem: the entry that PyFlame takes by itself, the one that it takes now, and how many were tried. `own` is None if it was not measured. algorithms: a list of Enumerated."""

    op: str
    problem: str
    own: Row
    best: Row
    tried: int
    unsound: int
    algorithms: list = field(default_factory=list)

    @property
    def gain(self):
        """Time of the own entry over the best one's; 1 where nothing is clearly faster."""
        return 1.0 if self.own is None else self.own.us / self.best.us


_OPERAND = re.compile(r"(\w+)\(([\d, ]*)\)(?: strides \(([\d, ]*)\))?")


def _numbers(text):
    return [int(x) for x in text.split(",") if x.strip()]


def operands(problem):
    """The operands and results in the text of a problem of one op: a list of (dtype, shape, strides)."""
    found = []
    for match in _OPERAND.finditer(problem[problem.index("(") + 1:]):
        shape = _numbers(match[2])
        strides = _numbers(match[3]) if match[3] else [1] * len(shape)
        if not match[3]:
            for d in range(len(shape) - 2, -1, -1):
                strides[d] = strides[d + 1] * shape[d + 1]
        found.append((match[1], shape, strides))
    return found


def attributes(problem):
    """The attributes that are whole numbers in the text of a problem of one op: a dict."""
    return {name: int(value) for name, value in re.findall(r"(\w+)=(-?\d+)\b", problem)}


def _clearly_faster(row, own):
    """The same rule as in src/pyflame/compile/choices.cpp."""
    return row.us < 0.97 * own.us and row.us * (1 + row.spread / 2) < own.us and (own.warm_us == 0 or 0 < row.warm_us <= own.warm_us)


def reading(path, timeout=10):
    """A connection that reads a file of measurements, and closes it. A process that was ended while it wrote leaves half of a transaction, which the next reader takes back: so the file is opened for writing,
    too. SQLite opens a file that cannot be written for reading alone."""
    return contextlib.closing(sqlite3.connect(f"file:{urllib.parse.quote(os.path.abspath(path))}?mode=rw", uri=True, timeout=timeout))


def _rows(db, where, values):
    """The measurements that fulfil a condition in SQL, the newest last."""
    found = db.execute("SELECT e.device, e.libraries, m.op, m.problem, m.entry, m.us, m.spread, m.error, m.sound, m.own, m.workspace, m.warm_us, m.measured_at, m.note"
                       f" FROM measurements m JOIN environments e ON e.id = m.environment WHERE {where} ORDER BY m.measured_at, m.rowid", values)
    return [Row(*r[:8], bool(r[8]), bool(r[9]), *r[10:]) for r in found]


def rows_here(device, op, problem):
    """The measurements of a problem that count for this process on a device: of its name, architecture, driver and libraries, and of this version of PyFlame."""
    path = _C._choices_file()
    if not os.path.exists(path):
        return []
    info = _C.device_info(device)
    with reading(path) as db:
        return _rows(db, "e.device = ? AND e.architecture = ? AND e.driver = ? AND e.libraries = ? AND e.pyflame = ? AND m.op = ? AND m.problem = ?",
                     (info["name"], info["architecture"], info.get("driver", ""), _C._device_libraries(device), _C.__version__, op, problem))


def rows(path=None, since=None):
    """All measurements of a file (default: this process's), the newest last. since: a text as in measured_at (UTC); only rows that are not older.

    An empty list where there is no such file. Raises TypeError for a path or a since of another type, and sqlite3.DatabaseError for a file that is no database.
    """
    if since is not None and not isinstance(since, str):
        raise TypeError(f"rows: since is not a text; got {since!r}; expected a time in UTC as in measured_at, such as '2025-01-31 12:00:00'")
    path = os.fspath(path or _C._choices_file())
    if not os.path.exists(path):
        return []
    with reading(path) as db:
        if db.execute("PRAGMA user_version").fetchone()[0] != 2:
            return []
        return _rows(db, "m.measured_at >= ?", (since or "",))


def _algorithms(path):
    """A dict of (device, libraries, op, problem) to a list of Enumerated."""
    found = {}
    path = os.fspath(path or _C._choices_file())
    if not os.path.exists(path):
        return found
    with reading(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'enumerations'").fetchone():
            return found
        for *key, entry, tried, looked, size in db.execute("SELECT e.device, e.libraries, n.op, n.problem, n.impl, n.tried, n.looked, n.size FROM enumerations n"
                                                           " JOIN environments e ON e.id = n.environment WHERE n.size > 0 ORDER BY n.impl"):
            found.setdefault(tuple(key), []).append(Enumerated(entry, tried, looked - tried, max(0, size - looked)))
    return found


def problems(path=None, since=None):
    """The measurements by problem: a list of Tuned, the largest saving of time first.

    path, since: as in rows(), and so are the errors that it raises.
    """
    groups = {}
    for row in rows(path, since):
        groups.setdefault((row.device, row.libraries, row.op, row.problem), []).append(row)
    found, algorithms = [], _algorithms(path) if groups else {}
    for key, all_rows in groups.items():
        *_, op, problem = key
        sound = [r for r in all_rows if r.sound]
        if not sound:
            continue
        own = next((r for r in sound if r.own), None)
        faster = [r for r in sound if own is None or _clearly_faster(r, own)]
        found.append(Tuned(op, problem, own, min(faster, key=lambda r: r.us, default=own), len(all_rows), len(all_rows) - len(sound), algorithms.get(key, [])))
    return sorted(found, key=lambda t: t.best.us - t.own.us if t.own else 0.0)


def _short(text, width):
    return text if len(text) <= width else text[:width - 1] + "…"


def _count(n):
    """A number to read: an enumeration of all settings of a library's kernels has billions."""
    return next((f"{n / size:.3g} {name}" for size, name in ((10**9, "billion"), (10**6, "million")) if n >= size), f"{n:,}")


def _of_libraries(found):
    """Lines that say how many of the libraries' algorithms were tried."""
    lines = []
    for name in sorted({a.entry for t in found for a in t.algorithms}):
        those = [a for t in found for a in t.algorithms if a.entry == name]
        tried, refused, left = (sum(getattr(a, what) for a in those) for what in ("tried", "refused", "left"))
        of = f"of {_count(tried + refused + left)} algorithms that {name} enumerates for {len(those)} problem{'s' * (len(those) > 1)}, {_count(tried)} were tried, {_count(refused)} do not compute the problem"
        lines.append(f"{of}, and {_count(left)} are left; hint: --all-algorithms tries all" if left else of)
    return lines


def document(path=None, since=None):
    """What problems() returns, as the text of a JSON list: op, problem, gain, own and best measurement, entries tried and unsound."""
    return json.dumps([{**asdict(t), "gain": t.gain} for t in problems(path, since)])


def table(path=None, since=None, most=20):
    """What problems() returns, as a text: the own entry's time, the best one's, the gain.

    path, since: as in rows(), and so are the errors that it raises. most: how many lines; a TypeError for what is no int.
    """
    found = problems(path, since)
    if not found:
        return "nothing was measured"
    lines = [f"{'gain':>6} {'us':>10} {'own us':>10}  {'best entry':44} problem"]
    for t in found[:most]:
        own = f"{t.own.us:10.1f}" if t.own else f"{'?':>10}"
        lines.append(f"{t.gain:6.2f} {t.best.us:10.1f} {own}  {_short(t.best.entry, 44):44} {_short(t.problem, 100)}")
    if len(found) > most:
        lines.append(f"… and {len(found) - most} more")
    faster = sum(t.gain > 1 for t in found)
    lines.append(f"{len(found)} problems, {sum(t.tried for t in found)} entries measured, {sum(t.unsound for t in found)} of them unsound; another entry is faster for {faster} problems")
    lines += _of_libraries(found)
    return "\n".join(lines)
