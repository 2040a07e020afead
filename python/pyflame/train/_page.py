"""report.html of a run: the lines of metrics.jsonl as one HTML file, which loads nothing else."""
import json
import math
import os
from html import escape

from .._explain.page import STYLE, _section, _table
from ..memory._text import size

_STYLE = STYLE + """
svg { display: block; width: 100%; height: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; margin: 0 0 10px; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg line { stroke: var(--line); } svg polyline { fill: none; stroke: var(--accent); stroke-width: 1.6; }
svg polyline.b { stroke: var(--soft); stroke-dasharray: 5 4; }
"""
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 900, 220, 90, 26, 26
_MOST_POINTS = 2000


def _curve(points, x_of, y_of, kind):
    points = points[:: max(1, len(points) // _MOST_POINTS)]
    return f'<polyline class={kind} points="{" ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)}"/>'


def _chart(title, curves, text_of, from_zero=False):
    """curves: [(name, [(step, value)])], at most two; values that are not finite are left out."""
    curves = [(name, [(x, y) for x, y in points if math.isfinite(y)]) for name, points in curves]
    everything = [p for _, points in curves for p in points]
    if not everything:
        return ""
    steps, values = [x for x, _ in everything], [y for _, y in everything]
    first, last, low, high = min(steps), max(steps), 0 if from_zero else min(values), max(values)
    x_of = lambda x: _LEFT + (_WIDTH - _LEFT - 20) * ((x - first) / (last - first) if last > first else 0.5)  # noqa: E731
    y_of = lambda y: _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * ((y - low) / (high - low) if high > low else 0.5)  # noqa: E731
    named = ", ".join(f"{name}: {text_of(points[-1][1])}{' (dashed)' if k else ''}" for k, (name, points) in enumerate(curves) if points)
    lines = "".join(f'<line x1={_LEFT} x2={_WIDTH - 20} y1={y_of(y):.1f} y2={y_of(y):.1f} /><text x={_LEFT - 8} y={y_of(y) + 4:.1f} text-anchor=end>{escape(text_of(y))}</text>' for y in dict.fromkeys((low, high)))
    ends = "".join(f'<text x={x_of(x):.1f} y={_HEIGHT - 8} text-anchor={anchor}>{x}</text>' for x, anchor in dict.fromkeys([(first, "start"), (last, "end")] if last > first else [(first, "middle")]))
    drawn = "".join(_curve(points, x_of, y_of, "ab"[k]) for k, (_, points) in enumerate(curves) if points)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role=img aria-label="{escape(title)}"><text x={_LEFT} y=17>{escape(title)}, at the end {escape(named)}</text>{lines}{ends}{drawn}</svg>'


def _numbers(records, name):
    return [(r["step"], r[name]) for r in records if isinstance(r.get(name), (int, float))]


def _memory(records):
    known = [r for r in records if "memory" in r]
    if not known:
        return ""
    of = lambda name: [(r["step"], r["memory"][name]) for r in known]  # noqa: E731
    last = known[-1]["memory"]
    rows = [("device", *(size(last[n]) for n in ("allocated", "peak", "reserved", "left", "total"))), ("process, of the host's memory", size(last["host"]), size(last["host_peak"]), "", size(last["host_left"]), size(last["host_total"]))]
    return (_chart("bytes of the device", [("in use", of("allocated")), ("peak", of("peak"))], size, True) + _chart("bytes of the process on the host", [("resident", of("host")), ("peak", of("host_peak"))], size, True)
            + _table(("at the last line", "in use", "peak", "reserved", "left", "of"), rows, (1, 2, 3, 4, 5)))


def render(records, title):
    """The whole page."""
    lines, epochs = [r for r in records if "loss" in r and "end_of_epoch" not in r], [r for r in records if r.get("end_of_epoch")]
    warnings = "".join(f"<li>step {r['step']}: {escape(r['warning'])}</li>" for r in records if "warning" in r)
    names = [n for n in dict.fromkeys(n for r in epochs for n in r) if n.startswith("val_")]
    number = lambda y: f"{y:.6g}"  # noqa: E731
    rows = [(str(r["epoch"]), str(r["step"]), *(number(r[n]) if n in r else "" for n in ("loss", *names)), f"{r['seconds']:.3g}", f"{r['samples_per_second']:.4g}") for r in epochs]
    reached = f"{epochs[-1]['epoch']} epochs, loss {epochs[-1]['loss']:.6g}" if epochs else "no epoch is complete"
    return "".join((
        f'<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width, initial-scale=1"><title>{escape(title)} - PyFlame train</title><style>{_STYLE}</style>',
        f"<h1>{escape(title)}: {escape(reached)}</h1>",
        _section("Warnings", "What the run said.", f"<ul>{warnings}</ul>" if warnings else ""),
        _section("Loss", "Of the batches of a step at each line, and the mean of each epoch.", _chart("loss of a step", [("loss", _numbers(lines, "loss"))], number) + _chart("loss of an epoch", [("loss", _numbers(epochs, "loss"))], number)),
        _section("Validation", "Means over the validation set.", "".join(_chart(n.removeprefix("val_"), [(n, _numbers(epochs, n))], number) for n in names)),
        _section("Memory", "At each line. The peak is the most since fit() began; left is what this process can still take.", _memory(records)),
        _section("Epochs", "", _table(("epoch", "step", "loss", *names, "seconds", "samples/s"), rows, range(5 + len(names))) if rows else ""), "</html>\n"))


def write(folder):
    """Writes report.html beside metrics.jsonl, atomically."""
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    path = os.path.join(folder, "report.html")
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(render(records, os.path.basename(os.path.abspath(folder))))
    os.replace(path + ".new", path)
