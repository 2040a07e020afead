"""The journal as one HTML file, which loads nothing else: a waterfall of the gains, and every trial."""
from html import escape

from .._explain.page import STYLE, _section, _table
from ..benchmarking.measure import REJECTED

_STYLE = STYLE + ".kept { color: var(--accent); font-weight: 600; } .fall { position: relative; height: 18px; min-width: 300px; } .fall span { position: absolute; top: 4px; height: 10px; background: var(--accent); border-radius: 2px; } .fall span.left { background: var(--line); }"


def _interval(e):
    return f"{e['ratio']:.3f} [{e['low']:.3f}, {e['high']:.3f}]" if "ratio" in e else ""


def _change(e):
    return "; ".join(f"{name} = {value!r}" for values in e.get("changes", {}).values() for name, value in values.items())


def _waterfall(kept):
    """A bar for each kept change: the part of the first time that it took away, and what is left of it."""
    rows, left = [], 1.0
    for e in kept:
        after = left / e["ratio"]
        bars = f'<div class=fall><span class=left style="left:0;width:{100 * after:.1f}%"></span><span style="left:{100 * after:.1f}%;width:{100 * (left - after):.1f}%"></span></div>'
        rows.append((f"<code>{escape(e['name'])}</code>", bars, f"{100 * after:.1f} %", _interval(e)))
        left = after
    return _table(("change", "time, of the baseline's", "left", "times as fast, 95 % interval"), rows, (2, 3)) if rows else ""


def _trials(found):
    rows = [(f"<span class={'kept' if e['verdict'] == 'kept' else 'soft'}>{escape(e['verdict'])}</span>", f"<code>{escape(e['name'])}</code>", str(e["level"]), f"{e['expected']:.2f}", _interval(e),
             escape(_change(e)), escape(e["reason"] + (f". Result: {e['why']}" if e.get("why") else ""))) for e in found]
    return _table(("verdict", "change", "level", "expected", "measured", "setting", "why"), rows, (2, 3, 4)) if rows else ""


def _composition(found):
    rows = [(escape(e["name"]), escape(e["verdict"]), _interval(e), escape(e.get("why", ""))) for e in found]
    return _table(("change", "verdict", "with it against without it", ""), rows, (2,)) if rows else ""


def render(journal, title, diff):
    """The whole page."""
    trials, base, profile = journal.of("candidate"), journal.of("baseline"), journal.of("profile")
    total = [e for e in journal.valid() if e["event"] == "total"]
    kept = journal.kept()
    headline = f"{total[-1]['ratio']:.2f} times as fast" if total and "ratio" in total[-1] else "not compared as a whole yet" if kept else "nothing helped" if trials else "nothing was tried yet"
    lines = [f"All together: {_interval(total[-1])} times as fast as the program as it was." if total and "ratio" in total[-1] else "",
             f"The baseline's runs: {', '.join(f'{f:.4g} s' for f in base[-1]['figures'])}; {base[-1]['values']} values of each run are compared." if base else "",
             f"These figures spread over {base[-1]['spread']:.0%}, so a change was compared in up to {base[-1]['pairs']} pairs of runs." if base and base[-1]["spread"] > REJECTED and "pairs" in base[-1] else "", profile[-1]["verdict"] if profile else ""]
    return "".join((
        f'<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width, initial-scale=1"><title>{escape(title)} - PyFlame optimize</title><style>{_STYLE}</style>',
        f"<h1>{escape(title)}: {escape(headline)}</h1>", *(f"<p>{escape(line)}</p>" for line in lines if line),
        _section("Gains", "Each kept change, measured on top of those above it. The bar is what it took away.", _waterfall(kept)),
        _section("All together, without each one", "A change that gains nothing beside the others is left out.", _composition(journal.of("composition"))),
        _section("Everything that was tried", "A change is kept if the program computes the same with it and the interval lies above 1.005.", _trials(trials)),
        _section("Changes of the program to look at", "They are not applied, and their gain is not measured.", f"<pre>{escape(diff)}</pre>" if diff else ""), "</html>\n"))
