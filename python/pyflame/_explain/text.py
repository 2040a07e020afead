"""The document as text."""
from .document import MOST_COSTS, MOST_ENDS, lasting

MOST_WINDOWS = 60  # more windows than these are listed by program
MOST_STEPS = 40  # in a text for a terminal


def size(n):
    for unit, of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= of:
            return f"{n / of:.3g} {unit}"
    return f"{n:.0f} B"


def work(n):
    for unit, of in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("KFLOP", 1e3)):
        if n >= of:
            return f"{n / of:.3g} {unit}"
    return f"{n:.0f} FLOP"


def time(us):
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    if us >= 1e3:
        return f"{us / 1e3:.3g} ms"
    return f"{us:.3g} us" if us >= 0.1 else f"{us * 1e3:.2g} ns"


def expected(row):
    """The time at the ceilings. The ceilings leave out what starting a kernel costs, so times below that are not told apart."""
    return time(row["expected_us"]) if row["expected_us"] >= row["launch_us"] else f"under {time(row['launch_us'])}"


def counted(n, what):
    return f"{n} {what}{'s' * (n != 1)}"


def measured(row):
    """'measured 0.3 ms', with the time of first runs where they took at least twice as long as later ones."""
    first, later, runs = row["first_us"], row.get("later_us"), row.get("runs")
    text = f"measured {time(row['measured_us'])}"
    if not first:
        return text
    if runs is None:  # the mean of one run
        return f"{text} in its first run" if later is None else f"measured {time(later)}, in the first run {time(first)}" if first >= 2 * later else text
    if runs == 1:
        return f"{text} in its first run"
    return f"{text}, of it {time(first)} in first runs" if first >= 2 * (row["measured_us"] - first) / (runs - 1) else text


def of_step(row):
    """'1.3 MB, 16.8 MFLOP, expected 0.2 ms (arithmetic), measured 0.3 ms'"""
    parts = [size(row["bytes"] or 0)]
    if row["flops"]:
        parts.append(work(row["flops"]))
    if row["expected_us"] is not None:
        parts.append(f"expected {expected(row)} ({row['limit']})")
    if row["measured_us"] is not None:
        parts.append(measured(row))
    return ", ".join(parts)


def of_end(e):
    where = f" ({e['writer_place']})" if e["writer_place"] != e["place"] and e["writer_place"] else ""
    return f"{e['reader']} reads what {e['writer']}{where} stored: {e['why']}"


def of_rewrite(r):
    """'found_attention at train.py:12 in attend: softmax(q k^T) v -> scaled_dot_product_attention'"""
    return f"{r['rewrite']} at {r['place'] or 'an unknown place'}: {r['text']}"


def of_cut(c):
    cause = c["reason"] + (f": {c['cause']}" if c["cause"] else "")
    where = f"{c['place']}: " if c["place"] and "the end of what is explained" not in c["cause"] else ""
    saved = f"; without it, {c['across']} would save {size(c['saves'])}" if c["saves"] else ""
    return f"{where}{cause}{saved}"


def of_fallback(f):
    return f"{f['op']} on {f['device']} ran on {f['ran_on']}: {counted(f['times'], 'time')}, {time(f['seconds'] * 1e6)}; {f['reason']}"


def totals(d):
    lines = [f"{counted(d['ops'], 'op')} in {counted(d['steps'], 'step')} on {', '.join(d['devices']) or 'no device'}; {size(d['bytes'] or 0)} of memory traffic" + (f", {work(d['flops'])}" if d["flops"] else "")]
    times = [f"expected {expected(d)} at the ceilings"] if d["expected_us"] is not None and d["steps"] else []
    times += [f"measured {time(d['measured_us'])} in the profile"] if d["measured_us"] is not None and d["steps"] else []
    if times:
        lines.append("; ".join(times))
    return lines + [f"ceilings of {device}: {c['text']}" for device, c in d["ceilings"].items() if c["text"]]


def _list(title, rows, most):
    if not rows:
        return []
    more = [f"  {len(rows) - most} more"] if len(rows) > most else []
    return [title, *(f"  {row}" for row in rows[:most]), *more]


def summary(d):
    """The lines before the windows."""
    whole, once = sum(map(lasting, d["costs"])), sum(r["once_us"] for r in d["costs"])
    share = lambda r: f"{100 * lasting(r) / whole:3.0f} %  " if whole else ""  # noqa: E731
    runs = lambda r: f" x {r['runs']}" if r["runs"] > 1 else ""  # noqa: E731
    costs = [f"{share(r)}{r['name']}{runs(r)}{'  ' + r['place'] if r['place'] else ''}: {of_step(r)}" for r in d["costs"]]
    times = lambda c: f"{c['count']} x  " if c["count"] > 1 else ""  # noqa: E731
    ends = [f"{size(e['saves']):>8}  {e['place']}: {of_end(e)}" for e in d["ends"]]
    return [*(f"  {line}" for line in totals(d)),
            *_list("the steps that cost most:", costs, MOST_COSTS),
            *([f"  first runs took {time(once)} more than later ones: they load, compile and touch memory once; the shares leave that out"] if once > 0.1 * whole else []),
            *_list("where windows were cut:", [times(c) + of_cut(c) for c in d["cuts"]], MOST_ENDS),
            *_list("what rewrites replaced:", [of_rewrite(r) for r in d["rewrites"] if r["fired"]], MOST_ENDS),
            *_list("what rewrites left, and why:", [of_rewrite(r) for r in d["rewrites"] if not r["fired"]], MOST_ENDS),
            *_list("recurrent layers that went step by step, and why:", [f"{n} x  {why}" for why, n in d["by_steps"].items()], MOST_ENDS),
            *_list("where fusion ends, and the memory traffic that one kernel for both would save:", ends, MOST_ENDS),
            *(_list("what ran on a fallback in this process:", [of_fallback(f) for f in d["fallbacks"]], MOST_ENDS) or ["no fallbacks"])]


def of_program(p):
    """The steps of a program."""
    for s in p["steps"]:
        yield f"  {s['title']}"
        yield f"    {of_step(s)}"
        yield from (f"    {line}" for line in s["lines"])
        yield from (f"    fusion ends: {of_end(e)}; fusing would save {size(e['saves'])}" for e in s["ends"])
    if p["replay"]:
        yield f"  {p['replay']}"


def _cut_of(w):
    cause = f": {w['cause']}" if w["cause"] else ""
    place = f" at {w['place']}" if w["place"] and "the end of what is explained" not in w["cause"] else ""
    return f"cut by {w['reason']}{cause}{place}"


def windows(d):
    """Each window in order; a program that was shown is not shown again."""
    shown, told = {}, set()
    for number, k in enumerate(d["order"], 1):
        w = d["parts"][k]
        p = d["programs"][w["program"]]
        known = "cached program" if w["cached"] or k in told else f"planned in {w['plan_us']:.0f} us"
        told.add(k)
        yield f"window {number} ({_cut_of(w)}; {known}): {p['totals']}"
        if w["program"] in shown:
            yield f"  as window {shown[w['program']]}"
            continue
        shown[w["program"]] = number
        yield from of_program(p)


def by_cost(d, steps=True):
    """Each program once, with its runs, the most expensive first. steps: with their steps."""
    cost = lambda k: ((d["programs"][k]["measured_us"] or d["programs"][k]["expected_us"] or 0) * d["programs"][k]["runs"], (d["programs"][k]["bytes"] or 0) * d["programs"][k]["runs"])  # noqa: E731
    for number, k in enumerate(sorted(range(len(d["programs"])), key=cost, reverse=True), 1):
        p = d["programs"][k]
        costs = [f"expected {expected(p)} a run"] if p["expected_us"] is not None else []
        costs += [f"measured {time(p['measured_us'])}"] if p["measured_us"] is not None else []
        yield f"program {number}: {counted(p['runs'], 'run')}{''.join(', ' + c for c in costs)}; {p['totals']}"
        for w in d["parts"]:
            if w["program"] == k:
                yield f"  {w['count']} x {_cut_of(w)}"
        if steps:
            yield from of_program(p)


def is_long(d):
    """Whether the steps of all programs fill more than a few screens."""
    return sum(len(p["steps"]) for p in d["programs"]) > MOST_STEPS


def short(d):
    """The summary, and one line for each of the most expensive programs."""
    heads = [line for line in by_cost(d, steps=False) if line.startswith("program ")]
    more = [f"{counted(len(heads) - MOST_ENDS, 'further program')}"] if len(heads) > MOST_ENDS else []
    return "\n".join([counted(d["windows"], "window"), *summary(d), *heads[:MOST_ENDS], *more]) + "\n"


def render(d, programs_only=False):
    """The whole text."""
    listed = by_cost(d) if programs_only or len(d["order"]) > MOST_WINDOWS else windows(d)
    left_out = [f"{counted(d['left_out'], 'window')} of further programs left out"] if d["left_out"] else []
    return "\n".join([counted(d["windows"], "window"), *summary(d), *listed, *left_out]) + "\n"
