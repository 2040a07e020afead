"""What a device can do at most: bytes of memory and floating-point operations a second. Measured once for each device, and kept in a file. A figure whose
samples spread widely, because other programs ran meanwhile, is measured once more by the next process that needs it."""
import contextlib
import datetime
import json
import os
import pathlib
from dataclasses import dataclass, field

from .. import _C, __version__

FILE = "ceilings.json"
SECONDS = 0.3  # for each figure
EDGE = {"cpu": 1024, "gpu": 8192}  # of the matrices of a product
EDGES_INT8 = {"cpu": (64, 256), "gpu": (2048,)}  # a plain loop multiplies int8 on a CPU: it is fastest within the cache, or where all threads have work
MEMORY = "memory"  # the name of the bandwidth among the figures; those of products are named by their dtypes
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", *_FLOAT8)
_GPU_BYTES = 1 << 30  # of the tensor that is read and written; on the CPU four times the last-level cache


@dataclass
class Ceilings:
    """Of one device. gbs: 10^9 bytes a second; gflops: 10^9 operations a second by the name of a dtype; source: where the figures are from."""

    device: str
    gbs: float = None
    gflops: dict = field(default_factory=dict)
    source: str = ""

    def microseconds(self, bytes, flops, dtype):
        """The least time for this traffic and these operations. None: a figure for it is missing."""
        if not self.gbs or (flops and dtype not in self.gflops):
            return None
        return max(bytes / self.gbs / 1e3, flops / self.gflops[dtype] / 1e3 if flops else 0.0)

    def limit(self, bytes, flops, dtype):
        """'memory' or 'arithmetic': what takes the longer time."""
        return "arithmetic" if flops and self.gbs and flops / self.gflops.get(dtype, float("inf")) > bytes / self.gbs else "memory"

    def __str__(self):
        rates = [f"{self.gbs:.4g} GB/s"] + [f"{rate:.4g} GFLOP/s in {dtype}" if rate < 1e4 else f"{rate / 1e3:.4g} TFLOP/s in {dtype}" for dtype, rate in sorted(self.gflops.items())]
        return f"{', '.join(rates)} ({self.source})"


def _folder():
    return pathlib.Path(os.path.expanduser(os.environ.get("PYFLAME_CACHE_DIR") or "~/.cache/pyflame"))


def _key(device):
    info = _C.device_info(device)
    threads = f", {_C.get_num_threads()} threads" if device == "cpu" else ""
    return f"{info['name']}, {info['architecture']}{threads}, {__version__}"


def _read(path):
    """By device, its figures by their names: {"rate": GB/s or GFLOP/s, "spread": of the samples, "date": of the measurement}."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    whole = lambda figure: isinstance(figure, dict) and {"rate", "spread", "date"} <= set(figure)  # noqa: E731
    return {key: {name: f for name, f in figures.items() if whole(f)} for key, figures in kept.items() if isinstance(figures, dict)} if isinstance(kept, dict) else {}


def _write(path, kept):
    """A folder that cannot be written costs a measurement in each process, no more."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(json.dumps(kept, indent=1))
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _rate(fn, device, work):
    """(10^9 of the work's units a second in the fastest sample, how far the samples spread). Other programs only make samples slower."""
    from .. import benchmarking

    m = benchmarking.bench(fn, device=device, max_seconds=SECONDS, min_samples=3)
    return work / min(m.samples) / 1e6, m.spread


def _measure_gbs(device):
    from ..benchmarking import environment

    nbytes = _GPU_BYTES if environment.is_gpu(device) else max(64 << 20, 4 * environment.cache_bytes(device))
    x = _C.zeros(nbytes // 4, dtype=_C.float32, device=device)
    return _rate(lambda: x.add_(1.0), device, 2 * nbytes)


def _measure_gflops(device, dtype):
    from ..benchmarking import environment

    kind = "gpu" if environment.is_gpu(device) else "cpu"
    return max(_measure_product(device, dtype, n) for n in (EDGES_INT8[kind] if dtype == "int8" else [EDGE[kind]]))


def _measure_product(device, dtype, n):
    numbers = (_C.arange(n * n, device=device) % 251).reshape(n, n)  # no random numbers: those of the program stay the same
    a = (numbers - 125 if dtype == "int8" else numbers / 251).to(getattr(_C, dtype))
    one = _C.ones(1, device=device).reshape(())
    return _rate((lambda: _C._scaled_mm(a, a, one, one)) if dtype in _FLOAT8 else lambda: a @ a, device, 2 * n**3)


@contextlib.contextmanager
def _free_choice():
    """No implementation is forced within the context: a ceiling is a property of the device, and is kept."""
    before = {op: _C._force_entry(op, "") for op in ("add", "matmul", "scaled_mm")}
    try:
        yield
    finally:
        for op, entry in before.items():
            _C._force_entry(op, entry)


def _measure(device, names, before):
    """The figures of these names; without those for which there is no room now. The larger rate counts, if a figure was measured before."""
    from ..amp import autocast

    found = {}
    with contextlib.suppress(MemoryError, RuntimeError), _free_choice(), autocast(device.split(":")[0], enabled=False), _C._CutCause("a measurement of the device's ceilings"):
        for name in names:
            rate, spread = _measure_gbs(device) if name == MEMORY else _measure_gflops(device, name)
            found[name] = {"rate": max(rate, before.get(name, {}).get("rate", 0.0)), "spread": spread, "date": str(datetime.date.today())}
    return found


def _noisy(figure):
    from ..benchmarking.measure import REJECTED

    return figure["spread"] > REJECTED


def _source(figures, before):
    """Where the figures are from. before: those that were measured again now, as they were."""
    what = lambda name: "the bandwidth" if name == MEMORY else f"{name} products"  # noqa: E731
    again = [f"{what(name)} again, because the samples spread over {f['spread']:.0%}" for name, f in before.items()]
    noisy = [f"the samples of {what(name)} spread over {f['spread']:.0%}, so that the next process measures again" for name, f in figures.items() if _noisy(f)]
    return "; ".join([f"measured on this machine on {min(f['date'] for f in figures.values())}", *again, *noisy])


_known = {}  # by device, the figures that hold for the rest of this process: they did not spread, or were measured in it


def _table(device):
    """The figures of the vendor's data sheet, for a GPU that cannot be measured or that nobody wants to wait for; None if the product is not known."""
    peaks = _C._gpu_peaks(device)
    if not peaks:
        return None
    gflops = {dtype: rate * 1e3 for dtype, rate in peaks["tflops"].items() if rate}
    return Ceilings(device, peaks["gbs"], gflops, f"the data sheet of {peaks['name']}, not measured")


def ceilings(device, dtypes=("float32",), measure=True, renew=False):
    """The ceilings of a device for products of these dtypes. What is not known yet is measured, within a second, and kept in ceilings.json in PYFLAME_CACHE_DIR.
    So is what an earlier process measured while the machine was busy: the samples spread over more than pf.bench accepts.

    measure=False: only what was measured before, or the figures of the data sheet. renew=True: measures again. While a profile is recorded, and on an emulated
    GPU, nothing is measured. A dtype for whose products the device has no units has no ceiling: 8-bit floats on a CPU, and on a GPU without matrix cores that take them.
    """
    device = str(_C.device(device))
    measurable = not _C._profiler_on() and "emulat" not in str(_C.device_info(device)).lower()
    path, key = _folder() / FILE, _key(device)
    wanted = [MEMORY, *(d for d in dtypes if d in _DTYPES and _C._has_units(device, d))]
    known = {} if renew else _known.get(key, {})
    kept = {} if renew or set(wanted) <= set(known) else _read(path).get(key, {})
    due = [name for name in wanted if name not in known and (name not in kept or _noisy(kept[name]))]
    new = _measure(device, due, kept) if due and measurable and measure else {}
    found = {**kept, **known, **new}
    if new:
        _write(path, {**_read(path), key: found})
    if MEMORY not in found:
        return _table(device) or Ceilings(device, source="unknown")
    _known[key] = {**{name: f for name, f in kept.items() if not _noisy(f)}, **known, **new}
    figures = {name: found[name] for name in wanted if name in found}
    rates = {name: f["rate"] for name, f in figures.items()}
    return Ceilings(device, rates.pop(MEMORY), rates, _source(figures, {name: f for name, f in kept.items() if name in new}))


def of_recording(averages, measure=True):
    """The ceilings of the CPU for a recording. averages: its totals by input shapes. None if a GPU worked in it, or nothing did."""
    steps = [a for a in averages if a.kind == "step"]
    if not steps or any(a.kind == "launch" or a.device_time_total for a in averages):
        return None
    dtypes = {dtype for a in steps if a.flops for dtype in json.loads(a._args).get("Input type", [])[:1]}
    return ceilings("cpu", sorted(dtypes), measure)


def trace_events(limits):
    """Lines of a trace that say what the CPU can do at most, for the roofline of `pyflame report`."""
    rates = {MEMORY: limits.gbs, **limits.gflops}
    return [{"ph": "M", "name": "ceiling", "pid": 0, "args": {"ceiling": name, "rate": rate, "source": str(limits)}} for name, rate in rates.items()]
