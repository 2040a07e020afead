"""What was recorded: events, totals by name, and their table."""
import bisect
import json

from .. import _cells

_ALIASES = {"cuda_time_total": "device_time_total", "cuda_time": "device_time", "self_cuda_time_total": "self_device_time_total",
            "xpu_time_total": "device_time_total", "xpu_time": "device_time", "self_xpu_time_total": "self_device_time_total", "cuda_memory_usage": "device_memory_usage"}
_SORT_KEYS = ("self_cpu_time_total", "cpu_time_total", "cpu_time", "self_device_time_total", "device_time_total", "device_time", "cpu_memory_usage", "device_memory_usage", "count", "bytes", "flops")


class FunctionEvent:
    """One event. Times are in microseconds from the start of the profile.

    kind: 'range' (named by the user, backward), 'window' (ops recorded), 'plan', 'run' (of a program), 'step' (a kernel; on a GPU by the device's
    clock), 'launch' (of a kernel or a graph on a GPU: the host's time), 'wait', 'allocate', 'memory' (value: bytes in use from then on), 'frame' (a
    Python function, by samples), 'ready' (no processor was free for the main thread; where stacks are sampled).

    d: a dict of the recorded values. Raises KeyError for one that is missing.
    """

    __slots__ = ("name", "kind", "start", "end", "thread", "flow", "value", "work", "bytes", "flops", "device", "_args")

    def __init__(self, d):
        for name in self.__slots__[:-1]:
            setattr(self, name, d[name])
        self._args = d["args"]

    @property
    def args(self):
        """Further facts as a dict: ops, impl, Input Dims, Input type, recorded at."""
        return json.loads(self._args)

    @property
    def duration(self):
        """end - start, the time that the event took, a float in microseconds as both of them."""
        return self.end - self.start

    def __repr__(self):
        return f"<FunctionEvent {self.kind} {self.name!r} at {self.start:.1f} us for {self.duration:.1f} us>"


class FunctionEventAvg:
    """All events of one name (and, with group_by_input_shape, of the same shapes; with group_by_stack_n, of the same line). Times are sums in
    microseconds; self times exclude nested events. Device times are those of the steps that were launched meanwhile. first_time is
    the time of the earliest event, which may have compiled, packed or allocated what the later ones use. Memory is what was in use at the
    end of the ranges less what was at their start, in bytes.

    d: a dict of the sums. Raises KeyError for one that is missing.
    """

    __slots__ = ("key", "kind", "work", "count", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total", "first_time", "bytes", "flops", "cpu_memory_usage",
                 "device_memory_usage", "_args")

    def __init__(self, d):
        for name in self.__slots__[:-3]:
            setattr(self, name, d[name])
        self.cpu_memory_usage = self.device_memory_usage = 0
        self._args = d["args"]

    @property
    def cpu_time(self):
        """The mean time of one event on the host, a float in microseconds: cpu_time_total / count."""
        return self.cpu_time_total / self.count

    @property
    def device_time(self):
        """The mean time of one event on the device, a float in microseconds: device_time_total / count."""
        return self.device_time_total / self.count

    @property
    def input_shapes(self):
        """The shapes of the step's inputs, a list of lists, with key_averages(group_by_input_shape=True); otherwise an empty list."""
        return json.loads(self._args).get("Input Dims", [])

    @property
    def stack(self):
        """With group_by_stack_n, the line that recorded the step, in a list; otherwise empty."""
        args = json.loads(self._args)
        return [_cells.in_text(args["recorded at"])] if "recorded at" in args else []

    def __getattr__(self, name):
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        raise AttributeError(name)

    def __repr__(self):
        return f"<FunctionEventAvg {self.kind} {self.key!r}: {self.count} x {self.device_time or self.cpu_time:.1f} us>"


def add_memory(averages, events):
    """Sets the memory of the rows of ranges from the curves of the bytes in use."""
    curves = {}
    for e in events:
        if e.kind == "memory":
            curves.setdefault(e.name.removeprefix("memory of "), []).append((e.start, e.value))
    rows = {a.key: a for a in averages if a.kind == "range"}
    for device, curve in curves.items():
        curve.sort()
        times = [t for t, _ in curve]
        name = "cpu_memory_usage" if device == "cpu" else "device_memory_usage"
        for e in events:
            if e.kind == "range" and e.name in rows:
                first, last = (max(bisect.bisect_right(times, t) - 1, 0) for t in (e.start, e.end))
                setattr(rows[e.name], name, getattr(rows[e.name], name) + curve[last][1] - curve[first][1])


def _time(us):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


def _bytes(n):
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} b"


def _share(part, total):
    return f"{part / (total or 1) * 100:.2f}%"


class EventList(list):
    """The result of key_averages(): a list of FunctionEventAvg with a method table(). memory: the peak of each device by category, as lines.

    Raises TypeError for what cannot be iterated; the events are not checked.
    """

    memory = ()

    def total(self, name):
        """The sum of one figure of all rows. name: that of an attribute of FunctionEventAvg, such as 'self_cpu_time_total'. AttributeError for another."""
        return sum(getattr(a, name) for a in self)

    def _columns(self):
        """(title, text of a row, aligned to the left)"""
        cpu, device = self.total("self_cpu_time_total"), self.total("self_device_time_total")
        speed = lambda a, work, digits: f"{work / us / 1e3:.{digits}f}" if (us := a.self_device_time_total or a.cpu_time_total) and a.kind == "step" and work else ""  # noqa: E731
        columns = [("Name", None, True), ("Kind", lambda a: a.work or a.kind, True),
                   ("Self CPU %", lambda a: _share(a.self_cpu_time_total, cpu), False), ("Self CPU", lambda a: _time(a.self_cpu_time_total), False),
                   ("CPU total %", lambda a: _share(a.cpu_time_total, cpu), False), ("CPU total", lambda a: _time(a.cpu_time_total), False), ("CPU time avg", lambda a: _time(a.cpu_time), False)]
        if device:
            columns += [("Self CUDA", lambda a: _time(a.self_device_time_total), False), ("Self CUDA %", lambda a: _share(a.self_device_time_total, device), False),
                        ("CUDA total", lambda a: _time(a.device_time_total), False), ("CUDA time avg", lambda a: _time(a.device_time), False)]
        for title, name in (("CPU Mem", "cpu_memory_usage"), ("CUDA Mem", "device_memory_usage")):
            if any(getattr(a, name) for a in self):
                columns.append((title, lambda a, name=name: _bytes(getattr(a, name)), False))
        columns += [("# of Calls", lambda a: str(a.count), False), ("GB/s", lambda a: speed(a, a.bytes, 2), False), ("GFLOP/s", lambda a: speed(a, a.flops, 1), False)]
        if any(a.input_shapes for a in self):
            columns.append(("Input Shapes", lambda a: str(a.input_shapes), True))
        if any(a.stack for a in self):
            columns.append(("Source Location", lambda a: " ".join(a.stack), True))
        return columns

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=60, header=None, top_level_events_only=False):
        """As text, the largest first. sort_by: one of the times (self_cpu_time_total, cpu_time_total, cpu_time, self_device_time_total, device_time_total,
        device_time; cuda_… is device_…), cpu_memory_usage, device_memory_usage, count, bytes or flops; by default the device's own time where there is
        one. The columns have PyTorch's names: CUDA stands for any GPU."""
        device = self.total("self_device_time_total") > 0
        sort_by = _ALIASES.get(sort_by, sort_by) or ("self_device_time_total" if device else "self_cpu_time_total")
        if sort_by not in _SORT_KEYS:
            raise ValueError(f"table: unknown sort_by; got {sort_by!r}; expected one of {', '.join(_SORT_KEYS)}")
        rows = sorted(self, key=lambda a: getattr(a, sort_by), reverse=True)
        shown = rows if row_limit < 0 else rows[:row_limit]
        cut = lambda text, width: text if len(text) <= width else text[: width - 3] + "..."  # noqa: E731
        columns = self._columns()
        lines = [[cut(a.key, max_name_column_width)] + [cut(text(a), max_src_column_width) for _, text, _ in columns[1:]] for a in shown]
        widths = [max([len(title)] + [len(line[i]) for line in lines]) for i, (title, _, _) in enumerate(columns)]
        row = lambda cells: "  ".join(c.ljust(w) if left else c.rjust(w) for (_, _, left), c, w in zip(columns, cells, widths)).rstrip()  # noqa: E731
        rule = "  ".join("-" * w for w in widths)
        text = ([header] if header else []) + [rule, row([title for title, _, _ in columns]), rule, *map(row, lines), rule]
        if len(lines) < len(rows):
            text.append(f"{len(rows) - len(lines)} more; row_limit=-1 shows all")
        text.append(f"Self CPU time total: {_time(self.total('self_cpu_time_total'))}")
        if device:
            text.append(f"Self CUDA time total: {_time(self.total('self_device_time_total'))}")
        text += self.memory
        return "\n".join(text) + "\n"

    def __str__(self):
        return self.table()
