"""pf.bench: one figure with its interval, or the reasons why there is none."""
from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field

from .. import _C
from . import environment, gpu_metrics

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._annotations import Device

SAMPLE_SECONDS = {"cpu": 5e-4, "gpu": 5e-3}  # least length of a sample: a clock and a synchronisation cost less than a thousandth of it. On the CPU most samples of
# this length fall between two interruptions by other processes, which last longer.
SAMPLING_SECONDS = 0.25  # least time in which samples are drawn
WARMUP_SECONDS = 0.2  # least length of the warm-up: GPUs raise their clocks within it
STEADY = 0.02  # the warm-up ends when the medians of two groups of samples differ by less
REJECTED = 0.10  # spread from which on there is no figure
GROUP = 5  # samples that the warm-up compares
SWITCHES = 50  # a second: from so many on, other processes have taken the cores
COLD_CALLS = 8  # calls of a sample with a cold cache
HOST_BOUND = 0.9  # the part of a sample's time that the host takes to submit the calls, from which on the device waits for the host
MOST_AHEAD = 256  # calls that are queued before the device may begin: the driver's queue holds some hundreds
FEWEST_AHEAD = 8
FEWER_PLACES = "at one place, not"  # how the note begins where arguments are not copied
STAY = {"cpu": 60, "gpu": 6}  # samples at a place before the next one: 30 ms. A cache needs much longer than one call to give up what was there before
MOST_BYTES = {"cpu": 16 << 20, "gpu": 64 << 20}  # of the arguments and results of a call that are copied: larger ones are in no cache, and copies would take memory
FLUSH = 2  # a cold cache: so many times its size is written before each call


@dataclass
class Measurement:
    """Times of one function, in milliseconds for each call.

    The figure is the median of `samples`: of the device's own clock on a GPU, and of the host's on the CPU. `low` and `high` are the 95 % interval of that
    median (by order statistics), `spread` is the distance of the quartiles relative to it. `accepted` is False if the spread is over 10 %; `reasons` says
    what was seen. `wall` are the same samples by the host's clock, `submit` is the part of it before the wait for the device (where that is nearly all, so that the device would wait for the host, `samples` are of other calls, which were
    all queued before the device began), `first_ms` is the first call.
    `name` is what was measured and `device` where. A sample is the mean of `calls` calls; `warmup_calls` came before the samples. `cache` is 'warm' or 'cold', `relative`
    what half of the interval should be at most, relative to the median. `notes` are remarks on the data and the run. `flops` and `bytes` are those of one call; None: unknown.
    `arguments` has a text for each argument, `environment` the machine and its state, `time` the end of the measurement in seconds since 1970.
    pf.bench makes it; the fields are not checked, and nothing is raised for other values.
    """

    name: str
    device: str
    samples: list
    wall: list
    submit: list
    calls: int
    first_ms: float
    warmup_calls: int
    cache: str
    relative: float
    reasons: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    flops: float = None
    bytes: float = None
    arguments: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    time: float = 0.0

    @property
    def median(self):
        """The median of the samples: milliseconds for each call, a float. It is the figure of the measurement."""
        return statistics.median(self.samples)

    @property
    def interval(self):
        """(low, high): the 95 % interval of the median in milliseconds, by order statistics of the samples."""
        return median_interval(self.samples)

    @property
    def spread(self):
        """How far the samples lie from each other, as a fraction of their median."""
        return spread_of(self.samples)

    @property
    def accepted(self):
        """Whether the samples spread little enough for a figure: spread is at most 0.10."""
        return self.spread <= REJECTED

    @property
    def steady(self):
        """Whether both ends of the interval are within `relative` times the median of the median. Returns a bool."""
        low, high = self.interval
        return max(high - self.median, self.median - low) <= self.relative * self.median

    @property
    def tflops(self):
        """flops / median: 10^12 floating-point operations a second; None where the operations of a call are unknown."""
        return self.flops / self.median / 1e9 if self.flops else None

    @property
    def gbs(self):
        """bytes / median: 10^9 bytes a second; None where the bytes of a call are unknown."""
        return self.bytes / self.median / 1e6 if self.bytes else None

    def to_dict(self):
        """The measurement as a dict for JSON: all fields, and the figures that follow from the samples, such as median, low and high in milliseconds."""
        low, high = self.interval
        return {**self.__dict__, "median": self.median, "low": low, "high": high, "spread": self.spread, "accepted": self.accepted, "steady": self.steady}

    @classmethod
    def from_dict(cls, record):
        """The Measurement of a dict that to_dict() returned. Figures that follow from the samples are computed again; unknown keys are ignored."""
        return cls(**{k: v for k, v in record.items() if k in cls.__dataclass_fields__})

    def __str__(self):
        low, high = self.interval
        lines = [f"{self.name} on {self.device}: {_ms(self.median)} [{_ms(low)}, {_ms(high)}], {len(self.samples)} samples of {self.calls} call{'s' * (self.calls != 1)}, {self.cache} cache"]
        if not self.accepted:
            lines[0] = f"{self.name} on {self.device}: rejected, the spread of the samples is {self.spread:.0%} ({len(self.samples)} samples around {_ms(self.median)})"
        rates = [f"{rate:.3g} {unit}" for rate, unit in ((self.tflops, "TFLOP/s"), (self.gbs, "GB/s")) if rate]
        if rates and self.accepted:
            lines.append("  " + ", ".join(rates))
        if self.accepted and not self.steady:
            lines.append(f"  the interval is wider than {self.relative:.1%} of the median")
        return "\n".join(lines + [f"  {text}" for text in (*self.reasons, *self.notes)])


def _ms(ms):
    return f"{ms * 1e3:.4g} us" if ms < 1 else f"{ms:.4g} ms" if ms < 1000 else f"{ms / 1e3:.4g} s"


def median_interval(samples):
    """The 95 % interval of the median: two of the sorted samples, whose ranks follow from the binomial distribution (its normal approximation)."""
    ordered, n = sorted(samples), len(samples)
    half = 0.98 * math.sqrt(n)  # 1.96 standard deviations of the number of samples below the median
    return ordered[max(0, math.floor(n / 2 - half) - 1)], ordered[min(n - 1, math.ceil(n / 2 + half))]


def spread_of(samples):
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0


def drift_of(samples):
    """The median of the last third relative to that of the first one, less 1."""
    third = len(samples) // 3
    return statistics.median(samples[-third:]) / statistics.median(samples[:third]) - 1 if third else 0.0


class Sampling:
    """Draws samples until they are enough. `draw(calls)` returns (figure, wall, submit) in milliseconds for each call; `clock` returns seconds. turn: the samples of a round over
    all places: unless the time is over, they are enough only after a whole round, so that each place counts as much as the others."""

    def __init__(self, draw, relative, min_samples, max_seconds, clock=time.perf_counter, tell=None, turn=1):
        self.tell = tell or (lambda part, text: None)  # what a display shows: a part from 0 to 1, and a text
        self.draw, self.relative, self.min_samples, self.max_seconds, self.clock = draw, relative, min_samples, max_seconds, clock
        self.warmup_calls, self.turn = 0, turn

    def warm_up(self, calls):
        """Draws samples until two groups of them agree, for at most a third of the time. False if they never did."""
        start, figures = self.clock(), []
        while True:
            figures.append(self.draw(calls)[0])
            self.warmup_calls += calls
            spent = self.clock() - start
            self.tell(0.0, "warm-up")
            if len(figures) >= 2 * GROUP and spent >= WARMUP_SECONDS:
                before, now = statistics.median(figures[-2 * GROUP:-GROUP]), statistics.median(figures[-GROUP:])
                if abs(now - before) <= STEADY * before:
                    return True
            if spent > self.max_seconds / 3:
                return len(figures) < 2 * GROUP  # too few to tell

    def run(self, calls):
        """Three lists: the figures, the times by the host's clock, and the parts of these before the wait."""
        start, samples, look = self.clock(), [], self.min_samples
        while True:
            samples.append(self.draw(calls))
            spent = self.clock() - start
            if spent > self.max_seconds and len(samples) >= 3:
                break
            if len(samples) < look or spent < SAMPLING_SECONDS:
                continue
            if len(samples) % self.turn:
                continue
            look = len(samples) + max(1, len(samples) // 20)  # sorting the samples after each of them would take longer than drawing them
            figures = [s[0] for s in samples]
            low, high = median_interval(figures)
            middle = statistics.median(figures)
            self.tell(spent / self.max_seconds, f"{len(samples)} samples around {_ms(middle)}")
            if max(high - middle, middle - low) <= self.relative * middle:
                break
        figures = [s[0] for s in samples]
        return figures, [s[1] for s in samples], [s[2] for s in samples]


def _once(call):
    """Its result. The window ends while the result is there, so that nothing of it is dropped as unused."""
    out = call()
    _C.cut()
    return out


class _Timer:
    """Samples of a function on a device. After each call the window ends, so that calls are neither fused with each other nor dropped as unused. further: the same call with its arguments at other places
    in memory. The samples take them in turns."""

    def __init__(self, call, device, flush, further=()):
        self.call, self.device, self.gpu, self.flush = call, device, environment.is_gpu(device), flush
        self.calls, self.results, self.turn = [call, *further], [None] * (1 + len(further)), 0
        self.drawn, self.stay = 0, STAY["gpu" if self.gpu else "cpu"]  # samples so far, and how many at one place
        self.events = _C._Event(), _C._Event()
        self.ahead = 0  # how many calls are queued before the device begins; 0: it begins with the first one
        self.late = 0  # how many samples are the host's times nevertheless

    def one(self):
        return _once(self.call)

    def sample(self, calls):
        if len(self.calls) > 1 and self.drawn % self.stay == 0:
            self._go_on()
        self.drawn += 1
        if self.flush is not None:
            return self._cold(calls)
        figure, wall, submit = self._timed(calls)
        if self.ahead:
            ahead = self._queued_ahead(self.ahead)
            self.late += ahead is None
            figure = figure if ahead is None else ahead
        return figure, wall, submit

    def _go_on(self):
        """To the next place. The results of the other places stay, so that the result of this one is where it was the last time, and not where theirs are."""
        self.results[self.turn] = self.one()
        self.turn = (self.turn + 1) % len(self.calls)
        self.call, self.results[self.turn] = self.calls[self.turn], None

    def queue_ahead(self, calls):
        """Where the host submits calls more slowly than the device computes them, later samples take the device's time of calls that were all queued before the device began. A function
        that waits for the device, or queues too much for the driver, is left as it is."""
        if not self.gpu or self.flush is not None:
            return
        walls, submits = zip(*(self._timed(calls)[1:] for _ in range(3)), strict=True)
        if statistics.median(submits) <= HOST_BOUND * statistics.median(walls):
            return
        ahead = min(calls, MOST_AHEAD)
        while ahead >= FEWEST_AHEAD and not self._queued_ahead(ahead, tries=2):
            ahead //= 2
        self.ahead = ahead if ahead >= FEWEST_AHEAD else 0

    def _queued_ahead(self, calls, tries=10):
        """Milliseconds for each call; None if the device did not wait until all were queued."""
        begin, end = self.events
        for _ in range(tries):
            pause = _C._pause(self.device)
            begin.record(self.device)
            for _ in range(calls):
                self.one()
            end.record(self.device)
            in_time = pause.release()
            _C.synchronize()
            if in_time:
                return begin.elapsed_ms(end) / calls
        return None

    def _timed(self, calls):
        begin, end = self.events
        start = time.perf_counter()
        begin.record(self.device)
        for _ in range(calls):
            self.one()
        end.record(self.device)
        submitted = time.perf_counter()
        _C.synchronize()
        done = time.perf_counter()
        wall = (done - start) * 1e3 / calls
        return (begin.elapsed_ms(end) / calls if self.gpu else wall), wall, (submitted - start) * 1e3 / calls

    def _cold(self, calls):
        """Each call for itself, after a flush of the cache."""
        figures, walls, submits = [], [], []
        for _ in range(calls):
            self.flush()
            _C.synchronize()
            figure, wall, submit = self._timed(1)
            figures.append(figure), walls.append(wall), submits.append(submit)
        return statistics.fmean(figures), statistics.fmean(walls), statistics.fmean(submits)


    def clocks_of_xcds(self, calls):
        """What environment.state() says of the XCDs while they compute some calls, which are no sample: idle XCDs lower their clocks."""
        for _ in range(calls):
            self.one()
        busy = environment.state(self.device)
        _C.synchronize()
        return {key: value for key, value in busy.items() if key.startswith("xcd_clock")}


def _size_of(values):
    """Bytes of a tensor, or of those of a tuple or list; None if there is something else."""
    if isinstance(values, _C.Tensor):
        return values.nbytes
    sizes = [_size_of(v) for v in values] if isinstance(values, (tuple, list)) else [None]
    return None if None in sizes else sum(sizes)


def _holds_tensors(value):
    """Whether a list, tuple or dict has a tensor in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(isinstance(v, _C.Tensor) or _holds_tensors(v) for v in inner)


def _may_be_copied(call, arguments, most):
    """Whether a call takes as long with copies of its arguments, and means the same: they are plain tensors, shared with nobody, which it does not change, and together with its result they have at most so many bytes."""
    tensors = [a for a in arguments if isinstance(a, _C.Tensor)]
    plain = tensors and all(t.is_contiguous() and not t.requires_grad and not t._escaped for t in tensors)
    if not plain or sum(t.nbytes for t in tensors) > most:
        return False
    before = [t._version for t in tensors]
    made = _size_of(_once(call))
    _C.synchronize()
    return made is not None and made + sum(t.nbytes for t in tensors) <= most and [t._version for t in tensors] == before


def _at_other_places(fn, args, kwargs, count):
    """The same call so many times, with copies of its tensors. A short function may take longer or shorter where its operands lie elsewhere: their pages fall into other sets of a cache."""

    def with_copies():
        copies = {id(a): a.clone() for a in (*args, *kwargs.values()) if isinstance(a, _C.Tensor)}
        mine, named = [copies.get(id(a), a) for a in args], {k: copies.get(id(a), a) for k, a in kwargs.items()}
        return lambda: fn(*mine, **named)

    further = [with_copies() for _ in range(count)]
    _C.synchronize()
    return further


def _device_of(args, device):
    if device is not None:
        return str(_C.device(device))
    for a in args:
        if isinstance(a, _C.Tensor):
            return str(a.device)
    return _C.get_device()


def _describe(value):
    if isinstance(value, _C.Tensor):
        return f"{str(value.dtype).rsplit('.', 1)[-1]}{list(value.shape)}"
    return repr(value)[:80] if isinstance(value, (bool, int, float, str, type(None), tuple, list)) else type(value).__name__


def _name_of(fn):
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def _notes_on_data(args):
    """A note on arguments that are all zeros: kernels draw less power on them, and run faster than on real data."""
    zeros = [k for k, a in enumerate(args) if isinstance(a, _C.Tensor) and a.is_floating_point() and a.numel() > 1 and not bool((a != 0).any())]
    return [f"argument {', '.join(map(str, zeros))} is all zeros: kernels run faster on zeros than on real data; hint: pf.randn"] if zeros else []


def _fallbacks():
    """How often each fallback of this process ran, and what it is."""
    return {(f["op"], f["device"], f["ran_on"], f["reason"]): (f["times"], f"{f['op']} on {f['device']} runs on {f['ran_on']}: {f['reason']}") for f in _C.fallbacks()}


def _reasons(samples, relative, warm, before, after, seconds, host_bound, compiled=0):
    found = []
    low, high = median_interval(samples)
    middle = statistics.median(samples)
    if max(high - middle, middle - low) <= relative * middle and spread_of(samples) <= REJECTED:
        return found
    switches = (after["involuntary_switches"] - before["involuntary_switches"]) / max(seconds, 1e-9)
    if switches > SWITCHES:
        found.append(f"other processes used these cores: {switches:.0f} involuntary switches a second; hint: stop them, or bind this one with taskset")
    if compiled:
        found.append(f"{compiled} program{'s' * (compiled > 1)} {'were' if compiled > 1 else 'was'} compiled during the samples: the function computes something new in some of its calls")
    if not warm:
        found.append("the warm-up ended without two equal groups of samples; hint: a larger max_seconds")
    if abs(drift_of(samples)) > STEADY:
        found.append(f"the times drifted by {drift_of(samples):+.1%} during the samples: the clock, the temperature or the function itself changes")
    found += environment.limits(before, after)
    if host_bound:
        found.append("the host was slower than the device, so its own noise is in the figure")
    return found or ["no cause was seen; hint: a larger max_seconds"]


def bench(fn: Callable[..., object], *args: Any, device: Device | None = None, cache: str = "warm", relative: float = 0.01, min_samples: int = 30,
          max_seconds: float = 10.0, places: int = 1, name: str | None = None, flops: float | None = None, bytes: float | None = None,
          tell: Callable[[float, str], object] | None = None, **kwargs: Any) -> Measurement:
    """How long fn(*args, **kwargs) takes, as a Measurement.

    The first call, which may compile kernels, is apart. Then calls warm up until two groups of samples agree within 2 %, and samples are drawn
    until the 95 % interval of their median is within `relative` of it, or for `max_seconds`. cache='cold' empties the last-level cache before each call. On
    a GPU the figure is the device's own time. flops and bytes, of one call, are for rates. tell(part, text) is called
    from time to time, for a display. The result of fn may be anything. device: whose clock and environment count; that of the first tensor among the arguments unless given.
    places: 2 or more copy small tensors among the arguments, and the samples take these copies in turns, in whole rounds as far as max_seconds suffice: a short function may take longer or shorter where its operands lie elsewhere.
    min_samples: how many samples are drawn at least, 3 or more. name: what the Measurement is called; that of fn unless given.

        print(pf.bench(pf.matmul, a, b, flops=2 * 4096**3))

    TypeError if fn cannot be called or places is not an integer, ValueError for a cache or numbers that make no sense. What fn raises is raised.
    """
    if not callable(fn):
        raise TypeError(f"bench: not a function; got {type(fn).__name__}; expected something to call")
    if cache not in ("warm", "cold"):
        raise ValueError(f"bench: no such cache; got {cache!r}; expected 'warm' or 'cold'")
    if isinstance(places, bool) or not isinstance(places, int):
        raise TypeError(f"bench: places is not a number of places; got {places!r}; expected an integer, 1 or more")
    if not (relative > 0 and max_seconds > 0 and min_samples >= 3 and places >= 1):
        raise ValueError(f"bench: numbers that make no sense; got relative={relative}, max_seconds={max_seconds}, min_samples={min_samples}, places={places}; expected more than 0, and 3 samples or more")
    device = _device_of((*args, *kwargs.values()), device)
    notes = _notes_on_data(args)

    def call():
        return fn(*args, **kwargs)

    _C.synchronize()
    start = time.perf_counter()
    _once(call)
    _C.synchronize()
    first = time.perf_counter() - start
    most = MOST_BYTES["gpu" if environment.is_gpu(device) else "cpu"]
    further = ()
    if places > 1 and cache == "warm" and _may_be_copied(call, (*args, *kwargs.values()), most):
        further = _at_other_places(fn, args, kwargs, places - 1)
    elif places > 1:
        notes.append(f"{FEWER_PLACES} {places}: only small plain tensors are copied, which the function does not change, where its result is such tensors and the cache is warm")
    if further and any(_holds_tensors(a) for a in (*args, *kwargs.values())):
        notes.append("tensors within a list, tuple or dict among the arguments are not copied, so they are at one place")
    timer = _Timer(call, device, environment.flusher(device, FLUSH) if cache == "cold" else None, further)
    calls = _calls_for(timer) if cache == "warm" else COLD_CALLS
    timer.queue_ahead(calls)
    sampling = Sampling(timer.sample, relative, min_samples, max_seconds, tell=tell, turn=timer.stay * len(timer.calls))
    warm = sampling.warm_up(calls)
    before, fallbacks, programs, start = environment.state(device), _fallbacks(), _C.program_cache_stats()["misses"], time.perf_counter()
    timer.drawn = 0
    figures, wall, submit = sampling.run(calls)
    notes += [f"fallback: {text}" for key, (times, text) in _fallbacks().items() if times > fallbacks.get(key, (0,))[0]]
    if further and len(figures) % sampling.turn:  # the time was over
        visits, at = divmod(len(figures), timer.stay)
        visits += at > 0
        reached = min(visits, places)
        notes.append(f"{reached} of {places} places were measured; hint: a larger max_seconds" if reached < places else f"the last round over the {places} places is not whole, so some of them count for more; hint: a larger max_seconds")
    seconds, after, compiled = time.perf_counter() - start, environment.state(device), _C.program_cache_stats()["misses"] - programs
    if "xcd_clocks_mhz" in after:
        after.update(timer.clocks_of_xcds(calls))
        notes += [f"{text} while they compute"] if (text := gpu_metrics.sentence(after)) else []
    host_bound = timer.gpu and not timer.ahead and statistics.median(submit) > HOST_BOUND * statistics.median(wall)
    if timer.ahead:
        notes.append(f"host-bound: the host needs {_ms(statistics.median(submit))} to submit a call, so a program that does nothing else takes that long; the figure is the device's time of {timer.ahead} calls that were queued before it began")
    if timer.late:
        notes.append(f"{timer.late} sample{'s' * (timer.late > 1)} {'are' if timer.late > 1 else 'is'} of calls that the device waited for, as the host did not queue them in time")
    if host_bound:
        notes.append(f"host-bound: the host needs {_ms(statistics.median(submit))} to submit a call, and the device waits for it")
    return Measurement(name or _name_of(fn), device, figures, wall, submit, calls, first * 1e3, sampling.warmup_calls, cache, relative,
                       _reasons(figures, relative, warm, before, after, seconds, host_bound, compiled), notes, flops, bytes, [_describe(a) for a in args] + [f"{k}={_describe(v)}" for k, v in kwargs.items()],
                       {**environment.describe(device, fn), "state": after}, time.time())


def _calls_for(timer):
    """How many calls last as long as a sample."""
    calls, least = 1, SAMPLE_SECONDS["gpu" if timer.gpu else "cpu"]
    while True:
        wall = timer.sample(calls)[1] * calls / 1e3
        if wall >= least or calls >= 1 << 20:
            return calls
        calls = max(calls + 1, min(calls * 10, math.ceil(calls * 1.2 * least / max(wall, 1e-7))))
