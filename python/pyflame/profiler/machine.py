"""Samples clocks, power, temperature and load of a device while a program runs, from sysfs (AMD) and NVML (NVIDIA)."""
import statistics
import threading

from .. import _C
from ..benchmarking import environment

INTERVAL = 0.1  # seconds
_BUSY = 50  # percent: of a GPU whose clocks count, because idle XCDs lower theirs
SHOWN = {"power_w": ("power", "W"), "clock_mhz": ("clock", "MHz"), "memory_clock_mhz": ("memory clock", "MHz"), "temperature_c": ("temperature", "degrees"), "busy_percent": ("busy", "%")}
_CURVES = SHOWN | {"xcd_clock_low_mhz": ("lowest clock of an XCD", "MHz"), "xcd_clock_high_mhz": ("highest clock of an XCD", "MHz")}


class MachineSampler:
    """Samples until stop(). `rows` has (nanoseconds of the profiler's clock, device, values)."""

    def __init__(self, devices, interval=INTERVAL):
        self._devices = devices
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyflame-machine", daemon=True)
        self.rows = []

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._done.set()
        self._thread.join()

    def _run(self):
        while True:
            for device in self._devices:
                self.rows.append((_C._profiler_now(), device, environment.state(device)))
            if self._done.wait(self._interval):
                return

    def counters(self, start):
        """Lines of a Chrome trace that draw the values. `start`: of the recording, in nanoseconds."""
        for at, device, values in self.rows:
            for key, (name, unit) in _CURVES.items():
                if key in values and at >= start:
                    yield {"ph": "C", "name": f"{name} of {device} ({unit})", "ts": (at - start) / 1e3, "args": {unit: values[key]}}

    def summary(self):
        """Lines such as `cuda:0: power 612 W (410 to 655, limit 700), clock 1980 MHz`, and a line for each limit that was reached."""
        lines = []
        for device in self._devices:
            states = [values for _, d, values in self.rows if d == device]
            parts = []
            for key, (name, unit) in SHOWN.items():
                values = [s[key] for s in states if key in s]
                if not values:
                    continue
                spread = f" ({min(values):.0f} to {max(values):.0f})" if max(values) - min(values) >= 1 else ""
                limit = f", of at most {states[-1]['power_limit_w']:.0f} W" if key == "power_w" and "power_limit_w" in states[-1] else ""
                parts.append(f"{name} {statistics.median(values):.0f} {unit}{spread}{limit}")
            if parts:
                lines.append(f"{device}: {'; '.join(parts)}")
            lines += _xcds(device, states)
            for key, what in (("thermal_limit", "its temperature"), ("power_limit", "its power limit")):
                reached = sum(bool(s.get(key)) for s in states)
                if reached:
                    lines.append(f"{device}: its clock was lowered because of {what} in {100 * reached / len(states):.0f} % of the samples")
        return lines


def _xcds(device, states):
    """A line on how far the clocks of the XCDs lie apart, and what this says of shares of the peak; none where they are not known."""
    known = [s for s in states if len(s.get("xcd_clocks_mhz", ())) > 1]
    known = [s for s in known if s.get("busy_percent", 100) >= _BUSY] or known
    if not known:
        return []
    low, spread, most = (statistics.median(values) if (values := [s[key] for s in known if key in s]) else None for key in ("xcd_clock_low_mhz", "xcd_clock_spread_mhz", "clock_max_mhz"))
    share = f"; at the lowest clock the peak is {low / most:.0%} of the data sheet's, so that a share of the peak is {most / low:.2f} times as large" if most and most >= low else ""
    return [f"{device}: the clocks of its {len(known[0]['xcd_clocks_mhz'])} XCDs lie {spread:.0f} MHz apart, the lowest is {low:.0f} MHz{share}"]
