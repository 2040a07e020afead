"""Makes one document, a dict that json can write, of what the engine found. Text and page only render it."""
from .. import _C
from ..profiler.ceilings import ceilings

MOST_COSTS, MOST_ENDS = 8, 12


def _measured(averages):
    """The mean time of a step in microseconds, by name and arguments."""
    times = {}
    for a in averages or ():
        if a.kind == "step" and a.count:
            times[a.key, a._args] = (a.self_device_time_total or a.cpu_time_total) / a.count
    return times


def _of_devices(programs, measure):
    """The ceilings of each device, for the dtypes in which it multiplies."""
    dtypes = {}
    for p in programs:
        dtypes.setdefault(p["device"], set()).update(s["dtype"] for s in p["steps"] if s["flops"])
    found = {d: ceilings(d, sorted(names), measure) for d, names in dtypes.items() if d.split(":")[0] in ("cpu", "cuda", "rocm")}
    for d, limit in found.items():
        limit.gflops = {name: rate for name, rate in limit.gflops.items() if name in dtypes[d]}
    return found


def _add_times(programs, limits, times):
    for p in programs:
        limit = limits.get(p["device"])
        for s in p["steps"]:
            s["expected_us"] = limit.microseconds(s["bytes"], s["flops"], s["dtype"]) if limit else None
            s["limit"] = limit.limit(s["bytes"], s["flops"], s["dtype"]) if limit else ""
            s["measured_us"] = times.get((s["name"], s["args"]))
        for what in ("bytes", "flops", "expected_us", "measured_us"):
            known = [s[what] for s in p["steps"] if s[what] is not None]
            p[what] = sum(known) if len(known) == len(p["steps"]) else None


def _costs(programs):
    """Equal steps at one line are one row: with the time of all runs, the longest first."""
    rows = {}
    for p in programs:
        for s in p["steps"]:
            row = rows.setdefault((s["name"], s["place"], p["device"]), {"name": s["name"], "place": s["place"], "device": p["device"], "limit": s["limit"], "runs": 0, "bytes": 0, "flops": 0, "expected_us": 0.0, "measured_us": 0.0})
            row["runs"] += p["runs"]
            for what in ("bytes", "flops", "expected_us", "measured_us"):
                row[what] = None if s[what] is None or row[what] is None else row[what] + s[what] * p["runs"]
    return sorted(rows.values(), key=lambda r: (r["measured_us"] or r["expected_us"] or 0, r["bytes"]), reverse=True)


def _ends(programs):
    rows = {}
    for p in programs:
        for s in p["steps"]:
            for e in s["ends"]:
                row = rows.setdefault((e["place"], e["writer_place"], e["reader"], e["writer"], e["why"]), {**e, "saves": 0})
                row["saves"] += e["saves"] * p["runs"]
    return sorted(rows.values(), key=lambda r: r["saves"], reverse=True)


def _cuts(windows):
    rows = {}
    for w in windows:
        place = w["place"]
        if w["reason"] == "size limit":  # the recorder was at a later op
            op, _, place = w["last_op"].partition(" ")
            place = f"{place} (after {op})"
        row = rows.setdefault((w["reason"], w["cause"], place), {"reason": w["reason"], "cause": w["cause"], "place": place, "count": 0, "saves": 0, "across": ""})
        row["count"] += w["count"]
        row["saves"] += w["saves"]
        row["across"] = row["across"] or w["across"]
    return sorted(rows.values(), key=lambda r: (r["saves"], r["count"]), reverse=True)


def _rewrites(programs):
    """What rewrites did, and what they left and why; one row for each line of the program and each text, those that fired first."""
    rows = {}
    for p in programs:
        for r in p["rewrites"]:
            row = rows.setdefault((r["rewrite"], r["fired"], r["place"], r["text"]), {**r, "programs": 0})
            row["programs"] += 1
    return sorted(rows.values(), key=lambda r: not r["fired"])


def _total(programs, what):
    values = [p[what] for p in programs]
    return None if None in values else sum(v * p["runs"] for v, p in zip(values, programs))


def make(found, averages=None, measure=True, by_steps=None):
    """The document. found: of _C._explain_end(); averages: the rows of a profile, by shapes, or None. by_steps: why recurrent layers on GPUs went step by
    step, and how often."""
    programs = found["programs"]
    limits = _of_devices(programs, measure)
    _add_times(programs, limits, _measured(averages))
    return {
        "windows": found["total"],
        "ops": sum(p["ops"] * p["runs"] for p in programs),
        "steps": sum(len(p["steps"]) * p["runs"] for p in programs),
        "devices": sorted({p["device"] for p in programs}),
        "ceilings": {d: {"gbs": c.gbs, "gflops": c.gflops, "source": c.source, "text": str(c) if c.gbs else ""} for d, c in limits.items()},
        **{what: _total(programs, what) for what in ("bytes", "flops", "expected_us", "measured_us")},
        "costs": _costs(programs),
        "cuts": _cuts(found["windows"]),
        "ends": _ends(programs),
        "rewrites": _rewrites(programs),
        "by_steps": by_steps or {},
        "fallbacks": _C.fallbacks(),
        "programs": programs,
        "parts": found["windows"],
        "order": found["order"],
        "left_out": found["left_out"],
    }
