"""What recorded ticks need before they are analysed: no missing numbers, no wrong signs, no misplaced decimal points, order in time."""
import numpy as np

from .._C import Tensor
from . import _sources


def clean_ticks(data, volumes=None, timestamps=None, *, max_deviation=0.05, neighbours=10, columns=None):
    """Drops ticks that cannot be trades, and puts the rest in order of time: a pair of

    - a dict of NumPy vectors, 'price' (float64), 'volume' and, where the times are known, 'timestamp' (datetime64, ascending; equal times keep their order),
      which VolumeProfileAnalyzer takes as a table;
    - a dict of how many ticks were dropped, by the first reason that applies: 'not a number' (price, volume or time is missing or not finite), 'price of 0 or
      less', 'volume of 0 or less', 'far from its neighbours'.

    A price is far from its neighbours if it differs from the median of itself and the `neighbours` ticks on each side (fewer at the ends) by more than
    max_deviation times that median. data, volumes, timestamps and columns are those of VolumeProfileAnalyzer.sessions. Instruments whose prices can be
    negative, such as spreads, need a cleaning of their own.
    ValueError if an argument does not fit, or as the analyzer's methods; timestamps that are not empty and cannot be read are one."""
    op = "clean_ticks"
    if not 0 < max_deviation < float("inf"):
        raise ValueError(f"{op}: max_deviation is out of range; got {max_deviation!r}; expected a share above 0")
    if isinstance(neighbours, bool) or not isinstance(neighbours, (int, np.integer)) or neighbours < 1:
        raise ValueError(f"{op}: neighbours does not fit; got {neighbours!r}; expected an integer of 1 or more")
    prices, volumes, _, times = _sources.ticks(op, data, volumes, None, timestamps, columns)
    prices, volumes = (x.cpu().numpy() if isinstance(x, Tensor) else x for x in (prices, volumes))
    prices = prices.astype(np.float64)
    times = None if times is None else _sources.as_times(op, times)
    kept, dropped = np.arange(len(prices)), {}

    def drop(reason, bad):
        nonlocal kept
        dropped[reason], kept = int(bad.sum()), kept[~bad]

    known = np.isfinite(prices) & np.isfinite(volumes)
    drop("not a number", ~(known if times is None else known & ~np.isnat(times)))
    drop("price of 0 or less", prices[kept] <= 0)
    drop("volume of 0 or less", volumes[kept] <= 0)
    if times is not None:
        kept = kept[np.argsort(times[kept], kind="stable")]
    middle = _running_median(prices[kept], int(neighbours))
    drop("far from its neighbours", np.abs(prices[kept] - middle) > max_deviation * middle)
    ticks = {"price": prices[kept], "volume": _sources.whole(volumes[kept])}
    if times is not None:
        ticks["timestamp"] = times[kept]
    return ticks, dropped


def _running_median(values, neighbours):
    """The median of each value and its neighbours on both sides; at the ends of those that are there."""
    if len(values) == 0:
        return values
    padded = np.pad(values, neighbours, constant_values=np.nan)
    middle, windows = np.empty_like(values), np.lib.stride_tricks.sliding_window_view(padded, 2 * neighbours + 1)
    inner = slice(neighbours, max(neighbours, len(values) - neighbours))
    for begin in range(inner.start, inner.stop, 1 << 16):  # a window becomes a row of memory
        part = slice(begin, min(begin + (1 << 16), inner.stop))
        middle[part] = np.median(windows[part], axis=1)
    for at in [*range(min(neighbours, len(values))), *range(inner.stop, len(values))]:
        middle[at] = np.median(values[max(at - neighbours, 0):at + neighbours + 1])
    return middle
