"""Samples of the Python stacks of this process. The program is not changed, only looked at 500 times a second."""
import atexit
import os
import signal
import sys
import threading

from .. import _C, _cells

INTERVAL = 0.002  # seconds
MOST_FRAMES = 64
_HERE = os.path.dirname(__file__)


def _frames(frame):
    """(identity, code, line) from the outermost function to the innermost, without this package's and those that start programs."""
    found = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_HERE, "<frozen")):
            found.append((id(frame), frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found[::-1][:MOST_FRAMES]


def name_of(code):
    """As PyTorch's traces name functions: the file, the line of the `def`, the name."""
    return f"{_cells.shown(code.co_filename)}({code.co_firstlineno}): {getattr(code, 'co_qualname', code.co_name)}"


class _Ready:
    """How long this thread could have run and no processor was free, by the system's count."""

    def __init__(self):
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:  # a kernel that does not count it
            self._file = None
        self._last = self._count()

    def _count(self):
        try:
            return 0 if self._file is None else int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return 0

    def nanoseconds(self):
        """Since the last call."""
        count = self._count()
        since, self._last = count - self._last, count
        return max(0, since)

    def close(self):
        if self._file is not None:
            os.close(self._file)
            self._file = None


class StackSampler:
    """Samples until stop(). Each function that stays on a stack from sample to sample is a span of the recording, on its thread's track. So is the time in which no
    processor was free for the thread that samples, the main one.

    interval: seconds from sample to sample; start() raises TypeError for what is no number, and ValueError in a thread other than the main one.
    """

    def __init__(self, interval=INTERVAL):
        self._interval = interval
        self._tracks = {threading.get_ident(): _C._profiler_thread()}
        self._open = {}  # of each thread: [identity, code, start]
        self._ticker = self._previous = None
        self.seconds = {}  # by stack: a tuple of (code, line), outermost first
        self._last = self._ready = None
        self._sampling = False
        self._process = os.getpid()

    def start(self):
        """Begins to take a sample every interval seconds, with the signal SIGPROF. Returns the sampler. ValueError in a thread other than the main one."""
        self._last, self._ready = _C._profiler_now(), _Ready()
        self._previous = signal.signal(signal.SIGPROF, self._handle)
        signal.siginterrupt(signal.SIGPROF, False)  # system calls go on
        self._ticker = _C._Ticker(self._interval)
        atexit.register(self.stop)  # a signal after Python's handlers are gone would end the process
        return self

    def stop(self):
        """Ends the samples and the spans that are open. Any thread may call it; the main one also sets the earlier handler of SIGPROF back. A process that was
        forked meanwhile has no samples, and nothing ends there."""
        if os.getpid() != self._process:
            return
        self._ticker.stop()
        self._ready.close()
        atexit.unregister(self.stop)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGPROF, self._previous or signal.SIG_DFL)
        for thread in list(self._open):
            self._close(thread, 0, _C._profiler_now())

    def _handle(self, _signal, _frame):
        if self._sampling:  # a signal came while the last one was handled
            return
        self._sampling = True
        try:
            self._sample()
        finally:
            self._sampling = False

    def _sample(self):
        now = _C._profiler_now()
        # A signal is handled as soon as the thread runs again, so that it was ready just before.
        if ready := min(self._ready.nanoseconds(), now - self._last):
            _C._profiler_ready(self._tracks[threading.get_ident()], now - ready, now)
        elapsed, self._last = (now - self._last) / 1e9, now
        ours = {t.ident for t in threading.enumerate() if t.name.startswith("pyflame-")}
        stacks = {thread: _frames(top) for thread, top in sys._current_frames().items() if thread not in ours}
        for thread in list(self._open):
            if thread not in stacks:
                self._close(thread, 0, now)
        for thread, stack in stacks.items():
            key = tuple((code, line) for _, code, line in stack)
            self.seconds[key] = self.seconds.get(key, 0.0) + elapsed
            self._compare(thread, stack, now)

    def _compare(self, thread, stack, now):
        """Ends the functions that have left the stack, and begins the new ones."""
        open_ = self._open.setdefault(thread, [])
        same = 0
        while same < min(len(open_), len(stack)) and open_[same][0] == stack[same][0] and open_[same][1] is stack[same][1]:
            same += 1
        self._close(thread, same, now)
        open_.extend([identity, code, now] for identity, code, _ in stack[same:])

    def _close(self, thread, keep, now):
        track = self._tracks.get(thread)
        if track is None:
            track = self._tracks[thread] = _C._profiler_track(f"Python thread {thread}")
        for _, code, start in self._open[thread][keep:]:  # the outer ones first, because their times may be equal
            _C._profiler_frame(name_of(code), track, start, now)
        del self._open[thread][keep:]
