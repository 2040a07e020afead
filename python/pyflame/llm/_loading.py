"""The line that says how many bytes of a model's files have been read, and then how many layers have been packed, while a model is loaded.

The core reads a file in one call, which holds no lock of Python. The system counts the bytes that the thread has read (Linux: /proc/self/task), so that what
others read meanwhile does not count, and a second thread writes the line. Where the system does not count, the line moves on at the end of each file."""
import contextlib
import contextvars
import os
import sys
import threading
import time

from .._bar import bar

_current = contextvars.ContextVar("pyflame.llm.loading", default=None)
_SECONDS = 0.2  # between two states of the line


def _bytes_read(thread):
    """How many bytes the thread with this native id has read from files, None where the system does not say."""
    try:
        with open(f"/proc/self/task/{thread}/io", encoding="ascii") as f:
            return next((int(line[6:]) for line in f if line.startswith("rchar:")), None)
    except (OSError, ValueError):
        return None


def _file_bytes(path):
    """The bytes of a model's weights; 0 where they cannot be found, which reading says better."""
    sizes = []
    try:
        if not os.path.isdir(path):
            return os.path.getsize(path)
        from .._foreign_files import load_folder

        with contextlib.suppress(ValueError):  # the tensors that an index names are not looked for here
            load_folder(path, lambda file: sizes.append(os.path.getsize(file)) or {})
    except OSError:
        pass
    return sum(sizes)


def size_text(count):
    """Bytes as a text of a few characters."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


class Loading:
    """What is done within shown(). bytes(): read so far; total: of the files that are known; layers: (packed, all) of the model whose files have been read, None before."""

    def __init__(self):
        self.total, self._done, self._file, self._begin = 0, 0, None, time.monotonic()
        self.layers, self.changed = None, lambda: None

    @property
    def seconds(self):
        return time.monotonic() - self._begin

    def bytes(self):
        file, done = self._file, self._done
        if file is None or file[1] is None:
            return done
        now = _bytes_read(file[2])
        return done + (min(file[0], now - file[1]) if now is not None else 0)

    def add(self, count):
        self._done += count

    @contextlib.contextmanager
    def file(self, path):
        size = os.path.getsize(path) if os.path.exists(path) else 0
        thread = threading.get_native_id()
        self._file = size, _bytes_read(thread), thread
        try:
            yield
            self._done += size
        finally:
            self._file = None
            self.changed()

    def state(self):
        """(what is done now, the part of it that is done). (None, None) while nothing is known."""
        if self.layers is not None:
            done, count = self.layers
            return f"packs {done} of {count} layers", done / count
        if not self.total:
            return None, None
        done = min(self.bytes(), self.total)
        return f"reads {size_text(done)} of {size_text(self.total)}", done / self.total


def expect(path):
    """Says that the weights of a file or folder are read next."""
    if (loading := _current.get()) is not None:
        loading.total, loading.layers = loading.total + _file_bytes(path), None
        loading.changed()


def file(path):
    """A context in which a whole file is read."""
    loading = _current.get()
    return contextlib.nullcontext() if loading is None else loading.file(path)


def mapped(count):
    """Says that so many bytes of a file were read that is mapped into memory."""
    if (loading := _current.get()) is not None:
        loading.add(count)


def packed(layers, count):
    """Says that so many of a model's layers are as products read them."""
    if (loading := _current.get()) is not None:
        loading.layers = layers, count
        loading.changed()


def _draw(loading, text):
    import shutil

    what, part = loading.state()
    state = f" … {loading.seconds:.0f} s" if what is None else f" … {what} ({int(100 * part)}%), {loading.seconds:.0f} s"
    before = "" if what is None else bar(part) + " "
    room = max(10, shutil.get_terminal_size().columns - len(before) - len(state) - 1)  # a line that is broken would not be written over
    print(f"\r\033[K{before}{text if len(text) <= room else '…' + text[1 - room:]}{state}", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def shown(text, is_on=True):
    """Within the context, a line on stderr says how far models are that are loaded, if stderr is a terminal: the bytes that have been read, then the layers that are packed. At the end the line is empty again.
    Yields the Loading. Nothing is written without a terminal, or with is_on=False."""
    loading, done = Loading(), threading.Event()
    token = _current.set(loading)
    lock = threading.Lock()

    def draw():
        with lock:
            _draw(loading, text)

    def count():
        while not done.wait(_SECONDS):
            draw()

    thread = threading.Thread(target=count, name="pyflame.llm.loading", daemon=True) if is_on and sys.stderr.isatty() else None
    try:
        if thread:
            loading.changed = draw
            thread.start()
        yield loading
    finally:
        _current.reset(token)
        done.set()
        if thread:
            thread.join()
            print("\r\033[K", end="", file=sys.stderr, flush=True)
