"""A volume profile: totals by price, and what is read off them. All of it is exact for integer volumes, because only the totals are compared."""
import math
import os
from typing import NamedTuple

import numpy as np


class ValueArea(NamedTuple):
    """The value area of a profile: the prices of its lowest and highest bin (low and high), its volume, and its share of the total. A named tuple, which checks
    and refuses nothing."""

    low: float
    high: float
    volume: float
    share: float


class VolumeProfile:
    """How much was traded at which price. VolumeProfileAnalyzer makes it.

    first: the number of the lowest bin; bin k holds the prices that are closest to k * price_precision.
    volumes: [bins] totals, int64 or float64. The lowest and the highest bin are those of the lowest and the highest price.
    session: what the profile is of; None for a whole input.
    ticks: how many trades it was made of.
    value_area_share: what value_area holds, as a share of the volume: above 0, at most 1.

    ValueError for volumes of another shape or dtype or without a bin, for a price_precision that is not above 0, and for another share."""

    def __init__(self, first, volumes, price_precision, session=None, ticks=None, value_area_share=0.7):
        self.first, self.volumes, self.price_precision = int(first), np.asarray(volumes), float(price_precision)
        self.session, self.ticks, self.value_area_share = session, ticks, float(value_area_share)
        if self.volumes.ndim != 1 or self.volumes.size == 0 or self.volumes.dtype not in (np.int64, np.float64):
            raise ValueError(f"VolumeProfile: the totals do not fit; got shape {self.volumes.shape} of {self.volumes.dtype}; expected a vector of int64 or float64 with at least one bin")
        if not 0 < self.price_precision < math.inf:
            raise ValueError(f"VolumeProfile: price_precision is not the width of a bin; got {price_precision!r}; expected a number above 0")
        if not 0 < self.value_area_share <= 1:
            raise ValueError(f"VolumeProfile: value_area_share is out of range; got {value_area_share!r}; expected a share above 0, and at most 1")

    def __repr__(self):
        of = "" if self.session is None else f" of {self.session}"
        return f"VolumeProfile({len(self.volumes)} bins of {self.price_precision:g}{of}, volume {self.total}, VPOC {self.vpoc:g})"

    def _price(self, bins):
        number = np.asarray(bins, np.float64)
        inverse = whole_inverse(self.price_precision)
        return number / inverse if inverse else number * self.price_precision

    @property
    def prices(self):
        """[bins] float64: the price in the middle of each bin, k * price_precision, ascending."""
        return self._price(np.arange(self.first, self.first + len(self.volumes), dtype=np.int64))

    @property
    def total(self):
        """The volume of all bins: an exact int, or a float whose sum is rounded once."""
        return int(self.volumes.sum()) if self.volumes.dtype == np.int64 else math.fsum(self.volumes)

    @property
    def vpoc_bin(self):
        """The index in `volumes` of the point of control, the bin with the largest volume, an int. Of equal bins it is the one nearest to the middle, then
        the lower one.
        """
        most = np.flatnonzero(self.volumes == self.volumes.max())
        return int(most[np.argmin(np.abs(2 * most - (len(self.volumes) - 1)))])  # argmin takes the first, which is the lower one

    @property
    def vpoc(self):
        """The point of control: the price of the bin with the largest volume. Of several, the one closest to the middle of the profile's range counts,
        and of two that are equally close the lower one."""
        return float(self._price(self.first + self.vpoc_bin))

    @property
    def value_area(self):
        """The value area that holds `value_area_share` of the volume (70 % unless the analyzer was told another share)."""
        return self.value_area_of(self.value_area_share)

    def value_area_of(self, share):
        """The value area for a share of the volume, 0 < share <= 1, by two-sided expansion from the point of control.

        The area begins as the bin of the point of control. While its volume is below share * total, the two bins above it and the two bins below it
        are compared; the pair with the larger volume joins the area as a whole, and the upper pair joins where both are equal. At the edge of
        the profile a pair has one bin, and where no bin is left on one side the other side's pair joins. This is the calculation by "dual
        prices" of the Market Profile (Chicago Board of Trade; Dalton, Jones and Dalton, Mind over Markets, appendix 1), which leaves ties open.
        ValueError if share is out of range."""
        share = float(share)
        if not 0 < share <= 1:
            raise ValueError(f"value_area: the share is out of range; got {share:g}; expected a number above 0, and at most 1")
        volumes = self.volumes.tolist()
        low = high = self.vpoc_bin
        inside, total, last = volumes[low], self.total, len(volumes) - 1
        while inside < share * total and (low > 0 or high < last):
            above, below = volumes[high + 1:high + 3], volumes[max(low - 2, 0):low]
            if above and (not below or sum(above) >= sum(below)):
                high, inside = high + len(above), inside + sum(above)
            else:
                low, inside = low - len(below), inside + sum(below)
        ends = self._price([self.first + low, self.first + high])
        return ValueArea(float(ends[0]), float(ends[1]), inside, inside / total if total else 0.0)

    def nodes(self, smoothing=1, prominence=0.1):
        """High and low volume nodes: a pair of arrays of prices, (high, low), each ascending.

        A high volume node is a peak of the profile whose prominence is at least `prominence` times the largest total. The prominence of a peak is its
        height above the higher one of two minima: those between the peak and the closest higher bin on its left and on its right, or the
        profile's end, where the profile is taken to be 0. Of bins in a row with the same total, the middle one counts (the lower one of two).
        A low volume node is the bin with the least total between two neighbouring high volume nodes; of several, the lowest.
        smoothing: an odd number of bins. Before peaks are looked for, each total is replaced by the sum of that many bins around it.
        ValueError if smoothing or prominence is out of range."""
        if not isinstance(smoothing, (int, np.integer)) or smoothing < 1 or smoothing % 2 == 0:
            raise ValueError(f"nodes: smoothing does not fit; got {smoothing!r}; expected an odd number of bins, 1 or more")
        if not 0 <= prominence <= 1:
            raise ValueError(f"nodes: prominence is out of range; got {prominence!r}; expected a share between 0 and 1")
        heights = self.volumes
        if smoothing > 1:
            heights = np.convolve(heights, np.ones(smoothing, heights.dtype))[smoothing // 2:smoothing // 2 + len(heights)]
        peaks = _peaks(heights.tolist(), prominence * float(heights.max()))
        valleys = [a + int(np.argmin(heights[a:b])) for a, b in zip(peaks, peaks[1:])]
        return self._price(self.first + np.asarray(peaks, np.int64)), self._price(self.first + np.asarray(valleys, np.int64))

    def text(self, rows=32, width=48):
        """The profile as lines of text, highest price first: price, volume, a bar. A bar of `width` characters is the largest row. Where there are more
        bins than `rows`, each line is the sum of several; its price is the middle of its bins. `*` marks the row of the VPOC, `|` those of the value area."""
        if rows < 1 or width < 1:
            raise ValueError(f"text: the size is out of range; got rows={rows} and width={width}; expected 1 or more of both")
        count = len(self.volumes)
        step = -(-count // rows)
        sums = np.add.reduceat(self.volumes, np.arange(0, count, step)).tolist()
        area, digits, lines = self.value_area, _digits(self.price_precision * (0.5 if step % 2 == 0 else 1)), []
        for at in range(len(sums) - 1, -1, -1):
            begin, end = at * step, min((at + 1) * step, count) - 1
            ends = self._price([self.first + begin, self.first + end])
            mark = "*" if begin <= self.vpoc_bin <= end else "|" if ends[1] >= area.low and ends[0] <= area.high else " "
            bar = "#" * round(width * sums[at] / (max(sums) or 1))
            lines.append(f"{(ends[0] + ends[1]) / 2:>14.{digits}f} {sums[at]:>14.12g} {mark} {bar}".rstrip())
        return "\n".join(lines)

    def save_picture(self, path, title=None):
        """Writes a picture of the profile to path, whose ending says what it is: .svg or .png. It needs matplotlib: without it ImportError; text() needs
        nothing. Bars are the totals, the value area is coloured, the lines are the VPOC (solid) and the nodes (dashed: high, dotted: low)."""
        path = os.fspath(path)
        if not path.endswith((".svg", ".png")):
            raise ValueError(f"save_picture: unknown format; got '{path}'; expected a name that ends in .svg or .png")
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("save_picture: the package matplotlib is not installed; hint: pip install matplotlib, or print(profile.text())") from error
        figure = Figure(figsize=(7, 8), layout="constrained")
        FigureCanvasAgg(figure)
        axes, prices, area = figure.add_subplot(), self.prices, self.value_area
        inside = (prices >= area.low) & (prices <= area.high)
        edges = self._price(np.arange(self.first, self.first + len(prices) + 1) - 0.5)
        for part, colour, label in ((self.volumes * ~inside, "#b0b7c3", "volume"), (self.volumes * inside, "#3b6fb6", f"value area {area.low:g} to {area.high:g}")):
            axes.stairs(part, edges, orientation="horizontal", fill=True, color=colour, label=label)
        axes.axhline(self.vpoc, color="#c0392b", label=f"VPOC {self.vpoc:g}")
        for nodes, style in zip(self.nodes(), ("--", ":")):
            for price in nodes:
                axes.axhline(price, color="#555555", linestyle=style, linewidth=0.7)
        axes.set(xlabel="volume", ylabel="price", title=title or ("Volume profile" if self.session is None else f"Volume profile of {self.session}"))
        axes.legend()
        figure.savefig(path)


def whole_inverse(precision):
    """1 / precision where that is a whole number, otherwise None. Prices k / 100 are correctly rounded; k * 0.01 are not."""
    inverse = 1.0 / precision
    whole = round(inverse)
    return float(whole) if whole >= 1 and abs(inverse - whole) <= 1e-9 * whole else None


def _digits(precision):
    """How many decimals multiples of the precision have; 10 at most."""
    return next((d for d in range(10) if abs(precision * 10**d - round(precision * 10**d)) < 1e-6 * precision * 10**d), 10)


def _minima_to_higher(heights):
    """For each bin the least total between it and the closest higher bin before it; 0 where there is none, because the profile ends there."""
    stack, found = [], []  # bins whose totals do not rise, each with the least total since the one before it on the stack
    for height in heights:
        least = height
        while stack and stack[-1][0] <= height:
            least = min(least, stack.pop()[1])
        found.append(least if stack else 0)
        stack.append((height, least))
    return found


def _peaks(heights, prominence):
    """The middles of all plateaus that are higher than their neighbours and have at least this prominence."""
    left, right = _minima_to_higher(heights), _minima_to_higher(heights[::-1])[::-1]
    peaks, begin, count = [], 0, len(heights)
    while begin < count:
        end = begin
        while end + 1 < count and heights[end + 1] == heights[begin]:
            end += 1
        is_peak = (begin == 0 or heights[begin - 1] < heights[begin]) and (end == count - 1 or heights[end + 1] < heights[begin])
        if is_peak and heights[begin] > 0 and heights[begin] - max(left[end], right[begin]) >= prominence:
            peaks.append((begin + end) // 2)
        begin = end + 1
    return peaks
