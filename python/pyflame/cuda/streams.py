"""Streams and events as far as they have a meaning: all work is in one order, so that there is nothing to wait for but its end."""
from .. import _C


class Stream:
    """The one order of a program's work. Every stream is the same one: all of them compare equal, and what is recorded under one runs in order with all
    else.

    device and priority are kept as attributes and change nothing; kwargs are accepted for PyTorch's programs. Also a context manager, which changes
    nothing.
    """

    def __init__(self, device=None, priority=0, **kwargs):
        self.device, self.priority, self.stream_id, self.cuda_stream = device, priority, 0, 0

    def synchronize(self):
        """Waits until all work that was recorded so far is complete, on every stream. Raises the error of an op that failed."""
        _C.synchronize()

    def wait_stream(self, stream):
        """Does nothing: all work is in one order, so that what another stream was given before is complete first."""

    def wait_event(self, event):
        """Does nothing: all work is in one order, so that what comes before an event is complete first."""

    def record_event(self, event=None):
        """Records event, or a new Event, at the end of the work that was recorded so far, and returns it. A new one has no enable_timing."""
        event = event or Event()
        event.record(self)
        return event

    def query(self):
        """Always True, as PyTorch's answer that all work is complete: pending work is completed first, so the call waits."""
        _C.synchronize()
        return True

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def __eq__(self, other):
        return isinstance(other, Stream)

    def __hash__(self):
        return 0


ExternalStream = Stream
_stream = Stream()


class Event:
    """A point in the order of a device's work (that of the stream, or the current device). A GPU notes itself when it reaches it, and nothing waits. On the CPU
    the work before it is complete when record() returns, and the clock is read. enable_timing has to be set where elapsed_time() is asked, as in PyTorch.
    blocking, interprocess and external are accepted for PyTorch's programs and change nothing."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self._timed, self._event = enable_timing, _C._Event()

    def record(self, stream=None):
        """Marks the end of the work that was recorded so far, which starts to run."""
        self._event.record(None if stream is None else stream.device)

    def elapsed_time(self, end_event):
        """Milliseconds from this event to another one. Waits for both. Both need enable_timing=True."""
        if not (self._timed and end_event._timed):
            raise ValueError("Event.elapsed_time: an event keeps no time; expected Event(enable_timing=True) for both")
        return self._event.elapsed_ms(end_event._event)

    def synchronize(self):
        """Waits until the work that was recorded before the event is complete. Returns at once if record() was not called."""
        self._event.wait()

    def query(self):
        """Whether the work that was recorded before the event is complete: a bool, without waiting. True if record() was not called."""
        return self._event.passed()

    def wait(self, stream=None):
        """Does nothing: all work is in one order, so that later work starts after the event anyway. stream is ignored."""


def current_stream(device=None):
    """The one Stream there is, of every device. The argument is accepted for PyTorch's programs and changes nothing."""
    return _stream


default_stream = current_stream


def set_stream(stream):
    """Does nothing: there is one order of work. The argument is accepted for PyTorch's programs."""


def stream(stream):
    """A context that changes nothing: there is one order of work. Returns the stream that was given; of None, the one there is."""
    return stream if stream is not None else _stream
