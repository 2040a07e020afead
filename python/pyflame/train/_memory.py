"""The memory of a run: bytes of the device and of this process, and warnings before memory runs out.

The counters are those of the allocator and of the operating system; to look at them waits for no device. A warning comes if the memory that is left at the peak
of a step is small, or if memory grows from line to line so that it runs out before the run ends."""
from .. import _C
from ..memory import _machine, stats
from ..memory._text import size

_SMALL = 0.05  # of all memory: what is left is small
_LINES = 4  # that grow, one after the other
_STEADY = 1 << 20  # bytes from one line to the next that are no growth


def _process():
    """(bytes, peak bytes) of the host's memory that this process has; (0, 0) where the system does not say."""
    values = {}
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("VmRSS", "VmHWM"):
                    values[name] = int(rest.split()[0]) * 1024
    except OSError:
        pass
    return values.get("VmRSS", 0), values.get("VmHWM", 0)


class MemoryMonitor:
    """device: its name. steps: how many optimizer steps the run has; None if that is not known. The device's peak is counted from now on."""

    def __init__(self, device, steps):
        self.device, self.steps = _machine.name_of(device), steps
        self.on_host = self.device.split(":")[0] in _machine.ON_HOST
        self.given = set()  # which warnings were given
        self.lines = {"device": [], "host": []}  # (step, bytes)
        _C.reset_peak_memory(self.device)

    def look(self):
        """A dict of bytes. Of the device: allocated (tensors and what programs compute in between), peak (the most since the run began), reserved, total (or the limit that
        pf.memory.configure has set) and left (what this process can still take). Of the host: host and host_peak (resident in this process), host_total and host_left."""
        s = stats(self.device)
        total = min(s["limit"] or s["total"], s["total"])
        left = min(s["free"] + s["cached"], total - s["allocated"]) if s["limit"] else s["free"] + s["cached"]
        resident, peak = _process()
        free, host_total = _machine.host_memory()
        return {"allocated": s["allocated"], "peak": s["peak_allocated"], "reserved": s["reserved"], "total": total, "left": max(0, left),
                "host": resident, "host_peak": peak, "host_total": host_total, "host_left": free}

    def short(self, found):
        """What a line of a step says: the device's peak since the run began."""
        return f"memory {size(found['peak'])}"

    def text(self, found):
        """What the line at the end of a short run says."""
        where = "tensors" if self.on_host else self.device
        return (f"memory: {where} {size(found['allocated'])}, peak {size(found['peak'])} of {size(found['total'])}; "
                f"process {size(found['host'])}, peak {size(found['host_peak'])} of {size(found['host_total'])}")

    def warnings(self, found, step):
        """What is to be said after this step, a list of texts; each kind of warning is given once."""
        rooms = {"device": found["left"] - (found["peak"] - found["allocated"])} if found["total"] else {}  # what the peak of the next step leaves; the device 'null' has none
        rooms["host"] = found["host_left"]
        said = []
        for what, room in rooms.items():
            host = what == "host"
            used, total, name = (found["host"], found["host_total"], "the host") if host else (found["allocated"], found["total"], self.device)
            said += self._when_small(what, room, total, name)
            said += self._when_growing(what, room, used, name, step)
        return said

    def _when_small(self, what, room, total, name):
        if room >= _SMALL * total or (what, "small") in self.given or (what == "host" and self.on_host and ("device", "small") in self.given):
            return []
        self.given.add((what, "small"))
        less = ("fewer num_workers and smaller prefetched batches, or data that is read from files when it is needed" if what == "host" and not self.on_host else
                "a smaller batch_size with as many more gradient_accumulation_steps, mixed_precision=True, or model.enable_gradient_checkpointing(); pf.find_batch_size says what fits")
        return [f"memory of {name} is nearly full; got {size(max(0, room))} left at the peak of a step, of {size(total)}; hint: {less}"]

    def _when_growing(self, what, room, used, name, step):
        lines = self.lines[what]
        if (what, "begun") not in self.given:  # the optimizer's state is made in the first steps
            self.given.add((what, "begun"))
            return []
        if lines and used - lines[-1][1] < _STEADY:
            lines.clear()
        lines.append((step, used))
        if len(lines) <= _LINES or (what, "growing") in self.given or (what == "host" and self.on_host and ("device", "growing") in self.given):
            return []
        (first, least), (last, most) = lines[0], lines[-1]
        each = (most - least) / max(1, last - first)
        until = step + int(max(0, room) / each)
        if self.steps is not None and until >= self.steps:
            return []
        self.given.add((what, "growing"))
        cause = ("what training_step, on_step_end or the dataset keep of each step" if what == "host" else
                 "losses and outputs that are kept with their graphs hold the memory of their steps: keep loss.item() or loss.detach(); pf.memory.snapshot() says which lines took it")
        return [f"memory of {name} grows by {size(int(each))} a step; got {size(used)} at step {last}, which will be all at about step {until}; hint: {cause}"]
