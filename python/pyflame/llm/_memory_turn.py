"""Engines of several processes that start on one GPU take their memory in turns, so that each sees what the ones before have left."""
import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import re
from time import monotonic, sleep

_log = logging.getLogger("pyflame.llm")
PATIENCE_SECONDS = 30.0  # after which the log says who holds the turn
_POLL_SECONDS = 0.05


@contextlib.contextmanager
def turn(device, place=None):
    """Holds the turn of a device among the processes that have the same cache folder (PYFLAME_CACHE_DIR). place: what names the GPU in all of them, such as its PCI address (default: the device).

    The kernel ends the turn of a process that dies. Where the folder cannot be written, a warning says that there are no turns."""
    path = _path(str(place or device))
    file = _opened(path, device)
    if file is None:
        yield
        return
    try:
        _take(file, path, device)
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # a process that a fork has made may have the file as well
        os.close(file)


def _path(place):
    folder = pathlib.Path(os.path.expanduser(os.environ.get("PYFLAME_CACHE_DIR") or "~/.cache/pyflame"))
    return folder / f"memory-{re.sub(r'[^A-Za-z0-9.]', '_', place)}.lock"


def _opened(path, device):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as e:
        _log.warning("engines that start at the same time on %s do not see each other's memory, because %s cannot be written: %s", device, path, e.strerror)
        return None


def _take(file, path, device):
    begin, is_told = monotonic(), False
    while not _is_taken(file):
        if not is_told and monotonic() - begin >= PATIENCE_SECONDS:
            holder = os.pread(file, 20, 0).decode("ascii", "replace") or "unknown"
            _log.warning("an engine waits for the memory of %s: process %s has held %s for %.0f s; it goes on as soon as that one has taken its memory", device, holder, path, PATIENCE_SECONDS)
            is_told = True
        sleep(_POLL_SECONDS)


def _is_taken(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True
