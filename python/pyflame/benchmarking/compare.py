"""Whether one measurement is faster than another, or whether nobody can tell."""
import statistics
from dataclasses import dataclass

from .measure import Measurement, Sampling, _Timer, _calls_for, _device_of, _name_of

RESAMPLES = 4000
WORTH = 0.005  # a ratio that differs from 1 by less counts as no difference


@dataclass
class Comparison:
    """ratio = time of the first / time of the second: above 1 the second is faster. low, high: the 95 % interval by the bootstrap.

    first, second: the names. paired: the samples were drawn alternately, and the ratio is the median of the pairs' ratios.
    A ratio that differs from 1 by less than WORTH counts as no difference. compare() and compare_functions() make it; the fields are not checked, and nothing is raised for other values."""

    first: str
    second: str
    ratio: float
    low: float
    high: float
    paired: bool

    @property
    def verdict(self):
        """'faster', 'slower' or 'same': the second compared with the first. 'same' unless the interval is beyond the difference that counts."""
        if self.low > 1 + WORTH:
            return "faster"
        if self.high < 1 - WORTH:
            return "slower"
        return "same"

    def to_dict(self):
        """The comparison as a dict of numbers and texts for JSON: the names, ratio, low, high, paired, and the verdict."""
        return {**self.__dict__, "verdict": self.verdict}

    def __str__(self):
        figures = f"{self.ratio:.3f} times [{self.low:.3f}, {self.high:.3f}]"
        if self.verdict == "same":
            return f"no difference between {self.first} and {self.second} that can be told from noise: {figures}"
        return f"{self.second} is {self.verdict} than {self.first}: {figures}"


def _interval(ratios):
    ratios = sorted(ratios)
    return ratios[int(0.025 * len(ratios))], ratios[min(len(ratios) - 1, int(0.975 * len(ratios)))]


def bootstrap(first, second, paired=False, seed=0):
    """(ratio, low, high): the ratio of the medians of two lists of samples. paired: samples with the same number were drawn beside each other, so the ratio is the
    median of their ratios, in which a drift that meets both is not seen."""
    import numpy as np

    a, b, random = np.asarray(first, float), np.asarray(second, float), np.random.default_rng(seed)
    if paired:
        fewest = min(len(a), len(b))
        ratios = a[:fewest] / b[:fewest]
        middle, drawn = np.median(ratios), np.median(ratios[random.integers(0, fewest, (RESAMPLES, fewest))], 1)
    else:
        middle = np.median(a) / np.median(b)
        drawn = np.median(a[random.integers(0, len(a), (RESAMPLES, len(a)))], 1) / np.median(b[random.integers(0, len(b), (RESAMPLES, len(b)))], 1)
    return (float(middle), *map(float, _interval(drawn.tolist())))


def compare(first, second):
    """A Comparison of two Measurements that were made one after the other. The interval of the ratio is drawn by a bootstrap of both lists of samples. TypeError
    for what is no Measurement."""
    for m in (first, second):
        if not isinstance(m, Measurement):
            raise TypeError(f"compare: not a Measurement; got {type(m).__name__}; expected what pf.bench returned")
    return Comparison(first.name, second.name, *bootstrap(first.samples, second.samples), paired=False)


def compare_functions(first, second, *args, device=None, max_seconds=10.0, relative=0.005, min_samples=30, names=None):
    """Compares two functions of the same arguments. Their samples are drawn alternately, so that a change of the clock meets both; until the interval of the
    ratio is within `relative`, or for max_seconds. Returns a Comparison.

    first, second: the functions. args: their arguments. device: as in bench. min_samples: how many samples of each are drawn at least, if max_seconds suffice.
    names: two names for the result; those of the functions unless given. TypeError for what is no function. ValueError for names that are not two, a max_seconds
    that is not above 0 and an unknown device; DeviceError for one that is not there. Errors of the functions come through."""
    for function in (first, second):
        if not callable(function):
            raise TypeError(f"compare_functions: not a function; got {type(function).__name__}; expected two functions")
    if names is not None and (isinstance(names, str) or len(names) != 2):
        raise ValueError(f"compare_functions: names are not two; got {names!r}; expected two names, or None")
    if not max_seconds > 0:
        raise ValueError(f"compare_functions: max_seconds is not a time; got {max_seconds!r}; expected a number above 0")
    device = _device_of(args, device)
    timers = [_Timer(lambda fn=fn: fn(*args), device, None) for fn in (first, second)]
    calls = []
    for t in timers:
        t.one()
        calls.append(_calls_for(t))
        t.queue_ahead(calls[-1])
        Sampling(t.sample, relative, min_samples, max_seconds / 3).warm_up(calls[-1])
    return _alternately([t.sample for t in timers], calls, names or (_name_of(first), _name_of(second)), relative, min_samples, max_seconds)


def _alternately(draws, calls, names, relative, min_samples, max_seconds, clock=None):
    import time

    clock = clock or time.perf_counter
    figures, start, turn = ([], []), clock(), 0
    while True:
        for k in (0, 1) if turn % 2 else (1, 0):
            figures[k].append(draws[k](calls[k])[0])
        turn += 1
        if turn >= min_samples and turn % 10 == 0 or clock() - start > max_seconds and turn >= 3:
            ratio, low, high = bootstrap(*figures, paired=True)
            if max(high - ratio, ratio - low) <= relative * ratio or clock() - start > max_seconds:
                return Comparison(*names, ratio, low, high, paired=True)
