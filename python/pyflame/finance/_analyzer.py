"""VolumeProfileAnalyzer: totals by price on a device, chunk by chunk.

One op reads each chunk once: it finds the bins, adds the volumes, and says which range of bins there was and whether something cannot be used. The op
adds into a window of bins. A sample of the prices says where the window begins and ends; a chunk with prices outside of it is read again with a
larger one."""
import numbers
import sys
import time

import numpy as np

from .. import _C
from .._bar import bar
from . import _sources
from ._profile import VolumeProfile, whole_inverse

_MOST_BINS = 1 << 27  # 1 GiB of totals
_EXACT = 2.0**50  # the op finds bins up to here
_SAMPLE = 4096  # prices that are looked at first
_SMALL = 1 << 16  # bins whose totals are read along with what else a chunk says


class VolumeProfileAnalyzer:
    """Volume profiles of trades (ticks).

    price_precision: the width of a bin, such as the tick size of the instrument. Bin k holds the prices p whose p / price_precision, computed in float64,
    rounds to k (halves to the even number), so prices that are whole ticks never fall on the edge of a bin.
    device: where the totals are added: 'cpu', 'rocm', 'cuda', 'cuda:1' and so on; default: the current device. device_ids: a list with the one number
    of the device, for programs that give it apart from its type.
    chunk_size: how many ticks of the host's memory are on a GPU at once, with 16 bytes each, and how many are added between two reports of
    progress. Tensors that are on the device are one chunk.
    value_area: the share of the volume that the value area holds.
    progress: True prints a line on stderr while work goes on, False does not; None does so in a terminal, for work of more than two seconds.
    A function is called with (ticks that are done, all ticks) after each chunk.

    Integer volumes are added as int64, and the totals are exact. Other volumes are added as float64, in an order that depends on the device, on
    chunk_size and on the numbers of ticks and bins, so it is the same in each run with the same data, whatever the number of threads is.

    What is analysed (`data` of the methods): an array of prices, with the volumes as the second argument; or anything with columns by name, such as a
    DataFrame, an Arrow table or a dict of arrays; or the path of a CSV file or, where PyArrow is installed, of a Parquet file. Arrays are
    what NumPy can read, or tensors, which stay where they are. Columns are found by their names, whatever their case: price, close or last; volume,
    size, quantity or qty; session; timestamp, datetime, time or date. `columns`, a dict such as {"price": "bid"}, says what the names are instead.

    ValueError for a price_precision that is not above 0, a chunk_size that is no integer of 1 or more, several device_ids, a value_area that is not above 0 and
    at most 1, and an unknown device; DeviceError for a device that is not there; TypeError for another progress, and for device_ids that are no list."""

    def __init__(self, price_precision=0.25, device=None, chunk_size=1 << 22, *, device_ids=None, value_area=0.7, progress=None):
        op = "VolumeProfileAnalyzer"
        if isinstance(price_precision, bool) or not isinstance(price_precision, numbers.Real) or not 0 < price_precision < float("inf"):
            raise ValueError(f"{op}: price_precision is not the width of a bin; got {price_precision!r}; expected a number above 0")
        if isinstance(chunk_size, bool) or not isinstance(chunk_size, numbers.Integral) or chunk_size < 1:
            raise ValueError(f"{op}: chunk_size is not a number of ticks; got {chunk_size!r}; expected an integer of 1 or more")
        if not isinstance(value_area, numbers.Real) or not 0 < value_area <= 1:
            raise ValueError(f"{op}: value_area is out of range; got {value_area!r}; expected a share above 0, and at most 1")
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise TypeError(f"{op}: progress does not fit; got {type(progress).__name__}; expected True, False, None or a function")
        device = _C.get_device() if device is None else str(device)
        if device_ids is not None:
            if len(device_ids) != 1:
                raise ValueError(f"{op}: device_ids does not fit; got {list(device_ids)}; expected one number; hint: analyse parts in processes of their own")
            device = f"{device.split(':')[0]}:{device_ids[0]}"
        _C.zeros(1, dtype=_C.int64, device=device)  # a device that is absent is an error here
        self.price_precision, self.device, self.chunk_size = float(price_precision), device, int(chunk_size)
        self.value_area, self.progress = float(value_area), progress

    def profile(self, data, volumes=None, *, columns=None):
        """One VolumeProfile of all ticks. ValueError if there are none, a price is not finite, a volume is negative or not finite, the lengths differ, or the
        prices are too far apart for price_precision; OverflowError if integer totals may not fit into int64."""
        op = "VolumeProfileAnalyzer.profile"
        prices, volumes, _, _ = _sources.ticks(op, data, volumes, None, None, columns)
        with _Progress(self.progress, len(prices)) as progress:
            return self._profile(op, prices, volumes, None, progress)

    def sessions(self, data, volumes=None, *, sessions=None, timestamps=None, session_length="1 D", columns=None):
        """One VolumeProfile for each session, ascending, as a list; `session` of each says which it is.

        sessions: the session of each tick: integers, text, dates. timestamps: its time instead, as datetime64, text in ISO 8601 form, or numbers of
        seconds since 1970; sessions are then the spans of session_length ('1 D', '30 m', '1 h', '10 s' or a timedelta64) that begin at multiples of
        it since 1970, each named by its begin. Ticks need no order; those of one session are added in the order in which they come.
        Errors as those of profile(); ValueError without sessions and timestamps, or with both."""
        op = "VolumeProfileAnalyzer.sessions"
        prices, volumes, keys, times = _sources.ticks(op, data, volumes, sessions, timestamps, columns)
        if keys is None:
            keys = _sources.spans(op, times, session_length)
        found, begins, order = _sources.parts(keys)
        if order is not None:
            prices, volumes = _sources.reordered(prices, order), _sources.reordered(volumes, order)
        ends = [*begins[1:], len(prices)]
        with _Progress(self.progress, len(prices)) as progress:
            return [self._profile(op, prices[a:b], volumes[a:b], name, progress) for name, a, b in zip(found, begins, ends)]

    def rolling(self, profiles, window):
        """For each of these profiles, from the window-th on, the sum of it and the window - 1 profiles before it; its session is that of the last one. Totals
        are added in the order of the sessions. ValueError if window does not fit or a profile has another price_precision."""
        profiles = list(profiles)
        if isinstance(window, bool) or not isinstance(window, numbers.Integral) or not 1 <= window <= len(profiles):
            raise ValueError(f"VolumeProfileAnalyzer.rolling: window does not fit; got {window!r} for {len(profiles)} profiles; expected an integer from 1 to their number")
        other = next((p.price_precision for p in profiles if p.price_precision != self.price_precision), None)
        if other is not None:
            raise ValueError(f"VolumeProfileAnalyzer.rolling: a profile has other bins; got price_precision {other:g}; expected {self.price_precision:g}")
        return [self._sum(profiles[at - window:at]) for at in range(window, len(profiles) + 1)]

    def _sum(self, profiles):
        first = min(p.first for p in profiles)
        size = max(p.first + len(p.volumes) for p in profiles) - first
        whole = all(p.volumes.dtype == np.int64 for p in profiles)
        if whole and sum(p.total for p in profiles) >= 2**63:
            raise OverflowError("VolumeProfileAnalyzer.rolling: the totals are too large; expected a sum below 2**63")
        totals = np.zeros(size, np.int64 if whole else np.float64)
        for p in profiles:
            totals[p.first - first:p.first - first + len(p.volumes)] += p.volumes
        ticks = None if any(p.ticks is None for p in profiles) else sum(p.ticks for p in profiles)
        return VolumeProfile(first, totals, self.price_precision, profiles[-1].session, ticks, self.value_area)

    def _profile(self, op, prices, volumes, session, progress):
        if len(prices) == 0:
            raise ValueError(f"{op}: there are no ticks; got 0; expected at least one")
        totals = _Totals(op, self, _sources.is_integer(volumes))
        totals.expect(*_sources.sampled_range(prices, _SAMPLE))
        chunk = len(prices) if _sources.is_on(prices, self.device) and _sources.is_on(volumes, self.device) else self.chunk_size
        for begin in range(0, len(prices), chunk):
            end = min(begin + chunk, len(prices))
            totals.add(_sources.on_device(prices[begin:end], self.device, _C.float64), _sources.on_device(volumes[begin:end], self.device, totals.dtype), begin)
            progress.add(end - begin)
        first, values = totals.result()
        return VolumeProfile(first, values, self.price_precision, session, len(prices), self.value_area)


class _Totals:
    """The totals of a growing window of bins, on the device: `size` bins from `start` on, of which those from `low` to `high` are in use."""

    def __init__(self, op, analyzer, whole):
        self.op, self.device, self.precision = op, analyzer.device, analyzer.price_precision
        inverse = whole_inverse(self.precision)
        self.scale, self.divide = (inverse, False) if inverse else (self.precision, True)
        self.dtype = _C.int64 if whole else _C.float64
        self.values, self.start, self.size, self.low, self.high, self.sum = None, 0, 1, None, None, 0
        self.read = None  # the totals on the host, where they have been read

    def expect(self, lowest, highest):
        """Places the window for prices of about this range. Whether the prices can be used is not asked here."""
        low, high = (self._quotient(p) for p in (lowest, highest))
        if abs(low) < _EXACT and abs(high) < _EXACT and high - low < _MOST_BINS:
            self.start, self.size = _window(round(low), round(high))

    def _quotient(self, price):
        return price / self.scale if self.divide else price * self.scale

    def add(self, prices, volumes, position):
        sums, stats = _C._bin_sums(prices, volumes, self.scale, self.divide, self.start, self.size)
        self.read = None
        if self.values is None and self.size <= _SMALL:  # of the only chunk these are the totals: the device is waited for once
            both = _C.cat([stats, sums.view(_C.int64)]).cpu().numpy()
            stats, self.read = both[:4], both[4:]
        low, high, most, unusable = stats.tolist()
        if unusable:
            self._refuse(prices.to(_C.float64), volumes, position)
        self.sum += most * len(volumes)
        if self.sum >= 2**63:
            raise OverflowError(f"{self.op}: integer totals may not fit into int64; got volumes up to {most}; expected a sum below 2**63; hint: pass float64 volumes")
        if low < self.start or high >= self.start + self.size:
            self._grow(low, high)
            self.read = None
            sums, _ = _C._bin_sums(prices, volumes, self.scale, self.divide, self.start, self.size)
        self.low, self.high = (low, high) if self.values is None else (min(low, self.low), max(high, self.high))
        self.values = sums if self.values is None else self.values.add_(sums)

    def _refuse(self, prices, volumes, position):
        """The error of the first tick that cannot be used."""
        bad = _C.logical_not(prices.isfinite())
        if bad.any().item():
            raise ValueError(f"{self.op}: a price is not finite; got {prices[_first(bad)].item()!r} at tick {position + _first(bad)}; expected finite prices; hint: pf.finance.clean_ticks drops such ticks")
        if not self._quotient(prices.abs().max().item()) < _EXACT:
            raise ValueError(f"{self.op}: price_precision is too small for the prices; got {self.precision:g} for a price of {prices.abs().max().item():g}; "
                             "expected less than 2**50 bins between the prices and 0")
        bad = _first(_C.logical_not(_C.logical_and(volumes >= 0, volumes < float("inf"))))
        raise ValueError(f"{self.op}: a volume cannot be used; got {volumes[bad].item()!r} at tick {position + bad}; expected finite volumes that are not negative; "
                         "hint: pf.finance.clean_ticks drops such ticks")

    def _grow(self, low, high):
        """Makes the window large enough for these bins, too."""
        if self.values is not None:
            low, high = min(low, self.low), max(high, self.high)
        if high - low >= _MOST_BINS:
            raise ValueError(f"{self.op}: price_precision is too small for the prices; got {self.precision:g} for prices from {low * self.precision:g} to {high * self.precision:g}, "
                             f"which are {high - low + 1} bins; expected {_MOST_BINS} at most")
        before, (self.start, self.size) = self.start, _window(low, high)
        if self.values is not None:
            values = _C.zeros(self.size, dtype=self.dtype, device=self.device)
            values.narrow(0, self.low - self.start, self.high - self.low + 1).copy_(self.values.narrow(0, self.low - before, self.high - self.low + 1))
            self.values = values

    def result(self):
        at, size = self.low - self.start, self.high - self.low + 1
        if self.read is not None:
            return self.low, self.read[at:at + size].view(np.int64 if self.dtype == _C.int64 else np.float64).copy()
        return self.low, self.values.narrow(0, at, size).cpu().numpy().copy()


def _window(low, high):
    """(start, size) of a window for these bins, with room for prices to come. Sizes have few values, so that few programs are compiled."""
    span = high - low + 1
    if 2 * span > _MOST_BINS:
        return low, span
    room = span // 8 + 64
    step = 1 << max(6, span.bit_length() - 4)
    return low - room, -(-(span + 2 * room) // step) * step


def _first(mask):
    """The position of the first true element."""
    return int(np.argmax(mask.cpu().numpy()))


class _Progress:
    """A line on stderr that says how much is done, rewritten at most ten times a second; or calls of the user's function."""

    def __init__(self, wanted, total):
        self.function = wanted if callable(wanted) else None
        self.shown = wanted is True or (wanted is None and sys.stderr.isatty())
        self.patience = 0.0 if wanted is True else 2.0
        self.total, self.done, self.begin, self.last, self.printed = total, 0, time.monotonic(), 0.0, False

    def __enter__(self):
        return self

    def add(self, ticks):
        self.done += ticks
        if self.function:
            self.function(self.done, self.total)
        now = time.monotonic()
        if self.shown and now - self.begin >= self.patience and (now - self.last >= 0.1 or self.done == self.total):
            share = self.done / self.total
            sys.stderr.write(f"\rvolume profile {bar(share)} {100 * share:5.1f} % of {self.total} ticks")
            sys.stderr.flush()
            self.last, self.printed = now, True

    def __exit__(self, *error):
        if self.printed:
            sys.stderr.write("\n")
        return False


