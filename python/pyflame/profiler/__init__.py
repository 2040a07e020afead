"""Shows where a region of a program spends its time. The interface is that of torch.profiler.

    with pf.profiler.profile() as prof:
        for x, y in batches:
            with pf.profiler.record_function("train step"):
                train_step(x, y)
            prof.step()
    print(prof.key_averages().table(sort_by="self_cpu_time_total"))
    prof.export_chrome_trace("trace.json.gz")          # for ui.perfetto.dev and `pyflame report`

A region begins and ends with synchronize(), so it contains exactly the work that was recorded in it. Shapes, FLOPs and the line that recorded an op are
always there.
"""
import enum
import functools
import gzip
import json
import threading
import weakref

from .. import _C, _cells, _gpu, _refused
from .memory import MemoryRecorder
from .ranges import emit_nvtx, emit_ranges
from .stacks import StackSampler, name_of
from .tables import EventList, FunctionEvent, FunctionEventAvg, add_memory

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "StackSampler", "emit_nvtx", "emit_ranges", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]


_last = lambda: None  # noqa: E731; the profile that ended last, as long as it exists


def last_averages():
    """The steps of the profile that ended last, by shapes; None without one, or if the program keeps it no longer. For pf.explain."""
    profiler = _last()
    return profiler.key_averages(group_by_input_shape=True) if profiler else None


_background = []


def in_background(stop):
    """There is a recording that ends, by stop(), when the program asks for one of its own. None: it may end now. For `pyflame explain`."""
    give_way()
    if stop is not None:
        _background.append(stop)


def give_way():
    """Ends the recording in the background."""
    while _background:
        _background.pop()()


class ProfilerAction(enum.Enum):
    """What a schedule returns for a step: NONE (do nothing), WARMUP (prepare), RECORD (record it), RECORD_AND_SAVE (record it, then call on_trace_ready).

    Raises ValueError for a value of no member.
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(enum.Enum):
    """What profile(activities=) can be asked for. What the host does is always recorded; CUDA (any GPU) adds the device's times.

    Raises ValueError for a value of no member.
    """

    CPU, CUDA, XPU = 0, 2, 1


def supported_activities():
    """The values that profile(activities=) takes, a new set of all members of ProfilerActivity."""
    return set(ProfilerActivity)


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A function for on_trace_ready, which writes a trace for Chrome or Perfetto to a folder.

    dir_name: the folder, which is made where it is missing. worker_name: begins the names of the files; the host and the process unless given. It raises
    nothing at once; the function that it returns raises OSError where the folder cannot be made, and NotImplementedError with use_gzip.
    """

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
    `active` ones that are; `repeat` cycles, 0 for no end. on_trace_ready is called at the end of each.

    Raises ValueError for a negative number of steps and for an active of 0.
    """
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
    """A named region inside a profile; also a decorator. It costs almost nothing while nothing is recorded.

    name: a str; anything else is a TypeError.
    """

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


class profile:
    """Records what this process does: `with profile() as prof:`, or start() and stop().

    activities: ProfilerActivity values; without CUDA the steps on a GPU have only the host's times for their launches. None: all.
    schedule: a function of the step number that says whether to record it (see schedule()); None: record all.
    on_trace_ready: called with the profile at the end of each recording.
    profile_memory: adds the change of the memory in use to the rows of ranges, and logs the allocator for memory_timeline().
    with_stack: samples the Python stacks, for the trace and export_stacks().
    max_events limits the memory (about 48 bytes per event).
    record_shapes, with_flops, with_modules, experimental_config, acc_events and use_cuda are PyTorch's and change nothing: shapes and FLOPs are always recorded.

    Raises ValueError for activities that are no ProfilerActivity; TypeError for activities that cannot be iterated, a schedule that cannot be called and
    an unknown setting; RuntimeError for stop() before start().
    """

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False, with_modules=False,
                 experimental_config=None, acc_events=False, use_cuda=None, max_events=1_000_000):
        if schedule is not None and not callable(schedule):
            raise TypeError(f"profile: the schedule cannot be called; got {type(schedule).__name__}; hint: pf.profiler.schedule(wait=1, warmup=1, active=3)")
        activities = supported_activities() if activities is None else set(activities)
        unknown = activities - supported_activities()
        if unknown or not activities:
            raise ValueError(f"profile: not activities; got {sorted(map(str, unknown)) or 'none'}; expected values of pf.profiler.ProfilerActivity")
        self._schedule = schedule
        self._on_trace_ready = on_trace_ready
        self._device_times = bool(activities - {ProfilerActivity.CPU})
        self._memory = bool(profile_memory)
        self._with_stack = bool(with_stack)
        self._max_events = int(max_events)
        self._recording = None
        self._sampler = None
        self._memory_recorder = None
        self._timelines = {}
        self._on = None  # the action of the recording that runs
        self._running = False
        self._first_step = 0  # how many steps the program had done before
        self.step_num = 0
        self._step = None

    # ---- the region

    def start(self):
        """Begins the region that is profiled. RuntimeError if it has begun, or with with_stack=True in a thread other than the main one."""
        if self._running:
            raise RuntimeError("profile: it has been started already; expected stop() before another start()")
        if self._with_stack and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("profile: stacks cannot be sampled here; got another thread; expected with_stack=True in the main thread, to which Python sends signals")
        self.step_num = self._first_step
        self._begin(self._action())
        self._running = True

    def stop(self):
        """Ends the region and waits for the steps in it. RuntimeError if it has not begun. An error of an op in the region is raised here."""
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
        self.step_num += 1
        action = self._action()
        same = self._on == ProfilerAction.RECORD and action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self._on and not same:
            self._end()
        if same:
            self._on = action
            self._end_step()
            self._begin_step()
        else:
            self._begin(action)

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

    def _begin(self, action):
        """A warm-up is recorded, too, and thrown away: the device's steps are timed then, and what a first recording allocates is allocated."""
        if action == ProfilerAction.NONE:
            return
        give_way()
        _C._profiler_start(self._max_events, self._device_times)
        self._on = action
        if self._memory:
            try:
                self._memory_recorder = MemoryRecorder().start()
            except BaseException:
                self._on = None
                _C._profiler_stop()
                raise
        if self._with_stack:
            self._sampler = StackSampler().start()
        self._begin_step()

    def _begin_step(self):
        self._step = _C._range_begin(f"ProfilerStep#{self.step_num}")

    def _end_step(self):
        if self._step is not None:
            _C._range_end(*self._step)
            if self._memory_recorder is not None:
                self._memory_recorder.note()
        self._step = None

    def _end(self):
        action, self._on = self._on, None
        try:
            _C.synchronize()  # what the last step recorded belongs to it
        finally:
            self._end_step()
            if self._sampler is not None:
                self._sampler.stop()
            recorder, self._memory_recorder = self._memory_recorder, None
            try:
                timelines = recorder.stop() if recorder is not None else {}
            finally:
                recording = _C._profiler_stop()
        if action == ProfilerAction.WARMUP:
            return
        self._recording, self._timelines = recording, timelines
        global _last
        _last = weakref.ref(self)
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    # ---- what was recorded

    def _recorded(self, what):
        if self._recording is None:
            raise RuntimeError(f"{what}: there is no recording; expected a region that has ended; hint: stop(), or leave the with block")
        return self._recording

    @property
    def dropped(self):
        """The number of events that were not kept because there were more than max_events, an int. RuntimeError before anything was recorded."""
        return self._recorded("dropped").dropped

    def events(self):
        """All events of the last recording, a list of FunctionEvent. RuntimeError before anything was recorded."""
        return [FunctionEvent(d) for d in self._recorded("events").events()]

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """Totals by name; also by shapes, and, if group_by_stack_n is not 0, by the line that recorded the op. group_by_overload_name changes nothing: what is recorded has no
        overloads, and each name is one thing."""
        averages = EventList(FunctionEventAvg(d) for d in self._recorded("key_averages").averages(bool(group_by_input_shape), group_by_stack_n > 0))
        if self._memory:
            add_memory(averages, self.events())
            averages.memory = [t.text() for t in self._timelines.values() if t.peak_bytes]
        return averages

    def memory_timeline(self, device=None):
        """The memory by category over time, as a MemoryTimeline with `times`, `sizes` and `peak`. device: such as "cpu" or "cuda:0"; default: the GPU if there is one."""
        self._recorded("memory_timeline")
        if not self._memory:
            raise RuntimeError("memory_timeline: no memory was recorded; hint: profile(profile_memory=True)")
        if device is None:
            device = next(reversed(self._timelines))
        name = "cpu" if str(device) == "cpu" else _gpu.name_of(device)
        if name not in self._timelines and name.startswith("cuda"):  # PyTorch's name of an AMD GPU, too
            name = name.replace("cuda", "rocm")
        if name not in self._timelines:
            raise ValueError(f"memory_timeline: nothing was allocated on the device; got {name}; expected one of {', '.join(self._timelines)}")
        return self._timelines[name]

    def export_memory_timeline(self, path, device=None):
        """Writes the memory by category over time: a page (.html), or [times, sizes] in PyTorch's form (.json, .json.gz), whose rows have 0, the bytes of PyTorch's eight
        categories (parameters, optimizer state, inputs, temporaries, activations, gradients, autograd's, unknown), and the holes."""
        self.memory_timeline(device).export(path)

    def export_chrome_trace(self, path, counters=None):
        """Writes the trace for ui.perfetto.dev, chrome://tracing and `pyflame report`; compressed if the name ends with .gz. counters: a function that
        gets the start of the recording in nanoseconds and yields further events of the trace, as dicts."""
        recording = self._recorded("export_chrome_trace")
        path = str(path)
        try:
            with gzip.open(path, "wb", compresslevel=4) if path.endswith(".gz") else open(path, "wb") as file:
                more = [counters(recording.start)] if counters else []
                more += [timeline.counters(recording.start) for timeline in self._timelines.values()]
                further = "".join(",\n" + json.dumps(event) for events in more for event in events)
                recording.write(file.write, further)
        except OSError as e:
            raise OSError(f"export_chrome_trace: cannot write '{path}': {e.strerror or e}") from e

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes `outer;inner microseconds` lines, which flame graphs are made of. metric: self_cpu_time_total needs with_stack=True and has the sampled
        Python stacks of all threads; self_device_time_total (self_cuda_time_total) has each step below the line that recorded it."""
        recording = self._recorded("export_stacks")
        if metric == "self_cpu_time_total":
            if self._sampler is None:
                raise RuntimeError("export_stacks: no stacks were recorded; hint: profile(with_stack=True)")
            totals = {";".join(f"{name_of(code).rpartition(': ')[2]} ({_cells.shown(code.co_filename)}:{line})" for code, line in stack): seconds * 1e6 for stack, seconds in self._sampler.seconds.items()}
        elif metric in ("self_device_time_total", "self_cuda_time_total"):
            rows = [FunctionEventAvg(d) for d in recording.averages(False, True)]
            totals = {";".join(a.stack + [a.key]): a.self_device_time_total for a in rows if a.self_device_time_total}
        else:
            raise ValueError(f"export_stacks: unknown metric; got {metric!r}; expected self_cpu_time_total or self_device_time_total")
        with open(path, "w") as file:
            file.writelines(f"{stack.replace(chr(10), ' ')} {round(us)}\n" for stack, us in sorted(totals.items()))


_refused.unknown(globals())
