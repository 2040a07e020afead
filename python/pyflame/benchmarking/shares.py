"""How near a product comes to what the device can do, and to the fastest entry of its implementation list."""
import datetime

from .. import _C
from ..profiler.ceilings import ceilings
from ..tuning import database, measure


def _at_lowest_clock(m, sheet):
    """The share of what the peak is at the clock of the slowest XCD. The data sheet's peak holds for the highest clock."""
    state = m.environment.get("state", {})
    low, most = state.get("xcd_clock_low_mhz"), state.get("clock_max_mhz")
    if not low or not most or low > most or len(state["xcd_clocks_mhz"]) < 2:
        return []
    peak = sheet * low / most
    return [f"{m.tflops / peak:.0%} of the peak at the lowest clock: {peak:.4g} TFLOP/s, as the slowest XCD has {low:.0f} of at most {most:.0f} MHz; work that is divided evenly ends when the "
            f"slowest XCD has done its part"]


def _of_peak(m, dtype):
    """Of the data sheet's peak if the device is in its table, otherwise of what a large product reaches. Of the peak at the lowest clock of its XCDs, too, where their clocks are known."""
    if not _C._has_units(m.device, dtype):
        return [f"no share of the peak: {m.device} has no units for products of {dtype}"]
    sheet = (_C._gpu_peaks(m.device) or {}).get("tflops", {}).get(dtype)
    if sheet and m.tflops:
        return [f"{m.tflops / sheet:.0%} of the peak: {sheet:.4g} TFLOP/s by the data sheet", *_at_lowest_clock(m, sheet)]
    peak = ceilings(m.device, (dtype,)).gflops.get(dtype)
    if not peak or not m.tflops:
        return [f"no share of the peak: the peak of {dtype} products is not known for {m.device}"]
    if m.tflops * 1e3 > peak:  # it was measured while something else took the machine
        peak = ceilings(m.device, (dtype,), renew=True).gflops.get(dtype, peak)
    product = f"a {'' if dtype == 'int8' else 'large '}product of {dtype}"  # of int8, small ones may be the fastest
    if m.tflops * 1e3 > peak:
        return [f"no share of the peak: it is faster than {product}, which reaches {peak / 1e3:.4g} TFLOP/s here; hint: measure on a machine that does nothing else"]
    return [f"{m.tflops * 1e3 / peak:.0%} of the peak: {peak / 1e3:.4g} TFLOP/s, which {product} reaches here"]


def _step_of(p):
    """The step that computes the product, as pf.explain sees it: with its op, problem and entry as the tuning database names them. A product of 8-bit floats is an op of its own where matrix
    cores take them."""
    _C.synchronize()
    _C._explain_begin(False)
    try:
        result = p.call()
        _C.synchronize()
    finally:
        found = _C._explain_end(False)
    del result
    return next(s for program in found["programs"] for s in program["steps"] if s["op"] in ("matmul", "scaled_mm"))


TOGETHER = datetime.timedelta(days=1)  # times that lie further apart are of different states of a machine: its clock, its temperature, what else it does


def _measured_with(own, rows):
    """The rows that were measured within a day of the own entry's."""
    at = datetime.datetime.fromisoformat(own.measured_at)
    return [r for r in rows if abs(datetime.datetime.fromisoformat(r.measured_at) - at) <= TOGETHER]


def _of_best(p, device, seconds):
    """Times the entries of the list that accept the product and that were not timed before. What it finds is kept, as `pyflame tune` keeps it."""
    step = _step_of(p)
    with measure(budget=seconds):
        p.call()
        _C.synchronize()
    rows = [r for r in database.rows_here(device, step["op"], step["problem"]) if r.sound]
    own = next((r for r in rows if r.entry == step["entry"]), None)
    those = [] if own is None else _measured_with(own, rows)
    left = len(rows) - len(those) if those else 0
    others = f"; {left} more {'was' if left == 1 else 'were'} measured on other days, whose times are not comparable; hint: PYFLAME_CACHE_DIR=FOLDER, a new one, measures all of them together" if left else ""
    if len(those) < 2:
        return [f"no share of the best entry: there is one only, or --seconds were too few{others or '; hint: pyflame tune --list'}"]
    best = min(those, key=lambda r: r.us)
    return [f"{best.us / own.us:.0%} of the best entry: {best.entry} takes {best.us:.4g} us, {own.entry} {own.us:.4g} us, of {len(those)} entries{others}"]


def of(p, m, seconds):
    """Notes for the measurement of a product. seconds: how long its entries may be timed; 0: they are not."""
    return _of_peak(m, p.name.split()[2]) + (_of_best(p, m.device, seconds) if seconds else [])
