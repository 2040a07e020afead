"""pf.memory.monitor: samples of a device's memory while a block of a program runs."""
import json
import threading
import time

from .. import _C
from . import _machine, _text, stats

_KEPT = ("allocated", "reserved", "free", "arena")
_MOST = 4096  # samples; then every second one is dropped, and the interval doubles


class Monitor:
    """The context that monitor() returns; afterwards it has the samples.

    samples: a list of dicts with time (seconds since the start), allocated, reserved, free and arena, in bytes. peak: the most that was allocated, which
    the allocator counts itself, so that nothing between two samples is missed. report(): a text. save(path): JSON.

    interval: seconds, positive. Raises ValueError for another interval and for a device that does not exist; DeviceError for a device that is not there.
    """

    def __init__(self, interval, device):
        if not isinstance(interval, (int, float)) or isinstance(interval, bool) or not 0 < interval < float("inf"):
            raise ValueError(f"monitor: the interval is not a positive number of seconds; got {interval!r}")
        self.interval, self.device = float(interval), _machine.name_of(device)
        self.samples, self.peak, self.seconds = [], 0, 0.0
        self._thread = None

    def __enter__(self):
        if self._thread is not None:
            raise RuntimeError("monitor: it is running already; expected one `with` block at a time")
        self.samples, self._begin, self._end = [], time.perf_counter(), threading.Event()
        _C.reset_peak_memory(self.device)
        self._sample()
        self._thread = threading.Thread(target=self._run, name="pyflame memory monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._end.set()
        self._thread.join()
        self._thread = None
        self._sample()
        self.peak = _C.memory_stats(self.device)["peak_allocated"]
        self.seconds = time.perf_counter() - self._begin
        return False

    def _sample(self):
        s = stats(self.device)
        self.samples.append({"time": time.perf_counter() - self._begin, **{k: s[k] for k in _KEPT}})
        if len(self.samples) > _MOST:
            del self.samples[1::2]
            self.interval *= 2

    def _run(self):
        while not self._end.wait(self.interval):
            self._sample()

    def report(self):
        """The first, the largest and the last sample, and the peak, as text."""
        if not self.samples:
            return f"memory of {self.device}: no samples; expected `with` to have run"
        largest = max(self.samples, key=lambda s: s["allocated"])
        rows = [["", "seconds", *_KEPT]]
        for name, s in (("begin", self.samples[0]), ("largest sample", largest), ("end", self.samples[-1])):
            rows.append([name, f"{s['time']:.3f}", *(_text.size(s[k]) for k in _KEPT)])
        table = _text.table(rows, right=range(1, 2 + len(_KEPT)))
        return f"memory of {self.device} in {self.seconds:.3f} s, {len(self.samples)} samples, peak {_text.size(self.peak)}\n{table}"

    __str__ = report

    def save(self, path):
        """Writes a JSON object with device, seconds, peak (bytes) and samples to the file path, which is replaced. OSError where it cannot be written."""
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"device": self.device, "seconds": self.seconds, "peak": self.peak, "samples": self.samples}, f)


def monitor(interval=0.1, device=None):
    """A context that looks at a device's memory every `interval` seconds, in a thread.

        with pf.memory.monitor(0.05) as m:
            train()
        print(m.report(), m.peak)

    The peak of the device starts anew at its begin. ValueError for an interval that is not positive."""
    return Monitor(interval, device)
