#!/usr/bin/env python3
"""What padded rows gain for matrix products, and a weight that is stored in the other layout (docs/decisions/0025-padded-strides.md).

    python benchmarks/padded_strides.py --device rocm --json benchmarks/results/MACHINE/padded_strides.json

Each product is computed as it is and in up to seven other forms:

    w+128, a+128, wa+128      rows of the weight, of the activation, of both are 128 elements longer
    w+128B, a+128B, wa+128B   the same with 128 bytes
    w other                   the weight is stored in the other layout: the simplest order of elements that is another one

A padded weight is made beforehand. The copy of an activation is part of each sample. Rows whose length is no multiple of 512 bytes are not padded. For each form the entries of
the implementation list are measured first, in a folder that is thrown away (pf.tuning.measure), so that each runs with the entry that is fastest for it. Then the forms take turns: a
sample is that of pf.bench(cache="cold"). The ratio is the time of the product as it is over that of the form, so that a form above 1 helps; the interval of 95 % is that of the bootstrap of
the turns. Products are left out, with a line that says so, where the device does not compute them and where --limit would be exceeded.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

MS, NS, KS, LAYOUTS = (16, 256, 4096), (4096,), (4096, 8192, 14336), ("NN", "NT", "TN")
DTYPES = ("bfloat16", "float16", "float8")
QUICK = {"m": (16,), "n": (256,), "k": (256,), "turns": 3, "budget": 1.0}
ELEMENTS, BYTES, MULTIPLE = 128, 128, 512
FORMS = ("w+128", "a+128", "wa+128", "w+128B", "a+128B", "wa+128B", "w other")


def room(pf, x, transposed, elements):
    """A tensor like x whose rows, in the order in which they are stored, are so many elements longer. Its values are not set."""
    rows, columns = x.mT.shape if transposed else x.shape
    inside = pf.zeros(rows, columns + elements, dtype=x.dtype)[:, :columns]
    return inside.mT if transposed else inside


def padded(pf, x, transposed, elements):
    """A copy of x with longer rows."""
    copy = room(pf, x, transposed, elements)
    copy.copy_(x)
    return copy


def operand(pf, rows, columns, transposed, dtype):
    """(a matrix, its scale or None)"""
    x = pf.randn(columns, rows) if transposed else pf.randn(rows, columns)
    x, scale = pf.float8.quantize(x, dtype) if "float8" in str(dtype) else (x.to(dtype), None)
    return x.mT if transposed else x, scale


def forms(pf, m, n, k, dtype, layout):
    """(call, what the choice of an entry depends on) by name: the product as it is, and in its other forms."""
    (a, scale_a), (b, scale_b) = operand(pf, m, k, layout[0] == "T", dtype), operand(pf, k, n, layout[1] == "T", dtype)

    def product(x, w):
        return pf.matmul(x, w) if scale_a is None else pf._scaled_mm(x, w, scale_a, scale_b)

    def form(w, place=None):
        call = (lambda: product(a, w)) if place is None else (lambda: product(place.copy_(a), w))
        return call, (str(dtype), *((tuple(x.shape), x.stride()) for x in (a if place is None else place, w)))

    calls = {"as it is": form(b)}
    of_a, of_b = ((x.mT if side == "T" else x).shape[1] * a.itemsize % MULTIPLE == 0 for x, side in ((a, layout[0]), (b, layout[1])))
    for label, elements in (("+128", ELEMENTS), ("+128B", BYTES // a.itemsize)):
        if label == "+128B" and elements == ELEMENTS:
            continue
        longer_b = padded(pf, b, layout[1] == "T", elements) if of_b else None
        place = room(pf, a, layout[0] == "T", elements) if of_a else None
        if of_b:
            calls[f"w{label}"] = form(longer_b)
        if of_a:
            calls[f"a{label}"] = form(b, place)
        if of_a and of_b:
            calls[f"wa{label}"] = form(longer_b, place)
    calls["w other"] = form(b.mT.contiguous().mT if layout[1] == "N" else b.contiguous())
    pf.synchronize()
    return calls


def choose(pf, call, key, budget, chosen={}):  # noqa: B006: it keeps what was chosen
    """Measures the entries for a form. The name of the one that is used afterwards; None where there is one only, or where the budget did not suffice for a choice."""
    if key in chosen:
        return chosen[key]
    known = {(r.op, r.problem) for r in pf.tuning.rows()}
    with pf.tuning.measure(budget=budget):
        out = call()  # what nobody holds is not computed
        pf.synchronize()
        del out
    new = [t for t in pf.tuning.problems() if (t.op, t.problem) not in known]
    chosen[key] = ", ".join(t.best.entry for t in new) or None
    return chosen[key]


def in_turns(calls, device, turns, each):
    """The samples of each form in milliseconds, as pf.bench draws them with a cold cache, in turns. The first turn warms up."""
    from pyflame.benchmarking import environment
    from pyflame.benchmarking.measure import FLUSH, _Timer

    flush = environment.flusher(device, FLUSH)
    timers = {name: _Timer(call, device, flush) for name, call in calls.items()}
    samples = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name in list(timers)[::1 if turn % 2 else -1]:
            figure = timers[name].sample(each)[0]
            if turn:
                samples[name].append(figure)
    return samples


def measure(pf, problem, args):
    """A row of the results."""
    from pyflame.benchmarking.compare import WORTH, bootstrap

    m, n, k, name, layout = problem
    dtype = pf.float8.formats(args.device)[0] if name == "float8" else getattr(pf, name)
    calls, entries, refused = forms(pf, m, n, k, dtype, layout), {}, {}
    for form, (call, key) in list(calls.items()):
        try:
            entries[form] = choose(pf, call, key, args.budget)
        except NotImplementedError as e:
            if form == "as it is":
                raise
            refused[form] = str(e).splitlines()[0]
            del calls[form]
    samples = in_turns({form: call for form, (call, _) in calls.items()}, args.device, args.turns, 1 if args.quick else args.calls)
    row = {"m": m, "n": n, "k": k, "dtype": str(dtype).rsplit(".", 1)[-1], "layout": layout, "forms": {}, "refused": refused}
    for form, times in samples.items():
        found = {"us": statistics.median(times) * 1e3, "entry": entries[form]}
        if form != "as it is":
            found["ratio"], found["low"], found["high"] = bootstrap(samples["as it is"], times, paired=True)
            found["verdict"] = "faster" if found["low"] > 1 + WORTH else "slower" if found["high"] < 1 - WORTH else "same"
        row["forms"][form] = found
    return row


def show(row):
    cells = "".join(f"{row['forms'][f]['ratio']:8.3f}{ {'faster': '+', 'slower': '-', 'same': ' '}[row['forms'][f]['verdict']]}" if f in row["forms"] else f"{'':9}" for f in FORMS)
    plain = row["forms"]["as it is"]
    print(f"{row['m']:5} {row['n']:5} {row['k']:6} {row['dtype']:15} {row['layout']} {plain['us']:10.1f} {cells}  {plain['entry'] or ''}", flush=True)


def summary(rows):
    """For each form: the geometric mean of the ratios, and for how many products it is faster and slower."""
    found = {}
    for form in FORMS:
        some = [r["forms"][form] for r in rows if form in r["forms"]]
        if some:
            found[form] = {"geometric_mean": statistics.geometric_mean(x["ratio"] for x in some), "products": len(some), **{v: sum(x["verdict"] == v for x in some) for v in ("faster", "slower")}}
    return found


def tell(rows):
    groups = {"all": rows}
    for key in ("dtype", "layout", "m"):
        values = sorted({r[key] for r in rows})
        groups |= {f"{key} {v}": [r for r in rows if r[key] == v] for v in values} if len(values) > 1 else {}
    print(f"\n{'geometric means':22}{''.join(f'{f:>9}' for f in FORMS)}")
    for name, some in groups.items():
        means = summary(some)
        print(f"{name:22}{''.join(f'''{means[f]['geometric_mean']:9.3f}''' if f in means else f'''{'':9}''' for f in FORMS)}")
    unmeasured = sum(x["entry"] is None for r in rows for x in r["forms"].values())
    if unmeasured:
        print(f"{unmeasured} of {sum(len(r['forms']) for r in rows)} forms ran with PyFlame's own choice: there is one entry only, or --budget did not suffice")
    for form, s in summary(rows).items():
        print(f"{form}: {s['faster']} of {s['products']} products faster, {s['slower']} slower, by more than the interval")


def parsed():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu", help="'rocm', 'cuda', 'cpu' (default)")
    for name, values in (("m", MS), ("n", NS), ("k", KS)):
        p.add_argument(f"--{name}", type=lambda text: tuple(map(int, text.split(","))), default=None, help=f"numbers with commas (default: {','.join(map(str, values))})")
    p.add_argument("--dtypes", default=",".join(DTYPES), help="of bfloat16, float16, float8 (that of the device); default: all")
    p.add_argument("--layouts", default=",".join(LAYOUTS), help="activation and weight, T where one lies transposed in memory; default: NN,NT,TN")
    p.add_argument("--turns", type=int, default=None, help="samples of each form (default: 15)")
    p.add_argument("--calls", type=int, default=8, help="calls of a sample")
    p.add_argument("--budget", type=float, default=None, help="seconds for the entries of one form, at most (default: 10)")
    p.add_argument("--limit", type=float, default=float("inf"), help="seconds for everything: a product that might take longer is left out")
    p.add_argument("--quick", action="store_true", help="few small products, to try the program")
    p.add_argument("--json", help="write the results to this file")
    args = p.parse_args()
    whole = {"m": MS, "n": NS, "k": KS, "turns": 15, "budget": 10.0}
    for name, value in (QUICK if args.quick else whole).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    for what, known in (("dtypes", DTYPES), ("layouts", (*LAYOUTS, "TT"))):
        values = getattr(args, what).split(",")
        if unknown := [v for v in values if v not in known]:
            p.error(f"--{what}: got {','.join(unknown)}; expected some of {','.join(known)}")
        setattr(args, what, values)
    if min(args.turns, args.calls, *args.m, *args.n, *args.k) < 1 or args.budget <= 0:
        p.error("sizes, --turns and --calls are at least 1, and --budget is positive")
    return args


def run(args):
    import pyflame as pf

    began, longest, rows, left = time.perf_counter(), 0.0, [], []
    try:
        pf.set_device(args.device)
    except pf.DeviceError as e:
        print(e, file=sys.stderr)
        return 1
    pf.manual_seed(0)
    print(f"{'m':>5} {'n':>5} {'k':>6} {'dtype':15} {'':2} {'as is, us':>10} {''.join(f'{f:>8} ' for f in FORMS)}  entry")
    for problem in ((m, n, k, dtype, layout) for k in args.k for n in args.n for m in args.m for dtype in args.dtypes for layout in args.layouts):
        start = time.perf_counter()
        name = "x".join(map(str, problem[:3])) + " " + " ".join(problem[3:])
        if start - began + longest > args.limit:
            left.append(f"{name}: the time was over")
            continue
        try:
            row = measure(pf, problem, args)
        except NotImplementedError as e:
            left.append(f"{name}: {str(e).splitlines()[0]}")
            continue
        longest = max(longest, time.perf_counter() - start)
        rows.append(row)
        show(row)
    for text in left:
        print(f"left out: {text}")
    if not rows:
        print("padded_strides: there was nothing to measure", file=sys.stderr)
        return 1
    tell(rows)
    if args.json:
        info = pf.device_info(args.device)
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"benchmark": "padded_strides", "device": {key: info.get(key) for key in ("name", "architecture")}, "version": pf.__version__, "turns": args.turns, "seconds": time.perf_counter() - began,
                       "summary": summary(rows), "rows": rows, "left_out": left}, f, indent=1)  # fmt: skip
            f.write("\n")
    return 0


def main():
    args = parsed()
    folder = tempfile.mkdtemp(prefix="pyflame-padded-")
    os.environ["PYFLAME_CACHE_DIR"] = folder  # before the first import: measurements of other runs would decide
    try:
        return run(args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
