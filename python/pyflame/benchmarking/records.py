"""Kept measurements: a file of JSON lines, which is the truth, and an SQLite index of it, which is made again whenever it does not fit."""
import json
import os
import pathlib
import sqlite3

from .measure import Measurement
from .results import Result

_COLUMNS = ("name", "device", "median", "low", "high", "spread", "accepted", "cache", "time", "commit_")


def default_folder():
    """pyflame/bench in the user's folder for data."""
    return pathlib.Path(os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local" / "share") / "pyflame" / "bench"


def add_options(parser, separator="-"):
    """Adds the options that say where a command keeps its records, and whether it does. separator: between the words of an option."""
    parser.add_argument("--records", metavar="FOLDER", help="the folder of the kept measurements (default: ~/.local/share/pyflame/bench)")
    parser.add_argument(f"--no{separator}record", dest="no_record", action="store_true", help="keep no record")


def of_options(args):
    """The Records that these options ask for; None: nothing is kept."""
    return None if args.no_record else Records(args.records)


def _from_dict(record):
    return (Result if "kind" in record else Measurement).from_dict(record)


class Records:
    """The records of a folder. Several processes may add at once: a record is one write to the end of the file.

    folder: a path, which need not exist; None: pyflame/bench in the user's folder for data. TypeError for what is no path; add() is an OSError where the folder
    cannot be made or written."""

    def __init__(self, folder=None):
        self.folder = pathlib.Path(folder) if folder else default_folder()
        self.path, self.index = self.folder / "records.jsonl", self.folder / "index.sqlite"

    def add(self, measurement):
        """Appends a Measurement or a Result to the file of records, one line of JSON. The folder is made where it is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(measurement.to_dict(), separators=(",", ":")) + "\n").encode()
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    def __iter__(self):
        """Measurements and Results in the order in which they were added. A line that was cut off is passed over."""
        return (_from_dict(record) for _, record in self._lines(0))

    def _lines(self, start):
        if not self.path.exists():
            return
        with open(self.path, "rb") as f:
            f.seek(start)
            for line in f:
                if line.endswith(b"\n"):
                    try:
                        yield start, json.loads(line)
                    except ValueError:
                        pass
                start += len(line)

    def _indexed(self, anew):
        """The index, brought up to date with the file. anew: it is made from nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.index, timeout=10)
        db.execute(f"CREATE TABLE IF NOT EXISTS records (at INTEGER PRIMARY KEY, {', '.join(_COLUMNS)})")
        if anew:
            db.execute("DELETE FROM records")
        last = db.execute("SELECT max(at) FROM records").fetchone()[0]
        for at, record in self._lines(last or 0):
            values = [record.get(c) for c in _COLUMNS[:-1]] + [record.get("environment", {}).get("commit")]
            db.execute(f"INSERT OR REPLACE INTO records VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})", [at, *values])
        db.commit()
        return db

    def _places(self, name, device, measured, anew):
        where, values = ["median IS NOT NULL" if measured else "1"], []
        for column, value in (("name", name), ("device", device)):
            if value is not None:
                where.append(f"{column} GLOB ?")
                values.append(value)
        db = self._indexed(anew)
        try:
            return db.execute(f"SELECT at, name, time FROM records WHERE {' AND '.join(where)} ORDER BY at", values).fetchall()
        finally:
            db.close()

    def find(self, name=None, device=None, last=None, measured=False):
        """Measurements and Results with this name (a pattern with * and ?) and device, the oldest first; `last`: only so many of the newest. measured: no Results, which
        have no samples."""
        if not self.path.exists():
            return []
        for anew in (False, True):
            places = self._places(name, device, measured, anew)
            found = self._read(places[-last:] if last else places)
            if found is not None:
                return found
        return []

    def _read(self, places):
        """The records there; None if one is another than the index says: the file was replaced."""
        found = []
        with open(self.path, "rb") as f:
            for at, name, time in places:
                f.seek(at)
                try:
                    record = json.loads(f.readline())
                except ValueError:
                    return None
                if (record.get("name"), record.get("time")) != (name, time):
                    return None
                found.append(_from_dict(record))
        return found
