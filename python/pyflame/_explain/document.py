"""Makes one document, a dict that json can write, of what the engine found. Text and page only render it."""
from .. import _C, _cells
from ..profiler.ceilings import ceilings

MOST_COSTS, MOST_ENDS = 8, 12


def _measured(averages):
    """The time of the first run of a step and the mean of the later ones (None: there was one run), in microseconds, by name and arguments."""
    times = {}
    for a in averages or ():
        if a.kind == "step" and a.count:
            total = a.self_device_time_total or a.cpu_time_total
            times[a.key, a._args] = a.first_time, max(0.0, total - a.first_time) / (a.count - 1) if a.count > 1 else None
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


def _launch(device):
    """About what starting a step takes at least, in microseconds: a call on the host, a command to a GPU."""
    return 1.0 if device.split(":")[0] in ("cuda", "rocm") else 0.1


def _add_times(programs, limits, times, whole):
    """Expected and measured times of a run, in the mean. first_us: the first run of a step, which also did what is done once (make a kernel, start threads, touch
    new memory). It is a run of the first program with the step if all runs were measured (whole); otherwise it was before what is explained."""
    begun = set()
    for p in programs:
        limit = limits.get(p["device"])
        p["launch_us"] = _launch(p["device"])
        for s in p["steps"]:
            s["launch_us"] = p["launch_us"]
            s["expected_us"] = limit.microseconds(s["bytes"], s["flops"], s["dtype"]) if limit else None
            s["limit"] = limit.limit(s["bytes"], s["flops"], s["dtype"]) if limit else ""
            key = s["name"], s["args"]
            first, s["later_us"] = times.get(key, (None, None))
            s["first_us"] = first if key not in begun and (whole or s["later_us"] is None) else None
            s["measured_us"] = s["later_us"] if s["later_us"] is not None else first
            if s["first_us"] is not None and s["later_us"] is not None:
                s["measured_us"] += (first - s["later_us"]) / p["runs"]
            begun.add(key)
        for what in ("bytes", "flops", "expected_us", "measured_us"):
            known = [s[what] for s in p["steps"] if s[what] is not None]
            p[what] = sum(known) if len(known) == len(p["steps"]) else None


def _costs(programs):
    """Equal steps at one line are one row, with the time of all runs. The longest comes first, without once_us: what first runs took longer than later ones."""
    rows = {}
    for p in programs:
        for s in p["steps"]:
            row = rows.setdefault((s["name"], s["place"], p["device"]), {"name": s["name"], "place": s["place"], "device": p["device"], "limit": s["limit"], "runs": 0, "bytes": 0, "flops": 0, "expected_us": 0.0, "measured_us": 0.0, "first_us": 0.0, "once_us": 0.0, "launch_us": p["launch_us"]})
            row["runs"] += p["runs"]
            row["first_us"] += s["first_us"] or 0.0
            if s["first_us"] is not None and s["later_us"] is not None:
                row["once_us"] += max(0.0, s["first_us"] - s["later_us"])
            for what in ("bytes", "flops", "expected_us", "measured_us"):
                row[what] = None if s[what] is None or row[what] is None else row[what] + s[what] * p["runs"]
    return sorted(rows.values(), key=lambda r: (lasting(r), r["bytes"]), reverse=True)


def lasting(row):
    """The time of a row of costs without what is done once, or what it should take if it was not measured; in microseconds."""
    return (row["measured_us"] or row["expected_us"] or 0) - (row["once_us"] if row["measured_us"] else 0)


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


def make(found, averages=None, measure=True, by_steps=None, whole=False):
    """The document. found: of _C._explain_end(); averages: the rows of a profile, by shapes, or None. whole: the profile has exactly the runs that are explained. by_steps: why recurrent layers on GPUs went step by
    step, and how often."""
    found = _cells.in_text(found)
    programs = found["programs"]
    limits = _of_devices(programs, measure)
    _add_times(programs, limits, _measured(averages), whole)
    return {
        "windows": found["total"],
        "ops": sum(p["ops"] * p["runs"] for p in programs),
        "steps": sum(len(p["steps"]) * p["runs"] for p in programs),
        "devices": sorted({p["device"] for p in programs}),
        "ceilings": {d: {"gbs": c.gbs, "gflops": c.gflops, "source": c.source, "text": str(c) if c.gbs else ""} for d, c in limits.items()},
        **{what: _total(programs, what) for what in ("bytes", "flops", "expected_us", "measured_us")},
        "costs": _costs(programs),
        "launch_us": max((p["launch_us"] for p in programs), default=0.0),
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
