"""Shows where a region of a program spends its time. The interface is that of torch.profiler.

    with pf.profiler.profile() as prof:
        for x, y in batches:
            with pf.profiler.record_function("train step"):
                train_step(x, y)
            prof.step()
    print(prof.key_averages().table(sort_by="self_cpu_time_total"))
    prof.export_chrome_trace("trace.json.gz")          # for ui.perfetto.dev and `pyflame report`

A region begins and ends with synchronize(), so it contains exactly the work that was recorded in it. Shapes are always recorded.
"""
import enum
import functools
import gzip
import json

from . import _C

_SORT_KEYS = ("self_cpu_time_total", "cpu_time_total", "cpu_time", "count", "bytes", "flops")


class ProfilerAction(enum.Enum):
    """What a schedule can do with a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(enum.Enum):
    """What PyTorch's profiler can be asked for. Here ops are always recorded; device_times=True measures a GPU."""

    CPU, CUDA, XPU = 0, 2, 1


def supported_activities():
    """All of them."""
    return set(ProfilerActivity)


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A function for on_trace_ready, which writes a trace for Chrome or Perfetto to a folder."""

    def write(profiler):
        import os
        import socket
        import time

        if use_gzip:
            raise NotImplementedError("tensorboard_trace_handler: use_gzip is not available; expected False")
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        profiler.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json"))

    return write


def schedule(*, wait, warmup, active, repeat=0, skip_first=0):
    """Which steps profile(schedule=...) records: after skip_first steps, cycles of `wait` and `warmup` steps that are not recorded and
    `active` ones that are; `repeat` cycles, 0 for no end. on_trace_ready is called at the end of each."""
    for name, value, least in (("wait", wait, 0), ("warmup", warmup, 0), ("active", active, 1), ("repeat", repeat, 0), ("skip_first", skip_first, 0)):
        if value < least:
            raise ValueError(f"schedule: {name} is too small; got {value}; expected at least {least}")
    cycle = wait + warmup + active

    def action(step):
        step -= skip_first
        if step < 0 or (repeat and step // cycle >= repeat):
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD

    return action


class record_function:
    """A named region inside a profile; also a decorator. It costs almost nothing while nothing is recorded."""

    def __init__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"record_function: the name is not a text; got {type(name).__name__}; expected a str")
        self.name = name
        self._began = []

    def __enter__(self):
        self._began.append(_C._range_begin(self.name))
        return self

    def __exit__(self, *exc):
        began = self._began.pop()
        if began is not None:
            _C._range_end(*began)
        return False

    def __call__(self, fn):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with record_function(self.name):
                return fn(*args, **kwargs)

        return wrapped


class FunctionEvent:
    """One event. Times are in microseconds from the start of the profile.

    kind: 'range' (named by the user, backward), 'window' (ops recorded), 'plan', 'run' (of a program), 'step' (a kernel),
    'launch' (of a kernel on a GPU), 'wait', 'allocate', 'memory' (value: bytes in use from then on)."""

    __slots__ = ("name", "kind", "start", "end", "thread", "flow", "value", "work", "bytes", "flops", "_args")

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
        return self.end - self.start

    def __repr__(self):
        return f"<FunctionEvent {self.kind} {self.name!r} at {self.start:.1f} us for {self.duration:.1f} us>"


class FunctionEventAvg:
    """All events of one name (and, with group_by_input_shape, of the same shapes). Times are sums in microseconds; self times exclude nested
    events."""

    __slots__ = ("key", "kind", "work", "count", "cpu_time_total", "self_cpu_time_total", "bytes", "flops", "_args")

    def __init__(self, d):
        for name in self.__slots__[:-1]:
            setattr(self, name, d[name])
        self._args = d["args"]

    @property
    def cpu_time(self):
        """The mean."""
        return self.cpu_time_total / self.count

    @property
    def input_shapes(self):
        """With group_by_input_shape, the shapes of the step's inputs; otherwise empty."""
        return json.loads(self._args).get("Input Dims", [])

    def __repr__(self):
        return f"<FunctionEventAvg {self.kind} {self.key!r}: {self.count} x {self.cpu_time:.1f} us>"


def _time(us):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


class EventList(list):
    """The result of key_averages(): a list of FunctionEventAvg with a method table()."""

    def table(self, sort_by="self_cpu_time_total", row_limit=100, max_name_column_width=60):
        """As text, the largest first. sort_by: self_cpu_time_total, cpu_time_total, cpu_time, count, bytes or flops."""
        sort_by = sort_by or "self_cpu_time_total"
        if sort_by not in _SORT_KEYS:
            raise ValueError(f"table: unknown sort_by; got {sort_by!r}; expected one of {', '.join(_SORT_KEYS)}")
        rows = sorted(self, key=lambda a: getattr(a, sort_by), reverse=True)
        total = sum(a.self_cpu_time_total for a in self) or 1
        shapes = any(a.input_shapes for a in self)
        titles = ["Name", "Kind", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls", "GB/s", "GFLOP/s"] + (["Shapes"] if shapes else [])
        lines = []
        for a in rows if row_limit < 0 else rows[:row_limit]:
            name = a.key if len(a.key) <= max_name_column_width else a.key[: max_name_column_width - 3] + "..."
            step = a.kind == "step" and a.cpu_time_total > 0
            lines.append(
                [
                    name,
                    a.work if a.work else a.kind,
                    f"{a.self_cpu_time_total / total * 100:.2f}%",
                    _time(a.self_cpu_time_total),
                    _time(a.cpu_time_total),
                    _time(a.cpu_time),
                    str(a.count),
                    f"{a.bytes / a.cpu_time_total / 1e3:.2f}" if step and a.bytes else "",
                    f"{a.flops / a.cpu_time_total / 1e3:.1f}" if step and a.flops else "",
                ]
                + ([str(a.input_shapes)] if shapes else [])
            )
        widths = [max([len(t)] + [len(line[i]) for line in lines]) for i, t in enumerate(titles)]
        left = {0, 1, 9}
        row = lambda cells: "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))).rstrip()  # noqa: E731
        rule = "  ".join("-" * w for w in widths)
        text = [rule, row(titles), rule, *map(row, lines), rule]
        if len(lines) < len(rows):
            text.append(f"{len(rows) - len(lines)} more; row_limit=-1 shows all")
        text.append(f"Self CPU time total: {_time(sum(a.self_cpu_time_total for a in self))}")
        return "\n".join(text) + "\n"

    def __str__(self):
        return self.table()


class profile:
    """Records what this process does: `with profile() as prof:`, or start() and stop().

    schedule: a function of the step number that says whether to record it (see schedule()); None: record all. on_trace_ready: called with the profile at the end of
    each recording. device_times: on a GPU the host waits after each kernel, so that a step's time includes the kernel; without it, a step's time is
    the host's launch. Steps on the CPU always have their own times. max_events limits the memory (about 48 bytes per event)."""

    def __init__(self, *, schedule=None, on_trace_ready=None, device_times=False, max_events=1_000_000):
        if schedule is not None and not callable(schedule):
            raise TypeError(f"profile: the schedule cannot be called; got {type(schedule).__name__}; hint: pf.profiler.schedule(wait=1, warmup=1, active=3)")
        self._schedule = schedule
        self._on_trace_ready = on_trace_ready
        self._device_times = bool(device_times)
        self._max_events = int(max_events)
        self._recording = None
        self._on = False
        self._running = False
        self.step_num = 0
        self._step = None

    # ---- the region

    def start(self):
        """Begins the region."""
        if self._running:
            raise RuntimeError("profile: it has been started already; expected stop() before another start()")
        self.step_num = 0
        if self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._begin()
        self._running = True

    def stop(self):
        """Ends the region. Raises an error that occurred in it."""
        if not self._running:
            raise RuntimeError("profile: it has not been started; expected start() before stop()")
        self._running = False
        if self._on:
            self._step = None  # what follows the last step() is no step
            self._end()

    def step(self):
        """Marks the end of a step. The trace gets a range ProfilerStep#N; with a schedule, recording starts or stops here."""
        if not self._running:
            raise RuntimeError("profile: step() outside of the region; expected it between start() and stop()")
        before = self._action()
        self.step_num += 1
        after = self._action()
        if self._on and (before == ProfilerAction.RECORD_AND_SAVE or after in (ProfilerAction.NONE, ProfilerAction.WARMUP)):
            self._end()
        if after in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            return
        if not self._on:
            self._begin()
        else:
            self._end_step()
            self._step = _C._range_begin(f"ProfilerStep#{self.step_num}")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, traceback):
        try:
            self.stop()
        except Exception:
            if kind is None:
                raise
        return False

    def _action(self):
        return self._schedule(self.step_num) if self._schedule else ProfilerAction.RECORD

    def _begin(self):
        _C._profiler_start(self._max_events, self._device_times)
        self._on = True
        self._step = _C._range_begin(f"ProfilerStep#{self.step_num}")

    def _end_step(self):
        if self._step is not None:
            _C._range_end(*self._step)
        self._step = None

    def _end(self):
        try:
            _C.synchronize()  # what the last step recorded belongs to it
        finally:
            self._end_step()
            self._on = False
            self._recording = _C._profiler_stop()
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    # ---- what was recorded

    def _recorded(self, what):
        if self._recording is None:
            raise RuntimeError(f"{what}: there is no recording; expected a region that has ended; hint: stop(), or leave the with block")
        return self._recording

    @property
    def dropped(self):
        """The number of events that were dropped because of max_events."""
        return self._recorded("dropped").dropped

    def events(self):
        """All events, as a list of FunctionEvent."""
        return [FunctionEvent(d) for d in self._recorded("events").events()]

    def key_averages(self, group_by_input_shape=False):
        """Totals by name, or by name and shapes."""
        return EventList(FunctionEventAvg(d) for d in self._recorded("key_averages").averages(bool(group_by_input_shape)))

    def export_chrome_trace(self, path):
        """Writes the trace for ui.perfetto.dev, chrome://tracing and `pyflame report`; compressed if the name ends with .gz."""
        recording = self._recorded("export_chrome_trace")
        path = str(path)
        try:
            with gzip.open(path, "wb", compresslevel=4) if path.endswith(".gz") else open(path, "wb") as file:
                recording.write(file.write)
        except OSError as e:
            raise OSError(f"export_chrome_trace: cannot write '{path}': {e.strerror or e}") from e
