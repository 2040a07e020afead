"""Volume profiles: pf.finance.VolumeProfileAnalyzer against the fastest way that NumPy has, numpy.bincount of whole chunks, in one run.

    python benchmarks/volume_profile.py [--ticks 10000000] [--device cpu] [--resident] [--json FILE]

Both get the same prices (float64, cents) and volumes (int64) in the host's memory and give the same totals, which is checked. NumPy is measured with
several chunk sizes, and its best one counts; it does without any check of its input. The two take turns, so that both see the same machine. The
floor is the time of reading prices and volumes from memory once (their sums, by NumPy).

--resident: the ticks are tensors on the device before the clock starts, and the floor is the time of reading them once there (their sums). Each time
ends when its result is on the host. Both run five times after NumPy's turn before they are measured: in that turn a GPU has slowed its clock. For a GPU:

    python benchmarks/volume_profile.py --device cuda --ticks 100000000 --resident
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

import pyflame as pf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from machine import slug  # noqa: E402

PRECISION = 0.01


def with_numpy(prices, volumes, chunk):
    """Totals by price: bin numbers, then bincount with weights, chunk by chunk, so that what lies between stays in the cache."""
    lowest, highest = (int(np.rint(p / PRECISION)) for p in (prices.min(), prices.max()))
    totals = np.zeros(highest - lowest + 1)
    for begin in range(0, len(prices), chunk):
        bins = np.rint(prices[begin:begin + chunk] * (1 / PRECISION)).astype(np.int64)
        bins -= lowest
        totals += np.bincount(bins, weights=volumes[begin:begin + chunk], minlength=len(totals))
    return lowest, totals


def read_once(prices, volumes):
    return prices.sum(), volumes.sum()


def read_tensors_once(prices, volumes):
    """Both sums in one window, which ends when they are on the host."""
    return pf.stack([prices.sum(), volumes.sum().to(pf.float64)]).tolist()


def timed(function, *arguments):
    begin = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begin, result


def summary(seconds):
    quarters = statistics.quantiles(seconds, n=4)
    return {"median_ms": 1e3 * statistics.median(seconds), "quartiles_ms": [1e3 * quarters[0], 1e3 * quarters[2]], "fastest_ms": 1e3 * min(seconds)}


def spread(times, others):
    """The ratios of times that were taken one after the other."""
    ratios = sorted(a / b for a, b in zip(times, others))
    return {"median": statistics.median(ratios), "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=10_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--resident", action="store_true", help="the ticks are on the device already")
    parser.add_argument("--chunk_size", type=int, default=1 << 22)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", help="a file for the result")
    a = parser.parse_args()
    rng = np.random.default_rng(0)
    prices = np.round(400 + np.cumsum(rng.normal(0, 0.002, a.ticks)), 2)
    volumes = rng.integers(1, 1000, a.ticks)
    analyzer = pf.finance.VolumeProfileAnalyzer(PRECISION, a.device, a.chunk_size, progress=False)
    chunk = min((1 << 14, 1 << 16, 1 << 18, a.ticks), key=lambda c: min(timed(with_numpy, prices, volumes, c)[0] for _ in range(2)))
    lowest, totals = with_numpy(prices, volumes, chunk)
    profile = analyzer.profile(prices, volumes)
    assert profile.first == lowest and np.array_equal(profile.volumes, totals), "the two differ"

    if a.resident:
        ours_of = tuple(pf.from_numpy(x).to(a.device) for x in (prices, volumes))
        read = read_tensors_once
        assert np.array_equal(analyzer.profile(*ours_of).volumes, totals), "the two differ"
    else:
        ours_of = (prices, volumes)
        read = read_once

    ours, numpy_, floor = [], [], []
    for _ in range(a.repeat):
        numpy_.append(timed(with_numpy, prices, volumes, chunk)[0])
        for _ in range(5 if a.resident else 0):
            analyzer.profile(*ours_of), read(*ours_of)
        ours.append(timed(analyzer.profile, *ours_of)[0])
        floor.append(timed(read, *ours_of)[0])
    faster, reads = spread(numpy_, ours), spread(ours, floor)
    result = {"benchmark": "volume_profile", "machine": slug(), "device": a.device, "resident": a.resident, "ticks": a.ticks, "bins": len(totals), "chunk_size": a.chunk_size,
              "numpy_chunk": chunk, "load": os.getloadavg()[0], "analyzer": summary(ours), "numpy": summary(numpy_), "read_once": summary(floor), "times_faster": faster, "times_of_reading": reads}
    for name in ("analyzer", "numpy", "read_once"):
        print(f"{name:>10}: median {result[name]['median_ms']:8.1f} ms, quartiles {result[name]['quartiles_ms'][0]:.1f} to {result[name]['quartiles_ms'][1]:.1f} ms")
    where = f"{a.device}, where the ticks are" if a.resident else a.device
    print(f"on {where}: {faster['median']:.2f} times as fast as NumPy (quartiles {faster['quartiles'][0]:.2f} to {faster['quartiles'][1]:.2f}), "
          f"{reads['median']:.2f} times the time of reading once (quartiles {reads['quartiles'][0]:.2f} to {reads['quartiles'][1]:.2f})")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
