"""optimize.jsonl: what was tried and what came of it, one event a line. A line is on the disk before the next trial begins."""
import hashlib
import json
import os
import time


class Journal:
    def __init__(self, path):
        self.path, self.events = path, []
        self._read()

    def _read(self):
        """What is there already. The last line may be cut off, if the machine stopped within it."""
        if not os.path.exists(self.path):
            return
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    pass

    def add(self, event, **values):
        record = {"event": event, "time": time.time(), **values}
        self.events.append(record)
        text = json.dumps(record) + "\n"
        if os.path.exists(self.path) and not _ends_with_newline(self.path):
            text = "\n" + text
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        return record

    def of(self, event):
        return [e for e in self.events if e["event"] == event]

    def valid(self):
        """The events behind the last comparison of the whole that reverted everything; all events if none did."""
        reverts = [k for k, e in enumerate(self.events) if e["event"] == "total" and e["verdict"] != "faster"]
        return self.events[reverts[-1] + 1:] if reverts else self.events

    def kept(self):
        """The events of the changes that are kept, in their order: those that were neither left out of the composition nor reverted with the whole."""
        found = {}
        for e in self.valid():
            if e["event"] == "candidate" and e["verdict"] == "kept":
                found[e["name"]] = e
            elif e["event"] in ("candidate", "composition") and e["verdict"] != "kept":
                found.pop(e["name"], None)
        return list(found.values())


def _ends_with_newline(path):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def digest(path):
    """Of a program's file; None for a module."""
    if path is None:
        return None
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]
