"""What a device can do at most: bytes of memory and floating-point operations a second. Measured once for each device, and kept in a file."""
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
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(path, kept):
    """A folder that cannot be written costs a measurement in each process, no more."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(kept, indent=1))
        os.replace(part, path)


def _best(fn, device, **work):
    from .. import benchmarking

    return min(benchmarking.bench(fn, device=device, max_seconds=SECONDS, min_samples=3, **work).samples)


def _measure_gbs(device):
    from ..benchmarking import environment

    nbytes = _GPU_BYTES if environment.is_gpu(device) else max(64 << 20, 4 * environment.cache_bytes(device))
    x = _C.zeros(nbytes // 4, dtype=_C.float32, device=device)
    return 2 * nbytes / _best(lambda: x.add_(1.0), device) / 1e6


def _measure_gflops(device, dtype):
    from ..benchmarking import environment

    n = EDGE["gpu" if environment.is_gpu(device) else "cpu"]
    a = (_C.arange(n * n, device=device) % 251 / 251).reshape(n, n).to(getattr(_C, dtype))  # no random numbers: those of the program stay the same
    return 2 * n**3 / _best(lambda: a @ a, device) / 1e6


@contextlib.contextmanager
def _free_choice():
    """No implementation is forced within the context: a ceiling is a property of the device, and is kept."""
    before = {op: _C._force_entry(op, "") for op in ("add", "matmul")}
    try:
        yield
    finally:
        for op, entry in before.items():
            _C._force_entry(op, entry)


def _measure(device, entry, dtypes):
    """What is missing in an entry of the file. Nothing if there is no room for it now."""
    from ..amp import autocast

    try:
        with _free_choice(), autocast(device.split(":")[0], enabled=False), _C._CutCause("a measurement of the device's ceilings"):
            return {"gbs": entry.get("gbs") or _measure_gbs(device), "gflops": {**entry.get("gflops", {}), **{d: _measure_gflops(device, d) for d in dtypes}}, "date": entry.get("date") or str(datetime.date.today())}
    except (MemoryError, RuntimeError):
        return entry


_known = {}  # by device, for this process


def _table(device):
    """The figures of the vendor's data sheet, for a GPU that cannot be measured or that nobody wants to wait for; None if the product is not known."""
    peaks = _C._gpu_peaks(device)
    if not peaks:
        return None
    gflops = {dtype: rate * 1e3 for dtype, rate in peaks["tflops"].items() if rate}
    return Ceilings(device, peaks["gbs"], gflops, f"the data sheet of {peaks['name']}, not measured")


def ceilings(device, dtypes=("float32",), measure=True, renew=False):
    """The ceilings of a device for products of these dtypes. What is not known yet is measured, within a second, and kept in ceilings.json in PYFLAME_CACHE_DIR.

    measure=False: only what was measured before, or the figures of the data sheet. renew=True: measures again. While a profile is recorded, and on an emulated
    GPU, nothing is measured.
    """
    device = str(_C.device(device))
    measurable = not _C._profiler_on() and "emulat" not in str(_C.device_info(device)).lower()
    path, key = _folder() / FILE, _key(device)
    entry = {} if renew else _known.get(key) or _read(path).get(key) or {}
    wanted = [d for d in dtypes if d in ("float16", "bfloat16", "float32", "float64") and d not in entry.get("gflops", {})]
    if measurable and measure and (not entry.get("gbs") or wanted):
        entry = _measure(device, entry, wanted)
        _write(path, {**_read(path), key: entry})
    if not entry.get("gbs"):
        return _table(device) or Ceilings(device, source="unknown")
    _known[key] = entry
    return Ceilings(device, entry["gbs"], dict(entry["gflops"]), f"measured on this machine on {entry['date']}")
