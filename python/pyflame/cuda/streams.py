"""Streams and events as far as they have a meaning: all work is in one order, so that there is nothing to wait for but its end."""
from __future__ import annotations

from .. import _C, _gpu

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from .._annotations import Device


class Stream:
    """The order of a device's work. There is one order for each device, so that all streams are equal. device, priority: kept as attributes; they change nothing.

    It raises nothing for a device that does not exist.
    """

    def __init__(self, device: Device | None = None, priority: int = 0, **kwargs: Any) -> None:
        self.device, self.priority, self.stream_id, self.cuda_stream = device, priority, 0, 0

    def synchronize(self) -> None:
        """Returns when all work that was recorded is complete, on every device. An error of that work is raised."""
        _C.synchronize()

    def wait_stream(self, stream: object) -> None:
        """Does nothing: what is recorded later runs after what the other stream has recorded, in any case."""

    def wait_event(self, event: object) -> None:
        """Does nothing: what is recorded later runs after what came before the event, in any case."""

    def record_event(self, event: Event | None = None) -> Event:
        """Marks this point of the work and returns the event. event: the Event to use; None makes one."""
        event = event or Event()
        event.record(self)
        return event

    def query(self):
        """Always True: the call completes all pending work first, and so it waits. Event.query() does not wait."""
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
    blocking, interprocess and external are accepted for PyTorch's programs and change nothing.

    elapsed_time() raises ValueError without enable_timing, and RuntimeError before record() on both.
    """

    def __init__(self, enable_timing: bool = False, blocking: object = False, interprocess: object = False, external: object = False) -> None:
        self._timed, self._event = enable_timing, _C._Event()

    def record(self, stream: Stream | None = None) -> None:
        """Marks the end of the work that was recorded so far, which starts to run."""
        self._event.record(None if stream is None else stream.device)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another one. Waits for both. Both need enable_timing=True."""
        if not (self._timed and end_event._timed):
            raise ValueError("Event.elapsed_time: an event keeps no time; expected Event(enable_timing=True) for both")
        return self._event.elapsed_ms(end_event._event)

    def synchronize(self):
        """Returns when the device has completed the work that was recorded before the event. An error of that work is raised."""
        self._event.wait()

    def query(self):
        """A bool: whether the device has completed the work that was recorded before the event. The call does not wait."""
        return self._event.passed()

    def wait(self, stream=None):
        """Does nothing: what is recorded later runs after what came before the event, in any case. stream is not used."""


def current_stream(device=None):
    """The Stream that stands for the order of work. All devices and streams have an equal one; device is not used. ValueError for a name that no device has."""
    _gpu.check(device)
    return _stream


default_stream = current_stream


def set_stream(stream):
    """Does nothing; stream is not used. A device has one order of work, so that all streams are equal. Never raises."""


def stream(stream):
    """A context that changes nothing: a device has one order of work, so that all streams are equal. stream: a Stream or None, which is not checked: it is
    returned, and something else is a TypeError in the with statement."""
    return stream if stream is not None else _stream
